//! The conversation between clients and the replica that serves them, for every protocol that has a leader.
//!
//! A proxy opens a *session* through the log, numbers its writes in it, and repeats them until they are answered.
//! The session table is replicated state, so a write takes effect exactly once, in the order of its numbers,
//! whoever leads. Reads need no session: they may be repeated freely.
//!
//! | file | what |
//! |---|---|
//! | [`message`] | what proxy and leader say |
//! | [`proxy`] | the client side: a whole machine, [`SessionClient`] |
//! | [`streams`] | program order of each client connection, inside the proxy |
//! | [`batches`] | almost-local reads: what they wait for at a replica that does not lead, and who at the leader |
//! | [`gate`] | what becomes of a read, and where it waits |
//! | [`local`] | reads of a replica's own state, sequentially consistent |
//! | [`handover`] | how a leader lets another lead |
//! | [`intake`] | the leader's side: admits, batches, answers |
//! | [`reads`] | where reads are ordered like writes: each once |
//! | [`served`] | how reads were served, counted |

pub mod batches;
pub mod gate;
pub mod handover;
pub mod intake;
pub mod local;
pub mod message;
pub mod proxy;
pub mod reads;
pub mod served;
pub mod streams;
#[cfg(test)]
mod tests;

pub use batches::{Place, ReadBatches, Syncs};
pub use gate::{AtSlot, Gate, WaitingReads};
pub use handover::HandOver;
pub use intake::{Intake, PendingRead};
pub use local::LocalReads;
pub use message::{Ask, Embeds, Message, ReadObservation};
pub use proxy::{ProxyConfig, ProxyTimer, Rinse, SessionClient};
pub use reads::ReadQueue;
pub use served::Served;
