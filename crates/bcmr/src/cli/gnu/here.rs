//! What all four programs need: where they were started, the user, backups and where operands go.
//!
//! Must not know the options of any of them.

use super::messages::{self, Locale};
use super::options::{Wrong, choose};
use crate::ask::Answers;
use crate::env::{Env, Gnu};
use crate::ui::writer::{self, Sink, Stop};
use bcmr_engine::event::Cancel;
use bcmr_engine::policy::{Follow, Preserve, Reflink, Sparse};
use bcmr_engine::stepwise::{
    Backup, Content, Did, Onto, Options, Over, Program, StepQuestion, Teller, Trouble, Update, What,
    is_directory,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// `--backup`.
pub const BACKUPS: [(&[&str], Backup); 4] = [
    (&["none", "off"], Backup::None),
    (&["simple", "never"], Backup::Simple),
    (&["existing", "nil"], Backup::Existing),
    (&["numbered", "t"], Backup::Numbered),
];

/// Where a program was started, as far as it matters.
pub struct Here<'e> {
    pub env: &'e Env,
    pub program: &'static str,
    pub locale: Locale,
    pub posixly: bool,
    pub control: Option<OsString>,
    pub suffix: Option<OsString>,
    pub cancel: Arc<Cancel>,
}

impl<'e> Here<'e> {
    pub fn read(env: &'e Env, program: &'static str) -> Here<'e> {
        let gnu = Gnu::read();
        Here {
            env,
            program,
            locale: if gnu.utf8 { Locale::Utf8 } else { Locale::Ascii },
            posixly: gnu.posixly,
            control: gnu.version_control,
            suffix: gnu.backup_suffix,
            cancel: Arc::new(Cancel::new()),
        }
    }

    pub fn usage(&self, line: impl AsRef<[u8]>) -> Wrong {
        Wrong::usage(self.program, line)
    }

    pub fn choose<V: Copy + PartialEq>(
        &self,
        context: &str,
        word: &OsStr,
        rows: &[(&[&str], V)],
    ) -> Result<V, Wrong> {
        choose(self.program, self.locale, context, word, rows)
    }

    pub fn quoted(&self, name: &OsStr) -> Vec<u8> {
        messages::quoted(self.locale, name)
    }

    /// What `--backup`, `-b` and `-S` amount to.
    pub fn backup(&self, typed: &BackupTyped) -> Result<(Backup, Vec<u8>), Wrong> {
        let suffix = typed.suffix.clone().or_else(|| self.suffix.clone()).filter(|suffix| {
            // A slash in it would lead elsewhere.
            !suffix.is_empty() && !suffix.as_bytes().contains(&b'/')
        });
        let suffix = suffix.map_or_else(|| b"~".to_vec(), OsString::into_vec);
        if !typed.wanted {
            return Ok((Backup::None, suffix));
        }
        let control = match (&typed.control, &self.control) {
            (Some(word), _) if !word.is_empty() => self.choose("backup type", word, &BACKUPS)?,
            (_, Some(word)) if !word.is_empty() => self.choose("$VERSION_CONTROL", word, &BACKUPS)?,
            _ => Backup::Existing,
        };
        Ok((control, suffix))
    }

    /// What nothing was said about.
    pub fn plain(&self, purpose: Program) -> Options {
        Options {
            purpose,
            recursive: false,
            copy_contents: false,
            follow: Follow::Always,
            preserve: Preserve::NONE,
            plain_mode: false,
            require_xattr: false,
            archive: false,
            given: None,
            backup: Backup::None,
            suffix: Vec::new(),
            over: Over::Unsaid,
            update: Update::All,
            unlink_first: false,
            force: false,
            content: Content::Copied,
            one_file_system: false,
            reflink: Reflink::Auto,
            sparse: Sparse::Auto,
            through_dangling: self.posixly,
            keep_dir_links: false,
            no_copy: false,
            alters: false,
            exchange: false,
            typed: None,
            verbose: false,
            stdin_tty: self.env.stdin_tty,
            me: self.env.me,
            group: rustix::process::getegid().as_raw(),
            umask: self.env.umask,
            threads: self.env.cores,
            cancel: self.cancel.clone(),
        }
    }

    /// Where operands go, after GNU's rules.
    pub fn place(&self, typed: &mut Placed) -> Result<Onto, Wrong> {
        let operands = &mut typed.operands;
        let into = typed.into.take();
        if operands.is_empty() {
            return Err(self.usage("missing file operand"));
        }
        if operands.len() == 1 && into.is_none() {
            let name = self.quoted(&operands.remove(0));
            return Err(self.usage([b"missing destination file operand after ", &name[..]].concat()));
        }
        let make = |dir: OsString| {
            let dir = PathBuf::from(dir);
            if typed.parents { Onto::Below(dir) } else { Onto::Into(dir) }
        };
        if typed.exactly {
            if into.is_some() {
                let text = "cannot combine --target-directory (-t) and --no-target-directory (-T)";
                return Err(Wrong::line(self.program, text));
            }
            if operands.len() > 2 {
                let name = self.quoted(&operands.swap_remove(2));
                return Err(self.usage([b"extra operand ", &name[..]].concat()));
            }
        } else if let Some(dir) = into {
            let head = if typed.accesses { "failed to access " } else { "target directory " };
            return match self.is_dir(&dir) {
                Err(e) if !(typed.makes && e.kind() == std::io::ErrorKind::NotFound) => {
                    Err(self.target(head, &dir, &e))
                }
                _ => Ok(make(dir)),
            };
        } else if let Some(last) = operands.last().cloned() {
            match self.is_dir(&last) {
                Ok(()) => {
                    operands.pop();
                    return Ok(make(last));
                }
                Err(e) if operands.len() > 2 => return Err(self.target("target ", &last, &e)),
                Err(_) => {}
            }
        }
        if typed.parents {
            return Err(self.usage("with --parents, the destination must be a directory"));
        }
        let last = operands.pop().unwrap_or_default();
        Ok(Onto::Name(last.into()))
    }

    fn is_dir(&self, path: &OsStr) -> std::io::Result<()> {
        is_directory(Path::new(path))
    }

    pub fn target(&self, head: &str, path: &OsStr, e: &std::io::Error) -> Wrong {
        let reason = messages::reason(e);
        Wrong::line(
            self.program,
            [head.as_bytes(), &self.quoted(path)[..], b": ", reason.as_bytes()].concat(),
        )
    }

    /// Runs what was asked for, with a user who is told and asked.
    pub fn told(&self, work: impl FnOnce(&mut (dyn Teller + Send)) -> bool) -> u8 {
        self.told_stripping(None, work)
    }

    /// The same, with a program that strips files before they are published.
    pub fn told_stripping(
        &self,
        strip: Option<OsString>,
        work: impl FnOnce(&mut (dyn Teller + Send)) -> bool,
    ) -> u8 {
        let (stopped, stop) = self.catch();
        let mut user = User {
            here: self,
            out: Sink::stdout(self.env.stdout_tty).until(&stop),
            err: Sink::stderr().until(&stop),
            answers: Answers::default(),
            strip,
        };
        let fine = work(&mut user);
        let written = user.out.finish();
        if let Some(e) = &written {
            let line = format!("{}: write error: {}", self.program, messages::reason(e));
            user.err.line(&line);
        }
        match stopped.load(Ordering::SeqCst) {
            0 => u8::from(!fine || written.is_some()),
            // As a program ends that did nothing about it.
            signal => {
                signal_hook::low_level::emulate_default_handler(signal).ok();
                128 + u8::try_from(signal).unwrap_or(0)
            }
        }
    }

    /// The signal that asks to stop, once one has, and whether one has.
    fn catch(&self) -> (Arc<AtomicI32>, Stop) {
        let (stopped, stop) = (Arc::new(AtomicI32::new(0)), Stop::default());
        let wanted = |signal: &i32| self.env.ignored_signals & (1 << (signal - 1)) == 0;
        let wanted: Vec<i32> = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(wanted).collect();
        if let Ok(mut signals) = Signals::new(wanted) {
            let (cancel, stopped, stop) = (self.cancel.clone(), stopped.clone(), stop.clone());
            // Without the thread a signal is only noticed in the end.
            std::thread::Builder::new()
                .spawn(move || {
                    for signal in signals.forever() {
                        stopped.store(signal, Ordering::SeqCst);
                        cancel.set();
                        stop.store(true, Ordering::SeqCst);
                    }
                })
                .ok();
        }
        (stopped, stop)
    }
}

/// What was typed about backups.
#[derive(Default)]
pub struct BackupTyped {
    pub wanted: bool,
    pub control: Option<OsString>,
    pub suffix: Option<OsString>,
}

impl BackupTyped {
    pub fn asks(&mut self, control: Option<OsString>) {
        self.wanted = true;
        if control.is_some() {
            self.control = control;
        }
    }

    pub fn suffix(&mut self, suffix: Option<OsString>) {
        self.wanted = true;
        self.suffix = suffix;
    }
}

/// What was typed about where operands go.
#[derive(Default)]
pub struct Placed {
    pub operands: Vec<OsString>,
    /// `-t`.
    pub into: Option<OsString>,
    /// `-T`.
    pub exactly: bool,
    /// `--parents`.
    pub parents: bool,
    /// The directory of `-t` is made.
    pub makes: bool,
    /// Of the directory of `-t` it is told that it could not be accessed, as `install` does.
    pub accesses: bool,
}

impl Placed {
    /// `-t`, which may be given once.
    pub fn target(&mut self, here: &Here<'_>, dir: Option<OsString>) -> Result<(), Wrong> {
        if self.into.is_some() {
            return Err(Wrong::line(here.program, "multiple target directories specified"));
        }
        self.into = dir;
        Ok(())
    }

    pub fn sources(&self, strip: bool) -> Vec<PathBuf> {
        self.operands.iter().map(|word| if strip { stripped(word) } else { PathBuf::from(word) }).collect()
    }
}

/// A name without slashes behind it.
pub fn stripped(word: &OsStr) -> PathBuf {
    let bytes = word.as_bytes();
    let end = bytes.iter().rposition(|b| *b != b'/').map_or(1, |at| at + 1);
    PathBuf::from(OsStr::from_bytes(bytes.get(..end).unwrap_or(bytes)))
}

/// The user, who reads lines and answers questions.
struct User<'h> {
    here: &'h Here<'h>,
    out: Sink,
    err: Sink,
    answers: Answers,
    strip: Option<OsString>,
}

impl Teller for User<'_> {
    fn trouble(&mut self, trouble: Trouble) {
        let here = self.here;
        let mut line = format!("{}: ", here.program).into_bytes();
        line.extend(messages::trouble(here.locale, &trouble));
        // In a log of both it is seen when it happened.
        self.out.flush();
        self.err.bytes(&line);
        if matches!(trouble.what, What::RmIsRoot | What::RmSameAsRoot) {
            self.err.line("rm: use --no-preserve-root to override this failsafe");
        }
        if trouble.what == What::RmMountPoint {
            self.err.line("rm: and --preserve-root=all is in effect");
        }
    }

    fn did(&mut self, did: Did<'_>) {
        let line = messages::done(self.here.locale, self.here.program, did);
        self.out.bytes(&line);
    }

    fn ask(&mut self, ask: StepQuestion<'_>) -> bool {
        let text = messages::question(self.here.locale, ask);
        self.asked(&text)
    }

    fn alter(&mut self, unpublished: &Path) -> bool {
        let Some(program) = &self.strip else { return true };
        self.out.flush();
        // A name with a dash in front must not be taken for an option.
        let is_option = unpublished.as_os_str().as_bytes().starts_with(b"-");
        let path = if is_option { Path::new(".").join(unpublished) } else { unpublished.to_owned() };
        match std::process::Command::new(program).arg(path).status() {
            Ok(status) if status.success() => return true,
            Ok(_) => {}
            Err(e) => {
                let reason = messages::reason(&e);
                let line =
                    [b"cannot run ", &self.here.quoted(program)[..], b": ", reason.as_bytes()].concat();
                self.err.bytes(&[self.here.program.as_bytes(), b": ", &line[..]].concat());
            }
        }
        self.err.line(&format!("{}: strip process terminated abnormally", self.here.program));
        false
    }
}

impl User<'_> {
    fn asked(&mut self, text: &[u8]) -> bool {
        self.out.flush();
        let question = [self.here.program.as_bytes(), b": ", text, b"? "].concat();
        self.err.part(&question);
        self.answers.next(&self.here.cancel)
    }
}

/// Text that was asked for.
pub fn print(text: &str) -> u8 {
    u8::from(writer::out(text).is_err())
}

/// What `--version` says.
pub fn version(program: &str) -> String {
    format!("{program} (bcmr) {}\n", env!("CARGO_PKG_VERSION"))
}

/// A line that ends nothing.
pub fn warn(here: &Here<'_>, line: &str) {
    writer::err_bytes(&Wrong::line(here.program, line).text);
}

/// A question before anything is done.
pub fn asks(here: &Here<'_>, text: &str) -> bool {
    let mut user = User {
        here,
        out: Sink::stdout(false),
        err: Sink::stderr(),
        answers: Answers::default(),
        strip: None,
    };
    user.asked(text.as_bytes())
}
