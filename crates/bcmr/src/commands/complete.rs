//! `complete`: what may stand in the place of a word: options and their values by their definitions, names here, hosts that
//! ssh knows, places of the configuration, and names on another machine while a connection to it is shared.
//!
//! Must never ask anything, nor make a connection: what would is left out. Trouble is no candidates.

use super::child;
use crate::address::{self, Operand};
use crate::cli::bcmr::{self, words};
use crate::cli::gnu::{Personality, Values};
use crate::env::Env;
use crate::names;
use bcmr_engine::event::Cancel;
use bcmr_engine::remote::Address;
use clap_complete::engine;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A file of ssh's is read up to here.
const SSH_BYTES_MAX: u64 = 4 << 20;
/// Candidates at most: nobody chooses among more.
const CANDIDATES_MAX: usize = 2000;
/// Verbs whose operands may be on another machine.
const FAR_VERBS: [&str; 8] = ["copy", "check", "sync", "ls", "stat", "du", "hash", "move"];
/// Verbs whose operand is a host.
const HOST_VERBS: [&str; 2] = ["doctor", "deploy"];

/// What may stand in the word's place, each with a note.
type Candidates = BTreeSet<(OsString, String)>;

/// Prints the candidates for the word at `index`.
pub fn run(index: usize, words: Vec<OsString>, env: &Env) -> u8 {
    let word = words.get(index).cloned().unwrap_or_default();
    // Behind an alias fish gives the alias's name alone.
    if let Some((program, names)) = Personality::of_line(&words)
        && index >= names
    {
        return print(&of_program(program, &words, index));
    }
    let mut found = BTreeSet::new();
    let here = std::env::current_dir().ok();
    let mut command = bcmr::command();
    for candidate in engine::complete(&mut command, words.clone(), index, here.as_deref()).unwrap_or_default()
    {
        let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        let help = help.lines().next().unwrap_or_default().to_owned();
        found.insert((candidate.get_value().to_owned(), help));
    }
    let verb = words.get(1).and_then(|verb| verb.to_str()).unwrap_or_default();
    if index > 1 && !word.as_bytes().starts_with(b"-") {
        let before = words.get(index - 1).cloned().unwrap_or_default();
        let option = command.find_subcommand(verb).and_then(|verb| words::wants_next(verb, &before));
        let wants = option.map(|arg| arg.get_id().as_str());
        let hosts = || known_hosts(env).into_iter().filter(|host| starts(OsStr::new(host), &word));
        match wants {
            None if FAR_VERBS.contains(&verb) => far(&word, env, hosts(), &mut found),
            None if HOST_VERBS.contains(&verb) => {
                found = hosts().map(|host| (host.into(), String::new())).collect()
            }
            Some("target_directory") if FAR_VERBS.contains(&verb) => far(&word, env, hosts(), &mut found),
            Some("jump") => found = hosts().map(|host| (host.into(), String::new())).collect(),
            _ => {}
        }
    }
    print(&found)
}

/// What `cp`, `mv`, `rm` and `install` take: their options and what goes with them, and names here.
fn of_program(program: Personality, words: &[OsString], index: usize) -> Candidates {
    let bytes = |at: usize| words.get(at).map(|word| word.as_bytes()).unwrap_or_default();
    let word = bytes(index);
    let are_over = (0..index).any(|at| bytes(at) == b"--");
    let long = |word: &'_ [u8]| word.strip_prefix(b"--").filter(|_| !are_over).map(<[u8]>::to_vec);
    if let Some(option) = long(word) {
        let Some(end) = option.iter().position(|b| *b == b'=') else {
            let longs = program.long_words().into_iter().map(OsString::from);
            let likely = longs.filter(|long| starts(long, OsStr::from_bytes(word)));
            return likely.map(|long| (long, String::new())).collect();
        };
        let (name, value) = option.split_at(end);
        let (head, value) = word.split_at(word.len() - value.len() + 1);
        return program.values(name).map(|(values, _)| of_values(&values, head, value)).unwrap_or_default();
    }
    let before = index.checked_sub(1).map(bytes).unwrap_or_default();
    if let Some((values, true)) = long(before).and_then(|option| program.values(&option)) {
        return of_values(&values, b"", word);
    }
    if word == b"-" && !are_over {
        return program.long_words().into_iter().map(|long| (OsString::from(long), String::new())).collect();
    }
    names_here(b"", word)
}

/// Values that begin with `value`, behind `head`.
fn of_values(values: &Values, head: &[u8], value: &[u8]) -> Candidates {
    let (before, rest, words) = match values {
        Values::Name => return names_here(head, value),
        Values::Free => return Candidates::new(),
        Values::Words(words) => (&value[..0], value, words),
        Values::List(words) => {
            let comma = value.iter().rposition(|b| *b == b',').map_or(0, |at| at + 1);
            let (before, rest) = value.split_at(comma);
            (before, rest, words)
        }
    };
    let likely = words.iter().filter(|word| word.as_bytes().starts_with(rest));
    let whole = |word: &&str| OsStr::from_bytes(&[head, before, word.as_bytes()].concat()).to_owned();
    likely.map(|word| (whole(word), String::new())).collect()
}

/// Names here that begin with `word`, behind `head`.
fn names_here(head: &[u8], word: &[u8]) -> Candidates {
    // The verb whose operands are names here, and nothing else.
    let words = ["bcmr", "remove", "--"].map(OsString::from).into_iter();
    let words: Vec<OsString> = words.chain([OsStr::from_bytes(word).to_owned()]).collect();
    let here = std::env::current_dir().ok();
    let found = engine::complete(&mut bcmr::command(), words, 3, here.as_deref()).unwrap_or_default();
    let whole = |name: &OsStr| OsStr::from_bytes(&[head, name.as_bytes()].concat()).to_owned();
    found.into_iter().map(|candidate| (whole(candidate.get_value()), String::new())).collect()
}

fn print(found: &Candidates) -> u8 {
    let mut out = String::new();
    for (value, help) in found.iter().take(CANDIDATES_MAX) {
        // A name that a terminal could obey is not typed by completion.
        let Some(value) = value.to_str().filter(|value| !value.chars().any(names::is_unsafe)) else {
            continue;
        };
        out.push_str(&if help.is_empty() {
            format!("{value}\n")
        } else {
            format!("{value}\t{}\n", names::text(help))
        });
    }
    super::verb::print(&out)
}

fn starts(candidate: &OsStr, word: &OsStr) -> bool {
    candidate.as_bytes().starts_with(word.as_bytes())
}

/// Operands that are not here: places, hosts, and names on one.
fn far(word: &OsStr, env: &Env, hosts: impl Iterator<Item = String>, found: &mut Candidates) {
    if word.as_bytes().starts_with(b"@") {
        let config = super::configuration::configuration(env).unwrap_or_default();
        for (name, place) in config.places() {
            let name = OsString::from(format!("@{name}"));
            if starts(&name, word) {
                found.insert((name, place.clone()));
            }
        }
    } else if let Ok(Operand::There(there)) = address::parse(Path::new(word)) {
        found.extend(names_there(&there, word).into_iter().map(|name| (name, String::new())));
    } else if !word.as_bytes().contains(&b'/') {
        found.extend(hosts.map(|host| (format!("{host}:").into(), "host".to_owned())));
    }
}

/// Names on another machine, where a connection to it is shared that is there already: nothing is asked.
fn names_there(there: &Address, word: &OsStr) -> Vec<OsString> {
    let host = address::machine(there);
    let run = |words: Vec<OsString>| {
        let answer = child::run(&words, None, &Cancel::new()).ok()?;
        answer.status.success().then_some(answer.out)
    };
    let ssh = |more: &[&str]| -> Vec<OsString> {
        let quiet = ["ssh", "-o", "BatchMode=yes", "-o", "ControlMaster=no"];
        quiet.into_iter().chain(more.iter().copied()).map(OsString::from).collect()
    };
    if run(ssh(&["-O", "check", "--", &host])).is_none() {
        return Vec::new();
    }
    let typed = there.path.as_os_str().as_bytes();
    let end = typed.iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1);
    let dir = OsStr::from_bytes(typed.get(..end).unwrap_or_default());
    let dir = if dir.is_empty() { "./".to_owned() } else { names::shell_word(dir) };
    let Some(out) = run(ssh(&["-o", "ConnectTimeout=3", "--", &host, &format!("LC_ALL=C ls -1ap -- {dir}")]))
    else {
        return Vec::new();
    };
    let stem = word.as_bytes().len() - typed.len().saturating_sub(end).min(word.len());
    let stem = word.as_bytes().get(..stem).unwrap_or_default();
    let beginning = typed.get(end..).unwrap_or_default();
    let is_name = |name: &&[u8]| {
        !matches!(*name, b"./" | b"../" | b"")
            && name.starts_with(beginning)
            && (beginning.first() == Some(&b'.') || name.first() != Some(&b'.'))
    };
    out.split(|b| *b == b'\n')
        .filter(is_name)
        .map(|name| OsStr::from_bytes(&[stem, name].concat()).to_owned())
        .collect()
}

/// Hosts that ssh knows, by its configuration and by the keys it has seen.
fn known_hosts(env: &Env) -> BTreeSet<String> {
    let read = |name: &str| {
        let mut text = Vec::new();
        let file = File::open(env.home.join(".ssh").join(name));
        // What cannot be read says nothing.
        let _read = file.and_then(|file| file.take(SSH_BYTES_MAX).read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    };
    let mut hosts = of_config(&read("config"));
    hosts.extend(of_known_hosts(&read("known_hosts")));
    // What ssh would not take for a host alone is none.
    hosts.retain(|host| matches!(address::parse(Path::new(&format!("{host}:"))), Ok(Operand::There(_))));
    hosts
}

/// `Host` lines without patterns.
fn of_config(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter_map(|line| {
        let (key, rest) = line.trim().split_once(|c: char| c.is_whitespace() || c == '=')?;
        key.eq_ignore_ascii_case("host").then_some(rest)
    });
    let words = lines.flat_map(|rest| rest.split(|c: char| c.is_whitespace() || c == '='));
    let is_host = |word: &&str| !word.is_empty() && !word.contains(['*', '?', '!', '"']);
    words.filter(is_host).map(str::to_owned).collect()
}

/// Names and addresses that are not hashed, without their ports.
fn of_known_hosts(text: &str) -> BTreeSet<String> {
    let fields = text
        .lines()
        .filter(|line| !line.starts_with(['#', '|', '@']))
        .filter_map(|line| line.split(' ').next());
    let names = fields.flat_map(|field| field.split(','));
    let bare = |name: &str| match name.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, _)) => name.to_owned(),
        None => name.to_owned(),
    };
    let is_host = |name: &String| !name.is_empty() && !name.contains(['*', '?', '!', ':', '|']);
    names.map(bare).filter(is_host).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_ssh() {
        let config =
            "Host nas backup\n  HostName 10.0.0.1\nhost *.example !bad jump\nHOST=equal\nMatch host x\n";
        let want = ["backup", "equal", "jump", "nas"].map(str::to_owned).into();
        assert_eq!(of_config(config), want);
        let known = "nas,10.0.0.1 ssh-ed25519 A\n|1|hashed= ssh-rsa B\n[far]:2222 ssh-rsa C\n@revoked x ssh-rsa D\n\
                     # text\n*.wild ssh-rsa E\n::1 ssh-rsa F\n";
        assert_eq!(of_known_hosts(known), ["10.0.0.1", "far", "nas"].map(str::to_owned).into());
    }
}
