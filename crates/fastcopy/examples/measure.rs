//! Measures this crate against `cp`, interleaved, each copy in a process of its own so that its CPU time is counted
//! whole. The figures in `docs/decisions/0002-copy-ladder.md` name the command that made them.
//!
//! ```text
//! measure large SRC_DIR DST_DIR MIB ROUNDS [WAY...]     one file, warm; the copy is removed outside the clock
//! measure small DIR COUNT BYTES ROUNDS [WAY...]         COUNT files from DIR/measure-src to DIR/measure-dst
//! ```
//!
//! A WAY is `cp`, `cp-never` (`--reflink=never`), `cp-plain` (the default), or words joined by `+`:
//! `auto`, or a rung alone (`clone`, `cfr`, `sendfile`, `rw`); `tN` threads; `nofa` without preallocation; `never`
//! without reflinks; `wait` also counts the `fsync` afterwards.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use fastcopy::{Dest, Options, Reflink, Rung, Rungs, Scratch, Source, copy_file};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["large", src_dir, dst_dir, mib, rounds, ref ways @ ..] => {
            let src = format!("{src_dir}/measure-src-{mib}");
            let dst = format!("{dst_dir}/measure-dst");
            make(&src, mib.parse::<u64>().unwrap() << 20);
            let ways = if ways.is_empty() { &["cp-never", "never+t1", "never+t2", "auto+t2"] } else { ways };
            compare(ways, rounds, |way| {
                (vec!["one".into(), way.into(), src.clone(), dst.clone()], dst.clone())
            });
            fs::remove_file(&src).unwrap();
        }
        ["small", dir, count, bytes, rounds, ref ways @ ..] => {
            let src = format!("{dir}/measure-src");
            let dst = format!("{dir}/measure-dst");
            fs::create_dir_all(&src).unwrap();
            for i in 0..count.parse::<u32>().unwrap() {
                make(&format!("{src}/{i}"), bytes.parse().unwrap());
            }
            let ways = if ways.is_empty() { &["cp-never", "auto", "cfr", "sendfile"] } else { ways };
            compare(ways, rounds, |way| {
                (vec!["tree".into(), way.into(), src.clone(), dst.clone()], dst.clone())
            });
            fs::remove_dir_all(&src).unwrap();
        }
        ["one", way, src, dst] => {
            let (rungs, opts) = parse(way);
            let rung = one(&rungs, &opts, &mut Scratch::new(), Path::new(src), Path::new(dst));
            if way.contains("wait") {
                File::open(dst).unwrap().sync_all().unwrap();
            }
            if std::env::var_os("MEASURE_SAY").is_some() {
                println!("{rung}");
            }
        }
        ["tree", way, src, dst] => {
            let (rungs, opts) = parse(way);
            let mut scratch = Scratch::new();
            fs::create_dir(dst).unwrap();
            for entry in fs::read_dir(src).unwrap() {
                let entry = entry.unwrap();
                one(&rungs, &opts, &mut scratch, &entry.path(), &Path::new(dst).join(entry.file_name()));
            }
        }
        _ => panic!("see the head of examples/measure.rs"),
    }
}

fn parse(way: &str) -> (Rungs, Options) {
    let mut opts = Options { threads: 1, ..Options::AUTO };
    let mut rungs = Rungs::new();
    for word in way.split('+') {
        match word {
            "auto" | "wait" => {}
            "clone" => opts.reflink = Reflink::Always,
            "cfr" => rungs = Rungs::only(Rung::CopyFileRange),
            "sendfile" => rungs = Rungs::only(Rung::Sendfile),
            "rw" => rungs = Rungs::only(Rung::ReadWrite),
            "never" => opts.reflink = Reflink::Never,
            "nofa" => opts.preallocate = false,
            t => opts.threads = t.strip_prefix('t').unwrap().parse().unwrap(),
        }
    }
    (rungs, opts)
}

fn one(rungs: &Rungs, opts: &Options, scratch: &mut Scratch, src: &Path, dst: &Path) -> Rung {
    let src = File::open(src).unwrap();
    let stat = src.metadata().unwrap();
    let dst = File::create_new(dst).unwrap();
    let source = Source { fd: src.as_fd(), dev: stat.dev(), size: stat.len(), blocks: stat.blocks() };
    // The engine knows the target's device from its directory; one fstat per file less.
    let dest =
        Dest { fd: dst.as_fd(), dev: DST_DEV.get_or_init(|| dst.metadata().unwrap().dev()).to_owned() };
    copy_file(&source, &dest, rungs, opts, scratch, &|_| true).unwrap().rung
}

static DST_DEV: std::sync::OnceLock<u64> = std::sync::OnceLock::new();

/// Bytes that no filesystem can compress or find zero.
fn make(path: &str, len: u64) {
    let mut random = File::open("/dev/urandom").unwrap();
    let mut buf = vec![0; 1 << 20];
    random.read_exact(&mut buf).unwrap();
    let mut f = File::create(path).unwrap();
    let mut left = len;
    while left > 0 {
        let n = left.min(buf.len() as u64) as usize;
        // A different megabyte each time, without asking the kernel for 1 GiB of randomness.
        buf[..8].copy_from_slice(&left.to_le_bytes());
        f.write_all(&buf[..n]).unwrap();
        left -= n as u64;
    }
    f.sync_all().unwrap();
}

fn compare(ways: &[&str], rounds: &str, job: impl Fn(&str) -> (Vec<String>, String)) {
    let me = std::env::current_exe().unwrap();
    let mut times = vec![Vec::new(); ways.len()];
    for _ in 0..rounds.parse::<u32>().unwrap() {
        for (way, times) in ways.iter().zip(&mut times) {
            let (args, dst) = job(way);
            if Path::new(&dst).is_dir() {
                fs::remove_dir_all(&dst).unwrap();
            } else if Path::new(&dst).exists() {
                fs::remove_file(&dst).unwrap();
            }
            let mut command = match *way {
                "cp-never" | "cp-plain" | "cp" => {
                    let mut c = Command::new("cp");
                    c.args((*way == "cp-never").then_some("--reflink=never"));
                    c.arg("-r").args(&args[2..]);
                    c
                }
                _ => {
                    let mut c = Command::new(&me);
                    c.args(&args);
                    c
                }
            };
            let (before, start) = (children_cpu(), Instant::now());
            assert!(command.status().unwrap().success());
            times.push((start.elapsed().as_secs_f64(), children_cpu() - before));
        }
    }
    let (_, dst) = job(ways[0]);
    if Path::new(&dst).is_dir() {
        fs::remove_dir_all(&dst).unwrap();
    } else {
        fs::remove_file(&dst).unwrap();
    }
    let quarters = |pick: fn(&(f64, f64)) -> f64, times: &[(f64, f64)]| {
        let mut v: Vec<f64> = times.iter().map(pick).collect();
        v.sort_by(f64::total_cmp);
        (v[0], v[v.len() / 2])
    };
    let base = (quarters(|t| t.0, &times[0]), quarters(|t| t.1, &times[0]));
    println!("{:<18} wall ms   min  ratio    med  ratio | cpu ms   min  ratio    med  ratio", "");
    for (way, times) in ways.iter().zip(&times) {
        let (wall, cpu) = (quarters(|t| t.0, times), quarters(|t| t.1, times));
        println!(
            "{way:<18}      {:8.1} {:6.2} {:6.1} {:6.2} |     {:8.1} {:6.2} {:6.1} {:6.2}",
            wall.0 * 1e3,
            wall.0 / base.0.0,
            wall.1 * 1e3,
            wall.1 / base.0.1,
            cpu.0 * 1e3,
            cpu.0 / base.1.0,
            cpu.1 * 1e3,
            cpu.1 / base.1.1,
        );
    }
}

/// User and system time of all children that have ended, seconds.
fn children_cpu() -> f64 {
    // SAFETY: `getrusage` writes one `rusage`, for which all-zero bytes are a valid value.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage), 0);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
