//! The real driver: sockets, log, timers, metrics.

pub mod frontend;
