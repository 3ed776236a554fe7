//! One run of one program: wall time or the time to its first byte, CPU time, peak memory, system calls. Knows nothing of
//! what is compared.
//!
//! The program runs as the only child of a small helper process (this binary again), because the kernel tells a
//! parent only the sum and the maximum over all its children.

use fastcopy::memory::{HUGE_PAGE_BYTES, ask_for_huge_pages};
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};
use sh::Result;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// The hidden command of this binary that [`helper`] serves.
pub const HELPER: &str = "__measure";

/// The same, where the first byte ends the time.
pub const FIRST_HELPER: &str = "__first";

/// The one that [`memory_helper`] serves.
pub const MEMORY_HELPER: &str = "__memory";

/// What one run took.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    pub wall_s: f64,
    pub user_s: f64,
    pub sys_s: f64,
    pub peak_kib: u64,
    /// CPU seconds that other processes used meanwhile, the kernel's own threads among them.
    pub foreign_s: f64,
}

/// What the helper says of its child.
#[derive(Serialize, Deserialize)]
struct Said {
    sample: Sample,
    /// `None` when a signal ended it.
    status: Option<i32>,
    stderr: String,
}

/// Runs it once; anything but exit 0 is an error, as its time would mean nothing.
pub fn once(argv: &[String]) -> Result<Sample> {
    ended(argv, &[]).map(|(sample, _)| sample)
}

/// The same with so many bytes of memory ready, see [`fetch_memory`].
pub fn with_memory(bytes: u64, argv: &[String]) -> Result<Sample> {
    // A process of its own: what the one that starts the program had in use would count as the program's.
    sh::run(Command::new("/proc/self/exe").args([MEMORY_HELPER, &bytes.to_string()]))?;
    once(argv)
}

/// The helper's side: takes so many bytes, and ends.
pub fn memory_helper(argv: &[&str]) -> Result {
    let bytes = argv.first().ok_or("no bytes of memory")?;
    fetch_memory(bytes.parse()?);
    Ok(())
}

/// The same, with `fine` exit statuses beside 0; says which it was.
pub fn ended(argv: &[String], fine: &[i32]) -> Result<(Sample, i32)> {
    helped(&[HELPER], argv, fine)
}

/// As [`once`], where the wall time is that from the start to the first write to a file that lies in `dir`.
pub fn first(argv: &[String], dir: &Path) -> Result<Sample> {
    helped(&[FIRST_HELPER, sh::text(dir)?], argv, &[]).map(|(sample, _)| sample)
}

fn helped(helper: &[&str], argv: &[String], fine: &[i32]) -> Result<(Sample, i32)> {
    let out = Command::new("/proc/self/exe").args(helper).args(argv).stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&out.stdout);
    let said: Said = serde_json::from_str(&text)
        .map_err(|e| format!("{}: {e}: {}", argv.join(" "), String::from_utf8_lossy(&out.stderr)))?;
    match said.status {
        Some(status) if status == 0 || fine.contains(&status) => Ok((said.sample, status)),
        _ => Err(format!("{}: failed: {}", argv.join(" "), said.stderr).into()),
    }
}

/// The helper's side: runs its arguments and prints what they took.
pub fn helper(argv: &[&str]) -> Result {
    measured(argv, |_| Ok(None))
}

/// The same for [`first`], of a directory and the arguments. The kernel tells of the first write: nothing stops the program
/// at a call, as a tracer would.
pub fn first_helper(argv: &[&str]) -> Result {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    let (dir, argv) = argv.split_first().ok_or("no directory to watch")?;
    let watch = init(CreateFlags::CLOEXEC)?;
    add_watch(&watch, *dir, WatchFlags::MODIFY)?;
    measured(argv, |child| first_write(&watch, child).map(Some))
}

/// Waits until something was written to where `watch` looks.
fn first_write(watch: &OwnedFd, child: &mut Child) -> Result<Instant> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let a_while = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    loop {
        let ended = child.try_wait()?.is_some();
        if poll(&mut [PollFd::new(watch, PollFlags::IN)], Some(&a_while))? > 0 {
            return Ok(Instant::now());
        }
        if ended {
            return Err("nothing was written".into());
        }
    }
}

/// Runs `argv`; its time ends when `until` says so, and else with it.
fn measured(argv: &[&str], until: impl FnOnce(&mut Child) -> Result<Option<Instant>>) -> Result {
    let (program, args) = argv.split_first().ok_or("nothing to measure")?;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let busy = busy_s()?;
    let begun = Instant::now();
    let mut child = command.spawn().map_err(|e| format!("{program}: {e}"))?;
    let came = until(&mut child)?;
    let out = child.wait_with_output()?;
    let wall_s = came.unwrap_or_else(Instant::now).duration_since(begun).as_secs_f64();
    let busy = busy_s()? - busy;
    let used = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
    let (user_s, sys_s) = (seconds(used.user_time()), seconds(used.system_time()));
    let sample = Sample {
        wall_s,
        user_s,
        sys_s,
        peak_kib: u64::try_from(used.max_rss())?,
        foreign_s: (busy - user_s - sys_s).max(0.0),
    };
    let stderr = String::from_utf8_lossy(&out.stderr).chars().take(2000).collect();
    println!("{}", serde_json::to_string(&Said { sample, status: out.status.code(), stderr })?);
    Ok(())
}

/// Bytes that are fetched at most: an eighth of what is free stays so, and nothing in use goes for it. Up to 3c412e74 they
/// were 6 GiB, less than a million files need.
fn fetched_bytes_max() -> u64 {
    memory_bytes("MemFree") / 8 * 7
}

/// What `/proc/meminfo` says of `key`, bytes; 0 where it says nothing.
pub fn memory_bytes(key: &str) -> u64 {
    let told = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = told.lines().find_map(|line| {
        line.strip_prefix(key)?.strip_prefix(':')?.split_whitespace().next()?.parse::<u64>().ok()
    });
    kib.unwrap_or(0) << 10
}

/// Has so much free memory really there. A virtual machine gives memory back to its host some seconds after it was
/// freed, and the next program that needs it waits for each page: here the same copy of 4 GiB took 1.3 s just after another one,
/// and 5 to 11 s when nothing had happened for eight seconds, `cp` no less. That says nothing of either program.
///
/// Half of it is fetched as huge pages: what was freed as small ones lies in small parts, and who writes by larger ones gets
/// others, which are not there. So `copy -V` of 1 GiB took 1.2 to 1.7 s, and 0.3 behind huge pages, behind which `cp` took 1.5 s
/// instead of 0.4. It is done last of all, just before the program is started: what was freed half a second ago may be
/// gone again.
pub fn fetch_memory(bytes: u64) {
    const PAGE: usize = 4096;
    let length = bytes.min(fetched_bytes_max() / 2) as usize;
    let touched = [true, false].map(|huge| {
        let mut memory = vec![0u8; length + HUGE_PAGE_BYTES];
        if huge {
            // A kernel without them has small ones alone.
            let _asked = ask_for_huge_pages(&mut memory).is_ok();
        }
        memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = std::hint::black_box(1));
        memory
    });
    std::hint::black_box(&touched);
}

/// CPU seconds that the whole machine has been busy since boot.
fn busy_s() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().ok_or("/proc/stat is empty")?;
    let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|t| t.parse().ok()).collect();
    // user nice system (idle iowait) irq softirq steal, each in hundredths of a second
    Ok([0, 1, 2, 5, 6, 7].iter().filter_map(|&i| ticks.get(i)).sum::<u64>() as f64 / 100.0)
}

/// System calls, over all threads and children; by name and with those that failed where `strace` counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Calls {
    pub total: u64,
    pub errors: u64,
    pub by_name: BTreeMap<String, u64>,
}

/// What counts system calls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// The kernel's own tracepoint, which slows nothing down.
    Perf,
    /// `strace -c -f`, which takes minutes for many files, and knows names.
    Strace,
}

impl Counter {
    /// The quicker of those that work here.
    pub fn here(scratch: &Path) -> Option<Counter> {
        let works = Counter::Perf.calls(&["true".to_owned()], scratch).is_ok_and(|calls| calls.total > 0);
        let strace = || sh::which("strace").map(|_| Counter::Strace);
        works.then_some(Counter::Perf).or_else(strace)
    }

    /// Runs it once, never timed.
    pub fn calls(self, argv: &[String], scratch: &Path) -> Result<Calls> {
        let table = scratch.join("calls.txt");
        let (program, flags): (_, &[&str]) = match self {
            Counter::Perf => ("perf", &["stat", "-x,", "-e", "raw_syscalls:sys_enter", "-o"]),
            Counter::Strace => ("strace", &["-c", "-f", "--signal=none", "-o"]),
        };
        let mut command = Command::new(program);
        command.args(flags).arg(&table).arg("--").args(argv).stdin(Stdio::null());
        let out = command.output().map_err(|e| format!("{program}: {e}"))?;
        if !out.status.success() {
            let said = String::from_utf8_lossy(&out.stderr);
            return Err(format!("{program} {}: {said}", argv.join(" ")).into());
        }
        let table = std::fs::read_to_string(&table)?;
        Ok(match self {
            Counter::Perf => {
                Calls { total: parse_perf(&table).ok_or("perf counted nothing")?, ..Calls::default() }
            }
            Counter::Strace => parse_calls(&table),
        })
    }
}

/// `count,unit,event,...`; a count that is not there is a word.
fn parse_perf(table: &str) -> Option<u64> {
    let line = table.lines().find(|line| line.contains("raw_syscalls:sys_enter"))?;
    line.split(',').next()?.parse().ok()
}

/// `% time  seconds  usecs/call  calls  [errors]  syscall`
fn parse_calls(table: &str) -> Calls {
    let mut calls = Calls::default();
    for line in table.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Some(name), Some(count)) = (words.last(), words.get(3).and_then(|w| w.parse::<u64>().ok()))
        else {
            continue;
        };
        if *name == "total" {
            continue;
        }
        calls.total += count;
        if words.len() > 5 {
            calls.errors += words[4].parse::<u64>().unwrap_or(0);
        }
        *calls.by_name.entry((*name).to_owned()).or_default() += count;
    }
    calls
}

/// The middle of a list; of two middles, their mean.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perf_s_table_is_read() {
        let table =
            |count: &str| format!("# started on Thu\n\n{count},,raw_syscalls:sys_enter,11915933,100.00,,\n");
        assert_eq!(parse_perf(&table("4134")), Some(4134));
        assert_eq!(parse_perf(&table("<not supported>")), None);
        assert_eq!(parse_perf(""), None);
    }

    #[test]
    fn strace_s_table_is_read() {
        let table = "% time     seconds  usecs/call     calls    errors syscall\n\
            ------ ----------- ----------- --------- --------- ----------------\n \
            60.00    0.000120           1       100        20 openat\n \
            40.00    0.000080           1        50           read\n\
            ------ ----------- ----------- --------- --------- ----------------\n\
            100.00    0.000200           1       150        20 total\n";
        let calls = parse_calls(table);
        assert_eq!(
            (calls.total, calls.errors, calls.by_name["openat"], calls.by_name["read"]),
            (150, 20, 100, 50)
        );
    }

    #[test]
    fn the_first_write_is_waited_for_and_no_longer() {
        use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
        let dir = tempfile::tempdir().unwrap();
        let watch = init(CreateFlags::CLOEXEC).unwrap();
        add_watch(&watch, dir.path(), WatchFlags::MODIFY).unwrap();
        let shell = |line: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", line]).current_dir(dir.path()).stdin(Stdio::piped());
            shell.spawn().unwrap()
        };
        let mut silent = shell("true > made");
        assert!(first_write(&watch, &mut silent).is_err(), "a name is no byte");
        // It goes on until its input ends, and that is not waited for.
        let mut writes = shell("echo x > written; read word");
        first_write(&watch, &mut writes).unwrap();
        drop(writes.stdin.take());
        assert!(writes.wait().is_ok());
    }

    #[test]
    fn the_median_of_an_even_number_is_between() {
        assert_eq!(median([3.0, 1.0]), 2.0);
        assert_eq!(median([9.0, 1.0, 2.0]), 2.0);
    }
}
