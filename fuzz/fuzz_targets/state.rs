//! What sync remembers of a source, and the moments that snapshots are called by: any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| bcmr_engine::state_fuzz(data));
