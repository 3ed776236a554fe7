//! File systems as wholes: each that something was put on is synced, each once, and where a sync failed is remembered.
//!
//! Must not know what waits for a sync. Why failures are remembered: the kernel tells of lost pages once and takes them
//! for clean, whosever they are; so the next sync of that file system may return 0 over them (R5).

use crate::disk::Disk;
use crate::error::{Error, Op};
use crate::receiver::dest::DestDir;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The file systems of one run.
pub(crate) struct Devices<'a, D: Disk> {
    disk: &'a D,
    /// One directory on each where names were made that only a sync of all of it makes durable.
    owed: Mutex<Vec<DestDir<D>>>,
    /// Those that are unsure. Held while one is synced, so that no worker believes a sync that began beside one that failed.
    unsure: Mutex<Vec<u64>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a, D: Disk> Devices<'a, D> {
    pub(crate) fn new(disk: &'a D) -> Devices<'a, D> {
        Devices { disk, owed: Mutex::new(Vec::new()), unsure: Mutex::new(Vec::new()) }
    }

    /// A sync of `dir`, or of all of its file system, failed elsewhere.
    pub(crate) fn doubt(&self, dir: &DestDir<D>) {
        let mut unsure = locked(&self.unsure);
        if !unsure.contains(&dir.info.dev) {
            unsure.push(dir.info.dev);
        }
    }

    /// Whether no sync has failed where `dir` is.
    pub(crate) fn is_sure(&self, dir: &DestDir<D>) -> bool {
        !locked(&self.unsure).contains(&dir.info.dev)
    }

    /// Syncs the file systems of `dirs`. What fails now comes back with its device; what failed before is not tried
    /// again (R5). [`Devices::is_sure`] tells both from those that are on stable storage.
    pub(crate) fn sync<'d>(&self, dirs: impl IntoIterator<Item = &'d DestDir<D>>) -> Vec<(u64, Error)>
    where
        D: 'd,
    {
        let mut unsure = locked(&self.unsure);
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        for dir in dirs {
            let dev = dir.info.dev;
            if done.contains(&dev) || unsure.contains(&dev) {
                continue;
            }
            match self.disk.sync_all(&dir.dir) {
                Ok(()) => done.push(dev),
                Err(e) => {
                    unsure.push(dev);
                    failed.push((dev, Error::os(Op::Sync, dir.node.path(), e)));
                }
            }
        }
        failed
    }

    /// Names were made in `dir` that wait for [`Devices::sync_owed`].
    pub(crate) fn owe(&self, dir: &DestDir<D>) {
        let mut owed = locked(&self.owed);
        if !owed.iter().any(|o| o.info.dev == dir.info.dev) {
            owed.push(dir.share());
        }
    }

    /// Makes the names durable that were not synced one by one.
    pub(crate) fn sync_owed(&self) -> Vec<(u64, Error)> {
        let owed = std::mem::take(&mut *locked(&self.owed));
        self.sync(&owed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::model::{DEV, Model, Trouble, What};
    use crate::node::Node;
    use crate::receiver::plan::tests::policy;
    use fastcopy::errno;
    use std::path::Path;

    /// A directory on a device of that number; the model has but one disk, and counts what it is asked.
    fn on(model: &Model, dev: u64) -> DestDir<Model> {
        let node = Node::root(Path::new("d"));
        let mut dir = DestDir::existing(model, model.root(), node, None, &policy()).unwrap();
        dir.info.dev = dev;
        dir
    }

    /// A disk that counts how often all of it is synced.
    fn counting() -> Model {
        let model = Model::new();
        model.trouble(Trouble { lie: Some(|asked| asked.what == What::All), ..Trouble::default() });
        model
    }

    #[test]
    fn every_device_is_synced_once() {
        let model = counting();
        let devices = Devices::new(&model);
        let dirs = [DEV, 1, DEV, 2, 1].map(|dev| on(&model, dev));
        assert!(devices.sync(&dirs).is_empty());
        assert_eq!(model.lied(), 3);
        for dir in &dirs {
            devices.owe(dir);
        }
        assert!(devices.sync_owed().is_empty());
        assert_eq!(model.lied(), 6);
        assert!(devices.sync_owed().is_empty());
        assert_eq!(model.lied(), 6, "nothing was owed any more");
    }

    /// R5: after a sync that failed the same device is not asked again, and never sure; others are.
    #[test]
    fn a_sync_that_failed_is_not_tried_again() {
        let model = counting();
        let devices = Devices::new(&model);
        let (bad, good) = (on(&model, 1), on(&model, 2));
        model.trouble(Trouble { fail_at: Some((model.steps() + 1, errno::EIO)), ..Trouble::default() });
        let failed = devices.sync([&bad, &good]);
        assert!(matches!(failed[..], [(1, _)]), "{failed:?}");
        assert!(!devices.is_sure(&bad) && devices.is_sure(&good));
        let steps = model.steps();
        devices.owe(&bad);
        assert!(devices.sync([&bad, &bad]).is_empty(), "told twice");
        assert!(devices.sync_owed().is_empty(), "told twice");
        assert_eq!(model.steps(), steps, "tried again");
        assert!(!devices.is_sure(&bad));
        // Where another worker's sync failed, no further one asks either.
        devices.doubt(&good);
        assert!(devices.sync([&good]).is_empty());
        assert_eq!(model.steps(), steps);
        assert!(!devices.is_sure(&good));
    }
}
