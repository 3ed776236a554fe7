//! What things cost: on the machine that docs/scale.md was measured on, and on parallel file systems as others have
//! published it. Every figure stands here with its source, and the page shows them.

/// One figure, and where it comes from.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    pub what: &'static str,
    pub value: f64,
    pub unit: &'static str,
    pub source: &'static str,
}

/// A source of several figures.
const HERE: &str = "rounded, within a factor of two of what was measured on one machine of 2 cores, tmpfs";
const DELL: &str = "Dell, HPC Lustre Storage with Intel Omni-Path, figure 13 (MDtest, Lustre 2.7, one MDT)";
const ORION: &str = "OLCF's Orion: 40 metadata servers (Blocks and Files, 4 June 2022), 14 TB/s read and 11 TB/s written (Greybeards on Storage, with D. Leverman)";
const CHOSEN: &str = "chosen";

macro_rules! costs {
    ($($name:ident = $value:expr, $unit:literal, $what:literal, $source:expr;)*) => {
        $(pub const $name: f64 = $value;)*
        /// All of them, as the page shows them.
        pub const ALL: &[Cost] = &[
            $(Cost { what: $what, value: $value, unit: $unit, source: $source },)*
        ];
    };
}

costs! {
    PLAN_ENTRY = 3.5e-6, "s", "plan: one thread, an entry, beside its look", HERE;
    SHARD_FILE = 20.0e-6, "s", "shard: one thread, a small file, beside what the servers take", HERE;
    SHARD_BYTE = 1.0e-9, "s", "shard: one thread, a byte, read, hashed and written", HERE;
    FINISH_ENTRY = 2.0e-6, "s", "finish: an entry", HERE;
    FINISH_DIR = 10.0e-6, "s", "finish: a directory, beside what the servers take", HERE;
    RECORDED = 5.0, "s", "what a dead client does again, at most", "the program";
    LEASE = 90.0, "s", "until a dead client's claim is free", "the program";
    CREATE_LATENCY = 1.0 / 1100.0, "s", "one client thread creates a file", DELL;
    LOOK_LATENCY = 1.0 / 2000.0, "s", "one client thread looks at a file", DELL;
    CREATES = 27.0e3, "1/s", "files that one metadata server creates", DELL;
    LOOKS = 500.0e3, "1/s", "files that one metadata server looks at", DELL;
    METADATA_SERVERS = 40.0, "", "metadata servers", ORION;
    READ = 14.0e12, "B/s", "content read, of all servers", ORION;
    WRITTEN = 11.0e12, "B/s", "content written, of all servers", ORION;
    NETWORK = 12.5e9, "B/s", "one client's network, in each direction", CHOSEN;
    THREADS = 32.0, "", "threads of a client", CHOSEN;
}

/// Looks at the servers of names that one small file takes in a shard: opened and looked at twice at the source, filled and
/// sealed at the destination.
pub const LOOKS_A_FILE: f64 = 6.0;
/// The same of a directory in the end: opened on both sides, listed, read, sealed.
pub const LOOKS_A_DIR_IN_THE_END: f64 = 8.0;
/// Of a shard: its claim, its entries, its result.
pub const LOOKS_A_SHARD: f64 = 20.0;
