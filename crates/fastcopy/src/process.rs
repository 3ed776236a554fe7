//! What the kernel knows of this process, and what it gives to any: its user, random bytes, no core dumps.
//!
//! Must not know what a secret is for.

use std::io;

/// `geteuid`: the user whose rights this process has.
#[must_use]
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// `getegid` and `getgroups`: whether this process has the rights of a group.
#[must_use]
pub fn is_in_group(group: u32) -> bool {
    let is_it = |id: rustix::process::Gid| id.as_raw() == group;
    is_it(rustix::process::getegid())
        || rustix::process::getgroups().is_ok_and(|groups| groups.into_iter().any(is_it))
}

/// `getrandom`: fills `room` with bytes that cannot be guessed; waits, early at boot, until there are such.
///
/// # Errors
/// ENOSYS where the kernel has no such call
/// ([getrandom(2)](https://man7.org/linux/man-pages/man2/getrandom.2.html)).
pub fn random(room: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < room.len() {
        let rest = room.get_mut(done..).unwrap_or_default();
        done += crate::retry::retry(|| {
            rustix::rand::getrandom(&mut *rest, rustix::rand::GetRandomFlags::empty())
        })?;
    }
    Ok(())
}

/// 32 bytes of [`random`]: a secret that cannot be guessed.
///
/// # Errors
/// As [`random`].
pub fn secret() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    random(&mut bytes)?;
    Ok(bytes)
}

/// `sigaction(signal, NULL, ...)`: whether a signal is ignored, as `nohup` and shells leave it to the programs that they
/// start.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: an all-zero `sigaction` is a value of that type, and the kernel only writes to it.
    let (asked, now) = unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &raw mut now), now)
    };
    asked == 0 && now.sa_sigaction == libc::SIG_IGN
}

/// `prctl(PR_SET_DUMPABLE, 0)`: no core file of this process and no `ptrace` of it by its own user, so that keys in
/// its memory stay there. For the rest of its life, and its `/proc` belongs to root.
///
/// # Errors
/// What the kernel says ([PR_SET_DUMPABLE](https://man7.org/linux/man-pages/man2/PR_SET_DUMPABLE.2const.html));
/// elsewhere than on Linux [`io::ErrorKind::Unsupported`].
pub fn never_dump() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return Ok(rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?);
    #[cfg(not(target_os = "linux"))]
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The standard library has Rust programs ignore SIGPIPE.
    #[test]
    fn what_is_ignored_is_known() {
        assert!(is_ignored(libc::SIGPIPE));
        assert!(!is_ignored(libc::SIGSEGV) && !is_ignored(-1) && !is_ignored(libc::SIGKILL));
    }

    #[test]
    fn random_bytes_differ_and_fill_the_room() {
        let (mut a, mut b) = ([0; 600], [0; 600]);
        random(&mut a).unwrap();
        random(&mut b).unwrap();
        assert_ne!(a, b);
        assert!(a.chunks(60).all(|part| part.iter().any(|byte| *byte != 0)));
        random(&mut []).unwrap();
    }
}
