//! What stands on a terminal while ssh asks for something on it: nothing of ours is drawn, and only the first connection
//! ever asks.

use super::common::remote::*;
use super::common::*;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Nothing that hangs is waited for any longer.
const HANG: Duration = Duration::from_secs(300);

/// A program with a terminal of its own as its controlling one, and what appears on that.
pub struct Terminal {
    keys: std::fs::File,
    shown: Receiver<Vec<u8>>,
    seen: String,
    child: Child,
}

impl Terminal {
    pub fn start(line: Line) -> Terminal {
        Terminal::start_on(line, 80)
    }

    fn set_columns(&self, columns: u16) {
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.keys, size).unwrap();
    }

    fn start_on(line: Line, columns: u16) -> Terminal {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let theirs = std::fs::File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        tcsetwinsize(&ours, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        // A session of its own, whose terminal is its standard input.
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).arg(line.0.get_program()).args(line.0.get_args());
        if let Some(dir) = line.0.get_current_dir() {
            command.current_dir(dir);
        }
        for (name, value) in line.0.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
            .env("TERM", "xterm")
            .env_remove("SSH_ASKPASS")
            .env_remove("DISPLAY")
            .env_remove("SSH_AUTH_SOCK");
        let end = || Stdio::from(theirs.try_clone().unwrap());
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let keys = std::fs::File::from(ours);
        let mut screen = keys.try_clone().unwrap();
        let (told, shown) = channel();
        std::thread::spawn(move || {
            let mut room = [0; 4096];
            // Reading fails once no process has the other end open.
            while let Ok(n @ 1..) = screen.read(&mut room) {
                if told.send(room[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal { keys, shown, seen: String::new(), child }
    }

    /// Waits until `text` has appeared behind what was looked for before, and returns what came before it.
    #[track_caller]
    pub fn until(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(text) {
                let rest = self.seen.split_off(at + text.len());
                self.seen.truncate(at);
                return std::mem::replace(&mut self.seen, rest);
            }
            match self.shown.recv_timeout(HANG) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("{text:?} never came; there is {:?}", self.seen),
            }
        }
    }

    pub fn type_in(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).unwrap();
    }

    /// Everything that appears up to the end, and the exit code.
    #[track_caller]
    pub fn end(mut self) -> (String, i32) {
        let last = Instant::now() + HANG;
        loop {
            match self.shown.recv_timeout(last.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end; there is {:?}", self.seen),
            }
        }
        (std::mem::take(&mut self.seen), self.child.wait().unwrap().code().unwrap_or(-1))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It leads its session: what it has started there ends with it.
        let _ended = self.child.kill();
        let _waited = self.child.wait();
    }
}

/// An ssh that asks for a password on the terminal, for longer than it takes until progress is shown, and notes what it
/// was called with. A further connection that may not ask is refused.
const ASKING: &str = r#"#!/bin/sh
echo "$*" >> "$ASKED"
case "$*" in *BatchMode=yes*) echo 'me@there: Permission denied (password).' >&2; exit 255 ;; esac
printf 'Password: ' > /dev/tty
sleep 3
read -r answer < /dev/tty
[ "$answer" = secret ] || exit 255
echo thanks > /dev/tty
exec "$PIPE_SSH" "$@"
"#;

fn asking(tmp: &Tmp) -> Far {
    let ssh = tmp.file("asking-ssh", ASKING);
    chmod(&ssh, 0o755);
    let pipe = format!("{}/tests/all/common/pipe-ssh", env!("CARGO_MANIFEST_DIR"));
    Far::pipe().over(&ssh).with("PIPE_SSH", pipe).with("ASKED", tmp.p("asked"))
}

/// A job in the background would draw over what is typed in front of it.
#[test]
fn nothing_is_drawn_in_the_background() {
    needs!(has_tool("setsid"), "it needs setsid");
    let tmp = Tmp::new();
    let fifos = [tmp.p("behind"), tmp.p("front")];
    fifos.iter().for_each(|fifo| mkfifo(fifo));
    let sh =
        |script: &str| Line::new(Path::new("sh")).args(["-c", &script.replace("bcmr", BCMR)]).cwd(tmp.path());
    let behind = Terminal::start(sh("set -m; bcmr copy behind b & wait"));
    let mut behind_fifo = std::fs::File::options().write(true).open(&fifos[0]).unwrap();
    let mut front = Terminal::start(sh("bcmr copy front f"));
    let mut front_fifo = std::fs::File::options().write(true).open(&fifos[1]).unwrap();
    // Begun later, the one in front has drawn its line more than once.
    for _ in 0..3 {
        front.until("\u{1b}[K");
    }
    for fifo in [&mut behind_fifo, &mut front_fifo] {
        fifo.write_all(b"x").unwrap();
    }
    drop((behind_fifo, front_fifo));
    assert_eq!(front.end().1, 0);
    let (seen, code) = behind.end();
    assert!(code == 0 && !seen.contains('\u{1b}'), "{seen:?}");
    assert!(tmp.p("b").exists() && tmp.p("f").exists());
}

#[test]
fn nothing_is_drawn_while_ssh_asks() {
    needs!(has_tool("setsid"), "it needs setsid");
    let tmp = Tmp::new();
    let far = asking(&tmp);
    tmp.file("src/a", noise(1, 100_000));
    for (n, (flags, direction)) in
        [("-r", Dir::Put), ("-r", Dir::Get), ("-r --progress=always", Dir::Put), ("-rn", Dir::Put)]
            .into_iter()
            .enumerate()
    {
        let line = direction.copy(&far, flags, &tmp.p("src"), &tmp.p(format!("dst {n}")));
        let mut terminal = Terminal::start(line);
        assert_eq!(terminal.until("Password: "), "", "{flags} {direction:?}");
        // What stands there until ssh has its answer: the answer's own echo and nothing of ours, not even a cleared line.
        terminal.type_in("secret\n");
        assert_eq!(terminal.until("thanks\r\n"), "secret\r\n", "{flags} {direction:?}");
        let (rest, code) = terminal.end();
        assert_eq!(code, 0, "{flags} {direction:?}: {rest}");
    }
}

/// However many connections are wanted, one asks; the others are told of in one line, and the copy goes on without them.
#[test]
fn further_connections_never_ask() {
    needs!(has_tool("setsid"), "it needs setsid");
    let tmp = Tmp::new();
    let far = asking(&tmp);
    tmp.file("src", noise(1, 9 << 20));
    for direction in BOTH {
        std::fs::write(tmp.p("asked"), "").unwrap();
        let line = direction.copy(&far, "--parallel=4", &tmp.p("src"), &tmp.p("dst"));
        let mut terminal = Terminal::start(line);
        terminal.until("Password: ");
        terminal.type_in("secret\n");
        let (shown, code) = terminal.end();
        assert_eq!(code, 0, "{shown}");
        assert!(!shown.contains("Password"), "{shown}");
        assert_eq!(shown.matches("3 of 3 further connections").count(), 1, "{shown}");
        assert_eq!(shown.matches("warning").count(), 1, "{shown}");
        let asked = std::fs::read_to_string(tmp.p("asked")).unwrap();
        let calls: Vec<bool> = asked.lines().map(|l| l.contains("BatchMode=yes")).collect();
        assert_eq!(calls, [false, true, true, true], "{asked}");
        assert_eq!(std::fs::read(tmp.p("dst")).unwrap(), noise(1, 9 << 20));
    }
}

/// The same with ssh itself and a key that has a passphrase: it is asked for once, and never shown.
#[test]
fn a_passphrase_is_typed_once_and_never_shown() {
    needs!(has_tool("setsid"), "it needs setsid");
    let Some(far) = Far::ssh("a_passphrase_is_typed_once_and_never_shown", std::path::Path::new(BCMR), &[])
    else {
        return;
    };
    let tmp = Tmp::new();
    let config = std::fs::read_to_string(far.sshd().config()).unwrap();
    let config = tmp.file("config", config.replace("BatchMode yes\n", ""));
    let key = far.sshd().config().with_file_name("user");
    let locked =
        Command::new("ssh-keygen").args(["-q", "-p", "-P", "", "-N", "open sesame", "-f"]).arg(&key).output();
    assert!(locked.unwrap().status.success());
    let far = far.configured(&config);
    tmp.file("src", noise(1, 9 << 20));
    for direction in BOTH {
        let line = direction.copy(&far, "--parallel=3", &tmp.p("src"), &tmp.p("dst"));
        let mut terminal = Terminal::start(line);
        terminal.until("Enter passphrase for key");
        // ssh has turned the echo off before it asks.
        terminal.type_in("open sesame\n");
        let (shown, code) = terminal.end();
        assert_eq!(code, 0, "{shown}");
        assert!(!shown.contains("Enter passphrase") && !shown.contains("sesame"), "{shown}");
        assert_eq!(std::fs::read(tmp.p("dst")).unwrap(), noise(1, 9 << 20));
    }
}

/// What is drawn is never wider than the terminal, also when that becomes narrower, and all of it is taken back. The copy
/// stands still in its middle, as its source is a FIFO that has a writer and no end.
#[test]
fn a_line_fits_its_terminal() {
    needs!(has_tool("setsid"), "it needs setsid");
    for columns in [40, 80, 200, 300] {
        let tmp = Tmp::new();
        mkfifo(&tmp.p("a long name of a pipe that nothing but wide terminals have room for"));
        let fifo = tmp.p("a long name of a pipe that nothing but wide terminals have room for");
        let line = bcmr(["copy", "--progress-in=taskbar,title"]).args([&fifo, &tmp.p("dst")]);
        let mut terminal = Terminal::start_on(line, columns);
        let mut feed = std::fs::File::options().write(true).open(&fifo).unwrap();
        feed.write_all(&noise(1, 50_000)).unwrap();
        terminal.until("\x1b]9;4;3;0\x07\x1b[22;0t\x1b]0;bcmr copying\x07");
        for _ in 0..3 {
            let drawn = terminal.until("\r\x1b[K");
            let drawn = drawn.split('\x1b').next().unwrap_or_default();
            assert!(drawn.chars().count() < usize::from(columns), "{columns}: {drawn:?}");
        }
        // Now it is two lines there, and both go.
        terminal.set_columns(20);
        terminal.until("\r\x1b[K\x1b[A\x1b[K");
        terminal.until("\r\x1b[K");
        let drawn = terminal.until("\r\x1b[K");
        assert!(drawn.starts_with("copying") && drawn.len() < 20, "{columns}: {drawn:?}");
        drop(feed);
        let (rest, code) = terminal.end();
        assert_eq!(code, 0, "{columns}: {rest}");
        assert!(rest.contains("\x1b]9;4;0;0\x07\x1b[23;0t"), "{columns}: {rest:?}");
        assert_eq!(std::fs::read(tmp.p("dst")).unwrap(), noise(1, 50_000));
    }
}

/// A terminal that cannot move its cursor gets no line, one without colours none of them.
#[test]
fn what_a_terminal_cannot_do_is_not_tried() {
    needs!(has_tool("setsid"), "it needs setsid");
    for (name, value, drawn) in [("TERM", "dumb", false), ("NO_COLOR", "1", true)] {
        let tmp = Tmp::new();
        mkfifo(&tmp.p("pipe"));
        let set = format!("env {name}={value}");
        let mut line = Line::new(std::path::Path::new("env"));
        line = line.args([&set.replacen("env ", "", 1), BCMR, "copy"]).args([tmp.p("pipe"), tmp.p("dst")]);
        let mut terminal = Terminal::start(line);
        let mut feed = std::fs::File::options().write(true).open(tmp.p("pipe")).unwrap();
        feed.write_all(b"some").unwrap();
        if drawn {
            let shown = terminal.until("copying  ");
            assert!(!shown.contains("\x1b[3"), "{shown:?}");
        }
        drop(feed);
        let (rest, code) = terminal.end();
        assert_eq!(code, 0, "{rest}");
        assert!(drawn || !rest.contains('\x1b'), "{rest:?}");
    }
}
