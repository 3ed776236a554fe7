//! What a copy over the wire would do, or would change: entries that came are compared with what is there, and nothing is
//! made.
//!
//! Must not create, write or remove; must not decide what is told, which is the visitor's that a survey here has too, nor what goes at the
//! end of a look that deletes, which is the planner's.
//! Of files whose content counts, small ones come as hashes and large ones as the values of their blocks.

use crate::blocks::{BLOCK_BYTES, blocks_of};
use crate::disk::sys::read_link_as;
use crate::disk::tee;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Summary, Watch};
use crate::node::os;
use crate::peer::from_wire::FromWire;
use crate::peer::from_wire::destination::{Arrived, Chosen, Far, Meta, WireDestination, other_size};
use crate::peer::from_wire::handler::NextMessage;
use crate::peer::from_wire::transfer::IncomingTransfer;
use crate::peer::incoming::{Incoming, refused};
use crate::policy::{Compare, CopyPolicy};
use crate::receiver::arriving::Arriving;
use crate::receiver::choose::Way;
use crate::receiver::claims::{Claims, Spot};
use crate::receiver::dir_task::DirTask;
use crate::receiver::directories::Marks;
use crate::receiver::plan::Proof;
use crate::sender::filter::{Filter, relative};
use crate::tally::Tally;
use crate::trouble::unreadable;
use crate::verbs::check::Check;
use crate::verbs::dry_run::DryRun;
use crate::verbs::entry_pair::{ContentCompare, Visit, carried, change};
use crate::verbs::keeping;
use crate::verbs::named_dirs::NamedDirs;
use crate::verbs::operands::{Place, Where};
use crate::verbs::rivals::{EntryPaths, Rivals, Turn};
use crate::verbs::round_lacks::RoundLacks;
use crate::verbs::survey::{BothSides, Excludes, Survey, SurveyBuffers, SurveyedDir, hash};
use crate::verbs::sync::first::{DeletesFirst, LookTallies, Receipt};
use crate::verbs::sync::preview::{AtEnd, Passes, Preview};
use crate::verbs::sync::rules_there::RulesThere;
use bcmr_wire::contents::Item;
use bcmr_wire::limits;
use bcmr_wire::message;
use bcmr_wire::policy::flags;
use fastcopy::dir::Name;
use fastcopy::meta::{Info, Kind};
use fastcopy::xattr::Of;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

/// What is asked for that lands nothing.
#[derive(Clone, Copy)]
pub(crate) enum SurveyKind {
    /// What a copy would do.
    DryRun,
    /// What differs.
    Check { compare: Compare, extra: bool, alike: bool, passes: Passes },
    /// What only the destination has, which is deleted then.
    DeletesFirst,
}

impl SurveyKind {
    /// Whether something goes at its end.
    pub(crate) fn deletes(self) -> bool {
        matches!(self, SurveyKind::DeletesFirst)
    }

    /// The same of a snapshot, if it `is_dated`: that is a new tree, in which nothing is in the way of anything.
    pub(crate) fn of_snapshot(self, is_dated: bool) -> SurveyKind {
        match self {
            SurveyKind::Check { compare, extra, alike, .. } if is_dated => {
                SurveyKind::Check { compare, extra, alike, passes: Passes::Two }
            }
            other => other,
        }
    }

    /// What is counted of it.
    pub(crate) fn tallies(self, watch: Watch<'_>) -> LookTallies<'_> {
        if self.deletes() { LookTallies::apart(watch, watch) } else { LookTallies::as_one(watch) }
    }
}

/// What a policy that arrived asks for, when it is no copy.
pub(crate) fn survey_of(policy: &message::Policy<'_>) -> Option<SurveyKind> {
    let compare = match (policy.has(flags::HASHES), policy.has(flags::QUICK)) {
        (true, _) => Compare::Hash,
        (false, true) => Compare::SizeAndTime,
        (false, false) => Compare::ContentInDoubt,
    };
    match (policy.has(flags::DRY_RUN), policy.has(flags::COMPARE)) {
        (false, _) => None,
        (true, false) => Some(SurveyKind::DryRun),
        (true, true) if policy.has(flags::DELETE_FIRST) => Some(SurveyKind::DeletesFirst),
        (true, true) => {
            let (extra, alike) = (policy.has(flags::EXTRA), policy.has(flags::ALIKE));
            Some(SurveyKind::Check { compare, extra, alike, passes: Passes::One })
        }
    }
}

/// Who tells what is found below `root`, or deletes it.
///
/// # Errors
/// What goes could not be kept where it is to be.
pub(crate) fn visitor<'a>(
    survey: SurveyKind,
    (policy, what): (&'a CopyPolicy, &Incoming),
    root: &'a Path,
    own_name: &'a Path,
    tallies: &'a LookTallies<'a>,
) -> Result<Box<dyn Visit + Send + 'a>> {
    let LookTallies { looked: tally, told } = tallies;
    let place = match &what.to.to {
        Where::Whole(place) => Some(place),
        Where::Into(_) | Where::Name { .. } => None,
    };
    // [policy.mirror]: names of a list are never all that a directory has.
    let plans = policy.mirror.is_on() && !what.listed;
    let (compare, extra, alike, passes) = match survey {
        SurveyKind::DryRun => return Ok(Box::new(DryRun::new(policy, tally))),
        SurveyKind::Check { compare, extra, alike, passes } => (compare, extra, alike, passes),
        SurveyKind::DeletesFirst => (Compare::SizeAndTime, plans, false, Passes::One),
    };
    let check = Check { policy, compare, extra, alike, root, own_name, tally };
    if !plans {
        return Ok(Box::new(check));
    }
    let kept = place.and_then(|place| keeping::spared(policy, &what.reach, place));
    let rules = RulesThere::of(&Arc::new(Filter::new(&policy.filter)?));
    if !survey.deletes() {
        match &what.to.to {
            Where::Whole(place) => keeping::foreseen(policy, &what.reach, place)?,
            Where::Name { dir, name, .. } => keeping::foreseen_new(policy, &what.reach, (dir, name))?,
            Where::Into(_) => {}
        }
        let preview = Preview::new(check, kept, AtEnd::Tells(passes)).thinning(what.going.clone());
        return Ok(Box::new(preview.ruled_by(rules)));
    }
    let aside = place.map_or(Ok(None), |place| keeping::aside(policy, &what.reach, place))?;
    let kept = kept.or(aside.as_ref().map(|aside| aside.id()));
    let first = DeletesFirst { told, aside, receipt: Receipt::OfThis };
    Ok(Box::new(Preview::new(check, kept, AtEnd::Deletes(first)).ruled_by(rules)))
}

/// A receiver that shows what comes to `visit`. Nothing was compared yet.
///
/// # Errors
/// A pattern that is none.
pub(crate) fn comparing<'a>(
    transfer: IncomingTransfer<'a>,
    tally: &'a Tally<'a>,
    visit: Box<dyn Visit + Send + 'a>,
) -> Result<FromWire<'a, Survey<'a>>> {
    comparing_some(transfer, tally, visit, None)
}

/// The same of a round of names, where `named` says which directories are compared and which lead to names.
///
/// # Errors
/// A pattern that is none.
pub(crate) fn comparing_some<'a>(
    transfer: IncomingTransfer<'a>,
    tally: &'a Tally<'a>,
    visit: Box<dyn Visit + Send + 'a>,
    named: Option<NamedDirs>,
) -> Result<FromWire<'a, Survey<'a>>> {
    let claims = Claims::of_at_most(limits::CLAIMS_MAX, transfer.what.meeting());
    let mut survey = Survey::new(transfer.policy, tally, visit)?;
    survey.rivals = Rivals::new(claims, limits::CLAIMS_MAX);
    survey.lacks = named.as_ref().map(|_| RoundLacks::default());
    survey.named = named;
    Ok(FromWire::new(transfer, tally.watch, survey))
}

impl Excludes for Far {
    fn leaves_out(&self, below: &[&[u8]], is_dir: bool, filter: &Filter) -> bool {
        let path = || relative(self.node.names().iter().map(|n| n.bytes()).chain(below.iter().copied()));
        !filter.is_empty() && filter.excludes(&path(), is_dir, None)
    }
}

/// An entry whose content is to be compared.
#[derive(Clone, Copy)]
pub(crate) struct Doubt {
    there: Option<Info>,
    /// An earlier source makes a directory of this name.
    merges: bool,
    proof: Proof,
}

/// What is known of the two sides of one entry.
struct Known<'s> {
    meta: &'s Meta,
    src: &'s Far,
    dst: &'s SurveyedDir,
    /// The answer to what was asked about its content.
    content: Mutex<Option<Result<bool>>>,
}

impl EntryPaths for Known<'_> {
    fn src_path(&self) -> PathBuf {
        self.meta.path(&self.src.node)
    }
    fn dst_path(&self) -> PathBuf {
        self.dst.path.join(os(self.meta.to.as_name()))
    }
}

impl ContentCompare for Known<'_> {
    fn same_content(&self) -> Result<bool> {
        let said = self.content.lock().unwrap_or_else(PoisonError::into_inner).take();
        said.unwrap_or_else(|| Err(Error::ours(Code::Io, Op::Compare, self.src_path(), Reason::NothingCame)))
    }
    fn same_beginning(&self) -> Result<bool> {
        self.same_content()
    }
    fn attributes(&self, kind: Kind, policy: &CopyPolicy) -> Result<Option<Reason>> {
        let Some(dir) = &self.dst.dir else { return Ok(None) };
        let there = Of::At(dir, self.meta.to.as_name());
        change(there, || self.dst_path(), kind, policy, &carried(&self.meta.attrs))
    }
    fn same_target(&self) -> Result<bool> {
        let Some(dir) = &self.dst.dir else { return Ok(true) };
        let theirs = read_link_as(self.dst.privileged, dir, self.meta.to.as_name());
        let theirs = theirs.map_err(|e| Error::os(Op::ReadLink, self.dst_path(), e))?;
        Ok(*self.meta.link == *theirs)
    }
}

impl Survey<'_> {
    /// Looks at what has the name of an entry, and shows the two unless its content is to be compared first.
    fn doubt(&self, pair: &DirTask<Far, SurveyedDir>, spot: &Spot, meta: &Meta) -> Result<Option<Doubt>> {
        let (above, to, info) = (&pair.dst, meta.to.as_name(), meta.info);
        let there = above.look(to)?;
        let known = Known { meta, src: &pair.src, dst: above, content: Mutex::default() };
        let sides = BothSides { above, spot, to, info, there, paths: &known };
        let turn = self.rivals.turn(&self.rival(&sides), info.id())?;
        if turn == Turn::Came {
            return Ok(None);
        }
        let merges = turn == Turn::Merges;
        let shown = sides.pair(merges, &known);
        let proof = self.visit.wants_content(&shown);
        if proof.is_none() {
            self.show(&shown);
        }
        Ok(proof.map(|proof| Doubt { there, merges, proof }))
    }

    /// Shows an entry whose content was compared.
    fn compared(&self, pair: &DirTask<Far, SurveyedDir>, meta: &Meta, doubt: Doubt, same: Result<bool>) {
        let (above, to, info) = (&pair.dst, meta.to.as_name(), meta.info);
        let known = Known { meta, src: &pair.src, dst: above, content: Mutex::new(Some(same)) };
        let there = doubt.there;
        let sides = BothSides { above, spot: &pair.spot, to, info, there, paths: &known };
        self.show(&sides.pair(doubt.merges, &known));
    }

    /// So many bytes were compared; whether to go on.
    fn observe(&self, bytes: u64) -> bool {
        self.tally.watch.progress.bytes_done.fetch_add(bytes, Relaxed);
        !self.tally.cancelled()
    }

    /// Whether what is there has the content that came, or begins as it.
    ///
    /// # Errors
    /// Outside, the sender broke the protocol; inside, it could not be compared.
    fn is_same(&self, pair: &DirTask<Far, SurveyedDir>, came: &Arrived<'_, Doubt>) -> Result<Result<bool>> {
        let Arrived { meta, verdict: doubt, item, .. } = came;
        let (shown, size) = (|| meta.path(&pair.src.node), meta.info.size);
        let observe = |bytes| self.observe(bytes);
        Ok(match item {
            Some(Item::Hashed { length, .. }) if *length != size => Err(other_size(shown(), size, *length)),
            Some(Item::Content { bytes, .. }) if bytes.len() as u64 != size => {
                Err(other_size(shown(), size, bytes.len() as u64))
            }
            // [policy.append]
            Some(Item::Content { bytes, .. }) if doubt.proof == Proof::Beginning => {
                begins(&pair.dst, meta, bytes, &observe)
            }
            Some(Item::Hashed { .. }) if doubt.proof == Proof::Beginning => {
                return Err(refused(Reason::HashNotContent));
            }
            Some(Item::Patched { .. }) => return Err(refused(Reason::HashNotContent)),
            Some(Item::Hashed { hash, .. }) => same(&pair.dst, meta, hash, &observe),
            Some(Item::Content { bytes, .. }) => {
                same(&pair.dst, meta, blake3::hash(bytes).as_bytes(), &observe)
            }
            Some(Item::Changed) => {
                let note = Reason::SourceChangedWhileRead;
                Err(Error::ours(Code::SourceChanged, Op::Compare, shown(), note))
            }
            Some(Item::Unreadable(trouble)) => Err(unreadable(trouble, shown())),
            None => Err(Error::ours(Code::Io, Op::Compare, shown(), Reason::NothingCame)),
        })
    }

    /// Of a beginning its whole blocks: for the rest of it the source would have to send bytes that are not kept.
    fn same_blocks(
        &self,
        pair: &DirTask<Far, SurveyedDir>,
        meta: &Meta,
        doubt: Doubt,
        arriving: &Arriving<'_>,
    ) -> Result<bool> {
        let fd = opened(&pair.dst, meta)?;
        let observe = |bytes| self.observe(bytes);
        let blocks = match doubt.proof {
            Proof::Beginning => doubt.there.map_or(0, |there| there.size) / BLOCK_BYTES,
            Proof::Content | Proof::Target => blocks_of(meta.info.size),
        };
        let same = tee::same_blocks_among(arriving, &fd, 0..blocks, meta.info.size, &observe);
        same.map_err(|f| f.told(|| meta.path(&pair.src.node), || pair.dst.path.join(os(meta.to.as_name()))))
    }
}

impl<'a> WireDestination<'a> for Survey<'a> {
    type Verdict = Doubt;

    const TAKES_BYTES: bool = false;

    fn list_base(&self, src: &Far, place: &Place) -> Result<SurveyedDir> {
        let base = self.opened(place)?;
        if self.named.as_ref().is_some_and(|named| named.is_compared(b"")) {
            self.round_top(src, &base)?;
        }
        Ok(base)
    }

    fn shown(&self, dir: &SurveyedDir, to: Name<'_>) -> PathBuf {
        dir.path.join(os(to))
    }

    fn choose(&self, pair: &Arc<DirTask<Far, SurveyedDir>>, spot: &Spot, meta: &Meta) -> Chosen<Doubt> {
        match self.doubt(pair, spot, meta) {
            Ok(Some(doubt)) => Chosen::Want(doubt),
            Ok(None) => Chosen::Nothing,
            Err(e) => {
                self.tally.fail(e);
                Chosen::Nothing
            }
        }
    }

    fn land(
        &self,
        _: &mut SurveyBuffers,
        pair: &Arc<DirTask<Far, SurveyedDir>>,
        _: Way,
        came: &mut Vec<Arrived<'_, Doubt>>,
    ) -> Result<()> {
        for came in came.drain(..) {
            let same = self.is_same(pair, &came)?;
            self.compared(pair, came.meta, came.verdict, same);
        }
        Ok(())
    }

    fn wants_values(&self) -> bool {
        true
    }

    fn land_large(
        &self,
        _: &mut SurveyBuffers,
        pair: &Arc<DirTask<Far, SurveyedDir>>,
        (meta, doubt): (&Meta, Doubt),
        arriving: &Arc<Arriving<'a>>,
    ) {
        let same = self.same_blocks(pair, meta, doubt, arriving);
        if let (Ok(true), Proof::Beginning, Some(there)) = (&same, doubt.proof, &doubt.there)
            && let rest @ 1.. = there.size % BLOCK_BYTES
        {
            let note = Reason::RestNotCompared.about(there.size - rest).about(rest);
            let shown = pair.dst.path.join(os(meta.to.as_name()));
            self.tally.warn(Error::ours(Code::Unsupported, Op::Compare, shown, note));
        }
        // A lost connection is told once, by the thread that lost it.
        if !same.as_ref().is_err_and(|e| matches!(e.code, Code::Interrupted | Code::Lost)) {
            self.compared(pair, meta, doubt, same);
        }
    }

    fn end(self, _: Option<&mut NextMessage<'_>>) -> (Summary, Marks, Result<()>) {
        self.end_round();
        let done = self.visit.end();
        (done.unwrap_or_else(|| self.tally.summary()), Marks::NONE, Ok(()))
    }
}

/// What is there under the name of an entry.
fn opened(dir: &SurveyedDir, meta: &Meta) -> Result<OwnedFd> {
    let to = meta.to.as_name();
    let shown = || dir.path.join(os(to));
    let gone = || Error::ours(Code::NotFound, Op::Open, shown(), Reason::DirectoryWentAway);
    let dir = dir.dir.as_ref().ok_or_else(gone)?;
    dir.open_file(to).map_err(|e| Error::os(Op::Open, shown(), e))
}

/// Whether what is there is how these bytes begin.
fn begins(dir: &SurveyedDir, meta: &Meta, bytes: &[u8], observe: &dyn Fn(u64) -> bool) -> Result<bool> {
    let fd = opened(dir, meta)?;
    let shown = dir.path.join(os(meta.to.as_name()));
    let info = Info::of(&fd).map_err(|e| Error::os(Op::Stat, &shown, e))?;
    let size = usize::try_from(info.size).unwrap_or(usize::MAX);
    let Some(first) = bytes.get(..size) else { return Ok(false) };
    Ok(hash(&fd, &shown, observe)? == blake3::hash(first))
}

/// Whether what is there is as long as the entry and has this hash.
fn same(dir: &SurveyedDir, meta: &Meta, theirs: &[u8; 32], observe: &dyn Fn(u64) -> bool) -> Result<bool> {
    let fd = opened(dir, meta)?;
    let shown = dir.path.join(os(meta.to.as_name()));
    let info = Info::of(&fd).map_err(|e| Error::os(Op::Stat, &shown, e))?;
    Ok(info.size == meta.info.size && hash(&fd, &shown, observe)? == blake3::Hash::from_bytes(*theirs))
}
