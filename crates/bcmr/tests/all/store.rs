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

type Broken = fn(&Path) -> Option<Box<dyn std::any::Any>>;

/// Each state of a store that cannot be used: what makes it, given the cache directory, and must be kept.
const STATES: [(&str, Broken); 6] = [
    ("home that cannot be written to", |cache| {
        // Where no user can make a directory, root included.
        std::os::unix::fs::symlink("/proc/self", cache).unwrap();
        Some(Box::new(()))
    }),
    ("full disk", |cache| {
        fs::create_dir(cache).unwrap();
        let mount = Mount::tmpfs("size=8k,mode=0700", cache).ok()?;
        let fill = |name: &str| while fs::write(cache.join(name), [7; 4096]).is_err() {};
        fs::create_dir_all(cache.join("bcmr/cas")).unwrap();
        chmod(&cache.join("bcmr/cas"), 0o700);
        fill("fill");
        let _full = fs::write(cache.join("more"), [7; 8192]);
        Some(Box::new(mount))
    }),
    ("cache directory open to others", |cache| {
        fs::create_dir_all(cache.join("bcmr/cas")).unwrap();
        chmod(&cache.join("bcmr/cas"), 0o755);
        Some(Box::new(()))
    }),
    (".cache that is a file", |cache| {
        fs::write(cache, "a file").unwrap();
        Some(Box::new(()))
    }),
    ("held lock", |cache| {
        fs::create_dir_all(cache.join("bcmr/cas")).unwrap();
        chmod(&cache.join("bcmr/cas"), 0o700);
        let lock = cache.join("bcmr/cas/lock");
        fs::write(&lock, "").unwrap();
        chmod(&lock, 0o600);
        let held = fs::File::open(&lock).unwrap();
        rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
        Some(Box::new(held))
    }),
    ("store of another user", |cache| {
        if !is_root() {
            return None;
        }
        fs::create_dir_all(cache.join("bcmr/cas")).unwrap();
        chmod(&cache.join("bcmr/cas"), 0o700);
        std::os::unix::fs::chown(cache.join("bcmr/cas"), Some(1234), None).unwrap();
        Some(Box::new(()))
    }),
];

/// Without a usable store everything is sent, and with -v that is said; confined or not.
#[test]
fn an_upload_works_whatever_the_store_is() {
    let here = Tmp::new();
    let big = here.file("big", noise(3, SIZE));
    for (state, make) in STATES {
        for confined in [false, true] {
            let far = Far::pipe();
            let root = here.dir(if confined { "confined" } else { "free" });
            let Some(_kept) = make(&far.home().join(".cache")) else {
                skipped("an_upload_works_whatever_the_store_is", state);
                continue;
            };
            let (far, to) = if confined {
                (far.serving(&format!("--root {}", root.display())), "landed".into())
            } else {
                (far, root.join("landed"))
            };
            let ran = upload(&far, &big, &to);
            assert_eq!(ran.code, 0, "{state} {confined}: {}", ran.err);
            assert!(
                ran.err.contains("store of blocks there cannot be used"),
                "{state} {confined}: {}",
                ran.err
            );
            assert!(fs::read(root.join("landed")).unwrap() == noise(3, SIZE), "{state} {confined}");
            fs::remove_dir_all(root).unwrap();
        }
    }
}

/// The twin: with a store that can be used the second upload takes its blocks from there and says so, and `doctor` lists
/// it among what both can.
#[test]
fn blocks_from_the_store_are_told() {
    let here = Tmp::new();
    let big = here.file("big", noise(4, SIZE));
    let far = Far::pipe();
    let first = upload(&far, &big, &here.p("there")).ok();
    assert!(!first.err.contains("store"), "{}", first.err);
    let second = upload(&far, &big, &here.p("there again")).ok();
    assert!(second.err.contains(&format!("{SIZE} bytes came from the store")), "{}", second.err);
    let doctor = far.bcmr("doctor").args(["there"]).run().ok();
    assert!(doctor.out.contains("dedup"), "{}", doctor.out);
}

/// Build, upload, `rm`, build again, upload again: with `BCMR_CAS_KEEP`, or `store.keep` in the configuration where the
/// environment does not say otherwise, at most what changed crosses, also where the server is confined; without, all of
/// it does.
#[test]
fn what_was_removed_there_need_not_be_sent_again() {
    const BLOCK: usize = 4 << 20;
    let here = Tmp::new();
    let mut built = noise(5, 6 * BLOCK);
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
        let log = here.p(format!("log{n}"));
        let far = Far::relay().with("RELAY_LOG", &log);
        let far = if keep.is_empty() { far } else { far.with("BCMR_CAS_KEEP", keep) };
        let far = far.serving(&format!("--root {}", root.display()));
        fs::create_dir_all(far.home().join(".config/bcmr")).unwrap();
        fs::write(far.home().join(".config/bcmr/config.toml"), config).unwrap();
        fs::write(&big, &built).unwrap();
        let first = upload(&far, &big, Path::new("landed")).ok();
        for (wrong, says) in [("kept", "unknown field `kept`"), ("much", "is no size: 'much'")] {
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
            assert!(sent > 6 * BLOCK as u64, "{sent}: this judges nothing");
        } else {
            assert!(sent < BLOCK as u64 * 5 / 4, "{sent} bytes for one block that changed");
            let told = format!("{} bytes came from the store", 5 * BLOCK);
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
    needs!(has_tool("python3"), "it needs python3");
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
        ("", "dump", nothing, true),
        ("", "dump", changed, true),
        ("", "dump", gone, false),
        ("", "other", nothing, false),
        ("--no-dedup", "dump", nothing, false),
        ("-W", "dump", nothing, false),
    ];
    let old = noise(6, SIZE);
    let new = [b"a few bytes more in front".as_slice(), &old].concat();
    for (flags, name, meanwhile, helps) in rows {
        let tmp = Tmp::new();
        let far = Far::relay().with("RELAY_LOG", tmp.p("log"));
        let up = || passed(&tmp.p("log")).iter().map(|(up, _)| up).sum::<u64>();
        upload(&far, &tmp.file("dump", &old), &tmp.p("monday")).ok();
        assert!(within(10, || tmp.p("log").exists()), "the relay says nothing");
        let before = up();
        meanwhile(&tmp.p("monday"));
        let line = far.bcmr("copy").args(["-v", "--compress=none"]).args(flags.split_whitespace());
        let ran = line.args([tmp.file(name, &new).as_os_str(), &far.at(tmp.p("tuesday"))]).run().ok();
        assert!(fs::read(tmp.p("tuesday")).unwrap() == new, "{flags} {name}");
        assert!(within(10, || up() > before), "the relay says nothing");
        let (sent, what) = (up() - before, format!("{flags} {name}: {}", ran.err));
        assert_eq!(ran.err.contains("reused"), helps, "{what}");
        // A block that is another one by now comes whole.
        assert_eq!(sent < 5 << 20, helps, "{sent} bytes: {what}");
    }
}
