//! The proof of `docs/durability.md` on the model disk: every step is the last one, every state that may come back is
//! looked at and gone on from, every call fails once, and without any one of the syncs the proof fails.
//!
//! Must not run anything but what the verbs run; what they do around it is repeated here in a few lines.

#[cfg(test)]
mod proof {
    use crate::blocks::BLOCK_BYTES;
    use crate::disk::model::{Asked, Image, Lie, ME, Model, Nature, PLAIN, ROOT, Rng, Trouble, What};
    use crate::disk::{Attributes, Body, Bytes, Dirs, Files, Fill, Job, Placement};
    use crate::error::Code;
    use crate::node::Node;
    use crate::policy::{CopyPolicy, Durability, Resume, Verify};
    use crate::receiver::dest::DestDir;
    use crate::receiver::land::{land, land_resumable};
    use crate::receiver::plan::tests::policy;
    use crate::receiver::resumable::{self, Holes, Want};
    use crate::receiver::resume::{Start, decide};
    use crate::receiver::session;
    use crate::stage::{Home, Role};
    use fastcopy::dir::{Dir, Name, NameBuf};
    use fastcopy::errno;
    use fastcopy::meta::{Info, Kind, Time};
    use skips::in_slice;
    use std::io::{self, Write};
    use std::os::fd::OwnedFd;
    use std::path::Path;

    /// How many states were looked at, or what was found.
    type Proof = Result<u64, String>;

    const LITTER: &[u8] = b".bcmr-";

    /// The directory that things land in.
    fn home() -> Home {
        Home::of(&Model::new().cached().info(ROOT), ROOT, true)
    }

    fn no_litter(image: &Image) -> Result<(), String> {
        match image.all_names().iter().find(|n| n.starts_with(LITTER)) {
            Some(name) => Err(format!("R8: '{}' is left", String::from_utf8_lossy(name))),
            None => Ok(()),
        }
    }

    fn text(bytes: usize, seed: usize) -> Vec<u8> {
        (0..bytes).map(|i| (i * 31 + i / 512 * 7 + seed * 13) as u8 | 1).collect()
    }

    // ---- One large file with a session ----

    const NAME: &[u8] = b"film";
    const CHECKPOINT_BYTES: u64 = 2 * BLOCK_BYTES;
    const SIZE: usize = 9 * BLOCK_BYTES as usize + 100;
    /// Checkpoints whose work a power cut may cost, recorded behind the copy or not.
    const LOST_SEGMENTS_MAX: u64 = 1;
    /// The same after a kill: what the killed run was recording may have been only in the cache.
    const LOST_AFTER_KILL_MAX: u64 = 2;

    /// A source in memory, or with a descriptor for what the kernel copies.
    struct Source {
        bytes: Vec<u8>,
        info: Info,
        fd: Option<OwnedFd>,
    }

    impl Bytes for Source {
        fn read_at(&self, at: u64, room: &mut [u8]) -> io::Result<usize> {
            let there = self.bytes.get(at as usize..).unwrap_or_default();
            let n = room.len().min(there.len());
            room[..n].copy_from_slice(&there[..n]);
            Ok(n)
        }
        fn info(&self) -> io::Result<Info> {
            Ok(self.info)
        }
        fn file(&self) -> Option<&OwnedFd> {
            self.fd.as_ref()
        }
    }

    impl Source {
        fn new(seed: usize) -> Source {
            let mut bytes = text(SIZE, seed);
            // A hole in the middle and one at the end of a checkpoint.
            bytes[3 * BLOCK_BYTES as usize..][..BLOCK_BYTES as usize].fill(0);
            bytes[SIZE - 100..].fill(0);
            let time = Time { sec: 1000 + seed as i64, nsec: 5 };
            let info = Info {
                kind: Kind::File,
                mode: 0o640,
                uid: ME,
                gid: ME,
                dev: 5,
                ino: 99,
                nlink: 1,
                size: SIZE as u64,
                blocks: SIZE as u64 / 512,
                rdev: 0,
                atime: time,
                mtime: time,
                ctime: time,
            };
            Source { bytes, info, fd: None }
        }
    }

    /// One command and what it is run on.
    struct Scene {
        source: Source,
        resume: Resume,
        holes: Holes,
        verify: Verify,
        /// With more than one, another one records behind them.
        threads: usize,
        /// What stands under the final name.
        old: Option<Vec<u8>>,
    }

    impl Scene {
        fn new(resume: Resume, holes: Holes, old: bool) -> Scene {
            let mut source = Source::new(1);
            if resume == Resume::Fast {
                source.fd = Some(real_file(&source.bytes));
            }
            let old = old.then(|| text(3000, 9));
            Scene { source, resume, holes, verify: Verify::Off, threads: 1, old }
        }

        fn want<'a>(
            &'a self,
            dest: &DestDir<Model>,
            name: Name<'a>,
            observe: &'a (dyn Fn(u64) -> bool + Sync),
        ) -> Want<'a> {
            Want {
                name,
                home: dest.home,
                info: self.source.info,
                source: &self.source,
                resume: self.resume,
                checkpoint_bytes: CHECKPOINT_BYTES,
                holes: self.holes,
                threads: self.threads,
                me: ME,
                leave: None,
                past_cache: self.verify == Verify::Direct,
                observe,
                met: &|_| (),
                work: None,
            }
        }

        fn disk(&self) -> Model {
            let model = Model::new();
            if let Some(old) = &self.old {
                model.old_file(&model.root(), NAME, old);
            }
            model
        }

        fn policy(&self) -> CopyPolicy {
            let checkpoint_bytes = CHECKPOINT_BYTES;
            CopyPolicy {
                resume: self.resume,
                durability: Durability::Medium,
                checkpoint_bytes,
                me: ME,
                ..policy()
            }
        }
    }

    fn real_file(bytes: &[u8]) -> OwnedFd {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.into()
    }

    /// What `copy -C SRC DST` does with one large file.
    fn copy_one(model: &Model, scene: &Scene) -> Result<(), String> {
        let root = Node::root(Path::new("dst"));
        let dest =
            DestDir::existing(model, model.root(), root, None, &scene.policy()).map_err(|e| e.to_string())?;
        let name = NameBuf::new(NAME).unwrap();
        let name = name.as_name();
        let source = &scene.source;
        let there = model.look(&dest.dir, name).map_err(|e| e.to_string())?;
        if there.is_some_and(|t| t.size == source.info.size && t.mtime == source.info.mtime) {
            return resumable::sweep(model, &dest.dir, &dest.home, name).map_err(|f| format!("{f:?}"));
        }
        let want = scene.want(&dest, name, &|_| true);
        let here = Dir::open(Path::new("/")).unwrap();
        let attributes = Attributes::At(&here, name);
        let mut job = Job::new(name, Placement::Final, source.info, there, Body::Special, attributes);
        land_resumable(model, &mut (), &dest, &mut job, &want, scene.verify);
        job.fault.map_or(Ok(()), |f| Err(format!("{f:?}")))
    }

    /// What holds a session may be the process of a connection that was lost, and does not know it yet.
    #[test]
    fn a_connection_made_again_waits_for_the_one_that_was_lost() {
        let fills = |far: bool| {
            let mut scene = Scene::new(Resume::Proved, Holes::Fill, false);
            if !far {
                scene.source.fd = Some(real_file(&scene.source.bytes));
            }
            let model = scene.disk();
            let root = Node::root(Path::new("dst"));
            let dest = DestDir::existing(&model, model.root(), root, None, &scene.policy()).unwrap();
            let name = NameBuf::new(NAME).unwrap();
            let session = dest.home.session(name.as_name()).unwrap();
            let session = model.create_file(&dest.dir, session.as_name(), 0o600).unwrap();
            assert!(model.lock_file(&session) == fastcopy::dir::Lock::Held);
            // It lets go once it was tried longer than a process on this machine takes to end.
            let held = std::sync::Mutex::new((0, Some(session)));
            let observe = |_| {
                let mut held = held.lock().unwrap();
                held.0 += 1;
                if held.0 > 30 {
                    held.1 = None;
                }
                true
            };
            let want = Want {
                name: name.as_name(),
                home: dest.home,
                info: scene.source.info,
                source: &scene.source,
                resume: scene.resume,
                checkpoint_bytes: CHECKPOINT_BYTES,
                holes: scene.holes,
                threads: 1,
                me: ME,
                leave: None,
                past_cache: false,
                observe: &observe,
                met: &|_| (),
                work: None,
            };
            resumable::fill(&model, &dest.dir, &want).map(drop).map_err(|fault| fault.code)
        };
        assert_eq!(fills(true), Ok(()));
        assert_eq!(fills(false), Err(Code::Refused));
    }

    /// Lands the scene's file; `observe` is asked whether to go on. Returns the bytes that were there already.
    fn landed(model: &Model, scene: &Scene, observe: &(dyn Fn(u64) -> bool + Sync)) -> Result<u64, Code> {
        let root = Node::root(Path::new("dst"));
        let dest = DestDir::existing(model, model.root(), root, None, &scene.policy()).unwrap();
        let name = NameBuf::new(NAME).unwrap();
        let name = name.as_name();
        let source = &scene.source;
        let want = scene.want(&dest, name, observe);
        let here = Dir::open(Path::new("/")).unwrap();
        let attributes = Attributes::At(&here, name);
        let mut job = Job::new(name, Placement::Final, source.info, None, Body::Special, attributes);
        let went = land_resumable(model, &mut (), &dest, &mut job, &want, scene.verify);
        job.fault.map_or(Ok(went.map_or(0, |went| went.resumed)), |fault| Err(fault.code))
    }

    /// A stop while what landed is read back costs the reading alone, and what cannot be proved is not copied.
    #[test]
    fn what_is_not_read_back_stays() {
        let asked = std::sync::atomic::AtomicU64::new(0);
        let ask = || asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut scene = Scene::new(Resume::Proved, Holes::Fill, false);
        landed(&scene.disk(), &scene, &|_| ask() < u64::MAX).unwrap();
        for verify in [Verify::Cached, Verify::Direct] {
            scene.verify = verify;
            let copies = asked.swap(0, std::sync::atomic::Ordering::Relaxed);
            let model = scene.disk();
            assert_eq!(landed(&model, &scene, &|_| ask() < copies), Err(Code::Interrupted), "{verify:?}");
            assert_eq!(landed(&model, &scene, &|_| true), Ok(SIZE as u64), "{verify:?}");
            assert!(is_new(&model.cached(), &scene), "{verify:?}");
            no_litter(&model.cached()).unwrap();
            asked.store(copies, std::sync::atomic::Ordering::Relaxed);
        }
        let model = scene.disk();
        model.nature(Nature { only_cached: true, ..Nature::default() });
        assert_eq!(landed(&model, &scene, &|bytes| bytes == 0), Err(Code::Unsupported));
        no_litter(&model.cached()).unwrap();
    }

    fn is_new(image: &Image, scene: &Scene) -> bool {
        image.at(&[NAME]).is_some_and(|n| *n.data == scene.source.bytes)
    }

    /// R1 and R2: the final name is absent, old or new.
    fn whole(image: &Image, scene: &Scene) -> Result<(), String> {
        let info = &scene.source.info;
        match (image.at(&[NAME]), &scene.old) {
            (None, None) => Ok(()),
            (Some(n), _) if *n.data == scene.source.bytes => {
                if n.mode == info.mode && n.mtime == info.mtime {
                    Ok(())
                } else {
                    Err("R2: the name leads to a file whose metadata is not on stable storage".into())
                }
            }
            (Some(n), Some(old)) if *n.data == *old && n.mode == 0o644 => Ok(()),
            (there, _) => {
                Err(format!("R1: the name leads to {:?} bytes of something", there.map(|n| n.data.len())))
            }
        }
    }

    /// R4: what the session says of the stage is true, as the next run would understand it. Returns the bytes claimed.
    fn honest(image: &Image, scene: &Scene, claims: Claims) -> Result<u64, String> {
        if claims == Claims::Damaged {
            return Ok(0);
        }
        let name = NameBuf::new(NAME).unwrap();
        let (part, session_name) =
            (home().part(name.as_name()).unwrap(), home().session(name.as_name()).unwrap());
        let part_id = image.id_at(&[part.bytes()]);
        let source = &scene.source;
        for (id, node) in &image.nodes {
            let Some(read) = session::decode(&node.data).filter(|s| !s.blocks.is_empty()) else { continue };
            let named = claims == Claims::GivenUp || is_new(image, scene);
            if image.id_at(&[session_name.bytes()]) != Some(*id) && !named {
                return Err("R4: a session with records has no name".into());
            }
            if part_id.is_none() && !named {
                return Err("R4: a session has records, its stage no name".into());
            }
            let stage = part_id.map(|id| image.info(id));
            let options = read.header.options;
            if !named
                && stage.is_some_and(|s| s.id() == read.header.stage)
                && let Start::Fresh(Some(why)) =
                    decide(Some(&read), false, stage.as_ref(), &source.info, options, ME)
            {
                return Err(format!("R4: {why:?}"));
            }
        }
        let (Some(part_id), Some(session_id)) = (part_id, image.id_at(&[session_name.bytes()])) else {
            return Ok(0);
        };
        let Some(read) = session::decode(&image.nodes[&session_id].data) else { return Ok(0) };
        let info = image.info(part_id);
        let options = read.header.options;
        match decide(Some(&read), false, Some(&info), &source.info, options, ME) {
            Start::Fresh(_) => Ok(0),
            Start::Behind { bytes, .. } => {
                let data = &image.nodes[&part_id].data;
                if data[..bytes as usize] == source.bytes[..bytes as usize] {
                    return Ok(bytes);
                }
                Err("R4: a recorded block is not on stable storage".into())
            }
        }
    }

    /// How much of the stage is right as programs see it.
    fn worked(image: &Image, scene: &Scene) -> u64 {
        let part = home().part(NameBuf::new(NAME).unwrap().as_name()).unwrap();
        let Some(node) = image.at(&[part.bytes()]) else { return 0 };
        let [done, wanted] = [&node.data, &scene.source.bytes].map(|b| b.chunks_exact(BLOCK_BYTES as usize));
        let same = done.zip(wanted).take_while(|(a, b)| a == b).count();
        same as u64 * BLOCK_BYTES
    }

    /// Runs the command to its end; everything must be as it should, now and after a power cut.
    fn finish(model: &Model, scene: &Scene, lie: Option<Lie>, rng: &mut Rng) -> Proof {
        model.trouble(Trouble { lie, ..Trouble::default() });
        copy_one(model, scene).map_err(|e| format!("the next run fails: {e}"))?;
        let cached = model.cached();
        whole(&cached, scene)?;
        if !is_new(&cached, scene) {
            return Err("R6: complete, but not the source".into());
        }
        no_litter(&cached)?;
        let states = model.after_power_cut(rng, 2);
        let mut seen = 1 + states.len() as u64;
        for image in states {
            if !is_new(&image, scene) {
                return Err("R3: exit 0, and after a power cut the file is not there".into());
            }
            whole(&image, scene)?;
            if image.all_names().iter().any(|n| n.starts_with(LITTER)) {
                // The session's removal was not on stable storage yet: the next run takes it away.
                let again = Model::boot(image);
                copy_one(&again, scene)?;
                no_litter(&again.cached())?;
                seen += 1;
            }
        }
        Ok(seen)
    }

    /// Cuts the power after every step of a run from `start`, looks at every state and goes on from it.
    fn cut_everywhere(
        scene: &Scene,
        start: &dyn Fn() -> Model,
        lie: Option<Lie>,
        claims: Claims,
        (samples, chain, seed): (u64, u32, u64),
    ) -> Proof {
        let mut rng = Rng(seed);
        let clean = start();
        clean.trouble(Trouble { lie, ..Trouble::default() });
        copy_one(&clean, scene).map_err(|e| format!("a run without trouble fails: {e}"))?;
        let total = clean.steps();
        let way = Way { lie, total, samples, chain, claims, lost_segments_max: LOST_SEGMENTS_MAX };
        let mut seen = 0;
        // A scene with the next seed takes others. A proof that looks for its fault takes all.
        let tried = |cut: &u64| lie.is_some() || in_slice((cut + seed) as usize, 4);
        for cut in (1..=total + 2).filter(tried) {
            seen += cut_once(scene, &start(), cut, way, &mut rng)
                .map_err(|e| format!("cut at step {cut}: {e}"))?;
        }
        Ok(seen)
    }

    /// What is known of sessions on the disk.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Claims {
        /// All true.
        Kept,
        /// A run threw some away, so that there may be sessions that nothing leads to.
        GivenUp,
        /// A recorded block is not any more what was recorded.
        Damaged,
    }

    /// How thoroughly crashes are looked at.
    #[derive(Clone, Copy)]
    struct Way {
        lie: Option<Lie>,
        /// Steps of a whole run.
        total: u64,
        samples: u64,
        /// Further crashes after each.
        chain: u32,
        claims: Claims,
        lost_segments_max: u64,
    }

    fn cut_once(scene: &Scene, model: &Model, cut: u64, way: Way, rng: &mut Rng) -> Proof {
        let Way { lie, total, samples, chain, claims, lost_segments_max } = way;
        let further = Way { samples: 2, chain: chain.saturating_sub(1), ..way };
        model.trouble(Trouble { cut_at: Some(cut), fail_at: None, lie });
        let done = copy_one(model, scene).is_ok();
        // A kill: what is cached stays.
        let cached = model.cached();
        whole(&cached, scene)?;
        honest(&cached, scene, claims)?;
        let worked = worked(&cached, scene);
        let mut seen = 1;
        // A power cut.
        for image in model.after_power_cut(rng, samples) {
            seen += 1;
            whole(&image, scene)?;
            if done && !is_new(&image, scene) {
                return Err("R3: exit 0, and the file is not there".into());
            }
            let claimed = honest(&image, scene, claims)?;
            // A hole is as it should be before anybody was there.
            let hole = if scene.holes == Holes::Make { BLOCK_BYTES } else { 0 };
            if claims != Claims::Damaged
                && !is_new(&image, scene)
                && claimed + lost_segments_max * CHECKPOINT_BYTES + hole < worked
            {
                return Err(format!("{worked} bytes were copied, {claimed} are recorded"));
            }
            if chain > 0 {
                let next = Model::boot(image.clone());
                let cut = 1 + rng.below(total);
                seen += cut_once(scene, &next, cut, further, rng)
                    .map_err(|e| format!("then at step {cut}: {e}"))?;
            }
            seen += finish(&Model::boot(image), scene, lie, rng)?;
        }
        if chain > 0 {
            let killed = Way { lost_segments_max: LOST_AFTER_KILL_MAX, ..further };
            let cut = 1 + rng.below(total);
            seen += cut_once(scene, &model.killed(), cut, killed, rng)
                .map_err(|e| format!("killed, then at step {cut}: {e}"))?;
        }
        Ok(seen + finish(&model.killed(), scene, lie, rng)?)
    }

    fn scenes() -> Vec<(&'static str, Scene)> {
        vec![
            ("new", Scene::new(Resume::Proved, Holes::Fill, false)),
            ("replaced", Scene::new(Resume::Proved, Holes::Fill, true)),
            ("with holes", Scene::new(Resume::Proved, Holes::Make, true)),
            ("strict", Scene::new(Resume::Strict, Holes::Fill, true)),
            ("fast", Scene::new(Resume::Fast, Holes::Fill, true)),
            ("verified", Scene { verify: Verify::Cached, ..Scene::new(Resume::Proved, Holes::Fill, false) }),
        ]
    }

    /// The same where a thread of its own records, whichever of them is faster.
    fn scenes_recorded_behind() -> Vec<(&'static str, Scene)> {
        vec![
            ("recorded behind", Scene { threads: 2, ..Scene::new(Resume::Proved, Holes::Fill, true) }),
            ("recorded behind, holes", Scene { threads: 2, ..Scene::new(Resume::Strict, Holes::Make, true) }),
            ("recorded behind, fast", Scene { threads: 2, ..Scene::new(Resume::Fast, Holes::Fill, true) }),
        ]
    }

    #[test]
    fn a_resumable_file_survives_a_cut_after_every_step() {
        let mut seen = 0;
        for (n, (what, scene)) in scenes().iter().enumerate() {
            seen += cut_everywhere(scene, &|| scene.disk(), None, Claims::Kept, (6, 0, n as u64))
                .unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        println!("resumable file, one crash: {seen} states");
    }

    #[test]
    fn a_file_that_is_recorded_behind_its_copy_survives_a_cut_after_every_step() {
        let mut seen = 0;
        for (n, (what, scene)) in scenes_recorded_behind().iter().enumerate() {
            seen += cut_everywhere(scene, &|| scene.disk(), None, Claims::Kept, (4, 0, 300 + n as u64))
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            seen += fail_everywhere(scene, errno::EIO).unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        println!("resumable file, recorded behind its copy: {seen} states");
    }

    #[test]
    fn a_resumable_file_survives_two_crashes() {
        let mut seen = 0;
        for (n, (what, scene)) in scenes().iter().enumerate().take(3) {
            seen += cut_everywhere(scene, &|| scene.disk(), None, Claims::Kept, (2, 1, 100 + n as u64))
                .unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        println!("resumable file, two crashes: {seen} states");
    }

    #[test]
    fn every_call_of_a_resumable_file_fails_once() {
        let mut seen = 0;
        for (n, (what, scene)) in scenes().iter().enumerate() {
            // What a full disk answers takes the same ways but where room is reserved.
            let codes: &[i32] = if n < 3 { &[errno::EIO, errno::ENOSPC] } else { &[errno::EIO] };
            for code in codes {
                seen += fail_everywhere(scene, *code).unwrap_or_else(|e| panic!("{what}, errno {code}: {e}"));
            }
        }
        println!("resumable file, every call failed: {seen} states");
    }

    fn fail_everywhere(scene: &Scene, code: i32) -> Proof {
        let mut rng = Rng(7);
        let mut seen = 0;
        // From nothing, and from half of it.
        let clean = scene.disk();
        copy_one(&clean, scene)?;
        let total = clean.steps();
        for half in [false, true] {
            for step in
                (1..=total).filter(|step| in_slice(*step as usize + code as usize + 2 * usize::from(half), 4))
            {
                let model = scene.disk();
                let model = if half {
                    model.trouble(Trouble { cut_at: Some(total * 2 / 3), ..Trouble::default() });
                    let _cut = copy_one(&model, scene);
                    model.killed()
                } else {
                    model
                };
                model.trouble(Trouble { fail_at: Some((step, code)), ..Trouble::default() });
                let outcome = copy_one(&model, scene);
                let Some(call) = model.failed() else { continue };
                let told = |e: String| format!("'{call}' failed at step {step} (resumed: {half}): {e}");
                if outcome.is_ok() && call != "reserve" {
                    return Err(told("and nobody was told".into()));
                }
                let cached = model.cached();
                whole(&cached, scene).map_err(told)?;
                honest(&cached, scene, Claims::GivenUp).map_err(told)?;
                if call.starts_with("sync") && !is_new(&cached, scene) {
                    no_litter(&cached).map_err(|e| told(format!("R5: {e}")))?;
                }
                for image in model.after_power_cut(&mut rng, 1) {
                    seen += 1;
                    whole(&image, scene).map_err(told)?;
                    seen += finish(&Model::boot(image), scene, None, &mut rng).map_err(told)?;
                }
                // Never mind what was not on stable storage: the next run goes on from what is cached.
                let next = model.killed();
                let cut = 1 + rng.below(total);
                let way = Way {
                    lie: None,
                    total,
                    samples: 1,
                    chain: 0,
                    claims: Claims::GivenUp,
                    lost_segments_max: LOST_AFTER_KILL_MAX,
                };
                seen += cut_once(scene, &next, cut, way, &mut rng)
                    .map_err(|e| told(format!("then cut at step {cut}: {e}")))?;
                seen += finish(&model.killed(), scene, None, &mut rng).map_err(told)?;
            }
        }
        Ok(seen)
    }

    #[test]
    fn a_changed_source_and_a_rotten_stage_are_never_mixed_in() {
        let mut rng = Rng(3);
        let mut seen = 0;
        for (what, scene) in scenes() {
            let clean = scene.disk();
            copy_one(&clean, &scene).unwrap();
            let total = clean.steps();
            for cut in (1..total).step_by(5) {
                let model = scene.disk();
                model.trouble(Trouble { cut_at: Some(cut), ..Trouble::default() });
                let _cut = copy_one(&model, &scene);
                for image in model.after_power_cut(&mut rng, 3) {
                    if is_new(&image, &scene) {
                        continue;
                    }
                    let claimed = honest(&image, &scene, Claims::Kept).unwrap();
                    // Another version of the source: nothing of the first may be in it.
                    let mut source = Source::new(2);
                    source.fd = scene.source.fd.is_some().then(|| real_file(&source.bytes));
                    let other = Scene { source, old: None, ..Scene::new(scene.resume, scene.holes, false) };
                    seen += finish(&Model::boot(image.clone()), &other, None, &mut rng)
                        .unwrap_or_else(|e| panic!("{what}, changed source after step {cut}: {e}"));
                    if claimed > 0 && scene.resume != Resume::Fast {
                        let rotten = Model::boot(image);
                        let part = home().part(NameBuf::new(NAME).unwrap().as_name()).unwrap();
                        rotten.rot(&[part.bytes()], rng.below(claimed) as usize);
                        seen += finish(&rotten, &scene, None, &mut rng)
                            .unwrap_or_else(|e| panic!("{what}, rotten after step {cut}: {e}"));
                    }
                }
            }
        }
        println!("changed source, rotten stage: {seen} states");
    }

    #[test]
    fn going_back_before_a_damaged_block_survives_a_cut_after_every_step() {
        let mut seen = 0;
        for (n, (what, scene)) in scenes().iter().enumerate() {
            // In the last recorded block: what is looked at before anything else.
            let start = || {
                let claimed = (1..).find_map(|cut| {
                    let model = scene.disk();
                    model.trouble(Trouble { cut_at: Some(cut), ..Trouble::default() });
                    let _cut = copy_one(&model, scene);
                    let image = model.cached();
                    let claimed = honest(&image, scene, Claims::Kept).unwrap();
                    (claimed > 2 * CHECKPOINT_BYTES).then_some((image, claimed))
                });
                let (image, claimed) = claimed.unwrap();
                let model = Model::boot(image);
                model.rot(
                    &[home().part(NameBuf::new(NAME).unwrap().as_name()).unwrap().bytes()],
                    claimed as usize - 10,
                );
                model
            };
            let begun = start().cached();
            let start = || Model::boot(begun.clone());
            seen += cut_everywhere(scene, &start, None, Claims::Damaged, (3, 0, 200 + n as u64))
                .unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        println!("damaged last block: {seen} states");
    }

    /// Leaves out one sync of the resumable copy.
    const WITHOUT: [(&str, usize, Lie); 7] = [
        ("fdatasync of the stage before its record", 1, |a| {
            a.what == What::Data && a.name.ends_with(Role::Part.suffix())
        }),
        ("sync of a range of the stage before its record, behind the copy", 2, |a| {
            matches!(a.what, What::Range(..)) && a.name.ends_with(Role::Part.suffix())
        }),
        ("fdatasync of the session after its record", 1, LIES_OF_SESSION),
        ("fdatasync of the session after its record, behind the copy", 2, LIES_OF_SESSION),
        ("fsync of the directory before the first record", 1, |a| a.what == What::Dir && !names_final(a)),
        ("fsync of the sealed stage before its rename", 1, |a| a.what == What::Job),
        ("fsync of the directory after the rename", 1, |a| a.what == What::Dir && names_final(a)),
    ];

    const LIES_OF_SESSION: Lie = |a| a.what == What::Data && a.name.ends_with(Role::Session.suffix());

    fn names_final(asked: &Asked) -> bool {
        asked.new_names.iter().any(|n| !n.starts_with(LITTER))
    }

    #[test]
    fn without_any_one_sync_of_a_resumable_file_the_proof_fails() {
        for (what, threads, lie) in WITHOUT {
            let scene = Scene { threads, ..Scene::new(Resume::Proved, Holes::Fill, true) };
            let clean = scene.disk();
            clean.trouble(Trouble { lie: Some(lie), ..Trouble::default() });
            copy_one(&clean, &scene).unwrap();
            assert!(clean.lied() > 0, "{what}: never asked for");
            match cut_everywhere(&scene, &|| scene.disk(), Some(lie), Claims::Kept, (6, 0, 1)) {
                Err(found) => println!("without {what}: {found}"),
                Ok(states) => panic!("without {what} nothing is found in {states} states"),
            }
        }
    }

    #[test]
    fn two_syncs_of_a_resumable_file_are_more_than_the_proof_needs() {
        // The data sync before each record and the one after it cover what these two do. They stay: R4 says that both
        // files are there before the first record, and two syncs a file cost nothing beside the others.
        let spare: [(&str, Lie); 2] = [
            ("stage", |a| a.what == What::File && a.name.ends_with(Role::Part.suffix())),
            ("session", |a| a.what == What::File && a.name.ends_with(Role::Session.suffix())),
        ];
        for (what, lie) in spare {
            let scene = Scene::new(Resume::Proved, Holes::Fill, true);
            cut_everywhere(&scene, &|| scene.disk(), Some(lie), Claims::Kept, (4, 0, 1)).unwrap_or_else(
                |e| panic!("without fsync of the new {what}: {e}; it belongs to the list above"),
            );
        }
    }

    // ---- Batches, and directories without a name ----

    const FILE_BYTES: usize = 2500;

    /// A batch into a directory.
    struct Batch {
        sources: Vec<(NameBuf, OwnedFd, Vec<u8>)>,
        durability: Durability,
        /// New directories down to where they go, which get their names when they are in it; none: they go where
        /// something is.
        dirs: &'static [&'static [u8]],
    }

    const NONE: &[&[u8]] = &[];
    const ONE: &[&[u8]] = &[b"sub"];
    const TWO: &[&[u8]] = &[b"sub", b"inner"];

    impl Batch {
        /// The last one replaces something.
        fn new(files: usize, durability: Durability, dirs: &'static [&'static [u8]]) -> Batch {
            let sources = (0..files).map(|n| {
                let bytes = text(FILE_BYTES, n);
                (NameBuf::new(format!("file{n}").as_bytes()).unwrap(), real_file(&bytes), bytes)
            });
            Batch { sources: sources.collect(), durability, dirs }
        }
        fn replaced(&self) -> &[u8] {
            self.sources.last().unwrap().0.bytes()
        }
        fn disk(&self) -> Model {
            let model = Model::new();
            if self.dirs.is_empty() {
                model.old_file(&model.root(), self.replaced(), &text(FILE_BYTES, 50));
            }
            model
        }
        fn path<'a>(&self, name: &'a NameBuf) -> Vec<&'a [u8]> {
            self.dirs.iter().copied().chain([name.bytes()]).collect()
        }
    }

    /// What `copy --sync` does with a batch (`verbs/copy.rs`: `land`, `publish_group`, `publish`, `sync_names`).
    fn copy_batch(model: &Model, batch: &Batch) -> Result<(), String> {
        let policy = CopyPolicy { durability: batch.durability, me: ME, ..policy() };
        let root = Node::root(Path::new("dst"));
        let text = |e: crate::error::Error| e.to_string();
        let above = DestDir::existing(model, model.root(), root, None, &policy).map_err(text)?;
        let mut chain = vec![above];
        for name in batch.dirs {
            let (name, last) = (NameBuf::new(name).unwrap(), chain.last().unwrap());
            last.expect(1);
            let inside = last.begin().inside;
            chain.push(match inside {
                true => last.enter_inside(model, name.as_name(), &policy, 0o755).map_err(text)?,
                false => last.enter(model, name.as_name(), &policy).map_err(text)?,
            });
        }
        let (above, dest) = (&chain[0], chain.last().unwrap());
        let private = dest.is_private();
        let here = Dir::open(Path::new("/")).unwrap();
        let mut jobs = Vec::new();
        for (name, fd, _) in &batch.sources {
            let there = if dest.is_fresh() {
                None
            } else {
                model.look(&dest.dir, name.as_name()).map_err(|e| e.to_string())?
            };
            let fd = fd.try_clone().unwrap();
            let (name, info) = (name.as_name(), Bytes::info(&fd).unwrap());
            let place = if private { Placement::Final } else { Placement::Stage(dest.home.stage().unwrap()) };
            jobs.push(Job::new(name, place, info, there, Body::File(fd), Attributes::At(&here, name)));
        }
        let how = Fill { verify: Verify::Cached, hash: true, durability: batch.durability, ..PLAIN };
        let owed = land(model, &mut (), dest, &mut jobs, &how, private);
        let mut outcome = owed.as_ref().map(|_| ()).map_err(ToString::to_string);
        for job in &jobs {
            if let Some(fault) = job.fault.as_ref().or(job.lost.first()) {
                outcome = Err(format!("{fault:?}"));
            }
        }
        let medium = batch.durability == Durability::Medium;
        if private {
            if medium && let Err(e) = model.sync_all(&dest.dir) {
                dest.poison();
                outcome = Err(e.to_string());
            }
            let filled: Vec<bool> = chain.iter().rev().map(DestDir::filled).collect();
            assert_eq!(filled.iter().filter(|due| **due).count(), 1, "published once");
            if let Err(e) = chain[1].publish(model, above) {
                outcome = Err(e.to_string());
            }
        }
        if medium
            && (private || matches!(owed, Ok(true)))
            && let Err(e) = model.sync_all(&above.dir)
        {
            outcome = Err(e.to_string());
        }
        outcome
    }

    /// R1 and R2 of every name of a batch. Returns whether all are new. `some`: files that failed may be missing.
    fn all_whole(image: &Image, batch: &Batch, some: bool) -> Result<bool, String> {
        let there = batch.dirs.is_empty() || image.at(&[b"sub"]).is_some();
        let mut all = there;
        for (name, fd, bytes) in &batch.sources {
            let info = Bytes::info(fd).unwrap();
            let absent =
                if batch.dirs.is_empty() { name.bytes() != batch.replaced() } else { !there || some };
            match image.at(&batch.path(name)) {
                None if absent => all = false,
                Some(n) if *n.data == *bytes && n.mtime == info.mtime && n.mode == info.mode => {}
                Some(n)
                    if batch.dirs.is_empty()
                        && name.bytes() == batch.replaced()
                        && *n.data == text(FILE_BYTES, 50)
                        && n.mode == 0o644 =>
                {
                    all = false
                }
                other => {
                    return Err(format!(
                        "R1: {name:?} is {:?} bytes of something",
                        other.map(|n| n.data.len())
                    ));
                }
            }
        }
        Ok(all)
    }

    fn cut_batch(batch: &Batch, lie: Option<Lie>) -> Proof {
        let mut rng = Rng(11);
        let clean = batch.disk();
        clean.trouble(Trouble { lie, ..Trouble::default() });
        copy_batch(&clean, batch)?;
        let medium = batch.durability == Durability::Medium;
        let mut seen = 0;
        for cut in 1..=clean.steps() + 1 {
            let told = |e: String| format!("cut at step {cut}: {e}");
            let model = batch.disk();
            model.trouble(Trouble { cut_at: Some(cut), fail_at: None, lie });
            let done = copy_batch(&model, batch).is_ok();
            all_whole(&model.cached(), batch, false).map_err(told)?;
            seen += 1;
            let mut next = vec![model.killed()];
            if medium {
                for image in model.after_power_cut(&mut rng, 12) {
                    seen += 1;
                    let all = all_whole(&image, batch, false).map_err(told)?;
                    if done && !all {
                        return Err(told("R3: exit 0, and not all is there".into()));
                    }
                    next.push(Model::boot(image));
                }
            }
            for next in next {
                copy_batch(&next, batch).map_err(|e| told(format!("the next run fails: {e}")))?;
                if !all_whole(&next.cached(), batch, false).map_err(told)? {
                    return Err(told("the next run leaves something out".into()));
                }
                no_litter(&next.cached()).map_err(told)?;
            }
        }
        Ok(seen)
    }

    fn batches() -> Vec<(&'static str, Batch)> {
        let mut all = Vec::new();
        for durability in [Durability::Cache, Durability::Medium] {
            all.push(("few", Batch::new(3, durability, NONE)));
            all.push(("many", Batch::new(6, durability, NONE)));
            all.push(("new directory", Batch::new(3, durability, ONE)));
            all.push(("a new directory in a new one", Batch::new(3, durability, TWO)));
        }
        all
    }

    #[test]
    fn a_batch_survives_a_cut_after_every_step() {
        let mut seen = 0;
        for (what, batch) in batches() {
            seen += cut_batch(&batch, None).unwrap_or_else(|e| panic!("{what}, {:?}: {e}", batch.durability));
        }
        println!("batches: {seen} states");
    }

    #[test]
    fn every_call_of_a_batch_fails_once() {
        let mut rng = Rng(13);
        let mut seen = 0;
        for (what, batch) in batches() {
            let clean = batch.disk();
            copy_batch(&clean, &batch).unwrap();
            for code in [errno::EIO, errno::ENOSPC] {
                for step in 1..=clean.steps() {
                    let model = batch.disk();
                    model.trouble(Trouble { fail_at: Some((step, code)), ..Trouble::default() });
                    let outcome = copy_batch(&model, &batch);
                    let call = model.failed().unwrap();
                    let place = format!("{what}, {:?}: '{call}' failed at step {step}", batch.durability);
                    assert!(outcome.is_err(), "{place}: and nobody was told");
                    all_whole(&model.cached(), &batch, true).unwrap_or_else(|e| panic!("{place}: {e}"));
                    if batch.durability == Durability::Medium {
                        for image in model.after_power_cut(&mut rng, 6) {
                            seen += 1;
                            all_whole(&image, &batch, true).unwrap_or_else(|e| panic!("{place}: {e}"));
                        }
                    }
                    let next = model.killed();
                    // What got its name goes on having it; a directory that has a name is merged into.
                    if batch.dirs.is_empty() || next.cached().at(&[b"sub"]).is_none() {
                        copy_batch(&next, &batch)
                            .unwrap_or_else(|e| panic!("{place}: the next run fails: {e}"));
                        assert!(all_whole(&next.cached(), &batch, false).unwrap(), "{place}");
                        no_litter(&next.cached()).unwrap_or_else(|e| panic!("{place}: {e}"));
                    }
                    seen += 1;
                }
            }
        }
        println!("batches, every call failed: {seen} states");
    }

    #[test]
    fn without_any_one_sync_of_a_batch_the_proof_fails() {
        let few = || Batch::new(3, Durability::Medium, NONE);
        let many = || Batch::new(6, Durability::Medium, NONE);
        let directory = || Batch::new(3, Durability::Medium, ONE);
        let subtree = || Batch::new(3, Durability::Medium, TWO);
        let without: [(&str, Batch, Lie); 8] = [
            ("fsync of each of a few", few(), |a| a.what == What::Job),
            ("fsync of the directory after a few", few(), |a| a.what == What::Dir),
            ("syncfs before many are renamed", many(), |a| a.what == What::All && !names_final(a)),
            ("syncfs after many are renamed", many(), |a| a.what == What::All && names_final(a)),
            ("syncfs before a directory is published", directory(), |a| {
                a.what == What::All && !a.new_names.iter().any(|n| n == b"sub")
            }),
            ("syncfs after a directory is published", directory(), |a| {
                a.what == What::All && a.new_names.iter().any(|n| n == b"sub")
            }),
            ("syncfs before a subtree is published", subtree(), |a| {
                a.what == What::All && !a.new_names.iter().any(|n| n == b"sub")
            }),
            ("syncfs after a subtree is published", subtree(), |a| {
                a.what == What::All && a.new_names.iter().any(|n| n == b"sub")
            }),
        ];
        for (what, batch, lie) in without {
            let clean = batch.disk();
            clean.trouble(Trouble { lie: Some(lie), ..Trouble::default() });
            copy_batch(&clean, &batch).unwrap();
            assert!(clean.lied() > 0, "{what}: never asked for");
            match cut_batch(&batch, Some(lie)) {
                Err(found) => println!("without {what}: {found}"),
                Ok(states) => panic!("without {what} nothing is found in {states} states"),
            }
        }
    }
}
