//! Looks at a file system after a power cut and says which promises it breaks. Knows neither logs nor disks.

use crate::crash::workload::{Entry, Exit0, From, NEIGHBOUR, Place, Workload, source_root};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A name that was there before is gone.
    OldLost,
    /// A replaced name leads to an empty file.
    OldEmpty,
    /// A replaced name leads to something that is neither the old nor the new content.
    OldTorn,
    NewEmpty,
    NewTorn,
    /// A file that the workload did not touch is not what it was.
    Bystander,
    /// Exit 0 said that it is on stable storage.
    NotDurable,
    /// Moved, and whole neither here nor there.
    Lost,
    /// Moved durably, and back at the source.
    Returned,
    /// A name that the workload did not give.
    Stranger,
    /// A stage or session is left although exit 0 said that all is done.
    Litter,
    RerunExit,
    RerunWrong,
}

impl Kind {
    pub fn word(self) -> &'static str {
        match self {
            Kind::OldLost => "old-lost",
            Kind::OldEmpty => "old-empty",
            Kind::OldTorn => "old-torn",
            Kind::NewEmpty => "new-empty",
            Kind::NewTorn => "new-torn",
            Kind::Bystander => "bystander-changed",
            Kind::NotDurable => "not-durable",
            Kind::Lost => "lost",
            Kind::Returned => "returned",
            Kind::Stranger => "stranger",
            Kind::Litter => "litter",
            Kind::RerunExit => "rerun-failed",
            Kind::RerunWrong => "rerun-wrong",
        }
    }

    /// Whether it breaks a promise, or is only counted.
    pub fn is_promised(self, workload: &Workload) -> bool {
        match self {
            Kind::OldLost | Kind::OldEmpty | Kind::OldTorn | Kind::NewEmpty | Kind::NewTorn => {
                workload.atomic
            }
            _ => true,
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    pub kind: Kind,
    pub path: String,
    pub detail: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} ({})", self.kind.word(), self.path, self.detail)
    }
}

/// What a name leads to.
enum Is {
    Absent,
    Old,
    New,
    Empty,
    Else(String),
}

fn look(path: &Path, entry: &Entry) -> Is {
    let found = match std::fs::symlink_metadata(path) {
        Ok(meta) if !meta.is_file() => return Is::Else("not a regular file".to_owned()),
        Ok(_) => std::fs::read(path),
        Err(e) => Err(e),
    };
    match found {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Is::Absent,
        Err(e) => Is::Else(format!("unreadable: {e}")),
        Ok(data) if entry.new.as_ref() == Some(&data) => Is::New,
        Ok(data) if entry.old.as_ref() == Some(&data) => Is::Old,
        Ok(data) if data.is_empty() => Is::Empty,
        Ok(data) => Is::Else(difference(&data, entry)),
    }
}

/// Where it begins to differ from what is closer.
fn difference(data: &[u8], entry: &Entry) -> String {
    let same = |other: &Option<Vec<u8>>| {
        other.as_ref().map_or(0, |other| data.iter().zip(other).take_while(|(a, b)| a == b).count())
    };
    let (old, new) = (same(&entry.old), same(&entry.new));
    let zeros = data.iter().filter(|b| **b == 0).count();
    format!("{} bytes, equal to the new one for {new}, to the old one for {old}; {zeros} are 0", data.len())
}

/// Everything that is wrong at a moment when the commands with `done` had ended with exit 0.
pub fn judge(workload: &Workload, entries: &[Entry], place: &Place, done: &[bool]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let sources = source_root(workload, place);
    for entry in entries {
        let mut say = |kind, detail: &str| {
            faults.push(Fault { kind, path: entry.path.clone(), detail: detail.to_owned() });
        };
        let path = place.disks[0].join(&entry.path);
        let is = look(&path, entry);
        let said = workload.exit0 == Exit0::Durable && done.get(entry.by) == Some(&true);
        if entry.new.is_none() {
            match is {
                Is::Old => {}
                Is::Absent => say(Kind::Bystander, "gone"),
                Is::Else(how) => say(Kind::Bystander, &how),
                Is::New | Is::Empty => say(Kind::Bystander, "other content"),
            }
            continue;
        }
        let replaces = entry.old.is_some();
        match &is {
            Is::Absent if replaces => say(Kind::OldLost, "absent"),
            Is::Empty if replaces => say(Kind::OldEmpty, "empty"),
            Is::Empty => say(Kind::NewEmpty, "empty"),
            Is::Else(how) => say(if replaces { Kind::OldTorn } else { Kind::NewTorn }, how),
            Is::Absent | Is::Old | Is::New => {}
        }
        let new = matches!(is, Is::New);
        if said && !new {
            let what = match is {
                Is::Absent => "absent",
                Is::Old => "still the old one",
                _ => "neither old nor new",
            };
            say(Kind::NotDurable, what);
        }
        if said && new {
            match std::fs::metadata(&path).map(|m| m.permissions().mode() & 0o7777) {
                Ok(mode) if mode == entry.mode => {}
                Ok(mode) => say(Kind::NotDurable, &format!("mode {mode:o} instead of {:o}", entry.mode)),
                Err(e) => say(Kind::NotDurable, &format!("mode: {e}")),
            }
        }
        if workload.from != From::Host {
            let there = matches!(look(&sources.join(&entry.source), entry), Is::New);
            if !new && !there {
                say(Kind::Lost, "whole neither at the source nor at the destination");
            }
            if workload.from == From::Same && said && there {
                say(Kind::Returned, "at the source again");
            }
        }
    }
    let all_done = workload.exit0 == Exit0::Durable && done.iter().all(|d| *d);
    strangers(workload, entries, place, all_done, false, &mut faults);
    faults
}

/// Names that are neither wanted nor of a run under way. `again`: this is after a second run.
fn strangers(
    workload: &Workload,
    entries: &[Entry],
    place: &Place,
    all_done: bool,
    again: bool,
    faults: &mut Vec<Fault>,
) {
    let mut known: BTreeSet<PathBuf> = BTreeSet::new();
    for entry in entries {
        known.extend(Path::new(&entry.path).ancestors().map(Path::to_path_buf));
        if workload.from == From::Same {
            known.extend(Path::new(&entry.source).ancestors().map(Path::to_path_buf));
        }
    }
    let root = &place.disks[0];
    let mut stack = vec![PathBuf::new()];
    while let Some(dir) = stack.pop() {
        let Ok(list) = std::fs::read_dir(root.join(&dir)) else {
            faults.push(Fault {
                kind: Kind::Stranger,
                path: dir.display().to_string(),
                detail: "a directory that cannot be read".to_owned(),
            });
            continue;
        };
        for item in list {
            let mut say = |kind, path: &Path, detail: String| {
                faults.push(Fault { kind, path: path.display().to_string(), detail });
            };
            let item = match item {
                Ok(item) => item,
                Err(e) => {
                    say(Kind::Stranger, &dir, format!("a directory that cannot be read: {e}"));
                    break;
                }
            };
            let name = item.file_name();
            let path = dir.join(&name);
            let ours = name.as_encoded_bytes().starts_with(b".bcmr-");
            if dir.as_os_str().is_empty() && (name == NEIGHBOUR || name == "lost+found") {
                continue;
            }
            if ours {
                // That a session is gone is not synced: it is harmless, and the next run removes it.
                let session = !again && name.as_encoded_bytes().ends_with(b".session");
                if all_done && !session {
                    say(Kind::Litter, &path, "left after exit 0".to_owned());
                }
                continue;
            }
            if !known.contains(&path) {
                say(Kind::Stranger, &path, "the workload did not give this name".to_owned());
            } else if item.file_type().is_ok_and(|t| t.is_dir()) {
                stack.push(path);
            }
        }
    }
}

/// What is wrong after the same was done again and ended with exit 0: everything must be there, and nothing else.
pub fn judge_rerun(workload: &Workload, entries: &[Entry], place: &Place) -> Vec<Fault> {
    let mut faults = Vec::new();
    for entry in entries {
        let is = look(&place.disks[0].join(&entry.path), entry);
        if !matches!((&is, &entry.new), (Is::New, Some(_)) | (Is::Old, None)) {
            let detail = match is {
                Is::Absent => "absent".to_owned(),
                Is::Else(how) => how,
                Is::Old => "still the old one".to_owned(),
                Is::New | Is::Empty => "other content".to_owned(),
            };
            faults.push(Fault { kind: Kind::RerunWrong, path: entry.path.clone(), detail });
        }
    }
    strangers(workload, entries, place, true, true, &mut faults);
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::state::Rng;
    use crate::crash::workload::{WORKLOADS, prepare_olds, prepare_sources};

    struct Scene {
        _dir: tempfile::TempDir,
        place: Place,
        entries: Vec<Entry>,
        workload: &'static Workload,
    }

    fn scene(name: &str) -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let sub = |name: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir(&path).unwrap();
            path
        };
        let place = Place { disks: [sub("m0"), sub("m1")], host: sub("host"), bcmr: PathBuf::new() };
        let workload = WORKLOADS.iter().find(|w| w.name == name).unwrap();
        let entries = (workload.entries)(&mut Rng::new(3));
        prepare_sources(workload, &entries, &place).unwrap();
        prepare_olds(&entries, &place).unwrap();
        Scene { _dir: dir, place, entries, workload }
    }

    impl Scene {
        fn kinds(&self, done: &[bool]) -> Vec<Kind> {
            let mut kinds: Vec<Kind> =
                judge(self.workload, &self.entries, &self.place, done).iter().map(|f| f.kind).collect();
            kinds.dedup();
            kinds
        }
        fn finish(&self) {
            for entry in &self.entries {
                let path = self.place.disks[0].join(&entry.path);
                if let Some(new) = &entry.new {
                    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                    std::fs::write(&path, new).unwrap();
                    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(entry.mode)).unwrap();
                }
            }
        }
        fn put(&self, name: &str, data: &[u8]) {
            std::fs::write(self.place.disks[0].join(name), data).unwrap();
        }
    }

    #[test]
    fn untouched_and_finished_are_both_right() {
        for name in ["tree-sync", "file-sync", "move-far-sync"] {
            let scene = scene(name);
            assert_eq!(scene.kinds(&[false, false]), [], "{name}");
            scene.finish();
            assert_eq!(scene.kinds(&[true, true]), [], "{name}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let scene = scene("file-sync");
        scene.put("new", b"");
        assert_eq!(scene.kinds(&[false, false]), [Kind::NewEmpty]);
        scene.put("new", b"half");
        assert_eq!(scene.kinds(&[false, false]), [Kind::NewTorn]);
        assert_eq!(scene.kinds(&[true, false]), [Kind::NewTorn, Kind::NotDurable]);
        scene.finish();
        scene.put("replaced", b"");
        assert_eq!(scene.kinds(&[true, false]), [Kind::OldEmpty]);
        scene.put("replaced", b"half");
        assert_eq!(scene.kinds(&[true, false]), [Kind::OldTorn]);
        std::fs::remove_file(scene.place.disks[0].join("replaced")).unwrap();
        assert_eq!(scene.kinds(&[true, false]), [Kind::OldLost]);
    }

    #[test]
    fn the_mode_counts_as_content_after_exit_0() {
        let scene = scene("file-sync");
        scene.finish();
        let path = scene.place.disks[0].join("new");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
        assert_eq!(scene.kinds(&[false, false]), []);
        assert_eq!(scene.kinds(&[true, true]), [Kind::NotDurable]);
    }

    #[test]
    fn stages_are_forgiven_until_exit_0_and_strangers_never() {
        let scene = scene("file-sync");
        scene.finish();
        scene.put(".bcmr-12.stage", b"x");
        assert_eq!(scene.kinds(&[true, false]), []);
        assert_eq!(scene.kinds(&[true, true]), [Kind::Litter]);
        assert_eq!(judge_rerun(scene.workload, &scene.entries, &scene.place).len(), 1);
        std::fs::remove_file(scene.place.disks[0].join(".bcmr-12.stage")).unwrap();
        assert_eq!(judge_rerun(scene.workload, &scene.entries, &scene.place), []);
        scene.put(".bcmr-12.session", b"x");
        assert_eq!(scene.kinds(&[true, true]), []);
        assert_eq!(judge_rerun(scene.workload, &scene.entries, &scene.place).len(), 1);
        std::fs::remove_file(scene.place.disks[0].join(".bcmr-12.session")).unwrap();
        scene.put("who", b"x");
        assert_eq!(scene.kinds(&[false, false]), [Kind::Stranger]);
    }

    #[test]
    fn a_move_loses_what_is_whole_nowhere() {
        let scene = scene("move-far");
        let file = "tree/d0/f3";
        std::fs::remove_file(scene.place.disks[1].join(file)).unwrap();
        assert_eq!(scene.kinds(&[false]), [Kind::Lost]);
        scene.finish();
        assert_eq!(scene.kinds(&[true]), []);
    }

    #[test]
    fn a_bystander_stays_as_it_is() {
        let scene = scene("tree-sync");
        scene.put("mine", b"other");
        assert_eq!(scene.kinds(&[false]), [Kind::Bystander]);
    }
}
