//! What this program can do over a wire, and what of it a transfer offers and needs.
//!
//! Must not know how a feature is carried out.

use crate::accounts::{Accounts, ThisMachine};
use crate::alter::OwnersBy;
use crate::remote::{Compress, Plane, Way};
use bcmr_wire::handshake::{Features, caps, wide};

/// Everything this program can do over a wire.
pub(crate) const OURS: Features = Features {
    caps: caps::LZ4 | caps::ZSTD | caps::FAST | caps::SYNC | caps::DIRECT | caps::AEAD,
    wide: wide::TREES
        | wide::JOIN
        | wide::ATTRIBUTES
        | wide::RESUME
        | wide::VERIFY
        | wide::HOLES
        | wide::SURVEY
        | wide::HASHED
        | wide::LISTS
        | wide::COMPARED
        | wide::PARTIAL
        | wide::REMOVE
        | wide::DELTA
        | wide::PACKED
        | wide::PARTS
        | wide::KEEPING
        | wide::LEFT_OUT
        | wide::NAMES
        | wide::PLANNED
        | wide::UNDO
        | wide::PLANS
        | wide::TAKES
        | wide::STORES
        | wide::HELD
        | wide::REPEATS
        | wide::FIRST
        | wide::HELD_ACLS
        | wide::ROUNDS
        | wide::FRAMES,
};

/// What a client with these options offers.
pub(super) fn offered(way: &Way, owners: OwnersBy) -> Features {
    let mut features = OURS;
    // Only who receives is asked about blocks, see [`offered_by_receiver`].
    features.wide &= !wide::STORES;
    if owners == OwnersBy::Number {
        features.wide &= !wide::NAMES;
    }
    if way.dedup && !way.fast {
        features.caps |= caps::DEDUP;
    }
    if way.whole_file || way.fast {
        features.wide &= !(wide::DELTA | wide::PARTS | wide::REPEATS);
    }
    if way.plane != Plane::Direct {
        features.caps &= !(caps::DIRECT | caps::AEAD);
    }
    if way.compress == Compress::None {
        features.caps &= !(caps::LZ4 | caps::ZSTD);
    }
    if way.compress == Compress::Lz4 {
        features.caps &= !caps::ZSTD;
    }
    features
}

/// What a client that receives offers: the same, and its store.
pub(super) fn offered_by_receiver(way: &Way, owners: OwnersBy, has_store: bool) -> Features {
    let mut features = offered(way, owners);
    if has_store && way.dedup && !way.fast {
        features.wide |= wide::STORES;
    }
    features
}

/// Of what a copy needs, what a sender must know; the rest is the receiver's, which is here.
pub(super) fn needed_of_sender(required: Features) -> Features {
    let wide = wide::TREES
        | wide::ATTRIBUTES
        | wide::HOLES
        | wide::SURVEY
        | wide::LEFT_OUT
        | wide::TAKES
        | wide::HELD
        | wide::HELD_ACLS;
    required.and(Features { caps: 0, wide })
}

/// Where names of owners are looked up, if both sides tell them.
pub(super) fn agreed_accounts(agreed: Features) -> Option<&'static dyn Accounts> {
    agreed.has_wide(wide::NAMES).then_some(&ThisMachine as &dyn Accounts)
}

/// What is packed with: what is wanted and both know.
pub(crate) fn agreed_compress(wanted: Compress, agreed: Features) -> Compress {
    match wanted {
        Compress::Auto if agreed.has_cap(caps::ZSTD) => Compress::Auto,
        Compress::Zstd if agreed.has_cap(caps::ZSTD) => Compress::Zstd,
        Compress::Auto | Compress::Zstd | Compress::Lz4 if agreed.has_cap(caps::LZ4) => Compress::Lz4,
        _ => Compress::None,
    }
}
