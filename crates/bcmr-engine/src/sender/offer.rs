//! The walk: directories depth first, their entries in batches, large files on offer.
//!
//! Must not know what is wanted; only that what is in a new directory is, so that contents go along unasked.

use crate::blocks::LARGE_BYTES_MIN;
use crate::codec::Effort;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::node::Node;
use crate::policy::Follow;
use crate::sender::chain::Chain;
use crate::sender::contents::{Batch, Took, pack, push_unreadable, unsayable};
use crate::sender::item::{self, Item};
use crate::sender::large::{Large, Outgoing};
use crate::sender::level::{Entries, Met};
use crate::sender::names::{ListedNames, Names};
use crate::sender::operand::Source;
use crate::sender::place::{Born, Fate, Place};
use crate::sender::push::{Hand, Links, Sending, Stop};
use crate::sender::walk::SourceDir;
use bcmr_wire::limits::ENTRIES_MAX;
use bcmr_wire::message::{Codec, Message};
use bcmr_wire::{codec, contents, frame};
use fastcopy::dir::{ListBuffer, Name, NameBuf};
use fastcopy::meta::{Info, Kind};
use fastcopy::read_write::pread;
use fastcopy::xattr::Of;
use std::collections::HashSet;
use std::io::BufRead;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Entries of one batch.
pub(crate) const BATCH_ENTRIES: usize = 256;
/// Contents of one batch, bytes; the file that goes over it is the last.
const BATCH_BYTES: u64 = LARGE_BYTES_MIN;
/// What entries of one batch take beside their contents.
const BATCH_ENTRY_BYTES: usize = 96 << 10;
/// How often the other side is told what was found.
const FOUND_EVERY: Duration = Duration::from_millis(200);

const _: () = assert!(BATCH_ENTRIES <= ENTRIES_MAX);

/// What is to be sent.
pub(crate) enum What<'a> {
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
    },
}

/// Names of one directory that are to be looked at and sent. Its directory is held for each.
pub(crate) struct NamesTask {
    place: Arc<Place>,
    names: Names,
    /// Contents do not go along even where all is wanted: only the receiver knows which of several names of one file it
    /// needs the content for.
    plain: bool,
}

/// What came of looking at one name.
enum Looked {
    /// An entry; when contents go along, its content was appended.
    Item(Item),
    /// A large file.
    Large(Item),
    /// Another name of a file that has several: to be sent without its content.
    Linked,
    /// Nothing to send.
    Nothing,
}

/// A directory on the way down.
struct Level {
    place: Arc<Place>,
    /// Directories in it that are still to be entered, last first.
    dirs: Vec<NameBuf>,
}

/// The walker's own things.
struct Walker {
    hand: Hand,
    list: ListBuffer,
    found: Instant,
    /// What operands are called.
    names: HashSet<NameBuf>,
    /// One of them was the contents of a directory, which may have any name in them.
    has_whole: bool,
}

impl Sending<'_> {
    /// Walks everything. What is wrong with one item is told; what ends the walk is in the state.
    pub(super) fn walk(&self, what: What<'_>) {
        let mut walker = Walker {
            hand: Hand::default(),
            list: ListBuffer::new(),
            found: Instant::now(),
            names: HashSet::new(),
            has_whole: false,
        };
        let walked = match what {
            What::Operands { paths, open } => paths.iter().try_for_each(|path| {
                if self.stopped() {
                    return Ok(());
                }
                match open(path) {
                    Ok(source) => self.operand(&mut walker, path, source),
                    Err(e) => self.fail(None, e),
                }
            }),
            What::Names { base, dir, reader, separator } => {
                let names = ListedNames { reader, separator, base };
                self.list(&mut walker, base, &dir, names)
            }
        };
        if let Err(e) = walked {
            self.stop(Stop::Lost(e));
        }
    }

    /// Says what was met so far, from time to time.
    fn found(&self, walker: &mut Walker) -> Result<()> {
        if walker.found.elapsed() < FOUND_EVERY {
            return Ok(());
        }
        walker.found = Instant::now();
        self.say_found(false)
    }

    pub(super) fn say_found(&self, last: bool) -> Result<()> {
        let (items, bytes) = (self.found_items.load(Relaxed), self.found_bytes.load(Relaxed));
        self.push.told.found(items, bytes, last);
        self.say(&Message::Found { items, bytes, last })
    }

    // ---- operands ----

    fn operand(&self, walker: &mut Walker, path: &Path, source: Source) -> Result<()> {
        // What two operands may both fill is merged: the second begins where the first is done.
        let meets = match &source {
            Source::Named { name, info, .. } => {
                let met = !walker.names.insert(name.clone());
                met && info.kind == Kind::Dir || walker.has_whole
            }
            Source::Whole(_) => std::mem::replace(&mut walker.has_whole, true) || !walker.names.is_empty(),
        };
        if meets {
            self.settle_down();
        }
        let opened = match source {
            Source::Named { dir, name, info, follow } if info.kind != Kind::Dir => {
                return self.single(walker, path, &dir, &name, info.kind, follow);
            }
            _ if !self.push.policy.recursive => {
                let e = Error::ours(Code::IsDirectory, Op::Copy, path, Reason::IsDirectory);
                return self.fail(None, e);
            }
            Source::Whole(src) => src.with_ignores(&self.filter).map(|src| (src, None)),
            Source::Named { dir, name, follow, .. } => {
                self.enter(&dir, name.as_name(), Node::root(path), follow).map(|src| (src, Some(name)))
            }
        };
        match opened {
            Ok((src, name)) => match self.top(walker, path, &src, name.as_ref())? {
                Some(place) => self.tree(walker, place, src),
                None => Ok(()),
            },
            Err(e) => self.fail(None, e),
        }
    }

    /// Announces a directory that is an operand; `None` when that came to nothing.
    fn top(
        &self,
        walker: &mut Walker,
        path: &Path,
        src: &Arc<SourceDir>,
        name: Option<&NameBuf>,
    ) -> Result<Option<Arc<Place>>> {
        let node = &src.node;
        let ready = self.dir_attributes(&mut walker.hand, src).and_then(|attrs| {
            let root = src.dir.try_clone().map_err(|e| Error::os(Op::Open, node.path(), e))?;
            Ok((attrs, Arc::new(root)))
        });
        let (attrs, root) = match ready {
            Ok(ready) => ready,
            Err(e) => return self.fail(None, e).map(|()| None),
        };
        let follow = self.push.policy.follow == Follow::Always;
        let line = if follow { vec![src.info.id()] } else { Vec::new() };
        let born = Born { id: self.dir_id(), follow, single: false, heir: false, dev: src.info.dev, line };
        let place = Place::new(root, src, born);
        if !self.announce(&place) {
            return Ok(None);
        }
        self.handles.keep(&place, src);
        self.found_items.fetch_add(1, Relaxed);
        self.say(&Message::Operand {
            path: path.as_os_str().as_bytes(),
            whole: name.is_none(),
            origin: self.push.how.origin,
            dir: place.id,
            entry: item::entry(name.map_or(b"-", |n| n.bytes()), &src.info, src.info.size, b"", &attrs),
        })?;
        Ok(Some(place))
    }

    /// An operand that is no directory.
    fn single(
        &self,
        walker: &mut Walker,
        path: &Path,
        dir: &Arc<SourceDir>,
        name: &NameBuf,
        kind: Kind,
        follow: bool,
    ) -> Result<()> {
        if self.leaves_out(None, dir, name.as_name(), false) {
            return Ok(());
        }
        let root = match dir.dir.try_clone() {
            Ok(root) => Arc::new(root),
            Err(e) => return self.fail(None, Error::os(Op::Open, path, e)),
        };
        let born = |id| Born { id, follow, single: true, heir: false, dev: dir.info.dev, line: Vec::new() };
        let nameless = Place::new(root.clone(), dir, born(0));
        let mut raw = Vec::new();
        let inline = self.only_at_once(&nameless);
        let how = Look { place: &nameless, dir, inline };
        let (item, large) = match self.look(&mut walker.hand, &how, name.as_name(), kind, &mut raw) {
            Ok(Looked::Item(item)) => (item, false),
            Ok(Looked::Large(item)) => (item, true),
            Ok(Looked::Linked | Looked::Nothing) => return Ok(()),
            Err(e) => return self.fail(None, e),
        };
        // Numbers are given without a gap, so only to what is announced.
        let place = Place::new(root, dir, born(self.dir_id()));
        if !self.announce(&place) || !large && !self.await_batch() {
            return Ok(());
        }
        self.handles.keep(&place, dir);
        self.say(&Message::Operand {
            path: path.as_os_str().as_bytes(),
            whole: false,
            origin: self.push.how.origin,
            dir: place.id,
            entry: item.entry(),
        })?;
        if large {
            self.hand_large(&place, item);
        } else {
            self.send_batch(&mut walker.hand, &place, vec![item], inline, &raw)?;
        }
        self.release(&place);
        Ok(())
    }

    // ---- down the tree ----

    /// Walks a directory that was announced, and all below it.
    fn tree(&self, walker: &mut Walker, place: Arc<Place>, src: Arc<SourceDir>) -> Result<()> {
        let mut levels: Vec<Level> = Vec::new();
        self.level(walker, place, &src, &mut levels)?;
        drop(src);
        while let Some(level) = levels.last_mut() {
            if self.stopped() {
                return Ok(());
            }
            self.found(walker)?;
            if level.place.fate() == Fate::Refused {
                level.dirs.clear();
            }
            let name = level.dirs.pop();
            let above = level.place.clone();
            // After its last directory was named nothing new comes in this one: only what is named is open then.
            let last = level.dirs.is_empty();
            let child = match name {
                Some(name) => self.child(walker, &above, name.as_name())?,
                None => None,
            };
            if last {
                levels.pop();
                self.release(&above);
            }
            if let Some((place, src)) = child {
                if self.push.policy.one_file_system && src.info.dev != place.dev {
                    place.leave_some(); // made, not entered
                    self.release(&place);
                } else {
                    self.level(walker, place, &src, &mut levels)?;
                }
            }
        }
        Ok(())
    }

    /// Opens a directory in one that was announced, and announces it. `None`: it cannot be, which was told, or the walk
    /// is stopped.
    fn child(
        &self,
        walker: &mut Walker,
        above: &Arc<Place>,
        name: Name<'_>,
    ) -> Result<Option<(Arc<Place>, Arc<SourceDir>)>> {
        let hand = &mut walker.hand;
        let opened = self.handles.get(above).and_then(|dir| {
            let src = self.enter(&dir, name, above.node.below(name), above.follow)?;
            if above.line.contains(&src.info.id()) {
                let note = Reason::LinkLoop;
                return Err(Error::ours(Code::Link, Op::Enter, src.node.path(), note));
            }
            if let Some(note) = item::unspeakable(name.bytes(), &src.info, 0) {
                return Err(Error::ours(Code::Unsupported, Op::Send, src.node.path(), note));
            }
            let attrs = self.dir_attributes(hand, &src)?;
            Ok((src, attrs))
        });
        let (src, attrs) = match opened {
            Ok(opened) => opened,
            Err(e) => return self.fail(Some(above), e).map(|()| None),
        };
        let mut line = above.line.clone();
        if above.follow {
            line.push(src.info.id());
        }
        let born = Born {
            id: self.dir_id(),
            follow: above.follow,
            single: false,
            heir: above.is_new(),
            dev: above.dev,
            line,
        };
        let place = Place::new(above.root().clone(), &src, born);
        if !self.announce(&place) {
            return Ok(None);
        }
        self.handles.keep(&place, &src);
        self.found_items.fetch_add(1, Relaxed);
        let entry = item::entry(name.bytes(), &src.info, src.info.size, b"", &attrs);
        self.say(&Message::Dir { id: place.id, parent: above.id, entry })?;
        Ok(Some((place, src)))
    }

    /// Opens a directory without keeping those above it open.
    fn enter(
        &self,
        dir: &Arc<SourceDir>,
        name: Name<'_>,
        node: Arc<Node>,
        follow: bool,
    ) -> Result<Arc<SourceDir>> {
        let entered = match dir.enter(name, node.clone(), follow, &self.filter) {
            Err(e) if e.code == Code::Limit => {
                self.handles.clear();
                dir.enter(name, node, follow, &self.filter)
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

    /// Lists a directory: other directories are kept for later, everything else goes to the others in parts.
    fn level(
        &self,
        walker: &mut Walker,
        place: Arc<Place>,
        src: &Arc<SourceDir>,
        levels: &mut Vec<Level>,
    ) -> Result<()> {
        let mut found = Entries::default();
        let mut lost = None;
        let listed = src.list(&mut walker.list, self.push.policy.follow, &self.filter, |met| {
            if place.fate() == Fate::Refused {
                return false;
            }
            match met {
                Met::Entry { name, kind, ino } => {
                    let full = found.add(name, kind, ino);
                    return !full || self.spread(&place, std::mem::take(&mut found.names));
                }
                Met::Excluded(name) => self.left_out(Some(&place), src, name),
                Met::Failed(e) => lost = self.fail(Some(&place), e).err(),
            }
            lost.is_none()
        });
        if let Some(e) = lost {
            return Err(e);
        }
        if let Err(e) = listed {
            self.fail(Some(&place), e)?;
        }
        let Entries { mut dirs, names } = found;
        self.spread(&place, names);
        if dirs.is_empty() {
            self.release(&place);
        } else {
            dirs.reverse();
            levels.push(Level { place, dirs });
        }
        Ok(())
    }

    /// Hands names to workers that have time. `false`: stopped.
    fn spread(&self, place: &Arc<Place>, mut names: Names) -> bool {
        names.sort();
        let mut start = 0;
        while start < names.len() {
            let end = (start + BATCH_ENTRIES).min(names.len());
            place.hold();
            let task = NamesTask { place: place.clone(), names: names.part(start..end), plain: false };
            if !self.hand_over(task) {
                place.leave_some();
                return false;
            }
            start = end;
        }
        true
    }

    /// Whether the filter leaves a name out; it is told.
    fn leaves_out(&self, place: Option<&Place>, src: &SourceDir, name: Name<'_>, is_dir: bool) -> bool {
        let out = src.excludes(name, is_dir, &self.filter);
        if out {
            self.left_out(place, src, name);
        }
        out
    }

    fn left_out(&self, place: Option<&Place>, src: &SourceDir, name: Name<'_>) {
        // A dry run and a comparison leave out the same on the other side.
        if let (Some(place), false) = (place, self.push.policy.dry_run) {
            place.leave_some();
        }
        self.push.told.excluded(&|| src.node.join(name));
    }

    fn dir_attributes(&self, hand: &mut Hand, src: &SourceDir) -> Result<item::Attrs> {
        let fail = |e| Error::os(Op::ReadAttributesOf, src.node.path(), e);
        let preserve = &self.push.policy.preserve;
        let attrs = item::attributes(Of::Handle(src.dir.as_fd()), Kind::Dir, preserve, &mut hand.attrs);
        attrs.map_err(fail)?.ok_or_else(|| too_many_attributes(src.node.path()))
    }

    // ---- a list of names ----

    /// Sends names of a list, each with the directories that lead to it.
    fn list(
        &self,
        walker: &mut Walker,
        base: &Path,
        dir: &Arc<SourceDir>,
        names: ListedNames<'_>,
    ) -> Result<()> {
        let src = match dir.with_ignores(&self.filter) {
            Ok(src) => src,
            Err(e) => return self.fail(None, e),
        };
        let Some(top) = self.top(walker, base, &src, None)? else { return Ok(()) };
        // What is listed is never all there is.
        top.leave_some();
        let mut chain = Chain::new((top, Names::default()));
        let mut leave = |(place, names): (Arc<Place>, Names)| {
            self.spread(&place, names);
            self.release(&place);
        };
        for parts in names {
            if self.stopped() {
                return Ok(());
            }
            self.found(walker)?;
            let parts = match parts {
                Ok(parts) => parts,
                Err(e) => {
                    self.fail(None, e)?;
                    continue;
                }
            };
            let Some((last, dirs)) = parts.split_last() else { continue };
            let last = last.as_name();
            if !chain.go(dirs, &mut leave, |(above, _), name| self.down(walker, above, name))? {
                continue;
            }
            let (place, names) = chain.last();
            let looked = self.handles.get(place).and_then(|src| {
                let info = src.stat(last, place.follow)?;
                Ok((src, info))
            });
            let (src, info) = match looked {
                Ok(looked) => looked,
                Err(e) => {
                    self.fail(Some(place), e)?;
                    continue;
                }
            };
            let is_dir = info.kind == Kind::Dir;
            if self.leaves_out(Some(place), &src, last, is_dir) {
                continue;
            }
            if !is_dir {
                names.push(last, info.kind, info.ino);
                if names.len() >= BATCH_ENTRIES {
                    self.spread(place, std::mem::take(names));
                }
            } else if !self.push.policy.recursive {
                let path = src.node.join(last);
                self.fail(Some(place), Error::ours(Code::IsDirectory, Op::Copy, path, Reason::IsDirectory))?;
            } else if let Some((child, src)) = self.child(walker, place, last)? {
                self.tree(walker, child, src)?;
            }
        }
        let top = chain.end(&mut leave);
        leave(top);
        Ok(())
    }

    /// Goes down to a directory that names of a list lead through. `None`: it is left out or cannot be entered, which was
    /// told.
    fn down(
        &self,
        walker: &mut Walker,
        above: &Arc<Place>,
        name: Name<'_>,
    ) -> Result<Option<(Arc<Place>, Names)>> {
        let src = match self.handles.get(above) {
            Ok(src) => src,
            Err(e) => return self.fail(Some(above), e).map(|()| None),
        };
        if self.leaves_out(Some(above), &src, name, true) {
            return Ok(None);
        }
        let Some((place, _)) = self.child(walker, above, name)? else { return Ok(None) };
        place.leave_some();
        Ok(Some((place, Names::default())))
    }

    // ---- entries ----

    /// Looks at names and sends what they are in batches. Room for the first batch was reserved.
    pub(super) fn names(&self, hand: &mut Hand, task: NamesTask) -> Result<()> {
        let NamesTask { place, names, plain } = task;
        let mut room = true;
        let mut index = 0;
        let mut linked = Names::default();
        let dir = if place.fate() == Fate::Refused { None } else { Some(self.handles.get(&place)) };
        match dir {
            None => {}
            Some(Err(e)) => self.fail(Some(&place), e)?,
            Some(Ok(dir)) => {
                while index < names.len() && !self.stopped() {
                    if !room && !self.reserve_batch() {
                        // The window is full: the rest waits for its turn, and others answer what is asked meanwhile.
                        let rest = names.part(index..names.len());
                        self.hand_back(NamesTask { place: place.clone(), names: rest, plain });
                        return self.hand_linked(&place, linked);
                    }
                    let inline = !plain && (place.is_new() || self.only_at_once(&place));
                    let how = Look { place: &place, dir: &dir, inline };
                    room = !self.one_batch(hand, &how, &names, &mut index, &mut linked)?;
                }
            }
        }
        if room {
            self.free_batch();
        }
        self.hand_linked(&place, linked)?;
        self.release(&place);
        Ok(())
    }

    /// Files with several names go without contents, in batches of their own.
    fn hand_linked(&self, place: &Arc<Place>, linked: Names) -> Result<()> {
        if linked.len() > 0 {
            place.hold();
            self.hand_back(NamesTask { place: place.clone(), names: linked, plain: true });
        }
        Ok(())
    }

    /// Looks at names from `index` on until a batch is full, and sends it. `false`: there was nothing to send.
    fn one_batch(
        &self,
        hand: &mut Hand,
        how: &Look<'_>,
        names: &Names,
        index: &mut usize,
        linked: &mut Names,
    ) -> Result<bool> {
        let mut raw = std::mem::take(&mut hand.raw);
        raw.clear();
        let mut items: Vec<Item> = Vec::new();
        let (mut content_bytes, mut entry_bytes) = (0, 0);
        while let Some((name, kind)) = names.get(*index) {
            let full = items.len() >= BATCH_ENTRIES
                || content_bytes >= BATCH_BYTES
                || entry_bytes >= BATCH_ENTRY_BYTES;
            if full || self.stopped() {
                break;
            }
            *index += 1;
            match self.look(hand, how, name, kind, &mut raw) {
                Ok(Looked::Item(item)) => {
                    content_bytes += if item.is_file() { item.size } else { 0 };
                    entry_bytes += item.bytes();
                    items.push(item);
                }
                Ok(Looked::Large(item)) => self.hand_large(how.place, item),
                Ok(Looked::Linked) => linked.push(name, kind, 0),
                Ok(Looked::Nothing) => {}
                Err(e) => self.fail(Some(how.place), e)?,
            }
        }
        let any = !items.is_empty();
        if any {
            self.send_batch(hand, how.place, items, how.inline, &raw)?;
        }
        hand.raw = raw;
        Ok(any)
    }

    /// Looks at one name. With contents, its content is appended to `raw`.
    fn look(
        &self,
        hand: &mut Hand,
        how: &Look<'_>,
        name: Name<'_>,
        kind: Kind,
        raw: &mut Vec<u8>,
    ) -> Result<Looked> {
        let (place, dir) = (how.place, how.dir);
        let item = match kind {
            Kind::File if how.inline => return self.look_inside(hand, how, name, raw),
            Kind::File => self.look_at(hand, place, dir, name)?,
            Kind::Dir => return Ok(Looked::Nothing),
            Kind::Link if self.push.how.links == Links::Refused => {
                return Err(Error::ours(Code::Refused, Op::Follow, dir.node.join(name), Links::NOTE));
            }
            Kind::Link => {
                let info = same_kind(dir, name, kind, dir.stat(name, false)?)?;
                let link = dir.dir.read_link(name);
                let link = link.map_err(|e| Error::os(Op::ReadLink, dir.node.join(name), e))?.into_bytes();
                let attrs = self.attributes(hand, dir, name, kind, None)?;
                Item { name: name.to_owned(), info, size: info.size, link, attrs }
            }
            _ => {
                if !self.push.policy.specials && !self.push.how.compares {
                    let note = Reason::KindIs.about(kind.word());
                    return Err(Error::ours(Code::Special, Op::Copy, dir.node.join(name), note));
                }
                let info = same_kind(dir, name, kind, dir.stat(name, place.follow)?)?;
                let attrs = self.attributes(hand, dir, name, kind, None)?;
                Item { name: name.to_owned(), info, size: 0, link: Vec::new(), attrs }
            }
        };
        if let Some(note) = item::unspeakable(name.bytes(), &item.info, item.size) {
            return Err(Error::ours(Code::Unsupported, Op::Send, dir.node.join(name), note));
        }
        self.count(&item);
        Ok(if item.is_file() && item.size >= LARGE_BYTES_MIN {
            Looked::Large(item)
        } else {
            Looked::Item(item)
        })
    }

    /// Whether files are to be sent with what one reading of them gave: whose size says nothing has another one each time.
    fn only_at_once(&self, place: &Place) -> bool {
        place.pseudo && !self.push.policy.dry_run && !self.push.policy.preserve.links
    }

    fn count(&self, item: &Item) {
        self.found_items.fetch_add(1, Relaxed);
        if item.is_file() {
            self.found_bytes.fetch_add(item.size, Relaxed);
        }
    }

    /// What a regular file is, without its content.
    fn look_at(&self, hand: &mut Hand, place: &Place, dir: &Arc<SourceDir>, name: Name<'_>) -> Result<Item> {
        let preserve = &self.push.policy.preserve;
        let owned = name.to_owned();
        if !place.pseudo && !preserve.xattr && !preserve.acl {
            let info = same_kind(dir, name, Kind::File, dir.stat(name, place.follow)?)?;
            return Ok(Item { name: owned, info, size: info.size, link: Vec::new(), attrs: Vec::new() });
        }
        // Attributes are those of the very file that the rest describes.
        let (fd, info) = self.open_file(dir, &owned, place.follow)?;
        let info = same_kind(dir, name, Kind::File, info)?;
        let attrs = self.attributes(hand, dir, name, Kind::File, Some(&fd))?;
        let size = if place.pseudo { self.learn(dir, name, &fd)? } else { info.size };
        Ok(Item { name: owned, info, size, link: Vec::new(), attrs })
    }

    /// A regular file with its content, which is read at once.
    fn look_inside(
        &self,
        hand: &mut Hand,
        how: &Look<'_>,
        name: Name<'_>,
        raw: &mut Vec<u8>,
    ) -> Result<Looked> {
        let (place, dir) = (how.place, how.dir);
        let owned = name.to_owned();
        let mut again = true;
        loop {
            let (fd, info) = self.open_file(dir, &owned, place.follow)?;
            let info = same_kind(dir, name, Kind::File, info)?;
            if self.push.policy.preserve.links && info.nlink > 1 {
                return Ok(Looked::Linked);
            }
            let attrs = self.attributes(hand, dir, name, Kind::File, Some(&fd))?;
            let mut item = Item { name: owned.clone(), info, size: info.size, link: Vec::new(), attrs };
            if let Some(note) = item::unspeakable(name.bytes(), &item.info, item.size) {
                return Err(Error::ours(Code::Unsupported, Op::Send, dir.node.join(name), note));
            }
            if info.size >= LARGE_BYTES_MIN && !place.pseudo {
                self.count(&item);
                return Ok(Looked::Large(item));
            }
            let mark = raw.len();
            match self.read_content(dir, &owned, &fd, &info, place.pseudo, raw) {
                Ok(Took::Whole(size)) => item.size = size,
                Ok(Took::Changed) if place.pseudo => {
                    raw.truncate(mark);
                    item.size = self.learn(dir, name, &fd)?;
                    self.count(&item);
                    return Ok(Looked::Large(item));
                }
                // Once more; the writer may be done.
                Ok(Took::Changed) if again => {
                    raw.truncate(mark);
                    again = false;
                    continue;
                }
                Ok(Took::Changed) => {
                    raw.truncate(mark);
                    contents::push_changed(raw);
                }
                Err(e) => {
                    raw.truncate(mark);
                    push_unreadable(&e, raw);
                }
            }
            self.count(&item);
            return Ok(Looked::Item(item));
        }
    }

    fn attributes(
        &self,
        hand: &mut Hand,
        dir: &SourceDir,
        name: Name<'_>,
        kind: Kind,
        fd: Option<&OwnedFd>,
    ) -> Result<item::Attrs> {
        let of = match fd {
            Some(fd) => Of::Handle(fd.as_fd()),
            None => Of::At(&dir.dir, name),
        };
        let attrs = item::attributes(of, kind, &self.push.policy.preserve, &mut hand.attrs);
        let attrs = attrs.map_err(|e| Error::os(Op::ReadAttributesOf, dir.node.join(name), e))?;
        attrs.ok_or_else(|| too_many_attributes(dir.node.join(name)))
    }

    /// How long a file is whose size says nothing: as long as it reads.
    fn learn(&self, dir: &SourceDir, name: Name<'_>, fd: &OwnedFd) -> Result<u64> {
        let mut room = vec![0; 64 << 10];
        let mut at = 0;
        loop {
            match pread(fd, at, &mut room).map_err(|e| Error::os(Op::Read, dir.node.join(name), e))? {
                0 => return Ok(at),
                n => at += n as u64,
            }
            if self.stopped() {
                return Err(Error::ours(
                    Code::Interrupted,
                    Op::Read,
                    dir.node.join(name),
                    Reason::Interrupted,
                ));
            }
        }
    }

    /// Sends entries of one directory, with or without contents; room for the batch was reserved.
    fn send_batch(
        &self,
        hand: &mut Hand,
        place: &Arc<Place>,
        items: Vec<Item>,
        inline: bool,
        raw: &[u8],
    ) -> Result<()> {
        let stream = self.stream_for(hand, place);
        let (batch, turn) = self.batch(place, items, stream);
        let made = self.batch_frame(hand, stream, &batch, inline, raw);
        let (made, held) = match made {
            Ok(frame) => (Ok(()), vec![frame]),
            Err(e) => (Err(e), Vec::new()),
        };
        self.end_turn(stream, turn, held).and(made)
    }

    fn batch_frame(
        &self,
        hand: &mut Hand,
        stream: usize,
        batch: &Batch,
        inline: bool,
        raw: &[u8],
    ) -> Result<Outgoing> {
        let entries: Vec<_> = batch.items.iter().map(Item::entry).collect();
        let mut frame = self.room(stream);
        if !inline {
            let (batch, dir, contents, codec) = (batch.id, batch.place.id, &[], Codec::Raw);
            let message = Message::Files { batch, dir, inline, codec, entries, contents };
            message.encode(&mut frame).map_err(|e| unsayable(&e))?;
            return Ok(Outgoing::Frame { frame, raw: 0, pack_ns: 0 });
        }
        let dir = batch.place.id;
        let (codec, effort) = if raw.is_empty() { (Codec::Raw, Effort::Quick) } else { self.codec() };
        let before = self.now_ns();
        let mut mark =
            codec::begin_files(batch.id, dir, codec, &entries, &mut frame).map_err(|e| unsayable(&e))?;
        let mut pack_ns = 0;
        let mut plain = codec == Codec::Raw;
        if !plain {
            plain = !pack(hand, (codec, effort), raw, &mut frame)?;
            pack_ns = self.now_ns().saturating_sub(before);
            if plain {
                frame.truncate(mark);
                mark = codec::begin_files(batch.id, dir, Codec::Raw, &entries, &mut frame)
                    .map_err(|e| unsayable(&e))?;
            }
        }
        if plain {
            frame.extend_from_slice(raw);
        }
        frame::finish(&mut frame, mark).map_err(|e| unsayable(&e))?;
        Ok(Outgoing::Frame { frame, raw: raw.len(), pack_ns })
    }

    /// Offers a large file. The receiver says where it wants it from.
    pub(super) fn offer(&self, place: &Arc<Place>, item: Item) -> Result<()> {
        let _in_order = self.offers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        state.offering -= 1;
        if place.fate() == Fate::Refused {
            return Ok(());
        }
        state.last_file += 1;
        let file = state.last_file;
        let large = Large::new(place.clone(), item);
        let item = large.item.clone();
        state.files.insert(file, large);
        drop(state);
        self.say(&Message::Large { file, dir: place.id, entry: item.entry() })
    }
}

/// How names of one directory are looked at.
struct Look<'t> {
    place: &'t Arc<Place>,
    dir: &'t Arc<SourceDir>,
    /// With contents.
    inline: bool,
}

/// Between listing and looking something else may have been put there; nothing of it is read.
fn same_kind(dir: &SourceDir, name: Name<'_>, kind: Kind, info: Info) -> Result<Info> {
    if info.kind == kind {
        return Ok(info);
    }
    let note = Reason::KindBecame.about(info.kind.word());
    Err(Error::ours(Code::SourceChanged, Op::Copy, dir.node.join(name), note))
}

fn too_many_attributes(path: PathBuf) -> Error {
    Error::ours(Code::Limit, Op::Send, path, Reason::AttributesTooLarge)
}
