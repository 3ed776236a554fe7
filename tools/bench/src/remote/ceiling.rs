//! What no copier with sealed connections can be faster than: it reads a file, seals it with AES-256-GCM, sends it over
//! TCP, opens it there and writes it, over several connections of one thread each at either end, and does nothing else:
//! no hashes, no names, no attributes, no stage. Its other half is started through ssh, as that of a copy is, since
//! a key must come from somewhere. Must not know what it is compared with.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use sh::{Result, text};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The hidden command of this binary.
pub const HELPER: &str = "__ceiling";
/// Content of one record.
const RECORD_BYTES: usize = 256 << 10;
const LENGTH_BYTES: usize = 4;
/// Where its content belongs, sealed with it.
const PLACE_BYTES: usize = 8;
const TAG_BYTES: usize = 16;
/// Content that is read close behind the beginning of an allocation comes slowly (docs/decisions/0002-copy-ladder.md).
const PADDING_BYTES: usize = 32;
const KEY_BYTES: usize = 32;

/// `put|get CONFIG ADDRESS STREAMS SRC DST` here; `far put|get ADDRESS STREAMS FILE` is the other half.
pub fn run(args: &[&str]) -> Result {
    match args {
        ["far", way, address, streams, file] => far(way, address, streams.parse()?, Path::new(file)),
        [way, config, address, streams, src, dst] => {
            let (here, there) = if *way == "put" { (src, dst) } else { (dst, src) };
            near(way, config, (address, streams.parse()?), Path::new(here), Path::new(there))
        }
        _ => Err("put|get CONFIG ADDRESS STREAMS SRC DST".into()),
    }
}

fn near(way: &str, config: &str, (address, streams): (&str, u32), here: &Path, there: &Path) -> Result {
    let exe = std::env::current_exe()?;
    let command = format!("{} {HELPER} far {way} {address} {streams} {}", text(&exe)?, text(there)?);
    let mut ssh = Command::new("ssh")
        .args(["-F", config, "there", &command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = String::new();
    BufReader::new(ssh.stdout.take().ok_or("ssh has no output")?).read_line(&mut said)?;
    let (port, key) = said.trim().split_once(' ').ok_or("the other half did not start")?;
    let (port, key) = (port.parse::<u16>()?, bytes_of(key)?);
    let open = |index: u32| -> std::io::Result<TcpStream> {
        let socket = TcpStream::connect((address, port))?;
        (&socket).write_all(&[index as u8])?;
        Ok(socket)
    };
    // At the same time: over a long line each takes a round trip.
    let sockets: Vec<TcpStream> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..streams).map(|index| scope.spawn(move || open(index))).collect();
        let joined = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            Ok(thread.join().map_err(|_| "a thread has panicked")??)
        };
        threads.into_iter().map(joined).collect::<Result<_>>()
    })?;
    if way == "put" {
        send_all(sockets, here, &key)?
    } else {
        receive_all(sockets, here, &key)?
    }
    let ended = ssh.wait()?;
    if ended.success() { Ok(()) } else { Err(format!("the other half: {ended}").into()) }
}

fn far(way: &str, address: &str, streams: u32, file: &Path) -> Result {
    let listener = TcpListener::bind((address, 0))?;
    let mut key = [0; KEY_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    let shown: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{} {shown}", listener.local_addr()?.port());
    let mut sockets = Vec::new();
    for _ in 0..streams {
        let (socket, _) = listener.accept()?;
        let mut index = [0];
        (&socket).read_exact(&mut index)?;
        sockets.push((index[0], socket));
    }
    sockets.sort_by_key(|(index, _)| *index);
    let sockets = sockets.into_iter().map(|(_, socket)| socket).collect();
    if way == "put" { receive_all(sockets, file, &key) } else { send_all(sockets, file, &key) }
}

fn bytes_of(hex: &str) -> Result<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    for (n, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * n..2 * n + 2).ok_or("a short key")?, 16)?;
    }
    Ok(key)
}

/// The key of all connections; a nonce says which of them and which record of it.
struct Seal {
    key: LessSafeKey,
    stream: u32,
    count: u64,
}

impl Seal {
    fn new(key: &[u8], stream: usize) -> Result<Seal> {
        let key = UnboundKey::new(&AES_256_GCM, key).map_err(|_| "no AES-256-GCM here")?;
        Ok(Seal { key: LessSafeKey::new(key), stream: stream as u32, count: 0 })
    }

    fn next(&mut self) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&self.stream.to_le_bytes());
        nonce[4..].copy_from_slice(&self.count.to_le_bytes());
        self.count += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

/// Sends a file over all connections at once, each of which takes the next part.
fn send_all(sockets: Vec<TcpStream>, path: &Path, key: &[u8]) -> Result {
    let file = File::open(path)?;
    let (size, next) = (file.metadata()?.len(), AtomicU64::new(0));
    each(sockets, |stream, socket| send(socket, Seal::new(key, stream)?, &file, size, &next))
}

fn send(mut socket: TcpStream, mut seal: Seal, file: &File, size: u64, next: &AtomicU64) -> Result {
    let mut room = vec![0; PADDING_BYTES + LENGTH_BYTES + PLACE_BYTES + RECORD_BYTES + TAG_BYTES];
    let record = &mut room[PADDING_BYTES..];
    loop {
        let at = next.fetch_add(RECORD_BYTES as u64, Relaxed);
        let bytes = size.saturating_sub(at).min(RECORD_BYTES as u64) as usize;
        if bytes == 0 {
            return Ok(());
        }
        let plain = LENGTH_BYTES + PLACE_BYTES + bytes;
        record[LENGTH_BYTES..][..PLACE_BYTES].copy_from_slice(&at.to_le_bytes());
        file.read_exact_at(&mut record[LENGTH_BYTES + PLACE_BYTES..plain], at)?;
        let nonce = seal.next();
        let tag = seal.key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut record[LENGTH_BYTES..plain]);
        let tag = tag.map_err(|_| "a record cannot be sealed")?;
        record[plain..plain + TAG_BYTES].copy_from_slice(tag.as_ref());
        let length = (plain + TAG_BYTES - LENGTH_BYTES) as u32;
        record[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        socket.write_all(&record[..plain + TAG_BYTES])?;
    }
}

fn receive_all(sockets: Vec<TcpStream>, path: &Path, key: &[u8]) -> Result {
    let file = File::create(path)?;
    each(sockets, |stream, socket| receive(socket, Seal::new(key, stream)?, &file))
}

fn receive(mut socket: TcpStream, mut seal: Seal, file: &File) -> Result {
    let mut record = vec![0; PLACE_BYTES + RECORD_BYTES + TAG_BYTES];
    let mut length = [0; LENGTH_BYTES];
    loop {
        match socket.read_exact(&mut length) {
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        let sealed =
            record.get_mut(..u32::from_le_bytes(length) as usize).ok_or("a record that is too long")?;
        socket.read_exact(sealed)?;
        let nonce = seal.next();
        let plain = seal.key.open_in_place(nonce, Aad::empty(), sealed);
        let plain = plain.map_err(|_| "a record cannot be opened")?;
        let (place, content) = plain.split_first_chunk().ok_or("a record without a place")?;
        file.write_all_at(content, u64::from_le_bytes(*place))?;
    }
}

/// One thread for each connection.
fn each(sockets: Vec<TcpStream>, work: impl Fn(usize, TcpStream) -> Result + Sync) -> Result {
    let work = |stream, socket| work(stream, socket).map_err(|e| e.to_string());
    std::thread::scope(|scope| {
        let (work, mut threads) = (&work, Vec::new());
        for (stream, socket) in sockets.into_iter().enumerate() {
            threads.push(scope.spawn(move || work(stream, socket)));
        }
        for thread in threads {
            thread.join().map_err(|_| "a thread of the ceiling stopped")??;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_over_three_connections_arrives() {
        let dir = tempfile::tempdir().unwrap();
        let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
        let content = crate::data::noise(3 * RECORD_BYTES + 12345);
        std::fs::write(&src, &content).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = |_| {
            let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (one, listener.accept().unwrap().0)
        };
        let (near, far): (Vec<_>, Vec<_>) = (0..3).map(connect).unzip();
        let key = [7; KEY_BYTES];
        std::thread::scope(|scope| {
            let sent = scope.spawn(|| send_all(near, &src, &key).map_err(|e| e.to_string()));
            receive_all(far, &dst, &key).unwrap();
            sent.join().unwrap().unwrap();
        });
        assert!(std::fs::read(&dst).unwrap() == content);
        assert_eq!(bytes_of(&"0a".repeat(KEY_BYTES)).unwrap(), [10; KEY_BYTES]);
        assert!(bytes_of("0a").is_err());
    }
}
