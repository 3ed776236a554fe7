//! placeholder
use rustix::fd::BorrowedFd;
use std::io;
/// A stretch of data.
pub struct Extent { /// from
 pub start: u64, /// to
 pub end: u64 }
/// All of it.
pub fn whole(size: u64) -> Extents<'static> { Extents { fd: None, at: 0, size, done: false } }
/// The data.
pub fn extents(fd: BorrowedFd<'_>, size: u64) -> Extents<'_> { Extents { fd: Some(fd), at: 0, size, done: false } }
/// Iterator.
pub struct Extents<'a> { fd: Option<BorrowedFd<'a>>, at: u64, size: u64, done: bool }
impl Iterator for Extents<'_> {
    type Item = io::Result<Extent>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.done { return None; }
        let Some(fd) = self.fd else { self.done = true; return Some(Ok(Extent { start: 0, end: self.size })) };
        let start = match rustix::fs::seek(fd, rustix::fs::SeekFrom::Data(self.at)) { Ok(s) => s, Err(rustix::io::Errno::NXIO) => { self.done = true; return None }, Err(e) => return Some(Err(e.into())) };
        let end = match rustix::fs::seek(fd, rustix::fs::SeekFrom::Hole(start)) { Ok(s) => s, Err(e) => return Some(Err(e.into())) };
        self.at = end;
        if end >= self.size { self.done = true; }
        Some(Ok(Extent { start, end }))
    }
}
