//! Modes as `chmod` takes them, in digits or in letters, from nothing.
//!
//! Must not know what gets the mode.

use crate::cli::symbolic;

const SETID: u32 = 0o6000;

/// A mode, and which of its bits are said. Those that are not said a directory keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    pub bits: u32,
    pub said: u32,
}

impl Mode {
    /// All of it is said.
    pub const fn exactly(bits: u32) -> Mode {
        Mode { bits, said: 0o7777 }
    }
}

/// The mode that `text` makes of nothing, for a directory or not; `None` when it is none.
pub fn parse(text: &str, is_dir: bool) -> Option<Mode> {
    if let Some(bits) = symbolic::octal(text).map(u32::from) {
        // A directory's setuid and setgid are taken away only by five digits.
        let left_alone = if is_dir && text.len() < 5 { SETID & !bits } else { 0 };
        return Some(Mode { bits, said: 0o7777 & !left_alone });
    }
    let nothing = Mode { bits: 0, said: 0 };
    text.split(',').try_fold(nothing, |mode, clause| apply(mode, clause, is_dir))
}

fn apply(Mode { bits: mut mode, mut said }: Mode, clause: &str, is_dir: bool) -> Option<Mode> {
    let start = clause.find(['+', '-', '='])?;
    let (who, mut rest) = clause.split_at(start);
    let whom = u32::from(symbolic::whom(who)?);
    while let Some(op) = rest.chars().next() {
        rest = rest.get(1..)?;
        let end = rest.find(['+', '-', '=']).unwrap_or(rest.len());
        let (letters, next) = rest.split_at(end);
        rest = next;
        let bits = match letters {
            "u" => spread(mode >> 6),
            "g" => spread(mode >> 3),
            "o" => spread(mode),
            digits if !digits.is_empty() && digits.bytes().all(|b| (b'0'..=b'7').contains(&b)) => {
                u32::from_str_radix(digits, 8).ok()?
            }
            letters => {
                let mut bits = 0;
                for letter in letters.chars() {
                    bits |= match letter {
                        'X' if is_dir || mode & 0o111 != 0 => 0o111,
                        'X' => 0,
                        other => u32::from(symbolic::permission(other)?),
                    };
                }
                bits
            }
        };
        // `t` belongs to all, and `s` to user and group.
        let bits = bits & whom;
        match op {
            '+' => (mode, said) = (mode | bits, said | bits),
            '-' => (mode, said) = (mode & !bits, said | bits),
            // Of a directory it takes setuid and setgid away only where it names them.
            _ => {
                let whom = if is_dir { whom & !(SETID & !bits) } else { whom };
                (mode, said) = ((mode & !whom) | bits, said | whom);
            }
        }
    }
    Some(Mode { bits: mode, said })
}

/// Three bits for all.
fn spread(bits: u32) -> u32 {
    (bits & 7) * 0o111
}

#[cfg(test)]
mod tests {
    use super::{Mode, parse};

    #[test]
    fn modes() {
        for (text, file, dir) in [
            ("755", Some(0o755), Some(0o755)),
            ("04755", Some(0o4755), Some(0o4755)),
            ("999", None, None),
            ("77777", None, None),
            ("u=rwx,g=rx,o=", Some(0o750), Some(0o750)),
            ("u+s", Some(0o4000), Some(0o4000)),
            ("=rw", Some(0o666), Some(0o666)),
            ("u=rwx,go=rX", Some(0o755), Some(0o755)),
            ("a=rX", Some(0o444), Some(0o555)),
            ("u=rw,g=u,o=g-w", Some(0o664), Some(0o664)),
            ("u=rwx,g=q", None, None),
            ("", None, None),
            ("u", None, None),
        ] {
            let bits = |is_dir| parse(text, is_dir).map(|mode| mode.bits);
            assert_eq!((bits(false), bits(true)), (file, dir), "{text}");
        }
    }

    #[test]
    fn what_a_directory_keeps() {
        for (text, bits, said) in [
            ("755", 0o755, 0o1777),
            ("2755", 0o2755, 0o3777),
            ("00755", 0o755, 0o7777),
            ("u=rwx,go=rx", 0o755, 0o1777),
            ("u=rwxs", 0o4700, 0o4700),
            ("g-s", 0, 0o2000),
            ("a+r", 0o444, 0o444),
            ("=rx", 0o555, 0o1777),
        ] {
            assert_eq!(parse(text, true), Some(Mode { bits, said }), "{text}");
        }
        assert_eq!(parse("755", false), Some(Mode::exactly(0o755)));
    }
}
