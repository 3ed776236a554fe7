//! What is there and stays: what is believed of it, what is proved, and by whom, here and over a wire.

use crate::common::remote::{BOTH, Far};
use crate::common::{Line, Ran, Tmp, bcmr, noise};
use std::fs;
use std::path::Path;
use std::time::SystemTime;

const MIB: usize = 1 << 20;

/// `bcmr copy` of one pair, here and in both directions over a wire.
fn each_way(far: &Far, mut one: impl FnMut(&str, &dyn Fn(&str, &Path, &Path) -> Ran)) {
    one("here", &|flags, src, dst| bcmr(["copy"]).args(flags.split_whitespace()).args([src, dst]).run());
    for dir in BOTH {
        one(&format!("{dir:?}"), &|flags, src, dst| {
            let line: Line = dir.copy(far, flags, src, dst);
            line.run()
        });
    }
}

fn set_time(path: &Path, time: SystemTime) {
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// `-C` believes size and time of what has its name; with `-V`, and with `-s`, it is read on both sides.
#[test]
fn what_goes_on_believes_and_what_proves() {
    let far = Far::pipe();
    for len in [5, 3 * MIB, 9 * MIB] {
        each_way(&far, |way, copy| {
            let tmp = Tmp::new();
            let good = noise(7, len);
            let src = tmp.file("s", &good);
            let dst = tmp.p("d");
            copy("-C --checkpoint-size=4M", &src, &dst).ok();
            let (mut bad, time) = (good.clone(), fs::metadata(&dst).unwrap().modified().unwrap());
            bad[len / 2] ^= 1;
            for (flags, proves) in [("-C", false), ("-C -V", true), ("-s", true), ("-C -V=direct", true)] {
                fs::write(&dst, &bad).unwrap();
                set_time(&dst, time);
                let said = copy(&format!("--json -n {flags} --checkpoint-size=4M"), &src, &dst).ok();
                let done = copy(&format!("--json {flags} --checkpoint-size=4M"), &src, &dst).ok();
                let about = format!("{way} {len} {flags}");
                assert_eq!(fs::read(&dst).unwrap() == good, proves, "{about}");
                let word = if proves { "\"copied\"" } else { "\"kept\"" };
                assert!(said.out.contains(word) && done.out.contains(word), "{about}: {said:?} {done:?}");
                if proves {
                    // The twin: what is as it should be is left alone.
                    let inode = inode(&dst);
                    copy(&format!("{flags} --checkpoint-size=4M"), &src, &dst).ok();
                    assert_eq!(inode, self::inode(&dst), "{about}: replaced by the same");
                }
            }
        });
    }
}

fn inode(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).unwrap().ino()
}

/// `-a` adds only to what is the beginning of the source, whole blocks and the rest of one alike.
#[test]
fn what_is_added_to_is_proved() {
    let far = Far::pipe();
    for (len, has) in
        [(1000, 1), (1000, 999), (3 * MIB, 2 * MIB + 5), (11 * MIB + 3, 9 * MIB + 7), (9 * MIB, 8 * MIB)]
    {
        each_way(&far, |way, copy| {
            let tmp = Tmp::new();
            let all = noise(9, len);
            let (src, dst) = (tmp.file("s", &all), tmp.p("d"));
            for at in [None, Some(0), Some(has / 2), Some(has - 1)] {
                let mut there = all[..has].to_vec();
                if let Some(at) = at {
                    there[at] ^= 1;
                }
                fs::write(&dst, &there).unwrap();
                let was = inode(&dst);
                let about = format!("{way}: {has} of {len}, wrong at {at:?}");
                // Over a wire a dry run looks at whole blocks of 4 MiB.
                let seen = way == "here" || len < MIB || at.is_none_or(|at| at < has / (4 * MIB) * 4 * MIB);
                if seen {
                    copy("-a -n", &src, &dst).code(if at.is_none() { 0 } else { 8 });
                    assert!(fs::read(&dst).unwrap() == there, "{about}: a dry run wrote");
                }
                let ran = copy("-a", &src, &dst).code(if at.is_none() { 0 } else { 8 });
                let now = fs::read(&dst).unwrap();
                assert_eq!(inode(&dst), was, "{about}");
                if at.is_none() {
                    assert!(now == all, "{about}");
                } else {
                    assert!(now == there, "{about}: it was written to");
                    assert!(ran.err.contains("it is not the beginning of the source"), "{about}: {ran:?}");
                }
            }
            // Nothing to add: proved as well.
            fs::write(&dst, &all).unwrap();
            copy("-a", &src, &dst).ok();
            let mut wrong = all.clone();
            wrong[len - 1] ^= 1;
            fs::write(&dst, &wrong).unwrap();
            copy("-a", &src, &dst).code(8);
            assert!(fs::read(&dst).unwrap() == wrong, "{way}: it was written to");
            // Blindly, by its length.
            fs::write(&dst, vec![b'x'; has]).unwrap();
            copy("--append=size", &src, &dst).ok();
            let now = fs::read(&dst).unwrap();
            assert!(now[..has].iter().all(|b| *b == b'x') && now[has..] == all[has..], "{way}");
        });
    }
}
