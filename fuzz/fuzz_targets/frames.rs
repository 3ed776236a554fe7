//! A stream of bytes: frames are found in it, and what is in them is read while a state allows it.
#![no_main]

use bcmr_wire::frame;
use bcmr_wire::message::Message;
use bcmr_wire::state::{Answer, State};
use libfuzzer_sys::fuzz_target;

const STATES: [State; 8] = [
    State::ServerNew,
    State::ClientNew,
    State::ServerIdle,
    State::Waits(Answer::Pages),
    State::Sends,
    State::Receives,
    State::ReceivesBeside,
    State::ReceiveEnded,
];

fuzz_target!(|data: &[u8]| {
    let Some((first, mut rest)) = data.split_first() else { return };
    let state = STATES[usize::from(*first) % STATES.len()];
    while let Ok(Some((found, used))) = frame::decode(rest) {
        assert!(used == found.payload.len() + 5 && used <= rest.len());
        let mut again = Vec::new();
        frame::encode(found.kind, found.payload, &mut again).expect("what was a frame fits into one");
        assert_eq!(again, rest[..used]);
        // Cut anywhere, it is no frame yet, and no error either.
        assert_eq!(frame::decode(&rest[..used - 1]), Ok(None));
        if state.allows(found.kind) {
            let _refused = Message::decode(found.kind, found.payload).is_err();
        }
        rest = &rest[used..];
    }
});
