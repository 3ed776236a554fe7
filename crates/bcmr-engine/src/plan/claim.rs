//! Claims: which process is at which shard of a plan. A claim is a file that its process keeps locked and touches now and
//! then; it counts for nothing once that process is dead.
//!
//! Must not decide about anything that could be lost: a shard that two processes are at is right as well, only slower.
//!
//! On the machine that holds it, the lock of a claim's file says whether its process lives. For processes of other machines,
//! whose locks not every file system shows, it is how long ago it was touched, by the clock of the file system: a claim and
//! the file that its age is measured with are both touched in the same way, so no machine's own clock has a say.

use super::folder::name_of;
use crate::disk::Dirs;
use crate::disk::sys::Sys;
use crate::error::{Error, Op, Result};
use crate::receiver::land;
use crate::stage;
use fastcopy::dir::{Dir, ListBuffer, Lock, Name, NameBuf, try_lock};
use fastcopy::errno;
use fastcopy::meta::{self, Info, Kind};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How often a claim is touched.
const BEAT: Duration = Duration::from_secs(10);
/// A claim that was not touched for so long (seconds) is that of a dead process.
const LEASE_SECONDS: i64 = 90;
/// Bytes of a claim that are read.
const CLAIM_BYTES_MAX: u64 = 4096;
/// What the claim of the process that finishes the plan is called.
const FINISH: &str = "finish";

/// Who claims: a machine, as it is told to people, and a number that it has until it starts anew.
#[derive(Clone, Debug)]
pub(super) struct Claimant {
    shown: Vec<u8>,
    boot: Vec<u8>,
}

impl Claimant {
    /// This process on this machine.
    pub(super) fn this() -> Claimant {
        let read = |dir: &str, name: &str| -> Option<Vec<u8>> {
            let dir = Dir::open(Path::new(dir)).ok()?;
            let mut text = Vec::new();
            let file = File::from(dir.open_file(name_of(name).ok()?.as_name()).ok()?);
            file.take(CLAIM_BYTES_MAX).read_to_end(&mut text).ok()?;
            Some(text.trim_ascii().to_vec())
        };
        let host = read("/proc/sys/kernel", "hostname").unwrap_or_else(|| b"a machine".to_vec());
        // Without such a number, no other claim is of this machine for sure.
        let boot = read("/proc/sys/kernel/random", "boot_id").unwrap_or_default();
        let process = format!(", process {}", std::process::id());
        Claimant { shown: [&host, process.as_bytes()].concat(), boot }
    }

    fn text(&self) -> Vec<u8> {
        [self.shown.as_slice(), b"\n", &self.boot, b"\n"].concat()
    }
}

/// What is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimOf {
    Shard(u32),
    Finish,
}

impl ClaimOf {
    fn name(self) -> String {
        match self {
            ClaimOf::Shard(shard) => shard.to_string(),
            ClaimOf::Finish => FINISH.to_owned(),
        }
    }

    /// What a claim of this name is about.
    fn of(name: Name<'_>) -> Option<ClaimOf> {
        let first = name.bytes().split(|b| *b == b'.').next()?;
        if first == FINISH.as_bytes() {
            return Some(ClaimOf::Finish);
        }
        std::str::from_utf8(first).ok()?.parse().ok().map(ClaimOf::Shard)
    }
}

/// A claim of another process that is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RivalClaim {
    pub(super) claimed: ClaimOf,
    /// Where it runs, to show.
    pub(super) who: Vec<u8>,
}

/// The claims of a plan.
pub(super) struct ClaimsFolder<'d> {
    dir: &'d Dir,
    shown: &'d Path,
    me: Claimant,
}

/// A claim of this process.
pub(super) struct HeldClaim<'d> {
    dir: &'d Dir,
    name: NameBuf,
    file: OwnedFd,
}

/// What tells whether a claim's process is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Signs {
    /// It is of this machine, since that was started.
    is_here: bool,
    lock: Lock,
    /// Seconds since it was touched, by the clock of the file system.
    age: i64,
}

/// Whether a claim's process is alive, as far as can be told.
fn is_alive(signs: Signs) -> bool {
    match (signs.is_here, signs.lock) {
        (_, Lock::Busy) => true,
        (true, Lock::Held) => false,
        // A lock that is free says nothing of other machines, whose locks may not be seen here.
        (false, Lock::Held) | (_, Lock::Unsupported) => signs.age < LEASE_SECONDS,
    }
}

impl<'d> ClaimsFolder<'d> {
    pub(super) fn new(dir: &'d Dir, shown: &'d Path) -> ClaimsFolder<'d> {
        ClaimsFolder { dir, shown, me: Claimant::this() }
    }

    fn told(&self, e: io::Error) -> Error {
        Error::os(Op::Claim, self.shown, e)
    }

    /// Claims it, unless another process that is alive has.
    pub(super) fn take(&self, what: ClaimOf) -> Result<std::result::Result<HeldClaim<'d>, RivalClaim>> {
        let made = self.make().map_err(|e| self.told(e))?;
        let name = name_of(&what.name()).map_err(|e| self.told(e))?;
        loop {
            match self.give(&made, name.as_name()) {
                Ok(()) => return Ok(Ok(HeldClaim { name, ..made })),
                Err(e) if e.raw_os_error() == Some(errno::EEXIST) => {}
                Err(e) => {
                    let _the_first_error_counts = made.release();
                    return Err(self.told(e));
                }
            }
            if let Some(rival) = self.judged(name.as_name()).map_err(|e| self.told(e))? {
                made.release().map_err(|e| self.told(e))?;
                return Ok(Err(rival));
            }
        }
    }

    /// Claims it beside another process that has.
    pub(super) fn beside(&self, shard: u32) -> Result<HeldClaim<'d>> {
        let beside = || -> io::Result<HeldClaim<'d>> {
            let made = self.make()?;
            let digits: Vec<u8> = made.name.bytes().iter().skip(8).take(32).copied().collect();
            let name = [shard.to_string().as_bytes(), b".", &digits].concat();
            let name = NameBuf::new(&name).ok_or(io::ErrorKind::InvalidInput)?;
            self.give(&made, name.as_name())?;
            Ok(HeldClaim { name, ..made })
        };
        beside().map_err(|e| self.told(e))
    }

    fn give(&self, made: &HeldClaim<'_>, name: Name<'_>) -> io::Result<()> {
        land::give_name(self.dir, made.name.as_name(), self.dir, name, true)
    }

    /// A claim without its name, locked where that can be: nothing ever sees it unlocked under its own.
    fn make(&self) -> io::Result<HeldClaim<'d>> {
        let name = stage::random().ok_or(io::ErrorKind::InvalidInput)?;
        let file = land::new_file(self.dir, name.as_name(), 0o666)?;
        let _some_file_systems_have_no_locks = try_lock(&file);
        let mut out = File::from(file);
        out.write_all(&self.me.text())?;
        Ok(HeldClaim { dir: self.dir, name, file: OwnedFd::from(out) })
    }

    /// The process that holds the claim `name`, if it lives. That of a dead one is taken away.
    fn judged(&self, name: Name<'_>) -> io::Result<Option<RivalClaim>> {
        let Some(claimed) = ClaimOf::of(name) else { return Ok(None) };
        Ok(self.holder(name)?.map(|who| RivalClaim { claimed, who }))
    }

    /// Takes away what processes that are dead have left of claims that had no name yet.
    ///
    /// # Errors
    /// The first that listing, looking or removing met.
    pub(super) fn sweep(&self) -> io::Result<()> {
        let left = Sys::new().find(self.dir, usize::MAX, &stage::is_random)?;
        left.iter().try_for_each(|name| self.holder(name.as_name()).map(drop))
    }

    /// Who holds the claim in this file, if that process lives. That of a dead one is taken away.
    fn holder(&self, name: Name<'_>) -> io::Result<Option<Vec<u8>>> {
        let file = match self.dir.open_read_write(name) {
            Ok(file) => file,
            Err(e) if e.raw_os_error() == Some(errno::ENOENT) => return Ok(None),
            Err(e) => return Err(e),
        };
        let info = Info::of(&file)?;
        if info.kind != Kind::File {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut text = Vec::new();
        let lock = try_lock(&file);
        File::from(file.try_clone()?).take(CLAIM_BYTES_MAX).read_to_end(&mut text)?;
        let mut lines = text.split(|b| *b == b'\n');
        let who = lines.next().unwrap_or_default().to_vec();
        let boot = lines.next().unwrap_or_default();
        let is_here = !boot.is_empty() && boot == self.me.boot;
        let age = self.now()?.saturating_sub(info.mtime.sec);
        if is_alive(Signs { is_here, lock, age }) {
            return Ok(Some(who));
        }
        self.bury(name, &info)?;
        Ok(None)
    }

    /// What the file system says is now, in seconds.
    fn now(&self) -> io::Result<i64> {
        let name = stage::random().ok_or(io::ErrorKind::InvalidInput)?;
        let file = land::new_file(self.dir, name.as_name(), 0o600)?;
        let seen = meta::touch(&file).and_then(|()| Info::of(&file));
        self.dir.remove_file(name.as_name())?;
        Ok(seen?.mtime.sec)
    }

    /// Takes away the claim of a dead process. Another process may have done so a moment ago, and claimed anew: then the
    /// claim gets its name back.
    fn bury(&self, name: Name<'_>, dead: &Info) -> io::Result<()> {
        let aside = stage::random().ok_or(io::ErrorKind::InvalidInput)?;
        match land::give_name(self.dir, name, self.dir, aside.as_name(), true) {
            Err(e) if e.raw_os_error() == Some(errno::ENOENT) => return Ok(()),
            other => other?,
        }
        if self.dir.stat(aside.as_name())?.id() != dead.id() {
            match land::give_name(self.dir, aside.as_name(), self.dir, name, true) {
                Err(e) if e.raw_os_error() == Some(errno::EEXIST) => {}
                other => return other,
            }
        }
        self.dir.remove_file(aside.as_name())
    }

    /// The process that finishes the plan, if one does.
    pub(super) fn finishing(&self) -> Result<Option<RivalClaim>> {
        let judged = name_of(FINISH).and_then(|name| self.judged(name.as_name()));
        judged.map_err(|e| self.told(e))
    }

    /// Shards that were claimed when the folder was listed, by processes that may be dead.
    pub(super) fn claimed(&self) -> Result<HashSet<u32>> {
        let mut claimed = HashSet::new();
        let listed = self.dir.reopen().and_then(|dir| {
            dir.list(&mut ListBuffer::new(), |entry| {
                if let Some(ClaimOf::Shard(shard)) = ClaimOf::of(entry.name) {
                    claimed.insert(shard);
                }
                true
            })
        });
        listed.map_err(|e| self.told(e))?;
        Ok(claimed)
    }

    /// All claims of processes that are alive; those of dead ones are taken away.
    pub(super) fn alive(&self) -> Result<Vec<RivalClaim>> {
        let mut names: Vec<NameBuf> = Vec::new();
        let listed = self.dir.reopen().and_then(|dir| {
            dir.list(&mut ListBuffer::new(), |entry| {
                if ClaimOf::of(entry.name).is_some() {
                    names.push(entry.name.to_owned());
                }
                true
            })
        });
        listed.map_err(|e| self.told(e))?;
        names.sort();
        let mut alive = Vec::new();
        for name in names {
            alive.extend(self.judged(name.as_name()).map_err(|e| self.told(e))?);
        }
        Ok(alive)
    }
}

impl HeldClaim<'_> {
    /// Whether the claim is still there: another process takes away one that was not touched for long, as it is while a
    /// machine sleeps.
    pub(super) fn is_held(&self) -> io::Result<bool> {
        let there = self.dir.look(self.name.as_name())?;
        let own = Info::of(&self.file)?;
        Ok(there.is_some_and(|info| info.id() == own.id()))
    }

    /// Gives it up.
    pub(super) fn release(self) -> io::Result<()> {
        if !self.is_held()? {
            return Ok(());
        }
        match self.dir.remove_file(self.name.as_name()) {
            Err(e) if e.raw_os_error() != Some(errno::ENOENT) => Err(e),
            _ => Ok(()),
        }
    }

    /// Does `work`, and touches the claim meanwhile.
    pub(super) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        let ended = Mutex::new(false);
        let wake = Condvar::new();
        let beat = || {
            let mut now = ended.lock().unwrap_or_else(PoisonError::into_inner);
            while !*now {
                // One beat that fails is made good by the next.
                let _beaten = meta::touch(self.file.as_fd());
                now = wake.wait_timeout(now, BEAT).unwrap_or_else(PoisonError::into_inner).0;
            }
        };
        std::thread::scope(|scope| {
            // Without the thread, other machines may take the claim for a dead process's after a while, and do the shard
            // as well.
            let _beating = std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, beat);
            let ends = EndsBeat { ended: &ended, wake: &wake };
            let done = work();
            drop(ends);
            done
        })
    }
}

/// Ends the beat of a claim, also when the work panics: the scope would wait for its thread for ever.
struct EndsBeat<'a> {
    ended: &'a Mutex<bool>,
    wake: &'a Condvar,
}

impl Drop for EndsBeat<'_> {
    fn drop(&mut self) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "looks at directories by path")]
mod tests {
    use super::*;
    use fastcopy::meta::Time;

    fn claims<'d>(dir: &'d Dir, boot: &[u8]) -> ClaimsFolder<'d> {
        let me = Claimant { shown: b"here".to_vec(), boot: boot.to_vec() };
        ClaimsFolder { dir, shown: Path::new("claims"), me }
    }

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            std::fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_claim_keeps_others_away_until_it_is_given_up() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = Dir::open(tmp.path()).unwrap();
        let claims = claims(&dir, b"boot");
        let held = claims.take(ClaimOf::Shard(3)).unwrap().ok().unwrap();
        let rival = RivalClaim { claimed: ClaimOf::Shard(3), who: b"here".to_vec() };
        assert_eq!(claims.take(ClaimOf::Shard(3)).unwrap().err(), Some(rival.clone()));
        assert_eq!(claims.alive().unwrap(), [rival]);
        let other = claims.take(ClaimOf::Finish).unwrap().ok().unwrap();
        let beside = claims.beside(3).unwrap();
        assert_eq!(claims.alive().unwrap().len(), 3);
        for held in [held, other, beside] {
            assert!(held.is_held().unwrap());
            held.release().unwrap();
        }
        assert_eq!(names(tmp.path()), [""; 0]);
        assert!(claims.take(ClaimOf::Shard(3)).unwrap().is_ok());
    }

    /// What a killed process leaves: its file, without the lock.
    #[test]
    fn a_dead_process_has_no_claim() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = Dir::open(tmp.path()).unwrap();
        let claims = claims(&dir, b"boot");
        drop(claims.take(ClaimOf::Shard(1)).unwrap().ok().unwrap());
        assert_eq!(names(tmp.path()), ["1"]);
        let again = claims.take(ClaimOf::Shard(1)).unwrap().ok().unwrap();
        assert_eq!(names(tmp.path()), ["1"]);
        again.release().unwrap();
    }

    /// A live claim whose machine's clock is hours off, and one of another machine, which was touched just now.
    #[test]
    fn no_clock_takes_a_live_claim_away() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = Dir::open(tmp.path()).unwrap();
        let here = claims(&dir, b"boot");
        let held = here.take(ClaimOf::Shard(1)).unwrap().ok().unwrap();
        for hours in [-9, 9] {
            let now = here.now().unwrap() + hours * 3600;
            let time = Time { sec: now, nsec: 0 };
            meta::set_times(&held.file, time, time).unwrap();
            assert!(here.take(ClaimOf::Shard(1)).unwrap().is_err(), "{hours}");
        }
        // Seen from another machine, without a lock that shows there.
        let there = claims(&dir, b"another");
        let file = std::fs::read(tmp.path().join("1")).unwrap();
        std::fs::write(tmp.path().join("2"), file).unwrap();
        assert!(there.take(ClaimOf::Shard(2)).unwrap().is_err(), "touched just now");
        let old = there.now().unwrap() - LEASE_SECONDS - 1;
        let two = File::options().write(true).open(tmp.path().join("2")).unwrap();
        meta::set_times(&two, Time { sec: old, nsec: 0 }, Time { sec: old, nsec: 0 }).unwrap();
        assert!(there.take(ClaimOf::Shard(2)).unwrap().is_ok(), "not touched for longer than the lease");
    }

    #[test]
    fn what_tells_of_life() {
        let alive = |is_here, lock, age| is_alive(Signs { is_here, lock, age });
        for age in [-30_000, 0, 30_000] {
            assert!(alive(true, Lock::Busy, age) && alive(false, Lock::Busy, age));
            assert!(!alive(true, Lock::Held, age), "its lock is free on its own machine");
        }
        for (is_here, lock) in [(false, Lock::Held), (true, Lock::Unsupported), (false, Lock::Unsupported)] {
            assert!(alive(is_here, lock, -30_000) && alive(is_here, lock, 0));
            assert!(!alive(is_here, lock, LEASE_SECONDS));
        }
    }

    #[test]
    fn a_claim_is_touched_while_there_is_work() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = Dir::open(tmp.path()).unwrap();
        let claims = claims(&dir, b"boot");
        let held = claims.take(ClaimOf::Shard(1)).unwrap().ok().unwrap();
        let old = Time { sec: 1, nsec: 0 };
        meta::set_times(&held.file, old, old).unwrap();
        held.during(|| {
            // The first beat comes at once; this waits for it and for nothing else.
            while Info::of(&held.file).unwrap().mtime == old {
                std::thread::yield_now();
            }
        });
    }
}
