//! How should many small files land? The prototype behind `docs/decisions/0001-atomic-landing.md`.
//!
//! Three verbs (run as `cargo run --release -p fastcopy --example landing -- VERB ...`):
//!
//! - `make KIND DIR`: writes a workload: `64k` (10,000 x 64 KiB in 100 directories), `4k` (2,100 x 4 KiB in 50),
//!   `1k` (100,000 x 1 KiB in one), `tree` (20,000 files in 1,500 nested directories, log-normal, mean 14 KB).
//! - `copy SRC DST [FLAGS]`: copies a tree or one file once; DST must not exist.
//! - `bench SRC DST ROUNDS VARIANT...`: interleaves the variants (`cp`, or the flags of `copy`) and prints medians of
//!   wall and CPU time, as a ratio to the first. DST is removed and synced outside the timing. `LANDING_LOCK=FILE`
//!   holds that lock around each run, `LANDING_COLD=1` drops the page cache before it (needs root).
//!
//! Flags of `copy`, each with its value:
//!
//! ```text
//! --land direct|dirstage|rename|tmpfile|apart   how a file gets its final name        (direct)
//! --phases K        open+fstat K, create K, fill K, fstat K, close K, rename K         (1: per file)
//! --post-fstat on   look at each source again: did it change while it was read?        (on)
//! --jobs N          worker threads                                                     (2)
//! --unshare on      a descriptor table per worker, root entries dealt out statically   (off)
//! --grow on         enlarge the descriptor table before the first thread exists        (on)
//! --buf BYTES       buffer per worker (65536)     --cfr on       copy_file_range       (off)
//! --split N         names per batch of a directory (1024)        --getdents BYTES      (65536)
//! --flock on        flock each destination directory (off)       --noatime on          (off)
//! --order dir|ino   files as listed, or by inode number (dir)    --fchmod on  mode set afterwards (off)
//! --willneed on     ask for readahead of each source once it is open                   (off)
//! --trust-size on   read exactly st_size, not one byte more to see the end             (off)
//! --ladder on       content by this crate's own choice of calls                        (off)
//! --together on     the descriptors of a phase closed by close_range                   (off)
//! --turns on        one worker at a time creates files in a directory, or links them   (off)
//! ```
//!
//! Two traps. ext4 without a journal will not soon reuse the inode of a removed file, and scans past all of
//! them at each creation: bench on a file system with a journal. And freed memory may go back to the host of a virtual
//! machine: give a variant twice to see how far it differs from itself.
//!
//! It is a measuring device: no metadata but the mode, no cleaning up after a failure, nothing but regular files,
//! directories and symbolic links. With `--post-fstat off --ladder on --phases 16 --together on --turns on` it does what no
//! copier can leave out and nothing else, in the best of the known ways: the *ceiling* of `cargo xtask bench local`.
use fastcopy::read_write::fallocate_keep_size;
use fastcopy::turn::Turn;
use fastcopy::{Dest, Options, Rungs, Scratch, Source, close, copy_file};
use rustix::fs::{self, AtFlags, Mode, OFlags, RawDir};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::VecDeque;
use std::error::Error;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

type Any<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Clone, Copy, PartialEq)]
enum Land {
    Direct,
    DirStage,
    Rename,
    TmpFile,
    /// As that, but made in a directory of each worker's own, which stays in the first that the worker fills.
    Apart,
}

#[derive(Clone)]
struct Opts {
    land: Land,
    phases: usize,
    jobs: usize,
    buf: usize,
    split: usize,
    getdents: usize,
    post_fstat: bool,
    unshare: bool,
    grow: bool,
    cfr: bool,
    flock: bool,
    noatime: bool,
    by_ino: bool,
    fchmod: bool,
    willneed: bool,
    trust_size: bool,
    ladder: bool,
    together: bool,
    turns: bool,
}

impl Opts {
    fn parse(args: &[String]) -> Any<Self> {
        let mut o = Opts {
            land: Land::Direct,
            phases: 1,
            jobs: 2,
            buf: 65536,
            split: 1024,
            getdents: 65536,
            post_fstat: true,
            unshare: false,
            grow: true,
            cfr: false,
            flock: false,
            noatime: false,
            by_ino: false,
            fchmod: false,
            willneed: false,
            trust_size: false,
            ladder: false,
            together: false,
            turns: false,
        };
        for pair in args.chunks(2) {
            let [flag, value] = pair else { return Err(format!("{pair:?}: a flag needs a value").into()) };
            let on = value == "on";
            match flag.as_str() {
                "--land" => {
                    o.land = match value.as_str() {
                        "direct" => Land::Direct,
                        "dirstage" => Land::DirStage,
                        "rename" => Land::Rename,
                        "tmpfile" => Land::TmpFile,
                        "apart" => Land::Apart,
                        other => return Err(format!("--land {other}?").into()),
                    }
                }
                "--phases" => o.phases = value.parse()?,
                "--jobs" => o.jobs = value.parse()?,
                "--buf" => o.buf = value.parse()?,
                "--split" => o.split = value.parse()?,
                "--getdents" => o.getdents = value.parse()?,
                "--post-fstat" => o.post_fstat = on,
                "--unshare" => o.unshare = on,
                "--grow" => o.grow = on,
                "--cfr" => o.cfr = on,
                "--flock" => o.flock = on,
                "--noatime" => o.noatime = on,
                "--order" => o.by_ino = value == "ino",
                "--fchmod" => o.fchmod = on,
                "--willneed" => o.willneed = on,
                "--trust-size" => o.trust_size = on,
                "--ladder" => o.ladder = on,
                "--together" => o.together = on,
                "--turns" => o.turns = on,
                other => return Err(format!("{other}?").into()),
            }
        }
        Ok(o)
    }
}

/// A directory being copied. `files` counts its unfinished batches (and the listing); the last one publishes.
struct Dir {
    src: OwnedFd,
    dst: OwnedFd,
    dev: u64,
    mode: Mode,
    stage: Option<(Arc<Dir>, CString, CString)>,
    files: AtomicUsize,
    turn: Turn,
}

/// Names of one directory: inode number and offset into the arena of NUL-terminated names.
#[derive(Default)]
struct Names {
    arena: Vec<u8>,
    at: Vec<(u64, usize)>,
}

impl Names {
    fn push(&mut self, ino: u64, name: &CStr) {
        self.at.push((ino, self.arena.len()));
        self.arena.extend_from_slice(name.to_bytes_with_nul());
    }
    fn get(&self, at: usize) -> Any<&CStr> {
        Ok(CStr::from_bytes_until_nul(&self.arena[at..])?)
    }
}

enum Task {
    Enter(Arc<Dir>, CString),
    List(Arc<Dir>, usize, usize),
    Files(Arc<Dir>, Names),
}

/// The stacks of tasks, one for each worker. Last in, first out: few directories are open at once, and their inodes are warm. Who
/// has none takes the first in of the longest, which is far away.
#[derive(Default)]
struct Pool {
    state: Mutex<(Vec<VecDeque<Task>>, usize)>,
    wake: Condvar,
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, (Vec<VecDeque<Task>>, usize)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn push(&self, id: usize, task: Task) {
        let mut s = self.lock();
        if s.0.len() <= id {
            s.0.resize_with(id + 1, VecDeque::new);
        }
        s.0[id].push_back(task);
        if s.1 > 0 {
            self.wake.notify_one();
        }
    }
    fn pop(&self, id: usize, jobs: usize) -> Option<Task> {
        let mut s = self.lock();
        loop {
            let own = s.0.get_mut(id).and_then(VecDeque::pop_back);
            if let Some(task) = own.or_else(|| s.0.iter_mut().max_by_key(|of| of.len())?.pop_front()) {
                return Some(task);
            }
            s.1 += 1;
            if s.1 >= jobs {
                self.wake.notify_all();
                return None;
            }
            s = self.wake.wait(s).unwrap_or_else(PoisonError::into_inner);
            if s.1 >= jobs {
                return None;
            }
            s.1 -= 1;
        }
    }
}

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

struct Slot<'a> {
    name: &'a CStr,
    temp: CString,
    src: OwnedFd,
    stat: fs::Stat,
    dst: Option<OwnedFd>,
}

struct Worker<'p> {
    o: &'p Opts,
    pool: &'p Pool,
    jobs: usize,
    id: usize,
    serial: usize,
    buf: Vec<u8>,
    entries: Vec<u8>,
    rungs: &'p Rungs,
    scratch: Scratch,
    closing: Vec<OwnedFd>,
    apart: Option<OwnedFd>,
}

impl<'p> Worker<'p> {
    fn new(o: &'p Opts, rungs: &'p Rungs, pool: &'p Pool, jobs: usize, id: usize) -> Self {
        let (buf, entries) = (vec![0; o.buf], Vec::with_capacity(o.getdents));
        let (scratch, closing) = (Scratch::new(), Vec::new());
        Worker { o, pool, jobs, id, serial: 0, buf, entries, rungs, scratch, closing, apart: None }
    }

    /// As the library does it.
    fn climb(&mut self, slot: &Slot<'_>, dst: &OwnedFd, dev: u64) -> Any<()> {
        let (size, blocks) = (u64::try_from(slot.stat.st_size)?, u64::try_from(slot.stat.st_blocks)?);
        let src = Source { fd: slot.src.as_fd(), dev: slot.stat.st_dev, size, blocks };
        let options = Options { threads: 1, ..Options::AUTO };
        let dst = Dest { fd: dst.as_fd(), dev };
        copy_file(&src, &dst, self.rungs, &options, &mut self.scratch, &|_| true)?;
        Ok(())
    }

    fn run(&mut self) -> Any<()> {
        while let Some(task) = self.pool.pop(self.id, self.jobs) {
            match task {
                Task::Enter(parent, name) => {
                    let dir = self.enter(parent, name)?;
                    self.list(&dir, 0, 1)?;
                }
                Task::List(dir, part, of) => self.list(&dir, part, of)?,
                Task::Files(dir, names) => self.files(&dir, &names)?,
            }
        }
        Ok(())
    }

    fn temp(&mut self, kind: &str) -> Any<CString> {
        self.serial += 1;
        Ok(CString::new(format!(".bcmr-{:x}-{:06x}.{kind}", self.id, self.serial))?)
    }

    /// Where this worker makes nameless files.
    fn apart(&mut self, first: &Dir) -> Any<&OwnedFd> {
        if self.apart.is_none() {
            let name = self.temp("apart")?;
            fs::mkdirat(&first.dst, &name, Mode::RWXU)?;
            self.apart = Some(fs::openat(&first.dst, &name, OFlags::RDONLY | DIRECTORY, Mode::empty())?);
        }
        self.apart.as_ref().ok_or_else(|| "no directory".into())
    }

    fn enter(&mut self, parent: Arc<Dir>, name: CString) -> Any<Arc<Dir>> {
        let src = fs::openat(&parent.src, &name, OFlags::RDONLY | DIRECTORY, Mode::empty())?;
        let mode = Mode::from_raw_mode(fs::fstat(&src)?.st_mode & 0o7777);
        let staged = self.o.land == Land::DirStage;
        let made = if staged { self.temp("stage")? } else { name.clone() };
        fs::mkdirat(&parent.dst, &made, if staged { Mode::RWXU } else { mode | Mode::RWXU })?;
        let dst = fs::openat(&parent.dst, &made, OFlags::RDONLY | DIRECTORY, Mode::empty())?;
        if self.o.flock {
            fs::flock(&dst, fs::FlockOperation::NonBlockingLockExclusive)?;
        }
        let dev = parent.dev;
        let stage = staged.then_some((parent, made, name));
        Ok(Arc::new(Dir { src, dst, dev, mode, stage, files: AtomicUsize::new(0), turn: Turn::default() }))
    }

    fn list(&mut self, dir: &Arc<Dir>, part: usize, of: usize) -> Any<()> {
        dir.files.fetch_add(1, AcqRel);
        let mut entries = std::mem::take(&mut self.entries);
        let (mut names, mut dirs, mut files) = (Names::default(), 0, 0);
        let mut raw = RawDir::new(&dir.src, entries.spare_capacity_mut());
        while let Some(entry) = raw.next() {
            let entry = entry?;
            let name = entry.file_name();
            if entry.file_type() == fs::FileType::Directory {
                if name != c"." && name != c".." {
                    dirs += 1;
                    if dirs % of == part {
                        self.pool.push(self.id, Task::Enter(Arc::clone(dir), name.to_owned()));
                    }
                }
                continue;
            }
            files += 1;
            if (files / self.o.split) % of != part {
                continue;
            }
            if entry.file_type() == fs::FileType::Symlink {
                let target = fs::readlinkat(&dir.src, name, Vec::new())?;
                fs::symlinkat(&target, &dir.dst, name)?;
                continue;
            }
            names.push(entry.ino(), name);
            if !self.o.by_ino && names.at.len() >= self.o.split {
                self.later(dir, std::mem::take(&mut names));
            }
        }
        self.entries = entries;
        if self.o.by_ino {
            names.at.sort_unstable();
            while names.at.len() > self.o.split {
                let mut batch = Names::default();
                for (ino, at) in names.at.split_off(names.at.len() - self.o.split) {
                    batch.push(ino, names.get(at)?);
                }
                self.later(dir, batch);
            }
        }
        self.files(dir, &names)
    }

    fn later(&self, dir: &Arc<Dir>, names: Names) {
        dir.files.fetch_add(1, AcqRel);
        self.pool.push(self.id, Task::Files(Arc::clone(dir), names));
    }

    fn files(&mut self, dir: &Dir, names: &Names) -> Any<()> {
        for chunk in names.at.chunks(self.o.phases.max(1)) {
            self.chunk(dir, names, chunk)?;
        }
        if dir.files.fetch_sub(1, AcqRel) == 1 {
            publish(dir)?;
        }
        Ok(())
    }

    fn chunk(&mut self, dir: &Dir, names: &Names, chunk: &[(u64, usize)]) -> Any<()> {
        let o = self.o;
        let mut from = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        from.set(OFlags::NOATIME, o.noatime);
        let mut slots = Vec::with_capacity(chunk.len());
        for &(_, at) in chunk {
            let name = names.get(at)?;
            let src = fs::openat(&dir.src, name, from, Mode::empty())?;
            let stat = fs::fstat(&src)?;
            if o.willneed {
                fs::fadvise(&src, 0, None, fs::Advice::WillNeed)?;
            }
            slots.push(Slot { name, temp: CString::default(), src, stat, dst: None });
        }
        let is_named = !matches!(o.land, Land::TmpFile | Land::Apart);
        let turn = (o.turns && is_named).then(|| dir.turn.take());
        for slot in &mut slots {
            let mode = Mode::from_raw_mode(slot.stat.st_mode & 0o777);
            let to = OFlags::WRONLY | OFlags::CLOEXEC;
            let new = to | OFlags::CREATE | OFlags::EXCL;
            slot.dst = Some(match o.land {
                Land::Direct | Land::DirStage => fs::openat(&dir.dst, slot.name, new, mode)?,
                Land::TmpFile => fs::openat(&dir.dst, c".", to | OFlags::TMPFILE, mode)?,
                Land::Apart => fs::openat(self.apart(dir)?, c".", to | OFlags::TMPFILE, mode)?,
                Land::Rename => {
                    slot.temp = self.temp("tmp")?;
                    fs::openat(&dir.dst, &slot.temp, new, mode)?
                }
            });
        }
        drop(turn);
        for slot in &mut slots {
            if let Some(dst) = &slot.dst {
                let size = u64::try_from(slot.stat.st_size)?;
                if o.ladder {
                    self.climb(slot, dst, dir.dev)?
                } else if o.cfr {
                    clone_range(&slot.src, dst, size)?
                } else {
                    self.fill(&slot.src, dst, size)?
                }
                if o.fchmod {
                    fs::fchmod(dst, Mode::from_raw_mode(slot.stat.st_mode & 0o777))?;
                }
            }
        }
        if o.post_fstat {
            for slot in &slots {
                let now = fs::fstat(&slot.src)?;
                let key =
                    |s: &fs::Stat| (s.st_size, s.st_mtime, s.st_mtime_nsec, s.st_ctime, s.st_ctime_nsec);
                if key(&now) != key(&slot.stat) {
                    return Err(format!("{:?} changed while it was copied", slot.name).into());
                }
            }
        }
        if !is_named {
            let _turn = o.turns.then(|| dir.turn.take());
            for slot in &slots {
                if let Some(dst) = &slot.dst {
                    link(dst, dir, slot.name)?;
                }
            }
        }
        let open = |slot: Slot<'_>| [Some(slot.src), slot.dst].into_iter().flatten();
        if o.together && o.land == Land::Direct {
            self.closing.extend(slots.into_iter().flat_map(open));
            close::all(&mut self.closing);
            return Ok(());
        }
        let landed: Vec<_> = slots.into_iter().map(|slot| (slot.name, slot.temp)).collect();
        if o.land == Land::Rename {
            for (name, temp) in &landed {
                fs::renameat(&dir.dst, temp, &dir.dst, *name)?;
            }
        }
        Ok(())
    }

    /// One read when the file fits in the buffer: asking for a byte more than it has shows its end.
    fn fill(&mut self, src: &OwnedFd, dst: &OwnedFd, size: u64) -> Any<()> {
        let (size, mut done) = (usize::try_from(size)?, 0);
        let more = usize::from(!self.o.trust_size);
        loop {
            let want = (size.saturating_sub(done) + more).min(self.buf.len());
            let got = rustix::io::read(src, &mut self.buf[..want])?;
            let mut rest = &self.buf[..got];
            while !rest.is_empty() {
                rest = &rest[rustix::io::write(dst, rest)?..];
            }
            done += got;
            if got < want || got == 0 || done >= size {
                return Ok(());
            }
        }
    }
}

fn clone_range(src: &OwnedFd, dst: &OwnedFd, size: u64) -> Any<()> {
    let mut left = usize::try_from(size)?;
    while left > 0 {
        match fs::copy_file_range(src, None, dst, None, left)? {
            0 => break,
            n => left -= n,
        }
    }
    Ok(())
}

fn link(file: &OwnedFd, dir: &Dir, name: &CStr) -> Any<()> {
    if fs::linkat(file, c"", &dir.dst, name, AtFlags::EMPTY_PATH).is_err() {
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
        fs::linkat(fs::CWD, path, &dir.dst, name, AtFlags::SYMLINK_FOLLOW)?;
    }
    Ok(())
}

/// All files of a staged directory are whole: give it its mode and its name.
fn publish(dir: &Dir) -> Any<()> {
    if let Some((parent, stage, name)) = &dir.stage {
        if dir.mode != Mode::RWXU {
            fs::fchmod(&dir.dst, dir.mode)?;
        }
        fs::renameat(&parent.dst, stage, &parent.dst, name)?;
    }
    Ok(())
}

fn open_root(src: &str, dst: &str) -> Any<Arc<Dir>> {
    let open = |path| fs::openat(fs::CWD, path, OFlags::RDONLY | DIRECTORY, Mode::empty());
    let (src, dst) = (open(src)?, open(dst)?);
    let (dev, mode) = (fs::fstat(&dst)?.st_dev, Mode::RWXU);
    Ok(Arc::new(Dir { src, dst, dev, mode, stage: None, files: AtomicUsize::new(0), turn: Turn::default() }))
}

/// One file: each worker takes the next buffer's length that no other has taken, the best of the ways known for a large
/// file. The buffers begin with a page, as those of bcmr do.
fn copy_one(src: &str, dst: &str, o: &Opts) -> Any<()> {
    const PAGE: usize = 4096;
    let src = fs::open(src, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let size = usize::try_from(fs::fstat(&src)?.st_size)?;
    let made = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let dst = fs::open(dst, made, Mode::from_raw_mode(0o644))?;
    if o.ladder && fastcopy::copy::pays_to_preallocate(dst.as_fd()) {
        fallocate_keep_size(&dst, 0, size as u64)?;
    }
    let next = AtomicUsize::new(0);
    // Who waits for the inode's lock in the kernel takes the processor from who holds it: one reads while the other writes.
    // Sleeping until it is one's turn takes longer than the turn.
    let turn = Mutex::new(());
    let work = || -> Any<()> {
        let mut room = vec![0; o.buf + PAGE];
        let start = room.as_ptr().align_offset(PAGE);
        let buf = &mut room[start..start + o.buf];
        loop {
            let from = next.fetch_add(buf.len(), AcqRel);
            let to = (from + buf.len()).min(size);
            let mut at = from;
            while at < to {
                let want = buf.len().min(to - at);
                let got = rustix::io::pread(&src, &mut buf[..want], at as u64)?;
                if got == 0 {
                    return Err("the source is shorter than it was".into());
                }
                let _turn = loop {
                    match turn.try_lock() {
                        Ok(turn) => break turn,
                        Err(TryLockError::Poisoned(turn)) => break turn.into_inner(),
                        Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
                    }
                };
                let mut done = 0;
                while done < got {
                    done += rustix::io::pwrite(&dst, &buf[done..got], (at + done) as u64)?;
                }
                at += got;
            }
            if to >= size {
                return Ok(());
            }
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..o.jobs.min(size.div_ceil(o.buf))).map(|_| scope.spawn(work)).collect();
        work()?;
        others.into_iter().try_for_each(|t| t.join().map_err(|_| "a worker panicked")?)
    })
}

fn copy(src: &str, dst: &str, o: &Opts) -> Any<()> {
    if fs::FileType::from_raw_mode(fs::stat(src)?.st_mode) == fs::FileType::RegularFile {
        return copy_one(src, dst, o);
    }
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    rustix::process::umask(Mode::empty());
    let staged = o.land == Land::DirStage;
    let made = if staged { format!("{dst}.bcmr-root.stage") } else { dst.to_owned() };
    fs::mkdirat(fs::CWD, &made, if staged { Mode::RWXU } else { Mode::from_raw_mode(0o755) })?;
    let root = open_root(src, &made)?;
    if o.grow {
        // Growing the table of a process with threads waits for an RCU grace period, milliseconds each time.
        let top = i32::try_from(o.jobs * (2 * o.phases + 16) + 64)?;
        drop(rustix::io::fcntl_dupfd_cloexec(&root.src, top)?);
    }
    let (shared, rungs) = (Pool::default(), Rungs::new());
    if !o.unshare {
        shared.push(0, Task::List(Arc::clone(&root), 0, 1));
    }
    std::thread::scope(|scope| {
        let one = |id| {
            let (root, shared, rungs, made) = (&root, &shared, &rungs, made.as_str());
            move || -> Any<()> {
                if !o.unshare {
                    return Worker::new(o, rungs, shared, o.jobs, id).run();
                }
                // SAFETY: from here on this thread uses only descriptors it opens itself (its own root, its own pool).
                unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FILES)? };
                let _keep = root;
                let own = Pool::default();
                own.push(id, Task::List(open_root(src, made)?, id, o.jobs));
                Worker::new(o, rungs, &own, 1, id).run()
            }
        };
        let threads: Vec<_> = (0..o.jobs).map(|id| scope.spawn(one(id))).collect();
        threads.into_iter().try_for_each(|t| t.join().map_err(|_| "a worker panicked")?)
    })?;
    if staged {
        fs::fchmod(&root.dst, Mode::from_raw_mode(0o755))?;
        fs::renameat(fs::CWD, &made, fs::CWD, dst)?;
    }
    Ok(())
}

fn make(kind: &str, at: &str) -> Any<()> {
    let file = |path: String, size: usize, salt: usize| {
        std::fs::write(path, (0..size).map(|i| (i.wrapping_mul(salt | 1) >> 3) as u8).collect::<Vec<_>>())
    };
    let mkdir = |path: &str| fs::mkdirat(fs::CWD, path, Mode::from_raw_mode(0o755));
    mkdir(at)?;
    let flat = |dirs: usize, each: usize, size: usize| -> Any<()> {
        for d in 0..dirs {
            mkdir(&format!("{at}/d{d:03}"))?;
            for f in 0..each {
                file(format!("{at}/d{d:03}/file-{f:05}.dat"), size, d * each + f)?;
            }
        }
        Ok(())
    };
    match kind {
        "64k" => flat(100, 100, 65536),
        "4k" => flat(50, 42, 4096),
        "1k" => Ok((0..100_000).try_for_each(|f| file(format!("{at}/file-{f:06}.dat"), 1024, f))?),
        "tree" => {
            let mut state = 42_u64;
            let mut random = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 11) as f64 / (1_u64 << 53) as f64
            };
            let mut dirs = vec![at.to_owned()];
            for d in 1..1500 {
                let path = format!("{}/module_{d}", dirs[(random() * dirs.len() as f64) as usize]);
                mkdir(&path)?;
                dirs.push(path);
            }
            for f in 0..20_000 {
                let normal =
                    (-2.0 * random().max(1e-12).ln()).sqrt() * (std::f64::consts::TAU * random()).cos();
                let size = (1.5 * normal + 14_000_f64.ln() - 1.125).exp().min(2e6) as usize;
                file(format!("{}/source_{f}.rs", dirs[(random() * 1500.0) as usize]), size, f)?;
            }
            Ok(())
        }
        other => Err(format!("{other}?").into()),
    }
}

fn bench(src: &str, dst: &str, rounds: usize, variants: &[String]) -> Any<()> {
    let cpu = || {
        // SAFETY: all zeroes is a valid rusage, and getrusage fills it.
        let mut u: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a live rusage.
        unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut u) };
        let t = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
        t(u.ru_utime) + t(u.ru_stime)
    };
    let me = std::env::current_exe()?;
    let mut times = vec![Vec::new(); variants.len()];
    for round in 0..=rounds {
        for (variant, times) in variants.iter().zip(&mut times) {
            let lock = match std::env::var("LANDING_LOCK") {
                Ok(path) => Some(fs::openat(fs::CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?),
                Err(_) => None,
            };
            if let Some(lock) = &lock {
                fs::flock(lock, fs::FlockOperation::LockExclusive)?;
            }
            Command::new("rm").args(["-rf", dst]).status()?;
            Command::new("sync").status()?;
            if std::env::var_os("LANDING_COLD").is_some() {
                std::fs::write("/proc/sys/vm/drop_caches", "3")?;
            }
            let mut command = if variant == "cp" {
                let mut c = Command::new("cp");
                c.args(["-r", "--reflink=never", src, dst]);
                c
            } else {
                let mut c = Command::new(&me);
                c.args(["copy", src, dst]).args(variant.split_whitespace());
                c
            };
            let (start, before) = (Instant::now(), cpu());
            if !command.status()?.success() {
                return Err(format!("{variant} failed").into());
            }
            if round > 0 {
                times.push((start.elapsed(), cpu() - before)); // Round 0 warms up.
            }
        }
    }
    Command::new("rm").args(["-rf", dst]).status()?;
    let median = |mut t: Vec<Duration>| {
        t.sort_unstable();
        t[t.len() / 2].as_secs_f64() * 1e3
    };
    let mut base = None;
    for (variant, times) in variants.iter().zip(times) {
        let wall = median(times.iter().map(|t| t.0).collect());
        let cpu = median(times.iter().map(|t| t.1).collect());
        let (w0, c0) = *base.get_or_insert((wall, cpu));
        println!("{wall:8.1} ms {:5.2}  cpu {cpu:8.1} ms {:5.2}  {variant}", wall / w0, cpu / c0);
    }
    Ok(())
}

fn main() -> Any<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let owned = |rest: &[&str]| rest.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    match args.as_slice() {
        ["make", kind, dir] => make(kind, dir),
        ["copy", src, dst, flags @ ..] => copy(src, dst, &Opts::parse(&owned(flags))?),
        ["bench", src, dst, rounds, variants @ ..] => bench(src, dst, rounds.parse()?, &owned(variants)),
        _ => Err("make KIND DIR | copy SRC DST [FLAGS] | bench SRC DST ROUNDS VARIANT...".into()),
    }
}
