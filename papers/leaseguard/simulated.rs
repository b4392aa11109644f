//! What the simulated figures share: the configurations, the load, and a run around a leader's crash.

use bytes::Bytes;
use quorate_bench::{Arrivals, Choice, Keys, Schedule};
use quorate_check::linearizability;
use quorate_core::{Random, Rate};
use quorate_protocols::registry::named;
use quorate_sim::experiment::{
    Act, Ask, Capacity, Delay, Load as Script, Measured, Operation, Setup, measure,
};
use quorate_store::{Command, Condition, Expiry};

use crate::instrument::series::Op;
use crate::instrument::{Result, closed_loops};

/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;
/// What a client waits for an operation that its server holds; the paper's are refused at once.
pub const PATIENCE: u64 = 50 * MS;
/// What a client waits for a write that its server has accepted and may not commit yet.
pub const ACCEPTED: u64 = 3_000 * MS;
/// When the time axis of a figure begins: there is a leader, and the clients have their sessions.
pub const ORIGIN: u64 = 2_000 * MS;
/// Of every node, in the simulated figures (§7.1: clock error below 50 µs).
pub const CLOCK_ERROR: u64 = 50_000;

/// A way to be consistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mechanism {
    pub name: &'static str,
    pub settings: &'static [&'static str],
    /// Accepts writes that it may not commit yet.
    pub defers: bool,
    /// Histories are linearizable whatever happens.
    pub linearizable: bool,
}

pub const INCONSISTENT: Mechanism = Mechanism {
    name: "inconsistent",
    settings: &["reads=inconsistent", "allow_stale_reads=true"],
    defers: false,
    linearizable: false,
};
pub const QUORUM: Mechanism = Mechanism {
    name: "quorum",
    settings: &["reads=quorum", "quorum.rounds=each"],
    defers: false,
    linearizable: true,
};
/// Its lease is as long as the election timeout, so that is what Δ is elsewhere.
pub const ONGARO: Mechanism = Mechanism {
    name: "Ongaro lease",
    settings: &["reads=ongaro-lease", "election.timeout=1s"],
    defers: false,
    linearizable: true,
};
pub const LOG_BASED: Mechanism = Mechanism {
    name: "log-based lease",
    settings: &["reads=leaseguard", "leaseguard.deferred_commit=false", "leaseguard.inherited_reads=false"],
    defers: false,
    linearizable: true,
};
pub const DEFER: Mechanism = Mechanism {
    name: "defer commit",
    settings: &["reads=leaseguard", "leaseguard.inherited_reads=false"],
    defers: true,
    linearizable: true,
};
pub const LEASEGUARD: Mechanism =
    Mechanism { name: "LeaseGuard", settings: &["reads=leaseguard"], defers: true, linearizable: true };

/// The six of Figures 7 and 9.
pub const SIX: [Mechanism; 6] = [INCONSISTENT, QUORUM, ONGARO, LOG_BASED, DEFER, LEASEGUARD];

/// The paper's network within a subnet: one way, log-normal, mean 191 µs; "391 µs variance" read as 391 µs².
pub const SUBNET: Delay = Delay::LogNormal { mean: 191e3, deviation: 19.8e3 };

/// Three nodes whose processors and interfaces cost something, so that what they do competes.
pub fn setup(mechanism: Mechanism, common: &[&str], between_nodes: Delay, seed: u64, end: u64) -> Setup {
    // Of two values the later is taken.
    let settings = common.iter().chain(mechanism.settings).map(ToString::to_string).collect();
    let capacity = Capacity {
        per_input: 5_000,
        per_message: 5_000,
        interface: Some(Rate::mbit(1000)),
        ..Capacity::UNLIMITED
    };
    let (proxies, clock_error) = (2, Some(CLOCK_ERROR));
    Setup { proxies, between_nodes, capacity, clock_error, end, seed, ..closed_loops::setup(3, settings) }
}

/// A stream of operations on keys of one popularity.
pub struct Load {
    keys: Keys,
    random: Random,
    values: u64,
    writes: f64,
    value: usize,
}

impl Load {
    /// Over 1000 keys; an exponent of 0 is uniform.
    pub fn new(zipf: f64, writes: f64, value: usize, seed: u64) -> Load {
        // By age, because those of `Choice::Zipf` share keys at random; nothing is inserted, so age is rank.
        let choice = if zipf > 0.0 { Choice::Latest(zipf) } else { Choice::Uniform };
        Load { keys: Keys::new(choice, 1000), random: Random::new(seed), values: 0, writes, value }
    }

    /// Operations between two instants, so many a second.
    pub fn between(&mut self, from: u64, to: u64, arrivals: Arrivals, rate: u64, accepted: u64) -> Vec<Ask> {
        let mut schedule = Schedule::new(arrivals, rate, self.random.fork());
        let times = std::iter::from_fn(|| Some(from + schedule.pop())).take_while(|at| *at < to);
        let times: Vec<_> = times.collect();
        let mut asks = Vec::with_capacity(times.len());
        for at in times {
            let writes = self.random.chance(self.writes);
            asks.push(self.ask(at, writes, accepted));
        }
        asks
    }

    /// One operation.
    pub fn ask(&mut self, at: u64, writes: bool, accepted: u64) -> Ask {
        let key = Bytes::from(format!("k{}", self.keys.draw(&mut self.random)));
        let proxy = self.random.range(0..2) as usize;
        if !writes {
            return Ask { at, proxy, command: Command::Get { key }, patience: PATIENCE };
        }
        self.values += 1;
        let value = Bytes::from(format!("{:0width$}", self.values, width = self.value));
        let command =
            Command::Put { key, value, condition: Condition::Always, expiry: Expiry::Never, old: false };
        Ask { at, proxy, command, patience: accepted }
    }

    /// Writes before the time axis begins: the proxies find the leader and open their sessions.
    pub fn greeting(&mut self) -> Vec<Ask> {
        (0..200).map(|index| self.ask(ORIGIN - 1000 * MS + index * 3 * MS, true, ACCEPTED)).collect()
    }
}

/// Runs an experiment, and decides about its history.
pub fn run(setup: &Setup, asks: Vec<Ask>, acts: &[(u64, Act)]) -> Result<Measured> {
    let load = Script { asks, acts: acts.to_vec(), clients: None };
    measure(named("raft"), setup, load).map_err(|error| error.to_string())
}

/// Whether what the clients saw is linearizable.
pub fn is_linearizable(measured: &Measured) -> bool {
    linearizability::check(&measured.history).is_ok()
}

/// A time of the run, in nanoseconds, on the figure's axis, in ms.
pub fn millis(nanos: u64) -> f64 {
    (nanos as f64 - ORIGIN as f64) / MS as f64
}

/// Its operations on the figure's time axis.
pub fn ops(measured: &Measured) -> Vec<Op> {
    let ops = measured.operations.iter().filter(|op| op.asked >= ORIGIN);
    ops.map(op).collect()
}

/// An operation on the figure's time axis.
pub fn op(op: &Operation) -> Op {
    let end = op.ended.filter(|_| op.succeeded).map(millis);
    Op { start: millis(op.asked), end, writes: op.writes }
}

/// Of a client that waits as long as it takes: where nothing fails, latency is what is asked for.
pub fn patient(ask: Ask) -> Ask {
    Ask { patience: ACCEPTED, ..ask }
}
