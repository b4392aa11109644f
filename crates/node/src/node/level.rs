//! The feature level of the group: a level that was raised is durable in the data directory before anything comes of
//! it, and a new cluster begins with the newest. Likewise how often users have been changed: a replica that starts
//! again may not know what it has executed, and must not judge by the users of before.

use std::time::Duration;

use quorate_blocks::admission;
use quorate_blocks::state::level;
use quorate_core::{Access, Answered, FeatureLevel, Outcome, Request, RequestId, Time};
use tracing::info;

use super::Loop;
use super::housekeeping::OWN;
use crate::error::NodeError;
use crate::frontend::Frontend;
use crate::storage::DirectoryMark;

/// The request for the first level; other requests of the node have other numbers.
const FIRST: RequestId = RequestId(OWN + 1);

/// How long that may take, until it is asked again.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a node does about the level.
#[derive(Debug)]
pub(super) struct Levels {
    /// Of a node with a data directory.
    mark: Option<DirectoryMark>,
    /// The highest level that was seen.
    level: FeatureLevel,
    /// From when on the first level is to be asked for, where the group may be new.
    first: Option<Time>,
}

impl Levels {
    /// `is_new`: this node is one of the members that a cluster begins with, and has never run before.
    pub(super) fn new(mark: Option<DirectoryMark>, is_new: bool) -> Levels {
        let level = mark.as_ref().map_or(FeatureLevel::FIRST, DirectoryMark::level);
        Levels { mark, level, first: is_new.then_some(Time::ZERO) }
    }
}

impl<F: Frontend> Loop<F> {
    /// Follows the level of the replica's state. Called after the machines were stepped and before anything that they
    /// have asked for leaves: what belongs to a level is neither answered, sent nor written before the directory is
    /// marked with it. The loop waits for the disk here, once for each level, and not for one that hangs.
    pub(super) fn follow_level(&mut self, now: Time) -> Result<(), NodeError> {
        self.follow_users()?;
        let Some(level) = self.machines.level().filter(|level| *level > self.levels.level) else {
            return Ok(());
        };
        if let Some(mark) = &mut self.levels.mark
            && !mark.raise(level, admission::PATIENCE).map_err(NodeError::LogFailed)?
        {
            return Err(NodeError::DiskHangs { patience: admission::PATIENCE });
        }
        self.levels.level = level;
        if !level.is_known() {
            return Err(NodeError::Level { level });
        }
        self.transport.raise_level(level, now);
        info!(level = level.get(), "the group is at feature level {level}");
        Ok(())
    }

    /// Marks the directory with the changes of users that the replica has executed.
    fn follow_users(&mut self) -> Result<(), NodeError> {
        let Some(mark) = &mut self.levels.mark else { return Ok(()) };
        let changes = self.machines.user_changes().unwrap_or(0);
        match mark.raise_users(changes, admission::PATIENCE).map_err(NodeError::LogFailed)? {
            true => Ok(()),
            false => Err(NodeError::DiskHangs { patience: admission::PATIENCE }),
        }
    }

    /// The level that this node's directory was marked with when it was opened, and the changes of users.
    pub(super) fn begin_levels(&mut self, now: Time) -> Result<(), NodeError> {
        self.clients.remember_users(self.levels.mark.as_ref().map_or(0, DirectoryMark::users));
        self.transport.raise_level(self.levels.level, now);
        self.follow_level(now)
    }

    /// Lets a new cluster begin with the newest level, before this node's clients ask for anything. If the cluster is
    /// not new, nothing comes of it.
    pub(super) fn ask_for_first_level(&mut self, now: Time) {
        let Some(next) = self.levels.first else { return };
        let to = FeatureLevel::NEWEST;
        if self.levels.level >= to {
            self.levels.first = None;
            return;
        }
        let all_know = self.transport.known_levels().values().all(|knows| *knows >= to);
        if next > now || !all_know || self.machines.level().is_none() {
            return;
        }
        self.levels.first = Some(now + PATIENCE);
        let (command, deadline) = (level::begin_with(to), now + PATIENCE);
        let request = Request { stream: OWN, command, access: Access::Write, deadline, after: 0 };
        self.machines.on_requests(std::iter::once((FIRST, request)));
    }

    /// Takes the answer to that out of those for clients.
    pub(super) fn take_first_level(&mut self, answers: &mut Vec<Answered>) {
        if self.levels.first.is_none() {
            return;
        }
        for answer in answers.extract_if(.., |answer| answer.request == FIRST) {
            if let Outcome::Done(_) = answer.outcome {
                self.levels.first = None;
            }
        }
    }
}
