//! The feature level of the replicated state, and how often its users were changed, for drivers, which know no commands
//! of the store.

use bytes::Bytes;
use quorate_core::{FeatureLevel, Wire};
use quorate_store::{Command, Reply};

/// What a replica is asked for its level.
pub fn question() -> Bytes {
    Command::Level.to_bytes()
}

/// What it has answered.
pub fn answer(reply: Bytes) -> Option<FeatureLevel> {
    match Reply::from_bytes(reply) {
        Ok(Reply::Integer(number)) => FeatureLevel::new(u16::try_from(number).ok()?),
        _ => None,
    }
}

/// What a replica is asked for how often users have been changed.
pub fn users_question() -> Bytes {
    Command::UserChanges.to_bytes()
}

/// What it has answered.
pub fn users_answer(reply: Bytes) -> Option<u64> {
    match Reply::from_bytes(reply) {
        Ok(Reply::Integer(changes)) => u64::try_from(changes).ok(),
        _ => None,
    }
}

/// The first write of a new group: nothing where there was another before.
pub fn begin_with(level: FeatureLevel) -> Bytes {
    Command::RaiseLevel { to: level, if_new: true }.to_bytes()
}

#[cfg(test)]
mod tests {
    use quorate_core::{ProxyId, Wall};
    use quorate_store::{Condition, Expiry, Permissions, UserRule};

    use super::*;
    use crate::batch::{Builder, Entry, Limits};
    use crate::state::{Effect, Replicated};

    /// A state that has executed these commands, and what came of them.
    fn run(commands: Vec<Bytes>) -> (Replicated, Vec<Effect>) {
        let (mut state, mut effects, mut builder) = (Replicated::default(), Vec::new(), Builder::new());
        builder.push(Entry::Open { proxy: ProxyId(1).into(), nonce: 1 });
        for (seq, command) in (1..).zip(commands) {
            builder.push(Entry::Write { session: 1, seq, low: 1, command });
        }
        let value = builder.take(Limits { entries: 9, bytes: 1 << 20 }, Wall::from_millis(1));
        state.apply(1, &value, |effect| effects.push(effect), |_| {});
        (state, effects)
    }

    #[test]
    fn a_state_tells_its_level_and_begins_with_one_as_its_first_write() {
        for (commands, level) in
            [(vec![], FeatureLevel::FIRST), (vec![begin_with(FeatureLevel::NEWEST)], FeatureLevel::NEWEST)]
        {
            let (state, _) = run(commands);
            assert_eq!((state.level(), answer(state.read_now(&question()))), (level, Some(level)));
        }
    }

    /// Replicas of builds that know a command and of builds that do not must remain alike while it is above the level.
    #[test]
    fn a_command_above_the_feature_level_leaves_the_same_state_as_one_that_cannot_be_read() {
        let rules = vec![UserRule::AddSelector(Permissions::default())];
        let users = vec![(Bytes::from_static(b"ann"), rules)];
        let later = Command::SetUsers { users, if_none: false }.to_bytes();
        let (key, value) = (Bytes::from_static(b"k"), Bytes::from_static(b"v"));
        let put =
            Command::Put { key, value, condition: Condition::Always, expiry: Expiry::Never, old: false };
        let [known, unknown] = [later, Bytes::from_static(b"\xff")].map(|command| {
            let (state, effects) = run(vec![command, put.to_bytes()]);
            (state.fingerprint(), effects)
        });
        assert_eq!(known, unknown);
    }
}
