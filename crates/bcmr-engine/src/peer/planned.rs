//! The tree of a plan on another machine, as a client has it: made, filled from lists of names, ended, and given its name; or a
//! destination that has its name, and is brought up to date from lists of names, or compared with them.
//!
//! Must not know what a plan is, nor which names its shards have. One connection; one transfer after the other.

use super::client::{connect, end, for_purpose, how_agreed};
use super::events::{ClientObserver, summary_of};
use super::features::offered;
use super::names::send_all_but_last;
use super::policy_wire::{Lists, policy_out};
use super::sending::send_all;
use super::talk::{ask_info, prefix, send, shown_path, unexpected};
use crate::error::{Code, Error, Op, Result};
use crate::event::{Summary, Watch};
use crate::node::Node;
use crate::policy::CopyPolicy;
use crate::remote::{Address, Purpose, Way};
use crate::sender::announce::{Extent, ToSend};
use crate::sender::out::SendObserver;
use crate::sender::sending::How;
use crate::sender::walk::SourceDir;
use crate::transport::ssh::LinkLoad;
use crate::transport::{Peer, Terms};
use crate::verbs::named_dirs::NamedDirs;
use bcmr_wire::handshake::{Features, guarantees, wide};
use bcmr_wire::limits::TREE_LINKS_MAX;
use bcmr_wire::message::{self, Event as WireEvent, Message, TreeStep, Trouble};
use fastcopy::dir::{Dir, NameBuf};
use fastcopy::errno;
use std::collections::HashMap;
use std::io::{self, BufRead};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Hashes of what landed, by path below the tree.
pub(crate) type LandedHashes = HashMap<Vec<u8>, [u8; 32]>;

/// What the tree is over there.
pub(crate) struct TreeFound {
    pub(crate) name: NameBuf,
    pub(crate) ino: u64,
}

/// Further names in one request: so many bytes of paths.
const LINK_BYTES: usize = 1 << 20;

/// Names that wait to be sent: of what is called the first, each with its further name.
#[derive(Default)]
struct WaitingLinks {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
}

/// The tree of a plan, over one connection.
pub(crate) struct TreeThere<'a> {
    peer: Peer,
    to: Address,
    way: &'a Way,
    plan: [u8; 32],
    watch: Watch<'a>,
    /// Further names that were not sent yet.
    links: Mutex<WaitingLinks>,
}

impl<'a> TreeThere<'a> {
    /// Connects to where `to` is, which the tree of the plan with this hash becomes; `policy` is what it is filled by.
    ///
    /// # Errors
    /// There is no connection, or the bcmr there knows nothing of plans.
    pub(crate) fn reach(
        (to, way): (&Address, &'a Way),
        plan: [u8; 32],
        policy: &CopyPolicy,
        watch: Watch<'a>,
    ) -> Result<TreeThere<'a>> {
        TreeThere::reach_with((to, way), (plan, wide::PLANS), (policy, Purpose::Copy), watch)
    }

    /// The same where it has its name already, and is brought up to date by `policy`.
    ///
    /// # Errors
    /// There is no connection, or the bcmr there cannot do what the policy asks for.
    pub(crate) fn reach_named(
        there: (&Address, &'a Way),
        policy: &CopyPolicy,
        watch: Watch<'a>,
    ) -> Result<TreeThere<'a>> {
        TreeThere::reach_with(there, ([0; 32], wide::LISTS), (policy, Purpose::Copy), watch)
    }

    /// The same where nothing is done to it: names are compared with what it has.
    ///
    /// # Errors
    /// There is no connection, or the bcmr there is too old to compare names of plans.
    pub(crate) fn reach_compared(
        there: (&Address, &'a Way),
        (policy, purpose): (&CopyPolicy, Purpose),
        watch: Watch<'a>,
    ) -> Result<TreeThere<'a>> {
        let policy = for_purpose(policy.clone(), purpose);
        TreeThere::reach_with(there, ([0; 32], wide::LISTS | wide::ROUNDS), (&policy, purpose), watch)
    }

    fn reach_with(
        (to, way): (&Address, &'a Way),
        (plan, knows): ([u8; 32], u64),
        (policy, purpose): (&CopyPolicy, Purpose),
        watch: Watch<'a>,
    ) -> Result<TreeThere<'a>> {
        let lists = Lists::of(policy)?;
        let how = policy_out(policy, &lists, way.fast, way.dedup, way.compress, purpose);
        let required = guarantees(&how).or(Features { caps: 0, wide: knows });
        let terms = Terms::new(offered(way, policy.alter.known_by), required);
        let peer = connect((to, way), LinkLoad::Heavy, terms, &[], watch)?;
        if let Some(first) = peer.streams.first() {
            first.pulse().goes_by(&way.throttle);
        }
        Ok(TreeThere { peer, to: to.clone(), way, plan, watch, links: Mutex::default() })
    }

    /// The same connection for a plan with another hash.
    pub(crate) fn of(self, plan: [u8; 32]) -> TreeThere<'a> {
        TreeThere { plan, ..self }
    }

    fn step(&self, step: TreeStep<'_>) -> Result<TreeFound> {
        let path = self.to.path.as_os_str().as_bytes();
        let question = Message::Tree { path, plan: self.plan, step };
        ask_info(&self.peer, &self.to, &question, self.watch.cancel, |entry| {
            let name = NameBuf::new(entry.name).ok_or_else(|| unexpected(&self.to))?;
            Ok(TreeFound { name, ino: entry.ino })
        })
    }

    /// That what is compared is a directory, if it is there.
    ///
    /// # Errors
    /// It is none, or cannot be looked at.
    pub(crate) fn is_directory_if_there(&self) -> Result<()> {
        let path = self.to.path.as_os_str().as_bytes();
        let question = Message::Stat { path, follow: true };
        let is_directory = ask_info(&self.peer, &self.to, &question, self.watch.cancel, |entry| {
            let is_none = || io::Error::from_raw_os_error(errno::ENOTDIR);
            let none = || Error::os(Op::Stat, shown_path(&self.to, &self.to.path), is_none());
            if entry.kind == message::Kind::Dir { Ok(()) } else { Err(none()) }
        });
        match is_directory {
            Err(e) if e.code == Code::NotFound => Ok(()),
            other => other,
        }
    }

    /// Makes the tree, unless it is there.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn make(&self) -> Result<TreeFound> {
        self.step(TreeStep::Make)
    }

    /// Looks for it.
    ///
    /// # Errors
    /// It is not there.
    pub(crate) fn find(&self) -> Result<TreeFound> {
        self.step(TreeStep::Find)
    }

    /// Gives what is called `first` in it the further name `path`, at the latest with [`TreeThere::all_linked`].
    ///
    /// # Errors
    /// One of those that wait cannot be made.
    pub(crate) fn link(&self, first: &[u8], path: &[u8]) -> Result<()> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.pairs.push((first.to_vec(), path.to_vec()));
        links.bytes += first.len() + path.len();
        let is_full = links.pairs.len() >= TREE_LINKS_MAX || links.bytes >= LINK_BYTES;
        drop(links);
        if is_full { self.all_linked() } else { Ok(()) }
    }

    /// Every further name is there.
    ///
    /// # Errors
    /// One cannot be made.
    pub(crate) fn all_linked(&self) -> Result<()> {
        let links = std::mem::take(&mut *self.links.lock().unwrap_or_else(PoisonError::into_inner));
        if links.pairs.is_empty() {
            return Ok(());
        }
        let links = links.pairs.iter().map(|(first, path)| (&**first, &**path)).collect();
        self.step(TreeStep::Link(links)).map(drop)
    }

    /// Gives it its name, if it has this inode.
    ///
    /// # Errors
    /// It has not got it.
    pub(crate) fn publish(&self, ino: u64) -> Result<()> {
        self.step(TreeStep::Publish { ino }).map(drop)
    }

    /// Sends the names that `reader` has, each with a zero behind it, from below `source` into the tree; `most` is how many hashes
    /// are wanted at most. What landed is on stable storage when this returns,
    /// unless they are all there are: then [`TreeThere::publish`] sees to that.
    ///
    /// # Errors
    /// The connection was lost, or the transfer failed as a whole.
    pub(crate) fn put(
        &self,
        source: &Path,
        (reader, most): (&mut (dyn BufRead + Send), usize),
        extent: Extent,
        policy: &CopyPolicy,
    ) -> Result<(Summary, LandedHashes)> {
        send(&self.peer, &Message::IntoTree { plan: self.plan, all: extent == Extent::All })?;
        self.put_names(source, (reader, most), extent, (policy, Purpose::Copy))
    }

    /// The same into what has its name, whose other names stay as they are.
    ///
    /// # Errors
    /// As [`TreeThere::put`].
    pub(crate) fn bring(
        &self,
        source: &Path,
        reader: &mut (dyn BufRead + Send),
        policy: &CopyPolicy,
    ) -> Result<Summary> {
        let policy = (policy, Purpose::Copy);
        self.put_names(source, (reader, 0), Extent::Some, policy).map(|(summary, _)| summary)
    }

    /// Has these names compared with what has its name; of directories those that `dirs` says. What differs is told.
    ///
    /// # Errors
    /// As [`TreeThere::put`].
    pub(crate) fn compare(
        &self,
        source: &Path,
        (reader, dirs): (&mut (dyn BufRead + Send), &NamedDirs),
        extent: Extent,
        (policy, purpose): (&CopyPolicy, Purpose),
    ) -> Result<Summary> {
        let (policy, said) = (for_purpose(policy.clone(), purpose), dirs.said());
        let names = send_all_but_last(&self.peer, &said)?;
        // [put.round] That none is compared is said as well.
        send(&self.peer, &Message::Names { names })?;
        self.put_names(source, (reader, 0), extent, (&policy, purpose)).map(|(summary, _)| summary)
    }

    fn put_names(
        &self,
        source: &Path,
        (reader, most): (&mut (dyn BufRead + Send), usize),
        extent: Extent,
        (policy, purpose): (&CopyPolicy, Purpose),
    ) -> Result<(Summary, LandedHashes)> {
        let lists = Lists::of(policy)?;
        let sent = policy_out(policy, &lists, self.way.fast, self.way.dedup, self.way.compress, purpose);
        let compares = purpose != Purpose::Copy;
        let by_name;
        let policy = if compares {
            // A directory that is compared is sent by its name. The server hears nothing of that: one that is missing is one lack.
            by_name = CopyPolicy { recursive: true, ..policy.clone() };
            &by_name
        } else {
            policy
        };
        let path = self.to.path.as_os_str().as_bytes();
        let (target, items) = (message::Target::Exactly, self.watch.items);
        send(&self.peer, &Message::Put { policy: sent, target, path, operands: 0, items })?;
        let observer = TreeObserver {
            inner: ClientObserver {
                watch: self.watch,
                prefix: prefix(&self.to),
                own_name: shown_path(&self.to, &self.to.path),
                manifest: None,
                tells_hashes: false,
                unwritten: Default::default(),
                compares,
                untold: false,
                compared: Mutex::default(),
                source_prefix: String::new(),
                once_more: Arc::default(),
            },
            most,
            landed: Mutex::default(),
        };
        let dir = Dir::open(source).map_err(|e| Error::os(Op::OpenDirectory, source, e))?;
        let dir = SourceDir::root(dir, Node::root(source))?;
        let what = ToSend::Names { base: source, dir, reader, separator: 0, extent };
        let how = How { compares, ..how_agreed(self.way, self.peer.agreed.features) };
        let counted = send_all(&self.peer, policy, how, &observer, self.watch.cancel, what)?;
        let TreeObserver { inner, landed, .. } = observer;
        let landed = landed.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok((inner.finish_manifest(Ok(summary_of(&counted)))?, landed.hashes))
    }

    /// Ends the connection.
    ///
    /// # Errors
    /// Those of `result`.
    pub(crate) fn end(self, result: Result<Summary>) -> Result<Summary> {
        end(self.peer, result, self.watch)
    }
}

/// What was told of what landed.
#[derive(Default)]
struct ToldHashes {
    /// What paths are below.
    base: Vec<u8>,
    hashes: LandedHashes,
}

/// Keeps hashes, and passes on everything else.
struct TreeObserver<'a> {
    inner: ClientObserver<'a>,
    /// So many hashes are to be told.
    most: usize,
    landed: Mutex<ToldHashes>,
}

impl SendObserver for TreeObserver<'_> {
    fn failed(&self, error: &Error) {
        self.inner.failed(error);
    }
    fn excluded(&self, path: &dyn Fn() -> PathBuf) {
        self.inner.excluded(path);
    }
    fn sends(&self, path: &dyn Fn() -> PathBuf) {
        self.inner.sends(path);
    }
    fn found(&self, items: u64, bytes: u64, last: bool) {
        self.inner.found(items, bytes, last);
    }
    fn landed(&self, items: u64, bytes: u64) {
        self.inner.landed(items, bytes);
    }
    fn there(&self, bytes: u64) {
        self.inner.there(bytes);
    }
    fn peer_error(&self, trouble: &Trouble<'_>) -> Error {
        self.inner.peer_error(trouble)
    }
    fn report(&self, event: &WireEvent<'_>) {
        match event {
            WireEvent::Base(path) => {
                self.landed.lock().unwrap_or_else(PoisonError::into_inner).base = path.to_vec();
            }
            WireEvent::Hashed { dst, hash } => {
                let mut landed = self.landed.lock().unwrap_or_else(PoisonError::into_inner);
                // What is told of another place is of no name of ours.
                let below = dst.strip_prefix(&*landed.base).and_then(|rest| rest.strip_prefix(b"/"));
                if let Some(path) = below.filter(|_| landed.hashes.len() < self.most).map(<[u8]>::to_vec) {
                    landed.hashes.insert(path, *hash);
                }
            }
            event => self.inner.report(event),
        }
    }
    fn ask(&self, path: &Path) -> bool {
        self.inner.ask(path)
    }
}
