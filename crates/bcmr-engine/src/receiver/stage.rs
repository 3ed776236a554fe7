//! What a file or directory is called before it is born under its name.
//!
//! Must not touch any disk. A stage's name follows from the final name, so that the next run of the same command
//! meets what a killed run left and can take it away; 128 bits of BLAKE3, so that nobody can make two names of one
//! tree share a stage. Only who holds the directory's lock uses these; everybody else takes a random name.

use fastcopy::dir::{Name, NameBuf};
use std::hash::{BuildHasher, Hasher, RandomState};

const PREFIX: &[u8] = b".bcmr-";
const SUFFIX: &[u8] = b".stage";
/// What the stage of a resumable copy ends with.
pub(crate) const PART: &[u8] = b".part";
/// What a manifest ends with until it is whole.
pub(crate) const MANIFEST: &[u8] = b".manifest";
/// What its session ends with.
pub(crate) const SESSION: &[u8] = b".session";

/// The stage's name for a final name, for the holder of the directory's lock.
pub(crate) fn known(name: Name<'_>) -> Option<NameBuf> {
    named(name, SUFFIX)
}

fn named(name: Name<'_>, suffix: &[u8]) -> Option<NameBuf> {
    let hash = blake3::hash(name.bytes());
    NameBuf::new(&[PREFIX, &hash.to_hex().as_bytes()[..32], suffix].concat())
}

/// The stage's name of a resumable copy; who has its session locked may use it.
pub(crate) fn part(name: Name<'_>) -> Option<NameBuf> {
    named(name, PART)
}

/// Whether a name is one that [`part`] makes.
pub(crate) fn is_part(name: Name<'_>) -> bool {
    name.bytes().starts_with(PREFIX) && name.bytes().ends_with(PART)
}

/// The session's name.
pub(crate) fn session(name: Name<'_>) -> Option<NameBuf> {
    named(name, SESSION)
}

/// What a manifest is called until it is whole; who has it locked may use it.
pub(crate) fn manifest(name: Name<'_>) -> Option<NameBuf> {
    named(name, MANIFEST)
}

/// In a directory that an interrupted copy of one tree made: what the tree was.
pub(crate) const TREE: &[u8] = b".bcmr-tree.session";

/// A stage's name that nobody else has, for those without the lock.
pub(crate) fn random() -> Option<NameBuf> {
    // `RandomState` is keyed from the system's randomness; a clash would be caught by O_EXCL anyway.
    let word = |salt: u8| {
        let mut h = RandomState::new().build_hasher();
        h.write_u8(salt);
        h.finish()
    };
    let text = format!("{:016x}{:016x}", word(0), word(1));
    NameBuf::new(&[PREFIX, b"r-", text.as_bytes(), SUFFIX].concat())
}

/// Whether a name is one that [`known`] makes. A stale one is litter of ours; what [`random`] makes may be somebody
/// else's work in progress and is not recognised here.
pub(crate) fn is_known(name: Name<'_>) -> bool {
    name.bytes()
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.strip_suffix(SUFFIX))
        .is_some_and(|hex| hex.len() == 32 && hex.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_are_recognised_and_random_ones_are_not() {
        let long = NameBuf::new(&[b'n'; 255]).unwrap();
        let stage = known(long.as_name()).unwrap();
        assert!(stage.bytes().len() < 64, "fits where a 255-byte name fits");
        assert!(is_known(stage.as_name()));
        assert_eq!(stage, known(long.as_name()).unwrap());
        assert_ne!(stage, known(NameBuf::new(b"n").unwrap().as_name()).unwrap());
        assert!(!is_known(random().unwrap().as_name()));
        assert_ne!(random(), random());
        assert!(!is_known(long.as_name()));
    }
}
