//! What two versions of a file have in common, with sums and patches of any kind: what is found is the file, whole and in order.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| bcmr_engine::chunks_fuzz(data));
