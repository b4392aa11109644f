//! **MultiPaxos** with leader leases: a stable leader, pipelined batches, local linearizable reads at the leader.
//!
//! Lamport, *Paxos Made Simple* (2001); Chandra, Griesemer, Redstone, *Paxos Made Live* (2007) for master leases.
//! The machine is [`crate::paxos::engine`], where its rules, its read rule and what must be durable are told: other
//! protocols are that machine with a policy of their own, and this one is it without any.

use quorate_blocks::clients::{ProxyConfig, SessionClient};
use quorate_blocks::settings;
use quorate_core::{Capabilities, Group, Never, Protocol, Settings, SettingsError};

use crate::paxos::engine::{self, Config, MultiPaxosPolicy, Reads};

/// What its machines say to each other.
pub type Message = engine::Message<Never, ()>;

/// See the module's comment.
#[derive(Debug)]
pub struct MultiPaxos;

impl Protocol for MultiPaxos {
    const NAME: &'static str = "multipaxos";
    const PAPER: &'static str = "Lamport, Paxos Made Simple (2001); leader leases";
    const CAPABILITIES: Capabilities = Capabilities {
        membership: true,
        transfer: true,
        reads: "at the leader, under a lease (bounded drift); at every replica: almost-local",
        ..Capabilities::LOGGED
    };
    type Message = Message;
    type Replica = engine::Replica<MultiPaxosPolicy>;
    type Proxy = SessionClient<Message>;

    fn configure(group: &Group, settings: &mut Settings) -> Result<(Config<()>, ProxyConfig), SettingsError> {
        let alr = Reads::Alr { batch: settings::alr_batch(settings)? };
        let reads = settings.choice(
            "reads",
            "lease",
            &[("lease", Reads::Lease), ("log", Reads::Log), ("alr", alr)],
            "`lease`: at the leader under its lease. `log`: every read takes a slot. `alr`: at the nearest replica, in \
             batches that wait for a slot proposed after them. The last two grant no lease",
        )?;
        let config = Config::new(group, settings, reads, ())?;
        let (bounded, alr) = (reads == Reads::Lease, reads == alr);
        let proxy = settings::proxy(group, settings)?;
        Ok((config, ProxyConfig { bounded, nearest: alr, timely: alr, ..proxy }))
    }
}
