//! ACLs that a file holds: any bytes are one to the letter or none, and what was understood says the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| bcmr_engine::held_fuzz(data));
