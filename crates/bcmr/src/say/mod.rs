//! All wording: what an error, an item, a question or an end is called, which hint goes with it, and which exit code.
//!
//! Pure: takes values, returns text or numbers. Must not know where text goes, nor how anything was carried out.

pub mod itemized;
pub mod plan;
pub mod slurm;
mod told;
pub mod words;

pub use told::{error, is_of_all, one_line, os_text, reason, warning};

use crate::address::{self, Operand};
use crate::config::Config;
use crate::env::Build;
use crate::names::{bare, quoted, shell_word, text};
use crate::show::{Again, NewTarget, Phase, Show, Verb};
use crate::ui::limit::Limit;
use crate::ui::receipt::Receipt;
use crate::usage::Usage;
use crate::voice::{Exits, Voice};
use bcmr_engine::error::{Code, Error, Op, Reason};
use bcmr_engine::event::{Action, Engine, Question, Summary, Time, Unfinished, What};
use bcmr_engine::peer::OnTheWay;
use bcmr_engine::policy::{Collide, Verify};
use bcmr_engine::verbs::look::{Kind, Listing, Usage as Used};
use data_encoding::HEXLOWER;
use jiff::{Timestamp, tz::TimeZone};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// There was no memory left.
pub const EXIT_OUT_OF_MEMORY: i32 = 12;
/// Said in the middle of everything, so it ends its own line.
pub const OUT_OF_MEMORY: &str =
    "\nbcmr: there is no memory left; what was under way is found by the next run\n";
const SIGINT: u8 = 2;

impl Verb {
    /// As typed.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Copy => "copy",
            Verb::Move => "move",
            Verb::Remove => "remove",
            Verb::Check => "check",
            Verb::Sync => "sync",
            Verb::Undo => "undo",
            Verb::Sessions => "sessions",
            Verb::Ctl => "ctl",
            Verb::Ls => "ls",
            Verb::Stat => "stat",
            Verb::Du => "du",
            Verb::Hash => "hash",
            Verb::Mkdir => "mkdir",
            Verb::Doctor => "doctor",
            Verb::Deploy => "deploy",
            Verb::Serve => "serve",
            Verb::Plan => "plan",
            Verb::Shard => "shard",
            Verb::Finish => "finish",
        }
    }

    /// What is going on.
    pub fn doing(self) -> &'static str {
        match self {
            Verb::Copy => "copying",
            Verb::Move => "moving",
            Verb::Remove => "removing",
            Verb::Check => "checking",
            Verb::Sync => "syncing",
            Verb::Undo => "undoing",
            Verb::Deploy => "deploying",
            Verb::Serve => "serving",
            Verb::Plan => "planning",
            Verb::Shard => "working",
            Verb::Finish => "finishing",
            Verb::Hash => "hashing",
            Verb::Mkdir => "making",
            Verb::Ctl => "telling",
            Verb::Sessions | Verb::Ls | Verb::Stat | Verb::Du | Verb::Doctor => "looking",
        }
    }

    fn done(self) -> &'static str {
        match self {
            Verb::Copy => "copied",
            Verb::Move => "moved",
            Verb::Remove => "removed",
            Verb::Check => "checked",
            Verb::Sync => "synced",
            Verb::Undo => "undone",
            Verb::Sessions => "removed",
            Verb::Ctl => "told",
            Verb::Hash => "hashed",
            Verb::Mkdir => "made",
            Verb::Deploy => "deployed",
            Verb::Serve => "served",
            Verb::Plan => "planned",
            // Whatever the plan is for.
            Verb::Shard => "did",
            Verb::Finish => "finished",
            Verb::Ls | Verb::Stat | Verb::Du | Verb::Doctor => "looked at",
        }
    }
}

/// What is going on just now.
pub fn phase(verb: Verb, phase: Phase) -> &'static str {
    match phase {
        Phase::Working => verb.doing(),
        Phase::Verifying => "verifying",
        Phase::Syncing => "syncing",
    }
}

// ---- exit codes ----

/// The exit code a finished run deserves. `signal` is the first one that asked to stop, if any did.
///
/// One number has to speak for all failures, so the one that says most about the data wins: a mismatch before a
/// changed source, before a full disk, before a guard, before everything else. A run that a signal cut short says so
/// whatever else went wrong; one that was complete before it noticed the signal does not.
pub fn exit_code(exits: &Exits, verb: Verb, summary: &Summary, signal: Option<u8>) -> u8 {
    if summary.cancelled {
        return exits.signal + signal.unwrap_or(SIGINT);
    }
    let trouble = summary.failed > 0 || !summary.codes.is_empty();
    if verb == Verb::Check {
        return match (trouble, summary.differences > 0) {
            (true, _) => exits.usage,
            (false, true) => exits.some_failed,
            (false, false) => exits.done,
        };
    }
    let trouble = trouble || verb == Verb::Finish && summary.differences > 0;
    exits.of_codes(&summary.codes).unwrap_or(if trouble { exits.some_failed } else { exits.done })
}

/// The exit code of a command that only looks.
pub fn exit_code_of_look(exits: &Exits, summary: &Summary) -> u8 {
    match summary.failed {
        0 => exits.done,
        _ if summary.codes.iter().any(|code| code.is_of_connection()) => exits.connection,
        _ => exits.some_failed,
    }
}

/// The exit code when nothing could be begun. A destination that is no directory although there are several sources
/// is `NotDirectory`, hence 1 as with cp; only what is wrong whatever the file system holds is a matter of usage.
pub fn exit_code_of(exits: &Exits, verb: Verb, error: &Error) -> u8 {
    if verb == Verb::Check { exits.usage } else { exits.of(error.code) }
}

/// What becomes of an exit code when standard output could not be written: what was asked for was done, but what was to be
/// told of it is lost.
pub fn exit_without_output(exits: &Exits, verb: Verb, exit: u8) -> u8 {
    match verb {
        Verb::Check if exit == exits.done || exit == exits.some_failed => exits.usage,
        _ if exit == exits.done => exits.some_failed,
        _ => exit,
    }
}

// ---- hints ----

/// What to do about an error: what it does, and the flags that the typed command lacks for it.
#[derive(Debug, PartialEq, Eq)]
pub struct Hint {
    words: &'static str,
    add: Option<Add>,
    made: Made,
}

/// Whether a destination that was no directory may be one now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    /// The one source was refused, or no bcmr was there to make anything.
    Nothing,
    /// Then it matters whether it was new.
    Maybe,
}

impl Made {
    /// What there may be when this goes wrong.
    fn before(code: Code) -> Made {
        match code {
            Code::IsDirectory | Code::NoPeer => Made::Nothing,
            _ => Made::Maybe,
        }
    }
}

/// What is added to the command that was typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Add {
    /// These.
    Flags(&'static [&'static str]),
    /// These, before all others: what was typed counts more where the last word does.
    First(&'static [&'static str]),
    /// What goes on where it stopped.
    GoOn,
}

/// What to do about it, where there is something. Said once for each code in a run.
pub fn hint(verb: Verb, again: Again, e: &Error) -> Option<Hint> {
    use Add::{Flags, GoOn};
    let made = Made::before(e.code);
    let with = |words, add| Some(Hint { words, add: Some(add), made });
    let only = |words| Some(Hint { words, add: None, made });
    match (verb, e.code) {
        (Verb::Sync, _) if hint_of_sync(e).is_some() => hint_of_sync(e),
        (Verb::Plan | Verb::Finish, Code::Refused) if is_unmounted(e) => only(MOUNT_FOR_PLAN),
        // It was allowed to change, and is there.
        (_, Code::SourceChanged) if e.op == Op::CopyAllOf => None,
        (Verb::Remove, Code::IsDirectory) => {
            with("to remove it with what is in it (if it is empty, -d does), run", Flags(&["-r"]))
        }
        (Verb::Copy, Code::IsDirectory | Code::Special) => hint_of_kind(e),
        // The system said so: there is a directory that is not empty. Other things in the way no flag merges with.
        (Verb::Move, Code::InTheWay) if e.source.is_some() && e.op != Op::RemoveSource => {
            with("to move into directories that are already there, run", Flags(&["--merge"]))
        }
        (_, Code::NoSpace) => hint_of_space(verb, again, e),
        (Verb::Move, Code::SourceChanged) if e.op == Op::RemoveSource => {
            only("look at both; once one of the two is gone, the same command does the rest")
        }
        (Verb::Copy, Code::SourceChanged) if again == Again::InPlace => {
            with("what is written in place is there in part; when no program writes to the source, run", GoOn)
        }
        (Verb::Copy | Verb::Move | Verb::Sync, Code::SourceChanged) => {
            with("it did not appear at the destination; when no program writes to it, run", GoOn)
        }
        (Verb::Shard | Verb::Finish, Code::SourceChanged) => {
            only("the plan is of what was there before; make another one")
        }
        (_, Code::SourceChanged) => {
            only("it changed while it was read; look again when no program writes to it")
        }
        (_, Code::Mismatch) if has_reason(e, Reason::AddedToAnother) => {
            only("what was there may not be how the source begins; -a proves that before it adds anything")
        }
        (Verb::Copy, Code::Mismatch) if again == Again::InPlace => {
            only("what is written in place is there as it is; suspect the disk, the memory or a cable")
        }
        (_, Code::Mismatch) => {
            only("it did not appear at the destination; suspect the disk, the memory or a cable")
        }
        (Verb::Copy, Code::Unsupported) if has_reason(e, Reason::KeepsNothing) => {
            only("nothing was written; without -V it is, and nothing is proved")
        }
        (Verb::Copy, Code::Unsupported) if e.op == Op::CloneTo => {
            with("to copy where sharing is not possible, run", Flags(&["--reflink=auto"]))
        }
        (Verb::Copy, code) if code.is_of_metadata() => {
            with("if it need not be kept, run", Flags(without_what_was_lost(e.op)?))
        }
        (Verb::Copy, Code::Refused) if e.op == Op::AppendTo => {
            only("-a is --append here; what cp means by it is --archive")
        }
        // The tree is complete, and whether it still counts as unfinished is not known.
        (Verb::Copy, _) if e.op == Op::Unmark => with("everything is there; to be sure, run", GoOn),
        (_, Code::ConnectionRefused) => only(
            "nothing listens at that port there; --port N is for another one, and ssh -v HOST tells more",
        ),
        (_, Code::UnknownHost) => {
            only("hosts are named as ssh knows them; for a file on this machine put ./ before its name")
        }
        (_, Code::Unreachable) => only("run the same command again when the network and that machine are up"),
        (_, Code::NoKey) => only(
            "ssh -v HOST tells which keys were tried; a key in ssh-agent also serves further connections",
        ),
        (_, Code::UnknownKey) => {
            only("ssh HOST shows the fingerprint of its key and asks whether it is right")
        }
        (_, Code::ChangedKey) => only(
            "another machine may be answering; once you know why it changed, ssh-keygen -R HOST forgets the old key",
        ),
        // Where no connection came to be there is nothing to go on with.
        (_, Code::Lost) if e.op == Op::ConnectTo => only("bcmr doctor HOST tells where it stops"),
        (Verb::Copy, Code::Lost) if again == Again::Resume => {
            with("it goes on where it stopped, with --retries N by itself; or run", GoOn)
        }
        // What adds to what is there (-a), or leaves it alone, does not go with -C or does not need it.
        (Verb::Copy, Code::Lost) if matches!(again, Again::Same | Again::InPlace) => {
            with("to go on, run", GoOn)
        }
        (Verb::Copy, Code::Lost) => with("to go on, run", Flags(&["-C"])),
        (_, Code::Lost) => only("run the same command again; bcmr doctor HOST tells where it stops"),
        (_, Code::Protocol) => {
            only("bcmr doctor HOST tells what is there; it may be another version, or no bcmr at all")
        }
        (_, Code::NoPeer) if e.op == Op::StartBcmrOn => only(
            "this is the program that --remote-program or the configuration names; without either, bcmr is looked for",
        ),
        (_, Code::NoPeer) if e.op != Op::PutBcmrOn => with(
            "to put this program into the cache there (bcmr deploy HOST does only that), run",
            Flags(&["--bootstrap"]),
        ),
        (Verb::Copy | Verb::Move | Verb::Remove | Verb::Check | Verb::Sync, Code::Limit) => {
            with("raise the limit (ulimit -n), or run", Flags(&["-j1"]))
        }
        _ => None,
    }
}

/// Where it is no file that a copy is to take or to replace.
fn hint_of_kind(e: &Error) -> Option<Hint> {
    let hint = |words, add| Some(Hint { words, add, made: Made::before(e.code) });
    let flags = |flags| Some(Add::Flags(flags));
    match (e.code, e.op) {
        // What goes from or to a stream is one file: neither -r nor --archive has a place there.
        (_, Op::Read) => None,
        (Code::IsDirectory, Op::CopyTo) => {
            hint("what is read from standard input has no name; say which name it gets there: DIR/NAME", None)
        }
        (Code::IsDirectory, _) => hint("to copy it with what is in it, run", flags(&["-r"])),
        (_, Op::Replace) => hint("to write into it, run", flags(&["--inplace"])),
        _ => hint("to copy special files as what they are, run", Some(Add::First(&["--archive"]))),
    }
}

/// What leaves out the attribute that could not be kept.
fn without_what_was_lost(op: Op) -> Option<&'static [&'static str]> {
    Some(match op {
        Op::SetOwnerOf | Op::KeepEveryOwner => &["--no-preserve=ownership"],
        Op::SetAclOf | Op::SetAttributesOf | Op::ReadAttributesOf | Op::RemoveAttributesOf => {
            &["--no-preserve=xattr,acl"]
        }
        Op::SetTimesOf => &["--no-preserve=timestamps"],
        Op::SetModeOf => &["--no-preserve=mode"],
        _ => return None,
    })
}

/// Where there is no room for what a run has to write.
fn hint_of_space(verb: Verb, again: Again, e: &Error) -> Option<Hint> {
    let hint = |words, add| Some(Hint { words, add, made: Made::before(e.code) });
    let goes_on = Some(Add::GoOn);
    match verb {
        _ if e.source.as_ref().is_some_and(|e| e.kind() == io::ErrorKind::FileTooLarge) => {
            hint("no file may be as large: ulimit -f is a limit, and the file system has another", None)
        }
        // What is written in place is there by half.
        Verb::Copy if again == Again::InPlace => hint("make room, then run", goes_on),
        Verb::Copy | Verb::Move | Verb::Sync => {
            hint("what was copied is whole and what was not has not appeared; make room, then run", goes_on)
        }
        _ => None,
    }
}

/// Where owners that were asked for could not be given.
const OWNERS_OF_ROOT: &str = "root can do it; as another user leave out what says whom things belong to (--chown, --usermap, --groupmap, --numeric-ids)";

/// Where the third machine has no bcmr.
const DEPLOY_AT_SOURCE: &str = "bcmr deploy HOST puts one there, if it is run on the source's machine; without --via-source what is sent goes through here";

/// How to go on with a plan for such a source.
const MOUNT_FOR_PLAN: &str = "mount it; if it is to stay as it is now, a plan without --delete says so for the next time, once it is finished";

/// M1: the source is not mounted where it was.
fn is_unmounted(e: &Error) -> bool {
    has_reason(e, Reason::NotMountedWhereItWas)
}

fn has_reason(e: &Error, reason: Reason) -> bool {
    e.note.as_ref().is_some_and(|note| note.reason == reason)
}

/// What only `sync` refuses, and how to go on.
fn hint_of_sync(e: &Error) -> Option<Hint> {
    let hint = |words, add| Some(Hint { words, add, made: Made::Maybe });
    let why = e.note.as_ref().map(|note| note.reason);
    match (e.code, why) {
        (Code::Refused, Some(Reason::TooMuchToDelete)) => hint(
            "to delete it, or with -n to see what would go, run",
            Some(Add::Flags(&["--max-delete=100%"])),
        ),
        (Code::Refused, Some(Reason::NotMountedWhereItWas)) => hint(
            "mount it; if it is to stay as it is now, the same command without --delete says so for the next time",
            None,
        ),
        (Code::Refused, Some(Reason::NewerSnapshot)) => hint(
            "snapshots are made in the order of time; if a wrong clock or --at made the newer one, rename or remove it",
            None,
        ),
        (Code::Refused, Some(Reason::SourceIsEmpty)) => {
            hint("if all of DST is to go, bcmr remove does it", None)
        }
        (Code::Refused, Some(Reason::RulesLeftOut)) => hint(
            "with --include .gitignore (or .bcmrignore) these files come as well, and say there what stays",
            None,
        ),
        (Code::Refused, Some(Reason::RulesToCome)) => {
            hint("to delete the rest, once they have come, run", Some(Add::GoOn))
        }
        (Code::Refused, Some(Reason::RulesInTheWay)) => {
            hint("move that directory away; then, to delete the rest, run", Some(Add::GoOn))
        }
        (Code::Refused, Some(Reason::RulesInNoFile)) => {
            hint("put a file with the rules in its place, or name one with --exclude-from", None)
        }
        (Code::Refused, Some(Reason::NotAllIsThere)) => {
            hint("once what went wrong above is mended, run", Some(Add::GoOn))
        }
        (Code::Refused, Some(Reason::HoldsKept)) => {
            hint("keep it elsewhere, or leave out what SRC has of that name with -e", None)
        }
        (Code::InTheWay, Some(Reason::HoldsKept)) => hint(
            "move away what it holds that is kept; what a filter leaves out goes as well with --delete-excluded",
            None,
        ),
        (Code::InTheWay, Some(Reason::OutOfTheWay)) => {
            hint("the same sync, once more, brings what was behind them", None)
        }
        (Code::InTheWay, Some(Reason::FileOverDirectory)) => hint(
            "a directory that holds something is replaced only where things may be deleted; to allow it, run",
            Some(Add::Flags(&["--delete"])),
        ),
        (Code::NotDirectory, Some(Reason::SourceIsNoDirectory)) => {
            hint("bcmr copy --archive --update=different brings one file up to date", None)
        }
        _ => None,
    }
}

impl Hint {
    /// Whether its command is another one when the destination is new.
    fn is_of_target(&self) -> bool {
        self.add.is_some() && self.made == Made::Maybe
    }

    /// Where no whole command can be given.
    fn brief(&self, again: Again) -> String {
        let flags = match self.add {
            None => return self.words.to_owned(),
            Some(Add::Flags(flags) | Add::First(flags)) => flags,
            Some(Add::GoOn) => going_on(again, false),
        };
        match flags {
            [] => format!("{} the same command again", self.words),
            flags => format!("{} the same command with {}", self.words, flags.join(" ")),
        }
    }
}

/// A hint, whole: its command is what was typed and what that lacks. What was a new destination when the run began may be
/// a directory now; then it is that very name that is meant.
fn advice(typed: &[OsString], about: &Path, again: Again, new_target: NewTarget, hint: &Hint) -> String {
    let words = match machine(typed, about) {
        Some(host) => hint.words.replace("HOST", &host),
        None => hint.words.to_owned(),
    };
    if hint.is_of_target() && new_target == NewTarget::Untold {
        return format!("{}{IF_NEW}", hint.brief(again));
    }
    let new_target = hint.is_of_target() && new_target == NewTarget::Yes;
    match hint.add {
        Some(Add::Flags(flags)) => format!("{words}: {}", command(typed, flags, new_target)),
        Some(Add::First(flags)) => {
            // Behind the verb, which is the first word that is no option.
            let verb = typed.iter().skip(1).take_while(|word| word.as_encoded_bytes().starts_with(b"-"));
            let (before, after) = typed.split_at_checked(verb.count() + 2).unwrap_or((typed, &[]));
            let flags = flags.iter().map(OsString::from);
            let typed: Vec<OsString> =
                before.iter().cloned().chain(flags).chain(after.iter().cloned()).collect();
            format!("{words}: {}", command(&typed, &[], new_target))
        }
        Some(Add::GoOn) => format!("{words}: {}", command(typed, going_on(again, new_target), new_target)),
        None => words,
    }
}

/// What stands behind a command that is only right where the destination was there.
const IF_NEW: &str = "; and with -T, if the destination was new";

/// The same where what was typed names a plan: that is done with the options of then, and as nothing has changed since.
fn advice_of_plan(hint: &Hint) -> String {
    let flags = match hint.add {
        None => return hint.words.to_owned(),
        Some(Add::Flags(flags) | Add::First(flags)) => format!(" with {}", flags.join(" ")),
        Some(Add::GoOn) => String::new(),
    };
    format!("{} the command that made the plan{flags}, and apply the new one", hint.words)
}

/// What was typed, as far as hints need it.
#[derive(Clone, Copy)]
pub struct Typed<'a> {
    pub verb: Verb,
    pub again: Again,
    pub line: &'a [OsString],
    /// It does what was written down earlier.
    pub from_plan: bool,
    /// Who things are to belong to was typed.
    pub owners_said: bool,
    pub one_worker: bool,
    pub new_target: NewTarget,
    /// It was typed on another machine, by `--via-source`.
    pub at_source: bool,
}

/// A hint on an error, before its words.
#[derive(Debug)]
pub struct Advice {
    hint: Hint,
    about: PathBuf,
    code: Code,
}

impl Advice {
    /// Whether a run that came to its end is all that it could advise.
    pub fn is_of_connection(&self) -> bool {
        self.code.is_of_connection()
    }
}

impl Show {
    /// What was typed, for hints.
    pub fn typed(&self, new_target: NewTarget) -> Typed<'_> {
        let Show { verb, again, from_plan, owners_said, one_worker, at_source, .. } = *self;
        let line = &self.line;
        Typed { verb, again, line, from_plan, owners_said, one_worker, new_target, at_source }
    }
}

impl Typed<'_> {
    /// What to do about an error, as a whole command where one does it.
    pub fn advice(&self, e: &Error) -> Option<String> {
        self.hint(e).map(|advice| self.words(&advice))
    }

    /// Whether the other machine is to be heard before a command can be given.
    pub fn waits(&self, advice: &Advice) -> bool {
        !self.from_plan && self.new_target == NewTarget::Untold && advice.hint.is_of_target()
    }

    /// What to do about an error.
    pub fn hint(&self, e: &Error) -> Option<Advice> {
        let mut hint = match e.op {
            // No further option undoes what says whom things belong to.
            Op::SetOwnerOf | Op::KeepEveryOwner if self.owners_said && e.code.is_of_metadata() => {
                Hint { words: OWNERS_OF_ROOT, add: None, made: Made::Nothing }
            }
            // With fewer workers it would need as many descriptors.
            _ if e.code == Code::Limit && self.one_worker && !self.from_plan => {
                Hint { words: "raise the limit (ulimit -n)", add: None, made: Made::Nothing }
            }
            // What was typed about programs was about those of the source's machine.
            op if e.code == Code::NoPeer
                && self.at_source
                && !matches!(op, Op::StartBcmrOn | Op::PutBcmrOn) =>
            {
                Hint { words: DEPLOY_AT_SOURCE, add: None, made: Made::Nothing }
            }
            _ => hint(self.verb, self.again, e)?,
        };
        // A special file that was named is refused before anything is made for it.
        if e.code == Code::Special && self.line.iter().any(|word| Path::new(word) == e.path) {
            hint.made = Made::Nothing;
        }
        Some(Advice { hint, about: e.path.clone(), code: e.code })
    }

    /// The same in words.
    pub fn words(&self, Advice { hint, about, .. }: &Advice) -> String {
        if self.from_plan {
            return advice_of_plan(hint);
        }
        advice(self.line, about, self.again, self.new_target, hint)
    }
}

/// The machine that an error is about, of those that the command names; the first where it is about none of them.
fn machine(typed: &[OsString], about: &Path) -> Option<String> {
    let mut machines = typed.iter().skip(1).filter_map(|word| match address::parse(Path::new(word)) {
        Ok(Operand::There(there)) => Some((address::machine(&there), there.host)),
        _ => None,
    });
    let first = machines.next()?;
    let is_it = |(machine, host): &(String, String)| about == Path::new(host) || about == Path::new(machine);
    let it = if is_it(&first) { None } else { machines.find(is_it) };
    Some(it.unwrap_or(first).0)
}

/// `new_target`: all that is there is this command's.
fn going_on(again: Again, new_target: bool) -> &'static [&'static str] {
    match again {
        Again::Same | Again::InPlace | Again::Resume => &[],
        // What was there before may be newer than what is to replace it.
        Again::WithUpdate if !new_target => &[],
        Again::WithUpdate => &["-u"],
        Again::WithMerge => &["--merge"],
    }
}

/// What was typed with further flags, for a shell.
fn command(typed: &[OsString], flags: &[&str], new_target: bool) -> String {
    let end = typed.iter().position(|word| word == "--").unwrap_or(typed.len());
    let (before, after) = typed.split_at_checked(end).unwrap_or((typed, &[]));
    let exactly = if new_target { &["-T"][..] } else { &[] };
    let added = flags.iter().chain(exactly).map(OsStr::new);
    let words = before.iter().map(OsString::as_os_str).chain(added);
    words.chain(after.iter().map(OsString::as_os_str)).map(shell_word).collect::<Vec<_>>().join(" ")
}

/// After a run with `-C` that made its destination.
pub fn finished(show: &Show) -> String {
    format!("to bring it up to date later, run: {}", command(&show.line, &[], true))
}

/// Arguments that make no sense together.
pub fn usage(voice: &Voice, verb: Verb, u: &Usage) -> String {
    match &u.hint {
        Some(_) => usage_of(voice, u),
        None => voice.line(&format!(
            "{}\nhint: {} {} --help shows how it is used\n",
            u.said,
            voice.program,
            verb.name()
        )),
    }
}

/// The same, where no verb is known that a hint could send to.
pub fn usage_of(voice: &Voice, u: &Usage) -> String {
    let hint = u.hint.as_ref().map(|hint| format!("hint: {hint}\n")).unwrap_or_default();
    voice.line(&format!("{}\n{hint}", u.said))
}

/// What `--version --verbose` tells.
pub fn version(build: &Build) -> String {
    let Build { version, commit, arch, os, features } = build;
    let (commit, features) = (commit.unwrap_or("unknown"), features.join(" "));
    format!("bcmr {version}\ncommit: {commit}\ntarget: {arch}-{os}\nfeatures: {features}\n")
}

/// What `config` prints.
pub fn configuration(file: Option<&Path>, config: &Config) -> String {
    let mut out = match file {
        Some(file) => format!("configuration: {}\n", quoted(file)),
        None => "configuration: none, as there is no home directory\n".to_owned(),
    };
    for (name, place) in config.places() {
        out.push_str(&format!("@{} = {}\n", text(name), text(place)));
    }
    for (verb, words) in config.defaults() {
        let words: Vec<String> = words.iter().map(|word| shell_word(OsStr::new(word))).collect();
        out.push_str(&format!("defaults of {verb}: {}\n", words.join(" ")));
    }
    out
}

/// What comes before a mistake that is not in what was typed.
pub fn bad_defaults(voice: &Voice, verb: &str) -> String {
    voice.line(&format!(
        "with the defaults of {verb} that the configuration has (--no-defaults leaves them out):\n"
    ))
}

/// That the defaults of a verb hold what has no meaning among them.
pub fn no_defaults_are(file: Option<&Path>, verb: &str) -> Usage {
    let file = file.map(|file| format!("{}: ", quoted(file))).unwrap_or_default();
    let said = format!("{file}the defaults of {verb} ask for help, for the version or for no defaults");
    Usage::new(said).or("such an option is typed, where it is meant")
}

/// What clap has to say, in our manner: it quotes what was typed, and that may hold anything.
pub fn clap_error(voice: &Voice, rendered: &str) -> String {
    let said = rendered.strip_prefix("error: ").map(|rest| voice.line(rest));
    let said = said.unwrap_or_else(|| rendered.to_owned());
    said.split_inclusive('\n')
        .map(|line| match line.strip_suffix('\n') {
            Some(line) => text(line) + "\n",
            None => text(line),
        })
        .collect()
}

/// A file of ours that could not be read or written.
pub fn file_error(voice: &Voice, op: &str, path: &Path, e: &io::Error) -> String {
    voice.line(&format!("cannot {op} {}: {}", quoted(path), text(&os_text(e))))
}

/// Standard output took no more, and not because its reader went away.
pub fn output_error(voice: &Voice, e: &io::Error) -> String {
    voice.line(&format!("cannot write to standard output: {}", text(&os_text(e))))
}

/// The failures of one code that were not told one by one.
pub fn rest(voice: &Voice, code: Code, count: u64) -> String {
    let why = match code {
        Code::NoSpace => "there was no space",
        Code::ReadOnly => "the file system is read-only",
        other => other.name(),
    };
    voice.line(&format!("and {count} more, as {why}; -v names each"))
}

// ---- items ----

/// What interrupted runs left, as a table with its head; names last, as they may be long.
pub fn unfinished(found: &[Unfinished], now: i64) -> String {
    let rows: Vec<[String; 5]> = found.iter().map(|u| unfinished_row(u, now)).collect();
    let head = ["RECORDED", "OF", "AGE", "STATE", "NAME"].map(str::to_owned);
    let mut widths = [0; 4];
    for row in std::iter::once(&head).chain(&rows) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.len());
        }
    }
    let [a, b, c, d] = widths;
    std::iter::once(&head)
        .chain(&rows)
        .map(|[recorded, of, age, state, name]| {
            format!("{recorded:>a$}  {of:>b$}  {age:>c$}  {state:<d$}  {name}\n")
        })
        .collect()
}

fn unfinished_row(u: &Unfinished, now: i64) -> [String; 5] {
    let dash = || "-".to_owned();
    let (recorded, of) = match (u.what, u.size) {
        (What::File, size_) if size_ > 0 => {
            let percent = u128::from(u.recorded) * 100 / u128::from(size_);
            (format!("{} ({percent}%)", size(u.recorded)), size(size_))
        }
        (What::Stage, size_) if size_ > 0 => (dash(), size(size_)),
        _ => (dash(), dash()),
    };
    let state = match (u.removed, u.running, u.what) {
        (true, ..) => "removed",
        (_, true, _) => "running",
        (.., What::Stage) => "leftover",
        _ => "stopped",
    };
    let slash = if u.what == What::Tree { " (directory)" } else { "" };
    [recorded, of, age(now.saturating_sub(u.last.sec)), state.to_owned(), quoted(&u.path) + slash]
}

/// How long ago, in its largest unit; a clock that was set back gives 0.
fn age(seconds: i64) -> String {
    match seconds.max(0) {
        s @ 0..60 => format!("{s} s"),
        s @ 60..3600 => format!("{} min", s / 60),
        s @ 3600..172_800 => format!("{} h", s / 3600),
        s => format!("{} days", s / 86_400),
    }
}

/// A file that went on where a run stopped, or could not.
pub fn resumed(voice: &Voice, dst: &Path, bytes: u64, restarted: Option<Reason>, repaired: u64) -> String {
    let restarted = restarted.map(words::of);
    let mut line = match (bytes, restarted) {
        (0, Some(why)) => voice.line(&format!("{} started over: {}", quoted(dst), text(&why))),
        (_, Some(why)) => voice.line(&format!("{} went on at {}: {}", quoted(dst), size(bytes), text(&why))),
        (_, None) => voice.line(&format!("{} went on at {}", quoted(dst), size(bytes))),
    };
    match repaired {
        0 => {}
        1 => line.push_str("; 1 damaged block was copied again"),
        n => line.push_str(&format!("; {n} damaged blocks were copied again")),
    }
    line
}

/// So many of a kind.
pub fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Which way contents went.
pub fn engine(voice: &Voice, engine: &Engine) -> String {
    let files = |n: u64| if n == 1 { "1 file".to_owned() } else { format!("{n} files") };
    let mut line = match (engine.ring_files, engine.missing) {
        (0, Some(why)) => voice.line(&format!("engine sys for {}: {why}", files(engine.sys_files))),
        (0, None) => voice.line(&format!("engine sys for {}", files(engine.sys_files))),
        (ring, why) => {
            let mut line =
                voice.line(&format!("engine ring for {}, sys for {}", files(ring), files(engine.sys_files)));
            if let Some(why) = why {
                line.push_str(&format!(", as the ring failed: {why}"));
            }
            line
        }
    };
    if engine.direct_files > 0 {
        line.push_str(&format!("; {} past the page cache", files(engine.direct_files)));
    }
    if engine.not_direct_files > 0 {
        let could = files(engine.not_direct_files);
        line.push_str(&format!("; {could} not past the page cache, which the file system does not do"));
    }
    line
}

/// One line for `-v` and `-n`.
pub fn item(dry_run: bool, action: Action, src: &Path, dst: &Path) -> String {
    let would = if dry_run { "would " } else { "" };
    let named = if dst.as_os_str().is_empty() { src } else { dst };
    let pair = || format!("{} -> {}", quoted(src), quoted(dst));
    match action {
        Action::Copied | Action::MadeLink | Action::MadeSpecial if !dry_run => pair(),
        Action::Copied | Action::MadeLink | Action::MadeSpecial => format!("would copy {}", pair()),
        Action::MadeDir if dry_run => format!("would make directory {}", quoted(dst)),
        Action::MadeDir => format!("made directory {}", quoted(dst)),
        Action::HardLinked if dry_run => format!("would link {}", pair()),
        Action::HardLinked => format!("linked {}", pair()),
        Action::Renamed if dry_run => format!("would rename {}", pair()),
        Action::Renamed => format!("renamed {}", pair()),
        Action::Removed if dry_run => format!("would remove {}", quoted(named)),
        Action::Removed => format!("removed {}", quoted(named)),
        Action::Kept => format!("{would}keep {}", quoted(named)),
        Action::Updated if dry_run => format!("would update attributes of {}", quoted(named)),
        Action::Updated => format!("updated attributes of {}", quoted(named)),
        Action::Excluded => {
            format!("{would}exclude {}", quoted(if src.as_os_str().is_empty() { dst } else { src }))
        }
    }
}

/// A question, to be followed by the answer on the same line.
pub fn question(voice: &Voice, q: &Question) -> String {
    match q {
        Question::Replace(path) => voice.line(&format!("replace {}? [y/N] ", quoted(path))),
        Question::Remove(path) => voice.line(&format!("remove {}? [y/N] ", quoted(path))),
        Question::Descend(path) => voice.line(&format!("remove what is in {}? [y/N] ", quoted(path))),
    }
}

// ---- other machines ----

/// Why scp is not let at a destination.
pub const LINK_IN_THE_WAY: &str = "it is a symbolic link, scp would write through it, and the other machine may have put it \
                                   there; --follow-destination lets it";
/// What is given up when scp copies because no bcmr on the other side can be used. Said before anything is changed.
pub fn by_scp(absent: &Error) -> String {
    format!(
        "{}; scp copies instead, and what it copies is not verified, cannot be resumed, stands under its name before \
         it is complete, has links replaced by what they lead to, holes filled and hard links copied twice",
        reason(absent)
    )
}

/// Said at the end, where counts would stand.
pub const DONE_BY_SCP: &str = "bcmr: copied by scp, which does not count what it copies";

/// Why a program in the cache there is not run.
pub fn cache_is_open(dir: &str) -> String {
    format!(
        "the program in the cache there is not run: others may write into {} (chmod go-w forbids it)",
        quoted(dir.as_ref())
    )
}

/// Why nothing can be put into the cache there, in that machine's words.
pub fn cache_is_shut(why: &str) -> String {
    format!("nothing can be put there: {}", text(why))
}

/// What was asked for cannot be had without a bcmr there.
pub fn unkept(absent: &Error, flags: &[&str]) -> String {
    format!("{}; scp could copy instead, but cannot do {}", reason(absent), flags.join(", "))
}

/// Where the program over there was found that is not on the path of its shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// In the cache that `deploy` and `--bootstrap` fill.
    Cache,
    /// Installed where only a login shell looks.
    Aside,
    /// Put into the cache just now.
    Put,
}

/// The program over there is one that its shell does not find.
pub fn runs_from(program: &str, from: Found) -> String {
    match from {
        Found::Cache => format!("bcmr is not installed there: run as {program}"),
        Found::Put => format!("bcmr is not installed there: put there and run as {program}"),
        Found::Aside => format!("the shell there does not find bcmr: run as {program}"),
    }
}

/// What was typed looks like an address, and is a name on this machine.
pub fn is_here(path: &Path) -> String {
    format!(
        "{} is there on this machine, so it is not taken for an address; ssh://HOST/PATH always is one",
        quoted(path)
    )
}

/// One line of `ls`; the name without quotes, which the caller appends. The time is that of clocks here.
pub fn listing(l: &Listing, user: &str, group: &str, sizes: Sizes) -> String {
    let size = match sizes {
        Sizes::Bytes => l.size.to_string(),
        Sizes::Units => size(l.size),
    };
    format!("{} {user:<8} {group:<8} {size:>12}  {}  ", mode(l), moment_here(l.mtime))
}

/// How sizes are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    Bytes,
    Units,
}

/// What `stat` tells.
pub fn stat(operand: &Path, l: &Listing) -> String {
    let bytes = if l.size < 1024 { String::new() } else { format!(" ({} B)", l.size) };
    format!(
        "{}\n  kind   {}\n  size   {}{bytes}\n  mode   {:04o} {}\n  owner  {}:{}\n  mtime  {}.{:09} UTC\n",
        quoted(operand),
        l.kind.word(),
        size(l.size),
        l.mode,
        mode(l),
        l.uid,
        l.gid,
        moment(l.mtime),
        l.mtime.nsec
    )
}

/// What `du` tells.
pub fn usage_below(operand: &Path, u: &Used) -> String {
    let count = |n: u64, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
    format!(
        "{}  {}, {} in {}, {} on disk\n",
        quoted(operand),
        count(u.files, "file", "files"),
        size(u.bytes),
        count(u.dirs, "directory", "directories"),
        size(u.allocated)
    )
}

/// One line of `hash`, without its newline, as `b3sum` writes it: a name with a newline or a backslash has them escaped
/// and the line begins with one. On a terminal the name is escaped as everywhere.
pub fn hash_line(hash: &[u8; 32], name: &[u8], tty: bool) -> Vec<u8> {
    let hex = hex(hash);
    if tty {
        return format!("{hex}  {}", bare(name)).into_bytes();
    }
    let odd = name.iter().any(|b| matches!(b, b'\n' | b'\\'));
    let mut line = if odd { b"\\".to_vec() } else { Vec::new() };
    line.extend_from_slice(hex.as_bytes());
    line.extend_from_slice(b"  ");
    for byte in name {
        match byte {
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\\' => line.extend_from_slice(b"\\\\"),
            other => line.push(*other),
        }
    }
    line
}

/// What `deploy` did.
pub fn deployed(host: &str, program: &str, put: bool) -> String {
    let done = if put { "put this program there" } else { "this program was there already" };
    format!("{host}: {done}, as {program}; copies of this version find it")
}

/// One line of `doctor`.
/// One thing that was looked at on the way to another machine, in words.
pub struct Finding {
    /// What a copy needs of it is there.
    pub ok: bool,
    /// What was looked at.
    pub what: &'static str,
    /// What was found; may hold text of the other machine.
    pub detail: String,
    /// What kind of trouble it is, where something failed.
    pub code: Option<Code>,
}

/// What the engine found on the way to another machine.
pub fn on_the_way(found: &OnTheWay) -> String {
    match found {
        OnTheWay::Reaches(host) => format!("reaches {host}"),
        OnTheWay::Agent(agent) => agent.clone(),
        OnTheWay::Can(names) => format!("both can: {}", names.join(", ")),
        OnTheWay::Failed(e) => format!("{} {}: {}", words::op(e.op), e.path.display(), reason(e)),
    }
}

/// A line of `doctor`.
pub fn finding(ok: bool, what: &str, detail: &str) -> String {
    format!("{:<4} {}: {}\n", if ok { "ok" } else { "no" }, text(what), one_line(detail))
}

/// `-rw-r--r--`, as ls writes it.
fn mode(l: &Listing) -> String {
    let kind = match l.kind {
        Kind::File => '-',
        Kind::Dir => 'd',
        Kind::Link => 'l',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::CharDevice => 'c',
        Kind::BlockDevice => 'b',
    };
    let mut out = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = l.mode >> shift;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (l.mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    out
}

/// `2026-11-21 09:39:46`, as clocks here show it.
fn moment_here(t: Time) -> String {
    shown_in(t.sec, TimeZone::system())
}

/// `2026-11-21 09:39:46 +01:00`, as clocks here show it.
pub fn moment_of(seconds: i64) -> String {
    match Timestamp::from_second(seconds) {
        Ok(at) => at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %:z").to_string(),
        Err(_) => shown_in(seconds, TimeZone::UTC),
    }
}

/// `2026-11-21 08:39:46`, in UTC: what another machine's clock showed says nothing in our time zone.
fn moment(t: Time) -> String {
    shown_in(t.sec, TimeZone::UTC)
}

/// What another machine claims may be any number: one that no calendar has is told as it is.
fn shown_in(seconds: i64, zone: TimeZone) -> String {
    match Timestamp::from_second(seconds) {
        Ok(at) => at.to_zoned(zone).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => format!("@{seconds}"),
    }
}

// ---- ends ----

/// Said once of `--fast`, when it went on from something.
pub const FAST: &str =
    "bcmr: note: --fast looked at only the last recorded block of what was there; copy -s proves the rest";

/// Said at the first signal.
pub fn stopping(again: Again) -> &'static str {
    match again {
        Again::Resume => "bcmr: stopping; what is recorded stays; once more exits at once",
        _ => "bcmr: stopping, and cleaning up what is half done; once more exits at once",
    }
}

/// What was done, in one line.
///
/// Of its bytes, `resumed` were there before this run: they have no part in the rate.
pub fn summary(
    voice: &Voice,
    verb: Verb,
    dry_run: bool,
    s: &Summary,
    resumed: u64,
    took: Duration,
) -> String {
    voice.line(&tally(verb, dry_run, s, resumed, took))
}

fn tally(verb: Verb, dry_run: bool, s: &Summary, resumed: u64, took: Duration) -> String {
    let mut parts = Vec::new();
    let mut count = |n: u64, one: &str, many: &str| {
        if n > 0 {
            parts.push(format!("{n} {}", if n == 1 { one } else { many }));
        }
    };
    count(s.files, "file", "files");
    count(s.dirs, "directory", "directories");
    count(s.others, "link or special file", "links and special files");
    let what = if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") };
    let would = if dry_run { "would have " } else { "" };
    let mut line = format!("{would}{} {what}", verb.done());
    if s.bytes > 0 {
        line.push_str(&format!(", {}", size(s.bytes)));
    }
    if !dry_run {
        line.push_str(&format!(" in {}", seconds(took)));
        let rate = rate(s.bytes.saturating_sub(resumed), took);
        if rate > 0 {
            line.push_str(&format!(" ({}/s)", size(rate)));
        }
    }
    for (count, done) in [(s.updated, "brought up to date"), (s.deleted, "deleted"), (s.kept, "left alone")] {
        if count > 0 {
            line.push_str(&format!("; {count} {done}"));
        }
    }
    if s.failed > 0 {
        line.push_str(&format!("; {} failed", s.failed));
    }
    line
}

/// Bytes a second; 0 where there is no telling.
pub fn rate(bytes: u64, took: Duration) -> u64 {
    let seconds = took.as_secs_f64();
    if seconds > 0.0 { (bytes as f64 / seconds) as u64 } else { 0 }
}

/// Why a run cannot be told anything meanwhile.
pub fn deaf(e: &Error) -> String {
    format!("bcmr ctl does not reach this run: {}", reason(e))
}

/// What a run with another machine is at, for `ctl`.
pub fn run_status(pid: u32, s: &bcmr_engine::control::Status) -> String {
    let is = if s.paused { "paused" } else { "running" };
    let limit = s.limit.map_or_else(|| "no limit".to_owned(), |rate| format!("limit {}/s", size(rate)));
    // The totals are a lower bound until all was found, and none where nothing counts them.
    let of = |done: u64, found: u64, say: &dyn Fn(u64) -> String| match found > done {
        true => format!("{} of {}", say(done), say(found)),
        false => say(done),
    };
    let items = of(s.items_done, s.items_found, &|n| n.to_string());
    format!("{pid}  {is}, {limit}, {items} items, {}\n", of(s.bytes_done, s.bytes_found, &size))
}

/// What a receipt has beyond the summary, line by line: what was proved, what was there already, what could not be kept.
pub fn receipt(show: &Show, r: &Receipt) -> Vec<String> {
    let mut lines = Vec::new();
    let files = |n: u64| if n == 1 { "1 file".to_owned() } else { format!("{n} files") };
    let from = match r.verify {
        Verify::Off => None,
        Verify::Cached => Some("the page cache"),
        Verify::Direct => Some("the device"),
    };
    // What a move renamed has no bytes that landed, and streams are not read back.
    if let Some(from) = from.filter(|_| r.verified > 0) {
        lines.push(format!("verified: {} read back from {from}, equal to the source", size(r.verified)));
        lines.extend(r.root.map(|root| format!("root hash: {}", hex(&root))));
    }
    let resumed = [r.from_basis, r.from_store, r.from_run].into_iter().fold(r.reused, u64::saturating_sub);
    if resumed > 0 {
        lines.push(format!("reused: {} that an earlier run had copied", size(resumed)));
    }
    // With -v each of these has a line of its own already, from the side that had it.
    let told = show.verbose;
    if let basis @ 1.. = if told { 0 } else { r.from_basis } {
        lines.push(format!("reused: {} of what was there before", size(basis)));
    }
    if let store @ 1.. = if told { 0 } else { r.from_store } {
        lines.push(format!("reused: {} from the store of blocks at the destination", size(store)));
    }
    if let run @ 1.. = if told { 0 } else { r.from_run } {
        lines.push(format!("reused: {} that had come before in this run", size(run)));
    }
    if r.cloned.0 > 0 {
        let (count, bytes) = (files(r.cloned.0), size(r.cloned.1));
        lines.push(format!(
            "cloned: {count}, {bytes}: blocks are shared with the source until one of the two changes"
        ));
    }
    if r.kept > 0 {
        lines.push(format!("skipped: {} left alone, {}", r.kept, why_kept(r.collide)));
    }
    if let Some(excluded @ 1..) = r.excluded {
        let names = if excluded == 1 { "name" } else { "names" };
        lines.push(format!("skipped: {excluded} {names} left out by filters"));
    }
    if let Some((count, example)) = &r.specials {
        let more = if *count == 1 { String::new() } else { format!(" and {} more", count - 1) };
        let what = if *count == 1 { "a special file" } else { "special files" };
        lines.push(format!("skipped: {}{more}, {what}", quoted(example)));
    }
    for loss in &r.lost {
        let more = if loss.count == 1 { String::new() } else { format!(", and of {} more", loss.count - 1) };
        lines.push(format!("not kept: could not {} {}{more}", words::op(loss.op), quoted(&loss.example)));
    }
    lines.extend(r.limit.map(|limit| format!("limited by: {}", limited_by(limit))));
    lines.extend(r.proof.as_ref().map(|proof| format!("proof: {proof}")));
    lines.into_iter().map(|line| show.voice.line(&line)).collect()
}

/// Why names were left alone that are already there.
fn why_kept(collide: Collide) -> &'static str {
    match collide {
        Collide::Keep => "as they were there (--no-clobber)",
        Collide::IfOlder => "as they were there and not older (-u)",
        Collide::IfDifferent => "as they were there with the same size and time (--update=different)",
        Collide::IfContentDiffers => "as they were there with the same content (--checksum)",
        Collide::Ask => "as you said",
        Collide::Replace => "as they were there and the same",
    }
}

/// What a run waited for most.
fn limited_by(limit: Limit) -> &'static str {
    match limit {
        Limit::Reading => "reading",
        Limit::Writing => "writing",
        Limit::Processor => "the processor and memory; no disk was waited for",
        Limit::Verifying => "reading back what landed (-V)",
        Limit::Syncing => "bringing it onto stable storage",
        Limit::Ssh => "ssh",
        Limit::SshOrNetwork => "ssh or the network",
        Limit::NetworkOrFarSsh => "the network, or ssh on the other side",
        Limit::Network => "the network",
        Limit::OtherSide => "the other side's disk",
        Limit::OtherSideOrNetwork => "the network or the other side's disk",
    }
}

/// The command that proves a copy, for a shell; `new_target`: the destination was no directory before it.
pub fn proof(words: &[OsString], new_target: bool) -> String {
    command(words, &[], new_target)
}

fn hex(hash: &[u8; 32]) -> String {
    HEXLOWER.encode(hash)
}

/// What a stopped run leaves, and the command that goes on.
pub fn stopped(show: &Show, new_target: NewTarget, s: &Summary, resumed: u64, took: Duration) -> String {
    let words = match (show.verb, show.again) {
        (Verb::Check, _) => "nothing was changed; to compare again, run",
        (Verb::Sessions, _) => "for the rest, run",
        (_, Again::Resume) => "to go on where it stopped, run",
        (_, Again::WithUpdate) => "what was copied is whole and stays; to go on, run",
        (_, Again::Same | Again::InPlace | Again::WithMerge) => "to go on, run",
    };
    let hint = Hint { words, add: Some(Add::GoOn), made: Made::Maybe };
    let hint = advice(&show.line, Path::new(""), show.again, new_target, &hint);
    show.voice.line(&format!("stopped; {}\nhint: {hint}", tally(show.verb, false, s, resumed, took)))
}

/// The last line of `check`: what was found, and how files that both sides have were compared.
pub fn differences(add: (u64, u64), extra: (u64, u64), differ: u64, s: &Summary) -> String {
    let how = [
        (s.compared.by_time, "by size and time"),
        (s.compared.by_content, "by content"),
        (s.kept, "left alone unread"),
    ];
    let how: Vec<String> = how.iter().filter(|(n, _)| *n > 0).map(|(n, by)| format!("{n} {by}")).collect();
    let found = found(add, extra, differ);
    if how.is_empty() { found } else { format!("{found}; {}", how.join(", ")) }
}

/// The same of a plan's end: what shards have found, no line here tells.
pub fn differences_of_plan(all: u64) -> String {
    format!("{}, with those that the shards have told", counted(all, "difference", "differences"))
}

fn found(add: (u64, u64), extra: (u64, u64), differ: u64) -> String {
    if (add.0, extra.0, differ) == (0, 0, 0) {
        return "no differences".to_owned();
    }
    let side = |(files, bytes): (u64, u64), what: &str| format!("{files} {what} ({})", size(bytes));
    let mut parts = Vec::new();
    if add.0 > 0 {
        parts.push(side(add, "to add"));
    }
    if differ > 0 {
        parts.push(format!("{differ} to replace"));
    }
    if extra.0 > 0 {
        parts.push(side(extra, "only at the destination"));
    }
    parts.join(", ")
}

/// The last line of `check --manifest`; `kept` is how many of its names filters left out.
pub fn unlike_manifest(missing: u64, differ: u64, kept: u64) -> String {
    let found = match (missing, differ, kept) {
        (0, 0, 0) => "everything is as the manifest says".to_owned(),
        (0, 0, _) => "everything else is as the manifest says".to_owned(),
        (n, 0, _) => format!("{n} missing"),
        (0, n, _) => format!("{n} different"),
        (m, n, _) => format!("{m} missing, {n} different"),
    };
    match kept {
        0 => found,
        1 => format!("1 name left out by filters; {found}"),
        n => format!("{n} names left out by filters; {found}"),
    }
}

// ---- figures ----

/// Bytes in powers of 1024: `999 B`, `1.0 KiB`, `31.4 GiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        // What would be printed as 1024.0 belongs to the next unit.
        if value < 1023.95 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}

/// A time still to wait: `0:07`, `12:30`, `1:02:03`.
pub fn clock(left: Duration) -> String {
    let s = left.as_secs();
    match s / 3600 {
        0 => format!("{}:{:02}", s / 60, s % 60),
        h => format!("{h}:{:02}:{:02}", s / 60 % 60, s % 60),
    }
}

/// A time that was taken: `0.12 s`, `12 s`, `12:30`.
fn seconds(took: Duration) -> String {
    match took.as_secs() {
        0..10 => format!("{:.2} s", took.as_secs_f64()),
        10..120 => format!("{} s", took.as_secs()),
        _ => clock(took),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::voice::BCMR;

    use bcmr_engine::event::Compared;

    fn with(codes: &[Code]) -> Summary {
        Summary { failed: codes.len() as u64, codes: codes.to_vec(), ..Summary::default() }
    }

    #[test]
    fn exit_codes() {
        use Code::*;
        for (codes, want) in [
            (&[][..], 0),
            (&[Denied], 1),
            (&[Usage], 1),
            (&[Refused], 8),
            (&[Denied, Refused], 8),
            (&[NoSpace, Refused, Io], 6),
            (&[SourceChanged, NoSpace], 5),
            (&[NotFound, NoSpace, SourceChanged, Mismatch], 4),
            (&[MetadataLost, MetadataIo], 1),
            (&[MetadataNoSpace], 6),
            (&[Lost], 7),
            (&[Denied, ChangedKey], 7),
            (&[Lost, Refused], 8),
            (&[NoPeer], 1),
        ] {
            for verb in [Verb::Copy, Verb::Move, Verb::Remove] {
                assert_eq!(exit_code(&BCMR.exits, verb, &with(codes), None), want, "{codes:?}");
            }
            let check = if codes.is_empty() { 0 } else { 2 };
            assert_eq!(exit_code(&BCMR.exits, Verb::Check, &with(codes), None), check, "{codes:?}");
        }
        // Told as a warning only, yet asked for: still not a success.
        let lost = Summary { codes: vec![MetadataLost], ..Summary::default() };
        assert_eq!(exit_code(&BCMR.exits, Verb::Copy, &lost, None), 1);
        let uncounted = Summary { failed: 1, ..Summary::default() };
        assert_eq!(exit_code(&BCMR.exits, Verb::Copy, &uncounted, None), 1);
    }

    /// docs/json.md lists every code as the program has it, and docs/exit-status.md every status.
    #[test]
    fn codes_are_as_documented() {
        let json = include_str!("../../../../docs/json.md");
        let listed: Vec<&str> = json
            .lines()
            .skip_while(|line| !line.starts_with("| code | status |"))
            .skip(2)
            .take_while(|line| line.starts_with('|'))
            .map(|line| line.rsplitn(2, " | ").last().unwrap())
            .collect();
        let is = |code: &Code| {
            let error = Error::ours(*code, Op::Copy, "", Reason::NoSource);
            let status = exit_code_of(&BCMR.exits, Verb::Copy, &error);
            let retryable = if code.is_retryable() { "yes" } else { "no" };
            format!("| `{}` | {status} | {retryable}", code.name())
        };
        assert_eq!(listed, Code::ALL.iter().map(is).collect::<Vec<_>>());
        let statuses = include_str!("../../../../docs/exit-status.md");
        for line in listed {
            let status = line.split(" | ").nth(1).unwrap();
            assert!(statuses.contains(&format!("\n| {status} | ")), "{status}");
        }
    }

    #[test]
    fn exit_codes_of_check() {
        let differ = Summary { differences: 3, ..Summary::default() };
        assert_eq!(exit_code(&BCMR.exits, Verb::Check, &differ, None), 1);
        let both = Summary { differences: 3, failed: 1, codes: vec![Code::Denied], ..Summary::default() };
        assert_eq!(exit_code(&BCMR.exits, Verb::Check, &both, None), 2);
    }

    #[test]
    fn exit_codes_of_signals() {
        let stopped = Summary { cancelled: true, codes: vec![Code::Mismatch], ..Summary::default() };
        for (signal, want) in [(Some(2), 130), (Some(15), 143), (Some(1), 129), (None, 130)] {
            assert_eq!(exit_code(&BCMR.exits, Verb::Copy, &stopped, signal), want);
            assert_eq!(exit_code(&BCMR.exits, Verb::Check, &stopped, signal), want);
        }
        // It came too late to matter.
        assert_eq!(exit_code(&BCMR.exits, Verb::Copy, &Summary::default(), Some(2)), 0);
    }

    #[test]
    fn exit_codes_before_anything_began() {
        for (code, copy) in [
            (Code::Usage, 2),
            (Code::Refused, 8),
            (Code::NoSpace, 6),
            (Code::Mismatch, 4),
            (Code::SourceChanged, 5),
            (Code::NotDirectory, 1),
            (Code::NotFound, 1),
            (Code::Io, 1),
            (Code::Lost, 7),
            (Code::ConnectionRefused, 7),
            (Code::UnknownHost, 7),
            (Code::Unreachable, 7),
            (Code::NoKey, 7),
            (Code::UnknownKey, 7),
            (Code::ChangedKey, 7),
            (Code::NoPeer, 1),
            (Code::Protocol, 1),
        ] {
            let e = Error::ours(code, Op::Open, "x", Reason::IsDirectory);
            assert_eq!(exit_code_of(&BCMR.exits, Verb::Copy, &e), copy, "{code:?}");
            assert_eq!(exit_code_of(&BCMR.exits, Verb::Check, &e), 2, "{code:?}");
        }
    }

    #[test]
    fn errors_are_told_in_one_line() {
        let os = |n| io::Error::from_raw_os_error(n);
        for (e, want) in [
            (Error::os(Op::Open, "a\nb", os(13)), r"bcmr: cannot open 'a\x0ab': Permission denied"),
            (
                Error::os(Op::Link, "a", os(18)).and(Path::new("b")),
                "bcmr: cannot link 'a' to 'b': Invalid cross-device link",
            ),
            (
                Error::os(Op::RenameTo, "b", os(18)).and(Path::new("a")),
                "bcmr: cannot rename 'a' to 'b': Invalid cross-device link",
            ),
            (
                Error::ours(Code::Refused, Op::Remove, "/", Reason::IsRoot),
                "bcmr: cannot remove '/': it is the root directory",
            ),
            (
                Error::ours(Code::Io, Op::Read, "x", Reason::Said.about("peer said \x1b[2J")),
                r"bcmr: cannot read 'x': peer said \x1b[2J",
            ),
            (
                Error::ours(Code::Usage, Op::ParsePattern, "", Reason::Said.about("bad [")),
                "bcmr: cannot parse pattern: bad [",
            ),
            (Error::os(Op::Write, "x", io::Error::other("odd")), "bcmr: cannot write 'x': odd"),
        ] {
            assert_eq!(error(&BCMR, &e), want);
        }
        let e = Error { note: Some(Reason::Said.about("owner not kept")), ..Error::os(Op::Copy, "x", os(1)) };
        assert_eq!(
            warning(&BCMR, &e),
            "bcmr: warning: cannot copy 'x': owner not kept: Operation not permitted"
        );
    }

    /// What names a plan takes no further options, and does not do a second time what it did.
    #[test]
    fn a_hint_about_a_plan_is_about_the_command_that_made_it() {
        let line = ["b", "sync", "--apply", "p"].map(OsString::from);
        let (verb, again, new_target) = (Verb::Sync, Again::Resume, NewTarget::No);
        let (owners_said, one_worker, at_source, from_plan) = (false, false, false, true);
        let line = &line;
        let typed = Typed { verb, again, line, from_plan, owners_said, one_worker, new_target, at_source };
        for (code, op, want) in [
            (Code::Limit, Op::Open, "or run the command that made the plan with -j1, and apply the new one"),
            (Code::NoSpace, Op::Write, "then run the command that made the plan, and apply the new one"),
        ] {
            let said = typed.advice(&Error::ours(code, op, "x", Reason::Said.about(""))).unwrap();
            assert!(said.ends_with(want), "{said}");
        }
    }

    #[test]
    fn hints() {
        let e = |code, op| Error::ours(code, op, "x", Reason::Said.about(""));
        let typed = |line: &str| -> Vec<OsString> { line.split(' ').map(OsString::from).collect() };
        let of = |verb, again, new, line: &str, e: &Error| {
            let new = if new { NewTarget::Yes } else { NewTarget::No };
            hint(verb, again, e).map(|hint| advice(&typed(line), &e.path, again, new, &hint))
        };
        for (verb, again, new, line, e, want) in [
            (Verb::Copy, Again::Same, false, "b copy s d", e(Code::IsDirectory, Op::Copy), "b copy s d -r"),
            (Verb::Copy, Again::Same, true, "b copy s d", e(Code::IsDirectory, Op::Copy), "b copy s d -r"),
            (Verb::Copy, Again::Same, true, "b cp -- s d", e(Code::IsDirectory, Op::Copy), "b cp -r -- s d"),
            (Verb::Remove, Again::Same, false, "b rm d", e(Code::IsDirectory, Op::Remove), "b rm d -r"),
            (
                Verb::Copy,
                Again::Same,
                false,
                "b copy p d",
                e(Code::Special, Op::Copy),
                "b copy --archive p d",
            ),
            (
                Verb::Copy,
                Again::Same,
                false,
                "b copy p d",
                e(Code::Special, Op::Replace),
                "b copy p d --inplace",
            ),
            (
                Verb::Copy,
                Again::WithUpdate,
                true,
                "b copy -r s d",
                e(Code::NoSpace, Op::Write),
                "b copy -r s d -u -T",
            ),
            (
                Verb::Copy,
                Again::Resume,
                true,
                "b copy -rC s d",
                e(Code::NoSpace, Op::Write),
                "b copy -rC s d -T",
            ),
            (
                Verb::Copy,
                Again::Resume,
                true,
                "b copy -rC s d",
                e(Code::Denied, Op::Unmark),
                "b copy -rC s d -T",
            ),
            (
                Verb::Move,
                Again::WithMerge,
                true,
                "b mv s d",
                e(Code::NoSpace, Op::Write),
                "b mv s d --merge -T",
            ),
            (
                Verb::Copy,
                Again::WithUpdate,
                true,
                "b copy -r s h:d",
                e(Code::Lost, Op::TalkTo),
                "b copy -r s h:d -C -T",
            ),
            (
                Verb::Copy,
                Again::InPlace,
                true,
                "b copy -a s h:d",
                e(Code::Lost, Op::TalkTo),
                "b copy -a s h:d -T",
            ),
            (
                Verb::Copy,
                Again::Resume,
                false,
                "b copy -rC h:s d",
                e(Code::Lost, Op::TalkTo),
                "b copy -rC h:s d",
            ),
            (
                Verb::Copy,
                Again::Same,
                false,
                "b copy s h:d",
                e(Code::NoPeer, Op::UseBcmrOn),
                "b copy s h:d --bootstrap",
            ),
            (
                Verb::Copy,
                Again::InPlace,
                false,
                "b copy --inplace s d",
                e(Code::SourceChanged, Op::Copy),
                "b copy --inplace s d",
            ),
            (
                Verb::Copy,
                Again::WithUpdate,
                false,
                "b copy --archive s d",
                e(Code::MetadataLost, Op::KeepEveryOwner),
                "b copy --archive s d --no-preserve=ownership",
            ),
        ] {
            let said = of(verb, again, new, line, &e).unwrap_or_else(|| panic!("{line}: {e:?}"));
            assert!(said.ends_with(&format!("un: {want}")), "{line}: {said}");
        }
        for none in [e(Code::Denied, Op::Open), e(Code::NoPeer, Op::PutBcmrOn)] {
            assert_eq!(of(Verb::Copy, Again::Same, false, "b copy s d", &none), None);
        }
        // What is written in place has appeared.
        for code in [Code::SourceChanged, Code::Mismatch, Code::NoSpace] {
            for (again, appears) in [(Again::Resume, false), (Again::Same, false), (Again::InPlace, true)] {
                let said = of(Verb::Copy, again, false, "b copy s d", &e(code, Op::Copy)).unwrap_or_default();
                assert_eq!(!said.contains("appear"), appears, "{code:?} {again:?}: {said}");
            }
        }
        for code in [
            Code::ConnectionRefused,
            Code::UnknownHost,
            Code::Unreachable,
            Code::NoKey,
            Code::UnknownKey,
            Code::ChangedKey,
            Code::Lost,
        ] {
            for verb in [Verb::Copy, Verb::Check, Verb::Ls, Verb::Doctor] {
                assert!(hint(verb, Again::Same, &e(code, Op::ConnectTo)).is_some(), "{verb:?} {code:?}");
            }
        }
        let said = of(Verb::Ls, Again::Same, false, "b ls me@h:d", &e(Code::Protocol, Op::TalkTo))
            .unwrap_or_default();
        assert!(said.contains("bcmr doctor me@h "), "{said}");
    }

    /// What a shell makes of it is what was typed.
    #[test]
    fn words_for_a_shell() {
        use std::os::unix::ffi::OsStrExt;
        for (word, want) in [
            (&b"a/b.c"[..], "a/b.c"),
            (b"", "''"),
            (b"a b", "'a b'"),
            (b"it's $x", "'it'\\''s $x'"),
            (b"a\n1", "$'a\\0121'"),
            (b"\xff'\\", "$'\\377\\'\\\\'"),
        ] {
            assert_eq!(shell_word(OsStr::from_bytes(word)), want);
        }
    }

    #[test]
    fn hash_lines() {
        let line =
            |name: &[u8], tty| String::from_utf8_lossy(&hash_line(&[0xab; 32], name, tty)).into_owned();
        let hex = "ab".repeat(32);
        assert_eq!(line(b"a b", false), format!("{hex}  a b"));
        assert_eq!(line(b"a\nb\\", false), format!("\\{hex}  a\\nb\\\\"));
        assert_eq!(line(b"a\x1b\nb", true), format!("{hex}  a\\x1b\\x0ab"));
        assert_eq!(hash_line(&[0; 32], b"\xff", false).last(), Some(&0xff));
    }

    #[test]
    fn moments() {
        for (sec, want) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_795_250_386, "2026-11-21 08:39:46"),
            (-1, "1969-12-31 23:59:59"),
            (4_102_444_800, "2100-01-01 00:00:00"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(moment(Time { sec, nsec: 0 }), want);
        }
        // What another machine claims may be any number.
        for sec in [i64::MIN, i64::MAX] {
            assert!(!moment(Time { sec, nsec: 0 }).is_empty());
        }
    }

    #[test]
    fn modes() {
        let of = |kind, mode_| {
            let mtime = Time { sec: 0, nsec: 5 };
            mode(&Listing {
                kind,
                name: b"x".to_vec(),
                mode: mode_,
                uid: 0,
                gid: 0,
                size: 0,
                mtime,
                link: Vec::new(),
            })
        };
        assert_eq!(of(Kind::File, 0o644), "-rw-r--r--");
        assert_eq!(of(Kind::Dir, 0o1777), "drwxrwxrwt");
        assert_eq!(of(Kind::File, 0o6711), "-rws--s--x");
        assert_eq!(of(Kind::Link, 0o7000), "l--S--S--T");
    }

    #[test]
    fn what_another_machine_says_is_one_safe_line() {
        assert_eq!(one_line("a\n  b\r\n\n\x1b[2Jc"), "a b \\x1b[2Jc");
        let long = one_line(&"\u{202e}".repeat(1000));
        assert!(long.chars().count() == 2003 && long.ends_with("..."), "{}", long.len());
        assert_eq!(finding(false, "bcmr\x1b", "not\nthere"), "no   bcmr\\x1b: not there\n");
    }

    proptest::proptest! {
        /// V8: no part of an error reaches a person as it came.
        #[test]
        fn nothing_in_an_error_is_told_raw(
            path in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..30),
            other in proptest::option::of(proptest::collection::vec(proptest::prelude::any::<u8>(), 0..30)),
            note in proptest::option::of(".*"),
            source in proptest::option::of(".*"),
            op in proptest::sample::select(vec![Op::Open, Op::RenameTo, Op::Compare, Op::Unknown(60_000)]),
        ) {
            use std::os::unix::ffi::OsStringExt;
            let of = |bytes| std::path::PathBuf::from(std::ffi::OsString::from_vec(bytes));
            let note = note.map(bcmr_engine::error::Note::from);
            let source = source.map(io::Error::other);
            let e = Error { code: Code::Protocol, op, path: of(path), other: other.map(of), note, source };
            for line in [error(&BCMR, &e), warning(&BCMR, &e)] {
                proptest::prop_assert!(!line.chars().any(crate::names::is_unsafe), "{line:?}");
            }
        }
    }

    #[test]
    fn items() {
        let (a, b, none) = (Path::new("a"), Path::new("b"), Path::new(""));
        for (dry, action, src, dst, want) in [
            (false, Action::Copied, a, b, "'a' -> 'b'"),
            (true, Action::Copied, a, b, "would copy 'a' -> 'b'"),
            (true, Action::MadeDir, a, b, "would make directory 'b'"),
            (false, Action::Renamed, a, b, "renamed 'a' -> 'b'"),
            (false, Action::Removed, none, b, "removed 'b'"),
            (true, Action::Removed, none, b, "would remove 'b'"),
            (false, Action::Kept, a, b, "keep 'b'"),
            (false, Action::Excluded, a, none, "exclude 'a'"),
        ] {
            assert_eq!(item(dry, action, src, dst), want);
        }
    }

    #[test]
    fn what_went_on() {
        let gone = Reason::UnfinishedIsGone;
        for (bytes, restarted, repaired, want) in [
            (5 << 20, None, 0, "bcmr: 'd' went on at 5.0 MiB"),
            (5 << 20, None, 1, "bcmr: 'd' went on at 5.0 MiB; 1 damaged block was copied again"),
            (5 << 20, None, 2, "bcmr: 'd' went on at 5.0 MiB; 2 damaged blocks were copied again"),
            (5 << 20, Some(gone), 0, "bcmr: 'd' went on at 5.0 MiB: the unfinished file is gone"),
            (0, Some(gone), 0, "bcmr: 'd' started over: the unfinished file is gone"),
        ] {
            assert_eq!(resumed(&BCMR, Path::new("d"), bytes, restarted, repaired), want);
        }
    }

    #[test]
    fn what_is_unfinished() {
        let found = |what, path: &str, recorded, size, last| Unfinished {
            what,
            path: path.into(),
            recorded,
            size,
            last: bcmr_engine::event::Time { sec: last, nsec: 0 },
            running: false,
            removed: false,
        };
        let list = [
            found(What::File, "a/big\x1b", 5 << 20, 20 << 20, 40),
            Unfinished { running: true, ..found(What::File, "b", 0, 0, -400_000) },
            Unfinished { removed: true, ..found(What::Stage, ".bcmr-1.stage", 0, 7, 500) },
            found(What::Tree, "tree", 0, 0, -7300),
        ];
        let want = [
            "     RECORDED        OF     AGE  STATE    NAME",
            "5.0 MiB (25%)  20.0 MiB   1 min  stopped  'a/big\\x1b'",
            "            -         -  4 days  running  'b'",
            "            -       7 B     0 s  removed  '.bcmr-1.stage'",
            "            -         -     2 h  stopped  'tree' (directory)",
            "",
        ];
        assert_eq!(unfinished(&list, 100), want.join("\n"));
    }

    #[test]
    fn figures() {
        for (bytes, want) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1024 * 1024 - 1, "1.0 MiB"),
            (5 << 30, "5.0 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(size(bytes), want);
        }
        assert_eq!(clock(Duration::from_secs(7)), "0:07");
        assert_eq!(clock(Duration::from_secs(3723)), "1:02:03");
    }

    #[test]
    fn ends() {
        let s = Summary { files: 1, dirs: 2, bytes: 2048, failed: 1, kept: 3, ..Summary::default() };
        let took = Duration::from_secs(2);
        assert_eq!(
            summary(&BCMR, Verb::Copy, false, &s, 0, took),
            "bcmr: copied 1 file, 2 directories, 2.0 KiB in 2.00 s (1.0 KiB/s); 3 left alone; 1 failed"
        );
        assert!(summary(&BCMR, Verb::Copy, false, &s, 1024, took).contains("2.0 KiB in 2.00 s (512 B/s)"));
        assert!(summary(&BCMR, Verb::Copy, false, &s, 2048, took).contains("2.0 KiB in 2.00 s; 3"));
        assert_eq!(
            summary(&BCMR, Verb::Remove, true, &Summary::default(), 0, took),
            "bcmr: would have removed nothing"
        );
        let line = ["bcmr", "copy", "-r", "s", "d"].map(OsString::from).to_vec();
        assert_eq!(command(&line, going_on(Again::WithUpdate, true), true), "bcmr copy -r s d -u -T");
        assert_eq!(command(&line, going_on(Again::WithUpdate, false), false), "bcmr copy -r s d");
        assert_eq!(command(&line, going_on(Again::Resume, false), false), "bcmr copy -r s d");
        let s = Summary::default();
        assert_eq!(differences((0, 0), (0, 0), 0, &s), "no differences");
        assert_eq!(
            differences((2, 10), (1, 0), 4, &s),
            "2 to add (10 B), 4 to replace, 1 only at the destination (0 B)"
        );
        let s = Summary { compared: Compared { by_time: 21, by_content: 2 }, ..s };
        assert_eq!(differences((0, 0), (0, 0), 0, &s), "no differences; 21 by size and time, 2 by content");
        let s = Summary { kept: 3, compared: Compared::default(), ..s };
        assert_eq!(differences((0, 0), (0, 0), 1, &s), "1 to replace; 3 left alone unread");
    }

    #[test]
    fn what_clap_quotes_is_escaped() {
        assert_eq!(
            clap_error(&BCMR, "error: bad '\x1b[2J'\n\nUsage: x\n"),
            "bcmr: bad '\\x1b[2J'\n\nUsage: x\n"
        );
    }
}
