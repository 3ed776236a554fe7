//! A line of a certain length: a TCP relay that holds every byte back for half a round trip. It carries as much as it is
//! given, so it has a delay and no rate. Must not know what is said over it.

use sh::Result;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Pieces under way in one direction, of at most [`PIECE`] bytes: 50 ms of more than 1 GB/s.
pub const PIECES: usize = 1024;
const PIECE: usize = 64 << 10;

/// A relay that listens on loopback for as long as the process lives.
pub struct Relay {
    port: u16,
}

impl Relay {
    /// Connections to it lead `there`, `trip` being there and back, with so many `pieces` under way.
    pub fn start(there: SocketAddr, trip: Duration, pieces: usize) -> Result<Relay> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let here = listener.local_addr()?.port();
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                std::thread::spawn(move || carry(near, there, trip, pieces));
            }
        });
        Ok(Relay { port: here })
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

/// One connection. The kernel has accepted it without any delay, so the other half is opened after a round trip, when
/// a client so far away would have learned that it is connected.
fn carry(near: TcpStream, there: SocketAddr, trip: Duration, pieces: usize) {
    sleep(trip);
    let Ok(far) = TcpStream::connect(there) else { return };
    let both = [&near, &far].map(|s| s.set_nodelay(true).and_then(|()| s.try_clone()));
    if let [Ok(near_too), Ok(far_too)] = both {
        let back = std::thread::spawn(move || direction(far_too, near_too, trip / 2, pieces));
        direction(near, far, trip / 2, pieces);
        drop(back.join());
    }
}

/// Reads here and writes there: two threads, and a queue of what arrived when.
fn direction(mut from: TcpStream, to: TcpStream, delay: Duration, pieces: usize) {
    let (sender, receiver) = sync_channel::<(Instant, Vec<u8>)>(pieces);
    let writer = std::thread::spawn(move || write_later(to, &receiver, delay));
    read_all(&mut from, &sender);
    drop(sender);
    drop(writer.join());
}

fn read_all(from: &mut TcpStream, sender: &SyncSender<(Instant, Vec<u8>)>) {
    let mut room = vec![0; PIECE];
    while let Ok(bytes) = from.read(&mut room) {
        if bytes == 0 || sender.send((Instant::now(), room[..bytes].to_vec())).is_err() {
            break;
        }
    }
}

fn write_later(mut to: TcpStream, receiver: &Receiver<(Instant, Vec<u8>)>, delay: Duration) {
    while let Ok((arrived, bytes)) = receiver.recv() {
        sleep((arrived + delay).saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            // The thread that reads the other way is to notice too.
            drop(to.shutdown(Shutdown::Both));
            return;
        }
    }
    // The end is delayed as what came before it was.
    sleep(delay);
    drop(to.shutdown(Shutdown::Write));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_arrives_in_order_and_late() {
        let echo = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = echo.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = echo.accept().unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            stream.write_all(&all).unwrap();
        });
        let trip = Duration::from_millis(20);
        let relay = Relay::start(there, trip, PIECES).unwrap();
        let begun = Instant::now();
        let mut stream = TcpStream::connect(("127.0.0.1", relay.port())).unwrap();
        let said: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        stream.write_all(&said).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        assert!(heard == said);
        // One to be connected, and one there and back.
        assert!(begun.elapsed() >= trip * 2);
    }
}
