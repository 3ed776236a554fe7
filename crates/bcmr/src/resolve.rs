//! What was typed, made into what is meant: requests for the engine and how to show its work.
//!
//! [`Env::read`] is the only reader of the process's surroundings (environment variables, umask, cores, terminals,
//! signals that are ignored), so everything else here is pure and tested as a table. Must not know how a request is
//! carried out nor how anything is worded.

use crate::args::{
    Attr, CheckArgs, CopyArgs, FilterArgs, HowArgs, JobsArg, KeepArgs, KeepStep, LinkArgs, MoveArgs,
    Operands, OutputArgs, RemoveArgs, ResumeArgs, RuleArg, SessionsArgs, SharingArg, Update, UpdateArg,
    VerifyArg, When,
};
use crate::names;
use bcmr_engine::policy::{
    CheckRequest, Collide, Compare, CopyPolicy, CopyRequest, Durability, FilterSpec, Follow, Landing,
    MoveRequest, Preserve, Reflink, RemoveRequest, Resume, Rule, Sparse, Strictness, Target, Verify,
};
use std::io::IsTerminal;
use std::path::PathBuf;

/// Worker threads unless `-j` says otherwise: more than this has not paid on any machine measured.
const JOBS_DEFAULT_MAX: usize = 8;

/// Between two checkpoints where nobody chose: at most so much is copied again after a crash, at a few percent of the
/// time.
const CHECKPOINT_BYTES: u64 = 64 << 20;

/// The process's surroundings, read once and while there is one thread.
#[derive(Clone, Debug)]
pub struct Env {
    /// The file mode creation mask.
    pub umask: u32,
    /// The effective user.
    pub me: u32,
    /// Cores this process may use.
    pub cores: usize,
    /// Standard input is a terminal.
    pub stdin_tty: bool,
    /// Standard output is a terminal.
    pub stdout_tty: bool,
    /// Standard error is a terminal.
    pub stderr_tty: bool,
    /// `TERM` names a terminal that cannot move its cursor, or none at all.
    pub dumb: bool,
    /// `NO_COLOR` is set and not empty.
    pub no_color: bool,
    /// Signals that were ignored when we were started (bit n-1 is signal n), as `nohup` and shells do.
    pub ignored_signals: u64,
    /// Seconds since 1970.
    pub now: i64,
}

impl Env {
    /// Reads it all. The umask can only be read by setting it, so no other thread may run yet.
    pub fn read() -> Env {
        let mask = rustix::process::umask(rustix::fs::Mode::empty());
        rustix::process::umask(mask);
        Env {
            umask: mask.bits() & 0o777,
            me: rustix::process::geteuid().as_raw(),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            stdin_tty: std::io::stdin().is_terminal(),
            stdout_tty: std::io::stdout().is_terminal(),
            stderr_tty: std::io::stderr().is_terminal(),
            dumb: std::env::var_os("TERM").is_none_or(|t| t.is_empty() || t == "dumb"),
            no_color: std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty()),
            ignored_signals: ignored_signals(),
            now: now(),
        }
    }
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// `SigIgn` of /proc/self/status. Where there is no such file nothing counts as ignored.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("SigIgn:")).unwrap_or_default();
    u64::from_str_radix(line.trim(), 16).unwrap_or(0)
}

/// Raises the soft limit of open files to the hard one. Workers hold directories open; where raising fails the soft
/// limit still serves, only sooner exhausted, and the engine says so then.
pub fn raise_limits() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // A limit on the size of files would kill (SIGXFSZ); with a handler in its place the write fails with EFBIG, and
    // what was begun is cleaned up. Where no handler can be set, it kills as before.
    let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, over).ok();
    let now = getrlimit(Resource::Nofile);
    if now.current != now.maximum {
        setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum }).ok();
    }
}

/// Arguments that parse but make no sense together. Told with exit code 2.
#[derive(Debug, PartialEq, Eq)]
pub struct Usage(pub String);

/// Which verb is meant; words and exit codes differ by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Copy,
    Move,
    Remove,
    Check,
    Sessions,
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meter {
    Off,
    /// One line on the terminal, redrawn in place.
    Inline,
    /// A new line every few seconds.
    Lines,
    /// `progress` events.
    Events,
}

/// How the work is shown.
#[derive(Clone, Debug)]
pub struct Show {
    pub verb: Verb,
    /// Events as NDJSON on standard output, and nothing for people beside it.
    pub json: bool,
    pub verbose: bool,
    pub quiet: bool,
    /// Every item is told.
    pub items: bool,
    pub dry_run: bool,
    pub meter: Meter,
    /// Signs of `check` are coloured.
    pub color: bool,
    /// A person watches standard output: every line goes out at once.
    pub eager: bool,
    /// Answers are typed where the question stands, their Enter included.
    pub echoes: bool,
    /// A person watches standard error: a run longer than a second ends with one line on what was done.
    pub watched: bool,
    /// How to go on after a stop.
    pub again: Again,
    /// What was there was trusted unread (`--fast`).
    pub fast: bool,
    /// Differences are from a manifest, not from a source.
    pub manifest: bool,
    pub ignored_signals: u64,
    /// Seconds since 1970 when the run began, for ages.
    pub now: i64,
}

/// What brings an interrupted run to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// The same command does.
    Same,
    /// The same command does, from where it was.
    Resume,
    /// The same command with `-u`, which leaves alone what was copied whole.
    WithUpdate,
    /// The same command with `--merge`, since directories may now stand on both sides.
    WithMerge,
}

/// Where `--files-from` reads names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamesFrom {
    /// `None` is standard input.
    pub file: Option<PathBuf>,
    /// What ends a name.
    pub separator: u8,
}

/// `copy`: the request lacks only its opened list of names.
pub struct CopyJob {
    pub request: CopyRequest,
    pub names: Option<NamesFrom>,
    pub show: Show,
}

/// What `copy` arguments mean.
pub fn copy(a: &CopyArgs, env: &Env) -> Result<CopyJob, Usage> {
    let (sources, target) = operands(&a.operands)?;
    let names = names_from(a)?;
    if names.is_some() && sources.len() != 1 {
        let say = "with --files-from there is exactly one source: the directory that the names are below";
        return Err(Usage(say.into()));
    }
    if a.collide.interactive && names.as_ref().is_some_and(|n| n.file.is_none()) {
        return Err(Usage("-i cannot read answers where --files-from reads names".into()));
    }
    let collide = collide(a.collide.no_clobber, a.collide.interactive, &a.collide.update)?;
    let recursive = a.recursive || a.keep.archive;
    let policy = CopyPolicy {
        recursive,
        follow: follow(&a.links, &a.keep, recursive),
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
        resume: resume(&a.resume),
        checkpoint_bytes: a.resume.checkpoint_size,
        hashes: a.manifest.is_some(),
        one_file_system: a.one_file_system,
        filter: filter(&a.filters),
        dry_run: a.collide.dry_run,
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
    let manifest = a.manifest.clone();
    Ok(CopyJob { request: CopyRequest { sources, names: None, target, manifest, policy }, names, show })
}

/// What `move` arguments mean.
pub fn move_(a: &MoveArgs, env: &Env) -> Result<(MoveRequest, Show), Usage> {
    let (sources, target) = operands(&a.operands)?;
    let collide = collide(a.collide.no_clobber, a.collide.interactive, &a.collide.update)?;
    let policy = CopyPolicy {
        // What a move must not lose when it has to copy: everything below, links as links, special files as such,
        // all metadata; and since the source will be gone, what cannot be kept is told, and what landed is read back.
        recursive: true,
        follow: Follow::Never,
        preserve: Preserve::ALL,
        strictness: Strictness::Archive,
        specials: true,
        verify: match verify(a.how.verify) {
            Verify::Off => Verify::Cached,
            said => said,
        },
        collide,
        force: a.collide.force,
        landing: Landing::Atomic,
        reflink: Reflink::Auto,
        sparse: Sparse::Auto,
        durability: durability(&a.how),
        resume: Resume::Off,
        checkpoint_bytes: CHECKPOINT_BYTES,
        hashes: false,
        one_file_system: false,
        filter: filter(&a.filters),
        dry_run: a.collide.dry_run,
        jobs: jobs_for(collide, &a.how.jobs, env),
        me: env.me,
        umask: env.umask,
    };
    let again = if a.merge { Again::Same } else { Again::WithMerge };
    let show = show(Verb::Move, &a.output, policy.dry_run, again, env);
    Ok((MoveRequest { sources, target, merge: a.merge, policy }, show))
}

/// What `remove` arguments mean.
pub fn remove(a: &RemoveArgs, env: &Env) -> (RemoveRequest, Show) {
    let request = RemoveRequest {
        paths: a.paths.clone(),
        recursive: a.recursive,
        empty_dirs: a.dir,
        force: a.force,
        ask: a.interactive,
        one_file_system: !a.cross_file_systems,
        dry_run: a.dry_run,
        jobs: jobs(&a.jobs, env),
    };
    (request, show(Verb::Remove, &a.output, a.dry_run, Again::Same, env))
}

/// What `check` arguments mean.
pub fn check(a: &CheckArgs, env: &Env) -> Result<(CheckRequest, Show), Usage> {
    let (sources, target) = operands(&a.operands)?;
    let policy = CopyPolicy {
        // Nobody who compares two directories wants to hear that they are directories.
        recursive: true,
        follow: follow(&a.links, &a.keep, a.recursive || a.keep.archive),
        preserve: preserve(&a.keep.steps),
        strictness: strictness(&a.keep),
        specials: a.keep.archive,
        collide: Collide::Replace,
        force: false,
        landing: Landing::Atomic,
        reflink: Reflink::Auto,
        sparse: Sparse::Auto,
        verify: Verify::Off,
        durability: Durability::Cache,
        resume: Resume::Off,
        checkpoint_bytes: CHECKPOINT_BYTES,
        hashes: false,
        one_file_system: a.one_file_system,
        filter: filter(&a.filters),
        dry_run: false,
        jobs: jobs(&a.jobs, env),
        me: env.me,
        umask: env.umask,
    };
    let compare = if a.hash { Compare::Hash } else { Compare::SizeAndTime };
    let show = show(Verb::Check, &a.output, false, Again::Same, env);
    Ok((CheckRequest { sources, target, compare, extra: !a.no_extra, policy }, show))
}

/// `check --manifest`: which file, below which directory, with how many threads.
pub struct ManifestJob {
    pub file: PathBuf,
    pub dir: PathBuf,
    pub jobs: usize,
    pub show: Show,
}

/// What `check --manifest` means; `None` when it was not given.
pub fn check_manifest(a: &CheckArgs, env: &Env) -> Option<Result<ManifestJob, Usage>> {
    let file = a.manifest.clone()?;
    let ([dir], None, false) =
        (a.operands.paths.as_slice(), &a.operands.target_directory, a.operands.no_target_directory)
    else {
        return Some(Err(Usage("with --manifest there is one operand: the directory it speaks of".into())));
    };
    let show = Show { manifest: true, ..show(Verb::Check, &a.output, false, Again::Same, env) };
    Some(Ok(ManifestJob { file, dir: dir.clone(), jobs: jobs(&a.jobs, env), show }))
}

/// What `sessions` arguments mean.
pub fn sessions(a: &SessionsArgs, env: &Env) -> Show {
    Show { now: env.now, ..show(Verb::Sessions, &a.output, false, Again::Same, env) }
}

fn resume(a: &ResumeArgs) -> Resume {
    match (a.resume, a.fast, a.strict, a.append) {
        (true, true, ..) => Resume::Fast,
        (true, false, ..) => Resume::Proved,
        (_, _, true, _) => Resume::Strict,
        (_, _, _, true) => Resume::Append,
        _ => Resume::Off,
    }
}

fn operands(o: &Operands) -> Result<(Vec<PathBuf>, Target), Usage> {
    let mut sources = o.paths.clone();
    let Some(first) = o.paths.first().map(|p| names::quoted(p)) else {
        return Err(Usage("no source given".into()));
    };
    if let Some(dir) = &o.target_directory {
        return Ok((sources, Target::Into(dir.clone())));
    }
    let Some(last) = sources.pop().filter(|_| !sources.is_empty()) else {
        return Err(Usage(format!("no destination given after {first}")));
    };
    match (o.no_target_directory, sources.len()) {
        (false, _) => Ok((sources, Target::Guess(last))),
        (true, 1) => Ok((sources, Target::Exactly(last))),
        (true, _) => Err(Usage(format!("with -T there is one source; there are more after {first}"))),
    }
}

fn names_from(a: &CopyArgs) -> Result<Option<NamesFrom>, Usage> {
    let (file, separator) = match (&a.files_from, &a.files_from0) {
        (Some(file), None) => (file, b'\n'),
        (None, Some(file)) => (file, 0),
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(Usage("--files-from and --files-from0 exclude each other".into())),
    };
    let file = (file.as_os_str() != "-").then(|| file.clone());
    Ok(Some(NamesFrom { file, separator }))
}

fn collide(no_clobber: bool, interactive: bool, update: &UpdateArg) -> Result<Collide, Usage> {
    match (no_clobber, interactive, update.update) {
        (true, _, _) | (_, _, Some(Update::None)) => Ok(Collide::Keep),
        (_, true, None | Some(Update::All)) => Ok(Collide::Ask),
        // cp would ask about the older ones only. To take either word alone would replace something the other
        // protects, so it is refused until the engine can do both.
        (_, true, Some(_)) => Err(Usage("-i and --update cannot be combined".into())),
        (_, _, None | Some(Update::All)) => Ok(Collide::Replace),
        (_, _, Some(Update::Older)) => Ok(Collide::IfOlder),
        (_, _, Some(Update::Different)) => Ok(Collide::IfDifferent),
    }
}

fn follow(links: &LinkArgs, keep: &KeepArgs, recursive: bool) -> Follow {
    let archive_last = keep.steps.contains(&KeepStep::Archive { links_said_later: false });
    if archive_last || links.no_dereference {
        Follow::Never
    } else if links.dereference {
        Follow::Always
    } else if links.follow_operands || !recursive {
        Follow::Operands
    } else {
        Follow::Never
    }
}

fn preserve(steps: &[KeepStep]) -> Preserve {
    let mut kept = Preserve::NONE;
    for step in steps {
        match step {
            KeepStep::Plain => {
                set(&mut kept, Attr::Mode, true);
                set(&mut kept, Attr::Ownership, true);
                set(&mut kept, Attr::Timestamps, true);
            }
            KeepStep::Keep(attr) => set(&mut kept, *attr, true),
            KeepStep::Drop(attr) => set(&mut kept, *attr, false),
            KeepStep::Archive { .. } => kept = Preserve::ALL,
        }
    }
    kept
}

fn set(kept: &mut Preserve, attr: Attr, to: bool) {
    match attr {
        // An ACL is the mode of those whom the nine bits cannot name; cp treats them as one, and so do we.
        Attr::Mode => (kept.mode, kept.acl) = (to, to),
        Attr::Ownership => kept.owner = to,
        Attr::Timestamps => kept.times = to,
        Attr::Links => kept.links = to,
        Attr::Xattr => kept.xattr = to,
        Attr::Acl => kept.acl = to,
        Attr::All => *kept = if to { Preserve::ALL } else { Preserve::NONE },
    }
}

fn strictness(keep: &KeepArgs) -> Strictness {
    if keep.archive { Strictness::Archive } else { Strictness::LikeCp }
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

fn verify(arg: Option<VerifyArg>) -> Verify {
    match arg {
        None => Verify::Off,
        Some(VerifyArg::Cached) => Verify::Cached,
        Some(VerifyArg::Direct) => Verify::Direct,
    }
}

fn durability(how: &HowArgs) -> Durability {
    if how.sync { Durability::Medium } else { Durability::Cache }
}

fn filter(a: &FilterArgs) -> FilterSpec {
    let rule = |r: &RuleArg| match r {
        RuleArg::Exclude(glob) => Rule::Exclude(glob.clone()),
        RuleArg::Include(glob) => Rule::Include(glob.clone()),
    };
    FilterSpec {
        rules: a.rules.iter().map(rule).collect(),
        regexes: a.exclude_regex.clone(),
        gitignore: a.gitignore,
    }
}

fn jobs(arg: &JobsArg, env: &Env) -> usize {
    arg.jobs.map_or_else(|| env.cores.clamp(1, JOBS_DEFAULT_MAX), usize::from)
}

/// Questions come in the order of what was typed, so that answers can be written down before: one worker asks.
fn jobs_for(collide: Collide, arg: &JobsArg, env: &Env) -> usize {
    if collide == Collide::Ask { 1 } else { jobs(arg, env) }
}

fn show(verb: Verb, out: &OutputArgs, dry_run: bool, again: Again, env: &Env) -> Show {
    let inline = env.stderr_tty && !env.dumb;
    let meter = match out.progress {
        When::Never => Meter::Off,
        When::Auto if out.quiet => Meter::Off,
        When::Auto | When::Always if out.json => Meter::Events,
        When::Auto | When::Always if inline => Meter::Inline,
        When::Auto => Meter::Off,
        When::Always => Meter::Lines,
    };
    Show {
        verb,
        json: out.json,
        verbose: out.verbose,
        quiet: out.quiet,
        // `check` has its differences to tell; what is the same is told to those who ask.
        items: !out.quiet && (out.verbose || dry_run || (out.json && verb != Verb::Check)),
        dry_run,
        meter,
        color: env.stdout_tty && !env.dumb && !env.no_color,
        eager: env.stdout_tty,
        echoes: env.stdin_tty && env.stderr_tty,
        watched: env.stderr_tty,
        again,
        fast: false,
        manifest: false,
        ignored_signals: env.ignored_signals,
        now: env.now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse};

    fn env() -> Env {
        Env {
            me: 0,
            umask: 0o027,
            cores: 16,
            stdin_tty: false,
            stdout_tty: false,
            stderr_tty: true,
            dumb: false,
            no_color: false,
            ignored_signals: 0,
            now: 0,
        }
    }

    fn words(line: &str) -> Vec<String> {
        std::iter::once("bcmr").chain(line.split_whitespace()).map(str::to_owned).collect()
    }

    fn try_copy(line: &str) -> Result<CopyJob, Usage> {
        match parse(words(line)).unwrap().command {
            Command::Copy(a) => copy(&a, &env()),
            other => panic!("{other:?}"),
        }
    }

    fn policy(flags: &str) -> CopyPolicy {
        try_copy(&format!("copy {flags} src dst")).unwrap_or_else(|u| panic!("{flags}: {u:?}")).request.policy
    }

    fn try_move(line: &str) -> (MoveRequest, Show) {
        match parse(words(line)).unwrap().command {
            Command::Move(a) => move_(&a, &env()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn remove_of(line: &str) -> RemoveRequest {
        match parse(words(line)).unwrap().command {
            Command::Remove(a) => remove(&a, &env()).0,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn bare_copy_is_cp() {
        let p = policy("");
        assert!(!p.recursive && !p.specials && !p.force && !p.one_file_system && !p.dry_run);
        assert_eq!(
            (p.follow, p.preserve, p.strictness),
            (Follow::Operands, Preserve::NONE, Strictness::LikeCp)
        );
        assert_eq!((p.collide, p.landing), (Collide::Replace, Landing::Atomic));
        assert_eq!((p.reflink, p.sparse, p.verify), (Reflink::Auto, Sparse::Auto, Verify::Off));
        assert_eq!((p.durability, p.jobs, p.umask), (Durability::Cache, 8, 0o027));
    }

    #[test]
    fn targets() {
        for (line, sources, want) in [
            ("copy a b", 1, "Guess(\"b\")"),
            ("copy a b c", 2, "Guess(\"c\")"),
            ("copy -t d a b", 2, "Into(\"d\")"),
            ("copy a -td", 1, "Into(\"d\")"),
            ("copy -T a b", 1, "Exactly(\"b\")"),
            ("cp a b/", 1, "Guess(\"b/\")"),
            ("copy -- -a -b", 1, "Guess(\"-b\")"),
        ] {
            let job = try_copy(line).unwrap_or_else(|u| panic!("{line}: {u:?}"));
            assert_eq!(format!("{:?}", job.request.target), want, "{line}");
            assert_eq!(job.request.sources.len(), sources, "{line}");
        }
    }

    #[test]
    fn refused_arguments() {
        for (line, say) in [
            ("copy", "no source given"),
            ("copy -t d", "no source given"),
            ("copy a", "no destination given after 'a'"),
            ("copy -T a b c", "with -T there is one source; there are more after 'a'"),
            ("copy -i -u a b", "-i and --update cannot be combined"),
            ("copy --files-from l a b c", "with --files-from there is exactly one source"),
            ("copy -i --files-from - a b", "-i cannot read answers"),
        ] {
            let usage = try_copy(line).err().unwrap_or_else(|| panic!("{line} was taken"));
            assert!(usage.0.starts_with(say), "{line}: {}", usage.0);
        }
    }

    #[test]
    fn links() {
        for (flags, want) in [
            ("", Follow::Operands),
            ("-r", Follow::Never),
            ("-R", Follow::Never),
            ("-rL", Follow::Always),
            ("-rH", Follow::Operands),
            ("-P", Follow::Never),
            ("-L -P", Follow::Never),
            ("-P -L", Follow::Always),
            ("-P -H -L -H", Follow::Operands),
            ("--archive", Follow::Never),
            ("-L --archive", Follow::Never),
            ("--archive -L", Follow::Always),
        ] {
            assert_eq!(policy(flags).follow, want, "{flags}");
        }
    }

    #[test]
    fn keeping() {
        let none = Preserve::NONE;
        for (flags, want) in [
            ("-p", Preserve::CP),
            ("--preserve", Preserve::CP),
            ("--preserve=mode", Preserve { mode: true, acl: true, ..none }),
            ("--preserve=owner,times", Preserve { owner: true, times: true, ..none }),
            ("--preserve=links --preserve=xattr", Preserve { links: true, xattr: true, ..none }),
            ("--preserve=all", Preserve::ALL),
            ("--archive", Preserve::ALL),
            ("--archive --no-preserve=ownership", Preserve { owner: false, ..Preserve::ALL }),
            ("--no-preserve=ownership --archive", Preserve::ALL),
            ("-p --no-preserve=all --preserve=acl", Preserve { acl: true, ..none }),
            ("--no-preserve=mode -p", Preserve::CP),
        ] {
            assert_eq!(policy(flags).preserve, want, "{flags}");
        }
        let archive = policy("--archive");
        assert!(archive.recursive && archive.specials);
        assert_eq!(archive.strictness, Strictness::Archive);
    }

    #[test]
    fn names_already_there() {
        for (flags, want) in [
            ("-i", Collide::Ask),
            ("--no-clobber", Collide::Keep),
            ("-i --no-clobber", Collide::Keep),
            ("--no-clobber -i", Collide::Ask),
            ("-f", Collide::Replace),
            ("-i -f", Collide::Ask),
            ("-u", Collide::IfOlder),
            ("--update", Collide::IfOlder),
            ("--update=older", Collide::IfOlder),
            ("--update=none", Collide::Keep),
            ("--update=none -i", Collide::Keep),
            ("--update=all", Collide::Replace),
            ("--update=all -i", Collide::Ask),
            ("--update=different", Collide::IfDifferent),
            ("-u --update=all", Collide::Replace),
            ("-u --no-clobber", Collide::Keep),
        ] {
            assert_eq!(policy(flags).collide, want, "{flags}");
        }
        assert!(policy("-i -f").force);
    }

    #[test]
    fn the_way_of_copying() {
        for (flags, want) in [
            ("--reflink", Reflink::Always),
            ("--reflink=auto", Reflink::Auto),
            ("--reflink=disable", Reflink::Never),
            ("--reflink=never", Reflink::Never),
            ("--reflink --reflink=auto", Reflink::Auto),
        ] {
            assert_eq!(policy(flags).reflink, want, "{flags}");
        }
        assert_eq!(policy("--sparse=always").sparse, Sparse::Always);
        assert_eq!(policy("--sparse=never").sparse, Sparse::Never);
        assert_eq!(policy("-V").verify, Verify::Cached);
        assert_eq!(policy("-V=direct").verify, Verify::Direct);
        assert_eq!(policy("--verify=direct -V").verify, Verify::Cached);
        assert_eq!(policy("--sync").durability, Durability::Medium);
        assert_eq!(policy("--inplace").landing, Landing::InPlace);
        assert_eq!(policy("-j3").jobs, 3);
        assert!(policy("-x").one_file_system && policy("-n").dry_run);
    }

    #[test]
    fn filters_keep_their_order() {
        let f = policy("--include b -e a --exclude-regex ^x --exclude c --gitignore").filter;
        let want = [Rule::Include("b".into()), Rule::Exclude("a".into()), Rule::Exclude("c".into())];
        assert_eq!(
            (f.rules.as_slice(), f.regexes.as_slice()),
            (want.as_slice(), ["^x".to_owned()].as_slice())
        );
        assert!(f.gitignore);
    }

    #[test]
    fn lists_of_names() {
        let names =
            |flags: &str| try_copy(&format!("copy {flags} a b")).unwrap_or_else(|u| panic!("{u:?}")).names;
        assert_eq!(names(""), None);
        assert_eq!(names("--files-from l"), Some(NamesFrom { file: Some("l".into()), separator: b'\n' }));
        assert_eq!(names("--files-from0 -"), Some(NamesFrom { file: None, separator: 0 }));
    }

    #[test]
    fn a_move_loses_nothing() {
        let (request, show) = try_move("mv a b");
        let p = request.policy;
        assert!(p.recursive && p.specials && !request.merge);
        assert_eq!((p.preserve, p.follow, p.verify), (Preserve::ALL, Follow::Never, Verify::Cached));
        assert_eq!(show.again, Again::WithMerge);
        assert_eq!(try_move("move -V=direct a b").0.policy.verify, Verify::Direct);
        for (flags, want) in [
            ("-i -f", Collide::Replace),
            ("-f -i", Collide::Ask),
            ("-i --no-clobber", Collide::Keep),
            ("--no-clobber -f", Collide::Replace),
            ("-u", Collide::IfOlder),
        ] {
            assert_eq!(try_move(&format!("move {flags} a b")).0.policy.collide, want, "{flags}");
        }
        assert!(try_move("move -n a b").0.policy.dry_run);
    }

    #[test]
    fn removing() {
        let r = remove_of("rm a");
        assert!(!r.recursive && !r.force && !r.ask && r.one_file_system && !r.empty_dirs);
        let r = remove_of("remove -fi a");
        assert!(r.ask && !r.force);
        let r = remove_of("remove -rif --cross-file-systems a");
        assert!(r.force && !r.ask && r.recursive && !r.one_file_system);
        assert!(!remove_of("remove --one-file-system --no-one-file-system a").one_file_system);
        assert!(remove_of("remove --cross-file-systems --one-file-system a").one_file_system);
        assert!(remove_of("remove -f").paths.is_empty());
    }

    #[test]
    fn checking() {
        let of = |line: &str| match parse(words(line)).unwrap().command {
            Command::Check(a) => check(&a, &env()).unwrap().0,
            other => panic!("{other:?}"),
        };
        let c = of("check a b");
        assert!(c.extra && c.policy.recursive);
        assert_eq!((c.compare, c.policy.follow), (Compare::SizeAndTime, Follow::Operands));
        assert_eq!(of("check -r a b").policy.follow, Follow::Never);
        let c = of("check --hash --no-extra -e x a b");
        assert_eq!((c.compare, c.extra, c.policy.filter.rules.len()), (Compare::Hash, false, 1));
    }

    #[test]
    fn showing() {
        let of = |flags: &str, env: &Env| match parse(words(&format!("copy {flags} a b"))).unwrap().command {
            Command::Copy(a) => copy(&a, env).unwrap_or_else(|u| panic!("{u:?}")).show,
            other => panic!("{other:?}"),
        };
        let tty = env();
        let pipe = Env { stderr_tty: false, ..env() };
        let dumb = Env { dumb: true, ..env() };
        for (flags, env, want) in [
            ("", &tty, Meter::Inline),
            ("", &pipe, Meter::Off),
            ("", &dumb, Meter::Off),
            ("-q", &tty, Meter::Off),
            ("--progress=never", &tty, Meter::Off),
            ("--progress", &pipe, Meter::Lines),
            ("--progress", &dumb, Meter::Lines),
            ("--json", &pipe, Meter::Events),
            ("--json -q", &tty, Meter::Off),
        ] {
            assert_eq!(of(flags, env).meter, want, "{flags}");
        }
        for (flags, items) in [("", false), ("-v", true), ("-n", true), ("-nq", false), ("--json", true)] {
            assert_eq!(of(flags, &pipe).items, items, "{flags}");
        }
        let last = of("-v -q", &pipe);
        assert!(last.quiet && !last.verbose);
        assert_eq!(of("", &tty).again, Again::WithUpdate);
        assert_eq!(of("-u", &tty).again, Again::Same);
        assert_eq!(of("--inplace", &tty).again, Again::Same);
    }
}
