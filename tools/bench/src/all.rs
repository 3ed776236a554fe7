//! `cargo xtask bench all`: every row, on every file system, one part after the other. Must not know how anything is
//! measured.

use crate::programs::installed;
use sh::Result;
use std::time::Instant;

/// What can be typed by itself, what is worth most first: a run that is broken off leaves the records of what it had.
const PARTS: [&[&str]; 11] = [
    &["local", "--tmpfs"],
    &[
        "local",
        "--on",
        "ext4",
        "--rows",
        "big,mid,start,many,dirs,kib,small,source,source-cold-image,flat,sparse,into,into-many,into-dirs,into-kib,\
         into-flat,verify,sync,check,check-hash,move,archive,direct,ring-cold,ring-warm,ring-sync,remove",
    ],
    &["remote"],
    &[
        "local",
        "--on",
        "xfs",
        "--rows",
        "big,mid,many,dirs,kib,small,source,flat,into,into-many,into-dirs,into-kib,into-flat,xfs-big",
    ],
    &[
        "local",
        "--on",
        "btrfs",
        "--rows",
        "big,mid,many,dirs,kib,small,source,flat,into,into-many,into-dirs,into-kib,into-flat,btrfs-big",
    ],
    // On the disk itself.
    &["local", "--rows", "source-cold"],
    &["memory", "--tmpfs"],
    &["checkpoint", "--on", "ext4", "--gib", "4"],
    &["scale", "--tmpfs"],
    &["delta", "--tmpfs"],
    &["many", "--tmpfs"],
];

/// Without these rows would be left out, which is not found out after three hours.
const NEEDED: [&str; 16] = [
    "rsync",
    "scp",
    "sshd",
    "strace",
    "mkfs.ext4",
    "mkfs.xfs",
    "mkfs.btrfs",
    "ip",
    "tc",
    "ethtool",
    "mpirun",
    "cpz",
    "xcp",
    "fcp",
    "uutils",
    "b3sum",
];

/// `typed` goes to every part. A part that fails is told of at the end, and the others are measured.
pub fn run(typed: &[&str], part: fn(&[&str]) -> Result) -> Result {
    let absent: Vec<&str> = NEEDED.into_iter().filter(|program| installed(program).is_none()).collect();
    if !absent.is_empty() {
        return Err(
            format!("not installed: {} (`cargo xtask bench guests` for copiers)", absent.join(" ")).into()
        );
    }
    if !sh::is_root() {
        return Err("file systems in an image and slow lines need root".into());
    }
    let begun = Instant::now();
    let mut failed = Vec::new();
    for words in PARTS {
        let name = words.iter().take(3).copied().collect::<Vec<_>>().join(" ");
        println!("\n== {name} (after {:.0} s)", begun.elapsed().as_secs_f64());
        if let Err(problem) = part(&[words, typed].concat()) {
            println!("{name}: {problem}");
            failed.push(name);
        }
    }
    println!("(all in {:.0} s)", begun.elapsed().as_secs_f64());
    if failed.is_empty() { Ok(()) } else { Err(format!("not all is there: {}", failed.join(", ")).into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows;

    #[test]
    fn parts_name_rows_that_there_are_and_leave_none_out() {
        let there: Vec<&str> = rows::all(false).iter().map(|row| row.name).collect();
        let rows_of = |words: &&[&'static str]| {
            words
                .iter()
                .skip_while(|word| **word != "--rows")
                .nth(1)
                .map(|rows| rows.split(',').collect::<Vec<_>>())
        };
        let named: Vec<&str> = PARTS.iter().filter_map(rows_of).flatten().collect();
        assert!(named.iter().all(|name| there.contains(name)), "{named:?}");
        // `first` has no disk in it.
        assert!(there.iter().all(|name| *name == "first" || named.contains(name)), "{there:?}");
    }
}
