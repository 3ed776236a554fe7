//! The directories of one round that is compared with another machine: which of them are compared themselves, and which lead to
//! names.
//!
//! Must not look at anything.

use std::collections::HashSet;

/// Directories, by their paths below the source.
#[derive(Default)]
pub(crate) struct NamedDirs {
    compared: HashSet<Vec<u8>>,
    leading: HashSet<Vec<u8>>,
}

impl NamedDirs {
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

    /// Whether it is to be gone into.
    pub(crate) fn leads_on(&self, path: &[u8]) -> bool {
        self.leading.contains(path)
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
}
