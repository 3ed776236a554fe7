//! `man`: pages made from the definitions in `args`.

use crate::cli::bcmr;
use crate::voice::BCMR;
use std::path::Path;

/// Writes bcmr(1) and one page for each command into `dir`, or prints bcmr(1).
pub fn run(dir: Option<&Path>) -> u8 {
    match dir {
        Some(dir) => match clap_mangen::generate_to(bcmr::command(), dir) {
            Ok(()) => BCMR.exits.done,
            Err(e) => super::verb::file_failed("write man pages into", dir, &e),
        },
        None => {
            let mut page = Vec::new();
            match clap_mangen::Man::new(bcmr::command()).render(&mut page) {
                Ok(()) => super::verb::print(&String::from_utf8_lossy(&page)),
                Err(e) => super::verb::file_failed("write", Path::new("bcmr.1"), &e),
            }
        }
    }
}
