//! A mount namespace of the command's own, so that what it mounts ends with it, a SIGKILL included.
//!
//! A FUSE mount whose server was killed answers ENOTCONN to everyone who looks at it, and mkfs.btrfs looks at every
//! mount of the machine before it writes.

use rustix::io::Errno;
use sh::Result;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Set for a command that has its namespace, and for what it starts.
const APART: &str = "BCMR_XTASK_APART";

/// Starts this very command once more in a mount namespace of its own, and does not return then. Returns in that
/// namespace, without the dead mounts that others left, and where there can be none: only root may mount at all.
///
/// # Errors
/// `unshare` cannot be started although it was a moment ago.
pub fn mounts() -> Result {
    if std::env::var_os(APART).is_some() {
        drop_dead();
        return Ok(());
    }
    let unshare = ["--mount", "--propagation", "private"];
    let can = Command::new("unshare").args(unshare).arg("true").stderr(Stdio::null()).status();
    if !sh::is_root() || !can.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    let mut again = Command::new("unshare");
    again
        .args(unshare)
        .arg("--")
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(APART, "1");
    Err(format!("unshare: {}", again.exec()).into())
}

/// Takes mounts away whose server is gone; in this namespace alone.
fn drop_dead() {
    let Ok(mounts) = std::fs::read_to_string("/proc/self/mounts") else { return };
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(at), Some(kind)) = (words.next(), words.next()) else { continue };
        // Only these end in that way; looking at others, such as NFS whose server is silent, may take for ever.
        let dead =
            kind.starts_with("fuse") && rustix::fs::lstat(Path::new(at)).is_err_and(|e| e == Errno::NOTCONN);
        if dead && sh::quiet("umount", &["--lazy", at]).is_ok() {
            eprintln!("xtask: the server of {at} is gone; it is left aside");
        }
    }
}
