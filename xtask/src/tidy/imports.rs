//! Which file of a crate imports from which: circles among them, and arrows that run up. Knows nothing of what the files
//! are about, but for the order of the engine's folders, which stands here.

use super::finding::File;
use super::source::Source;
use std::collections::{BTreeMap, BTreeSet};

/// Where the sources of our crates lie, those of the product first.
pub const CRATES: [&str; 8] = [
    "crates/fastcopy/src/",
    "crates/bcmr-wire/src/",
    "crates/bcmr-engine/src/",
    "crates/bcmr/src/",
    "xtask/src/",
    "tools/bench/src/",
    "tools/sh/src/",
    "tools/skips/src/",
];

/// The engine, whose folders have an order.
const ENGINE: &str = CRATES[2];
/// From the bottom up. A file imports from its own folder and from those of the rows below it; the files directly below
/// `src/` (an empty name) are the vocabulary that all others speak.
const ORDER: [&[&str]; 6] = [
    &["", "remove"],
    &["disk", "store"],
    &["receiver", "sender", "transport"],
    &["verbs"],
    &["peer", "plan", "stepwise"],
    &["api"],
];

/// One file of a crate imports from another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    pub from: String,
    pub to: String,
    /// Counted from 1.
    pub line: usize,
    /// The path as it is written, spelled out.
    pub path: String,
}

/// One crate: its files that are not for tests alone, and which of them imports from which.
pub struct Krate<'a> {
    /// Where its sources lie.
    pub folder: &'static str,
    pub sources: Vec<(&'a File, &'a Source)>,
    pub imports: Vec<Import>,
}

/// Every crate of [`CRATES`], in that order.
pub fn crates(files: &[File]) -> Vec<Krate<'_>> {
    let read = |folder| {
        let sources = sources(files, folder);
        let imports = within(&sources, folder);
        Krate { folder, sources, imports }
    };
    CRATES.into_iter().map(read).collect()
}

/// Every import within the crate whose sources lie below `krate`, tests left out; one for each pair of files.
fn within(sources: &[(&File, &Source)], krate: &str) -> Vec<Import> {
    let sources: Vec<(&File, &Source, Vec<&str>)> = sources
        .iter()
        .filter_map(|(file, source)| Some((*file, *source, module(file.path.strip_prefix(krate)?)?)))
        .collect();
    let modules: BTreeMap<&[&str], &str> =
        sources.iter().map(|(file, _, module)| (module.as_slice(), file.path.as_str())).collect();
    let mut found: BTreeMap<(&str, &str), Import> = BTreeMap::new();
    for (file, source, module) in &sources {
        for used in source.paths() {
            let parts: Vec<&str> = used.parts.iter().map(String::as_str).collect();
            let Some(mut target) = absolute(module, &parts, &modules) else { continue };
            while !target.is_empty() && !modules.contains_key(target.as_slice()) {
                target.pop();
            }
            let Some(to) = modules.get(target.as_slice()).filter(|to| **to != file.path) else { continue };
            found.entry((&file.path, to)).or_insert_with(|| Import {
                from: file.path.clone(),
                to: (*to).to_owned(),
                line: used.line + 1,
                path: parts.join("::"),
            });
        }
    }
    found.into_values().collect()
}

/// The files of one crate that are not for tests alone.
fn sources<'a>(files: &'a [File], krate: &str) -> Vec<(&'a File, &'a Source)> {
    let ours: Vec<(&File, &Source)> = files
        .iter()
        .filter(|file| file.path.starts_with(krate) && file.path.ends_with(".rs"))
        .map(|file| (file, file.source()))
        .collect();
    let mut tests = BTreeSet::new();
    for (file, source) in &ours {
        let parent = file.path.strip_prefix(krate).and_then(module).unwrap_or_default();
        for name in source.test_modules() {
            let stem = parent.iter().chain([&name.as_str()]).copied().collect::<Vec<_>>().join("/");
            tests.extend([format!("{krate}{stem}.rs"), format!("{krate}{stem}/mod.rs")]);
        }
    }
    ours.into_iter().filter(|(file, _)| !tests.contains(&file.path)).collect()
}

/// `a/b.rs` and `a/b/mod.rs` are the module `a::b`; the crate's own is empty.
fn module(path: &str) -> Option<Vec<&str>> {
    let mut parts: Vec<&str> = path.strip_suffix(".rs")?.split('/').collect();
    if matches!(parts.last(), Some(&("mod" | "lib" | "main"))) {
        parts.pop();
    }
    Some(parts)
}

/// A path as seen from the crate's root, or `None` when it leads out of the crate.
fn absolute<'a>(
    module: &[&'a str],
    parts: &[&'a str],
    modules: &BTreeMap<&[&str], &str>,
) -> Option<Vec<&'a str>> {
    let mut from = module.to_vec();
    let mut rest = parts;
    match parts.first()? {
        &"crate" => {
            from.clear();
            rest = &parts[1..];
        }
        &("self" | "super") => {
            while let Some((&word @ ("self" | "super"), after)) = rest.split_first() {
                if word == "super" {
                    from.pop();
                }
                rest = after;
            }
        }
        // A module that is declared here.
        first => {
            from.push(first);
            let is_here = modules.contains_key(from.as_slice());
            from.pop();
            is_here.then_some(())?;
        }
    }
    from.extend(rest);
    Some(from)
}

/// Files that import from one another, directly or by way of others: each set once, its imports among themselves with it.
pub fn circles(imports: &[Import]) -> Vec<Vec<Import>> {
    let mut to: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for import in imports {
        to.entry(&import.from).or_default().push(&import.to);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> = to.keys().map(|from| (*from, reach(&to, from))).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (from, there) in &reached {
        if !there.contains(from) || seen.contains(from) {
            continue;
        }
        let circle: BTreeSet<&str> = there
            .iter()
            .filter(|other| reached.get(*other).is_some_and(|back| back.contains(from)))
            .copied()
            .collect();
        let both = |i: &&Import| circle.contains(i.from.as_str()) && circle.contains(i.to.as_str());
        found.push(imports.iter().filter(both).cloned().collect());
        seen.extend(circle);
    }
    found
}

/// Every file that can be reached from one, over at least one import.
fn reach<'a>(to: &BTreeMap<&'a str, Vec<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&str> = to.get(from).cloned().unwrap_or_default();
    while let Some(file) = next.pop() {
        if found.insert(file) {
            next.extend(to.get(file).into_iter().flatten());
        }
    }
    found
}

/// Imports of the engine that run up in the order of its folders. `lib.rs` names everything and is left out.
pub fn upward<'a>(crates: &'a [Krate<'_>]) -> Vec<&'a Import> {
    let place = |path: &str| {
        let path = path.strip_prefix(ENGINE).filter(|path| *path != "lib.rs")?;
        let folder = path.split_once('/').map_or("", |(folder, _)| folder);
        ORDER.iter().position(|row| row.contains(&folder))
    };
    let is_up = |i: &&Import| place(&i.from).zip(place(&i.to)).is_some_and(|(from, to)| from < to);
    crates.iter().flat_map(|krate| &krate.imports).filter(is_up).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(files: &[(&str, &str)]) -> Vec<Import> {
        let files: Vec<File> =
            files.iter().map(|(path, text)| File::new(format!("{ENGINE}{path}"), *text)).collect();
        within(&sources(&files, ENGINE), ENGINE)
    }

    fn pairs<'a>(imports: impl IntoIterator<Item = &'a Import>) -> Vec<String> {
        let bare = |path: &str| path.strip_prefix(ENGINE).unwrap().to_owned();
        imports.into_iter().map(|i| format!("{} {}", bare(&i.from), bare(&i.to))).collect()
    }

    #[test]
    fn paths_lead_to_files() {
        let found = imports(&[
            ("lib.rs", "pub mod a;\npub use a::b::B;\n"),
            ("a/mod.rs", "pub mod b;\nuse super::c::{self, C};\n"),
            (
                "a/b.rs",
                "use crate::c::C;\nfn f() { super::g(); std::fs::read(); }\n#[cfg(test)]\nmod tests { use crate::d; }\n",
            ),
            ("c.rs", "use crate::Error;\n"),
            ("d.rs", "// crate::a\n"),
            ("e/mod.rs", "#[cfg(test)]\nmod f;\n"),
            ("e/f.rs", "use crate::a;\n"),
        ]);
        assert_eq!(
            pairs(&found),
            ["a/b.rs a/mod.rs", "a/b.rs c.rs", "a/mod.rs c.rs", "c.rs lib.rs", "lib.rs a/b.rs"]
        );
    }

    #[test]
    fn circles_are_found_however_long() {
        let none = imports(&[("a.rs", "use crate::b::B;\n"), ("b.rs", "use crate::c::C;\n"), ("c.rs", "")]);
        assert!(circles(&none).is_empty());
        let long = imports(&[
            ("a.rs", "use crate::b::B;\n"),
            ("b.rs", "use crate::c::C;\n"),
            ("c.rs", "use crate::a::A;\nuse crate::d::D;\n"),
            ("d.rs", ""),
            ("e.rs", "use super::f::F;\n"),
            ("f.rs", "use super::e::E;\n"),
        ]);
        let found = circles(&long);
        assert_eq!(found.len(), 2);
        assert_eq!(pairs(&found[0]), ["a.rs b.rs", "b.rs c.rs", "c.rs a.rs"]);
        assert_eq!(pairs(&found[1]), ["e.rs f.rs", "f.rs e.rs"]);
    }

    #[test]
    fn arrows_in_the_engine_run_down() {
        let imports = imports(&[
            ("lib.rs", "pub use verbs::Copy;\n"),
            ("error.rs", "use crate::disk::Fault;\n"),
            ("disk/mod.rs", "use crate::error::Error;\nuse crate::receiver::Plan;\n"),
            ("receiver/mod.rs", "use crate::disk::Disk;\n"),
            ("verbs/mod.rs", "use crate::receiver::Plan;\n"),
        ]);
        let engine = [Krate { folder: ENGINE, sources: Vec::new(), imports }];
        assert_eq!(pairs(upward(&engine)), ["disk/mod.rs receiver/mod.rs", "error.rs disk/mod.rs"]);
    }
}
