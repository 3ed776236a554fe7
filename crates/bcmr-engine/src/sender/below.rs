//! Directories below one another, opened one after the other on one thread; and everything at a source and below it, shown
//! one by one, for what only counts.
//!
//! Must not know what is counted, nor change anything. However wide or deep a tree is, it takes few descriptors: a
//! directory is open from its turn on until the turn of the last one in it.

use crate::error::{Code, Error, Result};
use crate::node::Node;
use crate::policy::Follow;
use crate::sender::filter::Filter;
use crate::sender::level::Met;
use crate::sender::operand::Source;
use crate::sender::walk::SourceDir;
use fastcopy::dir::{ListBuffer, Name, NameBuf};
use fastcopy::meta::{Info, Kind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which of what is below takes part.
pub(crate) struct Which<'w> {
    pub(crate) follow: Follow,
    pub(crate) filter: &'w Filter,
    pub(crate) one_file_system: bool,
}

/// Directories that are to be opened, each when its turn comes: the newest first.
pub(crate) struct Descent<'w> {
    follow: bool,
    filter: &'w Filter,
    left: Vec<(Arc<SourceDir>, NameBuf)>,
}

impl<'w> Descent<'w> {
    /// Nothing is left to do. With `follow` links are followed.
    pub(crate) fn new(follow: bool, filter: &'w Filter) -> Descent<'w> {
        Descent { follow, filter, left: Vec::new() }
    }

    /// Leaves the directory `name` of `above` for later.
    pub(crate) fn leave(&mut self, above: &Arc<SourceDir>, name: Name<'_>) {
        self.left.push((above.clone(), name.to_owned()));
    }

    /// Opens the next one; `None`: none is left.
    pub(crate) fn next(&mut self) -> Option<Result<Arc<SourceDir>>> {
        let (above, name) = self.left.pop()?;
        let name = name.as_name();
        let mut next = above.enter(name, above.node.below(name), self.follow, self.filter);
        // Only where links are followed is it asked what is above, which would stay open for that.
        if !self.follow
            && let Some(own) = next.as_mut().ok().and_then(Arc::get_mut)
        {
            own.above = None;
        }
        Some(next)
    }
}

/// Shows a source that was typed as `path` and what is below it, each with its path, directories before what is in them, until `each`
/// says no.
/// What cannot be looked at goes to `failed`, and is not shown; what goes away meanwhile does not.
///
/// # Errors
/// What `failed` returns.
pub(crate) fn each_below(
    source: Source,
    path: &Path,
    which: &Which<'_>,
    failed: &mut dyn FnMut(Error) -> Result<()>,
    each: &mut dyn FnMut(&dyn Fn() -> PathBuf, &Info) -> bool,
) -> Result<()> {
    let Which { follow, filter, one_file_system } = *which;
    let own = || path.to_owned();
    let always = follow == Follow::Always;
    let mut descent = Descent::new(always, filter);
    let mut next = match source {
        Source::Named { dir, name, info, .. }
            if info.kind != Kind::Dir && dir.excludes(name.as_name(), &info, filter) =>
        {
            return Ok(());
        }
        Source::Named { info, .. } if !each(&own, &info) || info.kind != Kind::Dir => return Ok(()),
        Source::Named { dir, name, follow, .. } => {
            dir.enter(name.as_name(), Node::root(path), follow, filter)
        }
        Source::Whole(dir) if !each(&own, &dir.info) => return Ok(()),
        Source::Whole(dir) => dir.with_ignores(filter),
    };
    let mut buffer = ListBuffer::new();
    loop {
        match next {
            // What a link leads back to was shown already.
            Ok(here) if always && here.is_own_ancestor() => {}
            Ok(here) => {
                let (mut enough, mut ended) = (false, Ok(()));
                let listed = here.list(&mut buffer, follow, filter, |met| {
                    let looked = match met {
                        Met::Excluded(_) => return true,
                        Met::Failed(e) => Err(e),
                        Met::Entry { name, .. } => here.stat(name, always).map(|info| (name, info)),
                    };
                    match looked {
                        Ok((name, info)) => {
                            enough = !each(&|| here.node.join(name), &info);
                            if info.kind == Kind::Dir && (!one_file_system || info.dev == here.info.dev) {
                                descent.leave(&here, name);
                            }
                        }
                        Err(e) if e.code == Code::NotFound => {}
                        Err(e) => ended = failed(e),
                    }
                    !enough && ended.is_ok()
                });
                ended?;
                if enough {
                    return Ok(());
                }
                listed.or_else(&mut *failed)?;
            }
            Err(e) => failed(e)?,
        }
        let Some(opened) = descent.next() else { return Ok(()) };
        next = opened;
    }
}
