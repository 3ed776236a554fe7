//! A session file: any bytes read as a session or as none, and a damaged one as a prefix of what was written.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| bcmr_engine::receiver_fuzz::session(data));
