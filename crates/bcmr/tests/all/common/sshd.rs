//! A private OpenSSH server on loopback: keys, configuration and home of its own, the program under test in its PATH.
//!
//! Must not know what is tested over it. `cargo xtask sshd` includes this file as well, so it uses the standard library
//! and rustix only.

#![allow(dead_code)] // each user uses its part
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // not for users' machines

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What the server is called for the client; every other name leads to it as well.
pub const HOST: &str = "there";

/// How long a server may take to listen.
const START_MAX: Duration = Duration::from_secs(200);
/// Ports tried: between finding a free one and taking it, another process may take it.
const PORTS_TRIED: usize = 5;

/// A running server. Ends, with every session, when this is dropped.
pub struct Sshd {
    dir: PathBuf,
    port: u16,
    child: Child,
}

impl Sshd {
    /// Starts one whose files lie in `dir`, which must exist and be its own. `bcmr` is what is found there under that
    /// name. `extra` are further lines of sshd_config.
    ///
    /// # Errors
    /// Says what is missing, or what sshd said.
    pub fn start(dir: &Path, bcmr: &Path, extra: &[&str]) -> Result<Sshd, String> {
        let sshd = sshd_program().ok_or("no sshd here (Debian: openssh-server)")?;
        let dir = fs::canonicalize(dir).map_err(|e| e.to_string())?;
        for name in ["bin", "home", "run"] {
            fs::create_dir_all(dir.join(name)).map_err(|e| e.to_string())?;
        }
        fs::set_permissions(dir.join("run"), fs::Permissions::from_mode(0o700)).map_err(|e| e.to_string())?;
        symlink(bcmr, dir.join("bin/bcmr")).map_err(|e| e.to_string())?;
        for name in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"]).arg(dir.join(name));
            done(&mut keygen)?;
        }
        fs::copy(dir.join("user.pub"), dir.join("authorized_keys")).map_err(|e| e.to_string())?;
        if rustix::process::geteuid().is_root() {
            // Where sshd confines itself before a client has logged in; a service would make it.
            fs::create_dir_all("/run/sshd").map_err(|e| e.to_string())?;
        }
        let mut last = String::new();
        for _ in 0..PORTS_TRIED {
            match Sshd::try_port(&sshd, &dir, extra) {
                Ok(started) => return Ok(started),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    fn try_port(sshd: &Path, dir: &Path, extra: &[&str]) -> Result<Sshd, String> {
        let free =
            TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).map_err(|e| e.to_string())?;
        let port = free.port();
        write(dir, "sshd_config", &server_config(dir, port, extra))?;
        write(dir, "ssh_config", &client_config(dir, port))?;
        let host_key = fs::read_to_string(dir.join("host.pub")).map_err(|e| e.to_string())?;
        write(dir, "known_hosts", &format!("* {host_key}"))?;
        let log = fs::File::create(dir.join("log")).map_err(|e| e.to_string())?;
        let child = Command::new(sshd)
            .args(["-D", "-e", "-f"])
            .arg(dir.join("sshd_config"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0)
            .spawn()
            .map_err(|e| format!("{}: {e}", sshd.display()))?;
        let mut started = Sshd { dir: dir.to_owned(), port, child };
        let end = Instant::now() + START_MAX;
        loop {
            if started.answers() {
                return Ok(started);
            }
            let ended = started.child.try_wait().map_err(|e| e.to_string())?;
            if ended.is_some() || Instant::now() > end {
                return Err(format!("sshd does not listen: {}", started.log()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn answers(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        let mut banner = [0; 4];
        stream.set_read_timeout(Some(Duration::from_secs(5))).is_ok()
            && stream.read_exact(&mut banner).is_ok()
            && &banner == b"SSH-"
    }

    /// The ssh command that reaches it, as words: `ssh -F CONFIG`. Any host name leads here, [`HOST`] by custom.
    pub fn ssh(&self) -> Vec<OsString> {
        vec!["ssh".into(), "-F".into(), self.config().into()]
    }

    /// A command on the other side, as a user would type it.
    pub fn run(&self, command: &str) -> Command {
        let words = self.ssh();
        let mut ssh = Command::new(&words[0]);
        ssh.args(&words[1..]).arg(HOST).arg(command);
        ssh
    }

    /// The client's configuration.
    pub fn config(&self) -> PathBuf {
        self.dir.join("ssh_config")
    }

    /// The home directory on the other side.
    pub fn home(&self) -> PathBuf {
        self.dir.join("home")
    }

    /// Where the other side's `XDG_RUNTIME_DIR` is: further connections meet the first one there.
    pub fn runtime(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// Where it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process that listens; it waits for its sessions when they end.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether any session has not ended, or has not been waited for.
    pub fn busy(&self) -> bool {
        !below(self.child.id()).is_empty()
    }

    /// What sshd has said.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Kills every session as a lost machine would, and leaves the server: says how many processes that were.
    pub fn cut(&self) -> usize {
        let mut killed = 0;
        for pid in below(self.child.id()) {
            // Those named after sshd hold the connections; what they have started learns of it from its pipes.
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if name.starts_with("sshd") {
                killed += usize::from(kill(pid));
            }
        }
        killed
    }

    /// Processes that sessions have started on the other side, by their names.
    pub fn sessions(&self) -> Vec<String> {
        let name = |pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok();
        below(self.child.id())
            .into_iter()
            .filter_map(name)
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.starts_with("sshd"))
            .collect()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        for pid in below(self.child.id()) {
            kill(pid);
        }
        let _ok = self.child.kill();
        let _ok = self.child.wait();
    }
}

/// Nothing of the user's or the machine's own configuration takes part.
fn server_config(dir: &Path, port: u16, extra: &[&str]) -> String {
    let dir = dir.display();
    let mut text = extra.iter().map(|line| format!("{line}\n")).collect::<String>();
    text.push_str(&format!(
        "Port {port}\n\
         ListenAddress 127.0.0.1\n\
         HostKey {dir}/host\n\
         PidFile none\n\
         AuthorizedKeysFile {dir}/authorized_keys\n\
         StrictModes no\n\
         UsePAM no\n\
         PasswordAuthentication no\n\
         KbdInteractiveAuthentication no\n\
         PermitRootLogin prohibit-password\n\
         UseDNS no\n\
         PrintMotd no\n\
         MaxStartups 1000\n\
         MaxSessions 1000\n\
         Subsystem sftp internal-sftp\n\
         SetEnv PATH={dir}/bin:/usr/local/bin:/usr/bin:/bin HOME={dir}/home XDG_RUNTIME_DIR={dir}/run \
         XDG_CACHE_HOME={dir}/home/.cache\n"
    ));
    text
}

fn client_config(dir: &Path, port: u16) -> String {
    let dir = dir.display();
    format!(
        "Host *\n\
         HostName 127.0.0.1\n\
         Port {port}\n\
         IdentityFile {dir}/user\n\
         IdentitiesOnly yes\n\
         IdentityAgent none\n\
         UserKnownHostsFile {dir}/known_hosts\n\
         GlobalKnownHostsFile /dev/null\n\
         StrictHostKeyChecking yes\n\
         BatchMode yes\n\
         LogLevel ERROR\n"
    )
}

fn write(dir: &Path, name: &str, text: &str) -> Result<(), String> {
    fs::write(dir.join(name), text).map_err(|e| format!("{name}: {e}"))
}

fn done(command: &mut Command) -> Result<(), String> {
    let out = command.stdin(Stdio::null()).output();
    let out = out.map_err(|e| format!("{}: {e}", command.get_program().display()))?;
    if out.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&out.stderr).trim().to_owned()) }
}

/// sshd wants to be called by its whole path.
fn sshd_program() -> Option<PathBuf> {
    let places = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd", "/sbin/sshd"];
    places.iter().map(PathBuf::from).find(|path| path.is_file())
}

/// Every process that descends from `root`, parents first.
fn below(root: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name stands in parentheses and may hold anything; state and parent follow the last one.
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        if let Some(parent) = parent {
            parents.push((pid, parent));
        }
    }
    let mut found = vec![root];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        found.extend(parents.iter().filter(|(_, p): &&(u32, u32)| *p == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}

fn kill(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok())
}
