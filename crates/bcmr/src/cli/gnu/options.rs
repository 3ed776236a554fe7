//! Options as GNU programs take them: in any order, letters in clusters, long names abbreviated, and words chosen from
//! a list. What is wrong with them is said in GNU's words.
//!
//! Must not know what any option does.

use super::messages::{self, Locale};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Whether an option takes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// None.
    Nothing,
    /// One, only together with the option itself (`--name=VALUE`).
    Maybe,
    /// One, maybe the next word.
    Value,
}

/// An option with a letter.
pub type Short<O> = (u8, Takes, O);
/// An option with a long name.
pub type Long<O> = (&'static str, Takes, O);

/// The options of one program.
#[derive(Clone, Copy)]
pub struct Table<O: 'static> {
    /// What it is called in front of messages.
    pub program: &'static str,
    /// Letters.
    pub shorts: &'static [Short<O>],
    /// Long names, in the order in which ambiguous ones are listed.
    pub longs: &'static [Long<O>],
}

/// What may be typed as the value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// One of these words.
    Words(Vec<&'static str>),
    /// Some of them, with commas between.
    List(Vec<&'static str>),
    /// The name of something that is there.
    Name,
    /// What only the user knows.
    Free,
}

impl Values {
    /// One word of each row.
    pub fn words<V>(rows: &[(&[&'static str], V)]) -> Vec<&'static str> {
        rows.iter().filter_map(|(names, _)| names.first().copied()).collect()
    }
}

impl<O> Table<O> {
    /// The long names as they may be typed; those that take a value end with `=`.
    pub fn long_words(&self) -> Vec<String> {
        let word = |(name, takes, _): &Long<O>| {
            let end = if *takes == Takes::Value { "=" } else { "" };
            format!("--{name}{end}")
        };
        let is_told = |(name, ..): &&Long<O>| !name.starts_with('-');
        self.longs.iter().filter(is_told).map(word).collect()
    }
}

impl<O: PartialEq> Table<O> {
    /// The option of a long name, which may be abbreviated; else all that it may be short for.
    pub fn named(&self, name: &[u8]) -> Result<&'static Long<O>, Vec<&'static Long<O>>> {
        if let Some(exact) = self.longs.iter().find(|(full, ..)| full.as_bytes() == name) {
            return Ok(exact);
        }
        let like: Vec<_> = self.longs.iter().filter(|(full, ..)| full.as_bytes().starts_with(name)).collect();
        match like.as_slice() {
            // Two names of one option are no choice.
            [first, others @ ..] if others.iter().all(|other| (other.1, &other.2) == (first.1, &first.2)) => {
                Ok(*first)
            }
            _ => Err(like),
        }
    }
}

/// What is wrong with a command line: whole lines for standard error.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The lines.
    pub text: Vec<u8>,
}

impl Wrong {
    /// One line, with the program's name in front, and where to look for help.
    pub fn usage(program: &str, line: impl AsRef<[u8]>) -> Wrong {
        let mut text = Wrong::line(program, line).text;
        text.extend_from_slice(messages::try_help(program).as_bytes());
        Wrong { text }
    }

    /// One line, with the program's name in front.
    pub fn line(program: &str, line: impl AsRef<[u8]>) -> Wrong {
        let mut text = format!("{program}: ").into_bytes();
        text.extend_from_slice(line.as_ref());
        text.push(b'\n');
        Wrong { text }
    }
}

/// The words of a command line, taken one option after the other.
pub struct GetOpt<O: 'static> {
    table: Table<O>,
    rest: VecDeque<OsString>,
    /// Letters of a cluster that are still to be taken.
    cluster: Vec<u8>,
    /// What is no option, in order.
    pub operands: Vec<OsString>,
    /// The first operand ends the options (`POSIXLY_CORRECT`).
    posixly: bool,
}

impl<O: Copy + PartialEq> GetOpt<O> {
    /// The words behind the program's name.
    pub fn new(table: Table<O>, words: impl IntoIterator<Item = OsString>, posixly: bool) -> GetOpt<O> {
        let rest = words.into_iter().collect();
        GetOpt { table, rest, cluster: Vec::new(), operands: Vec::new(), posixly }
    }

    /// The next option with its value; `None` once only operands are left.
    pub fn next(&mut self) -> Result<Option<(O, Option<OsString>)>, Wrong> {
        loop {
            if !self.cluster.is_empty() {
                return self.letter().map(Some);
            }
            let Some(word) = self.rest.pop_front() else { return Ok(None) };
            match word.as_bytes() {
                b"--" => {
                    self.operands.extend(self.rest.drain(..));
                    return Ok(None);
                }
                [b'-', b'-', name @ ..] => return self.long(name).map(Some),
                [b'-', letters @ ..] if !letters.is_empty() => self.cluster = letters.to_vec(),
                _ => {
                    self.operands.push(word);
                    if self.posixly {
                        self.operands.extend(self.rest.drain(..));
                    }
                }
            }
        }
    }

    fn wrong(&self, line: &[&[u8]]) -> Wrong {
        Wrong::usage(self.table.program, line.concat())
    }

    fn letter(&mut self) -> Result<(O, Option<OsString>), Wrong> {
        let letter = self.cluster.remove(0);
        let Some((_, takes, option)) = self.table.shorts.iter().find(|(l, ..)| *l == letter) else {
            self.cluster.clear();
            return Err(self.wrong(&[b"invalid option -- '", &messages::shown(&[letter]), b"'"]));
        };
        let value = match takes {
            Takes::Nothing => return Ok((*option, None)),
            _ if !self.cluster.is_empty() => Some(OsString::from_vec(std::mem::take(&mut self.cluster))),
            Takes::Maybe => None,
            Takes::Value => Some(
                self.rest
                    .pop_front()
                    .ok_or_else(|| self.wrong(&[b"option requires an argument -- '", &[letter], b"'"]))?,
            ),
        };
        Ok((*option, value))
    }

    fn long(&mut self, word: &[u8]) -> Result<(O, Option<OsString>), Wrong> {
        let mut parts = word.splitn(2, |b| *b == b'=');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next());
        let (full, takes, option) = match self.table.named(name) {
            Ok(named) => named,
            Err(like) if like.is_empty() => {
                return Err(self.wrong(&[b"unrecognized option '--", &messages::shown(name), b"'"]));
            }
            Err(like) => {
                let all: String = like.iter().map(|(full, ..)| format!(" '--{full}'")).collect();
                let head = b"' is ambiguous; possibilities:";
                return Err(self.wrong(&[b"option '--", name, head, all.as_bytes()]));
            }
        };
        let full = full.as_bytes();
        let value = match (takes, value) {
            (Takes::Nothing, Some(_)) => {
                return Err(self.wrong(&[b"option '--", full, b"' doesn't allow an argument"]));
            }
            (Takes::Value, None) => Some(
                self.rest
                    .pop_front()
                    .ok_or_else(|| self.wrong(&[b"option '--", full, b"' requires an argument"]))?,
            ),
            (_, value) => value.map(|v| OsStr::from_bytes(v).to_owned()),
        };
        Ok((*option, value))
    }
}

/// A word chosen from a list, maybe abbreviated: `rows` hold the names of each value.
pub fn choose<V: Copy + PartialEq>(
    program: &str,
    locale: Locale,
    context: &str,
    word: &OsStr,
    rows: &[(&[&str], V)],
) -> Result<V, Wrong> {
    let word = word.as_bytes();
    let all = || rows.iter().flat_map(|(names, value)| names.iter().map(move |name| (*name, *value)));
    if let Some((_, value)) = all().find(|(name, _)| name.as_bytes() == word) {
        return Ok(value);
    }
    let mut like = all().filter(|(name, _)| name.as_bytes().starts_with(word)).map(|(_, value)| value);
    let first = like.next();
    if let Some(value) = first
        && like.all(|other| other == value)
    {
        return Ok(value);
    }
    let kind = if first.is_some() { "ambiguous" } else { "invalid" };
    let quote = |word: &[u8]| messages::locale_quoted(locale, word);
    let mut text = format!("{program}: {kind} argument ").into_bytes();
    text.extend(quote(word));
    text.extend(b" for ");
    text.extend(quote(context.as_bytes()));
    text.extend(b"\nValid arguments are:\n");
    for (names, _) in rows {
        let names: Vec<Vec<u8>> = names.iter().map(|name| quote(name.as_bytes())).collect();
        text.extend(b"  - ");
        text.extend(names.join(&b", "[..]));
        text.push(b'\n');
    }
    text.extend(messages::try_help(program).as_bytes());
    Err(Wrong { text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Takes::{Maybe, Nothing, Value};

    const TABLE: Table<char> = Table {
        program: "p",
        shorts: &[(b'a', Nothing, 'a'), (b's', Value, 's'), (b'm', Maybe, 'm')],
        longs: &[
            ("alpha", Nothing, 'a'),
            ("alpine", Nothing, 'A'),
            ("suffix", Value, 's'),
            ("maybe", Maybe, 'm'),
            ("perhaps", Maybe, 'm'),
            ("person", Maybe, 'm'),
        ],
    };

    fn of(line: &str, posixly: bool) -> (String, Vec<String>) {
        let mut words = GetOpt::new(TABLE, line.split(' ').map(OsString::from), posixly);
        let mut said = String::new();
        loop {
            match words.next() {
                Ok(Some((option, value))) => {
                    said.push(option);
                    if let Some(value) = value {
                        said.push_str(&format!("={}", value.to_string_lossy()));
                    }
                    said.push(' ');
                }
                Ok(None) => break,
                Err(wrong) => {
                    said.push_str(&String::from_utf8_lossy(&wrong.text));
                    break;
                }
            }
        }
        (said, words.operands.iter().map(|w| w.to_string_lossy().into_owned()).collect())
    }

    #[test]
    fn options_come_in_any_order_clustered_and_abbreviated() {
        assert_eq!(
            of("x -as1 - --suf 2 y --may=3 -- -a", false),
            ("a s=1 s=2 m=3 ".into(), vec!["x".into(), "-".into(), "y".into(), "-a".into()])
        );
        assert_eq!(of("x -a", true), (String::new(), vec!["x".into(), "-a".into()]));
        assert_eq!(of("-am x --per", false).0, "a m m ");
    }

    #[test]
    fn mistakes_are_told_in_the_words_that_scripts_know() {
        let help = "Try 'p --help' for more information.\n";
        for (line, want) in [
            ("-q", "p: invalid option -- 'q'\n"),
            ("-s", "p: option requires an argument -- 's'\n"),
            ("--suffix", "p: option '--suffix' requires an argument\n"),
            ("--alpha=1", "p: option '--alpha' doesn't allow an argument\n"),
            ("--be\x1b]0;ta\x07é", "p: unrecognized option '--be\\033]0;ta\\aé'\n"),
            ("-\x07", "p: invalid option -- '\\a'\n"),
            ("--beta", "p: unrecognized option '--beta'\n"),
            ("--al", "p: option '--al' is ambiguous; possibilities: '--alpha' '--alpine'\n"),
        ] {
            assert_eq!(of(line, false).0, format!("{want}{help}"), "{line}");
        }
    }
}
