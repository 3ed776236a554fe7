//! The source of a plan on another machine, as a client has it: looked at as a whole or by names, and read by names into the tree
//! of the plan, which is here.
//!
//! Must not know what a plan is, nor which names its shards have. One connection; one transfer after the other.

use super::client::{connect, end, for_purpose};
use super::features::{agreed_accounts, needed_of_sender, offered};
use super::machine::machine_number;
use super::policy_wire::{Lists, policy_out};
use super::receiving::{ReceivingEnd, receive_all, reply_on};
use super::talk::{ask_info, no_stream, prefix, send, shown_path};
use super::telling::{EntryListener, EntryTeller};
use crate::disk::sys::Sys;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Summary, Watch};
use crate::peer::asked::Asked;
use crate::peer::comparing::comparing_some;
use crate::peer::from_wire::FromWire;
use crate::peer::from_wire::transfer::IncomingTransfer;
use crate::peer::incoming::{Incoming, kind_of};
use crate::peer::landing::{LocalSide, landing};
use crate::peer::owners_here::OwnersHere;
use crate::peer::reply::Reply;
use crate::peer::taker::{TakeListener, Taker};
use crate::policy::{Compare, CopyPolicy, Leaving, Preserve, Target};
use crate::remote::{Address, Purpose, Way};
use crate::sender::filter::Filter;
use crate::tally::Tally;
use crate::transport::ssh::LinkLoad;
use crate::transport::{Peer, Terms};
use crate::verbs::entry_pair::Visit;
use crate::verbs::named_dirs::NamedDirs;
use crate::verbs::nameless::TreeNames;
use crate::verbs::operands::{DestLink, Place, Reach, Resolved, Where};
use crate::verbs::round_ledger::FetchedNames;
use bcmr_wire::handshake::{guarantees, wide};
use bcmr_wire::message::{Message, Policy};
use fastcopy::meta::Kind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is asked of the source.
enum Request<'n> {
    /// The directory with all that is in it.
    Whole,
    /// These names below it; a directory among them with all that is in it.
    Names(&'n [Vec<u8>]),
    /// The same. Whether they are there is what is asked, so nothing is told of those that are not.
    Sought(&'n [Vec<u8>]),
    /// The same below another directory there.
    SoughtBelow(&'n Path, &'n [Vec<u8>]),
}

/// The source of a plan, over one connection.
pub(crate) struct SourceThere<'a> {
    peer: Peer,
    from: Address,
    way: &'a Way,
    watch: Watch<'a>,
}

fn bytes_of(names: &[Vec<u8>]) -> Vec<&[u8]> {
    names.iter().map(Vec::as_slice).collect()
}

/// By what names are taken away: whatever they are, and nothing of them is read.
pub(crate) fn taking(policy: &CopyPolicy) -> CopyPolicy {
    let preserve = Preserve { xattr: false, acl: false, ..policy.preserve };
    CopyPolicy {
        recursive: true,
        dry_run: false,
        leaving: Leaving::Goes,
        hashes: false,
        preserve,
        ..policy.clone()
    }
}

/// Names are looked at, and nothing is compared with anything.
const LOOKS: Purpose = Purpose::Check { compare: Compare::SizeAndTime, extra: false, alike: false };

impl<'a> SourceThere<'a> {
    /// Connects to where `from` is; `policy` is what is read by.
    ///
    /// # Errors
    /// There is no connection, or the bcmr there cannot send what the policy asks for.
    pub(crate) fn reach(
        (from, way): (&Address, &'a Way),
        policy: &CopyPolicy,
        watch: Watch<'a>,
    ) -> Result<SourceThere<'a>> {
        let lists = Lists::of(policy)?;
        let [looks, reads] = [LOOKS, Purpose::Copy].map(|purpose| {
            guarantees(&policy_out(policy, &lists, way.fast, way.dedup, way.compress, purpose))
        });
        let terms = Terms::new(offered(way, policy.alter.known_by), needed_of_sender(looks.or(reads)));
        let peer = connect((from, way), LinkLoad::Heavy, terms, &[], watch)?;
        if let Some(first) = peer.streams.first() {
            first.pulse().goes_by(&way.throttle);
        }
        Ok(SourceThere { peer, from: from.clone(), way, watch })
    }

    /// A path below the source, as it is shown.
    pub(crate) fn shown(&self, path: &[u8]) -> PathBuf {
        let below = Path::new(std::ffi::OsStr::from_bytes(path));
        let whole = if path.is_empty() { self.from.path.clone() } else { self.from.path.join(below) };
        shown_path(&self.from, &whole)
    }

    /// Tells `to` all that is below the source and takes part by `policy`, as a copy from there into `place` meets it.
    ///
    /// # Errors
    /// The connection was lost, or the source is none. What could not be looked at there is told and counted.
    pub(crate) fn walk(
        &self,
        place: Arc<Place>,
        policy: &CopyPolicy,
        to: &dyn EntryListener,
    ) -> Result<Summary> {
        self.look(Request::Whole, place, policy, to)
    }

    /// The same of these names, and of the directories that lead to them.
    ///
    /// # Errors
    /// As [`SourceThere::walk`].
    pub(crate) fn look_at(
        &self,
        names: &[Vec<u8>],
        place: Arc<Place>,
        policy: &CopyPolicy,
        to: &dyn EntryListener,
    ) -> Result<Summary> {
        self.look(Request::Names(names), place, policy, to)
    }

    /// The same, where it is no trouble that some of them are not there: nothing is told of those, and the summary has their code.
    ///
    /// # Errors
    /// As [`SourceThere::walk`].
    pub(crate) fn seek(
        &self,
        names: &[Vec<u8>],
        place: Arc<Place>,
        policy: &CopyPolicy,
        to: &dyn EntryListener,
    ) -> Result<Summary> {
        self.look(Request::Sought(names), place, policy, to)
    }

    fn look(
        &self,
        request: Request<'_>,
        place: Arc<Place>,
        policy: &CopyPolicy,
        to: &dyn EntryListener,
    ) -> Result<Summary> {
        let mut policy = CopyPolicy { recursive: true, dry_run: true, ..policy.clone() };
        self.get(request, (Where::Whole(place), None), &mut policy, LOOKS, |transfer, reply, get| {
            let telling = FromWire::new(transfer, self.watch, EntryTeller::new(Tally::new(self.watch), to));
            send(&self.peer, get)?;
            Ok(receive_all(telling, &self.peer.streams, reply, None, ReceivingEnd::ClientAsksAgain))
        })
    }

    /// Has of these names below `base` taken away what `to` says, and of the directories that lead to them.
    ///
    /// # Errors
    /// The connection was lost, or the bcmr there takes nothing away. What stays, and what could not be looked at, is told and
    /// counted; what is not there is counted alone.
    pub(crate) fn take(
        &self,
        (base, names): (&Path, &[Vec<u8>]),
        place: Arc<Place>,
        policy: &CopyPolicy,
        to: &dyn TakeListener,
    ) -> Result<Summary> {
        // Through nothing that is mounted there.
        let mut policy = CopyPolicy { one_file_system: true, ..taking(policy) };
        let (here, request) = ((Where::Whole(place), None), Request::SoughtBelow(base, names));
        self.get(request, here, &mut policy, Purpose::Copy, |transfer, reply, get| {
            let what = transfer.what.clone();
            let taker = Taker::new(Tally::new(self.watch), reply, what, to);
            let taking = FromWire::new(transfer, self.watch, taker);
            send(&self.peer, get)?;
            Ok(receive_all(taking, &self.peer.streams, reply, None, ReceivingEnd::ClientAsksAgain))
        })
    }

    /// What tells what has this path there, wherever a link leads, from all else on that machine.
    ///
    /// # Errors
    /// The connection was lost, or it cannot be looked at.
    pub(crate) fn identity(&self, path: &Path) -> Result<(u64, u64)> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let question = Message::Stat { path: path.as_os_str().as_bytes(), follow: true };
        ask_info(&self.peer, &self.from, &question, self.watch.cancel, |entry| {
            // An older bcmr does not say it.
            let untold = || {
                let (shown, why) = (shown_path(&self.from, path), Reason::IdentityNotTold);
                Error::ours(Code::Unsupported, Op::Stat, shown, why)
            };
            if entry.ino == 0 { Err(untold()) } else { Ok((entry.dev, entry.ino)) }
        })
    }

    /// What has this path there, and not what a link leads to.
    ///
    /// # Errors
    /// As [`SourceThere::identity`].
    pub(crate) fn kind(&self, path: &Path) -> Result<Kind> {
        let question = Message::Stat { path: path.as_os_str().as_bytes(), follow: false };
        ask_info(&self.peer, &self.from, &question, self.watch.cancel, |entry| Ok(kind_of(entry.kind)))
    }

    /// The path of the source there.
    pub(crate) fn path(&self) -> &Path {
        &self.from.path
    }

    /// Shows these names to `visit` beside what has them in `to`, and of the directories that lead to them those that are to
    /// be compared. `policy` is what they are compared by.
    ///
    /// # Errors
    /// The connection was lost. What could not be looked at there is told and counted.
    pub(crate) fn compare(
        &self,
        (names, dirs): (&[Vec<u8>], NamedDirs),
        to: Where,
        policy: &CopyPolicy,
        (compare, tally): (Compare, &Tally<'_>),
        visit: Box<dyn Visit + Send + '_>,
    ) -> Result<()> {
        // Directories are asked for by name; what is below them is not.
        let purpose = Purpose::Check { compare, extra: false, alike: false };
        let mut policy = for_purpose(CopyPolicy { recursive: true, ..policy.clone() }, purpose);
        let to = (to, Some(TreeNames::Round));
        let done = self.get(Request::Names(names), to, &mut policy, purpose, |transfer, reply, get| {
            let comparing = comparing_some(transfer, tally, visit, Some(dirs))?;
            send(&self.peer, get)?;
            Ok(receive_all(comparing, &self.peer.streams, reply, None, ReceivingEnd::ClientAsksAgain))
        });
        // What was found is in the tally.
        done.map(drop)
    }

    /// Reads these names into `tree`, which other processes fill as well. What of them has landed is in `ledger` then, and on
    /// stable storage.
    ///
    /// # Errors
    /// The connection was lost, or the transfer failed as a whole.
    pub(crate) fn fetch(
        &self,
        disk: &Sys,
        names: &[Vec<u8>],
        (tree, which): (Arc<Place>, TreeNames),
        policy: &CopyPolicy,
        ledger: &FetchedNames,
    ) -> Result<Summary> {
        let (mut policy, tree) = (policy.clone(), (Where::Whole(tree), Some(which)));
        self.get(Request::Names(names), tree, &mut policy, Purpose::Copy, |transfer, reply, get| {
            let here = LocalSide { disk, manifest: None, store: None, snapshot: None, fetched: Some(ledger) };
            let landing = landing(transfer, self.watch, here)?;
            send(&self.peer, get)?;
            Ok(receive_all(landing, &self.peer.streams, reply, None, ReceivingEnd::ClientAsksAgain))
        })
    }

    /// One transfer. `receive` is given what is to come and where answers go, and sends the request.
    fn get(
        &self,
        request: Request<'_>,
        (to, tree): (Where, Option<TreeNames>),
        policy: &mut CopyPolicy,
        purpose: Purpose,
        receive: impl FnOnce(IncomingTransfer<'_>, &Reply, &Message<'_>) -> Result<(Summary, Option<Error>)>,
    ) -> Result<Summary> {
        let asks = policy.clone();
        let lists = Lists::of(&asks)?;
        let how: Policy<'_> =
            policy_out(&asks, &lists, self.way.fast, self.way.dedup, self.way.compress, purpose);
        let features = self.peer.agreed.features;
        let owners = OwnersHere::of(&mut policy.alter, agreed_accounts(features));
        let filter = Filter::new(&asks.filter)?;
        // Of the directory its contents, whatever it is called.
        let whole = self.from.path.join(".");
        let (path, asked, names) = match request {
            Request::Whole => (&*whole, Asked::operands(std::iter::once(&*whole), filter)?, None),
            Request::Names(names) => {
                (&*self.from.path, Asked::listed(&self.from.path, names, filter), Some(bytes_of(names)))
            }
            Request::Sought(names) => {
                let asked = Asked::listed(&self.from.path, names, filter).seeking();
                (&*self.from.path, asked, Some(bytes_of(names)))
            }
            Request::SoughtBelow(base, names) => {
                (base, Asked::listed(base, names, filter).seeking(), Some(bytes_of(names)))
            }
        };
        let target = Target::Exactly(to.path());
        let reads = purpose == Purpose::Copy && !self.way.fast;
        let what = Incoming {
            to: Resolved::at(to, &target, DestLink::Itself),
            kinds: Arc::default(),
            operands: 1,
            asked,
            source_prefix: prefix(&self.from),
            origin: machine_number(),
            hashes: !self.way.fast,
            echo: true,
            streams: self.peer.streams.len(),
            listed: names.is_some(),
            tree,
            reach: Reach::Anywhere,
            dedup: false,
            keeping: false,
            delta: reads && features.has_wide(wide::DELTA),
            parts: reads && features.has_wide(wide::PARTS),
            repeats: reads && features.has_wide(wide::REPEATS),
            once_more: Arc::default(),
            going: None,
            owners,
        };
        let reply = self.peer.streams.first().map(reply_on).ok_or_else(|| no_stream(&self.from))?;
        let transfer = IncomingTransfer { policy, what: Arc::new(what), reply: &reply };
        let get = Message::Get { policy: how, paths: vec![path.as_os_str().as_bytes()], names };
        let (summary, broken) = receive(transfer, &reply, &get)?;
        match broken {
            Some(e) if !self.watch.cancel.is_set() => Err(e),
            _ => Ok(summary),
        }
    }

    /// Ends the connection.
    ///
    /// # Errors
    /// Those of `result`.
    pub(crate) fn end(self, result: Result<Summary>) -> Result<Summary> {
        end(self.peer, result, self.watch)
    }
}
