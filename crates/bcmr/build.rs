//! A debug build lies at a fixed address: a fifth of the time of a short run would go into moving it to another one, and
//! tests start it tens of thousands of times. What users get is not touched.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    let native = std::env::var("HOST").ok() == std::env::var("TARGET").ok();
    let gnu = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if is("PROFILE", "debug") && native && gnu {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
