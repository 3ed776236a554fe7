//! Who owns here what belongs to a user or a group at the sender: whom the policy names first, then who is called the same, then who has
//! the same number.
//!
//! Must not know what is owned.

use crate::accounts::{Accounts, renumber_acl};
use crate::alter::{self, OwnersAndModes};
use crate::error::{Code, Error, Note, Op, Reason, Result};
use bcmr_wire::limits::OWNERS_MAX;
use bcmr_wire::message::Owner;
use fastcopy::meta::Kind;
use fastcopy::xattr::{ACL_ACCESS, ACL_DEFAULT};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{CStr, CString};
use std::sync::{PoisonError, RwLock};

/// Owners of one transfer, at its receiver.
pub(crate) struct OwnersHere {
    /// Who becomes whom whatever the names say.
    alter: OwnersAndModes,
    /// Where names are looked up; `None`: the sender has not agreed to tell any.
    accounts: Option<&'static dyn Accounts>,
    /// The number here of each whose name was told.
    told: RwLock<HashMap<(Owner, u32), u32>>,
}

impl OwnersHere {
    /// What of a policy is about owners is decided here, and not once more by the policy: it is about numbers of the sender.
    pub(crate) fn of(alter: &mut OwnersAndModes, accounts: Option<&'static dyn Accounts>) -> OwnersHere {
        OwnersHere { alter: alter.take_owners(), accounts, told: RwLock::default() }
    }

    /// The sender tells what an owner is called. What was told first holds, whatever another stream says.
    ///
    /// # Errors
    /// The sender broke the protocol.
    pub(crate) fn name(&self, of: Owner, id: u32, name: &[u8]) -> Result<()> {
        let Some(accounts) = self.accounts else {
            return Err(refused(Reason::NotSendersMessage.about("Owner")));
        };
        let mut told = self.told.write().unwrap_or_else(PoisonError::into_inner);
        let most = told.len() >= OWNERS_MAX;
        let Entry::Vacant(place) = told.entry((of, id)) else { return Ok(()) };
        if most {
            // [owner.most]
            return Err(refused(Reason::TooManyNames));
        }
        let name = CString::new(name).map_err(|_| refused(Reason::BadName))?;
        let here = accounts.called(of, &name).filter(|id| *id != u32::MAX);
        place.insert(here.unwrap_or(id));
        Ok(())
    }

    /// Mode, user and group here of something that has these at the sender: the mode is without what the policy takes from
    /// what it gives to another owner (L4). One who is called the same here is no other one.
    pub(crate) fn owned(&self, kind: Kind, mode: u32, (uid, gid): (u32, u32)) -> (u32, u32, u32) {
        let (user, group) = (self.called(Owner::User, uid), self.called(Owner::Group, gid));
        let to_user = self.alter.user(uid).unwrap_or(user);
        let to_group = self.alter.group(gid).unwrap_or(group);
        let mode = alter::without_lent(kind, mode, to_user != user, to_group != group);
        (mode, to_user, to_group)
    }

    fn called(&self, of: Owner, id: u32) -> u32 {
        let told = self.told.read().unwrap_or_else(PoisonError::into_inner);
        told.get(&(of, id)).copied().unwrap_or(id)
    }

    /// An attribute as it is here: an ACL names users and groups.
    pub(crate) fn attribute(&self, name: &CStr, mut value: Vec<u8>) -> Vec<u8> {
        if name == ACL_ACCESS || name == ACL_DEFAULT {
            renumber_acl(&mut value, |of, id| self.called(of, id));
        }
        value
    }
}

/// What a sender may not say.
fn refused(note: impl Into<Note>) -> Error {
    Error::ours(Code::Protocol, Op::Receive, "", note)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Here;

    impl Accounts for Here {
        fn name_of(&self, _: Owner, _: u32) -> Option<Vec<u8>> {
            None
        }

        fn called(&self, of: Owner, name: &CStr) -> Option<u32> {
            match (of, name.to_bytes()) {
                (Owner::User, b"me") => Some(501),
                (Owner::Group, b"us") => Some(20),
                (Owner::Group, b"as it is") => Some(u32::MAX),
                _ => None,
            }
        }
    }

    #[test]
    fn the_policy_first_then_names_then_numbers() {
        let mut alter = OwnersAndModes::NONE;
        alter.users[0] = Some((1000, 7));
        let owners = OwnersHere::of(&mut alter, Some(&Here));
        assert_eq!((alter.user(1000), alter.user(7)), (None, Some(7)), "it is not done twice");
        assert!(alter.gives_user(7) && !alter.gives_user(1000) && !alter.gives_group(7));
        let told = [
            (Owner::User, 1000, &b"me"[..]),
            (Owner::User, 1001, b"me"),
            (Owner::User, 1002, b"somebody else"),
            (Owner::User, 1003, b"\xff"),
            (Owner::Group, 1000, b"us"),
            (Owner::Group, 1001, b"as it is"),
        ];
        for (of, id, name) in told {
            owners.name(of, id, name).unwrap();
        }
        let number = |of, id| {
            let (_, user, group) = owners.owned(Kind::File, 0, (id, id));
            if of == Owner::User { user } else { group }
        };
        for (of, id, here) in [
            (Owner::User, 1000, 7),
            (Owner::User, 1001, 501),
            (Owner::User, 1002, 1002),
            (Owner::User, 1003, 1003),
            (Owner::User, 1004, 1004),
            (Owner::Group, 1000, 20),
            (Owner::Group, 1001, 1001),
        ] {
            assert_eq!(number(of, id), here, "{of:?} {id}");
        }
        // Another stream says the same, or lies.
        owners.name(Owner::Group, 1000, b"them").unwrap();
        assert_eq!(number(Owner::Group, 1000), 20);
        // Setuid goes where the policy gives something away, not where the same one has another number here.
        for (kind, uid, mode) in [
            (Kind::File, 1000, 0o2755),
            (Kind::File, 1001, 0o6755),
            (Kind::File, 1004, 0o6755),
            (Kind::Dir, 1000, 0o6755),
        ] {
            assert_eq!(owners.owned(kind, 0o6755, (uid, 1000)).0, mode, "{kind:?} {uid}");
        }
        let acl = [&[2, 0, 0, 0][..], &[2, 0, 7, 0, 0xe8, 3, 0, 0], &[8, 0, 7, 0, 0xe8, 3, 0, 0]].concat();
        let here = [&[2, 0, 0, 0][..], &[2, 0, 7, 0, 0xf5, 1, 0, 0], &[8, 0, 7, 0, 20, 0, 0, 0]].concat();
        assert_eq!(owners.attribute(ACL_DEFAULT, acl.clone()), here);
        assert_eq!(owners.attribute(c"user.x", acl.clone()), acl);
    }

    #[test]
    fn names_that_were_not_agreed_on_and_too_many_of_them() {
        let none = OwnersHere::of(&mut OwnersAndModes::NONE.clone(), None);
        assert!(none.name(Owner::User, 1, b"me").is_err());
        let owners = OwnersHere::of(&mut OwnersAndModes::NONE.clone(), Some(&Here));
        for id in 1..=OWNERS_MAX as u32 {
            owners.name(Owner::User, id, b"me").unwrap();
        }
        owners.name(Owner::User, 1, b"me").unwrap();
        assert!(owners.name(Owner::User, OWNERS_MAX as u32 + 1, b"me").is_err());
    }
}
