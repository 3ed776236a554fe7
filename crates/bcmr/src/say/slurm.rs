//! The scripts that have Slurm do a plan: an array job of its shards, and behind it a job that publishes the tree.
//!
//! Must not know where they are written, nor whether there is a Slurm here.

use crate::names::shell_word;
use std::os::unix::ffi::OsStrExt;
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
pub fn scripts(plan: &Path, dir: &Path, shards: u32) -> [(&'static str, Vec<u8>); 3] {
    let tasks = shards.clamp(1, TASKS_MAX);
    let plan = script_word(plan.as_os_str().as_bytes());
    let task = match shards > TASKS_MAX {
        false => "exec bcmr shard \"$plan\" \"$SLURM_ARRAY_TASK_ID\"".to_owned(),
        true => format!(
            "k=$SLURM_ARRAY_TASK_ID failed=0\n\
             while [ \"$k\" -lt {shards} ]; do\n\
             \u{20}   bcmr shard \"$plan\" \"$k\" || failed=$?\n\
             \u{20}   k=$((k + {tasks}))\n\
             done\n\
             exit \"$failed\""
        ),
    };
    let head = "#!/bin/sh\n#SBATCH --requeue\n#SBATCH --open-mode=append\n#SBATCH --ntasks=1\n";
    let shards_head = format!("{head}#SBATCH --job-name=bcmr-shard\n#SBATCH --array=0-{}\n", tasks - 1);
    let finish_head = format!("{head}#SBATCH --job-name=bcmr-finish\n");
    // A path is any bytes, so it stands in a line of its own.
    let with_plan =
        |head: &str, rest: &str| [head.as_bytes(), b"plan=", &plan, b"\n", rest.as_bytes(), b"\n"].concat();
    let submit_head = "#!/bin/sh\n\
         # Submits the shards as one array job, and the job that publishes the tree when all of them have ended. Options go to\n\
         # sbatch. Where a shard has failed, the last job changes nothing and says which: submit again.\n\
         set -eu\n";
    let submit = format!(
        "shards=$(sbatch --parsable --output=\"$logs/shard-%a.log\" \"$@\" \"$dir/{SHARDS}\")\n\
         finish=$(sbatch --parsable --output=\"$logs/finish.log\" --dependency=\"afterany:${{shards%%;*}}\" \"$@\" \"$dir/{FINISH}\")\n\
         echo \"shards: job $shards, finish: job $finish\"\n"
    );
    let dir = dir.as_os_str().as_bytes();
    // What Slurm would replace in the directory's own name is kept.
    let logs = script_word(&dir.split(|b| *b == b'%').collect::<Vec<_>>().join(&b"%%"[..]));
    let dir = script_word(dir);
    let submit =
        [submit_head.as_bytes(), b"dir=", &dir, b"\nlogs=", &logs, b"\n", submit.as_bytes()].concat();
    [
        (SHARDS, with_plan(&shards_head, &task)),
        (FINISH, with_plan(&finish_head, "exec bcmr finish \"$plan\"")),
        (SUBMIT, submit),
    ]
}

/// Any bytes as a word of a script, which every POSIX shell reads.
fn script_word(bytes: &[u8]) -> Vec<u8> {
    let quoted = bytes.split(|b| *b == b'\'').collect::<Vec<_>>().join(&br"'\''"[..]);
    [b"'", &quoted[..], b"'"].concat()
}

/// How to go on with them.
pub fn submit(dir: &Path) -> String {
    format!("or all of it by Slurm with: sh {}\n", shell_word(dir.join(SUBMIT).as_os_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of((_, script): (&str, Vec<u8>)) -> String {
        String::from_utf8(script).unwrap()
    }

    #[test]
    fn a_task_does_its_shard_and_the_end_waits_for_all() {
        let [shards, finish, submit] =
            scripts(Path::new("/p/a plan"), Path::new("/jobs/100%"), 16).map(text_of);
        assert!(shards.contains("#SBATCH --array=0-15\n"), "{shards}");
        let ends = "plan='/p/a plan'\nexec bcmr shard \"$plan\" \"$SLURM_ARRAY_TASK_ID\"\n";
        assert!(shards.ends_with(ends), "{shards}");
        assert!(finish.ends_with("plan='/p/a plan'\nexec bcmr finish \"$plan\"\n"), "{finish}");
        for piece in [
            "dir='/jobs/100%'\nlogs='/jobs/100%%'\n",
            "--output=\"$logs/shard-%a.log\" \"$@\" \"$dir/shards.sbatch\")",
            "--dependency=\"afterany:${shards%%;*}\"",
        ] {
            assert!(submit.contains(piece), "{submit}");
        }
    }

    /// More shards than tasks: run by a shell with a bcmr that says what it is asked for.
    #[test]
    fn more_shards_than_tasks_are_each_done_once() {
        let [shards, ..] = scripts(Path::new("/p"), Path::new("/d"), 2500).map(text_of);
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
