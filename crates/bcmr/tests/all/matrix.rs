//! Flags times the ways a file can travel: whatever way it goes, a flag keeps its promise.
//!
//! One postcondition for each flag, one small world for each way; a flag that one of the ways forgets is what this is
//! for.

use crate::common::in_slice;
use crate::table::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// How a file gets where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    name: &'static str,
    /// `S` is the source directory, `D` the destination, `L` a list of all names below `S`.
    args: &'static str,
    /// Of the file `f`: bytes.
    bytes: usize,
    /// `f` has a hole.
    sparse: bool,
    /// The destination is on another file system.
    far: bool,
    /// What the destination has before: nothing, an empty directory, or one with an `f`.
    there: There,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum There {
    Nothing,
    Dir,
    File,
}

const SMALL: usize = 70_000;
const BIG: usize = 5 << 20;

const fn way(name: &'static str, args: &'static str, bytes: usize, there: There) -> Way {
    Way { name, args, bytes, sparse: false, far: false, there }
}

const COPIES: [Way; 12] = [
    way("operand", "copy S/f D/f", SMALL, There::Dir),
    way("operand, replacing", "copy S/f D", SMALL, There::File),
    way("big operand", "copy S/f D/f", BIG, There::Dir),
    way("new directory", "copy -rT S D", SMALL, There::Nothing),
    way("existing directory", "copy -rT S D", SMALL, There::Dir),
    way("replacing", "copy -r S/. D", SMALL, There::File),
    way("big in a new directory", "copy -rT S D", BIG, There::Nothing),
    way("big, replacing", "copy -rT S D", BIG, There::File),
    Way { sparse: true, ..way("sparse", "copy -rT S D", BIG, There::Nothing) },
    Way { far: true, ..way("across file systems", "copy -rT S D", SMALL, There::Nothing) },
    Way { far: true, ..way("big across file systems, replacing", "copy -rT S D", BIG, There::File) },
    way("from a list", "copy --files-from L S D", SMALL, There::File),
];

const MOVES: [Way; 5] = [
    Way { far: true, ..way("move across", "move -T S D", SMALL, There::Nothing) },
    Way { far: true, ..way("big move across", "move -T S D", BIG, There::Nothing) },
    Way { far: true, ..way("move across, merging", "move --merge -T S D", SMALL, There::File) },
    way("move, merging", "move --merge -T S D", SMALL, There::File),
    way("move, merging into new", "move --merge -T S D", SMALL, There::Nothing),
];

/// One world: a source, a destination, and how they were.
struct World {
    way: Way,
    here: TempDir,
    _there: Option<TempDir>,
    src: PathBuf,
    dst: PathBuf,
    was_src: Tree,
    was_dst: Tree,
    /// Inode of the destination's `f`.
    was_ino: Option<u64>,
    mtime: i64,
    content: Vec<u8>,
}

const SRC_TIME: u64 = 1_000_000_000;
const MODE: u32 = 0o604;

impl World {
    fn new(way: Way, zeros: bool, there_time: u64) -> Option<World> {
        let here = scratch();
        let there = if way.far { Some(elsewhere()?) } else { None };
        let (src, top) = (at(&here, "s"), there.as_ref().map_or(here.path(), |t| t.path()));
        let dst = top.join("d");
        plant(
            here.path(),
            "f s/skip.o OBJECT\nf s/f.log LOG\nf s/.gitignore *.log\nf s/.bcmrignore h.log\nl s/l -> f\nd s/sub\nf s/sub/skip.o O",
        );
        plant(here.path(), "f s/sub/g G\nf s/sub/h.log LOG");
        let f = src.join("f");
        if way.sparse {
            sparse(&f);
        } else if zeros {
            fs::write(&f, vec![0; way.bytes]).unwrap();
        } else {
            fs::write(&f, noise("f", way.bytes)).unwrap();
        }
        fs::set_permissions(&f, fs::Permissions::from_mode(MODE)).unwrap();
        rustix::fs::setxattr(&f, "user.t", b"kept", rustix::fs::XattrFlags::empty()).ok();
        set_mtime(&f, SRC_TIME);
        match way.there {
            There::Nothing => {}
            There::Dir => fs::create_dir(&dst).unwrap(),
            There::File => {
                plant(top, "f d/f OLD");
                set_mtime(&dst.join("f"), there_time);
            }
        }
        fs::write(at(&here, "globs"), "# object files\n*.o\n\n!/skip.o\n").unwrap();
        let list = "f\nskip.o\nf.log\n.gitignore\n.bcmrignore\nl\nsub/skip.o\nsub/g\nsub/h.log\n";
        fs::write(at(&here, "list"), list).unwrap();
        let was_dst = if way.there == There::Nothing { Tree::new() } else { look(&dst) };
        let was_ino = fs::metadata(dst.join("f")).ok().map(|m| m.ino());
        let (was_src, content) = (look(&src), fs::read(&f).unwrap());
        Some(World {
            way,
            here,
            _there: there,
            src,
            dst,
            was_src,
            was_dst,
            was_ino,
            mtime: SRC_TIME as i64,
            content,
        })
    }

    fn args(&self, flags: &str) -> String {
        let word = |w: &str| match w {
            "S" => self.src.display().to_string(),
            "D" => self.dst.display().to_string(),
            "L" => at(&self.here, "list").display().to_string(),
            "G" => at(&self.here, "globs").display().to_string(),
            w if w.starts_with("S/") => self.src.join(&w[2..]).display().to_string(),
            w if w.starts_with("D/") => self.dst.join(&w[2..]).display().to_string(),
            w => w.to_owned(),
        };
        let line = format!("{} {flags}", self.way.args);
        line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
    }

    fn run(&self, flags: &str) -> Done {
        bcmr(&self.args(flags), self.here.path())
    }

    /// The same under strace; all calls of the kinds given.
    fn traced(&self, flags: &str, calls: &str) -> String {
        let log = at(&self.here, "trace");
        let args = format!(
            "-f -qq -e signal=none -e trace={calls} -o {} {BCMR} {}",
            log.display(),
            self.args(flags)
        );
        finish(command("strace", &words(&args), self.here.path()), "").exits(0);
        fs::read_to_string(log).unwrap()
    }

    fn about(&self, flags: &str) -> String {
        format!("{} [{flags}]", self.way.name)
    }

    fn f(&self) -> fs::Metadata {
        fs::symlink_metadata(self.dst.join("f")).unwrap_or_else(|e| panic!("{}: {e}", self.about("")))
    }

    fn operand(&self) -> bool {
        self.way.args.contains("S/f")
    }

    fn is_move(&self) -> bool {
        self.way.args.starts_with("move")
    }

    fn has(&self, name: &str) -> bool {
        fs::symlink_metadata(self.dst.join(name)).is_ok()
    }

    /// The content arrived, and nothing else changed in it.
    fn arrived(&self, flags: &str) {
        let about = self.about(flags);
        assert!(fs::read(self.dst.join("f")).unwrap() == self.content, "{about}: other content");
        let got = look(&self.dst);
        if self.operand() {
            assert_eq!(got.len(), 1, "{about}: {got:?}");
        } else {
            assert_same(&self.was_src, &got, &about);
        }
        let left = if self.is_move() { Tree::new() } else { self.was_src.clone() };
        let now = if self.is_move() && fs::symlink_metadata(&self.src).is_err() {
            Tree::new()
        } else {
            look(&self.src)
        };
        assert_same(&left, &now, &format!("{about}: source"));
    }
}

/// Every way that is possible here, with old content at the destination older than the source's.
fn worlds(ways: &[Way]) -> Vec<World> {
    ways.iter().filter_map(|w| World::new(*w, false, 500_000_000)).collect()
}

fn all() -> Vec<World> {
    let mut all = worlds(&COPIES);
    all.extend(worlds(&MOVES));
    all
}

/// Those of them that a row of flags is tried with: an ordinary run takes one in `step`, for each `row` others.
fn some(row: usize, step: usize, ways: &[Way]) -> Vec<World> {
    let tried = ways.iter().enumerate().filter(|(n, _)| in_slice(row + n, step));
    worlds(&tried.map(|(_, way)| *way).collect::<Vec<_>>())
}

#[test]
fn plain_and_workers() {
    let all = [COPIES.as_slice(), &MOVES].concat();
    let rows = ["", "-j1", "-j4", "-V", "--sync", "--engine=ring", "--engine=ring --direct-io -V --sync"];
    for (row, flags) in rows.into_iter().enumerate() {
        for w in some(row, 6, &all) {
            w.run(flags).exits(0);
            w.arrived(flags);
        }
    }
    let rows = [
        "-xf",
        "--reflink=disable",
        "--sparse=always",
        "--sparse=disable",
        "-V=direct --sync",
        "-p",
        "--inplace",
        "--engine=sys --readahead",
        "--engine=ring --reflink=disable --block-size=4K",
        "--engine=ring --reflink=disable --inplace",
        "--direct-io --reflink=disable --inplace",
        "--direct-io --reflink=disable --preallocate=disable",
        "--no-cache --reflink=disable",
        "--no-cache=never --sync",
    ];
    for (row, flags) in rows.into_iter().enumerate() {
        for w in some(row, 6, &COPIES) {
            w.run(flags).exits(0);
            w.arrived(flags);
        }
    }
}

/// Without `-p` a copy has its own time and the umask's mode, with it the source's.
#[test]
fn preserve() {
    for flags in ["", "-p", "--preserve=timestamps", "--preserve=mode", "--archive"] {
        for w in worlds(&COPIES) {
            w.run(flags).exits(0);
            let about = w.about(flags);
            let (mode, mtime) = (w.f().mode() & 0o7777, w.f().mtime());
            let times = matches!(flags, "-p" | "--archive" | "--preserve=timestamps");
            assert_eq!(mtime == w.mtime, times, "{about}: mtime {mtime}");
            if matches!(flags, "-p" | "--archive" | "--preserve=mode") {
                assert_eq!(mode, MODE, "{about}");
            }
            let mut value = [0; 16];
            let xattr = rustix::fs::getxattr(w.dst.join("f"), "user.t", &mut value[..]).is_ok();
            let could = rustix::fs::getxattr(w.src.join("f"), "user.t", &mut value[..]).is_ok();
            let can = could && !w.way.far; // tmpfs has user attributes in new kernels only
            assert!(xattr || !can || flags != "--archive", "{about}: attribute lost");
            assert!(!xattr || flags == "--archive", "{about}: attribute kept unasked");
        }
    }
    for w in worlds(&MOVES) {
        w.run("").exits(0);
        assert_eq!((w.f().mode() & 0o7777, w.f().mtime()), (MODE, w.mtime), "{}", w.about(""));
    }
}

/// What is other than at the source is so by every way, and a second run leaves it alone.
#[test]
fn owners_and_modes_that_are_other() {
    for (row, flags) in ["--chmod D711,F640", "--chmod F640,Da=X,Du+rw"].into_iter().enumerate() {
        for w in some(row, 2, &COPIES) {
            w.run(flags).exits(0);
            w.arrived(flags);
            let about = w.about(flags);
            assert_eq!(w.f().mode() & 0o7777, 0o640, "{about}");
            if !w.operand() {
                let mode = |name: &str| fs::metadata(w.dst.join(name)).unwrap().mode() & 0o7777;
                assert_eq!((mode("sub/g"), mode("sub")), (0o640, 0o711), "{about}");
            }
        }
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: owners are given by root");
        return;
    }
    let rows = [
        ("--chown 7:8", (7, 8)),
        ("--chown :8", (0, 8)),
        ("--chown daemon -V", (1, 0)),
        ("--usermap 5:6,0:7 --groupmap *:9", (7, 9)),
        ("--archive --usermap 5:6", (0, 0)),
        ("--numeric-ids -j4", (0, 0)),
    ];
    for (row, (flags, owner)) in rows.into_iter().enumerate() {
        for w in some(row, 3, &COPIES) {
            w.run(flags).exits(0);
            w.arrived(flags);
            assert_eq!((w.f().uid(), w.f().gid()), owner, "{}", w.about(flags));
        }
    }
}

#[test]
fn sparse_as_asked() {
    let allocated = |w: &World| w.f().blocks() * 512;
    for way in COPIES {
        for flags in ["--sparse=always", "--sparse=always -V -j4"] {
            let Some(w) = World::new(way, true, 1) else { continue };
            w.run(flags).exits(0);
            w.arrived(flags);
            let at_most = if way.sparse { 64 << 10 } else { 8192 };
            assert!(
                allocated(&w) <= at_most,
                "{}: {} bytes allocated for zeros",
                w.about(flags),
                allocated(&w)
            );
        }
        for flags in ["--sparse=disable", "--sparse=disable -V --reflink=disable"] {
            let Some(w) = World::new(way, true, 1) else { continue };
            w.run(flags).exits(0);
            w.arrived(flags);
            assert!(allocated(&w) >= w.f().size(), "{}: {} bytes allocated", w.about(flags), allocated(&w));
        }
    }
    for flags in ["", "-V", "--sync", "--reflink=disable"] {
        for w in worlds(&COPIES).into_iter().filter(|w| w.way.sparse) {
            w.run(flags).exits(0);
            assert!(allocated(&w) < 64 << 10, "{}: {} bytes allocated", w.about(flags), allocated(&w));
        }
    }
}

#[test]
fn inplace_keeps_the_inode_and_nothing_else_does() {
    for w in worlds(&COPIES).into_iter().filter(|w| w.way.there == There::File) {
        w.run("--inplace").exits(0);
        w.arrived("--inplace");
        assert_eq!(Some(w.f().ino()), w.was_ino, "{}", w.about("--inplace"));
    }
    for w in worlds(&COPIES).into_iter().filter(|w| w.way.there == There::File) {
        // A second name keeps what was: the file was replaced, not written into.
        let twin = w.dst.parent().unwrap().join("twin");
        fs::hard_link(w.dst.join("f"), &twin).unwrap();
        w.run("").exits(0);
        assert_eq!(fs::read(&twin).unwrap(), b"OLD", "{}", w.about(""));
    }
}

#[test]
fn names_that_are_there() {
    let replaced = [COPIES.as_slice(), &MOVES].concat();
    for way in replaced.into_iter().filter(|w| w.there == There::File) {
        for (flags, there_time, kept) in [
            ("--no-clobber", 1, true),
            ("--update=none", 1, true),
            ("-u", SRC_TIME + 5, true),
            ("-u", SRC_TIME, true),
            ("-u", SRC_TIME - 5, false),
            ("--update=different", SRC_TIME, false),
            ("--update=all", SRC_TIME + 5, false),
        ] {
            let Some(w) = World::new(way, false, there_time) else { continue };
            w.run(flags).exits(0);
            let about = w.about(flags);
            let now = fs::read(w.dst.join("f")).unwrap();
            assert!(
                now == if kept { b"OLD".to_vec() } else { w.content.clone() },
                "{about}: kept is not {kept}"
            );
            if kept {
                assert_eq!(
                    look(&w.src).get(b"f".as_slice()),
                    w.was_src.get(b"f".as_slice()),
                    "{about}: source"
                );
                assert_eq!(Some(w.f().ino()), w.was_ino, "{about}: inode");
            }
            if !w.operand() {
                assert!(w.has("sub/g"), "{about}: the rest goes on");
            }
        }
    }
}

#[test]
fn answers() {
    let replaced = [COPIES.as_slice(), &MOVES].concat();
    for way in replaced.into_iter().filter(|w| w.there == There::File && !w.args.contains("files-from")) {
        for yes in [true, false] {
            let Some(w) = World::new(way, false, 1) else { continue };
            let done =
                finish(command(BCMR, &words(&w.args("-i")), w.here.path()), if yes { "y\n" } else { "n\n" });
            let done = done.exits(0);
            let about = w.about("-i");
            assert_eq!(done.stderr.matches("[y/N]").count(), 1, "{about}: {}", done.stderr);
            assert!(
                fs::read(w.dst.join("f")).unwrap() == if yes { w.content.clone() } else { b"OLD".to_vec() },
                "{about}"
            );
        }
    }
}

/// What is left out is not there afterwards, and after a move it is still at the source.
#[test]
fn filters() {
    let all = [COPIES.as_slice(), &MOVES].concat();
    let rows = [
        ("-e *.o", &["skip.o", "sub/skip.o"][..]),
        ("-e sub/", &["sub"]),
        ("-e *.o --include /skip.o", &["sub/skip.o"]),
        ("--exclude-regex skip", &["skip.o", "sub/skip.o"]),
        ("--exclude-regex ^sub/", &["sub/skip.o", "sub/g", "sub/h.log"]),
        ("--gitignore", &["f.log", "sub/h.log"]),
        ("--bcmrignore", &["sub/h.log"]),
        ("--gitignore --bcmrignore", &["f.log", "sub/h.log"]),
        ("--exclude-from G", &["sub/skip.o"]),
        ("--exclude-from G -e /skip.o", &["skip.o", "sub/skip.o"]),
        ("--newer 2002-01-01", &["f"]),
        ("--older 2002-01-01T12:00", &["skip.o", "f.log", ".gitignore", "sub/g", "sub/skip.o", "sub/h.log"]),
        ("-e f", &["f"]),
        ("--max-size 5", &["f", "skip.o"]),
        ("--min-size 3", &["sub/g", "sub/skip.o"]),
    ];
    for (row, (flags, out)) in rows.into_iter().enumerate() {
        for w in some(row, 6, &all) {
            let about = w.about(flags);
            w.run(flags).exits(0);
            if w.operand() {
                let replaced = w.has("f") && fs::read(w.dst.join("f")).unwrap() == w.content;
                assert_eq!(replaced, !out.contains(&"f"), "{about}");
                continue;
            }
            for name in ["f", "skip.o", "f.log", "l", "sub/g", "sub/skip.o", "sub/h.log", ".gitignore"] {
                let left_out = out.iter().any(|o| name == *o || name.starts_with(&format!("{o}/")));
                let arrived = look(&w.dst).get(name.as_bytes()) == w.was_src.get(name.as_bytes());
                assert_eq!(arrived, !left_out, "{about}: {name}");
                let at_source = w.src.join(name).symlink_metadata().is_ok();
                assert_eq!(at_source, left_out || !w.is_move(), "{about}: {name} at the source");
            }
        }
    }
}

/// Those that are missing above DST are made only where that is asked for; below them all is as without the option.
#[test]
fn directories_above_the_destination() {
    for (line, lands) in [
        ("copy s/f new/deep/f", "new/deep/f"),
        ("copy s/f new/deep/", "new/deep/f"),
        ("copy -t new/deep s/f s/sub/g", "new/deep/g"),
        ("copy s/f s/sub/g new/deep", "new/deep/g"),
        ("copy -rT s new/deep/d", "new/deep/d/sub/g"),
        ("copy --files-from list s new/deep/d", "new/deep/d/sub/g"),
        ("move s/f new/deep/f", "new/deep/f"),
        ("move -T s new/deep/d", "new/deep/d/sub/g"),
        ("sync s new/deep/d", "new/deep/d/sub/g"),
        ("sync s new/deep/d/", "new/deep/d/f"),
    ] {
        let w = World::new(way("", "", SMALL, There::Nothing), false, 1).unwrap();
        let here = w.here.path();
        let refused = bcmr(line, here);
        assert!(refused.code != Some(0) && !here.join("new").exists(), "{line}");
        bcmr(&format!("{line} --mkpath"), here).exits(0);
        assert!(here.join(lands).exists(), "{line}");
    }
}

#[test]
fn links_followed() {
    for w in worlds(&COPIES).into_iter().filter(|w| !w.operand()) {
        w.run("-L").exits(0);
        let l = fs::symlink_metadata(w.dst.join("l")).unwrap();
        assert!(l.is_file(), "{}", w.about("-L"));
        assert!(fs::read(w.dst.join("l")).unwrap() == w.content, "{}", w.about("-L"));
    }
}

#[test]
fn a_dry_run_changes_nothing() {
    for flags in ["-n", "-nv -e *.o", "-n --json --no-clobber"] {
        for w in all() {
            let about = w.about(flags);
            w.run(flags).exits(0);
            assert_same(&w.was_src, &look(&w.src), &about);
            let there = fs::symlink_metadata(&w.dst).is_ok();
            assert_eq!(there, w.way.there != There::Nothing, "{about}: the destination");
            if there {
                assert_same(&w.was_dst, &look(&w.dst), &about);
            }
        }
    }
}

/// Everything that is done is named once, by `-v` and by `--json`.
#[test]
fn everything_is_named() {
    for w in all() {
        let done = w.run("-v").exits(0);
        let named = |path: &Path| done.stdout.matches(&format!("-> '{}'\n", path.display())).count();
        let named = (named(&w.dst.join("f")), named(&w.dst));
        assert!(matches!(named, (1, 0 | 1) | (0, 1)), "{}: {named:?} {}", w.about("-v"), done.stdout);
    }
    for w in all() {
        let done = w.run("--json").exits(0);
        let lines = done.json();
        let of = |dst: &Path| {
            let dst = dst.to_str().unwrap();
            lines
                .iter()
                .filter(|l| l["event"] == "item" && l["dst"] == dst && l["action"] != "removed")
                .count()
        };
        // A directory renamed as a whole is one item.
        let whole = w.is_move() && of(&w.dst.join("f")) == 0;
        assert_eq!(of(&if whole { w.dst.clone() } else { w.dst.join("f") }), 1, "{}", done.stdout);
        let summary = lines.last().unwrap();
        assert_eq!(summary["exit"], 0);
        assert!(summary["files"].as_u64() >= Some(1) || whole, "{summary}");
    }
}

/// What cannot be seen afterwards is seen in the system calls.
#[test]
fn promises_to_the_kernel() {
    if !have("strace") {
        return;
    }
    let all = [COPIES.as_slice(), &MOVES].concat();
    for w in some(0, 2, &all) {
        let log = w.traced("--sync", "fsync,fdatasync,syncfs");
        assert!(log.contains("sync"), "{}: nothing was synced", w.about("--sync"));
    }
    for w in some(1, 2, &COPIES) {
        // What replaces a file is on the medium before it has the name; nothing else waits for the disk.
        let log = w.traced("", "fsync,fdatasync,syncfs");
        let replaces = ["replacing", "from a list"].iter().any(|way| w.about("").contains(way));
        assert_eq!(log.contains("sync"), replaces, "{}: {log}", w.about(""));
    }
    for w in some(0, 2, &COPIES) {
        let log = w.traced("--reflink=disable", "ioctl,copy_file_range");
        assert!(!log.contains("FICLONE"), "{}: {log}", w.about("--reflink=disable"));
    }
    let read = |log: &str| -> u64 {
        log.lines().filter_map(|l| l.rsplit_once("= ")?.1.split(' ').next()?.parse::<u64>().ok()).sum()
    };
    for w in some(1, 2, &all).into_iter().filter(|w| !w.way.sparse) {
        // A rename on one file system has nothing to verify.
        if w.is_move() && !w.way.far {
            continue;
        }
        let log = w.traced("-V", "read,pread64,readv,preadv");
        let (read, size) = (read(&log), w.content.len() as u64);
        assert!(read >= 2 * size, "{}: {read} bytes read of a file of {size}: not read back", w.about("-V"));
    }
}

/// What can be seen of the ways of reading and writing.
#[test]
fn ways_of_reading_and_writing() {
    if !have("strace") {
        return;
    }
    // From two blocks of 4 MiB on a file is filled block by block, and room is reserved first: not in memory.
    let far = crate::common::places().0 != crate::common::disk();
    let ways = [Way { far, ..way("two blocks in a new directory", "copy -rT S D", 8 << 20, There::Nothing) }];
    for (flags, call, made) in [
        ("-V", "fallocate", true),
        ("-V --preallocate=disable", "fallocate", false),
        ("--engine=sys --readahead", "fadvise64", true),
        ("--engine=sys", "fadvise64", false),
    ] {
        for w in worlds(&ways) {
            let log = w.traced(flags, call);
            assert_eq!(log.contains(call), made, "{}: {log}", w.about(flags));
        }
    }
}

/// Every option of `copy`, and the test that sees what it does. An option that a change adds without a test fails here, and so
/// does one whose test goes away. `None`: nothing but time shows it, and the benchmarks measure that.
#[test]
fn every_option_has_a_test_of_what_it_does() {
    const OWNERS: &[(&str, Option<(&str, &str)>)] = &[
        ("target-directory", Some(("operands.rs", "copies_of_other_kinds"))),
        ("no-target-directory", Some(("matrix.rs", "plain_and_workers"))),
        ("recursive", Some(("hints.rs", "after_a_refusal"))),
        ("files-from", Some(("matrix.rs", "plain_and_workers"))),
        ("files-from0", Some(("../../src/cli/bcmr/tests.rs", "lists_of_names"))),
        ("one-file-system", Some(("addresses.rs", "a_disk_mounted_below_the_source"))),
        (
            "no-dereference",
            Some(("bad_input.rs", "dangling_links_are_copied_as_links_and_named_when_followed")),
        ),
        ("dereference", Some(("matrix.rs", "links_followed"))),
        ("follow-destination", Some(("hostile/chosen.rs", "links_of_the_users_own"))),
        ("exclude", Some(("matrix.rs", "filters"))),
        ("include", Some(("matrix.rs", "filters"))),
        ("exclude-from", Some(("matrix.rs", "filters"))),
        ("exclude-regex", Some(("matrix.rs", "filters"))),
        ("gitignore", Some(("matrix.rs", "filters"))),
        ("bcmrignore", Some(("matrix.rs", "filters"))),
        ("newer", Some(("matrix.rs", "filters"))),
        ("older", Some(("matrix.rs", "filters"))),
        ("mkpath", Some(("matrix.rs", "directories_above_the_destination"))),
        ("max-size", Some(("matrix.rs", "filters"))),
        ("min-size", Some(("matrix.rs", "filters"))),
        ("preserve", Some(("matrix.rs", "preserve"))),
        ("no-preserve", Some(("operands.rs", "copies_of_other_kinds"))),
        ("chown", Some(("matrix.rs", "owners_and_modes_that_are_other"))),
        ("chmod", Some(("matrix.rs", "owners_and_modes_that_are_other"))),
        ("usermap", Some(("matrix.rs", "owners_and_modes_that_are_other"))),
        ("groupmap", Some(("matrix.rs", "owners_and_modes_that_are_other"))),
        ("numeric-ids", Some(("matrix.rs", "owners_and_modes_that_are_other"))),
        ("fake-super", Some(("fake_super.rs", "nothing_is_lost_near_and_far"))),
        ("archive", Some(("matrix.rs", "preserve"))),
        ("force", Some(("kept.rs", "force_replaces_what_cannot_be_written_into"))),
        ("interactive", Some(("matrix.rs", "answers"))),
        ("no-clobber", Some(("matrix.rs", "names_that_are_there"))),
        ("update", Some(("matrix.rs", "names_that_are_there"))),
        ("dry-run", Some(("matrix.rs", "a_dry_run_changes_nothing"))),
        ("jobs", Some(("matrix.rs", "plain_and_workers"))),
        ("verify", Some(("matrix.rs", "promises_to_the_kernel"))),
        ("sync", Some(("matrix.rs", "promises_to_the_kernel"))),
        ("engine", Some(("engine.rs", "auto_picks_as_the_files_are_found"))),
        ("block-size", Some(("engine.rs", "what_the_ring_is_asked_for"))),
        ("queue-depth", Some(("engine.rs", "what_the_ring_is_asked_for"))),
        ("async-threshold", Some(("engine.rs", "what_the_ring_is_asked_for"))),
        ("preallocate", Some(("matrix.rs", "ways_of_reading_and_writing"))),
        ("readahead", Some(("matrix.rs", "ways_of_reading_and_writing"))),
        ("allow-changing", Some(("kept.rs", "what_grows_is_copied_as_long_as_it_was"))),
        ("direct-io", Some(("engine.rs", "without_a_ring_it_is_said_once_and_copied_all_the_same"))),
        ("no-cache", Some(("no_cache.rs", "what_is_left_in_the_page_cache"))),
        ("completion-timeout", None),
        ("reflink", Some(("matrix.rs", "promises_to_the_kernel"))),
        ("sparse", Some(("matrix.rs", "sparse_as_asked"))),
        ("inplace", Some(("matrix.rs", "inplace_keeps_the_inode_and_nothing_else_does"))),
        ("manifest", Some(("manifest.rs", "says_what_was_copied"))),
        ("resume", Some(("kept.rs", "what_goes_on_believes_and_what_proves"))),
        ("strict", Some(("kept.rs", "what_goes_on_believes_and_what_proves"))),
        ("append", Some(("kept.rs", "what_is_added_to_is_proved"))),
        ("fast", Some(("resume.rs", "fast_says_what_it_assumes"))),
        ("checkpoint-size", Some(("resume.rs", "only_what_is_missing_is_written"))),
        ("parallel", Some(("remote.rs", "a_tree_of_everything_there_and_back"))),
        ("compress", Some(("remote_ssh.rs", "a_thin_line"))),
        ("no-dedup", Some(("remote_ssh.rs", "what_is_there_already_is_not_sent_again"))),
        ("dedup", Some(("remote_ssh.rs", "what_is_there_already_is_not_sent_again"))),
        ("whole-file", Some(("delta.rs", "only_what_differs_crosses"))),
        ("direct", Some(("remote_ssh.rs", "trees_by_every_way"))),
        ("bwlimit", Some(("ctl.rs", "a_run_goes_as_it_is_told"))),
        ("retries", Some(("remote_lost.rs", "retries_make_the_connection_again"))),
        ("via-source", Some(("relay.rs", "the_source_sends_by_itself"))),
        ("ssh", Some(("remote.rs", "a_list_comes_back"))),
        ("ssh-option", Some(("../../src/cli/bcmr/tests.rs", "what_ssh_gets_keeps_its_order"))),
        ("jump", Some(("../../src/cli/bcmr/tests.rs", "what_ssh_gets_keeps_its_order"))),
        ("identity", Some(("../../src/cli/bcmr/tests.rs", "what_ssh_gets_keeps_its_order"))),
        ("ssh-config", Some(("../../src/cli/bcmr/tests.rs", "what_ssh_gets_keeps_its_order"))),
        ("port", Some(("../../src/cli/bcmr/tests.rs", "which_machine"))),
        ("remote-program", Some(("../../src/cli/bcmr/tests.rs", "what_a_remote_copy_refuses"))),
        ("remote-sudo", Some(("remote.rs", "another_user_there"))),
        ("bootstrap", Some(("remote_ssh.rs", "without_a_bcmr_there"))),
        ("no-bootstrap", Some(("../../src/cli/bcmr/tests.rs", "the_way_there"))),
        ("verbose", Some(("matrix.rs", "everything_is_named"))),
        ("quiet", Some(("../../src/cli/bcmr/tests.rs", "showing"))),
        ("progress", Some(("../../src/cli/bcmr/tests.rs", "showing"))),
        ("progress-in", Some(("terminal.rs", "a_line_fits_its_terminal"))),
        ("no-defaults", Some(("face.rs", "defaults_and_places_of_the_configuration"))),
        ("report", Some(("face.rs", "a_page_on_the_run"))),
        ("json", Some(("matrix.rs", "everything_is_named"))),
        ("help", Some(("help.rs", "each_command_introduces_itself_everywhere"))),
    ];
    let here = scratch();
    let help = bcmr("copy --help", here.path()).exits(0).stdout;
    let option = |line: &str| {
        let line = line.trim_start();
        let long = line
            .strip_prefix("--")
            .or_else(|| line.get(4..).filter(|_| line.starts_with('-'))?.strip_prefix("--"));
        let name = long?.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next()?;
        Some(name.to_owned())
    };
    let mut have: Vec<String> = help.lines().filter(|l| l.starts_with("  ")).filter_map(option).collect();
    have.sort();
    have.dedup();
    let mut known: Vec<String> = OWNERS.iter().map(|(name, _)| (*name).to_owned()).collect();
    known.sort();
    let new: Vec<_> = have.iter().filter(|name| !known.contains(name)).collect();
    let gone: Vec<_> = known.iter().filter(|name| !have.contains(name)).collect();
    assert!(new.is_empty() && gone.is_empty(), "without a row: {new:?}; rows without an option: {gone:?}");
    for (name, owner) in OWNERS {
        let Some((file, test)) = owner else { continue };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all").join(file);
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert!(text.contains(&format!("fn {test}(")), "--{name}: {file} has no {test}");
    }
}
