//! Signals, made into flags that a thread looks at.
//!
//! The first of INT, TERM and HUP is remembered; a second one that does not come together with it exits at once, out
//! of the handler itself, so that it works whatever else is stuck. Flags and not a pipe: a pipe costs a descriptor for each signal, which a small limit
//! may not grant, and all it buys is some hundredths of a second. Must not know what stopping means.

use super::writer::Stop;
use bcmr_engine::signal::{First, exit_at_second};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const STOPS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// What has arrived so far.
#[derive(Default)]
pub struct Signals {
    stops: [Arc<AtomicBool>; STOPS.len()],
    any: Stop,
    status: Arc<AtomicBool>,
}

impl Signals {
    /// Puts the handlers in place, but not over a signal in `ignored`: who started us with `nohup` meant it.
    pub fn catch(&self, ignored: u64) -> io::Result<()> {
        let first = First::default();
        let wanted = |signal: i32| ignored & (1 << (signal - 1)) == 0;
        for (signal, got) in STOPS.into_iter().zip(&self.stops).filter(|s| wanted(s.0)) {
            exit_at_second(signal, 128 + signal, &first)?;
            flag::register(signal, Arc::clone(got))?;
            flag::register(signal, Arc::clone(&self.any))?;
        }
        if wanted(SIGUSR1) {
            flag::register(SIGUSR1, Arc::clone(&self.status))?;
        }
        Ok(())
    }

    /// The signal that asked to stop, if one did.
    pub fn stop(&self) -> Option<u8> {
        let caught = self.stops.iter().position(|got| got.load(Ordering::SeqCst))?;
        STOPS.get(caught).and_then(|signal| u8::try_from(*signal).ok())
    }

    /// Set once one did.
    pub fn any(&self) -> &Stop {
        &self.any
    }

    /// Whether the user has asked how far it is since the last call.
    pub fn status(&self) -> bool {
        self.status.swap(false, Ordering::SeqCst)
    }
}
