//! Whether a source changed while it was read, and what becomes of its copy then. Must not know how it was read.

use super::{Body, Fault, Fill, Job, Kernel, Side, tee};
use crate::error::Op;
use crate::policy::Changing;
use fastcopy::meta::{self, Info, Kind};
use std::io;
use std::os::fd::OwnedFd;

/// Proves that the source of a file that was filled is what it was before; or, where it may change, takes as much of it as
/// it had then, which must be there.
pub(super) fn still(job: &mut Job<'_, impl Kernel>, how: &Fill<'_>) -> Result<(), Fault> {
    let (Body::File(src), Some(dst)) = (&job.body, &job.file) else { return Ok(()) };
    let Err(fault) = unchanged(&job.info, src) else { return Ok(()) };
    if how.changing == Changing::Refused {
        return Err(fault);
    }
    let size = job.info.size;
    let is_file = Info::of(dst).map_err(dest(Op::Stat))?.kind == Kind::File;
    if job.bytes > size && is_file {
        meta::set_length(dst, size).map_err(dest(Op::Truncate))?;
        job.bytes = size;
        if job.hash.is_some() {
            job.hash = Some(tee::hash_first(src, size, &|_| (how.observe)(0))?);
        }
    }
    job.changed = true;
    Ok(())
}

/// What was read is one version of the source only if the source did not change meanwhile; ctime cannot be set
/// back.
fn unchanged(before: &Info, src: &OwnedFd) -> Result<(), Fault> {
    let after = Info::of(src).map_err(|e| Fault::os(Side::Source, Op::Stat, e))?;
    if before.same_content(&after) {
        return Ok(());
    }
    Err(Fault::changed())
}

fn dest(op: Op) -> impl Fn(io::Error) -> Fault {
    move |e| Fault::os(Side::Dest, op, e)
}
