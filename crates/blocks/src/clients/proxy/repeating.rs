//! What was asked and not answered for long: it is given up, asked again, or another is asked who leads.

use std::collections::BTreeSet;

use quorate_core::{Context, Time, mutation};

use super::leader::next_after;
use super::{MAX_PATIENCE, ReadCall, SessionClient};
use crate::clients::message::{Embeds, Message};

impl<M: Embeds> SessionClient<M> {
    pub(super) fn on_tick(&mut self, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        self.tick = None;
        let late = self.calls.iter().filter(|(_, call)| call.deadline <= now);
        for (_, id) in late.map(|(id, call)| (call.request, id)).collect::<BTreeSet<_>>() {
            self.give_up(id, cx);
        }
        if let Some(unhold) = self.config.unhold {
            let late = |read: &ReadCall| read.held && read.sent.is_some_and(|sent| now.since(sent) >= unhold);
            let before = self.again.len();
            self.again.extend(self.reads.iter().filter(|(_, read)| late(read)).map(|(id, _)| id));
            self.unheld.add(self.again.len() - before);
            self.unsent |= !self.again.is_empty();
        }
        self.repeat_queries(cx);
        if self.searching {
            self.redirects = 0;
            self.probe(next_after(self.candidates(), self.target), cx);
        } else if self.oldest_sent(|_| true).is_some_and(|oldest| now.since(oldest) >= self.patience) {
            self.redirects = 0;
            let since = self.oldest_sent(|read| !read.held).map(|asked| asked.max(self.heard));
            if since.is_some_and(|since| now.since(since) >= self.config.patience) {
                self.searching = true;
                // Where all serve, one that is slow may be as good as any other: it is asked again first.
                let next = next_after(self.candidates(), self.target);
                self.probe(if self.config.home { self.target } else { next }, cx);
            } else if self.is_late(now) {
                // The target lives: what is missing was lost, or waits long. Repeat, ever more patiently.
                self.patience = (self.patience * 2).min(MAX_PATIENCE);
                self.unsend();
            } else if self.are_reads_late(now) {
                self.patience = (self.patience * 2).min(MAX_PATIENCE);
                self.unsend_reads();
            }
        }
        if let Some(home) = self.away() {
            let ask = self.ask(false);
            cx.send(home, M::from(Message::Ask(ask)));
        }
        self.pump(cx);
        if self.calls.is_empty() && self.writes.is_empty() {
            self.searching = false;
            return;
        }
        let holds = self.reads.iter().any(|(_, read)| read.held);
        let pace = if self.searching { self.config.patience / 4 } else { self.patience };
        let pace = self.config.unhold.filter(|_| holds).map_or(pace, |unhold| unhold.min(pace));
        let deadline = self.calls.iter().map(|(_, call)| call.deadline).min();
        let due = deadline.into_iter().chain(self.majority.due()).fold(now + pace, Time::min);
        self.wake_by(due, cx);
    }

    /// Whether what is under way must be taken for lost. What is small is sent again at once, which costs little.
    pub(super) fn is_late(&self, now: Time) -> bool {
        let is_recent = |sent| now.since(sent) < self.config.patience;
        let is_on_its_way = || self.in_flight.is_large() && self.oldest_sent(|_| true).is_some_and(is_recent);
        self.in_flight.is_late(self.low, now) && !is_on_its_way()
    }

    /// Whether a read waits for long, and what was written before it has been answered: it was lost, or is held by whom
    /// it was asked.
    fn are_reads_late(&self, now: Time) -> bool {
        let write = self.oldest_write();
        let oldest = self.reads.iter().filter_map(|(_, read)| read.sent).min();
        let is_late = |read: Time| now.since(read) >= self.patience && write.is_none_or(|write| write > read);
        oldest.is_some_and(is_late) && !mutation::active("proxy/reads-wait-for-writes")
    }

    /// When the first write that is not answered was last sent.
    fn oldest_write(&self) -> Option<Time> {
        self.writes.iter().find(|write| !write.answered).and_then(|write| write.sent)
    }

    /// When the oldest of what is under way was last sent, of reads those that count.
    fn oldest_sent(&self, counts: impl Fn(&ReadCall) -> bool) -> Option<Time> {
        let reads = self.reads.iter().filter(|(_, read)| counts(read));
        let read = reads.filter_map(|(_, read)| read.sent).min();
        [self.oldest_write(), read, self.opening].into_iter().flatten().min()
    }
}
