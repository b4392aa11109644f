//! Whole clusters in one thread: virtual time, faults, workload. One seed decides everything. What must hold meanwhile
//! is in [`quorate_check`].
//!
//! | module | what |
//! |---|---|
//! | [`report`] | a campaign over many seeds, and its summary |
//! | [`mod@run`] | one seed: a fault phase, then a healing phase |
//! | [`shrink`] | a smaller run that fails alike |
//! | [`options`], [`faults`] | what a campaign is told, and what a seed draws from it |
//! | `cluster`, `process` | the driver: processes and their machines |
//! | [`network`], [`disk`], [`clock`] | the world around them |
//! | `workload`, `eras`, `sizes` | the clients, the names of their keys, and how long what they write is |
//! | `judge` | what its clients saw, judged |
//! | `founded` | a state with which a group can begin |
//! | [`trace`] | what happened, for people and for the determinism test |
//! | [`queue`] | the future |
//! | [`experiment`] | measurement runs: how long things take |
//! | [`scenario`] | golden conversations: small scripted clusters |

pub mod clock;
mod cluster;
pub mod disk;
mod eras;
pub mod experiment;
pub mod faults;
mod founded;
mod judge;
pub mod network;
pub mod options;
mod process;
pub mod queue;
pub mod report;
pub mod run;
pub mod scenario;
mod setup;
pub mod shrink;
mod sizes;
pub mod trace;
mod workload;

pub use faults::Faults;
pub use options::{Options, OptionsError};
#[cfg(feature = "mutations")]
pub use report::caught;
pub use report::{Failure, Progress, Summary, replay, sim};
pub use run::{Run, run};
pub use scenario::run_traces;
