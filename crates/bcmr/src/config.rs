//! The configuration file: what holds for every remote copy, for single hosts, and for what this machine serves.
//!
//! Pure: text in, values out. Must not know how it is read, the command line or what the values are used for. A key that
//! is not known is an error with its file and line: a misspelt `bootstrap = false` must not be a silent yes. So is a value that
//! could not be typed.

use crate::address::{self, Operand};
use crate::cli::bcmr::size::size;
use crate::names;
use crate::usage::Usage;
use crate::values;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;

/// What may be said once, or of one host; what is absent is left to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Defaults {
    /// The command that connects.
    #[serde(default, deserialize_with = "ssh")]
    pub ssh: Option<Vec<String>>,
    /// What the other side's program is called there.
    #[serde(default, deserialize_with = "program")]
    pub program: Option<String>,
    /// Connections.
    #[serde(default, deserialize_with = "parallel")]
    pub parallel: Option<u16>,
    /// Compression.
    #[serde(default, deserialize_with = "compress")]
    pub compress: Option<CompressWord>,
    /// Where the data goes.
    #[serde(default, deserialize_with = "direct")]
    pub direct: Option<PlaneWord>,
    /// The store of blocks at the destination may be used.
    pub dedup: Option<bool>,
    /// Connecting again after the connection was lost.
    #[serde(default, deserialize_with = "retries")]
    pub retries: Option<u32>,
    /// This program may be put into the cache of a host that lacks it.
    pub bootstrap: Option<bool>,
}

/// `compress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressWord {
    Auto,
    Zstd,
    Lz4,
    None,
}

/// `direct`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaneWord {
    Ssh,
    Direct,
}

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    all: Defaults,
    host: BTreeMap<String, Defaults>,
    store: StoreTable,
    places: BTreeMap<String, String>,
    defaults: BTreeMap<String, Vec<String>>,
}

/// `[store]`: the stores of blocks on this machine, that of `bcmr serve` and that of downloads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoreTable {
    /// How much of blocks it may keep beyond the removal of what landed.
    #[serde(default, deserialize_with = "keep")]
    keep: Option<u64>,
}

// Not `flatten`, which would let unknown keys through.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default, deserialize_with = "ssh")]
    ssh: Option<Vec<String>>,
    #[serde(default, deserialize_with = "program")]
    program: Option<String>,
    #[serde(default, deserialize_with = "parallel")]
    parallel: Option<u16>,
    #[serde(default, deserialize_with = "compress")]
    compress: Option<CompressWord>,
    #[serde(default, deserialize_with = "direct")]
    direct: Option<PlaneWord>,
    dedup: Option<bool>,
    #[serde(default, deserialize_with = "retries")]
    retries: Option<u32>,
    bootstrap: Option<bool>,
    #[serde(default)]
    host: BTreeMap<String, Defaults>,
    #[serde(default)]
    store: StoreTable,
    #[serde(default)]
    places: BTreeMap<PlaceName, PlacePath>,
    #[serde(default)]
    defaults: VerbTable,
}

/// `[defaults]`: words that stand behind a verb before what is typed.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct VerbTable {
    copy: Option<Vec<Word>>,
    #[serde(rename = "move")]
    move_: Option<Vec<Word>>,
    remove: Option<Vec<Word>>,
    check: Option<Vec<Word>>,
    sync: Option<Vec<Word>>,
    ls: Option<Vec<Word>>,
    du: Option<Vec<Word>>,
}

/// A value that is `said` in its own type, if it makes sense.
fn checked<'de, D, S, T>(from: D, read: impl FnOnce(S) -> Result<T, String>) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    S: Deserialize<'de>,
{
    read(S::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

fn ssh<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<String>>, D::Error> {
    checked(from, |words: Words| {
        let words = match words {
            Words::Line(line) => values::command(&line),
            Words::List(words) => values::names_one(words),
        };
        words.map_err(|why| format!("ssh {why}"))
    })
}

fn program<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    checked(from, |name: String| match values::is_program(&name) {
        true => Ok(name),
        false => {
            Err(format!("{} cannot be what bcmr is called there, but {}", quoted(&name), values::PROGRAM))
        }
    })
}

fn parallel<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u16>, D::Error> {
    checked(from, |number| within(number, values::PARALLEL))
}

fn retries<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    checked(from, |number| within(number, values::RETRIES))
}

fn within<T: TryFrom<i64>>(Number(number): Number, range: RangeInclusive<i64>) -> Result<T, String> {
    let (least, most) = (*range.start(), *range.end());
    let number_in = i64::try_from(number).ok().filter(|number| range.contains(number));
    number_in
        .and_then(|number| T::try_from(number).ok())
        .ok_or(format!("{number} is not in {least}..={most}"))
}

fn compress<'de, D: Deserializer<'de>>(from: D) -> Result<Option<CompressWord>, D::Error> {
    let words = [
        ("auto", CompressWord::Auto),
        ("zstd", CompressWord::Zstd),
        ("lz4", CompressWord::Lz4),
        ("none", CompressWord::None),
    ];
    checked(from, |word: String| one_of(&words, &word))
}

fn direct<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PlaneWord>, D::Error> {
    let words = [("ssh", PlaneWord::Ssh), ("direct", PlaneWord::Direct)];
    checked(from, |word: String| one_of(&words, &word))
}

fn one_of<T: Copy>(words: &[(&str, T)], word: &str) -> Result<T, String> {
    let known = words.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    known.ok_or_else(|| {
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        format!("{} is none of {}", quoted(word), names.join(", "))
    })
}

fn keep<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    checked(from, |said: String| size(&said).map_err(|why| format!("{} is no size: {why}", quoted(&said))))
}

fn quoted(word: &str) -> String {
    names::quoted(Path::new(word))
}

/// A command, as one line (split like a shell would) or as a list of words.
enum Words {
    Line(String),
    List(Vec<String>),
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Words, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Words;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a command in quotes, or a list of its words")
            }
            fn visit_str<E: serde::de::Error>(self, line: &str) -> Result<Words, E> {
                Ok(Words::Line(line.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Words, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = all.next_element()? {
                    words.push(word);
                }
                Ok(Words::List(words))
            }
        }
        from.deserialize_any(Either)
    }
}

/// A whole number, as far as a file may say one.
struct Number(i128);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Number, D::Error> {
        struct Whole;
        impl Visitor<'_> for Whole {
            type Value = Number;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }
            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Number, E> {
                self.visit_i128(number.into())
            }
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Number, E> {
                self.visit_i128(number.into())
            }
            fn visit_i128<E: serde::de::Error>(self, number: i128) -> Result<Number, E> {
                Ok(Number(number))
            }
            fn visit_u128<E: serde::de::Error>(self, number: u128) -> Result<Number, E> {
                Ok(Number(i128::try_from(number).unwrap_or(i128::MAX)))
            }
        }
        from.deserialize_any(Whole)
    }
}

/// What is typed behind `@`.
#[derive(PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
struct PlaceName(String);

impl TryFrom<String> for PlaceName {
    type Error = String;

    fn try_from(name: String) -> Result<PlaceName, String> {
        if name.is_empty() || name.contains(['/', '@', ':']) {
            let why = "it is typed behind @, and ends at the first slash";
            return Err(format!("{} is no name of a place: {why}", quoted(&name)));
        }
        Ok(PlaceName(name))
    }
}

/// What a place stands for, wherever its name is typed: a whole path, one below the home directory, or one on another machine.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct PlacePath(String);

impl TryFrom<String> for PlacePath {
    type Error = String;

    fn try_from(place: String) -> Result<PlacePath, String> {
        match address::parse(Path::new(&place)).map_err(|usage| usage.said)? {
            Operand::Here(path) if !path.is_absolute() && !path.starts_with("~") => {
                let why = "a path from / or ~ on, or host:path";
                Err(format!("{} is no place, which is {why}", quoted(&place)))
            }
            _ => Ok(PlacePath(place)),
        }
    }
}

/// One of the words of defaults. An operand among them would be copied, or removed, by every command.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Word(String);

impl TryFrom<String> for Word {
    type Error = String;

    fn try_from(word: String) -> Result<Word, String> {
        if !word.starts_with('-') || matches!(word.as_str(), "-" | "--") {
            let why = "a value stands in the same word as its option: --jobs=4";
            return Err(format!("{} is no option, as defaults are; {why}", quoted(&word)));
        }
        Ok(Word(word))
    }
}

/// The verbs that may have defaults.
pub const WITH_DEFAULTS: [&str; 7] = ["copy", "move", "remove", "check", "sync", "ls", "du"];

impl Config {
    /// What `@name` stands for.
    pub fn places(&self) -> &BTreeMap<String, String> {
        &self.places
    }

    /// Words that stand behind each verb before what is typed.
    pub fn defaults(&self) -> &BTreeMap<String, Vec<String>> {
        &self.defaults
    }

    /// How much of blocks each store here may keep.
    pub fn store_keep(&self) -> Option<u64> {
        self.store.keep
    }

    /// What holds for a host: its own table, then what is said for all. Names are compared as they were typed, as
    /// ssh compares them with `Host`.
    pub fn of(&self, host: &str) -> Defaults {
        let own = self.host.get(host).cloned().unwrap_or_default();
        let all = self.all.clone();
        Defaults {
            ssh: own.ssh.or(all.ssh),
            program: own.program.or(all.program),
            parallel: own.parallel.or(all.parallel),
            compress: own.compress.or(all.compress),
            direct: own.direct.or(all.direct),
            dedup: own.dedup.or(all.dedup),
            retries: own.retries.or(all.retries),
            bootstrap: own.bootstrap.or(all.bootstrap),
        }
    }
}

/// Understands the text of a file; errors name the file and the line.
pub fn parse(text: &str, file: &Path) -> Result<Config, Usage> {
    let at = |line: usize, why: &str| {
        let why: Vec<&str> = why.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        Usage::new(format!("{} line {line}: {}", names::quoted(file), names::text(&why.join(" "))))
            .or("docs/remote.md lists what a configuration may say")
    };
    let read: File = toml::from_str(text).map_err(|e| {
        let start = e.span().map_or(0, |span| span.start.min(text.len()));
        let line = text.as_bytes().iter().take(start).filter(|b| **b == b'\n').count() + 1;
        at(line, e.message())
    })?;
    let File {
        ssh,
        program,
        parallel,
        compress,
        direct,
        dedup,
        retries,
        bootstrap,
        host,
        store,
        places,
        defaults,
    } = read;
    let all = Defaults { ssh, program, parallel, compress, direct, dedup, retries, bootstrap };
    let places = places.into_iter().map(|(name, place)| (name.0, place.0)).collect();
    let VerbTable { copy, move_, remove, check, sync, ls, du } = defaults;
    let verbs = WITH_DEFAULTS.into_iter().zip([copy, move_, remove, check, sync, ls, du]);
    let words = |words: Vec<Word>| words.into_iter().map(|word| word.0).collect();
    let defaults = verbs.filter_map(|(verb, said)| Some((verb.to_owned(), words(said?)))).collect();
    Ok(Config { all, host, store, places, defaults })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Config, String> {
        parse(text, Path::new("/c/config.toml")).map_err(|u| u.said)
    }

    #[test]
    fn a_host_overrides_what_is_said_for_all() {
        let text = "ssh = 'ssh -4'\nparallel = 2\nbootstrap = true\ncompress = 'zstd'\ndirect = 'direct'\n\
                    [host.\"a.example\"]\nparallel = 4\nbootstrap = false\nssh = ['/opt/my ssh', '-x']\n\
                    [host.b]\nretries = 9\ndedup = false\nprogram = '/opt/bcmr'\n";
        let config = of(text).unwrap();
        let a = config.of("a.example");
        assert_eq!((a.parallel, a.bootstrap, a.retries), (Some(4), Some(false), None));
        assert_eq!(a.ssh, Some(vec!["/opt/my ssh".into(), "-x".into()]));
        assert_eq!((a.compress, a.direct), (Some(CompressWord::Zstd), Some(PlaneWord::Direct)));
        let b = config.of("b");
        assert_eq!((b.parallel, b.retries, b.dedup), (Some(2), Some(9), Some(false)));
        assert_eq!(b.program.as_deref(), Some("/opt/bcmr"));
        assert_eq!(config.of("A.example").parallel, Some(2));
        assert_eq!(of("").unwrap(), Config::default());
        assert_eq!(config.store_keep(), None);
        assert_eq!(of("[store]\nkeep = '64K'\n").unwrap().store_keep(), Some(65_536));
        assert_eq!(of("store.keep = '0'\n").unwrap().store_keep(), Some(0));
    }

    #[test]
    fn places_are_whole_paths() {
        for place in ["/", "/srv/a", "~", "~/a", "h:", "h:a", "me@h:/a", "ssh://h:22/a", "[::1]:a"] {
            assert!(of(&format!("[places]\nnas = '{place}'\n")).is_ok(), "{place}");
        }
    }

    #[test]
    fn what_is_not_understood_names_file_and_line() {
        for (text, line, why) in [
            ("paralel = 2\n", 1, "unknown field `paralel`"),
            ("# a\n\nparallel = 'x'\n", 3, "a whole number"),
            ("parallel = 0\n", 1, "0 is not in 1..=64"),
            ("[host.a]\n\nretries = 1001\n", 3, "1001 is not in 0..=1000"),
            ("retries = -1\n", 1, "-1 is not in"),
            ("parallel = 99999999999999999999\n", 1, "99999999999999999999 is not in 1..=64"),
            ("retries = 1.5\n", 1, "a whole number"),
            ("ssh = ''\n", 1, "ssh names no command"),
            ("ssh = []\n", 1, "ssh names no command"),
            ("ssh = ['']\n", 1, "ssh names no command"),
            ("ssh = 'a \"b'\n", 1, "not closed"),
            ("ssh = {}\n", 1, "a command in quotes"),
            ("ssh = [1]\n", 1, ""),
            ("program = '-x'\n", 1, "'-x' cannot be what bcmr is called there"),
            ("program = ''\n", 1, "cannot be what bcmr is called there"),
            ("compress = 3\n", 1, ""),
            ("direct = 'tcp'\n", 1, "'tcp' is none of ssh, direct"),
            ("[store]\nkeep = '4.5G'\n", 2, "'4.5G' is no size"),
            ("[places]\na = '/x'\nnas = ''\n", 3, "'' is no place"),
            ("[places]\nnas = ' '\n", 2, "is no place"),
            ("[places]\nnas = 'h1'\n", 2, "is no place"),
            ("[places]\nnas = 'rel/dir'\n", 2, "is no place"),
            ("[places]\nnas = './h:x'\n", 2, "is no place"),
            ("[places]\nnas = '~me/x'\n", 2, "is no place"),
            ("[places]\nnas = '@n/x'\n", 2, "is no place"),
            ("[places]\nnas = '@n:x'\n", 2, ""),
            ("[places]\nnas = 's3://x/y'\n", 2, ""),
            ("[places]\n'a/b' = '/x'\n", 2, "no name of a place"),
            ("[defaults]\ncopy = ['-r', 'x']\n", 2, "'x' is no option"),
            ("[defaults]\ncopy = ['--']\n", 2, "'--' is no option"),
            ("parallel = 70000\n", 1, "70000"),
            ("[host.a]\nbootstrap = true\nboostrap = false\n", 3, "unknown field `boostrap`"),
            ("compress = 'gzip'\n", 1, "'gzip' is none of auto, zstd, lz4, none"),
            ("ssh = 3\n", 1, ""),
            ("parallel = \n", 1, ""),
            ("parallel = 1\nparallel = 2\n", 2, "duplicate"),
            ("[hosts.a]\n", 1, "unknown field `hosts`"),
            ("[store]\nkeep = 4\n", 2, "string"),
            ("[store]\nkept = '4G'\n", 2, "unknown field `kept`"),
            ("[host.a]\nstore.keep = '4G'\n", 2, "unknown field `store`"),
            ("\"a\\u001b[2J\" = 1\n", 1, "\\x1b"),
        ] {
            let said = of(text).expect_err(text);
            assert!(said.starts_with(&format!("'/c/config.toml' line {line}: ")), "{text:?}: {said}");
            assert!(said.contains(why), "{text:?}: {said}");
            assert!(!said.chars().any(names::is_unsafe), "{said:?}");
        }
    }
}
