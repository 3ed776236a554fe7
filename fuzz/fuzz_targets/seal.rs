//! Sealed records, tampered with: nothing comes out that nobody sealed.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| bcmr_engine::seal_fuzz(data));
