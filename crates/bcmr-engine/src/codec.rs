//! Content packed for the wire and unpacked again: LZ4 blocks and Zstandard frames.
//!
//! Must not know what the content is, nor when packing pays. What comes out is bounded by what was announced, so that
//! a few bytes cannot become gigabytes.

use bcmr_wire::limits;
use bcmr_wire::message::{Codec, data};
use std::fmt;
use std::io::Cursor;
use zstd::stream::raw::{CParameter, DParameter, Decoder, Encoder, InBuffer, Operation, OutBuffer};

/// What packing must come to, in percent, to be worth unpacking.
const WORTH_PERCENT: usize = 95;

/// How hard Zstandard tries: the harder, the smaller and the slower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effort {
    #[default]
    Quick,
    /// A tenth smaller: for a link that leaves the time.
    Hard,
    /// A fifth smaller: for one that leaves much.
    Deep,
}

impl Effort {
    /// From the least to the most.
    pub(crate) const ALL: [Effort; 3] = [Effort::Quick, Effort::Hard, Effort::Deep];

    /// Zstd's level. Between these three the ratio changes little.
    fn level(self) -> i32 {
        match self {
            Effort::Quick => 3,
            Effort::Hard => 6,
            Effort::Deep => 9,
        }
    }

    /// What differs from the level's own choice: tables no larger than those of [`Effort::Hard`], a quarter of what level 9
    /// takes. Sources then come to 1.003 of what they would, in four fifths of the time.
    fn tables(self) -> &'static [CParameter] {
        match self {
            Effort::Quick | Effort::Hard => &[],
            Effort::Deep => &[CParameter::HashLog(19), CParameter::ChainLog(18)],
        }
    }

    /// Time that packing takes, in that of [`Effort::Quick`]; about, for sources and the like (`zstd -b3 -e9`).
    pub(crate) fn cost(self) -> u64 {
        match self {
            Effort::Quick => 1,
            Effort::Hard => 3,
            Effort::Deep => 4,
        }
    }

    /// The next one that takes more time, if there is one.
    pub(crate) fn more(self) -> Effort {
        match self {
            Effort::Quick => Effort::Hard,
            Effort::Hard | Effort::Deep => Effort::Deep,
        }
    }

    /// The next one that takes less time, if there is one.
    pub(crate) fn less(self) -> Effort {
        match self {
            Effort::Quick | Effort::Hard => Effort::Quick,
            Effort::Deep => Effort::Hard,
        }
    }
}

/// So few bytes must come of so many.
fn worth(bytes: usize) -> usize {
    bytes / 100 * WORTH_PERCENT + bytes % 100 * WORTH_PERCENT / 100
}

/// Packs; one per thread, since it keeps the codecs' tables.
#[derive(Default)]
pub(crate) struct Packer {
    zstd: Option<(zstd::bulk::Compressor<'static>, Effort)>,
}

impl Packer {
    /// Appends `raw`, packed, to `out`. `false`, and nothing appended, when that would not come to 95 % or less: then
    /// it is sent as it is.
    pub(crate) fn pack(&mut self, codec: Codec, effort: Effort, raw: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let limit = worth(raw.len());
        let packed = match codec {
            Codec::Raw => None,
            // Less room than the worst case needs: where `out` has no more, zstd gives up as soon as it is not worth it.
            Codec::Zstd => {
                out.reserve_exact(limit);
                self.zstd(effort, raw, out)
            }
            Codec::Lz4 => {
                out.resize(start + lz4_flex::block::get_maximum_output_size(raw.len()), 0);
                out.get_mut(start..).and_then(|room| lz4_flex::block::compress_into(raw, room).ok())
            }
        };
        match packed {
            Some(bytes) if bytes > 0 && bytes <= limit => {
                out.truncate(start + bytes);
                true
            }
            _ => {
                out.truncate(start);
                false
            }
        }
    }

    /// Behind what is in `out`, into what it has allocated; how many bytes.
    fn zstd(&mut self, effort: Effort, raw: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        if self.zstd.as_ref().is_none_or(|(_, at)| *at != effort) {
            self.zstd = None;
            let mut packer = zstd::bulk::Compressor::new(effort.level()).ok()?;
            effort.tables().iter().try_for_each(|table| packer.set_parameter(*table)).ok()?;
            self.zstd = Some((packer, effort));
        }
        let start = out.len();
        let mut room = Cursor::new(out);
        room.set_position(start as u64);
        self.zstd.as_mut()?.0.compress_to_buffer(raw, &mut room).ok()
    }
}

/// Packs pieces of a file that follow one another as one Zstandard frame, which is flushed behind each of them: what was
/// said in one piece need not be said again in the next.
#[derive(Default)]
pub(crate) struct FramePacker {
    encoder: Option<(Encoder<'static>, Effort)>,
    /// Where the last piece ended, in bytes from the start of the file.
    end: Option<u64>,
}

impl FramePacker {
    /// What comes next begins a frame.
    pub(crate) fn begin(&mut self) {
        self.end = None;
    }

    /// Whether a piece that begins at `at` goes on with the frame of the one before.
    pub(crate) fn goes_on(&self, at: u64) -> bool {
        self.end == Some(at)
    }

    /// Appends `raw`, which lies at `at`, packed, to `out`; as [`Packer::pack`]. A frame is packed as hard as its first
    /// piece.
    pub(crate) fn pack(&mut self, effort: Effort, at: u64, raw: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let limit = worth(raw.len());
        let goes_on = self.goes_on(at);
        out.reserve_exact(limit);
        let packed = self.fill(effort, goes_on, raw, limit, out);
        out.truncate(start + packed.unwrap_or_default());
        // What was begun and is not sent is of no use to those behind it.
        self.end = packed.map(|_| at + raw.len() as u64);
        packed.is_some()
    }

    /// Behind what is in `out`, into what it has allocated; how many bytes, if they are no more than `limit`.
    fn fill(
        &mut self,
        effort: Effort,
        goes_on: bool,
        raw: &[u8],
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        if !goes_on {
            match &mut self.encoder {
                Some((encoder, at)) if *at == effort => encoder.reinit().ok()?,
                _ => {
                    self.encoder = None;
                    let mut encoder = Encoder::new(effort.level()).ok()?;
                    encoder.set_parameter(CParameter::WindowLog(limits::FRAME_WINDOW_LOG_MAX)).ok()?;
                    effort.tables().iter().try_for_each(|table| encoder.set_parameter(*table)).ok()?;
                    self.encoder = Some((encoder, effort));
                }
            }
        }
        let (encoder, _) = self.encoder.as_mut()?;
        let mut from = InBuffer::around(raw);
        let start = out.len();
        let mut to = OutBuffer::around_pos(out, start);
        while from.pos() < raw.len() && to.pos() - start < limit {
            encoder.run(&mut from, &mut to).ok()?;
        }
        // A room that is full may have been too small.
        let all = from.pos() == raw.len() && to.pos() - start < limit && encoder.flush(&mut to).ok()? == 0;
        all.then(|| to.pos() - start).filter(|bytes| *bytes <= limit)
    }
}

/// Where a piece stands in a frame that several are packed as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InFrame {
    Begins,
    GoesOn,
}

impl InFrame {
    /// What the flags of a piece say of it; `None`: it is packed by itself.
    pub(crate) fn of(flags: u8) -> Option<InFrame> {
        match flags & (data::BEGINS_FRAME | data::GOES_ON) {
            0 => None,
            data::BEGINS_FRAME => Some(InFrame::Begins),
            _ => Some(InFrame::GoesOn),
        }
    }
}

/// Unpacks; one per thread.
#[derive(Default)]
pub(crate) struct Unpacker {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
    frame: Option<Decoder<'static>>,
    /// The file and the place in it where the last piece of a frame ended.
    end: Option<(u64, u64)>,
}

/// Packed bytes that are not what was announced.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Damaged {
    /// More than can be asked for was announced.
    TooLong,
    /// They do not unpack, or not to the announced length.
    NotAsAnnounced,
    /// They go on with a frame of which nothing came before them.
    NoFrame,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Damaged::TooLong => "packed content announces more than it may hold",
            Damaged::NotAsAnnounced => "packed content does not unpack to what it announces",
            Damaged::NoFrame => "packed content goes on with a frame that was not begun",
        })
    }
}

/// The length that was announced, where so much may be asked for.
fn announced(length: u64, max: usize) -> Result<usize, Damaged> {
    usize::try_from(length).ok().filter(|length| *length <= max).ok_or(Damaged::TooLong)
}

impl Unpacker {
    /// Without tables yet.
    pub(crate) fn new() -> Unpacker {
        Unpacker::default()
    }

    /// Replaces what is in `out` by what is packed in `packed`: exactly `length` bytes, of which at most `max` are
    /// acceptable. Nothing larger than that is allocated, whatever the bytes say.
    ///
    /// # Errors
    /// What is announced is too much, or not what comes out; `out` is then of no use.
    pub(crate) fn unpack(
        &mut self,
        codec: Codec,
        packed: &[u8],
        length: u64,
        max: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Damaged> {
        let length = announced(length, max)?;
        if codec == Codec::Raw {
            if packed.len() != length {
                return Err(Damaged::NotAsAnnounced);
            }
            out.clear();
            out.extend_from_slice(packed);
            return Ok(());
        }
        let got = match codec {
            Codec::Zstd => self.zstd(packed, length, out),
            _ => {
                out.resize(length, 0);
                lz4_flex::block::decompress_into(packed, out).ok()
            }
        };
        if got == Some(length) { Ok(()) } else { Err(Damaged::NotAsAnnounced) }
    }

    /// The same of a piece that is part of a Zstandard frame and lies at `place`: its file, and bytes from the start of that.
    ///
    /// # Errors
    /// As [`Unpacker::unpack`], and where a piece goes on with a frame that does not end there.
    pub(crate) fn unpack_part(
        &mut self,
        (part, place): (InFrame, (u64, u64)),
        packed: &[u8],
        length: u64,
        max: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Damaged> {
        let length = announced(length, max)?;
        let end = self.end.take();
        if part == InFrame::GoesOn && end != Some(place) {
            return Err(Damaged::NoFrame);
        }
        // With room for one byte more: that more would come than was announced is seen.
        out.clear();
        out.reserve_exact(length + 1);
        if self.part(part, packed, out) != Some(length) {
            return Err(Damaged::NotAsAnnounced);
        }
        let (file, at) = place;
        self.end = Some((file, at.saturating_add(length as u64)));
        Ok(())
    }

    /// How many bytes came out, if all of `packed` went in and the frame has not ended.
    fn part(&mut self, part: InFrame, packed: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let decoder = match &mut self.frame {
            Some(decoder) => {
                if part == InFrame::Begins {
                    decoder.reinit().ok()?;
                }
                decoder
            }
            none => {
                let mut new = Decoder::new().ok()?;
                new.set_parameter(DParameter::WindowLogMax(limits::FRAME_WINDOW_LOG_MAX)).ok()?;
                none.insert(new)
            }
        };
        let mut from = InBuffer::around(packed);
        let mut to = OutBuffer::around(out);
        loop {
            let before = (from.pos(), to.pos());
            let left = decoder.run(&mut from, &mut to).ok()?;
            if left == 0 {
                return None;
            }
            // Once more where all went in: something may still be to come out.
            if (from.pos(), to.pos()) == before {
                return (from.pos() == packed.len()).then(|| to.pos());
            }
        }
    }

    /// Into what `out` has allocated, which is not written before that.
    fn zstd(&mut self, packed: &[u8], length: usize, out: &mut Vec<u8>) -> Option<usize> {
        if self.zstd.is_none() {
            self.zstd = zstd::bulk::Decompressor::new().ok();
        }
        out.clear();
        out.reserve_exact(length);
        self.zstd.as_mut()?.decompress_to_buffer(packed, out).ok()
    }
}

/// Entrance for the fuzzer: any bytes as packed content, and any content packed and unpacked again.
#[cfg(fuzzing)]
pub fn fuzz(data: &[u8]) {
    const MAX: usize = 1 << 16;
    let Some(([which, low, high], rest)) = data.split_first_chunk::<3>() else { return };
    let codec = if which & 1 == 0 { Codec::Lz4 } else { Codec::Zstd };
    let length = u64::from(*low) | u64::from(*high) << 9;
    let mut out = Vec::new();
    // The same as parts of one frame, of which the first may be a good one.
    let (mut packer, mut unpacker) = (FramePacker::default(), Unpacker::new());
    let good = [*low; 300];
    let (mut part, mut at, mut packed) = (InFrame::Begins, 0, Vec::new());
    if which & 2 != 0 && packer.pack(Effort::Quick, 0, &good, &mut packed) {
        let begins = (InFrame::Begins, (1, 0));
        assert_eq!(unpacker.unpack_part(begins, &packed, good.len() as u64, MAX, &mut out), Ok(()));
        (part, at) = (InFrame::GoesOn, good.len() as u64);
    }
    if unpacker.unpack_part((part, (1, at)), rest, length, MAX, &mut out).is_ok() {
        assert_eq!(out.len() as u64, length);
    }
    if Unpacker::new().unpack(codec, rest, length, MAX, &mut out).is_ok() {
        assert_eq!(out.len() as u64, length);
    }
    assert!(out.capacity() <= 2 * MAX, "more memory than may be asked for");
    // Repeated, so that there is something to pack.
    let raw = rest.repeat(usize::from(*low % 8) + 1);
    let mut packed = vec![1, 2, 3];
    if Packer::default().pack(codec, Effort::Quick, &raw, &mut packed) {
        let packed = packed.get(3..).unwrap_or_default();
        assert!(packed.len() * 100 <= raw.len() * WORTH_PERCENT);
        assert_eq!(Unpacker::new().unpack(codec, packed, raw.len() as u64, raw.len(), &mut out), Ok(()));
        assert_eq!(out, raw);
    } else {
        assert_eq!(packed, [1, 2, 3]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOTH: [Codec; 2] = [Codec::Lz4, Codec::Zstd];

    fn noise(bytes: usize) -> Vec<u8> {
        let mut reader = blake3::Hasher::new().update(b"noise").finalize_xof();
        let mut out = vec![0; bytes];
        reader.fill(&mut out);
        out
    }

    #[test]
    fn what_does_not_shrink_is_left_as_it_is() {
        for codec in BOTH {
            let mut out = b"before".to_vec();
            assert!(!Packer::default().pack(codec, Effort::Quick, &noise(100_000), &mut out), "{codec:?}");
            assert!(!Packer::default().pack(codec, Effort::Quick, b"", &mut out));
            assert!(!Packer::default().pack(Codec::Raw, Effort::Quick, &[0; 1000], &mut out));
            assert_eq!(out, b"before");
            // 6 % of zeros behind noise come to just under 95 %.
            let mut mixed = noise(94_000);
            mixed.resize(100_000, 0);
            assert!(Packer::default().pack(codec, Effort::Quick, &mixed, &mut out), "{codec:?}");
            assert!(out.len() - 6 <= 95_000 && out.starts_with(b"before"));
        }
    }

    /// A server of many streams may have twelve at work: eight for pieces, four for frames.
    #[test]
    fn trying_harder_takes_little_memory() {
        for effort in Effort::ALL {
            let mut context = zstd::zstd_safe::CCtx::create();
            context.set_parameter(CParameter::CompressionLevel(effort.level())).unwrap();
            effort.tables().iter().for_each(|table| assert!(context.set_parameter(*table).is_ok()));
            let mut out = Vec::with_capacity(2 << 20);
            context.compress2(&mut out, &noise(1 << 20)).unwrap();
            assert!(context.sizeof() < 4 << 20, "{effort:?}: {}", context.sizeof());
        }
    }

    #[test]
    fn nothing_but_the_announced_length_comes_out() {
        let raw = vec![7u8; 1 << 20];
        for codec in BOTH {
            let mut packed = Vec::new();
            assert!(Packer::default().pack(codec, Effort::Quick, &raw, &mut packed));
            let mut out = Vec::new();
            let mut unpack =
                |bytes: &[u8], length, max| Unpacker::new().unpack(codec, bytes, length, max, &mut out);
            assert_eq!(unpack(&packed, 1 << 20, 1 << 20), Ok(()));
            assert_eq!(unpack(&packed, (1 << 20) - 1, 1 << 20), Err(Damaged::NotAsAnnounced), "a bomb");
            assert_eq!(unpack(&packed, (1 << 20) + 1, 1 << 21), Err(Damaged::NotAsAnnounced));
            assert_eq!(unpack(&packed, 1 << 20, (1 << 20) - 1), Err(Damaged::TooLong));
            assert_eq!(unpack(&packed, u64::MAX, 1 << 20), Err(Damaged::TooLong));
            assert_eq!(unpack(&packed[..packed.len() - 1], 1 << 20, 1 << 20), Err(Damaged::NotAsAnnounced));
            assert_eq!(unpack(b"", 5, 10), Err(Damaged::NotAsAnnounced));
            assert!(out.capacity() <= 2 << 20);
        }
    }

    #[test]
    fn a_piece_goes_on_with_nothing_but_the_frame_before_it() {
        let raw: Vec<u8> = noise(1000).repeat(20);
        let length = raw.len() as u64;
        let mut packer = FramePacker::default();
        let mut pack = |at: u64| {
            let mut out = Vec::new();
            assert!(packer.pack(Effort::Quick, at, &raw, &mut out));
            out
        };
        let (first, second) = (pack(0), pack(length));
        assert!(second.len() * 5 < first.len(), "what was said before: {} {}", first.len(), second.len());
        let (begins, goes_on) = (InFrame::Begins, InFrame::GoesOn);
        let mut out = Vec::new();
        type Part<'p> = (InFrame, (u64, u64), &'p [u8], u64);
        let mut unpack = |parts: &[Part<'_>]| {
            let mut unpacker = Unpacker::new();
            let mut one = |(part, place, packed, length): &Part<'_>| {
                unpacker.unpack_part((*part, *place), packed, *length, 1 << 20, &mut out)
            };
            parts.iter().map(&mut one).collect::<Vec<_>>()
        };
        let start = (begins, (1, 0), &first[..], length);
        assert_eq!(unpack(&[start, (goes_on, (1, length), &second, length)]), [Ok(()), Ok(())]);
        // Without one, of another file, and of another place in this one; and it does not begin one.
        assert_eq!(unpack(&[(goes_on, (1, 0), &first, length)]), [Err(Damaged::NoFrame)]);
        for place in [(2, length), (1, length + 1), (1, 0)] {
            let refused = Err(Damaged::NoFrame);
            assert_eq!(unpack(&[start, (goes_on, place, &second, length)]), [Ok(()), refused]);
        }
        let announced = Err(Damaged::NotAsAnnounced);
        assert_eq!(unpack(&[(begins, (1, 0), &second, length)]), [announced]);
        // More, less, cut off, with something behind it, and one that has ended.
        for (packed, length) in
            [(&first[..], length - 1), (&first, length + 1), (&first[..first.len() - 1], length)]
        {
            let went = unpack(&[(begins, (1, 0), packed, length), (goes_on, (1, length), &second, length)]);
            assert_eq!(went, [Err(Damaged::NotAsAnnounced), Err(Damaged::NoFrame)]);
        }
        let ended = zstd::bulk::compress(&raw, 3).unwrap();
        let twice = [ended.clone(), first.clone()].concat();
        for packed in [&ended, &twice] {
            assert_eq!(unpack(&[(begins, (1, 0), packed, length)]), [Err(Damaged::NotAsAnnounced)]);
        }
        assert_eq!(unpack(&[(begins, (1, 0), &first, 2 << 20)]), [Err(Damaged::TooLong)]);
    }

    #[test]
    fn no_frame_looks_back_further_than_may_be() {
        let raw = vec![7; 1 << 20];
        let mut encoder = Encoder::new(3).unwrap();
        encoder.set_parameter(CParameter::WindowLog(limits::FRAME_WINDOW_LOG_MAX + 1)).unwrap();
        let mut packed = vec![0; 1 << 16];
        let (mut from, mut to) = (InBuffer::around(&raw), OutBuffer::around(&mut packed[..]));
        while from.pos() < raw.len() {
            encoder.run(&mut from, &mut to).unwrap();
        }
        assert_eq!(encoder.flush(&mut to).unwrap(), 0);
        let bytes = to.pos();
        let begins = (InFrame::Begins, (1, 0));
        let went = Unpacker::new().unpack_part(begins, &packed[..bytes], 1 << 20, 1 << 20, &mut Vec::new());
        assert_eq!(went, Err(Damaged::NotAsAnnounced));
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(words in proptest::collection::vec(0u8..6, 0..4000), zstd: bool, effort in 0usize..3) {
            let codec = BOTH[usize::from(zstd)];
            let effort = Effort::ALL[effort];
            let raw: Vec<u8> = words.iter().flat_map(|w| [*w; 5]).collect();
            let (mut packed, mut out) = (Vec::new(), vec![9; 3]);
            if Packer::default().pack(codec, effort, &raw, &mut packed) {
                Unpacker::new().unpack(codec, &packed, raw.len() as u64, raw.len(), &mut out).unwrap();
                prop_assert_eq!(out, raw);
            }
        }

        /// Pieces of any lengths, some of which do not shrink, and some of other places between them.
        #[test]
        fn what_is_packed_as_one_frame_is_unpacked(
            pieces in proptest::collection::vec((proptest::collection::vec(0u8..6, 1..2000), 0u8..8), 1..8),
            effort in 0usize..3,
        ) {
            let effort = Effort::ALL[effort];
            let (mut packer, mut unpacker) = (FramePacker::default(), Unpacker::new());
            let (mut at, mut goes_on) = (0, false);
            for (words, how) in pieces {
                let raw: Vec<u8> = match how {
                    0 => noise(words.len()),
                    _ => words.iter().flat_map(|w| [*w; 5]).collect(),
                };
                if how == 1 {
                    // A hole.
                    (at, goes_on) = (at + 7, false);
                }
                prop_assert_eq!(packer.goes_on(at), goes_on);
                let mut packed = vec![1, 2, 3];
                let mut out = vec![9; 3];
                if packer.pack(effort, at, &raw, &mut packed) {
                    let (part, bytes) = (if goes_on { InFrame::GoesOn } else { InFrame::Begins }, &packed[3..]);
                    prop_assert!(bytes.len() * 100 <= raw.len() * WORTH_PERCENT);
                    unpacker.unpack_part((part, (4, at)), bytes, raw.len() as u64, raw.len(), &mut out).unwrap();
                    prop_assert_eq!(out, &raw[..]);
                    goes_on = true;
                } else {
                    prop_assert_eq!(&packed, &[1, 2, 3]);
                    goes_on = false;
                }
                at += raw.len() as u64;
            }
        }

        #[test]
        fn nonsense_is_refused_and_never_a_panic(bytes: Vec<u8>, length in 0u64..5000, zstd: bool) {
            let mut out = Vec::new();
            let codec = BOTH[usize::from(zstd)];
            if Unpacker::new().unpack(codec, &bytes, length, 4096, &mut out).is_ok() {
                prop_assert_eq!(out.len() as u64, length);
            }
            prop_assert!(out.capacity() <= 8192);
        }
    }
}
