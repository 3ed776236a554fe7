//! `rm`: its options, and what they mean.
//!
//! Must not know how anything is removed.

use super::Here;
use super::options::{Table, Takes, Words, Wrong};
use bcmr_engine::stepwise::{self, Prompt, RemoveOptions};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Opt {
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
    Help,
    Version,
}

const TABLE: Table<Opt> = {
    use Takes::{Maybe, Nothing};
    Table {
        program: "rm",
        shorts: &[
            (b'd', Nothing, Opt::Dir),
            (b'f', Nothing, Opt::Force),
            (b'i', Nothing, Opt::Always),
            (b'I', Nothing, Opt::Once),
            (b'r', Nothing, Opt::Recursive),
            (b'R', Nothing, Opt::Recursive),
            (b'v', Nothing, Opt::Verbose),
        ],
        longs: &[
            ("force", Nothing, Opt::Force),
            ("interactive", Maybe, Opt::Interactive),
            ("one-file-system", Nothing, Opt::OneFileSystem),
            ("no-preserve-root", Nothing, Opt::NoPreserveRoot),
            ("preserve-root", Maybe, Opt::PreserveRoot),
            ("recursive", Nothing, Opt::Recursive),
            ("dir", Nothing, Opt::Dir),
            ("verbose", Nothing, Opt::Verbose),
            ("help", Nothing, Opt::Help),
            ("version", Nothing, Opt::Version),
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
enum When {
    Never,
    Once,
    Always,
}

/// Runs it.
pub fn run(words: impl Iterator<Item = OsString>, here: &Here<'_>) -> Result<u8, Wrong> {
    let all: Vec<OsString> = words.collect();
    let mut words = Words::new(TABLE, all.iter().cloned(), here.posixly);
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
            Opt::Help => return Ok(super::print(HELP)),
            Opt::Version => return Ok(super::print(&super::version("rm"))),
            Opt::Force => {
                (o.prompt, o.ignore_missing, once) = (Prompt::Never, true, false);
            }
            Opt::Always => (o.prompt, o.ignore_missing, once) = (Prompt::Always, false, false),
            Opt::Once => (o.prompt, o.ignore_missing, once) = (Prompt::Protected, false, true),
            Opt::Interactive => {
                const WHEN: [(&[&str], When); 3] = [
                    (&["never", "no", "none"], When::Never),
                    (&["once"], When::Once),
                    (&["always", "yes"], When::Always),
                ];
                let when = match value {
                    None => When::Always,
                    Some(word) => here.choose("--interactive", &word, &WHEN)?,
                };
                match when {
                    When::Never => (o.prompt, once) = (Prompt::Never, false),
                    When::Once => (o.prompt, o.ignore_missing, once) = (Prompt::Protected, false, true),
                    When::Always => (o.prompt, o.ignore_missing, once) = (Prompt::Always, false, false),
                }
            }
            Opt::OneFileSystem => o.one_file_system = true,
            Opt::NoPreserveRoot => {
                if !all.iter().any(|word| word == "--no-preserve-root") {
                    let line = "you may not abbreviate the --no-preserve-root option";
                    return Err(Wrong::line("rm", line));
                }
                o.preserve_root = false;
            }
            Opt::PreserveRoot => match value {
                None => o.preserve_root = true,
                Some(word) if word == "all" => (o.preserve_root, o.preserve_all) = (true, true),
                Some(word) => {
                    let word = here.quoted(&word);
                    let line = [b"unrecognized --preserve-root argument: ", &word[..]].concat();
                    return Err(Wrong::line("rm", line));
                }
            },
            Opt::Recursive => o.recursive = true,
            Opt::Dir => o.empty_dirs = true,
            Opt::Verbose => o.verbose = true,
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
        if !super::asks(here, &format!("remove {count} {many}{how}")) {
            return Ok(0);
        }
    }
    Ok(here.told(|teller| stepwise::remove(&paths, &o, teller)))
}

/// An operand that begins with a dash, taken for options: how to name it.
fn named_with_dash(all: &[OsString], wrong: Wrong, here: &Here<'_>) -> Wrong {
    let is_there = |word: &&OsString| {
        word.as_bytes().starts_with(b"-")
            && word.len() > 1
            && bcmr_engine::verbs::look::stat(std::path::Path::new(word), false).is_ok()
    };
    let Some(word) = all.iter().take_while(|word| *word != "--").find(is_there) else { return wrong };
    let dotted = std::path::Path::new(".").join(word);
    let bare = super::messages::bare(here.locale, dotted.as_os_str());
    let hint = [b"Try 'rm ", &bare[..], b"' to remove the file ", &here.quoted(word)[..], b".\n"].concat();
    let end = wrong.text.iter().position(|b| *b == b'\n').map_or(wrong.text.len(), |at| at + 1);
    let (line, rest) = wrong.text.split_at(end);
    Wrong { text: [line, &hint, rest].concat() }
}
