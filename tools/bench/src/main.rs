//! The benchmarks and the experiments: `cargo xtask bench` and `cargo xtask experiment` start this program. Must not know
//! how anything is measured.
//!
//! None of this reaches a user's machine, so it may stop with a panic and use `std::fs`.

mod all;
mod bare_walk;
mod checkpoint;
mod data;
mod delta;
mod documents;
mod experiment;
mod local;
mod made;
mod many;
mod measure;
mod memory;
mod mount;
mod options;
mod programs;
mod record;
mod remote;
mod rows;
mod scale;
mod svg;
mod turns;
mod verdict;

use options::{IMAGE_BYTES, On, Options, USAGE, parse};
use sh::Result;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.split_first() {
        Some((&"bench", rest)) => bench(rest),
        Some((&"experiment", rest)) => experiment::run(rest),
        Some((&"made", [])) => made::run(),
        // Not for people: the measured child, and what is measured inside a process.
        Some((&measure::HELPER, rest)) => measure::helper(rest),
        Some((&measure::MEMORY_HELPER, rest)) => measure::memory_helper(rest),
        Some((&measure::FIRST_HELPER, rest)) => measure::first_helper(rest),
        Some((&remote::ceiling::HELPER, rest)) => remote::ceiling::run(rest),
        Some((&bare_walk::HELPER, rest)) => bare_walk::run(rest),
        Some((&experiment::inside::HELPER, rest)) => experiment::inside::run(rest),
        _ => Err("usage: bench bench|experiment|made ...; `cargo xtask bench --help` says more".into()),
    };
    if let Err(problem) = done {
        eprintln!("bench: {problem}");
        std::process::exit(1);
    }
}

/// `cargo xtask bench`.
fn bench(args: &[&str]) -> Result {
    match args {
        ["local", rest @ ..] if !rest.contains(&"--help") => {
            on(parse(rest)?, |options| local::run(options, rest))
        }
        ["checkpoint", rest @ ..] if !rest.contains(&"--help") => {
            on(parse(rest)?, |options| checkpoint::run(options, rest))
        }
        ["remote", rest @ ..] if !rest.contains(&"--help") => {
            let mut options = parse(rest)?;
            if options.on == On::Whatever {
                options = options.on_tmpfs();
            }
            on(options, |options| remote::run(options, rest))
        }
        ["memory", rest @ ..] if !rest.contains(&"--help") => {
            on(parse(rest)?, |options| memory::run(options, rest))
        }
        ["scale", rest @ ..] if !rest.contains(&"--help") => {
            on(parse(rest)?, |options| scale::run(options, rest))
        }
        ["many", rest @ ..] if !rest.contains(&"--help") => {
            on(parse(rest)?, |options| many::run(options, rest))
        }
        ["delta", rest @ ..] if !rest.contains(&"--help") => {
            on(parse(rest)?, |options| delta::run(options, rest))
        }
        ["all", rest @ ..] if !rest.contains(&"--help") => all::run(rest, bench),
        ["guests"] => programs::guests(),
        ["report", dir] => documents::write(&sh::root().join(dir)),
        [.., "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(format!("usage:\n{USAGE}").into()),
    }
}

/// Lays the file system that was asked for below the work, and takes it away afterwards. The work may have kept records
/// in `--write DIR`; then the pages there are made again, also when the work found something to be missed.
fn on(options: Options, work: impl FnOnce(&Options) -> Result) -> Result {
    let docs = options.write.clone();
    let done = on_file_system(options, work);
    let written = docs.map_or(Ok(()), |docs| documents::write(&docs));
    done.and(written)
}

fn on_file_system(mut options: Options, work: impl FnOnce(&Options) -> Result) -> Result {
    std::fs::create_dir_all(&options.dir)?;
    match options.on.clone() {
        On::Whatever => work(&options),
        On::Tmpfs => {
            let done = work(&options);
            std::fs::remove_dir_all(&options.dir)?;
            done
        }
        On::Image(fs) => {
            let image = mount::Loop::new(&fs, IMAGE_BYTES, &options.dir)?;
            options.dir = image.dir().to_path_buf();
            work(&options)
        }
    }
}
