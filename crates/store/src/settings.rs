//! Settings that all nodes share, as [`Command::Settings`](crate::Command::Settings) names them. Values are decimal
//! numbers. A later version may have more of them.

/// What all members must know before any of it may be used: a [`FeatureLevel`](quorate_core::FeatureLevel).
pub const FEATURE_LEVEL: &str = "feature-level";

/// How much the keys and values may take, in bytes; 0 where there is no bound.
pub const MAX_DATA: &str = "max-data";
