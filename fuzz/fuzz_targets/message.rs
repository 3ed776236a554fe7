//! One payload: what is read of it is written as the same bytes.
#![no_main]

use bcmr_wire::frame;
use bcmr_wire::message::Message;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((kind, payload)) = data.split_first() else { return };
    let Ok(message) = Message::decode(*kind, payload) else { return };
    let mut out = Vec::new();
    message.encode(&mut out).expect("what may be read may be written");
    let (found, used) = frame::decode(&out).expect("a frame").expect("a whole one");
    assert_eq!((found.kind, used), (*kind, out.len()));
    match message {
        // A newer peer's bytes behind the greeting are not repeated.
        Message::Hello(_) | Message::Welcome(_) => {
            assert_eq!(Message::decode(*kind, found.payload), Ok(message));
        }
        _ => assert_eq!(found.payload, payload),
    }
});
