//! What watchers of a node may ask of its event loop, from other threads: its numbers, and whether it serves.
//!
//! Whether it serves is found out by doing it: a linearizable read goes the way of a client's, one in each group of
//! replicas where there are several.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use bytes::Bytes;
use mio::Waker;
use quorate_core::{
    Access, Answered, Failure, GroupId, Members, Outcome, Request, RequestId, Sample, Status, Time,
};

use crate::frontend::Contact;
use crate::machines::Machines;
use crate::slow::SlowRequest;

/// The fact that says how little room the disk has; there only while that is too little.
pub const WARNING_DISK: &str = "warning_disk";

/// The same of memory.
pub const WARNING_MEMORY: &str = "warning_memory";

/// The fact that says which groups have which members (`--groups`); there only while they have different ones.
pub const MEMBERS_DIFFER: &str = "members_differ";

/// How long the reads may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often reads are made that nobody has asked for, where they are.
const PROBE_AGAIN: Duration = Duration::from_secs(5);

/// Ids of these reads have this bit, which those of clients' requests have not.
const OWN: u64 = 1 << 63;

/// The node at one moment.
#[derive(Clone, Debug)]
pub struct Report {
    /// Everything it counts.
    pub samples: Vec<Sample>,
    /// The replica's state.
    pub status: Status,
    /// Facts in words: name, value.
    pub facts: Vec<(&'static str, String)>,
    /// Where there are several groups of replicas: the state of each.
    pub groups: Vec<Status>,
    /// Who is in the group.
    pub members: Members,
    /// The other members, and which of them do not answer.
    pub contacts: Vec<Contact>,
    /// The latest slow requests, the latest first.
    pub slow: Vec<SlowRequest>,
}

/// How many slow requests a report has.
pub(crate) const SLOW_REPORTED: usize = 16;

/// Whether the node serves linearizable requests; if not, why.
pub type Health = Result<(), String>;

/// What brings an answer. Called in the event loop: must not wait.
pub type Reply<T> = Box<dyn FnOnce(T) + Send>;

enum Question {
    Report(Reply<Report>),
    Health(Reply<Health>),
}

/// Asks a node's event loop, from any thread. A question whose reply is dropped uncalled got no answer: the loop has
/// ended.
#[derive(Clone)]
pub struct Monitor {
    questions: Sender<Question>,
    waker: Arc<Waker>,
}

impl Monitor {
    /// Everything about the node.
    pub fn report(&self, reply: Reply<Report>) {
        self.ask(Question::Report(reply));
    }

    /// Whether it serves.
    pub fn health(&self, reply: Reply<Health>) {
        self.ask(Question::Health(reply));
    }

    fn ask(&self, question: Question) {
        // A loop that has ended drops the question, and so tells whoever waits.
        if self.questions.send(question).is_ok() {
            let _ = self.waker.wake();
        }
    }
}

/// The event loop's side.
pub(crate) struct MonitorServer {
    questions: Receiver<Question>,
    waiting: Vec<Reply<Health>>,
    /// The reads that are under way, if some are.
    reading: Option<Reading>,
    reads: u64,
    /// When reads are made next that nobody has asked for.
    next_probe: Time,
}

/// A read of each group, all asked at once.
struct Reading {
    /// The number of the first group's; the others' follow.
    first: u64,
    groups: usize,
    answered: usize,
    /// What is wrong with the groups that have not answered it.
    failed: BTreeMap<GroupId, String>,
}

impl Reading {
    /// Whether all groups serve. A reason names its group where there are several.
    fn health(&self) -> Health {
        let named = |(group, why): (&GroupId, &String)| match self.groups {
            1 => why.clone(),
            _ => format!("group {group}: {why}"),
        };
        let failed: Vec<_> = self.failed.iter().map(named).collect();
        if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
    }
}

pub(crate) fn new(waker: Arc<Waker>) -> (Monitor, MonitorServer) {
    let (sender, questions) = channel();
    (
        Monitor { questions: sender, waker },
        MonitorServer { questions, waiting: Vec::new(), reading: None, reads: 0, next_probe: Time::ZERO },
    )
}

impl MonitorServer {
    /// Takes the questions that have come. Gives the reads to do, if some are needed. `probes` are commands that read
    /// next to nothing, one for each group.
    pub(crate) fn take(
        &mut self,
        report: impl Fn() -> Report,
        probes: impl FnOnce() -> Vec<Bytes>,
        access: Access,
        now: Time,
    ) -> Vec<(RequestId, Request)> {
        for question in self.questions.try_iter() {
            match question {
                Question::Report(reply) => reply(report()),
                Question::Health(reply) => self.waiting.push(reply),
            }
        }
        if self.waiting.is_empty() || self.reading.is_some() {
            return Vec::new();
        }
        let (first, probes) = (OWN | self.reads, probes());
        let read = |(id, command)| {
            let request = Request { stream: id, command, access, deadline: now + PATIENCE, after: 0 };
            (RequestId(id), request)
        };
        self.reads += probes.len() as u64;
        self.reading = Some(Reading { first, groups: probes.len(), answered: 0, failed: BTreeMap::new() });
        (first..).zip(probes).map(read).collect()
    }

    /// Has a read of each group made, for whose health nobody waits: its proxy hears then who the members are.
    pub(crate) fn probe_groups(&mut self) {
        self.waiting.push(Box::new(drop));
    }

    /// The same if it was not done in the last while.
    pub(crate) fn probe_groups_again(&mut self, now: Time) {
        if now >= self.next_probe {
            self.next_probe = now + PROBE_AGAIN;
            self.probe_groups();
        }
    }

    /// Whether reads of its own are under way.
    pub(crate) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Answers of its own reads are taken out of the others. `why` tells what is wrong with a group that has not
    /// answered in time.
    pub(crate) fn sift(&mut self, answers: &mut Vec<Answered>, why: impl Fn(GroupId) -> String) {
        for answer in answers.extract_if(.., |answer| answer.request.0 & OWN != 0) {
            let reading = self.reading.as_mut().expect("each read is answered once");
            let group = GroupId::at((answer.request.0 - reading.first) as usize);
            let failed = match answer.outcome {
                Outcome::Done(_) => None,
                Outcome::Failed(Failure::Overloaded) => Some("too many requests are waiting".to_owned()),
                Outcome::Failed(Failure::TimedOut | Failure::SessionEnded) => Some(why(group)),
            };
            reading.failed.extend(failed.map(|why| (group, why)));
            reading.answered += 1;
            if reading.answered < reading.groups {
                continue;
            }
            let health = reading.health();
            self.reading = None;
            for reply in self.waiting.drain(..) {
                reply(health.clone());
            }
        }
    }

    /// The node is going to stop: it no longer counts as serving.
    pub(crate) fn refuse(&mut self) {
        for question in self.questions.try_iter() {
            if let Question::Health(reply) = question {
                self.waiting.push(reply);
            }
        }
        for reply in self.waiting.drain(..) {
            reply(Err("the node is stopping".to_owned()));
        }
    }
}

/// Why a group has not served a read, as far as this node can tell. `reached`: how many of the other members answer.
/// `full`: the journal takes nothing more.
pub(crate) fn trouble(machines: &Machines, reached: usize, full: bool, group: GroupId) -> String {
    if let Some(why) = machines.waits() {
        return format!("this node does not take part yet: it {why}");
    }
    if full {
        return "the disk is slower than what comes in".to_owned();
    }
    let others = machines.directory.others();
    let reached = format!("{reached} of the {others} other members can be reached");
    match machines.group_statuses().get(group.index()).and_then(|status| status.leader) {
        Some(leader) => {
            format!("node {leader} leads, as far as is known here, but does not answer; {reached}")
        }
        None => format!("nobody leads, as far as is known here; {reached}"),
    }
}

#[cfg(test)]
mod tests {
    use mio::{Poll, Token};

    use super::*;

    #[test]
    fn a_probe_of_the_groups_reads_of_each_and_tells_nobody() {
        let poll = Poll::new().unwrap();
        let (_monitor, mut server) = new(Arc::new(Waker::new(poll.registry(), Token(0)).unwrap()));
        let keys = [Bytes::from_static(b"a"), Bytes::from_static(b"m")];
        let take = |server: &mut MonitorServer| {
            let report = || unreachable!("nobody asks for one");
            server.take(report, || keys.to_vec(), Access::Read, Time::from_nanos(1))
        };
        assert!(take(&mut server).is_empty(), "nothing is read unless somebody asks");
        server.probe_groups();
        let asked = take(&mut server);
        assert_eq!(
            asked.iter().map(|(_, request)| &request.command).collect::<Vec<_>>(),
            [&keys[0], &keys[1]]
        );
        let answer = |(request, _)| Answered { request, outcome: Outcome::Done(Bytes::new()), slot: 0 };
        let mut answers = asked.into_iter().map(answer).collect();
        server.sift(&mut answers, |_| String::new());
        assert!(answers.is_empty() && !server.is_reading() && take(&mut server).is_empty());
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        for (now, due) in [(10, true), (20, false), (5_009, false), (5_010, true)] {
            server.probe_groups_again(at(now));
            assert_eq!(!std::mem::take(&mut server.waiting).is_empty(), due, "{now}");
        }
    }
}
