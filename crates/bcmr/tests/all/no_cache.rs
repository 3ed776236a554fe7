//! What a copy leaves in the page cache: `--no-cache`, and what it does by itself with `-C` and `--sync` (S9).
//!
//! Must not know how it is done; the kernel is asked what it has (`fincore`).

use crate::common::{Tmp, bcmr, has_tool, in_slice};
use rustix::fs::{Advice, fadvise};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

/// More than the least for which pages are dropped, and no whole number of pages.
const BYTES: usize = (20 << 20) + 1;

/// Of a file in the page cache, in bytes.
fn cached(path: &Path) -> u64 {
    let out = Command::new("fincore").args(["-b", "-n", "-o", "RES"]).arg(path).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    text.trim().parse().unwrap_or_else(|_| panic!("fincore: {text:?}"))
}

/// A file whose contents are on the disk, and in the page cache or not.
fn source(dir: &Path, warm: bool) {
    let path = dir.join("src");
    let file = File::open(&path).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    if warm {
        fs::read(&path).unwrap();
    }
}

/// What is synced at the end is written out from the start, so that the disk does not wait for the copy, nor the copy for
/// the disk. An error of that is an error of the copy (R5).
#[test]
fn what_is_synced_is_written_out_from_the_start() {
    let t = Tmp::on_disk();
    fs::write(t.p("src"), vec![b'x'; 3 * (32 << 20) + 1]).unwrap();
    needs!(has_tool("strace"), "needs strace");
    let copy = |flags: &str, inject: &[&str]| {
        let out = Command::new("strace")
            .args(["-f", "-qq", "-o", "log", "-e", "signal=none", "-e", "trace=sync_file_range"])
            .args(inject)
            .arg(env!("CARGO_BIN_EXE_bcmr"))
            .args(["copy", "--reflink=disable"])
            .args(flags.split_whitespace())
            .args(["src", "dst"])
            .current_dir(t.path())
            .output()
            .unwrap();
        let calls = fs::read_to_string(t.p("log")).unwrap().matches("sync_file_range(").count();
        (out.status.code(), calls)
    };
    assert_eq!(copy("", &[]), (Some(0), 0), "nothing was promised");
    // A kernel, a sandbox or a file system that does not have the call: nothing depends on it.
    for (flags, error) in [("--no-cache=always", "ENOSYS"), ("-C --no-cache=always", "EOPNOTSUPP")] {
        let (code, calls) = copy(flags, &["-e", &format!("inject=sync_file_range:error={error}")]);
        assert_eq!((code, calls > 0), (Some(0), true), "{flags} {error}");
        fs::remove_file(t.p("dst")).unwrap();
    }
    let all = ["--sync --no-cache=never", "--sync -V --no-cache=never", "-C --no-cache=never"];
    for (n, flags) in all.into_iter().enumerate() {
        let (code, calls) = copy(flags, &[]);
        assert_eq!(code, Some(0), "{flags}");
        assert!(calls >= 3, "{flags}: {calls}");
        fs::remove_file(t.p("dst")).unwrap();
        let (code, _) = copy(flags, &["-e", "inject=sync_file_range:error=EIO:when=2"]);
        assert_eq!(code, Some(1), "{flags}");
        assert!(!t.p("dst").exists(), "{flags}: what may be lost was published");
        // The twin: a kernel that does not have it. An ordinary run asks once.
        if in_slice(n, 3) {
            let (code, _) = copy(flags, &["-e", "inject=sync_file_range:error=ENOSYS"]);
            assert_eq!(code, Some(0), "{flags}");
            fs::remove_file(t.p("dst")).unwrap();
        }
    }
}

#[test]
fn what_is_left_in_the_page_cache() {
    let t = Tmp::on_disk();
    fs::write(t.p("src"), vec![b'x'; BYTES]).unwrap();
    source(t.path(), false);
    needs!(has_tool("fincore"), "needs fincore");
    needs!(cached(&t.p("src")) == 0, "on tmpfs everything is in memory");
    let whole = BYTES as u64;
    // Flags; the source was in the page cache; afterwards it is, and the copy is.
    let table = [
        // Controls: without a reason to drop anything, both are there. Were they not, the rest would prove nothing.
        ("", false, true, true),
        ("--sync --no-cache=never", false, true, true),
        ("-C --no-cache=never", false, true, true),
        // By itself, where the copy waits for the disk anyway and the source was not cached before.
        ("--sync", false, false, false),
        ("--sync -V", false, false, false),
        ("--sync -V --sparse=always", false, false, false),
        ("--sync --engine=sys -j1", false, false, false),
        ("-C", false, false, false),
        ("-C --fast", false, false, false),
        ("-C -V", false, false, false),
        ("-s", false, false, false),
        // The twin: what others use is left alone, and so is its copy.
        ("--sync", true, true, true),
        ("-C", true, true, true),
        ("-s -V", true, true, true),
        // Asked for: of the source still only what was not there.
        ("--no-cache", false, false, false),
        ("--no-cache -V", false, false, false),
        ("--no-cache --engine=ring", false, false, false),
        ("--no-cache=always -j1", true, true, false),
        ("--no-cache -V", true, true, false),
        ("--no-cache -C", true, true, false),
        // What is written into may be in use.
        ("--no-cache --inplace", true, true, true),
    ];
    for (flags, warm, source_stays, copy_stays) in table {
        source(t.path(), warm);
        if flags.contains("--inplace") {
            fs::write(t.p("dst"), b"old").unwrap();
        }
        let line = format!("copy --reflink=disable --checkpoint-size=4M {flags}");
        bcmr(line.split_whitespace()).args([t.p("src"), t.p("dst")]).run().ok();
        let (src, dst) = (cached(&t.p("src")), cached(&t.p("dst")));
        let about = format!("{flags}, source in the page cache before: {warm}: {src} and {dst} bytes after");
        // The kernel takes a few pages for others at any time, and may leave what it was reading ahead just then.
        let is_right = |found, stays| (found > whole / 2) == stays;
        assert!(is_right(src, source_stays) && is_right(dst, copy_stays), "{about}");
        assert!(fs::read(t.p("dst")).unwrap() == fs::read(t.p("src")).unwrap(), "{about}");
        fs::remove_file(t.p("dst")).unwrap();
    }
}
