//! Descriptors that bytes flow through: how large a pipe is, how a socket ends.
//!
//! Must not know what flows.

use rustix::net::{Shutdown, shutdown, sockopt::socket_type};
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};
use std::os::fd::AsFd;

/// `fcntl(F_SETPIPE_SZ)` with the most that this system gives to every user, or what it lets us have; the size in
/// bytes, or `None` for what is no pipe. A larger pipe lets one side work longer before it waits for the other.
pub fn grow_pipe(fd: impl AsFd) -> Option<usize> {
    let now = fcntl_getpipe_size(&fd).ok()?;
    let mut size = pipe_size_max();
    // EPERM: the user has too much in pipes already (pipe-user-pages-soft). A smaller one may still be had.
    while size > now {
        match fcntl_setpipe_size(&fd, size) {
            Ok(got) => return Some(got),
            Err(_) => size /= 2,
        }
    }
    Some(now)
}

/// `/proc/sys/fs/pipe-max-size`; its usual value where it cannot be read.
fn pipe_size_max() -> usize {
    const USUAL: usize = 1 << 20;
    let text = std::fs::read_to_string("/proc/sys/fs/pipe-max-size").unwrap_or_default();
    text.trim().parse().unwrap_or(USUAL)
}

/// Whether it is a socket.
pub fn is_socket(fd: impl AsFd) -> bool {
    socket_type(fd).is_ok()
}

/// `shutdown(fd, SHUT_WR)`: the other side reads an end, we can still read. Nothing for what is no socket.
///
/// # Errors
/// What the kernel says, but for ENOTSOCK, and for ENOTCONN: then the other side has ended it already.
pub fn shutdown_write(fd: impl AsFd) -> std::io::Result<()> {
    match shutdown(fd, Shutdown::Write) {
        Ok(()) | Err(rustix::io::Errno::NOTSOCK | rustix::io::Errno::NOTCONN) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// `shutdown(fd, SHUT_RDWR)`: a thread that waits in a read or a write comes back. What it answers does not matter: a socket
/// that cannot be shut down is down.
pub fn shutdown_both(fd: impl AsFd) {
    if shutdown(fd, Shutdown::Both).is_err() {}
}
