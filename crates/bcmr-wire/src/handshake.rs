//! Versions and capabilities: what two sides that have greeted each other may do. Pure.
//!
//! Must not know how a greeting travels, nor who asked for what; a guarantee that was asked for arrives as a bit.

use crate::code::NO_COMMON_VERSION;
use crate::message::{AtOnce, Hash, Hello, Policy, Wide};
use crate::policy::{self, Choice};
use std::fmt;

/// The version spoken here.
// [hello.version]
pub const VERSION: u16 = 2;

/// Capabilities of the first byte.
pub mod caps {
    /// Contents packed with LZ4.
    pub const LZ4: u8 = 0x01;
    /// Contents packed with Zstandard.
    pub const ZSTD: u8 = 0x02;
    /// A store of blocks.
    pub const DEDUP: u8 = 0x04;
    /// Transfers without hashes.
    pub const FAST: u8 = 0x08;
    /// What is told as landed is on the medium.
    pub const SYNC: u8 = 0x10;
    /// The direct data plane.
    pub const DIRECT: u8 = 0x20;
    /// Its sealing; without it there is no direct data plane.
    pub const AEAD: u8 = 0x40;
    /// The wider set follows.
    pub const WIDE: u8 = 0x80;
}

/// Capabilities of the wider set.
pub mod wide {
    /// Everything in section 5 of the document.
    pub const TREES: u64 = 0x1;
    /// Several connections of one peer.
    pub const JOIN: u64 = 0x2;
    /// Extended attributes and ACLs.
    pub const ATTRIBUTES: u64 = 0x4;
    /// Going on where an interrupted run stopped.
    pub const RESUME: u64 = 0x8;
    /// Reading back what landed.
    pub const VERIFY: u64 = 0x10;
    /// Holes stay holes.
    pub const HOLES: u64 = 0x20;
    /// Saying what a copy would do, or would change, without doing it.
    pub const SURVEY: u64 = 0x40;
    /// The hash of every file that landed, for the sender.
    pub const HASHED: u64 = 0x80;
    /// Lists of names that are longer than one message.
    pub const LISTS: u64 = 0x100;
    /// A comparison reads what has another time, and says how it compared.
    pub const COMPARED: u64 = 0x200;
    /// A sum that lacks something is told beside what it lacks.
    pub const PARTIAL: u64 = 0x400;
    /// Removing what is named.
    pub const REMOVE: u64 = 0x800;
    /// Pieces that are made of what the receiver has of an older version.
    pub const DELTA: u64 = 0x1000;
    /// Entries of a batch in columns, packed.
    pub const PACKED: u64 = 0x2000;
    /// Small files of which the receiver has parts, or all.
    pub const PARTS: u64 = 0x4000;
    /// Snapshots, earlier copies and what is kept, at the receiver; and it says what went.
    pub const KEEPING: u64 = 0x8000;
    /// The sender names what only it knows to be left out.
    pub const LEFT_OUT: u64 = 0x1_0000;
    /// Owners are known by their names where both sides have them.
    pub const NAMES: u64 = 0x2_0000;
    /// Trees without a name that shards of plans fill.
    pub const PLANS: u64 = 0x4_0000;
    /// A comparison for a mirror plans what would be deleted as the mirror does, and says what both sides are like.
    pub const PLANNED: u64 = 0x8_0000;
    /// Undoing what a receipt says.
    pub const UNDO: u64 = 0x10_0000;
    /// The sender takes away what the receiver has for good.
    pub const TAKES: u64 = 0x20_0000;
    /// A client that receives has a store of blocks and may be asked about them.
    pub const STORES: u64 = 0x40_0000;
    /// What only root can set, in an attribute of either side.
    pub const HELD: u64 = 0x80_0000;
    /// Of a content that came before in the same transfer its hash is enough.
    pub const REPEATS: u64 = 0x100_0000;
    /// What only the receiver has goes before anything is sent.
    pub const FIRST: u64 = 0x200_0000;
    /// ACLs are held as well.
    pub const HELD_ACLS: u64 = 0x400_0000;
    /// Names that a client knows are compared in rounds: directories by themselves, and what is in them only as far as it is named.
    pub const ROUNDS: u64 = 0x800_0000;
    /// In a `Hello`: it holds a `Get`. In a `Welcome`: that is served, and this is the first word of the answer.
    pub const AT_ONCE: u64 = 0x1000_0000;
    /// Pieces that follow one another may be one Zstandard frame.
    pub const FRAMES: u64 = 0x2000_0000;
}

/// What each bit is called, for the message that one is missing.
const NAMES: [(Features, &str); 37] = [
    (Features { caps: caps::LZ4, wide: 0 }, "lz4"),
    (Features { caps: caps::ZSTD, wide: 0 }, "zstd"),
    (Features { caps: caps::DEDUP, wide: 0 }, "dedup"),
    (Features { caps: caps::FAST, wide: 0 }, "fast"),
    (Features { caps: caps::SYNC, wide: 0 }, "sync"),
    (Features { caps: caps::DIRECT, wide: 0 }, "direct"),
    (Features { caps: caps::AEAD, wide: 0 }, "aead"),
    (Features { caps: 0, wide: wide::TREES }, "trees"),
    (Features { caps: 0, wide: wide::JOIN }, "join"),
    (Features { caps: 0, wide: wide::ATTRIBUTES }, "attributes"),
    (Features { caps: 0, wide: wide::RESUME }, "resume"),
    (Features { caps: 0, wide: wide::VERIFY }, "verify"),
    (Features { caps: 0, wide: wide::HOLES }, "holes"),
    (Features { caps: 0, wide: wide::SURVEY }, "survey"),
    (Features { caps: 0, wide: wide::HASHED }, "hashed"),
    (Features { caps: 0, wide: wide::LISTS }, "lists"),
    (Features { caps: 0, wide: wide::COMPARED }, "compared"),
    (Features { caps: 0, wide: wide::PARTIAL }, "partial"),
    (Features { caps: 0, wide: wide::REMOVE }, "remove"),
    (Features { caps: 0, wide: wide::DELTA }, "delta"),
    (Features { caps: 0, wide: wide::PACKED }, "packed"),
    (Features { caps: 0, wide: wide::PARTS }, "parts"),
    (Features { caps: 0, wide: wide::KEEPING }, "keeping"),
    (Features { caps: 0, wide: wide::LEFT_OUT }, "left-out"),
    (Features { caps: 0, wide: wide::NAMES }, "names"),
    (Features { caps: 0, wide: wide::PLANS }, "plans"),
    (Features { caps: 0, wide: wide::PLANNED }, "planned"),
    (Features { caps: 0, wide: wide::UNDO }, "undo"),
    (Features { caps: 0, wide: wide::TAKES }, "takes"),
    (Features { caps: 0, wide: wide::STORES }, "stores"),
    (Features { caps: 0, wide: wide::HELD }, "held"),
    (Features { caps: 0, wide: wide::REPEATS }, "repeats"),
    (Features { caps: 0, wide: wide::FIRST }, "first"),
    (Features { caps: 0, wide: wide::HELD_ACLS }, "held-acls"),
    (Features { caps: 0, wide: wide::ROUNDS }, "rounds"),
    (Features { caps: 0, wide: wide::AT_ONCE }, "at-once"),
    (Features { caps: 0, wide: wide::FRAMES }, "frames"),
];

/// A set of capabilities. [`caps::WIDE`] is not one: it says how the set is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Of [`caps`], without [`caps::WIDE`].
    pub caps: u8,
    /// Of [`wide`].
    pub wide: u64,
}

impl Features {
    /// None.
    pub const NONE: Features = Features { caps: 0, wide: 0 };

    /// What a greeting names. A peer that sends no byte of capabilities has none.
    #[must_use]
    pub fn of(hello: &Hello<'_>) -> Features {
        // [hello.caps]
        Features { caps: hello.caps & !caps::WIDE, wide: hello.wide.as_ref().map_or(0, |wide| wide.bits) }
    }

    /// What both have. A bit that one side has never heard of falls away here.
    #[must_use]
    pub fn and(self, other: Features) -> Features {
        Features { caps: self.caps & other.caps, wide: self.wide & other.wide }
    }

    /// What either has.
    #[must_use]
    pub fn or(self, other: Features) -> Features {
        Features { caps: self.caps | other.caps, wide: self.wide | other.wide }
    }

    /// What this has and the other has not.
    #[must_use]
    pub fn without(self, other: Features) -> Features {
        Features { caps: self.caps & !other.caps, wide: self.wide & !other.wide }
    }

    /// Whether all of the other are in it.
    #[must_use]
    pub fn has(self, other: Features) -> bool {
        other.without(self) == Features::NONE
    }

    /// Whether a bit of [`caps`] is in it.
    #[must_use]
    pub fn has_cap(self, cap: u8) -> bool {
        self.caps & cap == cap
    }

    /// Whether a bit of [`wide`] is in it.
    #[must_use]
    pub fn has_wide(self, bit: u64) -> bool {
        self.wide & bit == bit
    }

    /// The names of those that have one.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES.iter().filter(move |(one, _)| self.has(*one)).map(|(_, name)| *name)
    }

    /// Without a direct data plane, which would not be sealed.
    fn sound(self) -> Features {
        if self.has_cap(caps::AEAD) { self } else { Features { caps: self.caps & !caps::DIRECT, ..self } }
    }
}

/// What a copy with this policy must be able to rely on: guarantees, and not what is only faster.
#[must_use]
pub fn guarantees(policy: &Policy<'_>) -> Features {
    // [hello.guarantee]
    let kept = policy::flags::KEEP_XATTR | policy::flags::KEEP_ACL;
    let deletes = policy::flags::MIRROR_DELETE | policy::flags::MIRROR_DELETE_EXCLUDED;
    let takes = policy::flags::TAKE_AWAY | policy::flags::TAKE_AWAY_MERGING;
    let held = policy::flags::HELD_AT_SOURCE | policy::flags::HELD_AT_DEST;
    let rows: [(bool, Features); 13] = [
        (true, Features { caps: 0, wide: wide::TREES }),
        (
            policy.choice(Choice::Durability) != policy::durability::CACHE,
            Features { caps: caps::SYNC, wide: 0 },
        ),
        (policy.choice(Choice::Resume) != policy::resume::OFF, Features { caps: 0, wide: wide::RESUME }),
        (policy.choice(Choice::Verify) != policy::verify::OFF, Features { caps: 0, wide: wide::VERIFY }),
        (policy.flags & kept != 0, Features { caps: 0, wide: wide::ATTRIBUTES }),
        (policy.has(policy::flags::DRY_RUN), Features { caps: 0, wide: wide::SURVEY }),
        (policy.has(policy::flags::HASHES), Features { caps: 0, wide: wide::HASHED }),
        (policy.has(policy::flags::COMPARE), Features { caps: 0, wide: wide::COMPARED }),
        (
            policy.has(policy::flags::COMPARE) && policy.flags & (deletes | policy::flags::ALIKE) != 0,
            Features { caps: 0, wide: wide::PLANNED },
        ),
        (policy.flags & takes != 0, Features { caps: 0, wide: wide::TAKES }),
        (policy.flags & held != 0, Features { caps: 0, wide: wide::HELD }),
        (
            policy.flags & held != 0 && policy.has(policy::flags::KEEP_ACL),
            Features { caps: 0, wide: wide::HELD_ACLS },
        ),
        (policy.has(policy::flags::DELETE_FIRST), Features { caps: 0, wide: wide::FIRST }),
    ];
    rows.iter().filter(|(needed, _)| *needed).fold(Features::NONE, |all, (_, one)| all.or(*one))
}

/// A greeting with all of `ours`, and a `Get` where there is one.
#[must_use]
pub fn hello<'a>(ours: Features, nonce: Hash, agent: &'a [u8], at_once: Option<AtOnce<'a>>) -> Hello<'a> {
    let ours = ours.sound();
    let bits = match at_once {
        Some(_) => ours.wide | wide::AT_ONCE,
        None => ours.wide & !wide::AT_ONCE,
    };
    Hello { version: VERSION, caps: ours.caps | caps::WIDE, wide: Some(Wide { bits, nonce, agent, at_once }) }
}

/// Why there is no agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsettled {
    /// The other side speaks this version.
    Version(u16),
    /// The server claims what it was not offered: it does not know the rules, or an attacker changed a greeting.
    NotOffered(Features),
    /// The client's user asked for a guarantee that the server does not give.
    Missing(Features),
}

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |features: Features| features.names().collect::<Vec<_>>().join(", ");
        match self {
            Unsettled::Version(theirs) => {
                write!(f, "the other side speaks version {theirs}, this one {VERSION}")
            }
            Unsettled::NotOffered(what) => {
                write!(f, "the server claims what it was not offered: {}", list(*what))
            }
            Unsettled::Missing(what) => write!(f, "the server does not give: {}", list(*what)),
        }
    }
}

impl std::error::Error for Unsettled {}

/// The server's answer to `theirs`: what both have. The same set holds for the connection, [`Features::of`] it.
pub fn welcome<'a>(
    ours: Features,
    nonce: Hash,
    agent: &'a [u8],
    theirs: &Hello<'_>,
) -> Result<Hello<'a>, Unsettled> {
    if theirs.version != VERSION {
        return Err(Unsettled::Version(theirs.version));
    }
    let both = ours.and(Features::of(theirs)).sound();
    // A client that knows no wider set is not answered with one.
    if theirs.wide.is_none() {
        return Ok(Hello { version: VERSION, caps: both.caps, wide: None });
    }
    Ok(Hello {
        version: VERSION,
        caps: both.caps | caps::WIDE,
        wide: Some(Wide { bits: both.wide, nonce, agent, at_once: None }),
    })
}

/// What holds after the server's answer to a greeting with `ours`, provided that everything `required` is among it.
pub fn settle(ours: Features, required: Features, welcome: &Hello<'_>) -> Result<Features, Unsettled> {
    if welcome.version != VERSION {
        return Err(Unsettled::Version(welcome.version));
    }
    let theirs = Features::of(welcome);
    let ours = ours.sound();
    if !ours.has(theirs) {
        return Err(Unsettled::NotOffered(theirs.without(ours)));
    }
    let agreed = theirs.sound();
    // [hello.guarantee] Before anything is changed, and never silently off.
    if !agreed.has(required) {
        return Err(Unsettled::Missing(required.without(agreed)));
    }
    Ok(agreed)
}

/// Whether an `Error` that answers a greeting refuses its version: its code stands in front in every version, and what
/// follows may be of another one.
// [hello.version]
#[must_use]
pub fn refuses_version(error: &[u8]) -> bool {
    error.starts_with(&NO_COMMON_VERSION.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bare(version: u16, caps: u8) -> Hello<'static> {
        Hello { version, caps, wide: None }
    }

    fn set(caps: u8, wide: u64) -> Features {
        Features { caps, wide }
    }

    /// Ours, what the server has, what is required; what holds.
    #[test]
    fn both_sides_come_to_the_same_set_or_to_none() {
        let full = set(0x7f, 0x3f);
        type Row = (&'static str, Features, Features, Features, Result<Features, Unsettled>);
        let table: [Row; 9] = [
            ("all", full, full, full, Ok(full)),
            ("nothing", Features::NONE, full, Features::NONE, Ok(Features::NONE)),
            ("only what both have", set(0x03, 0x5), set(0x06, 0x6), Features::NONE, Ok(set(0x02, 0x4))),
            ("faster falls away", full, set(0, 0x1), set(0, 0x1), Ok(set(0, 0x1))),
            (
                "a guarantee does not",
                full,
                set(0x0f, 0x3f),
                set(caps::SYNC, 0),
                Err(Unsettled::Missing(set(caps::SYNC, 0))),
            ),
            (
                "nor one of the wider set",
                full,
                set(0x7f, 0x2f),
                set(0, wide::VERIFY | wide::TREES),
                Err(Unsettled::Missing(set(0, wide::VERIFY))),
            ),
            (
                "what one does not have oneself is missing too",
                set(0, 1),
                full,
                set(caps::SYNC, 0),
                Err(Unsettled::Missing(set(caps::SYNC, 0))),
            ),
            ("direct needs its seal here", set(caps::DIRECT, 0), full, Features::NONE, Ok(Features::NONE)),
            ("and there", full, set(caps::DIRECT, 0x1), set(0, 0x1), Ok(set(0, 0x1))),
        ];
        for (name, client, server, required, expected) in table {
            let answer = welcome(server, [2; 32], b"s", &hello(client, [1; 32], b"c", None)).unwrap();
            assert_eq!(settle(client, required, &answer), expected, "{name}");
            if let Ok(agreed) = expected {
                assert_eq!(Features::of(&answer), agreed, "{name}: the server holds the same");
            }
        }
    }

    #[test]
    fn a_version_is_an_answer_of_its_own() {
        for version in [0, 1, VERSION + 1, u16::MAX] {
            let theirs = bare(version, 0x7f);
            assert_eq!(welcome(Features::NONE, [0; 32], b"", &theirs), Err(Unsettled::Version(version)));
            assert_eq!(settle(Features::NONE, Features::NONE, &theirs), Err(Unsettled::Version(version)));
        }
    }

    #[test]
    fn a_peer_without_the_wider_set_is_answered_without_it() {
        let answer = welcome(set(0x7f, 0x3f), [0; 32], b"s", &bare(VERSION, caps::LZ4)).unwrap();
        assert_eq!(answer, bare(VERSION, caps::LZ4));
        let answer = welcome(set(0x7f, 0x3f), [0; 32], b"s", &bare(VERSION, 0)).unwrap();
        assert_eq!(Features::of(&answer), Features::NONE);
    }

    #[test]
    fn a_server_cannot_switch_on_what_was_not_offered() {
        let mut answer = hello(set(caps::LZ4, 0x1), [0; 32], b"s", None);
        answer.caps |= caps::FAST;
        let refused = settle(set(caps::LZ4, 0x1), Features::NONE, &answer);
        assert_eq!(refused, Err(Unsettled::NotOffered(set(caps::FAST, 0))));
        let answer = hello(set(caps::LZ4, 1 << 63 | 1), [0; 32], b"s", None);
        let refused = settle(set(caps::LZ4, 0x1), Features::NONE, &answer);
        assert_eq!(refused, Err(Unsettled::NotOffered(set(0, 1 << 63))));
    }

    #[test]
    fn every_guarantee_of_a_policy_is_required() {
        let plain = Policy {
            flags: 0,
            choices: [0; 8],
            checkpoint: 0,
            rules: Vec::new(),
            regexes: Vec::new(),
            compress: crate::message::Compress::Auto,
            numbers: Vec::new(),
        };
        let trees = set(0, wide::TREES);
        assert_eq!(guarantees(&plain), trees);
        let with = |choice: Choice, value| {
            let mut policy = plain.clone();
            policy.choices[choice as usize] = value;
            guarantees(&policy).without(trees)
        };
        assert_eq!(with(Choice::Durability, policy::durability::MEDIUM), set(caps::SYNC, 0));
        assert_eq!(with(Choice::Verify, policy::verify::CACHED), set(0, wide::VERIFY));
        assert_eq!(with(Choice::Verify, policy::verify::DIRECT), set(0, wide::VERIFY));
        assert_eq!(with(Choice::Resume, policy::resume::APPEND), set(0, wide::RESUME));
        for flag in [policy::flags::KEEP_XATTR, policy::flags::KEEP_ACL] {
            let policy = Policy { flags: flag, ..plain.clone() };
            assert_eq!(guarantees(&policy).without(trees), set(0, wide::ATTRIBUTES));
        }
        let flagged = [
            (policy::flags::DRY_RUN, wide::SURVEY),
            (policy::flags::HASHES, wide::HASHED),
            (policy::flags::COMPARE, wide::COMPARED),
            (policy::flags::TAKE_AWAY, wide::TAKES),
            (policy::flags::TAKE_AWAY_MERGING, wide::TAKES),
            (policy::flags::HELD_AT_SOURCE, wide::HELD),
            (policy::flags::HELD_AT_DEST, wide::HELD),
            (policy::flags::DELETE_FIRST, wide::FIRST),
        ];
        for (flag, bit) in flagged {
            let policy = Policy { flags: flag, ..plain.clone() };
            assert_eq!(guarantees(&policy).without(trees), set(0, bit));
        }
        use policy::flags::{ALIKE, MIRROR_DELETE, MIRROR_DELETE_EXCLUDED};
        for flag in [MIRROR_DELETE, MIRROR_DELETE_EXCLUDED, ALIKE] {
            let policy = Policy { flags: flag | policy::flags::COMPARE, ..plain.clone() };
            let compared = set(0, wide::COMPARED | wide::PLANNED);
            assert_eq!(guarantees(&policy).without(trees), compared, "what goes is planned");
        }
        for flag in [policy::flags::HELD_AT_SOURCE, policy::flags::HELD_AT_DEST] {
            let policy = Policy { flags: flag | policy::flags::KEEP_ACL, ..plain.clone() };
            let held = set(0, wide::ATTRIBUTES | wide::HELD | wide::HELD_ACLS);
            assert_eq!(guarantees(&policy).without(trees), held, "ACLs are held as well");
        }
        let policy = Policy { flags: policy::flags::FAST | policy::flags::DEDUP, ..plain.clone() };
        assert_eq!(guarantees(&policy), trees, "what is only faster is not");
    }

    #[test]
    fn every_bit_has_one_name() {
        let all = NAMES.iter().fold(Features::NONE, |all, (one, _)| {
            assert_eq!(all.and(*one), Features::NONE);
            all.or(*one)
        });
        assert_eq!(all, set(0x7f, 0x3fff_ffff));
        let some = set(caps::SYNC, wide::VERIFY);
        assert!(
            some.has_cap(caps::SYNC) && !some.has_cap(caps::LZ4) && !some.has_cap(caps::SYNC | caps::LZ4)
        );
        assert!(some.has_wide(wide::VERIFY) && !some.has_wide(wide::TREES));
        assert_eq!(some.names().collect::<Vec<_>>(), ["sync", "verify"]);
    }

    proptest! {
        /// Whatever both have and whatever is asked for: what was required holds, or there is an error.
        #[test]
        fn nothing_required_is_ever_silently_off(
            client in (0..0x80_u8, any::<u64>()), server in (0..0x80_u8, any::<u64>()),
            required in (0..0x80_u8, any::<u64>()), flip in 0..71_usize,
        ) {
            let (client, server) = (set(client.0, client.1), set(server.0, server.1));
            let required = set(required.0, required.1);
            let mut answer = welcome(server, [0; 32], b"", &hello(client, [0; 32], b"", None)).unwrap();
            if let Ok(agreed) = settle(client, required, &answer) {
                prop_assert!(agreed.has(required) && client.has(agreed) && server.has(agreed));
            }
            // And whichever bit of the answer an attacker flips: nothing is on that was not offered.
            match (flip, &mut answer.wide) {
                (..7, _) => answer.caps ^= 1 << flip,
                (7.., Some(wide)) => wide.bits ^= 1 << (flip - 7),
                (7.., None) => {}
            }
            if let Ok(agreed) = settle(client, required, &answer) {
                prop_assert!(agreed.has(required) && client.has(agreed));
            }
        }
    }
}
