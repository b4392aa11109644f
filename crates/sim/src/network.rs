//! The links between hosts: when a message arrives, how often, and whether at all.
//!
//! A link delivers urgent messages and writes in order unless reordering is on, and so it does bulk ([`Class`]): the
//! others pass it, and do not wait for its bytes. Where it has a rate for good, urgent messages pass writes, too. A
//! partition loses what is sent, or holds it back until the partition ends, as a connection that retransmits does. Time
//! and chance only; the messages stay outside.

use quorate_check::{MILLISECOND, Nanos, SECOND};
use quorate_core::{Class, Random, Rate, Topology};

use crate::faults::{Counts, Kind};

/// However slow a link is, a message is not under way for longer: what was sent before everything heals must not
/// block its link for much of the time in which clients must be served again.
const SLOWEST: Nanos = 2 * SECOND;

/// How long a message takes on a link without faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latency {
    /// Evenly between two bounds.
    Uniform {
        /// At least.
        low: Nanos,
        /// Less than, or equal to `low` if that is not smaller.
        high: Nanos,
    },
    /// Log-normal with σ = ½: mostly near the median, at times five times as long.
    LogNormal {
        /// Half of the messages are faster.
        median: Nanos,
    },
}

/// Quantiles of the log-normal distribution with median 1 and σ = ½, in 1024ths, at 0, 1/32 … 1. A table, because
/// `exp` and `ln` are not equal to the last bit on every machine.
const LOG_NORMAL: [u64; 33] = [
    218, 403, 476, 530, 576, 618, 657, 695, 731, 767, 802, 837, 873, 909, 947, 985, 1024, 1065, 1108, 1153,
    1201, 1252, 1307, 1368, 1435, 1510, 1596, 1697, 1820, 1979, 2205, 2599, 5307,
];

impl Latency {
    /// A draw.
    pub fn draw(self, random: &mut Random) -> Nanos {
        match self {
            Latency::Uniform { low, high } if low < high => random.range(low..high),
            Latency::Uniform { low, .. } => low,
            Latency::LogNormal { median } => {
                let word = random.u64() >> 48;
                let (index, rest) = ((word >> 11) as usize, word & 0x7ff);
                let (low, high) = (LOG_NORMAL[index], LOG_NORMAL[index + 1]);
                median * (low * 2048 + (high - low) * rest) / (1024 * 2048)
            }
        }
    }
}

/// Puts hosts at the sites, in order and over again. Hosts of one site are as near as they were.
pub(crate) fn spread(latencies: &mut [Vec<Latency>], topology: &Topology) {
    let sites = topology.sites().len();
    for (from, row) in latencies.iter_mut().enumerate() {
        for (to, latency) in row.iter_mut().enumerate() {
            if from % sites != to % sites {
                let low = topology.one_way(from % sites, to % sites).as_nanos() as Nanos;
                // Long lines are steady.
                let high = low + (low / 16).max(topology.jitter().as_nanos() as Nanos);
                *latency = Latency::Uniform { low, high };
            }
        }
    }
}

/// Chances of what may happen to each message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noise {
    /// It is lost.
    pub loss: f64,
    /// It arrives twice, the second time perhaps much later.
    pub duplication: f64,
    /// It is overtaken.
    pub reordering: f64,
}

/// When a message arrives: never, once or twice.
pub type Arrivals = [Option<Nanos>; 2];

/// All links between `hosts` hosts.
#[derive(Debug)]
pub struct Network {
    hosts: usize,
    links: Vec<Link>,
    /// Of each host, the rate at which it sends in all, and when it has sent everything.
    interfaces: Vec<(Option<Rate>, Nanos)>,
    noise: Noise,
    random: Random,
}

#[derive(Clone, Debug)]
struct Link {
    latency: Latency,
    /// For good, whatever faults there are; none for at once.
    rate: Option<Rate>,
    /// Latency is multiplied by this …
    slowness: u64,
    /// … until then.
    slow_until: Nanos,
    /// Bytes per second …
    bandwidth: u64,
    /// … until then; no limit afterwards.
    limited_until: Nanos,
    blocked_until: Nanos,
    /// Whether a block holds messages back instead of losing them.
    holds: bool,
    /// Nothing passes any more, whatever else is over.
    lost: bool,
    /// Of each class, the urgent first.
    lanes: [Lane; 3],
}

/// The messages of a class on a link.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    /// When a limited link has sent everything it was given.
    free_at: Nanos,
    /// Arrivals before this would overtake.
    last_arrival: Nanos,
}

impl Network {
    /// `latency(from, to)` of each link.
    pub fn new(
        hosts: usize,
        latency: impl Fn(usize, usize) -> Latency,
        noise: Noise,
        random: Random,
    ) -> Network {
        let link = |index: usize| Link {
            latency: latency(index / hosts, index % hosts),
            rate: None,
            slowness: 1,
            slow_until: 0,
            bandwidth: 0,
            limited_until: 0,
            blocked_until: 0,
            holds: false,
            lost: false,
            lanes: Default::default(),
        };
        let interfaces = vec![(None, 0); hosts];
        Network { hosts, links: (0..hosts * hosts).map(link).collect(), interfaces, noise, random }
    }

    /// What this host sends has the rates of these links, each to another host, and of its interface.
    pub fn rate(&mut self, host: usize, links: impl Fn(usize) -> Option<Rate>, interface: Option<Rate>) {
        self.interfaces[host].0 = interface;
        for other in 0..self.hosts {
            self.link(host, other).rate = links(other);
        }
    }

    fn link(&mut self, from: usize, to: usize) -> &mut Link {
        &mut self.links[from * self.hosts + to]
    }

    /// Blocks a link in one direction; with `holds`, what is sent meanwhile arrives afterwards.
    pub fn block(&mut self, from: usize, to: usize, until: Nanos, holds: bool) {
        let link = self.link(from, to);
        link.blocked_until = link.blocked_until.max(until);
        link.holds = holds;
    }

    /// Multiplies a link's latency.
    pub fn slow(&mut self, from: usize, to: usize, until: Nanos, slowness: u64) {
        let link = self.link(from, to);
        (link.slowness, link.slow_until) = (slowness, until);
    }

    /// Multiplies the latencies of all links from and to a host, for ever.
    pub fn slow_host(&mut self, host: usize, slowness: u64) {
        for other in 0..self.hosts {
            self.slow(host, other, Nanos::MAX, slowness);
            self.slow(other, host, Nanos::MAX, slowness);
        }
    }

    /// Loses everything that two hosts send to each other, for ever.
    pub fn lose(&mut self, host: usize, other: usize) {
        self.link(host, other).lost = true;
        self.link(other, host).lost = true;
    }

    /// Limits a link to so many bytes per second.
    pub fn limit(&mut self, from: usize, to: usize, until: Nanos, bandwidth: u64) {
        let link = self.link(from, to);
        (link.bandwidth, link.limited_until) = (bandwidth.max(1), until);
    }

    /// Ends all faults, but links that are lost stay so. What is on its way stays on its way.
    pub fn heal(&mut self) {
        self.noise = Noise::default();
        for link in &mut self.links {
            (link.slow_until, link.limited_until, link.blocked_until) = (0, 0, 0);
        }
    }

    /// When everything that is under way has arrived, but for copies.
    pub fn clear_at(&self) -> Nanos {
        self.links.iter().flat_map(|link| link.lanes).map(|lane| lane.last_arrival).max().unwrap_or(0)
    }

    /// Sends a message now. `bytes` is asked only where bandwidth is limited, or links have rates.
    pub fn send(
        &mut self,
        (from, to): (usize, usize),
        class: Class,
        now: Nanos,
        bytes: impl FnOnce() -> usize,
        counts: &mut Counts,
    ) -> Arrivals {
        let Network { hosts, links, interfaces, noise, random } = self;
        let link = &mut links[from * *hosts + to];
        if link.lost {
            return [None, None];
        }
        let lane = match class {
            Class::Urgent => 0,
            // In order with what is urgent, where there is no telling when it leaves.
            Class::Write => usize::from(link.rate.is_some()),
            Class::Bulk | Class::Gossip => 2,
        };
        let free_at = link.lanes[..=lane].iter().map(|lane| lane.free_at).max().unwrap_or(0);
        let lane = &mut link.lanes[lane];
        if noise.loss > 0.0 && random.chance(noise.loss) {
            counts.add(Kind::Loss);
            return [None, None];
        }
        let mut start = now;
        if link.blocked_until > now {
            if !link.holds {
                return [None, None];
            }
            start = link.blocked_until;
        }
        let (interface, sent) = &mut interfaces[from];
        let is_limited = link.limited_until > now;
        if is_limited || interface.is_some() || link.rate.is_some() {
            let bytes = bytes();
            let takes =
                |rate: Option<Rate>| rate.map_or(0, |rate| rate.transmission(bytes).as_nanos() as Nanos);
            let begins = if interface.is_some() { now.max(*sent) } else { now };
            let left = begins + takes(*interface);
            // The link may begin as soon as the interface does.
            let limited = if is_limited { bytes as u64 * SECOND / link.bandwidth } else { 0 };
            start = (start.max(begins).max(free_at) + takes(link.rate).max(limited)).max(left);
            if start - now > 10 * SECOND {
                // A bounded send buffer is full.
                return [None, None];
            }
            (*sent, lane.free_at) = (left, start);
        }
        let slowness = if link.slow_until > now { link.slowness } else { 1 };
        let mut arrival = start + (link.latency.draw(random) * slowness).min(SLOWEST);
        if noise.reordering > 0.0 && random.chance(noise.reordering) {
            if arrival < lane.last_arrival || random.chance(0.5) {
                arrival = start + (link.latency.draw(random) * slowness * random.range(1..20)).min(SLOWEST);
            }
            counts.add(Kind::Reordering);
        } else {
            arrival = arrival.max(lane.last_arrival);
            lane.last_arrival = arrival;
        }
        let mut again = None;
        if noise.duplication > 0.0 && random.chance(noise.duplication) {
            // Mostly soon; sometimes from another epoch.
            let reach = *random.pick(&[MILLISECOND, 20 * MILLISECOND, 20 * MILLISECOND, 5 * SECOND]);
            again = Some(arrival + random.range(0..reach));
            counts.add(Kind::Duplication);
        }
        [Some(arrival), again]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Latency = Latency::LogNormal { median: 100_000 };

    fn network(noise: Noise) -> Network {
        Network::new(3, |_, _| FAST, noise, Random::new(3))
    }

    fn send(network: &mut Network, from: usize, to: usize, now: Nanos) -> Arrivals {
        network.send((from, to), Class::Urgent, now, || 1000, &mut Counts::default())
    }

    #[test]
    fn the_log_normal_table_has_its_median_and_a_tail() {
        let mut random = Random::new(1);
        let mut draws: Vec<_> = (0..10_000).map(|_| FAST.draw(&mut random)).collect();
        draws.sort_unstable();
        assert!((97_000..103_000).contains(&draws[5000]), "{}", draws[5000]);
        assert!((160_000..215_000).contains(&draws[9000]), "{}", draws[9000]);
        assert!(draws[9990] > 300_000);
    }

    #[test]
    fn a_quiet_link_delivers_everything_once_and_in_order() {
        let mut network = network(Noise::default());
        let mut before = 0;
        for now in (0..1_000_000).step_by(1000) {
            let [Some(arrival), None] = send(&mut network, 0, 1, now) else { panic!("lost or doubled") };
            assert!(arrival >= before && arrival > now);
            before = arrival;
        }
    }

    #[test]
    fn noise_loses_doubles_and_reorders_about_as_often_as_asked() {
        let mut network = network(Noise { loss: 0.2, duplication: 0.2, reordering: 0.2 });
        let mut counts = Counts::default();
        let (mut lost, mut doubled, mut overtaken, mut before) = (0, 0, 0, 0);
        for now in (0..1_000_000).step_by(1000) {
            match network.send((1, 2), Class::Urgent, now, || 1, &mut counts) {
                [None, _] => lost += 1,
                [Some(arrival), again] => {
                    doubled += u64::from(again.is_some());
                    overtaken += u64::from(arrival < before);
                    before = before.max(arrival);
                }
            }
        }
        for (what, times) in [("lost", lost), ("doubled", doubled)] {
            assert!((120..280).contains(&times), "{what} {times}");
        }
        assert!(overtaken > 20, "overtaken {overtaken}");
        assert_eq!((counts.of(Kind::Loss), counts.of(Kind::Duplication)), (lost, doubled));
    }

    #[test]
    fn a_block_has_a_direction_and_an_end_and_loses_or_holds() {
        let mut network = network(Noise::default());
        network.block(0, 1, SECOND, false);
        network.block(0, 2, SECOND, true);
        assert_eq!(send(&mut network, 0, 1, 0), [None, None]);
        assert!(send(&mut network, 1, 0, 0)[0].is_some(), "the other direction is open");
        assert!(send(&mut network, 0, 2, 0)[0].is_some_and(|at| at > SECOND), "held back");
        assert!(send(&mut network, 0, 1, SECOND)[0].is_some(), "it ends");
        network.block(0, 1, 9 * SECOND, false);
        network.heal();
        assert!(send(&mut network, 0, 1, 2 * SECOND)[0].is_some(), "healed");
    }

    #[test]
    fn links_that_are_lost_stay_so_in_both_directions() {
        let mut network = network(Noise::default());
        network.lose(0, 1);
        network.heal();
        let passes = |(from, to)| send(&mut network, from, to, SECOND)[0].is_some();
        let links = [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)];
        assert_eq!(links.map(passes), [false, false, true, true, true, true]);
    }

    #[test]
    fn rates_of_links_and_interfaces_outlast_faults() {
        let mut network = network(Noise::default());
        // 1000 bytes take a millisecond on the link, and half of that on the interface.
        let link = |to| (to == 1).then_some(Rate::mbit(8));
        network.rate(0, link, Some(Rate::mbit(16)));
        network.heal();
        let mut arrivals = |to| {
            let sent = (0..10).map(|_| send(&mut network, 0, to, 0)[0].unwrap());
            sent.last().unwrap() / MILLISECOND
        };
        assert_eq!(arrivals(1), 10);
        assert_eq!(arrivals(2), 10, "the interface is shared");
        assert!(send(&mut network, 1, 0, 0)[0].unwrap() < MILLISECOND, "the other direction");
    }

    /// At 8 Mbit/s, ten seconds of it.
    #[test]
    fn what_does_not_fit_into_a_send_buffer_takes_no_time() {
        let mut network = network(Noise::default());
        network.rate(0, |_| Some(Rate::mbit(8)), None);
        let mut send =
            |now| network.send((0, 1), Class::Write, now, || 1_000_000, &mut Counts::default())[0].is_some();
        assert_eq!((0..20).filter(|_| send(0)).count(), 10);
        assert!(!send(SECOND / 2), "nothing has left");
        assert!(send(SECOND), "one has");
    }

    #[test]
    fn what_is_urgent_passes_bulk_and_its_bytes() {
        let mut network = network(Noise::default());
        network.limit(0, 1, SECOND, 1_000_000);
        let mut send = |class| {
            let sent = network.send((0, 1), class, 0, || 10_000, &mut Counts::default());
            sent[0].unwrap() / (10 * MILLISECOND)
        };
        let classes = [Class::Bulk, Class::Bulk, Class::Urgent, Class::Urgent, Class::Bulk];
        assert_eq!(classes.map(&mut send), [1, 2, 1, 2, 3]);
    }

    #[test]
    fn bandwidth_queues_and_slowness_multiplies() {
        let mut network = network(Noise::default());
        network.limit(0, 1, SECOND, 1_000_000);
        network.slow(0, 2, SECOND, 100);
        let arrivals: Vec<_> = (0..10).map(|_| send(&mut network, 0, 1, 0)[0].unwrap()).collect();
        assert!(arrivals[9] >= 10 * MILLISECOND, "ten times 1000 bytes at 1 MB/s");
        assert!(send(&mut network, 0, 2, 0)[0].unwrap() > 2 * MILLISECOND);
        assert!(send(&mut network, 0, 2, SECOND)[0].unwrap() < SECOND + MILLISECOND);
    }
}
