//! What must hold of a message's values, whichever way it goes: the same rules when it is written and when it was read.
//!
//! Must not know how a value stands in the payload, nor what was said before; ids and order are [`crate::window`]'s.

use crate::field::{Refused, Tag, Why, must, refuse};
use crate::limits::{
    ABOUT_MAX, ADDRESS_BYTES_MAX, AGENT_BYTES_MAX, ATTR_BYTES, ATTRS_BYTES_MAX, BASES_MAX, BLOCK_BYTES,
    CHUNK_BYTES_MAX, CODES_MAX, CONTENTS_BYTES_MAX, ENTRIES_BYTES_MAX, ENTRIES_MAX, FILE_BYTES_MAX,
    FINER_BYTES_MAX, GET_DIGITS_MAX, HAVE_BLOCKS_MAX, LEFT_OUT_MAX, MOMENT_FIRST, MOMENT_LAST,
    NAME_BYTES_MAX, NAMES_MAX, NUMBERS_MAX, OPERANDS_MAX, PARTS_SUMS_MAX, PATH_BYTES_MAX, PIECE_BYTES_MAX,
    PUT_OPERANDS_MAX, REGEXES_BYTES_MAX, RULE_BYTES_MAX, RULES_BYTES_MAX, RULES_MAX, RUNS_MAX,
    SMALL_FILE_BYTES, STREAMS_MAX, SUMS_MAX, TAKEN_MAX, TEXT_BYTES_MAX, TREE_LINKS_MAX, UNREADABLE_MAX,
    VALUES_MAX,
};
use crate::message::{
    AtOnce, Codec, Entry, Event, FileState, Hello, Keeping, Kind, Message, Note, OldThings, Patch, Piece,
    Policy, Sum, Time, TreeStep, Trouble, Wanted, WantedPart, Wide, data, resume,
};
use crate::{handshake, packed, policy};

/// Every rule of one message.
pub(crate) fn message(message: &Message<'_>) -> Result<(), Refused> {
    match message {
        Message::Hello(one) => hello(one, true),
        Message::Welcome(one) => hello(one, false),
        Message::Error(one) | Message::Trouble(one) => trouble(one),
        Message::Ok { .. } | Message::Done | Message::Ping { .. } | Message::Pong { .. } => Ok(()),
        Message::Stat { path: one, .. } => path("stat.path", one),
        Message::List { path: one } => path("list.path", one),
        Message::Hash { path: one } => path("hash.path", one),
        Message::Mkdir { path: one, mode } => {
            path("mkdir.path", one)?;
            limit("mkdir.mode", u64::from(*mode), MODE_MAX)
        }
        Message::Usage { path: one, numbers: some } => {
            path("usage.path", one)?;
            numbers("usage.numbers", some)
        }
        Message::Streams { count } => counted("streams.count", *count, STREAMS_MAX),
        Message::Join { path: one, index, .. } => {
            path("join.path", one)?;
            counted("join.index", *index, STREAMS_MAX)
        }
        Message::Remove { path: one, flags } => {
            path("remove.path", one)?;
            must(flags & !policy::remove::ALL == 0, "remove.flags", Why::Unknown)
        }
        Message::Undo { path: one, flags } => {
            path("undo.path", one)?;
            must(flags & !policy::undo::ALL == 0, "undo.flags", Why::Unknown)
        }
        Message::Direct { count } => counted("direct.count", *count, STREAMS_MAX),
        Message::Info(one) => entry(one),
        // How long a page is, is seen where it is written.
        Message::Page { entries } => entries.iter().try_for_each(entry),
        Message::Used { unreadable, .. } => {
            limit("used.unreadable", unreadable.len() as u64, UNREADABLE_MAX as u64)?;
            unreadable.iter().try_for_each(trouble)
        }
        Message::Token { path: one, .. } => path("token.path", one),
        Message::Rendezvous { address, .. } => {
            must(address.len() <= ADDRESS_BYTES_MAX, "rendezvous.address", Why::Limit)?;
            must(address.iter().all(u8::is_ascii_graphic), "rendezvous.address", Why::Byte)
        }
        Message::Put { policy: how, path: one, operands, .. } => {
            copy_policy(how)?;
            limit("put.operands", *operands, PUT_OPERANDS_MAX)?;
            path("put.path", one)
        }
        Message::Get { policy: how, paths, names } => {
            copy_policy(how)?;
            limit("get.paths", paths.len() as u64, OPERANDS_MAX as u64)?;
            paths.iter().try_for_each(|one| path("get.paths", one))?;
            let Some(names) = names else { return Ok(()) };
            // Names are below one path, so there is exactly one.
            must(paths.len() == 1, "get.names", Why::Contradiction)?;
            limit("get.names", names.len() as u64, NAMES_MAX as u64)?;
            names.iter().try_for_each(|one| path("get.names", one))
        }
        Message::Names { names } => {
            limit("names.names", names.len() as u64, NAMES_MAX as u64)?;
            names.iter().try_for_each(|one| path("names.names", one))
        }
        Message::Keeping(one) => keeping(one),
        Message::Tree { path: one, step, .. } => {
            path("tree.path", one)?;
            let TreeStep::Link(links) = step else { return Ok(()) };
            counted("tree.links", links.len() as u64, TREE_LINKS_MAX as u64)?;
            links
                .iter()
                .try_for_each(|(first, one)| path("tree.links", first).and_then(|()| path("tree.links", one)))
        }
        Message::IntoTree { .. } => Ok(()),
        Message::LeftOut { dir, names } => {
            id("leftout.dir", *dir)?;
            counted("leftout.names", names.len() as u64, LEFT_OUT_MAX as u64)?;
            names.iter().try_for_each(|one| name("leftout.names", one))
        }
        Message::TakeAway { dir, names } => {
            limit("takeaway.names", names.len() as u64, TAKEN_MAX as u64)?;
            // What is to be sent once more is everything.
            must(*dir > 0 || names.is_empty(), "takeaway.dir", Why::Contradiction)?;
            names.iter().try_for_each(|one| {
                name("takeaway.names", one.name)?;
                time("takeaway.names", one.mtime)?;
                time("takeaway.names", one.ctime)
            })
        }
        Message::Operand { path: one, whole, dir, entry: what, .. } => {
            path("operand.path", one)?;
            id("operand.dir", *dir)?;
            must(!whole || what.kind == Kind::Dir, "operand.whole", Why::Contradiction)?;
            entry(what)
        }
        Message::Dir { id: own, parent, entry: what } => {
            id("dir.id", *own)?;
            id("dir.parent", *parent)?;
            // A directory is named after the one that it is in.
            must(parent < own, "dir.parent", Why::Contradiction)?;
            must(what.kind == Kind::Dir, "dir.entry", Why::Contradiction)?;
            entry(what)
        }
        Message::Files { batch, dir, inline, codec, entries, contents } => {
            files(*batch, *dir, entries)?;
            // Without `inline` there are no contents, and nothing that is packed.
            let none = contents.is_empty() && *codec == Codec::Raw;
            must(*inline || none, "files.contents", Why::Contradiction)?;
            packed("files.contents", *codec, contents)
        }
        Message::Contents { batch, codec, bytes } => {
            id("contents.batch", *batch)?;
            packed("contents.bytes", *codec, bytes)
        }
        Message::Large { file, dir, entry: what } => {
            id("large.file", *file)?;
            id("large.dir", *dir)?;
            must(what.kind == Kind::File, "large.entry", Why::Contradiction)?;
            entry(what)
        }
        Message::Data(one) => piece(one, one.bytes.len() as u64),
        Message::FileEnd { file, state, error } => {
            id("fileend.file", *file)?;
            let failed = *state == FileState::Failed;
            must(failed == error.is_some(), "fileend.error", Why::Contradiction)?;
            error.iter().try_for_each(trouble)
        }
        Message::DirEnd { dir, .. } => id("dirend.dir", *dir),
        Message::Found { .. }
        | Message::Answer { .. }
        | Message::AllSent
        | Message::AllNamed { .. }
        | Message::Gone { .. } => Ok(()),
        Message::HaveBlocks { file, first, hashes } => {
            id("have.file", *file)?;
            counted("have.hashes", hashes.len() as u64, HAVE_BLOCKS_MAX as u64)?;
            blocks("have.first", *first, hashes.len() as u64)
        }
        Message::Proof { file, first, tags } => {
            // [proof.keyed] A tag is keyed with the nonce of the `MissingBlocks` that it answers; who knows both checks it.
            id("proof.file", *file)?;
            limit("proof.tags", tags.len() as u64, HAVE_BLOCKS_MAX as u64)?;
            blocks("proof.first", *first, tags.len() as u64)
        }
        Message::Values { file, first, hashes } => {
            id("values.file", *file)?;
            counted("values.hashes", hashes.len() as u64, VALUES_MAX as u64)?;
            blocks("values.first", *first, hashes.len() as u64)
        }
        Message::DirIs { dir, .. } => id("diris.dir", *dir),
        Message::Wants { batch, entries } => {
            id("wants.batch", *batch)?;
            // Indexes that rise and have a maximum are no more than that many.
            entries.iter().try_for_each(|index| limit("wants.entries", *index, ENTRIES_MAX as u64 - 1))?;
            // Rising, so that nothing is wanted twice in one breath and contents come in the order of the entries.
            let rising = entries.windows(2).all(|pair| pair[0] < pair[1]);
            must(rising, "wants.entries", Why::Contradiction)
        }
        Message::Resume { file, from, flags, .. } => {
            id("resume.file", *file)?;
            limit("resume.from", *from, FILE_BYTES_MAX)?;
            must(flags & !(resume::WITHOUT_HASHES | resume::PATCHES) == 0, "resume.flags", Why::Unknown)?;
            // What is made of two parts is compared as a whole, always.
            must(*flags != resume::WITHOUT_HASHES | resume::PATCHES, "resume.flags", Why::Contradiction)
        }
        Message::Reread { file, at, bytes } => {
            id("reread.file", *file)?;
            must(*bytes > 0, "reread.bytes", Why::Limit)?;
            limit("reread.bytes", at.saturating_add(*bytes), FILE_BYTES_MAX)
        }
        Message::Compute { file, first, count } => {
            id("compute.file", *file)?;
            must(*count > 0, "compute.count", Why::Limit)?;
            blocks("compute.first", *first, *count)
        }
        Message::Landed { .. } | Message::TookAway { .. } => Ok(()),
        Message::Report(one) => event(one),
        Message::Ask { path: one, .. } => path("ask.path", one),
        Message::Close { file } => id("close.file", *file),
        Message::MissingBlocks { file, first, bits, .. } => {
            id("missing.file", *file)?;
            must(bits.len() <= HAVE_BLOCKS_MAX.div_ceil(8), "missing.bits", Why::Limit)?;
            blocks("missing.first", *first, 1)
        }
        Message::Summary { codes, .. } => {
            limit("summary.codes", codes.len() as u64, CODES_MAX as u64)?;
            codes.iter().try_for_each(|code| limit("summary.codes", *code, u64::from(u16::MAX)))
        }
        Message::Sums { file, at, chunks } => {
            id("sums.file", *file)?;
            counted("sums.chunks", chunks.len() as u64, SUMS_MAX as u64)?;
            chunks.iter().try_for_each(|chunk| counted("sums.chunks", chunk.bytes, CHUNK_BYTES_MAX))?;
            let bytes: u64 = chunks.iter().map(|chunk| chunk.bytes).sum();
            limit("sums.at", at.saturating_add(bytes), FILE_BYTES_MAX)
        }
        Message::Cancel => Ok(()),
        Message::Finer { file, at, bytes } => {
            id("finer.file", *file)?;
            counted("finer.bytes", *bytes, FINER_BYTES_MAX)?;
            limit("finer.at", at.saturating_add(*bytes), FILE_BYTES_MAX)
        }
        Message::Patch(one) => patch(one),
        Message::WantsParts { batch, entries } => wants_parts(*batch, entries),
        Message::FilesPacked { batch, dir, inline, codec, packing, entries, contents } => {
            files_packed(*batch, *dir, *packing, entries)?;
            let none = contents.is_empty() && *codec == Codec::Raw;
            must(*inline || none, "packed.contents", Why::Contradiction)?;
            packed("packed.contents", *codec, contents)
        }
        Message::Owner { id, name: one, .. } => {
            // Root is root everywhere, and to the kernel -1 means "as it is".
            must(!matches!(*id, 0 | u32::MAX), "owner.id", Why::Limit)?;
            name("owner.name", one)
        }
    }
}

/// Entries that rise, each with no more chunks than a small file has.
fn wants_parts(batch: u64, entries: &[WantedPart]) -> Result<(), Refused> {
    const TAG: Tag = "parts.entries";
    id("parts.batch", batch)?;
    // Nothing more is wanted: that is what `Wants` says.
    counted(TAG, entries.len() as u64, ENTRIES_MAX as u64)?;
    must(entries.is_sorted_by(|a, b| a.entry < b.entry), TAG, Why::Contradiction)?;
    let mut chunks = 0_u64;
    for part in entries {
        limit(TAG, part.entry, ENTRIES_MAX as u64 - 1)?;
        let Wanted::Rest(some) = &part.wanted else { continue };
        chunks += some.len() as u64;
        must(!some.is_empty(), TAG, Why::Limit)?;
        some.iter().try_for_each(|Sum { bytes, .. }| counted(TAG, *bytes, CHUNK_BYTES_MAX))?;
        let bytes: u64 = some.iter().map(|chunk| chunk.bytes).sum();
        limit(TAG, bytes, SMALL_FILE_BYTES)?;
    }
    limit(TAG, chunks, PARTS_SUMS_MAX as u64)
}

/// What holds of packed entries before they are unpacked.
pub(crate) fn files_packed(batch: u64, dir: u64, packing: Codec, entries: &[u8]) -> Result<(), Refused> {
    id("packed.batch", batch)?;
    id("packed.dir", dir)?;
    must(entries.len() <= ENTRIES_BYTES_MAX, "packed.entries", Why::Limit)?;
    match packing {
        Codec::Raw => Ok(()),
        Codec::Lz4 | Codec::Zstd => packed::unpacked_columns(entries).map(drop),
    }
}

/// Permission bits with setuid, setgid and sticky.
const MODE_MAX: u64 = 0o7777;

fn limit(tag: Tag, number: u64, max: u64) -> Result<(), Refused> {
    must(number <= max, tag, Why::Limit)
}

/// A count that is at least 1.
fn counted(tag: Tag, number: u64, max: u64) -> Result<(), Refused> {
    must(number > 0 && number <= max, tag, Why::Limit)
}

/// Ids begin at 1.
fn id(tag: Tag, id: u64) -> Result<(), Refused> {
    must(id > 0, tag, Why::Limit)
}

/// Whole blocks of a file whose offsets fit 64 bits with a sign.
fn blocks(tag: Tag, first: u64, count: u64) -> Result<(), Refused> {
    limit(tag, first.saturating_add(count), FILE_BYTES_MAX / BLOCK_BYTES + 1)
}

/// A name that one may look up in a directory without leaving it.
pub(crate) fn name(tag: Tag, name: &[u8]) -> Result<(), Refused> {
    let good = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name != b"."
        && name != b".."
        && !name.iter().any(|byte| matches!(byte, 0 | b'/'));
    must(good, tag, Why::Name)
}

/// What a path is allowed to be is the business of the caller that opens it; here it only can be one.
fn path(tag: Tag, path: &[u8]) -> Result<(), Refused> {
    must(path.len() <= PATH_BYTES_MAX, tag, Why::Limit)?;
    must(!path.contains(&0), tag, Why::Byte)
}

fn text(tag: Tag, text: &[u8]) -> Result<(), Refused> {
    must(text.len() <= TEXT_BYTES_MAX, tag, Why::Limit)
}

fn time(tag: Tag, time: Time) -> Result<(), Refused> {
    must(time.nsec < 1_000_000_000, tag, Why::Limit)
}

fn hello(hello: &Hello<'_>, asks: bool) -> Result<(), Refused> {
    let announced = hello.caps & handshake::caps::WIDE != 0;
    must(announced == hello.wide.is_some(), "hello.caps", Why::Contradiction)?;
    let Some(Wide { bits, agent, at_once, .. }) = &hello.wide else { return Ok(()) };
    must(agent.len() <= AGENT_BYTES_MAX, "hello.agent", Why::Limit)?;
    must(agent.iter().all(|byte| matches!(byte, b' '..=b'~')), "hello.agent", Why::Byte)?;
    let announced = asks && bits & handshake::wide::AT_ONCE != 0;
    must(announced == at_once.is_some(), "hello.wide", Why::Contradiction)?;
    let Some(AtOnce { get, .. }) = at_once else { return Ok(()) };
    must(get.len() <= GET_DIGITS_MAX, "hello.get", Why::Limit)?;
    must(get.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "hello.get", Why::Byte)
}

pub(crate) fn trouble(trouble: &Trouble<'_>) -> Result<(), Refused> {
    text("error.path", trouble.path)?;
    note(&trouble.note)
}

fn note(note: &Note<'_>) -> Result<(), Refused> {
    must(note.reason != 0 || note.about.is_empty(), "error.about", Why::Contradiction)?;
    limit("error.about", note.about.len() as u64, ABOUT_MAX as u64)?;
    note.about.iter().try_for_each(|(_, words)| text("error.about", words))
}

fn keeping(keeping: &Keeping<'_>) -> Result<(), Refused> {
    limit("keeping.bases", keeping.bases.len() as u64, BASES_MAX as u64)?;
    keeping.bases.iter().try_for_each(|one| path("keeping.bases", one))?;
    if let OldThings::Below(one) = keeping.old {
        path("keeping.below", one)?;
    }
    // What is called by it must be able to be written.
    let fits = |at: &i64| (MOMENT_FIRST..=MOMENT_LAST).contains(at);
    must(keeping.at.iter().all(fits), "keeping.at", Why::Limit)?;
    must(keeping.stay.is_none() || keeping.at.is_some(), "keeping.dated", Why::Contradiction)?;
    must(keeping.stay != Some([0; 3]), "keeping.stay", Why::Limit)?;
    // A new tree replaces nothing.
    let alone = keeping.at.is_none() || keeping.old == OldThings::Go;
    must(alone, "keeping.old", Why::Contradiction)
}

fn copy_policy(how: &Policy<'_>) -> Result<(), Refused> {
    policy::check(how.flags, how.choices)?;
    must(how.checkpoint.is_multiple_of(BLOCK_BYTES), "policy.checkpoint", Why::Limit)?;
    limit("policy.checkpoint", how.checkpoint, FILE_BYTES_MAX)?;
    limit("policy.rules", how.rules.len() as u64, RULES_MAX as u64)?;
    how.rules.iter().try_for_each(|(_, glob)| rule("policy.rules", glob))?;
    let bytes: usize = how.rules.iter().map(|(_, glob)| glob.len()).sum();
    limit("policy.rules", bytes as u64, RULES_BYTES_MAX as u64)?;
    limit("policy.regexes", how.regexes.len() as u64, RULES_MAX as u64)?;
    how.regexes.iter().try_for_each(|regex| rule("policy.regexes", regex))?;
    let bytes: usize = how.regexes.iter().map(|regex| regex.len()).sum();
    limit("policy.regexes", bytes as u64, REGEXES_BYTES_MAX as u64)?;
    numbers("policy.numbers", &how.numbers)
}

/// Each at most once, in rising order.
fn numbers(tag: Tag, numbers: &[(u8, u64)]) -> Result<(), Refused> {
    limit(tag, numbers.len() as u64, NUMBERS_MAX as u64)?;
    must(numbers.is_sorted_by(|a, b| a.0 < b.0), tag, Why::Contradiction)
}

/// One pattern.
fn rule(tag: Tag, rule: &[u8]) -> Result<(), Refused> {
    must(rule.len() <= RULE_BYTES_MAX, tag, Why::Limit)?;
    path(tag, rule)
}

pub(crate) fn entry(entry: &Entry<'_>) -> Result<(), Refused> {
    name("entry.name", entry.name)?;
    limit("entry.mode", u64::from(entry.mode), MODE_MAX)?;
    // To the kernel -1 means "as it is": an owner that is set without being set, and a setuid bit that stays.
    must(entry.uid != u32::MAX, "entry.uid", Why::Limit)?;
    must(entry.gid != u32::MAX, "entry.gid", Why::Limit)?;
    limit("entry.size", entry.size, FILE_BYTES_MAX)?;
    limit("entry.blocks", entry.blocks, FILE_BYTES_MAX / 512)?;
    time("entry.atime", entry.atime)?;
    time("entry.mtime", entry.mtime)?;
    time("entry.ctime", entry.ctime)?;
    path("entry.link", entry.link)?;
    must(entry.link.is_empty() || entry.kind == Kind::Link, "entry.link", Why::Contradiction)?;
    let mut bytes = 0_usize;
    for (attr, value) in &entry.attrs {
        must((1..=NAME_BYTES_MAX).contains(&attr.len()) && !attr.contains(&0), "entry.attrs", Why::Name)?;
        bytes = bytes.saturating_add(attr.len()).saturating_add(value.len()).saturating_add(ATTR_BYTES);
    }
    must(bytes <= ATTRS_BYTES_MAX, "entry.attrs", Why::Limit)
}

/// What holds of a batch whether or not its contents follow.
pub(crate) fn files(batch: u64, dir: u64, entries: &[Entry<'_>]) -> Result<(), Refused> {
    id("files.batch", batch)?;
    id("files.dir", dir)?;
    batch_entries(entries)
}

/// The same of its entries alone.
pub(crate) fn batch_entries(entries: &[Entry<'_>]) -> Result<(), Refused> {
    counted("files.entries", entries.len() as u64, ENTRIES_MAX as u64)?;
    let attrs: usize = entries.iter().map(|one| one.attrs.len()).sum();
    limit("files.entries", attrs as u64, (ENTRIES_BYTES_MAX / ATTR_BYTES) as u64)?;
    for one in entries {
        entry(one)?;
        let small = one.kind != Kind::File || one.size < SMALL_FILE_BYTES;
        must(one.kind != Kind::Dir && small, "files.entries", Why::Contradiction)?;
    }
    Ok(())
}

/// Contents as they are or packed; in both cases what comes out of them is bounded before it is unpacked.
fn packed(tag: Tag, codec: Codec, bytes: &[u8]) -> Result<(), Refused> {
    must(bytes.len() <= CONTENTS_BYTES_MAX, tag, Why::Limit)?;
    match codec {
        Codec::Raw => Ok(()),
        Codec::Lz4 | Codec::Zstd => packed::unpacked(bytes).map(drop),
    }
}

/// The rules of a piece of which `count` bytes travel.
pub(crate) fn piece(piece: &Piece<'_>, count: u64) -> Result<(), Refused> {
    id("data.file", piece.file)?;
    let known = data::ZEROS | data::ENDS_BLOCK | data::ASKED | data::BEGINS_FRAME | data::GOES_ON;
    must(piece.flags & !known == 0, "data.flags", Why::Unknown)?;
    match piece.flags & (data::BEGINS_FRAME | data::GOES_ON) {
        0 => {}
        data::BEGINS_FRAME | data::GOES_ON => {
            must(piece.codec == Codec::Zstd, "data.flags", Why::Contradiction)?;
        }
        _ => return refuse("data.flags", Why::Contradiction),
    }
    let ends = piece.flags & data::ENDS_BLOCK != 0;
    must(ends == piece.cv.is_some(), "data.cv", Why::Contradiction)?;
    // A piece without bytes would be one that may come for ever; one across a boundary would belong to two blocks.
    must(piece.length > 0, "data.length", Why::Limit)?;
    let end = (piece.at % PIECE_BYTES_MAX).saturating_add(piece.length);
    limit("data.length", end, PIECE_BYTES_MAX)?;
    limit("data.at", piece.at.saturating_add(piece.length), FILE_BYTES_MAX)?;
    let zeros = piece.flags & data::ZEROS != 0;
    let fits = match piece.codec {
        Codec::Raw if zeros => count == 0,
        Codec::Raw => count == piece.length,
        Codec::Lz4 | Codec::Zstd => !zeros && count > 0 && count <= piece.length,
    };
    must(fits, "data.bytes", Why::Contradiction)
}

/// A patch says of every byte of its piece where it comes from.
fn patch(patch: &Patch<'_>) -> Result<(), Refused> {
    id("patch.file", patch.file)?;
    counted("patch.runs", patch.runs.len() as u64, RUNS_MAX as u64)?;
    for run in &patch.runs {
        counted("patch.runs", run.bytes, PIECE_BYTES_MAX)?;
        let end = run.from.unwrap_or_default().saturating_add(run.bytes);
        limit("patch.runs", end, FILE_BYTES_MAX)?;
    }
    let length = patch.length();
    limit("patch.runs", (patch.at % PIECE_BYTES_MAX).saturating_add(length), PIECE_BYTES_MAX)?;
    limit("patch.at", patch.at.saturating_add(length), FILE_BYTES_MAX)?;
    // Of what the receiver has nothing, a piece is sent as one.
    let carried = patch.carried();
    must(carried < length, "patch.runs", Why::Contradiction)?;
    let count = patch.bytes.len() as u64;
    let fits = match patch.codec {
        Codec::Raw => count == carried,
        Codec::Lz4 | Codec::Zstd => count > 0 && count <= carried,
    };
    must(fits, "patch.bytes", Why::Contradiction)
}

fn event(event: &Event<'_>) -> Result<(), Refused> {
    match event {
        Event::Item { action, src, dst, .. } => {
            must(*action < policy::ACTIONS, "event.kind", Why::Unknown)?;
            path("event.kind", src)?;
            path("event.kind", dst)
        }
        Event::Failed(one) | Event::Warning(one) => trouble(one),
        Event::Hashed { dst, .. } => path("event.kind", dst),
        Event::Resumed { dst, .. } => path("event.kind", dst),
        Event::Note(one) => note(one),
        Event::Difference { change, path: at, .. } => {
            must(*change < policy::CHANGES, "event.kind", Why::Unknown)?;
            path("event.kind", at)
        }
        Event::Base(at) => path("event.kind", at),
        Event::Compared { .. } | Event::NewTarget => Ok(()),
    }
}
