//! Whether a file changed while it was read, told by one look at it afterwards: what was changed last well before it was opened
//! has not been changed since.
//!
//! Must not know what is read, nor what becomes of it.

use crate::info::{Info, Time};
use crate::retry::retry;
use rustix::fd::AsFd;

/// How long before the moment a file must have been changed last, nanoseconds. The kernel stamps with the time of its last tick,
/// some milliseconds back, and a file system may keep whole seconds (ext4 with inodes of 128 bytes).
const MARGIN_NS: i128 = 2_000_000_000;
/// As much as the two clocks may differ in how far they went, nanoseconds: each is read at its own tick.
const DRIFT_NS: i128 = 100_000_000;

/// A moment, before files are opened.
#[derive(Clone, Copy, Debug)]
pub struct Since {
    wall: i128,
    steady: i128,
}

/// 0 for a clock that this kernel does not have: two of them stand still together, and nothing is older than the beginning.
fn now(clock: libc::clockid_t) -> i128 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: there is room for the answer.
    let _had = unsafe { libc::clock_gettime(clock, &raw mut now) } == 0;
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}

fn nanoseconds(time: Time) -> i128 {
    i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec)
}

impl Since {
    /// `clock_gettime(CLOCK_REALTIME_COARSE)`, the clock that the kernel stamps with, and one that cannot be set. Neither is a
    /// system call.
    #[must_use]
    pub fn now() -> Since {
        #[cfg(target_os = "linux")]
        let (wall, steady) = (libc::CLOCK_REALTIME_COARSE, libc::CLOCK_MONOTONIC_COARSE);
        #[cfg(not(target_os = "linux"))]
        let (wall, steady) = (libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC);
        Since { wall: now(wall), steady: now(steady) }
    }

    /// As long after that moment, or before it, on both clocks.
    #[must_use]
    pub fn moved(self, nanoseconds: i64) -> Since {
        let by = i128::from(nanoseconds);
        Since { wall: self.wall + by, steady: self.steady + by }
    }

    /// Whether a file of which `fstat` said `info` just now has not changed since. To be asked of file systems that
    /// [`stamps_by_our_clock`] knows alone. `false` also where that cannot be told: it was changed not long before, or the clock
    /// was set meanwhile.
    #[must_use]
    pub fn holds(&self, info: &Info) -> bool {
        self.holds_at(Since::now(), info)
    }

    fn holds_at(&self, later: Since, info: &Info) -> bool {
        let went = later.wall - self.wall - (later.steady - self.steady);
        nanoseconds(info.ctime) < self.wall - MARGIN_NS && went.abs() < DRIFT_NS
    }
}

/// `fstatfs`: whether what changes on this file system is stamped with this machine's clock, and every change is. Not where another
/// machine or a program may do it (NFS, FUSE).
pub fn stamps_by_our_clock(fd: impl AsFd) -> bool {
    const EXT: i64 = 0xEF53;
    const XFS: i64 = 0x5846_5342;
    const BTRFS: i64 = 0x9123_683E;
    const TMPFS: i64 = 0x0102_1994;
    const F2FS: i64 = 0xF2F5_2010;
    let fs = retry(|| rustix::fs::fstatfs(fd.as_fd()));
    fs.is_ok_and(|fs| matches!({ fs.f_type }, EXT | XFS | BTRFS | TMPFS | F2FS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;

    const SEC: i128 = 1_000_000_000;

    fn changed_at(ns: i128) -> Info {
        let ctime = Time { sec: (ns / SEC) as i64, nsec: (ns % SEC) as u32 };
        Info { ctime, ..Info::of(File::open("/").unwrap()).unwrap() }
    }

    #[test]
    fn what_changed_since_or_just_before_is_not_trusted() {
        let since = Since { wall: 1000 * SEC, steady: 7 * SEC };
        let later = |wall_ns: i128, steady_ns: i128| Since {
            wall: since.wall + wall_ns,
            steady: since.steady + steady_ns,
        };
        let ms = SEC / 1000;
        for (changed, at, holds) in [
            (900 * SEC, later(0, 0), true),
            (900 * SEC, later(5 * ms, 9 * ms), true),
            (900 * SEC, later(3600 * SEC, 3600 * SEC), true),
            (997 * SEC, later(0, 0), true),
            // Just before, and maybe after.
            (998 * SEC, later(0, 0), false),
            (999 * SEC, later(0, 0), false),
            (1000 * SEC, later(SEC, SEC), false),
            (2000 * SEC, later(0, 0), false),
            // The clock was set back, or forward: what was changed after that has any time.
            (900 * SEC, later(-200 * SEC, SEC), false),
            (900 * SEC, later(200 * SEC, SEC), false),
            // The machine slept.
            (900 * SEC, later(200 * SEC, ms), false),
        ] {
            assert_eq!(since.holds_at(at, &changed_at(changed)), holds, "{changed} {at:?}");
        }
    }

    #[test]
    fn a_file_that_is_written_now_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = File::create(dir.path().join("f")).unwrap();
        let since = Since::now();
        file.write_all(b"x").unwrap();
        assert!(!since.holds(&Info::of(&file).unwrap()));
    }
}
