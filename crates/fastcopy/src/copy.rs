//! placeholder
use rustix::fd::BorrowedFd;
use std::io;
/// s
pub struct Source<'a> { /// fd
 pub fd: BorrowedFd<'a>, /// d
 pub dev: u64, /// s
 pub size: u64, /// b
 pub blocks: u64 }
/// d
pub struct Dest<'a> { /// f
 pub fd: BorrowedFd<'a>, /// d
 pub dev: u64 }
/// r
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung { /// c
 Clone, /// c
 CopyFileRange, /// s
 Splice, /// r
 ReadWrite }
/// r
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reflink { /// a
 Auto, /// b
 Always, /// c
 Never }
/// s
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sparse { /// a
 Auto, /// b
 Always, /// c
 Never }
/// o
pub struct Options { /// r
 pub reflink: Reflink, /// s
 pub sparse: Sparse, /// t
 pub threads: usize, /// p
 pub preallocate: bool }
/// s
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side { /// r
 Read, /// w
 Write, /// c
 Copy, /// c
 Clone }
/// f
#[derive(Debug)]
pub enum Failure { /// c
 Cancelled, /// i
 Io { /// s
 side: Side, /// s
 source: io::Error } }
/// c
pub struct Copied { /// b
 pub bytes: u64, /// r
 pub rung: Rung }
/// s
pub struct Scratch(Vec<u8>);
impl Scratch {
    /// n
    #[must_use]
    pub fn new() -> Scratch { Scratch(Vec::new()) }
    /// b
    pub fn buffer(&mut self, n: usize) -> &mut [u8] { if self.0.len() < n { self.0.resize(n, 0); } &mut self.0[..n] }
}
impl Default for Scratch { fn default() -> Self { Self::new() } }
/// r
pub fn read_full(fd: BorrowedFd<'_>, mut off: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < buf.len() {
        let k = crate::dir::retry(|| rustix::io::pread(fd, &mut buf[n..], off))?;
        if k == 0 { break; }
        n += k; off += k as u64;
    }
    Ok(n)
}
/// w
pub fn write_full(fd: BorrowedFd<'_>, mut off: u64, mut buf: &[u8]) -> io::Result<()> {
    while !buf.is_empty() {
        let k = crate::dir::retry(|| rustix::io::pwrite(fd, buf, off))?;
        buf = &buf[k..]; off += k as u64;
    }
    Ok(())
}
/// t
pub fn truncate(fd: impl rustix::fd::AsFd, n: u64) -> io::Result<()> { crate::dir::retry(|| rustix::fs::ftruncate(fd.as_fd(), n)) }
/// c
pub fn copy_file(src: &Source<'_>, dst: &Dest<'_>, _r: &crate::rungs::Rungs, _o: &Options, scratch: &mut Scratch, observe: &(dyn Fn(u64) -> bool + Sync)) -> Result<Copied, Failure> {
    let room = scratch.buffer(256 << 10);
    let mut at = 0;
    loop {
        let n = crate::dir::retry(|| rustix::io::read(src.fd, &mut *room)).map_err(|source| Failure::Io { side: Side::Read, source })?;
        if n == 0 { break; }
        let mut b = &room[..n];
        while !b.is_empty() {
            let k = crate::dir::retry(|| rustix::io::write(dst.fd, b)).map_err(|source| Failure::Io { side: Side::Write, source })?;
            b = &b[k..];
        }
        at += n as u64;
        if !observe(n as u64) { return Err(Failure::Cancelled); }
        if at == src.size && src.size > 0 { break; }
    }
    Ok(Copied { bytes: at, rung: Rung::ReadWrite })
}
