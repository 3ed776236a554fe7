//! What a client asks without copying: one path, a directory's names, a hash, a size, and whether a copy would work.
//!
//! Must not know how any answer is shown.

use super::features::{OURS, offered_by_receiver};
use super::talk::{await_answer, error_there, no_stream, send, send_frames, split_by_greeting, unexpected};
use crate::alter::OwnersBy;
use crate::error::{Code, Error, Result};
use crate::event::Cancel;
use crate::peer::incoming::kind_of;
use crate::policy::FilterSpec;
use crate::remote::{Address, Way};
use crate::transport::ssh::LinkLoad;
use crate::transport::{self, Terms};
use crate::verbs::look::{Listing, Usage};
use bcmr_wire::handshake::{Features, wide};
use bcmr_wire::message::{self, Message};
use fastcopy::meta::Time;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// One thing that was looked at on the way to another machine.
#[derive(Debug)]
pub struct Finding {
    /// What a copy needs of it is there.
    pub ok: bool,
    /// What was looked at, in a word or two.
    pub what: &'static str,
    /// What was found.
    pub found: OnTheWay,
}

/// What was found on the way to another machine; may hold text of that machine.
#[derive(Debug)]
pub enum OnTheWay {
    /// There is a way to this host.
    Reaches(String),
    /// What answers there calls itself so.
    Agent(String),
    /// What both sides can.
    Can(Vec<&'static str>),
    /// It did not work.
    Failed(Error),
}

/// Asks one thing of a bcmr over there and hands every answer to `each` until it says that it was the last.
fn ask(
    address: &Address,
    way: &Way,
    question: impl FnOnce(&[u8]) -> Message<'_>,
    mut each: impl FnMut(Message<'_>) -> Result<bool>,
) -> Result<()> {
    let terms = Terms::new(OURS, Features { caps: 0, wide: wide::TREES });
    let question = transport::frames_of(&question(address.path.as_os_str().as_bytes()))?;
    let (behind, later) = split_by_greeting(std::slice::from_ref(address), question);
    let peer = transport::connect(address, way, LinkLoad::Light, terms, &behind, &Cancel::new())?;
    send_frames(&peer, later)?;
    let result = loop {
        let frame = match peer.streams.first().map(|s| s.inbox.recv()).transpose().map(Option::flatten) {
            Ok(Some(frame)) => frame,
            Ok(None) => break Err(no_stream(address)),
            Err(e) => break Err(e),
        };
        match frame.message() {
            Ok(Message::Error(trouble)) => break Err(error_there(address, &trouble)),
            Ok(message) => match each(message) {
                Ok(true) => break Ok(()),
                Ok(false) => {}
                Err(e) => break Err(e),
            },
            Err(e) => break Err(e),
        }
    };
    match result {
        Ok(()) => peer.finish().map(drop),
        Err(e) => {
            peer.abort();
            Err(e)
        }
    }
}

/// What an entry says, for people.
fn listing(entry: &message::Entry<'_>) -> Listing {
    Listing {
        kind: kind_of(entry.kind),
        name: entry.name.to_vec(),
        mode: entry.mode,
        uid: entry.uid,
        gid: entry.gid,
        size: entry.size,
        mtime: Time { sec: entry.mtime.sec, nsec: entry.mtime.nsec },
        link: entry.link.to_vec(),
    }
}

/// What an address names; through a symbolic link with `follow`.
///
/// # Errors
/// As [`put`](super::put), or the path cannot be looked at.
pub fn stat(address: &Address, way: &Way, follow: bool) -> Result<Listing> {
    let mut found = None;
    ask(
        address,
        way,
        |path| Message::Stat { path, follow },
        |message| match message {
            Message::Info(entry) => {
                found = Some(listing(&entry));
                Ok(true)
            }
            _ => Err(unexpected(address)),
        },
    )?;
    found.ok_or_else(|| unexpected(address))
}

/// The names in a directory, in no order, until `each` says no.
///
/// # Errors
/// As [`stat`]; [`Code::NotDirectory`] when it is none.
pub fn list(address: &Address, way: &Way, each: &mut dyn FnMut(Listing) -> bool) -> Result<()> {
    let mut wanted = true;
    ask(
        address,
        way,
        |path| Message::List { path },
        |message| match message {
            Message::Page { entries } => {
                for entry in &entries {
                    wanted = wanted && each(listing(entry));
                }
                Ok(!wanted)
            }
            Message::Done => Ok(true),
            _ => Err(unexpected(address)),
        },
    )
}

/// The BLAKE3 of a regular file, computed there.
///
/// # Errors
/// As [`stat`].
pub fn hash(address: &Address, way: &Way) -> Result<[u8; 32]> {
    let mut found = None;
    ask(
        address,
        way,
        |path| Message::Hash { path },
        |message| match message {
            Message::Ok { hash: Some(hash) } => {
                found = Some(hash);
                Ok(true)
            }
            _ => Err(unexpected(address)),
        },
    )?;
    found.ok_or_else(|| unexpected(address))
}

/// How [`remove`] goes about it.
#[derive(Clone, Copy, Debug)]
pub struct RemoveHow {
    /// A directory goes with what is in it.
    pub recursive: bool,
    /// An empty directory goes.
    pub empty_dirs: bool,
    /// What is not there is no error.
    pub force: bool,
    /// Other file systems below are left alone.
    pub one_file_system: bool,
}

/// Removes what is at an address. What could not be removed goes to `failed`. Files and directories that went come back.
///
/// # Errors
/// As [`stat`], or the bcmr there does not remove.
pub fn remove(
    address: &Address,
    way: &Way,
    how: RemoveHow,
    failed: &mut dyn FnMut(Error),
) -> Result<(u64, u64)> {
    use bcmr_wire::policy::remove as flag;
    let set = [
        (how.recursive, flag::RECURSIVE),
        (how.empty_dirs, flag::EMPTY_DIRS),
        (how.force, flag::FORCE),
        (!how.one_file_system, flag::CROSS_FILE_SYSTEMS),
    ];
    let flags = set.iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag);
    let required = Features { caps: 0, wide: wide::TREES | wide::REMOVE };
    let peer =
        transport::connect(address, way, LinkLoad::Light, Terms::new(OURS, required), &[], &Cancel::new())?;
    send(&peer, &Message::Remove { path: address.path.as_os_str().as_bytes(), flags })?;
    let frame = await_answer(&peer, &Cancel::new())?;
    let gone = match frame.message()? {
        Message::Used { files, dirs, unreadable, .. } => {
            for trouble in &unreadable {
                failed(error_there(address, trouble));
            }
            Ok((files, dirs))
        }
        Message::Error(trouble) => Err(error_there(address, &trouble)),
        _ => Err(unexpected(address)),
    };
    drop(frame);
    match gone {
        Ok(gone) => peer.finish().map(|_| gone),
        Err(e) => {
            peer.abort();
            Err(e)
        }
    }
}

/// Makes a directory; with `parents` those above it that are missing too, and one that is there is none that is in the way.
///
/// # Errors
/// As [`stat`], or it cannot be made.
pub fn make_directory(address: &Address, way: &Way, parents: bool) -> Result<()> {
    let terms = Terms::new(OURS, Features { caps: 0, wide: wide::TREES });
    let peer = transport::connect(address, way, LinkLoad::Light, terms, &[], &Cancel::new())?;
    let path = address.path.as_path();
    let mut above: Vec<&Path> = if parents { path.ancestors().skip(1).collect() } else { Vec::new() };
    above.retain(|path| !path.as_os_str().is_empty() && path.parent().is_some());
    above.reverse();
    let asked = |message: &Message<'_>| {
        send(&peer, message)?;
        let frame = await_answer(&peer, &Cancel::new())?;
        match frame.message()? {
            Message::Ok { .. } => Ok(None),
            Message::Info(entry) => Ok(Some(entry.kind)),
            Message::Error(trouble) => Err(error_there(address, &trouble)),
            _ => Err(unexpected(address)),
        }
    };
    for path in above {
        // What is there is there, and what is wrong with one is wrong with those in it.
        drop(asked(&Message::Mkdir { path: path.as_os_str().as_bytes(), mode: 0o777 }));
    }
    let path = path.as_os_str().as_bytes();
    let made = match asked(&Message::Mkdir { path, mode: 0o777 }) {
        Err(e) if parents && e.code == Code::InTheWay => {
            match asked(&Message::Stat { path, follow: true })? {
                Some(message::Kind::Dir) => Ok(()),
                _ => Err(e),
            }
        }
        other => other.map(drop),
    };
    match made {
        Ok(()) => peer.finish().map(drop),
        Err(e) => {
            peer.abort();
            Err(e)
        }
    }
}

/// What is at an address and below it, as far as the filter takes it: by size, which is all of it that travels. What could
/// not be looked at there goes to `failed`.
///
/// # Errors
/// As [`stat`].
pub fn usage(
    address: &Address,
    way: &Way,
    filter: &FilterSpec,
    failed: &mut dyn FnMut(Error),
) -> Result<Usage> {
    let mut found = None;
    ask(
        address,
        way,
        |path| Message::Usage { path, numbers: filter.numbers() },
        |message| match message {
            Message::Used { files, dirs, bytes, allocated, unreadable } => {
                for trouble in &unreadable {
                    failed(error_there(address, trouble));
                }
                found = Some(Usage { files, dirs, bytes, allocated });
                Ok(true)
            }
            _ => Err(unexpected(address)),
        },
    )?;
    found.ok_or_else(|| unexpected(address))
}

/// What stands on the way to a machine. When every finding is `ok`, a copy goes from bcmr to bcmr.
#[must_use]
pub fn doctor(address: &Address, way: &Way) -> Vec<Finding> {
    let ok = |what, found| Finding { ok: true, what, found };
    // What a copy offers, so that what both can is what a copy will have.
    let terms = Terms::new(offered_by_receiver(way, OwnersBy::Name, true), Features::NONE);
    match transport::connect(address, way, LinkLoad::Light, terms, &[], &Cancel::new()) {
        Ok(peer) => {
            let agreed = peer.agreed.features;
            let mut findings = vec![
                ok("ssh", OnTheWay::Reaches(address.host.clone())),
                ok("bcmr", OnTheWay::Agent(peer.agreed.agent.clone())),
                Finding {
                    ok: agreed.has_wide(wide::TREES),
                    what: "protocol",
                    found: OnTheWay::Can(agreed.names().collect()),
                },
            ];
            if let Err(e) = peer.finish() {
                findings.push(Finding { ok: false, what: "end", found: OnTheWay::Failed(e) });
            }
            findings
        }
        Err(e) => {
            let what = if e.code == Code::NoPeer { "bcmr" } else { "ssh" };
            vec![Finding { ok: false, what, found: OnTheWay::Failed(e) }]
        }
    }
}
