//! Users and groups of a machine: what a number is called, and which number a name has. ACLs name both by numbers.
//!
//! Must not know what belongs to a user, nor which machine asks.

use bcmr_wire::message::Owner;
use fastcopy::people::{group_name, group_number, user_name, user_number};
use std::ffi::CStr;

/// Where owners are looked up. `None`: there is none of them, or the machine cannot ask.
pub(crate) trait Accounts: Send + Sync {
    /// What an owner is called.
    fn name_of(&self, of: Owner, id: u32) -> Option<Vec<u8>>;

    /// Who is called so.
    fn called(&self, of: Owner, name: &CStr) -> Option<u32>;
}

/// This machine's, by its own library: files, and what else it is told to ask. A static program reads the files alone.
pub(crate) struct ThisMachine;

impl Accounts for ThisMachine {
    fn name_of(&self, of: Owner, id: u32) -> Option<Vec<u8>> {
        match of {
            Owner::User => user_name(id),
            Owner::Group => group_name(id),
        }
    }

    fn called(&self, of: Owner, name: &CStr) -> Option<u32> {
        match of {
            Owner::User => user_number(name),
            Owner::Group => group_number(name),
        }
    }
}

/// Whom an ACL in the kernel's form names: behind a version, tag, permissions and id of each entry (acl(5)).
pub(crate) fn named_by_acl(acl: &[u8]) -> impl Iterator<Item = (Owner, u32)> + '_ {
    acl.get(4..).unwrap_or_default().chunks_exact(8).filter_map(entry)
}

/// The same ACL with other numbers.
pub(crate) fn renumber_acl(acl: &mut [u8], number: impl Fn(Owner, u32) -> u32) {
    for bytes in acl.get_mut(4..).unwrap_or_default().chunks_exact_mut(8) {
        if let (Some((of, id)), Some(place)) = (entry(bytes), bytes.get_mut(4..)) {
            place.copy_from_slice(&number(of, id).to_le_bytes());
        }
    }
}

fn entry(bytes: &[u8]) -> Option<(Owner, u32)> {
    const USER: [u8; 2] = [2, 0];
    const GROUP: [u8; 2] = [8, 0];
    let id = u32::from_le_bytes(*bytes.last_chunk()?);
    let of = match *bytes.first_chunk()? {
        USER => Owner::User,
        GROUP => Owner::Group,
        _ => return None,
    };
    (id != u32::MAX).then_some((of, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_knows_its_own() {
        assert_eq!(ThisMachine.name_of(Owner::User, 0), Some(b"root".to_vec()));
        assert_eq!(ThisMachine.called(Owner::Group, c"root"), Some(0));
        assert_eq!(ThisMachine.called(Owner::User, c"no user is called so"), None);
        assert_eq!(ThisMachine.name_of(Owner::Group, 3_999_999_999), None);
    }

    #[test]
    fn acls_name_owners_by_numbers() {
        let entry = |tag: u16, id: u32| [&tag.to_le_bytes()[..], &[7, 0], &id.to_le_bytes()].concat();
        let acl = |user, group| {
            let entries = [entry(1, u32::MAX), entry(2, user), entry(8, group), entry(0x20, u32::MAX)];
            [&[2, 0, 0, 0][..], &entries.concat()].concat()
        };
        let mut one = acl(1000, 50);
        let named: Vec<_> = named_by_acl(&one).collect();
        assert_eq!(named, [(Owner::User, 1000), (Owner::Group, 50)]);
        renumber_acl(&mut one, |of, id| if of == Owner::User { id + 1 } else { id + 2 });
        assert_eq!(one, acl(1001, 52));
        for bad in [&b""[..], b"abc", &[2, 0, 0, 0, 2, 0, 7], &[0xff; 13]] {
            let mut same = bad.to_vec();
            renumber_acl(&mut same, |_, _| 7);
            assert_eq!((same.as_slice(), named_by_acl(bad).count()), (bad, 0));
        }
    }
}
