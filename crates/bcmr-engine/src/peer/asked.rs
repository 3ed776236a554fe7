//! What was asked of the other machine, so that what comes can be held against it: a client takes nothing under a name
//! that it did not ask for.
//!
//! Must not open or create anything, and must not know where anything goes.

use crate::error::{Code, Result};
use crate::node::Node;
use crate::sender::filter::{Filter, Seen, relative};
use crate::sender::operand::typed;
use bcmr_wire::message::Kind;
use fastcopy::dir::NameBuf;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// What did not come is named up to here, and counted behind.
const MISSING_NAMED_MAX: usize = 16;
/// Names in a path that is said not to come, counted from its end, among which a name of a list is looked for: more than a
/// path of PATH_MAX has.
const REFUSED_NAMES_MAX: usize = 2048;

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

/// What was asked for: what may come, and what must.
pub(crate) struct Asked {
    of: Of,
    /// What takes part, as the other side was told.
    filter: Filter,
    /// Whether names are there is what is asked.
    seeks: bool,
}

enum Of {
    /// Whatever is sent: a server is told, and does not ask.
    Anything,
    /// These operands, in this order, some of which may be refused.
    Operands(Vec<AskedOperand>),
    /// One directory as a whole, and in it these names and what is below them.
    Listed(AskedList),
}

/// One operand.
struct AskedOperand {
    path: PathBuf,
    /// `None`: a directory without a name of its own.
    name: Option<NameBuf>,
    /// It came, or why it does not was told.
    settled: AtomicBool,
}

/// Names of a list, their components joined by single slashes, and whether each came or was refused. And directories on
/// the way to some of them that were refused.
pub(crate) struct AskedList {
    base: AskedOperand,
    names: BTreeMap<Vec<u8>, AtomicBool>,
    refused: Mutex<BTreeSet<Vec<u8>>>,
}

/// What did not come, and nothing was said about.
#[derive(Default)]
pub(crate) struct Missing {
    /// The first of them, as they were asked for.
    pub(crate) named: Vec<PathBuf>,
    /// How many more there are.
    pub(crate) more: u64,
}

impl Missing {
    fn add(&mut self, path: impl FnOnce() -> PathBuf) {
        if self.named.len() < MISSING_NAMED_MAX {
            self.named.push(path());
        } else {
            self.more += 1;
        }
    }
}

impl AskedOperand {
    fn new(path: &Path, name: Option<NameBuf>) -> AskedOperand {
        AskedOperand { path: path.to_owned(), name, settled: AtomicBool::new(false) }
    }
}

/// The names in a path; what only says where one is already is none.
fn names_in(path: &Path) -> Vec<&[u8]> {
    let name = |part| match part {
        Component::Normal(name) => Some(name.as_bytes()),
        Component::ParentDir => Some(&b".."[..]),
        _ => None,
    };
    path.components().filter_map(name).collect()
}

impl Asked {
    /// At the server.
    pub(crate) fn anything() -> Asked {
        Asked { of: Of::Anything, filter: Filter::all(), seeks: false }
    }

    /// Operands as they were typed.
    ///
    /// # Errors
    /// A path that is none.
    pub(crate) fn operands<'p>(paths: impl Iterator<Item = &'p Path>, filter: Filter) -> Result<Asked> {
        let operands =
            paths.map(|path| Ok(AskedOperand::new(path, typed(path)?.name))).collect::<Result<_>>()?;
        Ok(Asked { of: Of::Operands(operands), filter, seeks: false })
    }

    /// Names of a list below `base`; such as no sender takes are left out.
    pub(crate) fn listed(base: &Path, names: &[Vec<u8>], filter: Filter) -> Asked {
        let clean = |name: &Vec<u8>| {
            let parts: Vec<&[u8]> =
                name.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".").collect();
            let good = name.first() != Some(&b'/') && !parts.is_empty() && !parts.contains(&&b".."[..]);
            good.then(|| (parts.join(&b'/'), AtomicBool::new(false)))
        };
        let names = names.iter().filter_map(clean).collect();
        let base = AskedOperand::new(base, None);
        Asked { of: Of::Listed(AskedList { base, names, refused: Mutex::default() }), filter, seeks: false }
    }

    /// The same, where it is an answer and no trouble that a name is not there.
    pub(crate) fn seeking(self) -> Asked {
        Asked { seeks: true, ..self }
    }

    /// Whether what the other side says of a name is what was asked.
    pub(crate) fn is_answer(&self, code: Code) -> bool {
        self.seeks && code == Code::NotFound
    }

    /// Where the operand of this name and kind stands, looked for from `next` on; `None` when it was not asked for. `path` is
    /// what the other side says it is: it tells operands of one name from one another, and nothing else.
    pub(crate) fn operand(
        &self,
        next: usize,
        (path, name): (&Path, Option<&NameBuf>),
        seen: impl Into<Seen>,
    ) -> Option<usize> {
        let seen = seen.into();
        let found = match &self.of {
            Of::Anything => return Some(next),
            Of::Operands(operands) => {
                let mut rest = operands.iter().enumerate().skip(next);
                let mut named = || rest.find(|(_, asked)| asked.name.as_ref() == name);
                let said = names_in(path);
                let (first, mut meant) = (named(), None);
                let mut one = first;
                while let Some((index, asked)) = one {
                    let is_meant = said.ends_with(&names_in(&asked.path));
                    if is_meant && !asked.settled.load(Relaxed) {
                        meant = Some((index, asked));
                        break;
                    }
                    // One that was refused does not come, unless it was another one that was.
                    meant = meant.or(one.filter(|_| is_meant));
                    one = named();
                }
                meant.or(first)
            }
            Of::Listed(list) => (next == 0 && name.is_none()).then_some((0, &list.base)),
        };
        let (index, operand) = found?;
        // A directory is what it was asked for as, whatever it is called.
        if let Some(name) = name.filter(|_| !seen.is_dir())
            && self.leaves_out(&Node::root(Path::new("")), name, seen)
        {
            return None;
        }
        operand.settled.store(true, Relaxed);
        Some(index)
    }

    /// Whether `name` in the directory `node`, whose root is the operand, is within what was asked for.
    pub(crate) fn takes(&self, node: &Node, name: &NameBuf, seen: impl Into<Seen>) -> bool {
        let seen = seen.into();
        if self.leaves_out(node, name, seen) {
            return false;
        }
        let Of::Listed(list) = &self.of else { return true };
        let names = node.names();
        let parts: Vec<&[u8]> = names.iter().map(|n| n.bytes()).chain([name.bytes()]).collect();
        list.takes(&parts.join(&b'/'), seen.is_dir())
    }

    /// Whether a name is one that the other side was told to leave out.
    fn leaves_out(&self, node: &Node, name: &NameBuf, seen: Seen) -> bool {
        if self.filter.is_empty() {
            return false;
        }
        let names = node.names();
        let path = relative(names.iter().map(|n| n.bytes()).chain([name.bytes()]));
        self.filter.excludes(&path, seen, None)
    }

    /// The other side says that something of this path does not come.
    pub(crate) fn refused(&self, path: &Path) {
        let said = names_in(path);
        let is = |operand: &AskedOperand| said.ends_with(&names_in(&operand.path));
        match &self.of {
            Of::Anything => {}
            Of::Operands(operands) => {
                for operand in operands.iter().filter(|o| is(o)) {
                    operand.settled.store(true, Relaxed);
                }
            }
            Of::Listed(list) if is(&list.base) => list.base.settled.store(true, Relaxed),
            Of::Listed(list) => list.refused(&said),
        }
    }

    /// What neither came nor was refused, now that everything was sent.
    pub(crate) fn missing(&self) -> Missing {
        let mut missing = Missing::default();
        match &self.of {
            Of::Anything => {}
            // How large and old a file is that did not come only the source knows.
            Of::Operands(_) if self.filter.asks_file() => {}
            Of::Operands(operands) => {
                for operand in operands.iter().filter(|o| !o.settled.load(Relaxed)) {
                    let root = Node::root(Path::new(""));
                    let out =
                        operand.name.as_ref().is_some_and(|name| self.leaves_out(&root, name, false.into()));
                    if !out {
                        missing.add(|| operand.path.clone());
                    }
                }
            }
            Of::Listed(list) if !list.base.settled.load(Relaxed) => missing.add(|| list.base.path.clone()),
            // What rules in its tree, a size or a time leave out only the source knows.
            Of::Listed(_) if self.filter.asks_tree() || self.filter.asks_file() => {}
            Of::Listed(list) => {
                for (name, _) in list.names.iter().filter(|(_, settled)| !settled.load(Relaxed)) {
                    if !list.is_below_refused(name) && !self.leaves_out_listed(name) {
                        missing.add(|| list.base.path.join(OsStr::from_bytes(name)));
                    }
                }
            }
        }
        missing
    }

    /// The same for a name of a list, which may be out because a directory above it is.
    fn leaves_out_listed(&self, name: &[u8]) -> bool {
        let out = |end: usize, is_dir| {
            let path = Path::new(OsStr::from_bytes(name.get(..end).unwrap_or_default()));
            self.filter.excludes(path, is_dir, None)
        };
        !self.filter.is_empty() && (ends(name).any(|end| out(end, true)) || out(name.len(), false))
    }
}

/// Where each of the names in a path ends.
fn ends(path: &[u8]) -> impl Iterator<Item = usize> {
    path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at).chain([path.len()])
}

impl AskedList {
    /// It is listed, or below what is, or a directory on the way there.
    fn takes(&self, path: &[u8], is_dir: bool) -> bool {
        if let Some(settled) = self.names.get(path) {
            settled.store(true, Relaxed);
            return true;
        }
        if ends(path).any(|end| path.get(..end).is_some_and(|p| self.names.contains_key(p))) {
            return true;
        }
        is_dir && self.leads_on(path)
    }

    /// Whether names of the list are below a path.
    fn leads_on(&self, path: &[u8]) -> bool {
        let below = [path, b"/"].concat();
        self.names.range(below.clone()..).next().is_some_and(|(first, _)| first.starts_with(&below))
    }

    /// The other side's paths are longer than the list's, and by how much only it knows.
    fn refused(&self, said: &[&[u8]]) {
        for start in said.len().saturating_sub(REFUSED_NAMES_MAX)..said.len() {
            let path = said.get(start..).unwrap_or_default().join(&b'/');
            if let Some(settled) = self.names.get(&path) {
                settled.store(true, Relaxed);
            } else if self.leads_on(&path) {
                self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(path);
            }
        }
    }

    fn is_below_refused(&self, name: &[u8]) -> bool {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        ends(name).any(|end| name.get(..end).is_some_and(|above| refused.contains(above)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// V1: a file of a size that was to be left out is not what was asked for; how large one is that did not come only the
    /// source knows.
    #[test]
    fn sizes_that_were_to_be_left_out_are_refused() {
        let spec =
            crate::policy::FilterSpec { max_bytes: Some(5), ..crate::policy::FilterSpec::everything() };
        let asked = || Asked::operands([Path::new("a")].into_iter(), Filter::new(&spec).unwrap()).unwrap();
        let name = NameBuf::new(b"a").unwrap();
        let (file, top) = (|bytes| Seen::File { bytes, modified: 0 }, Node::root(Path::new("d")));
        assert_eq!(asked().operand(0, (Path::new("a"), Some(&name)), file(6)), None);
        assert_eq!(asked().operand(0, (Path::new("a"), Some(&name)), file(5)), Some(0));
        assert_eq!(
            asked().operand(0, (Path::new("a"), Some(&name)), true),
            Some(0),
            "a directory has no size"
        );
        assert!(!asked().takes(&top, &name, file(6)) && asked().takes(&top, &name, file(5)));
        assert!(asked().missing().named.is_empty());
    }

    #[test]
    fn what_is_listed_and_what_leads_there() {
        let names = ["a/b/c", "./d//e/", "x", "../up", "/abs", "b-c"].map(|n| n.as_bytes().to_vec());
        let Of::Listed(list) = Asked::listed(Path::new("base"), &names, Filter::all()).of else {
            panic!("no list")
        };
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
        let paths = ["dir/x", "y/", ".", "x"];
        let asked = Asked::operands(paths.iter().map(Path::new), Filter::all()).unwrap();
        let operand = |asked: &Asked, next, path: &str, name: &str| {
            let name = NameBuf::new(name.as_bytes());
            asked.operand(next, (Path::new(path), name.as_ref()), false)
        };
        assert_eq!(operand(&asked, 0, "/h/dir/x", "x"), Some(0));
        assert_eq!(operand(&asked, 1, "/h/x", "x"), Some(3));
        assert_eq!(operand(&asked, 1, "/h/y", "y"), Some(1));
        assert_eq!(operand(&asked, 2, "/h/y", "y"), None);
        assert_eq!((operand(&asked, 0, "/h", ""), operand(&asked, 3, "/h", "")), (Some(2), None));
        assert_eq!(operand(&asked, 4, "/h/x", "x"), None);
        // Another path than was asked for changes nothing: the first of the name is meant.
        assert_eq!(operand(&asked, 0, "/elsewhere", "x"), Some(0));
    }

    /// Of two operands of one name, the second is not taken for the first, which does not come.
    #[test]
    fn an_operand_that_was_refused_is_not_taken_for_another_of_its_name() {
        let name = NameBuf::new(b"a").unwrap();
        for (paths, refused, came) in [
            (["one/a", "two/a"], "/h/one/a", ("/h/two/a", 1)),
            // What was refused is below the first operand, or is one whose path ends as another's.
            (["one", "a"], "/h/one/a", ("/h/a", 1)),
            (["a", "two/a"], "/h/a", ("/h/two/a", 1)),
            (["two/a", "a"], "/h/two/a", ("/h/a", 1)),
        ] {
            let asked = Asked::operands(paths.iter().map(Path::new), Filter::all()).unwrap();
            asked.refused(Path::new(refused));
            assert_eq!(asked.operand(0, (Path::new(came.0), Some(&name)), false), Some(came.1), "{paths:?}");
            let missing: Vec<_> = asked.missing().named;
            let want: &[&str] = if paths[0] == "one" { &["one"] } else { &[] };
            assert!(missing.iter().eq(want.iter().map(Path::new)), "{paths:?}: {missing:?}");
        }
    }
}
