//! Carries packets: each waits for the interface that it leaves by and for the link that it takes, at their
//! rates (`quorate_core::link`), and links deliver in order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl;
use nix::sys::time::TimeSpec;
use quorate_core::{Interface, Random, Time, Topology};

use crate::Result;
use crate::site::{Site, destination};

/// How long a packet may wait for a link's rate before it is dropped, as a router's queue would drop it.
const QUEUE: Duration = Duration::from_millis(250);
/// Packets under way at most, over all links: those beyond are dropped.
const MOST: usize = 1 << 17;
/// Packets that a site may send before others have their turn.
const TURN: usize = 64;
/// How long it takes to notice that it is to stop, at most.
const POLL: Duration = Duration::from_millis(100);

/// A packet that is under way; the one that is due first is the least.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Packet {
    due: Time,
    /// In the order of sending, for those that are due at once.
    number: u64,
    to: usize,
    bytes: Vec<u8>,
}

/// What a link between two sites does at the moment.
struct Lane {
    link: Interface,
    /// When the last packet arrives.
    last: Time,
}

/// Carries packets until it is told to stop.
pub fn run(sites: &[Site], topology: &Topology, stop: &AtomicBool) -> Result<()> {
    // A wait ends when it is over, not up to 50 µs later.
    prctl::set_timerslack(1).map_err(|error| format!("prctl: {error}"))?;
    let start = Instant::now();
    let now = || Time::ZERO + start.elapsed();
    let pairs = (0..sites.len()).flat_map(|from| (0..sites.len()).map(move |to| (from, to)));
    let mut lanes: Vec<Lane> = pairs
        .map(|(from, to)| Lane { link: Interface::new(topology.link(from, to).rate), last: Time::ZERO })
        .collect();
    let mut interfaces: Vec<Interface> =
        (0..sites.len()).map(|from| Interface::new(topology.interface(from))).collect();
    let mut under_way = BinaryHeap::new();
    let mut random = Random::new(1);
    let mut buffer = vec![0; 65_536];
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let due = under_way.peek().map(|Reverse(packet): &Reverse<Packet>| packet.due);
        wait(sites, due.map_or(POLL, |due| due.since(now()).min(POLL)))?;
        for (from, site) in sites.iter().enumerate() {
            for _ in 0..TURN {
                let Ok(length) = site.device.recv(&mut buffer) else { break };
                let packet = &buffer[..length];
                let Some(to) = destination(packet).filter(|to| *to < sites.len()) else { continue };
                let (link, now) = (topology.link(from, to), now());
                let lane = &mut lanes[from * sites.len() + to];
                // The slower of the two is what counts.
                let leaves = interfaces[from].transmit(now, length).max(lane.link.transmit(now, length));
                if leaves.since(now) > QUEUE || under_way.len() >= MOST {
                    continue;
                }
                let jitter = random.range(0..link.jitter.as_nanos() as u64 + 1);
                lane.last = lane.last.max(leaves + link.delay + Duration::from_nanos(jitter));
                number += 1;
                let due = lane.last;
                under_way.push(Reverse(Packet { due, number, to, bytes: packet.to_vec() }));
            }
        }
        while under_way.peek().is_some_and(|Reverse(packet)| packet.due <= now()) {
            let Reverse(packet) = under_way.pop().expect("there is one");
            // A device whose queue is full drops it, as a network would.
            let _ = sites[packet.to].device.send(&packet.bytes);
        }
    }
    Ok(())
}

/// Waits until a site sends, or so long.
fn wait(sites: &[Site], time: Duration) -> Result<()> {
    let borrow = |site: &Site| {
        // SAFETY: the sites, and so their devices, live as long as the borrow of them.
        unsafe { BorrowedFd::borrow_raw(site.device.as_raw_fd()) }
    };
    let borrowed: Vec<_> = sites.iter().map(borrow).collect();
    let mut polled: Vec<_> = borrowed.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    match ppoll(&mut polled, Some(TimeSpec::from_duration(time)), None) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(format!("poll: {error}")),
    }
}
