//! A source that several processes walk for one plan: each lists the directories that it is given, leaves some of those below
//! to others that have nothing to do, and writes what it has found as sorted runs for the one that makes the plan.
//!
//! Must not know how processes reach one another, nor who gets which directory.

use super::folder::{PlanFolder, open_run, run_file};
use super::others::{FoundRun, GivenTo, OtherWalkers, WalkedPart};
use super::requests::{PlanRequest, PlanVerb};
use super::sorter::Sorter;
use super::walk::{Collector, FoundTotals};
use crate::error::{Error, Op, Reason, Result};
use crate::event::{Event, Summary, Watch};
use crate::node::Node;
use crate::sender::filter::Filter;
use crate::sender::walk::SourceDir;
use crate::stage;
use crate::verbs::operands::Place;
use fastcopy::dir::Dir;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Walks what it is given of a plan's source, where another process makes the plan: [`plan_together`](super::plan_together).
/// What went wrong is told.
pub fn walk_part(
    request: &PlanRequest,
    verb: PlanVerb,
    others: &dyn OtherWalkers,
    watch: Watch<'_>,
) -> WalkedPart {
    part(request, verb, others, watch).unwrap_or_else(|e| {
        let ended = Some(e.code);
        watch.front.event(Event::Failed(e));
        WalkedPart { failed: 1, ended, ..WalkedPart::default() }
    })
}

fn part(
    request: &PlanRequest,
    verb: PlanVerb,
    others: &dyn OtherWalkers,
    watch: Watch<'_>,
) -> Result<WalkedPart> {
    let PlanRequest { source, out, policy, .. } = request;
    let filter = Filter::new(&policy.filter)?;
    let dir = Dir::open(source).map_err(|e| Error::os(Op::OpenDirectory, source, e))?;
    let src = SourceDir::root(dir, Node::root(source))?.with_ignores(&filter)?;
    let folder = PlanFolder::open(out)?;
    let fail = |e| Error::os(Op::WritePlan, out, e);
    let (all, linked) = (Sorter::new(&folder.dir), Sorter::new(&folder.dir));
    let place = Place {
        dir: folder.dir.try_clone().map_err(fail)?,
        node: Node::root(out),
        created_names: Arc::default(),
        made_first: false,
    };
    let collector =
        Collector::new(watch, (&all, &linked), (others, GivenTo::Any), src.info.dev, (verb, policy));
    collector.walk(&src, place, policy, &filter, source)?;
    let Summary { failed, cancelled, .. } = collector.tally().summary();
    let FoundTotals { dirs, names, bytes } = &collector.found;
    let (dirs, names, bytes) = (dirs.load(Relaxed), names.load(Relaxed), bytes.load(Relaxed));
    let walked = WalkedPart { dirs, names, bytes, failed, cancelled, ..WalkedPart::default() };
    if failed > 0 || cancelled {
        return Ok(walked);
    }
    let written = |sorter: Sorter<'_>| {
        if sorter.is_empty() {
            return Ok(FoundRun::default());
        }
        let number = stage::random_number();
        let bytes = sorter.write(run_file(&folder.dir, number)?)?;
        Ok(FoundRun { number, bytes })
    };
    Ok(WalkedPart { all: written(all).map_err(fail)?, linked: written(linked).map_err(fail)?, ..walked })
}

/// Takes over what other processes have found. `Err`: one of them did not come to its end.
pub(super) fn adopt(
    parts: &[WalkedPart],
    (all, linked): (&Sorter<'_>, &Sorter<'_>),
    folder: &PlanFolder,
    found: &FoundTotals,
    request: &PlanRequest,
) -> Result<Summary> {
    let mut sum = Summary::default();
    for part in parts {
        if let Some(code) = part.ended {
            return Err(Error::ours(code, Op::Plan, &request.source, Reason::NotListedWhole));
        }
        sum.failed += part.failed;
        sum.cancelled |= part.cancelled;
        for (count, more) in
            [(&found.dirs, part.dirs), (&found.names, part.names), (&found.bytes, part.bytes)]
        {
            count.fetch_add(more, Relaxed);
        }
        for (run, sorter) in [(part.all, all), (part.linked, linked)] {
            if run.bytes > 0 {
                let adopted = open_run(&folder.dir, run.number, run.bytes)
                    .and_then(|file| sorter.adopt(file, run.bytes));
                adopted.map_err(|e| Error::os(Op::ReadPlan, &request.out, e))?;
            }
        }
    }
    Ok(sum)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look from outside")]
mod tests {
    use super::*;
    use crate::api::{Nothing, PlanMade, Shards, plan_for, plan_together};
    use crate::error::Code;
    use crate::event::{Cancel, Progress};
    use crate::plan::format::PlanHeader;
    use crate::plan::others::Alone;
    use crate::policy::CopyPolicy;
    use std::path::{Path, PathBuf};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Mutex, PoisonError};

    /// The first of two processes, which gives away all that it may.
    struct Gives {
        root: Alone,
        given: Mutex<Option<Sender<PathBuf>>>,
        parts: Mutex<Receiver<WalkedPart>>,
    }

    /// The other one, which keeps what it gets. Where it `loses` of a source, the first directory that it got is gone when it looks.
    struct Keeps {
        got: Mutex<Vec<PathBuf>>,
        loses: Option<PathBuf>,
    }

    fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
        of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    impl OtherWalkers for Gives {
        fn next(&self) -> Option<Vec<PathBuf>> {
            let root = self.root.next();
            if root.is_none() {
                lock(&self.given).take();
            }
            root
        }

        fn wanted(&self) -> usize {
            usize::MAX
        }

        fn give(&self, path: PathBuf, to: GivenTo) {
            assert_eq!(to, GivenTo::Any);
            lock(&self.given).as_ref().unwrap().send(path).unwrap();
        }

        fn parts(&self) -> Vec<WalkedPart> {
            lock(&self.parts).iter().collect()
        }
    }

    impl OtherWalkers for Keeps {
        fn next(&self) -> Option<Vec<PathBuf>> {
            let mut got = lock(&self.got);
            if let (Some(source), Some(lost)) = (&self.loses, got.first()) {
                std::fs::remove_dir_all(source.join(lost)).unwrap_or_default();
            }
            got.pop().map(|path| vec![path])
        }

        fn wanted(&self) -> usize {
            0
        }

        fn give(&self, path: PathBuf, _: GivenTo) {
            panic!("{path:?}");
        }

        fn parts(&self) -> Vec<WalkedPart> {
            Vec::new()
        }
    }

    fn request(top: &Path, out: &str) -> PlanRequest {
        PlanRequest {
            source: top.join("src"),
            destination: top.join("dst"),
            there: None,
            out: top.join(out),
            shards: Shards::Number(5),
            part_bytes: None,
            state: None,
            policy: CopyPolicy::archive(2, 0, 0o022),
        }
    }

    /// Makes the plan `out` by two processes; gives what the second one has found too.
    fn by_two(top: &Path, out: &str, loses: bool) -> (Result<PlanMade>, WalkedPart) {
        let ((given, taken), (tell, told)) = (channel(), channel());
        let first = Gives { root: Alone::default(), given: Mutex::new(Some(given)), parts: Mutex::new(told) };
        let (progress, cancel) = (Progress::default(), Cancel::new());
        let watch = Watch { front: &Nothing, progress: &progress, cancel: &cancel, items: false };
        std::thread::scope(|scope| {
            let walks = scope.spawn(move || {
                let got = Mutex::new(taken.iter().collect());
                let second = Keeps { got, loses: loses.then(|| top.join("src")) };
                let part = walk_part(&request(top, out), PlanVerb::Copy, &second, watch);
                tell.send(part).unwrap();
                part
            });
            let made = plan_together(&request(top, out), PlanVerb::Copy, &first, watch);
            (made, walks.join().unwrap())
        })
    }

    fn tree(top: &Path) {
        for n in 0..4 {
            std::fs::create_dir_all(top.join(format!("src/d{n}"))).unwrap();
        }
        for n in 0..60 {
            let dir = top.join(format!("src/d{}/e{}/f{n}", n % 4, n % 3));
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("a file"), n.to_string()).unwrap();
            // Names of one file, found by both.
            std::fs::hard_link(dir.join("a file"), top.join(format!("src/d{}/again {n}", (n + 1) % 4)))
                .unwrap();
        }
    }

    /// The files of a plan, but of the two that no two plans share only the names.
    fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
        let mut files: Vec<_> = std::fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap())
            .filter(|e| e.path().is_file())
            .map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap()))
            .map(|(name, bytes)| match name.as_str() {
                "number" | "plan" => (name, Vec::new()),
                _ => (name, bytes),
            })
            .collect();
        files.sort();
        files
    }

    #[test]
    fn two_processes_make_the_plan_of_one() {
        let tmp = tempfile::tempdir().unwrap();
        tree(tmp.path());
        let (progress, cancel) = (Progress::default(), Cancel::new());
        let watch = Watch { front: &Nothing, progress: &progress, cancel: &cancel, items: false };
        let one = plan_for(&request(tmp.path(), "one"), PlanVerb::Copy, watch).unwrap();
        let (made, part) = by_two(tmp.path(), "two", false);
        assert_eq!((made.unwrap().summary.files, part.failed, part.ended), (60, 0, None));
        assert!(part.dirs > 10 && part.linked.bytes > 0 && one.summary.files == 60, "{part:?}");
        // Nothing else is left in the directory of the plan.
        assert_eq!(files(&tmp.path().join("two")), files(&tmp.path().join("one")));
        let header = |plan: &str| PlanFolder::open(&tmp.path().join(plan)).unwrap().header().unwrap().0;
        let (one, two) = (header("one"), header("two"));
        assert!(one.number != two.number && one.stage != two.stage);
        assert_eq!(PlanHeader { number: one.number, stage: one.stage.clone(), ..two }, one);
    }

    #[test]
    fn what_one_of_them_cannot_list_fails_the_plan() {
        let tmp = tempfile::tempdir().unwrap();
        tree(tmp.path());
        let (made, part) = by_two(tmp.path(), "two", true);
        let e = made.unwrap_err();
        assert_eq!((part.failed, e.code, e.op), (1, Code::Io, Op::Plan), "{e:?}");
        assert!(!tmp.path().join("two/plan").exists());
    }
}
