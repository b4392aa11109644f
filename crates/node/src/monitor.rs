//! What watchers of a node may ask of its event loop, from other threads: its numbers, and whether it serves.
//!
//! Whether it serves is found out by doing it: a linearizable read goes the way of a client's.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use bytes::Bytes;
use mio::Waker;
use quorate_core::{Access, Answered, Failure, Outcome, Request, RequestId, Sample, Status, Time};

/// The fact that says how little room the disk has; there only while that is too little.
pub const WARNING_DISK: &str = "warning_disk";

/// The same of memory.
pub const WARNING_MEMORY: &str = "warning_memory";

/// How long the read may take.
const PATIENCE: Duration = Duration::from_secs(1);

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
}

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
    /// The read that is under way, if one is.
    reading: Option<u64>,
    reads: u64,
}

pub(crate) fn new(waker: Arc<Waker>) -> (Monitor, MonitorServer) {
    let (sender, questions) = channel();
    (
        Monitor { questions: sender, waker },
        MonitorServer { questions, waiting: Vec::new(), reading: None, reads: 0 },
    )
}

impl MonitorServer {
    /// Takes the questions that have come. Gives a read to do, if one is needed.
    pub(crate) fn take(
        &mut self,
        report: impl Fn() -> Report,
        probe: impl FnOnce() -> Bytes,
        access: Access,
        now: Time,
    ) -> Option<(RequestId, Request)> {
        for question in self.questions.try_iter() {
            match question {
                Question::Report(reply) => reply(report()),
                Question::Health(reply) => self.waiting.push(reply),
            }
        }
        if self.waiting.is_empty() || self.reading.is_some() {
            return None;
        }
        self.reads += 1;
        let id = OWN | self.reads;
        self.reading = Some(id);
        let request = Request { stream: id, command: probe(), access, deadline: now + PATIENCE, after: 0 };
        Some((RequestId(id), request))
    }

    /// Whether a read of its own is under way.
    pub(crate) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Answers of its own reads are taken out of the others. `why` tells what is wrong if one failed.
    pub(crate) fn sift(&mut self, answers: &mut Vec<Answered>, why: String) {
        for answer in answers.extract_if(.., |answer| answer.request.0 & OWN != 0) {
            self.reading = None;
            let health = match answer.outcome {
                Outcome::Done(_) => Ok(()),
                Outcome::Failed(Failure::Overloaded) => Err("too many requests are waiting".to_owned()),
                Outcome::Failed(Failure::TimedOut) => Err(why.clone()),
            };
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
