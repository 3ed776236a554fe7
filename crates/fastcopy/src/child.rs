//! What a child process is given on its way that the standard library has no safe word for.
//!
//! Must not know what is run.

use std::os::unix::process::CommandExt;
use std::process::Command;

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
}
