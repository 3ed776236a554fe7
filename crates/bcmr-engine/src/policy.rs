//! Options as plain documented data. Enums instead of bools where a bool would need a comment, and no `Default`:
//! the caller has the context.
//!
//! Must not know how any of it was typed, nor how it is carried out.

use crate::alter::OwnersAndModes;
use crate::calendar::Stamp;
use std::io::BufRead;
use std::path::PathBuf;

/// Where things are to go.
#[derive(Clone, Debug)]
pub enum Target {
    /// The last operand: into it when it is a directory, else that very name (cp's rule).
    Guess(PathBuf),
    /// Into this directory (`-t`), which must exist.
    Into(PathBuf),
    /// To exactly this name (`-T`), also when it is a directory.
    Exactly(PathBuf),
}

impl Target {
    /// The path as it was given.
    #[must_use]
    pub fn path(&self) -> &PathBuf {
        match self {
            Target::Guess(p) | Target::Into(p) | Target::Exactly(p) => p,
        }
    }

    /// Whether so many sources can go there: one name is one source's.
    #[must_use]
    pub fn takes(&self, sources: usize) -> bool {
        sources == 1 || !matches!(self, Target::Exactly(_))
    }
}

/// Names read from a file, below one base directory (`--files-from`).
pub struct NameList {
    /// Where the names are read from, one after the other; never all at once. A stop is heard where it says `WouldBlock` when
    /// nothing has come for a moment.
    pub reader: Box<dyn BufRead + Send>,
    /// What ends a name: `\n` or NUL.
    pub separator: u8,
}

/// Which symbolic links in the source are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// None: a link is copied as a link (`-P`, and what `-r` means without further flags).
    Never,
    /// Those named on the command line (what cp does without `-r`, and `-H`).
    Operands,
    /// All (`-L`).
    Always,
}

/// Directories above the destination that are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Above {
    /// An error, as with cp.
    Needed,
    /// They are made (`--mkpath`).
    Made,
}

/// Whether a symbolic link that stands at the destination's last name, as it was typed, is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowDestination {
    /// As cp does, in a copy on this machine and in one to another machine. In a copy *from* another machine it is not: an
    /// earlier answer of that machine may have put the link there.
    UnlessReceived,
    /// In a copy from another machine too (`--follow-destination`).
    Always,
}

/// Where one side of a copy has what only root can set: owner and group, setuid and its like, and what kind of thing it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privileged {
    /// It is what the kernel says.
    Real,
    /// An attribute of an ordinary file or directory says it, in rsync's form (`--fake-super`).
    Held,
}

impl Privileged {
    /// Whether an attribute says it.
    #[must_use]
    pub fn is_held(self) -> bool {
        self == Privileged::Held
    }
}

/// What of the metadata is kept. Everything that is not kept follows cp: mode is the source's under the umask
/// (or, when a file is replaced, the replaced file's), owner and times are new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preserve {
    /// Permission bits, with setuid, setgid and sticky.
    pub mode: bool,
    /// User and group.
    pub owner: bool,
    /// Access and modification times, in nanoseconds, of files, directories and links.
    pub times: bool,
    /// Hard links among what is copied stay hard links.
    pub links: bool,
    /// Extended attributes, file capabilities among them.
    pub xattr: bool,
    /// POSIX ACLs, access and default.
    pub acl: bool,
    /// Where the source has what only root can set.
    pub at_source: Privileged,
    /// Where the destination has it.
    pub at_dest: Privileged,
}

impl Preserve {
    /// Nothing.
    pub const NONE: Preserve = Preserve {
        mode: false,
        owner: false,
        times: false,
        links: false,
        xattr: false,
        acl: false,
        ..Preserve::ALL
    };
    /// Everything (`--archive`).
    pub const ALL: Preserve = Preserve {
        mode: true,
        owner: true,
        times: true,
        links: true,
        xattr: true,
        acl: true,
        at_source: Privileged::Real,
        at_dest: Privileged::Real,
    };
    /// What plain `-p` means to cp: mode (with ACLs), owner, times.
    pub const CP: Preserve = Preserve { links: false, xattr: false, ..Preserve::ALL };
}

/// How much it matters when metadata cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// What an unprivileged user can never keep (a foreign owner) is let go silently, as `cp -p` does; all else is told.
    LikeCp,
    /// The same; but of a file that is replaced nothing stays, as `mv` takes it away first.
    LikeMv,
    /// Everything that was not kept is told and makes the exit code say so (`--archive`).
    Archive,
}

impl Strictness {
    /// Whether what takes a file's place has none of the attributes that people gave that one.
    #[must_use]
    pub fn drops_old(self) -> bool {
        self != Strictness::LikeCp
    }
}

/// What happens to a name that is already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collide {
    /// Replaced (cp's default).
    Replace,
    /// Left alone, and that is no error (`--no-clobber`, `--update=none`).
    Keep,
    /// Replaced only when the source's mtime is newer (`-u`, `--update=older`).
    IfOlder,
    /// Left alone when size and mtime (ns) agree, else replaced.
    IfDifferent,
    /// Left alone when size and content agree, else replaced (`sync --checksum`).
    IfContentDiffers,
    /// The user is asked (`-i`).
    Ask,
}

impl Collide {
    /// Whether a name that was free when it was looked at may be taken only while it still is.
    pub(crate) fn is_only_new(self) -> bool {
        matches!(self, Collide::Keep | Collide::Ask | Collide::IfOlder)
    }
}

/// Whether the destination becomes what the source is (`sync`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mirror {
    /// No: it gets what a copy brings, and keeps what is there.
    Off,
    /// Attributes of what looks the same follow the source as well, and so does what kind of thing a name is. What only the
    /// destination has stays, and so does a directory that is not empty where the source has something else.
    Update,
    /// The same, and what only the destination has is deleted once everything else is there (`--delete`).
    Delete,
    /// The same, and what the filter leaves out counts as something that only the destination has (`--delete-excluded`).
    DeleteExcluded,
}

impl Mirror {
    /// Whether attributes and kinds follow the source.
    #[must_use]
    pub fn is_on(self) -> bool {
        self != Mirror::Off
    }

    /// Whether what only the destination has is deleted.
    #[must_use]
    pub fn deletes(self) -> bool {
        matches!(self, Mirror::Delete | Mirror::DeleteExcluded)
    }
}

/// What becomes of what a mirror replaces or deletes at the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Old {
    /// It is gone.
    Goes,
    /// It is kept below this directory of the destination's file system, with a receipt (`--backup-dir`).
    Backup(PathBuf),
    /// It is kept in the user's trash (`--trash`), with a receipt elsewhere.
    Trash {
        /// The trash that is used where the destination is on its file system.
        home: PathBuf,
        /// Where receipts are.
        receipts: PathBuf,
        /// Seconds by which local time is ahead of UTC.
        ahead: i64,
    },
}

/// What a file shares with an earlier copy of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// It is a further name of that, where attributes are the same too (`--link-dest`).
    Names,
    /// It is a file of its own with the same blocks, where the file system shares blocks, else a copy (`--reflink-dest`).
    Blocks,
}

/// How much one run may delete at the destination (`--max-delete`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteMax {
    /// So many entries, with what is in directories.
    Entries(u64),
    /// So many of a hundred entries that the destination has, where it has more than [`DeleteMax::FEW`].
    Percent(u64),
}

impl DeleteMax {
    /// What the two are called between machines, behind the numbers of a filter.
    const ENTRIES: u8 = 2;
    const PERCENT: u8 = 3;

    /// For another machine; nothing where nothing is said.
    pub(crate) fn number(self) -> Option<(u8, u64)> {
        match self {
            DeleteMax::DEFAULT => None,
            DeleteMax::Entries(most) => Some((Self::ENTRIES, most)),
            DeleteMax::Percent(percent) => Some((Self::PERCENT, percent)),
        }
    }

    /// What another machine said, if it is about this.
    pub(crate) fn of_number((which, value): (u8, u64)) -> Option<DeleteMax> {
        match which {
            Self::ENTRIES => Some(DeleteMax::Entries(value)),
            Self::PERCENT => Some(DeleteMax::Percent(value)),
            _ => None,
        }
    }

    /// Of no more entries than this any part may go where the most is said in percent.
    pub const FEW: u64 = 100;
    /// What is allowed where nothing is said.
    pub const DEFAULT: DeleteMax = DeleteMax::Percent(25);

    /// Whether `going` of `all` entries are too many.
    #[must_use]
    pub fn is_exceeded(self, going: u64, all: u64) -> bool {
        match self {
            DeleteMax::Entries(most) => going > most,
            DeleteMax::Percent(percent) => {
                all > Self::FEW && u128::from(going) * 100 > u128::from(all) * u128::from(percent)
            }
        }
    }
}

/// How the new content gets its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// Staged beside the name and renamed over it: a reader, a crash or a full disk never sees half a file.
    Atomic,
    /// Written into the file that is there (`--inplace`): keeps the inode, gives up atomicity.
    InPlace,
}

/// `--reflink`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reflink {
    /// Where the file system can, and the file is long enough for it to be faster than writing.
    Auto,
    /// Or fail.
    Always,
    /// Never share blocks.
    Never,
}

/// `--sparse`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sparse {
    /// Holes stay holes.
    Auto,
    /// Runs of zeros become holes too.
    Always,
    /// Everything is written out.
    Never,
}

/// `-V`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// No.
    Off,
    /// Hash while reading, read back what landed, compare before the name appears.
    Cached,
    /// The same, read back from the device (`-V=direct`).
    Direct,
}

/// `--sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// As cp: the kernel writes when it likes.
    Cache,
    /// Everything on the medium before exit 0.
    Medium,
}

/// Going on where an interrupted run stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Every run starts anew; no sessions.
    Off,
    /// `-C`: goes on at the last record after a constant-time check, proves the rest of the stage meanwhile, publishes
    /// when it is proved.
    Proved,
    /// `-C --fast`: as [`Resume::Proved`] without the proof, and without hashes.
    Fast,
    /// `-s`: stage and source are hashed again up to the last record before anything goes on.
    Strict,
    /// `-a`: what is missing is added to the visible file, once what it has is proved to be the source's beginning.
    Append,
    /// `--append=size`: the same by length alone; what is there is not looked at.
    AppendSize,
}

impl Resume {
    /// Whether it works with sessions.
    #[must_use]
    pub fn has_sessions(self) -> bool {
        matches!(self, Resume::Proved | Resume::Fast | Resume::Strict)
    }

    /// Whether it adds to files that are there.
    #[must_use]
    pub fn appends(self) -> bool {
        matches!(self, Resume::Append | Resume::AppendSize)
    }
}

/// Which entries take part.
#[derive(Clone, Debug)]
pub struct FilterSpec {
    /// `--exclude` and `--include` in the order given; the last that matches decides (gitignore syntax).
    pub rules: Vec<Rule>,
    /// `--exclude-regex`: matched against the path relative to the operand, as bytes.
    pub regexes: Vec<String>,
    /// Honour `.gitignore` files found in the source tree.
    pub gitignore: bool,
    /// Regular files of more bytes are left out (`--max-size`).
    pub max_bytes: Option<u64>,
    /// Regular files of fewer bytes are left out (`--min-size`).
    pub min_bytes: Option<u64>,
    /// Honour `.bcmrignore` files found in the source tree, as `.gitignore` files are.
    pub bcmrignore: bool,
    /// Regular files modified then or before are left out (`--newer`): a [`moment`].
    pub newer: Option<i128>,
    /// Regular files modified then or later are left out (`--older`): a [`moment`].
    pub older: Option<i128>,
}

/// A moment as one number that is compared: nanoseconds since 1970, of every time that a file can have.
#[must_use]
pub fn moment(sec: i64, nsec: u32) -> i128 {
    i128::from(sec) * NANOS + i128::from(nsec)
}

/// Nanoseconds of a second.
const NANOS: i128 = 1_000_000_000;

/// Whether there is a moment in this second that is none of those which go as one number.
fn is_far(sec: i64) -> bool {
    [0, 999_999_999].iter().any(|nsec| i64::try_from(moment(sec, *nsec)).is_err())
}

/// A bound by size: what it is called between machines, and its place.
type SizeBound = (u8, for<'f> fn(&'f mut FilterSpec) -> &'f mut Option<u64>);

/// A bound by time: what it is called between machines, and its place. It goes as one number, nanoseconds since 1970 and 2^63
/// more, if it is one of those, which any bcmr knows; else as the two others: seconds since 1970, and nanoseconds.
type TimeBound = ([u8; 3], for<'f> fn(&'f mut FilterSpec) -> &'f mut Option<i128>);

impl FilterSpec {
    /// The sizes that travel. One that is added here goes over the wire.
    const SIZES: [SizeBound; 2] = [(0, |f| &mut f.max_bytes), (1, |f| &mut f.min_bytes)];
    /// The same of times.
    const TIMES: [TimeBound; 2] = [([4, 8, 9], |f| &mut f.newer), ([5, 10, 11], |f| &mut f.older)];

    /// Everything takes part.
    #[must_use]
    pub fn everything() -> FilterSpec {
        let (rules, regexes) = (Vec::new(), Vec::new());
        let (max_bytes, min_bytes, newer, older) = (None, None, None, None);
        let (gitignore, bcmrignore) = (false, false);
        FilterSpec { rules, regexes, gitignore, max_bytes, min_bytes, bcmrignore, newer, older }
    }

    /// Whether everything takes part, as far as is known before anything is looked at.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        let has_patterns = !(self.rules.is_empty() && self.regexes.is_empty());
        !(has_patterns || self.asks_file() || self.asks_tree())
    }

    /// Whether a file's size or time decides on it.
    #[must_use]
    pub fn asks_file(&self) -> bool {
        let mut copy = self.clone();
        Self::SIZES.iter().any(|(_, of)| of(&mut copy).is_some())
            || Self::TIMES.iter().any(|(_, of)| of(&mut copy).is_some())
    }

    /// Whether files found in the source tree decide.
    #[must_use]
    pub fn asks_tree(&self) -> bool {
        self.gitignore || self.bcmrignore
    }

    /// The numbers that are set, for another machine, in rising order.
    pub(crate) fn numbers(&self) -> Vec<(u8, u64)> {
        let mut copy = self.clone();
        let sizes = Self::SIZES.iter().filter_map(|(which, of)| Some((*which, (*of(&mut copy))?)));
        let mut numbers: Vec<(u8, u64)> = sizes.collect();
        for ([near, secs, nanos], of) in Self::TIMES {
            let Some(at) = *of(&mut copy) else { continue };
            match u64::try_from(at + (1 << 63)) {
                Ok(at) => numbers.push((near, at)),
                Err(_) => {
                    let far = if at < 0 { i64::MIN } else { i64::MAX };
                    let whole = i64::try_from(at.div_euclid(NANOS)).unwrap_or(far);
                    let part = u64::try_from(at.rem_euclid(NANOS)).unwrap_or_default();
                    numbers.extend([(secs, whole.cast_unsigned()), (nanos, part)]);
                }
            }
        }
        numbers.sort_unstable();
        numbers
    }

    /// Sets what another machine said. `false`: a number of it is not known here, and may be a guarantee.
    pub(crate) fn set_numbers(&mut self, numbers: &[(u8, u64)]) -> bool {
        numbers.iter().all(|&(which, value)| {
            if let Some((_, of)) = Self::SIZES.iter().find(|(number, _)| *number == which) {
                *of(self) = Some(value);
                return true;
            }
            Self::TIMES.iter().any(|([near, secs, nanos], of)| {
                let place = of(self);
                let at = match *place {
                    _ if which == *near => i128::from(value) - (1 << 63),
                    _ if which == *secs && is_far(value.cast_signed()) => moment(value.cast_signed(), 0),
                    // Behind its seconds.
                    Some(at) if which == *nanos && i128::from(value) < NANOS => at + i128::from(value),
                    _ => return false,
                };
                *place = Some(at);
                true
            })
        })
    }
}

/// One glob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Matching entries are left out.
    Exclude(String),
    /// Matching entries are taken although an earlier rule left them out.
    Include(String),
}

/// `--engine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// By what is at hand: a ring for files that are not in the page cache, plain calls for the rest.
    Auto,
    /// Plain calls.
    Sys,
    /// A ring wherever it can be used; plain calls where there is none, which is told.
    Ring,
}

/// `--no-cache`: whether a large file's pages are dropped from the page cache behind the copy, so that it pushes out
/// nothing that others use. Only ever what this run has made and, of the source, what was not there before (S9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropCache {
    /// When the copy ends on stable storage anyway and nothing of the source was in the page cache.
    Auto,
    /// Always.
    Always,
    /// The kernel keeps what it likes.
    Never,
}

/// What becomes of a source that changes while it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changing {
    /// It is read once more, and then it is an error; nothing of it is published.
    Refused,
    /// As many bytes as it had at first are published, and that is told (`--allow-changing`).
    Allowed,
    /// So they are, or as many as are left of them.
    AsRead,
}

/// How the content of local files is read and written. Where each default comes from: docs/decisions/0006-ring.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Plain calls or a ring.
    pub pick: Pick,
    /// Bytes of one operation of a ring, a multiple of 4096; without, [`Io::BLOCK_BYTES`] and, past the page cache,
    /// [`Io::DIRECT_BLOCK_BYTES`].
    pub block_bytes: Option<usize>,
    /// Operations of a ring that one file may have under way, at least 1.
    pub queue_depth: usize,
    /// Files smaller than this (bytes) go by plain calls.
    pub async_min_bytes: u64,
    /// Room is reserved before a large file is written, its length unchanged.
    pub preallocate: bool,
    /// The kernel is told of all files of a batch before the first is read.
    pub readahead: bool,
    /// Large files go past the page cache (O_DIRECT).
    pub direct: bool,
    /// Pages of large files that go through it are dropped behind the copy.
    pub cache: DropCache,
    /// So long one wait for the kernel lasts before a look at whether to stop.
    pub wait: std::time::Duration,
    /// Sources that change while they are read.
    pub changing: Changing,
}

impl Io {
    /// Bytes of one operation through the page cache.
    pub const BLOCK_BYTES: usize = 64 << 10;
    /// The same past it, where each operation is one of the disk.
    pub const DIRECT_BLOCK_BYTES: usize = 1 << 20;
    /// Plain calls, for callers that ask for nothing.
    pub const PLAIN: Io = Io { pick: Pick::Sys, ..Io::AUTO };
    /// What is best where the user says nothing.
    pub const AUTO: Io = Io {
        pick: Pick::Auto,
        block_bytes: None,
        queue_depth: 5,
        async_min_bytes: 1 << 10,
        preallocate: true,
        readahead: false,
        direct: false,
        cache: DropCache::Auto,
        wait: std::time::Duration::from_millis(5),
        changing: Changing::Refused,
    };
}

/// Everything that decides how a copy is carried out. A move uses the same.
#[derive(Clone, Debug)]
pub struct CopyPolicy {
    /// Directories are copied with what is in them.
    pub recursive: bool,
    /// Which links are followed.
    pub follow: Follow,
    /// Whether a link at the destination's name is followed.
    pub follow_destination: FollowDestination,
    /// What becomes of directories that are missing above the destination.
    pub above: Above,
    /// What is kept.
    pub preserve: Preserve,
    /// Times are kept only for a later run to know what is complete: directories that were there keep theirs.
    pub times_for_resuming: bool,
    /// What of owners and modes is other than at the source, as far as they are kept.
    pub alter: OwnersAndModes,
    /// How much it matters when it cannot be kept.
    pub strictness: Strictness,
    /// FIFOs, sockets and devices are made anew (`--archive`); else named and skipped.
    pub specials: bool,
    /// What happens to names already there.
    pub collide: Collide,
    /// Whether the destination becomes what the source is.
    pub mirror: Mirror,
    /// How much may be deleted by that.
    pub delete_max: DeleteMax,
    /// Whether what is replaced or deleted by that is kept.
    pub old: Old,
    /// Earlier copies on the destination's file system: a file that one of them has as it is at the source is made of that.
    pub bases: Vec<PathBuf>,
    /// What is shared with those.
    pub sharing: Sharing,
    /// A destination that was to be written into (`--inplace`) and cannot be opened is replaced (`-f`).
    pub force: bool,
    /// How new content gets its name.
    pub landing: Landing,
    /// Cloning.
    pub reflink: Reflink,
    /// Holes.
    pub sparse: Sparse,
    /// Reading back.
    pub verify: Verify,
    /// Durability of what exit 0 says.
    pub durability: Durability,
    /// Going on where an interrupted run stopped.
    pub resume: Resume,
    /// Bytes between two records of a session; a file no longer than this has none. A multiple of 4 MiB.
    pub checkpoint_bytes: u64,
    /// [`crate::event::Event::Hashed`] is wanted for every file.
    pub hashes: bool,
    /// Directories on other file systems than the operand's are made, but not entered (`-x`).
    pub one_file_system: bool,
    /// Which entries take part.
    pub filter: FilterSpec,
    /// What becomes of the source, where it is not on the destination's machine.
    pub leaving: Leaving,
    /// Only say what would be done.
    pub dry_run: bool,
    /// How content is read and written here.
    pub io: Io,
    /// Worker threads, at least 1.
    pub jobs: usize,
    /// The effective user; only this user's unfinished files are gone on with.
    pub me: u32,
    /// The process's umask; the engine does not ask the process.
    pub umask: u32,
}

/// What becomes of the source of a copy between machines once it is at the destination for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// It stays.
    Stays,
    /// It is taken away: a move. A directory takes the place of none that holds something.
    Goes,
    /// The same, and a directory is merged into one that is there.
    GoesMerging,
}

impl Leaving {
    /// Whether it is taken away.
    #[must_use]
    pub fn goes(self) -> bool {
        self != Leaving::Stays
    }
}

impl CopyPolicy {
    /// Whether directories that operands become are marked until all is there, so that the same command means them again.
    #[must_use]
    pub fn marks(&self) -> bool {
        self.resume.has_sessions() || self.leaving.goes()
    }

    /// Bytes between two records of a session where none are asked for: at most so much is copied again after a crash, at a
    /// few percent of the time.
    pub const CHECKPOINT_BYTES: u64 = 64 << 20;

    /// The same for `sync`: larger files are gone on with unasked.
    pub const MIRROR_CHECKPOINT_BYTES: u64 = 16 << 20;

    /// What cp does where nothing is asked for, by plain calls: the values that a policy without any flag has.
    #[must_use]
    pub fn cp(jobs: usize, me: u32, umask: u32) -> CopyPolicy {
        CopyPolicy {
            recursive: false,
            follow: Follow::Never,
            follow_destination: FollowDestination::UnlessReceived,
            above: Above::Needed,
            preserve: Preserve::NONE,
            times_for_resuming: false,
            alter: OwnersAndModes::NONE,
            strictness: Strictness::LikeCp,
            specials: false,
            collide: Collide::Replace,
            mirror: Mirror::Off,
            delete_max: DeleteMax::DEFAULT,
            old: Old::Goes,
            bases: Vec::new(),
            sharing: Sharing::Names,
            force: false,
            landing: Landing::Atomic,
            reflink: Reflink::Auto,
            sparse: Sparse::Auto,
            verify: Verify::Off,
            durability: Durability::Cache,
            resume: Resume::Off,
            checkpoint_bytes: CopyPolicy::CHECKPOINT_BYTES,
            hashes: false,
            one_file_system: false,
            filter: FilterSpec::everything(),
            leaving: Leaving::Stays,
            dry_run: false,
            io: Io::PLAIN,
            jobs,
            me,
            umask,
        }
    }

    /// Everything below, links as links, special files as such, all metadata, and what cannot be kept is told: what
    /// `--archive` means, and what a move must not lose.
    #[must_use]
    pub fn archive(jobs: usize, me: u32, umask: u32) -> CopyPolicy {
        CopyPolicy {
            recursive: true,
            preserve: Preserve::ALL,
            strictness: Strictness::Archive,
            specials: true,
            ..CopyPolicy::cp(jobs, me, umask)
        }
    }

    /// What `sync` means where nothing more is said: an archive that leaves alone what is the same, and goes on where a run
    /// was stopped.
    #[must_use]
    pub fn mirror(jobs: usize, me: u32, umask: u32) -> CopyPolicy {
        CopyPolicy {
            collide: Collide::IfDifferent,
            mirror: Mirror::Update,
            resume: Resume::Proved,
            checkpoint_bytes: CopyPolicy::MIRROR_CHECKPOINT_BYTES,
            ..CopyPolicy::archive(jobs, me, umask)
        }
    }

    /// The same with what going on where a run stopped needs of the rest: what is there and complete must be known again
    /// (size and mtime, so times are kept), and a name must mean that its content is on stable storage (R2).
    pub(crate) fn resuming(self) -> CopyPolicy {
        // A move believes nothing that is there: what an earlier run has landed is landed again, or its mark says what it is (R8).
        if !self.resume.has_sessions() || self.leaving.goes() {
            return self;
        }
        let collide = if self.collide == Collide::Replace { Collide::IfDifferent } else { self.collide };
        let times_for_resuming = self.times_for_resuming || !self.preserve.times;
        let preserve = Preserve { times: true, ..self.preserve };
        CopyPolicy { collide, preserve, times_for_resuming, durability: Durability::Medium, ..self }
    }

    /// How the rest is done where what only the destination has went first: `left` entries are in the way of something else, and go in
    /// the end, as ever, and nothing else then.
    pub(crate) fn after_deleting(self, left: u64) -> CopyPolicy {
        match left {
            0 => CopyPolicy { mirror: Mirror::Update, ..self },
            // M3: it was counted with what went.
            left => CopyPolicy { delete_max: DeleteMax::Entries(left), ..self },
        }
    }
}

/// `copy`.
pub struct CopyRequest {
    /// What to copy; with `names`, exactly one: the base they are relative to.
    pub sources: Vec<PathBuf>,
    /// `--files-from`.
    pub names: Option<NameList>,
    /// Where to.
    pub target: Target,
    /// Where the hashes of what was copied are written, in `b3sum`'s format; needs [`CopyPolicy::hashes`].
    pub manifest: Option<PathBuf>,
    /// How.
    pub policy: CopyPolicy,
}

/// `sync`: DST becomes what SRC is.
pub struct SyncRequest {
    /// A directory.
    pub source: PathBuf,
    /// What its contents go into, made where it is not there.
    pub dest: PathBuf,
    /// How; [`CopyPolicy::mirror`] says whether anything is deleted.
    pub policy: CopyPolicy,
    /// Where it is remembered how far above SRC its file system begins; without, nothing is.
    pub state: Option<PathBuf>,
    /// Whether it is planned first.
    pub plan: SyncPlan,
    /// When what only the destination has is deleted, where it is.
    pub when: DeleteWhen,
}

/// When what only the destination has is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteWhen {
    /// Once everything else has arrived.
    After,
    /// Once the whole source was listed, before anything arrives (`--delete=before`).
    Before,
}

/// A plan of a `sync` as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncPlan {
    /// There is none.
    None,
    /// A dry run writes down what would be done (`--plan`).
    Write {
        /// Where to.
        file: PathBuf,
        /// What was typed, to be typed again.
        words: Vec<std::ffi::OsString>,
    },
    /// It is done if it is what this says (`--apply`).
    Apply(PathBuf),
}

/// How many snapshots stay: the newest of each of the last so many days, weeks and months that have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thinning {
    /// UTC.
    pub days: u32,
    /// From Monday on.
    pub weeks: u32,
    /// Of the calendar.
    pub months: u32,
}

/// A snapshot among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dated {
    /// What the new one is called by.
    pub at: Stamp,
    /// Which of the older ones go; without, none.
    pub thinning: Option<Thinning>,
}

/// `sync --snapshot`.
pub struct SnapshotRequest {
    /// What is kept; its destination holds the snapshots.
    pub sync: SyncRequest,
    /// Which one it is.
    pub dated: Dated,
}

/// `undo`.
pub struct UndoRequest {
    /// The receipt of the run that is undone.
    pub receipt: PathBuf,
    /// Only say what would be done.
    pub dry_run: bool,
}

/// Which end of a copy of one file is an open stream and not a name; its name is only shown then.
#[derive(Debug)]
pub enum Ends {
    /// None.
    Named,
    /// What is read from this is copied.
    From(std::fs::File),
    /// It is copied into this.
    To(std::fs::File),
}

/// `move`.
pub struct MoveRequest {
    /// What to move.
    pub sources: Vec<PathBuf>,
    /// Where to.
    pub target: Target,
    /// A directory is merged into one that is already there instead of being refused (`--merge`).
    pub merge: bool,
    /// To another file system nothing of a directory goes unless all of it has landed; else what has landed goes.
    pub all_or_nothing: bool,
    /// How, where it has to be copied; `recursive`, `preserve`, `specials` and `follow` are what a move needs anyway.
    pub policy: CopyPolicy,
}

/// What `remove` does with what it meets.
#[derive(Clone, Debug)]
pub struct RemoveRequest {
    /// What to remove.
    pub paths: Vec<PathBuf>,
    /// Directories with what is in them.
    pub recursive: bool,
    /// An empty directory may be removed without `recursive` (`-d`).
    pub empty_dirs: bool,
    /// Absent operands are no error and nothing is asked.
    pub force: bool,
    /// Every removal is asked about.
    pub ask: bool,
    /// Other file systems below an operand are left alone; on unless the user says otherwise.
    pub one_file_system: bool,
    /// Only say what would be done.
    pub dry_run: bool,
    /// Worker threads, at least 1.
    pub jobs: usize,
}

/// How `check` compares two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Size and mtime in nanoseconds; nothing is read, so another time is a difference (`--quick`).
    SizeAndTime,
    /// Alike by size and mtime, or, with another time, by BLAKE3 of both contents.
    ContentInDoubt,
    /// Size, then BLAKE3 of both contents (`--hash`).
    Hash,
}

/// `check`: what a copy of the same arguments would change.
pub struct CheckRequest {
    /// What would be copied.
    pub sources: Vec<PathBuf>,
    /// Where to.
    pub target: Target,
    /// How files are compared.
    pub compare: Compare,
    /// Entries that only the destination has are told too.
    pub extra: bool,
    /// The policy the copy would have.
    pub policy: CopyPolicy,
}

/// `check --manifest`: whether what a manifest says still holds.
pub struct ManifestRequest {
    /// Where its lines are read from, as in [`NameList`].
    pub reader: Box<dyn BufRead + Send>,
    /// What it is called.
    pub file: PathBuf,
    /// What its names are below.
    pub dir: PathBuf,
    /// Which of its names are looked at: by what they are called alone, as there is no source.
    pub filter: FilterSpec,
    /// Threads, at least 1.
    pub jobs: usize,
}

impl From<Reflink> for fastcopy::copy::Reflink {
    fn from(r: Reflink) -> Self {
        match r {
            Reflink::Auto => Self::Auto,
            Reflink::Always => Self::Always,
            Reflink::Never => Self::Never,
        }
    }
}

impl From<Sparse> for fastcopy::copy::Sparse {
    fn from(s: Sparse) -> Self {
        match s {
            Sparse::Auto => Self::Auto,
            Sparse::Always => Self::Always,
            Sparse::Never => Self::Never,
        }
    }
}
