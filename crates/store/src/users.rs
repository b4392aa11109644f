//! Users: who may ask for what. They are part of the replicated state, so that every node knows the same.
//!
//! A user is what their rules have made of them, in Redis's terms (ACL). Rules are executed here, one command whole, so
//! that no two administrators overwrite each other's changes. What the names of commands and categories mean is up to
//! those who take commands in: the state must not depend on which commands a version of this program has.
//!
//! A user has permissions, and may have selectors: more permissions, each by itself. A request is allowed if the user's
//! own permissions, or those of one selector, allow all of it.
//!
//! There always is a user `default`, that of connections that name nobody. As long as nothing was said of it, it may
//! do everything and needs no password.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use quorate_core::{Decoder, Encoder, FeatureLevel, Wire, WireError, wire_enum, wire_struct};

pub use self::key_rules::{KeyRule, KeyRules};
use crate::reply::CommandError;

mod key_rules;

/// The user of connections that name nobody.
pub const DEFAULT_USER: &[u8] = b"default";

/// Bytes that all users take together, at most. They are read whole, and so are the rules of one.
pub const USERS_LIMIT: usize = 1 << 20;

/// What a selector counts towards [`USERS_LIMIT`] beside its rules. Nodes keep a list of the commands that it allows,
/// which takes about as much, and every request of its user may have to be compared with it.
const SELECTOR_SIZE: usize = 4 << 10;

/// Set beside [`User::enabled`] in a user's encoding if selectors follow.
const HAS_SELECTORS: u8 = 2;

/// The SHA-256 of a password.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PasswordHash(pub [u8; 32]);

impl Wire for PasswordHash {
    fn encode(&self, out: &mut Encoder) {
        out.put_slice(&self.0);
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let bytes = input.slice(32)?;
        Ok(PasswordHash(bytes[..].try_into().expect("a slice of 32 bytes")))
    }
}

impl fmt::Debug for PasswordHash {
    /// Not the hash: logs and replays are read by more people than the state.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash")
    }
}

/// A change to a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserRule {
    /// The user may log in.
    Enable,
    /// The user may not log in.
    Disable,
    /// Any password will do; those that the user has are forgotten.
    NoPassword,
    /// One more password, by its hash.
    AddPassword(PasswordHash),
    /// Not that password any more; an error if it is none of theirs.
    RemovePassword(PasswordHash),
    /// No password at all: the user cannot log in.
    ResetPasswords,
    /// Keys that match a glob: may be read, may be written. An error if the user may use all keys.
    Keys(KeyRule),
    /// Every key, to read and write.
    AllKeys,
    /// The user may touch no key.
    ResetKeys,
    /// A command (`get`), a subcommand (`client|id`) or a category (`@read`), allowed or not; the last rule that speaks
    /// of a command counts.
    Commands(CommandRule),
    /// All commands, allowed or not; forgets the rules before.
    AllCommands(bool),
    /// As a user that was just made.
    Reset,
    /// A selector with these permissions, behind those that the user has.
    AddSelector(Permissions),
    /// Removes all selectors of the user.
    ClearSelectors,
}
wire_enum!(UserRule {
    0 => Enable,
    1 => Disable,
    2 => NoPassword,
    3 => AddPassword(hash),
    4 => RemovePassword(hash),
    5 => ResetPasswords,
    6 => Keys(rule),
    7 => AllKeys,
    8 => ResetKeys,
    9 => Commands(rule),
    10 => AllCommands(allow),
    11 => Reset,
    12 => AddSelector(permissions),
    13 => ClearSelectors,
});

impl UserRule {
    /// The level below which a command with this rule is malformed.
    pub fn level(&self) -> FeatureLevel {
        match self {
            UserRule::AddSelector(_) | UserRule::ClearSelectors => FeatureLevel::SELECTORS,
            UserRule::Enable
            | UserRule::Disable
            | UserRule::NoPassword
            | UserRule::AddPassword(_)
            | UserRule::RemovePassword(_)
            | UserRule::ResetPasswords
            | UserRule::Keys(_)
            | UserRule::AllKeys
            | UserRule::ResetKeys
            | UserRule::Commands(_)
            | UserRule::AllCommands(_)
            | UserRule::Reset => FeatureLevel::FIRST,
        }
    }
}

/// Whether a command or a category is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRule {
    /// Whether the commands are allowed, or denied.
    pub allow: bool,
    /// In lower case: `get`, `client|id`, `@read`.
    pub name: Bytes,
}
wire_struct!(CommandRule { allow, name });

impl CommandRule {
    fn detached(&self) -> CommandRule {
        CommandRule { allow: self.allow, name: Bytes::copy_from_slice(&self.name) }
    }
}

/// Which commands may be used, and on which keys: those of a user, or of one of their selectors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Whether every key may be touched.
    pub all_keys: bool,
    /// The keys that may be touched otherwise.
    pub keys: KeyRules,
    /// Whether commands may be used of which no rule speaks.
    pub all_commands: bool,
    /// The commands that may be used otherwise; later rules count more.
    pub commands: Vec<CommandRule>,
}
wire_struct!(Permissions { all_keys, keys, all_commands, commands });

impl Permissions {
    /// Changes them by one rule. Whether it is about permissions: others are about the user alone, and change nothing
    /// here.
    ///
    /// # Errors
    ///
    /// If keys are to be added to all keys; nothing is changed then.
    pub fn change(&mut self, rule: &UserRule) -> Result<bool, CommandError> {
        match rule {
            UserRule::Keys(_) if self.all_keys => return Err(CommandError::AllKeysAlready),
            UserRule::Keys(rule) => self.keys.add(rule),
            UserRule::AllKeys => {
                self.all_keys = true;
                self.keys.clear();
            }
            UserRule::ResetKeys => {
                self.all_keys = false;
                self.keys.clear();
            }
            UserRule::Commands(rule) => {
                self.commands.retain(|known| !is_within(&known.name, &rule.name));
                self.commands.push(rule.clone());
            }
            UserRule::AllCommands(allow) => {
                self.all_commands = *allow;
                self.commands.clear();
            }
            UserRule::Enable
            | UserRule::Disable
            | UserRule::NoPassword
            | UserRule::AddPassword(_)
            | UserRule::RemovePassword(_)
            | UserRule::ResetPasswords
            | UserRule::Reset
            | UserRule::AddSelector(_)
            | UserRule::ClearSelectors => return Ok(false),
        }
        Ok(true)
    }

    /// Bytes that they take, about; no less than the encoding.
    fn size(&self) -> usize {
        let keys: usize = self.keys.iter().map(|rule| 8 + rule.pattern.len()).sum();
        let commands: usize = self.commands.iter().map(|rule| 8 + rule.name.len()).sum();
        keys + commands
    }

    /// The same, without keeping a request alive that it came in.
    fn detached(&self) -> Permissions {
        Permissions {
            all_keys: self.all_keys,
            keys: self.keys.detached(),
            all_commands: self.all_commands,
            commands: self.commands.iter().map(CommandRule::detached).collect(),
        }
    }
}

/// A user: what their rules have made of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Tells a user from a later one of the same name; 0 for the default user.
    pub created: u64,
    /// Whether the user may log in.
    pub enabled: bool,
    /// Whether any password will do.
    pub no_password: bool,
    /// SHA-256 of each password that is accepted.
    pub passwords: BTreeSet<PasswordHash>,
    /// What the user may do.
    pub permissions: Permissions,
    /// What the user may do as well; a request must be allowed by one of them, or by `permissions`, whole.
    pub selectors: Vec<Permissions>,
}

/// A user without selectors is encoded as by versions that know none. They refuse one with selectors, whose second
/// field is no flag to them.
impl Wire for User {
    fn encode(&self, out: &mut Encoder) {
        self.created.encode(out);
        let has_selectors = !self.selectors.is_empty();
        out.put_u8(u8::from(self.enabled) | if has_selectors { HAS_SELECTORS } else { 0 });
        let Permissions { all_keys, keys, all_commands, commands } = &self.permissions;
        (self.no_password, *all_keys, *all_commands).encode(out);
        self.passwords.iter().copied().collect::<Vec<_>>().encode(out);
        keys.encode(out);
        commands.encode(out);
        if has_selectors {
            self.selectors.encode(out);
        }
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let created = Wire::decode(input)?;
        let flags = input.u8()?;
        if flags > HAS_SELECTORS | 1 {
            return Err(WireError::Value { what: "flag", found: flags.into() });
        }
        let (no_password, all_keys, all_commands) = Wire::decode(input)?;
        let passwords: Vec<PasswordHash> = Wire::decode(input)?;
        let passwords = passwords.into_iter().collect();
        let (keys, commands) = (Wire::decode(input)?, Wire::decode(input)?);
        let permissions = Permissions { all_keys, keys, all_commands, commands };
        let selectors = if flags & HAS_SELECTORS == 0 { Vec::new() } else { Wire::decode(input)? };
        Ok(User { created, enabled: flags & 1 == 1, no_password, passwords, permissions, selectors })
    }
}

impl User {
    /// One who may do nothing and has no password, as Redis makes them.
    pub fn new(created: u64) -> User {
        User {
            created,
            enabled: false,
            no_password: false,
            passwords: BTreeSet::new(),
            permissions: Permissions::default(),
            selectors: Vec::new(),
        }
    }

    /// The user `default` before anything was said of it.
    pub fn initial_default() -> User {
        let permissions = Permissions { all_keys: true, all_commands: true, ..Permissions::default() };
        User { enabled: true, no_password: true, permissions, ..User::new(0) }
    }

    /// Changes the user by one rule.
    ///
    /// # Errors
    ///
    /// If the rule has no effect in a way that its author cannot want, as in Redis; the user is then as before.
    pub fn change(&mut self, rule: &UserRule) -> Result<(), CommandError> {
        match rule {
            UserRule::Enable => self.enabled = true,
            UserRule::Disable => self.enabled = false,
            UserRule::NoPassword => {
                self.no_password = true;
                self.passwords.clear();
            }
            UserRule::AddPassword(hash) => {
                self.no_password = false;
                self.passwords.insert(*hash);
            }
            UserRule::RemovePassword(hash) => {
                if !self.passwords.remove(hash) {
                    return Err(CommandError::NoSuchPassword);
                }
            }
            UserRule::ResetPasswords => {
                self.no_password = false;
                self.passwords.clear();
            }
            UserRule::Keys(_)
            | UserRule::AllKeys
            | UserRule::ResetKeys
            | UserRule::Commands(_)
            | UserRule::AllCommands(_) => return self.permissions.change(rule).map(|_| ()),
            UserRule::AddSelector(permissions) => self.selectors.push(permissions.clone()),
            UserRule::ClearSelectors => self.selectors.clear(),
            UserRule::Reset => *self = User::new(self.created),
        }
        Ok(())
    }

    /// Bytes that the user takes, about; no less than the encoding.
    pub(crate) fn size(&self) -> usize {
        let selectors = self.selectors.iter().map(|selector| SELECTOR_SIZE + selector.size()).sum::<usize>();
        32 + 32 * self.passwords.len() + self.permissions.size() + selectors
    }
}

/// Whether a rule about the second name says all that one about the first says: they are the same, or the first is a
/// subcommand of the second.
fn is_within(name: &[u8], of: &[u8]) -> bool {
    name.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest[0] == b'|')
}

/// All users. A clone shares them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users {
    /// How many commands have changed users so far.
    changes: u64,
    users: Arc<BTreeMap<Bytes, User>>,
}

impl Users {
    /// How many commands have changed users so far; 0: nobody was ever named, and everybody may do everything.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// All users of whom something was said, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, &User)> {
        self.users.iter()
    }

    /// Those whose names come after this one.
    pub(crate) fn after(&self, name: Option<&Bytes>) -> impl Iterator<Item = (&Bytes, &User)> {
        let start = name.map_or(Bound::Unbounded, |name| Bound::Excluded(&name[..]));
        self.users.range::<[u8], _>((start, Bound::Unbounded))
    }

    /// Gives users rules, and makes those that are not there; with `if_none` only if nobody was ever named. Whether it
    /// did.
    pub(crate) fn set(
        &mut self,
        rules: &[(Bytes, Vec<UserRule>)],
        if_none: bool,
    ) -> Result<bool, CommandError> {
        if if_none && self.changes > 0 {
            return Ok(false);
        }
        let changes = self.changes + 1;
        let mut users = (*self.users).clone();
        for (name, rules) in rules {
            let user = users.entry(Bytes::copy_from_slice(name)).or_insert_with(|| match &name[..] {
                DEFAULT_USER => User::initial_default(),
                _ => User::new(changes),
            });
            rules.iter().try_for_each(|rule| user.change(&detached(rule)))?;
        }
        if users.iter().map(|(name, user)| name.len() + user.size()).sum::<usize>() > USERS_LIMIT {
            return Err(CommandError::TooManyUsers);
        }
        *self = Users { changes, users: Arc::new(users) };
        Ok(true)
    }

    /// These are the users now, whoever they were: as if nobody else had ever been named.
    pub(crate) fn replace(&mut self, rules: &[(Bytes, Vec<UserRule>)]) -> Result<(), CommandError> {
        let mut users = Users { changes: self.changes, users: Arc::default() };
        users.set(rules, false)?;
        *self = users;
        Ok(())
    }

    /// Removes users; how many there were. The default user stays.
    pub(crate) fn delete(&mut self, names: &[Bytes]) -> usize {
        let mut users = (*self.users).clone();
        let named = names.iter().filter(|name| name[..] != *DEFAULT_USER);
        let count = named.filter(|name| users.remove(&name[..]).is_some()).count();
        if count > 0 {
            *self = Users { changes: self.changes + 1, users: Arc::new(users) };
        }
        count
    }

    /// As they are in an image: so many changes, then one user after the other.
    pub(crate) fn load(changes: u64) -> Users {
        Users { changes, users: Arc::default() }
    }

    /// The next user of an image. Whether it may come next.
    pub(crate) fn push(&mut self, name: Bytes, user: User) -> bool {
        let users = Arc::make_mut(&mut self.users);
        let comes_next = users.last_key_value().is_none_or(|(last, _)| *last < name);
        let fits = name.len() + user.size() <= USERS_LIMIT;
        let is_default = name[..] == *DEFAULT_USER;
        let is_possible = user.created <= self.changes && (user.created == 0) == is_default;
        users.insert(name, user);
        comes_next && fits && is_possible
    }
}

/// A rule that does not keep the request alive that it came in.
fn detached(rule: &UserRule) -> UserRule {
    match rule {
        UserRule::Keys(rule) => UserRule::Keys(rule.detached()),
        UserRule::Commands(rule) => UserRule::Commands(rule.detached()),
        UserRule::AddSelector(permissions) => UserRule::AddSelector(permissions.detached()),
        rule => rule.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(word: &str) -> UserRule {
        let text = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let keys = |read, write, pattern| UserRule::Keys(KeyRule { read, write, pattern: text(pattern) });
        match word {
            "on" => UserRule::Enable,
            "off" => UserRule::Disable,
            "nopass" => UserRule::NoPassword,
            "resetpass" => UserRule::ResetPasswords,
            "~*" => UserRule::AllKeys,
            "resetkeys" => UserRule::ResetKeys,
            "reset" => UserRule::Reset,
            "clear" => UserRule::ClearSelectors,
            "+@all" => UserRule::AllCommands(true),
            "-@all" => UserRule::AllCommands(false),
            word => match word.split_at(1) {
                (">", hash) => UserRule::AddPassword(PasswordHash([hash.as_bytes()[0]; 32])),
                ("<", hash) => UserRule::RemovePassword(PasswordHash([hash.as_bytes()[0]; 32])),
                ("~", pattern) => keys(true, true, pattern),
                ("r", pattern) => keys(true, false, pattern),
                ("w", pattern) => keys(false, true, pattern),
                ("(", words) => {
                    let mut permissions = Permissions::default();
                    let rules = words.split(',').filter(|word| !word.is_empty()).map(rule);
                    rules.for_each(|rule| assert_eq!(permissions.change(&rule), Ok(true)));
                    UserRule::AddSelector(permissions)
                }
                (sign, name) => UserRule::Commands(CommandRule { allow: sign == "+", name: text(name) }),
            },
        }
    }

    fn show(user: &User) -> String {
        let mut words = vec![if user.enabled { "on" } else { "off" }.to_owned()];
        words.extend(user.no_password.then(|| "nopass".to_owned()));
        words.extend(user.passwords.iter().map(|hash| format!(">{}", hash.0[0] as char)));
        words.extend(permissions(&user.permissions));
        words.extend(user.selectors.iter().map(|one| format!("({}", permissions(one).join(","))));
        words.join(" ")
    }

    fn permissions(permissions: &Permissions) -> Vec<String> {
        let mut words = Vec::new();
        words.extend(permissions.all_keys.then(|| "~*".to_owned()));
        words.extend(permissions.keys.iter().map(|rule| {
            let sign = ["?", "w", "r", "~"][usize::from(rule.read) * 2 + usize::from(rule.write)];
            format!("{sign}{}", String::from_utf8_lossy(&rule.pattern))
        }));
        words.push(if permissions.all_commands { "+@all" } else { "-@all" }.to_owned());
        words.extend(permissions.commands.iter().map(|rule| {
            format!("{}{}", if rule.allow { "+" } else { "-" }, String::from_utf8_lossy(&rule.name))
        }));
        words
    }

    #[test]
    fn rules_make_a_user_as_in_redis() {
        let table = "
            on                           → on -@all
            on nopass ~* +@all           → on nopass ~* +@all
            >a >b <a                     → off >b -@all
            nopass >a                    → off >a -@all
            >a nopass                    → off nopass -@all
            >a resetpass                 → off -@all
            <a                           → error
            ~x ry wx ry                  → off ~x ry -@all
            rx wx                        → off ~x -@all
            ~x ~*                        → off ~* -@all
            ~* ~x                        → error
            ~* resetkeys ~x              → off ~x -@all
            +get -get +get               → off -@all +get
            +client|id -client           → off -@all -client
            -client +client|id           → off -@all -client +client|id
            +clients +client             → off -@all +clients +client
            +@read -get +@all            → off +@all
            +@read -get -@all            → off -@all
            on nopass ~* +@all reset     → off -@all
            ~x (~y,+get (+@all           → off ~x -@all (~y,-@all,+get (+@all
            (rx,wx,+get,+get             → off -@all (~x,-@all,+get
            ( +get                       → off -@all +get (-@all
            (~y,+get (+set clear (+del   → off -@all (-@all,+del
            (~y,+get -@all resetkeys     → off -@all (~y,-@all,+get
            on (~y,+get reset            → off -@all
        ";
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (rules, expected) = line.split_once('→').unwrap();
            let mut user = User::new(7);
            let done = rules.split_whitespace().try_for_each(|word| user.change(&rule(word)));
            let found = done.map_or_else(|_| "error".to_owned(), |()| show(&user));
            assert_eq!(found, expected.trim(), "{line}");
            assert_eq!((user.created, User::from_bytes(user.to_bytes())), (7, Ok(user)));
        }
    }

    #[test]
    fn versions_that_know_no_selectors_refuse_only_users_who_have_some() {
        let mut user = User { enabled: true, ..User::new(7) };
        let enabled = |user: &User| user.to_bytes()[8];
        assert_eq!(enabled(&user), 1);
        user.change(&rule("(~x,+get")).unwrap();
        // Their flags are 0 or 1.
        assert_eq!(enabled(&user), 3);
        user.change(&UserRule::ClearSelectors).unwrap();
        assert_eq!(enabled(&user), 1);
        let mut bytes = user.to_bytes().to_vec();
        bytes[8] = 4;
        assert!(User::from_bytes(bytes.into()).is_err());
    }

    #[test]
    fn a_user_cannot_have_so_many_selectors_that_each_request_takes_long() {
        let mut users = Users::default();
        let many = |count| [(Bytes::from_static(b"a"), vec![rule("("); count])];
        assert_eq!(users.set(&many(255), false), Ok(true));
        assert_eq!(users.set(&many(1), false), Err(CommandError::TooManyUsers));
    }

    #[test]
    fn a_command_changes_all_users_it_names_or_none() {
        let name = |text: &'static str| Bytes::from_static(text.as_bytes());
        let mut users = Users::default();
        let first = [(name("a"), vec![rule("on")]), (name("default"), vec![rule("off")])];
        assert_eq!(users.set(&first, true), Ok(true));
        assert_eq!(users.set(&first, true), Ok(false));
        let before = users.clone();
        let refused = [(name("a"), vec![rule("off")]), (name("b"), vec![rule("<x")])];
        assert_eq!(users.set(&refused, false), Err(CommandError::NoSuchPassword));
        let long =
            UserRule::Keys(KeyRule { read: true, write: true, pattern: vec![b'x'; USERS_LIMIT].into() });
        assert_eq!(users.set(&[(name("b"), vec![long])], false), Err(CommandError::TooManyUsers));
        assert_eq!(users, before);
        // Removed and made again, it is somebody else; the default user stays who it is.
        assert_eq!(users.delete(&[name("a"), name("a"), name("default"), name("z")]), 1);
        assert_eq!(users.delete(&[name("z")]), 0);
        assert_eq!(users.set(&first, false), Ok(true));
        let created: Vec<_> = users.iter().map(|(_, user)| user.created).collect();
        assert_eq!((created, users.changes()), (vec![3, 0], 3));
        assert_eq!(users.replace(&refused), Err(CommandError::NoSuchPassword));
        assert_eq!(users.replace(&[(name("z"), vec![rule("on")])]), Ok(()));
        assert_eq!(users.iter().map(|(name, user)| (&name[..], user.created)).next(), Some((&b"z"[..], 4)));
    }
}
