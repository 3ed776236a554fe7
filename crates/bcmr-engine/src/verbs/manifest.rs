//! Manifests: the hashes of what was copied, in `b3sum`'s format, and proving them later.
//!
//! Must not decide what belongs in one, nor follow a link or leave the directory that is proved. A line is
//! `HASH  PATH`; where PATH holds a backslash or newline, these are `\\` and `\n`, and the line begins with a
//! backslash. Names that are not UTF-8 (or hold U+FFFD, which `b3sum` takes for one that was not) cannot be said.

use crate::awaited::{Awaited, is_stop};
use crate::disk::sys::Sys;
use crate::disk::{Dirs, tee};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Change, Event, Summary, Watch};
use crate::policy::{ManifestRequest, Target};
use crate::receiver::land;
use crate::sender::filter::Filter;
use crate::tally::Tally;
use crate::verbs::operands::{self, Where};
use fastcopy::dir::{Dir, Lock, Name, NameBuf, try_lock};
use fastcopy::errno;
use fastcopy::meta::{Info, Kind};
use fastcopy::sync;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, BufRead, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Hexadecimal digits of a hash.
const HEX: usize = 64;
/// Bytes of a line; more than any path a tree was ever seen to have, and a bound for a file that is no manifest.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Permission bits of one, before the umask.
const MODE: u32 = 0o666;

/// A manifest being written. Its name appears in the end, whole, or not at all.
pub(crate) struct Manifest {
    /// Paths are relative to this; what is on another machine says it before it says anything else.
    base: OnceLock<PathBuf>,
    /// As typed.
    path: PathBuf,
    dir: Dir,
    name: NameBuf,
    /// What has the name in the beginning.
    there: Option<(u64, u64)>,
    /// Its name before it has that.
    part: NameBuf,
    out: Mutex<BufWriter<File>>,
    /// The first line that could not be written.
    failed: Mutex<Option<io::Error>>,
}

impl Manifest {
    /// Begins `path`, for what is copied to `base`; where that is not known yet, [`Manifest::below`] says it.
    pub(crate) fn begin(path: &Path, base: Option<PathBuf>) -> Result<Manifest> {
        Manifest::begin_over(path, base, &|first_line| parse(first_line).is_ok())
    }

    /// The same for any file that `is_ours` knows by its first line; what is not is not replaced: it may be a source.
    fn begin_over(path: &Path, base: Option<PathBuf>, is_ours: &dyn Fn(&[u8]) -> bool) -> Result<Manifest> {
        let fail = |e| Error::os(Op::WriteManifest, path, e);
        let refuse = |code, why: Reason| Error::ours(code, Op::WriteManifest, path, why);
        let Where::Name { dir, name, slash: false } = operands::target_for(
            Op::WriteManifest,
            &operands::Reach::Anywhere,
            &Target::Exactly(path.to_owned()),
            1,
            operands::DestLink::Itself,
        )?
        else {
            return Err(refuse(Code::IsDirectory, Reason::IsDirectory));
        };
        let dir = dir.dir.try_clone().map_err(fail)?;
        let there = dir.look(name.as_name()).map_err(fail)?;
        if there.is_some_and(|i| i.kind != Kind::File) {
            return Err(refuse(Code::InTheWay, Reason::NoFileInTheWay));
        }
        if there.is_some_and(|i| i.size > 0) && !is_ours(&first_line(&dir, name.as_name()).map_err(fail)?) {
            return Err(refuse(Code::Refused, Reason::HoldsSomethingElse));
        }
        let home = land::home_of(&dir).map_err(fail)?;
        let part = home.manifest(name.as_name()).ok_or_else(|| refuse(Code::Io, Reason::NoNameForStage))?;
        clear(&dir, part.as_name(), path)?;
        // It has no name before the end: it may lie in what is copied.
        let file = land::scratch(&dir, MODE).map_err(fail)?;
        let out = Mutex::new(BufWriter::new(file));
        let base = base.map_or_else(OnceLock::new, OnceLock::from);
        let there = there.map(|i| i.id());
        Ok(Manifest { base, path: path.to_owned(), dir, name, there, part, out, failed: Mutex::new(None) })
    }

    /// Says what paths are relative to, once.
    pub(crate) fn below(&self, base: PathBuf) {
        self.base.get_or_init(|| base);
    }

    /// As it was typed.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a line. An error is the name's alone; what the disk says is kept for the end.
    pub(crate) fn add(&self, dst: &Path, hash: &[u8; 32]) -> Result<()> {
        let base = self.base.get().map_or(Path::new(""), PathBuf::as_path);
        let below = dst.strip_prefix(base).ok().filter(|p| !p.as_os_str().is_empty());
        // One file, whose name was typed, and may be a link's.
        let below = below.or_else(|| base.file_name().map(Path::new)).unwrap_or(dst);
        self.add_below(below.as_os_str().as_bytes(), hash, || dst.to_owned())
    }

    /// The same of a path below what paths are relative to; `shown` is the whole of it.
    pub(crate) fn add_below(
        &self,
        below: &[u8],
        hash: &[u8; 32],
        shown: impl FnOnce() -> PathBuf,
    ) -> Result<()> {
        let Some(line) = line(below, hash) else {
            let note = Reason::NameNotUtf8;
            return Err(Error::ours(Code::Unsupported, Op::WriteIntoTheManifest, shown(), note));
        };
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(e) = out.write_all(line.as_bytes()) {
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
        }
        Ok(())
    }

    /// Adds a line for what another machine says has landed there.
    ///
    /// # Errors
    /// As [`Manifest::add`]; or it says so of something that is not below the target (V12).
    pub(crate) fn add_told(&self, dst: &Path, hash: &[u8; 32]) -> Result<()> {
        let base = self.base.get().map_or(Path::new(""), PathBuf::as_path);
        let below = dst
            .strip_prefix(base)
            .is_ok_and(|rest| rest.components().all(|part| matches!(part, Component::Normal(_))));
        if !below || base.as_os_str().is_empty() {
            let note = Reason::LandedElsewhere;
            return Err(Error::ours(Code::Protocol, Op::WriteIntoTheManifest, dst, note));
        }
        self.add(dst, hash)
    }

    /// Ends it. Only a complete copy gets a manifest: a reader that finds one may rely on it.
    pub(crate) fn finish(self, tally: &Tally<'_>) {
        let complete = tally.absent.load(Relaxed) == 0 && tally.all_there();
        let path = self.path().to_owned();
        match self.end(complete) {
            Err(e) => tally.lost(e),
            Ok(()) if complete => {}
            Ok(()) => {
                let note = Reason::OnlyCompleteCopy;
                tally.warn(Error::ours(Code::Refused, Op::WriteManifest, path, note));
            }
        }
    }

    /// Gives it its name, on the medium; or lets it go, when the copy is not `complete`.
    pub(crate) fn end(self, complete: bool) -> Result<()> {
        let Manifest { path, dir, name, there, part, out, failed, .. } = self;
        let fail = |e| Error::os(Op::WriteManifest, &path, e);
        if let Some(e) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(fail(e));
        }
        if !complete {
            return Ok(());
        }
        let out = out.into_inner().unwrap_or_else(PoisonError::into_inner);
        let file = out.into_inner().map_err(io::IntoInnerError::into_error).map_err(fail)?;
        // This run may have copied something to that very name, and another may have written its manifest.
        let now = dir.look(name.as_name()).map_err(fail)?;
        if now.is_some_and(|now| Some(now.id()) != there) {
            return Err(Error::ours(Code::Refused, Op::WriteManifest, &path, Reason::BecameAnother));
        }
        clear(&dir, part.as_name(), &path)?;
        let named = land::name_scratch(&dir, file, part.as_name(), MODE).and_then(|file| {
            sync::all(&file)?;
            land::give_name(&dir, part.as_name(), &dir, name.as_name(), false)?;
            sync::all(&dir)
        });
        let removed = match &named {
            Err(_) => Sys::new().remove_file(&dir, part.as_name()),
            Ok(()) => Ok(()),
        };
        named.and(removed).map_err(fail)
    }
}

/// The first line of the file `name`, without its newline.
fn first_line(dir: &Dir, name: Name<'_>) -> io::Result<Vec<u8>> {
    let file = io::BufReader::new(File::from(dir.open_file(name)?));
    let mut line = Vec::new();
    file.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    line.pop_if(|last| *last == b'\n');
    Ok(line)
}

/// Takes away what a killed run left under `part`; it is refused where a run that goes on has it.
fn clear(dir: &Dir, part: Name<'_>, path: &Path) -> Result<()> {
    let cleared = match dir.open_read_write(part) {
        Ok(old) if try_lock(&old) == Lock::Busy => {
            let why = Reason::AnotherWritesManifest;
            return Err(Error::ours(Code::Refused, Op::WriteManifest, path, why));
        }
        Ok(_) => Sys::new().remove_file(dir, part),
        Err(e) if e.raw_os_error() == Some(errno::ENOENT) => Ok(()),
        Err(e) => Err(e),
    };
    cleared.map_err(|e| Error::os(Op::WriteManifest, path, e))
}

/// A file that a person named, and that is written in the end: its name appears then, whole, or not at all.
pub struct WholeFile(Manifest);

impl WholeFile {
    /// Makes sure that it can be written. What is there already must be empty, or `is_ours` by its first line.
    ///
    /// # Errors
    /// It cannot.
    pub fn begin(path: &Path, is_ours: &dyn Fn(&[u8]) -> bool) -> Result<WholeFile> {
        Manifest::begin_over(path, None, is_ours).map(WholeFile).map_err(|e| Error { op: Op::Write, ..e })
    }

    /// Writes it and gives it its name.
    ///
    /// # Errors
    /// The system's; nothing is left of it then.
    pub fn end(self, text: &[u8]) -> Result<()> {
        let written = self.0.out.lock().unwrap_or_else(PoisonError::into_inner).write_all(text);
        if let Err(e) = written {
            self.0.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
        }
        self.0.end(true).map_err(|e| Error { op: Op::Write, ..e })
    }

    /// Takes back what was begun.
    ///
    /// # Errors
    /// The system's.
    pub fn give_up(self) -> Result<()> {
        self.0.end(false).map_err(|e| Error { op: Op::Write, ..e })
    }
}

/// A line with its newline; `None` for a name that cannot be said.
fn line(path: &[u8], hash: &[u8; 32]) -> Option<String> {
    let path = std::str::from_utf8(path).ok().filter(|p| !p.contains('\u{fffd}'))?;
    let hash = blake3::Hash::from_bytes(*hash).to_hex();
    Some(if path.contains(['\\', '\n']) {
        format!("\\{hash}  {}\n", path.replace('\\', "\\\\").replace('\n', "\\n"))
    } else {
        format!("{hash}  {path}\n")
    })
}

/// What a line says: the names that lead to a file, and its hash.
fn parse(line: &[u8]) -> std::result::Result<(Vec<NameBuf>, blake3::Hash), Reason> {
    let escaped = line.first() == Some(&b'\\');
    let line = line.get(usize::from(escaped)..).unwrap_or_default();
    let (hash, path) = line.split_at_checked(HEX).ok_or(Reason::NoManifestLine)?;
    let path = path.strip_prefix(b"  ").ok_or(Reason::NoManifestLine)?;
    let hash = blake3::Hash::from_hex(hash).map_err(|_| Reason::NoManifestLine)?;
    let path = if escaped { unescape(path).ok_or(Reason::WronglyEscaped)? } else { path.to_vec() };
    let mut names = Vec::new();
    for part in Path::new(OsStr::from_bytes(&path)).components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => {
                names.push(NameBuf::new(name.as_bytes()).ok_or(Reason::ItsNameWithNul)?);
            }
            Component::RootDir | Component::Prefix(_) => return Err(Reason::ItsNameNotRelative),
            Component::ParentDir => return Err(Reason::ItsNameWithDotDot),
        }
    }
    if names.is_empty() { Err(Reason::NamesNothing) } else { Ok((names, hash)) }
}

fn unescape(path: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(path.len());
    let mut bytes = path.iter();
    while let Some(byte) = bytes.next() {
        match (byte, byte == &b'\\') {
            (_, false) => out.push(*byte),
            (_, true) => match bytes.next()? {
                b'n' => out.push(b'\n'),
                b'\\' => out.push(b'\\'),
                _ => return None,
            },
        }
    }
    Some(out)
}

/// Entrance for the fuzzer: any bytes as a line, and a line that was understood says the same when it is written again.
#[cfg(fuzzing)]
pub fn fuzz(data: &[u8]) {
    let Ok((names, hash)) = parse(data) else { return };
    let path = names.iter().map(|name| name.bytes()).collect::<Vec<_>>().join(&b'/');
    assert!(!path.is_empty() && !path.contains(&0) && !names.iter().any(|n| n.bytes() == b".."));
    if let Some(again) = line(&path, hash.as_bytes()) {
        let again = parse(again.trim_end_matches('\n').as_bytes());
        assert!(again.is_ok_and(|(n, h)| n == names && h == hash));
    }
}

/// Proves a manifest: every file that it names is below the directory and has its hash.
///
/// # Errors
/// Only when nothing could be begun; what happens to single lines is told through `watch`.
pub fn check_manifest(request: ManifestRequest, watch: Watch<'_>) -> Result<Summary> {
    let tally = Tally::new(watch);
    let filter = Filter::new(&request.filter)?;
    let root = Dir::open(&request.dir).map_err(|e| Error::os(Op::OpenDirectory, &request.dir, e))?;
    let lines = Mutex::new((request.reader, 0u64));
    let next = || -> Option<(u64, io::Result<Vec<u8>>)> {
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        let (reader, number) = &mut *lines;
        *number += 1;
        let mut line = Vec::new();
        let reader = Awaited { reader: &mut **reader, cancel: watch.cancel };
        let read = reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if read.as_ref().is_err_and(is_stop) {
            return None;
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if matches!(read, Ok(0)) {
            return None;
        }
        Some((*number, read.map(|_| line)))
    };
    let work = || {
        while !tally.cancelled() {
            let Some((number, line)) = next() else { return };
            let line = match line {
                Ok(line) => line,
                Err(e) => return tally.fail(Error::os(Op::ReadManifest, &request.file, e)),
            };
            match parse(&line) {
                Ok((names, _)) if leaves_out(&filter, &names) => {
                    tally.kept.fetch_add(1, Relaxed);
                }
                Ok((names, hash)) => one(&root, &names, &hash, &request.dir, &tally),
                Err(why) => {
                    let note = Reason::Line.about(number).about(why);
                    tally.fail(Error::ours(Code::Refused, Op::UseManifest, &request.file, note));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..request.jobs {
            // A thread that cannot be had is no error: this one does the work.
            if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    Ok(tally.summary())
}

/// Whether the filter leaves a file out, or a directory above it.
fn leaves_out(filter: &Filter, names: &[NameBuf]) -> bool {
    let mut path = PathBuf::new();
    !filter.is_empty()
        && names.iter().enumerate().any(|(at, name)| {
            path.push(crate::node::os(name.as_name()));
            filter.excludes(&path, at + 1 < names.len(), None)
        })
}

fn one(root: &Dir, names: &[NameBuf], want: &blake3::Hash, shown: &Path, tally: &Tally<'_>) {
    let below = names.iter().fold(PathBuf::new(), |path, n| path.join(crate::node::os(n.as_name())));
    let differs = |change, bytes, why| {
        tally.differences.fetch_add(1, Relaxed);
        let path = below.clone();
        let (directory, files, alike) = (false, 1, None);
        tally.watch.front.event(Event::Difference { change, path, directory, files, bytes, why, alike });
    };
    let path = || shown.join(&below);
    match open(root, names) {
        Ok((_, info)) if info.kind != Kind::File => differs(Change::Differ, 0, Reason::ByType),
        Ok((fd, info)) => {
            let hashed = tee::hash(&fd, &|bytes| {
                tally.watch.progress.bytes_done.fetch_add(bytes, Relaxed);
                !tally.cancelled()
            });
            match hashed {
                Ok(hash) if hash == *want => tally.done(1),
                Ok(_) => differs(Change::Differ, info.size, Reason::ByContent),
                Err(fault) if fault.code == Code::Interrupted => {}
                Err(fault) => tally.fail(fault.told(path, path)),
            }
        }
        Err(e) => match Code::of(&e) {
            Code::NotFound => differs(Change::Add, 0, Reason::Missing),
            Code::NotDirectory | Code::Link => differs(Change::Differ, 0, Reason::ByType),
            _ => tally.fail(Error::os(Op::Open, path(), e)),
        },
    }
}

/// Opens a file below `root`, never through a link.
fn open(root: &Dir, names: &[NameBuf]) -> io::Result<(std::os::fd::OwnedFd, Info)> {
    let Some((last, dirs)) = names.split_last() else { return Err(io::ErrorKind::InvalidInput.into()) };
    let open = |dir: &Dir, name: Name<'_>| {
        let fd = dir.open_file(name)?;
        let info = Info::of(&fd)?;
        Ok((fd, info))
    };
    if dirs.is_empty() {
        return open(root, last.as_name());
    }
    let path = dirs.iter().map(|d| d.bytes()).collect::<Vec<_>>().join(&b'/');
    open(&root.open_beneath(&CString::new(path)?)?, last.as_name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines() {
        let hex = "00".repeat(32);
        for (path, want) in [
            (&b"a/b c"[..], Some(format!("{hex}  a/b c\n"))),
            (b"a\nb\\c", Some(format!("\\{hex}  a\\nb\\\\c\n"))),
            (b"a\r", Some(format!("{hex}  a\r\n"))),
            (b"\xff", None),
            ("\u{fffd}".as_bytes(), None),
        ] {
            assert_eq!(line(path, &[0; 32]), want);
        }
    }

    #[test]
    fn refused_lines() {
        let hex = "00".repeat(32);
        for (rest, why) in [
            (String::new(), Reason::NoManifestLine),
            (format!("{hex} a"), Reason::NoManifestLine),
            (format!("{hex}  /a"), Reason::ItsNameNotRelative),
            (format!("{hex}  a/../../b"), Reason::ItsNameWithDotDot),
            (format!("{hex}  "), Reason::NamesNothing),
            (format!("{hex}  ./."), Reason::NamesNothing),
            (format!("{hex}  a\0"), Reason::ItsNameWithNul),
            (format!("\\{hex}  a\\x"), Reason::WronglyEscaped),
            (format!("\\{hex}  a\\"), Reason::WronglyEscaped),
            (format!("g{}  a", &hex[1..]), Reason::NoManifestLine),
        ] {
            assert_eq!(parse(rest.as_bytes()).err(), Some(why), "{rest}");
        }
        // `b3sum ./a` writes this.
        assert_eq!(parse(format!("{hex}  ./a").as_bytes()).unwrap().0.len(), 1);
    }

    proptest! {
        #[test]
        fn every_name_that_can_be_said_comes_back(path in "([^/\0\u{fffd}]{1,9}/){0,3}[^/\0\u{fffd}]{1,9}") {
            let dots = |p: &str| p == "." || p == "..";
            prop_assume!(!path.split('/').any(dots));
            let text = line(path.as_bytes(), &[7; 32]).unwrap();
            prop_assert_eq!(text.matches('\n').count(), 1);
            let (names, hash) = parse(text.trim_end_matches('\n').as_bytes()).unwrap();
            let back: Vec<_> = names.iter().map(|n| n.bytes().to_vec()).collect();
            prop_assert_eq!(back.join(&b'/'), path.as_bytes());
            prop_assert_eq!(hash.as_bytes(), &[7; 32]);
        }

        #[test]
        fn no_bytes_break_the_reader(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            parse(&line).ok();
        }
    }
}
