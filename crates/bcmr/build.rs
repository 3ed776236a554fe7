//! Links a debug build for a fixed address. The loader spends a fifth of a short run on moving it to another one, and tests
//! start it again and again. Release builds, which users get, are linked as ever.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    let native = std::env::var("HOST").ok() == std::env::var("TARGET").ok();
    let gnu = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if is("PROFILE", "debug") && native && gnu {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
