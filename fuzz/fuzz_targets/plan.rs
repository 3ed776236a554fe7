//! The files of a plan: any bytes as each of them, and what was understood says the same when it is written again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| bcmr_engine::plan_fuzz(data));
