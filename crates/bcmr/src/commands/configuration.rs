//! Reads the configuration.
//!
//! Must not know what it says.

use crate::config::{self, Config};
use crate::env::Env;
use crate::names;
use crate::say;
use crate::usage::Usage;
use crate::voice::BCMR;
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// A configuration is read whole, so it has a size.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Opening is not to wait for a program that writes.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

/// The name of the table that has defaults.
const DEFAULTS: &[u8] = b"defaults";

/// The configuration, read only when another machine is meant: a broken one is no reason not to copy here.
pub fn configuration(env: &Env) -> Result<Config, Usage> {
    env.config_file.as_deref().map_or_else(|| Ok(Config::default()), load)
}

/// Whether the configuration may have something of defaults, be it understood or not. One that cannot be read may.
pub fn may_have_defaults(env: &Env) -> bool {
    let Some(file) = env.config_file.as_deref() else { return false };
    let Ok(bytes) = bytes_of(file) else {
        // A user who may not even look there has the HOME of another one, whose defaults are not meant.
        return rustix::fs::stat(file).err() != Some(rustix::io::Errno::ACCESS);
    };
    bytes.len() as u64 > CONFIG_BYTES_MAX || bytes.windows(DEFAULTS.len()).any(|w| w == DEFAULTS)
}

fn bytes_of(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // A FIFO would be waited for, or would say nothing. `/dev/null` is an empty one, and no more is read than may be.
    let opened = std::fs::File::options().read(true).custom_flags(NONBLOCK).open(file)?;
    let kind = opened.metadata()?.file_type();
    if !kind.is_file() && !kind.is_char_device() {
        return Err(io::Error::other("it is no regular file"));
    }
    io::Read::read_to_end(&mut io::Read::take(opened, CONFIG_BYTES_MAX + 1), &mut bytes)?;
    Ok(bytes)
}

fn text_of(file: &Path) -> io::Result<String> {
    String::from_utf8(bytes_of(file)?).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.utf8_error()))
}

/// Reads the file; that there is none is no error, that it cannot be read is one.
fn load(file: &Path) -> Result<Config, Usage> {
    match text_of(file) {
        Ok(text) if text.len() as u64 > CONFIG_BYTES_MAX => {
            Err(Usage::new(format!("{} is too large for a configuration", names::quoted(file))))
        }
        Ok(text) => config::parse(&text, file),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(Config::default())
        }
        Err(e) => Err(Usage::new(say::file_error(&BCMR, "read", file, &e).replacen("bcmr: ", "", 1))),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look from outside")]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_is_dev_null_says_nothing() {
        assert_eq!(bytes_of(Path::new("/dev/null")).unwrap(), b"");
    }

    #[test]
    fn a_configuration_that_is_not_there_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(load(&dir.path().join("none/config.toml")), Ok(Config::default()));
        // A directory in its place is not absence.
        let said = load(dir.path()).unwrap_err().said;
        assert!(said.starts_with("cannot read '"), "{said}");
    }
}
