//! The one error code that the protocol itself gives a meaning, and numbers of earlier builds. All others are the
//! sides' own: `Code` in the engine's `error.rs` is their list. Must not know how any of them is worded.

/// `[hello.version]` The peers have no version in common. In every version it stands in front of an `Error` that answers
/// a greeting.
pub const NO_COMMON_VERSION: u16 = 100;

/// The number that a code has everywhere today: builds before numbered some otherwise while they greeted.
#[must_use]
pub fn renumbered(number: u16) -> u16 {
    match number {
        // Against the protocol, lost, busy, a guarantee that is lacking, unreachable, a fault of the program.
        101 => 20,
        102 => 21,
        103 => 14,
        104 => 12,
        105 => 25,
        106 => 18,
        other => other,
    }
}
