//! Keyspace partitions: which of several groups of replicas has which keys (`--groups`).
//!
//! The keys are divided into ranges in their order, one for each group. A command goes to the group that has all its
//! keys. Users and the feature level are no keys: the first group has them. Some protocols execute only
//! commands on one key ([`Command::only_key`]).

use bytes::Bytes;
use quorate_core::{GroupId, GroupRequest, Wire};
use thiserror::Error;

use crate::command::{Command, Key, first_key};
use crate::footprint::{Extent, Touched};

/// See the file comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The first key of each group but the first, ascending.
    splits: Vec<Key>,
}

/// Why a partition cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PartitionError {
    /// More groups than there may be.
    #[error("{0} groups: there may be 1 to {max}", max = GroupId::MAX)]
    Count(usize),
    /// A key that does not come after the one before it.
    #[error(
        "split key `{}` does not come after `{}`: write the keys in ascending order, each once",
        shown(.1), shown(.0)
    )]
    Order(Key, Key),
}

/// Why a command is not about what one place has: a group of replicas, or a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scattered {
    /// Its keys are in different places: the first key of each.
    Keys(Vec<Key>),
    /// It is about all keys that there are, or about users or the level, which are no keys.
    Everything,
}

impl Command {
    /// The one key that it is about; `None` if it is about nothing.
    pub fn only_key(&self) -> Result<Option<Key>, Scattered> {
        self.place(Key::clone)
    }

    /// The place of all its keys.
    fn place<P: PartialEq>(&self, place_of: impl Fn(&Key) -> P) -> Result<Option<P>, Scattered> {
        let footprint = match self.touched() {
            Touched::Read(key) | Touched::Written(key) => return Ok(Some(place_of(key))),
            Touched::Other(footprint) => footprint,
        };
        let (Extent::Keys(reads), Extent::Keys(writes)) = (footprint.reads(), footprint.writes()) else {
            return Err(Scattered::Everything);
        };
        let mut places: Vec<(P, Key)> = Vec::new();
        for key in reads.as_slice().iter().chain(writes.as_slice()) {
            let place = place_of(key);
            if places.iter().all(|(other, _)| *other != place) {
                places.push((place, key.clone()));
            }
        }
        match places.len() {
            0 | 1 => Ok(places.pop().map(|(place, _)| place)),
            _ => Err(Scattered::Keys(places.into_iter().map(|(_, key)| key).collect())),
        }
    }
}

impl Partition {
    /// Groups of which all but the first begin with these keys.
    pub fn new(splits: Vec<Key>) -> Result<Partition, PartitionError> {
        if splits.len() >= usize::from(GroupId::MAX) {
            return Err(PartitionError::Count(splits.len() + 1));
        }
        // Every key comes after the empty one.
        let before = [Bytes::new()].into_iter().chain(splits.iter().cloned());
        match before.zip(&splits).find(|(before, split)| before >= *split) {
            Some((before, split)) => Err(PartitionError::Order(before, split.clone())),
            None => Ok(Partition { splits }),
        }
    }

    /// So many groups, divided evenly by the first byte of keys that are printable text.
    pub fn even(groups: usize) -> Result<Partition, PartitionError> {
        if !(1..=usize::from(GroupId::MAX)).contains(&groups) {
            return Err(PartitionError::Count(groups));
        }
        let (first, count) = (usize::from(b'!'), usize::from(b'~' - b'!') + 1);
        let split = |group: usize| Bytes::from(vec![(first + count * group / groups) as u8]);
        Partition::new((1..groups).map(split).collect())
    }

    /// The first key of each group but the first.
    pub fn splits(&self) -> &[Key] {
        &self.splits
    }

    /// Every group, with the range of its keys: the first, and the first that is not its.
    pub fn groups(&self) -> impl Iterator<Item = (GroupId, Option<&Key>, Option<&Key>)> {
        let (from, to) = (
            [None].into_iter().chain(self.splits.iter().map(Some)),
            self.splits.iter().map(Some).chain([None]),
        );
        from.zip(to).enumerate().map(|(index, (from, to))| (GroupId::at(index), from, to))
    }

    /// Whose a key is.
    pub fn group_of_key(&self, key: &[u8]) -> GroupId {
        GroupId::at(self.splits.partition_point(|split| split <= key))
    }

    /// Who executes a command. One that has no keys goes to the first group.
    pub fn group_of(&self, command: &Command) -> Result<GroupId, Scattered> {
        if let Command::UserChanges
        | Command::Users
        | Command::SetUsers { .. }
        | Command::DeleteUsers { .. }
        | Command::Level
        | Command::Settings
        | Command::RaiseLevel { .. } = command
        {
            return Ok(GroupId::FIRST);
        }
        Ok(command.place(|key| self.group_of_key(key))?.unwrap_or(GroupId::FIRST))
    }

    /// The same for an encoded command; `None` if no one group can execute it, or it is no command.
    pub fn group_of_encoded(&self, command: &Bytes) -> Option<GroupId> {
        match first_key(command) {
            Some(key) => Some(self.group_of_key(key)),
            None => self.group_of(&Command::from_bytes(command.clone()).ok()?).ok(),
        }
    }

    /// Who executes what is asked, and the command: what is asked, or what is in a [`GroupRequest`].
    pub fn route(&self, asked: &Bytes) -> Option<(GroupId, Bytes)> {
        match GroupRequest::<Command>::split(asked) {
            Some(named) => Some(named).filter(|(group, _)| group.index() <= self.splits.len()),
            None => Some((self.group_of_encoded(asked)?, asked.clone())),
        }
    }
}

fn shown(key: &Key) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(key)
}

#[cfg(test)]
mod tests {
    use quorate_core::FeatureLevel;

    use super::*;
    use crate::command::Single;

    fn key(text: &'static str) -> Key {
        Bytes::from_static(text.as_bytes())
    }

    fn partition(splits: &[&'static str]) -> Partition {
        Partition::new(splits.iter().map(|split| key(split)).collect()).unwrap()
    }

    #[test]
    fn a_key_is_its_range_s_and_a_range_begins_with_its_split_key() {
        let partition = partition(&["c", "f", "m", "t"]);
        for (text, group) in [
            ("", 1),
            ("Z", 1),
            ("b", 1),
            ("bzz", 1),
            ("c", 2),
            ("ca", 2),
            ("f", 3),
            ("s", 4),
            ("t", 5),
            ("~", 5),
        ] {
            assert_eq!(partition.group_of_key(text.as_bytes()).get(), group, "{text}");
        }
        let groups: Vec<_> = partition.groups().map(|(group, from, to)| (group.get(), from, to)).collect();
        assert_eq!(groups[0], (1, None, Some(&key("c"))));
        assert_eq!(groups[4], (5, Some(&key("t")), None));
        assert_eq!(Partition::even(1).unwrap().group_of_key(b"any"), GroupId::FIRST);
    }

    #[test]
    fn up_to_64_groups_have_ranges_of_their_own_and_others_are_refused() {
        for groups in 1..=64 {
            assert_eq!(Partition::even(groups).unwrap().groups().count(), groups);
        }
        for groups in [0, 65, usize::MAX] {
            let why = Partition::even(groups).unwrap_err().to_string();
            assert_eq!(why, format!("{groups} groups: there may be 1 to 64"));
        }
        for (splits, why) in [
            (vec!["c", "c"], "split key `c` does not come after `c`"),
            (vec!["f", "c"], "split key `c` does not come after `f`"),
            (vec![""], "split key `` does not come after ``"),
        ] {
            let error = Partition::new(splits.into_iter().map(key).collect()).unwrap_err().to_string();
            assert!(error.starts_with(why), "{error}");
        }
        let numbered = |count| (1..=count).map(|number: usize| Key::from(format!("{number:02}"))).collect();
        assert!(Partition::new(numbered(63)).is_ok());
        let error = Partition::new(numbered(64)).unwrap_err().to_string();
        assert_eq!(error, "65 groups: there may be 1 to 64");
    }

    #[test]
    fn a_command_goes_to_the_group_that_has_all_its_keys() {
        let partition = partition(&["m"]);
        let get = |text| Command::Get { key: key(text) };
        let many =
            |keys: &[&'static str]| Command::GetMany { keys: keys.iter().map(|text| key(text)).collect() };
        let batch = |watched: &[&'static str], command| Command::Batch {
            watched: watched.iter().map(|text| (key(text), 1)).collect(),
            commands: vec![Single(command)],
        };
        for (command, group) in [
            (get("a"), Ok(1)),
            (get("m"), Ok(2)),
            (many(&[]), Ok(1)),
            (many(&["n", "z"]), Ok(2)),
            (many(&["n", "a", "b"]), Err(Scattered::Keys(vec![key("a"), key("n")]))),
            (batch(&["n"], get("z")), Ok(2)),
            (batch(&["a"], get("z")), Err(Scattered::Keys(vec![key("a"), key("z")]))),
            (batch(&[], Command::Count), Err(Scattered::Everything)),
            (Command::Clear, Err(Scattered::Everything)),
            (Command::RandomKey { seed: 1 }, Err(Scattered::Everything)),
            (Command::LimitData { bytes: None }, Err(Scattered::Everything)),
            (Command::Users, Ok(1)),
            (Command::Level, Ok(1)),
            (Command::Settings, Ok(1)),
            (Command::RaiseLevel { to: FeatureLevel::SELECTORS, if_new: false }, Ok(1)),
            (Command::SetUsers { users: Vec::new(), if_none: false }, Ok(1)),
        ] {
            let found = partition.group_of(&command);
            assert_eq!(found.clone().map(GroupId::get), group, "{command:?}");
            assert_eq!(partition.group_of_encoded(&command.to_bytes()), found.ok(), "{command:?}");
        }
        assert_eq!(partition.group_of_encoded(&Bytes::from_static(b"\xff")), None);
    }

    #[test]
    fn a_command_that_names_its_group_goes_there_without_the_name() {
        let partition = partition(&["m"]);
        let count = Command::Count.to_bytes();
        for (number, found) in [(1, true), (2, true), (3, false), (64, false)] {
            let group = GroupId::new(number).unwrap();
            let asked = GroupRequest { group, asked: Command::Count };
            assert_eq!(GroupRequest::from_bytes(asked.to_bytes()), Ok(asked.clone()));
            assert_eq!(partition.route(&asked.to_bytes()), found.then(|| (group, count.clone())), "{number}");
        }
        let get = Command::Get { key: key("z") }.to_bytes();
        assert_eq!(partition.route(&get), Some((GroupId::at(1), get.clone())));
        for refused in [&count[..], b"", b"\xff", b"\xff\x00", b"\xff\x41"] {
            assert_eq!(partition.route(&Bytes::copy_from_slice(refused)), None, "{refused:?}");
        }
    }

    #[test]
    fn a_command_is_about_one_key_if_all_that_it_reads_and_writes_is_that_key() {
        let (a, z) = (key("a"), key("z"));
        let get = |key: &Key| Single(Command::Get { key: key.clone() });
        let batch = |commands| Command::Batch { watched: vec![(a.clone(), 1)], commands };
        for (command, only) in [
            (Command::Get { key: a.clone() }, Ok(Some(a.clone()))),
            (Command::Delete { keys: vec![z.clone(), z.clone()] }, Ok(Some(z.clone()))),
            (batch(vec![get(&a), get(&a)]), Ok(Some(a.clone()))),
            (Command::DiskFull { node: 1 }, Ok(None)),
            (Command::MemoryFull { node: 1 }, Ok(None)),
            (
                Command::Exists { keys: vec![z.clone(), a.clone()] },
                Err(Scattered::Keys(vec![a.clone(), z.clone()])),
            ),
            (batch(vec![get(&z)]), Err(Scattered::Keys(vec![a.clone(), z.clone()]))),
            (batch(vec![Single(Command::Count)]), Err(Scattered::Everything)),
            (Command::Clear, Err(Scattered::Everything)),
            (Command::Users, Err(Scattered::Everything)),
            (Command::SetUsers { users: Vec::new(), if_none: false }, Err(Scattered::Everything)),
        ] {
            assert_eq!(command.only_key(), only, "{command:?}");
        }
    }
}
