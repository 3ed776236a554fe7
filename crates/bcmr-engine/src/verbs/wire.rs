//! What verbs across machines share: streams as the sender wants them, frames to the receiver,
//! events both ways.
//!
//! Must not know addresses, nor how a connection came to be.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Action, Change, Compared, Event, Front, Question, Summary, Watch};
use crate::pulse::{For, Pulse};
use crate::receiver::arriving::Load;
use crate::sender::out::{Counted, Fed, Feed, FilePart, Out, Told};
use crate::transport::conn::{FrameBuf, Heard, Packet};
use crate::transport::stream::{Inbox, Outbox, Stream};
use crate::trouble::{NoteBuf, TroubleBuf, error_of, note_of};
use crate::verbs::manifest::Manifest;
use crate::verbs::receive::{Crew, Reply, Takes, unload};
use bcmr_wire::limits::PATH_BYTES_MAX;
use bcmr_wire::message::{Event as WireEvent, Message, Trouble, kind};
use bcmr_wire::state::State;
use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often flags are looked at while nothing comes.
const LOOK: Duration = Duration::from_millis(100);
/// How long the other side's last message is waited for.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// More than anybody can count.
const COUNT_MAX: u64 = 1 << 60;
/// Bytes of frames put aside while a person is asked.
const ASIDE_BYTES_MAX: usize = 64 << 20;

// ---- sending ----

/// A stream as the sender wants it.
pub(crate) struct Outgoing<'s>(pub(crate) &'s Outbox);

impl Out for Outgoing<'_> {
    fn send(&self, frames: Vec<u8>) -> Result<()> {
        self.0.send(Packet::Frames(frames)).map_err(Error::from)
    }
    fn send_first(&self, frames: Vec<u8>) -> Result<()> {
        self.0.send_first(frames).map_err(Error::from)
    }
    fn give_up(&self) {
        self.0.give_up();
    }
    fn send_file(&self, part: FilePart) -> Result<()> {
        let FilePart { head, file, at, bytes, fault } = part;
        self.0.send(Packet::File { head, file, at, bytes, fault }).map_err(Error::from)
    }
    fn then(&self, call: Box<dyn FnOnce() + Send>) -> Result<()> {
        let frames = move || {
            call();
            Vec::new()
        };
        self.0.send(Packet::Then(Box::new(frames))).map_err(Error::from)
    }
    fn room(&self) -> Vec<u8> {
        self.0.room()
    }
}

/// The frames of several streams, one after the other.
pub(crate) struct Fed0<'s> {
    from: Receiver<Result<Option<FrameBuf>>>,
    over: &'s AtomicBool,
}

/// Reads all streams into one feed while `run` goes.
pub(crate) fn with_feed<T>(streams: &[Stream], run: impl FnOnce(&mut Fed0<'_>) -> T) -> T {
    let over = AtomicBool::new(false);
    for stream in streams.iter().skip(1) {
        stream.enter(State::SendsBeside);
    }
    std::thread::scope(|scope| {
        let (give, from) = sync_channel(8);
        let pulse = streams.first().map(Stream::pulse);
        for stream in streams {
            if let Some(pulse) = &pulse {
                stream.belongs_to(pulse);
            }
            let (give, over, not_started) = (give.clone(), &over, give.clone());
            let inbox = &stream.inbox;
            let started = std::thread::Builder::new().spawn_scoped(scope, move || pour(inbox, &give, over));
            if let Err(e) = started {
                // Nothing would be heard of this stream. There is room: nobody has been given anything yet.
                let told = not_started.try_send(Err(Error::os(Op::StartAThreadToSend, "", e)));
                drop(told);
            }
        }
        drop(give);
        let mut feed = Fed0 { from, over: &over };
        let out = run(&mut feed);
        over.store(true, Ordering::Relaxed);
        // Unblocks whoever waits for room.
        while feed.from.try_recv().is_ok() {}
        out
    })
}

fn pour(inbox: &Inbox, give: &SyncSender<Result<Option<FrameBuf>>>, over: &AtomicBool) {
    let pulse = inbox.pulse();
    let _works = pulse.works();
    while !over.load(Ordering::Relaxed) {
        let said = match inbox.recv_timeout(LOOK) {
            Ok(Heard::Nothing) => continue,
            Ok(Heard::Frame(frame)) => Ok(Some(frame)),
            Ok(Heard::Ended) => Ok(None),
            Err(e) => Err(e),
        };
        // What follows the last message of a transfer is a request, and not for us.
        let over = |frame: &FrameBuf| matches!(frame.kind(), kind::SUMMARY | kind::ERROR | kind::DONE);
        let last = !matches!(&said, Ok(Some(frame)) if !over(frame));
        if give.send(said).is_err() || last {
            return;
        }
    }
}

impl Feed for Fed0<'_> {
    fn next(&mut self, wait: Duration, take: &mut dyn FnMut(u8, &[u8])) -> Result<Fed> {
        match self.from.recv_timeout(wait) {
            Ok(Ok(Some(frame))) => {
                take(frame.kind(), frame.payload());
                Ok(Fed::Frame)
            }
            Ok(Ok(None)) => Ok(Fed::Ended),
            Ok(Err(e)) => Err(e),
            Err(RecvTimeoutError::Timeout) => Ok(Fed::Nothing),
            Err(RecvTimeoutError::Disconnected) => {
                self.over.store(true, Ordering::Relaxed);
                Ok(Fed::Ended)
            }
        }
    }
}

/// The person's side of a client that sends.
pub(crate) struct Putting<'a> {
    pub(crate) watch: Watch<'a>,
    /// What goes before a path of the other side when it is shown.
    pub(crate) prefix: String,
    /// The target as it was typed.
    pub(crate) target: PathBuf,
    /// Where hashes go.
    pub(crate) manifest: Option<Manifest>,
    /// Lines of it that could not be said.
    pub(crate) unsaid: AtomicU64,
    /// Differences were asked for; where they were not, nobody is told of any.
    pub(crate) compares: bool,
    /// How the other side compared.
    pub(crate) compared: Mutex<Compared>,
}

impl Putting<'_> {
    /// Ends the manifest: it gets its name when everything that it speaks of landed.
    pub(crate) fn proved(self, result: Result<Summary>) -> Result<Summary> {
        let compared = self.compared.into_inner().unwrap_or_else(PoisonError::into_inner);
        let result = result.map(|summary| Summary { compared, ..summary });
        let Some(manifest) = self.manifest else { return result };
        let mut summary = match result {
            Ok(summary) => summary,
            Err(e) => {
                // What went wrong first is what is told.
                let _taken_away = manifest.end(false).is_ok();
                return Err(e);
            }
        };
        let unsaid = self.unsaid.into_inner();
        let note = |summary: &mut Summary, code| {
            if !summary.codes.contains(&code) {
                summary.codes.push(code);
            }
        };
        // What was lost of metadata is there all the same.
        let there = summary.codes.iter().all(|code| *code == Code::MetadataLost);
        let complete = there && !summary.cancelled;
        if unsaid > 0 {
            summary.failed += unsaid;
            note(&mut summary, Code::Unsupported);
        }
        let path = manifest.path().to_owned();
        match manifest.end(complete) {
            Err(e) => {
                summary.failed += 1;
                note(&mut summary, e.code);
                self.watch.front.event(Event::Failed(e));
            }
            Ok(()) if complete => {}
            Ok(()) => {
                let why = Reason::OnlyCompleteCopy;
                self.watch.front.event(Event::Warning(Error::ours(
                    Code::Refused,
                    Op::WriteManifest,
                    path,
                    why,
                )));
            }
        }
        Ok(summary)
    }

    fn there(&self, path: &[u8]) -> PathBuf {
        let mut text = std::ffi::OsString::from(&self.prefix);
        text.push(OsStr::from_bytes(path));
        text.into()
    }

    fn trouble(&self, trouble: &Trouble<'_>) -> Error {
        let e = error_of(trouble);
        Error { path: self.there(trouble.path), ..e }
    }
}

fn copy_of(e: &Error) -> Error {
    Error {
        code: e.code,
        op: e.op,
        path: e.path.clone(),
        other: e.other.clone(),
        note: e.note.clone(),
        source: e.source.as_ref().map(|s| match s.raw_os_error() {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::other(s.to_string()),
        }),
    }
}

impl Told for Putting<'_> {
    fn failed(&self, error: &Error) {
        self.watch.front.event(Event::Failed(copy_of(error)));
    }
    fn excluded(&self, path: &dyn Fn() -> PathBuf) {
        if self.watch.items {
            let (src, dst) = (path(), PathBuf::new());
            self.watch.front.event(Event::Item { action: Action::Excluded, src, dst, bytes: 0 });
        }
    }
    fn found(&self, _: u64, _: u64, _: bool) {
        // Whoever draws has measured the sources already.
    }
    fn theirs(&self, trouble: &Trouble<'_>) -> Error {
        self.trouble(trouble)
    }
    fn landed(&self, items: u64, bytes: u64) {
        self.watch.progress.items_done.fetch_add(items, Ordering::Relaxed);
        self.watch.progress.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }
    fn report(&self, event: &WireEvent<'_>) {
        self.watch.front.event(match event {
            WireEvent::Item { action, src, dst, bytes } => Event::Item {
                action: ACTIONS.get(usize::from(*action)).copied().unwrap_or(Action::Copied),
                src: PathBuf::from(OsStr::from_bytes(src)),
                dst: self.there(dst),
                bytes: *bytes,
            },
            WireEvent::Failed(trouble) => Event::Failed(self.trouble(trouble)),
            WireEvent::Warning(trouble) => Event::Warning(self.trouble(trouble)),
            // [event.nameless]
            WireEvent::Hashed { dst: b"", .. } => {
                self.unsaid.fetch_add(1, Ordering::Relaxed);
                return;
            }
            WireEvent::Hashed { dst, hash } => {
                if let Some(manifest) = &self.manifest
                    && let Err(e) = manifest.add_told(Path::new(OsStr::from_bytes(dst)), hash)
                {
                    self.unsaid.fetch_add(1, Ordering::Relaxed);
                    self.failed(&Error { path: self.there(dst), ..e });
                }
                Event::Hashed { dst: self.there(dst), hash: *hash }
            }
            WireEvent::Base(path) => {
                if let Some(manifest) = &self.manifest {
                    manifest.below(PathBuf::from(OsStr::from_bytes(path)));
                }
                return;
            }
            WireEvent::Compared { by_time, by_content } => {
                let (by_time, by_content) = ((*by_time).min(COUNT_MAX), (*by_content).min(COUNT_MAX));
                *self.compared.lock().unwrap_or_else(PoisonError::into_inner) =
                    Compared { by_time, by_content };
                return;
            }
            WireEvent::NewTarget => Event::NewTarget,
            WireEvent::Difference { .. } if !self.compares => return,
            WireEvent::Difference { change, path, directory, files, bytes, why } => Event::Difference {
                change: CHANGES.get(usize::from(*change)).copied().unwrap_or(Change::Differ),
                path: match path {
                    [] => self.there(self.target.as_os_str().as_bytes()),
                    path => PathBuf::from(OsStr::from_bytes(path)),
                },
                directory: *directory,
                files: *files,
                bytes: *bytes,
                why: Reason::of_number(*why),
            },
            WireEvent::Resumed { dst, bytes, restarted: 0, repaired } => {
                // They were counted as done when the other side told of them.
                self.watch.progress.bytes_there.fetch_add(*bytes, Ordering::Relaxed);
                Event::Resumed { dst: self.there(dst), bytes: *bytes, restarted: None, repaired: *repaired }
            }
            WireEvent::Resumed { dst, restarted, .. } => {
                let dst = self.there(dst);
                Event::Note(Reason::StartsOver.about(dst.as_path()).about(Reason::of_number(*restarted)))
            }
            WireEvent::Note(note) => match note_of(note) {
                Some(note) => Event::Note(note),
                None => return,
            },
        });
    }
    fn ask(&self, path: &Path) -> bool {
        self.watch.front.ask(Question::Replace(self.there(path.as_os_str().as_bytes())))
    }
}

const ACTIONS: [Action; 9] = [
    Action::Copied,
    Action::MadeDir,
    Action::MadeLink,
    Action::HardLinked,
    Action::MadeSpecial,
    Action::Renamed,
    Action::Removed,
    Action::Kept,
    Action::Excluded,
];

const CHANGES: [Change; bcmr_wire::policy::CHANGES as usize] = [Change::Add, Change::Extra, Change::Differ];

/// A server that sends tells nobody but its client, and that is done by the sender itself.
pub(crate) struct Silent;

impl Told for Silent {
    fn failed(&self, _: &Error) {}
    fn excluded(&self, _: &dyn Fn() -> PathBuf) {}
    fn found(&self, _: u64, _: u64, _: bool) {}
    fn landed(&self, _: u64, _: u64) {}
    fn report(&self, _: &WireEvent<'_>) {}
    fn ask(&self, _: &Path) -> bool {
        false
    }
}

/// What the other side counted.
pub(crate) fn summary_of(counted: &Counted) -> Summary {
    // Their word, and sums are made of it: no count of real things comes near to this.
    let [files, dirs, others, bytes, kept, failed, differences] = counted.counts.map(|n| n.min(COUNT_MAX));
    let mut codes: Vec<Code> = Vec::new();
    for number in &counted.codes {
        let code = Code::of_number(u16::try_from(*number).unwrap_or(0));
        if !codes.contains(&code) {
            codes.push(code);
        }
    }
    let (cancelled, compared) = (counted.cancelled, Compared::default());
    Summary { files, dirs, others, bytes, kept, failed, differences, compared, codes, cancelled }
}

// ---- receiving ----

/// Answers on stream 0.
pub(crate) fn reply_on(stream: &Stream) -> Reply {
    let out = stream.out.clone();
    Reply {
        pulse: stream.pulse(),
        out: Box::new(move |message| {
            let mut frame = out.room();
            message.encode(&mut frame).map_err(|e| io::Error::other(e.to_string()))?;
            out.send(Packet::Frames(frame)).map_err(|gone| io::Error::other(Error::from(gone)))
        }),
    }
}

/// A server that receives tells its client everything.
pub(crate) struct Reporting<'a> {
    pub(crate) reply: &'a Reply,
    pub(crate) asking: &'a Asking,
    /// The client has Compared.
    pub(crate) newer: bool,
}

/// Questions that the client's user answers.
#[derive(Default)]
pub(crate) struct Asking {
    next: AtomicU64,
    answers: Mutex<HashMap<u64, bool>>,
    /// Nobody answers any more.
    over: AtomicBool,
    change: Condvar,
}

impl Asking {
    fn answer(&self, id: u64, yes: bool) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).insert(id, yes);
        self.change.notify_all();
    }

    fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.change.notify_all();
    }

    fn ask(&self, reply: &Reply, path: &Path) -> bool {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        if reply.send(&Message::Ask { id, path: path.as_os_str().as_bytes() }).is_err() {
            return false;
        }
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(yes) = answers.remove(&id) {
                return yes;
            }
            if self.over.load(Ordering::Relaxed) {
                return false;
            }
            let waits = reply.pulse.waits_for(For::Answer);
            let waited = self.change.wait_timeout(answers, LOOK);
            drop(waits);
            answers = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Front for Reporting<'_> {
    fn event(&self, event: Event) {
        // What cannot be said any more is no news to a client that is gone.
        let _told = match &event {
            Event::Item { action, src, dst, bytes } => {
                let action = ACTIONS.iter().position(|a| a == action).unwrap_or(0) as u8;
                let (src, dst) = (src.as_os_str().as_bytes(), dst.as_os_str().as_bytes());
                self.report(WireEvent::Item { action, src, dst, bytes: *bytes })
            }
            Event::Failed(e) => self.report(WireEvent::Failed(TroubleBuf::of(e).trouble())),
            Event::Warning(e) => self.report(WireEvent::Warning(TroubleBuf::of(e).trouble())),
            Event::Hashed { dst, hash } => {
                let path = dst.as_os_str().as_bytes();
                let fits = path.len() <= PATH_BYTES_MAX;
                if !fits {
                    let note = Reason::PathTooLongForHashes;
                    let e = Error::ours(Code::NameTooLong, Op::WriteManifest, dst, note);
                    self.report(WireEvent::Failed(TroubleBuf::of(&e).trouble()));
                }
                // [event.nameless]
                self.report(WireEvent::Hashed { dst: if fits { path } else { b"" }, hash: *hash })
            }
            Event::Resumed { dst, bytes, restarted, repaired } => self.report(WireEvent::Resumed {
                dst: dst.as_os_str().as_bytes(),
                bytes: *bytes,
                restarted: restarted.map_or(0, Reason::number),
                repaired: *repaired,
            }),
            Event::Note(note) => self.report(WireEvent::Note(NoteBuf::of(note).note())),
            Event::NewTarget => !self.newer || self.report(WireEvent::NewTarget),
            Event::Difference { change, path, directory, files, bytes, why } => {
                let change = CHANGES.iter().position(|c| c == change).unwrap_or(0) as u8;
                let (path, why) = (path.as_os_str().as_bytes(), why.number());
                let (directory, files, bytes) = (*directory, *files, *bytes);
                self.report(WireEvent::Difference { change, path, directory, files, bytes, why })
            }
            // What lands here comes off the wire and goes by plain calls: there is nothing to tell.
            Event::Unfinished(_) | Event::Engine(_) => true,
        };
    }
    fn ask(&self, question: Question) -> bool {
        match question {
            Question::Replace(path) | Question::Remove(path) | Question::Descend(path) => {
                self.asking.ask(self.reply, &path)
            }
        }
    }
}

impl Reporting<'_> {
    fn report(&self, event: WireEvent<'_>) -> bool {
        self.reply.send(&Message::Report(event)).is_ok()
    }
}

/// A frame's payload, for a piece that stays in it.
struct Payload(FrameBuf);

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self.0.payload()
    }
}

/// Frames of stream 0, in their order: straight from the stream, or through a thread that hears answers while others
/// wait for them.
enum Source<'s> {
    Inbox(&'s Inbox),
    Aside(&'s Aside, &'s Pulse),
}

/// Frames put aside.
#[derive(Default)]
struct Aside {
    frames: Mutex<(VecDeque<Result<Option<FrameBuf>>>, usize)>,
    change: Condvar,
}

impl Aside {
    fn put(&self, frame: Result<Option<FrameBuf>>) -> bool {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        frames.1 += frame.as_ref().ok().and_then(|f| f.as_ref()).map_or(0, |f| f.payload().len() + 64);
        let within = frames.1 <= ASIDE_BYTES_MAX;
        let frame = if within {
            frame
        } else {
            Err(Error::ours(Code::Protocol, Op::Receive, "", Reason::TooMuchDuringQuestion))
        };
        frames.0.push_back(frame);
        self.change.notify_all();
        within
    }

    fn take(&self) -> Result<Heard> {
        let frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.change.wait_timeout_while(frames, LOOK, |f| f.0.is_empty());
        let mut frames = waited.unwrap_or_else(PoisonError::into_inner).0;
        match frames.0.pop_front() {
            None => Ok(Heard::Nothing),
            Some(Ok(Some(frame))) => {
                frames.1 = frames.1.saturating_sub(frame.payload().len() + 64);
                Ok(Heard::Frame(frame))
            }
            Some(Ok(None)) => Ok(Heard::Ended),
            Some(Err(e)) => Err(e),
        }
    }
}

impl Source<'_> {
    fn next(&self) -> Result<Heard> {
        match self {
            Source::Inbox(inbox) => inbox.recv_timeout(LOOK),
            Source::Aside(aside, pulse) => {
                let _waits = pulse.waits_for(For::Frame);
                aside.take()
            }
        }
    }
}

/// At which end of the connection things arrive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    /// At whoever asked, once: the streams are of no use afterwards.
    Client,
    /// At the server, which tells how far things have come, and is asked again.
    Server,
}

/// Takes everything off the streams to `receive` until the sender has sent all, somebody cancels, or it breaks. Then
/// sends the summary and waits for the sender's last word.
pub(crate) fn receive_all(
    receive: impl Takes,
    streams: &[Stream],
    reply: &Reply,
    asking: Option<&Asking>,
    at: At,
) -> (Summary, Option<Error>) {
    let over = AtomicBool::new(false);
    let broken: Mutex<Option<Error>> = Mutex::new(None);
    let watch = receive.watch();
    let fail = |e: Error| {
        // Once this side has stopped, what was under way fits nowhere any more: that is no breach.
        if !(watch.cancel.is_set() && e.code == Code::Protocol) {
            broken.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
        }
        over.store(true, Ordering::Relaxed);
        receive.lose();
    };
    let aside = Aside::default();
    let pulse = &*reply.pulse;
    for stream in streams {
        stream.belongs_to(&reply.pulse);
    }
    for stream in streams.iter().skip(1) {
        stream.enter(State::ReceivesBeside);
    }
    std::thread::scope(|scope| {
        let (receive, over, fail, aside) = (&receive, &over, &fail, &aside);
        let lander = std::thread::Builder::new().spawn_scoped(scope, move || {
            let _all = Panicking(fail);
            let _works = pulse.works();
            if let Err(e) = receive.land_large() {
                fail(e);
            }
        });
        if let Err(e) = lander {
            fail(Error::os(Op::StartAThreadToReceive, "", e));
        }
        for (index, stream) in streams.iter().enumerate().skip(1) {
            let started = std::thread::Builder::new().spawn_scoped(scope, move || {
                let _all = Panicking(fail);
                let _works = pulse.works();
                let mut crew = receive.crew();
                while !over.load(Ordering::Relaxed) {
                    match stream.inbox.recv_timeout(LOOK) {
                        Ok(Heard::Nothing) => {}
                        Ok(Heard::Frame(frame)) => {
                            if let Err(e) = one(receive, &mut crew, index, frame) {
                                return fail(e);
                            }
                        }
                        Ok(Heard::Ended) => return,
                        Err(e) => return fail(e),
                    }
                }
            });
            if let Err(e) = started {
                fail(Error::os(Op::StartAThreadToReceive, "", e));
            }
        }
        let first = streams.first().map(|s| &s.inbox);
        let source = match (first, asking) {
            (Some(inbox), Some(asking)) => {
                let started = std::thread::Builder::new().spawn_scoped(scope, move || {
                    let _works = pulse.works();
                    hear(inbox, aside, asking, over);
                });
                if let Err(e) = started {
                    fail(Error::os(Op::StartAThreadToReceive, "", e));
                }
                Some(Source::Aside(aside, pulse))
            }
            (inbox, _) => inbox.map(Source::Inbox),
        };
        let mut crew = receive.crew();
        let mut ticker = Ticker::new(at == At::Server);
        let cancelled = || watch.cancel.is_set();
        while let Some(source) = &source
            && !over.load(Ordering::Relaxed)
            && !receive.is_complete()
            && !cancelled()
        {
            match source.next() {
                Ok(Heard::Nothing) => {}
                Ok(Heard::Frame(frame)) => {
                    if let Err(e) = one(receive, &mut crew, 0, frame) {
                        fail(e);
                    }
                }
                Ok(Heard::Ended) => {
                    let note = Reason::PeerLeft;
                    fail(Error::ours(Code::Lost, Op::ReceiveFrom, "the other side", note));
                }
                Err(e) => fail(e),
            }
            ticker.tick(watch, reply, false);
        }
        if cancelled() {
            // Whoever hears it stops sending; who is gone needs no word.
            let _told = reply.send(&Message::Cancel).is_ok();
        }
        receive.leave(&mut crew);
        over.store(true, Ordering::Relaxed);
        if let Some(asking) = asking {
            asking.end();
        }
        ticker.tick(watch, reply, true);
    });
    let mut broken = broken.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (summary, marks) = receive.end(broken.is_some());
    let theirs = streams.first().is_some_and(|first| first.state() == State::PeerEnded);
    let last = match &broken {
        // The sender has ended it: this answers that.
        _ if theirs => streams.iter().try_for_each(|stream| (reply_on(stream).out)(&Message::Done)),
        None => {
            let s = &summary;
            let counts = [s.files, s.dirs, s.others, s.bytes, s.kept, s.failed, s.differences];
            let codes = s.codes.iter().map(|c| u64::from(*c as u8)).collect();
            reply.send(&Message::Summary { counts, codes, cancelled: s.cancelled })
        }
        Some(e) => reply.send(&Message::Error(TroubleBuf::of(e).trouble())),
    };
    if at == At::Client
        && let Some(first) = streams.first()
    {
        // The server goes with its last word: a round trip less than telling it afterwards. Only of the first: the end
        // of another could be there before what was said here, and would look like a loss.
        first.close();
    }
    // What the sender has not heard of it takes for unfinished, and will ask for again by the same name.
    if last.is_ok() && !theirs {
        let cleared = match hear_out(streams) {
            Ok(done) if done.first() == Some(&true) => marks.clear(),
            // What a client was sent is there and counted, whatever came behind it.
            Err(e) if at == At::Server => Err(e),
            _ => Ok(()),
        };
        if let Err(e) = cleared {
            broken.get_or_insert(e);
        }
    }
    (summary, broken)
}

/// Ends the transfer for all threads if the one it stands in panics: nobody waits for ever for what that one was to do.
struct Panicking<'s, F: Fn(Error)>(&'s F);

impl<F: Fn(Error)> Drop for Panicking<'_, F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)(Error::ours(Code::Io, Op::Receive, "", Reason::ThreadStopped));
        }
    }
}

/// After a transfer that was refused before it began: drops what still comes until the other side has answered on every
/// stream, so that the connection can be used again.
///
/// # Errors
/// It has not, within the time, or something else came.
pub(crate) fn end_refused(streams: &[Stream]) -> Result<()> {
    let ended = streams.first().map(Stream::state);
    let beside = if ended == Some(State::SendEnded) { State::SendsBeside } else { State::ReceivesBeside };
    streams.iter().skip(1).for_each(|stream| stream.enter(beside));
    let done = hear_out(streams)?;
    if done.iter().all(|done| *done) { Ok(()) } else { Err(unanswered()) }
}

/// The other side has not said that it has heard how a transfer ended.
pub(crate) fn unanswered() -> Error {
    Error::ours(Code::Lost, Op::TalkTo, "", Reason::LastMessageUnanswered)
}

/// Drops what still comes until the other side has said its last message, or for so long. Whether that came, stream by
/// stream.
///
/// # Errors
/// What came has no place there.
fn hear_out(streams: &[Stream]) -> Result<Vec<bool>> {
    let until = Instant::now() + LAST_WORDS;
    let mut heard = Vec::new();
    for stream in streams {
        let done = loop {
            let left = until.saturating_duration_since(Instant::now());
            // What is there already comes out even when no time is left: whoever goes on and on is not heard out.
            if left.is_zero() {
                break false;
            }
            match stream.inbox.recv_timeout(left) {
                Ok(Heard::Frame(frame)) if frame.kind() == kind::DONE => break true,
                Ok(Heard::Frame(_)) => {}
                Err(e) if e.code == Code::Protocol => return Err(e),
                _ => break false,
            }
        };
        heard.push(done);
    }
    Ok(heard)
}

/// No answer comes any more, however that came about: nobody waits for one.
struct Unanswered<'a>(&'a Asking);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Hears answers while whoever asked waits, and puts everything else aside.
fn hear(inbox: &Inbox, aside: &Aside, asking: &Asking, over: &AtomicBool) {
    let _end = Unanswered(asking);
    while !over.load(Ordering::Relaxed) {
        let heard = match inbox.recv_timeout(LOOK) {
            Ok(Heard::Nothing) => continue,
            Ok(Heard::Frame(frame)) => {
                let answer = match frame.message() {
                    Ok(Message::Answer { id, yes }) => Some((id, yes)),
                    _ => None,
                };
                if let Some((id, yes)) = answer {
                    asking.answer(id, yes);
                    continue;
                }
                // What follows belongs to whoever receives the next request.
                let last = matches!(frame.kind(), kind::ALL_SENT | kind::CANCEL);
                if !aside.put(Ok(Some(frame))) || last {
                    return;
                }
                continue;
            }
            Ok(Heard::Ended) => Ok(None),
            Err(e) => Err(e),
        };
        aside.put(heard);
        return;
    }
}

fn one(receive: &impl Takes, crew: &mut Crew, stream: usize, frame: FrameBuf) -> Result<()> {
    let head = match frame.message()? {
        Message::Data(piece) => unload(&mut crew.unpacker, &piece, frame.payload())?,
        Message::Error(trouble) => {
            let e = error_of(&trouble);
            return Err(Error { path: receive.what().shown(&e.path), ..e });
        }
        other => return receive.handle(crew, other),
    };
    let (head, load) = head;
    let load = match load {
        Ok(load) => load,
        Err(start) => Load::Bytes { buffer: Box::new(Payload(frame)), start },
    };
    receive.piece(stream, &head, load)
}

/// Tells the sender how far things have come.
struct Ticker {
    wanted: bool,
    last: Instant,
    items: u64,
    bytes: u64,
}

impl Ticker {
    fn new(wanted: bool) -> Ticker {
        Ticker { wanted, last: Instant::now(), items: 0, bytes: 0 }
    }

    fn tick(&mut self, watch: Watch<'_>, reply: &Reply, now: bool) {
        if !self.wanted || (!now && self.last.elapsed() < LOOK) {
            return;
        }
        self.last = Instant::now();
        let items = watch.progress.items_done.load(Ordering::Relaxed);
        let bytes = watch.progress.bytes_done.load(Ordering::Relaxed);
        if (items, bytes) != (self.items, self.bytes) {
            let (di, db) = (items.saturating_sub(self.items), bytes.saturating_sub(self.bytes));
            (self.items, self.bytes) = (items, bytes);
            // A client that is gone is noticed by whoever reads.
            let _told = reply.send(&Message::Landed { items: di, bytes: db }).is_ok();
        }
    }
}

/// A number for this machine that others do not have: a hash of its identity (machine-id(5)), else of its name.
pub(crate) fn machine_number() -> u64 {
    let of = |dir: &str, name: &[u8]| -> Option<Vec<u8>> {
        let dir = fastcopy::dir::Dir::open(Path::new(dir)).ok()?;
        let file = dir.open_file(fastcopy::dir::NameBuf::new(name)?.as_name()).ok()?;
        let mut room = [0; 256];
        let n = fastcopy::read_write::read_full(&file, 0, &mut room).ok()?;
        room.get(..n).filter(|b| !b.is_empty()).map(<[u8]>::to_vec)
    };
    let identity = of("/etc", b"machine-id")
        .or_else(|| of("/proc/sys/kernel/random", b"boot_id"))
        .or_else(|| of("/proc/sys/kernel", b"hostname"))
        .unwrap_or_default();
    let hash = blake3::derive_key("bcmr 1 which machine", &identity);
    u64::from_le_bytes(hash.first_chunk::<8>().copied().unwrap_or_default())
}
