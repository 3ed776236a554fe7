//! `sync`: what may be typed, and the request that it means. Must not know how a request is carried out.

use super::columns::Columns;
use super::connection::{ConnectArgs, RemoteArgs, no_connection, reach};
use super::fake_super::{self, FakeSuperArgs};
use super::filters::{FilterArgs, filter};
use super::how::{HowArgs, verify};
use super::io::{IoArgs, io, io_guard};
use super::jobs::jobs;
use super::operands::{NamedPath, Operands, Places, above};
use super::output::{OutputArgs, show};
use super::owners::{OwnerArgs, alter};
use super::remote::{RemoteJob, onward};
use super::store;
use crate::config::Config;
use crate::env::Env;
use crate::show::{Again, Show, Verb};
use crate::usage::Usage;
use bcmr_engine::calendar::Stamp;
use bcmr_engine::policy::{
    Collide, Compare, CopyPolicy, Dated, DeleteMax, DeleteWhen, Mirror, Old, Preserve, Sharing, SyncPlan,
    SyncRequest, Thinning,
};
use bcmr_engine::remote::{Address, Purpose};
use clap::builder::ArgPredicate;
use clap::{Args, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub(super) const EXAMPLES: &str = "Examples:
  bcmr sync photos /mnt/backup           /mnt/backup gets what is in photos; nothing is deleted
  bcmr sync -n --delete src /mnt/backup  say what would be added (+), replaced (~) and deleted (-)
  bcmr sync --delete src /mnt/backup     and do it
  bcmr sync --delete src me@host:backup  the same on another machine";

#[derive(Debug, Args)]
pub struct SyncArgs {
    /// The directory whose contents are wanted
    #[arg(
        value_name = "SRC",
        value_parser = NamedPath,
        value_hint = ValueHint::DirPath,
        required = false,
        required_unless_present = "apply",
        default_value_if("apply", ArgPredicate::IsPresent, ".")
    )]
    pub source: PathBuf,
    /// The directory that gets them; it is made if it is not there
    #[arg(
        value_name = "DST",
        value_parser = NamedPath,
        value_hint = ValueHint::DirPath,
        required = false,
        required_unless_present = "apply",
        default_value_if("apply", ArgPredicate::IsPresent, ".")
    )]
    pub dest: PathBuf,
    /// Only say what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// With -n: write what would be done into FILE, for --apply
    #[arg(long, value_name = "FILE", requires = "dry_run", conflicts_with = "snapshot", value_hint = ValueHint::FilePath)]
    pub plan: Option<PathBuf>,
    /// Do exactly what the plan in FILE says; if anything has changed since, say what, and do nothing
    ///
    /// The options and both directories are those that the plan was made with.
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        conflicts_with_all = [
            "source", "dest", "dry_run", "plan", "checksum", "one_file_system", "mkpath", "both_ways", "exclude",
            "include", "exclude_from", "exclude_regex", "gitignore", "bcmrignore", "verify", "sync", "DeleteArgs", "OldArgs",
            "EarlierArgs", "BoundsArgs", "OwnerArgs", "FakeSuperArgs", "JobsArg", "RemoteArgs", "IoArgs", "ssh", "option", "jump",
            "identity", "ssh_config", "port", "remote_program", "remote_sudo", "bootstrap", "no_bootstrap"
        ]
    )]
    pub apply: Option<PathBuf>,
    /// Compare contents, and not size and modification time
    #[arg(short, long)]
    pub checksum: bool,
    /// Stay on the file system of SRC
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
    /// Make directories above the destination that are not there; not with -n
    #[arg(hide_short_help = true, long, conflicts_with = "dry_run")]
    pub mkpath: bool,
    /// Name each change with rsync's letters: >f for a file, cd and cL for a new directory and link, . for attributes, *deleting
    #[arg(short = 'i', long, alias = "itemize-changes", conflicts_with = "json")]
    pub itemize: bool,
    /// Say in the end what was done, what was left alone and what limited it
    #[arg(hide_short_help = true, long)]
    pub stats: bool,
    /// Both ways at once: refused, other tools do that
    #[arg(long, hide = true, aliases = ["bidirectional", "two-way"])]
    pub both_ways: bool,
    #[command(flatten)]
    pub delete: DeleteArgs,
    #[command(flatten)]
    pub old: OldArgs,
    #[command(flatten)]
    pub earlier: EarlierArgs,
    #[command(flatten)]
    pub filters: FilterArgs,
    #[command(flatten)]
    pub owners: OwnerArgs,
    #[command(flatten)]
    pub fake: FakeSuperArgs,
    #[command(flatten)]
    pub how: HowArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
    #[command(flatten)]
    pub connect: ConnectArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub io: IoArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "What only DST has")]
pub struct DeleteArgs {
    /// Delete what SRC does not have, once everything else is there
    ///
    /// What the filter leaves out stays, and so does everything where something of SRC could not be read, where SRC is
    /// empty or not mounted as it was, and where another file system is mounted.
    ///
    /// With --delete=before they go first, once all of SRC has been listed: for a DST without room for both. What is there then is not
    /// kept until the new is.
    #[arg(long, value_name = "WHEN", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "after")]
    pub delete: Option<DeleteArg>,
    /// The same, with what filters, sizes and times leave out, also if SRC has it
    #[arg(hide_short_help = true, long)]
    pub delete_excluded: bool,
    /// Delete nothing if more than N entries would go, or more than P percent of over 100
    #[arg(long, value_name = "N|P%", value_parser = delete_max, default_value = "25%")]
    pub max_delete: DeleteMax,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "What is replaced or deleted")]
pub struct OldArgs {
    /// Keep it below DIR, on the file system of DST, with a receipt that `bcmr undo` takes
    ///
    /// Each run that changes something makes a directory of its own in DIR, called by its time. DIR may be below DST, where
    /// --delete leaves it alone.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub backup_dir: Option<PathBuf>,
    /// Keep it in the trash of the desktop, with a receipt that `bcmr undo` takes
    #[arg(long, conflicts_with = "backup_dir")]
    pub trash: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Snapshots")]
pub struct EarlierArgs {
    /// Make a new tree of SRC in DST, named by its date and time; it appears once it is complete
    ///
    /// What is the same as in the last one becomes a hard link to that, so a snapshot takes the room of what has changed. DST holds
    /// nothing but snapshots; one that could not be completed is gone on with by the same command.
    #[arg(long, conflicts_with_all = ["backup_dir", "trash"])]
    pub snapshot: bool,
    /// Take older snapshots away, but the newest of each of the last so many days, weeks and months that have one
    #[arg(long, value_name = "7d,4w,12m", value_parser = thinning, requires = "snapshot")]
    pub keep: Option<Thinning>,
    /// Name of the snapshot: a date, UTC; now, where nothing is said
    #[arg(long, value_name = "DATE", value_parser = moment, requires = "snapshot")]
    pub at: Option<Stamp>,
    /// Make files that DIR has as they are in SRC hard links to those, instead of copying them (may be repeated)
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub link_dest: Vec<PathBuf>,
    /// The same by clones, which share blocks where the file system can, and may be changed by themselves
    #[arg(hide_short_help = true, long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["link_dest", "snapshot"])]
    pub reflink_dest: Vec<PathBuf>,
}

/// When it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeleteArg {
    /// Once everything else is there
    After,
    /// Before anything else
    Before,
}

/// `7d,4w,12m`, or some of the three.
fn thinning(typed: &str) -> Result<Thinning, String> {
    let mut rule = Thinning { days: 0, weeks: 0, months: 0 };
    let wrong = || "days, weeks and months as in 7d,4w,12m".to_owned();
    for part in typed.split(',') {
        let unit = part.chars().last().ok_or_else(wrong)?;
        let place = match unit {
            'd' => &mut rule.days,
            'w' => &mut rule.weeks,
            'm' => &mut rule.months,
            _ => return Err(wrong()),
        };
        let number = part.strip_suffix(unit).and_then(|number| number.parse().ok());
        match number.filter(|number| *number > 0 && *place == 0) {
            Some(number) => *place = number,
            None => return Err(wrong()),
        }
    }
    Ok(rule)
}

/// `2026-01-31T120000Z`, with or without colons, or a day alone, which is its beginning.
fn moment(typed: &str) -> Result<Stamp, String> {
    let plain = typed.replace(':', "");
    let whole = if plain.contains('T') { plain } else { format!("{plain}T000000Z") };
    Stamp::parse(whole.as_bytes())
        .ok_or_else(|| "a moment as in 2026-01-31T12:00:00Z, or a day as in 2026-01-31".to_owned())
}

/// Which snapshot is asked for, where one is.
pub fn dated(a: &SyncArgs, env: &Env) -> Option<Dated> {
    let at = a.earlier.at.unwrap_or_else(|| Stamp::of(env.now));
    a.earlier.snapshot.then_some(Dated { at, thinning: a.earlier.keep })
}

/// Where that is; to another machine, a place or the trash there.
fn old(a: &OldArgs, env: &Env) -> Result<Old, Usage> {
    let none =
        || Usage::new("there is no home directory that a trash could be in").or("--backup-dir names a place");
    match (&a.backup_dir, a.trash) {
        (Some(dir), _) => Ok(Old::Backup(dir.clone())),
        (None, false) => Ok(Old::Goes),
        (None, true) => trash(env).ok_or_else(none),
    }
}

/// The trash of the user that this runs as.
pub(super) fn trash(env: &Env) -> Option<Old> {
    let (home, receipts) = (env.trash_dir.clone()?, env.state_dir.as_ref()?.join("undo"));
    Some(Old::Trash { home, receipts, ahead: ahead(env.now) })
}

/// Seconds by which local time is ahead of UTC.
fn ahead(now: i64) -> i64 {
    let now = jiff::Timestamp::from_second(now).unwrap_or_default();
    jiff::tz::TimeZone::system().to_offset(now).seconds().into()
}

/// `100` or `25%`.
pub(super) fn delete_max(typed: &str) -> Result<DeleteMax, String> {
    let number = |text: &str| text.parse().map_err(|_| "a number, or a number and %".to_owned());
    match typed.strip_suffix('%') {
        Some(percent) => number(percent).map(DeleteMax::Percent),
        None => number(typed).map(DeleteMax::Entries),
    }
}

impl SyncArgs {
    /// The two directories as operands, for telling which machine each is on.
    pub fn operands(&self) -> Operands {
        let paths = vec![self.source.clone(), self.dest.clone()];
        Operands { paths, target_directory: None, no_target_directory: true }
    }
}

/// What `sync` arguments mean when everything is here.
pub fn request(a: &SyncArgs, env: &Env) -> Result<(SyncRequest, Show), Usage> {
    guard(a)?;
    no_connection(&a.connect, Some(&a.remote))?;
    let (policy, show) = sync_policy(a, env)?;
    let (source, dest) = (a.source.clone(), a.dest.clone());
    let state = state(env);
    let (plan, when) = (planned(a, env), when(a)?);
    Ok((SyncRequest { source, dest, policy, state, plan, when }, show))
}

/// Where it is remembered how sources were mounted.
pub(super) fn state(env: &Env) -> Option<PathBuf> {
    env.state_dir.as_ref().map(|dir| dir.join("sync"))
}

/// When what only DST has goes.
fn when(a: &SyncArgs) -> Result<DeleteWhen, Usage> {
    match a.delete.delete {
        Some(DeleteArg::Before) if a.earlier.snapshot => Err(Usage::new(
            "--delete=before has no meaning with --snapshot, which deletes nothing of an earlier one",
        )),
        Some(DeleteArg::Before) => Ok(DeleteWhen::Before),
        Some(DeleteArg::After) | None => Ok(DeleteWhen::After),
    }
}

/// The plan that is to be written, if one is.
fn planned(a: &SyncArgs, env: &Env) -> SyncPlan {
    a.plan.clone().map_or(SyncPlan::None, |file| SyncPlan::Write { file, words: words(a, env) })
}

/// What a plan is made with: the defaults, what was typed behind the verb, and what that came to at this moment.
fn words(a: &SyncArgs, env: &Env) -> Vec<OsString> {
    let mut words: Vec<OsString> = env.whole_line();
    let verb = words.iter().position(|word| word == "sync").map_or(0, |at| at + 1);
    words.drain(..verb);
    // Behind the last option.
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words.splice(end..end, a.filters.settled());
    words
}

/// What a plan was made with, as it is to be done now.
pub fn as_planned(
    planned: SyncArgs,
    now: &SyncArgs,
    file: &Path,
    env: &Env,
) -> Result<(SyncRequest, Show), Usage> {
    let (request, show) = request(&done(planned, now), env)?;
    let show = Show { from_plan: true, ..show };
    Ok((SyncRequest { plan: SyncPlan::Apply(file.to_owned()), ..request }, show))
}

/// The same with another machine: what looks again, and what is done then.
pub fn remote_as_planned(
    planned: SyncArgs,
    now: &SyncArgs,
    file: &Path,
    mut places: impl FnMut(&SyncArgs) -> Result<Places, Usage>,
    (config, env): (&Config, &Env),
) -> Result<(RemoteJob, RemoteJob), Usage> {
    let as_planned = |args: &SyncArgs, places| {
        let job = remote(args, places, config, env)?;
        Ok(RemoteJob { show: Show { from_plan: true, ..job.show }, ..job })
    };
    let look = as_planned(&planned, places(&planned)?)?;
    let done = done(planned, now);
    let job = as_planned(&done, places(&done)?)?;
    Ok((RemoteJob { plan: SyncPlan::Apply(file.to_owned()), ..look }, job))
}

/// What was planned, as it is typed to be done.
fn done(planned: SyncArgs, now: &SyncArgs) -> SyncArgs {
    let (itemize, stats, output) = (now.itemize, now.stats, now.output.clone());
    let how = HowArgs { report: now.how.report.clone(), ..planned.how };
    SyncArgs { dry_run: false, plan: None, itemize, stats, output, how, ..planned }
}

/// What `sync` arguments mean when one of the two is on another machine.
pub fn remote(a: &SyncArgs, places: Places, config: &Config, env: &Env) -> Result<RemoteJob, Usage> {
    guard(a)?;
    if let Some((flag, hint)) = a.io.only_here() {
        return Err(Usage::new(format!("{flag} is about copies on one machine")).or(hint));
    }
    let (policy, show) = sync_policy(a, env)?;
    let when = when(a)?;
    if !a.earlier.reflink_dest.is_empty() {
        return Err(Usage::new("--reflink-dest is about directories on this machine"));
    }
    let host = places.address().map(|a| a.host.clone()).unwrap_or_default();
    let mut onward = onward(&places, &a.connect, Some(&a.remote), false, config)?;
    let mut reach = reach(&a.connect, Some(&a.remote), false, &host, config)?;
    let is_said = |host: &str| a.remote.retries.is_some() || config.of(host).retries.is_some();
    if !is_said(&host) {
        reach.way.retries = RETRIES;
    }
    if let (Some(reach), Places::Between { to, .. }) = (&mut onward, &places)
        && !is_said(&to.host)
    {
        reach.way.retries = RETRIES;
    }
    let compare = if a.checksum { Compare::Hash } else { Compare::SizeAndTime };
    let purpose = match policy.dry_run {
        // A new snapshot has nothing that the source does not have.
        true => Purpose::Check {
            compare,
            extra: policy.mirror.deletes() || a.earlier.snapshot,
            alike: a.plan.is_some(),
        },
        false => Purpose::Copy,
    };
    let (places, unkept) = (contents_of(places), vec!["sync"]);
    let (dated, state) = (dated(a, env), state(env));
    let (names, manifest, plan) = (None, None, planned(a, env));
    let store = store::of_downloads(config, env)?;
    Ok(RemoteJob {
        places,
        names,
        policy,
        purpose,
        when,
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
pub fn about_here(a: &SyncArgs) -> Option<&'static str> {
    a.filters.about_here().or_else(|| a.how.about_here())
}

/// How often a lost connection is made again where nothing is said.
const RETRIES: u32 = 3;

/// Contents are meant, whatever slashes are typed.
fn contents_of(places: Places) -> Places {
    let whole = |path: PathBuf| path.join(".");
    match places {
        Places::Here => Places::Here,
        Places::Put { sources, to, target } => {
            Places::Put { sources: sources.into_iter().map(whole).collect(), to, target }
        }
        Places::Get { from, target } => {
            let from = from.into_iter().map(|a| Address { path: whole(a.path), ..a });
            Places::Get { from: from.collect(), target }
        }
        Places::Between { from, to, target } => {
            let from = from.into_iter().map(|a| Address { path: whole(a.path), ..a });
            Places::Between { from: from.collect(), to, target }
        }
    }
}

/// What `sync` does not do at all.
pub fn guard(a: &SyncArgs) -> Result<(), Usage> {
    if a.both_ways {
        return Err(Usage::new("sync goes one way: DST becomes what SRC is")
            .or("unison, Syncthing and rclone bisync bring two directories together"));
    }
    Ok(())
}

/// What names are below when they are told: DST, without the slashes and dots behind it that paths made of it lack.
fn shown_base(dest: &Path) -> PathBuf {
    dest.components().collect()
}

/// What decides how it is carried out, wherever the two directories are.
fn sync_policy(a: &SyncArgs, env: &Env) -> Result<(CopyPolicy, Show), Usage> {
    let policy = CopyPolicy {
        collide: if a.checksum { Collide::IfContentDiffers } else { Collide::IfDifferent },
        mirror: match (a.delete.delete.is_some(), a.delete.delete_excluded) {
            (_, true) => Mirror::DeleteExcluded,
            (true, false) => Mirror::Delete,
            (false, false) => Mirror::Update,
        },
        delete_max: a.delete.max_delete,
        above: above(a.mkpath),
        preserve: fake_super::held(&a.fake, Preserve::ALL),
        alter: alter(&a.owners)?,
        old: old(&a.old, env)?,
        bases: [&a.earlier.link_dest[..], &a.earlier.reflink_dest].concat(),
        sharing: if a.earlier.reflink_dest.is_empty() { Sharing::Names } else { Sharing::Blocks },
        verify: verify(a.how.verify),
        one_file_system: a.one_file_system,
        filter: filter(&a.filters)?,
        dry_run: a.dry_run,
        io: io(&a.io),
        ..CopyPolicy::mirror(jobs(&a.how.jobs, env), env.me, env.umask)
    };
    io_guard(&policy.io, policy.resume)?;
    fake_super::guard(&policy)?;
    let verify = policy.verify;
    let show = show(Verb::Sync, &a.output, policy.dry_run, Again::Resume, env);
    // A dry run tells differences, as a tree.
    let items = (show.items || a.itemize) && (show.json || !policy.dry_run);
    let below = dated(a, env).map_or(a.dest.clone(), |dated| a.dest.join(dated.at.to_string()));
    let itemized = a.itemize.then(|| shown_base(&below));
    let report = a.how.report.clone();
    let one_worker = policy.jobs == 1;
    Ok((policy, Show { one_worker, verify, items, itemized, stats: a.stats, report, ..show }))
}
