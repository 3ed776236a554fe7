//! Operands that are streams: named themselves they are read to their end or written into; in a tree they are never opened.

use super::common::remote::{Dir, Far, servers, within};
use super::common::*;
use super::terminal::Terminal;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

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

/// A dry run opens none of it, and says what the run would: of a stream that is read, of one that is written into, and of those
/// that stay.
#[test]
fn a_dry_run_tells_of_streams_as_the_run_does() {
    let tmp = Tmp::new();
    mkfifo(&tmp.p("fifo"));
    tmp.file("file", "content");
    tmp.file("empty", "");
    tmp.dir("dir");
    for words in [
        "/dev/null new",
        "/dev/null file",
        "/dev/null dir",
        "-u /dev/null file",
        "-s /dev/null empty",
        "file /dev/null",
        "-u file /dev/null",
        "-a file /dev/null",
        "--no-clobber file /dev/null",
        "-V file /dev/null",
        "-V /dev/null new",
        "-r /dev/null new",
    ] {
        let copy = |dry: &str| {
            let all = ["copy", "-v", "--json"].into_iter().chain(dry.split_whitespace());
            bcmr(all.chain(words.split(' '))).cwd(tmp.path()).run()
        };
        let foretold = copy("--dry-run");
        let done = copy("");
        let items = |ran: &Ran| {
            let told = |line: &&str| {
                ["item", "failed"].iter().any(|event| line.contains(&format!("\"event\":\"{event}\"")))
            };
            let all = ran.out.lines().filter(told);
            // A hint has the command as it was typed.
            all.filter_map(|line| line.split(",\"hint\"").next()).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(items(&foretold).len(), 1, "{words}: {foretold:?}");
        assert_eq!((items(&foretold), foretold.code), (items(&done), done.code), "{words}");
        std::fs::remove_file(tmp.p("new")).ok();
    }
    // These have no other end: a run would wait.
    for words in
        ["fifo new", "-s fifo empty", "-a fifo file", "-a fifo empty", "--append=size fifo file", "file fifo"]
    {
        let ran = bcmr(["copy", "--dry-run", "-v"]).args(words.split(' ')).cwd(tmp.path()).run().ok();
        assert!(ran.out.contains(" -> "), "{words}: {ran:?}");
    }
    assert!(!tmp.p("new").exists());
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

/// Whatever else is asked for: a device or FIFO that is named stays what it is.
#[test]
fn a_named_stream_is_not_replaced() {
    let tmp = Tmp::new();
    tmp.file("f", "for the reader");
    mkfifo(&tmp.p("fifo"));
    std::os::unix::fs::symlink("fifo", tmp.p("link")).unwrap();
    for flags in ["-r", "-p", "--archive", "-C", "--archive -v"] {
        for to in ["fifo", "link"] {
            let fifo = tmp.p("fifo");
            let reader = std::thread::spawn(move || std::fs::read(fifo).unwrap());
            let ran =
                bcmr(["copy"]).args(flags.split_whitespace()).args(["f", to]).cwd(tmp.path()).run().ok();
            assert_eq!(reader.join().unwrap(), b"for the reader", "{flags}");
            // Nothing proves what a reader has.
            assert!(!ran.out.contains("check") && !ran.err.contains("check"), "{flags}: {ran:?}");
            assert!(std::fs::symlink_metadata(tmp.p("fifo")).unwrap().file_type().is_fifo(), "{flags}");
        }
    }
    let ran = bcmr(["copy", "--archive", "-V", "f", "fifo"]).cwd(tmp.path()).run().code(1);
    ran.says("what is written into it cannot be read back");
    let ran = bcmr(["copy", "-v", "/dev/null", "empty"]).cwd(tmp.path()).run().ok();
    assert!(!ran.err.contains("check"), "{ran:?}");
    // Read to its end it is only where it is not made anew.
    bcmr(["copy", "--archive", "fifo", "other"]).cwd(tmp.path()).run().ok();
    assert!(std::fs::symlink_metadata(tmp.p("other")).unwrap().file_type().is_fifo());
}

/// `/dev/stdout` is the file that a shell has open, and not only its name: what the shell writes next must come behind.
#[test]
fn a_file_that_is_open_already_keeps_its_place() {
    let tmp = Tmp::new();
    tmp.file("f", "copied\n");
    for flags in ["", "-r", "--archive", "-C", "--sync"] {
        for to in ["/dev/stdout", "/proc/self/fd/1", "/dev/fd/1"] {
            tmp.file("log", "first\n");
            let script = format!("({BCMR} copy {flags} f {to} 2>err; echo later) >>log");
            let sh = std::process::Command::new("sh").args(["-c", &script]).current_dir(tmp.path()).status();
            assert!(sh.unwrap().success());
            let log = std::fs::read_to_string(tmp.p("log")).unwrap();
            assert_eq!(log, "copied\nlater\n", "{flags} {to}");
        }
    }
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

/// One signal ends what waits for the reader of a FIFO, or for room in it: on this machine, and over there too.
#[test]
fn what_is_written_into_a_fifo_is_given_up_at_the_first_signal() {
    let tmp = Tmp::new();
    tmp.file("f", noise(1, 6 << 20));
    let (far, fifo) = (Far::pipe(), tmp.p("fifo"));
    tmp.file("small", "x");
    let lines: [(&str, &dyn Fn() -> Line); 5] = [
        ("cp", &|| bcmr(["cp", "f", "fifo"])),
        ("copy", &|| bcmr(["copy", "f", "fifo"])),
        ("in place", &|| bcmr(["copy", "-r", "--inplace", "f", "fifo"])),
        ("far", &|| Dir::Put.copy(&far, "--inplace", &tmp.p("f"), &fifo)),
        ("far, small", &|| Dir::Put.copy(&far, "--inplace", &tmp.p("small"), &fifo)),
    ];
    for (what, line) in lines {
        for is_read in [false, true] {
            let _gone = std::fs::remove_file(&fifo);
            mkfifo(&fifo);
            if is_read && what == "far, small" {
                // There is room for it.
                continue;
            }
            // It reads nothing, and is full at 64 KiB.
            let reader =
                is_read.then(|| std::fs::File::options().read(true).write(true).open(&fifo).unwrap());
            let mut waiting = line().cwd(tmp.path()).start();
            let begun = match &reader {
                Some(full) => within(60, || rustix::io::ioctl_fionread(full).unwrap() >= 65_536),
                None if what.starts_with("far") => within(60, || !servers(&far).is_empty()),
                None => within(60, || catches_signals(waiting.pid())),
            };
            assert!(begun && !waiting.is_over(), "{what}, read: {is_read}");
            waiting.signal(rustix::process::Signal::TERM);
            // What is not heard of over there is given up after ten seconds.
            assert!(within(8, || waiting.is_over()), "{what}, read: {is_read}");
            let ran = waiting.wait();
            // `cp` dies of the signal itself.
            assert_eq!(ran.code, if what == "cp" { 1015 } else { 143 }, "{what}, read: {is_read}: {ran:?}");
        }
    }
    assert!(within(60, || servers(&far).is_empty()));
}

/// Two FIFOs are written into one after the other, as they are read, and what is no stream waits for neither.
#[test]
fn fifos_of_a_directory_are_written_one_after_the_other() {
    let tmp = Tmp::new();
    let far = Far::pipe();
    for is_far in [false, true] {
        let d = tmp.dir(format!("d{is_far}"));
        for name in ["a", "b", "c"] {
            tmp.file(format!("s/{name}"), name);
        }
        for name in ["a", "b"] {
            mkfifo(&d.join(name));
        }
        let copying = match is_far {
            false => bcmr(["copy", "-j1", "-rT", "--inplace"]).args([tmp.p("s"), d.clone()]).start(),
            true => Dir::Put.copy(&far, "-rT --inplace", &tmp.p("s"), &d).start(),
        };
        assert!(within(60, || std::fs::read(d.join("c")).is_ok_and(|got| got == b"c")), "far: {is_far}");
        for name in ["a", "b"] {
            assert_eq!(std::fs::read_to_string(d.join(name)).unwrap(), name, "far: {is_far}");
        }
        copying.wait().ok();
    }
}

/// A pipe that is full: nothing can be written into it until somebody reads.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (read, mut write) = std::io::pipe().unwrap();
    let flags = rustix::fs::fcntl_getfl(&write).unwrap();
    rustix::fs::fcntl_setfl(&write, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    while write.write(&[b' '; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&write, flags).unwrap();
    (read, write)
}

/// One signal ends a run whose output nobody reads, and it leaves nothing behind; without one the reader is waited for.
#[test]
fn output_that_nobody_reads_is_given_up_at_the_first_signal() {
    for (words, to_both) in [
        ("copy --json -r s d", false),
        ("copy big -", false),
        ("copy -rv s d", false),
        ("copy -rv s d", true),
        ("copy --json -r s d", true),
        ("sync --json s d", false),
        ("sync --snapshot --json s d", false),
        ("remove -rv s", false),
        ("cp -rv s d", false),
        ("cp -rv s d", true),
    ] {
        let tmp = Tmp::new();
        for n in 0..1000 {
            tmp.file(format!("s/a name that is long enough to fill what lines are gathered in {n}"), "");
        }
        tmp.file("big", noise(1, 5 << 20));
        let (mut read, write) = full_pipe();
        let mut line = bcmr(words.split(' ')).cwd(tmp.path());
        line.0.env("XDG_STATE_HOME", tmp.p("state"));
        if to_both {
            line.0.stderr(write.try_clone().unwrap());
        }
        line.0.stdout(write);
        let mut waiting = line.start();
        let about = format!("{words}, both: {to_both}");
        assert!(within(60, || catches_signals(waiting.pid())) && !waiting.is_over(), "{about}");
        waiting.signal(rustix::process::Signal::TERM);
        let ran = waiting.wait();
        assert_eq!(ran.code, if words.starts_with("cp") { 1015 } else { 143 }, "{about}: {ran:?}");
        // What it is filled in stays, and the next run goes on there.
        if !words.contains("--snapshot") {
            assert_no_litter(tmp.path());
        }
        let mut told = Vec::new();
        std::io::Read::read_to_end(&mut read, &mut told).unwrap();
        assert!(told.iter().all(|byte| *byte == b' '), "{about}");
    }
}

/// What a verb prints when all is done is given up too.
#[test]
fn last_words_that_nobody_reads_are_given_up_at_the_first_signal() {
    let tmp = Tmp::new();
    tmp.file("s/a", "A");
    for (before, words, made) in
        [(None, "plan s d --out p --shards 1", "p/plan"), (Some("shard p 0"), "finish p", "p/receipt")]
    {
        if let Some(words) = before {
            bcmr(words.split(' ')).cwd(tmp.path()).run().ok();
        }
        let (_read, write) = full_pipe();
        let mut line = bcmr(words.split(' ')).cwd(tmp.path());
        line.0.stdout(write);
        let waiting = line.start();
        let is_made = within(60, || catches_signals(waiting.pid()) && tmp.p(made).exists());
        waiting.signal(rustix::process::Signal::TERM);
        let ran = waiting.wait();
        assert!(is_made, "{words}: {ran:?}");
        assert_eq!(ran.code, 143, "{words}: {ran:?}");
    }
}

/// A reader that is late gets all.
#[test]
fn output_waits_for_a_slow_reader() {
    let tmp = Tmp::new();
    for n in 0..1000 {
        tmp.file(format!("s/a name that is long enough to fill what lines are gathered in {n}"), "");
    }
    for words in ["copy -rv s d", "cp -rv s e"] {
        let (mut read, write) = full_pipe();
        let mut line = bcmr(words.split(' ')).cwd(tmp.path());
        line.0.stdout(write);
        let waiting = line.start();
        assert!(within(60, || catches_signals(waiting.pid())), "{words}");
        let mut told = String::new();
        std::io::Read::read_to_string(&mut read, &mut told).unwrap();
        waiting.wait().ok();
        assert!(told.matches("are gathered in ").count() >= 2000, "{words}: {}", told.len());
    }
}

/// Whether a process catches SIGTERM.
fn catches_signals(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap_or("0");
    u64::from_str_radix(caught, 16).is_ok_and(|caught| caught & (1 << 14) != 0)
}

/// What is written into a FIFO over there arrives whole, also where the run goes on or syncs, as there is nothing to be kept of
/// it; what would have to be read back is refused before a byte of it is written.
#[test]
fn a_fifo_over_there_takes_all_or_nothing() {
    let tmp = Tmp::new();
    let far = Far::pipe();
    for bytes in [1000, 20 << 20] {
        let content = noise(1, bytes);
        let (from, fifo) = (tmp.file("f", &content), tmp.p("fifo"));
        for flags in ["", "-C", "--sync", "-p", "-V", "-V=direct"] {
            let _gone = std::fs::remove_file(&fifo);
            mkfifo(&fifo);
            chmod(&fifo, 0o640);
            let about = format!("{bytes} {flags}");
            let line = Dir::Put.copy(&far, &format!("--inplace {flags}"), &from, &fifo);
            if flags.starts_with("-V") {
                // With nobody to read it, writing would wait.
                let ran = line.run().code(1);
                ran.says("what is written into it cannot be read back").says("without -V");
                continue;
            }
            let at = fifo.clone();
            let reader = std::thread::spawn(move || std::fs::read(at).unwrap());
            line.run().ok();
            assert!(reader.join().unwrap() == content, "{about}");
            // What it is belongs to the system.
            let there = std::fs::symlink_metadata(&fifo).unwrap();
            assert!(there.file_type().is_fifo() && there.mode() & 0o7777 == 0o640, "{about}: {there:?}");
        }
    }
}

/// A server that waits for the reader of a FIFO ends with its client.
#[test]
fn a_fifo_is_waited_for_as_long_as_the_client_is_there() {
    let tmp = Tmp::new();
    let (far, fifo) = (Far::pipe(), tmp.p("fifo"));
    for bytes in [1000, 6 << 20] {
        let from = tmp.file("f", noise(1, bytes));
        for is_read in [false, true] {
            let _gone = std::fs::remove_file(&fifo);
            mkfifo(&fifo);
            let reader =
                is_read.then(|| std::fs::File::options().read(true).write(true).open(&fifo).unwrap());
            let waiting = Dir::Put.copy(&far, "--inplace", &from, &fifo).start();
            let full = bytes.min(65_536) as u64;
            let begun = match &reader {
                Some(reader) => within(60, || rustix::io::ioctl_fionread(reader).unwrap() >= full),
                None => within(60, || !servers(&far).is_empty()),
            };
            assert!(begun, "{bytes}, read: {is_read}");
            waiting.signal(rustix::process::Signal::KILL);
            waiting.wait();
            assert!(within(60, || servers(&far).is_empty()), "{bytes}, read: {is_read}");
        }
    }
}

/// A stream that is there is replaced, kept or asked about as any other file is.
#[test]
fn what_is_newer_is_not_written_into_a_stream() {
    let tmp = Tmp::new();
    tmp.file("f", "new");
    for verb in ["copy", "cp"] {
        for (sec, flag, is_written) in [
            (1_000_000_000, "-u", true),
            (4_000_000_000, "-u", false),
            (4_000_000_000, "--update=none", false),
            (4_000_000_000, "--update=all", true),
            (4_000_000_000, "-i", false),
        ] {
            let _gone = std::fs::remove_file(tmp.p("fifo"));
            mkfifo(&tmp.p("fifo"));
            let at = rustix::fs::Timespec { tv_sec: sec, tv_nsec: 0 };
            let times = rustix::fs::Timestamps { last_access: at, last_modification: at };
            rustix::fs::utimensat(rustix::fs::CWD, tmp.p("fifo"), &times, rustix::fs::AtFlags::empty())
                .unwrap();
            // Open for both, it takes what comes and waits for nobody.
            let there = std::fs::File::options().read(true).write(true).open(tmp.p("fifo")).unwrap();
            let ran = bcmr([verb, flag, "f", "fifo"]).cwd(tmp.path()).input("n\n").run();
            let got = rustix::io::ioctl_fionread(&there).unwrap();
            assert_eq!(got > 0, is_written, "{verb} {flag} {sec}: {ran:?}");
        }
    }
    let same = bcmr(["copy", "fifo", "fifo"]).cwd(tmp.path()).run().code(8);
    same.says("are the same file");
}

/// A link of the system's, such as `/dev/stdout`, is not replaced by what comes from another machine; a link to a file is.
#[test]
fn a_download_does_not_replace_a_link_to_a_stream() {
    let tmp = Tmp::new();
    let (far, from) = (Far::pipe(), tmp.file("f", "theirs"));
    mkfifo(&tmp.p("fifo"));
    tmp.file("file", "old");
    for (verb, flags) in [("copy", ""), ("copy", "-T"), ("copy", "--archive"), ("move", "")] {
        for to in ["/proc/self/fd/1", "/dev/null", "fifo", "file"] {
            let link = tmp.p("link");
            let _gone = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(to, &link).unwrap();
            let line = Dir::Get.ends(far.bcmr(verb).args(flags.split_whitespace()), &far, &from, &link);
            let ran = line.run();
            let is_link = std::fs::symlink_metadata(&link).unwrap().file_type().is_symlink();
            if to == "file" {
                assert!(ran.code == 0 && !is_link, "{verb} {flags} {to}: {ran:?}");
                tmp.file("f", "theirs");
            } else {
                assert!(ran.code == 8 && is_link && from.exists(), "{verb} {flags} {to}: {ran:?}");
                assert!(ran.err.contains("does not replace it"), "{}", ran.err);
            }
        }
    }
    assert_eq!(std::fs::read(tmp.p("file")).unwrap(), b"old");
}
