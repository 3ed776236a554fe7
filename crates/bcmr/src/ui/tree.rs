//! The differences of `check` as a folded tree: directories on the way that hold one branch only are written on one
//! line with it, and a directory that is wholly on one side is one line.
//!
//! ```text
//!   src/ui/
//! ~   plain.rs  size
//! +   tree.rs  4.1 KiB
//! - old/  12 files, 31.0 KiB
//! ```
//!
//! Pure. Must not know where it is printed. The first column holds nothing but the sign, for grep.

use crate::names;
use crate::say::{self, words};
use bcmr_engine::error::Reason;
use bcmr_engine::event::Change;

/// One difference.
#[derive(Clone, Debug)]
pub struct Difference {
    pub change: Change,
    /// Relative to the target, without a slash at either end.
    pub path: Vec<u8>,
    pub directory: bool,
    pub files: u64,
    pub bytes: u64,
    pub why: Reason,
}

/// The sign of a change.
pub fn sign(change: Change) -> char {
    match change {
        Change::Add => '+',
        Change::Extra => '-',
        Change::Differ => '~',
    }
}

/// All lines, each ended by a newline. Sorts what it is given.
pub fn draw(found: &mut [Difference], color: bool) -> String {
    found.sort_by(|a, b| a.path.split(|c| *c == b'/').cmp(b.path.split(|c| *c == b'/')));
    let mut out = String::new();
    // The directories whose lines stand above, each as a prefix that ends in a slash.
    let mut above: Vec<Vec<u8>> = Vec::new();
    let mut rest: &[Difference] = found;
    while let Some((item, after)) = rest.split_first() {
        while above.last().is_some_and(|dir| !item.path.starts_with(dir)) {
            above.pop();
        }
        // Everything below the next directory on the way to the item stands together at the head of `rest`.
        while let Some(dir) = next_dir(&item.path, above.last().map_or(0, Vec::len)) {
            let together = rest.partition_point(|f| f.path.starts_with(dir));
            let Some(last) = rest.get(together.saturating_sub(1)).filter(|_| together > 1) else { break };
            let shared = shared_dir(&item.path, &last.path);
            out.push_str("  ");
            push_name(&mut out, &above, shared);
            out.push('\n');
            above.push(shared.to_vec());
        }
        push_item(&mut out, &above, item, color);
        if item.directory {
            above.push([&item.path, &b"/"[..]].concat());
        }
        rest = after;
    }
    out
}

/// One difference on a line of its own, its path whole.
pub fn flat(item: &Difference, color: bool) -> String {
    let mut out = String::new();
    push_item(&mut out, &[], item, color);
    out
}

/// The path up to and with the first slash after `from`.
fn next_dir(path: &[u8], from: usize) -> Option<&[u8]> {
    let slash = path.get(from..)?.iter().position(|c| *c == b'/')?;
    path.get(..=from + slash)
}

/// The deepest directory that both are in, with its slash.
fn shared_dir<'a>(a: &'a [u8], b: &[u8]) -> &'a [u8] {
    let same = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let same = a.get(..same).unwrap_or_default();
    let end = same.iter().rposition(|c| *c == b'/').map_or(0, |slash| slash + 1);
    same.get(..end).unwrap_or_default()
}

fn push_item(out: &mut String, above: &[Vec<u8>], item: &Difference, color: bool) {
    let (on, off) = match item.change {
        _ if !color => ("", ""),
        Change::Add => ("\x1b[32m", "\x1b[0m"),
        Change::Extra => ("\x1b[31m", "\x1b[0m"),
        Change::Differ => ("\x1b[33m", "\x1b[0m"),
    };
    out.push_str(on);
    out.push(sign(item.change));
    out.push(' ');
    push_name(out, above, &item.path);
    if item.directory {
        out.push('/');
    }
    out.push_str(off);
    match (item.change, item.directory) {
        (Change::Differ, _) => out.push_str(&format!("  {}", words::of(item.why))),
        (_, false) => out.push_str(&format!("  {}", say::size(item.bytes))),
        (_, true) => {
            let files = if item.files == 1 { "file" } else { "files" };
            out.push_str(&format!("  {} {files}, {}", item.files, say::size(item.bytes)));
        }
    }
    out.push('\n');
}

/// Indents by the lines above, and writes the part of the path that they do not.
fn push_name(out: &mut String, above: &[Vec<u8>], path: &[u8]) {
    out.push_str(&"  ".repeat(above.len()));
    let name = path.get(above.last().map_or(0, Vec::len)..).unwrap_or_default();
    out.push_str(&names::bare(if name.is_empty() { b"." } else { name }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lines: &str) -> Vec<Difference> {
        let one = |line: &str| {
            let (sign, path) = line.split_once(' ').unwrap();
            let change = match sign {
                "+" => Change::Add,
                "-" => Change::Extra,
                _ => Change::Differ,
            };
            let directory = path.ends_with('/');
            let path = path.trim_end_matches('/').as_bytes().to_vec();
            Difference { change, path, directory, files: 1, bytes: 5, why: Reason::BySize }
        };
        lines.lines().map(str::trim).filter(|l| !l.is_empty()).map(one).collect()
    }

    #[test]
    fn folded() {
        let mut all = found(
            "- z
             + a/b/c/two
             ~ a/b/c/one
             + lone/way/down
             + new/
             ~ a/d/e
             ~ mode/
             + mode/x
             + a-b",
        );
        let want = "  a/
    b/c/
~     one  size
+     two  5 B
~   d/e  size
+ a-b  5 B
+ lone/way/down  5 B
~ mode/  size
+   x  5 B
+ new/  1 file, 5 B
- z  5 B
";
        assert_eq!(draw(&mut all, false), want);
    }

    #[test]
    fn names_cannot_lie() {
        let mut all = found("+ x");
        all[0].path = b"a\n+ b\x1b[2J".to_vec();
        assert_eq!(draw(&mut all, false), "+ a\\x0a+ b\\x1b[2J  5 B\n");
        all[0].path = Vec::new();
        assert_eq!(draw(&mut all, true), "\x1b[32m+ .\x1b[0m  5 B\n");
    }

    #[test]
    fn very_deep_paths_do_not_recurse() {
        let mut all = found("+ x");
        all.push(all[0].clone());
        all[0].path = [b"d/".repeat(50_000), b"a".to_vec()].concat();
        all[1].path = [b"d/".repeat(50_000), b"b".to_vec()].concat();
        assert_eq!(draw(&mut all, false).lines().count(), 3);
    }
}
