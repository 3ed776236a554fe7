//! What is cited stands somewhere: rules by letter and number, and in the tables of documents functions, tests and files.

use super::source::Source;
use super::{File, Finding};
use std::collections::BTreeSet;

/// Where rules are defined: in rows of tables, and as `**R1**`.
const SAFETY: &str = "docs/safety-rules.md";
const DURABILITY: &str = "docs/durability.md";
const LETTERS: [char; 6] = ['V', 'D', 'S', 'L', 'C', 'R'];

/// Every wall of this file.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut found = Vec::new();
    rules(files, &mut found);
    ignored(files, &mut found);
    tables(files, &mut found);
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
            (_, true) => Source::new(&file.text).comment.iter().map(ToString::to_string).collect(),
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

/// In tables, what stands in backticks below `function`, `tests` and `kept in` is there.
fn tables(files: &[File], found: &mut Vec<Finding>) {
    let mut functions = BTreeSet::new();
    for file in files.iter().filter(|f| f.path.ends_with(".rs")) {
        for line in file.text.lines() {
            let named = line.split("fn ").nth(1).and_then(|rest| words(rest).next());
            functions.extend(named.filter(|_| !line.trim_start().starts_with("//")));
        }
    }
    for file in files.iter().filter(|f| f.path.ends_with(".md") && !is_made(&f.path)) {
        let mut heads: Vec<&str> = Vec::new();
        for (n, line) in file.text.lines().enumerate() {
            if !line.starts_with('|') {
                heads.clear();
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
                        "function" | "tests" => is_function(&functions, span),
                        "kept in" => files.iter().any(|f| {
                            f.path == span || f.path.ends_with(&format!("/{span}")) && f.path.ends_with(".rs")
                        }),
                        _ => true,
                    };
                    if !is_there {
                        let text = format!("there is no `{span}` any more: name what is there");
                        found.push(Finding::new(&file.path, n + 1, "cited", text));
                    }
                }
            }
        }
    }
}

/// `module::name`, or the beginning of several with a star.
fn is_function(functions: &BTreeSet<&str>, span: &str) -> bool {
    let name = span.rsplit("::").next().unwrap_or(span);
    match name.strip_suffix('*') {
        Some(start) => functions.iter().any(|f| f.starts_with(start)),
        None => functions.contains(name),
    }
}

#[cfg(test)]
mod tests {
    use super::super::planted;
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
    }
}
