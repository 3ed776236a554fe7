//! Lines of fields between tabs, for files that people may read: any bytes go into a field and come out of it.
//!
//! Must not know what the fields mean.

/// Adds one field to a line.
pub(crate) fn put(line: &mut Vec<u8>, field: &[u8]) {
    if !line.is_empty() {
        line.push(b'\t');
    }
    for byte in field {
        match byte {
            b'\\' => line.extend_from_slice(b"\\\\"),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\t' => line.extend_from_slice(b"\\t"),
            byte => line.push(*byte),
        }
    }
}

/// What was put into a field; `None`: nothing would have been written so.
pub(crate) fn taken(field: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(field.len());
    let mut bytes = field.iter();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                b't' => b'\t',
                _ => return None,
            },
            byte => *byte,
        });
    }
    Some(out)
}
