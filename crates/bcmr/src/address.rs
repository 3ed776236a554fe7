//! Operands taken apart: what is on this machine, and what is on which other one.
//!
//! Pure: bytes in, values out. Must not connect, look at any file, or know what is done with an operand; so a file
//! whose name looks like an address is written `./host:path`. What is named here ends up in an argument vector of
//! `ssh`, so what is not plainly a host or a user is refused before anything else happens.

use crate::names;
use crate::usage::Usage;
use bcmr_engine::remote::Address;
use std::ffi::{OsStr, OsString};
use std::net::Ipv6Addr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What a path may be on the wire, so that a longer one is refused before the other machine is asked.
const PATH_BYTES_MAX: usize = 64 << 10;
/// More than any name service takes.
const NAME_BYTES_MAX: usize = 255;

const LOCAL_HINT: &str = "for a file on this machine put ./ before its name";
const URL: &[u8] = b"ssh://";
/// Between a scheme and what it is about.
const SCHEME_END: &[u8] = b"://";

/// One operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// On this machine.
    Here(PathBuf),
    /// On another one.
    There(Address),
}

/// Takes an operand apart: `[user@]host:path`, `ssh://[user@]host[:port][/path]`, and everything else is here.
///
/// A slash before the first colon makes it a local path. The path is relative to the home directory there unless it
/// begins with `/`; `~` and `~/` are the home directory as well, because a user who types that means it.
pub fn parse(typed: &Path) -> Result<Operand, Usage> {
    let bytes = typed.as_os_str().as_bytes();
    if let Some(rest) = bytes.strip_prefix(URL) {
        return url(typed, rest).map(Operand::There);
    }
    if is_url(typed) {
        return Err(foreign(typed, bytes));
    }
    let Some((login, path)) = split(bytes) else { return Ok(Operand::Here(typed.to_owned())) };
    let bad = |why: &str| refuse(typed, why, LOCAL_HINT);
    if login.is_empty() {
        return Err(bad("there is no host before the colon"));
    }
    if path.starts_with(b":") {
        let why = "two colons do not follow a host";
        let hint = "an IPv6 address stands between brackets: [::1]:path; a path that begins with a colon is host:./:x";
        return Err(refuse(typed, why, hint));
    }
    let (user, host) = login_of(login).map_err(|why| bad(&why))?;
    let path = far_path(path).map_err(|why| refuse(typed, &why, "write host:./~name for such a name"))?;
    Ok(Operand::There(Address { user, host, port: None, path }))
}

/// Whether it begins with a scheme (RFC 3986, section 3.1) and two slashes, which no name that was typed by chance does.
pub fn is_url(typed: &Path) -> bool {
    let bytes = typed.as_os_str().as_bytes();
    let end =
        bytes.iter().position(|b| !(b.is_ascii_alphanumeric() || b"+-.".contains(b))).unwrap_or(bytes.len());
    bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.get(end..).is_some_and(|rest| rest.starts_with(SCHEME_END))
}

/// Of the schemes only `ssh` is known; another one is no host of that name.
fn foreign(typed: &Path, bytes: &[u8]) -> Usage {
    let colon = bytes.iter().position(|b| *b == b':').unwrap_or(bytes.len());
    let (scheme, rest) = bytes.split_at(colon);
    let rest = String::from_utf8_lossy(rest.strip_prefix(SCHEME_END).unwrap_or_default()).into_owned();
    let hint = match scheme {
        b"scp" | b"sftp" => format!("bcmr goes by ssh: ssh://{}", names::text(&rest)),
        b"file" => "for a file on this machine its path is enough".to_owned(),
        _ => "bcmr reaches other machines by ssh alone: host:path, or ssh://host/path".to_owned(),
    };
    let scheme = String::from_utf8_lossy(scheme).into_owned();
    refuse(typed, &format!("{scheme}:// is not known here"), &hint)
}

/// A host without a path, for commands that are about a machine: `host`, `user@host`, `[::1]`, `ssh://...`; a colon at
/// the end does no harm.
pub fn parse_host(typed: &OsStr) -> Result<Address, Usage> {
    let path = Path::new(typed);
    let bytes = typed.as_bytes();
    if let Some(rest) = bytes.strip_prefix(URL) {
        return url(path, rest);
    }
    if is_url(path) {
        return Err(foreign(path, bytes));
    }
    let login = bytes.strip_suffix(b":").unwrap_or(bytes);
    let (user, host) = login_of(login).map_err(|why| refuse(path, &why, "name a host, as ssh knows it"))?;
    Ok(Address { user, host, port: None, path: PathBuf::new() })
}

/// The address as text for messages; the host only, without a path.
pub fn machine(a: &Address) -> String {
    let user = a.user.as_ref().map(|u| format!("{u}@")).unwrap_or_default();
    let host = if a.host.contains(':') { format!("[{}]", a.host) } else { a.host.clone() };
    let port = a.port.map(|p| format!(" port {p}")).unwrap_or_default();
    format!("{user}{host}{port}")
}

/// Whether both are reached in the same way, so that one connection serves both.
pub fn same_machine(a: &Address, b: &Address) -> bool {
    (&a.user, &a.host, a.port) == (&b.user, &b.host, b.port)
}

/// What is before the colon that ends a host, and what is after it; `None` when it is a local path.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    // In brackets colons are the address's own: behind the user, or at the beginning.
    let slash = bytes.iter().position(|b| *b == b'/').unwrap_or(bytes.len());
    let head = bytes.get(..slash).unwrap_or_default();
    let open = match head.iter().position(|b| *b == b'[') {
        Some(0) => Some(0),
        Some(at) if head.get(at - 1) == Some(&b'@') && !head.iter().take(at).any(|b| *b == b':') => Some(at),
        _ => None,
    };
    let after_brackets = open.and_then(|open| {
        let close = head.get(open..)?.windows(2).position(|w| w == b"]:")?;
        Some(open + close + 1)
    });
    let colon = after_brackets.or_else(|| head.iter().position(|b| *b == b':'))?;
    Some((bytes.get(..colon)?, bytes.get(colon + 1..)?))
}

fn url(typed: &Path, rest: &[u8]) -> Result<Address, Usage> {
    let bad = |why: &str| {
        refuse(typed, why, "it is ssh://[user@]host[:port]/path; for a local path put ./ before it")
    };
    let slash = rest.iter().position(|b| *b == b'/');
    let (login, path) = match slash {
        Some(at) => (rest.get(..at).unwrap_or_default(), rest.get(at..).unwrap_or_default()),
        None => (rest, &[][..]),
    };
    // The last `@` is the one: a user may hold one, a host cannot.
    let (user, place) = match login.iter().rposition(|b| *b == b'@') {
        Some(at) => (login.get(..at), login.get(at + 1..).unwrap_or_default()),
        None => (None, login),
    };
    let user = match user {
        Some(user) if user.contains(&b':') => {
            return Err(bad("a password has no place in an address"));
        }
        Some(user) => {
            let user = decoded(user).ok_or_else(|| bad("a % is not followed by two hexadecimal digits"))?;
            Some(checked_user(&user).map_err(|why| bad(&why))?)
        }
        None => None,
    };
    let (host, port) = match place.strip_prefix(b"[") {
        Some(inner) => {
            let close =
                inner.iter().position(|b| *b == b']').ok_or_else(|| bad("a bracket is not closed"))?;
            let port = match inner.get(close + 1..).unwrap_or_default() {
                [] => None,
                [b':', digits @ ..] => Some(digits),
                _ => return Err(bad("only a port can follow the brackets")),
            };
            let inner = inner.get(..close).unwrap_or_default();
            // RFC 6874 writes the % before a zone as %25; what ssh takes is %.
            let zoned: Vec<u8> = match inner.windows(3).position(|w| w == b"%25") {
                Some(at) => {
                    [inner.get(..=at).unwrap_or_default(), inner.get(at + 3..).unwrap_or_default()].concat()
                }
                None => inner.to_vec(),
            };
            (ipv6(&zoned).map_err(|why| bad(&why))?, port)
        }
        None => {
            let (host, port) = match place.iter().position(|b| *b == b':') {
                Some(at) => (place.get(..at).unwrap_or_default(), place.get(at + 1..)),
                None => (place, None),
            };
            (checked_host(host).map_err(|why| bad(&why))?, port)
        }
    };
    let port = match port {
        Some(digits) => Some(port_of(digits).ok_or_else(|| bad("a port is a number from 1 to 65535"))?),
        None => None,
    };
    let path = decoded(path).ok_or_else(|| bad("a % is not followed by two hexadecimal digits"))?;
    // `/~/x` is below the home directory, everything else is absolute; without any slash it is home itself.
    let path = match path.strip_prefix(b"/~") {
        Some(rest) if rest.is_empty() || rest.starts_with(b"/") => [b"~", rest].concat(),
        Some(_) => return Err(bad("whose home directory ~name is, only a shell there would know")),
        None => path,
    };
    let path = far_path(&path).map_err(|why| bad(&why))?;
    Ok(Address { user, host, port, path })
}

/// The path as the far side is to get it.
fn far_path(bytes: &[u8]) -> Result<PathBuf, String> {
    if bytes.contains(&0) {
        return Err("a path cannot hold a NUL".into());
    }
    if bytes.len() > PATH_BYTES_MAX {
        return Err("the path is too long".into());
    }
    let path = match bytes.strip_prefix(b"~") {
        // What is left must not become absolute, however many slashes there are.
        Some(rest) if rest.is_empty() || rest.starts_with(b"/") => {
            let name = rest.iter().position(|b| *b != b'/').unwrap_or(rest.len());
            rest.get(name..).unwrap_or_default()
        }
        Some(_) => return Err("whose home directory ~name is, only a shell there would know".into()),
        None => bytes,
    };
    Ok(PathBuf::from(OsString::from_vec(path.to_vec())))
}

/// `user@host`; the last `@` is the one.
fn login_of(login: &[u8]) -> Result<(Option<String>, String), String> {
    let (user, host) = match login.iter().rposition(|b| *b == b'@') {
        Some(at) => (login.get(..at), login.get(at + 1..).unwrap_or_default()),
        None => (None, login),
    };
    let user = user.map(checked_user).transpose()?;
    let host = match host.strip_prefix(b"[").and_then(|h| h.strip_suffix(b"]")) {
        Some(inner) => ipv6(inner)?,
        None => checked_host(host)?,
    };
    Ok((user, host))
}

/// L1: a user is a word of letters, digits and `. _ + @ -`, and does not begin with `-`. Other names are for
/// `User` in ssh_config.
fn checked_user(bytes: &[u8]) -> Result<String, String> {
    word(bytes, "user", |c| c.is_alphanumeric() || matches!(c, '.' | '_' | '+' | '@' | '-'))
}

/// L1: a host is a word of letters, digits and `. _ -`, and does not begin with `-`.
fn checked_host(bytes: &[u8]) -> Result<String, String> {
    word(bytes, "host", |c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

fn word(bytes: &[u8], what: &str, good: impl Fn(char) -> bool) -> Result<String, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| format!("the {what} is not UTF-8"))?;
    match text.chars().find(|c| !good(*c)) {
        _ if text.is_empty() => Err(format!("the {what} is empty")),
        _ if text.len() > NAME_BYTES_MAX => Err(format!("the {what} is too long")),
        _ if text.starts_with('-') => Err(format!("the {what} begins with a dash")),
        Some(c) => Err(format!("the {what} holds {}", names::quoted(Path::new(&c.to_string())))),
        None => Ok(text.to_owned()),
    }
}

/// An IPv6 address, with its zone if it has one.
fn ipv6(bytes: &[u8]) -> Result<String, String> {
    let bad = || "between brackets there is an IPv6 address".to_owned();
    let text = std::str::from_utf8(bytes).map_err(|_| bad())?;
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (text, None),
    };
    address.parse::<Ipv6Addr>().map_err(|_| bad())?;
    if let Some(zone) = zone {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if zone.is_empty() || zone.len() > NAME_BYTES_MAX || zone.starts_with('-') || !zone.chars().all(good)
        {
            return Err("the zone behind the % is no name of an interface".into());
        }
    }
    Ok(text.to_owned())
}

fn port_of(digits: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(digits).ok().filter(|t| t.bytes().all(|b| b.is_ascii_digit()))?;
    text.parse().ok().filter(|port| *port != 0)
}

/// `%41` is `A`; `None` when a `%` stands alone.
fn decoded(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            out.push(*first);
            continue;
        }
        let [high, low, after @ ..] = rest else { return None };
        let digit = |b: &u8| char::from(*b).to_digit(16);
        out.push(u8::try_from(digit(high)? * 16 + digit(low)?).ok()?);
        rest = after;
    }
    Some(out)
}

fn refuse(typed: &Path, why: &str, hint: &str) -> Usage {
    Usage::new(format!("{} is no address: {why}", names::quoted(typed))).or(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(bytes: &[u8]) -> Result<Operand, Usage> {
        parse(Path::new(OsStr::from_bytes(bytes)))
    }

    fn there(user: Option<&str>, host: &str, port: Option<u16>, path: &[u8]) -> Operand {
        let path = PathBuf::from(OsStr::from_bytes(path));
        Operand::There(Address { user: user.map(str::to_owned), host: host.into(), port, path })
    }

    #[test]
    fn here() {
        for local in [
            "a",
            "a/b",
            "/a",
            ".",
            "..",
            "~",
            "./a:b",
            "/a:b",
            "a/b:c",
            "../x:y",
            "./-oProxyCommand=x:y",
            "/:",
            "./:",
            "./ssh://host/path",
            "a@b",
            "user@",
            "[::1]",
            "x[1]",
            "-",
            "a b",
            "dir/[::1]:x",
            "sftp/ssh://x",
            "user@/a:b",
            "x/@[::1]:p",
        ] {
            let want = match local {
                // No slash before its colons: the shapes of an address without being one.
                "[::1]" => None,
                _ => Some(Operand::Here(local.into())),
            };
            assert_eq!(of(local.as_bytes()).ok(), want, "{local}");
        }
        assert_eq!(of(b"caf\xe9").unwrap(), Operand::Here(PathBuf::from(OsStr::from_bytes(b"caf\xe9"))));
        assert!(matches!(of(b"d\xff/x:y"), Ok(Operand::Here(_))));
    }

    #[test]
    fn there_by_a_colon() {
        for (typed, want) in [
            (&b"host:path"[..], there(None, "host", None, b"path")),
            (b"host:", there(None, "host", None, b"")),
            (b"host:/", there(None, "host", None, b"/")),
            (b"host:/abs/x", there(None, "host", None, b"/abs/x")),
            (b"me@host:x", there(Some("me"), "host", None, b"x")),
            (b"me@dom.ain@host:x", there(Some("me@dom.ain"), "host", None, b"x")),
            // L3: one letter is a host like any other.
            (b"h:/path", there(None, "h", None, b"/path")),
            (b"C:\\dir", there(None, "C", None, b"C:\\dir".strip_prefix(b"C:").unwrap())),
            (b"1.2.3.4:x", there(None, "1.2.3.4", None, b"x")),
            (b"[::1]:x", there(None, "::1", None, b"x")),
            (b"[::1]:", there(None, "::1", None, b"")),
            (b"[2001:db8::7]:/a:b", there(None, "2001:db8::7", None, b"/a:b")),
            (b"me@[fe80::1%eth0]:x", there(Some("me"), "fe80::1%eth0", None, b"x")),
            (b"host:a:b", there(None, "host", None, b"a:b")),
            (b"host:a@[::1]:b", there(None, "host", None, b"a@[::1]:b")),
            (b"host:[::1]:b", there(None, "host", None, b"[::1]:b")),
            (b"host:./:x", there(None, "host", None, b"./:x")),
            (b"host:-rf", there(None, "host", None, b"-rf")),
            (b"host:a b$(c)`d`;e\n", there(None, "host", None, b"a b$(c)`d`;e\n")),
            (b"host:caf\xe9\xff", there(None, "host", None, b"caf\xe9\xff")),
            ("gr\u{fc}\u{df}e.example:x".as_bytes(), there(None, "gr\u{fc}\u{df}e.example", None, b"x")),
            (b"host:~", there(None, "host", None, b"")),
            (b"host:~/", there(None, "host", None, b"")),
            (b"host:~/a", there(None, "host", None, b"a")),
            (b"host:~//a", there(None, "host", None, b"a")),
            (b"host:./~a", there(None, "host", None, b"./~a")),
            (b"host:a~", there(None, "host", None, b"a~")),
            (b"ssh:x", there(None, "ssh", None, b"x")),
            (b"ssh:/x", there(None, "ssh", None, b"/x")),
            (b"me@h://x", there(Some("me"), "h", None, b"//x")),
            (b"h:./b://x", there(None, "h", None, b"./b://x")),
            (b"host_1-a.b:x", there(None, "host_1-a.b", None, b"x")),
        ] {
            assert_eq!(of(typed), Ok(want), "{}", String::from_utf8_lossy(typed));
        }
    }

    #[test]
    fn there_by_a_url() {
        for (typed, want) in [
            (&b"ssh://host"[..], there(None, "host", None, b"")),
            (b"ssh://host/", there(None, "host", None, b"/")),
            (b"ssh://host/a/b", there(None, "host", None, b"/a/b")),
            (b"ssh://host/~", there(None, "host", None, b"")),
            (b"ssh://host/~/", there(None, "host", None, b"")),
            (b"ssh://host/~/a", there(None, "host", None, b"a")),
            (b"ssh://host/~//a", there(None, "host", None, b"a")),
            (b"ssh://host/a/~b", there(None, "host", None, b"/a/~b")),
            (b"ssh://me@host:2222/x", there(Some("me"), "host", Some(2222), b"/x")),
            (b"ssh://me%40corp@host/x", there(Some("me@corp"), "host", None, b"/x")),
            (b"ssh://host:1", there(None, "host", Some(1), b"")),
            (b"ssh://host:65535/", there(None, "host", Some(65535), b"/")),
            (b"ssh://[::1]:22/x", there(None, "::1", Some(22), b"/x")),
            (b"ssh://[::1]/x", there(None, "::1", None, b"/x")),
            (b"ssh://me@[fe80::1%25eth0]/x", there(Some("me"), "fe80::1%eth0", None, b"/x")),
            (b"ssh://[fe80::1%eth0]/x", there(None, "fe80::1%eth0", None, b"/x")),
            (b"ssh://host/a%20b%2fc%FF", there(None, "host", None, b"/a b/c\xff")),
            (b"ssh://host/a:b@c?d#e", there(None, "host", None, b"/a:b@c?d#e")),
            (b"ssh://host/caf\xe9", there(None, "host", None, b"/caf\xe9")),
        ] {
            assert_eq!(of(typed), Ok(want), "{}", String::from_utf8_lossy(typed));
        }
    }

    #[test]
    fn refused() {
        for (typed, why) in [
            (&b":x"[..], "there is no host before the colon"),
            (b":", "there is no host before the colon"),
            (b"::1:x", "there is no host before the colon"),
            (b"@host:x", "the user is empty"),
            (b"me@:x", "the host is empty"),
            (b"-oProxyCommand=touch x:y", "the host begins with a dash"),
            (b"-h:y", "the host begins with a dash"),
            (b"-l@host:y", "the user begins with a dash"),
            (b"me@-h:y", "the host begins with a dash"),
            (b"a b:y", "the host holds ' '"),
            (b"a\nb:y", r"the host holds '\x0a'"),
            (b"a\x1b[2J:y", r"the host holds '\x1b'"),
            (b"a\xff:y", "the host is not UTF-8"),
            (b"u\xff@a:y", "the user is not UTF-8"),
            (b"a;b:y", "the host holds ';'"),
            (b"$(x):y", "the host holds '$'"),
            (b"`x`:y", "the host holds '`'"),
            (b"a|b:y", "the host holds '|'"),
            (b"a'b:y", r"the host holds '\''"),
            (b"a\"b:y", "the host holds '\"'"),
            (b"a\\b:y", r"the host holds '\\'"),
            (b"a%h:y", "the host holds '%'"),
            (b"a*:y", "the host holds '*'"),
            (b"~:y", "the host holds '~'"),
            (b"a,b:y", "the host holds ','"),
            (b"DOM\\me@a:y", r"the user holds '\\'"),
            (b"m e@a:y", "the user holds ' '"),
            (b"$USER@a:y", "the user holds '$'"),
            ("\u{202e}a:y".as_bytes(), r"the host holds '\u{202e}'"),
            (b"host::module", "two colons do not follow a host"),
            (b"fe80::1:x", "two colons do not follow a host"),
            (b"[::1]", "two colons do not follow a host"),
            (b"[x]:y", "between brackets there is an IPv6 address"),
            (b"[]:y", "between brackets there is an IPv6 address"),
            (b"[1.2.3.4]:y", "between brackets there is an IPv6 address"),
            (b"[-oProxyCommand]:y", "between brackets there is an IPv6 address"),
            (b"[::1%]:y", "the zone behind the % is no name of an interface"),
            (b"[::1%-x]:y", "the zone behind the % is no name of an interface"),
            (b"[::1%a;b]:y", "the zone behind the % is no name of an interface"),
            (b"[::1%a%b]:y", "the zone behind the % is no name of an interface"),
            (b"host:~root", "whose home directory"),
            (b"scp://host/x", "scp:// is not known here"),
            (b"sftp://me@host/x", "sftp:// is not known here"),
            (b"rsync://host/module", "rsync:// is not known here"),
            (b"s3://bucket/key", "s3:// is not known here"),
            (b"https://host/x", "https:// is not known here"),
            (b"file:///x", "file:// is not known here"),
            (b"SSH://host/x", "SSH:// is not known here"),
            (b"git+ssh://host/x", "git+ssh:// is not known here"),
            (b"ssh://", "the host is empty"),
            (b"ssh:///x", "the host is empty"),
            (b"ssh://me@/x", "the host is empty"),
            (b"ssh://@h/x", "the user is empty"),
            (b"ssh://me:secret@h/x", "a password has no place in an address"),
            (b"ssh://-oX=y/z", "the host begins with a dash"),
            (b"ssh://%2doX@h/z", "the user begins with a dash"),
            (b"ssh://a%20b@h/z", "the user holds ' '"),
            (b"ssh://h%2e/z", "the host holds '%'"),
            (b"ssh://h:/x", "a port is a number from 1 to 65535"),
            (b"ssh://h:0/x", "a port is a number from 1 to 65535"),
            (b"ssh://h:65536/x", "a port is a number from 1 to 65535"),
            (b"ssh://h:+22/x", "a port is a number from 1 to 65535"),
            (b"ssh://h:22:22/x", "a port is a number from 1 to 65535"),
            (b"ssh://[::1/x", "a bracket is not closed"),
            (b"ssh://[::1]22/x", "only a port can follow the brackets"),
            (b"ssh://::1/x", "the host is empty"),
            (b"ssh://h/%", "a % is not followed by two hexadecimal digits"),
            (b"ssh://h/%4", "a % is not followed by two hexadecimal digits"),
            (b"ssh://h/%zz", "a % is not followed by two hexadecimal digits"),
            (b"ssh://h/%00", "a path cannot hold a NUL"),
            (b"ssh://h/~root/x", "whose home directory"),
            (b"ssh://h/%7eroot/x", "whose home directory"),
        ] {
            let got = of(typed);
            let Err(usage) = got else { panic!("{}: {got:?}", String::from_utf8_lossy(typed)) };
            assert!(usage.said.contains(why), "{}: {}", String::from_utf8_lossy(typed), usage.said);
            assert!(!usage.said.chars().any(names::is_unsafe), "{}", usage.said);
            assert!(usage.hint.is_some());
        }
        let long = [b"h:".as_slice(), &vec![b'a'; PATH_BYTES_MAX + 1]].concat();
        assert!(of(&long).is_err());
        assert!(of(long.get(..long.len() - 1).unwrap()).is_ok());
        assert!(of(&[&[b'a'; 256], b":x".as_slice()].concat()).is_err());
    }

    #[test]
    fn hosts_alone() {
        for (typed, want) in [
            ("host", "host"),
            ("me@host", "me@host"),
            ("host:", "host"),
            ("[::1]", "[::1]"),
            ("me@[::1]:", "me@[::1]"),
            ("ssh://me@host:22/x", "me@host port 22"),
        ] {
            let got = parse_host(OsStr::new(typed)).map(|a| machine(&a));
            assert_eq!(got, Ok(want.to_owned()), "{typed}");
        }
        for typed in ["", "-x", "a b", "host:x", "a/b", "::1", ":", "scp://host", "s3://bucket"] {
            assert!(parse_host(OsStr::new(typed)).is_err(), "{typed}");
        }
    }

    /// What may stand in ssh's argument vector, written once more and independently of the parser.
    fn harmless(text: &str) -> bool {
        !text.is_empty()
            && !text.starts_with('-')
            && !text
                .chars()
                .any(|c| c.is_control() || c.is_whitespace() || "'\"`$\\;&|<>(){}*?!#~^,=/".contains(c))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Whatever is typed: a local path comes back as it is, and an address holds nothing that ssh or a shell obeys.
        #[test]
        fn nothing_typed_gets_past(
            bytes in proptest::collection::vec(prop_oneof![
                any::<u8>(),
                proptest::sample::select(b":/@[]%-~. \n$;'`h1".to_vec()),
            ], 0..24),
            url in any::<bool>(),
        ) {
            let bytes: Vec<u8> = bytes.into_iter().filter(|b| *b != 0).collect();
            let bytes = if url { [URL, &bytes].concat() } else { bytes };
            match of(&bytes) {
                Ok(Operand::Here(path)) => {
                    prop_assert_eq!(path.as_os_str().as_bytes(), bytes.as_slice());
                    let colon = bytes.iter().position(|b| *b == b':').unwrap_or(bytes.len());
                    prop_assert!(colon == bytes.len() || bytes.iter().take(colon).any(|b| *b == b'/'));
                }
                Ok(Operand::There(a)) => {
                    prop_assert!(harmless(&a.host), "{:?}", a);
                    prop_assert!(a.user.as_deref().is_none_or(harmless), "{:?}", a);
                    prop_assert!(!a.host.contains('%') || a.host.contains(':'), "{:?}", a);
                    prop_assert!(a.port != Some(0));
                    prop_assert!(!a.path.as_os_str().as_bytes().contains(&0));
                }
                Err(usage) => prop_assert!(!usage.said.chars().any(names::is_unsafe), "{}", usage.said),
            }
        }

        /// Any path arrives byte for byte behind a host, and any path behind `./` stays here.
        #[test]
        fn paths_are_bytes(path in proptest::collection::vec(1..=255_u8, 1..40)) {
            let typed = [b"me@host:", path.as_slice()].concat();
            if !matches!(path.first(), Some(b'~' | b':')) {
                prop_assert_eq!(of(&typed), Ok(there(Some("me"), "host", None, &path)));
            }
            let typed = [b"./", path.as_slice()].concat();
            prop_assert!(matches!(of(&typed), Ok(Operand::Here(p)) if p.as_os_str().as_bytes() == typed.as_slice()));
            let typed: Vec<u8> = path.iter().flat_map(|b| format!("%{b:02x}").into_bytes()).collect();
            let typed = [b"ssh://host:7/", typed.as_slice()].concat();
            if path.first() != Some(&b'~') {
                let want = [b"/", path.as_slice()].concat();
                prop_assert_eq!(of(&typed), Ok(there(None, "host", Some(7), &want)));
            }
        }
    }
}
