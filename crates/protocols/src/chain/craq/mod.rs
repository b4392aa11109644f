//! **CRAQ** (Chain Replication with Apportioned Queries): Chain Replication whose members all answer reads.
//!
//! Terrace and Freedman, *Object Storage on CRAQ: High-throughput chain replication for read-mostly workloads* (USENIX
//! ATC 2009). On the machine of [`crate::chain`], whose `mod.rs` tells epochs, writes and what is durable.
//!
//! | rule | code |
//! |---|---|
//! | §2.3 every node answers a read of a clean object at once | `chain/reads.rs` `serve_reads` |
//! | §2.3 of a dirty one it asks the tail for the last committed version, and answers with that | `chain/apportioned.rs` `ask_tail`, `on_version_query`, `serve_placed` |
//! | a reader is in the present epoch: a majority has promised it to promise no other ballot | `blocks/epochs` |
//!
//! # Decisions
//!
//! - *An object's versions are the log.* The paper keeps several versions of a dirty object, to answer with the one
//!   that the tail names. Here a member waits until it has executed what the tail names: acknowledgements of it are on
//!   their way up the chain. It may answer with a later version by then, which is committed too.
//! - *One question for all dirty reads of a batch*: the tail names a position of the log, which is good for every key.
//! - *Readers hold leases.* The paper leaves it to ZooKeeper's sessions to tell a member that it is in the chain no
//!   more; one that is slow to notice answers with what was true before.
//! - *Strong consistency only*: the paper's eventual consistency is the read mode `local` of any protocol.

use quorate_blocks::clients::{ProxyConfig, SessionClient};
use quorate_core::{Capabilities, Group, Protocol, Settings, SettingsError};

use super::{Chain, Config, Message, Readers, Replica, configure};

/// See the module's comment.
#[derive(Debug)]
pub struct Craq;

impl Protocol for Craq {
    const NAME: &'static str = "craq";
    const PAPER: &'static str = "Terrace, Freedman, Object Storage on CRAQ (2009)";
    const CAPABILITIES: Capabilities = Capabilities {
        reads: "at every member of the chain, under leases (bounded drift); or almost-local",
        ..Chain::CAPABILITIES
    };
    type Message = Message;
    type Replica = Replica;
    type Proxy = SessionClient<Message>;

    fn configure(group: &Group, settings: &mut Settings) -> Result<(Config, ProxyConfig), SettingsError> {
        configure(Readers::All, group, settings)
    }
}
