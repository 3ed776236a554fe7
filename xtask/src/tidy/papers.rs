//! What holds for every tracked file, and the agreements between documents and code.

use super::finding::{File, Finding};
use std::collections::BTreeSet;

/// Places that exist on one machine only. Put together here, so that this file does not find itself.
const ELSEWHERE: [&str; 6] = [
    concat!("/wo", "rk/"),
    concat!("../sh", "ared"),
    concat!("sh", "ared/design"),
    concat!("sh", "ared/torture"),
    concat!("/ro", "ot/."),
    concat!(".li", "brary/"),
];

/// Every wall of this file.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in files {
        every_file(file, &mut found);
        figures(file, &mut found);
    }
    reasons(files, &mut found);
    links(files, &mut found);
    code_map(files, &mut found);
    tags(files, &mut found);
    found
}

/// Of decisions: a measured figure stands in a table that is made from its samples, and is cited. What looks like one is a
/// number with a point, unless it is the version of what stands before it.
fn figures(file: &File, found: &mut Vec<Finding>) {
    const VERSIONS_OF: [&str; 5] = ["Linux", "cp", "TLS", "OpenSSH", "section"];
    if !file.path.starts_with("docs/decisions/") {
        return;
    }
    for (n, line) in file.text.lines().enumerate() {
        let mut before = "";
        for word in line.split_whitespace() {
            let number = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
            let measured = number.split_once('.').is_some_and(|(whole, part)| {
                let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
                digits(whole) && digits(part)
            });
            if measured && !VERSIONS_OF.contains(&before) {
                let text =
                    format!("{number}: cite the table of docs/benchmarks.md or docs/experiments that has it");
                found.push(Finding::new(&file.path, n + 1, "figure", text));
            }
            before = number;
        }
    }
}

/// Ends with a newline, no carriage returns, no place that only one machine has.
fn every_file(file: &File, found: &mut Vec<Finding>) {
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        found.push(Finding::new(
            &file.path,
            file.text.lines().count(),
            "newline",
            "end the file with a newline",
        ));
    }
    for (n, line) in file.text.split('\n').enumerate() {
        if line.ends_with('\r') {
            found.push(Finding::new(&file.path, n + 1, "newline", "end lines with \\n alone"));
        }
        if let Some(place) = ELSEWHERE.iter().find(|place| line.contains(**place)) {
            let text =
                format!("`{place}` is on one machine only: name it relative to the project, or leave it out");
            found.push(Finding::new(&file.path, n + 1, "place", text));
        }
    }
}

/// Every dependency from outside stands below a comment that says why.
fn reasons(files: &[File], found: &mut Vec<Finding>) {
    let Some(file) = files.iter().find(|f| f.path == "Cargo.toml") else { return };
    let (mut inside, mut reason) = (false, false);
    for (n, line) in file.text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            (inside, reason) = (line == "[workspace.dependencies]", false);
        } else if line.starts_with('#') {
            reason = true;
        } else if line.is_empty() {
            reason = false;
        } else if inside && !reason && line.contains('=') && !line.contains("path =") {
            let name = line.split([' ', '=']).next().unwrap_or(line);
            let text =
                format!("`{name}` has no reason: say above it, in a comment, why the project carries it");
            found.push(Finding::new(&file.path, n + 1, "reason", text));
        }
    }
}

/// Paths that documents name exist. The change log and the decisions tell of their day and are left alone.
fn links(files: &[File], found: &mut Vec<Finding>) {
    for file in files.iter().filter(|f| f.path.ends_with(".md")) {
        if file.path == "CHANGELOG.md" || file.path.starts_with("docs/decisions/") {
            continue;
        }
        for (n, line) in file.text.lines().enumerate() {
            for span in spans(line) {
                let rooted = ["crates/", "xtask/", "tools/", "docs/", "fuzz/", ".ci/"]
                    .iter()
                    .any(|d| span.starts_with(d));
                let paper = span.ends_with(".md") && !span.contains('/');
                if !(rooted || paper) || span.contains(['*', '<', ' ', '$']) {
                    continue;
                }
                for path in braces(span) {
                    if !exists(files, &path) {
                        let text = format!("there is no `{path}`: name what is there, or leave it out");
                        found.push(Finding::new(&file.path, n + 1, "link", text));
                    }
                }
            }
            for target in link_targets(line) {
                let path = target.split('#').next().unwrap_or(target);
                if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
                    continue;
                }
                let path = beside(&file.path, path);
                if !exists(files, &path) {
                    let text = format!("there is no `{path}`: mend the link");
                    found.push(Finding::new(&file.path, n + 1, "link", text));
                }
            }
        }
    }
}

/// ARCHITECTURE.md names every folder directly below `crates/*/src`, and no file that is not there. What each file is for
/// stands at its head, where a change of the file meets it; a list of all files in a document follows no change by itself.
fn code_map(files: &[File], found: &mut Vec<Finding>) {
    let Some(map) = files.iter().find(|f| f.path == "ARCHITECTURE.md") else { return };
    let folders: BTreeSet<&str> =
        files.iter().filter_map(|f| module(&f.path)?.split_once('/')).map(|(folder, _)| folder).collect();
    let mut named = BTreeSet::new();
    for (n, line) in map.text.lines().enumerate() {
        for span in spans(line).into_iter().filter(|s| !s.contains(' ')) {
            for path in braces(span) {
                if path.ends_with(".rs") || path.ends_with('/') {
                    let bare = path.strip_prefix("crates/").and_then(|p| p.split_once("/src/")).map(|p| p.1);
                    named.insert((n + 1, bare.unwrap_or(&path).to_owned()));
                }
            }
        }
    }
    for folder in folders {
        if !named.iter().any(|(_, name)| name.trim_end_matches('/') == folder) {
            let text = format!("say in the code map what `{folder}/` is for");
            found.push(Finding::new("ARCHITECTURE.md", 0, "code-map", text));
        }
    }
    for (line, name) in named.iter().filter(|(_, name)| name.ends_with(".rs")) {
        let last = format!("/{name}");
        if !files.iter().any(|f| f.path == *name || f.path.ends_with(&last)) {
            found.push(Finding::new(
                "ARCHITECTURE.md",
                *line,
                "code-map",
                format!("there is no `{name}` any more"),
            ));
        }
    }
}

/// Every module with the first sentence of its head, which is its job.
pub fn map(files: &[File]) -> impl Iterator<Item = String> {
    files.iter().filter(|f| module(&f.path).is_some()).map(|file| {
        let head: Vec<&str> =
            file.text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
        let head = head.join(" ");
        let sentence = head.split_once(". ").map_or(head.as_str(), |(first, _)| first);
        format!("{}: {}", file.path, sentence.trim_end_matches('.'))
    })
}

/// The documents that define tags.
const TAGGED: [&str; 2] = ["docs/protocol.md", "docs/plan-format.md"];

/// Every `[tag]` of [`TAGGED`] stands in a `//` comment at its line of code, and the other way round. A comment in a test
/// keeps no promise.
fn tags(files: &[File], found: &mut Vec<Finding>) {
    if !files.iter().any(|f| TAGGED.contains(&f.path.as_str())) {
        return;
    }
    let mut written = Vec::new();
    for paper in files.iter().filter(|f| TAGGED.contains(&f.path.as_str())) {
        for (n, line) in paper.text.lines().enumerate() {
            written.extend(bracketed(line).map(|tag| (&paper.path, n + 1, tag.to_owned())));
        }
    }
    let mut coded = Vec::new();
    for file in files.iter().filter(|f| f.path.starts_with("crates/") && module(&f.path).is_some()) {
        let source = file.source();
        for (n, (comment, test)) in source.comment.iter().zip(&source.test).enumerate() {
            let doc = comment.starts_with("///") || comment.starts_with("//!");
            if !doc && !test {
                coded.extend(bracketed(comment).map(|tag| (&file.path, n + 1, tag.to_owned())));
            }
        }
    }
    for (path, line, tag) in &written {
        if !coded.iter().any(|c| c.2 == *tag) {
            found.push(Finding::new(
                path,
                *line,
                "tag",
                format!("no code says `// [{tag}]`: tag the line that does it"),
            ));
        }
    }
    for (path, line, tag) in &coded {
        if !written.iter().any(|w| w.2 == *tag) {
            let text = format!("docs/protocol.md does not define [{tag}]: write it there first");
            found.push(Finding::new(path, *line, "tag", text));
        }
    }
}

/// The module of a crate, below its `src/`.
fn module(path: &str) -> Option<&str> {
    let (_, rest) = path.strip_prefix("crates/")?.split_once('/')?;
    rest.strip_prefix("src/").filter(|m| m.ends_with(".rs"))
}

/// A file, or a directory that holds one.
fn exists(files: &[File], path: &str) -> bool {
    let path = path.trim_end_matches('/');
    let dir = format!("{path}/");
    files.iter().any(|f| f.path == path || f.path.starts_with(&dir))
}

/// `target` as seen from the document that names it.
fn beside(document: &str, target: &str) -> String {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// What stands between backticks.
fn spans(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

/// `a/{b,c}.rs` is `a/b.rs` and `a/c.rs`.
fn braces(span: &str) -> Vec<String> {
    let Some((before, rest)) = span.split_once('{') else { return vec![span.to_owned()] };
    let Some((inner, after)) = rest.split_once('}') else { return vec![span.to_owned()] };
    inner.split(',').map(|one| format!("{before}{}{after}", one.trim())).collect()
}

/// The targets of Markdown links, outside code spans.
fn link_targets(line: &str) -> Vec<&str> {
    let plain = line.split('`').step_by(2);
    plain.flat_map(|text| text.split("](").skip(1).filter_map(|rest| rest.split(')').next())).collect()
}

/// `[tag]`s: lower case with a dot between, so that neither a link nor an array is one.
fn bracketed(line: &str) -> impl Iterator<Item = &str> {
    line.split('[').skip(1).filter_map(|rest| {
        let (tag, after) = rest.split_once(']')?;
        let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | '_');
        (tag.contains('.') && tag.starts_with(|c: char| c.is_ascii_lowercase()) && tag.chars().all(good))
            .then_some(tag)
            .filter(|_| !after.starts_with('('))
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::{File, planted};
    use super::check;

    const NONE: [&str; 0] = [];
    const WALK: &str = "crates/bcmr-engine/src/sender/walk.rs";

    #[test]
    fn a_file_ends_with_a_newline() {
        assert_eq!(planted(check, &[("a.txt", "one\ntwo")]), ["a.txt:2 newline"]);
        assert_eq!(planted(check, &[("a.txt", "one\r\n")]), ["a.txt:1 newline"]);
        assert_eq!(planted(check, &[("a.txt", "one\n"), ("empty", "")]), NONE);
    }

    #[test]
    fn a_decision_cites_its_figures() {
        let planted = |text| planted(check, &[("docs/decisions/0001-a.md", text)]);
        assert_eq!(planted("| way | 0.58 (0.55) |\n"), ["docs/decisions/0001-a.md:1 figure"; 2]);
        assert_eq!(planted("It took\n1.5 s.\n"), ["docs/decisions/0001-a.md:2 figure"]);
        assert_eq!(planted("On Linux 6.18 with TLS 1.3, of 4 MiB, in 0006 and benchmarks.md.\n"), NONE);
        let elsewhere = [("docs/durability.md", "It took 1.5 s.\n")];
        assert_eq!(super::super::finding::planted(check, &elsewhere), NONE);
    }

    #[test]
    fn nothing_names_one_machine() {
        for place in super::ELSEWHERE {
            let text = format!("see {place}x\n");
            assert_eq!(planted(check, &[("notes.txt", &text)]), ["notes.txt:1 place"], "{place}");
        }
    }

    #[test]
    fn a_dependency_says_why() {
        let bad = "[workspace.dependencies]\nown = { path = \"crates/own\" }\nserde = \"1\"\n";
        assert_eq!(planted(check, &[("Cargo.toml", bad)]), ["Cargo.toml:3 reason"]);
        let good = "[workspace.dependencies]\n# Events.\nserde = \"1\"\nserde_json = \"1\"\n\n[profile.dev]\ndebug = 1\n";
        assert_eq!(planted(check, &[("Cargo.toml", good)]), NONE);
    }

    #[test]
    fn documents_name_what_is_there() {
        let text = "See `docs/gone.md` and [it](docs/gone.md#a) and `docs/here.md`.\nAlso [h](docs/here.md), `src dst`.\n";
        let files = [("README.md", text), ("docs/here.md", "[up](../README.md) [no](README.md)\n")];
        assert_eq!(planted(check, &files), ["README.md:1 link", "README.md:1 link", "docs/here.md:1 link"]);
        assert_eq!(planted(check, &[("CHANGELOG.md", "`docs/gone.md`\n")]), NONE);
    }

    #[test]
    fn the_code_map_has_every_folder_and_no_file_that_is_gone() {
        let map = |text| {
            planted(
                check,
                &[("ARCHITECTURE.md", text), (WALK, "//! x\n"), ("crates/bcmr-engine/src/disk/mod.rs", "")],
            )
        };
        assert_eq!(
            map("`sender/{walk,read}.rs`, `disk/`\n"),
            ["ARCHITECTURE.md:0 code-map", "ARCHITECTURE.md:1 code-map"]
        );
        assert_eq!(map("`sender/` (`crates/bcmr-engine/src/sender/walk.rs`) and `disk/`\n"), NONE);
    }

    #[test]
    fn the_map_is_the_heads_of_files() {
        let files = [
            (WALK, "//! Reads\n//! directories. Must not know more.\n\nuse a;\n"),
            ("xtask/src/main.rs", "//! x\n"),
        ];
        let files = files.map(|(path, text)| File::new(path, text));
        assert_eq!(super::map(&files).collect::<Vec<_>>(), [format!("{WALK}: Reads directories")]);
    }

    #[test]
    fn tags_stand_in_both_places() {
        let wire = "crates/bcmr-wire/src/message.rs";
        let both = |paper, code| planted(check, &[("docs/protocol.md", paper), (wire, code)]);
        assert_eq!(both("version [hello.version] u8\n", "// [hello.version]\nlet a = [b.c];\n"), NONE);
        assert_eq!(both("version [hello.version] u8\n", ""), ["docs/protocol.md:1 tag"]);
        assert_eq!(both("", "//! [link.to]\nlet a = 1; // [hello.caps]\n"), [format!("{wire}:2 tag")]);
        let test = "#[cfg(test)]\nmod tests {\n    // [hello.version]\n}\n";
        assert_eq!(both("version [hello.version] u8\n", test), ["docs/protocol.md:1 tag"]);
        let engine = [("docs/protocol.md", "[a.b] u8\n"), (WALK, "//! Head.\n// [a.b]\n")];
        assert_eq!(planted(check, &engine), NONE);
    }
}
