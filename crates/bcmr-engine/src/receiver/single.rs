//! Landing of one thing after the other, for programs that are seen to work in order: the phases of the disk for one job,
//! and the names that are made without content.
//!
//! Must not know what was asked for. What is replaced is replaced by one rename of a whole file (R9), and if anything
//! that the old file had cannot be given to the new one, nothing is replaced: the caller then writes into the old one.

use crate::disk::sys::{Hand, Sys};
use crate::disk::{Attributes, Dirs, Fault, Fill, Job, Keep, Phases, Placement, Side};
use crate::error::{Code, Op, Reason};
use crate::policy::{Io, Strictness};
use crate::receiver::dest::BASE_ENTRIES_MAX;
use crate::receiver::land::{errno_of, give_name, home_of, replace_by_link, second_name, sync_content};
use crate::stage::{self, Home, Role};
use fastcopy::dir::{Dir, Lock, Name};
use fastcopy::errno;
use fastcopy::heritage::InodeFlags;
use fastcopy::meta::{self, Info, Kind};
use fastcopy::xattr::{self, ACL_ACCESS, Of};
use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;

/// A directory that things land in one by one.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) dir: Dir,
    /// What stages in it are known by, for the holder of its lock.
    home: OnceLock<Option<Home>>,
    default_acl: OnceLock<bool>,
    flags: OnceLock<InodeFlags>,
}

impl Folder {
    pub(crate) fn new(dir: Dir) -> Folder {
        Folder { dir, home: OnceLock::new(), default_acl: OnceLock::new(), flags: OnceLock::new() }
    }

    /// A name for a stage: with the directory's lock one that a later run knows as stale, without it any. The first time, what
    /// killed runs left is taken away.
    pub(crate) fn stage(&self) -> Result<Placement, Fault> {
        let home = self.home.get_or_init(|| match self.dir.try_lock() {
            Lock::Held => home_of(&self.dir).ok().inspect(|home| sweep(&self.dir, home)),
            Lock::Busy | Lock::Unsupported => None,
        });
        let name = home.as_ref().and_then(Home::stage).or_else(stage::random);
        let none = || Fault::ours(Side::Dest, Op::NameAStageFor, Code::Io, Reason::NoNameForStage);
        name.map(Placement::Stage).ok_or_else(none)
    }

    /// Where a new thing is made until it has its name. No stage could be taken away again where names stay: there a file has no
    /// name at first, unless another program is to change it by one, and anything else has its own at once.
    pub(crate) fn place(&self, without_name: bool) -> Result<Placement, Fault> {
        match (self.flags().keep_names(), without_name) {
            (false, _) => self.stage(),
            (true, true) => Ok(Placement::Unnamed),
            (true, false) => Ok(Placement::Final),
        }
    }

    /// The flags that people gave it.
    pub(crate) fn flags(&self) -> InodeFlags {
        *self.flags.get_or_init(|| InodeFlags::of(&self.dir))
    }

    /// Whether new things inherit an ACL here.
    pub(crate) fn has_default_acl(&self) -> bool {
        *self.default_acl.get_or_init(|| crate::disk::seal::has_default_acl(&self.dir))
    }
}

/// R8: takes away what a killed run left in a directory whose lock we hold. That may fail: leftovers are harmless. Of a huge
/// directory only the beginning is listed, as one file costs a listing too.
fn sweep(dir: &Dir, home: &Home) {
    let disk = Sys::new();
    let stale = disk.find(dir, BASE_ENTRIES_MAX, &|name| home.role(name) == Some(Role::Stage));
    for name in stale.unwrap_or_default() {
        let _left = disk.remove_tree(dir, name.as_name()).is_err();
    }
}

/// What became of one job.
pub(crate) struct LandedOne {
    /// Why it did not land, and nothing was changed.
    pub(crate) fault: Option<Fault>,
    /// Metadata that was asked for and could not be kept.
    pub(crate) lost: Vec<Fault>,
}

/// What changes a file by the name that it has before it is published. `false`: it is not to be published.
pub(crate) type Alter<'a> = &'a mut dyn FnMut(Name<'_>) -> bool;

/// The disk, with buffers for one thread.
pub(crate) struct Single {
    disk: Sys,
    hand: Hand,
}

impl Single {
    pub(crate) fn new(io: Io) -> Single {
        let disk = Sys::with(io);
        let hand = disk.hand();
        Single { disk, hand }
    }

    /// Makes the file of a job that its caller fills.
    pub(crate) fn stage(&mut self, to: &Folder, job: &mut Job<'_, Sys>, keep: &Keep) {
        self.disk.stage(&to.dir, None, std::slice::from_mut(job), keep, &|| true);
    }

    /// Lands one job. `how` is absent where no content is wanted. `bare`: the mode that it has in the end is the only thing
    /// that says who may do what. `alter` is called between content and attributes.
    pub(crate) fn land(
        &mut self,
        to: &Folder,
        mut job: Job<'_, Sys>,
        keep: &Keep,
        how: Option<&Fill<'_>>,
        bare: Option<u32>,
        alter: Option<Alter<'_>>,
    ) -> LandedOne {
        let dir = &to.dir;
        let replaces =
            matches!(job.place, Placement::Stage(_)) && job.there.is_some_and(|t| t.kind == Kind::File);
        let jobs = std::slice::from_mut(&mut job);
        if jobs.iter().all(|job| job.file.is_none()) {
            self.disk.stage(dir, None, jobs, keep, &|| how.is_none_or(|how| (how.waits)()));
        }
        if let Some(how) = how {
            self.disk.fill(&mut self.hand, jobs, how);
        }
        if let (Some(alter), None) = (alter, &job.fault) {
            // Another program may leave another file under that name: it is that one that is sealed.
            job.file = None;
            if alter(job.name_now()) {
                match dir.open_existing(job.name_now()) {
                    Ok(file) => job.file = Some(file),
                    Err(e) => job.fault = Some(Fault::os(Side::Dest, Op::Open, e)),
                }
            } else {
                job.fault = Some(Fault::interrupted());
            }
        }
        let jobs = std::slice::from_mut(&mut job);
        self.disk.seal(&mut self.hand, dir, jobs, keep);
        job.lost.retain(is_told);
        if let (Some(mode), Some(file), None) = (bare, &job.file, &job.fault)
            && let Err(e) = without_acl(file, mode)
        {
            job.lost.push(Fault::os(Side::Dest, Op::SetModeOf, e));
        }
        // Without the owner that it was to have, no other user may read it.
        if keep.strictness == Strictness::Archive
            && job.lost.iter().any(|fault| fault.op == Op::SetOwnerOf)
            && let Some(Err(e)) = job.file.as_ref().map(|file| meta::set_mode(file, 0o600))
        {
            job.lost.push(Fault::os(Side::Dest, Op::SetModeOf, e));
        }
        if replaces && job.fault.is_none() {
            job.fault = job.lost.pop();
        }
        // R9: the old content goes only when the new one is on stable storage. That is also so where nothing of the old file
        // is asked about, and where it came meanwhile.
        let takes_away = |job: &Job<'_, Sys>| {
            let is_file = |there: Option<Info>| there.is_some_and(|there| there.kind == Kind::File);
            let staged = job.file.is_some() && matches!(job.place, Placement::Stage(_));
            staged && !job.only_new && dir.look(job.name).is_ok_and(is_file)
        };
        if job.fault.is_none()
            && (replaces || takes_away(&job))
            && let Err(e) = sync_content(&self.disk, dir, &job)
        {
            job.fault = Some(Fault::os(Side::Dest, Op::Sync, e));
        }
        self.disk.commit(dir, std::slice::from_mut(&mut job));
        // Only of the name: what else says so has no content behind it.
        let unnamed = job.fault.as_ref().filter(|fault| fault.op == Op::RenameIntoPlace).and_then(errno_of);
        if job.staged && job.only_new && unnamed.is_some_and(is_without_new_names) {
            match is_free(dir, job.name) {
                Ok(()) => {
                    job.fault = None;
                    job.only_new = false;
                    self.disk.commit(dir, std::slice::from_mut(&mut job));
                }
                Err(e) => job.fault = Some(Fault::os(Side::Dest, Op::RenameIntoPlace, e)),
            }
        }
        if job.fault.is_some()
            && let Err(e) = self.disk.discard(dir, &mut job)
        {
            job.lost.push(Fault::os(Side::Dest, Op::RemoveUnfinished, e));
        }
        LandedOne { fault: job.fault, lost: job.lost }
    }

    /// Makes a directory, which is sealed later. Until then its owner may work in it, whatever the umask takes or a default
    /// ACL does not give.
    pub(crate) fn new_dir(&self, to: &Folder, name: Name<'_>, mode: u32, umask: u32) -> io::Result<()> {
        self.disk.make_dir(&to.dir, name, mode)?;
        if umask & mode & 0o700 == 0 && !to.has_default_acl() {
            return Ok(());
        }
        let now = to.dir.stat(name)?.mode & 0o7777;
        if now & mode & 0o700 == mode & 0o700 {
            return Ok(());
        }
        meta::set_mode_at(&to.dir, name, now | mode & 0o700)
    }

    /// Owner, attributes, mode and times of a directory. `bare`: as in [`Single::land`].
    pub(crate) fn seal_dir(
        &mut self,
        dir: &Dir,
        src: Attributes<'_>,
        info: &Info,
        keep: &Keep,
        bare: Option<u32>,
    ) -> Vec<Fault> {
        // What new things in it inherit stays.
        if let Some(mode) = bare
            && let Err(e) = without_acl(dir, mode)
        {
            return vec![Fault::os(Side::Dest, Op::SetModeOf, e)];
        }
        let keep = Keep { default_acl: keep.default_acl && bare.is_none(), ..*keep };
        let mut lost = self.disk.seal_dir(&mut self.hand, dir, src, info, &keep).lost;
        lost.retain(is_told);
        lost
    }

    /// Another name for what is there. `only_new`: EEXIST when that name is taken.
    pub(crate) fn give_name(
        &self,
        from: (&Folder, Name<'_>),
        to: (&Folder, Name<'_>),
        only_new: bool,
    ) -> io::Result<()> {
        let give = |only_new| give_name(&from.0.dir, from.1, &to.0.dir, to.1, only_new);
        match give(only_new) {
            Err(e) if only_new && e.raw_os_error().is_some_and(is_without_new_names) => {
                is_free(&to.0.dir, to.1)?;
                give(false)
            }
            other => other,
        }
    }

    /// A further name for what is there, which keeps its own. What has the new name goes by a rename, unless `only_new`.
    pub(crate) fn second_name(
        &self,
        from: (&Folder, Name<'_>),
        to: (&Folder, Name<'_>),
        only_new: bool,
    ) -> io::Result<()> {
        let dir = &to.0.dir;
        let Some(there) = dir.look(to.1)?.filter(|_| !only_new) else {
            return second_name(&from.0.dir, from.1, dir, to.1);
        };
        // rename(2) does nothing where both names are of one file.
        if from.0.dir.stat(from.1)?.id() == there.id() {
            return Ok(());
        }
        let Ok(Placement::Stage(stage)) = to.0.stage() else { return Err(io::ErrorKind::Unsupported.into()) };
        replace_by_link((&from.0.dir, from.1), (dir, to.1), stage.as_name())?
    }

    /// Takes a further name away.
    pub(crate) fn unlink(&self, of: (&Folder, Name<'_>)) -> io::Result<()> {
        of.0.dir.remove_file(of.1)
    }

    /// Each gets the other's name.
    pub(crate) fn swap_names(&self, one: (&Folder, Name<'_>), other: (&Folder, Name<'_>)) -> io::Result<()> {
        one.0.dir.exchange(one.1, &other.0.dir, other.1)
    }
}

/// Whether GNU's would have told it: they believe that the times which they set are there.
fn is_told(fault: &Fault) -> bool {
    fault.note != Some(Reason::TimesNotHeld)
}

/// Whether a new name was refused because no rename leaves alone here what is there, and there are no links either (exfat and
/// vfat through FUSE).
fn is_without_new_names(errno: i32) -> bool {
    matches!(errno, errno::EINVAL | errno::ENOSYS)
}

/// EEXIST where something has the name. There a look must do: this is the one kind of file system where what another process puts
/// there in the next moment is replaced.
fn is_free(dir: &Dir, name: Name<'_>) -> io::Result<()> {
    match dir.look(name)? {
        Some(_) => Err(io::Error::from_raw_os_error(errno::EEXIST)),
        None => Ok(()),
    }
}

/// Takes away what was inherited of rights, and sets the mode.
pub(crate) fn without_acl(thing: impl AsFd, mode: u32) -> io::Result<()> {
    xattr::remove(Of::Handle(thing.as_fd()), ACL_ACCESS)?;
    meta::set_mode(thing, mode)
}
