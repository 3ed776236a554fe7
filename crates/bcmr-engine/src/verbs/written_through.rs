//! Whether a program that follows links would write through one at the destination.
//!
//! Must not know which program that is.

use crate::error::{Error, Op, Result};
use crate::policy::{CopyPolicy, Target};
use crate::remote::Address;
use crate::sender::operand::typed;
use crate::verbs::operands::{self, DestLink, Reach, Where};
use fastcopy::dir::{ListBuffer, NameBuf};
use fastcopy::meta::Kind;
use std::path::PathBuf;

/// The first symbolic link that a program which follows links would write through, were `from` copied to `target` by it:
/// under the target's own name, under a source's name in it, or below that. None with
/// [`FollowDestination::Always`](crate::policy::FollowDestination::Always).
///
/// # Errors
/// The target is none, or cannot be looked at.
pub fn link_in_the_way(from: &[Address], target: &Target, policy: &CopyPolicy) -> Result<Option<PathBuf>> {
    let links = DestLink::received(policy);
    if links != DestLink::Received {
        return Ok(None);
    }
    let place = match operands::target(&Reach::Anywhere, target, from.len(), links)? {
        Where::Into(place) | Where::Whole(place) => place,
        Where::Name { dir, name, .. } => {
            let there = dir.dir.look(name.as_name()).map_err(|e| Error::os(Op::Stat, target.path(), e))?;
            let is_link = there.is_some_and(|info| info.kind == Kind::Link);
            return Ok(is_link.then(|| target.path().clone()));
        }
    };
    let mut stack = Vec::new();
    for address in from {
        let Some(name) = typed(&address.path)?.name else {
            stack.push((place.dir.reopen(), place.node.clone()));
            continue;
        };
        let node = place.node.below(name.as_name());
        let there = place.dir.look(name.as_name()).map_err(|e| Error::os(Op::Stat, node.path(), e))?;
        match there.map(|info| info.kind) {
            Some(Kind::Link) => return Ok(Some(node.path())),
            Some(Kind::Dir) if policy.recursive => {
                stack.push((place.dir.open_dir_readable(name.as_name()), node));
            }
            _ => {}
        }
    }
    let mut buffer = ListBuffer::new();
    while let Some((dir, node)) = stack.pop() {
        let fail = |e| Error::os(Op::ListDirectory, node.path(), e);
        let dir = dir.map_err(fail)?;
        let mut found = None;
        let mut dirs: Vec<NameBuf> = Vec::new();
        dir.list(&mut buffer, |entry| {
            // A file system that does not say what an entry is has it looked at.
            let kind = entry.kind.or_else(|| Some(dir.look(entry.name).ok()??.kind));
            match kind {
                Some(Kind::Link) => found = Some(node.join(entry.name)),
                Some(Kind::Dir) => dirs.push(entry.name.to_owned()),
                _ => {}
            }
            found.is_none()
        })
        .map_err(fail)?;
        if found.is_some() {
            return Ok(found);
        }
        for name in dirs {
            stack.push((dir.open_dir_readable(name.as_name()), node.below(name.as_name())));
        }
    }
    Ok(None)
}
