//! The names of a list (`--files-from`) as a client reads them, keeps them for further attempts, and sends them.
//!
//! Must not know what is at any of them.

use super::talk::send;
use crate::awaited::{Awaited, is_stop};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Cancel, Event, Summary, Watch, note};
use crate::policy::NameList;
use crate::transport::Peer;
use bcmr_wire::handshake::wide;
use bcmr_wire::limits;
use bcmr_wire::message::Message;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes of a list of names that go in one message.
const NAMES_BYTES: usize = 8 << 20;

/// Names of a list.
pub(super) enum RequestNames {
    /// There is no list.
    None,
    /// Read while they are sent.
    Once(NameList),
    /// Needed more than once, or in one message. Not read before there is a connection: where no bcmr answers, the
    /// fallback over scp reads them.
    Kept {
        unread: Option<NameList>,
        names: Vec<Vec<u8>>,
        /// Those that no file has, which were told.
        refused: u64,
    },
}

impl RequestNames {
    pub(super) fn kept(list: NameList) -> RequestNames {
        RequestNames::Kept { unread: Some(list), names: Vec::new(), refused: 0 }
    }

    /// What is kept, read now if it was not before.
    pub(super) fn read(&mut self, watch: Watch<'_>) -> Result<Option<&[Vec<u8>]>> {
        let RequestNames::Kept { unread, names, refused } = self else { return Ok(None) };
        if let Some(list) = unread.take() {
            *names = read_names(list, watch.cancel)?;
            // One that cannot be said does not keep the others back.
            names.retain(|name| {
                let fits = name.len() <= limits::PATH_BYTES_MAX && !name.contains(&0);
                if !fits {
                    let note = Reason::NoSuchName;
                    let path = Path::new(OsStr::from_bytes(name));
                    watch.front.event(Event::Failed(Error::ours(Code::Refused, Op::Copy, path, note)));
                    *refused += 1;
                }
                fits
            });
        }
        Ok(Some(names))
    }

    /// What was done, with what was not tried.
    pub(super) fn add_refused_to(&self, summary: Summary) -> Summary {
        let RequestNames::Kept { refused: refused @ 1.., .. } = self else { return summary };
        let mut summary = summary;
        summary.failed += refused;
        note(&mut summary.codes, Code::Refused);
        summary
    }
}

/// Sends the names of a list before the request that they belong to, but for so many as fit into the request itself: those
/// come back.
pub(super) fn send_all_but_last<'a>(peer: &Peer, names: &'a [Vec<u8>]) -> Result<Vec<&'a [u8]>> {
    let mut rest = names.iter().map(Vec::as_slice).peekable();
    loop {
        let mut bytes = 0;
        let mut part = Vec::new();
        while let Some(name) = rest.next_if(|name| bytes + name.len() < NAMES_BYTES) {
            bytes += name.len() + 1;
            part.push(name);
        }
        if rest.peek().is_none() {
            return Ok(part);
        }
        if !peer.agreed.features.has_wide(wide::LISTS) {
            let note = Reason::ListOver8MiB;
            return Err(Error::ours(Code::Limit, Op::SendListOfNamesTo, &peer.name, note));
        }
        send(peer, &Message::Names { names: part })?;
    }
}

/// The names of a list, all of them: the side that gets them keeps them.
fn read_names(list: NameList, cancel: &Cancel) -> Result<Vec<Vec<u8>>> {
    let mut bytes = Vec::new();
    let NameList { mut reader, separator } = list;
    let most = limits::NAMES_BYTES_MAX;
    let reader = Awaited { reader: &mut *reader, cancel };
    reader.take(most as u64).read_to_end(&mut bytes).map_err(|e| match is_stop(&e) {
        true => Error::ours(Code::Interrupted, Op::ReadListOfNames, "", Reason::Interrupted),
        false => Error::os(Op::ReadListOfNames, "", e),
    })?;
    let too_much = |note: Reason| Err(Error::ours(Code::Limit, Op::ReadListOfNames, "", note));
    // With a byte for each name, as its separator is one: what is shorter is also less over there.
    if bytes.len() == most {
        return too_much(Reason::ListOver32MiB);
    }
    let names = bytes.split(|b| *b == separator).map(|name| match name.strip_suffix(b"\r") {
        Some(name) if separator == b'\n' => name,
        _ => name,
    });
    let names: Vec<Vec<u8>> = names.filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect();
    if names.len() > limits::NAMES_MAX {
        return too_much(Reason::ListOverMillion);
    }
    Ok(names)
}
