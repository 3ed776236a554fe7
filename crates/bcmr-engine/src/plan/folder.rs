//! The directory of a plan: its files, read frame by frame and written whole or not at all.
//!
//! Must not know what entries are copied to, nor when.

use super::format::{
    Damage, Digest, FRAME_HEAD_BYTES, FrameChain, FrameKind, FrameWriter, LandedEntry, PlanHeader,
    PlanNumber, PlannedDir, ResultFrame, ShardCounts, ShardTotals, all_fit, entries_of,
};
use super::requests::PlanVerb;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::receiver::land;
use crate::stage;
use fastcopy::dir::{Dir, ListBuffer, Name, NameBuf};
use fastcopy::errno;
use fastcopy::meta::{Info, Kind};
use fastcopy::sync;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// What the file with the plan itself is called; it comes last, so a directory without it is no plan.
const PLAN: &str = "plan";
/// What no other plan has: a `plan` that was killed and is run again makes the same one.
const NUMBER: &str = "number";
/// Where results are.
const RESULTS: &str = "results";
/// Where claims are.
const CLAIMS: &str = "claims";
/// The file that says that a tree is being published.
const FINISHING: &str = "finishing";
/// The file that says what was published.
pub(super) const RECEIPT: &str = "receipt";
/// The hashes of all files.
pub(super) const MANIFEST: &str = "manifest";
/// Bytes of the plan itself, at most: the most shards there may be.
const PLAN_BYTES_MAX: u64 = 256 << 20;
/// Bytes of the other small files.
const NOTE_BYTES_MAX: u64 = 64 << 10;
/// Bytes read or written at a time.
const PIECE_BYTES: usize = 128 << 10;

fn run_name(number: u128) -> io::Result<NameBuf> {
    stage::numbered(number).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// A file with what one of several processes has found, for [`open_run`] in another one. What a run that was killed has left
/// goes when the next plan is made.
pub(super) fn run_file(dir: &Dir, number: u128) -> io::Result<File> {
    Ok(File::from(land::new_file(dir, run_name(number)?.as_name(), 0o600)?))
}

/// Opens such a file, which has so many bytes and goes with its descriptor.
pub(super) fn open_run(dir: &Dir, number: u128, bytes: u64) -> io::Result<File> {
    let name = run_name(number)?;
    let file = open(dir, name.as_name())?.ok_or(io::ErrorKind::NotFound)?;
    dir.remove_file(name.as_name())?;
    if file.metadata()?.len() == bytes { Ok(file) } else { Err(io::ErrorKind::InvalidData.into()) }
}

fn random() -> io::Result<NameBuf> {
    stage::random().ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// A name of ours.
pub(super) fn name_of(text: &str) -> io::Result<NameBuf> {
    NameBuf::new(text.as_bytes()).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn is_absent(e: &io::Error) -> bool {
    e.raw_os_error() == Some(errno::ENOENT)
}

/// What reading a file says of its bytes.
pub(super) fn damaged(damage: Damage, path: &Path) -> Error {
    Error::ours(Code::Io, Op::ReadPlan, path, damage.0)
}

fn swept(dir: &Dir, is_left: impl Fn(Name<'_>) -> bool) -> io::Result<()> {
    let mut left: Vec<NameBuf> = Vec::new();
    let mut done = dir.reopen().and_then(|dir| {
        dir.list(&mut ListBuffer::new(), |entry| {
            if is_left(entry.name) {
                left.push(entry.name.to_owned());
            }
            true
        })
    });
    for name in left {
        done = done.and(dir.remove_file(name.as_name()));
    }
    done
}

/// Opens a file of ours through no link; nothing but a regular file is read.
fn open(dir: &Dir, name: Name<'_>) -> io::Result<Option<File>> {
    match dir.open_file(name) {
        Ok(file) if Info::of(&file)?.kind == Kind::File => Ok(Some(File::from(file))),
        Ok(_) => Err(io::ErrorKind::InvalidInput.into()),
        Err(e) if is_absent(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

fn read_whole(dir: &Dir, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = open(dir, name_of(name)?.as_name())? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// A file that appears whole, on stable storage, or not at all.
pub(super) struct NewFile<'d> {
    dir: &'d Dir,
    now: NameBuf,
    out: BufWriter<File>,
}

impl<'d> NewFile<'d> {
    /// Begins one in `dir`, under a name that ends with `suffix` for as long as it is not whole.
    pub(super) fn begin(dir: &'d Dir) -> io::Result<NewFile<'d>> {
        NewFile::called(dir, random()?)
    }

    /// The same under this name.
    pub(super) fn called(dir: &'d Dir, now: NameBuf) -> io::Result<NewFile<'d>> {
        let file = File::from(land::new_file(dir, now.as_name(), 0o666)?);
        Ok(NewFile { dir, now, out: BufWriter::with_capacity(PIECE_BYTES, file) })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    /// What was written so far is on stable storage.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.out.flush()?;
        sync::data(self.out.get_ref())
    }

    /// Gives it its name, in the place of what has it.
    pub(super) fn name(mut self, name: &str) -> io::Result<()> {
        self.out.flush()?;
        sync::all(self.out.get_ref())?;
        land::give_name(self.dir, self.now.as_name(), self.dir, name_of(name)?.as_name(), false)?;
        sync::all(self.dir)
    }
}

/// Frames of a file, one after the other.
pub(super) struct FrameFile {
    file: BufReader<File>,
    chain: FrameChain,
}

/// Why there is no next frame.
pub(super) enum NoFrame {
    Os(io::Error),
    Damage(Damage),
}

impl NoFrame {
    fn told(self, path: &Path) -> Error {
        match self {
            NoFrame::Os(e) => Error::os(Op::ReadPlan, path, e),
            NoFrame::Damage(damage) => damaged(damage, path),
        }
    }
}

impl FrameFile {
    fn new(file: File, chain: FrameKind) -> FrameFile {
        FrameFile { file: BufReader::with_capacity(PIECE_BYTES, file), chain: FrameChain::new(chain) }
    }

    /// The payload of the next frame; `None` at the end.
    pub(super) fn next(&mut self) -> std::result::Result<Option<Vec<u8>>, NoFrame> {
        let mut head = [0; FRAME_HEAD_BYTES];
        let mut have = 0;
        while have < head.len() {
            match self.file.read(head.get_mut(have..).unwrap_or_default()) {
                Ok(0) if have == 0 => return Ok(None),
                Ok(0) => return Err(NoFrame::Damage(Damage(Reason::PlanDamaged))),
                Ok(n) => have += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(NoFrame::Os(e)),
            }
        }
        let length = FrameChain::length(&head).map_err(NoFrame::Damage)?;
        let mut payload = vec![0; length];
        match self.file.read_exact(&mut payload) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(NoFrame::Damage(Damage(Reason::PlanDamaged)));
            }
            Err(e) => return Err(NoFrame::Os(e)),
        }
        self.chain.take(&head, &payload).map_err(NoFrame::Damage)?;
        Ok(Some(payload))
    }
}

/// The entries of a shard, frame by frame.
pub(super) struct ShardEntries {
    frames: FrameFile,
    totals: ShardTotals,
    path: PathBuf,
    read: u32,
}

impl ShardEntries {
    /// The next frame; `None` after the last, once all that was read is what the plan says.
    pub(super) fn next(&mut self) -> Result<Option<Vec<PlannedDir>>> {
        let Some(payload) = self.frames.next().map_err(|e| e.told(&self.path))? else {
            if self.read != self.totals.frames || self.frames.chain.digest() != self.totals.digest {
                return Err(damaged(Damage(Reason::PlanDamaged), &self.path));
            }
            return Ok(None);
        };
        self.read += 1;
        entries_of(&payload).map(Some).map_err(|damage| damaged(damage, &self.path))
    }
}

/// What became of a shard, frame by frame.
pub(super) struct ShardResult {
    frames: FrameFile,
    path: PathBuf,
    verb: PlanVerb,
}

impl ShardResult {
    /// What became of a frame of entries, which is the next one.
    ///
    /// # Errors
    /// The result is not whole, or not that of these entries.
    pub(super) fn next(
        &mut self,
        index: u32,
        dirs: &[PlannedDir],
    ) -> Result<(ShardCounts, Vec<LandedEntry>)> {
        let wrong = || damaged(Damage(Reason::ResultDamaged), &self.path);
        let payload = match self.frames.next() {
            Ok(Some(payload)) => payload,
            Ok(None) | Err(NoFrame::Damage(_)) => return Err(wrong()),
            Err(NoFrame::Os(e)) => return Err(Error::os(Op::ReadPlan, &self.path, e)),
        };
        let Ok(ResultFrame::Entries { index: of, counts, landed }) = ResultFrame::decode(&payload) else {
            return Err(wrong());
        };
        if of != index || !all_fit(self.verb, dirs, &landed) {
            return Err(wrong());
        }
        Ok((counts, landed))
    }

    /// Whether nothing is missing after the last frame.
    pub(super) fn end(&mut self) -> Result<()> {
        let end = match self.frames.next() {
            Ok(Some(payload)) => ResultFrame::decode(&payload) == Ok(ResultFrame::End),
            Ok(None) | Err(NoFrame::Damage(_)) => false,
            Err(NoFrame::Os(e)) => return Err(Error::os(Op::ReadPlan, &self.path, e)),
        };
        if end { Ok(()) } else { Err(damaged(Damage(Reason::ResultDamaged), &self.path)) }
    }
}

/// A plan's directory.
pub(super) struct PlanFolder {
    pub(super) dir: Dir,
    pub(super) path: PathBuf,
}

impl PlanFolder {
    /// Opens one that is there.
    pub(super) fn open(path: &Path) -> Result<PlanFolder> {
        let dir = Dir::open(path).map_err(|e| {
            let absent = is_absent(&e);
            let e = Error::os(Op::ReadPlan, path, e);
            if absent { Error { note: Some(Reason::NoPlan.into()), ..e } } else { e }
        })?;
        Ok(PlanFolder { dir, path: path.to_owned() })
    }

    /// Makes one, or takes a directory in which no plan was finished.
    pub(super) fn make(parent: &Dir, name: Name<'_>, path: &Path) -> Result<PlanFolder> {
        let fail = |e| Error::os(Op::WritePlan, path, e);
        land::ensure_dir(parent, name, 0o777).map_err(fail)?;
        let dir = parent.open_dir_readable(name).map_err(fail)?;
        let folder = PlanFolder { dir, path: path.to_owned() };
        if read_whole(&folder.dir, PLAN, 1).map_err(fail)?.is_some() {
            return Err(Error::ours(Code::InTheWay, Op::WritePlan, path, Reason::PlanThere));
        }
        folder.sweep().map_err(fail)?;
        for below in [RESULTS, CLAIMS] {
            land::ensure_dir(&folder.dir, name_of(below).map_err(fail)?.as_name(), 0o777).map_err(fail)?;
        }
        Ok(folder)
    }

    /// What this plan has and no other one, drawn where it was not yet.
    pub(super) fn number(&self) -> Result<PlanNumber> {
        let known = read_whole(&self.dir, NUMBER, NOTE_BYTES_MAX);
        let known = known.map_err(|e| Error::os(Op::ReadPlan, self.file(NUMBER), e))?;
        if let Some(number) = known.and_then(|bytes| bytes.try_into().ok()) {
            return Ok(number);
        }
        let number = stage::random_number().to_be_bytes();
        self.write(NUMBER, &number)?;
        Ok(number)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The plan itself, and the hash that stands for it.
    pub(super) fn header(&self) -> Result<(PlanHeader, Digest)> {
        let path = self.file(PLAN);
        let bytes =
            read_whole(&self.dir, PLAN, PLAN_BYTES_MAX).map_err(|e| Error::os(Op::ReadPlan, &path, e))?;
        let Some(bytes) = bytes else {
            return Err(Error::ours(Code::NotFound, Op::ReadPlan, &self.path, Reason::NoPlan));
        };
        PlanHeader::decode(&bytes).map_err(|damage| damaged(damage, &path))
    }

    /// Writes the plan itself, after everything else.
    pub(super) fn write_header(&self, header: &PlanHeader) -> Result<()> {
        let (bytes, _) = header.encode();
        self.write(PLAN, &bytes)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let written = NewFile::begin(&self.dir).and_then(|mut file| {
            file.write(bytes)?;
            file.name(name)
        });
        written.map_err(|e| Error::os(Op::WritePlan, self.file(name), e))
    }

    /// Takes away what killed runs have left of files that belong here, which no other run tells from work under way. For
    /// the beginning and the end of a plan, when no other process writes here. What can go goes, whatever is wrong with another.
    ///
    /// # Errors
    /// The first that listing or removing met.
    pub(super) fn sweep(&self) -> io::Result<()> {
        swept(&self.dir, stage::is_random)
    }

    /// The same of results that were begun: for the end, once every shard has its own.
    ///
    /// # Errors
    /// As [`PlanFolder::sweep`].
    pub(super) fn sweep_results(&self) -> Result<()> {
        let swept = swept(&self.results()?, ResultFile::is_begun);
        swept.map_err(|e| Error::os(Op::CleanUp, self.file(RESULTS), e))
    }

    fn below(&self, name: &str) -> Result<Dir> {
        let fail = |e| Error::os(Op::ReadPlan, self.file(name), e);
        self.dir.open_dir_readable(name_of(name).map_err(fail)?.as_name()).map_err(fail)
    }

    /// Where results are.
    pub(super) fn results(&self) -> Result<Dir> {
        self.below(RESULTS)
    }

    /// Where claims are.
    pub(super) fn claims(&self) -> Result<Dir> {
        self.below(CLAIMS)
    }

    /// What the file with the entries of a shard is called.
    pub(super) fn entries_name(shard: u32) -> String {
        format!("shard-{shard}")
    }

    /// The path of a result, to show.
    pub(super) fn result_path(&self, shard: u32) -> PathBuf {
        self.file(RESULTS).join(shard.to_string())
    }

    /// The entries of a shard.
    pub(super) fn entries(&self, header: &PlanHeader, shard: u32) -> Result<ShardEntries> {
        let name = PlanFolder::entries_name(shard);
        let path = self.file(&name);
        let Some(totals) = header.shards.get(shard as usize).copied() else {
            let note = Reason::NoSuchShard.about(header.shards.len().saturating_sub(1));
            return Err(Error::ours(Code::Usage, Op::ReadPlan, &self.path, note));
        };
        let file = name_of(&name).and_then(|name| open(&self.dir, name.as_name()));
        let file = file.map_err(|e| Error::os(Op::ReadPlan, &path, e))?;
        let Some(file) = file else {
            return Err(damaged(Damage(Reason::PlanDamaged), &path));
        };
        let frames = FrameFile::new(file, FrameKind::Entries { shard });
        Ok(ShardEntries { frames, totals, path, read: 0 })
    }

    /// The result of a shard; `None` where there is none yet, or one of another plan.
    pub(super) fn result(
        &self,
        header: &PlanHeader,
        plan: &Digest,
        shard: u32,
    ) -> Result<Option<ShardResult>> {
        let path = self.result_path(shard);
        let results = self.results()?;
        let file = name_of(&shard.to_string()).and_then(|name| open(&results, name.as_name()));
        let Some(file) = file.map_err(|e| Error::os(Op::ReadPlan, &path, e))? else { return Ok(None) };
        let mut frames = FrameFile::new(file, FrameKind::Result { shard });
        match frames.next() {
            Ok(Some(payload)) if ResultFrame::decode(&payload) == Ok(ResultFrame::Begin { plan: *plan }) => {
                Ok(Some(ShardResult { frames, path, verb: header.verb }))
            }
            Err(NoFrame::Os(e)) => Err(Error::os(Op::ReadPlan, &path, e)),
            _ => Ok(None),
        }
    }

    /// Whether a shard has a result of this plan. A result gets its name when it is whole; whether it still is, only
    /// [`PlanFolder::is_done`] tells, which reads all of it.
    pub(super) fn has_result(&self, header: &PlanHeader, plan: &Digest, shard: u32) -> Result<bool> {
        Ok(self.result(header, plan, shard)?.is_some())
    }

    /// Shards whose results have their names.
    pub(super) fn with_results(&self) -> Result<HashSet<u32>> {
        let mut found = HashSet::new();
        let listed = self.results()?.list(&mut ListBuffer::new(), |entry| {
            let number = std::str::from_utf8(entry.name.bytes()).ok();
            found.extend(number.and_then(|name| name.parse::<u32>().ok()));
            true
        });
        listed.map_err(|e| Error::os(Op::ReadPlan, self.file(RESULTS), e))?;
        Ok(found)
    }

    /// Whether a shard has a whole result, which fits its entries.
    pub(super) fn is_done(&self, header: &PlanHeader, plan: &Digest, shard: u32) -> Result<bool> {
        let Some(mut result) = self.result(header, plan, shard)? else { return Ok(false) };
        let (mut entries, mut index) = (self.entries(header, shard)?, 0);
        while let Some(dirs) = entries.next()? {
            match result.next(index, &dirs) {
                Ok(_) => index += 1,
                Err(e) if e.source.is_some() => return Err(e),
                Err(_) => return Ok(false),
            }
        }
        match result.end() {
            Err(e) if e.source.is_some() => Err(e),
            ended => Ok(ended.is_ok()),
        }
    }

    /// Frames of a result that a run which was stopped had recorded, each by the index of its entries. What is behind the
    /// last whole one is passed over.
    pub(super) fn recorded(
        &self,
        results: &Dir,
        name: Name<'_>,
        plan: &Digest,
        shard: u32,
    ) -> io::Result<Vec<(u32, ShardCounts, Vec<LandedEntry>)>> {
        let Some(file) = open(results, name)? else { return Ok(Vec::new()) };
        let mut frames = FrameFile::new(file, FrameKind::Result { shard });
        let mut found = Vec::new();
        let mut begun = false;
        while let Ok(Some(payload)) = frames.next() {
            match ResultFrame::decode(&payload) {
                Ok(ResultFrame::Begin { plan: of }) if of == *plan => begun = true,
                Ok(ResultFrame::Entries { index, counts, landed }) if begun => {
                    found.push((index, counts, landed))
                }
                _ => break,
            }
        }
        Ok(found)
    }

    /// A note about how far finishing has come; `None`: it was not begun.
    pub(super) fn finishing(&self) -> Result<Option<Vec<u8>>> {
        read_whole(&self.dir, FINISHING, NOTE_BYTES_MAX)
            .map_err(|e| Error::os(Op::ReadPlan, self.file(FINISHING), e))
    }

    /// Notes it, on stable storage.
    pub(super) fn note_finishing(&self, note: &[u8]) -> Result<()> {
        self.write(FINISHING, note)
    }

    /// What was published, once it was.
    pub(super) fn receipt(&self) -> Result<Option<Vec<u8>>> {
        read_whole(&self.dir, RECEIPT, NOTE_BYTES_MAX)
            .map_err(|e| Error::os(Op::ReadPlan, self.file(RECEIPT), e))
    }

    /// Says what was published.
    pub(super) fn write_receipt(&self, text: &[u8]) -> Result<()> {
        self.write(RECEIPT, text)
    }
}

/// Writes the file with the entries of one shard.
pub(super) struct EntriesFile<'d> {
    file: NewFile<'d>,
    frames: FrameWriter,
    shard: u32,
    room: Vec<u8>,
    pub(super) totals: ShardTotals,
}

impl<'d> EntriesFile<'d> {
    pub(super) fn begin(dir: &'d Dir, shard: u32) -> io::Result<EntriesFile<'d>> {
        let frames = FrameWriter::new(FrameKind::Entries { shard });
        let totals = ShardTotals::default();
        Ok(EntriesFile { file: NewFile::begin(dir)?, frames, shard, room: Vec::new(), totals })
    }

    pub(super) fn frame(&mut self, payload: &[u8]) -> io::Result<()> {
        self.room.clear();
        self.frames.frame(payload, &mut self.room);
        self.totals.frames += 1;
        self.file.write(&self.room)
    }

    pub(super) fn end(self) -> io::Result<ShardTotals> {
        let digest = self.frames.digest();
        self.file.name(&PlanFolder::entries_name(self.shard))?;
        Ok(ShardTotals { digest, ..self.totals })
    }
}

/// Writes the result of one shard, frame by frame: what is in it survives a kill.
pub(super) struct ResultFile<'d> {
    file: NewFile<'d>,
    frames: FrameWriter,
    room: Vec<u8>,
}

impl<'d> ResultFile<'d> {
    /// What such a file is called until it is whole.
    pub(super) fn is_unfinished(name: Name<'_>, shard: u32) -> bool {
        ResultFile::begun_of(name) == Some(shard)
    }

    fn is_begun(name: Name<'_>) -> bool {
        ResultFile::begun_of(name).is_some()
    }

    /// The shard whose result is begun in a file of this name.
    fn begun_of(name: Name<'_>) -> Option<u32> {
        let mut parts = name.bytes().split(|b| *b == b'.');
        let shard = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
        parts.next()?;
        (parts.next() == Some(b"part")).then_some(shard)
    }

    pub(super) fn begin(results: &'d Dir, shard: u32, plan: &Digest) -> io::Result<ResultFile<'d>> {
        let random = random()?;
        let digits = random.bytes().iter().filter(|b| b.is_ascii_hexdigit()).skip(3).take(24);
        let digits: String = digits.map(|b| char::from(*b)).collect();
        let file = NewFile::called(results, name_of(&format!("{shard}.{digits}.part"))?)?;
        let mut file =
            ResultFile { file, frames: FrameWriter::new(FrameKind::Result { shard }), room: Vec::new() };
        file.frame(&ResultFrame::Begin { plan: *plan })?;
        Ok(file)
    }

    /// Its name until it is whole.
    pub(super) fn now(&self) -> Name<'_> {
        self.file.now.as_name()
    }

    pub(super) fn frame(&mut self, frame: &ResultFrame) -> io::Result<()> {
        self.room.clear();
        self.frames.frame(&frame.encode(), &mut self.room);
        self.file.write(&self.room)
    }

    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }

    /// It is whole: the shard is done.
    pub(super) fn end(mut self, shard: u32) -> io::Result<()> {
        self.frame(&ResultFrame::End)?;
        self.file.name(&shard.to_string())
    }
}
