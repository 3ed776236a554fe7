//! What must be taken away again: scratch directories, loop devices, mounts, the recorder's process. Each is undone
//! when its value goes, also after a panic or Ctrl-C. Knows nothing of crashes.

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use sh::Result;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A child that takes longer hangs.
const CHILD_TIME_MAX: Duration = Duration::from_secs(60);

/// Whether a signal asked this process to stop.
#[derive(Clone)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// From now on the usual signals only set this.
    pub fn on_signals() -> Result<Stop> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
        {
            signal_hook::flag::register(signal, stop.clone())?;
        }
        Ok(Stop(stop))
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error once it is set.
    pub fn check(&self) -> Result {
        if self.is_set() { Err("stopped by a signal".into()) } else { Ok(()) }
    }
}

/// A directory of ours, in memory where there is room.
pub struct Scratch {
    pub dir: PathBuf,
}

impl Scratch {
    /// Below /dev/shm when so many bytes are free there, else below `otherwise`.
    pub fn new(name: &str, bytes: u64, otherwise: &Path) -> Result<Scratch> {
        let shm = Path::new("/dev/shm");
        let room = rustix::fs::statvfs(shm).is_ok_and(|fs| fs.f_bavail * fs.f_frsize >= bytes);
        let dir = if room { shm } else { otherwise }.join(name);
        std::fs::create_dir_all(&dir)?;
        Ok(Scratch { dir })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        say(std::fs::remove_dir_all(&self.dir), "remove", &self.dir);
    }
}

/// What goes wrong while cleaning up is told, and the rest is cleaned up all the same.
fn say<E: std::fmt::Display>(done: std::result::Result<(), E>, what: &str, path: &Path) {
    if let Err(e) = done {
        eprintln!("xtask: {what} {}: {e}", path.display());
    }
}

/// A loop device.
pub struct Loop {
    pub device: PathBuf,
}

impl Loop {
    pub fn new(file: &Path, direct: bool) -> Result<Loop> {
        let direct = if direct { "--direct-io=on" } else { "--direct-io=off" };
        let device = sh::output("losetup", &["--find", "--show", direct, &file.to_string_lossy()])?;
        Ok(Loop { device: device.into() })
    }

    /// The device itself, for new content. By this way, and not past it into its file, nothing stale can be left in
    /// the kernel's cache of the device; and alone, so that no file system is still on it: an unmounted one may stay a
    /// moment, as long as another process looks at its mount.
    pub fn open_alone(&self) -> Result<File> {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        let flags = (OFlags::EXCL | OFlags::DIRECT).bits().cast_signed();
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            match File::options().read(true).write(true).custom_flags(flags).open(&self.device) {
                Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                opened => return opened.map_err(|e| format!("{}: {e}", self.device.display()).into()),
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        say(sh::quiet("losetup", &["--detach", &self.device.to_string_lossy()]), "detach", &self.device);
    }
}

/// A mounted file system.
pub struct Mount {
    dir: PathBuf,
    mounted: bool,
}

impl Mount {
    pub fn new(device: &Path, dir: &Path, kind: &str, options: &str) -> std::io::Result<Mount> {
        let options = CString::new(options)?;
        // What has closed the device may have left it to a child that is just being started, or another process looks at it.
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            match mount(device, dir, kind, MountFlags::NOATIME, options.as_c_str()) {
                Ok(()) => return Ok(Mount { dir: dir.to_path_buf(), mounted: true }),
                Err(rustix::io::Errno::BUSY) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Unmounts, and says so when that fails.
    pub fn end(mut self) -> Result {
        self.mounted = false;
        take_off(&self.dir)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.mounted {
            say(take_off(&self.dir), "unmount", &self.dir);
        }
    }
}

fn take_off(dir: &Path) -> Result {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match unmount(dir, UnmountFlags::empty()) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::BUSY) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(e) => {
                // Out of the way at least.
                unmount(dir, UnmountFlags::DETACH)?;
                return Err(format!("{} is still in use: {e}", dir.display()).into());
            }
        }
    }
}

/// The recorder, serving `disk0`, `disk1`, ... and `mark` in a directory.
pub struct Recorder {
    pub dir: PathBuf,
    child: Child,
    ended: bool,
}

impl Recorder {
    pub fn new(program: &Path, dir: &Path, log: &Path, images: &[PathBuf]) -> Result<Recorder> {
        let mut command = Command::new(program);
        command.arg(dir).arg(log).args(images).stdin(Stdio::null());
        // Ctrl-C is for us: without the recorder nothing on its disks could be unmounted any more.
        let child = command.process_group(0).spawn().map_err(|e| format!("{}: {e}", program.display()))?;
        let mut recorder = Recorder { dir: dir.to_path_buf(), child, ended: false };
        let until = Instant::now() + CHILD_TIME_MAX;
        while !recorder.dir.join("mark").is_file() {
            if let Some(status) = recorder.child.try_wait()? {
                recorder.ended = true;
                return Err(format!("the recorder ended at once: {status}").into());
            }
            if Instant::now() > until {
                return Err("the recorder did not begin".into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(recorder)
    }

    pub fn disk(&self, n: usize) -> PathBuf {
        self.dir.join(format!("disk{n}"))
    }

    /// Puts a mark into the log.
    pub fn mark(&self, word: &str) -> Result {
        use std::io::Write;
        File::options().write(true).open(self.dir.join("mark"))?.write_all(word.as_bytes())?;
        Ok(())
    }

    /// Ends it; its log is complete then.
    pub fn end(mut self) -> Result {
        self.finish()
    }

    fn finish(&mut self) -> Result {
        self.ended = true;
        let off = take_off(&self.dir);
        let status = wait(&mut self.child)?;
        off?;
        if status.success() { Ok(()) } else { Err(format!("the recorder failed: {status}").into()) }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if !self.ended {
            say(self.finish(), "end the recorder at", &self.dir.clone());
        }
    }
}

/// Waits for a child, and kills one that hangs.
fn wait(child: &mut Child) -> Result<std::process::ExitStatus> {
    let until = Instant::now() + CHILD_TIME_MAX;
    let mut pause = Duration::from_micros(500);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > until {
            child.kill()?;
            child.wait()?;
            return Err(format!("it took more than {} s and was killed", CHILD_TIME_MAX.as_secs()).into());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// How a command line ended: its exit code (none after a signal) and what it said on standard error.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub said: String,
}

/// Runs a command line; what it says goes to a file in `scratch`.
pub fn command(line: &[OsString], scratch: &Path) -> Result<Ended> {
    let (program, args) = line.split_first().ok_or("no command")?;
    let said_in = scratch.join("stderr");
    let mut command = Command::new(program);
    command.args(args).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
    let shown = program.display();
    let mut child = command.stderr(File::create(&said_in)?).spawn().map_err(|e| format!("{shown}: {e}"))?;
    let status = wait(&mut child).map_err(|e| format!("{shown}: {e}"))?;
    let said = String::from_utf8_lossy(&std::fs::read(&said_in)?).trim().to_owned();
    Ok(Ended { code: status.code(), said })
}
