//! What a child process is given on its way that the standard library has no safe word for.
//!
//! Must not know what is run.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Ctrl-C at the terminal does not reach the child (`SIGINT` is ignored from the start, and a program that behaves leaves
/// it so): the process that started it decides when it ends. It stays in the terminal's foreground, so that it can ask for a
/// password.
pub fn deaf_to_interrupt(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec only sigaction is called, which is async-signal-safe; nothing is allocated and no
    // lock is taken.
    unsafe {
        command.pre_exec(|| {
            if libc::signal(libc::SIGINT, libc::SIG_IGN) == libc::SIG_ERR {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        })
    }
}

/// `kill(SIGTERM)`: asks a child to end, which may tidy up first.
///
/// # Errors
/// What the kernel says; one that was waited for cannot be named any more, and is none.
pub fn terminate(child: &mut Child) -> std::io::Result<()> {
    if child.try_wait()?.is_some() {
        return Ok(());
    }
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.ok_or(std::io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::kill_process(pid, rustix::process::Signal::TERM)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_is_ignored_and_a_termination_is_not() {
        let run = |signal: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("kill -{signal} $$; echo alive")]);
            String::from_utf8(deaf_to_interrupt(&mut command).output().unwrap().stdout).unwrap()
        };
        assert_eq!(run("INT"), "alive\n");
        assert_eq!(run("TERM"), "");
    }

    #[test]
    fn a_child_is_asked_to_end() {
        let mut command = Command::new("sh");
        command.args(["-c", "trap 'exit 7' TERM; echo; read never"]);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        terminate(&mut child).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(7));
        terminate(&mut child).unwrap();
    }
}
