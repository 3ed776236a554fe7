//! The bits and choices of a policy as they travel. The engine's `CopyPolicy` is made from them and written as them.
//!
//! Must not know what any of it does. What belongs to a machine and not to the copy (threads, the user, the umask) does
//! not travel.

use crate::field::{Refused, Why, must};
use crate::message::Policy;

/// `[policy.flags]`
pub mod flags {
    /// Directories are copied with what is in them.
    pub const RECURSIVE: u64 = 1 << 0;
    /// Permission bits are kept.
    pub const KEEP_MODE: u64 = 1 << 1;
    /// User and group are kept.
    pub const KEEP_OWNER: u64 = 1 << 2;
    /// Times are kept.
    pub const KEEP_TIMES: u64 = 1 << 3;
    /// Hard links stay hard links.
    pub const KEEP_LINKS: u64 = 1 << 4;
    /// Extended attributes are kept.
    pub const KEEP_XATTR: u64 = 1 << 5;
    /// ACLs are kept.
    pub const KEEP_ACL: u64 = 1 << 6;
    /// Whatever of the metadata could not be kept is told, and not only what `cp -p` tells.
    pub const STRICT: u64 = 1 << 7;
    /// FIFOs, sockets and devices are made anew.
    pub const SPECIALS: u64 = 1 << 8;
    /// What is in the way and cannot be opened is removed first.
    pub const FORCE: u64 = 1 << 9;
    /// The hash of every file is wanted as an event.
    pub const HASHES: u64 = 1 << 10;
    /// Other file systems are not entered.
    pub const ONE_FILE_SYSTEM: u64 = 1 << 11;
    /// `.gitignore` files in the source count.
    pub const GITIGNORE: u64 = 1 << 12;
    /// Nothing is changed.
    pub const DRY_RUN: u64 = 1 << 13;
    /// No hashes of what is sent.
    pub const FAST: u64 = 1 << 14;
    /// The store of blocks may be used.
    pub const DEDUP: u64 = 1 << 15;
    /// With `DRY_RUN`: differences are told, and not what a copy would do; with `HASHES`, by content too.
    pub const COMPARE: u64 = 1 << 16;
    /// With `COMPARE`: what only the destination has is a difference.
    pub const EXTRA: u64 = 1 << 17;
    /// With `COMPARE`: by size and time alone, nothing is read.
    pub const QUICK: u64 = 1 << 18;
    /// A symbolic link at the destination's name is followed, whatever put it there.
    pub const FOLLOW_DESTINATION: u64 = 1 << 19;

    /// Attributes of what looks the same are brought up to date, and kinds follow the source.
    pub const MIRROR: u64 = 1 << 20;
    /// The same, and what only the destination has is deleted in the end.
    pub const MIRROR_DELETE: u64 = 1 << 21;
    /// The same, with what the filter leaves out.
    pub const MIRROR_DELETE_EXCLUDED: u64 = 1 << 22;

    /// In a `Get`: nothing had the name that the one source will get when the client looked, so what is in it will be wanted.
    pub const TARGET_ABSENT: u64 = 1 << 23;

    /// `.bcmrignore` files in the source count.
    pub const BCMRIGNORE: u64 = 1 << 24;
    /// Directories above the destination that are missing are made.
    pub const MAKE_PATH: u64 = 1 << 25;
    /// The sender takes away what the receiver says it may (a move).
    pub const TAKE_AWAY: u64 = 1 << 27;
    /// The same, and a directory may be merged into one that holds something.
    pub const TAKE_AWAY_MERGING: u64 = 1 << 28;

    /// With `COMPARE`: each difference says what both sides are like.
    pub const ALIKE: u64 = 1 << 26;

    /// Owner, mode and kind of the source's files are what their attribute says.
    pub const HELD_AT_SOURCE: u64 = 1 << 29;
    /// The destination's files hold theirs in an attribute.
    pub const HELD_AT_DEST: u64 = 1 << 30;

    /// With `COMPARE` and a mirror that deletes: what only the destination has is deleted once all was shown, and nothing is told of
    /// the look.
    pub const DELETE_FIRST: u64 = 1 << 31;

    /// All of them.
    pub const ALL: u64 = (1 << 32) - 1;
}

/// `[remove.flags]`
pub mod remove {
    /// A directory goes with what is in it.
    pub const RECURSIVE: u8 = 1;
    /// An empty directory goes.
    pub const EMPTY_DIRS: u8 = 2;
    /// What is not there is no error.
    pub const FORCE: u8 = 4;
    /// Other file systems below are entered.
    pub const CROSS_FILE_SYSTEMS: u8 = 8;
    /// All of them.
    pub const ALL: u8 = 15;
}

/// `[undo.flags]`
pub mod undo {
    /// Nothing is changed.
    pub const DRY_RUN: u8 = 1;
    /// Every item is reported.
    pub const ITEMS: u8 = 2;
    /// All of them.
    pub const ALL: u8 = 3;
}

/// The places of `[policy.choices]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Choice {
    /// See [`follow`].
    Follow = 0,
    /// See [`collide`].
    Collide = 1,
    /// See [`landing`].
    Landing = 2,
    /// See [`reflink`].
    Reflink = 3,
    /// See [`sparse`].
    Sparse = 4,
    /// See [`verify`].
    Verify = 5,
    /// See [`durability`].
    Durability = 6,
    /// See [`resume`].
    Resume = 7,
}

/// How many values each place has, in the order of [`Choice`].
const VALUES: [u8; 8] = [
    follow::COUNT,
    collide::COUNT,
    landing::COUNT,
    reflink::COUNT,
    sparse::COUNT,
    verify::COUNT,
    durability::COUNT,
    resume::COUNT,
];

/// One module per choice: its values, counted from 0, and how many there are.
macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $value:ident = $number:literal,)* })*) => { $(
        $(#[$doc])*
        pub mod $name {
            $($(#[$about])* pub const $value: u8 = $number;)*
            pub(crate) const COUNT: u8 = [$($number),*].len() as u8;
        }
    )* };
}

choices! {
    /// Which symbolic links in the source are followed.
    follow {
        /// None.
        NEVER = 0,
        /// Those that are operands.
        OPERANDS = 1,
        /// All.
        ALWAYS = 2,
    }
    /// What happens to a name that is already there.
    collide {
        /// Replaced.
        REPLACE = 0,
        /// Left alone.
        KEEP = 1,
        /// Replaced when the source is newer.
        IF_OLDER = 2,
        /// Left alone when size and mtime agree.
        IF_DIFFERENT = 3,
        /// The user is asked.
        ASK = 4,
        /// Left alone when size and content agree.
        IF_CONTENT_DIFFERS = 5,
    }
    /// How new content gets its name.
    landing {
        /// Staged and renamed.
        ATOMIC = 0,
        /// Written into what is there.
        IN_PLACE = 1,
    }
    /// Cloning.
    reflink {
        /// Where it can be done.
        AUTO = 0,
        /// Or fail.
        ALWAYS = 1,
        /// Never.
        NEVER = 2,
    }
    /// Holes.
    sparse {
        /// Stay holes.
        AUTO = 0,
        /// Are made of zeros too.
        ALWAYS = 1,
        /// Are written out.
        NEVER = 2,
    }
    /// Reading back.
    verify {
        /// No.
        OFF = 0,
        /// Before the name appears.
        CACHED = 1,
        /// The same, from the device.
        DIRECT = 2,
    }
    /// Durability of what is told as done.
    durability {
        /// As the kernel likes.
        CACHE = 0,
        /// On the medium.
        MEDIUM = 1,
    }
    /// Going on where an interrupted run stopped.
    resume {
        /// No.
        OFF = 0,
        /// Proved meanwhile.
        PROVED = 1,
        /// Without the proof.
        FAST = 2,
        /// Proved first.
        STRICT = 3,
        /// By length, into the visible file.
        APPEND = 4,
        /// The same, once what is there is proved to be the source's beginning.
        APPEND_PROVED = 5,
    }
}

/// How many actions an item may have had done to it, in the order of the engine's `Action`: copied, directory made, link
/// made, hard-linked, special file made, renamed, removed, kept, excluded, attributes updated.
pub const ACTIONS: u8 = 10;

/// How many kinds of difference there are, in the order of the engine's `Change`: only the source has it, only the
/// destination has it, both have it.
pub const CHANGES: u8 = 3;

impl Policy<'_> {
    /// The value at one place.
    #[must_use]
    pub fn choice(&self, choice: Choice) -> u8 {
        self.choices[choice as usize]
    }

    /// Whether all these bits of [`flags`] are set.
    #[must_use]
    pub fn has(&self, flags: u64) -> bool {
        self.flags & flags == flags
    }
}

/// Refuses what is not known: it may be a guarantee, and a guarantee must not be dropped.
pub(crate) fn check(flags: u64, choices: [u8; 8]) -> Result<(), Refused> {
    // [policy.strict]
    must(flags & !flags::ALL == 0, "policy.flags", Why::Unknown)?;
    let compares = flags & (flags::COMPARE | flags::DRY_RUN) == flags::COMPARE | flags::DRY_RUN;
    must(
        flags & (flags::COMPARE | flags::EXTRA | flags::QUICK | flags::ALIKE) == 0 || compares,
        "policy.flags",
        Why::Contradiction,
    )?;
    let deletes = flags & (flags::MIRROR_DELETE | flags::MIRROR_DELETE_EXCLUDED) != 0;
    must(flags & flags::DELETE_FIRST == 0 || compares && deletes, "policy.flags", Why::Contradiction)?;
    let known = choices.iter().zip(VALUES).all(|(choice, count)| *choice < count);
    must(known, "policy.choices", Why::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_bit_passes_and_no_other() {
        for bit in 0..64 {
            assert_eq!(
                check(1 << bit, [0; 8]).is_ok(),
                bit < 16 || matches!(bit, 19..=25 | 27..=30),
                "bit {bit}"
            );
        }
        // A comparison changes nothing, also at a peer that does not know what it is.
        use flags::{ALIKE, COMPARE, DRY_RUN, EXTRA, QUICK};
        assert!(check(ALIKE | DRY_RUN, [0; 8]).is_err() && check(ALIKE | COMPARE | DRY_RUN, [0; 8]).is_ok());
        assert!(check(COMPARE | DRY_RUN, [0; 8]).is_ok() && check(COMPARE | EXTRA | DRY_RUN, [0; 8]).is_ok());
        assert!(check(QUICK | DRY_RUN, [0; 8]).is_err() && check(QUICK | COMPARE | DRY_RUN, [0; 8]).is_ok());
        assert!(check(EXTRA | DRY_RUN, [0; 8]).is_err() && check(COMPARE | EXTRA, [0; 8]).is_err());
        // Nor does one delete that is not for a mirror.
        use flags::{DELETE_FIRST, MIRROR, MIRROR_DELETE};
        let looks = DELETE_FIRST | COMPARE | DRY_RUN;
        assert!(check(looks | MIRROR_DELETE, [0; 8]).is_ok() && check(looks | MIRROR, [0; 8]).is_err());
        assert!(check(DELETE_FIRST | MIRROR_DELETE | DRY_RUN, [0; 8]).is_err());
        assert!(check(DELETE_FIRST | MIRROR_DELETE, [0; 8]).is_err());
    }

    #[test]
    fn every_known_value_passes_and_no_other() {
        let last = [
            follow::ALWAYS,
            collide::IF_CONTENT_DIFFERS,
            landing::IN_PLACE,
            reflink::NEVER,
            sparse::NEVER,
            verify::DIRECT,
            durability::MEDIUM,
            resume::APPEND_PROVED,
        ];
        assert_eq!(check(0, last), Ok(()));
        for place in 0..8 {
            let mut choices = last;
            choices[place] += 1;
            assert!(check(0, choices).is_err(), "place {place}");
        }
    }

    #[test]
    fn flags_do_not_share_a_bit() {
        use flags::*;
        let all = [
            RECURSIVE,
            KEEP_MODE,
            KEEP_OWNER,
            KEEP_TIMES,
            KEEP_LINKS,
            KEEP_XATTR,
            KEEP_ACL,
            STRICT,
            SPECIALS,
            FORCE,
            HASHES,
            ONE_FILE_SYSTEM,
            GITIGNORE,
            DRY_RUN,
            FAST,
            DEDUP,
            COMPARE,
            EXTRA,
            QUICK,
            FOLLOW_DESTINATION,
            MIRROR,
            MIRROR_DELETE,
            MIRROR_DELETE_EXCLUDED,
            TARGET_ABSENT,
            BCMRIGNORE,
            MAKE_PATH,
            ALIKE,
            TAKE_AWAY,
            TAKE_AWAY_MERGING,
            HELD_AT_SOURCE,
            HELD_AT_DEST,
            DELETE_FIRST,
        ];
        assert_eq!(all.iter().sum::<u64>(), ALL);
        assert!(all.iter().all(|flag| flag.count_ones() == 1));
    }
}
