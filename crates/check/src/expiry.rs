//! Keys with a time to live: they do not vanish before their time, stay away once they have, and are gone some time
//! after.
//!
//! The time of a key counts on the wall clocks of the nodes, which differ and may jump. A put is stamped by the node
//! that proposes it, between its call and its reply, by the clocks of a majority. Others' clocks were read up to
//! [`AGE`] before, and a reading says no more than how far the clock has come since if it was not set. The key is due
//! when some node that proposes, or answers a read, shows a time to live more than that. So it may vanish from the
//! first instant on at which any clock shows the least that any could be taken to show while it was put, and its time
//! to live more; or at which a leader says so that slews, because replicated time is ahead of the clocks. In this form
//! linearizability judges it: see the [model](super::linearizability).
//!
//! It must be gone when all clocks show more, for some time, than the most that any has ever shown until the put was
//! answered (replicated time never goes back, so that may have been its stamp) and its time to live. Reads that may be
//! old are excused from this.

use bytes::Bytes;
use quorate_store::{Command, Expires, Expiry, Reply};

use super::staleness::Bounds;
use crate::history::{History, Operation};
use crate::wall_clocks::WallClocks;
use crate::{MILLISECOND, SECOND};

/// How long a key may outlive its time on all clocks: for a proposer's time to reach those who answer reads.
const LAG: u64 = 2 * SECOND;

/// How long ago the clock of another may have been read last: a node that cannot be heard may be needed for a majority.
const AGE: u64 = SECOND;

/// Clocks show whole milliseconds, and two of them are compared.
const ROUNDING: i64 = 2 * MILLISECOND as i64;

/// The history as linearizability takes it: a put with a time to live says from which nanosecond on its key may be
/// gone, and a question for the time that is left asks whether there is such a key. Without wall clocks that mean
/// anything, it may be gone at once.
pub fn timed(history: &History, walls: Option<&WallClocks>) -> History {
    let mut timed = history.clone();
    for operation in &mut timed.0 {
        let Operation { command, invoked, returned, .. } = operation;
        match command {
            Command::Put { expiry, .. } => {
                if let Expiry::In(millis) = *expiry {
                    let end = returned.as_ref().map_or(u64::MAX, |(at, _)| *at);
                    let due = |walls: &WallClocks| {
                        let due = walls.least_known(*invoked, end, AGE) + life(millis) - ROUNDING;
                        walls.first(due).max(*invoked)
                    };
                    *expiry = Expiry::At(walls.map_or(*invoked, due) as i64);
                }
            }
            Command::ExpiryOf { key } => {
                *command = Command::Exists { keys: vec![key.clone()] };
                if let Some((_, reply)) = returned
                    && let Reply::Expires(expires) = reply
                {
                    *reply = Reply::Integer(i64::from(*expires != Expires::Missing));
                }
            }
            _ => {}
        }
    }
    timed
}

/// Whether every key is gone in the end. `bounds` names the reads that may be old.
pub fn check_ends(history: &History, bounds: &Bounds, walls: &WallClocks) -> Result<(), String> {
    let puts = history.0.iter().filter_map(|put| {
        let Command::Put { key, value, expiry: Expiry::In(millis), .. } = &put.command else { return None };
        let (answered, reply) = put.returned.as_ref()?;
        (!matches!(reply, Reply::Skipped | Reply::Error(_)))
            .then(|| (key, value, *answered, walls.most(*answered) + life(*millis) + ROUNDING))
    });
    let puts: Vec<_> = puts.collect();
    for (index, read) in history.0.iter().enumerate() {
        let Some((at, reply)) = &read.returned else { continue };
        if bounds.contains_key(&index) {
            continue;
        }
        for (key, value, put, due) in &puts {
            let late = read.invoked > *put + LAG && walls.least(read.invoked - LAG, *at) > *due;
            if late && shows(reply, value) {
                return Err(format!(
                    "a read asked at {} ns found {key:?}, put with a time to live and answered at {put} ns, more than \
                     {} ms after every clock was past its time",
                    read.invoked,
                    LAG / MILLISECOND
                ));
            }
        }
    }
    Ok(())
}

fn life(millis: i64) -> i64 {
    millis.max(0).saturating_mul(MILLISECOND as i64)
}

fn shows(reply: &Reply, value: &Bytes) -> bool {
    match reply {
        Reply::Value(shown) => shown.as_ref() == Some(value),
        Reply::Values(shown) => shown.iter().flatten().any(|shown| shown == value),
        Reply::Batch(Some(replies)) => replies.iter().any(|reply| shows(reply, value)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::Random;

    use super::*;
    use crate::{Nanos, linearizability};

    fn true_walls() -> WallClocks {
        WallClocks::new([[(0, 0)]])
    }

    /// A clock that is off by up to a second, and jumps five times in eight.
    fn jumping(random: &mut Random) -> Vec<(Nanos, i64)> {
        let mut instants: Vec<_> = (0..5).map(|_| random.range(1..8 * SECOND)).collect();
        instants.sort_unstable();
        let off = |random: &mut Random, millis: u64| {
            (random.range(0..2 * millis) as i64 - millis as i64) * MILLISECOND as i64
        };
        let mut clock = vec![(0, off(random, 1000))];
        for at in instants {
            let millis = *random.pick(&[20, 1000, 60_000, 3_600_000]);
            clock.push((at, off(random, millis)));
        }
        clock
    }

    /// Times are milliseconds here.
    fn history(text: &str) -> History {
        let mut history = History::parse(text).unwrap();
        for operation in &mut history.0 {
            operation.invoked *= MILLISECOND;
            operation.returned.iter_mut().for_each(|(at, _)| *at *= MILLISECOND);
        }
        history
    }

    const PUT: &str = "1 0 10 put \"x\" \"v\" always in 100 no = done";

    #[test]
    fn a_key_vanishes_between_its_time_and_the_end_of_it() {
        let verdict = |read: &str| {
            let history = history(&format!("{PUT}\n{read}"));
            let ends = check_ends(&history, &Bounds::new(), &true_walls()).is_ok();
            (linearizability::check(&timed(&history, Some(&true_walls()))).is_ok(), ends)
        };
        assert_eq!(verdict("2 90 95 get \"x\" = value none"), (false, true), "early");
        assert_eq!(verdict("2 90 101 get \"x\" = value none"), (true, true));
        assert_eq!(verdict("2 150 160 get \"x\" = value some \"v\""), (true, true), "somewhat late");
        assert_eq!(verdict("2 3000 3010 get \"x\" = value some \"v\""), (true, false), "late");
        assert_eq!(verdict("2 3000 3010 expiry \"x\" = expires missing"), (true, true));
        assert_eq!(verdict("2 50 60 expiry \"x\" = expires missing"), (false, true), "early");
        let again = "2 150 160 get \"x\" = value none\n2 170 180 get \"x\" = value some \"v\"";
        assert_eq!(verdict(again), (false, true), "it came back");
    }

    #[test]
    fn a_read_that_may_be_old_may_find_what_is_gone() {
        let history = history(&format!("{PUT}\n2 9000 9010 get \"x\" = value some \"v\""));
        let old = Bounds::from([(1, quorate_core::Staleness::Versions(1))]);
        assert!(check_ends(&history, &Bounds::new(), &true_walls()).is_err());
        assert!(check_ends(&history, &old, &true_walls()).is_ok());
    }

    #[test]
    fn a_clock_that_was_set_just_before_may_still_be_believed() {
        // A second behind until then.
        let expires = |set: u64, at: u64| {
            let walls = WallClocks::new([vec![(0, -(SECOND as i64)), (set * MILLISECOND, 0)]]);
            let text = format!(
                "1 4000 4010 put \"x\" \"v\" always in 1500 no = done\n2 {at} {at} get \"x\" = value none"
            );
            linearizability::check(&timed(&history(&text), Some(&walls))).is_ok()
        };
        assert!(expires(3500, 4600) && !expires(3500, 4400));
        assert!(!expires(2900, 5400) && expires(2900, 5600), "it was read again since");
    }

    #[test]
    fn a_leader_slews_while_all_clocks_are_behind_replicated_time() {
        // Until 4100 ms it shows the truth, then it is an hour behind.
        let walls = WallClocks::new([vec![(0, 0), (4100 * MILLISECOND, -3600 * SECOND as i64)]]);
        let may_be_gone = |at: u64| {
            let text = format!(
                "1 4000 4010 put \"x\" \"v\" always in 1000 no = done\n2 {at} {at} get \"x\" = value none"
            );
            linearizability::check(&timed(&history(&text), Some(&walls))).is_ok()
        };
        assert!(may_be_gone(5820) && !may_be_gone(5780), "900 ms more from 4100 on");
    }

    #[test]
    fn clocks_that_jump_move_both_ends() {
        let (mut early, mut late) = (0, 0);
        for seed in 0..100 {
            let walls = WallClocks::new([jumping(&mut Random::new(seed))]);
            let put = history("1 4000 4010 put \"x\" \"v\" always in 100 no = done");
            let Command::Put { expiry: Expiry::At(from), .. } = timed(&put, Some(&walls)).0[0].command else {
                panic!()
            };
            assert!(from as u64 >= 4000 * MILLISECOND);
            early += u64::from((from as u64) < 4090 * MILLISECOND);
            let read = history(
                "1 4000 4010 put \"x\" \"v\" always in 100 no = done\n2 9000 9010 get \"x\" = value some \"v\"",
            );
            late += u64::from(check_ends(&read, &Bounds::new(), &walls).is_ok());
        }
        assert!((20..100).contains(&early) && (20..100).contains(&late), "{early} {late}");
    }
}
