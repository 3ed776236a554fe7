//! `cp`: its options, and what they mean.
//!
//! Must not know how anything is copied.

use super::here::{BACKUPS, BackupTyped, Here, Placed, print, version, warn};
use super::options::{GetOpt, Table, Takes, Values, Wrong};
use bcmr_engine::policy::{Follow, Preserve, Reflink, Sparse};
use bcmr_engine::stepwise::{self, Content, Onto, Options, Over, Program, Update};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CpOption {
    Archive,
    AttributesOnly,
    Backup,
    Context,
    CopyContents,
    Debug,
    NoLinks,
    Force,
    FollowOperands,
    Interactive,
    KeepDirLinks,
    Link,
    Follow,
    NoClobber,
    NoFollow,
    Plain,
    Preserve,
    NoPreserve,
    Parents,
    Recursive,
    Reflink,
    RemoveDestination,
    Sparse,
    StripSlashes,
    SymbolicLink,
    Suffix,
    Target,
    NoTarget,
    Update,
    Verbose,
    OneFileSystem,
    Z,
    Help,
    Version,
}

pub const TABLE: Table<CpOption> = {
    use Takes::{Maybe, Nothing, Value};
    Table {
        program: "cp",
        shorts: &[
            (b'a', Nothing, CpOption::Archive),
            (b'b', Nothing, CpOption::Backup),
            (b'd', Nothing, CpOption::NoLinks),
            (b'f', Nothing, CpOption::Force),
            (b'H', Nothing, CpOption::FollowOperands),
            (b'i', Nothing, CpOption::Interactive),
            (b'l', Nothing, CpOption::Link),
            (b'L', Nothing, CpOption::Follow),
            (b'n', Nothing, CpOption::NoClobber),
            (b'p', Nothing, CpOption::Plain),
            (b'P', Nothing, CpOption::NoFollow),
            (b'r', Nothing, CpOption::Recursive),
            (b'R', Nothing, CpOption::Recursive),
            (b's', Nothing, CpOption::SymbolicLink),
            (b'S', Value, CpOption::Suffix),
            (b't', Value, CpOption::Target),
            (b'T', Nothing, CpOption::NoTarget),
            (b'u', Nothing, CpOption::Update),
            (b'v', Nothing, CpOption::Verbose),
            (b'x', Nothing, CpOption::OneFileSystem),
            (b'Z', Nothing, CpOption::Z),
        ],
        longs: &[
            ("archive", Nothing, CpOption::Archive),
            ("attributes-only", Nothing, CpOption::AttributesOnly),
            ("backup", Maybe, CpOption::Backup),
            ("copy-contents", Nothing, CpOption::CopyContents),
            ("debug", Nothing, CpOption::Debug),
            ("dereference", Nothing, CpOption::Follow),
            ("force", Nothing, CpOption::Force),
            ("interactive", Nothing, CpOption::Interactive),
            ("keep-directory-symlink", Nothing, CpOption::KeepDirLinks),
            ("link", Nothing, CpOption::Link),
            ("no-clobber", Nothing, CpOption::NoClobber),
            ("no-dereference", Nothing, CpOption::NoFollow),
            ("no-preserve", Value, CpOption::NoPreserve),
            ("no-target-directory", Nothing, CpOption::NoTarget),
            ("one-file-system", Nothing, CpOption::OneFileSystem),
            ("parents", Nothing, CpOption::Parents),
            ("preserve", Maybe, CpOption::Preserve),
            ("recursive", Nothing, CpOption::Recursive),
            ("remove-destination", Nothing, CpOption::RemoveDestination),
            ("sparse", Value, CpOption::Sparse),
            ("reflink", Maybe, CpOption::Reflink),
            ("strip-trailing-slashes", Nothing, CpOption::StripSlashes),
            ("suffix", Value, CpOption::Suffix),
            ("symbolic-link", Nothing, CpOption::SymbolicLink),
            ("target-directory", Value, CpOption::Target),
            ("update", Maybe, CpOption::Update),
            ("verbose", Nothing, CpOption::Verbose),
            ("context", Maybe, CpOption::Context),
            ("help", Nothing, CpOption::Help),
            ("version", Nothing, CpOption::Version),
        ],
    }
};

/// `--update`, which `mv` has too.
pub const UPDATES: [(&[&str], Update); 4] = [
    (&["all"], Update::All),
    (&["none"], Update::None),
    (&["none-fail"], Update::NoneFail),
    (&["older"], Update::Older),
];

const REFLINKS: [(&[&str], Reflink); 3] =
    [(&["auto"], Reflink::Auto), (&["always"], Reflink::Always), (&["never"], Reflink::Never)];
const SPARSES: [(&[&str], Sparse); 3] =
    [(&["never"], Sparse::Never), (&["auto"], Sparse::Auto), (&["always"], Sparse::Always)];

/// What may be typed behind an option.
pub fn values(option: CpOption) -> Values {
    match option {
        CpOption::Backup => Values::Words(Values::words(&BACKUPS)),
        CpOption::Reflink => Values::Words(Values::words(&REFLINKS)),
        CpOption::Sparse => Values::Words(Values::words(&SPARSES)),
        CpOption::Update => Values::Words(Values::words(&UPDATES)),
        CpOption::Preserve | CpOption::NoPreserve => Values::List(Values::words(&ATTRIBUTES)),
        CpOption::Target => Values::Name,
        _ => Values::Free,
    }
}

const HELP: &str = "Usage: cp [OPTION]... [-T] SOURCE DEST
  or:  cp [OPTION]... SOURCE... DIRECTORY
  or:  cp [OPTION]... -t DIRECTORY SOURCE...
Copies files and directories, with the options of GNU cp.

  -a, --archive               all attributes, all below, links as links: -dR --preserve=all
      --attributes-only       no content, only attributes
      --backup[=CONTROL], -b  keep what is replaced: none, simple, existing, numbered
      --copy-contents         read FIFOs and devices below directories as files
  -d                          links as links, and hard links kept: -P --preserve=links
      --debug                 tell how (as -v)
  -f, --force                 remove what cannot be opened, and try again
  -H                          follow links that are operands
  -i, --interactive           ask before a file is replaced
      --keep-directory-symlink  follow links to directories at the destination
  -l, --link                  make hard links instead of copies
  -L, --dereference           follow all links
  -n, --no-clobber            replace nothing
  -p, --preserve[=LIST]       keep mode, ownership, timestamps; also links, xattr, all
      --no-preserve=LIST      do not keep these
  -P, --no-dereference        follow no links
      --parents               use the whole source name below DIRECTORY
  -R, -r, --recursive         directories with what is in them
      --reflink[=WHEN]        share blocks: always, auto, never
      --remove-destination    remove what is replaced before
      --sparse=WHEN           make holes: auto, always, never
      --strip-trailing-slashes  as if no SOURCE had slashes at its end
  -s, --symbolic-link         make symbolic links instead of copies
  -S, --suffix=SUFFIX         what simple backups end with, instead of ~
  -t, --target-directory=DIRECTORY  copy all into DIRECTORY
  -T, --no-target-directory   take DEST for the very name
  -u, --update[=WHICH]        replace: all, none, none-fail, older (-u)
  -v, --verbose               tell each copy
  -x, --one-file-system       stay on this file system
  -Z, --context[=CTX]         no effect: this build knows no SELinux
      --help, --version

A file is replaced by one rename, so that it is the old one or the new one at any time. Onto that could be told (it
has other names, or is no regular file, or nothing can be made beside it), it is written into.
";

struct CpLine {
    options: Options,
    placed: Placed,
    backup: BackupTyped,
    follow: Option<Follow>,
    strip: bool,
    /// `-l` and `-s`.
    links: (bool, bool),
    context: Option<OsString>,
}

/// Runs it.
pub fn run(words: impl Iterator<Item = OsString>, here: &Here<'_>) -> Result<u8, Wrong> {
    let mut words = GetOpt::new(TABLE, words, here.posixly);
    let mut typed = CpLine {
        options: here.plain(Program::Copy),
        placed: Placed::default(),
        backup: BackupTyped::default(),
        follow: None,
        strip: false,
        links: (false, false),
        context: None,
    };
    while let Some((option, value)) = words.next()? {
        match option {
            CpOption::Help => return Ok(print(HELP)),
            CpOption::Version => return Ok(print(&version("cp"))),
            _ => take(&mut typed, option, value, here)?,
        }
    }
    typed.placed.operands = words.operands;
    let mut options = settle(&mut typed, here)?;
    let target = here.place(&mut typed.placed)?;
    // Where one name is copied to another, slashes stay.
    let strip = typed.strip && !matches!(target, Onto::Name(_));
    let mut sources = typed.placed.sources(strip);
    let target = onto_itself(&mut sources, target, &mut options);
    Ok(here.told(|teller| stepwise::copy(&sources, &target, &options, teller)))
}

fn take(typed: &mut CpLine, option: CpOption, value: Option<OsString>, here: &Here<'_>) -> Result<(), Wrong> {
    let o = &mut typed.options;
    match option {
        CpOption::Archive => {
            typed.follow = Some(Follow::Never);
            o.recursive = true;
            o.preserve = Preserve::ALL;
            o.plain_mode = false;
            o.archive = true;
        }
        CpOption::AttributesOnly => o.content = Content::AttributesOnly,
        CpOption::Backup => typed.backup.asks(value),
        CpOption::Context => {
            if value.is_some() {
                let line = "warning: ignoring --context; it requires an SELinux-enabled kernel";
                warn(here, line);
            }
            typed.context = value;
        }
        CpOption::Z => {}
        CpOption::CopyContents => o.copy_contents = true,
        CpOption::NoLinks => {
            typed.follow = Some(Follow::Never);
            o.preserve.links = true;
        }
        CpOption::Force => o.force = true,
        CpOption::FollowOperands => typed.follow = Some(Follow::Operands),
        CpOption::Follow => typed.follow = Some(Follow::Always),
        CpOption::NoFollow => typed.follow = Some(Follow::Never),
        CpOption::Interactive => o.over = Over::Ask,
        CpOption::NoClobber => o.over = Over::Never,
        CpOption::KeepDirLinks => o.keep_dir_links = true,
        CpOption::Link => typed.links.0 = true,
        CpOption::SymbolicLink => typed.links.1 = true,
        CpOption::Plain => keep(o, PLAIN, true),
        CpOption::Preserve => match value {
            None => keep(o, PLAIN, true),
            Some(list) => attributes(o, &list, "--preserve", true, here)?,
        },
        CpOption::NoPreserve => attributes(o, &value.unwrap_or_default(), "--no-preserve", false, here)?,
        CpOption::Parents => typed.placed.parents = true,
        CpOption::Recursive => o.recursive = true,
        CpOption::Reflink => {
            o.reflink = match value {
                None => Reflink::Always,
                Some(word) => here.choose("--reflink", &word, &REFLINKS)?,
            };
        }
        CpOption::Sparse => {
            o.sparse = here.choose("--sparse", &value.unwrap_or_default(), &SPARSES)?;
        }
        CpOption::RemoveDestination => o.unlink_first = true,
        CpOption::StripSlashes => typed.strip = true,
        CpOption::Suffix => typed.backup.suffix(value),
        CpOption::Target => typed.placed.target(here, value)?,
        CpOption::NoTarget => typed.placed.exactly = true,
        CpOption::Update => {
            o.update = match value {
                None => Update::Older,
                Some(word) => here.choose("--update", &word, &UPDATES)?,
            };
            if o.update == Update::None {
                o.over = Over::Never;
            }
        }
        CpOption::Verbose | CpOption::Debug => o.verbose = true,
        CpOption::OneFileSystem => o.one_file_system = true,
        CpOption::Help | CpOption::Version => {}
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Attribute {
    Mode,
    Timestamps,
    Ownership,
    Links,
    Context,
    Xattr,
    All,
}

const ATTRIBUTES: [(&[&str], Attribute); 7] = [
    (&["mode"], Attribute::Mode),
    (&["timestamps"], Attribute::Timestamps),
    (&["ownership"], Attribute::Ownership),
    (&["links"], Attribute::Links),
    (&["context"], Attribute::Context),
    (&["xattr"], Attribute::Xattr),
    (&["all"], Attribute::All),
];

const PLAIN: &[Attribute] = &[Attribute::Mode, Attribute::Timestamps, Attribute::Ownership];

fn keep(o: &mut Options, list: &[Attribute], on: bool) {
    let p = &mut o.preserve;
    for attribute in list {
        match attribute {
            Attribute::Mode => {
                (p.mode, p.acl) = (on, on);
                o.plain_mode = !on;
            }
            Attribute::Timestamps => p.times = on,
            Attribute::Ownership => p.owner = on,
            Attribute::Links => p.links = on,
            Attribute::Xattr => {
                p.xattr = on;
                o.require_xattr = on;
            }
            Attribute::All => {
                *p = if on { Preserve::ALL } else { Preserve::NONE };
                o.plain_mode = !on;
            }
            Attribute::Context => {}
        }
    }
}

fn attributes(o: &mut Options, list: &OsStr, context: &str, on: bool, here: &Here<'_>) -> Result<(), Wrong> {
    for word in list.as_bytes().split(|b| *b == b',') {
        let attribute = here.choose(context, OsStr::from_bytes(word), &ATTRIBUTES)?;
        if attribute == Attribute::Context && on {
            let line = "cannot preserve security context without an SELinux-enabled kernel";
            return Err(Wrong::line("cp", line));
        }
        keep(o, &[attribute], on);
    }
    Ok(())
}

/// What the options amount to together.
fn settle(typed: &mut CpLine, here: &Here<'_>) -> Result<Options, Wrong> {
    let mut o = typed.options.clone();
    match typed.links {
        (true, true) => return Err(here.usage("cannot make both hard and symbolic links")),
        (true, false) => o.content = Content::HardLink,
        (false, true) => o.content = Content::SymbolicLink,
        (false, false) => {}
    }
    if typed.backup.wanted && o.over == Over::Never {
        return Err(here.usage("options --backup and --no-clobber are mutually exclusive"));
    }
    if o.reflink == Reflink::Always && o.sparse != Sparse::Auto {
        return Err(here.usage("--reflink can be used only with --sparse=auto"));
    }
    (o.backup, o.suffix) = here.backup(&typed.backup)?;
    let links_kept = o.recursive && o.content != Content::HardLink;
    o.follow = typed.follow.unwrap_or(if links_kept { Follow::Never } else { Follow::Always });
    if o.over == Over::Never {
        o.force = false;
    }
    Ok(o)
}

/// `cp --force --backup x x` keeps a copy of a file under the name of its backup.
fn onto_itself(sources: &mut [PathBuf], target: Onto, o: &mut Options) -> Onto {
    let Onto::Name(name) = &target else { return target };
    if o.force
        && o.backup != stepwise::Backup::None
        && sources == [name.clone()]
        && let Some(kept) = stepwise::backup_of(name, o)
    {
        o.backup = stepwise::Backup::None;
        return Onto::Name(PathBuf::from(OsString::from_vec(kept)));
    }
    target
}
