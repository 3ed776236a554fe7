//! `cargo xtask man DIR`: man pages, written by the binary itself from its argument definitions.

use sh::Result;

/// Runs the binary's own generator.
pub fn run(args: &[&str]) -> Result {
    let [dir] = args else { return Err("usage: cargo xtask man DIR".into()) };
    std::fs::create_dir_all(dir)?;
    let dir = std::fs::canonicalize(dir)?;
    sh::run(sh::cargo().args(["run", "--quiet", "-p", "bcmr", "--", "man"]).arg(dir))
}
