//! Who may ask for what: Redis's access control lists (ACL), over users that are part of the replicated state.
//!
//! A node judges by the users in its own state: a change counts here from the moment it is applied here, and whoever
//! made it here is answered no earlier. A follower that lags judges by what it knows. A process that has no state, or
//! none yet, asks the group for the users, and again when its copy is a second old ([`Knowledge`]).
//!
//! | file | what |
//! |---|---|
//! | `rules` | the words of ACL SETUSER, and back |
//! | `file` | the first users of a cluster, from a file |
//! | `categories` | which commands are in which category |
//! | `permissions` | what a user may do |
//! | `log` | what was denied: ACL LOG |

mod categories;
pub(super) mod file;
pub(super) mod log;
mod permissions;
pub(super) mod rules;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::{Time, Wire};
use quorate_node::frontend::NodeView;
use quorate_store::{Command, DEFAULT_USER, PasswordHash, Reply, User, UserRule};
use ring::digest::{SHA256, digest};

use super::commands::Spec;
use super::request::Args;
pub(super) use categories::{CATEGORIES, of as categories_of};
use log::Log;
use permissions::Allowed;

/// So long a process without a state of its own judges by users that the group has told it.
const COPY_LASTS: Duration = Duration::from_secs(1);

/// The first users of a cluster: their names and rules.
pub type FirstUsers = Vec<(Bytes, Vec<UserRule>)>;

/// Whom a connection has been authenticated as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) name: Bytes,
    /// A user who was removed and made again under the same name is another one.
    created: u64,
}

/// How well the users are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// As well as this process can.
    Current,
    /// They were known, and may have changed.
    Old,
    /// Nothing is known of them.
    None,
}

/// Why a request is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Denial {
    NotAuthenticated,
    Command,
    Key(Bytes),
    /// The users are not known: no majority has told them.
    Unknown,
}

impl Denial {
    /// As Redis words it.
    pub(super) fn text(&self, spec: &Spec) -> String {
        match self {
            Denial::NotAuthenticated if spec.name == "hello" => {
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
                 <user> <pass> option can be used to authenticate the client and select the RESP protocol version at \
                 the same time"
                    .to_owned()
            }
            Denial::NotAuthenticated => "NOAUTH Authentication required.".to_owned(),
            Denial::Unknown => {
                "CLUSTERDOWN no majority has answered who the users are: this node cannot tell who may ask".to_owned()
            }
            Denial::Command => {
                format!("NOPERM this user has no permissions to run the '{}' command", spec.name)
            }
            Denial::Key(_) => {
                "NOPERM this user has no permissions to access one of the keys used as arguments".to_owned()
            }
        }
    }
}

/// A user, and what that comes to.
#[derive(Debug)]
struct Account {
    user: User,
    allowed: Allowed,
}

impl Account {
    fn new(user: User) -> Account {
        Account { allowed: Allowed::new(&user), user }
    }

    /// Whether whoever is authenticated as this user, which is possible, may change users.
    fn is_administrator(&self) -> bool {
        let User { enabled, no_password, passwords, .. } = &self.user;
        *enabled && (*no_password || !passwords.is_empty()) && self.allowed.has_command("acl|setuser")
    }
}

/// What a process knows of users.
#[derive(Debug)]
pub(super) struct Acl {
    /// By name; the default user is always there.
    accounts: BTreeMap<Bytes, Account>,
    /// Whether whoever is not authenticated may ask for everything.
    open: bool,
    /// How many changes had been made to users then.
    changes: u64,
    /// When the group told that, to a process that has no state of its own.
    told: Option<Time>,
    /// When a change of users was answered here last: what was asked before may lack it.
    changed: Option<Time>,
    /// Whether the node's own state tells.
    knows: bool,
    /// The turn of the node's loop in which that was looked at.
    turn: Option<u64>,
    /// How often users had been changed before the process started, at least.
    least: u64,
    /// The users that a new cluster begins with, as far as this process has been told.
    first: Option<FirstUsers>,
    pub(super) log: Log,
}

fn read(node: &dyn NodeView, command: &Command) -> Option<Reply> {
    Reply::from_bytes(node.read(&command.to_bytes())?).ok()
}

/// How often users have been changed in the node's own state, if it has one.
fn changes(node: &dyn NodeView) -> Option<u64> {
    match read(node, &Command::UserChanges)? {
        Reply::Integer(changes) => Some(changes as u64),
        _ => None,
    }
}

impl Acl {
    pub(super) fn new(first: Option<FirstUsers>) -> Acl {
        let mut acl = Acl {
            accounts: BTreeMap::new(),
            open: false,
            changes: 0,
            told: None,
            changed: None,
            knows: false,
            turn: None,
            least: 0,
            first,
            log: Log::default(),
        };
        acl.learn(0, Vec::new());
        acl
    }

    /// Learns from the node's own state what has changed there, once in a turn of its loop.
    pub(super) fn refresh(&mut self, node: &dyn NodeView) {
        let turn = node.turn();
        if turn.is_some() && self.turn == turn {
            return;
        }
        self.turn = turn;
        let tells = node.is_member() && (self.knows || node.knows_users());
        // A state that has yet to come as far as what the group has told, or as it was itself before the process
        // started, does not count.
        let Some(own) = tells.then(|| changes(node)).flatten() else { return self.knows = false };
        let least = self.changes.max(self.least);
        self.knows |= own >= least && (self.told.is_some() || !node.catches_up());
        if self.knows
            && own != self.changes
            && let Some(Reply::Users { changes, users }) = read(node, &Command::Users)
        {
            self.learn(changes, users);
        }
    }

    /// Users had been changed so often before the process started, at least.
    pub(super) fn remember(&mut self, changes: u64) {
        self.least = changes;
    }

    /// Learns from the group, which has told it now or later than that moment.
    pub(super) fn learn_from_group(&mut self, asked: Time, changes: u64, users: Vec<(Bytes, User)>) {
        // Of two replies the one with more changes is later.
        if changes >= self.changes || self.told.is_none() {
            self.learn(changes, users);
        }
        self.told = self.told.max(Some(asked));
    }

    /// A change of users was answered now: whoever has asked for it is judged by it from then on.
    pub(super) fn on_changed(&mut self, now: Time) {
        self.changed = Some(now);
    }

    fn learn(&mut self, changes: u64, users: Vec<(Bytes, User)>) {
        self.changes = changes;
        self.accounts = users.into_iter().map(|(name, user)| (name, Account::new(user))).collect();
        let default = Bytes::from_static(DEFAULT_USER);
        self.accounts.entry(default).or_insert_with(|| Account::new(User::initial_default()));
        self.open = self.of(None).is_some_and(|default| default.allowed.is_everything());
    }

    /// Whether every request of this connection may be served, known without a look at it.
    pub(super) fn serves_everything(&self, identity: Option<&Identity>, now: Time) -> bool {
        self.open && identity.is_none() && self.knowledge(now) == Knowledge::Current
    }

    /// How well the users are known at this moment.
    pub(super) fn knowledge(&self, now: Time) -> Knowledge {
        if self.knows {
            // The state has no users yet, although the cluster is to begin with some.
            return match self.changes == 0 && self.first.is_some() {
                true => Knowledge::None,
                false => Knowledge::Current,
            };
        }
        match self.told {
            Some(told) if now.since(told) <= COPY_LASTS && Some(told) >= self.changed => Knowledge::Current,
            Some(_) => Knowledge::Old,
            None => Knowledge::None,
        }
    }

    /// What to ask the group for so that the users are known.
    pub(super) fn question(&self) -> Command {
        match &self.first {
            Some(users) if self.knows => Command::SetUsers { users: users.clone(), if_none: true },
            _ => Command::Users,
        }
    }

    /// Whether the user may be authenticated with this password; whom the connection belongs to then.
    pub(super) fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Identity> {
        // The hash is made for whoever asks: how long the answer takes does not tell which users there are.
        let hash = hash(password);
        let (name, Account { user, .. }) = self.accounts.get_key_value(name)?;
        let fits = user.passwords.iter().fold(false, |fits, known| fits | is_equal(known, &hash));
        let may = user.enabled && (user.no_password || fits);
        may.then(|| Identity { name: name.clone(), created: user.created })
    }

    /// Whether the default user needs no password.
    pub(super) fn default_needs_no_password(&self) -> bool {
        self.accounts[DEFAULT_USER].user.no_password
    }

    /// Whose connection it is now; `None` if it must be authenticated first.
    fn of(&self, identity: Option<&Identity>) -> Option<&Account> {
        match identity {
            None => {
                let default = &self.accounts[DEFAULT_USER];
                (default.user.enabled && default.user.no_password).then_some(default)
            }
            Some(Identity { name, created }) => {
                let account = self.accounts.get(&name[..])?;
                let is_same = account.user.created == *created;
                (account.user.enabled && is_same).then_some(account)
            }
        }
    }

    /// Whether a connection is a user's, be it the default user's who needs no password.
    pub(super) fn is_user(&self, identity: Option<&Identity>) -> bool {
        self.of(identity).is_some()
    }

    /// Whether a connection may ask for this.
    pub(super) fn judge(
        &self,
        identity: Option<&Identity>,
        spec: &'static Spec,
        args: &Args<'_>,
    ) -> Result<(), Denial> {
        if needs_no_user(spec) {
            return Ok(());
        }
        let account = self.of(identity).ok_or(Denial::NotAuthenticated)?;
        account.allowed.check(spec, args)
    }

    /// Whether a user may ask for this once authenticated, be it a user who is switched off; `None` if there is none.
    pub(super) fn permits(
        &self,
        name: &[u8],
        spec: &'static Spec,
        args: &Args<'_>,
    ) -> Option<Result<(), Denial>> {
        let account = self.accounts.get(name)?;
        Some(if needs_no_user(spec) { Ok(()) } else { account.allowed.check(spec, args) })
    }

    /// Users by name.
    pub(super) fn users(&self) -> impl ExactSizeIterator<Item = (&Bytes, &User)> {
        self.accounts.iter().map(|(name, account)| (name, &account.user))
    }

    /// Whether somebody can change users now, and nobody could if those that `goes` names went and this one came.
    pub(super) fn locks_out(&self, goes: impl Fn(&[u8]) -> bool, comes: Option<&User>) -> bool {
        let mut administrators =
            self.accounts.iter().filter(|(_, account)| account.is_administrator()).peekable();
        let is_possible = administrators.peek().is_some();
        let is_next = comes.is_some_and(|user| Account::new(user.clone()).is_administrator());
        is_possible && !is_next && administrators.all(|(name, _)| goes(name))
    }

    pub(super) fn user(&self, name: &[u8]) -> Option<&User> {
        self.accounts.get(name).map(|account| &account.user)
    }
}

/// Whether a command is served whoever asks; HELLO looks for itself, once it has done what it says about users.
pub(super) fn needs_no_user(spec: &Spec) -> bool {
    matches!(spec.name, "auth" | "hello" | "quit" | "reset")
}

/// Whether a command changes who the users are, or what they may do.
pub(super) fn changes_users(spec: &Spec) -> bool {
    matches!(spec.name, "acl|setuser" | "acl|deluser")
}

/// Whether a request is to authenticate its connection.
pub(super) fn names_user(spec: &Spec, args: &Args<'_>) -> bool {
    spec.name == "auth" || spec.name == "hello" && args.from(2).any(|word| word.eq_ignore_ascii_case(b"auth"))
}

/// Whether a command tells how the process is, and nothing of what is stored: it is served even while nobody can say
/// who may ask, so that an operator can find out why.
pub(super) fn is_diagnostic(spec: &Spec) -> bool {
    matches!(spec.name, "ping" | "info" | "quorate|status" | "hello" | "quit" | "reset")
}

/// The name of a connection's user.
pub(super) fn name_of(identity: Option<&Identity>) -> &[u8] {
    identity.map_or(DEFAULT_USER, |identity| &identity.name)
}

pub(super) fn hash(password: &[u8]) -> PasswordHash {
    PasswordHash(digest(&SHA256, password).as_ref().try_into().expect("a SHA-256 has 32 bytes"))
}

/// Takes as long whatever the bytes are.
fn is_equal(a: &PasswordHash, b: &PasswordHash) -> bool {
    a.0.iter().zip(b.0).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}
