//! The names of owners, told before the first entry that belongs to them: on each stream, so that the receiver has the name
//! whichever way an entry comes.
//!
//! Must not know who is called so at the receiver.

use crate::accounts::{Accounts, named_by_acl};
use crate::error::Result;
use crate::policy::Preserve;
use crate::sender::item::EntryAttrs;
use bcmr_wire::limits::{NAME_BYTES_MAX, OWNERS_MAX};
use bcmr_wire::message::{Message, Owner};
use fastcopy::meta::Info;
use fastcopy::xattr::{ACL_ACCESS, ACL_DEFAULT};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A user or a group, by number.
type Numbered = (Owner, u32);

/// What was told of owners in one transfer.
pub(super) struct OwnerNames {
    /// Where names are looked up; `None`: owners go as numbers.
    accounts: Option<&'static dyn Accounts>,
    /// What each one is called who was met so far.
    known: Mutex<HashMap<Numbered, Option<Vec<u8>>>>,
    /// Of whom each stream has been told.
    told: Vec<Mutex<HashSet<Numbered>>>,
}

impl OwnerNames {
    pub(super) fn new(
        accounts: Option<&'static dyn Accounts>,
        preserve: &Preserve,
        streams: usize,
    ) -> OwnerNames {
        let accounts = accounts.filter(|_| preserve.owner || preserve.acl);
        let told = (0..streams.max(1)).map(|_| Mutex::default()).collect();
        OwnerNames { accounts, known: Mutex::default(), told }
    }

    /// Tells on a stream who owns entries that are about to be sent there. When this returns, the names of all of them are on
    /// their way on that stream, whichever thread has told them.
    pub(super) fn tell<'e>(
        &self,
        stream: usize,
        entries: impl Iterator<Item = (&'e Info, &'e EntryAttrs)>,
        send: impl Fn(&Message<'_>) -> Result<()>,
    ) -> Result<()> {
        let (Some(accounts), Some(told)) = (self.accounts, self.told.get(stream)) else { return Ok(()) };
        let mut told = lock(told);
        for (info, attrs) in entries {
            let acls = attrs.iter().filter(|(name, _)| is_acl(name));
            let named = acls.flat_map(|(_, acl)| named_by_acl(acl));
            for (of, id) in [(Owner::User, info.uid), (Owner::Group, info.gid)].into_iter().chain(named) {
                // [owner.id]: root is root everywhere.
                if id == 0 || told.contains(&(of, id)) {
                    continue;
                }
                match self.name_of(accounts, (of, id)) {
                    // [owner.most]: there are too many to remember.
                    None => continue,
                    Some(Some(name)) => send(&Message::Owner { of, id, name: &name })?,
                    Some(None) => {}
                }
                told.insert((of, id));
            }
        }
        Ok(())
    }

    fn name_of(&self, accounts: &dyn Accounts, whose: Numbered) -> Option<Option<Vec<u8>>> {
        let mut known = lock(&self.known);
        if let Some(name) = known.get(&whose) {
            return Some(name.clone());
        }
        if known.len() >= OWNERS_MAX {
            return None;
        }
        // An owner without a name now is not looked up again: all that belongs to one goes the same way.
        let name = accounts.name_of(whose.0, whose.1).filter(|name| is_name(name));
        known.insert(whose, name.clone());
        Some(name)
    }
}

/// Whether a name may be told.
fn is_name(name: &[u8]) -> bool {
    let bytes = (1..=NAME_BYTES_MAX).contains(&name.len());
    bytes && !name.iter().any(|b| matches!(b, 0 | b'/')) && name != b"." && name != b".."
}

fn is_acl(name: &[u8]) -> bool {
    [ACL_ACCESS, ACL_DEFAULT].iter().any(|acl| acl.to_bytes() == name)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whole after each step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::ffi::CStr;

    struct Few;

    impl Accounts for Few {
        fn name_of(&self, of: Owner, id: u32) -> Option<Vec<u8>> {
            match (of, id) {
                (Owner::User, 1000) => Some(b"me".to_vec()),
                (Owner::Group, 1000) => Some(b"a/b".to_vec()),
                (Owner::Group, 1001) => Some(b"us".to_vec()),
                _ => None,
            }
        }

        fn called(&self, _: Owner, _: &CStr) -> Option<u32> {
            None
        }
    }

    fn info(uid: u32, gid: u32) -> Info {
        let t = fastcopy::meta::Time { sec: 0, nsec: 0 };
        let (dev, ino, nlink, size, blocks, rdev) = (1, 1, 1, 0, 0, 0);
        let (kind, mode) = (fastcopy::meta::Kind::File, 0o644);
        Info { kind, mode, uid, gid, dev, ino, nlink, size, blocks, rdev, atime: t, mtime: t, ctime: t }
    }

    #[test]
    fn each_name_is_told_once_on_each_stream() {
        let names = OwnerNames::new(Some(&Few), &Preserve::ALL, 2);
        let said = RefCell::new(Vec::new());
        let mut acl = vec![2, 0, 0, 0];
        acl.extend([8, 0, 7, 0, 0xe9, 3, 0, 0]);
        let acls = vec![(ACL_ACCESS.to_bytes().to_vec(), acl)];
        let none = EntryAttrs::new();
        let entries = [
            (info(1000, 1000), &none),
            (info(1000, 0), &acls),
            (info(0, 1001), &none),
            (info(7, 13), &none),
            (info(7, 13), &none),
        ];
        for stream in [0, 0, 1] {
            let send = |message: &Message<'_>| {
                let Message::Owner { of, id, name } = message else { panic!("{message:?}") };
                said.borrow_mut().push((stream, *of, *id, String::from_utf8_lossy(name).into_owned()));
                Ok(())
            };
            names.tell(stream, entries.iter().map(|(info, attrs)| (info, *attrs)), send).unwrap();
        }
        let (me, us) = ("me".to_owned(), "us".to_owned());
        let wanted =
            |stream| [(stream, Owner::User, 1000, me.clone()), (stream, Owner::Group, 1001, us.clone())];
        assert_eq!(said.into_inner(), [wanted(0), wanted(1)].concat());
        // Where owners are not kept, no name is told.
        let silent = OwnerNames::new(Some(&Few), &Preserve::NONE, 1);
        let one = (info(1000, 1001), EntryAttrs::new());
        let never = |message: &Message<'_>| panic!("{message:?}");
        silent.tell(0, std::iter::once((&one.0, &one.1)), never).unwrap();
    }

    #[test]
    fn only_so_many_are_remembered() {
        struct Everybody;
        impl Accounts for Everybody {
            fn name_of(&self, _: Owner, id: u32) -> Option<Vec<u8>> {
                Some(id.to_string().into_bytes())
            }
            fn called(&self, _: Owner, _: &CStr) -> Option<u32> {
                None
            }
        }
        let names = OwnerNames::new(Some(&Everybody), &Preserve::ALL, 1);
        let (said, none) = (RefCell::new(0), EntryAttrs::new());
        let infos: Vec<_> = (1..=OWNERS_MAX as u32 + 5).map(|id| info(id, 0)).collect();
        let send = |_: &Message<'_>| {
            *said.borrow_mut() += 1;
            Ok(())
        };
        names.tell(0, infos.iter().map(|info| (info, &none)), send).unwrap();
        assert_eq!((said.into_inner(), lock(&names.known).len()), (OWNERS_MAX, OWNERS_MAX));
    }
}
