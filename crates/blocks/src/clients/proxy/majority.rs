//! Reads that are asked of a majority of the replicas before the leader is: **Paxos quorum reads** (Charapko,
//! Ailijiang, Demirbas, *Linearizable Quorum Reads in Paxos*, 2019). A replica answers `Message::Query` with what it
//! has executed and accepted.
//!
//! Whatever was acknowledged before the read began has the votes of a majority, so one of any other majority has
//! executed it or says that it has voted for it. If the furthest of those who answer has executed all that any of
//! them says, its reply is the read's. Otherwise a write is under way, and the proxy asks again until somebody has
//! executed it (it **rinses**). A vote may be left over from a ballot that is dead, and never be chosen: after some
//! rounds the leader is asked.
//!
//! **Whose majority?** That of the configuration which the furthest of those who answer has executed; what the proxy
//! knows of the group says only whom to ask. Let c be that configuration, in a chain of which neighbours have
//! majorities that meet. Nobody of the majority of c that answers has executed the configuration after c. But a second
//! one after c is proposed only when a majority of the first has executed the first, for good, and one of these would
//! have answered. So all that was acknowledged before was decided under c, or under the one before or after it, and
//! the majority that answers meets all of these.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::{Context, Mark, NodeId, NodeSet, Settings, SettingsError, Time, mutation};

use super::{ASK_BYTES, SessionClient};
use crate::clients::message::{Embeds, Message, ReadObservation};
use crate::quorum::Tally;

/// How a read goes on while a write is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rinse {
    /// The first round comes so much after the question, each further one after twice the time.
    pub pause: Duration,
    /// After so many the leader is asked.
    pub rounds: u32,
}

impl Rinse {
    /// The leader is asked at once.
    pub const NEVER: Rinse = Rinse { pause: Duration::ZERO, rounds: 0 };

    /// Reads the settings `rinse.pause` and `rinse.rounds`.
    pub fn from_settings(settings: &mut Settings) -> Result<Rinse, SettingsError> {
        Ok(Rinse {
            pause: settings.duration(
                "rinse.pause",
                "2ms",
                "Before the first further round; each further one waits twice as long",
            )?,
            rounds: settings.number("rinse.rounds", 6, 0..=16, "After so many rounds the leader is asked")?
                as u32,
        })
    }
}

/// All such reads of a proxy.
#[derive(Debug, Default)]
pub(super) struct Majority {
    next: u64,
    asked: BTreeMap<u64, Asked>,
    /// Those that have to be asked (again).
    unsent: Vec<u64>,
}

#[derive(Debug)]
struct Asked {
    call: u64,
    command: Bytes,
    /// The last that each has said, and who decides by what it had executed.
    observations: Observations,
    round: u32,
    /// When it was asked last, and when it will be again.
    sent: Time,
    due: Time,
}

type Observations = BTreeMap<NodeId, (ReadObservation, Tally)>;

/// What observations come to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Judgement {
    /// They are not a majority's, but those of whom it takes some have been asked.
    Few,
    /// A write is under way.
    Open,
    /// The store's reply, which the client may be told, and the last slot that it shows.
    Reply(Bytes, u64),
    /// A clock has a say in it, or it takes replicas that the proxy does not know.
    Leader,
}

/// **The read rule.** `members`: those who are asked.
fn judge(members: NodeSet, observations: &Observations) -> Judgement {
    let furthest = observations.values().max_by_key(|(seen, _)| (seen.applied, seen.reply.is_some()));
    let Some((furthest, mut tally)) = furthest.cloned() else { return Judgement::Few };
    if mutation::active("pqr/group-of-the-proxy") {
        tally = Tally::new(members);
    }
    for node in observations.keys() {
        tally.add(*node);
    }
    if !(tally.reached() || mutation::active("pqr/majority-of-one")) {
        let known = tally.missing().iter().all(|node| members.contains(node));
        return if known { Judgement::Few } else { Judgement::Leader };
    }
    let open = observations.values().any(|(seen, _)| seen.accepted > furthest.applied);
    match furthest.reply {
        _ if open && !mutation::active("pqr/accepted-ignored") => Judgement::Open,
        Some(reply) => Judgement::Reply(reply, furthest.applied),
        None => Judgement::Leader,
    }
}

impl Majority {
    /// Another read; its id.
    pub fn begin(&mut self, call: u64, command: Bytes) -> u64 {
        let id = self.next;
        self.next += 1;
        let (sent, due) = (Time::ZERO, Time::ZERO);
        self.asked.insert(id, Asked { call, command, observations: BTreeMap::new(), round: 0, sent, due });
        self.unsent.push(id);
        id
    }

    /// The request has ended: late answers to it count for nothing.
    pub fn forget(&mut self, id: u64) {
        self.asked.remove(&id);
    }

    pub fn len(&self) -> usize {
        self.asked.len()
    }

    /// When the first of them has to be asked again.
    pub fn due(&self) -> Option<Time> {
        self.asked.values().map(|asked| asked.due).min()
    }
}

impl<M: Embeds> SessionClient<M> {
    /// Asks what has not been asked.
    pub(super) fn query(&mut self, cx: &mut Context<'_, Self>) {
        let (now, nonce) = (cx.now(), self.nonce);
        let mut unsent = std::mem::take(&mut self.majority.unsent).into_iter().peekable();
        if unsent.peek().is_none() {
            return;
        }
        while unsent.peek().is_some() {
            let (mut reads, mut bytes) = (Vec::new(), 0);
            for id in unsent.by_ref() {
                let Some(asked) = self.majority.asked.get_mut(&id) else { continue };
                (asked.sent, asked.due) = (now, now + self.patience);
                let request = self.calls.get(asked.call).expect("under way").request;
                cx.mark(Mark::Forwarded { request });
                bytes += asked.command.len();
                reads.push((id, asked.command.clone()));
                if bytes >= ASK_BYTES {
                    break;
                }
            }
            if !reads.is_empty() {
                cx.send_all(self.config.members, M::from(Message::Query { nonce, reads }));
            }
        }
        self.wake_by(now + self.patience, cx);
    }

    /// A replica says what it knows, and who decides as far as it knows.
    pub(super) fn on_seen(
        &mut self,
        from: NodeId,
        tally: Tally,
        reads: Vec<(u64, ReadObservation)>,
        cx: &mut Context<'_, Self>,
    ) {
        let (Some(rinse), members) = (self.config.majority, self.config.members) else { return };
        for (id, seen) in reads {
            let Some(asked) = self.majority.asked.get_mut(&id) else { continue };
            // All that was said since the read began counts; the last says most.
            let last = asked.observations.get(&from).map_or(0, |(last, _)| last.applied);
            if seen.applied >= last {
                asked.observations.insert(from, (seen, tally));
            }
            let (call, round) = (asked.call, asked.round);
            match judge(members, &asked.observations) {
                Judgement::Few => {}
                Judgement::Open if round < rinse.rounds => {
                    let due = asked.sent + rinse.pause * (1 << round);
                    asked.due = asked.due.min(due);
                    self.wake_by(due, cx);
                }
                Judgement::Open | Judgement::Leader => {
                    self.majority.forget(id);
                    self.ask_leader(call);
                }
                Judgement::Reply(reply, applied) => {
                    self.majority.forget(id);
                    self.answered(call, reply, (0, applied), cx);
                }
            }
        }
    }

    /// Asks again what is due: something was lost, or a write was under way.
    pub(super) fn repeat_queries(&mut self, cx: &mut Context<'_, Self>) {
        let (Some(rinse), now) = (self.config.majority, cx.now()) else { return };
        let due: Vec<_> = self.majority.asked.iter().filter(|(_, asked)| asked.due <= now).collect();
        let due: Vec<_> = due.into_iter().map(|(id, _)| *id).collect();
        for id in due {
            let asked = self.majority.asked.get_mut(&id).expect("it is due");
            asked.round += 1;
            let (call, round) = (asked.call, asked.round);
            if round <= rinse.rounds {
                self.majority.unsent.push(id);
            } else {
                self.majority.forget(id);
                self.ask_leader(call);
            }
        }
        self.query(cx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_furthest_answers_if_it_has_executed_all_that_a_majority_has_accepted() {
        // `node:applied/accepted`, `?` where a clock has a say → the reply is that after this slot. 1, 2 and 3 are
        // asked. From slot 7 on 1, 4 and 5 decide with them, from slot 9 on alone, and from slot 11 on 1 and 2.
        let table = "
            1:5/0               → few
            1:5/0 2:5/0         → 5
            1:5/0 2:3/0         → 5
            1:5/0 2:3/5         → 5
            1:5/0 2:3/6         → open
            1:5/6 2:5/0         → open
            1:5/6 2:6/0         → 6
            1:5/6 2:6/0 3:6/9   → open
            1:5/0? 2:3/0        → leader
            1:5/0 2:3/0?        → 5
            1:5/0 2:5/0?        → 5
            1:5/0? 2:3/7        → open
            9:5/0 1:5/0         → few
            1:7/0 2:7/0 3:7/0   → leader
            2:7/0 3:7/0         → leader
            2:6/0 3:6/0         → 6
            1:9/0 2:7/0 3:6/0   → leader
            1:11/0 2:6/0        → 11
            1:11/0 3:6/0        → few
        ";
        let set = |ids: &[u64]| ids.iter().filter_map(|id| NodeId::new(*id)).collect::<NodeSet>();
        let members = set(&[1, 2, 3]);
        let tally = |applied| match applied {
            ..7 => Tally::new(members),
            7..9 => Tally::joint(set(&[1, 4, 5]), members),
            9..11 => Tally::new(set(&[1, 4, 5])),
            11.. => Tally::new(set(&[1, 2])),
        };
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (seen, expected) = line.split_once('→').unwrap();
            let observations = seen.split_whitespace().map(|word| {
                let (node, rest) = word.split_once(':').unwrap();
                let (applied, accepted) = rest.trim_end_matches('?').split_once('/').unwrap();
                let accepted = accepted.parse().unwrap();
                let reply = (!rest.ends_with('?') && accepted == 0).then(|| Bytes::from(applied.to_owned()));
                let applied = applied.parse().unwrap();
                let seen = ReadObservation { applied, accepted, reply };
                (NodeId::new(node.parse().unwrap()).unwrap(), (seen, tally(applied)))
            });
            let found = match judge(members, &observations.collect()) {
                Judgement::Few => "few".to_owned(),
                Judgement::Open => "open".to_owned(),
                Judgement::Leader => "leader".to_owned(),
                Judgement::Reply(reply, applied) => {
                    assert_eq!(reply, applied.to_string(), "{line}");
                    applied.to_string()
                }
            };
            assert_eq!(found, expected.trim(), "{line}");
        }
    }
}
