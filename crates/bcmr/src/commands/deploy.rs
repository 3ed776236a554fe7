//! `deploy`, and what `--bootstrap` does: this program into the cache of a host that lacks it.
//!
//! Must not copy anything else, nor decide when it is wanted. What runs over there are two lines for `sh` that are
//! constant but for our own name, size and hash; whatever they answer is believed only as far as it can be checked.

use super::child::{self, Answer};
use crate::address;
use bcmr_engine::error::{Code, Error, Op, Result};
use bcmr_engine::event::Cancel;
use bcmr_engine::peer::{ssh_said, ssh_words};
use bcmr_engine::remote::{Address, Way};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Ourselves, also when the file has another name by now.
const EXE: &str = "/proc/self/exe";
const VERSION: &str = concat!("bcmr ", env!("CARGO_PKG_VERSION"));
/// Where programs are kept over there; `$d` in what follows. A relative XDG_CACHE_HOME counts as none.
const DIR: &str = concat!(
    r#"d="${XDG_CACHE_HOME:-${HOME:?is not set}/.cache}"; case "$d" in /*) ;; *) d="${HOME:?is not set}/.cache" ;; esac; "#,
    r#"d="$d/bcmr/bin""#
);

/// `safe DIRECTORY leaf` is true where no other user but root can put anything into it: it and the directories above, up to the
/// home, as named and as they are without symbolic links, are ours or root's, and neither group nor others may write to them.
/// Above it the sticky bit is as good; `safe DIRECTORY above` takes it for one of these. Else `$b` is the one that is not.
const SAFE: &str = concat!(
    r#"set -f; u="$(id -u)"; walk() { p="$1"; w="$2"; while :; do b="$p"; set -- $(ls -ldnL "$p" 2> /dev/null); "#,
    r#"case "$3" in 0|"$u") ;; *) return 1 ;; esac; "#,
    r#"case "$w$1" in above?????????[tT]*) ;; leaf?????w*|leaf????????w*|above?????w*|above????????w*) return 1 ;; esac; "#,
    r#"if [ "$p" = "$HOME" ] || [ "$p" = "$h" ] || [ "$p" = / ]; then return 0; fi; "#,
    r#"w=above; p="${p%/*}"; p="${p:-/}"; done; }; "#,
    r#"safe() { h="$(cd "$HOME" && pwd -P)"; walk "$1" "$2" && walk "$(cd "$1" && pwd -P)" "$2"; }; "#
);

/// This very program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// What it is called in a cache: version and hash, so that no two programs share a name.
    name: String,
    /// Bytes.
    size: u64,
    /// BLAKE3 in hexadecimal.
    blake3: String,
    /// SHA-256 in hexadecimal, when this machine has a program that tells it.
    sha256: Option<String>,
}

/// What there is at the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct There {
    /// As `uname -sm` says it.
    pub system: String,
    /// This very program, in its cache.
    pub program: Option<String>,
    /// A directory on the way to what lies in its cache, into which other users may write: that is not run.
    pub open: Option<String>,
    /// Why nothing can be put into its cache, as far as one sees without trying.
    pub shut: Option<String>,
    /// A bcmr that is installed where programs of a user's own lie, of whatever version. A shell that is no login shell
    /// does not look there.
    pub installed: Option<String>,
}

/// Looks at ourselves.
pub fn own(cancel: &Cancel) -> Result<Own> {
    let fail = |e| Error::os(Op::Read, EXE, e);
    let mut file = File::open(EXE).map_err(fail)?;
    let mut hasher = blake3::Hasher::new();
    let mut room = vec![0; 256 << 10];
    let mut size = 0;
    loop {
        match file.read(&mut room) {
            Ok(0) => break,
            Ok(n) => {
                hasher.update(room.get(..n).unwrap_or_default());
                size += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(fail(e)),
        }
    }
    let hash = hasher.finalize().to_hex();
    let name = format!("bcmr-{}-{}", env!("CARGO_PKG_VERSION"), hash.as_str().get(..16).unwrap_or_default());
    // Beside the length, so where there is no such program nothing is lost but a second witness.
    let sum = child::run(&["sha256sum".into()], Some(File::open(EXE).map_err(fail)?), cancel);
    let sha256 = sum.ok().filter(|answer| answer.status.success()).and_then(|answer| {
        let text = String::from_utf8(answer.out).ok()?;
        let hex = text.split_whitespace().next()?;
        (hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit())).then(|| hex.to_owned())
    });
    Ok(Own { name, size, blake3: hash.as_str().to_owned(), sha256 })
}

/// What `uname -sm` says of this machine.
pub fn here() -> String {
    let system = if std::env::consts::OS == "linux" { "Linux" } else { std::env::consts::OS };
    format!("{system} {}", std::env::consts::ARCH)
}

/// Looks what system there is, whether its cache has this program, and whether one is installed aside; changes nothing.
///
/// # Errors
/// [`Code::Lost`] when ssh does not get there, [`Code::Protocol`] when no shell of the usual kind answers.
pub fn probe(a: &Address, way: &Way, own: &Own, cancel: &Cancel) -> Result<There> {
    let answer = ask(a, way, &look_script(own), None, cancel)?;
    let said = |key: &str| value(&answer, key);
    let Some(system) = said("system") else {
        return Err(no_shell(a, &answer));
    };
    // A cache whose path is odd is one that holds nothing: its name will have to pass a shell.
    let program = said("dir").map(|dir| format!("{dir}/{}", own.name)).filter(|p| is_plain(p));
    let installed = said("installed").filter(|p| is_plain(p));
    let program = program.filter(|_| is_own(own, &answer));
    Ok(There { system, program, open: said("open"), shut: said("shut"), installed })
}

/// Whether what lies in the cache there is this very program, by its hash. Where no program tells one it is taken for
/// another, and is replaced: a CRC or a size can be made to fit.
fn is_own(own: &Own, answer: &Answer) -> bool {
    let told = |key| value(answer, key).and_then(|s| s.split_whitespace().next().map(str::to_owned));
    let sha256 = own.sha256.as_ref().zip(told("sha256")).map(|(ours, theirs)| *ours == theirs);
    let blake3 = told("b3").map(|theirs| own.blake3 == theirs);
    sha256.or(blake3).is_some() && [sha256, blake3].iter().flatten().all(|same| *same)
}

/// Puts this program there and says what it is called. Only on the same system and kind of processor.
///
/// # Errors
/// As [`probe`]; or it is another system, has no room, or does not run this program.
pub fn put(a: &Address, way: &Way, own: &Own, there: &There, cancel: &Cancel) -> Result<String> {
    let refuse = |note: String| Error::ours(Code::Unsupported, Op::PutBcmrOn, address::machine(a), note);
    if there.system != here() {
        return Err(refuse(format!("this program is for {} and that machine is {}", here(), there.system)));
    }
    let exe = File::open(EXE).map_err(|e| Error::os(Op::Read, EXE, e))?;
    let answer = ask(a, way, &put_script(own), Some(exe), cancel)?;
    match value(&answer, "put") {
        Some(program) if answer.status.success() && is_plain(&program) => Ok(program),
        Some(program) if answer.status.success() => {
            Err(refuse(format!("its cache has a name that cannot be used: {program}")))
        }
        _ => Err(refuse(value(&answer, "bad").unwrap_or_else(|| answer.last_words()))),
    }
}

fn ask(a: &Address, way: &Way, script: &str, input: Option<File>, cancel: &Cancel) -> Result<Answer> {
    over_ssh(a, &ssh_words(a, way, &format!("sh -c '{script}'"))?, input, cancel)
}

/// Runs what an ssh with these words runs there, to its end.
///
/// # Errors
/// ssh cannot be run or does not connect, or a stop was asked for.
pub(super) fn over_ssh(
    a: &Address,
    words: &[OsString],
    input: Option<File>,
    cancel: &Cancel,
) -> Result<Answer> {
    let program = words.first().cloned().unwrap_or_default();
    let answer = child::run(words, input, cancel).map_err(|e| Error::os(Op::Run, Path::new(&program), e))?;
    if cancel.is_set() {
        return Err(Error::ours(Code::Interrupted, Op::ConnectTo, address::machine(a), "stopped".to_owned()));
    }
    // 255 is ssh's own.
    if answer.status.code() == Some(255) {
        let (code, said) = ssh_said(&answer.last_words());
        return Err(Error::ours(code, Op::ConnectTo, address::machine(a), said));
    }
    Ok(answer)
}

fn no_shell(a: &Address, answer: &Answer) -> Error {
    let note = format!("no shell answers there: {}", answer.last_words());
    Error::ours(Code::Protocol, Op::RunACommandOn, address::machine(a), note)
}

/// Lines of ours begin with a word that nothing else over there says: a shell's start-up files may print anything.
fn value(answer: &Answer, key: &str) -> Option<String> {
    let text = String::from_utf8_lossy(&answer.out);
    let prefix = format!("bcmr-{key} ");
    text.lines().find_map(|line| line.strip_prefix(&prefix)).map(str::to_owned)
}

/// An absolute path that every shell reads as one word.
fn is_plain(path: &str) -> bool {
    path.starts_with('/')
        && path.len() < 4096
        && path.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '/' | '+' | '-'))
}

/// One line without `'`, `!`, `\` and newlines, so that every login shell passes it to `sh` as it is.
fn look_script(own: &Own) -> String {
    let name = &own.name;
    format!(
        r#"echo "bcmr-system $(uname -sm)"; {DIR}; echo "bcmr-dir $d"; {SAFE}f="$d/{name}"; if [ -f "$f" ] && [ -x "$f" ] && [ -O "$f" ]; then if safe "$d" leaf; then for c in sha256 b3; do if command -v "$c"sum > /dev/null 2>&1; then echo "bcmr-$c $("$c"sum < "$f")"; fi; done; else echo "bcmr-open $b"; fi; fi; a="$d"; k=leaf; until [ -e "$a" ]; do a="${{a%/*}}"; a="${{a:-/}}"; k=above; done; if safe "$a" $k; then [ -w "$a" ] || echo "bcmr-shut cannot write into $a"; else echo "bcmr-shut others may write into $b (chmod go-w forbids it)"; fi; for p in "$HOME/.cargo/bin/bcmr" "$HOME/.local/bin/bcmr" /usr/local/bin/bcmr; do if [ -f "$p" ] && [ -x "$p" ]; then echo "bcmr-installed $p"; fi; done"#
    )
}

/// Staged under a name that is not taken, complete and proved before it gets its own.
fn put_script(own: &Own) -> String {
    let Own { name, size, sha256, .. } = own;
    let hash = match sha256 {
        Some(hash) => format!(
            r#"if command -v sha256sum > /dev/null 2>&1; then s="$(sha256sum < "$t")"; [ "${{s%% *}}" = {hash} ] || no "it arrived damaged"; fi; "#
        ),
        None => String::new(),
    };
    format!(
        r#"umask 077; {DIR}; f="$d/{name}"; t="$d/.{name}.$$"; no() {{ echo "bcmr-bad $1"; exit 1; }}; mkdir -p "$d" || no "cannot make $d"; [ -O "$d" ] || no "$d belongs to another user"; {SAFE}safe "$d" leaf || no "others may write into $b (chmod go-w forbids it)"; trap r EXIT; r() {{ rm -f "$t"; }}; trap "exit 1" HUP INT TERM; set -C; cat > "$t" || no "cannot write into $d"; set +C; chmod 700 "$t" || no "cannot make it executable"; [ "$(wc -c < "$t")" -eq {size} ] || no "it did not arrive whole"; {hash}v="$("$t" --version 2>&1)"; [ "$v" = "{VERSION}" ] || no "it does not run there: $v"; mv -f "$t" "$f" || no "cannot rename it"; echo "bcmr-put $f""#
    )
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look from outside")]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::process::Command;

    fn own_of(script: &Path) -> Own {
        let bytes = std::fs::read(script).unwrap();
        let sum = Command::new("sha256sum").arg(script).output().unwrap();
        let sha256 = String::from_utf8(sum.stdout).unwrap().split(' ').next().map(str::to_owned);
        let blake3 = blake3::hash(&bytes).to_hex().as_str().to_owned();
        Own { name: "bcmr-0-abc".into(), size: bytes.len() as u64, blake3, sha256 }
    }

    /// Another program that answers as we would.
    fn stand_in(dir: &Path, says: &str) -> PathBuf {
        let file = dir.join("program");
        std::fs::write(&file, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
        file
    }

    /// Runs a script as a login shell over there does.
    fn there(home: &Path, shell: &str, script: &str, input: &Path) -> Answer {
        let out = Command::new(shell)
            .args(["-c", &format!("sh -c '{script}'")])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", home)
            .stdin(File::open(input).unwrap())
            .output()
            .unwrap();
        Answer { status: out.status, out: out.stdout, err: out.stderr }
    }

    #[test]
    fn scripts_pass_every_login_shell() {
        let hash = "0".repeat(64);
        let own = Own { name: "bcmr-0-abc".into(), size: 5, blake3: hash.clone(), sha256: Some(hash) };
        for script in [look_script(&own), put_script(&own)] {
            assert!(!script.contains(['\'', '!', '\\', '\n']), "{script}");
        }
    }

    #[test]
    fn a_program_is_put_whole_or_not_at_all() {
        let top = tempfile::tempdir().unwrap();
        let home = top.path().join("ho me");
        make(&home, 0o755);
        let program = stand_in(top.path(), VERSION);
        let own = own_of(&program);
        let bin = home.join(".cache/bcmr/bin");
        let names = || -> Vec<String> {
            std::fs::read_dir(&bin)
                .map(|d| d.map(|e| e.unwrap().file_name().into_string().unwrap()).collect())
                .unwrap_or_default()
        };
        let look = |own: &Own| there(&home, "sh", &look_script(own), Path::new("/dev/null"));
        assert!(!is_own(&own, &look(&own)));
        assert_eq!(value(&look(&own), "shut"), None, "it can be made");
        assert_eq!(value(&look(&own), "system"), Some(here()));

        for (bad, why) in [
            (Own { size: own.size + 1, ..own.clone() }, "it did not arrive whole"),
            (Own { sha256: Some("0".repeat(64)), ..own.clone() }, "it arrived damaged"),
        ] {
            let answer = there(&home, "sh", &put_script(&bad), &program);
            assert_eq!(value(&answer, "bad").as_deref(), Some(why), "{answer:?}");
            assert!(!answer.status.success() && names().is_empty(), "{:?}", names());
        }
        let other = stand_in(&home, "bcmr 9");
        let answer = there(&home, "sh", &put_script(&own_of(&other)), &other);
        assert_eq!(value(&answer, "bad").as_deref(), Some("it does not run there: bcmr 9"));
        assert!(names().is_empty());

        let answer = there(&home, "sh", &put_script(&own), &program);
        assert_eq!(value(&answer, "put").as_deref(), bin.join("bcmr-0-abc").to_str(), "{answer:?}");
        assert_eq!(names(), ["bcmr-0-abc"]);
        let mode = |p: &Path| std::fs::metadata(p).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&bin), mode(&bin.join("bcmr-0-abc"))), (0o700, 0o700));
        assert!(is_own(&own, &look(&own)));
        // Installed by hand, where only a login shell looks.
        assert_eq!(value(&look(&own), "installed"), None);
        for (dir, mode) in [(".local/bin", 0o755), (".cargo/bin", 0o644)] {
            let file = home.join(dir).join("bcmr");
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let local = home.join(".local/bin/bcmr");
        assert_eq!(value(&look(&own), "installed").as_deref(), local.to_str(), "and can be run");
        // A truncated one is none, and neither is another of the same size.
        let changed = std::fs::read(&program).unwrap().to_ascii_uppercase();
        assert_eq!(changed.len() as u64, own.size);
        for bytes in [&b"x"[..], &changed] {
            std::fs::write(bin.join("bcmr-0-abc"), bytes).unwrap();
            assert!(!is_own(&own, &look(&own)));
        }
    }

    fn make(dir: &Path, mode: u32) {
        std::fs::create_dir_all(dir).unwrap();
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Who may write into a directory on the way can put another program there at any time.
    #[test]
    fn a_cache_that_others_may_write_to_is_not_used() {
        let top = tempfile::tempdir().unwrap();
        let home = top.path().join("ho me");
        let (cache, bin) = (home.join(".cache"), home.join(".cache/bcmr/bin"));
        let program = stand_in(top.path(), VERSION);
        let own = own_of(&program);
        let dirs = [&home, &cache, &home.join(".cache/bcmr"), &bin];
        let close = || dirs.iter().for_each(|dir| make(dir, 0o755));
        let look = || there(&home, "sh", &look_script(&own), Path::new("/dev/null"));
        let put = || there(&home, "sh", &put_script(&own), &program);
        close();
        assert!(value(&put(), "put").is_some() && is_own(&own, &look()));
        for dir in dirs {
            for mode in [0o775, 0o757, 0o777] {
                make(dir, mode);
                let (looked, tried) = (look(), put());
                assert!(!is_own(&own, &looked), "{dir:?} {mode:o}");
                assert_eq!(value(&looked, "open").as_deref(), dir.to_str(), "{looked:?}");
                let why = format!("others may write into {} (chmod go-w forbids it)", dir.display());
                assert_eq!((value(&tried, "bad"), value(&tried, "put")), (Some(why.clone()), None));
                // It is known before anything is tried, and before all of it is there.
                assert_eq!(value(&looked, "shut"), Some(why));
            }
            close();
        }
        std::fs::remove_dir_all(&bin).unwrap();
        assert_eq!(value(&look(), "shut"), None);
        make(&home.join(".cache/bcmr"), 0o775);
        let (shut, bad) = (value(&look(), "shut"), value(&put(), "bad"));
        assert!(shut.is_some() && shut == bad, "{shut:?} {bad:?}");
        close();
        assert!(value(&put(), "put").is_some());
        // With the sticky bit only an owner renames what is in a directory; into the last one a stranger could still put.
        make(&cache, 0o1777);
        assert!(is_own(&own, &look()));
        close();
        make(&bin, 0o1777);
        assert!(!is_own(&own, &look()));
        close();
        // A link on the way: what it leads through counts as well.
        let open = top.path().join("open");
        make(&open, 0o755);
        std::fs::rename(&cache, open.join("cache")).unwrap();
        std::os::unix::fs::symlink(open.join("cache"), &cache).unwrap();
        assert!(is_own(&own, &look()));
        make(&open, 0o777);
        assert!(!is_own(&own, &look()) && value(&put(), "put").is_none());
    }

    fn answer(out: &str) -> Answer {
        let status = Command::new("true").status().unwrap();
        Answer { status, out: out.as_bytes().to_vec(), err: Vec::new() }
    }

    #[test]
    fn only_a_hash_tells_our_own() {
        let (right, wrong) = ("a".repeat(64), "b".repeat(64));
        let both = Own { name: String::new(), size: 1, blake3: right.clone(), sha256: Some(right.clone()) };
        let one = Own { sha256: None, ..both.clone() };
        for (own, sha256, b3, is) in [
            (&both, Some(&right), None, true),
            (&both, None, Some(&right), true),
            (&both, Some(&right), Some(&right), true),
            (&both, Some(&right), Some(&wrong), false),
            (&both, Some(&wrong), Some(&right), false),
            (&both, None, None, false),
            (&one, Some(&right), None, false),
            (&one, Some(&wrong), Some(&right), true),
        ] {
            let line = |key, hash: Option<&String>| {
                hash.map(|hash| format!("bcmr-{key} {hash}  -\n")).unwrap_or_default()
            };
            let said = format!("{}{}", line("sha256", sha256), line("b3", b3));
            assert_eq!(is_own(own, &answer(&said)), is, "{said}");
        }
    }

    #[test]
    fn what_start_up_files_print_is_passed_over() {
        let noisy = answer("Welcome!\nbcmr-dirty x\n bcmr-dir y\nbcmr-dir /home/me\n\u{1b}[2J");
        assert_eq!(value(&noisy, "dir").as_deref(), Some("/home/me"));
        assert_eq!(value(&noisy, "sha256"), None);
    }

    #[test]
    fn what_is_run_there_is_one_plain_word() {
        assert!(is_plain("/home/me/.cache/bcmr/bin/bcmr-0.1.0-abc"));
        for odd in ["", "bcmr", "~/x", "/a b", "/a;b", "/a\nb", "/a'b", "/$(x)", "/caf\u{e9}"] {
            assert!(!is_plain(odd), "{odd}");
        }
    }

    #[test]
    fn we_know_ourselves() {
        let own = own(&Cancel::new()).unwrap();
        assert!(own.name.starts_with("bcmr-") && own.size > 0 && is_plain(&format!("/{}", own.name)));
        assert_eq!(own.size, std::fs::metadata(EXE).unwrap().len());
    }
}
