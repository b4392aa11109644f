//! Sequential consistency of reads, where a protocol promises no more
//! ([`Consistency::Sequential`](quorate_core::Consistency)); ZooKeeper calls it the same.
//!
//! There is one order of all writes: the one in which the replicas have executed them ([`WriteOrder`]). Executed in
//! this order on an empty store, they give the replies that their clients have seen, and a write that was asked after
//! another was answered comes behind it. Each client moves along this order and never back: its writes are where they
//! are, and each of its reads shows the state at some place that is not before what it did last. The place is none that
//! a write had to be asked for later.
//!
//! The order is known, so there is nothing to search for: the first place at which a read's reply is right leaves most
//! to the client's later reads.
//!
//! Keys with a time to live are left out, and so are reads of all keys where there are such: at which place a key goes
//! is decided by clocks. Whatever a write may have taken from such a key is left out with it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use quorate_core::{Wall, Wire, digest};
use quorate_store::footprint::Extent;
use quorate_store::{Command, Expiry, Reply, Single, Store};
use thiserror::Error;

use crate::Process;
use crate::history::{History, Operation, reply_text};
use crate::refusals::Refusals;

/// Why a history is not sequentially consistent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// A command was executed that is in no history.
    #[error("the command with digest {0:016x} was executed, and nobody has asked for it")]
    Unasked(u64),
    /// A write was answered, and not executed.
    #[error("`{0}` was answered, and nobody has executed it")]
    NotExecuted(String),
    /// The order of execution contradicts that of time.
    #[error("`{later}` was asked after `{earlier}` was answered, and is executed before it")]
    Reordered {
        /// The write that was answered.
        earlier: String,
        /// The one that was asked then.
        later: String,
    },
    /// A write's reply is none that its place gives.
    #[error("`{operation}`, write {place}: the reply is {right}")]
    Reply {
        /// What was asked and answered.
        operation: String,
        /// Its place among all writes, from 1 on.
        place: usize,
        /// What should have been answered.
        right: String,
    },
    /// A client has gone back.
    #[error("`{operation}` shows the state after write {shown}, but its client has seen write {seen}")]
    WentBack {
        /// The read, or write.
        operation: String,
        /// The last place that would explain it.
        shown: usize,
        /// The place that the client had reached.
        seen: usize,
    },
    /// A read shows what was never there, or not yet.
    #[error("`{0}` shows no state that there had been by then")]
    Unexplained(String),
}

/// The order in which the replicas have executed writes, as their facts tell.
#[derive(Clone, Debug, Default)]
pub struct WriteOrder {
    /// Of each slot: who has said so first, and the digests of its commands.
    slots: BTreeMap<u64, (Process, Vec<u64>)>,
}

impl WriteOrder {
    /// A replica has executed a command at a slot. That all of them execute the same at a slot is for
    /// [`agreement`](crate::agreement).
    pub fn on_executed(&mut self, who: Process, slot: u64, command: u64) {
        let (first, commands) = self.slots.entry(slot).or_insert_with(|| (who, Vec::new()));
        if *first == who {
            commands.push(command);
        }
    }

    /// The digests of all commands, in order.
    pub fn commands(&self) -> Vec<u64> {
        self.slots.values().flat_map(|(_, commands)| commands).copied().collect()
    }
}

/// Judges a history by the order in which its writes were executed: digests of their encoded commands, which tell all
/// of them apart. `revision`: how many commands had been executed before the first of them.
pub fn check(history: &History, order: &[u64], revision: u64) -> Result<(), Failure> {
    let writes = history.0.iter().filter(|operation| !operation.command.is_read_only());
    let by_digest: BTreeMap<_, _> = writes.map(|write| (digest(&write.command.to_bytes()), write)).collect();
    let refusals = Refusals::default();
    let unasked = |digest: &u64| {
        let command = refusals.get(*digest).ok_or(Failure::Unasked(*digest))?.clone();
        Ok((*digest, Operation { client: u64::MAX, command, invoked: 0, returned: None }))
    };
    let unknown = order.iter().filter(|command| !by_digest.contains_key(command));
    let refused: BTreeMap<u64, Operation> = unknown.map(unasked).collect::<Result<_, _>>()?;
    let places: BTreeMap<u64, usize> = order.iter().copied().zip(1..).collect();
    let order: Vec<&Operation> = order
        .iter()
        .map(|command| by_digest.get(command).copied().unwrap_or_else(|| &refused[command]))
        .collect();
    in_time(&order)?;
    let expiring = Expiring::of(history);
    let states = execute(&order, revision, &expiring)?;
    let mut clients: BTreeMap<u64, Vec<&Operation>> = BTreeMap::new();
    for operation in history.0.iter().filter(|operation| operation.returned.is_some()) {
        clients.entry(operation.client).or_default().push(operation);
    }
    for operations in clients.values_mut() {
        operations.sort_by_key(|operation| operation.invoked);
        let mut seen = 0;
        for operation in operations {
            seen = match operation.command.is_read_only() {
                true if expiring.touch(&operation.command) => seen,
                true => place_of_read(operation, seen, &states, &order)?,
                false => match places.get(&digest(&operation.command.to_bytes())) {
                    Some(&place) if place > seen => place,
                    Some(&shown) => {
                        return Err(Failure::WentBack { operation: operation.to_string(), shown, seen });
                    }
                    // Refused before it was executed.
                    None if matches!(operation.returned, Some((_, Reply::Error(_)))) => seen,
                    None => return Err(Failure::NotExecuted(operation.to_string())),
                },
            };
        }
    }
    Ok(())
}

/// Whether no write is executed before one that was answered before it was asked.
fn in_time(order: &[&Operation]) -> Result<(), Failure> {
    let mut last: Option<&Operation> = None;
    for write in order {
        let later = last.filter(|last| write.returned.as_ref().is_some_and(|(at, _)| *at < last.invoked));
        if let Some(later) = later {
            return Err(Failure::Reordered { earlier: write.to_string(), later: later.to_string() });
        }
        last = Some(last.filter(|last| last.invoked > write.invoked).unwrap_or(write));
    }
    Ok(())
}

/// The states before the first write and after each of them; and whether the replies to these are right.
fn execute(order: &[&Operation], revision: u64, expiring: &Expiring) -> Result<Vec<Store>, Failure> {
    let mut states = vec![Store::new()];
    for (place, write) in (1..).zip(order) {
        let mut store = states[place - 1].clone();
        let right = store.apply(&write.command, revision + place as u64, Wall::ZERO);
        states.push(store);
        let wrong = |reply: &Reply| *reply != right && *reply != Reply::NotRetained;
        if write.returned.as_ref().is_some_and(|(_, reply)| wrong(reply)) && !expiring.touch(&write.command) {
            let (operation, right) = (write.to_string(), reply_text(&right));
            return Err(Failure::Reply { operation, place, right });
        }
    }
    Ok(states)
}

/// The first place from `seen` on at which the reply to a read is right.
fn place_of_read(
    read: &Operation,
    seen: usize,
    states: &[Store],
    order: &[&Operation],
) -> Result<usize, Failure> {
    let (returned, reply) = read.returned.as_ref().expect("only what was answered is judged");
    let is_right = |place: &usize| states[*place].read(&read.command) == *reply;
    match (seen..states.len()).find(is_right) {
        // Some write before it had not been asked for when it was answered.
        Some(place) if order[..place].iter().any(|write| write.invoked > *returned) => {
            Err(Failure::Unexplained(read.to_string()))
        }
        Some(place) => Ok(place),
        None => Err(match (0..seen).rev().find(is_right) {
            Some(shown) => Failure::WentBack { operation: read.to_string(), shown, seen },
            None => Failure::Unexplained(read.to_string()),
        }),
    }
}

/// The keys of which clocks decide when they go.
#[derive(Debug)]
struct Expiring(BTreeSet<Bytes>);

impl Expiring {
    fn of(history: &History) -> Expiring {
        let mut expiring = Expiring(BTreeSet::new());
        let commands: Vec<_> = history.0.iter().map(|operation| &operation.command).collect();
        let given = commands.iter().filter(|command| gives_time(command));
        let keys: Vec<Bytes> = given.flat_map(|command| written(command)).collect();
        expiring.0.extend(keys);
        // What a write of such a key writes beside it may depend on whether that is still there.
        while !expiring.0.is_empty() {
            let before = expiring.0.len();
            let tied = commands.iter().filter(|command| !command.is_read_only() && expiring.touch(command));
            let keys: Vec<Bytes> = tied.flat_map(|command| written(command)).collect();
            expiring.0.extend(keys);
            if expiring.0.len() == before {
                break;
            }
        }
        expiring
    }

    /// Whether the reply to a command depends on one of them.
    fn touch(&self, command: &Command) -> bool {
        // Which key it is depends on the replica that is asked.
        if matches!(command, Command::RandomKey { .. }) {
            return true;
        }
        let footprint = command.footprint();
        let touches = |extent: &Extent| match extent {
            Extent::Everything => !self.0.is_empty(),
            Extent::Keys(keys) => keys.as_slice().iter().any(|key| self.0.contains(key)),
        };
        touches(footprint.reads()) || touches(footprint.writes())
    }
}

/// Whether it gives a key a time to live.
fn gives_time(command: &Command) -> bool {
    match command {
        Command::Put { expiry, .. } | Command::SetExpiry { expiry, .. } | Command::Refresh { expiry, .. } => {
            matches!(expiry, Expiry::In(_) | Expiry::At(_))
        }
        Command::Batch { commands, .. } => commands.iter().any(|Single(command)| gives_time(command)),
        _ => false,
    }
}

fn written(command: &Command) -> Vec<Bytes> {
    match command.footprint().writes() {
        Extent::Keys(keys) => keys.as_slice().to_vec(),
        Extent::Everything => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges a history whose writes are executed in the order of their lines, but for those that are marked: `3|` is
    /// the third.
    fn judge(lines: &str) -> Result<(), Failure> {
        let (mut text, mut order) = (String::new(), Vec::new());
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (place, operation) = line.split_once('|').unwrap_or(("", line));
            text += operation;
            text.push('\n');
            let place = place.trim();
            if place != "-" {
                let parsed = History::parse(operation).expect("an operation");
                let command = &parsed.0[0].command;
                if !command.is_read_only() {
                    let place = place.parse().unwrap_or(order.len() + 1);
                    order.push((place, digest(&command.to_bytes())));
                }
            }
        }
        order.sort_unstable();
        let order: Vec<_> = order.into_iter().map(|(_, command)| command).collect();
        check(&History::parse(&text).expect("a history"), &order, 0)
    }

    /// Which rule a history breaks.
    fn rule(lines: &str) -> &'static str {
        match judge(lines) {
            Ok(()) => "none",
            Err(Failure::Unasked(_)) => "unasked",
            Err(Failure::NotExecuted(_)) => "not executed",
            Err(Failure::Reordered { .. }) => "reordered",
            Err(Failure::Reply { .. }) => "reply",
            Err(Failure::WentBack { .. }) => "went back",
            Err(Failure::Unexplained(_)) => "unexplained",
        }
    }

    /// A refusal counts among the writes: a key's version is the number of the write that it has.
    #[test]
    fn refusals_have_their_places() {
        let refusal = digest(&Command::DiskFull { node: 2 }.to_bytes());
        for (before, version) in [(0, 1), (1, 2), (2, 3)] {
            let first = r#"put "k" "a" always never no"#;
            let second = format!(r#"put "k" "b" if-version {version} never no"#);
            let text = format!("1 10 20 {first} = done\n1 30 40 {second} = done");
            let history = History::parse(&text).expect("a history");
            let writes = history.0.iter().map(|write| digest(&write.command.to_bytes()));
            let order: Vec<_> = std::iter::repeat_n(refusal, before).chain(writes).collect();
            assert_eq!(check(&history, &order, 0), Ok(()), "{before}");
            assert!(before == 0 || check(&history, &order[1..], 0).is_err(), "{before}");
        }
    }

    #[test]
    fn clients_may_be_behind_and_never_go_back() {
        let table = [
            (
                "a read that is stale, of a client that has seen nothing",
                r#"1 10 20 put "k" "a" always never no = done
                   1 30 40 put "k" "b" always never no = done
                   2 50 60 get "k" = value some "a"
                   2 70 80 get "k" = value some "b""#,
                "none",
            ),
            (
                "the same client reads what is older",
                r#"1 10 20 put "k" "a" always never no = done
                   1 30 40 put "k" "b" always never no = done
                   2 50 60 get "k" = value some "b"
                   2 70 80 get "k" = value some "a""#,
                "went back",
            ),
            (
                "writes of one client that are under way together, in another order",
                r#"2| 1 10 90 put "k" "a" always never no = done
                   1| 1 20 80 put "k" "b" always never no = done"#,
                "went back",
            ),
            (
                "two clients see two keys change in one order, each in its own time",
                r#"1 10 20 put "x" "a" always never no = done
                   2 30 40 put "y" "a" always never no = done
                   3 50 60 get "x" = value some "a"
                   3 61 70 get "y" = value none
                   4 50 60 get "y" = value some "a"
                   4 61 70 get "x" = value some "a""#,
                "none",
            ),
            (
                "in two orders",
                r#"1 10 20 put "x" "a" always never no = done
                   2 10 40 put "y" "a" always never no = done
                   3 50 60 get "x" = value some "a"
                   3 61 70 get "y" = value none
                   4 50 60 get "y" = value some "a"
                   4 61 70 get "x" = value none"#,
                "went back",
            ),
            (
                "a client that does not read its own write",
                r#"1 10 20 put "k" "a" always never no = done
                   1 30 40 get "k" = value none"#,
                "went back",
            ),
            (
                "a write that its client has read before it",
                r#"1 10 20 put "k" "a" always never no = done
                   2 10 15 get "k" = value some "a"
                   2 30 40 increment "n" 1 = integer 1"#,
                "none",
            ),
            (
                "a write before what its client has read",
                r#"2| 1 10 90 put "k" "a" always never no = done
                   2 10 15 get "k" = value some "a"
                   1| 2 30 40 increment "n" 1 = integer 1"#,
                "unexplained",
            ),
            (
                "a value that nobody has written",
                r#"1 10 20 put "k" "a" always never no = done
                   2 30 40 get "k" = value some "b""#,
                "unexplained",
            ),
            (
                "a value that is written only after it was read",
                r#"2 10 20 get "k" = value some "a"
                   1 30 40 put "k" "a" always never no = done"#,
                "unexplained",
            ),
            (
                "writes in the order of time",
                r#"2| 1 10 20 put "k" "a" always never no = done
                   1| 2 30 40 put "k" "b" always never no = done"#,
                "reordered",
            ),
            (
                "writes that overlap have either order",
                r#"2| 1 10 35 put "k" "a" always never no = done
                   1| 2 30 40 put "k" "b" always never no = done
                   3 50 60 get "k" = value some "a""#,
                "none",
            ),
            (
                "a reply that its place does not give",
                r#"1 10 20 increment "n" 1 = integer 1
                   2 30 40 increment "n" 2 = integer 4"#,
                "reply",
            ),
            (
                "a write that was answered and not executed",
                r#"-| 1 10 20 put "k" "a" always never no = done"#,
                "not executed",
            ),
            (
                "a write of unknown outcome may be seen, or not",
                r#"1 10 ? put "k" "a" always never no
                   2 30 40 get "k" = value some "a"
                   3 30 40 get "k" = value none"#,
                "none",
            ),
            (
                "nor what a write leaves beside one",
                r#"1 10 20 put "k" "a" always in 5 no = done
                   1 30 40 batch () (increment "k" 1 put "m" "x" always never no) = batch none
                   2 50 60 get "m" = value none"#,
                "none",
            ),
            (
                "keys with a time to live are none of its business",
                r#"1 10 20 put "k" "a" always in 5 no = done
                   1 30 40 get "k" = value none
                   1 50 60 get "k" = value some "a""#,
                "none",
            ),
        ];
        for (what, history, expected) in table {
            assert_eq!(rule(history), expected, "{what}: {:?}", judge(history));
        }
    }

    #[test]
    fn what_was_executed_was_asked_for() {
        assert_eq!(check(&History::default(), &[7], 0), Err(Failure::Unasked(7)));
    }

    #[test]
    fn the_order_is_that_of_slots_whoever_executes_them_first() {
        let who = |id| Process { node: quorate_core::NodeId::new(id).expect("an id"), incarnation: 0 };
        let mut order = WriteOrder::default();
        for (id, slot, command) in [(1, 2, 20), (1, 2, 21), (2, 1, 10), (2, 2, 20), (2, 2, 21), (1, 4, 40)] {
            order.on_executed(who(id), slot, command);
        }
        assert_eq!(order.commands(), [10, 20, 21, 40]);
    }
}
