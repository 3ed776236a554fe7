//! `dist` and `install`: the binary that is given to others. Knows nothing of what is in it.
//!
//! Linked statically, so that it runs wherever the kernel does (which is what puts it on another machine by ssh), and
//! optimised as a whole. Against `cargo build --release` that also takes a good millisecond off the start-up here: no
//! loader, a third of the relocations, half of the page faults.

use crate::sh::{self, Result};
use std::path::PathBuf;

/// Builds it and says where it is.
pub fn dist(_rest: &[&str]) -> Result {
    println!("{}", build()?.display());
    Ok(())
}

/// Builds it and puts it where `cargo install` puts programs.
pub fn install(_rest: &[&str]) -> Result {
    let built = build()?;
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let bin = home.ok_or("neither CARGO_HOME nor HOME is set")?.join("bin");
    std::fs::create_dir_all(&bin)?;
    // A new file under the old name: the old one may be running.
    let (staged, name) = (bin.join(".bcmr.new"), bin.join("bcmr"));
    std::fs::copy(&built, &staged)?;
    std::fs::rename(&staged, &name)?;
    println!("{}", name.display());
    Ok(())
}

/// `target/HOST/dist/bcmr`. The target is named so that its flags do not reach build scripts and procedural macros,
/// which cannot be static.
pub fn build() -> Result<PathBuf> {
    let said = sh::output("rustc", &["-vV"])?;
    let host = said.lines().find_map(|l| l.strip_prefix("host: ")).ok_or("rustc -vV names no host")?;
    let mut build = sh::cargo();
    build.args(["build", "--profile", "dist", "--locked", "--package", "bcmr", "--target", host]);
    sh::run(build.env("RUSTFLAGS", "-C target-feature=+crt-static"))?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| sh::root().join("target"), PathBuf::from);
    Ok(target.join(host).join("dist/bcmr"))
}
