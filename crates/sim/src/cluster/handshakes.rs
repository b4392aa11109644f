//! Handshakes: nodes introduce themselves to each other before they speak, and remember each other's disks, as real
//! nodes do when they connect ([`quorate_blocks::admission`]).
//!
//! A node sends `Hello` to every other again and again until it is answered with `Welcome`. A message passes from one
//! node to another only when each has made the other's introduction durable, and only while both live: a connection
//! ends with either process. [`check_connection`](Cluster::check_connection) looks at the disks and says whether that
//! is so. The memory of disks is a file of its own on the simulated disk; a crash while it is written leaves the old
//! one or the new one.
//!
//! One that is to replace its disk and waits until all others are there says nothing of itself in its `Hello`.
//!
//! A node that is refused must have a disk that was [damaged](super::disks); it never starts again. A node whose disk
//! is as it left it must not be refused.

use quorate_blocks::admission::{self, DiskId, Introduction, Memory, PeerDisk, Reason, Verdict, Why};
use quorate_blocks::reach::Timeouts;
use quorate_check::{MILLISECOND, Nanos, SECOND};
use quorate_core::{Class, NodeId, ProcessId};
use quorate_runtime::Input;

use super::impairments::{host_of, node};
use super::{Cluster, Event};
use crate::process::{Guard, SimProcess};

/// From one attempt to connect to the next.
const AGAIN: std::ops::Range<Nanos> = 30 * MILLISECOND..100 * MILLISECOND;

/// A message of a handshake.
pub(crate) struct Handshake {
    step: Step,
    /// Host and epoch of the sender.
    from: (usize, u64),
    to: usize,
    /// The epoch of the receiver when it was sent.
    met: u64,
    /// The epoch of the receiver's life that it answers.
    answers: Option<u64>,
    /// None of one that is to replace its disk, and waits until all others are there.
    said: Option<Introduction>,
    /// A digest of the sender's settings.
    settings: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Asks to be let in.
    Hello,
    /// The receiver may send to the sender.
    Welcome,
    /// The sender remembers of the receiver's disk what forbids it to take part, or one of the two must start again
    /// first, with longer timeouts.
    Disowned,
}

impl Cluster {
    pub(super) fn guard(&mut self, host: usize) -> Option<&mut Guard> {
        self.hosts[host].life.as_mut()?.guard.as_mut()
    }

    /// A life has begun, or something was learned: hands the memory of disks to the disk, unless that is busy with it.
    pub(super) fn remember(&mut self, host: usize) {
        let SimProcess { life: Some(life), disk, writing, epoch, .. } = &mut self.hosts[host] else { return };
        let Some(guard) = &mut life.guard else { return };
        let revision = guard.admission.revision();
        if writing.is_none() && guard.written < revision {
            guard.written = revision;
            *writing = Some((revision, guard.admission.memory().clone()));
            let (end, limit) =
                (disk.write_file(self.now), self.now + admission::PATIENCE.as_nanos() as Nanos);
            if let Some(end) = end {
                self.queue.push(end, Event::Remembered { host, epoch: *epoch, revision });
            }
            if end.is_none_or(|end| end > limit) {
                self.queue.push(limit, Event::Stuck { host, epoch: *epoch, revision });
            }
        }
        self.proceed(host);
    }

    /// The memory of disks has been written for too long: the node stops, and where its disk hangs it does not come
    /// back. If the group needs what the node has in memory alone, the write ends now instead.
    pub(super) fn stuck(&mut self, host: usize) {
        let hangs = self.hosts[host].disk.hangs();
        if !hangs && !self.may_forget(host) {
            self.trace.line(self.now, &self.hosts[host], || "its disk has almost taken too long".to_owned());
            return self.remembered(host);
        }
        self.trace.line(self.now, &self.hosts[host], || "stops: its disk takes too long".to_owned());
        match hangs {
            true => {
                self.hosts[host].lost = true;
                self.end_life(host);
            }
            false => self.kill(host, SECOND),
        }
    }

    /// The memory of disks that was being written is durable.
    pub(super) fn remembered(&mut self, host: usize) {
        let at = &mut self.hosts[host];
        let (revision, memory) = at.writing.take().expect("it is being written");
        at.memory = Some(memory);
        if let Some(guard) = self.guard(host) {
            guard.admission.on_durable(revision);
        }
        self.trace.mix(revision);
        self.remember(host);
    }

    /// Does what waited for the memory to be durable.
    fn proceed(&mut self, host: usize) {
        self.start_again_if_needed(host);
        let Some(guard) = self.guard(host) else { return };
        if guard.admission.may_speak() && !std::mem::replace(&mut guard.greets, true) {
            let epoch = self.hosts[host].epoch;
            if self.timeouts == Some(Timeouts::Auto) {
                self.queue.push(self.now, Event::Measure { host, epoch });
            }
            for to in (0..self.nodes).filter(|to| *to != host) {
                self.queue.push(self.now, Event::Greet { host, epoch, to });
            }
        }
        let Some(Guard { admission, answers, openings, up, written, .. }) = self.guard(host) else { return };
        let opened: Vec<_> = openings.extract_if(.., |(.., after)| admission.is_durable(*after)).collect();
        for (peer, epoch, _) in opened {
            up.insert(peer, epoch);
            admission.on_bound(node(peer));
        }
        let answered: Vec<_> = answers.extract_if(.., |(.., after)| admission.is_durable(*after)).collect();
        let (admitted, more) = (admission.may_run(), admission.revision() > *written);
        for (peer, epoch, _) in answered {
            self.post_handshake(Step::Welcome, host, peer, Some(epoch));
        }
        if more && self.hosts[host].writing.is_none() {
            // The node may be admitted now, which must be durable before its replica starts.
            return self.remember(host);
        }
        if admitted
            && self.hosts[host].replica().is_none()
            && self.hosts[host].waits_until(self.now).is_none()
        {
            self.begin(host);
        }
    }

    /// The node is admitted: its replica starts, and the others are told.
    fn begin(&mut self, host: usize) {
        self.trace.line(self.now, &self.hosts[host], || "is admitted".to_owned());
        if let Err(what) = self.hosts[host].begin(self.now) {
            return self.fail("disk", what);
        }
        let epoch = self.hosts[host].epoch;
        let up = std::mem::take(&mut self.guard(host).expect("it was admitted").up);
        for to in up.into_keys() {
            self.queue.push(self.now, Event::Greet { host, epoch, to });
        }
        self.hear(host);
        self.wake(host);
        self.set_wake(host);
    }

    /// Introduces a node to another again, unless they are connected.
    pub(super) fn greet(&mut self, host: usize, to: usize) {
        let (epoch, frozen) = (self.hosts[host].epoch, self.hosts[host].frozen_until);
        let other = self.hosts[to].epoch;
        if self.hosts[to].lost {
            return;
        }
        let Some(guard) = self.guard(host) else { return };
        if guard.up.get(&to) == Some(&other) {
            return;
        }
        guard.up.remove(&to);
        if self.now >= frozen {
            self.post_handshake(Step::Hello, host, to, None);
        }
        let again = self.now + self.random.range(AGAIN);
        self.queue.push(again, Event::Greet { host, epoch, to });
    }

    fn post_handshake(&mut self, step: Step, host: usize, to: usize, answers: Option<u64>) {
        let epoch = self.hosts[host].epoch;
        let Some(guard) = self.guard(host) else { return };
        let (said, settings) = (guard.admission.introduction(), guard.settings);
        if said.is_none() && step != Step::Hello {
            return;
        }
        let size = || 64;
        let [first, second] = self.network.send((host, to), Class::Urgent, self.now, size, &mut self.counts);
        let met = self.hosts[to].epoch;
        for at in [first, second].into_iter().flatten() {
            let message =
                Handshake { step, from: (host, epoch), to, met, answers, said: said.clone(), settings };
            self.queue.push(at, Event::Introduced(Box::new(message)));
        }
    }

    /// A message of a handshake arrives.
    pub(super) fn introduced(&mut self, message: Handshake) {
        let (host, (from, epoch)) = (message.to, message.from);
        let SimProcess { epoch: own, life: Some(life), frozen_until, .. } = &self.hosts[host] else { return };
        // The process takes it up when it runs again, and has acted on what it had taken before.
        if self.now < *frozen_until || life.held.is_some() || life.ending {
            let at = self.now + MILLISECOND;
            return self.queue.push(at, Event::Introduced(Box::new(message)));
        }
        // A connection ends with either process, but what it has carried before may still be read.
        let is_over = self.hosts[from].epoch != epoch;
        let is_stale = message.answers.is_some_and(|answers| answers != *own || is_over);
        let now = self.hosts[host].instant(self.now).now;
        // Who waits for others until they connect to it knows that they connect to this process.
        let is_late = message.met != *own;
        let listens = |guard: &&mut Guard| {
            let ignores = guard.admission.waits_to_replace() && is_late;
            guard.settings == message.settings && guard.admission.may_speak() && !ignores
        };
        let Some(guard) = self.guard(host).filter(|guard| !is_stale && listens(guard)) else {
            return;
        };
        let Some(said) = &message.said else {
            guard.admission.on_presence(node(from), true, now);
            return self.remember(host);
        };
        let replaced = guard.disk_of(node(from)).filter(|known| *known != said.life.disk);
        let verdict = guard.admission.hear(node(from), said, now);
        let accepted = matches!(verdict, Verdict::Accept { .. });
        match (message.step, &verdict) {
            (Step::Hello, Verdict::Accept { after }) => guard.answers.push((from, epoch, *after)),
            (Step::Welcome, Verdict::Accept { after }) => guard.openings.push((from, epoch, *after)),
            _ => {}
        }
        self.trace.mix(self.now ^ (host as u64) << 8 ^ from as u64);
        self.trace.line(self.now, &self.hosts[host], || {
            let (step, life) = (message.step, &said.life);
            format!("<- {:?} {step:?} of disk {} in life {}: {verdict:?}", node(from), life.disk, life.life)
        });
        if accepted && replaced.is_some() {
            self.forget_input(host, node(from));
        }
        self.end_outdated(host);
        match verdict {
            Verdict::Stop(reason) => return self.refuse(host, &reason),
            Verdict::Refuse(_) | Verdict::OtherReach { .. } if message.step == Step::Hello => {
                self.post_handshake(Step::Disowned, host, from, Some(epoch));
            }
            Verdict::Accept { .. } | Verdict::Refuse(_) | Verdict::OtherReach { .. } | Verdict::NotYet(_) => {
            }
        }
        self.remember(host);
    }

    /// Others know another disk of a node, or a later life: the connections to what was known of it before end.
    fn end_outdated(&mut self, host: usize) {
        let Some(guard) = self.guard(host) else { return };
        for other in guard.admission.take_outdated().iter().map(host_of) {
            self.forget_input(host, node(other));
            for (host, other) in [(host, other), (other, host)] {
                if let Some(guard) = self.guard(host) {
                    guard.answers.retain(|(peer, ..)| *peer != other);
                    guard.openings.retain(|(peer, ..)| *peer != other);
                }
                self.end_connection(host, other);
            }
        }
    }

    /// A node has come with another disk: the connection to its former process is closed, and nothing that came over
    /// it is read any more.
    fn forget_input(&mut self, host: usize, sender: NodeId) {
        if let Some(life) = &mut self.hosts[host].life {
            let is_old = |input: &Input| match input {
                Input::Frame { from, to: ProcessId::Replica(_), .. } => *from == sender.into(),
                _ => false,
            };
            life.inbox.retain(|input| !is_old(input));
        }
    }

    /// A node must not take part with its disk: it is gone for good.
    fn refuse(&mut self, host: usize, reason: &Reason) {
        self.trace.line(self.now, &self.hosts[host], || format!("is refused: {reason}"));
        let at = &self.hosts[host];
        // One that was removed before it was admitted owes nothing.
        if !at.damaged && reason.why != Why::LeftGroup {
            let what = format!("{at} is refused although its disk is as it left it: {reason}");
            return self.fail("admission", what);
        }
        self.hosts[host].lost = true;
        self.end_life(host);
        let read = self.now + self.random.range(100 * MILLISECOND..SECOND);
        self.queue.push(read, Event::Replace { host });
    }

    /// Whether the handshake lets a host send to another.
    pub(super) fn may_send(&self, host: usize, to: usize) -> bool {
        let epoch = self.hosts[to].epoch;
        match self.hosts[host].life.as_ref().and_then(|life| life.guard.as_ref()) {
            Some(guard) if to < self.nodes => guard.up.get(&to) == Some(&epoch),
            Some(_) | None => true,
        }
    }

    /// Whether a host reads what a process has sent with this disk. Proxies that run alone have none, and are not let
    /// in before others have accepted the node's disk.
    pub(super) fn listens_to(&self, host: usize, from: ProcessId, disk: Option<DiskId>) -> bool {
        let Some(life) = &self.hosts[host].life else { return false };
        let Some(guard) = &life.guard else { return true };
        // What was sent to a former life comes to none that has no connection: its disk is not the one that it was.
        let is_connected = |sender: usize| sender == host || self.may_send(sender, host);
        if self.hosts[host].damaged && !self.locate(from).is_none_or(is_connected) {
            return false;
        }
        match (from, disk) {
            (ProcessId::Replica(node), Some(disk)) => guard.disk_of(node).is_none_or(|known| known == disk),
            (ProcessId::Proxy(_), None) => guard.admission.may_answer_proxies(),
            (ProcessId::Proxy(_), Some(_)) | (ProcessId::Replica(_), None) => true,
        }
    }

    /// A message passes from one node to another: both disks must know the other's present life, and their own.
    pub(super) fn check_connection(&mut self, host: usize, to: usize) {
        let (Some(from), Some(at)) = (self.hosts[host].memories(), self.hosts[to].memories()) else { return };
        let knows = |memory: &Memory, other: &Memory, id: usize| {
            let known = memory.peers.get(&node(id)).and_then(|peer: &PeerDisk| peer.current.as_ref());
            known == Some(&other.own)
        };
        let known = knows(from.1, at.0, to) && knows(at.1, from.0, host);
        if !known || from.0.own != from.1.own {
            let what = format!(
                "{} sends to {} before both have made it durable which disk the other has",
                self.hosts[host], self.hosts[to]
            );
            self.fail("admission", what);
        }
    }

    /// A process has ended: those who were connected to it try again.
    pub(super) fn disconnect(&mut self, host: usize) {
        for other in (0..self.nodes).filter(|other| *other != host) {
            self.end_connection(other, host);
        }
    }

    /// A connection ends, if there is one: whoever made it tries again.
    fn end_connection(&mut self, host: usize, to: usize) {
        let epoch = self.hosts[host].epoch;
        if self.guard(host).is_some_and(|guard| guard.up.remove(&to).is_some()) {
            let at = self.now + self.random.range(AGAIN);
            self.queue.push(at, Event::Greet { host, epoch, to });
        }
    }
}
