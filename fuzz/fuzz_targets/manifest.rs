//! A line of a list of hashes: any bytes, and what was understood says the same when it is written again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| bcmr_engine::manifest_fuzz(data));
