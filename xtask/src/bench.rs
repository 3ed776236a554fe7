//! `cargo xtask bench` and `cargo xtask experiment`: starts the program in `tools/bench`, which is built only then. Must not
//! know what is measured.

use sh::Result;

/// The first word is `bench`, `experiment` or `made`; paths are relative to where the user stands.
pub fn run(words: &[&str]) -> Result {
    let mut bench = sh::cargo();
    bench.current_dir(std::env::current_dir()?);
    bench.arg("run").arg("--manifest-path").arg(sh::root().join("Cargo.toml"));
    sh::run(bench.args(["--quiet", "--locked", "--package", "bench", "--"]).args(words))
}
