//! Packed contents, and packed entries: how long they are once they are unpacked, and the packed bytes behind it.
//!
//! Must not know how they are packed, nor what is in them.

use crate::field::{Reader, Refused, Tag, Why, must, put_v};
use crate::limits::{CONTENTS_BYTES_MAX, ENTRIES_BYTES_MAX};

/// Appends how long packed contents are once they are unpacked; the packed bytes follow.
pub fn push_unpacked_length(out: &mut Vec<u8>, length: usize) -> Result<(), Refused> {
    // [contents.max]
    must(length <= CONTENTS_BYTES_MAX, "contents.max", Why::Limit)?;
    put_v(length as u64, out);
    Ok(())
}

/// Takes packed contents apart: their length once unpacked, which is within bounds, and the packed bytes.
pub fn unpacked(bytes: &[u8]) -> Result<(usize, &[u8]), Refused> {
    let mut r = Reader::new(bytes);
    let length = r.v("contents.bytes")?;
    // [contents.max] A few bytes must not unpack to more than a sender would have sent raw.
    must(length <= CONTENTS_BYTES_MAX as u64, "contents.max", Why::Limit)?;
    Ok((length as usize, r.all()))
}

/// Takes packed columns apart: how long they are once unpacked, which is within bounds, and the packed bytes.
///
/// # Errors
/// They would unpack to more than a batch's entries may be.
pub fn unpacked_columns(bytes: &[u8]) -> Result<(usize, &[u8]), Refused> {
    const TAG: Tag = "packed.entries";
    let mut r = Reader::new(bytes);
    let length = r.v(TAG)?;
    must(length <= ENTRIES_BYTES_MAX as u64, TAG, Why::Limit)?;
    Ok((length as usize, r.all()))
}
