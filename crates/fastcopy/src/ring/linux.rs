//! The ring itself, over the `io-uring` crate. Must not know who flies in it.

use super::{Done, FOR_EVER, Shape, Unavailable, Waited};
use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode, squeue};
use std::alloc::Layout;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::time::Duration;

/// What a cancellation is called among the tokens of slots.
const CANCEL: u64 = u64::MAX;
/// So often in a row an operation that the kernel asks to have again (EINTR, EAGAIN) is handed in again.
const RETRIES_MAX: u32 = 1000;
/// So often in a row an enter may find the kernel busy before the ring is given up, and so often at once, without a pause
/// in between: about ten seconds in all.
const BUSY_MAX: u32 = 10_000;
const BUSY_QUIET: u32 = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// Queues shared with the kernel, and the memory that it reads into and writes from. One thread uses it at a time; it may
/// be another one each time.
pub struct Ring {
    // Before `memory`: closed first, so that the kernel has unpinned what is freed then.
    queues: IoUring,
    memory: Memory,
    registered: bool,
    /// The operation that each block is under way with.
    slots: Vec<Option<Operation>>,
    /// Blocks that are not lent.
    free: Vec<u16>,
    under_way: usize,
    /// Enters in a row that found the kernel busy.
    busy: u32,
    /// An enter failed in a way that says nothing of what the kernel still holds.
    lost: Option<i32>,
}

/// One allocation for all blocks.
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
    block_bytes: usize,
    /// The kernel may still write into it: it is never freed.
    leaked: bool,
}

// SAFETY: the memory is plain bytes owned by this value alone; no thread has anything to do with it.
unsafe impl Send for Memory {}

impl Memory {
    fn new(blocks: usize, block_bytes: usize) -> Result<Memory, Unavailable> {
        let no_room = Unavailable::Refused(libc::ENOMEM);
        let bytes = blocks.checked_mul(block_bytes).filter(|n| *n > 0).ok_or(no_room)?;
        let layout = Layout::from_size_align(bytes, Shape::ALIGN).map_err(|_| no_room)?;
        // SAFETY: the layout's size is not 0, checked above. Zeroed, so that every byte is initialised for `bytes`.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or(no_room)?;
        Ok(Memory { start, layout, block_bytes, leaked: false })
    }

    fn block(&self, index: u16) -> *mut u8 {
        // SAFETY: `index` is below the number of blocks this was made with, so the result is inside the allocation.
        unsafe { self.start.as_ptr().add(usize::from(index) * self.block_bytes) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if !self.leaked {
            // SAFETY: allocated with this very layout, and nothing is under way any more: `Ring::drain` saw to it.
            unsafe { std::alloc::dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}

/// A block lent to the caller, who fills it. It cannot leave the [`Ring::scope`] it comes from, and a block that is dropped is
/// back in the ring when that scope ends.
#[derive(Debug)]
pub struct Block<'scope> {
    index: u16,
    /// Invariant, so that no other scope's lifetime fits.
    brand: PhantomData<fn(&'scope ()) -> &'scope ()>,
}

#[derive(Clone, Copy)]
enum Way {
    Read,
    Write,
}

/// An operation, and how far it came.
#[derive(Clone, Copy)]
struct Operation {
    way: Way,
    fd: RawFd,
    at: u64,
    len: usize,
    done: usize,
    retries: u32,
    token: u64,
}

impl Ring {
    /// `io_uring_setup`, with queues that have room for every block.
    ///
    /// # Errors
    /// Why there is none.
    pub fn new(shape: Shape) -> Result<Ring, Unavailable> {
        let blocks = shape.blocks.clamp(1, Shape::BLOCKS_MAX);
        let block_bytes =
            shape.block_bytes.next_multiple_of(Shape::ALIGN).clamp(Shape::ALIGN, Shape::BLOCK_BYTES_MAX);
        // One more for the cancellation of all.
        let entries = (blocks + 1).next_power_of_two() as u32;
        let why = |e: io::Error| match e.raw_os_error() {
            Some(libc::ENOSYS) => Unavailable::Missing,
            Some(libc::EPERM | libc::EACCES) => Unavailable::Forbidden,
            errno => Unavailable::Refused(errno.unwrap_or(libc::EIO)),
        };
        let build = |coop: bool| -> io::Result<IoUring> {
            let mut builder = IoUring::builder();
            builder.dontfork();
            if coop {
                // No interrupt for what is done while we compute: it is met at the next wait anyway (since 5.19).
                builder.setup_coop_taskrun();
            }
            builder.build(entries)
        };
        let queues = match build(true) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => build(false),
            other => other,
        }
        .map_err(why)?;
        let mut probe = Probe::new();
        let known = queues.submitter().register_probe(&mut probe).is_ok();
        if !(known && probe.is_supported(opcode::Read::CODE) && probe.is_supported(opcode::Write::CODE)) {
            return Err(Unavailable::TooOld);
        }
        let memory = Memory::new(blocks, block_bytes)?;
        let registered = shape.registered && {
            let vectors: Vec<libc::iovec> = (0..blocks as u16)
                .map(|i| libc::iovec { iov_base: memory.block(i).cast(), iov_len: block_bytes })
                .collect();
            // SAFETY: the blocks live in `memory`, which is freed after the ring is closed (order of the fields).
            unsafe { queues.submitter().register_buffers(&vectors) }.is_ok()
        };
        Ok(Ring {
            queues,
            memory,
            registered,
            slots: vec![None; blocks],
            free: (0..blocks as u16).rev().collect(),
            under_way: 0,
            busy: 0,
            lost: None,
        })
    }

    /// The errno with which the ring failed as a whole, once it has: it is of no more use, and should be dropped.
    #[must_use]
    pub fn lost(&self) -> Option<i32> {
        self.lost
    }

    /// Bytes of one block.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        self.memory.block_bytes
    }

    /// Whether the kernel pins the blocks.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        self.registered
    }

    /// Runs `work`, which hands operations in and waits for them. Whatever is still under way when it returns, or
    /// panics, is cancelled and waited for: the descriptors of `'env` and the blocks outlive every operation.
    pub fn scope<'env, T>(&mut self, work: impl for<'scope> FnOnce(&mut Submission<'scope, 'env>) -> T) -> T {
        /// Drains in `Drop`, because `work` may panic, and memory that the kernel is writing into must not be freed
        /// by the unwinding. Nothing is lost by it: a caller that wanted to know an operation's end has waited for it.
        struct Drained<'r>(&'r mut Ring);
        impl Drop for Drained<'_> {
            fn drop(&mut self) {
                self.0.drain();
            }
        }
        let drained = Drained(self);
        let mut submission = Submission { ring: &mut *drained.0, scope: PhantomData, env: PhantomData };
        work(&mut submission)
    }

    /// Cancels and waits until nothing is under way, and takes every block back. Where waiting is impossible, the memory
    /// is left to the kernel for good.
    fn drain(&mut self) {
        if self.under_way > 0 && self.lost.is_none() {
            // A wish only: a read that a disk is at goes on to its end, and an older kernel does not know this one.
            let cancel = opcode::AsyncCancel2::new(CancelBuilder::any()).build().user_data(CANCEL);
            // SAFETY: a cancellation points to no memory.
            let _full = unsafe { self.queues.submission().push(&cancel) }.is_ok();
            while self.under_way > 0 && self.lost.is_none() {
                while let Some((slot, _)) = self.reap() {
                    if let Some(operation) = self.slots.get_mut(slot) {
                        *operation = None;
                        self.under_way -= 1;
                    }
                }
                if self.under_way > 0 {
                    // What it says is in `lost`.
                    let _woken = self.enter(FOR_EVER).is_ok();
                }
            }
        }
        if self.under_way > 0 {
            self.memory.leaked = true;
            return;
        }
        self.free.clear();
        self.free.extend((0..self.slots.len() as u16).rev());
    }

    /// The next completion of a slot: which, and the kernel's result.
    fn reap(&mut self) -> Option<(usize, i32)> {
        self.queues
            .completion()
            .find(|entry| entry.user_data() != CANCEL)
            .map(|entry| (entry.user_data() as usize, entry.result()))
    }

    /// `io_uring_enter`: hands in what is queued and waits for a completion. Signals and time-outs wake it as well.
    fn enter(&mut self, wait: Duration) -> io::Result<()> {
        if let Some(errno) = self.lost {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let entered = if wait == FOR_EVER || !self.queues.params().is_feature_ext_arg() {
            self.queues.submit_and_wait(1)
        } else {
            let wait = Timespec::new().sec(wait.as_secs()).nsec(wait.subsec_nanos());
            self.queues.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&wait))
        };
        let errno = match entered {
            Ok(_) => {
                self.busy = 0;
                return Ok(());
            }
            Err(e) => e.raw_os_error().unwrap_or(libc::EIO),
        };
        match errno {
            // A signal, or the time.
            libc::EINTR | libc::ETIME => Ok(()),
            // Completions that want to be taken first, or no memory right now: not for ever.
            libc::EBUSY | libc::EAGAIN if self.busy < BUSY_MAX => {
                self.busy += 1;
                if self.busy > BUSY_QUIET {
                    std::thread::sleep(BUSY_PAUSE);
                }
                Ok(())
            }
            errno => {
                self.lost = Some(errno);
                Err(io::Error::from_raw_os_error(errno))
            }
        }
    }

    /// Queues what is left of a slot's operation.
    fn queue(&mut self, slot: u16) {
        let Some(Some(op)) = self.slots.get(usize::from(slot)).copied() else { return };
        let fd = Fd(op.fd);
        let (at, len) = (op.at + op.done as u64, (op.len - op.done) as u32);
        // SAFETY: `done <= len <= block_bytes`, so this stays within the block.
        let memory = unsafe { self.memory.block(slot).add(op.done) };
        let entry: squeue::Entry = match (op.way, self.registered) {
            (Way::Read, false) => opcode::Read::new(fd, memory, len).offset(at).build(),
            (Way::Read, true) => opcode::ReadFixed::new(fd, memory, len, slot).offset(at).build(),
            (Way::Write, false) => opcode::Write::new(fd, memory, len).offset(at).build(),
            (Way::Write, true) => opcode::WriteFixed::new(fd, memory, len, slot).offset(at).build(),
        };
        let entry = entry.user_data(u64::from(slot));
        // SAFETY: the descriptor is borrowed for 'env and the block belongs to the ring; both outlive the operation,
        // because `scope` drains before it returns and a ring that cannot be drained never frees its memory.
        let pushed = unsafe { self.queues.submission().push(&entry) };
        // There is an entry for each block, and each block is in one operation.
        debug_assert!(pushed.is_ok());
        if pushed.is_err() {
            self.lost = Some(libc::EBUSY);
        }
    }
}

/// Operations under way, inside [`Ring::scope`].
pub struct Submission<'scope, 'env> {
    ring: &'scope mut Ring,
    scope: PhantomData<fn(&'scope ()) -> &'scope ()>,
    /// Invariant: a descriptor that is borrowed for less than the whole scope does not fit.
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope, 'env> Submission<'scope, 'env> {
    /// Bytes of one block.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        self.ring.memory.block_bytes
    }

    /// A free block, if there is one.
    pub fn take(&mut self) -> Option<Block<'scope>> {
        self.ring.free.pop().map(|index| Block { index, brand: PhantomData })
    }

    /// Gives a block back.
    pub fn give(&mut self, block: Block<'scope>) {
        self.ring.free.push(block.index);
    }

    /// What is in a block.
    #[must_use]
    pub fn bytes(&self, block: &Block<'scope>) -> &[u8] {
        // SAFETY: the holder of the block holds its only token, so it is in no operation; its bytes are initialised.
        unsafe {
            std::slice::from_raw_parts(self.ring.memory.block(block.index), self.ring.memory.block_bytes)
        }
    }

    /// The same, to be changed.
    pub fn bytes_mut(&mut self, block: &mut Block<'scope>) -> &mut [u8] {
        // SAFETY: as in `bytes`, and the token is borrowed for writing.
        unsafe {
            std::slice::from_raw_parts_mut(self.ring.memory.block(block.index), self.ring.memory.block_bytes)
        }
    }

    /// `pread(fd, block, len, at)`, handed in with the next [`Submission::wait`]. It goes on until `len` bytes (at most a
    /// block's) are there or the file ends; `token` comes back with it.
    pub fn read(&mut self, fd: BorrowedFd<'env>, at: u64, len: usize, block: Block<'scope>, token: u64) {
        self.begin(
            Operation { way: Way::Read, fd: fd.as_raw_fd(), at, len, done: 0, retries: 0, token },
            block,
        );
    }

    /// `pwrite(fd, block, len, at)`, as [`Submission::read`].
    pub fn write(&mut self, fd: BorrowedFd<'env>, at: u64, len: usize, block: Block<'scope>, token: u64) {
        self.begin(
            Operation { way: Way::Write, fd: fd.as_raw_fd(), at, len, done: 0, retries: 0, token },
            block,
        );
    }

    fn begin(&mut self, operation: Operation, block: Block<'scope>) {
        let len = operation.len.min(self.ring.memory.block_bytes);
        let operation = Operation { len, ..operation };
        if let Some(slot) = self.ring.slots.get_mut(usize::from(block.index)) {
            *slot = Some(operation);
            self.ring.under_way += 1;
            self.ring.queue(block.index);
        }
    }

    /// Hands in what is queued, and waits for an operation that is done, at most this long.
    ///
    /// # Errors
    /// The ring itself failed: what is under way is not known to be done, and nothing more can be.
    pub fn wait(&mut self, wait: Duration) -> io::Result<Waited<'scope>> {
        // What comes of it now may belong to an earlier user of the ring.
        if let Some(errno) = self.ring.lost {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let mut entered = false;
        loop {
            while let Some((slot, result)) = self.ring.reap() {
                if let Some(done) = self.settle(slot, result) {
                    return Ok(Waited::Done(done));
                }
            }
            if self.ring.under_way == 0 {
                return Ok(Waited::Idle);
            }
            // What settling has queued again counts as a wait begun anew.
            if entered && self.ring.queues.submission().is_empty() {
                return Ok(Waited::NotYet);
            }
            self.ring.enter(wait)?;
            entered = true;
        }
    }

    /// Takes a result in: an operation that is done, or nothing when it goes on.
    fn settle(&mut self, slot: usize, result: i32) -> Option<Done<'scope>> {
        let ring = &mut *self.ring;
        let place = ring.slots.get_mut(slot)?;
        let op = place.as_mut()?;
        let ended = match result {
            n if n > 0 => {
                op.done += n as usize;
                op.retries = 0;
                op.done >= op.len
            }
            0 => true,
            e if matches!(-e, libc::EINTR | libc::EAGAIN) && op.retries < RETRIES_MAX => {
                op.retries += 1;
                false
            }
            _ => true,
        };
        if !ended {
            ring.queue(slot as u16);
            return None;
        }
        let op = place.take()?;
        ring.under_way -= 1;
        let result = match result {
            // Only its end cuts a direct read short of a block, and asking on from there is not aligned any more.
            e if e == -libc::EINVAL && op.done > 0 && matches!(op.way, Way::Read) => Ok(op.done),
            e if e < 0 => Err(io::Error::from_raw_os_error(-e)),
            0 if matches!(op.way, Way::Write) && op.done < op.len => Err(io::ErrorKind::WriteZero.into()),
            _ => Ok(op.done),
        };
        Some(Done { token: op.token, result, block: Block { index: slot as u16, brand: PhantomData } })
    }
}
