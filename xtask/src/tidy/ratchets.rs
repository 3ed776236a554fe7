//! Bounds on the shape of the code that may only become tighter: what is still beyond them stands here in lists, and an
//! entry that is no longer needed is a finding as well. Knows no way of counting: that is `figures` and `imports`.

use super::figures::{self, LONG};
use super::finding::{File, Finding};
use super::imports::{self, Krate};
use std::collections::BTreeSet;

/// What is let off.
struct Allowed {
    /// Files that import from one another, each circle by its first file.
    circles: &'static [&'static str],
    /// Imports of the engine that run up: from and to.
    upward: &'static [(&'static str, &'static str)],
    /// Names of types that a crate defines more than once: the folder of the crate's sources and the name.
    types: &'static [(&'static str, &'static str)],
    /// Functions that are long because they are a list or a table, or have not been taken apart yet: file and name.
    long: &'static [(&'static str, &'static str)],
    /// How many words that hide who acts stand in the comments of the product.
    hiding: usize,
}

/// Words may come and go with other changes; with so many fewer the bound is to follow.
const SLACK: usize = 10;

const TODAY: Allowed = Allowed {
    circles: &[],
    upward: &[],
    // Those of `ring/absent.rs` stand in for those of `ring/linux.rs` where there is no io_uring.
    types: &[
        ("crates/fastcopy/src/", "Block"),
        ("crates/fastcopy/src/", "Submission"),
        ("crates/fastcopy/src/", "Ring"),
        ("crates/bcmr-engine/src/", "Operand"),
        ("crates/bcmr-engine/src/", "Spot"),
        ("crates/bcmr-engine/src/", "Way"),
        ("crates/bcmr-engine/src/", "What"),
    ],
    // Lists and tables: the words for each operation and reason, the fields of each message, the lines of each experiment,
    // the rows of a benchmark.
    long: &[
        ("crates/bcmr-wire/src/codec.rs", "read"),
        ("crates/bcmr-wire/src/codec.rs", "write"),
        ("crates/bcmr-wire/src/rules.rs", "message"),
        ("crates/bcmr/src/say/words.rs", "op"),
        ("crates/bcmr/src/say/words.rs", "reason"),
        ("tools/bench/src/experiment/catalog/checkpoint.rs", "all"),
        ("tools/bench/src/experiment/catalog/local.rs", "all"),
        ("tools/bench/src/experiment/catalog/paper.rs", "all"),
        ("tools/bench/src/experiment/catalog/wire.rs", "all"),
        ("tools/bench/src/rows.rs", "all"),
    ],
    hiding: 9,
};

/// Every wall of this file.
pub fn check(files: &[File]) -> Vec<Finding> {
    beyond(files, &TODAY)
}

fn beyond(files: &[File], allowed: &Allowed) -> Vec<Finding> {
    let crates = imports::crates(files);
    let mut found = Vec::new();
    circles(&crates, allowed, &mut found);
    upward(&crates, allowed, &mut found);
    types(&crates, allowed, &mut found);
    long(&crates, allowed, &mut found);
    hiding(&crates, allowed, &mut found);
    found
}

/// Where the lists stand.
const HERE: &str = "xtask/src/tidy/ratchets.rs";

/// An entry of a list that lets off nothing any more.
fn stale(found: &mut Vec<Finding>, wall: &'static str, entry: &str) {
    let text =
        format!("{entry} needs no exception any more: take it out of the list, so that it cannot come back");
    found.push(Finding::new(HERE, 0, wall, text));
}

fn circles(crates: &[Krate<'_>], allowed: &Allowed, found: &mut Vec<Finding>) {
    let mut needed = BTreeSet::new();
    for krate in crates {
        for circle in imports::circles(&krate.imports) {
            let Some(first) = circle.first() else { continue };
            if allowed.circles.contains(&first.from.as_str()) {
                needed.insert(first.from.clone());
                continue;
            }
            let text = format!(
                "these files import from one another: {}; move what both sides need into a file of its own, below both",
                figures::shown(&circle)
            );
            found.push(Finding::new(&first.from, first.line, "circle", text));
        }
    }
    for entry in allowed.circles.iter().filter(|entry| !needed.contains(**entry)) {
        stale(found, "circle", &format!("the circle of {entry}"));
    }
}

fn upward(crates: &[Krate<'_>], allowed: &Allowed, found: &mut Vec<Finding>) {
    let mut needed = BTreeSet::new();
    for import in imports::upward(crates) {
        let allowed_as = allowed.upward.iter().find(|(from, to)| *from == import.from && *to == import.to);
        if let Some(entry) = allowed_as {
            needed.insert(entry);
            continue;
        }
        let text = format!(
            "`{}` lies above this folder (the order is in tidy's `imports`): take what is needed as a parameter, or move \
             it down",
            import.path
        );
        found.push(Finding::new(&import.from, import.line, "upward", text));
    }
    for entry in allowed.upward.iter().filter(|entry| !needed.contains(entry)) {
        stale(found, "upward", &format!("{} -> {}", entry.0, entry.1));
    }
}

fn types(crates: &[Krate<'_>], allowed: &Allowed, found: &mut Vec<Finding>) {
    for krate in crates {
        let folder = krate.folder;
        let types = figures::types(krate);
        for (name, places) in types.iter().filter(|(_, places)| places.len() > 1) {
            if allowed.types.contains(&(folder, name.as_str())) {
                continue;
            }
            let ((first, at), rest) = (places[0], &places[1..]);
            for (path, line) in rest {
                let text = format!(
                    "this crate has another type {name}, at {first}:{at}: give each the name of what it is (STYLE.md, \
                     Glossary)"
                );
                found.push(Finding::new(path, *line, "type-name", text));
            }
        }
        for (_, name) in allowed.types.iter().filter(|(of, _)| *of == folder) {
            if types.get(*name).is_none_or(|places| places.len() < 2) {
                stale(found, "type-name", &format!("{folder} {name}"));
            }
        }
    }
}

fn long(crates: &[Krate<'_>], allowed: &Allowed, found: &mut Vec<Finding>) {
    let mut needed = BTreeSet::new();
    for (path, function) in crates.iter().flat_map(figures::functions).filter(|(_, f)| f.lines > LONG) {
        if let Some(entry) = allowed.long.iter().find(|(file, name)| *file == path && *name == function.name)
        {
            needed.insert(entry);
            continue;
        }
        let text = format!(
            "{} has {} lines: give its steps names, as functions of their own; what is one list or table may stand in \
             {HERE}",
            function.name, function.lines
        );
        found.push(Finding::new(path, function.line + 1, "long", text));
    }
    for entry in allowed.long.iter().filter(|entry| !needed.contains(entry)) {
        stale(found, "long", &format!("{} {}", entry.0, entry.1));
    }
}

fn hiding(crates: &[Krate<'_>], allowed: &Allowed, found: &mut Vec<Finding>) {
    let (by_file, _) = figures::hiding(crates);
    let count: usize = by_file.values().sum();
    if count > allowed.hiding {
        let text = format!(
            "{count} words of comments like `nobody` and `whoever` hide who acts, and {} may: say which part of the \
             program, the other program or the user it is (`cargo xtask tidy --figures` says where)",
            allowed.hiding
        );
        found.push(Finding::new(HERE, 0, "hiding", text));
    } else if count + SLACK < allowed.hiding {
        let text = format!("only {count} words hide who acts: lower the bound of {} to that", allowed.hiding);
        found.push(Finding::new(HERE, 0, "hiding", text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGINE: &str = "crates/bcmr-engine/src/";
    const NONE: Allowed = Allowed { circles: &[], upward: &[], types: &[], long: &[], hiding: 0 };

    fn found(files: &[(&str, &str)], allowed: &Allowed) -> Vec<String> {
        let files: Vec<File> = files
            .iter()
            .map(|(path, text)| {
                let path =
                    if path.starts_with("crates/") { (*path).to_owned() } else { format!("{ENGINE}{path}") };
                File::new(path, *text)
            })
            .collect();
        let bare = |path: &str| path.strip_prefix(ENGINE).unwrap_or("list").to_owned();
        beyond(&files, allowed)
            .into_iter()
            .map(|f| format!("{}:{} {}", bare(&f.path), f.line, f.wall))
            .collect()
    }

    #[test]
    fn files_do_not_import_from_one_another() {
        let files = [("a.rs", "use crate::b::B;\n"), ("b.rs", "\nuse crate::a::A;\n")];
        assert_eq!(found(&files, &NONE), ["a.rs:1 circle"]);
        let allowed = Allowed { circles: &["crates/bcmr-engine/src/a.rs"], ..NONE };
        assert_eq!(found(&files, &allowed), [""; 0]);
        assert_eq!(found(&files[..1], &allowed), ["list:0 circle"], "an exception that nothing needs");
    }

    #[test]
    fn the_disk_does_not_know_the_receiver() {
        let files = [("disk/sys.rs", "use crate::receiver::plan::Plan;\n"), ("receiver/plan.rs", "")];
        assert_eq!(found(&files, &NONE), ["disk/sys.rs:1 upward"]);
        let allowed = Allowed {
            upward: &[("crates/bcmr-engine/src/disk/sys.rs", "crates/bcmr-engine/src/receiver/plan.rs")],
            ..NONE
        };
        assert_eq!(found(&files, &allowed), [""; 0]);
        assert_eq!(found(&files[1..], &allowed), ["list:0 upward"]);
    }

    #[test]
    fn a_type_name_has_one_meaning_in_a_crate() {
        let files = [("a.rs", "struct Place;\n"), ("b.rs", "\nenum Place {}\n")];
        assert_eq!(found(&files, &NONE), ["b.rs:2 type-name"]);
        let allowed = Allowed { types: &[(ENGINE, "Place")], ..NONE };
        assert_eq!(found(&files, &allowed), [""; 0]);
        assert_eq!(found(&files[1..], &allowed), ["list:0 type-name"]);
        let elsewhere = [("crates/bcmr/src/a.rs", "struct Place;\n"), files[0]];
        assert_eq!(found(&elsewhere, &NONE), [""; 0]);
    }

    #[test]
    fn a_function_is_read_in_one_go() {
        let text = |lines: usize| format!("fn all() {{\n{}}}\n", "    step();\n".repeat(lines - 2));
        let (long, short) = (text(LONG + 1), text(LONG));
        assert_eq!(found(&[("a.rs", &long)], &NONE), ["a.rs:1 long"]);
        assert_eq!(found(&[("a.rs", &short)], &NONE), [""; 0]);
        let allowed = Allowed { long: &[("crates/bcmr-engine/src/a.rs", "all")], ..NONE };
        assert_eq!(found(&[("a.rs", &long)], &allowed), [""; 0]);
        assert_eq!(found(&[("a.rs", &short)], &allowed), ["list:0 long"]);
    }

    #[test]
    fn comments_say_who_acts() {
        let files = [("a.rs", "// Whoever asks is told.\nlet nobody = \"somebody\"; // Nobody does.\n")];
        assert_eq!(found(&files, &NONE), ["list:0 hiding"]);
        assert_eq!(found(&files, &Allowed { hiding: 2, ..NONE }), [""; 0]);
        assert_eq!(found(&files, &Allowed { hiding: 2 + SLACK, ..NONE }), [""; 0]);
        assert_eq!(found(&files, &Allowed { hiding: 3 + SLACK, ..NONE }), ["list:0 hiding"]);
    }
}
