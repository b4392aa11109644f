//! Who is let in when it has said who it is.
//!
//! Two processes of the same id must not take part. A node that lost power or its network, however, does not close its
//! connections: when it is back, what is left of its former one here looks like another process of its id, until the
//! system gives it up, which takes it several seconds. So the old connection is asked before the new one is refused: a
//! machine that has restarted resets it at once, a process that is there answers, and one that does neither has been
//! silent for long enough.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bytes::Bytes;
use quorate_blocks::admission::Verdict;
use quorate_core::{FeatureLevel, NodeId, ProcessId, Time};
use quorate_tls::Process;
use tracing::{info, warn};

use super::handshake::{Answer, Hello, name, node_of};
use super::inbound::{Inbound, Stage};
use super::link::Link;
use super::{Token, Transport};
use crate::guard::other_reach;

/// Which of these connections gives way to one from this address, by their addresses and until when they may be silent:
/// the first of the address that has most of them, unless the new one would be as many; else the first of all, if that
/// one has taken long.
fn gives_way(
    silent: impl Iterator<Item = (IpAddr, Time, usize)>,
    address: IpAddr,
    has_taken_long: impl Fn(Time) -> bool,
) -> Option<usize> {
    let mut of_addresses: BTreeMap<IpAddr, (usize, (Time, usize))> = BTreeMap::new();
    for (address, until, index) in silent {
        let (count, first) = of_addresses.entry(address).or_insert((0, (until, index)));
        *count += 1;
        *first = (*first).min((until, index));
    }
    let own = of_addresses.get(&address).map_or(0, |(count, _)| *count);
    let (most, first_of_most) = of_addresses.values().copied().max()?;
    if own + 1 < most {
        return Some(first_of_most.1);
    }
    let (until, index) = of_addresses.values().map(|(_, first)| *first).min()?;
    has_taken_long(until).then_some(index)
}

impl Transport {
    /// Whether one more connection may come from this address that has not said who it is. Where there are too many,
    /// one of those is closed, so that whoever opens connections and is silent on them keeps no member out.
    pub(super) fn has_room_for_stranger(&mut self, address: IpAddr, now: Time) -> bool {
        let limit = self.limits.strangers;
        if self.strangers < limit {
            return true;
        }
        let silent = self.inbound.iter().filter_map(|(index, inbound)| match inbound.stage {
            Stage::Stranger { until } | Stage::Leaving { until } => {
                Some((inbound.address.ip(), until, index))
            }
            Stage::Claimant { .. } | Stage::Learning { .. } | Stage::Known { .. } => None,
        });
        let aged = now + self.limits.handshake;
        let Some(index) = gives_way(silent, address, |until| aged >= until + self.limits.gives_way) else {
            return false;
        };
        self.over(index, Some(format!("it and {limit} others have not said who they are")), now);
        true
    }

    /// A process has said who it is.
    pub(super) fn on_hello(&mut self, index: usize, hello: Hello, now: Time) {
        if let Some(reason) = self.objection(index, &hello) {
            return self.refuse(index, &hello, reason, now);
        }
        match self.twin(&hello) {
            None => self.introduce(index, hello, now),
            Some((_, reason)) if node_of(hello.me).is_none() => self.refuse(index, &hello, reason, now),
            Some((twin, _)) => {
                self.inbound[twin].probe();
                self.mark_dirty(twin);
                let until = now + self.limits.silence / 2;
                self.inbound[index].stage = Stage::Claimant { until };
                self.claimants.insert(index, hello);
            }
        }
    }

    /// Lets in those who waited for the end of another connection of their process, if that is over now or does not
    /// answer, and refuses them if it does.
    pub(super) fn judge_claimants(&mut self, now: Time) {
        for index in self.claimants.keys().copied().collect::<Vec<_>>() {
            let Some(hello) = self.claimants.get(&index).cloned() else { continue };
            let late = self.inbound[index].deadline().is_some_and(|until| until <= now);
            match self.twin(&hello) {
                Some((twin, reason)) => match self.inbound[twin].answered {
                    Some(true) => {
                        self.claimants.remove(&index);
                        self.inbound[twin].answered = None;
                        self.refuse(index, &hello, reason, now);
                    }
                    Some(false) if late => {
                        let silence = self.limits.silence / 2;
                        let why = format!("it restarted, and did not answer here for {silence:?}");
                        self.over(twin, Some(why), now);
                        self.claimants.remove(&index);
                        self.introduce(index, hello, now);
                    }
                    Some(false) => {}
                    // Another claimant was faster, or asked before.
                    None => {
                        self.claimants.remove(&index);
                        self.on_hello(index, hello, now);
                    }
                },
                None => {
                    self.claimants.remove(&index);
                    self.introduce(index, hello, now);
                }
            }
        }
    }

    /// Lets a process in, as soon as what it said of its data directory is durable here; where that forbids it to take
    /// part, it is told so (see [`crate::guard`]). A proxy alone has no directory and remembers none: it is let in when
    /// others have accepted this node's.
    fn introduce(&mut self, index: usize, hello: Hello, now: Time) {
        let Some(guard) = &mut self.guard else { return self.welcome(index, &hello, now) };
        let ProcessId::Replica(node) = hello.me else { return self.learn_of(index, hello, 0, now) };
        let waited = guard.waits_to_replace();
        let verdict = hello.disk.as_ref().map(|disk| guard.hear(node, disk));
        if verdict.is_none() {
            guard.on_presence(node);
        }
        if waited && !guard.waits_to_replace() {
            // This node has something to say now.
            self.links.values_mut().for_each(|link| link.hurry(now));
        }
        let Some(verdict) = verdict else { return self.meet(index, &hello, node, now) };
        match verdict {
            Verdict::Accept { after } => self.learn_of(index, hello, after, now),
            Verdict::NotYet(reason) => self.refuse(index, &hello, reason.to_string(), now),
            Verdict::OtherReach { mine, theirs } => {
                let answer = Answer::Disowned(self.identity.hello_with(hello.me, self.guard.as_ref()));
                self.turn_away(index, &hello, &other_reach(mine, theirs), &answer, now);
            }
            // It finds in what is remembered here why it must not take part, or this node must not.
            Verdict::Refuse(reason) | Verdict::Stop(reason) => {
                let answer = Answer::Disowned(self.identity.hello_with(hello.me, self.guard.as_ref()));
                self.turn_away(index, &hello, &reason.to_string(), &answer, now);
            }
        }
    }

    /// A member says nothing of its data directory: it waits until all others are there to replace the one that it had
    /// (see [`quorate_blocks::admission`]). It finds out that this one is when this one connects.
    fn meet(&mut self, index: usize, hello: &Hello, node: NodeId, now: Time) {
        self.with_link(node, now, |link, context| {
            link.expect(hello.incarnation, context);
            link.hurry(now);
        });
        let reason =
            format!("node {node} has an empty data directory, and waits until all other members are there");
        self.refuse(index, hello, reason, now);
    }

    /// Lets a process in when the guard's memory of this revision is durable.
    fn learn_of(&mut self, index: usize, hello: Hello, after: u64, now: Time) {
        self.learning.insert(index, (hello, after));
        self.inbound[index].stage = Stage::Learning { until: now + self.limits.handshake };
        self.learn(now);
    }

    /// Ends connections to processes of which others know a later start, or another directory of the same node.
    pub(super) fn end_outdated(&mut self, now: Time) {
        let Some(guard) = &mut self.guard else { return };
        let why = "a later process of this node is known";
        for node in guard.take_outdated().iter() {
            self.with_link(node, now, |link, context| link.end(why, context));
            let waiting = self.learning.iter().filter(|(_, (hello, _))| hello.me == node.into());
            let mut its: Vec<_> = waiting.map(|(index, _)| *index).collect();
            its.extend(self.known.get(&node.into()));
            for index in its {
                self.over(index, Some(why.to_owned()), now);
            }
        }
    }

    /// The group has raised its feature level, durably here: ends connections to processes whose builds do not know it,
    /// and refuses them from now on.
    pub(crate) fn raise_level(&mut self, level: FeatureLevel, now: Time) {
        self.identity.raise(level);
        let (links, mut context) = self.split(now);
        links.values_mut().for_each(|link| link.on_level(&mut context));
        let lacks = |(index, inbound): (usize, &Inbound)| match inbound.stage {
            Stage::Known { peer, knows, .. } => self.identity.lacks(peer, knows).map(|why| (index, why)),
            _ => None,
        };
        let known: Vec<_> = self.inbound.iter().filter_map(lacks).collect();
        let learning = self.learning.iter().map(|(index, (hello, _))| (index, hello));
        let waiting: Vec<_> = (self.claimants.iter().chain(learning))
            .filter_map(|(index, hello)| {
                Some((*index, hello.clone(), self.identity.lacks(hello.me, hello.knows)?))
            })
            .collect();
        for (index, why) in known {
            self.over(index, Some(why), now);
        }
        for (index, hello, why) in waiting {
            self.claimants.remove(&index);
            self.learning.remove(&index);
            self.refuse(index, &hello, why, now);
        }
    }

    /// The last feature level that the build of each node knows that is connected.
    pub(crate) fn known_levels(&self) -> BTreeMap<NodeId, FeatureLevel> {
        self.links.iter().filter_map(|(node, link)| Some((*node, link.knows()?))).collect()
    }

    /// Lets in those who may speak by now: what they said of themselves is durable, and proxies may be answered.
    pub(super) fn learn(&mut self, now: Time) {
        let Some(guard) = &mut self.guard else { return };
        guard.poll(now);
        let may_speak = |(_, (hello, after)): &(&usize, &(Hello, u64))| match hello.me {
            ProcessId::Replica(_) => guard.is_durable(*after),
            ProcessId::Proxy(_) => guard.may_answer_proxies(),
        };
        let ready: Vec<_> = self.learning.iter().filter(may_speak).map(|(index, _)| *index).collect();
        for index in ready {
            let Some((hello, _)) = self.learning.remove(&index) else { continue };
            self.welcome(index, &hello, now);
            // What it sent meanwhile was not looked at.
            if let Some(inbound) = self.inbound.get_mut(index).filter(|inbound| !inbound.listed) {
                inbound.listed = true;
                self.to_read.push(index);
            }
        }
    }

    /// Tells a process why it is not let in.
    fn refuse(&mut self, index: usize, hello: &Hello, reason: String, now: Time) {
        let answer = Answer::Refused(Bytes::copy_from_slice(reason.as_bytes()));
        self.turn_away(index, hello, &reason, &answer, now);
    }

    fn turn_away(&mut self, index: usize, hello: &Hello, reason: &str, answer: &Answer, now: Time) {
        self.metrics.handshakes_refused_total.one();
        let address = self.inbound[index].address;
        let what = format!("refused {}: {reason}", name(hello.me));
        if let Some(unsaid) = self.log_rate.ask(&format!("{} {what}", address.ip()), now) {
            warn!(%address, unsaid, "{what}");
        }
        let inbound = &mut self.inbound[index];
        inbound.answer(answer);
        inbound.stage = Stage::Leaving { until: now + self.limits.handshake };
        self.mark_dirty(index);
    }

    /// Lets a process in.
    fn welcome(&mut self, index: usize, hello: &Hello, now: Time) {
        let address = self.inbound[index].address;
        if let Some(&old) = self.known.get(&hello.me) {
            // The same process again: it has given up the other connection, whether we noticed or not.
            self.over(old, None, now);
        }
        let guest = node_of(hello.me)
            .filter(|node| !self.members.contains_key(node) && !self.candidates.contains_key(node));
        let guest = guest.and_then(|_| hello.reachable(address));
        let answer = Answer::Welcome(self.identity.hello_with(hello.me, self.guard.as_ref()));
        let inbound = &mut self.inbound[index];
        inbound.answer(&answer);
        let Hello { me: peer, incarnation, knows, .. } = *hello;
        inbound.stage = Stage::Known { peer, incarnation, knows };
        self.strangers -= 1;
        self.known.insert(hello.me, index);
        match node_of(hello.me) {
            Some(node) => {
                info!(peer = %node, %address, "node {node} has connected");
                if let Some(reachable) = guest {
                    let token = Token(self.tokens.links + usize::from(node.get()));
                    let link = self.links.entry(node);
                    let link = link.or_insert_with(|| Link::new(node, reachable.clone(), token));
                    link.move_to(&reachable, now);
                }
                self.with_link(node, now, |link, context| {
                    link.expect(hello.incarnation, context);
                    link.hurry(now);
                });
            }
            None => self.proxies += 1,
        }
        self.mark_dirty(index);
    }

    /// Why a process is not let in. Both sides read it, so it names them.
    fn objection(&self, index: usize, hello: &Hello) -> Option<String> {
        let who = name(hello.me);
        if let Some(tls) = &self.tls {
            let process = node_of(hello.me).map_or(Process::Proxy, |node| Process::Node(node.get()));
            if !tls.certifies(&self.inbound[index].stream, process) {
                let shown = format!("{who} has shown a certificate that is not that of {process}");
                return Some(shown);
            }
        }
        if let Some(difference) = self.identity.difference(hello) {
            return Some(difference);
        }
        match hello.me {
            ProcessId::Replica(_) if hello.me == self.me => {
                return Some(format!("{who} connected to itself"));
            }
            ProcessId::Replica(node) if !self.membership && !self.members.contains_key(&node) => {
                let members: Vec<_> = self
                    .members
                    .keys()
                    .copied()
                    .chain(self.me.replica())
                    .map(|node| node.to_string())
                    .collect();
                return Some(format!(
                    "{who} is not in --initial-cluster of {}, which has {}",
                    name(self.me),
                    members.join(", ")
                ));
            }
            ProcessId::Proxy(proxy) if proxy.host().is_some() => {
                return Some("a node's own proxy speaks through its node".to_owned());
            }
            ProcessId::Proxy(_) if self.proxies >= self.limits.proxies => {
                return Some(format!("{} proxies are connected to {} already", self.proxies, name(self.me)));
            }
            ProcessId::Replica(_) | ProcessId::Proxy(_) => {}
        }
        None
    }

    /// Another connection that says the same of itself, and what this process is told if that one is still there.
    fn twin(&self, hello: &Hello) -> Option<(usize, String)> {
        let index = *self.known.get(&hello.me)?;
        let twin = &self.inbound[index];
        match twin.stage {
            Stage::Known { incarnation, .. } if incarnation != hello.incarnation => {
                let (who, address) = (name(hello.me), twin.address);
                let reason =
                    format!("another process that is {who} is connected from {address}: ids must differ");
                Some((index, reason))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_has_most_silent_connections_gives_way_to_others_and_to_itself_when_they_have_taken_long() {
        let from = |last: u8| IpAddr::from([10, 0, 0, last]);
        let until = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let three = [(from(9), until(4), 0), (from(9), until(3), 1), (from(2), until(2), 2)];
        let to = |last, now: u64| gives_way(three.into_iter(), from(last), |end| end <= until(now));
        assert_eq!(to(3, 0), Some(1), "the first of 10.0.0.9, though it has just come");
        assert_eq!(to(2, 0), None, "it would have as many");
        assert_eq!(to(9, 0), None);
        assert_eq!(to(9, 2), Some(2), "the first of all has taken long");
        assert_eq!(gives_way(std::iter::empty(), from(1), |_| true), None);
    }
}
