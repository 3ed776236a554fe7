//! The proof of `docs/durability.md` for directories: trees are landed on the model disk by the lander itself, with every
//! step the last one, every state that may come back looked at and gone on from, and every call failing once. Without any
//! one of the syncs the proof fails.
//!
//! Must not know how a directory is published or sealed. What verbs do around the lander (the walk, in an order that is
//! drawn, and a move's ledger) is repeated here in a few lines.

#[cfg(test)]
mod proof {
    use crate::blocks::BLOCK_BYTES;
    use crate::disk::model::{Asked, DEV, Id, Image, Lie, ME, Model, ROOT, Rng, Trouble, What};
    use crate::disk::{Attributes, Body, Bytes, Dirs, Fault};
    use crate::error::{Error, Result};
    use crate::event::{Cancel, Event, Front, Progress, Question, Watch};
    use crate::node::Node;
    use crate::policy::{Collide, CopyPolicy, Durability, Preserve, Resume};
    use crate::receiver::choose::{Candidate, Way};
    use crate::receiver::claims::Spot;
    use crate::receiver::dest::DestDir;
    use crate::receiver::devices::Devices;
    use crate::receiver::dir_task::{Origin, PairedDirs, Slot};
    use crate::receiver::directories::SlotHold;
    use crate::receiver::lander::{LandHooks, Lander, SourceSeen};
    use crate::receiver::links::Claim;
    use crate::receiver::plan::tests::policy;
    use crate::receiver::tree;
    use crate::stage::Home;
    use crate::tally::Tally;
    use fastcopy::dir::{Name, NameBuf};
    use fastcopy::errno;
    use fastcopy::meta::{Info, Kind, Time};
    use skips::in_slice;
    use std::io::Write;
    use std::ops::Range;
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    /// How many states were looked at, or what was found.
    type Proof = std::result::Result<u64, String>;
    type Found<T = ()> = std::result::Result<T, String>;

    const LITTER: &[u8] = b".bcmr-";
    const TOP: &[u8] = b"tree";
    const SMALL_BYTES: usize = 700;
    const CHECKPOINT_BYTES: u64 = 2 * BLOCK_BYTES;
    /// What is at the destination before, where there is anything: it is replaced by a file and by a further name of one.
    const OLD_NAMES: [&str; 2] = ["a", LINKED];
    const LINKED: &str = "linked";
    const LARGE_BYTES: usize = 3 * BLOCK_BYTES as usize + 100;
    const DIRS_FIRST: u64 = 0;
    /// Files of a directory that land in one batch.
    const BATCH: usize = 2;

    // ---- The source ----

    struct SourceFile {
        name: NameBuf,
        fd: OwnedFd,
        info: Info,
        bytes: Vec<u8>,
        /// Another name of a file that is listed before it.
        is_second: bool,
    }

    struct SourceDir {
        name: NameBuf,
        info: Info,
        files: Vec<SourceFile>,
        dirs: Vec<SourceDir>,
    }

    fn file(name: &str, bytes: usize, seed: usize) -> SourceFile {
        let bytes: Vec<u8> = (0..bytes).map(|i| (i * 31 + i / 512 * 7 + seed * 13) as u8 | 1).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let fd: OwnedFd = file.into();
        let info = Bytes::info(&fd).unwrap();
        SourceFile { name: NameBuf::new(name.as_bytes()).unwrap(), fd, info, bytes, is_second: false }
    }

    fn second_name(name: &str, first: &mut SourceFile) -> SourceFile {
        first.info.nlink = 2;
        let (fd, bytes) = (first.fd.try_clone().unwrap(), first.bytes.clone());
        let name = NameBuf::new(name.as_bytes()).unwrap();
        SourceFile { name, fd, info: first.info, bytes, is_second: true }
    }

    fn dir(name: &str, seed: u32, files: Vec<SourceFile>, dirs: Vec<SourceDir>) -> SourceDir {
        let time = Time { sec: 500 + i64::from(seed), nsec: 7 };
        let info = Info {
            kind: Kind::Dir,
            mode: 0o750 + seed % 5,
            uid: ME,
            gid: ME,
            dev: 5,
            ino: 1000 + u64::from(seed),
            nlink: 2,
            size: 0,
            blocks: 0,
            rdev: 0,
            atime: time,
            mtime: time,
            ctime: time,
        };
        SourceDir { name: NameBuf::new(name.as_bytes()).unwrap(), info, files, dirs }
    }

    impl SourceDir {
        fn count(&self) -> usize {
            self.files.len() + 1 + self.dirs.iter().map(SourceDir::count).sum::<usize>()
        }
    }

    /// A directory of the source, as the lander knows it.
    struct Src {
        info: Info,
        node: Arc<Node>,
    }

    impl Origin for Src {
        fn info(&self) -> &Info {
            &self.info
        }
        fn node(&self) -> &Arc<Node> {
            &self.node
        }
        fn attributes(&self) -> Attributes<'_> {
            Attributes::Carried(&[])
        }
        fn hash(
            &self,
            _: Name<'_>,
            _: &dyn Fn() -> bool,
        ) -> std::result::Result<Option<blake3::Hash>, Fault> {
            Ok(None)
        }
    }

    // ---- A command and what it is run on ----

    /// What is at the destination.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Before {
        Nothing,
        /// A directory of that name, with an older file in it.
        Directory,
        /// Another process makes that directory while the first files land.
        Meanwhile,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Verb {
        Copy,
        /// `-C`
        Resumable,
        /// To another file system.
        Move,
    }

    struct Scene {
        source: SourceDir,
        verb: Verb,
        durability: Durability,
        before: Before,
        /// The order in which workers take tasks: directories before anything else, or drawn.
        order: u64,
    }

    impl Scene {
        /// Which steps a slice takes; scenes that are alike take others.
        fn turn(&self) -> u64 {
            self.verb as u64 + self.before as u64 + 2 * self.order
        }

        fn new(verb: Verb, durability: Durability, before: Before, order: u64) -> Scene {
            let small = |name: &str, seed| file(name, SMALL_BYTES, seed);
            let inner = dir("inner", 4, vec![small("e", 5)], vec![dir("empty", 5, vec![], vec![])]);
            let mut files = vec![small("a", 1), small("b", 2), small("c", 3)];
            let mut others = vec![small("d", 6)];
            others.push(second_name("second", &mut files[1]));
            // Where directories come first, its other name is in one that has no name yet.
            files.push(second_name(LINKED, &mut others[0]));
            if verb == Verb::Resumable {
                files.push(file("large", LARGE_BYTES, 4));
            }
            let source = dir(
                "tree",
                1,
                files,
                vec![dir("one", 2, others, vec![inner]), dir("two", 3, vec![], vec![])],
            );
            Scene { source, verb, durability, before, order }
        }

        fn policy(&self) -> CopyPolicy {
            let (resume, collide) = match self.verb {
                Verb::Resumable => (Resume::Proved, Collide::IfDifferent),
                Verb::Copy | Verb::Move => (Resume::Off, Collide::Replace),
            };
            CopyPolicy {
                resume,
                collide,
                durability: self.durability,
                checkpoint_bytes: CHECKPOINT_BYTES,
                preserve: Preserve { mode: true, times: true, links: true, ..Preserve::NONE },
                me: ME,
                ..policy()
            }
        }

        fn old(&self) -> Vec<u8> {
            vec![b'o'; SMALL_BYTES + 100]
        }

        fn disk(&self) -> Model {
            let model = Model::new();
            if self.before == Before::Directory {
                self.make_directory(&model);
            }
            model
        }

        /// What another process does, if it comes to it: the machine may stop before.
        fn make_directory(&self, model: &Model) {
            let (root, name) = (model.root(), self.source.name.as_name());
            if model.make_dir(&root, name, 0o700).is_ok()
                && let Ok(there) = model.open_dir(&root, name)
            {
                for name in OLD_NAMES {
                    model.old_file(&there, name.as_bytes(), &self.old());
                }
            }
        }

        /// Directories of it appear with everything in them, or not at all.
        fn appears_whole(&self) -> bool {
            self.verb != Verb::Resumable
        }

        fn is_durable(&self) -> bool {
            self.durability == Durability::Medium
        }
    }

    /// What went wrong.
    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Front for Notes {
        fn event(&self, event: Event) {
            if let Event::Failed(e) = event {
                self.0.lock().unwrap().push(e.to_string());
            }
        }
        fn ask(&self, _: Question) -> bool {
            true
        }
    }

    type Pair = Slot<Src, Model>;
    type PairHold = SlotHold<Src, Model>;

    /// The directory that something landed in, and its path below the destination.
    type LandedAt = (Arc<Pair>, Vec<Vec<u8>>);

    /// What a move does beside: what has landed waits for a sync, and is taken away at the source.
    struct MiniLedger<'s> {
        model: &'s Model,
        scene: &'s Scene,
        landed: Mutex<Vec<LandedAt>>,
        /// Paths below the destination of what is gone at the source.
        taken: Mutex<Vec<Vec<Vec<u8>>>>,
    }

    fn path_of(node: &Node) -> Vec<Vec<u8>> {
        node.names().iter().map(|name| name.bytes().to_vec()).collect()
    }

    impl MiniLedger<'_> {
        fn settle(&self, devices: &Devices<'_, Model>) -> Vec<Error> {
            let entries = std::mem::take(&mut *self.landed.lock().unwrap());
            let (ready, waiting): (Vec<_>, Vec<_>) =
                entries.into_iter().partition(|(slot, _)| slot.has_name());
            let failed = devices.sync(ready.iter().map(|(slot, _)| &slot.dst));
            let mut taken = self.taken.lock().unwrap();
            taken.extend(
                ready.into_iter().filter(|(slot, _)| devices.is_sure(&slot.dst)).map(|(_, path)| path),
            );
            *self.landed.lock().unwrap() = waiting;
            failed.into_iter().map(|(_, e)| e).collect()
        }
    }

    impl LandHooks<Src, Model> for MiniLedger<'_> {
        fn landed(
            &self,
            slot: &Arc<Pair>,
            src: Name<'_>,
            _: SourceSeen<'_>,
            _: &Devices<'_, Model>,
            _: &Tally<'_>,
        ) {
            if self.scene.before == Before::Meanwhile {
                self.scene.make_directory(self.model);
            }
            if self.scene.verb == Verb::Move {
                let mut path = path_of(&slot.dst.node);
                path.push(src.bytes().to_vec());
                self.landed.lock().unwrap().push((slot.clone(), path));
            }
        }
        fn dir_done(&self, _: &Arc<Pair>) {}
        fn takes_away(&self) -> bool {
            self.scene.verb == Verb::Move
        }
        fn hashed(&self, _: &Path, _: &[u8; 32]) -> Result<()> {
            Ok(())
        }
    }

    // ---- The walk ----

    enum Task<'s> {
        Dir(PairHold, &'s SourceDir),
        Files(PairHold, &'s SourceDir, Range<usize>),
        Alone(PairHold, &'s SourceFile),
        Second(PairHold, &'s SourceFile),
    }

    struct Walk<'s, 'l, 'm> {
        lander: &'l Lander<'m, Src, MiniLedger<'s>, Model>,
        tasks: Vec<Task<'s>>,
    }

    fn pair(src: Src, dst: DestDir<Model>, ours: bool) -> PairedDirs<Src, DestDir<Model>> {
        PairedDirs { src: Arc::new(src), dst, ours, dev: 5, spot: Spot::default() }
    }

    impl<'s> Walk<'s, '_, '_> {
        fn step(&mut self, task: Task<'s>) {
            match task {
                Task::Dir(above, source) => {
                    let src = Src { info: source.info, node: above.src.node.below(source.name.as_name()) };
                    let name = source.name.as_name();
                    match self.lander.enter(&mut (), &above, name, source.info.mode) {
                        Ok(dst) => self.entered(src, dst, &above, source),
                        Err(e) => {
                            above.mark_incomplete();
                            self.lander.tally.fail(e);
                        }
                    }
                    self.lander.release(&mut (), above);
                }
                Task::Files(slot, source, range) => {
                    self.land(&slot, source.files.get(range).unwrap(), Way::Small);
                    self.lander.release(&mut (), slot);
                }
                Task::Second(slot, file) => {
                    let name = file.name.as_name();
                    match self.lander.links.claim_waiting(&file.info) {
                        Claim::Second(landed) => {
                            self.lander.land_second(&mut (), &slot, name, name, &file.info, &landed);
                        }
                        Claim::First => {
                            self.lander.links.gave_up(&file.info);
                            self.land(&slot, std::slice::from_ref(file), Way::Alone);
                        }
                    }
                    self.lander.release(&mut (), slot);
                }
                Task::Alone(slot, file) => {
                    self.land(&slot, std::slice::from_ref(file), Way::Alone);
                    self.lander.release(&mut (), slot);
                }
            }
        }

        fn entered(&mut self, src: Src, dst: DestDir<Model>, above: &Arc<Pair>, source: &'s SourceDir) {
            let child = Slot::below(above.hold(), pair(src, dst, true));
            child.dst.expect(source.dirs.len());
            self.tasks.extend(source.dirs.iter().map(|dir| Task::Dir(child.hold(), dir)));
            let small = source.files.iter().take_while(|f| f.bytes.len() == SMALL_BYTES).count();
            for file in source.files.get(small..).unwrap() {
                self.tasks.push(Task::Alone(child.hold(), file));
            }
            for start in (BATCH..small).step_by(BATCH) {
                self.tasks.push(Task::Files(child.hold_name(), source, start..(start + BATCH).min(small)));
            }
            self.land(&child, source.files.get(..small.min(BATCH)).unwrap(), Way::Small);
            self.lander.release(&mut (), child);
        }

        fn land(&mut self, slot: &Arc<Pair>, files: &'s [SourceFile], way: Way) {
            let mut jobs = Vec::new();
            for file in files {
                let name = file.name.as_name();
                let linked = file.info.nlink > 1;
                if linked && !self.lander.links.claim_first(&file.info) {
                    self.tasks.push(Task::Second(slot.hold(), file));
                    continue;
                }
                let body = Body::File(file.fd.try_clone().unwrap());
                let attributes = Attributes::Carried(&[]);
                let entry =
                    Candidate { name, to: name, info: file.info, body, attributes, way, is_at_hand: true };
                let planned = self.lander.plan(slot, entry);
                if linked && !matches!(planned, Ok(Some(_))) {
                    self.lander.links.gave_up(&file.info);
                }
                match planned {
                    Ok(job) => jobs.extend(job),
                    Err(e) => {
                        slot.mark_incomplete();
                        self.lander.tally.fail(e);
                    }
                }
            }
            self.lander.land(&mut (), slot, &mut jobs, way, 1, false);
        }
    }

    /// What became of a run.
    struct Ran {
        told: Found,
        /// What is gone at the source.
        taken: Vec<Vec<Vec<u8>>>,
    }

    /// What `copy -r SRC DST/` does, or a move of it.
    fn run(model: &Model, scene: &Scene) -> Ran {
        let policy = scene.policy();
        let (notes, progress, cancel) = (Notes::default(), Progress::default(), Cancel::new());
        let watch = Watch { front: &notes as &dyn Front, progress: &progress, cancel: &cancel, items: false };
        let ledger = MiniLedger { model, scene, landed: Mutex::default(), taken: Mutex::default() };
        let lander = Lander::new(model, &policy, Tally::new(watch), ledger);
        if let Err(e) = walk(&lander, scene) {
            lander.tally.fail(e);
        }
        for e in lander.hooks.settle(lander.devices()) {
            lander.tally.fail(e);
        }
        lander.sync_names();
        lander.unmark();
        let taken = lander.hooks.taken.lock().unwrap().clone();
        let failed = lander.end().failed;
        let notes = notes.0.into_inner().unwrap();
        let told = if failed == 0 { Ok(()) } else { Err(notes.join("; ")) };
        Ran { told, taken }
    }

    fn walk<'s>(lander: &Lander<'_, Src, MiniLedger<'s>, Model>, scene: &'s Scene) -> Result<()> {
        let (root, info) = (Node::root(Path::new("dst")), scene.source.info);
        let base = DestDir::existing(lander.disk, lander.disk.root(), root, None, lander.policy)?;
        let above = lander.top(pair(Src { info, node: Node::root(Path::new("src")) }, base, false));
        let name = scene.source.name.as_name();
        let dst = lander.enter_top(&above.dst, name, &info)?;
        let mut walk = Walk { lander, tasks: Vec::new() };
        walk.entered(Src { info, node: above.src.node.below(name) }, dst, &above, &scene.source);
        let mut rng = Rng(scene.order);
        while !walk.tasks.is_empty() {
            let dir = walk.tasks.iter().position(|task| matches!(task, Task::Dir(..)));
            let at = match scene.order {
                DIRS_FIRST => dir.unwrap_or(0),
                _ => rng.below(walk.tasks.len() as u64) as usize,
            };
            let task = walk.tasks.swap_remove(at);
            walk.step(task);
        }
        lander.release(&mut (), above);
        lander.publish_group(&mut ());
        Ok(())
    }

    // ---- What must hold ----

    /// What may be missing in a directory that is there.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Missing {
        /// Nothing, where it appears with everything in it.
        Nothing,
        /// What could not be landed, which was told.
        Failed,
    }

    /// R1, R2, and R9 of every name of a tree.
    fn names_hold(image: &Image, scene: &Scene, missing: Missing) -> Found {
        match image.id_at(&[TOP]) {
            Some(top) => holds_in(image, top, &scene.source, scene, missing),
            None if scene.before == Before::Directory => {
                Err("R1: the directory that was there is gone".into())
            }
            None => Ok(()),
        }
    }

    fn holds_in(image: &Image, id: Id, source: &SourceDir, scene: &Scene, missing: Missing) -> Found {
        let names = &image.nodes[&id].names;
        let is_merged = std::ptr::eq(source, &scene.source) && scene.before != Before::Nothing;
        let whole = scene.appears_whole() && !is_merged && missing == Missing::Nothing;
        for file in &source.files {
            let is_over = is_merged && OLD_NAMES.iter().any(|name| name.as_bytes() == file.name.bytes());
            let Some(node) = names.get(file.name.bytes()).map(|id| &image.nodes[id]) else {
                let was_there = is_over && scene.before == Before::Directory;
                if whole && !file.is_second || was_there {
                    return Err(format!("R1: a directory is there without {:?}", file.name));
                }
                continue;
            };
            let is_new = *node.data == file.bytes
                && (!scene.is_durable() || node.mtime == file.info.mtime && node.mode == file.info.mode);
            let is_old = is_over && *node.data == scene.old();
            if !is_new && !is_old {
                return Err(format!("R1: {:?} is {} bytes of something", file.name, node.data.len()));
            }
        }
        for dir in &source.dirs {
            if let Some(id) = names.get(dir.name.bytes()) {
                holds_in(image, *id, dir, scene, missing)?;
            }
        }
        Ok(())
    }

    /// What exit 0 says: all is there, sealed.
    fn is_complete(image: &Image, scene: &Scene) -> Found {
        let top = image.id_at(&[TOP]).ok_or("the top is not there")?;
        names_hold(image, scene, Missing::Nothing)?;
        complete_in(image, top, &scene.source, true)?;
        let one = [[&b"one"[..], b"second"], [b"one", b"d"]];
        for (name, [dir, other]) in [&b"b"[..], LINKED.as_bytes()].into_iter().zip(one) {
            if image.id_at(&[TOP, name]) != image.id_at(&[TOP, dir, other]) {
                return Err("two names of one file are two files".into());
            }
        }
        Ok(())
    }

    fn complete_in(image: &Image, id: Id, source: &SourceDir, sealed: bool) -> Found {
        let node = &image.nodes[&id];
        if sealed && (node.mode, node.mtime) != (source.info.mode, source.info.mtime) {
            return Err(format!(
                "{:?} has mode {:o} and the time {}, and its source {:o} and {}",
                source.name, node.mode, node.mtime.sec, source.info.mode, source.info.mtime.sec
            ));
        }
        for file in &source.files {
            let there = node.names.get(file.name.bytes()).map(|id| &image.nodes[id]);
            if there.is_none_or(|n| *n.data != file.bytes || n.mtime != file.info.mtime) {
                return Err(format!("{:?} is not there", file.name));
            }
        }
        for dir in &source.dirs {
            let inner = node.names.get(dir.name.bytes()).ok_or(format!("{:?} is not there", dir.name))?;
            // Only of the topmost one a mark is taken away, which a crash may come between.
            complete_in(image, *inner, dir, true)?;
        }
        Ok(())
    }

    /// R8: nothing is left that the next run would not find.
    fn no_litter(image: &Image) -> Found {
        match image.all_names().iter().find(|n| n.starts_with(LITTER)) {
            Some(name) => Err(format!("R8: {:?} is left", String::from_utf8_lossy(name))),
            None => Ok(()),
        }
    }

    /// Whether the same command would mean the directory that is there.
    fn is_marked(image: &Image, scene: &Scene) -> bool {
        let Some(id) = image.id_at(&[TOP]) else { return false };
        let mark = Home::of(&image.info(id), id, true).tree().unwrap();
        let model = Model::boot(image.clone());
        let dir = model.open_dir(&model.root(), scene.source.name.as_name()).unwrap();
        image.nodes[&id].names.contains_key(mark.bytes()) && tree::is_marked(&model, &dir, &scene.source.info)
    }

    /// R8: what a run that marks has made is marked until all of it is there: without the mark, the same command would
    /// mean another directory.
    fn mark_holds(image: &Image, scene: &Scene) -> Found {
        let marks = scene.verb != Verb::Copy && scene.before == Before::Nothing;
        let Some(top) = image.id_at(&[TOP]).filter(|_| marks) else { return Ok(()) };
        if is_marked(image, scene) {
            return Ok(());
        }
        complete_in(image, top, &scene.source, false).map_err(|e| format!("R8: the mark is gone, and {e}"))
    }

    /// R7: what is gone at the source is at the destination, whatever happens.
    fn taken_is_there(image: &Image, scene: &Scene, taken: &[Vec<Vec<u8>>]) -> Found {
        for path in taken {
            let names: Vec<&[u8]> = path.iter().map(Vec::as_slice).collect();
            let source = file_at(&scene.source, &names[1..]);
            if image.at(&names).is_none_or(|node| *node.data != source.bytes) {
                return Err(format!("R7: {:?} is gone at the source and not here", source.name));
            }
        }
        Ok(())
    }

    fn file_at<'s>(source: &'s SourceDir, path: &[&[u8]]) -> &'s SourceFile {
        match path {
            [name] => source.files.iter().find(|f| f.name.bytes() == *name).unwrap(),
            [name, rest @ ..] => file_at(source.dirs.iter().find(|d| d.name.bytes() == *name).unwrap(), rest),
            [] => unreachable!("a file has a name"),
        }
    }

    /// R9 alone, where nothing was asked to be durable: what was replaced is old or new.
    fn replaced_holds(image: &Image, scene: &Scene) -> Found {
        if scene.before != Before::Directory {
            return Ok(());
        }
        for name in OLD_NAMES {
            let new = &file_at(&scene.source, &[name.as_bytes()]).bytes;
            match image.at(&[TOP, name.as_bytes()]) {
                Some(node) if *node.data == *new || *node.data == scene.old() => {}
                other => {
                    let there = other.map(|n| n.data.len());
                    return Err(format!("R9: what was replaced by {name} is {there:?} bytes of something"));
                }
            }
        }
        Ok(())
    }

    /// Everything that must hold at any moment: as programs see it, and after a power cut. Returns the states that the
    /// machine may come up with.
    fn look(model: &Model, scene: &Scene, ran: &Ran, missing: Missing, rng: &mut Rng) -> Found<Vec<Model>> {
        let cached = model.cached();
        names_hold(&cached, scene, missing)?;
        mark_holds(&cached, scene)?;
        taken_is_there(&cached, scene, &ran.taken)?;
        if ran.told.is_ok() {
            is_complete(&cached, scene).map_err(|e| format!("exit 0, and {e}"))?;
            no_litter(&cached)?;
        }
        let mut next = vec![model.killed()];
        for image in model.after_power_cut(rng, 8) {
            let told = |e: String| format!("after a power cut: {e}");
            replaced_holds(&image, scene).map_err(told)?;
            taken_is_there(&image, scene, &ran.taken).map_err(told)?;
            if scene.is_durable() {
                names_hold(&image, scene, missing).map_err(told)?;
                mark_holds(&image, scene).map_err(told)?;
                if ran.told.is_ok() {
                    is_complete(&image, scene).map_err(|e| format!("R3: exit 0, after a power cut {e}"))?;
                    no_litter(&image).map_err(told)?;
                }
                next.push(Model::boot(image));
            }
        }
        Ok(next)
    }

    /// The same command again, on what came back.
    fn goes_on(next: &Model, scene: &Scene, taken: &[Vec<Vec<u8>>]) -> Found {
        let cached = next.cached();
        let marks = scene.verb != Verb::Copy && scene.before == Before::Nothing;
        if !taken.is_empty() || marks && cached.id_at(&[TOP]).is_some() && !is_marked(&cached, scene) {
            return Ok(()); // part of the source is gone, or all is there and the command means something else
        }
        run(next, scene).told.map_err(|e| format!("the next run fails: {e}"))?;
        is_complete(&next.cached(), scene).map_err(|e| format!("after the next run {e}"))?;
        no_litter(&next.cached())
    }

    fn cut_everywhere(scene: &Scene, lie: Option<Lie>) -> Proof {
        let mut rng = Rng(21);
        let clean = scene.disk();
        clean.trouble(Trouble { lie, ..Trouble::default() });
        let ran = run(&clean, scene);
        ran.told.clone()?;
        let mut seen = look(&clean, scene, &ran, Missing::Nothing, &mut rng)?.len() as u64;
        // A proof that looks for its fault takes all.
        let tried = |cut: &u64| lie.is_some() || in_slice((cut + scene.turn()) as usize, 4);
        for cut in (1..=clean.steps() + 1).filter(tried) {
            let place = |e: String| format!("cut at step {cut}: {e}");
            let model = scene.disk();
            model.trouble(Trouble { cut_at: Some(cut), fail_at: None, lie });
            let ran = run(&model, scene);
            for next in look(&model, scene, &ran, Missing::Nothing, &mut rng).map_err(place)? {
                seen += 1;
                goes_on(&next, scene, &ran.taken).map_err(place)?;
            }
        }
        Ok(seen)
    }

    fn scenes() -> impl Iterator<Item = Scene> {
        let all = [
            (Verb::Copy, Durability::Cache, Before::Nothing),
            (Verb::Copy, Durability::Cache, Before::Directory),
            (Verb::Copy, Durability::Medium, Before::Nothing),
            (Verb::Copy, Durability::Medium, Before::Directory),
            (Verb::Copy, Durability::Cache, Before::Meanwhile),
            (Verb::Copy, Durability::Medium, Before::Meanwhile),
            (Verb::Resumable, Durability::Medium, Before::Nothing),
            (Verb::Resumable, Durability::Medium, Before::Directory),
            (Verb::Move, Durability::Cache, Before::Nothing),
            (Verb::Move, Durability::Cache, Before::Directory),
            (Verb::Move, Durability::Cache, Before::Meanwhile),
        ];
        all.into_iter().flat_map(|(verb, durability, before)| {
            (0..2).map(move |order| Scene::new(verb, durability, before, order))
        })
    }

    fn shown(scene: &Scene) -> String {
        let Scene { verb, durability, before, order, .. } = scene;
        format!("{verb:?}, {durability:?}, {before:?}, order {order}")
    }

    #[test]
    fn a_tree_survives_a_cut_after_every_step() {
        let mut seen = 0;
        for scene in scenes() {
            seen += cut_everywhere(&scene, None).unwrap_or_else(|e| panic!("{}: {e}", shown(&scene)));
        }
        println!("trees: {seen} states");
    }

    #[test]
    fn every_call_of_a_tree_fails_once() {
        let mut rng = Rng(23);
        let mut seen = 0;
        for scene in scenes() {
            let clean = scene.disk();
            run(&clean, &scene).told.unwrap();
            for code in [errno::EIO, errno::ENOSPC] {
                for step in (1..=clean.steps())
                    .filter(|step| in_slice((step + code as u64 + scene.turn()) as usize, 4))
                {
                    let model = scene.disk();
                    model.trouble(Trouble { fail_at: Some((step, code)), ..Trouble::default() });
                    let ran = run(&model, &scene);
                    let call = model.failed().unwrap_or("nothing");
                    let place = |e: String| -> String {
                        format!("{}: '{call}' failed at step {step}: {e}", shown(&scene))
                    };
                    let next = look(&model, &scene, &ran, Missing::Failed, &mut rng)
                        .unwrap_or_else(|e| panic!("{}", place(e)));
                    for next in next {
                        seen += 1;
                        goes_on(&next, &scene, &ran.taken).unwrap_or_else(|e| panic!("{}", place(e)));
                    }
                }
            }
        }
        println!("trees, every call failed: {seen} states");
    }

    fn has_new(asked: &Asked, name: &[u8]) -> bool {
        asked.new_names.iter().any(|n| n == name)
    }

    /// Leaves out one sync of a tree.
    #[test]
    fn without_any_one_sync_of_a_tree_the_proof_fails() {
        let new = |verb| Scene::new(verb, Durability::Medium, Before::Nothing, 0);
        let there = |durability| Scene::new(Verb::Copy, durability, Before::Directory, 0);
        let without: [(&str, Scene, Lie); 7] = [
            ("syncfs before a tree is published", new(Verb::Copy), |a| {
                a.what == What::All && !has_new(a, TOP)
            }),
            ("syncfs after a tree is published", new(Verb::Copy), |a| a.what == What::All && has_new(a, TOP)),
            ("fsync of the directory with a mark before it is published", new(Verb::Resumable), |a| {
                a.what == What::Dir && !has_new(a, TOP)
            }),
            ("syncfs before marks are taken away", new(Verb::Resumable), |a| a.what == What::All),
            ("fdatasync of what replaces a file", there(Durability::Cache), |a| a.what == What::Data),
            ("fsync of what replaces one as its further name", there(Durability::Cache), |a| {
                a.what == What::File
            }),
            ("syncfs before a source is taken away", new(Verb::Move), |a| {
                a.what == What::All && has_new(a, TOP)
            }),
        ];
        for (what, scene, lie) in without {
            let clean = scene.disk();
            clean.trouble(Trouble { lie: Some(lie), ..Trouble::default() });
            run(&clean, &scene).told.unwrap();
            assert!(clean.lied() > 0, "{what}: never asked for");
            match cut_everywhere(&scene, Some(lie)) {
                Err(found) => println!("without {what}: {found}"),
                Ok(states) => panic!("without {what} nothing is found in {states} states"),
            }
        }
    }

    /// R5: after a sync of the file system that failed no further directory gets its name, and no source is taken away.
    #[test]
    fn a_directory_that_a_failed_sync_may_have_lost_never_appears() {
        for verb in [Verb::Copy, Verb::Move] {
            let scene = Scene::new(verb, Durability::Medium, Before::Nothing, 1);
            let clean = scene.disk();
            run(&clean, &scene).told.unwrap();
            let mut syncs = 0;
            for step in 1..=clean.steps() {
                let model = scene.disk();
                model.trouble(Trouble { fail_at: Some((step, errno::EIO)), ..Trouble::default() });
                let ran = run(&model, &scene);
                if model.failed() == Some("sync all") {
                    let top = model.cached().id_at(&[TOP]).is_some();
                    assert!(ran.told.is_err(), "{verb:?}, step {step}");
                    assert!(ran.taken.is_empty() || syncs == 2, "{verb:?}, step {step}");
                    // The first sync is the one before it is published, the second the one before sources are taken away.
                    assert_eq!(top, syncs > 0, "{verb:?}, step {step}");
                    syncs += 1;
                }
            }
            assert!(syncs > 1, "{verb:?}: {syncs}");
        }
    }

    #[test]
    fn the_tree_is_large_enough_to_have_something_in_every_place() {
        let scene = Scene::new(Verb::Resumable, Durability::Medium, Before::Nothing, 0);
        assert!(scene.source.count() > 10 && scene.source.files.len() > BATCH);
        assert_eq!(DEV, Model::new().cached().info(ROOT).dev);
    }
}
