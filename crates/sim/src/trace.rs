//! What happened, one line an event, for people; and a digest of it, always, for the test that equal seeds give equal
//! runs.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use quorate_check::Nanos;

/// Who gets the lines.
type Sink = Box<dyn FnMut(&str)>;

/// Where a run's events go.
#[derive(Default)]
pub struct Trace {
    digest: u64,
    sink: Option<Sink>,
    /// No line but a stated fact goes to the sink.
    facts_only: bool,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace({:016x})", self.digest)
    }
}

impl Trace {
    /// Only the digest.
    pub fn silent() -> Trace {
        Trace::default()
    }

    /// Every line goes to `sink`, without a line end.
    pub fn to(sink: impl FnMut(&str) + 'static) -> Trace {
        Trace { sink: Some(Box::new(sink)), ..Trace::default() }
    }

    /// Only what replicas state as facts goes to `sink`; no time is lost with the rest.
    pub fn of_facts(sink: impl FnMut(&str) + 'static) -> Trace {
        Trace { facts_only: true, ..Trace::to(sink) }
    }

    /// Adds a word to the digest.
    pub fn mix(&mut self, word: u64) {
        // Multiply and fold (as wyhash does): order matters, every bit counts, and it costs a nanosecond.
        let wide = u128::from(self.digest.rotate_left(23) ^ word ^ 0x9e37_79b9_7f4a_7c15)
            * u128::from(0xa076_1d64_78bd_642f_u64);
        self.digest = (wide >> 64) as u64 ^ wide as u64;
    }

    /// Adds the bytes of a name to the digest.
    pub fn mix_name(&mut self, name: &str) {
        self.mix(quorate_core::digest(name.as_bytes()));
    }

    /// Adds a line, if anybody reads it: when, who, what.
    #[inline]
    pub fn line(&mut self, at: Nanos, who: impl fmt::Display, what: impl FnOnce() -> String) {
        if !self.facts_only {
            self.fact(at, who, what);
        }
    }

    /// Adds a line that states a fact, if anybody reads it.
    #[inline]
    pub fn fact(&mut self, at: Nanos, who: impl fmt::Display, what: impl FnOnce() -> String) {
        if let Some(sink) = &mut self.sink {
            let (seconds, micros, nanos) = (at / 1_000_000_000, at / 1_000 % 1_000_000, at % 1_000);
            sink(&format!("{seconds:3}.{micros:06}_{nanos:03} {:<5} {}", who.to_string(), what()));
        }
    }

    /// The digest of everything so far.
    pub fn digest(&self) -> u64 {
        self.digest
    }
}

/// The last lines of a trace.
#[derive(Clone, Debug)]
pub struct Tail {
    most: usize,
    lines: Rc<RefCell<VecDeque<String>>>,
}

impl Tail {
    /// Keeps at most so many lines.
    pub fn new(most: usize) -> Tail {
        Tail { most, lines: Rc::default() }
    }

    /// A trace whose end this keeps.
    pub fn trace(&self) -> Trace {
        let Tail { most, lines } = self.clone();
        Trace::to(move |line| {
            let mut lines = lines.borrow_mut();
            if lines.len() == most {
                lines.pop_front();
            }
            lines.push_back(line.to_owned());
        })
    }

    /// What was kept.
    pub fn take(&self) -> Vec<String> {
        self.lines.take().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_depends_on_every_word_and_their_order() {
        let digest = |words: &[u64]| {
            let mut trace = Trace::silent();
            words.iter().for_each(|word| trace.mix(*word));
            trace.digest()
        };
        assert_eq!(digest(&[1, 2]), digest(&[1, 2]));
        assert_ne!(digest(&[1, 2]), digest(&[2, 1]));
        assert_ne!(digest(&[1, 2]), digest(&[1, 2, 0]));
    }

    #[test]
    fn a_tail_keeps_the_last_lines() {
        let tail = Tail::new(2);
        let mut trace = tail.trace();
        for number in 0..5 {
            trace.line(1_002_003_004, "r1", || format!("event {number}"));
        }
        assert_eq!(tail.take(), ["  1.002003_004 r1    event 3", "  1.002003_004 r1    event 4"]);
    }
}
