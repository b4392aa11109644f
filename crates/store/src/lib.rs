//! The key-value state machine: commands, footprints, versions, snapshots.

pub mod command;
pub mod reply;

pub use command::{Command, Condition, Expiry, Key, Single};
pub use reply::{CommandError, Expires, Kind, Reply};
