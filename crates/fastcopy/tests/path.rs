//! Copying by name keeps the contract of `std::fs::copy`, and says more when it fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

mod common;

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};

use common::*;
use fastcopy::{Options, PathError, Reflink, copy_with, errno};

#[test]
fn content_and_mode() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    for (mode, len) in [(0o600, 0), (0o755, 5), (0o444, 70_000), (0o4755, 3 << 20)] {
        fs::write(&from, pattern(0, len)).unwrap();
        fs::set_permissions(&from, fs::Permissions::from_mode(mode)).unwrap();
        // Once into nothing, once over something longer.
        for _ in 0..2 {
            assert_eq!(fastcopy::copy(&from, &to).unwrap(), len as u64);
            assert!(fs::read(&to).unwrap() == pattern(0, len));
            assert_eq!(to.metadata().unwrap().mode() & 0o7777, mode);
            fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).unwrap();
            fs::write(&to, vec![1; 5 << 20]).unwrap();
        }
        fs::remove_file(&to).unwrap();
        fs::set_permissions(&from, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

#[test]
fn links_are_followed_on_both_sides() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("from"), b"abc").unwrap();
    symlink("from", path("from-link")).unwrap();
    symlink("to", path("to-link")).unwrap();
    assert_eq!(fastcopy::copy(path("from-link"), path("to-link")).unwrap(), 3);
    assert_eq!(fs::read(path("to")).unwrap(), b"abc");
    assert!(path("to-link").symlink_metadata().unwrap().is_symlink());
}

#[test]
fn failures_keep_their_kind_errno_and_both_paths() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("file"), b"abc").unwrap();
    fs::create_dir(path("dir")).unwrap();
    for (from, to, kind, code) in [
        ("missing", "to", ErrorKind::NotFound, Some(errno::ENOENT)),
        ("file", "missing/to", ErrorKind::NotFound, Some(errno::ENOENT)),
        ("file", "dir", ErrorKind::IsADirectory, Some(errno::EISDIR)),
        ("file/below", "to", ErrorKind::NotADirectory, Some(errno::ENOTDIR)),
        ("dir", "to", ErrorKind::InvalidInput, None),
    ] {
        let e = fastcopy::copy(path(from), path(to)).unwrap_err();
        assert_eq!(e.kind(), kind, "{from} {to}");
        let text = e.to_string();
        assert!(
            text.contains(path(from).to_str().unwrap()) && text.contains(path(to).to_str().unwrap()),
            "{text}"
        );
        let inner = e.get_ref().unwrap().downcast_ref::<PathError>().unwrap();
        assert_eq!(inner.source.raw_os_error(), code, "{text}");
        // And as std has it, where std has one.
        assert_eq!(fs::copy(path(from), path(to)).unwrap_err().kind(), kind, "{from} {to}");
    }
    assert!(!path("to").exists(), "a source that cannot be copied makes no target");
}

#[test]
fn a_file_is_not_copied_onto_itself() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("file"), b"abc").unwrap();
    fs::hard_link(path("file"), path("hard")).unwrap();
    symlink("file", path("soft")).unwrap();
    for name in ["file", "hard", "soft"] {
        let e = fastcopy::copy(path("file"), path(name)).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidInput, "{name}");
        assert_eq!(fs::read(path("file")).unwrap(), b"abc", "{name}");
    }
}

#[test]
fn a_fifo_is_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    if !made.is_ok_and(|s| s.success()) {
        return skipped("a_fifo_is_refused_and_not_waited_for", "no mkfifo");
    }
    assert!(fifo.metadata().unwrap().file_type().is_fifo());
    let e = fastcopy::copy(&fifo, dir.path().join("to")).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_device_takes_a_stream() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    fs::write(&from, pattern(0, 3 << 20)).unwrap();
    let mode = fs::metadata("/dev/null").unwrap().mode();
    assert_eq!(fastcopy::copy(&from, "/dev/null").unwrap(), 3 << 20);
    assert_eq!(fs::metadata("/dev/null").unwrap().mode(), mode);
    let full = fastcopy::copy(&from, "/dev/full").unwrap_err();
    assert_eq!(full.kind(), ErrorKind::StorageFull);
}

#[test]
fn options_are_heard() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    make(&from, 8 * MIB, &[(MIB, 100)]);
    let copied = copy_with(&from, &to, &Options { reflink: Reflink::Never, ..Options::AUTO }).unwrap();
    assert_eq!(copied.bytes, 8 * MIB);
    assert!(copied.holes >= 7 * MIB);
    assert!(allocated(&to) <= 128 * KIB);
    assert!(fs::read(&to).unwrap() == fs::read(&from).unwrap());
    assert_eq!(
        fastcopy::copy("/proc/version", &to).unwrap(),
        fs::read("/proc/version").unwrap().len() as u64
    );
}
