//! What protocols that order only what interferes (the EPaxos family) are composed of: who interferes with whom, what
//! is known of each instance ([`quorate_blocks::instance`]), and the order of execution.
//!
//! | file | what |
//! |---|---|
//! | [`interference`] | what a batch touches, and whether the order of two batches matters |
//! | [`conflicts`] | the latest instances that touched each key |
//! | [`instance_state`] | what a replica knows of one instance: the protocol's variables |
//! | [`pending_quorums`] | what a replica is at work on, and whom it waits for |
//! | [`watch`] | when to take over what does not get on |
//! | [`learner`] | all that a replica does about instances apart from deciding them |
//! | [`order`] | execution: closed components of the dependency graph, one after the other |
//!
//! Dependencies are a [`Frontier`](quorate_blocks::instance::Frontier), not a list: an instance depends on *all*
//! instances of an owner up to the last that interferes with it. More dependencies than needed cost waiting and never
//! safety, and a frontier is small, forgets nothing when a no-op takes the place of what it names, and has its union
//! and inclusion word by word.

pub mod conflicts;
pub mod instance_state;
pub mod interference;
pub mod learner;
pub mod order;
pub mod pending_quorums;
pub mod watch;

pub use conflicts::Conflicts;
pub use instance_state::{InstanceState, Phase, State, Vote};
pub use interference::Interference;
pub use learner::{Learner, LearnerConfig};
pub use order::Graph;
pub use pending_quorums::{PendingQuorum, PendingQuorums, RETRANSMIT};
pub use watch::{FULL_LINK, LARGE_BATCH, SLOWEST_LINK, Watch};
