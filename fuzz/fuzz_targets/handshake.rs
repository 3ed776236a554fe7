//! Two greetings from strangers: what comes of them was offered by both, and everything required is among it.
#![no_main]

use bcmr_wire::handshake::{Features, hello, settle, welcome};
use bcmr_wire::message::{AtOnce, Message, kind};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((sets, rest)) = data.split_at_checked(18) else { return };
    let set = |at: usize| {
        let wide = sets[at + 1..at + 9].try_into().map(u64::from_le_bytes).expect("eight bytes");
        Features { caps: sets[at] & 0x7f, wide }
    };
    let (ours, required) = (set(0), set(9));
    // A server that is greeted by a stranger.
    if let Ok(Message::Hello(theirs)) = Message::decode(kind::HELLO, rest)
        && let Ok(answer) = welcome(ours, [1; 32], b"server", &theirs)
    {
        let both = Features::of(&answer);
        assert!(ours.has(both) && Features::of(&theirs).has(both));
        assert_eq!(answer.wide.is_some(), theirs.wide.is_some());
        let mut out = Vec::new();
        Message::Welcome(answer).encode(&mut out).expect("an answer can be sent");
    }
    // A client that is answered by one.
    if let Ok(Message::Welcome(answer)) = Message::decode(kind::WELCOME, rest)
        && let Ok(agreed) = settle(ours, required, &answer)
    {
        assert!(ours.has(agreed) && agreed.has(required) && Features::of(&answer).has(agreed));
    }
    // One that asks for something, as far as what it asks with are digits.
    let at_once = AtOnce { most: 1, get: rest.get(..rest.len().min(8)).unwrap_or_default() };
    let is_hex = at_once.get.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'));
    let mut out = Vec::new();
    let greeting = hello(ours, [2; 32], b"client", is_hex.then_some(at_once));
    Message::Hello(greeting).encode(&mut out).expect("a greeting can be sent");
});
