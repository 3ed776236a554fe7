//! `cp`: its options, and what they mean.
//!
//! Must not know how anything is copied.

use super::options::{Table, Takes, Words, Wrong};
use super::{BackupTyped, Here, Placed};
use bcmr_engine::policy::{Follow, Preserve, Reflink, Sparse};
use bcmr_engine::stepwise::{self, Content, Options, Over, Purpose, Update, Where};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Opt {
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

const TABLE: Table<Opt> = {
    use Takes::{Maybe, Nothing, Value};
    Table {
        program: "cp",
        shorts: &[
            (b'a', Nothing, Opt::Archive),
            (b'b', Nothing, Opt::Backup),
            (b'd', Nothing, Opt::NoLinks),
            (b'f', Nothing, Opt::Force),
            (b'H', Nothing, Opt::FollowOperands),
            (b'i', Nothing, Opt::Interactive),
            (b'l', Nothing, Opt::Link),
            (b'L', Nothing, Opt::Follow),
            (b'n', Nothing, Opt::NoClobber),
            (b'p', Nothing, Opt::Plain),
            (b'P', Nothing, Opt::NoFollow),
            (b'r', Nothing, Opt::Recursive),
            (b'R', Nothing, Opt::Recursive),
            (b's', Nothing, Opt::SymbolicLink),
            (b'S', Value, Opt::Suffix),
            (b't', Value, Opt::Target),
            (b'T', Nothing, Opt::NoTarget),
            (b'u', Nothing, Opt::Update),
            (b'v', Nothing, Opt::Verbose),
            (b'x', Nothing, Opt::OneFileSystem),
            (b'Z', Nothing, Opt::Z),
        ],
        longs: &[
            ("archive", Nothing, Opt::Archive),
            ("attributes-only", Nothing, Opt::AttributesOnly),
            ("backup", Maybe, Opt::Backup),
            ("copy-contents", Nothing, Opt::CopyContents),
            ("debug", Nothing, Opt::Debug),
            ("dereference", Nothing, Opt::Follow),
            ("force", Nothing, Opt::Force),
            ("interactive", Nothing, Opt::Interactive),
            ("keep-directory-symlink", Nothing, Opt::KeepDirLinks),
            ("link", Nothing, Opt::Link),
            ("no-clobber", Nothing, Opt::NoClobber),
            ("no-dereference", Nothing, Opt::NoFollow),
            ("no-preserve", Value, Opt::NoPreserve),
            ("no-target-directory", Nothing, Opt::NoTarget),
            ("one-file-system", Nothing, Opt::OneFileSystem),
            ("parents", Nothing, Opt::Parents),
            ("preserve", Maybe, Opt::Preserve),
            ("recursive", Nothing, Opt::Recursive),
            ("remove-destination", Nothing, Opt::RemoveDestination),
            ("sparse", Value, Opt::Sparse),
            ("reflink", Maybe, Opt::Reflink),
            ("strip-trailing-slashes", Nothing, Opt::StripSlashes),
            ("suffix", Value, Opt::Suffix),
            ("symbolic-link", Nothing, Opt::SymbolicLink),
            ("target-directory", Value, Opt::Target),
            ("update", Maybe, Opt::Update),
            ("verbose", Nothing, Opt::Verbose),
            ("context", Maybe, Opt::Context),
            ("help", Nothing, Opt::Help),
            ("version", Nothing, Opt::Version),
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

A file is replaced by one rename, so that it is the old one or the new one at any time. Where that could be told (it
has other names, or is no regular file, or nothing can be made beside it), it is written into.
";

struct Typed {
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
    let mut words = Words::new(TABLE, words, here.posixly);
    let mut typed = Typed {
        options: here.plain(Purpose::Copy),
        placed: Placed::default(),
        backup: BackupTyped::default(),
        follow: None,
        strip: false,
        links: (false, false),
        context: None,
    };
    while let Some((option, value)) = words.next()? {
        match option {
            Opt::Help => return Ok(super::print(HELP)),
            Opt::Version => return Ok(super::print(&super::version("cp"))),
            _ => take(&mut typed, option, value, here)?,
        }
    }
    typed.placed.operands = words.operands;
    let mut options = settle(&mut typed, here)?;
    let target = here.place(&mut typed.placed)?;
    // Where one name is copied to another, slashes stay.
    let strip = typed.strip && !matches!(target, Where::Name(_));
    let mut sources = typed.placed.sources(strip);
    let target = onto_itself(&mut sources, target, &mut options);
    Ok(here.told(|teller| stepwise::copy(&sources, &target, &options, teller)))
}

fn take(typed: &mut Typed, option: Opt, value: Option<OsString>, here: &Here<'_>) -> Result<(), Wrong> {
    let o = &mut typed.options;
    match option {
        Opt::Archive => {
            typed.follow = Some(Follow::Never);
            o.recursive = true;
            o.preserve = Preserve::ALL;
            o.plain_mode = false;
        }
        Opt::AttributesOnly => o.content = Content::AttributesOnly,
        Opt::Backup => typed.backup.asks(value),
        Opt::Context => {
            if value.is_some() {
                let line = "warning: ignoring --context; it requires an SELinux-enabled kernel";
                super::warn(here, line);
            }
            typed.context = value;
        }
        Opt::Z => {}
        Opt::CopyContents => o.copy_contents = true,
        Opt::NoLinks => {
            typed.follow = Some(Follow::Never);
            o.preserve.links = true;
        }
        Opt::Force => o.force = true,
        Opt::FollowOperands => typed.follow = Some(Follow::Operands),
        Opt::Follow => typed.follow = Some(Follow::Always),
        Opt::NoFollow => typed.follow = Some(Follow::Never),
        Opt::Interactive => o.over = Over::Ask,
        Opt::NoClobber => o.over = Over::Never,
        Opt::KeepDirLinks => o.keep_dir_links = true,
        Opt::Link => typed.links.0 = true,
        Opt::SymbolicLink => typed.links.1 = true,
        Opt::Plain => keep(o, PLAIN, true),
        Opt::Preserve => match value {
            None => keep(o, PLAIN, true),
            Some(list) => attributes(o, &list, "--preserve", true, here)?,
        },
        Opt::NoPreserve => attributes(o, &value.unwrap_or_default(), "--no-preserve", false, here)?,
        Opt::Parents => typed.placed.parents = true,
        Opt::Recursive => o.recursive = true,
        Opt::Reflink => {
            const WHEN: [(&[&str], Reflink); 3] =
                [(&["auto"], Reflink::Auto), (&["always"], Reflink::Always), (&["never"], Reflink::Never)];
            o.reflink = match value {
                None => Reflink::Always,
                Some(word) => here.choose("--reflink", &word, &WHEN)?,
            };
        }
        Opt::Sparse => {
            const WHEN: [(&[&str], Sparse); 3] =
                [(&["never"], Sparse::Never), (&["auto"], Sparse::Auto), (&["always"], Sparse::Always)];
            o.sparse = here.choose("--sparse", &value.unwrap_or_default(), &WHEN)?;
        }
        Opt::RemoveDestination => o.unlink_first = true,
        Opt::StripSlashes => typed.strip = true,
        Opt::Suffix => typed.backup.suffix(value),
        Opt::Target => typed.placed.target(here, value)?,
        Opt::NoTarget => typed.placed.exactly = true,
        Opt::Update => {
            o.update = match value {
                None => Update::Older,
                Some(word) => here.choose("--update", &word, &UPDATES)?,
            };
        }
        Opt::Verbose | Opt::Debug => o.verbose = true,
        Opt::OneFileSystem => o.one_file_system = true,
        Opt::Help | Opt::Version => {}
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
    const NAMES: [(&[&str], Attribute); 7] = [
        (&["mode"], Attribute::Mode),
        (&["timestamps"], Attribute::Timestamps),
        (&["ownership"], Attribute::Ownership),
        (&["links"], Attribute::Links),
        (&["context"], Attribute::Context),
        (&["xattr"], Attribute::Xattr),
        (&["all"], Attribute::All),
    ];
    for word in list.as_bytes().split(|b| *b == b',') {
        let attribute = here.choose(context, OsStr::from_bytes(word), &NAMES)?;
        if attribute == Attribute::Context && on {
            let line = "cannot preserve security context without an SELinux-enabled kernel";
            return Err(Wrong::line("cp", line));
        }
        keep(o, &[attribute], on);
    }
    Ok(())
}

/// What the options amount to together.
fn settle(typed: &mut Typed, here: &Here<'_>) -> Result<Options, Wrong> {
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
fn onto_itself(sources: &mut [PathBuf], target: Where, o: &mut Options) -> Where {
    let Where::Name(name) = &target else { return target };
    if o.force
        && o.backup != stepwise::Backup::None
        && sources == [name.clone()]
        && let Some(kept) = stepwise::backup_of(name, o)
    {
        o.backup = stepwise::Backup::None;
        return Where::Name(PathBuf::from(OsString::from_vec(kept)));
    }
    target
}
