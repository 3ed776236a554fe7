//! The plan of a sync: any bytes as one, and what was understood says the same when it is written again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| bcmr_engine::sync_plan_fuzz(data));
