//! What closes a run beside its counts: what was proved, reused and left alone, what could not be kept, what limited it.
//!
//! Must not word anything, and holds no more than one example of each kind.

use super::limit::Limit;
use bcmr_engine::error::{Code, Error, Op};
use bcmr_engine::policy::{Collide, Verify};
use std::path::PathBuf;
use std::time::Duration;

/// One kind of attribute that could not be kept.
#[derive(Debug, PartialEq, Eq)]
pub struct Loss {
    /// What was tried.
    pub op: Op,
    /// How often.
    pub count: u64,
    /// One of the names, the first in order.
    pub example: PathBuf,
}

/// What a run came to, for a person who keeps it; shown as lines, as an event, and on a page.
#[derive(Debug)]
pub struct Receipt {
    pub files: u64,
    pub bytes: u64,
    pub took: Duration,
    /// How what landed was read back; off also where no bytes landed.
    pub verify: Verify,
    /// Bytes that were.
    pub verified: u64,
    /// The hash of the sorted lines of hashes and names, as `b3sum` writes them.
    pub root: Option<[u8; 32]>,
    /// Bytes that an earlier run had copied, or that were there otherwise and did not cross.
    pub reused: u64,
    /// The second of these: from older versions, or from under other names.
    pub from_basis: u64,
    /// And those that came from the store of blocks at the destination.
    pub from_store: u64,
    /// And those that had come before in the same run.
    pub from_run: u64,
    /// Files and bytes whose blocks are shared with the source.
    pub cloned: (u64, u64),
    /// Left alone because they were there.
    pub kept: u64,
    /// Why.
    pub collide: Collide,
    /// Left out by a filter, where that is known: another machine leaves out what it has by itself.
    pub excluded: Option<u64>,
    /// Special files that nothing asked to be copied: how many, and one of them.
    pub specials: Option<(u64, PathBuf)>,
    /// Attributes that could not be kept.
    pub lost: Vec<Loss>,
    pub limit: Option<Limit>,
    /// The command that proves it, for a shell.
    pub proof: Option<String>,
}

/// All kinds, in the order that they were met.
#[derive(Debug, Default)]
pub struct Losses {
    kinds: Vec<Loss>,
    specials: Option<(u64, PathBuf)>,
}

impl Losses {
    /// Counts an error or a warning, if it is of an attribute or of a special file.
    pub fn add(&mut self, e: &Error) {
        match e.code {
            Code::Special => {
                let specials = self.specials.get_or_insert_with(|| (0, e.path.clone()));
                specials.0 += 1;
                if e.path < specials.1 {
                    specials.1.clone_from(&e.path);
                }
            }
            code if code.is_of_metadata() => match self.kinds.iter_mut().find(|loss| loss.op == e.op) {
                Some(loss) => {
                    loss.count += 1;
                    if e.path < loss.example {
                        loss.example.clone_from(&e.path);
                    }
                }
                None => self.kinds.push(Loss { op: e.op, count: 1, example: e.path.clone() }),
            },
            _ => {}
        }
    }

    /// How many special files were left out, and one of them.
    pub fn specials(&self) -> Option<(u64, PathBuf)> {
        self.specials.clone()
    }

    /// One entry for each kind.
    pub fn take(&mut self) -> Vec<Loss> {
        std::mem::take(&mut self.kinds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bcmr_engine::error::Reason;

    #[test]
    fn losses_are_counted_by_kind() {
        let mut losses = Losses::default();
        for (code, op, path) in [
            (Code::MetadataLost, Op::SetModeOf, "b"),
            (Code::MetadataLost, Op::SetModeOf, "a"),
            (Code::MetadataLost, Op::KeepEveryOwner, "c"),
            (Code::NotFound, Op::SetModeOf, "0"),
            (Code::Special, Op::Copy, "p"),
            (Code::Special, Op::Copy, "o"),
        ] {
            losses.add(&Error::ours(code, op, path, Reason::Interrupted));
        }
        let loss = |op, count, example: &str| Loss { op, count, example: example.into() };
        assert_eq!(losses.specials(), Some((2, "o".into())));
        assert_eq!(losses.take(), [loss(Op::SetModeOf, 2, "a"), loss(Op::KeepEveryOwner, 1, "c")]);
    }
}
