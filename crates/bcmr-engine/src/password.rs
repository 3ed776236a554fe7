//! A password that a user typed: never shown, wiped from memory in the end.
//!
//! Must not know whom it opens what for, nor how it was asked for.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;
use zeroize::Zeroizing;

/// Longer than any that sudo takes.
const BYTES_MAX: usize = 1023;

/// A password, without the end of its line.
#[derive(Clone)]
pub struct Password {
    bytes: Arc<Zeroizing<[u8; BYTES_MAX]>>,
    length: usize,
}

impl Password {
    /// Reads a line, and no byte behind it. `None`: there was none.
    ///
    /// # Errors
    /// It cannot be read, or is longer than a password is.
    pub fn read(mut from: impl Read) -> io::Result<Option<Password>> {
        let (mut bytes, mut length, mut ended) = (Zeroizing::new([0; BYTES_MAX]), 0, false);
        let mut byte = Zeroizing::new([0; 1]);
        while !ended {
            if from.read(byte.as_mut_slice())? == 0 {
                break;
            }
            match *byte {
                [b'\n'] => ended = true,
                [one] => {
                    let long = || io::Error::new(io::ErrorKind::InvalidInput, "longer than a password is");
                    *bytes.get_mut(length).ok_or_else(long)? = one;
                    length += 1;
                }
            }
        }
        Ok((ended || length > 0).then(|| Password { bytes: Arc::new(bytes), length }))
    }

    /// Writes it as a line.
    ///
    /// # Errors
    /// The other end is closed.
    pub fn write_to(&self, mut out: impl Write) -> io::Result<()> {
        out.write_all(self.bytes.get(..self.length).unwrap_or_default())?;
        out.write_all(b"\n")?;
        out.flush()
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

impl PartialEq for Password {
    fn eq(&self, other: &Password) -> bool {
        Arc::ptr_eq(&self.bytes, &other.bytes)
    }
}

impl Eq for Password {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_and_no_more() {
        let mut typed = &b"secret word\nHello"[..];
        let password = Password::read(&mut typed).unwrap().unwrap();
        assert_eq!(typed, b"Hello");
        let mut out = Vec::new();
        password.write_to(&mut out).unwrap();
        assert_eq!(out, b"secret word\n");
        assert_eq!(format!("{password:?}"), "Password");
        assert!(Password::read(&b""[..]).unwrap().is_none());
        assert!(Password::read(&b"\n"[..]).unwrap().is_some());
        assert!(Password::read(&[b'x'; BYTES_MAX][..]).unwrap().is_some());
        assert!(Password::read(&[b'x'; BYTES_MAX + 1][..]).is_err());
    }
}
