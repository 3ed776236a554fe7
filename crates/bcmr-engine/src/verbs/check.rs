//! `check`: what a copy of the same arguments would change.
//!
//! Must not change anything. Two files are alike when their size is, and the destination is not older than the
//! source (the very same mtime where times are kept); with hashes, when their contents are. Where mode and owner are
//! kept they are compared too.

use crate::error::{Error, Result};
use crate::event::{Change, Event, Summary, Watch};
use crate::policy::{CheckRequest, Compare, CopyPolicy};
use crate::sender::filter::Filter;
use crate::tally::Tally;
use crate::verbs::operands;
use crate::verbs::survey::{At, Survey, Visit};
use fastcopy::dir::{Dir, ListBuffer, Name, NameBuf};
use fastcopy::meta::{Info, Kind};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

/// Compares.
///
/// # Errors
/// Only when nothing could be begun.
pub fn check(request: CheckRequest, watch: Watch<'_>) -> Result<Summary> {
    let tally = Tally::new(watch);
    let to = operands::target(&operands::Reach::Anywhere, &request.target, request.sources.len())?;
    let survey =
        Survey { policy: &request.policy, filter: Filter::new(&request.policy.filter)?, tally: &tally };
    let mut visit = Check {
        policy: &request.policy,
        compare: request.compare,
        extra: request.extra,
        root: request.target.path(),
        tally: &tally,
        missing: None,
    };
    survey.operands(&request.sources, &to, &mut visit);
    drop(survey);
    Ok(tally.summary())
}

/// A directory that the destination lacks, being counted.
struct Missing {
    path: PathBuf,
    depth: usize,
    files: u64,
    bytes: u64,
}

struct Check<'a> {
    policy: &'a CopyPolicy,
    compare: Compare,
    extra: bool,
    root: &'a Path,
    tally: &'a Tally<'a>,
    missing: Option<Missing>,
}

impl Check<'_> {
    fn tell(&self, change: Change, path: &Path, directory: bool, files: u64, bytes: u64, why: &'static str) {
        self.tally.differences.fetch_add(1, Relaxed);
        let path = path.strip_prefix(self.root).unwrap_or(path);
        // The target itself differs: it is told under its own name.
        let path = if path.as_os_str().is_empty() { self.root } else { path }.to_owned();
        self.tally.watch.front.event(Event::Difference { change, path, directory, files, bytes, why });
    }

    /// What differs between the two, if anything.
    fn difference(&self, at: &At<'_>, there: &Info) -> Result<Option<&'static str>> {
        let (src, p) = (&at.info, &self.policy.preserve);
        if src.kind != there.kind {
            return Ok(Some("type"));
        }
        let content = match src.kind {
            Kind::File => self.files(at, there)?,
            Kind::Link => self.links(at)?,
            Kind::CharDevice | Kind::BlockDevice if src.rdev != there.rdev => Some("device"),
            _ => None,
        };
        Ok(content.or_else(|| {
            if p.mode && src.kind != Kind::Link && src.mode != there.mode {
                Some("mode")
            } else if p.owner && (src.uid, src.gid) != (there.uid, there.gid) {
                Some("owner")
            } else {
                None
            }
        }))
    }

    fn files(&self, at: &At<'_>, there: &Info) -> Result<Option<&'static str>> {
        let src = &at.info;
        if src.id() == there.id() {
            return Ok(None);
        }
        if src.size != there.size {
            return Ok(Some("size"));
        }
        let times =
            if self.policy.preserve.times { src.mtime != there.mtime } else { src.mtime > there.mtime };
        match self.compare {
            Compare::SizeAndTime => Ok(times.then_some("mtime")),
            Compare::Hash => {
                let Some((dir, to)) = at.dst else { return Ok(None) };
                let (fd, _) = at.src.open_file(at.name, at.follow)?;
                let ours = hash(fd).map_err(|e| Error::os("read", &at.src_path, e))?;
                let theirs =
                    dir.open_file(to).and_then(hash).map_err(|e| Error::os("read", &at.dst_path, e))?;
                if ours != theirs {
                    return Ok(Some("content"));
                }
                Ok((self.policy.preserve.times && src.mtime != there.mtime).then_some("mtime"))
            }
        }
    }

    fn links(&self, at: &At<'_>) -> Result<Option<&'static str>> {
        let Some((dir, to)) = at.dst else { return Ok(None) };
        let ours = at.src.dir.read_link(at.name).map_err(|e| Error::os("read link", &at.src_path, e))?;
        let theirs = dir.read_link(to).map_err(|e| Error::os("read link", &at.dst_path, e))?;
        Ok((ours != theirs).then_some("target"))
    }
}

/// BLAKE3 of a whole file.
fn hash(fd: OwnedFd) -> std::io::Result<blake3::Hash> {
    // A FIFO put in the file's place would give nothing for ever.
    if Info::of(&fd)?.kind != Kind::File {
        return Err(std::io::Error::from(std::io::ErrorKind::InvalidInput));
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::from(fd))?;
    Ok(hasher.finalize())
}

impl Visit for Check<'_> {
    fn entry(&mut self, at: &At<'_>) -> bool {
        let directory = at.info.kind == Kind::Dir;
        if at.info.kind.is_special() && !self.policy.specials {
            return false; // a copy would not make it either
        }
        self.tally.done(1);
        if let Some(missing) = &mut self.missing {
            if directory {
                missing.depth += 1;
                return self.policy.recursive;
            }
            missing.files += 1;
            missing.bytes += if at.info.kind == Kind::File { at.info.size } else { 0 };
            return false;
        }
        let Some(there) = &at.there else {
            if directory && self.policy.recursive {
                let path = at.dst_path.clone();
                self.missing = Some(Missing { path, depth: 1, files: 0, bytes: 0 });
                return true;
            }
            let bytes = if at.info.kind == Kind::File { at.info.size } else { 0 };
            self.tell(Change::Add, &at.dst_path, directory, 1, bytes, "missing");
            return false;
        };
        match self.difference(at, there) {
            Ok(None) => {}
            Ok(Some(why)) => {
                let bytes = if at.info.kind == Kind::File { at.info.size } else { 0 };
                self.tell(Change::Differ, &at.dst_path, directory, 1, bytes, why);
            }
            Err(e) => self.tally.fail(e),
        }
        directory && there.kind == Kind::Dir && self.policy.recursive
    }

    fn absent(&mut self, _src_path: PathBuf, dst_path: PathBuf) {
        self.missing = Some(Missing { path: dst_path, depth: 1, files: 0, bytes: 0 });
    }

    fn leave(&mut self) {
        let Some(missing) = &mut self.missing else { return };
        missing.depth -= 1;
        if missing.depth == 0
            && let Some(m) = self.missing.take()
        {
            self.tell(Change::Add, &m.path, true, m.files, m.bytes, "missing");
        }
    }

    fn excluded(&mut self, _src_path: PathBuf) {}

    fn extra(&mut self, dir: &Dir, name: Name<'_>, dst_path: PathBuf) {
        match count(dir, name) {
            Ok((directory, files, bytes)) => {
                self.tell(Change::Extra, &dst_path, directory, files, bytes, "only at the destination");
            }
            Err(e) => self.tally.fail(Error::os("count", dst_path, e)),
        }
    }

    fn wants_extra(&self) -> bool {
        self.extra
    }
}

/// Files and bytes of an entry with all below it.
fn count(dir: &Dir, name: Name<'_>) -> std::io::Result<(bool, u64, u64)> {
    let info = dir.stat(name)?;
    if info.kind != Kind::Dir {
        return Ok((false, 1, if info.kind == Kind::File { info.size } else { 0 }));
    }
    let (mut files, mut bytes) = (0, 0);
    let mut stack = vec![dir.open_dir_readable(name)?];
    let mut buffer = ListBuffer::new();
    while let Some(here) = stack.pop() {
        let mut names: Vec<NameBuf> = Vec::new();
        here.list(&mut buffer, |entry| {
            names.push(entry.name.to_owned());
            true
        })?;
        for name in names {
            let info = here.stat(name.as_name())?;
            if info.kind == Kind::Dir {
                stack.push(here.open_dir_readable(name.as_name())?);
            } else {
                files += 1;
                bytes += if info.kind == Kind::File { info.size } else { 0 };
            }
        }
    }
    Ok((true, files, bytes))
}
