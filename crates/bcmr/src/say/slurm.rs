//! The scripts that have Slurm do a plan: an array job of its shards, and behind it a job that publishes the tree.
//!
//! Must not know where they are written, nor whether there is a Slurm here.

use crate::names::shell_word;
use std::ffi::OsString;
use std::path::Path;

/// Tasks of an array job at most: what a Slurm that nobody has configured takes (`MaxArraySize` 1001).
const TASKS_MAX: u32 = 1000;
/// What each shard's task runs.
const SHARDS: &str = "shards.sbatch";
/// What the last job runs.
const FINISH: &str = "finish.sbatch";
/// What a person runs.
const SUBMIT: &str = "submit";

/// The scripts of a plan, by name, to be written into `dir`.
pub fn scripts(plan: &Path, dir: &Path, shards: u32) -> [(&'static str, String); 3] {
    let tasks = shards.clamp(1, TASKS_MAX);
    let plan = shell_word(plan.as_os_str());
    let task = match shards > TASKS_MAX {
        false => format!("exec bcmr shard {plan} \"$SLURM_ARRAY_TASK_ID\""),
        true => format!(
            "k=$SLURM_ARRAY_TASK_ID failed=0\n\
             while [ \"$k\" -lt {shards} ]; do\n\
             \u{20}   bcmr shard {plan} \"$k\" || failed=$?\n\
             \u{20}   k=$((k + {tasks}))\n\
             done\n\
             exit \"$failed\""
        ),
    };
    let head = "#!/bin/sh\n#SBATCH --requeue\n#SBATCH --open-mode=append\n#SBATCH --ntasks=1\n";
    let shards_text =
        format!("{head}#SBATCH --job-name=bcmr-shard\n#SBATCH --array=0-{}\n{task}\n", tasks - 1);
    let finish_text = format!("{head}#SBATCH --job-name=bcmr-finish\nexec bcmr finish {plan}\n");
    let word = |name: &str| shell_word(dir.join(name).as_os_str());
    let submit = format!(
        "#!/bin/sh\n\
         # Submits the shards as one array job, and the job that publishes the tree when all of them have ended. Options go to\n\
         # sbatch. Where a shard has failed, the last job changes nothing and says which: submit again.\n\
         set -eu\n\
         shards=$(sbatch --parsable --output={} \"$@\" {})\n\
         finish=$(sbatch --parsable --output={} --dependency=\"afterany:${{shards%%;*}}\" \"$@\" {})\n\
         echo \"shards: job $shards, finish: job $finish\"\n",
        log(dir, "shard-%a.log"),
        word(SHARDS),
        log(dir, "finish.log"),
        word(FINISH),
    );
    [(SHARDS, shards_text), (FINISH, finish_text), (SUBMIT, submit)]
}

/// Where a job's output goes, as a word; what Slurm would replace in the directory's own name is kept.
fn log(dir: &Path, name: &str) -> String {
    let mut path = OsString::new();
    for (n, part) in dir.as_os_str().to_string_lossy().split('%').enumerate() {
        if n > 0 {
            path.push("%%");
        }
        path.push(part);
    }
    path.push("/");
    path.push(name);
    shell_word(&path)
}

/// How to go on with them.
pub fn submit(dir: &Path) -> String {
    format!("or all of it by Slurm with: sh {}\n", shell_word(dir.join(SUBMIT).as_os_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_does_its_shard_and_the_end_waits_for_all() {
        let [(_, shards), (_, finish), (_, submit)] =
            scripts(Path::new("/p/a plan"), Path::new("/jobs/100%"), 16);
        assert!(shards.contains("#SBATCH --array=0-15\n"), "{shards}");
        assert!(shards.ends_with("exec bcmr shard '/p/a plan' \"$SLURM_ARRAY_TASK_ID\"\n"), "{shards}");
        assert!(finish.ends_with("exec bcmr finish '/p/a plan'\n"), "{finish}");
        for piece in [
            "--output=/jobs/100%%/shard-%a.log \"$@\" /jobs/100%/shards.sbatch)",
            "--dependency=\"afterany:${shards%%;*}\"",
        ] {
            assert!(submit.contains(piece), "{submit}");
        }
    }

    /// More shards than tasks: run by a shell with a bcmr that says what it is asked for.
    #[test]
    fn more_shards_than_tasks_are_each_done_once() {
        let [(_, shards), ..] = scripts(Path::new("/p"), Path::new("/d"), 2500);
        assert!(shards.contains("#SBATCH --array=0-999\n"), "{shards}");
        let mut done = Vec::new();
        for task in [0, 499, 500, 999] {
            let script = format!("SLURM_ARRAY_TASK_ID={task}\nbcmr() {{ echo \"$3\"; }}\n{shards}");
            let out = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            assert!(out.status.success());
            let text = String::from_utf8(out.stdout).unwrap();
            done.extend(text.lines().map(|line| line.parse::<u32>().unwrap()));
        }
        assert_eq!(done, [0, 1000, 2000, 499, 1499, 2499, 500, 1500, 999, 1999]);
        let failing = format!("SLURM_ARRAY_TASK_ID=1\nbcmr() {{ [ \"$3\" != 1001 ]; }}\n{shards}");
        let code = std::process::Command::new("sh").args(["-c", &failing]).status().unwrap().code();
        assert_eq!(code, Some(1), "one that failed is not forgotten");
    }
}
