//! `cargo xtask sshd`: the private ssh server of the tests, for trying things by hand.
//!
//! Must not know how it is set up: that stands with the tests.

#[path = "../../crates/bcmr/tests/all/common/sshd.rs"]
pub mod server;

use crate::typed;
use clap::Parser;
use server::{HOST, Sshd};
use sh::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A private ssh server on loopback with bcmr in its PATH, until Ctrl-C.
#[derive(Parser)]
#[command(name = "cargo xtask sshd")]
struct ServeSsh {}

pub fn run(args: &[&str]) -> Result {
    let Some(ServeSsh {}) = typed::parse(args)? else { return Ok(()) };
    sh::run(sh::cargo().args(["build", "--quiet", "--locked", "-p", "bcmr"]))?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let dir = std::env::temp_dir().join(format!("bcmr-sshd-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let sshd = Sshd::start(&dir, &sh::target_dir().join("debug/bcmr"), &[])?;
    let config = sshd.config();
    println!("it listens on 127.0.0.1, port {}; its home is {}", sshd.port(), sshd.home().display());
    println!();
    println!("  ssh -F {} {HOST}", config.display());
    println!("  bcmr copy -F {} -r DIR {HOST}:", config.display());
    println!();
    println!("Ctrl-C ends it.");
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(sshd);
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
