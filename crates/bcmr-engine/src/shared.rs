//! A connection of ssh that all sessions of a command share: the process that holds it, and where its socket is.
//!
//! Must not know how it was made, nor what its sessions are for.

use fastcopy::pass::SocketDir;
use std::path::PathBuf;
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long ssh is waited for once it was asked to end, before it is killed.
const END_MAX: Duration = Duration::from_secs(5);
/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(5);

/// Ends when this is dropped; and by itself when this process dies, as its standard input does then.
pub struct SharedSsh {
    held: Mutex<Option<(Child, SocketDir)>>,
    said: Mutex<Vec<String>>,
}

impl SharedSsh {
    /// `child` listens in `dir`, and has said so much until then.
    pub(crate) fn over(child: Child, dir: SocketDir, said: Vec<String>) -> SharedSsh {
        SharedSsh { held: Mutex::new(Some((child, dir))), said: Mutex::new(said) }
    }

    /// Where it listens, while it lives.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let mut held = locked(&self.held);
        let (child, dir) = held.as_mut()?;
        matches!(child.try_wait(), Ok(None)).then(|| dir.path().to_owned())
    }

    /// Whether it is over, and not by [`SharedSsh::end`].
    pub(crate) fn has_ended(&self) -> bool {
        locked(&self.held).as_mut().is_some_and(|(child, _)| !matches!(child.try_wait(), Ok(None)))
    }

    /// Goes on with the ssh of another one.
    pub(crate) fn renew(&self, by: &SharedSsh) {
        let new = locked(&by.held).take();
        locked(&self.said).extend(by.take_said());
        if let Some((child, dir)) = std::mem::replace(&mut *locked(&self.held), new) {
            end(child, &dir);
        }
    }

    /// What ssh said while it connected; once.
    pub(crate) fn take_said(&self) -> Vec<String> {
        std::mem::take(&mut locked(&self.said))
    }

    /// Ends it: each ssh from now on connects by itself.
    pub(crate) fn end(&self) {
        if let Some((child, dir)) = locked(&self.held).take() {
            end(child, &dir);
        }
    }
}

/// Ends ssh, in order if it can, and removes what it listened on.
pub(crate) fn end(mut child: Child, dir: &SocketDir) {
    // The session that keeps it ends with its input; the signal spares the wait for that.
    drop(child.stdin.take());
    drop(fastcopy::child::terminate(&mut child));
    let until = Instant::now() + END_MAX;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
        std::thread::sleep(LOOK);
    }
    if matches!(child.try_wait(), Ok(None)) {
        drop(child.kill());
        drop(child.wait());
    }
    // An empty directory more or less is nothing that a run has failed in; the next one sweeps it.
    drop(dir.remove());
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for SharedSsh {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for SharedSsh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SharedSsh").field(&self.path()).finish()
    }
}

/// Each is its own.
impl PartialEq for SharedSsh {
    fn eq(&self, other: &SharedSsh) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for SharedSsh {}
