//! Nodes over real sockets on loopback.

mod clients;
mod harness;
mod lifecycle;
mod peers;
mod toy;
