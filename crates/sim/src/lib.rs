//! Whole clusters in one thread: virtual time, faults, checkers. One seed decides everything.
//!
//! | module | what |
//! |---|---|
//! | [`report`] | a campaign over many seeds, and its summary |
//! | [`mod@run`] | one seed: a fault phase, then a healing phase |
//! | [`shrink`] | a smaller run that fails alike |
//! | [`options`], [`faults`] | what a campaign is told, and what a seed draws from it |
//! | `cluster`, `process` | the driver: processes and their machines |
//! | [`network`], [`disk`], [`clock`] | the world around them |
//! | `workload` | the clients |
//! | [`history`], [`checkers`] | what they saw, and what must hold |
//! | [`trace`] | what happened, for people and for the determinism test |
//! | [`queue`] | the future |
//! | [`experiment`] | measurement runs: how long things take |
//! | [`explore`] | every behaviour of a small cluster, within bounds |
//! | [`scenario`] | golden conversations: small scripted clusters |

pub mod checkers;
pub mod clock;
mod cluster;
pub mod disk;
pub mod experiment;
pub mod explore;
pub mod faults;
pub mod history;
pub mod network;
pub mod options;
mod panics;
mod process;
pub mod queue;
pub mod report;
pub mod run;
pub mod scenario;
pub mod shrink;
pub mod trace;
mod workload;

pub use checkers::Violation;
pub use faults::Faults;
pub use options::{Options, OptionsError};
#[cfg(feature = "mutations")]
pub use report::caught;
pub use report::{Failure, Progress, Summary, replay, sim};
pub use run::{Run, run};
pub use scenario::run_traces;
