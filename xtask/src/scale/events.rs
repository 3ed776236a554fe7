//! Shards of a plan on clients of one parallel file system, event by event: queues at its servers, clients that are slow
//! or die, leases that run out. Knows no file system and no figures: those come in as a [`Load`].

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

/// A shard is done in so many steps, at which its client queues at the servers.
const STEPS: u32 = 4;

/// What is to be done, and what it takes.
#[derive(Clone, Debug)]
pub struct Load {
    pub clients: u32,
    pub shards: u32,
    /// Seconds that a client of its own takes for a mean shard, whatever the servers do.
    pub client_s: f64,
    /// Seconds that a mean shard keeps the servers of names busy, all of them together.
    pub names_s: f64,
    /// The same of those of content.
    pub content_s: f64,
    /// What comes to a client with each shard: claiming it, and its result.
    pub shard_s: f64,
    /// Shards differ from their mean by up to this part.
    pub spread: f64,
    /// One client of so many is slow, and by how much.
    pub slow: Option<(u32, f64)>,
    /// Seconds between two deaths of one client, in the mean.
    pub dies_s: Option<f64>,
    /// What a dead client had recorded is not done again: its last seconds are.
    pub recorded_s: f64,
    /// Seconds after which the claim of a dead client is free.
    pub lease_s: f64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShardsOutcome {
    /// Seconds until the last shard was done; infinite where all clients died.
    pub seconds: f64,
    pub dead: u32,
    /// The part of that time in which the servers of names and of content had something to do.
    pub names_busy: f64,
    pub content_busy: f64,
}

/// The same numbers for the same seed, wherever it runs.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// At least 0 and below 1.
    pub fn part(&mut self) -> f64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[derive(Clone, Copy, PartialEq)]
struct At(f64);

impl Eq for At {}

impl PartialOrd for At {
    fn partial_cmp(&self, other: &At) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for At {
    fn cmp(&self, other: &At) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// A server that deals with one thing after the other.
#[derive(Default)]
struct Server {
    free: f64,
    busy: f64,
}

impl Server {
    /// When `seconds` of work are done that come at `now`.
    fn take(&mut self, now: f64, seconds: f64) -> f64 {
        self.busy += seconds;
        self.free = self.free.max(now) + seconds;
        self.free
    }
}

/// A shard that waits, and since when it may be claimed.
struct Waiting {
    /// Relative to the mean.
    size: f64,
    steps: u32,
    from: f64,
}

/// A client and the shard that it is at.
struct Client {
    speed: f64,
    dies: f64,
    size: f64,
    steps: u32,
    began: f64,
}

/// Runs `load`; the same seed gives the same outcome.
pub fn run(load: &Load, seed: u64) -> ShardsOutcome {
    let mut dice = Dice::new(seed);
    let mut waiting: VecDeque<Waiting> = (0..load.shards)
        .map(|_| Waiting { size: 1.0 + load.spread * (2.0 * dice.part() - 1.0), steps: STEPS, from: 0.0 })
        .collect();
    let mut clients: Vec<Client> = (0..load.clients)
        .map(|number| {
            let slow = load.slow.filter(|(each, _)| number % each == 0).map_or(1.0, |(_, by)| by);
            // Exponential, as of things that do not age.
            let dies = load.dies_s.map_or(f64::INFINITY, |mean| -mean * (1.0 - dice.part()).ln());
            Client { speed: slow, dies, size: 0.0, steps: 0, began: 0.0 }
        })
        .collect();
    let (mut names, mut content) = (Server::default(), Server::default());
    let mut events: BinaryHeap<Reverse<(At, u32)>> =
        (0..load.clients).map(|number| Reverse((At(0.0), number))).collect();
    let (mut seconds, mut dead, mut left) = (0.0f64, 0, load.shards);
    while let Some(Reverse((At(now), number))) = events.pop() {
        if left == 0 {
            break;
        }
        let Some(client) = clients.get_mut(number as usize) else { continue };
        if now >= client.dies {
            dead += 1;
            if client.steps > 0 {
                // What it had not recorded is done again, by the one that finds its claim dead.
                let lost = load.recorded_s.min(now - client.began) / load.client_s.max(f64::MIN_POSITIVE);
                let steps = client.steps.min(STEPS);
                let size = client.size + lost.min(client.size) * f64::from(STEPS) / f64::from(steps);
                waiting.push_back(Waiting { size, steps, from: client.dies + load.lease_s });
            }
            continue;
        }
        if client.steps == 0 {
            let free = waiting.iter().position(|shard| shard.from <= now);
            let Some(shard) = free.and_then(|at| waiting.remove(at)) else {
                // Those of dead clients become free later; without any this client has nothing to do any more.
                let next = waiting.iter().map(|shard| shard.from).fold(f64::INFINITY, f64::min);
                let later = if next.is_finite() { next } else { now + load.lease_s };
                if left > 0 && (next.is_finite() || load.dies_s.is_some()) {
                    events.push(Reverse((At(later), number)));
                }
                continue;
            };
            (client.size, client.steps, client.began) = (shard.size, shard.steps, now);
            events.push(Reverse((At((now + load.shard_s).min(client.dies)), number)));
            continue;
        }
        let part = client.size / f64::from(STEPS);
        let own = now + part * load.client_s * client.speed;
        let done =
            own.max(names.take(now, part * load.names_s)).max(content.take(now, part * load.content_s));
        if done >= client.dies {
            events.push(Reverse((At(client.dies), number)));
            continue;
        }
        client.steps -= 1;
        if client.steps == 0 {
            left -= 1;
            seconds = seconds.max(done);
        }
        events.push(Reverse((At(done), number)));
    }
    let seconds = if left == 0 { seconds } else { f64::INFINITY };
    let part = |server: &Server| if seconds > 0.0 { (server.busy / seconds).min(1.0) } else { 0.0 };
    ShardsOutcome { seconds, dead, names_busy: part(&names), content_busy: part(&content) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> Load {
        Load {
            clients: 1,
            shards: 64,
            client_s: 10.0,
            names_s: 0.0,
            content_s: 0.0,
            shard_s: 0.5,
            spread: 0.0,
            slow: None,
            dies_s: None,
            recorded_s: 5.0,
            lease_s: 90.0,
        }
    }

    fn close(one: f64, two: f64, part: f64) {
        assert!((one - two).abs() <= part * two, "{one} and {two}");
    }

    #[test]
    fn one_client_takes_what_the_sum_says() {
        close(run(&load(), 1).seconds, 64.0 * 10.5, 1e-9);
        // Shards of other sizes come to the same in the mean.
        close(run(&Load { spread: 0.5, shards: 10_000, ..load() }, 1).seconds, 10_000.0 * 10.5, 0.01);
        // A server that is slower than the client is all there is.
        close(run(&Load { names_s: 30.0, ..load() }, 1).seconds, 64.0 * 30.5, 0.01);
    }

    #[test]
    fn clients_share_the_work_and_wait_for_servers() {
        close(run(&Load { clients: 16, ..load() }, 1).seconds, 4.0 * 10.5, 1e-9);
        // More clients than shards are of no use.
        close(run(&Load { clients: 200, ..load() }, 1).seconds, 10.5, 1e-9);
        let bound = run(&Load { clients: 64, shards: 1024, content_s: 1.0, ..load() }, 1);
        close(bound.seconds, 1024.0, 0.02);
        assert!(bound.content_busy > 0.97 && bound.names_busy == 0.0, "{bound:?}");
    }

    #[test]
    fn the_slow_and_the_dead_cost_no_more_than_their_share() {
        // One of two takes four times as long: together they are 1.25 clients.
        let slow = run(&Load { clients: 2, shards: 2000, slow: Some((2, 4.0)), shard_s: 0.0, ..load() }, 1);
        close(slow.seconds, 2000.0 * 10.0 / 1.25, 0.01);
        let healthy = run(&Load { clients: 64, shards: 1024, ..load() }, 7);
        let dying = run(&Load { clients: 64, shards: 1024, dies_s: Some(2000.0), ..load() }, 7);
        assert!(dying.dead > 0 && dying.dead < 20, "{dying:?}");
        assert!(
            dying.seconds > healthy.seconds && dying.seconds < 1.6 * healthy.seconds,
            "{dying:?} {healthy:?}"
        );
        let all_die = run(&Load { dies_s: Some(1.0), ..load() }, 1);
        assert_eq!((all_die.seconds, all_die.dead), (f64::INFINITY, 1));
    }

    #[test]
    fn a_seed_is_an_outcome() {
        let load = Load { clients: 8, spread: 0.5, dies_s: Some(10_000.0), shards: 500, ..load() };
        assert_eq!(run(&load, 3), run(&load, 3));
        assert_ne!(run(&load, 3), run(&load, 4));
    }
}
