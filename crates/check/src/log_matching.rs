//! Log matching: if two logs have an entry of the same index and term, they are the same up to it. (Ongaro and
//! Ousterhout 2014, Figure 3; TLA+ `LogMatching`.)
//!
//! It is enough to see that an index and a term determine the entry and the term of the entry before it: by induction
//! they determine everything before.

use std::collections::BTreeMap;

use quorate_core::Fact;

use super::log::Logs;
use super::{Checker, Clocks, Process, Violation};

const NAME: &str = "log-matching";

/// See the [module](self).
#[derive(Debug, Default)]
pub struct LogMatching {
    logs: Logs,
    /// By index and term: the digest, and the term of the entry before.
    entries: BTreeMap<(u64, u64), (u64, u64)>,
}

impl Checker for LogMatching {
    fn name(&self) -> &'static str {
        NAME
    }

    fn waits_for(&self) -> &'static [&'static str] {
        &["Appended", "Begins"]
    }

    fn on_founded(&mut self, slot: u64, _members: u64) {
        self.logs.on_founded(slot);
    }

    fn on_fact(&mut self, at: u64, who: Process, fact: &Fact, _: &dyn Clocks) -> Result<(), Violation> {
        let result = match *fact {
            Fact::Appended { index, term, digest, .. } => self.append(who, index, term, digest),
            _ => Ok(()),
        };
        self.logs.on_fact(who, fact);
        result.map_err(|what| Violation { checker: NAME, at, what })
    }
}

impl LogMatching {
    fn append(&mut self, who: Process, index: u64, term: u64, digest: u64) -> Result<(), String> {
        let log = self.logs.log(who.node);
        let Some(before) = index.checked_sub(1).and_then(|before| log?.term(before)) else {
            let last = log.map_or(0, |log| log.last());
            return Err(format!("{who} appends entry {index} after entry {last}"));
        };
        if term < before {
            return Err(format!("{who} appends entry {index} of term {term} after one of term {before}"));
        }
        let known = *self.entries.entry((index, term)).or_insert((digest, before));
        if known == (digest, before) {
            return Ok(());
        }
        Err(format!(
            "entry {index} of term {term} is {digest:016x} after term {before} at {who}, and was {:016x} after \
             term {}",
            known.0, known.1
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{first_rejected, who};
    use super::*;

    #[test]
    fn equal_indexes_and_terms_have_equal_pasts() {
        let (a, b) = (who(1, 0), who(2, 0));
        let entry = |index, term, digest| Fact::Appended { index, term, digest, writes: true };
        let begins = |index, term| Fact::Begins { index, term };
        let cases = [
            (
                "the same",
                vec![
                    (a, begins(0, 0)),
                    (a, entry(1, 1, 7)),
                    (a, entry(2, 1, 8)),
                    (b, begins(0, 0)),
                    (b, entry(1, 1, 7)),
                    (b, entry(2, 1, 8)),
                ],
                None,
            ),
            (
                "other terms",
                vec![(a, begins(0, 0)), (a, entry(1, 1, 7)), (b, begins(0, 0)), (b, entry(1, 2, 8))],
                None,
            ),
            (
                "replaced",
                vec![
                    (a, begins(0, 0)),
                    (a, entry(1, 1, 7)),
                    (a, Fact::Truncated { index: 1 }),
                    (a, entry(1, 2, 8)),
                ],
                None,
            ),
            (
                "another value",
                vec![(a, begins(0, 0)), (a, entry(1, 1, 7)), (b, begins(0, 0)), (b, entry(1, 1, 8))],
                Some(3),
            ),
            (
                "another past",
                vec![(a, begins(4, 1)), (a, entry(5, 3, 7)), (b, begins(4, 2)), (b, entry(5, 3, 7))],
                Some(3),
            ),
            ("a gap", vec![(a, begins(0, 0)), (a, entry(2, 1, 7))], Some(1)),
            ("before the base", vec![(a, begins(5, 1)), (a, entry(5, 1, 7))], Some(1)),
            ("terms that fall", vec![(a, begins(5, 3)), (a, entry(6, 2, 7))], Some(1)),
        ];
        for (name, facts, rejected) in cases {
            assert_eq!(first_rejected(&mut LogMatching::default(), &facts), rejected, "{name}");
        }
    }
}
