//! The configuration file: what holds for every remote copy, for single hosts, and for what this machine serves.
//!
//! Pure: text in, values out. Must not know how it is read, the command line or what the values are used for. A key that
//! is not known is an error with its file and line: a misspelt `bootstrap = false` must not be a silent yes.

use crate::names;
use crate::usage::Usage;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// What may be said once, or of one host; what is absent is left to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Defaults {
    /// The command that connects, as one line (split like a shell would) or as a list of words.
    pub ssh: Option<Words>,
    /// What the other side's program is called there.
    pub program: Option<String>,
    /// Connections.
    pub parallel: Option<u16>,
    /// Compression.
    pub compress: Option<CompressWord>,
    /// Where the data goes.
    pub direct: Option<PlaneWord>,
    /// The store of blocks at the destination may be used.
    pub dedup: Option<bool>,
    /// Connecting again after the connection was lost.
    pub retries: Option<u32>,
    /// This program may be put into the cache of a host that lacks it.
    pub bootstrap: Option<bool>,
}

/// `ssh`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Words {
    Line(String),
    List(Vec<String>),
}

/// `compress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CompressWord {
    Auto,
    Zstd,
    Lz4,
    None,
}

/// `direct`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
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
    /// How much of blocks it may keep beyond the removal of what landed, as it stands there.
    keep: Option<String>,
}

// Not `flatten`, which would let unknown keys through.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    ssh: Option<Words>,
    program: Option<String>,
    parallel: Option<u16>,
    compress: Option<CompressWord>,
    direct: Option<PlaneWord>,
    dedup: Option<bool>,
    retries: Option<u32>,
    bootstrap: Option<bool>,
    #[serde(default)]
    host: BTreeMap<String, Defaults>,
    #[serde(default)]
    store: StoreTable,
    #[serde(default)]
    places: BTreeMap<String, String>,
    #[serde(default)]
    defaults: VerbTable,
}

/// `[defaults]`: words that stand behind a verb before what is typed.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct VerbTable {
    copy: Option<Vec<String>>,
    #[serde(rename = "move")]
    move_: Option<Vec<String>>,
    remove: Option<Vec<String>>,
    check: Option<Vec<String>>,
    sync: Option<Vec<String>>,
    ls: Option<Vec<String>>,
    du: Option<Vec<String>>,
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

    /// How much of blocks each store here may keep, as it stands there.
    pub fn store_keep(&self) -> Option<&str> {
        self.store.keep.as_deref()
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
    if let Some(name) = places.keys().find(|name| name.is_empty() || name.contains(['/', '@', ':'])) {
        let said =
            format!("{}: {} is no name of a place", names::quoted(file), names::quoted(Path::new(name)));
        return Err(Usage::new(said).or("it is typed behind @, and ends at the first slash"));
    }
    let VerbTable { copy, move_, remove, check, sync, ls, du } = defaults;
    let verbs = WITH_DEFAULTS.into_iter().zip([copy, move_, remove, check, sync, ls, du]);
    let defaults: BTreeMap<String, Vec<String>> =
        verbs.filter_map(|(verb, words)| Some((verb.to_owned(), words?))).collect();
    // An operand among them would be copied, or removed, by every command.
    for (verb, words) in &defaults {
        if let Some(word) =
            words.iter().find(|word| !word.starts_with('-') || matches!(word.as_str(), "-" | "--"))
        {
            let said = format!(
                "{}: {} is no option among the defaults of {verb}",
                names::quoted(file),
                names::quoted(Path::new(word))
            );
            return Err(Usage::new(said).or("a value stands in the same word as its option: --jobs=4"));
        }
    }
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
        assert_eq!(a.ssh, Some(Words::List(vec!["/opt/my ssh".into(), "-x".into()])));
        assert_eq!((a.compress, a.direct), (Some(CompressWord::Zstd), Some(PlaneWord::Direct)));
        let b = config.of("b");
        assert_eq!((b.parallel, b.retries, b.dedup), (Some(2), Some(9), Some(false)));
        assert_eq!(b.program.as_deref(), Some("/opt/bcmr"));
        assert_eq!(config.of("A.example").parallel, Some(2));
        assert_eq!(of("").unwrap(), Config::default());
        assert_eq!(config.store_keep(), None);
        assert_eq!(of("[store]\nkeep = '64K'\n").unwrap().store_keep(), Some("64K"));
        assert_eq!(of("store.keep = '0'\n").unwrap().store_keep(), Some("0"));
    }

    #[test]
    fn what_is_not_understood_names_file_and_line() {
        for (text, line, why) in [
            ("paralel = 2\n", 1, "unknown field `paralel`"),
            ("# a\n\nparallel = 'x'\n", 3, "invalid type"),
            ("parallel = 70000\n", 1, "70000"),
            ("[host.a]\nbootstrap = true\nboostrap = false\n", 3, "unknown field `boostrap`"),
            ("compress = 'gzip'\n", 1, "unknown variant `gzip`"),
            ("ssh = 3\n", 1, ""),
            ("parallel = \n", 1, ""),
            ("parallel = 1\nparallel = 2\n", 2, "duplicate"),
            ("[hosts.a]\n", 1, "unknown field `hosts`"),
            ("[store]\nkeep = 4\n", 2, "invalid type"),
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
