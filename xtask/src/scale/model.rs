//! What a copy in shards takes on a parallel file system: scenes, and the plan, the shards and the end of each.
//!
//! Must not know how any of it is shown.

use super::costs as c;
use super::events::{self, Load, ShardsOutcome};

/// Clients of the page.
pub const CLIENTS: [u32; 7] = [1, 4, 16, 64, 256, 1024, 4096];
/// Shards for each client, as docs/many-machines.md advises, and at most.
pub const SHARDS_A_CLIENT: u32 = 16;
const SHARDS_MAX: u32 = 65_536;

/// A tree that is copied, and who copies it.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    pub name: &'static str,
    pub what: &'static str,
    pub files: f64,
    pub dirs: f64,
    pub bytes: f64,
    /// All files are in one directory, which one metadata server has.
    pub hot: bool,
    pub slow: Option<(u32, f64)>,
    /// Hours between two deaths of one client.
    pub dies_h: Option<f64>,
}

const KIB: f64 = 1024.0;
const PIB: f64 = KIB * KIB * KIB * KIB * KIB;
const TIB: f64 = KIB * KIB * KIB * KIB;

const MANY: Scene = Scene {
    name: "many",
    what: "10^9 files in 10^7 directories, 10 PiB",
    files: 1e9,
    dirs: 1e7,
    bytes: 10.0 * PIB,
    hot: false,
    slow: None,
    dies_h: None,
};

pub const SCENES: [Scene; 6] = [
    MANY,
    Scene { name: "small", what: "10^9 files of 4 KiB in 10^7 directories", bytes: 1e9 * 4.0 * KIB, ..MANY },
    Scene {
        name: "hot",
        what: "10^8 files of 4 KiB in one directory",
        files: 1e8,
        dirs: 1.0,
        bytes: 1e8 * 4.0 * KIB,
        hot: true,
        ..MANY
    },
    Scene { name: "one", what: "one file of 100 TiB", files: 1.0, dirs: 1.0, bytes: 100.0 * TIB, ..MANY },
    Scene {
        name: "slow",
        what: "as the first, and one client of 16 takes four times as long",
        slow: Some((16, 4.0)),
        ..MANY
    },
    Scene {
        name: "dying",
        what: "as the first, and a client dies after 200 hours in the mean",
        dies_h: Some(200.0),
        ..MANY
    },
];

/// What a scene takes.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    pub clients: u32,
    pub plan: f64,
    pub shards: ShardsOutcome,
    pub finish: f64,
}

impl Taken {
    pub fn whole(&self) -> f64 {
        self.plan + self.shards.seconds + self.finish
    }
}

/// The plan: one process walks, with as many looks under way as it has threads.
fn plan_s(scene: &Scene) -> f64 {
    let looks = scene.files + scene.dirs;
    let by_threads = looks * (c::LOOK_LATENCY + c::PLAN_ENTRY) / c::THREADS;
    // What is sorted and cut is so by one thread.
    by_threads.max(looks / (c::LOOKS * c::METADATA_SERVERS)) + looks * c::PLAN_ENTRY
}

/// The end: one process, one thing after the other.
fn finish_s(scene: &Scene) -> f64 {
    let dir = c::FINISH_DIR + c::LOOKS_A_DIR_IN_THE_END * c::LOOK_LATENCY;
    scene.files * c::FINISH_ENTRY + scene.dirs * dir
}

/// What shards of this scene are, for so many clients.
pub(super) fn load(scene: &Scene, clients: u32) -> Load {
    let parts = (scene.bytes / (1u64 << 30) as f64).ceil();
    let most = if scene.files > 1e6 { SHARDS_MAX } else { parts.max(1.0).min(SHARDS_MAX.into()) as u32 };
    let shards = (clients * SHARDS_A_CLIENT).clamp(16, SHARDS_MAX).min(most);
    let (files, bytes) = (scene.files / f64::from(shards), scene.bytes / f64::from(shards));
    let servers = if scene.hot { 1.0 } else { c::METADATA_SERVERS };
    let file = c::CREATE_LATENCY + c::LOOKS_A_FILE * c::LOOK_LATENCY + c::SHARD_FILE;
    let content = (bytes * c::SHARD_BYTE / c::THREADS).max(bytes / c::NETWORK);
    Load {
        clients,
        shards,
        client_s: files * file / c::THREADS + content,
        names_s: files * (1.0 / (c::CREATES * servers) + c::LOOKS_A_FILE / (c::LOOKS * c::METADATA_SERVERS)),
        content_s: bytes * (1.0 / c::READ).max(1.0 / c::WRITTEN),
        shard_s: c::LOOKS_A_SHARD * c::LOOK_LATENCY,
        // Costs are alike by the plan's figures, and the file system has its own.
        spread: 0.25,
        slow: scene.slow,
        dies_s: scene.dies_h.map(|hours| hours * 3600.0),
        recorded_s: c::RECORDED,
        lease_s: c::LEASE,
    }
}

/// One scene with so many clients.
pub fn taken(scene: &Scene, clients: u32, seed: u64) -> Taken {
    let shards = events::run(&load(scene, clients), seed ^ u64::from(clients));
    Taken { clients, plan: plan_s(scene), shards, finish: finish_s(scene) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 16;

    #[test]
    fn one_client_takes_what_the_costs_say() {
        for scene in SCENES.iter().filter(|scene| scene.slow.is_none() && scene.dies_h.is_none()) {
            let load = Load { spread: 0.0, ..load(scene, 1) };
            let own = load.client_s.max(load.names_s).max(load.content_s);
            let sum = f64::from(load.shards) * (own + load.shard_s);
            let got = events::run(&load, SEED).seconds;
            assert!((got - sum).abs() < 0.01 * sum, "{}: {got} and {sum}", scene.name);
        }
    }

    /// No number of clients does what the servers cannot.
    #[test]
    fn nothing_is_faster_than_the_servers() {
        for scene in &SCENES {
            for clients in CLIENTS {
                let load = load(scene, clients);
                let least = f64::from(load.shards) * load.names_s.max(load.content_s) * 0.9;
                let got = taken(scene, clients, SEED).shards.seconds;
                assert!(got >= least, "{} by {clients}: {got} below {least}", scene.name);
            }
        }
    }
}
