//! Any byte stream, sealed: records of AES-256-GCM under keys that only the two ends have (`docs/protocol.md`, section 7).
//!
//! Must not know sockets, nor what the bytes mean. A key seals one direction of one stream, from its first record to its
//! last; a nonce is a counter, so none is used twice; and a stream has ended only when its last record says so.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};

use bcmr_wire::direct::{Direction, KEY_CONTEXT, greetings, is_end, key_material, nonce};
use bcmr_wire::limits::{RECORD_BYTES_MAX, RECORDS_MAX};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Plaintext of the records we send: on a slow line a record must not take as long as a dead peer is waited for, and
/// this much stays in the cache between filling, sealing and sending.
const SEND_BYTES: usize = 128 << 10;
pub(crate) const TAG_BYTES: usize = 16;
pub(crate) const LENGTH_BYTES: usize = 4;

/// What is sealed with one key, and with one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyLimits {
    /// Records of a stream; then the connection ends.
    pub(crate) records: u64,
    /// Records under one key; then the next key follows from it.
    pub(crate) records_per_key: u64,
}

impl KeyLimits {
    /// 2^32 records, and a new key after at most 256 GiB: well inside what is known of GCM's margins.
    pub(crate) const WIRE: KeyLimits = KeyLimits { records: RECORDS_MAX, records_per_key: 1 << 18 };
}

/// 32 bytes that are wiped when they are no longer needed, and never shown.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub(crate) struct Secret([u8; 32]);

impl Secret {
    pub(crate) fn new(bytes: [u8; 32]) -> Secret {
        Secret(bytes)
    }
    /// A new one from the kernel.
    pub(crate) fn random() -> io::Result<Secret> {
        let mut secret = Secret([0; 32]);
        fastcopy::process::random(&mut secret.0)?;
        Ok(secret)
    }
    /// For the one message that carries it, over ssh.
    pub(crate) fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What both sides have said before, in one hash: `Hello`, `Welcome`, and of `Rendezvous` all but the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transcript([u8; 32]);

impl Transcript {
    /// From the payloads as they went over the wire, `Rendezvous` with its secret at the end.
    pub(crate) fn of(hello: &[u8], welcome: &[u8], rendezvous: &[u8]) -> Transcript {
        Transcript(*blake3::hash(&greetings(hello, welcome, rendezvous)).as_bytes())
    }
}

/// The key of one direction of one stream.
pub(crate) fn direction_key(
    secret: &Secret,
    stream: u8,
    direction: Direction,
    transcript: &Transcript,
) -> Secret {
    let mut material = key_material(&secret.0, stream, direction, &transcript.0);
    let key = Secret(blake3::derive_key(KEY_CONTEXT, &material));
    material.zeroize();
    key
}

fn next_key(key: &Secret) -> Secret {
    // [direct.rekey]
    Secret(blake3::derive_key("bcmr 1 direct data plane next", &key.0))
}

/// The key at work and the counter: both sides of a direction go through the same sequence.
struct Sealer {
    /// What the next key follows from.
    key: Secret,
    aead: LessSafeKey,
    /// Records so far.
    count: u64,
    limits: KeyLimits,
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn aead(key: &Secret) -> io::Result<LessSafeKey> {
    let unbound = UnboundKey::new(&AES_256_GCM, &key.0).map_err(|_| broken("no AES-256-GCM here"))?;
    Ok(LessSafeKey::new(unbound))
}

impl Sealer {
    fn new(key: Secret, limits: KeyLimits) -> io::Result<Sealer> {
        Ok(Sealer { aead: aead(&key)?, key, count: 0, limits })
    }

    /// The nonce of the next record. Called once for each record, whether or not anything comes of it.
    fn next(&mut self) -> io::Result<Nonce> {
        let used_up = || broken("a sealed connection has carried as many records as it may");
        if self.count >= self.limits.records {
            return Err(used_up());
        }
        if self.count > 0 && self.count.is_multiple_of(self.limits.records_per_key) {
            self.key = next_key(&self.key);
            self.aead = aead(&self.key)?;
        }
        let nonce = nonce(self.count).ok_or_else(used_up)?;
        self.count += 1;
        Ok(Nonce::assume_unique_for_key(nonce))
    }

    /// Replaces `length(4) plaintext room(16)` by `length(4) ciphertext tag(16)`.
    fn seal(&mut self, record: &mut [u8]) -> io::Result<()> {
        let bad = || broken("a record without room");
        let (length, rest) = record.split_at_mut_checked(LENGTH_BYTES).ok_or_else(bad)?;
        let plain = rest.len().checked_sub(TAG_BYTES).ok_or_else(bad)?;
        let (text, room) = rest.split_at_mut(plain);
        let (before, tag) = self.seal_apart(text)?;
        length.copy_from_slice(&before);
        room.copy_from_slice(&tag);
        Ok(())
    }

    /// Replaces plaintext by ciphertext; gives what comes before it in its record, and what comes behind.
    fn seal_apart(&mut self, text: &mut [u8]) -> io::Result<([u8; LENGTH_BYTES], [u8; TAG_BYTES])> {
        let nonce = self.next()?;
        let bad = |_| broken("a record that cannot be sealed");
        let tag = self.aead.seal_in_place_separate_tag(nonce, Aad::empty(), text).map_err(bad)?;
        let tag = <[u8; TAG_BYTES]>::try_from(tag.as_ref()).map_err(|_| broken("a tag of another length"))?;
        Ok((((text.len() + TAG_BYTES) as u32).to_le_bytes(), tag))
    }

    /// Replaces ciphertext and tag by the plaintext in front; gives its length.
    fn open(&mut self, sealed: &mut [u8]) -> io::Result<usize> {
        let nonce = self.next()?;
        match self.aead.open_in_place(nonce, Aad::empty(), sealed) {
            Ok(plain) => Ok(plain.len()),
            Err(_) => Err(broken("a sealed record was changed on the way, or was never ours")),
        }
    }
}

/// Seals what is written, and hands the records on.
pub(crate) struct SealedWriter<W> {
    inner: W,
    sealer: Sealer,
    /// Room for a length, plaintext and a tag.
    record: Vec<u8>,
    /// Plaintext in it.
    filled: usize,
    send_bytes: usize,
    state: WriterState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriterState {
    /// More may come.
    Open,
    /// The last record has passed.
    Ended,
    /// Something failed in the middle: nothing after it can be trusted, or understood.
    Broken,
}

impl<W> fmt::Debug for SealedWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedWriter({} records, {:?})", self.sealer.count, self.state)
    }
}

impl<W: Write> SealedWriter<W> {
    /// The other half's reader must have the same key and limits.
    ///
    /// # Errors
    /// No AES-256-GCM.
    pub(crate) fn new(inner: W, key: Secret, limits: KeyLimits) -> io::Result<SealedWriter<W>> {
        SealedWriter::with_records(inner, key, limits, SEND_BYTES)
    }

    /// As [`SealedWriter::new`], with records of up to `send_bytes`, 1 to [`RECORD_BYTES_MAX`].
    fn with_records(
        inner: W,
        key: Secret,
        limits: KeyLimits,
        send_bytes: usize,
    ) -> io::Result<SealedWriter<W>> {
        let send_bytes = send_bytes.clamp(1, RECORD_BYTES_MAX);
        let record = vec![0; LENGTH_BYTES + send_bytes + TAG_BYTES];
        let sealer = Sealer::new(key, limits)?;
        Ok(SealedWriter { inner, sealer, record, filled: 0, send_bytes, state: WriterState::Open })
    }

    /// What it writes to.
    pub(crate) fn get_ref(&self) -> &W {
        &self.inner
    }

    /// Room for plaintext in the record that is being filled, never empty: a caller that can make bytes in place saves a
    /// copy. [`SealedWriter::filled`] says how many were made.
    pub(crate) fn room(&mut self) -> io::Result<&mut [u8]> {
        if self.state != WriterState::Open {
            return Err(broken("written to after its end"));
        }
        if self.filled == self.send_bytes {
            self.send()?;
        }
        let (start, end) = (LENGTH_BYTES + self.filled, LENGTH_BYTES + self.send_bytes);
        Ok(self.record.get_mut(start..end).unwrap_or_default())
    }

    /// `n` bytes at the front of [`SealedWriter::room`] are to be sent.
    pub(crate) fn filled(&mut self, n: usize) {
        self.filled = (self.filled + n).min(self.send_bytes);
    }

    /// Seals what is there and sends it.
    fn send(&mut self) -> io::Result<()> {
        // Until it is through, it is broken: half a record may be on the way, and its nonce is used.
        self.state = WriterState::Broken;
        let record = self.record.get_mut(..LENGTH_BYTES + self.filled + TAG_BYTES).unwrap_or_default();
        self.filled = 0;
        self.sealer.seal(record)?;
        self.inner.write_all(record)?;
        self.state = WriterState::Open;
        Ok(())
    }

    /// As `write_all`, but whole records are sealed where they are: what is in `bytes` afterwards is of no use.
    ///
    /// # Errors
    /// As writing.
    pub(crate) fn write_in_place(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let whole = self.send_bytes;
            if self.filled == 0 && self.state == WriterState::Open && rest.len() >= whole {
                let (text, behind) = rest.split_at_mut(whole);
                self.send_apart(text)?;
                rest = behind;
            } else {
                // What is left of a record, and what follows until it is full.
                let taken = self.write(rest)?;
                rest = rest.get_mut(taken..).unwrap_or_default();
                if self.filled == self.send_bytes {
                    self.send()?;
                }
            }
        }
        Ok(())
    }

    /// Seals a record where it is, and sends it.
    fn send_apart(&mut self, text: &mut [u8]) -> io::Result<()> {
        self.state = WriterState::Broken;
        let (before, tag) = self.sealer.seal_apart(text)?;
        write_parts(&mut self.inner, [&before, text, &tag])?;
        self.state = WriterState::Open;
        Ok(())
    }

    /// Sends what is there, and the record that says that nothing more comes. Afterwards nothing can be written.
    ///
    /// # Errors
    /// What the stream below says; the other side will see that it broke off.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.flush()?;
        // [direct.end] Empty, and nothing follows.
        self.send()?;
        self.state = WriterState::Ended;
        self.inner.flush()
    }
}

/// All of several parts, one behind the other.
fn write_parts(to: &mut impl Write, parts: [&[u8]; 3]) -> io::Result<()> {
    let mut slices = parts.map(IoSlice::new);
    let mut rest = slices.as_mut_slice();
    while !rest.is_empty() {
        match to.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => IoSlice::advance_slices(&mut rest, n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

impl<W: Write> Write for SealedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut room = self.room()?;
        let mut taken = 0;
        for part in parts {
            let n = part.len().min(room.len());
            let (here, rest) = room.split_at_mut(n);
            here.copy_from_slice(part.get(..n).unwrap_or_default());
            room = rest;
            taken += n;
            if n < part.len() {
                break;
            }
        }
        self.filled(taken);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.state != WriterState::Open {
            return Err(broken("written to after its end"));
        }
        // An empty record would be the end.
        if self.filled > 0 {
            self.send()?;
        }
        self.inner.flush()
    }
}

/// Opens what comes, record by record. The end of the stream below is the end only after the last record.
pub(crate) struct SealedReader<R> {
    inner: R,
    sealer: Sealer,
    record: Vec<u8>,
    /// Plaintext that was not taken yet.
    start: usize,
    end: usize,
    next: NextLength,
    state: WriterState,
}

/// What has come of the length of the next record.
#[derive(Default)]
struct NextLength {
    bytes: [u8; LENGTH_BYTES],
    have: usize,
}

impl<R> fmt::Debug for SealedReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedReader({} records, {:?})", self.sealer.count, self.state)
    }
}

impl<R: Read> SealedReader<R> {
    /// The other half's writer must have the same key and limits.
    ///
    /// # Errors
    /// No AES-256-GCM.
    pub(crate) fn new(inner: R, key: Secret, limits: KeyLimits) -> io::Result<SealedReader<R>> {
        let sealer = Sealer::new(key, limits)?;
        let (record, next, state) = (Vec::new(), NextLength::default(), WriterState::Open);
        Ok(SealedReader { inner, sealer, record, start: 0, end: 0, next, state })
    }

    /// What it reads from.
    pub(crate) fn get_ref(&self) -> &R {
        &self.inner
    }

    /// Opens a record, with its length, that was read from the stream before this reader began: the first one,
    /// that is the proof, is read with a deadline. Gives its plaintext.
    ///
    /// # Errors
    /// As reading.
    pub(crate) fn open_apart(&mut self, record: &[u8]) -> io::Result<Vec<u8>> {
        let not_whole = || broken("this is no sealed record");
        let (length, sealed) = record.split_first_chunk::<LENGTH_BYTES>().ok_or_else(not_whole)?;
        if u32::from_le_bytes(*length) as usize != sealed.len() {
            return Err(not_whole());
        }
        let mut plain = sealed.to_vec();
        let length = self.sealer.open(&mut plain)?;
        plain.truncate(length);
        Ok(plain)
    }

    /// The next record; the last one leaves nothing and sets the state. It is opened in `room` where all of it fits there,
    /// tag and all; then its length comes back, and nothing is left to be taken.
    fn receive(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self.state {
            WriterState::Open => {}
            WriterState::Ended => return Ok(0),
            WriterState::Broken => return Err(broken("read from after it broke")),
        }
        // Until a record is through, it is broken: who reads on after an error must not take what is left for data.
        self.state = WriterState::Broken;
        (self.start, self.end) = (0, 0);
        let length = self.next.take(&mut self.inner)? as usize;
        if !(TAG_BYTES..=RECORD_BYTES_MAX + TAG_BYTES).contains(&length) {
            return Err(broken("this is no sealed record"));
        }
        if let Some(sealed) = room.get_mut(..length) {
            self.next.read_behind(&mut self.inner, sealed)?;
            let plain = self.sealer.open(sealed)?;
            self.state = state_after(sealed.get(..plain).unwrap_or_default());
            return Ok(plain);
        }
        // A length alone, which is not sealed, buys no more memory than what has come can justify.
        let mut have = 0;
        while have < length {
            let reach = length.min((2 * have).max(SEND_BYTES + TAG_BYTES));
            if self.record.len() < reach {
                self.record.resize(reach, 0);
            }
            let part = self.record.get_mut(have..reach).unwrap_or_default();
            if reach == length {
                self.next.read_behind(&mut self.inner, part)?;
            } else {
                read_all(&mut self.inner, part)?;
            }
            have = reach;
        }
        let sealed = self.record.get_mut(..length).unwrap_or_default();
        self.end = self.sealer.open(sealed)?;
        self.state = state_after(self.record.get(..self.end).unwrap_or_default());
        Ok(0)
    }
}

impl NextLength {
    /// The length, of which what is missing is read.
    fn take(&mut self, inner: &mut impl Read) -> io::Result<u32> {
        let have = std::mem::take(&mut self.have);
        read_all(inner, self.bytes.get_mut(have..).unwrap_or_default())?;
        Ok(u32::from_le_bytes(self.bytes))
    }

    /// Reads all of a record into `room`, and with the same calls what has come by then of the length behind it: a call for that
    /// alone costs as much as one for the record. It is not waited for.
    fn read_behind(&mut self, inner: &mut impl Read, room: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < room.len() {
            let rest = room.get_mut(done..).unwrap_or_default();
            let wanted = rest.len();
            match inner.read_vectored(&mut [IoSliceMut::new(rest), IoSliceMut::new(&mut self.bytes)]) {
                Ok(0) => return Err(broke_off(io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => {
                    done += n.min(wanted);
                    self.have = n.saturating_sub(wanted);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(broke_off(e)),
            }
        }
        Ok(())
    }
}

/// What follows a record.
fn state_after(plain: &[u8]) -> WriterState {
    if is_end(plain) { WriterState::Ended } else { WriterState::Open }
}

/// `read_exact` that says what a missing end means.
fn read_all(inner: &mut impl Read, room: &mut [u8]) -> io::Result<()> {
    inner.read_exact(room).map_err(broke_off)
}

fn broke_off(e: io::Error) -> io::Error {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => {
            io::Error::new(e.kind(), "a sealed connection broke off before its last record")
        }
        _ => e,
    }
}

impl<R: Read> Read for SealedReader<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(room)])
    }

    /// Bytes of one record, as many as there is room for; 0 after the last record, or without room.
    fn read_vectored(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if parts.iter().all(|part| part.is_empty()) {
            return Ok(0);
        }
        if self.start == self.end {
            let first = parts.iter_mut().find(|part| !part.is_empty());
            let given = self.receive(first.map(|part| &mut **part).unwrap_or_default())?;
            if given > 0 {
                return Ok(given);
            }
        }
        let mut given = 0;
        for part in parts {
            let left = self.record.get(self.start..self.end).unwrap_or_default();
            let n = left.len().min(part.len());
            let (here, _) = part.split_at_mut(n);
            here.copy_from_slice(left.get(..n).unwrap_or_default());
            self.start += n;
            given += n;
        }
        Ok(given)
    }
}

/// Entrance for the fuzzer: what was sealed and then tampered with gives nothing but a beginning of what went in, and an
/// end only where it was sealed. The first bytes say which byte is flipped, and where the stream is cut.
#[cfg(fuzzing)]
pub fn fuzz(data: &[u8]) {
    let Some(([at, bit, cut, size], text)) = data.split_first_chunk::<4>() else { return };
    let (key, limits) = (Secret::new([7; 32]), KeyLimits { records: 64, records_per_key: 3 });
    let mut sealed = Vec::new();
    let Ok(mut to) = SealedWriter::with_records(&mut sealed, key.clone(), limits, 1 + usize::from(*size))
    else {
        return;
    };
    let went = to.write_all(text).and_then(|()| to.end()).is_ok();
    drop(to);
    let place = usize::from(*at) * sealed.len() / 256;
    let flipped = bit % 9 != 8 && !sealed.is_empty();
    if let Some(byte) = sealed.get_mut(place).filter(|_| flipped) {
        *byte ^= 1 << (bit % 9);
    }
    let whole = sealed.len();
    sealed.truncate(whole - usize::from(*cut).min(whole));
    for stream in [sealed.as_slice(), text] {
        let Ok(mut from) = SealedReader::new(stream, key.clone(), limits) else { return };
        let mut out = Vec::new();
        let ended = from.read_to_end(&mut out).is_ok();
        assert!(text.starts_with(&out), "bytes that nobody sealed");
        let honest = went && !flipped && *cut == 0 && std::ptr::eq(stream, sealed.as_slice());
        assert_eq!(ended, honest, "an end that nobody sealed, or none");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const FEW: KeyLimits = KeyLimits { records: RECORDS_MAX, records_per_key: 3 };

    fn key(n: u8) -> Secret {
        Secret::new([n; 32])
    }

    fn text(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|i| (i * 31 + i / 251) as u8).collect()
    }

    fn sealed_in(parts: &[&[u8]], record: usize, limits: KeyLimits) -> Vec<u8> {
        let mut out = Vec::new();
        let mut w = SealedWriter::with_records(&mut out, key(1), limits, record).unwrap();
        for part in parts {
            w.write_all(part).unwrap();
            w.flush().unwrap();
        }
        w.end().unwrap();
        drop(w);
        out
    }

    /// What comes out before the end or the error, and which of the two it was.
    fn opened(wire: &[u8], limits: KeyLimits) -> (Vec<u8>, io::Result<()>) {
        opened_by(wire, key(1), limits)
    }

    /// Read into little room and into much: what fits there is opened where it is to be.
    fn opened_by(wire: &[u8], key: Secret, limits: KeyLimits) -> (Vec<u8>, io::Result<()>) {
        let (out, end) = opened_into(&mut [0; 7], wire, key.clone(), limits);
        let (same, as_well) = opened_into(&mut vec![0; 1 << 21], wire, key, limits);
        assert!(out == same && end.as_ref().err().map(io::Error::kind) == as_well.err().map(|e| e.kind()));
        (out, end)
    }

    fn opened_into(
        room: &mut [u8],
        wire: &[u8],
        key: Secret,
        limits: KeyLimits,
    ) -> (Vec<u8>, io::Result<()>) {
        let mut r = SealedReader::new(wire, key, limits).unwrap();
        let mut out = Vec::new();
        loop {
            match r.read(room) {
                Ok(0) => return (out, Ok(())),
                Ok(n) => out.extend_from_slice(&room[..n]),
                Err(e) => {
                    // Once broken, always broken: nothing of the rest is ever given out.
                    let again = r.read(room).unwrap_err();
                    assert_eq!(again.kind(), io::ErrorKind::InvalidData);
                    return (out, Err(e));
                }
            }
        }
    }

    /// The records of a wire, each with its length.
    fn records(mut wire: &[u8]) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        while let Some((length, _)) = wire.split_first_chunk::<4>() {
            let (record, rest) = wire.split_at(4 + u32::from_le_bytes(*length) as usize);
            out.push(record.to_vec());
            wire = rest;
        }
        out
    }

    #[test]
    fn what_goes_in_comes_out_at_every_record_boundary() {
        for record in [1, 2, 15, 16, 17, 4096, SEND_BYTES, RECORD_BYTES_MAX] {
            for n in [0, 1, record - 1, record, record + 1, 2 * record, 2 * record + 1] {
                let plain = text(n);
                let wire = sealed_in(&[&plain], record, KeyLimits::WIRE);
                let (out, end) = opened(&wire, KeyLimits::WIRE);
                assert!(end.is_ok());
                assert!(out == plain, "{n} bytes in records of {record}");
                assert_eq!(records(&wire).len(), n.div_ceil(record) + 1);
            }
        }
    }

    #[test]
    fn lists_of_pieces_and_bytes_made_in_place_are_the_same_stream() {
        let plain = text(5000);
        let mut wire = Vec::new();
        let mut w = SealedWriter::with_records(&mut wire, key(1), FEW, 700).unwrap();
        let (a, rest) = plain.split_at(300);
        let (b, c) = rest.split_at(600);
        assert_eq!(w.write_vectored(&[IoSlice::new(a), IoSlice::new(b)]).unwrap(), 700);
        w.write_all(&b[400..]).unwrap();
        let mut done = 0;
        while done < c.len() {
            let room = w.room().unwrap();
            assert!(!room.is_empty());
            let n = room.len().min(c.len() - done);
            room[..n].copy_from_slice(&c[done..done + n]);
            w.filled(n);
            done += n;
        }
        w.end().unwrap();
        assert!(w.write(b"x").is_err() && w.flush().is_err() && w.room().is_err() && w.end().is_err());
        drop(w);
        let mut r = SealedReader::new(&*wire, key(1), FEW).unwrap();
        let (mut first, mut second) = ([0; 100], [0; 5]);
        let mut out = Vec::new();
        loop {
            let n =
                r.read_vectored(&mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)]).unwrap();
            if n == 0 {
                break;
            }
            out.extend([&first[..], &second[..]].concat().into_iter().take(n));
        }
        assert!(out == plain);
        assert_eq!(r.read(&mut first).unwrap(), 0, "ended for good");
    }

    #[test]
    fn what_is_sealed_where_it_is_comes_out_in_its_order() {
        let plain = text(5000);
        // Whole records, parts of one before and behind them, and one that is filled up.
        for cuts in [[0, 0], [0, 2100], [30, 3000], [700, 1400], [699, 701], [1, 5000]] {
            let mut wire = Vec::new();
            let mut w = SealedWriter::with_records(&mut wire, key(1), FEW, 700).unwrap();
            let (before, rest) = plain.split_at(cuts[0]);
            let (within, behind) = rest.split_at(cuts[1] - cuts[0]);
            w.write_all(before).unwrap();
            w.write_in_place(&mut within.to_vec()).unwrap();
            w.write_all(behind).unwrap();
            w.end().unwrap();
            assert!(w.write_in_place(&mut [0; 1000]).is_err() && w.write_in_place(&mut [0]).is_err());
            drop(w);
            let (out, end) = opened(&wire, FEW);
            assert!(out == plain && end.is_ok(), "{cuts:?}");
        }
    }

    /// The layout, spelled out by other means: what an older or another program would make of docs/protocol.md.
    #[test]
    fn the_bytes_are_those_of_the_protocol() {
        let wire = sealed_in(&[b"abc", b"defg"], 100, KeyLimits::WIRE);
        let by_hand = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[1; 32]).unwrap());
        let mut expected = Vec::new();
        for (n, plain) in [&b"abc"[..], b"defg", b""].into_iter().enumerate() {
            let nonce = [n as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            let mut text = plain.to_vec();
            let nonce = Nonce::assume_unique_for_key(nonce);
            by_hand.seal_in_place_append_tag(nonce, Aad::empty(), &mut text).unwrap();
            expected.extend_from_slice(&(plain.len() as u32 + 16).to_le_bytes());
            expected.extend_from_slice(&text);
        }
        assert_eq!(wire, expected);

        let rendezvous = [&b"where"[..], &[9; 32]].concat();
        let transcript = Transcript::of(b"hello", b"welcome", &rendezvous);
        let mut said = Vec::new();
        for part in [&b"hello"[..], b"welcome", b"where"] {
            said.extend_from_slice(&(part.len() as u32).to_le_bytes());
            said.extend_from_slice(part);
        }
        let secret = Secret::new([9; 32]);
        let input = [&[9; 32][..], &[5, 1], blake3::hash(&said).as_bytes()].concat();
        assert_eq!(
            direction_key(&secret, 5, Direction::Down, &transcript).0,
            blake3::derive_key("bcmr 1 direct data plane", &input)
        );
    }

    #[test]
    fn every_flipped_bit_is_noticed_and_nothing_false_comes_out() {
        let parts: [&[u8]; 3] = [b"first", b"second record", b"x"];
        let plain = parts.concat();
        let wire = sealed_in(&parts, 100, FEW);
        assert!(opened(&wire, FEW).1.is_ok());
        for at in 0..wire.len() {
            for bit in 0..8 {
                let mut bad = wire.clone();
                bad[at] ^= 1 << bit;
                let (out, end) = opened(&bad, FEW);
                assert!(end.is_err(), "byte {at} bit {bit}");
                assert!(plain.starts_with(&out) && out.len() < plain.len() + 1);
            }
        }
    }

    #[test]
    fn every_cut_is_noticed_at_the_borders_of_records_too() {
        let parts: [&[u8]; 2] = [b"first", b"second record"];
        let wire = sealed_in(&parts, 100, KeyLimits::WIRE);
        for at in 0..wire.len() {
            let (out, end) = opened(&wire[..at], KeyLimits::WIRE);
            assert_eq!(end.unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "cut at {at}");
            assert!(parts.concat().starts_with(&out));
        }
    }

    #[test]
    fn records_out_of_order_again_missing_or_foreign_are_noticed() {
        let wire = sealed_in(&[b"one", b"two", b"tri"], 100, KeyLimits::WIRE);
        let r = records(&wire);
        assert_eq!(r.len(), 4);
        let told = |order: &[&Vec<u8>]| {
            let wire: Vec<u8> = order.iter().flat_map(|r| r.iter().copied()).collect();
            let (out, end) = opened(&wire, KeyLimits::WIRE);
            assert!(b"onetwotri".starts_with(&out[..]), "{out:?}");
            end.is_ok()
        };
        assert!(told(&[&r[0], &r[1], &r[2], &r[3]]), "the honest twin");
        assert!(!told(&[&r[1], &r[0], &r[2], &r[3]]), "swapped");
        assert!(!told(&[&r[0], &r[0], &r[1], &r[2], &r[3]]), "again");
        assert!(!told(&[&r[0], &r[2], &r[3]]), "dropped");
        assert!(!told(&[&r[0], &r[1], &r[3]]), "the last but one dropped");
        assert!(!told(&[&r[0], &r[3]]), "ended early");
        assert!(!told(&[&r[3], &r[0], &r[1], &r[2]]));
        let empty = vec![16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(!told(&[&r[0], &empty]), "an end that nobody sealed");
        assert!(!told(&[&r[0], &vec![0, 0, 0, 0]]));
        // The other direction's, the other stream's: another key.
        assert!(opened_by(&wire, key(2), KeyLimits::WIRE).1.is_err());
    }

    #[test]
    fn a_length_over_the_maximum_is_refused_before_memory_is_taken() {
        for length in [0, 15, RECORD_BYTES_MAX as u32 + 17, u32::MAX] {
            let wire = length.to_le_bytes();
            let mut r = SealedReader::new(&wire[..], key(1), KeyLimits::WIRE).unwrap();
            assert_eq!(r.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::InvalidData);
            assert_eq!(r.record.capacity(), 0);
        }
        let most = ((RECORD_BYTES_MAX + TAG_BYTES) as u32).to_le_bytes();
        let mut r = SealedReader::new(&most[..], key(1), KeyLimits::WIRE).unwrap();
        assert_eq!(r.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(r.record.capacity() <= SEND_BYTES + TAG_BYTES);
    }

    #[test]
    fn the_limit_of_records_ends_the_stream_on_both_sides() {
        let limits = KeyLimits { records: 4, records_per_key: 2 };
        let wire = sealed_in(&[b"1", b"2", b"3"], 1, limits);
        assert_eq!(opened(&wire, limits).0, b"123", "just inside");

        let mut out = Vec::new();
        let mut w = SealedWriter::with_records(&mut out, key(1), limits, 1).unwrap();
        assert!(w.write_all(b"12345678").is_err());
        assert!(w.end().is_err(), "nothing goes out after it");
        drop(w);
        assert_eq!(records(&out).len(), 4);
        // A peer that goes on counting does not get a fifth record in.
        let wire = sealed_in(&[b"12345678"], 1, KeyLimits { records: 100, ..limits });
        let (plain, end) = opened(&wire, limits);
        assert_eq!((plain.as_slice(), end.is_err()), (&b"1234"[..], true));
    }

    #[test]
    fn a_new_key_follows_after_so_many_records() {
        let plain = text(20);
        let wire = sealed_in(&[&plain], 2, FEW);
        assert_eq!(opened(&wire, FEW).0, plain);
        // It is really another one: who does not change stops at the fourth record.
        let (out, end) = opened(&wire, KeyLimits::WIRE);
        assert_eq!((out.as_slice(), end.is_err()), (&plain[..6], true));
    }

    #[test]
    fn no_two_directions_share_a_key_and_every_bit_said_counts() {
        let secret = Secret::new([3; 32]);
        let parts = [b"HELLO".to_vec(), b"WELCOME".to_vec(), [&b"::1 7777"[..], &[3; 32]].concat()];
        let of = |parts: &[Vec<u8>; 3]| Transcript::of(&parts[0], &parts[1], &parts[2]);
        let mut keys = HashSet::new();
        for stream in 0..=255 {
            for direction in [Direction::Up, Direction::Down] {
                assert!(keys.insert(direction_key(&secret, stream, direction, &of(&parts)).0));
            }
        }
        let mut another = |said: &Transcript, secret: &Secret| {
            for direction in [Direction::Up, Direction::Down] {
                assert!(keys.insert(direction_key(secret, 0, direction, said).0));
            }
        };
        for part in 0..3 {
            let open = parts[part].len() - if part == 2 { 32 } else { 0 };
            for bit in 0..open * 8 {
                let mut changed = parts.clone();
                changed[part][bit / 8] ^= 1 << (bit % 8);
                another(&of(&changed), &secret);
            }
        }
        for bit in 0..256 {
            let mut changed = secret.0;
            changed[bit / 8] ^= 1 << (bit % 8);
            another(&of(&parts), &Secret::new(changed));
        }
        // A byte that passes from one message to the next.
        another(&Transcript::of(b"HELL", b"OWELCOME", &parts[2]), &secret);
        another(&Transcript::of(b"HELLOW", b"ELCOME", &parts[2]), &secret);
    }

    #[test]
    fn nothing_secret_is_shown() {
        let secret = Secret::new([0xAB; 32]);
        let w = SealedWriter::new(Vec::new(), Secret::new([0xAB; 32]), KeyLimits::WIRE).unwrap();
        let r = SealedReader::new(&b""[..], Secret::new([0xAB; 32]), KeyLimits::WIRE).unwrap();
        let shown = format!("{secret:?} {w:?} {r:?} {secret:#?} {w:#?} {r:#?}").to_lowercase();
        assert!(!shown.contains("ab") && !shown.contains("171"), "{shown}");
    }

    /// Gives so many bytes at a time, and counts how often it was asked.
    struct InParts<'a> {
        bytes: &'a [u8],
        most: usize,
        calls: usize,
    }

    impl Read for InParts<'_> {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            self.read_vectored(&mut [IoSliceMut::new(room)])
        }
        fn read_vectored(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
            self.calls += 1;
            let (mut some, rest) = self.bytes.split_at(self.most.min(self.bytes.len()));
            let n = some.read_vectored(parts)?;
            self.bytes = if some.is_empty() { rest } else { &self.bytes[n..] };
            Ok(n)
        }
    }

    /// However it arrives; and where all of it is there, one call reads a record and the length of the next one.
    #[test]
    fn a_record_is_read_with_the_length_behind_it() {
        let plain = text(20 * 4096 + 9);
        let wire = sealed_in(&[&plain], 4096, KeyLimits::WIRE);
        let record = LENGTH_BYTES + 4096 + TAG_BYTES;
        for most in [1, 3, record - 1, record, record + 2, wire.len()] {
            for room in [100, 1 << 16] {
                let inner = InParts { bytes: &wire, most, calls: 0 };
                let mut r = SealedReader::new(inner, key(1), KeyLimits::WIRE).unwrap();
                let (mut out, mut some) = (Vec::new(), vec![0; room]);
                loop {
                    match r.read(&mut some).unwrap() {
                        0 => break,
                        n => out.extend_from_slice(&some[..n]),
                    }
                }
                assert!(out == plain, "{most} bytes at a time");
                // 21 records and the end; the first length is read alone.
                assert!(most < wire.len() || r.get_ref().calls <= 23, "{} calls", r.get_ref().calls);
            }
        }
    }
}
