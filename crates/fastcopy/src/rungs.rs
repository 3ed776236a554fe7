//! placeholder
/// Which rungs cannot work.
#[derive(Default)]
pub struct Rungs;
impl Rungs {
    /// Nothing known.
    #[must_use]
    pub fn new() -> Rungs { Rungs }
}
