//! Explorations of few delays ([`Bounds::delays`](super::Bounds)): all behaviours of a large configuration that are
//! not far from the one in which nothing waits (delay-bounded scheduling; Emmi, Qadeer and Rakamarić, POPL 2011).
//!
//! Undisturbed, the messages under way arrive one after the other, in one order, and whatever else can happen happens
//! when none is left. A *delay* is a deviation from that: a link that has a message begins to stand still; or
//! something else happens while messages are under way. A link that stands still keeps what it carries, or loses it,
//! until it moves again, and both may be at any time. With enough delays these are all behaviours; with few, those
//! that need the fewest coincidences, which are the ones that reveal most mistakes.

use super::search::{Choice, Search, State};

impl Search {
    /// The messages on links that do not stand still, by link.
    fn moving(&self, state: &State) -> impl Iterator<Item = (u16, u32)> {
        let flights = state.flights.iter().map(|&flight| (self.locals.flight(flight).link, flight));
        flights.filter(|(link, _)| !state.still.contains(link))
    }

    /// Everything that may happen within the bound on delays.
    pub fn with_delays(&self, state: &State) -> Vec<Choice> {
        let mut moving: Vec<_> = self.moving(state).collect();
        moving.dedup_by_key(|(link, _)| *link);
        let mut choices = Vec::new();
        if moving.is_empty() || state.delays > 0 {
            self.add_events(state, &mut choices);
            choices.extend(moving.iter().map(|&(link, _)| Choice::Halt { link }));
        }
        choices.extend(moving.first().map(|&(_, flight)| Choice::Deliver { flight }));
        for &link in &state.still {
            if state.flights.iter().any(|&flight| self.locals.flight(flight).link == link) {
                choices.extend([Choice::Resume { link }, Choice::Lose { link }]);
            }
        }
        choices
    }

    /// Whether a choice is a delay.
    pub fn is_delay(&self, state: &State, choice: Choice) -> bool {
        let free = matches!(choice, Choice::Deliver { .. } | Choice::Resume { .. } | Choice::Lose { .. });
        self.bounds.delays.is_some() && !free && self.moving(state).next().is_some()
    }

    /// What becomes of a link.
    pub fn turn(&self, state: &mut State, choice: Choice) {
        match choice {
            Choice::Halt { link } => {
                let place = state.still.partition_point(|other| *other < link);
                state.still.insert(place, link);
            }
            Choice::Resume { link } => state.still.retain(|other| *other != link),
            Choice::Lose { link } => {
                state.still.retain(|other| *other != link);
                state.flights.retain(|&flight| self.locals.flight(flight).link != link);
            }
            _ => {}
        }
    }
}
