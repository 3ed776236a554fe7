//! A file that is looked at, and what is found in it. Knows no wall.

use super::source::Source;
use std::cell::OnceCell;

/// A tracked text file; the path is relative to the root.
pub struct File {
    pub path: String,
    pub text: String,
    source: OnceCell<Source>,
}

impl File {
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> File {
        File { path: path.into(), text: text.into(), source: OnceCell::new() }
    }

    /// It as Rust, taken apart once for all walls.
    pub fn source(&self) -> &Source {
        self.source.get_or_init(|| Source::new(&self.text))
    }
}

/// One thing that is wrong, and what to do instead.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub path: String,
    /// Counted from 1; 0 is the file as a whole.
    pub line: usize,
    pub wall: &'static str,
    pub text: String,
}

impl Finding {
    pub fn new(path: &str, line: usize, wall: &'static str, text: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, wall, text: text.into() }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: [{}] {}", self.path, self.line, self.wall, self.text)
    }
}

/// For the tests of the walls: what is found in files given as (path, text).
#[cfg(test)]
pub fn planted(check: fn(&[File]) -> Vec<Finding>, files: &[(&str, &str)]) -> Vec<String> {
    let files: Vec<File> = files.iter().map(|(path, text)| File::new(*path, *text)).collect();
    check(&files).into_iter().map(|f| format!("{}:{} {}", f.path, f.line, f.wall)).collect()
}
