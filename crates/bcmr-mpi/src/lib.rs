//! What the ranks of an MPI job say to one another, and who does which shard and walks which directory. Must not know MPI, nor how a shard is done.

pub mod coordinate;
pub mod message;
pub mod walkers;
