//! What clients speak.
//!
//! | module | what |
//! |---|---|
//! | [`http`] | metrics and health, for those who watch |
//! | `process` | what the system says of this process |
//! | [`resp`] | the Redis protocol, versions 2 and 3 |

pub mod http;
mod process;
pub mod resp;
