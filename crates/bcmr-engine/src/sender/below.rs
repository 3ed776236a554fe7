//! Everything at a source and below it, shown one by one on one thread: for what only counts.
//!
//! Must not know what is counted, nor change anything.

use crate::error::{Code, Error, Result};
use crate::node::Node;
use crate::policy::Follow;
use crate::sender::filter::Filter;
use crate::sender::level::Met;
use crate::sender::operand::Source;
use crate::sender::walk::SourceDir;
use fastcopy::dir::{ListBuffer, NameBuf};
use fastcopy::meta::{Info, Kind};
use std::path::Path;
use std::sync::Arc;

/// Which of what is below takes part.
pub(crate) struct Which<'w> {
    pub(crate) follow: Follow,
    pub(crate) filter: &'w Filter,
    pub(crate) one_file_system: bool,
}

/// Shows a source that was typed as `path` and what is below it, directories before what is in them, until `each` says no.
/// What cannot be looked at goes to `failed`, and is not shown; what goes away meanwhile does not.
///
/// # Errors
/// What `failed` returns.
pub(crate) fn each_below(
    source: Source,
    path: &Path,
    which: &Which<'_>,
    failed: &mut dyn FnMut(Error) -> Result<()>,
    each: &mut dyn FnMut(&Info) -> bool,
) -> Result<()> {
    let Which { follow, filter, one_file_system } = *which;
    let always = follow == Follow::Always;
    // A directory is opened when its turn comes, so that a wide one does not hold a descriptor for each below it.
    let mut stack: Vec<(Arc<SourceDir>, NameBuf)> = Vec::new();
    let mut next = match source {
        Source::Named { dir, name, info, .. }
            if info.kind != Kind::Dir && dir.excludes(name.as_name(), &info, filter) =>
        {
            return Ok(());
        }
        Source::Named { info, .. } if !each(&info) || info.kind != Kind::Dir => return Ok(()),
        Source::Named { dir, name, follow, .. } => {
            dir.enter(name.as_name(), Node::root(path), follow, filter)
        }
        Source::Whole(dir) if !each(&dir.info) => return Ok(()),
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
                            enough = !each(&info);
                            if info.kind == Kind::Dir && (!one_file_system || info.dev == here.info.dev) {
                                stack.push((here.clone(), name.to_owned()));
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
        let Some((above, name)) = stack.pop() else { return Ok(()) };
        let name = name.as_name();
        next = above.enter(name, above.node.below(name), always, filter);
    }
}
