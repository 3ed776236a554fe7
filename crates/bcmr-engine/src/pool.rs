//! Workers over tasks, where a task may leave more tasks behind.
//!
//! Must not know what a task is. The calling thread is the first worker; others are started only once there is
//! something for them to do, so that copying one small file starts no thread. Each worker takes the newest of the tasks that it
//! left itself: depth before breadth keeps few directories open and the stack short. One that has none takes what waits
//! longest of another's, so that workers are in parts of a tree that are far from each other, and seldom meet at a lock of
//! the file system. Or tasks have an order, and what they found is passed on in it, whichever worker is done first.

use crate::ordered::{Seat, TaskOrder};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;

/// The number of the calling thread.
const FIRST: usize = 0;

/// Tasks that nobody does yet.
enum Tasks<T, F> {
    /// Of each worker, by its number, the newest last; and those that wait until no other is left or running elsewhere
    /// could produce one.
    Newest { stacks: Vec<VecDeque<T>>, later: Vec<T> },
    /// In their order, with those that are being done.
    InOrder(TaskOrder<T, F>),
}

impl<T, F> Tasks<T, F> {
    /// Leaves a task of a worker.
    fn push(&mut self, worker: usize, behind: Option<Seat>, task: T) {
        match self {
            Tasks::Newest { stacks, .. } => {
                if stacks.len() <= worker {
                    stacks.resize_with(worker + 1, VecDeque::new);
                }
                if let Some(stack) = stacks.get_mut(worker) {
                    stack.push_back(task);
                }
            }
            Tasks::InOrder(order) => order.push(behind, task),
        }
    }

    /// A task for a worker.
    fn take(&mut self, worker: usize) -> Option<(Option<Seat>, T)> {
        match self {
            Tasks::Newest { stacks, later } => {
                let own = stacks.get_mut(worker).and_then(VecDeque::pop_back);
                let longest = || stacks.iter_mut().max_by_key(|stack| stack.len())?.pop_front();
                Some((None, own.or_else(longest).or_else(|| later.pop())?))
            }
            Tasks::InOrder(order) => order.take().map(|(seat, task)| (Some(seat), task)),
        }
    }

    /// Whether an ordinary task waits.
    fn is_waiting(&self) -> bool {
        match self {
            Tasks::Newest { stacks, .. } => !stacks.iter().all(VecDeque::is_empty),
            Tasks::InOrder(order) => order.is_waiting(),
        }
    }

    fn is_empty(&self) -> bool {
        let is_later = matches!(self, Tasks::Newest { later, .. } if !later.is_empty());
        !is_later && !self.is_waiting()
    }
}

struct PoolState<T, F> {
    tasks: Tasks<T, F>,
    /// Workers that are in the middle of a task.
    busy: usize,
    /// Workers asleep for want of a task.
    idle: usize,
    /// Threads started, the calling one included.
    started: usize,
    /// A worker is passing findings on.
    telling: bool,
    /// Workers that wait until nothing is before their task.
    in_line: usize,
}

/// Tasks and those who work on them; an `F` is what tasks of a pool with an order find.
pub(crate) struct Pool<T, F = ()> {
    state: Mutex<PoolState<T, F>>,
    wake: Condvar,
    /// Something was passed on.
    told: Condvar,
    jobs: usize,
}

impl<T: Send, F: Send> Pool<T, F> {
    /// For up to `jobs` workers, at least one; a worker's newest task first.
    pub(crate) fn new(jobs: usize) -> Pool<T, F> {
        Pool::of(jobs, Tasks::Newest { stacks: Vec::new(), later: Vec::new() })
    }

    /// The same with an order: tasks that a task leaves follow it, before those that followed it already.
    pub(crate) fn in_order(jobs: usize) -> Pool<T, F> {
        Pool::of(jobs, Tasks::InOrder(TaskOrder::new()))
    }

    fn of(jobs: usize, tasks: Tasks<T, F>) -> Pool<T, F> {
        let state = PoolState { tasks, busy: 0, idle: 0, started: 0, telling: false, in_line: 0 };
        Pool { state: Mutex::new(state), wake: Condvar::new(), told: Condvar::new(), jobs: jobs.max(1) }
    }

    fn state(&self) -> MutexGuard<'_, PoolState<T, F>> {
        // A worker that panicked left the counters whole: they change only in this file, around no foreign code.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a task before the work begins; it is taken before those that were added before it.
    pub(crate) fn push(&self, task: T) {
        self.state().tasks.push(FIRST, None, task);
    }

    /// Works until no task is left. `worker` makes what each thread keeps for itself; `step` does one task and may
    /// add others through the [`Hands`] it is given.
    pub(crate) fn run<W>(
        &self,
        worker: impl Fn() -> W + Sync,
        step: impl Fn(&Hands<'_, T, F>, &mut W, T) + Sync,
    ) {
        let step = |hands: &Hands<'_, T, F>, own: &mut W, task| {
            step(hands, own, task);
            Vec::new()
        };
        self.run_telling(worker, step, |_| {});
    }

    /// The same, where `step` returns what a task found and `tell` passes it on: in the order of tasks, one call at a time.
    pub(crate) fn run_telling<W>(
        &self,
        worker: impl Fn() -> W + Sync,
        step: impl Fn(&Hands<'_, T, F>, &mut W, T) -> Vec<F> + Sync,
        tell: impl Fn(F) + Sync,
    ) {
        std::thread::scope(|scope| {
            self.state().started = 1;
            let start = |id| start(scope, self, id, &worker, &step, &tell);
            self.work(FIRST, &mut worker(), &step, &tell, &start);
        });
    }

    fn work<W>(
        &self,
        id: usize,
        own: &mut W,
        step: &(impl Fn(&Hands<'_, T, F>, &mut W, T) -> Vec<F> + Sync),
        tell: &(impl Fn(F) + Sync),
        start: &dyn Fn(usize) -> bool,
    ) {
        let mut state = self.state();
        loop {
            if let Some((seat, task)) = state.tasks.take(id) {
                state.busy += 1;
                let more = state.tasks.is_waiting();
                drop(state);
                let hands = Hands { pool: self, id, start, seat };
                if more {
                    hands.call_for_help();
                }
                let mut guard = Busy { pool: self, seat };
                let found = step(&hands, own, task);
                if guard.seat.take().is_some() {
                    self.done(seat, found, tell);
                }
                drop(guard);
                state = self.state();
            } else if state.busy == 0 {
                drop(state);
                self.wake.notify_all();
                return;
            } else {
                state.idle += 1;
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }

    /// A task of an order is done: what it found is passed on as soon as nothing is before it.
    fn done(&self, seat: Option<Seat>, found: Vec<F>, tell: &impl Fn(F)) {
        let mut state = self.state();
        let (Tasks::InOrder(order), Some(seat)) = (&mut state.tasks, seat) else { return };
        order.done(seat, found);
        // The worker that is at it passes on what has become ready meanwhile.
        while !state.telling {
            let Tasks::InOrder(order) = &mut state.tasks else { return };
            let ready = order.ready();
            if ready.is_empty() {
                break;
            }
            state.telling = true;
            drop(state);
            let guard = Telling { pool: self };
            ready.into_iter().for_each(tell);
            drop(guard);
            state = self.state();
        }
        let (sleeps, in_line) = (state.idle > 0 && state.tasks.is_waiting(), state.in_line > 0);
        drop(state);
        if in_line {
            self.told.notify_all();
        }
        // A task that might not be taken before may be now.
        if sleeps {
            self.wake.notify_all();
        }
    }
}

/// Starts one more worker on `scope`; it may start others in its turn.
fn start<'scope, 'env, T: Send, F: Send, W>(
    scope: &'scope Scope<'scope, 'env>,
    pool: &'env Pool<T, F>,
    id: usize,
    worker: &'env (impl Fn() -> W + Sync),
    step: &'env (impl Fn(&Hands<'_, T, F>, &mut W, T) -> Vec<F> + Sync),
    tell: &'env (impl Fn(F) + Sync),
) -> bool {
    std::thread::Builder::new()
        .spawn_scoped(scope, move || {
            pool.work(id, &mut worker(), step, tell, &|id| start(scope, pool, id, worker, step, tell));
        })
        .is_ok()
}

/// How a running task reaches the others.
pub(crate) struct Hands<'p, T: Send, F: Send = ()> {
    pool: &'p Pool<T, F>,
    /// Whose they are.
    id: usize,
    start: &'p dyn Fn(usize) -> bool,
    /// Where the task is, if tasks have an order.
    seat: Option<Seat>,
}

impl<T: Send, F: Send> Hands<'_, T, F> {
    /// Adds a task.
    pub(crate) fn push(&self, task: T) {
        self.pool.state().tasks.push(self.id, self.seat, task);
        self.call_for_help();
    }

    /// Adds tasks, the last of them to be taken first.
    pub(crate) fn push_all(&self, tasks: impl IntoIterator<Item = T>) {
        let mut state = self.pool.state();
        let mut added = 0;
        for task in tasks {
            state.tasks.push(self.id, self.seat, task);
            added += 1;
        }
        drop(state);
        for _ in 0..added.min(self.pool.jobs) {
            self.call_for_help();
        }
    }

    /// Adds a task that is taken only when no ordinary one is waiting; where tasks have an order, in it.
    pub(crate) fn push_later(&self, task: T) {
        match &mut self.pool.state().tasks {
            Tasks::Newest { later, .. } => later.push(task),
            Tasks::InOrder(order) => order.push(self.seat, task),
        }
        self.call_for_help();
    }

    /// Takes back what waits longest of tasks that no worker has taken, `most` of those that `fits`, and half of them at most.
    pub(crate) fn oldest(&self, most: usize, fits: impl Fn(&T) -> bool) -> Vec<T> {
        let mut state = self.pool.state();
        let Tasks::Newest { stacks, .. } = &mut state.tasks else { return Vec::new() };
        let most = most.min(stacks.iter().flatten().filter(|task| fits(task)).count() / 2);
        let mut taken = Vec::with_capacity(most);
        for stack in stacks {
            while taken.len() < most
                && let Some(at) = stack.iter().position(&fits)
            {
                taken.extend(stack.remove(at));
            }
        }
        taken
    }

    /// Whether a worker would take a task at once: time to split what one holds.
    pub(crate) fn hungry(&self) -> bool {
        let state = self.pool.state();
        !state.tasks.is_waiting() && (state.idle > 0 || state.started < self.pool.jobs)
    }

    /// Whether a worker that becomes free would find no task: time to leave one ahead of that, so that it need not sleep.
    pub(crate) fn runs_dry(&self) -> bool {
        self.pool.jobs > 1 && !self.pool.state().tasks.is_waiting()
    }

    /// Waits until all that tasks before this one found is passed on: then this one may pass on what it found so far.
    /// Some task before it is always being done: the first of all is taken by each worker that looks for one.
    pub(crate) fn wait_for_turn(&self) {
        let Some(seat) = self.seat else { return };
        let mut state = self.pool.state();
        let is_before = |state: &PoolState<T, F>| match &state.tasks {
            Tasks::InOrder(order) => state.telling || !order.is_first(seat),
            Tasks::Newest { .. } => false,
        };
        while is_before(&state) {
            state.in_line += 1;
            state = self.pool.told.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.in_line -= 1;
        }
    }

    /// Wakes a sleeper, or starts one more worker where the limit allows and something is waiting.
    fn call_for_help(&self) {
        let mut state = self.pool.state();
        if state.idle > 0 {
            drop(state);
            self.pool.wake.notify_one();
        } else if state.started < self.pool.jobs && !state.tasks.is_empty() {
            let id = state.started;
            state.started += 1;
            drop(state);
            // A thread that cannot be had (a limit on processes) is no error: those who are there do the work.
            if !(self.start)(id) {
                self.pool.state().started -= 1;
            }
        }
    }
}

/// Counts a worker as busy for as long as it lives, also when its task panics: the others must not wait for ever.
struct Busy<'p, T: Send, F: Send> {
    pool: &'p Pool<T, F>,
    /// Of a task that is not done.
    seat: Option<Seat>,
}

impl<T: Send, F: Send> Drop for Busy<'_, T, F> {
    fn drop(&mut self) {
        if let Some(seat) = self.seat.take() {
            self.pool.done(Some(seat), Vec::new(), &|_| {});
        }
        let mut state = self.pool.state();
        state.busy -= 1;
        if state.busy == 0 && state.idle > 0 {
            self.pool.wake.notify_all();
        }
    }
}

/// Findings are being passed on for as long as it lives, also when that panics.
struct Telling<'p, T: Send, F: Send> {
    pool: &'p Pool<T, F>,
}

impl<T: Send, F: Send> Drop for Telling<'_, T, F> {
    fn drop(&mut self) {
        self.pool.state().telling = false;
        self.pool.told.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_task_and_every_child_is_done_once() {
        for jobs in [1, 2, 5] {
            let pool: Pool<u32> = Pool::new(jobs);
            let done = AtomicUsize::new(0);
            pool.push(6);
            pool.run(
                || (),
                |hands, (), depth| {
                    done.fetch_add(1, Ordering::Relaxed);
                    if depth > 0 {
                        hands.push_all([depth - 1, depth - 1]);
                    }
                },
            );
            assert_eq!(done.load(Ordering::Relaxed), 127, "{jobs} jobs");
        }
    }

    #[test]
    fn later_tasks_come_after_all_ordinary_ones() {
        let pool: Pool<u32> = Pool::new(1);
        let order = Mutex::new(Vec::new());
        pool.push(9);
        pool.run(
            || (),
            |hands, (), n| {
                order.lock().unwrap().push(n);
                if n == 9 {
                    hands.push_later(0);
                    hands.push(8);
                }
            },
        );
        assert_eq!(*order.lock().unwrap(), [9, 8, 0]);
    }
    /// Half of what waits may be taken back, what waits longest first, and only what fits; the rest is done.
    #[test]
    fn what_waits_longest_is_taken_back() {
        let pool: Pool<u32> = Pool::new(1);
        let (order, back) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        pool.push(0);
        pool.run(
            || (),
            |hands, (), n| {
                order.lock().unwrap().push(n);
                if n == 0 {
                    hands.push_all([1, 2, 3, 4, 5, 6, 7]);
                    back.lock().unwrap().extend(hands.oldest(2, |n| n % 2 == 1));
                    back.lock().unwrap().extend(hands.oldest(9, |n| n % 2 == 0));
                    back.lock().unwrap().extend(hands.oldest(9, |n| *n == 7));
                }
            },
        );
        assert_eq!(*back.lock().unwrap(), [1, 3, 2]);
        assert_eq!(*order.lock().unwrap(), [0, 7, 6, 5, 4]);
    }

    /// A worker without tasks takes what waits longest of another's, and goes on with what it left itself.
    #[test]
    fn workers_are_far_from_each_other() {
        let pool: Pool<u32> = Pool::new(2);
        let by = Mutex::new([Vec::new(), Vec::new()]);
        // Both are in the middle of a task each time, so that neither does the other's work.
        let both = std::sync::Barrier::new(2);
        pool.push(0);
        pool.run(
            || (),
            |hands, (), n| {
                by.lock().unwrap()[hands.id].push(n);
                match n {
                    0 => hands.push_all([1, 2, 3]),
                    1 | 3 => {
                        hands.push_all([n * 10, n * 10 + 1]);
                        both.wait();
                    }
                    2 => {}
                    _ => {
                        both.wait();
                    }
                }
            },
        );
        let by = by.into_inner().unwrap();
        let [of_first, of_second] = &by;
        assert!(of_first.starts_with(&[0, 3, 31, 30]) && of_second.starts_with(&[1, 11, 10]), "{by:?}");
    }

    /// One task may wait ahead of those that are done, also while every worker is busy; alone, nothing is left for others.
    #[test]
    fn one_task_waits_ahead_and_no_more() {
        for (jobs, wanted) in [(1, [false, false]), (2, [true, false])] {
            let pool: Pool<u32> = Pool::new(jobs);
            let dry = Mutex::new(None);
            // Both workers are in the middle of a task, so that neither takes what is left ahead.
            let busy = std::sync::Barrier::new(jobs);
            pool.push(1);
            pool.run(
                || (),
                |hands, (), n| match n {
                    1 if jobs > 1 => {
                        hands.push(2);
                        busy.wait();
                        let first = hands.runs_dry();
                        hands.push(0);
                        dry.lock().unwrap().replace([first, hands.runs_dry()]);
                        busy.wait();
                    }
                    1 => {
                        dry.lock().unwrap().replace([hands.runs_dry(); 2]);
                    }
                    2 => {
                        busy.wait();
                        busy.wait();
                    }
                    _ => {}
                },
            );
            assert_eq!(dry.into_inner().unwrap(), Some(wanted), "{jobs} jobs");
        }
    }
    /// Tasks that are a tree: what was found comes in its order with many workers as with one, also from a task that
    /// passes on what it found before it is done.
    #[test]
    fn what_was_found_is_told_in_the_order_of_tasks() {
        let mut first = None;
        for jobs in [1, 2, 7] {
            let pool: Pool<String, String> = Pool::in_order(jobs);
            let told = Mutex::new(Vec::new());
            let tell = |found: String| told.lock().unwrap().push(found);
            pool.push("b".to_owned());
            pool.push("a".to_owned());
            let step = |hands: &Hands<'_, String, String>, (): &mut (), task: String| {
                if task.len() < 7 {
                    hands.push_all((0..3).rev().map(|n| format!("{task}{n}")));
                }
                if !task.len().is_multiple_of(3) {
                    return vec![task];
                }
                hands.wait_for_turn();
                tell(task.clone());
                vec![format!("{task}-")]
            };
            pool.run_telling(|| (), step, tell);
            let told = told.into_inner().unwrap();
            assert!(told.len() > 1000 && told.is_sorted(), "{jobs} jobs");
            assert_eq!(*first.get_or_insert_with(|| told.clone()), told, "{jobs} jobs");
        }
    }
}
