//! How contents are read and written on this machine, and what cannot be combined with it.

use super::columns::{Columns, Holds, Row, Scp::Keeps};
use super::size::{block_size, size};
use crate::usage::Usage;
use bcmr_engine::policy::{Changing, DropCache, Io, Pick, Resume};
use clap::{Args, ValueEnum};

// How contents are read and written.
#[derive(Debug, Args)]
#[command(next_help_heading = "Reading and writing files on this machine")]
pub struct IoArgs {
    /// Read with plain system calls (sys), through io_uring (ring), or as the files are found (auto)
    ///
    /// auto takes the ring for batches of small files that are not in the page cache, where several reads under way save
    /// about a quarter of the time, and plain calls for everything else. Where there is no io_uring, or it is forbidden or
    /// fails, ring says so and plain calls are used. -v tells which was. A large file that -C or -s records goes by plain
    /// calls always, and so do files on FUSE.
    #[arg(hide_short_help = true, long, value_name = "ENGINE", value_enum, default_value = "auto")]
    pub engine: EngineArg,
    /// Bytes of one operation of the ring, a multiple of 4K [default: 64K, with --direct-io 1M]
    ///
    /// Through the page cache 64K is most small files whole, and larger blocks fall out of the processor's cache. Past
    /// it each operation is one of the disk, and 64K took half as long again as 1M.
    #[arg(hide_short_help = true, long, value_name = "SIZE", value_parser = block_size)]
    pub block_size: Option<usize>,
    /// Operations of the ring under way for one file
    ///
    /// Five keep a disk busy; sixteen were slower with --direct-io. Small files are one operation each, and many of them
    /// are under way at once whatever this says. A worker's ring takes 16M of memory at most, so with a large --block-size
    /// there are fewer.
    #[arg(hide_short_help = true, long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub queue_depth: u16,
    /// Files smaller than this never go through the ring
    ///
    /// The default keeps out what is read along with its inode.
    #[arg(hide_short_help = true, long, value_name = "SIZE", value_parser = size, default_value = "1K")]
    pub async_threshold: u64,
    /// Reserve room for a large file (1M and more) before it is written, where that is faster, or do not
    ///
    /// Finding blocks page by page is a quarter of the time of a large copy. The length of the file is not touched.
    #[arg(hide_short_help = true, long, value_name = "WHEN", value_enum, default_value = "auto")]
    pub preallocate: PreallocateArg,
    /// Tell the kernel of all files of a batch before the first is read
    ///
    /// With --engine=sys it gives a cold cache most of what the ring does, at a system call a file. Off, because a warm
    /// cache pays for it and gains nothing.
    #[arg(hide_short_help = true, long)]
    pub readahead: bool,
    /// Copy a source that changes while it is read: as many bytes as it had at first, with a warning
    ///
    /// For logs and other files that only grow. What is changed in place may be copied half old and half new. Without it a
    /// file that changes is tried once more, and is then an error.
    #[arg(hide_short_help = true, long)]
    pub allow_changing: bool,
    /// Read and write large files (1M and more) past the page cache
    ///
    /// For a large file that is not in it: the copy takes a fraction of the CPU and pushes nothing else out. Off, because
    /// what is in the page cache would be read from the disk again. Files whose file system refuses, files with holes
    /// and smaller ones go the ordinary way; -v tells how many did not.
    #[arg(hide_short_help = true, long)]
    pub direct_io: bool,
    /// Drop a large file's pages (16M and more) from the page cache behind the copy, so that it pushes out nothing else
    ///
    /// auto does so with -C, -s or --sync, where the copy waits for the disk anyway, for a file of which nothing is in
    /// the page cache. always does so for every large file. Dropped is what this run has written and, of the source, only
    /// what it has brought there: a source that is in use stays, and so does a file that is written into (--inplace,
    /// -a). --no-cache alone means always.
    #[arg(
        hide_short_help = true,
        long,
        value_name = "WHEN",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_value = "auto",
        default_missing_value = "always"
    )]
    pub no_cache: NoCacheArg,
    /// Milliseconds that one wait for the ring lasts before a look at whether to stop
    ///
    /// Waiting ends with the first operation that is done, so this costs nothing and gains nothing while the disk
    /// answers; it is how soon Ctrl-C is seen when it does not. 0 asks again and again without waiting, which takes a
    /// whole processor.
    #[arg(hide_short_help = true, long, value_name = "MS", default_value = "5", value_parser = clap::value_parser!(u32).range(..=60_000))]
    pub completion_timeout: u32,
}

/// What a copy with another machine says instead.
const BY_PLAIN_CALLS: Holds =
    Holds::Here("what goes over a wire is read and written by plain calls, as fast as the wire is");

impl Columns for IoArgs {
    const ROWS: &'static [Row<IoArgs>] = &[
        Row("--engine", BY_PLAIN_CALLS, Keeps, |a| a.engine != EngineArg::Auto),
        Row("--block-size", BY_PLAIN_CALLS, Keeps, |a| a.block_size.is_some()),
        Row("--queue-depth", BY_PLAIN_CALLS, Keeps, |a| a.queue_depth != 5),
        Row("--async-threshold", BY_PLAIN_CALLS, Keeps, |a| a.async_threshold != 1 << 10),
        Row("--preallocate", BY_PLAIN_CALLS, Keeps, |a| a.preallocate != PreallocateArg::Auto),
        Row("--readahead", BY_PLAIN_CALLS, Keeps, |a| a.readahead),
        Row("--direct-io", BY_PLAIN_CALLS, Keeps, |a| a.direct_io),
        Row("--no-cache", BY_PLAIN_CALLS, Keeps, |a| a.no_cache != NoCacheArg::Auto),
        Row("--completion-timeout", BY_PLAIN_CALLS, Keeps, |a| a.completion_timeout != 5),
        Row("--allow-changing", BY_PLAIN_CALLS, Keeps, |a| a.allow_changing),
    ];
}

/// `--engine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineArg {
    Auto,
    Sys,
    Ring,
}

/// `--no-cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NoCacheArg {
    Auto,
    Always,
    Never,
}

/// `--preallocate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PreallocateArg {
    Auto,
    #[value(alias = "never")]
    Disable,
}

pub(super) fn io(a: &IoArgs) -> Io {
    Io {
        pick: match a.engine {
            EngineArg::Auto => Pick::Auto,
            EngineArg::Sys => Pick::Sys,
            EngineArg::Ring => Pick::Ring,
        },
        block_bytes: a.block_size,
        queue_depth: a.queue_depth.into(),
        async_min_bytes: a.async_threshold,
        preallocate: a.preallocate == PreallocateArg::Auto,
        readahead: a.readahead,
        direct: a.direct_io,
        cache: match a.no_cache {
            NoCacheArg::Auto => DropCache::Auto,
            NoCacheArg::Always => DropCache::Always,
            NoCacheArg::Never => DropCache::Never,
        },
        wait: std::time::Duration::from_millis(a.completion_timeout.into()),
        changing: if a.allow_changing { Changing::Allowed } else { Changing::Refused },
    }
}

/// What cannot go together with how contents are to be read and written.
pub(super) fn io_guard(io: &Io, resume: Resume) -> Result<(), Usage> {
    // A session is bound to one version of its source, and a proof is of one.
    if io.changing == Changing::Allowed && resume != Resume::Off {
        return Err(Usage::new("--allow-changing does not go with -C, -s or -a"));
    }
    if io.direct && io.cache == DropCache::Always {
        return Err(Usage::new(
            "--direct-io goes past the page cache, and --no-cache is for what goes through it",
        ));
    }
    if io.direct && io.pick == Pick::Sys {
        return Err(Usage::new("--direct-io goes through the ring, and --engine=sys forbids it"));
    }
    // A file with a session is filled block by block, each hashed and recorded in its turn; one that is appended to has
    // a beginning that is not ours.
    if io.direct && resume != Resume::Off {
        return Err(Usage::new("--direct-io does not go with -C, -s or -a")
            .or("without them an interrupted copy begins again with the file it was at"));
    }
    Ok(())
}
