//! Feature levels: what all members of a group must know before any of it may be used.
//!
//! A command, record or message that is new in a release must not come to a member that does not know it: replicas
//! would execute it differently. So the group has a level, which is part of its replicated state. A command of a later
//! level is executed as a build executes it that does not know it, as a malformed one, until an operator raises the
//! level once all members know it. It never falls.

use std::fmt;

use crate::wire::{Decoder, Encoder, Wire, WireError};

/// A level; all that earlier levels bring belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FeatureLevel(u16);

impl FeatureLevel {
    /// All that version 0.1.0 has; that of states that say nothing of a level.
    pub const FIRST: FeatureLevel = FeatureLevel(1);
    /// Selectors of users (`ACL SETUSER ann (+get ~a)`).
    pub const SELECTORS: FeatureLevel = FeatureLevel(2);
    /// Changes of members where the keys are divided among groups (`--groups`).
    pub const MEMBERS_OF_GROUPS: FeatureLevel = FeatureLevel(3);
    /// The last one that this build knows, with which new clusters begin.
    pub const NEWEST: FeatureLevel = FeatureLevel::MEMBERS_OF_GROUPS;

    /// What each level that this build knows brings, in ascending order: for people.
    pub const ALL: [(FeatureLevel, &str); 3] = [
        (FeatureLevel::FIRST, "what version 0.1.0 has"),
        (FeatureLevel::SELECTORS, "selectors of users (`ACL SETUSER ann (+get ~a)`)"),
        (FeatureLevel::MEMBERS_OF_GROUPS, "changes of members with several groups (`--groups`)"),
    ];

    /// The level of this number, whether this build knows it or not; `None` for 0.
    pub fn new(number: u16) -> Option<FeatureLevel> {
        (number > 0).then_some(FeatureLevel(number))
    }

    /// Its number, from 1.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Whether this build knows all that it brings.
    pub fn is_known(self) -> bool {
        self <= FeatureLevel::NEWEST
    }
}

impl Default for FeatureLevel {
    fn default() -> Self {
        FeatureLevel::FIRST
    }
}

impl fmt::Display for FeatureLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Wire for FeatureLevel {
    fn encode(&self, out: &mut Encoder) {
        self.0.encode(out);
    }
    /// Levels that this build does not know are read all the same: whoever must know them is told which one it is.
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let number = u16::decode(input)?;
        FeatureLevel::new(number).ok_or(WireError::Value { what: "feature level", found: 0 })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn the_list_has_every_level_up_to_the_newest() {
        let numbers: Vec<_> = FeatureLevel::ALL.iter().map(|(level, _)| level.get()).collect();
        let newest = FeatureLevel::NEWEST.get();
        assert_eq!(numbers, (1..=newest).collect::<Vec<_>>());
        assert!(FeatureLevel::NEWEST.is_known() && !FeatureLevel(newest + 1).is_known());
    }

    #[test]
    fn a_level_that_is_not_known_is_read_and_none_is_not() {
        let later = FeatureLevel(60_000);
        assert_eq!(FeatureLevel::from_bytes(later.to_bytes()), Ok(later));
        assert!(FeatureLevel::from_bytes(Bytes::from_static(&[0, 0])).is_err());
        assert_eq!(FeatureLevel::new(0), None);
    }
}
