//! A client that has a receipt on another machine undone there.
//!
//! Must not know what a receipt says, nor what becomes of a name.

use super::events::{ClientObserver, summary_of};
use super::features::OURS;
use super::talk::{await_answer, error_there, prefix, send, shown_path};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Action, Compared, Event, Summary, Watch};
use crate::remote::{Address, Way};
use crate::sender::out::{Counted, SendObserver};
use crate::transport::ssh::LinkLoad;
use crate::transport::{self, Peer, Terms};
use bcmr_wire::handshake::{Features, wide};
use bcmr_wire::message::{self, Message};
use bcmr_wire::policy::undo as flag;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

/// Undoes there what the receipt at an address says; with `dry_run` it only says what it would do.
///
/// # Errors
/// As [`stat`](super::stat), or nothing could be begun: it is no receipt, or the bcmr there does not undo.
pub fn undo(receipt: &Address, way: &Way, dry_run: bool, watch: Watch<'_>) -> Result<Summary> {
    let required = Features { caps: 0, wide: wide::TREES | wide::UNDO };
    let terms = Terms::new(OURS, required);
    let peer = transport::connect(receipt, way, LinkLoad::Light, terms, &[], watch.cancel)?;
    watch.front.lend_terminal(false);
    match undone(&peer, receipt, dry_run, watch) {
        Ok(summary) => peer.finish().map(|_| summary),
        Err(e) => {
            peer.abort();
            Err(e)
        }
    }
}

fn undone(peer: &Peer, receipt: &Address, dry_run: bool, watch: Watch<'_>) -> Result<Summary> {
    let set = [(dry_run, flag::DRY_RUN), (watch.items, flag::ITEMS)];
    let flags = set.iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag);
    send(peer, &Message::Undo { path: receipt.path.as_os_str().as_bytes(), flags })?;
    let observer = ClientObserver {
        watch,
        prefix: prefix(receipt),
        own_name: PathBuf::new(),
        manifest: None,
        tells_hashes: false,
        unwritten: AtomicU64::new(0),
        compares: false,
        untold: false,
        compared: Mutex::new(Compared::default()),
        source_prefix: String::new(),
        once_more: std::sync::Arc::default(),
    };
    let mut gone = (0, 0);
    loop {
        let frame = await_answer(peer, watch.cancel)?;
        match frame.message()? {
            // What is kept is there as well.
            Message::Report(message::Event::Item { action: RENAMED, src, dst, bytes }) => {
                let there = |path| shown_path(receipt, Path::new(OsStr::from_bytes(path)));
                let (src, dst) = (there(src), there(dst));
                watch.front.event(Event::Item { action: Action::Renamed, src, dst, bytes });
            }
            Message::Report(event) => observer.report(&event),
            Message::Gone { deleted, updated } => gone = (deleted, updated),
            Message::Summary { counts, codes, cancelled } => {
                return Ok(summary_of(&Counted { counts, codes, cancelled, gone }));
            }
            Message::Error(trouble) => return Err(error_there(receipt, &trouble)),
            _ => return Err(Error::ours(Code::Protocol, Op::TalkTo, &receipt.host, Reason::AnswerToAnother)),
        }
    }
}

/// [`Action::Renamed`] as it travels.
const RENAMED: u8 = 5;
