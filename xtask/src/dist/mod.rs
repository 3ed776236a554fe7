//! `dist` and `install`: what is given to others. Knows nothing of how copying works.
//!
//! The binary is linked statically, so that it runs wherever the kernel does (which is what puts it on another machine
//! by ssh), and optimised as a whole. Against `cargo build --release` that also takes a good millisecond off the start-up
//! here: no loader, a third of the relocations, half of the page faults.
//!
//! Two builds of one commit give the same bytes, wherever they are made: paths are mapped away, times are the commit's.

mod deb;
mod notices;
pub mod order;
mod release;
mod rpm;
mod tree;

use crate::typed;
use clap::Parser;
use release::{Arch, Release};
use sh::Result;
use std::path::{Path, PathBuf};
use tree::Tree;

/// Makes the packages of a release.
#[derive(Parser)]
#[command(name = "cargo xtask dist")]
struct Dist {
    /// Architectures; the one of this machine when none is named. Others are cross-built, which wants the target
    /// (`rustup target add aarch64-unknown-linux-gnu`) and a C compiler (Debian: gcc-aarch64-linux-gnu
    /// libc6-dev-arm64-cross).
    #[arg(long, value_enum, value_delimiter = ',')]
    arch: Vec<Arch>,
    /// Where the packages go.
    #[arg(long, default_value = "target/packages")]
    out: PathBuf,
    /// Only builds the binary of this machine and says where it is.
    #[arg(long)]
    binary: bool,
    /// Builds it once more from a copy of the sources in another directory, from nothing, and fails unless the bytes are the
    /// same; then the packages, if --binary is not given.
    #[arg(long)]
    twice: bool,
}

/// `cargo xtask dist`.
pub fn dist(rest: &[&str]) -> Result {
    let Some(options) = typed::parse::<Dist>(rest)? else { return Ok(()) };
    let here = Arch::here()?;
    let native = build_for(here)?;
    if options.twice {
        same_elsewhere(&native)?;
    }
    if options.binary {
        println!("{}", native.display());
        return Ok(());
    }
    let release = Release::read()?;
    let out = sh::root().join(&options.out);
    std::fs::create_dir_all(&out)?;
    let archs = if options.arch.is_empty() { vec![here] } else { options.arch };
    let mut made = Vec::new();
    for arch in archs {
        let binary = if arch == here { native.clone() } else { build_for(arch)? };
        let work = out.join("staged").join(arch.name());
        let tree = Tree::stage(&work, &binary, &native, &release, arch)?;
        made.push(tree.tarball(&out, &release, arch)?);
        made.push(deb::make(&tree, &out, &release, arch)?);
        if sh::which("rpmbuild").is_some() {
            made.push(rpm::make(&tree, &out, &release, arch)?);
        } else {
            eprintln!("xtask: NO .rpm WAS MADE: there is no rpmbuild (Debian: rpm)");
        }
        made.push(notices::sbom(&out, &release, arch)?);
    }
    std::fs::remove_dir_all(out.join("staged"))?;
    sums(&out, &made)?;
    for path in &made {
        println!("{}", path.display());
    }
    Ok(())
}

/// Builds the commit that is checked out in a directory of its own and compares.
fn same_elsewhere(native: &Path) -> Result {
    let elsewhere = tempfile::Builder::new().prefix("bcmr-twice-").tempdir()?;
    let tree = elsewhere.path().join("a-longer-name-so-that-no-path-has-the-same-length");
    let root = sh::root();
    if !sh::output("git", &["status", "--porcelain"])?.trim().is_empty() {
        return Err("there are changes that are not committed: two builds would not be of the same".into());
    }
    sh::quiet("git", &["clone", "--quiet", "--shared", &root.to_string_lossy(), &tree.to_string_lossy()])?;
    let target = elsewhere.path().join("built");
    let mut again = std::process::Command::new("cargo");
    again.args(["run", "--quiet", "--locked", "--package", "xtask", "--", "dist", "--binary"]);
    sh::run(again.current_dir(&tree).env("CARGO_TARGET_DIR", &target))?;
    let other = target.join(Arch::here()?.target()).join("dist/bcmr");
    let (one, two) = (std::fs::read(native)?, std::fs::read(&other)?);
    match one.iter().zip(&two).position(|(a, b)| a != b) {
        None if one.len() == two.len() => {
            println!("two builds in two directories: the same {} bytes", one.len());
            Ok(())
        }
        at => Err(format!(
            "two builds differ: {} and {} bytes, the first difference at {}",
            one.len(),
            two.len(),
            at.map_or_else(|| "the end".to_owned(), |at| at.to_string())
        )
        .into()),
    }
}

/// Puts the program and what belongs to it on this machine.
#[derive(Parser)]
#[command(name = "cargo xtask install")]
struct Install {
    /// Program, man pages and completions below DIR, as packages have them. Without it only the program, where
    /// `cargo install` puts programs.
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// What stands before the prefix while a package is being made.
    #[arg(long, value_name = "DIR", requires = "prefix")]
    destdir: Option<PathBuf>,
}

/// `cargo xtask install`.
pub fn install(rest: &[&str]) -> Result {
    let Some(options) = typed::parse::<Install>(rest)? else { return Ok(()) };
    let built = build()?;
    if let Some(prefix) = options.prefix {
        let release = Release::read()?;
        let work = sh::root().join("target/packages/staged/install");
        let tree = Tree::stage(&work, &built, &built, &release, Arch::here()?)?;
        let to = match options.destdir {
            Some(dest) => dest.join(prefix.strip_prefix("/").unwrap_or(&prefix)),
            None => prefix,
        };
        tree.install(&to)?;
        return Ok(std::fs::remove_dir_all(&work)?);
    }
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

/// `target/HOST/dist/bcmr`.
pub fn build() -> Result<PathBuf> {
    build_for(Arch::here()?)
}

fn build_for(arch: Arch) -> Result<PathBuf> {
    build_in(arch, &sh::target_dir(), &[])
}

/// Lists the functions of short runs, which `dist` and `install` put beside one another. Needs valgrind.
#[derive(Parser)]
#[command(name = "cargo xtask startup")]
struct Startup {}

/// `cargo xtask startup`.
pub fn startup(rest: &[&str]) -> Result {
    let Some(Startup {}) = typed::parse(rest)? else { return Ok(()) };
    order::record(&build_named()?)
}

/// The same for this machine, with the names of its functions, beside it.
fn build_named() -> Result<PathBuf> {
    build_in(Arch::here()?, &sh::target_dir().join("named"), &[("CARGO_PROFILE_DIST_STRIP", "none")])
}

/// The target is named so that its flags do not reach build scripts and procedural macros, which cannot be static.
fn build_in(arch: Arch, dir: &Path, more: &[(&str, &str)]) -> Result<PathBuf> {
    let target = arch.target();
    let root = sh::root();
    let cargo_home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
        .ok_or("neither CARGO_HOME nor HOME is set")?;
    let mut build = sh::cargo();
    build.args(["build", "--profile", "dist", "--locked", "--package", "bcmr", "--target", &target]);
    build.env("CARGO_TARGET_DIR", dir).envs(more.iter().copied());
    // What is built may lie outside the sources; of several prefixes that fit, the last counts.
    let (from, registry, built) = (root.display(), cargo_home.display(), dir.display());
    build.env(
        "RUSTFLAGS",
        format!(
            "-C target-feature=+crt-static --remap-path-prefix={from}=/bcmr \
             --remap-path-prefix={registry}=/cargo --remap-path-prefix={built}=/bcmr/target"
        ),
    );
    let map = format!(
        "-ffile-prefix-map={from}=/bcmr -ffile-prefix-map={registry}=/cargo \
         -ffile-prefix-map={built}=/bcmr/target"
    );
    build.env(format!("CFLAGS_{}", target.replace('-', "_")), map);
    let mut cc = "cc".to_owned();
    if arch != Arch::here()? {
        cc = format!("{}-linux-gnu-gcc", arch.name());
        if sh::which(&cc).is_none() {
            return Err(format!("there is no {cc}").into());
        }
        build.env(format!("CC_{}", target.replace('-', "_")), &cc);
    }
    order::link_by(&mut build, &target, &cc)?;
    // For `bcmr --version --verbose`; a tree without git has none.
    if let Ok(commit) = sh::output("git", &["rev-parse", "HEAD"]) {
        build.env("BCMR_COMMIT", commit.trim());
    }
    sh::run(&mut build)?;
    Ok(dir.join(target).join("dist/bcmr"))
}

/// SHA256SUMS over everything that was made.
fn sums(out: &Path, made: &[PathBuf]) -> Result {
    let mut names: Vec<String> =
        made.iter().filter_map(|p| Some(p.file_name()?.to_string_lossy().into_owned())).collect();
    names.sort();
    let done = std::process::Command::new("sha256sum").args(&names).current_dir(out).output()?;
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).into_owned().into());
    }
    Ok(std::fs::write(out.join("SHA256SUMS"), done.stdout)?)
}
