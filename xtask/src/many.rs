//! What the commands that start many processes have in common: packages that are installed, a place with a source, the judge,
//! and the blocks of docs/many-machines.md.
//!
//! Must not know what starts the processes.

use sh::Result;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Whether a program is here, in the PATH or where daemons are.
pub fn has(program: &str) -> bool {
    let elsewhere = ["/usr/sbin", "/sbin"].iter().any(|dir| Path::new(dir).join(program).is_file());
    elsewhere || sh::which(program).is_some()
}

/// Installs the Debian packages of what is not there, where root may.
pub fn need(wanted: &[(bool, &str)]) -> Result {
    let missing: Vec<&str> = wanted.iter().filter(|(there, _)| !there).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !sh::is_root() {
        return Err(format!("install first: {}", missing.join(" ")).into());
    }
    sh::run(Command::new("apt-get").args(["update", "-q"]))?;
    let mut install = Command::new("apt-get");
    install.args(["install", "-y", "-q", "--no-install-recommends"]).args(missing);
    sh::run(install.env("DEBIAN_FRONTEND", "noninteractive"))
}

/// A place of its own in memory, which goes in the end.
pub struct Site {
    pub path: PathBuf,
}

impl Site {
    pub fn new(name: &str) -> Result<Site> {
        let above = if Path::new("/dev/shm").is_dir() {
            PathBuf::from("/dev/shm")
        } else {
            sh::root().join("target")
        };
        let path = above.join(format!("bcmr-{name}-{}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(Site { path })
    }

    pub fn p(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A source with a little of everything: directories with so many small files in all, large files, links, empty
    /// directories, modes.
    pub fn source(&self, files: usize, large_bytes: usize) -> Result {
        let src = self.p("src");
        for n in 0..files {
            let dir = src.join(format!("d{}/e{}", n % 7, n % 3));
            fs::create_dir_all(&dir)?;
            fs::write(dir.join(format!("a file with a name that is not short {n}")), noise(n, 1 + n % 3000))?;
        }
        fs::create_dir_all(src.join("empty/in"))?;
        fs::create_dir_all(src.join("large"))?;
        for (n, bytes) in [large_bytes, large_bytes / 3].into_iter().enumerate() {
            fs::write(src.join(format!("large/{n}")), noise(n, bytes))?;
        }
        fs::hard_link(src.join("large/1"), src.join("d0/again"))?;
        symlink("../nowhere", src.join("d1/link"))?;
        fs::set_permissions(src.join("large/0"), fs::Permissions::from_mode(0o4511))?;
        Ok(fs::set_permissions(src.join("d2"), fs::Permissions::from_mode(0o2751))?)
    }

    /// The tree `dst` is the source, and nothing of bcmr's is left beside it but what `kept` names.
    pub fn judge(&self, dst: &str, kept: &[&str]) -> Result {
        let from = format!("{}/", self.p("src").display());
        let to = format!("{}/", self.p(dst).display());
        let said =
            sh::output("rsync", &["-aHAXn", "--checksum", "--delete", "--itemize-changes", &from, &to])?;
        if !said.is_empty() {
            return Err(format!("rsync would change {dst}:\n{said}").into());
        }
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name().into_string().map_err(|_| "a name that is not UTF-8")?;
            if name.contains("bcmr") && !kept.contains(&name.as_str()) {
                return Err(format!("{name} was left beside {dst}").into());
            }
        }
        Ok(())
    }

    pub fn is_there(&self, name: &str) -> bool {
        self.p(name).symlink_metadata().is_ok()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.path) {
            eprintln!("{}: {e}", self.path.display());
        }
    }
}

/// Bytes that repeat nowhere near.
fn noise(seed: usize, bytes: usize) -> Vec<u8> {
    let mut state = seed as u64 + 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// The block of docs/many-machines.md that is fenced with "sh" and this word.
pub fn block(word: &str) -> Result<String> {
    let text = fs::read_to_string(sh::root().join("docs/many-machines.md"))?;
    let fence = format!("```sh {word}\n");
    let rest = text.split_once(&fence).ok_or_else(|| format!("docs/many-machines.md has no block {word}"))?.1;
    Ok(rest.split("```").next().unwrap_or_default().to_owned())
}

/// A FIFO.
pub fn fifo(path: &Path) -> Result {
    sh::quiet("mkfifo", &[sh::text(path)?])
}

/// Opens a FIFO for reading, and reads a first byte: its writer is in the middle of something, and stands still there soon.
pub fn hear(path: &Path) -> Result<File> {
    let (tell, told) = std::sync::mpsc::channel();
    let opened = path.to_owned();
    std::thread::spawn(move || {
        let heard = File::open(&opened).and_then(|mut file| {
            std::io::Read::read_exact(&mut file, &mut [0])?;
            Ok(file)
        });
        // Nobody waits any more.
        drop(tell.send(heard));
    });
    Ok(told.recv_timeout(LIMIT).map_err(|_| format!("nothing was written to {}", path.display()))??)
}

/// How long anything may take that is waited for.
const LIMIT: Duration = Duration::from_secs(120);

/// Waits until it is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result {
    let since = Instant::now();
    while !is_so()? {
        if since.elapsed() > LIMIT {
            return Err(format!("it did not come to be: {what}").into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Runs a command and gives what it said and how it ended.
pub fn ran(command: &mut Command) -> Result<(i32, String)> {
    let Output { status, stdout, stderr } =
        command.stdin(Stdio::null()).output().map_err(|e| format!("{:?}: {e}", command.get_program()))?;
    let said = [stdout, stderr].concat();
    Ok((status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned()))
}

/// The same, and it must end so.
pub fn ends(command: &mut Command, code: i32) -> Result<String> {
    let (ended, said) = ran(command)?;
    if ended != code {
        return Err(format!("{command:?} ended with {ended} and not {code}:\n{said}").into());
    }
    Ok(said)
}

/// The number behind `before` in a text.
pub fn number(text: &str, before: &str) -> Result<u64> {
    let rest = text.split_once(before).map(|(_, rest)| rest).unwrap_or_default();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().map_err(|_| format!("no number behind {before:?} in:\n{text}").into())
}

/// Says that the words do not hold, unless they do.
pub fn holds(is_so: bool, words: &str) -> Result {
    if is_so { Ok(()) } else { Err(words.into()) }
}
