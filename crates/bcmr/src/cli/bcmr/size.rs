//! Sizes as they are typed and configured: `64K`, `1M`, `2GB`. Must not know what a size is of.

/// A size in bytes: `K` and `KiB` are 1024, `KB` is 1000, and so on for M, G and T.
pub fn size(typed: &str) -> Result<u64, String> {
    let end = typed.find(|c: char| !c.is_ascii_digit()).unwrap_or(typed.len());
    let (digits, unit) = typed.split_at(end);
    let power = |letter: &str| match letter {
        "k" | "K" => Some(1),
        "m" | "M" => Some(2),
        "g" | "G" => Some(3),
        "t" | "T" => Some(4),
        _ => None,
    };
    let unit = match (unit, unit.strip_suffix("iB"), unit.strip_suffix('B')) {
        ("" | "B", ..) => Some(1),
        (_, Some(letter), _) => power(letter).map(|p| 1024_u64.pow(p)),
        (_, None, Some(letter)) => power(letter).map(|p| 1000_u64.pow(p)),
        (letter, None, None) => power(letter).map(|p| 1024_u64.pow(p)),
    };
    let bytes = digits.parse::<u64>().ok().zip(unit).and_then(|(n, unit)| n.checked_mul(unit));
    bytes.ok_or_else(|| {
        "a number of bytes is needed; K, M, G, T behind it are powers of 1024, KB, MB, GB, TB of 1000".into()
    })
}

/// The same a second, and not nothing.
pub(super) fn rate(typed: &str) -> Result<u64, String> {
    match size(typed) {
        Ok(0) => Err("nothing would ever arrive".into()),
        other => other,
    }
}

/// The same, and not nothing.
pub(super) fn shard_size(typed: &str) -> Result<u64, String> {
    match size(typed) {
        Ok(0) => Err("a shard has a byte or more".into()),
        other => other,
    }
}

/// The same, a positive multiple of 4 MiB.
pub(super) fn checkpoint_size(typed: &str) -> Result<u64, String> {
    match size(typed) {
        Ok(bytes) if bytes > 0 && bytes % (4 << 20) == 0 => Ok(bytes),
        _ => Err("a positive multiple of 4M is needed".into()),
    }
}

/// The same, a positive multiple of 4 KiB and at most 64 MiB.
pub(super) fn block_size(typed: &str) -> Result<usize, String> {
    match size(typed).map(usize::try_from) {
        Ok(Ok(bytes)) if bytes > 0 && bytes % (4 << 10) == 0 && bytes <= 64 << 20 => Ok(bytes),
        _ => Err("a positive multiple of 4K is needed, at most 64M".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (typed, want) in [
            ("0", Some(0)),
            ("7B", Some(7)),
            ("64K", Some(65_536)),
            ("64k", Some(65_536)),
            ("64KiB", Some(65_536)),
            ("64KB", Some(64_000)),
            ("2M", Some(2 << 20)),
            ("2MB", Some(2_000_000)),
            ("1G", Some(1 << 30)),
            ("1GB", Some(1_000_000_000)),
            ("1TiB", Some(1 << 40)),
            ("1TB", Some(1_000_000_000_000)),
            ("16777216T", None),
            ("", None),
            ("K", None),
            ("-1", None),
            ("1.5M", None),
            ("1X", None),
            ("1Ki", None),
            ("1iB", None),
            ("1KBB", None),
            ("1 K", None),
        ] {
            assert_eq!(size(typed).ok(), want, "{typed:?}");
        }
        assert_eq!((shard_size("0").ok(), shard_size("1").ok()), (None, Some(1)));
    }
}
