//! `cargo xtask man DIR`: man pages. Those of commands are written by the binary itself from its argument definitions; those of
//! sections 5 and 7 are made from documents.
//!
//! Understands as much of Markdown as these documents use. Must not know what they say.

use crate::typed;
use clap::Parser;
use sh::Result;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// A page that is made from a document.
struct ManPage {
    name: &'static str,
    section: u8,
    what: &'static str,
    document: &'static str,
    /// Only what stands below this heading.
    below: Option<&'static str>,
    see_also: &'static [&'static str],
}

const PAGES: [ManPage; 3] = [
    ManPage {
        name: "bcmr-json",
        section: 7,
        what: "events that bcmr prints for programs",
        document: "docs/json.md",
        below: None,
        see_also: &["bcmr (1)", "bcmr-schema (1)"],
    },
    ManPage {
        name: "bcmr-remote",
        section: 7,
        what: "copies between machines with bcmr",
        document: "docs/remote.md",
        below: None,
        see_also: &["bcmr-copy (1)", "bcmr-serve (1)", "bcmr.toml (5)", "ssh (1)"],
    },
    ManPage {
        name: "bcmr.toml",
        section: 5,
        what: "configuration of bcmr",
        document: "docs/remote.md",
        below: Some("Configuration"),
        see_also: &["bcmr (1)", "bcmr-config (1)", "bcmr-remote (7)", "ssh_config (5)"],
    },
];

/// Writes all man pages into one folder.
#[derive(Parser)]
#[command(name = "cargo xtask man")]
struct ManPages {
    /// Where they go; it is made if it is not there.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Writes all of them into one folder.
pub fn run(args: &[&str]) -> Result {
    let Some(ManPages { dir }) = typed::parse(args)? else { return Ok(()) };
    fs::create_dir_all(&dir)?;
    let dir = fs::canonicalize(dir)?;
    let epoch = sh::output("git", &["log", "-1", "--format=%ct"])?;
    for page in &PAGES {
        fs::write(dir.join(file_name(page)), made(page, &epoch)?)?;
    }
    let mut program = sh::cargo();
    sh::run(
        program
            .args(["run", "--quiet", "-p", "bcmr", "--", "man"])
            .arg(dir)
            .env("SOURCE_DATE_EPOCH", epoch.trim()),
    )
}

/// Writes those that are made from documents below `man`, each into the folder of its section.
pub fn documents(man: &Path, epoch: &str) -> Result {
    for page in &PAGES {
        let dir = man.join(format!("man{}", page.section));
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(file_name(page)), made(page, epoch)?)?;
    }
    Ok(())
}

fn file_name(page: &ManPage) -> String {
    format!("{}.{}", page.name, page.section)
}

fn made(page: &ManPage, epoch: &str) -> Result<String> {
    let date = sh::output("date", &["--utc", &format!("--date=@{}", epoch.trim()), "+%Y-%m-%d"])?;
    let text = fs::read_to_string(sh::root().join(page.document))?;
    let mut out = format!(
        ".TH {} {} {} bcmr\n.SH NAME\n{} \\- {}\n",
        page.name.to_uppercase().replace('-', "\\-"),
        page.section,
        date.trim(),
        page.name.replace('-', "\\-"),
        page.what
    );
    let body = match page.below {
        None => text,
        Some(heading) => section(&text, heading).ok_or("a document lacks its section")?,
    };
    out += &roff(&body);
    let also: Vec<String> =
        page.see_also.iter().map(|it| format!(".BR {}", it.replace('-', "\\-"))).collect();
    write!(out, ".SH \"SEE ALSO\"\n{}\n", also.join(",\n"))?;
    Ok(out)
}

/// What stands below a heading of the second level, up to the next one.
fn section(text: &str, heading: &str) -> Option<String> {
    let begin = text.find(&format!("\n## {heading}\n"))?;
    let rest = &text[begin + 1..];
    let end = rest[3..].find("\n## ").map_or(rest.len(), |at| at + 3);
    Some(rest[..end].replacen(&format!("## {heading}\n"), "", 1))
}

/// Markdown as roff.
fn roff(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.lines().peekable();
    let mut begun = false;
    while let Some(line) = lines.next() {
        if line.starts_with("# ") || line.is_empty() {
            continue;
        }
        if !begun && !line.starts_with('#') {
            out += ".SH DESCRIPTION\n";
        }
        begun = true;
        if let Some(heading) = line.strip_prefix("## ") {
            out += &format!(".SH \"{}\"\n", plain(heading).to_uppercase());
        } else if let Some(heading) = line.strip_prefix("### ") {
            out += &format!(".SS \"{}\"\n", plain(heading));
        } else if line.starts_with("```") {
            out += ".PP\n.RS 4\n.EX\n";
            for code in lines.by_ref().take_while(|line| !line.starts_with("```")) {
                out += &format!("{}\n", guarded(&code.replace('\\', "\\e").replace('-', "\\-")));
            }
            out += ".EE\n.RE\n";
        } else if line.starts_with('|') {
            // The row below the first one is a line of dashes: what is above it are heads.
            let is_head = lines.peek().is_some_and(|next| next.starts_with("|-") || next.starts_with("| -"));
            if is_head || line.starts_with("|-") || line.starts_with("| -") {
                continue;
            }
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let (first, rest) = cells.split_first().map_or(("", &[][..]), |(first, rest)| (*first, rest));
            let rest: Vec<String> =
                rest.iter().filter(|cell| !cell.is_empty()).map(|cell| inline(cell)).collect();
            out += &format!(".TP\n{}\n{}\n", guarded(&inline(first)), guarded(&rest.join("; ")));
        } else {
            let (request, mut text) = match line.split_once(' ') {
                Some(("-", item)) => (".IP \\(bu 2".to_owned(), item.to_owned()),
                Some((number, item))
                    if number.ends_with('.') && number[..number.len() - 1].parse::<u8>().is_ok() =>
                {
                    (format!(".IP {number} 4"), item.to_owned())
                }
                _ => (".PP".to_owned(), line.to_owned()),
            };
            let goes_on = |next: &&str| {
                !next.is_empty() && !next.starts_with(['#', '|', '`']) && !next.starts_with("- ")
                    || next.starts_with('`') && !next.starts_with("```")
            };
            while let Some(next) = lines.next_if(goes_on) {
                text.push(' ');
                text.push_str(next.trim());
            }
            out += &format!("{request}\n{}\n", guarded(&inline(&text)));
        }
    }
    out
}

/// A line that roff does not take for a request.
fn guarded(line: &str) -> String {
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_owned() }
}

/// Without any marks.
fn plain(text: &str) -> String {
    text.replace(['`', '*'], "").replace('\\', "\\e").replace('"', "\\(dq")
}

/// Code and what is strong in bold, links as their words.
fn inline(text: &str) -> String {
    let mut out = String::new();
    for (n, span) in text.split('`').enumerate() {
        if n % 2 == 1 {
            out += &format!("\\fB{}\\fR", span.replace('\\', "\\e").replace('-', "\\-"));
            continue;
        }
        let span = span.replace('\\', "\\e");
        for (n, part) in span.split("**").enumerate() {
            let part = links(part);
            out += &if n % 2 == 1 { format!("\\fB{part}\\fR") } else { part };
        }
    }
    out
}

fn links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        out += before;
        let Some((words, (_, after))) =
            link.split_once("](").and_then(|(words, target)| Some((words, target.split_once(')')?)))
        else {
            out.push('[');
            rest = link;
            continue;
        };
        out += words;
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_becomes_roff() {
        let text = "# Title\n\nOne `-a` and **two**\nlines, [words](x.md).\n\n## A head\n\n| a | b |\n|---|---|\n| `x` | y | z |\n\n\
                    - .item\n  more\n- next\n\n```toml\n.a = \"b\\n\"\n```\n1. first\n";
        let want = ".SH DESCRIPTION\n.PP\nOne \\fB\\-a\\fR and \\fBtwo\\fR lines, words.\n.SH \"A HEAD\"\n.TP\n\\fBx\\fR\ny; z\n\
                    .IP \\(bu 2\n\\&.item more\n.IP \\(bu 2\nnext\n.PP\n.RS 4\n.EX\n\\&.a = \"b\\en\"\n.EE\n.RE\n.IP 1. 4\nfirst\n";
        assert_eq!(roff(text), want);
    }

    /// Every page is made, has what it is about in it, and groff has nothing to say.
    #[test]
    fn pages_of_documents() {
        let dir = tempfile::tempdir().unwrap();
        documents(dir.path(), "1700000000").unwrap();
        for (page, has) in [
            ("man7/bcmr-json.7", "limited_by"),
            ("man7/bcmr-remote.7", "BCMR_CAS_DIR"),
            ("man5/bcmr.toml.5", "[places]"),
        ] {
            let text = fs::read_to_string(dir.path().join(page)).unwrap();
            assert!(text.contains(has) && text.contains("2023\u{2d}11\u{2d}14"), "{page}: {text}");
            if sh::which("groff").is_some() {
                let mut groff = std::process::Command::new("groff");
                let out =
                    groff.args(["-man", "-Tutf8", "-ww", "-z"]).arg(dir.path().join(page)).output().unwrap();
                let said = String::from_utf8_lossy(&out.stderr);
                assert!(out.status.success() && said.is_empty(), "{page}: {said}");
            }
        }
    }
}
