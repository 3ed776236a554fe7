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
use crate::verbs::survey::{At, Lack, Survey, Visit};
use fastcopy::dir::{Dir, ListBuffer, Name, NameBuf};
use fastcopy::meta::{Info, Kind};
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
        own_name: request.target.path(),
        tally: &tally,
    };
    survey.operands(&request.sources, &to, &mut visit);
    Ok(tally.summary())
}

/// Tells differences.
pub(crate) struct Check<'a> {
    pub(crate) policy: &'a CopyPolicy,
    pub(crate) compare: Compare,
    pub(crate) extra: bool,
    /// Paths are told relative to this.
    pub(crate) root: &'a Path,
    /// What it is itself called.
    pub(crate) own_name: &'a Path,
    pub(crate) tally: &'a Tally<'a>,
}

impl Check<'_> {
    fn tell(&self, change: Change, path: &Path, directory: bool, files: u64, bytes: u64, why: &'static str) {
        self.tally.differences.fetch_add(1, Relaxed);
        let path = path.strip_prefix(self.root).unwrap_or(path);
        // The target itself differs: it is told under its own name.
        let path = if path.as_os_str().is_empty() { self.own_name } else { path }.to_owned();
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
            Kind::Link => (!at.both.same_target()?).then_some("target"),
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
            Compare::Hash if !at.both.same_content()? => Ok(Some("content")),
            Compare::Hash => Ok((self.policy.preserve.times && src.mtime != there.mtime).then_some("mtime")),
        }
    }
}

impl Visit for Check<'_> {
    fn entry(&mut self, at: &At<'_>) -> bool {
        let directory = at.info.kind == Kind::Dir;
        if at.info.kind.is_special() && !self.policy.specials {
            return false; // a copy would not make it either
        }
        self.tally.done(1);
        let bytes = if at.info.kind == Kind::File { at.info.size } else { 0 };
        if let Some(lack) = at.lack {
            if directory {
                return self.policy.recursive;
            }
            lack.files.fetch_add(1, Relaxed);
            lack.bytes.fetch_add(bytes, Relaxed);
            return false;
        }
        let Some(there) = &at.there else {
            if directory && self.policy.recursive {
                return true; // told with what is in it
            }
            self.tell(Change::Add, at.dst_path, directory, 1, bytes, "missing");
            return false;
        };
        match self.difference(at, there) {
            Ok(None) => {}
            Ok(Some(why)) => {
                self.tell(Change::Differ, at.dst_path, directory, 1, bytes, why);
            }
            Err(e) => self.tally.fail(e),
        }
        directory && there.kind == Kind::Dir && self.policy.recursive
    }

    fn wants_content(&self, at: &At<'_>) -> bool {
        let files = |there: &Info| at.info.kind == Kind::File && there.kind == Kind::File;
        let alike = |there: &Info| at.info.id() != there.id() && at.info.size == there.size;
        self.compare == Compare::Hash && at.there.as_ref().is_some_and(|there| files(there) && alike(there))
    }

    fn absent(&mut self, _src_path: PathBuf, _dst_path: PathBuf) {}

    fn lacks(&mut self, lack: &Lack) {
        let (files, bytes) = (lack.files.load(Relaxed), lack.bytes.load(Relaxed));
        self.tell(Change::Add, &lack.path, true, files, bytes, "missing");
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
