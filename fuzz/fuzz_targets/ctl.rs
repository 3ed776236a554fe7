//! What a run is told by its user, and what it says: any line of text.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &str| bcmr_engine::control::fuzz(data));
