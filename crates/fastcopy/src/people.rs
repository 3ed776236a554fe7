//! What users and groups are called on this machine.
//!
//! A program that the C library is linked into reads `/etc/passwd` and `/etc/group` itself: the library's own functions load
//! what nsswitch.conf(5) names, which was made for the machine's library and ends a program with another one (seen of
//! libnss_systemd).
//!
//! Must not know whose file it is about.

use crate::retry::retry;
use rustix::fs::{Mode, OFlags};
use std::ffi::{CStr, c_char};
use std::fs::File;
use std::io::Read;
use std::mem::MaybeUninit;

const IS_STATIC: bool = cfg!(target_feature = "crt-static");
const USERS: &CStr = c"/etc/passwd";
const GROUPS: &CStr = c"/etc/group";

/// Room for one entry of the database; what takes more is no name to show.
const ROOM_BYTES_MAX: usize = 1 << 20;

/// `getpwuid_r`: what a user is called; `None` when no user has that number, or the database cannot be asked.
#[must_use]
pub fn user_name(uid: u32) -> Option<Vec<u8>> {
    if IS_STATIC {
        return name_in(&read(USERS)?, uid);
    }
    let ask = |entry, room: &mut [u8], found| {
        // SAFETY: `name_of` hands in what is its own and lives through the call; `room` is as long as is said.
        unsafe { libc::getpwuid_r(uid, entry, room.as_mut_ptr().cast(), room.len(), found) }
    };
    name_of(ask, |entry: &libc::passwd| entry.pw_name)
}

/// `getgrgid_r`: what a group is called, likewise.
#[must_use]
pub fn group_name(gid: u32) -> Option<Vec<u8>> {
    if IS_STATIC {
        return name_in(&read(GROUPS)?, gid);
    }
    let ask = |entry, room: &mut [u8], found| {
        // SAFETY: `name_of` hands in what is its own and lives through the call; `room` is as long as is said.
        unsafe { libc::getgrgid_r(gid, entry, room.as_mut_ptr().cast(), room.len(), found) }
    };
    name_of(ask, |entry: &libc::group| entry.gr_name)
}

/// `getpwnam_r`: the number of the user with this name; `None` when there is none, or the database cannot be asked.
#[must_use]
pub fn user_number(name: &CStr) -> Option<u32> {
    if IS_STATIC {
        return number_in(&read(USERS)?, name.to_bytes());
    }
    let ask = |entry: *mut libc::passwd, room: &mut [u8], found: *mut *mut libc::passwd| {
        // SAFETY: `name` ends with a NUL, all pointers are to live memory of the lengths that are given.
        unsafe { libc::getpwnam_r(name.as_ptr(), entry, room.as_mut_ptr().cast(), room.len(), found) }
    };
    entry_of(ask, |entry: &libc::passwd| entry.pw_uid)
}

/// `getgrnam_r`: the number of a group, likewise.
#[must_use]
pub fn group_number(name: &CStr) -> Option<u32> {
    if IS_STATIC {
        return number_in(&read(GROUPS)?, name.to_bytes());
    }
    let ask = |entry: *mut libc::group, room: &mut [u8], found: *mut *mut libc::group| {
        // SAFETY: `name` ends with a NUL, all pointers are to live memory of the lengths that are given.
        unsafe { libc::getgrnam_r(name.as_ptr(), entry, room.as_mut_ptr().cast(), room.len(), found) }
    };
    entry_of(ask, |entry: &libc::group| entry.gr_gid)
}

fn read(database: &CStr) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let mut bytes = Vec::new();
    File::from(retry(|| rustix::fs::open(database, flags, Mode::empty())).ok()?)
        .read_to_end(&mut bytes)
        .ok()?;
    Some(bytes)
}

/// Names and numbers of passwd(5) and group(5): the first and the third field of each line.
fn entries(database: &[u8]) -> impl Iterator<Item = (&[u8], u32)> {
    database.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        let number = std::str::from_utf8(number).ok()?.parse().ok()?;
        // What begins so is no name but asks for another database.
        let is_name = !matches!(name.first(), None | Some(b'+' | b'-' | b'#'));
        is_name.then_some((name, number))
    })
}

fn name_in(database: &[u8], number: u32) -> Option<Vec<u8>> {
    entries(database).find(|(_, of)| *of == number).map(|(name, _)| name.to_vec())
}

fn number_in(database: &[u8], name: &[u8]) -> Option<u32> {
    entries(database).find(|(called, _)| *called == name).map(|(_, number)| number)
}

fn name_of<Entry>(
    ask: impl Fn(*mut Entry, &mut [u8], *mut *mut Entry) -> i32,
    name: impl Fn(&Entry) -> *mut c_char,
) -> Option<Vec<u8>> {
    entry_of(ask, |entry| {
        // SAFETY: the entry is filled in and its name is a string that ends within the room that lives as long.
        let name = unsafe { CStr::from_ptr(name(entry)) };
        name.to_bytes().to_vec()
    })
    .filter(|name| !name.is_empty())
}

/// Asks the database for one entry and takes something of it; again with more room while that is what is missing. Once
/// `ask` has set its last argument, the entry is filled in, and its strings end within the room.
fn entry_of<Entry, Taken>(
    ask: impl Fn(*mut Entry, &mut [u8], *mut *mut Entry) -> i32,
    take: impl Fn(&Entry) -> Taken,
) -> Option<Taken> {
    let mut room = vec![0; 1024];
    loop {
        let mut entry = MaybeUninit::<Entry>::uninit();
        let mut found = std::ptr::null_mut();
        match ask(entry.as_mut_ptr(), &mut room, &mut found) {
            0 if found.is_null() => return None,
            // SAFETY: it was found, so `entry` is filled in.
            0 => return Some(take(unsafe { entry.assume_init_ref() })),
            libc::ERANGE if room.len() < ROOM_BYTES_MAX => room.resize(room.len() * 4, 0),
            libc::EINTR => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_say_what_the_library_says() {
        let (users, groups) = (read(USERS).unwrap(), read(GROUPS).unwrap());
        assert!(entries(&users).count() > 0);
        for (name, number) in entries(&users) {
            let name = std::ffi::CString::new(name).unwrap();
            assert_eq!(user_number(&name), number_in(&users, name.to_bytes()), "{name:?}");
            assert_eq!(user_name(number), name_in(&users, number), "{number}");
        }
        for (name, number) in entries(&groups) {
            let name = std::ffi::CString::new(name).unwrap();
            assert_eq!(group_number(&name), number_in(&groups, name.to_bytes()), "{name:?}");
            assert_eq!(group_name(number), name_in(&groups, number), "{number}");
        }
        assert_eq!(user_number(c"nobody is called so"), None);
    }

    #[test]
    fn what_is_no_entry_is_passed_over() {
        let database = b"#a:x:1\n\nshort:x\n+nis::0:\n-b:x:2\nc:x:-3\nd:x:4294967296\ne:x:5:0::/:\nf:x:6";
        assert_eq!(entries(database).collect::<Vec<_>>(), [(&b"e"[..], 5), (&b"f"[..], 6)]);
        assert_eq!((name_in(database, 5), number_in(database, b"f")), (Some(b"e".to_vec()), Some(6)));
    }

    #[test]
    fn root_has_a_name_and_most_numbers_have_none() {
        assert_eq!(user_name(0).as_deref(), Some(&b"root"[..]));
        assert!(group_name(0).is_some());
        assert_eq!((user_name(4_000_000_001), group_name(4_000_000_001)), (None, None));
    }
}
