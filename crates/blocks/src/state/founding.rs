//! The data of one group as those with which another begins.

use bytes::Bytes;
use quorate_core::mutation;
use quorate_store::users::Users;
use quorate_store::{CommandError, Store, UserRule};

use super::{Origin, Replicated};
use crate::instance::{Executed, Instance};

impl Replicated {
    /// What a new group begins with whose data are these: the store, as after a first slot of whichever protocol, and
    /// nothing of the group that it comes from. Its sessions end, so that a write of theirs which comes late is refused
    /// and not executed a second time; configuration, roster and the last entry's origin are the new group's own.
    ///
    /// Positions go on from those of the old group, and start at 1 at least: a member that has nothing can tell that it
    /// lacks the state, and gets an image of it.
    pub fn found(mut self) -> Replicated {
        self.sessions.end_all();
        self.store.settle();
        let applied = if mutation::active("state/founded-at-zero") { 0 } else { self.applied.max(1) };
        Replicated {
            applied,
            executed: Executed::default(),
            // Versions go on growing, whether slots or instances gave them.
            revision: self.revision.max(self.store.revision()),
            time: self.time.max(self.store.time()),
            origin: Origin::default(),
            configuration: None,
            roster: None,
            store: self.store,
            sessions: self.sessions,
        }
    }

    /// The same for a group in which these instances count as executed: nobody executes them, they stand for the state
    /// that all members begin with.
    pub fn found_after(self, instances: &[Instance]) -> Replicated {
        let mut state = Replicated { applied: instances.len() as u64, ..self.found() };
        instances.iter().for_each(|instance| state.executed.insert(*instance));
        state.store.settle_unordered();
        state
    }

    /// Gives the data of a new cluster these users in place of those that they have
    /// ([`Store::replace_users`]).
    pub fn replace_users(&mut self, users: &[(Bytes, Vec<UserRule>)]) -> Result<(), CommandError> {
        self.store.replace_users(users)
    }

    /// The users that the data have.
    pub fn users(&self) -> &Users {
        self.store.users()
    }

    /// Of a protocol that has a store and no log: what another group may begin with.
    pub fn of(store: Store) -> Replicated {
        Replicated { applied: 1, store, ..Replicated::default() }.found()
    }
}
