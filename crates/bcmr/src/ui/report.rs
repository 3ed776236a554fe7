//! The page of `--report`: one HTML file without scripts, and without anything from elsewhere.
//!
//! Pure: values in, text out. Every name passes [`escaped`], which leaves nothing that HTML could take for markup.

use super::receipt::Receipt;
use crate::names;
use crate::say;
use crate::show::Show;
use crate::voice::Voice;
use bcmr_engine::event::{Action, Event, SlowFile, Summary};
use std::collections::HashMap;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// Points of the plot at most; with more of them, every second one goes.
const POINTS_MAX: usize = 600;
/// Kinds of files that are told apart; further ones count together.
const TYPES_MAX: usize = 500;
/// Errors and warnings that are on the page; further ones are counted.
const TROUBLES_MAX: usize = 1000;
/// Rows of a table of types.
const TYPE_ROWS: usize = 15;
const NO_TYPE: &str = "(none)";
const OTHER_TYPES: &str = "(others)";

/// Classes of sizes: up to so many bytes each, and one for all larger files.
const CLASSES: [(u64, &str); 6] = [
    (0, "empty"),
    (4 << 10, "up to 4 KiB"),
    (64 << 10, "up to 64 KiB"),
    (1 << 20, "up to 1 MiB"),
    (16 << 20, "up to 16 MiB"),
    (1 << 30, "up to 1 GiB"),
];
const LARGEST: &str = "over 1 GiB";

/// What is gathered while a run goes on.
#[derive(Debug, Default)]
pub struct Gathered {
    /// Bytes copied at each time.
    rates: Vec<(Duration, u64)>,
    /// Files and bytes of each class of sizes.
    sizes: [(u64, u64); CLASSES.len() + 1],
    types: HashMap<String, (u64, u64)>,
    troubles: Vec<String>,
    more_troubles: u64,
}

impl Gathered {
    /// So much was copied at this time.
    pub fn rate(&mut self, at: Duration, bytes: u64) {
        if self.rates.len() >= POINTS_MAX {
            let mut at = 0_usize;
            self.rates.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
        // The longer it takes, the fewer points a second.
        let apart = self.rates.last().map_or(Duration::ZERO, |last| last.0) / 400;
        if self.rates.last().is_none_or(|last| at >= last.0 + apart) {
            self.rates.push((at, bytes));
        }
    }

    /// Takes what the page has of it.
    pub fn event(&mut self, voice: &Voice, event: &Event) {
        match event {
            Event::Item { action: Action::Copied | Action::Renamed, dst, bytes, .. } => {
                let class = CLASSES.iter().position(|class| *bytes <= class.0).unwrap_or(CLASSES.len());
                if let Some(size) = self.sizes.get_mut(class) {
                    *size = (size.0 + 1, size.1 + bytes);
                }
                let name = type_of(dst);
                let known = self.types.len() < TYPES_MAX || self.types.contains_key(&name);
                let of_type = self.types.entry(if known { name } else { OTHER_TYPES.into() }).or_default();
                *of_type = (of_type.0 + 1, of_type.1 + bytes);
            }
            Event::Failed(e) => self.trouble(say::error(voice, e)),
            Event::Warning(e) => self.trouble(say::warning(voice, e)),
            _ => {}
        }
    }

    fn trouble(&mut self, line: String) {
        if self.troubles.len() < TROUBLES_MAX {
            self.troubles.push(line);
        } else {
            self.more_troubles += 1;
        }
    }
}

/// What stands behind the last dot, in small letters; short, as one file may be called anything.
fn type_of(path: &Path) -> String {
    match path.extension() {
        Some(end) if end.len() <= 12 => format!(".{}", names::bare(end.as_bytes()).to_ascii_lowercase()),
        _ => NO_TYPE.into(),
    }
}

/// What a page is made from.
pub struct Page<'a> {
    pub show: &'a Show,
    pub summary: &'a Summary,
    /// Absent where nothing landed.
    pub receipt: Option<&'a Receipt>,
    pub gathered: &'a Gathered,
    pub slowest: &'a [SlowFile],
    pub exit: u8,
    pub took: Duration,
}

const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8884;--bar:#3a7ca5;--bad:#b3261e}\
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.5rem;margin-bottom:.2rem}h2{font-size:1.1rem;margin-top:2rem}\
code,pre,td.name{font-family:ui-monospace,monospace;overflow-wrap:anywhere}\
pre{white-space:pre-wrap;border:1px solid var(--line);border-radius:4px;padding:.5rem}\
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.15rem .8rem .15rem 0;\
border-bottom:1px solid var(--line);vertical-align:top}td.n,th.n{text-align:right;white-space:nowrap}\
td.bar{width:30%}td.bar i{display:block;height:.8em;background:var(--bar)}\
svg{width:100%;height:auto;border:1px solid var(--line);border-radius:4px}\
.bad{color:var(--bad)}.small{opacity:.7;font-size:.85rem}";

/// What tells a page from any other file.
const FIRST_LINE: &str = "<!doctype html><!-- a report of bcmr -->";

/// Whether a file with this first line is one.
pub fn is_page(first_line: &[u8]) -> bool {
    first_line == FIRST_LINE.as_bytes()
}

/// The whole page.
pub fn page(p: &Page<'_>) -> String {
    let show = p.show;
    let command: Vec<String> = show.line.iter().map(|word| names::shell_word(word)).collect();
    let when = say::moment_of(show.now);
    let mut out = String::new();
    // Without a policy of its own a browser would fetch what a page asks for; this one asks for nothing.
    let head = "<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
        <meta name=\"viewport\" content=\"width=device-width\">\n\
        <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n";
    put(&mut out, &format!("{FIRST_LINE}\n{head}"));
    put(
        &mut out,
        &format!(
            "<title>bcmr {}: {}</title>\n<style>{STYLE}</style></head><body>\n",
            show.verb.name(),
            escaped(&when)
        ),
    );
    put(
        &mut out,
        &format!("<h1>bcmr {}</h1>\n<p class=\"small\">{}</p>\n", show.verb.name(), escaped(&when)),
    );
    put(&mut out, &format!("<pre>{}</pre>\n", escaped(&command.join(" "))));
    let bad = if p.exit == 0 { "" } else { " class=\"bad\"" };
    let reused = p.receipt.map_or(0, |r| r.reused);
    let summary = say::summary(show.voice, show.verb, show.dry_run, p.summary, reused, p.took);
    put(&mut out, &format!("<p{bad}>{}; exit status {}</p>\n", escaped(&summary), p.exit));
    if let Some(receipt) = p.receipt {
        let lines = say::receipt(show, receipt);
        let rows: Vec<String> = lines.iter().filter_map(|line| row(show, line)).collect();
        if !rows.is_empty() {
            put(&mut out, &format!("<h2>Receipt</h2>\n<table>{}</table>\n", rows.concat()));
        }
    }
    put(&mut out, &plot(&p.gathered.rates));
    put(&mut out, &sizes(p.gathered));
    put(&mut out, &types(p.gathered));
    put(&mut out, &slowest(p.slowest));
    put(&mut out, &troubles(p.gathered));
    put(&mut out, &format!("<p class=\"small\">bcmr {}</p>\n</body></html>\n", env!("CARGO_PKG_VERSION")));
    out
}

/// A line of the receipt as a row: what stands before its first colon, and the rest.
fn row(show: &Show, line: &str) -> Option<String> {
    let line = line.strip_prefix(show.voice.program)?.strip_prefix(": ")?;
    let (what, rest) = line.split_once(": ")?;
    Some(format!("<tr><th>{}</th><td class=\"name\">{}</td></tr>\n", escaped(what), escaped(rest)))
}

/// Bytes a second over time, as a picture.
fn plot(points: &[(Duration, u64)]) -> String {
    const WIDTH: f64 = 900.0;
    const HEIGHT: f64 = 220.0;
    const LEFT: f64 = 90.0;
    const BELOW: f64 = 24.0;
    let rates: Vec<(f64, f64)> = points
        .windows(2)
        .filter_map(|pair| {
            let [from, to] = pair else { return None };
            let took = to.0.saturating_sub(from.0).as_secs_f64();
            (took > 0.0).then(|| (to.0.as_secs_f64(), to.1.saturating_sub(from.1) as f64 / took))
        })
        .collect();
    // Means over a few points: single looks fall between two writes.
    let smooth: Vec<(f64, f64)> = rates
        .windows(rates.len().div_ceil(60).max(1))
        .filter_map(|near| {
            let mean = near.iter().map(|point| point.1).sum::<f64>() / near.len() as f64;
            near.last().map(|last| (last.0, mean))
        })
        .collect();
    let most = smooth.iter().map(|point| point.1).fold(0.0, f64::max);
    let end = smooth.last().map_or(0.0, |last| last.0);
    if smooth.len() < 2 || most <= 0.0 {
        return String::new();
    }
    let x = |at: f64| LEFT + (WIDTH - LEFT) * at / end;
    let y = |rate: f64| 10.0 + (HEIGHT - 10.0) * (1.0 - rate / most);
    let mut path = String::new();
    for (n, (at, rate)) in smooth.iter().enumerate() {
        put(&mut path, &format!("{}{:.1} {:.1}", if n == 0 { "M" } else { "L" }, x(*at), y(*rate)));
    }
    let mut marks = String::new();
    for part in 0..=2 {
        let rate = most * f64::from(part) / 2.0;
        put(
            &mut marks,
            &format!(
                "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#8886\"/>\
                 <text x=\"{tx}\" y=\"{ty:.1}\" text-anchor=\"end\">{}/s</text>",
                say::size(rate as u64),
                y = y(rate),
                tx = LEFT - 6.0,
                ty = y(rate) + 4.0,
            ),
        );
    }
    format!(
        "<h2>Rate over time</h2>\n<svg viewBox=\"0 0 {} {}\" font-size=\"12\" fill=\"currentColor\" role=\"img\" \
         aria-label=\"bytes a second over time\">{marks}\
         <text x=\"{LEFT}\" y=\"{ty}\">0:00</text><text x=\"{WIDTH}\" y=\"{ty}\" text-anchor=\"end\">{}</text>\
         <path d=\"{path}\" fill=\"none\" stroke=\"#3a7ca5\" stroke-width=\"2\"/></svg>\n",
        WIDTH + 10.0,
        HEIGHT + BELOW,
        say::clock(Duration::from_secs_f64(end)),
        ty = HEIGHT + BELOW - 6.0,
    )
}

fn table(head: &str, first: &str, rows: &[(String, u64, u64)]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let most = rows.iter().map(|row| row.2).max().unwrap_or(0).max(1);
    let mut out = format!(
        "<h2>{head}</h2>\n<table><tr><th>{first}</th><th class=\"n\">files</th><th class=\"n\">bytes</th><th></th></tr>\n"
    );
    for (name, files, bytes) in rows {
        let percent = u128::from(*bytes) * 100 / u128::from(most);
        put(
            &mut out,
            &format!(
                "<tr><td class=\"name\">{}</td><td class=\"n\">{files}</td><td class=\"n\">{}</td>\
                 <td class=\"bar\"><i style=\"width:{percent}%\"></i></td></tr>\n",
                escaped(name),
                say::size(*bytes)
            ),
        );
    }
    out + "</table>\n"
}

fn sizes(gathered: &Gathered) -> String {
    let names = CLASSES.iter().map(|class| class.1).chain([LARGEST]);
    let rows: Vec<(String, u64, u64)> = names
        .zip(gathered.sizes)
        .filter(|(_, (files, _))| *files > 0)
        .map(|(name, (files, bytes))| (name.to_owned(), files, bytes))
        .collect();
    table("Sizes", "size", &rows)
}

fn types(gathered: &Gathered) -> String {
    let mut rows: Vec<(String, u64, u64)> =
        gathered.types.iter().map(|(name, (files, bytes))| (name.clone(), *files, *bytes)).collect();
    rows.sort_by(|a, b| (b.2, b.1, &a.0).cmp(&(a.2, a.1, &b.0)));
    if rows.len() > TYPE_ROWS {
        let rest = rows.split_off(TYPE_ROWS);
        let (files, bytes) = rest.iter().fold((0, 0), |sum, row| (sum.0 + row.1, sum.1 + row.2));
        rows.push((OTHER_TYPES.into(), files, bytes));
    }
    table("Types", "type", &rows)
}

fn slowest(files: &[SlowFile]) -> String {
    if files.is_empty() {
        return String::new();
    }
    let mut out = "<h2>Slowest files</h2>\n<table><tr><th>file</th><th class=\"n\">bytes</th><th class=\"n\">time</th></tr>\n".to_owned();
    for file in files {
        put(
            &mut out,
            &format!(
                "<tr><td class=\"name\">{}</td><td class=\"n\">{}</td><td class=\"n\">{:.3} s</td></tr>\n",
                escaped(&names::bare(file.path.as_os_str().as_bytes())),
                say::size(file.bytes),
                file.took.as_secs_f64()
            ),
        );
    }
    out + "</table>\n<p class=\"small\">Small files land together; each one's share is told.</p>\n"
}

fn troubles(gathered: &Gathered) -> String {
    if gathered.troubles.is_empty() {
        return String::new();
    }
    let mut out = "<h2>Errors and warnings</h2>\n<pre class=\"bad\">".to_owned();
    for line in &gathered.troubles {
        put(&mut out, &escaped(line));
        out.push('\n');
    }
    if gathered.more_troubles > 0 {
        put(&mut out, &format!("and {} more\n", gathered.more_troubles));
    }
    out + "</pre>\n"
}

fn put(out: &mut String, text: &str) {
    // Writing to a string does not fail.
    out.write_str(text).unwrap_or_default();
}

/// Text in which HTML finds no markup, within elements and between quotes; and nothing that turns the reading order.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in names::text(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::Verb;
    use crate::ui::tests::show;
    use bcmr_engine::error::{Code, Error, Op, Reason};
    use std::ffi::OsString;

    const HOSTILE: &str = "<script>alert(1)</script>\"onload='x'&<img src=//evil>\u{202e}";

    fn made(gathered: &Gathered, slowest: &[SlowFile]) -> String {
        let mut show = show(Verb::Copy);
        show.line = ["bcmr", "copy", HOSTILE, "d"].map(OsString::from).to_vec();
        let summary = Summary { files: 2, bytes: 4096, ..Summary::default() };
        page(&Page {
            show: &show,
            summary: &summary,
            receipt: None,
            gathered,
            slowest,
            exit: 1,
            took: Duration::from_secs(2),
        })
    }

    /// A name is text wherever it stands, and nothing is asked of any other machine.
    #[test]
    fn a_hostile_name_is_only_a_name() {
        let mut gathered = Gathered::default();
        let dst: std::path::PathBuf = format!("d/x.{HOSTILE}").into();
        for n in 0..10 {
            gathered.rate(Duration::from_secs(n), n * n * 1000);
        }
        let copied =
            |dst: &str| Event::Item { action: Action::Copied, src: "".into(), dst: dst.into(), bytes: 9 };
        gathered.event(&crate::voice::BCMR, &copied("d/x.<b>"));
        gathered.event(&crate::voice::BCMR, &copied("d/y.jpg"));
        let e = Error::ours(Code::Denied, Op::Open, &dst, Reason::Said.about(HOSTILE));
        gathered.event(&crate::voice::BCMR, &Event::Failed(e));
        let slow = SlowFile { path: dst, bytes: 5, took: Duration::from_millis(1500) };
        let html = made(&gathered, &[slow]);
        for bad in ["<script", "<img", "<b>", "onload='", "\u{202e}", "http://", "https://", "src="] {
            let found = html.find(bad).map(|at| html.get(at.saturating_sub(60)..at + 20));
            assert!(bad == "src=" || found.is_none(), "{bad}: {found:?}");
        }
        assert!(html.contains("&lt;script&gt;alert(1)") && html.contains("1.500 s"), "{html}");
        assert!(html.contains("<svg") && html.contains(".jpg") && html.contains("exit status 1"));
        // Every element is closed.
        for element in ["table", "tr", "td", "pre", "svg", "body", "html"] {
            let opened =
                html.matches(&format!("<{element}>")).count() + html.matches(&format!("<{element} ")).count();
            assert_eq!(opened, html.matches(&format!("</{element}>")).count(), "{element}");
        }
    }

    #[test]
    fn what_is_gathered_has_a_bound() {
        let mut gathered = Gathered::default();
        for n in 0..100_000_u64 {
            gathered.rate(Duration::from_millis(n * 50), n);
        }
        assert!(gathered.rates.len() <= POINTS_MAX + 1, "{}", gathered.rates.len());
        for n in 0..2 * TYPES_MAX {
            let dst = format!("a.{n}").into();
            let item = Event::Item { action: Action::Copied, src: "".into(), dst, bytes: 1 };
            gathered.event(&crate::voice::BCMR, &item);
        }
        assert_eq!(gathered.types.len(), TYPES_MAX + 1);
        for _ in 0..2 * TROUBLES_MAX {
            let e = Error::ours(Code::Denied, Op::Open, "x", Reason::Interrupted);
            gathered.event(&crate::voice::BCMR, &Event::Warning(e));
        }
        assert_eq!((gathered.troubles.len(), gathered.more_troubles), (TROUBLES_MAX, TROUBLES_MAX as u64));
        assert!(made(&gathered, &[]).contains("and 1000 more"));
        assert!(!made(&Gathered::default(), &[]).contains("<svg"));
    }
}
