//! The directories of one round that is compared with another machine: which of them are compared themselves, and which lead to
//! names; and how that is said to a server.
//!
//! Must not look at anything.

use std::collections::HashSet;

/// Directories, by their paths below the source.
#[derive(Default)]
pub(crate) struct NamedDirs {
    compared: HashSet<Vec<u8>>,
    leading: HashSet<Vec<u8>>,
    /// Not all that lead to names are known.
    is_partial: bool,
}

impl NamedDirs {
    /// The directory that all names are below is compared itself, and nothing else.
    pub(crate) fn only_top() -> NamedDirs {
        let mut named = NamedDirs::default();
        named.compares(b"");
        // What leads to names is said with a slash, and without one this would be no word at all.
        named.leads(b"");
        named
    }

    /// This one is compared itself.
    pub(crate) fn compares(&mut self, path: &[u8]) {
        self.compared.insert(path.to_vec());
    }

    /// Names in this one are asked for, so it leads to them, and so do all above it.
    pub(crate) fn leads(&mut self, path: &[u8]) {
        let mut path = path;
        while self.leading.insert(path.to_vec()) {
            let Some(at) = path.iter().rposition(|b| *b == b'/') else { return };
            path = path.get(..at).unwrap_or_default();
        }
    }

    pub(crate) fn is_compared(&self, path: &[u8]) -> bool {
        self.compared.contains(path)
    }

    /// Whether it is one of those, as far as is known. What is none has the name of something else.
    pub(crate) fn is_known(&self, path: &[u8]) -> bool {
        self.is_partial || path.is_empty() || self.compared.contains(path) || self.leading.contains(path)
    }

    /// Whether it is to be gone into. What is not compared itself came because it leads to names.
    pub(crate) fn leads_on(&self, path: &[u8]) -> bool {
        self.leading.contains(path) || !self.compared.contains(path)
    }

    /// Those that are compared, in order, each with a slash behind it that leads to names as well. A server needs no more.
    pub(crate) fn said(&self) -> Vec<Vec<u8>> {
        let mut said: Vec<Vec<u8>> = self.compared.iter().cloned().collect();
        said.sort_unstable();
        said.iter_mut().filter(|path| self.leading.contains(*path)).for_each(|path| path.push(b'/'));
        said
    }

    /// What was said so.
    pub(crate) fn heard<'n>(said: impl Iterator<Item = &'n [u8]>) -> NamedDirs {
        let mut named = NamedDirs { is_partial: true, ..NamedDirs::default() };
        for path in said {
            let leading = path.strip_suffix(b"/");
            named.compares(leading.unwrap_or(path));
            if let Some(path) = leading {
                named.leads(path);
            }
        }
        named
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_to_names_is_all_that_is_above_them() {
        let mut named = NamedDirs::default();
        named.leads(b"a/b/c");
        named.leads(b"a/d");
        named.compares(b"a/b/e");
        for (path, leads) in [("a", true), ("a/b", true), ("a/b/c", true), ("a/d", true), ("a/b/e", false)] {
            assert_eq!(named.leads_on(path.as_bytes()), leads, "{path}");
        }
        assert!(named.is_compared(b"a/b/e") && !named.is_compared(b"a/b"));
    }

    #[test]
    fn the_directory_that_all_names_are_below_is_a_slash() {
        let named = NamedDirs::only_top();
        assert!(named.is_compared(b"") && named.leads_on(b""));
        assert_eq!(named.said(), [b"/"]);
        let heard = NamedDirs::heard([&b"/"[..]].into_iter());
        assert!(heard.is_compared(b"") && heard.leads_on(b"") && !heard.is_compared(b"a"));
    }

    #[test]
    fn what_a_server_heard_is_what_was_said() {
        let mut named = NamedDirs::default();
        for path in ["a", "a/b", "c"] {
            named.compares(path.as_bytes());
        }
        named.leads(b"a/b/x");
        let said = named.said();
        assert_eq!(said, [&b"a/"[..], b"a/b/", b"c"]);
        let heard = NamedDirs::heard(said.iter().map(Vec::as_slice));
        assert!(!named.is_known(b"x") && named.is_known(b"a/b/x") && heard.is_known(b"x"));
        for path in ["", "a", "a/b", "a/b/x", "c"] {
            let of =
                |named: &NamedDirs| (named.is_compared(path.as_bytes()), named.leads_on(path.as_bytes()));
            assert_eq!(of(&heard), of(&named), "{path}");
        }
        assert!(!heard.leads_on(b"c") && heard.leads_on(b"") && !heard.is_compared(b"a/b/x"));
    }
}
