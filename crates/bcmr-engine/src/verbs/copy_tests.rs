//! A copy into a directory that was there, while another process makes names in it.
//!
//! Must not depend on when that process does so: it acts when the first file is told to have landed.

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look from outside")]
mod proof {
    use crate::event::{Action, Cancel, Event, Front, Progress, Question, Summary, Watch};
    use crate::policy::{Collide, CopyPolicy, CopyRequest, Target};
    use std::path::{Path, PathBuf};
    use std::sync::Mutex;

    /// More than land together.
    const FILES: usize = 100;

    /// Makes the names that the destination lacks, once the first file has landed there.
    struct Rival<'a> {
        names: &'a [String],
        dst: &'a Path,
        made: Mutex<Vec<PathBuf>>,
        /// What is said when the user is asked.
        yes: bool,
        asked: Mutex<Vec<PathBuf>>,
    }

    impl Front for Rival<'_> {
        fn event(&self, event: Event) {
            let mut made = self.made.lock().unwrap();
            if matches!(event, Event::Item { action: Action::Copied, .. }) && made.is_empty() {
                for path in self.names.iter().map(|name| self.dst.join(name)) {
                    if std::fs::symlink_metadata(&path).is_err() {
                        std::fs::write(&path, "theirs").unwrap();
                        made.push(path);
                    }
                }
            }
        }
        fn ask(&self, question: Question) -> bool {
            if let Question::Replace(path) = question {
                self.asked.lock().unwrap().push(path);
            }
            self.yes
        }
    }

    fn names() -> Vec<String> {
        (0..FILES).map(|n| format!("f{n}")).collect()
    }

    /// Copies [`FILES`] files; returns what came of it, what was made meanwhile and what was asked about.
    fn run(tmp: &Path, collide: Collide, yes: bool) -> (Summary, Vec<PathBuf>, Vec<PathBuf>) {
        let (src, dst, names) = (tmp.join("src"), tmp.join("dst"), names());
        std::fs::create_dir(&src).unwrap();
        std::fs::create_dir(&dst).unwrap();
        for name in &names {
            std::fs::write(src.join(name), format!("ours {name}")).unwrap();
        }
        let (made, asked) = (Mutex::default(), Mutex::default());
        let rival = Rival { names: &names, dst: &dst, made, yes, asked };
        let (progress, cancel) = (Progress::default(), Cancel::new());
        let watch = Watch { front: &rival, progress: &progress, cancel: &cancel, items: true };
        let me = owner_of(&src);
        let policy = CopyPolicy { recursive: true, collide, ..CopyPolicy::cp(1, me, 0o022) };
        let target = Target::Exactly(dst.clone());
        let request = CopyRequest { sources: vec![src.clone()], names: None, target, manifest: None, policy };
        let summary = crate::verbs::copy(request, watch).unwrap();
        let left = std::fs::read_dir(&dst).unwrap().count();
        assert_eq!(left, FILES, "nothing is left that was not asked for");
        (summary, rival.made.into_inner().unwrap(), rival.asked.into_inner().unwrap())
    }

    /// Who owns what is made here.
    fn owner_of(path: &Path) -> u32 {
        std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(path).unwrap())
    }

    fn content(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }

    /// What the policy says of names that are there holds for those that came after the directory was listed.
    #[test]
    fn names_that_come_meanwhile_are_treated_as_the_policy_says() {
        for (collide, yes, stays) in [
            (Collide::Replace, false, false),
            (Collide::Keep, false, true),
            (Collide::Ask, false, true),
            (Collide::Ask, true, false),
        ] {
            let about = format!("{collide:?} {yes}");
            let tmp = tempfile::tempdir().unwrap();
            let (summary, made, asked) = run(tmp.path(), collide, yes);
            assert!((1..FILES).contains(&made.len()), "{about}: {} came", made.len());
            assert_eq!(summary.failed, 0, "{about}: {:?}", summary.codes);
            let theirs = made.iter().filter(|path| content(path) == "theirs").count();
            assert_eq!(theirs, if stays { made.len() } else { 0 }, "{about}");
            assert_eq!(summary.kept, theirs as u64, "{about}");
            assert_eq!(summary.files, (FILES - theirs) as u64, "{about}");
            assert_eq!(asked.len(), if collide == Collide::Ask { made.len() } else { 0 }, "{about}");
            for name in names() {
                let path = tmp.path().join("dst").join(&name);
                let ours = format!("ours {name}");
                assert!(content(&path) == ours || made.contains(&path), "{about}: {name}");
            }
        }
    }
}
