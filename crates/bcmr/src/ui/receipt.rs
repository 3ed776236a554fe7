//! What closes a run beside its counts: attributes that could not be kept, by kind with an example.
//!
//! Must not word anything, and holds no more than one example of each kind.

use bcmr_engine::error::{Code, Error, Op};
use std::path::PathBuf;

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

/// All kinds, in the order that they were met.
#[derive(Debug, Default)]
pub struct Losses(Vec<Loss>);

impl Losses {
    /// Counts an error or a warning, if it is of an attribute.
    pub fn add(&mut self, e: &Error) {
        if e.code != Code::MetadataLost {
            return;
        }
        match self.0.iter_mut().find(|loss| loss.op == e.op) {
            Some(loss) => {
                loss.count += 1;
                if e.path < loss.example {
                    loss.example.clone_from(&e.path);
                }
            }
            None => self.0.push(Loss { op: e.op, count: 1, example: e.path.clone() }),
        }
    }

    /// One entry for each kind.
    pub fn kinds(&self) -> &[Loss] {
        &self.0
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
        ] {
            losses.add(&Error::ours(code, op, path, Reason::Interrupted));
        }
        let loss = |op, count, example: &str| Loss { op, count, example: example.into() };
        assert_eq!(losses.kinds(), [loss(Op::SetModeOf, 2, "a"), loss(Op::KeepEveryOwner, 1, "c")]);
    }
}
