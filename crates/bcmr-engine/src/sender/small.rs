//! Small files, read whole as they are opened: one look at a file afterwards then says what it is, how it is to be made, and that
//! it did not change meanwhile, where two looks were needed around the reading.
//!
//! Must not know where anything goes.

use crate::disk::sys::SmallBuffer;
use fastcopy::close;
use fastcopy::meta::{Info, Kind};
use fastcopy::read_write::{is_cached, pread};
use fastcopy::still::Since;
use fastcopy::xattr::has_any;
use std::os::fd::OwnedFd;

/// A file that was opened.
pub(crate) enum Opened<'b> {
    /// To be read when it is copied.
    File(OwnedFd),
    /// All that it has.
    Read(&'b [u8]),
}

/// What is to be known of a small file beside its content.
#[derive(Clone, Copy, Default)]
pub(crate) struct Asks {
    /// Only those without attributes and ACLs are read: of others they are read from the open file, once the new one is there.
    pub(crate) only_bare: bool,
    /// When it was read last before, which reading it changes.
    pub(crate) atime: bool,
}

/// Batches that are not asked about after one was in the page cache.
const CACHED_BATCHES: u8 = 3;
/// Where the next file begins in the buffer, bytes: the kernel copies to a cache line's beginning faster.
const ALIGNED: usize = 64;

/// Whether the files of a batch are in the page cache, as far as one of them tells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cached {
    NotAsked,
    Yes,
    No,
}

/// Reads the small files of one batch into a worker's buffer.
pub(crate) struct SmallFiles<'b> {
    free: &'b mut [u8],
    /// Room for each file, bytes. What does not leave a byte of it free is read when it is copied.
    room: usize,
    /// Before the first of them was opened.
    since: Since,
    asks: Asks,
    was_large: &'b mut bool,
    cached_batches: &'b mut u8,
    cached: Cached,
    /// Those that are read.
    opened: &'b mut Vec<OwnedFd>,
}

impl<'b> SmallFiles<'b> {
    /// As many files as the buffer has room for, each shorter than `room` bytes; with no room, none. `since` is before any of them
    /// is opened.
    pub(crate) fn new(buffer: &'b mut SmallBuffer, room: usize, asks: Asks, since: Since) -> SmallFiles<'b> {
        let SmallBuffer { bytes, was_large, cached_batches, opened } = buffer;
        let free = if room > 0 { bytes.buffer() } else { &mut [] };
        SmallFiles { free, room, since, asks, was_large, cached_batches, cached: Cached::NotAsked, opened }
    }

    /// Whether a file is to be looked at before [`SmallFiles::read`] too.
    pub(crate) fn looks_before(&self) -> bool {
        self.asks.atime && self.room > 0 && self.cached != Cached::No && !*self.was_large
    }

    /// Reads a file that was opened just now, where that may be all of it. What came of it is for [`SmallFiles::whole`] to say.
    pub(crate) fn read(&mut self, file: &OwnedFd) -> Option<usize> {
        if *self.was_large || self.room == 0 || self.cached(file) == Cached::No {
            return None;
        }
        // Whatever goes wrong here, reading it when it is copied will tell.
        self.free.get_mut(..self.room).and_then(|room| pread(file, 0, room).ok())
    }

    /// Whether the files of this batch are in memory; else they are better read together (docs/decisions/0006-ring.md).
    fn cached(&mut self, file: &OwnedFd) -> Cached {
        if self.cached == Cached::NotAsked {
            self.cached = match self.cached_batches.checked_sub(1) {
                Some(left) => {
                    *self.cached_batches = left;
                    Cached::Yes
                }
                None if is_cached(file, 0) == Some(false) => Cached::No,
                None => {
                    *self.cached_batches = CACHED_BATCHES;
                    Cached::Yes
                }
            };
        }
        self.cached
    }

    /// The content of `file`, of which [`SmallFiles::read`] has read so much, and then fstat said `info`: where that is all of
    /// it, and it did not change since before it was opened. Else the file, which is to be read when it is copied.
    pub(crate) fn whole(&mut self, file: OwnedFd, read: Option<usize>, info: &Info) -> Opened<'b> {
        *self.was_large = info.size >= self.room as u64;
        if info.size == 0 && self.cached == Cached::No {
            // It has no pages, and tells nothing of the others.
            self.cached = Cached::NotAsked;
        }
        let is_dense = info.blocks.saturating_mul(512) >= info.size;
        let is_whole = |read: usize| {
            info.kind == Kind::File
                && info.size == read as u64
                && read < self.room
                && is_dense
                && self.since.holds(info)
                && !(self.asks.only_bare && has_any(&file).unwrap_or(true))
        };
        let Some(read) = read.filter(|read| is_whole(*read)) else { return Opened::File(file) };
        let (taken, free) =
            std::mem::take(&mut self.free).split_at_mut(read.next_multiple_of(ALIGNED).min(self.room));
        self.free = free;
        self.opened.push(file);
        Opened::Read(taken.get(..read).unwrap_or_default())
    }

    /// Closes what was read.
    pub(crate) fn close(&mut self) {
        close::all(self.opened);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, OpenOptions};
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::path::Path;

    /// What was made just now counts as made long before.
    const LONG: i64 = 60_000_000_000;
    const ROOM: usize = 8 << 10;

    fn opened(small: &mut SmallFiles<'_>, path: &Path, meanwhile: impl FnOnce()) -> Option<Vec<u8>> {
        let file = OwnedFd::from(File::open(path).unwrap());
        let read = small.read(&file);
        meanwhile();
        let info = Info::of(&file).unwrap();
        match small.whole(file, read, &info) {
            Opened::Read(bytes) => Some(bytes.to_vec()),
            Opened::File(_) => None,
        }
    }

    #[test]
    fn what_is_small_and_still_is_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let content = |bytes: usize| -> Vec<u8> { (0..bytes).map(|n| n as u8).collect() };
        let mut buffer = SmallBuffer::default();
        let mut small = SmallFiles::new(&mut buffer, ROOM, Asks::default(), Since::now().moved(LONG));
        for bytes in [1, 63, 64, 65, ROOM - 1, 0, 5000] {
            fs::write(path("f"), content(bytes)).unwrap();
            // The kernel may not have counted the blocks yet; they are dense all the same.
            File::open(path("f")).unwrap().sync_all().unwrap();
            assert_eq!(opened(&mut small, &path("f"), || {}), Some(content(bytes)), "{bytes}");
        }
        assert_eq!(small.opened.len(), 7);
        small.close();
        assert!(small.opened.is_empty());
        // One that is large, and so is taken to be the next one.
        fs::write(path("large"), content(ROOM)).unwrap();
        assert_eq!(opened(&mut small, &path("large"), || {}), None);
        assert_eq!(opened(&mut small, &path("f"), || {}), None);
        assert!(opened(&mut small, &path("f"), || {}).is_some());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_empty_file_does_not_tell_that_the_others_are_on_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let (empty, full) = (dir.path().join("empty"), dir.path().join("full"));
        fs::write(&empty, "").unwrap();
        fs::write(&full, "x").unwrap();
        File::open(&full).unwrap().sync_all().unwrap();
        if is_cached(File::open(&empty).unwrap(), 0) != Some(false) {
            return skips::here("needs cachestat(2), Linux 6.5");
        }
        let mut buffer = SmallBuffer::default();
        let mut small = SmallFiles::new(&mut buffer, ROOM, Asks::default(), Since::now().moved(LONG));
        assert_eq!(opened(&mut small, &empty, || {}), None);
        assert_eq!(opened(&mut small, &full, || {}), Some(b"x".to_vec()));
        assert_eq!(opened(&mut small, &empty, || {}), Some(Vec::new()), "asked once a batch");
    }

    #[test]
    fn what_may_have_changed_is_read_when_it_is_copied() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "as it was").unwrap();
        let mut buffer = SmallBuffer::default();
        let write = |text: &[u8], append: bool| {
            OpenOptions::new().write(true).append(append).open(&path).unwrap().write_all(text).unwrap();
        };
        // Made just before.
        let mut small = SmallFiles::new(&mut buffer, ROOM, Asks::default(), Since::now());
        assert_eq!(opened(&mut small, &path, || {}), None);
        // Longer by now; only its time tells of the other one, which is what `Since` is about.
        let mut small = SmallFiles::new(&mut buffer, ROOM, Asks::default(), Since::now().moved(LONG));
        assert_eq!(opened(&mut small, &path, || write(b", and more", true)), None);
        let mut small = SmallFiles::new(&mut buffer, ROOM, Asks::default(), Since::now());
        assert_eq!(opened(&mut small, &path, || write(b"AS", false)), None);
        // With holes.
        File::create(&path).unwrap().set_len(5000).unwrap();
        let mut small = SmallFiles::new(&mut buffer, ROOM, Asks::default(), Since::now().moved(LONG));
        assert_eq!(opened(&mut small, &path, || {}), None);
        // With no room for any.
        fs::write(&path, "x").unwrap();
        let mut small = SmallFiles::new(&mut buffer, 0, Asks::default(), Since::now().moved(LONG));
        assert_eq!(opened(&mut small, &path, || {}), None);
    }

    #[test]
    fn what_has_attributes_stays_open_where_they_are_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "x").unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        let mut buffer = SmallBuffer::default();
        let mut read = |only_bare: bool| {
            let mut small = SmallFiles::new(
                &mut buffer,
                ROOM,
                Asks { only_bare, atime: false },
                Since::now().moved(LONG),
            );
            opened(&mut small, &path, || {}).is_some()
        };
        assert!(read(true) && read(false));
        let file = File::open(&path).unwrap();
        if let Err(e) = fastcopy::xattr::set(fastcopy::xattr::Of::Handle(file.as_fd()), c"user.a", b"1") {
            return skips::here(&format!("attributes of small files: {e}"));
        }
        assert!(!read(true) && read(false));
    }

    #[test]
    fn a_full_buffer_takes_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, vec![7; ROOM - 1]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        let mut buffer = SmallBuffer::default();
        let most = buffer.bytes.buffer().len() / ROOM;
        let mut small = SmallFiles::new(&mut buffer, ROOM, Asks::default(), Since::now().moved(LONG));
        for n in 0..most + 2 {
            assert_eq!(opened(&mut small, &path, || {}).is_some(), n < most, "{n}");
        }
    }
}
