//! Error codes as numbers that never change. Must not know how any of them is worded.
//!
//! 1 to 99 are what can go wrong with an item and are the engine's own; from 100 on, what can go wrong between peers.

/// What kind of trouble it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum Code {
    /// Something named is not there.
    NotFound = 1,
    /// No permission.
    Denied = 2,
    /// Something is in the way.
    InTheWay = 3,
    /// A directory was named where only `-r` may go.
    IsDirectory = 4,
    /// A component is not a directory.
    NotDirectory = 5,
    /// A link stands where none may be followed, or links lead in a circle.
    Link = 6,
    /// No room.
    NoSpace = 7,
    /// Nothing may be written there.
    ReadOnly = 8,
    /// The source changed while it was read.
    SourceChanged = 9,
    /// What landed, or arrived, is not what was read.
    Mismatch = 10,
    /// A guard refused.
    Refused = 11,
    /// It cannot be done there.
    Unsupported = 12,
    /// A name is too long.
    NameTooLong = 13,
    /// A limit of the process or the machine.
    Limit = 14,
    /// A special file was skipped.
    Special = 15,
    /// Something of the metadata was not kept.
    MetadataLost = 16,
    /// The request makes no sense.
    Usage = 17,
    /// Any other answer of the kernel.
    Io = 18,
    /// The user, or the peer, asked to stop.
    Interrupted = 19,
    /// The peers have no version in common.
    Version = 100,
    /// What arrived is against the protocol.
    Protocol = 101,
    /// The connection ended, or nothing was heard for too long.
    Lost = 102,
    /// No room for another peer or stream now.
    Busy = 103,
    /// A guarantee was asked for that the peer does not give.
    Lacking = 104,
    /// The peer could not be reached or started at all.
    Unreachable = 105,
    /// Something failed that should not have been able to; a fault of the program.
    Internal = 106,
}

/// All of them with their names, by number.
const ALL: [(Code, &str); 26] = [
    (Code::NotFound, "not-found"),
    (Code::Denied, "denied"),
    (Code::InTheWay, "in-the-way"),
    (Code::IsDirectory, "is-directory"),
    (Code::NotDirectory, "not-directory"),
    (Code::Link, "link"),
    (Code::NoSpace, "no-space"),
    (Code::ReadOnly, "read-only"),
    (Code::SourceChanged, "source-changed"),
    (Code::Mismatch, "mismatch"),
    (Code::Refused, "refused"),
    (Code::Unsupported, "unsupported"),
    (Code::NameTooLong, "name-too-long"),
    (Code::Limit, "limit"),
    (Code::Special, "special"),
    (Code::MetadataLost, "metadata-lost"),
    (Code::Usage, "usage"),
    (Code::Io, "io"),
    (Code::Interrupted, "interrupted"),
    (Code::Version, "version"),
    (Code::Protocol, "protocol"),
    (Code::Lost, "lost"),
    (Code::Busy, "busy"),
    (Code::Lacking, "lacking"),
    (Code::Unreachable, "unreachable"),
    (Code::Internal, "internal"),
];

impl Code {
    /// The code of a number; `None` for one of a newer version, which counts as [`Code::Io`] to a caller that must branch.
    #[must_use]
    pub fn of(number: u16) -> Option<Code> {
        ALL.iter().map(|(code, _)| *code).find(|code| code.number() == number)
    }

    /// The number that travels.
    #[must_use]
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The name used in JSON, in kebab-case.
    #[must_use]
    pub fn name(self) -> &'static str {
        ALL.iter().find(|(code, _)| *code == self).map_or("", |(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_the_ones_they_were() {
        let numbers: Vec<u16> = ALL.iter().map(|(code, _)| code.number()).collect();
        assert_eq!(numbers, (1..=19).chain(100..=106).collect::<Vec<_>>());
        for (code, name) in ALL {
            assert_eq!((Code::of(code.number()), code.name()), (Some(code), name));
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-') && !name.is_empty());
        }
        for stranger in [0, 20, 99, 107, u16::MAX] {
            assert_eq!(Code::of(stranger), None);
        }
    }
}
