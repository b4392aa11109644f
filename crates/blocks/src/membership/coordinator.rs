//! The leader's side of a change of the group: what operators have asked for, which configuration is to be written
//! next, and whether the new voters catch up.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::{Manage, Managed, NodeId, NodeSet, Time, mutation};

use super::{Configuration, refused};
use crate::clients::PendingRead;

/// An operator who waits is told this often how far the change is.
const REPORT: Duration = Duration::from_secs(5);
/// Election timeouts without progress of a new voter, after which the change is dropped.
const STALLED_TIMEOUTS: u32 = 20;

/// What an operator has asked for, in terms of the group as it is to be.
#[derive(Debug)]
struct Job {
    voters: BTreeMap<NodeId, String>,
    learners: BTreeMap<NodeId, String>,
    remove: NodeSet,
    /// Not in the group when the operator asked: they leave again if the change is dropped.
    added: NodeSet,
    /// Who is to be answered, and since when.
    waiting: Vec<(PendingRead, Time)>,
    /// Who has asked to cancel it.
    cancels: Vec<PendingRead>,
    command: Bytes,
    /// Why it is dropped.
    dropped: Option<String>,
    /// How far each new voter was when it last made progress.
    reached: BTreeMap<NodeId, (Reached, Time)>,
}

/// How far a node that is to vote has caught up, as the leader knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// The last slot or log index that it has.
    pub index: u64,
    /// Requests for what it misses that it has made of this leader.
    pub fetches: u64,
}

impl Job {
    /// The group that it is to lead to, from this one.
    fn target(&self, from: &Configuration) -> Configuration {
        let mut target = Configuration { outgoing: NodeSet::EMPTY, ..from.clone() };
        for node in self.voters.keys().chain(self.learners.keys()).copied().chain(self.remove.iter()) {
            target.voters.remove(node);
            target.learners.remove(node);
        }
        target.voters = target.voters.union(self.voters.keys().copied().collect());
        target.learners = target.learners.union(self.learners.keys().copied().collect());
        self.name(&mut target);
        target
    }

    /// The group that it leads to if it is dropped: without those whom it has added and who do not vote.
    fn undone(&self, from: &Configuration) -> Configuration {
        let mut target = from.clone();
        for node in self.added.iter().filter(|node| from.learners.contains(*node)) {
            target.learners.remove(node);
        }
        let all = target.all();
        target.addresses.retain(|node, _| all.contains(*node));
        target
    }

    fn name(&self, configuration: &mut Configuration) {
        for (node, address) in self.voters.iter().chain(&self.learners) {
            if !address.is_empty() {
                configuration.addresses.insert(*node, address.clone());
            }
        }
        let all = configuration.all();
        configuration.addresses.retain(|node, _| all.contains(*node));
    }

    /// In words: `add node 4 (10.0.0.4:7201), remove node 1`.
    fn words(&self) -> String {
        let named = |verb: &'static str| {
            move |(node, address): (&NodeId, &String)| match address.is_empty() {
                true => format!("{verb} node {node}"),
                false => format!("{verb} node {node} ({address})"),
            }
        };
        let words =
            self.voters.iter().map(named("add")).chain(self.learners.iter().map(named("make a learner of")));
        let words: Vec<_> =
            words.chain(self.remove.iter().map(|node| format!("remove node {node}"))).collect();
        words.join(", ")
    }

    /// New voters of which the next step still waits.
    fn rising(&self, current: &Configuration) -> NodeSet {
        let waits = |node: &NodeId| !current.voters.contains(*node);
        self.voters.keys().copied().filter(waits).collect()
    }

    fn progress(&self, current: &Configuration, now: Time) -> String {
        if current.is_joint() {
            return "the old and the new voters decide together until it is in force".to_owned();
        }
        let rising = self.rising(current);
        let known = self.reached.iter().filter(|(node, _)| rising.contains(**node));
        let words = known.map(|(node, (reached, since))| {
            format!(
                "node {node} catches up: it has everything up to {}, and made progress {} s ago",
                reached.index,
                now.since(*since).as_secs()
            )
        });
        let words: Vec<_> = words.collect();
        match words.is_empty() {
            true => "a majority must have it on disk".to_owned(),
            false => words.join("; "),
        }
    }
}

/// See the file comment. Volatile: operators ask again, and a new leader finishes a joint configuration that it finds
/// in its log.
#[derive(Debug)]
pub struct ReconfigurationCoordinator {
    job: Option<Job>,
    stalled_after: Duration,
}

impl ReconfigurationCoordinator {
    /// Of a leader whose followers suspect it after `election_timeout`.
    pub fn new(election_timeout: Duration) -> ReconfigurationCoordinator {
        ReconfigurationCoordinator { job: None, stalled_after: STALLED_TIMEOUTS * election_timeout }
    }

    /// How long a new voter may go without progress before the change is dropped: 20 election timeouts.
    pub fn stalled_after(&self) -> Duration {
        self.stalled_after
    }

    /// An operator asks for a change, or cancels the one under way. Answers at once if nothing is to be done or it
    /// cannot be.
    pub fn ask(
        &mut self,
        request: PendingRead,
        change: Manage,
        current: &Configuration,
        now: Time,
    ) -> Option<(PendingRead, Managed)> {
        let refuse = |request, why: String| Some((request, refused(why)));
        let (voters, learners, remove) = match change {
            Manage::Change { voters, learners, remove } => (voters, learners, remove),
            Manage::CancelChange => return self.cancel(request, current),
            _ => return refuse(request, "this is no change of the group".to_owned()),
        };
        if let Some(job) = &mut self.job {
            if job.command == request.command && job.dropped.is_none() {
                job.waiting.retain(|(known, _)| {
                    (known.proxy, known.nonce, known.id) != (request.proxy, request.nonce, request.id)
                });
                job.waiting.push((request, now));
                return None;
            }
            let (words, progress) = (job.words(), job.progress(current, now));
            let why = format!(
                "another change of the group is under way: {words}; {progress} (`quorate member cancel` drops it)"
            );
            return refuse(request, why);
        }
        if let Err(why) = validate(&voters, &learners, remove, current) {
            return refuse(request, why);
        }
        let job = Job {
            added: voters
                .keys()
                .chain(learners.keys())
                .copied()
                .filter(|node| !current.all().contains(*node))
                .collect(),
            voters,
            learners,
            remove,
            waiting: Vec::new(),
            cancels: Vec::new(),
            command: request.command.clone(),
            dropped: None,
            reached: BTreeMap::new(),
        };
        if job.target(current).voters.is_empty() {
            return refuse(request, "no voter would be left".to_owned());
        }
        if !current.is_joint() && job.target(current) == *current {
            return Some((request, Managed::Done));
        }
        // A change is done as a whole or not at all: this one is not the repetition of one that is done.
        if let Some(stranger) = job.remove.iter().find(|node| !current.all().contains(*node)) {
            return refuse(request, not_in(current, stranger));
        }
        self.job = Some(Job { waiting: vec![(request, now)], ..job });
        None
    }

    fn cancel(&mut self, request: PendingRead, current: &Configuration) -> Option<(PendingRead, Managed)> {
        if current.is_joint() {
            let why = "the change cannot be cancelled any more: the old and the new voters decide together, and the \
                       way back needs a majority of both, as the way forward does; it is in force as soon as both \
                       answer";
            return Some((request, refused(why)));
        }
        let Some(job) = &mut self.job else { return Some((request, Managed::Done)) };
        job.dropped.get_or_insert_with(|| "an operator has cancelled it".to_owned());
        job.cancels.push(request);
        None
    }

    /// Takes note of how far the new voters are (`None`: one has caught up), and drops the change if one of them does
    /// not get on. Says what is to be told those who have waited for long.
    pub fn watch(
        &mut self,
        current: &Configuration,
        now: Time,
        reached: impl Fn(NodeId) -> Option<Reached>,
    ) -> Vec<(PendingRead, Managed)> {
        let stalled_after = self.stalled_after;
        let Some(job) = &mut self.job else { return Vec::new() };
        if job.dropped.is_none() && !current.is_joint() {
            for node in job.rising(current).iter().filter(|node| current.learners.contains(*node)) {
                let Some(present) = reached(node) else {
                    job.reached.remove(&node);
                    continue;
                };
                let (last, since) = job.reached.entry(node).or_insert((present, now));
                if *last != present {
                    (*last, *since) = (present, now);
                } else if now.since(*since) >= stalled_after && !mutation::active("membership/wait-for-ever")
                {
                    let at = current.addresses.get(&node).map(|at| format!(" ({at})")).unwrap_or_default();
                    job.dropped = Some(format!(
                        "node {node}{at} has made no progress for {} s: it has everything up to {}; see its log",
                        stalled_after.as_secs(),
                        last.index
                    ));
                    break;
                }
            }
        }
        let late = |(_, since): &(PendingRead, Time)| now.since(*since) >= REPORT;
        if job.dropped.is_some() || !job.waiting.iter().any(late) {
            return Vec::new();
        }
        let text = format!("{}: {}", job.words(), job.progress(current, now));
        let (told, waiting) = std::mem::take(&mut job.waiting).into_iter().partition(late);
        job.waiting = waiting;
        let told: Vec<(PendingRead, Time)> = told;
        told.into_iter()
            .map(|(request, _)| (request, Managed::UnderWay(text.clone().into_bytes().into())))
            .collect()
    }

    /// The configuration to write next, if it is time for one. `settled`: the present one is decided, and the leader
    /// has decided something of its own. `near` tells whether a learner has caught up.
    pub fn next(
        &self,
        current: &Configuration,
        settled: bool,
        near: impl Fn(NodeId) -> bool,
    ) -> Option<Configuration> {
        if !settled && !mutation::active("membership/two-in-flight") {
            return None;
        }
        if current.is_joint() {
            return Some(current.settled());
        }
        let job = self.job.as_ref()?;
        let target = job.target(current);
        if target == *current {
            return None;
        }
        if job.dropped.is_some() {
            return Some(job.undone(current)).filter(|undone| undone != current);
        }
        let fresh = target.voters.iter().filter(|node| !current.all().contains(*node));
        let fresh: NodeSet = fresh.collect();
        if !fresh.is_empty() && !current.voters.is_empty() {
            let mut next = Configuration { learners: current.learners.union(fresh), ..current.clone() };
            job.name(&mut next);
            return Some(next);
        }
        if target.voters == current.voters {
            return Some(target);
        }
        let rising = target.voters.iter().filter(|node| !current.voters.contains(*node));
        if !rising.clone().all(near) {
            return None;
        }
        let mut joint = Configuration { outgoing: current.voters, ..target };
        joint.addresses.extend(current.addresses.iter().map(|(node, at)| (*node, at.clone())));
        job.name(&mut joint);
        Some(joint)
    }

    /// The present configuration is decided: answers whoever waited for it, or for the change to be dropped.
    pub fn on_settled(&mut self, current: &Configuration) -> Vec<(PendingRead, Managed)> {
        let Some(job) = self.job.take_if(|job| {
            let undone = job.dropped.is_some() && job.undone(current) == *current;
            !current.is_joint() && (job.target(current) == *current || undone)
        }) else {
            return Vec::new();
        };
        let waiting = job.waiting.iter().map(|(request, _)| request.clone());
        let (outcome, cancelled) = match &job.dropped {
            Some(why) if job.target(current) != *current => {
                (refused(format!("the change was dropped: {why}")), Managed::Done)
            }
            _ => (Managed::Done, refused("it was too late: the change is in force")),
        };
        let cancels = job.cancels.iter().map(|request| (request.clone(), cancelled.clone()));
        waiting.map(|request| (request, outcome.clone())).chain(cancels).collect()
    }

    /// Whether something is to be done.
    pub fn is_busy(&self) -> bool {
        self.job.is_some()
    }
}

fn validate(
    voters: &BTreeMap<NodeId, String>,
    learners: &BTreeMap<NodeId, String>,
    remove: NodeSet,
    current: &Configuration,
) -> Result<(), String> {
    for node in voters.keys().chain(learners.keys()) {
        if remove.contains(*node) || (voters.contains_key(node) && learners.contains_key(node)) {
            return Err(format!("node {node} is named twice"));
        }
    }
    let unplaced = voters.iter().chain(learners).filter(|(_, address)| address.is_empty());
    if let Some((stranger, _)) = unplaced.into_iter().find(|(node, _)| !current.all().contains(**node)) {
        return Err(not_in(current, *stranger));
    }
    match voters.len() + learners.len() + current.all().len() > usize::from(NodeId::MAX) {
        true => Err("the group would be too large".to_owned()),
        false => Ok(()),
    }
}

fn not_in(current: &Configuration, stranger: NodeId) -> String {
    let members: Vec<_> = current.all().iter().map(|node| node.to_string()).collect();
    format!("node {stranger} is not in the group: its members are {}", members.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::ZERO;

    fn coordinator() -> ReconfigurationCoordinator {
        ReconfigurationCoordinator::new(Duration::from_millis(500))
    }

    fn set(text: &str) -> NodeSet {
        text.chars().filter_map(|c| NodeId::new(c.to_digit(10)?.into())).collect()
    }

    fn show(configuration: &Configuration) -> String {
        let ids = |set: NodeSet| set.iter().map(|node| node.to_string()).collect::<String>();
        let Configuration { voters, outgoing, learners, .. } = configuration;
        format!("{}/{}/{}", ids(*voters), ids(*outgoing), ids(*learners))
    }

    fn read(text: &str) -> Configuration {
        let mut parts = text.split('/').map(set);
        let mut part = || parts.next().unwrap_or_default();
        Configuration { voters: part(), outgoing: part(), learners: part(), addresses: BTreeMap::new() }
    }

    fn request(id: u64) -> PendingRead {
        let command = Bytes::from(id.to_string());
        PendingRead { proxy: quorate_core::ProxyId(1).into(), nonce: 1, id, command }
    }

    fn add_four() -> Manage {
        let voters = BTreeMap::from([(NodeId::new(4).unwrap(), "a:1".to_owned())]);
        Manage::Change { voters, learners: BTreeMap::new(), remove: NodeSet::EMPTY }
    }

    fn refusal(answers: &[(PendingRead, Managed)], id: u64) -> String {
        let found = answers.iter().find(|(request, _)| request.id == id);
        match found {
            Some((_, Managed::Refused(why))) => String::from_utf8_lossy(why).into_owned(),
            other => panic!("{id} is not refused: {other:?}"),
        }
    }

    /// from | voters to add, learners to add, to remove | the configurations written, as voters/outgoing/learners
    const TABLE: &str = "
        123//   | 4 - -   | 123//4 1234/123/ 1234//
        123//   | 45 - -  | 123//45 12345/123/ 12345//
        12345// | - - 123 | 45/12345/ 45//
        123//   | 4 - 1   | 123//4 234/123/ 234//
        123//4  | 4 - -   | 1234/123/ 1234//
        123//   | - 4 -   | 123//4
        123//   | - 3 -   | 12/123/3 12//3
        123//4  | - - 4   | 123//
        123//   | 3 - 4   |
        12/123/ | - - -   | 12//
    ";

    #[test]
    fn a_change_goes_through_learners_and_a_joint_configuration() {
        for line in TABLE.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let columns: Vec<_> = line.split('|').map(str::trim).collect();
            let mut current = read(columns[0]);
            let words: Vec<_> = columns[1].split_whitespace().collect();
            let named = |word: &str| set(word).iter().map(|node| (node, format!("host:{node}"))).collect();
            let mut coordinator = coordinator();
            let change =
                Manage::Change { voters: named(words[0]), learners: named(words[1]), remove: set(words[2]) };
            current.addresses = current.all().iter().map(|node| (node, format!("host:{node}"))).collect();
            let asked = coordinator.ask(request(1), change, &current, NOW);
            let mut seen = Vec::new();
            assert_eq!(coordinator.next(&current, false, |_| true), None, "{line}: two in flight");
            while let Some(next) = coordinator.next(&current, true, |_| true) {
                seen.push(show(&next));
                current = next;
                assert!(seen.len() < 5, "{line}: {seen:?}");
            }
            assert_eq!(seen.join(" "), columns[2], "{line}");
            let answered = coordinator.on_settled(&current).len() + usize::from(asked.is_some());
            assert_eq!(answered, 1, "{line}: {asked:?}");
            assert!(current.addresses.len() == current.all().len(), "{line}: {current:?}");
        }
    }

    #[test]
    fn learners_are_waited_for() {
        let current = read("123//");
        let mut coordinator = coordinator();
        assert!(coordinator.ask(request(1), add_four(), &current, NOW).is_none());
        let learning = coordinator.next(&current, true, |_| false).unwrap();
        assert_eq!(coordinator.next(&learning, true, |_| false), None);
        assert_eq!(
            coordinator.next(&learning, true, |_| true).map(|next| show(&next)),
            Some("1234/123/".to_owned())
        );
        let other = coordinator.ask(request(2), add_four(), &learning, NOW).unwrap();
        let why = refusal(&[other], 2);
        assert!(why.contains("another change of the group is under way: add node 4 (a:1)"), "{why}");
        assert!(
            coordinator.ask(request(1), add_four(), &learning, NOW).is_none(),
            "asking again is no other change"
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let none = BTreeMap::new;
        let one = |id| BTreeMap::from([(NodeId::new(id).unwrap(), "a:1".to_owned())]);
        for (voters, learners, remove) in
            [(one(1), none(), set("1")), (one(4), one(4), set("")), (none(), none(), set("123"))]
        {
            let change = Manage::Change { voters, learners, remove };
            let answer = coordinator().ask(request(1), change, &read("123//"), NOW).unwrap();
            assert!(matches!(answer.1, Managed::Refused(_)));
        }
    }

    #[test]
    fn what_is_done_is_done_again_and_who_is_no_member_is_named_with_those_who_are() {
        let named = |word: &str| -> BTreeMap<_, _> {
            let (ids, at) = word.split_once('@').unwrap_or((word, ""));
            set(ids).iter().map(|node| (node, at.to_owned())).collect()
        };
        // Voters, learners, to remove; in the group 23//5, which 1 and 4 have left.
        for (words, expected) in [
            ("- - 1", "done"),
            ("- - 14", "done"),
            ("3 5 1", "done"),
            ("- - 2", "begun"),
            ("5 - -", "begun"),
            ("6@a:1 - 2", "begun"),
            ("9 - -", "node 9 is not in the group: its members are 2, 3, 5"),
            ("- 9 -", "node 9 is not in the group: its members are 2, 3, 5"),
            ("- - 29", "node 9 is not in the group: its members are 2, 3, 5"),
            ("6@a:1 - 9", "node 9 is not in the group: its members are 2, 3, 5"),
        ] {
            let columns: Vec<_> = words.split(' ').collect();
            let (voters, learners) = (named(columns[0]), named(columns[1]));
            let change = Manage::Change { voters, learners, remove: set(columns[2]) };
            let found = match coordinator().ask(request(1), change, &read("23//5"), NOW) {
                None => "begun".to_owned(),
                Some((_, Managed::Done)) => "done".to_owned(),
                Some(answer) => refusal(&[answer], 1),
            };
            assert_eq!(found, expected, "{words}");
        }
    }

    #[test]
    fn a_change_whose_new_voter_makes_no_progress_is_dropped_and_undone() {
        let current = read("123//");
        let mut coordinator = coordinator();
        assert!(coordinator.ask(request(1), add_four(), &current, NOW).is_none());
        let learning = coordinator.next(&current, true, |_| false).unwrap();
        let at = |index| move |_| Some(Reached { index, fetches: 0 });
        assert!(coordinator.watch(&learning, NOW, at(1)).is_empty());
        let later = NOW + coordinator.stalled_after();
        let told = coordinator.watch(&learning, later, at(2));
        assert!(matches!(&told[..], [(_, Managed::UnderWay(_))]), "it gets on: {told:?}");
        assert!(coordinator.ask(request(1), add_four(), &learning, later).is_none(), "and asks on");
        assert_eq!(coordinator.next(&learning, true, |_| false), None);
        assert!(coordinator.watch(&learning, later + coordinator.stalled_after(), at(2)).is_empty());
        let undone = coordinator.next(&learning, true, |_| false).unwrap();
        assert_eq!((show(&undone), undone.addresses.len()), ("123//".to_owned(), 0));
        assert!(coordinator.on_settled(&learning).is_empty());
        let why = refusal(&coordinator.on_settled(&undone), 1);
        assert!(why.contains("node 4 (a:1) has made no progress for 10 s"), "{why}");
        assert!(
            coordinator.ask(request(2), add_four(), &undone, later).is_none(),
            "another change may begin"
        );
    }

    #[test]
    fn a_change_is_cancelled_while_it_waits_for_learners_and_not_after() {
        let current = read("123//");
        let mut coordinator = coordinator();
        let idle = coordinator.ask(request(9), Manage::CancelChange, &current, NOW).unwrap();
        assert_eq!(idle.1, Managed::Done, "nothing is under way");
        assert!(coordinator.ask(request(1), add_four(), &current, NOW).is_none());
        let learning = coordinator.next(&current, true, |_| false).unwrap();
        assert!(coordinator.ask(request(2), Manage::CancelChange, &learning, NOW).is_none());
        assert_eq!(coordinator.next(&learning, true, |_| true).as_ref().map(show), Some("123//".to_owned()));
        let answers = coordinator.on_settled(&current);
        assert!(refusal(&answers, 1).contains("cancelled"));
        assert!(answers.iter().any(|(request, how)| request.id == 2 && *how == Managed::Done));

        assert!(coordinator.ask(request(3), add_four(), &current, NOW).is_none());
        let joint = coordinator.next(&learning, true, |_| true).unwrap();
        let late = coordinator.ask(request(4), Manage::CancelChange, &joint, NOW).unwrap();
        assert!(refusal(&[late], 4).contains("cannot be cancelled any more"));
        let done = coordinator.next(&joint, true, |_| true).unwrap();
        assert_eq!(coordinator.on_settled(&done), [(request(3), Managed::Done)]);
    }

    #[test]
    fn nobody_is_told_of_a_change_before_it_is_in_force_and_then_everybody_who_has_asked() {
        let (mut current, coordinator) = (read("123//"), &mut coordinator());
        for id in [1, 2, 1] {
            let asked = PendingRead { command: Bytes::from_static(b"same"), ..request(id) };
            assert!(coordinator.ask(asked, add_four(), &current, NOW).is_none());
        }
        while let Some(next) = coordinator.next(&current, true, |_| true) {
            assert!(coordinator.on_settled(&current).is_empty(), "{current:?}");
            current = next;
        }
        let told: Vec<_> = coordinator.on_settled(&current).iter().map(|(asked, _)| asked.id).collect();
        assert_eq!(told, [2, 1]);
    }

    #[test]
    fn a_change_that_is_in_force_when_it_is_cancelled_stays() {
        let coordinator = &mut coordinator();
        let learners = BTreeMap::from([(NodeId::new(4).unwrap(), "a:1".to_owned())]);
        let change = Manage::Change { voters: BTreeMap::new(), learners, remove: NodeSet::EMPTY };
        assert!(coordinator.ask(request(1), change, &read("123//"), NOW).is_none());
        let learning = coordinator.next(&read("123//"), true, |_| false).unwrap();
        assert!(coordinator.ask(request(2), Manage::CancelChange, &learning, NOW).is_none());
        assert_eq!(coordinator.next(&learning, true, |_| true), None);
        let answers = coordinator.on_settled(&learning);
        assert_eq!(answers[0], (request(1), Managed::Done));
        assert!(refusal(&answers, 2).contains("it was too late"));
    }

    #[test]
    fn a_leader_finishes_what_another_has_begun_and_writes_nothing_where_nothing_was_begun() {
        let next = coordinator().next(&read("12/123/"), true, |_| true);
        assert_eq!(next.as_ref().map(show), Some("12//".to_owned()));
        let coordinator = &mut coordinator();
        assert!(coordinator.ask(request(1), add_four(), &read("123//"), NOW).is_none());
        assert!(coordinator.ask(request(2), Manage::CancelChange, &read("123//"), NOW).is_none());
        assert_eq!(coordinator.next(&read("123//"), true, |_| true), None, "nothing is to be undone");
    }

    #[test]
    fn a_group_has_no_more_members_than_there_are_ids() {
        let ids = |from: u64, to: u64| (from..=to).map(|id| NodeId::new(id).unwrap());
        for (added, fits) in [(3, true), (4, false)] {
            let voters = ids(1, added).map(|node| (node, "a:1".to_owned())).collect();
            let change = Manage::Change { voters, learners: BTreeMap::new(), remove: NodeSet::EMPTY };
            let current = Configuration { voters: ids(4, 63).collect(), ..Configuration::default() };
            assert_eq!(coordinator().ask(request(1), change, &current, NOW).is_none(), fits, "{added}");
        }
    }
}
