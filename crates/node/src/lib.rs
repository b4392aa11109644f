//! The real driver: sockets, log, timers, metrics.
//!
//! | file | what |
//! |---|---|
//! | [`config`] | what an operator says, checked |
//! | [`limits`] | every bound, in one place |
//! | [`node`] | the event loop: turns, start, drain |
//! | `machines` | the replica and the proxy, stepped |
//! | [`storage`] | the disk: log, checkpoints, recovery |
//! | `journal` | the log as the loop sees it |
//! | [`backup`] | a cluster's state in a file |
//! | [`founding`] | clusters that begin with another's data |
//! | [`transport`] | messages between processes |
//! | `clients` | client connections |
//! | [`frontend`] | what a client protocol implements |
//! | [`metrics`] | counters and gauges |
//! | [`slow`] | slow requests and their stages |
//! | [`spans`] | requests on their way to what exports them as spans |
//! | `drain` | the end of a node that is asked to stop |
//! | `listen` | the sockets that it listens on |
//! | `directory` | who is in the group, and where |
//! | `guard` | which data directory it takes part with |
//! | `clock` | the clocks, and how wrong the wall clock may be |
//! | [`logging`] | log lines on their way to the standard error |
//! | `resources` | room on the disk and in memory |
//! | `stall` | how long the event loop was away from its sockets |
//! | [`signals`], `log_rate`, `view` | SIGTERM; repeated log lines; facts for client protocols |

mod acceptor;
pub mod backup;
mod clients;
mod clock;
pub mod config;
mod directory;
mod drain;
pub mod error;
pub mod founding;
pub mod frontend;
mod guard;
mod journal;
pub mod limits;
mod listen;
mod log_rate;
pub mod logging;
mod machines;
pub mod metrics;
pub mod monitor;
mod newcomers;
pub mod node;
mod output;
mod patience;
mod resources;
mod service_manager;
pub mod signals;
pub mod slow;
pub mod spans;
mod stall;
pub mod storage;
pub mod transport;
mod view;

pub use clock::ClockSource;
pub use config::{
    Durability, NodeConfig, NodeOptions, ProxyOptions, TopologyFile, cluster_id, parse_cluster,
};
pub use error::{ConfigError, Exit, NodeError};
pub use limits::Limits;
pub use listen::{Listeners, listen};
pub use node::{Node, Stopper};
pub use output::Output;

#[cfg(test)]
#[path = "../tests/node/toy.rs"]
mod toy;
