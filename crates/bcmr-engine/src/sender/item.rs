//! One source entry as it goes onto the wire: what it is, its link target, its attributes.
//!
//! Must not know what becomes of it.

use crate::error::Reason;
use crate::held_stat;
use crate::policy::Preserve;
use bcmr_wire::limits::{ATTR_BYTES, ATTRS_BYTES_MAX, FILE_BYTES_MAX, NAME_BYTES_MAX};
use bcmr_wire::message::{self, Entry};
use fastcopy::dir::NameBuf;
use fastcopy::meta::{Info, Kind, Time};
use fastcopy::xattr::{ACL_ACCESS, ACL_DEFAULT, Of, XattrBuffer};
use std::io;

/// Attributes, names and values.
pub(crate) type EntryAttrs = Vec<(Vec<u8>, Vec<u8>)>;

/// What is kept of an entry until the receiver has settled it: no descriptor, and no path.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) name: NameBuf,
    pub(crate) info: Info,
    /// Bytes of content: what `info` says, but where file systems lie about it.
    pub(crate) size: u64,
    /// Target of a symbolic link.
    pub(crate) link: Vec<u8>,
    pub(crate) attrs: EntryAttrs,
}

impl Item {
    /// For the wire.
    pub(crate) fn entry(&self) -> Entry<'_> {
        entry(self.name.bytes(), &self.info, self.size, &self.link, &self.attrs)
    }

    /// Bytes that it takes beside its content, about.
    pub(crate) fn bytes(&self) -> usize {
        let attrs: usize = self.attrs.iter().map(|(n, v)| n.len() + v.len() + ATTR_BYTES).sum();
        self.name.bytes().len() + self.link.len() + attrs + 80
    }

    /// Whether it has content to be wanted.
    pub(crate) fn is_file(&self) -> bool {
        self.info.kind == Kind::File
    }
}

/// An entry for the wire.
pub(crate) fn entry<'a>(
    name: &'a [u8],
    info: &Info,
    size: u64,
    link: &'a [u8],
    attrs: &'a [(Vec<u8>, Vec<u8>)],
) -> Entry<'a> {
    let time = |t: Time| message::Time { sec: t.sec, nsec: t.nsec };
    Entry {
        kind: match info.kind {
            Kind::File => message::Kind::File,
            Kind::Dir => message::Kind::Dir,
            Kind::Link => message::Kind::Link,
            Kind::Fifo => message::Kind::Fifo,
            Kind::Socket => message::Kind::Socket,
            Kind::CharDevice => message::Kind::CharDevice,
            Kind::BlockDevice => message::Kind::BlockDevice,
        },
        name,
        mode: info.mode,
        uid: info.uid,
        gid: info.gid,
        size,
        blocks: info.blocks.min(FILE_BYTES_MAX / 512),
        atime: time(info.atime),
        mtime: time(info.mtime),
        ctime: time(info.ctime),
        dev: info.dev,
        ino: info.ino,
        nlink: info.nlink,
        rdev: info.rdev,
        link,
        attrs: attrs.iter().map(|(n, v)| (n.as_slice(), v.as_slice())).collect(),
    }
}

/// Why an entry cannot be encoded at all, if so.
pub(crate) fn not_encodable(name: &[u8], info: &Info, size: u64) -> Option<Reason> {
    if name.len() > NAME_BYTES_MAX {
        return Some(Reason::NameOver255);
    }
    if info.uid == u32::MAX || info.gid == u32::MAX {
        return Some(Reason::OwnerWithoutNumber);
    }
    (size > FILE_BYTES_MAX).then_some(Reason::LongerThanFilesAre)
}

/// The attributes that are kept of something; `None` when they are more than may be sent.
pub(crate) fn attributes(
    of: Of<'_>,
    kind: Kind,
    preserve: &Preserve,
    buffer: &mut XattrBuffer,
) -> io::Result<Option<EntryAttrs>> {
    let acl = preserve.acl && kind != Kind::Link;
    let mut attrs = EntryAttrs::new();
    if !preserve.xattr && !acl {
        return Ok(Some(attrs));
    }
    let mut bytes = 0usize;
    let wanted = |name: &std::ffi::CStr| {
        let is_ordinary = preserve.xattr && !held_stat::hides(preserve, name.to_bytes());
        if name == ACL_ACCESS || name == ACL_DEFAULT { acl } else { is_ordinary }
    };
    held_stat::read_attributes(of, preserve.at_source, buffer, wanted, |name, value| {
        bytes += name.count_bytes() + value.len() + ATTR_BYTES;
        if bytes <= ATTRS_BYTES_MAX {
            attrs.push((name.to_bytes().to_vec(), value.to_vec()));
        }
        Ok(())
    })?;
    Ok((bytes <= ATTRS_BYTES_MAX).then_some(attrs))
}
