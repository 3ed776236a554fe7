//! The content of one file, with its attributes: under a new name, in place of an old file by one rename, or written into
//! what is there where the difference could be told.
//!
//! Must not know which files are copied.

use super::copier::{Copier, fault_error};
use super::options::Content;
use super::spot::{Spot, join, parent_shown};
use super::told::{Did, Noted, Trouble, What};
use crate::disk::compare;
use crate::disk::sys::Sys;
use crate::disk::{Attributes, Body, Fault, Fill, Job, Keep, Placement, Side};
use crate::error::{Code, Error, Op};
use crate::event::{Cancel, Event, Front, Progress, Question, Watch};
use crate::policy::{Changing, Durability, Sparse, Verify};
use crate::receiver::land::errno_of;
use crate::receiver::single::Folder;
use crate::verbs::stream;
use fastcopy::dir::Name;
use fastcopy::errno;
use fastcopy::heritage::InodeFlags;
use fastcopy::meta::{self, Info, Kind};
use fastcopy::sparse::is_zero;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// One file to copy.
pub(super) struct File<'f> {
    pub(super) src: &'f Spot,
    pub(super) dst: &'f Spot,
    /// The source, as it was looked at.
    pub(super) info: Info,
    /// What is at the destination, links followed.
    pub(super) there: Option<Info>,
    /// The source's link is followed.
    pub(super) follow: bool,
    /// What is there goes when the new file comes.
    pub(super) replace: bool,
    /// That the name is taken by now is for the caller to know.
    pub(super) may_be_taken: bool,
}

/// Nothing is told: the caller does that.
struct Silent;

impl Front for Silent {
    fn event(&self, _: Event) {}
    fn ask(&self, _: Question) -> bool {
        false
    }
}

/// What became of a file that is copied.
pub(super) enum FileEnd {
    /// Whether all was done; what was not is told.
    Done(bool),
    /// Another process has taken the name meanwhile: nothing was done or told.
    Taken,
}

/// Copies it.
pub(super) fn copy(copier: &mut Copier<'_>, file: &File<'_>) -> FileEnd {
    match opened(copier, file) {
        Ok((source, info)) if has_come(copier, file, &source, &info) => {
            land_file(copier, file, &source, &info)
        }
        Ok(_) => FileEnd::Done(false),
        Err(fine) => FileEnd::Done(fine),
    }
}

/// Waits for what a FIFO or a device gives, so that nothing happens to what is there before there is something to take its
/// place. What goes into another FIFO or device waits for nothing: who writes may be waiting for the reader.
fn has_come(copier: &mut Copier<'_>, file: &File<'_>, source: &OwnedFd, info: &Info) -> bool {
    let is_into_special = file.there.is_some_and(|there| there.kind.is_special());
    if !info.kind.is_special() || is_into_special || copier.options.content != Content::Copied {
        return true;
    }
    let src = &file.src.shown;
    match stream::has_come(source, src, &copier.options.cancel) {
        Ok(come) => come,
        Err(e) => copier.fail(What::Read, src, Noted::why(e.source, e.note, e.code)),
    }
}

/// The source, and what it is now.
fn opened(copier: &mut Copier<'_>, file: &File<'_>) -> Result<(OwnedFd, Info), bool> {
    let source = match file.src.open_file(file.follow) {
        Ok(source) => source,
        Err(e) => return Err(copier.fail(What::OpenForReading, &file.src.shown, e)),
    };
    match Info::of(&source) {
        Ok(info) if info.id() == file.info.id() => Ok((source, info)),
        Ok(_) => {
            let e = None;
            copier.teller.trouble(Trouble {
                what: What::Replaced,
                path: file.src.shown.clone(),
                other: None,
                why: e,
            });
            Err(false)
        }
        Err(e) => Err(copier.fail(What::OpenForReading, &file.src.shown, e)),
    }
}

fn land_file(copier: &mut Copier<'_>, file: &File<'_>, source: &OwnedFd, info: &Info) -> FileEnd {
    if let Some(there) = file.there {
        match existing(copier, file, source, info, &there) {
            Existing::Done(fine) => return FileEnd::Done(fine),
            Existing::Gone => {}
        }
    }
    match new(copier, file, source, info) {
        Ok(()) => FileEnd::Done(true),
        Err(end) => end,
    }
}

/// What became of a file that was there.
enum Existing {
    Done(bool),
    /// It was taken away (`-f`).
    Gone,
}

fn existing(
    copier: &mut Copier<'_>,
    file: &File<'_>,
    source: &OwnedFd,
    info: &Info,
    there: &Info,
) -> Existing {
    if there.kind.is_special() {
        return Existing::Done(into_special(copier, file, source, there));
    }
    // Whether it may be written is asked of the kernel in any case: where a program that writes into it would fail, this
    // one does.
    let opened = file.dst.open_to_write();
    let opened = match opened {
        Ok(opened) => opened,
        Err(_) if copier.options.force => {
            let removed =
                file.dst.place(errno::EBUSY).and_then(|(folder, name)| folder.dir.remove_file(name));
            if let Err(e) = removed
                && e.raw_os_error() != Some(errno::ENOENT)
            {
                return Existing::Done(copier.fail(What::Remove, &file.dst.shown, e));
            }
            if copier.options.verbose {
                copier.teller.did(Did::Removed(&file.dst.shown));
            }
            return Existing::Gone;
        }
        Err(e) => return Existing::Done(copier.fail(What::Create, &file.dst.shown, e)),
    };
    let by_link = file.dst.look(false).is_ok_and(|own| own.kind == Kind::Link);
    let plain = there.nlink == 1 && there.mode & 0o7000 == 0 && !by_link && info.kind == Kind::File;
    // A new file cannot be given another user's owner: nothing is even tried beside it.
    let plain = plain && [0, there.uid].contains(&copier.options.me);
    // Nor has it flags that were given to that one alone. Where names stay none can be taken over.
    let has_own_flags =
        |folder: &Folder| folder.flags().keep_names() || !InodeFlags::of(&opened).come_from(folder.flags());
    if plain
        && copier.options.content == Content::Copied
        && let Ok(place) = file.dst.place(errno::EISDIR)
        && !has_own_flags(place.0)
    {
        match replace(copier, file, place, source, info, there) {
            Replacement::Done(fine) => return Existing::Done(fine),
            Replacement::No => {}
        }
    }
    Existing::Done(write_into(copier, file, source, info, there, opened))
}

/// Whether the old file was replaced.
enum Replacement {
    Done(bool),
    /// Nothing was changed: the file is written into.
    No,
}

fn replace(
    copier: &mut Copier<'_>,
    file: &File<'_>,
    (folder, name): (&Folder, Name<'_>),
    source: &OwnedFd,
    info: &Info,
    there: &Info,
) -> Replacement {
    let body = match source.try_clone() {
        Ok(body) => body,
        Err(e) => return Replacement::Done(copier.fail(What::OpenForReading, &file.src.shown, e)),
    };
    let place = match folder.stage() {
        Ok(place) => place,
        Err(fault) => return Replacement::Done(content_failed(copier, file, fault)),
    };
    let attributes = Attributes::At(&folder.dir, name);
    let (wanted, keep) = sealing(copier, folder, info, true);
    let mut job = Job::new(name, place, wanted, Some(*there), Body::File(body), attributes);
    job.only_new = false;
    let landed = land(copier, (folder, &file.dst.shown), job, &keep, Some(info.dev));
    match landed.fault {
        None => Replacement::Done(copier.tell_lost_of(&file.src.shown, &file.dst.shown, landed.lost)),
        Some(fault) if is_of_content(&fault) => Replacement::Done(content_failed(copier, file, fault)),
        Some(_) => Replacement::No,
    }
}

/// Info and policy for sealing: the mode that is given, or the source's.
fn sealing(copier: &Copier<'_>, folder: &Folder, info: &Info, there: bool) -> (Info, Keep) {
    let keep = copier.keep_for(folder);
    let (mut info, mut preserve) =
        if there { (*info, keep.preserve) } else { copier.final_mode(info, &keep) };
    if let Some(given) = &copier.options.given {
        info.mode = given.mode;
        info.uid = given.uid.unwrap_or(copier.options.me);
        // A directory hands its group down where it has setgid.
        let above = folder.dir.info().ok().filter(|above| above.mode & 0o2000 != 0);
        info.gid = given.gid.unwrap_or(above.map_or(copier.options.group, |above| above.gid));
        preserve.mode = true;
    }
    (info, Keep { preserve, ..keep })
}

fn land(
    copier: &mut Copier<'_>,
    (folder, dst): (&Folder, &Path),
    job: Job<'_, Sys>,
    keep: &Keep,
    dev: Option<u64>,
) -> crate::receiver::single::LandedOne {
    let cancel = copier.options.cancel.clone();
    let waits = move || !cancel.is_set();
    let observe = |_| waits();
    let dev = folder.dir.info().map_or(dev.unwrap_or(0), |info| info.dev);
    let how = Fill {
        reflink: copier.options.reflink,
        sparse: copier.options.sparse,
        verify: Verify::Off,
        hash: false,
        durability: Durability::Cache,
        threads: copier.options.threads,
        changing: Changing::AsRead,
        dev,
        observe: &observe,
        waits: &waits,
        work: None,
    };
    // What is a stream was filled by now.
    let fill = copier.options.content == Content::Copied && job.body.is_file();
    let new = job.there.is_none();
    let plain = copier.options.plain_mode.then_some(0o666 & !keep.umask);
    let bare = copier.options.given.map(|given| given.mode).or(plain).filter(|_| new && keep.default_acl);
    let how = fill.then_some(&how);
    if !copier.options.alters {
        return copier.single.land(folder, job, keep, how, bare, None);
    }
    let parent = parent_shown(dst).to_owned();
    let teller = &mut *copier.teller;
    let mut alter = |name: Name<'_>| teller.alter(&join(&parent, name.bytes()));
    copier.single.land(folder, job, keep, how, bare, Some(&mut alter))
}

/// Whether writing it elsewhere would do no better. Only where a new file cannot be beside the old one, or cannot be given
/// what that has, is the old one itself written into: what else goes wrong with the new one (no descriptors, no memory, a
/// broken disk) would go wrong with the old one too, once it is empty.
fn is_of_content(fault: &Fault) -> bool {
    let named = matches!(fault.op, Op::Create | Op::NameAStageFor | Op::RenameIntoPlace);
    let sealed = matches!(
        fault.op,
        Op::SetOwnerOf
            | Op::SetModeOf
            | Op::SetTimesOf
            | Op::SetAclOf
            | Op::SetAttributesOf
            | Op::ReadAttributesOf
            | Op::RemoveAttributesOf
    );
    let refused = match errno_of(fault) {
        Some(errno) => REFUSED_BESIDE.contains(&errno),
        // Bits that were left out, which the file that is there may keep.
        None => sealed,
    };
    !(refused && (named || sealed)) || fault.side == Side::Source
}

/// What the system says where a directory takes no new name (ENOENT: /proc), a name cannot be replaced (EBUSY: something is
/// mounted there; EXDEV: the quota of another project), or a new file cannot be given what the old one has (EINVAL: a user
/// who is not known there).
const REFUSED_BESIDE: [i32; 10] = [
    errno::EACCES,
    errno::EPERM,
    errno::EROFS,
    errno::ENOENT,
    errno::EBUSY,
    errno::EXDEV,
    errno::EINVAL,
    errno::EOPNOTSUPP,
    errno::ENOSYS,
    errno::ENAMETOOLONG,
];

fn content_failed(copier: &mut Copier<'_>, file: &File<'_>, fault: Fault) -> bool {
    let (src, dst) = (&file.src.shown, &file.dst.shown);
    let op = fault.op;
    let from_source = fault.side == Side::Source;
    let e = fault_error(fault);
    match op {
        Op::CloneTo => copier.fail_two(What::Clone, dst, src, Some(e)),
        Op::Read => copier.fail(What::Read, src, e),
        _ if from_source => copier.fail(What::Read, src, e),
        Op::Create | Op::NameAStageFor | Op::RenameIntoPlace => copier.fail(What::Create, dst, e),
        Op::Copy => copier.fail_two(What::Copy, src, dst, Some(e)),
        _ => copier.fail(What::Write, dst, e),
    }
}

/// Written into: it has other names, or is another user's, or nothing can be made beside it.
fn write_into(
    copier: &mut Copier<'_>,
    file: &File<'_>,
    source: &OwnedFd,
    info: &Info,
    there: &Info,
    opened: OwnedFd,
) -> bool {
    let Ok((folder, name)) = file.dst.place(errno::EISDIR) else {
        return copier.fail(What::Create, &file.dst.shown, io::Error::from_raw_os_error(errno::EISDIR));
    };
    let attributes_only = copier.options.content == Content::AttributesOnly;
    // All that is needed to read is there before the old content goes.
    let source = match source.try_clone() {
        Ok(source) => source,
        Err(e) => return copier.fail(What::OpenForReading, &file.src.shown, e),
    };
    let is_stream = info.kind.is_special() && !attributes_only;
    let filled = match is_stream.then(|| opened.try_clone()).transpose() {
        Ok(filled) => filled,
        Err(e) => return copier.fail(What::Create, &file.dst.shown, e),
    };
    if !attributes_only && let Err(e) = meta::set_length(&opened, 0) {
        return copier.fail(What::Create, &file.dst.shown, e);
    }
    let attributes = Attributes::At(&folder.dir, name);
    let (wanted, keep) = sealing(copier, folder, info, true);
    if is_stream {
        if !pour(copier, file, source, opened) {
            return false;
        }
        // It is a file with the attributes of what it was read from.
        let wanted = Info { kind: Kind::File, ..wanted };
        let mut job = Job::new(name, Placement::There, wanted, Some(*there), Body::Special, attributes);
        job.file = filled;
        let landed = copier.single.land(folder, job, &keep, None, None, None);
        return match landed.fault {
            None => copier.tell_lost_of(&file.src.shown, &file.dst.shown, landed.lost),
            Some(fault) => content_failed(copier, file, fault),
        };
    }
    let body = Body::File(source);
    let mut job = Job::new(name, Placement::There, wanted, Some(*there), body, attributes);
    job.file = Some(opened);
    let landed = land(copier, (folder, &file.dst.shown), job, &keep, None);
    match landed.fault {
        None => copier.tell_lost_of(&file.src.shown, &file.dst.shown, landed.lost),
        Some(fault) => content_failed(copier, file, fault),
    }
}

/// Bytes as they come, with holes for zeros.
struct Pieces {
    to: std::fs::File,
}

/// What a hole is made of, as GNU's does.
const HOLE_BYTES: usize = 4096;

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_hole = |piece: &[u8]| piece.len() == HOLE_BYTES && is_zero(piece);
        let pieces = bytes.chunks(HOLE_BYTES);
        let empty: usize = pieces.clone().take_while(|piece| is_hole(piece)).map(<[u8]>::len).sum();
        if empty > 0 {
            self.to.seek_relative(empty as i64)?;
            return Ok(empty);
        }
        let full: usize = pieces.take_while(|piece| !is_hole(piece)).map(<[u8]>::len).sum();
        self.to.write(bytes.get(..full).unwrap_or(bytes))
    }

    /// A hole at the end is one by the file's length alone.
    fn flush(&mut self) -> io::Result<()> {
        let end = self.to.stream_position()?;
        self.to.set_len(end)
    }
}

fn pour(copier: &mut Copier<'_>, file: &File<'_>, source: OwnedFd, to: OwnedFd) -> bool {
    let progress = Progress::default();
    let cancel: Arc<Cancel> = copier.options.cancel.clone();
    let watch = Watch { front: &Silent, progress: &progress, cancel: &cancel, items: false };
    let is_file = Info::of(&to).is_ok_and(|info| info.kind == Kind::File);
    let holes = is_file && copier.options.sparse == Sparse::Always;
    let mut from = std::fs::File::from(source);
    let (src, dst) = (&file.src.shown, &file.dst.shown);
    let poured = if holes {
        let mut to = Pieces { to: std::fs::File::from(to) };
        let put = |piece: &[u8]| to.write_all(piece).map(|()| true);
        let poured = stream::pour(&mut from, stream::PIECE_BYTES, put, src, dst, watch);
        poured.and_then(|_| to.flush().map_err(|e| Error::os(Op::Write, dst, e)))
    } else {
        stream::pour_into(&mut from, &to, src, dst, watch).map(drop)
    };
    match poured {
        Ok(()) => !cancel.is_set(),
        Err(e) => {
            let what = if e.op == Op::Read { What::Read } else { What::Write };
            let path = if e.op == Op::Read { &file.src.shown } else { &file.dst.shown };
            copier.fail(what, path, Noted::why(e.source, e.note, e.code))
        }
    }
}

fn stream_into(copier: &mut Copier<'_>, file: &File<'_>, source: &OwnedFd, opened: OwnedFd) -> bool {
    match source.try_clone() {
        Ok(source) => pour(copier, file, source, opened),
        Err(e) => copier.fail(What::OpenForReading, &file.src.shown, e),
    }
}

/// Into a FIFO or a device: bytes, in order.
fn into_special(copier: &mut Copier<'_>, file: &File<'_>, source: &OwnedFd, there: &Info) -> bool {
    // Waits for a reader, as the user of a FIFO expects.
    let opened = match stream::open(&file.dst.shown, there.kind, &copier.options.cancel) {
        Ok(Some(opened)) => opened,
        Ok(None) => return false,
        Err(e) => return copier.fail(What::Create, &file.dst.shown, e),
    };
    if copier.options.content == Content::AttributesOnly {
        return true;
    }
    // What it is belongs to the system: it keeps mode, owner and times.
    stream_into(copier, file, source, opened)
}

/// Under a name that is free, or whose file goes with it.
fn new(copier: &mut Copier<'_>, file: &File<'_>, source: &OwnedFd, info: &Info) -> Result<(), FileEnd> {
    let create = |copier: &mut Copier<'_>, e| FileEnd::Done(copier.fail(What::Create, &file.dst.shown, e));
    let (folder, name) = file.dst.new_place(errno::ENOTDIR).map_err(|e| create(copier, e))?;
    if !file.replace && folder.dir.look(name).is_ok_and(|own| own.is_some_and(|own| own.kind == Kind::Link)) {
        if !copier.options.through_dangling {
            copier.refuse(What::Dangling, &file.dst.shown);
            return Err(FileEnd::Done(false));
        }
        return match file.dst.target() {
            Ok(mut target) if target.look(false).is_err() => {
                target.shown.clone_from(&file.dst.shown);
                new(copier, &File { dst: &target, ..*file }, source, info)
            }
            _ => Err(create(copier, io::Error::from_raw_os_error(errno::EEXIST))),
        };
    }
    let body = source
        .try_clone()
        .map_err(|e| FileEnd::Done(copier.fail(What::OpenForReading, &file.src.shown, e)))?;
    let (mut wanted, keep) = sealing(copier, folder, info, false);
    let is_stream = info.kind.is_special() && copier.options.content == Content::Copied;
    // What is a stream lands as a file, and has no attributes of the thing that it was read from.
    wanted.kind = Kind::File;
    let attributes = if is_stream { Attributes::Carried(&[]) } else { Attributes::At(&folder.dir, name) };
    let stage = folder.place(!copier.options.alters);
    let stage = stage.map_err(|fault| create(copier, fault_error(fault)))?;
    let mut job = Job::new(name, stage, wanted, None, Body::File(body), attributes);
    job.only_new = !file.replace;
    if is_stream {
        fill_from_stream(copier, file, folder, &mut job, &keep);
    }
    let landed = land(copier, (folder, &file.dst.shown), job, &keep, Some(info.dev));
    let fine = match landed.fault {
        None => copier.tell_lost_of(&file.src.shown, &file.dst.shown, landed.lost),
        // What a stream gave is not to be had once more.
        Some(fault) if file.may_be_taken && !is_stream && fault.is_taken() => return Err(FileEnd::Taken),
        Some(fault) if is_of_content(&fault) => content_failed(copier, file, fault),
        Some(fault) => copier.fail(What::Create, &file.dst.shown, fault_error(fault)),
    };
    if fine { Ok(()) } else { Err(FileEnd::Done(false)) }
}

/// What a FIFO or device gives, straight into the file that is to have the name. What goes wrong with it is told here.
fn fill_from_stream(
    copier: &mut Copier<'_>,
    file: &File<'_>,
    folder: &Folder,
    job: &mut Job<'_, Sys>,
    keep: &Keep,
) {
    // A run that is killed while it waits for more leaves nothing, where a file may be without a name.
    let staged = std::mem::replace(&mut job.place, Placement::Unnamed);
    let unnamed = job.only_new && !copier.options.alters;
    if unnamed {
        copier.single.stage(folder, job, keep);
    }
    if !unnamed || job.fault.as_ref().is_some_and(|fault| fault.code != Code::NoSpace) {
        (job.place, job.fault) = (staged, None);
        copier.single.stage(folder, job, keep);
    }
    if let (Body::File(source), Some(to), None) =
        (std::mem::replace(&mut job.body, Body::Special), &job.file, &job.fault)
    {
        let poured = to.try_clone().map(|to| pour(copier, file, source, to));
        job.fault = match poured {
            Ok(true) => None,
            Ok(false) => Some(Fault::interrupted()),
            Err(e) => Some(Fault::os(Side::Dest, Op::Create, e)),
        };
    }
}

/// What `install -C` looks at: whether the destination is already all that it would become.
pub(super) fn is_installed(copier: &Copier<'_>, file: &File<'_>, there: &Info) -> bool {
    let Some(given) = copier.options.given.filter(|given| given.compare) else { return false };
    let (uid, gid) = (given.uid.unwrap_or(copier.options.me), given.gid.unwrap_or(copier.options.group));
    // What a link leads to and what has setuid, setgid or sticky bits is installed again, as by GNU's.
    let is_plain = |info: Info| info.kind == Kind::File && info.mode & 0o7000 == 0;
    if !file.src.look(false).is_ok_and(is_plain)
        || !is_plain(*there)
        || file.info.size != there.size
        || there.mode != given.mode
        || there.uid != uid
        || there.gid != gid
    {
        return false;
    }
    is_same(copier, file.src, file.dst, there.size)
}

/// Whether both are files of `size` bytes with the same content.
pub(super) fn is_same(copier: &Copier<'_>, src: &Spot, dst: &Spot, size: u64) -> bool {
    let files = src.open_file(true).and_then(|src| Ok((src, dst.open_file(false)?)));
    let Ok((src, dst)) = files else { return false };
    let of_size =
        |file: &OwnedFd| Info::of(file).is_ok_and(|info| info.kind == Kind::File && info.size == size);
    if !of_size(&src) || !of_size(&dst) {
        return false;
    }
    let read = |at: u64, room: &mut [u8]| {
        fastcopy::read_write::read_full(&src, at, room).map_err(|e| Fault::os(Side::Source, Op::Read, e))
    };
    compare::is_same(&dst, 0, size, &read, &|| !copier.options.cancel.is_set()).unwrap_or(false)
}
