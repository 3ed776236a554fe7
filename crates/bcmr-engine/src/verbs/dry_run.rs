//! `copy --dry-run`: says what would be done. Must not change anything; what becomes of an entry is the plan's to say.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Action, Question, Summary, Watch};
use crate::policy::{Collide, CopyPolicy, CopyRequest};
use crate::receiver::plan::{NOT_ITS_BEGINNING, Proof, Verdict, decide, refused};
use crate::sender::names::ListedNames;
use crate::tally::Tally;
use crate::verbs::entry_pair::{EntryPair, Findings, Found, Undecided, Visit, item};
use crate::verbs::operands::{self, DestLink};
use crate::verbs::rivals::EntryPaths;
use crate::verbs::stream;
use crate::verbs::survey::Survey;
use fastcopy::meta::{Info, Kind};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

/// Says what a copy of this request would do.
///
/// # Errors
/// Only when nothing could be begun.
pub(crate) fn dry_run(request: CopyRequest, watch: Watch<'_>) -> Result<Summary> {
    let tally = Tally::new(watch);
    let of_stream = stream::foretold(&request);
    let policy = of_stream.as_ref().unwrap_or(&request.policy);
    let visit = DryRun { reads_streams: of_stream.is_some(), ..DryRun::new(policy, &tally) };
    let mut survey = Survey::new(policy, &tally, Box::new(visit))?;
    match request.names {
        None => {
            let target = operands::same_target(&request.sources, request.target, policy);
            let count = request.sources.len();
            let to = operands::target(&operands::Reach::Anywhere, &target, count, DestLink::Through)?;
            survey.operands(&request.sources, &to);
        }
        Some(mut list) => {
            let [base] = request.sources.as_slice() else {
                let note = Reason::OneSourceDirectory;
                return Err(Error::ours(Code::Usage, Op::Copy, request.target.path(), note));
            };
            let mut names = ListedNames::new(&mut *list.reader, list.separator, base, watch.cancel);
            survey.list(&mut names, &request.target)?;
        }
    }
    drop(survey);
    Ok(tally.summary())
}

/// Tells what a copy would do.
pub(crate) struct DryRun<'a> {
    policy: &'a CopyPolicy,
    tally: &'a Tally<'a>,
    /// The one operand is a stream, and is read as a file is.
    reads_streams: bool,
    /// Inodes with several names of which one was told.
    linked: Mutex<HashSet<(u64, u64)>>,
}

impl<'a> DryRun<'a> {
    pub(crate) fn new(policy: &'a CopyPolicy, tally: &'a Tally<'a>) -> DryRun<'a> {
        DryRun { policy, tally, reads_streams: false, linked: Mutex::default() }
    }

    fn kept(&self, paths: impl FnOnce() -> (PathBuf, PathBuf), found: &mut Findings) {
        self.tally.kept.fetch_add(1, Relaxed);
        item(found, self.tally, (Action::Kept, 0), paths);
    }

    /// Counts and tells what would be made.
    fn made(&self, info: &Info, paths: impl FnOnce() -> (PathBuf, PathBuf), found: &mut Findings) {
        let (count, action, bytes) = match info.kind {
            Kind::Dir => (&self.tally.dirs, Action::MadeDir, 0),
            Kind::File => {
                self.tally.bytes.fetch_add(info.size, Relaxed);
                (&self.tally.files, Action::Copied, info.size)
            }
            Kind::Link => (&self.tally.others, Action::MadeLink, 0),
            _ => (&self.tally.others, Action::MadeSpecial, 0),
        };
        count.fetch_add(1, Relaxed);
        item(found, self.tally, (action, bytes), paths);
    }

    /// Several names of one file are told as links to the first.
    fn has_names(&self, info: &Info) -> bool {
        self.policy.preserve.links && info.kind != Kind::Dir && info.nlink > 1
    }
}

fn paths(at: &EntryPair<'_>) -> (PathBuf, PathBuf) {
    (at.src_path(), at.dst_path())
}

impl Visit for DryRun<'_> {
    fn entry(&self, at: &EntryPair<'_>, found: &mut Findings) -> bool {
        let mut fail = |e: Error| found.push(Found::Failed(e));
        let there = at.there.as_ref();
        let (info, verdict) = if self.reads_streams {
            (stream::as_file(&at.info), stream::foreseen(&at.info, there, self.policy))
        } else {
            (at.info, decide(&at.info, there, self.policy))
        };
        if info.kind.is_special() && !self.policy.specials {
            let note = Reason::KindIs.about(info.kind.word());
            fail(Error::ours(Code::Special, Op::Copy, at.src_path(), note));
            return false;
        }
        let holds = match (verdict, self.policy.collide) {
            (Verdict::KeepIf(proof, _), _) => at.both.holds(proof),
            (Verdict::Append { proved: true }, collide) if collide != Collide::Ask => {
                at.both.holds(Proof::Beginning)
            }
            _ => Ok(true),
        };
        let verdict = match (verdict, holds) {
            (_, Err(e)) => {
                fail(e);
                return false;
            }
            (Verdict::Append { .. }, Ok(false)) => Verdict::Refuse(Code::Refused, NOT_ITS_BEGINNING),
            (verdict, Ok(holds)) => verdict.settled(holds),
        };
        let asks = match verdict {
            Verdict::Make | Verdict::Replace | Verdict::ReplaceTree | Verdict::KeepIf(..) => false,
            Verdict::Append { .. } => self.policy.collide == Collide::Ask,
            Verdict::Merge => return self.policy.recursive,
            Verdict::Keep => {
                self.kept(|| paths(at), found);
                return false;
            }
            Verdict::Ask => true,
            Verdict::Refuse(code, why) if info.kind == Kind::Dir => {
                fail(Error::ours(code, Op::MakeDirectory, at.dst_path(), why));
                return false;
            }
            Verdict::Refuse(code, why) => {
                let adds = self.policy.resume.appends() && there.is_some_and(|t| t.kind == info.kind);
                fail(match refused(why, adds) {
                    Op::Replace => Error::ours(code, Op::Replace, at.dst_path(), why).and(&at.src_path()),
                    op => Error::ours(code, op, at.dst_path(), why),
                });
                return false;
            }
        };
        if asks || self.has_names(&info) {
            let (src_path, dst_path) = paths(at);
            let undecided = Undecided { info, src_path, dst_path, asks };
            found.push(Found::Undecided(Box::new(undecided)));
            return false;
        }
        let is_dir = info.kind == Kind::Dir;
        if !(is_dir && at.merges) {
            self.made(&info, || paths(at), found);
        }
        is_dir && self.policy.recursive
    }

    fn decided(&self, undecided: Undecided) {
        // One question at a time, also where entries come from another machine.
        let mut linked = self.linked.lock().unwrap_or_else(PoisonError::into_inner);
        let Undecided { info, src_path, dst_path, asks } = undecided;
        let mut found = Vec::new();
        let no = asks && !self.tally.ask(Question::Replace(dst_path.clone()));
        let paths = || (src_path, dst_path);
        if no {
            self.kept(paths, &mut found);
        } else if self.has_names(&info) && !linked.insert(info.id()) {
            self.tally.others.fetch_add(1, Relaxed);
            item(&mut found, self.tally, (Action::HardLinked, 0), paths);
        } else {
            self.made(&info, paths, &mut found);
        }
        for found in found {
            if let Found::Told(event) = found {
                self.tally.watch.front.event(event);
            }
        }
    }

    fn wants_content(&self, at: &EntryPair<'_>) -> Option<Proof> {
        match decide(&at.info, at.there.as_ref(), self.policy) {
            Verdict::KeepIf(Proof::Content, _) => Some(Proof::Content),
            Verdict::Append { proved: true } => Some(Proof::Beginning),
            _ => None,
        }
    }

    fn excluded(&self, src_path: &dyn Fn() -> PathBuf, found: &mut Findings) {
        item(found, self.tally, (Action::Excluded, 0), || (src_path(), PathBuf::new()));
    }

    fn absent(&self, paths: &dyn EntryPaths, found: &mut Findings) {
        self.tally.dirs.fetch_add(1, Relaxed);
        item(found, self.tally, (Action::MadeDir, 0), || (paths.src_path(), paths.dst_path()));
    }
}
