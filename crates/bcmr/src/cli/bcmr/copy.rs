//! `copy`: what may be typed, and the request that it means.
//!
//! Must not know how a request is carried out.

use super::collide::{CopyCollideArgs, collide};
use super::columns::{
    Columns,
    Holds::{Everywhere, Here},
    Row,
    Scp::{Keeps, Loses, LosesIf},
};
use super::connection::{ConnectArgs, RemoteArgs, no_connection, reach};
use super::fake_super::{self, FakeSuperArgs};
use super::filters::{FilterArgs, filter};
use super::how::{HowArgs, durability, verify};
use super::io::{IoArgs, io, io_guard};
use super::jobs::jobs_for;
use super::links::{LinkArgs, follow, follow_destination};
use super::metadata::{KeepArgs, preserve, strictness};
use super::operands::{NamesFrom, Operands, Places, above, operands};
use super::output::{OutputArgs, show};
use super::owners::{self, OwnerArgs, alter, preserved};
use super::remote::{RemoteJob, onward};
use super::resume::{ResumeArgs, resume};
use super::store;
use crate::config::Config;
use crate::env::Env;
use crate::show::{Again, Far, Show, Verb};
use crate::usage::Usage;
use bcmr_engine::policy::{
    Collide, CopyPolicy, CopyRequest, DeleteMax, DeleteWhen, Landing, Leaving, Mirror, Old, Reflink, Resume,
    Sharing, Sparse, SyncPlan, Target,
};
use bcmr_engine::remote::Purpose;
use clap::{Args, ValueEnum, ValueHint};
use std::path::{Path, PathBuf};

/// What most copies are.
pub(super) const SHORT_EXAMPLES: &str = "Examples:
  bcmr copy -r photos /mnt/disk       photos becomes /mnt/disk/photos
  bcmr copy --archive -T src backup   backup becomes what src is, with all attributes
  bcmr copy -rC photos me@host:       to another machine; the same command goes on after a break";

pub(super) const EXAMPLES: &str = "Examples:
  bcmr copy -r photos /mnt/disk          photos becomes /mnt/disk/photos
  bcmr copy --archive -T photos backup   backup becomes what photos is
  bcmr copy -rn -e '*.o' src /tmp        say what would be copied
  bcmr copy -rC photos me@host:backup    to another machine; the same command goes on after a break
  bcmr copy host:/var/log/syslog .       and from one
  bcmr copy -V - dump.sql                standard input, whole or not at all; copy SRC - writes to standard output";

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
    #[arg(hide_short_help = true, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files_from0: Option<PathBuf>,
    /// Stay on the file system of each SRC
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
    /// Follow DST where it is a symbolic link also when SRC is on another machine, which may have put the link there
    #[arg(hide_short_help = true, long)]
    pub follow_destination: bool,
    /// Make directories above the destination that are not there; not with -n
    #[arg(hide_short_help = true, long, conflicts_with = "dry_run")]
    pub mkpath: bool,
    #[command(flatten)]
    pub links: LinkArgs,
    #[command(flatten)]
    pub filters: FilterArgs,
    #[command(flatten)]
    pub keep: KeepArgs,
    #[command(flatten)]
    pub owners: OwnerArgs,
    #[command(flatten)]
    pub fake: FakeSuperArgs,
    #[command(flatten)]
    pub collide: CopyCollideArgs,
    #[command(flatten)]
    pub how: HowArgs,
    /// Share blocks with the source where the file system can, from 8 KiB on; alone it means always, at any length
    #[arg(
        hide_short_help = true,
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
        hide_short_help = true,
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
    #[arg(hide_short_help = true, long)]
    pub inplace: bool,
    /// Write the BLAKE3 of every file into FILE, as b3sum does, with names relative to the destination
    ///
    /// Files that are left alone because they are the same are in it too. It appears when all was copied; `b3sum -c`
    /// in the destination and `bcmr check --manifest FILE DIR` prove it. FILE may be new, empty or an older manifest; any other
    /// file stays, and nothing is copied.
    #[arg(hide_short_help = true, long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["fast", "dry_run", "append"])]
    pub manifest: Option<PathBuf>,
    #[command(flatten)]
    pub resume: ResumeArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
    #[command(flatten)]
    pub connect: ConnectArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub io: IoArgs,
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
    pub dash: Dash,
    pub show: Show,
}

/// What `-` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dash {
    Nowhere,
    Input,
    Output,
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
    let request = CopyRequest { sources, names: None, target, manifest, policy };
    let dash = dash(a, &request)?;
    // Of what went into a stream a part is there, and it begins anew.
    let again = if dash == Dash::Output { Again::InPlace } else { show.again };
    let show = Show { again, ..show };
    Ok(CopyJob { request, names, dash, show })
}

/// Which end `-` stands for; what cannot be done with it is refused.
fn dash(a: &CopyArgs, request: &CopyRequest) -> Result<Dash, Usage> {
    let is_dash = |path: &Path| path.as_os_str() == "-";
    let input = request.sources.iter().any(|source| is_dash(source));
    let output = matches!(&request.target, Target::Guess(path) if is_dash(path));
    if !input && !output {
        return Ok(Dash::Nowhere);
    }
    let refused = |said: &str| Err(Usage::new(said).or("a file of that name is ./-"));
    if input && output || request.sources.len() != 1 {
        return refused(
            "- is standard input as the one source, or standard output as the destination of one source",
        );
    }
    if is_recursive(a) || a.files_from.is_some() || a.files_from0.is_some() {
        return refused("- is one file, and goes without -r, --archive and --files-from");
    }
    if a.collide.dry_run || a.resume.append.is_some() || request.policy.resume.has_sessions() {
        return refused("- is read or written once, and goes without -n, -C, -s and -a");
    }
    if input {
        return match a.collide.interactive {
            true => refused("-i cannot read answers where - is read"),
            false => Ok(Dash::Input),
        };
    }
    let tells = a.output.verbose || a.output.json || a.manifest.is_some() || a.how.verify.is_some();
    match tells {
        true => {
            refused("standard output holds what is copied, which goes without -v, --json, --manifest and -V")
        }
        false => Ok(Dash::Output),
    }
}

/// What `copy` arguments mean when one side is on another machine.
pub fn remote(a: &CopyArgs, places: Places, config: &Config, env: &Env) -> Result<RemoteJob, Usage> {
    let count = match &places {
        Places::Here => 0,
        Places::Put { sources, .. } => sources.len(),
        Places::Get { from, .. } | Places::Between { from, .. } => from.len(),
    };
    let names = names_of(a, count)?;
    if let (Places::Between { .. }, Some(flag)) = (&places, only_with_an_end_here(a)) {
        return Err(Usage::new(format!("{flag} is not for copies between two other machines")));
    }
    if a.operands.paths.iter().any(|path| path.as_os_str() == "-") {
        return Err(Usage::new("standard input and output are copied on this machine only")
            .or("copy to a file first; a file of that name is ./-"));
    }
    // What has no meaning here is refused: a flag that is silently left out promises something that is not kept.
    if let Some((flag, hint)) = a.only_here().or_else(|| a.io.only_here()) {
        return Err(Usage::new(format!("{flag} is about copies on one machine")).or(hint));
    }
    let (policy, show) = copy_policy(a, env)?;
    let host = places.address().map(|a| a.host.clone()).unwrap_or_default();
    let onward = onward(&places, &a.connect, Some(&a.remote), a.resume.fast, config)?;
    let reach = reach(&a.connect, Some(&a.remote), a.resume.fast, &host, config)?;
    let far = if places.is_put() { Far::To(reach.way.plane) } else { Far::From(reach.way.plane) };
    let show = Show { far, guessed_there: places.guessed_there(), ..show };
    let unkept = lost_over_scp(a);
    let (purpose, manifest) = (Purpose::Copy, a.manifest.clone());
    let (dated, state, plan) = (None, None, SyncPlan::None);
    let store = store::of_downloads(config, env)?;
    Ok(RemoteJob {
        places,
        names,
        policy,
        purpose,
        when: DeleteWhen::After,
        manifest,
        dated,
        plan,
        state,
        store,
        reach,
        onward,
        unkept,
        show,
    })
}

/// What is about this machine, and so not for `--via-source`.
pub fn about_here(a: &CopyArgs) -> Option<&'static str> {
    let here = a.filters.about_here().or_else(|| a.how.about_here());
    here.or(a.collide.interactive.then_some("-i"))
}

/// What needs one of the two ends to be here.
fn only_with_an_end_here(a: &CopyArgs) -> Option<&'static str> {
    let names = a.files_from.is_some() || a.files_from0.is_some();
    names.then_some("--files-from").or(a.manifest.is_some().then_some("--manifest"))
}

impl Columns for CopyArgs {
    const ROWS: &'static [Row<CopyArgs>] = &[
        Row("--recursive", Everywhere, Keeps, |a| a.recursive),
        Row("--files-from", Everywhere, Loses, |a| a.files_from.is_some()),
        Row("--files-from0", Everywhere, Loses, |a| a.files_from0.is_some()),
        Row("-x", Everywhere, Loses, |a| a.one_file_system),
        Row("-H", Everywhere, LosesIf(|a| a.links.follow_operands && is_recursive(a)), |a| {
            a.links.follow_operands
        }),
        Row("--sparse", Everywhere, LosesIf(|a| a.sparse == SharingArg::Always), |a| {
            a.sparse != SharingArg::Auto
        }),
        Row("--manifest", Everywhere, Loses, |a| a.manifest.is_some()),
        Row("--inplace", Everywhere, Keeps, |a| a.inplace),
        Row("--follow-destination", Everywhere, Keeps, |a| a.follow_destination),
        Row("--mkpath", Everywhere, Loses, |a| a.mkpath),
        Row("--reflink=always", Here("two machines share no blocks"), Keeps, |a| {
            a.reflink == SharingArg::Always
        }),
    ];
}

/// What a copy by scp could not keep of what was asked for (D7). A user who asked for it gets an error and not less.
fn lost_over_scp(a: &CopyArgs) -> Vec<&'static str> {
    let how = a
        .how
        .lost()
        .chain(a.resume.lost())
        .chain(a.keep.lost())
        .chain(a.owners.lost())
        .chain(a.fake.lost())
        .chain(a.collide.lost());
    let which = a.filters.lost().chain(a.lost()).chain(a.links.lost());
    let there = a.remote.lost().chain(a.connect.lost()).chain(a.operands.lost());
    how.chain(which).chain(there).chain(a.output.lost()).chain(a.io.lost()).collect()
}

fn is_recursive(a: &CopyArgs) -> bool {
    a.recursive || a.keep.archive
}

/// What decides how a copy is carried out, wherever its ends are.
fn copy_policy(a: &CopyArgs, env: &Env) -> Result<(CopyPolicy, Show), Usage> {
    let collide = collide(a.collide.no_clobber, a.collide.interactive, &a.collide.update)?;
    let recursive = is_recursive(a);
    if a.collide.force && a.resume.append.is_some() {
        return Err(Usage::new("-f and -a (--append) cannot be combined: what is added to is proved first")
            .or("what cp means by -a is --archive"));
    }
    let policy = CopyPolicy {
        recursive,
        follow: follow(&a.links, &a.keep, recursive),
        follow_destination: follow_destination(a.follow_destination),
        above: above(a.mkpath),
        preserve: fake_super::held(&a.fake, preserved(&a.owners, preserve(&a.keep.steps.0))),
        times_for_resuming: false,
        alter: alter(&a.owners)?,
        strictness: strictness(&a.keep),
        specials: a.keep.archive,
        collide,
        mirror: Mirror::Off,
        delete_max: DeleteMax::DEFAULT,
        old: Old::Goes,
        bases: Vec::new(),
        sharing: Sharing::Names,
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
        filter: filter(&a.filters)?,
        leaving: Leaving::Stays,
        dry_run: a.collide.dry_run,
        io: io(&a.io),
        jobs: jobs_for(collide, &a.how.jobs, env),
        me: env.me,
        umask: env.umask,
    };
    fake_super::guard(&policy)?;
    // What is half written in place has a new time too, so `-u` would take it for done.
    let again = match (policy.landing, collide) {
        _ if policy.resume.has_sessions() => Again::Resume,
        (Landing::InPlace, _) => Again::InPlace,
        _ if policy.resume.appends() => Again::InPlace,
        (Landing::Atomic, Collide::Replace) => Again::WithUpdate,
        _ => Again::Same,
    };
    let fast = policy.resume == Resume::Fast;
    let verify = policy.verify;
    let report = a.how.report.clone();
    let show = show(Verb::Copy, &a.output, policy.dry_run, again, env);
    let owners_said = owners::are_said(&a.owners);
    let one_worker = policy.jobs == 1;
    let show = Show { owners_said, one_worker, fast, verify, collide, report, ..show };
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
