//! Messages from payloads and back, field by field as `docs/protocol.md` lays them out.
//!
//! Must not know what a value may be (`rules`), nor when a message may come ([`crate::state`]). The tags stand where a
//! field is written; reading is in the same order and names the field in its refusals.

use crate::field::{Reader, Refused, Why, must, put_bytes, put_i, put_v, refuse};
use crate::frame;
use crate::limits::{
    ABOUT_MAX, ATTR_BYTES, ATTRS_BYTES_MAX, BASES_MAX, CODES_MAX, ENTRIES_BYTES_MAX, ENTRIES_MAX,
    HAVE_BLOCKS_MAX, LEFT_OUT_MAX, NAMES_MAX, NUMBERS_MAX, OPERANDS_MAX, PAGE_BYTES, PARTS_SUMS_MAX,
    RULES_MAX, RUNS_MAX, SUMS_MAX, TAKEN_MAX, TREE_LINKS_MAX, UNREADABLE_MAX, VALUES_MAX,
};
use crate::message::{
    AtOnce, Codec, Compress, DirState, Entry, Event, FileState, Hello, Keeping, Kind, Message, Note,
    OldThings, Owner, Patch, Piece, Policy, Run, Sum, Taken, Target, Time, TreeStep, Trouble, Wanted,
    WantedPart, Wide, data, kind,
};
use crate::rules;

/// Bytes of the shortest entry: what a count of entries is compared with.
const ENTRY_BYTES_MIN: usize = 20;
/// The same of the shortest error.
const TROUBLE_BYTES_MIN: usize = 6;
/// The same of the shortest chunk.
const SUM_BYTES_MIN: usize = 9;
/// The same of the shortest name that may be taken away.
const TAKEN_BYTES_MIN: usize = 9;

pub(crate) const KINDS: [Kind; 7] =
    [Kind::File, Kind::Dir, Kind::Link, Kind::Fifo, Kind::Socket, Kind::CharDevice, Kind::BlockDevice];
const CODECS: [Codec; 3] = [Codec::Raw, Codec::Lz4, Codec::Zstd];
const TARGETS: [Target; 3] = [Target::Guess, Target::Into, Target::Exactly];
const COMPRESS: [Compress; 4] = [Compress::None, Compress::Lz4, Compress::Zstd, Compress::Auto];
const FILE_STATES: [FileState; 3] = [FileState::Whole, FileState::Changed, FileState::Failed];
const DIR_STATES: [DirState; 3] = [DirState::There, DirState::New, DirState::Refused];
const OWNERS: [Owner; 2] = [Owner::User, Owner::Group];

impl<'a> Message<'a> {
    /// What a payload of type `kind` says. Every bound, name and choice in it has been checked.
    pub fn decode(kind: u8, payload: &'a [u8]) -> Result<Message<'a>, Refused> {
        let mut r = Reader::new(payload);
        let message = read(kind, &mut r)?;
        // [frame.rest] What a newer version has to say stands behind the handshake, and nowhere else.
        if !matches!(message, Message::Hello(_) | Message::Welcome(_)) {
            r.end("frame.rest")?;
        }
        rules::message(&message)?;
        Ok(message)
    }

    /// Appends the message to `out` as one whole frame, or leaves `out` as it was. What [`Message::decode`] would refuse
    /// is refused.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Refused> {
        rules::message(self)?;
        let mark = frame::begin(out, self.kind());
        let written = write(self, out).and_then(|()| finish(out, mark));
        if written.is_err() {
            out.truncate(mark);
        }
        written
    }

    /// The type byte.
    #[must_use]
    pub fn kind(&self) -> u8 {
        match self {
            Message::Hello(_) => kind::HELLO,
            Message::Welcome(_) => kind::WELCOME,
            Message::Error(_) => kind::ERROR,
            Message::Ok { .. } => kind::OK,
            Message::Done => kind::DONE,
            Message::Ping { .. } => kind::PING,
            Message::Pong { .. } => kind::PONG,
            Message::Stat { .. } => kind::STAT,
            Message::List { .. } => kind::LIST,
            Message::Hash { .. } => kind::HASH,
            Message::Mkdir { .. } => kind::MKDIR,
            Message::Usage { .. } => kind::USAGE,
            Message::Streams { .. } => kind::STREAMS,
            Message::Join { .. } => kind::JOIN,
            Message::Direct { .. } => kind::DIRECT,
            Message::Info(_) => kind::INFO,
            Message::Page { .. } => kind::PAGE,
            Message::Used { .. } => kind::USED,
            Message::Token { .. } => kind::TOKEN,
            Message::Rendezvous { .. } => kind::RENDEZVOUS,
            Message::Remove { .. } => kind::REMOVE,
            Message::Undo { .. } => kind::UNDO,
            Message::Put { .. } => kind::PUT,
            Message::Get { .. } => kind::GET,
            Message::Names { .. } => kind::NAMES,
            Message::Keeping(_) => kind::KEEPING,
            Message::Tree { .. } => kind::TREE,
            Message::IntoTree { .. } => kind::INTO_TREE,
            Message::Operand { .. } => kind::OPERAND,
            Message::Dir { .. } => kind::DIR,
            Message::Files { .. } => kind::FILES,
            Message::Contents { .. } => kind::CONTENTS,
            Message::Large { .. } => kind::LARGE,
            Message::Data(Piece { codec: Codec::Raw, .. }) => kind::DATA,
            Message::Data(_) => kind::DATA_COMPRESSED,
            Message::FileEnd { .. } => kind::FILE_END,
            Message::DirEnd { .. } => kind::DIR_END,
            Message::Trouble(_) => kind::TROUBLE,
            Message::Found { .. } => kind::FOUND,
            Message::Answer { .. } => kind::ANSWER,
            Message::HaveBlocks { .. } => kind::HAVE_BLOCKS,
            Message::Proof { .. } => kind::PROOF,
            Message::Values { .. } => kind::VALUES,
            Message::AllSent => kind::ALL_SENT,
            Message::AllNamed { .. } => kind::ALL_NAMED,
            Message::DirIs { .. } => kind::DIR_IS,
            Message::Wants { .. } => kind::WANTS,
            Message::Resume { .. } => kind::RESUME,
            Message::Reread { .. } => kind::REREAD,
            Message::Compute { .. } => kind::COMPUTE,
            Message::Landed { .. } => kind::LANDED,
            Message::Report(_) => kind::REPORT,
            Message::Ask { .. } => kind::ASK,
            Message::Close { .. } => kind::CLOSE,
            Message::MissingBlocks { .. } => kind::MISSING_BLOCKS,
            Message::Summary { .. } => kind::SUMMARY,
            Message::Sums { .. } => kind::SUMS,
            Message::Gone { .. } => kind::GONE,
            Message::Cancel => kind::CANCEL,
            Message::Finer { .. } => kind::FINER,
            Message::Patch(_) => kind::PATCH,
            Message::WantsParts { .. } => kind::WANTS_PARTS,
            Message::FilesPacked { .. } => kind::FILES_PACKED,
            Message::LeftOut { .. } => kind::LEFT_OUT,
            Message::Owner { .. } => kind::OWNER,
            Message::TakeAway { .. } => kind::TAKE_AWAY,
            Message::TookAway { .. } => kind::TOOK_AWAY,
        }
    }
}

/// Begins a `Data` or `DataCompressed` frame and writes everything before the bytes of the piece; `piece.bytes` is not
/// looked at. The caller appends them and calls [`frame::finish`], or sends them from elsewhere and calls
/// [`frame::finish_with`] with their number: `piece.length` when they are not compressed.
pub fn encode_data_header(piece: &Piece<'_>, out: &mut Vec<u8>) -> Result<usize, Refused> {
    let zeros = piece.flags & data::ZEROS != 0;
    rules::piece(piece, if zeros { 0 } else { piece.length })?;
    let mark = frame::begin(out, if piece.codec == Codec::Raw { kind::DATA } else { kind::DATA_COMPRESSED });
    write_piece_header(piece, out);
    Ok(mark)
}

/// Begins a `Files` frame with `inline` and writes everything before the contents. The caller appends them (see
/// [`crate::contents`]), at most [`crate::limits::CONTENTS_BYTES_MAX`] bytes, and calls [`frame::finish`].
pub fn begin_files(
    batch: u64,
    dir: u64,
    codec: Codec,
    entries: &[Entry<'_>],
    out: &mut Vec<u8>,
) -> Result<usize, Refused> {
    rules::files(batch, dir, entries)?;
    let mark = frame::begin(out, kind::FILES);
    let written = write_files_header(batch, dir, true, codec, entries, out);
    if written.is_err() {
        out.truncate(mark);
    }
    written.map(|()| mark)
}

/// What stands in front of a batch's entries where they are packed.
#[derive(Clone, Copy, Debug)]
pub struct PackedHead<'a> {
    /// `[packed.batch]`
    pub batch: u64,
    /// `[packed.dir]`
    pub dir: u64,
    /// `[packed.inline]`
    pub inline: bool,
    /// `[packed.packing]` Of the entries.
    pub packing: Codec,
    /// `[packed.entries]` See [`crate::columns`].
    pub entries: &'a [u8],
}

/// Begins a `FilesPacked` frame, whose contents are packed with `codec`; as [`begin_files`].
pub fn begin_files_packed(head: &PackedHead<'_>, codec: Codec, out: &mut Vec<u8>) -> Result<usize, Refused> {
    rules::files_packed(head.batch, head.dir, head.packing, head.entries)?;
    let mark = frame::begin(out, kind::FILES_PACKED);
    write_packed_header(head, codec, out);
    Ok(mark)
}

/// Begins a `Contents` frame; as [`begin_files`].
#[must_use]
pub fn begin_contents(batch: u64, codec: Codec, out: &mut Vec<u8>) -> usize {
    let mark = frame::begin(out, kind::CONTENTS);
    write_contents_header(batch, codec, out);
    mark
}

/// A frame that is too long is a refusal like any other.
fn finish(out: &mut Vec<u8>, mark: usize) -> Result<(), Refused> {
    frame::finish(out, mark).or(refuse("frame.length", Why::Limit))
}

fn read<'a>(kind: u8, r: &mut Reader<'a>) -> Result<Message<'a>, Refused> {
    Ok(match kind {
        kind::HELLO => Message::Hello(read_hello(r, true)?),
        kind::WELCOME => Message::Welcome(read_hello(r, false)?),
        kind::ERROR => Message::Error(read_trouble(r)?),
        kind::OK => Message::Ok { hash: r.list("ok.hash", 32, 1, |r| r.hash("ok.hash"))?.pop() },
        kind::DONE => Message::Done,
        kind::PING => Message::Ping { token: r.u64("ping.token")? },
        kind::PONG => Message::Pong { token: r.u64("ping.token")? },

        kind::STAT => Message::Stat { path: r.bytes("stat.path")?, follow: r.bool("stat.follow")? },
        kind::LIST => Message::List { path: r.bytes("list.path")? },
        kind::HASH => Message::Hash { path: r.bytes("hash.path")? },
        kind::MKDIR => Message::Mkdir { path: r.bytes("mkdir.path")?, mode: r.u32("mkdir.mode")? },
        kind::USAGE => {
            Message::Usage { path: r.bytes("usage.path")?, numbers: read_settings(r, "usage.numbers")? }
        }
        kind::STREAMS => Message::Streams { count: r.v("streams.count")? },
        kind::JOIN => Message::Join {
            secret: r.hash("join.secret")?,
            path: r.bytes("join.path")?,
            index: r.v("join.index")?,
        },
        kind::UNDO => Message::Undo { path: r.bytes("undo.path")?, flags: r.u8("undo.flags")? },
        kind::REMOVE => Message::Remove { path: r.bytes("remove.path")?, flags: r.u8("remove.flags")? },
        kind::DIRECT => Message::Direct { count: r.v("direct.count")? },
        kind::INFO => Message::Info(read_entry(r)?),
        kind::PAGE => {
            must(r.left() < PAGE_BYTES, "page.entries", Why::Limit)?;
            Message::Page { entries: r.list("page.entries", ENTRY_BYTES_MIN, PAGE_BYTES, read_entry)? }
        }
        kind::USED => Message::Used {
            files: r.v("used.files")?,
            dirs: r.v("used.dirs")?,
            bytes: r.v("used.bytes")?,
            allocated: r.v("used.allocated")?,
            unreadable: read_unreadable(r)?,
        },
        kind::TOKEN => Message::Token { secret: r.hash("token.secret")?, path: r.bytes("token.path")? },
        kind::RENDEZVOUS => Message::Rendezvous {
            address: r.bytes("rendezvous.address")?,
            port: r.u16("rendezvous.port")?,
            secret: r.hash("rendezvous.secret")?,
        },

        kind::PUT => {
            let policy = read_policy(r)?;
            let target = r.choice("put.target", &TARGETS)?;
            let path = r.bytes("put.path")?;
            let operands = r.v("put.operands")?;
            let items = r.bool("put.items")?;
            must(r.v("put.root")? == 0, "put.root", Why::Unknown)?;
            Message::Put { policy, target, path, operands, items }
        }
        kind::GET => {
            let policy = read_policy(r)?;
            let paths = r.list("get.paths", 1, OPERANDS_MAX, |r| r.bytes("get.paths"))?;
            let named = r.bool("get.named")?;
            let names = r.list("get.names", 1, NAMES_MAX, |r| r.bytes("get.names"))?;
            must(named || names.is_empty(), "get.names", Why::Contradiction)?;
            Message::Get { policy, paths, names: named.then_some(names) }
        }
        kind::NAMES => {
            Message::Names { names: r.list("names.names", 1, NAMES_MAX, |r| r.bytes("names.names"))? }
        }
        kind::KEEPING => Message::Keeping(read_keeping(r)?),
        kind::TREE => Message::Tree {
            path: r.bytes("tree.path")?,
            plan: r.hash("tree.plan")?,
            step: read_tree_step(r)?,
        },
        kind::INTO_TREE => Message::IntoTree { plan: r.hash("intotree.plan")?, all: r.bool("intotree.all")? },
        kind::OPERAND => Message::Operand {
            path: r.bytes("operand.path")?,
            whole: r.bool("operand.whole")?,
            origin: r.u64("operand.origin")?,
            dir: r.v("operand.dir")?,
            entry: read_entry(r)?,
        },
        kind::DIR => Message::Dir { id: r.v("dir.id")?, parent: r.v("dir.parent")?, entry: read_entry(r)? },
        kind::FILES => Message::Files {
            batch: r.v("files.batch")?,
            dir: r.v("files.dir")?,
            inline: r.bool("files.inline")?,
            codec: r.choice("files.codec", &CODECS)?,
            entries: read_batch(r)?,
            contents: r.all(),
        },
        kind::CONTENTS => Message::Contents {
            batch: r.v("contents.batch")?,
            codec: r.choice("contents.codec", &CODECS)?,
            bytes: r.all(),
        },
        kind::LARGE => {
            Message::Large { file: r.v("large.file")?, dir: r.v("large.dir")?, entry: read_entry(r)? }
        }
        kind::DATA => Message::Data(read_piece(false, r)?),
        kind::DATA_COMPRESSED => Message::Data(read_piece(true, r)?),
        kind::FILE_END => Message::FileEnd {
            file: r.v("fileend.file")?,
            state: r.choice("fileend.state", &FILE_STATES)?,
            error: read_nested_trouble(r)?,
        },
        kind::DIR_END => Message::DirEnd { dir: r.v("dirend.dir")?, partial: r.bool("dirend.partial")? },
        kind::TROUBLE => Message::Trouble(read_trouble(r)?),
        kind::FOUND => Message::Found {
            items: r.v("found.items")?,
            bytes: r.v("found.bytes")?,
            last: r.bool("found.last")?,
        },
        kind::ANSWER => Message::Answer { id: r.v("answer.id")?, yes: r.bool("answer.yes")? },
        kind::HAVE_BLOCKS => Message::HaveBlocks {
            file: r.v("have.file")?,
            first: r.v("have.first")?,
            hashes: r.list("have.hashes", 32, HAVE_BLOCKS_MAX, |r| r.hash("have.hashes"))?,
        },
        kind::PROOF => Message::Proof {
            file: r.v("proof.file")?,
            first: r.v("proof.first")?,
            tags: r.list("proof.tags", 32, HAVE_BLOCKS_MAX, |r| r.hash("proof.tags"))?,
        },
        kind::VALUES => Message::Values {
            file: r.v("values.file")?,
            first: r.v("values.first")?,
            hashes: r.list("values.hashes", 32, VALUES_MAX, |r| r.hash("values.hashes"))?,
        },
        kind::LEFT_OUT => Message::LeftOut {
            dir: r.v("leftout.dir")?,
            names: r.list("leftout.names", 1, LEFT_OUT_MAX, |r| r.bytes("leftout.names"))?,
        },
        kind::TAKE_AWAY => Message::TakeAway {
            dir: r.v("takeaway.dir")?,
            names: r.list("takeaway.names", TAKEN_BYTES_MIN, TAKEN_MAX, |r| {
                Ok(Taken {
                    name: r.bytes("takeaway.names")?,
                    ino: r.v("takeaway.names")?,
                    nlink: r.v("takeaway.names")?,
                    size: r.v("takeaway.names")?,
                    mtime: read_time(r, "takeaway.names")?,
                    ctime: read_time(r, "takeaway.names")?,
                })
            })?,
        },
        kind::TOOK_AWAY => Message::TookAway { left: r.v("tookaway.left")? },
        kind::ALL_SENT => Message::AllSent,
        kind::ALL_NAMED => {
            Message::AllNamed { dirs: r.v("allnamed.dirs")?, batches: r.v("allnamed.batches")? }
        }

        kind::DIR_IS => {
            Message::DirIs { dir: r.v("diris.dir")?, state: r.choice("diris.state", &DIR_STATES)? }
        }
        kind::WANTS => Message::Wants {
            batch: r.v("wants.batch")?,
            entries: r.list("wants.entries", 1, ENTRIES_MAX, |r| r.v("wants.entries"))?,
        },
        kind::RESUME => Message::Resume {
            file: r.v("resume.file")?,
            wanted: r.bool("resume.state")?,
            from: r.v("resume.from")?,
            flags: r.u8("resume.flags")?,
        },
        kind::REREAD => {
            Message::Reread { file: r.v("reread.file")?, at: r.v("reread.at")?, bytes: r.v("reread.bytes")? }
        }
        kind::COMPUTE => Message::Compute {
            file: r.v("compute.file")?,
            first: r.v("compute.first")?,
            count: r.v("compute.count")?,
        },
        kind::GONE => Message::Gone { deleted: r.v("gone.deleted")?, updated: r.v("gone.updated")? },
        kind::LANDED => Message::Landed { items: r.v("landed.items")?, bytes: r.v("landed.bytes")? },
        kind::REPORT => Message::Report(read_event(r)?),
        kind::ASK => Message::Ask { id: r.v("ask.id")?, path: r.bytes("ask.path")? },
        kind::CLOSE => Message::Close { file: r.v("close.file")? },
        kind::MISSING_BLOCKS => Message::MissingBlocks {
            file: r.v("missing.file")?,
            first: r.v("missing.first")?,
            nonce: r.hash("missing.nonce")?,
            bits: r.bytes("missing.bits")?,
        },
        kind::SUMMARY => {
            let mut counts = [0; 7];
            for count in &mut counts {
                *count = r.v("summary.counts")?;
            }
            Message::Summary {
                counts,
                codes: r.list("summary.codes", 1, CODES_MAX, |r| r.v("summary.codes"))?,
                cancelled: r.bool("summary.cancelled")?,
            }
        }
        kind::SUMS => Message::Sums {
            file: r.v("sums.file")?,
            at: r.v("sums.at")?,
            chunks: r.list("sums.chunks", SUM_BYTES_MIN, SUMS_MAX, |r| {
                Ok(Sum { bytes: r.v("sums.chunks")?, sum: r.u64("sums.chunks")? })
            })?,
        },
        kind::CANCEL => Message::Cancel,
        kind::FINER => {
            Message::Finer { file: r.v("finer.file")?, at: r.v("finer.at")?, bytes: r.v("finer.bytes")? }
        }
        kind::PATCH => Message::Patch(read_patch(r)?),
        kind::WANTS_PARTS => {
            let batch = r.v("parts.batch")?;
            let mut left = PARTS_SUMS_MAX;
            Message::WantsParts {
                batch,
                entries: r.list("parts.entries", 2, ENTRIES_MAX, |r| read_part(r, &mut left))?,
            }
        }
        kind::FILES_PACKED => Message::FilesPacked {
            batch: r.v("packed.batch")?,
            dir: r.v("packed.dir")?,
            inline: r.bool("packed.inline")?,
            codec: r.choice("packed.codec", &CODECS)?,
            packing: r.choice("packed.packing", &CODECS)?,
            entries: r.bytes("packed.entries")?,
            contents: r.all(),
        },
        kind::OWNER => Message::Owner {
            of: r.choice("owner.of", &OWNERS)?,
            id: r.v32("owner.id")?,
            name: r.bytes("owner.name")?,
        },
        _ => return refuse("frame.state", Why::Unknown),
    })
}

fn read_hello<'a>(r: &mut Reader<'a>, asks: bool) -> Result<Hello<'a>, Refused> {
    let version = r.u16("hello.version")?;
    let caps = if r.left() == 0 { 0 } else { r.u8("hello.caps")? };
    let mut wide = None;
    if caps & crate::handshake::caps::WIDE != 0 {
        let bits = r.u64("hello.wide")?;
        let (nonce, agent) = (r.hash("hello.nonce")?, r.bytes("hello.agent")?);
        let at_once = if asks && bits & crate::handshake::wide::AT_ONCE != 0 {
            Some(AtOnce { most: r.v("hello.most")?, get: r.bytes("hello.get")? })
        } else {
            None
        };
        wide = Some(Wide { bits, nonce, agent, at_once });
    }
    Ok(Hello { version, caps, wide })
}

pub(crate) fn read_trouble<'a>(r: &mut Reader<'a>) -> Result<Trouble<'a>, Refused> {
    Ok(Trouble {
        code: r.u16("error.code")?,
        op: r.v16("error.op")?,
        path: r.bytes("error.path")?,
        note: read_note(r)?,
        errno: r.v32("error.errno")?,
    })
}

/// Absent where there is none.
fn read_unreadable<'a>(r: &mut Reader<'a>) -> Result<Vec<Trouble<'a>>, Refused> {
    if r.left() == 0 {
        return Ok(Vec::new());
    }
    let all = r.list("used.unreadable", TROUBLE_BYTES_MIN, UNREADABLE_MAX, read_trouble)?;
    must(!all.is_empty(), "used.unreadable", Why::Limit)?;
    Ok(all)
}

fn read_note<'a>(r: &mut Reader<'a>) -> Result<Note<'a>, Refused> {
    let reason = r.v16("error.reason")?;
    if reason == 0 {
        return Ok(Note::default());
    }
    let about = r.list("error.about", 2, ABOUT_MAX, |r| {
        let reason = r.v16("error.about")?;
        Ok((reason, r.bytes("error.about")?))
    })?;
    Ok(Note { reason, about })
}

/// Empty, or exactly one error.
fn read_nested_trouble<'a>(r: &mut Reader<'a>) -> Result<Option<Trouble<'a>>, Refused> {
    let bytes = r.bytes("fileend.error")?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut inner = Reader::new(bytes);
    let trouble = read_trouble(&mut inner)?;
    inner.end("fileend.error")?;
    Ok(Some(trouble))
}

fn read_policy<'a>(r: &mut Reader<'a>) -> Result<Policy<'a>, Refused> {
    let flags = r.u64("policy.flags")?;
    let mut choices = [0; 8];
    for choice in &mut choices {
        *choice = r.u8("policy.choices")?;
    }
    Ok(Policy {
        flags,
        choices,
        checkpoint: r.v("policy.checkpoint")?,
        rules: r.list("policy.rules", 2, RULES_MAX, |r| {
            Ok((r.bool("policy.rules")?, r.bytes("policy.rules")?))
        })?,
        regexes: r.list("policy.regexes", 1, RULES_MAX, |r| r.bytes("policy.regexes"))?,
        compress: r.choice("policy.compress", &COMPRESS)?,
        numbers: read_settings(r, "policy.numbers")?,
    })
}

fn read_settings(r: &mut Reader<'_>, tag: crate::field::Tag) -> Result<Vec<(u8, u64)>, Refused> {
    r.list(tag, 2, NUMBERS_MAX, |r| Ok((r.u8(tag)?, r.v(tag)?)))
}

fn read_time(r: &mut Reader<'_>, tag: crate::field::Tag) -> Result<Time, Refused> {
    Ok(Time { sec: r.i(tag)?, nsec: r.v32(tag)? })
}

fn read_entry<'a>(r: &mut Reader<'a>) -> Result<Entry<'a>, Refused> {
    Ok(Entry {
        kind: r.choice("entry.kind", &KINDS)?,
        name: r.bytes("entry.name")?,
        mode: r.v32("entry.mode")?,
        uid: r.v32("entry.uid")?,
        gid: r.v32("entry.gid")?,
        size: r.v("entry.size")?,
        blocks: r.v("entry.blocks")?,
        atime: read_time(r, "entry.atime")?,
        mtime: read_time(r, "entry.mtime")?,
        ctime: read_time(r, "entry.ctime")?,
        dev: r.v("entry.dev")?,
        ino: r.v("entry.ino")?,
        nlink: r.v("entry.nlink")?,
        rdev: r.v("entry.rdev")?,
        link: r.bytes("entry.link")?,
        // A name of one byte with its length, and the length of an empty value.
        attrs: r.list("entry.attrs", 3, ATTRS_BYTES_MAX / ATTR_BYTES, |r| {
            Ok((r.bytes("entry.attrs")?, r.bytes("entry.attrs")?))
        })?,
    })
}

/// Entries are what takes more room in memory than on the wire, so all of a batch together have a maximum.
fn read_batch<'a>(r: &mut Reader<'a>) -> Result<Vec<Entry<'a>>, Refused> {
    let before = r.left();
    r.list("files.entries", ENTRY_BYTES_MIN, ENTRIES_MAX, |r| {
        let entry = read_entry(r)?;
        must(before - r.left() <= ENTRIES_BYTES_MAX, "files.entries", Why::Limit)?;
        Ok(entry)
    })
}

fn read_piece<'a>(compressed: bool, r: &mut Reader<'a>) -> Result<Piece<'a>, Refused> {
    let file = r.v("data.file")?;
    let at = r.v("data.at")?;
    let flags = r.u8("data.flags")?;
    let cv = if flags & data::ENDS_BLOCK != 0 { Some(r.hash("data.cv")?) } else { None };
    if compressed {
        let codec = r.choice("data.codec", &CODECS)?;
        must(codec != Codec::Raw, "data.codec", Why::Unknown)?;
        let length = r.v("data.length")?;
        return Ok(Piece { file, at, flags, cv, codec, length, bytes: r.all() });
    }
    if flags & data::ZEROS != 0 {
        let length = r.v("data.zeros")?;
        return Ok(Piece { file, at, flags, cv, codec: Codec::Raw, length, bytes: &[] });
    }
    let bytes = r.all();
    Ok(Piece { file, at, flags, cv, codec: Codec::Raw, length: bytes.len() as u64, bytes })
}

fn read_patch<'a>(r: &mut Reader<'a>) -> Result<Patch<'a>, Refused> {
    let file = r.v("patch.file")?;
    let at = r.v("patch.at")?;
    let cv = if r.bool("patch.ends")? { Some(r.hash("patch.cv")?) } else { None };
    let runs = r.list("patch.runs", 2, RUNS_MAX, |r| {
        Ok(Run { bytes: r.v("patch.runs")?, from: r.v("patch.runs")?.checked_sub(1) })
    })?;
    let codec = r.choice("patch.codec", &CODECS)?;
    Ok(Patch { file, at, cv, runs, codec, bytes: r.all() })
}

/// One entry of which a part is wanted; all of a message have at most `left` chunks.
fn read_part(r: &mut Reader<'_>, left: &mut usize) -> Result<WantedPart, Refused> {
    const TAG: &str = "parts.entries";
    let entry = r.v(TAG)?;
    let wanted = match r.u8(TAG)? {
        0 => Wanted::Content,
        1 => Wanted::Hash,
        2 => {
            let chunks =
                r.list(TAG, SUM_BYTES_MIN, *left, |r| Ok(Sum { bytes: r.v(TAG)?, sum: r.u64(TAG)? }))?;
            *left -= chunks.len();
            Wanted::Rest(chunks)
        }
        _ => return refuse(TAG, Why::Unknown),
    };
    Ok(WantedPart { entry, wanted })
}

fn read_keeping<'a>(r: &mut Reader<'a>) -> Result<Keeping<'a>, Refused> {
    let bases = r.list("keeping.bases", 1, BASES_MAX, |r| r.bytes("keeping.bases"))?;
    let old = match r.u8("keeping.old")? {
        0 => OldThings::Go,
        1 => OldThings::Below(r.bytes("keeping.below")?),
        2 => OldThings::Trashed,
        _ => return refuse("keeping.old", Why::Unknown),
    };
    let dated = r.u8("keeping.dated")?;
    must(dated <= 2, "keeping.dated", Why::Unknown)?;
    let at = if dated > 0 { Some(r.i("keeping.at")?) } else { None };
    let stay = if dated > 1 {
        Some([r.v32("keeping.stay")?, r.v32("keeping.stay")?, r.v32("keeping.stay")?])
    } else {
        None
    };
    Ok(Keeping { bases, old, at, stay })
}

fn write_keeping(keeping: &Keeping<'_>, out: &mut Vec<u8>) {
    let Keeping { bases, old, at, stay } = keeping;
    write_byte_strings(bases, out); // [keeping.bases]
    match old {
        OldThings::Go => out.push(0), // [keeping.old]
        OldThings::Below(path) => {
            out.push(1);
            put_bytes(path, out); // [keeping.below]
        }
        OldThings::Trashed => out.push(2),
    }
    out.push(u8::from(at.is_some()) + u8::from(stay.is_some())); // [keeping.dated]
    at.iter().for_each(|at| put_i(*at, out)); // [keeping.at]
    stay.iter().flatten().for_each(|number| put_v(u64::from(*number), out)); // [keeping.stay]
}

fn read_tree_step<'a>(r: &mut Reader<'a>) -> Result<TreeStep<'a>, Refused> {
    const LINKS: &str = "tree.links";
    Ok(match r.u8("tree.step")? {
        0 => TreeStep::Make,
        1 => TreeStep::Find,
        2 => TreeStep::Link(r.list(LINKS, 2, TREE_LINKS_MAX, |r| Ok((r.bytes(LINKS)?, r.bytes(LINKS)?)))?),
        3 => TreeStep::Publish { ino: r.v("tree.ino")? },
        _ => return refuse("tree.step", Why::Unknown),
    })
}

fn write_tree_step(step: &TreeStep<'_>, out: &mut Vec<u8>) {
    // [tree.step]
    match step {
        TreeStep::Make => out.push(0),
        TreeStep::Find => out.push(1),
        TreeStep::Link(links) => {
            out.push(2);
            put_v(links.len() as u64, out); // [tree.links]
            for (first, name) in links {
                put_bytes(first, out);
                put_bytes(name, out);
            }
        }
        TreeStep::Publish { ino } => {
            out.push(3);
            put_v(*ino, out); // [tree.ino]
        }
    }
}

fn read_event<'a>(r: &mut Reader<'a>) -> Result<Event<'a>, Refused> {
    const TAG: &str = "event.kind";
    Ok(match r.u8(TAG)? {
        0 => Event::Item { action: r.u8(TAG)?, src: r.bytes(TAG)?, dst: r.bytes(TAG)?, bytes: r.v(TAG)? },
        1 => Event::Failed(read_trouble(r)?),
        2 => Event::Warning(read_trouble(r)?),
        3 => Event::Hashed { dst: r.bytes(TAG)?, hash: r.hash(TAG)? },
        4 => Event::Resumed {
            dst: r.bytes(TAG)?,
            bytes: r.v(TAG)?,
            restarted: r.v16(TAG)?,
            repaired: r.v(TAG)?,
        },
        5 => Event::Note(read_note(r)?),
        which @ (6 | 10) => Event::Difference {
            change: r.u8(TAG)?,
            path: r.bytes(TAG)?,
            directory: r.bool(TAG)?,
            files: r.v(TAG)?,
            bytes: r.v(TAG)?,
            why: r.v16(TAG)?,
            alike: if which == 10 { Some(r.hash("event.alike")?) } else { None },
        },
        7 => Event::Base(r.bytes(TAG)?),
        9 => Event::NewTarget,
        8 => Event::Compared { by_time: r.v(TAG)?, by_content: r.v(TAG)? },
        _ => return refuse(TAG, Why::Unknown),
    })
}

/// The payload. Only what cannot be seen before it is written is refused here.
fn write(message: &Message<'_>, out: &mut Vec<u8>) -> Result<(), Refused> {
    match message {
        Message::Hello(hello) | Message::Welcome(hello) => write_hello(hello, out),
        Message::Error(trouble) => write_trouble(trouble, out),
        Message::Ok { hash } => write_hashes(hash.as_slice(), out), // [ok.hash]
        Message::Done | Message::AllSent | Message::Cancel => {}
        Message::Ping { token } | Message::Pong { token } => {
            out.extend_from_slice(&token.to_le_bytes()); // [ping.token]
        }

        Message::Stat { path, follow } => {
            put_bytes(path, out); // [stat.path]
            out.push(u8::from(*follow)); // [stat.follow]
        }
        Message::List { path } => put_bytes(path, out), // [list.path]
        Message::Hash { path } => put_bytes(path, out), // [hash.path]
        Message::Mkdir { path, mode } => {
            put_bytes(path, out); // [mkdir.path]
            out.extend_from_slice(&mode.to_le_bytes()); // [mkdir.mode]
        }
        Message::Usage { path, numbers } => {
            put_bytes(path, out); // [usage.path]
            write_settings(numbers, out); // [usage.numbers]
        }
        Message::Streams { count } => put_v(*count, out), // [streams.count]
        Message::Join { secret, path, index } => {
            out.extend_from_slice(secret); // [join.secret]
            put_bytes(path, out); // [join.path]
            put_v(*index, out); // [join.index]
        }
        Message::Direct { count } => put_v(*count, out), // [direct.count]
        Message::Remove { path, flags } => {
            put_bytes(path, out); // [remove.path]
            out.push(*flags); // [remove.flags]
        }
        Message::Undo { path, flags } => {
            put_bytes(path, out); // [undo.path]
            out.push(*flags); // [undo.flags]
        }
        Message::Info(entry) => write_entry(entry, out), // [info.entry]
        Message::Page { entries } => {
            let before = out.len();
            write_entries(entries, out); // [page.entries]
            must(out.len() - before < PAGE_BYTES, "page.entries", Why::Limit)?;
        }
        Message::Used { files, dirs, bytes, allocated, unreadable } => {
            put_v(*files, out); // [used.files]
            put_v(*dirs, out); // [used.dirs]
            put_v(*bytes, out); // [used.bytes]
            put_v(*allocated, out); // [used.allocated]
            if !unreadable.is_empty() {
                put_v(unreadable.len() as u64, out); // [used.unreadable]
                unreadable.iter().for_each(|one| write_trouble(one, out));
            }
        }
        Message::Token { secret, path } => {
            out.extend_from_slice(secret); // [token.secret]
            put_bytes(path, out); // [token.path]
        }
        Message::Rendezvous { address, port, secret } => {
            put_bytes(address, out); // [rendezvous.address]
            out.extend_from_slice(&port.to_le_bytes()); // [rendezvous.port]
            out.extend_from_slice(secret); // [rendezvous.secret]
        }

        Message::Put { policy, target, path, operands, items } => {
            write_policy(policy, out); // [put.policy]
            out.push(*target as u8); // [put.target]
            put_bytes(path, out); // [put.path]
            put_v(*operands, out); // [put.operands]
            out.push(u8::from(*items)); // [put.items]
            put_v(0, out); // [put.root]
        }
        Message::Get { policy, paths, names } => {
            write_policy(policy, out); // [get.policy]
            write_byte_strings(paths, out); // [get.paths]
            out.push(u8::from(names.is_some())); // [get.named]
            write_byte_strings(names.as_deref().unwrap_or_default(), out); // [get.names]
        }
        Message::Names { names } => write_byte_strings(names, out), // [names.names]
        Message::Keeping(keeping) => write_keeping(keeping, out),
        Message::Tree { path, plan, step } => {
            put_bytes(path, out); // [tree.path]
            out.extend_from_slice(plan); // [tree.plan]
            write_tree_step(step, out);
        }
        Message::IntoTree { plan, all } => {
            out.extend_from_slice(plan); // [intotree.plan]
            out.push(u8::from(*all)); // [intotree.all]
        }
        Message::Operand { path, whole, origin, dir, entry } => {
            put_bytes(path, out); // [operand.path]
            out.push(u8::from(*whole)); // [operand.whole]
            out.extend_from_slice(&origin.to_le_bytes()); // [operand.origin]
            put_v(*dir, out); // [operand.dir]
            write_entry(entry, out); // [operand.entry]
        }
        Message::Dir { id, parent, entry } => {
            put_v(*id, out); // [dir.id]
            put_v(*parent, out); // [dir.parent]
            write_entry(entry, out); // [dir.entry]
        }
        Message::Files { batch, dir, inline, codec, entries, contents } => {
            write_files_header(*batch, *dir, *inline, *codec, entries, out)?;
            out.extend_from_slice(contents); // [files.contents]
        }
        Message::Contents { batch, codec, bytes } => {
            write_contents_header(*batch, *codec, out);
            out.extend_from_slice(bytes); // [contents.bytes]
        }
        Message::Large { file, dir, entry } => {
            put_v(*file, out); // [large.file]
            put_v(*dir, out); // [large.dir]
            write_entry(entry, out); // [large.entry]
        }
        Message::Data(piece) => {
            write_piece_header(piece, out);
            out.extend_from_slice(piece.bytes); // [data.bytes]
        }
        Message::FileEnd { file, state, error } => {
            put_v(*file, out); // [fileend.file]
            out.push(*state as u8); // [fileend.state]
            let mut inner = Vec::new();
            if let Some(error) = error {
                write_trouble(error, &mut inner);
            }
            put_bytes(&inner, out); // [fileend.error]
        }
        Message::DirEnd { dir, partial } => {
            put_v(*dir, out); // [dirend.dir]
            out.push(u8::from(*partial)); // [dirend.partial]
        }
        Message::Trouble(trouble) => write_trouble(trouble, out), // [trouble.error]
        Message::Found { items, bytes, last } => {
            put_v(*items, out); // [found.items]
            put_v(*bytes, out); // [found.bytes]
            out.push(u8::from(*last)); // [found.last]
        }
        Message::AllNamed { dirs, batches } => {
            put_v(*dirs, out); // [allnamed.dirs]
            put_v(*batches, out); // [allnamed.batches]
        }
        Message::Answer { id, yes } => {
            put_v(*id, out); // [answer.id]
            out.push(u8::from(*yes)); // [answer.yes]
        }
        Message::HaveBlocks { file, first, hashes } => {
            put_v(*file, out); // [have.file]
            put_v(*first, out); // [have.first]
            write_hashes(hashes, out); // [have.hashes]
        }
        Message::Proof { file, first, tags } => {
            put_v(*file, out); // [proof.file]
            put_v(*first, out); // [proof.first]
            write_hashes(tags, out); // [proof.tags]
        }
        Message::Values { file, first, hashes } => {
            put_v(*file, out); // [values.file]
            put_v(*first, out); // [values.first]
            write_hashes(hashes, out); // [values.hashes]
        }

        Message::DirIs { dir, state } => {
            put_v(*dir, out); // [diris.dir]
            out.push(*state as u8); // [diris.state]
        }
        Message::Wants { batch, entries } => {
            put_v(*batch, out); // [wants.batch]
            write_numbers(entries, out); // [wants.entries]
        }
        Message::Resume { file, wanted, from, flags } => {
            put_v(*file, out); // [resume.file]
            out.push(u8::from(*wanted)); // [resume.state]
            put_v(*from, out); // [resume.from]
            out.push(*flags); // [resume.flags]
        }
        Message::Reread { file, at, bytes } => {
            put_v(*file, out); // [reread.file]
            put_v(*at, out); // [reread.at]
            put_v(*bytes, out); // [reread.bytes]
        }
        Message::Compute { file, first, count } => {
            put_v(*file, out); // [compute.file]
            put_v(*first, out); // [compute.first]
            put_v(*count, out); // [compute.count]
        }
        Message::Gone { deleted, updated } => {
            put_v(*deleted, out); // [gone.deleted]
            put_v(*updated, out); // [gone.updated]
        }
        Message::TakeAway { dir, names } => {
            put_v(*dir, out); // [takeaway.dir]
            put_v(names.len() as u64, out); // [takeaway.names]
            for one in names {
                put_bytes(one.name, out);
                put_v(one.ino, out);
                put_v(one.nlink, out);
                put_v(one.size, out);
                write_time(one.mtime, out);
                write_time(one.ctime, out);
            }
        }
        Message::TookAway { left } => put_v(*left, out), // [tookaway.left]
        Message::LeftOut { dir, names } => {
            put_v(*dir, out); // [leftout.dir]
            write_byte_strings(names, out); // [leftout.names]
        }
        Message::Landed { items, bytes } => {
            put_v(*items, out); // [landed.items]
            put_v(*bytes, out); // [landed.bytes]
        }
        Message::Report(event) => write_event(event, out), // [report.event]
        Message::Ask { id, path } => {
            put_v(*id, out); // [ask.id]
            put_bytes(path, out); // [ask.path]
        }
        Message::Close { file } => put_v(*file, out), // [close.file]
        Message::Sums { file, at, chunks } => {
            put_v(*file, out); // [sums.file]
            put_v(*at, out); // [sums.at]
            put_v(chunks.len() as u64, out); // [sums.chunks]
            for chunk in chunks {
                put_v(chunk.bytes, out);
                out.extend_from_slice(&chunk.sum.to_le_bytes());
            }
        }
        Message::Finer { file, at, bytes } => {
            put_v(*file, out); // [finer.file]
            put_v(*at, out); // [finer.at]
            put_v(*bytes, out); // [finer.bytes]
        }
        Message::Patch(patch) => write_patch(patch, out),
        Message::WantsParts { batch, entries } => {
            put_v(*batch, out); // [parts.batch]
            put_v(entries.len() as u64, out); // [parts.entries]
            entries.iter().for_each(|part| write_part(part, out));
        }
        Message::FilesPacked { batch, dir, inline, codec, packing, entries, contents } => {
            let (batch, dir, inline, packing) = (*batch, *dir, *inline, *packing);
            write_packed_header(&PackedHead { batch, dir, inline, packing, entries }, *codec, out);
            out.extend_from_slice(contents); // [packed.contents]
        }
        Message::Owner { of, id, name } => {
            out.push(*of as u8); // [owner.of]
            put_v(u64::from(*id), out); // [owner.id]
            put_bytes(name, out); // [owner.name]
        }
        Message::MissingBlocks { file, first, nonce, bits } => {
            put_v(*file, out); // [missing.file]
            put_v(*first, out); // [missing.first]
            out.extend_from_slice(nonce); // [missing.nonce]
            put_bytes(bits, out); // [missing.bits]
        }
        Message::Summary { counts, codes, cancelled } => {
            counts.iter().for_each(|count| put_v(*count, out)); // [summary.counts]
            write_numbers(codes, out); // [summary.codes]
            out.push(u8::from(*cancelled)); // [summary.cancelled]
        }
    }
    Ok(())
}

fn write_hello(hello: &Hello<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&hello.version.to_le_bytes()); // [hello.version]
    out.push(hello.caps); // [hello.caps]
    if let Some(wide) = &hello.wide {
        out.extend_from_slice(&wide.bits.to_le_bytes()); // [hello.wide]
        out.extend_from_slice(&wide.nonce); // [hello.nonce]
        put_bytes(wide.agent, out); // [hello.agent]
        if let Some(AtOnce { most, get }) = wide.at_once {
            put_v(most, out); // [hello.most]
            put_bytes(get, out); // [hello.get]
        }
    }
}

pub(crate) fn write_trouble(trouble: &Trouble<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&trouble.code.to_le_bytes()); // [error.code]
    put_v(trouble.op.into(), out); // [error.op]
    put_bytes(trouble.path, out); // [error.path]
    write_note(&trouble.note, out);
    put_v(u64::from(trouble.errno), out); // [error.errno]
}

fn write_note(note: &Note<'_>, out: &mut Vec<u8>) {
    put_v(note.reason.into(), out); // [error.reason]
    if note.reason != 0 {
        put_v(note.about.len() as u64, out); // [error.about]
        for (reason, text) in &note.about {
            put_v((*reason).into(), out);
            put_bytes(text, out);
        }
    }
}

fn write_policy(policy: &Policy<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&policy.flags.to_le_bytes()); // [policy.flags]
    out.extend_from_slice(&policy.choices); // [policy.choices]
    put_v(policy.checkpoint, out); // [policy.checkpoint]
    put_v(policy.rules.len() as u64, out); // [policy.rules]
    for (include, glob) in &policy.rules {
        out.push(u8::from(*include));
        put_bytes(glob, out);
    }
    write_byte_strings(&policy.regexes, out); // [policy.regexes]
    out.push(policy.compress as u8); // [policy.compress]
    write_settings(&policy.numbers, out); // [policy.numbers]
}

fn write_settings(numbers: &[(u8, u64)], out: &mut Vec<u8>) {
    put_v(numbers.len() as u64, out);
    for (which, value) in numbers {
        out.push(*which);
        put_v(*value, out);
    }
}

fn write_time(time: Time, out: &mut Vec<u8>) {
    put_i(time.sec, out);
    put_v(u64::from(time.nsec), out);
}

fn write_entry(entry: &Entry<'_>, out: &mut Vec<u8>) {
    out.push(entry.kind as u8); // [entry.kind]
    put_bytes(entry.name, out); // [entry.name]
    put_v(u64::from(entry.mode), out); // [entry.mode]
    put_v(u64::from(entry.uid), out); // [entry.uid]
    put_v(u64::from(entry.gid), out); // [entry.gid]
    put_v(entry.size, out); // [entry.size]
    put_v(entry.blocks, out); // [entry.blocks]
    write_time(entry.atime, out); // [entry.atime]
    write_time(entry.mtime, out); // [entry.mtime]
    write_time(entry.ctime, out); // [entry.ctime]
    put_v(entry.dev, out); // [entry.dev]
    put_v(entry.ino, out); // [entry.ino]
    put_v(entry.nlink, out); // [entry.nlink]
    put_v(entry.rdev, out); // [entry.rdev]
    put_bytes(entry.link, out); // [entry.link]
    put_v(entry.attrs.len() as u64, out); // [entry.attrs]
    for (name, value) in &entry.attrs {
        put_bytes(name, out);
        put_bytes(value, out);
    }
}

fn write_entries(entries: &[Entry<'_>], out: &mut Vec<u8>) {
    put_v(entries.len() as u64, out);
    entries.iter().for_each(|entry| write_entry(entry, out));
}

fn write_files_header(
    batch: u64,
    dir: u64,
    inline: bool,
    codec: Codec,
    entries: &[Entry<'_>],
    out: &mut Vec<u8>,
) -> Result<(), Refused> {
    put_v(batch, out); // [files.batch]
    put_v(dir, out); // [files.dir]
    out.push(u8::from(inline)); // [files.inline]
    out.push(codec as u8); // [files.codec]
    let before = out.len();
    write_entries(entries, out); // [files.entries]
    must(out.len() - before <= ENTRIES_BYTES_MAX, "files.entries", Why::Limit)
}

fn write_packed_header(head: &PackedHead<'_>, codec: Codec, out: &mut Vec<u8>) {
    put_v(head.batch, out); // [packed.batch]
    put_v(head.dir, out); // [packed.dir]
    out.push(u8::from(head.inline)); // [packed.inline]
    out.push(codec as u8); // [packed.codec]
    out.push(head.packing as u8); // [packed.packing]
    put_bytes(head.entries, out); // [packed.entries]
}

fn write_part(part: &WantedPart, out: &mut Vec<u8>) {
    put_v(part.entry, out);
    match &part.wanted {
        Wanted::Content => out.push(0),
        Wanted::Hash => out.push(1),
        Wanted::Rest(chunks) => {
            out.push(2);
            put_v(chunks.len() as u64, out);
            for chunk in chunks {
                put_v(chunk.bytes, out);
                out.extend_from_slice(&chunk.sum.to_le_bytes());
            }
        }
    }
}

fn write_contents_header(batch: u64, codec: Codec, out: &mut Vec<u8>) {
    put_v(batch, out); // [contents.batch]
    out.push(codec as u8); // [contents.codec]
}

fn write_patch(patch: &Patch<'_>, out: &mut Vec<u8>) {
    put_v(patch.file, out); // [patch.file]
    put_v(patch.at, out); // [patch.at]
    out.push(u8::from(patch.cv.is_some())); // [patch.ends]
    if let Some(cv) = &patch.cv {
        out.extend_from_slice(cv); // [patch.cv]
    }
    put_v(patch.runs.len() as u64, out); // [patch.runs]
    for run in &patch.runs {
        put_v(run.bytes, out);
        put_v(run.from.map_or(0, |from| from.saturating_add(1)), out);
    }
    out.push(patch.codec as u8); // [patch.codec]
    out.extend_from_slice(patch.bytes); // [patch.bytes]
}

fn write_piece_header(piece: &Piece<'_>, out: &mut Vec<u8>) {
    put_v(piece.file, out); // [data.file]
    put_v(piece.at, out); // [data.at]
    out.push(piece.flags); // [data.flags]
    if let Some(cv) = &piece.cv {
        out.extend_from_slice(cv); // [data.cv]
    }
    if piece.codec != Codec::Raw {
        out.push(piece.codec as u8); // [data.codec]
        put_v(piece.length, out); // [data.length]
    } else if piece.flags & data::ZEROS != 0 {
        put_v(piece.length, out); // [data.zeros]
    }
}

fn write_event(event: &Event<'_>, out: &mut Vec<u8>) {
    // [event.kind]
    match event {
        Event::Item { action, src, dst, bytes } => {
            out.extend_from_slice(&[0, *action]);
            put_bytes(src, out);
            put_bytes(dst, out);
            put_v(*bytes, out);
        }
        Event::Failed(trouble) => {
            out.push(1);
            write_trouble(trouble, out);
        }
        Event::Warning(trouble) => {
            out.push(2);
            write_trouble(trouble, out);
        }
        Event::Hashed { dst, hash } => {
            out.push(3);
            put_bytes(dst, out);
            out.extend_from_slice(hash);
        }
        Event::Resumed { dst, bytes, restarted, repaired } => {
            out.push(4);
            put_bytes(dst, out);
            put_v(*bytes, out);
            put_v((*restarted).into(), out);
            put_v(*repaired, out);
        }
        Event::Note(note) => {
            out.push(5);
            write_note(note, out);
        }
        Event::Difference { change, path, directory, files, bytes, why, alike } => {
            out.extend_from_slice(&[if alike.is_some() { 10 } else { 6 }, *change]);
            put_bytes(path, out);
            out.push(u8::from(*directory));
            put_v(*files, out);
            put_v(*bytes, out);
            put_v((*why).into(), out);
            out.extend_from_slice(alike.as_slice().as_flattened()); // [event.alike]
        }
        Event::Base(path) => {
            out.push(7);
            put_bytes(path, out);
        }
        Event::NewTarget => out.push(9),
        Event::Compared { by_time, by_content } => {
            out.push(8);
            put_v(*by_time, out);
            put_v(*by_content, out);
        }
    }
}

fn write_byte_strings(list: &[&[u8]], out: &mut Vec<u8>) {
    put_v(list.len() as u64, out);
    list.iter().for_each(|one| put_bytes(one, out));
}

fn write_hashes(list: &[[u8; 32]], out: &mut Vec<u8>) {
    put_v(list.len() as u64, out);
    list.iter().for_each(|one| out.extend_from_slice(one));
}

fn write_numbers(list: &[u64], out: &mut Vec<u8>) {
    put_v(list.len() as u64, out);
    list.iter().for_each(|one| put_v(*one, out));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reading counts a choice out of a table, writing casts it: both must mean the same number.
    #[test]
    fn choices_stand_at_their_number() {
        assert!(KINDS.iter().enumerate().all(|(n, one)| n == *one as usize));
        assert!(CODECS.iter().enumerate().all(|(n, one)| n == *one as usize));
        assert!(TARGETS.iter().enumerate().all(|(n, one)| n == *one as usize));
        assert!(COMPRESS.iter().enumerate().all(|(n, one)| n == *one as usize));
        assert!(FILE_STATES.iter().enumerate().all(|(n, one)| n == *one as usize));
        assert!(DIR_STATES.iter().enumerate().all(|(n, one)| n == *one as usize));
        assert!(OWNERS.iter().enumerate().all(|(n, one)| n == *one as usize));
    }

    #[test]
    fn the_shortest_entry_is_as_short_as_counts_assume() {
        let entry = Entry {
            kind: Kind::File,
            name: b"a",
            mode: 0,
            uid: 0,
            gid: 0,
            size: 0,
            blocks: 0,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            dev: 0,
            ino: 0,
            nlink: 0,
            rdev: 0,
            link: b"",
            attrs: Vec::new(),
        };
        let mut out = Vec::new();
        write_entry(&entry, &mut out);
        assert_eq!(out.len(), ENTRY_BYTES_MIN);
    }
}
