//! One hash for all that was verified: what `sort | b3sum` says of the lines that `b3sum` writes in the destination.
//!
//! Pure. Must not know where hashes come from.

use crate::say;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The hash of names and their hashes, in whatever order; none without files.
pub fn of(files: &[(PathBuf, [u8; 32])]) -> Option<[u8; 32]> {
    let line = |(name, hash): &(PathBuf, [u8; 32])| {
        let mut line = say::hash_line(hash, name.as_os_str().as_bytes(), false);
        line.push(b'\n');
        line
    };
    let mut lines: Vec<Vec<u8>> = files.iter().map(line).collect();
    lines.sort_unstable();
    // What landed by an attempt that was repeated is told twice.
    lines.dedup();
    let mut hasher = blake3::Hasher::new();
    for line in &lines {
        hasher.update(line);
    }
    (!lines.is_empty()).then(|| *hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_of_sorted_lines() {
        let files = [("b", [1_u8; 32]), ("a", [2; 32]), ("a/b", [1; 32])]
            .map(|(name, hash)| (PathBuf::from(name), hash));
        let (one, two) = ("01".repeat(32), "02".repeat(32));
        let text = format!("{one}  a/b\n{one}  b\n{two}  a\n");
        assert_eq!(of(&files), Some(*blake3::hash(text.as_bytes()).as_bytes()));
        let [a, b, c] = files.clone();
        assert_eq!(of(&[c.clone(), b, a, c]), of(&files));
        assert_eq!(of(&[]), None);
    }
}
