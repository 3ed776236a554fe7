//! Two sources that become one name: on a disk that folds case, and in one directory at once.
//!
//! Must not know why a verb would do so.

#[cfg(test)]
mod proof {
    use crate::disk::model::{Handle, ME, Model, Nature, PLAIN, Rng, Trouble};
    use crate::disk::{Attributes, Body, Bytes, Dirs, Fault, Job, Placement};
    use crate::error::Code;
    use crate::node::Node;
    use crate::policy::CopyPolicy;
    use crate::receiver::dest::{Clash, DestDir, MadeBy};
    use crate::receiver::land::{land, outdated};
    use crate::receiver::plan::tests::policy;
    use fastcopy::dir::{Dir, NameBuf};
    use fastcopy::errno;
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::path::Path;

    const FOLDS: Nature = Nature {
        folds: true,
        renumbers: false,
        only_plain_renames: false,
        forgets: false,
        names_all: false,
        unnamed_wait: false,
        only_cached: false,
    };

    fn name(text: &str) -> NameBuf {
        NameBuf::new(text.as_bytes()).unwrap()
    }

    fn mine() -> CopyPolicy {
        CopyPolicy { me: ME, ..policy() }
    }

    fn top(model: &Model) -> DestDir<Model> {
        DestDir::existing(model, model.root(), Node::root(Path::new("dst")), None, &mine()).unwrap()
    }

    fn file(bytes: &[u8]) -> OwnedFd {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.into()
    }

    /// Which way files go into a directory.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Way {
        /// Under their own names, in one that has none yet.
        Final,
        /// Under a stage's.
        Stage,
        /// The same without a look, as a listing did not have the name.
        Unlooked,
        /// Under none until it is whole, and without a look.
        Unnamed,
    }

    /// Lands files of which each holds its own name, in one batch, and says what became of each.
    fn landed(model: &Model, dest: &DestDir<Model>, names: &[&str], way: Way) -> Vec<Option<Fault>> {
        let names: Vec<NameBuf> = names.iter().map(|n| name(n)).collect();
        let here = Dir::open(Path::new("/")).unwrap();
        let mut jobs = Vec::new();
        for name in &names {
            let unlooked = matches!(way, Way::Unlooked | Way::Unnamed);
            let there = if dest.is_fresh() || unlooked {
                None
            } else {
                model.look(&dest.dir, name.as_name()).unwrap()
            };
            let body = file(name.bytes());
            let (name, info) = (name.as_name(), Bytes::info(&body).unwrap());
            let place = match way {
                Way::Final => Placement::Final,
                Way::Stage | Way::Unlooked => Placement::Stage(dest.home.stage().unwrap()),
                Way::Unnamed => Placement::Unnamed,
            };
            let job = Job::new(name, place, info, there, Body::File(body), Attributes::At(&here, name));
            jobs.push(Job { is_unlooked: unlooked, ..job });
        }
        land(model, &mut (), dest, &mut jobs, &PLAIN, way == Way::Final).unwrap();
        let is_unlooked = matches!(way, Way::Unlooked | Way::Unnamed);
        assert!(jobs.iter().all(|job| outdated(job).is_none() || is_unlooked));
        jobs.into_iter().map(|job| job.fault).collect()
    }

    fn refused(faults: &[Option<Fault>]) -> Vec<bool> {
        faults.iter().map(|f| f.as_ref().is_some_and(|f| f.code == Code::Refused)).collect()
    }

    fn content(model: &Model, path: &[&[u8]]) -> Option<String> {
        let image = model.cached();
        image.at(path).map(|node| String::from_utf8_lossy(&node.data).into_owned())
    }

    /// No more than one of two names that are one lands, whether something was there or not, in one batch or two.
    #[test]
    fn what_has_just_landed_is_not_replaced() {
        for n in 0..16 {
            let (folds, was_there, batches, renumbers) =
                (n & 1 != 0, n & 2 != 0, 1 + (n >> 2 & 1), n & 8 != 0);
            let about =
                format!("folds {folds}, was there {was_there}, batches {batches}, renumbers {renumbers}");
            let model = Model::new();
            if was_there {
                model.old_file(&model.root(), b"Makefile", b"old");
            }
            model.nature(Nature { folds, renumbers, ..Nature::default() });
            let dest = top(&model);
            let faults = match batches {
                1 => landed(&model, &dest, &["makefile", "Makefile", "other"], Way::Stage),
                _ => ["makefile", "Makefile", "other"]
                    .iter()
                    .flat_map(|n| landed(&model, &dest, &[n], Way::Stage))
                    .collect(),
            };
            assert_eq!(refused(&faults), [false, folds, false], "{about}: {faults:?}");
            assert_eq!(faults.iter().filter(|f| f.is_some()).count(), usize::from(folds), "{about}");
            let stored: &[u8] = if was_there && folds { b"Makefile" } else { b"makefile" };
            assert_eq!(content(&model, &[stored]).as_deref(), Some("makefile"), "{about}");
            assert_eq!(content(&model, &[b"other"]).as_deref(), Some("other"), "{about}");
            if !folds {
                assert_eq!(content(&model, &[b"Makefile"]).as_deref(), Some("Makefile"), "{about}");
            }
            let litter: Vec<_> =
                model.cached().all_names().into_iter().filter(|n| n.ends_with(b".stage")).collect();
            assert!(litter.is_empty(), "{about}: {litter:?}");
        }
    }

    fn errnos(faults: &[Option<Fault>]) -> Vec<Option<i32>> {
        let errno = |f: &Fault| f.source.as_ref().and_then(std::io::Error::raw_os_error);
        faults.iter().map(|f| f.as_ref().and_then(errno)).collect()
    }

    /// What was not looked for replaces nothing: neither what another process has put there since the listing, nor what
    /// this run has under a name that is the same there. The next look finds it.
    #[test]
    fn what_came_since_the_listing_stays() {
        for n in 0..8 {
            let (folds, renumbers) = (n & 1 != 0, n & 4 != 0);
            let way = if n & 2 != 0 { Way::Unlooked } else { Way::Unnamed };
            let model = Model::new();
            model.nature(Nature { renumbers, ..Nature::default() });
            let dest = top(&model);
            assert!(dest.held.is_empty() && dest.held.lacks(name("a").as_name()));
            model.old_file(&model.root(), b"a", b"theirs");
            model.nature(Nature { folds, renumbers, ..Nature::default() });
            let faults = landed(&model, &dest, &["a", "makefile", "Makefile"], way);
            let taken = Some(errno::EEXIST);
            assert_eq!(errnos(&faults), [taken, None, taken.filter(|_| folds)], "{faults:?}");
            assert_eq!(content(&model, &[b"a"]).as_deref(), Some("theirs"));
            assert_eq!(content(&model, &[b"makefile"]).as_deref(), Some("makefile"));
            let faults = landed(&model, &dest, &["a", "Makefile"], Way::Stage);
            assert_eq!(refused(&faults), [false, folds], "{faults:?}");
            assert_eq!(content(&model, &[b"a"]).as_deref(), Some("a"), "the twin: once it was looked at");
            assert_eq!(content(&model, &[b"makefile"]).as_deref(), Some("makefile"));
            assert!(!model.cached().all_names().into_iter().any(|n| n.ends_with(b".stage")));
        }
    }

    /// Where no rename leaves alone what is there, nothing lands without a look.
    #[test]
    fn without_such_renames_everything_is_looked_for() {
        let model = Model::new();
        model.nature(Nature { only_plain_renames: true, ..Nature::default() });
        let dest = top(&model);
        let faults = landed(&model, &dest, &["a"], Way::Unlooked);
        assert_eq!(errnos(&faults), [Some(errno::EINVAL)]);
        assert_eq!(content(&model, &[b"a"]), None);
        assert!(landed(&model, &dest, &["a"], Way::Stage)[0].is_none());
        // The twin: what has no name yet is given its first one, which replaces nothing anywhere.
        assert!(landed(&model, &dest, &["b"], Way::Unnamed)[0].is_none());
        model.nature(Nature { names_all: true, ..Nature::default() });
        let faults = landed(&model, &dest, &["c"], Way::Unnamed);
        assert_eq!(errnos(&faults), [Some(errno::EOPNOTSUPP)]);
        assert_eq!(content(&model, &[b"c"]), None);
    }

    /// What never got its name is gone with the run.
    #[test]
    fn a_file_without_a_name_leaves_nothing() {
        for cut in 1.. {
            let model = Model::new();
            let dest = top(&model);
            model.trouble(Trouble { cut_at: Some(model.steps() + cut), ..Trouble::default() });
            let faults = landed(&model, &dest, &["a"], Way::Unnamed);
            let names = model.cached().all_names();
            assert!(names.is_empty() || names.iter().eq([b"a"]), "{cut}: {names:?}");
            if let Some(a) = content(&model, &[b"a"]) {
                assert_eq!(a, "a", "{cut}");
            }
            if faults[0].is_none() {
                assert!(cut > 5, "only {cut} steps");
                break;
            }
        }
    }

    /// Where workers wait for each other a run of many files without names makes them apart. That leaves nothing either: what a
    /// killed run had not taken away the next one finds.
    #[test]
    fn files_made_apart_leave_nothing() {
        let names: Vec<String> = (0..300).map(|n| n.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let run = |model: &Model| -> usize {
            let dest = top(model);
            let batches = names.chunks(50).map(|some| landed(model, &dest, some, Way::Unnamed));
            batches.flatten().filter(Option::is_none).count()
        };
        let waiting = || {
            let model = Model::new();
            model.nature(Nature { unnamed_wait: true, ..Nature::default() });
            model
        };
        let (apart, plain) = (waiting(), Model::new());
        assert_eq!([run(&apart), run(&plain)], [300, 300]);
        assert_eq!(apart.cached().all_names().len(), 300);
        // One directory is made, opened and removed in the middle of the run, and a file is made in it to see whether it can.
        assert_eq!(apart.steps(), plain.steps() + 4);
        let mut left = 0;
        let first = plain.steps() / 6;
        for cut in 2 * first - 10..2 * first + 20 {
            let model = waiting();
            model.trouble(Trouble { cut_at: Some(cut), ..Trouble::default() });
            run(&model);
            let is_file = |name: &&Vec<u8>| names.iter().any(|n| n.as_bytes() == &name[..]);
            let all_are_files = |model: &Model| model.cached().all_names().iter().all(|name| is_file(&name));
            left += u64::from(!all_are_files(&model));
            let model = model.killed();
            drop(top(&model));
            assert!(all_are_files(&model), "{cut}: {:?}", model.cached().all_names());
        }
        assert_eq!(left, 2, "killed before it is opened and before it is removed");
    }

    /// Names that were there when the directory was opened are looked for, also those of directories.
    #[test]
    fn what_was_listed_is_known() {
        let model = Model::new();
        model.old_file(&model.root(), b"a", b"old");
        model.make_dir(&model.root(), name("d").as_name(), 0o755).unwrap();
        let dest = top(&model);
        let lacks = |n: &str| dest.held.lacks(name(n).as_name());
        assert_eq!(["a", "d", "b"].map(lacks), [false, false, true]);
        // Without the lock nothing is swept, and nothing listed.
        assert!(!top(&model).held.lacks(name("b").as_name()));
    }

    /// The same name once more is the same place meant twice, as in a list of names.
    #[test]
    fn the_same_name_again_is_replaced() {
        let model = Model::new();
        let dest = top(&model);
        for _ in 0..2 {
            assert!(landed(&model, &dest, &["a"], Way::Stage)[0].is_none());
        }
    }

    /// Another run takes away what this one has put there, and its number goes to something else.
    #[test]
    fn a_number_that_is_given_again_is_another_file() {
        let model = Model::new();
        let dest = top(&model);
        assert!(landed(&model, &dest, &["x"], Way::Stage)[0].is_none());
        let number = |n: &[u8]| model.cached().at(&[n]).unwrap().number;
        let was = number(b"x");
        model.remove_file(&dest.dir, name("x").as_name()).unwrap();
        model.old_file(&dest.dir, b"y", b"theirs");
        assert_eq!(number(b"y"), was);
        let faults = landed(&model, &dest, &["y"], Way::Stage);
        assert!(faults[0].is_none(), "{faults:?}");
        assert_eq!(content(&model, &[b"y"]).as_deref(), Some("y"));
    }

    /// In a directory of this run's own, where nothing is looked for: small files and staged ones, also where renames
    /// cannot leave alone what is there.
    #[test]
    fn a_fresh_directory_keeps_the_first_of_two_names() {
        for (folds, only_plain_renames) in [(true, false), (true, true), (false, false), (false, true)] {
            for (first, second) in
                [(Way::Stage, Way::Stage), (Way::Stage, Way::Final), (Way::Final, Way::Stage)]
            {
                let model = Model::new();
                model.nature(Nature { folds, ..Nature::default() });
                let above = top(&model);
                let dest = above.enter(&model, name("d").as_name(), &mine()).unwrap();
                model.nature(Nature { folds, only_plain_renames, ..Nature::default() });
                let mut faults = landed(&model, &dest, &["makefile"], first);
                faults.extend(landed(&model, &dest, &["Makefile"], second));
                assert_eq!(refused(&faults), [false, folds], "{faults:?}");
                assert!(folds || faults.iter().all(Option::is_none), "{faults:?}");
                model.nature(Nature { folds, ..Nature::default() });
                dest.publish(&model, &above).unwrap();
                assert_eq!(content(&model, &[b"d", b"makefile"]).as_deref(), Some("makefile"));
                assert_eq!(content(&model, &[b"d", b"Makefile"]).is_some(), !folds);
            }
        }
    }

    /// Directories whose names are one are not merged behind anybody's back, whichever has its name first.
    #[test]
    fn directories_of_two_names_that_are_one_are_not_merged() {
        for (at_once, renumbers) in [(true, false), (true, true), (false, false), (false, true)] {
            let model = Model::new();
            model.nature(Nature { renumbers, ..FOLDS });
            let above = top(&model);
            let enter = |n: &str| above.enter(&model, name(n).as_name(), &mine());
            let first = enter("D").unwrap();
            assert!(landed(&model, &first, &["x"], Way::Final)[0].is_none());
            if at_once {
                let second = enter("d").unwrap();
                assert!(landed(&model, &second, &["X"], Way::Final)[0].is_none());
                first.publish(&model, &above).unwrap();
                let e = second.publish(&model, &above).unwrap_err();
                assert_eq!(e.code, Code::Refused, "{e}");
                assert!(second.is_poisoned() && second.take_back(&model, &above).is_err());
            } else {
                first.publish(&model, &above).unwrap();
                let e = enter("d").err().unwrap();
                assert_eq!(e.code, Code::Refused, "{e}");
                // The twin: the same name again is merged, as sources of one name are.
                assert!(enter("D").is_ok());
            }
            assert_eq!(content(&model, &[b"D", b"x"]).as_deref(), Some("x"));
            assert_eq!(model.cached().all_names().len(), 2, "{:?}", model.cached().all_names());
        }
    }

    /// The twin: names that are two, of which one was there, where numbers say nothing.
    #[test]
    fn directories_of_two_names_that_are_two_are_both_filled() {
        let model = Model::new();
        model.nature(Nature { renumbers: true, ..Nature::default() });
        model.make_dir(&model.root(), name("d").as_name(), 0o755).unwrap();
        let above = top(&model);
        let enter = |n: &str| above.enter(&model, name(n).as_name(), &mine()).unwrap();
        let new = enter("D");
        assert!(enter("d").made_by == MadeBy::Others, "while the other has no name yet");
        new.publish(&model, &above).unwrap();
        assert!(enter("d").made_by == MadeBy::Others && enter("D").made_by == MadeBy::Others);
    }

    /// Two that make one directory at the same time: what the first has filled is not taken for what a killed run left.
    #[test]
    fn a_stage_of_this_run_is_not_stale() {
        let model = Model::new();
        let stale = top(&model).enter(&model, name("d").as_name(), &mine()).unwrap();
        assert!(landed(&model, &stale, &["old"], Way::Final)[0].is_none());
        let model = model.killed();
        let above = top(&model);
        let first = above.enter(&model, name("d").as_name(), &mine()).unwrap();
        assert!(first.is_private(), "the twin: what a killed run left is taken away");
        assert!(landed(&model, &first, &["x"], Way::Final)[0].is_none());
        let e = above.share().enter(&model, name("d").as_name(), &mine()).err().unwrap();
        assert_eq!(e.code, Code::Refused, "{e}");
        first.publish(&model, &above).unwrap();
        assert_eq!(content(&model, &[b"d", b"x"]).as_deref(), Some("x"));
        assert_eq!(content(&model, &[b"d", b"old"]), None);
    }

    /// Something else under the stage's name never gets the final one, nor is it removed.
    #[test]
    fn only_what_was_filled_is_published() {
        let model = Model::new();
        let above = top(&model);
        let dest = above.enter(&model, name("d").as_name(), &mine()).unwrap();
        let stage = above.root.stage_of(above.info.id(), name("d").as_name()).unwrap();
        model.publish_dir(&above.dir, stage.as_name(), name("elsewhere").as_name()).unwrap();
        model.make_dir(&above.dir, stage.as_name(), 0o700).unwrap();
        assert!(dest.publish(&model, &above).is_err());
        assert!(dest.take_back(&model, &above).is_err());
        let image = model.cached();
        assert!(image.at(&[b"d"]).is_none() && image.at(&[stage.bytes()]).is_some());
    }

    /// The directory's name was taken meanwhile: what is there stays where only new names were asked for, or no merging by a move;
    /// else it is replaced by what is on stable storage (R9).
    #[test]
    fn merging_into_what_came_meanwhile_keeps_to_the_policy() {
        let stranger = |model: &Model, above: &Handle| {
            model.make_dir(above, name("d").as_name(), 0o755).unwrap();
            let d = model.open_dir(above, name("d").as_name()).unwrap();
            model.old_file(&d, b"x", b"theirs");
        };
        for clash in [Clash::MergesNew, Clash::Merges, Clash::Refused] {
            let model = Model::new();
            let above = top(&model);
            let dest = above.enter(&model, name("d").as_name(), &mine()).unwrap();
            stranger(&model, &above.dir);
            assert!(landed(&model, &dest, &["x", "y"], Way::Final).iter().all(Option::is_none));
            dest.publish(&model, &above).unwrap();
            let settled = dest.settle(&model, &above, clash);
            assert_eq!(settled.is_err(), clash != Clash::Merges);
            let want = if clash == Clash::Merges { "x" } else { "theirs" };
            assert_eq!(content(&model, &[b"d", b"x"]).as_deref(), Some(want));
            let moved = (clash != Clash::Refused).then_some("y");
            assert_eq!(content(&model, &[b"d", b"y"]).as_deref(), moved);
            for image in model.after_power_cut(&mut Rng(7), 100) {
                let x = image.at(&[b"d", b"x"]).map(|n| n.data.to_vec()).unwrap_or_default();
                assert!(x == b"theirs" || x == b"x", "R9: {x:?}");
            }
        }
    }
}
