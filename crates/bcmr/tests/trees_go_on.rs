//! Trees whose copy was interrupted, and the same command again: names that belong together, links, and what the target
//! means. Here, there and back.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests look at the file system the ordinary way

mod common;

use common::remote::*;
use common::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

const MIB: usize = 1 << 20;

/// Which way a copy goes: nowhere, or to another machine or from it.
const WAYS: [Option<Dir>; 3] = [None, Some(Dir::Put), Some(Dir::Get)];

fn copy(way: Option<Dir>, flags: &str, src: &Path, dst: &Path) -> Line {
    match way {
        None => bcmr(["copy"]).args(flags.split_whitespace()).args([src, dst]),
        Some(dir) => dir.copy(&Far::pipe(), flags, src, dst),
    }
}

/// A copy of a file with its times, but as a file of its own.
fn torn(from: &Path, to: &Path) {
    let times = fs::metadata(from).unwrap();
    fs::remove_file(to).unwrap();
    fs::copy(from, to).unwrap();
    fs::File::options().write(true).open(to).unwrap().set_modified(times.modified().unwrap()).unwrap();
}

/// An earlier run may have landed any name of a file, or each as a file of its own: in the end they are one.
#[test]
fn names_of_one_file_are_one_again() {
    let tmp = Tmp::new();
    for (name, size) in [("empty", 0), ("small", 1000), ("large", 9 * MIB)] {
        let file = tmp.file(format!("src/{name}-a"), noise(size as u64, size));
        fs::create_dir_all(tmp.p("src/sub")).unwrap();
        fs::hard_link(&file, tmp.p(format!("src/{name}-b"))).unwrap();
        fs::hard_link(&file, tmp.p(format!("src/sub/{name}-c"))).unwrap();
    }
    symlink("small-a", tmp.p("src/link-a")).unwrap();
    fs::hard_link(tmp.p("src/link-a"), tmp.p("src/link-b")).unwrap();
    fs::hard_link(tmp.p("src/link-a"), tmp.p("src/sub/link-c")).unwrap();
    let src = tmp.p("src");
    let all = ["empty", "small", "large", "link"];
    for way in WAYS {
        for (flags, all) in [("-C", &all[..]), ("-s", &all), ("-u", &all[..3])] {
            let flags = format!("-r -T --archive --checkpoint-size=4M {flags}");
            let dst = tmp.p("dst");
            copy(way, &flags, &src, &dst).run().ok();
            assert_same(&src, &dst, EVERYTHING);
            for gone in [&["-a"][..], &["-b"], &["-b", "-a"]] {
                for file in all {
                    gone.iter().for_each(|end| fs::remove_file(dst.join(format!("{file}{end}"))).unwrap());
                }
                copy(way, &flags, &src, &dst).run().ok();
                assert_same(&src, &dst, EVERYTHING);
            }
            for file in ["empty", "small", "large"] {
                torn(&dst.join(format!("sub/{file}-c")), &dst.join(format!("{file}-a")));
            }
            assert!(!differences(&tree(&src), &tree(&dst), EVERYTHING).is_empty());
            copy(way, &flags, &src, &dst).run().ok();
            assert_same(&src, &dst, EVERYTHING);
            fs::remove_dir_all(&dst).unwrap();
        }
        // The twins: who does not ask for links gets none, and who keeps what is there keeps it.
        for flags in ["-r -T -C -p", "-r -T --no-clobber --archive"] {
            let dst = tmp.p("dst");
            copy(way, "-r -T --archive", &src, &dst).run().ok();
            torn(&dst.join("small-a"), &dst.join("small-b"));
            let ino = |name: &str| fs::metadata(dst.join(name)).unwrap().ino();
            let before = (ino("small-a"), ino("small-b"));
            copy(way, flags, &src, &dst).run().ok();
            assert_eq!((ino("small-a"), ino("small-b")), before, "{way:?} {flags}");
            fs::remove_dir_all(&dst).unwrap();
        }
    }
}

/// A session under a name that becomes a link to what landed under another one goes with its stage.
#[test]
fn the_session_of_a_further_name_is_swept() {
    let tmp = Tmp::new();
    let file = tmp.file("src/a", noise(7, 12 * MIB));
    fs::hard_link(&file, tmp.p("src/b")).unwrap();
    for way in WAYS {
        let dst = tmp.dir("dst");
        // Whichever name is met first, the other one's is of no use.
        for name in ["a", "b"] {
            let words = ["copy", "-C", "--checkpoint-size=4M"];
            let stopped = bcmr_after("ulimit -c 0; ulimit -f 18000", words)
                .args([tmp.p("src").join(name), dst.clone()]);
            stopped.run().code(6);
        }
        assert_eq!(litter(&dst).len(), 4, "{:?}", litter(&dst));
        copy(way, "-r -T -C --archive --checkpoint-size=4M", &tmp.p("src"), &dst).run().ok();
        assert_same(&tmp.p("src"), &dst, EVERYTHING);
        assert_no_litter(&dst);
        fs::remove_dir_all(&dst).unwrap();
    }
}

/// Kind, size and time of a symbolic link say nothing about where it leads.
#[test]
fn a_link_that_leads_elsewhere_is_replaced() {
    for way in WAYS {
        for flags in ["-r -T -C", "-r -T -s", "-r -T -C --archive"] {
            let tmp = Tmp::new();
            tmp.dir("src");
            tmp.dir("dst");
            for (name, target, old) in
                [("same", "here", "here"), ("other", "here", "gone"), ("not", "a", "bcd")]
            {
                symlink(target, tmp.p("src").join(name)).unwrap();
                symlink(old, tmp.p("dst").join(name)).unwrap();
            }
            let same = fs::symlink_metadata(tmp.p("dst/same")).unwrap().ino();
            copy(way, flags, &tmp.p("src"), &tmp.p("dst")).run().ok();
            assert_same(&tmp.p("src"), &tmp.p("dst"), CONTENT);
            // The twin: what leads there already is left alone.
            assert_eq!(fs::symlink_metadata(tmp.p("dst/same")).unwrap().ino(), same, "{way:?} {flags}");
        }
    }
}
