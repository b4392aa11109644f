//! How many shards each voter gets: as many as let a value be chosen soonest, by how long the others have taken
//! lately.
//!
//! With c shards each, a value of v bytes is chosen by q = d + 1 + lost − c votes, the leader's among them. So it
//! takes as long as the (q − 1)-th fastest of the others takes for c·v/d bytes (Crossword §4.1; the paper prints v/c
//! there). Where several values are under way, v is the bytes of all of them, as it is in the paper's batches. Each
//! other's time is a straight line over bytes ([`quorate_blocks::pace`]). A smaller c must be sooner by a tenth: with a
//! larger one fewer others are waited for, and whole values are executed at once; and the lines are not that exact.

use std::time::Duration;

/// What is chosen among.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// d: how many shards restore the value.
    pub data: usize,
    /// How many voters may be lost.
    pub lost: usize,
    /// The least that lets those who are there have a value chosen.
    pub least: usize,
    /// Bytes of the value, and of those that are on the same links.
    pub bytes: usize,
}

/// The best number of shards for each voter; d, and so the whole value, while too few have answered. `expected`: how
/// long each other voter takes for so many bytes, if it is there and has answered.
pub fn choose(choice: Choice, others: usize, expected: impl Fn(usize, usize) -> Option<Duration>) -> usize {
    let Choice { data, lost, least, bytes } = choice;
    let time = |width: usize| {
        let share = (width * bytes).div_ceil(data);
        let mut times: Vec<_> = (0..others).filter_map(|other| expected(other, share)).collect();
        times.sort_unstable();
        match data + 1 + lost - width {
            1 => Some(Duration::ZERO),
            votes => times.get(votes - 2).copied(),
        }
    };
    let mut best = (data, time(data));
    for width in (least..data).rev() {
        if let Some(soonest) = time(width)
            && best.1.is_none_or(|best| soonest + soonest / 10 < best)
        {
            best = (width, Some(soonest));
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five voters, four of them the others: each with a delay in milliseconds and a rate in bytes a millisecond.
    #[test]
    fn few_shards_go_over_slow_links_and_whole_values_where_replies_are_slow() {
        // delay and rate of each other | least | bytes | shards
        let even: [(u64, u64); 4] = [(4, 100_000); 4];
        let one_far = [(4, 1_000), (4, 1_000), (4, 1_000), (90, 1_000)];
        let one_slow = [(4, 1_000), (4, 1_000), (4, 1_000), (4, 10)];
        let table = [
            (even, 1, 100, 3),
            (even, 1, 1_000_000, 1),
            (even, 2, 1_000_000, 2),
            (even, 3, 1_000_000, 3),
            (one_far, 1, 100, 3),
            (one_far, 1, 30_000, 2),
            (one_far, 1, 900_000, 1),
            (one_slow, 1, 30_000, 2),
        ];
        for (links, least, bytes, shards) in table {
            let expected = |other: usize, bytes: usize| {
                let (delay, rate): (u64, u64) = links[other];
                Some(Duration::from_micros(delay * 1000 + bytes as u64 * 1000 / rate))
            };
            let choice = Choice { data: 3, lost: 2, least, bytes };
            assert_eq!(choose(choice, 4, expected), shards, "{links:?} {least} {bytes}");
        }
    }

    #[test]
    fn whole_values_are_sent_while_too_few_have_answered() {
        let choice = Choice { data: 3, lost: 2, least: 1, bytes: 1_000_000 };
        let of = |answered: usize| {
            let pace = |bytes| Duration::from_millis(4) + Duration::from_nanos(100 * bytes as u64);
            choose(choice, 4, |other, bytes| (other < answered).then(|| pace(bytes)))
        };
        assert_eq!([0, 1, 2, 3, 4].map(of), [3, 3, 3, 2, 1]);
    }
}
