//! Directories that things land in: made under a stage's name, filled, published with one rename.
//!
//! Must not know what is put into them or where it came from. Why so: files in a directory nobody can see need no
//! stage of their own, so an atomic landing costs one rename per directory instead of one per file
//! (docs/decisions/0001-atomic-landing.md).

use crate::disk::{Disk, Keep};
use crate::error::{Code, Error, Result};
use crate::node::Node;
use crate::policy::CopyPolicy;
use crate::receiver::newcomers::{Newcomers, TAKEN};
use crate::receiver::stage;
use fastcopy::dir::{Lock, Name, NameBuf};
use fastcopy::errno;
use fastcopy::meta::{Info, Kind};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The directory a whole operand lands in; stays open as long as anything may be looked up below it.
pub(crate) struct Root<D: Disk> {
    pub(crate) dir: Arc<D::Dir>,
    pub(crate) node: Arc<Node>,
    /// Names of a list land in it: they may lead through one directory again and again, so each has its name at once.
    listed: Option<Mutex<Listed>>,
}

/// What is remembered of the directories that names of a list have led through.
#[derive(Default)]
struct Listed {
    /// Those that this run has made.
    made: HashSet<(u64, u64)>,
    /// Those that are open, and how often.
    open: HashMap<(u64, u64), usize>,
    /// What it has put into the last of them.
    books: VecDeque<((u64, u64), Arc<Newcomers>)>,
}

/// A list that is in no order comes back to so many directories and knows what is in them; memory has an end.
const BOOKS_MAX: usize = 64;

impl Listed {
    /// One handle more of a directory; what this run has put into it.
    fn opened(&mut self, id: (u64, u64)) -> Arc<Newcomers> {
        *self.open.entry(id).or_default() += 1;
        if let Some((_, book)) = self.books.iter().find(|(of, _)| *of == id) {
            return book.clone();
        }
        if self.books.len() >= BOOKS_MAX {
            self.books.pop_front();
        }
        let book = Arc::<Newcomers>::default();
        self.books.push_back((id, book.clone()));
        book
    }
}

impl<D: Disk> Root<D> {
    fn listed(&self) -> Option<MutexGuard<'_, Listed>> {
        self.listed.as_ref().map(|listed| listed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Puts something into a directory that has just been made.
type Mark<'m, D> = &'m dyn Fn(&<D as Disk>::Dir) -> io::Result<()>;

/// A destination directory, open.
pub(crate) struct DestDir<D: Disk> {
    pub(crate) dir: Arc<D::Dir>,
    pub(crate) node: Arc<Node>,
    pub(crate) root: Arc<Root<D>>,
    pub(crate) info: Info,
    /// Made by this run and nobody else's: no name in it can be taken.
    pub(crate) fresh: bool,
    /// Made by this run, maybe with others putting things in at the same time.
    pub(crate) made: bool,
    /// Made by this run for an earlier name of a list: sealed once more.
    pub(crate) again: bool,
    /// We hold its lock: stages with known names in it are ours or stale.
    pub(crate) sole: bool,
    /// What this run has put into it.
    pub(crate) newcomers: Arc<Newcomers>,
    /// What it is called until it is published.
    stage: Option<NameBuf>,
    /// It got its name.
    named: AtomicBool,
    /// It could not get its name because something took it meanwhile; merged in the end.
    clash: AtomicBool,
    /// Something half-done in it could not be taken back: it must never get its name.
    poisoned: AtomicBool,
    pub(crate) keep: Keep,
}

fn fail<'a>(
    op: &'static str,
    node: &'a Node,
    name: Option<Name<'a>>,
) -> impl FnOnce(io::Error) -> Error + 'a {
    move |e| Error::os(op, name.map_or_else(|| node.path(), |n| node.join(n)), e)
}

fn keep_for<D: Disk>(disk: &D, dir: &D::Dir, policy: &CopyPolicy) -> Keep {
    Keep {
        preserve: policy.preserve,
        strictness: policy.strictness,
        umask: policy.umask,
        default_acl: policy.preserve.acl && disk.has_default_acl(dir),
    }
}

impl<D: Disk> DestDir<D> {
    /// A directory that was there before.
    pub(crate) fn existing(
        disk: &D,
        dir: D::Dir,
        node: Arc<Node>,
        root: Option<Arc<Root<D>>>,
        policy: &CopyPolicy,
    ) -> Result<DestDir<D>> {
        let info = disk.info(&dir).map_err(fail("stat", &node, None))?;
        let sole = disk.lock(&dir) == Lock::Held;
        let keep = keep_for(disk, &dir, policy);
        let dir = Arc::new(dir);
        let root =
            root.unwrap_or_else(|| Arc::new(Root { dir: dir.clone(), node: node.clone(), listed: None }));
        let (again, newcomers) = match root.listed() {
            Some(mut listed) => (listed.made.contains(&info.id()), listed.opened(info.id())),
            None => (false, Arc::default()),
        };
        if again && info.mode & 0o700 != 0o700 {
            // It got its mode already. Where it cannot be opened up, what is to land there says why.
            let _opened = disk.open_up(&dir, info.mode).is_ok();
        }
        Ok(DestDir {
            dir,
            node,
            root,
            info,
            fresh: false,
            made: false,
            again,
            sole,
            newcomers,
            stage: None,
            named: AtomicBool::new(false),
            clash: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            keep,
        })
    }

    /// The same, for names of a list.
    pub(crate) fn for_a_list(self) -> DestDir<D> {
        let listed = Some(Mutex::default());
        let root = Root { dir: self.dir.clone(), node: self.node.clone(), listed };
        DestDir { root: Arc::new(root), ..self }
    }

    /// Goes into the directory `name` of this one, making it when it is not there.
    pub(crate) fn enter(&self, disk: &D, name: Name<'_>, policy: &CopyPolicy) -> Result<DestDir<D>> {
        self.enter_with(disk, name, policy, None)
    }

    /// The same; when it is made, `mark` puts something into it before it has its name.
    pub(crate) fn enter_marked(
        &self,
        disk: &D,
        name: Name<'_>,
        policy: &CopyPolicy,
        mark: Mark<'_, D>,
    ) -> Result<DestDir<D>> {
        self.enter_with(disk, name, policy, Some(mark))
    }

    fn enter_with(
        &self,
        disk: &D,
        name: Name<'_>,
        policy: &CopyPolicy,
        mark: Option<Mark<'_, D>>,
    ) -> Result<DestDir<D>> {
        let there = if self.fresh {
            None // nobody but us puts anything in here, and no directory has one name twice
        } else {
            disk.look(&self.dir, name).map_err(fail("stat", &self.node, Some(name)))?
        };
        match there {
            Some(info) if info.kind == Kind::Dir => self.merge(disk, name, policy),
            Some(_) => {
                let note = "cannot overwrite a non-directory with a directory";
                Err(Error::ours(Code::InTheWay, "make directory", self.node.join(name), note))
            }
            None => match mark {
                Some(mark) => self.make_marked(disk, name, policy, mark),
                None => self.make(disk, name, policy),
            },
        }
    }

    fn merge(&self, disk: &D, name: Name<'_>, policy: &CopyPolicy) -> Result<DestDir<D>> {
        let node = self.node.below(name);
        let dir = disk.open_dir(&self.dir, name).map_err(fail("open directory", &node, None))?;
        let merged = DestDir::existing(disk, dir, node, Some(self.root.clone()), policy)?;
        {
            let born = || disk.born(&self.dir, name);
            let mut book = self.newcomers.open();
            if book.is_taken(&merged.info, name, born) {
                return Err(Error::ours(Code::Refused, "merge into", merged.node.path(), TAKEN));
            }
            book.add(&merged.info, name, born().map_err(fail("stat", &merged.node, None))?);
        }
        if merged.sole {
            // What a killed run left here under names that only it could have used. Not being able to look is no
            // reason to stop: the leftovers are harmless, and met again under their own names.
            if let Err(e) = disk.sweep(&merged.dir, &stage::is_known)
                && Code::of(&e) != Code::Denied
                && e.raw_os_error() != Some(errno::EBADF)
            {
                return Err(Error::os("clean up", merged.node.path(), e));
            }
        }
        Ok(merged)
    }

    fn make(&self, disk: &D, name: Name<'_>, policy: &CopyPolicy) -> Result<DestDir<D>> {
        let node = self.node.below(name);
        // Without the lock somebody else may be making the same directory: then it is made under its own name, and
        // files in it are staged one by one.
        // A directory that holds unfinished files must be where the next run looks for them, so it has no stage either.
        let staged = self.sole && !policy.resume.has_sessions() && self.root.listed.is_none();
        let (stage, fresh) = match stage::known(name) {
            Some(stage) if staged => (Some(stage), true),
            _ => (None, false),
        };
        let born = stage.as_ref().map_or(name, NameBuf::as_name);
        let Some((dir, info)) = self.bear(disk, born, name, stage.is_some())? else {
            return self.merge(disk, name, policy);
        };
        let sole = disk.lock(&dir) == Lock::Held;
        let keep = keep_for(disk, &dir, policy);
        let newcomers = match self.root.listed() {
            Some(mut listed) => {
                listed.made.insert(info.id());
                listed.opened(info.id())
            }
            None => Arc::default(),
        };
        Ok(DestDir {
            dir: Arc::new(dir),
            node,
            root: self.root.clone(),
            info,
            fresh,
            made: true,
            again: false,
            sole,
            newcomers,
            stage,
            named: AtomicBool::new(false),
            clash: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            keep,
        })
    }

    /// Makes the directory `born`, which is or becomes `name`, and opens it; `None` when something has its name.
    /// `known`: only who holds this directory's lock uses that name, and that is us, so what a killed run left there is
    /// taken away first.
    fn bear(&self, disk: &D, born: Name<'_>, name: Name<'_>, known: bool) -> Result<Option<(D::Dir, Info)>> {
        let node = self.node.below(name);
        let failed = |op| fail(op, &node, None);
        // Held until it stands there: before that, another worker could not tell it from what is stale.
        let mut book = self.newcomers.open();
        match disk.make_dir(&self.dir, born, 0o700) {
            Err(e) if e.raw_os_error() == Some(errno::EEXIST) && !known => return Ok(None),
            Err(e) if e.raw_os_error() == Some(errno::EEXIST) => {
                let there = disk.look(&self.dir, born).map_err(failed("stat"))?;
                if there.is_some_and(|there| book.has(&there, || disk.born(&self.dir, born))) {
                    let note = "this run is making it already, from another source";
                    return Err(Error::ours(Code::Refused, "make directory", node.path(), note));
                }
                disk.remove_tree(&self.dir, born)
                    .and_then(|()| disk.make_dir(&self.dir, born, 0o700))
                    .map_err(failed("make directory"))?;
            }
            other => other.map_err(failed("make directory"))?,
        }
        let opened = disk
            .open_dir(&self.dir, born)
            .and_then(|dir| Ok((disk.info(&dir)?, disk.born(&self.dir, born)?, dir)));
        match opened {
            Ok((info, since, dir)) => {
                book.add(&info, name, since);
                Ok(Some((dir, info)))
            }
            Err(e) => {
                // Empty and ours; if even this fails the next run meets it.
                let kept = disk.remove_dir(&self.dir, born).err();
                let error = failed("open directory")(e);
                Err(match kept {
                    Some(k) => Error { note: Some(format!("and could not be removed again ({k})")), ..error },
                    None => error,
                })
            }
        }
    }

    /// Makes a directory that is marked as unfinished from the moment on in which it has its name: a run that is killed
    /// in between must not leave one that is taken for any other. It gets its name at once, as what is unfinished in it
    /// must be where the next run looks for it.
    fn make_marked(
        &self,
        disk: &D,
        name: Name<'_>,
        policy: &CopyPolicy,
        mark: Mark<'_, D>,
    ) -> Result<DestDir<D>> {
        let node = self.node.below(name);
        let failed = |op| fail(op, &node, None);
        let Some(stage) = (if self.sole { stage::known(name) } else { stage::random() }) else {
            return Err(Error::ours(Code::Io, "name a stage for", node.path(), "no name could be made"));
        };
        let stage = stage.as_name();
        let Some((dir, info)) = self.bear(disk, stage, name, self.sole)? else {
            let e = io::Error::from_raw_os_error(errno::EEXIST);
            return Err(failed("make directory")(e));
        };
        let root = Some(self.root.clone());
        let named = mark(&dir).and_then(|()| {
            let made = DestDir::existing(disk, dir, node.clone(), root, policy);
            disk.publish_dir(&self.dir, stage, name).map(|()| made)
        });
        match named {
            Ok(made) => made.map(|made| DestDir { made: true, ..made }),
            Err(e) => {
                disk.remove_tree(&self.dir, stage).map_err(failed("remove unfinished"))?;
                self.newcomers.open().forget(&info);
                match e.raw_os_error() {
                    // Somebody made it meanwhile.
                    Some(errno::EEXIST) => self.merge(disk, name, policy),
                    _ => Err(failed("make directory")(e)),
                }
            }
        }
    }

    /// The same directory for another operand; handle and lock are shared.
    pub(crate) fn share(&self) -> DestDir<D> {
        DestDir {
            dir: self.dir.clone(),
            node: self.node.clone(),
            root: self.root.clone(),
            info: self.info,
            fresh: self.fresh,
            made: self.made,
            again: self.again,
            sole: self.sole,
            newcomers: self.newcomers.clone(),
            stage: None,
            named: AtomicBool::new(false),
            clash: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            keep: self.keep,
        }
    }

    /// Everything in it is done, as far as this handle goes; whether that was the last one that this run has of it.
    /// Asked once.
    pub(crate) fn is_done_with(&self) -> bool {
        let Some(mut listed) = self.root.listed() else { return true };
        let Some(open) = listed.open.get_mut(&self.info.id()) else { return true };
        *open -= 1;
        let last = *open == 0;
        if last {
            listed.open.remove(&self.info.id());
        }
        last
    }

    /// Whether its files are made under their own names: only as long as it has none itself.
    pub(crate) fn is_private(&self) -> bool {
        self.stage.is_some()
    }

    /// Whether it has its final name.
    pub(crate) fn has_name(&self) -> bool {
        self.stage.is_none() || self.named.load(Relaxed)
    }

    /// Never to be published: something half-done in it could not be taken back.
    pub(crate) fn poison(&self) {
        self.poisoned.store(true, Relaxed);
    }

    /// Gives it its name, in the directory `above`.
    pub(crate) fn publish(&self, disk: &D, above: &DestDir<D>) -> Result<()> {
        let (Some(stage), Node::Below(_, name)) = (&self.stage, &*self.node) else { return Ok(()) };
        if self.poisoned.load(Relaxed) {
            return Ok(()); // taken back once nobody works in it any more
        }
        let named = match self.is_stage(disk, above, stage) {
            Ok(true) => disk.publish_dir(&above.dir, stage.as_name(), name.as_name()),
            // Whatever took it away: only what was filled gets the name.
            Ok(false) => {
                self.poison();
                let note = "what was filled is gone, or something else is in its place";
                return Err(Error::ours(Code::Io, "publish directory", self.node.path(), note));
            }
            Err(e) => Err(e),
        };
        match named {
            Ok(()) => {
                self.named.store(true, Relaxed);
                Ok(())
            }
            Err(e) if e.raw_os_error() == Some(errno::EEXIST) => {
                let there = disk.look(&above.dir, name.as_name());
                let there = there.inspect_err(|_| self.poison()).map_err(fail("stat", &self.node, None))?;
                let born = || disk.born(&above.dir, name.as_name());
                if there.is_some_and(|there| above.newcomers.open().is_taken(&there, name.as_name(), born)) {
                    self.poison();
                    return Err(Error::ours(Code::Refused, "merge into", self.node.path(), TAKEN));
                }
                // Somebody made it meanwhile. What is ours goes in there once it is complete.
                self.clash.store(true, Relaxed);
                Ok(())
            }
            Err(e) => {
                self.poison();
                Err(fail("publish directory", &self.node, None)(e))
            }
        }
    }

    /// Whether what is called `stage` is this very directory.
    fn is_stage(&self, disk: &D, above: &DestDir<D>, stage: &NameBuf) -> io::Result<bool> {
        Ok(disk.look(&above.dir, stage.as_name())?.is_some_and(|there| there.id() == self.info.id()))
    }

    /// Takes away what is called `stage`, if that is this directory still.
    fn remove_stage(&self, disk: &D, above: &DestDir<D>, stage: &NameBuf) -> io::Result<()> {
        if self.is_stage(disk, above, stage)? {
            disk.remove_tree(&above.dir, stage.as_name())?;
            above.newcomers.open().forget(&self.info);
        }
        Ok(())
    }

    /// Removes what never got its name, with all that is in it, when nobody works in it any more: nothing is left that
    /// nobody asked for.
    pub(crate) fn take_back(&self, disk: &D, above: &DestDir<D>) -> Result<()> {
        let Some(stage) = &self.stage else { return Ok(()) };
        self.remove_stage(disk, above, stage).map_err(fail("remove unfinished", &self.node, None))?;
        let note = "nothing of it was published, because something in it could not be finished or taken back";
        Err(Error::ours(Code::Io, "publish directory", self.node.path(), note))
    }

    /// Whether it never got its name.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Relaxed)
    }

    /// After everything in it is done: where the name was taken meanwhile, what is ours moves in there. Returns the
    /// directory that has the name now, when it is not this one. `only_new`: what somebody has put there meanwhile stays,
    /// and is in the way.
    pub(crate) fn settle(&self, disk: &D, above: &DestDir<D>, only_new: bool) -> Result<Option<D::Dir>> {
        let (Some(stage), Node::Below(_, name)) = (&self.stage, &*self.node) else { return Ok(None) };
        if !self.clash.load(Relaxed) {
            return Ok(None);
        }
        let merged = disk.open_dir(&above.dir, name.as_name()).and_then(|there| {
            disk.merge_into(&self.dir, &there, only_new)?;
            disk.remove_dir(&above.dir, stage.as_name())?;
            above.newcomers.open().forget(&self.info);
            Ok(there)
        });
        match merged {
            Ok(there) => {
                self.named.store(true, Relaxed);
                Ok(Some(there))
            }
            Err(e) => {
                // What has the name now is no directory, or holds something in the way: what could not be merged goes,
                // so that nothing is left under a name that nobody asked for.
                let kept = self.remove_stage(disk, above, stage).err();
                let error = fail("merge into directory", &self.node, None)(e);
                Err(match kept {
                    Some(k) => Error { note: Some(format!("and could not be removed again ({k})")), ..error },
                    None => error,
                })
            }
        }
    }
}
