//! Development commands: `cargo xtask <command>`. Each is a module; this file only finds it.
//!
//! None of this reaches a user's machine, so it may stop with a panic and use `std::fs`.

mod apart;
mod bench;
mod ci;
mod crash;
mod deny;
mod dist;
mod fuzz;
mod gnu;
mod man;
mod many;
mod mpi;
mod scale;
mod simulate;
mod slurm;
mod sshd;
mod tidy;
mod torture;
mod typed;
mod wheel;

const USAGE: &str = "\
cargo xtask ci [--deep] [STEP...] every check, in two lanes; only the steps that are named; --deep: all, not slices
cargo xtask tidy [--figures]      the walls between the crates, and what every file must have; or the code in numbers
cargo xtask bench local [OPTION]  local copy and remove against cp, rm, rsync (--help)
cargo xtask bench remote [OPTION] remote copies against scp, rsync and tar | ssh tar
cargo xtask bench checkpoint [OPTION] verifying, checkpoints and going on after a kill
cargo xtask bench many [OPTION]   copies by ranks of MPI and by shards
cargo xtask bench memory [OPTION] peak memory at a million files
cargo xtask experiment LIST|all   the published experiments, repeated, with pages and plots (--help)
cargo xtask torture [NAME...]     the fault judges: inject race perm space kill tree (--help)
cargo xtask gnu [OPTION]          cp, mv, rm and install beside Debian's, on twin trees, lines drawn by a seed (--help)
cargo xtask crash [OPTION]        power cuts on ext4, xfs and btrfs, every state judged (--help)
cargo xtask simulate [--seeds N]  both ends of transfers over wires that misbehave; every one must end
cargo xtask scale [--write docs]  copies by 1 to 4,096 clients on paper: docs/scale-many.md and its picture
cargo xtask sshd                  a private ssh server with bcmr in its PATH, until Ctrl-C
cargo xtask fuzz [TARGET...] [--seconds N] every decoder under libFuzzer (--help)
cargo xtask install [--prefix DIR] the static binary, into ~/.cargo/bin or with its man pages below DIR
cargo xtask dist [--arch A,B]     static binaries, .deb, .rpm, tarball, checksums and a bill of materials (--help)
cargo xtask startup               which functions lie beside one another in those binaries: needs valgrind
cargo xtask man DIR               man pages, from the argument definitions
cargo xtask mpi [--release]       bcmr-mpi, built and tested under mpirun (--help)
cargo xtask slurm                 the scripts for Slurm, with real daemons on this machine (--help)
cargo xtask wheel [--no-test]     Python's bcmr as a wheel, tested where nothing else is installed";

fn main() {
    if let Some(cc) = dist::order::linker() {
        return end(dist::order::link(&cc));
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    if let Some(&("ci" | "bench" | "experiment" | "torture" | "crash" | "mpi")) = words.first()
        && let Err(problem) = apart::mounts()
    {
        return end(Err(problem));
    }
    let done = match words.split_first() {
        Some((&"ci", rest)) => ci::run(rest),
        Some((&"tidy", rest)) => tidy::run(rest),
        Some((&("bench" | "experiment"), _)) => bench::run(&words),
        Some((&"torture", rest)) => torture::run(rest),
        Some((&"gnu", rest)) => gnu::run(rest),
        Some((&"crash", rest)) => crash::run(rest),
        Some((&"scale", rest)) => scale::run(rest),
        Some((&"simulate", rest)) => simulate::run(rest),
        Some((&"sshd", rest)) => sshd::run(rest),
        Some((&"fuzz", rest)) => fuzz::run(rest),
        Some((&"dist", rest)) => dist::dist(rest),
        Some((&"install", rest)) => dist::install(rest),
        Some((&"startup", rest)) => dist::startup(rest),
        Some((&"man", rest)) => man::run(rest),
        Some((&"mpi", rest)) => mpi::run(rest),
        Some((&"slurm", rest)) => slurm::run(rest),
        Some((&"wheel", rest)) => wheel::run(rest),
        Some((&("help" | "--help" | "-h"), _)) => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(format!("usage:\n{USAGE}").into()),
    };
    end(done);
}

fn end(done: sh::Result) {
    if let Err(problem) = done {
        eprintln!("xtask: {problem}");
        std::process::exit(1);
    }
}
