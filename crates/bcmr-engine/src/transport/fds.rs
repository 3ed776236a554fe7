//! The two halves of a stream when they are descriptors: pipes, sockets, whatever ssh was given.
//!
//! Must not know where the descriptors came from.

use super::conn::{RawStream, Setup, Timeouts, WriteHalf};
use super::login::{Login, PastLogin};
use fastcopy::{errno, flow, splice};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Reads from a descriptor.
struct FdIn {
    file: File,
}

impl Read for FdIn {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.file.read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.file.read_vectored(bufs)
    }
}

/// Writes to a descriptor.
struct FdOut {
    /// `None` once it is closed.
    file: Option<File>,
    /// `sendfile` was not refused yet.
    sends_files: bool,
}

impl FdOut {
    fn open(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for FdOut {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.open()?.write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.open()?.write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WriteHalf for FdOut {
    fn send_file(&mut self, file: BorrowedFd<'_>, at: &mut u64, len: usize) -> io::Result<Option<usize>> {
        if !self.sends_files {
            return Ok(None);
        }
        match splice::sendfile(self.open()?, file, at, len) {
            Ok(n) => Ok(Some(n)),
            // These are the wire's; whatever else it is, reading will find it again and know whose it is.
            Err(e) if matches!(e.raw_os_error(), errno::EPIPE | errno::ECONNRESET | errno::ETIMEDOUT) => {
                Err(e.into())
            }
            Err(_) => {
                self.sends_files = false;
                Ok(None)
            }
        }
    }

    fn close(&mut self) -> io::Result<()> {
        if let Some(file) = self.file.take() {
            // A socket that is also open for reading ends only so; for a pipe, letting go is the end.
            flow::shutdown_write(file.as_fd())?;
        }
        Ok(())
    }
}

impl RawStream {
    /// As [`RawStream::over_fds`], where `first`, the body of the first frame, was read already.
    pub(super) fn over_fds_from(
        first: Vec<u8>,
        read: OwnedFd,
        write: OwnedFd,
        name: String,
        timeouts: Timeouts,
        cut: impl Fn() + Send + Sync + 'static,
    ) -> RawStream {
        let stream = RawStream::over_fds(read, write, name, timeouts, cut);
        stream.put_back(first);
        stream
    }

    /// Over two descriptors, which may be one socket twice. Pipes are made as large as the system lets us. `cut` is
    /// called when the wire is to be broken; a socket is shut down besides.
    pub(crate) fn over_fds(
        read: OwnedFd,
        write: OwnedFd,
        name: String,
        timeouts: Timeouts,
        cut: impl Fn() + Send + Sync + 'static,
    ) -> RawStream {
        let (read, write, setup) = halves(read, write, name, timeouts, cut);
        RawStream::over(read, write, setup)
    }

    /// The same where a login may print something before the first frame.
    pub(super) fn over_login(
        read: OwnedFd,
        write: OwnedFd,
        name: String,
        login: Arc<Login>,
        cut: impl Fn() + Send + Sync + 'static,
    ) -> RawStream {
        let (read, write, setup) = halves(read, write, name, Timeouts::ENDLESS, cut);
        RawStream::over(PastLogin::new(read, login), write, setup)
    }
}

fn halves(
    read: OwnedFd,
    write: OwnedFd,
    name: String,
    timeouts: Timeouts,
    cut: impl Fn() + Send + Sync + 'static,
) -> (FdIn, FdOut, Setup) {
    flow::grow_pipe(read.as_fd());
    flow::grow_pipe(write.as_fd());
    // Without a second descriptor a stuck thread stays until the other side lets go; nothing else is lost.
    let socket = if flow::is_socket(read.as_fd()) { read.try_clone().ok() } else { None };
    let cut = Box::new(move || {
        cut();
        if let Some(socket) = &socket {
            flow::shutdown_both(socket.as_fd());
        }
    });
    let write = FdOut { file: Some(File::from(write)), sends_files: true };
    (FdIn { file: File::from(read) }, write, Setup { name, timeouts, cut })
}
