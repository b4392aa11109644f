//! Election safety: at most one process ever leads under a number (term, ballot). (Ongaro and Ousterhout 2014,
//! Figure 3; TLA+ `ElectionSafety`.)
//!
//! One *process*, which is one life of a replica: a restarted one remembers at most that it voted for itself, and would
//! give other meanings to indexes that it had given out before. Stating it again in one life is no second election.

use std::collections::BTreeMap;

use quorate_core::Fact;

use super::{Checker, Clocks, Process, Violation};

const NAME: &str = "election-safety";

/// See the [module](self).
#[derive(Debug, Default)]
pub struct ElectionSafety {
    leaders: BTreeMap<u64, Process>,
}

impl Checker for ElectionSafety {
    fn name(&self) -> &'static str {
        NAME
    }

    fn waits_for(&self) -> &'static [&'static str] {
        &["Leads"]
    }

    fn on_fact(&mut self, at: u64, who: Process, fact: &Fact, _: &dyn Clocks) -> Result<(), Violation> {
        let Fact::Leads { number } = *fact else { return Ok(()) };
        let first = *self.leaders.entry(number).or_insert(who);
        if first == who {
            return Ok(());
        }
        let what = format!("{who} leads under {number}, and so did {first}");
        Err(Violation { checker: NAME, at, what })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{first_rejected, who};
    use super::*;

    #[test]
    fn a_number_has_one_leader() {
        let leads = |number| Fact::Leads { number };
        let (a, b, a2) = (who(1, 0), who(2, 0), who(1, 1));
        for (name, facts, rejected) in [
            ("in turn", vec![(a, leads(1)), (b, leads(2)), (a, leads(3))], None),
            ("stated again", vec![(a, leads(1)), (a, leads(1))], None),
            ("two leaders", vec![(a, leads(1)), (b, leads(1))], Some(1)),
            ("later, of an old one", vec![(a, leads(1)), (b, leads(2)), (b, leads(1))], Some(2)),
            ("again after a restart", vec![(a, leads(1)), (a2, leads(1))], Some(1)),
        ] {
            assert_eq!(first_rejected(&mut ElectionSafety::default(), &facts), rejected, "{name}");
        }
    }
}
