//! Classes of characters in globs, as git and fnmatch(3) write them, in the words of the library that matches:
//! `[[:digit:]]` is `[0-9]`, and a backslash in a class takes its meaning from the next character.
//!
//! Must not know what a glob is for. POSIX.1-2024, XCU 2.14.1 and XBD 9.3.5; gitignore(5) has the same.

use std::borrow::Cow;
use std::iter::Peekable;
use std::str::Chars;

/// What a name of a class stands for in the C locale.
const NAMED: [(&str, &[(char, char)]); 12] = [
    ("alnum", &[('0', '9'), ('A', 'Z'), ('a', 'z')]),
    ("alpha", &[('A', 'Z'), ('a', 'z')]),
    ("blank", &[('\t', '\t'), (' ', ' ')]),
    ("cntrl", &[('\u{1}', '\u{1f}'), ('\u{7f}', '\u{7f}')]),
    ("digit", &[('0', '9')]),
    ("graph", &[('!', '~')]),
    ("lower", &[('a', 'z')]),
    ("print", &[(' ', '~')]),
    ("punct", &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')]),
    ("space", &[('\t', '\r'), (' ', ' ')]),
    ("upper", &[('A', 'Z')]),
    ("xdigit", &[('0', '9'), ('A', 'F'), ('a', 'f')]),
];

/// The glob with its classes in the library's words. `None`: one of them is not closed or names a class that there is not, and
/// matches nothing.
pub(super) fn plain(glob: &str) -> Option<Cow<'_, str>> {
    // Most have none of it.
    if !glob.contains('[') || !glob.contains("[:") && !glob.contains('\\') {
        return Some(Cow::Borrowed(glob));
    }
    let (mut out, mut rest) = (String::with_capacity(glob.len()), glob);
    while let Some(next) = rest.chars().next() {
        let (text, behind) = match next {
            '\\' => split(rest, 1 + rest[1..].chars().next().map_or(0, char::len_utf8)),
            '[' => {
                let (class, behind) = Class::read(rest)?;
                out.push_str(&class?.written()?);
                rest = behind;
                continue;
            }
            other => split(rest, other.len_utf8()),
        };
        out.push_str(text);
        rest = behind;
    }
    Some(Cow::Owned(out))
}

fn split(text: &str, at: usize) -> (&str, &str) {
    text.split_at_checked(at).unwrap_or((text, ""))
}

/// A class of characters.
struct Class {
    negated: bool,
    ranges: Vec<(char, char)>,
}

impl Class {
    /// The class that `text` begins with, or that it has a name which is none, and what stands behind it; `None`: it is not closed.
    fn read(text: &str) -> Option<(Option<Class>, &str)> {
        let mut chars = text.get(1..)?.chars().peekable();
        let negated = chars.next_if(|c| matches!(c, '!' | '^')).is_some();
        let (mut ranges, mut is_known, mut is_first) = (Vec::new(), true, true);
        loop {
            let next = chars.next()?;
            if next == ']' && !is_first {
                break;
            }
            is_first = false;
            if next == '[' && chars.peek() == Some(&':') {
                let rest: String = chars.clone().collect();
                if let Some((name, _)) = rest.get(1..).and_then(|rest| rest.split_once(":]")) {
                    match NAMED.iter().find(|(known, _)| *known == name) {
                        Some((_, of)) => ranges.extend_from_slice(of),
                        None => is_known = false,
                    }
                    // The colon, the name and what closes it.
                    chars.nth(name.chars().count() + 2);
                    continue;
                }
            }
            let from = if next == '\\' { chars.next()? } else { next };
            let to = range_end(&mut chars)?.unwrap_or(from);
            // One that goes down has nothing in it.
            if from <= to {
                ranges.push((from, to));
            }
        }
        let behind: usize = chars.map(char::len_utf8).sum();
        let behind = text.get(text.len() - behind..)?;
        Some((is_known.then_some(Class { negated, ranges }), behind))
    }

    /// In the library's words, where `]` stands first, `-` last and a backslash for itself. `None`: nothing is in it.
    fn written(mut self) -> Option<String> {
        let has = |c: char, ranges: &[(char, char)]| ranges.iter().any(|(a, b)| (*a..=*b).contains(&c));
        let (closes, dashes) = (has(']', &self.ranges), has('-', &self.ranges));
        let apart = |c: char, ranges: Vec<(char, char)>| -> Vec<(char, char)> {
            let (before, after) = (char::from(c as u8 - 1), char::from(c as u8 + 1));
            let cut = |(a, b): (char, char)| {
                let low = (a, b.min(before));
                let high = (a.max(after), b);
                if (a..=b).contains(&c) { [low, high] } else { [(a, b), (after, before)] }
            };
            ranges.into_iter().flat_map(cut).filter(|(a, b)| a <= b).collect()
        };
        self.ranges = apart('-', apart(']', self.ranges));
        let signs = |(a, _): &(char, char)| matches!(a, '!' | '^');
        self.ranges.sort_by_key(|range| (signs(range), *range));
        let is_empty = !closes && !dashes && self.ranges.is_empty();
        // What begins with one of these would be negated by it.
        if is_empty || !self.negated && !closes && self.ranges.first().is_some_and(signs) {
            return match *self.ranges {
                [(a, b)] if a == b && !dashes => Some(format!("\\{a}")),
                _ => None,
            };
        }
        let mut out = String::from(if self.negated { "[!" } else { "[" });
        out.extend(closes.then_some(']'));
        for (from, to) in self.ranges {
            out.push(from);
            if from != to {
                out.extend(['-', to]);
            }
        }
        out.extend(dashes.then_some('-'));
        out.push(']');
        Some(out)
    }
}

/// The other end of a range, if one goes on here; a dash before the end of the class is itself.
fn range_end(chars: &mut Peekable<Chars<'_>>) -> Option<Option<char>> {
    let mut ahead = chars.clone();
    if ahead.next() != Some('-') || ahead.next().is_none_or(|next| next == ']') {
        return Some(None);
    }
    chars.next();
    Some(Some(match chars.next()? {
        '\\' => chars.next()?,
        to => to,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ignore::gitignore::GitignoreBuilder;

    #[test]
    fn classes_are_written_as_the_library_reads_them() {
        for (glob, want) in [
            ("a*b", Some("a*b")),
            ("[[:digit:]]*", Some("[0-9]*")),
            ("[![:alpha:]_]", Some("[!A-Z_a-z]")),
            ("x[[:alpha:]-]", Some("x[A-Za-z-]")),
            ("[\\]]", Some("[]]")),
            ("[\\^]", Some("\\^")),
            ("\\[[:digit:]]", Some("\\[[::dgiit]]")),
            ("[\\a-c]", Some("[a-c]")),
            ("[[:nothing:]]", None),
            ("[[:digit:]", None),
            ("é[[:upper:]]é", Some("é[A-Z]é")),
        ] {
            assert_eq!(plain(glob).as_deref(), want, "{glob}");
        }
    }

    /// The judge: what a class has is asked of the glob, character by character.
    #[test]
    fn a_class_matches_what_it_names() {
        for (name, of) in NAMED {
            for negated in ["", "!"] {
                let glob = format!("x[{negated}[:{name}:]]");
                let mut builder = GitignoreBuilder::new("");
                builder.add_line(None, &plain(&glob).unwrap()).unwrap();
                let built = builder.build().unwrap();
                for c in (1..127).map(char::from).filter(|c| *c != '/') {
                    let within = of.iter().any(|(a, b)| (*a..=*b).contains(&c));
                    let matched = built.matched(format!("x{c}"), false).is_ignore();
                    assert_eq!(matched, within == negated.is_empty(), "{glob} {c:?}");
                }
            }
        }
    }
}
