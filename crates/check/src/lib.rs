//! What must hold of a whole cluster, whatever happens to its parts. One file for each invariant.
//!
//! | checker | invariant | source |
//! |---|---|---|
//! | [`agreement`] | one value per slot, executed in order without gaps | Lamport, *Paxos Made Simple* §2.1; TLA+ `Consistency` |
//! | [`commitment`] | a majority has what is committed; what is committed is executed | Ongaro and Ousterhout 2014, §5.4.2, §6 |
//! | [`durability`] | an acknowledged write is in every replica's final state | TLA+ `Linearizability`, its durable half |
//! | [`election_safety`] | a number has one leader | Ongaro and Ousterhout 2014, Figure 3; TLA+ `ElectionSafety` |
//! | [`execution_order`] | what interferes is executed in one order everywhere | Moraru et al. 2013, §4.1 |
//! | [`expiry`] | a key with a time to live lasts that long, and not much longer | Redis, *EXPIRE* |
//! | [`exactly_once`] | a command is executed at one slot only | Ongaro's thesis 2014, §6.3 |
//! | [`instances`] | an instance is decided once, with its dependencies, and lasts | Moraru et al. 2013, §4.1; Ryabinin et al. 2025 |
//! | [`key_agreement`] | those who may read a key have one version of it | Katsarakis et al., *Hermes*, 2020, §3; TLA+ `HConsistent` |
//! | [`leader_completeness`] | later leaders have what is committed; leaders only append | the same; TLA+ `LeaderCompleteness` |
//! | [`leases`] | promises outlast beliefs; one reader from its own state at a time | Gray and Cheriton 1989; Bodega §3.2 |
//! | [`linearizability`] | replies are those of one store | Herlihy and Wing 1990; Lowe, *Testing for Linearizability*, 2017 |
//! | [`log_matching`] | equal indexes and terms have equal pasts | Ongaro and Ousterhout 2014, Figure 3; TLA+ `LogMatching` |
//! | [`memory`] | what a replica has said binds its later lives | Lamport, *Paxos Made Simple* §2.5: stable storage |
//! | [`one_change`] | a group changes in one step at a time, and majorities meet | Ongaro and Ousterhout 2014, §6 |
//! | [`read_gate`] | nobody reads alone while another commits what it does not see | Davis et al., *LeaseGuard*, 2025 |
//! | [`recoverability`] | what is chosen can be had from the disks of any n − f voters | Crossword §3.3, C2 |
//! | [`sequential`] | reads that may be stale show one order of writes, and never go back | Lamport 1979; Hunt et al., *ZooKeeper*, 2010, §2.3 |
//! | [`service`] | with at most a minority faulty or slow, writes are served within a stated time | the bounds are its own |
//! | [`staleness`] | a read that may miss something misses no more | Bodega §7 |
//! | [`update_propagation`] | what a member of a chain has, its predecessor has | van Renesse and Schneider 2004, §2.1 |
//!
//! *State-machine safety* of the same figure is [`agreement`] (one value is executed for an index, everywhere) with
//! [`commitment`] (it is the committed one).
//!
//! [`history`] is what clients asked and were told; [`wall_clocks`] what the nodes' clocks showed meanwhile; [`panics`]
//! makes a finding of a machine's failed assertion.
//!
//! All but five listen to the facts that machines state and run after every step of the simulator, so each spends at
//! most some hundred nanoseconds on a fact; those about terms say nothing of protocols that state none. What several
//! of them know of logs is in [`log`]. Linearizability, staleness, expiry and sequential consistency take the finished
//! history of all clients; service looks at requests when nothing more fails.
//!
//! Which of them judge a protocol follows from what it says of itself: its [`Panel`] from
//! [`Capabilities::total_order`](quorate_core::Capabilities::total_order), and the judge of its history from
//! [`Capabilities::consistency`](quorate_core::Capabilities::consistency). Where reads are sequentially consistent,
//! linearizability and staleness judge writes and the reads that say what they may miss, and expiry nothing.

pub mod agreement;
pub mod commitment;
pub mod durability;
pub mod election_safety;
pub mod exactly_once;
pub mod execution_order;
pub mod expiry;
pub mod history;
pub mod instances;
pub mod key_agreement;
pub mod leader_completeness;
pub mod leases;
pub mod linearizability;
pub mod log;
pub mod log_matching;
pub mod memory;
pub mod one_change;
pub mod panics;
pub mod read_gate;
pub mod recoverability;
pub mod refusals;
pub mod sequential;
pub mod service;
pub mod staleness;
pub mod update_propagation;
pub mod wall_clocks;

use std::fmt;

use quorate_core::{Capabilities, Fact, NodeId, Time};

/// True time, in nanoseconds since the start of a run. No process ever sees it.
pub type Nanos = u64;

/// One millisecond in the unit of this crate.
pub const MILLISECOND: Nanos = 1_000_000;
/// One second in the unit of this crate.
pub const SECOND: Nanos = 1_000_000_000;

/// One life of a replica: `incarnation` grows with every restart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// The replica whose life it is.
    pub node: NodeId,
    /// Which of its lives.
    pub incarnation: u64,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}.{}", self.node, self.incarnation)
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What the driver knows and machines do not: how their clocks run.
pub trait Clocks {
    /// When the clock of the current incarnation of this replica shows `local`, in nanoseconds of true time.
    fn true_time(&self, node: NodeId, local: Time) -> u64;

    /// From when on the interval clock of this replica never ends at `latest` or before, in nanoseconds of true time.
    fn when_past(&self, node: NodeId, latest: u64) -> u64;
}

/// Monotonic clocks as told; interval clocks that know true time.
impl<F: Fn(NodeId, Time) -> u64> Clocks for F {
    fn true_time(&self, node: NodeId, local: Time) -> u64 {
        self(node, local)
    }

    fn when_past(&self, _: NodeId, latest: u64) -> u64 {
        latest + 1
    }
}

/// An invariant does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{checker} at {at} ns: {what}")]
pub struct Violation {
    /// The name of the checker that has found it.
    pub checker: &'static str,
    /// When it was noticed, in nanoseconds of true time.
    pub at: u64,
    /// What was seen, for people.
    pub what: String,
}

/// Watches one invariant. All times are true time in nanoseconds, and never go back from call to call.
pub trait Checker {
    /// The invariant's name, as violations print it.
    fn name(&self) -> &'static str;

    /// The kinds of facts without which it sees nothing. A protocol states all of them, or the invariant does not
    /// concern it.
    fn waits_for(&self) -> &'static [&'static str] {
        &[]
    }

    /// Before anything happens: a group of so many members begins with a state that counts as that after this slot,
    /// which is no entry's; where there are no slots, as that after the first instance of each member.
    fn on_founded(&mut self, _slot: u64, _members: u64) {}

    /// A replica states a fact.
    fn on_fact(&mut self, at: u64, who: Process, fact: &Fact, clocks: &dyn Clocks) -> Result<(), Violation>;

    /// A replica crashes; `clocks` still knows the clock it had.
    fn on_crash(&mut self, _at: u64, _who: Process, _clocks: &dyn Clocks) -> Result<(), Violation> {
        Ok(())
    }

    /// The disk of a replica that is down is lost for good: it will come back with an empty one. What others have
    /// counted of what was on it counts all the same.
    fn on_disk_lost(&mut self, _node: NodeId) {}

    /// A replica sends a message that binds it to take part in nothing below this number
    /// ([`Message::binds`](quorate_core::Message::binds)).
    fn on_bound(&mut self, _at: u64, _who: Process, _number: u64) -> Result<(), Violation> {
        Ok(())
    }

    /// What a replica has stated in this life so far is in its records up to `written`, counted from the start of the
    /// life; those up to `durable` are durable. Told when records were written, and when they became durable, before
    /// anybody hears a message that waited for that.
    fn on_records(&mut self, _at: u64, _who: Process, _written: u64, _durable: u64) -> Result<(), Violation> {
        Ok(())
    }

    /// A client is told that its write was done; `command` is the digest of the encoded command.
    fn on_acknowledged(&mut self, _at: u64, _command: u64) -> Result<(), Violation> {
        Ok(())
    }

    /// Whether nothing is left that the replicas have to learn from each other. `applied` is as in
    /// [`finish`](Self::finish).
    fn is_settled(&self, _applied: &[(NodeId, u64)]) -> bool {
        true
    }

    /// The healing phase is over; `applied` is how far each member has executed, from its
    /// [`status`](quorate_core::Replica::status).
    fn finish(&mut self, _at: u64, _applied: &[(NodeId, u64)]) -> Result<(), Violation> {
        Ok(())
    }
}

/// Several checkers as one: the first violation counts.
pub struct Panel(Vec<Box<dyn Checker>>);

impl Panel {
    /// Those that listen to facts, for a group that orders all commands and has at most one leader at a time.
    pub fn standard() -> Panel {
        let mut panel = Panel::without_clocks();
        panel.0.push(Box::new(leases::Leases::default()));
        panel.0.push(Box::new(read_gate::ReadGates::default()));
        panel
    }

    /// Those of them that hold whatever clocks show: what clocks that lie lead to is for linearizability to find.
    pub fn without_clocks() -> Panel {
        Panel(vec![
            Box::new(agreement::Agreement::default()),
            Box::new(durability::Durability::default()),
            Box::new(exactly_once::ExactlyOnce::default()),
            Box::new(election_safety::ElectionSafety::default()),
            Box::new(log_matching::LogMatching::default()),
            Box::new(leader_completeness::LeaderCompleteness::default()),
            Box::new(commitment::Commitment::default()),
            Box::new(one_change::OneChange::default()),
            Box::new(memory::Memory::default()),
            Box::new(update_propagation::UpdatePropagation::default()),
        ])
    }

    /// Those for protocols that order only what interferes, and read no clock for their safety.
    pub fn unordered() -> Panel {
        Panel(vec![
            Box::new(instances::Instances::default()),
            Box::new(execution_order::ExecutionOrder::default()),
            Box::new(exactly_once::ExactlyOnce::default()),
        ])
    }

    /// Those for protocols in which each key has a history of its own, whatever clocks show.
    pub fn by_key() -> Panel {
        Panel(vec![
            Box::new(exactly_once::ExactlyOnce::default()),
            Box::new(key_agreement::KeyAgreement::default()),
            Box::new(memory::Memory::default()),
        ])
    }

    /// Those of a protocol that gives this, where clocks tell the truth or not.
    pub fn of_protocol(can: &Capabilities, clocks_lie: bool) -> Panel {
        let ordered = match clocks_lie {
            true if !can.multi_key => return Panel::by_key(),
            false if !can.multi_key => return Panel::by_key().with(leases::Leases::default()),
            _ if !can.total_order => return Panel::unordered(),
            true => Panel::without_clocks(),
            false => Panel::standard(),
        };
        ordered.with(recoverability::Recoverability::new(can.quorum))
    }

    /// The same, with another one.
    pub fn with(mut self, checker: impl Checker + 'static) -> Panel {
        self.0.push(Box::new(checker));
        self
    }

    /// A panel of these checkers, which hear of everything in this order.
    pub fn of(checkers: Vec<Box<dyn Checker>>) -> Panel {
        Panel(checkers)
    }

    /// What each of them waits for ([`Checker::waits_for`]), by name.
    pub fn awaited(&self) -> Vec<(&'static str, &'static [&'static str])> {
        self.0.iter().map(|checker| (checker.name(), checker.waits_for())).collect()
    }
}

impl Checker for Panel {
    fn name(&self) -> &'static str {
        "panel"
    }

    fn on_founded(&mut self, slot: u64, members: u64) {
        self.0.iter_mut().for_each(|checker| checker.on_founded(slot, members));
    }

    fn on_fact(&mut self, at: u64, who: Process, fact: &Fact, clocks: &dyn Clocks) -> Result<(), Violation> {
        self.0.iter_mut().try_for_each(|checker| checker.on_fact(at, who, fact, clocks))
    }

    fn on_crash(&mut self, at: u64, who: Process, clocks: &dyn Clocks) -> Result<(), Violation> {
        self.0.iter_mut().try_for_each(|checker| checker.on_crash(at, who, clocks))
    }

    fn on_disk_lost(&mut self, node: NodeId) {
        self.0.iter_mut().for_each(|checker| checker.on_disk_lost(node));
    }

    fn on_bound(&mut self, at: u64, who: Process, number: u64) -> Result<(), Violation> {
        self.0.iter_mut().try_for_each(|checker| checker.on_bound(at, who, number))
    }

    fn on_records(&mut self, at: u64, who: Process, written: u64, durable: u64) -> Result<(), Violation> {
        self.0.iter_mut().try_for_each(|checker| checker.on_records(at, who, written, durable))
    }

    fn on_acknowledged(&mut self, at: u64, command: u64) -> Result<(), Violation> {
        self.0.iter_mut().try_for_each(|checker| checker.on_acknowledged(at, command))
    }

    fn is_settled(&self, applied: &[(NodeId, u64)]) -> bool {
        self.0.iter().all(|checker| checker.is_settled(applied))
    }

    fn finish(&mut self, at: u64, applied: &[(NodeId, u64)]) -> Result<(), Violation> {
        self.0.iter_mut().try_for_each(|checker| checker.finish(at, applied))
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Tables of facts for the checkers' tests.

    use super::*;

    pub(crate) fn node(id: u64) -> NodeId {
        NodeId::new(id).unwrap()
    }

    /// The process `node.incarnation`.
    pub(crate) fn who(node_id: u64, incarnation: u64) -> Process {
        Process { node: node(node_id), incarnation }
    }

    /// All clocks show true time.
    pub(crate) fn true_clocks(_: NodeId, local: Time) -> u64 {
        local.nanos()
    }

    /// Feeds facts one nanosecond apart; the index of the fact that was rejected.
    pub(crate) fn first_rejected(checker: &mut dyn Checker, facts: &[(Process, Fact)]) -> Option<usize> {
        facts
            .iter()
            .enumerate()
            .position(|(index, (who, fact))| checker.on_fact(index as u64, *who, fact, &true_clocks).is_err())
    }

    /// What happens to a process.
    #[derive(Clone, Debug)]
    pub(crate) enum Step {
        Says(Fact),
        Crashes,
    }

    /// The same for steps with their instants.
    pub(crate) fn first_rejected_step(
        checker: &mut dyn Checker,
        steps: &[(u64, Process, Step)],
    ) -> Option<usize> {
        steps.iter().position(|(at, who, step)| {
            let result = match step {
                Step::Says(fact) => checker.on_fact(*at, *who, fact, &true_clocks),
                Step::Crashes => checker.on_crash(*at, *who, &true_clocks),
            };
            result.is_err()
        })
    }

    #[test]
    fn a_panel_reports_what_any_of_its_checkers_finds() {
        let chosen = |digest| Fact::Chosen { slot: 1, digest };
        let mut panel = Panel::standard();
        assert_eq!(panel.on_fact(5, who(1, 0), &chosen(1), &true_clocks), Ok(()));
        let found = panel.on_fact(6, who(2, 0), &chosen(2), &true_clocks).unwrap_err();
        assert_eq!((found.checker, found.at), ("agreement", 6));

        let mut panel = Panel::standard();
        assert_eq!(panel.on_acknowledged(7, 99), Ok(()));
        assert_eq!(panel.finish(8, &[(node(1), 9)]).unwrap_err().checker, "durability");
    }
}
