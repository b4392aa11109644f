//! Swarm testing: each seed draws which kinds of faults are on, how strong they are, and when they fault. A run in
//! which everything happens at once explores less than many runs that each have their own few troubles.
//!
//! Each kind draws from a generator of its own. Leaving one out does not change the others, which is what makes a
//! failing run shrinkable.

// tidy: long because a kind is declared, allowed and drawn in one place.

use std::fmt;
use std::str::FromStr;

use quorate_check::{MILLISECOND, Nanos, SECOND};
use quorate_core::{Capabilities, Diskless, Random, Rate};

use crate::network::Noise;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal),* $(,)?) => {
        /// The kinds of faults.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind {
            $($(#[$doc])* $kind),*
        }

        impl Kind {
            /// Every kind, in the order of the table.
            pub const ALL: &[Kind] = &[$(Kind::$kind),*];

            /// As `--faults` spells it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Kind::$kind => $name),*
                }
            }
        }
    };
}

kinds! {
    /// Messages vanish.
    Loss = "loss",
    /// Messages arrive twice.
    Duplication = "duplication",
    /// Messages overtake each other.
    Reordering = "reordering",
    /// Links break in both directions: groups, single nodes, single pairs.
    Partitions = "partitions",
    /// Links break in one direction.
    OneWayPartitions = "one-way-partitions",
    /// Links become many times slower.
    SlowLinks = "slow-links",
    /// Links carry few bytes per second.
    Bandwidth = "bandwidth",
    /// A host dies and comes back.
    Crashes = "crashes",
    /// All nodes die at once and come back.
    ClusterCrashes = "cluster-crashes",
    /// A process stands still (SIGSTOP).
    Pauses = "pauses",
    /// A process stands still between taking an input and acting on it.
    Stalls = "stalls",
    /// Writes and syncs take many times longer.
    SlowDisks = "slow-disks",
    /// A crash leaves a damaged record behind.
    TornWrites = "torn-writes",
    /// No space: a node with records to write stops, and comes back when there is some; without, a checkpoint that it
    /// writes is given up.
    FullDisks = "full-disks",
    /// Monotonic clocks run at wrong rates, within the declared bound.
    Drift = "drift",
    /// Wall clocks jump.
    WallJumps = "wall-jumps",
    /// A node is told to hand over, and stops a little later.
    Drains = "drains",
    /// An operator changes who is in the group. Where the protocol lets it.
    MemberChanges = "member-changes",
    /// An operator asks another to lead. Where the protocol lets it.
    Transfers = "transfers",
    /// Clocks that break every promise. Only on demand: leases cannot survive it.
    ClocksBeyondBound = "clocks-beyond-bound",
    /// An operator says who serves reads of what. Where the protocol lets it.
    RosterChanges = "roster-changes",
    /// A minority of the nodes goes away for good when all other faults are over: the rest must serve every client.
    LostNodes = "lost-nodes",
    /// The disks of a minority take writes and finish no sync, from the end of all other faults on.
    HungDisks = "hung-disks",
    /// Links from and to a minority are many times slower, from the end of all other faults on.
    SlowNodes = "slow-nodes",
    /// The clocks of a minority know true time to twenty seconds only, from some instant on.
    WideClocks = "wide-clocks",
    /// A node that has sent a piece of a snapshot dies, or is cut off, before the next one.
    SnapshotSources = "snapshot-sources",
    /// A node comes back with an empty disk: it must be refused. At most a minority.
    WipedDisks = "wiped-disks",
    /// A node comes back with its disk as it was at the end of an earlier life: it must be refused. At most a minority.
    RolledBackDisks = "rolled-back-disks",
    /// A node comes back with an empty disk, and asks to replace the lost one. Where the protocol lets it.
    ReplacedDisks = "replaced-disks",
    /// The links from each host have a rate, of 1, 10 or 100 Mbit/s, which changes. Only on demand: most runs have
    /// small messages only.
    Rates = "rates",
    /// A node needs longer timeouts than it has: one after the other starts again with these. Only on demand: what
    /// comes after it takes longer.
    LongerTimeouts = "longer-timeouts",
    /// All nodes but the leader die and come back soon, while it is cut off: what they have promised it binds them.
    /// Only on demand.
    FollowerCrashes = "follower-crashes",
    /// Two members cannot reach each other any more, and reach all others (a *partial partition*), from some instant of
    /// the fault phase to the end of the run: a leader that reaches a quorum must serve. Only on demand.
    LostLinks = "lost-links",
    /// Nodes that keep their data in memory alone stop however many are without memory. Whoever has lost the data says
    /// so and serves nobody, or serves what it has from others. Only on demand.
    LostMemories = "lost-memories",
    /// All links have a rate of 10 to 100 Mbit/s for good, which clients that write values fill (`--writers`). Only on
    /// demand, and without `bandwidth` unless that is named too: what it holds back would fill them for long after it.
    ThinLinks = "thin-links",
    /// An operator starts all nodes again with other timeouts and leases, the leader last, and does not wait until all
    /// have stopped: what was promised before binds those with shorter leases, too. Only on demand.
    OtherSettings = "other-settings",
    /// A node comes back with an empty disk and asks to replace its own, while another member is down: in vain. Then it
    /// comes back with its own disk, as it left it. Only on demand.
    VainReplacements = "vain-replacements",
    /// As `replaced-disks`, also while others replace theirs, as long as all together are a minority. Only on demand.
    SeveralReplacedDisks = "several-replaced-disks",
    /// A node finds its disk nearly full for a while, and refuses what grows the data: what it refuses must not take
    /// effect. Only on demand.
    NearlyFullDisks = "nearly-full-disks",
}

impl Kind {
    /// Whether it can happen to a protocol that can do this.
    pub fn possible(self, can: &Capabilities) -> bool {
        match self {
            Kind::MemberChanges => can.membership,
            Kind::Transfers => can.transfer,
            Kind::RosterChanges => can.rosters,
            Kind::LostNodes | Kind::HungDisks | Kind::SlowNodes | Kind::LostLinks => can.failover,
            Kind::WideClocks | Kind::SnapshotSources | Kind::FollowerCrashes => can.max_nodes > 1,
            Kind::LongerTimeouts | Kind::OtherSettings => can.max_nodes > 1 && can.diskless != Diskless::All,
            Kind::WipedDisks | Kind::RolledBackDisks => can.failover && can.diskless != Diskless::All,
            Kind::ReplacedDisks | Kind::VainReplacements => can.rejoin,
            Kind::SeveralReplacedDisks => can.rejoin && can.max_nodes > 4,
            Kind::LostMemories => can.diskless == Diskless::Data,
            _ => true,
        }
    }

    /// Whether it happens only where it is asked for by name.
    pub fn on_demand(self) -> bool {
        matches!(
            self,
            Kind::ClocksBeyondBound
                | Kind::Rates
                | Kind::LongerTimeouts
                | Kind::FollowerCrashes
                | Kind::LostLinks
                | Kind::LostMemories
                | Kind::ThinLinks
                | Kind::OtherSettings
                | Kind::SeveralReplacedDisks
                | Kind::VainReplacements
                | Kind::NearlyFullDisks
        )
    }
}

/// How often each kind really happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts([u64; Kind::ALL.len()]);

impl Default for Counts {
    fn default() -> Counts {
        Counts([0; Kind::ALL.len()])
    }
}

impl Counts {
    /// Once more.
    pub fn add(&mut self, kind: Kind) {
        self.0[kind as usize] += 1;
    }

    /// How often so far.
    pub fn of(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }

    /// Adds those of another run.
    pub fn merge(&mut self, other: &Counts) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// Which kinds may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// Each seed draws from all kinds (but those on demand).
    Swarm {
        /// These are on in every seed.
        with: KindSet,
        /// These are on in none.
        without: KindSet,
    },
    /// Exactly these are on.
    Only(KindSet),
}

impl Faults {
    /// Each seed draws from all kinds.
    pub const ALL: Faults = Faults::Swarm { with: KindSet(0), without: KindSet(0) };

    /// Those that are asked for by name.
    pub fn named(&self) -> KindSet {
        match *self {
            Faults::Swarm { with, .. } => with,
            Faults::Only(kinds) => kinds,
        }
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindSet(u64);

impl KindSet {
    /// Whether it is in.
    pub fn contains(self, kind: Kind) -> bool {
        self.0 & 1 << kind as u64 != 0
    }

    /// This and one more.
    pub fn with(self, kind: Kind) -> KindSet {
        KindSet(self.0 | 1 << kind as u64)
    }

    /// This but one.
    pub fn without(self, kind: Kind) -> KindSet {
        KindSet(self.0 & !(1 << kind as u64))
    }

    /// Those in it.
    pub fn iter(self) -> impl Iterator<Item = Kind> {
        Kind::ALL.iter().copied().filter(move |kind| self.contains(*kind))
    }
}

impl FromIterator<Kind> for KindSet {
    fn from_iter<I: IntoIterator<Item = Kind>>(kinds: I) -> Self {
        kinds.into_iter().fold(KindSet::default(), KindSet::with)
    }
}

/// A word that names no kind of fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFault(String);

impl fmt::Display for UnknownFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        write!(
            f,
            "`{}` is no kind of fault: write all, none, or a comma list of {}; with all at its head, the listed ones \
             are on in every seed, those with a minus (all,-loss,-crashes) in none, and the others as all says",
            self.0,
            known.join(", ")
        )
    }
}

impl std::error::Error for UnknownFault {}

impl FromStr for Faults {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Faults, UnknownFault> {
        let mut words = text.split(',').map(str::trim).peekable();
        if text == "none" {
            return Ok(Faults::Only(KindSet::default()));
        }
        if words.next_if_eq(&"all").is_none() {
            return words.map(kind).collect::<Result<_, _>>().map(Faults::Only);
        }
        let (mut with, mut without) = (KindSet::default(), KindSet::default());
        for word in words {
            match word.strip_prefix('-') {
                Some(word) => without = without.with(kind(word)?),
                None => with = with.with(kind(word)?),
            }
        }
        Ok(Faults::Swarm { with, without })
    }
}

fn kind(word: &str) -> Result<Kind, UnknownFault> {
    let kind = Kind::ALL.iter().find(|kind| kind.name() == word);
    kind.copied().ok_or_else(|| UnknownFault(word.to_owned()))
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |kinds: KindSet, sign: &str| -> String {
            kinds.iter().map(|kind| format!(",{sign}{}", kind.name())).collect()
        };
        match *self {
            Faults::Swarm { with, without } => write!(f, "all{}{}", names(with, ""), names(without, "-")),
            Faults::Only(kinds) if kinds == KindSet::default() => f.write_str("none"),
            Faults::Only(kinds) => f.write_str(names(kinds, "").trim_start_matches(',')),
        }
    }
}

/// A fault that strikes at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledFault {
    /// When; [`moment`](Self::moment) may put it off.
    pub at: Nanos,
    /// Its kind.
    pub kind: Kind,
    /// Whom it strikes.
    pub target: Target,
    /// Whether it waits for a moment at which it hurts more.
    pub moment: Moment,
    /// How long it lasts.
    pub length: Nanos,
    /// What it does.
    pub action: Action,
}

/// Whom a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// This host.
    Host(usize),
    /// Whichever node leads then; the given host if none does.
    Leader(usize),
}

/// When, from its instant on, a fault strikes a node. Most mistakes show only where a fault meets a transition, and
/// transitions are short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// At once.
    Now,
    /// During its next sync, or just after it, when what waited for it is on its way.
    Sync,
    /// Just after it has changed its ballot (or term, or view).
    NewBallot,
    /// Just after somebody has sent a piece of a snapshot, who is the target then.
    Piece,
}

/// What a fault does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Cuts links; with `holds`, messages are held back instead of lost.
    Cut(Shape, bool),
    /// Multiplies the latency of its links, in both directions.
    SlowLinks(u64),
    /// Limits the links that leave it to so many bytes per second.
    Bandwidth(u64),
    /// Kills it; it comes back after the fault's length.
    Crash,
    /// Kills all nodes. They come back after the fault's length, or up to twice as long.
    CrashAll,
    /// Cuts it off for the fault's length, and kills all other nodes, which come back soon.
    CrashOthers,
    /// Kills it, and takes away what is on its disk, or the latest part of that. It comes back after the fault's
    /// length.
    Damage {
        /// Whether all nodes die with it. They come back within three times the fault's length.
        all: bool,
    },
    /// Stops the process.
    Pause,
    /// Multiplies the latency of its disk.
    SlowDisk(u64),
    /// Fills its disk.
    FullDisk,
    /// Leaves little room on its disk.
    NearlyFullDisk,
    /// Tells it to hand over, stops it after this long, and starts it again after the fault's length.
    Drain(Nanos),
    /// The operator asks for something there, drawn from this seed.
    Manage(u64),
    /// It finds out that another is further away than its timeouts are made for.
    NeedReach,
    /// All others start again soon with other settings, and it does at the end of the fault.
    Reconfigure,
    /// It and another die. It asks with an empty disk to replace its own, and has that again at the end of the fault.
    ReplaceInVain,
}

/// Which links a partition cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Between the hosts in this mask and all others, both ways.
    Split(u64),
    /// Between it and all others, both ways.
    Isolate,
    /// Between it and this host, both ways.
    Pair(usize),
    /// Nothing leaves it.
    Mute,
    /// Nothing reaches it.
    Deaf,
    /// From it to this host only.
    OneWay(usize),
}

/// What becomes of a minority at the end of the fault phase, and stays so: it is lost, or slow in some way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impairment {
    /// Its kind.
    pub kind: Kind,
    /// How long after the end of the fault phase.
    pub after: Nanos,
    /// Whether the leader of that moment is one of them.
    pub leader: bool,
    /// Draws how many they are, and who.
    pub seed: u64,
}

/// Clocks that lose their bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Widening {
    /// When.
    pub at: Nanos,
    /// Draws whose.
    pub seed: u64,
}

/// Two members that lose their links to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostLinks {
    /// When: from the start of the run to the end of the fault phase.
    pub at: Nanos,
    /// Whether the leader of that moment is one of them.
    pub leader: bool,
    /// Draws who they are.
    pub seed: u64,
}

/// Everything a seed has drawn.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The kinds that are on.
    pub kinds: KindSet,
    /// What may happen to messages.
    pub noise: Noise,
    /// The chance that a process stalls before it acts on an input.
    pub stall: f64,
    /// Faults with their instants, in order of time.
    pub schedule: Vec<ScheduledFault>,
    /// What becomes of a minority for good, in order of the kinds.
    pub impairments: Vec<Impairment>,
    /// Whose clocks become wide.
    pub widening: Option<Widening>,
    /// Who loses the links to each other.
    pub lost_links: Option<LostLinks>,
    /// The rate of each link, from the start to the end of the run.
    pub rate: Option<Rate>,
}

/// What faults can fault.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// The first so many hosts are nodes.
    pub nodes: usize,
    /// All processes.
    pub hosts: usize,
    /// What the protocol can do.
    pub can: Capabilities,
    /// When the fault phase ends.
    pub end: Nanos,
}

impl Plan {
    /// Draws for a cluster.
    pub fn draw(faults: Faults, scope: Scope, seed: u64) -> Plan {
        let mut root = Random::new(seed);
        let mut plan = Plan {
            kinds: KindSet::default(),
            noise: Noise::default(),
            stall: 0.0,
            schedule: Vec::new(),
            impairments: Vec::new(),
            widening: None,
            lost_links: None,
            rate: None,
        };
        for &kind in Kind::ALL {
            let mut random = root.fork();
            // Drawn in any case, so that `all` and the list of what it drew give the same run.
            let drawn = random.chance(0.45);
            let on = match faults {
                Faults::Swarm { with, without } => {
                    let fits = kind != Kind::Bandwidth || !with.contains(Kind::ThinLinks);
                    with.contains(kind) || (drawn && fits && !kind.on_demand() && !without.contains(kind))
                }
                Faults::Only(kinds) => kinds.contains(kind),
            };
            if on && kind.possible(&scope.can) {
                plan.kinds = plan.kinds.with(kind);
                let Scope { nodes, hosts, end, .. } = scope;
                plan.add(kind, Draw { random, nodes: nodes as u64, hosts: hosts as u64, end });
            }
        }
        // A stable sort: equal instants keep the order of the kinds.
        plan.schedule.sort_by_key(|fault| fault.at);
        plan
    }

    fn add(&mut self, kind: Kind, mut draw: Draw) {
        let chance = |draw: &mut Draw, choices: &[f64]| *draw.random.pick(choices);
        match kind {
            Kind::Loss => self.noise.loss = chance(&mut draw, &[0.001, 0.01, 0.05, 0.2]),
            Kind::Duplication => self.noise.duplication = chance(&mut draw, &[0.001, 0.01, 0.05, 0.2]),
            Kind::Reordering => self.noise.reordering = chance(&mut draw, &[0.01, 0.1, 0.5]),
            Kind::Stalls => self.stall = chance(&mut draw, &[0.0003, 0.002, 0.01]),
            Kind::TornWrites
            | Kind::Drift
            | Kind::WallJumps
            | Kind::ClocksBeyondBound
            | Kind::LostMemories => {}
            Kind::ThinLinks => self.rate = Some(Rate::mbit(*draw.random.pick(&[10, 14, 20, 30, 100]))),
            Kind::WideClocks => {
                let back = draw.random.range(0..3 * SECOND).min(draw.end);
                self.widening = Some(Widening { at: draw.end - back, seed: draw.random.u64() });
            }
            Kind::LostLinks => {
                self.lost_links = Some(LostLinks {
                    at: draw.random.range(0..draw.end + 1),
                    leader: draw.random.chance(0.5),
                    seed: draw.random.u64(),
                });
            }
            Kind::LostNodes | Kind::HungDisks | Kind::SlowNodes => {
                // At once, or while the others elect a leader and catch up.
                let reach = *draw.random.pick(&[1, 1, 300 * MILLISECOND, SECOND]);
                self.impairments.push(Impairment {
                    kind,
                    after: draw.random.range(0..reach),
                    leader: draw.random.chance(0.5),
                    seed: draw.random.u64(),
                });
            }
            Kind::Partitions
            | Kind::OneWayPartitions
            | Kind::SlowLinks
            | Kind::Bandwidth
            | Kind::Rates
            | Kind::Crashes
            | Kind::ClusterCrashes
            | Kind::Pauses
            | Kind::SlowDisks
            | Kind::FullDisks
            | Kind::NearlyFullDisks
            | Kind::WipedDisks
            | Kind::RolledBackDisks
            | Kind::ReplacedDisks
            | Kind::SeveralReplacedDisks
            | Kind::Drains
            | Kind::MemberChanges
            | Kind::Transfers
            | Kind::RosterChanges
            | Kind::SnapshotSources
            | Kind::LongerTimeouts
            | Kind::FollowerCrashes
            | Kind::OtherSettings
            | Kind::VainReplacements => {
                let shortest = match kind {
                    Kind::ClusterCrashes | Kind::FollowerCrashes | Kind::OtherSettings => SECOND,
                    // Whoever starts again is bound for longer than a lease, and then somebody is elected. Only after
                    // that are there leases of the new length.
                    Kind::LongerTimeouts => 4 * SECOND,
                    _ => SECOND / 5,
                };
                let interval = shortest << draw.random.range(0..4);
                let first = match kind {
                    // A node that is gone for good is missed for the rest of the run, so that less can happen in it.
                    Kind::WipedDisks | Kind::RolledBackDisks => draw.end / 3..draw.end.max(1),
                    Kind::LongerTimeouts => 0..SECOND,
                    _ => 0..interval,
                };
                let mut at = draw.random.range(first);
                while at < draw.end {
                    let fault = draw.fault(at, kind);
                    self.schedule.push(fault);
                    at += draw.random.range(interval / 4..interval * 7 / 4);
                }
            }
        }
    }
}

struct Draw {
    random: Random,
    nodes: u64,
    hosts: u64,
    end: Nanos,
}

impl Draw {
    fn host(&mut self) -> usize {
        // Nodes more often than what only hosts a proxy.
        let below = if self.random.chance(0.8) { self.nodes } else { self.hosts };
        self.random.range(0..below) as usize
    }

    fn target(&mut self, host: usize) -> Target {
        if self.random.chance(0.4) { Target::Leader(host) } else { Target::Host(host) }
    }

    /// From a few milliseconds to a few seconds, every order of magnitude alike.
    fn length(&mut self) -> Nanos {
        let scale = *self.random.pick(&[2, 10, 50, 200, 600, 2000]) * MILLISECOND;
        self.random.range(scale / 2..scale * 3 / 2)
    }

    fn fault(&mut self, at: Nanos, kind: Kind) -> ScheduledFault {
        let length = self.length();
        let moment = *self.random.pick(&[Moment::Now, Moment::Now, Moment::Sync, Moment::NewBallot]);
        let (host, node) = (self.host(), self.random.range(0..self.nodes) as usize);
        if kind == Kind::Partitions && self.random.chance(0.2) {
            // Long enough that another is elected while the old one has clients who do not know.
            let (target, length) = (Target::Leader(node), self.random.range(SECOND..3 * SECOND));
            let action = Action::Cut(Shape::Isolate, self.random.chance(0.3));
            return ScheduledFault { at, kind, target, moment: Moment::Now, length, action };
        }
        if kind == Kind::SnapshotSources {
            // Mostly for longer than anybody waits for the next piece.
            let length = if self.random.chance(0.7) { self.random.range(SECOND..6 * SECOND) } else { length };
            let crashes = self.random.chance(0.7);
            let action = if crashes { Action::Crash } else { Action::Cut(Shape::Isolate, false) };
            return ScheduledFault {
                at,
                kind,
                target: Target::Host(node),
                moment: Moment::Piece,
                length,
                action,
            };
        }
        if matches!(kind, Kind::FollowerCrashes | Kind::OtherSettings) {
            // Long enough that they elect another, if nothing binds them.
            let (target, length) = (Target::Leader(node), self.random.range(SECOND..3 * SECOND));
            let action = match kind {
                Kind::FollowerCrashes => Action::CrashOthers,
                _ => Action::Reconfigure,
            };
            return ScheduledFault { at, kind, target, moment: Moment::Now, length, action };
        }
        // A rate is in force until the next one.
        let length = if kind == Kind::Rates { 10 * SECOND } else { length };
        let action = self.action(kind);
        // Only nodes have disks and can hand over.
        let target = match action {
            Action::SlowDisk(_)
            | Action::FullDisk
            | Action::NearlyFullDisk
            | Action::Drain(_)
            | Action::Damage { .. }
            | Action::ReplaceInVain
            | Action::NeedReach => self.target(node),
            _ => self.target(host),
        };
        ScheduledFault { at, kind, target, moment, length, action }
    }

    fn action(&mut self, kind: Kind) -> Action {
        let holds = self.random.chance(0.3);
        match kind {
            Kind::Partitions => {
                let shape = match self.random.range(0..4) {
                    0 | 1 => Shape::Isolate,
                    2 => Shape::Split(self.random.range(1..1 << self.hosts)),
                    _ => Shape::Pair(self.host()),
                };
                Action::Cut(shape, holds)
            }
            Kind::OneWayPartitions => {
                let shape = match self.random.range(0..3) {
                    0 => Shape::Mute,
                    1 => Shape::Deaf,
                    _ => Shape::OneWay(self.host()),
                };
                Action::Cut(shape, holds)
            }
            Kind::SlowLinks => Action::SlowLinks(*self.random.pick(&[5, 30, 200, 1000])),
            Kind::Bandwidth => Action::Bandwidth(*self.random.pick(&[2_000, 20_000, 200_000])),
            Kind::Rates => Action::Bandwidth(*self.random.pick(&[125_000, 1_250_000, 12_500_000])),
            Kind::Crashes => Action::Crash,
            Kind::ClusterCrashes => Action::CrashAll,
            Kind::Pauses => Action::Pause,
            Kind::SlowDisks => Action::SlowDisk(*self.random.pick(&[10, 100, 1000])),
            Kind::FullDisks => Action::FullDisk,
            Kind::NearlyFullDisks => Action::NearlyFullDisk,
            Kind::WipedDisks | Kind::RolledBackDisks | Kind::ReplacedDisks | Kind::SeveralReplacedDisks => {
                Action::Damage { all: self.random.chance(0.5) }
            }
            Kind::LongerTimeouts => Action::NeedReach,
            Kind::VainReplacements => Action::ReplaceInVain,
            Kind::Drains => Action::Drain(self.random.range(0..SECOND)),
            Kind::MemberChanges | Kind::Transfers | Kind::RosterChanges => Action::Manage(self.random.u64()),
            Kind::Loss
            | Kind::Duplication
            | Kind::Reordering
            | Kind::Stalls
            | Kind::TornWrites
            | Kind::Drift
            | Kind::WallJumps
            | Kind::LostNodes
            | Kind::HungDisks
            | Kind::SlowNodes
            | Kind::WideClocks
            | Kind::SnapshotSources
            | Kind::FollowerCrashes
            | Kind::LostLinks
            | Kind::LostMemories
            | Kind::ThinLinks
            | Kind::OtherSettings
            | Kind::ClocksBeyondBound => unreachable!("{} strikes at no instant", kind.name()),
        }
    }
}

#[cfg(test)]
mod tests;
