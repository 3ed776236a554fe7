//! The file systems that are tried: how each is made and mounted. Knows nothing of what happens on them.

use crate::crash::sys::Mount;
use sh::Result;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fs {
    Ext4,
    /// Names may reach the disk before the data they lead to.
    Ext4Writeback,
    /// What removes a name waits until that is on the disk: the worst case for a move's source.
    Ext4Dirsync,
    Xfs,
    Btrfs,
}

impl Fs {
    pub fn parse(name: &str) -> Option<Fs> {
        [Fs::Ext4, Fs::Ext4Writeback, Fs::Xfs, Fs::Btrfs].into_iter().find(|fs| fs.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Fs::Ext4 => "ext4",
            Fs::Ext4Writeback => "ext4-writeback",
            Fs::Ext4Dirsync => "ext4-dirsync",
            Fs::Xfs => "xfs",
            Fs::Btrfs => "btrfs",
        }
    }

    /// What mkfs and mount call it.
    fn kind(self) -> &'static str {
        match self {
            Fs::Ext4 | Fs::Ext4Writeback | Fs::Ext4Dirsync => "ext4",
            Fs::Xfs => "xfs",
            Fs::Btrfs => "btrfs",
        }
    }

    pub fn mkfs(self) -> String {
        format!("mkfs.{}", self.kind())
    }

    /// About the smallest disk it takes, in bytes.
    pub fn disk_bytes_min(self) -> u64 {
        let mib = match self.kind() {
            "ext4" => 64,
            "xfs" => 300,
            _ => 128,
        };
        mib << 20
    }

    /// Makes one on a disk of so many bytes. Nothing of it is left to be done at the first mount.
    pub fn make(self, disk: &Path, bytes: u64) -> Result {
        std::fs::File::create_new(disk)?.set_len(bytes)?;
        let name = disk.to_string_lossy();
        let args: &[&str] = match self.kind() {
            "ext4" => &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", &name],
            _ => &["-q", "-f", &name],
        };
        sh::quiet(&self.mkfs(), args)
    }

    /// Mounts one that is used while it is recorded.
    pub fn mount_live(self, device: &Path, dir: &Path) -> std::io::Result<Mount> {
        let options = match self {
            Fs::Ext4Writeback => "data=writeback",
            Fs::Ext4Dirsync => "dirsync",
            Fs::Ext4 | Fs::Xfs | Fs::Btrfs => "",
        };
        Mount::new(device, dir, self.kind(), options)
    }

    /// Mounts one after a power cut; it replays its journal.
    pub fn mount_after(self, device: &Path, dir: &Path) -> std::io::Result<Mount> {
        Mount::new(device, dir, self.kind(), if self == Fs::Xfs { "nouuid" } else { "" })
    }

    /// The kernel remembers the devices of a btrfs, and takes an older state of one that it knows for a mistake.
    pub fn forget(self, device: &Path) -> Result {
        if self != Fs::Btrfs {
            return Ok(());
        }
        // Just after it was unmounted something else may look at it still.
        let mut tries = 0;
        loop {
            match sh::quiet("btrfs", &["device", "scan", "--forget", &device.to_string_lossy()]) {
                Err(_) if tries < 50 => std::thread::sleep(std::time::Duration::from_millis(100)),
                done => return done,
            }
            tries += 1;
        }
    }
}
