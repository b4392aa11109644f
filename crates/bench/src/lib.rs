//! The load generator behind `quorate bench`: against anything that speaks RESP (Quorate, Redis).
//!
//! | file | what |
//! |---|---|
//! | `options` | what a run is; the words of the command line |
//! | `keys` | which key: uniform, Zipf, latest |
//! | `sizes` | how long a value is |
//! | `work` | the stream of operations, and their bytes |
//! | `schedule` | when an open loop means to send |
//! | `reply` | where replies end |
//! | `connection` | one socket: what is under way on it |
//! | `engine` | the loop of one thread |
//! | [`Trace`] | what became of each operation |
//! | `stats`, `report` | what is counted while it runs, and what is said of it |
//! | [`chart`] | line charts |
//! | [`grid`] | what was measured in several runs: its CSV, medians with their spread, tables |
//! | `plot` | the SVG of a run, and of several |
//! | [`Ports`] | where the servers that are measured, or tested, may listen |
//!
//! It shares the machine with what it measures, so it is cheap: one thread, one read and one write per ready socket
//! and turn, and no allocation per request or reply.
//!
//! The stream of operations is a function of the seed alone; which connection gets which of them, and (with
//! `latest`) how far the key space has grown by then, depends on the answers.

pub mod chart;
mod connection;
mod engine;
pub mod grid;
mod keys;
mod options;
mod plot;
mod ports;
mod reply;
mod report;
mod schedule;
mod sizes;
mod stats;
mod trace;
mod work;

pub use engine::{BenchError, load, run};
pub use keys::{Choice, Keys};
pub use options::{Mix, Options, Tls};
pub use plot::svg;
pub use ports::Ports;
pub use report::{Report, table};
pub use schedule::{Arrivals, Schedule};
pub use sizes::Sizes;
pub use trace::Trace;
