//! Figure 4: which numbers of votes and shards are safe, by enumeration of all reply sets.

use quorate_blocks::coding::spread::{ShardSet, worst_cover};

use super::{FIG4, FIG4_FIXED, FIG4_FRONT};
use crate::instrument::Result;
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::Bench;

const SIZES: [usize; 4] = [3, 5, 7, 9];

/// The fewest distinct shards that are left of any so many replies when `lost` of all servers fail, each with so many
/// shards of a balanced assignment.
fn least_cover(voters: usize, shards: usize, votes: usize, lost: usize) -> usize {
    let of = |server: usize| ShardSet::arc(server, shards, voters);
    let sets = (0u32..1 << voters).filter(|set| set.count_ones() as usize == votes);
    let covers = sets.map(|set| {
        let held: Vec<_> = (0..voters).filter(|server| set >> server & 1 == 1).map(of).collect();
        worst_cover(&held, votes.saturating_sub(lost))
    });
    covers.min().unwrap_or(0)
}

pub fn measure(_: &Bench) -> Result<Vec<Rows>> {
    let yes = |yes: bool| f64::from(u8::from(yes));
    let (mut all, mut front, mut fixed) = (Vec::new(), Vec::new(), Vec::new());
    for voters in SIZES {
        let majority = voters.div_ceil(2);
        let lost = voters - majority;
        for shards in 1..=majority {
            let cover = |votes| least_cover(voters, shards, votes, lost);
            for votes in 1..=voters {
                // Of so few replies, all may be lost.
                let bound = if votes > lost { (votes + shards - lost - 1).min(voters) } else { 0 };
                let safe = votes >= majority && cover(votes) >= majority;
                let closed = votes >= majority && votes + shards > voters;
                let numbers = [cover(votes) as f64, bound as f64, yes(safe), yes(safe == closed)];
                all.push(Row::of(&[&shards, &voters, &votes], numbers));
            }
            let least = (majority..=voters).find(|votes| cover(*votes) >= majority);
            let least = least.ok_or("no number of votes is safe")?;
            front.push(Row::of(&[&shards, &voters], [least as f64, (least + shards) as f64]));
        }
        // m + ⌈p/2⌉ votes for one shard each, by the paper's formula, and the ⌊p/2⌋ failures that it states for them.
        let votes = majority + lost.div_ceil(2);
        let inside = |lost: usize| yes(least_cover(voters, 1, votes, lost) >= majority);
        fixed.push(Row::of(&[&"RSPaxos, CRaft", &voters], [votes as f64, inside(lost), inside(lost / 2)]));
    }
    Ok(vec![Rows(&FIG4, all), Rows(&FIG4_FRONT, front), Rows(&FIG4_FIXED, fixed)])
}
