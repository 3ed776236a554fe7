//! Which functions of the binary lie beside one another: those that run when it starts, and in the first copies.
//!
//! A page of a program comes in when it is first used, with 15 around it. In the order of the compiler the functions of a short
//! run are all over nine megabytes. The list is made by [`record`] and holds names without the hash of their build, so that it
//! outlives changes; what it does not name stays where the linker has it.

use sh::{Result, text};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One function a line, as [`stem`] has it; those that are used first come first.
const LIST: &str = include_str!("startup.txt");

/// Where this program is started as a linker: the one that it puts before the system's arguments.
const LINKER: &str = "XTASK_LINKER";

/// Has what `build` builds for `target` linked by this program, and that by `cc`.
pub fn link_by(build: &mut Command, target: &str, cc: &str) -> Result {
    let name = format!("CARGO_TARGET_{}_LINKER", target.replace('-', "_").to_uppercase());
    build.env(name, std::env::current_exe()?).env(LINKER, cc);
    Ok(())
}

/// What to link with, where this program was started to link.
pub fn linker() -> Option<OsString> {
    std::env::var_os(LINKER)
}

/// Links. Only LLVM's linker can order functions; it is rustc's own on some machines and not on others.
pub fn link(cc: &OsString) -> Result {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let dir = tempfile::tempdir()?;
    let mut command = Command::new(cc);
    command.args(&args);
    let has = |option: &str| args.iter().any(|arg| arg == option);
    // What is not static here are build scripts and procedural macros.
    if has("-fuse-ld=lld") && has("-static-pie") {
        let file = dir.path().join("order");
        std::fs::write(&file, order(&symbols(&args)?).join("\n"))?;
        command
            .arg(format!("-Wl,--symbol-ordering-file={}", text(&file)?))
            .arg("-Wl,--no-warn-symbol-ordering");
    }
    sh::run(&mut command)
}

/// Functions that the objects among the arguments of a linker define.
fn symbols(args: &[OsString]) -> Result<Vec<String>> {
    let mut nm = vec!["--defined-only", "--format=posix"];
    for object in args.iter().map(Path::new).filter(|it| it.extension().is_some_and(|e| e == "o")) {
        nm.push(text(object)?);
    }
    let all = sh::output("nm", &nm)?;
    let function = |line: &str| {
        let (name, rest) = line.split_once(' ')?;
        rest.starts_with(['t', 'T', 'W', 'w']).then(|| name.to_owned())
    };
    Ok(all.lines().filter_map(function).collect())
}

/// All that the list names: each version of a generic function, and what comes from libraries of C under its own name.
fn order(symbols: &[String]) -> Vec<&str> {
    let mut versions: HashMap<String, Vec<&str>> = HashMap::new();
    for symbol in symbols {
        versions.entry(stem(symbol)).or_default().push(symbol);
    }
    LIST.lines().flat_map(|name| versions.remove(name).unwrap_or_else(|| vec![name])).collect()
}

/// Rust's name of a function without the hashes of its build, in both of its ways to write names: `_ZN4core3fmt17h0123456789abcdefE`
/// is `_ZN4core3fmt`, and `_RNvNtCsgEmfK2I1SDS_4core3fmt` is `_RNvNtC4core3fmt`.
fn stem(symbol: &str) -> String {
    if symbol.starts_with("_R") {
        let mut parts = symbol.split("Cs");
        let first = parts.next().unwrap_or_default().to_owned();
        return parts.fold(first, |stem, part| match part.split_once('_') {
            Some((hash, name)) if hash.bytes().all(|b| b.is_ascii_alphanumeric()) => format!("{stem}C{name}"),
            _ => format!("{stem}Cs{part}"),
        });
    }
    let hash = symbol.len().checked_sub(20).filter(|_| symbol.starts_with("_ZN") && symbol.ends_with('E'));
    match hash.and_then(|at| symbol.split_at_checked(at)) {
        Some((stem, hash)) if hash.starts_with("17h") => stem.to_owned(),
        _ => symbol.to_owned(),
    }
}

/// What is run to see which functions it takes, each line in a directory that is first empty; `{}` is the program.
const RUNS: &[&str] = &[
    ": > a; {} copy a b",
    "{} copy a c -V",
    "mkdir -p t/x; echo 1 > t/x/f; echo 2 > t/g; ln -s g t/l; head -c 200000 /dev/zero > t/z; {} copy -r t u",
    "{} cp -r t v",
    "{} copy -r t/. u",
    "{} copy --archive -T t w",
    "{} copy -C t/z y",
    "{} copy -r t h:there --ssh ./ssh",
    "{} copy -r h:there back --ssh ./ssh",
    "{} sync t u",
    "{} check -T t u",
    "{} move v moved",
    "{} remove -r moved u",
];

/// Makes the list anew, with valgrind, of a build that has its names.
pub fn record(built: &Path) -> Result {
    let dir = tempfile::Builder::new().prefix("bcmr-startup-").tempdir()?;
    let (work, seen) = (dir.path().join("work"), dir.path().join("seen"));
    std::fs::create_dir(&work)?;
    std::fs::write(work.join("ssh"), format!("#!/bin/sh\nexec {} serve\n", text(built)?))?;
    sh::quiet("chmod", &["+x", text(&work.join("ssh"))?])?;
    let mut names: Vec<String> = Vec::new();
    let mut there = HashSet::new();
    for run in RUNS {
        std::fs::create_dir(&seen)?;
        let program = format!(
            "valgrind --quiet --tool=callgrind --trace-children=yes --demangle=no --callgrind-out-file={}/%p {}",
            text(&seen)?,
            text(built)?
        );
        sh::run(Command::new("sh").args(["-ec", &run.replace("{}", &program)]).current_dir(&work))?;
        for file in files(&seen)? {
            for name in functions(&std::fs::read_to_string(file)?) {
                if there.insert(name.clone()) {
                    names.push(name);
                }
            }
        }
        std::fs::remove_dir_all(&seen)?;
    }
    let list = sh::root().join("xtask/src/dist/startup.txt");
    names.push(String::new());
    std::fs::write(&list, names.join("\n"))?;
    println!("{} functions, {}", there.len(), list.display());
    Ok(())
}

/// What one run left, a file for each process, in a fixed order.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = std::fs::read_dir(dir)?.map(|it| Ok(it?.path())).collect::<std::io::Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

/// Functions in what callgrind wrote: `fn=(3) NAME` where a function is named first, and `fn=(3)` after that.
fn functions(profile: &str) -> Vec<String> {
    let called =
        profile.lines().filter_map(|line| line.strip_prefix("cfn=").or_else(|| line.strip_prefix("fn=")));
    let name = |it: &str| Some(it.split_once(") ")?.1.split('\'').next()?.to_owned());
    called.filter_map(name).filter(|it| !it.starts_with("0x")).map(|it| stem(&it)).collect()
}

#[cfg(test)]
mod tests {
    use super::{functions, order, stem};

    #[test]
    fn a_name_has_no_hash() {
        let table = [
            ("_ZN4core3fmt17h0123456789abcdefE", "_ZN4core3fmt"),
            ("_ZN4core3fmt5write17habcdef0123456789E", "_ZN4core3fmt5write"),
            ("_ZN3std9something_longE", "_ZN3std9something_longE"),
            ("malloc", "malloc"),
            ("_RNvNtCsgEmfK2I1SDS_4core3fmt", "_RNvNtC4core3fmt"),
            ("_RNvMCsjrHSEGnQ3l9_3stdCslNYArtu3iFV_5alloc", "_RNvMC3stdC5alloc"),
            ("_ZNE", "_ZNE"),
        ];
        for (symbol, want) in table {
            assert_eq!(stem(symbol), want);
        }
    }

    #[test]
    fn functions_are_named_once_in_a_profile() {
        let profile =
            "fl=(1) a.rs\nfn=(1) _ZN1a17h0123456789abcdefE\n3 4\ncfn=(2) b'2\nfn=(1)\ncfn=(3) 0x0000c5\n";
        assert_eq!(functions(profile), ["_ZN1a", "b"]);
    }

    #[test]
    fn each_version_of_a_function_is_in_the_order() {
        let first = super::LIST.lines().find(|name| name.starts_with("_ZN")).unwrap();
        let versions = [format!("{first}17h0123456789abcdefE"), format!("{first}17h1123456789abcdefE")];
        let ordered = order(&versions);
        assert!(versions.iter().all(|it| ordered.contains(&it.as_str())) && !ordered.contains(&first));
    }
}
