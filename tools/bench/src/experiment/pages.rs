//! Pages and index from records and from nothing else, as Markdown and as one file for a browser. Must not measure
//! and must not look at the machine it runs on, so that the same JSON always gives the same pages.

use super::plot;
use super::record::{Part, Record, figure, paired};
use crate::measure::median;
use crate::verdict::{
    COST_PART, COST_WHOLE, EFFECT_PART, EFFECT_WHOLE, GROWTH_PART, Judged, PERCENT, ROUNDS_MIN, Rule, Verdict,
};
use sh::Result;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Others took so much of the machine that figures are worth little.
const DISTURBED: f64 = 0.1;

/// In the order of the index.
const GROUPS: [&str; 5] = ["local", "wire", "checkpoint", "paper", "library"];

/// What a page is made of; texts may have code between backticks.
enum Block {
    Head(usize, String),
    Text(String),
    Table(Vec<String>, Vec<Vec<String>>),
    /// The picture of the experiment with this id.
    Plot(String),
}

/// Every record in `dir`.
pub fn load(dir: &Path) -> Result<Vec<Record>> {
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "json") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            texts.push((name, std::fs::read_to_string(&path)?));
        }
    }
    let mut records = Vec::new();
    for (name, text) in texts {
        records.push(read(&name, &text)?);
    }
    Ok(records)
}

/// One record; its file is called by its id.
pub fn read(name: &str, text: &str) -> Result<Record> {
    let record: Record = serde_json::from_str(text).map_err(|e| format!("{name}: {e}"))?;
    if name != format!("{}.json", record.id) || record.schema != 1 {
        return Err(format!("{name}: not the record of an experiment, or of another schema").into());
    }
    Ok(record)
}

/// Writes everything that follows from the records in `dir`, beside them, and takes away pages without a record.
pub fn write(dir: &Path) -> Result {
    let files = files(load(dir)?);
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let stem = [".md", ".svg"].iter().find_map(|end| name.strip_suffix(end));
        // Other files there belong to the user.
        let (group, number, _) = place(stem.unwrap_or_default());
        if group < GROUPS.len() && number < u32::MAX && !files.contains_key(&name) {
            std::fs::remove_file(&path)?;
        }
    }
    for (name, text) in &files {
        std::fs::write(dir.join(name), text)?;
    }
    Ok(())
}

/// Name and text of every page, picture and index.
pub fn files(mut records: Vec<Record>) -> BTreeMap<String, String> {
    records.sort_by_key(|r| place(&r.id));
    let mut files = BTreeMap::new();
    let mut body = String::new();
    let index = index(&records);
    html(&index, &BTreeMap::new(), &mut body);
    for record in &records {
        let picture = plot::draw(record);
        let blocks = page(record);
        let _infallible = writeln!(body, "<section id=\"{}\">", record.id);
        html(&blocks, &BTreeMap::from([(record.id.as_str(), picture.as_str())]), &mut body);
        body.push_str("</section>\n");
        files.insert(format!("{}.md", record.id), markdown(&blocks));
        files.insert(format!("{}.svg", record.id), picture);
    }
    files.insert("index.md".to_owned(), markdown(&index));
    files.insert("index.html".to_owned(), format!("{HTML_HEAD}{body}</body>\n</html>\n"));
    files
}

/// As the catalogue has them, without knowing it.
fn place(id: &str) -> (usize, u32, String) {
    let (group, number) = id.split_once('-').unwrap_or((id, ""));
    let at = GROUPS.iter().position(|g| *g == group).unwrap_or(GROUPS.len());
    (at, number.parse().unwrap_or(u32::MAX), id.to_owned())
}

fn cells(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}

/// The published figure, or the bound, in words.
pub fn published(rule: Rule) -> String {
    match rule {
        Rule::Effect { published } => figure(published),
        Rule::Cost { published } => format!("{} at most", figure(published)),
        Rule::Same => figure(1.0),
        Rule::Growth { most } | Rule::Limit { most } => format!("{} at most", figure(most)),
    }
}

/// The median and its interval.
pub fn measured(found: &Judged) -> String {
    match found.interval {
        Some(interval) => {
            format!("{} ({} - {})", figure(found.value), figure(interval.least), figure(interval.most))
        }
        None => figure(found.value),
    }
}

/// What the papers are, for readers who have not got them.
const PAPERS: [(&str, &str); 5] = [
    (
        "Local Multi-File Performance",
        "experiments 7 to 16: a design note of an earlier copier of this name, on copying many files on one machine",
    ),
    (
        "Wire Protocol & Remote Transfers",
        "experiments 9 to 20: a design note of the same, on copies between machines",
    ),
    (
        "Streaming Checkpoint Copy",
        "experiments 1 to 6: a design note of the same, on verifying and on going on after a crash",
    ),
    (
        "Asynchronous I/O for `cp -r`",
        "sections 5.1 and 5.2: Vincent Lee and Gualberto A. Guzman, 2017, on copying trees with Linux AIO",
    ),
    ("fastcopy", "the benchmark table of a Rust library of 2018 (nicokoch/fastcopy) for copy_file_range"),
];

/// `3 hold, 1 is undecided`: as far as there are any.
fn counted(count: impl Fn(Verdict) -> usize) -> String {
    let words = Verdict::ALL.map(|verdict| (count(verdict), verdict.word()));
    let words: Vec<String> =
        words.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

fn index(records: &[Record]) -> Vec<Block> {
    let mut machines: Vec<&str> = records.iter().map(|r| r.machine.as_str()).collect();
    machines.sort_unstable();
    machines.dedup();
    let claims: usize = records.iter().map(|r| r.claims.len()).sum();
    let mut blocks = vec![
        Block::Head(1, "Experiments".to_owned()),
        Block::Text(
            "What five papers claim, repeated here by `cargo xtask experiment all`. All of this is made by that command \
             from the JSON file of each experiment, never by hand; `cargo xtask experiment report DIR` makes it again."
                .to_owned(),
        ),
        Block::Text(format!(
            "{claims} claims in {} experiments: {}.",
            records.len(),
            counted(|verdict| records.iter().map(|r| r.count(verdict)).sum())
        )),
    ];
    blocks.extend(machines.iter().map(|m| Block::Text(format!("Measured on: {m}."))));
    if records.iter().any(|r| r.quick) {
        blocks.push(Block::Text(QUICK.to_owned()));
    }
    let rows = records.iter().map(|record| {
        let headline = record.claims.first().map(|claim| (claim, record.judge(claim)));
        let (says, paper, here) = headline.map_or_else(Default::default, |(claim, found)| {
            (claim.says.clone(), published(claim.rule), measured(&found))
        });
        vec![
            format!("[{}]({}.md)", record.id, record.id),
            record.title.clone(),
            says,
            paper,
            here,
            record.verdict().word().to_owned(),
            counted(|verdict| record.count(verdict)),
        ]
    });
    let rows = rows.collect();
    let head = cells(&["experiment", "", "headline claim", "paper", "here", "verdict", "all its claims"]);
    let papers = PAPERS.iter().map(|(name, what)| vec![format!("*{name}*"), (*what).to_owned()]).collect();
    blocks.extend([
        Block::Table(head, rows),
        Block::Head(2, "The papers".to_owned()),
        Block::Table(cells(&["paper", ""]), papers),
        Block::Text("Each page names its paper below its verdict; *the paper* on it is that one.".to_owned()),
        Block::Head(2, "How they are measured".to_owned()),
        Block::Text(
            "The lines of an experiment take turns within each round (A B C A B C ...), and everything is written back \
             before each run. A value is the median over rounds, with the least and the most beside it; a ratio is the \
             median over rounds of one line's value over the other's in the same round. The papers measured on other \
             machines, so their seconds say little here and their ratios more."
                .to_owned(),
        ),
        Block::Head(2, "How verdicts come about".to_owned()),
        Block::Text(format!(
            "By rule, for each claim. *A differs from B by a ratio*: what counts is how much of the published effect is \
             there, log(here) / log(paper); from {EFFECT_WHOLE} it holds, from {EFFECT_PART} it holds less. *A costs so \
             much of B, at most*: up to {COST_WHOLE} times the published ratio it holds, up to {COST_PART} times it holds \
             less. *A and B are the same*: the same two borders, in both directions. *It grows by so much at most*: up to \
             {GROWTH_PART} times that it holds less. A bound is kept or is not. Everything else does not hold here."
        )),
        Block::Text(format!(
            "The interval beside a claim is where its median lies with a certainty of {PERCENT} % (a bootstrap over \
             rounds). Where a border lies inside of it, or where there were fewer than {ROUNDS_MIN} rounds, the claim is \
             *undecided*. What is counted and not timed has no interval. The verdict of a page is that of its headline, \
             the first of its claims."
        )),
    ]);
    blocks
}

const QUICK: &str =
    "**Quick: a part of the data and few rounds, to see that it runs. These figures are for no record.**";

fn page(record: &Record) -> Vec<Block> {
    let mut blocks = vec![
        Block::Head(1, format!("{}: {}", record.id, record.title)),
        Block::Text(format!("**Verdict: {}.** (The paper: {}.)", record.verdict().word(), record.text)),
        Block::Text(format!("**Hypothesis.** {}", record.hypothesis)),
        Block::Text(format!("**Method.** {}", record.method)),
    ];
    if !record.differs.is_empty() {
        blocks.push(Block::Text(format!("**Otherwise than in the paper.** {}", record.differs)));
    }
    if record.quick {
        blocks.push(Block::Text(QUICK.to_owned()));
    }
    if let Some(why) = &record.not_run {
        blocks.push(Block::Text(format!("**Not run:** {why}.")));
    }
    blocks.push(Block::Text(format!(
        "{}. `{}` at {}, {} s.",
        record.machine,
        record.command,
        record.commit,
        figure(record.took_s)
    )));
    if let Some(part) = record.disturbed() {
        let word = if part > DISTURBED { " **Disturbed: measure again.**" } else { "" };
        blocks.push(Block::Text(format!(
            "Others used {:.0} % of the machine meanwhile, the kernel's own threads among them.{word}",
            part * 100.0
        )));
    }
    if record.parts.iter().any(|p| p.base().is_some()) {
        blocks.push(Block::Plot(record.id.clone()));
    }
    if !record.claims.is_empty() {
        let rows = record.claims.iter().map(|claim| {
            let found = record.judge(claim);
            let interval = found.interval.map_or_else(String::new, |interval| {
                format!("{} - {}", figure(interval.least), figure(interval.most))
            });
            vec![
                claim.says.clone(),
                published(claim.rule),
                figure(found.value),
                interval,
                found.rounds.to_string(),
                found.verdict.word().to_owned(),
            ]
        });
        blocks.push(Block::Head(2, "What it says".to_owned()));
        let rows = rows.collect();
        blocks.push(Block::Table(
            cells(&["claim", "paper", "here", "95 % interval", "rounds", "verdict"]),
            rows,
        ));
    }
    for part in &record.parts {
        blocks.push(Block::Head(2, part.title.clone()));
        if !part.place.is_empty() {
            blocks.push(Block::Text(format!("{}.", part.place)));
        }
        blocks.push(table(part));
    }
    blocks
}

fn table(part: &Part) -> Block {
    let unit = &part.unit;
    let cpu = part.lines.iter().any(|l| !l.cpu_s.is_empty());
    let mut head = cells(&["", "command"]);
    head.extend([format!("paper, {}", part.published_unit), format!("here, {unit}")]);
    head.extend(cells(&["least - most", "ratio", "rounds"]));
    if cpu {
        head.push("CPU, s".to_owned());
    }
    let rows = part.lines.iter().map(|line| {
        let command = if line.command.is_empty() { String::new() } else { format!("`{}`", line.command) };
        let published = line.published.map_or_else(|| "-".to_owned(), figure);
        if line.values.is_empty() {
            let why = line.absent.clone().unwrap_or_else(|| "not measured".to_owned());
            let mut row = vec![line.name.clone(), command, published, why];
            row.resize(head.len(), String::new());
            return row;
        }
        let (least, most) = line.range();
        let ratio = part.base().map_or_else(String::new, |base| figure(median(paired(line, base))));
        let mut row = vec![
            line.name.clone(),
            command,
            published,
            figure(line.median()),
            format!("{} - {}", figure(least), figure(most)),
            ratio,
            line.values.len().to_string(),
        ];
        if cpu {
            row.push(if line.cpu_s.is_empty() {
                String::new()
            } else {
                figure(median(line.cpu_s.iter().copied()))
            });
        }
        row
    });
    let rows = rows.collect();
    Block::Table(head, rows)
}

fn markdown(blocks: &[Block]) -> String {
    let mut out = String::new();
    let cell = |text: &String| text.replace('|', "\\|");
    for (n, block) in blocks.iter().enumerate() {
        if n > 0 {
            out.push('\n');
        }
        match block {
            Block::Head(level, text) => out.push_str(&format!("{} {text}\n", "#".repeat(*level))),
            Block::Text(text) => out.push_str(&format!("{text}\n")),
            Block::Plot(id) => out.push_str(&format!("![{id}]({id}.svg)\n")),
            Block::Table(head, rows) => {
                for (n, row) in std::iter::once(head).chain(rows).enumerate() {
                    let row: Vec<String> = row.iter().map(cell).collect();
                    out.push_str(&format!("| {} |\n", row.join(" | ")));
                    if n == 0 {
                        out.push_str(&format!("|{}\n", "---|".repeat(head.len())));
                    }
                }
            }
        }
    }
    out
}

const HTML_HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
    <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Experiments</title>\n<style>\n\
    :root { color-scheme: light dark; }\n\
    body { font: 16px/1.5 sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }\n\
    table { border-collapse: collapse; font-size: 0.875rem; display: block; overflow-x: auto; }\n\
    th, td { border: 1px solid #8886; padding: 0.2rem 0.5rem; text-align: left; vertical-align: top; }\n\
    section { border-top: 2px solid #8886; margin-top: 3rem; }\n\
    svg { max-width: 100%; height: auto; }\n\
    code { font-size: 0.875em; }\n</style>\n</head>\n<body>\n";

fn html(blocks: &[Block], pictures: &BTreeMap<&str, &str>, out: &mut String) {
    for block in blocks {
        let text = match block {
            // A page's own title is a second one here.
            Block::Head(level, text) => {
                let level = if pictures.is_empty() { *level } else { level + 1 };
                format!("<h{level}>{}</h{level}>\n", inline(text))
            }
            Block::Text(text) => format!("<p>{}</p>\n", inline(text)),
            Block::Plot(id) => pictures.get(id.as_str()).copied().unwrap_or_default().to_owned(),
            Block::Table(head, rows) => {
                let row = |tag: &str, cells: &Vec<String>| {
                    let cells: String =
                        cells.iter().map(|c| format!("<{tag}>{}</{tag}>", inline(c))).collect();
                    format!("<tr>{cells}</tr>\n")
                };
                let body: String = rows.iter().map(|r| row("td", r)).collect();
                format!("<table>\n{}{body}</table>\n", row("th", head))
            }
        };
        out.push_str(&text);
    }
}

/// Code, strong and emphasised words, and links to pages, which are sections here.
fn inline(text: &str) -> String {
    let mut out = String::new();
    for (n, part) in text.split('`').enumerate() {
        let part = escape(part);
        if n % 2 == 1 {
            out.push_str(&format!("<code>{part}</code>"));
        } else {
            out.push_str(&wrapped(&wrapped(&linked(&part), "**", "strong"), "*", "em"));
        }
    }
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn wrapped(text: &str, mark: &str, tag: &str) -> String {
    let parts: Vec<&str> = text.split(mark).collect();
    if parts.len().is_multiple_of(2) {
        return text.to_owned();
    }
    let mut out = String::new();
    for (n, part) in parts.iter().enumerate() {
        out.push_str(&if n % 2 == 1 { format!("<{tag}>{part}</{tag}>") } else { (*part).to_owned() });
    }
    out
}

/// `[id](id.md)` as a whole.
fn linked(text: &str) -> String {
    let link = || {
        let (name, target) = text.strip_prefix('[')?.strip_suffix(".md)")?.split_once("](")?;
        Some(format!("<a href=\"#{target}\">{name}</a>"))
    };
    link().unwrap_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::record;
    use super::*;

    #[test]
    fn pages_follow_from_the_json_alone() {
        let dir = tempfile::tempdir().unwrap();
        let mut absent = record("checkpoint-5");
        absent.not_run = Some("there is no such call here".to_owned());
        (absent.parts, absent.claims) = (Vec::new(), Vec::new());
        for it in [record("wire-9"), record("local-13"), record("local-7"), absent] {
            let text = serde_json::to_string(&it).unwrap();
            std::fs::write(dir.path().join(format!("{}.json", it.id)), text).unwrap();
        }
        for name in ["local-8.md", "README.md"] {
            std::fs::write(dir.path().join(name), "of no record\n").unwrap();
        }
        write(dir.path()).unwrap();
        assert!(!dir.path().join("local-8.md").exists(), "its record is no more");
        assert!(dir.path().join("README.md").exists(), "the user's own");
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();

        let index = read("index.md");
        let at = |id: &str| index.find(&format!("[{id}]")).unwrap();
        assert!(at("local-7") < at("local-13") && at("local-13") < at("wire-9"), "{index}");
        assert!(index.contains("6 claims in 4 experiments: 3 holds, 3 not measured."), "{index}");
        assert!(index.contains("| [local-7](local-7.md) | Files <by> the many | so | 0.50 | 0.50 (0.50 - 0.53) | holds | 1 holds, 1 not measured |"));

        let page = read("local-7.md");
        assert!(page.contains("**Verdict: holds.**") && page.contains("![local-7](local-7.svg)"), "{page}");
        assert!(page.contains("| so | 0.50 | 0.50 | 0.50 - 0.53 | 3 | holds |"), "{page}");
        assert!(page.contains("| ours | `ours SRC DST` | 0.50 | 2.00 | 0.50 - 2.12 | 0.50 | 3 |"), "{page}");
        assert!(page.contains("| xcp | `xcp SRC DST` | - | not there | "), "{page}");
        assert!(read("checkpoint-5.md").contains("**Not run:** there is no such call here."));

        let html = read("index.html");
        assert!(
            html.contains("<a href=\"#local-7\">local-7</a>") && html.contains("<section id=\"local-7\">")
        );
        assert!(html.contains(&read("local-7.svg")), "the pictures are in it");
        assert!(html.contains("Files &lt;by&gt; the many") && html.contains("so &amp; so"));
        assert!(html.contains("<strong>Verdict: holds.</strong>"));
        for tag in ["section", "table", "tr", "td", "p", "code", "strong", "em", "svg"] {
            let opened =
                html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, html.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn a_record_is_called_by_its_id() {
        let text = serde_json::to_string(&record("local-7")).unwrap();
        assert!(super::read("local-7.json", &text).is_ok());
        assert!(super::read("local-8.json", &text).is_err());
        assert!(super::read("local-7.json", &text.replace("\"schema\":1", "\"schema\":2")).is_err());
    }
}
