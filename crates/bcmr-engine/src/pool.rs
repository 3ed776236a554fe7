//! Workers over a stack of tasks, where a task may leave more tasks behind.
//!
//! Must not know what a task is. The calling thread is the first worker; others are started only once there is
//! something for them to do, so that copying one small file starts no thread. The newest task goes first: depth
//! before breadth keeps few directories open and the stack short.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;

struct PoolState<T> {
    /// Ordinary tasks, newest last.
    stack: Vec<T>,
    /// Tasks that wait until no ordinary one is left or running elsewhere could produce one.
    later: Vec<T>,
    /// Workers that are in the middle of a task.
    busy: usize,
    /// Workers asleep for want of a task.
    idle: usize,
    /// Threads started, the calling one included.
    started: usize,
}

/// A stack of tasks and those who work on it.
pub(crate) struct Pool<T> {
    state: Mutex<PoolState<T>>,
    wake: Condvar,
    jobs: usize,
}

impl<T: Send> Pool<T> {
    /// For up to `jobs` workers, at least one.
    pub(crate) fn new(jobs: usize) -> Pool<T> {
        let state = PoolState { stack: Vec::new(), later: Vec::new(), busy: 0, idle: 0, started: 0 };
        Pool { state: Mutex::new(state), wake: Condvar::new(), jobs: jobs.max(1) }
    }

    fn state(&self) -> MutexGuard<'_, PoolState<T>> {
        // A worker that panicked left the counters whole: they change only in this file, around no foreign code.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a task before the work begins.
    pub(crate) fn push(&self, task: T) {
        self.state().stack.push(task);
    }

    /// Works until no task is left. `worker` makes what each thread keeps for itself; `step` does one task and may
    /// add others through the [`Hands`] it is given.
    pub(crate) fn run<W>(
        &self,
        worker: impl Fn() -> W + Sync,
        step: impl Fn(&Hands<'_, T>, &mut W, T) + Sync,
    ) {
        std::thread::scope(|scope| {
            self.state().started = 1;
            self.work(&mut worker(), &step, &|| start(scope, self, &worker, &step));
        });
    }

    fn work<W>(
        &self,
        own: &mut W,
        step: &(impl Fn(&Hands<'_, T>, &mut W, T) + Sync),
        start: &dyn Fn() -> bool,
    ) {
        let hands = Hands { pool: self, start };
        let mut state = self.state();
        loop {
            if let Some(task) = state.stack.pop().or_else(|| state.later.pop()) {
                state.busy += 1;
                let more = !state.stack.is_empty();
                drop(state);
                if more {
                    hands.call_for_help();
                }
                let guard = Busy { pool: self };
                step(&hands, own, task);
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
}

/// Starts one more worker on `scope`; it may start others in its turn.
fn start<'scope, 'env, T: Send, W>(
    scope: &'scope Scope<'scope, 'env>,
    pool: &'env Pool<T>,
    worker: &'env (impl Fn() -> W + Sync),
    step: &'env (impl Fn(&Hands<'_, T>, &mut W, T) + Sync),
) -> bool {
    std::thread::Builder::new()
        .spawn_scoped(scope, move || {
            pool.work(&mut worker(), step, &|| start(scope, pool, worker, step));
        })
        .is_ok()
}

/// How a running task reaches the others.
pub(crate) struct Hands<'p, T: Send> {
    pool: &'p Pool<T>,
    start: &'p dyn Fn() -> bool,
}

impl<T: Send> Hands<'_, T> {
    /// Adds a task.
    pub(crate) fn push(&self, task: T) {
        self.pool.state().stack.push(task);
        self.call_for_help();
    }

    /// Adds tasks, the last of them to be taken first.
    pub(crate) fn push_all(&self, tasks: impl IntoIterator<Item = T>) {
        let mut state = self.pool.state();
        let before = state.stack.len();
        state.stack.extend(tasks);
        let added = state.stack.len() - before;
        drop(state);
        for _ in 0..added.min(self.pool.jobs) {
            self.call_for_help();
        }
    }

    /// Adds a task that is taken only when no ordinary one is waiting.
    pub(crate) fn push_later(&self, task: T) {
        self.pool.state().later.push(task);
        self.call_for_help();
    }

    /// Whether a worker would take a task at once: time to split what one holds.
    pub(crate) fn hungry(&self) -> bool {
        let state = self.pool.state();
        state.stack.is_empty() && (state.idle > 0 || state.started < self.pool.jobs)
    }

    /// Wakes a sleeper, or starts one more worker where the limit allows and something is waiting.
    fn call_for_help(&self) {
        let mut state = self.pool.state();
        if state.idle > 0 {
            drop(state);
            self.pool.wake.notify_one();
        } else if state.started < self.pool.jobs && !(state.stack.is_empty() && state.later.is_empty()) {
            state.started += 1;
            drop(state);
            // A thread that cannot be had (a limit on processes) is no error: those who are there do the work.
            if !(self.start)() {
                self.pool.state().started -= 1;
            }
        }
    }
}

/// Counts a worker as busy for as long as it lives, also when its task panics: the others must not wait for ever.
struct Busy<'p, T: Send> {
    pool: &'p Pool<T>,
}

impl<T: Send> Drop for Busy<'_, T> {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        state.busy -= 1;
        if state.busy == 0 && state.idle > 0 {
            self.pool.wake.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_task_and_every_child_is_done_once() {
        for jobs in [1, 2, 5] {
            let pool = Pool::new(jobs);
            let done = AtomicUsize::new(0);
            pool.push(6u32);
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
        let pool = Pool::new(1);
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
}
