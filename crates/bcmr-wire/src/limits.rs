//! Every maximum of the wire in one place. Must not know what is sent, only how much.
//!
//! Bytes unless the name says otherwise. A maximum is what is still allowed.

/// Largest frame, type byte and payload together; a longer one is refused before anything is allocated.
// [frame.length]
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// Bytes before the payload: a 4-byte little-endian length and the type byte.
pub const HEADER_BYTES: usize = 5;
/// Bytes of a LEB128 number of 64 bits.
pub const NUMBER_BYTES_MAX: usize = 10;

/// A single name, as every kernel has it.
pub const NAME_BYTES_MAX: usize = 255;
/// A path, the target of a symbolic link, a rule.
pub const PATH_BYTES_MAX: usize = 64 << 10;
/// Each text of a note.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
/// Things that a reason speaks of.
pub const ABOUT_MAX: usize = 8;
/// What a peer calls itself.
pub const AGENT_BYTES_MAX: usize = 64;
/// Digits of a `Get` that goes with a greeting.
pub const GET_DIGITS_MAX: usize = 8 << 10;
/// An internet address as text, with its scope.
pub const ADDRESS_BYTES_MAX: usize = 64;
/// All attributes of one entry, names and values together.
pub const ATTRS_BYTES_MAX: usize = 256 << 10;
/// Bytes that a file or an offset may come to: what a signed 64-bit offset can tell.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// A regular file of so many bytes is large: it travels in pieces and never in a batch.
pub const SMALL_FILE_BYTES: u64 = 1 << 20;
/// Contents of a batch before compression, with what stands between them.
// [contents.max]
pub const CONTENTS_BYTES_MAX: usize = 4 << 20;
/// Entries of one batch as they stand in its frame.
pub const ENTRIES_BYTES_MAX: usize = 512 << 10;
/// Entries of one batch.
pub const ENTRIES_MAX: usize = 1024;
/// What each attribute counts beside its name and value, in both of the above: many small ones cost more than their
/// bytes.
pub const ATTR_BYTES: usize = 128;
/// A piece of a large file. Pieces do not cross its multiples.
pub const PIECE_BYTES_MAX: u64 = 1 << 20;
/// How far a Zstandard frame of several pieces may look back, as a power of two: 2 MiB, which the receiver keeps for each stream.
pub const FRAME_WINDOW_LOG_MAX: u32 = 21;
/// What is hashed, recorded and deduplicated as one.
pub const BLOCK_BYTES: u64 = 4 << 20;
/// One page of a listing: it stays under this.
pub const PAGE_BYTES: usize = 256 << 10;

/// Batches without their last `Wants`.
// [window]
pub const BATCHES_OUT_MAX: usize = 64;
/// Offers of large files without `Close`.
pub const OFFERS_OUT_MAX: usize = 16;
/// Directories without `DirIs`.
pub const DIRS_OUT_MAX: usize = 4096;

/// Blocks in one `HaveBlocks`, and so in its `MissingBlocks` and `Proof`.
pub const HAVE_BLOCKS_MAX: usize = 16;
/// Chaining values in one `Values`.
pub const VALUES_MAX: usize = 4096;
/// A file shorter than this is not worth a question to the store.
pub const DEDUP_BYTES_MIN: u64 = 16 << 20;

/// Blocks of all files on their way together that are looked for in the store: as many as it remembers. Those of further
/// files all cross.
pub const DEDUP_BLOCKS_MAX: u64 = 64 << 10;

/// A file shorter than this is sent whole, whatever the receiver has of it; so is one whose basis is.
pub const DELTA_BYTES_MIN: u64 = 64 << 10;
/// A chunk of a basis.
pub const CHUNK_BYTES_MAX: u64 = 256 << 10;
/// A file shorter than this is not asked about in parts, though the receiver may have it: its hash would be as long.
pub const PART_BYTES_MIN: u64 = 128;
/// A small file shorter than this is not cut into chunks, and neither is its older version.
pub const REST_BYTES_MIN: u64 = 16 << 10;
/// A content shorter than this is sent each time: to read it from another file costs the receiver more than its bytes on most
/// lines, and what is packed together repeats it for nothing.
pub const REPEAT_BYTES_MIN: u64 = 1 << 10;
/// Contents of one transfer that each side remembers so that they need not cross twice: the first ones.
pub const REPEATS_MAX: usize = 1 << 17;
/// Chunks in one `WantsParts`, of all its entries. A sender keeps them until it has answered.
pub const PARTS_SUMS_MAX: usize = 8192;
/// Chunks in one `Sums`.
pub const SUMS_MAX: usize = 4096;
/// Chunks of all files on offer together that a sender keeps sums of: some 60 bytes each. What a basis has beyond them is not made use of.
pub const SUMS_KEPT_MAX: usize = 1 << 19;
/// What one `Finer` may ask about.
pub const FINER_BYTES_MAX: u64 = 1 << 20;
/// Parts of one `Patch`.
pub const RUNS_MAX: usize = 4096;

/// Operands of one `Get`.
pub const OPERANDS_MAX: usize = 64 << 10;
/// Operands of one `Put`: more than one command line holds. The receiver remembers the name of each.
pub const PUT_OPERANDS_MAX: u64 = 256 << 10;
/// Names of one `Get` that has a list of them, those of the `Names` before it included.
pub const NAMES_MAX: usize = 1 << 20;
/// Bytes of all of them, and one more for each.
pub const NAMES_BYTES_MAX: usize = 32 << 20;
/// Globs of one policy, and its regular expressions.
pub const RULES_MAX: usize = 4 << 10;
/// Bytes of a single one of them: as long as a path may be.
pub const RULE_BYTES_MAX: usize = 4 << 10;
/// Bytes of all its globs. Compiled they take up to 1,500 times as much.
pub const RULES_BYTES_MAX: usize = 32 << 10;
/// Bytes of all its regular expressions. Compiled they take up to 3,000 times as much.
pub const REGEXES_BYTES_MAX: usize = 8 << 10;
/// Numbers of a policy, or of a `Usage`.
pub const NUMBERS_MAX: usize = 32;
/// Owners, users and groups together, whose names a sender tells; the others go by their numbers.
// [owner.most]
pub const OWNERS_MAX: usize = 64 << 10;
/// Inodes with further names still to come that a receiver remembers at a time: some 300 bytes each, and their names.
pub const LINKS_MAX: usize = 1 << 20;
/// Names that a receiver keeps apart by their sources, where several meet: some 20 bytes each.
pub const CLAIMS_MAX: usize = 1_835_008;
/// Directories of which a receiver that deletes remembers that they have files of rules: some 40 bytes each.
pub const RULED_DIRS_MAX: usize = 1 << 20;
/// What could not be looked at that a `Used` names: enough to know that its sums lack much.
pub const UNREADABLE_MAX: usize = 256;
/// Further names in one `Tree`.
pub const TREE_LINKS_MAX: usize = 4096;
/// Earlier copies that one `Put` may link to.
pub const BASES_MAX: usize = 64;
/// The first moment that a snapshot may be called by, and the last: of the years 1 to 9999.
pub const MOMENT_FIRST: i64 = -62_135_596_800;
/// See [`MOMENT_FIRST`].
pub const MOMENT_LAST: i64 = 253_402_300_799;
/// Names in one `LeftOut`.
pub const LEFT_OUT_MAX: usize = 1024;
/// Names in one `TakeAway`.
pub const TAKEN_MAX: usize = 1024;
/// Error codes in a `Summary`, each once.
pub const CODES_MAX: usize = 256;
/// Streams of a peer besides stream 0.
pub const STREAMS_MAX: u64 = 32;

/// A record of the direct data plane, before it is sealed.
pub const RECORD_BYTES_MAX: usize = 1 << 20;
/// Records under one key.
pub const RECORDS_MAX: u64 = 1 << 32;
/// Milliseconds that a stranger at the direct data plane is listened to.
pub const STRANGER_MS: u64 = 2_000;
/// Milliseconds after which the direct data plane counts as out of reach.
pub const REACH_MS: u64 = 5_000;

/// Milliseconds of silence after which one asks whether the peer is still there.
// [ping.dead]
pub const PING_MS: u64 = 10_000;
/// Milliseconds in which nothing may move while each side waits for the other.
pub const STALL_MS: u64 = 120_000;
/// The same while a side works by itself, or says nothing of what it does.
pub const WORKS_MS: u64 = 3_600_000;
/// Milliseconds of silence after which the peer is given up.
pub const DEAD_MS: u64 = 30_000;
/// Milliseconds within which a connection beside the first has to be there: ssh asks for no password there.
pub const FURTHER_MS: u64 = 30_000;

// Whatever is sent whole fits into a frame with all that stands before it.
const _: () = assert!(FRAME_BYTES_MAX <= u32::MAX as usize);
const _: () = assert!(CONTENTS_BYTES_MAX + ENTRIES_BYTES_MAX + 1024 <= FRAME_BYTES_MAX);
const _: () = assert!(PIECE_BYTES_MAX as usize + 1024 <= FRAME_BYTES_MAX);
const _: () = assert!(VALUES_MAX * 32 + 1024 <= FRAME_BYTES_MAX);
const _: () = assert!(ATTRS_BYTES_MAX + PATH_BYTES_MAX + NAME_BYTES_MAX + 1024 <= ENTRIES_BYTES_MAX);
const _: () = assert!(SUMS_MAX * (NUMBER_BYTES_MAX + 8) + 1024 <= FRAME_BYTES_MAX);
const _: () = assert!(PIECE_BYTES_MAX as usize + RUNS_MAX * 2 * NUMBER_BYTES_MAX + 1024 <= FRAME_BYTES_MAX);
// The chunks of what is wanted of a batch are no more than the large files of a transfer may have, for all in the window.
const _: () = assert!(BATCHES_OUT_MAX * PARTS_SUMS_MAX <= SUMS_KEPT_MAX);
const _: () = assert!(PARTS_SUMS_MAX * (NUMBER_BYTES_MAX + 8) + ENTRIES_MAX * 16 + 1024 <= FRAME_BYTES_MAX);
const _: () = assert!(REPEAT_BYTES_MIN > 64 && REPEAT_BYTES_MIN < SMALL_FILE_BYTES);
const _: () = assert!(REST_BYTES_MIN > PART_BYTES_MIN && REST_BYTES_MIN < SMALL_FILE_BYTES);
// A page holds at least one entry, and its link.
const _: () = assert!(PATH_BYTES_MAX + NAME_BYTES_MAX + 1024 <= PAGE_BYTES);
// A frame on the direct data plane may be cut into records, but a piece's frame is not to need more than two.
const _: () = assert!(PIECE_BYTES_MAX as usize + 1024 <= 2 * RECORD_BYTES_MAX);
// The contents of a batch hold at least one small file whole, and its length and hash.
const _: () = assert!(SMALL_FILE_BYTES as usize + 64 <= CONTENTS_BYTES_MAX);
// Pieces fill blocks, and what is asked of the store is several blocks.
const _: () = assert!(BLOCK_BYTES.is_multiple_of(PIECE_BYTES_MAX) && SMALL_FILE_BYTES >= PIECE_BYTES_MAX);
const _: () = assert!(DEDUP_BYTES_MIN >= BLOCK_BYTES && DEDUP_BYTES_MIN.is_multiple_of(BLOCK_BYTES));
// One lost ping is no dead peer; a stranger is gone before a friend gives up.
const _: () = assert!(DEAD_MS >= 3 * PING_MS && STRANGER_MS < REACH_MS);
// While further connections are waited for nothing moves over the first.
const _: () = assert!(FURTHER_MS < STALL_MS);
// The index of a stream is one byte in the keys of the direct data plane.
const _: () = assert!(STREAMS_MAX < 256);
// A batch of small files is never so large that its window alone fills memory with names.
const _: () = assert!(BATCHES_OUT_MAX * ENTRIES_MAX <= 1 << 16);
const _: () = assert!(BATCHES_OUT_MAX * ENTRIES_BYTES_MAX <= 32 << 20);
