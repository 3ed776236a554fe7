//! What the personalities say: names quoted as GNU quotes them, and the words for what the engine tells.
//!
//! Must not know options, nor decide anything.

use crate::names;
use crate::say::words;
use bcmr_engine::stepwise::{Did, Kind, Noted, StepQuestion, Trouble, What};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What a name may look like in a message: which bytes are letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locale {
    /// Bytes above 127 are no letters.
    Ascii,
    /// Names are read as UTF-8.
    Utf8,
}

/// The line that ends what is said about a wrong command line.
pub fn try_help(program: &str) -> String {
    format!("Try '{program} --help' for more information.\n")
}

/// What of `bytes` can be shown as it is, and what cannot: runs of the two, in order.
fn runs(locale: Locale, bytes: &[u8]) -> Vec<(bool, &[u8])> {
    let mut runs: Vec<(bool, &[u8])> = Vec::new();
    let mut start = 0;
    let mut push = |shown: bool, end: usize| {
        if let Some((last, run)) = runs.last_mut()
            && *last == shown
        {
            let from = start - run.len();
            *run = bytes.get(from..end).unwrap_or_default();
        } else {
            runs.push((shown, bytes.get(start..end).unwrap_or_default()));
        }
        start = end;
    };
    let mut at = 0;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            at += c.len_utf8();
            push(
                if c.is_ascii() {
                    !c.is_ascii_control()
                } else {
                    locale == Locale::Utf8 && !names::is_unsafe(c)
                },
                at,
            );
        }
        if !chunk.invalid().is_empty() {
            at += chunk.invalid().len();
            push(false, at);
        }
    }
    runs
}

fn escape(out: &mut Vec<u8>, byte: u8) {
    let named = match byte {
        7 => b'a',
        8 => b'b',
        9 => b't',
        10 => b'n',
        11 => b'v',
        12 => b'f',
        13 => b'r',
        _ => return out.extend(format!("\\{byte:03o}").into_bytes()),
    };
    out.extend([b'\\', named]);
}

/// A name as a shell reads it back, always between quotes.
pub fn quoted(locale: Locale, name: &OsStr) -> Vec<u8> {
    let bytes = name.as_bytes();
    let runs = runs(locale, bytes);
    let meaning = |b: &u8| b"\"$`\\!*;<>|&()[]?={}^#~".contains(b);
    if bytes.contains(&b'\'') && runs.iter().all(|(shown, _)| *shown) && !bytes.iter().any(meaning) {
        return [b"\"", bytes, b"\""].concat();
    }
    let mut out = vec![b'\''];
    // Whether a quote is open.
    let mut open = true;
    for (shown, run) in &runs {
        if *shown {
            for byte in *run {
                match (byte, open) {
                    (b'\'', true) => out.extend(b"'\\''"),
                    (b'\'', false) => out.extend(b"\\''"),
                    (byte, true) => out.push(*byte),
                    (byte, false) => out.extend([b'\'', *byte]),
                }
                open = true;
            }
        } else {
            out.extend(if open { &b"'$'"[..] } else { b"$'" });
            run.iter().for_each(|byte| escape(&mut out, *byte));
            out.push(b'\'');
            open = false;
        }
    }
    if open {
        out.push(b'\'');
    }
    out
}

/// A word between the quotes of the locale.
pub fn locale_quoted(locale: Locale, word: &[u8]) -> Vec<u8> {
    let (left, right) = if locale == Locale::Utf8 { ("‘", "’") } else { ("'", "'") };
    let mut out = left.as_bytes().to_vec();
    for (shown, run) in runs(locale, word) {
        for byte in run {
            match byte {
                b'\'' if locale == Locale::Ascii => out.extend(b"\\'"),
                b'\\' => out.extend(b"\\\\"),
                byte if shown => out.push(*byte),
                byte => escape(&mut out, *byte),
            }
        }
    }
    out.extend(right.as_bytes());
    out
}

/// An option that there is not, without what a terminal would take for orders.
pub fn shown(typed: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (shown, run) in runs(Locale::Utf8, typed) {
        match shown {
            true => out.extend(run),
            false => run.iter().for_each(|byte| escape(&mut out, *byte)),
        }
    }
    out
}

/// What the system says of an error, without Rust's number behind it.
pub fn reason(e: &io::Error) -> String {
    if let Some(note) = Noted::of(e) {
        return words::note(note);
    }
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// The sentence for something that went wrong: `%1` is the name, `%2` the other one; `%3` is the name with quotes only
/// where it needs them, `%4` between those of the locale.
fn sentence(what: What) -> &'static str {
    match what {
        What::Stat => "cannot stat %1",
        What::Access => "cannot access %1",
        What::Omitted => "-r not specified; omitting directory %1",
        What::InstallOmitted => "omitting directory %1",
        What::FileTwice => "warning: source file %1 specified more than once",
        What::DirTwice => "warning: source directory %1 specified more than once",
        What::SameFile => "%1 and %2 are the same file",
        What::DirOverFile => "cannot overwrite non-directory %1 with directory %2",
        What::FileOverDir => "cannot overwrite directory %1 with non-directory",
        What::JustCreated => "will not overwrite just-created %1 with %2",
        What::ThroughJustCreated => "will not copy %2 through just-created symlink %1",
        What::BackupDestroysNotCopied => "backing up %1 might destroy source;  %2 not copied",
        What::BackupDestroysNotMoved => "backing up %1 might destroy source;  %2 not moved",
        What::Backup => "cannot backup %1",
        What::Remove => "cannot remove %1",
        What::IntoItself => "cannot copy a directory, %1, into itself, %2",
        What::LinkToDir => "will not create hard link %1 to directory %2",
        What::HardLink => "cannot create hard link %1 to %2",
        What::Move => "cannot move %1 to %2",
        What::Overwrite => "cannot overwrite %1",
        What::Exchange => "cannot exchange %1 and %2",
        What::MoveIntoItself => "cannot move %1 to a subdirectory of itself, %2",
        What::InterDevice => "inter-device move failed: %1 to %2; unable to remove target",
        What::Cycle => "cannot copy cyclic symbolic link %1",
        What::MakeDir => "cannot create directory %1",
        What::LinkOnlyHere => "%3: can make relative symbolic links only in current directory",
        What::SymbolicLink => "cannot create symbolic link %1 to %2",
        What::BareSymbolicLink => "cannot create symbolic link %1",
        What::Fifo => "cannot create fifo %1",
        What::Special => "cannot create special file %1",
        What::ReadLink => "cannot read symbolic link %1",
        What::UnknownKind => "%1 has unknown file type",
        What::Times => "preserving times for %1",
        What::Mode => "preserving permissions for %1",
        What::SetMode => "setting permissions for %1",
        What::InstallMode => "cannot change permissions of %4",
        What::InstallOwner => "cannot change owner and permissions of %4",
        What::InstallMakeDir => "cannot create directory %4",
        What::ParentMakeDir => "cannot make directory %1",
        What::ParentNoDir => "%1 exists but is not a directory",
        What::Parents => "failed to get attributes of %1",
        What::Owner => "failed to preserve ownership for %1",
        What::SetOwner => "cannot change ownership of %1",
        What::Attributes => "setting attributes for %1",
        What::GetAttributes => "getting attributes of %1",
        What::OpenForReading => "cannot open %1 for reading",
        What::Create => "cannot create regular file %1",
        What::Dangling => "not writing through dangling symlink %1",
        What::Replaced => "skipping file %1, as it was replaced while being copied",
        What::Read => "error reading %1",
        What::Write => "error writing %1",
        What::Copy => "error copying %1 to %2",
        What::Clone => "failed to clone %1 from %2",
        What::SetidLeftOut => "warning: %1 does not keep setuid or setgid, as its owner is another one",
        What::NotReplacing => "not replacing %1",
        What::RmDots => "refusing to remove '.' or '..' directory: skipping %1",
        What::RmIsRoot => "it is dangerous to operate recursively on %1",
        What::RmSameAsRoot => "it is dangerous to operate recursively on %1 (same as '/')",
        What::RmNoParent => "failed to stat %2: skipping %1",
        What::RmOtherDevice | What::RmMountPoint => "skipping %1, since it's on a different device",
        What::RmGuarded => "refusing to remove the current directory or one above it: skipping %1",
    }
}

/// A line for standard error, without the program's name.
pub fn trouble(locale: Locale, trouble: &Trouble) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = sentence(trouble.what).as_bytes();
    let other = trouble.other.as_deref().unwrap_or(Path::new(""));
    while let Some(at) = rest.iter().position(|b| *b == b'%') {
        let (text, mark) = rest.split_at(at);
        out.extend_from_slice(text);
        match mark.get(1) {
            Some(b'2') => out.extend(quoted(locale, other.as_os_str())),
            Some(b'4') => out.extend(locale_quoted(locale, trouble.path.as_os_str().as_bytes())),
            // In front of a colon, one in the name is a reason too.
            Some(b'3') if trouble.path.as_os_str().as_bytes().contains(&b':') => {
                out.extend(quoted(locale, trouble.path.as_os_str()));
            }
            Some(b'3') => out.extend(bare(locale, trouble.path.as_os_str())),
            _ => out.extend(quoted(locale, trouble.path.as_os_str())),
        }
        rest = mark.get(2..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    if let Some(why) = &trouble.why {
        out.extend_from_slice(b": ");
        out.extend_from_slice(reason(why).as_bytes());
    }
    out
}

/// A name between quotes only where a shell would need them.
pub fn bare(locale: Locale, name: &OsStr) -> Vec<u8> {
    let bytes = name.as_bytes();
    let shown = runs(locale, bytes).iter().all(|(shown, _)| *shown);
    let in_front = matches!(bytes, [] | [b'#' | b'~', ..] | [b'{' | b'}']);
    let plain = shown && !in_front && !bytes.iter().any(|b| b" !\"$&'()*;<=>?[\\]^`|".contains(b));
    if plain { bytes.to_vec() } else { quoted(locale, name) }
}

/// A line for standard output: what was done.
pub fn done(locale: Locale, program: &str, did: Did<'_>) -> Vec<u8> {
    let quote = |path: &Path| quoted(locale, path.as_os_str());
    let pair = |head: &str, src: &Path, dst: &Path, backup: Option<&Path>| {
        let mut line = [head.as_bytes(), &quote(src), b" -> ", &quote(dst)].concat();
        if let Some(backup) = backup {
            line.extend([b" (backup: ", &quote(backup)[..], b")"].concat());
        }
        line
    };
    match did {
        Did::Copied { src, dst, backup } => pair("", src, dst, backup),
        Did::MovedByCopying { src, dst, backup } => pair("copied ", src, dst, backup),
        Did::Renamed { src, dst, backup } => pair("renamed ", src, dst, backup),
        Did::Restored { backup, dst } => [&pair("", backup, dst, None)[..], b" (unbackup)"].concat(),
        Did::Exchanged { src, dst } => [b"exchanged ", &quote(src)[..], b" <-> ", &quote(dst)[..]].concat(),
        Did::Removed(path) => [b"removed ", &quote(path)[..]].concat(),
        Did::RemovedDir(path) => [b"removed directory ", &quote(path)[..]].concat(),
        Did::MadeDir(path) => [b"created directory ", &quote(path)[..]].concat(),
        Did::Installing(path) => [program.as_bytes(), b": creating directory ", &quote(path)[..]].concat(),
        Did::Skipped(path) => [b"skipped ", &quote(path)[..]].concat(),
        // Names as they are.
        Did::Parent { src, dst } => {
            [src.as_os_str().as_bytes(), b" -> ", dst.as_os_str().as_bytes()].concat()
        }
    }
}

/// A question, without the program's name in front and the mark behind.
pub fn question(locale: Locale, ask: StepQuestion<'_>) -> Vec<u8> {
    let with = |head: &str, path: &Path, tail: &str| {
        [head.as_bytes(), &quoted(locale, path.as_os_str()), tail.as_bytes()].concat()
    };
    match ask {
        StepQuestion::Overwrite(path) => with("overwrite ", path, ""),
        StepQuestion::OverwriteUnwritable { path, kind, mode, replace } => {
            let letters = letters(kind, mode);
            if replace {
                with("replace ", path, &format!(", overriding mode {mode:04o} ({letters})"))
            } else {
                with("unwritable ", path, &format!(" (mode {mode:04o}, {letters}); try anyway"))
            }
        }
        StepQuestion::Remove { path, kind, empty, protected } => {
            let word = match kind {
                Kind::File if empty => "regular empty file",
                Kind::File => "regular file",
                Kind::Dir => "directory",
                Kind::Link => "symbolic link",
                Kind::Fifo => "fifo",
                Kind::Socket => "socket",
                Kind::CharDevice => "character special file",
                Kind::BlockDevice => "block special file",
            };
            with(&format!("remove {}{word} ", if protected { "write-protected " } else { "" }), path, "")
        }
        StepQuestion::Descend { path, protected: true } => {
            with("descend into write-protected directory ", path, "")
        }
        StepQuestion::Descend { path, .. } => with("descend into directory ", path, ""),
    }
}

/// A mode as `ls -l` shows it, without the letter of the kind.
fn letters(_: Kind, mode: u32) -> String {
    let bit = |mask: u32, letter: char| if mode & mask != 0 { letter } else { '-' };
    let pass =
        |exec: u32, special: u32, both: char, alone: char| match (mode & exec != 0, mode & special != 0) {
            (true, true) => both,
            (false, true) => alone,
            (true, false) => 'x',
            (false, false) => '-',
        };
    let mut text = String::new();
    for (shift, special, both, alone) in [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        text.push(bit(0o4 << shift, 'r'));
        text.push(bit(0o2 << shift, 'w'));
        text.push(pass(0o1 << shift, special, both, alone));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_as_a_shell_reads_them() {
        for (name, ascii, utf8) in [
            (&b"it's"[..], "\"it's\"", "\"it's\""),
            (b"a\"b", "'a\"b'", "'a\"b'"),
            (b"it's\"x", "'it'\\''s\"x'", "'it'\\''s\"x'"),
            (b"it's$x", "'it'\\''s$x'", "'it'\\''s$x'"),
            (b"it's x", "\"it's x\"", "\"it's x\""),
            (b"a\nb", "'a'$'\\n''b'", "'a'$'\\n''b'"),
            (b"\n", "''$'\\n'", "''$'\\n'"),
            (b"a\n\nb", "'a'$'\\n\\n''b'", "'a'$'\\n\\n''b'"),
            (b"it's\nx", "'it'\\''s'$'\\n''x'", "'it'\\''s'$'\\n''x'"),
            (b"a\x1bb", "'a'$'\\033''b'", "'a'$'\\033''b'"),
            (b"a\x80b", "'a'$'\\200''b'", "'a'$'\\200''b'"),
            ("é".as_bytes(), "''$'\\303\\251'", "'é'"),
            (b"'", "\"'\"", "\"'\""),
            (b"'a\n", "''\\''a'$'\\n'", "''\\''a'$'\\n'"),
            (b"it's#", "'it'\\''s#'", "'it'\\''s#'"),
            (b"#a", "'#a'", "'#a'"),
            (b"a\x01'1", "'a'$'\\001'\\''1'", "'a'$'\\001'\\''1'"),
            (b"", "''", "''"),
        ] {
            let name = OsStr::from_bytes(name);
            assert_eq!(String::from_utf8_lossy(&quoted(Locale::Ascii, name)), ascii);
            assert_eq!(String::from_utf8_lossy(&quoted(Locale::Utf8, name)), utf8);
        }
    }
}
