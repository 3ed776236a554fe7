//! What things are called that have no final name yet, or help one to get there: stages, sessions, manifests and the
//! mark of an unfinished tree (S14).
//!
//! Must not touch any disk. Every such name is `.bcmr-`, 32 hexadecimal digits, 16 more that follow from those and from
//! the directory, and a suffix that says what it is (docs/decisions/0003). So a directory knows its own leftovers, a
//! copy of one elsewhere is a file like any other, and no source name is ever that of a stage that is in use.

use crate::error::Reason;
use fastcopy::dir::{Name, NameBuf};
use fastcopy::meta::Info;
use std::hash::{BuildHasher, Hasher, RandomState};

const PREFIX: &[u8] = b".bcmr-";
/// Digits that say which one it is.
const WHICH: usize = 32;
/// Digits that say of which directory.
const WHERE: usize = 16;

/// Why an entry of a source is not copied to a name.
pub(crate) const RESERVED: Reason = Reason::ReservedName;

/// What a name is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A file or directory being filled, by the holder of the directory's lock.
    Stage,
    /// The stage of a resumable copy; who has its session locked may use it.
    Part,
    /// Its session.
    Session,
    /// A manifest until it is whole; who has it locked may use it.
    Manifest,
    /// In a directory that an interrupted copy of one tree made: what the tree was.
    Tree,
    /// A tree that the shards of a plan fill, until the plan is finished. No run takes it away by itself.
    Plan,
}

const ROLES: [Role; 6] = [Role::Stage, Role::Part, Role::Session, Role::Manifest, Role::Tree, Role::Plan];

impl Role {
    /// What its names end with.
    pub(crate) fn suffix(self) -> &'static [u8] {
        match self {
            Role::Stage => b".stage",
            Role::Part => b".part",
            Role::Session => b".session",
            Role::Manifest => b".manifest",
            Role::Tree => b".tree",
            Role::Plan => b".plan",
        }
    }
}

/// The directory that names are made for, as it is known again by a later run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    number: u64,
    btime: u64,
}

impl Home {
    /// The directory with this `info`, born then. `lasting`: its file system keeps both from mount to mount; where it
    /// does not, all its directories are one home.
    pub(crate) fn of(info: &Info, btime: u64, lasting: bool) -> Home {
        if lasting { Home { number: info.ino, btime } } else { Home { number: 0, btime: 0 } }
    }

    /// A name for a stage that nothing has and nothing else will get. For the holder of the directory's lock: what a
    /// later holder meets under such a name is stale.
    pub(crate) fn stage(&self) -> Option<NameBuf> {
        self.named(&format!("{:032x}", random_number()), Role::Stage)
    }

    /// The stage of a resumable copy that becomes `name`.
    pub(crate) fn part(&self, name: Name<'_>) -> Option<NameBuf> {
        self.named(&digits_of(name.bytes()), Role::Part)
    }

    /// Its session.
    pub(crate) fn session(&self, name: Name<'_>) -> Option<NameBuf> {
        self.named(&digits_of(name.bytes()), Role::Session)
    }

    /// What the manifest `name` is called until it is whole.
    pub(crate) fn manifest(&self, name: Name<'_>) -> Option<NameBuf> {
        self.named(&digits_of(name.bytes()), Role::Manifest)
    }

    /// The mark of a tree in this directory.
    pub(crate) fn tree(&self) -> Option<NameBuf> {
        self.named(&digits_of(b""), Role::Tree)
    }

    /// The tree that the shards of a plan fill, which is known by this.
    pub(crate) fn plan(&self, of: &[u8]) -> Option<NameBuf> {
        self.named(&digits_of(of), Role::Plan)
    }

    /// What goes with `ours` in another role: a session's stage, a stage's session.
    pub(crate) fn beside(&self, ours: Name<'_>, role: Role) -> Option<NameBuf> {
        let which = ours.bytes().strip_prefix(PREFIX)?.get(..WHICH)?;
        self.named(std::str::from_utf8(which).ok()?, role)
    }

    /// What a name in this directory is for, if it is one of those above: nothing but this program's own leftovers has
    /// one. What [`random`] makes is not among them, as it may be work under way.
    pub(crate) fn role(&self, name: Name<'_>) -> Option<Role> {
        let folded = is_alike(name).then(|| name.bytes().to_ascii_lowercase())?;
        let rest = folded.get(PREFIX.len()..)?;
        let (digits, suffix) = rest.split_at_checked(WHICH + WHERE)?;
        let role = ROLES.into_iter().find(|role| role.suffix() == suffix)?;
        let (which, place) = digits.split_at_checked(WHICH)?;
        let hex = which.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let which = std::str::from_utf8(which).ok().filter(|_| hex)?;
        (self.place(which, role).as_bytes() == place).then_some(role)
    }

    fn named(&self, which: &str, role: Role) -> Option<NameBuf> {
        let place = self.place(which, role);
        NameBuf::new(&[PREFIX, which.as_bytes(), place.as_bytes(), role.suffix()].concat())
    }

    /// The digits that say which directory the others are of.
    fn place(&self, which: &str, role: Role) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"bcmr");
        hasher.update(which.as_bytes());
        hasher.update(&self.number.to_le_bytes());
        hasher.update(&self.btime.to_le_bytes());
        hasher.update(role.suffix());
        let mut text = hasher.finalize().to_hex().to_string();
        text.truncate(WHERE);
        text
    }
}

/// Whether a name may have a role in some directory. Names are taken as a file system that folds them does.
pub(crate) fn is_alike(name: Name<'_>) -> bool {
    name.bytes().get(..PREFIX.len()).is_some_and(|head| head.eq_ignore_ascii_case(PREFIX))
}

fn digits_of(name: &[u8]) -> String {
    let mut text = blake3::hash(name).to_hex().to_string();
    text.truncate(WHICH);
    text
}

/// A number that no other process draws.
pub(crate) fn random_number() -> u128 {
    // `RandomState` is keyed from the system's randomness, once a thread, and with a new key for every call.
    let word = |salt: u8| {
        let mut h = RandomState::new().build_hasher();
        h.write_u8(salt);
        h.finish()
    };
    u128::from(word(0)) << 64 | u128::from(word(1))
}

/// A stage's name for those without the lock of the directory: no run can tell such a stage from work under way, so
/// no run removes it.
pub(crate) fn random() -> Option<NameBuf> {
    numbered(random_number())
}

/// The name of [`random`] that has this number, which another process may be told.
pub(crate) fn numbered(number: u128) -> Option<NameBuf> {
    NameBuf::new(&[PREFIX, b"r-", format!("{number:032x}").as_bytes(), Role::Stage.suffix()].concat())
}

/// Whether a name is one that [`random`] made.
pub(crate) fn is_random(name: Name<'_>) -> bool {
    let digits = name.bytes().strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix(b"r-"));
    let digits = digits.and_then(|rest| rest.strip_suffix(Role::Stage.suffix()));
    digits.is_some_and(|d| d.len() == WHICH && d.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
}

/// Whether a name that one of the above has made is that of a resumable copy's stage.
pub(crate) fn is_part(name: Name<'_>) -> bool {
    name.bytes().starts_with(PREFIX) && name.bytes().ends_with(Role::Part.suffix())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn home(number: u64, btime: u64) -> Home {
        Home { number, btime }
    }

    fn all(home: &Home, name: &NameBuf) -> [(Role, NameBuf); 6] {
        let name = name.as_name();
        [
            (Role::Stage, home.stage().unwrap()),
            (Role::Part, home.part(name).unwrap()),
            (Role::Session, home.session(name).unwrap()),
            (Role::Manifest, home.manifest(name).unwrap()),
            (Role::Tree, home.tree().unwrap()),
            (Role::Plan, home.plan(name.bytes()).unwrap()),
        ]
    }

    #[test]
    fn names_are_known_in_their_own_directory_and_nowhere_else() {
        let name = NameBuf::new(&[b'n'; 255]).unwrap();
        let here = home(12, 34);
        for (role, ours) in all(&here, &name) {
            assert!(ours.bytes().len() < 64, "fits where a 255-byte name fits");
            assert_eq!(here.role(ours.as_name()), Some(role));
            // The number alone would do for one mount, the birth alone for directories born apart.
            for elsewhere in [home(13, 34), home(12, 35), home(0, 0)] {
                assert_eq!(elsewhere.role(ours.as_name()), None, "{role:?}");
            }
            for at in 0..ours.bytes().len() {
                let mut other = ours.bytes().to_vec();
                other[at] = if other[at] == b'0' { b'1' } else { b'0' };
                assert_eq!(here.role(NameBuf::new(&other).unwrap().as_name()), None, "byte {at}");
            }
        }
        for other in [name, random().unwrap(), NameBuf::new(b".bcmr-").unwrap()] {
            assert_eq!(here.role(other.as_name()), None);
        }
    }

    #[test]
    fn a_stage_never_has_one_name_twice_and_the_others_always_do() {
        let name = NameBuf::new(b"n").unwrap();
        let here = home(1, 2);
        let stages: HashSet<NameBuf> = (0..10_000).map(|_| here.stage().unwrap()).collect();
        assert_eq!(stages.len(), 10_000);
        assert_ne!(random(), random());
        assert!(is_random(random().unwrap().as_name()) && !is_random(here.stage().unwrap().as_name()));
        assert_eq!(all(&here, &name)[1..], all(&here, &name)[1..]);
        let other = NameBuf::new(b"m").unwrap();
        assert_ne!(here.part(name.as_name()), here.part(other.as_name()));
    }

    #[test]
    fn a_session_and_its_stage_find_each_other() {
        let name = NameBuf::new(b"film").unwrap();
        let here = home(1, 2);
        let (part, session) = (here.part(name.as_name()).unwrap(), here.session(name.as_name()).unwrap());
        assert_eq!(here.beside(session.as_name(), Role::Part), Some(part.clone()));
        assert_eq!(here.beside(part.as_name(), Role::Session), Some(session));
    }
}
