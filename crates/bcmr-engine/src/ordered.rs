//! Tasks in an order, several of which are done at a time, and what they found, which is passed on in that order.
//!
//! Must not know what a task is, nor threads. The first task that nobody does is the one that is taken, so what waits to
//! be passed on waits only for tasks that are being done; and beyond [`HELD_MAX`] findings only the very first is taken.

/// Findings that wait for tasks before them, at most, but for what the tasks that are being done add.
pub(crate) const HELD_MAX: usize = 8192;

/// A task's place in the order, as long as it is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat(usize);

struct SeatState<T, F> {
    /// Absent while the task is being done.
    task: Option<T>,
    /// What tasks directly behind it found that are done already.
    behind: Vec<F>,
    before: Option<usize>,
    next: Option<usize>,
}

/// Tasks that wait or are being done, first to last.
pub(crate) struct TaskOrder<T, F> {
    seats: Vec<SeatState<T, F>>,
    /// Seats that are not in the order at present.
    free: Vec<usize>,
    first: Option<usize>,
    /// Tasks that wait.
    waiting: usize,
    /// Findings that wait.
    held: usize,
    /// Findings with nothing before them.
    ready: Vec<F>,
}

impl<T, F> TaskOrder<T, F> {
    pub(crate) fn new() -> TaskOrder<T, F> {
        TaskOrder { seats: Vec::new(), free: Vec::new(), first: None, waiting: 0, held: 0, ready: Vec::new() }
    }

    /// Puts a task before all others, or directly behind one that is being done.
    pub(crate) fn push(&mut self, behind: Option<Seat>, task: T) {
        let before = behind.map(|seat| seat.0);
        let next = match before.and_then(|at| self.seats.get(at)) {
            Some(seat) => seat.next,
            None => self.first,
        };
        // What was found behind the seat before is behind this one now: it stays with the last task that is before it.
        let found = before.and_then(|at| self.seats.get_mut(at)).map(|seat| std::mem::take(&mut seat.behind));
        let seat = SeatState { task: Some(task), behind: found.unwrap_or_default(), before, next };
        let at = match self.free.pop() {
            Some(at) => {
                if let Some(free) = self.seats.get_mut(at) {
                    *free = seat;
                }
                at
            }
            None => {
                self.seats.push(seat);
                self.seats.len() - 1
            }
        };
        self.link(before, Some(at));
        self.link(Some(at), next);
        self.waiting += 1;
    }

    /// Makes `next` follow `before`; absent is the start, or the end.
    fn link(&mut self, before: Option<usize>, next: Option<usize>) {
        match before.and_then(|at| self.seats.get_mut(at)) {
            Some(seat) => seat.next = next,
            None => self.first = next,
        }
        if let Some(seat) = next.and_then(|at| self.seats.get_mut(at)) {
            seat.before = before;
        }
    }

    /// Whether a task waits.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// The first task that waits, unless too much was found behind those that are being done.
    pub(crate) fn take(&mut self) -> Option<(Seat, T)> {
        if self.waiting == 0 {
            return None;
        }
        // Before it there are only tasks that are being done, as many as there are workers.
        let mut at = self.first;
        while let Some(seat) = at.and_then(|at| self.seats.get_mut(at)) {
            if seat.task.is_some() {
                if self.held > HELD_MAX && at != self.first {
                    return None;
                }
                self.waiting -= 1;
                return seat.task.take().zip(at).map(|(task, at)| (Seat(at), task));
            }
            at = seat.next;
        }
        None
    }

    /// Whether nothing is before this task any more, also nothing that is still to be passed on.
    pub(crate) fn is_first(&self, seat: Seat) -> bool {
        self.first == Some(seat.0) && self.ready.is_empty()
    }

    /// A task is done, and this is what it found.
    pub(crate) fn done(&mut self, seat: Seat, found: Vec<F>) {
        let Some(state) = self.seats.get_mut(seat.0) else { return };
        let (before, next) = (state.before, state.next);
        let behind = std::mem::take(&mut state.behind);
        self.held += found.len();
        match before.and_then(|at| self.seats.get_mut(at)) {
            Some(earlier) => {
                append(&mut earlier.behind, found);
                append(&mut earlier.behind, behind);
            }
            None => {
                self.held -= found.len() + behind.len();
                append(&mut self.ready, found);
                append(&mut self.ready, behind);
            }
        }
        self.link(before, next);
        self.free.push(seat.0);
    }

    /// What is to be passed on now, in order.
    pub(crate) fn ready(&mut self) -> Vec<F> {
        std::mem::take(&mut self.ready)
    }
}

fn append<F>(to: &mut Vec<F>, mut more: Vec<F>) {
    if to.is_empty() {
        *to = more;
    } else {
        to.append(&mut more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of numbers as tasks: each finds itself, leaves its children behind itself, and is done whenever it pleases.
    #[test]
    fn whatever_the_order_of_work_what_was_found_comes_in_the_order_of_tasks() {
        for seed in 1u64..400 {
            let mut state = seed;
            let mut random = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            let mut order: TaskOrder<String, String> = TaskOrder::new();
            for top in ["c", "b", "a"] {
                order.push(None, top.to_owned());
            }
            let (mut doing, mut told, mut all) = (Vec::new(), Vec::new(), Vec::new());
            loop {
                if random(2) == 0
                    && doing.len() < 3
                    && let Some((seat, task)) = order.take()
                {
                    if task.len() < 6 {
                        // The last that is pushed comes first.
                        for child in (0..random(4)).rev() {
                            order.push(Some(seat), format!("{task}{child}"));
                        }
                    }
                    all.push(task.clone());
                    doing.push((seat, task));
                } else if !doing.is_empty() {
                    let (seat, task) = doing.remove(random(doing.len() as u64) as usize);
                    assert!(!order.is_first(seat) || told.iter().all(|t: &String| *t < task));
                    order.done(seat, vec![task]);
                    told.extend(order.ready());
                } else if !order.is_waiting() {
                    break;
                }
            }
            all.sort();
            assert_eq!(told, all, "seed {seed}");
            assert_eq!((order.held, order.waiting, order.first), (0, 0, None));
        }
    }

    #[test]
    fn beyond_the_bound_only_the_first_task_is_taken() {
        let mut order: TaskOrder<u32, u32> = TaskOrder::new();
        for n in [3, 2, 1, 0] {
            order.push(None, n);
        }
        let (first, _) = order.take().unwrap();
        let (second, _) = order.take().unwrap();
        order.done(second, vec![1; HELD_MAX + 1]);
        assert!(order.is_waiting() && order.take().is_none() && order.ready().is_empty());
        // The twin: what waited goes on once the first is done.
        order.done(first, vec![0]);
        assert_eq!(order.ready().len(), HELD_MAX + 2);
        assert_eq!(order.take().map(|(_, n)| n), Some(2));
    }
}
