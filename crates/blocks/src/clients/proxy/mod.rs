//! The client side of every protocol with a leader, as a machine: finds the leader, keeps a session, numbers writes,
//! repeats what is not answered, keeps each client's program order, and gives up at the deadline.
//!
//! While the target answers, requests go to it. When it falls silent, or says that it does not lead and knows nobody
//! else, the proxy *searches*: it asks one replica after the other who leads, in short intervals, until one says that
//! it does, and holds back what is for the leader. Reads that the replica nearby may answer leave all the same.
//!
//! | file | what |
//! |---|---|
//! | `leader.rs` | how the leader is found |
//! | `numbering.rs` | in which order writes get their numbers; large ones in parts |
//! | `sending.rs` | what is sent, and sent again |
//! | `repeating.rs` | what is not answered for long |
//! | `majority.rs` | reads that are asked of a majority first |
//! | `window.rs` | what is under way, by number |

mod leader;
mod majority;
mod numbering;
mod repeating;
mod sending;
mod window;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use majority::Majority;
use quorate_core::{
    Access, Context, Count, Failure, Machine, Mark, Never, NodeId, NodeSet, Outcome, ProcessId, Proxy,
    Request, RequestId, Sample, Saved, Time, Wire, mutation,
};
use quorate_store::Reply;

use crate::clients::message::{Embeds, Message};
use crate::clients::streams::Streams;
use crate::pace::InFlight;
use crate::quorum::Tally;
use crate::sessions::{REFRESH, WINDOW};
pub use majority::Rinse;
use numbering::Large;
use window::Window;

/// One message carries about this many bytes of commands, unless a single one is larger.
const ASK_BYTES: usize = 1 << 20;
/// The longest wait between repetitions.
pub(super) const MAX_PATIENCE: Duration = Duration::from_secs(2);

/// What a proxy is told at its creation.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// The replicas with which the group begins.
    pub members: NodeSet,
    /// Without an answer for this long, requests are repeated, to another replica if this one is silent.
    pub patience: Duration,
    /// Reads go to the replica of the own node first, whether it leads or not.
    pub nearest: bool,
    /// Any replica serves everything: that of the own node does, as soon as it can be reached (again).
    pub home: bool,
    /// Reads that may miss something do, whatever the others do: it may know how much it misses.
    pub bounded: bool,
    /// Reads need a state that is no older than what their client has seen, and no more ([`local`](super::local)),
    /// unless they ask for less to be missed.
    pub local: bool,
    /// It hears which write is sent behind them, and needs to ask nobody then ([`batches`](super::batches)).
    pub timely: bool,
    /// If it has not answered one by then, the leader is asked too (Bodega §3.2.2, *unhold*).
    pub unhold: Option<Duration>,
    /// Reads are asked of a majority first, and then like this.
    pub majority: Option<Rinse>,
    /// While writes are under way, it says after so many answers that they have come: replicas keep them until then.
    pub confirm: Option<u64>,
    /// A session that was opened so long ago is opened anew when no write is under way in it, and after twice the time
    /// none begins before that: replicas forget old ones.
    pub renew: Option<Duration>,
    /// Each replica refuses writes for want of room by itself: others may execute what one has refused.
    pub each_refuses: bool,
    /// Requests that may be under way; further ones are refused.
    pub max_requests: usize,
    /// Encoded commands that are longer, in bytes, go in parts of this length.
    pub part: usize,
}

/// What a proxy sets timers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProxyTimer {
    /// Something may have to be repeated or given up.
    Tick,
    /// The session must not be forgotten although there is nothing to write.
    Refresh,
}

/// See the file comment.
#[derive(Debug)]
pub struct SessionClient<M> {
    config: ProxyConfig,
    /// The members it was started with.
    initial: NodeSet,
    /// Members that do not vote. One of them may lead for a while.
    learners: NodeSet,
    /// The version of the group that `config.members` is; 0 for the initial one.
    version: u64,
    nonce: u64,
    /// Whom it takes for the leader.
    target: NodeId,
    /// Whom it asks for reads first, where that is not the target: the replica of the same node, if there is one, until
    /// it is told of another ([`Message::Reader`]).
    near: Option<NodeId>,
    /// When the target was last heard, or chosen. The replica nearby does not speak for it.
    heard: Time,
    /// Redirections since the last answer: two replicas may point at each other for a while.
    redirects: usize,
    /// Whether it is looking for a leader.
    searching: bool,
    patience: Duration,
    /// When the next tick is due, if one is set.
    tick: Option<Time>,
    /// Requests that are not answered yet, by their numbers.
    calls: Window<Call>,
    streams: Streams,
    session: u64,
    /// When an `open` was last sent, while there is no session.
    opening: Option<Time>,
    /// When the session was opened.
    opened: Time,
    wrote: bool,
    /// Calls that are writes without a number in the session yet.
    queue: VecDeque<u64>,
    /// Those of them that go in parts, and what waits behind them.
    large: Large,
    /// Writes under way; the first has number `low`.
    writes: VecDeque<WriteCall>,
    low: u64,
    /// What it has said last of `low`.
    confirmed: u64,
    reads: Window<ReadCall>,
    /// Reads that the replica nearby refuses or holds for long: for the target.
    again: Vec<u64>,
    /// Reads that a majority is asked.
    majority: Majority,
    /// Reads that the replica nearby was asked first.
    asked_nearby: Count,
    /// Those of them that the target was asked after that, and those of these that had been held for too long.
    fallen_back: Count,
    unheld: Count,
    /// Whom the writes were sent to, unless it has said since that it does not lead, and how long it takes to answer.
    asked: Option<NodeId>,
    in_flight: InFlight,
    /// Whether anything below has not been sent to the target.
    unsent: bool,
    /// Whether that is some read, while later ones have been sent to the replica nearby.
    skipped: bool,
    _message: std::marker::PhantomData<fn() -> M>,
}

#[derive(Debug)]
struct Call {
    request: RequestId,
    stream: u64,
    access: Access,
    deadline: Time,
    command: Bytes,
    /// [`Request::after`], and what the requests before it in its stream were told.
    after: u64,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Behind earlier requests of its stream.
    Stream,
    /// A write without a number.
    Queue,
    /// A write with this number.
    Write(u64),
    /// A read (or an operator's request) with this id.
    Read(u64),
    /// A read that a majority is asked, with this id.
    Majority(u64),
}

#[derive(Debug)]
struct WriteCall {
    /// The call to answer; none any more once it was given up.
    call: Option<u64>,
    command: Bytes,
    /// When it last went to the target.
    sent: Option<Time>,
    /// Which replicas may have got it.
    sent_to: NodeSet,
    answered: bool,
    /// Whether it is a part of a large command.
    is_part: bool,
}

#[derive(Debug)]
struct ReadCall {
    call: u64,
    sent: Option<Time>,
    /// Whether the replica nearby has been asked, and only the leader is left.
    asked_nearby: bool,
    /// Whether the replica nearby may still answer, and nobody else has been asked.
    held: bool,
}

impl<M: Embeds> SessionClient<M> {
    fn start(&mut self, id: u64) {
        let call = self.calls.get_mut(id).expect("a call that starts is known");
        match call.access {
            Access::Read | Access::Within(_) if self.config.majority.is_some() => {
                call.place = Place::Majority(self.majority.begin(id, call.command.clone()));
            }
            Access::Read | Access::Within(_) | Access::Manage => self.ask_leader(id),
            Access::Write => {
                call.place = Place::Queue;
                self.queue.push_back(id);
            }
        }
        self.unsent = true;
    }

    /// A read, or an operator's request, that needs the leader, or the replica nearby.
    fn ask_leader(&mut self, id: u64) {
        let read = ReadCall { call: id, sent: None, asked_nearby: false, held: false };
        let call = self.calls.get_mut(id).expect("a call that starts is known");
        call.place = Place::Read(self.reads.push(read));
        self.unsent = true;
    }

    /// A call is answered, by a replica that has executed all slots up to `applied`; a write was in `slot`.
    fn answered(&mut self, id: u64, reply: Bytes, (slot, applied): (u64, u64), cx: &mut Context<'_, Self>) {
        let request = self.calls.get(id).expect("a call is answered once").request;
        cx.mark(Mark::Answered { request, slot });
        self.finish(id, Outcome::Done(reply), applied, cx);
    }

    fn finish(&mut self, id: u64, outcome: Outcome, applied: u64, cx: &mut Context<'_, Self>) {
        let call = self.calls.take(id).expect("a call ends once");
        cx.reply_at(call.request, outcome, applied);
        if call.place == Place::Stream {
            self.streams.abandon(call.stream, id);
        } else {
            let (ready, shown) = self.streams.ended(call.stream, applied);
            for ready in ready {
                let next = self.calls.get_mut(ready).expect("a call that starts is known");
                next.after = next.after.max(shown);
                self.start(ready);
            }
        }
    }

    fn give_up(&mut self, id: u64, cx: &mut Context<'_, Self>) {
        match self.calls.get(id).expect("a call is given up while it is under way").place {
            Place::Stream => {}
            Place::Queue => {
                self.queue.retain(|queued| *queued != id);
                self.large.remove(id);
            }
            Place::Read(read) => drop(self.reads.take(read)),
            Place::Majority(read) => self.majority.forget(read),
            Place::Write(seq) => {
                // Its number must be used, or the writes behind it would wait for ever. If the command itself has
                // not been decided yet, nothing is decided in its place.
                let write = &mut self.writes[(seq - self.low) as usize];
                write.call = None;
                write.command = Bytes::new();
            }
        }
        self.finish(id, Outcome::Failed(Failure::TimedOut), 0, cx);
    }

    fn on_write_reply(
        &mut self,
        seq: u64,
        reply: Bytes,
        slot: u64,
        applied: u64,
        cx: &mut Context<'_, Self>,
    ) {
        let Some(index) = seq.checked_sub(self.low).map(|index| index as usize) else { return };
        let Some(write) = self.writes.get_mut(index).filter(|write| !write.answered) else { return };
        let may_be_executed = write.sent_to.len() > 1 && !mutation::active("proxy/any-refusal");
        if self.config.each_refuses && may_be_executed && is_refusal(&reply) {
            // Another replica may have executed it: it is asked for again, and given up in the end.
            return;
        }
        write.answered = true;
        write.command = Bytes::new();
        self.in_flight.on_answer(seq..=seq, cx.now());
        if let Some(call) = write.call.take() {
            self.answered(call, reply, (slot, applied), cx);
        }
        while self.writes.pop_front_if(|write| write.answered).is_some() {
            self.low += 1;
        }
        // There may be room for those that wait for numbers.
        self.unsent |= !self.queue.is_empty() || !self.large.is_empty();
    }

    fn on_expired(&mut self, cx: &mut Context<'_, Self>) {
        // Whatever was said under the old name means nothing to the next session, and the other way round.
        self.nonce = cx.random().u64();
        self.session = 0;
        self.opening = None;
        (self.low, self.confirmed) = (1, 1);
        self.large.restart();
        self.in_flight.restart();
        let mut unexposed = VecDeque::new();
        for write in std::mem::take(&mut self.writes) {
            let Some(id) = write.call else { continue };
            if !write.sent_to.is_empty() {
                // It may have been executed under the session that is gone: repeating it could do it twice.
                self.finish(id, Outcome::Failed(Failure::SessionEnded), 0, cx);
            } else {
                self.calls.get_mut(id).expect("unanswered").place = Place::Queue;
                unexposed.push_back(id);
            }
        }
        unexposed.append(&mut self.queue);
        self.queue = unexposed;
        self.unsent = true;
    }

    fn wake_by(&mut self, at: Time, cx: &mut Context<'_, Self>) {
        if self.tick.is_none_or(|tick| at < tick) {
            self.tick = Some(at);
            cx.set_timer(ProxyTimer::Tick, at.since(cx.now()));
        }
    }

    /// The replica that it should ask and does not.
    fn away(&self) -> Option<NodeId> {
        self.near.filter(|near| self.config.home && *near != self.target)
    }
}

impl<M: Embeds> Machine for SessionClient<M> {
    type Config = ProxyConfig;
    type Message = M;
    type Record = Never;
    type Timer = ProxyTimer;

    fn recover(config: ProxyConfig, _: Saved<Never>, cx: &mut Context<'_, Self>) -> Self {
        let host = match cx.me() {
            ProcessId::Proxy(proxy) => proxy.host(),
            ProcessId::Replica(_) => None,
        };
        let nonce = cx.random().u64();
        let target = host.or(config.members.iter().next()).expect("a group has members");
        cx.set_timer(ProxyTimer::Refresh, REFRESH);
        SessionClient {
            near: host,
            initial: config.members,
            learners: NodeSet::EMPTY,
            target,
            asked: None,
            in_flight: InFlight::new(config.patience),
            patience: config.patience,
            config,
            version: 0,
            nonce,
            heard: cx.now(),
            redirects: 0,
            searching: false,
            tick: None,
            calls: Window::default(),
            streams: Streams::default(),
            session: 0,
            opening: None,
            opened: cx.now(),
            wrote: false,
            queue: VecDeque::new(),
            large: Large::default(),
            writes: VecDeque::new(),
            low: 1,
            confirmed: 1,
            reads: Window::default(),
            again: Vec::new(),
            majority: Majority::default(),
            asked_nearby: Count::default(),
            fallen_back: Count::default(),
            unheld: Count::default(),
            unsent: false,
            skipped: false,
            _message: std::marker::PhantomData,
        }
    }

    fn on_message(&mut self, from: ProcessId, message: M, cx: &mut Context<'_, Self>) {
        let (Some(from), Some(message)) = (from.replica(), message.into_client()) else { return };
        let now = cx.now();
        match message {
            Message::Answer { nonce, session, applied, writes, slots, reads } if nonce == self.nonce => {
                let counts = || self.near == Some(from) && mutation::active("proxy/nearby-for-target");
                if from == self.target || counts() {
                    self.heard = now;
                    self.redirects = 0;
                    self.patience = self.config.patience;
                }
                if session == self.session {
                    let mut slots = slots.into_iter();
                    let mut run = (0, 0);
                    for (seq, reply) in writes {
                        if run.1 == 0 {
                            run = slots.next().unwrap_or_default();
                        }
                        self.on_write_reply(seq, reply.into_bytes(), run.0, applied, cx);
                        run.1 = run.1.saturating_sub(1);
                    }
                }
                for (id, reply) in reads {
                    if let Some(read) = self.reads.take(id) {
                        self.answered(read.call, reply.into_bytes(), (0, applied), cx);
                    }
                }
            }
            Message::Opened { nonce, session } if nonce == self.nonce && self.session == 0 => {
                self.session = session;
                (self.opening, self.opened) = (None, now);
                self.heard = now;
                self.unsent = true;
            }
            Message::Expired { nonce, session } if nonce == self.nonce && session == self.session => {
                self.on_expired(cx);
            }
            // The replica nearby cannot serve reads: it does not know the leader itself.
            Message::Leader { nonce, .. }
                if nonce == self.nonce
                    && self.config.nearest
                    && !self.searching
                    && from != self.target
                    && self.near == Some(from) =>
            {
                self.unsend_reads();
            }
            Message::Leader { nonce, leader }
                if nonce == self.nonce && leader == self.away() && leader == Some(from) =>
            {
                self.retarget(from, now);
            }
            // While searching, an answer counts even if another replica has been asked since: round trips may be
            // longer than the interval between probes.
            Message::Leader { nonce, leader }
                if nonce == self.nonce && (self.searching || from == self.target) =>
            {
                if self.config.nearest && self.near == Some(from) {
                    // It did not take reads that it was asked.
                    self.unsend_reads();
                }
                self.on_leader(from, leader, cx);
            }
            Message::Refused { nonce, reads, leader } if nonce == self.nonce => {
                self.again.extend(reads);
                self.unsent = true;
                if from == self.target {
                    self.on_leader(from, leader, cx);
                }
            }
            Message::Reader { nonce, reader } if nonce == self.nonce && self.config.nearest => {
                if self.near == Some(from) && from != self.target {
                    // Only a leader passes on what it was asked.
                    self.reads
                        .iter_mut()
                        .for_each(|(_, read)| (read.sent, read.asked_nearby) = (None, false));
                    self.unsent = true;
                }
                self.near = Some(reader);
            }
            Message::Members { nonce, members } if nonce == self.nonce => self.on_members(members, cx),
            Message::Seen { nonce, voters, outgoing, reads } if nonce == self.nonce => {
                self.on_seen(from, Tally::joint(voters, outgoing), reads, cx);
            }
            Message::Ask(_)
            | Message::AskBehind { .. }
            | Message::AskAfter { .. }
            | Message::Query { .. }
            | Message::Seen { .. }
            | Message::Members { .. }
            | Message::Reader { .. }
            | Message::Refused { .. }
            | Message::Answer { .. }
            | Message::Opened { .. }
            | Message::Expired { .. }
            | Message::Leader { .. } => {}
        }
    }

    fn on_timer(&mut self, timer: ProxyTimer, cx: &mut Context<'_, Self>) {
        match timer {
            ProxyTimer::Tick => self.on_tick(cx),
            ProxyTimer::Refresh => {
                if self.session != 0 && !std::mem::take(&mut self.wrote) && self.writes.is_empty() {
                    self.writes.push_back(WriteCall {
                        call: None,
                        command: Bytes::new(),
                        sent: None,
                        sent_to: NodeSet::EMPTY,
                        answered: false,
                        is_part: false,
                    });
                    self.unsent = true;
                }
                cx.set_timer(ProxyTimer::Refresh, REFRESH);
            }
        }
    }

    fn on_batch_end(&mut self, cx: &mut Context<'_, Self>) {
        self.query(cx);
        self.pump(cx);
        self.confirm(cx);
    }

    fn check(&self) {
        assert!(self.writes.len() as u64 <= WINDOW);
        assert!(self.calls.len() <= self.config.max_requests);
        assert!(self.session != 0 || self.writes.is_empty(), "numbers belong to a session");
        let waiting = self.queue.len() + self.large.len();
        assert!(self.reads.len() + waiting + self.majority.len() <= self.calls.len());
    }
}

impl<M: Embeds> Proxy for SessionClient<M> {
    fn on_request(&mut self, id: RequestId, request: Request, cx: &mut Context<'_, Self>) {
        if self.calls.len() >= self.config.max_requests {
            cx.reply(id, Outcome::Failed(Failure::Overloaded));
            return;
        }
        let Request { stream, command, access, deadline, after } = request;
        if self.calls.is_empty() {
            // Nothing was outstanding: silence until now means nothing.
            self.heard = cx.now();
            self.patience = self.config.patience;
        }
        let call = Call { request: id, stream, access, deadline, command, after, place: Place::Stream };
        let call = self.calls.push(call);
        if self.streams.begin(stream, call, access) {
            self.start(call);
        }
        self.wake_by(deadline, cx);
    }

    fn samples(&self) -> Vec<Sample> {
        let nearby = [
            Sample::counter(
                "reads_nearby_total",
                self.asked_nearby.get(),
                "Reads that this proxy asked the replica of its node first.",
            ),
            Sample::counter(
                "reads_fallback_total",
                self.fallen_back.get(),
                "Those that it then asked the leader.",
            ),
            Sample::counter(
                "reads_unheld_total",
                self.unheld.get(),
                "Those that it asked the leader because they were held for long.",
            ),
        ];
        if self.config.nearest || self.config.bounded { nearby.into() } else { Vec::new() }
    }
}

/// Whether a reply says that a replica has refused a write for want of room.
fn is_refusal(reply: &Bytes) -> bool {
    matches!(Reply::from_bytes(reply.clone()), Ok(Reply::Error(error)) if error.is_refusal())
}
