//! Once a heartbeat a learner tells the others how far it is, and forgets what nobody needs from it any more.

use quorate_core::Context;

use super::Learner;
use super::message::{Host, Message, Progress};
use super::rejoin::Standing;
use crate::graph::Frontier;

impl Learner {
    /// After each heartbeat: tells how far this one is, and forgets what nobody needs from here any more.
    pub fn tick<M: Host>(&mut self, cx: &mut Context<'_, M>) {
        self.horizon.advance(self.me, self.state.executed().prefix());
        let progress = self.progress();
        let message = Message::Progress { progress, wall: cx.wall() };
        cx.send_all(self.config.members.without(self.me), message.into());
        self.source.retention(0, 0, cx.now());
        self.collect(&progress);
        self.go_on_rejoining(cx);
        if self.is_whole() {
            let turn = (self.config.members, 2 * self.config.heartbeat);
            let time = self.time(cx.now(), cx.wall());
            self.requests.let_expire(turn, self.next, &self.state, time);
        }
    }

    pub(super) fn progress(&self) -> Progress {
        let (executed, collected) = (self.state.executed().prefix(), self.collected);
        Progress { executed, collected, floor: self.floor() }
    }

    pub(super) fn floor(&self) -> Frontier {
        // One that rejoins does not know what the instances of its previous life depend on.
        match self.standing {
            Standing::Rejoining(_) => Frontier::default(),
            _ => self.horizon.floor(self.state.executed().prefix()),
        }
    }

    fn collect(&mut self, progress: &Progress) {
        let own = progress.executed;
        let safe = self.horizon.safe(progress.floor);
        let mut upto = safe;
        if self.bytes > self.config.retain {
            upto = upto.union(&self.horizon.kept_by_a_majority(own));
        }
        self.settled.retain(|instance, _| !safe.contains(*instance));
        if upto.within(&self.collected) {
            return;
        }
        let Learner { table, state, settled, bytes, .. } = self;
        table.retain(|instance, held| {
            let goes = upto.contains(*instance) && state.executed().contains(*instance);
            if goes {
                *bytes -= held.bytes().min(*bytes);
                if !safe.contains(*instance) && !held.state.noop {
                    settled.insert(*instance, std::mem::take(&mut held.touched));
                }
            }
            !goes
        });
        self.collected = self.collected.union(&upto.intersection(&own));
        self.bound(&safe);
    }

    /// Keeps the memory of who touched what within its limit.
    fn bound(&mut self, safe: &Frontier) {
        if self.seen.len() > self.config.keys {
            self.seen.forget(safe);
        }
        if self.seen.len() > 2 * self.config.keys {
            self.seen.forget(&self.state.executed().prefix());
        }
        let mut keys: usize = self.settled.values().map(|touched| touched.len() + 1).sum();
        while keys > 4 * self.config.keys {
            let (instance, touched) = self.settled.pop_first().expect("there are keys");
            keys -= touched.len() + 1;
            self.forgotten.add(instance);
        }
    }
}
