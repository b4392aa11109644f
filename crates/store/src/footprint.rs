//! What a command touches. Conflicts, responders, limbo regions and commutativity ask this and nothing else.

use bytes::Bytes;
use quorate_core::{Decoder, Encoder, Wire, WireError, wire_struct};

use crate::command::{Command, Key, Single};

/// Some keys, or all that there are or could be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// These, in ascending order, each once.
    Keys(Keys),
    /// Every key that there is or may be.
    Everything,
}

/// A set of keys that does not allocate for up to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys(Few);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Few {
    None,
    One(Key),
    Many(Vec<Key>),
}

/// The keys that a command reads and those that it writes.
///
/// A key that is written counts as written only, whether the command also looks at it or not: a write is in conflict
/// with all that a read is in conflict with. Two commands that touch different keys leave the same values in either
/// order (their keys' versions and what has expired in between are the log's, not theirs).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    reads: Extent,
    writes: Extent,
}

wire_struct!(Footprint { reads, writes });

/// What a command touches, with its one key as it is there.
pub(crate) enum Touched<'a> {
    Read(&'a Key),
    Written(&'a Key),
    /// Of a kind of command that may have any number of keys.
    Other(Footprint),
}

/// Keys, or none for everything.
impl Wire for Extent {
    fn encode(&self, out: &mut Encoder) {
        match self {
            Extent::Keys(keys) => Some(keys.as_slice().to_vec()).encode(out),
            Extent::Everything => None::<Vec<Key>>.encode(out),
        }
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let keys = Option::<Vec<Key>>::decode(input)?;
        Ok(keys.map_or(Extent::Everything, |keys| Extent::Keys(keys.into_iter().collect())))
    }
}

impl Footprint {
    /// What is read and not written.
    pub fn reads(&self) -> &Extent {
        &self.reads
    }

    /// What is written, or would be if a condition held.
    pub fn writes(&self) -> &Extent {
        &self.writes
    }

    /// Whether nothing is written.
    pub fn is_read_only(&self) -> bool {
        self.writes.is_empty()
    }

    /// Whether the key is read or written.
    pub fn touches(&self, key: &[u8]) -> bool {
        self.writes.contains(key) || self.reads.contains(key)
    }

    /// Whether the order of the two commands matters: one writes what the other reads or writes.
    pub fn conflicts(&self, other: &Footprint) -> bool {
        self.writes.overlaps(&other.writes)
            || self.writes.overlaps(&other.reads)
            || self.reads.overlaps(&other.writes)
    }
}

impl Extent {
    const NOTHING: Extent = Extent::Keys(Keys(Few::None));

    /// Whether there is no key in it.
    pub fn is_empty(&self) -> bool {
        matches!(self, Extent::Keys(keys) if keys.as_slice().is_empty())
    }

    /// Whether the key is in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            Extent::Keys(keys) => keys.contains(key),
            Extent::Everything => true,
        }
    }

    /// Whether some key is in both.
    pub fn overlaps(&self, other: &Extent) -> bool {
        match (self, other) {
            (Extent::Everything, other) => !other.is_empty(),
            (this, Extent::Everything) => !this.is_empty(),
            (Extent::Keys(a), Extent::Keys(b)) => {
                let (few, many) = if a.as_slice().len() <= b.as_slice().len() { (a, b) } else { (b, a) };
                few.as_slice().iter().any(|key| many.contains(key))
            }
        }
    }
}

impl Keys {
    /// In ascending order, each once.
    pub fn as_slice(&self) -> &[Key] {
        match &self.0 {
            Few::None => &[],
            Few::One(key) => std::slice::from_ref(key),
            Few::Many(keys) => keys,
        }
    }

    fn contains(&self, key: &[u8]) -> bool {
        self.as_slice().binary_search_by(|probe| probe[..].cmp(key)).is_ok()
    }
}

impl FromIterator<Key> for Keys {
    fn from_iter<I: IntoIterator<Item = Key>>(keys: I) -> Self {
        let mut keys = keys.into_iter();
        let Some(first) = keys.next() else { return Keys(Few::None) };
        let Some(second) = keys.next() else { return Keys(Few::One(first)) };
        let mut all = vec![first, second];
        all.extend(keys);
        all.sort_unstable();
        all.dedup();
        match all.len() {
            1 => Keys(Few::One(all.swap_remove(0))),
            _ => Keys(Few::Many(all)),
        }
    }
}

impl Command {
    /// The keys that it reads and those that it writes.
    pub fn footprint(&self) -> Footprint {
        match self.touched() {
            Touched::Read(key) => reading(one(key)),
            Touched::Written(key) => writing(one(key)),
            Touched::Other(footprint) => footprint,
        }
    }

    /// The same, with nothing copied if its kind has one key.
    pub(crate) fn touched(&self) -> Touched<'_> {
        let footprint = match self {
            Command::Get { key }
            | Command::GetRange { key, .. }
            | Command::Length { key }
            | Command::KindOf { key }
            | Command::ExpiryOf { key }
            | Command::HashGet { key, .. }
            | Command::HashAll { key }
            | Command::HashLength { key }
            | Command::HashScan { key, .. } => return Touched::Read(key),
            Command::GetMany { keys } | Command::Exists { keys } | Command::VersionsOf { keys } => {
                reading(Extent::Keys(keys.iter().cloned().collect()))
            }
            Command::Scan { .. } | Command::Count | Command::RandomKey { .. } => reading(Extent::Everything),
            // Users and settings are no keys, and change rarely: all that must be ordered is, and more.
            Command::UserChanges | Command::Users | Command::Level | Command::Settings => {
                reading(Extent::Everything)
            }
            Command::Put { key, .. }
            | Command::Take { key }
            | Command::Increment { key, .. }
            | Command::IncrementFloat { key, .. }
            | Command::Append { key, .. }
            | Command::SetExpiry { key, .. }
            | Command::HashPut { key, .. }
            | Command::HashDelete { key, .. }
            | Command::HashIncrement { key, .. }
            | Command::Refresh { key, .. }
            | Command::PutRange { key, .. }
            | Command::HashIncrementFloat { key, .. } => return Touched::Written(key),
            Command::PutMany { pairs, .. } => {
                writing(Extent::Keys(pairs.iter().map(|(key, _)| key.clone()).collect()))
            }
            Command::Delete { keys } => writing(Extent::Keys(keys.iter().cloned().collect())),
            // What later commands may do depends on a limit and on the level; users are no keys, and change rarely.
            Command::Clear
            | Command::LimitData { .. }
            | Command::SetUsers { .. }
            | Command::DeleteUsers { .. }
            | Command::RaiseLevel { .. } => writing(Extent::Everything),
            Command::DiskFull { .. } | Command::MemoryFull { .. } => writing(Extent::NOTHING),
            Command::Batch { watched, commands } => union(watched, commands),
        };
        Touched::Other(footprint)
    }
}

fn one(key: &Key) -> Extent {
    Extent::Keys(Keys(Few::One(key.clone())))
}

fn reading(reads: Extent) -> Footprint {
    Footprint { reads, writes: Extent::NOTHING }
}

fn writing(writes: Extent) -> Footprint {
    Footprint { reads: Extent::NOTHING, writes }
}

fn union(watched: &[(Key, u64)], commands: &[Single]) -> Footprint {
    let mut reads: Vec<Bytes> = watched.iter().map(|(key, _)| key.clone()).collect();
    let mut writes = Vec::new();
    let (mut reads_all, mut writes_all) = (false, false);
    for Single(command) in commands {
        // A batch in a batch is refused when executed: it touches nothing.
        if matches!(command, Command::Batch { .. }) {
            continue;
        }
        let footprint = command.footprint();
        match footprint.reads {
            Extent::Keys(keys) => reads.extend_from_slice(keys.as_slice()),
            Extent::Everything => reads_all = true,
        }
        match footprint.writes {
            Extent::Keys(keys) => writes.extend_from_slice(keys.as_slice()),
            Extent::Everything => writes_all = true,
        }
    }
    let writes = match writes_all {
        true => Extent::Everything,
        false => Extent::Keys(writes.into_iter().collect()),
    };
    let reads = match reads_all {
        true => Extent::Everything,
        false => Extent::Keys(reads.into_iter().filter(|key| !writes.contains(key)).collect()),
    };
    Footprint { reads, writes }
}
