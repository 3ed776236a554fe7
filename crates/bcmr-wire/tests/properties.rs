//! What holds of every message and of any bytes: messages come back as they went, and bytes never do harm.

#![allow(clippy::unwrap_used)]

use bcmr_wire::contents;
use bcmr_wire::frame::{self, Frame};
use bcmr_wire::handshake::{caps, wide};
use bcmr_wire::limits::{PIECE_BYTES_MAX, PUT_OPERANDS_MAX};
use bcmr_wire::message::*;
use bcmr_wire::state;
use proptest::prelude::*;

/// Messages made from chance: each draw takes what it needs from the front, and zeros when there is nothing left.
struct Dice<'a>(&'a [u8]);

impl<'a> Dice<'a> {
    fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }
    fn below(&mut self, end: u8) -> u8 {
        self.u8() % end
    }
    fn yes(&mut self) -> bool {
        self.u8() & 1 == 1
    }
    /// Of every length, small ones most often.
    fn u64(&mut self) -> u64 {
        let bytes = self.below(9);
        (0..bytes).fold(0, |number, _| number << 8 | u64::from(self.u8()))
    }
    fn u63(&mut self) -> u64 {
        self.u64() >> 1
    }
    fn id(&mut self) -> u64 {
        self.u64().max(1)
    }
    fn hash(&mut self) -> Hash {
        let seed = self.u8();
        std::array::from_fn(|at| seed.wrapping_mul(at as u8))
    }
    fn raw(&mut self) -> &'a [u8] {
        let count = usize::from(self.below(40)).min(self.0.len());
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }
    /// Without NUL.
    fn path(&mut self) -> &'a [u8] {
        let raw = self.raw();
        &raw[..raw.iter().position(|b| *b == 0).unwrap_or(raw.len())]
    }
    fn name(&mut self) -> &'a [u8] {
        let path = self.path();
        let name = &path[..path.iter().position(|b| *b == b'/').unwrap_or(path.len())];
        if matches!(name, b"" | b"." | b"..") { b"name" } else { name }
    }
    fn list<T>(&mut self, end: u8, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(end)).map(|_| one(self)).collect()
    }
    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.u8()) % all.len()]
    }
    fn taken(&mut self) -> Taken<'a> {
        let Entry { name, ino, nlink, size, mtime, ctime, .. } = self.entry();
        Taken { name, ino, nlink, size, mtime, ctime }
    }
    fn time(&mut self) -> Time {
        Time { sec: self.u64() as i64, nsec: (self.u64() % 1_000_000_000) as u32 }
    }
    fn trouble(&mut self) -> Trouble<'a> {
        let (code, errno) = (self.u64() as u16, self.u64() as u32);
        Trouble { code, op: self.u64() as u16, path: self.raw(), note: self.note(), errno }
    }
    fn note(&mut self) -> Note<'a> {
        let reason = if self.yes() { 0 } else { self.u64() as u16 };
        let about = if reason == 0 { Vec::new() } else { self.list(9, |d| (d.u64() as u16, d.raw())) };
        Note { reason, about }
    }
    fn entry_of(&mut self, kind: Kind) -> Entry<'a> {
        Entry {
            kind,
            name: self.name(),
            mode: self.u64() as u32 & 0o7777,
            uid: (self.u64() as u32).min(u32::MAX - 1),
            gid: (self.u64() as u32).min(u32::MAX - 1),
            size: self.u63(),
            blocks: self.u63() / 512,
            atime: self.time(),
            mtime: self.time(),
            ctime: self.time(),
            dev: self.u64(),
            ino: self.u64(),
            nlink: self.u64(),
            rdev: self.u64(),
            link: if kind == Kind::Link { self.path() } else { b"" },
            attrs: self.list(3, |d| (d.name(), d.raw())),
        }
    }
    fn entry(&mut self) -> Entry<'a> {
        let kind = self.of(&[
            Kind::File,
            Kind::Dir,
            Kind::Link,
            Kind::Fifo,
            Kind::Socket,
            Kind::CharDevice,
            Kind::BlockDevice,
        ]);
        self.entry_of(kind)
    }
    fn small(&mut self) -> Entry<'a> {
        let kind = self.of(&[Kind::File, Kind::Link, Kind::Fifo, Kind::Socket, Kind::BlockDevice]);
        let entry = self.entry_of(kind);
        Entry { size: if kind == Kind::File { entry.size % (1 << 20) } else { entry.size }, ..entry }
    }
    fn hello(&mut self) -> Hello<'a> {
        let caps = self.u8();
        let (bits, nonce) = (self.u64(), self.hash());
        let agent: &[u8] = self.of(&[b"".as_slice(), b"bcmr 0.1 (x)"]);
        let at_once =
            self.yes().then(|| AtOnce { most: self.u64(), get: self.of(&[b"".as_slice(), b"00ff"]) });
        let bits = if at_once.is_some() { bits | wide::AT_ONCE } else { bits & !wide::AT_ONCE };
        let wide = (caps & caps::WIDE != 0).then_some(Wide { bits, nonce, agent, at_once });
        Hello { version: self.u64() as u16, caps, wide }
    }
    fn policy(&mut self) -> Policy<'a> {
        let most = [3, 5, 2, 3, 3, 3, 2, 5];
        Policy {
            flags: self.u64() & 0xffff,
            choices: std::array::from_fn(|place| self.below(most[place])),
            checkpoint: self.u63() >> 22 << 22,
            rules: self.list(3, |d| (d.yes(), d.path())),
            regexes: self.list(3, |d| d.path()),
            compress: self.of(&[Compress::None, Compress::Lz4, Compress::Zstd, Compress::Auto]),
            numbers: self.numbers(),
        }
    }
    fn numbers(&mut self) -> Vec<(u8, u64)> {
        (0..self.below(4)).map(|which| (which, self.u64())).collect()
    }
    /// Zeros, as they are, or packed.
    fn piece(&mut self) -> Piece<'a> {
        let ends = self.yes();
        let bytes = self.raw();
        let flags = self.of(&[0, data::ASKED]) | if ends { data::ENDS_BLOCK } else { 0 };
        let cv = ends.then_some(self.hash());
        let file = self.id();
        let at = self.u63() >> 21 << 20;
        let room = PIECE_BYTES_MAX - bytes.len() as u64;
        let length = bytes.len() as u64 + self.u64() % room;
        let codec = self.of(&[Codec::Raw, Codec::Lz4, Codec::Zstd]);
        match codec {
            _ if bytes.is_empty() => {
                let flags = flags | data::ZEROS;
                Piece { file, at, flags, cv, codec: Codec::Raw, length: length + 1, bytes }
            }
            Codec::Raw => Piece { file, at, flags, cv, codec, length: bytes.len() as u64, bytes },
            Codec::Zstd => {
                let flags = flags | self.of(&[0, data::BEGINS_FRAME, data::GOES_ON]);
                Piece { file, at, flags, cv, codec, length, bytes }
            }
            Codec::Lz4 => Piece { file, at, flags, cv, codec, length, bytes },
        }
    }
    fn patch(&mut self) -> Patch<'a> {
        let bytes = self.raw();
        let cv = self.yes().then(|| self.hash());
        let mut runs = self.list(5, |d| Run { bytes: u64::from(d.u8()) + 1, from: Some(d.u63() >> 9) });
        runs.push(Run { bytes: 1, from: Some(self.u63() >> 9) });
        let codec = self.of(&[Codec::Raw, Codec::Lz4, Codec::Zstd]);
        let codec = if bytes.is_empty() { Codec::Raw } else { codec };
        if !bytes.is_empty() {
            let more = if codec == Codec::Raw { 0 } else { u64::from(self.u8()) };
            runs.push(Run { bytes: bytes.len() as u64 + more, from: None });
        }
        Patch { file: self.id(), at: self.u63() >> 21 << 20, cv, runs, codec, bytes }
    }
    fn event(&mut self) -> Event<'a> {
        match self.below(8) {
            0 => Event::Item { action: self.below(9), src: self.path(), dst: self.path(), bytes: self.u64() },
            1 => Event::Failed(self.trouble()),
            2 => Event::Warning(self.trouble()),
            3 => Event::Hashed { dst: self.path(), hash: self.hash() },
            4 => Event::Resumed {
                dst: self.path(),
                bytes: self.u64(),
                restarted: self.u64() as u16,
                repaired: self.u64(),
            },
            5 => Event::Difference {
                change: self.below(3),
                path: self.path(),
                directory: self.yes(),
                files: self.u64(),
                bytes: self.u64(),
                why: self.u64() as u16,
                alike: self.yes().then(|| self.hash()),
            },
            6 => Event::Base(self.path()),
            _ => Event::Note(self.note()),
        }
    }
    fn hashes(&mut self) -> Vec<Hash> {
        let mut hashes = self.list(16, Dice::hash);
        hashes.push(self.hash());
        hashes
    }
    fn block(&mut self) -> u64 {
        self.u64() >> 24
    }

    fn message(&mut self, kind: u8) -> Message<'a> {
        match kind {
            kind::HELLO => Message::Hello(self.hello()),
            kind::WELCOME => {
                let hello = self.hello();
                let wide = hello.wide.map(|wide| Wide { at_once: None, ..wide });
                Message::Welcome(Hello { wide, ..hello })
            }
            kind::ERROR => Message::Error(self.trouble()),
            kind::OK => Message::Ok { hash: self.yes().then(|| self.hash()) },
            kind::DONE => Message::Done,
            kind::PING => Message::Ping { token: self.u64() },
            kind::PONG => Message::Pong { token: self.u64() },
            kind::STAT => Message::Stat { path: self.path(), follow: self.yes() },
            kind::LIST => Message::List { path: self.path() },
            kind::HASH => Message::Hash { path: self.path() },
            kind::MKDIR => Message::Mkdir { path: self.path(), mode: self.u64() as u32 & 0o7777 },
            kind::USAGE => Message::Usage { path: self.path(), numbers: self.numbers() },
            kind::STREAMS => Message::Streams { count: u64::from(self.below(32)) + 1 },
            kind::JOIN => {
                Message::Join { secret: self.hash(), path: self.path(), index: u64::from(self.below(32)) + 1 }
            }
            kind::UNDO => Message::Undo { path: self.path(), flags: self.below(4) },
            kind::REMOVE => Message::Remove { path: self.path(), flags: self.below(16) },
            kind::DIRECT => Message::Direct { count: u64::from(self.below(32)) + 1 },
            kind::INFO => Message::Info(self.entry()),
            kind::PAGE => Message::Page { entries: self.list(4, Dice::entry) },
            kind::USED => Message::Used {
                files: self.u64(),
                dirs: self.u64(),
                bytes: self.u64(),
                allocated: self.u64(),
                unreadable: self.list(4, Dice::trouble),
            },
            kind::TOKEN => Message::Token { secret: self.hash(), path: self.path() },
            kind::RENDEZVOUS => {
                Message::Rendezvous { address: b"::1", port: self.u64() as u16, secret: self.hash() }
            }
            kind::PUT => Message::Put {
                policy: self.policy(),
                target: self.of(&[Target::Guess, Target::Into, Target::Exactly]),
                path: self.path(),
                operands: self.u64() % (PUT_OPERANDS_MAX + 1),
                items: self.yes(),
            },
            kind::GET => {
                let names = self.yes().then(|| self.list(4, Dice::path));
                let paths = if names.is_some() { vec![self.path()] } else { self.list(4, Dice::path) };
                Message::Get { policy: self.policy(), paths, names }
            }
            kind::NAMES => Message::Names { names: self.list(4, Dice::path) },
            kind::KEEPING => {
                let at = self.yes().then(|| self.u64() as i64 >> 28);
                let stay = at.filter(|_| self.yes()).map(|_| [1, self.u64() as u32, 0]);
                let old = match self.below(3) {
                    1 if at.is_none() => OldThings::Below(self.path()),
                    2 if at.is_none() => OldThings::Trashed,
                    _ => OldThings::Go,
                };
                Message::Keeping(Keeping { bases: self.list(4, Dice::path), old, at, stay })
            }
            kind::TREE => {
                let step = match self.below(4) {
                    0 => TreeStep::Make,
                    1 => TreeStep::Find,
                    2 => TreeStep::Link(vec![(self.path(), self.path())]),
                    _ => TreeStep::Publish { ino: self.u64() },
                };
                Message::Tree { path: self.path(), plan: self.hash(), step }
            }
            kind::INTO_TREE => Message::IntoTree { plan: self.hash(), all: self.yes() },
            kind::GONE => Message::Gone { deleted: self.u64(), updated: self.u64() },
            kind::TAKE_AWAY => Message::TakeAway { dir: self.id(), names: self.list(4, Dice::taken) },
            kind::TOOK_AWAY => Message::TookAway { left: self.u64() },
            kind::LEFT_OUT => {
                let mut names = self.list(4, Dice::name);
                names.push(b"n");
                Message::LeftOut { dir: self.id(), names }
            }
            kind::OPERAND => {
                let entry = self.entry();
                let whole = self.yes() && entry.kind == Kind::Dir;
                Message::Operand { path: self.path(), whole, origin: self.u64(), dir: self.id(), entry }
            }
            kind::DIR => {
                let parent = self.id().min(u64::MAX - 1);
                let id = parent.saturating_add(self.id());
                Message::Dir { id, parent, entry: self.entry_of(Kind::Dir) }
            }
            kind::FILES => {
                let mut entries = self.list(4, Dice::small);
                entries.push(self.small());
                let inline = self.yes();
                let contents = if inline { self.raw() } else { b"" };
                Message::Files {
                    batch: self.id(),
                    dir: self.id(),
                    inline,
                    codec: Codec::Raw,
                    entries,
                    contents,
                }
            }
            kind::CONTENTS => {
                let packed = self.yes();
                let bytes: &[u8] = if packed { b"\x80\x01packed" } else { self.raw() };
                let codec = if packed { Codec::Zstd } else { Codec::Raw };
                Message::Contents { batch: self.id(), codec, bytes }
            }
            kind::LARGE => {
                Message::Large { file: self.id(), dir: self.id(), entry: self.entry_of(Kind::File) }
            }
            kind::DATA | kind::DATA_COMPRESSED => Message::Data(self.piece()),
            kind::FILE_END => {
                let state = self.of(&[FileState::Whole, FileState::Changed, FileState::Failed]);
                let error = (state == FileState::Failed).then(|| self.trouble());
                Message::FileEnd { file: self.id(), state, error }
            }
            kind::DIR_END => Message::DirEnd { dir: self.id(), partial: self.yes() },
            kind::TROUBLE => Message::Trouble(self.trouble()),
            kind::FOUND => Message::Found { items: self.u64(), bytes: self.u64(), last: self.yes() },
            kind::ANSWER => Message::Answer { id: self.u64(), yes: self.yes() },
            kind::HAVE_BLOCKS => {
                Message::HaveBlocks { file: self.id(), first: self.block(), hashes: self.hashes() }
            }
            kind::PROOF => {
                Message::Proof { file: self.id(), first: self.block(), tags: self.list(16, Dice::hash) }
            }
            kind::VALUES => Message::Values { file: self.id(), first: self.block(), hashes: self.hashes() },
            kind::ALL_SENT => Message::AllSent,
            kind::ALL_NAMED => Message::AllNamed { dirs: self.u64(), batches: self.u64() },
            kind::DIR_IS => Message::DirIs {
                dir: self.id(),
                state: self.of(&[DirState::There, DirState::New, DirState::Refused]),
            },
            kind::WANTS => {
                let mut entries = self.list(20, |d| d.u64() % 1024);
                entries.sort_unstable();
                entries.dedup();
                Message::Wants { batch: self.id(), entries }
            }
            kind::RESUME => Message::Resume {
                file: self.id(),
                wanted: self.yes(),
                from: self.u63(),
                flags: self.below(3),
            },
            kind::REREAD => {
                let at = self.u63();
                let bytes = (self.u63() % (i64::MAX as u64 - at).max(1)).max(1);
                Message::Reread { file: self.id(), at: at.min(i64::MAX as u64 - 1), bytes }
            }
            kind::COMPUTE => {
                Message::Compute { file: self.id(), first: self.block(), count: self.block().max(1) }
            }
            kind::LANDED => Message::Landed { items: self.u64(), bytes: self.u64() },
            kind::REPORT => Message::Report(self.event()),
            kind::ASK => Message::Ask { id: self.u64(), path: self.path() },
            kind::CLOSE => Message::Close { file: self.id() },
            kind::MISSING_BLOCKS => {
                let bits = self.raw();
                let bits = &bits[..bits.len().min(2)];
                Message::MissingBlocks { file: self.id(), first: self.block(), nonce: self.hash(), bits }
            }
            kind::SUMMARY => Message::Summary {
                counts: std::array::from_fn(|_| self.u64()),
                codes: self.list(5, |d| d.u64() & 0xffff),
                cancelled: self.yes(),
            },
            kind::SUMS => {
                let mut chunks = self.list(9, |d| Sum { bytes: u64::from(d.u8()) + 1, sum: d.u64() });
                chunks.push(Sum { bytes: 256 << 10, sum: self.u64() });
                Message::Sums { file: self.id(), at: self.u63() >> 24, chunks }
            }
            kind::FINER => {
                Message::Finer { file: self.id(), at: self.u63() >> 24, bytes: u64::from(self.u8()) + 1 }
            }
            kind::PATCH => Message::Patch(self.patch()),
            kind::WANTS_PARTS => {
                let mut entries = self.list(20, |d| WantedPart { entry: d.u64() % 1024, wanted: d.wanted() });
                entries.push(WantedPart { entry: self.u64() % 1024, wanted: Wanted::Hash });
                entries.sort_unstable_by_key(|part| part.entry);
                entries.dedup_by_key(|part| part.entry);
                Message::WantsParts { batch: self.id(), entries }
            }
            kind::FILES_PACKED => {
                let inline = self.yes();
                let contents = if inline { self.raw() } else { b"" };
                let packed = self.yes();
                let entries: &[u8] = if packed { b"\x80\x01packed" } else { self.raw() };
                let packing = if packed { Codec::Zstd } else { Codec::Raw };
                let (batch, dir, codec) = (self.id(), self.id(), Codec::Raw);
                Message::FilesPacked { batch, dir, inline, codec, packing, entries, contents }
            }
            kind::OWNER => {
                let of = if self.yes() { Owner::User } else { Owner::Group };
                Message::Owner { of, id: u32::from(self.u8()) + 1, name: self.name() }
            }
            _ => Message::Cancel,
        }
    }
}

impl Dice<'_> {
    fn wanted(&mut self) -> Wanted {
        match self.below(3) {
            0 => Wanted::Content,
            1 => Wanted::Hash,
            _ => {
                let mut chunks = self.list(9, |d| Sum { bytes: u64::from(d.u8()) + 1, sum: d.u64() });
                chunks.push(Sum { bytes: 64 << 10, sum: self.u64() });
                Wanted::Rest(chunks)
            }
        }
    }
}

fn kinds() -> Vec<u8> {
    (0..=u8::MAX).filter(|kind| state::name(*kind).is_some()).collect()
}

/// Bytes on the heap that belong to the message: all that decoding ever asks for, since nothing else of it is kept or
/// made on the way.
fn heap(message: &Message<'_>) -> usize {
    fn of<T>(list: &Vec<T>) -> usize {
        list.capacity() * size_of::<T>()
    }
    fn entries(list: &Vec<Entry<'_>>) -> usize {
        of(list) + list.iter().map(|entry| of(&entry.attrs)).sum::<usize>()
    }
    fn policy(policy: &Policy<'_>) -> usize {
        of(&policy.rules) + of(&policy.regexes)
    }
    match message {
        Message::Info(entry)
        | Message::Operand { entry, .. }
        | Message::Dir { entry, .. }
        | Message::Large { entry, .. } => of(&entry.attrs),
        Message::Page { entries: list } | Message::Files { entries: list, .. } => entries(list),
        Message::Put { policy: how, .. } => policy(how),
        Message::Get { policy: how, paths, names } => policy(how) + of(paths) + names.as_ref().map_or(0, of),
        Message::Names { names } | Message::LeftOut { names, .. } => of(names),
        Message::Keeping(keeping) => of(&keeping.bases),
        Message::Tree { step: TreeStep::Link(links), .. } => of(links),
        Message::TakeAway { names, .. } => of(names),
        Message::HaveBlocks { hashes, .. } | Message::Values { hashes, .. } => of(hashes),
        Message::Proof { tags, .. } => of(tags),
        Message::Wants { entries, .. } => of(entries),
        Message::Summary { codes, .. } => of(codes),
        Message::Sums { chunks, .. } => of(chunks),
        Message::WantsParts { entries, .. } => {
            let chunks = |part: &WantedPart| match &part.wanted {
                Wanted::Rest(chunks) => of(chunks),
                Wanted::Content | Wanted::Hash => 0,
            };
            of(entries) + entries.iter().map(chunks).sum::<usize>()
        }
        Message::Patch(patch) => of(&patch.runs),
        _ => 0,
    }
}

/// What must hold of whatever bytes arrive.
fn no_harm(kind: u8, payload: &[u8]) -> Result<(), TestCaseError> {
    let Ok(message) = Message::decode(kind, payload) else { return Ok(()) };
    // A path without bytes takes one byte on the wire and a slice in memory; nothing grows more than that.
    prop_assert!(heap(&message) <= 17 * payload.len(), "{} from {}", heap(&message), payload.len());
    let mut out = Vec::new();
    prop_assert_eq!(message.encode(&mut out), Ok(()));
    let (frame, used) = frame::decode(&out).unwrap().unwrap();
    prop_assert_eq!((frame.kind, used), (kind, out.len()));
    match message {
        // A newer peer's bytes behind the greeting are not ours to repeat.
        Message::Hello(_) | Message::Welcome(_) => {
            prop_assert_eq!(Message::decode(kind, frame.payload), Ok(message));
        }
        // One meaning has one form.
        _ => prop_assert_eq!(frame.payload, payload),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_message_comes_back(chance in proptest::collection::vec(any::<u8>(), 0..600)) {
        for kind in kinds() {
            let message = Dice(&chance).message(kind);
            let mut out = Vec::new();
            prop_assert_eq!(message.encode(&mut out), Ok(()), "{:?}", message);
            let (frame, used) = frame::decode(&out).unwrap().unwrap();
            prop_assert_eq!(used, out.len());
            prop_assert_eq!(Message::decode(frame.kind, frame.payload), Ok(message.clone()));
            no_harm(frame.kind, frame.payload)?;
        }
    }

    #[test]
    fn any_bytes_do_no_harm(payload in proptest::collection::vec(any::<u8>(), 0..200)) {
        for kind in 0..=u8::MAX {
            no_harm(kind, &payload)?;
        }
        for hashes in [false, true] {
            let taken = contents::items(&payload, hashes, 50).filter_map(Result::ok).count();
            prop_assert!(taken <= payload.len());
            let taken = contents::items_up_to(&payload, hashes, 50).filter_map(Result::ok).count();
            prop_assert!(taken <= payload.len());
        }
        let _known = contents::unpacked(&payload).is_ok();
    }

    /// Nearly right is where decoders go wrong: one byte changed, taken out, put in, or the end cut off.
    #[test]
    fn nearly_a_message_does_no_harm(
        chance in proptest::collection::vec(any::<u8>(), 0..400), at: usize, byte: u8, how in 0..4,
    ) {
        for kind in kinds() {
            let mut out = Vec::new();
            let message = Dice(&chance).message(kind);
            prop_assert_eq!(message.encode(&mut out), Ok(()));
            let (kind, mut payload) = (out[4], out[5..].to_vec());
            if payload.is_empty() {
                continue;
            }
            let at = at % payload.len();
            match how {
                0 => payload[at] = byte,
                1 => drop(payload.remove(at)),
                2 => payload.insert(at, byte),
                _ => payload.truncate(at),
            }
            no_harm(kind, &payload)?;
        }
    }

    /// Whatever the pieces in which bytes arrive, the same frames come out.
    #[test]
    fn frames_come_out_however_they_are_cut(
        frames in proptest::collection::vec((any::<u8>(), proptest::collection::vec(any::<u8>(), 0..40)), 0..6),
        cuts in proptest::collection::vec(0..30_usize, 1..60),
    ) {
        let mut wire = Vec::new();
        for (kind, payload) in &frames {
            frame::encode(*kind, payload, &mut wire).unwrap();
        }
        let (mut held, mut seen, mut cuts) = (Vec::new(), Vec::new(), cuts.into_iter().cycle());
        let mut rest = &wire[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(cuts.next().unwrap_or(1).clamp(1, rest.len()));
            held.extend_from_slice(now);
            rest = later;
            while let Some((Frame { kind, payload }, used)) = frame::decode(&held).unwrap() {
                seen.push((kind, payload.to_vec()));
                held.drain(..used);
            }
        }
        prop_assert!(held.is_empty());
        prop_assert_eq!(seen, frames);
    }
}

/// At every cut of every frame: more bytes are needed, and then exactly that frame is there.
#[test]
fn a_frame_is_there_at_its_last_byte_and_not_before() {
    for length in [0, 1, 2, 250, 251, 252, 65_530] {
        let payload = vec![7; length];
        let mut wire = Vec::new();
        frame::encode(9, &payload, &mut wire).unwrap();
        for cut in 0..wire.len() {
            assert_eq!(frame::decode(&wire[..cut]), Ok(None), "{length} cut at {cut}");
        }
        wire.push(1);
        assert_eq!(frame::decode(&wire), Ok(Some((Frame { kind: 9, payload: &payload }, wire.len() - 1))));
    }
}

/// What is written without a copy is what would be written with one.
#[test]
fn the_ways_to_write_agree() {
    use bcmr_wire::codec::{PackedHead, begin_contents, begin_files, begin_files_packed, encode_data_header};
    let chance: Vec<u8> = (0..=255).cycle().take(500).collect();
    let entries: Vec<Entry<'_>> = vec![Dice(&chance).small(), Dice(&chance[100..]).small()];
    let both = |whole: Message<'_>, part: &dyn Fn(&mut Vec<u8>)| {
        let (mut one, mut other) = (b"x".to_vec(), b"x".to_vec());
        whole.encode(&mut one).unwrap();
        part(&mut other);
        assert_eq!(one, other);
    };
    let files = Message::Files {
        batch: 1,
        dir: 2,
        inline: true,
        codec: Codec::Raw,
        entries: entries.clone(),
        contents: b"\x01\x01",
    };
    both(files, &|out| {
        let mark = begin_files(1, 2, Codec::Raw, &entries, out).unwrap();
        contents::push_changed(out);
        contents::push_changed(out);
        frame::finish(out, mark).unwrap();
    });
    let columns = bcmr_wire::columns::encode(&entries).unwrap();
    let head = PackedHead { batch: 1, dir: 2, inline: true, packing: Codec::Raw, entries: &columns };
    let files = Message::FilesPacked {
        batch: 1,
        dir: 2,
        inline: true,
        codec: Codec::Raw,
        packing: Codec::Raw,
        entries: &columns,
        contents: b"\x01",
    };
    both(files, &|out| {
        let mark = begin_files_packed(&head, Codec::Raw, out).unwrap();
        contents::push_changed(out);
        frame::finish(out, mark).unwrap();
    });
    both(Message::Contents { batch: 300, codec: Codec::Raw, bytes: b"\x00\x02hi" }, &|out| {
        let mark = begin_contents(300, Codec::Raw, out);
        contents::push_content(out, b"hi", None);
        frame::finish(out, mark).unwrap();
    });
    let plain =
        Piece { file: 1, at: 0, flags: 2, cv: Some([3; 32]), codec: Codec::Raw, length: 4, bytes: b"abcd" };
    let packed = Piece { codec: Codec::Lz4, length: 900, ..plain.clone() };
    for piece in [plain, packed] {
        both(Message::Data(piece.clone()), &|out| {
            let mark = encode_data_header(&Piece { bytes: b"", ..piece.clone() }, out).unwrap();
            out.extend_from_slice(piece.bytes);
            frame::finish(out, mark).unwrap();
        });
        both(Message::Data(piece.clone()), &|out| {
            let mark = encode_data_header(&piece, out).unwrap();
            frame::finish_with(out, mark, piece.bytes.len() as u64).unwrap();
            out.extend_from_slice(piece.bytes);
        });
    }
    let zeros = Piece {
        file: 1,
        at: 0,
        flags: data::ZEROS,
        cv: None,
        codec: Codec::Raw,
        length: 1 << 20,
        bytes: b"",
    };
    both(Message::Data(zeros.clone()), &|out| {
        let mark = encode_data_header(&zeros, out).unwrap();
        frame::finish(out, mark).unwrap();
    });
}

proptest! {
    /// Columns say what rows say.
    #[test]
    fn entries_come_back_from_their_columns(chance: Vec<u8>, count in 1usize..40) {
        let mut dice = Dice(&chance);
        let entries: Vec<Entry<'_>> = (0..count).map(|_| dice.small()).collect();
        let columns = bcmr_wire::columns::encode(&entries).unwrap();
        let read = bcmr_wire::columns::decode(&columns);
        prop_assert_eq!(read.as_deref(), Ok(&entries[..]));
        // One byte is another: then it says another batch, in its only form, or none.
        let at = usize::from(dice.u8()) % columns.len();
        let mut other = columns.clone();
        other[at] ^= dice.u8();
        if let Ok(read) = bcmr_wire::columns::decode(&other) {
            prop_assert_eq!(bcmr_wire::columns::encode(&read), Ok(other));
        }
    }
}
