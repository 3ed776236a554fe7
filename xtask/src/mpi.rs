//! `cargo xtask mpi`: builds bcmr-mpi, and runs it under mpirun: whole copies, ranks that are killed, ranks that cannot go on.
//!
//! Must not know how ranks share the work.

use crate::many::{self, Site, ends, holds, number};
use sh::Result;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const USAGE: &str = "\
cargo xtask mpi [--release]   builds crates/bcmr-mpi into target/mpi, and tests it under mpirun on this machine
Installs openmpi-bin, libopenmpi-dev and libclang-dev where they are missing and this is root.";
/// The programs that are tried.
struct Programs {
    ranks: PathBuf,
    bcmr: PathBuf,
}

type Case = (&'static str, fn(&Programs, &Site) -> Result);

const CASES: [Case; 11] = [
    ("a copy by three ranks is the source, and has the root of one machine's", whole),
    ("the plan of all ranks is that of one machine", planned),
    ("the document's commands", document),
    ("a rank that is killed ends the job, and the same command goes on", killed),
    ("what a rank that stands still has not begun is done by the others", split),
    ("a job that is told to stop is not published, and the same command goes on", stopped),
    ("a full disk ends all ranks", full),
    ("a changed source is named, and nothing is published", changed),
    ("two jobs of the same command at once", twice),
    ("sync, check and remove by ranks", verbs),
    ("what is refused", refused),
];

/// Runs it.
pub fn run(args: &[&str]) -> Result {
    let release = match args {
        [] => false,
        ["--release"] => true,
        _ => {
            println!("{USAGE}");
            return if matches!(args, ["--help" | "-h"]) { Ok(()) } else { Err("see above".into()) };
        }
    };
    many::need(&[
        (many::has("mpirun"), "openmpi-bin"),
        (many::has("mpicc"), "libopenmpi-dev"),
        // Its headers are among what bindgen reads.
        (many::has("clang"), "clang"),
        (has_libclang(), "libclang-dev"),
        (many::has("strace"), "strace"),
        (many::has("rsync"), "rsync"),
    ])?;
    let programs = build(release)?;
    let mut failed = 0;
    for (name, case) in CASES {
        let done = Site::new("mpi").and_then(|site| case(&programs, &site));
        match done {
            Ok(()) => println!("ok   {name}"),
            Err(e) => {
                failed += 1;
                println!("no   {name}: {e}");
            }
        }
    }
    if failed == 0 { Ok(()) } else { Err(format!("{failed} of {} cases failed", CASES.len()).into()) }
}

/// Where Debian has the library, by the version of LLVM.
fn has_libclang() -> bool {
    let Ok(versions) = fs::read_dir("/usr/lib") else { return false };
    versions.flatten().any(|entry| entry.path().join("lib/libclang.so").exists())
}

fn build(release: bool) -> Result<Programs> {
    let manifest = sh::root().join("crates/bcmr-mpi/Cargo.toml");
    let target = sh::root().join("target/mpi");
    let cargo = |verb: &str| -> Result {
        let mut cargo = sh::cargo();
        cargo.args([verb, "--locked", "--manifest-path"]).arg(&manifest).arg("--target-dir").arg(&target);
        sh::run(if release { cargo.arg("--release") } else { &mut cargo })
    };
    cargo("build")?;
    cargo("test")?;
    let mut bcmr = sh::cargo();
    bcmr.args(["build", "--locked", "--package", "bcmr"]);
    sh::run(if release { bcmr.arg("--release") } else { &mut bcmr })?;
    let profile = if release { "release" } else { "debug" };
    let own = sh::release_dir().with_file_name(profile).join("bcmr");
    Ok(Programs { ranks: target.join(profile).join("bcmr-mpi"), bcmr: own })
}

impl Programs {
    /// A command in a site, with both programs in its PATH, and an Open MPI that takes this machine as it is.
    fn command(&self, site: &Site, program: &str) -> Command {
        let mut command = Command::new(program);
        let dirs = [&self.ranks, &self.bcmr].map(|p| p.parent().unwrap_or(Path::new("/")).to_owned());
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(dirs.into_iter().chain(std::env::split_paths(&path)));
        command.current_dir(&site.path).env("PATH", path.unwrap_or_default());
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        command
    }

    fn mpirun(&self, site: &Site, ranks: &str, args: &[&str]) -> Command {
        let mut command = self.command(site, "mpirun");
        command.args(["-n", ranks, "bcmr-mpi"]).args(args);
        command
    }

    fn one_machine(&self, site: &Site, words: &str) -> Result<String> {
        ends(self.command(site, "bcmr").args(words.split(' ')), 0)
    }
}

fn root(said: &str) -> Result<&str> {
    let root = said.lines().find_map(|line| line.strip_prefix("root "));
    root.ok_or_else(|| format!("no root in:\n{said}").into())
}

fn whole(programs: &Programs, site: &Site) -> Result {
    site.source(3000, 13 << 20)?;
    let said = ends(&mut programs.mpirun(site, "3", &["copy", "src", "dst", "--part-size", "4M"]), 0)?;
    site.judge("dst", &[])?;
    // The plan that a person named stays, with its receipt; one rank is enough.
    ends(&mut programs.mpirun(site, "1", &["copy", "src", "one", "--plan", "plan", "-q"]), 0)?;
    site.judge("one", &[])?;
    holds(site.is_there("plan/receipt"), "the plan that was named has no receipt")?;
    programs.one_machine(site, "plan src machine --out p --shards 1")?;
    programs.one_machine(site, "shard p 0")?;
    let alone = programs.one_machine(site, "finish p")?;
    holds(root(&said)? == root(&alone)?, "the root is another one than one machine's")
}

/// Every rank walks, and what comes of it is the same byte for byte; also where a part of the source is another file system,
/// with inode numbers that the first one has too.
fn planned(programs: &Programs, site: &Site) -> Result {
    site.source(300, 1 << 20)?;
    let dirs = |top: &str| -> Result {
        for n in 0..1600 {
            let dir = site.p(&format!("{top}/{}/{}", n % 40, n / 40));
            fs::create_dir_all(&dir)?;
            fs::write(dir.join("a file"), n.to_string())?;
            if n % 9 == 0 {
                fs::hard_link(dir.join("a file"), site.p(&format!("{top}/again {n}")))?;
            }
        }
        Ok(())
    };
    dirs("src/many")?;
    let mount = site.p("src/many/7/mount");
    fs::create_dir(&mount)?;
    let mount = sh::text(&mount)?;
    if sh::is_root() {
        sh::quiet("mount", &["-t", "tmpfs", "none", mount])?;
    }
    let tried = dirs("src/many/7/mount").and_then(|()| {
        programs.one_machine(site, "plan src dst --out one --shards 8")?;
        // The first rank is slow: others walk most of it.
        let slow = "if [ \"$OMPI_COMM_WORLD_RANK\" = 0 ]; then exec strace -f -y -qq -o calls -e trace=getdents64 bcmr-mpi \"$@\"; fi
            exec bcmr-mpi \"$@\"";
        fs::write(site.p("wrap"), slow)?;
        let mut job = programs.command(site, "mpirun");
        job.args(["-n", "3", "sh", "wrap", "copy", "src", "dst", "--plan", "ranks", "--shards", "8", "-q"]);
        ends(&mut job, 0)?;
        for name in (0..8).map(|n| format!("shard-{n}")) {
            let [one, ranks] = ["one", "ranks"].map(|plan| fs::read(site.p(plan).join(&name)));
            holds(one? == ranks?, &format!("{name} is not the same"))?;
        }
        let calls = fs::read_to_string(site.p("calls"))?;
        let reads = |below: &str| calls.lines().filter(|line| line.contains(below)).count();
        let (all, alone) = (reads("/src"), reads("/src/many/7/mount"));
        println!("     the first rank has read directories of the source {all} times, {alone} on another file system");
        // Two for each directory of 1,641 twice.
        let is_alone = alone == 2 * 1641 || !sh::is_root();
        holds(is_alone && all - alone < 2 * 1641 * 9 / 10, "others have not walked what they should")
    });
    if sh::is_root() {
        sh::quiet("umount", &[mount])?;
    }
    tried
}

fn document(programs: &Programs, site: &Site) -> Result {
    site.source(300, 1 << 20)?;
    let block = many::block("mpi")?;
    ends(programs.command(site, "sh").args(["-ec", &block]), 0)?;
    site.judge("dst", &[])
}

/// Starts a copy whose rank 1 writes each item into a FIFO that nobody empties: it stands still in the middle. Returns the
/// job, the reader, and the rank's process.
fn held(programs: &Programs, site: &Site, more: &[&str]) -> Result<(std::process::Child, File, String)> {
    let script =
        "if [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then echo $$ > pid; exec bcmr-mpi \"$@\" -v > fifo; fi
        exec bcmr-mpi \"$@\"";
    many::fifo(&site.p("fifo"))?;
    fs::write(site.p("wrap"), script)?;
    let mut job = programs.command(site, "mpirun");
    job.args(["-n", "2", "sh", "wrap", "copy", "src", "dst"]).args(more);
    let said = File::create(site.p("said"))?;
    let job = job.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said).spawn()?;
    let reader = many::hear(&site.p("fifo"))?;
    let pid = fs::read_to_string(site.p("pid"))?.trim().to_owned();
    Ok((job, reader, pid))
}

/// Waits until nothing but the shard of the rank that stands still is open.
fn rest_is_done(programs: &Programs, site: &Site) -> Result {
    many::until("all other shards are done", || {
        let (code, said) =
            many::ran(programs.command(site, "bcmr").args(["plan", "--status", "dst.bcmr-plan"]))?;
        let open = said.lines().filter(|line| !line.contains(" done")).count();
        Ok(code == 0 && open <= 3)
    })
}

fn killed(programs: &Programs, site: &Site) -> Result {
    site.source(20_000, 1 << 20)?;
    let (mut job, reader, pid) = held(programs, site, &[])?;
    rest_is_done(programs, site)?;
    sh::quiet("kill", &["-KILL", &pid])?;
    let ended = job.wait()?;
    drop(reader);
    holds(!ended.success(), "mpirun took no notice of a rank that was killed")?;
    holds(!site.is_there("dst"), "a copy that was killed was published")?;
    let said = ends(&mut programs.mpirun(site, "2", &["copy", "src", "dst"]), 0)?;
    site.judge("dst", &[])?;
    let (again, all) = (number(&said, "copied ")?, number(&said, "published ")?);
    println!("     again: {again} of {all} files");
    // Two shards of 64 are the rank's at most.
    holds(again * 100 <= all * 5, "more than 5 % of the files were copied again")
}

/// Rank 1 stands still in the first frame of one of two shards: but for what it is at, everything gets its place. Then it goes on,
/// and nothing was copied twice.
fn split(programs: &Programs, site: &Site) -> Result {
    let files = 30_000;
    site.source(files, 1 << 20)?;
    let (mut job, mut reader, _) = held(programs, site, &["--shards", "2"])?;
    // A frame has 4,096 entries at most.
    many::until("the others have done the rest", || {
        let found = sh::output("find", &[sh::text(&site.path)?, "-path", "*.plan/*", "-type", "f"])?;
        Ok(found.lines().count() + 4096 >= files)
    })?;
    holds(!site.is_there("dst"), "it was published without what the rank is at")?;
    std::io::copy(&mut reader, &mut std::io::sink())?;
    let ended = job.wait()?;
    let said = fs::read_to_string(site.p("said"))?;
    holds(ended.success(), &said)?;
    site.judge("dst", &[])?;
    let (copied, all) = (number(&said, "copied ")?, number(&said, "published ")?);
    holds(copied == all && said.contains("kept 0 entries"), &said)
}

fn stopped(programs: &Programs, site: &Site) -> Result {
    site.source(6000, 1 << 20)?;
    let (mut job, reader, _) = held(programs, site, &[])?;
    rest_is_done(programs, site)?;
    // The rank that stands still is killed soon; the first one records what it has done, and ends.
    sh::quiet("kill", &["-TERM", &job.id().to_string()])?;
    let ended = job.wait()?;
    drop(reader);
    holds(!ended.success() && !site.is_there("dst"), "a job that was told to stop was published")?;
    ends(&mut programs.mpirun(site, "2", &["copy", "src", "dst", "-q"]), 0)?;
    site.judge("dst", &[])
}

fn full(programs: &Programs, site: &Site) -> Result {
    if !sh::is_root() {
        println!("     SKIPPED: only root mounts");
        return Ok(());
    }
    site.source(200, 12 << 20)?;
    let at = site.p("disk");
    fs::create_dir(&at)?;
    let disk = sh::text(&at)?;
    sh::quiet("mount", &["-t", "tmpfs", "-o", "size=6m", "none", disk])?;
    let tried = (|| {
        let copy = ["copy", "src", "disk/dst"];
        let said = ends(&mut programs.mpirun(site, "2", &copy), 6)?;
        holds(said.contains("No space left on device"), &format!("no word of the full disk:\n{said}"))?;
        holds(!site.is_there("disk/dst"), "it was published")?;
        sh::quiet("mount", &["-o", "remount,size=64m", disk])?;
        ends(&mut programs.mpirun(site, "2", &copy), 0)?;
        site.judge("disk/dst", &[])?;
        holds(fs::read_dir(&at)?.count() == 1, "something was left on the disk")
    })();
    sh::quiet("umount", &[disk])?;
    tried
}

fn changed(programs: &Programs, site: &Site) -> Result {
    site.source(200, 1 << 20)?;
    programs.one_machine(site, "plan src dst --out p --shards 5")?;
    // Under the first of its two names.
    fs::write(site.p("src/d0/again"), "another content")?;
    let said = ends(&mut programs.mpirun(site, "2", &["copy", "src", "dst", "--plan", "p"]), 5)?;
    holds(said.contains("d0/again") && said.contains("it is not finished"), &said)?;
    holds(!site.is_there("dst"), "it was published")
}

/// One of them publishes; the other does some of the work as well, or says why it left off.
fn twice(programs: &Programs, site: &Site) -> Result {
    site.source(3000, 4 << 20)?;
    let start = || {
        let mut job = programs.mpirun(site, "2", &["copy", "src", "dst"]);
        job.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    };
    let mut codes = Vec::new();
    for mut job in [start()?, start()?] {
        codes.push(job.wait()?.code());
    }
    if !codes.contains(&Some(0)) {
        ends(&mut programs.mpirun(site, "2", &["copy", "src", "dst"]), 0)?;
    }
    println!("     ended with {codes:?}");
    site.judge("dst", &[])
}

fn verbs(programs: &Programs, site: &Site) -> Result {
    site.source(500, 4 << 20)?;
    ends(&mut programs.mpirun(site, "2", &["sync", "src", "dst"]), 0)?;
    site.judge("dst", &[])?;
    ends(&mut programs.mpirun(site, "3", &["check", "src", "dst", "--hash"]), 0)?;
    fs::write(site.p("dst/only here"), "x")?;
    fs::write(site.p("src/large/0"), "another")?;
    let said = ends(&mut programs.mpirun(site, "2", &["check", "src", "dst"]), 1)?;
    holds(said.contains("- 'only here'") && said.contains("~ 'large/0'"), &said)?;
    ends(&mut programs.mpirun(site, "2", &["sync", "--delete", "src", "dst"]), 0)?;
    site.judge("dst", &[])?;
    ends(&mut programs.mpirun(site, "2", &["remove", "dst"]), 0)?;
    holds(!site.is_there("dst") && !site.is_there("dst.bcmr-plan"), "something was left")
}

fn refused(programs: &Programs, site: &Site) -> Result {
    site.source(20, 1 << 20)?;
    fs::create_dir(site.p("there"))?;
    let said = ends(&mut programs.mpirun(site, "2", &["copy", "src", "there"]), 1)?;
    holds(said.contains("--merge"), &said)?;
    ends(&mut programs.mpirun(site, "2", &["copy", "src", "there", "--merge", "-q"]), 0)?;
    site.judge("there", &[])?;
    ends(&mut programs.mpirun(site, "2", &["copy", "nowhere", "dst"]), 1)?;
    ends(&mut programs.mpirun(site, "2", &["copy", "src", "src/in"]), 8)?;
    // Another copy's plan.
    programs.one_machine(site, "plan src other --out p --shards 2")?;
    let said = ends(&mut programs.mpirun(site, "2", &["copy", "src", "dst", "--plan", "p"]), 8)?;
    holds(said.contains("the plan of another command"), &said)
}
