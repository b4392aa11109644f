//! The key-value state machine: commands, footprints, versions, snapshots.
//!
//! | module | what |
//! |---|---|
//! | [`command`] | what clients can ask |
//! | [`reply`] | what they are told |
//! | [`footprint`] | which keys a command reads and writes |
//! | [`glob`] | patterns of keys |
//! | [`order`] | the order of scans, and what their cursors mean |
//! | [`partition`] | which of several groups has which keys |
//! | [`process`] | what a process chooses for its stores |
//! | [`store`] | the state, replicated time and expiry; `read` and `write` execute commands on it |
//! | [`users`] | who may ask for what |
//! | [`snapshot`] | the state as a sequence of pieces, and back |
//!
//! Everything is a function of the commands, their positions and their times: equal logs give equal stores.

pub mod command;
mod compact;
mod deadlines;
mod entry;
mod float;
pub mod footprint;
pub mod glob;
mod hash;
mod image;
mod integer;
pub mod order;
pub mod partition;
pub mod process;
mod read;
pub mod reply;
pub mod settings;
pub mod snapshot;
pub mod store;
mod table;
pub mod users;
mod write;

pub use command::{Command, Condition, Expiry, ExpiryCondition, Key, Single};
pub use footprint::{Extent, Footprint, Keys};
pub use partition::{Partition, PartitionError, Scattered};
pub use read::SCAN_ITEMS;
pub use reply::{CommandError, Expires, Kind, Reply};
pub use snapshot::{Frozen, LoadError, Loader};
pub use store::{AHEAD, EXPIRE_LIMIT, KeyValue, NAME_LIMIT, REPLY_LIMIT, Store, StoredValue, VALUE_LIMIT};
pub use users::{CommandRule, DEFAULT_USER, KeyRule, KeyRules, PasswordHash, Permissions, User, UserRule};
