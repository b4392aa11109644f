//! What the unit tests of several protocols need.

use quorate_core::{NodeId, NodeSet};

/// The nodes of these ids, of a digit each; `-`: none.
pub fn set(digits: &str) -> NodeSet {
    digits.chars().filter_map(|digit| NodeId::new(digit.to_digit(10)?.into())).collect()
}
