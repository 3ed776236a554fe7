//! A copy between two other machines: what the one sends goes on to the other, frame by frame, and what that one answers goes
//! back. Both take part as in a copy to or from here; only what is for the user stays here.
//!
//! Must not know what becomes of anything that is sent, and keeps nothing of it.

use super::beside::{self, AskedSnapshot};
use super::client::{
    and_once_more, and_the_rest, as_repeated, end, for_purpose, goes_first, own_name_of, whole_home,
    with_retries,
};
use super::events::{ClientObserver, summary_of};
use super::features::{needed_of_sender, offered};
use super::policy_wire::{Lists, policy_out};
use super::talk::{await_answer, error_there, is_absent, prefix, send, shown_path};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Summary, Watch};
use crate::peer::asked::{Asked, Kinds};
use crate::peer::incoming::refused;
use crate::policy::{CopyPolicy, Dated, DeleteWhen, FollowDestination, Target};
use crate::remote::{Address, Purpose, RelayRequest, Way};
use crate::sender::filter::Filter;
use crate::sender::out::{Counted, SendObserver};
use crate::transport::conn::{FrameBuf, Heard, Packet};
use crate::transport::ssh::LinkLoad;
use crate::transport::stream::{Inbox, Outbox, Stream};
use crate::transport::{self, Peer, Terms};
use crate::verbs::snapshot;
use bcmr_wire::frame;
use bcmr_wire::handshake::{Features, caps, guarantees};
use bcmr_wire::message::{self, Message, kind};
use bcmr_wire::policy::flags;
use fastcopy::dir::NameBuf;
use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often flags are looked at while nothing comes.
const LOOK: Duration = Duration::from_millis(100);
/// How long the last words of both are waited for once the copy is over, and once it was stopped.
const LAST_WORDS: Duration = Duration::from_secs(5);
const STOPPED: Duration = Duration::from_secs(10);

/// Why nothing went from one machine to another: where no bcmr answers, the caller has to know at which of them.
pub enum RelayError {
    /// [`Code::NoPeer`] at the source.
    AtSource(Error),
    /// Anything else; [`Code::NoPeer`] is that of the destination.
    Other(Error),
}

/// Copies between two other machines.
///
/// # Errors
/// As a copy to or from either of them.
pub fn relay(request: RelayRequest, watch: Watch<'_>) -> std::result::Result<Summary, RelayError> {
    let no_source = Cell::new(false);
    relay_in_order(request, watch, &no_source).map_err(|e| match no_source.get() {
        true => RelayError::AtSource(e),
        false => RelayError::Other(e),
    })
}

/// With what goes before it, where anything does. `no_source` becomes true where the source has no bcmr that answers.
fn relay_in_order(request: RelayRequest, watch: Watch<'_>, no_source: &Cell<bool>) -> Result<Summary> {
    if !goes_first(request.when, request.purpose, &request.policy) {
        return relay_all(request, watch, no_source);
    }
    let look = RelayRequest {
        from: request.from.clone(),
        to: request.to.clone(),
        target: request.target,
        purpose: Purpose::DeleteFirst,
        when: DeleteWhen::After,
        dated: request.dated,
        here: request.here.clone(),
        onward: request.onward.clone(),
        policy: request.policy.clone(),
    };
    and_the_rest(
        watch,
        &request.policy.clone(),
        |watch| relay_all(look, watch, no_source),
        |policy| relay_all(RelayRequest { policy, ..request }, watch, no_source),
    )
}

/// The same, without anything that goes before.
fn relay_all(request: RelayRequest, watch: Watch<'_>, no_source: &Cell<bool>) -> Result<Summary> {
    let RelayRequest { from, to, target, purpose, when: _, dated, here, onward, policy } = request;
    let policy = for_purpose(policy, purpose);
    let policy = if dated.is_some() { snapshot::everything(policy) } else { policy };
    let from: Vec<Address> = from.into_iter().map(whole_home).collect();
    let mut target = target(to.path.clone());
    let kinds = Kinds::default();
    let run = RelayRun {
        from: &from,
        to: &to,
        purpose,
        dated,
        here: &here,
        onward: &onward,
        policy: &policy,
        watch,
        once_more: Arc::default(),
        no_source,
    };
    let mut snapshot = AskedSnapshot::of(dated);
    and_once_more(&run.once_more, || {
        with_retries(&onward, &as_repeated(&policy, purpose), watch, || {
            run.once(&mut target, &kinds, &mut snapshot).map_err(|e| {
                // Which of the two was lost is not known here; `with_retries` ends the other one.
                if e.code.is_of_connection() {
                    here.unshare();
                }
                snapshot.sorted(e)
            })
        })
    })
}

/// What is the same for every attempt.
struct RelayRun<'a> {
    from: &'a [Address],
    to: &'a Address,
    purpose: Purpose,
    dated: Option<Dated>,
    /// How the source is reached.
    here: &'a Way,
    /// How the destination is.
    onward: &'a Way,
    policy: &'a CopyPolicy,
    watch: Watch<'a>,
    /// A move is to be gone through once more.
    once_more: Arc<AtomicBool>,
    /// The source has no bcmr that answers.
    no_source: &'a Cell<bool>,
}

impl RelayRun<'_> {
    fn once(&self, target: &mut Target, kinds: &Kinds, snapshot: &mut AskedSnapshot) -> Result<Summary> {
        let (way, watch, policy) = (self.onward, self.watch, self.policy);
        let first = self.from.first();
        let first = first.ok_or_else(|| Error::ours(Code::Usage, Op::Copy, "", Reason::NoSource))?;
        let lists = Lists::of(policy)?;
        let how = || policy_out(policy, &lists, way.fast, false, way.compress, self.purpose);
        let required = guarantees(&how()).or(beside::needed(policy, self.dated));
        let (source, dest) = self.connect_both(first, required)?;
        self.guard_link(&dest, target)?;
        if way.retries > 0
            && !policy.dry_run
            && let Some(made) = snapshot.is_made(&dest, target.path(), watch)?
        {
            let made = end(source, Ok(made), watch);
            return end(dest, made, watch);
        }
        // What this attempt makes of DST must not decide what DST means in the next one.
        if way.retries > 0
            && self.from.len() == 1
            && let Target::Guess(path) = &target
            && is_absent(&dest, path, watch.cancel)?
        {
            *target = Target::Exactly(path.clone());
        }
        let kind = match target {
            Target::Guess(_) => message::Target::Guess,
            Target::Into(_) => message::Target::Into,
            Target::Exactly(_) => message::Target::Exactly,
        };
        let path = target.path().as_os_str().as_bytes();
        let operands = self.from.len() as u64;
        beside::tell(&dest, policy, self.dated)?;
        send(&dest, &Message::Put { policy: how(), target: kind, path, operands, items: watch.items })?;
        let paths = self.from.iter().map(|a| a.path.as_os_str().as_bytes()).collect();
        // [policy.first] What is deleted, and when, is nothing to a sender.
        let mut asked = how();
        asked.flags &= !flags::DELETE_FIRST;
        send(&source, &Message::Get { policy: asked, paths, names: None })?;
        let observer = ClientObserver {
            watch,
            prefix: prefix(self.to),
            own_name: own_name_of(self.purpose, self.to, &self.to.path),
            source_prefix: prefix(first),
            manifest: None,
            tells_hashes: policy.hashes,
            unwritten: AtomicU64::new(0),
            compares: self.purpose != Purpose::Copy,
            untold: self.purpose == Purpose::DeleteFirst,
            compared: Mutex::default(),
            once_more: self.once_more.clone(),
        };
        let paths = self.from.iter().map(|a| a.path.as_path());
        let asked = Asked::operands(paths, Filter::new(&policy.filter)?)?;
        let (Some(from), Some(to)) = (source.streams.first(), dest.streams.first()) else {
            return Err(Error::ours(Code::Lost, Op::TalkTo, &first.host, Reason::NoStream));
        };
        // The one that is behind slows down the one before: what comes is read once there is room for it.
        to.pulse().goes_by(&way.throttle);
        let relay = Relaying {
            source: first,
            from,
            to,
            observer: &observer,
            asked: Mutex::new((&asked, kinds, 0)),
            watch,
            outcome: Mutex::default(),
            gone: Mutex::default(),
            onward: Mutex::new(true),
            over: AtomicBool::new(false),
        };
        let result = relay.run().map(|counted| summary_of(&counted));
        let result = observer.finish_manifest(result);
        let result = end(source, result, watch);
        end(dest, result, watch)
    }

    /// Connects both, so that what holds of one connection holds of the other: what goes through is of the same protocol.
    fn connect_both(&self, first: &Address, required: Features) -> Result<(Peer, Peer)> {
        let beside = Features { caps: caps::DIRECT | caps::AEAD | caps::DEDUP, wide: 0 };
        let offer = |way: &Way| {
            let all = offered(way, self.policy.alter.known_by);
            Features { caps: all.caps & !beside.caps, wide: all.wide }
        };
        let needed = needed_of_sender(required);
        let of_source = |terms| {
            let connected = self.connect(first, self.here, terms);
            connected.inspect_err(|e| self.no_source.set(e.code == Code::NoPeer))
        };
        let source = of_source(Terms::new(offer(self.here), needed))?;
        let common = source.agreed.features.and(offer(self.onward));
        let dest = self.connect(self.to, self.onward, Terms::new(common, required))?;
        let common = dest.agreed.features;
        if source.agreed.features == common {
            return Ok((source, dest));
        }
        source.abort();
        let source = of_source(Terms::new(common, needed))?;
        if source.agreed.features == common {
            Ok((source, dest))
        } else {
            Err(Error::ours(Code::Unsupported, Op::AgreeWith, &first.host, Reason::NotAgreedOn))
        }
    }

    fn connect(&self, address: &Address, way: &Way, terms: Terms<'_>) -> Result<Peer> {
        self.watch.front.lend_terminal(true);
        let peer = transport::connect(address, way, LinkLoad::Heavy, terms, &[], self.watch.cancel)?;
        self.watch.front.lend_terminal(false);
        Ok(peer)
    }

    /// V12: a link at DST's own name may have been put there by an earlier answer of the source.
    fn guard_link(&self, dest: &Peer, target: &Target) -> Result<()> {
        let path = target.path().as_os_str().as_bytes();
        let names_a_place = path.is_empty() || path.ends_with(b"/") || path.ends_with(b"/.") || path == b".";
        let follows = self.policy.follow_destination == FollowDestination::Always;
        if follows || names_a_place || matches!(target, Target::Into(_)) {
            return Ok(());
        }
        let kind_of = |follow| {
            send(dest, &Message::Stat { path, follow })?;
            let frame = await_answer(dest, self.watch.cancel)?;
            Result::Ok(match frame.message()? {
                Message::Info(entry) => Some(entry.kind),
                _ => None,
            })
        };
        if kind_of(false)? != Some(message::Kind::Link) {
            return Ok(());
        }
        // The other side writes to what it leads to, as in a copy from its own users.
        let why = match kind_of(true)? {
            Some(message::Kind::Dir) => Reason::LinkMayBeTheirs,
            // A move takes the link's own place.
            _ if self.policy.leaving.goes() => return Ok(()),
            _ => Reason::LinkWouldBeFollowed,
        };
        Err(Error::ours(Code::Refused, Op::CopyInto, shown_path(self.to, target.path()), why))
    }
}

/// What may come, what kinds came in earlier attempts, and the first operand that may still come.
type Expected<'a> = (&'a Asked, &'a Kinds, usize);

/// One transfer on its way through.
struct Relaying<'a> {
    source: &'a Address,
    from: &'a Stream,
    to: &'a Stream,
    observer: &'a ClientObserver<'a>,
    asked: Mutex<Expected<'a>>,
    watch: Watch<'a>,
    /// What became of it, once that is known.
    outcome: Mutex<Option<Result<Counted>>>,
    /// What the destination has told of what went.
    gone: Mutex<(u64, u64)>,
    /// The destination still takes what comes.
    onward: Mutex<bool>,
    over: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whole after each step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Relaying<'_> {
    fn run(&self) -> Result<Counted> {
        let (from, to) = (self.from.pulse(), self.to.pulse());
        // Neither side is told that this one waits, as it would be given up while the other works.
        let _here = (from.works(), to.works());
        std::thread::scope(|scope| {
            let back = || self.pump(&self.to.inbox, &|frame| self.backward(frame));
            match std::thread::Builder::new().name("relay".into()).spawn_scoped(scope, back) {
                Ok(_back) => self.pump(&self.from.inbox, &|frame| self.forward(frame)),
                Err(e) => self.fail(Error::os(Op::StartAThreadToSend, "", e)),
            }
        });
        let outcome = lock(&self.outcome).take();
        outcome
            .unwrap_or_else(|| Err(Error::ours(Code::Lost, Op::TalkTo, &self.source.host, Reason::PeerLeft)))
    }

    /// Takes frames until `take` says that none is needed any more, or the copy is over.
    fn pump(&self, inbox: &Inbox, take: &dyn Fn(&FrameBuf) -> Result<bool>) {
        let (mut stopped, mut last) = (None, None);
        while !self.over.load(Ordering::Relaxed) {
            if self.watch.cancel.is_set() && stopped.is_none() {
                stopped = Some(Instant::now() + STOPPED);
                self.stop();
            }
            if lock(&self.outcome).is_some() && last.is_none() {
                last = Some(Instant::now() + LAST_WORDS);
            }
            if [stopped, last].iter().flatten().any(|until| Instant::now() > *until) {
                self.over.store(true, Ordering::Relaxed);
                return;
            }
            let went_on = match inbox.recv_timeout(LOOK) {
                Ok(Heard::Nothing) => Ok(true),
                Ok(Heard::Frame(frame)) => take(&frame),
                Ok(Heard::Ended) => Err(inbox.lost(Reason::PeerLeft)),
                Err(e) => Err(e),
            };
            match went_on {
                Ok(true) => {}
                Ok(false) => return,
                Err(e) => return self.fail(e),
            }
        }
    }

    /// Ends it for both threads, unless it has ended.
    fn fail(&self, e: Error) {
        lock(&self.outcome).get_or_insert(Err(e));
        self.over.store(true, Ordering::Relaxed);
        // A thread that waits for room returns.
        self.from.out.give_up();
        self.to.out.give_up();
    }

    /// Says to both that it is stopped; what is on its way is dropped by them.
    fn stop(&self) {
        for out in [&self.to.out, &self.from.out] {
            // One that is gone need not be told.
            let _told =
                transport::frames_of(&Message::Cancel).is_ok_and(|frames| out.send_first(frames).is_ok());
        }
    }

    /// What the source says.
    fn forward(&self, frame: &FrameBuf) -> Result<bool> {
        match frame.kind() {
            kind::OPERAND => self.expected(&frame.message()?)?,
            kind::TROUBLE => {
                if let Message::Trouble(trouble) = frame.message()? {
                    if let Ok((asked, ..)) = self.asked.lock().as_deref() {
                        asked.refused(Path::new(OsStr::from_bytes(trouble.path)));
                    }
                    self.observer.failed(&error_there(self.source, &trouble));
                }
            }
            kind::FOUND => {
                if let Message::Found { items, bytes, last } = frame.message()? {
                    let progress = self.watch.progress;
                    progress.items_found.store(items, Ordering::Relaxed);
                    progress.bytes_found.store(bytes, Ordering::Relaxed);
                    progress.scanned.store(last, Ordering::Relaxed);
                }
            }
            kind::ERROR => {
                if let Message::Error(trouble) = frame.message()? {
                    return Err(error_there(self.source, &trouble));
                }
            }
            // Its last word, after the summary.
            kind::DONE => return Ok(false),
            // The user is here, and answers what the destination asks.
            kind::ANSWER => return Err(refused(Reason::NotSendersMessage.about("Answer"))),
            // The stream lets nothing come that a sender does not say.
            _ => {}
        }
        let onward = lock(&self.onward);
        if *onward {
            pass_on(frame, &self.to.out)?;
        }
        Ok(true)
    }

    /// V1: the source sends what it was asked for, and nothing under another name.
    fn expected(&self, message: &Message<'_>) -> Result<()> {
        let Message::Operand { path, whole, entry, .. } = message else { return Ok(()) };
        let name = if *whole { None } else { NameBuf::new(entry.name) };
        let mut expected = lock(&self.asked);
        let (asked, kinds, next) = &mut *expected;
        let path = Path::new(OsStr::from_bytes(path));
        let index = asked.operand(*next, (path, name.as_ref()), entry);
        let index = index.ok_or_else(|| refused(Reason::OperandNotAsked))?;
        *next = index + 1;
        if kinds.hold(index, entry.kind) { Ok(()) } else { Err(refused(Reason::OperandOfOtherKind)) }
    }

    /// What the destination says: answers go back, the rest is for the user.
    fn backward(&self, frame: &FrameBuf) -> Result<bool> {
        match frame.kind() {
            kind::REPORT => {
                if let Message::Report(event) = frame.message()? {
                    self.observer.report(&event);
                }
                Ok(true)
            }
            kind::LANDED => {
                if let Message::Landed { items, bytes } = frame.message()? {
                    self.observer.landed(items, bytes);
                }
                pass_on(frame, &self.from.out).map(|()| true)
            }
            kind::TAKE_AWAY => {
                if let Message::TakeAway { dir: 0, .. } = frame.message()? {
                    self.observer.once_more();
                }
                pass_on(frame, &self.from.out).map(|()| true)
            }
            kind::GONE => {
                if let Message::Gone { deleted, updated } = frame.message()? {
                    *lock(&self.gone) = (deleted, updated);
                }
                pass_on(frame, &self.from.out)?;
                Ok(true)
            }
            kind::ASK => {
                if let Message::Ask { id, path } = frame.message()? {
                    let path = Path::new(OsStr::from_bytes(path));
                    let yes = self.from.pulse().asks(|| self.to.pulse().asks(|| self.observer.ask(path)));
                    let answer = transport::frames_of(&Message::Answer { id, yes })?;
                    self.to.out.send(Packet::Frames(answer)).map_err(Error::from)?;
                }
                Ok(true)
            }
            kind::ERROR => match frame.message()? {
                Message::Error(trouble) => Err(self.observer.peer_error(&trouble)),
                _ => Ok(true),
            },
            kind::SUMMARY => {
                if let Message::Summary { counts, codes, cancelled } = frame.message()? {
                    let gone = *lock(&self.gone);
                    self.ended(Counted { counts, codes, cancelled, gone })?;
                }
                pass_on(frame, &self.from.out)?;
                Ok(false)
            }
            _ => pass_on(frame, &self.from.out).map(|()| true),
        }
    }

    /// The destination has said its last word: nothing more goes there but the answer to that.
    fn ended(&self, counted: Counted) -> Result<()> {
        *lock(&self.onward) = false;
        lock(&self.outcome).get_or_insert(Ok(counted));
        self.to.out.send(Packet::Frames(transport::frames_of(&Message::Done)?)).map_err(Error::from)
    }
}

/// One frame as it came.
fn pass_on(from: &FrameBuf, to: &Outbox) -> Result<()> {
    let mut out = to.room(from.payload().len());
    let encoded = frame::encode(from.kind(), from.payload(), &mut out);
    encoded.map_err(|e| Error::ours(Code::Protocol, Op::Send, "", e.to_string()))?;
    to.send(Packet::Frames(out)).map_err(Error::from)
}
