//! What only root can set (owner, setuid, kind), as an attribute of an ordinary file says it: `--fake-super`. The form is rsync's:
//! mode with its kind in octal, number of the device, user and group. ACLs stand beside it ([`held_acl`]).
//!
//! Must not know which side of a copy reads it, nor what becomes of it.

use crate::held_acl::{self, AclKind, HeldAcl};
use crate::policy::{Preserve, Privileged};
use fastcopy::dir::{Dir, Name};
use fastcopy::meta::{Info, Kind};
use fastcopy::xattr::{self, ACL_ACCESS, ACL_DEFAULT, Of, XattrBuffer};
use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The attribute's name.
pub(crate) const ATTRIBUTE: &CStr = c"user.rsync.%stat";
/// No user has attributes of their own in here: those that only root can set are held under such names.
const FAMILY: &[u8] = b"user.rsync.";
/// No value that is one is longer.
const BYTES_MAX: usize = 64;
/// A link leads nowhere by more (PATH_MAX).
const TARGET_BYTES_MAX: usize = 4095;
/// Bits that a file never really gets: they would lend the rights of an owner that it does not have.
const NEVER: u32 = 0o7000;
const KIND: u32 = 0o170_000;

const KINDS: [(u32, Kind); 7] = [
    (0o010_000, Kind::Fifo),
    (0o020_000, Kind::CharDevice),
    (0o040_000, Kind::Dir),
    (0o060_000, Kind::BlockDevice),
    (0o100_000, Kind::File),
    (0o120_000, Kind::Link),
    (0o140_000, Kind::Socket),
];

/// What something is meant to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldStat {
    pub(crate) kind: Kind,
    /// Permission bits (07777).
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Of a device; else 0.
    pub(crate) rdev: u64,
}

impl HeldStat {
    pub(crate) fn of(info: &Info) -> HeldStat {
        let Info { kind, mode, uid, gid, rdev, .. } = *info;
        HeldStat { kind, mode, uid, gid, rdev: if kind.is_device() { rdev } else { 0 } }
    }

    /// As the attribute's value.
    pub(crate) fn value(&self) -> Vec<u8> {
        let kind = KINDS.iter().find(|(_, kind)| *kind == self.kind).map_or(0, |(bits, _)| *bits);
        let (major, minor) = (fastcopy::meta::major(self.rdev), fastcopy::meta::minor(self.rdev));
        format!("{:o} {major},{minor} {}:{}", kind | self.mode, self.uid, self.gid).into_bytes()
    }

    /// What a value says; nothing where it is none, to the letter.
    pub(crate) fn parsed(value: &[u8]) -> Option<HeldStat> {
        if value.len() > BYTES_MAX {
            return None;
        }
        let mut words = std::str::from_utf8(value).ok()?.split(' ');
        let (mode, device, owner) = (words.next()?, words.next()?, words.next()?);
        if words.next().is_some() {
            return None;
        }
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let number = |text: &str| text.parse::<u32>().ok().filter(|_| digits(text));
        let mode = u32::from_str_radix(mode, 8).ok().filter(|_| digits(mode))?;
        let kind = KINDS.iter().find(|(bits, _)| *bits == mode & KIND).map(|(_, kind)| *kind)?;
        let (major, minor) = device.split_once(',')?;
        let (uid, gid) = owner.split_once(':')?;
        // To the kernel the highest number means "as it is".
        let id = |text: &str| number(text).filter(|id| *id != u32::MAX);
        let device = fastcopy::meta::device(number(major)?, number(minor)?);
        let is_mode = mode & !(KIND | 0o7777) == 0 && (kind.is_device() || device == 0);
        let (uid, gid) = (id(uid)?, id(gid)?);
        is_mode.then_some(HeldStat { kind, mode: mode & 0o7777, uid, gid, rdev: device })
    }

    /// The mode that what holds this really gets, where it belongs to this user and this group: its owner may do what root may,
    /// others what they may in the end, and a group that is another one nothing more than others.
    pub(crate) fn real_mode(&self, gid: u32) -> u32 {
        let own = if self.kind == Kind::Dir { 0o700 } else { 0o600 };
        if self.kind == Kind::Link {
            return own;
        }
        let mut mode = self.mode & !NEVER;
        if self.mode & 0o1000 != 0 {
            // Without its sticky bit a directory that others write to would be theirs.
            mode &= !0o022;
        }
        if gid != self.gid {
            mode &= 0o707 | (mode & 0o007) << 3;
        }
        mode | own
    }

    /// Whether what is there is what this says, without any attribute.
    pub(crate) fn is_plainly(&self, there: &Info) -> bool {
        *self == HeldStat::of(there)
    }
}

/// What became of a look at the attribute.
pub(crate) enum HeldLook {
    /// It has none: it is what it is.
    Nothing,
    As(HeldStat),
    /// It has one that says nothing, or something that cannot be of this.
    Unreadable,
}

/// What the attribute of `of` says, which is really `info`.
pub(crate) fn held(of: Of<'_>, info: &Info) -> io::Result<HeldLook> {
    if !matches!(info.kind, Kind::File | Kind::Dir) {
        return Ok(HeldLook::Nothing);
    }
    let mut value = Vec::new();
    let Some(value) = xattr::get(of, ATTRIBUTE, &mut value)? else { return Ok(HeldLook::Nothing) };
    // A directory has entries, and nothing else has any.
    let stat = HeldStat::parsed(value).filter(|held| (held.kind == Kind::Dir) == (info.kind == Kind::Dir));
    Ok(stat.map_or(HeldLook::Unreadable, HeldLook::As))
}

/// The same as what it is meant to be; where the attribute is unreadable, nothing.
pub(crate) fn meant(of: Of<'_>, info: Info) -> io::Result<Option<Info>> {
    Ok(match held(of, &info)? {
        HeldLook::Nothing => Some(info),
        HeldLook::As(HeldStat { kind, mode, uid, gid, rdev }) => {
            Some(Info { kind, mode, uid, gid, rdev, ..info })
        }
        HeldLook::Unreadable => None,
    })
}

/// Whether the ACLs that something holds can be read, which is meant to be `info`.
pub(crate) fn acls_are_readable(of: Of<'_>, info: &Info) -> io::Result<bool> {
    let mut value = Vec::new();
    for (attr, which) in
        [(held_acl::ACCESS, AclKind::Access(info.mode)), (held_acl::DEFAULT, AclKind::Default)]
    {
        let held = xattr::get(of, attr, &mut value)?;
        if held.is_some_and(|held| HeldAcl::parsed(held, which).is_none()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The same of what is to be replaced or brought up to date: what cannot be read has an owner that nothing has.
pub(crate) fn meant_or_stale(of: Of<'_>, info: Info) -> io::Result<Info> {
    Ok(meant(of, info)?.unwrap_or(Info { uid: u32::MAX, ..info }))
}

/// What really is there of something that is meant to be `info`, and held.
pub(crate) fn holding(info: &Info) -> Info {
    let (kind, size) = match info.kind {
        Kind::Dir => (Kind::Dir, info.size),
        Kind::File | Kind::Link => (Kind::File, info.size),
        _ => (Kind::File, 0),
    };
    Info { kind, size, ..*info }
}

/// What a directory of a destination is meant to be.
pub(crate) fn dir_as(privileged: Privileged, dir: &Dir) -> io::Result<Info> {
    let info = dir.info()?;
    match privileged {
        Privileged::Real => Ok(info),
        Privileged::Held => meant_or_stale(Of::Handle(dir.as_fd()), info),
    }
}

/// Whether an attribute is one of those that hold something.
fn is_of_family(attr: &[u8]) -> bool {
    attr.starts_with(FAMILY)
}

/// Whether an attribute of a source is not given to its copy: it would be taken for what a side of this copy
/// holds, or no copy has it. Another machine may send one of those.
pub(crate) fn hides(preserve: &Preserve, attr: &[u8]) -> bool {
    let is_held = preserve.at_source.is_held() || preserve.at_dest.is_held();
    xattr::is_of_one(attr) || is_held && is_of_family(attr)
}

/// Whether only root can set an attribute.
fn is_roots(attr: &[u8]) -> bool {
    [&b"security."[..], b"trusted."].iter().any(|family| attr.starts_with(family))
}

/// What holds an ACL.
fn held_acl_of(acl: &CStr) -> Option<&'static CStr> {
    [(ACL_ACCESS, held_acl::ACCESS), (ACL_DEFAULT, held_acl::DEFAULT)]
        .into_iter()
        .find_map(|(real, held)| (real == acl).then_some(held))
}

/// The ACL that such an attribute holds.
fn acl_of_held(attr: &CStr) -> Option<&'static CStr> {
    [ACL_ACCESS, ACL_DEFAULT].into_iter().find(|real| held_acl_of(real) == Some(attr))
}

/// Whether an attribute holds an ACL.
pub(crate) fn is_held_acl(attr: &[u8]) -> bool {
    [held_acl::ACCESS, held_acl::DEFAULT].iter().any(|held| held.to_bytes() == attr)
}

/// The name that an attribute has where it is held.
pub(crate) fn held_name(attr: &CStr) -> Cow<'_, CStr> {
    if let Some(acl) = held_acl_of(attr) {
        return Cow::Borrowed(acl);
    }
    if !is_roots(attr.to_bytes()) {
        return Cow::Borrowed(attr);
    }
    let name = [FAMILY, attr.to_bytes()].concat();
    CString::new(name).map_or(Cow::Borrowed(attr), Cow::Owned)
}

/// What an attribute is meant to be where some are held; nothing where it is none of a file's own.
fn meant_name(attr: &CStr) -> Option<&CStr> {
    if !is_of_family(attr.to_bytes()) {
        return Some(attr);
    }
    if let Some(acl) = acl_of_held(attr) {
        return Some(acl);
    }
    let rest = CStr::from_bytes_with_nul(attr.to_bytes_with_nul().get(FAMILY.len()..)?).ok()?;
    is_roots(rest.to_bytes()).then_some(rest)
}

/// As [`xattr::read`], with the names and values that attributes are meant to have on that side.
pub(crate) fn read_attributes(
    of: Of<'_>,
    side: Privileged,
    buffer: &mut XattrBuffer,
    wanted: impl Fn(&CStr) -> bool,
    mut each: impl FnMut(&CStr, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    match side {
        Privileged::Real => xattr::read(of, buffer, wanted, each),
        Privileged::Held => xattr::read(
            of,
            buffer,
            |attr| meant_name(attr).is_some_and(&wanted),
            |attr, value| {
                let Some(meant) = meant_name(attr) else { return Ok(()) };
                if acl_of_held(attr).is_some() {
                    return each(meant, &held_value(of, meant, value)?);
                }
                // An ACL that is held counts, and not the one beside it.
                let counts = match held_acl_of(meant) {
                    Some(held) => xattr::get(of, held, &mut Vec::new())?.is_none(),
                    None => true,
                };
                if counts { each(meant, value) } else { Ok(()) }
            },
        ),
    }
}

/// An ACL that is held, as the kernel says it. What says nothing is none that anything has.
fn held_value(of: Of<'_>, acl: &CStr, value: &[u8]) -> io::Result<Vec<u8>> {
    let which = if acl == ACL_ACCESS {
        let info = match of {
            Of::Handle(fd) => Info::of(fd)?,
            Of::At(dir, name) => dir.stat(name)?,
        };
        AclKind::Access(meant_or_stale(of, info)?.mode)
    } else {
        AclKind::Default
    };
    Ok(HeldAcl::parsed(value, which).map_or_else(|| vec![0], |acl| acl.kernel()))
}

/// Where a link leads that a file stands for.
fn target(file: &OwnedFd) -> io::Result<CString> {
    // V4: something else may have been put in its place.
    if Info::of(file)?.kind != Kind::File {
        return Err(io::Error::from_raw_os_error(fastcopy::errno::EINVAL));
    }
    let mut room = vec![0; TARGET_BYTES_MAX + 1];
    let bytes = fastcopy::read_write::read_full(file, 0, &mut room)?;
    room.truncate(bytes);
    if room.is_empty() || room.len() > TARGET_BYTES_MAX {
        return Err(io::Error::from_raw_os_error(fastcopy::errno::EINVAL));
    }
    CString::new(room).map_err(|_| io::Error::from_raw_os_error(fastcopy::errno::EINVAL))
}

/// Where a link leads: itself, or the file that stands for it.
pub(crate) fn read_link(dir: &Dir, name: Name<'_>) -> io::Result<CString> {
    match dir.read_link(name) {
        Err(e) if e.raw_os_error() == Some(fastcopy::errno::EINVAL) => target(&dir.open_file(name)?),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_there_and_back() {
        for (value, kind, mode, uid, gid, device) in [
            ("100644 0,0 0:0", Kind::File, 0o644, 0, 0, (0, 0)),
            ("106755 0,0 1234:5678", Kind::File, 0o6755, 1234, 5678, (0, 0)),
            ("60644 259,70000 0:0", Kind::BlockDevice, 0o644, 0, 0, (259, 70000)),
            ("20644 1,3 0:0", Kind::CharDevice, 0o644, 0, 0, (1, 3)),
            ("120777 0,0 12:34", Kind::Link, 0o777, 12, 34, (0, 0)),
            ("140755 0,0 0:0", Kind::Socket, 0o755, 0, 0, (0, 0)),
            ("10000 0,0 0:4294967294", Kind::Fifo, 0, 0, u32::MAX - 1, (0, 0)),
            ("41777 0,0 0:0", Kind::Dir, 0o1777, 0, 0, (0, 0)),
        ] {
            let rdev = fastcopy::meta::device(device.0, device.1);
            let want = HeldStat { kind, mode, uid, gid, rdev };
            assert_eq!(HeldStat::parsed(value.as_bytes()), Some(want), "{value}");
            assert_eq!(want.value(), value.as_bytes());
        }
    }

    #[test]
    fn what_is_not_one_to_the_letter_is_none() {
        let long = format!("100644 0,0 0:{}0", "0".repeat(64));
        for value in [
            "",
            "100644",
            "100644 0,0",
            "100644 0,0 0:0 ",
            " 100644 0,0 0:0",
            "100644  0,0 0:0",
            "100644 0,0 0:0\n",
            "100644 0,0 0:0\0",
            "+100644 0,0 0:0",
            "100648 0,0 0:0",
            "100644 0,0 -1:0",
            "100644 0,0 +1:0",
            "100644 0,0 4294967295:0",
            "100644 0,0 0:4294967295",
            "100644 0,0 4294967296:0",
            "100644 1,3 0:0",
            "644 0,0 0:0",
            "170644 0,0 0:0",
            "1100644 0,0 0:0",
            "100644 00 0:0",
            "100644 0,0 00",
            long.as_str(),
        ] {
            assert_eq!(HeldStat::parsed(value.as_bytes()), None, "{value:?}");
        }
        assert_eq!(HeldStat::parsed(b"100644 0,0 0:\xff"), None);
    }

    #[test]
    fn names_of_attributes_that_are_held() {
        for (name, held) in [
            (c"user.a", c"user.a"),
            (c"trusted.a", c"user.rsync.trusted.a"),
            (c"security.capability", c"user.rsync.security.capability"),
        ] {
            assert_eq!(held_name(name).as_ref(), held);
            assert_eq!(meant_name(held), Some(name));
        }
        for (name, held) in [(ACL_ACCESS, c"user.rsync.%aacl"), (ACL_DEFAULT, c"user.rsync.%dacl")] {
            assert_eq!((held_name(name).as_ref(), meant_name(held)), (held, Some(name)));
        }
        for none in [ATTRIBUTE, c"user.rsync.", c"user.rsync.user.a", c"user.rsync.system.posix_acl_access"] {
            assert_eq!(meant_name(none), None, "{none:?}");
        }
    }

    #[test]
    fn the_real_mode_gives_nobody_more() {
        let held = |kind, mode, gid| HeldStat { kind, mode, uid: 0, gid, rdev: 0 };
        for (kind, mode, gid, want) in [
            (Kind::File, 0o6755, 5, 0o755),
            (Kind::File, 0o640, 5, 0o640),
            // The real group is another one.
            (Kind::File, 0o640, 6, 0o600),
            (Kind::File, 0o675, 6, 0o655),
            (Kind::File, 0, 6, 0o600),
            (Kind::Dir, 0o1777, 5, 0o755),
            (Kind::Dir, 0o2711, 6, 0o711),
            (Kind::Dir, 0o050, 5, 0o750),
            (Kind::Link, 0o777, 5, 0o600),
            (Kind::CharDevice, 0o666, 5, 0o666),
        ] {
            assert_eq!(held(kind, mode, gid).real_mode(5), want, "{kind:?} {mode:o} {gid}");
        }
    }
}
