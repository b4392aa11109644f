//! Protocols in which each key has its own history: of those who are live in an epoch and have everything, all that
//! hold a key to be valid have the same version of it. And a version has one value, wherever and whenever. (Katsarakis
//! et al., *Hermes*, 2020, §3; `HConsistent` in its TLA+ specification.)
//!
//! A process that has not heard of a later epoch yet may have what is older: it answers reads under leases only, which
//! linearizability judges. So those are compared who are in the same epoch. Nobody else answers reads alone.

use std::collections::BTreeMap;

use quorate_core::{Fact, NodeId};

use super::{Checker, Clocks, Process, Violation};

const NAME: &str = "key_agreement";

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct KeyAgreement {
    /// The epoch in which each is live and has everything.
    epochs: BTreeMap<NodeId, u64>,
    /// By key: who holds it to be valid, with which version of it.
    valid: BTreeMap<u64, BTreeMap<NodeId, u64>>,
    /// By key and version: its value, and who said so first.
    values: BTreeMap<(u64, u64), (u64, Process)>,
}

impl Checker for KeyAgreement {
    fn name(&self) -> &'static str {
        NAME
    }

    fn waits_for(&self) -> &'static [&'static str] {
        &["Live", "Valid", "Invalid", "ServesLocally"]
    }

    fn on_fact(&mut self, at: u64, who: Process, fact: &Fact, _: &dyn Clocks) -> Result<(), Violation> {
        let node = who.node;
        let holds = match *fact {
            Fact::Live { number, whole: true } => {
                self.epochs.insert(node, number);
                self.valid.iter().try_for_each(|(key, _)| self.agrees(*key, node))
            }
            Fact::Live { whole: false, .. } => {
                self.epochs.remove(&node);
                Ok(())
            }
            Fact::Valid { key, version, digest, .. } => {
                let first = self.values.entry((key, version)).or_insert((digest, who));
                if first.0 != digest {
                    let what = format!(
                        "version {version:016x} of key {key:016x} is {digest:016x} at {who}, but {:016x} at {}",
                        first.0, first.1
                    );
                    return Err(Violation { checker: NAME, at, what });
                }
                self.valid.entry(key).or_default().insert(node, version);
                self.agrees(key, node)
            }
            Fact::Invalid { key } => {
                self.valid.entry(key).or_default().remove(&node);
                Ok(())
            }
            Fact::ServesLocally { number } if self.epochs.get(&node) != Some(&number) => {
                Err(format!("{who} answers a read in epoch {number}, in which it does not have everything"))
            }
            _ => Ok(()),
        };
        holds.map_err(|what| Violation { checker: NAME, at, what })
    }

    fn on_crash(&mut self, _: u64, who: Process, _: &dyn Clocks) -> Result<(), Violation> {
        self.epochs.remove(&who.node);
        for valid in self.valid.values_mut() {
            valid.remove(&who.node);
        }
        Ok(())
    }
}

impl KeyAgreement {
    /// Whether what this one has at a key is what the others have who are in the same epoch.
    fn agrees(&self, key: u64, node: NodeId) -> Result<(), String> {
        let Some(valid) = self.valid.get(&key) else { return Ok(()) };
        let (Some(own), Some(epoch)) = (valid.get(&node), self.epochs.get(&node)) else { return Ok(()) };
        let mut others = valid.iter().filter(|(other, _)| self.epochs.get(other) == Some(epoch));
        match others.find(|(_, version)| *version != own) {
            None => Ok(()),
            Some((other, version)) => Err(format!(
                "in epoch {epoch}, {node:?} holds version {own:016x} of key {key:016x} to be valid, and {other:?} \
                 version {version:016x}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Step, first_rejected_step, who};
    use super::*;

    const LIVE: fn(u64) -> Step = |number| Step::Says(Fact::Live { number, whole: true });
    const VALID: fn(u64, u64, u64) -> Step =
        |key, version, digest| Step::Says(Fact::Valid { key, epoch: 0, version, digest });
    const INVALID: fn(u64) -> Step = |key| Step::Says(Fact::Invalid { key });

    fn rejected(steps: &[(u64, Step)]) -> Option<usize> {
        let steps = steps.iter().enumerate();
        let steps: Vec<_> =
            steps.map(|(at, (node, step))| (at as u64, who(*node, 0), step.clone())).collect();
        first_rejected_step(&mut KeyAgreement::default(), &steps)
    }

    #[test]
    fn those_in_one_epoch_have_one_version_of_a_valid_key() {
        let begin = [(1, LIVE(5)), (2, LIVE(5)), (1, VALID(7, 1, 1)), (2, VALID(7, 1, 1))];
        let then =
            |steps: &[(u64, Step)]| rejected(&[&begin[..], steps].concat()).map(|step| step - begin.len());
        assert_eq!(then(&[(2, INVALID(7)), (2, VALID(7, 2, 2))]), Some(1), "the other reads an earlier one");
        assert_eq!(then(&[(1, INVALID(7)), (2, INVALID(7)), (2, VALID(7, 2, 2)), (1, VALID(7, 2, 2))]), None);
        assert_eq!(then(&[(2, LIVE(6)), (2, INVALID(7)), (2, VALID(7, 2, 2))]), None, "of a later epoch");
        assert_eq!(then(&[(2, LIVE(6)), (2, INVALID(7)), (2, VALID(7, 2, 2)), (1, LIVE(6))]), Some(3));
        let shadow = Step::Says(Fact::Live { number: 6, whole: false });
        assert_eq!(then(&[(2, LIVE(6)), (2, INVALID(7)), (2, VALID(7, 2, 2)), (1, shadow)]), None);
        assert_eq!(then(&[(1, Step::Crashes), (2, INVALID(7)), (2, VALID(7, 2, 2))]), None);
        assert_eq!(then(&[(3, VALID(7, 1, 9))]), Some(0), "another value of the same version");
    }

    #[test]
    fn who_answers_a_read_has_everything_in_that_epoch() {
        let serves = |number| Step::Says(Fact::ServesLocally { number });
        let shadow = |number| Step::Says(Fact::Live { number, whole: false });
        assert_eq!(rejected(&[(1, LIVE(5)), (1, serves(5))]), None);
        assert_eq!(rejected(&[(1, LIVE(5)), (1, serves(6))]), Some(1), "of another epoch");
        assert_eq!(rejected(&[(1, LIVE(5)), (1, shadow(6)), (1, serves(6))]), Some(2), "a shadow");
        assert_eq!(rejected(&[(1, shadow(6)), (1, LIVE(6)), (1, serves(6))]), None, "it has got everything");
        assert_eq!(rejected(&[(1, LIVE(5)), (1, Step::Crashes), (1, serves(5))]), Some(2), "an earlier life");
        assert_eq!(rejected(&[(1, LIVE(5)), (2, serves(5))]), Some(1), "outside");
    }
}
