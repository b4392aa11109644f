//! Leases, judged in true time, which no machine knows. (Gray and Cheriton, *Leases*, 1989; Bodega §3.2.)
//!
//! 1. *Cover*: while a grantee believes in a promise, the grantor's promise of the same number holds.
//! 2. *Constancy*: a grantor that has promised one replica its support promises no other under another number before
//!    the first promise ends.
//! 3. *Own support*: while a replica believes in promises of a number, it promises no other replica its support under
//!    another number. It counts its own support for itself, so this is constancy towards itself. As any two majorities
//!    have a replica in common, rules 1 to 3 say that there are never two numbers under each of which some replica
//!    holds the support of a majority.
//! 4. *Exclusion*: the times in which different replicas read from their own state never overlap, unless they do so
//!    under the same number.
//! 5. *Presence*: a read is answered from the own state only in such a time, judged at the moment of the answer. (A
//!    clock that was read before a pause says otherwise.)
//!
//! A promise ends early only when its grantor restates it with an earlier end. A crash of the grantor does not end
//! it: the restarted grantor remembers nothing and is bound all the same, unless nobody has heard of the promise,
//! which may have been waiting for the disk. A crash of the grantee ends its beliefs and reads, since nobody is
//! left who would act on them. What a replica promises itself does not count: it forgets both halves at once.
//!
//! Clocks are asked again each time, so a clock whose rate changes moves the ends of its running leases.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::{Fact, NodeId, Time};

use super::{Checker, Clocks, Process, Violation};

const NAME: &str = "leases";

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Leases {
    promises: BTreeMap<Key, End>,
    /// Those that grantees have believed in.
    heard: BTreeSet<Key>,
    /// Those that nobody had heard of when their grantor crashed: they may be on their way, or have gone down with
    /// it.
    doubtful: BTreeMap<Key, End>,
    beliefs: BTreeMap<Key, End>,
    reads: BTreeMap<NodeId, (u64, End)>,
}

/// Grantor, grantee and number.
type Key = (NodeId, NodeId, u64);

/// When something ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// On the clock of the replica that said so.
    Local(Time),
    /// In true time: its clock is gone.
    True(u64),
}

impl End {
    fn at(self, node: NodeId, clocks: &dyn Clocks) -> u64 {
        match self {
            End::Local(time) => clocks.true_time(node, time),
            End::True(at) => at,
        }
    }
}

impl Checker for Leases {
    fn name(&self) -> &'static str {
        NAME
    }

    fn waits_for(&self) -> &'static [&'static str] {
        &["Promised", "Believes"]
    }

    fn on_fact(&mut self, at: u64, who: Process, fact: &Fact, clocks: &dyn Clocks) -> Result<(), Violation> {
        match *fact {
            Fact::Promised { to, .. } if to == who.node => Ok(()),
            Fact::Believes { from, .. } if from == who.node => Ok(()),
            Fact::Promised { to, number, until } => self.promise(at, (who.node, to, number), until, clocks),
            Fact::Believes { from, number, until } => {
                self.beliefs.retain(|(_, grantee, _), end| end.at(*grantee, clocks) > at);
                let key = (from, who.node, number);
                self.beliefs.insert(key, End::Local(until));
                // A guard announces a promise, and nobody relies on it: the grantor's disk may still lose it.
                if clocks.true_time(who.node, until) > at {
                    self.hear(at, key, clocks)?;
                    let bound = self.promises_of(who.node, clocks).chain(self.beliefs_of(who.node, clocks));
                    Leases::own(at, (who.node, number), bound)?;
                }
                self.covered(at, key, clocks)
            }
            Fact::ReadsLocally { number, until } => self.read(at, who.node, number, until, clocks),
            Fact::ServesLocally { number } => self.serve(at, who.node, number, clocks),
            _ => Ok(()),
        }
    }

    fn on_crash(&mut self, _: u64, who: Process, clocks: &dyn Clocks) -> Result<(), Violation> {
        let of = |(grantor, _, _): &Key, _: &mut End| *grantor == who.node;
        for (key, end) in self.promises.extract_if(.., of).collect::<Vec<_>>() {
            let known = if self.heard.contains(&key) { &mut self.promises } else { &mut self.doubtful };
            known.insert(key, End::True(end.at(who.node, clocks)));
        }
        self.beliefs.retain(|(_, grantee, _), _| *grantee != who.node);
        self.reads.remove(&who.node);
        Ok(())
    }
}

impl Leases {
    fn promise(
        &mut self,
        at: u64,
        key: (NodeId, NodeId, u64),
        until: Time,
        clocks: &dyn Clocks,
    ) -> Result<(), Violation> {
        let grantor = key.0;
        for promises in [&mut self.promises, &mut self.doubtful] {
            promises.retain(|(grantor, _, _), end| end.at(*grantor, clocks) > at);
        }
        let promises = &self.promises;
        self.heard.retain(|key| promises.contains_key(key));
        let end = clocks.true_time(grantor, until);
        if end > at {
            self.constant(at, key, end, clocks)?;
            Leases::own(at, (grantor, key.2), self.beliefs_of(grantor, clocks))?;
        }
        // Restating the same promise after a restart is no way to shorten it.
        let end = match self.promises.get(&key).or_else(|| self.doubtful.get(&key)) {
            Some(&End::True(bound)) if end > at && bound > end => End::True(bound),
            _ => End::Local(until),
        };
        self.promises.insert(key, end);
        self.covered(at, key, clocks)
    }

    /// Rule 2, for a promise that holds until then.
    fn constant(&self, at: u64, key: Key, end: u64, clocks: &dyn Clocks) -> Result<(), Violation> {
        let (grantor, to, number) = key;
        let mut others = self.promises_of(grantor, clocks);
        let Some((first, under, held)) =
            others.find(|(grantee, under, _)| *grantee != to && *under != number)
        else {
            return Ok(());
        };
        let what = format!(
            "{grantor:?} promises {to:?} its support under {number} until {end}, but is bound to \
             {first:?} under {under} until {held}"
        );
        Err(Violation { checker: NAME, at, what })
    }

    /// Rule 3, for a replica that promises (or believes) something under a number, and what it believes (or promises).
    fn own(
        at: u64,
        who: (NodeId, u64),
        mut others: impl Iterator<Item = (NodeId, u64, u64)>,
    ) -> Result<(), Violation> {
        let (node, number) = who;
        let Some((other, under, end)) = others.find(|(_, under, end)| *under != number && *end > at) else {
            return Ok(());
        };
        let what = format!(
            "{node:?} lends its support under {number}, but it is bound to {other:?}, or relies on it, under {under} \
             until {end}"
        );
        Err(Violation { checker: NAME, at, what })
    }

    /// From whom, under which number and until when.
    fn beliefs_of<'a>(
        &'a self,
        node: NodeId,
        clocks: &'a dyn Clocks,
    ) -> impl Iterator<Item = (NodeId, u64, u64)> + 'a {
        let own = self.beliefs.iter().filter(move |((_, grantee, _), _)| *grantee == node);
        own.map(|(&(grantor, grantee, number), end)| (grantor, number, end.at(grantee, clocks)))
    }

    /// To whom, under which number and until when.
    fn promises_of<'a>(
        &'a self,
        node: NodeId,
        clocks: &'a dyn Clocks,
    ) -> impl Iterator<Item = (NodeId, u64, u64)> + 'a {
        let own = self.promises.iter().filter(move |((grantor, _, _), _)| *grantor == node);
        own.map(|(&(grantor, grantee, number), end)| (grantee, number, end.at(grantor, clocks)))
    }

    /// Somebody has heard of a promise: from now on it counts, if it did not before.
    fn hear(&mut self, at: u64, key: Key, clocks: &dyn Clocks) -> Result<(), Violation> {
        self.heard.insert(key);
        let Some(end) = self.doubtful.remove(&key) else { return Ok(()) };
        let until = end.at(key.0, clocks);
        self.promises.entry(key).or_insert(end);
        if until > at { self.constant(at, key, until, clocks) } else { Ok(()) }
    }

    /// Rule 1, for one promise.
    fn covered(&self, at: u64, key: (NodeId, NodeId, u64), clocks: &dyn Clocks) -> Result<(), Violation> {
        let (grantor, grantee, number) = key;
        let Some(belief) = self.beliefs.get(&key).map(|end| end.at(grantee, clocks)) else {
            return Ok(());
        };
        let promise = self.promises.get(&key).map_or(0, |end| end.at(grantor, clocks));
        if belief <= at || belief <= promise {
            return Ok(());
        }
        let what = format!(
            "{grantee:?} believes in {grantor:?} under {number} until {belief}, but its promise ends at {promise}"
        );
        Err(Violation { checker: NAME, at, what })
    }

    /// Rule 5.
    fn serve(&self, at: u64, node: NodeId, number: u64, clocks: &dyn Clocks) -> Result<(), Violation> {
        let end = self.reads.get(&node).filter(|(under, _)| *under == number);
        match end.map(|(_, end)| end.at(node, clocks)) {
            Some(end) if at < end => Ok(()),
            end => {
                let end =
                    end.map_or("was in no position to".to_owned(), |end| format!("could until {end} only"));
                let what = format!("{node:?} answers a read from its own state under {number}, but {end}");
                Err(Violation { checker: NAME, at, what })
            }
        }
    }

    /// Rule 4.
    fn read(
        &mut self,
        at: u64,
        node: NodeId,
        number: u64,
        until: Time,
        clocks: &dyn Clocks,
    ) -> Result<(), Violation> {
        self.reads.retain(|reader, (_, end)| end.at(*reader, clocks) > at);
        let end = clocks.true_time(node, until);
        if end <= at {
            self.reads.remove(&node);
            return Ok(());
        }
        if let Some((reader, (under, held))) =
            self.reads.iter().find(|(reader, (under, _))| **reader != node && *under != number)
        {
            let what = format!(
                "{node:?} reads from its own state under {number} until {end}, but so does {reader:?} under \
                 {under} until {}",
                held.at(*reader, clocks)
            );
            return Err(Violation { checker: NAME, at, what });
        }
        self.reads.insert(node, (number, End::Local(until)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{node, true_clocks, who};
    use super::*;

    /// What one replica says or suffers, and when.
    type Step = (u64, Process, Event);

    enum Event {
        Promises(u64, u64, u64),
        Believes(u64, u64, u64),
        Reads(u64, u64),
        Serves(u64),
        Crashes,
    }
    use Event::{Believes, Crashes, Promises, Reads, Serves};

    fn run(steps: &[Step], clocks: &dyn Clocks) -> Result<(), Violation> {
        let mut checker = Leases::default();
        for (at, who, event) in steps {
            let time = Time::from_nanos;
            let fact = match *event {
                Promises(to, number, until) => Fact::Promised { to: node(to), number, until: time(until) },
                Believes(from, number, until) => {
                    Fact::Believes { from: node(from), number, until: time(until) }
                }
                Reads(number, until) => Fact::ReadsLocally { number, until: time(until) },
                Serves(number) => Fact::ServesLocally { number },
                Crashes => {
                    checker.on_crash(*at, *who, clocks)?;
                    continue;
                }
            };
            checker.on_fact(*at, *who, &fact, clocks)?;
        }
        Ok(())
    }

    fn judge(name: &str, steps: &[Step], clocks: &dyn Clocks, found: Option<(u64, &str)>) {
        match (run(steps, clocks), found) {
            (Ok(()), None) => {}
            (Err(violation), Some((at, what))) => {
                assert_eq!(violation.at, at, "{name}: {violation}");
                assert!(violation.what.contains(what), "{name}: {violation}");
            }
            (result, found) => panic!("{name}: {result:?} instead of {found:?}"),
        }
    }

    #[test]
    fn promises_outlast_beliefs_and_readers_take_turns() {
        let (a, b, c, a2, c2) = (who(1, 0), who(2, 0), who(3, 0), who(1, 1), who(3, 1));
        for (name, steps, found) in [
            (
                "a belief inside its promise, extended",
                vec![
                    (0, c, Promises(1, 7, 100)),
                    (1, a, Believes(3, 7, 90)),
                    (50, c, Promises(1, 7, 150)),
                    (51, a, Believes(3, 7, 140)),
                ],
                None,
            ),
            ("no promise", vec![(1, a, Believes(3, 7, 90))], Some((1, "its promise ends at 0"))),
            (
                "a promise of another number",
                vec![(0, c, Promises(1, 6, 100)), (1, a, Believes(3, 7, 90))],
                Some((1, "ends at 0")),
            ),
            (
                "a belief past the promise",
                vec![(0, c, Promises(1, 7, 100)), (1, a, Believes(3, 7, 101))],
                Some((1, "until 101, but its promise ends at 100")),
            ),
            (
                "a promise taken back under a believer",
                vec![(0, c, Promises(1, 7, 100)), (1, a, Believes(3, 7, 90)), (50, c, Promises(1, 7, 50))],
                Some((50, "its promise ends at 50")),
            ),
            (
                "a promise taken back after the belief was given up",
                vec![
                    (0, c, Promises(1, 7, 100)),
                    (1, a, Believes(3, 7, 90)),
                    (40, a, Believes(3, 7, 40)),
                    (50, c, Promises(1, 7, 50)),
                    (50, c, Promises(2, 8, 150)),
                ],
                None,
            ),
            (
                "a promise taken back after the believer crashed",
                vec![
                    (0, c, Promises(1, 7, 100)),
                    (1, a, Believes(3, 7, 90)),
                    (40, a, Crashes),
                    (50, c, Promises(1, 7, 50)),
                ],
                None,
            ),
            (
                "a restarted believer still believes",
                vec![
                    (0, c, Promises(1, 7, 100)),
                    (40, a, Crashes),
                    (50, c, Promises(1, 7, 50)),
                    (60, a2, Believes(3, 7, 90)),
                ],
                Some((60, "n1 believes in n3")),
            ),
            (
                "two promises at a time",
                vec![(0, c, Promises(1, 7, 100)), (99, c, Promises(2, 8, 150))],
                Some((99, "bound to n1 under 7 until 100")),
            ),
            (
                "one promise after the other",
                vec![(0, c, Promises(1, 7, 100)), (100, c, Promises(2, 8, 150))],
                None,
            ),
            (
                "one replica under two numbers, several replicas under one",
                vec![(0, c, Promises(1, 7, 100)), (1, c, Promises(1, 8, 100)), (2, b, Promises(3, 8, 100))],
                None,
            ),
            (
                "support that is lent while it is counted on",
                vec![(0, c, Promises(1, 7, 100)), (1, a, Believes(3, 7, 90)), (50, a, Promises(2, 8, 200))],
                Some((
                    50,
                    "n1 lends its support under 8, but it is bound to n3, or relies on it, under 7 until 90",
                )),
            ),
            (
                "support that is counted on while it is lent",
                vec![(0, c, Promises(1, 7, 100)), (0, a, Promises(2, 6, 60)), (59, a, Believes(3, 7, 90))],
                Some((59, "bound to n2, or relies on it, under 6 until 60")),
            ),
            (
                "support that is counted on under two numbers",
                vec![
                    (0, c, Promises(1, 7, 100)),
                    (0, b, Promises(1, 8, 100)),
                    (1, a, Believes(3, 7, 90)),
                    (2, a, Believes(2, 8, 90)),
                ],
                Some((2, "bound to n3, or relies on it, under 7 until 90")),
            ),
            (
                "support that is counted on and then lent",
                vec![
                    (0, c, Promises(1, 7, 100)),
                    (1, a, Believes(3, 7, 90)),
                    (40, a, Believes(3, 7, 40)),
                    (40, a, Promises(2, 8, 200)),
                ],
                None,
            ),
            (
                "a restarted grantor that forgot, and others have promised meanwhile",
                vec![
                    (0, c, Promises(1, 7, 100)),
                    (1, a, Believes(3, 7, 90)),
                    (2, b, Promises(1, 7, 100)),
                    (40, c, Crashes),
                    (50, c2, Promises(2, 8, 150)),
                ],
                Some((50, "bound to n1 under 7 until 100")),
            ),
            (
                "a restarted grantor that forgot",
                vec![
                    (0, c, Promises(1, 7, 100)),
                    (1, a, Believes(3, 7, 90)),
                    (10, c, Crashes),
                    (20, c2, Promises(2, 8, 150)),
                ],
                Some((20, "bound to n1 under 7 until 100")),
            ),
            (
                "a restarted grantor that had told nobody",
                vec![(0, c, Promises(1, 7, 100)), (10, c, Crashes), (20, c2, Promises(2, 8, 150))],
                None,
            ),
            (
                "a promise that arrives after the crash",
                vec![
                    (0, c, Promises(1, 7, 100)),
                    (10, c, Crashes),
                    (20, c2, Promises(2, 8, 150)),
                    (30, a, Believes(3, 7, 90)),
                ],
                Some((30, "bound to n2 under 8 until 150")),
            ),
            (
                "a restarted grantor shortens what it cannot remember",
                vec![
                    (0, c, Promises(1, 7, 100)),
                    (1, a, Believes(3, 7, 90)),
                    (10, c, Crashes),
                    (20, c2, Promises(1, 7, 60)),
                    (70, c2, Promises(2, 8, 150)),
                ],
                Some((70, "until 100")),
            ),
            (
                "a promise to oneself",
                vec![(0, a, Believes(1, 7, 100)), (0, b, Promises(2, 6, 100)), (0, b, Promises(1, 7, 100))],
                None,
            ),
            ("an answer in time", vec![(0, a, Reads(7, 100)), (99, a, Serves(7))], None),
            (
                "an answer too late",
                vec![(0, a, Reads(7, 100)), (100, a, Serves(7))],
                Some((100, "until 100 only")),
            ),
            (
                "an answer under another number",
                vec![(0, a, Reads(7, 100)), (9, a, Serves(8))],
                Some((9, "in no position")),
            ),
            (
                "readers in turn",
                vec![(0, a, Reads(7, 100)), (50, a, Reads(7, 120)), (120, b, Reads(8, 200))],
                None,
            ),
            (
                "two readers",
                vec![(0, a, Reads(7, 100)), (99, b, Reads(8, 200))],
                Some((99, "so does n1 under 7 until 100")),
            ),
            ("two readers of one number", vec![(0, a, Reads(7, 100)), (99, b, Reads(7, 200))], None),
            (
                "a reader that stopped, one that crashed",
                vec![
                    (0, a, Reads(7, 100)),
                    (10, a, Reads(7, 10)),
                    (20, b, Reads(8, 100)),
                    (30, b, Crashes),
                    (40, a, Reads(9, 100)),
                ],
                None,
            ),
            (
                "the crash of a grantor does not end a read lease",
                vec![
                    (0, c, Promises(1, 7, 100)),
                    (1, a, Believes(3, 7, 90)),
                    (1, a, Reads(7, 90)),
                    (10, c, Crashes),
                    (20, b, Reads(8, 80)),
                ],
                Some((20, "so does n1")),
            ),
        ] {
            judge(name, &steps, &true_clocks, found);
        }
    }

    #[test]
    fn leases_are_compared_in_true_time() {
        let (a, b) = (who(1, 0), who(2, 0));
        // The second replica's clock runs at double speed, and 1000 ahead.
        let clocks = |node: NodeId, local: Time| match node.get() {
            2 => (local.nanos() - 1000) / 2,
            _ => local.nanos(),
        };
        let promise = (0, b, Promises(1, 7, 1200));
        judge("inside", &[promise, (1, a, Believes(2, 7, 100))], &clocks, None);
        let promise = (0, b, Promises(1, 7, 1200));
        let late = (1, a, Believes(2, 7, 101));
        judge("past", &[promise, late], &clocks, Some((1, "its promise ends at 100")));
        let reads = [(0, b, Reads(7, 1200)), (100, a, Reads(8, 200))];
        judge("in turn", &reads, &clocks, None);
        let reads = [(0, b, Reads(7, 1202)), (100, a, Reads(8, 200))];
        judge("overlapping", &reads, &clocks, Some((100, "until 101")));
    }

    #[test]
    fn ended_promises_are_forgotten() {
        let mut checker = Leases::default();
        for at in 0..1000 {
            let fact = Fact::Promised { to: node(1), number: at, until: Time::from_nanos(at + 10) };
            checker.on_fact(at, who(2, 0), &fact, &true_clocks).unwrap();
        }
        assert!(checker.promises.len() <= 11);
    }
}
