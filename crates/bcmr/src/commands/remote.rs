//! Verbs that another machine takes part in, as the person's side carries them out: with the bcmr there; else with
//! this program put there, if that is allowed; else, for a copy that loses nothing asked for, with scp. Which of them
//! it is, is said before anything is changed.
//!
//! Must not know how anything travels: that is the engine's, behind `bcmr_engine::peer`.

use super::configuration::configuration;
use super::{deploy, fallback, sudo, verb::open};
use crate::address;
use crate::cli::bcmr::check::{self, CheckArgs};
use crate::cli::bcmr::connection::Reach;
use crate::cli::bcmr::copy::{self, CopyArgs};
use crate::cli::bcmr::move_::{self, MoveArgs};
use crate::cli::bcmr::operands::{self, Operands, Places, all_operands};
use crate::cli::bcmr::proof;
use crate::cli::bcmr::remote::RemoteJob;
use crate::cli::bcmr::sync::{self, SyncArgs};
use crate::cli::bcmr::via_source;
use crate::env::{self, Env};
use crate::names;
use crate::say::{self, Finding};
use crate::show::{Show, Verb};
use crate::ui::{self, Measure, Start};
use crate::voice::BCMR;
use bcmr_engine::control;
use bcmr_engine::error::{Code, Error, Op, Reason, Result};
use bcmr_engine::event::{Cancel, Event, Summary, Watch};
use bcmr_engine::peer::{OnTheWay, RelayError};
use bcmr_engine::policy::{NameList, Target};
use bcmr_engine::remote::{Address, GetRequest, PutRequest, RelayRequest, RunAs, Way};
use bcmr_engine::{look_with_plan, peer};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// `copy` to or from another machine.
pub fn copy(args: &CopyArgs, places: Places, env: &Env) -> u8 {
    let job = configuration(env).and_then(|config| copy::remote(args, places, &config, env));
    let job = match job {
        Ok(job) => job,
        Err(u) => return super::judged::usage_with_defaults(env, Verb::Copy, &u),
    };
    if args.remote.via_source {
        return via_source(Verb::Copy, &job, env, copy::about_here(args));
    }
    // What cannot be opened is said before the user is asked for a password.
    if let Some(from) = &job.names
        && let Err(e) = open(from)
    {
        let path = from.file.clone().unwrap_or_else(|| "-".into());
        return super::verb::file_failed("open", &path, &e);
    }
    run(&job, &args.operands, env)
}

/// `move` with a side on another machine.
pub fn move_(args: &MoveArgs, places: Places, env: &Env) -> u8 {
    let job = configuration(env).and_then(|config| move_::remote(args, places, &config, env));
    match job {
        Ok(job) if args.remote.via_source => via_source(Verb::Move, &job, env, args.about_here()),
        Ok(job) => run(&job, &args.operands, env),
        Err(u) => super::judged::usage_with_defaults(env, Verb::Move, &u),
    }
}

/// `check` with one side on another machine.
pub fn check(args: &CheckArgs, places: Places, env: &Env) -> u8 {
    let job = configuration(env).and_then(|config| check::remote(args, places, &config, env));
    match job {
        Ok(job) => run(&job, &args.operands, env),
        Err(u) => super::judged::usage_with_defaults(env, Verb::Check, &u),
    }
}

/// `sync` with one side on another machine.
pub fn sync(args: &SyncArgs, places: Places, env: &Env) -> u8 {
    let job = configuration(env).and_then(|config| sync::remote(args, places, &config, env));
    match job {
        Ok(job) if args.remote.via_source => via_source(Verb::Sync, &job, env, sync::about_here(args)),
        Ok(job) => run(&job, &args.operands(), env),
        Err(u) => super::judged::usage_with_defaults(env, Verb::Sync, &u),
    }
}

/// `sync --apply` with one side on another machine.
pub fn apply(planned: SyncArgs, now: &SyncArgs, file: &Path, env: &Env) -> u8 {
    let typed = planned.operands();
    let places = |a: &SyncArgs| operands::places(&typed, &a.connect, &super::verb::is_here);
    let jobs = configuration(env)
        .and_then(|config| sync::remote_as_planned(planned, now, file, places, (&config, env)));
    match jobs {
        Ok((look, job)) => run_after(Some(&look), &job, &typed, env),
        Err(u) => super::judged::usage_with_defaults(env, Verb::Sync, &u),
    }
}

/// Done by the bcmr on the source's machine. What the configuration here has as defaults is said there too.
fn via_source(verb: Verb, job: &RemoteJob, env: &Env, about_here: Option<&str>) -> u8 {
    let told = via_source::told(&job.places, &env.whole_line(), about_here);
    match (told, job.places.address()) {
        (Ok(told), Some(address)) => {
            let note = |text: String| crate::ui::writer::err(&format!("{}\n", BCMR.line(&text)));
            let cancel = Cancel::new();
            let done = with_peer(address, &job.reach, &cancel, &note, |way| {
                super::via_source::attempt(address, way, &told)
            });
            done.map_err(Absent::error).unwrap_or_else(|e| {
                let code = super::verb::failed(&e);
                if e.code.is_of_connection() { BCMR.exits.connection } else { code }
            })
        }
        (Ok(_), None) => BCMR.exits.usage,
        (Err(u), _) => super::judged::usage_with_defaults(env, verb, &u),
    }
}

fn run(job: &RemoteJob, typed: &Operands, env: &Env) -> u8 {
    run_after(None, job, typed, env)
}

/// Runs it if `look`, where there is one, finds what it was planned with.
fn run_after(look: Option<&RemoteJob>, job: &RemoteJob, typed: &Operands, env: &Env) -> u8 {
    let (sources, destination) = shown(&job.places);
    let measure = match &job.places {
        Places::Put { sources, .. } if job.names.is_none() && !job.policy.dry_run => {
            Some(super::verb::measure(sources, &job.policy))
        }
        // What is over there, the other side counts.
        _ => None::<Measure>,
    };
    let by_scp = AtomicBool::new(false);
    let start = Start {
        sources: &sources,
        destination: Some(&destination),
        jobs: job.policy.jobs,
        measure,
        by_scp: Some(&by_scp),
    };
    let show = Show { proof: proof::command, ..job.show.clone() };
    ui::run(&show, start, |watch| {
        super::verb::tell_mistakable(all_operands(typed), watch);
        let deaf = |e: Error| watch.front.event(Event::Note(say::deaf(&e).into()));
        let way = &job.onward.as_ref().unwrap_or(&job.reach).way;
        let (bases, throttle) = (&env.meeting, &way.throttle);
        let carried = || {
            let own_name = destination.clone();
            // ssh asks from here on.
            watch.front.lend_terminal(true);
            let lines = Lines::open(job, watch.cancel)?;
            let look_by = |look: &RemoteJob| {
                let mut carried = |watch: Watch<'_>| carry(look, &lines, watch, &by_scp);
                look_with_plan(&look.plan, &own_name, watch, &mut carried)
            };
            if let Some(look) = look {
                let as_planned = look_by(look)?;
                if as_planned.failed > 0 || as_planned.cancelled {
                    return Ok(as_planned);
                }
            }
            look_by(job)
        };
        control::hearing(bases, throttle, watch.progress, deaf, carried)
    })
}

/// How the other machines are reached, over connections that all of a command shares.
struct Lines {
    reach: Reach,
    /// Where the destination is a third machine.
    onward: Option<Reach>,
}

impl Lines {
    fn open(job: &RemoteJob, cancel: &Cancel) -> Result<Lines> {
        let one = |address: Option<&Address>, reach: &Reach| match address {
            Some(address) => sharing(address, reach, cancel),
            None => Ok(reach.clone()),
        };
        let reach = one(job.places.address(), &job.reach)?;
        let to = match &job.places {
            Places::Between { to, .. } => Some(to),
            _ => None,
        };
        let onward = job.onward.as_ref().map(|onward| one(to, onward)).transpose()?;
        Ok(Lines { reach, onward })
    }
}

/// How to get there over one connection, where ssh may ask a person for something on the way: once, then. Where it cannot ask,
/// nothing needs to be shared.
fn sharing(address: &Address, reach: &Reach, cancel: &Cancel) -> Result<Reach> {
    let way = match env::can_ask() {
        true => peer::share(address, &reach.way, &env::meeting(), cancel)?,
        false => reach.way.clone(),
    };
    Ok(Reach { way, ..reach.clone() })
}

fn carry(job: &RemoteJob, lines: &Lines, watch: Watch<'_>, by_scp: &AtomicBool) -> Result<Summary> {
    let Some(address) = job.places.address() else {
        return Err(Error::ours(Code::Usage, Op::Copy, "", Reason::NoOtherMachine));
    };
    let note = |text: String| watch.front.event(Event::Note(text.into()));
    // Taken back once the other side has answered.
    watch.front.lend_terminal(true);
    let reach = &lines.reach;
    if let (Places::Between { to, .. }, Some(onward)) = (&job.places, &lines.onward) {
        // Which of the two wants a password is not known here.
        let done = with_program(address, reach, watch.cancel, &note, |here| {
            let done = with_program(to, onward, watch.cancel, &note, |way| {
                match between(job, here, way, watch) {
                    // What the source lacks is not looked for at the destination.
                    Err(RelayError::AtSource(e)) => Ok(Err(e)),
                    Err(RelayError::Other(e)) => Err(e),
                    Ok(summary) => Ok(Ok(summary)),
                }
            });
            match done {
                Ok(done) => done.map(Ok),
                // Nor has the source anything for what the destination lacks.
                Err(absent) => Ok(Err(absent.error())),
            }
        });
        return done.map_err(Absent::error)?;
    }
    let absent = match with_peer_over(address, reach, watch.cancel, &note, |way| attempt(job, way, watch)) {
        Err(Absent::Peer(e)) => e,
        Err(Absent::Other(e)) => return Err(e),
        Ok(summary) => return Ok(summary),
    };
    // Where one was to be put there, what was tried is that.
    let op = if absent.op == Op::PutBcmrOn { Op::PutBcmrOn } else { Op::UseBcmrOn };
    let told = |note| Error::ours(Code::NoPeer, op, address::machine(address), note);
    if !job.unkept.is_empty() {
        return Err(told(say::unkept(&absent, &job.unkept)));
    }
    watch.front.event(Event::Warning(told(say::by_scp(&absent))));
    by_scp.store(true, Ordering::Release);
    fallback::copy(job, &reach.way, watch)
}

/// Between two other machines.
fn between(
    job: &RemoteJob,
    here: &Way,
    onward: &Way,
    watch: Watch<'_>,
) -> std::result::Result<Summary, RelayError> {
    let Places::Between { from, to, target } = &job.places else {
        let e = Error::ours(Code::Usage, Op::Copy, "", Reason::NoOtherMachine);
        return Err(RelayError::Other(e));
    };
    let (to, target, purpose) = (to.clone(), *target, job.purpose);
    let from = meant_there(job, from, here, watch.cancel).map_err(|e| match e.code {
        Code::NoPeer => RelayError::AtSource(e),
        _ => RelayError::Other(e),
    })?;
    several(&target(to.path.clone()), from.len()).map_err(RelayError::Other)?;
    let (here, onward, policy) = (here.clone(), onward.clone(), job.policy.clone());
    let (dated, when) = (job.dated, job.when);
    peer::relay(RelayRequest { from, to, target, purpose, when, dated, here, onward, policy }, watch)
}

/// One attempt, with a request of its own.
fn attempt(job: &RemoteJob, way: &Way, watch: Watch<'_>) -> Result<Summary> {
    let names = match &job.names {
        Some(from) => Some(open(from).map_err(|e| {
            let path = from.file.clone().unwrap_or_else(|| "-".into());
            Error::os(Op::Open, path, e)
        })?),
        None => None::<NameList>,
    };
    let (way, policy) = (way.clone(), job.policy.clone());
    match &job.places {
        Places::Here => Err(Error::ours(Code::Usage, Op::Copy, "", Reason::NoOtherMachine)),
        Places::Put { sources, to, target } => {
            let (sources, to, manifest) = (sources.clone(), to.clone(), job.manifest.clone());
            let (target, purpose, dated, state) = (*target, job.purpose, job.dated, job.state.clone());
            let when = job.when;
            let request =
                PutRequest { sources, names, to, target, purpose, when, manifest, dated, state, way, policy };
            peer::put(request, watch)
        }
        Places::Between { .. } => between(job, &way, &way, watch).map_err(|e| match e {
            RelayError::AtSource(e) | RelayError::Other(e) => e,
        }),
        Places::Get { from, target } => {
            let (target, manifest) = (target.clone(), job.manifest.clone());
            let from = meant_there(job, from, &way, watch.cancel)?;
            several(&target, from.len())?;
            let (purpose, when, dated, store) = (job.purpose, job.when, job.dated, job.store.clone());
            let request =
                GetRequest { from, names, target, purpose, when, manifest, dated, store, way, policy };
            peer::get(request, watch)
        }
    }
}

/// What patterns stand for on the other machine. `sync` is about one directory, and a list of names about another.
fn meant_there(job: &RemoteJob, from: &[Address], way: &Way, cancel: &Cancel) -> Result<Vec<Address>> {
    if job.policy.mirror.is_on() || job.names.is_some() {
        return Ok(from.to_vec());
    }
    peer::matching(from.to_vec(), way, cancel)
}

/// With `-T` there is one source, and a pattern may mean several.
fn several(target: &Target, sources: usize) -> Result<()> {
    if target.takes(sources) {
        return Ok(());
    }
    Err(Error::ours(Code::Usage, Op::CopyTo, target.path().as_path(), Reason::OneSourceOneName))
}

/// Why nothing was done.
pub enum Absent {
    /// No bcmr is there, and none can be had: the error says why, and nothing was changed.
    Peer(Error),
    /// Something else.
    Other(Error),
}

impl Absent {
    /// Either, for a command that has nothing to fall back to.
    pub fn error(self) -> Error {
        match self {
            Absent::Peer(e) | Absent::Other(e) => e,
        }
    }
}

/// Does something with the bcmr over there; when its shell finds none, with this very program in its cache, which a user
/// has put there or may put there now, or with one that is installed aside.
///
/// As another user, with a password that sudo there has taken, where it needs one and the user can be asked.
pub fn with_peer<T>(
    address: &Address,
    reach: &Reach,
    cancel: &Cancel,
    note: &dyn Fn(String),
    ask: impl FnMut(&Way) -> Result<T>,
) -> std::result::Result<T, Absent> {
    let reach = sharing(address, reach, cancel).map_err(Absent::Other)?;
    with_peer_over(address, &reach, cancel, note, ask)
}

/// The same, where what may be shared is shared already.
fn with_peer_over<T>(
    address: &Address,
    reach: &Reach,
    cancel: &Cancel,
    note: &dyn Fn(String),
    mut ask: impl FnMut(&Way) -> Result<T>,
) -> std::result::Result<T, Absent> {
    let done = with_program(address, reach, cancel, note, &mut ask);
    match &done {
        Err(Absent::Other(e)) if e.code == Code::NoPeer && reach.way.run_as != RunAs::Login => {}
        _ => return done,
    }
    match sudo::with_password(address, &reach.way, cancel) {
        Ok(Some(way)) => ask(&way).map_err(Absent::Other),
        Ok(None) => done,
        Err(e) => Err(Absent::Other(e)),
    }
}

/// The same, without a question for a password.
fn with_program<T>(
    address: &Address,
    reach: &Reach,
    cancel: &Cancel,
    note: &dyn Fn(String),
    mut ask: impl FnMut(&Way) -> Result<T>,
) -> std::result::Result<T, Absent> {
    let sort = |e: Error| if e.code == Code::NoPeer { Absent::Peer(e) } else { Absent::Other(e) };
    let absent = match ask(&reach.way) {
        Err(e) if e.code == Code::NoPeer => e,
        other => return other.map_err(sort),
    };
    // Who named another program than `bcmr` wants that one, and a name that is wrong is no reason to take another way.
    // Nor is one that only the user who logs in has any use to another.
    if reach.way.program != "bcmr" || reach.way.run_as != RunAs::Login {
        return Err(Absent::Other(Error { op: Op::StartBcmrOn, ..absent }));
    }
    peer::share_again(address, &reach.way, &env::meeting(), cancel).map_err(Absent::Other)?;
    let own = deploy::own(cancel).map_err(Absent::Other)?;
    let there = match deploy::probe(address, &reach.way, &own, cancel) {
        Ok(there) => there,
        // A host that runs no commands may well speak SFTP.
        Err(e) if e.code == Code::Protocol => {
            let op = if reach.bootstrap { Op::PutBcmrOn } else { absent.op };
            return Err(Absent::Peer(Error { op, ..absent }));
        }
        Err(e) => return Err(Absent::Other(e)),
    };
    let mut go = |program: &str, from: say::Found| {
        note(say::runs_from(program, from));
        ask(&Way { program: program.to_owned(), ..reach.way.clone() }).map_err(sort)
    };
    if let Some(program) = &there.program {
        return go(program, say::Found::Cache);
    }
    if let Some(open) = &there.open {
        note(say::cache_is_open(open));
    }
    if let Some(program) = &there.installed {
        match go(program, say::Found::Aside) {
            // Of a version that does not understand us: as good as none.
            Err(Absent::Peer(_)) if reach.bootstrap => {}
            other => return other,
        }
    }
    if !reach.bootstrap {
        return Err(Absent::Peer(absent));
    }
    let put = deploy::put(address, &reach.way, &own, &there, cancel);
    let put =
        put.map_err(|e| if e.code == Code::Unsupported { Absent::Peer(e) } else { Absent::Other(e) })?;
    go(&put, say::Found::Put)
}

/// Operands as the first JSON line shows them: what was typed may have been an URL, this is what it means.
fn shown(places: &Places) -> (Vec<PathBuf>, PathBuf) {
    match places {
        Places::Here => (Vec::new(), PathBuf::new()),
        Places::Put { sources, to, .. } => (sources.clone(), written(to)),
        Places::Get { from, target } => (from.iter().map(written).collect(), target.path().clone()),
        Places::Between { from, to, .. } => (from.iter().map(written).collect(), written(to)),
    }
}

/// An address as it is typed, byte for byte.
pub fn written(a: &Address) -> PathBuf {
    let user = a.user.as_ref().map(|u| format!("{u}@")).unwrap_or_default();
    let host = if a.host.contains(':') { format!("[{}]", a.host) } else { a.host.clone() };
    let mut word = format!("{user}{host}:").into_bytes();
    word.extend_from_slice(a.path.as_os_str().as_bytes());
    PathBuf::from(OsString::from_vec(word))
}

/// `deploy`: puts this program there for good.
pub fn deploy(address: &Address, reach: &Reach) -> Result<(String, bool)> {
    let cancel = Cancel::new();
    let reach = &sharing(address, reach, &cancel)?;
    let own = deploy::own(&cancel)?;
    let there = deploy::probe(address, &reach.way, &own, &cancel)?;
    match there.program {
        Some(program) => Ok((program, false)),
        None => Ok((deploy::put(address, &reach.way, &own, &there, &cancel)?, true)),
    }
}

/// What is wrong with the cache there, where something of it is to be run or put into it.
fn of_cache(there: &deploy::There, reach: &Reach) -> Option<Finding> {
    let needed = there.program.is_none() && (reach.bootstrap || there.installed.is_none());
    let detail = match (&there.open, &there.shut) {
        (Some(open), _) => say::cache_is_open(open),
        (None, Some(shut)) if needed => say::cache_is_shut(shut),
        _ => return None,
    };
    Some(Finding { ok: false, what: "cache", detail, code: None })
}

/// `doctor`: what is on the way, and which way a copy would go. The last finding is that way, and says by `ok` whether
/// it is from bcmr to bcmr.
pub fn doctor(address: &Address, reach: &Reach, config: Option<&std::path::Path>) -> Vec<Finding> {
    let finding = |ok, what, detail: String| Finding { ok, what, detail, code: None };
    let failed = |what, detail: String, e: &Error| Finding { ok: false, what, detail, code: Some(e.code) };
    let look = |way: &Way| -> Vec<Finding> {
        let seen = peer::doctor(address, way).into_iter();
        seen.map(|f| match &f.found {
            OnTheWay::Failed(e) => Finding { ok: f.ok, ..failed(f.what, say::on_the_way(&f.found), e) },
            found => finding(f.ok, f.what, say::on_the_way(found)),
        })
        .collect()
    };
    let mut found = Vec::new();
    if let Some(file) = config {
        found.push(finding(true, "configuration", format!("is read from {}", names::quoted(file))));
    }
    let reach = &sharing(address, reach, &Cancel::new()).unwrap_or_else(|_| reach.clone());
    let seen = look(&reach.way);
    let answers = |seen: &[Finding]| seen.iter().all(|f| f.ok);
    let whole = answers(&seen);
    found.extend(seen);
    if whole {
        found.push(finding(true, "way", "from bcmr to bcmr".into()));
        return found;
    }
    // As for a copy: who named another program wants that one.
    if reach.way.program != "bcmr" {
        let detail = format!("none: {} does not answer there, and no other way is taken", reach.way.program);
        found.push(finding(false, "way", detail));
        return found;
    }
    let cancel = Cancel::new();
    let probed = deploy::own(&cancel).and_then(|own| deploy::probe(address, &reach.way, &own, &cancel));
    let scp = fallback::is_there();
    let fall_back = |why: &str| match scp {
        true => finding(
            false,
            "way",
            format!("by scp, {why}; -V, -C, -s, -a, --sync, --archive and others are refused"),
        ),
        false => finding(false, "way", format!("none: {why}, and there is no scp on this machine")),
    };
    // A program that is there is asked, and not only looked at.
    let ask = |program: &str| look(&Way { program: program.to_owned(), ..reach.way.clone() });
    match probed {
        Err(e) if e.code == Code::Protocol => {
            found.push(failed("shell", say::reason(&e), &e));
            found.push(fall_back("as no program can be run there"));
        }
        Err(e) => {
            found.push(failed("connection", say::reason(&e), &e));
            found.push(finding(false, "way", "none: there is no connection".into()));
        }
        Ok(there) => {
            let same = there.system == deploy::here();
            found.push(finding(same, "system", format!("{}, and here {}", there.system, deploy::here())));
            found.extend(of_cache(&there, reach));
            let puts = same && reach.bootstrap && there.shut.is_none();
            let first = || finding(true, "way", "this program is put there first, which is allowed".into());
            match there.program {
                Some(program) => {
                    let seen = ask(&program);
                    let whole = answers(&seen);
                    found.push(finding(whole, "cache", format!("has this program, as {program}")));
                    found.extend(seen);
                    found.push(match whole {
                        true => finding(true, "way", "from bcmr to bcmr, run from the cache there".into()),
                        false => fall_back("as the program in the cache there does not answer"),
                    });
                }
                None if there.installed.is_some() => {
                    let program = there.installed.unwrap_or_default();
                    let seen = ask(&program);
                    let whole = answers(&seen);
                    let detail = format!("is at {program}, where the shell there does not look");
                    found.push(finding(whole, "program", detail));
                    found.extend(seen);
                    found.push(match whole {
                        true => finding(true, "way", "from bcmr to bcmr, run from there".into()),
                        false if puts => first(),
                        false => fall_back("as that program is no bcmr that this one understands"),
                    });
                }
                None if puts => found.push(first()),
                None if same && there.shut.is_some() => {
                    found.push(fall_back("as there is no bcmr, and none can be put there"));
                }
                None if same => {
                    found.push(fall_back(
                        "as there is no bcmr; --bootstrap or bcmr deploy would put one there",
                    ));
                }
                None => {
                    found.push(fall_back("as there is no bcmr, and this one does not run on that system"))
                }
            }
        }
    }
    found
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look from outside")]
mod tests {
    use super::*;
    use bcmr_engine::remote::{Compress, Plane};
    use std::cell::RefCell;

    /// A stand-in for ssh: `body` is what happens on the other machine, the command in `$1`.
    fn reach(dir: &Path, body: &str, bootstrap: bool) -> Reach {
        let ssh = dir.join("ssh");
        let head = "while [ \"$1\" != -- ]; do shift; done\nshift 2";
        std::fs::write(&ssh, format!("{head}\nexport HOME='{}'\n{body}\n", dir.display())).unwrap();
        let way = Way {
            // Not by itself: a file that was just written may be busy in a child that another test is starting.
            ssh: vec!["sh".into(), ssh.into()],
            options: Vec::new(),
            program: "bcmr".into(),
            run_as: bcmr_engine::remote::RunAs::Login,
            parallel: None,
            plane: Plane::Ssh,
            compress: Compress::Auto,
            fast: false,
            dedup: true,
            throttle: std::sync::Arc::new(bcmr_engine::throttle::Throttle::new(None)),
            whole_file: false,
            retries: 0,
            shared: None,
        };
        Reach { way, bootstrap }
    }

    /// Which programs were asked, and how it ended; only a program by path answers.
    fn asked(reach: &Reach) -> (Vec<String>, std::result::Result<(), Absent>) {
        let address = Address { user: None, host: "far".into(), port: None, path: PathBuf::new() };
        let asked = RefCell::new(Vec::new());
        let got = with_peer(&address, reach, &Cancel::new(), &|_| (), |way| {
            asked.borrow_mut().push(way.program.clone());
            match way.program.starts_with('/') {
                true => Ok(()),
                false => Err(Error::ours(Code::NoPeer, Op::UseBcmrOn, "far", Reason::NothingCame)),
            }
        });
        (asked.into_inner(), got)
    }

    #[test]
    fn without_a_peer() {
        const SHELL: &str = "unset XDG_CACHE_HOME; exec sh -c \"$1\"";
        let top = tempfile::tempdir().unwrap();
        let dir = top.path();
        let (programs, got) = asked(&reach(dir, SHELL, false));
        assert_eq!(programs, ["bcmr"]);
        assert!(matches!(got, Err(Absent::Peer(e)) if e.op == Op::UseBcmrOn));
        assert!(std::fs::read_dir(dir).unwrap().count() == 1, "nothing is put without consent");
        // What is put is run before it gets its name; a test of ours does not answer as bcmr does.
        let (programs, got) = asked(&reach(dir, SHELL, true));
        assert_eq!(programs, ["bcmr"]);
        let Err(Absent::Peer(e)) = got else { panic!("taken") };
        assert!(e.op == Op::PutBcmrOn && say::reason(&e).starts_with("it does not run there"));
        let bin = dir.join(".cache/bcmr/bin");
        assert_eq!(std::fs::read_dir(&bin).unwrap().count(), 0);
        // What lies there with our hash and name was put there before.
        let name =
            "echo bcmr-system x; echo bcmr-dir /cache; echo bcmr-sha256 $(sha256sum < /proc/$PPID/exe)";
        let (programs, got) = asked(&reach(dir, name, false));
        assert!(got.is_ok() && programs.len() == 2, "{programs:?}");
        assert!(programs.last().is_some_and(|p| p.starts_with("/cache/bcmr-")), "{programs:?}");
        // One that is installed where the shell does not look, and a name there that a shell would not read as one word.
        let aside = "echo bcmr-system x; echo bcmr-dir /cache; echo bcmr-installed /home/me/.cargo/bin/bcmr";
        let (programs, got) = asked(&reach(dir, aside, false));
        assert!(got.is_ok() && programs == ["bcmr", "/home/me/.cargo/bin/bcmr"], "{programs:?}");
        let (programs, got) = asked(&reach(dir, &aside.replace("/home/me", "'/home/m;e'"), false));
        assert!(matches!(got, Err(Absent::Peer(_))) && programs.len() == 1, "{programs:?}");
        // A directory that a shell would read as more than one word is not believed.
        let odd = name.replace("/cache", "'/ca;che'");
        let (programs, got) = asked(&reach(dir, &odd, false));
        assert!(matches!(got, Err(Absent::Peer(_))) && programs.len() == 1, "{programs:?}");
        // A user who named a program gets no other.
        let mut named = reach(dir, name, true);
        named.way.program = "mine".into();
        let (programs, got) = asked(&named);
        assert_eq!(programs, ["mine"]);
        assert!(matches!(got, Err(Absent::Other(e)) if e.code == Code::NoPeer), "and no other way is taken");
        // No shell, as for an account that has SFTP only; and no connection.
        let (_, got) = asked(&reach(dir, "echo 'This service allows sftp connections only.'; exit 1", true));
        assert!(matches!(got, Err(Absent::Peer(e)) if e.op == Op::PutBcmrOn));
        let (_, got) = asked(&reach(dir, "exit 255", true));
        assert!(matches!(got, Err(Absent::Other(e)) if e.code == Code::Lost));
    }

    #[test]
    fn addresses_are_shown_as_they_are_typed() {
        for typed in ["host:path", "me@host:", "me@[::1]:/a", "host:caf\u{e9}"] {
            let Ok(address::Operand::There(a)) = address::parse(Path::new(typed)) else { panic!("{typed}") };
            assert_eq!(written(&a), Path::new(typed));
        }
    }
}
