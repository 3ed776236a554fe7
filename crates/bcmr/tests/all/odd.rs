//! File systems unlike others: names of which two are one, and renames that leave nothing alone. No source is lost
//! there, and none is said to have arrived that another has replaced.

use crate::common::remote::*;
use crate::common::{self, in_slice, is_root, python, script, sliced};
use crate::table::{at, bcmr, look, plant, scratch};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// One of them, in memory, for as long as this lives.
struct Odd {
    at: PathBuf,
    server: Child,
}

impl Odd {
    /// Mounts; `None`, said aloud, where that cannot be done.
    fn new(test: &str, at: PathBuf, nature: &str) -> Option<Odd> {
        let (true, true, Some(python)) = (is_root(), Path::new("/dev/fuse").exists(), python()) else {
            crate::common::skipped(test, "it needs root, python3 and /dev/fuse");
            return None;
        };
        fs::create_dir_all(&at).unwrap();
        let mut server = Command::new(python)
            .args(["-IS", &script("odd-fs")])
            .arg(&at)
            .args(nature.split_whitespace())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        let odd = Odd { at, server };
        if said != "ready\n" {
            crate::common::skipped(test, "FUSE cannot be mounted here");
            return None;
        }
        Some(odd)
    }
}

/// Those that fold names: inodes have one number, or one for each spelling. None, said aloud, where that cannot be.
fn folding(test: &str, top: &tempfile::TempDir) -> Vec<Odd> {
    let natures = ["folds", "folds renumbers"].into_iter().enumerate();
    natures.map_while(|(n, nature)| Odd::new(test, at(top, &format!("m{n}")), nature)).collect()
}

impl Drop for Odd {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg("-l").arg(&self.at).stderr(Stdio::null()).status();
        let _gone = self.server.kill();
        let _gone = self.server.wait();
    }
}

/// All files below `root`: their contents, sorted, and no stage among their names.
fn contents(root: &Path) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for name in look(root).into_keys() {
        let name = String::from_utf8(name).unwrap();
        assert!(!name.contains(".stage") && !name.contains(".part"), "litter: {name}");
        let path = root.join(&name);
        // The mark of a tree that is not complete is no copy of anything.
        if fs::symlink_metadata(&path).unwrap().is_file()
            && !name.ends_with(".session")
            && !name.ends_with(".tree")
        {
            all.push(fs::read(path).unwrap());
        }
    }
    all.sort();
    all
}

const SMALL: &str = "f s/Makefile UPPER\nf s/makefile lower\nf s/other other";
const LARGE: &str = "z s/Makefile 5000000\nz s/makefile 5000001\nf s/other other";
const MIXED: &str = "z s/Makefile 5000000\nf s/makefile lower\nf s/other other";
const DIRS: &str = "f s/D/x X\nf s/d/x x\nz s/D/big 5000000\nf s/other other";
const LINKS: &str = "l s/L -> here\nf s/l lower\nf s/other other";

/// Two sources, one name: the first stays, and the second is refused.
#[test]
fn two_names_that_are_one() {
    let top = scratch();
    let odds = folding("two_names_that_are_one", &top);
    let mut rows = Vec::new();
    for tree in [SMALL, LARGE, MIXED, DIRS, LINKS] {
        for line in [
            "copy -r -j4 s m/new",
            "copy -r -j1 s m/new",
            "copy -r -T s m/here",
            "copy -r s/. m/here",
            "copy -r -C s m/new",
            "copy -r -C --checkpoint-size=4M s/. m/here",
            "copy -r --inplace s/. m/here",
            "copy -r -a s/. m/here",
            "copy -r -u s/. m/here",
            "copy -r -u -j1 s/. m/here",
            "copy -r --no-clobber s/. m/here",
            "copy -r --no-clobber -j1 s/. m/here",
            "copy -r --update=different s/. m/here",
            "move s m/new",
            "move --merge -T s m/here",
            "move -j1 s m/new",
        ] {
            rows.push((tree, line));
        }
    }
    let products = rows.len();
    for line in ["copy s/Makefile s/makefile s/other m/here", "move s/Makefile s/makefile s/other m/here"] {
        rows.extend([SMALL, LARGE, MIXED].map(|tree| (tree, line)));
    }
    rows.push((DIRS, "move s/D s/d s/other m/here"));
    rows.push((DIRS, "move --merge s/D s/d s/other m/here"));
    for (n, (tree, line)) in rows.into_iter().enumerate() {
        for (odd, was_there) in odds.iter().flat_map(|odd| [(odd, false), (odd, true)]) {
            // An ordinary run takes a tenth: each line with one tree, every second one where something was there.
            // Begun at 7, `-u` and `--no-clobber` meet something there, and `-C` a large file.
            let (from, part) = if n < products { (7, 10) } else { (0, 3) };
            if !in_slice(n + usize::from(was_there) + from, part) {
                continue;
            }
            let here = scratch();
            plant(here.path(), tree);
            let dst = odd.at.join(format!("{n}-{was_there}"));
            fs::create_dir_all(dst.join("here")).unwrap();
            if was_there && tree != DIRS {
                fs::write(dst.join(if tree == LINKS { "here/l" } else { "here/makefile" }), "old").unwrap();
            }
            let before = contents(&at(&here, "s"));
            let args = line.replace("m/", &format!("{}/", dst.display()));
            let done = bcmr(&args, here.path());
            let about = format!("{line}, was there {was_there}: {}", done.stderr);
            let is_move = line.starts_with("move");
            let sources = if at(&here, "s").exists() { contents(&at(&here, "s")) } else { Vec::new() };
            let arrived = contents(&dst);
            if (line.contains(" -u ") || line.contains("--no-clobber")) && was_there && tree != DIRS {
                assert!(arrived.contains(&b"old".to_vec()), "{about}: what is as new stays");
            }
            // Appended to, what was there before is another file.
            assert!(matches!(done.code, Some(1 | 8)), "{about}: exit {:?}", done.code);
            for content in &before {
                let there = arrived.contains(content) || sources.contains(content);
                assert!(there, "{about}: {} bytes are gone", content.len());
            }
            assert!(is_move || sources == before, "{about}");
            assert!(arrived.contains(&b"other".to_vec()), "{about}");
        }
    }
}

/// What is there is appended to, or found whole, for one of the two, and the other is refused: not both are said to be
/// there.
#[test]
fn appended_to_by_one_of_two() {
    let top = scratch();
    let odds = folding("appended_to_by_one_of_two", &top);
    for (odd, jobs) in odds.iter().flat_map(|odd| [(odd, "-j1"), (odd, "-j4")]) {
        let here = scratch();
        plant(here.path(), "f s/Makefile UPPER\nf s/makefile lowerlower\nf s/other other");
        let dst = odd.at.join(jobs);
        fs::create_dir(&dst).unwrap();
        fs::write(dst.join("Makefile"), "UPPER").unwrap();
        let done = bcmr(&format!("copy -r --append {jobs} s/. {}", dst.display()), here.path());
        assert!(matches!(done.code, Some(1 | 8)), "{jobs}: {:?}, {}", done.code, done.stderr);
        assert!(contents(&dst).contains(&b"other".to_vec()), "{jobs}");
    }
}

/// The twin of all that: a file with several names is several places, also after one of its names was moved there.
#[test]
fn several_names_are_several_places() {
    let here = scratch();
    plant(here.path(), "f s/x x\nf s/y y\nd d");
    fs::hard_link(at(&here, "s/x"), at(&here, "d/y")).unwrap();
    bcmr("move --no-clobber s/x s/y d", here.path()).exits(0);
    assert_eq!(fs::read(at(&here, "d/y")).unwrap(), b"x");
    assert_eq!(fs::read(at(&here, "s/y")).unwrap(), b"y", "it was kept, and so its source is");
}

/// By renames, on that file system itself: the only copy of a file is not replaced by another that came with it.
#[test]
fn renames_to_two_names_that_are_one() {
    let top = scratch();
    let odds = folding("renames_to_two_names_that_are_one", &top);
    const TREE: &str = "f a/Makefile UPPER\nf b/makefile lower\nf a/d/x ax\nf b/D/X bx\nf c/d/x cx\nf c/Makefile C\nd t/d\nd e\nd g\nd u\nd v";
    const LINES: [&str; 5] = [
        "move a/Makefile b/makefile t",
        "move a/d b/D e",
        "move --merge c/d b/D g",
        // One of them is on another file system: it is copied to where the other was renamed.
        "move c/Makefile far/makefile u",
        "move far/makefile t/Makefile v",
    ];
    for (odd, line) in odds.iter().flat_map(|odd| LINES.map(|line| (odd, line))) {
        if line == LINES[0] {
            plant(&odd.at, TREE);
        }
        let before = contents(&odd.at);
        fs::create_dir_all(at(&top, "far")).unwrap();
        fs::write(at(&top, "far/makefile"), "far").unwrap();
        let line = line.replace("far/", &format!("{}/", at(&top, "far").display()));
        let done = bcmr(&line, &odd.at).exits(8);
        let now = contents(&odd.at);
        for content in &before {
            assert!(
                now.contains(content),
                "{line}: {:?} is gone: {}",
                String::from_utf8_lossy(content),
                done.stderr
            );
        }
        let far = fs::read(at(&top, "far/makefile")).ok();
        assert!(far.is_some() || now.contains(&b"far".to_vec()), "{line}: {}", done.stderr);
    }
}

/// The same with a destination behind a wire.
#[test]
fn two_names_that_are_one_on_another_machine() {
    let top = scratch();
    let name = "two_names_that_are_one_on_another_machine";
    let odds = folding(name, &top);
    let far = Far::pipe();
    for (n, tree) in [SMALL, LARGE, MIXED, DIRS, LINKS].into_iter().enumerate() {
        for (m, flags) in ["-r", "-r -T", "-r -C"].into_iter().enumerate() {
            // An ordinary run takes a half: each tree by some, and some trees by each.
            let Some(odd) = odds.get(n % 2).filter(|_| in_slice(n + m, 2)) else { continue };
            let here = scratch();
            plant(here.path(), tree);
            let dst = odd.at.join(format!("{n}{}", flags.replace(' ', "")));
            fs::create_dir(&dst).unwrap();
            Dir::Put.copy(&far, flags, &at(&here, "s"), &dst).run().one_of(&[1, 8]);
            let (before, arrived) = (contents(&at(&here, "s")), contents(&dst));
            assert!(arrived.iter().all(|c| before.contains(c)), "{flags}: torn");
            assert!(arrived.contains(&b"other".to_vec()), "{flags}");
        }
    }
}

/// The twins: one name that is spelled once, a second run over the first, and a list that says a name twice.
#[test]
fn one_name_is_one_name() {
    let top = scratch();
    let odds = folding("one_name_is_one_name", &top);
    for odd in &odds {
        let here = scratch();
        plant(here.path(), "f s/Makefile UPPER\nf s/d/x x\nz s/d/big 5000000\nl s/l -> d\nf list s/Makefile");
        let want = look(&at(&here, "s"));
        let m = odd.at.display();
        for line in [
            "copy -r s m/new",
            "copy -r -T s m/new",
            "copy -r -T --inplace s m/new",
            "copy -r -C -T s m/new",
            "copy --archive -T s m/new",
            "move --merge -T s m/new",
        ] {
            bcmr(&line.replace("m/", &format!("{m}/")), here.path()).exits(0);
            crate::table::assert_same(&want, &look(&odd.at.join("new")), line);
        }
        plant(here.path(), "f s/Makefile UPPER\nf s/d/x x");
        fs::write(at(&here, "list"), "Makefile\nd/x\nMakefile\nd\n").unwrap();
        bcmr(&format!("copy -r --files-from list s {m}/listed"), here.path()).exits(0);
        assert_eq!(contents(&odd.at.join("listed")).len(), 2);
    }
}

/// What has landed under a name that is spelled otherwise there is not what only the destination has.
#[test]
fn what_is_spelled_otherwise_there_is_not_deleted() {
    let top = scratch();
    for odd in folding("what_is_spelled_otherwise_there_is_not_deleted", &top) {
        let here = scratch();
        plant(here.path(), "f s/D/x X");
        plant(&odd.at, "f to/d/x old\nf to/other other");
        bcmr(&format!("sync --delete s {}/to", odd.at.display()), here.path()).exits(0);
        assert_eq!(contents(&odd.at.join("to")), [b"X".to_vec()]);
    }
}

/// The twin: names that are two, on a file system that does not say so by its numbers.
#[test]
fn two_names_that_are_two() {
    let top = scratch();
    let Some(odd) = Odd::new("two_names_that_are_two", at(&top, "m"), "renumbers") else { return };
    for (n, was_there) in
        ["f makefile old\nf d/x old", "f Makefile old\nf D/x old", "d d"].into_iter().enumerate()
    {
        for (m, line) in
            ["copy -r -T -j1", "copy -r -T", "copy -r -T -C", "move --merge -T"].into_iter().enumerate()
        {
            let here = scratch();
            plant(here.path(), &format!("{SMALL}\n{DIRS}"));
            let (to, want) = (odd.at.join(format!("{n}{m}")), look(&at(&here, "s")));
            plant(&to, was_there);
            bcmr(&format!("{line} s {}", to.display()), here.path()).exits(0);
            crate::table::assert_same(&want, &look(&to), &format!("{line}: {was_there}"));
        }
    }
}

/// Where all files belong to one user, whoever makes them, a copy that was stopped goes on; and what another owner has
/// planted elsewhere is not gone on with (`foreign_owners_are_not_gone_on_with`).
#[test]
fn sessions_where_all_belongs_to_one_owner() {
    let top = scratch();
    let Some(odd) = Odd::new("sessions_where_all_belongs_to_one_owner", at(&top, "m"), "one-owner") else {
        return;
    };
    let here = scratch();
    plant(here.path(), "z s 9000000");
    for mode in ["-C", "-s"] {
        let words = format!("copy {mode} --checkpoint-size=4M --json s {}/{mode}", odd.at.display());
        let words: Vec<&str> = words.split(' ').collect();
        // 8.5 MiB, in the units of a shell's limit.
        common::bcmr_after("ulimit -c 0; ulimit -f 17408", &words).cwd(here.path()).run().code(6);
        let ran = common::bcmr(&words).cwd(here.path()).run().ok();
        assert!(ran.out.contains(r#""bytes":8388608,"repaired":0"#), "{mode}: {}", ran.out);
        assert_eq!(fs::read(at(&here, "s")).unwrap(), fs::read(odd.at.join(mode)).unwrap());
        fs::remove_file(odd.at.join(mode)).unwrap();
        assert_eq!(common::names(&odd.at), [""; 0]);
    }
}

/// Where no rename leaves alone what is there, directories get their names all the same, and nothing is replaced that
/// should not be.
#[test]
fn plain_renames_do() {
    let top = scratch();
    for (n, nature) in ["only-plain-renames", "only-plain-renames no-links"].into_iter().enumerate() {
        let Some(odd) = Odd::new("plain_renames_do", at(&top, &format!("m{n}")), nature) else { return };
        let m = odd.at.display();
        let here = scratch();
        plant(here.path(), "f s/a A\nf s/d/x x\nz s/d/big 5000000\nf s/d/e/f f\nl s/l -> d");
        let want = look(&at(&here, "s"));
        for line in [
            "copy -r s m/one",
            "copy -r -T s m/one",
            "copy -r -C s m/two",
            "copy -r --no-clobber s m/three",
            "move s m/four",
        ] {
            let to = line.rsplit('/').next().unwrap();
            bcmr(&line.replace("m/", &format!("{m}/")), here.path()).exits(0);
            crate::table::assert_same(&want, &look(&odd.at.join(to)), &format!("{nature}: {line}"));
        }
        // GNU's programs too, whose files come one by one.
        plant(here.path(), "f s/a A\nf s/d/x x");
        for (line, to) in [
            ("cp s/a m/cp", "cp"),
            ("cp -a s/a m/archive", "archive"),
            ("cp --backup s/a m/cp", "cp"),
            ("install -m 600 s/a m/install", "install"),
            ("mv m/install m/renamed", "renamed"),
            ("mv s/a m/moved", "moved"),
        ] {
            bcmr(&line.replace("m/", &format!("{m}/")), here.path()).exits(0);
            assert_eq!(fs::read(odd.at.join(to)).unwrap(), b"A", "{nature}: {line}");
        }
        assert_eq!(fs::read(odd.at.join("cp~")).unwrap(), b"A");
        // The twin: what has the name stays.
        bcmr(&format!("cp -n s/d/x {m}/cp"), here.path());
        bcmr(&format!("mv -n s/d/x {m}/cp"), here.path());
        assert_eq!(fs::read(odd.at.join("cp")).unwrap(), b"A");
        let names = "f theirs/x theirs\nf ours/x ours";
        plant(&odd.at, names);
        bcmr("copy -r --no-clobber -T ours theirs", &odd.at).exits(0);
        assert_eq!(fs::read(odd.at.join("theirs/x")).unwrap(), b"theirs");
    }
}

/// A file that cannot be read or written whole: its bytes say which error a read or a write gets, and where.
#[derive(Clone, Copy, Debug)]
struct Bad {
    bytes: usize,
    at: usize,
    fate: &'static str,
}

const READS: [Bad; 4] = [
    Bad { bytes: 5000, at: 4096, fate: "<read EIO>" },
    Bad { bytes: 300_000, at: 200_000, fate: "<read EIO>" },
    Bad { bytes: 2_500_000, at: 1_700_000, fate: "<read EIO>" },
    Bad { bytes: 5_000_000, at: 4_500_000, fate: "<read EIO>" },
];

const WRITES: [Bad; 4] = [
    Bad { bytes: 5000, at: 0, fate: "<write EIO>" },
    Bad { bytes: 300_000, at: 200_000, fate: "<write EIO>" },
    Bad { bytes: 300_000, at: 100_000, fate: "<write ENOSPC>" },
    Bad { bytes: 2_500_000, at: 1_700_000, fate: "<write ENOSPC>" },
];

/// As many ways to read and write as there are; `move` last, as it takes the source away.
const ENGINES: [&str; 10] = [
    "copy --engine=sys",
    "copy --engine=ring",
    "copy --engine=ring -j1 --block-size=4K --queue-depth=64",
    "copy --engine=ring --direct-io",
    "copy --engine=sys -V --manifest=sums",
    "copy --engine=ring -V --manifest=sums",
    "copy --engine=sys -C --fast --checkpoint-size=4M",
    "copy --engine=ring -C --checkpoint-size=4M",
    "copy --engine=ring --archive --sync",
    "move --engine=ring",
];

/// Files of every size below `src`, one of them bad, and none of them in the page cache. Returns what the good ones are.
fn plant_bad(src: &Path, bad: Option<Bad>) -> crate::table::Tree {
    fs::create_dir_all(src).unwrap();
    let mut files: Vec<(String, Vec<u8>)> =
        (0..30).map(|n| (format!("f{n}"), crate::table::noise(&n.to_string(), 1 + n * 4321))).collect();
    files.insert(3, ("large".to_owned(), crate::table::noise("large", 1_500_001)));
    if let Some(bad) = bad {
        let mut bytes = crate::table::noise("bad", bad.bytes);
        bytes[bad.at..bad.at + bad.fate.len()].copy_from_slice(bad.fate.as_bytes());
        files.insert(20, ("bad".to_owned(), bytes));
    }
    let mut good = crate::table::Tree::new();
    for (name, bytes) in files {
        if name != "bad" {
            good.insert(name.clone().into_bytes(), crate::table::content(&bytes));
        }
        fs::write(src.join(&name), bytes).unwrap();
        let file = fs::File::open(src.join(&name)).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
    good
}

/// What is below a directory, but for what says where to go on.
fn landed(dir: &Path) -> crate::table::Tree {
    let goes_on = |name: &[u8]| [&b".session"[..], b".part", b".tree"].iter().any(|s| name.ends_with(s));
    look(dir).into_iter().filter(|(name, _)| !goes_on(name)).collect()
}

/// Runs `line` from `src` to `dst`: all but the bad one land as `want` has them, nothing is left of that one, and it is
/// said what failed, of which file and why. Returns how many went by the ring; `None` where there is none.
fn lands_all_but(
    bad: Option<Bad>,
    line: &str,
    want: &crate::table::Tree,
    src: &Path,
    dst: &Path,
) -> Option<u64> {
    let cwd = dst.parent().unwrap();
    let args = format!(
        "{line} --async-threshold=0 --json {} -T {} {}",
        if line.starts_with("copy") { "-r --reflink=disable" } else { "--merge" },
        src.display(),
        dst.display()
    );
    let done = bcmr(&args, cwd);
    let about = format!("{bad:?}: {args}: {}{}", done.stdout, done.stderr);
    let failed: Vec<_> = done.json().into_iter().filter(|l| l["event"] == "failed").collect();
    if let Some(bad) = bad {
        let (errno, code) = if bad.fate.contains("ENOSPC") { (28, 6) } else { (5, 1) };
        assert_eq!(done.code, Some(code), "{about}");
        let (ops, whose) = match bad.fate.starts_with("<read") {
            true => (["read", "read"], src),
            // The kernel may do both in one call.
            false => (["write", "copy to"], dst),
        };
        assert_eq!(failed.len(), 1, "{about}");
        assert!(ops.contains(&failed[0]["op"].as_str().unwrap()), "{about}");
        assert_eq!(failed[0]["path"].as_str(), whose.join("bad").to_str(), "{about}");
        assert_eq!(failed[0]["errno"], errno, "{about}");
    } else {
        assert_eq!((done.code, failed.len()), (Some(0), 0), "{about}");
    }
    crate::table::assert_same(want, &landed(dst), &about);
    if line.starts_with("move") {
        let left: Vec<_> = if src.exists() { fs::read_dir(src).unwrap().collect() } else { Vec::new() };
        assert_eq!(left.len(), usize::from(bad.is_some()), "{about}");
    }
    if line.contains("--manifest") {
        let hash = |name: &[u8]| {
            let name = std::str::from_utf8(name).unwrap();
            format!("{}  {name}", blake3::hash(&fs::read(dst.join(name)).unwrap()).to_hex())
        };
        let mut want: Vec<String> = want.keys().map(|name| hash(name)).collect();
        // Only what is complete gets one.
        assert_eq!(cwd.join("sums").exists(), bad.is_none(), "{about}");
        let said = fs::read_to_string(cwd.join("sums")).unwrap_or_default();
        let mut said: Vec<&str> = said.lines().collect();
        want.retain(|_| bad.is_none());
        want.sort();
        said.sort();
        assert!(want == said, "{about}: {said:?}");
    }
    let engine = done.json().into_iter().find(|l| l["event"] == "engine");
    match engine {
        None => Some(0),
        Some(said) if said["missing"].is_null() => said["ring_files"].as_u64(),
        Some(_) => None,
    }
}

/// Reading or writing one of many fails in its middle, or comes short, on FUSE: by every engine the same. What comes
/// short there the ring would not tell from what is whole, so it reads nothing there.
#[test]
fn one_bad_file_in_user_space() {
    const TEST: &str = "one_bad_file_in_user_space";
    let top = scratch();
    for (m, nature) in ["", "short"].into_iter().enumerate() {
        let Some(odd) = Odd::new(TEST, at(&top, &format!("m{nature}")), nature) else { return };
        let bads = READS.into_iter().chain(WRITES).map(Some).chain([None]);
        for (n, bad) in bads.enumerate() {
            // An ordinary run plants each bad file in one of the two; what has none in both.
            if bad.is_some() && !in_slice(m + n, 2) {
                continue;
            }
            let reads = bad.is_none_or(|b| b.fate.starts_with("<read"));
            let here = scratch();
            let (src, to) = match reads {
                true => (odd.at.join(format!("s{n}")), here.path().to_owned()),
                false => (at(&here, "s"), odd.at.join(format!("d{n}"))),
            };
            fs::create_dir_all(&to).unwrap();
            let want = plant_bad(&src, bad);
            for (k, line) in ENGINES.into_iter().enumerate() {
                // An ordinary run takes a third: of each file some engines, and some files by each engine.
                if !in_slice((m + n) / 2 + k, 3) {
                    continue;
                }
                let dst = to.join(format!("d{k}"));
                if k % 2 == 0 {
                    fs::create_dir(&dst).unwrap();
                }
                let by_ring = lands_all_but(bad, line, &want, &src, &dst);
                let none = reads || line.contains("sys");
                assert!(by_ring.is_none_or(|n| (n == 0) == none), "{bad:?}, {line}: {by_ring:?}");
            }
        }
    }
}

/// The same of a disk: ext4 in an image on that file system, where what fails comes as a completion.
#[test]
fn one_bad_file_on_a_bad_disk() {
    const TEST: &str = "one_bad_file_on_a_bad_disk";
    let top = scratch();
    let Some(odd) = Odd::new(TEST, at(&top, "m"), "uncached") else { return };
    let disk = match crate::common::Mount::image("ext4", 64, &odd.at.join("disk")) {
        Ok(disk) => disk,
        Err(why) => return crate::common::skipped(TEST, &why),
    };
    // What is asked of FUSE at once: a loop device takes a write that failed behind its beginning for done.
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let of_disk = |l: &&str| l.split(' ').nth(1) == disk.path().to_str();
    let device = mounts.lines().find(of_disk).unwrap().split(' ').next().unwrap();
    let queue = Path::new("/sys/block").join(Path::new(device).file_name().unwrap()).join("queue");
    fs::write(queue.join("max_sectors_kb"), "64").unwrap();

    let mut rows: Vec<(Option<Bad>, &str)> = Vec::new();
    for (b, bad) in READS.map(Some).into_iter().chain([None]).enumerate() {
        // An ordinary run tries each engine with one of them.
        let tried = ENGINES.into_iter().enumerate().filter(|(k, _)| in_slice(b + k, 5));
        rows.extend(tried.map(|(_, line)| (bad, line)));
    }
    // Through the cache a write succeeds before the disk is asked.
    let mut writes = Vec::new();
    for bad in WRITES.into_iter().filter(|b| b.bytes > 1 << 20) {
        for fate in [bad.fate, "<write EIO>"] {
            for line in ["copy --direct-io", "copy --engine=ring --direct-io -V -j1", "move --direct-io"] {
                writes.push((Some(Bad { fate, ..bad }), line));
            }
        }
    }
    for (n, (bad, line)) in rows.into_iter().chain(sliced(writes, 2)).enumerate() {
        let here = scratch();
        let there = disk.path().join(n.to_string());
        fs::create_dir(&there).unwrap();
        let writes = bad.is_some_and(|b| b.fate.starts_with("<write"));
        let (from, to) = if writes { (here.path(), there.as_path()) } else { (there.as_path(), here.path()) };
        let want = plant_bad(&from.join("s"), bad);
        if n % 2 == 0 {
            fs::create_dir(to.join("d")).unwrap();
        }
        let by_ring = lands_all_but(bad, line, &want, &from.join("s"), &to.join("d"));
        let least = match line {
            _ if line.contains("--engine=sys") => 0,
            // What is large enough to go past the cache; the others as `auto` likes.
            "copy --direct-io" | "move --direct-io" => 1,
            _ => want.len(),
        };
        assert!(by_ring.is_none_or(|n| n as usize >= least), "{bad:?}, {line}: {by_ring:?} of {least}");
        fs::remove_dir_all(&there).unwrap();
    }
}

/// A further name that can be opened but not looked at is told once, and the rest arrives.
#[test]
fn a_further_name_that_cannot_be_looked_at() {
    let top = scratch();
    let Some(odd) = Odd::new("a_further_name_that_cannot_be_looked_at", at(&top, "m"), "") else { return };
    for (n, (line, takes)) in [("copy --archive", false), ("move", true)].into_iter().enumerate() {
        let here = scratch();
        let src = odd.at.join(n.to_string());
        plant(&src, "f first <stat EIO>\nh second = first\nf other other\nf good good\nh twin = good");
        let line = format!("{line} -j1 {} to", src.display());
        let done = bcmr(&line, here.path()).exits(1);
        assert!(done.stderr.contains("cannot stat"), "{line}: {}", done.stderr);
        assert_eq!(contents(&at(&here, "to")).len(), 4, "{line}: {}", done.stderr);
        // The twin: what could be looked at is one file here too, and taken away where it was to be.
        let good = |name| fs::metadata(at(&here, "to").join(name)).unwrap().ino();
        assert_eq!(good("good"), good("twin"), "{line}");
        let left = fs::read_dir(&src).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut left: Vec<String> = left.filter(|name| !name.starts_with('.')).collect();
        left.sort();
        let want: &[&str] =
            if takes { &["first", "second"] } else { &["first", "good", "other", "second", "twin"] };
        assert_eq!(left, want, "{line}: {}", done.stderr);
    }
}
