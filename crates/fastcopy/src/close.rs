//! `close_range(2)`: many descriptors closed by few calls. Must not know what they are of.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Closes all of them, and leaves none: by one call as many as have numbers that follow one another, which those do that one
/// thread has opened one after the other, mostly. What closing says is nothing that a caller could act on, as with a dropped
/// [`OwnedFd`].
pub fn all(descriptors: &mut Vec<OwnedFd>) {
    descriptors.sort_unstable_by_key(AsRawFd::as_raw_fd);
    while let Some(last) = descriptors.last().map(AsRawFd::as_raw_fd) {
        let expected = (0..=last).rev();
        let run = descriptors
            .iter()
            .rev()
            .zip(expected)
            .take_while(|(fd, number)| fd.as_raw_fd() == *number)
            .count();
        let before = descriptors.len() - run;
        let first = descriptors.get(before).map_or(last, AsRawFd::as_raw_fd);
        if run > 1 && close_run(first, last) {
            descriptors.drain(before..).for_each(std::mem::forget);
        } else {
            descriptors.truncate(before);
        }
    }
}

/// Whether they are closed; not on a kernel before Linux 5.9, or in a sandbox that does not know the call.
#[cfg(target_os = "linux")]
fn close_run(first: RawFd, last: RawFd) -> bool {
    // SAFETY: the caller owns every number of the run, and forgets them when this says so.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn close_run(_: RawFd, _: RawFd) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_open(number: RawFd) -> bool {
        std::path::Path::new(&format!("/proc/thread-self/fd/{number}")).symlink_metadata().is_ok()
    }

    /// A table of descriptors of its own: other tests open and close meanwhile.
    fn alone(test: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                // SAFETY: this thread uses no descriptor that another one gave it and may close.
                assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
                test();
            });
            run.join().unwrap();
        });
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn these_are_closed_and_no_other() {
        alone(|| {
            let open = || OwnedFd::from(std::fs::File::open("/").unwrap());
            // Every third of a long row stays, and is between others.
            let all: Vec<OwnedFd> = (0..60).map(|_| open()).collect();
            let (mut stay, mut go) = (Vec::new(), Vec::new());
            for (n, fd) in all.into_iter().enumerate() {
                if n % 7 == 3 { stay.push(fd) } else { go.push(fd) }
            }
            go.reverse();
            let numbers: Vec<RawFd> = go.iter().map(AsRawFd::as_raw_fd).collect();
            super::all(&mut go);
            assert!(go.is_empty());
            assert!(numbers.iter().all(|number| !is_open(*number)));
            assert!(stay.iter().all(|fd| is_open(fd.as_raw_fd())));
            super::all(&mut go);
        });
    }
}
