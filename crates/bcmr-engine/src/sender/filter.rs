//! Which entries take part: globs, regular expressions and `.gitignore` files, by the path below the operand.
//!
//! Must not know what happens to what is left.

use crate::error::{Code, Error, Result};
use crate::policy::{FilterSpec, Rule};
use fastcopy::dir::{Dir, NameBuf};
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use regex::bytes::{RegexSet, RegexSetBuilder};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A `.gitignore` file longer than this (bytes) is not one.
const GITIGNORE_BYTES_MAX: u64 = 4 << 20;

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
}

/// The `.gitignore` files that reign in a directory, innermost first.
pub(crate) struct Ignores {
    rules: Gitignore,
    above: Option<Arc<Ignores>>,
}

impl Filter {
    /// Compiles. A pattern that does not parse is a usage error that shows the pattern.
    pub(crate) fn new(spec: &FilterSpec) -> Result<Filter> {
        let bad = |pattern: &str, why: String| Error::ours(Code::Usage, "parse pattern", pattern, why);
        let mut builder = GitignoreBuilder::new("");
        for rule in &spec.rules {
            // gitignore syntax knows `!` for "take it after all"; an include is just that.
            let (line, pattern) = match rule {
                Rule::Exclude(p) => (p.clone(), p),
                Rule::Include(p) => (format!("!{p}"), p),
            };
            builder.add_line(None, &line).map_err(|e| bad(pattern, e.to_string()))?;
        }
        let globs = builder.build().map_err(|e| bad("", e.to_string()))?;
        let regexes = match spec.regexes.as_slice() {
            [] => None,
            some => Some(regexes_of(some).map_err(|e| bad(&some.join(" "), e.to_string()))?),
        };
        Ok(Filter { globs: (!globs.is_empty()).then_some(globs), regexes, gitignore: spec.gitignore })
    }

    /// Whether everything takes part: then no path need be made.
    pub(crate) fn is_empty(&self) -> bool {
        self.globs.is_none() && self.regexes.is_none() && !self.gitignore
    }

    /// Whether `.gitignore` files are to be read.
    pub(crate) fn wants_gitignore(&self) -> bool {
        self.gitignore
    }

    /// Whether the entry is left out. `path` is relative to the operand.
    pub(crate) fn excludes(&self, path: &Path, is_dir: bool, ignores: Option<&Arc<Ignores>>) -> bool {
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
        let mut at = ignores;
        while let Some(here) = at {
            match here.rules.matched(path, is_dir) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => at = here.above.as_ref(),
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

/// Reads the `.gitignore` of a directory, if it has one; `below` is the directory's path relative to the operand.
pub(crate) fn read_gitignore(
    dir: &Dir,
    below: &Path,
    above: Option<&Arc<Ignores>>,
) -> std::io::Result<Option<Arc<Ignores>>> {
    let inherited = || Ok(above.cloned());
    let Some(name) = NameBuf::new(b".gitignore") else { return inherited() };
    let file = match dir.open_file(name.as_name()) {
        Ok(fd) => std::fs::File::from(fd),
        // Absent, or a link, which git does not follow either, or something special that is not to be opened.
        Err(e) if matches!(Code::of(&e), Code::NotFound | Code::Link | Code::Refused) => return inherited(),
        Err(e) => return Err(e),
    };
    let mut text = Vec::new();
    file.take(GITIGNORE_BYTES_MAX).read_to_end(&mut text)?;
    let mut builder = GitignoreBuilder::new(below);
    for line in String::from_utf8_lossy(&text).lines() {
        // As git does: a line that makes no pattern is passed over.
        if builder.add_line(None, line).is_err() {
            continue;
        }
    }
    match builder.build() {
        Ok(rules) if !rules.is_empty() => Ok(Some(Arc::new(Ignores { rules, above: above.cloned() }))),
        _ => inherited(),
    }
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
    if let Ok(filter) = Filter::new(&FilterSpec { rules, regexes, gitignore: false }) {
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
        Filter::new(&FilterSpec { rules, regexes, gitignore: false }).unwrap()
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

    #[test]
    fn a_pattern_that_does_not_parse_is_named() {
        let spec = FilterSpec { rules: vec![], regexes: vec!["(".into()], gitignore: false };
        let e = Filter::new(&spec).err().unwrap();
        assert_eq!(e.code, Code::Usage);
    }

    #[test]
    fn names_that_are_not_utf8_are_matched_as_bytes() {
        let f = filter(&["*.o"], &["(?-u)^\\xff"]);
        let path = |b: &'static [u8]| PathBuf::from(OsStr::from_bytes(b));
        assert!(f.excludes(&path(b"caf\xe9.o"), false, None));
        assert!(f.excludes(&path(b"\xff.c"), false, None));
        assert!(!f.excludes(&path(b"a\xff.c"), false, None));
    }
}
