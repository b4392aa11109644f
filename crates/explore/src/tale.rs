//! Counterexamples: made short, and told in the words of scenarios.

use quorate_check::Violation;
use quorate_check::history::reply_text;

use super::locals::link_name;
use super::opening::Told;
use super::search::{Choice, Search, State};
use super::{Counterexample, TICK};

impl Search {
    /// Leaves out what is not needed for a violation.
    pub fn shrink(&mut self, mut way: Vec<Choice>) -> Counterexample {
        let mut at = way.len();
        while at > 0 {
            at -= 1;
            let mut shorter = way.clone();
            shorter.remove(at);
            if let Some((length, _)) = self.walk(&shorter) {
                shorter.truncate(length);
                way = shorter;
                at = at.min(way.len());
            }
        }
        let (_, violation) = self.walk(&way).expect("it was found on this way");
        Counterexample { scenario: self.tell(&way), violation }
    }

    /// Goes a way, if it can be gone: after how many steps something is violated, and what.
    fn walk(&mut self, way: &[Choice]) -> Option<(usize, Violation)> {
        let mut state = self.start.clone();
        for (index, &choice) in way.iter().enumerate() {
            if !self.choices(&state).contains(&choice) {
                return None;
            }
            match self.take(&state, choice) {
                Ok(next) => state = next?,
                Err(violation) => return Some((index + 1, violation)),
            }
        }
        None
    }

    /// A way in the words of scenarios.
    fn tell(&mut self, way: &[Choice]) -> String {
        let settings = self.bounds.settings.iter().map(|setting| format!(" {setting}"));
        let mut text = format!("nodes {}{}\n", self.bounds.nodes, settings.collect::<String>());
        let mut state = self.start.clone();
        for &choice in way {
            text.push_str(&self.name(&state, choice));
            self.shown = Some(Vec::new());
            let next = self.take(&state, choice);
            for (local, code) in self.shown.take().expect("it was set") {
                for line in self.locals.show(local, code) {
                    text.push_str(&format!("  {line}\n"));
                }
            }
            let Ok(Some(next)) = next else { break };
            for (operation, client) in self.clients.iter().enumerate() {
                let told = |state: &State| self.ledgers[state.ledger as usize].reply(operation).cloned();
                if told(&state) != told(&next)
                    && let Some(reply) = told(&next)
                {
                    text.push_str(&format!("  {} = {}\n", client.name(), text_of(&reply)));
                }
            }
            state = next;
        }
        text
    }

    fn name(&self, state: &State, choice: Choice) -> String {
        let replica = |node: usize| format!("r{}", self.locals.node(node));
        let timer = |node: usize, timer: usize| {
            let name = &self.locals.get(state.locals[node]).timers[timer].name;
            format!("fire {} {}\n", replica(node), name)
        };
        match choice {
            Choice::Deliver { flight } => {
                let flight = self.locals.flight(flight);
                format!("deliver {}>{} {}\n", flight.from, flight.to, flight.kind)
            }
            Choice::Ask { operation, node, .. } => {
                let client = &self.clients[operation];
                format!("# {} asks {}: {:?}\n", client.name(), replica(node), client.client_operation)
            }
            Choice::Elect { node, timer: place, times, greeted } => {
                let heard = if greeted { "# the others have asked for its support\n" } else { "" };
                let again = if times > 1 {
                    format!("# until something is sent, {times} times\n")
                } else {
                    String::new()
                };
                format!("{again}tick {:?}\n{heard}{}", self.bounds.pace, timer(node, place))
            }
            Choice::Wake { node, timer: place } => timer(node, place),
            Choice::Tick => format!("tick {}ms\n", TICK.as_millis()),
            Choice::Halt { link } => format!("# {} stands still\n", link_name(link)),
            Choice::Resume { link } => format!("# {} moves again\n", link_name(link)),
            Choice::Lose { link } => format!("drop {}\n", link_name(link)),
            Choice::Stall { node } => format!("disk {} manual\n", replica(node)),
            Choice::Crash { node, lost } => {
                let name = replica(node);
                format!("# {lost} records are lost\ncrash {name}\nrestart {name}\n")
            }
        }
    }
}

fn text_of(told: &Told) -> String {
    match told {
        Told::Reply(reply) => reply_text(reply),
        Told::Managed(managed) => format!("{managed:?}"),
    }
}
