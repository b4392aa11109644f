//! A site: a network namespace with one TUN device, which this process reads and writes.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::process::Command;

use nix::sched::{CloneFlags, setns, unshare};
use tun_rs::{DeviceBuilder, SyncDevice};

use crate::Result;

/// Sites are 10.99.0.1, 10.99.0.2, and so on.
const NETWORK: [u8; 3] = [10, 99, 0];

/// See the file comment.
pub struct Site {
    pub name: String,
    pub address: Ipv4Addr,
    pub device: SyncDevice,
    namespace: File,
}

impl Site {
    /// Makes it; `index` counts from 0.
    pub fn make(name: &str, index: usize) -> Result<Site> {
        let [a, b, c] = NETWORK;
        let address = Ipv4Addr::new(a, b, c, u8::try_from(index + 1).expect("few sites"));
        // A thread of its own enters the new namespace; the device and whatever it runs are there.
        let made = std::thread::scope(|scope| scope.spawn(|| make(address)).join());
        let (namespace, device) =
            made.expect("no thread panics").map_err(|error| format!("{name}: {error}"))?;
        Ok(Site { name: name.to_owned(), address, device, namespace })
    }

    /// For `nsenter --net=…`, as long as this process lives.
    pub fn namespace(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.namespace.as_raw_fd())
    }

    /// The calling thread is there from now on.
    pub fn enter(&self) -> Result<()> {
        setns(&self.namespace, CloneFlags::CLONE_NEWNET).map_err(|error| format!("{}: {error}", self.name))
    }
}

/// The index of the site that an IPv4 packet is for; none if it is for nobody here.
pub fn destination(packet: &[u8]) -> Option<usize> {
    let [a, b, c, site] = *packet.get(16..20)?.as_array()?;
    let is_here = packet[0] >> 4 == 4 && [a, b, c] == NETWORK;
    usize::from(site).checked_sub(1).filter(|_| is_here)
}

fn make(address: Ipv4Addr) -> Result<(File, SyncDevice)> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|error| format!("no network namespace: {error}"))?;
    let namespace = File::open("/proc/thread-self/ns/net").map_err(|error| error.to_string())?;
    let made = DeviceBuilder::new().name("wan").mtu(1500).build_sync();
    let device = made.map_err(|error| format!("no TUN device: {error}"))?;
    device.set_nonblocking(true).map_err(|error| error.to_string())?;
    let address = format!("{address}/24");
    for words in [
        ["link", "set", "lo", "up"].as_slice(),
        &["addr", "add", &address, "dev", "wan"],
        &["link", "set", "wan", "up", "txqueuelen", "10000"],
    ] {
        let output = Command::new("ip").args(words).output();
        let output = output.map_err(|error| format!("cannot run ip (Debian's iproute2): {error}"))?;
        if !output.status.success() {
            return Err(format!(
                "ip {}: {}",
                words.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            ));
        }
    }
    Ok((namespace, device))
}
