//! `rm`: its options, and what they mean.
//!
//! Must not know how anything is removed.

use super::here::{Here, asks, print, version};
use super::options::{GetOpt, Table, Takes, Values, Wrong};
use bcmr_engine::stepwise::{self, Prompt, RemoveOptions};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RmOption {
    Force,
    Always,
    Once,
    Interactive,
    OneFileSystem,
    NoPreserveRoot,
    PreserveRoot,
    Recursive,
    Dir,
    Verbose,
    PresumeTty,
    Help,
    Version,
}

pub const TABLE: Table<RmOption> = {
    use Takes::{Maybe, Nothing};
    Table {
        program: "rm",
        shorts: &[
            (b'd', Nothing, RmOption::Dir),
            (b'f', Nothing, RmOption::Force),
            (b'i', Nothing, RmOption::Always),
            (b'I', Nothing, RmOption::Once),
            (b'r', Nothing, RmOption::Recursive),
            (b'R', Nothing, RmOption::Recursive),
            (b'v', Nothing, RmOption::Verbose),
        ],
        longs: &[
            ("force", Nothing, RmOption::Force),
            ("interactive", Maybe, RmOption::Interactive),
            ("one-file-system", Nothing, RmOption::OneFileSystem),
            ("no-preserve-root", Nothing, RmOption::NoPreserveRoot),
            ("preserve-root", Maybe, RmOption::PreserveRoot),
            ("recursive", Nothing, RmOption::Recursive),
            ("dir", Nothing, RmOption::Dir),
            ("verbose", Nothing, RmOption::Verbose),
            // Not told by GNU's either: its own test scripts have no terminal.
            ("-presume-input-tty", Nothing, RmOption::PresumeTty),
            ("help", Nothing, RmOption::Help),
            ("version", Nothing, RmOption::Version),
        ],
    }
};

const HELP: &str = "Usage: rm [OPTION]... [FILE]...
Removes files, with the options of GNU rm.

  -f, --force            what is not there is no failure; never ask
  -i                     ask before each
  -I                     ask once before more than three, or a directory with all in it
      --interactive[=WHEN]  ask: never, once (-I), always (-i)
      --one-file-system  leave directories that are on another file system than their operand
      --no-preserve-root  / is a directory like others
      --preserve-root[=all]  / stays (as without it); all: so does what a mount begins at
  -r, -R, --recursive    directories with what is in them
  -d, --dir              empty directories
  -v, --verbose          tell each removal
      --help, --version

A name that begins with - is removed by 'rm -- -name' or 'rm ./-name'.
";

#[derive(Clone, Copy, PartialEq, Eq)]
enum PromptWhen {
    Never,
    Once,
    Always,
}

const WHENS: [(&[&str], PromptWhen); 3] = [
    (&["never", "no", "none"], PromptWhen::Never),
    (&["once"], PromptWhen::Once),
    (&["always", "yes"], PromptWhen::Always),
];

/// What may be typed behind an option.
pub fn values(option: RmOption) -> Values {
    match option {
        RmOption::Interactive => Values::Words(Values::words(&WHENS)),
        RmOption::PreserveRoot => Values::Words(vec!["all"]),
        _ => Values::Free,
    }
}

/// Runs it.
pub fn run(words: impl Iterator<Item = OsString>, here: &Here<'_>) -> Result<u8, Wrong> {
    let all: Vec<OsString> = words.collect();
    let mut words = GetOpt::new(TABLE, all.iter().cloned(), here.posixly);
    let mut o = RemoveOptions {
        recursive: false,
        empty_dirs: false,
        ignore_missing: false,
        prompt: Prompt::Protected,
        one_file_system: false,
        preserve_root: true,
        preserve_all: false,
        stdin_tty: here.env.stdin_tty,
        verbose: false,
        me: here.env.me,
        threads: here.env.cores,
        cancel: here.cancel.clone(),
    };
    let mut once = false;
    loop {
        let (option, value) = match words.next() {
            Ok(Some(next)) => next,
            Ok(None) => break,
            Err(wrong) => return Err(named_with_dash(&all, wrong, here)),
        };
        match option {
            RmOption::Help => return Ok(print(HELP)),
            RmOption::Version => return Ok(print(&version("rm"))),
            RmOption::Force => {
                (o.prompt, o.ignore_missing, once) = (Prompt::Never, true, false);
            }
            RmOption::Always => (o.prompt, o.ignore_missing, once) = (Prompt::Always, false, false),
            RmOption::Once => (o.prompt, o.ignore_missing, once) = (Prompt::Protected, false, true),
            RmOption::Interactive => {
                let when = match value {
                    None => PromptWhen::Always,
                    Some(word) => here.choose("--interactive", &word, &WHENS)?,
                };
                match when {
                    PromptWhen::Never => (o.prompt, once) = (Prompt::Never, false),
                    PromptWhen::Once => (o.prompt, o.ignore_missing, once) = (Prompt::Protected, false, true),
                    PromptWhen::Always => (o.prompt, o.ignore_missing, once) = (Prompt::Always, false, false),
                }
            }
            RmOption::OneFileSystem => o.one_file_system = true,
            RmOption::NoPreserveRoot => {
                if !all.iter().any(|word| word == "--no-preserve-root") {
                    let line = "you may not abbreviate the --no-preserve-root option";
                    return Err(Wrong::line("rm", line));
                }
                o.preserve_root = false;
            }
            RmOption::PreserveRoot => match value {
                None => o.preserve_root = true,
                Some(word) if word == "all" => (o.preserve_root, o.preserve_all) = (true, true),
                Some(word) => {
                    let word = here.quoted(&word);
                    let line = [b"unrecognized --preserve-root argument: ", &word[..]].concat();
                    return Err(Wrong::line("rm", line));
                }
            },
            RmOption::Recursive => o.recursive = true,
            RmOption::Dir => o.empty_dirs = true,
            RmOption::Verbose => o.verbose = true,
            RmOption::PresumeTty => o.stdin_tty = true,
        }
    }
    let paths: Vec<PathBuf> = words.operands.iter().map(PathBuf::from).collect();
    if paths.is_empty() {
        return if o.ignore_missing { Ok(0) } else { Err(here.usage("missing operand")) };
    }
    if once && (o.recursive || paths.len() > 3) {
        let count = paths.len();
        let many = if count == 1 { "argument" } else { "arguments" };
        let how = if o.recursive { " recursively" } else { "" };
        if !asks(here, &format!("remove {count} {many}{how}")) {
            return Ok(0);
        }
    }
    Ok(here.told(|teller| stepwise::remove(&paths, &o, teller)))
}

/// A name that begins with a dash, where an option is wrong: how to name it. As in rm, behind `--` as well.
fn named_with_dash(all: &[OsString], wrong: Wrong, here: &Here<'_>) -> Wrong {
    let is_there = |word: &&OsString| {
        word.as_bytes().starts_with(b"-")
            && word.len() > 1
            && bcmr_engine::verbs::look::stat(std::path::Path::new(word), false).is_ok()
    };
    let Some(word) = all.iter().find(is_there) else { return wrong };
    let dotted = std::path::Path::new(".").join(word);
    let bare = super::messages::bare(here.locale, dotted.as_os_str());
    let hint = [b"Try 'rm ", &bare[..], b"' to remove the file ", &here.quoted(word)[..], b".\n"].concat();
    let end = wrong.text.iter().position(|b| *b == b'\n').map_or(wrong.text.len(), |at| at + 1);
    let (line, rest) = wrong.text.split_at(end);
    Wrong { text: [line, &hint, rest].concat() }
}
