//! `cargo xtask wheel`: Python's bcmr as a wheel, and its tests in a virtual environment that has nothing else.
//!
//! Must not touch the Python that is installed: everything it needs goes into environments below `target/wheels`.

use crate::typed;
use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds target/wheels/bcmr-*.whl with maturin, and runs its pytest where only the wheel is installed. Needs python3 with
/// venv, and the package index for maturin, pytest and distributed.
#[derive(Parser)]
#[command(name = "cargo xtask wheel")]
struct Wheel {
    /// Only builds it.
    #[arg(long)]
    no_test: bool,
}

/// What builds wheels, in the environment that builds.
const BUILDER: &str = "maturin==1.16.0";
/// What runs tests, in the environment that has the wheel; and what the document has run shards with.
const TESTERS: [&str; 2] = ["pytest==9.2.0", "distributed==2026.8.0"];

/// Runs it.
pub fn run(args: &[&str]) -> sh::Result {
    let Some(Wheel { no_test }) = typed::parse(args)? else { return Ok(()) };
    let krate = sh::root().join("crates/bcmr-py");
    let wheels = sh::root().join("target/wheels");
    std::fs::create_dir_all(&wheels)?;
    let builder = environment(&wheels.join("build"), &[BUILDER])?;
    for old in built(&wheels)? {
        std::fs::remove_file(old)?;
    }
    let mut build = Command::new(builder.join("maturin"));
    build.args(["build", "--release", "--locked", "--target-dir"]).arg(sh::root().join("target/py"));
    build.arg("--out").arg(&wheels).current_dir(&krate);
    sh::run(&mut build)?;
    let built = built(&wheels)?;
    let [wheel] = built.as_slice() else { return Err("maturin built no wheel".into()) };
    println!("{}", wheel.display());
    if no_test {
        return Ok(());
    }
    let clean = wheels.join("clean");
    if clean.exists() {
        std::fs::remove_dir_all(&clean)?;
    }
    let [pytest, dask] = TESTERS;
    let tester = environment(&clean, &[sh::text(wheel)?, pytest, dask])?;
    let mut test = Command::new(tester.join("python"));
    // Away from the sources, which must not be what is imported.
    test.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(krate.join("tests")).current_dir(&wheels);
    sh::run(&mut test)
}

/// A virtual environment with these packages; returns where its programs are.
fn environment(at: &Path, packages: &[&str]) -> sh::Result<PathBuf> {
    if !at.join("bin/pip").exists() {
        sh::run(Command::new("python3").args(["-m", "venv"]).arg(at))?;
    }
    sh::run(
        Command::new(at.join("bin/pip"))
            .args(["install", "--quiet", "--disable-pip-version-check"])
            .args(packages),
    )?;
    Ok(at.join("bin"))
}

fn built(wheels: &Path) -> sh::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(wheels)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "whl") {
            found.push(path);
        }
    }
    Ok(found)
}
