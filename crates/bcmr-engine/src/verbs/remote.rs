//! The verbs that another machine takes part in.
//!
//! Must not know how addresses are typed or what is told to a person.

use crate::disk::sys::Sys;
use crate::error::{Code, Error, Note, Op, Reason, Result};
use crate::event::{Cancel, Event, Summary, Watch};
use crate::policy::{Collide, Compare, CopyPolicy, NameList, Preserve, Target};
use crate::remote::{Address, Compress, GetRequest, Plane, Purpose, PutRequest, Way};
use crate::sender::filter::Filter;
use crate::sender::offer::What;
use crate::sender::operand::typed;
use crate::sender::out::{Counted, Out};
use crate::sender::push::{How, Links, Push, push};
use crate::tally::Tally;
use crate::transport::conn::{FrameBuf, Heard, Packet, Patience};
use crate::transport::direct::{DIAL_PATIENCE, Keys, NotDirect, dial, where_to};
use crate::transport::seal::{KeyLimits, Secret, Transcript};
use crate::transport::ssh::Load;
use crate::transport::stream::{Outbox, Stream};
use crate::transport::{self, Peer, Token};
use crate::trouble::error_of;
use crate::verbs::asked::{Asked, Kinds};
use crate::verbs::copy::resuming;
use crate::verbs::look::{Ahead, ahead};
use crate::verbs::manifest::Manifest;
use crate::verbs::operands::{self, DestLink, Reach, Resolved, Where};
use crate::verbs::policy_wire::{Lists, policy_out};
use crate::verbs::receive::{self, Receive};
use crate::verbs::survey_wire::{Surveying, survey_of, visitor};
use crate::verbs::wire::{
    At, Outgoing, Putting, machine_number, receive_all, reply_on, summary_of, with_feed,
};
use bcmr_wire::handshake::{Features, caps, guarantees, wide};
use bcmr_wire::limits;
use bcmr_wire::message::{self, Message};
use bcmr_wire::state::State;
use fastcopy::dir::{ListBuffer, NameBuf};
use fastcopy::meta::{Info, Time};
use std::ffi::OsStr;
use std::io::{BufRead, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub use crate::verbs::serve::serve;

pub use fastcopy::meta::Kind;

/// One name on some machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The type.
    pub kind: Kind,
    /// One name, as bytes.
    pub name: Vec<u8>,
    /// Permission bits with setuid, setgid and sticky (07777).
    pub mode: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Last written.
    pub mtime: Time,
    /// What a symbolic link leads to; empty for everything else.
    pub link: Vec<u8>,
}

/// What is at a path and below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Everything that is no directory.
    pub files: u64,
    /// Directories, itself included when it is one.
    pub dirs: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Bytes allocated, directories included.
    pub allocated: u64,
}

/// One thing that was looked at on the way to another machine.
#[derive(Debug)]
pub struct Finding {
    /// What a copy needs of it is there.
    pub ok: bool,
    /// What was looked at, in a word or two.
    pub what: &'static str,
    /// What was found.
    pub found: OnTheWay,
}

/// What was found on the way to another machine; may hold text of that machine.
#[derive(Debug)]
pub enum OnTheWay {
    /// There is a way to this host.
    Reaches(String),
    /// What answers there calls itself so.
    Agent(String),
    /// What both sides can.
    Can(Vec<&'static str>),
    /// It did not work.
    Failed(Error),
}

/// Everything this program can do over a wire.
pub(crate) const OURS: Features = Features {
    caps: caps::LZ4 | caps::ZSTD | caps::FAST | caps::SYNC | caps::DIRECT | caps::AEAD,
    wide: wide::TREES
        | wide::JOIN
        | wide::ATTRIBUTES
        | wide::RESUME
        | wide::VERIFY
        | wide::HOLES
        | wide::SURVEY
        | wide::HASHED
        | wide::LISTS
        | wide::COMPARED,
};

/// From this much to move on (bytes) a better cipher is worth asking ssh which ones it has.
const HEAVY_BYTES: u64 = 32 << 20;
/// From this much in large files on (bytes) a second connection is worth its 0.2 s of connecting. Small ones are bound by
/// their number: 10,000 x 64 KiB took 1.3 times as long over two on the two cores this was measured on.
const SECOND_STREAM_BYTES: u64 = 256 << 20;
/// Names that are looked at before there is a connection, to learn how much there is, and how long a slow disk may take
/// for it.
const AHEAD_NAMES: usize = 2000;
const AHEAD_PATIENCE: Duration = Duration::from_millis(100);
/// The pause before a lost connection is made again, and the longest of those that follow.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(30);
/// Bytes of a list of names that go in one message.
const NAMES_BYTES: usize = 8 << 20;
/// How often a cancel is looked for while an answer is waited for.
const LOOK: Duration = Duration::from_millis(100);

/// Copies to another machine.
///
/// # Errors
/// [`Code::NoPeer`] when no bcmr answers there; then nothing was changed. Else as `copy`, [`Code::Protocol`] and
/// [`Code::Lost`].
pub fn put(request: PutRequest, watch: Watch<'_>) -> Result<Summary> {
    let PutRequest { sources, names, to, target, purpose, manifest, way, policy } = request;
    let policy = for_purpose(policy, purpose);
    let mut target = target(to.path.clone());
    let mut names = match names {
        Some(list) if way.retries > 0 => Names::kept(list),
        Some(list) => Names::Once(list),
        None => Names::None,
    };
    let done = again(&way, &policy, watch, || {
        put_once(&sources, &mut names, &to, &mut target, purpose, manifest.as_deref(), &way, &policy, watch)
    });
    done.map(|summary| names.counted_in(summary))
}

/// A comparison is a copy that is not done; contents are compared by hashes.
fn for_purpose(policy: CopyPolicy, purpose: Purpose) -> CopyPolicy {
    match purpose {
        // A list of hashes is of what landed.
        Purpose::Copy if policy.dry_run => {
            // No attribute decides what is copied, and reading them needs files opened that need not be.
            let preserve = Preserve { xattr: false, acl: false, ..policy.preserve };
            CopyPolicy { hashes: false, preserve, ..policy }
        }
        Purpose::Copy => policy,
        Purpose::Check { compare, .. } => {
            CopyPolicy { dry_run: true, hashes: compare == Compare::Hash, ..policy }
        }
    }
}

/// Names of a list.
enum Names {
    None,
    Once(NameList),
    /// Needed more than once, or in one message. Not read before there is a connection: where nobody answers, somebody
    /// else will want to read them.
    Kept {
        unread: Option<NameList>,
        names: Vec<Vec<u8>>,
        /// Those that no file has, which were told.
        refused: u64,
    },
}

impl Names {
    fn kept(list: NameList) -> Names {
        Names::Kept { unread: Some(list), names: Vec::new(), refused: 0 }
    }

    /// What is kept, read now if it was not before.
    fn read(&mut self, watch: Watch<'_>) -> Result<Option<&[Vec<u8>]>> {
        let Names::Kept { unread, names, refused } = self else { return Ok(None) };
        if let Some(list) = unread.take() {
            *names = read_names(list)?;
            // One that cannot be said does not keep the others back.
            names.retain(|name| {
                let fits = name.len() <= limits::PATH_BYTES_MAX && !name.contains(&0);
                if !fits {
                    let note = Reason::NoSuchName;
                    let path = Path::new(OsStr::from_bytes(name));
                    watch.front.event(Event::Failed(Error::ours(Code::Refused, Op::Copy, path, note)));
                    *refused += 1;
                }
                fits
            });
        }
        Ok(Some(names))
    }

    /// What was done, with what was not tried.
    fn counted_in(&self, summary: Summary) -> Summary {
        let Names::Kept { refused: refused @ 1.., .. } = self else { return summary };
        let mut summary = summary;
        summary.failed += refused;
        if !summary.codes.contains(&Code::Refused) {
            summary.codes.push(Code::Refused);
        }
        summary
    }
}

/// Does it again while the connection gets lost, as often as was asked for, each time after a longer pause.
fn again(
    way: &Way,
    policy: &CopyPolicy,
    watch: Watch<'_>,
    mut once: impl FnMut() -> Result<Summary>,
) -> Result<Summary> {
    let mut pause = FIRST_PAUSE;
    // What was asked or shown once would be asked and shown again.
    let once_only = policy.collide == Collide::Ask || policy.dry_run;
    let mut left = if once_only { 0 } else { way.retries };
    loop {
        let lost = match once() {
            Err(e) if is_worth_another(&e) && left > 0 && !watch.cancel.is_set() => e,
            other => return other,
        };
        left -= 1;
        let seconds = pause.as_secs();
        watch.front.event(Event::Warning(lost));
        watch.front.event(Event::Note(Reason::ConnectingAgain.about(seconds).about(u64::from(left))));
        let until = Instant::now() + pause;
        while Instant::now() < until && !watch.cancel.is_set() {
            std::thread::sleep(Duration::from_millis(100));
        }
        pause = (pause * 2).min(LAST_PAUSE);
        // What is there already is met again, and counts again.
        watch.progress.items_done.store(0, Ordering::Relaxed);
        watch.progress.bytes_done.store(0, Ordering::Relaxed);
        watch.progress.bytes_there.store(0, Ordering::Relaxed);
    }
}

/// A connection that the same command may have the next time.
fn is_worth_another(e: &Error) -> bool {
    e.code.is_of_connection() && e.code.is_retryable()
}

#[allow(clippy::too_many_arguments)] // the parts of one request
fn put_once(
    sources: &[PathBuf],
    names: &mut Names,
    to: &Address,
    target: &mut Target,
    purpose: Purpose,
    manifest: Option<&Path>,
    way: &Way,
    policy: &CopyPolicy,
    watch: Watch<'_>,
) -> Result<Summary> {
    let lists = Lists::of(policy)?;
    let how = policy_out(policy, &lists, way.fast, way.dedup, way.compress, purpose);
    // Nothing is moved where nothing is copied.
    let found = if policy.dry_run {
        Ahead::default()
    } else {
        ahead(sources, policy.recursive, AHEAD_NAMES, AHEAD_PATIENCE)
    };
    let much = found.more || found.bytes >= HEAVY_BYTES;
    let load = if much { Load::Heavy } else { Load::Light };
    watch.front.lend_terminal(true);
    let mut peer = transport::connect(to, way, load, ours(way), guarantees(&how), &[], watch.cancel)?;
    watch.front.lend_terminal(false);
    names.read(watch)?;
    more_streams(&mut peer, to, way, found.large, watch)?;
    // None: the directory of a list of names is not copied itself.
    let operands = if matches!(names, Names::None) { sources.len() as u64 } else { 0 };
    let kind = match target {
        Target::Guess(_) => message::Target::Guess,
        Target::Into(_) => message::Target::Into,
        Target::Exactly(_) => message::Target::Exactly,
    };
    let path = target.path().clone();
    // What this attempt makes of DST must not decide what DST means in the next one.
    if way.retries > 0
        && kind == message::Target::Guess
        && operands == 1
        && is_new(&peer, &path, watch.cancel)?
    {
        *target = Target::Exactly(path.clone());
    }
    let path = path.as_os_str().as_bytes();
    let manifest = manifest.filter(|_| !policy.dry_run);
    let manifest = manifest.map(|file| Manifest::begin(file, None)).transpose()?;
    let put = Message::Put { policy: how, target: kind, path, operands, items: watch.items };
    say(&peer, &put)?;
    let (target, unsaid) = (to.path.clone(), AtomicU64::new(0));
    let compares = matches!(purpose, Purpose::Check { .. });
    let compared = std::sync::Mutex::default();
    let told = Putting { watch, prefix: prefix(to), target, manifest, unsaid, compares, compared };
    let compress = agreed_compress(way.compress, peer.agreed.features);
    let how = How {
        origin: machine_number(),
        fast: way.fast,
        compress,
        dedup: way.dedup && !way.fast && peer.agreed.features.has_cap(caps::DEDUP),
        links: Links::Sent,
        compares,
    };
    let open = |path: &Path| operands::source(&Reach::Anywhere, path, policy.follow);
    let mut kept;
    let list: Option<(&mut (dyn BufRead + Send), u8)> = match names {
        Names::None => None,
        Names::Once(list) => Some((&mut *list.reader, list.separator)),
        Names::Kept { names, .. } => {
            kept = std::io::Cursor::new(names.join(&0));
            Some((&mut kept, 0))
        }
    };
    let result = match list {
        None => {
            let what = What::Operands { paths: sources, open: &open };
            send_all(&peer, policy, how, &told, watch.cancel, what)
        }
        Some((reader, separator)) => {
            let base = sources.first().map(PathBuf::as_path).unwrap_or(Path::new("."));
            let dir = fastcopy::dir::Dir::open(base).map_err(|e| Error::os(Op::OpenDirectory, base, e))?;
            let dir = crate::sender::walk::SourceDir::root(dir, crate::node::Node::root(base))?;
            let what = What::Names { base, dir, reader, separator };
            send_all(&peer, policy, how, &told, watch.cancel, what)
        }
    };
    let result = told.proved(result.map(|counted| summary_of(&counted)));
    end(peer, result, watch)
}

/// Copies from another machine.
///
/// # Errors
/// As [`put`].
pub fn get(request: GetRequest, watch: Watch<'_>) -> Result<Summary> {
    let GetRequest { from, names, target, purpose, manifest, way, policy } = request;
    let policy = for_purpose(policy, purpose);
    // A source without a path is the home directory as a whole: what is in it is copied, as of `host:.`.
    let from: Vec<Address> = from.into_iter().map(whole_home).collect();
    let Some(address) = from.first() else {
        return Err(Error::ours(Code::Usage, Op::Copy, "", Reason::NoSource));
    };
    let mut names = names.map_or(Names::None, Names::kept);
    let count = if matches!(names, Names::None) { from.len() } else { 1 };
    // V12: once for all attempts. What an earlier one was sent decides nothing about where the next one goes.
    let links = DestLink::received(&policy);
    let mut goal = Goal {
        path: target.path(),
        to: Resolved::of(&Reach::Anywhere, &target, count, links, &policy)?,
        kinds: Arc::default(),
    };
    let done = again(&way, &policy, watch, || {
        get_once(&from, address, &mut names, &mut goal, purpose, manifest.as_deref(), &way, &policy, watch)
    });
    done.map(|summary| names.counted_in(summary))
}

fn whole_home(address: Address) -> Address {
    let path = if address.path.as_os_str().is_empty() { PathBuf::from(".") } else { address.path };
    Address { path, ..address }
}

/// Where a copy from another machine goes, for all its attempts.
struct Goal<'t> {
    /// The target as it was typed.
    path: &'t Path,
    to: Resolved,
    /// What kind each operand was said to be.
    kinds: Arc<Kinds>,
}

#[allow(clippy::too_many_arguments)] // the parts of one request
fn get_once(
    from: &[Address],
    address: &Address,
    names: &mut Names,
    goal: &mut Goal<'_>,
    purpose: Purpose,
    manifest: Option<&Path>,
    way: &Way,
    policy: &CopyPolicy,
    watch: Watch<'_>,
) -> Result<Summary> {
    let lists = Lists::of(policy)?;
    let how = policy_out(policy, &lists, way.fast, way.dedup, way.compress, purpose);
    let survey = survey_of(&how);
    let required = guarantees(&how);
    let asks = way.parallel.is_none() && matches!(names, Names::None) && survey.is_none();
    let (behind, later) = if asks { by_when(from, how_large(from)?) } else { Default::default() };
    let required = sending(required);
    watch.front.lend_terminal(true);
    let mut peer = transport::connect(address, way, Load::Heavy, ours(way), required, &behind, watch.cancel)?;
    watch.front.lend_terminal(false);
    let list = names.read(watch)?;
    say_frames(&peer, later)?;
    let size = if asks { sizes_there(&peer, from.len(), watch.cancel)? } else { 0 };
    more_streams(&mut peer, address, way, size, watch)?;
    let names = list.map(|names| all_but_last(&peer, names)).transpose()?;
    // The target is there before anything is asked for.
    if list.is_some() && survey.is_none() {
        goal.to.make()?;
    }
    let disk = Sys::new();
    let landing = resuming(policy.clone());
    let reply = peer.streams.first().map(reply_on).ok_or_else(|| no_stream(address))?;
    let filter = Filter::new(&policy.filter)?;
    let what = receive::What {
        to: goal.to.clone(),
        kinds: goal.kinds.clone(),
        operands: if list.is_some() { 1 } else { from.len() as u64 },
        asked: match list {
            Some(names) => Asked::listed(&address.path, names, filter),
            None => Asked::operands(from.iter().map(|a| a.path.as_path()), filter)?,
        },
        source_prefix: prefix(address),
        origin: machine_number(),
        hashes: !way.fast,
        echo: true,
        streams: peer.streams.len(),
        listed: list.is_some(),
        reach: Reach::Anywhere,
        dedup: false,
    };
    let tally = Tally::new(watch);
    let paths: Vec<&[u8]> = from.iter().map(|a| a.path.as_os_str().as_bytes()).collect();
    let get = Message::Get { policy: how, paths, names };
    let (summary, broken) = match survey {
        Some(survey) => {
            let visit = visitor(survey, &landing, goal.path, goal.path, &tally);
            let surveying = Surveying::begin(&landing, what, &reply, &tally, visit)?;
            say(&peer, &get)?;
            receive_all(surveying, &peer.streams, &reply, None, At::Client)
        }
        None => {
            let receive = Receive::begin(&disk, &landing, what, watch, manifest, &reply, None)?;
            say(&peer, &get)?;
            receive_all(receive, &peer.streams, &reply, None, At::Client)
        }
    };
    let result = match broken {
        Some(e) if !watch.cancel.is_set() => Err(e),
        _ => Ok(summary),
    };
    end(peer, result, watch)
}

fn no_stream(address: &Address) -> Error {
    Error::ours(Code::Lost, Op::TalkTo, &address.host, Reason::NoStream)
}

/// What goes before a path of theirs when it is shown.
fn prefix(address: &Address) -> String {
    match &address.user {
        Some(user) => format!("{user}@{}:", address.host),
        None => format!("{}:", address.host),
    }
}

/// A path of theirs as it is shown.
fn theirs(address: &Address, path: &Path) -> PathBuf {
    let mut shown = std::ffi::OsString::from(prefix(address));
    shown.push(path);
    shown.into()
}

fn ours(way: &Way) -> Features {
    let mut features = OURS;
    if way.dedup && !way.fast {
        features.caps |= caps::DEDUP;
    }
    if way.plane != Plane::Direct {
        features.caps &= !(caps::DIRECT | caps::AEAD);
    }
    if way.compress == Compress::None {
        features.caps &= !(caps::LZ4 | caps::ZSTD);
    }
    if way.compress == Compress::Lz4 {
        features.caps &= !caps::ZSTD;
    }
    features
}

/// Of what a copy needs, what a sender must know; the rest is the receiver's, which is here.
fn sending(required: Features) -> Features {
    required.and(Features { caps: 0, wide: wide::TREES | wide::ATTRIBUTES | wide::HOLES | wide::SURVEY })
}

/// What is packed with: what is wanted and both know.
pub(crate) fn agreed_compress(wanted: Compress, agreed: Features) -> Compress {
    match wanted {
        Compress::Auto if agreed.has_cap(caps::ZSTD) => Compress::Auto,
        Compress::Zstd if agreed.has_cap(caps::ZSTD) => Compress::Zstd,
        Compress::Auto | Compress::Zstd | Compress::Lz4 if agreed.has_cap(caps::LZ4) => Compress::Lz4,
        _ => Compress::None,
    }
}

fn say(peer: &Peer, message: &Message<'_>) -> Result<()> {
    say_frames(peer, transport::frames_of(message)?)
}

/// Whole frames, or none.
fn say_frames(peer: &Peer, frames: Vec<u8>) -> Result<()> {
    if frames.is_empty() {
        return Ok(());
    }
    let Some(stream) = peer.streams.first() else {
        return Err(Error::ours(Code::Lost, Op::TalkTo, &peer.name, Reason::NoStream));
    };
    stream.out.send(Packet::Frames(frames)).map_err(Error::from)
}

/// The answer to a request, unless the user has had enough of waiting for it.
fn heard(peer: &Peer, cancel: &Cancel) -> Result<FrameBuf> {
    let lost = || Error::ours(Code::Lost, Op::TalkTo, &peer.name, Reason::ConnectionClosed);
    let Some(stream) = peer.streams.first() else { return Err(lost()) };
    loop {
        match stream.inbox.recv_timeout(LOOK)? {
            Heard::Frame(frame) => return Ok(frame),
            Heard::Ended => return Err(lost()),
            Heard::Nothing if cancel.is_set() => {
                return Err(Error::ours(Code::Interrupted, Op::TalkTo, &peer.name, Reason::Interrupted));
            }
            Heard::Nothing => {}
        }
    }
}

/// Sends everything over all streams.
pub(crate) fn send_all(
    peer: &Peer,
    policy: &CopyPolicy,
    how: How,
    told: &dyn crate::sender::out::Told,
    cancel: &Cancel,
    what: What<'_>,
) -> Result<Counted> {
    let boxes: Vec<Outbox> = peer.streams.iter().map(|s| s.out.clone()).collect();
    let outs: Vec<Outgoing<'_>> = boxes.iter().map(Outgoing).collect();
    let outs: Vec<&dyn Out> = outs.iter().map(|o| o as &dyn Out).collect();
    let pulse = peer.streams.first().map(Stream::pulse).unwrap_or_default();
    let sender = Push { policy, how, told, cancel, pulse: &pulse, outs: &outs };
    with_feed(&peer.streams, |feed| push(&sender, what, feed))
}

/// Ends the connection, and shows what ssh had to say.
fn end(peer: Peer, result: Result<Summary>, watch: Watch<'_>) -> Result<Summary> {
    let notes = peer.notes();
    let ended = if result.is_ok() {
        peer.finish()
    } else {
        peer.abort();
        Ok(Vec::new())
    };
    for note in notes.into_iter().chain(ended.iter().flatten().cloned()) {
        watch.front.event(Event::Note(note));
    }
    // What is done is done: a connection that ends badly after its last word changes nothing.
    result
}

/// Questions about paths over there: what goes behind the greeting, and what only once it is answered. Before that the peer
/// is not known to be a bcmr: an account's own command may be a shell that reads what comes, and only in a plain path
/// is there nothing for it to do.
fn by_when(paths: &[Address], questions: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    const LONGEST: usize = 4096;
    let plain = |b: &u8| b.is_ascii_alphanumeric() || !b.is_ascii() || b"._-+/@:,".contains(b);
    let goes_early = |address: &Address| {
        let path = address.path.as_os_str().as_bytes();
        path.len() <= LONGEST && path.iter().all(plain)
    };
    if paths.iter().all(goes_early) { (questions, Vec::new()) } else { (Vec::new(), questions) }
}

/// Asks for the size of every operand over there.
fn how_large(from: &[Address]) -> Result<Vec<u8>> {
    let mut frames = Vec::new();
    for address in from {
        let path = address.path.as_os_str().as_bytes();
        frames.append(&mut transport::frames_of(&Message::Stat { path, follow: true })?);
    }
    Ok(frames)
}

/// How much regular files among `operands`, asked for by [`how_large`], hold; one that cannot be looked at counts
/// nothing, its copy will say why.
fn sizes_there(peer: &Peer, operands: usize, cancel: &Cancel) -> Result<u64> {
    let mut sum = 0u64;
    for _ in 0..operands {
        let frame = heard(peer, cancel)?;
        if let Message::Info(entry) = frame.message()?
            && entry.kind == message::Kind::File
        {
            sum = sum.saturating_add(entry.size);
        }
    }
    Ok(sum)
}

/// Whether nothing has this name over there.
fn is_new(peer: &Peer, path: &Path, cancel: &Cancel) -> Result<bool> {
    say(peer, &Message::Stat { path: path.as_os_str().as_bytes(), follow: true })?;
    let frame = heard(peer, cancel)?;
    // What else may be wrong with it is told when it is the target.
    Ok(matches!(frame.message()?, Message::Error(trouble) if error_of(&trouble).code == Code::NotFound))
}

/// Opens the connections beside the first: as many as were asked for, or one where `bytes` make it worth while.
fn more_streams(peer: &mut Peer, address: &Address, way: &Way, bytes: u64, watch: Watch<'_>) -> Result<()> {
    let by_default = if bytes >= SECOND_STREAM_BYTES { 2 } else { 1 };
    let wanted = way.parallel.unwrap_or(by_default).min(bcmr_wire::limits::STREAMS_MAX as usize);
    if way.plane == Plane::Direct {
        match direct(peer, address, way, way.parallel.unwrap_or(1).max(1), watch) {
            Ok(()) => return Ok(()),
            Err(e) if matches!(e.code, Code::Interrupted | Code::Lost | Code::Protocol) => return Err(e),
            // Said, and then over ssh.
            Err(e) => watch.front.event(Event::Warning(e)),
        }
    }
    if wanted < 2 || !peer.agreed.features.has_wide(wide::JOIN) {
        return Ok(());
    }
    say(peer, &Message::Streams { count: wanted as u64 - 1 })?;
    let frame = heard(peer, watch.cancel)?;
    let token = match frame.message()? {
        Message::Token { secret, path } => Token { secret, path: PathBuf::from(OsStr::from_bytes(path)) },
        // Without them it works as well, only slower.
        Message::Error(trouble) => {
            let e = error_of(&trouble);
            watch.front.event(Event::Warning(Error { path: theirs(address, &e.path), ..e }));
            return Ok(());
        }
        _ => return Err(Error::ours(Code::Protocol, Op::TalkTo, &address.host, Reason::NoToken)),
    };
    drop(frame);
    let features = ours(way);
    watch.front.lend_terminal(true);
    let opened: Vec<Result<_>> = std::thread::scope(|scope| {
        let one = |index: usize| {
            let token = &token;
            std::thread::Builder::new().spawn_scoped(scope, move || {
                transport::connect_further(address, way, features, token, index as u64, watch.cancel)
            })
        };
        let threads: Vec<_> = (1..wanted).map(one).collect();
        let join = |thread: std::io::Result<std::thread::ScopedJoinHandle<'_, Result<_>>>| {
            let failed = |e| Error::os(Op::StartAThreadToConnectTo, &address.host, e);
            let gone = || Error::ours(Code::Io, Op::ConnectTo, &address.host, Reason::ThreadStopped);
            thread.map_err(failed)?.join().unwrap_or_else(|_| Err(gone()))
        };
        threads.into_iter().map(join).collect()
    });
    watch.front.lend_terminal(false);
    let mut failed = Vec::new();
    for one in opened {
        match one {
            Ok((stream, carrier)) => {
                peer.streams.push(stream);
                peer.carriers.push(carrier);
            }
            Err(e) if e.code == Code::Interrupted => return Err(e),
            Err(e) => failed.push(e),
        }
    }
    // They ask for no password, so it may be that there is but one connection: all works as well, only slower.
    if let Some(first) = failed.first() {
        let note = Reason::FewerConnections.about(failed.len()).about(wanted - 1).about(first.why());
        if way.parallel.is_some() {
            let warning = Error::ours(first.code, Op::OpenAllConnectionsTo, &address.host, note);
            watch.front.event(Event::Warning(warning));
        } else {
            watch.front.event(Event::Note(note));
        }
    }
    Ok(())
}

/// Takes the data off ssh: sealed TCP connections instead, `count` of them.
///
/// # Errors
/// [`Code::Unsupported`] and the like when that cannot be: the streams over ssh are as they were.
fn direct(peer: &mut Peer, address: &Address, way: &Way, count: usize, watch: Watch<'_>) -> Result<()> {
    let not = |note: Note| Error::ours(Code::Unsupported, Op::SendPastSshTo, &address.host, note);
    if !peer.agreed.features.has_cap(caps::DIRECT) || !peer.agreed.features.has_cap(caps::AEAD) {
        return Err(not(Reason::DirectNotOffered.into()));
    }
    let count = u8::try_from(count.min(bcmr_wire::limits::STREAMS_MAX as usize)).unwrap_or(1);
    // D6: keys must not end in a core dump.
    fastcopy::process::never_dump().map_err(|e| not(Reason::OverSsh.about(e.to_string())))?;
    say(peer, &Message::Direct { count: count.into() })?;
    let frame = heard(peer, watch.cancel)?;
    let (named, port, secret) = match frame.message()? {
        Message::Rendezvous { address, port, secret } => (address.to_vec(), port, Secret::new(secret)),
        Message::Error(trouble) => {
            return Err(not(Reason::OverSsh.about(error_of(&trouble).why())));
        }
        _ => return Err(Error::ours(Code::Protocol, Op::TalkTo, &address.host, Reason::NoRendezvous)),
    };
    let transcript = Transcript::of(&peer.agreed.hello, &peer.agreed.welcome, frame.payload());
    drop(frame);
    let keys = Keys { secret, transcript, limits: KeyLimits::WIRE };
    let failed = |e: NotDirect| not(Reason::OverSsh.about(e.why()));
    let to = where_to(&named, port, &transport::ssh::leads_to(address, way)).map_err(failed)?;
    let proved = dial(to, count, &keys, DIAL_PATIENCE).map_err(failed)?;
    let mut streams = Vec::new();
    for one in proved {
        let stream = one.stream(peer.name.clone(), Patience::WIRE, State::ClientIdle);
        streams.push(stream.map_err(|e| Error::os(Op::TalkTo, &address.host, e))?);
    }
    let lifeline = peer.streams.swap_remove(0);
    lifeline.settle(State::Quiet);
    peer.lifeline = Some(lifeline);
    peer.streams = streams;
    watch.front.event(Event::Note(Reason::PastSsh.about(to.to_string())));
    Ok(())
}

/// Sends the names of a list before the request that they belong to, but for so many as fit into the request itself: those
/// come back.
fn all_but_last<'a>(peer: &Peer, names: &'a [Vec<u8>]) -> Result<Vec<&'a [u8]>> {
    let mut rest = names.iter().map(Vec::as_slice).peekable();
    loop {
        let mut bytes = 0;
        let mut part = Vec::new();
        while let Some(name) = rest.next_if(|name| bytes + name.len() < NAMES_BYTES) {
            bytes += name.len() + 1;
            part.push(name);
        }
        if rest.peek().is_none() {
            return Ok(part);
        }
        if !peer.agreed.features.has_wide(wide::LISTS) {
            let note = Reason::ListOver8MiB;
            return Err(Error::ours(Code::Limit, Op::SendListOfNamesTo, &peer.name, note));
        }
        say(peer, &Message::Names { names: part })?;
    }
}

/// The names of a list, all of them: the side that gets them keeps them.
fn read_names(list: NameList) -> Result<Vec<Vec<u8>>> {
    let mut bytes = Vec::new();
    let NameList { reader, separator } = list;
    let most = limits::NAMES_BYTES_MAX;
    let read = reader.take(most as u64).read_to_end(&mut bytes);
    read.map_err(|e| Error::os(Op::ReadListOfNames, "", e))?;
    let too_much = |note: Reason| Err(Error::ours(Code::Limit, Op::ReadListOfNames, "", note));
    // With a byte for each name, as its separator is one: what is shorter is also less over there.
    if bytes.len() == most {
        return too_much(Reason::ListOver32MiB);
    }
    let names = bytes.split(|b| *b == separator).map(|name| match name.strip_suffix(b"\r") {
        Some(name) if separator == b'\n' => name,
        _ => name,
    });
    let names: Vec<Vec<u8>> = names.filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect();
    if names.len() > limits::NAMES_MAX {
        return too_much(Reason::ListOverMillion);
    }
    Ok(names)
}

/// The first symbolic link that a program which follows links would write through, were `from` copied to `target` by it:
/// under the target's own name, under a source's name in it, or below that. None with
/// [`FollowDestination::Always`](crate::policy::FollowDestination::Always).
///
/// # Errors
/// The target is none, or cannot be looked at.
pub fn link_in_the_way(from: &[Address], target: &Target, policy: &CopyPolicy) -> Result<Option<PathBuf>> {
    let links = DestLink::received(policy);
    if links != DestLink::Received {
        return Ok(None);
    }
    let place = match operands::target(&Reach::Anywhere, target, from.len(), links)? {
        Where::Into(place) | Where::Whole(place) => place,
        Where::Name { dir, name, .. } => {
            let there = dir.dir.look(name.as_name()).map_err(|e| Error::os(Op::Stat, target.path(), e))?;
            let is_link = there.is_some_and(|info| info.kind == Kind::Link);
            return Ok(is_link.then(|| target.path().clone()));
        }
    };
    let mut stack = Vec::new();
    for address in from {
        let Some(name) = typed(&address.path)?.name else {
            stack.push((place.dir.reopen(), place.node.clone()));
            continue;
        };
        let node = place.node.below(name.as_name());
        let there = place.dir.look(name.as_name()).map_err(|e| Error::os(Op::Stat, node.path(), e))?;
        match there.map(|info| info.kind) {
            Some(Kind::Link) => return Ok(Some(node.path())),
            Some(Kind::Dir) if policy.recursive => {
                stack.push((place.dir.open_dir_readable(name.as_name()), node));
            }
            _ => {}
        }
    }
    let mut buffer = ListBuffer::new();
    while let Some((dir, node)) = stack.pop() {
        let fail = |e| Error::os(Op::ListDirectory, node.path(), e);
        let dir = dir.map_err(fail)?;
        let mut found = None;
        let mut dirs: Vec<NameBuf> = Vec::new();
        dir.list(&mut buffer, |entry| {
            // A file system that does not say what an entry is has it looked at.
            let kind = entry.kind.or_else(|| Some(dir.look(entry.name).ok()??.kind));
            match kind {
                Some(Kind::Link) => found = Some(node.join(entry.name)),
                Some(Kind::Dir) => dirs.push(entry.name.to_owned()),
                _ => {}
            }
            found.is_none()
        })
        .map_err(fail)?;
        if found.is_some() {
            return Ok(found);
        }
        for name in dirs {
            stack.push((dir.open_dir_readable(name.as_name()), node.below(name.as_name())));
        }
    }
    Ok(None)
}

// ---- single requests ----

/// Asks one thing of a bcmr over there and hands every answer to `each` until it says that it was the last.
fn ask(
    address: &Address,
    way: &Way,
    question: impl FnOnce(&[u8]) -> Message<'_>,
    mut each: impl FnMut(Message<'_>) -> Result<bool>,
) -> Result<()> {
    let needed = Features { caps: 0, wide: wide::TREES };
    let question = transport::frames_of(&question(address.path.as_os_str().as_bytes()))?;
    let (behind, later) = by_when(std::slice::from_ref(address), question);
    let peer = transport::connect(address, way, Load::Light, OURS, needed, &behind, &Cancel::new())?;
    say_frames(&peer, later)?;
    let result = loop {
        let frame = match peer.streams.first().map(|s| s.inbox.recv()).transpose().map(Option::flatten) {
            Ok(Some(frame)) => frame,
            Ok(None) => break Err(no_stream(address)),
            Err(e) => break Err(e),
        };
        match frame.message() {
            Ok(Message::Error(trouble)) => {
                let e = error_of(&trouble);
                break Err(Error { path: theirs(address, &e.path), ..e });
            }
            Ok(message) => match each(message) {
                Ok(true) => break Ok(()),
                Ok(false) => {}
                Err(e) => break Err(e),
            },
            Err(e) => break Err(e),
        }
    };
    match result {
        Ok(()) => peer.finish().map(drop),
        Err(e) => {
            peer.abort();
            Err(e)
        }
    }
}

fn unexpected(address: &Address) -> Error {
    Error::ours(Code::Protocol, Op::TalkTo, &address.host, Reason::AnswerToAnother)
}

/// What an entry says, for people.
fn listing(entry: &message::Entry<'_>) -> Listing {
    Listing {
        kind: receive::kind_of(entry.kind),
        name: entry.name.to_vec(),
        mode: entry.mode,
        uid: entry.uid,
        gid: entry.gid,
        size: entry.size,
        mtime: Time { sec: entry.mtime.sec, nsec: entry.mtime.nsec },
        link: entry.link.to_vec(),
    }
}

/// What an address names; through a symbolic link with `follow`.
///
/// # Errors
/// As [`put`], or the path cannot be looked at.
pub fn stat(address: &Address, way: &Way, follow: bool) -> Result<Listing> {
    let mut found = None;
    ask(
        address,
        way,
        |path| Message::Stat { path, follow },
        |message| match message {
            Message::Info(entry) => {
                found = Some(listing(&entry));
                Ok(true)
            }
            _ => Err(unexpected(address)),
        },
    )?;
    found.ok_or_else(|| unexpected(address))
}

/// The names in a directory, in no order, until `each` says no.
///
/// # Errors
/// As [`stat`]; [`Code::NotDirectory`] when it is none.
pub fn list(address: &Address, way: &Way, each: &mut dyn FnMut(Listing) -> bool) -> Result<()> {
    let mut wanted = true;
    ask(
        address,
        way,
        |path| Message::List { path },
        |message| match message {
            Message::Page { entries } => {
                for entry in &entries {
                    wanted = wanted && each(listing(entry));
                }
                Ok(!wanted)
            }
            Message::Done => Ok(true),
            _ => Err(unexpected(address)),
        },
    )
}

/// The BLAKE3 of a regular file, computed there.
///
/// # Errors
/// As [`stat`].
pub fn hash(address: &Address, way: &Way) -> Result<[u8; 32]> {
    let mut found = None;
    ask(
        address,
        way,
        |path| Message::Hash { path },
        |message| match message {
            Message::Ok { hash: Some(hash) } => {
                found = Some(hash);
                Ok(true)
            }
            _ => Err(unexpected(address)),
        },
    )?;
    found.ok_or_else(|| unexpected(address))
}

/// What is at an address and below it.
///
/// # Errors
/// As [`stat`].
pub fn usage(address: &Address, way: &Way) -> Result<Usage> {
    let mut found = None;
    ask(
        address,
        way,
        |path| Message::Usage { path },
        |message| match message {
            Message::Used { files, dirs, bytes, allocated } => {
                found = Some(Usage { files, dirs, bytes, allocated });
                Ok(true)
            }
            _ => Err(unexpected(address)),
        },
    )?;
    found.ok_or_else(|| unexpected(address))
}

/// What stands on the way to a machine. When every finding is `ok`, a copy goes from bcmr to bcmr.
#[must_use]
pub fn doctor(address: &Address, way: &Way) -> Vec<Finding> {
    let ok = |what, found| Finding { ok: true, what, found };
    // What a copy offers, so that what both can is what a copy will have.
    let features = ours(way);
    match transport::connect(address, way, Load::Light, features, Features::NONE, &[], &Cancel::new()) {
        Ok(peer) => {
            let agreed = peer.agreed.features;
            let mut findings = vec![
                ok("ssh", OnTheWay::Reaches(address.host.clone())),
                ok("bcmr", OnTheWay::Agent(peer.agreed.agent.clone())),
                Finding {
                    ok: agreed.has_wide(wide::TREES),
                    what: "protocol",
                    found: OnTheWay::Can(agreed.names().collect()),
                },
            ];
            if let Err(e) = peer.finish() {
                findings.push(Finding { ok: false, what: "end", found: OnTheWay::Failed(e) });
            }
            findings
        }
        Err(e) => {
            let what = if e.code == Code::NoPeer { "bcmr" } else { "ssh" };
            vec![Finding { ok: false, what, found: OnTheWay::Failed(e) }]
        }
    }
}

/// ssh's own words for running `command` there, which a shell reads: it must be the caller's from beginning to end.
///
/// # Errors
/// A host or user that is refused.
pub fn ssh_words(address: &Address, way: &Way, command: &str) -> Result<Vec<std::ffi::OsString>> {
    transport::ssh::words(address, way, command)
}

/// What ssh's standard error means where it could not connect: the code, and the words in short.
#[must_use]
pub fn ssh_said(said: &str) -> (Code, Note) {
    let lines: Vec<String> =
        said.lines().map(str::trim).filter(|l| !l.is_empty()).map(str::to_owned).collect();
    let code = transport::ssh::judge_words(&lines).unwrap_or(Code::Lost);
    (code, transport::ssh::in_short(code, &lines).unwrap_or(Reason::SshCouldNotConnect.into()))
}

/// What an [`Info`] says, as an entry without a link's target or attributes.
pub(crate) fn entry_of<'a>(name: &'a [u8], info: &Info) -> message::Entry<'a> {
    let time = |t: Time| message::Time { sec: t.sec, nsec: t.nsec };
    message::Entry {
        kind: match info.kind {
            Kind::File => message::Kind::File,
            Kind::Dir => message::Kind::Dir,
            Kind::Link => message::Kind::Link,
            Kind::Fifo => message::Kind::Fifo,
            Kind::Socket => message::Kind::Socket,
            Kind::CharDevice => message::Kind::CharDevice,
            Kind::BlockDevice => message::Kind::BlockDevice,
        },
        name,
        mode: info.mode,
        uid: info.uid,
        gid: info.gid,
        size: info.size,
        blocks: info.blocks,
        atime: time(info.atime),
        mtime: time(info.mtime),
        ctime: time(info.ctime),
        dev: info.dev,
        ino: info.ino,
        nlink: info.nlink,
        rdev: info.rdev,
        link: b"",
        attrs: Vec::new(),
    }
}

/// One stream's way out, for a server's answers.
pub(crate) fn answer(stream: &Stream, message: &Message<'_>) -> Result<()> {
    stream.out.send(Packet::Frames(transport::frames_of(message)?)).map_err(Error::from)
}
