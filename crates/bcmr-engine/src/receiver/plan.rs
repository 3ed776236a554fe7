//! What is to be done with one entry, given what is there. Pure: no disk, no clock, no questions asked here.

use crate::error::{Code, Op, Reason};
use crate::policy::{Collide, CopyPolicy, Landing, Resume, Strictness, Verify};
use fastcopy::meta::{Info, Kind};

/// The answer for one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Make it: nothing is there.
    Make,
    /// Put it in the place of what is there.
    Replace,
    /// The same where what is there is a directory and it is none: at once if that is empty, else after it was deleted with
    /// what only the destination has.
    ReplaceTree,
    /// Both are directories: go in.
    Merge,
    /// Leave what is there; the policy says so.
    Keep,
    /// Leave what is there if the two sides are alike in this, which only reading them tells.
    KeepIf(Proof, Otherwise),
    /// Add what is missing at its end, once its beginning is proved to be the source's; or unproved.
    Append { proved: bool },
    /// A person decides between `Replace` and `Keep`.
    Ask,
    /// It cannot be; why.
    Refuse(Code, Reason),
}

/// What only reading both sides tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// Two regular files of one size have the same bytes.
    Content,
    /// Two symbolic links lead to the same.
    Target,
    /// What is there is how the source begins.
    Beginning,
}

/// What follows when a proof fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Otherwise {
    /// What is there is replaced.
    Replace,
    /// It is left alone, and that is an error.
    Refuse(Reason),
}

impl Verdict {
    /// What it comes to once its proof holds, or does not.
    pub(crate) fn settled(self, holds: bool) -> Verdict {
        match self {
            Verdict::KeepIf(..) if holds => Verdict::Keep,
            Verdict::KeepIf(_, Otherwise::Replace) => Verdict::Replace,
            Verdict::KeepIf(_, Otherwise::Refuse(why)) => Verdict::Refuse(Code::Refused, why),
            other => other,
        }
    }
}

/// Why nothing can be added to what is there.
pub(crate) const NOT_ITS_BEGINNING: Reason = Reason::NotItsBeginning;

/// Decides for `src` when `there` has its name at the destination. The one place where this is decided: for a copy, for
/// what a dry run says of it, and for what `check` finds.
pub(crate) fn decide(src: &Info, there: Option<&Info>, policy: &CopyPolicy) -> Verdict {
    let Some(there) = there else { return Verdict::Make };
    match (src.kind, there.kind) {
        (Kind::Dir, Kind::Dir) => return Verdict::Merge,
        (Kind::Dir, _) if policy.mirror.is_on() => return Verdict::Replace,
        (_, Kind::Dir) if policy.mirror.is_on() => return Verdict::ReplaceTree,
        (Kind::Dir, _) => {
            return Verdict::Refuse(Code::InTheWay, Reason::DirectoryOverFile);
        }
        (_, Kind::Dir) => {
            return Verdict::Refuse(Code::InTheWay, Reason::FileOverDirectory);
        }
        _ => {}
    }
    match policy.collide {
        Collide::Keep => return Verdict::Keep,
        Collide::IfOlder if src.mtime < there.mtime => return Verdict::Keep,
        Collide::IfOlder if src.mtime == there.mtime => {
            let looks_same = src.kind == Kind::File && same(src, there);
            return if looks_same { alike(Proof::Content, policy) } else { Verdict::Keep };
        }
        Collide::IfDifferent if same(src, there) => match src.kind {
            Kind::File => return alike(Proof::Content, policy),
            Kind::Link => return Verdict::KeepIf(Proof::Target, Otherwise::Replace),
            _ => return Verdict::Keep,
        },
        Collide::IfContentDiffers if src.kind == there.kind => match src.kind {
            Kind::File if src.size == there.size => {
                return Verdict::KeepIf(Proof::Content, Otherwise::Replace);
            }
            Kind::Link => return Verdict::KeepIf(Proof::Target, Otherwise::Replace),
            Kind::File | Kind::Dir => {}
            _ if same(src, there) => return Verdict::Keep,
            _ => {}
        },
        _ => {}
    }
    if src.id() == there.id() {
        return Verdict::Refuse(Code::Refused, Reason::SameFile);
    }
    // An archive makes the destination what the source is; else bytes meant for a device must not end up beside it.
    let alike = policy.strictness == Strictness::Archive;
    if src.kind == Kind::File && there.kind.is_special() && policy.landing == Landing::Atomic && !alike {
        return Verdict::Refuse(Code::Special, Reason::NotWritable);
    }
    // A pipe gives nothing back to compare, and exit 0 would say that it was proved.
    let is_into_stream = policy.landing == Landing::InPlace && there.kind.is_stream();
    if src.kind == Kind::File && is_into_stream && policy.verify != Verify::Off {
        return Verdict::Refuse(Code::Unsupported, Reason::KeepsNothing);
    }
    if policy.resume.appends() && src.kind == Kind::File && there.kind == Kind::File {
        let proved = policy.resume == Resume::Append;
        return match there.size.cmp(&src.size) {
            std::cmp::Ordering::Greater => Verdict::Refuse(Code::Refused, Reason::LongerThanSource),
            std::cmp::Ordering::Equal if proved => {
                Verdict::KeepIf(Proof::Content, Otherwise::Refuse(NOT_ITS_BEGINNING))
            }
            std::cmp::Ordering::Equal => Verdict::Keep,
            std::cmp::Ordering::Less => Verdict::Append { proved },
        };
    }
    if policy.collide == Collide::Ask { Verdict::Ask } else { Verdict::Replace }
}

/// What was to be done to what is there, and is refused for this reason; `appends`: the run adds to it.
pub(crate) fn refused(why: Reason, appends: bool) -> Op {
    match why {
        Reason::KeepsNothing => Op::Verify,
        _ if appends => Op::AppendTo,
        _ => Op::Replace,
    }
}

/// What looks the same by size and time is believed to be, unless the run goes on with an earlier one and was told to
/// prove (`-s`, or `-V` with `-C`). A move reads back what it has landed itself, and believes so where it is told to keep what is there.
fn alike(proof: Proof, policy: &CopyPolicy) -> Verdict {
    let goes_on = policy.resume.has_sessions() && !policy.leaving.goes();
    let proves = policy.resume == Resume::Strict || goes_on && policy.verify != Verify::Off;
    if proves { Verdict::KeepIf(proof, Otherwise::Replace) } else { Verdict::Keep }
}

/// Alike by kind, size and mtime, which is the quick check. A file system that keeps coarser times than
/// nanoseconds makes a file look different, never alike.
pub(crate) fn same(src: &Info, there: &Info) -> bool {
    src.kind == there.kind
        && match src.kind {
            Kind::File => src.size == there.size && src.mtime == there.mtime,
            Kind::CharDevice | Kind::BlockDevice => src.rdev == there.rdev,
            Kind::Link | Kind::Dir | Kind::Fifo | Kind::Socket => true,
        }
}

/// What differs of the attributes that are kept, as far as an [`Info`] tells. A run that brings them up to date again and
/// again lets go of owners that only root could give.
pub(crate) fn stale_by(src: &Info, there: &Info, policy: &CopyPolicy) -> Option<Reason> {
    let kept = &policy.preserve;
    let src = &policy.alter.of(src);
    let gives = policy.me == 0 || !policy.mirror.is_on() || kept.at_dest.is_held();
    if kept.times && src.mtime != there.mtime {
        Some(Reason::ByMtime)
    } else if kept.mode && src.kind != Kind::Link && src.mode != there.mode {
        Some(Reason::ByMode)
    } else if kept.owner && gives && (src.uid, src.gid) != (there.uid, there.gid) {
        Some(Reason::ByOwner)
    } else {
        None
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::policy::*;
    use fastcopy::meta::Time;

    pub(crate) fn policy() -> CopyPolicy {
        CopyPolicy { recursive: true, ..CopyPolicy::cp(1, 0, 0o022) }
    }

    fn info(kind: Kind, ino: u64, mtime: i64) -> Info {
        let t = Time { sec: mtime, nsec: 0 };
        Info {
            kind,
            mode: 0o644,
            uid: 0,
            gid: 0,
            dev: 1,
            ino,
            nlink: 1,
            size: 10,
            blocks: 8,
            rdev: 0,
            atime: t,
            mtime: t,
            ctime: t,
        }
    }

    #[test]
    fn every_pair_of_kinds_and_policies() {
        use Kind::{Dir, Fifo, File, Link};
        let p = |collide, landing| CopyPolicy { collide, landing, ..policy() };
        let plain = p(Collide::Replace, Landing::Atomic);
        let refuse = |v: Verdict| matches!(v, Verdict::Refuse(..));
        let go = |s: Info, t: Option<Info>, p: &CopyPolicy| decide(&s, t.as_ref(), p);
        assert_eq!(go(info(File, 1, 5), None, &plain), Verdict::Make);
        assert_eq!(go(info(Dir, 1, 5), Some(info(Dir, 2, 5)), &plain), Verdict::Merge);
        assert!(refuse(go(info(Dir, 1, 5), Some(info(File, 2, 5)), &plain)));
        assert!(refuse(go(info(Dir, 1, 5), Some(info(Link, 2, 5)), &plain)));
        assert!(refuse(go(info(File, 1, 5), Some(info(Dir, 2, 5)), &plain)));
        assert_eq!(go(info(File, 1, 5), Some(info(File, 2, 5)), &plain), Verdict::Replace);
        assert_eq!(go(info(File, 1, 5), Some(info(Link, 2, 5)), &plain), Verdict::Replace);
        assert!(refuse(go(info(File, 1, 5), Some(info(Fifo, 2, 5)), &plain)));
        assert_eq!(
            go(info(File, 1, 5), Some(info(Fifo, 2, 5)), &p(Collide::Replace, Landing::InPlace)),
            Verdict::Replace
        );
        let archive = CopyPolicy { strictness: Strictness::Archive, ..policy() };
        assert_eq!(go(info(File, 1, 5), Some(info(Fifo, 2, 5)), &archive), Verdict::Replace);
        assert_eq!(go(info(Fifo, 1, 5), Some(info(Fifo, 2, 5)), &plain), Verdict::Replace);
        let same = go(info(File, 1, 5), Some(info(File, 1, 5)), &plain);
        assert!(matches!(same, Verdict::Refuse(Code::Refused, _)));
        for (collide, src_time, there_time, want) in [
            (Collide::Keep, 9, 5, Verdict::Keep),
            (Collide::IfOlder, 9, 5, Verdict::Replace),
            (Collide::IfOlder, 5, 5, Verdict::Keep),
            (Collide::IfOlder, 5, 9, Verdict::Keep),
            (Collide::IfDifferent, 5, 5, Verdict::Keep),
            (Collide::IfDifferent, 5, 9, Verdict::Replace),
            (Collide::Ask, 5, 9, Verdict::Ask),
        ] {
            let got =
                go(info(File, 1, src_time), Some(info(File, 2, there_time)), &p(collide, Landing::Atomic));
            assert_eq!(got, want, "{collide:?} {src_time} {there_time}");
        }
        assert_eq!(go(info(File, 1, 5), None, &p(Collide::Keep, Landing::Atomic)), Verdict::Make);
    }
}
