//! Packed contents: no more comes out of any bytes than was announced, and what was packed is unpacked.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| bcmr_engine::codec_fuzz(data));
