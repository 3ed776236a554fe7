//! `cp`, `mv`, `rm` and `install` as GNU's programs of these names: which of them is meant, and what all need.
//!
//! Must not know bcmr's own arguments. What is typed becomes options of `bcmr_engine::stepwise`, and what that tells
//! becomes the lines that scripts know.

mod cp;
mod install;
mod messages;
mod mode;
mod mv;
mod options;
mod rm;

use crate::ask::Answers;
use crate::env::Env;
use crate::ui::writer::{self, Sink};
use bcmr_engine::event::Cancel;
use bcmr_engine::policy::{Follow, Preserve, Reflink, Sparse};
use bcmr_engine::stepwise::{
    Ask, Backup, Content, Did, Options, Over, Purpose, Teller, Trouble, Update, What, Where,
};
use messages::Locale;
use options::{Wrong, choose};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// One of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Personality {
    Cp,
    Mv,
    Rm,
    Install,
}

impl Personality {
    /// All of them.
    pub const ALL: [Personality; 4] =
        [Personality::Cp, Personality::Mv, Personality::Rm, Personality::Install];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Personality::Cp => "cp",
            Personality::Mv => "mv",
            Personality::Rm => "rm",
            Personality::Install => "install",
        }
    }

    /// The one that a name means: its own, or the same with a `b` in front.
    pub fn of_name(name: &OsStr) -> Option<Personality> {
        let name = Path::new(name).file_name()?.to_str()?;
        Personality::ALL.into_iter().find(|p| name == p.name() || name.strip_prefix('b') == Some(p.name()))
    }

    /// Which one is meant by a command line, and how many words of it say so: the program's own name, or the first word.
    pub fn of_line(line: &[OsString]) -> Option<(Personality, usize)> {
        if let Some(named) = line.first().and_then(|name| Personality::of_name(name)) {
            return Some((named, 1));
        }
        let word = line.get(1)?;
        let named = Personality::ALL.into_iter().find(|p| word == p.name())?;
        Some((named, 2))
    }
}

/// Runs one of them. Returns the exit code.
pub fn run(personality: Personality, words: &[OsString], env: &Env) -> u8 {
    let here = Here::read(env, personality.name());
    let words = words.iter().cloned();
    let done = match personality {
        Personality::Cp => cp::run(words, &here),
        Personality::Mv => mv::run(words, &here),
        Personality::Rm => rm::run(words, &here),
        Personality::Install => install::run(words, &here),
    };
    match done {
        Ok(code) => code,
        Err(wrong) => {
            writer::err_bytes(&wrong.text);
            1
        }
    }
}

/// Where a program was started, as far as it matters.
pub struct Here<'e> {
    env: &'e Env,
    program: &'static str,
    locale: Locale,
    posixly: bool,
    control: Option<OsString>,
    suffix: Option<OsString>,
    cancel: Arc<Cancel>,
}

impl<'e> Here<'e> {
    fn read(env: &'e Env, program: &'static str) -> Here<'e> {
        let gnu = crate::env::Gnu::read();
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

    fn usage(&self, line: impl AsRef<[u8]>) -> Wrong {
        Wrong::usage(self.program, line)
    }

    fn choose<V: Copy + PartialEq>(
        &self,
        context: &str,
        word: &OsStr,
        rows: &[(&[&str], V)],
    ) -> Result<V, Wrong> {
        choose(self.program, self.locale, context, word, rows)
    }

    fn quoted(&self, name: &OsStr) -> Vec<u8> {
        messages::quoted(self.locale, name)
    }

    /// What `--backup`, `-b` and `-S` amount to.
    fn backup(&self, typed: &BackupTyped) -> Result<(Backup, Vec<u8>), Wrong> {
        const KINDS: [(&[&str], Backup); 4] = [
            (&["none", "off"], Backup::None),
            (&["simple", "never"], Backup::Simple),
            (&["existing", "nil"], Backup::Existing),
            (&["numbered", "t"], Backup::Numbered),
        ];
        let suffix = typed.suffix.clone().or_else(|| self.suffix.clone()).filter(|suffix| {
            // A slash in it would lead elsewhere.
            !suffix.is_empty() && !suffix.as_bytes().contains(&b'/')
        });
        let suffix = suffix.map_or_else(|| b"~".to_vec(), OsString::into_vec);
        if !typed.wanted {
            return Ok((Backup::None, suffix));
        }
        let control = match (&typed.control, &self.control) {
            (Some(word), _) if !word.is_empty() => self.choose("backup type", word, &KINDS)?,
            (_, Some(word)) if !word.is_empty() => self.choose("$VERSION_CONTROL", word, &KINDS)?,
            _ => Backup::Existing,
        };
        Ok((control, suffix))
    }

    /// What nothing was said about.
    fn plain(&self, purpose: Purpose) -> Options {
        Options {
            purpose,
            recursive: false,
            copy_contents: false,
            follow: Follow::Always,
            preserve: Preserve::NONE,
            plain_mode: false,
            require_xattr: false,
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
            exchange: false,
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
    fn place(&self, typed: &mut Placed) -> Result<Where, Wrong> {
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
            if typed.parents { Where::Below(dir) } else { Where::Into(dir) }
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
            if typed.makes {
                return Ok(make(dir));
            }
            self.is_dir(&dir).map_err(|e| self.target("target directory ", &dir, &e))?;
            return Ok(make(dir));
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
        Ok(Where::Name(last.into()))
    }

    fn is_dir(&self, path: &OsStr) -> std::io::Result<()> {
        use bcmr_engine::stepwise::is_directory;
        is_directory(Path::new(path))
    }

    fn target(&self, head: &str, path: &OsStr, e: &std::io::Error) -> Wrong {
        let reason = messages::reason(e);
        Wrong::line(
            self.program,
            [head.as_bytes(), &self.quoted(path)[..], b": ", reason.as_bytes()].concat(),
        )
    }

    /// Runs what was asked for, with a user who is told and asked.
    fn told(&self, work: impl FnOnce(&mut dyn Teller) -> bool) -> u8 {
        let stopped = self.catch();
        let mut user = User {
            here: self,
            out: Sink::stdout(self.env.stdout_tty),
            err: Sink::stderr(),
            answers: Answers::default(),
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

    /// The signal that asks to stop, once one has.
    fn catch(&self) -> Arc<AtomicI32> {
        let stopped = Arc::new(AtomicI32::new(0));
        let wanted = |signal: &i32| self.env.ignored_signals & (1 << (signal - 1)) == 0;
        let wanted: Vec<i32> = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(wanted).collect();
        if let Ok(mut signals) = Signals::new(wanted) {
            let (cancel, stopped) = (self.cancel.clone(), stopped.clone());
            // Without the thread a signal is only noticed in the end.
            std::thread::Builder::new()
                .spawn(move || {
                    for signal in signals.forever() {
                        stopped.store(signal, Ordering::SeqCst);
                        cancel.set();
                    }
                })
                .ok();
        }
        stopped
    }
}

/// What was typed about backups.
#[derive(Default)]
struct BackupTyped {
    wanted: bool,
    control: Option<OsString>,
    suffix: Option<OsString>,
}

impl BackupTyped {
    fn asks(&mut self, control: Option<OsString>) {
        self.wanted = true;
        if control.is_some() {
            self.control = control;
        }
    }

    fn suffix(&mut self, suffix: Option<OsString>) {
        self.wanted = true;
        self.suffix = suffix;
    }
}

/// What was typed about where operands go.
#[derive(Default)]
struct Placed {
    operands: Vec<OsString>,
    /// `-t`.
    into: Option<OsString>,
    /// `-T`.
    exactly: bool,
    /// `--parents`.
    parents: bool,
    /// The directory of `-t` is made.
    makes: bool,
}

impl Placed {
    /// `-t`, which may be given once.
    fn target(&mut self, here: &Here<'_>, dir: Option<OsString>) -> Result<(), Wrong> {
        if self.into.is_some() {
            return Err(Wrong::line(here.program, "multiple target directories specified"));
        }
        self.into = dir;
        Ok(())
    }

    fn sources(&self, strip: bool) -> Vec<PathBuf> {
        let stripped = |word: &OsString| {
            let bytes = word.as_bytes();
            let end = bytes.iter().rposition(|b| *b != b'/').map_or(1, |at| at + 1);
            PathBuf::from(OsStr::from_bytes(bytes.get(..end).unwrap_or(bytes)))
        };
        self.operands.iter().map(|word| if strip { stripped(word) } else { PathBuf::from(word) }).collect()
    }
}

/// The user, who reads lines and answers questions.
struct User<'h> {
    here: &'h Here<'h>,
    out: Sink,
    err: Sink,
    answers: Answers,
}

impl Teller for User<'_> {
    fn trouble(&mut self, trouble: Trouble) {
        let here = self.here;
        let mut line = format!("{}: ", here.program).into_bytes();
        line.extend(messages::trouble(here.locale, &trouble));
        self.err.bytes(&line);
        if matches!(trouble.what, What::RmIsRoot | What::RmSameAsRoot) {
            self.err.line("rm: use --no-preserve-root to override this failsafe");
        }
    }

    fn did(&mut self, did: Did<'_>) {
        let line = messages::done(self.here.locale, self.here.program, did);
        self.out.bytes(&line);
    }

    fn ask(&mut self, ask: Ask<'_>) -> bool {
        let text = messages::question(self.here.locale, ask);
        self.asked(&text)
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
fn print(text: &str) -> u8 {
    u8::from(writer::out(text).is_err())
}

/// What `--version` says.
fn version(program: &str) -> String {
    format!("{program} (bcmr) {}\n", env!("CARGO_PKG_VERSION"))
}

/// A line that ends nothing.
fn warn(here: &Here<'_>, line: &str) {
    writer::err_bytes(&Wrong::line(here.program, line).text);
}

/// A question before anything is done.
fn asks(here: &Here<'_>, text: &str) -> bool {
    let mut user = User { here, out: Sink::stdout(false), err: Sink::stderr(), answers: Answers::default() };
    user.asked(text.as_bytes())
}
