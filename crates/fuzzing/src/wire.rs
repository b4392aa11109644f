//! What the store and the protocols write to the wire and to the log.

use std::fmt::Debug;
use std::sync::LazyLock;

use bytes::Bytes;
use quorate_blocks::parts::{Assembly, Cut, Kept, Part};
use quorate_core::{FeatureLevel, Image, Payload, Wall, Wire};
use quorate_groups::Groups;
use quorate_protocols::registry;
use quorate_runtime::AnyProtocol;
use quorate_store::{
    Command, CommandRule, Condition, Expires, Expiry, ExpiryCondition, KeyRule, Kind, Loader, PasswordHash,
    Permissions, Reply, Single, Store, UserRule,
};

use crate::conversation;

/// What decodes is encoded to something that decodes to the same.
pub fn read_back<T: Wire + Debug>(bytes: Bytes) -> Option<T> {
    let value = T::from_bytes(bytes).ok()?;
    let once = value.to_bytes();
    let again = T::from_bytes(once.clone()).expect("what was encoded decodes");
    assert_eq!(once, again.to_bytes());
    assert_eq!(format!("{value:?}"), format!("{again:?}"));
    Some(value)
}

/// Commands are read back; executed one after the other, they leave a store whose image gives the same store.
pub fn command(data: &[u8]) {
    let input = Bytes::copy_from_slice(data);
    let Some(commands) = read_back::<Vec<Command>>(input.clone()) else {
        if read_back::<Command>(input.clone()).is_none() {
            parts(&input);
        }
        return;
    };
    let mut store = Store::new();
    for (index, command) in commands.iter().enumerate() {
        let footprint = command.footprint();
        // A write that names no key writes none.
        assert!(footprint.is_read_only() || !command.is_read_only());
        store.is_current(command, Wall::from_millis(1 << 50));
        let before = command.is_read_only().then(|| store.clone());
        let revision = index as u64 + 1;
        let reply = store.apply(command, revision, Wall::from_millis(1000 * revision));
        assert_eq!(Reply::from_bytes(reply.to_bytes()), Ok(reply));
        assert!(before.is_none_or(|before| before.revision() == store.revision()), "a read wrote");
    }
    reload(&store, 64);
}

/// Parts, one after the other as they come: none is kept beyond the bound, and only what they are makes a whole.
fn parts(input: &Bytes) {
    let Some(parts) = read_back::<Vec<Part>>(input.clone()) else { return };
    let (mut assembly, share) = (Assembly::default(), 1000);
    for part in parts {
        let bytes = part.bytes.clone();
        if let Kept::Whole(whole) = assembly.take(part, share) {
            assert!(whole.ends_with(&bytes) && whole.len() <= share);
        }
        assert!(assembly.parts().iter().map(Bytes::len).sum::<usize>() <= share);
    }
}

fn reload(store: &Store, limit: usize) {
    let mut loader = Loader::new();
    for piece in store.freeze().pieces(limit) {
        loader.push(piece).expect("an image of a store is valid");
    }
    let again = loader.finish().expect("an image of a store is whole");
    assert_eq!(again.digest(), store.digest());
}

fn commands() -> Vec<Command> {
    let word = |text: &'static str| Bytes::from_static(text.as_bytes());
    let (key, value, field) = (word("k"), word("10"), word("f"));
    let put = |expiry, condition, old| Command::Put {
        key: key.clone(),
        value: value.clone(),
        condition,
        expiry,
        old,
    };
    let put_all = put(Expiry::Never, Condition::Always, false);
    vec![
        put_all.clone(),
        put(Expiry::In(1500), Condition::IfPresent, true),
        put(Expiry::At(9000), Condition::IfVersion(2), false),
        put(Expiry::Keep, Condition::IfAbsent, true),
        Command::PutMany {
            pairs: vec![(word("a"), value.clone()), (word("b"), field.clone())],
            if_none: true,
        },
        Command::Get { key: key.clone() },
        Command::GetMany { keys: vec![key.clone(), word("x")] },
        Command::GetRange { key: key.clone(), start: -2, end: 5 },
        Command::Length { key: key.clone() },
        Command::Exists { keys: vec![key.clone()] },
        Command::KindOf { key: key.clone() },
        Command::ExpiryOf { key: key.clone() },
        Command::VersionsOf { keys: vec![key.clone()] },
        Command::Increment { key: key.clone(), by: -3 },
        Command::IncrementFloat { key: key.clone(), by: word("1.5e3") },
        Command::Append { key: key.clone(), value: value.clone() },
        Command::SetExpiry { key: key.clone(), expiry: Expiry::In(700), condition: ExpiryCondition::Always },
        Command::HashPut { key: word("h"), fields: vec![(field.clone(), value.clone())], if_absent: false },
        Command::HashGet { key: word("h"), fields: vec![field.clone()] },
        Command::HashAll { key: word("h") },
        Command::HashLength { key: word("h") },
        Command::HashIncrement { key: word("h"), field: field.clone(), by: 4 },
        Command::HashDelete { key: word("h"), fields: vec![field] },
        Command::Scan { from: 1 << 52, limit: 3, pattern: Some(word("[a-k]*")), kind: Some(Kind::Hash) },
        Command::HashScan { key: word("h"), from: 5, limit: 3, pattern: None },
        Command::Count,
        Command::RandomKey { seed: 9 },
        Command::Batch {
            watched: vec![(key.clone(), 1)],
            commands: vec![Single(put_all), Single(Command::Count)],
        },
        Command::Take { key: key.clone() },
        Command::Delete { keys: vec![key] },
        Command::Clear,
        Command::UserChanges,
        Command::Users,
        Command::SetUsers {
            users: vec![(
                word("u"),
                vec![
                    UserRule::Enable,
                    UserRule::AddPassword(PasswordHash([7; 32])),
                    UserRule::Keys(KeyRule { read: true, write: false, pattern: word("k*") }),
                    UserRule::Commands(CommandRule { allow: true, name: word("@read") }),
                    UserRule::AddSelector(Permissions {
                        all_keys: true,
                        commands: vec![CommandRule { allow: true, name: word("get") }],
                        ..Permissions::default()
                    }),
                ],
            )],
            if_none: true,
        },
        Command::DeleteUsers { users: vec![word("u")] },
        Command::Level,
        Command::RaiseLevel { to: FeatureLevel::SELECTORS, if_new: false },
        Command::Settings,
    ]
}

pub fn command_seeds() -> Vec<Vec<u8>> {
    let all = commands();
    let mut seeds = vec![all.to_bytes().to_vec(), all[..20].to_vec().to_bytes().to_vec()];
    let mut cut = Cut::new(&all[0].to_bytes()).expect("a put");
    let parts = std::iter::from_fn(|| Some(cut.next(1, 8)));
    let mut is_over = false;
    let parts = parts.take_while(|(_, is_last)| !std::mem::replace(&mut is_over, *is_last));
    let parts: Vec<_> = parts.map(|(part, _)| Part::of(&part).expect("a part")).collect();
    seeds.push(parts.to_bytes().to_vec());
    seeds.extend(all.into_iter().map(|command| command.to_bytes().to_vec()));
    seeds
}

/// Replies are read back.
pub fn reply(data: &[u8]) {
    read_back::<Reply>(Bytes::copy_from_slice(data));
}

pub fn reply_seeds() -> Vec<Vec<u8>> {
    let mut store = Store::new();
    let mut replies: Vec<Reply> =
        (1..).zip(commands()).map(|(at, command)| store.apply(&command, at, Wall::ZERO)).collect();
    replies.push(Reply::Expires(Expires::At(7)));
    replies.push(Reply::Kind(Some(Kind::Hash)));
    replies.into_iter().map(|reply| reply.to_bytes().to_vec()).collect()
}

/// An image from elsewhere, in pieces, is refused or gives a store whose own image gives it again.
pub fn snapshot(data: &[u8]) {
    let Ok(pieces) = Vec::<Bytes>::from_bytes(Bytes::copy_from_slice(data)) else { return };
    let mut loader = Loader::new();
    for piece in pieces {
        if loader.push(piece).is_err() {
            assert!(loader.push(Bytes::new()).is_err(), "refused for ever");
            return;
        }
    }
    if let Ok(store) = loader.finish() {
        reload(&store, 1 << 10);
    }
}

pub fn snapshot_seeds() -> Vec<Vec<u8>> {
    let mut store = Store::new();
    let mut seeds = Vec::new();
    for (revision, command) in (1..).zip(commands()) {
        store.apply(&command, revision, Wall::ZERO);
        seeds.push(store.freeze().pieces(64).to_bytes().to_vec());
    }
    seeds
}

/// Two groups in a process, with a protocol each.
static GROUPS: LazyLock<Groups> = LazyLock::new(|| {
    Groups::parse(registry::named("raft"), "a-m=epaxos,n-z", None).expect("groups that can be")
});

/// Every protocol, and groups of some.
fn all_protocols() -> impl Iterator<Item = &'static dyn AnyProtocol> {
    let groups: &'static dyn AnyProtocol = &*GROUPS;
    registry::all().into_iter().map(|entry| entry.protocol).chain([groups])
}

/// Messages and records of every protocol are read back.
pub fn protocols(data: &[u8]) {
    let input = Bytes::copy_from_slice(data);
    for protocol in all_protocols() {
        let process = conversation::process(protocol);
        if let Ok(once) = process.recode_message(&input) {
            assert_eq!(process.recode_message(&once).as_ref(), Ok(&once));
            assert_eq!(process.describe_message(&input), process.describe_message(&once));
        }
        if let Ok(once) = process.recode_record(&input) {
            assert_eq!(process.recode_record(&once).as_ref(), Ok(&once));
            let [input, once] = [&input, &once].map(|bytes| Payload::Whole(bytes.clone()));
            assert_eq!(process.describe_record(&input), process.describe_record(&once));
        }
    }
}

pub fn protocol_seeds() -> Vec<Vec<u8>> {
    all_protocols().flat_map(conversation::overhear).collect()
}
