//! An attacker in the middle of the direct data plane: a relay between a true client and a true server, which sees every
//! record and does one thing to one of them. What goes over ssh it passes on as it is.
//!
//! Must not know what must come of it. The client is led here by `middle/ssh`: the server listens on 127.0.0.1, and the
//! relay on 127.0.0.2, at the same port.

use super::remote::Far;
use super::*;
use bcmr_wire::direct::{Direction, MAGIC};
use bcmr_wire::frame;
use bcmr_wire::message::{Message, kind};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

/// Where a record is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Length,
    Text,
    Tag,
}

/// What is done to a stream, once. Record 0 is the proof; the last one is empty and says that nothing follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Nothing,
    /// A bit of this byte of what the client says before the first record.
    FlipPreamble(usize),
    Flip(u64, Part),
    Drop(u64),
    Twice(u64),
    /// This one after the next one.
    Swap(u64),
    /// Record 1 again, before this one.
    Replay(u64),
    /// The end of both connections, instead of this one.
    Cut(u64),
    /// The same after half of it.
    CutWithin(u64),
    /// The end of both connections, instead of the last record.
    CutEnd,
    /// The last record is left out, and TCP's own end passes.
    DropEnd,
    FlipEnd,
    /// Something follows the last record.
    BehindEnd,
    /// Connections are taken, and nothing passes.
    Silent,
    /// From this record on nothing passes until [`Middle::release`].
    Hold(u64),
}

/// A deed, and which stream it is done to.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub direction: Direction,
    pub stream: u8,
    pub deed: Deed,
    /// To every connection, and not only to the first that it fits.
    pub always: bool,
}

impl Plan {
    pub const NOTHING: Plan =
        Plan { direction: Direction::Up, stream: 0, deed: Deed::Nothing, always: false };
}

/// Called with the port before the client knows of it.
type Early = Box<dyn Fn(u16) + Send + Sync>;

struct Shared {
    plan: Plan,
    early: Early,
    /// How often the deed was done.
    done: AtomicU64,
    up: AtomicU64,
    down: AtomicU64,
    secrets: Mutex<Vec<[u8; 32]>>,
    /// How often someone connected.
    met: AtomicU64,
    released: AtomicBool,
    over: AtomicBool,
}

/// The one in the middle, for one run of the program. Everything it has to do with ends with it.
pub struct Middle {
    dir: Tmp,
    shared: Arc<Shared>,
    bell: Option<JoinHandle<()>>,
}

impl Middle {
    pub fn new(plan: Plan) -> Middle {
        Middle::with(plan, Box::new(|_| ()))
    }

    pub fn with(plan: Plan, early: Early) -> Middle {
        let dir = Tmp::beneath(&std::env::temp_dir());
        chmod(dir.path(), 0o777);
        let bell = dir.p("bell");
        mkfifo(&bell);
        chmod(&bell, 0o666);
        // Both ends, so that it never ends by itself.
        let bell = std::fs::File::options().read(true).write(true).open(&bell).unwrap();
        let shared = Arc::new(Shared {
            plan,
            early,
            done: AtomicU64::new(0),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            secrets: Mutex::default(),
            met: AtomicU64::new(0),
            released: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let (place, of_it) = (dir.path().to_owned(), Arc::clone(&shared));
        let bell = std::thread::spawn(move || answer(&bell, &place, &of_it));
        Middle { dir, shared, bell: Some(bell) }
    }

    /// Leads a run of the program through here. Its `Far` is one that [`through`] has made.
    pub fn lead(&self, mut line: Line) -> Line {
        line.0.env("MIDDLE", self.dir.path());
        line
    }

    /// How often the deed was done.
    pub fn done(&self) -> u64 {
        self.shared.done.load(Ordering::SeqCst)
    }

    /// Bytes that came from the client, and from the server.
    pub fn passed(&self) -> (u64, u64) {
        (self.shared.up.load(Ordering::SeqCst), self.shared.down.load(Ordering::SeqCst))
    }

    /// The secrets that went over ssh, in their order.
    pub fn secrets(&self) -> Vec<[u8; 32]> {
        self.shared.secrets.lock().unwrap().clone()
    }

    /// How often the client connected.
    pub fn met(&self) -> u64 {
        self.shared.met.load(Ordering::SeqCst)
    }

    pub fn release(&self) {
        self.shared.released.store(true, Ordering::SeqCst);
    }
}

impl Drop for Middle {
    fn drop(&mut self) {
        self.release();
        self.shared.over.store(true, Ordering::SeqCst);
        let woken =
            std::fs::File::options().write(true).open(self.dir.p("bell")).map(|mut b| b.write_all(b"\n"));
        if let (Ok(Ok(())), Some(bell)) = (woken, self.bell.take()) {
            let _failed = bell.join();
        }
    }
}

/// The other machine, with ways past ssh that lead through a [`Middle`].
pub fn through(far: Far) -> Far {
    let ssh = format!("{}/tests/all/common/middle/ssh", env!("CARGO_MANIFEST_DIR"));
    far.over(Path::new(&ssh))
}

/// Every ssh that rings is served by a thread of its own.
fn answer(mut bell: &std::fs::File, dir: &Path, shared: &Arc<Shared>) {
    let (mut line, mut byte) = (String::new(), [0]);
    while bell.read_exact(&mut byte).is_ok() && !shared.over.load(Ordering::SeqCst) {
        if byte != *b"\n" {
            line.push(char::from(byte[0]));
            continue;
        }
        let (far, near) = (dir.join(format!("{line}.far")), dir.join(format!("{line}.near")));
        line.clear();
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            let far = std::fs::File::open(far).unwrap();
            let near = std::fs::File::options().write(true).open(near).unwrap();
            pass_frames(far, near, &shared);
        });
    }
}

/// From the server over ssh to the client; the rendezvous is read on its way.
fn pass_frames(mut far: std::fs::File, mut near: std::fs::File, shared: &Arc<Shared>) {
    let (mut held, mut some) = (Vec::new(), [0; 1 << 16]);
    loop {
        while let Ok(Some((found, used))) = frame::decode(&held) {
            if found.kind == kind::RENDEZVOUS {
                let message = Message::decode(found.kind, found.payload).unwrap();
                let Message::Rendezvous { port, secret, .. } = message else { panic!("no rendezvous") };
                shared.secrets.lock().unwrap().push(secret);
                (shared.early)(port);
                let listener = listener(port);
                let shared = Arc::clone(shared);
                std::thread::spawn(move || relay(&listener, port, &shared));
            }
            if near.write_all(&held[..used]).is_err() {
                return;
            }
            held.drain(..used);
        }
        match far.read(&mut some) {
            Ok(n) if n > 0 => held.extend_from_slice(&some[..n]),
            // What was no whole frame is passed on all the same.
            _ => return drop(near.write_all(&held)),
        }
    }
}

/// Where the client finds the server's `port`. Another case, whose server had the same one on another address, may still hold it.
fn listener(port: u16) -> TcpListener {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match TcpListener::bind(("127.0.0.2", port)) {
            Ok(listener) => return listener,
            Err(e) => assert!(Instant::now() < until, "{port}: {e}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn relay(listener: &TcpListener, port: u16, shared: &Arc<Shared>) {
    listener.set_nonblocking(true).unwrap();
    while !shared.over.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok((client, _)) => {
                client.set_nonblocking(false).unwrap();
                let shared = Arc::clone(shared);
                std::thread::spawn(move || drop(connection(client, port, &shared)));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

fn connection(mut client: TcpStream, port: u16, shared: &Arc<Shared>) -> std::io::Result<()> {
    if shared.plan.deed == Deed::Silent {
        shared.done.fetch_add(1, Ordering::SeqCst);
        while !shared.over.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
        return Ok(());
    }
    let mut preamble = [0; MAGIC.len() + 1];
    client.read_exact(&mut preamble)?;
    shared.met.fetch_add(1, Ordering::SeqCst);
    shared.up.fetch_add(preamble.len() as u64, Ordering::SeqCst);
    let stream = preamble[MAGIC.len()];
    let mut server = TcpStream::connect(("127.0.0.1", port))?;
    for socket in [&client, &server] {
        socket.set_nodelay(true)?;
    }
    if let Deed::FlipPreamble(at) = shared.plan.deed
        && shared.mine(Direction::Up, stream)
    {
        shared.does();
        preamble[at] ^= 1;
    }
    server.write_all(&preamble)?;
    let way = |direction, from: &TcpStream, to: &TcpStream| {
        let (from, to) = (from.try_clone()?, to.try_clone()?);
        Ok::<Way, std::io::Error>(Way { direction, stream, from, to, shared: Arc::clone(shared) })
    };
    let down = way(Direction::Down, &server, &client)?;
    let down = std::thread::spawn(move || down.pass());
    way(Direction::Up, &client, &server)?.pass();
    let _ended = down.join();
    Ok(())
}

impl Shared {
    /// Whether the deed is to be done to this one.
    fn mine(&self, direction: Direction, stream: u8) -> bool {
        let plan = &self.plan;
        (plan.direction, plan.stream) == (direction, stream)
            && (plan.always || self.done.load(Ordering::SeqCst) == 0)
    }

    fn does(&self) {
        self.done.fetch_add(1, Ordering::SeqCst);
    }
}

/// One direction of one connection.
struct Way {
    direction: Direction,
    stream: u8,
    from: TcpStream,
    to: TcpStream,
    shared: Arc<Shared>,
}

impl Way {
    /// Until either end goes.
    fn pass(mut self) {
        if self.records().is_err() {
            self.cut();
        }
        drop(self.to.shutdown(Shutdown::Write));
    }

    fn cut(&self) {
        drop(self.from.shutdown(Shutdown::Both));
        drop(self.to.shutdown(Shutdown::Both));
    }

    fn records(&mut self) -> std::io::Result<()> {
        let (mut first, mut held) = (Vec::new(), Vec::new());
        let mut n = 0;
        while let Some(mut record) = self.record()? {
            if n == 1 {
                first.clone_from(&record);
            }
            let end = record.len() == LENGTH + TAG;
            let mine = self.shared.mine(self.direction, self.stream);
            let what = mine.then_some(self.shared.plan.deed);
            let last = record.len() - 1;
            match what {
                Some(Deed::Flip(at, part)) if at == n => {
                    self.shared.does();
                    record[match part {
                        Part::Length => 0,
                        Part::Text => LENGTH + (last - LENGTH) / 2,
                        Part::Tag => last,
                    }] ^= 1;
                }
                Some(Deed::FlipEnd) if end => {
                    self.shared.does();
                    record[last] ^= 0x80;
                }
                Some(Deed::Drop(at)) if at == n => {
                    self.shared.does();
                    record.clear();
                }
                Some(Deed::DropEnd) if end => {
                    self.shared.does();
                    record.clear();
                }
                Some(Deed::Twice(at)) if at == n => {
                    self.shared.does();
                    record.extend_from_within(..);
                }
                Some(Deed::Swap(at)) if at == n => {
                    held = std::mem::take(&mut record);
                }
                Some(Deed::Swap(at)) if at + 1 == n => {
                    self.shared.does();
                    record.append(&mut held);
                }
                Some(Deed::Replay(at)) if at == n => {
                    self.shared.does();
                    record.splice(..0, first.iter().copied());
                }
                Some(Deed::BehindEnd) if end => {
                    self.shared.does();
                    record.extend_from_slice(&first);
                }
                Some(Deed::Cut(at)) if at == n => {
                    self.shared.does();
                    return Err(std::io::ErrorKind::Other.into());
                }
                Some(Deed::CutEnd) if end => {
                    self.shared.does();
                    return Err(std::io::ErrorKind::Other.into());
                }
                Some(Deed::CutWithin(at)) if at == n => {
                    self.shared.does();
                    self.to.write_all(&record[..record.len() / 2])?;
                    return Err(std::io::ErrorKind::Other.into());
                }
                Some(Deed::Hold(at)) if at == n => {
                    self.shared.does();
                    while !self.shared.released.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
                _ => {}
            }
            self.to.write_all(&record)?;
            n += 1;
        }
        Ok(())
    }

    /// The next record as it came; `None` at the end.
    fn record(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let mut record = vec![0; LENGTH];
        if self.from.read(&mut record[..1])? == 0 {
            return Ok(None);
        }
        self.from.read_exact(&mut record[1..])?;
        let length = u32::from_le_bytes(record[..LENGTH].try_into().unwrap()) as usize;
        record.resize(LENGTH + length, 0);
        self.from.read_exact(&mut record[LENGTH..])?;
        let passed = if self.direction == Direction::Up { &self.shared.up } else { &self.shared.down };
        passed.fetch_add(record.len() as u64, Ordering::SeqCst);
        Ok(Some(record))
    }
}

const LENGTH: usize = 4;
const TAG: usize = 16;
