//! The one escaper: whatever goes to a person passes here, so that no name and no message can move the cursor,
//! recolour the screen, fake a line or reverse the reading order.
//!
//! Must not know what is being said, or where to.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What beside the dangerous characters is escaped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quoting {
    /// Nothing: for text that is not a name, or holds names already escaped.
    Text,
    /// The backslash, so that a name holding `\x1b` in letters cannot be taken for one holding ESC.
    Bare,
    /// The backslash and the single quote.
    Quoted,
}

/// A path between single quotes.
pub fn quoted(path: &Path) -> String {
    let mut out = String::from("'");
    escape(&mut out, path.as_os_str().as_bytes(), Quoting::Quoted);
    out.push('\'');
    out
}

/// A name without quotes, for where a line holds nothing but names.
pub fn bare(name: &[u8]) -> String {
    let mut out = String::new();
    escape(&mut out, name, Quoting::Bare);
    out
}

/// A word as a shell reads it back, whatever is in it.
pub fn shell_word(word: &std::ffi::OsStr) -> String {
    let bytes = word.as_bytes();
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"_-./:=@%+,".contains(b);
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(is_unsafe) => format!("'{}'", text.replace('\'', "'\\''")),
        // What must not reach a terminal is written in the form that bash, zsh and ksh read.
        _ => {
            let one = |b: &u8| match b {
                b'\\' | b'\'' => format!("\\{}", char::from(*b)),
                b' '..=b'~' => char::from(*b).to_string(),
                // Three digits: what follows is never taken for another one.
                b => format!("\\{b:03o}"),
            };
            format!("$'{}'", bytes.iter().map(one).collect::<String>())
        }
    }
}

/// Any other text that came from outside.
pub fn text(text: &str) -> String {
    let mut out = String::new();
    escape(&mut out, text.as_bytes(), Quoting::Text);
    out
}

/// Whether a terminal, or a person reading it, can be led astray by `c`: C0, DEL and C1 controls; marks, embeddings,
/// overrides and isolates of the bidirectional algorithm; line and paragraph separator.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escape(out: &mut String, bytes: &[u8], style: Quoting) {
    // `write!` to a String cannot fail.
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' if style != Quoting::Text => out.push_str("\\\\"),
                '\'' if style == Quoting::Quoted => out.push_str("\\'"),
                c if !is_unsafe(c) => out.push(c),
                c if u32::from(c) < 0x80 => write!(out, "\\x{:02x}", u32::from(c)).unwrap_or_default(),
                c => write!(out, "\\u{{{:x}}}", u32::from(c)).unwrap_or_default(),
            }
        }
        for byte in chunk.invalid() {
            write!(out, "\\x{byte:02x}").unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shown() {
        for (bytes, want) in [
            (&b"plain name"[..], "'plain name'"),
            ("grüße 漢字 🦀".as_bytes(), "'grüße 漢字 🦀'"),
            (b"a\nb\tc\x7f", r"'a\x0ab\x09c\x7f'"),
            (b"\x1b[31m", r"'\x1b[31m'"),
            (b"\xc2\x9b31m", r"'\u{9b}31m'"),
            (b"\xff\xfe", r"'\xff\xfe'"),
            ("evil\u{202e}gpj.exe".as_bytes(), r"'evil\u{202e}gpj.exe'"),
            (br"literal \x1b", r"'literal \\x1b'"),
            (b"it's", r"'it\'s'"),
            (b"", "''"),
        ] {
            assert_eq!(quoted(Path::new(std::ffi::OsStr::from_bytes(bytes))), want);
        }
        assert_eq!(bare(b"it's \\"), r"it's \\");
        assert_eq!(text("a\\b\x1b"), "a\\b\\x1b");
    }

    proptest! {
        #[test]
        fn nothing_unsafe_comes_out(bytes in proptest::collection::vec(any::<u8>(), 0..200), s in "\\PC*|.*") {
            let path = Path::new(std::ffi::OsStr::from_bytes(&bytes));
            prop_assert!(!quoted(path).chars().any(is_unsafe));
            prop_assert!(!bare(&bytes).chars().any(is_unsafe));
            prop_assert!(!text(&s).chars().any(is_unsafe));
        }

        /// Two different names never look the same.
        #[test]
        fn escaping_is_one_to_one(a in "[\\\\x0a1b\u{1b}\n'\u{202e}]{0,6}", b in "[\\\\x0a1b\u{1b}\n'\u{202e}]{0,6}") {
            prop_assume!(a != b);
            prop_assert_ne!(bare(a.as_bytes()), bare(b.as_bytes()));
            prop_assert_ne!(quoted(Path::new(&a)), quoted(Path::new(&b)));
        }
    }
}
