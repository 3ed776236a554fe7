//! Every shape of file by every rung with every option gives the same bytes and keeps the same holes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

mod common;

use std::fs::{File, OpenOptions, read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use common::*;
use fastcopy::page_cache::Cache;
use fastcopy::{
    Copied, Options, RangeOf, Reflink, Rung, Rungs, Scratch, Side, Source, Sparse, copy_file, copy_range,
    errno,
};

/// One file, by all rungs and options; a slice takes each with half of the others.
fn check_everywhere(len: u64, data: &[(u64, u64)]) {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let src = make(&from, len, data);
    let bytes = read(&from).unwrap();
    let from_allocated = allocated(&from);
    let zeros: u64 = bytes.chunks(4096).filter(|b| b.iter().all(|b| *b == 0)).map(|b| b.len() as u64).sum();
    for (n, first) in RUNGS.into_iter().enumerate() {
        for (k, sparse) in [Sparse::Auto, Sparse::Always, Sparse::Never].into_iter().enumerate() {
            let ways = [
                (1, true, Reflink::Auto, Cache::Keep),
                (2, true, Reflink::Never, Cache::Drop),
                (3, false, Reflink::Auto, Cache::Drop),
                (0, false, Reflink::Never, Cache::Keep),
            ];
            let ways = ways.into_iter().enumerate().filter(|(i, _)| skips::in_slice(n + k + i, 2));
            for (_, (threads, preallocate, reflink, cache)) in ways {
                let lengthen = preallocate;
                let opts = Options { reflink, sparse, threads, preallocate, lengthen, cache };
                let what = format!("{len} {data:?} {first:?} {opts:?}");
                let copied = copy(&source(&src), &to, &rungs(first), &opts).expect(&what);
                assert_eq!(copied.bytes, len, "{what}");
                assert!(read(&to).unwrap() == bytes, "content: {what}");
                let to_allocated = allocated(&to);
                // A filesystem may spend a block or two of its own on a file with many extents.
                let slack = 64 * KIB;
                match sparse {
                    _ if copied.rung == Rung::Clone => {}
                    Sparse::Auto => {
                        assert!(
                            to_allocated <= from_allocated + slack,
                            "{to_allocated} {from_allocated} {what}"
                        );
                    }
                    Sparse::Always => {
                        assert_eq!(copied.holes, zeros, "{what}");
                        assert!(to_allocated <= len - zeros + slack, "{to_allocated} {zeros} {what}");
                    }
                    Sparse::Never => {
                        assert_eq!(copied.holes, 0, "{what}");
                        assert!(to_allocated >= len, "{to_allocated} {what}");
                        assert!(to_allocated <= len + slack, "preallocation left: {to_allocated} {what}");
                    }
                }
            }
        }
    }
}

#[test]
fn sizes_around_every_edge() {
    for len in [
        0,
        1,
        4095,
        4096,
        4097,
        64 * KIB - 1,
        64 * KIB,
        64 * KIB + 1,
        256 * KIB - 1,
        256 * KIB,
        256 * KIB + 1,
    ] {
        check_everywhere(len, &[(0, len)]);
    }
}

#[test]
fn sizes_around_the_large_edges() {
    for len in [MIB - 1, MIB, MIB + 1, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 9 * MIB + 77] {
        check_everywhere(len, &[(0, len)]);
    }
}

#[test]
fn holes_in_front_between_and_behind() {
    // All hole; a hole too small to be one; leading; trailing; trailing and not whole blocks; both; data then a byte.
    check_everywhere(5 * MIB, &[]);
    check_everywhere(100, &[]);
    check_everywhere(4096, &[]);
    check_everywhere(3 * MIB, &[(2 * MIB, MIB)]);
    check_everywhere(3 * MIB, &[(0, MIB)]);
    check_everywhere(3 * MIB + 123, &[(0, 100)]);
    check_everywhere(3 * MIB + 123, &[(MIB, 5)]);
    check_everywhere(6 * MIB + 1, &[(0, MIB), (6 * MIB, 1)]);
}

#[test]
fn a_comb() {
    // 40 MiB: a tooth at each MiB, of growing width, and one so wide that threads take it.
    let mut teeth: Vec<(u64, u64)> = (0..40).map(|i| (i * MIB, 4096 << (i % 8).min(7))).collect();
    teeth[20].1 = 5 * MIB + 4096;
    teeth.drain(21..26);
    check_everywhere(40 * MIB, &teeth);
}

#[test]
fn zeros_that_are_written_are_data_unless_asked() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let src = make(&from, 3 * MIB, &[(0, 3 * MIB)]);
    src.write_all_at(&vec![0; MIB as usize + 100], MIB).unwrap();
    let bytes = read(&from).unwrap();
    for (sparse, expect) in [(Sparse::Auto, 0), (Sparse::Never, 0), (Sparse::Always, MIB)] {
        let opts = Options { sparse, reflink: Reflink::Never, ..OPTIONS };
        let copied = copy(&source(&src), &to, &Rungs::new(), &opts).unwrap();
        assert_eq!(copied.holes, expect, "{sparse:?}");
        assert!(allocated(&to) <= 3 * MIB - expect + 64 * KIB && allocated(&to) >= 3 * MIB - expect);
        assert!(read(&to).unwrap() == bytes);
    }
}

#[test]
fn ten_gibibytes_of_nearly_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let data: Vec<(u64, u64)> = (0..16).map(|i| (i * 640 * MIB, 4 * MIB)).collect();
    let src = make(&from, 10 << 30, &data);
    for threads in [1, 2] {
        let calls = AtomicU64::new(0);
        let dst = create(&to);
        let opts = Options { threads, reflink: Reflink::Never, ..OPTIONS };
        let observe = |_| calls.fetch_add(1, Relaxed) < 1_000_000;
        let copied =
            copy_file(&source(&src), &dest(&dst), &Rungs::new(), &opts, &mut Scratch::new(), &observe)
                .unwrap();
        assert_eq!((copied.bytes, copied.holes), (10 << 30, (10 << 30) - 64 * MIB));
        assert!(allocated(&to).abs_diff(allocated(&from)) <= 64 * KIB);
        // The work is that of 64 MiB: 40,960 chunks would be the 10 GiB.
        assert!(calls.into_inner() <= 64 * 4 + 32);
        for (off, len) in &data {
            let mut buf = vec![0; *len as usize];
            File::open(&to).unwrap().read_exact_at(&mut buf, *off).unwrap();
            assert!(buf == pattern(*off, *len as usize));
        }
    }
}

#[test]
fn a_target_open_for_appending_gets_every_byte_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    for (len, data) in [(9 * MIB, &[(0, 9 * MIB)][..]), (9 * MIB, &[(2 * MIB, MIB)]), (100, &[(0, 100)])] {
        let src = make(&from, len, data);
        for first in RUNGS {
            for sparse in [Sparse::Auto, Sparse::Always] {
                File::create(&to).unwrap();
                let dst = OpenOptions::new().append(true).open(&to).unwrap();
                let opts = Options { threads: 2, sparse, ..OPTIONS };
                let got =
                    copy_file(&source(&src), &dest(&dst), &rungs(first), &opts, &mut Scratch::new(), &|_| {
                        true
                    });
                assert_eq!(got.unwrap().bytes, len);
                assert!(read(&to).unwrap() == read(&from).unwrap(), "{len} {first:?} {sparse:?}");
            }
        }
    }
}

#[test]
fn procfs_and_sysfs_are_read_to_their_end() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("to");
    for (path, exact) in [
        ("/proc/filesystems", true),
        ("/proc/version", true),
        ("/proc/cpuinfo", false),
        ("/proc/self/status", false),
        ("/proc/kallsyms", false),
        ("/sys/kernel/mm/transparent_hugepage/enabled", true),
        ("/sys/kernel/notes", true),
    ] {
        let Ok(src) = File::open(path) else {
            skipped("procfs_and_sysfs_are_read_to_their_end", path);
            continue;
        };
        let expect = read(path).unwrap();
        for first in RUNGS {
            for sparse in [Sparse::Auto, Sparse::Always, Sparse::Never] {
                let opts = Options { sparse, threads: 2, ..OPTIONS };
                let copied = copy(&source(&src), &to, &rungs(first), &opts).unwrap();
                let got = read(&to).unwrap();
                if exact {
                    assert!(got == expect, "{path} {first:?} {sparse:?}: {} {}", got.len(), expect.len());
                } else {
                    // Frequencies and counters move; the first words and about the length do not.
                    assert!(got.starts_with(&expect[..8]), "{path} {first:?}");
                    assert!(got.len() >= expect.len() / 2, "{path} {first:?}: {}", got.len());
                }
                assert_eq!(copied.bytes, got.len() as u64);
            }
        }
    }
}

#[test]
fn a_size_that_lies() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    for (real, told, expect) in [
        // Shorter than told: its end is its end.
        (1000, 5000, 1000),
        (1000, 5 * MIB, 1000),
        (5 * MIB + 3, 9 * MIB, 5 * MIB + 3),
        (0, 9 * MIB, 0),
        // Longer than told: to its end when small, as far as told when large.
        (5000, 1000, 5000),
        (5000, 0, 5000),
        (MIB, 0, MIB),
        (9 * MIB, 5 * MIB, 5 * MIB),
    ] {
        let src = make(&from, real, &[(0, real)]);
        for first in [None, Some(Rung::CopyFileRange), Some(Rung::Sendfile), Some(Rung::ReadWrite)] {
            for threads in [1, 2] {
                for blocks in [told.div_ceil(512), 0] {
                    let what = format!("{real} {told} {first:?} {threads} {blocks}");
                    let lie = Source { size: told, blocks, ..source(&src) };
                    let opts =
                        Options { threads, reflink: Reflink::Never, lengthen: threads == 2, ..OPTIONS };
                    let copied = copy(&lie, &to, &rungs(first), &opts).expect(&what);
                    let got = read(&to).unwrap();
                    // A forced kernel rung, or a walk over extents, copies a small file as it was told.
                    if real > told && told > 0 {
                        assert!(copied.bytes == expect || copied.bytes == told, "{what}: {}", copied.bytes);
                    } else {
                        assert_eq!(copied.bytes, expect, "{what}");
                    }
                    assert!(got == pattern(0, copied.bytes as usize), "{what}");
                    assert!(allocated(&to) <= got.len() as u64 + 64 * KIB, "preallocation left: {what}");
                }
            }
        }
    }
}

#[test]
fn a_source_that_is_cut_while_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let cut = 9 * MIB + 5;
    for first in RUNGS {
        for threads in [1, 2] {
            for data in [&[(0, 24 * MIB)][..], &[(0, 10 * MIB), (16 * MIB, 8 * MIB)]] {
                for sparse in [Sparse::Auto, Sparse::Always] {
                    let what = format!("{first:?} {threads} {data:?} {sparse:?}");
                    let src = make(&from, 24 * MIB, data);
                    let dst = create(&to);
                    let once = Once::new();
                    let observe = |_| {
                        once.call_once(|| src.set_len(cut).unwrap());
                        true
                    };
                    let opts = Options { threads, sparse, lengthen: threads == 2, ..OPTIONS };
                    let copied = copy_file(
                        &source(&src),
                        &dest(&dst),
                        &rungs(first),
                        &opts,
                        &mut Scratch::new(),
                        &observe,
                    )
                    .expect(&what);
                    if copied.rung == Rung::Clone {
                        continue;
                    }
                    assert_eq!(copied.bytes, cut, "{what}");
                    assert!(read(&to).unwrap() == pattern(0, cut as usize), "{what}");
                    assert!(allocated(&to) <= cut + 64 * KIB, "preallocation left: {what}");
                }
            }
        }
    }
}

#[test]
fn a_source_that_is_cut_inside_a_hole() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let data = [(0, MIB), (16 * MIB, MIB)];
    let both = [false, true].map(|lengthen| [(Sparse::Auto, lengthen), (Sparse::Always, lengthen)]);
    for (sparse, lengthen) in both.into_iter().flatten() {
        let src = make(&from, 20 * MIB, &data);
        let dst = create(&to);
        let once = Once::new();
        let observe = |_| {
            once.call_once(|| src.set_len(5 * MIB).unwrap());
            true
        };
        let opts = Options { sparse, lengthen, reflink: Reflink::Never, ..OPTIONS };
        let copied =
            copy_file(&source(&src), &dest(&dst), &Rungs::new(), &opts, &mut Scratch::new(), &observe)
                .unwrap();
        assert_eq!(copied.bytes, 5 * MIB, "{sparse:?}");
        assert_eq!(copied.holes, 4 * MIB, "{sparse:?}");
        assert!(read(&to).unwrap() == read(&from).unwrap(), "{sparse:?}");
    }
}

#[test]
fn a_source_that_grows_is_copied_as_far_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    for first in [None, Some(Rung::CopyFileRange), Some(Rung::Sendfile), Some(Rung::ReadWrite)] {
        for threads in [1, 2] {
            let src = make(&from, 12 * MIB, &[(0, 12 * MIB)]);
            let dst = create(&to);
            let once = Once::new();
            let observe = |_| {
                once.call_once(|| src.write_all_at(b"more", 12 * MIB).unwrap());
                true
            };
            let opts = Options { threads, reflink: Reflink::Never, ..OPTIONS };
            let got =
                copy_file(&source(&src), &dest(&dst), &rungs(first), &opts, &mut Scratch::new(), &observe);
            assert_eq!(got.unwrap().bytes, 12 * MIB);
            assert!(read(&to).unwrap() == pattern(0, 12 << 20), "{first:?} {threads}");
        }
    }
}

#[test]
fn a_cancel_stops_within_a_chunk_and_says_how_far() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let len = 40 * MIB;
    let dense = make(&from, len, &[(0, len)]);
    for first in RUNGS {
        for (threads, sparse) in [(1, Sparse::Auto), (2, Sparse::Auto), (1, Sparse::Always)] {
            let what = format!("{first:?} {threads} {sparse:?}");
            let dst = create(&to);
            let seen = AtomicU64::new(0);
            let observe = |n| seen.fetch_add(n, Relaxed) + n < 2 * MIB;
            let opts = Options { threads, sparse, ..OPTIONS };
            let got =
                copy_file(&source(&dense), &dest(&dst), &rungs(first), &opts, &mut Scratch::new(), &observe);
            let failure = got.expect_err(&what);
            assert_eq!(failure.side, Side::Cancelled, "{what}");
            assert_eq!(failure.source.kind(), std::io::ErrorKind::Interrupted);
            if failure.done == len {
                continue; // a clone is done at once
            }
            // Of several threads, the one with the first piece may be the last to get a processor.
            let least = if threads == 1 { MIB } else { 0 };
            assert!((least..=12 * MIB).contains(&failure.done), "{what}: {}", failure.done);
            let there = read(&to).unwrap();
            assert!(there[..failure.done as usize] == pattern(0, failure.done as usize), "{what}");
            assert!(allocated(&to) <= there.len() as u64 + 64 * KIB, "preallocation left: {what}");
        }
    }
}

#[test]
fn ranges() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let len = 11 * MIB + 17;
    let src = make(&from, len, &[(0, 5 * MIB), (7 * MIB, 2 * MIB), (len - 5, 5)]);
    let bytes = read(&from).unwrap();
    for first in RUNGS {
        for threads in [1, 2] {
            // In pieces, the last one first, over what was there before, with the target shifted.
            let shift = 1234;
            std::fs::write(&to, vec![0xAA; len as usize + 5000]).unwrap();
            let dst = OpenOptions::new().write(true).open(&to).unwrap();
            let opts = Options { threads, ..OPTIONS };
            let rungs = rungs(first);
            let seen = AtomicU64::new(0);
            let observe = |n| seen.fetch_add(n, Relaxed) < u64::MAX;
            let piece = |off, n| -> Copied {
                let (src, dst) = (source(&src), dest(&dst));
                copy_range(
                    &RangeOf { src: &src, src_off: off, dst: &dst, dst_off: off + shift, len: n },
                    &rungs,
                    &opts,
                    &mut Scratch::new(),
                    &observe,
                )
                .unwrap()
            };
            // Asked for more than there is.
            assert_eq!(piece(10 * MIB, 5 * MIB).bytes, MIB + 17);
            assert_eq!(piece(len, 10).bytes, 0);
            assert_eq!(piece(0, 3).bytes, 3);
            assert_eq!(piece(3, 10 * MIB - 3).bytes, 10 * MIB - 3);
            assert_eq!(seen.load(Relaxed), len);
            let got = read(&to).unwrap();
            assert_eq!(got.len() as u64, len + 5000, "{first:?}: the length is the caller's");
            assert!(got[..1234].iter().all(|b| *b == 0xAA));
            assert!(got[1234..][..len as usize] == bytes, "{first:?} {threads}");
            assert!(got[1234 + len as usize..].iter().all(|b| *b == 0xAA));
        }
    }
}

#[test]
fn bad_descriptors_are_errors_of_their_side() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    for len in [100, 9 * MIB] {
        make(&from, len, &[(0, len)]);
        for first in RUNGS {
            for threads in [1, 2] {
                let opts = Options { threads, ..OPTIONS };
                let run = |src: &File, dst: &File| {
                    copy_file(&source(src), &dest(dst), &rungs(first), &opts, &mut Scratch::new(), &|_| true)
                        .expect_err("a descriptor for the other direction")
                };
                let read_only = File::open(&from).unwrap();
                let write_only = OpenOptions::new().write(true).open(&from).unwrap();
                let f = run(&write_only, &create(&to));
                assert_eq!((f.side, f.source.raw_os_error()), (Side::Read, Some(errno::EBADF)), "{first:?}");
                let f = run(&read_only, &read_only);
                assert_eq!((f.side, f.source.raw_os_error()), (Side::Write, Some(errno::EBADF)), "{first:?}");
            }
        }
    }
}

#[test]
fn reflink_always_says_why_not() {
    let Some(mount) = Mount::tmpfs("16m") else {
        return skipped("reflink_always_says_why_not", "cannot mount a tmpfs");
    };
    let src = make(&mount.at.join("from"), 1000, &[(0, 1000)]);
    let opts = Options { reflink: Reflink::Always, ..OPTIONS };
    let rungs = Rungs::new();
    // Also the second time, when the ladder knows better: the kernel gives the reason.
    for _ in 0..2 {
        let f = copy(&source(&src), &mount.at.join("to"), &rungs, &opts).expect_err("tmpfs cannot clone");
        assert_eq!(f.side, Side::Clone);
        assert!(matches!(f.source.raw_os_error(), Some(errno::EOPNOTSUPP | errno::ENOTTY)), "{f}");
    }
}

#[test]
fn filesystems_that_clone() {
    for (kind, mib) in [("xfs", 320), ("btrfs", 256)] {
        let Some(mount) = Mount::image(kind, mib) else {
            skipped("filesystems_that_clone", kind);
            continue;
        };
        let (from, to) = (mount.at.join("from"), mount.at.join("to"));
        let rungs = Rungs::new();
        for (len, data) in [
            (1, &[(0, 1)][..]),
            (8 * KIB - 1, &[(0, 8 * KIB - 1)]),
            (8 * KIB, &[(0, 8 * KIB)]),
            (64 * KIB + 1, &[(0, 64 * KIB + 1)]),
            (9 * MIB + 1, &[(0, 9 * MIB + 1)]),
            (20 * MIB, &[(MIB, MIB), (18 * MIB, 5)]),
        ] {
            let src = make(&from, len, data);
            src.sync_all().unwrap();
            for reflink in [Reflink::Auto, Reflink::Always, Reflink::Never] {
                for sparse in [Sparse::Auto, Sparse::Always, Sparse::Never] {
                    let what = format!("{kind} {len} {reflink:?} {sparse:?}");
                    let opts = Options { reflink, sparse, threads: 2, ..OPTIONS };
                    let copied = copy(&source(&src), &to, &rungs, &opts).expect(&what);
                    let clone = match reflink {
                        Reflink::Always => true,
                        // On xfs less than that is written faster than it is shared.
                        Reflink::Auto => sparse == Sparse::Auto && (len >= 8 * KIB || kind == "btrfs"),
                        Reflink::Never => false,
                    };
                    assert_eq!(copied.rung == Rung::Clone, clone, "{what}");
                    assert!(read(&to).unwrap() == read(&from).unwrap(), "{what}");
                    if sparse == Sparse::Auto {
                        File::open(&to).unwrap().sync_all().unwrap();
                        assert!(allocated(&to) <= allocated(&from) + 128 * KIB, "{what}");
                    }
                }
            }
        }
        assert_eq!(rungs.refused(), 0, "{kind}");
    }
}

/// A file that grows by writing leaves blocks in its holes on xfs: the room that was taken behind its end.
#[test]
fn what_grows_by_writing_leaves_no_blocks_in_holes() {
    let Some(mount) = Mount::image("xfs", 320) else {
        return skipped("what_grows_by_writing_leaves_no_blocks_in_holes", "xfs");
    };
    let (from, to) = (mount.at.join("from"), mount.at.join("to"));
    let teeth: Vec<(u64, u64)> = (0..64).map(|n| (n * MIB, 1)).collect();
    let src = make(&from, 64 * MIB, &teeth);
    src.sync_all().unwrap();
    for sparse in [Sparse::Auto, Sparse::Always] {
        let opts = Options { sparse, lengthen: true, reflink: Reflink::Never, ..OPTIONS };
        copy(&source(&src), &to, &Rungs::new(), &opts).unwrap();
        File::open(&to).unwrap().sync_all().unwrap();
        assert!(allocated(&to) <= allocated(&from) + 64 * KIB, "{sparse:?}: {}", allocated(&to));
        assert!(read(&to).unwrap() == read(&from).unwrap(), "{sparse:?}");
    }
}

#[test]
fn the_second_copy_across_mounts_costs_no_failed_call() {
    let dir = tempfile::tempdir().unwrap();
    let Some(other) = elsewhere(dir.path()) else {
        return skipped(
            "the_second_copy_across_mounts_costs_no_failed_call",
            "/dev/shm is not another device",
        );
    };
    let rungs = Rungs::new();
    for (a, b) in [(dir.path(), other.path()), (other.path(), dir.path())] {
        let once = |len: u64, threads: usize| {
            let src = make(&a.join("from"), len, &[(0, len)]);
            let to = b.join("to");
            copy(&source(&src), &to, &rungs, &Options { threads, ..OPTIONS }).unwrap();
            assert!(read(to).unwrap() == pattern(0, len as usize));
        };
        let before = rungs.refused();
        once(MIB, 1);
        let first = rungs.refused();
        assert!(first > before, "a clone across devices was not even tried: is this test worth anything?");
        for (len, threads) in [(1, 1), (70_000, 1), (MIB, 1), (9 * MIB, 1), (9 * MIB, 2)] {
            once(len, threads);
            assert_eq!(rungs.refused(), first, "{len} {threads}");
        }
    }
}

#[test]
fn a_full_target_is_a_real_error() {
    let Some(mount) = Mount::tmpfs("3m") else {
        return skipped("a_full_target_is_a_real_error", "cannot mount a tmpfs");
    };
    let dir = tempfile::tempdir().unwrap();
    let src = make(&dir.path().join("from"), 9 * MIB, &[(0, 9 * MIB)]);
    let own = mount.at.join("own");
    for first in RUNGS {
        for (threads, preallocate) in [(1, true), (1, false), (2, true), (2, false)] {
            let what = format!("{first:?} {threads} {preallocate}");
            let opts = Options { threads, preallocate, ..OPTIONS };
            let f = copy(&source(&src), &own, &rungs(first), &opts).expect_err(&what);
            assert_eq!(f.source.raw_os_error(), Some(errno::ENOSPC), "{what}");
            assert!(matches!(f.side, Side::Write | Side::Copy), "{what}: {f}");
            assert!(f.done <= 3 * MIB, "{what}");
            assert!(read(&own).unwrap()[..f.done as usize] == pattern(0, f.done as usize), "{what}");
        }
    }
}

/// Runs one test of this binary again, in a process prepared by `sh`, where it is told what to expect.
fn child(prepare: &str, test: &str, expect: &str) {
    let me = std::env::current_exe().unwrap();
    let script = format!("{prepare} \"$0\" --exact {test} --nocapture");
    let out = std::process::Command::new("sh")
        .args(["-c", &script])
        .arg(&me)
        .env("FASTCOPY_EXPECT", expect)
        .output()
        .unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success() && text.contains("1 passed"), "{prepare}: expected {expect}\n{text}");
}

/// In a child: copies a large file by every rung, once without and once with threads, and compares with what
/// the parent expects: `ok`, or an errno.
#[test]
fn in_a_child() {
    let Ok(expect) = std::env::var("FASTCOPY_EXPECT") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    // Written with `write`, which no parent tampers with.
    std::fs::write(&from, pattern(0, 5 << 20)).unwrap();
    let src = File::open(&from).unwrap();
    let (only, expect) = expect.split_once(' ').unwrap();
    for first in RUNGS {
        if only != "all" && only != format!("{first:?}") {
            continue;
        }
        for threads in [1, 2] {
            let got = copy(&source(&src), &to, &rungs(first), &Options { threads, ..OPTIONS });
            let said = match &got {
                Ok(_) => "ok".to_owned(),
                Err(f) => f.source.raw_os_error().unwrap().to_string(),
            };
            assert_eq!(said, expect, "{first:?} {threads} {got:?}");
            let done = got.map_or_else(|f| f.done, |copied| copied.bytes);
            assert!(read(&to).unwrap()[..done as usize] == pattern(0, done as usize), "{first:?} {threads}");
        }
    }
}

#[test]
fn a_limit_on_file_sizes_is_a_real_error() {
    // Blocks of 512 bytes in some shells and 1,024 in others: 1 or 2 MiB. The file that is copied is made beyond it.
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    std::fs::write(&from, pattern(0, 5 << 20)).unwrap();
    child(
        "trap '' XFSZ; export FASTCOPY_FROM; ulimit -f 2048; exec",
        "under_a_limit",
        from.to_str().unwrap(),
    );
}

#[test]
fn under_a_limit() {
    let Ok(from) = std::env::var("FASTCOPY_EXPECT") else { return };
    let dir = tempfile::tempdir().unwrap();
    let src = File::open(Path::new(&from)).unwrap();
    for first in RUNGS {
        for threads in [1, 2] {
            let opts = Options { threads, ..OPTIONS };
            let f = copy(&source(&src), &dir.path().join("to"), &rungs(first), &opts).expect_err("limited");
            assert_eq!(f.source.raw_os_error(), Some(errno::EFBIG), "{first:?} {f}");
            assert!(f.done <= 2 * MIB);
        }
    }
}

#[test]
fn errors_put_in_from_outside() {
    if std::process::Command::new("strace").arg("-V").output().is_err() {
        return skipped("errors_put_in_from_outside", "strace is not installed");
    }
    let enospc = format!("all {}", errno::ENOSPC);
    for (call, inject, expect) in [
        // An error of the disk from FICLONE is one, not a reason to try something else.
        ("ioctl", "error=EIO", "None 5"),
        ("ioctl", "error=ENOSPC", "None 28"),
        ("ioctl", "error=EOPNOTSUPP", "all ok"),
        ("ioctl", "error=EPERM", "all ok"),
        ("copy_file_range", "error=EIO", "Some(CopyFileRange) 5"),
        ("copy_file_range", "error=ENOSYS", "all ok"),
        ("copy_file_range", "error=EXDEV", "all ok"),
        ("copy_file_range", "error=EINVAL", "all ok"),
        ("copy_file_range", "error=ETXTBSY", "all ok"),
        ("copy_file_range", "error=EINTR:when=1+2", "all ok"),
        ("copy_file_range", "retval=0", "all ok"),
        ("sendfile", "error=EINVAL", "all ok"),
        ("sendfile", "retval=0", "all ok"),
        ("sendfile", "error=ENOSPC", "Some(Sendfile) 28"),
        ("sendfile", "error=EINTR:when=1+2", "all ok"),
        ("fallocate", "error=EOPNOTSUPP", "all ok"),
        ("fallocate", "error=ENOSPC", "all ok"),
        ("fallocate", "error=EINTR", "all ok"),
        // The loader of programs reads with pread64 too, from the main thread; calls are counted per thread.
        ("pread64", "error=EINTR:when=12+2", "all ok"),
        ("pwrite64", "error=EINTR:when=1+2", "all ok"),
        ("pread64", "error=EIO:when=12+", "Some(ReadWrite) 5"),
        ("pwrite64", "error=ENOSPC:when=3+", "Some(ReadWrite) 28"),
        ("ioctl,copy_file_range,sendfile", "error=EOPNOTSUPP", "all ok"),
        ("ioctl,copy_file_range,sendfile,pwrite64", "error=ENOSPC", &enospc),
    ] {
        let prepare = format!("exec strace -f -qq -o /dev/null -e trace={call} -e inject={call}:{inject}");
        child(&prepare, "in_a_child", expect);
    }
}
