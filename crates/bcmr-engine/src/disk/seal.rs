//! Owner, attributes, mode and times, in the one order that works. Must not know where a file's bytes came from.
//!
//! The order and its reasons: owner first, because chown clears setuid, setgid and capabilities; attributes next,
//! while the owner may still write; then the mode, because a read-only file takes no attributes from its owner; then
//! capabilities, which some file systems take away with chmod too; times last, because everything before changes them. A file that
//! takes another one's place gets of it what writing into it would have left: owner, mode, ACL and extended attributes, as far as
//! the policy does not want the source's. Bits that lend the owner's rights (setuid, setgid) are set only on a file that has the
//! owner they were meant for.

use super::{Attributes, Body, Fault, Job, Keep, Kernel, Placement, SealedDir, Side, narrowed};
use crate::alter::OwnersAndModes;
use crate::error::{Code, Op, Reason};
use crate::held_acl::{self, AclKind, HeldAcl};
use crate::held_stat::{self, HeldStat};
use crate::policy::{Preserve, Privileged, Strictness};
use crate::stage;
use fastcopy::dir::{Dir, Name};
use fastcopy::errno;
use fastcopy::meta::{self, Info, Kind, Time};
use fastcopy::xattr::{self, ACL_ACCESS, ACL_DEFAULT, Of, XattrBuffer};
use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::io;
use std::mem::{Discriminant, discriminant};
use std::os::fd::AsFd;

const LEND: u32 = 0o6000;
const CAPABILITY: &CStr = c"security.capability";

/// What is sealed: by handle, or by name where nothing is ever opened.
#[derive(Clone, Copy)]
enum Thing<'a> {
    Open(std::os::fd::BorrowedFd<'a>),
    Named(&'a Dir, Name<'a>),
}

impl Thing<'_> {
    fn info(self) -> io::Result<Info> {
        match self {
            Thing::Open(fd) => Info::of(fd),
            Thing::Named(dir, name) => dir.stat(name),
        }
    }
    fn set_owner(self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        match self {
            Thing::Open(fd) => meta::set_owner(fd, uid, gid),
            Thing::Named(dir, name) => meta::set_owner_at(dir, name, uid, gid),
        }
    }
    fn set_mode(self, mode: u32) -> io::Result<()> {
        match self {
            Thing::Open(fd) => meta::set_mode(fd, mode),
            Thing::Named(dir, name) => meta::set_mode_at(dir, name, mode),
        }
    }
    fn set_times(self, accessed: Time, modified: Time) -> io::Result<()> {
        match self {
            Thing::Open(fd) => meta::set_times(fd, accessed, modified),
            Thing::Named(dir, name) => meta::set_times_at(dir, name, accessed, modified),
        }
    }
}

impl<'a> Thing<'a> {
    fn of(self) -> Of<'a> {
        match self {
            Thing::Open(fd) => Of::Handle(fd),
            Thing::Named(dir, name) => Of::At(dir, name),
        }
    }
}

/// Where attributes come from.
#[derive(Clone, Copy)]
enum From<'a> {
    Kernel(Of<'a>),
    Carried(&'a [(CString, Vec<u8>)]),
}

impl<'a> From<'a> {
    fn of(attributes: Attributes<'a>) -> From<'a> {
        match attributes {
            Attributes::Dir(dir) => From::Kernel(Of::Handle(dir.as_fd())),
            Attributes::At(dir, name) => From::Kernel(Of::At(dir, name)),
            Attributes::Carried(list) => From::Carried(list),
        }
    }

    fn read(
        self,
        side: Privileged,
        buffer: &mut XattrBuffer,
        wanted: impl Fn(&CStr) -> bool,
        mut each: impl FnMut(&CStr, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        match self {
            From::Kernel(of) => held_stat::read_attributes(of, side, buffer, wanted, each),
            From::Carried(list) => {
                list.iter().filter(|(name, _)| wanted(name)).try_for_each(|(name, value)| each(name, value))
            }
        }
    }
}

/// The mode a new thing is born with, before the umask: never more open than what it will have in the end.
pub(super) fn birth_mode(job: &Job<'_, impl Kernel>, keep: &Keep) -> u32 {
    let wanted = match (&job.there, keep.preserve.mode) {
        (_, true) => keep.alter.of(&job.info).mode,
        // A file that is replaced keeps its mode, as when cp writes into it.
        (Some(there), false) if there.kind == Kind::File => there.mode,
        (_, false) => job.info.mode,
    } & 0o777;
    // The owner may change: until then, no other user has access. And its owner must be able to give it attributes. In a
    // directory without a name, which no other user can enter, there is no need to be born with less than in the end: that
    // would cost a call for each file.
    let is_in_reach = !matches!(job.place, Placement::Final);
    if is_in_reach && (keep.preserve.owner || job.there.is_some()) {
        (wanted & 0o700) | 0o200
    } else if keep.preserve.xattr {
        wanted | 0o200
    } else {
        wanted
    }
}

/// Whether a new thing has at its birth all that it is to have, so that there is nothing to seal.
fn is_born_whole(job: &Job<'_, impl Kernel>, keep: &Keep) -> bool {
    let Preserve { mode, owner, times, xattr, acl, .. } = keep.preserve;
    let is_part =
        |job: &Job<'_, _>| matches!(&job.place, Placement::Stage(stage) if stage::is_part(stage.as_name()));
    !(mode || owner || times || xattr || acl) && job.there.is_none() && !is_part(job)
}

/// What new files in one directory are born as, once one of them was looked at: of one process, they have one owner there.
#[derive(Default)]
pub(super) struct Births {
    owner: Option<(Discriminant<Placement>, (u32, u32))>,
}

impl Births {
    /// What the new file of a job was born as.
    fn of(&mut self, thing: Thing<'_>, job: &Job<'_, impl Kernel>, keep: &Keep) -> io::Result<Info> {
        let is_plain = job.there.is_none()
            && matches!(thing, Thing::Open(_))
            && job.info.kind == Kind::File
            && !matches!(job.body, Body::Kept)
            && !keep.default_acl
            && !keep.preserve.at_dest.is_held();
        if !is_plain {
            return thing.info();
        }
        let placement = discriminant(&job.place);
        let expected = Info { mode: birth_mode(job, keep) & !keep.umask, ..job.info };
        if let Some((_, (uid, gid))) = self.owner.filter(|(of, _)| *of == placement) {
            return Ok(Info { uid, gid, ..expected });
        }
        let born = thing.info()?;
        self.owner = (born.mode == expected.mode).then_some((placement, (born.uid, born.gid)));
        Ok(born)
    }
}

/// Seals one job.
pub(super) fn job(
    buffer: &mut XattrBuffer,
    births: &mut Births,
    dir: &Dir,
    job: &mut Job<'_, impl Kernel>,
    keep: &Keep,
) {
    if is_born_whole(job, keep) {
        return;
    }
    let mut lost = std::mem::take(&mut job.lost);
    let sealed = seal_job(buffer, births, dir, job, keep, &mut lost);
    job.lost = lost;
    if let Err(fault) = sealed {
        job.fault = Some(fault);
    }
}

fn seal_job(
    buffer: &mut XattrBuffer,
    births: &mut Births,
    dir: &Dir,
    job: &Job<'_, impl Kernel>,
    keep: &Keep,
    lost: &mut Vec<Fault>,
) -> Result<(), Fault> {
    let p = &keep.preserve;
    let thing = match (&job.file, &job.body) {
        (Some(fd), _) => Thing::Open(fd.as_fd()),
        (None, Body::HardLink(..)) => return Ok(()),
        (None, _) => Thing::Named(dir, job.name_now()),
    };
    let of_source = match (&job.body, job.attributes) {
        (Body::File(fd), _) => From::Kernel(Of::Handle(fd.as_fd())),
        (_, attributes) => From::of(attributes),
    };
    // What the new thing shall have. A replaced file keeps owner and mode unless the policy says otherwise.
    let kept = job.there.filter(|t| t.kind == Kind::File && job.info.kind == Kind::File);
    let in_place = matches!(job.place, Placement::There);
    let meant = keep.alter.of(&job.info);
    let owner = match (p.owner, kept) {
        (true, _) => Some((meant.uid, meant.gid)),
        (false, Some(there)) if !in_place => Some((there.uid, there.gid)),
        _ => None,
    };
    let mode = match (p.mode, kept) {
        (true, _) => Some(meant.mode),
        (false, Some(there)) if !in_place => Some(there.mode & 0o777),
        // The stage of a resumable copy is born private, whatever the file is to be.
        (false, None) if stage::is_part(job.name_now()) => Some(mode_at_birth(dir, job.info.mode, keep)),
        // So is what waits for its owner, what replaces something that is no file, and what its owner must write attributes to.
        (false, None)
            if p.owner || !in_place && job.there.is_some() || p.xattr && job.info.mode & 0o200 == 0 =>
        {
            (job.info.kind == Kind::File).then(|| mode_at_birth(dir, job.info.mode, keep))
        }
        _ => None,
    };
    let told = p.owner || keep.strictness == Strictness::Archive;
    let stays = matches!(job.body, Body::Kept);
    let replaced = kept.filter(|_| !in_place).map(|there| Replaced { dir, name: job.name, there });
    let wanted = Wanted { owner, mode, owner_told: told, replaced, stays, keep };
    let born = || births.of(thing, job, keep);
    apply(buffer, thing, of_source, (&job.info, born), wanted, lost)?;
    // What lacks something that the same command may give it must not look like its source to that one.
    if p.times && !lost.iter().any(Fault::may_pass) {
        give_times(thing, &job.info, lost);
    }
    Ok(())
}

/// A file whose place another one takes, still under its name.
#[derive(Clone, Copy)]
struct Replaced<'a> {
    dir: &'a Dir,
    name: Name<'a>,
    there: Info,
}

impl Replaced<'_> {
    /// Gives `thing` the attributes that the old file has and that the policy does not take from the source. Says whether
    /// an ACL was among them.
    fn hand_down(
        self,
        thing: Thing<'_>,
        mode: Option<u32>,
        buffer: &mut XattrBuffer,
        keep: &Keep,
        lost: &mut Vec<Fault>,
    ) -> bool {
        let p = &keep.preserve;
        let exact = p.xattr && keep.strictness.drops_old();
        let wanted = |attr: &CStr| {
            let attr = attr.to_bytes();
            if is_acl(attr) { !p.acl } else { !exact && outlives_writing(attr) && !held_stat::hides(p, attr) }
        };
        let (mut found, mut failed) = (Vec::new(), None);
        let read = xattr::read(Of::At(self.dir, self.name), buffer, wanted, |attr, value| {
            found.push((attr.to_owned(), value.to_vec()));
            Ok(())
        });
        match read {
            // Where there are no second names it lost its own to be kept. A run that keeps takes attributes from the source.
            Err(e) if Code::of(&e) == Code::NotFound => {}
            Err(e) => lost.push(loss(Op::ReadAttributesOf, e)),
            Ok(()) => {}
        }
        // What was put in its place meanwhile is another file, whose attributes are not wanted.
        if !found.is_empty() && !self.dir.stat(self.name).is_ok_and(|now| now.id() == self.there.id()) {
            found.clear();
        }
        let mut had_acl = false;
        for (attr, value) in &found {
            let is_access = attr.as_c_str() == ACL_ACCESS;
            had_acl |= is_access;
            // L5: an ACL sets a mode, and this one's is the old file's.
            let acl = mode.filter(|_| is_access).zip(HeldAcl::of_kernel(value));
            let meant = acl.map(|(mode, acl)| acl.with_mode(mode).kernel());
            match xattr::set(thing.of(), attr, meant.as_ref().unwrap_or(value)) {
                // Labels are the system's to give.
                Err(e) if !(attr.to_bytes().starts_with(b"security.") && Code::of(&e) == Code::Denied) => {
                    failed.get_or_insert(e);
                }
                _ => {}
            }
        }
        // What the directory hands down to new files the old one need not have.
        if keep.default_acl
            && !p.acl
            && !had_acl
            && let Err(e) = xattr::remove(thing.of(), ACL_ACCESS)
        {
            failed.get_or_insert(e);
        }
        if let Some(e) = failed {
            lost.push(loss(Op::SetAttributesOf, e));
        }
        had_acl
    }
}

/// Whether a file still has this attribute once it was written into: the kernel takes its capabilities away, and what is
/// signed is not what it was.
fn outlives_writing(attr: &[u8]) -> bool {
    attr != CAPABILITY.to_bytes() && attr != b"security.ima"
}

/// The mode that something would have got by being made with `mode` in `dir`: under the umask or, where there is one, the
/// directory's default ACL. A directory hands its own down, so of a new one it is the same as of the one above.
fn mode_at_birth(dir: &Dir, mode: u32, keep: &Keep) -> u32 {
    let mut value = Vec::new();
    match xattr::get(Of::Handle(dir.as_fd()), ACL_DEFAULT, &mut value) {
        Ok(Some(acl)) => mode & 0o777 & acl_mode(acl),
        _ => mode & 0o777 & !keep.umask,
    }
}

/// The mode that an ACL in the kernel's form amounts to: a version, then tag, permissions and id of each entry (acl(5)).
fn acl_mode(acl: &[u8]) -> u32 {
    let of = |wanted: u16| {
        acl.get(4..).unwrap_or_default().chunks_exact(8).find_map(|entry| match entry {
            [t0, t1, p0, p1, ..] if u16::from_le_bytes([*t0, *t1]) == wanted => {
                Some(u32::from(u16::from_le_bytes([*p0, *p1])) & 7)
            }
            _ => None,
        })
    };
    const USER_OBJ: u16 = 1;
    const GROUP_OBJ: u16 = 4;
    const MASK: u16 = 0x10;
    const OTHER: u16 = 0x20;
    let group = of(MASK).or(of(GROUP_OBJ)).unwrap_or(0);
    of(USER_OBJ).unwrap_or(0) << 6 | group << 3 | of(OTHER).unwrap_or(0)
}

/// Seals a directory after all that is in it. `own_mode` is what an unpreserved directory gets.
pub(super) fn dir(
    buffer: &mut XattrBuffer,
    dst: &Dir,
    src: Attributes<'_>,
    info: &Info,
    keep: &Keep,
) -> SealedDir {
    let p = &keep.preserve;
    let mut lost = Vec::new();
    let meant = keep.alter.of(info);
    let owner = p.owner.then_some((meant.uid, meant.gid));
    // Without -p: the source's bits with sticky under the umask, or under the default ACL that it was born with, like cp;
    // setgid that came with the parent stays.
    let mode = match (p.mode, keep.default_acl) {
        (true, _) => Some(meant.mode),
        (false, _) if keep.was_there => None,
        (false, true) => {
            // What the umask takes from others it takes there too.
            let mode = info.mode & !(0o022 & keep.umask);
            Some(mode_at_birth(dst, mode, keep) | info.mode & 0o1000)
        }
        (false, false) => Some(info.mode & 0o1777 & !keep.umask),
    };
    let thing = Thing::Open(dst.as_fd());
    let source = From::of(src);
    let wanted = Wanted { owner, mode, owner_told: p.owner, replaced: None, stays: false, keep };
    let set_attributes = apply(buffer, thing, source, (info, || thing.info()), wanted, &mut lost);
    let set_attributes = set_attributes.unwrap_or_else(|fault| {
        lost.push(fault);
        false
    });
    // A run that finds nothing to do writes nothing either. Listing has changed the time of the last access, which is not put back.
    let has_it = || keep.was_there && thing.info().is_ok_and(|now| now.mtime == info.mtime);
    if p.times && !has_it() {
        give_times(thing, info, &mut lost);
    }
    SealedDir { lost, set_attributes }
}

/// Sets the times of the source. The kernel sets the nearest that a file system can hold and says nothing (ext4 ends in 2446 and
/// begins in 1901, xfs ends in 2486): what not every one holds is looked at once more.
fn give_times(thing: Thing<'_>, info: &Info, lost: &mut Vec<Fault>) {
    let is_rare = |time: &Time| i32::try_from(time.sec).is_err();
    let set = thing.set_times(info.atime, info.mtime).and_then(|()| {
        let is_plain = ![info.atime, info.mtime].iter().any(is_rare);
        Ok(if is_plain { None } else { Some(thing.info()?) })
    });
    let strays = |wanted: Time, has: Time| is_rare(&wanted) && wanted.sec.abs_diff(has.sec) >= COARSEST_SEC;
    match set {
        Ok(Some(now)) if strays(info.atime, now.atime) || strays(info.mtime, now.mtime) => {
            let note = Reason::TimesNotHeld;
            lost.push(Fault::ours(Side::Dest, Op::SetTimesOf, Code::MetadataLost, note));
        }
        Ok(_) => {}
        Err(e) => lost.push(loss(Op::SetTimesOf, e)),
    }
}

/// The most that a time is rounded by where it is held: FAT has the day of a last access.
const COARSEST_SEC: u64 = 24 * 60 * 60;

fn loss(op: Op, e: io::Error) -> Fault {
    Fault { code: Code::of_loss(&e), ..Fault::os(Side::Dest, op, e) }
}

/// The same of an attribute, which may not fit though the disk is not full.
fn loss_of_attribute(thing: Thing<'_>, op: Op, e: io::Error) -> Fault {
    if e.raw_os_error() == Some(errno::ENOSPC) && thing.of().takes_no_more().unwrap_or(false) {
        return Fault::ours(Side::Dest, op, Code::MetadataLost, Reason::AttributesDoNotFit);
    }
    loss(op, e)
}

/// What a new thing is to have.
struct Wanted<'a> {
    owner: Option<(u32, u32)>,
    mode: Option<u32>,
    /// It is told when the owner cannot be kept.
    owner_told: bool,
    replaced: Option<Replaced<'a>>,
    /// It is a file that was there and has its content.
    stays: bool,
    keep: &'a Keep,
}

/// Says whether it lacked an attribute of the source, or had one that goes.
fn apply(
    buffer: &mut XattrBuffer,
    thing: Thing<'_>,
    source: From<'_>,
    (info, born): (&Info, impl FnOnce() -> io::Result<Info>),
    wanted: Wanted<'_>,
    lost: &mut Vec<Fault>,
) -> Result<bool, Fault> {
    let Wanted { owner, mode, owner_told, replaced, stays, keep } = wanted;
    let (p, kind) = (&keep.preserve, info.kind);
    // Without anything to keep there is nothing to ask for: the kernel gave it owner and mode at birth.
    if owner.is_none() && mode.is_none() && !p.xattr && !p.acl {
        return Ok(false);
    }
    let born = born().map_err(|e| Fault::os(Side::Dest, Op::Stat, e))?;
    // With no owner to keep, a file lends its rights only if it is born with the one that set the bits.
    let mut owned = owner.is_some() || kind != Kind::File || (born.uid, born.gid) == (info.uid, info.gid);
    // A hole in the ice: attributes of a link other than these two families cannot exist, ACLs on links neither.
    let acl = p.acl && kind != Kind::Link;
    let holds = p.at_dest.is_held();
    let held = meant_for(info, owner, mode, &born);
    // What it has already is not written once more: a run that finds nothing to do writes nothing.
    let was_there = stays || kind == Kind::Dir && keep.was_there;
    if holds {
        // L5: what an ACL grants is known before the mode opens anything.
        let to_hold = if acl { access_acl(source, p.at_source, buffer, lost) } else { AclToHold::Nothing };
        // Before the attributes of the source: its owner may write them by the mode that it really gets.
        hold(thing, &born, (held, &to_hold), was_there, lost);
        owned = true;
    } else if let Some((uid, gid)) = owner
        && (born.uid, born.gid) != (uid, gid)
    {
        // L5: the new group may not read for a moment what it may not in the end. Where the mode cannot be set, that is told below.
        if let Some(narrow) =
            mode.filter(|_| kind != Kind::Link).and_then(|mode| narrowed(kind, born.mode, mode))
        {
            let _told_below = thing.set_mode(narrow);
        }
        owned = set_owner(thing, &born, (uid, gid), owner_told, keep, lost);
        // A group that could not be given stays what writing into the old file would have left.
        if !owned
            && let Some(old) = replaced.filter(|old| old.there.gid != born.gid)
            && thing.info().is_ok_and(|now| now.gid == born.gid)
            && let Err(e) = thing.set_owner(None, Some(old.there.gid))
            && owner_told
        {
            lost.push(loss(Op::SetOwnerOf, e));
        }
    }
    let mut had_acl = replaced.is_some_and(|replaced| replaced.hand_down(thing, mode, buffer, keep, lost));
    let mut setting = Setting::of(was_there);
    if p.xattr || acl {
        // A directory may have been there before; anything may have inherited an ACL.
        let clears = kind == Kind::Dir || stays || keep.default_acl;
        let copy = AttributeCopy { kind, acl, mode: held.mode, clears, stays, keep };
        had_acl |= copy.run(buffer, thing, source, &mut setting, lost);
        setting.end(thing, lost);
    }
    if let Some(mode) = mode.filter(|_| kind != Kind::Link && !holds) {
        // A directory's inherited setgid stays when the mode is not kept.
        let inherited = if kind == Kind::Dir && !p.mode { born.mode & 0o2000 } else { 0 };
        // chown may have cleared bits since `born`; an ACL may have set others. Only a plain birth is trusted.
        let untouched = owner.is_none_or(|o| o == (born.uid, born.gid)) && !had_acl && !keep.default_acl;
        let now = match (untouched, was_there) {
            (true, _) => Some(born.mode),
            (false, true) => thing.info().ok().map(|now| now.mode),
            (false, false) => None,
        };
        // mv says nothing where the owner cannot be kept, nor of what goes with it.
        let tells = kind == Kind::File && keep.strictness != Strictness::LikeMv;
        settle_mode(thing, (mode, inherited), (owned, tells), now, lost);
    }
    Ok(setting.end_after_mode(thing, lost))
}

/// The source's attributes, given to what is sealed.
struct AttributeCopy<'a> {
    kind: Kind,
    /// ACLs are among them.
    acl: bool,
    /// What an ACL that is held stands beside.
    mode: u32,
    /// There may be some that are not the source's.
    clears: bool,
    stays: bool,
    keep: &'a Keep,
}

impl AttributeCopy<'_> {
    /// Says whether an access ACL was among them.
    fn run(
        &self,
        buffer: &mut XattrBuffer,
        thing: Thing<'_>,
        source: From<'_>,
        setting: &mut Setting,
        lost: &mut Vec<Fault>,
    ) -> bool {
        let &AttributeCopy { kind, acl, mode, clears, stays, keep } = self;
        let p = &keep.preserve;
        let holds = p.at_dest.is_held();
        let wanted = |name: &CStr| {
            let name = name.to_bytes();
            if is_acl(name) { acl } else { p.xattr && !held_stat::hides(p, name) }
        };
        let (mut had_acl, mut unheld) = (false, false);
        let mut had: Vec<CString> = Vec::new();
        let copied = source.read(p.at_source, buffer, wanted, |name, value| {
            had_acl |= name == ACL_ACCESS;
            let value = if holds {
                held_value(name, value, mode, &mut unheld)
            } else {
                Some(as_meant(kind, p, &keep.alter, (name.to_bytes(), value)))
            };
            let Some(value) = value else { return Ok(()) };
            let name = &*if holds { held_stat::held_name(name) } else { Cow::Borrowed(name) };
            if clears {
                had.push(name.to_owned());
            }
            setting.set(thing, name, &value);
            Ok(())
        });
        if unheld {
            lost.push(Fault::ours(Side::Dest, Op::SetAttributesOf, Code::MetadataLost, Reason::AclNotHeld));
        }
        match copied {
            Ok(()) if clears => {
                let all = p.xattr && keep.strictness.drops_old();
                let foreign = |name: &[u8]| {
                    !(holds && name == held_stat::ATTRIBUTE.to_bytes())
                        && if is_acl(name) || holds && held_stat::is_held_acl(name) {
                            acl
                        } else {
                            all && is_own(name) || stays && !outlives_writing(name)
                        }
                };
                let removed = foreign_of(thing.of(), buffer, &had, foreign).and_then(|found| {
                    setting.changed |= !found.is_empty();
                    found.iter().try_for_each(|name| xattr::remove(thing.of(), name))
                });
                if let Err(e) = removed {
                    lost.push(loss(Op::RemoveAttributesOf, e));
                }
            }
            Ok(()) => {}
            Err(e) => lost.push(Fault { side: Side::Source, ..loss(Op::ReadAttributesOf, e) }),
        }
        had_acl
    }
}

/// Gives `thing` its mode, unless that is what it has `now`; without setuid and setgid where it does not have the owner that they
/// were meant for. The inherited bits stay in any case.
fn settle_mode(
    thing: Thing<'_>,
    (mode, inherited): (u32, u32),
    (owned, tells): (bool, bool),
    now: Option<u32>,
    lost: &mut Vec<Fault>,
) {
    let lend = mode & LEND;
    let mode = if owned { mode } else { mode & !LEND };
    if !owned && lend != 0 && tells {
        let note = Reason::SetidLeftOut;
        lost.push(Fault::ours(Side::Dest, Op::SetModeOf, Code::MetadataLost, note));
    }
    let mode = mode | inherited;
    if now != Some(mode)
        && let Err(e) = thing.set_mode(mode)
    {
        lost.push(loss(Op::SetModeOf, e));
    }
}

/// What something is to be, where it belongs to this user as `born` and the rest is held beside.
fn meant_for(info: &Info, owner: Option<(u32, u32)>, mode: Option<u32>, born: &Info) -> HeldStat {
    let (uid, gid) = owner.unwrap_or((born.uid, born.gid));
    HeldStat { mode: mode.unwrap_or(born.mode), uid, gid, ..HeldStat::of(info) }
}

/// An attribute's value where it is held, beside this mode. Nothing where the mode says all of it, or where an ACL cannot be held, which
/// `unheld` says then.
fn held_value<'v>(name: &CStr, value: &'v [u8], mode: u32, unheld: &mut bool) -> Option<Cow<'v, [u8]>> {
    if !is_acl(name.to_bytes()) {
        return Some(Cow::Borrowed(value));
    }
    let acl = HeldAcl::of_kernel(value);
    *unheld |= acl.is_none();
    let which = if name == ACL_ACCESS { AclKind::Access(mode) } else { AclKind::Default };
    acl?.value(which).map(Cow::Owned)
}

/// The ACL that something is to hold.
enum AclToHold {
    /// It has none.
    Nothing,
    Acl(HeldAcl),
    /// One that nothing can hold, or that could not be read.
    Other,
}

/// The access ACL of a source.
fn access_acl(
    source: From<'_>,
    side: Privileged,
    buffer: &mut XattrBuffer,
    lost: &mut Vec<Fault>,
) -> AclToHold {
    let mut found = AclToHold::Nothing;
    let read = source.read(
        side,
        buffer,
        |name| name == ACL_ACCESS,
        |_, value| {
            found = HeldAcl::of_kernel(value).map_or(AclToHold::Other, AclToHold::Acl);
            Ok(())
        },
    );
    if let Err(e) = read {
        lost.push(Fault { side: Side::Source, ..loss(Op::ReadAttributesOf, e) });
        return AclToHold::Other;
    }
    found
}

/// The mode that something really gets that holds this and belongs to this group.
fn real_mode(meant: HeldStat, acl: &AclToHold, gid: u32) -> u32 {
    let mode = match acl {
        AclToHold::Nothing => meant.mode,
        AclToHold::Acl(acl) => acl.closed(meant.mode),
        // Whom it keeps out is not known.
        AclToHold::Other => meant.mode & !0o077,
    };
    HeldStat { mode, ..meant }.real_mode(gid)
}

/// Gives a directory that was there what it held before; the ACL that it holds stays.
pub(crate) fn hold_again(dir: &Dir, meant: HeldStat) -> io::Result<()> {
    let (mut lost, mut value) = (Vec::new(), Vec::new());
    let held = xattr::get(Of::Handle(dir.as_fd()), held_acl::ACCESS, &mut value)?;
    let acl = held.map_or(AclToHold::Nothing, |value| {
        HeldAcl::parsed(value, AclKind::Access(meant.mode)).map_or(AclToHold::Other, AclToHold::Acl)
    });
    hold(Thing::Open(dir.as_fd()), &dir.info()?, (meant, &acl), true, &mut lost);
    lost.into_iter().next().and_then(|fault| fault.source).map_or(Ok(()), Err)
}

/// Gives `thing` as much of what it is to be as its owner can and may without root, and the attribute that says all of it where
/// that is not the same.
fn hold(
    thing: Thing<'_>,
    born: &Info,
    (meant, acl): (HeldStat, &AclToHold),
    was_there: bool,
    lost: &mut Vec<Fault>,
) {
    let mode = real_mode(meant, acl, born.gid);
    if mode != born.mode
        && let Err(e) = thing.set_mode(mode)
    {
        lost.push(loss(Op::SetModeOf, e));
    }
    let held = match thing.info() {
        Ok(real) => {
            let value = (!meant.is_plainly(&real)).then(|| meant.value());
            match &value {
                value if was_there && has(thing, held_stat::ATTRIBUTE, value.as_deref()) => Ok(()),
                Some(value) => xattr::set(thing.of(), held_stat::ATTRIBUTE, value),
                None => xattr::remove(thing.of(), held_stat::ATTRIBUTE),
            }
        }
        Err(e) => Err(e),
    };
    if let Err(e) = held {
        lost.push(loss(Op::HoldOwnerOf, e));
    }
}

/// Whether `thing` has this attribute with this value; with none, whether it lacks it.
fn has(thing: Thing<'_>, name: &CStr, value: Option<&[u8]>) -> bool {
    xattr::get(thing.of(), name, &mut Vec::new()).is_ok_and(|now| now == value)
}

/// Attributes of one thing as they are set.
#[derive(Default)]
struct Setting {
    /// It may have some of them.
    was_there: bool,
    /// Something was to be set or removed.
    changed: bool,
    /// The first error of an ACL, and of other attributes.
    failed_acl: Option<io::Error>,
    failed: Option<io::Error>,
    /// Whether the last was told.
    told: bool,
    /// What found no room beside what was there, which may become less.
    later: Vec<(CString, Vec<u8>)>,
    /// Capabilities: some file systems (fuse-overlayfs) take them away when the mode is set.
    after_mode: Option<Vec<u8>>,
}

impl Setting {
    fn of(was_there: bool) -> Setting {
        Setting { was_there, ..Setting::default() }
    }

    fn set(&mut self, thing: Thing<'_>, name: &CStr, value: &[u8]) {
        if name == CAPABILITY {
            self.after_mode = Some(value.to_vec());
        } else {
            self.give(thing, name, value);
        }
    }

    fn give(&mut self, thing: Thing<'_>, name: &CStr, value: &[u8]) {
        if self.was_there && has(thing, name, Some(value)) {
            return;
        }
        self.changed = true;
        match xattr::set(thing.of(), name, value) {
            Ok(()) => {}
            Err(e) if Code::of(&e) == Code::NoSpace => self.later.push((name.to_owned(), value.to_vec())),
            Err(e) => self.fails(name, e),
        }
    }

    fn fails(&mut self, name: &CStr, e: io::Error) {
        let of = if is_acl(name.to_bytes()) { &mut self.failed_acl } else { &mut self.failed };
        of.get_or_insert(e);
    }

    /// Once what was there before is gone.
    fn end(&mut self, thing: Thing<'_>, lost: &mut Vec<Fault>) {
        for (name, value) in std::mem::take(&mut self.later) {
            if let Err(e) = xattr::set(thing.of(), &name, &value) {
                self.fails(&name, e);
            }
        }
        if let Some(e) = self.failed_acl.take() {
            lost.push(loss_of_attribute(thing, Op::SetAclOf, e));
        }
        if let Some(e) = self.failed.take()
            && !std::mem::replace(&mut self.told, true)
        {
            lost.push(loss_of_attribute(thing, Op::SetAttributesOf, e));
        }
    }

    /// Once it has its mode. Says whether there was anything to do.
    fn end_after_mode(mut self, thing: Thing<'_>, lost: &mut Vec<Fault>) -> bool {
        if let Some(value) = self.after_mode.take() {
            self.give(thing, CAPABILITY, &value);
            self.end(thing, lost);
        }
        self.changed
    }
}

/// What came from the directory above or was there before, and not from the source, as far as it is `foreign`: ACLs, and
/// where source and copy are to be alike in everything a person's own attributes; of a file that keeps its content also what
/// writing into it would have taken away. What the system puts on files (labels) stays.
fn foreign_of(
    of: Of<'_>,
    buffer: &mut XattrBuffer,
    had: &[CString],
    foreign: impl Fn(&[u8]) -> bool,
) -> io::Result<Vec<CString>> {
    let mut found: Vec<CString> = Vec::new();
    xattr::read(
        of,
        buffer,
        |name| foreign(name.to_bytes()),
        |name, _| {
            if !had.iter().any(|h| h.as_c_str() == name) {
                found.push(name.to_owned());
            }
            Ok(())
        },
    )?;
    Ok(found)
}

/// What sealing would change of the attributes of `name`, as far as an [`Info`] does not tell.
pub(super) fn differ(
    dir: &Dir,
    name: Name<'_>,
    src: Attributes<'_>,
    kind: Kind,
    keep: &Keep,
) -> io::Result<Option<Reason>> {
    let p = &keep.preserve;
    if !p.xattr && !p.acl {
        return Ok(None);
    }
    let source = match src {
        Attributes::Dir(dir) => attributes(Of::Handle(dir.as_fd()), kind, p, p.at_source)?,
        Attributes::At(dir, name) => attributes(Of::At(dir, name), kind, p, p.at_source)?,
        Attributes::Carried(list) => {
            list.iter().map(|(name, value)| (name.to_bytes().to_vec(), value.clone())).collect()
        }
    };
    let there = attributes(Of::At(dir, name), kind, p, p.at_dest)?;
    Ok(change(kind, p, (keep.strictness, &keep.alter), &source, &there))
}

/// Attributes, names and values.
pub(crate) type AttributeList = Vec<(Vec<u8>, Vec<u8>)>;

/// The attributes of something on one side, of those that the policy takes from a source.
pub(crate) fn attributes(
    of: Of<'_>,
    kind: Kind,
    p: &Preserve,
    side: Privileged,
) -> io::Result<AttributeList> {
    let acl = p.acl && kind != Kind::Link;
    let mut found = AttributeList::new();
    if p.xattr || acl {
        let wanted = |attr: &CStr| if is_acl(attr.to_bytes()) { acl } else { p.xattr };
        held_stat::read_attributes(of, side, &mut XattrBuffer::default(), wanted, |attr, value| {
            found.push((attr.to_bytes().to_vec(), value.to_vec()));
            Ok(())
        })?;
    }
    Ok(found)
}

/// An attribute of the source as something gets it: an ACL says the mode once more, so a mode that is other than the source's is in
/// it, too.
fn as_meant<'v>(
    kind: Kind,
    p: &Preserve,
    alter: &OwnersAndModes,
    (attr, value): (&[u8], &'v [u8]),
) -> Cow<'v, [u8]> {
    if !p.mode || attr != ACL_ACCESS.to_bytes() {
        return Cow::Borrowed(value);
    }
    let was = acl_mode(value);
    let mode = alter.mode(kind, was);
    match HeldAcl::of_kernel(value).filter(|_| mode & 0o777 != was) {
        Some(acl) => Cow::Owned(acl.with_mode(mode).kernel()),
        None => Cow::Borrowed(value),
    }
}

/// What sealing would change of the attributes that are `there` (both as [`attributes`] gives them): it sets the source's,
/// and removes an ACL that the source lacks and, for an archive, all that people gave. Of a file that is replaced nothing
/// stays that writing into it takes away.
pub(crate) fn change(
    kind: Kind,
    p: &Preserve,
    (strictness, alter): (Strictness, &OwnersAndModes),
    source: &AttributeList,
    there: &AttributeList,
) -> Option<Reason> {
    let exact = p.xattr && strictness.drops_old();
    // What XFS shows of an ACL is compared as the ACL that it is.
    let source = || source.iter().filter(|(attr, _)| !held_stat::hides(p, attr) && !xattr::shows_acl(attr));
    let goes =
        |attr: &[u8]| is_acl(attr) || exact && is_own(attr) || kind == Kind::File && !outlives_writing(attr);
    let lacks = |attr: &[u8]| !source().any(|(of_source, _)| of_source == attr);
    let has = |attr: &[u8], value: &[u8]| there.iter().any(|(name, now)| name == attr && now == value);
    let set = source().find(|(attr, value)| !has(attr, &as_meant(kind, p, alter, (attr, value))));
    let removed = || there.iter().find(|(attr, _)| goes(attr) && lacks(attr) && !xattr::shows_acl(attr));
    set.or_else(removed).map(|(attr, _)| if is_acl(attr) { Reason::ByAcl } else { Reason::ByAttributes })
}

fn is_acl(attr: &[u8]) -> bool {
    attr == ACL_ACCESS.to_bytes() || attr == ACL_DEFAULT.to_bytes()
}

/// Whether people gave it, and not the system.
fn is_own(attr: &[u8]) -> bool {
    [&b"user."[..], b"trusted."].iter().any(|family| attr.starts_with(family))
}

/// Whether the owner is now the one that was wanted.
fn set_owner(
    thing: Thing<'_>,
    born: &Info,
    (uid, gid): (u32, u32),
    told: bool,
    keep: &Keep,
    lost: &mut Vec<Fault>,
) -> bool {
    let Err(e) = thing.set_owner(Some(uid), Some(gid)) else { return true };
    // chown(2): a user namespace that does not have the number, so no process in it may give that.
    let e =
        if e.raw_os_error() == Some(errno::EINVAL) { io::Error::from_raw_os_error(errno::EPERM) } else { e };
    // Only root gives files away, but a group one is in may be set.
    let group = gid == born.gid || thing.set_owner(None, Some(gid)).is_ok();
    let not_allowed = Code::of(&e) == Code::Denied;
    let asked = uid != born.uid && keep.alter.gives_user(uid) || !group && keep.alter.gives_group(gid);
    // cp says nothing when a user cannot keep a foreign owner; an archive does, and so does a copy that was told whose it is to be.
    if told && (asked || !not_allowed || keep.strictness == Strictness::Archive) {
        lost.push(loss(Op::SetOwnerOf, e));
    }
    group && uid == born.uid
}

/// Whether a directory hands an ACL down to what is made in it.
pub(crate) fn has_default_acl(dir: &Dir) -> bool {
    let mut value = Vec::new();
    // Cannot be told: assume that it does, which costs a system call per file and loses nothing.
    xattr::get(Of::Handle(dir.as_fd()), ACL_DEFAULT, &mut value).map_or(true, |v| v.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sealing_changes_of_attributes() {
        let attrs = |text: &str| -> AttributeList {
            let one = |word: &str| match word.split_once('=').unwrap() {
                ("acl", value) => (ACL_ACCESS.to_bytes().to_vec(), value.into()),
                (name, value) => (name.into(), value.into()),
            };
            text.split_whitespace().map(one).collect()
        };
        use Strictness::{Archive, LikeCp, LikeMv};
        for (kind, strictness, source, there, want) in [
            (Kind::File, Archive, "user.a=1 acl=x", "acl=x user.a=1", None),
            (Kind::File, Archive, "user.a=1", "user.a=2", Some(Reason::ByAttributes)),
            (Kind::File, Archive, "acl=x", "acl=y", Some(Reason::ByAcl)),
            (Kind::File, LikeCp, "", "acl=y", Some(Reason::ByAcl)),
            (Kind::Dir, Archive, "", "user.own=1", Some(Reason::ByAttributes)),
            (Kind::Dir, LikeCp, "", "user.own=1", None),
            (Kind::File, LikeCp, "", "user.own=1", None),
            (Kind::File, LikeMv, "", "user.own=1", Some(Reason::ByAttributes)),
            // The system's own come and go with the system.
            (Kind::File, Archive, "", "security.selinux=label", None),
            (Kind::File, LikeCp, "", "security.capability=c", Some(Reason::ByAttributes)),
            (Kind::Dir, LikeCp, "", "security.capability=c", None),
            // Another machine may send what no copy has; and XFS shows an ACL once more.
            (Kind::File, Archive, "security.evm=x", "", None),
            (Kind::File, Archive, "trusted.SGI_ACL_FILE=x", "", None),
            (Kind::File, Archive, "", "trusted.SGI_ACL_FILE=x", None),
        ] {
            let got = change(
                kind,
                &Preserve::ALL,
                (strictness, &OwnersAndModes::NONE),
                &attrs(source),
                &attrs(there),
            );
            assert_eq!(got, want, "{kind:?} {strictness:?} {source:?} {there:?}");
        }
    }

    #[test]
    fn the_mode_of_an_acl() {
        let entry = |tag: u16, perm: u16| {
            let mut bytes = tag.to_le_bytes().to_vec();
            bytes.extend(perm.to_le_bytes());
            bytes.extend(u32::MAX.to_le_bytes());
            bytes
        };
        let acl = |entries: &[(u16, u16)]| {
            let mut bytes = 2u32.to_le_bytes().to_vec();
            bytes.extend(entries.iter().flat_map(|(t, p)| entry(*t, *p)));
            bytes
        };
        assert_eq!(acl_mode(&acl(&[(1, 7), (4, 5), (0x20, 1)])), 0o751);
        // With a mask the group's bits are the mask's; named users (2) do not count.
        assert_eq!(acl_mode(&acl(&[(1, 6), (2, 7), (4, 0), (0x10, 4), (0x20, 0)])), 0o640);
        assert_eq!(acl_mode(&[]), 0);
        assert_eq!(acl_mode(&acl(&[(1, 7)])[..9]), 0);
    }
}
