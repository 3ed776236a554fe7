//! Which entries take part. Must not know how a pattern is matched, nor read a file: what one says is given.

use super::columns::{Columns, Holds::Everywhere, Row, Scp::Loses};
use super::order::{FromPlaces, InOrder, values};
use super::size::size;
use super::when::{Moment, shown_in, typed, when};
use crate::names;
use crate::usage::Usage;
use bcmr_engine::policy::{FilterSpec, Rule, moment};
use clap::{ArgMatches, Args, ValueHint};
use jiff::tz::TimeZone;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "What takes part")]
pub struct FilterArgs {
    #[command(flatten)]
    pub rules: InOrder<Vec<RuleArg>>,
    /// Leave out what matches GLOB (gitignore syntax); of all -e and --include, the last that matches decides
    #[arg(short, long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// Take what matches GLOB although an earlier --exclude leaves it out
    #[arg(hide_short_help = true, long, value_name = "GLOB")]
    pub include: Vec<String>,
    /// Read globs from FILE, one a line, as a .gitignore has them: ! before one takes it after all
    #[arg(hide_short_help = true, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub exclude_from: Vec<PathBuf>,
    /// Leave out what matches the regular expression RE, against the path below its SRC
    #[arg(hide_short_help = true, long, value_name = "RE")]
    pub exclude_regex: Vec<String>,
    /// Leave out what the .gitignore files in the source leave out
    #[arg(hide_short_help = true, long)]
    pub gitignore: bool,
    /// Leave out what the .bcmrignore files in the source leave out, each for its own directory, as a .gitignore does
    #[arg(hide_short_help = true, long)]
    pub bcmrignore: bool,
    #[command(flatten)]
    pub bounds: BoundsArgs,
}

impl Columns for FilterArgs {
    const ROWS: &'static [Row<FilterArgs>] = &[
        Row("--exclude", Everywhere, Loses, |a| !a.exclude.is_empty()),
        Row("--include", Everywhere, Loses, |a| !a.include.is_empty()),
        Row("--exclude-from", Everywhere, Loses, |a| !a.exclude_from.is_empty()),
        Row("--exclude-regex", Everywhere, Loses, |a| !a.exclude_regex.is_empty()),
        Row("--gitignore", Everywhere, Loses, |a| a.gitignore),
        Row("--bcmrignore", Everywhere, Loses, |a| a.bcmrignore),
        Row("--max-size", Everywhere, Loses, |a| a.bounds.max_size.is_some()),
        Row("--min-size", Everywhere, Loses, |a| a.bounds.min_size.is_some()),
        Row("--newer", Everywhere, Loses, |a| a.bounds.newer.is_some()),
        Row("--older", Everywhere, Loses, |a| a.bounds.older.is_some()),
    ];
}

// What a file itself is, whatever it is called. A `///` here would become the commands' own sentence.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "What takes part")]
pub struct BoundsArgs {
    /// Leave out files of more than SIZE bytes (1M is 1 MiB); directories and links stay
    #[arg(hide_short_help = true, long, value_name = "SIZE", value_parser = size)]
    pub max_size: Option<u64>,
    /// Leave out files of fewer than SIZE bytes
    #[arg(hide_short_help = true, long, value_name = "SIZE", value_parser = size)]
    pub min_size: Option<u64>,
    /// Leave out files not modified after WHEN: 2026-01-31, 2026-01-31T12:30 (local time; Z or +01:00 behind it says another
    /// one), 7d (ago; s, m, h, d, w), @SECONDS, or a file, whose own time is meant
    #[arg(hide_short_help = true, long, value_name = "WHEN", value_parser = when)]
    pub newer: Option<Moment>,
    /// Leave out files not modified before WHEN
    #[arg(hide_short_help = true, long, value_name = "WHEN", value_parser = when)]
    pub older: Option<Moment>,
}

impl BoundsArgs {
    /// A filter by what a file itself is.
    ///
    /// # Errors
    /// A moment was not looked up.
    pub fn filter(&self) -> Result<FilterSpec, Usage> {
        let at = |flag, when: &Option<Moment>| match when {
            Some(Moment::At(sec, nsec)) => Ok(Some(moment(*sec, *nsec))),
            Some(Moment::Shown(_) | Moment::Ago(_) | Moment::Of(_)) => Err(unsettled(flag)),
            None => Ok(None),
        };
        let (newer, older) = (at("--newer", &self.newer)?, at("--older", &self.older)?);
        Ok(FilterSpec {
            max_bytes: self.max_size,
            min_bytes: self.min_size,
            newer,
            older,
            ..FilterSpec::everything()
        })
    }
}

/// One glob, as typed, or a file of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleArg {
    Exclude(String),
    Include(String),
    From(PathBuf),
}

/// What is asked of this machine's files before a command means something.
pub struct Files<'f> {
    /// All that a file holds.
    pub read: &'f dyn Fn(&Path) -> io::Result<Vec<u8>>,
    /// Seconds since 1970 and nanoseconds of a file's modification time.
    pub modified: &'f dyn Fn(&Path) -> io::Result<(i64, u32)>,
    /// Time zone of this machine; `None`: it is another one than it has, and which is not known.
    pub zone: &'f dyn Fn() -> Option<TimeZone>,
    /// Seconds since 1970.
    pub now: i64,
}

/// That a file cannot be had.
pub(super) fn unreadable(flag: &str, file: &Path, e: &io::Error) -> Usage {
    Usage::new(format!("{flag}: {} cannot be read: {e}", names::quoted(file)))
}

/// That an option stands for something that was not looked up: without it, the command would be another one.
pub(super) fn unsettled(flag: &str) -> Usage {
    Usage::new(format!("what {flag} says was not looked up"))
}

impl FilterArgs {
    /// What was settled, as words that say the same behind all that was typed, where the last counts.
    pub(super) fn settled(&self) -> Vec<OsString> {
        let moment = |flag, when: &Option<Moment>| match when {
            Some(Moment::At(secs, nanos)) => Some(format!("{flag}={}", typed((*secs, *nanos)))),
            _ => None,
        };
        let rule = |rule: &RuleArg| match rule {
            RuleArg::Exclude(glob) => Some(format!("--exclude={glob}")),
            RuleArg::Include(glob) => Some(format!("--include={glob}")),
            RuleArg::From(_) => None,
        };
        let rules = self.rules.0.iter().filter(|_| !self.exclude_from.is_empty()).filter_map(rule);
        let moments = [moment("--newer", &self.bounds.newer), moment("--older", &self.bounds.older)];
        rules.chain(moments.into_iter().flatten()).map(OsString::from).collect()
    }

    /// Passes over files of globs, whose globs stand behind them by [`FilterArgs::settled`].
    pub fn without_files(&mut self) {
        self.rules.0.retain(|rule| !matches!(rule, RuleArg::From(_)));
    }

    /// What is read on this machine.
    pub(super) fn about_here(&self) -> Option<&'static str> {
        (!self.exclude_from.is_empty()).then_some("--exclude-from")
    }

    /// Puts globs of files where those were named, and looks moments up.
    pub(super) fn settle(&mut self, files: &Files<'_>) -> Result<(), Usage> {
        self.bounds.settle(files)?;
        let mut rules = Vec::new();
        for rule in std::mem::take(&mut self.rules.0) {
            match rule {
                RuleArg::From(file) => {
                    let text = (files.read)(&file).map_err(|e| unreadable("--exclude-from", &file, &e))?;
                    let bad = || Usage::new(format!("what is in {} is not UTF-8", names::quoted(&file)));
                    rules.extend(globs(&text).map_err(|()| bad())?);
                }
                typed => rules.push(typed),
            }
        }
        self.rules.0 = rules;
        Ok(())
    }
}

impl BoundsArgs {
    /// Looks moments up.
    pub(super) fn settle(&mut self, files: &Files<'_>) -> Result<(), Usage> {
        for (flag, when) in [("--newer", &mut self.newer), ("--older", &mut self.older)] {
            let at = match when {
                Some(Moment::Ago(secs)) => (files.now.saturating_sub_unsigned(*secs), 0),
                Some(Moment::Of(file)) => (files.modified)(file).map_err(|e| {
                    let neither =
                        format!("{flag}: {} is neither a time, an age nor a file", names::quoted(file));
                    let told = match e.kind() {
                        io::ErrorKind::NotFound => Usage::new(neither),
                        _ => unreadable(flag, file, &e),
                    };
                    told.or("a time is 2026-01-31, 2026-01-31T12:30, 2026-01-31T12:30Z, 7d (ago) or @SECONDS")
                })?,
                Some(Moment::Shown(civil)) => {
                    // A file would be taken or left out by the clock of another zone.
                    let zone = (files.zone)().ok_or_else(|| {
                        Usage::new(format!("{flag}: TZ names no time zone that this machine knows"))
                            .or("a time as @SECONDS or an age, such as 7d, needs none")
                    })?;
                    shown_in(*civil, zone)
                        .ok_or_else(|| Usage::new(format!("{flag}: there is no such time")))?
                }
                Some(Moment::At(..)) | None => continue,
            };
            *when = Some(Moment::At(at.0, at.1));
        }
        Ok(())
    }
}

/// The lines of a file of globs. A comment and an empty line say nothing.
fn globs(text: &[u8]) -> Result<Vec<RuleArg>, ()> {
    let text = std::str::from_utf8(text).map_err(|_| ())?;
    let lines = text.lines().filter(|line| !line.trim_matches(' ').is_empty() && !line.starts_with('#'));
    Ok(lines
        .map(|line| match line.strip_prefix('!') {
            Some(glob) => RuleArg::Include(glob.to_owned()),
            None => RuleArg::Exclude(line.to_owned()),
        })
        .collect())
}

/// Globs in the order they were typed.
impl FromPlaces for Vec<RuleArg> {
    fn from_places(m: &ArgMatches) -> Vec<RuleArg> {
        let excludes = values(m, "exclude").map(|(at, glob): (usize, String)| (at, RuleArg::Exclude(glob)));
        let includes = values(m, "include").map(|(at, glob): (usize, String)| (at, RuleArg::Include(glob)));
        let files = values(m, "exclude_from").map(|(at, file): (usize, PathBuf)| (at, RuleArg::From(file)));
        let mut rules: Vec<_> = excludes.chain(includes).chain(files).collect();
        rules.sort_by_key(|r| r.0);
        rules.into_iter().map(|r| r.1).collect()
    }
}

pub(super) fn filter(a: &FilterArgs) -> Result<FilterSpec, Usage> {
    let rule = |r: &RuleArg| match r {
        RuleArg::Exclude(glob) => Ok(Rule::Exclude(glob.clone())),
        RuleArg::Include(glob) => Ok(Rule::Include(glob.clone())),
        // Its globs stand in its place by now.
        RuleArg::From(_) => Err(unsettled("--exclude-from")),
    };
    Ok(FilterSpec {
        rules: a.rules.0.iter().map(rule).collect::<Result<_, _>>()?,
        regexes: a.exclude_regex.clone(),
        gitignore: a.gitignore,
        bcmrignore: a.bcmrignore,
        ..a.bounds.filter()?
    })
}

/// The first option that leaves out what only the source knows of.
pub(super) fn by_the_source(filter: &FilterSpec) -> Option<&'static str> {
    let asked = [
        (filter.gitignore, "--gitignore"),
        (filter.bcmrignore, "--bcmrignore"),
        (filter.max_bytes.is_some(), "--max-size"),
        (filter.min_bytes.is_some(), "--min-size"),
        (filter.newer.is_some(), "--newer"),
        (filter.older.is_some(), "--older"),
    ];
    asked.into_iter().find(|(is_asked, _)| *is_asked).map(|(_, flag)| flag)
}

#[cfg(test)]
mod tests {
    use super::super::Command;
    use super::*;

    /// Globs of a file stand where the file was named, so that the last that matches decides as if they had been typed there.
    #[test]
    fn files_of_globs_and_times_of_files() {
        let known = std::cell::Cell::new(true);
        let files = Files {
            read: &|file| match file.to_str() {
                Some("g") => Ok(b"# none\n\n*.o\r\n!keep.o\n\\#x\n".to_vec()),
                Some("bad") => Ok(b"\xff".to_vec()),
                _ => Err(io::ErrorKind::NotFound.into()),
            },
            modified: &|file| match file.to_str() {
                Some("./7d") => Ok((5, 6)),
                _ => Err(io::ErrorKind::NotFound.into()),
            },
            zone: &|| known.get().then_some(TimeZone::UTC),
            now: 1_000_000,
        };
        let settled = |line: &str| {
            let mut command = super::super::parse(line.split(' ')).unwrap().command;
            super::super::settle::settle(&mut command, &files).and_then(|()| match command {
                Command::Copy(a) => filter(&a.filters),
                Command::Du(a) => a.bounds.filter(),
                other => panic!("{other:?}"),
            })
        };
        let rules = |f: FilterSpec| {
            let shown = f.rules.into_iter().map(|rule| match rule {
                Rule::Exclude(glob) => glob,
                Rule::Include(glob) => format!("+{glob}"),
            });
            shown.collect::<Vec<_>>().join(" ")
        };
        let got = settled("bcmr copy -e a --exclude-from g --include b s d").map(rules).unwrap_or_default();
        assert_eq!(got, "a *.o +keep.o \\#x +b");
        assert!(settled("bcmr copy --exclude-from bad s d").is_err());
        assert!(settled("bcmr copy --exclude-from absent s d").is_err());
        let f = settled("bcmr copy --newer 1d --older ./7d s d").unwrap_or_else(|u| panic!("{u:?}"));
        assert_eq!((f.newer, f.older), (Some(moment(1_000_000 - 86_400, 0)), Some(moment(5, 6))));
        let f = settled("bcmr du --newer @7 d").unwrap_or_else(|u| panic!("{u:?}"));
        assert_eq!(f.newer, Some(moment(7, 0)));
        assert!(settled("bcmr du --newer nowhere d").is_err());
        let f = settled("bcmr du --newer 1970-01-02 d").unwrap_or_else(|u| panic!("{u:?}"));
        assert_eq!(f.newer, Some(moment(86_400, 0)));
        known.set(false);
        assert!(settled("bcmr du --newer 1970-01-02 d").is_err());
        assert!(settled("bcmr du --newer @7 d").is_ok());
    }
}
