//! What clients speak.
//!
//! | module | what |
//! |---|---|
//! | [`http`] | metrics, health and a page, for those who watch |
//! | [`otlp`] | spans of requests, for a collector |
//! | `process` | what the system says of this process |
//! | [`resp`] | the Redis protocol, versions 2 and 3 |
//! | `status` | the node's state as JSON, for both |

pub mod http;
pub mod otlp;
mod process;
pub mod resp;
mod status;
