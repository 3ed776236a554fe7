//! Patterns of a user or of the other side, over any path.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| bcmr_engine::filter_fuzz(data));
