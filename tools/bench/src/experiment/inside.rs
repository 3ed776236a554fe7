//! What is measured inside a process of this program, because no command does just that. Prints one number: seconds, or
//! for a speed MB/s. Must not know what it is compared with.

use super::bystander;
use fastcopy::copy_file_range::copy_file_range;
use fastcopy::read_write::{read_full, write_full};
use sh::Result;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// The hidden command of this binary.
pub const HELPER: &str = "__inside";
const BLOCK: usize = 4 << 20;
/// The library's copies are repeated for so long, and at least [`TIMES`].
const REPEATED: Duration = Duration::from_millis(100);
const TIMES: u32 = 3;
/// The buffer of the standard library before it asked the kernel to copy.
const OLD_BUFFER: usize = 8 << 10;

/// `NAME SRC DST [-- COMMAND]`.
pub fn run(args: &[&str]) -> Result {
    let figure = match args {
        ["bystander", src, dst, "--", command @ ..] => {
            bystander::measured(Path::new(src), Path::new(dst), command)?
        }
        [name, src, dst] => measured(name, Path::new(src), Path::new(dst))?,
        _ => return Err("NAME SRC DST [-- COMMAND]".into()),
    };
    println!("{figure}");
    Ok(())
}

fn measured(name: &str, src: &Path, dst: &Path) -> Result<f64> {
    let timed = |work: fn(&Path, &Path) -> Result| {
        let begun = Instant::now();
        work(src, dst)?;
        Ok(begun.elapsed().as_secs_f64())
    };
    match name {
        "loop" => timed(|src, dst| copied(src, dst, &mut |_| ())),
        "hashed" => timed(|src, dst| hashed(src, dst).map(drop)),
        "clones" => timed(|src, dst| clones(src, dst).map(drop)),
        "tcp" => timed(tcp),
        "handed" => timed(handed),
        "passes2" => timed(|src, dst| agree(hashed(src, dst)?, hash_of(dst)?)),
        "passes3" => timed(|src, dst| {
            copied(src, dst, &mut |_| ())?;
            agree(hash_of(src)?, hash_of(dst)?)
        }),
        "rest-rw" => rest(src, dst, by_hand),
        "rest-cfr" => rest(src, dst, by_kernel),
        "blake3" => speed(src),
        "lib-fast" => repeated(src, dst, |from, to| Ok(fastcopy::copy(from, to)?)),
        "lib-call" => repeated(src, dst, by_call),
        "lib-refused" => {
            refused_once(dst)?;
            repeated(src, dst, by_call)
        }
        "lib-std" => repeated(src, dst, |from, to| Ok(std::fs::copy(from, to)?)),
        "lib-old" => repeated(src, dst, old),
        _ => Err(format!("nothing is called {name}").into()),
    }
}

/// Block by block; each is shown on its way.
fn copied(src: &Path, dst: &Path, seen: &mut dyn FnMut(&[u8])) -> Result {
    let (from, to) = (File::open(src)?, File::create(dst)?);
    let mut block = vec![0; BLOCK];
    let mut at = 0;
    loop {
        let bytes = read_full(&from, at, &mut block)?;
        if bytes == 0 {
            return Ok(());
        }
        seen(&block[..bytes]);
        write_full(&to, at, &block[..bytes])?;
        at += bytes as u64;
    }
}

fn hashed(src: &Path, dst: &Path) -> Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    copied(src, dst, &mut |block| {
        hasher.update(block);
    })?;
    Ok(hasher.finalize())
}

/// One hash of everything, and its state as it was behind each block.
fn clones(src: &Path, dst: &Path) -> Result<(blake3::Hash, Vec<blake3::Hasher>)> {
    let (mut whole, mut each) = (blake3::Hasher::new(), Vec::new());
    copied(src, dst, &mut |block| {
        whole.update(block);
        each.push(whole.clone());
    })?;
    Ok((whole.finalize(), each))
}

/// Over one plain TCP stream on loopback, one thread at either end.
fn tcp(src: &Path, dst: &Path) -> Result {
    let (mut from, mut to) = (File::open(src)?, File::create(dst)?);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    std::thread::scope(|scope| {
        let sent =
            scope.spawn(move || pour(&mut from, &mut sender).and_then(|()| sender.shutdown(Shutdown::Write)));
        pour(&mut receiver, &mut to)?;
        sent.join().map_err(|_| "the sender stopped")??;
        Ok(())
    })
}

/// By hand: `std::io::copy` would have the kernel do it.
fn pour(from: &mut impl Read, to: &mut impl Write) -> std::io::Result<()> {
    let mut block = vec![0; 1 << 20];
    loop {
        match from.read(&mut block)? {
            0 => return Ok(()),
            bytes => to.write_all(&block[..bytes])?,
        }
    }
}

fn hash_of(path: &Path) -> Result<blake3::Hash> {
    let mut file = File::open(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut block = vec![0; BLOCK];
    loop {
        match file.read(&mut block)? {
            0 => return Ok(hasher.finalize()),
            bytes => {
                hasher.update(&block[..bytes]);
            }
        }
    }
}

fn agree(one: blake3::Hash, two: blake3::Hash) -> Result {
    if one == two { Ok(()) } else { Err("the copy has another hash".into()) }
}

/// One call for another thread; the block goes there and comes back.
enum Call {
    Read(u64, Vec<u8>),
    Write(u64, usize, Vec<u8>),
}

type Answer = std::io::Result<(usize, Vec<u8>)>;

/// Every read and every write is done by one of two other threads, and waited for.
fn handed(src: &Path, dst: &Path) -> Result {
    let (from, to) = (File::open(src)?, File::create(dst)?);
    let (answers, answer) = channel::<Answer>();
    let (one, first) = channel();
    let (two, second) = channel();
    std::thread::scope(|scope| {
        for calls in [first, second] {
            let (answers, from, to) = (answers.clone(), &from, &to);
            scope.spawn(move || serve(&calls, &answers, from, to));
        }
        // Dropped before the scope ends: that is what ends the two.
        let pool = [one, two];
        let mut block = vec![0; BLOCK];
        let mut at = 0;
        loop {
            pool[0].send(Call::Read(at, block))?;
            let (bytes, read) = answer.recv()??;
            if bytes == 0 {
                return Ok(());
            }
            pool[1].send(Call::Write(at, bytes, read))?;
            block = answer.recv()??.1;
            at += bytes as u64;
        }
    })
}

fn serve(calls: &Receiver<Call>, answers: &Sender<Answer>, from: &File, to: &File) {
    for call in calls {
        let done = match call {
            Call::Read(at, mut block) => read_full(from, at, &mut block).map(|bytes| (bytes, block)),
            Call::Write(at, bytes, block) => write_full(to, at, &block[..bytes]).map(|()| (bytes, block)),
        };
        if answers.send(done).is_err() {
            return;
        }
    }
}

/// The first quarter is there; seconds for the rest.
fn rest(src: &Path, dst: &Path, go_on: fn(&File, &File, u64, u64) -> Result) -> Result<f64> {
    let (from, to) = (File::open(src)?, File::create(dst)?);
    let whole = from.metadata()?.len();
    let first = whole / 4 / BLOCK as u64 * BLOCK as u64;
    by_hand(&from, &to, 0, first)?;
    to.sync_all()?;
    let begun = Instant::now();
    go_on(&from, &to, first, whole)?;
    Ok(begun.elapsed().as_secs_f64())
}

fn by_hand(from: &File, to: &File, mut at: u64, end: u64) -> Result {
    let mut block = vec![0; BLOCK];
    while at < end {
        let most = (end - at).min(BLOCK as u64) as usize;
        let bytes = read_full(from, at, &mut block[..most])?;
        if bytes == 0 {
            return Err("the source is shorter than it was".into());
        }
        write_full(to, at, &block[..bytes])?;
        at += bytes as u64;
    }
    Ok(())
}

fn by_kernel(from: &File, to: &File, at: u64, end: u64) -> Result {
    let (mut src_off, mut dst_off) = (at, at);
    while src_off < end {
        let left = (end - src_off) as usize;
        let bytes =
            copy_file_range(from, &mut src_off, to, &mut dst_off, left).map_err(std::io::Error::from)?;
        if bytes == 0 {
            return Err("the source is shorter than it was".into());
        }
    }
    Ok(())
}

/// MB (10^6) a second of one thread, over what lies in memory.
fn speed(src: &Path) -> Result<f64> {
    let bytes = std::fs::read(src)?;
    let mut hasher = blake3::Hasher::new();
    let begun = Instant::now();
    for block in bytes.chunks(BLOCK) {
        hasher.update(block);
    }
    let hash = hasher.finalize();
    let taken_s = begun.elapsed().as_secs_f64();
    agree(hash, blake3::hash(&bytes))?;
    Ok(bytes.len() as f64 / 1e6 / taken_s)
}

/// As the library did it: by the call, as long as it is not known to be missing, and else by hand.
fn by_call(from: &Path, to: &Path) -> Result<u64> {
    if !HAS_CALL.load(Ordering::Relaxed) {
        return old(from, to);
    }
    let (reader, writer) = (File::open(from)?, File::create(to)?);
    let meta = reader.metadata()?;
    let (mut src_off, mut dst_off) = (0, 0);
    while src_off < meta.len() {
        let left = (meta.len() - src_off) as usize;
        match copy_file_range(&reader, &mut src_off, &writer, &mut dst_off, left) {
            Ok(0) => return Err("the source is shorter than it was".into()),
            Ok(_) => {}
            // Asked again for each file, as the library did.
            Err(rustix::io::Errno::XDEV) if src_off == 0 => {
                through_a_buffer(reader, &writer)?;
                break;
            }
            Err(errno) => return Err(std::io::Error::from(errno).into()),
        }
    }
    writer.set_permissions(meta.permissions())?;
    Ok(meta.len())
}

/// What the library kept in a global: whether the kernel has the call.
static HAS_CALL: AtomicBool = AtomicBool::new(true);

/// Finds out that it has not, by a call that is refused: here every kernel has it, so one of a directory.
fn refused_once(dst: &Path) -> Result {
    let dir = File::open(dst.parent().ok_or("no directory")?)?;
    let answer = copy_file_range(&dir, &mut 0, &dir, &mut 0, 1);
    HAS_CALL.store(answer.is_ok(), Ordering::Relaxed);
    Ok(())
}

/// Seconds for one time of all the files, over and over to the same names, which are taken away outside the timing:
/// ext4 writes out at once what replaces a file by cutting it (`auto_da_alloc`), which is no copying.
fn repeated(src: &Path, dst: &Path, copy: fn(&Path, &Path) -> Result<u64>) -> Result<f64> {
    let mut pairs: Vec<(PathBuf, PathBuf)> = Vec::new();
    if src.is_dir() {
        std::fs::create_dir(dst)?;
        for entry in std::fs::read_dir(src)? {
            let entry = entry?;
            pairs.push((entry.path(), dst.join(entry.file_name())));
        }
    } else {
        pairs.push((src.to_path_buf(), dst.to_path_buf()));
    }
    let all = || -> Result {
        for (from, to) in &pairs {
            copy(from, to)?;
        }
        Ok(())
    };
    // The first time is left out.
    all()?;
    let (mut times, mut taken) = (0, Duration::ZERO);
    while times < TIMES || taken < REPEATED {
        for (_, to) in &pairs {
            std::fs::remove_file(to)?;
        }
        let begun = Instant::now();
        all()?;
        taken += begun.elapsed();
        times += 1;
    }
    Ok(taken.as_secs_f64() / f64::from(times))
}

fn old(from: &Path, to: &Path) -> Result<u64> {
    let (reader, writer) = (File::open(from)?, File::create(to)?);
    let meta = reader.metadata()?;
    let bytes = through_a_buffer(reader, &writer)?;
    std::fs::set_permissions(to, meta.permissions())?;
    Ok(bytes)
}

fn through_a_buffer(mut reader: File, mut writer: &File) -> Result<u64> {
    let mut buffer = vec![0; OLD_BUFFER];
    let mut sum = 0;
    loop {
        let bytes = reader.read(&mut buffer)?;
        if bytes == 0 {
            return Ok(sum);
        }
        writer.write_all(&buffer[..bytes])?;
        sum += bytes as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_copies_all_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let src = dir.path().join("src");
        let bytes: Vec<u8> = (0..9_000_001_u32).map(|n| (n * 7 % 251) as u8).collect();
        std::fs::write(&src, &bytes).unwrap();
        let ways = ["loop", "hashed", "clones", "tcp", "handed", "passes2", "passes3", "rest-rw"];
        for way in ways.into_iter().chain(["lib-fast", "lib-call", "lib-refused", "lib-std", "lib-old"]) {
            let dst = dir.path().join(way);
            assert!(measured(way, &src, &dst).unwrap() > 0.0);
            assert!(std::fs::read(&dst).unwrap() == bytes, "{way}");
            assert_eq!(HAS_CALL.swap(true, Ordering::Relaxed), way != "lib-refused", "{way}");
        }
        assert!(measured("blake3", &src, &src).unwrap() > 0.0);
        assert!(measured("no-such", &src, &src).is_err());
    }

    #[test]
    fn the_library_copies_every_file_of_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
        std::fs::create_dir(&src).unwrap();
        for name in ["a", "b"] {
            std::fs::write(src.join(name), name).unwrap();
        }
        measured("lib-fast", &src, &dst).unwrap();
        assert_eq!(std::fs::read_to_string(dst.join("b")).unwrap(), "b");
    }
}
