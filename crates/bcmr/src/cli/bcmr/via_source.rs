//! `--via-source`: what is told to the bcmr on the source's machine, and what that makes of it.
//!
//! Must not know how it gets there. The words are those that were typed; operands go beside them, as what they are there.

use super::Command;
use super::connection::{ConnectArgs, RemoteArgs};
use super::operands::{Operands, Places};
use crate::usage::Usage;
use bcmr_engine::policy::Target;
use bcmr_engine::remote::Address;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The first line of what the bcmr there says.
pub const GREETING: &[u8] = b"bcmr at-source 1";
/// More than this (bytes) is no command.
pub const TOLD_BYTES_MAX: u64 = 16 << 20;

/// The options of a connection, and those of how a copy travels, of verbs that have both.
fn options(command: &mut Command) -> Option<(&mut ConnectArgs, &mut RemoteArgs)> {
    match command {
        Command::Copy(a) => Some((&mut a.connect, &mut a.remote)),
        Command::Move(a) => Some((&mut a.connect, &mut a.remote)),
        Command::Sync(a) => Some((&mut a.connect, &mut a.remote)),
        _ => None,
    }
}

/// What the source's machine is told: words as they were typed, behind the verb, then the operands as they are there; a
/// NUL behind each, and one more behind the words.
///
/// # Errors
/// It is not between two other machines, or an option is about this one.
pub fn told(places: &Places, line: &[OsString], about_here: Option<&str>) -> Result<Vec<u8>, Usage> {
    let Places::Between { from, to, target } = places else {
        return Err(Usage::new("--via-source is for copies between two other machines"));
    };
    if let Some(flag) = about_here {
        return Err(Usage::new(format!("{flag} is about this machine, and does not go with --via-source")));
    }
    let mut bytes = Vec::new();
    let mut add = |word: &[u8]| {
        bytes.extend_from_slice(word);
        bytes.push(0);
    };
    line.iter().skip(1).for_each(|word| add(word.as_bytes()));
    add(b"");
    add(match target(PathBuf::new()) {
        Target::Guess(_) => b"guess",
        Target::Into(_) => b"into",
        Target::Exactly(_) => b"exactly",
    });
    add(url(to).as_bytes());
    from.iter().for_each(|source| add(there(&source.path).as_os_str().as_bytes()));
    Ok(bytes)
}

/// A path on the machine that it is on: nothing in it is an address.
fn there(path: &Path) -> PathBuf {
    if path.is_absolute() { path.to_owned() } else { Path::new(".").join(path) }
}

/// An address that no name of a file can be mistaken for.
fn url(address: &Address) -> OsString {
    let escaped = |bytes: &[u8], plain: &[u8]| {
        let mut text = Vec::new();
        for byte in bytes {
            if byte.is_ascii_alphanumeric() || plain.contains(byte) {
                text.push(*byte);
            } else {
                text.extend_from_slice(format!("%{byte:02x}").as_bytes());
            }
        }
        text
    };
    let mut url = b"ssh://".to_vec();
    if let Some(user) = &address.user {
        url.append(&mut escaped(user.as_bytes(), b"._-+"));
        url.push(b'@');
    }
    match address.host.contains(':') {
        true => url.extend_from_slice(format!("[{}]", address.host.replace('%', "%25")).as_bytes()),
        false => url.extend_from_slice(address.host.as_bytes()),
    }
    if let Some(port) = address.port {
        url.extend_from_slice(format!(":{port}").as_bytes());
    }
    let path = address.path.as_os_str().as_bytes();
    if !path.starts_with(b"/") {
        url.extend_from_slice(b"/~/");
    }
    url.append(&mut escaped(path, b"/._-"));
    OsString::from_vec(url)
}

/// What was told: the words, and the operands for [`as_there`].
pub fn heard(bytes: &[u8]) -> Option<(Vec<OsString>, Vec<OsString>)> {
    let mut parts =
        bytes.strip_suffix(b"\0")?.split(|byte| *byte == 0).map(|part| OsStr::from_bytes(part).to_owned());
    let words: Vec<OsString> = parts.by_ref().take_while(|word| !word.is_empty()).collect();
    let operands: Vec<OsString> = parts.collect();
    (operands.len() >= 3).then_some((words, operands))
}

/// The command as it is on the source's machine: sources are here, and how one gets there is for this machine to say.
pub fn as_there(command: &mut Command, operands: Vec<OsString>) -> Option<()> {
    let (connect, remote) = options(command)?;
    *connect = ConnectArgs::none();
    remote.via_source = false;
    let mut operands = operands.into_iter();
    let (kind, to) = (operands.next()?, PathBuf::from(operands.next()?));
    let sources: Vec<PathBuf> = operands.map(PathBuf::from).collect();
    let typed = match kind.as_bytes() {
        b"into" => Operands { paths: sources, target_directory: Some(to), no_target_directory: false },
        kind => {
            let paths = sources.into_iter().chain([to]).collect();
            Operands { paths, target_directory: None, no_target_directory: kind == b"exactly" }
        }
    };
    match command {
        Command::Copy(a) => a.operands = typed,
        Command::Move(a) => a.operands = typed,
        Command::Sync(a) => {
            let [source, dest] = <[PathBuf; 2]>::try_from(typed.paths).ok()?;
            (a.source, a.dest) = (source, dest);
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address;

    /// Whatever a path and a user hold, the address is the same over there.
    #[test]
    fn an_address_is_the_same_there() {
        for (user, host, port, path) in [
            (None, "host", None, &b"/a b/%41\n\xff:;$(x)"[..]),
            (Some("me@corp"), "host", Some(2222), b"rel/./c:d"),
            (None, "fe80::1%eth0", None, b""),
            (Some("me"), "::1", Some(22), b"-n"),
        ] {
            let path = PathBuf::from(OsStr::from_bytes(path));
            let meant = Address { user: user.map(str::to_owned), host: host.to_owned(), port, path };
            let Ok(address::Operand::There(got)) = address::parse(Path::new(&url(&meant))) else {
                panic!("{meant:?}")
            };
            assert_eq!(got, meant);
        }
        assert_eq!(there(Path::new("c:d")), Path::new("./c:d"));
    }
}
