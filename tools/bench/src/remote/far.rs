//! The other machine: a private sshd, on loopback, behind a slow link or behind a long one, and what its processes use.
//! Must not know what is copied.

#[path = "../../../../crates/bcmr/tests/all/common/sshd.rs"]
mod sshd;

use super::bridge::{self, Manners};
use super::relay::{self, Relay};
use super::rows::Line;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sh::{Result, text};
use sshd::Sshd;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// There and back.
pub const TRIP: Duration = Duration::from_millis(50);
const LONGER_TRIP: Duration = Duration::from_millis(100);
/// The long line.
const LONG: Manners = Manners { bits_s: 1_000_000_000, trip: LONGER_TRIP, lost_of: 1000 };
/// The thin one, as a home has it.
const THIN: Manners = Manners { bits_s: 20_000_000, trip: Duration::from_millis(40), lost_of: 0 };
pub const RATE: &str = "80mbit";
/// There and back, of the line that is slow as well.
pub const WIDE_TRIP: Duration = Duration::from_millis(30);
/// A few times what such a line holds: with more, the relay would take a whole file at once.
const WIDE_PIECES: usize = 16;
/// Of the range that is set aside for benchmarks (RFC 2544).
const NEAR: &str = "198.18.77.1";
const FAR: &str = "198.18.77.2";
const LOOPBACK: &str = "127.0.0.1";
/// How long sessions may take to end after their client.
const END_MAX: Duration = Duration::from_secs(20);

/// One line to an sshd of its own.
pub struct Far {
    sshd: Sshd,
    config: PathBuf,
    address: &'static str,
    /// Taken down after the server.
    link: Option<Link>,
}

impl Far {
    /// Starts it in `dir`, which is made; `bcmr` is what is found there.
    pub fn start(line: Line, dir: &Path, bcmr: &Path) -> Result<Far> {
        if dir.exists() {
            fs::remove_dir_all(dir)?;
        }
        fs::create_dir_all(dir)?;
        // For the size of the store.
        let accept = "AcceptEnv BCMR_*";
        match line {
            Line::Loopback => {
                let sshd = Sshd::start(dir, bcmr, &[accept])?;
                Ok(Far { config: sshd.config(), sshd, address: LOOPBACK, link: None })
            }
            Line::Far | Line::Farther => {
                let sshd = Sshd::start(dir, bcmr, &[accept])?;
                let here = SocketAddr::from(([127, 0, 0, 1], sshd.port()));
                let trip = if line == Line::Far { TRIP } else { LONGER_TRIP };
                let relay = Relay::start(here, trip, relay::PIECES)?;
                let port = (format!("Port {}", sshd.port()), format!("Port {}", relay.port()));
                let config = rewritten(&sshd.config(), &[port])?;
                Ok(Far { config, sshd, address: LOOPBACK, link: None })
            }
            Line::Slow | Line::Wide | Line::Long | Line::Thin => {
                let link = Link::of(line)?;
                let listen = format!("ListenAddress {FAR}");
                let sshd = link.within(|| Sshd::start(dir, bcmr, &[accept, &listen]))??;
                let change = if line == Line::Wide {
                    let far = SocketAddr::from((FAR.parse::<Ipv4Addr>()?, sshd.port()));
                    let relay = Relay::start(far, WIDE_TRIP, WIDE_PIECES)?;
                    (format!("Port {}", sshd.port()), format!("Port {}", relay.port()))
                } else {
                    ("HostName 127.0.0.1".to_owned(), format!("HostName {FAR}"))
                };
                let config = rewritten(&sshd.config(), &[change])?;
                Ok(Far { config, sshd, address: FAR, link: Some(link) })
            }
        }
    }

    /// Where ssh finds it, and other connections too, unless a relay is between.
    pub fn address(&self) -> &'static str {
        self.address
    }

    pub fn has_link(&self) -> bool {
        self.link.is_some()
    }

    /// What the client is to be told.
    pub fn config(&self) -> &Path {
        &self.config
    }

    pub fn port(&self) -> u16 {
        self.sshd.port()
    }

    /// Where `bcmr serve` keeps its blocks.
    pub fn store(&self) -> PathBuf {
        self.sshd.home().join(".cache/bcmr/cas")
    }

    /// Waits until every session has ended, and says how many CPU seconds ended ones have used since the start: sshd
    /// waits for its sessions, and they for what they have started.
    pub fn used_s(&self) -> Result<f64> {
        let end = Instant::now() + END_MAX;
        while self.sshd.busy() {
            if Instant::now() > end {
                return Err(format!("sessions did not end: {:?}", self.sshd.sessions()).into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.sshd.pid()))?;
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        // state ppid ... : cutime and cstime are the 16th and 17th field of the whole line, in hundredths of a second.
        let ticks = |n: usize| rest.split_whitespace().nth(n).and_then(|t| t.parse::<f64>().ok());
        Ok((ticks(13).unwrap_or(0.0) + ticks(14).unwrap_or(0.0)) / 100.0)
    }
}

/// A client's configuration with other words, beside the first.
fn rewritten(config: &Path, changes: &[(String, String)]) -> Result<PathBuf> {
    let mut words = fs::read_to_string(config)?;
    for (from, to) in changes {
        if !words.contains(from.as_str()) {
            return Err(format!("{}: has no {from:?}", config.display()).into());
        }
        words = words.replace(from, to);
    }
    let path = config.with_extension("bench");
    fs::write(&path, words)?;
    Ok(path)
}

/// A network namespace at the other end of a veth pair, both ends with a token bucket; or of a bridge of packets.
struct Link {
    space: String,
    veth: String,
    /// The ends of a bridge, taken down last.
    ends: Vec<bridge::End>,
}

impl Link {
    /// Nothing leads there yet.
    fn empty() -> Result<Link> {
        let way = sh::output("ip", &["route", "get", FAR]).unwrap_or_default();
        // A default route goes by a gateway; anything else is another use of the range on this machine.
        if !way.is_empty() && !way.contains(" via ") {
            return Err(format!("{FAR} is in use here: {way}").into());
        }
        let id = std::process::id();
        let link = Link { space: format!("bcmr-bench-{id}"), veth: format!("bb{id}"), ends: Vec::new() };
        sh::quiet("ip", &["netns", "add", &link.space])?;
        Ok(link)
    }

    fn new() -> Result<Link> {
        let link = Link::empty()?;
        let (space, near, far) = (link.space.as_str(), link.veth.as_str(), format!("{}x", link.veth));
        sh::quiet("ip", &["link", "add", near, "type", "veth", "peer", "name", &far, "netns", space])?;
        link.address(near, &far)?;
        let bucket = ["root", "tbf", "rate", RATE, "burst", "64kb", "latency", "100ms"];
        sh::quiet("tc", &[&["qdisc", "add", "dev", near], &bucket[..]].concat())?;
        sh::quiet("tc", &[&["-n", space, "qdisc", "add", "dev", &far], &bucket[..]].concat())?;
        Ok(link)
    }

    fn of(line: Line) -> Result<Link> {
        match line {
            Line::Long => Link::bridged(LONG),
            Line::Thin => Link::bridged(THIN),
            _ => Link::new(),
        }
    }

    fn bridged(manners: Manners) -> Result<Link> {
        let mut link = Link::empty()?;
        for letter in ["n", "f"] {
            link.ends.push(bridge::End::new(&format!("{}{letter}", link.veth))?);
        }
        let [near, far] = link.ends.as_slice() else { return Err("a bridge has two ends".into()) };
        sh::quiet("ip", &["link", "set", &far.veth, "netns", &link.space])?;
        link.address(&near.veth, &far.veth)?;
        bridge::carry(near, far, manners)?;
        Ok(link)
    }

    /// Gives both ends their addresses.
    fn address(&self, near: &str, far: &str) -> Result {
        let inside = |args: &[&str]| sh::quiet("ip", &[&["-n", &self.space], args].concat());
        sh::quiet("ip", &["addr", "add", &format!("{NEAR}/30"), "dev", near])?;
        sh::quiet("ip", &["link", "set", near, "up"])?;
        inside(&["addr", "add", &format!("{FAR}/30"), "dev", far])?;
        inside(&["link", "set", far, "up"])?;
        inside(&["link", "set", "lo", "up"])
    }

    /// Does something inside: a thread of its own moves there, and what it starts stays.
    fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let space = fs::File::open(Path::new("/run/netns").join(&self.space))?;
        let done = std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).map(|()| work())
            });
            inside.join()
        });
        match done {
            Ok(result) => Ok(result?),
            Err(_) => Err("the thread inside the namespace panicked".into()),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The pair goes with either end; an unfinished one may have none.
        drop(sh::quiet("ip", &["link", "del", &self.veth]));
        self.ends.clear();
        if let Err(problem) = sh::quiet("ip", &["netns", "del", &self.space]) {
            eprintln!("xtask: {problem}");
        }
    }
}

/// Why a line cannot be had here.
pub fn why_not(line: Line) -> Option<String> {
    if !line.is_link() {
        return None;
    }
    if !sh::is_root() {
        return Some("such a line needs root (a network namespace)".to_owned());
    }
    let needed = [("ip", "iproute2"), ("tc", "iproute2"), ("ethtool", "ethtool")];
    if let Some((absent, package)) = needed.into_iter().find(|(program, _)| sh::which(program).is_none()) {
        return Some(format!("{absent} is not installed (Debian: {package})"));
    }
    Link::of(line).err().map(|e| format!("no such line can be made: {e}"))
}

/// Peak memory of every process of the program under measurement that was seen, until told to stop. Only it: what ssh
/// takes is not ours to answer for.
pub fn watched<T>(bcmr: &Path, work: impl FnOnce() -> Result<T>) -> Result<(T, Peaks)> {
    let program = fs::canonicalize(bcmr)?;
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let watcher = scope.spawn(move || {
            let mut seen = std::collections::BTreeMap::new();
            while stopped
                .recv_timeout(Duration::from_millis(50))
                .is_err_and(|e| e == std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                look(&program, &mut seen);
            }
            seen
        });
        let done = work();
        drop(stop);
        let seen = watcher.join().map_err(|_| "the watcher panicked")?;
        let peaks = |serves: bool| {
            let of = seen.values().filter(move |(is, _)| *is == serves).map(|(_, kib)| *kib);
            Peak { processes: of.clone().count(), most_kib: of.clone().max().unwrap_or(0), sum_kib: of.sum() }
        };
        Ok((done?, Peaks { client: peaks(false), server: peaks(true) }))
    })
}

#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub struct Peaks {
    pub client: Peak,
    pub server: Peak,
}

/// Of the processes on one side.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub struct Peak {
    pub processes: usize,
    pub most_kib: u64,
    pub sum_kib: u64,
}

/// Process ids with whether it serves, and its peak so far.
fn look(program: &Path, seen: &mut std::collections::BTreeMap<u32, (bool, u64)>) {
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if !fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == program) {
            continue;
        }
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let serves = command.split(|b| *b == 0).nth(1) == Some(b"serve".as_slice());
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let peak =
            status.lines().find_map(|l| l.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
        if let Some(kib) = peak {
            // A process that was only just forked has this program too, until it becomes ssh.
            let entry = seen.entry(pid).or_insert((serves, 0));
            entry.1 = entry.1.max(kib);
        }
    }
}

/// Whether a copy with `--direct=direct` opens a connection of its own, beside ssh's to `port`.
pub fn opens_connections(argv: &[String], port: u16, scratch: &Path) -> Result<bool> {
    if sh::which("strace").is_none() {
        return Err("strace is not installed; it tells whether the direct plane is used".into());
    }
    let log = scratch.join("connects.txt");
    let mut traced: Vec<&str> = vec!["-f", "-e", "trace=connect", "-o", text(&log)?, "--"];
    traced.extend(argv.iter().map(String::as_str));
    sh::quiet("strace", &traced)?;
    let ssh = format!("htons({port})");
    let log = fs::read_to_string(log)?;
    Ok(log.lines().any(|l| l.contains("AF_INET") && !l.contains(&ssh) && !l.contains("htons(0)")))
}
