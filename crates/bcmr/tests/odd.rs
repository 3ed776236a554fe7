//! File systems unlike others: renames that leave nothing alone.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests look at the file system the ordinary way

mod common;
mod table;

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
