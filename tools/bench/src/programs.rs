//! The programs under measurement: where they are, and which versions. Must not know what they are measured with.

use crate::options::Options;
use crate::rows::{CEILING, OURS, RELEASE};
use sh::{Result, text};
use std::path::{Path, PathBuf};

/// The release binary, built now unless one was given.
pub fn binary(options: &Options) -> Result<PathBuf> {
    if let Some(path) = &options.bcmr {
        return Ok(path.clone());
    }
    if !options.quick {
        return dist();
    }
    release()?;
    Ok(sh::release_dir().join("bcmr"))
}

/// Builds what [`RELEASE`] is.
pub fn release() -> Result {
    sh::run(sh::cargo().args(["build", "--release", "--locked", "-p", "bcmr"]))
}

/// The static binary that is given to users, built by `cargo xtask dist`.
fn dist() -> Result<PathBuf> {
    eprintln!("building the static binary");
    Ok(PathBuf::from(sh::output("cargo", &["xtask", "dist", "--binary"])?))
}

/// What is to be measured beside, and the versions that were current when that was last looked at.
const GUESTS: [(&str, &str); 4] = [("cpz", "3.2.1"), ("xcp", "0.24.9"), ("fcp", "0.2.2"), ("b3sum", "1.8.7")];

/// The `cp` of uutils is called `cp` too, so it lies in a folder of its own.
const UUTILS: &str = "uutils";
const UUTILS_VERSION: &str = "uu_cp@0.12.0";

pub fn guests() -> Result {
    let folder = sh::root().join("target/tools/uutils");
    sh::run(sh::cargo().args(["install", "--locked", "--root", text(&folder)?, UUTILS_VERSION]))?;
    for (name, version) in GUESTS {
        let root = sh::root().join("target/tools");
        let version = format!("{name}@{version}");
        sh::run(sh::cargo().args(["install", "--locked", "--root", text(&root)?, &version]))?;
    }
    Ok(())
}

/// Builds what no copier can be faster than: an example of fastcopy that does what cannot be left out and nothing else.
pub fn ceiling() -> Result {
    sh::run(sh::cargo().args(["build", "--release", "--locked", "-p", "fastcopy", "--example", "landing"]))
}

/// In PATH, or installed by `cargo install --root target/tools`; or what [`ceiling`] and [`release`] have built.
pub fn installed(program: &str) -> Option<PathBuf> {
    if program == RELEASE {
        return Some(sh::release_dir().join(OURS));
    }
    if program == CEILING {
        return Some(sh::release_dir().join("examples/landing"));
    }
    if program == UUTILS {
        return Some(sh::root().join("target/tools/uutils/bin/cp")).filter(|path| path.is_file());
    }
    let ours = sh::root().join("target/tools/bin").join(program);
    ours.is_file().then_some(ours).or_else(|| sh::which(program))
}

/// The first line of `--version`.
pub fn version(name: &str, bcmr: &Path) -> String {
    let program = if name == OURS { Some(bcmr.to_path_buf()) } else { installed(name) };
    let said =
        program.and_then(|p| sh::output(&p.to_string_lossy(), &["--version"]).ok()).unwrap_or_default();
    numbered(said.lines().next().unwrap_or_default())
}

/// The words of a line up to the first that has a number in it.
fn numbered(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let last =
        words.iter().position(|w| w.contains(|c: char| c.is_ascii_digit())).map_or(words.len(), |n| n + 1);
    words[..last].join(" ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_version_is_told_with_its_number() {
        for (said, told) in [
            ("rsync  version 3.4.1  protocol version 32", "rsync version 3.4.1"),
            ("cp (GNU coreutils) 9.7", "cp (GNU coreutils) 9.7"),
            ("xcp 0.24.9", "xcp 0.24.9"),
            ("a thing", "a thing"),
        ] {
            assert_eq!(super::numbered(said), told);
        }
    }
}
