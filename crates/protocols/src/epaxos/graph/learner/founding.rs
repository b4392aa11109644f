//! Groups that begin with a state, and what is left of one that has lost its majority.

use quorate_blocks::instance::{Frontier, Instance};
use quorate_blocks::state::Replicated;
use quorate_core::{Salvaged, Saved, Snapshot};

use super::message::Record;
use super::{Learner, LearnerConfig};

impl Learner {
    /// A group that begins with a state: the first instance of each member stands for it. It counts as a no-op that is
    /// executed and collected everywhere, so whoever has nothing lacks it, and can get it by a snapshot alone.
    pub fn found(config: &LearnerConfig, state: &Snapshot) -> Saved<Record> {
        let first: Vec<_> = config.members.iter().map(|owner| Instance::new(owner, 1)).collect();
        let state = Replicated::load(state).expect("an image that was made loads").found_after(&first);
        let (next, collected, floor) = (2, state.executed().prefix(), Frontier::default());
        let records = vec![Record::Saved { next, collected, floor }];
        Saved { restarted: true, snapshot: Some(state.freeze()), records }
    }

    /// What is committed with all that it depends on. In which order the rest would have been executed only a majority
    /// can tell.
    pub fn salvage(&self) -> Salvaged {
        let held = self.table.keys().filter(|instance| !self.is_executed(**instance));
        Salvaged { state: self.state.freeze(), undecided: 0, left_out: held.count() as u64 }
    }
}
