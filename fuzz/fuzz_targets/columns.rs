//! The entries of a batch in columns: what is read of them is written as the same bytes.
#![no_main]

use bcmr_wire::columns;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _bounded = columns::unpacked(data).is_ok();
    let Ok(entries) = columns::decode(data) else { return };
    assert_eq!(columns::encode(&entries).as_deref(), Ok(data));
});
