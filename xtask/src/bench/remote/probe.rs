//! The codecs of the wire by themselves, on one block of 4 MiB (the seed's Experiment 9). Knows no wire.

use crate::bench::data;
use crate::bench::measure::median;
use crate::sh::Result;
use serde::{Deserialize, Serialize};
use std::time::Instant;

const BYTES: usize = 4 << 20;
const TIMES: usize = 3;

/// One codec on one kind of content; speeds in MB (10^6) of content a second.
#[derive(Serialize, Deserialize)]
pub struct Probe {
    pub content: String,
    pub codec: String,
    pub ratio: f64,
    pub pack_mb_s: f64,
    pub unpack_mb_s: f64,
}

pub fn run() -> Result<Vec<Probe>> {
    let (noise, prose) = (data::noise(BYTES), data::prose(BYTES));
    // By turns in pieces of 64 KiB, which is less than any window.
    let both = noise.chunks(64 << 10).zip(prose.chunks(64 << 10)).enumerate();
    let mixed: Vec<u8> = both.flat_map(|(n, (a, b))| if n % 2 == 0 { a } else { b }).copied().collect();
    let mut all = Vec::new();
    for (content, bytes) in [("random", &noise), ("text", &prose), ("mixed", &mixed)] {
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
    let speed = |seconds: Vec<f64>| bytes.len() as f64 / 1e6 / median(seconds);
    Ok(Probe {
        content: content.to_owned(),
        codec: codec.to_owned(),
        ratio,
        pack_mb_s: speed(packing),
        unpack_mb_s: speed(unpacking),
    })
}
