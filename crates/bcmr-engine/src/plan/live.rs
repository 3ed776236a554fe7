//! What only the destination of a plan has: deleted where the plan says so (M1 to M6), or told.
//!
//! Must not delete by itself: names are found here, by the plan's listing and by asking the source once more, and weighed
//! and deleted by what deletes for `sync`. A source on another machine is asked for many names at a time.

use super::along::{Along, along};
use super::folder::PlanFolder;
use super::format::{Digest, LandedEntry, PlanHeader, PlannedAs, PlannedEntry, Version};
use super::from::{self, NAMES_BYTES_MAX, NAMES_MAX};
use super::places::{below, is_other, the_planned_source};
use super::there::path_of;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::node::Node;
use crate::peer::planned_source::SourceThere;
use crate::policy::{CopyPolicy, Mirror};
use crate::receiver::created_names::CreatedNames;
use crate::receiver::extraneous::{At, Extraneous, Going};
use crate::receiver::land;
use crate::stage;
use crate::tally::Tally;
use crate::verbs::check::Check;
use crate::verbs::operands::{self, Place};
use fastcopy::dir::{Dir, ListBuffer, Name, NameBuf};
use fastcopy::meta::Info;
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// What becomes of a name that only the destination has.
pub(super) enum OnlyThere<'t> {
    /// It goes, if not too much would.
    Goes(Extraneous),
    /// It is told.
    Told(Check<'t>),
}

/// Looks for such names.
struct Looking<'l, 't> {
    what: &'l OnlyThere<'t>,
    tally: &'l Tally<'t>,
    list: ListBuffer,
    key: RandomState,
    src_path: PathBuf,
    created: Arc<CreatedNames>,
    there: Option<AskedThere<'l>>,
}

/// Names that a source on another machine is still to be asked for.
struct AskedThere<'l> {
    source: &'l SourceThere<'l>,
    policy: &'l CopyPolicy,
    /// The destination.
    dst: Dir,
    place: Arc<Place>,
    dirs: Vec<AskedDir>,
    names: usize,
    bytes: usize,
}

/// Of one directory. Its handle is opened again when the answer is there.
struct AskedDir {
    path: Vec<u8>,
    /// What the plan says of the directory at the source.
    ino: u64,
    node: Arc<Node>,
    names: Vec<NameBuf>,
}

/// A directory on both sides.
struct Sides {
    /// Absent where it is on another machine.
    src: Option<Dir>,
    /// What the plan says of it.
    ino: u64,
    /// Absent where it is no directory there, or nothing in it may go.
    dst: Option<Dir>,
    node: Arc<Node>,
    /// Hashes of the names that the plan has in it: two names of one hash cost a name that stays.
    names: Vec<u64>,
}

impl Looking<'_, '_> {
    fn source(&self, path: &[u8]) -> PathBuf {
        self.src_path.join(OsStr::from_bytes(path))
    }

    /// Names of the directory that the plan does not have and that no unfinished copy needs to go on with (M5).
    fn not_planned(&mut self, sides: &mut Sides, dst: &Dir) -> Result<Vec<NameBuf>> {
        let fail = |op: Op| {
            let path = sides.node.path();
            move |e| Error::os(op, path, e)
        };
        sides.names.sort_unstable();
        let home = land::home_of(dst).map_err(fail(Op::Stat))?;
        let (mut found, mut all) = (Vec::new(), 0);
        let (names, key) = (&sides.names, &self.key);
        let listed = dst.list(&mut self.list, |entry| {
            all += 1;
            let is_ours = stage::is_random(entry.name) || home.role(entry.name).is_some();
            if !is_ours && names.binary_search(&key.hash_one(entry.name.bytes())).is_err() {
                found.push(entry.name.to_owned());
            }
            true
        });
        listed.map_err(fail(Op::ListDirectory))?;
        if let OnlyThere::Goes(extraneous) = self.what {
            extraneous.counted(all);
        }
        Ok(found)
    }

    /// A name in `dst` that the source does not have, whose directory there is `source`.
    fn tell(&self, (node, dst): (&Arc<Node>, &Dir), name: Name<'_>, source: &Info) -> Result<()> {
        let there = dst.look(name).map_err(|e| Error::os(Op::Stat, node.join(name), e))?;
        let Some(there) = there else { return Ok(()) };
        match self.what {
            OnlyThere::Goes(extraneous) => {
                let id = dst.info().map_err(|e| Error::os(Op::Stat, node.path(), e))?.id();
                let times = Some((source.atime, source.mtime));
                let at = At { dir: dst, node, id, times, created_names: &self.created };
                extraneous.goes(&at, name, &there, Going::OnlyThere)?;
            }
            OnlyThere::Told(check) => {
                let path = node.join(name);
                self.tally.watch.front.event(check.only_there(dst, name, &path)?);
            }
        }
        Ok(())
    }

    /// M4: nothing goes on another file system than the destination's own.
    fn may_go_in(&self, dst: &Dir, node: &Node) -> Result<bool> {
        let info = dst.info().map_err(|e| Error::os(Op::Stat, node.path(), e))?;
        Ok(match self.what {
            OnlyThere::Goes(extraneous) => extraneous.may_go_on(info.dev),
            OnlyThere::Told(_) => true,
        })
    }

    /// The other machine is to be asked for these names of a directory.
    fn asks(&mut self, path: &[u8], sides: &Sides, names: Vec<NameBuf>) -> Result<()> {
        let mut names = names.into_iter().peekable();
        while names.peek().is_some() {
            let Some(there) = &mut self.there else { return Ok(()) };
            let mut dir =
                AskedDir { path: path.to_vec(), ino: sides.ino, node: sides.node.clone(), names: Vec::new() };
            while there.names < NAMES_MAX
                && there.bytes < NAMES_BYTES_MAX
                && let Some(name) = names.next()
            {
                there.names += 1;
                there.bytes += path.len() + name.bytes().len();
                dir.names.push(name);
            }
            there.dirs.push(dir);
            if there.names >= NAMES_MAX || there.bytes >= NAMES_BYTES_MAX {
                self.ask()?;
            }
        }
        Ok(())
    }

    /// Asks it for all that wait, and deals with those that it does not have.
    fn ask(&mut self) -> Result<()> {
        let Some(there) = &mut self.there else { return Ok(()) };
        let dirs = std::mem::take(&mut there.dirs);
        (there.names, there.bytes) = (0, 0);
        if dirs.is_empty() {
            return Ok(());
        }
        let of = |dir: &AskedDir, name: &NameBuf| path_of(&dir.path, name.bytes());
        let names = dirs.iter().flat_map(|dir| dir.names.iter().map(|name| of(dir, name)));
        let names: Vec<Vec<u8>> = names.collect();
        let found = from::seek(there.source, &names, &there.place, there.policy)?;
        for dir in &dirs {
            // M2: nothing goes by the word of another directory than the one that was listed.
            let Some(source) = found.dir(&dir.path).filter(|info| info.ino == dir.ino) else {
                let (shown, why) = (self.source(&dir.path), Reason::SourceIsAnother);
                return Err(Error::ours(Code::SourceChanged, Op::OpenDirectory, shown, why));
            };
            let Some(there) = &self.there else { return Ok(()) };
            let dst = match below(&there.dst, &dir.path) {
                Err(e) if is_other(&e) => continue,
                dst => dst.map_err(|e| Error::os(Op::OpenDirectory, dir.node.path(), e))?,
            };
            if !self.may_go_in(&dst, &dir.node)? {
                continue;
            }
            for name in dir.names.iter().filter(|name| !found.has(&of(dir, name))) {
                self.tell((&dir.node, &dst), name.as_name(), source)?;
            }
        }
        Ok(())
    }
}

impl Along for Looking<'_, '_> {
    type Level = Sides;

    fn is_stopped(&self) -> bool {
        self.tally.cancelled()
    }

    fn enter(&mut self, above: &mut Sides, path: &[u8], name: &NameBuf, version: &Version) -> Result<Sides> {
        let name = name.as_name();
        let fail = |e| Error::os(Op::OpenDirectory, self.source(path), e);
        let src = above.src.as_ref().map(|src| src.open_dir(name)).transpose().map_err(fail)?;
        // M2: nothing goes by the word of another directory than the one that was listed.
        if let Some(src) = &src
            && src.info().map_err(fail)?.ino != version.ino
        {
            return Err(Error::ours(
                Code::SourceChanged,
                Op::OpenDirectory,
                self.source(path),
                Reason::SourceIsAnother,
            ));
        }
        let node = above.node.below(name);
        let dst = match above.dst.as_ref().map(|dir| dir.open_dir_readable(name)) {
            Some(Ok(dst)) => self.may_go_in(&dst, &node)?.then_some(dst),
            Some(Err(e)) if !is_other(&e) => return Err(Error::os(Op::OpenDirectory, node.path(), e)),
            _ => None,
        };
        Ok(Sides { src, ino: version.ino, dst, node, names: Vec::new() })
    }

    fn entry(&mut self, at: &mut Sides, _: &[u8], entry: &PlannedEntry, _: LandedEntry) -> Result<()> {
        if !matches!(entry.what, PlannedAs::Part { at, .. } if at > 0) {
            at.names.push(self.key.hash_one(entry.name.bytes()));
        }
        if let OnlyThere::Goes(extraneous) = self.what {
            extraneous.source_has_one();
        }
        Ok(())
    }

    fn leave(&mut self, mut sides: Sides, path: &[u8], _: Option<&mut Sides>) -> Result<()> {
        let Some(dst) = sides.dst.take() else { return Ok(()) };
        let names = self.not_planned(&mut sides, &dst)?;
        let Some(src) = &sides.src else { return self.asks(path, &sides, names) };
        let source = src.info().map_err(|e| Error::os(Op::Stat, self.source(path), e))?;
        for name in names {
            let name = name.as_name();
            // M2: what has come to be at the source since the plan was made is not deleted either.
            let has = src.look(name).map_err(|e| Error::os(Op::Stat, self.source(path), e))?;
            if has.is_none() {
                self.tell((&sides.node, &dst), name, &source)?;
            }
        }
        Ok(())
    }
}

/// Goes through a plan once more and deals with what only the destination has. `there`: the source, where it is on another
/// machine.
///
/// # Errors
/// One of both sides cannot be looked at: nothing goes.
pub(super) fn only_there<'t>(
    (folder, header, plan): (&PlanFolder, &PlanHeader, &Digest),
    there: Option<&SourceThere<'_>>,
    what: OnlyThere<'t>,
    policy: &CopyPolicy,
    tally: &Tally<'t>,
) -> Result<()> {
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let (mut src_path, dst_path) = (path(&header.source), path(&header.destination));
    let dst = match Dir::open(&dst_path) {
        Ok(dst) => dst,
        // Then nothing is there alone.
        Err(e) if is_other(&e) => return Ok(()),
        Err(e) => return Err(Error::os(Op::OpenDirectory, &dst_path, e)),
    };
    let again = || dst.reopen().map_err(|e| Error::os(Op::OpenDirectory, &dst_path, e));
    let looking = from::walking(policy);
    let (src, id, there) = match there {
        None => {
            let src = Dir::open(&src_path).map_err(|e| Error::os(Op::OpenDirectory, &src_path, e))?;
            the_planned_source(&src, header)?;
            let id = src.info().map_err(|e| Error::os(Op::Stat, &src_path, e))?.id();
            (Some(src), id, None)
        }
        Some(source) => {
            src_path = source.shown(b"");
            let place = operands::place(again()?, &dst_path);
            let top = from::the_planned_top(source, place.clone(), &looking, header)?;
            let (dirs, names, bytes) = (Vec::new(), 0, 0);
            let asked = AskedThere { source, policy: &looking, dst: again()?, place, dirs, names, bytes };
            (None, top.info.id(), Some(asked))
        }
    };
    let node = Node::root(&dst_path);
    if let OnlyThere::Goes(extraneous) = &what {
        extraneous.begin(&dst, &node, id).map_err(|e| Error::os(Op::OpenDirectory, &dst_path, e))?;
    }
    let (list, key, created) = (ListBuffer::new(), RandomState::new(), Arc::default());
    let mut looking = Looking { what: &what, tally, list, key, src_path, created, there };
    let top = Sides { src, ino: header.top.ino, dst: Some(again()?), node, names: Vec::new() };
    along((folder, header, plan), top, &mut looking)?;
    looking.ask()?;
    if let OnlyThere::Goes(extraneous) = what
        && let Some(going) = extraneous.plan(tally)
    {
        let policy = CopyPolicy { mirror: Mirror::Delete, ..policy.clone() };
        let _nothing_was_in_the_way = going.carry_out(&policy, None, tally);
    }
    Ok(())
}
