//! Which large files may be versions of one thing, by their names and sizes alone.
//!
//! Pure. Must not know where a file is: that two look alike is a reason to look into them, and no more.

/// One is no more than so many times as long as the other.
const LONGER_MAX: u64 = 4;
/// Letters that a name has at least without what tells versions of one thing apart.
const STEM_LETTERS_MIN: usize = 2;

/// A name in small letters, without digits, blanks and punctuation other than dots; `None` where little is left.
pub(crate) fn stem_of(name: &[u8]) -> Option<Vec<u8>> {
    let is_kept = |byte: &u8| byte.is_ascii_alphabetic() || !byte.is_ascii() || *byte == b'.';
    let kept = name.iter().copied().filter(is_kept);
    let stem: Vec<u8> = kept.map(|byte| byte.to_ascii_lowercase()).collect();
    let first = stem.split(|byte| *byte == b'.').next().unwrap_or_default();
    (first.len() >= STEM_LETTERS_MIN).then_some(stem)
}

/// Whether files so long may have much in common.
pub(crate) fn is_about_as_long(one: u64, other: u64) -> bool {
    one.max(other) / LONGER_MAX <= one.min(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_one_thing_have_one_stem() {
        for (one, other, alike) in [
            ("big.img", "big-2.img", true),
            ("big.img", "BIG (3).IMG", true),
            ("dump-2026-01-31.sql", "dump-2026-02-01.sql", true),
            ("big.img", "big.iso", false),
            ("big.img", "bigger.img", false),
            ("größe 1", "größe 2", true),
        ] {
            assert_eq!(stem_of(one.as_bytes()) == stem_of(other.as_bytes()), alike, "{one} {other}");
        }
        for nothing in ["1.2", "a1", "....", "--", "7z.txt"] {
            assert_eq!(stem_of(nothing.as_bytes()), None, "{nothing}");
        }
    }

    #[test]
    fn four_times_as_long_is_as_long() {
        assert!(
            is_about_as_long(100, 400) && is_about_as_long(400, 100) && is_about_as_long(u64::MAX, u64::MAX)
        );
        assert!(!is_about_as_long(100, 404) && !is_about_as_long(404, 100));
    }
}
