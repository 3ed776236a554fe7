//! What `.gitignore` leaves out, as git has it.

use crate::common::*;
use std::fs;
use std::path::Path;
use std::process::Command;

/// One character or a little more of a name, in all the ways in which a pattern speaks of it.
const PIECES: [&str; 34] = [
    "a",
    "a",
    "b",
    "c",
    "[",
    "]",
    "!",
    "^",
    "-",
    "*",
    "*",
    "?**",
    "***a",
    "?",
    "\\*",
    "\\[",
    "\\!",
    "[ab]",
    "[!a]",
    "[^b]",
    "[a-b]",
    "[z-ac]",
    "[!z-a]",
    "[\\]a]",
    "[]a]",
    "[[:alpha:]]",
    "[[:punct:]]",
    "[[:no:]]",
    "[[:a]",
    "[a",
    "[!^]",
    "[-!]",
    "[.-0]",
    "[a/]",
];

fn pattern(random: &mut Random) -> String {
    let mut line = String::new();
    for sign in ["!", "/"] {
        line.push_str(if random.once_in(5) { sign } else { "" });
    }
    for component in 0..=random.below(3) {
        line.push_str(if component > 0 { "/" } else { "" });
        match random.below(4) {
            0 => line.push_str(random.of::<&str>(&["*", "**", "***", "****", "a", "q", "b.o"])),
            1 => line.push_str(random.of::<&str>(&["*.o", "q", "[a?", "", "?"])),
            // Between what stands for itself and a slash, stars are `**` to some versions of git, against gitignore(5).
            _ => (0..=random.below(3)).for_each(|_| {
                let piece = random.of(&PIECES);
                line.push_str(if piece.starts_with('*') && line.ends_with('*') { "a" } else { piece });
            }),
        }
    }
    line.push_str(random.of::<&str>(&["", "", "", "/", " "]));
    line
}

/// Below each directory of `dir`, what is in it: names of files, sorted.
fn files(dir: &Path, below: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let name = format!("{below}{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => files(&entry.path(), &format!("{name}/"), found),
            false => found.push(name),
        }
    }
}

#[test]
fn patterns_leave_out_what_they_do_for_git() {
    needs!(has_tool("git"), "needs git");
    let (tmp, mut random) = (Tmp::new(), Random(7));
    let written = [
        "[a?\n",
        "*.o\n!\n",
        "*.o\n! \n",
        "q/***/a\n",
        "/****/**\n",
        "***/[\\]a]\n",
        "x[[:punct:]]\n",
        "q[!0-9]*\n/none\n",
        "?[!a]a\n/q/none\n",
    ];
    let drawn = (0..800).map(|_| (0..=random.below(3)).map(|_| pattern(&mut random) + "\n").collect());
    let texts: Vec<String> = written.into_iter().map(str::to_owned).chain(drawn).collect();
    let names = [
        "a", "b", "ab", "a!", "[a]", "[ab", "]a", "[a", "!a", "^", "-", "x!", "a.o", "b.o", "a]b", "q/a",
        "q/b", "q/a.o", "q/ab", "q/x!", "q/[a", "q/c/a", "q/c/b.o", "q/c/c/a", "c/a", "c/c/]b",
    ];
    for (at, text) in texts.iter().enumerate() {
        names.iter().for_each(|name| drop(tmp.file(format!("s/{at}/{name}"), "")));
        tmp.file(format!("s/{at}/.gitignore"), text);
    }
    bcmr(["sync", "-q", "--gitignore", "s", "d"]).cwd(tmp.path()).run().ok();
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        git.env("HOME", tmp.path()).env("GIT_CONFIG_NOSYSTEM", "1").env_remove("XDG_CONFIG_HOME");
        let out = git.args(args).current_dir(tmp.p("s")).output().unwrap();
        assert!(out.status.success(), "{out:?}");
        String::from_utf8(out.stdout).unwrap()
    };
    git(&["init", "-q"]);
    let listed = git(&["ls-files", "-o", "--exclude-standard", "-z"]);
    let (mut want, mut got): (Vec<_>, Vec<_>) =
        (listed.split_terminator('\0').map(str::to_owned).collect(), Vec::new());
    files(&tmp.p("d"), "", &mut got);
    want.sort();
    got.sort();
    let of = |line: &&String| {
        let at: usize = line.split('/').next().unwrap().parse().unwrap();
        format!("{line} with {:?}", texts[at])
    };
    let only = |one: &[String], other: &[String]| -> Vec<String> {
        one.iter().filter(|line| other.binary_search(line).is_err()).map(|line| of(&line)).take(20).collect()
    };
    assert!(want == got, "git takes {:#?}, bcmr takes {:#?}", only(&want, &got), only(&got, &want));
}
