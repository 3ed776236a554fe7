//! File systems unlike others: names of which two are one, and renames that leave nothing alone. No source is lost
//! there, and none is said to have arrived that another has replaced.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests look at the file system the ordinary way

mod common;
mod table;

use common::remote::*;
use common::{has_tool, is_root};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use table::{at, bcmr, look, plant, scratch};

/// One of them, in memory, for as long as this lives.
struct Odd {
    at: PathBuf,
    server: Child,
}

impl Odd {
    /// Mounts; `None`, said aloud, where that cannot be done.
    fn new(test: &str, at: PathBuf, nature: &str) -> Option<Odd> {
        if !is_root() || !has_tool("python3") || !Path::new("/dev/fuse").exists() {
            common::skipped(test, "it needs root, python3 and /dev/fuse");
            return None;
        }
        fs::create_dir_all(&at).unwrap();
        let mut server = Command::new(format!("{}/tests/common/odd-fs", env!("CARGO_MANIFEST_DIR")))
            .arg(&at)
            .args(nature.split_whitespace())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        let odd = Odd { at, server };
        if said != "ready\n" {
            common::skipped(test, "FUSE cannot be mounted here");
            return None;
        }
        Some(odd)
    }
}

impl Drop for Odd {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg("-l").arg(&self.at).stderr(Stdio::null()).status();
        let _gone = self.server.kill();
        let _gone = self.server.wait();
    }
}

/// All files below `root`: their contents, sorted, and no stage among their names.
fn contents(root: &Path) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for name in look(root).into_keys() {
        let name = String::from_utf8(name).unwrap();
        assert!(!name.contains(".stage") && !name.contains(".part"), "litter: {name}");
        let path = root.join(&name);
        // The mark of a tree that is not complete is no copy of anything.
        if fs::symlink_metadata(&path).unwrap().is_file() && !name.ends_with(".session") {
            all.push(fs::read(path).unwrap());
        }
    }
    all.sort();
    all
}

const SMALL: &str = "f s/Makefile UPPER\nf s/makefile lower\nf s/other other";
const LARGE: &str = "z s/Makefile 5000000\nz s/makefile 5000001\nf s/other other";
const MIXED: &str = "z s/Makefile 5000000\nf s/makefile lower\nf s/other other";
const DIRS: &str = "f s/D/x X\nf s/d/x x\nz s/D/big 5000000\nf s/other other";
const LINKS: &str = "l s/L -> here\nf s/l lower\nf s/other other";

/// Two sources, one name: the first stays, and the second is refused.
#[test]
fn two_names_that_are_one() {
    let top = scratch();
    let Some(odd) = Odd::new("two_names_that_are_one", at(&top, "m"), "folds") else { return };
    let mut rows = Vec::new();
    for tree in [SMALL, LARGE, MIXED, DIRS, LINKS] {
        for line in [
            "copy -r -j4 s m/new",
            "copy -r -j1 s m/new",
            "copy -r -T s m/here",
            "copy -r s/. m/here",
            "copy -r -C s m/new",
            "copy -r -C --checkpoint-size=4M s/. m/here",
            "copy -r --inplace s/. m/here",
            "copy -r -a s/. m/here",
            "copy -r -u s/. m/here",
            "copy -r --update=different s/. m/here",
            "move s m/new",
            "move --merge -T s m/here",
            "move -j1 s m/new",
        ] {
            rows.push((tree, line));
        }
    }
    for line in ["copy s/Makefile s/makefile s/other m/here", "move s/Makefile s/makefile s/other m/here"] {
        rows.extend([SMALL, LARGE, MIXED].map(|tree| (tree, line)));
    }
    rows.push((DIRS, "move s/D s/d s/other m/here"));
    rows.push((DIRS, "move --merge s/D s/d s/other m/here"));
    for (n, (tree, line)) in rows.into_iter().enumerate() {
        for was_there in [false, true] {
            let here = scratch();
            plant(here.path(), tree);
            let dst = odd.at.join(format!("{n}-{was_there}"));
            fs::create_dir_all(dst.join("here")).unwrap();
            if was_there && tree != DIRS {
                fs::write(dst.join(if tree == LINKS { "here/l" } else { "here/makefile" }), "old").unwrap();
            }
            let before = contents(&at(&here, "s"));
            let args = line.replace("m/", &format!("{}/", dst.display()));
            let done = bcmr(&args, here.path());
            let about = format!("{line}, was there {was_there}: {}", done.stderr);
            let is_move = line.starts_with("move");
            let sources = if at(&here, "s").exists() { contents(&at(&here, "s")) } else { Vec::new() };
            let arrived = contents(&dst);
            if line.contains(" -u ") && was_there {
                // What is there is as new, and stays.
                assert!(sources == before, "{about}");
                continue;
            }
            // Appended to, what was there before is another file.
            assert!(matches!(done.code, Some(1 | 8)), "{about}: exit {:?}", done.code);
            for content in &before {
                let there = arrived.contains(content) || sources.contains(content);
                assert!(there, "{about}: {} bytes are gone", content.len());
            }
            assert!(is_move || sources == before, "{about}");
            assert!(arrived.contains(&b"other".to_vec()), "{about}");
        }
    }
}

/// By renames, on that file system itself: the only copy of a file is not replaced by another that came with it.
#[test]
fn renames_to_two_names_that_are_one() {
    let top = scratch();
    let Some(odd) = Odd::new("renames_to_two_names_that_are_one", at(&top, "m"), "folds") else { return };
    const TREE: &str = "f a/Makefile UPPER\nf b/makefile lower\nf a/d/x ax\nf b/D/X bx\nf c/d/x cx\nf c/Makefile C\nd t/d\nd e\nd g\nd u\nd v";
    plant(&odd.at, TREE);
    let before = contents(&odd.at);
    for (line, code) in [
        ("move a/Makefile b/makefile t", 8),
        ("move a/d b/D e", 8),
        ("move --merge c/d b/D g", 8),
        // One of them is on another file system: it is copied to where the other was renamed.
        ("move c/Makefile far/makefile u", 8),
        ("move far/makefile t/Makefile v", 8),
    ] {
        fs::create_dir_all(at(&top, "far")).unwrap();
        fs::write(at(&top, "far/makefile"), "far").unwrap();
        let line = line.replace("far/", &format!("{}/", at(&top, "far").display()));
        let done = bcmr(&line, &odd.at).exits(code);
        let now = contents(&odd.at);
        for content in &before {
            assert!(
                now.contains(content),
                "{line}: {:?} is gone: {}",
                String::from_utf8_lossy(content),
                done.stderr
            );
        }
        let far = fs::read(at(&top, "far/makefile")).ok();
        assert!(far.is_some() || now.contains(&b"far".to_vec()), "{line}: {}", done.stderr);
    }
}

/// The same with a destination behind a wire.
#[test]
fn two_names_that_are_one_on_another_machine() {
    let top = scratch();
    let name = "two_names_that_are_one_on_another_machine";
    let Some(odd) = Odd::new(name, at(&top, "m"), "folds") else { return };
    let far = Far::pipe();
    for (n, tree) in [SMALL, LARGE, MIXED, DIRS, LINKS].into_iter().enumerate() {
        for flags in ["-r", "-r -T", "-r -C"] {
            let here = scratch();
            plant(here.path(), tree);
            let dst = odd.at.join(format!("{n}{}", flags.replace(' ', "")));
            fs::create_dir(&dst).unwrap();
            Dir::Put.copy(&far, flags, &at(&here, "s"), &dst).run().one_of(&[1, 8]);
            let (before, arrived) = (contents(&at(&here, "s")), contents(&dst));
            assert!(arrived.iter().all(|c| before.contains(c)), "{flags}: torn");
            assert!(arrived.contains(&b"other".to_vec()), "{flags}");
        }
    }
}

/// The twins: one name that is spelled once, a second run over the first, and a list that says a name twice.
#[test]
fn one_name_is_one_name() {
    let top = scratch();
    let Some(odd) = Odd::new("one_name_is_one_name", at(&top, "m"), "folds") else { return };
    let here = scratch();
    plant(here.path(), "f s/Makefile UPPER\nf s/d/x x\nz s/d/big 5000000\nl s/l -> d\nf list s/Makefile");
    let want = look(&at(&here, "s"));
    let m = odd.at.display();
    for line in [
        "copy -r s m/new",
        "copy -r -T s m/new",
        "copy -r -T --inplace s m/new",
        "copy -r -C -T s m/new",
        "copy --archive -T s m/new",
        "move --merge -T s m/new",
    ] {
        bcmr(&line.replace("m/", &format!("{m}/")), here.path()).exits(0);
        table::assert_same(&want, &look(&odd.at.join("new")), line);
    }
    plant(here.path(), "f s/Makefile UPPER\nf s/d/x x");
    fs::write(at(&here, "list"), "Makefile\nd/x\nMakefile\nd\n").unwrap();
    bcmr(&format!("copy -r --files-from list s {m}/listed"), here.path()).exits(0);
    assert_eq!(contents(&odd.at.join("listed")).len(), 2);
}

/// Where no rename leaves alone what is there, directories get their names all the same, and nothing is replaced that
/// should not be.
#[test]
fn plain_renames_do() {
    let top = scratch();
    for (n, nature) in ["only-plain-renames", "only-plain-renames no-links"].into_iter().enumerate() {
        let Some(odd) = Odd::new("plain_renames_do", at(&top, &format!("m{n}")), nature) else { return };
        let m = odd.at.display();
        let here = scratch();
        plant(here.path(), "f s/a A\nf s/d/x x\nz s/d/big 5000000\nf s/d/e/f f\nl s/l -> d");
        let want = look(&at(&here, "s"));
        for line in [
            "copy -r s m/one",
            "copy -r -T s m/one",
            "copy -r -C s m/two",
            "copy -r --no-clobber s m/three",
            "move s m/four",
        ] {
            let to = line.rsplit('/').next().unwrap();
            bcmr(&line.replace("m/", &format!("{m}/")), here.path()).exits(0);
            table::assert_same(&want, &look(&odd.at.join(to)), &format!("{nature}: {line}"));
        }
        // The twin: what has the name stays.
        let names = "f theirs/x theirs\nf ours/x ours";
        plant(&odd.at, names);
        bcmr("copy -r --no-clobber -T ours theirs", &odd.at).exits(0);
        assert_eq!(fs::read(odd.at.join("theirs/x")).unwrap(), b"theirs");
    }
}
