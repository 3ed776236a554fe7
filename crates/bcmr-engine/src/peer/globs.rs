//! Names on another machine that match a pattern: it lists directories, and what matches is decided here. No shell takes part.
//!
//! Must not know what is done with the names. A path that is there under this very name means itself, whatever is in it.

use super::features::OURS;
use super::talk::{ask_info, await_answer, error_there, send, shown_path, unexpected};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::Cancel;
use crate::remote::{Address, Way};
use crate::transport::ssh::LinkLoad;
use crate::transport::{self, Peer, Terms};
use bcmr_wire::handshake::{Features, wide};
use bcmr_wire::limits::OPERANDS_MAX;
use bcmr_wire::message::Message;
use globset::{GlobBuilder, GlobMatcher};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What addresses stand for: those without a pattern for themselves, the others for what is there and matches, in the order of
/// names. Nothing is asked where there is no pattern. All are on one machine.
///
/// # Errors
/// As a copy from there; a pattern that nothing matches is [`Code::NotFound`].
pub fn matching(addresses: Vec<Address>, way: &Way, cancel: &Cancel) -> Result<Vec<Address>> {
    let is_pattern = |address: &&Address| is_pattern(address.path.as_os_str().as_bytes());
    let Some(first) = addresses.iter().find(is_pattern) else { return Ok(addresses) };
    let terms = Terms::new(OURS, Features { caps: 0, wide: wide::TREES });
    let peer = transport::connect(first, way, LinkLoad::Light, terms, &[], cancel)?;
    let asking = Asking { peer: &peer, cancel };
    let mut found = Vec::new();
    let looked = addresses.into_iter().try_for_each(|address| {
        let paths = asking.named_by(&address)?;
        found.extend(paths.into_iter().map(|path| Address { path, ..address.clone() }));
        asking.few(&address, found.len())
    });
    match looked {
        Ok(()) => peer.finish().map(|_| found),
        Err(e) => {
            peer.abort();
            Err(e)
        }
    }
}

/// Whether a path may mean others.
fn is_pattern(path: &[u8]) -> bool {
    path.iter().any(|b| b"*?[".contains(b))
}

/// One component of a pattern.
fn matcher(component: &[u8]) -> Option<GlobMatcher> {
    let text = std::str::from_utf8(component).ok().filter(|_| is_pattern(component))?;
    // One that does not parse, as `[` does not, is a name.
    Some(
        GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build().ok()?.compile_matcher(),
    )
}

/// As shells do it: a name that begins with a dot is meant only by a pattern that does.
fn is_meant(pattern: &GlobMatcher, name: &[u8]) -> bool {
    let hidden = name.starts_with(b".") && !pattern.glob().glob().starts_with('.');
    !hidden && pattern.is_match(OsStr::from_bytes(name))
}

struct Asking<'a> {
    peer: &'a Peer,
    cancel: &'a Cancel,
}

impl Asking<'_> {
    fn named_by(&self, address: &Address) -> Result<Vec<PathBuf>> {
        let path = address.path.as_os_str().as_bytes();
        if !is_pattern(path) || self.is_there(address, path)? {
            return Ok(vec![address.path.clone()]);
        }
        // `found` are all that match up to a component; `doubtful`, whether each is known to be there.
        let (mut found, mut doubtful, mut failed) = (vec![Vec::new()], false, None);
        for (index, component) in path.split(|b| *b == b'/').enumerate() {
            let Some(pattern) = matcher(component) else {
                for above in &mut found {
                    if index > 0 {
                        above.push(b'/');
                    }
                    above.extend_from_slice(component);
                }
                doubtful = true;
                continue;
            };
            let mut below = Vec::new();
            for above in &found {
                match self.names_in(address, above, index, &pattern) {
                    Ok(names) => below.extend(names),
                    // It is no directory, or may not be looked into: what is in others may match.
                    Err(e) if !e.code.is_of_connection() && e.code != Code::Interrupted => {
                        failed.get_or_insert(e);
                    }
                    Err(e) => return Err(e),
                }
                self.few(address, below.len())?;
            }
            (found, doubtful) = (below, false);
        }
        let mut there = Vec::new();
        for path in found {
            if !doubtful || self.is_there(address, &path)? {
                there.push(PathBuf::from(OsStr::from_bytes(&path)));
            }
        }
        there.sort();
        let none =
            || Error::ours(Code::NotFound, Op::Stat, shown_path(address, &address.path), Reason::NoneMatches);
        if there.is_empty() {
            return Err(failed
                .filter(|e| e.code != Code::NotDirectory && e.code != Code::NotFound)
                .unwrap_or_else(none));
        }
        Ok(there)
    }

    /// What a directory has that matches, as paths.
    fn names_in(
        &self,
        address: &Address,
        above: &[u8],
        index: usize,
        pattern: &GlobMatcher,
    ) -> Result<Vec<Vec<u8>>> {
        // Before the first slash of an absolute path there is nothing, and below it is the root.
        let dir = match (above, index) {
            ([], 0) => &b"."[..],
            ([], _) => b"/",
            (above, _) => above,
        };
        send(self.peer, &Message::List { path: dir })?;
        let mut names = Vec::new();
        loop {
            let frame = await_answer(self.peer, self.cancel)?;
            match frame.message()? {
                Message::Page { entries } => {
                    for entry in entries.iter().filter(|entry| is_meant(pattern, entry.name)) {
                        let prefix = if index == 0 { &b""[..] } else { above };
                        let slash = if index == 0 { &b""[..] } else { b"/" };
                        names.push([prefix, slash, entry.name].concat());
                    }
                    self.few(address, names.len())?;
                }
                Message::Done => return Ok(names),
                Message::Error(trouble) => return Err(error_there(address, &trouble)),
                _ => return Err(unexpected(address)),
            }
        }
    }

    fn is_there(&self, address: &Address, path: &[u8]) -> Result<bool> {
        let question = Message::Stat { path, follow: false };
        match ask_info(self.peer, address, &question, self.cancel, |_| Ok(true)) {
            Err(e) if matches!(e.code, Code::NotFound | Code::NotDirectory) => Ok(false),
            other => other,
        }
    }

    /// No more than can be asked for at once.
    fn few(&self, address: &Address, count: usize) -> Result<()> {
        if count <= OPERANDS_MAX {
            return Ok(());
        }
        let shown = shown_path(address, Path::new(&address.path));
        Err(Error::ours(Code::Limit, Op::Stat, shown, Reason::TooManyNames))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_shells_mean() {
        for (pattern, name, meant) in [
            ("*.log", &b"a.log"[..], true),
            ("*.log", b".log", false),
            ("*", b"a", true),
            ("*", b".a", false),
            (".*", b".a", true),
            ("a?c", b"abc", true),
            ("[ab]x", b"bx", true),
            ("[!ab]x", b"bx", false),
            ("\\*", b"*", true),
            ("\\*", b"a", false),
            ("*\u{e4}", b"b\xc3\xa4", true),
            ("a*", b"a\xff", true),
        ] {
            let matcher = matcher(pattern.as_bytes()).unwrap();
            assert_eq!(is_meant(&matcher, name), meant, "{pattern} {name:?}");
        }
        for name in [&b"plain"[..], b"[", b"\xff*"] {
            assert!(matcher(name).is_none(), "{name:?}");
        }
    }
}
