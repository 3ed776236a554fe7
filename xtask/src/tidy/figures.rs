//! `cargo xtask tidy --figures`: the shape of the code in numbers, and the lists behind them. Knows no bound: those stand
//! in `ratchets`.

use super::finding::File;
use super::imports::{self, CRATES, Import, Krate};
use super::source::Function;
use std::collections::{BTreeMap, BTreeSet};

/// What users run; the other crates are for developers.
const PRODUCT: &[&str] = CRATES.split_at(4).0;
/// Words that stand for an actor and do not name one.
pub const HIDING: [&str; 10] = [
    "whoever",
    "whosoever",
    "whomever",
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "someone",
    "anyone",
    "everyone",
];
/// More parameters than a reader keeps apart.
const MANY_PARAMETERS: usize = 6;
/// Lines of a function that is read in one go.
pub const LONG: usize = 100;

pub fn is_product(krate: &Krate<'_>) -> bool {
    PRODUCT.contains(&krate.folder)
}

/// Every function outside tests, with the path of its file.
pub fn functions<'a>(krate: &'a Krate<'_>) -> impl Iterator<Item = (&'a str, Function)> {
    krate.sources.iter().flat_map(|(file, source)| {
        source.functions().into_iter().map(|function| (file.path.as_str(), function))
    })
}

/// Where each type of a crate is defined: path and line, counted from 1.
pub fn types<'a>(krate: &'a Krate<'_>) -> BTreeMap<String, Vec<(&'a str, usize)>> {
    let mut found: BTreeMap<String, Vec<(&str, usize)>> = BTreeMap::new();
    for (file, source) in &krate.sources {
        for defined in source.types() {
            found.entry(defined.name).or_default().push((&file.path, defined.line + 1));
        }
    }
    found
}

/// Comments of the product that hide who acts: how many times they do, by file, and how many lines of comments there are.
pub fn hiding<'a>(crates: &'a [Krate<'_>]) -> (BTreeMap<&'a str, usize>, usize) {
    let (mut found, mut lines) = (BTreeMap::new(), 0);
    for (file, source) in crates.iter().filter(|krate| is_product(krate)).flat_map(|krate| &krate.sources) {
        for comment in source.comment.iter().filter(|c| !c.trim().is_empty()) {
            lines += 1;
            let words = comment.split(|c: char| !c.is_alphabetic()).map(str::to_lowercase);
            let many = words.filter(|word| HIDING.contains(&word.as_str())).count();
            if many > 0 {
                *found.entry(file.path.as_str()).or_default() += many;
            }
        }
    }
    (found, lines)
}

/// The names of a circle's files, as one reads them.
pub fn shown(circle: &[Import]) -> String {
    let names: BTreeSet<&str> = circle.iter().map(|import| import.from.as_str()).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// Everything on the terminal: first the numbers, then what they are made of.
pub fn print(files: &[File]) {
    let crates = imports::crates(files);
    let mut places = Vec::new();
    imported(&crates, &mut places);
    named(&crates, &mut places);
    sized(&crates, &mut places);
    worded(&crates, &mut places);
    println!();
    for place in places {
        println!("  {place}");
    }
}

fn imported(crates: &[Krate<'_>], places: &mut Vec<String>) {
    let (mut product, mut tools) = (0, 0);
    for krate in crates {
        for circle in imports::circles(&krate.imports) {
            *(if is_product(krate) { &mut product } else { &mut tools }) += 1;
            places.push(format!("circle: {}", shown(&circle)));
            for import in &circle {
                places
                    .push(format!("    {}:{} -> {} ({})", import.from, import.line, import.to, import.path));
            }
        }
    }
    row("import circles, product", product);
    row("import circles, tools", tools);
    let upward = imports::upward(crates);
    row("imports that run up inside the engine", upward.len());
    for import in upward {
        places.push(format!("up: {}:{} -> {} ({})", import.from, import.line, import.to, import.path));
    }
}

fn named(crates: &[Krate<'_>], places: &mut Vec<String>) {
    let (mut names, mut several) = (0, 0);
    for krate in crates.iter().filter(|krate| is_product(krate)) {
        let types = types(krate);
        names += types.len();
        for (name, at) in types.iter().filter(|(_, at)| at.len() > 1) {
            several += 1;
            let at: Vec<&str> = at.iter().map(|(path, _)| path.trim_start_matches(krate.folder)).collect();
            places.push(format!("type {name}: {} {}", krate.folder, at.join(" ")));
        }
    }
    row("type names defined more than once", format!("{several} of {names}, {}", percent(several, names)));
}

fn sized(crates: &[Krate<'_>], places: &mut Vec<String>) {
    let product = || crates.iter().filter(|krate| is_product(krate));
    let all: Vec<(&str, Function)> = product().flat_map(functions).collect();
    let mut lengths: Vec<usize> = all.iter().map(|(_, f)| f.lines).collect();
    lengths.sort_unstable();
    let at = |part: f64| lengths.get((lengths.len() as f64 * part) as usize).copied().unwrap_or(0);
    let most = lengths.last().copied().unwrap_or(0);
    row("functions, length p50 / p95 / max", format!("{} / {} / {most}", at(0.5), at(0.95)));
    let long: Vec<_> = all.iter().filter(|(_, f)| f.lines > LONG).collect();
    let (lines, in_long): (usize, usize) = (lengths.iter().sum(), long.iter().map(|(_, f)| f.lines).sum());
    let share = percent(in_long, lines);
    row(&format!("functions over {LONG} lines"), format!("{}, {share} of the lines", long.len()));
    for (path, f) in &long {
        places.push(format!("long: {path}:{} {}, {} lines", f.line + 1, f.name, f.lines));
    }
    let many: Vec<_> = all.iter().filter(|(_, f)| f.parameters > MANY_PARAMETERS).collect();
    let share = percent(many.len(), all.len());
    row(
        &format!("functions with over {MANY_PARAMETERS} parameters"),
        format!("{} of {}, {share}", many.len(), all.len()),
    );
    for (path, f) in &many {
        places.push(format!("parameters: {path}:{} {}, {}", f.line + 1, f.name, f.parameters));
    }
    let lines = |is: fn(&str) -> bool| -> usize {
        let sources = product().flat_map(|krate| &krate.sources);
        sources.map(|(_, source)| source.live().filter(|(_, code)| is(code)).count()).sum()
    };
    row(
        "product lines, tests left out; with code on them",
        format!("{}; {}", lines(|_| true), lines(|code| !code.trim().is_empty())),
    );
}

fn worded(crates: &[Krate<'_>], places: &mut Vec<String>) {
    let (hiding, comments) = hiding(crates);
    let count: usize = hiding.values().sum();
    row(
        "words that hide who acts, per 1,000 comment lines",
        format!("{:.1} ({count} in {comments})", count as f64 * 1000.0 / comments.max(1) as f64),
    );
    places.extend(hiding.iter().map(|(path, count)| format!("hiding: {path} {count}")));
}

fn row(what: &str, value: impl std::fmt::Display) {
    println!("{what:52} {value}");
}

fn percent(part: usize, all: usize) -> String {
    format!("{:.1} %", part as f64 * 100.0 / all.max(1) as f64)
}
