//! Python's bcmr: the engine's verbs, called without the interpreter's lock, with progress, a way to stop, and errors.
//!
//! Must not decide anything: names of options and their defaults stand in `python/bcmr/__init__.py`, what they do in the
//! engine. Takes plain values and gives plain values; the Python side makes dataclasses and exceptions of them.

use bcmr_engine::api::{
    self, Cancel, Change, CheckRequest, Code, Collide, Compare, CopyPolicy, CopyRequest, DeleteMax,
    Durability, Error, Event, FilterSpec, FinishRequest, Follow, Front, Landing, Mirror, MoveRequest,
    PlanRequest, Preserve, Progress, Question, Reflink, RemoveRequest, Resume, Rule, ShardChoice,
    ShardRequest, ShardStatus, Shards, Sparse, Strictness, Summary, SyncRequest, Target, Verify, Watch,
};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

create_exception!(_native, NativeError, PyException);

/// How often progress is told, and Ctrl-C looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// An error as Python gets it: code, what was tried, the path, and why.
fn told(e: &Error) -> (String, String, PathBuf, String) {
    (e.code.name().to_owned(), format!("{:?}", e.op), e.path.clone(), format!("{:?}", e.why()))
}

fn raised(e: &Error) -> PyErr {
    NativeError::new_err(told(e))
}

/// A difference that `check` found: which, where, files and bytes below it, and why.
type Difference = (&'static str, PathBuf, u64, u64, String);

/// What is heard while a verb works.
#[derive(Default)]
struct Heard {
    errors: Mutex<Vec<(String, String, PathBuf, String)>>,
    differences: Mutex<Vec<Difference>>,
    /// The file that was dealt with last.
    file: Mutex<PathBuf>,
}

impl Front for Heard {
    fn event(&self, event: Event) {
        match event {
            Event::Failed(e) => {
                self.errors.lock().unwrap_or_else(PoisonError::into_inner).push(told(&e));
            }
            Event::Item { dst, .. } => {
                *self.file.lock().unwrap_or_else(PoisonError::into_inner) = dst;
            }
            Event::Difference { change, path, files, bytes, why, .. } => {
                let change = match change {
                    Change::Add => "add",
                    Change::Extra => "extra",
                    Change::Differ => "differ",
                };
                let difference = (change, path, files, bytes, format!("{why:?}"));
                self.differences.lock().unwrap_or_else(PoisonError::into_inner).push(difference);
            }
            _ => {}
        }
    }

    fn ask(&self, _: Question) -> bool {
        false
    }
}

/// Runs a verb on a thread of its own, without the interpreter's lock. Meanwhile progress is told, and signals of Python
/// are looked for, on the thread that called: an exception there, and an answer of `False`, stop the verb.
fn run<T: Send>(
    py: Python<'_>,
    phase: &'static str,
    progress: Option<Py<PyAny>>,
    verb: impl FnOnce(Watch<'_>) -> api::Result<T> + Send,
    heard: &Heard,
) -> PyResult<T> {
    let (counts, cancel) = (Progress::default(), Cancel::new());
    let items = progress.is_some();
    let mut raised_here: Option<PyErr> = None;
    let done = std::thread::scope(|scope| -> PyResult<api::Result<T>> {
        let (ended, end) = channel();
        let end = Mutex::new(end);
        let watch = Watch { front: heard, progress: &counts, cancel: &cancel, items };
        let thread = std::thread::Builder::new().spawn_scoped(scope, move || {
            let done = verb(watch);
            // Nothing hears it only when the caller has left already.
            let _heard = ended.send(());
            done
        })?;
        loop {
            let look =
                py.detach(|| end.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LOOK_EVERY));
            let told = py.check_signals().and_then(|()| match &progress {
                Some(progress) if raised_here.is_none() => tell(py, progress, &counts, phase, heard),
                _ => Ok(true),
            });
            match told {
                Ok(true) => {}
                Ok(false) => cancel.set(),
                Err(e) => {
                    cancel.set();
                    raised_here.get_or_insert(e);
                }
            }
            if matches!(look, Ok(()) | Err(RecvTimeoutError::Disconnected)) {
                break;
            }
        }
        py.detach(|| thread.join()).map_err(|_| NativeError::new_err(("io", "Run", "", "it panicked")))
    });
    if let Some(e) = raised_here {
        return Err(e);
    }
    done?.map_err(|e| raised(&e))
}

/// Tells progress. `False` as an answer stops.
fn tell(
    py: Python<'_>,
    progress: &Py<PyAny>,
    counts: &Progress,
    phase: &'static str,
    heard: &Heard,
) -> PyResult<bool> {
    let file = heard.file.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (bytes, items) = (counts.bytes_done.load(Relaxed), counts.items_done.load(Relaxed));
    let answer = progress.call1(py, (bytes, items, phase, file))?;
    let bound = answer.bind(py);
    Ok(bound.is_none() || bound.is_truthy()?)
}

fn summary(py: Python<'_>, s: &Summary, heard: &Heard) -> PyResult<Py<PyDict>> {
    let result = PyDict::new(py);
    for (name, number) in [
        ("files", s.files),
        ("directories", s.dirs),
        ("others", s.others),
        ("bytes", s.bytes),
        ("kept", s.kept),
        ("updated", s.updated),
        ("deleted", s.deleted),
        ("failed", s.failed),
    ] {
        result.set_item(name, number)?;
    }
    result.set_item("cancelled", s.cancelled)?;
    let errors = heard.errors.lock().unwrap_or_else(PoisonError::into_inner).clone();
    result.set_item("errors", errors)?;
    Ok(result.unbind())
}

/// What a verb did, and what was heard of it.
fn done_and_heard(
    py: Python<'_>,
    phase: &'static str,
    progress: Option<Py<PyAny>>,
    verb: impl FnOnce(Watch<'_>) -> api::Result<Summary> + Send,
) -> PyResult<(Py<PyDict>, Vec<Difference>)> {
    let heard = Heard::default();
    let done = run(py, phase, progress, verb, &heard)?;
    let said = summary(py, &done, &heard)?;
    Ok((said, heard.differences.into_inner().unwrap_or_else(PoisonError::into_inner)))
}

/// What a verb did.
fn done(
    py: Python<'_>,
    phase: &'static str,
    progress: Option<Py<PyAny>>,
    verb: impl FnOnce(Watch<'_>) -> api::Result<Summary> + Send,
) -> PyResult<Py<PyDict>> {
    done_and_heard(py, phase, progress, verb).map(|(said, _)| said)
}

/// The options that were given, each taken once; what is left over is an option that is not known.
struct Options<'py>(Bound<'py, PyDict>);

impl<'py> Options<'py> {
    fn take<T>(&self, name: &str) -> PyResult<Option<T>>
    where
        T: for<'a> FromPyObject<'a, 'py>,
    {
        let Some(value) = self.0.get_item(name)? else { return Ok(None) };
        self.0.del_item(name)?;
        if value.is_none() {
            return Ok(None);
        }
        let taken: PyResult<T> = value.extract::<T>().map_err(Into::into);
        taken.map(Some).map_err(|e| PyValueError::new_err(format!("{name}: {e}")))
    }

    fn flag(&self, name: &str) -> PyResult<bool> {
        Ok(self.take(name)?.unwrap_or(false))
    }

    fn one_of<T: Copy>(&self, name: &str, values: &[(&str, T)], default: T) -> PyResult<T> {
        let Some(word) = self.take::<String>(name)? else { return Ok(default) };
        let found = values.iter().find(|(value, _)| *value == word).map(|(_, value)| *value);
        found.ok_or_else(|| {
            let words: Vec<&str> = values.iter().map(|(value, _)| *value).collect();
            PyValueError::new_err(format!("{name} is one of {}", words.join(", ")))
        })
    }

    fn end(self) -> PyResult<()> {
        match self.0.keys().iter().next() {
            Some(name) => Err(PyValueError::new_err(format!("{name} is no option here"))),
            None => Ok(()),
        }
    }
}

/// The mask that new files go through; the process's own can only be asked for by changing it, so the kernel's account of it
/// is read.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
}

fn jobs(o: &Options<'_>) -> PyResult<usize> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Ok(o.take::<usize>("jobs")?.unwrap_or(cores.min(8)).clamp(1, 1024))
}

fn filter(o: &Options<'_>) -> PyResult<FilterSpec> {
    let globs = |name| -> PyResult<Vec<String>> { Ok(o.take::<Vec<String>>(name)?.unwrap_or_default()) };
    let excludes = globs("exclude")?.into_iter().map(Rule::Exclude);
    let includes = globs("include")?.into_iter().map(Rule::Include);
    Ok(FilterSpec {
        rules: excludes.chain(includes).collect(),
        regexes: globs("exclude_regex")?,
        gitignore: o.flag("gitignore")?,
        max_bytes: o.take("max_size")?,
        min_bytes: o.take("min_size")?,
        bcmrignore: false,
        newer: None,
        older: None,
    })
}

fn policy(o: &Options<'_>) -> PyResult<CopyPolicy> {
    let (me, umask) = (rustix::process::geteuid().as_raw(), umask());
    let archive = o.flag("archive")?;
    let base = match archive {
        true => CopyPolicy::archive(jobs(o)?, me, umask),
        false => CopyPolicy::cp(jobs(o)?, me, umask),
    };
    let verify = [("cached", Verify::Cached), ("direct", Verify::Direct), ("off", Verify::Off)];
    let sharing = [("auto", Reflink::Auto), ("always", Reflink::Always), ("never", Reflink::Never)];
    let holes = [("auto", Sparse::Auto), ("always", Sparse::Always), ("never", Sparse::Never)];
    let update = [
        ("all", Collide::Replace),
        ("none", Collide::Keep),
        ("older", Collide::IfOlder),
        ("different", Collide::IfDifferent),
    ];
    let resume = match (o.flag("resume")?, o.flag("strict")?) {
        (_, true) => Resume::Strict,
        (true, false) => Resume::Proved,
        (false, false) => Resume::Off,
    };
    let preserve = if o.flag("preserve")? && !archive { Preserve::CP } else { base.preserve };
    Ok(CopyPolicy {
        recursive: o.flag("recursive")? || archive,
        follow: if o.flag("dereference")? { Follow::Always } else { Follow::Never },
        preserve,
        strictness: if archive { Strictness::Archive } else { Strictness::LikeCp },
        collide: o.one_of("update", &update, Collide::Replace)?,
        force: o.flag("force")?,
        landing: if o.flag("inplace")? { Landing::InPlace } else { Landing::Atomic },
        reflink: o.one_of("reflink", &sharing, Reflink::Auto)?,
        sparse: o.one_of("sparse", &holes, Sparse::Auto)?,
        verify: o.one_of("verify", &verify, Verify::Off)?,
        durability: if o.flag("sync")? { Durability::Medium } else { Durability::Cache },
        resume,
        one_file_system: o.flag("one_file_system")?,
        filter: filter(o)?,
        dry_run: o.flag("dry_run")?,
        ..base
    })
}

fn target(o: &Options<'_>, path: PathBuf) -> PyResult<Target> {
    Ok(match (o.flag("no_target_directory")?, o.flag("target_directory")?) {
        (true, _) => Target::Exactly(path),
        (false, true) => Target::Into(path),
        (false, false) => Target::Guess(path),
    })
}

#[pyfunction]
fn copy(
    py: Python<'_>,
    sources: Vec<PathBuf>,
    destination: PathBuf,
    options: Bound<'_, PyDict>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Py<PyDict>> {
    let o = Options(options);
    let (target, manifest) = (target(&o, destination)?, o.take::<PathBuf>("manifest")?);
    let policy = CopyPolicy { hashes: manifest.is_some(), ..policy(&o)? };
    o.end()?;
    let request = CopyRequest { sources, names: None, target, manifest, policy };
    done(py, "copy", progress, |watch| api::copy(request, watch))
}

#[pyfunction]
fn sync(
    py: Python<'_>,
    source: PathBuf,
    destination: PathBuf,
    options: Bound<'_, PyDict>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Py<PyDict>, Vec<Difference>)> {
    let o = Options(options);
    let mirror = match (o.flag("delete")?, o.flag("delete_excluded")?) {
        (_, true) => Mirror::DeleteExcluded,
        (true, false) => Mirror::Delete,
        (false, false) => Mirror::Update,
    };
    let delete_max = match (o.take("max_delete_entries")?, o.take("max_delete_percent")?) {
        (Some(entries), _) => DeleteMax::Entries(entries),
        (None, Some(percent)) => DeleteMax::Percent(percent),
        (None, None) => DeleteMax::DEFAULT,
    };
    let collide = if o.flag("checksum")? { Collide::IfContentDiffers } else { Collide::IfDifferent };
    let state = o.take("state")?;
    // What is asked for of a copy, over what a sync is.
    o.0.set_item("archive", true)?;
    let asked = policy(&o)?;
    let policy = CopyPolicy {
        mirror,
        delete_max,
        collide,
        verify: asked.verify,
        one_file_system: asked.one_file_system,
        filter: asked.filter,
        dry_run: asked.dry_run,
        ..CopyPolicy::mirror(asked.jobs, asked.me, asked.umask)
    };
    o.end()?;
    let request = {
        let (plan, when) = (api::SyncPlan::None, api::DeleteWhen::After);
        SyncRequest { source, dest: destination, policy, state, plan, when }
    };
    done_and_heard(py, "sync", progress, |watch| api::sync(request, watch))
}

#[pyfunction]
fn move_(
    py: Python<'_>,
    sources: Vec<PathBuf>,
    destination: PathBuf,
    options: Bound<'_, PyDict>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Py<PyDict>> {
    let o = Options(options);
    let (target, merge) = (target(&o, destination)?, o.flag("merge")?);
    let all_or_nothing = o.flag("all_or_nothing")?;
    // What a move must not lose is kept, whatever was asked for.
    o.0.set_item("archive", true)?;
    let policy = CopyPolicy { verify: Verify::Cached, ..policy(&o)? };
    o.end()?;
    let request = MoveRequest { sources, target, merge, all_or_nothing, policy };
    done(py, "move", progress, |watch| api::move_(request, watch))
}

#[pyfunction]
fn remove(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    options: Bound<'_, PyDict>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Py<PyDict>> {
    let o = Options(options);
    let request = RemoveRequest {
        paths,
        recursive: o.flag("recursive")?,
        empty_dirs: o.flag("dir")?,
        force: o.flag("force")?,
        ask: false,
        one_file_system: !o.flag("cross_file_systems")?,
        dry_run: o.flag("dry_run")?,
        jobs: jobs(&o)?,
    };
    o.end()?;
    done(py, "remove", progress, |watch| api::remove(request, watch))
}

#[pyfunction]
fn check(
    py: Python<'_>,
    sources: Vec<PathBuf>,
    destination: PathBuf,
    options: Bound<'_, PyDict>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Py<PyDict>, Vec<Difference>)> {
    let o = Options(options);
    let target = target(&o, destination)?;
    let compare = match (o.flag("hash")?, o.flag("quick")?) {
        (true, _) => Compare::Hash,
        (false, true) => Compare::SizeAndTime,
        (false, false) => Compare::ContentInDoubt,
    };
    let extra = !o.flag("no_extra")?;
    let policy = CopyPolicy { recursive: true, ..policy(&o)? };
    o.end()?;
    let request = CheckRequest { sources, target, compare, extra, policy };
    done_and_heard(py, "check", progress, |watch| api::check(request, watch))
}

fn absolute(path: PathBuf) -> PyResult<PathBuf> {
    std::path::absolute(path).map_err(Into::into)
}

#[pyfunction]
fn plan(
    py: Python<'_>,
    source: PathBuf,
    destination: PathBuf,
    out: PathBuf,
    options: Bound<'_, PyDict>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Py<PyDict>, u32)> {
    let o = Options(options);
    let shards = match (o.take::<u32>("shards")?, o.take::<u64>("shard_size")?) {
        (_, Some(bytes)) => Shards::OfBytes(bytes),
        (count, None) => Shards::Number(count.unwrap_or(16)),
    };
    let part_bytes = o.take("part_size")?;
    o.0.set_item("archive", true)?;
    let policy = policy(&o)?;
    o.end()?;
    let (source, destination, out) = (absolute(source)?, absolute(destination)?, absolute(out)?);
    // Of a copy, which deletes nothing.
    let state = None;
    let request = PlanRequest { source, destination, there: None, out, shards, part_bytes, state, policy };
    let heard = Heard::default();
    let made = run(py, "plan", progress, |watch| api::plan(&request, watch), &heard)?;
    Ok((summary(py, &made.summary, &heard)?, made.shards))
}

#[pyfunction]
fn shard(
    py: Python<'_>,
    plan: PathBuf,
    number: Option<u32>,
    options: Bound<'_, PyDict>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Py<PyDict>> {
    let o = Options(options);
    let which = match (number, o.flag("all")?) {
        (Some(number), _) => ShardChoice::Number(number),
        (None, true) => ShardChoice::All,
        (None, false) => ShardChoice::Next,
    };
    o.0.set_item("archive", true)?;
    let policy = policy(&o)?;
    o.end()?;
    let request = ShardRequest { plan, which, way: None, policy };
    done(py, "shard", progress, |watch| api::shard(&request, watch))
}

#[pyfunction]
fn finish(
    py: Python<'_>,
    plan: PathBuf,
    options: Bound<'_, PyDict>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Py<PyDict>, String)> {
    let o = Options(options);
    let merge = o.flag("merge")?;
    let state = o.take("state")?;
    o.0.set_item("archive", true)?;
    let policy = policy(&o)?;
    o.end()?;
    let request = FinishRequest { plan, merge, way: None, state, policy };
    let heard = Heard::default();
    let done = run(py, "finish", progress, |watch| api::finish(&request, watch), &heard)?;
    Ok((summary(py, &done.summary, &heard)?, hex(&done.root)))
}

#[pyfunction]
fn status(py: Python<'_>, plan: PathBuf) -> PyResult<(Vec<(&'static str, u64, u64)>, bool)> {
    let status = py.detach(|| api::status(&plan)).map_err(|e| raised(&e))?;
    let shards = status.shards.iter().map(|(how, files, bytes)| {
        let how = match how {
            ShardStatus::Done => "done",
            ShardStatus::AtWork { .. } => "at-work",
            ShardStatus::Open => "open",
        };
        (how, *files, *bytes)
    });
    Ok((shards.collect(), status.is_finished))
}

#[pyfunction]
fn hash(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    let hash = py.detach(|| api::hash(&path)).map_err(|e| raised(&e))?;
    Ok(hex(&hash))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Every code that an error may have.
#[pyfunction]
fn codes() -> Vec<&'static str> {
    Code::ALL.iter().map(|code| code.name()).collect()
}

#[pymodule]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("NativeError", m.py().get_type::<NativeError>())?;
    m.add_function(wrap_pyfunction!(copy, m)?)?;
    m.add_function(wrap_pyfunction!(sync, m)?)?;
    m.add_function(wrap_pyfunction!(move_, m)?)?;
    m.add_function(wrap_pyfunction!(remove, m)?)?;
    m.add_function(wrap_pyfunction!(check, m)?)?;
    m.add_function(wrap_pyfunction!(plan, m)?)?;
    m.add_function(wrap_pyfunction!(shard, m)?)?;
    m.add_function(wrap_pyfunction!(finish, m)?)?;
    m.add_function(wrap_pyfunction!(status, m)?)?;
    m.add_function(wrap_pyfunction!(hash, m)?)?;
    m.add_function(wrap_pyfunction!(codes, m)?)
}
