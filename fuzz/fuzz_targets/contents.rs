//! The contents of a batch: what is read of them is written as the same bytes.
#![no_main]

use bcmr_wire::contents::{self, Item};
use bcmr_wire::limits::CONTENTS_BYTES_MAX;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(([how, count], rest)) = data.split_first_chunk::<2>() else { return };
    if let Ok((length, packed)) = contents::unpacked(rest) {
        assert!(length <= CONTENTS_BYTES_MAX && packed.len() < rest.len());
    }
    let (hashes, exactly, count) = (how & 1 != 0, how & 2 != 0, usize::from(*count));
    let items = if exactly {
        contents::items(rest, hashes, count)
    } else {
        contents::items_up_to(rest, hashes, count)
    };
    let Ok(all) = items.collect::<Result<Vec<_>, _>>() else { return };
    assert!(all.len() == count || !exactly && all.len() < count);
    let mut out = Vec::new();
    for item in &all {
        match item {
            Item::Content { bytes, hash } => {
                assert_eq!(hash.is_some(), hashes);
                contents::push_content(&mut out, bytes, hash.as_ref());
            }
            Item::Hashed { length, hash } => contents::push_hashed(&mut out, *length, hash),
            Item::Patched { runs, carried, hash } => contents::push_patched(&mut out, runs, carried, hash),
            Item::Changed => contents::push_changed(&mut out),
            Item::Unreadable(trouble) => contents::push_unreadable(&mut out, trouble).expect("as it came"),
        }
    }
    assert_eq!(out, rest);
});
