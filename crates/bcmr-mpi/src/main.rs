//! `mpirun -n N bcmr-mpi copy SRC DST`: a copy by all ranks of an MPI job, or a sync, a check or a removal. The first rank makes
//! a plan, hands out its shards one by one, and ends it; every rank does shards.
//!
//! Must not know how anything is copied: the engine's plans do that, and what they promise holds here.

mod args;
mod plan;
mod rank;
mod say;
mod walk;
mod wire;

#[path = "../../bcmr/src/names.rs"]
#[allow(dead_code, reason = "bcmr's own file, of which this needs a part")]
mod names;
#[path = "../../bcmr/src/cli/bcmr/size.rs"]
#[allow(dead_code, reason = "bcmr's own file, of which this needs a part")]
mod size;
#[path = "../../bcmr/src/voice.rs"]
#[allow(dead_code, reason = "bcmr's own file, of which this needs a part")]
mod voice;

use args::{Cli, Typed};
use bcmr_engine::api::{CopyPolicy, Io};
use bcmr_engine::memory::OrExit;
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// What is under way is found by the next run, as after a kill.
#[global_allocator]
static MEMORY: OrExit =
    OrExit::new("\nbcmr-mpi: there is no memory left; the same command goes on with what was recorded\n", 12);

/// What all ranks do together.
pub struct Job {
    args: Typed,
    source: PathBuf,
    destination: PathBuf,
    plan: PathBuf,
    /// Where it is remembered how sources of syncs were mounted: where the command remembers it.
    state: Option<PathBuf>,
    policy: CopyPolicy,
}

fn main() -> ExitCode {
    MEMORY.reserve_stack();
    MEMORY.ends_threads_too();
    // While there is one thread: reading the umask means setting it for a moment.
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    let args = Typed::of(Cli::parse().verb);
    match job(args, mask.bits() & 0o777) {
        Ok(job) => ExitCode::from(rank::run(&job)),
        Err(e) => {
            say::err(&say::VOICE.line(&format!("a path cannot be used: {}", names::text(&e.to_string()))));
            ExitCode::from(say::VOICE.exits.usage)
        }
    }
}

fn job(args: Typed, umask: u32) -> std::io::Result<Job> {
    let source = std::path::absolute(&args.source)?;
    let destination = std::path::absolute(&args.destination)?;
    let plan = std::path::absolute(args.plan(&destination))?;
    let me = rustix::process::geteuid().as_raw();
    let policy = CopyPolicy {
        io: Io::AUTO,
        verify: args.verify,
        one_file_system: args.one_file_system,
        ..CopyPolicy::archive(usize::from(args.ranks.jobs), me, umask)
    };
    Ok(Job { args, source, destination, plan, state: state(), policy })
}

fn state() -> Option<PathBuf> {
    let place = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let above = place("XDG_STATE_HOME").or_else(|| Some(place("HOME")?.join(".local/state")));
    above.map(|above| above.join("bcmr/sync"))
}
