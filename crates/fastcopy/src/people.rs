//! What users and groups are called on this machine.
//!
//! Must not know whose file it is about.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;

/// Room for one entry of the database; what takes more is no name to show.
const ROOM_BYTES_MAX: usize = 1 << 20;

/// `getpwuid_r`: what a user is called; `None` when no user has that number, or the database cannot be asked.
#[must_use]
pub fn user_name(uid: u32) -> Option<Vec<u8>> {
    let ask = |entry, room: &mut [u8], found| {
        // SAFETY: `name_of` hands in what is its own and lives through the call; `room` is as long as is said.
        unsafe { libc::getpwuid_r(uid, entry, room.as_mut_ptr().cast(), room.len(), found) }
    };
    name_of(ask, |entry: &libc::passwd| entry.pw_name)
}

/// `getgrgid_r`: what a group is called, likewise.
#[must_use]
pub fn group_name(gid: u32) -> Option<Vec<u8>> {
    let ask = |entry, room: &mut [u8], found| {
        // SAFETY: `name_of` hands in what is its own and lives through the call; `room` is as long as is said.
        unsafe { libc::getgrgid_r(gid, entry, room.as_mut_ptr().cast(), room.len(), found) }
    };
    name_of(ask, |entry: &libc::group| entry.gr_name)
}

/// `getpwnam_r`: the number of the user with this name; `None` when there is none, or the database cannot be asked.
#[must_use]
pub fn user_number(name: &CStr) -> Option<u32> {
    let ask = |entry: *mut libc::passwd, room: &mut [u8], found: *mut *mut libc::passwd| {
        // SAFETY: `name` ends with a NUL, all pointers are to live memory of the lengths that are given.
        unsafe { libc::getpwnam_r(name.as_ptr(), entry, room.as_mut_ptr().cast(), room.len(), found) }
    };
    entry_of(ask, |entry: &libc::passwd| entry.pw_uid)
}

/// `getgrnam_r`: the number of a group, likewise.
#[must_use]
pub fn group_number(name: &CStr) -> Option<u32> {
    let ask = |entry: *mut libc::group, room: &mut [u8], found: *mut *mut libc::group| {
        // SAFETY: `name` ends with a NUL, all pointers are to live memory of the lengths that are given.
        unsafe { libc::getgrnam_r(name.as_ptr(), entry, room.as_mut_ptr().cast(), room.len(), found) }
    };
    entry_of(ask, |entry: &libc::group| entry.gr_gid)
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
    fn root_has_a_name_and_most_numbers_have_none() {
        assert_eq!(user_name(0).as_deref(), Some(&b"root"[..]));
        assert!(group_name(0).is_some());
        assert_eq!((user_name(4_000_000_001), group_name(4_000_000_001)), (None, None));
    }
}
