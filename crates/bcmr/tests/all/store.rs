//! The store of blocks behind an upload: a help and never a condition, and one that says what it did.

use crate::common::remote::*;
use crate::common::*;
use std::fs;
use std::path::Path;

/// What is asked of the store at all.
const SIZE: usize = 17 << 20;

fn upload(far: &Far, from: &Path, to: &Path) -> Ran {
    far.bcmr("copy").args(["-v".as_ref(), from.as_os_str(), &far.at(to)]).run()
}

type Broken = fn(&Path, &str) -> Option<Box<dyn std::any::Any>>;

/// Each state of a store that cannot be used: what makes it, given the cache directory and the store's name, and must be kept.
const STATES: [(&str, Broken); 6] = [
    ("home that cannot be written to", |cache, _| {
        // Where no user can make a directory, root included.
        std::os::unix::fs::symlink("/proc/self", cache).unwrap();
        Some(Box::new(()))
    }),
    ("full disk", |cache, store| {
        fs::create_dir(cache).unwrap();
        let mount = Mount::tmpfs("size=8k,mode=0700", cache).ok()?;
        let fill = |name: &str| while fs::write(cache.join(name), [7; 4096]).is_err() {};
        let own = cache.join("bcmr").join(store);
        fs::create_dir_all(&own).unwrap();
        chmod(&own, 0o700);
        fill("fill");
        let _full = fs::write(cache.join("more"), [7; 8192]);
        Some(Box::new(mount))
    }),
    ("cache directory open to others", |cache, store| {
        let own = cache.join("bcmr").join(store);
        fs::create_dir_all(&own).unwrap();
        chmod(&own, 0o755);
        Some(Box::new(()))
    }),
    (".cache that is a file", |cache, _| {
        fs::write(cache, "a file").unwrap();
        Some(Box::new(()))
    }),
    ("held lock", |cache, store| {
        let own = cache.join("bcmr").join(store);
        fs::create_dir_all(&own).unwrap();
        chmod(&own, 0o700);
        let lock = own.join("lock");
        fs::write(&lock, "").unwrap();
        chmod(&lock, 0o600);
        let held = fs::File::open(&lock).unwrap();
        rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
        Some(Box::new(held))
    }),
    ("store of another user", |cache, store| {
        if !is_root() {
            return None;
        }
        let own = cache.join("bcmr").join(store);
        fs::create_dir_all(&own).unwrap();
        chmod(&own, 0o700);
        std::os::unix::fs::chown(&own, Some(1234), None).unwrap();
        Some(Box::new(()))
    }),
];

/// Without a usable store everything is sent, and with -v that is said; confined or not.
#[test]
fn an_upload_works_whatever_the_store_is() {
    let here = Tmp::new();
    let big = here.file("big", noise(3, SIZE));
    for (n, (state, make)) in STATES.into_iter().enumerate() {
        for confined in [false, true] {
            // An ordinary run tries each one way.
            if !in_slice(n + usize::from(confined), 2) {
                continue;
            }
            let far = Far::pipe();
            let root = here.dir(if confined { "confined" } else { "free" });
            let (far, to) = if confined {
                (far.serving(&format!("--root {}", root.display())), "landed".into())
            } else {
                (far, root.join("landed"))
            };
            let Some(_kept) = make(&far.home().join(".cache"), "cas") else {
                skipped("an_upload_works_whatever_the_store_is", state);
                continue;
            };
            let ran = upload(&far, &big, &to);
            assert_eq!(ran.code, 0, "{state} {confined}: {}", ran.err);
            assert!(
                ran.err.contains("store of blocks at the destination cannot be used"),
                "{state} {confined}: {}",
                ran.err
            );
            assert!(fs::read(root.join("landed")).unwrap() == noise(3, SIZE), "{state} {confined}");
            fs::remove_dir_all(root).unwrap();
        }
    }
}

/// The same of the store of who downloads: it is a help, and no download fails without it.
#[test]
fn a_download_works_whatever_the_store_is() {
    let here = Tmp::new();
    let big = here.file("big", noise(3, SIZE));
    let good = noise(3, SIZE);
    for (n, (state, make)) in STATES.into_iter().enumerate() {
        let far = Far::pipe();
        let Some(_kept) = make(&far.cache(), "fetched") else {
            skipped("a_download_works_whatever_the_store_is", state);
            continue;
        };
        let to = here.p("landed");
        // An ordinary run tries every second one twice.
        for _ in 0..if in_slice(n, 2) { 2 } else { 1 } {
            let ran = Dir::Get.copy(&far, "-v", &big, &to).run();
            assert_eq!(ran.code, 0, "{state}: {}", ran.err);
            assert!(
                ran.err.contains("store of blocks at the destination cannot be used"),
                "{state}: {}",
                ran.err
            );
            assert!(fs::read(&to).unwrap() == good, "{state}");
            fs::remove_file(&to).unwrap();
        }
    }
    // Without a place for it there is none, and nothing is said.
    let far = Far::pipe();
    let mut line = Dir::Get.copy(&far, "-v", &big, &here.p("landed"));
    line.0.env_remove("XDG_CACHE_HOME").env_remove("HOME");
    let ran = line.run().ok();
    assert!(!ran.err.contains("store of blocks"), "{}", ran.err);
}

/// Whatever is in the files of a store of downloads, what lands is the source; and with the next run it is whole again.
#[test]
fn a_damaged_store_costs_a_download_time_only() {
    let here = Tmp::new();
    let good = noise(13, SIZE);
    let big = here.file("big", &good);
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 5] = [
        ("index cut", |own| {
            let index = fs::File::options().write(true).open(own.join("index")).unwrap();
            index.set_len(index.metadata().unwrap().len() / 2).unwrap();
        }),
        ("index of noise", |own| fs::write(own.join("index"), noise(1, 9000)).unwrap()),
        ("another key", |own| fs::write(own.join("key"), noise(2, 48)).unwrap()),
        ("index that is a link", |own| {
            fs::rename(own.join("index"), own.join("elsewhere")).unwrap();
            std::os::unix::fs::symlink("elsewhere", own.join("index")).unwrap();
        }),
        ("nothing left", |own| fs::remove_dir_all(own).unwrap()),
    ];
    for (what, damage) in sliced(damages, 2) {
        let far = Far::pipe();
        let get = |to: &str| {
            let ran = Dir::Get.copy(&far, "-v", &big, &here.p(to)).run().ok();
            assert!(fs::read(here.p(to)).unwrap() == good, "{what}");
            ran.err.contains(&format!("{SIZE} bytes came from the store"))
        };
        assert!(!get("one") && get("two"), "{what}: the twin");
        damage(&far.cache().join("bcmr/fetched"));
        get("three");
        assert!(get("four"), "{what}: it does not heal");
        for name in ["one", "two", "three", "four"] {
            fs::remove_file(here.p(name)).unwrap();
        }
    }
}

/// Two downloads at once with one store: both land, and both are remembered.
#[test]
fn two_downloads_at_once_share_a_store() {
    let here = Tmp::new();
    let sources = [1, 2].map(|n| here.file(format!("big{n}"), noise(20 + n, SIZE)));
    let far = Far::pipe();
    let both = |round: &str| {
        std::thread::scope(|scope| {
            let mut runs = Vec::new();
            for (n, from) in sources.iter().enumerate() {
                let to = here.p(format!("{round}{n}"));
                let line = Dir::Get.copy(&far, "-v", from, &to);
                runs.push(scope.spawn(move || {
                    let ran = line.run().ok();
                    assert!(fs::read(to).unwrap() == fs::read(from).unwrap());
                    ran.err
                }));
            }
            runs.into_iter().map(|run| run.join().unwrap()).collect::<Vec<_>>()
        })
    };
    assert!(both("first").iter().all(|said| !said.contains("store of blocks")));
    let told = format!("{SIZE} bytes came from the store");
    for said in both("second") {
        assert!(said.contains(&told), "{said}");
    }
}

/// The twin: with a store that can be used the second run takes its blocks from there and says so, to a person with -v and in the
/// receipt, and to a program; and `doctor` lists it among what both can.
#[test]
fn blocks_from_the_store_are_told() {
    let here = Tmp::new();
    let big = here.file("tree/big", noise(4, SIZE));
    for dir in BOTH {
        let far = Far::pipe();
        let copied =
            |flags: &str, to: &str| dir.copy(&far, flags, &big, &here.p(format!("{dir:?}{to}"))).run().ok();
        let receipt = |out: &str| {
            let line = out.lines().find(|line| line.contains("\"receipt\"")).unwrap();
            let told: serde_json::Value = serde_json::from_str(line).unwrap();
            let number = |key: &str| told.get(key).map(|n| n.as_u64().unwrap());
            (number("reused"), number("from_store"))
        };
        let first = copied("-v --json", "1");
        assert_eq!(receipt(&first.out), (Some(0), None));
        assert!(!first.err.contains("store of blocks"), "{}", first.err);
        let second = copied("-v", "2");
        assert!(
            second.err.contains(&format!("{SIZE} bytes came from the store of blocks")),
            "{}",
            second.err
        );
        assert!(!second.err.contains("that an earlier run had copied"), "{}", second.err);
        let saved = Some(SIZE as u64);
        assert_eq!(receipt(&copied("--json", "3").out), (saved, saved), "{dir:?}");
        let line = far.bcmr("sync").args(["--stats"]);
        let synced = dir.ends(line, &far, &here.p("tree"), &here.p(format!("{dir:?}4"))).run().ok();
        synced.says("reused: 17.0 MiB from the store of blocks at the destination");
        let doctor = far.bcmr("doctor").args(["there"]).run().ok();
        assert!(doctor.out.contains("dedup") && doctor.out.contains("stores"), "{}", doctor.out);
    }
}

/// Build, upload, `rm`, build again, upload again: with `BCMR_CAS_KEEP`, or `store.keep` in the configuration where the
/// environment does not say otherwise, at most what changed crosses, also where the server is confined; without, all of
/// it does.
#[test]
fn what_was_removed_there_need_not_be_sent_again() {
    const BLOCK: usize = 4 << 20;
    // Five are more than the least that is asked of the store.
    let blocks = if all_cases() { 6 } else { 5 };
    let here = Tmp::new();
    let mut built = noise(5, blocks * BLOCK);
    let big = here.file("big", &built);
    let root = here.dir("root");
    // What the environment says, what the configuration does, and whether blocks are kept.
    let rows = [
        ("", "", false),
        ("1G", "", true),
        ("", "[store]\nkeep = '1G'\n", true),
        ("0", "store.keep = '1G'\n", false),
        ("1G", "store.keep = '0'\n", true),
        ("", "[store]\nkept = '1G'\n", false),
        ("", "[store]\nkeep = 'much'\n", false),
    ];
    for (n, (keep, config, keeps)) in rows.into_iter().enumerate() {
        // What the environment says alone, it says over the configuration too.
        if n == 1 && !all_cases() {
            continue;
        }
        let log = here.p(format!("log{n}"));
        let far = Far::relay().with("RELAY_LOG", &log);
        let far = if keep.is_empty() { far } else { far.with("BCMR_CAS_KEEP", keep) };
        let far = far.serving(&format!("--root {}", root.display()));
        fs::create_dir_all(far.home().join(".config/bcmr")).unwrap();
        fs::write(far.home().join(".config/bcmr/config.toml"), config).unwrap();
        fs::write(&big, &built).unwrap();
        let first = upload(&far, &big, Path::new("landed")).ok();
        for (wrong, says) in [("kept", "unknown field `kept`"), ("much", "'much' is no size")] {
            assert_eq!(first.err.contains(says), config.contains(wrong), "{config}: {}", first.err);
        }
        fs::remove_file(root.join("landed")).unwrap();
        built[2 * BLOCK + 9] ^= 1;
        fs::write(&big, &built).unwrap();
        let before: u64 = passed(&log).iter().map(|(up, _)| up).sum();
        let again = upload(&far, &big, Path::new("landed")).ok();
        let sent = passed(&log).iter().map(|(up, _)| up).sum::<u64>() - before;
        assert!(fs::read(root.join("landed")).unwrap() == built, "{keep}");
        if !keeps {
            assert!(sent > (blocks * BLOCK) as u64, "{sent}: this judges nothing");
        } else {
            assert!(sent < BLOCK as u64 * 5 / 4, "{sent} bytes for one block that changed");
            let told = format!("{} bytes came from the store", (blocks - 1) * BLOCK);
            assert!(again.err.contains(&told), "{}", again.err);
        }
        fs::remove_file(root.join("landed")).unwrap();
    }
}

/// A dump of each day, copied to a name of its own: what it has in common with the last one that came from the same file does not
/// cross, wherever in it that lies, and what lands is the source, whatever became of the last one meanwhile. It crosses where the
/// last one came from another file, where it is gone, and where the user wants no such help.
#[test]
fn a_later_version_for_another_name_is_put_together_from_the_last_one() {
    needs!(python().is_some(), "it needs python3");
    type Meanwhile = fn(&Path);
    let nothing: Meanwhile = |_| {};
    let changed: Meanwhile = |last| {
        let when = fs::metadata(last).unwrap().modified().unwrap();
        let file = fs::File::options().write(true).open(last).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"gone", 9_000_000).unwrap();
        file.set_modified(when).unwrap();
    };
    let gone: Meanwhile = |last| fs::remove_file(last).unwrap();
    let rows = [
        ("", "dump", nothing, [true; 2]),
        // A server that is downloaded from is told nothing of what it has not sent.
        ("", "dump", changed, [true, false]),
        ("", "dump", gone, [false; 2]),
        ("", "other", nothing, [false; 2]),
        ("--no-dedup", "dump", nothing, [false; 2]),
        ("-W", "dump", nothing, [false; 2]),
    ];
    let old = noise(6, SIZE);
    let new = [b"a few bytes more in front".as_slice(), &old].concat();
    let both = BOTH.iter().flat_map(|dir| rows.iter().enumerate().map(|(n, row)| (*dir, n, *row)));
    for (dir, n, (flags, name, meanwhile, helps)) in both {
        // An ordinary run tries the first, which helps, both ways, and each of the others one way.
        if n > 0 && !in_slice(n + dir as usize + 1, 2) {
            continue;
        }
        let helps = helps[usize::from(dir == Dir::Get)];
        let tmp = Tmp::new();
        let far = Far::relay().with("RELAY_LOG", tmp.p("log"));
        let crossed = || {
            let way = |(up, down): &(u64, u64)| if dir == Dir::Put { *up } else { *down };
            passed(&tmp.p("log")).iter().map(way).sum::<u64>()
        };
        dir.copy(&far, "", &tmp.file("dump", &old), &tmp.p("monday")).run().ok();
        assert!(within(10, || tmp.p("log").exists()), "the relay says nothing");
        let before = crossed();
        meanwhile(&tmp.p("monday"));
        let flags = format!("-v --compress=none {flags}");
        let ran = dir.copy(&far, &flags, &tmp.file(name, &new), &tmp.p("tuesday")).run().ok();
        assert!(fs::read(tmp.p("tuesday")).unwrap() == new, "{dir:?} {flags} {name}");
        assert!(within(10, || crossed() > before), "the relay says nothing");
        let (sent, what) = (crossed() - before, format!("{dir:?} {flags} {name}: {}", ran.err));
        assert_eq!(ran.err.contains("reused"), helps, "{what}");
        // A block that is another one by now comes whole.
        assert_eq!(sent < 5 << 20, helps, "{sent} bytes: {what}");
    }
}
