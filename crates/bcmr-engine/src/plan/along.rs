//! The one way through a plan: every directory is entered before what is in it and left after all that is below it, and
//! each entry comes with what became of it.
//!
//! Must not know what is done on the way.

use super::folder::PlanFolder;
use super::format::{Digest, LandedEntry, PlanHeader, PlannedAs, PlannedEntry, ShardCounts, Version};
use crate::error::{Code, Error, Op, Reason, Result};
use fastcopy::dir::NameBuf;
use std::collections::VecDeque;

/// What is done on the way.
pub(super) trait Along {
    /// What is kept of a directory for as long as it is gone through.
    type Level;

    /// Whether to stop.
    fn is_stopped(&self) -> bool;
    /// Goes into the directory `name`, whose path below the top is `path`.
    ///
    /// # Errors
    /// The way ends.
    fn enter(
        &mut self,
        above: &mut Self::Level,
        path: &[u8],
        name: &NameBuf,
        version: &Version,
    ) -> Result<Self::Level>;
    /// Comes to an entry of the directory `path`.
    ///
    /// # Errors
    /// The way ends.
    fn entry(
        &mut self,
        at: &mut Self::Level,
        path: &[u8],
        entry: &PlannedEntry,
        landed: LandedEntry,
    ) -> Result<()>;
    /// Leaves the directory `path` for the one above it, if there is one.
    ///
    /// # Errors
    /// The way ends.
    fn leave(&mut self, level: Self::Level, path: &[u8], above: Option<&mut Self::Level>) -> Result<()>;
}

/// One directory on the way.
struct WayLevel<L> {
    name: NameBuf,
    level: L,
    /// Subdirectories that were not gone into yet, in order: those that are passed over are empty.
    waiting: VecDeque<(NameBuf, Version)>,
}

/// Where a way has come to: below the top.
struct Way<'a, A: Along> {
    along: &'a mut A,
    folder: &'a PlanFolder,
    top: A::Level,
    top_waits: VecDeque<(NameBuf, Version)>,
    below: Vec<WayLevel<A::Level>>,
}

/// Goes through all of a plan. Returns what its results say was done.
///
/// # Errors
/// Those of `along`, or the plan or a result cannot be read.
pub(super) fn along<A: Along>(
    (folder, header, plan): (&PlanFolder, &PlanHeader, &Digest),
    top: A::Level,
    along: &mut A,
) -> Result<ShardCounts> {
    let mut counts = ShardCounts::default();
    let mut way = Way { along, folder, top, top_waits: VecDeque::new(), below: Vec::new() };
    for shard in 0..header.shards.len() as u32 {
        let mut entries = folder.entries(header, shard)?;
        let Some(mut result) = folder.result(header, plan, shard)? else {
            let path = folder.result_path(shard);
            return Err(Error::ours(Code::NotFound, Op::FinishPlan, path, Reason::ResultDamaged));
        };
        let mut index = 0;
        while let Some(dirs) = entries.next()? {
            if way.along.is_stopped() {
                return Err(Error::ours(
                    Code::Interrupted,
                    Op::FinishPlan,
                    &folder.path,
                    Reason::Interrupted,
                ));
            }
            let (more, landed) = result.next(index, &dirs)?;
            counts.add(&more);
            let mut landed = landed.into_iter();
            for dir in &dirs {
                way.go_to(&dir.path)?;
                for entry in &dir.entries {
                    let Some(landed) = landed.next() else { break };
                    way.entry(&dir.path, entry, landed)?;
                }
            }
            index += 1;
        }
    }
    way.leave_to(0)?;
    way.end_level()?;
    let Way { along, top, .. } = way;
    along.leave(top, b"", None)?;
    Ok(counts)
}

impl<A: Along> Way<'_, A> {
    fn damaged(&self) -> Error {
        Error::ours(Code::Io, Op::FinishPlan, &self.folder.path, Reason::PlanDamaged)
    }

    /// The path of the directory that is gone through, below the top.
    fn path(&self) -> Vec<u8> {
        let names: Vec<&[u8]> = self.below.iter().map(|at| at.name.bytes()).collect();
        names.join(&b'/')
    }

    fn waiting(&mut self) -> &mut VecDeque<(NameBuf, Version)> {
        self.below.last_mut().map_or(&mut self.top_waits, |at| &mut at.waiting)
    }

    fn entry(&mut self, path: &[u8], entry: &PlannedEntry, landed: LandedEntry) -> Result<()> {
        let level = self.below.last_mut().map_or(&mut self.top, |at| &mut at.level);
        self.along.entry(level, path, entry, landed)?;
        if let PlannedAs::Directory(version) = &entry.what {
            let next = (entry.name.clone(), *version);
            self.waiting().push_back(next);
        }
        Ok(())
    }

    /// Leaves directories and enters others until `path` is the one that is gone through.
    fn go_to(&mut self, path: &[u8]) -> Result<()> {
        let parts: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|part| !part.is_empty()).collect();
        let common = self.below.iter().zip(&parts).take_while(|(at, part)| at.name.bytes() == **part).count();
        self.leave_to(common)?;
        for part in parts.iter().skip(common) {
            loop {
                match self.waiting().pop_front() {
                    Some((name, version)) if name.bytes() == *part => {
                        self.enter(name, &version)?;
                        break;
                    }
                    Some((name, version)) => self.pass_over(name, &version)?,
                    None => return Err(self.damaged()),
                }
            }
        }
        Ok(())
    }

    fn enter(&mut self, name: NameBuf, version: &Version) -> Result<()> {
        let mut path = self.path();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.bytes());
        let above = self.below.last_mut().map_or(&mut self.top, |at| &mut at.level);
        let level = self.along.enter(above, &path, &name, version)?;
        self.below.push(WayLevel { name, level, waiting: VecDeque::new() });
        Ok(())
    }

    /// It has nothing in it.
    fn pass_over(&mut self, name: NameBuf, version: &Version) -> Result<()> {
        self.enter(name, version)?;
        self.leave_last()
    }

    fn leave_to(&mut self, depth: usize) -> Result<()> {
        while self.below.len() > depth {
            self.end_level()?;
            self.leave_last()?;
        }
        Ok(())
    }

    /// Passes over the empty directories at the end of the one that is gone through.
    fn end_level(&mut self) -> Result<()> {
        while let Some((name, version)) = self.waiting().pop_front() {
            self.pass_over(name, &version)?;
        }
        Ok(())
    }

    fn leave_last(&mut self) -> Result<()> {
        let path = self.path();
        let Some(last) = self.below.pop() else { return Ok(()) };
        let above = self.below.last_mut().map_or(&mut self.top, |at| &mut at.level);
        self.along.leave(last.level, &path, Some(above))
    }
}
