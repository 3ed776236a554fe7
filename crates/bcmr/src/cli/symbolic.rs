//! What modes are written with, alike in both dialects: octal digits, and the letters of symbolic modes.
//!
//! Must not know what a clause does to a mode.

/// The bits of an octal number up to 7777.
pub fn octal(text: &str) -> Option<u16> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if is_number { u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777) } else { None }
}

/// Which bits a clause is about, by what stands before its operator: nothing is all.
pub fn whom(letters: &str) -> Option<u16> {
    if letters.is_empty() {
        return Some(0o7777);
    }
    letters.chars().try_fold(0, |whom, letter| {
        let more = match letter {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => 0o7777,
            _ => return None,
        };
        Some(whom | more)
    })
}

/// The bits of a letter behind an operator, for all; not of `X`, which depends on what it is for.
pub fn permission(letter: char) -> Option<u16> {
    Some(match letter {
        'r' => 0o444,
        'w' => 0o222,
        'x' => 0o111,
        's' => 0o6000,
        't' => 0o1000,
        _ => return None,
    })
}
