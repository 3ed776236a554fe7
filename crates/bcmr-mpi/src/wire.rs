//! MPI: who this rank is, and messages of a fixed size that are sent at once and looked for now and then. The only file that
//! knows MPI.
//!
//! Must not know what messages say. A receive that waits would keep a core busy, as MPI waits by asking again and again;
//! so there is none.

use bcmr_mpi::message::{Order, Report, WORDS, Words};
use mpi::environment::Universe;
use mpi::point_to_point::{Message, Status};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, Destination, MatchedReceiveVec, Source};
use mpi::{Rank, Threading};

const REPORT: i32 = 1;
const ORDER: i32 = 2;
/// The rank that hands out shards.
pub const FIRST: usize = 0;

/// This rank among the others.
pub struct Wire {
    world: SimpleCommunicator,
    /// Ends MPI when it is dropped.
    _universe: Universe,
}

/// A message that no rank of this version sends.
pub struct Stranger;

impl Wire {
    /// Begins MPI. Only the thread that did speaks to other ranks.
    pub fn open() -> Option<Wire> {
        let (universe, _) = mpi::initialize_with_threading(Threading::Funneled)?;
        Some(Wire { world: universe.world(), _universe: universe })
    }

    /// Which one this is.
    pub fn rank(&self) -> usize {
        usize::try_from(self.world.rank()).unwrap_or(0)
    }

    /// How many there are.
    pub fn ranks(&self) -> usize {
        usize::try_from(self.world.size()).unwrap_or(1)
    }

    /// Which machine this is, to show.
    pub fn machine(&self) -> String {
        mpi::environment::processor_name().unwrap_or_default()
    }

    fn send(&self, rank: usize, words: &Words, tag: i32) {
        if let Ok(rank) = Rank::try_from(rank) {
            self.world.process_at_rank(rank).send_with_tag(&words[..], tag);
        }
    }

    /// To the first rank.
    pub fn report(&self, report: &Report) {
        self.send(FIRST, &report.words(), REPORT);
    }

    /// By the first rank.
    pub fn order(&self, rank: usize, order: &Order) {
        self.send(rank, &order.words(), ORDER);
    }

    /// A report that has come, and whose it is.
    pub fn reported(&self) -> Result<Option<(usize, Report)>, Stranger> {
        let Some(came) = self.world.any_process().immediate_matched_probe_with_tag(REPORT) else {
            return Ok(None);
        };
        let (words, status) = received(came)?;
        let rank = usize::try_from(status.source_rank()).map_err(|_| Stranger)?;
        let report = Report::of(&words).ok_or(Stranger)?;
        Ok(Some((rank, report)))
    }

    /// An order that has come.
    pub fn ordered(&self) -> Result<Option<Order>, Stranger> {
        let Some(came) = self.world.any_process().immediate_matched_probe_with_tag(ORDER) else {
            return Ok(None);
        };
        let (words, _) = received(came)?;
        Order::of(&words).map(Some).ok_or(Stranger)
    }

    /// Ends all ranks at once.
    pub fn abort(&self, exit: u8) -> ! {
        self.world.abort(i32::from(exit))
    }
}

fn received(came: (Message, Status)) -> Result<(Words, Status), Stranger> {
    let (words, status) = came.matched_receive_vec::<u64>();
    let words: [u64; WORDS] = words.try_into().map_err(|_| Stranger)?;
    Ok((words, status))
}
