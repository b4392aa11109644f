//! The clients: closed loops on few hot keys, each attached to a host's proxy.
//!
//! Every write has bytes of its own, so that checkers can tell writes apart by their digest alone. Some keys have a
//! time to live. Some clients change a key only if nobody else has since they looked (WATCH, and conditions on
//! versions); these are keys of their own, because versions make a history harder to check.
//!
//! Some clients only read. Whoever has asked a leader that was cut off to write waits for it; a reader goes on, and
//! would see what is stale. Strings may be large (`sizes.rs`).
//!
//! A write whose outcome is unknown stays open for ever, and to decide a history takes time that doubles with each
//! of them. So after a few the clients move on to fresh keys, a new *era*; what they left is still read now and
//! then, and at the end.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use quorate_check::history::{Invocation, Recorder};
use quorate_check::{MILLISECOND, Nanos};
use quorate_core::{GroupId, Random, RequestId, Staleness};
use quorate_store::{Command, Condition, Expiry, Reply, Single};

use crate::eras::in_era;
use crate::sizes::Sizes;

/// Operations that each client must complete after everything has healed.
const QUOTA: u32 = 3;

/// Writes of unknown outcome after which clients move on to fresh keys.
const ERA_UNKNOWNS: u32 = 6;

const STRINGS: [&str; 3] = ["s0", "s1", "s2"];
const COUNTERS: [&str; 2] = ["n0", "n1"];
const LISTS: [&str; 1] = ["a0"];
const HASHES: [&str; 2] = ["h0", "h1"];
const EXPIRING: [&str; 2] = ["x0", "x1"];
const WATCHED: [&str; 2] = ["w0", "w1"];
const FIELDS: [&str; 3] = ["f0", "f1", "f2"];

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
    random: Random,
    done_since_heal: u32,
    /// The sessions, a host's in a group, that its writes have found ended since all faults were over.
    ended_since_heal: BTreeSet<(usize, GroupId)>,
    /// The last reads of all: these keys and no others.
    script: Option<Vec<Command>>,
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

/// Whether some commands of a run touch several keys. The history of keys that are tied together is harder to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Several {
    /// None does, not even to be unlike all others ([`delete`]).
    NotOne,
    /// None does.
    Never,
    /// Reads and writes of a few keys.
    Keys,
    /// Scans too, which tie all keys: there are few operations, on strings only.
    Scans,
}

impl Workload {
    /// `clients` clients over `hosts` hosts; together they ask about `operations` times in `duration`.
    ///
    /// `values`: the most bytes of a string; 0: all are short. `multi_key`: a command may be about several keys.
    pub fn new(
        clients: usize,
        hosts: usize,
        duration: Nanos,
        (values, multi_key): (usize, bool),
        random: &mut Random,
    ) -> Workload {
        // On the side: protocols without such reads see the same run with them.
        let mut aside = random.clone().fork();
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
                pending: None,
                seen: 0,
                open_write: None,
                watched: None,
                reads: if random.chance(0.2) { 1.0 } else { reads },
                random,
                done_since_heal: 0,
                ended_since_heal: BTreeSet::new(),
                script: None,
            }
        });
        let mut lanes: Vec<_> = lanes.collect();
        for index in 1..lanes.len() {
            if lanes[index].host == usize::MAX {
                lanes[index].host = lanes[index - 1].host;
            }
        }
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
        let Lane { random, script, .. } = &mut self.lanes[lane];
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

    /// A request asked after healing has failed; true if that is not excused, by a session that ended before.
    pub fn failed_after_healing(&mut self, lane: usize, ended: Option<GroupId>) -> bool {
        let lane = &mut self.lanes[lane];
        let first = ended.is_some_and(|group| lane.ended_since_heal.insert((lane.host, group)));
        !first || lane.script.is_some()
    }

    /// Whether every lane has done its share.
    pub fn is_done(&self) -> bool {
        self.healed
            && self.lanes.iter().all(|lane| {
                lane.pending.is_none()
                    && match &lane.script {
                        Some(script) => script.is_empty(),
                        None => lane.done_since_heal >= QUOTA,
                    }
            })
    }

    /// How many requests are made one after the other when all faults are over: a client's share, then a reader's keys.
    pub fn requests_since_heal(&self) -> usize {
        QUOTA as usize + keys().count() * (self.era as usize + 1)
    }

    /// Adds a lane at each of these hosts that reads every key; gives their numbers.
    pub fn add_readers(&mut self, hosts: impl Iterator<Item = usize>) -> std::ops::Range<usize> {
        let first = self.lanes.len();
        for host in hosts {
            self.lanes.push(Lane {
                host,
                stream: 1 << 32 | host as u64,
                pending: None,
                seen: 0,
                open_write: None,
                watched: None,
                reads: 1.0,
                random: Random::new(host as u64),
                done_since_heal: 0,
                ended_since_heal: BTreeSet::new(),
                script: Some(every_key(self.era)),
            });
        }
        first..self.lanes.len()
    }
}

/// A read of each key, by its name in the first era.
fn keys() -> impl Iterator<Item = Command> {
    let strings = STRINGS.iter().chain(&COUNTERS).chain(&LISTS).chain(&EXPIRING).chain(&WATCHED);
    let gets = strings.map(|key| Command::Get { key: text(key) });
    gets.chain(HASHES.iter().map(|key| Command::HashAll { key: text(key) }))
}

fn every_key(last_era: u32) -> Vec<Command> {
    let moved = |era| {
        keys().map(move |mut command| {
            in_era(&mut command, era);
            command
        })
    };
    (0..=last_era).flat_map(moved).collect()
}

fn text(key: &'static str) -> Bytes {
    Bytes::from_static(key.as_bytes())
}

fn draw(random: &mut Random, unique: u64, reads: f64, several: Several) -> Command {
    if several == Several::Scans {
        return draw_tied(random, unique, reads);
    }
    let one_key = several == Several::NotOne;
    let several = several == Several::Keys;
    let pick = |random: &mut Random, keys: &[&'static str]| text(random.pick::<&str>(keys));
    match random.range(0..40) {
        0 | 1 => return expiring(random, unique, (several, one_key)),
        2 => return watching(random, unique),
        _ => {}
    }
    let value = Bytes::from(format!("v{unique}"));
    if random.chance(reads) {
        match random.range(0..20) {
            0..10 => Command::Get { key: pick(random, &STRINGS) },
            10..13 => Command::Get { key: pick(random, &COUNTERS) },
            13..15 => Command::Get { key: pick(random, &LISTS) },
            15 => Command::HashAll { key: pick(random, &HASHES) },
            16 => Command::HashGet { key: pick(random, &HASHES), fields: FIELDS.map(text).into() },
            17 if several => Command::GetMany { keys: vec![pick(random, &STRINGS), pick(random, &COUNTERS)] },
            18 => Command::Length { key: pick(random, &LISTS) },
            _ => Command::Exists { keys: vec![pick(random, &STRINGS)] },
        }
    } else {
        match random.range(0..24) {
            0..7 => put(pick(random, &STRINGS), value, Condition::Always, false),
            7 => put(pick(random, &STRINGS), value, Condition::IfAbsent, false),
            8 => put(pick(random, &STRINGS), value, Condition::IfPresent, true),
            9..11 => delete(pick(random, &STRINGS), unique, one_key),
            11..15 => Command::Increment { key: pick(random, &COUNTERS), by: unique as i64 },
            15..18 => Command::Append { key: pick(random, &LISTS), value: format!("{unique},").into() },
            18 => {
                let fields = vec![(pick(random, &FIELDS), value)];
                Command::HashPut { key: pick(random, &HASHES), fields, if_absent: random.chance(0.3) }
            }
            19 => {
                let field = Bytes::from_static(b"count");
                Command::HashIncrement { key: pick(random, &HASHES), field, by: unique as i64 }
            }
            20 => {
                let fields = vec![pick(random, &FIELDS), format!("!{unique}").into()];
                Command::HashDelete { key: pick(random, &HASHES), fields }
            }
            21 if several => {
                let pairs = vec![(text(STRINGS[0]), value.clone()), (text(STRINGS[1]), value)];
                Command::PutMany { pairs, if_none: random.chance(0.2) }
            }
            22 if several => {
                let read = Single(Command::Get { key: text(STRINGS[1]) });
                let write = Single(put(text(STRINGS[2]), value, Condition::Always, true));
                Command::Batch { watched: Vec::new(), commands: vec![read, write] }
            }
            21..23 => put(pick(random, &STRINGS), value, Condition::Always, true),
            // Mostly of the wrong kind: refused, everywhere alike.
            _ => {
                let fields = vec![(pick(random, &FIELDS), value)];
                Command::HashPut { key: pick(random, &STRINGS), fields, if_absent: false }
            }
        }
    }
}

/// What a read may miss, if it may.
fn bound(random: &mut Random) -> Option<Staleness> {
    match random.range(0..4) {
        0 => Some(Staleness::Versions(random.range(0..3))),
        1 => Some(Staleness::Age(Duration::from_millis(*random.pick(&[3, 10, 30, 100, 300])))),
        _ => None,
    }
}

/// What goes together with scans.
fn draw_tied(random: &mut Random, unique: u64, reads: f64) -> Command {
    let key = text(random.pick::<&str>(&STRINGS));
    let value = Bytes::from(format!("v{unique}"));
    let always = |key, value| put(key, value, Condition::Always, false);
    if random.chance(reads) {
        return match random.range(0..4) {
            0 => Command::Scan { from: 0, limit: 100, pattern: Some("s?".into()), kind: None },
            1 => Command::GetMany { keys: STRINGS.map(text).into() },
            _ => Command::Get { key },
        };
    }
    match random.range(0..6) {
        0 => delete(key, unique, false),
        1 => {
            let pairs = vec![(text(STRINGS[0]), value.clone()), (text(STRINGS[1]), value)];
            Command::PutMany { pairs, if_none: false }
        }
        2 => {
            let read = Single(Command::Get { key: text(STRINGS[1]) });
            let write = Single(always(text(STRINGS[2]), value));
            Command::Batch { watched: Vec::new(), commands: vec![read, write] }
        }
        _ => always(key, value),
    }
}

fn put(key: Bytes, value: Bytes, condition: Condition, old: bool) -> Command {
    Command::Put { key, value, condition, expiry: Expiry::Never, old }
}

/// Unique bytes: the number goes with it as digits, which are keys that never exist. Two for each key, so that a
/// checker which follows every key has few to follow, and no key is tied to another. `one_key`: a field of it instead.
fn delete(key: Bytes, unique: u64, one_key: bool) -> Command {
    if one_key {
        let field = Command::HashDelete { key: key.clone(), fields: vec![format!("!{unique}").into()] };
        let commands = vec![Single(Command::Delete { keys: vec![key] }), Single(field)];
        return Command::Batch { watched: Vec::new(), commands };
    }
    let [zero, one] = [b"!0", b"!1"].map(|digit| Bytes::from([digit, &key[..]].concat()));
    let digits = (0..u64::BITS - unique.leading_zeros()).rev().map(|bit| unique >> bit & 1 == 1);
    let digits = digits.map(|digit| if digit { one.clone() } else { zero.clone() });
    Command::Delete { keys: std::iter::once(key.clone()).chain(digits).collect() }
}

/// Keys with a time to live.
fn expiring(random: &mut Random, unique: u64, (several, one_key): (bool, bool)) -> Command {
    let key = text(random.pick::<&str>(&EXPIRING));
    let value = Bytes::from(format!("v{unique}"));
    match random.range(0..12) {
        0..4 => {
            let expiry = Expiry::In(random.range(1..2000) as i64);
            let condition = *random.pick(&[Condition::Always, Condition::Always, Condition::IfAbsent]);
            Command::Put { key, value, condition, expiry, old: false }
        }
        4 => Command::ExpiryOf { key },
        5 if !one_key => delete(key, unique, false),
        6 => put(key, value, Condition::Always, false),
        7 if several => {
            let read = Single(Command::Get { key });
            let write = Single(put(text(STRINGS[0]), value, Condition::Always, false));
            Command::Batch { watched: Vec::new(), commands: vec![read, write] }
        }
        _ => Command::Get { key },
    }
}

/// Keys that clients watch: mostly a look at the version, which a [`transaction`] follows.
fn watching(random: &mut Random, unique: u64) -> Command {
    let key = text(random.pick::<&str>(&WATCHED));
    match random.range(0..8) {
        0 => put(key, format!("v{unique}").into(), Condition::Always, false),
        1 => Command::Get { key },
        _ => Command::VersionsOf { keys: vec![key] },
    }
}

/// Changes a key if it still has this version.
fn transaction(random: &mut Random, key: Bytes, version: u64, unique: u64) -> Command {
    let value = Bytes::from(format!("v{unique}"));
    if random.chance(0.3) {
        return put(key, value, Condition::IfVersion(version), false);
    }
    let read = random.chance(0.5).then(|| Single(Command::Get { key: key.clone() }));
    let write = Single(put(key.clone(), value, Condition::Always, false));
    Command::Batch { watched: vec![(key, version)], commands: read.into_iter().chain([write]).collect() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quorate_core::{Access, Wire};

    use super::*;

    #[test]
    fn every_write_has_bytes_of_its_own() {
        let mut random = Random::new(1);
        let mut seen = BTreeSet::new();
        let (mut writes, mut reads) = (0, 0);
        for unique in 1..5000 {
            let several = *random.pick(&[Several::Keys, Several::Scans]);
            let command = draw(&mut random, unique, 0.5, several);
            match command.access() {
                Access::Read | Access::Within(_) | Access::Manage => reads += 1,
                Access::Write => {
                    writes += 1;
                    assert!(seen.insert(command.to_bytes()), "{command:?} twice");
                }
            }
        }
        assert!(writes > 2000 && reads > 2000);
    }

    #[test]
    fn whoever_has_seen_the_version_of_a_key_changes_it_only_if_it_is_the_same() {
        let mut work = Workload::new(1, 1, 1_000_000_000, (0, true), &mut Random::new(3));
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
        let mut work = Workload::new(1, 1, 1_000_000_000, (0, false), &mut Random::new(4));
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

    #[test]
    fn some_keys_have_a_time_to_live() {
        let mut random = Random::new(2);
        let timed = (1..2000).filter(|unique| {
            let command = draw(&mut random, *unique, 0.5, Several::Keys);
            matches!(command, Command::Put { expiry: Expiry::In(_), .. })
        });
        assert!(timed.count() > 20);
    }
}
