//! Which entries take part: globs, regular expressions and the `.gitignore` and `.bcmrignore` files of the tree, by the path
//! below the operand; sizes and times of files.
//!
//! Must not know what happens to what is left.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::policy::{FilterSpec, Rule, moment};
use crate::sender::classes;
use bcmr_wire::message::{Entry, Kind as WireKind};
use fastcopy::dir::{Dir, Name, NameBuf};
use fastcopy::meta::{Info, Kind};
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use regex::bytes::{RegexSet, RegexSetBuilder};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// No file of rules in the tree is larger (bytes).
const IGNORE_FILE_BYTES_MAX: u64 = 4 << 20;

/// Files of rules in the tree. Of one directory's the last that matches decides.
pub(crate) const RULE_FILES: [&[u8]; 2] = [b".gitignore", b".bcmrignore"];

/// Bytes of lines that are rules, in the files of a directory and of all above it: compiled they take a thousand times as
/// much (V7).
const RULE_BYTES_MAX: usize = 256 << 10;
/// What a line counts beside its own bytes.
const RULE_LINE_BYTES: usize = 16;

/// Bytes that all regular expressions may take once they are compiled.
const REGEX_BYTES_MAX: usize = 8 << 20;
/// Bytes that each thread may put aside while it matches them.
const REGEX_CACHE_BYTES_MAX: usize = 1 << 20;
/// Groups in groups.
const REGEX_NEST_MAX: u32 = 100;

/// Compiled rules.
pub(crate) struct Filter {
    globs: Option<Gitignore>,
    regexes: Option<RegexSet>,
    gitignore: bool,
    bcmrignore: bool,
    files: FileBounds,
}

/// What sizes and times regular files have that take part.
#[derive(Clone, Copy, Default)]
struct FileBounds {
    max_bytes: Option<u64>,
    min_bytes: Option<u64>,
    newer: Option<i128>,
    older: Option<i128>,
}

impl FileBounds {
    fn of(spec: &FilterSpec) -> FileBounds {
        let FilterSpec { max_bytes, min_bytes, newer, older, .. } = *spec;
        FileBounds { max_bytes, min_bytes, newer, older }
    }

    fn decide(&self) -> bool {
        self.max_bytes.or(self.min_bytes).is_some() || self.newer.or(self.older).is_some()
    }

    fn exclude(&self, bytes: u64, modified: i128) -> bool {
        self.max_bytes.is_some_and(|max| bytes > max)
            || self.min_bytes.is_some_and(|min| bytes < min)
            || self.newer.is_some_and(|newer| modified <= newer)
            || self.older.is_some_and(|older| modified >= older)
    }
}

/// What is known of an entry when the filter is asked.
#[derive(Clone, Copy)]
pub(crate) enum Seen {
    /// Its name alone, and whether it is a directory: its size and time decide nothing.
    Name { is_dir: bool },
    /// A regular file with its size and the [`moment`] that it was modified at.
    File { bytes: u64, modified: i128 },
}

impl Seen {
    pub(crate) fn is_dir(self) -> bool {
        matches!(self, Seen::Name { is_dir: true })
    }
}

impl From<bool> for Seen {
    fn from(is_dir: bool) -> Seen {
        Seen::Name { is_dir }
    }
}

impl From<&Entry<'_>> for Seen {
    fn from(entry: &Entry<'_>) -> Seen {
        match entry.kind {
            WireKind::File => {
                Seen::File { bytes: entry.size, modified: moment(entry.mtime.sec, entry.mtime.nsec) }
            }
            kind => Seen::Name { is_dir: kind == WireKind::Dir },
        }
    }
}

impl From<&Info> for Seen {
    fn from(info: &Info) -> Seen {
        match info.kind {
            Kind::File => Seen::File { bytes: info.size, modified: moment(info.mtime.sec, info.mtime.nsec) },
            kind => Seen::Name { is_dir: kind == Kind::Dir },
        }
    }
}

/// The files of rules that reign in a directory, innermost first.
pub(crate) struct Ignores {
    /// All patterns of one file, for paths relative to its directory.
    all: Gitignore,
    /// Those of them without a slash, which are about names alone; `None`: all are.
    names: Option<Gitignore>,
    /// The deepest entry that a pattern with a slash can match, in components below the directory of the file; `None`:
    /// any, as one holds `**`.
    reach: Option<usize>,
    /// Components of that directory's own path below the operand.
    depth: usize,
    /// What its rules and all above them count.
    rule_bytes: usize,
    above: Option<Arc<Ignores>>,
}

impl Ignores {
    /// What each file that has a say about `path` is asked, innermost first: its rules, and what they are asked about. An
    /// entry far below a file is matched by its name alone, so that a file on each level of a deep tree costs one name
    /// for each entry below, and not a path.
    fn asked<'a>(
        mut at: Option<&'a Arc<Ignores>>,
        path: &'a Path,
    ) -> impl Iterator<Item = (&'a Gitignore, &'a Path)> {
        let bytes = path.as_os_str().as_bytes();
        let depth = bytes.iter().filter(|b| **b == b'/').count() + 1;
        let name = path.file_name().map_or(path, Path::new);
        std::iter::from_fn(move || {
            let here = at?;
            at = here.above.as_ref();
            let below = depth.saturating_sub(here.depth);
            if here.reach.is_some_and(|reach| below > reach) {
                return Some((here.names.as_ref().unwrap_or(&here.all), name));
            }
            let mut slashes = bytes.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at + 1);
            let start = here.depth.checked_sub(1).map_or(Some(0), |n| slashes.nth(n));
            let rest = start.and_then(|start| bytes.get(start..)).unwrap_or(bytes);
            Some((&here.all, Path::new(OsStr::from_bytes(rest))))
        })
    }
}

/// A line without the spaces at its end, as git reads it: one that is escaped stays, and so does any other white space.
fn trimmed(line: &str) -> &str {
    let rest = line.trim_end_matches(' ');
    let is_escaped = ends_escaped(rest) && rest.len() < line.len();
    line.get(..rest.len() + usize::from(is_escaped)).unwrap_or(line)
}

/// Whether a character that followed would be escaped.
fn ends_escaped(line: &str) -> bool {
    line.bytes().rev().take_while(|b| *b == b'\\').count() % 2 == 1
}

/// Adds a line to what the library compiles, which would cut any white space off its end. A group of one alternative is the same
/// glob with another end.
fn add_line(builder: &mut GitignoreBuilder, line: &str) -> std::result::Result<(), ignore::Error> {
    let line = trimmed(line);
    // No name is empty. The library takes some of these for all names.
    if line == "!" || line.ends_with("//") {
        return Ok(());
    }
    let last = line.chars().next_back().filter(|last| last.is_whitespace() && !line.starts_with('#'));
    let line = match last.and_then(|last| line.strip_suffix(last).map(|rest| (rest, last))) {
        Some((rest, last)) => match rest.strip_suffix('\\').filter(|_| ends_escaped(rest)) {
            Some(rest) => Cow::Owned(format!("{rest}{{\\{last}}}")),
            None => Cow::Owned(format!("{rest}{{{last}}}")),
        },
        None => Cow::Borrowed(line),
    };
    builder.add_line(None, &line).map(drop)
}

/// How deep a line of a `.gitignore` can match below its directory; `Some(0)`: it is about names, at any depth.
fn reach_of(line: &str) -> Option<usize> {
    let line = trimmed(line);
    let line = line.strip_prefix('!').unwrap_or(line);
    let body = line.strip_suffix('/').unwrap_or(line);
    let slashes = body.bytes().filter(|b| *b == b'/').count();
    match slashes {
        0 => Some(0),
        _ if body.contains("**") || body.contains('\\') => None,
        n => Some(n + 1),
    }
}

impl Filter {
    /// Compiles. A pattern that does not parse is a usage error that shows the pattern.
    pub(crate) fn new(spec: &FilterSpec) -> Result<Filter> {
        let bad = |pattern: &str, why: String| Error::ours(Code::Usage, Op::ParsePattern, pattern, why);
        let mut builder = GitignoreBuilder::new("");
        for rule in &spec.rules {
            // gitignore syntax knows `!` for "take it after all"; an include is just that.
            let (line, pattern) = match rule {
                Rule::Exclude(p) => (p.clone(), p),
                Rule::Include(p) => (format!("!{p}"), p),
            };
            let line = classes::plain(trimmed(&line)).map_err(|why| bad(pattern, why.to_owned()))?;
            add_line(&mut builder, &line).map_err(|e| bad(pattern, e.to_string()))?;
        }
        let globs = builder.build().map_err(|e| bad("", e.to_string()))?;
        let regexes = match spec.regexes.as_slice() {
            [] => None,
            some => Some(regexes_of(some).map_err(|e| bad(&some.join(" "), e.to_string()))?),
        };
        let globs = (!globs.is_empty()).then_some(globs);
        let FilterSpec { gitignore, bcmrignore, .. } = *spec;
        Ok(Filter { globs, regexes, gitignore, bcmrignore, files: FileBounds::of(spec) })
    }

    /// Everything takes part.
    pub(crate) fn all() -> Filter {
        let (gitignore, bcmrignore, files) = (false, false, FileBounds::default());
        Filter { globs: None, regexes: None, gitignore, bcmrignore, files }
    }

    /// Whether everything takes part: then no path need be made.
    pub(crate) fn is_empty(&self) -> bool {
        self.globs.is_none() && self.regexes.is_none() && !self.asks_tree() && !self.asks_file()
    }

    /// What asks this filter, where there is anything to ask.
    pub(crate) fn asked<'q, Q: ?Sized>(&self, by: &'q Q) -> Option<&'q Q> {
        (!self.is_empty()).then_some(by)
    }

    /// Whether a file's size or time decides on it: then a walk has to look at each file.
    pub(crate) fn asks_file(&self) -> bool {
        self.files.decide()
    }

    /// Whether a regular file of this size, modified at this moment, is left out.
    pub(crate) fn excludes_file(&self, bytes: u64, modified: i128) -> bool {
        self.files.exclude(bytes, modified)
    }

    /// Whether files of rules in the tree are to be read.
    pub(crate) fn asks_tree(&self) -> bool {
        self.gitignore || self.bcmrignore
    }

    /// Which of [`RULE_FILES`] a name is, if those are to be read.
    pub(crate) fn rule_file(&self, name: Name<'_>) -> Option<usize> {
        RULE_FILES.iter().zip(self.reads()).position(|(file, reads)| reads && *file == name.bytes())
    }

    /// Which of [`RULE_FILES`] are to be read.
    fn reads(&self) -> [bool; RULE_FILES.len()] {
        [self.gitignore, self.bcmrignore]
    }

    /// Whether the entry is left out. `path` is relative to the operand.
    pub(crate) fn excludes(
        &self,
        path: &Path,
        seen: impl Into<Seen>,
        ignores: Option<&Arc<Ignores>>,
    ) -> bool {
        let seen = seen.into();
        let is_dir = seen.is_dir();
        if matches!(seen, Seen::File { bytes, modified } if self.excludes_file(bytes, modified)) {
            return true;
        }
        if self.regexes.as_ref().is_some_and(|r| r.is_match(path.as_os_str().as_bytes())) {
            return true;
        }
        if let Some(globs) = &self.globs {
            match globs.matched(path, is_dir) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        if self.gitignore && path.as_os_str() == ".git" {
            return true;
        }
        for (rules, asked) in Ignores::asked(ignores, path) {
            match rules.matched(asked, is_dir) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        false
    }
}

/// Compiles them with bounds: what one pattern may expand to, and what matching may put aside.
fn regexes_of(patterns: &[String]) -> std::result::Result<RegexSet, regex::Error> {
    let mut builder = RegexSetBuilder::new(patterns);
    builder
        .size_limit(REGEX_BYTES_MAX)
        .dfa_size_limit(REGEX_CACHE_BYTES_MAX)
        .nest_limit(REGEX_NEST_MAX)
        .build()
}

impl Filter {
    /// Reads the files of rules that a directory has, which is called as `shown` says; `depth` is how many names it is below the
    /// operand.
    ///
    /// # Errors
    /// One of them cannot be read, or is none; or they are more than there may be.
    pub(crate) fn rules_in(
        &self,
        (dir, shown): (&Dir, &dyn Fn() -> PathBuf),
        depth: usize,
        above: Option<&Arc<Ignores>>,
    ) -> Result<Option<Arc<Ignores>>> {
        self.rules_among((dir, shown), depth, above, [true; RULE_FILES.len()])
    }

    /// The same of those files alone that are `some`.
    ///
    /// # Errors
    /// As [`Filter::rules_in`].
    pub(crate) fn rules_among(
        &self,
        (dir, shown): (&Dir, &dyn Fn() -> PathBuf),
        depth: usize,
        above: Option<&Arc<Ignores>>,
        some: [bool; RULE_FILES.len()],
    ) -> Result<Option<Arc<Ignores>>> {
        let mut text = Vec::new();
        for ((name, reads), is_one) in RULE_FILES.into_iter().zip(self.reads()).zip(some) {
            if reads && is_one {
                append_file(dir, name, shown, &mut text)?;
            }
        }
        if text.is_empty() {
            return Ok(above.cloned());
        }
        let rules = compiled(&String::from_utf8_lossy(&text), depth, above);
        let rules = rules.map_err(|e| Error::os(Op::ReadRules, shown(), e))?;
        Ok(rules.or_else(|| above.cloned()))
    }
}

/// Adds what a file of a directory holds, if there is one, with an end of line behind it.
///
/// # Errors
/// It cannot be read, or is no regular file: what it was to keep is not known then. A directory of that name is one like any other.
fn append_file(dir: &Dir, name: &[u8], shown: &dyn Fn() -> PathBuf, text: &mut Vec<u8>) -> Result<()> {
    let Some(name) = NameBuf::new(name) else { return Ok(()) };
    let path = || shown().join(OsStr::from_bytes(name.bytes()));
    let fail = |e| Error::os(Op::ReadRules, path(), e);
    let check = |kind| match kind {
        Kind::File => Ok(()),
        _ => Err(Error::ours(Code::Refused, Op::ReadRules, path(), Reason::RulesInNoFile)),
    };
    // Merely opening a device may do something.
    match dir.look(name.as_name()).map_err(fail)? {
        None => return Ok(()),
        Some(there) if there.kind == Kind::Dir => return Ok(()),
        Some(there) => check(there.kind)?,
    }
    let fd = match dir.open_file(name.as_name()) {
        Err(e) if Code::of(&e) == Code::NotFound => return Ok(()),
        opened => opened.map_err(fail)?,
    };
    check(Info::of(&fd).map_err(fail)?.kind)?;
    // What stands behind the end of what is read may be the very line that keeps something.
    let read = std::fs::File::from(fd).take(IGNORE_FILE_BYTES_MAX + 1).read_to_end(text);
    if read.map_err(fail)? as u64 > IGNORE_FILE_BYTES_MAX {
        return Err(fail(io::ErrorKind::FileTooLarge.into()));
    }
    text.push(b'\n');
    Ok(())
}

/// The rules of one directory; `None` when it has none.
///
/// # Errors
/// They are more, or take more, than there may be: none of them may be left out, as it may be the one that keeps something.
fn compiled(text: &str, depth: usize, above: Option<&Arc<Ignores>>) -> io::Result<Option<Arc<Ignores>>> {
    let is_rule = |line: &&str| !line.starts_with('#') && !trimmed(line).is_empty();
    let rule_bytes = above.map_or(0, |above| above.rule_bytes)
        + text.lines().filter(is_rule).map(|line| line.len() + RULE_LINE_BYTES).sum::<usize>();
    if rule_bytes > RULE_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let built = |rules: &GitignoreBuilder| rules.build().map_err(io::Error::other);
    let mut all = GitignoreBuilder::new("");
    let (mut about_names, mut reach) = (Vec::new(), Some(0));
    for line in text.lines().filter(is_rule) {
        // As git does: a line that makes no pattern is passed over. A brace without its other half is itself.
        let reaches = reach_of(line);
        let Ok(line) = classes::plain(trimmed(line)) else { continue };
        let line = if add_line(&mut all, &line).is_ok() {
            line
        } else {
            let escaped = line.replace('{', "\\{").replace('}', "\\}");
            if add_line(&mut all, &escaped).is_err() {
                continue;
            }
            Cow::Owned(escaped)
        };
        match reaches {
            Some(0) => about_names.push(line),
            one => reach = reach.zip(one).map(|(a, b): (usize, usize)| a.max(b)),
        }
    }
    let all = built(&all)?;
    let names = if reach == Some(0) {
        None
    } else {
        let mut names = GitignoreBuilder::new("");
        let added = about_names.iter().try_for_each(|line| add_line(&mut names, line));
        added.map_err(io::Error::other)?;
        Some(built(&names)?)
    };
    let here = Ignores { all, names, reach, depth, rule_bytes, above: above.cloned() };
    Ok((!here.all.is_empty()).then(|| Arc::new(here)))
}

/// Names below an operand as a relative path.
pub(crate) fn relative<'a>(names: impl IntoIterator<Item = &'a [u8]>) -> PathBuf {
    names.into_iter().map(OsStr::from_bytes).collect()
}

/// Entrance for the fuzzer: any patterns over any path, which is taken or left out, and takes no time to speak of.
#[cfg(fuzzing)]
pub fn fuzz(data: &[u8]) {
    let mut parts = data.split(|byte| *byte == 0);
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(parts.next().unwrap_or_default()));
    let (mut rules, mut regexes) = (Vec::new(), Vec::new());
    for part in parts.take(8) {
        let Ok(text) = std::str::from_utf8(part) else { continue };
        match text.split_at_checked(1) {
            Some(("+", glob)) => rules.push(Rule::Include(glob.to_owned())),
            Some(("~", regex)) => regexes.push(regex.to_owned()),
            _ => rules.push(Rule::Exclude(text.to_owned())),
        }
    }
    if let Ok(filter) = Filter::new(&FilterSpec { rules, regexes, ..FilterSpec::everything() }) {
        let _either = filter.excludes(&path, data.len() % 2 == 0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(rules: &[&str], regexes: &[&str]) -> Filter {
        let rules = rules
            .iter()
            .map(|r| match r.strip_prefix('+') {
                Some(p) => Rule::Include(p.to_owned()),
                None => Rule::Exclude((*r).to_owned()),
            })
            .collect();
        let regexes = regexes.iter().map(|r| (*r).to_owned()).collect();
        Filter::new(&FilterSpec { rules, regexes, ..FilterSpec::everything() }).unwrap()
    }

    #[test]
    fn the_last_rule_that_matches_decides() {
        let f = filter(&["*.o", "+keep.o", "/top", "build/"], &[r"\.tmp$"]);
        for (path, dir, out) in [
            ("a.o", false, true),
            ("d/a.o", false, true),
            ("keep.o", false, false),
            ("d/keep.o", false, false),
            ("top", false, true),
            ("d/top", false, false),
            ("build", true, true),
            ("build", false, false),
            ("d/build", true, true),
            ("x.tmp", false, true),
            ("x.tmpl", false, false),
        ] {
            assert_eq!(f.excludes(Path::new(path), dir, None), out, "{path}");
        }
    }

    /// As git has it: spaces at the end go but for one that is escaped, and other white space is part of the name.
    #[test]
    fn white_space_at_the_end_is_part_of_the_name() {
        let names = [
            "a",
            "a ",
            "a  ",
            "a\t",
            "a\u{a0}",
            "a\u{3000}",
            "a\u{b}",
            "a\u{2028}",
            "a\\",
            " ",
            "\t",
            "\u{a0}",
            "a,",
            "{a\t",
            "[a\t",
        ];
        let table: [(&str, &[&str]); 22] = [
            ("a", &["a"]),
            ("a   ", &["a"]),
            ("a\\ ", &["a "]),
            ("a\\    ", &["a "]),
            ("a \\ ", &["a  "]),
            ("a\\ \\ ", &["a  "]),
            ("a\\\\ ", &["a\\"]),
            ("a\t", &["a\t"]),
            ("a\t ", &["a\t"]),
            ("a\\\t", &["a\t"]),
            ("a[\t]", &["a\t"]),
            ("a[[:blank:]] ", &["a ", "a\t"]),
            ("a\u{a0}", &["a\u{a0}"]),
            ("a\\\u{a0} ", &["a\u{a0}"]),
            ("{a\u{a0},b\t}", &["a\u{a0}"]),
            ("?\u{3000}", &["a\u{3000}"]),
            ("a\u{b}", &["a\u{b}"]),
            ("[a]\u{2028}", &["a\u{2028}"]),
            ("\\ ", &[" "]),
            ("/\t", &["\t"]),
            ("\u{a0}", &["\u{a0}"]),
            ("   ", &[]),
        ];
        let excluded = |excludes: &dyn Fn(&Path) -> bool| -> Vec<&str> {
            names.into_iter().filter(|name| excludes(Path::new(name))).collect()
        };
        let asks = Filter { gitignore: true, ..Filter::all() };
        for (line, want) in table {
            let typed = filter(&[line], &[]);
            assert_eq!(excluded(&|path| typed.excludes(path, false, None)), want, "{line:?}");
            // A rule that is about names, and one that is not, which makes two sets.
            for text in [format!("{line}\n"), format!("none/x\n{line}\r\n")] {
                let rules = compiled(&text, 0, None).unwrap();
                let found = excluded(&|path| asks.excludes(path, false, rules.as_ref()));
                assert_eq!(found, want, "{text:?}");
                let rules = compiled(&text, 0, None).unwrap();
                let below =
                    |path: &Path| asks.excludes(&Path::new("d/e/f").join(path), false, rules.as_ref());
                if !line.starts_with('/') {
                    assert_eq!(excluded(&below), want, "{text:?}");
                }
            }
        }
        // A brace without its other half is itself. A class without its end is nothing.
        let rules = compiled("{a\t\n[a\t\n", 0, None).unwrap();
        assert_eq!(excluded(&|path| asks.excludes(path, false, rules.as_ref())), ["{a\t"]);
    }

    /// As rsync's: a size is about regular files, and both bounds are within.
    #[test]
    fn sizes_leave_out_files_and_nothing_else() {
        let spec = FilterSpec { max_bytes: Some(9), min_bytes: Some(3), ..FilterSpec::everything() };
        let f = Filter::new(&spec).unwrap();
        for (bytes, out) in [(2, true), (3, false), (9, false), (10, true)] {
            assert_eq!(f.excludes(Path::new("a"), Seen::File { bytes, modified: 0 }, None), out, "{bytes}");
        }
        assert!(!f.excludes(Path::new("a"), false, None) && !f.excludes(Path::new("a"), true, None));
        assert!(!f.is_empty() && f.asks_file() && !Filter::all().asks_file());
    }

    /// A moment itself is neither newer nor older than itself; times before 1970 and far off keep their order.
    #[test]
    fn times_leave_out_files_and_nothing_else() {
        let at = |ns| moment(100, ns);
        let spec = FilterSpec { newer: Some(at(5)), older: Some(at(9)), ..FilterSpec::everything() };
        let f = Filter::new(&spec).unwrap();
        for (ns, out) in [(4, true), (5, true), (6, false), (8, false), (9, true), (10, true)] {
            assert_eq!(
                f.excludes(Path::new("a"), Seen::File { bytes: 1, modified: at(ns) }, None),
                out,
                "{ns}"
            );
        }
        assert!(!f.excludes(Path::new("a"), false, None) && !f.excludes(Path::new("a"), true, None));
        assert!(!f.is_empty() && f.asks_file());
        let times = [(i64::MIN, 0), (-2, 999_999_999), (-1, 0), (0, 0), (0, 1), (1, 0), (i64::MAX, 0)];
        assert!(times.map(|(sec, nsec)| moment(sec, nsec)).is_sorted_by(|a, b| a < b));
        let far = [-11_676_096_000, 10_413_792_000, 16_725_225_600].map(|sec| moment(sec, 7));
        assert!(far.is_sorted_by(|a, b| a < b));
        // Between machines too; what fits into one number is one, as every bcmr knows it.
        let ends = [(9_223_372_036, 900_000_000), (-9_223_372_037, 1)].map(|(sec, nsec)| moment(sec, nsec));
        let all = times.map(|(sec, nsec)| moment(sec, nsec)).into_iter().chain(far).chain(ends);
        for at in all {
            let spec = FilterSpec { newer: Some(at), older: Some(at + 1), ..FilterSpec::everything() };
            let (numbers, mut there) = (spec.numbers(), FilterSpec::everything());
            assert!(numbers.is_sorted_by(|a, b| a.0 < b.0), "{numbers:?}");
            assert_eq!(numbers.len(), if i64::try_from(at).is_ok() { 2 } else { 4 }, "{at}");
            assert!(there.set_numbers(&numbers), "{at}");
            assert_eq!((there.newer, there.older), (spec.newer, spec.older));
        }
        let near = FilterSpec { newer: Some(1), ..FilterSpec::everything() };
        assert_eq!(near.numbers(), [(4, (1 << 63) + 1)]);
        for bad in [
            &[(9, 1)][..],
            &[(8, 0)],
            &[(8, 1 << 40), (9, 1_000_000_000)],
            &[(8, 1 << 40), (11, 1)],
            &[(12, 0)],
        ] {
            assert!(!FilterSpec::everything().set_numbers(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_pattern_that_does_not_parse_is_named() {
        let spec = FilterSpec { regexes: vec!["(".into()], ..FilterSpec::everything() };
        let e = Filter::new(&spec).err().unwrap();
        assert_eq!(e.code, Code::Usage);
        for glob in ["[a?", "[", "x[!", "[[:nothing:]]"].map(str::to_owned) {
            for rule in [Rule::Exclude(glob.clone()), Rule::Include(glob.clone())] {
                let spec = FilterSpec { rules: vec![rule], ..FilterSpec::everything() };
                assert_eq!(Filter::new(&spec).err().map(|e| e.code), Some(Code::Usage), "{glob}");
            }
        }
    }

    /// Neither what has no name, nor a class, which is about a character of a name and matches no slash.
    #[test]
    fn nothing_is_matched_by_an_empty_glob_or_across_a_slash() {
        let f = filter(&["*.o", "+", "+ ", "lib[!0-9]*", "x[.-0]y", "?[^a]b", "p[[:punct:]]"], &[]);
        for (path, out) in [
            ("a.o", true),
            ("d/a.o", true),
            ("lib/abc", false),
            ("d/libx", true),
            ("x/y", false),
            ("x.y", true),
            ("d/b", false),
            ("d/xxb", true),
            ("d/p!", true),
        ] {
            assert_eq!(f.excludes(Path::new(path), false, None), out, "{path}");
        }
    }

    #[test]
    fn names_that_are_not_utf8_are_matched_as_bytes() {
        let f = filter(&["*.o"], &["(?-u)^\\xff"]);
        let path = |b: &'static [u8]| PathBuf::from(OsStr::from_bytes(b));
        assert!(f.excludes(&path(b"caf\xe9.o"), false, None));
        assert!(f.excludes(&path(b"\xff.c"), false, None));
        assert!(!f.excludes(&path(b"a\xff.c"), false, None));
    }

    /// Every entry of every depth, against files on several levels: the same as all rules of all files asked about the
    /// whole path below each.
    #[test]
    fn names_alone_decide_as_whole_paths_do() {
        let files = [
            "*.o\n!keep.o\nbuild/\n/top\na/b\n",
            "x\n!x\nb/*.c\n/b/c/d\n# a/b/c\n\n",
            "**/deep\na/**\nc/**/x\n",
            "!*.o\n\\#x\n[ab]/c\n{a,b/c}\n",
            "*\n!a\n!b/\n",
        ];
        let names = ["a", "b", "c", "x", "top", "keep.o", "y.o", "build", "deep", "d", "#x", "z.c"];
        let mut random = 1_u64;
        let mut next = |n: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % n
        };
        for _ in 0..4000 {
            let chosen: Vec<&str> = (0..next(5)).map(|_| files[next(files.len())]).collect();
            let parts: Vec<&str> = (0..chosen.len() + next(4)).map(|_| names[next(names.len())]).collect();
            let mut path = PathBuf::from_iter(&parts);
            path.push(names[next(names.len())]);
            let is_dir = next(2) == 0;
            let mut chain: Option<Arc<Ignores>> = None;
            for (depth, text) in chosen.iter().enumerate() {
                chain = compiled(text, depth, chain.as_ref()).unwrap().or(chain);
            }
            let filter = Filter { gitignore: true, ..Filter::all() };
            let whole = chosen.iter().enumerate().rev().find_map(|(depth, text)| {
                let mut builder = GitignoreBuilder::new("");
                text.lines().for_each(|line| drop(builder.add_line(None, line)));
                let below: PathBuf = path.iter().skip(depth).collect();
                match builder.build().unwrap().matched(below, is_dir) {
                    Match::None => None,
                    Match::Ignore(_) => Some(true),
                    Match::Whitelist(_) => Some(false),
                }
            });
            let got = filter.excludes(&path, is_dir, chain.as_ref());
            assert_eq!(got, whole.unwrap_or(false), "{} {is_dir} {chosen:?}", path.display());
        }
    }

    /// A `.gitignore` on each level of a deep tree: what is matched for an entry grows with its depth, and not with the
    /// square of that.
    #[test]
    fn a_deep_tree_costs_a_name_for_each_level() {
        let work = |levels: usize| {
            let mut chain = None;
            for depth in 0..levels {
                chain = compiled("*.o\n/build\nsrc/*.tmp\n", depth, chain.as_ref()).unwrap();
            }
            let path: PathBuf = std::iter::repeat_n("d", levels - 1).chain(["name.c"]).collect();
            Ignores::asked(chain.as_ref(), &path).map(|(_, asked)| asked.as_os_str().len()).sum::<usize>()
        };
        assert!(work(400) <= 2 * work(200), "{} {}", work(200), work(400));
        assert!(work(200) <= 200 * "d/name.c".len(), "{}", work(200));
    }

    /// V7: what only says something does not count, and what stands above does.
    #[test]
    fn rules_have_a_bound() {
        let lines = RULE_BYTES_MAX / (1 + RULE_LINE_BYTES);
        let too_many = |text: &str, above: Option<&Arc<Ignores>>| match compiled(text, 0, above) {
            Ok(_) => false,
            Err(e) => e.kind() == io::ErrorKind::FileTooLarge,
        };
        assert!(too_many(&"?\n".repeat(lines + 1), None));
        let long = RULE_BYTES_MAX - RULE_LINE_BYTES + 1;
        assert!(too_many(&format!("{}\n", "a".repeat(long)), None));
        let said = format!("{}*.o\n", "# why\n\n  \n".repeat(lines));
        let above = compiled(&said, 0, None).unwrap().unwrap();
        assert_eq!(above.rule_bytes, 3 + RULE_LINE_BYTES);
        let half = "?\n".repeat(lines / 2 + 1);
        let mut above = Arc::into_inner(above).unwrap();
        above.rule_bytes = RULE_BYTES_MAX / 2;
        assert!(too_many(&half, Some(&Arc::new(above))));
    }
}
