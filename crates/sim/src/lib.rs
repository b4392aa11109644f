//! Whole clusters in one thread: virtual time, faults, checkers.

pub mod checkers;
pub mod history;
