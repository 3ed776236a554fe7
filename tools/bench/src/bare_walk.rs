//! What any walk must do at the least: every directory is listed and every name looked at, by two threads that keep nothing.
//! The measure for what making a plan costs.
//!
//! Must not know what it is compared with.

use sh::Result;
use std::io;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex};

/// The hidden command of this binary that [`run`] serves.
pub const HELPER: &str = "__walk";
const THREADS: usize = 2;

/// Directories that were not listed yet, and threads that list one.
#[derive(Default)]
struct Open {
    dirs: Vec<PathBuf>,
    busy: usize,
}

/// Walks the directory that is its one argument, and says how many names it has seen.
pub fn run(args: &[&str]) -> Result {
    let [top] = args else { return Err("one directory is needed".into()) };
    let open = Mutex::new(Open { dirs: vec![PathBuf::from(top)], busy: 0 });
    let (changed, open) = (Condvar::new(), &open);
    let seen = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| walk(open, &changed))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum::<io::Result<u64>>()
    })?;
    println!("{seen}");
    Ok(())
}

fn walk(open: &Mutex<Open>, changed: &Condvar) -> io::Result<u64> {
    let mut seen = 0;
    loop {
        let mut now = open.lock().unwrap();
        let dir = loop {
            match now.dirs.pop() {
                Some(dir) => break dir,
                None if now.busy == 0 => return Ok(seen),
                None => now = changed.wait(now).unwrap(),
            }
        };
        now.busy += 1;
        drop(now);
        let listed = list(&dir);
        let mut now = open.lock().unwrap();
        now.busy -= 1;
        changed.notify_all();
        let (names, dirs) = listed?;
        seen += names;
        now.dirs.extend(dirs);
    }
}

fn list(dir: &PathBuf) -> io::Result<(u64, Vec<PathBuf>)> {
    let (mut names, mut dirs) = (0, Vec::new());
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        names += 1;
        // By the handle of the directory, without its path.
        if entry.metadata()?.is_dir() {
            dirs.push(entry.path());
        }
    }
    Ok((names, dirs))
}
