//! Whether source and destination are one file, and whether that may be.
//!
//! Must not change anything.

use super::options::{Backup, Content, Options, Program};
use super::spot::Spot;
use crate::policy::Follow;
use fastcopy::meta::{Info, Kind};

/// What is to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Same {
    /// They are two, or it does no harm.
    Fine,
    /// There is nothing to do.
    Nothing,
    /// The source would be lost.
    Refused,
}

/// Compares. `info` and `there` are what was looked at.
pub(super) fn check(src: &Spot, dst: &Spot, info: &Info, there: &Info, options: &Options) -> Same {
    let same = info.id() == there.id();
    let is_move = options.purpose == Program::Move;
    let hard_link = options.content == Content::HardLink;
    let backup = options.backup != Backup::None;
    if same && hard_link {
        return Same::Nothing;
    }
    let (own, other) = if options.follow == Follow::Never {
        (*info, *there)
    } else {
        if !same {
            return Same::Fine;
        }
        match (src.look(false), dst.look(false)) {
            (Ok(own), Ok(other)) => (own, other),
            _ => return Same::Fine,
        }
    };
    let same_entry = own.id() == other.id();
    let links = (own.kind == Kind::Link, other.kind == Kind::Link);
    if links == (true, true) {
        if options.follow != Follow::Never {
            if options.unlink_first {
                return Same::Fine;
            }
        } else if src.is_same_name(dst) {
            return Same::Refused;
        } else if backup || !same_entry {
            return Same::Fine;
        } else {
            // Two names of one link: a copy would change nothing, and a rename would take neither away.
            return if is_move { Same::Refused } else { Same::Nothing };
        }
    }
    if backup {
        if same_entry {
            return if src.is_same_name(dst) { Same::Refused } else { Same::Fine };
        }
        let dangles = !is_move && options.follow != Follow::Never && links == (true, false);
        return if dangles { Same::Refused } else { Same::Fine };
    }
    if is_move || options.unlink_first {
        if links.1 {
            return Same::Fine;
        }
        if same_entry && other.nlink > 1 && !src.is_same_name(dst) {
            return if is_move { Same::Refused } else { Same::Fine };
        }
    }
    if links == (false, false) && !same_entry {
        return Same::Fine;
    }
    // A link that is moved onto what it leads to: the content must have another name, and lead there by that.
    if is_move && links.0 && other.nlink > 1 && !src.leads_to(dst) {
        return Same::Fine;
    }
    if options.content == Content::SymbolicLink && links.1 {
        return Same::Fine;
    }
    if options.follow == Follow::Never {
        let real = |spot: &Spot, info: &Info| {
            if info.kind == Kind::Link { spot.look(true).ok() } else { Some(*info) }
        };
        match (real(src, &own), real(dst, &other)) {
            (Some(a), Some(b)) if a.id() == b.id() => {
                if hard_link && !links.1 {
                    return Same::Nothing;
                }
                if hard_link {
                    return Same::Fine;
                }
            }
            _ => return Same::Fine,
        }
    }
    Same::Refused
}
