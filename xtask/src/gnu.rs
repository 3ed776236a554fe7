//! `cargo xtask gnu`: the same command lines with Debian's cp, mv, rm and install and with ours, on twin trees.
//!
//! The judge is `xtask/gnu/twins.py`, in Python, so that nothing of ours can make it wrong in our favour; and `cargo xtask gnu
//! scripts TREE` runs GNU's own test scripts with both.

use sh::Result;
use std::process::Command;

/// Says that it could not run; it did not pass.
const NOT_RUN: i32 = 77;

/// With `scripts` in front: GNU's own scripts, from a built source tree of coreutils.
pub fn run(args: &[&str]) -> Result {
    let (judge, args) = match args {
        ["scripts", rest @ ..] => ("gnu/scripts.py", rest),
        _ => ("gnu/twins.py", args),
    };
    let asks = args.iter().any(|arg| matches!(*arg, "--help" | "-h"));
    let mut words: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    if !asks && !args.contains(&"--bcmr") {
        sh::run(sh::cargo().args(["build", "--release", "--locked", "-p", "bcmr"]))?;
        words.push(format!("--bcmr={}", sh::release_dir().join("bcmr").display()));
    }
    let judge = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(judge);
    match Command::new("python3").arg(judge).args(words).status()?.code() {
        Some(0) => Ok(()),
        Some(NOT_RUN) => Err("not run: see above".into()),
        Some(1) => Err("there are unlisted differences, see above".into()),
        code => Err(format!("the judge is broken: exit {code:?}").into()),
    }
}
