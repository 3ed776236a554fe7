//! `cargo xtask slurm`: the scripts of `bcmr plan --slurm`, run by a Slurm of its own: munged, slurmctld and two slurmd on this
//! machine, each node in a PID namespace, so that one can go down with all that runs on it.
//!
//! Must not touch a Slurm that is installed here: keys, sockets, ports and state are all in a place of its own.

use crate::many::{self, Site, ends, holds, until};
use sh::Result;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const USAGE: &str = "\
cargo xtask slurm   runs what `bcmr plan --slurm` writes under real daemons, with tasks requeued and cancelled and a node down
Installs slurmctld, slurmd, slurm-client and munge where they are missing; root.";
/// Ports of the controller and of the nodes.
const PORT: u16 = 16_817;
const NODES: [&str; 2] = ["n1", "n2"];

/// Runs it.
pub fn run(args: &[&str]) -> Result {
    if !args.is_empty() {
        println!("{USAGE}");
        return if matches!(args, ["--help" | "-h"]) { Ok(()) } else { Err("see above".into()) };
    }
    if !sh::is_root() {
        return Err("NOTHING WAS TRIED: daemons that run jobs are started by root".into());
    }
    many::need(&[
        (many::has("slurmctld"), "slurmctld"),
        (many::has("slurmd"), "slurmd"),
        (many::has("sbatch"), "slurm-client"),
        (many::has("munged"), "munge"),
        (many::has("rsync"), "rsync"),
    ])?;
    sh::run(sh::cargo().args(["build", "--locked", "--package", "bcmr"]))?;
    let site = Site::new("slurm")?;
    site.source(9000, 1 << 20)?;
    let mut slurm = Slurm::start(&site)?;
    let done =
        document(&slurm, &site).and_then(|()| lost(&mut slurm, &site)).and_then(|()| verbs(&slurm, &site));
    if done.is_err() {
        for log in ["slurmctld.log", "n1.log", "n2.log"] {
            let text = fs::read_to_string(site.p(&format!("slurm/{log}"))).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            println!("--- {log}\n{}", lines[lines.len().saturating_sub(25)..].join("\n"));
        }
    }
    done
}

/// A Slurm of its own.
struct Slurm {
    conf: PathBuf,
    path: std::ffi::OsString,
    munged: Child,
    controller: Option<Child>,
    nodes: Vec<(&'static str, Option<Child>)>,
}

impl Slurm {
    fn start(site: &Site) -> Result<Slurm> {
        let home = site.p("slurm");
        for dir in ["state", "spool/n1", "spool/n2", "munge"] {
            fs::create_dir_all(home.join(dir))?;
        }
        let key = home.join("munge/key");
        fs::write(&key, (0..1024).map(|n| (n * 37 % 251) as u8).collect::<Vec<_>>())?;
        fs::set_permissions(&key, fs::Permissions::from_mode(0o400))?;
        let own = |name: &str| home.join("munge").join(name);
        let mut munged = Command::new("munged");
        munged.args(["--foreground", "--force"]);
        munged.arg("--key-file").arg(&key).arg("--socket").arg(own("socket"));
        munged.arg("--pid-file").arg(own("pid")).arg("--seed-file").arg(own("seed"));
        munged.arg("--log-file").arg(own("log"));
        let munged = daemon(&mut munged, &own("said"))?;
        let conf = home.join("slurm.conf");
        fs::write(&conf, configuration(&home)?)?;
        let path = program_dir(site)?;
        let nodes = NODES.iter().map(|name| (*name, None)).collect();
        let mut slurm = Slurm { conf, path, munged, controller: None, nodes };
        until("munged listens", || Ok(own("socket").exists()))?;
        let mut controller = slurm.command("slurmctld");
        slurm.controller = Some(daemon(controller.arg("-D"), &home.join("slurmctld.said"))?);
        for node in NODES {
            slurm.up(node, site)?;
        }
        until("both nodes are idle", || {
            Ok(slurm.ask("sinfo", &["-h", "-N", "-o", "%N %t"])?.matches(" idle").count() == 2)
        })?;
        Ok(slurm)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", &self.conf).env("PATH", &self.path);
        command
    }

    fn ask(&self, program: &str, args: &[&str]) -> Result<String> {
        let (_, said) = many::ran(self.command(program).args(args))?;
        Ok(said)
    }

    /// Starts a node, as the first process of a namespace.
    fn up(&mut self, name: &str, site: &Site) -> Result {
        let mut node = self.command("unshare");
        node.args(["--pid", "--fork", "--kill-child", "--mount-proc", "slurmd", "-D", "-N", name]);
        let child = daemon(&mut node, &site.p(&format!("slurm/{name}.said")))?;
        if let Some(slot) = self.nodes.iter_mut().find(|(own, _)| *own == name) {
            slot.1 = Some(child);
        }
        Ok(())
    }

    /// A node goes down, with all that runs on it.
    fn down(&mut self, name: &str) -> Result {
        for (_, child) in self.nodes.iter_mut().filter(|(own, _)| *own == name) {
            if let Some(mut child) = child.take() {
                child.kill()?;
                child.wait()?;
            }
        }
        let name = format!("NodeName={name}");
        ends(self.command("scontrol").args(["update", &name, "State=DOWN", "Reason=test"]), 0).map(drop)
    }

    /// One word of what Slurm knows of a job: `JobState=`, `NodeList=`.
    fn of_job(&self, job: &str, word: &str) -> Result<String> {
        let said = self.ask("scontrol", &["-o", "show", "job", job])?;
        let value = said.split_whitespace().find_map(|pair| pair.strip_prefix(word));
        Ok(value.unwrap_or_default().to_owned())
    }

    fn is_over(&self, job: &str) -> Result<bool> {
        Ok(!matches!(
            self.of_job(job, "JobState=")?.as_str(),
            "PENDING" | "RUNNING" | "COMPLETING" | "REQUEUED"
        ))
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        let nodes = self.nodes.iter_mut().filter_map(|(_, child)| child.as_mut());
        for child in nodes.chain(self.controller.as_mut()).chain([&mut self.munged]) {
            // One that has ended by itself is no trouble any more.
            drop(child.kill().and_then(|()| child.wait()));
        }
    }
}

fn daemon(command: &mut Command, said: &std::path::Path) -> Result<Child> {
    let out = File::create(said)?;
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).spawn();
    child.map_err(|e| format!("{program}: {e}").into())
}

fn configuration(home: &std::path::Path) -> Result<String> {
    let home = sh::text(home)?;
    let host = sh::output("hostname", &["-s"])?;
    let nodes = NODES.iter().zip(1..).map(|(name, n)| {
        format!(
            "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={} CPUs=4 State=UNKNOWN\n",
            PORT + n
        )
    });
    let nodes: String = nodes.collect();
    Ok(format!(
        "ClusterName=bcmr\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={PORT}\nSlurmUser=root\nSlurmdUser=root\n\
         AuthType=auth/munge\nAuthInfo=socket={home}/munge/socket,cred_expire=5\n\
         StateSaveLocation={home}/state\nSlurmdSpoolDir={home}/spool/%n\n\
         SlurmctldPidFile={home}/slurmctld.pid\nSlurmdPidFile={home}/%n.pid\n\
         SlurmctldLogFile={home}/slurmctld.log\nSlurmdLogFile={home}/%n.log\n\
         ProctrackType=proctrack/pgid\nTaskPlugin=task/none\nSwitchType=switch/none\nMpiDefault=none\n\
         SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nSlurmdParameters=config_overrides\n\
         JobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none\n\
         KillWait=1\nSlurmdTimeout=300\nReturnToService=2\nMinJobAge=600\nUnkillableStepTimeout=10\n\
         SchedulerParameters=sched_interval=1,batch_sched_delay=0\nSchedulerTimeSlice=5\n\
         {nodes}PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
    ))
}

/// A directory with a `bcmr` in front of all others, which tells each item of shard K into the FIFO `hold/K`, if there is one:
/// what nobody reads stands still.
fn program_dir(site: &Site) -> Result<std::ffi::OsString> {
    let dir = site.p("bin");
    fs::create_dir(&dir)?;
    fs::create_dir(site.p("hold"))?;
    let real = sh::debug_dir().join("bcmr");
    let script = format!(
        "#!/bin/sh\nhold={}/\"$3\"\nif [ \"$1\" = shard ] && [ -p \"$hold\" ]; then exec {real} \"$@\" -v > \"$hold\"; fi\nexec {real} \"$@\"\n",
        sh::text(&site.p("hold"))?,
        real = sh::text(&real)?,
    );
    fs::write(dir.join("bcmr"), script)?;
    fs::set_permissions(dir.join("bcmr"), fs::Permissions::from_mode(0o755))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    Ok(std::env::join_paths([dir].into_iter().chain(std::env::split_paths(&path)).chain(sbin))?)
}

/// The two jobs that `submit` has told of.
fn jobs(said: &str) -> Result<(String, String)> {
    let number = |before: &str| many::number(said, before).map(|job| job.to_string());
    Ok((number("shards: job ")?, number("finish: job ")?))
}

/// What the document says, as it says it.
fn document(slurm: &Slurm, site: &Site) -> Result {
    let mut block = slurm.command("sh");
    let said = ends(block.args(["-ec", &many::block("slurm")?]).current_dir(&site.path), 0)?;
    let (shards, finish) = jobs(&said)?;
    until("the last job is over", || slurm.is_over(&finish))?;
    let state = slurm.of_job(&finish, "JobState=")?;
    let log = fs::read_to_string(site.p("jobs/finish.log")).unwrap_or_default();
    holds(state == "COMPLETED", &format!("the last job of {shards} ended as {state}: {log}"))?;
    holds(log.contains("root "), &log)?;
    site.judge("dst", &[])?;
    println!("ok   the document's commands");
    Ok(())
}

/// A task that is requeued, one that is cancelled, and a node that goes down: nothing is published while a shard is missing,
/// and submitting again does the rest.
fn lost(slurm: &mut Slurm, site: &Site) -> Result {
    let bcmr = |words: &str| -> Result<String> {
        ends(slurm.command("bcmr").args(words.split(' ')).current_dir(&site.path), 0)
    };
    bcmr("plan src again --out p --shards 6 --slurm q")?;
    for task in [1, 2, 3] {
        many::fifo(&site.p(&format!("hold/{task}")))?;
    }
    let submit = |slurm: &Slurm| ends(slurm.command("sh").arg("q/submit").current_dir(&site.path), 0);
    let (shards, finish) = jobs(&submit(slurm)?)?;
    let mut readers = Vec::new();
    for task in [1, 2, 3] {
        let fifo = site.p(&format!("hold/{task}"));
        readers.push(many::hear(&fifo)?);
        // Whoever does this shard next is not held.
        fs::remove_file(fifo)?;
    }
    let task = |n: u32| format!("{shards}_{n}");
    let node = slurm.of_job(&task(3), "NodeList=")?;
    ends(slurm.command("scontrol").args(["requeue", &task(1)]), 0)?;
    ends(slurm.command("scancel").arg(task(2)), 0)?;
    until("the cancelled task has ended", || Ok(slurm.of_job(&task(2), "JobState=")? == "CANCELLED"))?;
    slurm.down(&node)?;
    println!("     task 1 was requeued, task 2 cancelled, and {node} went down with task 3");
    drop(readers);
    until("the last job is over", || slurm.is_over(&finish))?;
    for n in [0, 1, 3, 4, 5] {
        let state = slurm.of_job(&task(n), "JobState=")?;
        holds(state == "COMPLETED", &format!("task {n} ended as {state}"))?;
    }
    let log = fs::read_to_string(site.p("q/finish.log"))?;
    let state = slurm.of_job(&finish, "JobState=")?;
    holds(
        state == "FAILED" && log.contains("without a result are the shards 2"),
        &format!("{state}: {log}"),
    )?;
    holds(!site.is_there("again"), "it was published without a shard")?;
    println!(
        "ok   a requeued task and those of a node that went down are done; the last job names the cancelled one"
    );
    slurm.up(if node == "n1" { "n1" } else { "n2" }, site)?;
    let (_, finish) = jobs(&submit(slurm)?)?;
    until("the last job is over", || slurm.is_over(&finish))?;
    let state = slurm.of_job(&finish, "JobState=")?;
    holds(state == "COMPLETED", &format!("the second last job ended as {state}"))?;
    site.judge("again", &[])?;
    println!("ok   submitted again, the rest is done, and the tree is published");
    Ok(())
}

/// A sync that deletes, comparisons that find nothing and something, and a removal.
fn verbs(slurm: &Slurm, site: &Site) -> Result {
    let done = |plan: &str, words: &str, wanted: &str| -> Result<String> {
        let words = format!("plan --verb {words} --out {plan} --shards 3 --slurm {plan}.jobs");
        ends(slurm.command("bcmr").args(words.split(' ')).current_dir(&site.path), 0)?;
        let mut submit = slurm.command("sh");
        let said = ends(submit.arg(format!("{plan}.jobs/submit")).current_dir(&site.path), 0)?;
        let (_, finish) = jobs(&said)?;
        until("the last job is over", || slurm.is_over(&finish))?;
        let log = fs::read_to_string(site.p(&format!("{plan}.jobs/finish.log"))).unwrap_or_default();
        let state = slurm.of_job(&finish, "JobState=")?;
        holds(state == wanted, &format!("the last job of {words} ended as {state}: {log}"))?;
        Ok(log)
    };
    fs::write(site.p("again/large/1"), "another content")?;
    fs::remove_dir_all(site.p("again/d3"))?;
    fs::write(site.p("again/only here"), "x")?;
    let log = done("c1", "check src again", "FAILED")?;
    holds(log.contains("only here"), &log)?;
    done("s", "sync --delete src again", "COMPLETED")?;
    site.judge("again", &[])?;
    done("c2", "check --hash src again", "COMPLETED")?;
    done("r", "remove again", "COMPLETED")?;
    holds(!site.is_there("again") && site.is_there("src/large/1"), "what was removed is another thing")?;
    println!("ok   sync, check and remove by Slurm");
    Ok(())
}
