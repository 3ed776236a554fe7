//! Where there is no bcmr on the other side: a copy by `scp`, which speaks SFTP.
//!
//! Must not decide whether that is good enough; what would be lost is known before (`cli`) and said before
//! (`remote`). Never the old protocol of scp, in which a shell over there reads file names.

use super::child;
use crate::address;
use crate::cli::bcmr::operands::Places;
use crate::cli::bcmr::remote::RemoteJob;
use crate::say;
use bcmr_engine::error::{Code, Error, Op, Result};
use bcmr_engine::event::{Cancel, Event, Summary, Watch};
use bcmr_engine::peer::ssh_socket;
use bcmr_engine::policy::{CopyPolicy, Target};
use bcmr_engine::remote::{Address, Way};
use bcmr_engine::verbs::written_through::link_in_the_way;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Copies with scp. Items that fail are scp's to name; what it said comes with the error.
///
/// # Errors
/// scp cannot be used here, or cannot be started.
pub fn copy(job: &RemoteJob, way: &Way, watch: Watch<'_>) -> Result<Summary> {
    let host = job.places.address().map(address::machine).unwrap_or_default();
    if let Places::Get { from, target } = &job.places {
        // V12: scp writes through whatever link has a name.
        if let Some(link) = link_in_the_way(from, target, &job.policy)? {
            return Err(Error::ours(Code::Refused, Op::CopyByScpTo, link, say::LINK_IN_THE_WAY.to_owned()));
        }
    }
    let words = scp_words(way, &job.places, &job.policy, &host)?;
    let answer = child::run(&words, None, watch.cancel).map_err(|e| Error::os(Op::Run, "scp", e))?;
    let mut summary = Summary { cancelled: watch.cancel.is_set(), ..Summary::default() };
    if !answer.status.success() && !summary.cancelled {
        watch.front.event(Event::Failed(Error::ours(Code::Io, Op::CopyByScp, host, answer.last_words())));
        summary.failed = 1;
        summary.codes.push(Code::Io);
    }
    Ok(summary)
}

fn scp_words(way: &Way, places: &Places, policy: &CopyPolicy, host: &str) -> Result<Vec<OsString>> {
    let mut words: Vec<OsString> = vec!["scp".into(), "-s".into(), "-q".into()];
    match way.ssh.as_slice() {
        [one] if one == "ssh" => {}
        [one] => words.extend(["-S".into(), one.clone()]),
        _ => {
            let note =
                "scp, which would copy instead, takes no connecting command of several words".to_owned();
            return Err(Error::ours(Code::NoPeer, Op::UseBcmrOn, host, note));
        }
    }
    words.extend(way.options.iter().cloned());
    if let Some(socket) = ssh_socket(way) {
        let mut option = OsString::from("ControlPath=");
        option.push(socket);
        words.extend(["-o".into(), option]);
    }
    if policy.recursive {
        words.push("-r".into());
    }
    if let Some(port) = places.address().and_then(|a| a.port) {
        words.extend(["-P".into(), port.to_string().into()]);
    }
    // L1: nothing behind this is an option.
    words.push("--".into());
    match places {
        Places::Here | Places::Between { .. } => {}
        Places::Put { sources, to, target } => {
            words.extend(sources.iter().map(|s| local(s)));
            words.push(there(to, within(&target(to.path.clone())).as_bytes(), false));
        }
        Places::Get { from, target } => {
            words.extend(from.iter().map(|a| there(a, a.path.as_os_str().as_bytes(), true)));
            words.push(local(Path::new(&within(target))));
        }
    }
    Ok(words)
}

/// Into a directory that must exist: below its own `.`, which nothing makes.
fn within(target: &Target) -> OsString {
    let mut path = target.path().clone().into_os_string();
    if matches!(target, Target::Into(_)) {
        path.push(if path.is_empty() { "." } else { "/." });
    }
    path
}

/// scp takes a name with a colon for an address, unless a slash comes first.
fn local(path: &Path) -> OsString {
    if path.is_absolute() {
        return path.as_os_str().to_owned();
    }
    let mut word = OsString::from("./");
    word.push(path);
    word
}

/// As scp writes it. A source is a pattern to scp, so what a pattern would hold is escaped.
fn there(a: &Address, path: &[u8], pattern: bool) -> OsString {
    let user = a.user.as_ref().map(|u| format!("{u}@")).unwrap_or_default();
    let host = if a.host.contains(':') { format!("[{}]", a.host) } else { a.host.clone() };
    let mut word = format!("{user}{host}:").into_bytes();
    // To scp a path that begins with `~` is a user's home directory.
    if path.first() == Some(&b'~') {
        word.extend_from_slice(b"./");
    }
    for byte in path {
        if pattern && matches!(byte, b'*' | b'?' | b'[' | b']' | b'{' | b'}' | b'\\') {
            word.push(b'\\');
        }
        word.push(*byte);
    }
    OsString::from_vec(word)
}

/// Whether the program can be started at all, for `doctor`.
pub fn is_there() -> bool {
    // Without arguments it tells how it is used.
    child::run(&["scp".into()], None, &Cancel::new()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::bcmr::{Command, copy, operands, parse};
    use crate::config::Config;
    use crate::env::Env;
    use std::ffi::OsStr;

    fn words(line: &str) -> Result<Vec<OsString>> {
        let argv = std::iter::once("bcmr").chain(line.split_whitespace());
        let Command::Copy(a) = parse(argv).unwrap().command else { panic!("{line}") };
        let places = operands::places(&a.operands, &a.connect, &|_| false).unwrap();
        let job = copy::remote(&a, places, &Config::default(), &Env::read()).unwrap();
        scp_words(&job.reach.way, &job.places, &job.policy, "h")
    }

    #[test]
    fn an_argument_vector_and_no_shell() {
        for (line, want) in [
            ("copy a h:b", "scp -s -q -- ./a h:b"),
            ("copy -r a b/ me@h:", "scp -s -q -r -- ./a ./b/ me@h:"),
            ("copy -t h:d /a ./c:d", "scp -s -q -- /a ././c:d h:d/."),
            ("copy -t h: a", "scp -s -q -- ./a h:."),
            ("copy h:a h:b .", "scp -s -q -- h:a h:b ./."),
            ("copy -t d h:a", "scp -s -q -- h:a ./d/."),
            ("copy [::1]:a b", "scp -s -q -- [::1]:a ./b"),
            ("copy ssh://me@h:22/a%20b/$(c) b", "scp -s -q -P 22 -- me@h:/a b/$(c) ./b"),
            ("copy h:a*[b]?\\{x} c", "scp -s -q -- h:a\\*\\[b\\]\\?\\\\\\{x\\} ./c"),
            ("copy a h:b*", "scp -s -q -- ./a h:b*"),
            ("copy h:./~root/x c", "scp -s -q -- h:./~root/x ./c"),
            ("copy ssh://h/~/~root/x c", "scp -s -q -- h:./~root/x ./c"),
            ("copy a ssh://h/~/~root", "scp -s -q -- ./a h:./~root"),
            ("copy a h:./~", "scp -s -q -- ./a h:./~"),
            ("copy a h:~/b", "scp -s -q -- ./a h:b"),
            ("copy a h:/~b", "scp -s -q -- ./a h:/~b"),
            ("copy -oA=1 -Jj -Ff --identity k a h:b", "scp -s -q -o A=1 -J j -F f -i k -- ./a h:b"),
            ("copy --ssh=/opt/ssh a h:b", "scp -s -q -S /opt/ssh -- ./a h:b"),
            ("copy -- -a h:-b", "scp -s -q -- ./-a h:-b"),
        ] {
            assert_eq!(words(line).unwrap().join(OsStr::new(" ")), want, "{line}");
        }
        let argv = ["bcmr", "copy", "--ssh", "ssh -4", "a", "h:b"];
        let Command::Copy(a) = parse(argv).unwrap().command else { panic!() };
        let places = operands::places(&a.operands, &a.connect, &|_| false).unwrap();
        let job = copy::remote(&a, places, &Config::default(), &Env::read()).unwrap();
        assert_eq!(scp_words(&job.reach.way, &job.places, &job.policy, "h").unwrap_err().code, Code::NoPeer);
    }

    /// V12: scp writes through links, so it is not let at any.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "tests look from outside")]
    fn links_in_the_way_of_scp() {
        use std::os::unix::fs::symlink;
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        std::fs::create_dir_all(at("d/x/deep")).unwrap();
        std::fs::create_dir_all(at("plain/x")).unwrap();
        std::fs::write(at("file"), "").unwrap();
        symlink("../../..", at("d/x/deep/l")).unwrap();
        symlink("nowhere", at("d/y")).unwrap();
        symlink("d", at("away")).unwrap();
        symlink("file", at("l")).unwrap();
        for (line, refused) in [
            ("copy h:x @/l", true),
            ("copy h:x @/file", false),
            ("copy h:x @/new", false),
            ("copy --follow-destination h:x @/l", false),
            ("copy h:y @/d", true),
            ("copy h:a h:y @/d", true),
            ("copy h:a/y @/d/", true),
            ("copy -r h:x @/d", true),
            ("copy -r h:x @/plain", false),
            ("copy -r --follow-destination h:x @/d", false),
            ("copy -r h:q/. @/d", true),
            ("copy h:x @/d", false),
            ("copy -r h:x @/away", true),
            ("copy h:z @/away/", false),
            ("copy -t @/away h:y", true),
        ] {
            let line = line.replace('@', &top.path().display().to_string());
            let argv = std::iter::once("bcmr").chain(line.split_whitespace());
            let Command::Copy(a) = parse(argv).unwrap().command else { panic!("{line}") };
            let places = operands::places(&a.operands, &a.connect, &|_| false).unwrap();
            let job = copy::remote(&a, places, &Config::default(), &Env::read()).unwrap();
            let Places::Get { from, target } = &job.places else { panic!("{line}") };
            let found = link_in_the_way(from, target, &job.policy);
            assert_eq!(!matches!(found, Ok(None)), refused, "{line}: {found:?}");
        }
    }
}
