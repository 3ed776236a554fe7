//! An allocator for programs that end with a sentence where there is no memory, and not by a signal; and pages of another size.
//!
//! Must not know what was allocated for. What the process had under way is left as a kill leaves it.

use rustix::mm::{Advice, madvise};
use std::alloc::{GlobalAlloc, Layout, System};

/// What `main` and all that it calls take of the stack at most, and as much again.
const STACK_BYTES: usize = 256 << 10;

/// Touches the lowest byte of that much of the stack, with the stack pointer moved there: the kernel takes all in between
/// into the stack, and its limits count that. The pages themselves come when they are used.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(never)]
fn grow_stack() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the stack pointer is what it was when this ends; the byte lies below every frame and below the red zone, and
    // a handler that runs meanwhile stands below the byte.
    unsafe {
        std::arch::asm!("sub rsp, {n}", "mov byte ptr [rsp], 0", "add rsp, {n}", n = const STACK_BYTES);
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "sub sp, sp, #{n}, lsl #12", "strb wzr, [sp]", "add sp, sp, #{n}, lsl #12",
            n = const STACK_BYTES >> 12
        );
    }
}

/// Touches every page of that much of the stack.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(never)]
fn grow_stack() {
    std::hint::black_box(&[0u8; STACK_BYTES]);
}

/// Half of a common large buffer. What is smaller is often taken and freed, and is not worth a call to the system each time.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: libc::c_int = 512 << 10;

/// Bytes of a huge page.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Asks for huge pages wherever `memory` holds the whole of one (madvise(2), MADV_HUGEPAGE). What is in it stays.
///
/// # Errors
/// Of the call: a kernel may have none.
pub fn ask_for_huge_pages(memory: &mut [u8]) -> rustix::io::Result<()> {
    let start = memory.as_ptr().align_offset(HUGE_PAGE_BYTES);
    let length = memory.len().saturating_sub(start) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    let Some(whole) = memory.get_mut(start..start + length).filter(|whole| !whole.is_empty()) else {
        return Ok(());
    };
    // SAFETY: these are whole pages of `memory`, and a huge one holds what the small ones did.
    unsafe { madvise(whole.as_mut_ptr().cast(), whole.len(), Advice::LinuxHugepage) }
}

/// The system's allocator; where it has nothing left, the process writes `said` to standard error and ends with `code`.
#[derive(Debug)]
pub struct OrExit {
    said: &'static str,
    code: i32,
}

impl OrExit {
    /// For `#[global_allocator]`.
    #[must_use]
    pub const fn new(said: &'static str, code: i32) -> OrExit {
        OrExit { said, code }
    }

    /// Where a new thread gets no memory for its signal stack, the standard library panics before anything of ours runs in
    /// it (library/std/src/sys/pal/unix/stack_overflow.rs). That ends the process in the same way. To be called once, from
    /// `main`.
    pub fn ends_threads_too(&'static self) {
        let otherwise = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.location().is_some_and(|at| at.file().ends_with("/stack_overflow.rs")) {
                self.exit();
            }
            otherwise(panic);
        }));
    }

    /// Makes the calling thread's stack as large as a run needs. A stack that finds no room when it grows ends the process
    /// by a signal, so it grows here, once it is known that there is room. To be called once, first thing in `main`.
    pub fn reserve_stack(&self) {
        drop(std::hint::black_box(Vec::<u8>::with_capacity(STACK_BYTES)));
        grow_stack();
    }

    /// Where a new thread's first piece of memory is for the list of its thread-locals' destructors, and there is none, glibc
    /// ends the process by a signal. It asks for an arena of the thread's own, of 64 MiB of address space, and goes without
    /// where that is not to be had. So where address space is limited all threads have one arena, in which there is nearly
    /// always that little left. To be called once, before there is a second thread.
    pub fn limits_arenas(&self) {
        #[cfg(target_env = "gnu")]
        if rustix::process::getrlimit(rustix::process::Resource::As).current.is_some() {
            // SAFETY: `mallopt` takes any two numbers, and no other thread is there yet.
            unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
        }
    }

    /// From now on a piece of 512 KiB or more goes back to the system when it is freed. Without this call glibc raises that
    /// limit to the size of what was freed (mallopt(3), M_MMAP_THRESHOLD). What is smaller than the limit stays with the arena
    /// of the thread that asked for it, so a process whose threads pass large buffers on holds several times what it uses. To be
    /// called once, before there is a second thread.
    pub fn gives_large_pieces_back(&self) {
        #[cfg(target_env = "gnu")]
        // SAFETY: `mallopt` takes any two numbers, and no other thread is there yet.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES)
        };
    }

    fn or_exit(&self, got: *mut u8) -> *mut u8 {
        if got.is_null() {
            self.exit();
        }
        got
    }

    /// `write`, `_exit`: no destructor runs and nothing is allocated.
    #[cold]
    fn exit(&self) -> ! {
        // Where standard error is closed there is no way left to tell.
        let _told = rustix::io::write(rustix::stdio::stderr(), self.said.as_bytes());
        // SAFETY: `_exit` takes any number and does not return; it runs nothing of this process.
        unsafe { libc::_exit(self.code) }
    }
}

// SAFETY: every call is passed on to `System` with the very layout and pointer that came, and what comes back is what
// `System` gave; a null pointer is never returned, which is allowed.
unsafe impl GlobalAlloc for OrExit {
    // SAFETY: callers keep the trait's promises, which are `System`'s own.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's own promise, passed on.
        self.or_exit(unsafe { System.alloc(layout) })
    }
    // SAFETY: callers keep the trait's promises, which are `System`'s own.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's own promise, passed on.
        self.or_exit(unsafe { System.alloc_zeroed(layout) })
    }
    // SAFETY: callers keep the trait's promises, which are `System`'s own.
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's own promise, passed on.
        self.or_exit(unsafe { System.realloc(old, layout, size) })
    }
    // SAFETY: callers keep the trait's promises, which are `System`'s own.
    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: the caller's own promise, passed on.
        unsafe { System.dealloc(old, layout) }
    }
}
