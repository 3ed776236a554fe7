//! Owners and modes that something gets instead of its source's (`--chown`, `--chmod`, `--usermap`, `--groupmap`).
//!
//! Pure. Must not know what gets them, nor any name of a user.

use fastcopy::meta::{Info, Kind};

/// A change of a mode: bits that stay, bits that are set, and bits that are set where something may be executed already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeChange {
    /// Of the bits that are there, these stay.
    pub stay: u16,
    /// These are set.
    pub set: u16,
    /// These too, where one of the bits of execution was there.
    pub set_if_executable: u16,
}

impl ModeChange {
    /// Nothing changes.
    pub const NONE: ModeChange = ModeChange { stay: 0o7777, set: 0, set_if_executable: 0 };

    /// What becomes of a mode.
    #[must_use]
    pub fn of(self, mode: u32) -> u32 {
        let more = if mode & 0o111 != 0 { self.set_if_executable } else { 0 };
        mode & u32::from(self.stay) | u32::from(self.set | more)
    }

    fn number(self) -> u64 {
        u64::from(self.stay) | u64::from(self.set) << 12 | u64::from(self.set_if_executable) << 24
    }

    fn of_number(number: u64) -> Option<ModeChange> {
        let part = |shift: u32| (number >> shift & 0o7777) as u16;
        (number >> 36 == 0).then(|| ModeChange { stay: part(0), set: part(12), set_if_executable: part(24) })
    }
}

/// So many users, and so many groups, are mapped at most.
pub const MAPPED_MAX: usize = 8;
/// As the first of a pair: any.
pub const ANYBODY: u32 = u32::MAX;

/// Who becomes whom; the first pair that is about an owner decides.
pub type OwnerMap = [Option<(u32, u32)>; MAPPED_MAX];

/// What things get instead of what their source has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnersAndModes {
    /// Modes of everything but directories.
    pub files: ModeChange,
    /// Modes of directories.
    pub dirs: ModeChange,
    /// Users.
    pub users: OwnerMap,
    /// Groups.
    pub groups: OwnerMap,
    /// How the others are known on another machine.
    pub known_by: OwnersBy,
}

/// How an owner is found on another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnersBy {
    /// By the name, where both machines have it; else by the number.
    Name,
    /// By the number (`--numeric-ids`).
    Number,
}

/// What the parts are called between machines. From each of the last two on, one for each pair.
const FILES: u8 = 6;
const DIRS: u8 = 7;
const USERS: u8 = 32;
const GROUPS: u8 = 64;

impl OwnersAndModes {
    /// All as the source has it.
    pub const NONE: OwnersAndModes = OwnersAndModes {
        files: ModeChange::NONE,
        dirs: ModeChange::NONE,
        users: [None; MAPPED_MAX],
        groups: [None; MAPPED_MAX],
        known_by: OwnersBy::Name,
    };

    /// What something is to be.
    #[must_use]
    pub fn of(&self, info: &Info) -> Info {
        let uid = self.user(info.uid).unwrap_or(info.uid);
        let gid = self.group(info.gid).unwrap_or(info.gid);
        let own = without_lent(info.kind, info.mode, uid != info.uid, gid != info.gid);
        Info { mode: self.mode(info.kind, own), uid, gid, ..*info }
    }

    /// The mode that something of this kind is to have.
    pub(crate) fn mode(&self, kind: Kind, mode: u32) -> u32 {
        let change = if kind == Kind::Dir { self.dirs } else { self.files };
        change.of(mode)
    }

    /// Who a user is to become, where something is said of that one.
    #[must_use]
    pub fn user(&self, id: u32) -> Option<u32> {
        mapped(&self.users, id)
    }

    /// The same of a group.
    #[must_use]
    pub fn group(&self, id: u32) -> Option<u32> {
        mapped(&self.groups, id)
    }

    /// Whether some user is to become this one.
    pub(crate) fn gives_user(&self, id: u32) -> bool {
        self.users.iter().flatten().any(|(_, to)| *to == id)
    }

    /// Whether some group is to become this one.
    pub(crate) fn gives_group(&self, id: u32) -> bool {
        self.groups.iter().flatten().any(|(_, to)| *to == id)
    }

    /// What is about owners alone. Here it is done already from now on: of it stays only who was to be given something.
    pub(crate) fn take_owners(&mut self) -> OwnersAndModes {
        let none = OwnersAndModes::NONE;
        let owners = OwnersAndModes { files: none.files, dirs: none.dirs, ..*self };
        self.known_by = none.known_by;
        self.users.iter_mut().chain(&mut self.groups).flatten().for_each(|(from, to)| *from = *to);
        owners
    }

    /// For another machine, in rising order; nothing where nothing is said.
    pub(crate) fn numbers(&self) -> Vec<(u8, u64)> {
        let change =
            |which, change: ModeChange| (change != ModeChange::NONE).then(|| (which, change.number()));
        let map = |which: u8, map: &OwnerMap| {
            let number = |(from, to): (u32, u32)| u64::from(from) << 32 | u64::from(to);
            let places = (which..).zip(map.iter());
            places.filter_map(|(which, pair)| Some((which, number((*pair)?)))).collect::<Vec<_>>()
        };
        let modes = change(FILES, self.files).into_iter().chain(change(DIRS, self.dirs));
        modes.chain(map(USERS, &self.users)).chain(map(GROUPS, &self.groups)).collect()
    }

    /// Takes one number that another machine said, if it is about this and makes sense.
    pub(crate) fn set_number(&mut self, (which, value): (u8, u64)) -> bool {
        let (from, to) = ((value >> 32) as u32, value as u32);
        let pair = |map: &mut OwnerMap, first: u8| {
            // To the kernel the highest number means "as it is".
            let place = map.get_mut(usize::from(which - first)).filter(|_| to != u32::MAX);
            place.map(|place| *place = Some((from, to))).is_some()
        };
        match which {
            FILES => ModeChange::of_number(value).map(|change| self.files = change).is_some(),
            DIRS => ModeChange::of_number(value).map(|change| self.dirs = change).is_some(),
            GROUPS.. => pair(&mut self.groups, GROUPS),
            USERS.. => pair(&mut self.users, USERS),
            _ => false,
        }
    }
}

/// L4: the mode of what is given to another user or another group than it came with. What setuid and setgid lend was its
/// owner's and its group's to lend; of a directory they lend nothing.
pub(crate) fn without_lent(kind: Kind, mode: u32, is_other_user: bool, is_other_group: bool) -> u32 {
    let user = if is_other_user { 0o4000 } else { 0 };
    let group = if is_other_group { 0o2000 } else { 0 };
    if kind == Kind::Dir { mode } else { mode & !(user | group) }
}

fn mapped(map: &OwnerMap, id: u32) -> Option<u32> {
    let pair = map.iter().flatten().find(|(from, _)| *from == id || *from == ANYBODY);
    pair.map(|(_, to)| *to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastcopy::meta::Time;

    fn info(kind: Kind, mode: u32, uid: u32, gid: u32) -> Info {
        let t = Time { sec: 0, nsec: 0 };
        let (dev, ino, nlink, size, blocks, rdev) = (1, 1, 1, 0, 0, 0);
        Info { kind, mode, uid, gid, dev, ino, nlink, size, blocks, rdev, atime: t, mtime: t, ctime: t }
    }

    #[test]
    fn modes_and_owners() {
        let no_w = ModeChange { stay: !0o022 & 0o7777, set: 0o400, set_if_executable: 0o011 };
        let dirs = ModeChange { stay: 0, set: 0o755, set_if_executable: 0 };
        let mut users = [None; MAPPED_MAX];
        users[0] = Some((5, 6));
        users[3] = Some((ANYBODY, 0));
        let mut groups = [None; MAPPED_MAX];
        groups[0] = Some((6, 7));
        let alter = OwnersAndModes { files: no_w, dirs, users, groups, ..OwnersAndModes::NONE };
        for (kind, mode, uid, gid, want) in [
            (Kind::File, 0o666, 5, 6, (0o644, 6, 7)),
            (Kind::File, 0o722, 6, 5, (0o711, 0, 5)),
            (Kind::Dir, 0o1700, 0, 0, (0o755, 0, 0)),
            // What lends the rights of an owner goes with that one, the group's with the group.
            (Kind::File, 0o6722, 6, 5, (0o2711, 0, 5)),
            (Kind::File, 0o6711, 0, 6, (0o4711, 0, 7)),
            (Kind::File, 0o6711, 5, 6, (0o711, 6, 7)),
            (Kind::File, 0o6711, 0, 5, (0o6711, 0, 5)),
        ] {
            let got = alter.of(&info(kind, mode, uid, gid));
            assert_eq!((got.mode, got.uid, got.gid), want, "{kind:?} {mode:o} {uid} {gid}");
        }
        let keeps = OwnersAndModes { files: ModeChange::NONE, dirs: ModeChange::NONE, ..alter };
        assert_eq!(keeps.of(&info(Kind::Dir, 0o6755, 5, 6)).mode, 0o6755);
        // What is asked for by name is set all the same.
        let asked = OwnersAndModes { files: ModeChange { set: 0o4000, ..ModeChange::NONE }, ..keeps };
        assert_eq!(asked.of(&info(Kind::File, 0o6755, 5, 6)).mode, 0o4755);
        let same = info(Kind::File, 0o4751, 3, 4);
        assert_eq!(OwnersAndModes::NONE.of(&same), same);
        let mut back = OwnersAndModes::NONE;
        let numbers = alter.numbers();
        assert!(numbers.is_sorted_by(|a, b| a.0 < b.0) && numbers.iter().all(|n| back.set_number(*n)));
        assert_eq!(back, alter);
        assert!(OwnersAndModes::NONE.numbers().is_empty());
        for bad in [(5, 0), (6, 1 << 36), (32, u64::from(u32::MAX)), (40, 1), (72, 1), (255, 1)] {
            assert!(!OwnersAndModes::NONE.clone().set_number(bad), "{bad:?}");
        }
    }
}
