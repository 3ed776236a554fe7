//! `poll(2)`: waiting for several descriptors at once, for the few places that cannot give each a thread because
//! strangers choose how many there are.
//!
//! Must not know what comes.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::BorrowedFd;
use std::io;
use std::time::Duration;

/// `poll(POLLIN)`: waits until something can be read, or has ended or failed, or `wait` is over; says of each whether.
/// A signal ends it early, with nothing.
///
/// # Errors
/// What the kernel says ([poll(2)](https://man7.org/linux/man-pages/man2/poll.2.html)).
pub fn readable(fds: &[BorrowedFd<'_>], wait: Duration) -> io::Result<Vec<bool>> {
    ready(fds, PollFlags::IN, wait)
}

/// `poll(POLLOUT)`: the same of one that is to be written to. A pipe then takes 4 KiB at once (`PIPE_BUF`).
///
/// # Errors
/// As of [`readable`].
pub fn writable(fd: BorrowedFd<'_>, wait: Duration) -> io::Result<bool> {
    Ok(ready(&[fd], PollFlags::OUT, wait)?.contains(&true))
}

fn ready(fds: &[BorrowedFd<'_>], to: PollFlags, wait: Duration) -> io::Result<Vec<bool>> {
    let mut polled: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, to)).collect();
    let wait = Timespec {
        tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: wait.subsec_nanos().into(),
    };
    match rustix::event::poll(&mut polled, Some(&wait)) {
        Ok(_) => Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect()),
        Err(rustix::io::Errno::INTR) => Ok(vec![false; fds.len()]),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::fd::AsFd;

    #[test]
    fn says_who_has_something() {
        let (a, mut b) = std::os::unix::net::UnixStream::pair().unwrap();
        let (c, d) = std::os::unix::net::UnixStream::pair().unwrap();
        let fds = [a.as_fd(), c.as_fd()];
        assert_eq!(readable(&fds, Duration::ZERO).unwrap(), [false, false]);
        b.write_all(b"x").unwrap();
        assert_eq!(readable(&fds, Duration::from_secs(60)).unwrap(), [true, false]);
        drop(d);
        assert_eq!(readable(&fds, Duration::from_secs(60)).unwrap(), [true, true]);
    }

    #[test]
    fn says_who_takes_something() {
        let (read, write) = std::io::pipe().unwrap();
        assert!(writable(write.as_fd(), Duration::from_secs(60)).unwrap());
        // As much as it takes while nothing is read.
        while writable(write.as_fd(), Duration::ZERO).unwrap() {
            (&write).write_all(&[0; 4096]).unwrap();
        }
        drop(read);
        assert!(writable(write.as_fd(), Duration::from_secs(60)).unwrap());
    }
}
