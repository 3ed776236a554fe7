//! The seam under landing: the phases of a batch, over slices of jobs.
//!
//! Must not decide anything: what is wanted stands in the jobs. Implementations: [`sys::Sys`], loops of system calls,
//! the reference, with [`ring`] for what several reads under way do better. Loops run here, decisions are made above.

pub(crate) mod changed;
pub(crate) mod compare;
#[cfg(test)]
pub(crate) mod model;
pub(crate) mod reader;
pub(crate) mod ring;
pub(crate) mod seal;
pub(crate) mod sys;
pub(crate) mod tee;
pub(crate) mod uncached;

use crate::alter::OwnersAndModes;
use crate::blocks::{Cv, block_cv, on_blocks};
use crate::error::{Op, Reason};
use crate::event::{Engine, WorkParts};
pub(crate) use crate::fault::{Fault, Side};
use crate::policy::{Changing, Durability, Preserve, Reflink, Sparse, Strictness, Verify};
use crate::pulse::Shift;
use fastcopy::Rung;
use fastcopy::dir::{Dir, Lock, Name, NameBuf};
use fastcopy::heritage::Heritage;
use fastcopy::meta::{Info, Kind, Time};
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

/// Who has the bytes.
pub(crate) trait Bytes: Sync {
    /// Reads until `room` is full or the source ends.
    fn read_at(&self, at: u64, room: &mut [u8]) -> io::Result<usize>;
    /// What the source is now.
    fn info(&self) -> io::Result<Info>;
    /// Reading goes on from here, in order, before anything is read. A source that is far away begins to send.
    fn start(&self, _at: u64) -> io::Result<()> {
        Ok(())
    }
    /// A thread of its own reads, until this is dropped.
    fn works(&self) -> Shift<'_> {
        Shift::NONE
    }
    /// This thread leaves that to others, until this is dropped.
    fn stands_by(&self) -> Shift<'_> {
        Shift::NONE
    }
    /// The file itself, where the kernel may copy from it.
    fn file(&self) -> Option<&OwnedFd>;
    /// Drops the pages of a range from the page cache, which had none of them before they were read. A hint.
    fn forget(&self, at: u64, bytes: u64) {
        if let Some(file) = self.file() {
            fastcopy::page_cache::forget(file, at, bytes);
        }
    }
    /// The chaining value of a block of a source of `size` bytes.
    fn value(&self, block: u64, size: u64) -> Result<Cv, Fault> {
        let read = |e| Fault::os(Side::Source, Op::Read, e);
        block_cv(block, size, |at, room| self.read_at(at, room).map_err(read))
    }
    /// The chaining value that the sender says a block has that has been read from here: what crossed
    /// is compared with it.
    fn claimed(&self, _block: u64) -> Option<Cv> {
        None
    }
    /// Whether a block that has another value than was claimed is to be read once more: what is read then is not put
    /// together here. Says so once for a block.
    fn again(&self, _block: u64) -> bool {
        false
    }
    /// What it means that a block that was read from here has another value than was claimed.
    fn differs(&self, _block: u64) -> Fault {
        Fault::mismatch()
    }
    /// Whether the sender hashed it on the way, so that what crossed can be compared.
    fn is_claimed(&self) -> bool {
        false
    }
}

/// As [`on_blocks`], for threads that read `source`, which may be far away.
pub(crate) fn on_blocks_of(
    source: &dyn Bytes,
    blocks: std::ops::Range<u64>,
    threads: usize,
    each: impl Fn(u64) -> Result<bool, Fault> + Sync,
) -> Result<(), Fault> {
    let _others = source.stands_by();
    on_blocks(blocks, threads, |block| {
        let _works = source.works();
        each(block)
    })
}

/// Under which name the new thing is made.
#[derive(Debug)]
pub(crate) enum Placement {
    /// Its own: the directory has no name yet, so it is not seen.
    Final,
    /// A stage's, renamed in the end.
    Stage(NameBuf),
    /// None: the file gets its own once it is filled, and goes with its descriptor until then. Where there is no such file,
    /// staging it fails.
    Unnamed,
    /// The file that is already there is written into.
    There,
}

/// A file that is gone on with at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Append {
    /// Bytes that it has.
    pub(crate) at: u64,
    /// They are proved to be the source's before anything is added.
    pub(crate) proved: bool,
}

/// Whether what a job replaces is kept elsewhere.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OldKept {
    /// The policy does not ask for it.
    Unasked,
    /// There was nothing to keep; what comes meanwhile is not replaced.
    Nothing,
    /// As this, below what holds it.
    At(std::path::PathBuf),
}

/// What a new thing is made from.
pub(crate) enum Body<'a, D: Dirs> {
    /// An open file.
    File(OwnedFd),
    /// A small file, whole, that came along.
    Bytes(&'a [u8]),
    /// A large file that comes piece by piece.
    Wire(&'a dyn Bytes),
    /// A symbolic link's target.
    Link(CString),
    /// Nothing: its mode and device number say it all.
    Special,
    /// Nothing: the file that is there has it already, and gets attributes.
    Kept,
    /// A second name for something that landed before.
    HardLink(&'a D::Dir, Name<'a>),
}

impl<D: Dirs> Body<'_, D> {
    /// Whether it has content.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self, Body::File(_) | Body::Bytes(_) | Body::Wire(_))
    }
}

/// The inode whose content was brought onto stable storage since it landed.
pub(crate) type SyncedInode = OnceLock<(u64, u64)>;

/// Where the attributes of a source are read.
#[derive(Clone, Copy)]
pub(crate) enum Attributes<'a> {
    /// From an open directory itself.
    Dir(&'a Dir),
    /// By its name in a directory; of an open file, from the file.
    At(&'a Dir, Name<'a>),
    /// They came along.
    Carried(&'a [(CString, Vec<u8>)]),
}

/// One thing to land. Phases pass over jobs that have a fault.
pub(crate) struct Job<'a, D: Files> {
    pub(crate) name: Name<'a>,
    pub(crate) place: Placement,
    /// The source's, as of before it was read.
    pub(crate) info: Info,
    /// What is replaced.
    pub(crate) there: Option<Info>,
    pub(crate) old: OldKept,
    /// Nothing may be replaced, also if it appeared meanwhile.
    pub(crate) only_new: bool,
    /// A listing of the directory did not have the name, and nothing was looked for.
    pub(crate) is_unlooked: bool,
    pub(crate) body: Body<'a, D>,
    /// What it becomes a second name of is in an earlier copy, and nothing of this run.
    pub(crate) from_basis: bool,
    /// What it becomes a second name of was there before this run, perhaps under more names.
    pub(crate) of_old: bool,
    /// What it is a further name of lacks metadata: a move takes this one away no more than the first.
    pub(crate) of_lacking: bool,
    /// What all further names of one inode know of its content.
    pub(crate) synced: Option<&'a SyncedInode>,
    /// What has the same content on the destination's file system: its blocks are shared, or copied from there.
    pub(crate) like: Option<D::File>,
    /// The source's own name, to tell of it.
    pub(crate) src: Name<'a>,
    pub(crate) attributes: Attributes<'a>,
    /// The new file, once staged.
    pub(crate) file: Option<D::File>,
    /// Made, but not yet under its name.
    pub(crate) staged: bool,
    /// What is there and cannot be opened to be written into is replaced.
    pub(crate) force: bool,
    /// The source changed while it was read, and what it had at first was taken all the same.
    pub(crate) changed: bool,
    /// The file that is there is kept up to this many bytes, and the rest is added.
    pub(crate) append: Option<Append>,
    /// The mode that it gets before anything is added.
    pub(crate) narrow: Option<u32>,
    pub(crate) bytes: u64,
    pub(crate) rung: Option<Rung>,
    pub(crate) hash: Option<blake3::Hash>,
    /// All of it was read back while it was written.
    pub(crate) read_back: bool,
    /// Its pages are dropped behind the copy.
    pub(crate) leave: Option<uncached::Leave>,
    pub(crate) fault: Option<Fault>,
    /// Metadata that was asked for and could not be kept.
    pub(crate) lost: Vec<Fault>,
}

impl<'a, D: Files> Job<'a, D> {
    /// One that nothing was done to yet. The source is called like what it becomes, and what is there is replaced.
    pub(crate) fn new(
        name: Name<'a>,
        place: Placement,
        info: Info,
        there: Option<Info>,
        body: Body<'a, D>,
        attributes: Attributes<'a>,
    ) -> Job<'a, D> {
        Job {
            name,
            place,
            info,
            there,
            old: OldKept::Unasked,
            only_new: false,
            is_unlooked: false,
            body,
            from_basis: false,
            of_old: false,
            of_lacking: false,
            synced: None,
            like: None,
            src: name,
            attributes,
            file: None,
            staged: false,
            force: false,
            changed: false,
            append: None,
            narrow: None,
            bytes: 0,
            rung: None,
            hash: None,
            read_back: false,
            leave: None,
            fault: None,
            lost: Vec::new(),
        }
    }

    /// Whether it goes into a FIFO or a character device that is there, which keeps nothing of it and stays what it is.
    pub(crate) fn is_into_stream(&self) -> bool {
        matches!(self.place, Placement::There) && self.there.is_some_and(|there| there.kind.is_stream())
    }

    /// Its name as of now.
    pub(crate) fn name_now(&self) -> Name<'_> {
        match &self.place {
            Placement::Stage(stage) => stage.as_name(),
            Placement::Final | Placement::Unnamed | Placement::There => self.name,
        }
    }
}

/// How files are filled.
pub(crate) struct Fill<'a> {
    pub(crate) reflink: Reflink,
    pub(crate) sparse: Sparse,
    pub(crate) verify: Verify,
    /// The hash is wanted.
    pub(crate) hash: bool,
    /// What is owed when it is done.
    pub(crate) durability: Durability,
    /// Threads for one large file.
    pub(crate) threads: usize,
    /// Sources that change while they are read.
    pub(crate) changing: Changing,
    /// The device the directory is on.
    pub(crate) dev: u64,
    /// Told of every stretch of bytes; `false` means stop.
    pub(crate) observe: &'a (dyn Fn(u64) -> bool + Sync),
    /// Whether the reader of a FIFO, and room in it, is waited for any longer.
    pub(crate) waits: &'a (dyn Fn() -> bool + Sync),
    /// Where it is counted how long each phase takes.
    pub(crate) work: Option<&'a WorkParts>,
}

/// What is kept of the metadata, and where it lands.
#[derive(Clone, Copy)]
pub(crate) struct Keep {
    pub(crate) preserve: Preserve,
    pub(crate) alter: OwnersAndModes,
    pub(crate) strictness: Strictness,
    pub(crate) umask: u32,
    /// The directory has a default ACL, which new things inherit.
    pub(crate) default_acl: bool,
    /// The directory was there before this run: what the policy does not take from the source stays as it is.
    pub(crate) was_there: bool,
}

/// L5: the mode that something of this kind, which is there and has the mode `now`, has until it has the one that it is `to`
/// have: nothing for others that they will not have then. Its owner goes on working in it. Nothing where it is so already.
pub(crate) fn narrowed(kind: Kind, now: u32, to: u32) -> Option<u32> {
    // Of a directory such bits open nothing, and say what is made in it belongs to.
    let stays = if kind == Kind::Dir { 0o7700 } else { 0o1700 };
    let left = now & (to | stays);
    (left != now).then_some(left)
}

impl Keep {
    /// The same, of what is like `now` and becomes what `src` is.
    pub(crate) fn narrowed(&self, now: &Info, src: &Info) -> Option<u32> {
        let Preserve { mode, owner, at_dest, .. } = self.preserve;
        let meant = self.alter.of(src);
        // What the group may that it is to have, the group that it has now may not.
        let regroups = owner && !at_dest.is_held() && meant.gid != now.gid;
        let to = if regroups { meant.mode & !0o070 } else { meant.mode };
        if mode { narrowed(now.kind, now.mode, to) } else { None }
    }

    /// The mode to make a directory with that no other user can reach before it is sealed or its owner may do as it says:
    /// what it has in the end (L5), where that is known by now, and in any case all for its owner.
    pub(crate) fn born_as(&self, mode: u32) -> u32 {
        let Preserve { mode: kept, owner, xattr, acl, .. } = self.preserve;
        let later = owner || xattr || acl || self.default_acl;
        let own = if kept { mode } else { mode & !self.umask };
        if later { 0o700 } else { (own & 0o777) | 0o700 }
    }
}

/// What sealing a directory came to.
pub(crate) struct SealedDir {
    /// What could not be kept.
    pub(crate) lost: Vec<Fault>,
    /// Whether it lacked an attribute of its source, or had one that the source has not.
    pub(crate) set_attributes: bool,
}

/// Whether a listing is to tell a name.
pub(crate) type PickNames<'a> = &'a dyn Fn(Name<'_>) -> bool;

/// Directories and the names in them, one at a time: there are few of them.
pub(crate) trait Dirs: Sync + Sized {
    /// A directory that things land in.
    type Dir: Send + Sync;
    /// What each worker keeps for itself: buffers.
    type Hand: Send;
    fn hand(&self) -> Self::Hand;

    fn look(&self, dir: &Self::Dir, name: Name<'_>) -> io::Result<Option<Info>>;
    /// When the inode came to be, for telling it from another one of its number; 0 where that is not known.
    fn btime(&self, dir: &Self::Dir, name: Name<'_>) -> io::Result<u64>;
    /// The same, of an open directory.
    fn own_birth(&self, dir: &Self::Dir) -> io::Result<u64>;
    /// What an open directory is, and when it came to be.
    fn identity(&self, dir: &Self::Dir) -> io::Result<(Info, u64)> {
        Ok((self.info(dir)?, self.own_birth(dir)?))
    }
    /// Whether inode numbers and births stay what they are from mount to mount.
    fn keeps_identities(&self, dir: &Self::Dir) -> io::Result<bool>;
    /// Whether a name is there exactly as it is spelled: one that is found may be spelled otherwise.
    fn spells(&self, dir: &Self::Dir, name: Name<'_>) -> io::Result<bool>;
    fn info(&self, dir: &Self::Dir) -> io::Result<Info>;
    fn open_dir(&self, dir: &Self::Dir, name: Name<'_>) -> io::Result<Self::Dir>;
    fn make_dir(&self, dir: &Self::Dir, name: Name<'_>, mode: u32) -> io::Result<()>;
    fn set_mode(&self, dir: &Self::Dir, mode: u32) -> io::Result<()>;
    /// Whether names can be made in it and not removed (`chattr +a`).
    fn keeps_names(&self, _: &Self::Dir) -> bool {
        false
    }
    fn set_times(&self, dir: &Self::Dir, accessed: Time, modified: Time) -> io::Result<()>;
    fn lock(&self, dir: &Self::Dir) -> Lock;
    fn has_default_acl(&self, dir: &Self::Dir) -> bool;
    /// What sealing would change of the attributes of `name`, as far as an [`Info`] does not tell.
    fn attributes_differ(
        &self,
        dir: &Self::Dir,
        name: Name<'_>,
        src: Attributes<'_>,
        kind: Kind,
        keep: &Keep,
    ) -> io::Result<Option<Reason>>;
    /// What a directory is meant to be that really is `info`.
    fn dir_meant(&self, dir: &Self::Dir, info: Info) -> io::Result<Info>;
    /// Where a symbolic link leads.
    fn read_link(&self, dir: &Self::Dir, name: Name<'_>) -> io::Result<CString>;
    fn remove_dir(&self, dir: &Self::Dir, name: Name<'_>) -> io::Result<()>;
    /// Absence is no error.
    fn remove_file(&self, dir: &Self::Dir, name: Name<'_>) -> io::Result<()>;
    /// The names in a directory that `wanted` picks, from the first `most` that it lists.
    fn find(&self, dir: &Self::Dir, most: usize, wanted: PickNames<'_>) -> io::Result<Vec<NameBuf>>;
    /// All that something picks of a directory, listed when it is asked for.
    fn lists<'d>(
        &'d self,
        dir: &'d Self::Dir,
    ) -> impl FnOnce(PickNames<'_>) -> io::Result<Vec<NameBuf>> + 'd {
        |wanted| self.find(dir, usize::MAX, wanted)
    }
    /// Gives a directory its name; EEXIST when the name is taken.
    fn publish_dir(&self, dir: &Self::Dir, stage: Name<'_>, name: Name<'_>) -> io::Result<()>;
    /// Owner, attributes, mode, times, in the one order that works.
    fn seal_dir(
        &self,
        hand: &mut Self::Hand,
        dir: &Self::Dir,
        src: Attributes<'_>,
        info: &Info,
        keep: &Keep,
    ) -> SealedDir;
    /// Removes what a dead run left under a name only it could have used.
    fn remove_tree(&self, dir: &Self::Dir, name: Name<'_>) -> io::Result<()>;
    /// Moves what is in `from` into `to`, merging directories. Files there are replaced, by what is on stable storage (R9);
    /// with `only_new` they stay, and it is EEXIST once all else is moved.
    fn merge_into(&self, from: &Self::Dir, to: &Self::Dir, only_new: bool) -> io::Result<()>;
    /// The names in a directory onto stable storage.
    fn sync_dir(&self, dir: &Self::Dir) -> io::Result<()>;
    /// Everything of a file system onto stable storage.
    fn sync_all(&self, dir: &Self::Dir) -> io::Result<()>;
}

/// One file, piece by piece: what a resumable copy is made of.
pub(crate) trait Files: Dirs {
    /// An open file.
    type File: Send + Sync;
    /// A new file, for reading and writing.
    fn create_file(&self, dir: &Self::Dir, name: Name<'_>, mode: u32) -> io::Result<Self::File>;
    /// A new file, mode 0600, with this content on stable storage; its name is there once the directory is synced.
    fn small_private(&self, dir: &Self::Dir, name: Name<'_>, bytes: &[u8]) -> io::Result<()> {
        let file = self.create_file(dir, name, 0o600)?;
        self.write_at(&file, 0, bytes)?;
        self.sync_data(&file)
    }
    /// Whether workers who make files without names in one directory, or in two that lie together, wait for each other.
    fn unnamed_files_wait(&self, dir: &Self::Dir) -> bool;
    /// What a directory hands down to the files that are made in it, where all of that can be told.
    fn heritage(&self, dir: &Self::Dir) -> Option<Heritage>;
    /// A new file without a name, for reading and writing, on the file system of `dir`; it goes with its handle until it has one.
    fn unnamed_file(&self, dir: &Self::Dir, mode: u32) -> io::Result<Self::File>;
    /// A directory without a name, to make files in that get their names in `dir`. It is called `stage` for a moment: who is killed
    /// then leaves that, empty. xfs puts it into another allocation group than the directory before it.
    ///
    /// # Errors
    /// It cannot be made or removed, or makes no file once it has no name (EPERM on ext4).
    fn apart(&self, dir: &Self::Dir, stage: Name<'_>) -> io::Result<Self::Dir> {
        self.make_dir(dir, stage, 0o700)?;
        let opened = self.open_dir(dir, stage);
        self.remove_dir(dir, stage)?;
        let apart = opened?;
        self.unnamed_file(&apart, 0o600)?;
        Ok(apart)
    }
    /// An existing file, for reading and writing, through no link; `None` when there is none.
    fn open_file(&self, dir: &Self::Dir, name: Name<'_>) -> io::Result<Option<Self::File>>;
    /// An existing file, for reading, through no link.
    fn open_to_read(&self, dir: &Self::Dir, name: Name<'_>) -> io::Result<Self::File>;
    fn file_info(&self, file: &Self::File) -> io::Result<Info>;
    /// The same, and when it came to be: as [`Dirs::btime`].
    fn file_identity(&self, file: &Self::File) -> io::Result<(Info, u64)>;
    fn lock_file(&self, file: &Self::File) -> Lock;
    /// Reads until `room` is full or the file ends.
    fn read_at(&self, file: &Self::File, at: u64, room: &mut [u8]) -> io::Result<usize>;
    /// The same file past the cache, for [`Files::read_direct`]; its contents are on stable storage.
    fn direct(&self, file: &Self::File) -> io::Result<Self::File>;
    /// As [`Files::read_at`] of such a file; room and offset are multiples of a page.
    fn read_direct(&self, file: &Self::File, at: u64, room: &mut [u8]) -> io::Result<usize>;
    fn write_at(&self, file: &Self::File, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Copies a range without hashing it; how many bytes there were.
    fn copy_range(&self, from: &OwnedFd, to: &Self::File, at: u64, bytes: u64) -> Result<u64, Fault>;
    fn set_len(&self, file: &Self::File, bytes: u64) -> io::Result<()>;
    /// Room for so many bytes without showing them in the length; a file system that cannot says nothing.
    fn reserve(&self, file: &Self::File, bytes: u64) -> io::Result<()>;
    /// Contents onto stable storage.
    fn sync_data(&self, file: &Self::File) -> io::Result<()>;
    /// The same of a range, without waiting for what others write elsewhere in the file.
    fn sync_range(&self, file: &Self::File, at: u64, bytes: u64) -> io::Result<()>;
    /// Contents and metadata onto stable storage.
    fn sync_file(&self, file: &Self::File) -> io::Result<()>;
    /// The same of a file that is known by its name, or of more than that.
    fn sync_named(&self, dir: &Self::Dir, name: Name<'_>) -> io::Result<()>;
    /// Starts writing a range out. An error is one of writing, and a later sync need not tell it again (R5).
    fn write_behind(&self, file: &Self::File, at: u64, bytes: u64) -> io::Result<()>;
    /// Drops the pages of a range that is on stable storage from the page cache (`bytes` 0: to the end). A hint.
    fn forget(&self, file: &Self::File, at: u64, bytes: u64);
}

/// The phases of a batch.
pub(crate) trait Phases: Files {
    /// Makes every job's file, link or special under the name it has now; files without names in `apart`, where there is
    /// such a directory. `waits` says whether the reader of a FIFO that is there is waited for any longer.
    fn stage(
        &self,
        dir: &Self::Dir,
        apart: Option<&Self::Dir>,
        jobs: &mut [Job<'_, Self>],
        keep: &Keep,
        waits: &dyn Fn() -> bool,
    );
    /// Fills files with their content; notices a source that changed meanwhile.
    fn fill(&self, hand: &mut Self::Hand, jobs: &mut [Job<'_, Self>], how: &Fill<'_>);
    /// Reads back what landed and compares.
    fn verify(&self, hand: &mut Self::Hand, jobs: &mut [Job<'_, Self>], how: &Fill<'_>);
    /// Owner, attributes, mode, times, in the one order that works.
    fn seal(&self, hand: &mut Self::Hand, dir: &Self::Dir, jobs: &mut [Job<'_, Self>], keep: &Keep);
    /// Contents onto stable storage, one file at a time.
    fn sync(&self, jobs: &mut [Job<'_, Self>]);
    /// The final names. A file that was staged is closed before it is renamed; others stay open until [`Phases::end`].
    fn commit(&self, dir: &Self::Dir, jobs: &mut [Job<'_, Self>]);
    /// Takes back what a job with a fault has made.
    fn discard(&self, dir: &Self::Dir, job: &mut Job<'_, Self>) -> io::Result<()>;
    /// Closes what is open of jobs that are done with, and forgets them.
    fn end(&self, _: &mut Self::Hand, jobs: &mut Vec<Job<'_, Self>>) {
        jobs.clear();
    }
    /// A file with content has got its name: counted, where the disk has several ways to fill one.
    fn landed(&self) {}
    /// Which way files were filled, where there was a choice.
    fn engine(&self) -> Option<Engine> {
        None
    }
}

/// What the receiver needs of a disk.
pub(crate) trait Disk: Phases {}

impl<D: Phases> Disk for D {}

/// A disk whose directories and files are the kernel's: what fills and seals by handle works on any of them.
pub(crate) trait Kernel: Phases<Dir = Dir, File = OwnedFd> {}
