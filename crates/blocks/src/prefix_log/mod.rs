//! The **prefix log**: entries without holes, each with the term of the leader that made it; two logs that have the
//! same index and term are equal up to there (Ongaro and Ousterhout, *Raft*, §5.3). A follower's log is the leader's
//! up to some index, and what differs behind it goes.
//!
//! [`PrefixLog`] is one replica's log, [`Progress`] what a leader knows of another's, [`Replay`] a log that is read
//! back from a disk.

mod log;
mod progress;
mod replay;

pub use log::{Append, Entry, PrefixLog};
pub use progress::{Mode, Progress, RETRANSMIT, due};
pub use replay::Replay;
