//! Almost-local reads at any replica of a log that a leader orders (*lazy ALR*, LAW): reads are executed here, in
//! batches, and all that a batch costs is one small question to the leader, or nothing.
//!
//! A batch is *closed* at one of two moments, and no read joins it later:
//!
//! - **Sync**: the replica asks the leader about the batch. The leader answers with the place of an entry that it
//!   appends after that: a client's if one is there, else one without commands. A place is a slot and the term or
//!   ballot in which the leader proposed it. The batch is executed when that very entry is; if another was decided in
//!   its slot, or this cannot be told any more, the leader is asked again.
//! - **Timely write**: a proxy names a write of its session that it sends for the first time after the reads of the
//!   same message. The batch is executed when the session table shows that write. No message is sent for it.
//!
//! Why that is linearizable, without a clock: the entry is proposed after each read of the batch has begun. A write
//! that was acknowledged before is in an earlier slot: in the leader's own term or ballot because slots are given in
//! order; in an earlier one because the leader has, in its log, all that was decided before it led; and if it had
//! been in a later one, a majority would have left the leader's before the entry was proposed, and not have accepted
//! it in the leader's. Slots are executed in order. A write that is proposed after the read has begun is such an
//! entry itself.

use std::collections::{BTreeMap, VecDeque};

use quorate_core::{NodeId, NodeSet, ProcessId, mutation};

use super::{Ask, PendingRead};

/// Batches that may be asked about: more than that are lost, and proxies ask again.
const MAX_ASKED: usize = 1024;
/// Reads that a replica holds, in all batches together: beyond, some are lost, and proxies ask again.
const MAX_READS: usize = 1 << 16;
/// Questions for the same entry that may wait at a leader: more than that are lost, and asked again.
const MAX_SYNCS: usize = 1 << 16;

/// An entry of the log: its slot, and the term or ballot number in which it was proposed.
pub type Place = (u64, u64);

/// The batches of a replica. Volatile: proxies ask again.
#[derive(Debug)]
pub struct ReadBatches {
    /// They are in no closed batch yet.
    open: VecDeque<PendingRead>,
    /// The leader was asked about them, by number.
    asked: BTreeMap<u64, Vec<PendingRead>>,
    /// The last number. The first is drawn: a late answer to an earlier incarnation's question must not be taken for
    /// one of this incarnation's.
    last: u64,
    /// They wait for an entry, and whether it is known to be decided.
    placed: BTreeMap<Place, (bool, Vec<PendingRead>)>,
    /// They wait for a write: by session, and its number there.
    behind: BTreeMap<(u64, u64), Vec<PendingRead>>,
    /// What they waited for is executed.
    ready: Vec<PendingRead>,
    /// How many reads are in all of these.
    count: usize,
}

impl ReadBatches {
    /// Nothing is asked yet. Numbers go on from this one, which was drawn at random.
    pub fn new(drawn: u64) -> ReadBatches {
        ReadBatches {
            open: VecDeque::new(),
            asked: BTreeMap::new(),
            last: drawn >> 1,
            placed: BTreeMap::new(),
            behind: BTreeMap::new(),
            ready: Vec::new(),
            count: 0,
        }
    }

    /// Reads that came in.
    pub fn add(&mut self, proxy: ProcessId, ask: &mut Ask) {
        let reads = self.take_in(proxy, ask);
        match self.placed.last_entry() {
            Some(mut closed) if mutation::active("alr/join-closed") => closed.get_mut().1.extend(reads),
            _ => self.open.extend(reads),
        }
    }

    /// Reads whose proxy sends the write of this number in its session after them.
    pub fn add_behind(&mut self, proxy: ProcessId, ask: &mut Ask, write: u64) {
        let reads = self.take_in(proxy, ask);
        if !reads.is_empty() {
            self.behind.entry((ask.session, write)).or_default().extend(reads);
        }
    }

    /// The same, of reads that have waited for something else before.
    pub fn add_pending(&mut self, reads: Vec<PendingRead>) {
        let reads = self.make_room(reads);
        self.open.extend(reads);
    }

    fn take_in(&mut self, proxy: ProcessId, ask: &mut Ask) -> Vec<PendingRead> {
        self.make_room(ask.take_reads(proxy).collect())
    }

    /// Counts reads, as many as there is room for. What has waited for longest makes room: an answer that is lost, or
    /// an entry that is never decided, must not keep reads out for ever.
    fn make_room(&mut self, mut reads: Vec<PendingRead>) -> Vec<PendingRead> {
        reads.truncate(MAX_READS);
        while self.count + reads.len() > MAX_READS {
            let asked = self.asked.pop_first().map(|(_, reads)| reads);
            let placed = || self.placed.pop_last().map(|(_, (_, reads))| reads);
            let Some(lost) =
                asked.or_else(placed).or_else(|| self.behind.pop_first().map(|(_, reads)| reads))
            else {
                break;
            };
            self.count -= lost.len();
        }
        reads.truncate(MAX_READS - self.count);
        self.count += reads.len();
        reads
    }

    /// Whether the leader has to be asked.
    pub fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Nobody can be asked: proxies ask again.
    pub fn forget_open(&mut self) {
        self.count -= self.open.len();
        self.open.clear();
    }

    /// Closes a batch of at most so many reads, if any are there; the number under which the leader is asked about it.
    pub fn close(&mut self, most: usize) -> Option<u64> {
        let most = most.min(self.open.len());
        if most == 0 {
            return None;
        }
        if self.asked.len() >= MAX_ASKED {
            let (_, lost) = self.asked.pop_first().expect("the bound is not 0");
            self.count -= lost.len();
        }
        self.last += 1;
        self.asked.insert(self.last, self.open.drain(..most).collect());
        Some(self.last)
    }

    /// The batch with this number, if it was not answered before.
    pub fn take_asked(&mut self, id: u64) -> Option<Vec<PendingRead>> {
        let reads = self.asked.remove(&id)?;
        self.count -= reads.len();
        Some(reads)
    }

    /// All reads: what they wait for may never come.
    pub fn take_all(&mut self) -> Vec<PendingRead> {
        let ReadBatches { open, asked, placed, behind, ready, .. } =
            std::mem::replace(self, ReadBatches { last: self.last, ..ReadBatches::new(0) });
        let placed = placed.into_values().map(|(_, reads)| reads);
        let closed = asked.into_values().chain(placed).chain(behind.into_values()).flatten();
        closed.chain(open).chain(ready).collect()
    }

    /// The leader has appended an entry for the batch with this number. `applied`: the last slot that is executed here;
    /// `executed`: what was proposed in this slot in which term or ballot, if it is executed and that is known.
    pub fn on_place(&mut self, id: u64, place: Place, applied: u64, executed: Option<u64>) {
        let Some(reads) = self.asked.remove(&id) else { return };
        if place.0 > applied {
            self.placed.entry(place).or_default().1.extend(reads);
        } else {
            self.pass(executed == Some(place.1), reads);
        }
    }

    /// This very entry is decided. Told before it is executed.
    pub fn on_decided(&mut self, place: Place) {
        if let Some((decided, _)) = self.placed.get_mut(&place) {
            *decided = true;
        }
    }

    /// This very entry is executed, and everything before it.
    pub fn on_executed_entry(&mut self, place: Place) {
        self.on_decided(place);
        self.on_executed(place.0);
    }

    /// Everything up to this slot is executed.
    pub fn on_executed(&mut self, applied: u64) {
        while let Some(entry) = self.placed.first_entry().filter(|entry| entry.key().0 <= applied) {
            let (decided, reads) = entry.remove();
            self.pass(decided, reads);
        }
    }

    /// Their slot is executed; `same`: with the entry that they wait for.
    fn pass(&mut self, same: bool, reads: Vec<PendingRead>) {
        let same = same || mutation::active("alr/any-entry");
        match same {
            true => self.ready.extend(reads),
            false => self.open.extend(reads),
        }
    }

    /// Reads that the present state answers. `next`: the number of a session's next write, if it is known here.
    pub fn take_ready(&mut self, next: impl Fn(u64) -> Option<u64>) -> Vec<PendingRead> {
        if !self.behind.is_empty() {
            for ((session, write), reads) in std::mem::take(&mut self.behind) {
                match next(session) {
                    // It is not open here yet, or not any more: then the leader is asked.
                    None => self.open.extend(reads),
                    Some(next) if next > write => self.ready.extend(reads),
                    Some(_) => drop(self.behind.insert((session, write), reads)),
                }
            }
        }
        self.count -= self.ready.len();
        std::mem::take(&mut self.ready)
    }

    /// Asserts what must always hold.
    pub fn check(&self) {
        let ReadBatches { open, asked, last: _, placed, behind, ready, count } = self;
        let placed = placed.values().map(|(_, reads)| reads);
        let batches = asked.values().chain(behind.values()).chain(placed).chain([ready]);
        assert!(open.len() + batches.map(Vec::len).sum::<usize>() == *count, "reads in batches are counted");
        assert!(*count <= MAX_READS && asked.len() <= MAX_ASKED, "reads in batches are bounded");
    }
}

/// What a leader knows of others' batches: who wants to know of an entry that is appended after they asked.
#[derive(Debug, Default)]
pub struct Syncs {
    /// They wait for the next entry, each with its number for the question.
    waiting: Vec<(NodeId, u64)>,
    /// Who waits for the decision of which slot.
    placed: BTreeMap<u64, NodeSet>,
}

impl Syncs {
    /// A replica asks. Beyond a bound it has to ask again.
    pub fn on_sync(&mut self, node: NodeId, id: u64) {
        if self.waiting.len() < MAX_SYNCS {
            self.waiting.push((node, id));
        }
    }

    /// Whether a slot must be proposed for some.
    pub fn need_slot(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// This slot is proposed: who is to be answered with it, and their numbers.
    pub fn proposed(&mut self, slot: u64) -> Vec<(NodeId, u64)> {
        let answered = std::mem::take(&mut self.waiting);
        if !answered.is_empty() {
            let nodes = answered.iter().map(|(node, _)| *node).collect();
            self.placed.insert(slot, nodes);
        }
        answered
    }

    /// Everything up to this slot is decided: who waits to be told.
    pub fn decided(&mut self, upto: u64) -> NodeSet {
        let mut waiting = NodeSet::EMPTY;
        while let Some(entry) = self.placed.first_entry().filter(|entry| *entry.key() <= upto) {
            waiting = waiting.union(entry.remove());
        }
        waiting
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use quorate_core::{NodeId, ProxyId};

    use super::*;

    fn ask(session: u64, ids: std::ops::Range<u64>) -> Ask {
        let reads = ids.map(|id| (id, Bytes::new())).collect();
        let (bounds, manage, writes) = (Vec::new(), Vec::new(), Vec::new());
        Ask { nonce: 1, session, open: false, low: 1, writes, reads, bounds, manage, version: 0 }
    }

    /// What one step of a script does, and which reads are ready after it.
    fn run(script: &str) -> String {
        let proxy = ProcessId::Proxy(ProxyId::of(NodeId::new(1).expect("an id")));
        let mut batches = ReadBatches::new(0);
        let (mut id, mut out, mut next) = (0, String::new(), BTreeMap::new());
        for line in script.lines() {
            let (step, _) = line.split_once(" → ").unwrap_or((line, ""));
            let words: Vec<&str> = step.split_whitespace().collect();
            let number = |at: usize| words[at].parse::<u64>().expect("a number");
            match words[0] {
                "read" => {
                    batches.add(proxy, &mut ask(7, id..id + number(1)));
                    id += number(1);
                }
                "behind" => {
                    batches.add_behind(proxy, &mut ask(7, id..id + 1), number(1));
                    id += 1;
                }
                "next" => drop(next.insert(7, number(1))),
                "again" => {
                    let reads = batches.take_all();
                    batches.check();
                    batches.add_pending(reads);
                }
                "close" => while batches.close(number(1) as usize).is_some() {},
                "place" => batches.on_place(number(1), (number(2), number(3)), number(4), Some(9)),
                "decided" => batches.on_decided((number(1), number(2))),
                "executed" => batches.on_executed(number(1)),
                other => panic!("what is {other}?"),
            }
            let ready = batches.take_ready(|session| next.get(&session).copied());
            let ids = |reads: &[PendingRead]| match reads {
                [] => "none".to_owned(),
                reads => reads.iter().map(|read| read.id.to_string()).collect::<Vec<_>>().join(","),
            };
            batches.check();
            out.push_str(&format!(
                "{step} → ready {}, open {}\n",
                ids(&ready),
                ids(batches.open.make_contiguous())
            ));
        }
        out
    }

    #[test]
    fn a_batch_waits_for_the_very_entry_that_was_appended_for_it() {
        let script = "\
read 3 → ready none, open 0,1,2
close 2 → ready none, open none
read 1 → ready none, open 3
place 1 5 2 4 → ready none, open 3
place 2 6 2 4 → ready none, open 3
decided 6 1 → ready none, open 3
decided 5 2 → ready none, open 3
executed 5 → ready 0,1, open 3
executed 6 → ready none, open 3,2
close 9 → ready none, open none
place 3 6 9 6 → ready 3,2, open none
read 1 → ready none, open 4
close 9 → ready none, open none
place 4 6 2 6 → ready none, open 4
place 4 7 2 6 → ready none, open 4
";
        assert_eq!(run(script), script);
    }

    #[test]
    fn what_waits_for_longest_makes_room_for_more_reads_than_are_held() {
        let proxy = ProcessId::Proxy(ProxyId::of(NodeId::new(1).expect("an id")));
        let mut batches = ReadBatches::new(0);
        let add = |batches: &mut ReadBatches, many: usize| {
            batches.add(proxy, &mut ask(7, 0..many as u64));
            batches.check();
        };
        add(&mut batches, MAX_READS - 10);
        for batch in [MAX_READS - 20, 5, 5] {
            assert!(batches.close(batch).is_some());
        }
        batches.on_place(3, (9, 1), 0, None);
        batches.add_behind(proxy, &mut ask(7, 0..10), 4);
        assert_eq!((batches.asked.len(), batches.count), (2, MAX_READS));
        add(&mut batches, 1);
        assert_eq!((batches.asked.len(), batches.count), (1, 21), "the first question's reads are lost");
        assert_eq!(batches.take_asked(1), None);
        add(&mut batches, MAX_READS - 1);
        let left = (batches.asked.len(), batches.placed.len(), batches.behind.len(), batches.count);
        assert_eq!(left, (0, 0, 0, MAX_READS), "nobody waits for what may never come");
        add(&mut batches, 1);
        assert_eq!(batches.open.len(), MAX_READS, "what came before stays");
        batches.forget_open();
        add(&mut batches, 2 * MAX_READS);
        assert_eq!(batches.count, MAX_READS);
    }

    #[test]
    fn a_leader_answers_with_the_next_entry_and_tells_once_that_it_is_decided() {
        let node = |number| NodeId::new(number).expect("an id");
        let mut syncs = Syncs::default();
        assert!(!syncs.need_slot() && syncs.proposed(1).is_empty());
        syncs.on_sync(node(2), 7);
        syncs.on_sync(node(3), 8);
        assert!(syncs.need_slot());
        assert_eq!(syncs.proposed(2), [(node(2), 7), (node(3), 8)]);
        syncs.on_sync(node(2), 9);
        assert_eq!(syncs.proposed(3), [(node(2), 9)]);
        assert!(!syncs.need_slot() && syncs.decided(1).is_empty());
        assert_eq!(syncs.decided(2), NodeSet::from_iter([node(2), node(3)]));
        assert_eq!(syncs.decided(9), NodeSet::from_iter([node(2)]));
        assert!(syncs.decided(9).is_empty());
    }

    #[test]
    fn reads_of_which_nobody_can_be_asked_any_more_wait_for_another_answer() {
        let script = "\
read 2 → ready none, open 0,1
close 1 → ready none, open none
place 1 5 2 4 → ready none, open none
behind 4 → ready none, open 2
next 4 → ready none, open 2
behind 4 → ready none, open 2
again → ready none, open 1,0,3,2
place 2 5 2 6 → ready none, open 1,0,3,2
close 9 → ready none, open none
place 3 6 9 6 → ready 1,0,3,2, open none
";
        assert_eq!(run(script), script);
    }

    #[test]
    fn a_batch_behind_a_write_waits_until_the_session_shows_it() {
        let script = "\
behind 4 → ready none, open 0
next 4 → ready none, open 0
behind 4 → ready none, open 0
next 5 → ready 1, open 0
behind 4 → ready 2, open 0
";
        assert_eq!(run(script), script);
    }
}
