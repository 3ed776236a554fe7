//! Which source goes to which name: cp's rules for operands, once for copy, move and check.
//!
//! Must not create or change anything but directories above a destination, where that is asked for. The paths that a person typed are resolved here, following links as they
//! expect; all that follows works below the handles opened here.

use crate::disk::Dirs;
use crate::disk::sys::Sys;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Event, Watch};
use crate::node::{Node, os};
use crate::policy::{Above, CopyPolicy, Durability, Follow, FollowDestination, Privileged, Target};
use crate::receiver::claims::{Claims, Meeting, Spot};
use crate::receiver::created_names::CreatedNames;
use crate::receiver::land::ensure_dir;
use crate::receiver::tree;
pub(crate) use crate::sender::operand::{Reach, Source, source, takes_kind};
use crate::sender::operand::{Typed, open_parent, typed};
use crate::sender::walk::SourceDir;
use crate::tally::Tally;
use fastcopy::dir::{Dir, NameBuf};
use fastcopy::errno;
use fastcopy::meta::{self, Info, Kind};
use fastcopy::process::effective_user;
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Links followed for one destination before it is a loop, as in the kernel.
const LINKS_MAX: usize = 40;

/// Where an operand goes, resolved.
pub(crate) enum Dest {
    /// To a name in a directory, there or not.
    Named { dir: Arc<Place>, name: NameBuf },
    /// Into a directory as it is: contents of a [`Source::Whole`].
    Whole(Arc<Place>),
}

/// A destination directory before anything is done to it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) dir: Dir,
    pub(crate) node: Arc<Node>,
    /// What operands have become in it.
    pub(crate) created_names: Arc<CreatedNames>,
    /// It was made for this run, which has not begun.
    pub(crate) made_first: bool,
}

impl Place {
    pub(crate) fn new(dir: Dir, node: Arc<Node>) -> Arc<Place> {
        Place::of(dir, node, false)
    }

    pub(crate) fn of(dir: Dir, node: Arc<Node>, made_first: bool) -> Arc<Place> {
        let created_names = CreatedNames::on(dir.keeps_identities().unwrap_or(false));
        Arc::new(Place { dir, node, created_names, made_first })
    }
}

/// One operand.
pub(crate) struct Operand {
    pub(crate) source: Source,
    pub(crate) dest: Dest,
    /// As typed.
    pub(crate) path: PathBuf,
    /// Where it is among the names that operands claim.
    pub(crate) spot: Spot,
}

impl Operand {
    /// Whether it is the very same name as another one, which goes to the same place.
    fn is_same_entry(&self, other: &Operand) -> bool {
        match (&self.source, &other.source) {
            (Source::Named { dir: a, name: n, .. }, Source::Named { dir: b, name: m, .. }) => {
                n == m && a.info.id() == b.info.id()
            }
            (Source::Whole(a), Source::Whole(b)) => a.info.id() == b.info.id(),
            _ => false,
        }
    }

    /// What the source shows itself as.
    pub(crate) fn info(&self) -> Info {
        match &self.source {
            Source::Named { info, .. } => *info,
            Source::Whole(dir) => dir.info,
        }
    }
}

pub(crate) fn place(dir: Dir, path: &Path) -> Arc<Place> {
    Place::new(dir, Node::root(path))
}

/// One that was made for this run.
pub(crate) fn made_place(dir: Dir, path: &Path) -> Arc<Place> {
    Place::of(dir, Node::root(path), true)
}

/// Where the target leads, before it is known what goes there.
#[derive(Clone)]
pub(crate) enum Where {
    /// A directory to put things into.
    Into(Arc<Place>),
    /// A directory as it is, whose contents become those of the source (`-T` with `dir/.`).
    Whole(Arc<Place>),
    /// One name.
    Name { dir: Arc<Place>, name: NameBuf, slash: bool },
}

impl Where {
    /// What it is called.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Where::Into(place) | Where::Whole(place) => place.node.path(),
            Where::Name { dir, name, .. } => dir.node.join(name.as_name()),
        }
    }
}

/// What a destination name that is a symbolic link stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DestLink {
    /// What it leads to, for files and for directories with a slash behind them, as with cp; other things take the
    /// link's own place.
    Through,
    /// Itself: a move gives a name and touches nothing that another name leads to.
    Itself,
    /// Itself, and a directory that it leads to is not entered either: another machine may have put the link there (V12).
    Received,
}

impl DestLink {
    /// In a copy from another machine to this one.
    pub(crate) fn received(policy: &CopyPolicy) -> DestLink {
        match policy.follow_destination {
            FollowDestination::UnlessReceived => DestLink::Received,
            FollowDestination::Always => DestLink::Through,
        }
    }
}

/// A target that was resolved, once for a whole run: later attempts use the handles, whatever has the names by then.
#[derive(Clone)]
pub(crate) struct Resolved {
    pub(crate) to: Where,
    /// The target itself, where `to` means what is in it: what DST means when it is marked as the copy of the one source.
    itself: Option<Where>,
    links: DestLink,
    target: Target,
}

impl Resolved {
    /// Resolves the target of `count` sources. `op`: as in [`target_for`].
    pub(crate) fn of(
        op: Op,
        reach: &Reach,
        target: &Target,
        count: usize,
        links: DestLink,
        policy: &CopyPolicy,
    ) -> Result<Resolved> {
        make_path(reach, target, count, policy)?;
        let to = match target {
            // A mirror is of contents, whatever DST is called by.
            Target::Exactly(path) if policy.mirror.is_on() && count == 1 => contents(reach, path, links)?,
            _ => target_for(op, reach, target, count, links)?,
        };
        let itself = match (target, &to) {
            (Target::Guess(path), Where::Into(_)) if count == 1 && policy.marks() => {
                Some(self::target(reach, &Target::Exactly(path.clone()), 1, links)?)
            }
            _ => None,
        };
        Ok(Resolved { to, itself, links, target: target.clone() })
    }

    /// A place that needs no resolving any more.
    pub(crate) fn at(to: Where, target: &Target, links: DestLink) -> Resolved {
        Resolved { to, itself: None, links, target: target.clone() }
    }

    /// Tells when the target as it was typed will mean another place once it is there.
    pub(crate) fn tell_new(&self, watch: &Watch<'_>) {
        tell_new(watch, &self.target, &self.to);
    }

    /// Makes the directory that names of a list go into, where there is none yet.
    pub(crate) fn make(&mut self) -> Result<()> {
        let Where::Name { dir, name, .. } = &self.to else { return Ok(()) };
        let shown = dir.node.join(name.as_name());
        ensure_dir(&dir.dir, name.as_name(), 0o777)
            .map_err(|e| Error::os(Op::MakeDirectory, shown.as_path(), e))?;
        let made =
            dir.dir.open_dir(name.as_name()).map_err(|e| Error::os(Op::OpenDirectory, shown.as_path(), e))?;
        self.to = Where::Into(place(made, &shown));
        Ok(())
    }

    /// Where a source of this description goes: with `-C`, DST that is marked as its copy means itself.
    pub(crate) fn of_source(&self, info: &Info) -> &Where {
        match &self.itself {
            Some(itself) if self.goes_on(info) => itself,
            _ => &self.to,
        }
    }

    /// Whether DST is marked as the copy of this source, and so means itself.
    pub(crate) fn goes_on(&self, info: &Info) -> bool {
        match (&self.to, &self.itself) {
            (Where::Into(place), Some(_)) => tree::is_marked(&Sys::new(), &place.dir, info),
            _ => false,
        }
    }

    /// Where a source goes that has this name, or none of its own, and is this.
    pub(crate) fn dest(&self, name: Option<NameBuf>, info: &Info) -> Result<Dest> {
        dest(name, info, self.of_source(info), self.links)
    }

    /// Whether nothing is there yet where one source goes that has this name, or none of its own. Something may be by the
    /// time it comes.
    pub(crate) fn is_absent(&self, name: Option<&NameBuf>) -> bool {
        let (place, name) = match (&self.to, name) {
            (Where::Name { dir, name, .. }, _) | (Where::Into(dir), Some(name)) => (dir, name),
            _ => return false,
        };
        matches!(place.dir.look(name.as_name()), Ok(None))
    }

    /// What a manifest's names are relative to.
    pub(crate) fn base(&self) -> Result<PathBuf> {
        base(&self.to, self.links)
    }
}

/// Makes the directories that are missing above the name that one source gets, or down to the directory that sources go
/// into, where the policy says so.
///
/// # Errors
/// One of them cannot be made. What else is wrong with the path is told when it is resolved.
pub(crate) fn make_path(reach: &Reach, target: &Target, count: usize, policy: &CopyPolicy) -> Result<()> {
    if policy.above == Above::Needed || policy.dry_run {
        return Ok(());
    }
    let path = target.path();
    let last = typed(path)?;
    let goes_into = match target {
        Target::Into(_) => true,
        Target::Guess(_) => count != 1 || last.slash,
        Target::Exactly(_) => false,
    };
    let at = if goes_into || last.name.is_none() { path.clone() } else { last.parent };
    make_missing(reach, path, at, policy.durability == Durability::Medium)
}

/// Makes the directories of `at` that are missing; `path` is what was typed. With `is_synced` the names of new ones are on stable
/// storage.
///
/// # Errors
/// One of them cannot be made.
pub(crate) fn make_missing(reach: &Reach, path: &Path, mut at: PathBuf, is_synced: bool) -> Result<()> {
    let mut missing = Vec::new();
    while matches!(reach.dir(&at), Err(e) if Code::of(&e) == Code::NotFound) {
        let Typed { parent, name: Some(name), .. } = typed(&at)? else { break };
        missing.push((parent.clone(), name));
        at = parent;
    }
    for (parent, name) in missing.into_iter().rev() {
        let dir = open_parent(reach, path, &parent, Op::MakeDirectory)?;
        let fail = |e| Error::os(Op::MakeDirectory, parent.join(os(name.as_name())), e);
        if ensure_dir(&dir, name.as_name(), 0o777).map_err(fail)? && is_synced {
            // R3: a name in a new directory is as safe as the names that lead to it.
            Sys::new().sync_dir(&dir).map_err(|e| Error::os(Op::Sync, parent.clone(), e))?;
        }
    }
    Ok(())
}

/// Resolves the target of `count` sources, where something is to be made.
pub(crate) fn target(reach: &Reach, target: &Target, count: usize, links: DestLink) -> Result<Where> {
    target_for(Op::Create, reach, target, count, links)
}

/// The same for any purpose: where the directory of the name cannot be opened, it is that which cannot be done.
pub(crate) fn target_for(
    op: Op,
    reach: &Reach,
    target: &Target,
    count: usize,
    links: DestLink,
) -> Result<Where> {
    let path = target.path();
    let typed = typed(path)?;
    let as_dir = |why: Reason| Error::ours(Code::NotDirectory, Op::CopyInto, path, why);
    if !target.takes(count) {
        return Err(Error::ours(Code::Usage, Op::CopyTo, path, Reason::OneSourceOneName));
    }
    match target {
        Target::Into(_) => match reach.dir(path) {
            Ok(dir) => Ok(Where::Into(entered(reach, dir, path)?)),
            Err(e) if Code::of(&e) == Code::NotDirectory => Err(as_dir(Reason::TargetNoDirectory)),
            Err(e) => Err(Error::os(Op::OpenTargetDirectory, path, e)),
        },
        Target::Guess(_) => {
            if links == DestLink::Received && typed.name.is_some() && !typed.slash {
                return received(op, reach, typed, count);
            }
            match reach.dir(path) {
                Ok(dir) => return Ok(Where::Into(entered(reach, dir, path)?)),
                Err(e) if matches!(Code::of(&e), Code::NotFound | Code::NotDirectory | Code::Link) => {}
                Err(e) => return Err(Error::os(Op::OpenTarget, path, e)),
            }
            if count != 1 {
                return Err(as_dir(Reason::TargetOfSeveralNoDirectory));
            }
            name_of(op, reach, typed)
        }
        Target::Exactly(_) => match typed.name {
            None => Ok(Where::Whole(place(reach.open(path)?, path))),
            Some(_) => name_of(op, reach, typed),
        },
    }
}

/// Where the contents of one directory go: into what is at `path`, which must be a directory, or into a new one of that name.
pub(crate) fn contents(reach: &Reach, path: &Path, links: DestLink) -> Result<Where> {
    let typed = typed(path)?;
    let no_dir = || Error::ours(Code::NotDirectory, Op::CopyInto, path, Reason::TargetNoDirectory);
    let by_name = typed.name.is_some() && !typed.slash && links == DestLink::Received;
    match reach.dir(path) {
        Ok(dir) if !by_name => return Ok(Where::Whole(entered(reach, dir, path)?)),
        Ok(_) => {}
        Err(e) if Code::of(&e) == Code::NotFound => {}
        Err(e) if Code::of(&e) == Code::NotDirectory => return Err(no_dir()),
        Err(e) => return Err(Error::os(Op::OpenTarget, path, e)),
    }
    let at = name_of(Op::Create, reach, typed)?;
    let Where::Name { dir, name, .. } = &at else { return Ok(at) };
    let there = dir.dir.look(name.as_name()).map_err(|e| Error::os(Op::Stat, path, e))?;
    match there.map(|info| info.kind) {
        None => Ok(at),
        Some(Kind::Dir) => {
            let opened = dir.dir.open_dir(name.as_name());
            Ok(Where::Whole(place(opened.map_err(|e| Error::os(Op::OpenTarget, path, e))?, path)))
        }
        // V12
        Some(Kind::Link) if links == DestLink::Received => {
            Err(Error::ours(Code::Refused, Op::CopyInto, path, Reason::LinkMayBeTheirs))
        }
        Some(Kind::Link) => Err(Error::ours(Code::Link, Op::CopyInto, path, Reason::WouldWriteThroughLink)),
        Some(_) => Err(no_dir()),
    }
}

/// The target of a copy from another machine, a name without a slash behind it: what an earlier answer may have made of
/// the name decides nothing but whether the name is free.
fn received(op: Op, reach: &Reach, typed: Typed<'_>, count: usize) -> Result<Where> {
    let path = typed.path;
    let at = name_of(op, reach, typed)?;
    let Where::Name { dir, name, .. } = &at else { return Ok(at) };
    let there = dir.dir.look(name.as_name()).map_err(|e| Error::os(Op::Stat, path, e))?;
    match there.map(|info| info.kind) {
        Some(Kind::Dir) => {
            let opened = dir.dir.open_dir(name.as_name());
            Ok(Where::Into(place(opened.map_err(|e| Error::os(Op::OpenTarget, path, e))?, path)))
        }
        // V12
        Some(Kind::Link) if reach.dir(path).is_ok() => {
            let note = Reason::LinkMayBeTheirs;
            Err(Error::ours(Code::Refused, Op::CopyInto, path, note))
        }
        _ if count != 1 => {
            let why = Reason::TargetOfSeveralNoDirectory;
            Err(Error::ours(Code::NotDirectory, Op::CopyInto, path, why))
        }
        _ => Ok(at),
    }
}

/// A destination name as it was typed.
fn name_of(op: Op, reach: &Reach, typed: Typed<'_>) -> Result<Where> {
    let Some(name) = typed.name else {
        return Ok(Where::Into(place(reach.open(typed.path)?, typed.path)));
    };
    let dir = place(open_parent(reach, typed.path, &typed.parent, op)?, &typed.parent);
    Ok(Where::Name { dir, name, slash: typed.slash })
}

/// Where a destination name was typed and is a link, what the link leads to is meant, as with cp: the directory that
/// holds the link's target is the place to stage and rename in.
pub(crate) fn through(at: &Arc<Place>, first: &NameBuf) -> Result<(Arc<Place>, NameBuf)> {
    let path = at.node.join(first.as_name());
    let mut at = at.clone();
    let mut name = first.clone();
    for _ in 0..LINKS_MAX {
        let look = at.dir.look(name.as_name()).map_err(|e| Error::os(Op::Stat, &path, e))?;
        match look {
            Some(info) if info.kind == Kind::Link => may_follow(&at, &info, &path)?,
            None if at.node.join(name.as_name()) != path => {
                let note = Reason::WouldWriteThroughLink;
                return Err(Error::ours(Code::Refused, Op::CopyTo, path, note));
            }
            _ => return Ok((at, name)),
        }
        let (parent, next_name) = led(&at, &name, &path)?;
        let Some(next_name) = next_name else {
            return Err(Error::ours(Code::Link, Op::WriteThroughLink, path, Reason::LeadsToDirectory));
        };
        at = place(open_parent(&Reach::Anywhere, &path, &parent, Op::Create)?, &parent);
        name = next_name;
    }
    Err(Error::os(Op::Open, path, std::io::Error::from_raw_os_error(errno::ELOOP)))
}

/// A directory of a destination, opened by the name that was typed.
fn entered(reach: &Reach, dir: Dir, path: &Path) -> Result<Arc<Place>> {
    followed(reach, path, &dir.info().map_err(|e| Error::os(Op::Stat, path, e))?)?;
    Ok(place(dir, path))
}

/// L13: what was `opened` by the name that was typed is there, or where links lead that may be followed.
///
/// # Errors
/// It is not.
pub(crate) fn followed(reach: &Reach, path: &Path, opened: &Info) -> Result<()> {
    let fail = |e| Error::os(Op::Stat, path, e);
    let Typed { mut parent, mut name, .. } = typed(path)?;
    for _ in 0..LINKS_MAX {
        let Some(last) = name else { return Ok(()) };
        let at = match open_parent(reach, path, &parent, Op::OpenTargetDirectory) {
            Ok(dir) => place(dir, &parent),
            // Links of /proc lead to what has no name any more.
            Err(e) if e.code == Code::NotFound => return Ok(()),
            Err(e) => return Err(e),
        };
        let there = at.dir.look(last.as_name()).map_err(fail)?;
        let Some(link) = there.filter(|there| there.kind == Kind::Link) else {
            // Another user may have put it there only now.
            let is_it = there.is_some_and(|there| there.id() == opened.id());
            let is_ours = is_it || !is_shared(&at.dir.info().map_err(fail)?);
            return if is_ours { Ok(()) } else { Err(of_another_user(path)) };
        };
        may_follow(&at, &link, path)?;
        if reach.is_confined() {
            // What it leads to is out of reach by its own text.
            return Ok(());
        }
        (parent, name) = led(&at, &last, path)?;
    }
    Err(fail(std::io::Error::from_raw_os_error(errno::ELOOP)))
}

/// Where every user may make names and none may take away another's.
fn is_shared(dir: &Info) -> bool {
    const SHARED: u32 = 0o1002;
    dir.mode & SHARED == SHARED
}

/// The kernel's rule for links that others may have put there (protected_symlinks): where every user may make names and none
/// may take away another's, a link is followed only if it is this user's own or that of the directory's owner. The kernel
/// does not see that a link is followed which is resolved here. Whether it keeps the rule itself is not asked: a machine
/// that has it off has so for old programs, and what says so cannot be read everywhere.
fn may_follow(at: &Place, link: &Info, shown: &Path) -> Result<()> {
    let dir = at.dir.info().map_err(|e| Error::os(Op::Stat, shown, e))?;
    let may = !is_shared(&dir) || [effective_user(), dir.uid].contains(&link.uid);
    if may { Ok(()) } else { Err(of_another_user(shown)) }
}

fn of_another_user(shown: &Path) -> Error {
    Error::ours(Code::Denied, Op::WriteThroughLink, shown, Reason::LinkOfAnotherUser)
}

/// Where the link `name` in `at` leads: the directory, and the name in it; none where it leads to `.`, `..` or `/`.
fn led(at: &Place, name: &NameBuf, shown: &Path) -> Result<(PathBuf, Option<NameBuf>)> {
    let link = at.dir.read_link(name.as_name()).map_err(|e| Error::os(Op::ReadLink, shown, e))?;
    let to = Path::new(std::ffi::OsStr::from_bytes(link.to_bytes()));
    let next = typed(to).map_err(|e| Error { path: shown.to_owned(), ..e })?;
    Ok((at.node.path().join(&next.parent), next.name))
}

/// What a manifest's names are relative to.
pub(crate) fn base(to: &Where, links: DestLink) -> Result<PathBuf> {
    Ok(match to {
        Where::Into(place) | Where::Whole(place) => place.node.path(),
        // A directory that a link leads to.
        Where::Name { dir, name, slash: true } if links == DestLink::Through => {
            let (dir, name) = through(dir, name)?;
            dir.node.join(name.as_name())
        }
        Where::Name { dir, name, .. } => dir.node.join(name.as_name()),
    })
}

/// Tells when the target as it was typed will mean another place once it is there.
pub(crate) fn tell_new(watch: &Watch<'_>, target: &Target, to: &Where) {
    if let (Target::Guess(_), Where::Name { dir, name, .. }) = (target, to)
        && dir.dir.look(name.as_name()).is_ok_and(|there| there.is_none())
    {
        watch.front.event(Event::NewTarget);
    }
}

/// The same where a guess was settled by what an earlier run has begun there.
pub(crate) fn tell_marked(watch: &Watch<'_>, was_guess: bool, target: &Target) {
    if was_guess && matches!(target, Target::Exactly(_)) {
        watch.front.event(Event::NewTarget);
    }
}

/// The operands of a request, resolved and guarded; what is wrong with one is told and the others remain.
pub(crate) fn resolve(
    sources: &[PathBuf],
    to: &Where,
    policy: &CopyPolicy,
    verb: Op,
    links: DestLink,
    tally: &Tally<'_>,
) -> Vec<Operand> {
    let mut operands: Vec<Operand> = Vec::new();
    for path in sources {
        let resolved =
            source(&Reach::Anywhere, path, policy.follow, policy.preserve.at_source).and_then(|source| {
                let operand = pair(path, source, to, links)?;
                takes_kind(policy.recursive, operand.info().kind, verb, || path.clone())?;
                if let Some(earlier) = clash(&operands, &operand) {
                    let sources = SameDest {
                        earlier: (earlier.info().id(), &earlier.path),
                        later: (&operand.info(), path),
                        is_same_entry: operand.is_same_entry(earlier),
                    };
                    if sources.meet(verb, &operand.dest)? == SecondSource::Once {
                        return Ok(None);
                    }
                }
                guard_nesting(&operand, policy, verb)?;
                Ok(Some(operand))
            });
        match resolved {
            Ok(Some(operand)) => operands.push(operand),
            // The very same source once more: it is copied once.
            Ok(None) => {}
            Err(e) => tally.fail(e),
        }
    }
    operands
}

/// Two operands that become the same, wherever they come from.
pub(crate) struct SameDest<'o> {
    /// Which the first one is at the source, and as it is shown.
    pub(crate) earlier: ((u64, u64), &'o Path),
    pub(crate) later: (&'o Info, &'o Path),
    /// They are one name of one directory.
    pub(crate) is_same_entry: bool,
}

/// What becomes of the later of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecondSource {
    /// Nothing: it is the very same source, which is taken once.
    Once,
    /// It is a directory, and merged into what the earlier one becomes.
    Merges,
}

impl SameDest<'_> {
    /// What becomes of the later one at `dest`.
    ///
    /// # Errors
    /// It is another source, and no directory.
    pub(crate) fn meet(&self, verb: Op, dest: &Dest) -> Result<SecondSource> {
        let ((earlier_id, earlier), (info, path)) = (self.earlier, self.later);
        // A second name is moved by itself, or stays; copied it would be the same once more.
        if self.is_same_entry || info.id() == earlier_id && verb == Op::Copy {
            return Ok(SecondSource::Once);
        }
        if info.kind == Kind::Dir {
            return Ok(SecondSource::Merges);
        }
        let why = Reason::EarlierSource.about(earlier).about(shown(dest).as_path());
        Err(Error::ours(Code::Refused, verb, path, why))
    }
}

/// Pairs one source with its destination: exactly the pair that copy, move and check share.
pub(crate) fn pair(path: &Path, source: Source, to: &Where, links: DestLink) -> Result<Operand> {
    let mut source = source;
    let (name, info) = match &source {
        Source::Named { name, info, .. } => (Some(name.clone()), *info),
        Source::Whole(dir) => (None, dir.info),
    };
    let dest = dest(name, &info, to, links)?;
    if matches!((&dest, &source), (Dest::Whole(_), Source::Named { .. })) {
        let Source::Named { dir, .. } = &source else {
            return Err(Error::ours(Code::Io, Op::Copy, path, Reason::IsDirectory));
        };
        let privileged = dir.privileged;
        source = Source::Whole(SourceDir::top(Reach::Anywhere.open(path)?, Node::root(path), privileged)?);
    }
    Ok(Operand { source, dest, path: path.to_owned(), spot: Spot::default() })
}

/// Where a source goes that has this name, or none of its own, and is this.
pub(crate) fn dest(name: Option<NameBuf>, info: &Info, to: &Where, links: DestLink) -> Result<Dest> {
    Ok(match to {
        Where::Whole(place) if name.is_some() && info.kind != Kind::Dir => {
            let why = Reason::FileOverDirectory;
            return Err(Error::ours(Code::InTheWay, Op::CopyTo, place.node.path(), why));
        }
        Where::Whole(place) => Dest::Whole(place.clone()),
        Where::Into(place) => match name {
            Some(name) => Dest::Named { dir: place.clone(), name },
            None => Dest::Whole(place.clone()),
        },
        Where::Name { dir, name, slash } => {
            if *slash && info.kind != Kind::Dir {
                let why = Reason::SlashButNoDirectory;
                return Err(Error::ours(Code::NotDirectory, Op::CopyTo, dir.node.join(name.as_name()), why));
            }
            let (dir, name) = match (links, info.kind) {
                (DestLink::Through, Kind::File) => through(dir, name)?,
                (DestLink::Through, Kind::Dir) if *slash => through(dir, name)?,
                (DestLink::Received, _) => {
                    guard_system_link(dir, name)?;
                    (dir.clone(), name.clone())
                }
                _ => (dir.clone(), name.clone()),
            };
            Dest::Named { dir, name }
        }
    })
}

/// Refuses a link that a copy from another machine would replace, and that leads to a device, FIFO or socket, or to a name that
/// the kernel makes up, as `/dev/stdout` does: it is the system's, and who types it means what it leads to.
fn guard_system_link(at: &Place, name: &NameBuf) -> Result<()> {
    let path = || at.node.join(name.as_name());
    let own = at.dir.look(name.as_name()).map_err(|e| Error::os(Op::Stat, path(), e))?;
    if own.is_none_or(|own| own.kind != Kind::Link) {
        return Ok(());
    }
    let leads_to_special = at.dir.stat_following(name.as_name()).is_ok_and(|there| there.kind.is_special());
    if leads_to_special || is_made_up(at, name)? {
        return Err(Error::ours(Code::Refused, Op::CopyTo, path(), Reason::LinkOfTheSystem));
    }
    Ok(())
}

/// Whether the link `name` is one of the kernel's names for what a process has open, or leads to one.
fn is_made_up(at: &Place, name: &NameBuf) -> Result<bool> {
    let is_pseudo = |dir: &Dir| meta::is_pseudo(dir).unwrap_or(false);
    if is_pseudo(&at.dir) {
        return Ok(true);
    }
    let path = at.node.join(name.as_name());
    let link = at.dir.read_link(name.as_name()).map_err(|e| Error::os(Op::ReadLink, &path, e))?;
    let to = Path::new(std::ffi::OsStr::from_bytes(link.to_bytes()));
    // Where that is nowhere, or no name, it is no name of the kernel's.
    Ok(typed(to).is_ok_and(|to| {
        let above = open_parent(&Reach::Anywhere, to.path, &at.node.path().join(&to.parent), Op::Open);
        above.is_ok_and(|above| is_pseudo(&above))
    }))
}

/// Whether a path is a name for a file that this process has open, as `/dev/stdout` and `/dev/fd/3` are. Others who have it
/// open mean the file itself: another one under its name is none to them.
pub(crate) fn is_open_file(path: &Path) -> bool {
    let look = || -> Result<bool> {
        let Typed { parent, name: Some(name), .. } = typed(path)? else { return Ok(false) };
        let at = place(open_parent(&Reach::Anywhere, path, &parent, Op::Open)?, &parent);
        let there = at.dir.look(name.as_name()).map_err(|e| Error::os(Op::Stat, path, e))?;
        Ok(there.is_some_and(|there| there.kind == Kind::Link) && is_made_up(&at, &name)?)
    };
    // What is wrong with it is told by the copy.
    look().unwrap_or(false)
}

/// Refuses what would copy a directory into itself: the destination's directory or one of its ancestors is the
/// source, by device and inode, whatever the paths look like.
fn guard_nesting(operand: &Operand, policy: &CopyPolicy, verb: Op) -> Result<()> {
    let whole = matches!(operand.source, Source::Whole(_));
    nesting(&Reach::Anywhere, &operand.info(), whole, &operand.dest, policy, &operand.path, verb)
}

/// The same for a source that is known as `info` only. Nothing above what is in reach is looked at: where `info` is what
/// another machine says, the answer would tell it which inodes there are.
pub(crate) fn nesting(
    reach: &Reach,
    info: &Info,
    whole: bool,
    dest: &Dest,
    policy: &CopyPolicy,
    path: &Path,
    verb: Op,
) -> Result<()> {
    if info.kind != Kind::Dir {
        return Ok(());
    }
    let place = match dest {
        Dest::Named { dir, .. } | Dest::Whole(dir) => dir,
    };
    let fail = |e| Error::os(Op::Stat, place.node.path(), e);
    let top = match reach {
        Reach::Anywhere => None,
        Reach::Below(root) => Some(root.info().map_err(fail)?.id()),
    };
    let mut here = place.dir.try_clone().map_err(fail)?;
    let first = here.info().map_err(fail)?;
    // A walk that stays on its file system never comes to what is written on another one, wherever that is mounted.
    if policy.one_file_system && first.dev != info.dev {
        return Ok(());
    }
    let mut id = first.id();
    if whole && matches!(dest, Dest::Whole(_)) && id == info.id() {
        let note = Reason::SameDirectory;
        return Err(Error::ours(Code::Refused, verb, path, note));
    }
    loop {
        if id == info.id() {
            let note = Reason::DestinationInside.about(shown(dest).as_path());
            return Err(Error::ours(Code::Refused, verb, path, note));
        }
        if top == Some(id) {
            return Ok(());
        }
        let up = match here.parent() {
            Ok(up) => up,
            // Not allowed to look further up: what is up there cannot have been opened as a source either.
            Err(e) if Code::of(&e) == Code::Denied => return Ok(()),
            Err(e) => return Err(fail(e)),
        };
        let up_id = up.info().map_err(fail)?.id();
        if up_id == id {
            return Ok(()); // the root is its own parent
        }
        (here, id) = (up, up_id);
    }
}

/// The destination as a path to show.
pub(crate) fn dest_path(operand: &Operand) -> PathBuf {
    shown(&operand.dest)
}

/// The same, of the destination alone.
pub(crate) fn shown(dest: &Dest) -> PathBuf {
    match dest {
        Dest::Named { dir, name } => dir.node.join(name.as_name()),
        Dest::Whole(dir) => dir.node.path(),
    }
}

/// An earlier operand that becomes the same as a new one.
pub(crate) fn clash<'o>(operands: &'o [Operand], new: &Operand) -> Option<&'o Operand> {
    operands.iter().find(|o| match (&o.dest, &new.dest) {
        (Dest::Named { name: n, .. }, Dest::Named { name, .. }) => n == name,
        (Dest::Whole(_), Dest::Whole(_)) => true,
        _ => false,
    })
}

/// Whether a new operand may have a name in common with one of these, so that it waits for them.
pub(crate) fn meets(operands: &[Operand], new: &Operand) -> bool {
    let whole = |o: &Operand| matches!(o.dest, Dest::Whole(_));
    clash(operands, new).is_some() || (whole(new) && !operands.is_empty()) || operands.iter().any(whole)
}

/// The names that these operands claim: none where no two of them can have a name in common.
pub(crate) fn claims(operands: &mut [Operand]) -> Claims {
    let whole = |o: &Operand| matches!(o.dest, Dest::Whole(_));
    let mut names = HashSet::new();
    let meet = operands.len() > 1
        && operands.iter().any(|o| match &o.dest {
            Dest::Named { name, .. } => !names.insert(name),
            Dest::Whole(_) => true,
        });
    let claims = Claims::new(if meet { Meeting::Operands } else { Meeting::Never });
    for operand in operands {
        operand.spot = claims.operand(&operand.path, whole(operand));
    }
    claims
}

/// What the target of a copy means: with sessions a copy marks what it makes.
pub(crate) fn same_target(sources: &[PathBuf], target: Target, policy: &CopyPolicy) -> Target {
    if policy.resume.has_sessions() { marked_target(sources, target, policy.follow) } else { target }
}

/// What the target of a run that marks what it makes means: where one directory is copied and DST is marked as its copy,
/// DST itself.
pub(crate) fn marked_target(sources: &[PathBuf], target: Target, follow: Follow) -> Target {
    let (Target::Guess(path), [operand]) = (&target, sources) else { return target };
    let Ok(dir) = Dir::open(path) else { return target };
    // What cannot be looked at is told when it is the source's turn.
    let info = match source(&Reach::Anywhere, operand, follow, Privileged::Real) {
        Ok(Source::Named { info, .. }) => info,
        Ok(Source::Whole(dir)) => dir.info,
        Err(_) => return target,
    };
    if tree::is_marked(&Sys::new(), &dir, &info) { Target::Exactly(path.clone()) } else { target }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastcopy::meta::Time;

    fn info(kind: Kind, ino: u64) -> Info {
        let (time, mode) = (Time { sec: 0, nsec: 0 }, 0o644);
        let (atime, mtime, ctime) = (time, time, time);
        let (uid, gid, dev, nlink, size, blocks, rdev) = (0, 0, 1, 1, 0, 0, 0);
        Info { kind, mode, uid, gid, dev, ino, nlink, size, blocks, rdev, atime, mtime, ctime }
    }

    /// What this machine's operands and those that come off a wire have in common; only this machine knows whether two are
    /// one name of one directory.
    #[test]
    fn two_sources_of_one_name() {
        use Kind::{Dir, File, Link};
        let (once, merges, refused) = (Some(SecondSource::Once), Some(SecondSource::Merges), None);
        let rows = [
            // An operand once more.
            (Op::Copy, File, true, true, once),
            (Op::Copy, Dir, true, true, once),
            (Op::Move, File, true, true, once),
            (Op::Move, Dir, true, true, once),
            // Another name of the very same file or directory: a move has to do with names.
            (Op::Copy, File, true, false, once),
            (Op::Copy, Dir, true, false, once),
            (Op::Move, File, true, false, refused),
            (Op::Move, Dir, true, false, merges),
            // Another source.
            (Op::Copy, File, false, false, refused),
            (Op::Copy, Link, false, false, refused),
            (Op::Copy, Dir, false, false, merges),
            (Op::Move, File, false, false, refused),
            (Op::Move, Dir, false, false, merges),
        ];
        let tmp = tempfile::tempdir().unwrap();
        let dest = Dest::Whole(place(Reach::Anywhere.open(tmp.path()).unwrap(), tmp.path()));
        for (verb, kind, is_same_inode, is_same_entry, want) in rows {
            let later = info(kind, 7);
            let earlier = (if is_same_inode { later.id() } else { (1, 8) }, Path::new("one"));
            let sources = SameDest { earlier, later: (&later, Path::new("two")), is_same_entry };
            let met = sources.meet(verb, &dest);
            assert!(met.as_ref().err().is_none_or(|e| e.op == verb && e.code == Code::Refused));
            assert_eq!(met.ok(), want, "{verb:?} {kind:?} {is_same_inode} {is_same_entry}");
        }
    }

    #[test]
    fn one_name_takes_one_source_and_only_a_recursive_copy_a_directory() {
        let path = || PathBuf::from("d");
        for (target, want) in [
            (Target::Guess(path()), [true, true, true]),
            (Target::Into(path()), [true, true, true]),
            (Target::Exactly(path()), [false, true, false]),
        ] {
            assert_eq!([0, 1, 2].map(|count| target.takes(count)), want, "{target:?}");
        }
        for (recursive, kind, want) in [
            (true, Kind::Dir, true),
            (false, Kind::Dir, false),
            (true, Kind::File, true),
            (false, Kind::File, true),
            (false, Kind::Link, true),
            (false, Kind::Fifo, true),
        ] {
            let took = takes_kind(recursive, kind, Op::Copy, path);
            assert!(took.as_ref().err().is_none_or(|e| e.code == Code::IsDirectory && e.path == path()));
            assert_eq!(took.is_ok(), want, "{recursive} {kind:?}");
        }
    }
}
