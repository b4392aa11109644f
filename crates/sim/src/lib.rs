//! Whole clusters in one thread: virtual time, faults, checkers.
