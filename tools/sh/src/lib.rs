//! Running other programs from the root of the workspace, for the commands of developers. Must not know what they
//! are for.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What every command here ends with; the text is for a person.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The root of the workspace.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// The cargo that runs us, else the one in the path.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// A path as an argument; scratch paths are always UTF-8.
pub fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| format!("{} is not UTF-8", path.display()).into())
}

/// Where cargo puts what it builds.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Where `cargo build --release` puts its binaries.
pub fn release_dir() -> PathBuf {
    target_dir().join("release")
}

/// Where `cargo build` puts its binaries.
pub fn debug_dir() -> PathBuf {
    target_dir().join("debug")
}

/// Runs with our own output streams; anything but success is an error that names the command.
pub fn run(command: &mut Command) -> Result {
    let shown = show(command);
    let status = command.stdin(Stdio::null()).status().map_err(|e| format!("{shown}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{shown}: {status}").into()) }
}

/// Runs a command line, and its output goes nowhere unless it fails.
pub fn quiet(program: &str, args: &[&str]) -> Result {
    output(program, args).map(drop)
}

/// The standard output of a command line, trimmed.
pub fn output(program: &str, args: &[&str]) -> Result<String> {
    let out = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .current_dir(root())
        .output()
        .map_err(|e| format!("{program}: {e}"))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        return Err(format!("{program} {}: {}: {}", args.join(" "), out.status, said.trim()).into());
    }
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// Where a program is in PATH.
pub fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|d| d.join(program)).find(|p| p.is_file())
}

/// Whether we are root, asked without any unsafe call.
pub fn is_root() -> bool {
    output("id", &["-u"]).is_ok_and(|uid| uid == "0")
}

/// The command as one would type it.
fn show(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
