//! The **prefix log**: entries without holes, each with the term of the leader that made it; two logs that have the
//! same index and term are equal up to there (Ongaro and Ousterhout, *Raft*, §5.3). A follower's log is the leader's
//! up to some index, and what differs behind it goes.
//!
//! | | what |
//! |---|---|
//! | [`PrefixLog`] | one replica's entries |
//! | [`ReplicatedLog`] | the same with what is committed of them, and the state that they have led to |
//! | [`Replay`] | a log that is read back from a disk |
//! | [`Progress`] | what a leader knows of another's log |
//! | [`Replication`] | a leader's side: all of the others, and its own disk |

mod log;
mod progress;
mod replay;
mod replicated;
mod replication;

pub use log::{Append, Entry, PrefixLog};
pub use progress::{Mode, Progress, RETRANSMIT, due, retransmit};
pub use replay::Replay;
pub use replicated::{EmbedsLog, Fetched, LogRecord, ReplicatedLog};
pub use replication::Replication;
