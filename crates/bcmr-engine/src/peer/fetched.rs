//! The store of a client that receives: blocks that a machine has sent, for the next time that it has them to send.
//!
//! Must not know what a block is used for. Each machine has a scope of its own, so that what one asks about is answered from
//! what it has sent itself: else it could learn which files the user has from others.

use crate::error::Reason;
use crate::event::{Event, Watch};
use crate::remote::{Address, RunAs, Way};
use crate::store::Store;
use fastcopy::dir::Dir;
use std::path::{Path, PathBuf};

/// Where the store is, the bytes it may remember (0: any number), and those it may keep.
pub(super) struct FetchedBlocks(pub(super) (PathBuf, u64, u64));

impl FetchedBlocks {
    /// What came from this machine before; `None`, said as a note, where there can be none, which costs time only.
    pub(super) fn open(&self, address: &Address, way: &Way, watch: Watch<'_>) -> Option<Store> {
        let (dir, cap_bytes, keep_bytes) = &self.0;
        let root = Dir::open(Path::new("/"));
        let scope = scope_of(address, way);
        let opened = root.and_then(|root| Store::open(dir, *cap_bytes, *keep_bytes, &scope, root));
        opened.map_err(|e| watch.front.event(Event::Note(Reason::StoreUnusable.about(e.to_string())))).ok()
    }
}

/// What tells machines, and users there, apart: all that ssh is told of where to go and the user that the program runs as, as
/// it stands there. ssh makes sure, by the key, that a name goes on meaning one machine. What says the same in other words is
/// another scope, which costs time only.
fn scope_of(address: &Address, way: &Way) -> Vec<u8> {
    let mut scope = b"from".to_vec();
    // The length in front, so that no two lists are the same bytes.
    let mut field = |bytes: &[u8]| {
        scope.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        scope.extend_from_slice(bytes);
    };
    for words in [&way.ssh, &way.options] {
        field(&(words.len() as u64).to_le_bytes());
        words.iter().for_each(|word| field(word.as_encoded_bytes()));
    }
    match &way.run_as {
        RunAs::Login => field(b""),
        RunAs::Sudo(user) | RunAs::SudoWith(user, _) => field(user.as_bytes()),
    }
    field(address.user.as_deref().unwrap_or_default().as_bytes());
    field(address.host.as_bytes());
    field(&address.port.unwrap_or_default().to_le_bytes());
    scope
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::tests::plain_way;

    fn way() -> Way {
        plain_way(vec!["ssh".into()])
    }

    /// Whatever leads to another machine or another user there leads to another scope; a path does not.
    #[test]
    fn each_machine_and_user_has_a_scope() {
        let at = |user: Option<&str>, host: &str, port| Address {
            user: user.map(Into::into),
            host: host.into(),
            port,
            path: "p".into(),
        };
        let with = |ssh: &[&str], options: &[&str]| Way {
            ssh: ssh.iter().map(Into::into).collect(),
            options: options.iter().map(Into::into).collect(),
            ..way()
        };
        let one = scope_of(&at(None, "h", None), &way());
        let same = Address { path: "q".into(), ..at(None, "h", None) };
        assert_eq!(one, scope_of(&same, &Way { program: "/b".into(), retries: 2, ..way() }));
        let plain = at(None, "h", None);
        let all = [
            one,
            scope_of(&at(Some("u"), "h", None), &way()),
            scope_of(&at(Some("uh"), "", None), &way()),
            scope_of(&at(None, "uh", None), &way()),
            scope_of(&at(None, "h", Some(22)), &way()),
            scope_of(&plain, &with(&["ssh", "-F"], &[])),
            scope_of(&plain, &with(&["ssh"], &["-F"])),
            scope_of(&plain, &with(&["ssh"], &["-", "F"])),
            scope_of(&plain, &Way { run_as: RunAs::Sudo("root".into()), ..way() }),
        ];
        for (n, scope) in all.iter().enumerate() {
            assert_eq!(all.iter().position(|other| other == scope), Some(n));
        }
    }
}
