//! Entrance for the fuzzer: an index of any bytes. Must not know how the fuzzer works.

use super::index::{SumKey, View, sealed};

/// The bytes as they are, and then the same bytes cut into records with checksums that fit: few inputs would get past
/// those by luck. Whatever came of it, writing it anew says the same.
pub fn index(data: &[u8]) {
    let sums: SumKey = [7; 32];
    let mut any = View::default();
    any.replay(&sums, 0, data);

    let mut log = Vec::new();
    let mut rest = data;
    while let Some(([kind, length], more)) = rest.split_first_chunk::<2>() {
        let (body, more) = more.split_at(usize::from(*length).min(more.len()));
        sealed(&sums, *kind, body, &mut log);
        rest = more;
    }
    let mut view = View::default();
    let done = view.replay(&sums, 0, &log);
    assert!(done <= log.len());
    let new = view.compact(&sums);
    let mut again = View::default();
    let head = super::index::HEADER_BYTES;
    assert_eq!(again.replay(&sums, head as u64, new.get(head..).unwrap_or_default()), new.len() - head);
    assert_eq!(again.bytes(), view.bytes());
}
