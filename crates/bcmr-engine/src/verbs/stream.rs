//! Operands that are streams: a FIFO or a character device that is named itself is read to its end, or written into, as
//! with cp. V4 holds for what lies in a tree: nothing special is ever opened there.
//!
//! Must not name anything: what is read is held in a file without a name, and landed as any other file is.

use crate::disk::reader;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Action, Cancel, Event, Front, HearingFront, Question, Summary, Watch};
use crate::policy::{
    CopyPolicy, CopyRequest, Ends, Follow, Landing, Mirror, Privileged, Resume, Target, Verify,
};
use crate::receiver::plan::{Verdict, decide, refused};
use crate::tally::Tally;
use crate::verbs::operands::{self, Place, Reach, Source, Where};
use fastcopy::dir::open_to_write;
use fastcopy::meta::{Info, Kind, Time};
use fastcopy::read_write::{open_unblocked, write_stream, write_unblocked};
use fastcopy::{Scratch, poll};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Read and written at a time, in bytes.
pub(crate) const PIECE_BYTES: usize = 128 << 10;
/// The same into a pipe, which takes two of them: while one is read at its other end, the next is written. With 64 KiB, all
/// that it takes, both ends wait for each other, and a copy from memory takes 1.7 times as long.
const PIPE_PIECE_BYTES: usize = 32 << 10;
/// How often a cancel is looked for while nothing comes.
const LOOK: Duration = Duration::from_millis(100);
/// The mode that a new file has before the umask.
const NEW_FILE: u32 = 0o666;

/// What became of a request.
pub(crate) enum Streamed {
    /// It is about files: nothing was done.
    No(CopyRequest),
    /// The stream was read to its end; the request is about what holds it now.
    Held(CopyRequest, HeldStream),
    /// All of it is done.
    Done(Summary),
}

/// What was read of a stream, in a file without a name.
pub(crate) struct HeldStream {
    _file: File,
    /// How it is reached.
    path: PathBuf,
    /// What the stream was called.
    stream: PathBuf,
}

impl HeldStream {
    /// A front that tells of the stream where the file is told of.
    pub(crate) fn front<'h>(&'h self, front: &'h dyn Front) -> impl Front + 'h {
        HearingFront::new(front, |front: &dyn Front, event| {
            front.event(match event {
                Event::Item { action, src, dst, bytes } => {
                    Event::Item { action, src: self.called(src), dst, bytes }
                }
                Event::Failed(e) => Event::Failed(self.error(e)),
                Event::Warning(e) => Event::Warning(self.error(e)),
                other => other,
            });
        })
    }

    fn called(&self, path: PathBuf) -> PathBuf {
        if path == self.path { self.stream.clone() } else { path }
    }

    /// The same error, of the stream.
    pub(crate) fn error(&self, e: Error) -> Error {
        Error { path: self.called(e.path), other: e.other.map(|path| self.called(path)), ..e }
    }
}

/// Takes a request of one operand that is a stream, or whose destination is one.
///
/// # Errors
/// The stream cannot be read, or what is read cannot be held or written.
pub(crate) fn take(request: CopyRequest, ends: Ends, watch: Watch<'_>) -> Result<Streamed> {
    match ends {
        Ends::Named => {}
        Ends::From(from) => return take_input(request, from, watch),
        Ends::To(to) => return pour_out(&request, to, watch).map(Streamed::Done),
    }
    let Some((Source::Named { dir, name, info, follow }, there)) = stream_of(&request) else {
        return Ok(Streamed::No(request));
    };
    let request = in_its_place(request, there.as_ref());
    if info.kind == Kind::File && matches!(there, Some(InPlace::OpenFile)) {
        return Ok(Streamed::No(request));
    }
    let path = request.sources.first().cloned().unwrap_or_default();
    // Nothing says when the next byte comes.
    watch.front.goes_on();
    let (from, opened) = dir.open_file(name.as_name(), follow)?;
    if opened.kind != info.kind {
        let note = Reason::SomethingElseThere;
        return Err(Error::ours(Code::SourceChanged, Op::Open, path, note));
    }
    let mut from = File::from(from);
    let tally = Tally::new(watch);
    if let Some(InPlace::Stream(there)) = there {
        let shown = request.target.path().clone();
        if !is_written(&request.policy, (&info, &path), (&there, &shown), &tally)? {
            return Ok(Streamed::Done(tally.summary()));
        }
        let Some(to) = open_stream(&request, &shown, there.kind, watch.cancel)? else {
            return Ok(Streamed::Done(tally.summary()));
        };
        let kind = Info::of(&to).map_err(|e| Error::os(Op::Stat, &shown, e))?.kind;
        if !kind.is_stream() {
            return Err(Error::ours(Code::InTheWay, Op::WriteInto, shown, Reason::SomethingElseThere));
        }
        let bytes = pour_into(&mut from, &to, &path, &shown, watch)?;
        return Ok(Streamed::Done(poured(&tally, bytes, path, shown)));
    }
    let (dir, to) = match operands::target(&Reach::Anywhere, &request.target, 1, operands::DestLink::Through)?
    {
        Where::Into(place) => {
            let to = place.node.join(name.as_name());
            (place, Target::Exactly(to))
        }
        Where::Name { dir, .. } => (dir, Target::Exactly(request.target.path().clone())),
        Where::Whole(_) => return Ok(Streamed::No(request)),
    };
    let request = CopyRequest { target: to, ..request };
    hold(request, &mut from, &path, &dir, &tally)
}

/// What is at a destination and is written into where it is.
enum InPlace {
    Stream(Info),
    /// A file under a name for what this process has open.
    OpenFile,
}

/// The source of a request of one operand that is a stream, or whose destination is written into where it is, and what is there.
fn stream_of(request: &CopyRequest) -> Option<(Source, Option<InPlace>)> {
    let CopyPolicy { recursive, specials, follow, mirror, .. } = request.policy;
    let ([path], None, Mirror::Off) = (request.sources.as_slice(), &request.names, mirror) else {
        return None;
    };
    let is_read = !recursive && !specials;
    let there = in_place_at(&request.target);
    // What is wrong with the source is told by the copy.
    let source = operands::source(&Reach::Anywhere, path, follow, request.policy.preserve.at_source).ok()?;
    let Source::Named { info, .. } = &source else { return None };
    let is_of_stream = is_read && info.kind.is_stream() || there.is_some() && info.kind == Kind::File;
    is_of_stream.then_some((source, there))
}

/// The request, where a file is there that this process has open.
fn in_its_place(request: CopyRequest, there: Option<&InPlace>) -> CopyRequest {
    match there {
        Some(InPlace::OpenFile) => CopyRequest { policy: into_open_file(&request.policy), ..request },
        _ => request,
    }
}

/// The policy by which a dry run says what [`take`] would do of a request; `None` for one that is about files.
pub(crate) fn foretold(request: &CopyRequest) -> Option<CopyPolicy> {
    let (_, there) = stream_of(request)?;
    Some(match there {
        Some(InPlace::Stream(_)) => into_stream(&request.policy),
        Some(InPlace::OpenFile) => into_open_file(&request.policy),
        None => request.policy.clone(),
    })
}

/// What becomes of the operand of such a request, as far as that is known before it is read: what does not go into another stream
/// is held in a file, newer than all that is there and of any length.
pub(crate) fn foreseen(info: &Info, there: Option<&Info>, policy: &CopyPolicy) -> Verdict {
    let mut file = as_file(info);
    if info.kind.is_stream() && there.is_none_or(|there| !there.kind.is_stream()) {
        (file.size, file.mtime) = (u64::MAX, Time { sec: i64::MAX, nsec: 0 });
    }
    match decide(&file, there, policy) {
        // Only reading it tells whether it begins like what is there.
        Verdict::Append { .. } => Verdict::Append { proved: false },
        verdict => verdict,
    }
}

/// What goes into a stream that is there is written in place.
fn into_stream(policy: &CopyPolicy) -> CopyPolicy {
    CopyPolicy { landing: Landing::InPlace, ..policy.clone() }
}

/// So is what goes into a file that is open already: it is none that an interrupted run goes on with.
fn into_open_file(policy: &CopyPolicy) -> CopyPolicy {
    CopyPolicy { resume: Resume::Off, ..into_stream(policy) }
}

/// Whether the policy has what is at the source written into the stream that is there, decided as for any other file that is
/// written in place. What stays is told.
fn is_written(
    policy: &CopyPolicy,
    (info, path): (&Info, &Path),
    (there, shown): (&Info, &Path),
    tally: &Tally<'_>,
) -> Result<bool> {
    let goes = match decide(&as_file(info), Some(there), &into_stream(policy)) {
        Verdict::Keep => false,
        Verdict::Ask => tally.ask(Question::Replace(shown.to_owned())),
        Verdict::Refuse(code, why) => return Err(Error::ours(code, refused(why, false), shown, why)),
        _ => true,
    };
    if !goes {
        tally.kept.fetch_add(1, Ordering::Relaxed);
        tally.item(Action::Kept, 0, || (path.to_owned(), shown.to_owned()));
    }
    Ok(goes)
}

/// What is a stream itself is read as a file.
pub(crate) fn as_file(info: &Info) -> Info {
    Info { kind: Kind::File, ..*info }
}

/// Reads a stream to its end into a file without a name in the directory where it is to land, and makes the request one
/// about that.
fn hold(
    request: CopyRequest,
    from: &mut File,
    path: &Path,
    place: &Place,
    tally: &Tally<'_>,
) -> Result<Streamed> {
    let watch = tally.watch;
    let shown = request.target.path().clone();
    let held = place.dir.unnamed(NEW_FILE & !request.policy.umask);
    let held = File::from(held.map_err(|e| Error::os(Op::HoldWhatIsReadFor, &shown, e))?);
    pour_into(from, &held, path, &shown, watch)?;
    if watch.cancel.is_set() {
        return Ok(Streamed::Done(tally.summary()));
    }
    // It is counted when it lands.
    watch.progress.bytes_done.store(0, Ordering::Relaxed);
    let itself = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    let held = HeldStream { _file: held, path: itself.clone(), stream: path.to_owned() };
    Ok(Streamed::Held(CopyRequest { sources: vec![itself], ..request }, held))
}

/// What is read from `from` lands under the target's name, which cannot be a directory: there is no other name to take.
fn take_input(request: CopyRequest, mut from: File, watch: Watch<'_>) -> Result<Streamed> {
    let tally = Tally::new(watch);
    let shown = request.target.path().clone();
    let source = request.sources.first().cloned().unwrap_or_else(|| "-".into());
    let there = in_place_at(&request.target);
    let request = in_its_place(request, there.as_ref());
    if let Some(InPlace::Stream(there)) = there {
        let Some(to) = open_stream(&request, &shown, there.kind, watch.cancel)? else {
            return Ok(Streamed::Done(tally.summary()));
        };
        let bytes = pour_into(&mut from, &to, &source, &shown, watch)?;
        return Ok(Streamed::Done(poured(&tally, bytes, source, shown)));
    }
    operands::make_path(&Reach::Anywhere, &request.target, 1, &request.policy)?;
    match operands::target(&Reach::Anywhere, &request.target, 1, operands::DestLink::Through)? {
        Where::Name { dir, slash: false, .. } => {
            let request = CopyRequest { target: Target::Exactly(shown), ..request };
            hold(request, &mut from, &source, &dir, &tally)
        }
        _ => Err(Error::ours(Code::IsDirectory, Op::CopyTo, shown, Reason::IsDirectory)),
    }
}

/// One file, or a stream that is named, is written into `to`.
fn pour_out(request: &CopyRequest, to: File, watch: Watch<'_>) -> Result<Summary> {
    let path = request.sources.first().cloned().unwrap_or_default();
    let shown = request.target.path().clone();
    let source =
        operands::source(&Reach::Anywhere, &path, request.policy.follow, request.policy.preserve.at_source)?;
    let Source::Named { dir, name, info, follow } = source else {
        return Err(Error::ours(Code::IsDirectory, Op::Read, path, Reason::IsDirectory));
    };
    if info.kind == Kind::Dir {
        return Err(Error::ours(Code::IsDirectory, Op::Read, path, Reason::IsDirectory));
    }
    if info.kind != Kind::File && !info.kind.is_stream() {
        return Err(Error::ours(Code::Special, Op::Read, path, Reason::SomethingElseThere));
    }
    let (from, _) = dir.open_file(name.as_name(), follow)?;
    let tally = Tally::new(watch);
    let bytes = pour_into(&mut File::from(from), &to, &path, &shown, watch)?;
    Ok(poured(&tally, bytes, path, shown))
}

/// A stream to write into; `None` when the user wants to stop before it is there. Not with `-V`: a pipe gives nothing back to
/// compare, and exit 0 would say that it was proved.
fn open_stream(request: &CopyRequest, shown: &Path, kind: Kind, cancel: &Cancel) -> Result<Option<File>> {
    if request.policy.verify != Verify::Off {
        return Err(Error::ours(Code::Unsupported, Op::Verify, shown, Reason::KeepsNothing));
    }
    let Some(opened) = open(shown, kind, cancel).map_err(|e| Error::os(Op::Open, shown, e))? else {
        return Ok(None);
    };
    let info = Info::of(&opened).map_err(|e| Error::os(Op::Stat, shown, e))?;
    operands::followed(&Reach::Anywhere, shown, &info)?;
    Ok(Some(opened.into()))
}

/// What is of this kind, to be written into: a FIFO once it has a reader. `None`: the user wants to stop.
pub(crate) fn open(path: &Path, kind: Kind, cancel: &Cancel) -> io::Result<Option<OwnedFd>> {
    let open = || open_to_write(path, kind);
    if kind == Kind::Fifo { reader::awaited(open, &|| !cancel.is_set()) } else { open().map(Some) }
}

/// Counts one stream that was poured.
fn poured(tally: &Tally<'_>, bytes: u64, path: PathBuf, shown: PathBuf) -> Summary {
    if !tally.watch.cancel.is_set() {
        tally.files.fetch_add(1, Ordering::Relaxed);
        tally.bytes.fetch_add(bytes, Ordering::Relaxed);
        tally.streamed.fetch_add(bytes, Ordering::Relaxed);
        tally.done(1);
        tally.item(Action::Copied, bytes, || (path, shown));
    }
    tally.summary()
}

/// What a destination leads to that is written into where it is. A block device is a disk, and is not meant by a name typed by
/// chance.
fn in_place_at(target: &Target) -> Option<InPlace> {
    if matches!(target, Target::Into(_)) {
        return None;
    }
    let path = target.path();
    let there = operands::source(&Reach::Anywhere, path, Follow::Operands, Privileged::Real);
    match there {
        Ok(Source::Named { info, .. }) if info.kind.is_stream() => Some(InPlace::Stream(info)),
        Ok(Source::Named { info, .. }) if info.kind == Kind::File && operands::is_open_file(path) => {
            Some(InPlace::OpenFile)
        }
        _ => None,
    }
}

/// As [`pour`], into a descriptor that takes bytes in order.
pub(crate) fn pour_into(
    from: &mut File,
    to: &impl AsFd,
    src: &Path,
    dst: &Path,
    watch: Watch<'_>,
) -> Result<u64> {
    let go_on = || !watch.cancel.is_set();
    match open_unblocked(to).map_err(|e| Error::os(Op::Stat, dst, e))? {
        Some(pipe) => {
            pour(from, PIPE_PIECE_BYTES, |piece| write_unblocked(&pipe, piece, &go_on), src, dst, watch)
        }
        None => pour(from, PIECE_BYTES, |piece| write_stream(to, piece, &go_on), src, dst, watch),
    }
}

/// Copies up to the end, or until the user wants to stop, in pieces of up to so many bytes. `put` takes a piece, and says
/// whether it has taken all of it.
pub(crate) fn pour(
    from: &mut File,
    piece_bytes: usize,
    mut put: impl FnMut(&[u8]) -> io::Result<bool>,
    src: &Path,
    dst: &Path,
    watch: Watch<'_>,
) -> Result<u64> {
    let (mut scratch, mut bytes) = (Scratch::new(), 0);
    let room = scratch.buffer();
    let piece_bytes = piece_bytes.min(room.len());
    while has_come(&*from, src, watch.cancel)? {
        let got = match from.read(room.get_mut(..piece_bytes).unwrap_or_default()) {
            Ok(0) => break,
            Ok(got) => got,
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => continue,
            Err(e) => return Err(Error::os(Op::Read, src, e)),
        };
        let piece = room.get(..got).unwrap_or_default();
        if !put(piece).map_err(|e| Error::os(Op::Write, dst, e))? {
            break;
        }
        bytes += got as u64;
        watch.progress.bytes_done.fetch_add(got as u64, Ordering::Relaxed);
    }
    Ok(bytes)
}

/// Waits until there is something to read, or the end. `false`: the user wants to stop.
pub(crate) fn has_come(from: &impl AsFd, src: &Path, cancel: &Cancel) -> Result<bool> {
    while !cancel.is_set() {
        // A FIFO that was opened before it has a writer has not ended: it says nothing at all.
        let ready = poll::readable(&[from.as_fd()], LOOK).map_err(|e| Error::os(Op::Read, src, e))?;
        if ready.contains(&true) {
            return Ok(true);
        }
    }
    Ok(false)
}
