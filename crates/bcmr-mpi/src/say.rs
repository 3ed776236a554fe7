//! What is said, in bcmr's own words, with the rank that says it. The only writer to standard output and standard error.
//!
//! Must not know why anything happened.

#[path = "../../bcmr/src/say/told.rs"]
#[allow(dead_code, reason = "bcmr's own file, of which this needs a part")]
mod told;
#[path = "../../bcmr/src/say/words.rs"]
#[allow(dead_code, reason = "bcmr's own file, of which this needs a part")]
pub mod words;

use crate::names;
use crate::voice::{BCMR, Voice};
use bcmr_engine::api::{Action, Change, Code, Error, Event, Front, PlanVerb, Question};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// bcmr's, under this program's name.
pub static VOICE: Voice = Voice { program: "bcmr-mpi", ..BCMR };

/// One rank's voice.
pub struct RankVoice {
    /// What stands behind an error.
    pub who: String,
    /// Items are told.
    pub verbose: bool,
    /// All items fail in the same way, which was told once.
    pub told_of_all: AtomicBool,
}

/// A line of one write, so that lines of ranks do not mix.
pub fn err(line: &str) {
    let _nobody_else_hears = std::io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// What was asked for.
pub fn out(line: &str) {
    let _nobody_else_hears = std::io::stdout().lock().write_all(format!("{line}\n").as_bytes());
}

/// What came of all entries.
pub fn done(verb: PlanVerb) -> &'static str {
    match verb {
        PlanVerb::Copy => "published",
        PlanVerb::Sync { .. } => "synced",
        PlanVerb::Check { .. } => "compared",
        PlanVerb::Remove => "removed",
    }
}

impl RankVoice {
    /// What went wrong.
    pub fn failed(&self, e: &Error) {
        err(&format!("{} ({})", told::error(&VOICE, e), self.who));
    }

    /// Something that is no error of the engine's.
    pub fn says(&self, text: &str) {
        err(&VOICE.line(text));
    }

    fn item(&self, action: Action, src: &std::path::Path, dst: &std::path::Path) {
        if self.verbose {
            out(&format!("{action:?} {} -> {}", names::quoted(src), names::quoted(dst)));
        }
    }
}

/// Whether a shard whose items failed so ends all ranks: no other rank would fare better.
pub fn ends_all(codes: &[Code]) -> bool {
    codes.iter().copied().any(told::is_of_all)
}

impl Front for RankVoice {
    fn event(&self, event: Event) {
        match event {
            Event::Failed(e) if told::is_of_all(e.code) && self.told_of_all.swap(true, Relaxed) => {}
            Event::Failed(e) => self.failed(&e),
            Event::Warning(e) => err(&format!("{} ({})", told::warning(&VOICE, &e), self.who)),
            Event::Difference { change, path, .. } => {
                let sign = match change {
                    Change::Add => '+',
                    Change::Extra => '-',
                    Change::Differ => '~',
                };
                out(&format!("{sign} {}", names::quoted(&path)));
            }
            Event::Item { action, src, dst, .. } => self.item(action, &src, &dst),
            _ => {}
        }
    }

    fn ask(&self, _: Question) -> bool {
        false
    }
}
