//! What files of rules (`.gitignore`, `.bcmrignore`) leave out of what only the destination has, where the source is on another
//! machine: it goes by its copies of those that the source has sent.
//!
//! Must not know what goes. Where the rules of a directory are not here the receiver cannot say what stays, so nothing in it or
//! below it goes (M11).

use crate::error::{Code, Error, Op, Reason, Result};
use crate::node::Node;
use crate::receiver::partly::{RulesBelow, SparedBelow};
use crate::sender::filter::{Filter, Ignores, RULE_FILES, relative};
use bcmr_wire::limits::RULED_DIRS_MAX;
use fastcopy::dir::{Dir, Name, NameBuf};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is known of the source's files of rules, by the destination's directories (device and inode).
pub(crate) struct RulesThere {
    filter: Arc<Filter>,
    known: Mutex<KnownRules>,
}

#[derive(Default)]
struct KnownRules {
    dirs: HashMap<(u64, u64), RuledDir>,
    /// More directories have such files than are remembered.
    is_full: bool,
}

/// A directory that has files of rules at the source.
#[derive(Default)]
struct RuledDir {
    /// Which of [`RULE_FILES`] the source has sent.
    sent: [bool; RULE_FILES.len()],
    /// One of them is not here.
    lacks: Option<Reason>,
    is_told: bool,
}

impl RulesThere {
    /// Nothing was sent yet; `None` where no such files are asked.
    pub(crate) fn of(filter: &Arc<Filter>) -> Option<Arc<RulesThere>> {
        filter.asks_tree().then(|| Arc::new(RulesThere { filter: filter.clone(), known: Mutex::default() }))
    }

    fn known(&self) -> MutexGuard<'_, KnownRules> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn about(&self, name: Name<'_>, dir: (u64, u64), note: impl FnOnce(&mut RuledDir, usize)) {
        let Some(which) = self.filter.rule_file(name) else { return };
        let mut known = self.known();
        if known.dirs.len() >= RULED_DIRS_MAX && !known.dirs.contains_key(&dir) {
            known.is_full = true;
        } else {
            note(known.dirs.entry(dir).or_default(), which);
        }
    }

    /// Whether a name is a file of rules, so that it matters what becomes of it.
    pub(crate) fn asks(&self, name: Name<'_>) -> bool {
        self.filter.rule_file(name).is_some()
    }

    /// The source has `name` in what becomes `dir`, and sends it.
    pub(crate) fn met(&self, name: Name<'_>, dir: (u64, u64)) {
        self.about(name, dir, |ruled, which| {
            ruled.sent.get_mut(which).into_iter().for_each(|sent| *sent = true);
        });
    }

    /// If `name` is a file of rules, it is not here as the source has it: `why`.
    pub(crate) fn lacks(&self, name: Name<'_>, dir: (u64, u64), why: Reason) {
        self.about(name, dir, |ruled, _| ruled.lacks = ruled.lacks.or(Some(why)));
    }

    /// What these files leave out below the directories that the planner asks about.
    pub(crate) fn below(self: &Arc<Self>) -> Box<RulesBelow> {
        let rules = self.clone();
        Box::new(move |root: &Dir, node: &Node| rules.reigning(root, node))
    }

    /// The rules that reign in a directory. `None`: they are not here, which was told before.
    fn reigning(&self, root: &Dir, node: &Node) -> Result<Option<Box<SparedBelow<'static>>>> {
        let names: Vec<NameBuf> = node.names().into_iter().cloned().collect();
        let fail = |op: Op| move |e| Error::os(op, node.path(), e);
        let mut dir = root.try_clone().map_err(fail(Op::OpenDirectory))?;
        let mut ignores = None;
        for depth in 0..=names.len() {
            if let Some(name) = depth.checked_sub(1).and_then(|above| names.get(above)) {
                dir = dir.open_dir(name.as_name()).map_err(fail(Op::OpenDirectory))?;
            }
            let id = dir.info().map_err(fail(Op::Stat))?.id();
            let shown = || above(node, names.len() - depth);
            let Some(sent) = self.sent(id, shown)? else { return Ok(None) };
            ignores = self.read((&dir, &shown), depth, ignores, sent)?;
        }
        let filter = self.filter.clone();
        Ok(Some(Box::new(move |below: &[&[u8]], is_dir: bool| {
            let path = relative(names.iter().map(NameBuf::bytes).chain(below.iter().copied()));
            filter.excludes(&path, is_dir, ignores.as_ref())
        })))
    }

    /// Which files of rules of a directory are read. What the source does not have says nothing, and goes itself.
    ///
    /// # Errors
    /// One is not here, which is told once.
    fn sent(
        &self,
        id: (u64, u64),
        shown: impl FnOnce() -> PathBuf,
    ) -> Result<Option<[bool; RULE_FILES.len()]>> {
        let mut known = self.known();
        let is_full = known.is_full;
        let Some(ruled) = known.dirs.get_mut(&id) else {
            return match is_full {
                true => Err(Error::ours(Code::Limit, Op::DeleteIn, shown(), Reason::TooManyRules)),
                false => Ok(Some(Default::default())),
            };
        };
        match ruled.lacks {
            None => Ok(Some(ruled.sent)),
            Some(_) if std::mem::replace(&mut ruled.is_told, true) => Ok(None),
            Some(why) => Err(Error::ours(Code::Refused, Op::DeleteIn, shown(), why)),
        }
    }

    fn read(
        &self,
        dir: (&Dir, &dyn Fn() -> PathBuf),
        depth: usize,
        above: Option<Arc<Ignores>>,
        sent: [bool; RULE_FILES.len()],
    ) -> Result<Option<Arc<Ignores>>> {
        if sent.contains(&true) {
            self.filter.rules_among(dir, depth, above.as_ref(), sent)
        } else {
            Ok(above)
        }
    }
}

/// The directory so many names above one, for showing.
fn above(node: &Node, names: usize) -> PathBuf {
    let path = node.path();
    path.ancestors().nth(names).unwrap_or(&path).to_owned()
}
