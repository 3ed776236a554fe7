//! Events as lines for people: what was done on standard output, what went wrong on standard error.
//!
//! Must not word anything (that is `say`) and must not know terminals beyond whether signs are coloured.

use super::tree::{self, Difference};
use super::writer::Sink;
use crate::names;
use crate::say::{self, Advice, words};
use crate::show::{NewTarget, Show, Verb};
use bcmr_engine::error::{Code, Error, Reason};
use bcmr_engine::event::{Change, Event, Summary, Unfinished};
use std::os::unix::ffi::OsStringExt;

/// So many differences are sorted and folded; what comes after them is told as it comes, so that memory has a bound.
const FOLDED_MAX: usize = 100_000;
/// The same for the bytes of their paths, which may be another machine's.
const FOLDED_BYTES_MAX: usize = 64 << 20;
/// Of failures that are the file system's as a whole, so many are told one by one.
const ALIKE_MAX: u64 = 3;

/// What has been told, as far as later lines depend on it.
#[derive(Default)]
pub struct Plain {
    hinted: Vec<Code>,
    /// How often each of these codes was met.
    alike: Vec<(Code, u64)>,
    found: Vec<Difference>,
    found_bytes: usize,
    folded: bool,
    /// Files and bytes.
    add: (u64, u64),
    extra: (u64, u64),
    differ: u64,
    unfinished: Vec<Unfinished>,
    /// What `--fast` assumes was said.
    noted: bool,
    /// The destination is new.
    is_new: bool,
    /// Nothing more is heard of it; `true`: had it been new, that would have been told.
    over: Option<bool>,
    /// Hints whose command depends on that.
    waiting: Vec<Advice>,
}

impl Plain {
    /// Tells one event.
    pub fn event(&mut self, show: &Show, event: Event, out: &mut Sink, err: &mut Sink) {
        match event {
            Event::Item { action, src, dst, .. } => {
                if let Some(base) = &show.itemized {
                    say::itemized::item(action, &dst, base).iter().for_each(|line| out.line(line));
                } else if show.items {
                    out.line(&say::item(show.dry_run, action, &src, &dst));
                }
            }
            Event::Difference { change, path, directory, files, bytes, why, .. } => {
                let path = path.into_os_string().into_vec();
                self.difference(show, Difference { change, path, directory, files, bytes, why }, out);
            }
            // A hash is for the manifest and for machines.
            Event::Hashed { .. } => {}
            Event::Resumed { dst, bytes, restarted, repaired } => {
                if !show.quiet {
                    err.line(&say::resumed(show.voice, &dst, bytes, restarted, repaired));
                    if show.fast && bytes > 0 && !std::mem::replace(&mut self.noted, true) {
                        err.line(say::FAST);
                    }
                }
            }
            Event::Unfinished(u) => self.unfinished.push(u),
            Event::Failed(e) => self.trouble(show, &e, &say::error(show.voice, &e), err),
            Event::Warning(e) => self.trouble(show, &e, &say::warning(show.voice, &e), err),
            Event::Engine(engine) => {
                // What was asked for and could not be is told unasked.
                let not_so = engine.asked && (engine.missing.is_some() || engine.not_direct_files > 0);
                if show.verbose || (not_so && !show.quiet) {
                    err.line(&say::engine(show.voice, &engine));
                }
            }
            Event::NewTarget => {
                self.is_new = true;
                self.tell_waiting(show, err);
            }
            Event::Note(note) => {
                // What a person may want back is told unasked.
                if show.verbose
                    || matches!(note.reason, Reason::OldKept | Reason::OldKeptThere) && !show.quiet
                {
                    err.line(&show.voice.line(&names::text(&words::note(&note))));
                }
            }
        }
    }

    /// Tells an error and, the first time its code is met, what to do about it.
    pub fn trouble(&mut self, show: &Show, e: &Error, line: &str, err: &mut Sink) {
        if !show.verbose && say::is_of_all(e.code) && self.met(e.code) > ALIKE_MAX {
            return;
        }
        err.line(line);
        if !show.quiet
            && !self.hinted.contains(&e.code)
            && let Some(advice) = show.typed(self.new_target(show)).hint(e)
        {
            self.hinted.push(e.code);
            self.waiting.push(advice);
            self.tell_waiting(show, err);
        }
    }

    /// Whether the destination is new, as far as it is known.
    pub fn new_target(&self, show: &Show) -> NewTarget {
        match (self.is_new, self.over) {
            (true, _) => NewTarget::Yes,
            (false, Some(true)) => NewTarget::No,
            (false, _) if show.guessed_there => NewTarget::Untold,
            (false, _) => NewTarget::No,
        }
    }

    /// The run is over. `heard`: the other machine has told all that it had to tell; what was lost meanwhile did no harm.
    pub fn over(&mut self, show: &Show, heard: bool, err: &mut Sink) {
        self.over = Some(heard);
        self.waiting.retain(|advice| !(heard && advice.is_of_connection()));
        self.tell_waiting(show, err);
    }

    fn tell_waiting(&mut self, show: &Show, err: &mut Sink) {
        let typed = show.typed(self.new_target(show));
        for advice in std::mem::take(&mut self.waiting) {
            if self.over.is_none() && typed.waits(&advice) {
                self.waiting.push(advice);
            } else {
                err.line(&format!("hint: {}", typed.words(&advice)));
            }
        }
    }

    /// Counts one more of this code, and says how many it is now.
    fn met(&mut self, code: Code) -> u64 {
        match self.alike.iter_mut().find(|(known, _)| *known == code) {
            Some((_, count)) => {
                *count += 1;
                *count
            }
            None => {
                self.alike.push((code, 1));
                1
            }
        }
    }

    /// What was not told one by one, in a line for each code.
    pub fn rest(&self, show: &Show, err: &mut Sink) {
        for (code, count) in &self.alike {
            if let more @ 1.. = count.saturating_sub(ALIKE_MAX) {
                err.line(&say::rest(show.voice, *code, more));
            }
        }
    }

    fn difference(&mut self, show: &Show, found: Difference, out: &mut Sink) {
        match found.change {
            // A directory without files is something too.
            Change::Add => self.add = (self.add.0 + found.files.max(1), self.add.1 + found.bytes),
            Change::Extra => self.extra = (self.extra.0 + found.files.max(1), self.extra.1 + found.bytes),
            Change::Differ => self.differ += 1,
        }
        if show.quiet {
            return;
        }
        if show.itemized.is_some() {
            let Difference { change, path, directory, why, .. } = &found;
            out.line(&say::itemized::difference(*change, path, *directory, *why));
            return;
        }
        if self.folded {
            out.raw(&tree::flat(&found, show.color));
            return;
        }
        self.found_bytes += found.path.len();
        self.found.push(found);
        if self.found.len() >= FOLDED_MAX || self.found_bytes >= FOLDED_BYTES_MAX {
            self.fold(show, out);
        }
    }

    fn fold(&mut self, show: &Show, out: &mut Sink) {
        out.raw(&tree::draw(&mut self.found, show.color));
        self.found = Vec::new();
        self.folded = true;
    }

    /// What `sessions` found, by name.
    pub fn unfinished(&mut self, show: &Show, out: &mut Sink) {
        self.unfinished.sort_by(|a, b| a.path.cmp(&b.path));
        if !show.quiet && !self.unfinished.is_empty() {
            out.raw(&say::unfinished(&self.unfinished, show.now));
        }
    }

    /// Whether a difference is told that the summary may not count: of a directory whose own name another shard has.
    pub fn has_differences(&self) -> bool {
        (self.add, self.extra, self.differ) != ((0, 0), (0, 0), 0)
    }

    /// The rest of what `check` found, and the totals. They are of what was compared before a stop, if it was stopped.
    pub fn differences(&mut self, show: &Show, s: &Summary, out: &mut Sink) {
        if !show.quiet {
            self.fold(show, out);
            out.line(&if show.manifest {
                say::unlike_manifest(self.add.0, self.differ, s.kept)
            } else if show.verb == Verb::Finish {
                say::differences_of_plan(s.differences)
            } else {
                say::differences(self.add, self.extra, self.differ, s)
            });
        }
    }
}
