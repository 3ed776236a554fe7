//! What a run shows of itself when it is done: the receipt, the command that proves it, the page, the schema of events.

use super::common::remote::*;
use super::common::*;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

/// The command behind `proof: `, run by a shell where the copy ran.
fn prove(ran: &Ran, tmp: &Tmp) -> (i32, String) {
    let proof = ran.err.lines().find_map(|line| line.strip_prefix("bcmr: proof: "));
    let proof = proof.unwrap_or_else(|| panic!("no proof in {ran:?}"));
    let out = Command::new("bash").args(["-c", proof]).current_dir(tmp.path()).output().unwrap();
    (out.status.code().unwrap(), String::from_utf8_lossy(&out.stdout).into_owned())
}

/// What is told to prove a copy does, also where the destination was new and names are hard to type.
#[test]
fn the_proof_is_a_command_that_proves() {
    for (flags, dst, changed) in [
        ("-rv", "new one", "new one/sub/f"),
        ("-rVv", "there", "there/it's a tree/sub/f"),
        ("-v --archive -j2", "new one", "new one/sub/f"),
    ] {
        let tmp = Tmp::new();
        tmp.file("it's a tree/sub/f", "F");
        tmp.file("it's a tree/g", noise(1, 100_000));
        tmp.dir("there");
        let words = ["copy"].into_iter().chain(flags.split(' ')).chain(["it's a tree", dst]);
        let ran = bcmr(words).cwd(tmp.path()).run().ok();
        assert_eq!(prove(&ran, &tmp).0, 0, "{flags} {dst}: {ran:?}");
        // Of the same length, and as old as it was: only its content tells.
        let changed = tmp.p(changed);
        let old = std::fs::metadata(&changed).unwrap().modified().unwrap();
        std::fs::write(&changed, "X").unwrap();
        std::fs::File::options().write(true).open(&changed).unwrap().set_modified(old).unwrap();
        let (code, said) = prove(&ran, &tmp);
        assert!(code == 1 && said.contains('f'), "{flags} {dst}: {code} {said}");
    }
}

/// The root hash is what `sort` and `b3sum` make of the lines that `b3sum` writes in the destination.
#[test]
fn the_root_hash_is_of_what_is_there() {
    let tmp = Tmp::new();
    for n in 0..30 {
        tmp.file(format!("s/d{}/f {n}", n % 3), noise(n, n as usize * 3000));
    }
    tmp.file("s/odd\nname", "odd");
    let ran = bcmr(["copy", "-rV", "--json", "s", "d"]).cwd(tmp.path()).run().ok();
    let receipt = ran.out.lines().find(|line| line.contains("\"receipt\"")).unwrap();
    let receipt: serde_json::Value = serde_json::from_str(receipt).unwrap();
    assert_eq!(receipt["verified"], "cache");
    let script =
        "cd d && find . -type f -printf '%P\\0' | xargs -0 \"$0\" hash | LC_ALL=C sort | \"$0\" hash -";
    let out = Command::new("sh").args(["-c", script, BCMR]).current_dir(tmp.path()).output().unwrap();
    let want = String::from_utf8(out.stdout).unwrap();
    assert_eq!(receipt["root"].as_str().unwrap(), want.split(' ').next().unwrap());
}

/// Clones, what was left alone and why, what filters and nobody took.
#[test]
fn what_was_skipped_and_why() {
    let tmp = Tmp::new();
    for name in ["a.txt", "b.txt", "c.o"] {
        tmp.file(format!("s/{name}"), name);
    }
    mkfifo(&tmp.p("s/pipe"));
    tmp.file("d/s/a.txt", "old");
    let ran = bcmr(["copy", "-rv", "--no-clobber", "-e", "*.o", "s", "d"]).cwd(tmp.path()).run().code(1);
    for line in [
        "bcmr: skipped: 1 left alone, as they were there (--no-clobber)",
        "bcmr: skipped: 1 name left out by filters",
        "bcmr: skipped: 's/pipe', a special file",
    ] {
        assert!(ran.err.lines().any(|l| l == line), "{line}: {ran:?}");
    }
    assert!(!ran.err.contains("proof: "), "not everything was copied");
    needs!(is_root() && has_tool("mkfs.xfs"), "clones need a file system that has them");
    let mount = match Mount::image("xfs", 400, &tmp.p("m")) {
        Ok(mount) => mount,
        Err(why) => return skipped("what_was_skipped_and_why", &why),
    };
    std::fs::write(mount.path().join("one"), noise(1, 1 << 20)).unwrap();
    let ran = bcmr(["copy", "-v", "one", "two"]).cwd(mount.path()).run().ok();
    ran.says("bcmr: cloned: 1 file, 1.0 MiB");
}

/// The page of a run: whole, without anything from elsewhere, and names in it are nothing but names.
#[test]
fn a_page_on_the_run() {
    let tmp = Tmp::new();
    tmp.file("s/<script>alert(1)<", "x");
    tmp.file("s/plain.jpg", noise(1, 300_000));
    tmp.file(OsStr::from_bytes(b"s/\"onload=\xff'&amp;"), "y");
    mkfifo(&tmp.p("s/<b>pipe<!--"));
    let ran = bcmr(["copy", "-rV", "--report", "run.html", "s", "d"]).cwd(tmp.path()).run().code(1);
    assert!(ran.out.is_empty(), "items are for the page: {ran:?}");
    let html = std::fs::read_to_string(tmp.p("run.html")).unwrap();
    for bad in ["<script", "<b>", "<!--pipe", "src=", "http:", "https:", "\"onload"] {
        assert!(!html.contains(bad), "{bad}: {html}");
    }
    for part in [
        "&lt;script&gt;alert(1)&lt;",
        ".jpg",
        "up to 1 MiB",
        "root hash",
        "Slowest files",
        "exit status 1",
        "&lt;b&gt;pipe",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
    assert!(html.starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"));
    assert_eq!(litter(tmp.path()), [] as [OsString; 0]);
    // Where it cannot be written, nothing is begun.
    let ran = bcmr(["copy", "-r", "--report", "no/run.html", "s", "e"]).cwd(tmp.path()).run().code(1);
    assert!(ran.err.contains("no") && !tmp.p("e").exists(), "{ran:?}");
    // A move and a copy to another machine have one as well.
    bcmr(["move", "--report", "moved.html", "d", "m"]).cwd(tmp.path()).run().ok();
    assert!(std::fs::read_to_string(tmp.p("moved.html")).unwrap().contains("<h1>bcmr move</h1>"));
    let far = Far::pipe();
    let page = OsString::from(format!("--report={}", tmp.p("far.html").display()));
    let to = far.at(far.home().join("there"));
    far.bcmr("copy").args([page, tmp.p("s/plain.jpg").into(), to]).run().ok();
    assert!(std::fs::read_to_string(tmp.p("far.html")).unwrap().contains(".jpg"));
}

/// What every line of `--json` is judged by in all tests is what users get, and it refuses what is no event.
#[test]
fn the_schema_tells_events_from_others() {
    let validator = event_schema();
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert!(validator.is_valid(&value(r#"{"schema":1,"event":"note","text":"a"}"#)));
    for wrong in [
        r#"{"schema":2,"event":"note","text":"a"}"#,
        r#"{"schema":1,"event":"note"}"#,
        r#"{"schema":1,"event":"notes","text":"a"}"#,
        r#"{"schema":1,"event":"note","text":1}"#,
        r#"{"schema":1,"event":"note","text":"a","more":1}"#,
        r#"{"schema":1,"event":"item","action":"copied","src":{"b32":"a"},"bytes":1}"#,
        r#"{"schema":1,"event":"item","action":"copied","src":"a","bytes":-1}"#,
    ] {
        assert!(!validator.is_valid(&value(wrong)), "{wrong}");
    }
}
