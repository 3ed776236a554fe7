//! Whole commands between two machines, each as its client and its server run it, with the connection cut at any frame: syncs that
//! keep what they replace, undoing them, snapshots, plans of a sync and what is applied of them, copies in shards. A seed decides
//! on the trees, the options and the cut.
//!
//! Every one must end, and whatever was cut: nothing outside the destination changes, nothing that the source has is without its
//! name, nothing goes that is to stay, and what was to be kept is there.

#![cfg(test)]
#![allow(clippy::disallowed_methods, reason = "tests look from outside")]

use super::cut_line_tests::{Cut, CutAt, Served, over, serving, there};
use super::simulate_tests::{Had, Lots, Play, each_seed};
use crate::calendar::Stamp;
use crate::error::{Code, Error, Reason, Result};
use crate::event::{Cancel, Event, Front, Progress, Question, Summary, Watch};
use crate::plan::{self, FarEnd, FinishRequest, PlanRequest, ShardChoice, ShardRequest, Shards};
use crate::policy::*;
use crate::remote::{GetRequest, Purpose, PutRequest, ServeRequest, Way};
use crate::verbs::{look_with_plan, undo};
use bcmr_wire::message::kind;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, UNIX_EPOCH};

type Judged = std::result::Result<(), String>;

/// What is below a directory, and the directory itself without a name.
type Below = BTreeMap<PathBuf, Had>;

fn below(top: &Path) -> Below {
    let mut all = Below::new();
    Had::below(top, Path::new(""), &mut all);
    all
}

/// Of the sizes up to here some are left out.
const LARGE_FROM: u64 = 40_000;

/// When what the source has was written, and what the destination has of other content.
const AT_SOURCE: u64 = 1_500_000_000;
const EARLIER: u64 = 1_000_000_000;

/// What a file of this name has: another version is never the same.
fn content(at: &Path, version: &str, bytes: u64) -> Had {
    let line = format!("{version} {}\n", at.display());
    Had::File(line.repeat(1 + bytes as usize / line.len()).into_bytes())
}

/// Makes a tree; what `older` says was written earlier than the rest.
fn plant(top: &Path, tree: &Below, older: &BTreeSet<PathBuf>) {
    for (at, had) in tree {
        let path = top.join(at);
        match had {
            Had::Dir => std::fs::create_dir_all(&path).unwrap(),
            Had::Link(to) => std::os::unix::fs::symlink(to, &path).unwrap(),
            Had::File(bytes) => {
                std::fs::write(&path, bytes).unwrap();
                let when = if older.contains(at) { EARLIER } else { AT_SOURCE };
                let file = std::fs::File::options().write(true).open(&path).unwrap();
                file.set_modified(UNIX_EPOCH + Duration::from_secs(when)).unwrap();
            }
        }
    }
}

/// What of the source takes no part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Excluding {
    Nothing,
    /// By a glob, which the receiver has too.
    ByRule,
    /// By a file in the tree, and by size: the source alone can tell.
    ByTree,
    BySize,
}

/// Where what is replaced or deleted is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeps {
    Nothing,
    Backup,
    Trash,
}

/// Two machines with what they have, and a command between them.
struct FarScene {
    lots: Lots,
    root: PathBuf,
    policy: CopyPolicy,
    serves: ServeRequest,
    puts: bool,
    excluding: Excluding,
    keeps: Keeps,
    source: Below,
    /// Content of the destination that is not the source's.
    older: BTreeSet<PathBuf>,
    /// A directory that is not empty has the name of something else: it takes two runs.
    in_the_way: bool,
    /// What the destination has under the name of a file of rules is no file: what that keeps is not known there (M11).
    hides_rules: bool,
    commands: u64,
}

impl FarScene {
    fn drawn(root: &Path, seed: u64) -> FarScene {
        let mut lots = Lots(seed);
        let me = std::fs::metadata(root).unwrap().uid();
        let excluding =
            lots.of(&[Excluding::Nothing, Excluding::ByRule, Excluding::ByTree, Excluding::BySize]);
        let filter = FilterSpec {
            rules: if excluding == Excluding::ByRule { vec![Rule::Exclude("*.o".into())] } else { vec![] },
            gitignore: excluding == Excluding::ByTree,
            max_bytes: (excluding == Excluding::BySize).then_some(LARGE_FROM),
            ..FilterSpec::everything()
        };
        let policy = CopyPolicy {
            mirror: lots.of(&[Mirror::Update, Mirror::Delete, Mirror::Delete, Mirror::DeleteExcluded]),
            delete_max: DeleteMax::Percent(100),
            collide: lots.of(&[Collide::IfDifferent, Collide::IfDifferent, Collide::IfContentDiffers]),
            resume: lots.of(&[Resume::Off, Resume::Off, Resume::Off, Resume::Proved]),
            filter,
            ..CopyPolicy::mirror(1, me, 0o022)
        };
        let mut scene = FarScene {
            puts: lots.one_in(2),
            keeps: Keeps::Nothing,
            lots,
            root: root.to_owned(),
            serves: serving(root, me),
            policy,
            excluding,
            source: Below::new(),
            older: BTreeSet::new(),
            in_the_way: false,
            hides_rules: false,
            commands: 0,
        };
        for dir in ["outside", "base"] {
            std::fs::create_dir(scene.at(dir)).unwrap();
        }
        std::fs::write(scene.at("outside/x"), b"outside").unwrap();
        scene.draw_source();
        scene
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn draw_source(&mut self) {
        let dirs = ["", "a", "a/b", "c"];
        self.source.extend(dirs.map(|dir| (PathBuf::from(dir), Had::Dir)));
        for n in 0..3 + self.lots.below(14) {
            let (dir, end) = (self.lots.of(&dirs), self.lots.of(&["", "", ".o"]));
            let at = Path::new(dir).join(format!("{n}{end}"));
            let had = match self.lots.below(8) {
                0 => Had::Link(format!("leads to {n}").into()),
                1 => content(&at, "large", LARGE_FROM + 1_000),
                _ => {
                    let bytes = self.lots.size(30_000);
                    content(&at, "new", bytes)
                }
            };
            self.source.insert(at, had);
        }
        if self.excluding == Excluding::ByTree {
            self.source.insert(".gitignore".into(), Had::File(b"*.o\n".to_vec()));
        }
        plant(&self.at("src"), &self.source, &BTreeSet::new());
    }

    /// Older versions, other kinds, less and more than the source has. `ways`: directories may be in the way of something else.
    fn draw_destination(&mut self, ways: bool) {
        let mut all = Below::from([(PathBuf::new(), Had::Dir)]);
        for (at, had) in self.source.clone() {
            let above = at.parent().and_then(|above| all.get(above));
            if at.as_os_str().is_empty() || above != Some(&Had::Dir) {
                continue;
            }
            let bytes = self.lots.size(30_000);
            let there = match (self.lots.below(8), &had) {
                (0..=2, _) | (3..=4, Had::Dir) => had.clone(),
                (3..=4, _) => content(&at, "old", bytes),
                (5, Had::Link(_)) => Had::Link("elsewhere".into()),
                (5, _) => Had::Link("outside/x".into()),
                (6, Had::Dir) => content(&at, "in the way", bytes),
                (6, _) if ways && self.policy.mirror.deletes() && self.lots.one_in(2) => {
                    self.in_the_way |= !self.is_left_out(&at);
                    let inside = at.join("inside");
                    let had = content(&inside, "old", bytes);
                    all.insert(inside.clone(), had);
                    self.older.insert(inside);
                    Had::Dir
                }
                _ => continue,
            };
            if self.source.get(&at) != Some(&there) {
                self.older.insert(at.clone());
            }
            self.hides_rules |= at == Path::new(".gitignore") && !matches!(there, Had::File(_));
            all.insert(at, there);
        }
        for n in 0..self.lots.below(7) {
            let dir = self.lots.of(&["", "a", "a/b", "c", "gone", "gone/deep"]);
            let mut above: Vec<&Path> = Path::new(dir).ancestors().collect();
            above.reverse();
            if above.iter().any(|above| all.get(*above).is_some_and(|had| *had != Had::Dir)) {
                continue;
            }
            all.extend(above.iter().map(|above| ((*above).to_owned(), Had::Dir)));
            let at = Path::new(dir).join(format!("extra {n}{}", self.lots.of(&["", ".o"])));
            let had = match self.lots.below(4) {
                0 => Had::Link("../outside".into()),
                _ => content(&at, "extra", 0),
            };
            self.older.insert(at.clone());
            all.insert(at, had);
        }
        plant(&self.at("dst"), &all, &self.older);
    }

    /// What is replaced or deleted is kept.
    fn keep(&mut self) {
        self.keeps = self.lots.of(&[Keeps::Nothing, Keeps::Backup, Keeps::Backup, Keeps::Trash]);
        let trash = Old::Trash { home: self.at("trash"), receipts: self.at("receipts"), ahead: 0 };
        self.policy.old = match self.keeps {
            Keeps::Nothing => Old::Goes,
            Keeps::Backup => Old::Backup(self.at("kept")),
            Keeps::Trash => trash.clone(),
        };
        self.serves.trash = Some(trash);
    }

    /// Some of the source is in an earlier copy.
    fn base(&mut self) {
        if !self.lots.one_in(4) {
            return;
        }
        let mut some = self.source.clone();
        some.retain(|at, had| *had == Had::Dir || at.as_os_str().len() % 2 == 0);
        plant(&self.at("base"), &some, &BTreeSet::new());
        self.policy.bases = vec![self.at("base")];
    }

    fn cut(&mut self) -> Option<Cut> {
        if self.lots.one_in(4) {
            return None;
        }
        let up = self.lots.one_in(2);
        let kinds: &[u8] = match up {
            true => &[kind::ALL_SENT, kind::DONE, kind::PUT, kind::LEFT_OUT, kind::DIR_END],
            false => &[kind::SUMMARY, kind::GONE, kind::REPORT, kind::LEFT_OUT, kind::DIR_END],
        };
        let at = if self.lots.one_in(4) {
            CutAt::Before(self.lots.of(kinds))
        } else {
            let frames = 1 << self.lots.below(6);
            let bytes = 1 << self.lots.below(10);
            CutAt::Frames(self.lots.below(frames), self.lots.below(bytes) as usize)
        };
        Some(Cut { up, nth: 0, at })
    }

    /// Whether the source takes no account of what it has there.
    fn is_left_out(&self, at: &Path) -> bool {
        let is_object = at.extension().is_some_and(|end| end == "o");
        match self.excluding {
            Excluding::Nothing => false,
            Excluding::ByRule | Excluding::ByTree => is_object,
            Excluding::BySize => {
                matches!(self.source.get(at), Some(Had::File(bytes)) if bytes.len() as u64 > LARGE_FROM)
            }
        }
    }

    /// What of the source takes part.
    fn taken(&self) -> Below {
        let mut all = self.source.clone();
        all.retain(|at, _| !self.is_left_out(at));
        all
    }

    /// Whether a name that the source does not take stays at the destination, which had all of `before`.
    fn stays(&self, at: &Path, before: &Below) -> bool {
        let mut above: Vec<&Path> = at.ancestors().collect();
        above.reverse();
        for (depth, first) in above.iter().enumerate() {
            match self.source.get(*first).filter(|_| !self.is_left_out(first)) {
                Some(Had::Dir) => {}
                // What is in its way goes, or it could not come.
                Some(_) => return false,
                None if !self.policy.mirror.deletes() => return true,
                None if self.policy.mirror == Mirror::DeleteExcluded => return false,
                // What a name leaves out stays wherever it is, and so does what leads there.
                None if matches!(self.excluding, Excluding::ByRule | Excluding::ByTree) => {
                    let is_out = |path: &Path| {
                        let below = path.ancestors().count() - depth;
                        path.ancestors().take(below).any(|at| self.is_left_out(at))
                    };
                    return is_out(at) || before.keys().any(|path| path.starts_with(at) && is_out(path));
                }
                None => return self.source.contains_key(*first) && self.is_left_out(first),
            }
        }
        true
    }

    /// What the destination becomes that had this.
    fn wanted(&self, before: &Below) -> Below {
        let mut all = self.taken();
        for (at, had) in before {
            if !all.contains_key(at) && self.stays(at, before) {
                all.insert(at.clone(), had.clone());
            }
        }
        all
    }

    fn command<T>(&mut self, cut: Option<Cut>, run: impl FnOnce(&Way, Watch<'_>) -> T) -> (T, Served) {
        self.commands += 1;
        let pipes = self.at(&format!("pipes {}", self.commands));
        let (heard, progress, cancel) = (Heard::default(), Progress::default(), Cancel::new());
        let watch = Watch { front: &heard as &dyn Front, progress: &progress, cancel: &cancel, items: true };
        let done = over(&pipes, &self.serves, cut, |way| run(way, watch));
        for told in heard.0.into_inner().unwrap() {
            eprintln!("  {told}");
        }
        done
    }

    /// Brings the destination up to date, or looks what that would do; `dated` makes a snapshot.
    fn sync(
        &mut self,
        cut: Option<Cut>,
        (plan, dated): (Option<&SyncPlan>, Option<Dated>),
    ) -> (Result<Summary>, Served) {
        let policy = CopyPolicy { dry_run: plan.is_some(), ..self.policy.clone() };
        let compare = match policy.collide {
            Collide::IfContentDiffers => Compare::Hash,
            _ => Compare::SizeAndTime,
        };
        let purpose = match plan {
            None => Purpose::Copy,
            Some(_) => Purpose::Check { compare, extra: policy.mirror.deletes(), alike: true },
        };
        let (src, dst, puts) = (self.at("src").join("."), self.at("dst"), self.puts);
        self.command(cut, |way, watch| {
            let mut carried = |watch: Watch<'_>| {
                let (way, policy, manifest) = (way.clone(), policy.clone(), None);
                if puts {
                    let target: fn(PathBuf) -> Target = Target::Exactly;
                    let (sources, to, names, state) = (vec![src.clone()], there(&dst), None, None);
                    super::put(
                        PutRequest {
                            sources,
                            names,
                            to,
                            target,
                            purpose,
                            when: DeleteWhen::After,
                            manifest,
                            dated,
                            state,
                            way,
                            policy,
                        },
                        watch,
                    )
                } else {
                    let (from, target, store) = (vec![there(&src)], Target::Exactly(dst.clone()), None);
                    let (names, when) = (None, DeleteWhen::After);
                    super::get(
                        GetRequest {
                            from,
                            names,
                            target,
                            purpose,
                            when,
                            manifest,
                            dated,
                            store,
                            way,
                            policy,
                        },
                        watch,
                    )
                }
            };
            match plan {
                None => carried(watch),
                Some(plan) => look_with_plan(plan, &dst, watch, &mut carried),
            }
        })
    }

    /// What no command has to do with.
    fn others(&self) -> Vec<Below> {
        ["src", "outside", "base"].map(|name| below(&self.at(name))).to_vec()
    }

    /// Receipts of all runs, the last one first.
    fn receipts(&self) -> Vec<PathBuf> {
        let runs = if self.keeps == Keeps::Trash { self.at("receipts") } else { self.at("kept") };
        let mut all: Vec<PathBuf> = std::fs::read_dir(runs)
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().path().join("receipt"))
            .filter(|path| path.exists())
            .collect();
        all.sort();
        all.reverse();
        all
    }

    /// Everything that is kept, with its path where it is kept by that.
    fn kept(&self) -> Vec<(Option<PathBuf>, Had)> {
        match self.keeps {
            Keeps::Nothing => Vec::new(),
            Keeps::Backup => {
                let runs = std::fs::read_dir(self.at("kept")).into_iter().flatten();
                let olds = runs.map(|run| below(&run.unwrap().path().join("old")));
                olds.flatten().map(|(at, had)| (Some(at), had)).collect()
            }
            Keeps::Trash => below(&self.at("trash/files")).into_values().map(|had| (None, had)).collect(),
        }
    }

    /// Everything that was there is there, or is kept.
    fn nothing_is_lost(&self, before: &Below, now: &Below) -> Judged {
        if self.keeps == Keeps::Nothing {
            return Ok(());
        }
        let kept = self.kept();
        for (at, had) in before.iter().filter(|(_, had)| **had != Had::Dir) {
            let is_kept =
                || kept.iter().any(|(path, kept)| kept == had && path.as_ref().is_none_or(|path| path == at));
            if now.get(at) != Some(had) && !is_kept() {
                return Err(format!("{} is neither there nor kept", at.display()));
            }
        }
        Ok(())
    }

    /// What holds whatever was cut.
    fn judge_always(&self, before: &Below, others: &[Below]) -> Judged {
        let now = below(&self.at("dst"));
        if self.others() != others {
            return Err("something outside the destination changed".into());
        }
        self.nothing_is_lost(before, &now)?;
        let taken = self.taken();
        // What a directory is in the way of comes with the next run.
        let waits = |at: &Path, had: &Had| *had != Had::Dir && before.get(at) == Some(&Had::Dir);
        let mut missing = taken.iter().filter(|(at, had)| now.get(*at) != Some(had) && !waits(at, had));
        let incomplete = missing.next().map(|(at, _)| at);
        for (at, had) in before {
            if now.get(at) == Some(had) {
                continue;
            }
            let shown = at.display();
            match taken.get(at) {
                Some(comes) => {
                    let has_one = *had != Had::Dir && *comes != Had::Dir;
                    if has_one && !now.contains_key(at) {
                        return Err(format!("{shown} has neither what was there nor what comes"));
                    }
                }
                None if self.stays(at, before) => {
                    return Err(format!("{shown} was to stay, and is not as it was"));
                }
                None => {
                    // What stands where something else comes goes when that comes.
                    let is_cleared = at
                        .ancestors()
                        .skip(1)
                        .any(|above| taken.get(above).is_some_and(|had| *had != Had::Dir));
                    if let (false, Some(lacks)) = (is_cleared, incomplete) {
                        return Err(format!("{shown} went before {} was there", lacks.display()));
                    }
                }
            }
        }
        for (at, had) in &now {
            if before.get(at) != Some(had) && taken.get(at) != Some(had) {
                return Err(format!("{} is of neither side", at.display()));
            }
        }
        Ok(())
    }

    /// What one run came to. `true`: it says that all is done.
    fn judge_run(
        &self,
        before: &Below,
        others: &[Below],
        (ended, served): &(Result<Summary>, Served),
    ) -> std::result::Result<bool, String> {
        self.judge_always(before, others)?;
        if !served.is_cut && (ended.is_err() || served.ended.iter().any(Result::is_err)) {
            return Err("a side failed without a reason".into());
        }
        let Ok(summary) = ended else { return Ok(false) };
        if summary.failed > 0 || summary.cancelled {
            let tells = |code| summary.codes.contains(&code);
            let is_told =
                tells(Code::InTheWay) && self.in_the_way || tells(Code::Refused) && self.hides_rules;
            if !served.is_cut && !is_told {
                return Err("something failed without a reason".into());
            }
            return Ok(false);
        }
        let (now, wanted) = (below(&self.at("dst")), self.wanted(before));
        match differing(&now, &wanted).next() {
            None => Ok(true),
            Some(at) => Err(format!("{} is not as it was to be, and nothing was said", at.display())),
        }
    }

    /// Undoes a run once.
    fn undo(&mut self, receipt: &Path, cut: Option<Cut>, dry_run: bool) -> (Result<Summary>, Served) {
        let puts = self.puts;
        self.command(cut, |way, watch| match puts {
            true => super::undo(&there(receipt), way, dry_run, watch),
            false => undo(&UndoRequest { receipt: receipt.to_owned(), dry_run }, watch),
        })
    }

    /// Undoes all runs, the last one first, each once more where it was cut.
    fn undo_all(&mut self, before: &Below, others: &[Below], may_refuse: bool) -> Judged {
        for receipt in self.receipts() {
            if self.lots.one_in(4) {
                let was = (below(&self.at("dst")), self.kept());
                let (ended, _) = self.undo(&receipt, None, true);
                if ended.is_err() || (below(&self.at("dst")), self.kept()) != was {
                    return Err(format!("only looking changed something: {ended:?}"));
                }
            }
            let mut cut = self.cut();
            loop {
                let was = below(&self.at("dst"));
                let (ended, served) = self.undo(&receipt, cut, false);
                let how = format!("undoing {}, {cut:?}: {ended:?} {served:?}", receipt.display());
                if self.others() != others {
                    return Err(format!("something outside the destination changed: {how}"));
                }
                self.nothing_is_lost(before, &below(&self.at("dst")))
                    .map_err(|why| format!("{why}: {how}"))?;
                let now = below(&self.at("dst"));
                let is_counted =
                    |done: &Summary| done.deleted > 0 || was.keys().all(|at| now.contains_key(at));
                if !served.is_cut && ended.as_ref().is_ok_and(|done| !is_counted(done)) {
                    return Err(format!("something went, and nothing was counted: {how}"));
                }
                let is_well =
                    ended.as_ref().is_ok_and(|done| (may_refuse || done.failed == 0) && !done.cancelled);
                match (served.is_cut, is_well) {
                    (false, true) => break,
                    (false, false) => return Err(how),
                    (true, _) => cut = None,
                }
            }
        }
        Ok(())
    }

    /// After the runs: all of it is undone, also where a user has changed a file meanwhile.
    fn judge_undo(&mut self, before: &Below, attributes: &Attributes) -> Judged {
        let others = self.others();
        let after = below(&self.at("dst"));
        let files: Vec<PathBuf> =
            after.iter().filter(|(_, had)| matches!(had, Had::File(_))).map(|(at, _)| at.clone()).collect();
        let changed = match self.lots.one_in(3) && !files.is_empty() {
            true => Some(files[self.lots.below(files.len() as u64) as usize].clone()),
            false => None,
        };
        let Some(changed) = changed else {
            self.undo_all(before, &others, false)?;
            return self.is_as(before, Some(attributes));
        };
        // As long as it was, and written at another time.
        let path = self.at("dst").join(&changed);
        let by_user = vec![b'u'; std::fs::read(&path).unwrap().len()];
        // Under its own name alone: an earlier copy may have it too.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, &by_user).unwrap();
        let mut lenient = before.clone();
        // It is the user's by now.
        if after.get(&changed) == before.get(&changed) {
            lenient.remove(&changed);
        }
        self.undo_all(&lenient, &others, true)?;
        let now = below(&self.at("dst"));
        if now.get(&changed) != Some(&Had::File(by_user)) {
            return Err(format!("{} has changed since, and was taken away", changed.display()));
        }
        let is_about = |at: &Path| at.starts_with(&changed) || changed.starts_with(at);
        if let Some(at) = differing(&now, before).find(|at| !is_about(at)) {
            return Err(format!("{} was not given back", at.display()));
        }
        std::fs::remove_file(&path).unwrap();
        self.undo_all(&lenient, &others, true)?;
        self.is_as(&lenient, None)
    }

    /// The destination is as it was.
    fn is_as(&self, before: &Below, attributes: Option<&Attributes>) -> Judged {
        let now = below(&self.at("dst"));
        if let Some(at) = differing(&now, before).next() {
            return Err(format!(
                "'{}' is not as it was: {:?}, {:?}",
                at.display(),
                before.get(at),
                now.get(at)
            ));
        }
        let now = attributes_of(&self.at("dst"), &now);
        match attributes.map(|was| was.iter().find(|(at, was)| now.get(*at) != Some(was))) {
            Some(Some((at, was))) => Err(format!("'{}' was {was:?}, and is {:?}", at.display(), now.get(at))),
            _ => Ok(()),
        }
    }
}

/// Modes and times.
type Attributes = BTreeMap<PathBuf, (u32, i64, i64)>;

fn attributes_of(top: &Path, tree: &Below) -> Attributes {
    let one = |at: &PathBuf| {
        let info = std::fs::symlink_metadata(top.join(at)).unwrap();
        (at.clone(), (info.mode(), info.mtime(), info.mtime_nsec()))
    };
    tree.keys().map(one).collect()
}

/// Names that are not the same.
fn differing<'t>(one: &'t Below, other: &'t Below) -> impl Iterator<Item = &'t PathBuf> {
    let gone = other.iter().filter(|(at, had)| one.get(*at) != Some(had));
    gone.chain(one.iter().filter(|(at, _)| !other.contains_key(*at))).map(|(at, _)| at)
}

/// What went wrong, to be shown beside what a judge says.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Front for Heard {
    fn event(&self, event: Event) {
        if let Event::Failed(e) | Event::Warning(e) = event {
            self.0.lock().unwrap().push(e.to_string());
        }
    }
    fn ask(&self, _: Question) -> bool {
        true
    }
}

/// Set in the process that plays.
const ALONE: &str = "BCMR_FAR_ALONE";

/// In a process of its own: of those that are started here, each has all that is open for a moment, and so the locks of other tests.
fn alone(test: &str, play: Play, ordinary: Range<u64>) {
    if std::env::var_os(ALONE).is_some() {
        return each_seed(play, ordinary);
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let test = format!("peer::simulate_far_tests::{test}");
    let out = command.args([&test, "--exact", "--nocapture"]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.contains("1 passed"), "{said}");
    let is_chosen = std::env::var_os("BCMR_SEEDS").is_some();
    assert!(is_chosen || said.contains("Some(Cut"), "nothing was cut: {said}");
}

/// A sync drawn from a seed, cut, and the same once more; then all of it undone, the last run first, each cut as well.
fn play_kept(seed: u64) -> Judged {
    let tmp = tempfile::tempdir().unwrap();
    let mut scene = FarScene::drawn(tmp.path(), seed ^ 0x_6b65_7074);
    scene.keep();
    scene.base();
    scene.draw_destination(true);
    let before = below(&scene.at("dst"));
    let mut attributes = attributes_of(&scene.at("dst"), &before);
    let others = scene.others();
    let mut cut = scene.cut();
    // The first one is cut; a directory may be in the way of the second.
    for _ in 0..4 {
        eprintln!(
            "kept {seed}: {cut:?}, puts {}, {:?}, {:?}, {:?}",
            scene.puts, scene.keeps, scene.policy.mirror, scene.excluding
        );
        let done = scene.sync(cut.take(), (None, None));
        let is_done = scene.judge_run(&before, &others, &done);
        let is_done = is_done.map_err(|why| format!("{why}\n{done:?}\n{:?}", scene.policy))?;
        // A directory in the place of a file of rules stays in the way until it is moved.
        if is_done || scene.hides_rules && !done.1.is_cut {
            if scene.keeps == Keeps::Nothing {
                return Ok(());
            }
            return scene.judge_undo(&before, &attributes);
        }
        // A run that was cut before it had anything to keep has no receipt, and the destination itself may be like the source by then.
        attributes.remove(Path::new(""));
    }
    Err("it does not come to its end".into())
}

#[test]
fn every_sync_that_keeps_ends_and_is_undone() {
    alone("every_sync_that_keeps_ends_and_is_undone", play_kept, 0..12);
}

/// The names of a plan, with their signs.
fn planned(file: &Path) -> Vec<(char, PathBuf)> {
    let text = std::fs::read_to_string(file).unwrap();
    let name = |line: &str| {
        let mut fields = line.split('\t');
        let sign = fields.next().unwrap().chars().next().unwrap();
        (sign, PathBuf::from(fields.next_back().unwrap()))
    };
    text.lines().skip(2).map(name).collect()
}

impl FarScene {
    /// Changes one side so that what was planned holds no more; returns what it did.
    fn change_a_side(&mut self) -> String {
        let (src, dst) = (self.at("src"), self.at("dst"));
        let now = below(&dst);
        let is_file = |had: &Had| matches!(had, Had::File(_));
        let mut files: Vec<PathBuf> =
            self.taken().into_iter().filter(|(_, had)| is_file(had)).map(|(at, _)| at).collect();
        // Without it nothing would be left out.
        files.retain(|at| !at.ends_with(".gitignore"));
        let mut common = files.clone();
        common.retain(|at| now.get(at).is_some_and(is_file));
        let changed = b"changed since it was planned";
        let one = |lots: &mut Lots, of: &[PathBuf]| of[lots.below(of.len() as u64) as usize].clone();
        match self.lots.below(5) {
            0 if !files.is_empty() => {
                let at = one(&mut self.lots, &files);
                std::fs::write(src.join(&at), changed).unwrap();
                self.source.insert(at.clone(), Had::File(changed.to_vec()));
                format!("{} of the source has changed", at.display())
            }
            1 if !common.is_empty() => {
                let at = one(&mut self.lots, &common);
                std::fs::write(dst.join(&at), changed).unwrap();
                format!("{} of the destination has changed", at.display())
            }
            2 if !common.is_empty() => {
                let at = one(&mut self.lots, &common);
                std::fs::remove_file(dst.join(&at)).unwrap();
                format!("{} of the destination is gone", at.display())
            }
            3 if self.policy.mirror.deletes() => {
                std::fs::write(dst.join("one more"), changed).unwrap();
                "the destination has one more".into()
            }
            _ => {
                std::fs::write(src.join("one more"), changed).unwrap();
                self.source.insert("one more".into(), Had::File(changed.to_vec()));
                "the source has one more".into()
            }
        }
    }

    /// Only what was planned has changed, and all of it has.
    fn judge_applied(&self, before: &Below, names: &[(char, PathBuf)]) -> Judged {
        let now = below(&self.at("dst"));
        let covers = |planned: &Path, at: &Path| match planned.as_os_str().is_empty() {
            true => at.as_os_str().is_empty(),
            false => at.starts_with(planned),
        };
        if let Some(at) =
            differing(&now, before).find(|at| !names.iter().any(|(_, planned)| covers(planned, at)))
        {
            return Err(format!("{} has changed, and was not planned", at.display()));
        }
        // A plan goes by the file of rules that was there; the one that comes keeps more.
        let newer = names.iter().any(|(sign, at)| *sign != '-' && at.as_os_str() == ".gitignore");
        let keeps = |at: &Path| {
            newer
                && self.excluding == Excluding::ByTree
                && now
                    .keys()
                    .any(|path| path.starts_with(at) && path.ancestors().any(|at| self.is_left_out(at)))
        };
        let undone = |(sign, at): &&(char, PathBuf)| {
            (*sign == '-') == now.contains_key(at) && !(*sign == '-' && keeps(at))
        };
        match names.iter().find(undone) {
            Some((sign, at)) => Err(format!("{sign} {} was planned and not done", at.display())),
            None => Ok(()),
        }
    }
}

/// A plan of a sync, cut and once more; then maybe one side changes; then it is applied, cut at the look or at the run.
fn play_planned(seed: u64) -> Judged {
    let tmp = tempfile::tempdir().unwrap();
    let mut scene = FarScene::drawn(tmp.path(), seed ^ 0x_706c_616e);
    scene.keep();
    scene.draw_destination(false);
    let before = below(&scene.at("dst"));
    let (file, words) = (scene.at("plan"), vec!["--delete".into()]);
    let write = SyncPlan::Write { file: file.clone(), words };
    let mut cut = scene.cut();
    loop {
        eprintln!(
            "planned {seed}: {cut:?}, puts {}, {:?}, {:?}",
            scene.puts, scene.policy.mirror, scene.excluding
        );
        let (ended, served) = scene.sync(cut.take(), (Some(&write), None));
        let how = format!("{ended:?} {served:?}");
        if below(&scene.at("dst")) != before || !scene.receipts().is_empty() {
            return Err(format!("a plan changed something: {how}"));
        }
        let is_made = ended.is_ok_and(|made| made.failed == 0 && !made.cancelled);
        if file.exists() != is_made {
            return Err(format!("half a plan, or none of what was planned: {how}"));
        }
        match (is_made, served.is_cut) {
            (true, _) => break,
            (false, true) => {}
            (false, false) if scene.hides_rules => return Ok(()),
            (false, false) => return Err(how),
        }
    }
    let names = planned(&file);
    let changed = scene.lots.one_in(2).then(|| scene.change_a_side());
    let (before, others) = (below(&scene.at("dst")), scene.others());
    let apply = SyncPlan::Apply(file);
    let cut = if scene.lots.one_in(2) { scene.cut() } else { None };
    let (ended, served) = scene.sync(cut, (Some(&apply), None));
    let how = format!("{cut:?} {names:?} {ended:?} {served:?}\n{:?}", scene.policy);
    if below(&scene.at("dst")) != before || !scene.receipts().is_empty() {
        return Err(format!("looking changed something: {how}"));
    }
    let is_as_planned = ended.is_ok_and(|look| look.failed == 0 && !look.cancelled);
    let is_cut = served.is_cut && !is_as_planned;
    if !is_cut && is_as_planned == changed.is_some() {
        return Err(format!("{changed:?}, taken for as planned: {is_as_planned}: {how}"));
    }
    if !is_as_planned {
        return Ok(());
    }
    let cut = scene.cut();
    let done = scene.sync(cut, (None, None));
    let is_done = scene.judge_run(&before, &others, &done);
    if is_done.map_err(|why| format!("{why}\n{cut:?} {done:?}\n{:?}", scene.policy))? {
        scene.judge_applied(&before, &names).map_err(|why| format!("{why}: {names:?}"))?;
    }
    Ok(())
}

#[test]
fn every_plan_of_a_sync_ends_and_is_what_is_done() {
    alone("every_plan_of_a_sync_ends_and_is_what_is_done", play_planned, 0..12);
}

/// Snapshots of a source that changes, each cut and once more: what has a name is whole.
fn play_snapshots(seed: u64) -> Judged {
    let tmp = tempfile::tempdir().unwrap();
    let mut scene = FarScene::drawn(tmp.path(), seed ^ 0x_736e_6170);
    let thinning = scene.lots.one_in(2).then_some(Thinning { days: 1, weeks: 1, months: 0 });
    // What each snapshot that was asked for is to be.
    let mut asked = BTreeMap::new();
    let mut now = 1_700_000_000;
    std::fs::create_dir(scene.at("dst")).unwrap();
    for round in 0..3 {
        let mut cut = scene.cut();
        let others = scene.others();
        loop {
            now += 40_000;
            let dated = Dated { at: Stamp::of(now), thinning };
            let at = PathBuf::from(dated.at.to_string());
            asked.insert(at.clone(), scene.taken());
            eprintln!("snapshot {seed}, {round}: {cut:?}, puts {}, {thinning:?}", scene.puts);
            let (ended, served) = scene.sync(cut.take(), (None, Some(dated)));
            let how = format!("{ended:?} {served:?}");
            if scene.others() != others {
                return Err(format!("something outside changed: {how}"));
            }
            let there = below(&scene.at("dst"));
            let all: Vec<&PathBuf> = there.keys().filter(|at| at.components().count() == 1).collect();
            for name in all.into_iter().filter(|name| !name.starts_with(".bcmr-snapshots")) {
                let tree = below(&scene.at("dst").join(name));
                if asked.get(name).is_none_or(|wanted| differing(&tree, wanted).next().is_some()) {
                    return Err(format!("{} is not whole: {how}", name.display()));
                }
            }
            // A process that another test starts right now has the lock until it is another program.
            let is_held =
                matches!(&ended, Err(Error { note: Some(note), .. }) if note.reason == Reason::SnapshotRuns);
            let is_made = ended.is_ok_and(|made| made.failed == 0 && !made.cancelled);
            if is_made && !there.contains_key(&at) {
                return Err(format!("{} is said to be there: {how}", at.display()));
            }
            match (is_made, served.is_cut || is_held) {
                (true, _) => break,
                (false, true) => {}
                (false, false) => return Err(how),
            }
        }
        let at = PathBuf::from(format!("of round {round}"));
        let had = content(&at, "new", 100);
        scene.source.insert(at.clone(), had.clone());
        plant(&scene.at("src"), &Below::from([(at, had)]), &BTreeSet::new());
    }
    Ok(())
}

#[test]
fn every_snapshot_ends_and_is_whole_or_absent() {
    alone("every_snapshot_ends_and_is_whole_or_absent", play_snapshots, 0..6);
}

/// A copy in shards with one end on another machine, each step cut and once more: the name appears last, and whole.
fn play_shards(seed: u64) -> Judged {
    let tmp = tempfile::tempdir().unwrap();
    let mut scene = FarScene::drawn(tmp.path(), seed ^ 0x_7368_6172);
    let (source, destination) = (scene.at("src"), scene.at("far"));
    let puts = scene.puts;
    let end = match puts {
        true => FarEnd::Destination(there(&destination)),
        false => FarEnd::Source(there(&source)),
    };
    let policy = CopyPolicy { resume: Resume::Off, ..CopyPolicy::archive(1, scene.policy.me, 0o022) };
    let count = 1 + scene.lots.below(3) as u32;
    // What a step that was cut left of a plan is not gone on with: the next one has a name of its own.
    let mut plans = 0;
    let mut out = PathBuf::new();
    let shards = step(&mut scene, "plan", |scene, cut| {
        plans += 1;
        out = scene.at(&format!("plan {plans}"));
        let request = PlanRequest {
            source: source.clone(),
            destination: destination.clone(),
            there: None,
            out: out.clone(),
            shards: Shards::Number(count),
            part_bytes: None,
            state: None,
            policy: policy.clone(),
        };
        let end = end.clone();
        let (made, served) = scene.command(cut, |way, watch| {
            plan::plan(&PlanRequest { there: Some((end, way.clone())), ..request }, watch)
        });
        (made.map(|made| (made.shards, made.summary)), served)
    })?;
    for shard in 0..shards {
        step(&mut scene, "shard", |scene, cut| {
            let (plan, policy) = (out.clone(), policy.clone());
            let (made, served) = scene.command(cut, |way, watch| {
                let which = ShardChoice::Number(shard);
                plan::shard(&ShardRequest { plan, which, way: Some(way.clone()), policy }, watch)
            });
            (made.map(|summary| ((), summary)), served)
        })?;
        if destination.exists() {
            return Err("it has its name before all is there".into());
        }
    }
    step(&mut scene, "finish", |scene, cut| {
        let (plan, policy) = (out.clone(), policy.clone());
        let (made, served) = scene.command(cut, |way, watch| {
            let way = Some(way.clone());
            plan::finish(&FinishRequest { plan, merge: false, way, state: None, policy }, watch)
        });
        (made.map(|made| ((), made.summary)), served)
    })
}

/// One step of a plan, cut, and then until it is done. What has the name is the source.
fn step<T>(
    scene: &mut FarScene,
    what: &str,
    mut run: impl FnMut(&mut FarScene, Option<Cut>) -> (Result<(T, Summary)>, Served),
) -> std::result::Result<T, String> {
    let others = scene.others();
    let mut cut = scene.cut();
    loop {
        eprintln!("{what}: {cut:?}, puts {}", scene.puts);
        let (ended, served) = run(scene, cut.take());
        let how = match &ended {
            Ok((_, summary)) => format!("{what}: {summary:?} {served:?}"),
            Err(e) => format!("{what}: {e:?} {served:?}"),
        };
        if scene.others() != others {
            return Err(format!("something outside changed: {how}"));
        }
        let far = scene.at("far");
        if far.exists() && below(&far) != scene.source {
            return Err(format!("it has its name, and not all is there: {how}"));
        }
        match (ended, served.is_cut) {
            (Ok((made, summary)), is_cut) if summary.failed == 0 && !summary.cancelled => {
                if what == "finish" && !far.exists() {
                    return Err(format!("it is said to be there: {is_cut} {how}"));
                }
                return Ok(made);
            }
            (_, true) => {}
            (_, false) => return Err(how),
        }
    }
}

#[test]
fn every_copy_in_shards_ends_and_is_whole_or_absent() {
    alone("every_copy_in_shards_ends_and_is_whole_or_absent", play_shards, 0..6);
}
