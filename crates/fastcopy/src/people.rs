//! What users and groups are called on this machine.
//!
//! Must not know whose file it is about.

use std::ffi::CStr;
use std::mem::MaybeUninit;

/// Room for one entry of the database; what takes more is no name to show.
const ROOM_BYTES_MAX: usize = 1 << 20;

/// `getpwuid_r`: what a user is called; `None` when nobody has that number, or the database cannot be asked.
#[must_use]
pub fn user_name(uid: u32) -> Option<Vec<u8>> {
    with_room(|room| {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: entry, room and found are ours and live through the call; `room` is as long as is said.
        let failed = unsafe {
            libc::getpwuid_r(uid, entry.as_mut_ptr(), room.as_mut_ptr().cast(), room.len(), &mut found)
        };
        if failed != 0 {
            return Err(failed);
        }
        if found.is_null() {
            return Ok(None);
        }
        // SAFETY: it was found, so `entry` is filled in and its name is a string that ends within `room`.
        Ok(Some(unsafe { CStr::from_ptr(entry.assume_init_ref().pw_name) }.to_bytes().to_vec()))
    })
}

/// `getgrgid_r`: what a group is called, likewise.
#[must_use]
pub fn group_name(gid: u32) -> Option<Vec<u8>> {
    with_room(|room| {
        let mut entry = MaybeUninit::<libc::group>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: entry, room and found are ours and live through the call; `room` is as long as is said.
        let failed = unsafe {
            libc::getgrgid_r(gid, entry.as_mut_ptr(), room.as_mut_ptr().cast(), room.len(), &mut found)
        };
        if failed != 0 {
            return Err(failed);
        }
        if found.is_null() {
            return Ok(None);
        }
        // SAFETY: it was found, so `entry` is filled in and its name is a string that ends within `room`.
        Ok(Some(unsafe { CStr::from_ptr(entry.assume_init_ref().gr_name) }.to_bytes().to_vec()))
    })
}

/// Asks again with more room while that is what is missing.
fn with_room(mut ask: impl FnMut(&mut [u8]) -> Result<Option<Vec<u8>>, i32>) -> Option<Vec<u8>> {
    let mut room = vec![0; 1024];
    loop {
        match ask(&mut room) {
            Err(libc::ERANGE) if room.len() < ROOM_BYTES_MAX => room.resize(room.len() * 4, 0),
            Err(libc::EINTR) => {}
            Err(_) => return None,
            Ok(name) => return name.filter(|name| !name.is_empty()),
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
