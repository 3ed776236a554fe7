//! Two sources that become one name, in one directory at once.
//!
//! Must not know why a verb would do so.

#[cfg(test)]
mod proof {
    use crate::disk::model::{DEV, Handle, ME, Model, Rng};
    use crate::disk::{Attributes, Body, Bytes, Disk, Fault, Fill, Job, Place};
    use crate::error::Code;
    use crate::node::Node;
    use crate::policy::{CopyPolicy, Durability, Reflink, Sparse, Verify};
    use crate::receiver::dest::DestDir;
    use crate::receiver::land::land;
    use crate::receiver::plan::tests::policy;
    use crate::receiver::stage;
    use fastcopy::dir::{Dir, NameBuf};
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::path::Path;

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

    /// Lands files of which each holds its own name, in one batch, and says what became of each.
    fn landed(model: &Model, dest: &DestDir<Model>, names: &[&str]) -> Vec<Option<Fault>> {
        let names: Vec<NameBuf> = names.iter().map(|n| name(n)).collect();
        let here = Dir::open(Path::new("/")).unwrap();
        let mut jobs = Vec::new();
        for name in &names {
            let there = if dest.fresh { None } else { model.look(&dest.dir, name.as_name()).unwrap() };
            let body = file(name.bytes());
            jobs.push(Job {
                name: name.as_name(),
                place: Place::Final,
                info: Bytes::info(&body).unwrap(),
                there,
                only_new: dest.fresh,
                body: Body::File(body),
                src: name.as_name(),
                attributes: Attributes::At(&here, name.as_name()),
                file: None,
                staged: false,
                append: None,
                bytes: 0,
                rung: None,
                hash: None,
                fault: None,
                lost: Vec::new(),
            });
        }
        let how = Fill {
            reflink: Reflink::Never,
            sparse: Sparse::Never,
            verify: Verify::Off,
            hash: false,
            threads: 1,
            dev: DEV,
            observe: &|_| true,
        };
        land(model, &mut (), dest, &mut jobs, &how, Durability::Cache, true).unwrap();
        jobs.into_iter().map(|job| job.fault).collect()
    }

    fn content(model: &Model, path: &[&[u8]]) -> Option<String> {
        let image = model.cached();
        image.at(path).map(|node| String::from_utf8_lossy(&node.data).into_owned())
    }

    /// Two that make one directory at the same time: what the first has filled is not taken for what a killed run left.
    #[test]
    fn a_stage_of_this_run_is_not_stale() {
        let model = Model::new();
        let stale = top(&model).enter(&model, name("d").as_name(), &mine()).unwrap();
        assert!(landed(&model, &stale, &["old"])[0].is_none());
        let model = model.killed();
        let above = top(&model);
        let first = above.enter(&model, name("d").as_name(), &mine()).unwrap();
        assert!(first.is_private(), "the twin: what a killed run left is taken away");
        assert!(landed(&model, &first, &["x"])[0].is_none());
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
        let stage = stage::known(name("d").as_name()).unwrap();
        model.publish_dir(&above.dir, stage.as_name(), name("elsewhere").as_name()).unwrap();
        model.make_dir(&above.dir, stage.as_name(), 0o700).unwrap();
        assert!(dest.publish(&model, &above).is_err());
        assert!(dest.take_back(&model, &above).is_err());
        let image = model.cached();
        assert!(image.at(&[b"d"]).is_none() && image.at(&[stage.bytes()]).is_some());
    }

    /// replaced by what is on the medium (R9).
    #[test]
    fn merging_into_what_came_meanwhile_keeps_to_the_policy() {
        let stranger = |model: &Model, above: &Handle| {
            model.make_dir(above, name("d").as_name(), 0o755).unwrap();
            let d = model.open_dir(above, name("d").as_name()).unwrap();
            model.old_file(&d, b"x", b"theirs");
        };
        for only_new in [true, false] {
            let model = Model::new();
            let above = top(&model);
            let dest = above.enter(&model, name("d").as_name(), &mine()).unwrap();
            stranger(&model, &above.dir);
            assert!(landed(&model, &dest, &["x", "y"]).iter().all(Option::is_none));
            dest.publish(&model, &above).unwrap();
            let settled = dest.settle(&model, &above, only_new);
            assert_eq!(settled.is_err(), only_new);
            let want = if only_new { "theirs" } else { "x" };
            assert_eq!(content(&model, &[b"d", b"x"]).as_deref(), Some(want));
            assert_eq!(content(&model, &[b"d", b"y"]).as_deref(), Some("y"));
            for image in model.after_power_cut(&mut Rng(7), 100) {
                let x = image.at(&[b"d", b"x"]).map(|n| n.data.to_vec()).unwrap_or_default();
                assert!(x == b"theirs" || x == b"x", "R9: {x:?}");
            }
        }
    }
}
