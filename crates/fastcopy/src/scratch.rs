//! The reused buffer. Must not know what is read into it.

/// One per worker, kept for all its files: the page-aligned buffers of read/write, [`Scratch::SIZE`] bytes each,
/// allocated when first needed. A worker that copies large files with several threads keeps one buffer for each.
#[derive(Debug, Default)]
pub struct Scratch {
    buffers: Vec<Buffer>,
}

/// Over-long by a page, so that an aligned part of it has the full size.
#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

const PAGE: usize = 4096;

impl Scratch {
    /// Bytes of one buffer. Measured: with 64 KiB the calls cost, at 1 MiB the buffer leaves the second-level cache
    /// and a copy may take twice as long. Alignment is worth more than size: a buffer 16 bytes off a page, as malloc
    /// gives it, makes the whole copy 1.6 times as slow on AMD processors (docs/decisions/0002).
    pub const SIZE: usize = 256 << 10;

    /// Without a buffer yet.
    #[must_use]
    pub const fn new() -> Self {
        Scratch { buffers: Vec::new() }
    }

    /// The first buffer.
    pub fn buffer(&mut self) -> &mut [u8] {
        self.several(1).next().unwrap_or_default()
    }

    /// `n` buffers.
    pub(crate) fn several(&mut self, n: usize) -> impl Iterator<Item = &mut [u8]> {
        while self.buffers.len() < n {
            // Zeroed memory of this size comes from mmap: pages that are not touched cost nothing.
            let bytes = vec![0; Self::SIZE + PAGE];
            let start = bytes.as_ptr().align_offset(PAGE).min(PAGE);
            self.buffers.push(Buffer { bytes, start });
        }
        self.buffers.iter_mut().take(n).map(|b| &mut b.bytes[b.start..b.start + Self::SIZE])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_and_kept() {
        let mut scratch = Scratch::new();
        let first = scratch.buffer().as_ptr();
        assert_eq!(first as usize % PAGE, 0);
        assert_eq!(scratch.buffer().len(), Scratch::SIZE);
        assert!(
            scratch
                .several(3)
                .all(|b| b.len() == Scratch::SIZE && (b.as_ptr() as usize).is_multiple_of(PAGE))
        );
        assert_eq!(scratch.buffer().as_ptr(), first);
    }
}
