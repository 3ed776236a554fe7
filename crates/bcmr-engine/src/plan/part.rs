//! One part of a large file: its blocks are copied to their place in the file that all parts fill, and hashed on the way.
//!
//! Must not know which shard it belongs to. The file is in a tree that has no name yet, so nothing half full is seen; every
//! run that fills a part writes the same bytes, so two may do it at once.

use super::format::{Digest, Version};
use crate::blocks::{BLOCK_BYTES, Cv, aligned, around_zeros, fill_block, merged, on_blocks_with};
use crate::disk::{Fault, Side};
use crate::error::{Code, Op};
use crate::receiver::land;
use fastcopy::dir::{Dir, Name};
use fastcopy::errno;
use fastcopy::meta::{self, Info, Kind};
use fastcopy::read_write;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

fn at_source(op: Op) -> impl Fn(io::Error) -> Fault {
    move |e| Fault::os(Side::Source, op, e)
}

fn at_dest(op: Op) -> impl Fn(io::Error) -> Fault {
    move |e| Fault::os(Side::Dest, op, e)
}

/// Opens the file that all parts fill, making it when this is the first.
fn open(dir: &Dir, name: Name<'_>, size: u64) -> Result<OwnedFd, Fault> {
    let file = match land::new_file(dir, name, 0o600) {
        Err(e) if e.raw_os_error() == Some(errno::EEXIST) => dir.open_read_write(name),
        other => other,
    };
    let file = file.map_err(at_dest(Op::Open))?;
    let info = Info::of(&file).map_err(at_dest(Op::Stat))?;
    if info.kind != Kind::File {
        return Err(Fault::ours(Side::Dest, Op::Open, Code::InTheWay, crate::error::Reason::NoFileInTheWay));
    }
    if info.size != size {
        meta::set_length(&file, size).map_err(at_dest(Op::SetLengthOf))?;
    }
    Ok(file)
}

/// Copies `range` of the file `name` of `src` to the same place in that of `dst`. Returns the chaining value of the part.
///
/// # Errors
/// It could not be read or written, or the source is not the version that it was.
pub(super) fn copy(
    (src, dst, name): (&Dir, &Dir, Name<'_>),
    of: &Version,
    range: Range<u64>,
    jobs: usize,
    observe: &(dyn Fn(u64) -> bool + Sync),
) -> Result<Digest, Fault> {
    let from = src.open_file(name).map_err(at_source(Op::Open))?;
    let is_same = || Ok(of.is(&Info::of(&from).map_err(at_source(Op::Stat))?));
    if !is_same()? {
        return Err(Fault::changed());
    }
    let to = open(dst, name, of.size)?;
    let first = range.start / BLOCK_BYTES;
    let blocks = first..range.end.div_ceil(BLOCK_BYTES);
    let values: Mutex<Vec<Cv>> = Mutex::new(vec![Cv::default(); (blocks.end - blocks.start) as usize]);
    on_blocks_with(blocks, jobs, aligned, |block, room| {
        let start = block * BLOCK_BYTES;
        let (value, _) = fill_block(
            start..(start + BLOCK_BYTES).min(range.end),
            true,
            room,
            |at, room| read_write::read_full(&from, at, room).map_err(at_source(Op::Read)),
            |at, bytes| {
                around_zeros(at, bytes, |at, run| {
                    read_write::write_full(&to, at, run).map_err(at_dest(Op::Write))
                })
            },
            &|bytes| observe(bytes),
        )?;
        let mut values = values.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = values.get_mut((block - first) as usize) {
            *place = value;
        }
        Ok(true)
    })?;
    // S3, S4: the same before and after, so it was never another one in between.
    if !is_same()? {
        return Err(Fault::changed());
    }
    let values = values.into_inner().unwrap_or_else(PoisonError::into_inner);
    merged(&values, 0, range.end - range.start).ok_or_else(Fault::changed)
}
