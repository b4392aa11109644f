//! What clients speak.
//!
//! | module | what |
//! |---|---|
//! | [`resp`] | the Redis protocol, versions 2 and 3 |

pub mod resp;
