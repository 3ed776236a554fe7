//! The codecs of the wire by themselves, on one block of 4 MiB (the paper's Experiment 9). Knows no wire.

use crate::data;
use serde::{Deserialize, Serialize};
use sh::Result;
use std::time::Instant;

const BYTES: usize = 4 << 20;
pub const TIMES: usize = 10;

/// One codec on one kind of content; speeds in MB (10^6) of content a second.
#[derive(Serialize, Deserialize)]
pub struct Probe {
    pub content: String,
    pub codec: String,
    pub ratio: f64,
    /// One for each time.
    pub pack_mb_s: Vec<f64>,
    pub unpack_mb_s: Vec<f64>,
}

/// Content, codec, ratio, and MB/s of packing and unpacking in the paper.
pub const PUBLISHED: [(&str, &str, f64, f64, f64); 10] = [
    ("random", "LZ4", 1.004, 3578.2, 17330.5),
    ("random", "Zstd-1", 1.000, 4769.9, 33692.0),
    ("random", "Zstd-3", 1.000, 4655.3, 33635.0),
    ("random", "Zstd-9", 1.000, 2442.8, 31432.3),
    ("text", "LZ4", 0.390, 472.8, 1526.7),
    ("text", "Zstd-1", 0.210, 301.2, 871.9),
    ("text", "Zstd-3", 0.198, 320.5, 1012.1),
    ("text", "Zstd-9", 0.180, 47.2, 1130.9),
    ("mixed", "LZ4", 0.697, 863.4, 2875.6),
    ("mixed", "Zstd-3", 0.599, 457.2, 1971.9),
];

pub fn run() -> Result<Vec<Probe>> {
    let (noise, text) = (data::noise(BYTES), data::sources(BYTES)?);
    // By turns in pieces of 64 KiB, which is less than any window.
    let both = noise.chunks(64 << 10).zip(text.chunks(64 << 10)).enumerate();
    let mixed: Vec<u8> = both.flat_map(|(n, (a, b))| if n % 2 == 0 { a } else { b }).copied().collect();
    let mut all = Vec::new();
    for (content, bytes) in [("random", &noise), ("text", &text), ("mixed", &mixed)] {
        all.push(probe(
            content,
            "LZ4",
            bytes,
            |b| Ok(lz4_flex::block::compress(b)),
            |p| Ok(lz4_flex::block::decompress(p, BYTES)?),
        )?);
        for level in [1, 3, 9] {
            let mut pack = zstd::bulk::Compressor::new(level)?;
            let mut unpack = zstd::bulk::Decompressor::new()?;
            all.push(probe(
                content,
                &format!("Zstd-{level}"),
                bytes,
                |b| Ok(pack.compress(b)?),
                |p| Ok(unpack.decompress(p, BYTES)?),
            )?);
        }
    }
    Ok(all)
}

fn probe(
    content: &str,
    codec: &str,
    bytes: &[u8],
    mut pack: impl FnMut(&[u8]) -> Result<Vec<u8>>,
    mut unpack: impl FnMut(&[u8]) -> Result<Vec<u8>>,
) -> Result<Probe> {
    let (mut packing, mut unpacking, mut ratio) = (Vec::new(), Vec::new(), 1.0);
    // The first time pays for tables and pages, and is left out.
    for time in 0..=TIMES {
        let begun = Instant::now();
        let packed = pack(bytes)?;
        let pack_s = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        let back = unpack(&packed)?;
        let unpack_s = begun.elapsed().as_secs_f64();
        if back != bytes {
            return Err(format!("{codec} does not give back what was packed").into());
        }
        ratio = packed.len() as f64 / bytes.len() as f64;
        if time > 0 {
            packing.push(pack_s);
            unpacking.push(unpack_s);
        }
    }
    let speed = |seconds: Vec<f64>| seconds.iter().map(|s| bytes.len() as f64 / 1e6 / s).collect();
    Ok(Probe {
        content: content.to_owned(),
        codec: codec.to_owned(),
        ratio,
        pack_mb_s: speed(packing),
        unpack_mb_s: speed(unpacking),
    })
}
