//! What clients can ask of the store. RESP, and later etcd's API, translate to these.

use bytes::Bytes;
use quorate_core::{Access, Decoder, Encoder, FeatureLevel, NodeId, Shortage, Wire, WireError, wire_enum};

use crate::reply::{CommandError, Kind};
use crate::users::UserRule;

/// A key: any bytes, empty included.
pub type Key = Bytes;

/// One command. It is executed whole: no other command sees it half done, and an error changes nothing. (In a
/// [`Batch`](Command::Batch), as in Redis's MULTI, each command fails alone: those around it stay done.)
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are what the variants name")]
pub enum Command {
    /// The string at a key. → [`Reply::Value`](crate::Reply::Value)
    Get { key: Key },
    /// The strings at several keys; absent for keys of another kind. → `Values`
    GetMany { keys: Vec<Key> },
    /// Bytes `start..=end` of a string, negative numbers from its end, as Redis GETRANGE. → `Value` (never absent)
    GetRange { key: Key, start: i64, end: i64 },
    /// The length of a string, 0 if absent. → `Integer`
    Length { key: Key },
    /// How many of the keys exist, counting repeats. → `Integer`
    Exists { keys: Vec<Key> },
    /// The kind of value at a key. → `Kind`
    KindOf { key: Key },
    /// When a key expires. → `Expires`
    ExpiryOf { key: Key },
    /// The version of each key: the revision of its last change, 0 if absent. → `Versions`
    VersionsOf { keys: Vec<Key> },
    /// Sets a key to a string, whatever it was. → `Done` or `Skipped`; with `old`, the string before as `Value`
    /// either way (an error if it is no string).
    Put { key: Key, value: Bytes, condition: Condition, expiry: Expiry, old: bool },
    /// Sets several keys, without expiry; with `if_none` only when none exists. → `Done` or `Skipped`
    PutMany { pairs: Vec<(Key, Bytes)>, if_none: bool },
    /// Removes keys. → `Integer`, how many there were
    Delete { keys: Vec<Key> },
    /// Removes a string and returns it. → `Value`
    Take { key: Key },
    /// Adds to an integer, absent as 0. → `Integer`
    Increment { key: Key, by: i64 },
    /// Adds to a number, absent as 0; `by` is the decimal text the client sent. → `Value`
    IncrementFloat { key: Key, by: Bytes },
    /// Appends to a string, absent as empty. → `Integer`, the new length
    Append { key: Key, value: Bytes },
    /// Changes when an existing key expires. → `Integer`, 1 if it did (also to the same time), 0 for an absent key,
    /// where the condition does not hold, and for `Never` where none was set
    SetExpiry { key: Key, expiry: Expiry, condition: ExpiryCondition },
    /// Sets fields of a hash; with `if_absent` only those that are not there. → `Integer`, how many are new
    HashPut { key: Key, fields: Vec<(Bytes, Bytes)>, if_absent: bool },
    /// Fields of a hash. → `Values`
    HashGet { key: Key, fields: Vec<Bytes> },
    /// All of a hash that has at most [`SCAN_ITEMS`](crate::SCAN_ITEMS) fields, in the order of scans. → `Pairs`
    HashAll { key: Key },
    /// How many fields a hash has. → `Integer`
    HashLength { key: Key },
    /// Removes fields, and the key with its last field. → `Integer`, how many there were
    HashDelete { key: Key, fields: Vec<Bytes> },
    /// Adds to an integer field. → `Integer`
    HashIncrement { key: Key, field: Bytes, by: i64 },
    /// Keys from a position in the order on (0: all), that match a Redis glob if one is given, and hold values of a
    /// kind if one is given. At most `limit` keys are looked at, at least one, and no more than
    /// [`SCAN_ITEMS`](crate::SCAN_ITEMS); fewer if the reply or the matching of the pattern becomes too much; more if
    /// several have the same position. → `Keys`
    Scan { from: u64, limit: u32, pattern: Option<Bytes>, kind: Option<Kind> },
    /// How many keys there are. → `Integer`
    Count,
    /// A key chosen by a number; absent if there is none, or if nearly all have just expired. Any key may be chosen,
    /// not all equally often. → `Value`
    RandomKey { seed: u64 },
    /// Removes all keys. → `Done`
    Clear,
    /// Several commands (no batches) as one, if every watched key still has its version. → `Batch`
    Batch { watched: Vec<(Key, u64)>, commands: Vec<Single> },
    /// Returns a string and changes when it expires. → `Value`
    Refresh { key: Key, expiry: Expiry },
    /// Overwrites a string from a position on, absent as empty; zeros fill the gap. Writing nothing changes
    /// nothing. → `Integer`, the new length
    PutRange { key: Key, offset: u64, value: Bytes },
    /// Adds to a field that is a number, absent as 0; `by` is the decimal text the client sent. → `Value`
    HashIncrementFloat { key: Key, field: Bytes, by: Bytes },
    /// Fields of a hash from a position in the order on (0: all), that match a Redis glob if one is given; bounded as
    /// [`Scan`](Command::Scan). → `Fields`
    HashScan { key: Key, from: u64, limit: u32, pattern: Option<Bytes> },
    /// Bounds the data from now on, or no longer: where they take as much ([`Store::bytes`](crate::Store::bytes)), what
    /// [grows](Command::grows) them is refused. Only where all commands are ordered, and not in a batch. → `Done`, or
    /// an error if they take more already
    LimitData { bytes: Option<u64> },
    /// Changes nothing: the leader, this node, has put it in the place of a command that [grows](Command::grows) the
    /// data, because its disk is nearly full. → `Error`
    DiskFull { node: u64 },
    /// The same, where nothing else bounds the data: the node's memory is nearly used up. → `Error`
    MemoryFull { node: u64 },
    /// How many commands have changed users so far. → `Integer`
    UserChanges,
    /// All users. → `Users`
    Users,
    /// Gives users rules, one after the other, and makes those that are not there; with `if_none` only if nobody was
    /// ever named. → `Done` or `Skipped`
    SetUsers { users: Vec<(Bytes, Vec<UserRule>)>, if_none: bool },
    /// Removes users, but for the default user. → `Integer`, how many there were
    DeleteUsers { users: Vec<Bytes> },
    /// The [feature level](FeatureLevel) of the state. → `Integer`
    Level,
    /// Raises that; with `if_new` only as the first command of all (where not all commands are ordered, while there is
    /// no key and nobody was ever named). Not in a batch. → `Done`, or `Skipped` if it is higher already or was not to
    /// be raised
    RaiseLevel { to: FeatureLevel, if_new: bool },
    /// The settings that all nodes share, by name ([`settings`](crate::settings)). → `Pairs`
    Settings,
}

wire_enum!(Command {
    0 => Get { key },
    1 => GetMany { keys },
    2 => GetRange { key, start, end },
    3 => Length { key },
    4 => Exists { keys },
    5 => KindOf { key },
    6 => ExpiryOf { key },
    7 => VersionsOf { keys },
    8 => Put { key, value, condition, expiry, old },
    9 => PutMany { pairs, if_none },
    10 => Delete { keys },
    11 => Take { key },
    12 => Increment { key, by },
    13 => IncrementFloat { key, by },
    14 => Append { key, value },
    15 => SetExpiry { key, expiry, condition },
    16 => HashPut { key, fields, if_absent },
    17 => HashGet { key, fields },
    18 => HashAll { key },
    19 => HashLength { key },
    20 => HashDelete { key, fields },
    21 => HashIncrement { key, field, by },
    22 => Scan { from, limit, pattern, kind },
    23 => Count,
    24 => RandomKey { seed },
    25 => Clear,
    26 => Batch { watched, commands },
    27 => Refresh { key, expiry },
    28 => PutRange { key, offset, value },
    29 => HashIncrementFloat { key, field, by },
    30 => HashScan { key, from, limit, pattern },
    31 => LimitData { bytes },
    32 => DiskFull { node },
    33 => UserChanges,
    34 => Users,
    35 => SetUsers { users, if_none },
    36 => DeleteUsers { users },
    37 => Level,
    38 => RaiseLevel { to, if_new },
    39 => Settings,
    40 => MemoryFull { node },
});

/// The tag of [`Command::Batch`] on the wire.
const BATCH: u8 = 26;

impl Command {
    /// Whether it may change the store. A batch reads if all its commands do.
    pub fn access(&self) -> Access {
        if self.is_read_only() { Access::Read } else { Access::Write }
    }

    /// Whether it changes nothing, whatever is stored.
    pub fn is_read_only(&self) -> bool {
        self.effect() == Effect::Reads
    }

    /// Whether it may leave more data behind than there were. What only removes, or changes when a key expires, does
    /// not.
    pub fn grows(&self) -> bool {
        self.effect() == Effect::Grows
    }

    /// What takes the place of a command that this node refuses, since it is short of that.
    pub fn refusal(shortage: Shortage, node: NodeId) -> Command {
        let node = node.get().into();
        match shortage {
            Shortage::Disk => Command::DiskFull { node },
            Shortage::Memory => Command::MemoryFull { node },
        }
    }

    /// What clients are told, if it is in the place of one that was refused.
    pub fn refused(&self) -> Option<CommandError> {
        match *self {
            Command::DiskFull { node } => Some(CommandError::DiskFull { node }),
            Command::MemoryFull { node } => Some(CommandError::MemoryFull { node }),
            _ => None,
        }
    }

    /// The level below which it is [malformed](crate::CommandError::Malformed), as it is to builds that do not know it.
    pub fn level(&self) -> FeatureLevel {
        match self {
            Command::SetUsers { users, .. } => {
                let rules = users.iter().flat_map(|(_, rules)| rules);
                rules.map(UserRule::level).max().unwrap_or_default()
            }
            Command::Batch { commands, .. } => {
                let levels = commands.iter().map(|Single(command)| match command {
                    // Not by recursion, as in `effect`.
                    Command::Batch { .. } => FeatureLevel::FIRST,
                    command => command.level(),
                });
                levels.max().unwrap_or_default()
            }
            _ => FeatureLevel::FIRST,
        }
    }

    /// The most that it may do, whatever is stored.
    fn effect(&self) -> Effect {
        match self {
            Command::Get { .. }
            | Command::GetMany { .. }
            | Command::GetRange { .. }
            | Command::Length { .. }
            | Command::Exists { .. }
            | Command::KindOf { .. }
            | Command::ExpiryOf { .. }
            | Command::VersionsOf { .. }
            | Command::HashGet { .. }
            | Command::HashAll { .. }
            | Command::HashLength { .. }
            | Command::HashScan { .. }
            | Command::Scan { .. }
            | Command::Count
            | Command::UserChanges
            | Command::Users
            | Command::Level
            | Command::Settings
            | Command::RandomKey { .. } => Effect::Reads,
            Command::Delete { .. }
            | Command::Take { .. }
            | Command::SetExpiry { .. }
            | Command::HashDelete { .. }
            | Command::Refresh { .. }
            | Command::Clear
            | Command::LimitData { .. }
            | Command::DiskFull { .. }
            | Command::MemoryFull { .. }
            | Command::SetUsers { .. }
            | Command::DeleteUsers { .. }
            | Command::RaiseLevel { .. } => Effect::Changes,
            Command::Put { .. }
            | Command::PutMany { .. }
            | Command::Increment { .. }
            | Command::IncrementFloat { .. }
            | Command::Append { .. }
            | Command::HashPut { .. }
            | Command::HashIncrement { .. }
            | Command::HashIncrementFloat { .. }
            | Command::PutRange { .. } => Effect::Grows,
            Command::Batch { commands, .. } => {
                let effects = commands.iter().map(|Single(command)| match command {
                    // Not by recursion: a batch in a batch, which only a program can build, is refused when executed.
                    Command::Batch { .. } => Effect::Reads,
                    command => command.effect(),
                });
                effects.max().unwrap_or(Effect::Reads)
            }
        }
    }
}

/// The most that a command may do to the data, from the least to the most.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Effect {
    /// It changes nothing.
    Reads,
    /// It removes, or changes what is no data: when a key expires, settings, users.
    Changes,
    /// It may leave more data behind than there were.
    Grows,
}

/// Tags of the commands whose first field is a key.
const KEYED: u32 = 0b0111_1000_0011_1111_1111_1001_0110_1101;

/// The key that an encoded command begins with, if its kind does and the bytes are there. A hint: nothing else of it is
/// looked at.
pub fn first_key(encoded: &[u8]) -> Option<&[u8]> {
    let (tag, rest) = encoded.split_first()?;
    let (len, rest) = rest.split_first_chunk()?;
    let keyed = KEYED.checked_shr((*tag).into()).is_some_and(|keyed| keyed & 1 == 1);
    rest.get(..u32::from_le_bytes(*len) as usize).filter(|_| keyed)
}

/// Tags of the commands that are a key, a value, and a few bytes.
const VALUED: [u8; 2] = [8, 14];
/// So many of them at most.
const BEHIND_VALUE: usize = 19;

/// How long an encoded command is whose first bytes these are, in bytes and at most, if they tell: of those that may be
/// very long, a put and an append do. A hint, like [`first_key`].
pub fn announced_len(encoded: &[u8]) -> Option<usize> {
    let valued = encoded.first().is_some_and(|tag| VALUED.contains(tag));
    let value = 1 + 4 + first_key(encoded).filter(|_| valued)?.len();
    let len = encoded.get(value..)?.first_chunk()?;
    Some(value + 4 + u32::from_le_bytes(*len) as usize + BEHIND_VALUE)
}

/// When a put happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The key is set, whatever is there.
    Always,
    /// Only if the key does not exist.
    IfAbsent,
    /// Only if the key exists.
    IfPresent,
    /// Only if the key has this version (0: does not exist).
    IfVersion(u64),
}
wire_enum!(Condition { 0 => Always, 1 => IfAbsent, 2 => IfPresent, 3 => IfVersion(version) });

/// What becomes of a key's expiry. Decided by replicated time when the command is executed, so that every replica
/// expires the key at the same position of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// None from now on.
    Never,
    /// The key goes on to expire when it did, or never.
    Keep,
    /// In this many milliseconds; at once if that is not in the future.
    In(i64),
    /// At this many milliseconds since the Unix epoch; at once if that is not in the future.
    At(i64),
}
wire_enum!(Expiry { 0 => Never, 1 => Keep, 2 => In(millis), 3 => At(millis) });

/// Which expiry a key must have for it to be changed. A key that never expires counts as one that expires last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryCondition {
    /// Whether the key expires or not.
    Always,
    /// Only if the key never expires.
    IfNone,
    /// Only if the key is to expire.
    IfAny,
    /// One that is before the new one.
    IfLater,
    /// None, or one that is after the new one.
    IfEarlier,
    /// One that is after the new one.
    IfAnyEarlier,
}
wire_enum!(ExpiryCondition {
    0 => Always, 1 => IfNone, 2 => IfAny, 3 => IfLater, 4 => IfEarlier, 5 => IfAnyEarlier,
});

/// A command that is no batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Single(pub Command);

impl Wire for Single {
    fn encode(&self, out: &mut Encoder) {
        self.0.encode(out);
    }
    /// Refuses a batch before it reads on, so that forged bytes cannot recurse.
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let rest = input.slice(input.remaining())?;
        if rest.first() == Some(&BATCH) {
            return Err(WireError::Value { what: "command in a batch", found: BATCH.into() });
        }
        *input = Decoder::new(rest);
        Command::decode(input).map(Single)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_and_an_append_tell_their_length_by_their_first_bytes_and_others_do_not() {
        let (key, value) = (Key::from_static(b"key"), Bytes::from_static(b"value"));
        let put = |condition, expiry| Command::Put {
            key: key.clone(),
            value: value.clone(),
            condition,
            expiry,
            old: true,
        };
        let append = Command::Append { key: key.clone(), value: value.clone() };
        let longest = put(Condition::IfVersion(7), Expiry::In(9));
        let lens = [(&longest, 0), (&put(Condition::Always, Expiry::Never), 16), (&append, 19)];
        for (command, spare) in lens {
            let encoded = command.to_bytes();
            for cut in 0..encoded.len() {
                let told = (cut >= 1 + 4 + key.len() + 4).then_some(encoded.len() + spare);
                assert_eq!(announced_len(&encoded[..cut]), told, "{command:?} cut at {cut}");
            }
        }
        for other in [Command::Get { key: key.clone() }, Command::PutRange { key, offset: 1, value }] {
            assert_eq!(announced_len(&other.to_bytes()), None);
        }
    }
}
