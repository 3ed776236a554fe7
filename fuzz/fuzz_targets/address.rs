//! Operands as typed: what is local stays as it is, and no address holds anything that ssh or a shell obeys.
#![no_main]

#[path = "../../crates/bcmr/src/address.rs"]
#[allow(dead_code)] // the program's own file, of which this needs a part
mod address;
#[path = "../../crates/bcmr/src/names.rs"]
#[allow(dead_code)]
mod names;
#[path = "../../crates/bcmr/src/usage.rs"]
mod usage;

use address::Operand;
use bcmr_engine::remote::Address;
use libfuzzer_sys::fuzz_target;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    // No word of a command line holds one.
    if data.contains(&0) {
        return;
    }
    let before = |stop: u8| data.iter().position(|b| *b == stop).unwrap_or(data.len());
    let (slash, colon) = (before(b'/'), before(b':'));
    match address::parse(Path::new(OsStr::from_bytes(data))) {
        Ok(Operand::Here(path)) => {
            assert_eq!(path.as_os_str().as_bytes(), data);
            assert!(slash < colon || colon == data.len(), "a colon comes first, and it is local");
        }
        Ok(Operand::There(a)) => {
            assert!(colon < slash, "a slash comes first, and it is far");
            judge(&a);
            for typed in typed(&a) {
                let again = address::parse(Path::new(OsStr::from_bytes(&typed)));
                assert_eq!(again, Ok(Operand::There(a.clone())), "{}", String::from_utf8_lossy(&typed));
            }
        }
        Err(e) => told(&e),
    }
    match address::parse_host(OsStr::from_bytes(data)) {
        Ok(a) => {
            judge(&a);
            let shown = address::machine(&a);
            if a.port.is_none() {
                let again = address::parse_host(OsStr::new(&shown)).expect("a machine as it is shown");
                assert!(address::same_machine(&a, &again), "{shown}");
            }
        }
        Err(e) => told(&e),
    }
});

/// What stands in ssh's argument vector is a word, and no option.
fn judge(a: &Address) {
    for word in a.user.iter().chain([&a.host]) {
        assert!(!word.is_empty() && !word.starts_with('-'), "{a:?}");
        let bad = |c: char| c.is_control() || c.is_whitespace() || "'\"`$\\;&|<>(){}[]*?!#~^,=/".contains(c);
        assert!(!word.contains(bad), "{a:?}");
    }
    assert!(a.port != Some(0) && !a.path.as_os_str().as_bytes().contains(&0), "{a:?}");
}

/// What a person reads holds nothing that steers a terminal.
fn told(e: &usage::Usage) {
    assert!(!e.said.is_empty() && !e.said.chars().any(names::is_unsafe), "{}", e.said);
}

/// The ways to type it.
fn typed(a: &Address) -> Vec<Vec<u8>> {
    let path = a.path.as_os_str().as_bytes();
    let absolute = path.starts_with(b"/");
    let mut ways = Vec::new();
    let encoded = |bytes: &[u8]| bytes.iter().map(|b| format!("%{b:02x}")).collect::<String>();
    let (host, url_host) = if a.host.contains(':') {
        (format!("[{}]", a.host), format!("[{}]", a.host.replacen('%', "%25", 1)))
    } else {
        (a.host.clone(), a.host.clone())
    };
    // Two slashes behind the colon are a URL's.
    if a.port.is_none() && !path.starts_with(b"//") {
        let user = a.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
        let home = if absolute { "" } else { "~/" };
        ways.push([format!("{user}{host}:{home}").as_bytes(), path].concat());
    }
    // A URL has no word for what begins with a tilde at the root.
    if !path.starts_with(b"/~") {
        let user = a.user.as_ref().map(|user| format!("{}@", encoded(user.as_bytes()))).unwrap_or_default();
        let port = a.port.map(|port| format!(":{port}")).unwrap_or_default();
        let rest =
            if absolute { format!("/{}", encoded(&path[1..])) } else { format!("/~/{}", encoded(path)) };
        ways.push(format!("ssh://{user}{url_host}{port}{rest}").into_bytes());
    }
    ways
}
