//! `copy`: what may be typed, and the request that it means.
//!
//! Must not know how a request is carried out.

use super::collide::{CopyCollideArgs, collide};
use super::connection::{ConnectArgs, PlaneArg, RemoteArgs, no_connection, reach};
use super::filters::{FilterArgs, filter};
use super::how::{HowArgs, durability, verify};
use super::io::{io, io_guard};
use super::jobs::jobs_for;
use super::links::{LinkArgs, follow, follow_destination};
use super::metadata::{KeepArgs, preserve, strictness};
use super::operands::{NamesFrom, Operands, Places, operands};
use super::output::{OutputArgs, show};
use super::remote::RemoteJob;
use super::resume::{ResumeArgs, resume};
use crate::config::Config;
use crate::env::Env;
use crate::show::{Again, Show, Verb};
use crate::usage::Usage;
use bcmr_engine::policy::{
    Collide, CopyPolicy, CopyRequest, Landing, Reflink, Resume, Sparse, Target, Verify,
};
use bcmr_engine::remote::Purpose;
use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "Examples:
  bcmr copy -r photos /mnt/disk          photos becomes /mnt/disk/photos
  bcmr copy --archive -T photos backup   backup becomes what photos is
  bcmr copy -rn -e '*.o' src /tmp        say what would be copied
  bcmr copy -rC photos me@host:backup    to another machine; the same command goes on after a break
  bcmr copy host:/var/log/syslog .       and from one";

// -a, -s and -C belong to going on with an interrupted copy, which is why --archive has no letter.
#[derive(Debug, Args)]
pub struct CopyArgs {
    #[command(flatten)]
    pub operands: Operands,
    /// Copy directories with what is in them
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Read the names to copy, one a line, from FILE (- is standard input); they are below BASE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "files_from0")]
    pub files_from: Option<PathBuf>,
    /// The same, each name ended by a NUL
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files_from0: Option<PathBuf>,
    /// Stay on the file system of each SRC
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
    /// Follow DST where it is a symbolic link also when SRC is on another machine, which may have put the link there
    #[arg(long)]
    pub follow_destination: bool,
    #[command(flatten)]
    pub links: LinkArgs,
    #[command(flatten)]
    pub filters: FilterArgs,
    #[command(flatten)]
    pub keep: KeepArgs,
    #[command(flatten)]
    pub collide: CopyCollideArgs,
    #[command(flatten)]
    pub how: HowArgs,
    /// Share blocks with the source where the file system can, from 8 KiB on; alone it means always, at any length
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "always",
        default_value = "auto",
        hide_default_value = true
    )]
    pub reflink: SharingArg,
    /// Keep holes (auto), make more of them from zeros (always), or write everything out (disable)
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "always",
        default_value = "auto",
        hide_default_value = true
    )]
    pub sparse: SharingArg,
    /// Write into the file that is there instead of replacing it: keeps its inode, gives up atomicity
    #[arg(long)]
    pub inplace: bool,
    /// Write the BLAKE3 of every file into FILE, as b3sum does, with names relative to the destination
    ///
    /// Files that are left alone because they are the same are in it too. It appears when all was copied; `b3sum -c`
    /// in the destination and `bcmr check --manifest FILE DIR` prove it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["fast", "dry_run", "append"])]
    pub manifest: Option<PathBuf>,
    #[command(flatten)]
    pub resume: ResumeArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
    #[command(flatten)]
    pub connect: ConnectArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `--reflink` and `--sparse`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SharingArg {
    Auto,
    Always,
    #[value(alias = "never")]
    Disable,
}

/// `copy`: the request lacks only its opened list of names.
pub struct CopyJob {
    pub request: CopyRequest,
    pub names: Option<NamesFrom>,
    pub show: Show,
}

/// What `copy` arguments mean when everything is here.
pub fn request(a: &CopyArgs, env: &Env) -> Result<CopyJob, Usage> {
    let (sources, target) = operands(&a.operands)?;
    let names = names_of(a, sources.len())?;
    no_connection(&a.connect, Some(&a.remote))?;
    if a.resume.fast && !a.resume.resume {
        return Err(Usage::new("--fast goes with -C, or with a copy to or from another machine"));
    }
    let (policy, show) = copy_policy(a, env)?;
    io_guard(&policy.io, policy.resume)?;
    let manifest = a.manifest.clone();
    Ok(CopyJob { request: CopyRequest { sources, names: None, target, manifest, policy }, names, show })
}

/// What `copy` arguments mean when one side is on another machine.
pub fn remote(a: &CopyArgs, places: Places, config: &Config, env: &Env) -> Result<RemoteJob, Usage> {
    let count = match &places {
        Places::Here => 0,
        Places::Put { sources, .. } => sources.len(),
        Places::Get { from, .. } => from.len(),
    };
    let names = names_of(a, count)?;
    // What has no meaning here is refused: a flag that is silently left out promises something that is not kept.
    if a.reflink == SharingArg::Always {
        return Err(Usage::new("--reflink=always cannot hold: two machines share no blocks"));
    }
    if let Some(flag) = a.how.io.first_typed() {
        return Err(Usage::new(format!("{flag} is about copies on one machine"))
            .or("what goes over a wire is read and written by plain calls, as fast as the wire is"));
    }
    let (policy, show) = copy_policy(a, env)?;
    let host = places.address().map(|a| a.host.clone()).unwrap_or_default();
    let reach = reach(&a.connect, Some(&a.remote), a.resume.fast, &host, config)?;
    let unkept = unkept_without_peer(a, &policy, &places);
    let (purpose, manifest) = (Purpose::Copy, a.manifest.clone());
    Ok(RemoteJob { places, names, policy, purpose, manifest, reach, unkept, show })
}

/// What a copy by scp could not keep of what was asked for (D7). Whoever asked for it gets an error and not less.
fn unkept_without_peer(a: &CopyArgs, policy: &CopyPolicy, places: &Places) -> Vec<&'static str> {
    let into_name = match places {
        Places::Get { target, .. } => matches!(target, Target::Exactly(_)),
        _ => a.operands.no_target_directory,
    };
    let kept = a.keep.plain || !a.keep.preserve.is_empty() || !a.keep.no_preserve.is_empty();
    [
        (policy.verify != Verify::Off, "-V"),
        (a.resume.resume, "-C"),
        (a.resume.strict, "-s"),
        (a.resume.append.is_some(), "-a"),
        (a.how.sync, "--sync"),
        (a.keep.archive, "--archive"),
        (kept && !a.keep.archive, "--preserve"),
        (policy.force, "-f"),
        (a.collide.interactive, "-i"),
        (a.collide.no_clobber, "--no-clobber"),
        (a.collide.update.update.is_some(), "--update"),
        (policy.dry_run, "-n"),
        (!policy.filter.rules.is_empty(), "--exclude"),
        (!policy.filter.regexes.is_empty(), "--exclude-regex"),
        (policy.filter.gitignore, "--gitignore"),
        (a.files_from.is_some() || a.files_from0.is_some(), "--files-from"),
        (a.one_file_system, "-x"),
        (a.links.no_dereference, "-P"),
        (a.links.follow_operands && policy.recursive, "-H"),
        (a.sparse == SharingArg::Always, "--sparse"),
        (a.manifest.is_some(), "--manifest"),
        (a.remote.direct == Some(PlaneArg::Direct), "--direct"),
        (a.remote.retries.is_some_and(|n| n > 0), "--retries"),
        (into_name, "-T"),
    ]
    .into_iter()
    .filter_map(|(asked, flag)| asked.then_some(flag))
    .collect()
}

/// What decides how a copy is carried out, wherever its ends are.
fn copy_policy(a: &CopyArgs, env: &Env) -> Result<(CopyPolicy, Show), Usage> {
    let collide = collide(a.collide.no_clobber, a.collide.interactive, &a.collide.update)?;
    let recursive = a.recursive || a.keep.archive;
    if a.collide.force && a.resume.append.is_some() {
        return Err(Usage::new("-f and -a (--append) cannot be combined: what is added to is proved first")
            .or("what cp means by -a is --archive"));
    }
    let policy = CopyPolicy {
        recursive,
        follow: follow(&a.links, &a.keep, recursive),
        follow_destination: follow_destination(a.follow_destination),
        preserve: preserve(&a.keep.steps),
        strictness: strictness(&a.keep),
        specials: a.keep.archive,
        collide,
        force: a.collide.force,
        landing: if a.inplace { Landing::InPlace } else { Landing::Atomic },
        reflink: reflink(a.reflink),
        sparse: sparse(a.sparse),
        verify: verify(a.how.verify),
        durability: durability(&a.how),
        resume: resume(a.resume.resume, a.resume.fast, a.resume.strict, a.resume.append),
        checkpoint_bytes: a.resume.checkpoint_size,
        hashes: a.manifest.is_some(),
        one_file_system: a.one_file_system,
        filter: filter(&a.filters),
        dry_run: a.collide.dry_run,
        io: io(&a.how.io),
        jobs: jobs_for(collide, &a.how.jobs, env),
        me: env.me,
        umask: env.umask,
    };
    // What is half written in place has a new time too, so `-u` would take it for done.
    let again = match (policy.landing, collide) {
        _ if policy.resume.has_sessions() => Again::Resume,
        (Landing::Atomic, Collide::Replace) if policy.resume == Resume::Off => Again::WithUpdate,
        _ => Again::Same,
    };
    let fast = policy.resume == Resume::Fast;
    let show = Show { fast, ..show(Verb::Copy, &a.output, policy.dry_run, again, env) };
    Ok((policy, show))
}

fn names_of(a: &CopyArgs, sources: usize) -> Result<Option<NamesFrom>, Usage> {
    let names = names_from(a)?;
    if names.is_some() && sources != 1 {
        let say = "with --files-from there is exactly one source: the directory that the names are below";
        return Err(Usage::new(say));
    }
    if a.collide.interactive && names.as_ref().is_some_and(|n| n.file.is_none()) {
        return Err(Usage::new("-i cannot read answers where --files-from reads names"));
    }
    Ok(names)
}

fn names_from(a: &CopyArgs) -> Result<Option<NamesFrom>, Usage> {
    let (file, separator) = match (&a.files_from, &a.files_from0) {
        (Some(file), None) => (file, b'\n'),
        (None, Some(file)) => (file, 0),
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(Usage::new("--files-from and --files-from0 exclude each other")),
    };
    let file = (file.as_os_str() != "-").then(|| file.clone());
    Ok(Some(NamesFrom { file, separator }))
}

fn reflink(arg: SharingArg) -> Reflink {
    match arg {
        SharingArg::Auto => Reflink::Auto,
        SharingArg::Always => Reflink::Always,
        SharingArg::Disable => Reflink::Never,
    }
}

fn sparse(arg: SharingArg) -> Sparse {
    match arg {
        SharingArg::Auto => Sparse::Auto,
        SharingArg::Always => Sparse::Always,
        SharingArg::Disable => Sparse::Never,
    }
}
