//! ACLs as an attribute of an ordinary file says them: `--fake-super`. The form is rsync's: what owner, group, mask and others may, and
//! behind them an id and what it may of each user and each group that is named.
//!
//! Pure. Must not know whose ACL it is, nor touch any disk.

use std::ffi::CStr;

/// The attributes' names.
pub(crate) const ACCESS: &CStr = c"user.rsync.%aacl";
pub(crate) const DEFAULT: &CStr = c"user.rsync.%dacl";

/// In the place of what is not said.
const UNSAID: u32 = 0x80;
/// Beside what one that is named may: it is a user, and not a group.
const IS_USER: u32 = 1 << 31;
/// What may be allowed at all.
const PERMS: u32 = 7;

/// The kernel's form: this version, and tags of entries in this order (acl(5)).
const VERSION: u32 = 2;
const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// An id, and what it may.
type Granted = (u32, u32);

/// An ACL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldAcl {
    owner: u32,
    users: Vec<Granted>,
    group: u32,
    groups: Vec<Granted>,
    mask: Option<u32>,
    others: u32,
}

/// Which of the two that a directory may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AclKind {
    /// The one that counts, of something with this mode: what the mode says is not said twice.
    Access(u32),
    /// The one that new things in a directory get.
    Default,
}

impl AclKind {
    fn mode(self) -> Option<u32> {
        match self {
            AclKind::Access(mode) => Some(mode),
            AclKind::Default => None,
        }
    }
}

fn of_owner(mode: u32) -> u32 {
    mode >> 6 & PERMS
}

fn of_group(mode: u32) -> u32 {
    mode >> 3 & PERMS
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

impl HeldAcl {
    /// What the kernel says; nothing where that is no ACL.
    pub(crate) fn of_kernel(acl: &[u8]) -> Option<HeldAcl> {
        let (head, entries) = acl.split_at_checked(4)?;
        if word(head)? != VERSION || !entries.len().is_multiple_of(8) {
            return None;
        }
        let (mut owner, mut group, mut mask, mut others) = (None, None, None, None);
        let (mut users, mut groups) = (Vec::new(), Vec::new());
        let mut last = 0;
        for entry in entries.chunks_exact(8) {
            let [t0, t1, p0, p1, ..] = *entry else { return None };
            let (tag, perms) = (u16::from_le_bytes([t0, t1]), u32::from(u16::from_le_bytes([p0, p1])));
            let id = word(entry.get(4..)?)?;
            let is_named = tag == USER || tag == GROUP;
            // To the kernel the highest number means no user and no group.
            if perms > PERMS || tag < last || tag == last && !is_named || is_named && id == u32::MAX {
                return None;
            }
            last = tag;
            match tag {
                USER_OBJ => owner = Some(perms),
                USER => users.push((id, perms)),
                GROUP_OBJ => group = Some(perms),
                GROUP => groups.push((id, perms)),
                MASK => mask = Some(perms),
                OTHER => others = Some(perms),
                _ => return None,
            }
        }
        let all = HeldAcl { owner: owner?, users, group: group?, groups, mask, others: others? };
        all.is_one().then_some(all)
    }

    /// As the kernel says it.
    pub(crate) fn kernel(&self) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        let mut put = |tag: u16, (id, perms): Granted| {
            out.extend(tag.to_le_bytes());
            out.extend((perms as u16).to_le_bytes());
            out.extend(id.to_le_bytes());
        };
        let unnamed = |perms| (u32::MAX, perms);
        put(USER_OBJ, unnamed(self.owner));
        self.users.iter().for_each(|named| put(USER, *named));
        put(GROUP_OBJ, unnamed(self.group));
        self.groups.iter().for_each(|named| put(GROUP, *named));
        self.mask.into_iter().for_each(|perms| put(MASK, unnamed(perms)));
        put(OTHER, unnamed(self.others));
        out
    }

    /// What chmod(2) makes of the one that counts: the mode says what owner, mask and others may, and the group where there is no mask.
    pub(crate) fn with_mode(self, mode: u32) -> HeldAcl {
        let group = if self.mask.is_some() { self.group } else { of_group(mode) };
        let mask = self.mask.map(|_| of_group(mode));
        HeldAcl { owner: of_owner(mode), group, mask, others: mode & PERMS, ..self }
    }

    /// What an attribute's value says; nothing where it is none, to the letter.
    pub(crate) fn parsed(value: &[u8], which: AclKind) -> Option<HeldAcl> {
        let (head, rest) = value.split_at_checked(16)?;
        if !rest.len().is_multiple_of(8) {
            return None;
        }
        let mut said = [None; 4];
        for (place, bytes) in said.iter_mut().zip(head.chunks_exact(4)) {
            *place = match word(bytes)? {
                UNSAID => None,
                perms if perms <= PERMS => Some(perms),
                _ => return None,
            };
        }
        let (mut users, mut groups) = (Vec::new(), Vec::new());
        for named in rest.chunks_exact(8) {
            let (id, access) = (word(named)?, word(named.get(4..)?)?);
            if id == u32::MAX || access & !(IS_USER | PERMS) != 0 {
                return None;
            }
            let list = if access & IS_USER != 0 { &mut users } else { &mut groups };
            list.push((id, access & PERMS));
        }
        let [owner, group, mask, others] = said;
        let all = match which.mode() {
            // The mode is what a change of the mode has left of it.
            Some(mode) => {
                let has_mask = mask.is_some() || !users.is_empty() || !groups.is_empty();
                HeldAcl {
                    owner: of_owner(mode),
                    users,
                    group: group.unwrap_or(of_group(mode)),
                    groups,
                    mask: has_mask.then_some(of_group(mode)),
                    others: mode & PERMS,
                }
            }
            None => HeldAcl { owner: owner?, users, group: group?, groups, mask, others: others? },
        };
        all.is_one().then_some(all)
    }

    /// As an attribute's value; nothing where the mode says all of it.
    pub(crate) fn value(&self, which: AclKind) -> Option<Vec<u8>> {
        let head = match which.mode() {
            Some(_) if self.mask.is_none() => return None,
            Some(mode) => {
                let group = if self.group == of_group(mode) { UNSAID } else { self.group };
                [UNSAID, group, of_group(mode), UNSAID]
            }
            None => [self.owner, self.group, self.mask.unwrap_or(UNSAID), self.others],
        };
        let users = self.users.iter().map(|(id, perms)| [*id, perms | IS_USER]);
        let groups = self.groups.iter().map(|(id, perms)| [*id, *perms]);
        let words = head.into_iter().chain(users.chain(groups).flatten());
        Some(words.flat_map(u32::to_le_bytes).collect())
    }

    /// The mode that what holds this gets instead of `mode`: it has no ACL, so whom that names is among its group or others, and
    /// these get no more than each of those may.
    pub(crate) fn closed(&self, mode: u32) -> u32 {
        let mask = self.mask.map_or(PERMS, |_| of_group(mode));
        let common = |named: &[Granted]| named.iter().fold(PERMS, |all, (_, perms)| all & perms & mask);
        let (users, groups) = (common(&self.users), common(&self.groups));
        let group = if self.mask.is_some() { self.group & mask & users } else { of_group(mode) };
        mode & !0o077 | group << 3 | mode & PERMS & users & groups
    }

    /// Whom it names needs a mask.
    fn is_one(&self) -> bool {
        self.mask.is_some() || self.users.is_empty() && self.groups.is_empty()
    }
}

/// Entrance for the fuzzer: any bytes as a value that is held, and as an ACL of the kernel's; what was understood says the same again.
#[cfg(fuzzing)]
pub fn fuzz(data: &[u8]) {
    for which in [AclKind::Access(0o640), AclKind::Default] {
        let Some(acl) = HeldAcl::parsed(data, which) else { continue };
        assert_eq!(HeldAcl::of_kernel(&acl.kernel()).as_ref(), Some(&acl));
        if let Some(value) = acl.value(which) {
            assert_eq!(HeldAcl::parsed(&value, which).as_ref(), Some(&acl));
        }
        assert_eq!(acl.closed(0o640) & !0o640, 0, "nobody gets more");
    }
    if let Some(acl) = HeldAcl::of_kernel(data) {
        assert_eq!(acl.kernel().len(), data.len());
        if let Some(value) = acl.value(AclKind::Default) {
            assert_eq!(HeldAcl::parsed(&value, AclKind::Default), Some(acl));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
        digits.chunks_exact(2).map(byte).collect()
    }

    /// What the kernel and rsync 3.5.0 say of the same files.
    const PAIRS: [(AclKind, &str, &str); 6] = [
        // Only a mask.
        (
            AclKind::Access(0o644),
            "02000000 01000600ffffffff 04000400ffffffff 10000400ffffffff 20000400ffffffff",
            "80000000 80000000 04000000 80000000",
        ),
        // A user with a number beyond 2^31.
        (
            AclKind::Access(0o644),
            "02000000 01000600ffffffff 02000400005ed0b2 04000400ffffffff 10000400ffffffff 20000400ffffffff",
            "80000000 80000000 04000000 80000000 005ed0b2 04000080",
        ),
        // A user and a group behind a mask that leaves them nothing.
        (
            AclKind::Access(0o600),
            "02000000 01000600ffffffff 020006004d000000 04000400ffffffff 0800060001000000 10000000ffffffff
             20000000ffffffff",
            "80000000 04000000 00000000 80000000 4d000000 06000080 01000000 06000000",
        ),
        (
            AclKind::Access(0o664),
            "02000000 01000600ffffffff 0200060009000000 04000400ffffffff 10000600ffffffff 20000400ffffffff",
            "80000000 04000000 06000000 80000000 09000000 06000080",
        ),
        (
            AclKind::Default,
            "02000000 01000700ffffffff 0200060009000000 04000500ffffffff 10000000ffffffff 20000500ffffffff",
            "07000000 05000000 00000000 05000000 09000000 06000080",
        ),
        (
            AclKind::Default,
            "02000000 01000700ffffffff 04000500ffffffff 20000000ffffffff",
            "07000000 05000000 80000000 00000000",
        ),
    ];

    #[test]
    fn there_and_back() {
        for (which, kernel, value) in PAIRS {
            let (kernel, value) = (hex(kernel), hex(value));
            let acl = HeldAcl::of_kernel(&kernel).unwrap();
            assert_eq!(acl.value(which), Some(value.clone()), "{which:?}");
            assert_eq!(HeldAcl::parsed(&value, which).as_ref(), Some(&acl), "{which:?}");
            assert_eq!(acl.kernel(), kernel, "{which:?}");
        }
        // Nothing but a mode.
        let minimal = hex("02000000 01000600ffffffff 04000400ffffffff 20000400ffffffff");
        assert_eq!(HeldAcl::of_kernel(&minimal).unwrap().value(AclKind::Access(0o644)), None);
    }

    #[test]
    fn what_is_not_one_to_the_letter_is_none() {
        for (which, value) in [
            (AclKind::Access(0o644), ""),
            (AclKind::Access(0o644), "80000000 80000000 04000000"),
            (AclKind::Access(0o644), "80000000 80000000 04000000 80000000 00"),
            (AclKind::Access(0o644), "80000000 80000000 04000000 80000000 01000000"),
            (AclKind::Access(0o644), "80000000 08000000 04000000 80000000"),
            (AclKind::Access(0o644), "80000000 81000000 04000000 80000000"),
            (AclKind::Access(0o644), "80000000 80000000 04000000 80000000 ffffffff 04000080"),
            (AclKind::Access(0o644), "80000000 80000000 04000000 80000000 01000000 08000080"),
            (AclKind::Access(0o644), "80000000 80000000 04000000 80000000 01000000 04000040"),
            (AclKind::Default, "80000000 05000000 80000000 00000000"),
            (AclKind::Default, "07000000 80000000 80000000 00000000"),
            (AclKind::Default, "07000000 05000000 80000000 80000000"),
            // A user that is named, and no mask.
            (AclKind::Default, "07000000 05000000 80000000 00000000 01000000 04000080"),
        ] {
            assert_eq!(HeldAcl::parsed(&hex(value), which), None, "{value}");
        }
        for kernel in [
            "",
            "01000000 01000600ffffffff 04000400ffffffff 20000400ffffffff",
            "02000000 01000600ffffffff 04000400ffffffff",
            "02000000 01000600ffffffff 01000600ffffffff 04000400ffffffff 20000400ffffffff",
            "02000000 04000400ffffffff 01000600ffffffff 20000400ffffffff",
            "02000000 01000600ffffffff 0200060009000000 04000400ffffffff 20000400ffffffff",
            "02000000 01000600ffffffff 02000600ffffffff 04000400ffffffff 10000400ffffffff 20000400ffffffff",
            "02000000 01000900ffffffff 04000400ffffffff 20000400ffffffff",
            "02000000 01000600ffffffff 04000400ffffffff 20000400ffffff",
            "02000000 01000600ffffffff 04000400ffffffff 20000400ffffffff 40000400ffffffff",
        ] {
            assert_eq!(HeldAcl::of_kernel(&hex(kernel)), None, "{kernel}");
        }
    }

    /// A mode that was changed is what counts.
    #[test]
    fn a_mode_counts_more() {
        let acl = HeldAcl::of_kernel(&hex(PAIRS[3].1)).unwrap();
        let value = acl.value(AclKind::Access(0o640)).unwrap();
        let back = HeldAcl::parsed(&value, AclKind::Access(0o640)).unwrap();
        assert_eq!((back.mask, back.others, back.group), (Some(4), 0, 4));
    }

    #[test]
    fn the_closed_mode_lets_nobody_in() {
        let acl = |users: &[Granted], groups: &[Granted], group, mask| {
            let (users, groups) = (users.to_vec(), groups.to_vec());
            HeldAcl { owner: 7, users, group, groups, mask: Some(mask), others: 5 }
        };
        for (acl, mode, want) in [
            // The mask is for who is named; the group itself has less.
            (acl(&[(9, 6)], &[], 4, 6), 0o664, 0o644),
            // One who is named may nothing, and would be one of the others, or of the group.
            (acl(&[(9, 0)], &[], 4, 6), 0o664, 0o600),
            (acl(&[], &[(9, 0)], 4, 6), 0o664, 0o640),
            (acl(&[(9, 7)], &[(8, 5)], 7, 5), 0o4755, 0o4755),
            (acl(&[(9, 7)], &[], 7, 0), 0o705, 0o700),
        ] {
            assert_eq!(acl.closed(mode), want, "{acl:?} {mode:o}");
        }
    }
}
