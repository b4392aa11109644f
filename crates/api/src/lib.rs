//! What clients speak.
//!
//! | module | what |
//! |---|---|
//! | [`http`] | metrics and health, for those who watch |
//! | [`resp`] | the Redis protocol, versions 2 and 3 |

pub mod http;
pub mod resp;
