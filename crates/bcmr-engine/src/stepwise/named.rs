//! A source and a destination that were looked at, as an operand of a verb: by the handles that are open.
//!
//! Must not know which verb it is for.

use super::spot::{Spot, parent_shown};
use crate::error::{Error, Op, Result};
use crate::node::Node;
use crate::policy::CopyPolicy;
use crate::receiver::claims;
use crate::sender::walk::SourceDir;
use crate::verbs::operands::{Dest, Operand, Place, Reach, Source, nesting};
use fastcopy::errno;
use fastcopy::meta::Info;

/// What `verb` is to bring from one name to the other. What has the names by now is met there: no path is resolved again.
///
/// # Errors
/// One of them is a dot, or the destination is in the source.
pub(super) fn operand(src: &Spot, dst: &Spot, info: &Info, policy: &CopyPolicy, verb: Op) -> Result<Operand> {
    let fail = |spot: &Spot| {
        let path = spot.shown.clone();
        move |e| Error::os(verb, path, e)
    };
    let (from, name) = src.place(errno::EBUSY).map_err(fail(src))?;
    let (to, to_name) = dst.place(errno::EBUSY).map_err(fail(dst))?;
    let above = from.dir.try_clone().map_err(fail(src))?;
    let above = SourceDir::root(above, Node::root(parent_shown(&src.shown)))?;
    let dir = to.dir.try_clone().map_err(fail(dst))?;
    let node = Node::root(parent_shown(&dst.shown));
    let place = Place::new(dir, node);
    let dest = Dest::Named { dir: place, name: to_name.to_owned() };
    let path = above.node.join(name);
    nesting(&Reach::Anywhere, info, false, &dest, policy, &path, verb)?;
    let source = Source::Named { dir: above, name: name.to_owned(), info: *info, follow: false };
    Ok(Operand { source, dest, path, spot: claims::Spot::default() })
}
