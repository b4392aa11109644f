//! Nodes over real sockets on loopback.

mod clients;
mod directories;
mod disk;
mod group;
mod harness;
mod levels;
mod lifecycle;
mod lines;
mod peers;
mod tls;
mod toy;
