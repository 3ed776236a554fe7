//! The verbs. Only these see both halves.

mod remove;
pub use remove::remove;

use crate::error::Error;
use crate::event::{Summary, Watch};
use crate::policy::{CheckRequest, CopyRequest, MoveRequest};

/// Copies. `Err` only when nothing could be begun; everything later is counted in the [`Summary`].
pub fn copy(_request: CopyRequest, _watch: Watch<'_>) -> Result<Summary, Error> {
    Ok(Summary::default())
}
/// Moves.
pub fn move_(_request: MoveRequest, _watch: Watch<'_>) -> Result<Summary, Error> {
    Ok(Summary::default())
}
/// Says what a copy would change.
pub fn check(_request: CheckRequest, _watch: Watch<'_>) -> Result<Summary, Error> {
    Ok(Summary::default())
}
