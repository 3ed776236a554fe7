//! What becomes of an entry at the destination, and what it is called until it has its name there.
//!
//! Must not land or tell anything: it looks at what is there, decides, and enters among the created names of a directory what stays
//! there for one source.

use crate::disk::sys::Sys;
use crate::disk::{Append, Attributes, Body, Disk, Fault, Job, Placement, Side, tee};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::policy::{Collide, CopyPolicy, Landing, Resume};
use crate::receiver::created_names::TAKEN;
use crate::receiver::dest::DestDir;
use crate::receiver::dir_task::{Origin, Slot};
use crate::receiver::plan::{Proof, Verdict, decide, refused, same};
use crate::stage;
use fastcopy::dir::Name;
use fastcopy::errno;
use fastcopy::meta::{Info, Kind};
use std::ffi::CStr;
use std::io;

/// How an entry is being landed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// In a batch, counted before its directory gets a name.
    Small,
    /// By itself.
    Alone,
}

/// An entry of a source, before its content is at hand.
#[derive(Clone, Copy)]
pub(crate) struct Offered<'n> {
    pub(crate) name: Name<'n>,
    /// The name that it is to get.
    pub(crate) to: Name<'n>,
    pub(crate) info: &'n Info,
    /// It has content of its own.
    pub(crate) is_file: bool,
    pub(crate) attributes: Attributes<'n>,
}

/// The same with its content.
pub(crate) struct Candidate<'n, D: Disk = Sys> {
    pub(crate) name: Name<'n>,
    /// The name that it is to get.
    pub(crate) to: Name<'n>,
    pub(crate) info: Info,
    pub(crate) body: Body<'n, D>,
    pub(crate) attributes: Attributes<'n>,
    pub(crate) way: Way,
    /// Its content can be had once more.
    pub(crate) is_at_hand: bool,
}

/// What is to be done for one entry, once it was compared with what is there.
pub(crate) enum Choice {
    /// It is landed where nothing is, or in the place of this, or added to it.
    Land(Option<Info>),
    /// This stays as it is.
    Keep(Option<Info>),
    /// The user says whether this is replaced.
    Ask(Option<Info>),
    /// It is landed in the place of this directory, once that is out of the way.
    Clear(Info),
}

/// Decides by one policy on one disk.
pub(crate) struct Chooser<'a, D: Disk> {
    disk: &'a D,
    policy: &'a CopyPolicy,
}

impl<'a, D: Disk> Chooser<'a, D> {
    pub(crate) fn new(disk: &'a D, policy: &'a CopyPolicy) -> Chooser<'a, D> {
        Chooser { disk, policy }
    }

    /// Compares with what is there. `prove` reads both sides; where it cannot yet, it returns `None`, what is there is
    /// what is to be replaced for now, and this is asked again once it can.
    ///
    /// # Errors
    /// The entry must not have that name, or what is there cannot be replaced by it, or looking failed.
    pub(crate) fn choose<S: Origin>(
        &self,
        pair: &Slot<S, D>,
        entry: &Offered<'_>,
        prove: &dyn Fn(Proof, &Info) -> Result<Option<bool>>,
    ) -> Result<Choice> {
        let &Offered { name, to, info, is_file, .. } = entry;
        let dst = &pair.dst;
        dst.guard_name(to).map_err(|e| e.and(&pair.src.node().join(name)))?;
        let there = if dst.is_fresh() {
            None
        } else {
            self.disk.look(&dst.dir, to).map_err(|e| Error::os(Op::Stat, dst.node.join(to), e))?
        };
        let taken = || {
            Error::ours(Code::Refused, Op::Replace, dst.node.join(to), TAKEN).and(&pair.src.node().join(name))
        };
        let verdict = decide(info, there.as_ref(), self.policy);
        let list = self.disk.lists(&dst.dir);
        if let (Verdict::Replace | Verdict::ReplaceTree | Verdict::Ask, Some(t)) = (verdict, &there)
            && dst.created_names.lock().is_taken(t, to, || self.disk.btime(&dst.dir, to), list)
        {
            return Err(taken());
        }
        let verdict = match (verdict, &there) {
            (Verdict::KeepIf(proof, _), Some(there)) => match prove(proof, there)? {
                Some(holds) => verdict.settled(holds),
                None => return Ok(Choice::Land(Some(*there))),
            },
            (verdict, _) => verdict,
        };
        match verdict {
            Verdict::Make | Verdict::Replace => Ok(Choice::Land(there)),
            Verdict::ReplaceTree => Ok(there.map_or(Choice::Land(None), Choice::Clear)),
            Verdict::Append { .. } if self.policy.collide != Collide::Ask => Ok(Choice::Land(there)),
            Verdict::Keep | Verdict::Merge => {
                if let Some(t) = &there
                    && !self.claim(dst, to, t)?
                {
                    return Err(taken());
                }
                Ok(Choice::Keep(there))
            }
            Verdict::Ask | Verdict::Append { .. } | Verdict::KeepIf(..) => Ok(Choice::Ask(there)),
            Verdict::Refuse(code, why) => {
                let at = dst.node.join(to);
                Err(match refused(why, there.is_some_and(|t| self.appends(is_file, &t))) {
                    Op::Replace => Error::ours(code, Op::Replace, at, why).and(&pair.src.node().join(name)),
                    op => Error::ours(code, op, at, why),
                })
            }
        }
    }

    /// Enters `there` among the created names as what is kept, or written into, for the source that becomes `to`. `false`: it is
    /// there for another source already, and cannot be for two, or which of them came first would say what is told. With
    /// several names it is several places, as with cp.
    fn claim(&self, dst: &DestDir<D>, to: Name<'_>, there: &Info) -> Result<bool> {
        if there.nlink != 1 {
            return Ok(true);
        }
        let btime = self.disk.btime(&dst.dir, to);
        let btime = btime.map_err(|e| Error::os(Op::Stat, dst.node.join(to), e))?;
        let mut created = dst.created_names.lock();
        if created.is_taken(there, to, || Ok(btime), self.disk.lists(&dst.dir)) {
            return Ok(false);
        }
        created.add(there, to, btime);
        Ok(true)
    }

    /// Whether the run, which compares, finds the source's very file in `there`. Targets of symbolic links are compared
    /// only by a run that replaces what differs.
    pub(crate) fn is_there(&self, info: &Info, there: Option<&Info>) -> bool {
        let compared = match self.policy.collide {
            Collide::IfDifferent | Collide::IfContentDiffers => true,
            Collide::IfOlder => info.kind != Kind::Link,
            Collide::Replace | Collide::Keep | Collide::Ask => false,
        };
        compared && there.is_some_and(|there| same(info, there))
    }

    fn appends(&self, is_file: bool, there: &Info) -> bool {
        is_file && self.policy.resume.appends() && there.kind == Kind::File
    }

    /// What is to be landed where `there` is, once its content is at hand.
    ///
    /// # Errors
    /// What is there is another source's of this run, or there is no name for a stage.
    pub(crate) fn job<'n, S: Origin>(
        &self,
        pair: &'n Slot<S, D>,
        entry: Candidate<'n, D>,
        there: Option<Info>,
    ) -> Result<Job<'n, D>> {
        let Candidate { to, ref body, way, .. } = entry;
        let dst = &pair.dst;
        let is_file = body.is_file();
        let appends = there.is_some_and(|t| self.appends(is_file, &t));
        let in_place = self.policy.landing == Landing::InPlace
            && is_file
            && there.is_some_and(|t| !matches!(t.kind, Kind::Link | Kind::Dir));
        let place = if matches!(body, Body::Kept) {
            Placement::There
        } else if way == Way::Small && dst.is_private() {
            Placement::Final
        } else if appends || in_place {
            // Two sources that are one name here would be written into each other.
            if let Some(t) = &there
                && !self.claim(dst, to, t)?
            {
                return Err(Error::ours(Code::Refused, Op::Replace, dst.node.join(to), TAKEN));
            }
            Placement::There
        } else if dst.keeps_names(self.disk) {
            // A stage could not be taken away again, nor what is there.
            if there.is_some() {
                let e = io::Error::from_raw_os_error(errno::EPERM);
                return Err(Error::os(Op::Replace, dst.node.join(to), e));
            }
            if is_file { Placement::Unnamed } else { Placement::Final }
        } else {
            let stage = if dst.is_sole(self.disk) { dst.home.stage() } else { stage::random() };
            Placement::Stage(stage.ok_or_else(|| {
                Error::ours(Code::Io, Op::NameAStageFor, dst.node.join(to), Reason::NoNameForStage)
            })?)
        };
        let append = there
            .filter(|_| appends)
            .map(|t| Append { at: t.size, proved: self.policy.resume == Resume::Append });
        Ok(Job { append, ..self.placed(entry, there, place) })
    }

    /// The same, made where `place` says.
    fn placed<'n>(&self, entry: Candidate<'n, D>, there: Option<Info>, place: Placement) -> Job<'n, D> {
        let Candidate { name, to, info, body, attributes, .. } = entry;
        Job {
            src: name,
            only_new: self.policy.collide.is_only_new() && there.is_none(),
            force: self.policy.force,
            ..Job::new(to, place, info, there, body, attributes)
        }
    }

    /// What is to be landed under its own name at once, as nothing had it.
    pub(crate) fn named<'n>(&self, entry: Candidate<'n, D>) -> Job<'n, D> {
        self.placed(entry, None, Placement::Final)
    }

    /// What is to be landed as a file without a name, as a listing did not have the one that it is to get.
    pub(crate) fn unnamed<'n>(&self, entry: Candidate<'n, D>) -> Job<'n, D> {
        self.placed(entry, None, Placement::Unnamed)
    }

    /// Whether the symbolic link that is there leads where `target` says.
    pub(crate) fn leads_to<S>(&self, pair: &Slot<S, D>, to: Name<'_>, target: &CStr) -> Result<bool> {
        let there = self.disk.read_link(&pair.dst.dir, to);
        there.map(|there| *there == *target).map_err(|e| Error::os(Op::ReadLink, pair.dst.node.join(to), e))
    }

    /// Whether what is there has what of the source is to be proved.
    pub(crate) fn prove<S: Origin>(
        &self,
        pair: &Slot<S, D>,
        entry: &Candidate<'_, D>,
        proof: Proof,
        there: &Info,
        go_on: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let &Candidate { name, to, ref body, .. } = entry;
        match (proof, body) {
            (Proof::Target, Body::Link(target)) => return self.leads_to(pair, to, target),
            // A beginning is proved when it is added to, on the very file that is written into.
            (Proof::Beginning, _) => return Ok(true),
            (_, Body::Link(_) | Body::Special | Body::Kept | Body::HardLink(..)) => return Ok(true),
            (_, Body::File(_) | Body::Bytes(_) | Body::Wire(_)) => {}
        }
        let told = |f: Fault| f.told(|| pair.src.node().join(name), || pair.dst.node.join(to));
        self.has_content(&pair.dst.dir, (to, there.size), body, go_on).map_err(told)
    }

    /// Whether the file `to` of `dir`, which has the source's size, has the content of `body`.
    ///
    /// # Errors
    /// One of the two cannot be read.
    pub(crate) fn has_content(
        &self,
        dir: &D::Dir,
        (to, size): (Name<'_>, u64),
        body: &Body<'_, D>,
        go_on: &dyn Fn() -> bool,
    ) -> std::result::Result<bool, Fault> {
        let file = self.disk.open_to_read(dir, to).map_err(|e| Fault::os(Side::Dest, Op::Open, e))?;
        let go_on = |_: u64| go_on();
        let of_source = match body {
            Body::File(src) => tee::hash(src, &go_on)?,
            Body::Bytes(bytes) => blake3::hash(bytes),
            Body::Wire(source) => return tee::same_blocks(self.disk, *source, &file, size, &go_on),
            Body::Link(_) | Body::Special | Body::Kept | Body::HardLink(..) => return Ok(true),
        };
        Ok(of_source == tee::hash_on(self.disk, &file, &go_on)?)
    }
}
