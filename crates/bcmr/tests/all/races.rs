//! An attacker swaps names while the program works: nothing outside is written, removed or read, and nothing hangs.
//!
//! Each attack runs for some seconds; the twin is the same command without an attacker.

use crate::common::*;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const SECRET: &[u8] = b"not for your eyes";

/// What lies outside, which the command may not touch.
fn outside(tmp: &Tmp) -> PathBuf {
    tmp.file("outside/secret", SECRET);
    tmp.file("outside/inner/secret", SECRET);
    tmp.p("outside")
}

fn assert_untouched(before: &Tree, outside: &Path) {
    let told = differences(before, &tree(outside), EVERYTHING);
    assert!(told.is_empty(), "outside was touched: {told:?}");
}

/// No file below holds the secret, links not followed.
fn assert_not_read(dst: &Path) {
    if !dst.exists() {
        return;
    }
    let probe = Tmp::new();
    probe.file("p", SECRET);
    let secret = tree(probe.path())[&b"p"[..]].clone();
    let leaked = tree(dst).into_iter().find(|(_, e)| e.content == secret.content && e.size == secret.size);
    assert!(leaked.is_none(), "read from outside: {leaked:?}");
}

fn fill(tmp: &Tmp, root: &str) -> PathBuf {
    for n in 0..20 {
        tmp.file(format!("{root}/sub/{n}"), noise(n, 500));
        tmp.file(format!("{root}/sub/inner/{n}"), noise(n, 500));
    }
    tmp.p(root)
}

#[test]
fn a_copy_writes_nothing_outside_while_its_destination_is_swapped_for_a_link() {
    let tmp = Tmp::new();
    let (src, dst, out) = (fill(&tmp, "src"), tmp.dir("dst"), outside(&tmp));
    let before = tree(&out);
    tmp.dir("dst/sub/inner");
    symlink(&out, dst.join("evil")).unwrap();
    symlink(out.join("inner"), dst.join("sub/evil")).unwrap();
    {
        let _two = Attacker::swapping(&dst.join("sub"), "inner", "evil");
        let _one = Attacker::swapping(&dst, "sub", "evil");
        for_a_while(|round| {
            let extra = [&["--archive"][..], &["-r", "-j4"], &["-r", "--inplace"], &["-rp"]][round % 4];
            bcmr(["copy", "-T"]).args(extra).args([&src, &dst]).run().one_of(&[0, 1]);
            assert_untouched(&before, &out);
        });
    }
    let calm = tmp.p("calm");
    bcmr(["copy", "-rT"]).args([&src, &calm]).run().ok();
    assert_same(&src, &calm, CONTENT);
}

#[test]
fn a_copy_reads_nothing_outside_while_its_source_is_swapped_for_a_link() {
    let tmp = Tmp::new();
    let (src, out) = (fill(&tmp, "src"), outside(&tmp));
    let before = tree(&out);
    tmp.file("src/secret", "harmless");
    symlink(&out, src.join("evil")).unwrap();
    symlink(out.join("secret"), src.join("evil-leaf")).unwrap();
    mkfifo(&src.join("sub/evil-fifo"));
    {
        // A program that opened the FIFO as a file would hang.
        let _three = Attacker::swapping(&src.join("sub"), "0", "evil-fifo");
        let _two = Attacker::swapping(&src, "secret", "evil-leaf");
        let _one = Attacker::swapping(&src, "sub", "evil");
        for_a_while(|round| {
            let dst = tmp.p("dst");
            let extra = [&["--archive"][..], &["-r", "-j4"], &["-rH"], &["-rp", "--verify"]][round % 4];
            bcmr(["copy", "-T"]).args(extra).args([&src, &dst]).run().one_of(&[0, 1, 5]);
            assert_not_read(&dst);
            std::fs::remove_dir_all(&dst).unwrap();
        });
    }
    assert_untouched(&before, &out);
    // The twin: -L is a wish to read what links lead to.
    let calm = tmp.p("calm");
    // Whichever name the FIFO has by now.
    assert!(
        std::process::Command::new("find")
            .arg(&src)
            .args(["-type", "p", "-delete"])
            .status()
            .unwrap()
            .success()
    );
    bcmr(["copy", "-rLT"]).args([&src, &calm]).run().ok();
    assert!(
        tree(&calm).contains_key(&b"evil/inner/secret"[..])
            || tree(&calm).contains_key(&b"sub/inner/secret"[..])
    );
}

/// `-H` follows what was named and nothing inside: not even for a file that changed under it and is read again.
#[test]
fn a_second_reading_follows_no_link_put_there_meanwhile() {
    let tmp = Tmp::new();
    let out = outside(&tmp);
    let src = tmp.dir("src");
    let file = tmp.file("src/f", noise(1, 1 << 20));
    let before = tree(&out);
    let (beside, path) = (tmp.p("beside"), file.clone());
    symlink(out.join("secret"), &beside).unwrap();
    let grown = noise(1, 1 << 20);
    {
        let _attack = Attacker::new(move || {
            // Changed, and at once something else.
            let _is_link = std::fs::symlink_metadata(&path).map(|m| {
                if m.is_file() {
                    let _cut = std::fs::write(&path, &grown);
                }
            });
            let _missing = exchange(&path, &beside);
        });
        for_a_while(|_| {
            let dst = tmp.p("dst");
            bcmr(["copy", "-rHT"]).args([&src, &dst]).run().one_of(&[0, 1, 5]);
            assert_not_read(&dst);
            std::fs::remove_dir_all(&dst).unwrap();
        });
    }
    assert_untouched(&before, &out);
}

#[test]
fn a_removal_removes_nothing_outside_while_directories_are_swapped_for_links() {
    let tmp = Tmp::new();
    let out = outside(&tmp);
    let before = tree(&out);
    let victim = tmp.p("victim");
    for_a_while(|round| {
        fill(&tmp, "victim");
        symlink(&out, victim.join("evil")).unwrap();
        symlink(out.join("inner"), victim.join("sub/evil")).unwrap();
        {
            let _two = Attacker::swapping(&victim.join("sub"), "inner", "evil");
            let _one = Attacker::swapping(&victim, "sub", "evil");
            let extra = [&["-rf"][..], &["-r", "-j4"]][round % 2];
            bcmr(["remove"]).args(extra).args([&victim]).run().one_of(&[0, 1]);
        }
        assert_untouched(&before, &out);
        if victim.exists() {
            std::fs::remove_dir_all(&victim).unwrap();
        }
    });
    // The twin.
    fill(&tmp, "victim");
    symlink(&out, victim.join("link")).unwrap();
    bcmr(["remove", "-r"]).args([&victim]).run().ok();
    assert!(!victim.exists());
    assert_untouched(&before, &out);
}

#[test]
fn a_move_takes_nothing_from_outside_while_its_source_is_swapped_for_a_link() {
    let tmp = Tmp::new();
    let out = outside(&tmp);
    let before = tree(&out);
    let other = Tmp::elsewhere().unwrap_or_else(Tmp::new);
    let src = tmp.p("src");
    for_a_while(|round| {
        fill(&tmp, "src");
        symlink(&out, src.join("evil")).unwrap();
        symlink(out.join("inner"), src.join("sub/evil")).unwrap();
        let dst = if round % 2 == 0 { tmp.dir("dst") } else { other.p("dst") };
        {
            let _two = Attacker::swapping(&src.join("sub"), "inner", "evil");
            let _one = Attacker::swapping(&src, "sub", "evil");
            bcmr(["move", "--merge", "-T"]).args([&src, &dst]).run().one_of(&[0, 1, 5]);
        }
        assert_untouched(&before, &out);
        assert_not_read(&dst);
        for left in [&src, &dst].into_iter().filter(|p| p.exists()) {
            std::fs::remove_dir_all(left).unwrap();
        }
    });
    fill(&tmp, "src");
    bcmr(["move"]).args([&src, &other.p("calm")]).run().ok();
    assert!(!src.exists() && other.p("calm/sub/inner/3").exists());
}

#[test]
fn a_move_into_a_destination_swapped_for_a_link_puts_nothing_outside() {
    let tmp = Tmp::new();
    let out = outside(&tmp);
    let before = tree(&out);
    let dst = tmp.dir("dst");
    tmp.dir("dst/sub/inner");
    symlink(&out, dst.join("evil")).unwrap();
    let _one = Attacker::swapping(&dst, "sub", "evil");
    for_a_while(|round| {
        let src = fill(&tmp, &format!("src{round}"));
        bcmr(["move", "--merge", "-T"]).args([&src, &dst]).run().one_of(&[0, 1]);
        assert_untouched(&before, &out);
        if src.exists() {
            std::fs::remove_dir_all(&src).unwrap();
        }
    });
}

/// The kernel says that a name is not there which another program replaces just then (vfs_link in fs/namei.c).
#[test]
fn a_first_name_that_is_replaced_while_it_is_linked_to_is_linked_to_all_the_same() {
    if !has_tool("strace") {
        return skipped(
            "a_first_name_that_is_replaced_while_it_is_linked_to_is_linked_to_all_the_same",
            "no strace",
        );
    }
    let tmp = Tmp::new();
    tmp.file("src/first", noise(1, 3000));
    std::fs::hard_link(tmp.p("src/first"), tmp.p("src/second")).unwrap();
    // Once, and always: then it is an error.
    for (when, code) in [("1", 0), ("1+", 1)] {
        tmp.dir("dst");
        let inject = format!("inject=linkat:error=ENOENT:when={when}");
        let traced = ["-f", "-qq", "-o", "/dev/null", "-e", "trace=linkat", "-e", &inject, BCMR];
        let line = Line::new(Path::new("strace")).args(traced).args(["copy", "--archive", "-T"]);
        let ran = line.args([tmp.p("src"), tmp.p("dst")]).run().code(code);
        assert_eq!(ran.err.contains("cannot make hard link"), code == 1, "{}", ran.err);
        let same = differences(&tree(&tmp.p("src")), &tree(&tmp.p("dst")), EVERYTHING);
        assert_eq!(same.is_empty(), code == 0, "{same:?}");
        std::fs::remove_dir_all(tmp.p("dst")).unwrap();
    }
}
