//! Eager almost-local reads (LAW §4.1, *eager ALR*): a reader executes reads on its own state, keeps the replies, and
//! then asks acceptors whether they have promised a later ballot (`Sync`). If a majority has not, the replies leave; if
//! so many have that no majority is left, the batch is discarded and its reads are executed again later. One alone says
//! nothing: who has lost its link to the owner promises itself later ballots for ever, and nobody else may follow it.
//!
//! The first question goes to all, and so does every one behind a question that came to nothing: it had no answer in
//! time, or another epoch began. The others go to those who were the first to be a majority with the reader when all
//! were asked last, which is every [`ASK_ALL`] questions at least: who answers soonest may change. While [`FEW_ASKED`]
//! questions have no answer, the next one leaves [`PAUSE`] after the last at the earliest, and asks about more reads: a
//! busy reader asks seldom, and where answers come from far away, reads wait for their own question all the same.
//!
//! Why that is linearizable, without a clock: an acceptor that has promised no later ballot when it answers had
//! promised none when the reads were executed, which was before. So no later epoch had a majority then, and nothing was
//! committed in one. In its own epoch a reader executes what may have been committed, as under a lease. A read that is
//! executed after the question has left waits for the next one.
//!
//! Acceptors promise nothing to readers, so epochs change without waiting for anybody's lease to end.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::{Context, NodeId, NodeSet, Random, Settings, SettingsError, Time, mutation};

use super::{Embeds, Epochs, Event, Evidence, Message, Position, Timer};
use crate::ballot::Ballot;
use crate::clients::PendingRead;
use crate::prefix_log::RETRANSMIT;
use crate::quorum::{Tally, Verdict};

/// Bytes of replies that wait for an answer, before the last; reads beyond are asked for again.
const MAX_BYTES: usize = 64 << 20;

/// While fewer questions have no answer, another one leaves at once.
const FEW_ASKED: usize = 2;

/// Between questions, while more have no answer.
const PAUSE: Duration = Duration::from_millis(1);

/// Questions that have no answer, at most: reads beyond wait for one.
const MAX_ASKED: usize = 256;

/// One of so many questions goes to all.
const ASK_ALL: u64 = 100;

/// How a reader knows that nothing was committed in a later epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// A majority has promised it, for a while, to promise no other ballot.
    Lease,
    /// When it has read, it asks a majority whether it has.
    EagerAlr,
}

impl Reads {
    /// Reads the setting `reads`.
    pub fn from_settings(settings: &mut Settings) -> Result<Reads, SettingsError> {
        settings.choice(
            "reads",
            "lease",
            &[("lease", Reads::Lease), ("eager-alr", Reads::EagerAlr)],
            "How reads are answered: under leases; or in batches that ask a majority of the members when they are \
             executed",
        )
    }
}

/// Reads with their replies.
pub type Replies = Vec<(PendingRead, Bytes)>;

/// The batches of a reader: what is open, and what was asked about.
#[derive(Debug)]
pub struct EagerReads {
    /// Executed since the last question.
    open: Replies,
    /// By the number of the question.
    asked: BTreeMap<u64, Batch>,
    /// The last number. The first is drawn: a late answer to an earlier life's question must not count.
    last: u64,
    /// When the last question left.
    last_sent: Time,
    /// They were executed and must be so again, but not at once: the next epoch is about to begin.
    discarded: Vec<PendingRead>,
    /// Of the replies that are kept.
    bytes: usize,
    /// Who made a majority with the reader soonest, when all were asked last; empty while questions go to all.
    prompt: NodeSet,
}

#[derive(Debug)]
struct Batch {
    replies: Replies,
    /// Who has promised no later ballot.
    tally: Tally,
    /// Who has promised a later one.
    later: NodeSet,
    /// Whether all were asked.
    to_all: bool,
    sent: Time,
}

impl Batch {
    /// Who has said nothing.
    fn silent(&self) -> NodeSet {
        self.tally.missing().difference(self.later)
    }
}

impl EagerReads {
    /// Nothing was read yet.
    pub fn new(random: &mut Random) -> EagerReads {
        let (open, asked, discarded) = (Vec::new(), BTreeMap::new(), Vec::new());
        let last = random.u64() >> 1;
        EagerReads { open, asked, last, last_sent: Time::ZERO, discarded, bytes: 0, prompt: NodeSet::EMPTY }
    }

    /// Keeps a read that is executed now, on the own state.
    pub fn execute(&mut self, read: PendingRead, reply: impl FnOnce(&PendingRead) -> Bytes) {
        if self.bytes < MAX_BYTES {
            let reply = reply(&read);
            self.bytes += reply.len();
            self.open.push((read, reply));
        }
    }

    /// How long the next question has to wait; `None` if there is nothing to ask about, or an answer must come first.
    fn pause(&self, now: Time) -> Option<Duration> {
        let waits = PAUSE.saturating_sub(now.since(self.last_sent));
        match self.asked.len() {
            _ if self.open.is_empty() => None,
            0..FEW_ASKED => Some(Duration::ZERO),
            FEW_ASKED..MAX_ASKED => Some(waits),
            _ => None,
        }
    }

    /// The number of the question about what is open, and whom it goes to.
    fn close(&mut self, tally: Tally, sent: Time) -> Option<(u64, NodeSet)> {
        if self.pause(sent) != Some(Duration::ZERO) {
            return None;
        }
        let replies = std::mem::take(&mut self.open);
        if mutation::active("eager-alr/join-asked")
            && let Some(mut asked) = self.asked.last_entry()
        {
            asked.get_mut().replies.extend(replies);
            return None;
        }
        self.last += 1;
        self.last_sent = sent;
        let mut answered = tally;
        let enough = self.prompt.iter().any(|node| answered.add(node) == Verdict::Reached);
        let to_all = !enough || self.last.is_multiple_of(ASK_ALL);
        self.asked.insert(self.last, Batch { replies, tally, later: NodeSet::EMPTY, to_all, sent });
        Some((self.last, if to_all { tally.missing() } else { self.prompt }))
    }

    /// Somebody has promised no later ballot. The replies, if a majority has not.
    fn on_answer(&mut self, id: u64, from: NodeId, me: NodeId) -> Option<Replies> {
        let batch = self.asked.get_mut(&id)?;
        if batch.tally.add(from) != Verdict::Reached {
            return None;
        }
        if batch.to_all {
            self.prompt = batch.tally.votes().without(me);
        }
        Some(self.take(id))
    }

    /// Somebody has promised a later ballot (a NACK of the paper). The batch is discarded if those who may still say
    /// that they have not are too few for a majority, or if not all were asked.
    fn on_later(&mut self, id: u64, from: NodeId) {
        let Some(batch) = self.asked.get_mut(&id) else { return };
        batch.later.insert(from);
        self.prompt = NodeSet::EMPTY;
        let mut rest = batch.tally;
        let is_left = batch.silent().iter().any(|node| rest.add(node) == Verdict::Reached);
        if is_left && batch.to_all {
            return;
        }
        let reads = self.take(id).into_iter().map(|(read, _)| read);
        self.discarded.extend(reads);
    }

    /// Of the questions without an answer, those to ask again, and whom: all who have not answered.
    fn repeat(&mut self, now: Time) -> Vec<(u64, NodeSet)> {
        let late = self.asked.iter_mut().filter(|(_, batch)| now.since(batch.sent) >= RETRANSMIT);
        let again: Vec<_> = late
            .map(|(&id, batch)| {
                (batch.sent, batch.to_all) = (now, true);
                (id, batch.silent())
            })
            .collect();
        if !again.is_empty() {
            self.prompt = NodeSet::EMPTY;
        }
        again
    }

    fn take(&mut self, id: u64) -> Replies {
        let replies = self.asked.remove(&id).map_or(Vec::new(), |batch| batch.replies);
        self.bytes -= replies.iter().map(|(_, reply)| reply.len()).sum::<usize>();
        replies
    }

    /// All reads, to be executed anew.
    fn take_all(&mut self) -> Vec<PendingRead> {
        let asked = std::mem::take(&mut self.asked).into_values().flat_map(|batch| batch.replies);
        let replies = asked.chain(std::mem::take(&mut self.open)).map(|(read, _)| read);
        (self.bytes, self.prompt) = (0, NodeSet::EMPTY);
        std::mem::take(&mut self.discarded).into_iter().chain(replies).collect()
    }

    pub(super) fn check(&self) {
        let replies = self.asked.values().flat_map(|batch| &batch.replies).chain(&self.open);
        assert!(replies.map(|(_, reply)| reply.len()).sum::<usize>() == self.bytes, "replies are counted");
    }
}

impl<P: Position, K: Evidence> Epochs<P, K> {
    /// Asks about what was executed in this batch. What may leave at once: in a group of one.
    pub fn sync_reads<M: Embeds<P, K>>(&mut self, cx: &mut Context<'_, M>) -> Replies {
        let mut tally = match mutation::active("eager-alr/live-set") {
            true => Tally::new(self.live),
            false => self.members.tally(),
        };
        tally.add(self.me);
        let Some(eager) = &mut self.eager else { return Vec::new() };
        let Some((id, asked)) = eager.close(tally, cx.now()) else {
            if let Some(pause) = eager.pause(cx.now()) {
                cx.set_timer(Timer::Ask.into(), pause);
            }
            return Vec::new();
        };
        if tally.reached() || mutation::active("eager-alr/ask-nobody") {
            return eager.take(id);
        }
        cx.send_all(asked, Message::Sync { ballot: self.promised, id }.into());
        Vec::new()
    }

    /// As an acceptor. A promise counts as soon as it is made, whether it is durable or not.
    pub(super) fn on_sync<M: Embeds<P, K>>(
        &self,
        from: NodeId,
        (ballot, id): (Ballot, u64),
        cx: &mut Context<'_, M>,
    ) {
        cx.send(from, Message::SyncReply { ballot, id, promised: self.promised }.into());
    }

    pub(super) fn on_sync_reply(&mut self, from: NodeId, id: u64, promised: Ballot) -> Event<K> {
        let Some(eager) = &mut self.eager else { return Event::Nothing };
        if promised > self.promised {
            eager.on_later(id, from);
            return Event::Nothing;
        }
        eager.on_answer(id, from, self.me).map_or(Event::Nothing, Event::Read)
    }

    /// Messages may be lost, and members be gone: asks all. What was discarded is to be executed anew.
    pub fn repeat_syncs<M: Embeds<P, K>>(&mut self, cx: &mut Context<'_, M>) -> Vec<PendingRead> {
        let (ballot, now) = (self.promised, cx.now());
        let Some(eager) = &mut self.eager else { return Vec::new() };
        for (id, silent) in eager.repeat(now) {
            cx.send_all(silent, Message::Sync { ballot, id }.into());
        }
        std::mem::take(&mut eager.discarded)
    }

    /// All reads that have no answer yet: they are not to be answered here, or not in this epoch.
    pub fn take_reads(&mut self) -> Vec<PendingRead> {
        if mutation::active("eager-alr/asked-in-another-epoch") {
            return Vec::new();
        }
        self.eager.as_mut().map_or(Vec::new(), EagerReads::take_all)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use quorate_core::{ProcessId, ProxyId};

    use super::*;

    fn node(digit: char) -> NodeId {
        digit.to_digit(10).and_then(|id| NodeId::new(id.into())).expect("an id")
    }

    /// Node 1 of five reads and asks. What each line leads to.
    fn run(script: &str) -> String {
        let me = node('1');
        let proxy = ProcessId::Proxy(ProxyId::of(me));
        let mut eager = EagerReads::new(&mut Random::new(1));
        eager.last = 0;
        let (mut now, mut out) = (Time::ZERO, String::new());
        let names = |nodes: NodeSet| nodes.iter().map(|node| node.to_string()).collect::<Vec<_>>().join(",");
        for line in script.lines() {
            let (step, _) = line.split_once(" → ").expect("a step, and what comes of it");
            let words: Vec<&str> = step.split_whitespace().collect();
            let number = |at: usize| words[at].parse::<u64>().expect("a number");
            let came = match words[0] {
                "read" | "rest" => {
                    if words[0] == "read" {
                        let read = PendingRead { proxy, nonce: 1, id: number(1), command: Bytes::new() };
                        eager.execute(read, |_| Bytes::from_static(b"reply"));
                    } else {
                        now += Duration::from_micros(number(1));
                    }
                    let mut tally = Tally::new("12345".chars().map(node).collect());
                    tally.add(me);
                    match eager.close(tally, now) {
                        Some((id, asked)) => format!("question {id} to {}", names(asked)),
                        None => "waits".to_owned(),
                    }
                }
                "answer" => {
                    let from = words[2].chars().next().map(node).expect("an id");
                    let replies = eager.on_answer(number(1), from, me).unwrap_or_default();
                    let ids: Vec<_> = replies.iter().map(|(read, _)| read.id.to_string()).collect();
                    format!("answered [{}]", ids.join(","))
                }
                "later" => {
                    let from = words[2].chars().next().map(node).expect("an id");
                    eager.on_later(number(1), from);
                    format!("{} to read again", eager.discarded.len())
                }
                "wait" => {
                    now += RETRANSMIT;
                    let again = eager.repeat(now).into_iter();
                    again
                        .map(|(id, silent)| format!("question {id} to {}", names(silent)))
                        .collect::<Vec<_>>()
                        .join("; ")
                }
                "epoch" => format!("{} to read again", eager.take_all().len()),
                "last" => {
                    eager.last = number(1);
                    "set".to_owned()
                }
                other => panic!("what is {other}?"),
            };
            eager.check();
            out.push_str(&format!("{step} → {came}\n"));
        }
        out
    }

    #[test]
    fn who_answers_soonest_is_asked_until_a_question_comes_to_nothing() {
        let script = "\
read 1 → question 1 to 2,3,4,5
read 2 → question 2 to 2,3,4,5
read 3 → waits
answer 1 4 → answered []
answer 1 2 → answered [1]
read 4 → question 3 to 2,4
answer 3 2 → answered []
wait → question 2 to 2,3,4,5; question 3 to 3,4,5
answer 3 5 → answered [3,4]
read 5 → question 4 to 2,5
later 4 2 → 1 to read again
read 6 → question 5 to 2,3,4,5
answer 5 3 → answered []
answer 5 4 → answered [6]
last 98 → set
read 7 → question 99 to 3,4
answer 99 3 → answered []
answer 99 4 → answered [7]
read 8 → question 100 to 2,3,4,5
answer 100 5 → answered []
answer 100 3 → answered [8]
read 9 → question 101 to 3,5
later 101 5 → 2 to read again
read 10 → question 102 to 2,3,4,5
read 11 → waits
later 102 2 → 2 to read again
answer 102 3 → answered []
wait → question 2 to 2,3,4,5; question 102 to 4,5
answer 102 5 → answered [10]
read 12 → question 103 to 3,5
read 13 → waits
epoch → 6 to read again
read 14 → question 104 to 2,3,4,5
";
        assert_eq!(run(script), script);
    }

    /// One that cannot reach the owner promises itself later ballots for ever.
    #[test]
    fn reads_are_executed_again_when_no_majority_is_left_that_has_promised_no_later_ballot() {
        let script = "\
read 1 → question 1 to 2,3,4,5
later 1 2 → 0 to read again
later 1 2 → 0 to read again
answer 1 3 → answered []
later 1 4 → 0 to read again
answer 1 5 → answered [1]
later 1 4 → 0 to read again
read 2 → question 2 to 3,5
later 2 3 → 1 to read again
read 3 → question 3 to 2,3,4,5
later 3 2 → 1 to read again
later 3 4 → 1 to read again
later 3 3 → 2 to read again
answer 3 5 → answered []
";
        assert_eq!(run(script), script);
    }

    #[test]
    fn a_busy_reader_asks_seldom_and_a_distant_one_at_once() {
        let script = "\
rest 5000 → waits
read 1 → question 1 to 2,3,4,5
read 2 → question 2 to 2,3,4,5
read 3 → waits
rest 999 → waits
read 4 → waits
rest 1 → question 3 to 2,3,4,5
read 5 → waits
answer 1 2 → answered []
answer 1 3 → answered [1]
answer 2 2 → answered []
answer 2 3 → answered [2]
read 6 → question 4 to 2,3
answer 3 5 → answered []
answer 3 4 → answered [3,4]
rest 5000 → waits
read 7 → question 5 to 4,5
";
        assert_eq!(run(script), script);
    }

    /// An answer to an earlier life, whose promise is older, must not let a read of this one leave.
    #[test]
    fn questions_of_another_life_have_other_numbers() {
        let first = |seed| EagerReads::new(&mut Random::new(seed)).last;
        assert_ne!(first(1), first(2));
    }

    #[test]
    fn replies_that_wait_have_a_bound() {
        let mut eager = EagerReads::new(&mut Random::new(1));
        let read =
            || PendingRead { proxy: ProxyId::of(node('1')).into(), nonce: 1, id: 1, command: Bytes::new() };
        for kept in [1, 2, 2] {
            eager.execute(read(), |_| Bytes::from(vec![0; MAX_BYTES / 2]));
            assert_eq!(eager.open.len(), kept);
        }
        assert_eq!(eager.take_all().len(), 2);
        eager.execute(read(), |_| Bytes::new());
        assert_eq!(eager.open.len(), 1, "they have left");
    }

    #[test]
    fn questions_without_an_answer_have_a_bound() {
        let mut eager = EagerReads::new(&mut Random::new(1));
        let read =
            || PendingRead { proxy: ProxyId::of(node('1')).into(), nonce: 1, id: 1, command: Bytes::new() };
        let tally = Tally::new("123".chars().map(node).collect());
        for at in 0..2 * MAX_ASKED as u32 {
            eager.execute(read(), |_| Bytes::new());
            eager.close(tally, Time::ZERO + PAUSE * at);
        }
        assert_eq!(eager.asked.len(), MAX_ASKED);
    }
}
