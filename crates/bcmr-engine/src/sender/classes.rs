//! Globs, as git and fnmatch(3) write them, in the words of the library that matches: `[[:digit:]]` is `[0-9]`, a backslash in a
//! class takes its meaning from the next character, no class matches `/`, and a component of more than two stars is `**`.
//!
//! Must not know what a glob is for. POSIX.1-2024, XCU 2.14.1 and XBD 9.3.5; gitignore(5) has the same.

use std::borrow::Cow;
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

/// Why a class has no character, as what typed it is told.
const EMPTY: &str = "no character is in this class";
const OPEN: &str = "a class is not closed";

/// The line of a glob in the library's words.
///
/// # Errors
/// Why it matches nothing: one of them is not closed or empty, or names a class that there is not.
pub(super) fn plain(line: &str) -> Result<Cow<'_, str>, &'static str> {
    // Most have none of it.
    if line.starts_with('#') || !line.contains('[') && !line.contains("***") {
        return Ok(Cow::Borrowed(line));
    }
    let (sign, glob) = line.split_at(usize::from(line.starts_with('!')));
    let (mut out, mut rest, mut is_component) = (String::with_capacity(line.len()), glob, true);
    while let Some(next) = rest.chars().next() {
        let (text, behind) = match next {
            '\\' => split(rest, 1 + rest[1..].chars().next().map_or(0, char::len_utf8)),
            '[' => {
                let (class, behind) = Class::read(rest)?;
                out.push_str(&class.written()?);
                (rest, is_component) = (behind, false);
                continue;
            }
            '*' => {
                let behind = rest.trim_start_matches('*');
                let stars = rest.len() - behind.len();
                // git's `**` is a component of two stars or more.
                let is_whole = stars > 2 && is_component && (behind.is_empty() || behind.starts_with('/'));
                (if is_whole { "**" } else { rest.get(..stars).unwrap_or(rest) }, behind)
            }
            other => split(rest, other.len_utf8()),
        };
        is_component = text.ends_with('/');
        out.push_str(text);
        rest = behind;
    }
    // Whether it is about names or about paths was said before.
    let about_paths = |glob: &str| glob.strip_suffix('/').unwrap_or(glob).contains('/');
    let start = match (about_paths(glob), about_paths(&out)) {
        (true, false) => "/",
        (false, true) => "**/",
        _ => "",
    };
    Ok(Cow::Owned([sign, start, &out].concat()))
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
    /// The class that `text` begins with, and what stands behind it.
    fn read(text: &str) -> Result<(Class, &str), &'static str> {
        let mut chars = text.strip_prefix('[').unwrap_or(text).chars();
        let negated = chars.as_str().starts_with(['!', '^']);
        if negated {
            chars.next();
        }
        let (mut ranges, mut is_first) = (Vec::new(), true);
        // Up to here there is no name of a class; so many bytes stand behind that.
        let mut nameless = usize::MAX;
        loop {
            let next = chars.next().ok_or(OPEN)?;
            if next == ']' && !is_first {
                break;
            }
            is_first = false;
            let named = chars.as_str().strip_prefix(':').filter(|rest| next == '[' && rest.len() <= nameless);
            if let Some(rest) = named {
                let (name, behind) = rest.split_once(']').ok_or(OPEN)?;
                if let Some(name) = name.strip_suffix(':') {
                    let (_, of) = NAMED.iter().find(|(known, _)| *known == name).ok_or(EMPTY)?;
                    ranges.extend_from_slice(of);
                    chars = behind.chars();
                    continue;
                }
                nameless = behind.len();
            }
            let from = if next == '\\' { chars.next().ok_or(OPEN)? } else { next };
            let to = range_end(&mut chars)?.unwrap_or(from);
            // One that goes down is where it begins: that was met before the rest was.
            ranges.push((from, if from <= to { to } else { from }));
        }
        Ok((Class { negated, ranges }, chars.as_str()))
    }

    /// Takes a character out. Whether it was in.
    fn cut(&mut self, c: char) -> bool {
        let (before, after) = (char::from(c as u8 - 1), char::from(c as u8 + 1));
        let is_in = |(a, b): &(char, char)| (*a..=*b).contains(&c);
        let had = self.ranges.iter().any(is_in);
        let parts = |(a, b): (char, char)| {
            let both = [(a, b.min(before)), (a.max(after), b)];
            if is_in(&(a, b)) { both } else { [(a, b), (after, before)] }
        };
        self.ranges =
            std::mem::take(&mut self.ranges).into_iter().flat_map(parts).filter(|(a, b)| a <= b).collect();
        had
    }

    /// In the library's words, where `]` stands first, `-` last and a backslash for itself, and where `!` and `^` would negate
    /// what they begin. No class has `/`.
    fn written(mut self) -> Result<String, &'static str> {
        let [closes, dashes, not, hat, _] = [']', '-', '!', '^', '/'].map(|c| self.cut(c));
        let is_bare = !self.negated && !closes && self.ranges.is_empty();
        if is_bare && !dashes {
            let signs = match (not, hat) {
                (false, false) => return Err(EMPTY),
                (true, false) => "\\!",
                (false, true) => "\\^",
                (true, true) => "{!,^}",
            };
            return Ok(signs.to_owned());
        }
        self.ranges.sort_unstable();
        let mut out = String::from(if self.negated { "[!" } else { "[" });
        out.extend(closes.then_some(']'));
        out.extend((is_bare && dashes).then_some('-'));
        for (from, to) in self.ranges {
            out.push(from);
            if from != to {
                out.extend(['-', to]);
            }
        }
        let last = [(not, '!'), (hat, '^'), (self.negated, '/'), (dashes && !is_bare, '-'), (true, ']')];
        out.extend(last.into_iter().filter_map(|(is_in, c)| is_in.then_some(c)));
        Ok(out)
    }
}

/// The other end of a range, if one goes on here; a dash before the end of the class is itself.
fn range_end(chars: &mut Chars<'_>) -> Result<Option<char>, &'static str> {
    let rest = chars.as_str().strip_prefix('-');
    let Some(rest) = rest.filter(|rest| !rest.is_empty() && !rest.starts_with(']')) else { return Ok(None) };
    *chars = rest.chars();
    match chars.next().ok_or(OPEN)? {
        '\\' => chars.next().ok_or(OPEN).map(Some),
        to => Ok(Some(to)),
    }
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
            ("[![:alpha:]_]/b", Some("[!A-Z_a-z/]/b")),
            ("![^a]*/", Some("!**/[!a/]*/")),
            ("x[[:alpha:]-]", Some("x[A-Za-z-]")),
            ("[\\]]", Some("[]]")),
            ("[\\^]", Some("\\^")),
            ("[\\^!]", Some("{!,^}")),
            ("[\\!-#]", Some("[\"-#!]")),
            ("[-!]", Some("[-!]")),
            ("[!!]/", Some("**/[!!/]/")),
            ("\\[[:digit:]]", Some("\\[[::dgiit]]")),
            ("[\\a-c]", Some("[a-c]")),
            ("[z-ab]", Some("[bz]")),
            ("a[.-0]b", Some("a[.0]b")),
            ("a[b/]", Some("/a[b]")),
            ("[![:nothing:]]", None),
            ("[[:nothing:]]", None),
            ("[z-a]", Some("[z]")),
            ("[[:digit:]", None),
            ("[a?", None),
            ("[", None),
            ("b/[]", None),
            ("[[:a]b[:]", Some("[:[a]b[:]")),
            ("é[[:upper:]]é", Some("é[A-Z]é")),
            ("***/a", Some("**/a")),
            ("!****/**", Some("!**/**")),
            ("/a/***/b/***", Some("/a/**/b/**")),
            ("a/x***/***y/\\***", Some("a/x***/***y/\\***")),
            ("***", Some("**")),
        ] {
            assert_eq!(plain(glob).ok().as_deref(), want, "{glob}");
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
