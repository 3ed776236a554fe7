//! Whether a source changed while it was read, and what becomes of its copy then. Must not know how it was read.

use super::{Body, Fault, Fill, Job, Kernel, Side, tee};
use crate::error::{Code, Op, Reason};
use crate::policy::Changing;
use fastcopy::Rung;
use fastcopy::meta::{self, Info, Kind};
use std::io;
use std::os::fd::OwnedFd;

/// Proves that the source of a file that was filled is what it was before; or, where it may change, takes as much of it as
/// it had then, which must be there unless what is left will do.
pub(super) fn still(job: &mut Job<'_, impl Kernel>, how: &Fill<'_>) -> Result<(), Fault> {
    let (Body::File(src), Some(dst)) = (&job.body, &job.file) else { return Ok(()) };
    let Err(fault) = unchanged(&job.info, src) else { return Ok(()) };
    if how.changing == Changing::Refused {
        return Err(fault);
    }
    let size = job.info.size;
    let there = Info::of(dst).map_err(dest(Op::Stat))?;
    // A clone takes the source at the length that it has by then.
    if job.rung == Some(Rung::Clone) {
        job.bytes = there.size;
        if job.bytes < size && how.changing != Changing::AsRead {
            let note = Reason::SourceEndedEarly;
            return Err(Fault::ours(Side::Source, Op::Copy, Code::SourceChanged, note));
        }
    }
    if job.bytes > size && there.kind == Kind::File {
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

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look from outside")]
mod tests {
    use super::*;
    use crate::disk::model::PLAIN;
    use crate::disk::sys::Sys;
    use crate::disk::{Attributes, Dirs, Phases, Placement};
    use fastcopy::dir::{Dir, NameBuf};

    /// What became shorter before all of it was read is an error, unless what is left will do.
    #[test]
    fn what_is_left_of_a_source_lands_where_that_will_do() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = Dir::open(tmp.path()).unwrap();
        let name = NameBuf::new(b"name").unwrap();
        let path = |name: &str| tmp.path().join(name);
        let disk = Sys::new();
        for (before, left) in [(9000, 4000), (9000, 0), (300_000, 4000), (300_000, 100_000)] {
            for (changing, landed) in [
                (Changing::Refused, Err(Code::SourceChanged)),
                (Changing::Allowed, Err(Code::SourceChanged)),
                (Changing::AsRead, Ok(left)),
            ] {
                std::fs::write(path("source"), vec![7; before]).unwrap();
                let source = std::fs::File::options().read(true).write(true).open(path("source")).unwrap();
                let info = Info::of(&source).unwrap();
                source.set_len(left).unwrap();
                let attributes = Attributes::At(&dir, name.as_name());
                let body = Body::File(source.into());
                let mut job: Job<'_, Sys> =
                    Job::new(name.as_name(), Placement::Final, info, None, body, attributes);
                job.file = Some(std::fs::File::create(path("copy")).unwrap().into());
                disk.fill(&mut disk.hand(), std::slice::from_mut(&mut job), &Fill { changing, ..PLAIN });
                let done = job.fault.map_or(Ok(job.bytes), |fault| Err(fault.code));
                assert_eq!(done, landed, "{before} {left} {changing:?}");
                let there = std::fs::read(path("copy")).unwrap();
                assert!(landed.is_err() || there == vec![7; left as usize], "{before} {left}");
            }
        }
    }

    /// A clone has the length that its source had by then: what is too much is cut, what is missing is an error.
    #[test]
    fn a_clone_is_as_long_as_was_promised() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = Dir::open(tmp.path()).unwrap();
        let name = NameBuf::new(b"name").unwrap();
        let path = |name: &str| tmp.path().join(name);
        for (length, landed) in [(5000, Ok(3000)), (3000, Ok(3000)), (0, Err(Code::SourceChanged))] {
            std::fs::write(path("source"), vec![7; 3000]).unwrap();
            let source = std::fs::File::options().write(true).open(path("source")).unwrap();
            let info = Info::of(&source).unwrap();
            source.set_len(length).unwrap();
            std::fs::copy(path("source"), path("clone")).unwrap();
            let body = Body::File(source.into());
            let attributes = Attributes::At(&dir, name.as_name());
            let mut job: Job<'_, Sys> =
                Job::new(name.as_name(), Placement::Final, info, None, body, attributes);
            job.file = Some(std::fs::File::options().write(true).open(path("clone")).unwrap().into());
            (job.bytes, job.rung) = (3000, Some(Rung::Clone));
            // Written once more, so that also the last row has a source that was touched since.
            std::fs::write(path("source"), vec![8; length as usize]).unwrap();
            let done = still(&mut job, &Fill { changing: Changing::Allowed, ..PLAIN });
            assert_eq!(done.map(|()| job.bytes).map_err(|fault| fault.code), landed, "{length}");
            assert!(landed.is_err() || std::fs::metadata(path("clone")).unwrap().len() == 3000, "{length}");
        }
    }
}
