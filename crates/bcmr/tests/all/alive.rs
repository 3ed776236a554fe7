//! Nothing waits for ever: what both ends do when one of them, the line, the store or the machine fails in the middle.

use crate::common::remote::*;
use crate::common::*;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A block of the store whose file was written into without a trace is asked for once more, all of it.
#[test]
fn an_upload_ends_whose_block_is_no_longer_in_the_store() {
    let far = Far::pipe();
    let tmp = Tmp::new();
    let src = tmp.file("src", noise(3, 24 << 20));
    Dir::Put.copy(&far, "-T", &src, &far.home().join("first")).run().ok();
    let landed = std::fs::File::options().write(true).open(far.home().join("first")).unwrap();
    let kept = landed.metadata().unwrap().modified().unwrap();
    landed.write_all_at(b"gone", (9 << 20) + 5).unwrap();
    landed.set_modified(kept).unwrap();
    Dir::Put.copy(&far, "-T", &src, &far.home().join("second")).run().ok();
    assert!(std::fs::read(far.home().join("second")).unwrap() == std::fs::read(&src).unwrap());
}

/// Hashing a file that takes hours can be stopped, here and on another machine, whose server ends as well.
#[test]
fn a_hash_can_be_stopped() {
    let tmp = Tmp::new();
    let endless = tmp.file("endless", "");
    std::fs::File::options().write(true).open(&endless).unwrap().set_len(8 << 40).unwrap();
    let far = Far::pipe();
    let reads = |pid: u32| {
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd"));
        fds.into_iter()
            .flatten()
            .flatten()
            .any(|fd| std::fs::read_link(fd.path()).is_ok_and(|at| at == endless))
    };
    let here = bcmr([std::ffi::OsStr::new("hash"), endless.as_os_str()]);
    let there = far.bcmr("hash").args([far.at(&endless)]);
    for (line, is_far) in [(here, false), (there, true)] {
        let mut running = line.start();
        let begun = || if is_far { servers(&far).into_iter().any(reads) } else { reads(running.pid()) };
        assert!(within(60, begun), "far {is_far}: it does not begin");
        running.interrupt();
        assert!(within(60, || running.is_over()), "far {is_far}: it does not stop");
        // By the signal itself, where nothing is to be left in order.
        assert!([130, 1002].contains(&running.wait().code), "far {is_far}");
        assert!(within(60, || servers(&far).is_empty()), "the server stays");
    }
}

/// A file system on which every change waits.
struct Frozen(std::path::PathBuf);

impl Frozen {
    fn freeze(at: &Path) -> Frozen {
        let frozen = std::process::Command::new("fsfreeze").arg("-f").arg(at).status().unwrap();
        assert!(frozen.success());
        Frozen(at.to_owned())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let thawed = std::process::Command::new("fsfreeze").arg("-u").arg(&self.0).status();
        assert!(thawed.is_ok_and(|status| status.success()));
    }
}

/// Whether a thread of a process waits for a disk.
fn waits_for_disk(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    tasks.into_iter().flatten().flatten().any(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D'))
    })
}

/// An upload to a disk that stands still is stopped within a bound, whatever it has written; the server goes once the disk
/// moves again, and nothing is under the name.
#[test]
fn an_upload_to_a_frozen_disk_can_be_stopped() {
    const NAME: &str = "an_upload_to_a_frozen_disk_can_be_stopped";
    if !is_root() || !has_tool("fsfreeze") || python().is_none() {
        return skipped(NAME, "it needs root, fsfreeze and python3");
    }
    for begun in [false, true] {
        let tmp = Tmp::new();
        let disk = match Mount::image("ext4", 96, &tmp.dir("disk")) {
            Ok(disk) => disk,
            Err(why) => return skipped(NAME, &why),
        };
        let src = tmp.file("src", noise(5, 40 << 20));
        // So slow that it is in the middle once something is there.
        let far = Far::relay().with("RELAY_RATE", if begun { "2000000" } else { "0" });
        let frozen = (!begun).then(|| Frozen::freeze(disk.path()));
        let mut running =
            far.bcmr("copy").args([src.as_os_str(), &far.at(disk.path().join("landed"))]).start();
        let stages = || litter(disk.path()).len();
        let frozen = frozen.unwrap_or_else(|| {
            assert!(within(60, || stages() > 0), "nothing is begun");
            Frozen::freeze(disk.path())
        });
        assert!(within(60, || servers(&far).into_iter().any(waits_for_disk)), "{begun}");
        running.interrupt();
        // What it says is heard to its end only when the server has gone too.
        assert!(within(30, || running.is_over()), "{begun}: it waits for the disk there");
        drop(frozen);
        let ran = running.wait();
        assert_eq!(ran.code, 130, "{begun}: {}", ran.err);
        assert!(within(60, || servers(&far).is_empty()), "{begun}: the server stays");
        assert!(!disk.path().join("landed").exists(), "{begun}");
    }
}

/// Where not one thread more can be had, each way of copying does its work or ends with an error: near, going on with a
/// large file, and in both directions.
#[test]
fn no_threads_to_be_had() {
    const NAME: &str = "no_threads_to_be_had";
    const USER: u32 = 61_773;
    if !is_root() || !has_tool("setpriv") || !has_tool("prlimit") {
        return skipped(NAME, "it needs root, setpriv and prlimit");
    }
    let tmp = Tmp::for_others();
    let own = |name: &str, bytes: Vec<u8>| {
        let path = tmp.file(name, bytes);
        std::os::unix::fs::chown(&path, Some(USER), Some(USER)).unwrap();
        path
    };
    let (big, small) = (own("src/big", noise(3, 40 << 20)), own("src/small", b"small".to_vec()));
    for n in 0..200 {
        own(&format!("src/tree/{}/{n}", n % 5), vec![n as u8; 3000]);
    }
    for dir in ["", "src", "src/tree", "home", "home/run"] {
        std::fs::create_dir_all(tmp.p(dir)).unwrap();
        std::os::unix::fs::chown(tmp.p(dir), Some(USER), Some(USER)).unwrap();
    }
    chmod(&tmp.p("home/run"), 0o700);
    let program = tmp.p("bcmr");
    std::fs::copy(BCMR, &program).unwrap();
    chmod(&program, 0o755);
    let ssh = tmp.file("ssh", include_bytes!("common/pipe-ssh"));
    chmod(&ssh, 0o755);
    // Threads count as processes of the user, who has no others; a shell and a child are processes too.
    let limited = |most: u32, args: &[&std::ffi::OsStr]| {
        let (ruid, rgid) = (format!("--reuid={USER}"), format!("--regid={USER}"));
        let mut line = Line::new(Path::new("setpriv"));
        line = line.args([ruid.as_str(), &rgid, "--clear-groups", "prlimit"]);
        line = line.args([format!("--nproc={most}")]).args([&program]).args(args).cwd(tmp.path());
        for (name, value) in [("HOME", "home"), ("FAR_HOME", "home"), ("XDG_CONFIG_HOME", "none")] {
            line.0.env(name, tmp.p(value));
        }
        line.0.env("FAR_RUN", "").env("FAR_ARGS", "");
        line
    };
    let word = |text: &str| std::ffi::OsString::from(text);
    let ssh = word(&format!("--ssh={}", ssh.display()));
    let there = word(&format!("--remote-program={}", program.display()));
    let from = |path: &Path| word(&format!("there:{}", path.display()));
    let (tree, dst) = (tmp.p("src/tree"), tmp.p("dst"));
    let parts =
        [word("copy"), word("-C"), word("--checkpoint-size=4M"), big.clone().into(), dst.clone().into()];
    let rows: [(&str, Vec<std::ffi::OsString>); 8] = [
        ("near", vec![word("copy"), small.into(), dst.clone().into()]),
        ("near, a tree", vec![word("copy"), word("-rj8"), tree.clone().into(), dst.clone().into()]),
        ("near, verified", vec![word("copy"), word("-V"), big.clone().into(), dst.clone().into()]),
        ("gone on with", parts.to_vec()),
        ("check", vec![word("check"), word("--hash"), big.clone().into(), big.clone().into()]),
        ("put", vec![word("copy"), word("-r"), ssh.clone(), there.clone(), tree.clone().into(), from(&dst)]),
        ("get", vec![word("copy"), word("-r"), ssh.clone(), there.clone(), from(&tree), dst.clone().into()]),
        ("remove", vec![word("remove"), word("-r"), dst.clone().into()]),
    ];
    // As many as there are, and one more each time: each thread that is asked for is refused once.
    for (n, (what, args)) in rows.iter().enumerate() {
        for (m, most) in (1..9).enumerate() {
            // An ordinary run takes every second one, with the next row the others.
            if !in_slice(n + m, 2) {
                continue;
            }
            let _gone = std::fs::remove_dir_all(&dst).or_else(|_| std::fs::remove_file(&dst));
            if *what == "gone on with" {
                begun(&program, &parts, &dst);
            }
            let args: Vec<&std::ffi::OsStr> = args.iter().map(|word| word.as_os_str()).collect();
            let ran = limited(most, &args).run();
            assert!(ran.code < 128 && ran.code != 101, "{what}, {most}: {} {}", ran.code, ran.err);
            assert!(ran.code == 0 || !ran.err.is_empty(), "{what}, {most}: {} and no word", ran.code);
        }
    }
}

/// Leaves a copy of a large file in the middle.
fn begun(program: &Path, words: &[std::ffi::OsString], dst: &Path) {
    let mut running = Line::new(program).args(words).start();
    let dir = dst.parent().unwrap();
    within(20, || running.is_over() || !litter(dir).is_empty());
    running.signal(rustix::process::Signal::KILL);
    let _killed = within(20, || running.is_over());
    for name in litter(dir) {
        std::os::unix::fs::chown(dir.join(name), Some(61_773), Some(61_773)).unwrap();
    }
}
