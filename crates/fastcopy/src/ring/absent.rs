//! The ring where there is none: it cannot be made, and so nothing else of it is ever called. Must not pretend.

use super::{Shape, Unavailable, Waited};
use std::convert::Infallible;
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Never made here.
pub struct Ring(Infallible);

/// Never made here.
pub struct Submission<'scope, 'env>(Infallible, PhantomData<(&'scope (), &'env ())>);

/// Never made here.
#[derive(Debug)]
pub struct Block<'scope>(Infallible, PhantomData<&'scope ()>);

impl Ring {
    /// Always [`Unavailable::Missing`].
    ///
    /// # Errors
    /// Always.
    pub fn new(_: Shape) -> Result<Ring, Unavailable> {
        Err(Unavailable::Missing)
    }
    /// Bytes of one block.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        match self.0 {}
    }
    /// Whether the kernel pins the blocks.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        match self.0 {}
    }
    /// The errno with which the ring failed.
    #[must_use]
    pub fn lost(&self) -> Option<i32> {
        match self.0 {}
    }
    /// Runs `work`.
    pub fn scope<'env, T>(&mut self, _: impl for<'scope> FnOnce(&mut Submission<'scope, 'env>) -> T) -> T {
        match self.0 {}
    }
}

impl<'scope, 'env> Submission<'scope, 'env> {
    /// Bytes of one block.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        match self.0 {}
    }
    /// A free block.
    pub fn take(&mut self) -> Option<Block<'scope>> {
        match self.0 {}
    }
    /// Gives a block back.
    pub fn give(&mut self, block: Block<'scope>) {
        match block.0 {}
    }
    /// What is in a block.
    #[must_use]
    pub fn bytes(&self, block: &Block<'scope>) -> &[u8] {
        match block.0 {}
    }
    /// The same, to be changed.
    pub fn bytes_mut(&mut self, block: &mut Block<'scope>) -> &mut [u8] {
        match block.0 {}
    }
    /// Hands in a read.
    pub fn read(&mut self, _: BorrowedFd<'env>, _: u64, _: usize, block: Block<'scope>, _: u64) {
        match block.0 {}
    }
    /// Hands in a write.
    pub fn write(&mut self, _: BorrowedFd<'env>, _: u64, _: usize, block: Block<'scope>, _: u64) {
        match block.0 {}
    }
    /// Waits for one.
    ///
    /// # Errors
    /// Never here.
    pub fn wait(&mut self, _: Duration) -> io::Result<Waited<'scope>> {
        match self.0 {}
    }
}
