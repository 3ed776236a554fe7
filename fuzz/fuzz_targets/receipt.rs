//! What a run has kept, as its receipt says it: any bytes lead out of nothing, and what was understood says the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| bcmr_engine::receipt_fuzz(data));
