//! What has landed in this run, where a file that comes later may have the same content or much of it.
//!
//! Must not know what is done with one. Other programs may write to it meanwhile: a content is hashed when it is read, and
//! the caller compares what is made of a basis.

use crate::blocks::{Cv, hash_key, values_of};
use crate::disk::sys::Sys;
use crate::receiver::dest::DestDir;
use crate::receiver::links::LandedName;
use crate::stem::{is_about_as_long, stem_of};
use bcmr_wire::limits::REPEATS_MAX;
use fastcopy::dir::{Name, NameBuf};
use fastcopy::read_write::read_expected;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Large files that are remembered, the first ones of a run: each further one is compared with so many.
const LARGE_MAX: usize = 4096;

/// Why two large files may have much in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sign {
    /// Names differ in digits and punctuation alone.
    LikeName,
    SameName,
    SameSize,
    SameNameAndSize,
}

/// How often in a row a sign may lead to a basis that helps nothing, before it is not gone by any more: each time costs a round
/// trip, and both sides a reading.
const SIZE_TRIES: u32 = 4;
const NAME_TRIES: u32 = 2;

/// What is known of a large file before any of it is here.
struct LargeLooks {
    size: u64,
    name: NameBuf,
    stem: Option<Vec<u8>>,
}

impl LargeLooks {
    fn new(size: u64, name: Name<'_>) -> LargeLooks {
        LargeLooks { size, name: name.to_owned(), stem: stem_of(name.bytes()) }
    }

    fn sign(&self, other: &LargeLooks) -> Option<Sign> {
        if !is_about_as_long(self.size, other.size) {
            return None;
        }
        match (self.size == other.size, self.name == other.name) {
            (true, true) => Some(Sign::SameNameAndSize),
            (true, false) => Some(Sign::SameSize),
            (false, true) => Some(Sign::SameName),
            (false, false) => (self.stem.is_some() && self.stem == other.stem).then_some(Sign::LikeName),
        }
    }
}

/// How often each kind of sign may still fail.
struct TriesLeft {
    by_size: u32,
    by_name: u32,
}

impl TriesLeft {
    fn of(&mut self, sign: Sign) -> (&mut u32, u32) {
        match sign {
            Sign::SameSize | Sign::SameNameAndSize => (&mut self.by_size, SIZE_TRIES),
            Sign::LikeName | Sign::SameName => (&mut self.by_name, NAME_TRIES),
        }
    }

    fn has(&mut self, sign: Sign) -> bool {
        *self.of(sign).0 > 0
    }

    /// A basis was found by `sign`, and has helped or not.
    fn tried(&mut self, sign: Sign, has_helped: bool) {
        let (left, all) = self.of(sign);
        *left = if has_helped { all } else { left.saturating_sub(1) };
    }
}

/// One that is on offer or on its way.
struct ComingFile {
    looks: LargeLooks,
    basis: Option<TriedBasis>,
}

/// A basis that was found by looks.
struct TriedBasis {
    sign: Sign,
    /// Bytes that were taken from it.
    used: Arc<AtomicU64>,
    of: BasisOf,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BasisOf {
    ThisRun,
    EarlierRun,
}

struct LargeLanded {
    looks: LargeLooks,
    /// Of the values of its blocks, where all are known.
    content: Option<[u8; 32]>,
    at: Arc<LandedName<Sys>>,
}

struct LargeOnes {
    landed: Vec<LargeLanded>,
    /// By their numbers: as many as may be on offer.
    coming: HashMap<u64, ComingFile>,
    left: TriesLeft,
}

/// A file of this run that another one may be much like.
pub(crate) struct RunBasis {
    pub(crate) file: OwnedFd,
    /// Where bytes are counted that are taken from it.
    pub(crate) used: Arc<AtomicU64>,
    content: Option<[u8; 32]>,
}

impl RunBasis {
    /// Whether all of it is what landed: every byte is read and compared.
    pub(crate) fn is_what_landed(&self) -> bool {
        self.content.is_some() && values_of(&self.file).map(|values| content_of(&values)) == self.content
    }
}

fn content_of(values: &[Cv]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for value in values {
        hasher.update(value);
    }
    *hasher.finalize().as_bytes()
}

/// The files of one run at a receiver.
pub(crate) struct RunFiles {
    /// Small ones, by the beginning of their hash.
    contents: Mutex<HashMap<u64, Arc<LandedName<Sys>>>>,
    large: Mutex<LargeOnes>,
    reused: AtomicU64,
}

impl RunFiles {
    /// Nothing has landed yet.
    pub(crate) fn new() -> RunFiles {
        let left = TriesLeft { by_size: SIZE_TRIES, by_name: NAME_TRIES };
        let large = LargeOnes { landed: Vec::new(), coming: HashMap::new(), left };
        RunFiles { contents: Mutex::default(), large: Mutex::new(large), reused: AtomicU64::new(0) }
    }

    fn contents(&self) -> MutexGuard<'_, HashMap<u64, Arc<LandedName<Sys>>>> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn large(&self) -> MutexGuard<'_, LargeOnes> {
        self.large.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that were taken from files of the run, those of settled files.
    pub(crate) fn reused(&self) -> u64 {
        self.reused.load(Relaxed)
    }

    /// So many bytes of one were taken.
    pub(crate) fn count(&self, bytes: u64) {
        self.reused.fetch_add(bytes, Relaxed);
    }

    // ---- small files ----

    /// A content landed as `name` in `dir`.
    pub(crate) fn landed(&self, hash: &[u8; 32], dir: &DestDir<Sys>, name: Name<'_>) {
        let mut contents = self.contents();
        if contents.len() < REPEATS_MAX || contents.contains_key(&hash_key(hash)) {
            contents.insert(hash_key(hash), Arc::new(LandedName::new(dir, name)));
        }
    }

    /// The content of `bytes` bytes that has this hash, read from where it landed. `None`: there is none, or not any more.
    pub(crate) fn content(&self, disk: &Sys, hash: &[u8; 32], bytes: u64) -> Option<Vec<u8>> {
        let at = self.contents().get(&hash_key(hash)).cloned()?;
        let file = at.open_file(disk).ok()?;
        let (length, mut content) = (usize::try_from(bytes).ok()?, Vec::new());
        let got = read_expected(&file, 0, length, &mut content).ok()?;
        (got == length && blake3::hash(&content).as_bytes() == hash).then_some(content)
    }

    // ---- large files ----

    /// A large file is on offer that nothing there is a basis of. Whether one that has landed, or comes before it, may be.
    pub(crate) fn expects(&self, file: u64, size: u64, name: Name<'_>) -> bool {
        let mut large = self.large();
        let large = &mut *large;
        let looks = LargeLooks::new(size, name);
        let others = large.landed.iter().map(|one| &one.looks);
        let mut others = others.chain(large.coming.values().map(|one| &one.looks));
        let may = others.any(|other| looks.sign(other).is_some_and(|sign| large.left.has(sign)));
        large.coming.insert(file, ComingFile { looks, basis: None });
        may
    }

    /// What has landed that an expected file is most probably like.
    pub(crate) fn basis(&self, disk: &Sys, file: u64) -> Option<RunBasis> {
        let (at, content, used) = {
            let mut large = self.large();
            let LargeOnes { landed, coming, left } = &mut *large;
            let coming = coming.get_mut(&file)?;
            let signs = landed.iter().filter_map(|one| Some((coming.looks.sign(&one.looks)?, one)));
            // Of those of one sign the last.
            let (sign, one) = signs.filter(|(sign, _)| left.has(*sign)).max_by_key(|(sign, _)| *sign)?;
            let used: Arc<AtomicU64> = Arc::default();
            coming.basis = Some(TriedBasis { sign, used: used.clone(), of: BasisOf::ThisRun });
            (one.at.clone(), one.content, used)
        };
        let file = at.open_file(disk).ok()?;
        Some(RunBasis { file, used, content })
    }

    /// Whether a file that is only called as another is worth looking at.
    pub(crate) fn goes_by_names(&self) -> bool {
        self.large().left.has(Sign::LikeName)
    }

    /// An expected file gets a basis that an earlier run has landed under nearly its name: where bytes are counted that are taken
    /// from there.
    pub(crate) fn goes_by_name(&self, file: u64) -> Arc<AtomicU64> {
        let used: Arc<AtomicU64> = Arc::default();
        if let Some(coming) = self.large().coming.get_mut(&file) {
            let of = BasisOf::EarlierRun;
            coming.basis = Some(TriedBasis { sign: Sign::LikeName, used: used.clone(), of });
        }
        used
    }

    /// A large file landed as `name` in `dir`, with these values, where all are known.
    pub(crate) fn landed_large(
        &self,
        size: u64,
        dir: &DestDir<Sys>,
        (name, to): (Name<'_>, Name<'_>),
        values: Option<&[Cv]>,
    ) {
        let mut large = self.large();
        if large.landed.len() < LARGE_MAX {
            let (looks, at) = (LargeLooks::new(size, name), Arc::new(LandedName::new(dir, to)));
            large.landed.push(LargeLanded { looks, content: values.map(content_of), at });
        }
    }

    /// Nothing more is to be done for a large file. Bytes of it that were taken from what an earlier run has landed.
    pub(crate) fn settled(&self, file: u64) -> u64 {
        let mut large = self.large();
        let Some(ComingFile { looks, basis: Some(tried) }) = large.coming.remove(&file) else { return 0 };
        let used = tried.used.load(Relaxed);
        // With less than a half of it the round trip was hardly worth it.
        large.left.tried(tried.sign, used >= looks.size / 2);
        match tried.of {
            BasisOf::EarlierRun => used,
            BasisOf::ThisRun => {
                self.count(used);
                0
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look from outside")]
mod tests {
    use super::*;
    use crate::node::Node;
    use crate::receiver::plan::tests::policy;
    use fastcopy::dir::Dir;
    use std::path::Path;

    fn looks(size: u64, name: &str) -> LargeLooks {
        LargeLooks::new(size, NameBuf::new(name.as_bytes()).unwrap().as_name())
    }

    #[test]
    fn what_looks_alike() {
        use Sign::*;
        let one = looks(100, "big.img");
        for (size, name, sign) in [
            (100, "big.img", Some(SameNameAndSize)),
            (100, "other", Some(SameSize)),
            (101, "big.img", Some(SameName)),
            (90, "big-2.img", Some(LikeName)),
            (90, "BIG (3).IMG", Some(LikeName)),
            (90, "big.iso", None),
            (90, "bigger.img", None),
            (401, "big.img", Some(SameName)),
            (500, "big.img", None),
            (19, "big.img", None),
        ] {
            assert_eq!(one.sign(&looks(size, name)), sign, "{size} {name}");
            assert_eq!(looks(size, name).sign(&one), sign, "{name}, the other way round");
        }
        assert_eq!(looks(1, "1.2").sign(&looks(2, "3.4")), None, "nothing is left of these names");
        assert!(SameNameAndSize > SameSize && SameSize > SameName && SameName > LikeName);
    }

    fn dest(at: &Path) -> DestDir<Sys> {
        DestDir::existing(&Sys::new(), Dir::open(at).unwrap(), Node::root(at), None, &policy()).unwrap()
    }

    fn name(name: &str) -> NameBuf {
        NameBuf::new(name.as_bytes()).unwrap()
    }

    #[test]
    fn a_content_is_what_it_was_or_none() {
        let tmp = tempfile::tempdir().unwrap();
        let (disk, run, dir) = (Sys::new(), RunFiles::new(), dest(tmp.path()));
        let at = tmp.path().join("a");
        std::fs::write(&at, b"content").unwrap();
        let hash = *blake3::hash(b"content").as_bytes();
        assert_eq!(run.content(&disk, &hash, 7), None, "nothing has landed");
        run.landed(&hash, &dir, name("a").as_name());
        assert_eq!(run.content(&disk, &hash, 7).as_deref(), Some(b"content".as_slice()));
        assert_eq!(run.content(&disk, &hash, 6), None);
        for other in [b"Content".as_slice(), b"conten", b"contents", b""] {
            std::fs::write(&at, other).unwrap();
            assert_eq!(run.content(&disk, &hash, 7), None, "{other:?}");
        }
        std::fs::remove_file(&at).unwrap();
        assert_eq!(run.content(&disk, &hash, 7), None);
        // It comes again, and lands elsewhere.
        std::fs::write(tmp.path().join("b"), b"content").unwrap();
        run.landed(&hash, &dir, name("b").as_name());
        assert!(run.content(&disk, &hash, 7).is_some());
    }

    #[test]
    fn signs_that_deceive_are_not_gone_by_for_ever() {
        let tmp = tempfile::tempdir().unwrap();
        let (disk, run, dir) = (Sys::new(), RunFiles::new(), dest(tmp.path()));
        std::fs::write(tmp.path().join("one.img"), b"one").unwrap();
        let expects = |file, size, called: &str| run.expects(file, size, name(called).as_name());
        assert!(!expects(1, 100, "one.img") && run.basis(&disk, 1).is_none());
        assert!(expects(2, 100, "x"), "the first one is on its way");
        assert!(run.basis(&disk, 2).is_none(), "and has not landed");
        run.landed_large(100, &dir, (name("one.img").as_name(), name("one.img").as_name()), None);
        (1..3).for_each(|file| assert_eq!(run.settled(file), 0));
        let tried = |file, size, called: &str, used| {
            let expected = expects(file, size, called);
            if let Some(basis) = run.basis(&disk, file) {
                assert!(expected, "{called}");
                basis.used.store(used, Relaxed);
            }
            assert_eq!(run.settled(file), 0, "nothing of an earlier run");
            expected
        };
        assert!(!tried(3, 1000, "other", 0), "nothing speaks for it");
        // By names, twice; what helped gives it back.
        assert!(tried(4, 90, "one-2.img", 0) && tried(5, 90, "one.img", 45));
        assert!(tried(6, 90, "one-2.img", 44) && tried(7, 90, "one.img", 0));
        assert!(!tried(8, 90, "one.img", 90));
        // By sizes four times.
        assert!((10..14).all(|file| tried(file, 100, "x", 0)));
        assert!(!tried(14, 100, "one.img", 0));
        assert_eq!(run.reused(), 45 + 44);
        assert!(!run.goes_by_names());
        let run = RunFiles::new();
        assert!(run.goes_by_names() && !run.expects(1, 100, name("one.img").as_name()));
        run.goes_by_name(1).store(70, Relaxed);
        assert_eq!((run.settled(1), run.reused(), run.goes_by_names()), (70, 0, true));
    }

    /// A client tells of what its server has sent, and of nothing that came there otherwise.
    #[test]
    fn what_was_written_to_is_not_what_landed() {
        let tmp = tempfile::tempdir().unwrap();
        let (disk, run, dir) = (Sys::new(), RunFiles::new(), dest(tmp.path()));
        let (at, content) = (tmp.path().join("one.img"), vec![7; 10_000]);
        std::fs::write(&at, &content).unwrap();
        let values = values_of(&std::fs::File::open(&at).unwrap().into()).unwrap();
        let one = name("one.img");
        run.landed_large(10_000, &dir, (one.as_name(), one.as_name()), Some(&values));
        assert!(run.expects(1, 10_000, one.as_name()));
        assert!(run.basis(&disk, 1).unwrap().is_what_landed());
        let mut other = content.clone();
        other[9_999] = 8;
        std::fs::write(&at, &other).unwrap();
        assert!(!run.basis(&disk, 1).unwrap().is_what_landed());
        run.landed_large(10_000, &dir, (one.as_name(), one.as_name()), None);
        assert!(!run.basis(&disk, 1).unwrap().is_what_landed(), "nothing is known of it");
    }
}
