//! Events as NDJSON. `docs/json.md` is normative; what changes here changes there, and the schema number with it when
//! an old reader would be misled.
//!
//! Pure: values in, lines out. Must not know where lines go.

use super::inline::Sample;
use super::limit::Limit;
use super::receipt::Receipt;
use crate::names;
use crate::say::words;
use crate::say::{self, Finding, Typed};
use crate::show::{Show, Verb};
use bcmr_engine::control::Status;
use bcmr_engine::error::{Code, Error};
use bcmr_engine::event::{Action, Change, Event, Summary, Unavailable, Unfinished, What};
use bcmr_engine::policy::Verify;
use bcmr_engine::verbs::look::{Kind, Listing, Usage};
use data_encoding::{BASE64, HEXLOWER};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Raised when a field changes its meaning or goes away; not when one is added.
const SCHEMA: u32 = 1;

/// One line of what `--json` prints: an event. A reader passes over fields and events that it does not know.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "Events of bcmr --json")]
struct Line<'a> {
    /// Raised when a field changes its meaning or goes away; not when one is added.
    #[schemars(extend("const" = 1))]
    schema: u32,
    #[serde(flatten)]
    body: Body<'a>,
}

#[derive(Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Body<'a> {
    /// The first line.
    Start {
        verb: &'static str,
        /// Of the program.
        version: &'static str,
        /// Nothing is changed; items say what would be done.
        dry_run: bool,
        /// As they were given; what is on another machine as `[user@]host:path`.
        sources: Vec<Name<'a>>,
        /// The same; null where there is none.
        destination: Option<Name<'a>>,
        /// Worker threads.
        jobs: usize,
    },
    /// One item was finished.
    Item {
        action: &'static str,
        #[serde(skip_serializing_if = "Name::is_empty")]
        src: Name<'a>,
        #[serde(skip_serializing_if = "Name::is_empty")]
        dst: Name<'a>,
        bytes: u64,
    },
    /// What `check` found.
    Difference { change: &'static str, path: Name<'a>, directory: bool, files: u64, bytes: u64, why: String },
    /// A file landed, and this is its hash.
    Hashed { dst: Name<'a>, blake3: String },
    /// A large file went on where an interrupted run stopped, or could not.
    Resumed {
        dst: Name<'a>,
        bytes: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        restarted: Option<String>,
        repaired: u64,
    },
    /// What `sessions` found.
    Unfinished {
        what: &'static str,
        path: Name<'a>,
        recorded: u64,
        size: u64,
        last: f64,
        running: bool,
        removed: bool,
    },
    /// An item was not done; the others go on.
    Failed(Trouble<'a>),
    /// An item was done, or rightly left out, and something about it is worth knowing.
    Warning(Trouble<'a>),
    /// Which way the contents of local files went.
    Engine {
        ring_files: u64,
        sys_files: u64,
        direct_files: u64,
        not_direct_files: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        missing: Option<&'static str>,
    },
    /// Something about the whole run, for people.
    Note { text: Cow<'a, str> },
    /// How far it is. No number is ever smaller than in an earlier line.
    Progress {
        items_done: u64,
        bytes_done: u64,
        items_found: u64,
        bytes_found: u64,
        /// The totals are final; until then they are lower bounds.
        scanned: bool,
        /// What is going on: a verb, for people.
        phase: &'static str,
        /// Read back of what landed.
        bytes_verified: u64,
        /// Brought onto stable storage.
        files_synced: u64,
        seconds: f64,
    },
    /// The last line.
    Summary {
        verb: &'static str,
        files: u64,
        dirs: u64,
        others: u64,
        bytes: u64,
        kept: u64,
        failed: u64,
        differences: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        compared: Option<Compared>,
        #[serde(skip_serializing_if = "Option::is_none")]
        updated: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        deleted: Option<u64>,
        codes: Vec<&'static str>,
        cancelled: bool,
        seconds: f64,
        exit: u8,
        #[serde(skip_serializing_if = "Option::is_none")]
        carrier: Option<&'static str>,
    },
    /// What a copy or a move did, before the summary.
    Receipt {
        verb: &'static str,
        files: u64,
        bytes: u64,
        seconds: f64,
        /// Bytes a second, of those that this run copied.
        rate: u64,
        /// Where the bytes that landed were read back from.
        #[serde(skip_serializing_if = "Option::is_none")]
        verified: Option<&'static str>,
        /// Of what was verified: the BLAKE3 of the sorted lines that `b3sum` prints of it in the destination.
        #[serde(skip_serializing_if = "Option::is_none")]
        root: Option<String>,
        /// Bytes that an earlier run had copied, or that were there in older versions, under other names, in the store or in what came before.
        reused: u64,
        /// Those of them that came from the store of blocks at the destination; absent when none did.
        #[serde(skip_serializing_if = "Option::is_none")]
        from_store: Option<u64>,
        /// Those of them that had come before in the same run; absent when none did.
        #[serde(skip_serializing_if = "Option::is_none")]
        from_run: Option<u64>,
        /// Files whose blocks are shared with the source.
        cloned: Cloned,
        /// Left alone because they were there.
        kept: u64,
        /// Names that filters left out; a directory counts once. Absent where they are left out on another machine.
        #[serde(skip_serializing_if = "Option::is_none")]
        excluded: Option<u64>,
        /// Special files that nothing asked to be copied.
        specials: u64,
        /// Attributes that could not be kept, by kind.
        lost: Vec<LostKind<'a>>,
        /// What the run waited for most.
        #[serde(skip_serializing_if = "Option::is_none")]
        limited_by: Option<&'static str>,
        /// The command that proves it, for a shell.
        #[serde(skip_serializing_if = "Option::is_none")]
        proof: Option<&'a str>,
    },
    /// What `ls` found in a directory, or `ls` or `stat` at the operand itself.
    Entry {
        operand: Name<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<Name<'a>>,
        kind: &'static str,
        mode: u32,
        uid: u32,
        gid: u32,
        size: u64,
        mtime: f64,
        #[serde(skip_serializing_if = "Name::is_empty")]
        link: Name<'a>,
    },
    /// What `du` found.
    Usage { operand: Name<'a>, files: u64, dirs: u64, bytes: u64, allocated: u64 },
    /// What `doctor` found.
    Finding {
        ok: bool,
        what: &'a str,
        detail: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<&'static str>,
    },
    /// What a run is at, as `ctl` heard it.
    Run {
        pid: u32,
        paused: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        limit: Option<u64>,
        items_done: u64,
        bytes_done: u64,
        items_found: u64,
        bytes_found: u64,
    },
}

/// Files whose blocks are shared.
#[derive(Serialize, JsonSchema)]
struct Cloned {
    files: u64,
    bytes: u64,
}

/// One kind of attribute.
#[derive(Serialize, JsonSchema)]
struct LostKind<'a> {
    /// What was tried.
    op: String,
    count: u64,
    example: Name<'a>,
}

/// What went wrong.
#[derive(Serialize, JsonSchema)]
struct Trouble<'a> {
    code: &'static str,
    op: String,
    path: Name<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    other: Option<Name<'a>>,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    errno: Option<i32>,
    retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

/// How `check` compared files that both sides have.
#[derive(Serialize, JsonSchema)]
struct Compared {
    size_and_time: u64,
    content: u64,
}

/// A name, byte for byte: a string when it is UTF-8, else an object that holds its base64.
struct Name<'a>(&'a Path);

impl Name<'_> {
    fn is_empty(&self) -> bool {
        self.0.as_os_str().is_empty()
    }
}

impl Serialize for Name<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Bytes {
            b64: String,
        }
        match self.0.to_str() {
            Some(text) => serializer.serialize_str(text),
            None => Bytes { b64: BASE64.encode(self.0.as_os_str().as_bytes()) }.serialize(serializer),
        }
    }
}

impl JsonSchema for Name<'_> {
    fn schema_name() -> Cow<'static, str> {
        "Name".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A name, byte for byte: a string when it is UTF-8, else its bytes in base64.",
            "oneOf": [
                { "type": "string" },
                {
                    "type": "object",
                    "properties": { "b64": { "type": "string", "contentEncoding": "base64" } },
                    "required": ["b64"],
                    "additionalProperties": false
                }
            ]
        })
    }
}

/// The JSON Schema of every line, as text.
pub fn schema() -> String {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let schema = generator.into_root_schema_for::<Line<'static>>();
    // What was made from types has no way to fail here.
    serde_json::to_string_pretty(&schema).unwrap_or_default() + "\n"
}

/// The first line.
pub fn start(
    verb: Verb,
    dry_run: bool,
    sources: &[PathBuf],
    destination: Option<&Path>,
    jobs: usize,
) -> String {
    line(Body::Start {
        verb: verb.name(),
        version: env!("CARGO_PKG_VERSION"),
        dry_run,
        sources: sources.iter().map(|p| Name(p)).collect(),
        destination: destination.map(Name),
        jobs,
    })
}

/// What the engine tells of this verb.
pub fn event(typed: &Typed<'_>, event: &Event) -> String {
    line(match event {
        Event::Item { action, src, dst, bytes } => {
            Body::Item { action: action_name(*action), src: Name(src), dst: Name(dst), bytes: *bytes }
        }
        Event::Hashed { dst, hash } => Body::Hashed { dst: Name(dst), blake3: HEXLOWER.encode(hash) },
        Event::Resumed { dst, bytes, restarted, repaired } => Body::Resumed {
            dst: Name(dst),
            bytes: *bytes,
            restarted: restarted.map(words::of),
            repaired: *repaired,
        },
        Event::Difference { change, path, directory, files, bytes, why, .. } => Body::Difference {
            change: match change {
                Change::Add => "add",
                Change::Extra => "extra",
                Change::Differ => "differ",
            },
            path: Name(path),
            directory: *directory,
            files: *files,
            bytes: *bytes,
            why: words::of(*why),
        },
        Event::Unfinished(u) => unfinished(u),
        Event::Failed(e) => Body::Failed(trouble(typed, e)),
        Event::Warning(e) => Body::Warning(trouble(typed, e)),
        Event::Engine(engine) => Body::Engine {
            ring_files: engine.ring_files,
            sys_files: engine.sys_files,
            direct_files: engine.direct_files,
            not_direct_files: engine.not_direct_files,
            missing: engine.missing.map(|why| match why {
                Unavailable::Missing => "missing",
                Unavailable::Forbidden => "forbidden",
                Unavailable::TooOld => "too-old",
                Unavailable::Refused(_) => "refused",
            }),
        },
        Event::Note(note) => Body::Note { text: words::note(note).into() },
        // It is for hints.
        Event::NewTarget => Body::Note { text: "the destination is new".into() },
    })
}

fn unfinished(u: &Unfinished) -> Body<'_> {
    Body::Unfinished {
        what: match u.what {
            What::File => "file",
            What::Tree => "tree",
            What::Stage => "stage",
        },
        path: Name(&u.path),
        recorded: u.recorded,
        size: u.size,
        last: u.last.sec as f64 + f64::from(u.last.nsec / 1_000_000) / 1000.0,
        running: u.running,
        removed: u.removed,
    }
}

/// How far it is.
pub fn progress(s: Sample, phase: &'static str, at: Duration) -> String {
    line(Body::Progress {
        items_done: s.items_done,
        bytes_done: s.bytes_done,
        items_found: s.items_found,
        bytes_found: s.bytes_found,
        scanned: s.scanned,
        phase,
        bytes_verified: s.bytes_verified,
        files_synced: s.files_synced,
        seconds: millis(at),
    })
}

/// What a copy or a move did, for a person who keeps it.
pub fn receipt(show: &Show, r: &Receipt) -> String {
    let lost = r.lost.iter().map(|loss| LostKind {
        op: words::op(loss.op),
        count: loss.count,
        example: Name(&loss.example),
    });
    line(Body::Receipt {
        verb: show.verb.name(),
        files: r.files,
        bytes: r.bytes,
        seconds: millis(r.took),
        rate: say::rate(r.bytes.saturating_sub(r.reused), r.took),
        verified: match r.verify {
            Verify::Off => None,
            Verify::Cached => Some("cache"),
            Verify::Direct => Some("device"),
        },
        root: r.root.map(|root| HEXLOWER.encode(&root)),
        reused: r.reused,
        from_store: (r.from_store > 0).then_some(r.from_store),
        from_run: (r.from_run > 0).then_some(r.from_run),
        cloned: Cloned { files: r.cloned.0, bytes: r.cloned.1 },
        kept: r.kept,
        excluded: r.excluded,
        specials: r.specials.as_ref().map_or(0, |specials| specials.0),
        lost: lost.collect(),
        limited_by: r.limit.map(limit_name),
        proof: r.proof.as_deref(),
    })
}

fn limit_name(limit: Limit) -> &'static str {
    match limit {
        Limit::Reading => "reading",
        Limit::Writing => "writing",
        Limit::Processor => "processor",
        Limit::Verifying => "verifying",
        Limit::Syncing => "syncing",
        Limit::Ssh => "ssh",
        Limit::SshOrNetwork => "ssh-or-network",
        Limit::NetworkOrFarSsh => "network-or-far-ssh",
        Limit::Network => "network",
        Limit::OtherSide => "other-side",
        Limit::OtherSideOrNetwork => "other-side-or-network",
    }
}

/// The last line.
pub fn summary(verb: Verb, s: &Summary, took: Duration, exit: u8, carrier: Option<&'static str>) -> String {
    line(Body::Summary {
        verb: verb.name(),
        files: s.files,
        dirs: s.dirs,
        others: s.others,
        bytes: s.bytes,
        kept: s.kept,
        failed: s.failed,
        differences: s.differences,
        compared: (verb == Verb::Check)
            .then_some(Compared { size_and_time: s.compared.by_time, content: s.compared.by_content }),
        updated: (verb == Verb::Sync).then_some(s.updated),
        deleted: (verb == Verb::Sync || s.deleted > 0).then_some(s.deleted),
        codes: s.codes.iter().map(|c| c.name()).collect(),
        cancelled: s.cancelled,
        seconds: millis(took),
        exit,
        carrier,
    })
}

/// One name that `ls` or `stat` was asked about; `name` where it is one of those in the operand.
pub fn entry(operand: &Path, in_it: bool, l: &Listing) -> String {
    let name = Path::new(OsStr::from_bytes(&l.name));
    line(Body::Entry {
        operand: Name(operand),
        name: in_it.then_some(Name(name)),
        kind: match l.kind {
            Kind::File => "file",
            Kind::Dir => "directory",
            Kind::Link => "link",
            Kind::Fifo => "fifo",
            Kind::Socket => "socket",
            Kind::CharDevice => "char-device",
            Kind::BlockDevice => "block-device",
        },
        mode: l.mode,
        uid: l.uid,
        gid: l.gid,
        size: l.size,
        mtime: l.mtime.sec as f64 + f64::from(l.mtime.nsec / 1_000_000) / 1000.0,
        link: Name(Path::new(OsStr::from_bytes(&l.link))),
    })
}

/// What `du` found.
pub fn usage(operand: &Path, u: &Usage) -> String {
    let Usage { files, dirs, bytes, allocated } = *u;
    line(Body::Usage { operand: Name(operand), files, dirs, bytes, allocated })
}

/// What `doctor` found.
pub fn finding(f: &Finding) -> String {
    line(Body::Finding { ok: f.ok, what: f.what, detail: &f.detail, code: f.code.map(Code::name) })
}

/// What a run is at.
pub fn run(pid: u32, status: &Status) -> String {
    let Status { limit, paused, items_done, bytes_done, items_found, bytes_found } = *status;
    line(Body::Run { pid, paused, limit, items_done, bytes_done, items_found, bytes_found })
}

fn trouble<'e>(typed: &Typed<'_>, e: &'e Error) -> Trouble<'e> {
    Trouble {
        code: e.code.name(),
        op: words::op(e.op),
        path: Name(&e.path),
        other: e.other.as_deref().map(Name),
        reason: say::reason(e),
        errno: e.source.as_ref().and_then(std::io::Error::raw_os_error),
        retryable: e.code.is_retryable(),
        hint: typed.advice(e),
    }
}

fn action_name(action: Action) -> &'static str {
    match action {
        Action::Copied => "copied",
        Action::MadeDir => "made-dir",
        Action::MadeLink => "made-link",
        Action::HardLinked => "hard-linked",
        Action::MadeSpecial => "made-special",
        Action::Renamed => "renamed",
        Action::Removed => "removed",
        Action::Kept => "kept",
        Action::Excluded => "excluded",
        Action::Updated => "updated",
    }
}

fn millis(d: Duration) -> f64 {
    (d.as_secs_f64() * 1000.0).round() / 1000.0
}

/// One line without its newline. JSON lands on terminals too: what a terminal could obey is written as `\uXXXX`, which
/// every reader turns back into the same character.
fn line(body: Body<'_>) -> String {
    // Serialising plain structs to memory has no way to fail; were there one, the reader sees a line it cannot take
    // for an event.
    let plain = serde_json::to_string(&Line { schema: SCHEMA, body }).unwrap_or_else(|e| {
        format!("{{\"schema\":{SCHEMA},\"event\":\"unprintable\",\"reason\":\"{e:?}\"}}")
    });
    if !plain.chars().any(names::is_unsafe) {
        return plain;
    }
    let mut out = String::with_capacity(plain.len() + 16);
    for c in plain.chars() {
        if names::is_unsafe(c) {
            write!(out, "\\u{:04x}", u32::from(c)).unwrap_or_default();
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::{Again, NewTarget};
    use bcmr_engine::error::{Op, Reason};
    use bcmr_engine::event::Engine;
    use proptest::prelude::*;
    use std::ffi::{OsStr, OsString};

    fn event(event: &Event) -> String {
        let line = ["bcmr", "copy", "a b", "c"].map(OsString::from);
        let typed = Typed {
            verb: Verb::Copy,
            again: Again::Same,
            line: &line,
            new_target: NewTarget::No,
            at_source: false,
            from_plan: false,
            owners_said: false,
            one_worker: false,
        };
        super::event(&typed, event)
    }

    #[test]
    fn lines() {
        let bad = Path::new(OsStr::from_bytes(b"\xff\x00x"));
        let took = Duration::from_millis(1500);
        for (got, want) in [
            (
                start(Verb::Copy, false, &["a".into(), bad.into()], Some(Path::new("d")), 2),
                concat!(
                    r#"{"schema":1,"event":"start","verb":"copy","version":""#,
                    env!("CARGO_PKG_VERSION"),
                    r#"","dry_run":false,"sources":["a",{"b64":"/wB4"}],"destination":"d","jobs":2}"#
                ),
            ),
            (
                event(&Event::Item {
                    action: Action::Copied,
                    src: "a\n".into(),
                    dst: "é\u{202e}\u{9b}".into(),
                    bytes: 5,
                }),
                r#"{"schema":1,"event":"item","action":"copied","src":"a\n","dst":"é\u202e\u009b","bytes":5}"#,
            ),
            (
                event(&Event::Item { action: Action::Removed, src: "".into(), dst: "x".into(), bytes: 0 }),
                r#"{"schema":1,"event":"item","action":"removed","dst":"x","bytes":0}"#,
            ),
            (
                event(&Event::Difference {
                    change: Change::Differ,
                    path: "p".into(),
                    directory: false,
                    files: 1,
                    bytes: 9,
                    why: Reason::BySize,
                    alike: None,
                }),
                r#"{"schema":1,"event":"difference","change":"differ","path":"p","directory":false,"files":1,"bytes":9,"why":"size"}"#,
            ),
            (
                event(&Event::Failed(Error::os(Op::Open, "x", std::io::Error::from_raw_os_error(13)))),
                r#"{"schema":1,"event":"failed","code":"denied","op":"open","path":"x","reason":"Permission denied","errno":13,"retryable":false}"#,
            ),
            (
                event(&Event::Warning(
                    Error::ours(Code::Special, Op::Copy, "f", Reason::Said.about("a FIFO"))
                        .and(Path::new("g")),
                )),
                r#"{"schema":1,"event":"warning","code":"special","op":"copy","path":"f","other":"g","reason":"a FIFO","retryable":false,"hint":"to copy special files as what they are, run: bcmr copy --archive 'a b' c"}"#,
            ),
            (
                event(&Event::Hashed { dst: "d".into(), hash: [0xa5; 32] }),
                &format!(r#"{{"schema":1,"event":"hashed","dst":"d","blake3":"{}"}}"#, "a5".repeat(32)),
            ),
            (
                event(&Event::Resumed { dst: "d".into(), bytes: 9, restarted: None, repaired: 2 }),
                r#"{"schema":1,"event":"resumed","dst":"d","bytes":9,"repaired":2}"#,
            ),
            (
                event(&Event::Resumed {
                    dst: "d".into(),
                    bytes: 0,
                    restarted: Some(Reason::OtherOptions),
                    repaired: 0,
                }),
                r#"{"schema":1,"event":"resumed","dst":"d","bytes":0,"restarted":"the session was made with other options","repaired":0}"#,
            ),
            (
                event(&Event::Unfinished(Unfinished {
                    what: What::File,
                    path: "d".into(),
                    recorded: 4,
                    size: 8,
                    last: bcmr_engine::event::Time { sec: 12, nsec: 345_678_901 },
                    running: false,
                    removed: true,
                })),
                r#"{"schema":1,"event":"unfinished","what":"file","path":"d","recorded":4,"size":8,"last":12.345,"running":false,"removed":true}"#,
            ),
            (
                event(&Event::Engine(Engine {
                    asked: true,
                    ring_files: 3,
                    sys_files: 4,
                    direct_files: 2,
                    not_direct_files: 1,
                    missing: Some(Unavailable::Forbidden),
                })),
                concat!(
                    r#"{"schema":1,"event":"engine","ring_files":3,"sys_files":4,"direct_files":2,"#,
                    r#""not_direct_files":1,"missing":"forbidden"}"#
                ),
            ),
            (event(&Event::Note(Reason::Said.about("hi"))), r#"{"schema":1,"event":"note","text":"hi"}"#),
            (
                progress(
                    Sample {
                        items_done: 1,
                        bytes_done: 2,
                        items_found: 3,
                        bytes_found: 4,
                        scanned: true,
                        bytes_verified: 5,
                        files_synced: 6,
                        ..Sample::default()
                    },
                    "copying",
                    took,
                ),
                r#"{"schema":1,"event":"progress","items_done":1,"bytes_done":2,"items_found":3,"bytes_found":4,"scanned":true,"phase":"copying","bytes_verified":5,"files_synced":6,"seconds":1.5}"#,
            ),
            (
                summary(
                    Verb::Copy,
                    &Summary { files: 1, failed: 1, codes: vec![Code::NoSpace], ..Summary::default() },
                    took,
                    6,
                    None,
                ),
                r#"{"schema":1,"event":"summary","verb":"copy","files":1,"dirs":0,"others":0,"bytes":0,"kept":0,"failed":1,"differences":0,"codes":["no-space"],"cancelled":false,"seconds":1.5,"exit":6}"#,
            ),
        ] {
            assert_eq!(got, want);
        }
    }

    #[test]
    fn what_was_looked_at() {
        let mtime = bcmr_engine::event::Time { sec: 7, nsec: 250_999_999 };
        let l = Listing {
            kind: Kind::Dir,
            name: b"a\xff".to_vec(),
            mode: 0o755,
            uid: 1,
            gid: 2,
            size: 3,
            mtime,
            link: Vec::new(),
        };
        let u = Usage { files: 1, dirs: 2, bytes: 3, allocated: 4 };
        let f = Finding { ok: false, what: "bcmr", detail: "not \x1bthere".into(), code: None };
        for (got, want) in [
            (
                entry(Path::new("h:d"), true, &l),
                r#"{"schema":1,"event":"entry","operand":"h:d","name":{"b64":"Yf8="},"kind":"directory","mode":493,"uid":1,"gid":2,"size":3,"mtime":7.25}"#,
            ),
            (
                entry(Path::new("h:d"), false, &l),
                r#"{"schema":1,"event":"entry","operand":"h:d","kind":"directory","mode":493,"uid":1,"gid":2,"size":3,"mtime":7.25}"#,
            ),
            (
                usage(Path::new("."), &u),
                r#"{"schema":1,"event":"usage","operand":".","files":1,"dirs":2,"bytes":3,"allocated":4}"#,
            ),
            (
                finding(&f),
                r#"{"schema":1,"event":"finding","ok":false,"what":"bcmr","detail":"not \u001bthere"}"#,
            ),
        ] {
            assert_eq!(got, want);
        }
        let by = summary(Verb::Copy, &Summary::default(), Duration::ZERO, 0, Some("scp"));
        assert!(by.ends_with(r#""exit":0,"carrier":"scp"}"#), "{by}");
    }

    proptest! {
        #[test]
        fn any_name_is_one_line_and_comes_back(bytes in proptest::collection::vec(1..=255_u8, 1..40)) {
            let path = PathBuf::from(OsStr::from_bytes(&bytes));
            let item = Event::Item { action: Action::Copied, src: path.clone(), dst: path.clone(), bytes: 0 };
            let line = event(&item);
            prop_assert!(!line.chars().any(names::is_unsafe));
            let value: serde_json::Value = serde_json::from_str(&line).unwrap();
            match path.to_str() {
                Some(text) => prop_assert_eq!(value["src"].as_str(), Some(text)),
                None => {
                    let want = BASE64.encode(&bytes);
                    prop_assert_eq!(value["src"]["b64"].as_str(), Some(want.as_str()));
                }
            }
        }
    }
}
