//! Messages that are each as they should be, in any order: whatever comes of it, it ends, and nothing is outside.

use super::peer::*;
use super::server::{data, file_end, value};
use crate::common::*;
use bcmr_wire::message::{Codec, Entry, Kind, Message};

const NAMES: [&[u8]; 4] = [b"a", b"b", b"keep", b"x"];
const LINKS: [&[u8]; 4] = [b"../../outside", b"../outside/keep", b".", b"a"];

fn some_of(r: &mut Random, all: &[&'static [u8]]) -> &'static [u8] {
    let one: &&[u8] = r.of(all);
    one
}

fn some_entry(r: &mut Random) -> Entry<'static> {
    let name = some_of(r, &NAMES);
    let mut one = match r.below(6) {
        0..3 => file(name, 4),
        3..5 => link(name, some_of(r, &LINKS)),
        _ => entry(*r.of(&[Kind::Fifo, Kind::Socket, Kind::CharDevice]), name),
    };
    one.nlink = 1 + r.below(2);
    one.ino = r.below(3);
    one
}

/// One message, with numbers that often fit.
fn some_message(r: &mut Random, w: &mut Wire, next: &mut [u64; 3]) -> bool {
    let [dirs, batches, larges] = next;
    let parent = 1 + r.below(*dirs);
    match r.below(14) {
        0..3 => {
            *dirs += 1;
            w.say(&subdir(*dirs, parent.min(*dirs - 1), some_of(r, &NAMES)))
        }
        3..6 => {
            *batches += 1;
            let entries: Vec<_> = (0..1 + r.below(3)).map(|_| some_entry(r)).collect();
            let count = entries.iter().filter(|e| e.kind == Kind::File).count();
            let bytes = contents(&vec![&b"evil"[..]; count]);
            w.say(&files(*batches, parent, entries, &bytes))
        }
        6 => {
            *batches += 1;
            let entries: Vec<_> = (0..1 + r.below(3)).map(|_| some_entry(r)).collect();
            w.say(&on_offer(*batches, parent, entries))
        }
        7 => {
            let bytes = contents(&vec![&b"evil"[..]; r.below(3) as usize]);
            w.say(&Message::Contents { batch: 1 + r.below(*batches + 1), codec: Codec::Raw, bytes: &bytes })
        }
        8 => {
            *larges += 1;
            w.say(&Message::Large { file: *larges, dir: parent, entry: file(some_of(r, &NAMES), 1 << 20) })
        }
        9 => {
            let bytes = vec![7; 1 << 20];
            w.say(&data(1 + r.below(*larges + 1), 0, Some(value(&bytes, 0)), &bytes))
        }
        10 => w.say(&file_end(1 + r.below(*larges + 1))),
        11 => w.say(&Message::DirEnd { dir: parent, partial: r.once_in(2) }),
        12 => w.say(&Message::Found { items: r.next(), bytes: r.next(), last: r.once_in(2) }),
        _ if r.once_in(6) => w.say(&Message::AllSent),
        _ => w.say(&Message::Values { file: 1 + r.below(2), first: 0, hashes: vec![[0; 32]] }),
    }
}

#[test]
fn any_order_of_messages() {
    let options: [&[&str]; 5] = [
        &["copy", "-r"],
        &["copy", "--archive"],
        &["copy", "-r", "--inplace"],
        &["copy", "-r", "--sync"],
        &["copy", "-ru", "--preserve=links"],
    ];
    for seed in 0..if all_cases() { 100 } else { 34 } {
        let mut r = Random(seed);
        let place = Place::new();
        if r.once_in(2) {
            place.tmp.file("dst/x/keep", "was there");
            place.tmp.file("dst/x/a/b", "was there");
        }
        let args = [*r.of(&options), &["host:x", "DST"]].concat();
        let count = 1 + r.below(25);
        place.attack(&format!("seed {seed} {args:?}"), &args, |w| {
            w.transfer();
            w.say(&operand(1, dir(b"x")));
            let mut next = [1, 0, 0];
            let _gone = (0..count).all(|_| some_message(&mut r, w, &mut next));
            w.say(&Message::AllSent);
        });
    }
}
