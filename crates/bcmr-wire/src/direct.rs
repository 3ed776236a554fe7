//! The direct data plane as bytes: its magic, what its keys are made of, its nonces. Must not know any cipher or socket.

use crate::limits::RECORDS_MAX;
use crate::message::Hash;

/// What a connection begins with; the stream's index is the eighth byte.
pub const MAGIC: &[u8; 7] = b"bcmrDP1";
/// The first record of each side, sealed.
// [direct.proof]
pub const PROOF: &[u8; 8] = b"bcmrDP1!";
/// The context of BLAKE3's derive_key.
pub const KEY_CONTEXT: &str = "bcmr 1 direct data plane";

/// Which way a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Direction {
    /// From the client to the server.
    Up = 0,
    /// From the server to the client.
    Down = 1,
}

/// What the greetings are hashed as: the payloads, each behind its length, so that no byte can pass from one to the
/// next. `rendezvous` is the whole payload; its last field, the secret, is left out here.
#[must_use]
pub fn greetings(hello: &[u8], welcome: &[u8], rendezvous: &[u8]) -> Vec<u8> {
    // [hello.bound] An attacker who changes a bit of a greeting gives the two sides different keys.
    let open = rendezvous.len().saturating_sub(size_of::<Hash>());
    let mut all = Vec::new();
    for payload in [hello, welcome, &rendezvous[..open]] {
        all.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        all.extend_from_slice(payload);
    }
    all
}

/// What the key of one direction of one stream is derived from. `greetings` is the BLAKE3 of what [`greetings`]
/// puts together, of payloads as they arrived or were sent.
#[must_use]
pub fn key_material(secret: &Hash, stream: u8, direction: Direction, greetings: &Hash) -> [u8; 66] {
    // [direct.keys] A stream or a direction with another's key would use nonces twice.
    let mut material = [0; 66];
    material[..32].copy_from_slice(secret);
    material[32] = stream;
    material[33] = direction as u8;
    material[34..].copy_from_slice(greetings);
    material
}

/// The nonce of record `count`, counted from 0; `None` when the key is used up.
#[must_use]
pub fn nonce(count: u64) -> Option<[u8; 12]> {
    // [direct.nonce]
    if count >= RECORDS_MAX {
        return None;
    }
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&count.to_le_bytes());
    Some(nonce)
}

/// Whether a record, opened, is the last one: only after it the end of the byte stream is an end.
#[must_use]
pub fn is_end(record: &[u8]) -> bool {
    // [direct.end]
    record.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_streams_or_directions_share_a_key() {
        let mut seen = BTreeSet::new();
        for stream in 0..=u8::MAX {
            for direction in [Direction::Up, Direction::Down] {
                assert!(seen.insert(key_material(&[1; 32], stream, direction, &[2; 32])));
            }
        }
        assert!(seen.insert(key_material(&[1; 32], 0, Direction::Up, &[3; 32])));
        assert!(seen.insert(key_material(&[4; 32], 0, Direction::Up, &[2; 32])));
    }

    #[test]
    fn every_bit_of_the_greetings_is_in_the_hashed_bytes_but_for_the_secret() {
        let parts = [b"hello".to_vec(), b"welcome".to_vec(), [b"where".as_slice(), &[9; 32]].concat()];
        let all = |parts: &[Vec<u8>; 3]| greetings(&parts[0], &parts[1], &parts[2]);
        let honest = all(&parts);
        for part in 0..3 {
            for at in 0..parts[part].len() {
                let mut changed = parts.clone();
                changed[part][at] ^= 1;
                let secret = part == 2 && at >= 5;
                assert_eq!(all(&changed) == honest, secret, "byte {at} of {part}");
            }
        }
        assert_ne!(greetings(b"ab", b"c", &[0; 32]), greetings(b"a", b"bc", &[0; 32]));
        assert_eq!(greetings(b"", b"", b"short").len(), 12);
    }

    #[test]
    fn nonces_count_and_end() {
        assert_eq!(nonce(0), Some([0; 12]));
        assert_eq!(nonce(258), Some([2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(nonce(RECORDS_MAX - 1), Some([255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(nonce(RECORDS_MAX), None);
    }
}
