//! Tables of commands and their replies: `tests/tables/*.txt`, one line each.
//!
//! ```text
//! revision time  command → reply
//! 3        500   put k "v w" if-absent in 100 → done
//! -        -     get k → "v w"            a read of the present state: no position in the log
//! -        700   advance → 1              how many keys expired
//! fresh                                   from here on another store
//! ```
//!
//! After every line the books are checked: memory, deadlines, and that the image loads back.

use std::fmt::Write;

use bytes::Bytes;
use quorate_core::{Image, Wall, Wire};
use quorate_store::order::position;
use quorate_store::{
    Command, CommandRule, Condition, Expires, Expiry, ExpiryCondition, KeyRule, Kind, Loader, PasswordHash,
    Permissions, Reply, Single, Store, User, UserRule,
};

#[test]
fn strings() {
    run(include_str!("tables/strings.txt"));
}

#[test]
fn hashes() {
    run(include_str!("tables/hashes.txt"));
}

#[test]
fn expiry() {
    run(include_str!("tables/expiry.txt"));
}

#[test]
fn keys() {
    run(include_str!("tables/keys.txt"));
}

#[test]
fn batches() {
    run(include_str!("tables/batches.txt"));
}

#[test]
fn users() {
    run(include_str!("tables/users.txt"));
}

fn run(table: &str) {
    let mut store = Store::new();
    let mut checked = 0;
    for (number, line) in table.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line == "fresh" {
            store = Store::new();
            continue;
        }
        let (left, expected) =
            line.split_once('→').unwrap_or_else(|| panic!("line {}: no reply", number + 1));
        let mut words = Words(left.trim());
        let (revision, time) = (words.raw(), words.raw());
        let found = match (revision, time) {
            ("-", "-") => show(&store.read(&words.command())),
            ("-", time) => {
                assert_eq!(words.raw(), "advance", "line {}", number + 1);
                store.advance(Wall::from_millis(time.parse().unwrap())).to_string()
            }
            (revision, time) => {
                let now = Wall::from_millis(time.parse().unwrap());
                let command = words.command();
                assert_eq!(
                    Command::from_bytes(command.to_bytes()).as_ref(),
                    Ok(&command),
                    "line {}",
                    number + 1
                );
                show(&store.apply(&command, revision.parse().unwrap(), now))
            }
        };
        assert_eq!(found, expected.trim(), "line {}: {left}", number + 1);
        check(&store);
        checked += 1;
    }
    assert!(checked > 0);
}

/// What the store counts must be what is there: a store that is built anew from the image counts the same.
fn check(store: &Store) {
    let image = store.freeze();
    let mut loader = Loader::new();
    let mut cursor = Bytes::new();
    loop {
        let piece = image.piece(&cursor, 64);
        loader.push(piece.bytes).unwrap();
        match piece.next {
            Some(next) => cursor = next,
            None => break,
        }
    }
    let loaded = loader.finish().unwrap();
    assert_eq!((loaded.bytes(), loaded.len()), (store.bytes(), store.len()));
    assert_eq!(loaded.next_expiry(), store.next_expiry());
    assert_eq!(loaded, *store);
    assert_eq!(loaded.digest(), store.digest());
}

/// What is left of a line.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    /// The next word as it stands, empty at the end.
    fn raw(&mut self) -> &'a str {
        self.0 = self.0.trim_start();
        let end = self.0.find(' ').unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        word
    }

    fn peek(&self) -> &'a str {
        Words(self.0).raw()
    }

    /// Takes the next word if it is this one.
    fn take(&mut self, word: &str) -> bool {
        let is = self.peek() == word;
        if is {
            self.raw();
        }
        is
    }

    /// The next word, which may be quoted, as bytes. `\xHH` is one byte.
    fn bytes(&mut self) -> Bytes {
        self.0 = self.0.trim_start();
        let Some(quoted) = self.0.strip_prefix('"') else { return self.raw().as_bytes().to_vec().into() };
        let (text, rest) = quoted.split_once('"').expect("a closing quote");
        self.0 = rest;
        let mut bytes = Vec::new();
        let mut parts = text.split("\\x");
        bytes.extend_from_slice(parts.next().unwrap().as_bytes());
        for part in parts {
            bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
            bytes.extend_from_slice(&part.as_bytes()[2..]);
        }
        bytes.into()
    }

    fn all(&mut self) -> Vec<Bytes> {
        std::iter::from_fn(|| (!self.peek().is_empty()).then(|| self.bytes())).collect()
    }

    fn pairs(&mut self) -> Vec<(Bytes, Bytes)> {
        self.all().chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
    }

    fn number<N: std::str::FromStr>(&mut self) -> N {
        let word = self.raw();
        word.parse().unwrap_or_else(|_| panic!("{word} is no number"))
    }

    fn condition(&mut self) -> Condition {
        match self.peek() {
            "if-absent" => self.take("if-absent").then_some(Condition::IfAbsent).unwrap(),
            "if-present" => self.take("if-present").then_some(Condition::IfPresent).unwrap(),
            "if-version" => {
                self.raw();
                Condition::IfVersion(self.number())
            }
            _ => Condition::Always,
        }
    }

    fn expiry(&mut self) -> Expiry {
        match self.peek() {
            "in" => {
                self.raw();
                Expiry::In(self.number())
            }
            "at" => {
                self.raw();
                Expiry::At(self.number())
            }
            "keep" => {
                self.raw();
                Expiry::Keep
            }
            _ => {
                self.take("never");
                Expiry::Never
            }
        }
    }

    fn expiry_condition(&mut self) -> ExpiryCondition {
        [
            ("if-none", ExpiryCondition::IfNone),
            ("if-any-earlier", ExpiryCondition::IfAnyEarlier),
            ("if-any", ExpiryCondition::IfAny),
            ("if-later", ExpiryCondition::IfLater),
            ("if-earlier", ExpiryCondition::IfEarlier),
        ]
        .into_iter()
        .find_map(|(word, condition)| self.take(word).then_some(condition))
        .unwrap_or(ExpiryCondition::Always)
    }

    fn command(&mut self) -> Command {
        let name = self.raw();
        let command = match name {
            "get" => Command::Get { key: self.bytes() },
            "get-many" => Command::GetMany { keys: self.all() },
            "range" => Command::GetRange { key: self.bytes(), start: self.number(), end: self.number() },
            "length" => Command::Length { key: self.bytes() },
            "exists" => Command::Exists { keys: self.all() },
            "kind" => Command::KindOf { key: self.bytes() },
            "expiry" => Command::ExpiryOf { key: self.bytes() },
            "versions" => Command::VersionsOf { keys: self.all() },
            "put" => Command::Put {
                key: self.bytes(),
                value: self.bytes(),
                condition: self.condition(),
                expiry: self.expiry(),
                old: self.take("old"),
            },
            "put-many" => Command::PutMany { if_none: self.take("if-none"), pairs: self.pairs() },
            "delete" => Command::Delete { keys: self.all() },
            "take" => Command::Take { key: self.bytes() },
            "increment" => Command::Increment { key: self.bytes(), by: self.number() },
            "increment-float" => Command::IncrementFloat { key: self.bytes(), by: self.bytes() },
            "append" => Command::Append { key: self.bytes(), value: self.bytes() },
            "expire" => Command::SetExpiry {
                key: self.bytes(),
                expiry: self.expiry(),
                condition: self.expiry_condition(),
            },
            "refresh" => Command::Refresh { key: self.bytes(), expiry: self.expiry() },
            "put-range" => {
                Command::PutRange { key: self.bytes(), offset: self.number(), value: self.bytes() }
            }
            "hash-increment-float" => {
                Command::HashIncrementFloat { key: self.bytes(), field: self.bytes(), by: self.bytes() }
            }
            "hash-put" => Command::HashPut {
                key: self.bytes(),
                if_absent: self.take("if-absent"),
                fields: self.pairs(),
            },
            "hash-get" => Command::HashGet { key: self.bytes(), fields: self.all() },
            "hash-all" => Command::HashAll { key: self.bytes() },
            "hash-length" => Command::HashLength { key: self.bytes() },
            "hash-delete" => Command::HashDelete { key: self.bytes(), fields: self.all() },
            "hash-increment" => {
                Command::HashIncrement { key: self.bytes(), field: self.bytes(), by: self.number() }
            }
            "scan" => Command::Scan {
                from: if self.take("from") { position(&self.bytes()) } else { 0 },
                limit: if self.take("limit") { self.number() } else { u32::MAX },
                pattern: self.take("match").then(|| self.bytes()),
                kind: self.take("hashes").then_some(Kind::Hash),
            },
            "hash-scan" => Command::HashScan {
                key: self.bytes(),
                from: if self.take("from") { position(&self.bytes()) } else { 0 },
                limit: if self.take("limit") { self.number() } else { u32::MAX },
                pattern: self.take("match").then(|| self.bytes()),
            },
            "count" => Command::Count,
            "random" => Command::RandomKey { seed: self.number() },
            "clear" => Command::Clear,
            "user-changes" => Command::UserChanges,
            "users" => Command::Users,
            "set-user" => {
                let if_none = self.take("if-none");
                let name = self.bytes();
                Command::SetUsers {
                    users: vec![(name, self.all().iter().map(|word| rule(word)).collect())],
                    if_none,
                }
            }
            "delete-users" => Command::DeleteUsers { users: self.all() },
            "batch" => return self.batch(),
            name => panic!("no command {name}"),
        };
        assert_eq!(self.0.trim(), "", "left over after {name}");
        command
    }

    /// `batch key@version … ; command ; command`
    fn batch(&mut self) -> Command {
        let mut parts = std::mem::take(&mut self.0).split(" ; ");
        let watched = parts.next().unwrap().split_whitespace().map(|watched| {
            let (key, version) = watched.split_once('@').expect("key@version");
            (key.as_bytes().to_vec().into(), version.parse().unwrap())
        });
        Command::Batch {
            watched: watched.collect(),
            commands: parts.map(|part| Single(Words(part).command())).collect(),
        }
    }
}

/// As in ACL SETUSER; a password's hash is its first byte, many times; the rules of a selector are `(one,two`.
fn rule(word: &[u8]) -> UserRule {
    let text = Bytes::copy_from_slice(&word[1..]);
    let hash = PasswordHash([*word.last().unwrap(); 32]);
    match (word, word[0]) {
        (b"on", _) => UserRule::Enable,
        (b"off", _) => UserRule::Disable,
        (b"nopass", _) => UserRule::NoPassword,
        (b"~*", _) => UserRule::AllKeys,
        (b"+@all", _) => UserRule::AllCommands(true),
        (_, b'>') => UserRule::AddPassword(hash),
        (_, b'<') => UserRule::RemovePassword(hash),
        (b"clearselectors", _) => UserRule::ClearSelectors,
        (_, b'(') => {
            let mut permissions = Permissions::default();
            let rules = text.split(|byte| *byte == b',').map(rule);
            rules.for_each(|rule| assert_eq!(permissions.change(&rule), Ok(true)));
            UserRule::AddSelector(permissions)
        }
        (_, b'~') => UserRule::Keys(KeyRule { read: true, write: true, pattern: text }),
        (_, sign) => UserRule::Commands(CommandRule { allow: sign == b'+', name: text }),
    }
}

/// A user's name, when it was made, and what it may do.
fn user_text((name, user): &(Bytes, User)) -> String {
    let mut out = format!("{} of {}", text(name), user.created);
    let flags = [(user.enabled, " on"), (user.no_password, " nopass")];
    flags.into_iter().filter(|(holds, _)| *holds).for_each(|(_, word)| out.push_str(word));
    user.passwords.iter().for_each(|hash| write!(out, " >{}", char::from(hash.0[0])).unwrap());
    out.push_str(&permissions_text(&user.permissions));
    user.selectors.iter().for_each(|selector| write!(out, " ({} )", permissions_text(selector)).unwrap());
    out
}

fn permissions_text(permissions: &Permissions) -> String {
    let mut out = String::new();
    out.push_str(if permissions.all_keys { " ~*" } else { "" });
    out.push_str(if permissions.all_commands { " +@all" } else { "" });
    permissions.keys.iter().for_each(|rule| write!(out, " ~{}", text(&rule.pattern)).unwrap());
    for rule in &permissions.commands {
        write!(out, " {}{}", if rule.allow { '+' } else { '-' }, text(&rule.name)).unwrap();
    }
    out
}

fn show(reply: &Reply) -> String {
    match reply {
        Reply::Done => "done".into(),
        Reply::Skipped => "skipped".into(),
        Reply::Value(value) => value_text(value.as_ref()),
        Reply::Values(values) => list(values.iter().map(|value| value_text(value.as_ref()))),
        Reply::Integer(number) => number.to_string(),
        Reply::Kind(None) => "no kind".into(),
        Reply::Kind(Some(Kind::String)) => "string".into(),
        Reply::Kind(Some(Kind::Hash)) => "hash".into(),
        Reply::Expires(Expires::Missing) => "missing".into(),
        Reply::Expires(Expires::Never) => "never".into(),
        Reply::Expires(Expires::At(millis)) => format!("at {millis}"),
        Reply::Versions(versions) => list(versions.iter().map(u64::to_string)),
        Reply::Pairs(pairs) => {
            list(pairs.iter().map(|(field, value)| format!("{}={}", text(field), text(value))))
        }
        Reply::Keys { keys, next } => format!("{}{}", list(keys.iter().map(|key| text(key))), then(*next)),
        Reply::Fields { pairs, next, version } => {
            let pairs = pairs.iter().map(|(field, value)| format!("{}={}", text(field), text(value)));
            format!("{}{} at {version}", list(pairs), then(*next))
        }
        Reply::Batch(None) => "changed".into(),
        Reply::Batch(Some(replies)) => list(replies.iter().map(show)),
        Reply::Error(error) => format!("error: {error}"),
        Reply::NotRetained => "not retained".to_owned(),
        Reply::Users { changes, users } => format!("{} after {changes}", list(users.iter().map(user_text))),
    }
}

/// Which of the keys and fields of the tables a scan goes on from.
fn then(next: Option<u64>) -> String {
    let names = ["user:1", "user:2", "user:10", "item", "users", "a", "b", "c", "d"];
    let at = |position| names.iter().find(|name| quorate_store::order::position(name.as_bytes()) == position);
    next.map_or(String::new(), |next| format!(" then {}", at(next).expect("a name of the tables")))
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

fn value_text(value: Option<&Bytes>) -> String {
    value.map_or("nil".into(), |value| text(value))
}

fn text(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for byte in bytes {
        match byte {
            b' '..=b'~' => out.push(char::from(*byte)),
            byte => write!(out, "\\x{byte:02x}").unwrap(),
        }
    }
    out + "\""
}
