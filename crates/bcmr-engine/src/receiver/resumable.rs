//! Filling one large stage so that a crash costs at most one checkpoint: Streaming Checkpoint Copy.
//!
//! Must not publish anything (that is `land`'s) nor know where the source is: bytes come from the source, near or far. The
//! order of the steps is the safety; `docs/durability.md` has it as a table, cited here as R4 to R6.

use crate::blocks::{
    Aligned, BLOCK_BYTES, Cv, aligned, aligned_cv, around_zeros, block_bytes, block_cv, blocks_of,
    fill_block, in_pieces, on_blocks, on_blocks_with, whole_hash,
};
use crate::disk::tee::no_direct;
use crate::disk::uncached::Leave;
use crate::disk::{Bytes, Disk, Fault, Side, on_blocks_of};
use crate::error::{Code, Op, Reason};
use crate::event::WorkParts;
use crate::policy::Resume;
use crate::receiver::recorder::{Log, Recorder, Records};
use crate::receiver::resume::{Start, decide};
use crate::receiver::session::{self, Header, Identity, Session};
use crate::stage::{self, Home};
use fastcopy::dir::{Lock, Name, NameBuf};
use fastcopy::errno;
use fastcopy::meta::{Info, Kind};
use fastcopy::sparse::Extents;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Longer than any tick of the clock that stamps files: a source whose ctime is older than this when it is first
/// looked at cannot change again without its ctime changing.
const CLOCK_TICK: Duration = Duration::from_millis(20);

/// How long a session that another process has locked is waited for: 1 s in all.
const LOCK_TRIES: u32 = 20;
/// The same where the content comes from another machine: what holds it may be the process of a connection that was lost,
/// which learns of that after 30 s of silence. The connection that takes its place waits for it: 45 s in all.
const LOCK_TRIES_FAR: u32 = 900;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

const _: () =
    assert!(LOCK_TRIES_FAR as u128 * LOCK_PAUSE.as_millis() > bcmr_wire::limits::DEAD_MS as u128 + 10_000);

/// What is wanted.
pub(crate) struct Want<'a> {
    pub(crate) name: Name<'a>,
    /// The directory that it lands in.
    pub(crate) home: Home,
    pub(crate) info: Info,
    pub(crate) source: &'a dyn Bytes,
    pub(crate) resume: Resume,
    pub(crate) checkpoint_bytes: u64,
    pub(crate) holes: Holes,
    pub(crate) threads: usize,
    /// The user who runs this: no other user's leftovers are used, see [`owner_of_new`].
    pub(crate) me: u32,
    /// Pages are dropped behind the copy.
    pub(crate) leave: Option<Leave>,
    /// It is read back past the page cache.
    pub(crate) past_cache: bool,
    pub(crate) observe: &'a (dyn Fn(u64) -> bool + Sync),
    /// Told of bytes that were there already.
    pub(crate) met: &'a (dyn Fn(u64) + Sync),
    /// Where it is counted how long each phase takes.
    pub(crate) work: Option<&'a WorkParts>,
}

/// What becomes of blocks of zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holes {
    /// Written.
    Fill,
    /// Left out, as the source has holes or was asked to get them.
    Make,
}

/// A stage that is complete and proved, and what led there.
pub(crate) struct FilledPart<D: Disk> {
    pub(crate) file: D::File,
    pub(crate) part: NameBuf,
    /// Held until the name is there: its lock keeps others out.
    pub(crate) session: D::File,
    pub(crate) session_name: NameBuf,
    /// The hash of the whole file; absent with [`Resume::Fast`].
    pub(crate) hash: Option<blake3::Hash>,
    /// Chaining values of all blocks, for reading back.
    pub(crate) blocks: Vec<Cv>,
    /// Bytes that were there already.
    pub(crate) resumed: u64,
    pub(crate) restarted: Option<Reason>,
    pub(crate) repaired: u64,
}

fn dest(op: Op) -> impl Fn(io::Error) -> Fault {
    move |e| Fault::os(Side::Dest, op, e)
}

/// The session and its stage, opened and locked, with the decision where to go on.
struct Begun<D: Disk> {
    file: D::File,
    session: D::File,
    blocks: Vec<Cv>,
    /// Bytes of the stage that are recorded.
    bytes: u64,
    /// Bytes of the session file, and the checksum the next record goes on from.
    log: Log,
    restarted: Option<Reason>,
}

/// Fills the stage of `want.name` in `dir`.
///
/// # Errors
/// On a cancel, a full disk or a read error stage and session stay, for the next run. When the source changed or a
/// sync failed (R5) both are removed, and where nothing is recorded and there are no direct reads to prove it by.
pub(crate) fn fill<D: Disk>(disk: &D, dir: &D::Dir, want: &Want<'_>) -> Result<FilledPart<D>, Fault> {
    let names = want.home.part(want.name).zip(want.home.session(want.name));
    let Some((part, session_name)) = names else {
        return Err(Fault::ours(Side::Dest, Op::NameAStageFor, Code::Io, Reason::NoNameForStage));
    };
    settle_clock(want)?;
    let begun = match begin(disk, dir, want, part.as_name(), session_name.as_name()) {
        Ok(begun) => begun,
        Err(fault) => {
            // R5. Only who has the lock syncs, so no other run's are taken away.
            if fault.op == Op::Sync {
                abandon(disk, dir, part.as_name(), session_name.as_name())?;
            }
            return Err(fault);
        }
    };
    let (resumed, restarted) = (begun.bytes, begun.restarted);
    // Asked before anything is copied.
    if want.past_cache
        && let Err(e) = disk.direct(&begun.file)
    {
        if begun.bytes == 0 {
            abandon(disk, dir, part.as_name(), session_name.as_name())?;
        }
        return Err(no_direct(e));
    }
    match run(disk, want, &begun) {
        Ok((blocks, repaired)) => {
            let hash = (want.resume != Resume::Fast).then(|| whole_hash(&blocks, want.info.size)).flatten();
            let Begun { file, session, .. } = begun;
            Ok(FilledPart { file, part, session, session_name, hash, blocks, resumed, restarted, repaired })
        }
        Err(fault) => {
            let lost = fault.op == Op::Sync || fault.code == Code::SourceChanged;
            if lost {
                abandon(disk, dir, part.as_name(), session_name.as_name())?;
            }
            Err(fault)
        }
    }
}

/// Removes stage and session: the stage first, as a session without a stage claims nothing.
pub(crate) fn abandon<D: Disk>(
    disk: &D,
    dir: &D::Dir,
    part: Name<'_>,
    session: Name<'_>,
) -> Result<(), Fault> {
    disk.remove_file(dir, part).map_err(dest(Op::RemoveUnfinished))?;
    disk.remove_file(dir, session).map_err(dest(Op::RemoveSessionOf))
}

/// R5: what a failed sync may have lost is thrown away, while the lock still keeps others out.
fn lost<D: Disk>(disk: &D, dir: &D::Dir, want: &Want<'_>, e: io::Error) -> Fault {
    take_away(disk, dir, want).err().unwrap_or_else(|| dest(Op::Sync)(e))
}

/// [`abandon`]s what is of `want`.
fn take_away<D: Disk>(disk: &D, dir: &D::Dir, want: &Want<'_>) -> Result<(), Fault> {
    match want.home.part(want.name).zip(want.home.session(want.name)) {
        Some((part, session)) => abandon(disk, dir, part.as_name(), session.as_name()),
        None => Ok(()),
    }
}

/// Takes away the session of `name`, which is complete, with its stage: a run had finished the file and was killed before
/// it could, or the file was finished another way. A process at work on it is left alone, and so is what does not say
/// that it is this: a session of another name, a file in the stage's place that is not the stage.
pub(crate) fn sweep<D: Disk>(disk: &D, dir: &D::Dir, home: &Home, name: Name<'_>) -> Result<(), Fault> {
    let Some((part, session_name)) = home.part(name).zip(home.session(name)) else { return Ok(()) };
    let (part, session_name) = (part.as_name(), session_name.as_name());
    let fail = dest(Op::OpenSessionOf);
    let session = match disk.open_file(dir, session_name) {
        Ok(Some(session)) if disk.lock_file(&session) != Lock::Busy => session,
        // Something foreign under its name is left alone; not being able to look is no absence.
        Err(e) if !matches!(Code::of(&e), Code::Link | Code::InTheWay | Code::Denied | Code::Refused) => {
            return Err(fail(e));
        }
        _ => return Ok(()),
    };
    let mut bytes = vec![0; session::HEADER_BYTES_MAX];
    let n = disk.read_at(&session, 0, &mut bytes).map_err(&fail)?;
    bytes.truncate(n);
    let stage = disk.look(dir, part).map_err(dest(Op::StatUnfinished))?;
    let belong = match session::decode(&bytes) {
        Some(read) => {
            read.header.name == name.bytes() && stage.is_none_or(|stage| stage.id() == read.header.stage)
        }
        // A run that was killed before its first sync: both were made, and nothing is in them.
        None => n == 0 && stage.is_none_or(|stage| stage.kind == Kind::File && stage.size == 0),
    };
    if !belong {
        return Ok(());
    }
    // R3: the one who made the name may have been killed before he synced it, and this run will say that all is done.
    disk.sync_dir(dir).map_err(dest(Op::Sync))?;
    abandon(disk, dir, part, session_name)
}

/// What failed at the source. One that comes over a wire has no file here: it is received, which the side that shows it knows
/// for something about the source.
fn of_source(want: &Want<'_>, op: Op) -> impl Fn(io::Error) -> Fault {
    let op = if want.source.file().is_some() { op } else { Op::Receive };
    move |e| Fault::os(Side::Source, op, e)
}

/// A source changed within one tick of the clock before we looked could change again without a trace; so wait it out.
fn settle_clock(want: &Want<'_>) -> Result<(), Fault> {
    let ctime =
        SystemTime::UNIX_EPOCH + Duration::new(want.info.ctime.sec.max(0) as u64, want.info.ctime.nsec);
    if SystemTime::now().duration_since(ctime).is_ok_and(|age| age > CLOCK_TICK) {
        return Ok(());
    }
    std::thread::sleep(CLOCK_TICK);
    let now = want.source.info().map_err(of_source(want, Op::Stat))?;
    if want.info.same_content(&now) { Ok(()) } else { Err(Fault::changed()) }
}

fn begin<D: Disk>(
    disk: &D,
    dir: &D::Dir,
    want: &Want<'_>,
    part: Name<'_>,
    session_name: Name<'_>,
) -> Result<Begun<D>, Fault> {
    let (session, found, owner) = open_session(disk, dir, want, session_name)?;
    let (read, unreadable) = match &found {
        SessionFound::New => (None, false),
        SessionFound::Damaged => (None, true),
        SessionFound::Read(s) => (Some(s), false),
    };
    let stage = disk.open_file(dir, part);
    // A link or directory in the stage's place is not ours; it is taken away below like anything foreign.
    let stage = match stage {
        Err(e) if matches!(Code::of(&e), Code::Link | Code::InTheWay | Code::Denied | Code::Refused) => None,
        other => other.map_err(dest(Op::OpenUnfinished))?,
    };
    let stage_info = match &stage {
        Some(file) => Some(disk.file_info(file).map_err(dest(Op::StatUnfinished))?),
        None => None,
    };
    let start = decide(read, unreadable, stage_info.as_ref(), &want.info, options(want), owner);
    match (start, stage, found) {
        (Start::Behind { blocks, bytes }, Some(file), SessionFound::Read(s)) => {
            let log = Log { bytes: s.bytes, sum: s.sum };
            let begun = Begun { file, session, blocks: s.blocks, bytes, log, restarted: None };
            debug_assert_eq!(begun.blocks.len(), blocks);
            // What is behind the last record may be anything; so may be a torn record.
            disk.set_len(&begun.file, bytes).map_err(dest(Op::Cut))?;
            disk.set_len(&begun.session, s.bytes).map_err(dest(Op::CutSessionOf))?;
            go_on(disk, dir, want, begun)
        }
        (start, stage, _) => {
            let restarted = if let Start::Fresh(why) = start { why } else { None };
            drop(stage);
            fresh(disk, dir, want, part, session, restarted)
        }
    }
}

enum SessionFound {
    New,
    Damaged,
    Read(Session),
}

/// The owner that a new file gets in `dir`: that of the mount and not the user who runs this on exfat, CIFS and many a FUSE file
/// system, and another one where a server maps root to such a user.
fn owner_of_new<D: Disk>(disk: &D, dir: &D::Dir) -> io::Result<u32> {
    let file = match disk.unnamed_file(dir, 0o600) {
        Ok(file) => file,
        Err(_) => {
            let name = stage::random().ok_or(io::ErrorKind::InvalidInput)?;
            let file = disk.create_file(dir, name.as_name(), 0o600)?;
            disk.remove_file(dir, name.as_name())?;
            file
        }
    };
    disk.file_info(&file).map(|info| info.uid)
}

/// Opens or makes the session and locks it: the holder of the lock may touch the stage. Returns whose both must be as well.
fn open_session<D: Disk>(
    disk: &D,
    dir: &D::Dir,
    want: &Want<'_>,
    name: Name<'_>,
) -> Result<(D::File, SessionFound, u32), Fault> {
    let fail = dest(Op::OpenSessionOf);
    let tries = if want.source.file().is_some() { LOCK_TRIES } else { LOCK_TRIES_FAR };
    let mut patience = tries;
    // Again, should the one who had it finish and remove it between our opening and our lock.
    for _ in 0..tries + 8 {
        let opened = match disk.open_file(dir, name) {
            Err(e) if matches!(Code::of(&e), Code::Link | Code::InTheWay | Code::Refused) => {
                disk.remove_tree(dir, name).map_err(&fail)?;
                None
            }
            other => other.map_err(&fail)?,
        };
        let (file, new) = match opened {
            Some(file) => (file, false),
            None => match disk.create_file(dir, name, 0o600) {
                Err(e) if e.raw_os_error() == Some(errno::EEXIST) => continue,
                other => (other.map_err(&fail)?, true),
            },
        };
        if disk.lock_file(&file) == Lock::Busy {
            if patience > 0 {
                // A killed run may still be on its way out.
                patience -= 1;
                if !(want.observe)(0) {
                    return Err(Fault::interrupted());
                }
                std::thread::sleep(LOCK_PAUSE);
                continue;
            }
            let note = Reason::AnotherCopyRuns;
            return Err(Fault::ours(Side::Dest, Op::Resume, Code::Refused, note));
        }
        let info = disk.file_info(&file).map_err(&fail)?;
        let named = disk.look(dir, name).map_err(&fail)?;
        if named.is_none_or(|n| n.id() != info.id()) {
            continue;
        }
        // What was made just now has the owner that such files get here.
        let owner =
            if new || info.uid == want.me { info.uid } else { owner_of_new(disk, dir).map_err(&fail)? };
        // With a second name it may be any user's file, and it is about to be written to.
        if info.kind != Kind::File || info.uid != owner || info.nlink != 1 {
            disk.remove_tree(dir, name).map_err(&fail)?;
            continue;
        }
        if new || info.size == 0 {
            return Ok((file, SessionFound::New, owner));
        }
        // No more than a session of this source can hold: a huge file is not one.
        let mut bytes = vec![0; info.size.min(session::bytes_max(want.info.size)) as usize];
        let n = disk.read_at(&file, 0, &mut bytes).map_err(&fail)?;
        bytes.truncate(n);
        let found = session::decode(&bytes).map_or(SessionFound::Damaged, SessionFound::Read);
        return Ok((file, found, owner));
    }
    Err(Fault::ours(Side::Dest, Op::OpenSessionOf, Code::Refused, Reason::TakenAwayByOthers))
}

fn options(want: &Want<'_>) -> u32 {
    let fast = if want.resume == Resume::Fast { session::FAST } else { 0 };
    let holes = if want.holes == Holes::Make { session::ZEROS_TO_HOLES } else { 0 };
    fast | holes
}

/// Starts over: a new stage, a new header. R4: both and their names are on stable storage before any record.
fn fresh<D: Disk>(
    disk: &D,
    dir: &D::Dir,
    want: &Want<'_>,
    part: Name<'_>,
    session: D::File,
    restarted: Option<Reason>,
) -> Result<Begun<D>, Fault> {
    disk.set_len(&session, 0).map_err(dest(Op::CutSessionOf))?;
    disk.remove_tree(dir, part).map_err(dest(Op::RemoveUnfinished))?;
    let file = disk.create_file(dir, part, 0o600).map_err(dest(Op::Create))?;
    // What is far away has the size that the other side says: room is taken as it comes, see `segment`.
    if want.holes == Holes::Fill
        && want.source.file().is_some()
        && let Err(e) = disk.reserve(&file, want.info.size)
    {
        // Nothing was begun: what could be had of the room goes back with the stage, for what does fit.
        take_away(disk, dir, want)?;
        return Err(dest(Op::ReserveRoomFor)(e));
    }
    let id = disk.file_info(&file).map_err(dest(Op::StatUnfinished))?.id();
    let header = Header {
        options: options(want),
        source: Identity::of(&want.info),
        stage: id,
        name: want.name.bytes().to_vec(),
    };
    let (bytes, sum) = session::encode_header(&header);
    disk.write_at(&session, 0, &bytes).map_err(dest(Op::WriteSessionOf))?;
    let synced =
        disk.sync_file(&file).and_then(|()| disk.sync_file(&session)).and_then(|()| disk.sync_dir(dir));
    synced.map_err(|e| lost(disk, dir, want, e))?;
    let log = Log { bytes: bytes.len() as u64, sum };
    Ok(Begun { file, session, blocks: Vec::new(), bytes: 0, log, restarted })
}

/// Checks what has to be checked before anything is added behind the last record.
fn go_on<D: Disk>(disk: &D, dir: &D::Dir, want: &Want<'_>, begun: Begun<D>) -> Result<Begun<D>, Fault> {
    let count = begun.blocks.len();
    let last = count.saturating_sub(1);
    let tail = begun.blocks.get(last).copied().unwrap_or_default();
    // Constant time: one block, however long the file is.
    let tail_fits = stage_cv(disk, want, &begun.file, last as u64)? == tail;
    let good = match want.resume {
        Resume::Strict => first_wrong(disk, want, &begun)?,
        _ if tail_fits => count,
        Resume::Fast => {
            let zero = Begun { blocks: Vec::new(), bytes: 0, ..begun };
            return keep(disk, dir, zero, 0, want);
        }
        // The tail is not what was recorded: nothing is taken on trust any more.
        _ => first_wrong(disk, want, &begun)?,
    };
    if good < count { keep(disk, dir, begun, good, want) } else { Ok(begun) }
}

/// Goes back to the first `good` blocks: the session is written anew with those, and the rest is cut off.
fn keep<D: Disk>(
    disk: &D,
    dir: &D::Dir,
    begun: Begun<D>,
    good: usize,
    want: &Want<'_>,
) -> Result<Begun<D>, Fault> {
    let mut blocks = begun.blocks;
    blocks.truncate(good);
    let bytes = (good as u64 * BLOCK_BYTES).min(want.info.size);
    let id = disk.file_info(&begun.file).map_err(dest(Op::StatUnfinished))?.id();
    let header = Header {
        options: options(want),
        source: Identity::of(&want.info),
        stage: id,
        name: want.name.bytes().to_vec(),
    };
    let (mut log, sum) = session::encode_header(&header);
    let (record, sum) = session::encode_record(sum, &blocks);
    log.extend_from_slice(&record);
    // A crash in between leaves fewer claims, never false ones: the records cut here stay true of the stage.
    disk.set_len(&begun.session, 0).map_err(dest(Op::CutSessionOf))?;
    disk.write_at(&begun.session, 0, &log).map_err(dest(Op::WriteSessionOf))?;
    disk.sync_file(&begun.session).map_err(|e| lost(disk, dir, want, e))?;
    disk.set_len(&begun.file, bytes).map_err(dest(Op::Cut))?;
    let log = Log { bytes: log.len() as u64, sum };
    Ok(Begun { blocks, bytes, log, restarted: Some(Reason::RecordedBlockDiffers), ..begun })
}

fn stage_cv<D: Disk>(disk: &D, want: &Want<'_>, file: &D::File, block: u64) -> Result<Cv, Fault> {
    let read = |at, room: &mut [u8]| disk.read_at(file, at, room).map_err(dest(Op::ReadUnfinished));
    let cv = block_cv(block, want.info.size, read);
    if want.leave.is_some() {
        disk.forget(file, block * BLOCK_BYTES, BLOCK_BYTES);
    }
    cv
}

fn source_cv(want: &Want<'_>, block: u64) -> Result<Cv, Fault> {
    let cv = want.source.value(block, want.info.size);
    forget_source(want, block * BLOCK_BYTES, BLOCK_BYTES);
    cv
}

/// S9: only where none of the source was in the page cache before.
fn forget_source(want: &Want<'_>, at: u64, bytes: u64) {
    if want.leave.is_some_and(|leave| leave.source) {
        want.source.forget(at, bytes);
    }
}

/// `-s`: how many blocks from the start are what was recorded, in the stage and in the source.
fn first_wrong<D: Disk>(disk: &D, want: &Want<'_>, begun: &Begun<D>) -> Result<usize, Fault> {
    let count = begun.blocks.len() as u64;
    let wrong = AtomicU64::new(count);
    on_blocks_of(want.source, 0..count, want.threads, |block| {
        if block >= wrong.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let recorded = begun.blocks.get(block as usize).copied().unwrap_or_default();
        let fits =
            stage_cv(disk, want, &begun.file, block)? == recorded && source_cv(want, block)? == recorded;
        if !fits {
            wrong.fetch_min(block, Ordering::Relaxed);
        }
        if !(want.observe)(0) {
            return Err(Fault::interrupted());
        }
        Ok(true)
    })?;
    Ok(wrong.into_inner() as usize)
}

/// R6: which recorded blocks of the stage are not what was recorded.
fn prove<D: Disk>(disk: &D, want: &Want<'_>, begun: &Begun<D>) -> Result<Vec<u64>, Fault> {
    let wrong = Mutex::new(Vec::new());
    on_blocks(0..begun.blocks.len() as u64, want.threads, |block| {
        let recorded = begun.blocks.get(block as usize).copied().unwrap_or_default();
        if stage_cv(disk, want, &begun.file, block)? != recorded {
            wrong.lock().unwrap_or_else(PoisonError::into_inner).push(block);
        }
        Ok((want.observe)(0))
    })?;
    if !(want.observe)(0) {
        return Err(Fault::interrupted());
    }
    Ok(wrong.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Copies the rest behind what is recorded, with a record at every checkpoint, and proves the prefix meanwhile.
/// Returns the chaining values of all blocks and how many damaged ones were copied again.
fn run<D: Disk>(disk: &D, want: &Want<'_>, begun: &Begun<D>) -> Result<(Vec<Cv>, u64), Fault> {
    (want.met)(begun.bytes);
    want.source.start(begun.bytes).map_err(|e| Fault::os(Side::Source, Op::Receive, e))?;
    let (blocks, wrong) = std::thread::scope(|scope| {
        let proves = want.resume == Resume::Proved && !begun.blocks.is_empty();
        let prove = || prove(disk, want, begun);
        let proof = proves.then(|| std::thread::Builder::new().spawn_scoped(scope, prove));
        let copied = rest(disk, want, begun);
        let proved = match proof {
            Some(Ok(proof)) => proof.join().unwrap_or_else(|_| Err(panicked())),
            // No thread could be had: then afterwards.
            Some(Err(_)) if copied.is_ok() => prove(),
            Some(Err(_)) | None => Ok(Vec::new()),
        };
        // A failed sync weighs more than an interrupted proof: it decides whether the stage may stay.
        copied.and_then(|blocks| proved.map(|wrong| (blocks, wrong)))
    })?;
    let after = want.source.info().map_err(of_source(want, Op::Stat))?;
    if !want.info.same_content(&after) {
        return Err(Fault::changed());
    }
    for block in &wrong {
        repair(disk, want, begun, *block)?;
    }
    if !wrong.is_empty() {
        disk.sync_data(&begun.file).map_err(dest(Op::Sync))?;
    }
    Ok((blocks, wrong.len() as u64))
}

/// Copies what is behind the last record. Where several threads copy, one more records behind them, so that the disk has
/// something to do while a sync is waited for. Returns the chaining values of all blocks.
fn rest<D: Disk>(disk: &D, want: &Want<'_>, begun: &Begun<D>) -> Result<Vec<Cv>, Fault> {
    if want.holes == Holes::Make {
        // A hole at the end has no length of its own, and no record may run ahead of the file.
        disk.set_len(&begun.file, want.info.size).map_err(dest(Op::SetLengthOf))?;
    }
    let told = |at, bytes| {
        if want.leave.is_some() {
            disk.forget(&begun.file, at, bytes);
        }
        forget_source(want, at, bytes);
    };
    let records =
        Records { disk, stage: &begun.file, session: &begun.session, size: want.info.size, told: &told };
    let recorder = Recorder::new(records, begun.log, begun.blocks.clone(), want.checkpoint_bytes);
    let copied = std::thread::scope(|scope| {
        let work = || recorder.work(|| want.source.works());
        // A thread that cannot be had is no error: then the copying threads record.
        let behind =
            (want.threads > 1).then(|| std::thread::Builder::new().spawn_scoped(scope, work).ok()).flatten();
        if behind.is_some() {
            recorder.goes_behind();
        }
        let copied = copy_blocks(disk, want, begun, &recorder);
        recorder.over();
        match behind.map(std::thread::ScopedJoinHandle::join) {
            Some(Err(_)) => Err(panicked()),
            Some(Ok(())) | None => copied,
        }
    });
    // What went wrong with recording decides whether the stage may stay.
    recorder.finish().and_then(|blocks| copied.map(|()| blocks))
}

fn panicked() -> Fault {
    Fault::ours(Side::Dest, Op::Copy, Code::Io, Reason::WorkerStopped)
}

/// A block that was damaged since: copied again, if the source still has what was recorded.
fn repair<D: Disk>(disk: &D, want: &Want<'_>, begun: &Begun<D>, block: u64) -> Result<(), Fault> {
    // Zeros are written too: what they replace is damage and not a hole.
    let cv = copy_block(disk, want, begun, block, Holes::Fill, &mut aligned())?;
    if begun.blocks.get(block as usize) == Some(&cv) { Ok(()) } else { Err(Fault::changed()) }
}

/// Copies all blocks behind the last record on several threads, as far ahead of the records as may be. What is whole, from
/// the first on without a gap, can also be recorded when it fails.
fn copy_blocks<D: Disk>(
    disk: &D,
    want: &Want<'_>,
    begun: &Begun<D>,
    recorder: &Recorder<'_, D>,
) -> Result<(), Fault> {
    let first = begun.blocks.len() as u64;
    if want.resume == Resume::Fast
        && let Some(file) = want.source.file()
    {
        return fast_stretches(disk, want, begun, file, recorder);
    }
    let comes_far = want.holes == Holes::Fill && want.source.file().is_none();
    let _others = want.source.stands_by();
    let copied = on_blocks_with(first..blocks_of(want.info.size), want.threads, aligned, |block, room| {
        let alarm = recorder.alarm();
        if !recorder.room_for(block) {
            return Ok(false);
        }
        let _works = want.source.works();
        let (end, begins) = recorder.step_of(block);
        if comes_far && (begins || block == first) {
            let room = end.saturating_mul(BLOCK_BYTES).min(want.info.size);
            disk.reserve(&begun.file, room).map_err(dest(Op::ReserveRoomFor))?;
        }
        let copied = copy_block(disk, want, begun, block, want.holes, room);
        // R5: what could not be written out weighs more than anything else that went wrong.
        if !recorder.write_behind(block * BLOCK_BYTES, block_bytes(block, want.info.size)) {
            return Ok(false);
        }
        let goes_on = recorder.copied(block, &[copied?]);
        alarm.disarm();
        Ok(goes_on)
    });
    if comes_far
        && copied.is_err()
        && let Ok(info) = disk.file_info(&begun.file)
    {
        // What was reserved ahead goes back, now that no worker writes any more. Where it does not, the next run cuts it.
        disk.set_len(&begun.file, info.size).ok();
    }
    copied
}

/// Reads, hashes and writes one block.
fn copy_block<D: Disk>(
    disk: &D,
    want: &Want<'_>,
    begun: &Begun<D>,
    block: u64,
    holes: Holes,
    room: &mut Aligned,
) -> Result<Cv, Fault> {
    let start = block * BLOCK_BYTES;
    let end = (start + BLOCK_BYTES).min(want.info.size);
    let write = |at, run: &[u8]| disk.write_at(&begun.file, at, run).map_err(dest(Op::Write));
    let read = |at, room: &mut [u8]| want.source.read_at(at, room).map_err(of_source(want, Op::Read));
    let around = |at, piece: &[u8]| match holes {
        Holes::Make => around_zeros(at, piece, write),
        Holes::Fill => write(at, piece),
    };
    let (cv, _) = fill_block(start..end, true, room, read, around, want.observe)?;
    // What crossed a wire is not what was sent: never recorded, never published.
    if want.source.claimed(block).is_some_and(|claimed| claimed != cv) {
        // Zeros are written too then: what they replace is wrong.
        if want.source.again(block) {
            return copy_block(disk, want, begun, block, Holes::Fill, room);
        }
        return Err(want.source.differs(block));
    }
    Ok(cv)
}

/// `--fast`, stretch by stretch.
fn fast_stretches<D: Disk>(
    disk: &D,
    want: &Want<'_>,
    begun: &Begun<D>,
    file: &OwnedFd,
    recorder: &Recorder<'_, D>,
) -> Result<(), Fault> {
    let mut at = begun.bytes;
    while at < want.info.size {
        let alarm = recorder.alarm();
        let first = at / BLOCK_BYTES;
        let last = recorder.stretch_of(first);
        if !recorder.room_for(last - 1) {
            return Ok(());
        }
        let end = last.saturating_mul(BLOCK_BYTES).min(want.info.size);
        let values = fast_stretch(disk, want, begun, file, at..end)?;
        if !recorder.copied(first, &values) {
            return Ok(());
        }
        if !(want.observe)(end - at) {
            return Err(Fault::interrupted());
        }
        alarm.disarm();
        at = end;
    }
    Ok(())
}

/// The kernel copies, or where there shall be holes what is no zeros; nothing is hashed but the block that a resume will look at.
fn fast_stretch<D: Disk>(
    disk: &D,
    want: &Want<'_>,
    begun: &Begun<D>,
    file: &OwnedFd,
    range: std::ops::Range<u64>,
) -> Result<Vec<Cv>, Fault> {
    let (at, end) = (range.start, range.end);
    match want.holes {
        Holes::Fill => {
            if disk.copy_range(file, &begun.file, at, end - at)? != end - at {
                return Err(Fault::changed());
            }
        }
        // No call of the kernel's looks for zeros, and what is a hole already need not be read.
        Holes::Make => {
            let write = |at, run: &[u8]| disk.write_at(&begun.file, at, run).map_err(dest(Op::Write));
            let read = |at, room: &mut [u8]| {
                want.source.read_at(at, room).map_err(|e| Fault::os(Side::Source, Op::Read, e))
            };
            let mut room = aligned();
            for data in Extents::within(file.as_fd(), at..end) {
                let whole = data.end;
                if in_pieces(data, room.all(), read, |at, piece| around_zeros(at, piece, write))? != whole {
                    return Err(Fault::changed());
                }
            }
        }
    }
    let (first, last) = (at / BLOCK_BYTES, blocks_of(end));
    let mut blocks = vec![[0; 32]; (last - first) as usize];
    let tail = stage_cv(disk, want, &begun.file, last - 1)?;
    if let Some(slot) = blocks.last_mut() {
        *slot = tail;
    }
    Ok(blocks)
}

/// Reads the whole stage back, from stable storage (`-V=direct`) or not, and compares it with what was read from the source.
pub(crate) fn read_back<D: Disk>(disk: &D, want: &Want<'_>, filled: &FilledPart<D>) -> Result<(), Fault> {
    let info = disk.file_info(&filled.file).map_err(dest(Op::StatUnfinished))?;
    let mismatch = || Fault::ours(Side::Dest, Op::Verify, Code::Mismatch, Reason::NotWhatWasRead);
    if info.size != want.info.size {
        return Err(mismatch());
    }
    let direct = if want.past_cache { Some(disk.direct(&filled.file).map_err(no_direct)?) } else { None };
    on_blocks(0..filled.blocks.len() as u64, want.threads, |block| {
        let cv = match &direct {
            Some(file) => {
                let read = |at, room: &mut [u8]| disk.read_direct(file, at, room).map_err(dest(Op::ReadBack));
                aligned_cv(block, want.info.size, read)?.0
            }
            None => stage_cv(disk, want, &filled.file, block)?,
        };
        if Some(&cv) != filled.blocks.get(block as usize) {
            return Err(mismatch());
        }
        if let Some(work) = want.work {
            work.verifying.did(0, block_bytes(block, want.info.size));
        }
        if (want.observe)(0) { Ok(true) } else { Err(Fault::interrupted()) }
    })
}
