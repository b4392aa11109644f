//! RESP as a client sees it: the frontend of the node, with a real store behind it.

mod acl;
mod all_groups;
mod clients;
mod fuzz;
mod harness;
mod key_scope;
mod level;
mod long;
mod members;
mod modes;
mod order;
mod replies;
mod slowlog;
