//! What is done while the power may go, and what is known about every name afterwards. Knows neither logs nor disks.

use crate::crash::state::Rng;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where things are during a run, and in a crash state that is looked at.
pub struct Place {
    /// The file systems that lose power: the destination, and for some workloads the source.
    pub disks: [PathBuf; 2],
    /// A directory that survives everything.
    pub host: PathBuf,
    pub bcmr: PathBuf,
}

/// One regular file that the destination has or will have.
#[derive(Clone)]
pub struct Entry {
    /// Below the destination's file system.
    pub path: String,
    /// What was there before the run; `None` when nothing.
    pub old: Option<Vec<u8>>,
    /// What the run puts there; `None` for a bystander, which must stay as it is.
    pub new: Option<Vec<u8>>,
    /// Of the new content.
    pub mode: u32,
    /// The command, counted from 0, whose exit 0 says that it is there.
    pub by: usize,
    /// Below the source's directory.
    pub source: String,
}

/// Where the sources are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// Where no power is lost.
    Host,
    /// On the destination's file system.
    Same,
    /// On a file system of its own, on a disk of its own.
    Far,
}

/// What exit 0 of a command says about what it put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit0 {
    /// It is complete. A power cut may still take it.
    Done,
    /// It survives a power cut.
    Durable,
}

/// What is tried on a crash state after it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rerun {
    /// Nothing: the sources may be gone.
    Never,
    /// The same commands again, on some of the states.
    Some,
    /// The same on every state.
    All,
}

/// Command lines, for a place.
pub type Commands = fn(&Place) -> Vec<Vec<OsString>>;

pub struct Workload {
    pub name: &'static str,
    pub what: &'static str,
    pub from: From,
    pub exit0: Exit0,
    /// Whether names are promised to be old or new at every moment; else what happened is counted, no more.
    pub atomic: bool,
    pub rerun: Rerun,
    /// Another program makes its own file durable all the time, which pushes half of what is under way to the disk.
    pub neighbour: bool,
    pub entries: fn(&mut Rng) -> Vec<Entry>,
    /// The command lines, run one after the other.
    pub commands: Commands,
    /// What is run instead when the same is done again on a crash state.
    pub again: Option<Commands>,
    /// The destination needs so much more than a few files take, in MiB.
    pub extra_mib: u64,
}

/// Every workload with its promises.
pub const WORKLOADS: [Workload; 8] = [
    Workload {
        name: "tree-sync",
        what: "copy -r --sync of a tree, over some of its old files",
        from: From::Host,
        exit0: Exit0::Durable,
        atomic: true,
        rerun: Rerun::Some,
        neighbour: false,
        entries: tree,
        commands: |p| vec![bcmr(p, &["copy", "-r", "--sync"], &[&p.host.join("tree"), &p.disks[0]])],
        again: None,
        extra_mib: 0,
    },
    Workload {
        name: "tree-sync-beside",
        what: "the same while another program syncs its own file",
        from: From::Host,
        exit0: Exit0::Durable,
        atomic: true,
        rerun: Rerun::Some,
        neighbour: true,
        entries: tree,
        commands: |p| vec![bcmr(p, &["copy", "-r", "--sync"], &[&p.host.join("tree"), &p.disks[0]])],
        again: None,
        extra_mib: 0,
    },
    Workload {
        name: "file-sync",
        what: "copy --sync of one new file, then of one over an old one",
        from: From::Host,
        exit0: Exit0::Durable,
        atomic: true,
        rerun: Rerun::Some,
        neighbour: false,
        entries: two_files,
        commands: |p| {
            ["new", "replaced"].map(|f| bcmr(p, &["copy", "--sync"], &[&p.host.join(f), &p.disks[0]])).into()
        },
        again: None,
        extra_mib: 0,
    },
    Workload {
        name: "tree",
        what: "copy -r without --sync, over old files, while another program syncs its own file",
        from: From::Host,
        exit0: Exit0::Done,
        atomic: false,
        rerun: Rerun::Some,
        neighbour: true,
        entries: tree,
        commands: |p| vec![bcmr(p, &["copy", "-r"], &[&p.host.join("tree"), &p.disks[0]])],
        again: None,
        extra_mib: 0,
    },
    Workload {
        name: "move-far",
        what: "move of a tree from another file system, whose removals reach its disk at once",
        from: From::Far,
        exit0: Exit0::Done,
        atomic: false,
        rerun: Rerun::Never,
        neighbour: false,
        entries: new_tree,
        commands: |p| vec![bcmr(p, &["move"], &[&p.disks[1].join("tree"), &p.disks[0]])],
        again: None,
        extra_mib: 0,
    },
    Workload {
        name: "move-far-sync",
        what: "the same with --sync",
        from: From::Far,
        exit0: Exit0::Durable,
        atomic: true,
        rerun: Rerun::Never,
        neighbour: false,
        entries: new_tree,
        commands: |p| vec![bcmr(p, &["move", "--sync"], &[&p.disks[1].join("tree"), &p.disks[0]])],
        again: None,
        extra_mib: 0,
    },
    Workload {
        name: "move-near-sync",
        what: "move --sync of files and a directory within one file system, over some old files",
        from: From::Same,
        exit0: Exit0::Durable,
        atomic: true,
        rerun: Rerun::Never,
        neighbour: false,
        entries: near,
        commands: |p| {
            let moved = ["f0", "f1", "f2", "d"].map(|f| p.disks[0].join("from").join(f));
            moved.map(|f| bcmr(p, &["move", "--sync"], &[&f, &p.disks[0].join("to")])).into()
        },
        again: None,
        extra_mib: 0,
    },
    Workload {
        name: "resume",
        what: "copy -C of one file, and the same again after the power cut",
        from: From::Host,
        exit0: Exit0::Durable,
        atomic: true,
        rerun: Rerun::All,
        neighbour: false,
        entries: big_file,
        commands: |p| {
            let args = ["copy", "--resume", "--checkpoint-size", CHECKPOINT_BYTES];
            vec![bcmr(p, &args, &[&p.host.join("big"), &p.disks[0]])]
        },
        again: None,
        extra_mib: 64,
    },
];

/// Faulty ways to do the same: each must be caught, or the judge is none.
pub const PLANTED: [Workload; 4] = [
    Workload {
        name: "planted-cp",
        what: "cp -r without a sync, judged as if it had promised what --sync does",
        from: From::Host,
        exit0: Exit0::Durable,
        atomic: true,
        rerun: Rerun::Never,
        neighbour: true,
        entries: tree,
        commands: |p| vec![line("cp", &["-r"], &[&p.host.join("tree"), &p.disks[0]])],
        again: None,
        extra_mib: 0,
    },
    Workload {
        name: "planted-rename",
        what: "written beside, renamed into place, nothing synced",
        from: From::Host,
        exit0: Exit0::Durable,
        atomic: true,
        rerun: Rerun::Never,
        neighbour: false,
        entries: two_files,
        commands: |p| {
            let script = "cp \"$1/$3\" \"$2/.s\" && mv -f \"$2/.s\" \"$2/$3\"";
            let one = |f: &str| {
                let mut line = line("sh", &["-c", script, "sh"], &[&p.host, &p.disks[0]]);
                line.push(f.into());
                line
            };
            ["new", "replaced"].map(one).into()
        },
        again: None,
        extra_mib: 0,
    },
    Workload {
        name: "planted-mv",
        what: "mv from another file system, which removes what it has not synced",
        from: From::Far,
        exit0: Exit0::Done,
        atomic: false,
        rerun: Rerun::Never,
        neighbour: false,
        entries: new_tree,
        commands: |p| vec![line("mv", &[], &[&p.disks[1].join("tree"), &p.disks[0]])],
        again: None,
        extra_mib: 0,
    },
    Workload {
        name: "planted-rerun",
        what: "a second run that does nothing and says that all is well",
        from: From::Host,
        exit0: Exit0::Done,
        atomic: false,
        rerun: Rerun::All,
        neighbour: false,
        entries: two_files,
        commands: |p| {
            ["new", "replaced"].map(|f| bcmr(p, &["copy", "--sync"], &[&p.host.join(f), &p.disks[0]])).into()
        },
        again: Some(|_| vec![line("true", &[], &[])]),
        extra_mib: 0,
    },
];

/// The smallest distance between two checkpoints.
const CHECKPOINT_BYTES: &str = "4194304";
/// The name under which the neighbour works.
pub const NEIGHBOUR: &str = "neighbour";

fn line(program: &str, args: &[&str], paths: &[&Path]) -> Vec<OsString> {
    let words = std::iter::once(OsString::from(program)).chain(args.iter().map(OsString::from));
    words.chain(paths.iter().map(OsString::from)).collect()
}

fn bcmr(place: &Place, args: &[&str], paths: &[&Path]) -> Vec<OsString> {
    let mut line = line("", args, paths);
    line[0] = place.bcmr.clone().into();
    line
}

/// Whether the binary knows everything the workload asks of it.
pub fn is_known(workload: &Workload, bcmr: &Path) -> bool {
    if workload.name != "resume" {
        return true;
    }
    let mut command = std::process::Command::new(bcmr);
    command.args(["copy", "--resume", "--checkpoint-size", CHECKPOINT_BYTES, "--help"]);
    command.output().is_ok_and(|out| out.status.success())
}

/// Sizes that matter: nothing, less than a page, a page, more, and some that are files of their own to the engine.
fn size(rng: &mut Rng, n: usize) -> usize {
    match n % 8 {
        0 => 0,
        1 => 1 + rng.below(300),
        2 => 4096,
        3..=6 => 1 + rng.below(20_000),
        _ => 60_000 + rng.below(100_000),
    }
}

fn entry(rng: &mut Rng, path: String, n: usize, old: bool) -> Entry {
    let len = size(rng, n);
    let new = rng.bytes(len);
    let old = old.then(|| {
        // Never the same as the new one, and never nothing.
        let len = 1 + size(rng, n + 3);
        rng.bytes(len)
    });
    // What replaces a file keeps that one's mode.
    let mode = if old.is_some() { 0o644 } else { [0o644, 0o600, 0o755][n % 3] };
    Entry { source: path.clone(), path, old, new: Some(new), mode, by: 0 }
}

/// A tree of small files in a few directories, one of them large, of which some are there in an old version; and
/// bystanders.
fn tree(rng: &mut Rng) -> Vec<Entry> {
    let mut entries = Vec::new();
    // d0 and d1 exist, d2 to d4 are new (one within another); the names in d1 are all new, those in d0 all old.
    for (dir, files) in [("d0", 20), ("d1", 12), ("d2", 20), ("d2/d3", 8), ("d4", 3)] {
        for n in 0..files {
            let mut entry = entry(rng, format!("tree/{dir}/f{n}"), n, dir == "d0");
            if dir == "d4" && n == 2 {
                entry.new = Some(rng.bytes((5 << 20) + 17));
            }
            entries.push(entry);
        }
    }
    for path in ["tree/d0/mine", "tree/d1/mine", "mine"] {
        let old = Some(rng.bytes(5000));
        let (path, source) = (path.to_owned(), String::new());
        entries.push(Entry { path, old, new: None, mode: 0o644, by: 0, source });
    }
    entries
}

/// The same with nothing there before.
fn new_tree(rng: &mut Rng) -> Vec<Entry> {
    let mut entries = tree(rng);
    entries.retain(|e| e.new.is_some());
    for entry in &mut entries {
        entry.old = None;
    }
    entries
}

fn two_files(rng: &mut Rng) -> Vec<Entry> {
    let mut replaced = entry(rng, "replaced".into(), 7, true);
    replaced.by = 1;
    vec![entry(rng, "new".into(), 5, false), replaced]
}

/// Three files, one of them over an old one, and a directory.
fn near(rng: &mut Rng) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (by, name) in ["f0", "f1", "f2", "d/a", "d/b", "d/c"].into_iter().enumerate() {
        let mut entry = entry(rng, format!("to/{name}"), 4 + by, by == 1);
        entry.source = format!("from/{name}");
        // A move takes the mode along.
        entry.mode = 0o644;
        entry.by = by.min(3);
        entries.push(entry);
    }
    let old = Some(rng.bytes(100));
    entries.push(Entry { path: "to/mine".into(), old, new: None, mode: 0o644, by: 0, source: String::new() });
    entries
}

fn big_file(rng: &mut Rng) -> Vec<Entry> {
    let new = Some(rng.bytes((24 << 20) + 4321));
    let old = Some(rng.bytes(70_000));
    vec![Entry { path: "big".into(), old, new, mode: 0o644, by: 0, source: "big".into() }]
}

/// The directory sources are in.
pub fn source_root(workload: &Workload, place: &Place) -> PathBuf {
    match workload.from {
        From::Host => place.host.clone(),
        From::Same => place.disks[0].clone(),
        From::Far => place.disks[1].clone(),
    }
}

/// Makes what is copied.
pub fn prepare_sources(workload: &Workload, entries: &[Entry], place: &Place) -> io::Result<()> {
    let root = source_root(workload, place);
    if workload.from == From::Same {
        std::fs::create_dir_all(place.disks[0].join("to"))?;
    }
    for entry in entries {
        if let Some(new) = &entry.new {
            put(&root.join(&entry.source), new, entry.mode)?;
        }
    }
    Ok(())
}

/// Makes what is at the destination before.
pub fn prepare_olds(entries: &[Entry], place: &Place) -> io::Result<()> {
    for entry in entries {
        if let Some(old) = &entry.old {
            put(&place.disks[0].join(&entry.path), old, 0o644)?;
        }
    }
    Ok(())
}

fn put(path: &Path, data: &[u8], mode: u32) -> io::Result<()> {
    if let Some(above) = path.parent() {
        std::fs::create_dir_all(above)?;
    }
    std::fs::write(path, data)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}
