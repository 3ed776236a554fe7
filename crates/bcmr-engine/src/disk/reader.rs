//! Waiting for one who reads what is written into a FIFO.
//!
//! Must not know who writes, or what.

use fastcopy::errno;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(20);

/// What `open` opens, which is a FIFO and is opened without blocking: as long as no process has it open to be read (ENXIO) it is
/// tried again. `None`: `go_on` said no before there was one.
pub(crate) fn awaited(
    open: impl Fn() -> io::Result<OwnedFd>,
    go_on: &dyn Fn() -> bool,
) -> io::Result<Option<OwnedFd>> {
    loop {
        match open() {
            Err(e) if e.raw_os_error() == Some(errno::ENXIO) => {}
            opened => return opened.map(Some),
        }
        if !go_on() {
            return Ok(None);
        }
        std::thread::sleep(LOOK);
    }
}
