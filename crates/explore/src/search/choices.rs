//! What may happen in a state of the cluster.

use quorate_core::Wakeup;

use super::{Choice, Search, State};

impl Search {
    /// Everything that may happen; much of it will turn out to change nothing.
    pub fn choices(&self, state: &State) -> Vec<Choice> {
        if self.bounds.delays.is_some() {
            return self.with_delays(state);
        }
        let mut choices = state.flights.iter().map(|&flight| Choice::Deliver { flight }).collect();
        self.add_events(state, &mut choices);
        choices
    }

    /// Whatever may happen but that a message arrives.
    pub fn add_events(&self, state: &State, choices: &mut Vec<Choice>) {
        let ledger = &self.ledgers[state.ledger as usize];
        let writes = self.bounds.writes;
        for operation in 0..self.clients.len() {
            // Operations of one kind differ in nothing but their values.
            let first = [0, writes, writes + self.bounds.reads].contains(&operation);
            let turn = first || ledger.standing(operation - 1).0;
            if !turn || state.asks[operation] == 0 || ledger.standing(operation).1 {
                continue;
            }
            for message in 0..self.asks[operation].len() {
                let to = |node| Choice::Ask { operation, message, node };
                choices.extend((0..self.bounds.nodes).map(to));
            }
        }
        for node in 0..self.bounds.nodes {
            let local = self.locals.get(state.locals[node]);
            for (timer, set) in local.timers.iter().enumerate() {
                match set.wakeup {
                    Wakeup::TakesOver { times } if state.ballots > 0 && self.may_take_over(state, node) => {
                        let greeted = if self.capabilities.rosters { &[true, false][..] } else { &[false] };
                        let elect = |&greeted| Choice::Elect { node, timer, times, greeted };
                        choices.extend(greeted.iter().map(elect));
                    }
                    Wakeup::Matters if set.is_due && state.wakes > 0 => {
                        choices.push(Choice::Wake { node, timer });
                    }
                    Wakeup::TakesOver { .. } | Wakeup::Matters | Wakeup::Spared => {}
                }
            }
            if local.stalled {
                choices.extend((0..=local.unsynced).map(|lost| Choice::Crash { node, lost }));
            } else if state.failures > 0 {
                choices.push(Choice::Crash { node, lost: 0 });
                choices.push(Choice::Stall { node });
            }
        }
        if state.ticks > 0 {
            choices.push(Choice::Tick);
        }
    }

    /// Where one leads, replicas differ in nothing but their names: the first that stands is the first. Elsewhere
    /// there is nothing to take over before anybody has asked.
    fn may_take_over(&self, state: &State, node: usize) -> bool {
        let ledger = &self.ledgers[state.ledger as usize];
        match self.capabilities.total_order {
            true => node == 0 || state.ballots < self.bounds.ballots,
            false => (0..self.clients.len()).any(|operation| ledger.standing(operation).0),
        }
    }
}
