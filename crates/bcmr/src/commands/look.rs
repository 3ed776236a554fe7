//! `ls`, `stat`, `du`, `hash`, `mkdir`: one question for each operand, here or there; and `doctor` and `deploy`, which ask about a
//! host.
//!
//! Must not change anything but by `mkdir` and `deploy`. Names go to a terminal escaped, to anything else as the bytes they are.

use super::remote::{self, with_peer};
use crate::address::{self, Operand};
use crate::cli::bcmr::connection::{self, ConnectArgs, Reach};
use crate::cli::bcmr::look::{DuArgs, HostArgs, LookArgs, LsArgs, MkdirArgs, StatArgs};
use crate::cli::bcmr::operands;
use crate::config::Config;
use crate::env::Env;
use crate::names;
use crate::say::{self, Sizes, Typed};
use crate::show::{Again, NewTarget, Verb};
use crate::ui::json;
use crate::ui::writer::{self, Sink};
use crate::usage::Usage;
use crate::voice::BCMR;
use bcmr_engine::control::Status;
use bcmr_engine::error::{Code, Error, Op, Result};
use bcmr_engine::event::{Action, Cancel, Event, Summary};
use bcmr_engine::peer;
use bcmr_engine::remote::{Address, Way};
use bcmr_engine::verbs::look::{self, Listing};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// So many names of a directory are sorted; what comes after them is told as it comes, so that memory has a bound
/// whatever the other side says.
const SORTED_MAX: usize = 100_000;
/// And so many bytes of names, and of what links lead to: more than so many names of any file system.
const SORTED_BYTES_MAX: usize = 32 << 20;

const _: () = assert!(SORTED_MAX * 255 <= SORTED_BYTES_MAX);

/// One operand, and how to get to it.
enum Place {
    Here(PathBuf),
    There(Address, Box<Reach>),
}

impl Place {
    /// Asks the right side.
    fn ask<T>(
        &self,
        note: &dyn Fn(String),
        here: impl FnOnce(&Path) -> Result<T>,
        mut there: impl FnMut(&Address, &Way) -> Result<T>,
    ) -> Result<T> {
        match self {
            Place::Here(path) => here(path),
            Place::There(address, reach) => {
                with_peer(address, reach, &Cancel::new(), note, |way| there(address, way))
                    .map_err(remote::Absent::error)
            }
        }
    }
}

/// Standard output and what was told there.
pub(super) struct Told {
    verb: Verb,
    json: bool,
    tty: bool,
    out: Sink,
    err: Sink,
    summary: Summary,
    hinted: Vec<Code>,
    people: People,
    line: Vec<OsString>,
    began: Instant,
}

impl Told {
    pub(super) fn new(verb: Verb, json: bool, env: &Env) -> Told {
        Told {
            verb,
            json,
            tty: env.stdout_tty,
            out: Sink::stdout(env.stdout_tty),
            err: Sink::stderr(),
            summary: Summary::default(),
            hinted: Vec::new(),
            people: People::default(),
            line: env.line.clone(),
            began: Instant::now(),
        }
    }

    fn typed(&self) -> Typed<'_> {
        Typed {
            verb: self.verb,
            again: Again::Same,
            line: &self.line,
            new_target: NewTarget::No,
            at_source: false,
            from_plan: false,
            owners_said: false,
            one_worker: false,
        }
    }

    /// The first line, where it is one of JSON.
    pub(super) fn start(&mut self, operands: &[PathBuf]) {
        if self.json {
            self.out.line(&json::start(self.verb, false, operands, None, 1));
        }
    }

    /// What a run is at.
    pub(super) fn run(&mut self, pid: u32, status: &Status) {
        if self.json {
            self.out.line(&json::run(pid, status));
        } else {
            self.out.raw(&say::run_status(pid, status));
        }
    }

    pub(super) fn failed(&mut self, e: Error) {
        self.summary.failed += 1;
        let code = e.code;
        if self.json {
            self.out.line(&json::event(&self.typed(), &Event::Failed(e)));
        } else {
            self.out.flush();
            self.err.line(&say::error(&BCMR, &e));
            if !self.hinted.contains(&code)
                && let Some(hint) = self.typed().advice(&e)
            {
                self.hinted.push(code);
                self.err.line(&format!("hint: {hint}"));
            }
        }
        if !self.summary.codes.contains(&code) {
            self.summary.codes.push(code);
        }
    }

    /// A line with a name in it.
    fn name(&mut self, before: &str, name: &[u8], after: &str) {
        self.link(before, name, after, b"");
    }

    /// The same with a second name behind it, that of what a link leads to.
    fn link(&mut self, before: &str, name: &[u8], between: &str, target: &[u8]) {
        if self.tty {
            self.out.line(&format!("{before}{}{between}{}", names::bare(name), names::bare(target)));
        } else {
            self.out.bytes(&[before.as_bytes(), name, between.as_bytes(), target].concat());
        }
    }

    pub(super) fn end(mut self) -> u8 {
        let exit = say::exit_code_of_look(&BCMR.exits, &self.summary);
        if self.json {
            self.out.line(&json::summary(self.verb, &self.summary, self.began.elapsed(), exit, None));
        }
        match self.out.finish() {
            Some(e) => {
                self.err.line(&say::output_error(&BCMR, &e));
                say::exit_without_output(&BCMR.exits, self.verb, exit)
            }
            None => exit,
        }
    }
}

/// Resolves all operands, then asks about each.
fn each(
    verb: Verb,
    a: &LookArgs,
    env: &Env,
    mut ask: impl FnMut(&mut Told, &Path, &Place) -> Result<()>,
) -> u8 {
    let places = match places(a, env) {
        Ok(places) => places,
        Err(u) => return super::verb::usage(verb, &u),
    };
    let mut told = Told::new(verb, a.json, env);
    told.start(&a.paths);
    if a.verbose {
        for path in operands::mistakable(&a.paths, &super::verb::is_here) {
            note(say::is_here(path));
        }
    }
    for (path, place) in a.paths.iter().zip(&places) {
        if let Err(e) = ask(&mut told, path, place) {
            told.failed(e);
        }
    }
    told.end()
}

fn places(a: &LookArgs, env: &Env) -> std::result::Result<Vec<Place>, Usage> {
    let operands: Vec<Operand> = a
        .paths
        .iter()
        .map(|p| operands::operand(p, &a.connect, &super::verb::is_here))
        .collect::<std::result::Result<_, _>>()?;
    if !operands.iter().any(|o| matches!(o, Operand::There(_))) {
        connection::no_connection(&a.connect, None)?;
    }
    let mut config = None;
    operands
        .into_iter()
        .map(|operand| match operand {
            Operand::Here(path) => Ok(Place::Here(path)),
            Operand::There(address) => {
                let config = match &mut config {
                    Some(config) => config,
                    none => none.insert(super::configuration::configuration(env)?),
                };
                reach(&a.connect, &address, config).map(|reach| Place::There(address, Box::new(reach)))
            }
        })
        .collect()
}

fn reach(c: &ConnectArgs, address: &Address, config: &Config) -> std::result::Result<Reach, Usage> {
    connection::reach(c, None, false, &address.host, config)
}

/// Told as it happens, on standard error: standard output holds answers only.
fn note(text: String) {
    writer::err(&format!("{}\n", BCMR.line(&names::text(&text))));
}

/// `ls`.
pub fn ls(a: &LsArgs, env: &Env) -> u8 {
    let many = a.look.paths.len() > 1;
    let mut first = true;
    each(Verb::Ls, &a.look, env, |told, path, place| {
        let gap = if std::mem::take(&mut first) { "" } else { "\n" };
        let head = many.then_some(gap);
        told.people.elsewhere = matches!(place, Place::There(..));
        let mut list =
            List { told, path, long: long_of(a), head, held: Vec::new(), held_bytes: 0, flows: false };
        let listed = match place {
            Place::Here(path) => look::list(path, &mut |l| list.take(l)),
            Place::There(address, reach) => {
                let asked = with_peer(address, reach, &Cancel::new(), &note, |way| {
                    peer::list(address, way, &mut |l| list.take(l))
                });
                asked.map_err(remote::Absent::error)
            }
        };
        match listed {
            Err(e) if e.code == Code::NotDirectory => {
                let l = place.ask(&note, |p| look::stat(p, false), |x, way| peer::stat(x, way, false))?;
                tell(told, long_of(a), path, false, &l);
                Ok(())
            }
            // What was listed before it went wrong is told all the same.
            Err(e) if list.held.is_empty() => Err(e),
            other => {
                list.tell();
                other
            }
        }
    })
}

/// The names of one directory on their way to standard output: sorted, as long as they are not too many.
struct List<'a> {
    told: &'a mut Told,
    path: &'a Path,
    long: Option<Sizes>,
    /// What comes before the head line, where there is to be one and it is not written yet.
    head: Option<&'static str>,
    held: Vec<Listing>,
    held_bytes: usize,
    flows: bool,
}

impl List<'_> {
    fn take(&mut self, l: Listing) -> bool {
        self.held_bytes += l.name.len() + l.link.len();
        self.held.push(l);
        let many = self.held.len() >= SORTED_MAX || self.held_bytes >= SORTED_BYTES_MAX;
        if self.flows || self.told.json || many {
            self.flows = true;
            self.tell();
        }
        true
    }

    fn tell(&mut self) {
        if let Some(gap) = self.head.take().filter(|_| !self.told.json) {
            self.told.name(gap, self.path.as_os_str().as_bytes(), ":");
        }
        self.held.sort_by(|a, b| a.name.cmp(&b.name));
        for l in self.held.drain(..) {
            tell(self.told, self.long, self.path, true, &l);
        }
    }
}

/// How sizes are told in a long listing; none is not long.
fn long_of(a: &LsArgs) -> Option<Sizes> {
    a.long.then_some(if a.human_readable { Sizes::Units } else { Sizes::Bytes })
}

/// One name; the operand itself when it is no directory.
fn tell(told: &mut Told, long: Option<Sizes>, operand: &Path, in_it: bool, l: &Listing) {
    if told.json {
        told.out.line(&json::entry(operand, in_it, l));
        return;
    }
    let name = if in_it { l.name.as_slice() } else { operand.as_os_str().as_bytes() };
    let Some(sizes) = long else { return told.name("", name, "") };
    let (user, group) = (told.people.user(l.uid), told.people.group(l.gid));
    let before = say::listing(l, &user, &group, sizes);
    told.link(&before, name, if l.link.is_empty() { "" } else { " -> " }, &l.link);
}

/// What users and groups are called, asked for once each. Of another machine only numbers are known.
#[derive(Default)]
struct People {
    elsewhere: bool,
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl People {
    fn user(&mut self, uid: u32) -> String {
        let known = if self.elsewhere { None } else { Some(&mut self.users) };
        named(known, uid, look::user_name)
    }

    fn group(&mut self, gid: u32) -> String {
        let known = if self.elsewhere { None } else { Some(&mut self.groups) };
        named(known, gid, look::group_name)
    }
}

fn named(known: Option<&mut HashMap<u32, String>>, id: u32, ask: impl Fn(u32) -> Option<Vec<u8>>) -> String {
    let Some(known) = known else { return id.to_string() };
    known
        .entry(id)
        .or_insert_with(|| ask(id).map_or_else(|| id.to_string(), |name| names::bare(&name)))
        .clone()
}

/// `stat`.
pub fn stat(a: &StatArgs, env: &Env) -> u8 {
    let follow = a.dereference;
    each(Verb::Stat, &a.look, env, |told, path, place| {
        let l = place.ask(&note, |p| look::stat(p, follow), |x, way| peer::stat(x, way, follow))?;
        if told.json {
            told.out.line(&json::entry(path, false, &l));
        } else {
            told.out.raw(&say::stat(path, &l));
        }
        Ok(())
    })
}

/// `du`.
pub fn du(a: &DuArgs, env: &Env) -> u8 {
    let filter = match a.bounds.filter() {
        Ok(filter) => filter,
        Err(u) => return super::verb::usage(Verb::Du, &u),
    };
    each(Verb::Du, &a.look, env, |told, path, place| {
        let failed = RefCell::new(Vec::new());
        let keep = |e| failed.borrow_mut().push(e);
        let here = |path: &Path| look::usage(path, &filter, &mut { keep });
        let there = |address: &Address, way: &Way| peer::usage(address, way, &filter, &mut { keep });
        let sum = place.ask(&note, here, there)?;
        for e in failed.take() {
            told.failed(e);
        }
        if told.json {
            told.out.line(&json::usage(path, &sum));
        } else {
            told.out.raw(&say::usage_below(path, &sum));
        }
        Ok(())
    })
}

/// `-` is standard input, as with b3sum.
fn hash_of_input() -> Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    match hasher.update_reader(std::io::stdin().lock()) {
        Ok(hasher) => Ok(*hasher.finalize().as_bytes()),
        Err(e) => Err(Error::os(Op::Hash, "-", e)),
    }
}

/// `hash`.
pub fn hash(a: &LookArgs, env: &Env) -> u8 {
    each(Verb::Hash, a, env, |told, path, place| {
        let here = |path: &Path| if path.as_os_str() == "-" { hash_of_input() } else { look::hash(path) };
        let hash = place.ask(&note, here, peer::hash)?;
        if told.json {
            let hashed = Event::Hashed { dst: path.to_owned(), hash };
            told.out.line(&json::event(&told.typed(), &hashed));
        } else {
            let line = say::hash_line(&hash, path.as_os_str().as_bytes(), told.tty);
            told.out.bytes(&line);
        }
        Ok(())
    })
}

/// `mkdir`.
pub fn mkdir(a: &MkdirArgs, env: &Env) -> u8 {
    each(Verb::Mkdir, &a.look, env, |told, path, place| {
        let here = |path: &Path| bcmr_engine::verbs::make_directory(path, a.parents);
        place.ask(&note, here, |address, way| peer::make_directory(address, way, a.parents))?;
        told.summary.dirs += 1;
        if told.json {
            let (action, src, bytes) = (Action::MadeDir, PathBuf::new(), 0);
            let made = Event::Item { action, src, dst: path.to_owned(), bytes };
            told.out.line(&json::event(&told.typed(), &made));
        } else if a.look.verbose {
            told.out.line(&say::item(false, Action::MadeDir, Path::new(""), path));
        }
        Ok(())
    })
}

/// What a command about one host needs.
fn about(a: &HostArgs, env: &Env) -> std::result::Result<(Address, Reach), Usage> {
    let address = connection::host(&a.host, &a.connect)?;
    let reach = reach(&a.connect, &address, &super::configuration::configuration(env)?)?;
    Ok((address, reach))
}

/// `doctor`.
pub fn doctor(a: &HostArgs, env: &Env) -> u8 {
    let (address, reach) = match about(a, env) {
        Ok(it) => it,
        Err(u) => return super::verb::usage(Verb::Doctor, &u),
    };
    let mut told = Told::new(Verb::Doctor, a.json, env);
    told.start(&[PathBuf::from(&a.host)]);
    // That a file could be read is known by now; whether it is there, only a look tells.
    let config = env.config_file.as_deref().filter(|file| std::fs::File::open(file).is_ok());
    let found = remote::doctor(&address, &reach, config);
    for f in &found {
        if a.json {
            told.out.line(&json::finding(f));
        } else {
            told.out.raw(&say::finding(f.ok, f.what, &f.detail));
        }
    }
    if found.last().is_none_or(|way| !way.ok) {
        told.summary.failed = 1;
    }
    told.end()
}

/// `deploy`.
pub fn deploy(a: &HostArgs, env: &Env) -> u8 {
    let (address, reach) = match about(a, env) {
        Ok(it) => it,
        Err(u) => return super::verb::usage(Verb::Deploy, &u),
    };
    let mut told = Told::new(Verb::Deploy, a.json, env);
    told.start(&[PathBuf::from(&a.host)]);
    match remote::deploy(&address, &reach) {
        Ok((program, put)) => {
            let text = say::deployed(&address::machine(&address), &program, put);
            if a.json {
                told.out.line(&json::event(&told.typed(), &Event::Note(text.into())));
            } else {
                told.out.line(&BCMR.line(&names::text(&text)));
            }
        }
        Err(e) => told.failed(e),
    }
    told.end()
}
