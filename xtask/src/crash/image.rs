//! A disk in memory, in pages, where copies share what they have in common. Knows no file system.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

pub const PAGE: usize = 4096;
/// Written to a file in one go, in bytes.
const RUN_BYTES_MAX: usize = 1 << 20;

/// So many pages of zeros are written along, rather than begin another write after them.
const GAP_PAGES: usize = 16;

type Page = [u8; PAGE];

/// Pages that hold nothing but zeros are absent.
#[derive(Clone)]
pub struct Image {
    pages: Vec<Option<Arc<Page>>>,
}

impl Image {
    /// All zeros. `bytes` is a multiple of the page.
    pub fn empty(bytes: u64) -> Image {
        Image { pages: vec![None; (bytes / PAGE as u64) as usize] }
    }

    /// The content of a file, without reading its holes.
    pub fn load(file: &File) -> io::Result<Image> {
        use rustix::fs::SeekFrom;
        let bytes = file.metadata()?.len();
        let mut image = Image::empty(bytes);
        let mut at = 0;
        let mut data = vec![0; RUN_BYTES_MAX];
        while at < bytes {
            let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(rustix::io::Errno::NXIO) => break,
                Err(e) => return Err(e.into()),
            };
            let end = rustix::fs::seek(file, SeekFrom::Hole(start))?;
            let mut off = start - start % PAGE as u64;
            while off < end {
                let want = RUN_BYTES_MAX.min((end - off) as usize).next_multiple_of(PAGE);
                let piece = &mut data[..want.min((bytes - off) as usize)];
                file.read_exact_at(piece, off)?;
                image.write(off, piece);
                off += piece.len() as u64;
            }
            at = end;
        }
        Ok(image)
    }

    /// Puts bytes anywhere.
    pub fn write(&mut self, off: u64, data: &[u8]) {
        let mut off = off as usize;
        let mut data = data;
        while !data.is_empty() {
            let (at, within) = (off / PAGE, off % PAGE);
            let (now, later) = data.split_at(data.len().min(PAGE - within));
            if let Some(page) = self.pages.get_mut(at) {
                let zeros = now.iter().all(|b| *b == 0);
                if now.len() == PAGE {
                    *page = (!zeros).then(|| {
                        let mut fresh = [0; PAGE];
                        fresh.copy_from_slice(now);
                        Arc::new(fresh)
                    });
                } else if !(zeros && page.is_none()) {
                    let page = Arc::make_mut(page.get_or_insert_with(|| Arc::new([0; PAGE])));
                    page[within..within + now.len()].copy_from_slice(now);
                }
            }
            off += now.len();
            data = later;
        }
    }

    /// Zeros from `off` on.
    pub fn discard(&mut self, off: u64, len: u64) {
        let (mut off, mut len) = (off, len);
        while len > 0 {
            let within = off % PAGE as u64;
            let now = len.min(PAGE as u64 - within);
            if now == PAGE as u64 {
                if let Some(page) = self.pages.get_mut((off / PAGE as u64) as usize) {
                    *page = None;
                }
            } else {
                self.write(off, &[0; PAGE][..now as usize]);
            }
            off += now;
            len -= now;
        }
    }

    /// Makes a file be this. It may be a block device, opened with O_DIRECT or not, of just this size.
    pub fn store(&self, file: &File) -> io::Result<()> {
        use rustix::fs::FallocateFlags;
        let bytes = (self.pages.len() * PAGE) as u64;
        if file.metadata()?.is_file() {
            file.set_len(bytes)?;
        }
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(file, how, 0, bytes)?;
        // O_DIRECT wants its bytes on a page's boundary.
        let mut buffer = vec![0; RUN_BYTES_MAX + PAGE];
        let aligned = buffer.as_ptr().align_offset(PAGE);
        let run = &mut buffer[aligned..aligned + RUN_BYTES_MAX];
        let (mut from, mut len, mut zeros) = (0, 0, 0);
        for (n, page) in self.pages.iter().enumerate() {
            match page {
                None if len == 0 => continue,
                None => {
                    run[len..len + PAGE].fill(0);
                    zeros += 1;
                }
                Some(page) => {
                    if len == 0 {
                        from = (n * PAGE) as u64;
                    }
                    run[len..len + PAGE].copy_from_slice(&page[..]);
                    zeros = 0;
                }
            }
            len += PAGE;
            if zeros == GAP_PAGES || len == RUN_BYTES_MAX {
                file.write_all_at(&run[..len - zeros * PAGE], from)?;
                (len, zeros) = (0, 0);
            }
        }
        file.write_all_at(&run[..len], from)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    impl Image {
        /// All of it.
        pub fn bytes(&self) -> Vec<u8> {
            self.pages.iter().flat_map(|p| p.as_deref().copied().unwrap_or([0; PAGE])).collect()
        }
    }

    /// The same by the simplest way.
    fn plain(writes: &[(usize, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; 4 * PAGE];
        for (off, data) in writes {
            bytes[*off..off + data.len()].copy_from_slice(data);
        }
        bytes
    }

    #[test]
    fn writes_land_where_they_should() {
        let long = vec![7; 2 * PAGE];
        let zeros = vec![0; PAGE];
        let writes: [(usize, &[u8]); 5] =
            [(512, b"abc"), (PAGE - 1, &long), (PAGE, &zeros), (PAGE + 9, b"x"), (4 * PAGE - 1, b"z")];
        let mut image = Image::empty(4 * PAGE as u64);
        for (off, data) in &writes {
            image.write(*off as u64, data);
        }
        assert_eq!(image.bytes(), plain(&writes));
    }

    #[test]
    fn a_copy_does_not_change_with_the_original() {
        let mut image = Image::empty(PAGE as u64);
        image.write(0, b"old");
        let copy = image.clone();
        image.write(0, b"new");
        assert_eq!(&copy.bytes()[..3], b"old");
        assert_eq!(&image.bytes()[..3], b"new");
    }

    #[test]
    fn a_discard_leaves_zeros_and_nothing_more() {
        let mut image = Image::empty(3 * PAGE as u64);
        image.write(0, &[1; 3 * PAGE]);
        image.discard(PAGE as u64 - 512, PAGE as u64 + 1024);
        let bytes = image.bytes();
        let gone = PAGE - 512..2 * PAGE + 512;
        assert!(bytes.iter().enumerate().all(|(n, b)| (*b == 0) == gone.contains(&n)));
        assert!(image.pages[1].is_none());
    }

    #[test]
    fn a_file_holds_what_was_stored_and_nothing_of_before() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[9; 4 * PAGE], 0).unwrap();
        let mut image = Image::empty(4 * PAGE as u64);
        image.write(PAGE as u64 + 512, b"here");
        image.write(3 * PAGE as u64, b"there");
        image.store(&file).unwrap();
        assert_eq!(Image::load(&file).unwrap().bytes(), image.bytes());
        assert_eq!(file.metadata().unwrap().len(), 4 * PAGE as u64);
    }
}
