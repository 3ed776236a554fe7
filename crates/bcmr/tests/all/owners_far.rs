//! Owners on another machine: by their names, where both have them; else, and where it is asked for, by their numbers.
//!
//! The other machine is this one with other files of accounts, mounted over its own where only its processes see them. That
//! takes root.

use crate::common::remote::*;
use crate::common::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

/// The number of `games` there.
const THERE: u32 = 4_005;

/// Two accounts that this machine has under one number for user and group: `games`, which the other machine has under
/// another one, and `bin`, which it does not have.
fn numbers() -> Option<(u32, u32)> {
    let accounts = fs::read_to_string("/etc/passwd").ok()?;
    let groups = fs::read_to_string("/etc/group").ok()?;
    let of = |file: &str, name: &str| {
        let line = file.lines().find(|line| line.split(':').next() == Some(name))?;
        line.split(':').nth(2)?.parse::<u32>().ok()
    };
    Some((of(&accounts, "games")?, of(&groups, "games")?))
}

/// What a command on the other machine is run by; `None`, said aloud, where there can be none.
fn other_accounts(test: &str, tmp: &Tmp) -> Option<String> {
    if !is_root() || !has_tool("unshare") || numbers().is_none() {
        skipped(test, "it needs root, unshare, and an account games");
        return None;
    }
    let passwd = format!("root:x:0:0::/:/bin/sh\ngames:x:{THERE}:{THERE}::/:\nonly:x:4006:1::/:\n");
    let passwd = tmp.file("there/passwd", passwd);
    let group = tmp.file("there/group", format!("root:x:0:\ngames:x:{THERE}:\n"));
    let script = format!(
        "#!/bin/sh\nexec unshare -m sh -c 'mount --bind {} /etc/passwd && mount --bind {} /etc/group && exec \"$@\"' sh \"$@\"\n",
        passwd.display(),
        group.display()
    );
    let script = tmp.file("there/machine", script);
    chmod(&script, 0o755);
    let tried = std::process::Command::new(&script).args(["grep", "-q", "only", "/etc/passwd"]).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        skipped(test, "no mounts of one's own here");
        return None;
    }
    Some(script.display().to_string())
}

fn give(path: &Path, uid: u32, gid: u32) {
    chown(path, Some(uid), Some(gid)).unwrap();
}

fn owner(path: &Path) -> (u32, u32) {
    let there = fs::symlink_metadata(path).unwrap();
    (there.uid(), there.gid())
}

/// Named users and groups of an ACL, as numbers.
fn acl(path: &Path) -> Vec<String> {
    let out = std::process::Command::new("getfacl").args(["-nc", "--"]).arg(path).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let named = text.lines().filter(|line| line.split(':').nth(1).is_some_and(|who| !who.is_empty()));
    named.map(str::to_owned).collect()
}

#[test]
fn names_first_then_numbers() {
    let tmp = Tmp::new();
    let Some(machine) = other_accounts("names_first_then_numbers", &tmp) else { return };
    let (games, group) = numbers().unwrap();
    for dir in BOTH {
        for (_, flags) in
            ["", "--parallel=3"].into_iter().enumerate().filter(|(n, _)| in_slice(n + dir as usize, 2))
        {
            let (far, tmp) = (Far::pipe().with("FAR_RUN", &machine), Tmp::new());
            let what = format!("{dir:?} {flags}");
            // Who it is at the source, and who that is to become.
            let (src, dst) = match dir {
                Dir::Put => ((games, group), (THERE, THERE)),
                Dir::Get => ((THERE, THERE), (games, group)),
            };
            for n in 0..40 {
                give(&tmp.file(format!("s/{n}/small"), "x"), src.0, src.1);
            }
            give(&tmp.file("s/large", noise(1, 3 << 20)), src.0, src.1);
            give(&tmp.p("s/7"), src.0, src.1);
            give(&tmp.file("s/unknown", "x"), 123_456, 123_457);
            give(&tmp.file("s/root", "x"), 0, 0);
            let has_acl = has_tool("setfacl") && {
                let rule = format!("u:{}:r,g:{}:rw,u:77:r", src.0, src.1);
                let mut set = std::process::Command::new("setfacl");
                set.args(["-m", &rule]).arg(tmp.p("s/root")).output().unwrap().status.success()
            };
            let run = |verb: &str, flags: &str| {
                dir.ends(far.bcmr(verb).args(flags.split_whitespace()), &far, &tmp.p("s"), &tmp.p("d")).run()
            };
            let owners = |to: (u32, u32)| {
                for name in ["0/small", "39/small", "large", "7"] {
                    assert_eq!(owner(&tmp.p("d").join(name)), to, "{what} {name}");
                }
                assert_eq!(owner(&tmp.p("d/unknown")), (123_456, 123_457), "{what}");
                assert_eq!(owner(&tmp.p("d/root")), (0, 0), "{what}");
                if has_acl {
                    let mut wanted = [
                        format!("user:{}:r--", to.0),
                        "user:77:r--".to_owned(),
                        format!("group:{}:rw-", to.1),
                    ];
                    let mut got = acl(&tmp.p("d/root"));
                    wanted.sort();
                    got.sort();
                    assert_eq!(got, wanted, "{what}");
                }
            };
            run("sync", flags).ok();
            owners(dst);
            // Nothing is left to do, and nothing differs.
            assert_eq!(run("sync", "-i").ok().out, "", "{what}");
            let told = run("sync", "-n").ok().out;
            assert!(told.starts_with("no differences"), "{what}: {told}");
            // By their numbers, everything differs, and is put right.
            let told = run("sync", "-n --numeric-ids").ok().out;
            assert!(told.contains("large"), "{what}: {told}");
            run("sync", &format!("{flags} --numeric-ids")).ok();
            owners(src);
            // A copy keeps names as well; and what the policy says of an owner counts more.
            fs::remove_dir_all(tmp.p("d")).unwrap();
            run("copy", &format!("--archive -T {flags}")).ok();
            owners(dst);
            let map = format!("--usermap={}:31 --groupmap={}:32", src.0, src.1);
            run("sync", &map).ok();
            assert_eq!(owner(&tmp.p("d/large")), (31, 32), "{what}");
            assert_eq!(owner(&tmp.p("d/unknown")), (123_456, 123_457), "{what}");
        }
    }
}

#[test]
fn between_two_others() {
    let tmp = Tmp::new();
    let Some(machine) = other_accounts("between_two_others", &tmp) else { return };
    let (games, group) = numbers().unwrap();
    let ssh = tmp.file(
        "ssh",
        format!(
            "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\n[ \"$2\" = two ] && export FAR_RUN={machine}\nexec {}/tests/all/common/pipe-ssh \"$@\"\n",
            env!("CARGO_MANIFEST_DIR")
        ),
    );
    chmod(&ssh, 0o755);
    give(&tmp.file("s/file", "x"), games, group);
    tmp.dir("home/run");
    let run = |flags: &str, from: &str, to: &str| {
        let mut line = Line::new(Path::new(BCMR)).args(["sync"]);
        line = line.args([format!("--ssh={}", ssh.display()), format!("--remote-program={BCMR}")]);
        line = line.args(flags.split_whitespace()).args([from, to]);
        line.0.env("FAR_HOME", tmp.p("home")).env("FAR_RUN", "").env("FAR_ARGS", "");
        line.0.env("XDG_CONFIG_HOME", tmp.p("none"));
        line.run()
    };
    let at = |host: &str, name: &str| format!("{host}:{}", tmp.p(name).display());
    run("", &at("one", "s"), &at("two", "d")).ok();
    assert_eq!(owner(&tmp.p("d/file")), (THERE, THERE));
    run("--numeric-ids", &at("one", "s"), &at("two", "d")).ok();
    assert_eq!(owner(&tmp.p("d/file")), (games, group));
    give(&tmp.p("d/file"), THERE, THERE);
    run("", &at("two", "d"), &at("one", "back")).ok();
    assert_eq!(owner(&tmp.p("back/file")), (games, group));
}
