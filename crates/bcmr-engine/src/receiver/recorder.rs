//! Records what is copied of a stage while more of it is copied: R4.
//!
//! Must not know where content comes from, nor what the next run makes of a record. A record is written when a sync of all
//! that it claims has returned 0, and copying is never further ahead of the records than a checkpoint, so that a crash
//! costs no more than that.

use crate::blocks::{BLOCK_BYTES, Cv};
use crate::disk::{Fault, Files, Side};
use crate::error::Op;
use crate::receiver::session;
use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock};

/// Where the session file ends, and the checksum the next record goes on from.
#[derive(Clone, Copy)]
pub(crate) struct Log {
    pub(crate) bytes: u64,
    pub(crate) sum: [u8; 8],
}

/// What is recorded where.
pub(crate) struct Records<'a, D: Files> {
    pub(crate) disk: &'a D,
    pub(crate) stage: &'a D::File,
    pub(crate) session: &'a D::File,
    /// Bytes that the stage will have.
    pub(crate) size: u64,
    /// Told of every range that is recorded: where it begins, and its bytes.
    pub(crate) told: &'a (dyn Fn(u64, u64) + Sync),
}

/// How often something is recorded, and how far ahead of the records is copied; in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stride {
    step: u64,
    /// At least a step, or the copying threads would wait for ever.
    ahead: u64,
}

impl Stride {
    /// `behind`: a thread of its own records.
    fn of(checkpoint_bytes: u64, behind: bool) -> Stride {
        let blocks = (checkpoint_bytes / BLOCK_BYTES).max(1);
        // Five eighths are brought onto stable storage while three are copied: halves would do as well, with more records.
        let step = if behind { (blocks.saturating_mul(5) / 8).max(1) } else { blocks };
        Stride { step, ahead: blocks }
    }

    /// Up to which block is recorded now, when those from `recorded` to `whole` are copied and not yet recorded.
    fn due(self, recorded: u64, whole: u64, over: bool) -> Option<u64> {
        let end = if over { whole } else { whole - whole % self.step };
        (end > recorded).then_some(end)
    }

    /// The first block behind `block` with which a step begins.
    fn next_step(self, block: u64) -> u64 {
        block - block % self.step + self.step
    }

    /// The end of what may be copied at a time from `block` on: within a step, and within what is ahead of one.
    fn stretch(self, block: u64) -> u64 {
        let most = if self.ahead > self.step { self.ahead - self.step } else { self.step };
        self.next_step(block).min(block + most)
    }
}

struct State {
    log: Log,
    /// The values of what is recorded, from the first block on.
    recorded: Vec<Cv>,
    /// The blocks behind those, as far as they are copied; so many of them without a gap.
    copied: VecDeque<Option<Cv>>,
    whole: usize,
    stride: Stride,
    /// A thread of its own records; else the copying threads do.
    behind: bool,
    /// Somebody is recording.
    busy: bool,
    /// The copying threads have ended.
    over: bool,
    /// The copying threads are to end.
    stopped: bool,
    /// Why nothing is recorded any more.
    fault: Option<Fault>,
}

/// What is copied and what is recorded of one stage.
pub(crate) struct Recorder<'a, D: Files> {
    records: Records<'a, D>,
    checkpoint_bytes: u64,
    state: Mutex<State>,
    changed: Condvar,
    /// Held for reading while a thread may hear of an error of writing out: no sync need tell it again (R5).
    hearing: RwLock<()>,
}

/// Stops all threads when it is dropped, unless all went well: also when one panics.
pub(crate) struct Alarm<'r, 'a, D: Files> {
    of: &'r Recorder<'a, D>,
    armed: bool,
}

impl<D: Files> Alarm<'_, '_, D> {
    pub(crate) fn disarm(mut self) {
        self.armed = false;
    }
}

impl<D: Files> Drop for Alarm<'_, '_, D> {
    fn drop(&mut self) {
        if self.armed {
            self.of.state().stopped = true;
            self.of.changed.notify_all();
        }
    }
}

fn dest(op: Op) -> impl Fn(io::Error) -> Fault {
    move |e| Fault::os(Side::Dest, op, e)
}

impl<'a, D: Files> Recorder<'a, D> {
    /// Goes on behind `recorded`. Until [`Recorder::goes_behind`] the copying threads record.
    pub(crate) fn new(
        records: Records<'a, D>,
        log: Log,
        recorded: Vec<Cv>,
        checkpoint_bytes: u64,
    ) -> Recorder<'a, D> {
        let state = State {
            log,
            recorded,
            copied: VecDeque::new(),
            whole: 0,
            stride: Stride::of(checkpoint_bytes, false),
            behind: false,
            busy: false,
            over: false,
            stopped: false,
            fault: None,
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Recorder { records, checkpoint_bytes, state, changed, hearing: RwLock::new(()) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'g>(&self, state: MutexGuard<'g, State>) -> MutexGuard<'g, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread is in [`Recorder::work`]. Before anything is copied.
    pub(crate) fn goes_behind(&self) {
        let mut state = self.state();
        state.behind = true;
        state.stride = Stride::of(self.checkpoint_bytes, true);
    }

    pub(crate) fn alarm(&self) -> Alarm<'_, 'a, D> {
        Alarm { of: self, armed: true }
    }

    /// Waits until `block` may be copied; `false` when nothing is to be copied any more.
    pub(crate) fn room_for(&self, block: u64) -> bool {
        let mut state = self.state();
        while !state.stopped && block >= state.recorded.len() as u64 + state.stride.ahead {
            state = self.wait(state);
        }
        !state.stopped
    }

    /// Where the step that `block` is in ends; whether it begins there, too.
    pub(crate) fn step_of(&self, block: u64) -> (u64, bool) {
        let stride = self.state().stride;
        (stride.next_step(block), block.is_multiple_of(stride.step))
    }

    /// Up to which block one call may copy from `block` on, so that there is room for it while what is before is recorded.
    pub(crate) fn stretch_of(&self, block: u64) -> u64 {
        self.state().stride.stretch(block)
    }

    /// Starts writing out what was copied just now; `false` when that failed, which [`Recorder::finish`] tells.
    pub(crate) fn write_behind(&self, at: u64, bytes: u64) -> bool {
        let _hearing = self.hearing.read().unwrap_or_else(PoisonError::into_inner);
        match self.records.disk.write_behind(self.records.stage, at, bytes) {
            Ok(()) => true,
            Err(e) => {
                self.fail(dest(Op::Sync)(e));
                false
            }
        }
    }

    /// The blocks from `first` on are copied, and have these values. Whether to go on.
    pub(crate) fn copied(&self, first: u64, values: &[Cv]) -> bool {
        let mut state = self.state();
        let at = (first as usize).saturating_sub(state.recorded.len());
        if state.copied.len() < at + values.len() {
            state.copied.resize(at + values.len(), None);
        }
        for (slot, value) in state.copied.iter_mut().skip(at).zip(values) {
            *slot = Some(*value);
        }
        while matches!(state.copied.get(state.whole), Some(Some(_))) {
            state.whole += 1;
        }
        let behind = state.behind;
        drop(state);
        self.changed.notify_all();
        if !behind {
            self.record_due();
        }
        !self.state().stopped
    }

    /// Records what is due, until the copying threads have ended and all is recorded, or until it fails. `begin` is called
    /// for each record, and what it returns dropped at its end.
    pub(crate) fn work<G>(&self, begin: impl Fn() -> G) {
        let alarm = self.alarm();
        let mut state = self.state();
        while state.fault.is_none() {
            if let Some(values) = take(&mut state) {
                drop(state);
                let at_work = begin();
                self.record(&values);
                drop(at_work);
                state = self.state();
            } else if state.over {
                break;
            } else {
                state = self.wait(state);
            }
        }
        // The alarm looks at it as well.
        drop(state);
        alarm.disarm();
    }

    /// The copying threads have ended: what is whole can still be recorded, also of a copy that failed.
    pub(crate) fn over(&self) {
        let mut state = self.state();
        state.over = true;
        let behind = state.behind;
        drop(state);
        self.changed.notify_all();
        if !behind {
            self.record_due();
        }
    }

    /// The values of all that is recorded, once all threads have ended.
    ///
    /// # Errors
    /// What went wrong with recording.
    pub(crate) fn finish(self) -> Result<Vec<Cv>, Fault> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.fault.map_or(Ok(state.recorded), Err)
    }

    fn record_due(&self) {
        let taken = take(&mut self.state());
        if let Some(values) = taken {
            self.record(&values);
        }
    }

    fn fail(&self, fault: Fault) {
        let mut state = self.state();
        state.stopped = true;
        // R5: a failed sync weighs more than anything else, as it decides whether the stage may stay.
        match &state.fault {
            Some(first) if first.op == Op::Sync || fault.op != Op::Sync => {}
            _ => state.fault = Some(fault),
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Records the blocks behind the last recorded one, whose values these are.
    fn record(&self, values: &[Cv]) {
        let (first, log, behind) = {
            let state = self.state();
            (state.recorded.len() as u64, state.log, state.behind)
        };
        let at = first * BLOCK_BYTES;
        let bytes = ((first + values.len() as u64) * BLOCK_BYTES).min(self.records.size) - at;
        match self.put(at, bytes, values, log, behind) {
            Ok(Some(log)) => {
                (self.records.told)(at, bytes);
                let mut state = self.state();
                state.log = log;
                state.recorded.extend_from_slice(values);
                state.copied.drain(..values.len());
                state.whole -= values.len();
                state.busy = false;
                drop(state);
                self.changed.notify_all();
            }
            Ok(None) => {}
            Err(fault) => self.fail(fault),
        }
    }

    /// R4: stage onto stable storage, then the record, then the session onto stable storage. `None`: something failed
    /// meanwhile, and nothing is recorded any more.
    fn put(&self, at: u64, bytes: u64, values: &[Cv], log: Log, behind: bool) -> Result<Option<Log>, Fault> {
        let Records { disk, stage, session, .. } = self.records;
        // Other threads go on writing: what they write is not waited for.
        let synced = if behind { disk.sync_range(stage, at, bytes) } else { disk.sync_data(stage) };
        synced.map_err(dest(Op::Sync))?;
        // R5: a thread that has heard of an error before this sync returned has said so by now.
        drop(self.hearing.write().unwrap_or_else(PoisonError::into_inner));
        if self.state().fault.is_some() {
            return Ok(None);
        }
        let (record, sum) = session::encode_record(log.sum, values);
        disk.write_at(session, log.bytes, &record).map_err(dest(Op::WriteSessionOf))?;
        disk.sync_data(session).map_err(dest(Op::Sync))?;
        Ok(Some(Log { bytes: log.bytes + record.len() as u64, sum }))
    }
}

/// The values of what is to be recorded now, by the thread that asks.
fn take(state: &mut State) -> Option<Vec<Cv>> {
    if state.busy || state.fault.is_some() {
        return None;
    }
    let recorded = state.recorded.len() as u64;
    let end = state.stride.due(recorded, recorded + state.whole as u64, state.over)?;
    state.busy = true;
    Some(state.copied.iter().take((end - recorded) as usize).flatten().copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Dirs;
    use crate::disk::model::{Model, Trouble};
    use crate::receiver::session::decode;
    use fastcopy::dir::NameBuf;
    use fastcopy::errno;

    #[test]
    fn how_often_and_how_far_ahead() {
        // blocks of a checkpoint, a thread of its own records, blocks of a step
        let table = [
            (1, false, 1),
            (1, true, 1),
            (2, false, 2),
            (2, true, 1),
            (3, true, 1),
            (4, true, 2),
            (16, false, 16),
            (16, true, 10),
            (1 << 40, true, 5 << 37),
        ];
        for (blocks, behind, step) in table {
            // A crash costs one checkpoint, whichever thread records.
            let stride = Stride::of(blocks * BLOCK_BYTES, behind);
            assert_eq!(stride, Stride { step, ahead: blocks }, "{blocks} {behind}");
            assert!(stride.step <= stride.ahead, "they would wait for ever");
        }
        let stride = Stride { step: 10, ahead: 16 };
        // recorded, whole, over: up to where
        let table = [
            (0, 0, false, None),
            (0, 9, false, None),
            (0, 10, false, Some(10)),
            (0, 16, false, Some(10)),
            (10, 19, false, None),
            // A run that goes on may begin anywhere.
            (7, 9, false, None),
            (7, 13, false, Some(10)),
            (10, 13, true, Some(13)),
            (13, 13, true, None),
        ];
        for (recorded, whole, over, up_to) in table {
            assert_eq!(stride.due(recorded, whole, over), up_to, "{recorded} {whole} {over}");
        }
        assert_eq!([0, 7, 10, 13].map(|block| stride.next_step(block)), [10, 10, 20, 20]);
        assert_eq!([0, 6, 10, 13].map(|block| stride.stretch(block)), [6, 10, 16, 19]);
        assert_eq!(Stride { step: 16, ahead: 16 }.stretch(3), 16);
    }

    const BLOCKS: u64 = 12;

    /// A stage and a session on a model disk, with what `does` does to a recorder of checkpoints of four blocks; and how
    /// many blocks the session claims then.
    fn recorded(does: impl FnOnce(&Model, &Recorder<'_, Model>)) -> (Result<usize, Op>, usize) {
        let model = Model::new();
        let root = model.root();
        let [stage, session] = ["stage", "session"].map(|name| {
            let name = NameBuf::new(name.as_bytes()).unwrap();
            model.create_file(&root, name.as_name(), 0o600).unwrap()
        });
        let header = session::Header {
            options: 0,
            source: session::Identity {
                size: BLOCKS * BLOCK_BYTES,
                ..session::Identity::of(&Dirs::info(&model, &root).unwrap())
            },
            stage: (0, 0),
            name: b"stage".to_vec(),
        };
        let (bytes, sum) = session::encode_header(&header);
        model.write_at(&session, 0, &bytes).unwrap();
        let records = Records {
            disk: &model,
            stage: &stage,
            session: &session,
            size: BLOCKS * BLOCK_BYTES,
            told: &|_, _| (),
        };
        let log = Log { bytes: bytes.len() as u64, sum };
        let recorder = Recorder::new(records, log, Vec::new(), 4 * BLOCK_BYTES);
        does(&model, &recorder);
        recorder.over();
        let end = recorder.finish().map(|values| values.len()).map_err(|fault| fault.op);
        model.trouble(Trouble::default());
        let mut room = vec![0; 4096];
        let n = model.read_at(&session, 0, &mut room).unwrap();
        (end, decode(&room[..n]).unwrap().blocks.len())
    }

    #[test]
    fn what_is_whole_is_recorded_in_order_and_no_more() {
        let copied = |order: &'static [u64]| {
            recorded(|_, recorder| {
                order.iter().for_each(|block| assert!(recorder.copied(*block, &[[1; 32]])))
            })
        };
        for (order, claims) in [
            (&[0_u64, 1, 2, 3, 4][..], 5),
            (&[3, 2, 1, 0], 4),
            (&[1, 2, 3], 0),
            (&[0, 1, 3, 5, 4], 2),
            (&[], 0),
        ] {
            assert_eq!(copied(order), (Ok(claims), claims), "{order:?}");
        }
    }

    #[test]
    fn copying_is_not_further_ahead_than_a_checkpoint() {
        let went = recorded(|_, recorder| {
            recorder.goes_behind();
            std::thread::scope(|scope| {
                let (told, news) = std::sync::mpsc::channel();
                scope.spawn(move || {
                    for block in 0..BLOCKS {
                        if !recorder.room_for(block) || !recorder.copied(block, &[[1; 32]]) {
                            return;
                        }
                        told.send(block).unwrap();
                    }
                });
                // Nothing is recorded yet, so it stands at the fifth.
                assert_eq!(news.iter().take(4).last(), Some(3));
                assert!(news.try_recv().is_err());
                scope.spawn(|| recorder.work(|| ()));
                assert_eq!(news.iter().last(), Some(BLOCKS - 1));
                recorder.over();
            });
        });
        assert_eq!(went, (Ok(BLOCKS as usize), BLOCKS as usize));
    }

    /// R5: what could not be written out is never recorded, although a sync that comes later says yes.
    #[test]
    fn nothing_is_recorded_after_an_error_of_writing_out() {
        for behind in [false, true] {
            let went = recorded(|model, recorder| {
                let fails = model.steps() + 1;
                model.trouble(Trouble { fail_at: Some((fails, errno::EIO)), ..Trouble::default() });
                assert!(!recorder.write_behind(0, BLOCK_BYTES));
                if behind {
                    recorder.goes_behind();
                }
                assert!(!recorder.copied(0, &[[1; 32]; 4]));
                if behind {
                    recorder.work(|| ());
                }
                assert!(!recorder.room_for(4), "and nothing more is copied");
            });
            assert_eq!(went, (Err(Op::Sync), 0), "behind: {behind}");
        }
    }

    /// A sync that fails is told, whatever else is; and a thread that waits for room is woken.
    #[test]
    fn a_failed_sync_ends_it_for_all_threads() {
        let went = recorded(|model, recorder| {
            recorder.goes_behind();
            assert!(recorder.copied(0, &[[1; 32]; 4]));
            let fails = model.steps() + 1;
            model.trouble(Trouble { fail_at: Some((fails, errno::EIO)), ..Trouble::default() });
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| recorder.room_for(4));
                scope.spawn(|| recorder.work(|| ()));
                assert!(!waits.join().unwrap());
            });
        });
        assert_eq!(went, (Err(Op::Sync), 0));
        // The same for one that stops for a reason of its own, or panics.
        let went = recorded(|_, recorder| {
            recorder.goes_behind();
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| recorder.room_for(4));
                drop(recorder.alarm());
                assert!(!waits.join().unwrap());
            });
        });
        assert_eq!(went, (Ok(0), 0));
    }
}
