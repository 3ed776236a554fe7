//! One type per message, fields named as in `docs/protocol.md`.
//!
//! Borrowed from the frame they were found in, so that decoding copies no content and allocates only lists whose count
//! was checked. Must not know who sends what when; that is [`crate::state`].

/// 32 bytes of BLAKE3, a secret or a nonce.
pub type Hash = [u8; 32];

/// A point in time: seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// May be negative.
    pub sec: i64,
    /// Under 1,000,000,000.
    pub nsec: u32,
}

/// What a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A regular file.
    File = 0,
    /// A directory.
    Dir = 1,
    /// A symbolic link.
    Link = 2,
    /// A FIFO.
    Fifo = 3,
    /// A socket.
    Socket = 4,
    /// A character device.
    CharDevice = 5,
    /// A block device.
    BlockDevice = 6,
}

/// What the sender knows of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// `[entry.kind]`
    pub kind: Kind,
    /// `[entry.name]` A checked name.
    pub name: &'a [u8],
    /// `[entry.mode]` 07777.
    pub mode: u32,
    /// `[entry.uid]`
    pub uid: u32,
    /// `[entry.gid]`
    pub gid: u32,
    /// `[entry.size]` Bytes.
    pub size: u64,
    /// `[entry.blocks]` Units of 512 bytes.
    pub blocks: u64,
    /// `[entry.atime]`
    pub atime: Time,
    /// `[entry.mtime]`
    pub mtime: Time,
    /// `[entry.ctime]`
    pub ctime: Time,
    /// `[entry.dev]`
    pub dev: u64,
    /// `[entry.ino]`
    pub ino: u64,
    /// `[entry.nlink]`
    pub nlink: u64,
    /// `[entry.rdev]`
    pub rdev: u64,
    /// `[entry.link]` Without NUL; empty but for symbolic links.
    pub link: &'a [u8],
    /// `[entry.attrs]` Names without NUL.
    pub attrs: Vec<(&'a [u8], &'a [u8])>,
}

/// `Hello` and `Welcome`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// `[hello.version]`
    pub version: u16,
    /// `[hello.caps]` With [`crate::handshake::caps::WIDE`] exactly when `wide` is there.
    pub caps: u8,
    /// The wider set.
    pub wide: Option<Wide<'a>>,
}

/// What a `Hello` with the last capability bit goes on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wide<'a> {
    /// `[hello.wide]`
    pub bits: u64,
    /// `[hello.nonce]`
    pub nonce: Hash,
    /// `[hello.agent]` At most 64 printable ASCII bytes.
    pub agent: &'a [u8],
    /// Only in a `Hello`, and there with [`crate::handshake::wide::AT_ONCE`].
    pub at_once: Option<AtOnce<'a>>,
}

/// A `Get` that needs no answer to the greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtOnce<'a> {
    /// `[hello.most]` Bytes that the regular files among its paths may hold.
    pub most: u64,
    /// `[hello.get]` Its payload in hexadecimal digits.
    pub get: &'a [u8],
}

/// What went wrong at the other side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trouble<'a> {
    /// `[error.code]` A code of the engine, [`crate::code::NO_COMMON_VERSION`], or one of a newer version.
    pub code: u16,
    /// `[error.op]` What was tried, as the engine's `Op` numbers it; 0 when it is not told.
    pub op: u16,
    /// `[error.path]`
    pub path: &'a [u8],
    /// Why.
    pub note: Note<'a>,
    /// `[error.errno]` 0 when there is none.
    pub errno: u32,
}

/// Why something is as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note<'a> {
    /// `[error.reason]` As the engine's `Reason` numbers it; 0 when there is none.
    pub reason: u16,
    /// `[error.about]` What it speaks of: another reason, or 0, and a text. Empty without a reason.
    pub about: Vec<(u16, &'a [u8])>,
}

/// Where an operand goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Target {
    /// Into it when it is a directory, else that name.
    Guess = 0,
    /// Into this directory.
    Into = 1,
    /// To exactly this name.
    Exactly = 2,
}

/// How contents are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Codec {
    /// As they are.
    Raw = 0,
    /// LZ4 block.
    Lz4 = 1,
    /// Zstandard frame.
    Zstd = 2,
}

/// What compression the client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Compress {
    /// None.
    None = 0,
    /// LZ4.
    Lz4 = 1,
    /// Zstd-3.
    Zstd = 2,
    /// Zstd-3 while that is faster than the link, else none.
    Auto = 3,
}

/// How a copy is done, as plain numbers; the engine's `CopyPolicy` is made from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy<'a> {
    /// `[policy.flags]` See [`crate::policy::flags`].
    pub flags: u64,
    /// `[policy.choices]` See [`crate::policy::Choice`].
    pub choices: [u8; 8],
    /// `[policy.checkpoint]` Bytes.
    pub checkpoint: u64,
    /// `[policy.rules]` `true`: include.
    pub rules: Vec<(bool, &'a [u8])>,
    /// `[policy.regexes]`
    pub regexes: Vec<&'a [u8]>,
    /// `[policy.compress]`
    pub compress: Compress,
    /// `[policy.numbers]` Which number, in rising order, and its value; what each means is a table of the engine's.
    pub numbers: Vec<(u8, u64)>,
}

/// Something worth telling.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// 0: an item was finished. `action` as in the engine's `Action`.
    Item { action: u8, src: &'a [u8], dst: &'a [u8], bytes: u64 },
    /// 1
    Failed(Trouble<'a>),
    /// 2
    Warning(Trouble<'a>),
    /// 3
    Hashed { dst: &'a [u8], hash: Hash },
    /// 4
    Resumed { dst: &'a [u8], bytes: u64, restarted: u16, repaired: u64 },
    /// 5
    Note(Note<'a>),
    /// 6: a comparison found a difference. `change` as in the engine's `Change`. 10: the same with `alike`, what both sides are like.
    Difference {
        change: u8,
        path: &'a [u8],
        directory: bool,
        files: u64,
        bytes: u64,
        why: u16,
        alike: Option<Hash>,
    },
    /// 7: what the target has come to mean; names of what is `Hashed` are below it.
    Base(&'a [u8]),
    /// 8: how a comparison compared files.
    Compared { by_time: u64, by_content: u64 },
    /// 9: the target as it was given is a name that no directory has yet.
    NewTarget,
}

/// What `FileEnd` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FileState {
    /// All of it was read, and the source is still what it was.
    Whole = 0,
    /// It changed meanwhile.
    Changed = 1,
    /// It could not be read.
    Failed = 2,
}

/// What `DirIs` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DirState {
    /// It was there before.
    There = 0,
    /// It is new: everything in it is wanted.
    New = 1,
    /// Nothing is wanted of it.
    Refused = 2,
}

/// Flags of a piece.
pub mod data {
    /// All zeros: a length instead of bytes.
    pub const ZEROS: u8 = 1;
    /// The last piece of a block: its chaining value comes before the bytes.
    pub const ENDS_BLOCK: u8 = 2;
    /// Asked for by `Reread`.
    pub const ASKED: u8 = 4;
    /// Its bytes begin a Zstandard frame that the pieces behind it may go on with.
    pub const BEGINS_FRAME: u8 = 8;
    /// Its bytes go on with the Zstandard frame of the piece before it on the same stream, which ends where it begins.
    pub const GOES_ON: u8 = 16;
}

/// Flags of `Resume`.
pub mod resume {
    /// Blocks come without chaining values.
    pub const WITHOUT_HASHES: u8 = 1;
    /// Every `Sums` of what the receiver has was sent: pieces may come as `Patch`.
    pub const PATCHES: u8 = 2;
}

/// A piece of a large file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// `[data.file]`
    pub file: u64,
    /// `[data.at]` Bytes from the start of the file.
    pub at: u64,
    /// `[data.flags]` See [`data`].
    pub flags: u8,
    /// `[data.cv]` With [`data::ENDS_BLOCK`].
    pub cv: Option<Hash>,
    /// `[data.codec]`
    pub codec: Codec,
    /// `[data.length]`, `[data.zeros]` Bytes of the file that this stands for.
    pub length: u64,
    /// `[data.bytes]` Packed as `codec` says; empty with [`data::ZEROS`].
    pub bytes: &'a [u8],
}

/// What the receiver says of one chunk of what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// How long it is.
    pub bytes: u64,
    /// The first 8 bytes of its BLAKE3, as a little-endian number.
    pub sum: u64,
}

/// A name that the sender may take away, if it still is what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken<'a> {
    /// In the directory that the message names.
    pub name: &'a [u8],
    /// As in its entry.
    pub ino: u64,
    /// As in its entry.
    pub nlink: u64,
    /// As in its entry.
    pub size: u64,
    /// As in its entry.
    pub mtime: Time,
    /// As in its entry.
    pub ctime: Time,
}

/// How much of an entry's content is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// 0: all of it.
    Content,
    /// 1: its hash; the receiver may have it.
    Hash,
    /// 2: what it has beside these chunks, which the receiver's version consists of.
    Rest(Vec<Sum>),
}

/// What is wanted of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedPart {
    /// Which one.
    pub entry: u64,
    /// How much of it.
    pub wanted: Wanted,
}

/// A part of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// How long it is.
    pub bytes: u64,
    /// Where the receiver's basis has it; `None`: it comes with the patch.
    pub from: Option<u64>,
}

/// A piece of a large file of which the receiver has a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch<'a> {
    /// `[patch.file]`
    pub file: u64,
    /// `[patch.at]` Bytes from the start of the file.
    pub at: u64,
    /// `[patch.cv]` Where it ends a block.
    pub cv: Option<Hash>,
    /// `[patch.runs]` What it consists of, in order.
    pub runs: Vec<Run>,
    /// `[patch.codec]`
    pub codec: Codec,
    /// `[patch.bytes]` The runs that come with it, one behind the other, packed as `codec` says.
    pub bytes: &'a [u8],
}

impl Patch<'_> {
    /// Bytes of the file that this stands for.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.runs.iter().fold(0, |all, run| all.saturating_add(run.bytes))
    }

    /// Bytes that come with it, before they were packed.
    #[must_use]
    pub fn carried(&self) -> u64 {
        let carried = self.runs.iter().filter(|run| run.from.is_none());
        carried.fold(0, |all, run| all.saturating_add(run.bytes))
    }
}

/// What becomes at the receiver of what the next `Put` replaces or deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldThings<'a> {
    /// It is gone.
    Go,
    /// It is kept below this directory.
    Below(&'a [u8]),
    /// It is kept in the trash there.
    Trashed,
}

/// What the next `Put` has beside its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keeping<'a> {
    /// Earlier copies that files may become links to.
    pub bases: Vec<&'a [u8]>,
    /// What is replaced or deleted.
    pub old: OldThings<'a>,
    /// The target holds snapshots, and gets one that is called by this moment, in seconds since 1970.
    pub at: Option<i64>,
    /// Of how many of the last days, weeks and months a snapshot stays; without, all of them.
    pub stay: Option<[u32; 3]>,
}

/// What is done with the tree without a name that the shards of a plan fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeStep<'a> {
    /// 0: it is made, unless it is there.
    Make,
    /// 1: it is looked for.
    Find,
    /// 2: files in it get further names: what has the first name of each pair gets the second, both below the tree.
    Link(Vec<(&'a [u8], &'a [u8])>),
    /// 3: it gets its name, if it has this inode.
    Publish {
        /// As `Info` has told it.
        ino: u64,
    },
}

/// What a number of an owner is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Owner {
    /// A user.
    User = 0,
    /// A group.
    Group = 1,
}

/// Every message. The comment names its type byte.
// The fields are those of docs/protocol.md by name, and documented there.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// 0x01
    Hello(Hello<'a>),
    /// 0x02
    Welcome(Hello<'a>),
    /// 0x03
    Error(Trouble<'a>),
    /// 0x04
    Ok { hash: Option<Hash> },
    /// 0x05
    Done,
    /// 0x06
    Ping { token: u64 },
    /// 0x07
    Pong { token: u64 },
    /// 0x10
    Stat { path: &'a [u8], follow: bool },
    /// 0x11
    List { path: &'a [u8] },
    /// 0x12
    Hash { path: &'a [u8] },
    /// 0x13
    Mkdir { path: &'a [u8], mode: u32 },
    /// 0x14
    Usage { path: &'a [u8], numbers: Vec<(u8, u64)> },
    /// 0x15
    Streams { count: u64 },
    /// 0x16
    Join { secret: Hash, path: &'a [u8], index: u64 },
    /// 0x17
    Direct { count: u64 },
    /// 0x18
    Info(Entry<'a>),
    /// 0x19
    Page { entries: Vec<Entry<'a>> },
    /// 0x1A. `unreadable`: what the counts lack.
    Used { files: u64, dirs: u64, bytes: u64, allocated: u64, unreadable: Vec<Trouble<'a>> },
    /// 0x1B
    Token { secret: Hash, path: &'a [u8] },
    /// 0x1C
    Rendezvous { address: &'a [u8], port: u16, secret: Hash },
    /// 0x1D. `flags`: see [`remove`](crate::policy::remove).
    Remove { path: &'a [u8], flags: u8 },
    /// 0x20
    Put { policy: Policy<'a>, target: Target, path: &'a [u8], operands: u64, items: bool },
    /// 0x21
    Get { policy: Policy<'a>, paths: Vec<&'a [u8]>, names: Option<Vec<&'a [u8]>> },
    /// 0x22
    Names { names: Vec<&'a [u8]> },
    /// 0x23
    Keeping(Keeping<'a>),
    /// 0x24. `flags`: see [`undo`](crate::policy::undo).
    Undo { path: &'a [u8], flags: u8 },
    /// 0x25
    Tree { path: &'a [u8], plan: Hash, step: TreeStep<'a> },
    /// 0x26
    IntoTree { plan: Hash, all: bool },
    /// 0x30
    Operand { path: &'a [u8], whole: bool, origin: u64, dir: u64, entry: Entry<'a> },
    /// 0x31
    Dir { id: u64, parent: u64, entry: Entry<'a> },
    /// 0x32
    Files { batch: u64, dir: u64, inline: bool, codec: Codec, entries: Vec<Entry<'a>>, contents: &'a [u8] },
    /// 0x33
    Contents { batch: u64, codec: Codec, bytes: &'a [u8] },
    /// 0x34
    Large { file: u64, dir: u64, entry: Entry<'a> },
    /// 0x35, 0x36
    Data(Piece<'a>),
    /// 0x37
    FileEnd { file: u64, state: FileState, error: Option<Trouble<'a>> },
    /// 0x38
    DirEnd { dir: u64, partial: bool },
    /// 0x39
    Trouble(Trouble<'a>),
    /// 0x3A
    Found { items: u64, bytes: u64, last: bool },
    /// 0x3B
    Answer { id: u64, yes: bool },
    /// 0x3C
    HaveBlocks { file: u64, first: u64, hashes: Vec<Hash> },
    /// 0x3D
    Proof { file: u64, first: u64, tags: Vec<Hash> },
    /// 0x3E
    Values { file: u64, first: u64, hashes: Vec<Hash> },
    /// 0x3F
    AllSent,
    /// 0x50
    AllNamed { dirs: u64, batches: u64 },
    /// 0x40
    DirIs { dir: u64, state: DirState },
    /// 0x41
    Wants { batch: u64, entries: Vec<u64> },
    /// 0x42
    Resume { file: u64, wanted: bool, from: u64, flags: u8 },
    /// 0x43
    Reread { file: u64, at: u64, bytes: u64 },
    /// 0x44
    Compute { file: u64, first: u64, count: u64 },
    /// 0x45
    Landed { items: u64, bytes: u64 },
    /// 0x46
    Report(Event<'a>),
    /// 0x47
    Ask { id: u64, path: &'a [u8] },
    /// 0x48
    Close { file: u64 },
    /// 0x49
    MissingBlocks { file: u64, first: u64, nonce: Hash, bits: &'a [u8] },
    /// 0x4A
    Summary { counts: [u64; 7], codes: Vec<u64>, cancelled: bool },
    /// 0x4B
    Sums { file: u64, at: u64, chunks: Vec<Sum> },
    /// 0x4C
    WantsParts { batch: u64, entries: Vec<WantedPart> },
    /// 0x4E
    Gone { deleted: u64, updated: u64 },
    /// 0x4D. Names of a directory, or, without any, the directory itself; `dir` 0: everything is to be sent once more.
    TakeAway { dir: u64, names: Vec<Taken<'a>> },
    /// 0x4F
    Cancel,
    /// 0x58
    Finer { file: u64, at: u64, bytes: u64 },
    /// 0x59
    Patch(Patch<'a>),
    /// 0x5A. `entries`: see [`crate::columns`].
    FilesPacked {
        batch: u64,
        dir: u64,
        inline: bool,
        codec: Codec,
        packing: Codec,
        entries: &'a [u8],
        contents: &'a [u8],
    },
    /// 0x5C
    LeftOut { dir: u64, names: Vec<&'a [u8]> },
    /// 0x5E
    Owner { of: Owner, id: u32, name: &'a [u8] },
    /// 0x5F. The answer to a `TakeAway`: so many of its names are still there.
    TookAway { left: u64 },
}

/// Type bytes.
#[allow(missing_docs)]
pub mod kind {
    pub const HELLO: u8 = 0x01;
    pub const WELCOME: u8 = 0x02;
    pub const ERROR: u8 = 0x03;
    pub const OK: u8 = 0x04;
    pub const DONE: u8 = 0x05;
    pub const PING: u8 = 0x06;
    pub const PONG: u8 = 0x07;
    pub const STAT: u8 = 0x10;
    pub const LIST: u8 = 0x11;
    pub const HASH: u8 = 0x12;
    pub const MKDIR: u8 = 0x13;
    pub const USAGE: u8 = 0x14;
    pub const STREAMS: u8 = 0x15;
    pub const JOIN: u8 = 0x16;
    pub const DIRECT: u8 = 0x17;
    pub const INFO: u8 = 0x18;
    pub const PAGE: u8 = 0x19;
    pub const USED: u8 = 0x1A;
    pub const TOKEN: u8 = 0x1B;
    pub const RENDEZVOUS: u8 = 0x1C;
    pub const REMOVE: u8 = 0x1D;
    pub const PUT: u8 = 0x20;
    pub const GET: u8 = 0x21;
    pub const NAMES: u8 = 0x22;
    pub const KEEPING: u8 = 0x23;
    pub const UNDO: u8 = 0x24;
    pub const TREE: u8 = 0x25;
    pub const INTO_TREE: u8 = 0x26;
    pub const OPERAND: u8 = 0x30;
    pub const DIR: u8 = 0x31;
    pub const FILES: u8 = 0x32;
    pub const CONTENTS: u8 = 0x33;
    pub const LARGE: u8 = 0x34;
    pub const DATA: u8 = 0x35;
    pub const DATA_COMPRESSED: u8 = 0x36;
    pub const FILE_END: u8 = 0x37;
    pub const DIR_END: u8 = 0x38;
    pub const TROUBLE: u8 = 0x39;
    pub const FOUND: u8 = 0x3A;
    pub const ANSWER: u8 = 0x3B;
    pub const HAVE_BLOCKS: u8 = 0x3C;
    pub const PROOF: u8 = 0x3D;
    pub const VALUES: u8 = 0x3E;
    pub const ALL_SENT: u8 = 0x3F;
    pub const DIR_IS: u8 = 0x40;
    pub const WANTS: u8 = 0x41;
    pub const RESUME: u8 = 0x42;
    pub const REREAD: u8 = 0x43;
    pub const COMPUTE: u8 = 0x44;
    pub const LANDED: u8 = 0x45;
    pub const REPORT: u8 = 0x46;
    pub const ASK: u8 = 0x47;
    pub const CLOSE: u8 = 0x48;
    pub const MISSING_BLOCKS: u8 = 0x49;
    pub const SUMMARY: u8 = 0x4A;
    pub const SUMS: u8 = 0x4B;
    pub const WANTS_PARTS: u8 = 0x4C;
    pub const TAKE_AWAY: u8 = 0x4D;
    pub const GONE: u8 = 0x4E;
    pub const CANCEL: u8 = 0x4F;
    pub const ALL_NAMED: u8 = 0x50;
    pub const FINER: u8 = 0x58;
    pub const PATCH: u8 = 0x59;
    pub const FILES_PACKED: u8 = 0x5A;
    pub const LEFT_OUT: u8 = 0x5C;
    pub const OWNER: u8 = 0x5E;
    pub const TOOK_AWAY: u8 = 0x5F;

    /// Whether a payload of this type holds a secret, so that memory it was in is wiped before it is used again.
    #[must_use]
    pub const fn holds_secret(kind: u8) -> bool {
        matches!(kind, JOIN | TOKEN | RENDEZVOUS)
    }
}
