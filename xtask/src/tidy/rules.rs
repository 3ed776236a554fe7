//! What is cited stands somewhere: rules by letter and number, and in the tables of documents functions, tests and files.

use super::finding::{File, Finding};
use std::collections::{BTreeMap, BTreeSet};

/// Where rules are defined: in rows of tables, and as `**R1**`.
const SAFETY: &str = "docs/safety-rules.md";
const DURABILITY: &str = "docs/durability.md";
const LETTERS: [char; 6] = ['V', 'D', 'S', 'L', 'C', 'R'];

/// Every wall of this file.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut found = Vec::new();
    rules(files, &mut found);
    ignored(files, &mut found);
    cited(files, &mut found);
    found
}

/// A cited rule stands in docs/safety-rules.md or docs/durability.md.
fn rules(files: &[File], found: &mut Vec<Finding>) {
    let mut known = BTreeSet::new();
    for file in files.iter().filter(|f| f.path == SAFETY || f.path == DURABILITY) {
        for line in file.text.lines() {
            let row = line.strip_prefix("| ").and_then(|row| row.split(" |").next());
            let bold = line.strip_prefix("- **").and_then(|rule| rule.split("**").next());
            known.extend(row.or(bold).filter(|name| is_rule(name)).map(str::to_owned));
        }
    }
    if known.is_empty() {
        return;
    }
    for file in files {
        let paper = file.path.ends_with(".md") && !is_made(&file.path);
        let code = file.path.ends_with(".rs") && !file.path.starts_with("xtask/src/tidy/");
        let lines: Vec<String> = match (paper, code) {
            (true, _) => file.text.lines().map(str::to_owned).collect(),
            (_, true) => file.source().comment.iter().map(ToString::to_string).collect(),
            _ => continue,
        };
        for (n, line) in lines.iter().enumerate() {
            for name in words(line).filter(|word| is_rule(word) && !known.contains(*word)) {
                let text = format!("no rule {name} stands in {SAFETY} or {DURABILITY}: write it there");
                found.push(Finding::new(&file.path, n + 1, "rule", text));
            }
        }
    }
}

/// No test is left out by an attribute, which only who reads the summary to its end would see.
fn ignored(files: &[File], found: &mut Vec<Finding>) {
    for file in files.iter().filter(|f| f.path.ends_with(".rs")) {
        for (n, line) in file.text.lines().enumerate() {
            if line.trim_start().starts_with(concat!("#[", "ignore")) {
                let text = "mend the test, or say with `skipped` what it lacks where it runs";
                found.push(Finding::new(&file.path, n + 1, "ignored", text));
            }
        }
    }
}

/// A letter of ours and a number of one or two digits that does not begin with 0.
fn is_rule(word: &str) -> bool {
    let Some(number) = word.strip_prefix(LETTERS) else { return false };
    matches!(number.len(), 1 | 2) && !number.starts_with('0') && number.bytes().all(|b| b.is_ascii_digit())
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// Pages that a command writes, and those that tell of their day.
fn is_made(path: &str) -> bool {
    path == "CHANGELOG.md" || path.starts_with("docs/experiments/") || path.starts_with("docs/benchmarks")
}

/// Functions of the repository: by name, the files that have one and the types and modules named in those.
struct Functions<'a> {
    files: BTreeMap<&'a str, Vec<&'a File>>,
}

impl<'a> Functions<'a> {
    fn of(files: &'a [File]) -> Functions<'a> {
        let mut found: BTreeMap<&str, Vec<&File>> = BTreeMap::new();
        for file in files.iter().filter(|f| f.path.ends_with(".rs")) {
            for line in file.text.lines().filter(|line| !line.trim_start().starts_with("//")) {
                let named = line.split("fn ").nth(1).and_then(|rest| words(rest).next());
                named.into_iter().for_each(|name| found.entry(name).or_default().push(file));
            }
        }
        Functions { files: found }
    }

    /// `name`, `place::name`, or the beginning of several with a star; the place is a file, a folder, or a type or module
    /// in the file.
    fn has(&self, span: &str) -> bool {
        let (place, name) = span.rsplit_once("::").map_or(("", span), |(place, name)| (place, name));
        let place = place.rsplit("::").next().unwrap_or(place);
        let is_there = |file: &&File| {
            let parts = file.path.trim_end_matches(".rs").split('/');
            place.is_empty()
                || parts.into_iter().any(|part| part == place)
                || ["mod ", "struct ", "enum ", "trait "].iter().any(|kind| {
                    let defined = format!("{kind}{place}");
                    file.text.match_indices(&defined).any(|(at, _)| {
                        !file.text[at + defined.len()..]
                            .starts_with(|c: char| c.is_alphanumeric() || c == '_')
                    })
                })
        };
        match name.strip_suffix('*') {
            Some(start) => {
                self.files.iter().any(|(name, files)| name.starts_with(start) && files.iter().any(is_there))
            }
            None => self.files.get(name).is_some_and(|files| files.iter().any(is_there)),
        }
    }
}

/// What stands in backticks in documents is there: in tables below `function`, `tests` and `kept in`, and anywhere else
/// what is written as `place::function` or as `function()`. Decisions tell of their day, and so may name what is gone in
/// running text.
fn cited(files: &[File], found: &mut Vec<Finding>) {
    let functions = Functions::of(files);
    for file in files.iter().filter(|f| f.path.ends_with(".md") && !is_made(&f.path)) {
        let of_its_day = file.path.starts_with("docs/decisions/");
        let mut heads: Vec<&str> = Vec::new();
        let mut fenced = false;
        for (n, line) in file.text.lines().enumerate() {
            fenced ^= line.starts_with("```");
            let mut say = |span: &str| {
                let text = format!("there is no `{span}` any more: name what is there");
                found.push(Finding::new(&file.path, n + 1, "cited", text));
            };
            if !line.starts_with('|') {
                heads.clear();
                if !fenced && !of_its_day {
                    let spans = line.split('`').skip(1).step_by(2).filter_map(function_named);
                    spans.filter(|span| !functions.has(span)).for_each(&mut say);
                }
                continue;
            }
            let cells: Vec<&str> = line.split(" | ").map(|cell| cell.trim_matches(['|', ' '])).collect();
            if heads.is_empty() {
                heads = cells;
                continue;
            }
            for (head, cell) in heads.iter().zip(&cells) {
                for span in cell.split('`').skip(1).step_by(2) {
                    let is_there = match *head {
                        "function" | "tests" => functions.has(span),
                        "kept in" => files.iter().any(|f| {
                            f.path == span || f.path.ends_with(&format!("/{span}")) && f.path.ends_with(".rs")
                        }),
                        _ => function_named(span).is_none_or(|span| of_its_day || functions.has(span)),
                    };
                    if !is_there {
                        say(span);
                    }
                }
            }
        }
    }
}

/// The function that a span of running text names: `place::function` or `function()`, nothing else in it. What belongs to
/// the standard library is none of ours.
fn function_named(span: &str) -> Option<&str> {
    let bare = span.strip_suffix("()").unwrap_or(span);
    let parts: Vec<&str> = bare.split("::").collect();
    let is_name = |part: &&str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let names_one = (parts.len() > 1 || bare != span)
        && parts.iter().all(is_name)
        && parts.last().is_some_and(|name| name.starts_with(|c: char| c.is_ascii_lowercase()));
    (names_one && !matches!(parts[0], "std" | "core")).then_some(bare)
}

#[cfg(test)]
mod tests {
    use super::super::finding::planted;
    use super::*;

    const NONE: [&str; 0] = [];
    const CODE: &str = "crates/bcmr/src/say.rs";

    #[test]
    fn a_rule_that_is_cited_is_defined() {
        let paper = (SAFETY, "| V1 | holds |\n");
        assert_eq!(planted(check, &[paper, (CODE, "// V1: so.\nlet ip = V4(1);\n")]), NONE);
        assert_eq!(planted(check, &[paper, (CODE, "// V1.\n/// V2: so.\n")]), [format!("{CODE}:2 rule")]);
        let kept = (DURABILITY, "- **R1** A name\n- R2 is another, C0 no rule\n");
        assert_eq!(planted(check, &[paper, kept]), ["docs/durability.md:2 rule"]);
        assert_eq!(planted(check, &[paper, ("docs/experiments/a.md", "L9\n")]), NONE);
    }

    #[test]
    fn no_test_is_ignored() {
        let test = concat!("#[test]\n    #[", "ignore = \"slow\"]\nfn it() {}\n");
        assert_eq!(planted(check, &[(CODE, test)]), [format!("{CODE}:2 ignored")]);
        assert_eq!(planted(check, &[(CODE, "// ignored\n#[test]\nfn it() {}\n")]), NONE);
    }

    #[test]
    fn tables_name_functions_and_files_that_are_there() {
        let code = (CODE, "pub(crate) fn say_it() {}\n// fn gone() {}\n");
        let table = |function: &str, file: &str| {
            let text =
                format!("| rule | kept in | tests |\n|---|---|---|\n| V1 | `{file}` | `{function}` |\n");
            planted(check, &[code, ("docs/other.md", &text)])
        };
        assert_eq!(table("say::say_it", "bcmr/src/say.rs"), NONE);
        assert_eq!(table("say_*", "say.rs"), NONE);
        assert_eq!(table("gone", "say.rs"), ["docs/other.md:3 cited"]);
        assert_eq!(table("say_it", "gone.rs"), ["docs/other.md:3 cited"]);
        assert_eq!(table("tell::say_it", "say.rs"), ["docs/other.md:3 cited"], "it is elsewhere");
    }

    #[test]
    fn running_text_names_functions_that_are_there() {
        let code = (CODE, "struct Voice;\nimpl Voice {\n    pub fn say_it() {}\n}\n");
        let text = |text: &str| planted(check, &[code, ("docs/other.md", text)]);
        assert_eq!(
            text("It is `say::say_it`, `Voice::say_it` or `say_it()`, below `[::1]:path`; `std::gone`.\n"),
            NONE
        );
        assert_eq!(
            text("One `gone()`\nand `say::gone`.\n"),
            ["docs/other.md:1 cited", "docs/other.md:2 cited"]
        );
        assert_eq!(text("`Voices::say_it`\n"), ["docs/other.md:1 cited"]);
        assert_eq!(text("```rust\nlet a = `gone()`;\n```\n"), NONE);
        assert_eq!(planted(check, &[code, ("docs/decisions/0001-a.md", "`gone()`\n")]), NONE);
    }
}
