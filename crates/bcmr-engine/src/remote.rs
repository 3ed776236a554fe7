//! The other machine, as plain data: where it is, how to get there, what is asked of the way.
//!
//! Must not connect to anything; that is `transport`'s. What was typed is taken apart by the person's side.

use crate::password::Password;
use crate::policy::{Compare, CopyPolicy, Dated, DeleteWhen, NameList, Old, Target};
use crate::shared::SharedSsh;
use crate::throttle::Throttle;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// A path on another machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Who logs in; ssh's own default when absent. Checked: does not begin with `-`, holds no control character,
    /// space, or anything a shell knows.
    pub user: Option<String>,
    /// The host as ssh is to get it, IPv6 without brackets. Checked like the user.
    pub host: String,
    /// ssh's own default when absent.
    pub port: Option<u16>,
    /// The path as bytes: relative to the home directory unless it begins with `/`; empty means the home directory.
    pub path: PathBuf,
}

/// As whom the program over there runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunAs {
    /// Who logs in.
    Login,
    /// This user, by `sudo -n`, which asks for no password.
    Sudo(String),
    /// This user, by a sudo that reads this password before the program there begins.
    SudoWith(String, Password),
}

/// How to get there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The command that connects, `ssh` with leading arguments; never seen by a shell.
    pub ssh: Vec<OsString>,
    /// `-o`, `-J`, `-i`, `-F` with their values, in the order given.
    pub options: Vec<OsString>,
    /// What the far side's program is called there (`bcmr` unless the user says otherwise): one word, or a path.
    pub program: String,
    /// As whom it runs.
    pub run_as: RunAs,
    /// Connections; `None` decides by what there is to move and how far it is.
    pub parallel: Option<usize>,
    /// Where the data goes.
    pub plane: Plane,
    /// Compression.
    pub compress: Compress,
    /// No hashes of what is sent (`--fast`).
    pub fast: bool,
    /// The store of blocks where the destination is may be used.
    pub dedup: bool,
    /// How fast bytes may go, both ways together (`--bwlimit`); may be changed while they do.
    pub throttle: Arc<Throttle>,
    /// Files are sent whole, whatever the receiver has of them (`--whole-file`).
    pub whole_file: bool,
    /// Connecting again after the connection was lost, at most so often; needs sessions to be worth it.
    pub retries: u32,
    /// A connection of ssh that is there already, to have sessions over.
    pub shared: Option<Arc<SharedSsh>>,
}

impl Way {
    /// Where the shared connection listens, while there is one.
    pub(crate) fn socket(&self) -> Option<PathBuf> {
        self.shared.as_ref()?.path()
    }

    /// Does without it from now on.
    pub(crate) fn unshare(&self) {
        if let Some(shared) = &self.shared {
            shared.end();
        }
    }
}

/// `--direct`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    /// Through ssh.
    Ssh,
    /// Through TCP connections of our own, sealed with AES-256-GCM.
    Direct,
}

/// `--compress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compress {
    /// Zstd while the link is slower than the codec.
    Auto,
    /// Zstd, level 3.
    Zstd,
    /// LZ4.
    Lz4,
    /// Not at all.
    None,
}

/// What is done with what is at the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The one is copied to the other; with [`CopyPolicy::dry_run`], only shown.
    Copy,
    /// They are compared: what a copy would change.
    Check {
        /// By what files are compared.
        compare: Compare,
        /// What only the destination has is told too.
        extra: bool,
        /// Each difference says what both sides are like, for a plan; and the destination itself is told without a name.
        alike: bool,
    },
    /// What only the destination has is deleted, once all of the source has been listed. Nothing is copied.
    DeleteFirst,
}

/// Copies to another machine.
pub struct PutRequest {
    /// What to copy, here.
    pub sources: Vec<PathBuf>,
    /// `--files-from`: names below the one source.
    pub names: Option<NameList>,
    /// Where to; the target's path is the address's.
    pub to: Address,
    /// How the target's path is meant.
    pub target: fn(PathBuf) -> Target,
    /// Copied or compared.
    pub purpose: Purpose,
    /// When what only the destination has is deleted, where it is.
    pub when: DeleteWhen,
    /// Where the hashes of what was copied are written, here.
    pub manifest: Option<PathBuf>,
    /// The target holds snapshots, and gets this one.
    pub dated: Option<Dated>,
    /// Where it is remembered how the one source is mounted.
    pub state: Option<PathBuf>,
    /// How to get there.
    pub way: Way,
    /// How it is copied.
    pub policy: CopyPolicy,
}

/// Copies from another machine.
pub struct GetRequest {
    /// What to copy, there: all on one host, with one user and port.
    pub from: Vec<Address>,
    /// `--files-from`: names below the one source.
    pub names: Option<NameList>,
    /// Where to, here.
    pub target: Target,
    /// Copied or compared.
    pub purpose: Purpose,
    /// When what only the destination has is deleted, where it is.
    pub when: DeleteWhen,
    /// Where the hashes of what was copied are written.
    pub manifest: Option<PathBuf>,
    /// The target holds snapshots, and gets this one.
    pub dated: Option<Dated>,
    /// The store of what came from other machines, as [`ServeRequest::store`]; `None`: no store.
    pub store: Option<(PathBuf, u64, u64)>,
    /// How to get there.
    pub way: Way,
    /// How it is copied.
    pub policy: CopyPolicy,
}

/// Copies between two other machines, through this one.
pub struct RelayRequest {
    /// What to copy: all on one host, with one user and port.
    pub from: Vec<Address>,
    /// Where to.
    pub to: Address,
    /// How the target's path is meant.
    pub target: fn(PathBuf) -> Target,
    /// Copied or compared.
    pub purpose: Purpose,
    /// When what only the destination has is deleted, where it is.
    pub when: DeleteWhen,
    /// The target holds snapshots, and gets this one.
    pub dated: Option<Dated>,
    /// How to get to the source.
    pub here: Way,
    /// How to get to the destination, how fast bytes go, and how often all of it is tried.
    pub onward: Way,
    /// How it is copied.
    pub policy: CopyPolicy,
}

/// What `bcmr serve` may do.
#[derive(Clone, Debug)]
pub struct ServeRequest {
    /// Everything happens below this directory; `None`: what the user may.
    pub root: Option<PathBuf>,
    /// Nothing may be changed.
    pub read_only: bool,
    /// The store of blocks: its directory, the bytes it may remember (0: any number), and the bytes it may keep beyond the
    /// removal of the files they are in; `None`: no store.
    pub store: Option<(PathBuf, u64, u64)>,
    /// Worker threads at most.
    pub jobs: usize,
    /// The umask, as in [`CopyPolicy`].
    pub umask: u32,
    /// The effective user.
    pub me: u32,
    /// The user's home, which relative paths are below.
    pub home: PathBuf,
    /// The user's trash, where there is one.
    pub trash: Option<Old>,
    /// The address that ssh came in on (`SSH_CONNECTION`): where a direct data plane may listen.
    pub arrived_at: Option<std::net::IpAddr>,
    /// Directories in which further connections may meet this one, the best first: `$XDG_RUNTIME_DIR`, else a temporary one.
    pub meeting: Vec<PathBuf>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// By `ssh`, with every option as it is where none is given.
    pub(crate) fn plain_way(ssh: Vec<OsString>) -> Way {
        Way {
            ssh,
            options: Vec::new(),
            program: "bcmr".into(),
            run_as: RunAs::Login,
            parallel: None,
            plane: Plane::Ssh,
            compress: Compress::None,
            fast: false,
            dedup: false,
            throttle: Arc::new(Throttle::new(None)),
            whole_file: false,
            retries: 0,
            shared: None,
        }
    }
}
