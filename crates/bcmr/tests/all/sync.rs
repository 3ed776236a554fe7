//! What is on stable storage, and when: `--sync` where the destination is more than one file system, and what replaces a file.

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

/// R9: also what takes the place of a file as a further name, or by a rename of its own; by bcmr's words and by GNU's.
#[test]
fn what_replaces_a_file_is_synced_before_however_it_comes() {
    needs!(has_tool("strace"), "there is no strace");
    for words in [
        "copy --archive -T s d",
        "copy --archive -T --update=different s d",
        "sync s d",
        "cp -aT s d",
        "cp -lf s/a d/a",
        "cp s/a d/a",
        "mv -f s/a d/a",
        "move -f s/a d/a",
        "move --merge -f s/sub d/",
    ] {
        let tmp = Tmp::new();
        tmp.file("s/b", "new");
        fs::hard_link(tmp.p("s/b"), tmp.p("s/a")).unwrap();
        tmp.file("s/sub/a", "new");
        tmp.file("d/a", "old content");
        tmp.file("d/b", "old content");
        tmp.file("d/sub/a", "old content");
        let log = tmp.p("log");
        let calls = "trace=fsync,fdatasync,syncfs,rename,renameat,renameat2";
        let mut line =
            Line::new(Path::new("strace")).args(["-f", "-qq", "-y", "-e", "signal=none", "-e", calls, "-o"]);
        line = line.args([log.as_os_str()]).args([BCMR]).args(words.split(' ')).cwd(tmp.path());
        line.0.env("XDG_STATE_HOME", tmp.p("state"));
        line.run().ok();
        let text = fs::read_to_string(&log).unwrap();
        let told: Vec<&str> = text.lines().collect();
        // On a loaded machine a call may be split in two lines: of a rename the beginning counts, of a sync the end.
        let is_rename = |line: &&str| {
            let ends = ["\"a\") = 0", "\"a\" <unfinished ...>"];
            line.contains("rename") && ends.iter().any(|end| line.ends_with(end))
        };
        let is_sync = |line: &&str| {
            let names = ["sync(", "syncfs(", "sync resumed", "syncfs resumed"];
            line.ends_with(" = 0") && names.iter().any(|name| line.contains(name))
        };
        let renamed = told.iter().position(is_rename);
        let renamed = renamed.unwrap_or_else(|| panic!("{words}: {text}"));
        assert!(told[..renamed].iter().any(is_sync), "{words}: {text}");
    }
}

/// R9 for a file of many names: they all are one content, which is synced once before the first of them is replaced.
#[test]
fn the_content_of_many_names_is_synced_once() {
    needs!(has_tool("strace"), "there is no strace");
    const NAMES: usize = 40;
    for verb in ["sync", "copy --archive -T", "copy --archive -T --sync"] {
        let tmp = Tmp::new();
        tmp.file("s/a", "old");
        (1..NAMES).for_each(|n| fs::hard_link(tmp.p("s/a"), tmp.p(format!("s/{n}"))).unwrap());
        let both = [tmp.p("s"), tmp.p("d")];
        bcmr(verb.split(' ')).args(&both).run().ok();
        fs::write(tmp.p("s/a"), "new content").unwrap();
        let log = tmp.p("log");
        let calls = "trace=fsync,fdatasync,syncfs,rename,renameat,renameat2";
        let strace = ["-f", "-qq", "-e", "signal=none", "-e", calls, "-o"];
        let line = Line::new(Path::new("strace")).args(strace).args([log.as_os_str()]);
        line.args([BCMR]).args(verb.split(' ')).args(&both).run().ok();
        assert_same(&tmp.p("s"), &tmp.p("d"), CONTENT);
        let log = fs::read_to_string(log).unwrap();
        let count = |what: &str| log.lines().filter(|line| line.contains(what)).count();
        // Of a few names, that land at the same time, and not of each.
        assert!(count("rename") >= NAMES && count("sync") < NAMES, "{verb}: {log}");
    }
}
