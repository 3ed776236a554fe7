//! The walls between crates and modules. What each crate may know stands in the tables on top.

use super::finding::{File, Finding};
use super::source::{self, PathUse, Source};

/// Arrows only downward: which of our own crates each may depend on.
const ARROWS: [(&str, &[&str]); 10] = [
    ("fastcopy", &[]),
    ("bcmr-wire", &[]),
    ("bcmr-engine", &["fastcopy", "bcmr-wire"]),
    ("bcmr", &["bcmr-engine"]),
    // Another face of the engine, in a workspace of its own: the ordinary build needs no Python.
    ("bcmr-py", &["bcmr-engine"]),
    // The engine for the ranks of an MPI job, a program of its own in a workspace of its own.
    ("bcmr-mpi", &["bcmr-engine", "bcmr-mpi"]),
    ("sh", &[]),
    // For tests, of every crate.
    ("skips", &[]),
    ("xtask", &["sh", "skips"]),
    // Experiments measure the library itself.
    ("bench", &["sh", "fastcopy"]),
];

/// Crates from outside that one of ours must not know, and what it uses instead.
const STRANGERS: [(&str, &[&str], &str); 3] = [
    (
        "bcmr-wire",
        &["rustix", "libc", "nix", "io-uring", "clap"],
        "the wire is bytes in and bytes out; ask the caller",
    ),
    ("bcmr-engine", &["rustix", "libc", "nix", "io-uring"], "ask the kernel through fastcopy"),
    (
        "bcmr-engine",
        &["clap", "indicatif", "signal-hook"],
        "options arrive as policy, progress leaves as events",
    ),
];

/// Methods that make a name appear.
const CREATORS: [&str; 9] = [
    "create_file",
    "make_dir",
    "make_link",
    "make_special",
    "hard_link",
    "rename",
    "rename_new",
    "exchange",
    "link_unnamed",
];
/// The same, as the standard library spells it.
const STD_CREATORS: [&str; 9] = [
    "fs::write",
    "fs::rename",
    "fs::hard_link",
    "fs::create_dir",
    "fs::create_dir_all",
    "File::create",
    "File::create_new",
    "File::options",
    "OpenOptions::new",
];
/// Where names may be made, below `crates/bcmr-engine/src/`.
// Directories are made and published by `receiver/dest`, stages that outlive a crash are made by `receiver/resumable`,
// everything else by `receiver/land`. The store keeps three files of its own, none of which a person named.
// `receiver/single` lands one thing after the other, for the programs that are seen to work in order (decision 0012).
const CREATING_PLACES: [&str; 6] =
    ["receiver/land", "receiver/dest", "receiver/resumable", "receiver/single", "disk/", "store/shelf"];
/// A same-filesystem move is one rename, and no landing: this file may say `disk.rename...`.
const MOVING_PLACE: &str = "verbs/move_";

/// Every wall of this file.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in files {
        if file.path.ends_with("Cargo.toml") {
            arrows(file, &mut found);
        }
        quiet_skips(file, &mut found);
        let Some(place) = Module::of(&file.path) else { continue };
        if !file.text.trim_start().starts_with("//!") {
            found.push(Finding::new(
                &file.path,
                1,
                "module-head",
                "begin with `//!`: the module's job, and what it must not know",
            ));
        }
        let source = file.source();
        let look = Look { file, place, source, paths: source.paths() };
        look.kernel(&mut found);
        look.outside_world(&mut found);
        look.halves(&mut found);
        look.creators(&mut found);
    }
    found
}

/// A test that cannot run is not quietly green: what `eprintln!` says in a test that passes is never shown.
fn quiet_skips(file: &File, found: &mut Vec<Finding>) {
    if !file.path.ends_with(".rs") {
        return;
    }
    for (n, line) in file.text.lines().enumerate() {
        if line.contains(concat!("eprint", "ln!(\"SKIPPED")) {
            found.push(Finding::new(&file.path, n + 1, "quiet-skip", "say it by `skips::here`"));
        }
    }
}

/// A module of one of our crates.
#[derive(Clone, Copy)]
struct Module<'a> {
    krate: &'a str,
    /// Below `src/`.
    module: &'a str,
}

impl<'a> Module<'a> {
    fn of(path: &'a str) -> Option<Module<'a>> {
        let path = path.strip_suffix(".rs").map(|_| path)?;
        if let Some(module) = path.strip_prefix("xtask/src/") {
            return Some(Module { krate: "xtask", module });
        }
        let (krate, rest) = below_crates(path)?.split_once('/')?;
        rest.strip_prefix("src/").map(|module| Module { krate, module })
    }
}

/// Crates of the program, and of the tools beside `xtask`.
fn below_crates(path: &str) -> Option<&str> {
    path.strip_prefix("crates/").or_else(|| path.strip_prefix("tools/"))
}

struct Look<'a> {
    file: &'a File,
    place: Module<'a>,
    source: &'a Source,
    paths: Vec<PathUse>,
}

impl Look<'_> {
    fn say(&self, found: &mut Vec<Finding>, line: usize, wall: &'static str, text: impl Into<String>) {
        found.push(Finding::new(&self.file.path, line + 1, wall, text));
    }

    /// `unsafe`, `cfg(target_os)` and libc stay in fastcopy, each `unsafe` with its reason.
    fn kernel(&self, found: &mut Vec<Finding>) {
        for (n, code) in self.source.live() {
            let is_unsafe = source::has_word(code, "unsafe");
            if self.place.krate == "fastcopy" {
                if is_unsafe && !self.has_reason(n) {
                    self.say(found, n, "safety", "say `// SAFETY: ...` above, why this holds");
                }
                continue;
            }
            if is_unsafe {
                self.say(found, n, "unsafe", "move it into fastcopy, behind a safe function");
            }
            if source::has_word(code, "target_os") {
                self.say(found, n, "target-os", "let fastcopy tell systems apart, and return what it found");
            }
        }
        if self.place.krate != "fastcopy" {
            for path in self.paths.iter().filter(|p| p.parts[0] == "libc") {
                self.say(found, path.line, "libc", "call fastcopy, or take constants from fastcopy::errno");
            }
        }
    }

    /// A SAFETY comment (or `# Safety` for a declaration) on the line or in the comments and attributes above it.
    fn has_reason(&self, line: usize) -> bool {
        let given = |n: usize| {
            self.source.comment[n].contains("SAFETY:") || self.source.comment[n].contains("# Safety")
        };
        // The statement that holds the `unsafe` may have begun some lines before it.
        let mut statement_lines = 3;
        for n in (0..=line).rev() {
            if given(n) {
                return true;
            }
            let code = self.source.code[n].trim();
            if code.is_empty() && self.source.comment[n].is_empty() {
                return false;
            }
            if n < line && !code.is_empty() && !code.starts_with("#[") {
                statement_lines -= 1;
                if statement_lines == 0 || code.ends_with([';', '{', '}']) {
                    return false;
                }
            }
        }
        false
    }

    /// Arguments, environment, terminal and exit codes stay in programs.
    fn outside_world(&self, found: &mut Vec<Finding>) {
        if matches!(self.place.krate, "bcmr" | "bcmr-mpi" | "xtask" | "bench" | "sh" | "skips") {
            return;
        }
        for (n, code) in self.source.live() {
            for name in ["println", "eprintln", "print", "eprint", "dbg"] {
                if source::has_macro(code, name) {
                    self.say(
                        found,
                        n,
                        "printing",
                        "send an event; crates/bcmr has the words and the terminal",
                    );
                }
            }
        }
        for path in &self.paths {
            let is = |a: &str, b: &str| path.parts.windows(2).any(|w| w[0] == a && w[1] == b);
            if is("std", "env") || path.parts[0] == "env" {
                self.say(
                    found,
                    path.line,
                    "environment",
                    "take it as an option; only crates/bcmr reads the environment",
                );
            }
            if is("process", "exit") || is("process", "abort") {
                self.say(found, path.line, "exit", "return an error; crates/bcmr turns it into an exit code");
            }
            if is("io", "stdout") || is("io", "stderr") || is("io", "stdin") {
                self.say(
                    found,
                    path.line,
                    "printing",
                    "take a reader or send an event; crates/bcmr owns the terminal",
                );
            }
        }
    }

    /// Sender and receiver apart; the transport for `peer` alone.
    fn halves(&self, found: &mut Vec<Finding>) {
        if self.place.krate != "bcmr-engine" {
            return;
        }
        let module = self.place.module;
        let within = |name: &str| module == format!("{name}.rs") || module.starts_with(&format!("{name}/"));
        for path in &self.paths {
            let ours = matches!(path.parts[0].as_str(), "crate" | "super" | "self" | "bcmr_engine");
            let names = |name: &str| ours && path.parts.iter().skip(1).any(|p| p == name);
            if within("sender") && names("receiver") {
                self.say(
                    found,
                    path.line,
                    "halves",
                    "the sender never knows a destination; let a verb carry it across",
                );
            }
            if within("receiver") && names("sender") {
                self.say(
                    found,
                    path.line,
                    "halves",
                    "the receiver sees entries and content; let a verb bring them",
                );
            }
            if names("transport") && !within("peer") && !within("transport") && module != "lib.rs" {
                self.say(
                    found,
                    path.line,
                    "transport",
                    "only `peer` knows the transport; take a Read and a Write",
                );
            }
        }
    }

    /// Only landing makes a name appear.
    fn creators(&self, found: &mut Vec<Finding>) {
        let module = self.place.module;
        if self.place.krate != "bcmr-engine" || CREATING_PLACES.iter().any(|p| module.starts_with(p)) {
            return;
        }
        for (n, code) in self.source.live() {
            for name in CREATORS.iter().filter(|name| source::has_method(code, name)) {
                let dense: String = code.split_whitespace().collect();
                if module.starts_with(MOVING_PLACE) && dense.contains(&format!("disk.{name}(")) {
                    continue;
                }
                self.say(
                    found,
                    n,
                    "landing",
                    format!("`{name}` makes a name: let receiver/land do it, through the disk"),
                );
            }
        }
        for path in &self.paths {
            let tail = path.parts[path.parts.len().saturating_sub(2)..].join("::");
            if STD_CREATORS.contains(&tail.as_str()) {
                self.say(
                    found,
                    path.line,
                    "landing",
                    format!("`{tail}` makes a name: let receiver/land do it"),
                );
            }
        }
    }
}

/// Dependencies of one manifest.
fn arrows(file: &File, found: &mut Vec<Finding>) {
    let krate = match file.path.strip_suffix("/Cargo.toml") {
        Some("xtask") => "xtask",
        Some(dir) => below_crates(dir).unwrap_or(dir),
        None => return,
    };
    let Some((_, below)) = ARROWS.iter().find(|(name, _)| *name == krate) else {
        if below_crates(&file.path).is_some() {
            found.push(Finding::new(
                &file.path,
                0,
                "arrows",
                "a new crate: give it a line in tidy's table, and say why",
            ));
        }
        return;
    };
    // A workspace of its own names its dependencies itself.
    let is_apart = file.text.lines().any(|line| line.trim() == "[workspace]");
    let mut section = "";
    for (n, line) in file.text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            section = line;
            continue;
        }
        if !section.contains("dependencies") || line.starts_with('#') {
            continue;
        }
        let Some(name) = line.split(['.', '=', ' ']).next().filter(|n| !n.is_empty()) else { continue };
        let ours = ARROWS.iter().any(|(other, _)| *other == name);
        let mut say =
            |text: &str| found.push(Finding::new(&file.path, n + 1, "arrows", format!("`{name}`: {text}")));
        // Tests may know what is below: who plays a hostile peer must speak its language.
        if ours && !below.contains(&name) && !section.contains("dev-dependencies") {
            say(
                "arrows only downward: bcmr -> bcmr-engine -> fastcopy, bcmr-wire; move the shared part down",
            );
        }
        for (who, strangers, instead) in STRANGERS {
            if who == krate && strangers.contains(&name) && !section.contains("dev-dependencies") {
                say(instead);
            }
        }
        let dense: String = line.split_whitespace().collect();
        if !is_apart && !dense.contains("workspace=true") {
            say(
                "name it in the root Cargo.toml under [workspace.dependencies], with its reason, and say `.workspace = true`",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::planted;
    use super::check;

    /// What one planted file is found to break; `//!` is put in front.
    fn one(path: &str, text: &str) -> Vec<String> {
        let text = format!("//! Head.\n{text}\n");
        planted(check, &[(path, &text)]).into_iter().map(|f| f.replace(path, "")).collect()
    }
    const SENDER: &str = "crates/bcmr-engine/src/sender/walk.rs";
    const RECEIVER: &str = "crates/bcmr-engine/src/receiver/plan.rs";
    const FAST: &str = "crates/fastcopy/src/copy.rs";

    #[test]
    fn arrows_point_down() {
        let up = "[dependencies]\nbcmr-engine.workspace = true\n";
        assert_eq!(
            planted(check, &[("crates/fastcopy/Cargo.toml", up)]),
            ["crates/fastcopy/Cargo.toml:2 arrows"]
        );
        assert_eq!(
            planted(check, &[("crates/bcmr-wire/Cargo.toml", "[dependencies]\nfastcopy.workspace = true\n")])
                .len(),
            1
        );
        assert_eq!(planted(check, &[("crates/bcmr/Cargo.toml", up)]), [""; 0]);
        assert_eq!(
            planted(check, &[("crates/bcmr/Cargo.toml", "[dependencies]\nfastcopy.workspace = true\n")])
                .len(),
            1
        );
        // Tests may know what is below.
        assert_eq!(
            planted(check, &[("crates/bcmr/Cargo.toml", "[dev-dependencies]\nfastcopy.workspace = true\n")]),
            [""; 0]
        );
    }

    #[test]
    fn a_crate_stays_with_its_own_kind_of_stranger() {
        let toml = "[dependencies]\nclap.workspace = true\nrustix = { workspace = true }\n";
        assert_eq!(planted(check, &[("crates/bcmr-engine/Cargo.toml", toml)]).len(), 2);
        assert_eq!(planted(check, &[("crates/bcmr/Cargo.toml", toml)]), [""; 0]);
    }

    #[test]
    fn a_dependency_has_its_reason_in_the_root() {
        let toml = "[dependencies]\nserde = \"1\"\n";
        assert_eq!(planted(check, &[("crates/bcmr/Cargo.toml", toml)]), ["crates/bcmr/Cargo.toml:2 arrows"]);
    }

    #[test]
    fn a_new_crate_is_asked_its_reason() {
        assert_eq!(
            planted(check, &[("crates/utils/Cargo.toml", "[package]\n")]),
            ["crates/utils/Cargo.toml:0 arrows"]
        );
    }

    #[test]
    fn every_module_has_a_head() {
        assert_eq!(planted(check, &[(SENDER, "use std::io;\n")]), [format!("{SENDER}:1 module-head")]);
        assert_eq!(one(SENDER, ""), [""; 0]);
    }

    #[test]
    fn unsafe_stays_in_fastcopy_with_its_reason() {
        assert_eq!(one(SENDER, "fn f() { unsafe { g() } }"), [":2 unsafe"]);
        assert_eq!(one(FAST, "fn f() {\n    unsafe { g() }\n}"), [":3 safety"]);
        assert_eq!(one(FAST, "fn f() {\n    // SAFETY: g asks for nothing.\n    unsafe { g() }\n}"), [""; 0]);
        assert_eq!(
            one(FAST, "fn f() {\n    // SAFETY: as above.\n    let r =\n        unsafe { g() };\n}"),
            [""; 0]
        );
        assert_eq!(
            one(FAST, "// SAFETY: another.\nlet a = unsafe { g() };\nlet b = unsafe { g() };"),
            [":4 safety"]
        );
        assert_eq!(one(SENDER, "#![forbid(unsafe_code)]\n// unsafe in a comment"), [""; 0]);
    }

    #[test]
    fn the_kernel_is_asked_in_fastcopy() {
        assert_eq!(one(SENDER, "#[cfg(target_os = \"linux\")]\nfn f() {}"), [":2 target-os"]);
        assert_eq!(one(SENDER, "if e == libc::EIO {}"), [":2 libc"]);
        assert_eq!(one(SENDER, "use libc::{EIO, EPERM};"), [":2 libc", ":2 libc"]);
        assert_eq!(one(FAST, "#[cfg(target_os = \"linux\")]\nuse libc::EIO;"), [""; 0]);
    }

    #[test]
    fn only_the_person_s_side_sees_the_world() {
        assert_eq!(one(SENDER, "println!(\"x\");"), [":2 printing"]);
        assert_eq!(one(SENDER, "eprint!(\"x\");"), [":2 printing"]);
        assert_eq!(one(SENDER, "std::io::stderr();"), [":2 printing"]);
        assert_eq!(one(SENDER, "let h = std::env::var_os(\"HOME\");"), [":2 environment"]);
        assert_eq!(one(SENDER, "use std::{env, io};"), [":2 environment"]);
        assert_eq!(one(SENDER, "let v = env!(\"CARGO_PKG_VERSION\");"), [""; 0]);
        assert_eq!(one(SENDER, "std::process::exit(1);"), [":2 exit"]);
        assert_eq!(one("crates/bcmr/src/main.rs", "std::process::exit(1); println!();"), [""; 0]);
        assert_eq!(
            one(SENDER, "#[cfg(test)]\nmod tests {\n fn f() { println!(); std::env::args(); }\n}"),
            [""; 0]
        );
    }

    #[test]
    fn a_test_does_not_skip_quietly() {
        let skips = |how: &str| {
            one(SENDER, &format!("#[cfg(test)]\nmod tests {{\n fn f() {{ {how}(\"SKIPPED: no disk\") }}\n}}"))
        };
        assert_eq!(skips(concat!("eprint", "ln!")), [":4 quiet-skip"]);
        assert_eq!(skips("skips::here"), [""; 0]);
    }

    #[test]
    fn the_halves_do_not_meet() {
        assert_eq!(one(SENDER, "use crate::receiver::plan;"), [":2 halves"]);
        assert_eq!(one(SENDER, "use crate::{entry, receiver::plan::Op};"), [":2 halves"]);
        assert_eq!(one(SENDER, "fn f(r: super::super::receiver::Plan) {}"), [":2 halves"]);
        assert_eq!(one(SENDER, "let (tx, receiver) = channel(); receiver::<u8>();"), [""; 0]);
        assert_eq!(one(RECEIVER, "use crate::sender::walk;"), [":2 halves"]);
        assert_eq!(
            one("crates/bcmr-engine/src/verbs/copy.rs", "use crate::{sender::walk, receiver::plan};"),
            [""; 0]
        );
    }

    #[test]
    fn the_transport_is_for_peers() {
        assert_eq!(one(RECEIVER, "use crate::transport::conn::Conn;"), [":2 transport"]);
        assert_eq!(
            one("crates/bcmr-engine/src/peer/client.rs", "use crate::transport::conn::Conn;"),
            [""; 0]
        );
    }

    #[test]
    fn only_landing_makes_a_name() {
        assert_eq!(one(SENDER, "dir.create_file(name, 0o600)?;"), [":2 landing"]);
        assert_eq!(one(RECEIVER, "Dir::rename_new(&d, a, &d, b)?;"), [":2 landing"]);
        assert_eq!(one(RECEIVER, "std::fs::File::create(p)?;"), [":2 landing"]);
        assert_eq!(one("crates/bcmr-engine/src/receiver/land.rs", "dir.create_file(name, 0o600)?;"), [""; 0]);
        assert_eq!(one("crates/bcmr-engine/src/disk/sys.rs", "dir.rename(a, &d, b)?;"), [""; 0]);
        assert_eq!(one("crates/bcmr-engine/src/verbs/move_.rs", "disk.rename_new(a, b)?;"), [""; 0]);
        assert_eq!(
            one("crates/bcmr-engine/src/verbs/move_.rs", "dir.rename_new(a, &d, b)?;"),
            [":2 landing"]
        );
    }
}
