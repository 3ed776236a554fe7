//! `cargo xtask bench` and `cargo xtask experiment`: starts the program in `tools/bench`, which is built only then. Must not
//! know what is measured.

use sh::Result;
use std::process::Command;

/// The first word is `bench`, `experiment` or `made`; paths are relative to where the user stands.
pub fn run(words: &[&str]) -> Result {
    // Of the whole workspace, whose dependencies are there with its features: by itself it has others, built once more.
    let mut build = sh::cargo();
    build.arg("build").arg("--manifest-path").arg(sh::root().join("Cargo.toml"));
    sh::run(build.args(["--quiet", "--locked", "--workspace", "--bin", "bench"]))?;
    let mut bench = Command::new(sh::debug_dir().join("bench"));
    sh::run(bench.current_dir(std::env::current_dir()?).args(words))
}
