//! Whether and where an interrupted copy goes on. Pure: what is known comes in, a decision goes out.
//!
//! Must not read anything. Any doubt means starting over, with a reason that can be told.

use super::session::{Identity, Session};
use crate::blocks::{BLOCK_BYTES, blocks_of};
use crate::error::Reason;
use fastcopy::meta::{Info, Kind};

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// From the beginning; why, when there was something to go on from.
    Fresh(Option<Reason>),
    /// Behind so many recorded blocks, which hold so many bytes.
    Behind { blocks: usize, bytes: u64 },
}

/// Decides. `stage` is what lies under the stage's name, `owner` whose it must be.
pub(crate) fn decide(
    session: Option<&Session>,
    unreadable: bool,
    stage: Option<&Info>,
    source: &Info,
    options: u32,
    owner: u32,
) -> Start {
    let fresh = |why| Start::Fresh(Some(why));
    let Some(session) = session else {
        return if unreadable { fresh(Reason::SessionDamaged) } else { Start::Fresh(None) };
    };
    if session.header.source != Identity::of(source) {
        return fresh(Reason::SourceChangedSince);
    }
    if session.header.options != options {
        return fresh(Reason::OtherOptions);
    }
    let Some(stage) = stage else { return fresh(Reason::UnfinishedIsGone) };
    if stage.kind != Kind::File || stage.id() != session.header.stage || stage.nlink != 1 {
        return fresh(Reason::UnfinishedIsAnother);
    }
    if stage.uid != owner {
        return fresh(Reason::UnfinishedOfAnotherUser);
    }
    let blocks = session.blocks.len();
    let bytes = (blocks as u64 * BLOCK_BYTES).min(source.size);
    if blocks as u64 > blocks_of(source.size) || stage.size < bytes {
        return fresh(Reason::UnfinishedTooShort);
    }
    if blocks == 0 {
        return Start::Fresh(None);
    }
    Start::Behind { blocks, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receiver::session::Header;
    use fastcopy::meta::Time;

    fn info(ino: u64, size: u64) -> Info {
        let t = Time { sec: 5, nsec: 6 };
        Info {
            kind: Kind::File,
            mode: 0o600,
            uid: 7,
            gid: 7,
            dev: 1,
            ino,
            nlink: 1,
            size,
            blocks: size / 512,
            rdev: 0,
            atime: t,
            mtime: t,
            ctime: t,
        }
    }

    #[test]
    fn any_doubt_starts_over() {
        let size = 3 * BLOCK_BYTES + 10;
        let source = info(1, size);
        let stage = info(2, 2 * BLOCK_BYTES);
        let header = Header { options: 0, source: Identity::of(&source), stage: (1, 2), name: vec![] };
        let session = Session { header, blocks: vec![[0; 32]; 2], bytes: 0, sum: [0; 8] };
        let go =
            |s: &Session, st: Option<Info>, src: Info, me| decide(Some(s), false, st.as_ref(), &src, 0, me);
        let fresh = |s: Start| matches!(s, Start::Fresh(Some(_)));
        assert_eq!(go(&session, Some(stage), source, 7), Start::Behind { blocks: 2, bytes: 2 * BLOCK_BYTES });
        // The last block of a file may be a part of one.
        let whole = Session { blocks: vec![[0; 32]; 4], ..session.clone() };
        assert_eq!(go(&whole, Some(info(2, size)), source, 7), Start::Behind { blocks: 4, bytes: size });
        assert_eq!(decide(None, false, Some(&stage), &source, 0, 7), Start::Fresh(None));
        assert!(fresh(decide(None, true, Some(&stage), &source, 0, 7)));
        assert!(fresh(decide(Some(&session), false, Some(&stage), &source, 1, 7)));
        let later = Time { sec: 5, nsec: 7 };
        for changed in [
            Info { ctime: later, ..source },
            Info { mtime: later, ..source },
            Info { size: size + 1, ..source },
            Info { ino: 9, ..source },
            Info { dev: 9, ..source },
        ] {
            assert!(fresh(go(&session, Some(stage), changed, 7)), "{changed:?}");
        }
        assert!(fresh(go(&session, None, source, 7)));
        for foreign in [
            Info { ino: 3, ..stage },
            Info { dev: 3, ..stage },
            Info { nlink: 2, ..stage },
            Info { kind: Kind::Link, ..stage },
            Info { uid: 8, ..stage },
            Info { size: 2 * BLOCK_BYTES - 1, ..stage },
        ] {
            assert!(fresh(go(&session, Some(foreign), source, 7)), "{foreign:?}");
        }
    }
}
