//! Development commands: `cargo xtask <command>`.
fn main() {
    eprintln!("no command yet");
    std::process::exit(2);
}
