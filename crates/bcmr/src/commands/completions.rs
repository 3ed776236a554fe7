//! `completions`: made from the definitions in `args`.

use crate::cli::bcmr;

/// Prints them for one shell.
pub fn run(shell: clap_complete::Shell) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut bcmr::command(), "bcmr", &mut script);
    super::verb::print(&String::from_utf8_lossy(&script))
}
