//! `--sync` where the destination is more than one file system: exit 0 speaks for all of them.

use crate::common::remote::*;
use crate::common::*;
use std::fs;
use std::path::Path;

/// What makes strace tell of every sync of a file system, with the path that it goes by.
fn strace(log: &Path) -> String {
    format!("strace -f -qq -y -e signal=none -e trace=syncfs -o {}", log.display())
}

/// `bcmr copy` under it.
fn traced(log: &Path, flags: &str, src: &Path, dst: &Path) -> String {
    let line = format!("{} {BCMR} copy {flags}", strace(log));
    let (program, args) = line.split_once(' ').unwrap();
    Line::new(Path::new(program)).args(by_engine(args.split(' '))).args([src, dst]).run().ok();
    fs::read_to_string(log).unwrap()
}

/// Something is mounted inside the destination: each file system is synced before directories on it get their names,
/// and once more after. Here, and where another machine has the destination.
#[test]
fn every_file_system_of_the_destination_is_synced() {
    needs!(has_tool("strace"), "there is no strace");
    needs!(is_root(), "mounting needs root");
    for far in [false, true] {
        let tmp = Tmp::new();
        for name in ["here/a", "m/there/b"] {
            tmp.file(format!("src/{name}"), name);
        }
        let (src, dst) = (tmp.p("src"), tmp.dir("dst"));
        let mount = match Mount::tmpfs("size=8m", &tmp.p("dst/m")) {
            Ok(mount) => mount,
            Err(why) => return skipped("every_file_system_of_the_destination_is_synced", &why),
        };
        let log = tmp.p("log");
        let log = if far {
            let far = Far::pipe().with("FAR_RUN", strace(&log));
            Dir::Put.copy(&far, "-rT --sync", &src, &dst).run().ok();
            fs::read_to_string(log).unwrap()
        } else {
            traced(&log, "-rT --sync", &src, &dst)
        };
        assert_same(&src, &dst, CONTENT);
        let (inside, outside): (Vec<&str>, Vec<&str>) =
            log.lines().filter(|l| l.contains("syncfs(")).partition(|l| {
                let path = l.split_once('<').and_then(|(_, rest)| rest.split_once('>')).unwrap().0;
                Path::new(path).starts_with(mount.path())
            });
        // Contents before the names, then the names.
        assert_eq!((inside.len(), outside.len()), (2, 2), "far {far}: {log}");
    }
}

/// A directory that was there gets its times when all is in it, and nothing has made those durable by then.
#[test]
fn the_times_of_a_directory_that_was_there_are_synced() {
    needs!(has_tool("strace"), "there is no strace");
    let tmp = Tmp::new();
    tmp.file("src/sub/a", "A");
    tmp.dir("dst/sub");
    let (log, src, dst) = (tmp.p("log"), tmp.p("src"), tmp.p("dst"));
    let said = traced(&log, "-rTp --sync", &src, &dst);
    assert!(said.contains("syncfs("), "{said}");
    // The twin keeps the times that it has, and a file by itself is synced by itself.
    fs::write(src.join("sub/a"), "B").unwrap();
    let said = traced(&log, "-rT --sync", &src, &dst);
    assert!(!said.contains("syncfs("), "{said}");
}
