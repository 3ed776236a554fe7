//! Content packed for the wire and unpacked again: LZ4 blocks and Zstandard frames.
//!
//! Must not know what the content is, nor when packing pays. What comes out is bounded by what was announced, so that
//! a few bytes cannot become gigabytes.

use bcmr_wire::message::Codec;
use std::fmt;

/// Zstd's level: beyond it the ratio grows slowly and the time does not.
const ZSTD_LEVEL: i32 = 3;
/// The same where there is nothing else to do with the time.
const ZSTD_LEVEL_DEEP: i32 = 9;

/// What packing must come to, in percent, to be worth unpacking.
const WORTH_PERCENT: usize = 95;

/// How hard Zstandard tries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Effort {
    #[default]
    Quick,
    /// Several times slower, some tenths smaller: for a link that leaves the time.
    Deep,
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
        let limit = raw.len() / 100 * WORTH_PERCENT + raw.len() % 100 * WORTH_PERCENT / 100;
        let packed = match codec {
            Codec::Raw => None,
            // Less room than the worst case needs: zstd gives up as soon as it is not worth it.
            Codec::Zstd => {
                out.resize(start + limit, 0);
                out.get_mut(start..).and_then(|room| self.zstd(effort, raw, room))
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

    fn zstd(&mut self, effort: Effort, raw: &[u8], room: &mut [u8]) -> Option<usize> {
        if self.zstd.as_ref().is_none_or(|(_, at)| *at != effort) {
            let level = match effort {
                Effort::Quick => ZSTD_LEVEL,
                Effort::Deep => ZSTD_LEVEL_DEEP,
            };
            self.zstd = zstd::bulk::Compressor::new(level).ok().map(|packer| (packer, effort));
        }
        self.zstd.as_mut()?.0.compress_to_buffer(raw, room).ok()
    }
}

/// Unpacks; one per thread.
#[derive(Default)]
pub(crate) struct Unpacker {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

/// Packed bytes that are not what was announced.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Damaged {
    /// More than can be asked for was announced.
    TooLong,
    /// They do not unpack, or not to the announced length.
    NotAsAnnounced,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Damaged::TooLong => "packed content announces more than it may hold",
            Damaged::NotAsAnnounced => "packed content does not unpack to what it announces",
        })
    }
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
        let length = usize::try_from(length).ok().filter(|l| *l <= max).ok_or(Damaged::TooLong)?;
        if codec == Codec::Raw {
            if packed.len() != length {
                return Err(Damaged::NotAsAnnounced);
            }
            out.clear();
            out.extend_from_slice(packed);
            return Ok(());
        }
        out.resize(length, 0);
        let got = match codec {
            Codec::Zstd => self.zstd(packed, out),
            _ => lz4_flex::block::decompress_into(packed, out).ok(),
        };
        if got == Some(length) { Ok(()) } else { Err(Damaged::NotAsAnnounced) }
    }

    fn zstd(&mut self, packed: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        if self.zstd.is_none() {
            self.zstd = zstd::bulk::Decompressor::new().ok();
        }
        self.zstd.as_mut()?.decompress_to_buffer(packed, out.as_mut_slice()).ok()
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

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(words in proptest::collection::vec(0u8..6, 0..4000), zstd: bool, deep: bool) {
            let codec = BOTH[usize::from(zstd)];
            let effort = if deep { Effort::Deep } else { Effort::Quick };
            let raw: Vec<u8> = words.iter().flat_map(|w| [*w; 5]).collect();
            let (mut packed, mut out) = (Vec::new(), vec![9; 3]);
            if Packer::default().pack(codec, effort, &raw, &mut packed) {
                Unpacker::new().unpack(codec, &packed, raw.len() as u64, raw.len(), &mut out).unwrap();
                prop_assert_eq!(out, raw);
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
