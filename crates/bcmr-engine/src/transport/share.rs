//! One ssh that connects and logs in for all others of a command: they are sessions of its connection, so a person is asked
//! once.
//!
//! Must not know what the sessions are for. A user's own sharing (ControlPath in ssh_config) is never touched.

use super::ssh::{self, Ciphers, HeldBy, Notes, Nth};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::Cancel;
use crate::remote::{Address, Way};
use crate::shared::{self, SharedSsh};
use fastcopy::pass::SocketDir;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Bytes of a socket's path that every system takes, its end included.
const SUN_PATH_BYTES: usize = 104;
/// ssh listens under a longer name first: a dot and 16 letters.
const SSH_TRIES_BYTES: usize = 17;
/// How long a person may take to answer, as with any connection.
const CONNECT_MAX: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_millis(5);

/// What came of it.
enum Beginning {
    Shared(SharedSsh),
    /// It ended before it was of use: as far as is known the account does not run what was to hold it.
    Ended,
    /// This ssh or the user's configuration is not for that, or it did not work out.
    Not,
}

/// Connects and logs in, with its socket in a private directory below one of `bases`. `None`: this ssh or the user's
/// configuration is not for that, or it did not work out; then each ssh connects by itself.
///
/// # Errors
/// There is no connection, for a reason that holds for any other ssh too; [`Code::Interrupted`].
pub(crate) fn begin(
    address: &Address,
    way: &Way,
    held_by: HeldBy,
    bases: &[PathBuf],
    cancel: &Cancel,
) -> Result<Option<SharedSsh>> {
    let begun = match (once(address, way, held_by, bases, cancel)?, held_by) {
        (Beginning::Ended, HeldBy::Command) => once(address, way, HeldBy::Sftp, bases, cancel)?,
        (other, _) => other,
    };
    Ok(match begun {
        Beginning::Shared(shared) => Some(shared),
        Beginning::Ended | Beginning::Not => None,
    })
}

/// The same, held by that alone.
fn once(
    address: &Address,
    way: &Way,
    held_by: HeldBy,
    bases: &[PathBuf],
    cancel: &Cancel,
) -> Result<Beginning> {
    // First of all, before anything is run.
    let plain = ssh::arguments_for(address, way, Nth::First, Ciphers::AsTheyAre, held_by.word())?;
    let Some(program) = ssh::open_ssh(way) else { return Ok(Beginning::Not) };
    let Some(configured) = ssh::configured(program, &plain, address) else { return Ok(Beginning::Not) };
    if !may_share(&configured.text) {
        return Ok(Beginning::Not);
    }
    let bases: Vec<PathBuf> = bases.iter().filter(|base| fits(base)).cloned().collect();
    let Ok(dir) = SocketDir::for_ssh(&bases) else { return Ok(Beginning::Not) };
    let nth = Nth::Shares(dir.path(), held_by);
    let args = ssh::arguments_for(address, way, nth, configured.ciphers, held_by.word())?;
    // What was typed counts more: `-S none`, say.
    let effective = ssh::configuration(program, &args);
    let is_ours = |text: String| ssh::said(&text, "controlpath").is_some_and(|path| path == dir.path());
    if !effective.is_some_and(is_ours) {
        drop(dir.remove());
        return Ok(Beginning::Not);
    }
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    // Ctrl-C is for us, as with the connection that carries files.
    fastcopy::child::deaf_to_interrupt(&mut command);
    match command.spawn() {
        Ok(child) => until_it_listens(child, dir, (address, way), cancel),
        Err(e) => {
            drop(dir.remove());
            Err(Error::os(Op::Run, program, e))
        }
    }
}

fn until_it_listens(
    mut child: Child,
    dir: SocketDir,
    (address, way): (&Address, &Way),
    cancel: &Cancel,
) -> Result<Beginning> {
    let notes = Notes::default();
    let listener = child.stderr.take().and_then(|stderr| notes.listener(stderr));
    let until = Instant::now() + CONNECT_MAX;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if dir.has_socket() => {
                return Ok(Beginning::Shared(SharedSsh::over(child, dir, notes.take())));
            }
            Ok(None) if cancel.is_set() => {
                shared::end(child, &dir);
                let note = Reason::Interrupted;
                return Err(Error::ours(Code::Interrupted, Op::ConnectTo, &address.host, note));
            }
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
            Ok(None) | Err(_) => {
                shared::end(child, &dir);
                return Ok(Beginning::Not);
            }
        }
    };
    drop(dir.remove());
    ssh::hear_out(listener);
    if status.code() != Some(ssh::EXIT_SSH) {
        return Ok(Beginning::Ended);
    }
    // What may be otherwise in a moment is tried again as ever, where that was asked for; and so is what is not understood.
    let said = notes.take();
    match ssh::judge_words(&said) {
        Some(code) if way.retries == 0 || !code.is_retryable() => {
            Err(ssh::not_connected(code, address, &said))
        }
        _ => Ok(Beginning::Not),
    }
}

/// Whether the user has said nothing of how connections are to be shared, and ssh may ask.
fn may_share(configured: &str) -> bool {
    let is = |key, words: &[&str]| ssh::said(configured, key).is_none_or(|value| words.contains(&value));
    is("controlpath", &["none"]) && is("controlmaster", &["no", "false"]) && is("batchmode", &["no", "false"])
}

/// Whether a socket's path below this is short enough, and has nothing in it that ssh reads as something else.
fn fits(base: &Path) -> bool {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"/._-+".contains(b);
    let bytes = base.as_os_str().as_bytes();
    bytes.starts_with(b"/")
        && bytes.iter().all(plain)
        && bytes.len() + SocketDir::BYTES_BELOW + SSH_TRIES_BYTES < SUN_PATH_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_where_the_user_says_nothing_of_sharing() {
        for (configured, may) in [
            ("host h\nbatchmode no\ncontrolmaster false\ncontrolpersist no\n", true),
            ("host h\n", true),
            ("controlpath none\n", true),
            ("controlpath /home/me/.ssh/%C\ncontrolmaster false\n", false),
            ("controlmaster auto\n", false),
            ("controlmaster ask\n", false),
            ("batchmode yes\n", false),
        ] {
            assert_eq!(may_share(configured), may, "{configured}");
        }
    }

    #[test]
    fn a_path_that_ssh_cannot_take_is_not_tried() {
        let long = |bytes: usize| format!("/{}", "x".repeat(bytes - 1));
        // `/run/user/4294967295` is the longest of its kind.
        for (base, may) in [("/run/user/4294967295", true), ("/tmp", true), ("/t%h", false), ("/a b", false)]
        {
            assert_eq!(fits(Path::new(base)), may, "{base}");
        }
        let most = SUN_PATH_BYTES - 1 - SocketDir::BYTES_BELOW - SSH_TRIES_BYTES;
        assert!(fits(Path::new(&long(most))) && !fits(Path::new(&long(most + 1))));
        assert!(!fits(Path::new("relative")) && !fits(Path::new("")));
    }
}
