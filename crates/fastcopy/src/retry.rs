//! Calls that a signal interrupted, repeated. Must not know what is called.

use rustix::io::Errno;
use std::io;

/// Repeats a call that a signal interrupted; nothing else is repeated.
pub(crate) fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other.map_err(io::Error::from),
        }
    }
}
