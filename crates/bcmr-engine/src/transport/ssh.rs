//! The system's ssh as a carrier: what it is called with, what becomes of its standard error, and what its end means.
//!
//! Must not know what the streams carry. No path and no name of a file ever stands in a command here.

use super::conn;
use super::login::Login;
use super::stream::Stream;
use crate::error::{Code, Error, Note, Op, Reason};
use crate::remote::{Address, RunAs, Way};
use bcmr_wire::dialogue::Dialogue;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Which of a command's connections it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nth<'p> {
    /// As the user's configuration has it; a session of the way's shared connection where there is one.
    First,
    /// The connection that others share, with its socket.
    Shares(&'p Path, HeldBy),
    /// A session of the way's shared connection. It never asks for anything, and no signal of the terminal reaches it.
    Session,
    /// One connection more, which is worth something only when it does not share the first one's. It never asks for
    /// anything: the user does not see which of several asks, and what is typed would go to another one.
    Further,
}

/// What a shared connection runs itself: nothing that does anything until its standard input ends, and that is when this
/// process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldBy {
    /// A command.
    Command,
    /// A server of SFTP, where accounts run no commands.
    Sftp,
}

impl HeldBy {
    /// As ssh is told of it, behind the host.
    pub(super) fn word(self) -> &'static str {
        match self {
            HeldBy::Command => "cat",
            HeldBy::Sftp => "sftp",
        }
    }
}

/// How much there is to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkLoad {
    /// Little: asking ssh for its configuration would take longer than a better cipher saves.
    Light,
    /// Enough.
    Heavy,
}

/// What ssh itself exits with when it could not connect or authenticate, or lost the connection.
pub(super) const EXIT_SSH: i32 = 255;
/// What a shell exits with when there is no such program, and when it cannot be run.
const EXIT_NOT_FOUND: i32 = 127;
const EXIT_NOT_RUN: i32 = 126;

/// AES-GCM before all others, and the others still there.
const FAST_CIPHERS: &str = "Ciphers=^aes128-gcm@openssh.com,aes256-gcm@openssh.com";
const FASTEST: &str = "aes128-gcm@openssh.com";

/// Lines of standard error kept until they are taken, and bytes of one.
const NOTES_MAX: usize = 100;
const NOTE_BYTES_MAX: usize = 1024;
/// How long a child is waited for whose pipes are closed, before it is killed.
const EXIT_MAX: Duration = Duration::from_secs(5);
/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(5);
/// Names longer than any resolver takes.
const WORD_BYTES_MAX: usize = 255;

// ---- what may be said to ssh: pure ----

/// What is wrong with a host or user, when something is: L1. Looked at again right before the exec, whatever checked
/// before.
fn fault(what: &str, word: &str) -> Option<Note> {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '+' | '@' | ':' | '%');
    if word.is_empty() {
        Some(Reason::EmptyWord.about(what))
    } else if word.len() > WORD_BYTES_MAX {
        Some(Reason::LongWord.about(what))
    } else if word.starts_with('-') {
        Some(Reason::WordWithDash.about(what))
    } else if let Some(c) = word.chars().find(|c| !plain(*c)) {
        Some(Reason::WordHolds.about(what).about(format!("{c:?}")))
    } else if what == "host" && word.contains('@') {
        Some(Reason::HostWithAt.into())
    } else {
        None
    }
}

/// What the far side's shell gets: one fixed string. The program's name is the only part that is not ours, and is
/// refused unless no shell sees anything in it.
fn remote_command(program: &str, verb: &str) -> Result<String, Note> {
    // `~/` is the one thing a shell is to see: where people keep their own programs.
    let word = program.strip_prefix("~/").unwrap_or(program);
    let plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+' | '/' | '@' | ':' | ',');
    if word.is_empty() {
        Err(Reason::EmptyProgram.into())
    } else if word.starts_with('-') {
        Err(Reason::ProgramWithDash.into())
    } else if let Some(c) = word.chars().find(|c| !plain(*c)) {
        Err(Reason::ProgramHolds.about(format!("{c:?}")))
    } else {
        Ok(format!("{program} {verb}"))
    }
}

/// A command as it is run by another user. sudo that would have to ask for a password says so instead, or reads it from its
/// standard input, also where it would remember one: no password is ever an argument, and none is left for the program.
fn as_user(run_as: &RunAs, command: String) -> Result<String, Note> {
    let (user, asks) = match run_as {
        RunAs::Login => return Ok(command),
        RunAs::Sudo(user) => (user, "-n"),
        RunAs::SudoWith(user, _) => (user, "-k -S -p ''"),
    };
    match fault("user", user) {
        Some(note) => Err(note),
        None => Ok(format!("sudo {asks} -H -u {user} -- {command}")),
    }
}

/// ssh with all its words, for trying whether sudo there runs anything.
///
/// # Errors
/// A host or user that is refused.
pub(crate) fn sudo_words(address: &Address, way: &Way) -> Result<Vec<OsString>, Error> {
    let refused = |note| Error::ours(Code::Refused, Op::ConnectTo, &address.host, note);
    words(address, way, &as_user(&way.run_as, "true".to_owned()).map_err(refused)?)
}

/// ssh with all its words, for running the bcmr there with this one verb; what it is to do it reads from its standard input.
///
/// # Errors
/// A host, user or program that is refused.
pub(crate) fn verb_words(address: &Address, way: &Way, verb: &str) -> Result<Vec<OsString>, Error> {
    let refused = |note| Error::ours(Code::Refused, Op::ConnectTo, &address.host, note);
    let command = remote_command(&way.program, verb).and_then(|command| as_user(&way.run_as, command));
    words(address, way, &command.map_err(refused)?)
}

/// Everything behind the program's name in ssh's argument vector, for a connection to a bcmr.
fn arguments(address: &Address, way: &Way, nth: Nth<'_>, ciphers: Ciphers) -> Result<Vec<OsString>, Error> {
    let refused = |note| Error::ours(Code::Refused, Op::ConnectTo, &address.host, note);
    let command = remote_command(&way.program, "serve").and_then(|command| as_user(&way.run_as, command));
    let command = command.map_err(refused)?;
    arguments_for(address, way, nth, ciphers, &command)
}

/// ssh with all its words, for running `command` there. The command is one word to ssh and a line to the shell over
/// there, so it must be ours from beginning to end.
///
/// # Errors
/// A host or user that is refused.
pub(crate) fn words(address: &Address, way: &Way, command: &str) -> Result<Vec<OsString>, Error> {
    let mut words = arguments_for(address, way, Nth::First, Ciphers::AsTheyAre, command)?;
    words.insert(0, way.ssh.first().cloned().unwrap_or_else(|| OsString::from("ssh")));
    Ok(words)
}

/// Everything behind the program's name, for running `command` there.
///
/// # Errors
/// A host or user that is refused.
pub(super) fn arguments_for(
    address: &Address,
    way: &Way,
    nth: Nth<'_>,
    ciphers: Ciphers,
    command: &str,
) -> Result<Vec<OsString>, Error> {
    let refused = |note| Error::ours(Code::Refused, Op::ConnectTo, &address.host, note);
    if let Some(note) = address.user.as_deref().and_then(|user| fault("user", user)) {
        return Err(refused(note));
    }
    if let Some(note) = fault("host", &address.host) {
        return Err(refused(note));
    }
    // Of two values ssh takes the first, so this one stands before whatever the user has for the first connection.
    let silent: &[&str] = match nth {
        Nth::Further | Nth::Session => &["-o", "BatchMode=yes"],
        Nth::First | Nth::Shares(..) => &[],
    };
    let (before, behind) = way.ssh.split_at(ssh_ends(way));
    let mut args: Vec<OsString> = before.iter().skip(1).cloned().collect();
    args.extend(silent.iter().map(OsString::from));
    args.extend(behind.iter().cloned());
    let mut add = |words: &[&str]| args.extend(words.iter().map(OsString::from));
    // Of two values ssh takes the first: the address is the more particular one.
    if let Some(port) = address.port {
        add(&["-p", &port.to_string()]);
    }
    if let Some(user) = &address.user {
        add(&["-l", user]);
    }
    args.extend(way.options.iter().cloned());
    let mut add = |words: &[&str]| args.extend(words.iter().map(OsString::from));
    // No terminal, no X11, and none of the forwardings and commands that belong to the user's own logins: a second
    // connection could not listen where the first one does.
    add(&["-T", "-x", "-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none"]);
    match nth {
        // `-S` overrides what stands before it; without a path nothing is shared, whatever ControlMaster says.
        Nth::Further => add(&["-S", "none", "-o", "ControlMaster=no"]),
        Nth::Shares(path, held_by) => {
            args.extend(listening(path));
            args.extend((held_by == HeldBy::Sftp).then(|| OsString::from("-s")));
        }
        Nth::First | Nth::Session => args.extend(way.socket().into_iter().flat_map(|path| through(&path))),
    }
    let mut add = |words: &[&str]| args.extend(words.iter().map(OsString::from));
    if ciphers == Ciphers::PreferAes {
        add(&["-o", FAST_CIPHERS]);
    }
    // L1: nothing behind this is an option.
    add(&["--", &address.host, command]);
    Ok(args)
}

/// How many words of `--ssh` name ssh and what starts it (`sshpass -e ssh`); the others are ssh's own options. Where no word
/// is ssh, all of them count.
fn ssh_ends(way: &Way) -> usize {
    if open_ssh(way).is_some() {
        return 1;
    }
    way.ssh.iter().rposition(|word| is_ssh(word)).map_or(way.ssh.len(), |at| at + 1)
}

fn is_ssh(word: &OsStr) -> bool {
    Path::new(word).file_name() == Some(OsStr::new("ssh"))
}

/// What ssh is told of a shared connection's socket: it connects by itself where there is none.
fn through(path: &Path) -> [OsString; 4] {
    let mut socket = OsString::from("ControlPath=");
    socket.push(path);
    ["-o".into(), "ControlMaster=no".into(), "-o".into(), socket]
}

/// What the one that connects is told.
fn listening(path: &Path) -> Vec<OsString> {
    let [option, _, again, socket] = through(path);
    let lasting = ["ControlMaster=yes", "-o", "ControlPersist=no"].map(OsString::from);
    std::iter::once(option).chain(lasting).chain([again, socket]).collect()
}

/// Whether the order of ciphers is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ciphers {
    AsTheyAre,
    PreferAes,
}

/// From what `ssh -G` says with the user's configuration and without any: touched only where the user has named no ciphers,
/// and where this ssh has AES-GCM and does not prefer it anyway.
fn judge_ciphers(configured: &str, stock: &str) -> Ciphers {
    match (said(configured, "ciphers"), said(stock, "ciphers")) {
        (Some(own), Some(stock))
            if own == stock && stock.split(',').skip(1).any(|cipher| cipher == FASTEST) =>
        {
            Ciphers::PreferAes
        }
        _ => Ciphers::AsTheyAre,
    }
}

/// What ssh means by its last words, where it could not connect.
pub(crate) fn judge_words(said: &[String]) -> Option<Code> {
    /// The first that is found counts: what is at its end comes before what follows from it.
    const MEANS: [(&str, Code); 13] = [
        ("REMOTE HOST IDENTIFICATION HAS CHANGED", Code::ChangedKey),
        ("Host key verification failed", Code::UnknownKey),
        ("host key is known for", Code::UnknownKey),
        ("Permission denied (", Code::NoKey),
        ("Too many authentication failures", Code::NoKey),
        ("Connection refused", Code::ConnectionRefused),
        ("Temporary failure in name resolution", Code::Unreachable),
        ("Could not resolve hostname", Code::UnknownHost),
        ("Connection timed out", Code::Unreachable),
        ("Operation timed out", Code::Unreachable),
        ("No route to host", Code::Unreachable),
        ("Network is unreachable", Code::Unreachable),
        ("Host is down", Code::Unreachable),
    ];
    MEANS.into_iter().find(|(words, _)| said.iter().any(|line| line.contains(words))).map(|(_, code)| code)
}

/// What ssh said, in as many words as it needs: of a changed key it prints a page.
pub(crate) fn in_short(code: Code, said: &[String]) -> Option<Note> {
    if code != Code::ChangedKey {
        let words = said.join("; ");
        return (!words.is_empty()).then(|| words.into());
    }
    let recorded =
        said.iter().find_map(|line| line.trim().strip_prefix("Offending ")?.split_once(" key in "));
    let now =
        said.iter().map(|line| line.trim().trim_end_matches('.')).find(|line| line.starts_with("SHA256:"));
    Some(match (recorded, now) {
        (Some((_, place)), Some(now)) => Reason::OtherKeyAtIs.about(place).about(now),
        (Some((_, place)), None) => Reason::OtherKeyAt.about(place),
        (None, Some(now)) => Reason::OtherKeyIs.about(now),
        (None, None) => Reason::OtherKey.into(),
    })
}

/// That ssh did not connect, for a reason that its last words gave.
pub(super) fn not_connected(code: Code, address: &Address, said: &[String]) -> Error {
    let note = Note::from(Reason::SshCouldNotConnect);
    let note = match in_short(code, said) {
        None => note,
        Some(words) => Reason::Because.about(note).about(words),
    };
    Error::ours(code, Op::ConnectTo, &address.host, note)
}

/// What it means that the connection ended before the other side has greeted us: the code, and why. `said` is ssh's
/// standard error.
fn judge_end(exit: Option<i32>, broken: &Error, program: &str, said: &[String]) -> (Code, Note) {
    let (code, note) = end_of(exit, broken, program, said);
    match in_short(code, said) {
        None => (code, note),
        Some(words) => (code, Reason::Because.about(note).about(words)),
    }
}

fn end_of(exit: Option<i32>, broken: &Error, program: &str, said: &[String]) -> (Code, Note) {
    match exit {
        // These two are clear, whatever a login has printed before.
        Some(EXIT_NOT_FOUND) => (Code::NoPeer, Reason::NoProgram.about(program)),
        Some(EXIT_NOT_RUN) => (Code::NoPeer, Reason::ProgramNotRun.about(program)),
        // Something came, and it was no frame: a shell that prints, an account for SFTP only, or a program that is no bcmr.
        _ if broken.code == Code::Protocol => (Code::NoPeer, Reason::NoBcmrThere.about(broken.why())),
        Some(EXIT_SSH) => (judge_words(said).unwrap_or(Code::Lost), Reason::SshCouldNotConnect.into()),
        Some(code) => (Code::NoPeer, Reason::ServeEnded.about(program).about(code.to_string())),
        None => (Code::Lost, broken.why()),
    }
}

// ---- asking and starting ----

/// ssh's program where it is OpenSSH's, by its name: another one may take `-G` and its like for something else.
pub(super) fn open_ssh(way: &Way) -> Option<&OsStr> {
    let program = way.ssh.first()?;
    is_ssh(program).then_some(program)
}

/// What ssh makes of these arguments and its configuration.
pub(super) fn configuration(program: &OsStr, args: &[OsString]) -> Option<String> {
    ask(program, args).and_then(answer)
}

fn ask(program: &OsStr, args: &[OsString]) -> Option<Child> {
    let mut command = Command::new(program);
    command.arg("-G").args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().ok()
}

fn answer(asked: Child) -> Option<String> {
    let out = asked.wait_with_output().ok().filter(|out| out.status.success())?;
    Some(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// What ssh makes of the arguments of a connection, and what it is to be told of ciphers by that.
#[derive(Clone, Debug)]
pub(crate) struct Configured {
    pub(super) text: String,
    pub(super) ciphers: Ciphers,
}

/// Asks ssh for both, at the same time: each answer takes some milliseconds.
pub(super) fn configured(program: &OsStr, args: &[OsString], address: &Address) -> Option<Configured> {
    let stock = ["-F", "none", "--", &address.host].map(OsString::from);
    let stock = if cpu_has_aes() { ask(program, &stock) } else { None };
    let text = configuration(program, args);
    let stock = stock.and_then(answer);
    text.map(|text| {
        let ciphers = stock.map_or(Ciphers::AsTheyAre, |stock| judge_ciphers(&text, &stock));
        Configured { text, ciphers }
    })
}

/// One value of it.
pub(super) fn said<'t>(configured: &'t str, key: &str) -> Option<&'t str> {
    configured.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')).map(str::trim)
}

/// Asks ssh for its configuration before a connection, where that pays.
pub(crate) fn configured_for(
    address: &Address,
    way: &Way,
    nth: Nth<'_>,
    load: LinkLoad,
) -> Option<Configured> {
    // A session has the ciphers of its connection.
    let pays = nth != Nth::Session && load == LinkLoad::Heavy && cpu_has_aes();
    let program = open_ssh(way).filter(|_| pays)?;
    configured(program, &arguments(address, way, Nth::First, Ciphers::AsTheyAre).ok()?, address)
}

/// The addresses that ssh connects to, as far as that can be known: none behind a jump host or another program. `first` is
/// the first connection, which may have asked for the configuration.
pub(crate) fn leads_to(address: &Address, way: &Way, first: Option<&Carrier>) -> Vec<std::net::IpAddr> {
    use std::net::ToSocketAddrs;
    let asked = || {
        let args = arguments(address, way, Nth::First, Ciphers::AsTheyAre).ok()?;
        configuration(open_ssh(way)?, &args)
    };
    let known = first.and_then(Carrier::configured).map(|known| known.text.clone());
    let Some(text) = known.or_else(asked) else { return Vec::new() };
    let through = |key| said(&text, key).is_some_and(|value| value != "none");
    if through("proxyjump") || through("proxycommand") {
        return Vec::new();
    }
    let Some(host) = said(&text, "hostname") else { return Vec::new() };
    (host, 0).to_socket_addrs().map(|all| all.map(|a| a.ip()).collect()).unwrap_or_default()
}

fn cpu_has_aes() -> bool {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
    false
}

/// A running ssh.
pub(crate) struct Carrier {
    child: Arc<Mutex<Child>>,
    notes: Notes,
    /// What was printed before the greeting is still to be told.
    greeted: AtomicBool,
    listener: Option<JoinHandle<()>>,
    login: Arc<Login>,
    program: String,
    name: String,
    configured: Option<Configured>,
}

/// Starts ssh, and a stream over its standard input and output that is patient without end: a person may be typing a
/// password. [`Stream::set_timeouts`] is set once the other side has greeted.
///
/// # Errors
/// A host, user or program that is refused; no ssh here.
pub(crate) fn start(
    address: &Address,
    way: &Way,
    nth: Nth<'_>,
    configured: Option<Configured>,
) -> Result<(Stream, Carrier), Error> {
    let ciphers = configured.as_ref().map_or(Ciphers::AsTheyAre, |configured| configured.ciphers);
    let args = arguments(address, way, nth, ciphers)?;
    let program = way.ssh.first().cloned().unwrap_or_else(|| OsString::from("ssh"));
    let mut command = Command::new(&program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Ctrl-C is for us, and then the other side is asked to clean up: over this connection.
    fastcopy::child::deaf_to_interrupt(&mut command);
    if nth == Nth::Session {
        // ssh hears an interrupt all the same while it is a session of another one's connection. It asks for nothing, so it
        // needs no terminal.
        command.process_group(0);
    }
    let mut child = command.spawn().map_err(|e| Error::os(Op::Run, &program, e))?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(Error::ours(Code::Io, Op::Run, &program, Reason::NoPipes));
    };
    if let RunAs::SudoWith(_, password) = &way.run_as
        && let Err(e) = password.write_to(&stdin)
    {
        drop(child.kill());
        drop(child.wait());
        return Err(Error::os(Op::Run, &program, e));
    }
    let child = Arc::new(Mutex::new(child));
    let notes = Notes::default();
    if let (Nth::Session, Some(shared)) = (nth, &way.shared) {
        shared.take_said().into_iter().for_each(|line| notes.add(line));
    }
    let listener = notes.listener(stderr);
    let login = Arc::new(Login::default());
    let carrier = Carrier {
        child: Arc::clone(&child),
        notes,
        greeted: AtomicBool::new(false),
        listener,
        login: Arc::clone(&login),
        program: way.program.clone(),
        name: address.host.clone(),
        configured,
    };
    let cut = move || {
        // One that has ended already is what was wanted.
        drop(lock(&child).kill());
    };
    let name = address.host.clone();
    let stream = conn::RawStream::over_login(OwnedFd::from(stdout), OwnedFd::from(stdin), name, login, cut);
    Ok((Stream::over(stream, Dialogue::client()), carrier))
}

fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Carrier {
    /// Lines of standard error since the last call: ssh's own and the far side's, unescaped.
    pub(crate) fn notes(&self) -> Vec<Note> {
        let login = if self.greeted.swap(false, Ordering::Relaxed) { self.login.text() } else { None };
        let login = login.map(|text| Reason::LoginPassedOver.about(text));
        self.notes.take().into_iter().map(Note::from).chain(login).collect()
    }

    /// What ssh makes of its configuration, where it was asked.
    pub(crate) fn configured(&self) -> Option<&Configured> {
        self.configured.as_ref()
    }

    /// What was printed before the greeting.
    pub(crate) fn login(&self) -> &Login {
        &self.login
    }

    /// The greeting came: what was printed before it was passed over, and is told among the notes.
    pub(crate) fn note_login(&self) {
        self.greeted.store(true, Ordering::Relaxed);
    }

    /// Whom it leads to, for people.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What to say when the connection ended with `broken` before the other side has greeted us.
    pub(crate) fn no_greeting(mut self, broken: &Error) -> Error {
        let exit = self.wait().and_then(|status| status.code());
        self.hear_out();
        let (code, note) = judge_end(exit, broken, &self.program, &self.notes.take());
        Error::ours(code, Op::ConnectTo, &self.name, note)
    }

    /// Waits for the child, whose pipes are closed by now, and kills it when it does not end.
    ///
    /// # Errors
    /// The connection was lost after all had been said.
    pub(crate) fn finish(mut self) -> Result<Vec<Note>, Error> {
        let status = self.wait();
        self.hear_out();
        match status {
            Some(status) if status.code() != Some(EXIT_SSH) => Ok(self.notes()),
            // Killed by us, or lost: everything that matters was acknowledged before; that is for the caller to weigh.
            _ => Err(Error::ours(Code::Lost, Op::DisconnectFrom, &self.name, Reason::SshEndedBadly)),
        }
    }

    /// The exit status, at the latest after [`EXIT_MAX`]; `None` when it had to be killed.
    fn wait(&mut self) -> Option<ExitStatus> {
        let end = Instant::now() + EXIT_MAX;
        loop {
            match lock(&self.child).try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < end => {}
                _ => break,
            }
            std::thread::sleep(LOOK);
        }
        let mut child = lock(&self.child);
        drop(child.kill());
        drop(child.wait());
        None
    }

    fn hear_out(&mut self) {
        hear_out(self.listener.take());
    }
}

/// Everything that was said is in the notes after this. A process of the far side's that keeps the pipe open is not waited
/// for.
pub(super) fn hear_out(listener: Option<JoinHandle<()>>) {
    let end = Instant::now() + Duration::from_millis(500);
    if let Some(listener) = listener {
        while !listener.is_finished() && Instant::now() < end {
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        // On an error path ssh is not waited for; it is not to be left as a zombie either.
        let mut child = lock(&self.child);
        if !matches!(child.try_wait(), Ok(Some(_))) {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Lines of a child's standard error, the newest where there are too many.
#[derive(Clone, Default)]
pub(super) struct Notes {
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl Notes {
    /// Listens in a thread of its own.
    pub(super) fn listener(&self, from: ChildStderr) -> Option<JoinHandle<()>> {
        let notes = self.clone();
        std::thread::Builder::new().name("ssh-stderr".to_owned()).spawn(move || notes.listen(from)).ok()
    }

    pub(super) fn take(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    fn listen(&self, from: impl Read) {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        loop {
            line.clear();
            let got = (&mut from).take(NOTE_BYTES_MAX as u64).read_until(b'\n', &mut line);
            if !matches!(got, Ok(n) if n > 0) {
                return;
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches(['\n', '\r']);
            if text.is_empty() {
                continue;
            }
            self.add(text.to_owned());
        }
    }

    fn add(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == NOTES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::tests::plain_way;
    use std::path::PathBuf;

    fn way(ssh: &[&str], options: &[&str]) -> Way {
        let options = options.iter().map(OsString::from).collect();
        Way { options, ..plain_way(ssh.iter().map(OsString::from).collect()) }
    }

    fn at(user: Option<&str>, host: &str, port: Option<u16>) -> Address {
        // A path that would do harm if it ever came near a shell.
        let path = PathBuf::from("; touch /tmp/owned");
        Address { user: user.map(str::to_owned), host: host.to_owned(), port, path }
    }

    fn line(address: &Address, way: &Way, nth: Nth, ciphers: Ciphers) -> String {
        let args = arguments(address, way, nth, ciphers).unwrap();
        args.iter().map(|a| a.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_ssh_is_called_with() {
        let tail = "-T -x -o ClearAllForwardings=yes -o RemoteCommand=none";
        let plain = line(&at(None, "h", None), &way(&["ssh"], &[]), Nth::First, Ciphers::AsTheyAre);
        assert_eq!(plain, format!("{tail} -- h bcmr serve"));
        let as_root = Way { run_as: RunAs::Sudo("root".into()), ..way(&["ssh"], &[]) };
        let as_root = line(&at(None, "h", None), &as_root, Nth::First, Ciphers::AsTheyAre);
        assert_eq!(as_root, format!("{tail} -- h sudo -n -H -u root -- bcmr serve"));
        let password = crate::password::Password::read(&b"the word"[..]).unwrap().unwrap();
        let asked = RunAs::SudoWith("root".into(), password);
        let asked = Way { run_as: asked, ..way(&["ssh"], &[]) };
        let said = line(&at(None, "h", None), &asked, Nth::First, Ciphers::AsTheyAre);
        assert_eq!(said, format!("{tail} -- h sudo -k -S -p '' -H -u root -- bcmr serve"));
        assert!(!format!("{asked:?}").contains("the word"));
        let tried = sudo_words(&at(None, "h", None), &asked).unwrap();
        assert_eq!(tried.last().unwrap(), "sudo -k -S -p '' -H -u root -- true");
        let nobody = Way { run_as: RunAs::Sudo("a;b".into()), ..way(&["ssh"], &[]) };
        assert!(arguments(&at(None, "h", None), &nobody, Nth::First, Ciphers::AsTheyAre).is_err());
        assert!(sudo_words(&at(None, "h", None), &nobody).is_err());
        let further = line(&at(None, "h", None), &way(&["ssh"], &[]), Nth::Further, Ciphers::AsTheyAre);
        let alone = "-S none -o ControlMaster=no";
        let want = format!("-o BatchMode=yes {tail} {alone} -- h bcmr serve");
        assert_eq!(further, want, "nobody is asked for a password");
        for (ssh, begins) in [
            (&["sshpass", "-f", "ssh", "/opt/ssh", "-v"][..], "-f ssh /opt/ssh -o BatchMode=yes -v -T"),
            (
                &["ssh", "-o", "BatchMode=no", "-i", "/keys/ssh"],
                "-o BatchMode=yes -o BatchMode=no -i /keys/ssh -T",
            ),
            (&["python3", "relay"], "relay -o BatchMode=yes -T"),
            (&[], "-o BatchMode=yes -T"),
        ] {
            let said = line(&at(None, "h", None), &way(ssh, &[]), Nth::Further, Ciphers::AsTheyAre);
            assert!(said.starts_with(begins), "{ssh:?}: {said}");
        }
        let shares = Nth::Shares(Path::new("/s/socket"), HeldBy::Sftp);
        let first =
            arguments_for(&at(None, "h", None), &way(&["ssh"], &[]), shares, Ciphers::AsTheyAre, "sftp");
        let first: Vec<String> = first.unwrap().iter().map(|a| a.to_str().unwrap().to_owned()).collect();
        let listens = "-o ControlMaster=yes -o ControlPersist=no -o ControlPath=/s/socket -s";
        assert_eq!(first.join(" "), format!("{tail} {listens} -- h sftp"));
        let all = line(
            &at(Some("u"), "fe80::1%eth0", Some(2222)),
            &way(&["/opt/ssh", "-v"], &["-J", "jump", "-o", "Port=1"]),
            Nth::Further,
            Ciphers::PreferAes,
        );
        assert_eq!(
            all,
            format!(
                "-o BatchMode=yes -v -p 2222 -l u -J jump -o Port=1 {tail} -S none -o ControlMaster=no -o {FAST_CIPHERS} \
                 -- fe80::1%eth0 bcmr serve"
            )
        );
    }

    #[test]
    fn hosts_and_users_that_are_no_words_never_reach_ssh() {
        let bad = [
            "",
            "-oProxyCommand=touch /tmp/x",
            "-",
            "a b",
            "a\tb",
            "a\nb",
            "a\0b",
            "a\x7fb",
            "a\x1b[2J",
            "a;b",
            "a&b",
            "a|b",
            "$(a)",
            "`a`",
            "a>b",
            "a<b",
            "a'b",
            "a\"b",
            "a\\b",
            "a*",
            "a?",
            "{a}",
            "(a)",
            "a!b",
            "#a",
            "~a",
            "a/b",
            "a,b",
            "a=b",
            "[a]",
            "a^b",
            "a\u{a0}b",
            "a\u{202e}b",
            "a\u{2028}b",
        ];
        for word in bad {
            for address in [at(None, word, None), at(Some(word), "h", None)] {
                let refused = arguments(&address, &way(&["ssh"], &[]), Nth::First, Ciphers::AsTheyAre);
                assert_eq!(refused.unwrap_err().code, Code::Refused, "{word:?}");
                // And nothing was run to find that out: this program does not exist.
                let started = start(&address, &way(&["/not/there/ssh"], &[]), Nth::First, None);
                assert_eq!(started.err().unwrap().code, Code::Refused, "{word:?}");
            }
        }
        let long = "a".repeat(256);
        assert!(fault("host", &long).is_some() && fault("host", &long[1..]).is_none());
        assert!(fault("host", "a@b").is_some(), "a user is named as one");
        for word in
            ["h", "host.example.org", "h_1", "10.0.0.1", "::1", "fe80::1%eth0", "bücher.example", "a-b", "-a"]
        {
            assert_eq!(fault("host", word).is_none(), !word.starts_with('-'), "{word}");
        }
        for word in ["u", "u.v", "u@realm", "u+tag", "_u"] {
            assert_eq!(fault("user", word), None, "{word}");
        }
    }

    #[test]
    fn the_far_shell_sees_two_words() {
        for fine in ["bcmr", "/opt/bcmr-1.2/bin/bcmr", "~/bin/bcmr", "./bcmr", "bcmr+x"] {
            assert_eq!(remote_command(fine, "serve").unwrap(), format!("{fine} serve"));
        }
        let bad = [
            "",
            "~/",
            "-x",
            "~/-x",
            "bcmr; x",
            "a b",
            "$HOME/bcmr",
            "`x`",
            "a\nb",
            "a'b",
            "a\"b",
            "a\\b",
            "a=b",
            "%1",
            "a&",
            "(a)",
            "a*",
            "a?",
            "~root/x",
            "a~b",
            "a#",
            "a!",
            "{a}",
            "bücher",
            "a\0",
        ];
        for word in bad {
            assert!(remote_command(word, "serve").is_err(), "{word:?}");
        }
    }

    #[test]
    fn ciphers_are_touched_only_where_nobody_has_named_any() {
        let stock = "port 22\nciphers chacha20-poly1305@openssh.com,aes128-ctr,aes128-gcm@openssh.com\n";
        assert_eq!(judge_ciphers(stock, stock), Ciphers::PreferAes);
        let own = "ciphers aes256-ctr\n";
        assert_eq!(judge_ciphers(own, stock), Ciphers::AsTheyAre);
        let fast_already = "ciphers aes128-gcm@openssh.com,aes128-ctr\n";
        assert_eq!(judge_ciphers(fast_already, fast_already), Ciphers::AsTheyAre);
        assert_eq!(judge_ciphers(own, own), Ciphers::AsTheyAre, "an ssh without AES-GCM");
        assert_eq!(judge_ciphers("", ""), Ciphers::AsTheyAre);
        assert_eq!(judge_ciphers(stock, ""), Ciphers::AsTheyAre);
    }

    #[test]
    fn an_end_without_a_greeting_is_told_apart() {
        let gone = Error::ours(Code::Lost, Op::TalkTo, "h", Reason::ClosedByPeer);
        let noise = Error::ours(Code::Protocol, Op::TalkTo, "h", Reason::NoMessage.about("Hi"));
        let code = |exit, broken: &Error| judge_end(exit, broken, "bcmr", &[]).0;
        assert_eq!(code(Some(255), &gone), Code::Lost);
        assert_eq!(code(Some(127), &gone), Code::NoPeer);
        assert_eq!(code(Some(126), &gone), Code::NoPeer);
        assert_eq!(code(Some(2), &gone), Code::NoPeer);
        assert_eq!(code(None, &gone), Code::Lost);
        assert_eq!(code(Some(0), &noise), Code::NoPeer);
        let said = Reason::NoBcmrThere.about(Reason::NoMessage.about("Hi"));
        assert_eq!(judge_end(Some(0), &noise, "bcmr", &[]).1, said);
        assert_eq!(code(Some(127), &noise), Code::NoPeer);
        assert_eq!(judge_end(Some(127), &noise, "bcmr", &[]).1, Reason::NoProgram.about("bcmr"));
    }

    #[test]
    fn what_ssh_says_is_told_apart() {
        let gone = Error::ours(Code::Lost, Op::TalkTo, "h", Reason::ClosedByPeer);
        for (said, code) in [
            ("ssh: connect to host h port 22: Connection refused", Code::ConnectionRefused),
            ("ssh: Could not resolve hostname h: Name or service not known", Code::UnknownHost),
            ("ssh: Could not resolve hostname h: Temporary failure in name resolution", Code::Unreachable),
            ("ssh: connect to host h port 22: Connection timed out", Code::Unreachable),
            ("ssh: connect to host h port 22: No route to host", Code::Unreachable),
            ("me@h: Permission denied (publickey,password).", Code::NoKey),
            ("Received disconnect from 1.2.3.4 port 22:2: Too many authentication failures", Code::NoKey),
            ("Host key verification failed.", Code::UnknownKey),
            ("No ED25519 host key is known for h and you have requested strict checking.", Code::UnknownKey),
            ("Connection reset by 1.2.3.4 port 22", Code::Lost),
            ("client_loop: send disconnect: Broken pipe", Code::Lost),
        ] {
            let said = ["a banner: Permission denied to strangers".to_owned(), said.to_owned()];
            assert_eq!(judge_end(Some(255), &gone, "bcmr", &said).0, code, "{said:?}");
            // A child that ends with another status has reached the machine.
            assert_eq!(judge_end(Some(1), &gone, "bcmr", &said).0, Code::NoPeer, "{said:?}");
        }
    }

    #[test]
    fn a_changed_key_is_told_in_one_line() {
        let page = "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\n\
            @    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n\
            @@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\n\
            IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!\n\
            The fingerprint for the ED25519 key sent by the remote host is\n\
            SHA256:abcdef.\n\
            Offending ED25519 key in /home/me/.ssh/known_hosts:3\n\
            Host key verification failed.";
        let said: Vec<String> = page.lines().map(|line| line.trim().to_owned()).collect();
        let gone = Error::ours(Code::Lost, Op::TalkTo, "h", Reason::ClosedByPeer);
        let (code, note) = judge_end(Some(255), &gone, "bcmr", &said);
        assert_eq!(code, Code::ChangedKey);
        let key = Reason::OtherKeyAtIs.about("/home/me/.ssh/known_hosts:3").about("SHA256:abcdef");
        let want = Reason::Because.about(Reason::SshCouldNotConnect).about(key);
        assert_eq!(note, want);
    }

    #[test]
    fn notes_are_bounded_in_number_and_length() {
        let notes = Notes::default();
        let mut said = String::new();
        for n in 0..1000 {
            said.push_str(&format!("line {n}\r\n\n"));
        }
        said.push_str(&"x".repeat(3 * NOTE_BYTES_MAX));
        notes.listen(said.as_bytes());
        let kept = notes.take();
        assert_eq!(kept.len(), NOTES_MAX);
        assert!(kept.iter().all(|line| line.len() <= NOTE_BYTES_MAX));
        assert_eq!(kept[NOTES_MAX - 4], "line 999");
        assert!(notes.take().is_empty());
    }
}
