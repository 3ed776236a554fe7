//! The reference disk: loops of system calls through `fastcopy`.
//!
//! Must not decide anything; see [`super::Disk`].

use super::ring::{Rings, WorkerRings};
use super::{
    Append, Attributes, Body, Bytes, Dirs, Fault, Files, Fill, Job, Keep, Kernel, Phases, Placement,
    SealedDir, Side, changed, reader, seal, tee, uncached,
};
use crate::blocks::{BLOCK_BYTES, aligned, blocks_of, fill_block, in_pieces, whole_hash};
use crate::error::{Code, Op, Reason};
use crate::event::Engine;
use crate::held_stat;
use crate::policy::{Changing, CopyPolicy, Durability, Io, Privileged, Reflink, Sparse, Verify};
use crate::remove;
use crate::stage;
use fastcopy::close;
use fastcopy::copy;
use fastcopy::dir::{Dir, ListBuffer, Lock, Name, NameBuf};
use fastcopy::errno;
use fastcopy::heritage::{Heritage, InodeFlags};
use fastcopy::meta::{self, Info, Kind, Time};
use fastcopy::page_cache::{self, Cache};
use fastcopy::read_write;
use fastcopy::xattr::{Of, XattrBuffer};
use fastcopy::{Rung, Rungs, Scratch, sync};
use std::cell::Cell;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The kernel's file systems.
pub(crate) struct Sys {
    rungs: Rungs,
    pub(crate) rings: Rings,
    /// Where what is there has what only root can set.
    privileged: Privileged,
}

impl Sys {
    /// Plain calls and nothing else.
    pub(crate) fn new() -> Sys {
        Sys::with(Io::PLAIN)
    }

    /// As the policy wants it.
    pub(crate) fn with(io: Io) -> Sys {
        Sys { rungs: Rungs::new(), rings: Rings::new(io), privileged: Privileged::Real }
    }

    /// Plain calls, with what only root can set where this says.
    pub(crate) fn held(privileged: Privileged) -> Sys {
        Sys { privileged, ..Sys::new() }
    }

    /// Files of a source's device that are shorter than this are landed in `dir` by writing what was read of them, bytes.
    pub(crate) fn buffered_below(&self, reflink: Reflink, src_dev: u64, dir: &Dir, dst_dev: u64) -> u64 {
        if self.rings.wants_files() {
            return 0;
        }
        copy::buffered_below(
            &self.rungs,
            reflink.into(),
            src_dev,
            &copy::Dest { fd: dir.as_fd(), dev: dst_dev },
        )
    }

    /// All as a copy of this policy wants it.
    pub(crate) fn of(policy: &CopyPolicy) -> Sys {
        Sys { privileged: policy.preserve.at_dest, ..Sys::with(policy.io) }
    }
}

/// What has a name in a destination's directory, as what it is meant to be.
pub(crate) fn look_as(privileged: Privileged, dir: &Dir, name: Name<'_>) -> io::Result<Option<Info>> {
    let there = dir.look(name)?;
    match (privileged, there) {
        (Privileged::Held, Some(there)) => held_stat::meant_or_stale(Of::At(dir, name), there).map(Some),
        (_, there) => Ok(there),
    }
}

/// Where a link of a destination leads.
pub(crate) fn read_link_as(privileged: Privileged, dir: &Dir, name: Name<'_>) -> io::Result<CString> {
    match privileged {
        Privileged::Real => dir.read_link(name),
        Privileged::Held => held_stat::read_link(dir, name),
    }
}

/// For the small files of a batch that are read before it is landed.
#[derive(Default)]
pub(crate) struct SmallBuffer {
    pub(crate) bytes: Scratch,
    /// The last file was large, so the next one may be as well.
    pub(crate) was_large: bool,
    /// So many batches are taken to be in the page cache as one before them was.
    pub(crate) cached_batches: u8,
    /// Those that were read.
    pub(crate) opened: Vec<OwnedFd>,
}

/// A worker's buffers.
pub(crate) struct Hand {
    pub(super) scratch: Scratch,
    pub(crate) small: SmallBuffer,
    /// Room for jobs, of which there are none between batches.
    pub(crate) jobs: Vec<Job<'static, Sys>>,
    /// Room for descriptors that are closed together.
    closing: Vec<OwnedFd>,
    pub(super) xattr: XattrBuffer,
    rings: WorkerRings,
}

fn dest(op: Op) -> impl Fn(io::Error) -> Fault {
    move |e| Fault::os(Side::Dest, op, e)
}

impl Kernel for Sys {}

impl Dirs for Sys {
    type Dir = Dir;
    type Hand = Hand;

    fn hand(&self) -> Hand {
        let (scratch, small) = (Scratch::new(), SmallBuffer::default());
        let (jobs, closing) = (Vec::new(), Vec::new());
        Hand { scratch, small, jobs, closing, xattr: XattrBuffer::default(), rings: WorkerRings::default() }
    }

    fn look(&self, dir: &Dir, name: Name<'_>) -> io::Result<Option<Info>> {
        look_as(self.privileged, dir, name)
    }

    fn btime(&self, dir: &Dir, name: Name<'_>) -> io::Result<u64> {
        dir.btime(name)
    }

    fn own_birth(&self, dir: &Dir) -> io::Result<u64> {
        dir.own_birth()
    }

    fn identity(&self, dir: &Dir) -> io::Result<(Info, u64)> {
        dir.info_and_birth()
    }

    fn keeps_identities(&self, dir: &Dir) -> io::Result<bool> {
        dir.keeps_identities()
    }

    fn spells(&self, dir: &Dir, name: Name<'_>) -> io::Result<bool> {
        let mut found = false;
        dir.reopen()?.list(&mut ListBuffer::new(), |entry| {
            found = entry.name == name;
            !found
        })?;
        Ok(found)
    }

    fn info(&self, dir: &Dir) -> io::Result<Info> {
        dir.info()
    }

    fn open_dir(&self, dir: &Dir, name: Name<'_>) -> io::Result<Dir> {
        dir.open_dir(name)
    }

    fn make_dir(&self, dir: &Dir, name: Name<'_>, mode: u32) -> io::Result<()> {
        dir.make_dir(name, mode)
    }

    fn keeps_names(&self, dir: &Dir) -> bool {
        InodeFlags::of(dir).keep_names()
    }

    fn set_mode(&self, dir: &Dir, mode: u32) -> io::Result<()> {
        meta::set_mode(dir, mode)
    }

    fn set_times(&self, dir: &Dir, accessed: Time, modified: Time) -> io::Result<()> {
        meta::set_times(dir, accessed, modified)
    }

    fn lock(&self, dir: &Dir) -> Lock {
        dir.try_lock()
    }

    fn has_default_acl(&self, dir: &Dir) -> bool {
        seal::has_default_acl(dir)
    }

    fn attributes_differ(
        &self,
        dir: &Dir,
        name: Name<'_>,
        src: Attributes<'_>,
        kind: Kind,
        keep: &Keep,
    ) -> io::Result<Option<Reason>> {
        seal::differ(dir, name, src, kind, keep)
    }

    fn dir_meant(&self, dir: &Dir, info: Info) -> io::Result<Info> {
        match self.privileged {
            Privileged::Real => Ok(info),
            Privileged::Held => held_stat::meant_or_stale(Of::Handle(dir.as_fd()), info),
        }
    }

    fn read_link(&self, dir: &Dir, name: Name<'_>) -> io::Result<CString> {
        read_link_as(self.privileged, dir, name)
    }

    fn publish_dir(&self, dir: &Dir, stage: Name<'_>, name: Name<'_>) -> io::Result<()> {
        dir.rename_new(stage, dir, name)
    }

    fn seal_dir(
        &self,
        hand: &mut Hand,
        dir: &Dir,
        src: Attributes<'_>,
        info: &Info,
        keep: &Keep,
    ) -> SealedDir {
        seal::dir(&mut hand.xattr, dir, src, info, keep)
    }

    fn remove_tree(&self, dir: &Dir, name: Name<'_>) -> io::Result<()> {
        remove::below(dir, name)
    }

    fn merge_into(&self, from: &Dir, to: &Dir, only_new: bool) -> io::Result<()> {
        merge(from, to, only_new, &mut false)
    }

    fn remove_dir(&self, dir: &Dir, name: Name<'_>) -> io::Result<()> {
        dir.remove_dir(name)
    }

    fn find(&self, dir: &Dir, most: usize, wanted: &dyn Fn(Name<'_>) -> bool) -> io::Result<Vec<NameBuf>> {
        let (mut found, mut listed) = (Vec::new(), 0);
        dir.reopen()?.list(&mut ListBuffer::new(), |entry| {
            listed += 1;
            if wanted(entry.name) {
                found.push(entry.name.to_owned());
            }
            listed < most
        })?;
        Ok(found)
    }

    fn sync_dir(&self, dir: &Dir) -> io::Result<()> {
        sync::all(dir)
    }

    fn sync_all(&self, dir: &Dir) -> io::Result<()> {
        sync::filesystem(dir)
    }

    fn remove_file(&self, dir: &Dir, name: Name<'_>) -> io::Result<()> {
        match dir.remove_file(name) {
            Err(e) if e.raw_os_error() == Some(errno::ENOENT) => Ok(()),
            other => other,
        }
    }
}

impl Files for Sys {
    type File = OwnedFd;

    fn create_file(&self, dir: &Dir, name: Name<'_>, mode: u32) -> io::Result<OwnedFd> {
        dir.create_file(name, mode)
    }

    fn small_private(&self, dir: &Dir, name: Name<'_>, bytes: &[u8]) -> io::Result<()> {
        let file = dir.create_file(name, 0o600)?;
        // It is opened again to be written, whatever the umask takes from its owner.
        meta::set_mode(&file, 0o600)?;
        self.write_at(&file, 0, bytes)?;
        self.sync_data(&file)
    }

    fn unnamed_files_wait(&self, dir: &Dir) -> bool {
        dir.unnamed_files_wait()
    }

    fn heritage(&self, dir: &Dir) -> Option<Heritage> {
        Heritage::of(dir).ok()
    }

    fn unnamed_file(&self, dir: &Dir, mode: u32) -> io::Result<OwnedFd> {
        dir.unnamed(mode)
    }

    fn open_file(&self, dir: &Dir, name: Name<'_>) -> io::Result<Option<OwnedFd>> {
        match dir.open_read_write(name) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.raw_os_error() == Some(errno::ENOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn open_to_read(&self, dir: &Dir, name: Name<'_>) -> io::Result<OwnedFd> {
        dir.open_file(name)
    }

    fn file_info(&self, file: &OwnedFd) -> io::Result<Info> {
        Info::of(file)
    }

    fn file_identity(&self, file: &OwnedFd) -> io::Result<(Info, u64)> {
        fastcopy::dir::info_and_birth(file)
    }

    fn lock_file(&self, file: &OwnedFd) -> Lock {
        fastcopy::dir::try_lock(file)
    }

    fn read_at(&self, file: &OwnedFd, at: u64, room: &mut [u8]) -> io::Result<usize> {
        read_write::read_full(file, at, room)
    }

    fn direct(&self, file: &OwnedFd) -> io::Result<OwnedFd> {
        read_write::reopen_direct(file)
    }

    fn read_direct(&self, file: &OwnedFd, at: u64, room: &mut [u8]) -> io::Result<usize> {
        read_write::read_direct(file, at, room)
    }

    fn write_at(&self, file: &OwnedFd, at: u64, bytes: &[u8]) -> io::Result<()> {
        read_write::write_full(file, at, bytes)
    }

    fn copy_range(&self, from: &OwnedFd, to: &OwnedFd, at: u64, bytes: u64) -> Result<u64, Fault> {
        let from_info = Info::of(from).map_err(|e| Fault::os(Side::Source, Op::Stat, e))?;
        let to_info = Info::of(to).map_err(dest(Op::Stat))?;
        let src = copy::Source {
            fd: from.as_fd(),
            dev: from_info.dev,
            size: from_info.size,
            blocks: from_info.blocks,
        };
        let dst = copy::Dest { fd: to.as_fd(), dev: to_info.dev };
        let options = copy::Options { threads: 1, preallocate: false, ..copy::Options::AUTO };
        copy::copy_range(
            &copy::RangeOf { src: &src, src_off: at, dst: &dst, dst_off: at, len: bytes },
            &self.rungs,
            &options,
            &mut Scratch::new(),
            &|_| true,
        )
        .map(|copied| copied.bytes)
        .map_err(tee::fault)
    }

    fn set_len(&self, file: &OwnedFd, bytes: u64) -> io::Result<()> {
        meta::set_length(file, bytes)
    }

    fn reserve(&self, file: &OwnedFd, bytes: u64) -> io::Result<()> {
        if self.rings.preallocates() { tee::reserve(file, 0..bytes) } else { Ok(()) }
    }

    fn sync_data(&self, file: &OwnedFd) -> io::Result<()> {
        sync::data(file)
    }

    fn sync_named(&self, dir: &Dir, name: Name<'_>) -> io::Result<()> {
        dir.sync_file(name)
    }

    fn sync_range(&self, file: &OwnedFd, at: u64, bytes: u64) -> io::Result<()> {
        sync::range(file, at, bytes)
    }

    fn sync_file(&self, file: &OwnedFd) -> io::Result<()> {
        sync::all(file)
    }

    fn write_behind(&self, file: &OwnedFd, at: u64, bytes: u64) -> io::Result<()> {
        sync::start_writeback(file, at, bytes)
    }

    fn forget(&self, file: &OwnedFd, at: u64, bytes: u64) {
        page_cache::forget(file, at, bytes);
    }
}

impl Phases for Sys {
    fn stage(
        &self,
        dir: &Dir,
        apart: Option<&Dir>,
        jobs: &mut [Job<'_, Sys>],
        keep: &Keep,
        go_on: &dyn Fn() -> bool,
    ) {
        for job in jobs.iter_mut().filter(|j| j.fault.is_none()) {
            let mode = seal::birth_mode(job, keep);
            if let Err(fault) = make((dir, apart), job, mode, keep, go_on) {
                job.fault = Some(fault);
            }
        }
    }

    fn fill(&self, hand: &mut Hand, jobs: &mut [Job<'_, Sys>], how: &Fill<'_>) {
        for job in jobs.iter_mut().filter(|j| j.fault.is_none()) {
            job.leave = self.leave(job, how);
        }
        self.rings.advise(jobs);
        let filled = self.rings.fill(&mut hand.rings, &self.rungs, jobs, how).unwrap_or_default();
        for (at, job) in jobs.iter_mut().enumerate() {
            if job.fault.is_some() || (filled.get(at) == Some(&true) && job.leave.is_none()) {
                continue;
            }
            if let Err(fault) = self.fill_leaving(hand, job, how, filled.get(at) == Some(&true)) {
                job.fault = Some(fault);
            }
        }
    }

    fn verify(&self, hand: &mut Hand, jobs: &mut [Job<'_, Sys>], how: &Fill<'_>) {
        if how.verify == Verify::Off {
            return;
        }
        // What stays was compared with what came, and nothing was written.
        let written = |j: &&mut Job<'_, Sys>| j.fault.is_none() && !matches!(j.body, Body::Kept);
        for job in jobs.iter_mut().filter(written) {
            if job.body.is_file() && job.hash.is_none() {
                // Nothing to hold it against is no proof.
                let note = Reason::NoBlocksToMerge;
                job.fault = Some(Fault::ours(Side::Dest, Op::Verify, Code::Io, note));
            } else if let (Some(file), Some(hash)) = (&job.file, &job.hash) {
                let cache = if job.leave.is_some() { uncached::cache_of(file) } else { Cache::Keep };
                let proved = match &job.body {
                    _ if job.read_back => tee::ends_at(file, job.bytes, how),
                    Body::Bytes(bytes) if how.verify == Verify::Cached => {
                        tee::read_back_whole(file, bytes, how, cache, &mut hand.scratch)
                    }
                    _ => tee::read_back(file, job.bytes, hash, how, cache, &mut hand.scratch),
                };
                if let Err(mut fault) = proved {
                    // What was there was not compared with the source before.
                    if fault.code == Code::Mismatch && job.append.is_some_and(|append| !append.proved) {
                        fault.note = Some(Reason::AddedToAnother);
                    }
                    job.fault = Some(fault);
                }
                if job.leave.is_some() {
                    page_cache::forget(file, 0, 0);
                }
            }
        }
    }

    fn seal(&self, hand: &mut Hand, dir: &Dir, jobs: &mut [Job<'_, Sys>], keep: &Keep) {
        let mut births = seal::Births::default();
        // What is a stream belongs to the system: it keeps mode, owner and times.
        for job in jobs.iter_mut().filter(|j| j.fault.is_none() && !j.is_into_stream()) {
            seal::job(&mut hand.xattr, &mut births, dir, job, keep);
        }
    }

    fn sync(&self, jobs: &mut [Job<'_, Sys>]) {
        for job in jobs.iter_mut().filter(|j| j.fault.is_none() && !j.is_into_stream()) {
            if let Some(file) = &job.file
                && let Err(e) = sync::all(file)
            {
                job.fault = Some(Fault::os(Side::Dest, Op::Sync, e));
            }
        }
    }

    fn commit(&self, dir: &Dir, jobs: &mut [Job<'_, Sys>]) {
        for job in jobs.iter_mut().filter(|j| j.fault.is_none()) {
            let stage = match (&job.place, &job.file) {
                (Placement::Stage(stage), _) => stage,
                (Placement::Unnamed, Some(file)) => {
                    if let Err(e) = dir.name_unnamed(file, job.name) {
                        job.fault = Some(Fault::os(Side::Dest, Op::RenameIntoPlace, e));
                    }
                    continue;
                }
                _ => continue,
            };
            // Closing tells of no error that matters here: a file system that reports write errors at close (NFS)
            // does so at fsync too, and that is what `--sync` asks for. So handles are simply dropped.
            job.file = None;
            let named = if job.only_new {
                dir.rename_new(stage.as_name(), dir, job.name)
            } else {
                dir.rename(stage.as_name(), dir, job.name)
            };
            // Another process may have put a name of the very same inode there; then the stage stays (rename(2)).
            let named = match job.body {
                Body::HardLink(..) => named.and_then(|()| absent_is_fine(dir.remove_file(stage.as_name()))),
                _ => named,
            };
            match named {
                Ok(()) => job.staged = false,
                Err(e) => job.fault = Some(Fault::os(Side::Dest, Op::RenameIntoPlace, e)),
            }
        }
    }

    fn discard(&self, dir: &Dir, job: &mut Job<'_, Sys>) -> io::Result<()> {
        job.file = None;
        if !job.staged || matches!(job.place, Placement::There | Placement::Unnamed) {
            return Ok(());
        }
        let name = match &job.place {
            Placement::Stage(stage) => stage.as_name(),
            Placement::Final | Placement::Unnamed | Placement::There => job.name,
        };
        match dir.remove_file(name) {
            Err(e) if e.raw_os_error() != Some(errno::ENOENT) => Err(e),
            _ => {
                job.staged = false;
                Ok(())
            }
        }
    }

    fn end(&self, hand: &mut Hand, jobs: &mut Vec<Job<'_, Sys>>) {
        let open = jobs.iter_mut().flat_map(|job| {
            let src = match std::mem::replace(&mut job.body, Body::Special) {
                Body::File(src) => Some(src),
                _ => None,
            };
            [src, job.file.take()]
        });
        hand.closing.extend(open.flatten());
        close::all(&mut hand.closing);
        jobs.clear();
    }

    fn landed(&self) {
        self.rings.landed();
    }

    fn engine(&self) -> Option<Engine> {
        self.rings.said()
    }
}

fn absent_is_fine(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(e) if e.raw_os_error() == Some(errno::ENOENT) => Ok(()),
        other => other,
    }
}

fn names(dir: &Dir) -> io::Result<Vec<(NameBuf, Option<Kind>)>> {
    let mut found = Vec::new();
    dir.list(&mut ListBuffer::new(), |entry| {
        found.push((entry.name.to_owned(), entry.kind));
        true
    })?;
    Ok(found)
}

/// `synced`: what is moved is on stable storage.
fn merge(from: &Dir, to: &Dir, only_new: bool, synced: &mut bool) -> io::Result<()> {
    let from = from.reopen()?;
    let mut merged = Ok(());
    for (name, kind) in names(&from)? {
        let name = name.as_name();
        let Err(e) = from.rename_new(name, to, name) else { continue };
        if e.raw_os_error() != Some(errno::EEXIST) {
            return Err(e);
        }
        let is_dir = match kind {
            Some(kind) => kind == Kind::Dir,
            None => from.stat(name)?.kind == Kind::Dir,
        };
        if is_dir {
            match merge(&from.open_dir(name)?, &to.open_dir(name)?, only_new, synced) {
                Err(e) if e.raw_os_error() == Some(errno::EEXIST) => merged = Err(e),
                other => other.and_then(|()| from.remove_dir(name))?,
            }
        } else if only_new {
            merged = Err(e);
        } else {
            // R9: nothing was synced before; one flush serves all that is replaced here.
            if !*synced {
                sync::filesystem(&from)?;
                *synced = true;
            }
            from.rename(name, to, name)?;
            // Two names of one inode stay both (rename(2)).
            absent_is_fine(from.remove_file(name))?;
        }
    }
    merged
}

fn make(
    (dir, apart): (&Dir, Option<&Dir>),
    job: &mut Job<'_, Sys>,
    mode: u32,
    keep: &Keep,
    go_on: &dyn Fn() -> bool,
) -> Result<(), Fault> {
    let name = job.name_now();
    match &job.body {
        Body::File(_) | Body::Bytes(_) | Body::Wire(_) if matches!(job.place, Placement::There) => {
            let file = match open_there(dir, job, go_on) {
                Err(e) if job.force && Code::of(&e) != Code::NotFound => {
                    // As without `--inplace`: the name has the old file or the new one at any time.
                    let note = Reason::NoNameForStage;
                    let none = || Fault::ours(Side::Dest, Op::NameAStageFor, Code::Io, note);
                    job.place = Placement::Stage(stage::random().ok_or_else(none)?);
                    let mode = seal::birth_mode(job, keep);
                    job.file = Some(dir.create_file(job.name_now(), mode).map_err(dest(Op::Create))?);
                    job.staged = true;
                    return Ok(());
                }
                opened => opened.map_err(dest(Op::OpenForWriting))?.ok_or_else(Fault::interrupted)?,
            };
            let info = Info::of(&file).map_err(dest(Op::Stat))?;
            if info.kind == Kind::Dir {
                return Err(Fault::ours(Side::Dest, Op::WriteInto, Code::InTheWay, Reason::BecameDirectory));
            }
            if info.id() == job.info.id() {
                let note = Reason::SameFile;
                return Err(Fault::ours(Side::Dest, Op::WriteInto, Code::Refused, note));
            }
            // What was looked at is what is added to.
            let is_another = |append: Append| info.kind != Kind::File || info.size != append.at;
            if job.append.is_some_and(is_another) {
                let note = Reason::BecameAnother;
                return Err(Fault::ours(Side::Dest, Op::AppendTo, Code::Refused, note));
            }
            // L5: another user who may not read in the end what is written does not read it now. Where the mode cannot be set,
            // sealing says so. What is added to stays as it is until it is proved to be the source's beginning.
            let mode = keep.narrowed(&info, &job.info).filter(|_| info.kind == Kind::File);
            if job.append.is_some() {
                job.narrow = mode;
            } else if info.kind == Kind::File {
                narrow(&file, mode);
                meta::set_length(&file, 0).map_err(dest(Op::Truncate))?;
            }
            job.file = Some(file);
        }
        Body::File(_) | Body::Bytes(_) | Body::Wire(_) => {
            let made = match job.place {
                Placement::Unnamed => apart.unwrap_or(dir).unnamed(mode),
                _ => dir.create_file(name, mode),
            };
            job.file = Some(made.map_err(dest(Op::Create))?);
        }
        Body::Link(target) if keep.preserve.at_dest.is_held() => {
            // A link has no attributes of people: a file that leads there stands for it.
            let file = dir.create_file(name, 0o600).map_err(dest(Op::MakeSymbolicLink))?;
            let written = read_write::write_full(&file, 0, target.to_bytes());
            job.file = Some(file);
            job.staged = true;
            written.map_err(dest(Op::MakeSymbolicLink))?;
        }
        Body::Special if keep.preserve.at_dest.is_held() => {
            job.file = Some(dir.create_file(name, 0o600).map_err(dest(Op::MakeSpecialFile))?);
        }
        Body::Link(target) => dir.make_link(target, name).map_err(dest(Op::MakeSymbolicLink))?,
        Body::Special => {
            let kind = job.info.kind;
            dir.make_special(name, kind, mode, job.info.rdev).map_err(dest(Op::MakeSpecialFile))?;
        }
        Body::Kept => return hold(dir, job),
        Body::HardLink(from_dir, from) => {
            from_dir.hard_link(*from, dir, name).map_err(dest(Op::MakeHardLink))?;
        }
    }
    job.staged = true;
    Ok(())
}

/// L5: sets the mode that a file gets before anything is written into it, if it gets one.
fn narrow(file: &OwnedFd, mode: Option<u32>) {
    let _told_when_sealed = mode.map(|mode| meta::set_mode(file, mode));
}

/// What is there stays, and is held open so that what was looked at gets its attributes. One that may not be read is known
/// by its name.
fn hold(dir: &Dir, job: &mut Job<'_, Sys>) -> Result<(), Fault> {
    let info = match dir.open_file(job.name) {
        Ok(file) => {
            let info = Info::of(&file).map_err(dest(Op::Stat))?;
            job.file = Some(file);
            info
        }
        Err(e) if Code::of(&e) == Code::Denied => dir.stat(job.name).map_err(dest(Op::Stat))?,
        Err(e) => return Err(dest(Op::Open)(e)),
    };
    if job.there.is_none_or(|there| there.id() != info.id()) {
        return Err(Fault::ours(Side::Dest, Op::Change, Code::Refused, Reason::BecameAnother));
    }
    Ok(())
}

/// What is there, to be written into. A file or a disk is opened for reading as well where that is allowed, as `-V` reads
/// it back; a FIFO must not be, or we would be our own reader. `None`: `go_on` did not want to wait for one.
fn open_there(dir: &Dir, job: &Job<'_, Sys>, go_on: &dyn Fn() -> bool) -> io::Result<Option<OwnedFd>> {
    if job.there.is_some_and(|t| matches!(t.kind, Kind::File | Kind::BlockDevice)) {
        match dir.open_read_write(job.name) {
            Err(e) if e.raw_os_error() == Some(errno::EACCES) && !job.append.is_some_and(|a| a.proved) => {}
            other => return other.map(Some),
        }
    }
    let open = || dir.open_existing(job.name);
    if job.there.is_some_and(|there| there.kind == Kind::Fifo) {
        return reader::awaited(open, go_on);
    }
    open().map(Some)
}

impl Sys {
    /// Whether pages are dropped behind a job: of a new file of ours alone, as one that is written into may be in use.
    fn leave(&self, job: &Job<'_, Sys>, how: &Fill<'_>) -> Option<uncached::Leave> {
        let Body::File(src) = &job.body else { return None };
        if matches!(job.place, Placement::There) || job.append.is_some() {
            return None;
        }
        let syncs = how.durability == Durability::Medium;
        uncached::leave(self.rings.drop_cache(), job.info.size, syncs, || {
            uncached::is_absent(src, job.info.size)
        })
    }

    /// Fills one, or has seen a ring fill it, and drops its pages where that is wanted. What ends on stable storage is
    /// written out from the start.
    fn fill_leaving(
        &self,
        hand: &mut Hand,
        job: &mut Job<'_, Sys>,
        how: &Fill<'_>,
        filled: bool,
    ) -> Result<(), Fault> {
        let (Body::File(src), Some(dst)) = (&job.body, &job.file) else {
            return self.fill_one(hand, job, how, Cache::Keep);
        };
        let Some(leave) = job.leave else {
            if filled || how.durability != Durability::Medium || job.info.size < uncached::BYTES_MIN {
                return self.fill_one(hand, job, how, Cache::Keep);
            }
            let behind = uncached::WriteOut::new(dst.try_clone().map_err(dest(Op::Open))?);
            let observe = |bytes| behind.advance(bytes) && (how.observe)(bytes);
            let done = self.fill_one(hand, job, &Fill { observe: &observe, ..*how }, Cache::Keep);
            // R5, as below.
            behind.finish().map_err(dest(Op::Sync))?;
            return done;
        };
        let trail = uncached::Trail::new(leave, src, dst).map_err(dest(Op::Open))?;
        let observe = |bytes| trail.advance(bytes) && (how.observe)(bytes);
        let how = Fill { observe: &observe, ..*how };
        let done = if filled { Ok(()) } else { self.fill_one(hand, job, &how, trail.cache()) };
        // R5: what could not be written out weighs more than anything else that went wrong.
        trail.finish().map_err(dest(Op::Sync))?;
        done
    }

    fn fill_one(
        &self,
        hand: &mut Hand,
        job: &mut Job<'_, Sys>,
        how: &Fill<'_>,
        cache: Cache,
    ) -> Result<(), Fault> {
        let Some(dst) = &job.file else { return Ok(()) };
        // Into a device or a FIFO bytes go one after the other, holes have no meaning there.
        let stream = job.there.is_some_and(|t| t.kind.is_special()) && matches!(job.place, Placement::There);
        let preallocate = self.rings.preallocates() && !matches!(job.place, Placement::There);
        let src = match &job.body {
            Body::File(src) => src,
            Body::Bytes(bytes) => {
                job.bytes = bytes.len() as u64;
                job.rung = Some(Rung::ReadWrite);
                if how.hash {
                    job.hash = Some(blake3::hash(bytes));
                }
                if let Some(Append { at, proved }) = job.append {
                    let (first, rest) = bytes.split_at_checked(at as usize).unwrap_or_default();
                    if proved {
                        let whole = |from: u64, room: &mut [u8]| Ok(slice_at(first, from, room));
                        tee::begins_with(dst, at, &whole, &|| (how.observe)(0))?;
                    }
                    narrow(dst, job.narrow);
                    read_write::write_full(dst, at, rest).map_err(dest(Op::AppendTo))?;
                    (how.observe)(job.bytes);
                    return Ok(());
                }
                return tee::write_whole(bytes, &job.info, dst, how, stream);
            }
            Body::Wire(source) => {
                job.rung = Some(Rung::ReadWrite);
                if let Some(append) = job.append {
                    (job.bytes, job.hash) =
                        append_from(*source, dst, (append, job.narrow), job.info.size, how)?;
                } else {
                    let (bytes, hash) = tee::receive(*source, &job.info, dst, how, stream, preallocate)?;
                    (job.bytes, job.hash) = (bytes, hash);
                }
                // The sender looked at its source once more after the last piece; `info` waits for its word.
                let after = source.info().map_err(|e| Fault::os(Side::Source, Op::Receive, e))?;
                if !job.info.same_content(&after) {
                    return Err(Fault::changed());
                }
                return Ok(());
            }
            Body::Link(_) | Body::Special | Body::Kept | Body::HardLink(..) => return Ok(()),
        };
        let from = read_from(job, src)?;
        let to = copy::Dest { fd: dst.as_fd(), dev: how.dev };
        if let Some(append) = job.append {
            if append.proved {
                let read = |at: u64, room: &mut [u8]| {
                    read_write::read_full(src, at, room).map_err(|e| Fault::os(Side::Source, Op::Read, e))
                };
                tee::begins_with(dst, append.at, &read, &|| (how.observe)(0))?;
            }
            narrow(dst, job.narrow);
            job.bytes = self.append(src, dst, append.at, job.info.size, how)?;
            job.hash = if how.hash { Some(tee::hash(src, &|_| (how.observe)(0))?) } else { None };
            job.rung = Some(Rung::ReadWrite);
        } else if stream || how.hash {
            let sparse = if stream { Sparse::Never } else { how.sparse };
            let (threads, read_back) = (how.threads, how.verify == Verify::Cached);
            let teed = tee::Teeing { sparse, stream, threads, preallocate, read_back, cache };
            let done = tee::copy(&from, &to, teed, &mut hand.scratch, how.observe)?;
            (job.bytes, job.read_back) = (done.bytes, done.read_back);
            job.hash = Some(done.hash);
            job.rung = Some(Rung::ReadWrite);
        } else {
            let options = copy::Options {
                reflink: how.reflink.into(),
                sparse: how.sparse.into(),
                threads: how.threads,
                preallocate,
                lengthen: !matches!(job.place, Placement::There),
                cache,
            };
            let done = copy::copy_file(&from, &to, &self.rungs, &options, &mut hand.scratch, how.observe)
                .map_err(tee::fault)?;
            job.bytes = done.bytes;
            job.rung = Some(done.rung);
        }
        changed::still(job, how)?;
        // What the kernel makes up as it is read has no size.
        let is_pseudo =
            |body: &Body<'_, Sys>| matches!(body, Body::File(src) if meta::is_pseudo(src).unwrap_or(false));
        // What has become shorter meanwhile may do as it is.
        let will_do = job.changed && how.changing == Changing::AsRead;
        if job.bytes != job.info.size && !will_do && !is_pseudo(&job.body) {
            let note = Reason::SourceEndedEarly;
            return Err(Fault::ours(Side::Source, Op::Copy, Code::SourceChanged, note));
        }
        Ok(())
    }

    /// Adds what is missing behind `start`. Returns the length of the whole.
    fn append(
        &self,
        src: &OwnedFd,
        dst: &OwnedFd,
        start: u64,
        size: u64,
        how: &Fill<'_>,
    ) -> Result<u64, Fault> {
        const STEP_BYTES: u64 = 8 << 20;
        // What is there already counts as done, as it does when a session goes on.
        (how.observe)(start);
        let mut at = start;
        while at < size {
            let step = STEP_BYTES.min(size - at);
            let n = self.copy_range(src, dst, at, step)?;
            at += n;
            if n < step {
                break;
            }
            if !(how.observe)(n) {
                return Err(Fault::interrupted());
            }
        }
        Ok(at)
    }
}

/// What a file is filled from: its source, or what has the same content beside it.
fn read_from<'j>(job: &'j Job<'_, Sys>, src: &'j OwnedFd) -> Result<copy::Source<'j>, Fault> {
    let (fd, info) = match &job.like {
        Some(like) => (like, Info::of(like).map_err(dest(Op::Stat))?),
        None => (src, job.info),
    };
    Ok(copy::Source { fd: fd.as_fd(), dev: info.dev, size: job.info.size, blocks: info.blocks })
}

/// As many bytes of `bytes` from `at` on as there are and `room` takes.
fn slice_at(bytes: &[u8], at: u64, room: &mut [u8]) -> usize {
    let left = bytes.get(at as usize..).unwrap_or_default();
    let n = left.len().min(room.len());
    if let (Some(to), Some(from)) = (room.get_mut(..n), left.get(..n)) {
        to.copy_from_slice(from);
    }
    n
}

/// Adds what is missing behind what is there, piece by piece. Returns the length of the whole, and its hash where that is
/// wanted. Of what is there, whole blocks are known by hashes that each side makes, or the source alone where they are not to be
/// proved; the rest of it crosses once more.
fn append_from(
    source: &dyn Bytes,
    dst: &OwnedFd,
    (append, mode): (Append, Option<u32>),
    size: u64,
    how: &Fill<'_>,
) -> Result<(u64, Option<blake3::Hash>), Fault> {
    let receive = |e| Fault::os(Side::Source, Op::Receive, e);
    let before = append.at / BLOCK_BYTES;
    let go_on = |_: u64| (how.observe)(0);
    if append.proved && !tee::same_blocks_among(source, dst, 0..before, size, &go_on)? {
        return Err(tee::not_its_beginning());
    }
    let mut values = Vec::new();
    for block in (0..before).filter(|_| how.hash) {
        values.push(source.value(block, size)?);
        if !go_on(0) {
            return Err(Fault::interrupted());
        }
    }
    let from = if append.proved || how.hash { before * BLOCK_BYTES } else { append.at };
    source.start(from).map_err(receive)?;
    (how.observe)(append.at);
    let read = |at: u64, room: &mut [u8]| source.read_at(at, room).map_err(receive);
    let mode = Cell::new(mode);
    let put = |at: u64, piece: &[u8]| {
        let kept = append.at.saturating_sub(at).min(piece.len() as u64);
        let (there, new) = piece.split_at_checked(kept as usize).unwrap_or_default();
        if append.proved && kept > 0 {
            let source = |from: u64, room: &mut [u8]| Ok(slice_at(there, from - at, room));
            tee::begins_with_from(dst, at, at + kept, &source, &|| go_on(0))?;
        }
        if !new.is_empty() {
            narrow(dst, mode.take());
        }
        read_write::write_full(dst, at + kept, new).map_err(dest(Op::AppendTo))?;
        if (how.observe)(new.len() as u64) { Ok(()) } else { Err(Fault::interrupted()) }
    };
    let mut room = aligned();
    if !how.hash {
        return Ok((in_pieces(from..size, room.all(), read, put)?, None));
    }
    let mut alone = None;
    for block in before..blocks_of(size) {
        let start = block * BLOCK_BYTES;
        let range = start..(start + BLOCK_BYTES).min(size);
        let mut fill = || fill_block(range.clone(), true, &mut room, read, put, &|_| true);
        let differs = |cv| source.claimed(block).is_some_and(|claimed| claimed != cv);
        let (mut cv, mut first) = fill()?;
        if differs(cv) && source.again(block) {
            (cv, first) = fill()?;
        }
        if differs(cv) {
            return Err(source.differs(block));
        }
        values.push(cv);
        alone = alone.or(first);
    }
    let hash = if size <= BLOCK_BYTES { alone } else { whole_hash(&values, size) };
    Ok((size, hash))
}

impl Bytes for OwnedFd {
    fn read_at(&self, at: u64, room: &mut [u8]) -> io::Result<usize> {
        read_write::read_full(self, at, room)
    }
    fn info(&self) -> io::Result<Info> {
        Info::of(self)
    }
    fn file(&self) -> Option<&OwnedFd> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the file system makes files in a removed directory they get their names in another; where not, nothing is left.
    #[test]
    fn a_file_made_apart_gets_its_name_and_the_directory_has_none() {
        let (stage, file) = (NameBuf::new(b"stage").unwrap(), NameBuf::new(b"file").unwrap());
        let disk = Sys::with(Io::PLAIN);
        let is_made_in = |temp: tempfile::TempDir| {
            let dir = Dir::open(temp.path()).unwrap();
            let made = disk.apart(&dir, stage.as_name()).and_then(|apart| apart.unnamed(0o644));
            if let Ok(unnamed) = &made {
                dir.name_unnamed(unnamed, file.as_name()).unwrap();
                assert_eq!(dir.stat(file.as_name()).unwrap().kind, Kind::File);
            }
            assert_eq!(names(&dir).unwrap().len(), usize::from(made.is_ok()), "{temp:?}");
            made.is_ok()
        };
        is_made_in(tempfile::tempdir().unwrap());
        let Ok(in_memory) = tempfile::tempdir_in("/dev/shm") else {
            return skips::here("there is no /dev/shm");
        };
        assert!(is_made_in(in_memory), "tmpfs makes them");
    }

    /// What is there stays where only new names were asked for, and all else is moved.
    #[test]
    fn a_merge_replaces_only_where_it_may() {
        let name = |text: &str| NameBuf::new(text.as_bytes()).unwrap();
        for only_new in [true, false] {
            let tmp = tempfile::tempdir().unwrap();
            let top = Dir::open(tmp.path()).unwrap();
            let [ours, theirs] = ["ours", "theirs"].map(|side| {
                top.make_dir(name(side).as_name(), 0o700).unwrap();
                let dir = top.open_dir(name(side).as_name()).unwrap();
                dir.make_dir(name("sub").as_name(), 0o700).unwrap();
                for path in ["x", "sub/x", &format!("only {side}")] {
                    std::fs::write(tmp.path().join(side).join(path), side).unwrap();
                }
                dir
            });
            let merged = Sys::new().merge_into(&ours, &theirs, only_new);
            let taken = merged.err().and_then(|e| e.raw_os_error());
            assert_eq!(taken, only_new.then_some(errno::EEXIST));
            let want = if only_new { "theirs" } else { "ours" };
            for (path, want) in
                [("x", want), ("sub/x", want), ("only ours", "ours"), ("only theirs", "theirs")]
            {
                let is = std::fs::read_to_string(tmp.path().join("theirs").join(path)).unwrap();
                assert_eq!(is, want, "{path}");
            }
            assert_eq!(ours.look(name("x").as_name()).unwrap().is_some(), only_new);
        }
    }
}
