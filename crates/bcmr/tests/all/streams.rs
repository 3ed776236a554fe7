//! Operands that are streams: named themselves they are read to their end or written into; in a tree they are never opened.

use super::common::remote::{Dir, Far, within};
use super::common::*;
use super::terminal::Terminal;
use std::io::Write;
use std::os::unix::fs::FileTypeExt;

#[test]
fn a_device_that_is_named_is_read() {
    let tmp = Tmp::new();
    tmp.file("there", "old");
    for (n, to) in ["new", "there", "dir/"].into_iter().enumerate() {
        tmp.dir("dir");
        let ran = bcmr(["copy", "/dev/null", to]).cwd(tmp.path()).run().ok();
        assert!(ran.err.is_empty(), "{ran:?}");
        let got = if to == "dir/" { tmp.p("dir/null") } else { tmp.p(to) };
        let meta = std::fs::symlink_metadata(&got).unwrap();
        assert!(meta.is_file() && meta.len() == 0, "{n} {to}: {meta:?}");
    }
    assert_no_litter(tmp.path());
    // In a recursive copy it is what it is, and not opened.
    let ran = bcmr(["copy", "-r", "/dev/null", "again"]).cwd(tmp.path()).run().code(1);
    assert!(ran.err.contains("--archive") && !tmp.p("again").exists(), "{ran:?}");
}

#[test]
fn a_fifo_that_is_named_is_read_to_its_end() {
    let tmp = Tmp::new();
    let fifo = tmp.p("fifo");
    mkfifo(&fifo);
    let content = noise(3, 1 << 20);
    let running = bcmr(["copy", "fifo", "got"]).cwd(tmp.path()).start();
    // Opening waits until the other end is open as well, so this writes while the copy is reading.
    let mut writer = std::fs::File::options().write(true).open(&fifo).unwrap();
    writer.write_all(&content).unwrap();
    drop(writer);
    running.wait().ok();
    assert_eq!(std::fs::read(tmp.p("got")).unwrap(), content);
    // A FIFO without a writer is waited for, and a signal ends that.
    let mut waiting = bcmr(["copy", "fifo", "never"]).cwd(tmp.path()).start();
    let writer = std::fs::File::options().write(true).open(&fifo).unwrap();
    assert!(!waiting.is_over());
    waiting.signal(rustix::process::Signal::TERM);
    waiting.wait().code(143);
    drop(writer);
    assert!(!tmp.p("never").exists());
    assert!(std::fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
    assert_no_litter(tmp.path());
}

/// What is read is told of by the name that was typed, and no hint leads to what `-` cannot be.
#[test]
fn a_stream_is_told_of_as_it_was_typed() {
    let tmp = Tmp::new();
    tmp.dir("d");
    let copy = |words: &str| bcmr(words.split(' ')).cwd(tmp.path()).input("content").run();
    for (words, told) in [
        ("copy -v - out", "'-' -> 'out'"),
        ("copy --json - out", "\"src\":\"-\""),
        ("copy -v /dev/stdin out", "'/dev/stdin' -> 'out'"),
    ] {
        let ran = copy(words).ok();
        assert!(ran.out.contains(told), "{words}: {}", ran.out);
    }
    assert_eq!(std::fs::read(tmp.p("out")).unwrap(), b"content");
    // Where sharing is not possible it fails when it lands: under that name, too.
    let ran = copy("copy --reflink=always - out");
    assert!(!ran.err.contains("/proc/"), "{}", ran.err);
    for words in ["copy - d", "copy - new/", "copy d -"] {
        let ran = copy(words).code(1);
        assert!(ran.err.contains("it is a directory") && !ran.err.contains("-r"), "{words}: {}", ran.err);
        assert_eq!(ran.err.contains("DIR/NAME"), words != "copy d -", "{words}: {}", ran.err);
    }
}

/// What is waiting for more names, or for more lines of a manifest, is stopped by a signal.
#[test]
fn a_list_that_is_waited_for_is_given_up() {
    let tmp = Tmp::new();
    tmp.file("src/name", "content");
    tmp.file("src/na", "half of a name is none");
    let far = Far::pipe();
    let (src, there) = (tmp.p("src"), tmp.p("there"));
    tmp.dir("there");
    let sum = format!("{}  na", blake3::hash(b"half of a name is none"));
    let here = |words: &str| bcmr(words.split(' ')).cwd(tmp.path());
    for (how, line, said) in [
        ("here", here("copy --files-from - src dst"), "name\nna"),
        ("dry", here("copy -n --files-from - src dst"), "name\nna"),
        ("put", Dir::Put.copy(&far, "--files-from -", &src, &there), "name\nna"),
        ("kept", Dir::Put.copy(&far, "--files-from - --retries 2", &src, &there), "name\nna"),
        ("get", Dir::Get.copy(&far, "--files-from -", &src, &tmp.p("dst")), "name\nna"),
        ("sums", here("check --manifest - src"), &*sum),
    ] {
        let (read, mut write) = std::io::pipe().unwrap();
        let drained = read.try_clone().unwrap();
        let mut line = line;
        line.0.stdin(read);
        write.write_all(said.as_bytes()).unwrap();
        let waiting = line.start();
        // What was written is read: it waits for the rest.
        assert!(within(60, || rustix::io::ioctl_fionread(&drained).unwrap() == 0), "{how}");
        waiting.signal(rustix::process::Signal::TERM);
        let ran = waiting.wait();
        assert_eq!(ran.code, 143, "{how}: {ran:?}");
        assert!(!tmp.p("dst/na").exists() && !tmp.p("there/na").exists(), "{how}");
    }
}

/// One end of the input is its end, where a person types it too.
#[test]
fn a_list_that_is_typed_ends_once() {
    let tmp = Tmp::new();
    tmp.file("src/name", "content");
    let mut terminal =
        Terminal::start(bcmr(["copy", "-v", "--files-from", "-", "src", "dst"]).cwd(tmp.path()));
    terminal.type_in("name\n\x04");
    let (said, code) = terminal.end();
    assert_eq!(code, 0, "{said}");
    assert!(tmp.p("dst/name").exists());
}

#[test]
fn what_a_shell_puts_in_the_place_of_a_command_is_read() {
    needs!(has_tool("bash"), "process substitution needs bash");
    let tmp = Tmp::new();
    let script = format!("{BCMR} copy <(printf 'one two') got && {BCMR} copy <(seq 100000) many");
    let done =
        std::process::Command::new("bash").args(["-c", &script]).current_dir(tmp.path()).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert_eq!(std::fs::read(tmp.p("got")).unwrap(), b"one two");
    assert_eq!(std::fs::read_to_string(tmp.p("many")).unwrap().lines().count(), 100_000);
}

#[test]
fn a_stream_as_destination_is_written_into() {
    let tmp = Tmp::new();
    tmp.file("f", "for the reader");
    let out = bcmr(["copy", "f", "/dev/stdout"]).cwd(tmp.path()).run().ok();
    assert_eq!(out.out, "for the reader");
    bcmr(["copy", "f", "/dev/null"]).cwd(tmp.path()).run().ok();
    bcmr(["copy", "/dev/null", "/dev/stdout"]).cwd(tmp.path()).run().ok();
    mkfifo(&tmp.p("fifo"));
    let fifo = tmp.p("fifo");
    let reader = std::thread::spawn(move || std::fs::read(fifo).unwrap());
    bcmr(["copy", "f", "fifo"]).cwd(tmp.path()).run().ok();
    assert_eq!(reader.join().unwrap(), b"for the reader");
    // What is there and shall stay is not written into.
    bcmr(["copy", "--no-clobber", "f", "fifo"]).cwd(tmp.path()).run().ok();
    // A disk is no stream.
    assert!(std::fs::symlink_metadata("/dev/null").unwrap().file_type().is_char_device());
}

/// Of what goes into a stream a part may have gone by the time that there is no room: nothing is said to be whole or absent.
#[test]
fn a_stream_that_takes_no_more() {
    let tmp = Tmp::new();
    tmp.file("a", noise(1, 100_000));
    let ran = bcmr_after("exec >/dev/full", ["copy", "a", "-"]).cwd(tmp.path()).run().code(6);
    assert!(ran.err.contains("make room, then run: ") && !ran.err.contains("whole"), "{}", ran.err);
}

#[test]
fn what_goes_into_a_stream_is_not_called_verified() {
    let tmp = Tmp::new();
    tmp.file("f", "for nobody");
    mkfifo(&tmp.p("fifo"));
    for to in ["/dev/null", "fifo"] {
        for flags in ["-V", "-V=direct"] {
            let ran = bcmr(["copy", "--inplace", flags, "f", to]).cwd(tmp.path()).run().code(1);
            ran.says("what is written into it cannot be read back").says("without -V");
        }
    }
}

/// A disk that is there as a block device for as long as this lives.
struct Disk(std::path::PathBuf);

impl Disk {
    fn new(image: &std::path::Path) -> Option<Disk> {
        let out = std::process::Command::new("losetup").args(["-f", "--show"]).arg(image).output().ok()?;
        out.status.success().then(|| Disk(String::from_utf8_lossy(&out.stdout).trim().into()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ok = std::process::Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

/// A block device has no length of its own to compare: what was written is read back, and nothing behind it.
#[test]
fn a_disk_that_is_written_into_is_verified() {
    const NAME: &str = "a_disk_that_is_written_into_is_verified";
    needs!(is_root(), "block devices need root");
    let tmp = Tmp::new();
    let Some(disk) = Disk::new(&tmp.file("image", vec![0xAA; 12 << 20])) else {
        return skipped(NAME, "there are no loop devices");
    };
    let far = Far::pipe();
    for (n, bytes) in [100_000, 12 << 20].into_iter().enumerate() {
        let content = noise(n as u64, bytes);
        let from = tmp.file("from", &content);
        for flags in ["-V", "-V=direct"] {
            let flags = format!("--inplace {flags}");
            for is_far in [false, true] {
                let line = match is_far {
                    true => Dir::Put.copy(&far, &flags, &from, &disk.0),
                    false => bcmr(["copy"]).args(flags.split(' ')).args([&from, &disk.0]),
                };
                line.run().ok();
                let there = std::fs::read(&disk.0).unwrap();
                assert!(there[..bytes] == content, "{bytes} {flags}, far: {is_far}");
            }
        }
    }
    let holes = std::fs::File::create(tmp.p("holes")).unwrap();
    holes.set_len(9 << 20).unwrap();
    bcmr(["copy", "--inplace", "-V"]).args([&tmp.p("holes"), &disk.0]).run().ok();
    assert!(std::fs::read(&disk.0).unwrap()[..9 << 20].iter().all(|byte| *byte == 0));
}
