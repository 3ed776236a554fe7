//! The store's index: any bytes are read without a panic, within bounds, and written anew they say the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| bcmr_engine::store_fuzz::index(data));
