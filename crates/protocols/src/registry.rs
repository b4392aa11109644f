//! Every protocol, by name: the one list of them, and of what each needs elsewhere.
//!
//! An entry names the protocol's type and says what the rest of the repository must know of it:
//!
//! - `gate`: what `cargo xtask ci` simulates of it, in proportion to what can go wrong in it;
//! - `facts`: the kinds of facts that its replicas state. Checkers of the simulator say nothing of a protocol that does
//!   not state what they wait for, so a fact that is no longer stated is an error (`crates/sim/tests/facts.rs`).
//!
//! Its settings, with their defaults and meaning, are described where they are read ([`Entry::settings`]); its golden
//! conversations are the `traces` of its folder.

use std::collections::BTreeMap;

use quorate_core::{Capabilities, Group, NodeId, Protocol, Setting, Settings};
use quorate_runtime::{AnyProtocol, protocol};
use thiserror::Error;

/// A campaign of the simulator: seeds from 0 on.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// How many seeds.
    pub runs: u64,
    /// How many nodes; none: as many as the simulator takes by default.
    pub nodes: Option<usize>,
    /// Of the longest strings that clients write; none: all are short.
    pub values: Option<&'static str>,
    /// Which faults; none: all that need not be asked for by name.
    pub faults: Option<&'static str>,
    /// As `key=value`.
    pub settings: &'static [&'static str],
    /// Whether nodes keep their data in memory alone.
    pub diskless: bool,
}

impl Budget {
    /// With the default settings and number of nodes.
    const fn of(runs: u64) -> Budget {
        Budget { runs, nodes: None, values: None, faults: None, settings: &[], diskless: false }
    }

    const fn nodes(self, nodes: usize) -> Budget {
        Budget { nodes: Some(nodes), ..self }
    }

    const fn values(self, values: &'static str) -> Budget {
        Budget { values: Some(values), ..self }
    }

    const fn faults(self, faults: &'static str) -> Budget {
        Budget { faults: Some(faults), ..self }
    }

    const fn with(self, settings: &'static [&'static str]) -> Budget {
        Budget { settings, ..self }
    }

    const fn diskless(self) -> Budget {
        Budget { diskless: true, ..self }
    }

    /// The flags of `quorate sim`.
    pub fn flags(&self) -> Vec<String> {
        let nodes = self.nodes.iter().flat_map(|nodes| ["--nodes".to_owned(), nodes.to_string()]);
        let values = self.values.iter().flat_map(|values| ["--values", values].map(str::to_owned));
        let faults = self.faults.iter().flat_map(|faults| ["--faults", faults].map(str::to_owned));
        let settings = self.settings.iter().flat_map(|setting| ["--set", setting].map(str::to_owned));
        let runs = ["--runs".to_owned(), self.runs.to_string()];
        let diskless = self.diskless.then(|| "--diskless".to_owned());
        runs.into_iter().chain(nodes).chain(values).chain(faults).chain(settings).chain(diskless).collect()
    }
}

/// What is known of a protocol by its name.
#[derive(Clone, Copy)]
pub struct Entry {
    /// See [`Protocol::NAME`].
    pub name: &'static str,
    /// See [`Protocol::PAPER`].
    pub paper: &'static str,
    /// See [`Protocol::CAPABILITIES`].
    pub capabilities: Capabilities,
    /// What the gate simulates.
    pub gate: &'static [Budget],
    /// The kinds of facts that its replicas state.
    pub facts: &'static [&'static str],
    /// Its machines, without their types. They are compiled here, once for all who run them.
    pub protocol: &'static dyn AnyProtocol,
}

impl Entry {
    /// The settings that it reads where none is given, by name.
    pub fn settings(&self) -> BTreeMap<String, Setting> {
        let mut settings = Settings::default();
        self.protocol.configure(&self.small_group(), &mut settings).expect("defaults fit together");
        settings.described().clone()
    }

    /// A group of three members, or fewer if more make no sense.
    pub fn small_group(&self) -> Group {
        let count = self.capabilities.max_nodes.min(3) as u64;
        Group::of((1..=count).filter_map(NodeId::new).collect())
    }
}

/// What the gate simulates of several groups in a process: the flags that say which, and how much. The keys of clients
/// are divided by them.
pub const GROUPS: &[(&[&str], Budget)] = &[
    (&["--groups", "5", "--group-keys", "h,n,s,w"], Budget::of(40).nodes(5)),
    (&["--groups", "3", "--group-keys", "n,s", "--protocol", "raft"], Budget::of(50)),
    (&["--groups", "3", "--group-keys", "n,s", "--protocol", "crossword"], Budget::of(25).nodes(5)),
    (&["--groups", "a-m=crossword,n-r=raft,s-v,w-z=epaxos"], Budget::of(30).nodes(5)),
];

/// The facts of the MultiPaxos family.
const PAXOS: &[&str] = &[
    "Chosen",
    "Stored",
    "Applied",
    "Executed",
    "Installed",
    "Leads",
    "Follows",
    "Promised",
    "Believes",
    "ReadsLocally",
    "ServesLocally",
    "Configured",
];

/// What replicas of a chain may state, whoever answers reads.
const CHAIN: &[&str] = &[
    "Chosen",
    "Applied",
    "Executed",
    "Installed",
    "Leads",
    "Follows",
    "Appended",
    "Begins",
    "Truncated",
    "Commits",
    "Configured",
    "Chain",
    "Promised",
    "Believes",
    "ReadsLocally",
    "ServesLocally",
];

/// Hands the list to another macro, as `module in "folder": Type { gate: […], facts: … }`, with commas behind: so
/// that a test for each protocol needs no list of its own.
#[macro_export]
macro_rules! each_protocol {
    ($callback:ident) => {
        $callback! {
            unreplicated in "unreplicated": $crate::unreplicated::Unreplicated {
                gate: [Budget::of(50)],
                facts: &["Applied", "Executed", "Installed"],
            },
            primary_copy in "primary_copy": $crate::primary_copy::PrimaryCopy {
                gate: [Budget::of(50)],
                facts: &["Applied", "Executed", "Installed"],
            },
            raft in "raft": $crate::raft::Raft {
                gate: [
                    Budget::of(125).with(&["reads=quorum"]),
                    Budget::of(125).with(&["reads=ongaro-lease"]),
                    Budget::of(125).with(&["reads=leaseguard"]),
                    Budget::of(125).with(&["reads=leaseguard", "leaseguard.clock=timers"]),
                    Budget::of(100).with(&["reads=alr"]),
                    Budget::of(50).with(&["reads=alr"]).faults("all,clocks-beyond-bound"),
                    Budget::of(50).with(&["reads=inconsistent", "allow_stale_reads=true"]),
                    Budget::of(60).with(&["reads=quorum"]).faults("all,lost-links"),
                ],
                facts: &[
                    "Chosen", "Applied", "Executed", "Installed", "Leads", "Follows", "Appended", "Begins",
                    "Truncated", "Commits", "Configured", "ReadGate", "PassesGate",
                ],
            },
            craft in "raft/craft": $crate::raft::craft::CRaft {
                gate: [
                    Budget::of(50).with(&["coding=2"]),
                    Budget::of(100).nodes(5),
                    Budget::of(50).nodes(5).with(&["coding=3", "reads=ongaro-lease"]),
                    Budget::of(50).nodes(7),
                    Budget::of(50).nodes(5).values("1MiB").faults("all,rates"),
                    Budget::of(40).nodes(5).faults("all,lost-links"),
                ],
                facts: &[
                    "Chosen", "Applied", "Executed", "Installed", "Leads", "Follows", "Appended", "Begins",
                    "Truncated", "Commits", "Configured", "ReadGate", "PassesGate",
                ],
            },
            zab in "zab": $crate::zab::Zab {
                gate: [
                    Budget::of(100),
                    Budget::of(50).faults("all,clocks-beyond-bound"),
                    Budget::of(60).nodes(5),
                    Budget::of(40).nodes(5).faults("all,clocks-beyond-bound"),
                    Budget::of(75).with(&["reads=local"]),
                    Budget::of(50).with(&["reads=local"]).faults("all,clocks-beyond-bound"),
                    Budget::of(50).nodes(5).with(&["reads=local"]),
                    Budget::of(60).faults("all,lost-links"),
                ],
                facts: &[
                    "Chosen", "Applied", "Executed", "Installed", "Leads", "Follows", "Appended", "Begins",
                    "Truncated", "Commits", "Configured",
                ],
            },
            chain in "chain": $crate::chain::Chain {
                gate: [
                    Budget::of(150),
                    Budget::of(100).nodes(5),
                    Budget::of(50).nodes(7),
                    Budget::of(50).with(&["reads=eager-alr"]),
                    Budget::of(50).with(&["reads=eager-alr"]).faults("all,clocks-beyond-bound"),
                    Budget::of(50).nodes(5).with(&["reads=eager-alr"]),
                    Budget::of(50).nodes(5).with(&["reads=eager-alr"]).faults("all,clocks-beyond-bound"),
                    Budget::of(60).faults("all,lost-links"),
                    Budget::of(40).nodes(5).faults("all,lost-links"),
                    Budget::of(40).with(&["reads=eager-alr"]).faults("all,lost-links"),
                ],
                facts: CHAIN,
            },
            craq in "chain/craq": $crate::chain::craq::Craq {
                gate: [
                    Budget::of(150),
                    Budget::of(100).nodes(5),
                    Budget::of(50).nodes(7),
                    Budget::of(50).with(&["reads=eager-alr"]),
                    Budget::of(50).with(&["reads=eager-alr"]).faults("all,clocks-beyond-bound"),
                    Budget::of(50).nodes(5).with(&["reads=eager-alr"]),
                    Budget::of(50).nodes(5).with(&["reads=eager-alr"]).faults("all,clocks-beyond-bound"),
                    Budget::of(60).faults("all,lost-links"),
                    Budget::of(40).nodes(5).with(&["reads=eager-alr"]).faults("all,lost-links"),
                ],
                facts: CHAIN,
            },
            hermes in "hermes": $crate::hermes::Hermes {
                gate: [
                    Budget::of(100),
                    Budget::of(50).nodes(5).with(&["hermes.page=1", "hermes.tombstones=300ms"]),
                    Budget::of(30).nodes(7),
                    Budget::of(50).with(&["reads=eager-alr"]),
                    Budget::of(50).with(&["reads=eager-alr"]).faults("all,clocks-beyond-bound"),
                    Budget::of(25).nodes(5).with(&["reads=eager-alr"]),
                    Budget::of(25).nodes(5).with(&["reads=eager-alr"]).faults("all,clocks-beyond-bound"),
                    Budget::of(60).with(&["hermes.tombstones=300ms"]).faults("all,lost-links"),
                    Budget::of(40).with(&["reads=eager-alr"]).faults("all,lost-links"),
                    Budget::of(50).with(&["hermes.tombstones=300ms"]).diskless(),
                    Budget::of(50).nodes(5).diskless(),
                    Budget::of(20).nodes(7).diskless(),
                    Budget::of(15).with(&["reads=eager-alr"]).diskless(),
                    Budget::of(15).with(&["reads=eager-alr"]).faults("all,clocks-beyond-bound").diskless(),
                    Budget::of(40).faults("all,lost-links").diskless(),
                    Budget::of(30).faults("all,lost-memories").diskless(),
                ],
                facts: &[
                    "Applied", "Executed", "Installed", "Live", "Valid", "Invalid", "Promised", "Believes",
                    "ReadsLocally", "ServesLocally",
                ],
            },
            multipaxos in "paxos/multipaxos": $crate::paxos::multipaxos::MultiPaxos {
                gate: [
                    Budget::of(250),
                    Budget::of(75).with(&["value.part=8"]),
                    Budget::of(75).with(&["reads=alr"]),
                    Budget::of(50).with(&["reads=alr"]).faults("all,clocks-beyond-bound"),
                    Budget::of(60).faults("all,lost-links"),
                ],
                facts: PAXOS,
            },
            pqr in "paxos/pqr": $crate::paxos::pqr::Pqr {
                gate: [
                    Budget::of(100),
                    Budget::of(100).with(&["leader_lease=true"]),
                    Budget::of(40).faults("all,lost-links"),
                ],
                facts: PAXOS,
            },
            quorum_leases in "paxos/quorum_leases": $crate::paxos::quorum_leases::QuorumLeases {
                gate: [
                    Budget::of(100),
                    Budget::of(100).with(&["passive=true"]),
                    Budget::of(40).nodes(5).faults("all,lost-links"),
                ],
                facts: PAXOS,
            },
            bodega in "paxos/bodega": $crate::paxos::bodega::Bodega {
                gate: [
                    Budget::of(150),
                    Budget::of(75).nodes(5).with(&["roster.auto=true", "coverage.period=300ms"]),
                    Budget::of(20).faults("all,lost-links"),
                ],
                facts: PAXOS,
            },
            rspaxos in "paxos/rspaxos": $crate::paxos::rspaxos::RsPaxos {
                gate: [
                    Budget::of(125).nodes(5),
                    Budget::of(50).nodes(7),
                    Budget::of(50).nodes(5).values("1MiB").faults("all,rates"),
                    Budget::of(40).nodes(5).faults("all,lost-links"),
                ],
                facts: PAXOS,
            },
            crossword in "paxos/crossword": $crate::paxos::crossword::Crossword {
                gate: [
                    Budget::of(75).with(&["crossword.shards=1"]),
                    Budget::of(75).nodes(5).with(&["crossword.shards=1"]),
                    Budget::of(75).nodes(5).with(&["crossword.shards=1", "gossip.gap=0"]),
                    Budget::of(50).nodes(5).with(&["crossword.shards=2", "gossip.gap=500B"]),
                    Budget::of(50).nodes(5).with(&["crossword.shards=8,5/1:5,2:5,3:5,4:3,5:1", "gossip.gap=0"]),
                    Budget::of(50).nodes(5),
                    Budget::of(50).nodes(5).values("1MiB").faults("all,rates"),
                    Budget::of(50).nodes(5).values("1MiB").with(&["crossword.shards=4KiB:2,8KiB:1"]),
                    Budget::of(50).nodes(7).with(&["crossword.shards=1"]),
                    Budget::of(40).nodes(5).faults("all,lost-links"),
                ],
                facts: PAXOS,
            },
            epaxos in "epaxos": $crate::epaxos::Epaxos {
                gate: [
                    Budget::of(100),
                    Budget::of(60).nodes(5),
                    Budget::of(30).nodes(7),
                    Budget::of(50).with(&["value.part=8"]),
                    Budget::of(40).faults("all,lost-links"),
                ],
                facts: &["Applied", "Executed", "Installed", "Decided", "Ordered"],
            },
        }
    };
}

macro_rules! registry {
    ($($module:ident in $folder:literal: $protocol:ty {
        gate: [$($gate:expr),* $(,)?], facts: $facts:expr $(,)?
    }),* $(,)?) => {
        /// Every protocol, in the order of their families.
        pub fn all() -> Vec<Entry> {
            vec![$(Entry {
                name: <$protocol>::NAME,
                paper: <$protocol>::PAPER,
                capabilities: <$protocol>::CAPABILITIES,
                gate: const { &[$($gate),*] },
                facts: $facts,
                protocol: protocol::<$protocol>(),
            }),*]
        }
    };
}

crate::each_protocol!(registry);

/// A name that no protocol has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown protocol `{0}`; known here: {known}", known = names().join(", "))]
pub struct UnknownProtocol(String);

fn names() -> Vec<&'static str> {
    all().into_iter().map(|entry| entry.name).collect()
}

/// The protocol of this name.
pub fn find(name: &str) -> Result<Entry, UnknownProtocol> {
    let entry = all().into_iter().find(|entry| entry.name == name);
    entry.ok_or_else(|| UnknownProtocol(name.to_owned()))
}

/// The protocol of a name that stands in the code. Panics if there is none.
pub fn named(name: &str) -> &'static dyn AnyProtocol {
    find(name).unwrap_or_else(|error| panic!("{error}")).protocol
}
