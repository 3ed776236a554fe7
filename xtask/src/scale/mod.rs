//! `cargo xtask scale`: copies in shards by 1 to 4,096 clients, on paper: what the plan, the shards and the end of a copy
//! take on a parallel file system, and where more clients stop being of use. Deterministic; docs/scale-many.md and its
//! pictures are what it writes, and a test proves it.
//!
//! Must not measure anything: figures come from `costs.rs`, with their sources.

mod costs;
mod events;
mod model;
mod page;

use sh::Result;
use std::path::Path;

const USAGE: &str = "cargo xtask scale [--write docs] [--seed N]    prints docs/scale-many.md, or writes it with its pictures";
/// The seed of the page.
const SEED: u64 = 16;
pub fn run(args: &[&str]) -> Result {
    let (mut out, mut seed) = (None, SEED);
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match *arg {
            "--write" => out = Some(rest.next().ok_or(USAGE)?),
            "--seed" => seed = rest.next().and_then(|n| n.parse().ok()).ok_or(USAGE)?,
            _ => return Err(USAGE.into()),
        }
    }
    let files = page::files(seed);
    match out {
        None => files.iter().filter(|(name, _)| name.ends_with(".md")).for_each(|(_, text)| print!("{text}")),
        Some(dir) => {
            for (name, text) in &files {
                std::fs::write(Path::new(dir).join(name), text)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_what_the_simulation_gives() {
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/");
        for (name, text) in page::files(SEED) {
            let there = std::fs::read_to_string(format!("{docs}{name}")).unwrap_or_default();
            assert!(there == text, "docs/{name} is another: cargo xtask scale --write docs");
        }
    }
}
