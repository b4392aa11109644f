//! The one way in which the machines of a protocol are stepped. The node, the simulator, scripts, the explorer and the
//! fuzz targets are drivers: each has its own network, disk and clocks, and steps its machines with what is here.
//!
//! | module | what |
//! |---|---|
//! | `machine_runner` | one machine with its outbox, timers and barriers |
//! | `release_gate` | messages that wait until records are durable |
//! | [`record_ledger`] | which records go to the log, and which count as durable |
//! | `process_runner` | a process: a replica and its proxy, or a proxy alone |
//! | [`process`] | the same without types: bytes in, [`Effects`] out |
//! | [`mod@protocol`] | a protocol without types: its name, capabilities, configuration, processes |
//!
//! **Only `machine_runner`, `release_gate` and `process_runner` are compiled for each protocol.** A driver holds
//! a `Box<dyn `[`AnyProcess`]`>`, so it is compiled once, and a changed line in a protocol leaves it as it is.
//!
//! **What is the same for every driver**, because it is written once:
//! - *An input is taken, then acted on.* The clock is read in between, so a pause before the step cannot make a machine
//!   act on an old time ([`AnyProcess::take`], [`AnyProcess::step`]).
//! - *The proxy's batch ends before the replica's* ([`AnyProcess::end_batch`]): what the proxy asks of the replica
//!   beside it is part of the same batch.
//! - *A message leaves when the records that it waits for are durable*, and never before one that waits for fewer
//!   (`ReleaseGate`). Of one release the proxy's messages leave first, then those that have waited, then new ones.
//! - *A message to a machine of the same process stays typed*: it is not encoded. All others leave as bytes, in the
//!   simulator too.
//! - *A record that stands for a state* ([`Context::persist_state`](quorate_core::Context::persist_state)) is named in
//!   [`Effects::barriers`]. One step that persists several such states names the last: it covers the others.

mod machine_runner;
pub mod process;
mod process_runner;
pub mod protocol;
pub mod record_ledger;
mod release_gate;

pub use process::{
    AnyProcess, Decoded, Effects, Encoding, GroupProcess, Input, OutgoingFrame, OwnMessages, RecordError,
    SetTimer, Start, StateDigests, Taken,
};
pub use protocol::{AnyProtocol, ConfiguredProtocol, protocol};
pub use record_ledger::RecordLedger;

#[cfg(test)]
mod tests;
