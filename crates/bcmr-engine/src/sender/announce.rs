//! The walk: announces operands and directories depth first, and hands the names in them to the other threads.
//!
//! Must not know what is wanted.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::node::Node;
use crate::policy::Follow;
use crate::sender::chain::Chain;
use crate::sender::entries::{EntryLook, EntrySender, Examined, InlineContents, attributes_too_large};
use crate::sender::item::{self, EntryAttrs};
use crate::sender::level::{self, Met};
use crate::sender::moved::MovedIn;
use crate::sender::names::{ListedNames, Names};
use crate::sender::operand::{Source, takes_kind};
use crate::sender::place::{AnnouncedDir, AnnouncedInit, DirReply};
use crate::sender::schedule::{BATCH_ENTRIES, NamesTask, StopReason};
use crate::sender::sending::{Sending, WorkerBuffers};
use crate::sender::walk::SourceDir;
use bcmr_wire::message::Message;
use fastcopy::dir::{ListBuffer, Name, NameBuf};
use fastcopy::meta::{Kind, Place};
use fastcopy::xattr::Of;
use std::collections::HashSet;
use std::io::BufRead;
use std::iter;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the other side is told what was found.
const FOUND_EVERY: Duration = Duration::from_millis(200);

/// What is to be sent.
pub(crate) enum ToSend<'a> {
    /// Operands, each opened when its turn comes.
    Operands {
        /// As typed.
        paths: &'a [PathBuf],
        /// Opens one: below a root that a server is confined to, or as the shell would.
        open: &'a dyn Fn(&Path) -> Result<Source>,
    },
    /// Names read from a list, each below one directory.
    Names {
        /// The directory as typed.
        base: &'a Path,
        /// Opened.
        dir: Arc<SourceDir>,
        /// Where the names are read from.
        reader: &'a mut (dyn BufRead + Send),
        /// What ends a name: `\n` or NUL.
        separator: u8,
        /// What is not named.
        extent: Extent,
    },
}

/// What the names of a list are of all that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Some: a directory that is named is sent with what is in it.
    Some,
    /// Some: a directory that is named is sent by itself.
    Alone,
    /// All: a directory that is named has nothing in it, and of those that names lead through nothing else counts.
    All,
}

/// A directory on the way down.
struct OpenLevel {
    place: Arc<AnnouncedDir>,
    /// Directories in it that are still to be entered, last first.
    dirs: Vec<NameBuf>,
}

/// The walk of one transfer.
pub(super) struct Announcer<'s, 'a> {
    sending: &'s Sending<'a>,
    buffers: WorkerBuffers,
    list: ListBuffer,
    /// When the other side was last told what was found.
    last_found: Instant,
    /// What operands are called.
    operand_names: HashSet<NameBuf>,
    /// One of them was the contents of a directory, which may have any name in them.
    has_whole: bool,
}

impl<'s, 'a> Announcer<'s, 'a> {
    pub(super) fn new(sending: &'s Sending<'a>) -> Announcer<'s, 'a> {
        Announcer {
            sending,
            buffers: WorkerBuffers::default(),
            list: ListBuffer::new(),
            last_found: Instant::now(),
            operand_names: HashSet::new(),
            has_whole: false,
        }
    }

    /// Walks everything. What is wrong with one item is reported; what ends the walk is in the schedule.
    pub(super) fn walk(&mut self, what: ToSend<'_>) {
        let walked = match what {
            ToSend::Operands { paths, open } => paths.iter().try_for_each(|path| {
                if self.sending.stopped() {
                    return Ok(());
                }
                match open(path) {
                    Ok(source) => self.operand(path, source),
                    Err(e) => self.sending.fail(None, e),
                }
            }),
            ToSend::Names { base, dir, reader, separator, extent } => {
                let names = ListedNames::new(reader, separator, base, self.sending.push.cancel);
                self.listed(base, &dir, names, extent)
            }
        };
        if let Err(e) = walked {
            self.sending.schedule.stop(StopReason::Lost(e));
        }
    }

    /// Tells the other side what was met so far, from time to time.
    fn report_found(&mut self) -> Result<()> {
        if self.last_found.elapsed() < FOUND_EVERY {
            return Ok(());
        }
        self.last_found = Instant::now();
        self.sending.send_found(false)
    }

    // ---- operands ----

    fn operand(&mut self, path: &Path, source: Source) -> Result<()> {
        // What two operands may both fill is merged: the second begins where the first is done.
        let meets = match &source {
            Source::Named { name, info, .. } => {
                let met = !self.operand_names.insert(name.clone());
                met && info.kind == Kind::Dir || self.has_whole
            }
            Source::Whole(_) => {
                std::mem::replace(&mut self.has_whole, true) || !self.operand_names.is_empty()
            }
        };
        if meets {
            self.sending.schedule.await_settled();
        }
        let recursive = self.sending.push.policy.recursive;
        if let Err(e) = takes_kind(recursive, source.info().kind, Op::Copy, || path.to_owned()) {
            return self.sending.fail(None, e);
        }
        if let Err(e) = self.may_leave(path, &source) {
            return self.sending.fail(None, e);
        }
        let opened = match source {
            Source::Named { dir, name, info, follow } if info.kind != Kind::Dir => {
                return self.single(path, &dir, &name, info.kind, follow);
            }
            Source::Whole(src) => {
                src.with_ignores(&self.sending.filter).map(|src| (src, None, MovedIn::Nothing))
            }
            Source::Named { dir, name, follow, .. } => {
                let entered = enter(self.sending, &dir, name.as_name(), Node::root(path), follow);
                entered.map(|src| (src, Some(name.clone()), MovedIn::Operand(dir, name)))
            }
        };
        match opened {
            Ok((src, name, above)) => match self.top(path, &src, name.as_ref(), above)? {
                Some(place) => self.tree(place, src),
                None => Ok(()),
            },
            Err(e) => self.sending.fail(None, e),
        }
    }

    /// Whether an operand can be taken away by its name, where it is moved.
    fn may_leave(&self, path: &Path, source: &Source) -> Result<()> {
        if !self.sending.push.policy.leaving.goes() {
            return Ok(());
        }
        let Source::Named { dir, name, info, .. } = source else {
            return Err(Error::ours(Code::Refused, Op::Move, path, Reason::PathLeadsThrough));
        };
        if info.kind != Kind::Link && dir.stat(name.as_name(), false)?.kind == Kind::Link {
            return Err(Error::ours(Code::NotDirectory, Op::Move, path, Reason::SlashMeansTarget));
        }
        Ok(())
    }

    /// A directory is announced, and may be taken away where it is moved.
    fn announced(&self, place: &Arc<AnnouncedDir>, above: MovedIn) {
        if self.sending.push.policy.leaving.goes() {
            self.sending.moved.announced(place, above);
        }
    }

    /// Announces a directory that is an operand; `None` when that came to nothing.
    fn top(
        &mut self,
        path: &Path,
        src: &Arc<SourceDir>,
        name: Option<&NameBuf>,
        above: MovedIn,
    ) -> Result<Option<Arc<AnnouncedDir>>> {
        let node = &src.node;
        let ready = dir_attributes(self.sending, &mut self.buffers, src).and_then(|attrs| {
            let root = src.dir.try_clone().map_err(|e| Error::os(Op::Open, node.path(), e))?;
            Ok((attrs, Arc::new(root)))
        });
        let (attrs, root) = match ready {
            Ok(ready) => ready,
            Err(e) => return self.sending.fail(None, e).map(|()| None),
        };
        let follow = self.sending.push.policy.follow == Follow::Always;
        let line = if follow { vec![src.info.id()] } else { Vec::new() };
        let init = AnnouncedInit {
            id: self.sending.schedule.dir_id(),
            follow,
            single: false,
            inside_new: self.sending.push.how.expects_new,
            dev: src.info.dev,
            line,
        };
        let place = AnnouncedDir::new(root, src, init);
        if !self.sending.schedule.announce(&place) {
            return Ok(None);
        }
        self.sending.handles.keep(&place, src);
        self.announced(&place, above);
        self.sending.count_found(0);
        self.sending.tell_owners(0, iter::once((&src.info, &attrs)))?;
        self.sending.send(&Message::Operand {
            path: path.as_os_str().as_bytes(),
            whole: name.is_none(),
            origin: self.sending.push.how.origin,
            dir: place.id,
            entry: item::entry(name.map_or(b"-", |n| n.bytes()), &src.info, src.info.size, b"", &attrs),
        })?;
        Ok(Some(place))
    }

    /// An operand that is no directory.
    fn single(
        &mut self,
        path: &Path,
        dir: &Arc<SourceDir>,
        name: &NameBuf,
        kind: Kind,
        follow: bool,
    ) -> Result<()> {
        if leaves_out(self.sending, None, dir, name.as_name(), false) {
            return Ok(());
        }
        let root = match dir.dir.try_clone() {
            Ok(root) => Arc::new(root),
            Err(e) => return self.sending.fail(None, Error::os(Op::Open, path, e)),
        };
        let init = |id| AnnouncedInit {
            id,
            follow,
            single: true,
            inside_new: false,
            dev: dir.info.dev,
            line: Vec::new(),
        };
        let nameless = AnnouncedDir::new(root.clone(), dir, init(0));
        let mut raw = Vec::new();
        let sending = EntrySender(self.sending);
        let inline = sending.only_at_once(&nameless) || sending.unasked_alone();
        let how = EntryLook { place: &nameless, dir, inline };
        self.buffers.contents.begin(0);
        let mut repeated: &[usize] = &[];
        let (item, large) =
            match EntrySender(self.sending).look(&mut self.buffers, &how, name.as_name(), kind, &mut raw) {
                Ok(Examined::Item(item)) => (item, false),
                Ok(Examined::Repeated(item)) => {
                    repeated = &[0];
                    (item, false)
                }
                Ok(Examined::Large(item)) => (item, true),
                Ok(Examined::Linked | Examined::Nothing) => return Ok(()),
                Err(e) => return self.sending.fail(None, e),
            };
        // Numbers are given without a gap, so only to what is announced.
        let place = AnnouncedDir::new(root, dir, init(self.sending.schedule.dir_id()));
        if !self.sending.schedule.announce(&place) || !large && !self.sending.schedule.await_batch() {
            return Ok(());
        }
        self.sending.handles.keep(&place, dir);
        self.announced(&place, MovedIn::Alone(name.clone()));
        self.sending.tell_owners(0, iter::once((&item.info, &item.attrs)))?;
        self.sending.send(&Message::Operand {
            path: path.as_os_str().as_bytes(),
            whole: false,
            origin: self.sending.push.how.origin,
            dir: place.id,
            entry: item.entry(),
        })?;
        if large {
            self.sending.schedule.hand_large(&place, item);
        } else {
            let along = inline.then_some(InlineContents { raw: &raw, repeated });
            EntrySender(self.sending).send_batch(&mut self.buffers, &place, vec![item], along)?;
        }
        self.sending.schedule.release(&place);
        Ok(())
    }

    // ---- down the tree ----

    /// Walks a directory that was announced, and all below it.
    fn tree(&mut self, place: Arc<AnnouncedDir>, src: Arc<SourceDir>) -> Result<()> {
        let mut levels: Vec<OpenLevel> = Vec::new();
        self.level(place, &src, &mut levels)?;
        drop(src);
        while let Some(level) = levels.last_mut() {
            if self.sending.stopped() {
                return Ok(());
            }
            self.report_found()?;
            if level.place.reply() == DirReply::Refused {
                level.dirs.clear();
            }
            let name = level.dirs.pop();
            let above = level.place.clone();
            // After its last directory was named nothing new comes in this one: only what is named is open then.
            let last = level.dirs.is_empty();
            let child = match name {
                Some(name) => self.child(&above, name.as_name())?,
                None => None,
            };
            if last {
                levels.pop();
                self.sending.schedule.release(&above);
            }
            if let Some((place, src)) = child {
                if self.sending.push.policy.one_file_system && src.info.dev != place.dev {
                    place.mark_incomplete(); // made, not entered
                    self.sending.schedule.release(&place);
                } else {
                    self.level(place, &src, &mut levels)?;
                }
            }
        }
        Ok(())
    }

    /// Opens a directory in one that was announced, and announces it. `None`: it cannot be, which was told, or the walk
    /// is stopped.
    fn child(
        &mut self,
        above: &Arc<AnnouncedDir>,
        name: Name<'_>,
    ) -> Result<Option<(Arc<AnnouncedDir>, Arc<SourceDir>)>> {
        let buffers = &mut self.buffers;
        let opened = self.sending.handles.get(above).and_then(|dir| {
            let src = enter(self.sending, &dir, name, above.node.below(name), above.follow)?;
            if above.line.contains(&src.info.id()) {
                let note = Reason::LinkLoop;
                return Err(Error::ours(Code::Link, Op::Enter, src.node.path(), note));
            }
            if let Some(note) = item::not_encodable(name.bytes(), &src.info, 0) {
                return Err(Error::ours(Code::Unsupported, Op::Send, src.node.path(), note));
            }
            let attrs = dir_attributes(self.sending, buffers, &src)?;
            Ok((src, attrs))
        });
        let (src, attrs) = match opened {
            Ok(opened) => opened,
            Err(e) => return self.sending.fail(Some(above), e).map(|()| None),
        };
        let mut line = above.line.clone();
        if above.follow {
            line.push(src.info.id());
        }
        let init = AnnouncedInit {
            id: self.sending.schedule.dir_id(),
            follow: above.follow,
            single: false,
            inside_new: above.is_new(),
            dev: above.dev,
            line,
        };
        let place = AnnouncedDir::new(above.root().clone(), &src, init);
        if !self.sending.schedule.announce(&place) {
            return Ok(None);
        }
        self.sending.handles.keep(&place, &src);
        self.announced(&place, MovedIn::Dir(above.clone(), name.to_owned()));
        self.sending.count_found(0);
        self.sending.tell_owners(0, iter::once((&src.info, &attrs)))?;
        let entry = item::entry(name.bytes(), &src.info, src.info.size, b"", &attrs);
        self.sending.send(&Message::Dir { id: place.id, parent: above.id, entry })?;
        Ok(Some((place, src)))
    }

    /// Lists a directory: other directories are kept for later, everything else goes to the others in parts.
    fn level(
        &mut self,
        place: Arc<AnnouncedDir>,
        src: &Arc<SourceDir>,
        levels: &mut Vec<OpenLevel>,
    ) -> Result<()> {
        let sending = self.sending;
        let mut found = level::Entries::default();
        let mut lost = None;
        let listed = src.list(&mut self.list, sending.push.policy.follow, &sending.filter, |met| {
            if place.reply() == DirReply::Refused {
                return false;
            }
            match met {
                Met::Entry { name, kind, ino } => {
                    let full = found.add(name, kind, ino);
                    return !full || spread(sending, &place, std::mem::take(&mut found.names));
                }
                Met::Excluded(name) => sending.left_out(Some(&place), src, name),
                Met::Failed(e) => lost = sending.fail(Some(&place), e).err(),
            }
            lost.is_none()
        });
        if let Some(e) = lost {
            return Err(e);
        }
        if let Err(e) = listed {
            sending.fail(Some(&place), e)?;
        }
        let level::Entries { mut dirs, names } = found;
        spread(sending, &place, names);
        if dirs.is_empty() {
            sending.schedule.release(&place);
        } else {
            dirs.reverse();
            levels.push(OpenLevel { place, dirs });
        }
        Ok(())
    }

    // ---- a list of names ----

    /// Sends names of a list, each with the directories that lead to it.
    fn listed(
        &mut self,
        base: &Path,
        dir: &Arc<SourceDir>,
        names: ListedNames<'_>,
        extent: Extent,
    ) -> Result<()> {
        let src = match dir.with_ignores(&self.sending.filter) {
            Ok(src) => src,
            Err(e) => return self.sending.fail(None, e),
        };
        let Some(top) = self.top(base, &src, None, MovedIn::Nothing)? else { return Ok(()) };
        if extent != Extent::All {
            // What is listed is not all there is.
            top.mark_incomplete();
        }
        let mut chain = Chain::new((top, Names::default()));
        let (sending, recursive) = (self.sending, self.sending.push.policy.recursive);
        let mut leave = |(place, names): (Arc<AnnouncedDir>, Names)| {
            spread(sending, &place, names);
            sending.schedule.release(&place);
        };
        for parts in names {
            if self.sending.stopped() {
                return Ok(());
            }
            self.report_found()?;
            let parts = match parts {
                Ok(parts) => parts,
                Err(e) => {
                    self.sending.fail(None, e)?;
                    continue;
                }
            };
            let Some((last, dirs)) = parts.split_last() else { continue };
            let last = last.as_name();
            if !chain.go(dirs, &mut leave, |(above, _), name| self.down(above, name, extent))? {
                continue;
            }
            let (place, names) = chain.last();
            let looked = self.sending.handles.get(place).and_then(|src| {
                let info = src.stat(last, place.follow)?;
                Ok((src, info))
            });
            let (src, info) = match looked {
                Ok(looked) => looked,
                Err(e) => {
                    self.sending.fail(Some(place), e)?;
                    continue;
                }
            };
            let is_dir = info.kind == Kind::Dir;
            if leaves_out(self.sending, Some(place), &src, last, is_dir) {
                continue;
            }
            if !is_dir {
                names.push(last, info.kind, info.ino);
                if names.len() >= BATCH_ENTRIES {
                    spread(self.sending, place, std::mem::take(names));
                }
            } else if let Err(e) = takes_kind(recursive, info.kind, Op::Copy, || src.node.join(last)) {
                self.sending.fail(Some(place), e)?;
            } else if let Some((child, src)) = self.child(place, last)? {
                match extent {
                    Extent::Some => self.tree(child, src)?,
                    Extent::Alone => {
                        child.mark_incomplete();
                        self.sending.schedule.release(&child);
                    }
                    Extent::All => self.sending.schedule.release(&child),
                }
            }
        }
        if self.sending.stopped() {
            return Ok(());
        }
        let top = chain.end(&mut leave);
        leave(top);
        Ok(())
    }

    /// Goes down to a directory that names of a list lead through. `None`: it is left out or cannot be entered, which was
    /// told.
    fn down(
        &mut self,
        above: &Arc<AnnouncedDir>,
        name: Name<'_>,
        extent: Extent,
    ) -> Result<Option<(Arc<AnnouncedDir>, Names)>> {
        let src = match self.sending.handles.get(above) {
            Ok(src) => src,
            Err(e) => return self.sending.fail(Some(above), e).map(|()| None),
        };
        if leaves_out(self.sending, Some(above), &src, name, true) {
            return Ok(None);
        }
        let Some((place, src)) = self.child(above, name)? else { return Ok(None) };
        if let Some(e) = not_taken_through(self.sending, &src) {
            self.sending.fail(Some(&place), e)?;
            self.sending.schedule.release(&place);
            return Ok(None);
        }
        if extent != Extent::All {
            place.mark_incomplete();
        }
        Ok(Some((place, Names::default())))
    }
}

/// Hands names to workers that have time. `false`: stopped.
fn spread(sending: &Sending<'_>, place: &Arc<AnnouncedDir>, mut names: Names) -> bool {
    names.sort_by_ino();
    let mut start = 0;
    while start < names.len() {
        let end = (start + BATCH_ENTRIES).min(names.len());
        place.hold();
        let task = NamesTask { place: place.clone(), names: names.part(start..end), plain: false };
        if !sending.schedule.hand_over(task) {
            place.mark_incomplete();
            return false;
        }
        start = end;
    }
    true
}

/// Whether the filter leaves a name out; it is told.
fn leaves_out(
    sending: &Sending<'_>,
    place: Option<&AnnouncedDir>,
    src: &SourceDir,
    name: Name<'_>,
    is_dir: bool,
) -> bool {
    let out = src.excludes(name, is_dir, &sending.filter);
    if out {
        sending.left_out(place, src, name);
    }
    out
}

/// Why names below a directory are not taken away, where only those of one file system are: something is mounted on it, be it
/// of the same device.
fn not_taken_through(sending: &Sending<'_>, src: &SourceDir) -> Option<Error> {
    let policy = sending.push.policy;
    if !policy.leaving.goes() || !policy.one_file_system {
        return None;
    }
    match Place::of(&src.dir) {
        Ok(place) if place.mount_root == Some(true) => {
            Some(Error::ours(Code::Refused, Op::Remove, src.node.path(), Reason::IsMountPoint))
        }
        Ok(_) => None,
        Err(e) => Some(Error::os(Op::Stat, src.node.path(), e)),
    }
}

/// Opens a directory without keeping those above it open.
fn enter(
    sending: &Sending<'_>,
    dir: &Arc<SourceDir>,
    name: Name<'_>,
    node: Arc<Node>,
    follow: bool,
) -> Result<Arc<SourceDir>> {
    let entered = match dir.enter(name, node.clone(), follow, &sending.filter) {
        Err(e) if e.code == Code::Limit => {
            sending.handles.clear();
            dir.enter(name, node, follow, &sending.filter)
        }
        other => other,
    };
    entered.map(|mut src| {
        // No other thread has it yet.
        if let Some(src) = Arc::get_mut(&mut src) {
            src.above = None;
        }
        src
    })
}

fn dir_attributes(sending: &Sending<'_>, buffers: &mut WorkerBuffers, src: &SourceDir) -> Result<EntryAttrs> {
    let fail = |e| Error::os(Op::ReadAttributesOf, src.node.path(), e);
    let preserve = &sending.push.policy.preserve;
    let attrs = item::attributes(Of::Handle(src.dir.as_fd()), Kind::Dir, preserve, &mut buffers.attrs);
    attrs.map_err(fail)?.ok_or_else(|| attributes_too_large(src.node.path()))
}
