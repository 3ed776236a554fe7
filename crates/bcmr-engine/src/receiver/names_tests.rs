//! Sources whose names are those that this program makes for itself, on a disk on which runs are killed.
//!
//! Must not know how such a name is made but by asking for one.

#[cfg(test)]
mod proof {
    use crate::disk::model::{Image, ME, Model, Nature, PLAIN, ROOT, Rng, Trouble};
    use crate::disk::sys::Sys;
    use crate::disk::{Attributes, Body, Bytes, Job, Placement};
    use crate::error::Code;
    use crate::node::Node;
    use crate::policy::CopyPolicy;
    use crate::receiver::dest::{BASE_ENTRIES_MAX, DestDir};
    use crate::receiver::land::land;
    use crate::receiver::plan::tests::policy;
    use crate::stage::{self, Home};
    use fastcopy::dir::{Dir, NameBuf};
    use fastcopy::meta::Info;
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::path::Path;

    /// Of a directory that a person named no more than so many entries are looked at for leftovers; one that is met below
    /// it is looked through.
    #[test]
    fn a_sweep_of_what_was_named_is_bounded() {
        const BEYOND: usize = 300;
        let tmp = tempfile::tempdir().unwrap();
        let open = || Dir::open(tmp.path()).unwrap();
        let home = crate::receiver::land::home_of(&open()).unwrap();
        for _ in 0..BASE_ENTRIES_MAX + BEYOND {
            open_file(&open(), &home.stage().unwrap());
        }
        let left = || {
            let mut count = 0;
            let more = |_: fastcopy::dir::Listed<'_>| {
                count += 1;
                true
            };
            open().list(&mut fastcopy::dir::ListBuffer::new(), more).unwrap();
            count
        };
        let (disk, node) = (Sys::new(), || Node::root(tmp.path()));
        drop(DestDir::existing(&disk, open(), node(), None, &policy()).unwrap());
        assert!((BEYOND..=BEYOND + 2).contains(&left()), "{} are left", left());
        drop(DestDir::existing(&disk, open(), node(), None, &policy()).unwrap());
        assert_eq!(left(), 0, "the next run takes the rest");
    }

    fn open_file(dir: &Dir, name: &NameBuf) {
        drop(dir.create_file(name.as_name(), 0o600).unwrap());
    }

    /// One entry of a source.
    struct Entry {
        name: NameBuf,
        bytes: Vec<u8>,
        file: OwnedFd,
        /// The destination's own leftovers have such names.
        reserved: bool,
    }

    fn name(bytes: &[u8]) -> NameBuf {
        NameBuf::new(bytes).unwrap()
    }

    fn homes(lasting: bool) -> (Home, Vec<Home>) {
        let info = Model::new().cached().info(ROOT);
        let own = Home::of(&info, ROOT, lasting);
        // Of one number and of one birth, and where nothing lasts.
        let others = vec![
            Home::of(&info, 4711, true),
            Home::of(&Info { ino: 4711, ..info }, ROOT, true),
            Home::of(&info, 0, !lasting),
        ];
        (own, others)
    }

    fn drawn(home: &Home, rng: &mut Rng) -> NameBuf {
        let film = name(b"film");
        match rng.below(5) {
            0 => home.part(film.as_name()),
            1 => home.session(film.as_name()),
            2 => home.manifest(film.as_name()),
            3 => home.tree(),
            _ => home.stage(),
        }
        .unwrap()
    }

    fn entries(lasting: bool, rng: &mut Rng) -> Vec<Entry> {
        let (own, others) = homes(lasting);
        let mut names = vec![(name(b"film"), false), (name(b"x"), false), (drawn(&own, rng), true)];
        for other in &others {
            names.push((drawn(other, rng), false));
        }
        names.push((stage::random().unwrap(), false));
        let hash = blake3::hash(b"x").to_hex();
        names.push((name(format!(".bcmr-{}.stage", &hash[..32]).as_bytes()), false));
        names.push((name(b".bcmr-tree.session"), false));
        let mut all = Vec::new();
        for (n, (name, reserved)) in names.into_iter().enumerate() {
            let bytes = vec![n as u8 + 1; 1500 + n];
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            all.push(Entry { name, bytes, file: file.into(), reserved });
        }
        // No order is the right one.
        for n in (1..all.len()).rev() {
            all.swap(n, rng.below(n as u64 + 1) as usize);
        }
        all
    }

    /// Lands all of `entries` in `dest`; how many were refused.
    fn land_all(model: &Model, dest: &DestDir<Model>, entries: &[Entry]) -> Result<usize, String> {
        let here = Dir::open(Path::new("/")).unwrap();
        let mut refused = 0;
        let mut jobs = Vec::new();
        for entry in entries {
            let to = entry.name.as_name();
            if let Err(e) = dest.guard_name(to) {
                assert_eq!(e.code, Code::Refused);
                refused += 1;
                continue;
            }
            let body = entry.file.try_clone().unwrap();
            let info = Bytes::info(&body).unwrap();
            let there = match dest.is_fresh() {
                true => None,
                false => crate::disk::Dirs::look(model, &dest.dir, to).map_err(|e| e.to_string())?,
            };
            let private = dest.is_private();
            let place = if private { Placement::Final } else { Placement::Stage(dest.home.stage().unwrap()) };
            jobs.push(Job::new(to, place, info, there, Body::File(body), Attributes::At(&here, to)));
        }
        land(model, &mut (), dest, &mut jobs, &PLAIN, dest.is_private()).map_err(|e| e.to_string())?;
        match jobs.into_iter().find_map(|j| j.fault) {
            Some(fault) => Err(format!("{fault:?}")),
            None => Ok(refused),
        }
    }

    /// What a copy of a directory with `entries`, and with as many below it, comes to.
    fn run(model: &Model, entries: &[Entry]) -> Result<usize, String> {
        let policy = CopyPolicy { me: ME, ..policy() };
        let said = |e: crate::error::Error| e.to_string();
        let above = DestDir::existing(model, model.root(), Node::root(Path::new("d")), None, &policy)
            .map_err(said)?;
        let refused = land_all(model, &above, entries)?;
        let inner = above.enter(model, name(b"inner").as_name(), &policy).map_err(said)?;
        land_all(model, &inner, entries)?;
        inner.publish(model, &above).map_err(said)?;
        Ok(refused)
    }

    /// R1: whatever is there under the name of a source is that source's, or was there before.
    fn nothing_is_mixed_up(image: &Image, entries: &[Entry], old: &[u8]) -> Result<(), String> {
        for dir in [&[][..], &[&b"inner"[..]]] {
            for entry in entries {
                let path = [dir, &[entry.name.bytes()]].concat();
                match image.at(&path) {
                    Some(node) if *node.data != entry.bytes && *node.data != *old => {
                        return Err(format!("{:?} has {} bytes of something", entry.name, node.data.len()));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// What a later run would take for its own.
    fn litter(image: &Image, lasting: bool) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        for id in image.reachable() {
            let home = Home::of(&image.info(id), id, lasting);
            let names = image.nodes[&id].names.keys();
            found.extend(names.filter(|n| home.role(name(n).as_name()).is_some()).cloned());
        }
        found
    }

    #[test]
    fn sources_called_like_stages_arrive_whole_or_are_refused() {
        let (mut kills, old) = (0, [9u8; 700]);
        for seed in 0..250 {
            let mut rng = Rng(seed);
            let lasting = seed % 3 != 0;
            let about = format!("seed {seed}, lasting {lasting}");
            let entries = entries(lasting, &mut rng);
            let mut model = Model::new();
            model.nature(Nature { forgets: !lasting, ..Nature::default() });
            model.old_file(&model.root(), b"film", &old);
            // Left by a killed run, and called like that by somebody.
            let (own, others) = homes(lasting);
            model.old_file(&model.root(), own.stage().unwrap().bytes(), b"half");
            let theirs: Vec<NameBuf> = others.iter().map(|h| h.stage().unwrap()).collect();
            for name in &theirs {
                model.old_file(&model.root(), name.bytes(), b"theirs");
            }
            for _ in 0..rng.below(4) {
                model.trouble(Trouble { cut_at: Some(1 + rng.below(150)), ..Trouble::default() });
                kills += u64::from(run(&model, &entries).is_err());
                nothing_is_mixed_up(&model.cached(), &entries, &old)
                    .unwrap_or_else(|e| panic!("{about}: {e}"));
                model = model.killed();
            }
            let refused = run(&model, &entries).unwrap_or_else(|e| panic!("{about}: {e}"));
            assert_eq!(refused, entries.iter().filter(|e| e.reserved).count(), "{about}");
            let image = model.cached();
            for entry in &entries {
                let there = image.at(&[entry.name.bytes()]).map(|n| n.data.to_vec());
                let want = (!entry.reserved).then(|| entry.bytes.clone());
                assert_eq!(there, want, "{about}: {:?}", entry.name);
            }
            for name in &theirs {
                assert!(image.at(&[name.bytes()]).is_some(), "{about}: {name:?} was somebody's");
            }
            let left = litter(&image, lasting);
            assert!(left.is_empty(), "{about}: {left:?}");
        }
        assert!(kills > 100, "{kills}");
    }
}
