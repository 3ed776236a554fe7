//! A policy as it travels: one table for its flags, one for its choices, and the lists of patterns.
//!
//! Must not know how any of it is carried out. A new flag is a row of [`FLAGS`], a new value a word in `choices!`.

use crate::alter::OwnersAndModes;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::policy::{
    Above, Collide, Compare, CopyPolicy, DeleteMax, Durability, FilterSpec, Follow, FollowDestination,
    Landing, Leaving, Mirror, Privileged, Reflink, Resume, Rule, Sparse, Strictness, Verify,
};
use crate::remote::{Compress, Purpose};
use bcmr_wire::limits;
use bcmr_wire::message;
use bcmr_wire::policy::{self as wire, Choice, flags};

/// What of a policy travels; the borrowed lists are made by [`Lists::of`].
pub(crate) struct Lists<'a> {
    rules: Vec<(bool, &'a [u8])>,
    regexes: Vec<&'a [u8]>,
}

impl<'a> Lists<'a> {
    /// # Errors
    /// More of them than another machine takes: [`Code::Usage`].
    pub(crate) fn of(policy: &'a CopyPolicy) -> Result<Lists<'a>> {
        let rules = policy.filter.rules.iter().map(|rule| match rule {
            Rule::Exclude(glob) => (false, glob.as_bytes()),
            Rule::Include(glob) => (true, glob.as_bytes()),
        });
        let regexes = policy.filter.regexes.iter().map(String::as_bytes);
        let lists = Lists { rules: rules.collect(), regexes: regexes.collect() };
        let fits = |patterns: &mut dyn Iterator<Item = &[u8]>, bytes_max: usize| {
            let (mut count, mut bytes, mut longest) = (0, 0, 0);
            for pattern in patterns {
                (count, bytes, longest) = (count + 1, bytes + pattern.len(), longest.max(pattern.len()));
            }
            count <= limits::RULES_MAX && bytes <= bytes_max && longest <= limits::RULE_BYTES_MAX
        };
        let globs_fit = fits(&mut lists.rules.iter().map(|(_, glob)| *glob), limits::RULES_BYTES_MAX);
        let regexes_fit = fits(&mut lists.regexes.iter().copied(), limits::REGEXES_BYTES_MAX);
        if globs_fit && regexes_fit {
            return Ok(lists);
        }
        let note = Reason::PatternsTooLarge
            .about(limits::RULES_MAX)
            .about(limits::RULE_BYTES_MAX)
            .about(limits::RULES_BYTES_MAX)
            .about(limits::REGEXES_BYTES_MAX);
        Err(Error::ours(Code::Usage, Op::SendPatterns, "", note))
    }
}

/// One flag of a policy: its bit, whether a policy has it set, and how it is set.
type Flag = (u64, fn(&CopyPolicy) -> bool, fn(&mut CopyPolicy));

/// What is said of a copy with one bit each. A policy that came over a wire starts with none of them set.
const FLAGS: [Flag; 24] = [
    (flags::RECURSIVE, |p| p.recursive, |p| p.recursive = true),
    (flags::KEEP_MODE, |p| p.preserve.mode, |p| p.preserve.mode = true),
    (flags::KEEP_OWNER, |p| p.preserve.owner, |p| p.preserve.owner = true),
    (flags::KEEP_TIMES, |p| p.preserve.times, |p| p.preserve.times = true),
    (flags::KEEP_LINKS, |p| p.preserve.links, |p| p.preserve.links = true),
    (flags::KEEP_XATTR, |p| p.preserve.xattr, |p| p.preserve.xattr = true),
    (flags::KEEP_ACL, |p| p.preserve.acl, |p| p.preserve.acl = true),
    (flags::STRICT, |p| p.strictness == Strictness::Archive, |p| p.strictness = Strictness::Archive),
    (flags::SPECIALS, |p| p.specials, |p| p.specials = true),
    (flags::FORCE, |p| p.force, |p| p.force = true),
    (flags::HASHES, |p| p.hashes, |p| p.hashes = true),
    (flags::ONE_FILE_SYSTEM, |p| p.one_file_system, |p| p.one_file_system = true),
    (flags::GITIGNORE, |p| p.filter.gitignore, |p| p.filter.gitignore = true),
    (flags::DRY_RUN, |p| p.dry_run, |p| p.dry_run = true),
    (
        flags::FOLLOW_DESTINATION,
        |p| p.follow_destination == FollowDestination::Always,
        |p| p.follow_destination = FollowDestination::Always,
    ),
    (flags::MIRROR, |p| p.mirror == Mirror::Update, |p| p.mirror = Mirror::Update),
    (flags::MIRROR_DELETE, |p| p.mirror == Mirror::Delete, |p| p.mirror = Mirror::Delete),
    (
        flags::MIRROR_DELETE_EXCLUDED,
        |p| p.mirror == Mirror::DeleteExcluded,
        |p| p.mirror = Mirror::DeleteExcluded,
    ),
    (flags::BCMRIGNORE, |p| p.filter.bcmrignore, |p| p.filter.bcmrignore = true),
    (flags::MAKE_PATH, |p| p.above == Above::Made, |p| p.above = Above::Made),
    (flags::TAKE_AWAY, |p| p.leaving == Leaving::Goes, |p| p.leaving = Leaving::Goes),
    (flags::TAKE_AWAY_MERGING, |p| p.leaving == Leaving::GoesMerging, |p| p.leaving = Leaving::GoesMerging),
    (flags::HELD_AT_SOURCE, |p| p.preserve.at_source.is_held(), |p| p.preserve.at_source = Privileged::Held),
    (flags::HELD_AT_DEST, |p| p.preserve.at_dest.is_held(), |p| p.preserve.at_dest = Privileged::Held),
];

/// Each choice with its field of a policy and its values, the engine's beside the wire's. What else comes has been
/// refused before it gets here ([policy.strict]), and counts as the first.
macro_rules! choices {
    ($($place:ident $field:ident $name:ident: $first:ident = $zero:ident $(, $value:ident = $byte:ident)*;)*) => {
        fn choices_of(policy: &CopyPolicy) -> [(Choice, u8); 8] {
            [$((
                Choice::$place,
                match policy.$field {
                    $place::$first => wire::$name::$zero,
                    $($place::$value => wire::$name::$byte,)*
                },
            ),)*]
        }

        fn choose(policy: &mut CopyPolicy, from: &message::Policy<'_>) {
            $(policy.$field = match from.choice(Choice::$place) {
                $(wire::$name::$byte => $place::$value,)*
                _ => $place::$first,
            };)*
        }
    };
}

choices! {
    Follow follow follow: Never = NEVER, Operands = OPERANDS, Always = ALWAYS;
    Collide collide collide:
        Replace = REPLACE, Keep = KEEP, IfOlder = IF_OLDER, IfDifferent = IF_DIFFERENT, Ask = ASK,
        IfContentDiffers = IF_CONTENT_DIFFERS;
    Landing landing landing: Atomic = ATOMIC, InPlace = IN_PLACE;
    Reflink reflink reflink: Auto = AUTO, Always = ALWAYS, Never = NEVER;
    Sparse sparse sparse: Auto = AUTO, Always = ALWAYS, Never = NEVER;
    Verify verify verify: Off = OFF, Cached = CACHED, Direct = DIRECT;
    Durability durability durability: Cache = CACHE, Medium = MEDIUM;
    Resume resume resume:
        Off = OFF, Proved = PROVED, Fast = FAST, Strict = STRICT, Append = APPEND_PROVED, AppendSize = APPEND;
}

/// A policy as it travels.
pub(crate) fn policy_out<'a>(
    policy: &CopyPolicy,
    lists: &Lists<'a>,
    fast: bool,
    dedup: bool,
    compress: Compress,
    purpose: Purpose,
) -> message::Policy<'a> {
    let first = purpose == Purpose::DeleteFirst;
    let of_transfer = [
        (fast, flags::FAST),
        (dedup, flags::DEDUP),
        (purpose != Purpose::Copy, flags::COMPARE),
        (first || matches!(purpose, Purpose::Check { extra: true, .. }), flags::EXTRA),
        (matches!(purpose, Purpose::Check { alike: true, .. }), flags::ALIKE),
        (first || matches!(purpose, Purpose::Check { compare: Compare::SizeAndTime, .. }), flags::QUICK),
        (first, flags::DELETE_FIRST),
    ];
    let of_policy = FLAGS.iter().map(|(bit, is_set, _)| (is_set(policy), *bit));
    let flags = of_policy.chain(of_transfer).filter(|(set, _)| *set).fold(0, |all, (_, bit)| all | bit);
    let mut table = [0; 8];
    for (place, value) in choices_of(policy) {
        if let Some(slot) = table.get_mut(place as usize) {
            *slot = value;
        }
    }
    let compress = match compress {
        Compress::None => message::Compress::None,
        Compress::Lz4 => message::Compress::Lz4,
        Compress::Zstd => message::Compress::Zstd,
        Compress::Auto => message::Compress::Auto,
    };
    let checkpoint = policy.checkpoint_bytes;
    let (rules, regexes) = (lists.rules.clone(), lists.regexes.clone());
    let mut numbers = policy.filter.numbers();
    numbers.extend(policy.delete_max.number());
    numbers.extend(policy.alter.numbers());
    numbers.sort_unstable();
    message::Policy { flags, choices: table, checkpoint, rules, regexes, compress, numbers }
}

/// What arrived, with what belongs to this machine.
///
/// # Errors
/// A pattern that is no text, or a checkpoint that no session can have: [`Code::Protocol`].
pub(crate) fn policy_in(
    from: &message::Policy<'_>,
    jobs: usize,
    me: u32,
    umask: u32,
) -> Result<(CopyPolicy, Compress)> {
    let bad = |note: Reason| Error::ours(Code::Protocol, Op::ReadPolicy, "", note);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| bad(Reason::PatternNotText));
    let mut rules = Vec::new();
    for (include, glob) in &from.rules {
        let glob = text(glob)?;
        rules.push(if *include { Rule::Include(glob) } else { Rule::Exclude(glob) });
    }
    let regexes = from.regexes.iter().map(|r| text(r)).collect::<Result<Vec<String>>>()?;
    let checkpoint_bytes = from.checkpoint;
    if checkpoint_bytes == 0 || !checkpoint_bytes.is_multiple_of(crate::blocks::FORMAT_BLOCK_BYTES) {
        return Err(bad(Reason::CheckpointNotBlocks));
    }
    let mut filter = FilterSpec { rules, regexes, ..FilterSpec::everything() };
    let mut numbers = from.numbers.clone();
    let delete_max = numbers.iter().copied().find_map(DeleteMax::of_number).unwrap_or(DeleteMax::DEFAULT);
    let mut alter = OwnersAndModes::NONE;
    numbers.retain(|number| DeleteMax::of_number(*number).is_none() && !alter.set_number(*number));
    // [policy.strict]
    if !filter.set_numbers(&numbers) {
        return Err(bad(Reason::NumberUnknown));
    }
    let mut policy =
        CopyPolicy { filter, delete_max, alter, checkpoint_bytes, ..CopyPolicy::cp(jobs, me, umask) };
    for (bit, _, set) in FLAGS {
        if from.has(bit) {
            set(&mut policy);
        }
    }
    choose(&mut policy, from);
    let compress = match from.compress {
        message::Compress::None => Compress::None,
        message::Compress::Lz4 => Compress::Lz4,
        message::Compress::Zstd => Compress::Zstd,
        message::Compress::Auto => Compress::Auto,
    };
    Ok((policy, compress))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(flags: u64, choices: [u8; 8]) -> (u64, [u8; 8]) {
        let (checkpoint, compress) = (64 << 20, message::Compress::None);
        let (rules, regexes, numbers) = (vec![], vec![], vec![]);
        let from = message::Policy { flags, choices, checkpoint, rules, regexes, compress, numbers };
        let (policy, compress) = policy_in(&from, 1, 0, 0).unwrap();
        let lists = Lists::of(&policy).unwrap();
        let out = policy_out(&policy, &lists, false, false, compress, Purpose::Copy);
        (out.flags, out.choices)
    }

    #[test]
    fn every_flag_of_a_copy_travels_there_and_back() {
        use flags::{ALIKE, COMPARE, DEDUP, DELETE_FIRST, EXTRA, FAST, QUICK, TARGET_ABSENT};
        // What belongs to the transfer or a comparison, and not to how a copy is carried out.
        let of_transfer = FAST | DEDUP | COMPARE | EXTRA | QUICK | TARGET_ABSENT | ALIKE | DELETE_FIRST;
        for bit in (0..64).map(|n| 1 << n).filter(|bit| flags::ALL & !of_transfer & bit != 0) {
            assert_eq!(there_and_back(bit, [0; 8]), (bit, [0; 8]), "{bit:#x}");
        }
        assert_eq!(FLAGS.iter().fold(0, |all, (bit, ..)| all | bit), flags::ALL & !of_transfer);
    }

    #[test]
    fn every_number_travels_there_and_back_and_no_other_is_taken() {
        let mut from = policy_out(
            &CopyPolicy::cp(1, 0, 0),
            &Lists { rules: vec![], regexes: vec![] },
            false,
            false,
            Compress::None,
            Purpose::Copy,
        );
        assert_eq!(from.numbers, []);
        let (mut known, mut last) = (0, None);
        for which in 0..=u8::MAX {
            from.numbers = vec![(which, 7)];
            let Ok((policy, _)) = policy_in(&from, 1, 0, 0) else { continue };
            let lists = Lists { rules: vec![], regexes: vec![] };
            let out = policy_out(&policy, &lists, false, false, Compress::None, Purpose::Copy);
            assert_eq!(out.numbers, from.numbers);
            assert!(last < Some(which), "in rising order");
            (known, last) = (known + 1, Some(which));
        }
        // Of owners, one for each that is mapped.
        assert_eq!(known, 8 + 2 * crate::alter::MAPPED_MAX);
        from.numbers = vec![(0, 9), (1, 3)];
        let filter = policy_in(&from, 1, 0, 0).unwrap().0.filter;
        assert_eq!((filter.max_bytes, filter.min_bytes), (Some(9), Some(3)));
    }

    #[test]
    fn every_value_of_a_choice_travels_there_and_back() {
        use wire::{collide, durability, follow, landing, reflink, resume, sparse, verify};
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
        for (place, last) in last.into_iter().enumerate() {
            for value in 0..=last {
                let mut choices = [0; 8];
                choices[place] = value;
                assert_eq!(there_and_back(0, choices), (0, choices), "place {place}");
            }
        }
    }
}
