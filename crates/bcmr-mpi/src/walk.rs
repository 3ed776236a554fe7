//! A rank's walk of the source: what the thread that walks hears and says, by channels to the thread that talks to other ranks.
//!
//! Must not know how ranks reach one another, nor who gets which directory.

use bcmr_engine::api::{GivenTo, OtherWalkers, WalkedPart};
use bcmr_mpi::message::{Piece, Report};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the thread that talks sends to the one that walks.
pub struct ToWalk {
    /// What is to be walked next; once this is dropped, all is walked.
    pub next: Option<Sender<Vec<PathBuf>>>,
    /// What other ranks have found.
    pub parts: Option<Sender<WalkedPart>>,
    /// Of a path of which not all pieces have come.
    came: Vec<u8>,
    named: Vec<PathBuf>,
}

/// The other ranks, as the thread that walks sees them.
pub struct Walk<'r> {
    next: Mutex<Receiver<Vec<PathBuf>>>,
    parts: Mutex<Receiver<WalkedPart>>,
    says: Mutex<Sender<Report>>,
    wanted: &'r AtomicUsize,
    is_begun: AtomicBool,
}

/// A path that has travelled.
pub fn path_of(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

/// The two ends. `wanted` directories are given away when there are so many.
pub fn ends(says: Sender<Report>, wanted: &AtomicUsize) -> (ToWalk, Walk<'_>) {
    let ((give, next), (tell, parts)) = (channel(), channel());
    let to = ToWalk { next: Some(give), parts: Some(tell), came: Vec::new(), named: Vec::new() };
    let (next, parts) = (Mutex::new(next), Mutex::new(parts));
    (to, Walk { next, parts, says: Mutex::new(says), wanted, is_begun: AtomicBool::new(false) })
}

impl ToWalk {
    /// Some bytes of a path that is to be walked.
    pub fn named(&mut self, piece: &Piece) {
        self.named.extend(piece.add(&mut self.came).map(path_of));
    }

    /// All of what was named is to be walked.
    pub fn walk(&mut self) {
        let named = std::mem::take(&mut self.named);
        self.walk_these(named);
    }

    /// These are to be walked.
    pub fn walk_these(&mut self, paths: Vec<PathBuf>) {
        if let Some(next) = &self.next {
            let _the_walk_has_said_why_it_ended = next.send(paths);
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Walk<'_> {
    fn say(&self, report: Report) {
        let _the_job_is_over = lock(&self.says).send(report);
    }
}

impl OtherWalkers for Walk<'_> {
    fn next(&self) -> Option<Vec<PathBuf>> {
        if self.is_begun.swap(true, Relaxed) {
            self.say(Report::Walked);
        }
        lock(&self.next).recv().ok()
    }

    fn wanted(&self) -> usize {
        self.wanted.load(Relaxed)
    }

    fn give(&self, path: PathBuf, to: GivenTo) {
        if to == GivenTo::Any {
            let fewer = |wanted: usize| Some(wanted.saturating_sub(1));
            let _always = self.wanted.fetch_update(Relaxed, Relaxed, fewer);
        }
        // The pieces of two paths must not mix.
        let says = lock(&self.says);
        for piece in Piece::of(path.as_os_str().as_bytes()) {
            let _the_job_is_over = says.send(Report::Gave(to, piece));
        }
    }

    fn parts(&self) -> Vec<WalkedPart> {
        lock(&self.parts).iter().collect()
    }
}
