//! Commands about all keys where the keys are divided among groups (`--groups`), by scatter-gather: each group is
//! asked, one after the other, and what they reply is put together.
//!
//! Groups have no order in common, so such a command is not executed at one moment: a count may be of keys that were
//! never there together, and FLUSHALL empties one group after the other. A scan's cursor is a position as in one group,
//! the first at which some group was not looked at.

use bytes::Bytes;
use quorate_core::{Access, Consistency, FeatureLevel, GroupId, GroupRequest, Manage, Managed, Wire};
use quorate_store::{Command, Reply, SCAN_ITEMS, order};

/// A command that is asked of one group after the other, and what they have replied so far.
#[derive(Debug)]
pub(super) struct ScatterGather {
    /// What each is asked.
    command: Command,
    groups: usize,
    /// Which is asked first, from 0.
    first: usize,
    /// How many have replied.
    replied: usize,
    /// What they have replied together.
    found: Option<Reply>,
}

/// Whether each group can do its part of a command, and the parts together are the command.
pub(super) fn is_for_each_group(command: &Command) -> bool {
    matches!(command, Command::Scan { .. } | Command::Count | Command::RandomKey { .. } | Command::Clear)
}

impl ScatterGather {
    /// Begins a command among so many groups, if it is [one for each](is_for_each_group).
    pub(super) fn of(command: &Command, groups: usize) -> Option<ScatterGather> {
        let mut command = is_for_each_group(command).then(|| command.clone())?;
        let first = match &mut command {
            Command::RandomKey { seed } => (*seed % groups as u64) as usize,
            // Together they look at as many keys as one would.
            Command::Scan { limit, .. } => {
                *limit = (*limit).min(SCAN_ITEMS as u32).div_ceil(groups as u32);
                0
            }
            _ => 0,
        };
        Some(ScatterGather { command, groups, first, replied: 0, found: None })
    }

    /// What each group is asked.
    pub(super) fn command(&self) -> &Command {
        &self.command
    }

    /// What is to be asked now, and of whom.
    pub(super) fn request(&self) -> GroupRequest<Command> {
        let group = GroupId::at((self.first + self.replied) % self.groups);
        GroupRequest { group, asked: self.command.clone() }
    }

    /// Takes the reply to that; the reply to the whole command, if nobody else need be asked.
    pub(super) fn take(&mut self, reply: Reply) -> Option<Reply> {
        self.replied += 1;
        let found = match self.found.take() {
            Some(found) => join(found, reply),
            None => reply,
        };
        let is_done = match &found {
            Reply::Integer(_) | Reply::Done | Reply::Keys { .. } | Reply::Value(None) => {
                self.replied == self.groups
            }
            // A key, or an error.
            _ => true,
        };
        if is_done {
            return Some(found);
        }
        self.found = Some(found);
        None
    }
}

/// What two replies are together; the later one, if it is of another kind.
fn join(found: Reply, reply: Reply) -> Reply {
    match (found, reply) {
        (Reply::Integer(found), Reply::Integer(more)) => Reply::Integer(found.saturating_add(more)),
        (Reply::Keys { mut keys, next }, Reply::Keys { keys: more, next: other }) => {
            keys.extend(more);
            let next = next.into_iter().chain(other).min();
            // The next scan finds these: it begins there in all groups.
            keys.retain(|key| next.is_none_or(|next| order::position(key) < next));
            Reply::Keys { keys, next }
        }
        (_, reply) => reply,
    }
}

/// A change of the members that one group makes after the other, each on its own. The same change again goes on where
/// it has stopped, as a group in which it is in force says so at once.
#[derive(Debug)]
pub(super) struct MembershipChange {
    change: Manage,
    groups: usize,
    /// In how many it is in force.
    done: usize,
    /// Whether the feature level is asked for first, on which that depends.
    asks_level: bool,
}

impl MembershipChange {
    /// Begins a change of so many groups, at a node that believes them to be at that feature level. The state of one
    /// that is no member, or lags, may not have the level yet that they are at: they are asked for it.
    pub(super) fn of(change: Manage, groups: usize, level: Option<FeatureLevel>) -> MembershipChange {
        let asks_level = level.is_none_or(|level| level < FeatureLevel::MEMBERS_OF_GROUPS);
        MembershipChange { change, groups, done: 0, asks_level }
    }

    /// What is to be asked now, and how, where reads have that consistency.
    pub(super) fn request(&self, consistency: Consistency) -> (Access, Bytes) {
        if self.asks_level {
            return (consistency.access_that_misses_nothing(), Command::Level.to_bytes());
        }
        let request = GroupRequest { group: GroupId::at(self.done), asked: self.change.clone() };
        (Access::Manage, request.to_bytes())
    }

    /// Takes the reply to that; the reply to the whole change, if nothing else is to be asked.
    pub(super) fn take(&mut self, reply: Bytes) -> Option<Bytes> {
        if std::mem::take(&mut self.asks_level) {
            return level_refusal(reply).map(|refusal| refusal.to_bytes());
        }
        match Managed::from_bytes(reply.clone()) {
            Ok(of_group) => self.take_of_group(of_group).map(|whole| whole.to_bytes()),
            Err(_) => Some(reply),
        }
    }

    fn take_of_group(&mut self, reply: Managed) -> Option<Managed> {
        let group = self.done + 1;
        let of_group =
            |text: &[u8]| -> Bytes { [format!("group {group}: ").as_bytes(), text].concat().into() };
        match reply {
            Managed::Done => {
                self.done += 1;
                (self.done == self.groups).then_some(Managed::Done)
            }
            Managed::UnderWay(how_far) => Some(Managed::UnderWay(of_group(&how_far))),
            Managed::Refused(why) => {
                let mut why = of_group(&why).to_vec();
                if self.done > 0 {
                    let before = format!("; in force in {} of {} groups", self.done, self.groups);
                    why.extend_from_slice(before.as_bytes());
                }
                Some(Managed::Refused(why.into()))
            }
            other @ Managed::Roster { .. } => Some(other),
        }
    }
}

/// The reply to a change, if the level that the groups reply is too low for it.
fn level_refusal(reply: Bytes) -> Option<Managed> {
    let level = match Reply::from_bytes(reply) {
        Ok(Reply::Integer(level)) => u16::try_from(level).ok().and_then(FeatureLevel::new),
        _ => None,
    };
    let needed = FeatureLevel::MEMBERS_OF_GROUPS;
    let why = format!(
        "with several groups (--groups) changes of members need feature level {needed}: once all members run a \
         version that knows it, CONFIG SET feature-level {needed}"
    );
    level.is_none_or(|level| level < needed).then(|| Managed::Refused(why.into()))
}

#[cfg(test)]
mod tests {
    use quorate_core::Staleness;
    use quorate_store::CommandError;

    use super::*;

    fn keys(keys: &[&'static str], next: Option<u64>) -> Reply {
        Reply::Keys { keys: keys.iter().map(|key| Bytes::from_static(key.as_bytes())).collect(), next }
    }

    #[test]
    fn groups_are_asked_until_the_reply_is_known() {
        let scan = || Command::Scan { from: 0, limit: 10, pattern: None, kind: None };
        let value = |text: Option<&'static str>| Reply::Value(text.map(|text| text.into()));
        let at = |key: &str| order::position(key.as_bytes());
        assert!(at("key:1") < at("a"));
        let full = Reply::Error(CommandError::DiskFull { node: 3 });
        for (command, replies, asked, whole) in [
            (
                Command::Count,
                vec![Reply::Integer(2), Reply::Integer(0), Reply::Integer(5)],
                "123",
                Reply::Integer(7),
            ),
            (Command::Clear, vec![Reply::Done, Reply::Done, Reply::Done], "123", Reply::Done),
            (Command::Clear, vec![Reply::Done, full.clone()], "12", full.clone()),
            (Command::Count, vec![full.clone()], "1", full),
            (
                Command::RandomKey { seed: 5 },
                vec![value(None), value(None), value(Some("m"))],
                "312",
                value(Some("m")),
            ),
            (Command::RandomKey { seed: 4 }, vec![value(Some("n"))], "2", value(Some("n"))),
            (Command::RandomKey { seed: 3 }, vec![value(None), value(None), value(None)], "123", value(None)),
            (
                scan(),
                vec![keys(&["key:1"], None), keys(&[], None), keys(&["a"], None)],
                "123",
                keys(&["key:1", "a"], None),
            ),
            // One group has more, from before a key on that another has given already.
            (
                scan(),
                vec![keys(&["a"], None), keys(&["key:1"], Some(at("a"))), keys(&[], Some(at("a") + 1))],
                "123",
                keys(&["key:1"], Some(at("a"))),
            ),
            (
                scan(),
                vec![keys(&[], Some(9)), keys(&["a"], None), keys(&["key:1"], None)],
                "123",
                keys(&[], Some(9)),
            ),
        ] {
            let mut scatter = ScatterGather::of(&command, 3).unwrap();
            let (mut groups, mut found) = (String::new(), None);
            for reply in replies {
                assert_eq!(found, None, "{command:?} was answered before all had replied");
                groups.push_str(&scatter.request().group.to_string());
                found = scatter.take(reply);
            }
            assert_eq!((groups.as_str(), found), (asked, Some(whole)), "{command:?}");
        }
        assert!(ScatterGather::of(&Command::Settings, 3).is_none());
    }

    #[test]
    fn one_group_after_the_other_changes_its_members_until_one_does_not() {
        let done = Managed::Done;
        let refused = |text: &str| Managed::Refused(text.to_owned().into());
        let under_way = |text: &str| Managed::UnderWay(text.to_owned().into());
        for (replies, asked, whole) in [
            (vec![done.clone(), done.clone(), done.clone()], "123", done.clone()),
            (vec![refused("no")], "1", refused("group 1: no")),
            (
                vec![done.clone(), done.clone(), refused("no")],
                "123",
                refused("group 3: no; in force in 2 of 3 groups"),
            ),
            (vec![done, under_way("it catches up")], "12", under_way("group 2: it catches up")),
        ] {
            let mut each = MembershipChange::of(Manage::CancelChange, 3, Some(FeatureLevel::NEWEST));
            let (mut groups, mut found) = (String::new(), None);
            for reply in replies {
                assert_eq!(found, None, "it was answered before all had replied");
                let (access, request) = each.request(Consistency::Linearizable);
                assert_eq!(access, Access::Manage);
                let GroupRequest { group, asked } = GroupRequest::<Manage>::from_bytes(request).unwrap();
                assert_eq!(asked, Manage::CancelChange);
                groups.push_str(&group.to_string());
                found = each.take(reply.to_bytes());
            }
            assert_eq!((groups.as_str(), found), (asked, Some(whole.to_bytes())));
        }
    }

    #[test]
    fn groups_are_asked_for_their_level_where_the_node_does_not_have_it() {
        let refused = "with several groups (--groups) changes of members need feature level 3: once all members run a \
                       version that knows it, CONFIG SET feature-level 3";
        for (believed, replied, refusal) in [
            (None, 3, None),
            (None, 4, None),
            (FeatureLevel::new(2), 3, None),
            (FeatureLevel::new(2), 2, Some(refused)),
            (None, 1, Some(refused)),
            (None, 0, Some(refused)),
        ] {
            let mut change = MembershipChange::of(Manage::CancelChange, 2, believed);
            for (consistency, access) in [
                (Consistency::Linearizable, Access::Read),
                (Consistency::Sequential, Access::Within(Staleness::Versions(0))),
            ] {
                assert_eq!(change.request(consistency), (access, Command::Level.to_bytes()));
            }
            let found = change.take(Reply::Integer(replied).encoded());
            assert_eq!(found, refusal.map(|text| Managed::Refused(text.into()).to_bytes()));
            assert_eq!(change.request(Consistency::Linearizable).0, Access::Manage);
        }
    }

    #[test]
    fn groups_look_together_at_as_many_keys_as_one_would() {
        for (limit, groups, each) in [(10, 3, 4), (1, 64, 1), (u32::MAX, 3, 3334), (u32::MAX, 1, 10_000)] {
            let scan = Command::Scan { from: 7, limit, pattern: None, kind: None };
            let asked = ScatterGather::of(&scan, groups).unwrap().request().asked;
            assert_eq!(asked, Command::Scan { from: 7, limit: each, pattern: None, kind: None });
        }
    }
}
