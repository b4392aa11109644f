//! The clients: closed loops on few hot keys, each attached to a host's proxy.
//!
//! Every write has bytes of its own, so that checkers can tell writes apart by their digest alone. Some keys have a
//! time to live. Some clients change a key only if nobody else has since they looked (WATCH, and conditions on
//! versions); these are keys of their own, because versions make a history harder to check.
//!
//! Some clients only read. Whoever has asked a leader that was cut off to write waits for it; a reader goes on, and
//! would see what is stale. Strings may be large (`sizes.rs`). A run may have *restless* clients, too, which hardly
//! pause: readers, so that the proxies of their hosts hear from a replica all the time, and writers, each of a key of
//! its own, so that links may be full all the time.
//!
//! A write whose outcome is unknown stays open for ever, and to decide a history takes time that doubles with each
//! of them. So after a few the clients move on to fresh keys, a new *era*; what they left is still read now and
//! then, and at the end.

mod commands;

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_check::history::{Invocation, Recorder};
use quorate_check::{MILLISECOND, Nanos};
use quorate_core::{GroupId, Random, RequestId, Staleness};
use quorate_store::{Command, Reply};

use crate::eras::in_era;
use crate::sizes::Sizes;

use commands::{Several, bound, draw, every_key, get, keys, own_put, transaction};

/// Operations that each client must complete after everything has healed.
const QUOTA: u32 = 3;

/// Writes of unknown outcome after which clients move on to fresh keys.
const ERA_UNKNOWNS: u32 = 6;

/// Streams of those who read every key in the end, of restless readers, and of restless writers, are from these on.
const READER_STREAMS: u64 = 1 << 32;
const RESTLESS_STREAMS: u64 = 1 << 33;
const WRITER_STREAMS: u64 = 1 << 34;
/// The longest time between an answer and the next question of a restless client.
const RESTLESS_PAUSE: Nanos = 20 * MILLISECOND;

/// What a client does next.
pub(crate) struct Ask {
    pub command: Command,
    /// A read that may miss something.
    pub within: Option<Staleness>,
}

/// A request under way.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub id: RequestId,
    /// Where in the history.
    pub invocation: Invocation,
    /// The group of replicas that executes it.
    pub group: GroupId,
    /// The digest of a write's bytes.
    pub write: Option<u64>,
    /// A read whose answer that write changes, if it is sure to.
    pub probe: Option<Bytes>,
    /// In true time.
    pub asked: Nanos,
    /// The host's epoch when it was asked.
    pub epoch: u64,
    /// The deadline on the clock of the host, in true time.
    pub deadline: Nanos,
}

/// One sequence of requests.
#[derive(Debug)]
pub(crate) struct Lane {
    /// The host it is connected to.
    pub host: usize,
    /// Its connection, as the proxy knows it.
    pub stream: u64,
    pub pending: Option<Pending>,
    /// The last slot that it was told of, by whichever host.
    pub seen: u64,
    /// The era of a write that has not succeeded yet.
    open_write: Option<u32>,
    /// A key whose version it has just asked for, and that version once it knows it.
    watched: Option<(Bytes, Option<u64>)>,
    /// The share of reads in what it asks.
    reads: f64,
    /// It asks until all others have done their share, and hardly pauses.
    restless: Option<Restless>,
    random: Random,
    done_since_heal: u32,
    /// Of which host, in which group, its writes have found how many sessions ended since all faults were over.
    ended_since_heal: BTreeMap<(usize, GroupId), u32>,
    /// The last reads of all: these keys and no others.
    script: Option<Vec<Command>>,
}

/// What a client does that hardly pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Restless {
    Reads,
    Writes,
}

/// All clients of a run, and what they saw.
#[derive(Debug)]
pub(crate) struct Workload {
    pub lanes: Vec<Lane>,
    pub recorder: Recorder,
    pub completed: u64,
    healed: bool,
    unique: u64,
    think: Nanos,
    /// Draws what reads may miss, in runs in which some may.
    bounds: Option<Random>,
    /// How long strings are, if not short.
    sizes: Option<Sizes>,
    several: Several,
    requests: u64,
    era: u32,
    /// Writes of this era whose outcome is unknown.
    unknown: u32,
}

impl Lane {
    /// One that has not begun, and will only read.
    fn new(host: usize, stream: u64) -> Lane {
        Lane {
            host,
            stream,
            pending: None,
            seen: 0,
            open_write: None,
            watched: None,
            reads: 1.0,
            restless: None,
            random: Random::new(host as u64),
            done_since_heal: 0,
            ended_since_heal: BTreeMap::new(),
            script: None,
        }
    }

    /// Whether it has done its share since all faults were over.
    fn is_done(&self) -> bool {
        let share = match &self.script {
            Some(script) => script.is_empty(),
            None => self.restless.is_some() || self.done_since_heal >= QUOTA,
        };
        share && self.pending.is_none()
    }
}

impl Workload {
    /// `clients` clients over `hosts` hosts; together they ask about `operations` times in `duration`. And so many
    /// restless readers and writers.
    ///
    /// `values`: the most bytes of a string; 0: all are short. `multi_key`: a command may be about several keys.
    pub fn new(
        (clients, readers, writers): (usize, usize, usize),
        hosts: usize,
        duration: Nanos,
        (values, multi_key): (usize, bool),
        random: &mut Random,
    ) -> Workload {
        // On the side: protocols without such reads see the same run with them.
        let mut aside = random.clone().fork();
        let mut restless = aside.clone().fork();
        let sizes = (values > 0).then(|| Sizes::new(values, aside.clone().fork()));
        let bounds = aside.chance(0.3).then_some(aside);
        let several = match random.range(0..20) {
            0..12 => Several::Never,
            12..18 => Several::Keys,
            _ => Several::Scans,
        };
        let several = if multi_key { several } else { Several::NotOne };
        let operations = if several == Several::Scans { 300 } else { random.range(200..3000) };
        let think = duration * clients as u64 / operations;
        let reads = *random.pick(&[0.1, 0.5, 0.5, 0.9]);
        // Clients everywhere, or in places.
        let everywhere = random.chance(0.5);
        // A client may have several requests under way on one connection.
        let window = *random.pick(&[1, 1, 2, 3]);
        let lanes = (0..clients).map(|client| {
            let mut random = random.fork();
            let somewhere = random.range(0..hosts as u64) as usize;
            let host = if everywhere { client / window % hosts } else { somewhere };
            Lane {
                // Lanes that share a host and this quotient share a connection.
                stream: (client / window) as u64,
                host: if client % window == 0 { host } else { usize::MAX },
                reads: if random.chance(0.2) { 1.0 } else { reads },
                random,
                ..Lane::new(0, 0)
            }
        });
        let mut lanes: Vec<_> = lanes.collect();
        for index in 1..lanes.len() {
            if lanes[index].host == usize::MAX {
                lanes[index].host = lanes[index - 1].host;
            }
        }
        lanes.extend((0..readers).map(|reader| {
            let random = restless.fork();
            let restless = Some(Restless::Reads);
            Lane { restless, random, ..Lane::new(reader % hosts, RESTLESS_STREAMS | reader as u64) }
        }));
        lanes.extend((0..writers).map(|writer| {
            let (restless, random) = (Some(Restless::Writes), restless.fork());
            Lane { restless, random, ..Lane::new(writer % hosts, WRITER_STREAMS | writer as u64) }
        }));
        Workload {
            lanes,
            recorder: Recorder::default(),
            completed: 0,
            healed: false,
            unique: 0,
            think,
            bounds,
            sizes,
            several,
            requests: 0,
            era: 0,
            unknown: 0,
        }
    }

    /// The next request's id; tells its lane too.
    pub fn next_id(&mut self, lane: usize) -> RequestId {
        self.requests += 1;
        RequestId(self.requests << 16 | lane as u64)
    }

    /// The lane whose pending request has this id.
    pub fn lane_of(&self, id: RequestId) -> Option<usize> {
        let lane = (id.0 & 0xffff) as usize;
        self.lanes.get(lane)?.pending.as_ref().filter(|pending| pending.id == id)?;
        Some(lane)
    }

    /// How long a lane waits before its next request.
    pub fn pause(&mut self, lane: usize) -> Nanos {
        let think = if self.healed { self.think.min(50 * MILLISECOND) } else { self.think };
        let Lane { random, script, restless, .. } = &mut self.lanes[lane];
        if restless.is_some() {
            return random.range(0..RESTLESS_PAUSE);
        }
        // Bursts and silences; whoever reads everything has much to do.
        let limit = if script.is_some() || random.chance(0.6) { MILLISECOND } else { think * 5 + 1 };
        random.range(0..limit)
    }

    /// How long a client waits for a reply.
    pub fn patience(&mut self, lane: usize) -> Nanos {
        let random = &mut self.lanes[lane].random;
        *random.pick(&[100, 300, 1000, 3000]) * MILLISECOND
    }

    /// Connects a lane to another host, perhaps.
    pub fn reconnect(&mut self, lane: usize, hosts: usize) {
        let lane = &mut self.lanes[lane];
        if lane.random.chance(0.5) {
            lane.host = lane.random.range(0..hosts as u64) as usize;
        }
    }

    /// What a lane asks next, of what `fits` the groups; `None` when it has done its share.
    pub fn next(&mut self, lane: usize, fits: &dyn Fn(&Command) -> bool) -> Option<Ask> {
        match self.lanes[lane].restless {
            Some(Restless::Reads) => return self.next_restless_read(lane, fits),
            Some(Restless::Writes) => return self.next_restless_write(lane, fits),
            None => {}
        }
        let Workload { lanes, healed, unique, several, era, unknown, bounds, sizes, .. } = self;
        let lane = &mut lanes[lane];
        if lane.open_write.take() == Some(*era) {
            *unknown += 1;
            // Once all faults are over, only a group that has lost a majority fails so often, and its run must end.
            if *unknown >= ERA_UNKNOWNS && !*healed {
                (*era, *unknown) = (*era + 1, 0);
            }
        }
        if let Some(script) = &mut lane.script {
            return script.pop().map(|command| Ask { command, within: None });
        }
        if *healed && lane.done_since_heal >= QUOTA {
            return None;
        }
        *unique += 1;
        if let Some((key, Some(version))) = lane.watched.take() {
            lane.open_write = Some(*era);
            return Some(Ask { command: transaction(&mut lane.random, key, version, *unique), within: None });
        }
        let (mut command, writes) = loop {
            let mut command = draw(&mut lane.random, *unique, lane.reads, *several);
            let writes = !command.is_read_only();
            // Reads sometimes look at what was left behind.
            let look_back = *era > 0 && !writes && lane.random.chance(0.2);
            let of = if look_back { lane.random.range(0..u64::from(*era)) as u32 } else { *era };
            in_era(&mut command, of);
            if fits(&command) {
                break (command, writes);
            }
        };
        if let Some(sizes) = sizes {
            sizes.stretch_all(&mut command);
        }
        lane.open_write = writes.then_some(*era);
        lane.watched = match &command {
            Command::VersionsOf { keys } => Some((keys[0].clone(), None)),
            _ => None,
        };
        let within = bounds.as_mut().filter(|_| !writes).and_then(bound);
        Some(Ask { command, within })
    }

    /// Whether all who are not restless have done their share.
    fn is_share_done(&self) -> bool {
        self.healed && self.lanes.iter().filter(|lane| lane.restless.is_none()).all(Lane::is_done)
    }

    /// What a restless writer asks next: a string as long as may be, of a key that nobody else writes or reads.
    fn next_restless_write(&mut self, lane: usize, fits: &dyn Fn(&Command) -> bool) -> Option<Ask> {
        if self.is_share_done() {
            return None;
        }
        self.unique += 1;
        let len = self.sizes.as_ref().map_or(0, Sizes::most);
        let random = &mut self.lanes[lane].random;
        let command = own_put(lane, self.unique, random.range(len as u64 / 2..len as u64 + 1) as usize);
        fits(&command).then_some(Ask { command, within: None })
    }

    /// What a restless reader asks next.
    fn next_restless_read(&mut self, lane: usize, fits: &dyn Fn(&Command) -> bool) -> Option<Ask> {
        if self.is_share_done() {
            return None;
        }
        let random = &mut self.lanes[lane].random;
        let command = loop {
            let mut command = get(random);
            in_era(&mut command, self.era);
            if fits(&command) {
                break command;
            }
        };
        Some(Ask { command, within: None })
    }

    /// All faults are over.
    pub fn heal(&mut self) {
        self.healed = true;
    }

    /// A request of a lane has succeeded.
    pub fn succeeded(&mut self, lane: usize, reply: &Reply) {
        self.completed += 1;
        self.lanes[lane].open_write = None;
        if let (Some((_, version)), Reply::Versions(versions)) = (&mut self.lanes[lane].watched, reply) {
            *version = versions.first().copied();
        }
        self.lanes[lane].done_since_heal += u32::from(self.healed);
    }

    /// A request asked after healing has failed; true if that is not excused, by a session that has ended. The group's
    /// time may go on twice then, by more than an idle session lasts: when what was appended before is executed, and
    /// when the clocks that were set before are heard.
    pub fn failed_after_healing(&mut self, lane: usize, ended: Option<GroupId>) -> bool {
        let lane = &mut self.lanes[lane];
        let is_excused = ended.is_some_and(|group| {
            let times = lane.ended_since_heal.entry((lane.host, group)).or_default();
            *times += 1;
            *times <= 2
        });
        !is_excused || lane.script.is_some()
    }

    /// Whether every lane has done its share.
    pub fn is_done(&self) -> bool {
        self.healed && self.lanes.iter().all(Lane::is_done)
    }

    /// How many requests are made one after the other when all faults are over: a client's share, then a reader's keys.
    pub fn requests_since_heal(&self) -> usize {
        QUOTA as usize + keys().count() * (self.era as usize + 1)
    }

    /// Bytes that restless writers may have under way together.
    pub fn restless_bytes(&self) -> usize {
        let writers = self.lanes.iter().filter(|lane| matches!(lane.restless, Some(Restless::Writes)));
        writers.count() * self.sizes.as_ref().map_or(0, Sizes::most)
    }

    /// Adds a lane at each of these hosts that reads every key; gives their numbers.
    pub fn add_readers(&mut self, hosts: impl Iterator<Item = usize>) -> std::ops::Range<usize> {
        let first = self.lanes.len();
        for host in hosts {
            let script = Some(every_key(self.era));
            self.lanes.push(Lane { script, ..Lane::new(host, READER_STREAMS | host as u64) });
        }
        first..self.lanes.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quorate_core::Wire;
    use quorate_store::Condition;

    use super::*;

    #[test]
    fn whoever_has_seen_the_version_of_a_key_changes_it_only_if_it_is_the_same() {
        let mut work = Workload::new((1, 0, 0), 1, 1_000_000_000, (0, true), &mut Random::new(3));
        (work.several, work.bounds) = (Several::Keys, None);
        let (mut compared, mut put) = (0, 0);
        for round in 1..4000 {
            match work.next(0, &|_| true).expect("it goes on for ever").command {
                Command::VersionsOf { .. } => {
                    work.succeeded(0, &Reply::Versions(vec![round]));
                    let next = work.next(0, &|_| true).expect("it goes on for ever").command;
                    match &next {
                        Command::Batch { watched, .. } => {
                            assert_eq!(
                                watched.iter().map(|(_, version)| *version).collect::<Vec<_>>(),
                                [round]
                            );
                            compared += 1;
                        }
                        Command::Put { condition, .. } => {
                            assert_eq!(*condition, Condition::IfVersion(round));
                            put += 1;
                        }
                        other => panic!("{other:?}"),
                    }
                    work.succeeded(0, &Reply::Done);
                }
                _ => work.succeeded(0, &Reply::Done),
            }
        }
        assert!(compared > 20 && put > 5, "{compared} {put}");
    }

    #[test]
    fn where_a_command_is_about_one_key_every_command_is_and_keys_are_removed_nevertheless() {
        let mut work = Workload::new((1, 0, 0), 1, 1_000_000_000, (0, false), &mut Random::new(4));
        let (mut seen, mut removed) = (BTreeSet::new(), 0);
        for _ in 0..4000 {
            let command = work.next(0, &|_| true).expect("it goes on for ever").command;
            assert!(command.only_key().is_ok(), "{command:?}");
            if let Command::Batch { commands, .. } = &command {
                removed += usize::from(matches!(commands[0].0, Command::Delete { .. }));
            }
            assert!(command.is_read_only() || seen.insert(command.to_bytes()), "{command:?} twice");
            work.succeeded(0, &Reply::Done);
        }
        assert!(removed > 20, "{removed}");
    }
}
