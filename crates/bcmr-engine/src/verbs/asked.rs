//! What was asked of the other machine, so that what comes can be held against it: a client takes nothing under a name
//! that it did not ask for.
//!
//! Must not open or create anything, and must not know where anything goes.

use crate::error::Result;
use crate::node::Node;
use crate::sender::operand::typed;
use bcmr_wire::message::Kind;
use fastcopy::dir::NameBuf;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// What kind each operand was said to be. Attempts of one run share it: what was once a link is no directory later (V12).
#[derive(Default)]
pub(crate) struct Kinds(Mutex<HashMap<usize, Kind>>);

impl Kinds {
    /// Whether the operand at `index` may be of this kind: it is its first word on that, or the same as before.
    pub(crate) fn hold(&self, index: usize, kind: Kind) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *told.entry(index).or_insert(kind) == kind
    }
}

/// What may come.
pub(crate) enum Asked {
    /// Whatever is sent: a server is told, and does not ask.
    Anything,
    /// These operands, in this order, some of which may be missing. `None`: a directory without a name of its own.
    Operands(Vec<Option<NameBuf>>),
    /// One directory as a whole, and in it these names and what is below them.
    Listed(Listed),
}

/// Names of a list, their components joined by single slashes.
pub(crate) struct Listed {
    names: BTreeSet<Vec<u8>>,
}

impl Asked {
    /// Operands as they were typed.
    ///
    /// # Errors
    /// A path that is none.
    pub(crate) fn operands<'p>(paths: impl Iterator<Item = &'p Path>) -> Result<Asked> {
        paths.map(|path| Ok(typed(path)?.name)).collect::<Result<_>>().map(Asked::Operands)
    }

    /// Names of a list; such as no sender takes are left out.
    pub(crate) fn listed(names: &[Vec<u8>]) -> Asked {
        let clean = |name: &Vec<u8>| {
            let parts: Vec<&[u8]> =
                name.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".").collect();
            let good = name.first() != Some(&b'/') && !parts.is_empty() && !parts.contains(&&b".."[..]);
            good.then(|| parts.join(&b'/'))
        };
        Asked::Listed(Listed { names: names.iter().filter_map(clean).collect() })
    }

    /// Where the operand of this name stands, looked for from `next` on; `None` when it was not asked for.
    pub(crate) fn operand(&self, next: usize, name: Option<&NameBuf>) -> Option<usize> {
        match self {
            Asked::Anything => Some(next),
            Asked::Operands(names) => {
                let rest = names.iter().enumerate().skip(next);
                rest.filter(|(_, asked)| asked.as_ref() == name).map(|(index, _)| index).next()
            }
            Asked::Listed(_) => (next == 0 && name.is_none()).then_some(0),
        }
    }

    /// Whether `name` in the directory `node`, whose root is the operand, is within what was asked for.
    pub(crate) fn takes(&self, node: &Node, name: &NameBuf, is_dir: bool) -> bool {
        let Asked::Listed(list) = self else { return true };
        let names = node.names();
        let parts: Vec<&[u8]> = names.iter().map(|n| n.bytes()).chain([name.bytes()]).collect();
        list.takes(&parts.join(&b'/'), is_dir)
    }
}

impl Listed {
    /// It is listed, or below what is, or a directory on the way there.
    fn takes(&self, path: &[u8], is_dir: bool) -> bool {
        let slashes = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        if slashes.chain([path.len()]).any(|end| path.get(..end).is_some_and(|p| self.names.contains(p))) {
            return true;
        }
        if !is_dir {
            return false;
        }
        let below = [path, b"/"].concat();
        self.names.range(below.clone()..).next().is_some_and(|first| first.starts_with(&below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_and_what_leads_there() {
        let names = ["a/b/c", "./d//e/", "x", "../up", "/abs", "b-c"].map(|n| n.as_bytes().to_vec());
        let Asked::Listed(list) = Asked::listed(&names) else { panic!("no list") };
        let table = [
            ("a", true, true),
            ("a", false, false),
            ("a/b", true, true),
            ("a/b/c", false, true),
            ("a/b/c/d/e", false, true),
            ("a/b/x", false, false),
            ("a/bc", true, false),
            ("a-b", true, false),
            ("d/e", false, true),
            ("d/f", true, false),
            ("x/anything", false, true),
            ("xy", false, false),
            ("up", false, false),
            ("abs", false, false),
            ("b", true, false),
        ];
        for (path, is_dir, want) in table {
            assert_eq!(list.takes(path.as_bytes(), is_dir), want, "{path} {is_dir}");
        }
    }

    #[test]
    fn operands_come_in_their_order_and_once() {
        let asked = Asked::operands(["dir/x", "y/", ".", "x"].iter().map(Path::new)).unwrap();
        let name = |n: &str| NameBuf::new(n.as_bytes()).unwrap();
        assert_eq!(asked.operand(0, Some(&name("x"))), Some(0));
        assert_eq!(asked.operand(1, Some(&name("x"))), Some(3));
        assert_eq!(asked.operand(1, Some(&name("y"))), Some(1));
        assert_eq!(asked.operand(2, Some(&name("y"))), None);
        assert_eq!((asked.operand(0, None), asked.operand(3, None)), (Some(2), None));
        assert_eq!(asked.operand(4, Some(&name("x"))), None);
    }
}
