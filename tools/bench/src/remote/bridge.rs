//! A line of a certain length, rate and loss for whole packets, so that TCP itself meets what it would meet on such a
//! line: this kernel has no netem. Two veth pairs end in macvtap devices, and what comes out of one is put into the
//! other: later, no faster than the rate, and now and then not at all. Must not know what is in a packet.

use sh::Result;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What such a line does to a packet.
#[derive(Clone, Copy, Debug)]
pub struct Manners {
    /// Bits of packets a second, each way.
    pub bits_s: u64,
    /// There and back.
    pub trip: Duration,
    /// One of so many packets is lost; 0: none.
    pub lost_of: u64,
}

/// What may wait for its turn on the line: as much as it carries in a quarter of a round trip. More is dropped, as a router
/// does.
const BUFFERED_OF_TRIP: u32 = 4;
/// Packets under way in one direction, which is more than any line here holds.
const PACKETS: usize = 64 << 10;
/// What a macvtap device puts in front of each packet, and a packet of any size behind it.
const HEADER_BYTES: usize = 10;
const PACKET_BYTES: usize = 64 << 10;
/// Packets that wait to be read out of a device.
const QUEUE: &str = "20000";

/// One end: a veth device to be used, and a device that gives out its packets.
pub struct End {
    /// What is given an address.
    pub veth: String,
    tap: String,
}

impl End {
    /// Devices named after `name`, which is at most 12 bytes.
    pub fn new(name: &str) -> Result<End> {
        let (veth, lower, tap) = (name.to_owned(), format!("{name}l"), format!("{name}t"));
        sh::quiet("ip", &["link", "add", &veth, "type", "veth", "peer", "name", &lower])?;
        let end = End { veth, tap };
        // One packet at a time on the wire: a bundle of many would be lost or late as one. TCP still hands over bundles, which the
        // kernel takes apart. It paces by a timer for each of them; with one for each packet half of the line stood empty.
        sh::quiet("ethtool", &["--features", &end.veth, "tso", "off"])?;
        let mode = ["type", "macvtap", "mode", "passthru"];
        sh::quiet("ip", &[&["link", "add", "link", &lower, "name", &end.tap], &mode[..]].concat())?;
        sh::quiet("ip", &["link", "set", &end.tap, "txqueuelen", QUEUE])?;
        for device in [&lower, &end.tap] {
            sh::quiet("ip", &["link", "set", device, "up"])?;
        }
        Ok(end)
    }

    /// The file that gives out packets and takes them.
    fn open(&self) -> Result<File> {
        let index = fs::read_to_string(format!("/sys/class/net/{}/ifindex", self.tap))?;
        let path = PathBuf::from(format!("/dev/tap{}", index.trim()));
        File::options()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|e| format!("{}: {e}", path.display()).into())
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // The pair goes with either end, and what is above with it; an unfinished one may have none.
        drop(sh::quiet("ip", &["link", "del", &self.tap]));
        drop(sh::quiet("ip", &["link", "del", &format!("{}l", self.veth)]));
    }
}

/// Carries packets between two ends for as long as these are there.
pub fn carry(near: &End, far: &End, manners: Manners) -> Result {
    let (one, two) = (near.open()?, far.open()?);
    for (from, to) in [(one.try_clone()?, two.try_clone()?), (two, one)] {
        let (sender, receiver) = sync_channel(PACKETS);
        std::thread::spawn(move || take(from, &sender, manners));
        std::thread::spawn(move || put(to, &receiver));
    }
    Ok(())
}

/// Reads packets, and says of each that is not lost when it is to arrive.
fn take(mut from: File, to: &SyncSender<(Instant, Vec<u8>)>, manners: Manners) {
    let mut room = vec![0; HEADER_BYTES + PACKET_BYTES];
    let mut road = Road::new(manners);
    while let Ok(bytes) = from.read(&mut room) {
        if bytes <= HEADER_BYTES {
            return;
        }
        if let Some(arrives) = road.passes(Instant::now(), bytes - HEADER_BYTES)
            && to.send((arrives, room[..bytes].to_vec())).is_err()
        {
            return;
        }
    }
}

fn put(mut to: File, from: &Receiver<(Instant, Vec<u8>)>) {
    while let Ok((arrives, packet)) = from.recv() {
        let early = arrives.saturating_duration_since(Instant::now());
        // Shorter than a thread sleeps.
        if early > Duration::from_micros(50) {
            sleep(early);
        }
        // What the device does not take is lost, as on a wire; when it has gone, reading ends too.
        drop(to.write(&packet));
    }
}

/// Where packets follow one another.
struct Road {
    manners: Manners,
    /// When the last packet that was taken has left.
    free: Option<Instant>,
    /// Says which are lost.
    random: u64,
}

impl Road {
    fn new(manners: Manners) -> Road {
        Road { manners, free: None, random: 0x9E37_79B9_7F4A_7C15 }
    }

    /// When a packet of so many bytes arrives that comes now. `None`: never.
    fn passes(&mut self, now: Instant, bytes: usize) -> Option<Instant> {
        let begins = self.free.unwrap_or(now).max(now);
        if begins - now > self.manners.trip / BUFFERED_OF_TRIP {
            return None;
        }
        let nanos = bytes as u64 * 8 * 1_000_000_000 / self.manners.bits_s;
        let free = begins + Duration::from_nanos(nanos);
        self.free = Some(free);
        // xorshift64: the same packets are lost each time, if as many come.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let lost = self.manners.lost_of > 0 && self.random.is_multiple_of(self.manners.lost_of);
        (!lost).then(|| free + self.manners.trip / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn packets_follow_one_another_at_the_rate_and_later() {
        let manners = Manners { bits_s: 8_000_000, trip: 100 * MS, lost_of: 0 };
        let mut road = Road::new(manners);
        let now = Instant::now();
        // 1,000 bytes take 1 ms.
        assert_eq!(road.passes(now, 1000), Some(now + 51 * MS));
        assert_eq!(road.passes(now, 1000), Some(now + 52 * MS));
        assert_eq!(road.passes(now + 10 * MS, 1000), Some(now + 61 * MS));
        // 25 ms may wait.
        let taken = (0..100).filter(|_| road.passes(now + 10 * MS, 1000).is_some()).count();
        assert_eq!(taken, 25);
    }

    #[test]
    fn one_of_a_thousand_is_lost() {
        let manners = Manners { bits_s: 1_000_000_000, trip: 100 * MS, lost_of: 1000 };
        let mut road = Road::new(manners);
        let mut now = Instant::now();
        let lost = (0..1_000_000).filter(|_| {
            now += MS;
            road.passes(now, 1500).is_none()
        });
        let lost = lost.count();
        assert!((800..1200).contains(&lost), "{lost}");
    }
}
