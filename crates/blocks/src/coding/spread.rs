//! Which replicas hold which shards of a value, and how many are left of these, whoever is lost.
//!
//! *Balanced assignments.* Of n shards, voter number i gets `width` of them, from number i on, in a circle. So k
//! voters hold at least k + width − 1 distinct ones, or all; and no fewer if they are neighbours. Where n − r voters
//! may be lost, votes of q leave q − (n − r) holders, and restore the value if these have d shards between them: q +
//! width ≥ d + 1 + n − r. With d = r = ⌈n/2⌉ that is q + width ≥ n + 1 (Crossword's condition C4), down to a majority
//! with whole values. [`least_width`] is this closed form; what decides is [`worst_cover`], for whatever is held.

use quorate_core::{Decoder, Encoder, Wire, WireError};

use super::MAX_SHARDS;

/// Shards of one value, by number.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct ShardSet(u16);

impl ShardSet {
    /// Every number that there can be: what a whole value stands for.
    pub const ALL: ShardSet = ShardSet(u16::MAX);

    /// `width` shards of `shards`, from the number `first` on, in a circle.
    pub fn arc(first: usize, width: usize, shards: usize) -> ShardSet {
        (0..width.min(shards)).map(|step| ((first + step) % shards) as u8).collect()
    }

    /// One bit for each number.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// The shards that are in either set, or in both.
    pub fn union(self, other: ShardSet) -> ShardSet {
        ShardSet(self.0 | other.0)
    }

    /// Those that are not in the other.
    pub fn without(self, other: ShardSet) -> ShardSet {
        ShardSet(self.0 & !other.0)
    }

    /// The first so many of them, by number.
    pub fn first(self, count: usize) -> ShardSet {
        (0..MAX_SHARDS as u8).filter(|number| self.contains(*number)).take(count).collect()
    }

    /// How many are in.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether none is in.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether it is in.
    pub fn contains(self, number: u8) -> bool {
        self.0 & (1 << number) != 0
    }
}

impl FromIterator<u8> for ShardSet {
    fn from_iter<I: IntoIterator<Item = u8>>(numbers: I) -> Self {
        numbers.into_iter().fold(ShardSet::default(), |set, number| {
            assert!(usize::from(number) < MAX_SHARDS, "shard {number} of at most {MAX_SHARDS}");
            ShardSet(set.0 | 1 << number)
        })
    }
}

impl std::fmt::Debug for ShardSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries((0..MAX_SHARDS as u8).filter(|number| self.contains(*number))).finish()
    }
}

impl Wire for ShardSet {
    fn encode(&self, out: &mut Encoder) {
        self.0.encode(out);
    }
    fn decode(input: &mut Decoder) -> Result<ShardSet, WireError> {
        Ok(ShardSet(u16::decode(input)?))
    }
}

/// How many distinct shards any `left` of these holders have, at least.
pub fn worst_cover(held: &[ShardSet], left: usize) -> usize {
    fn walk(held: &[ShardSet], left: usize, covered: ShardSet, least: &mut usize) {
        if left == 0 {
            *least = covered.len();
            return;
        }
        for (index, shards) in held.iter().enumerate().take((held.len() + 1).saturating_sub(left)) {
            let covered = covered.union(*shards);
            // Others only add to it.
            if covered.len() < *least {
                walk(&held[index + 1..], left - 1, covered, least);
            }
        }
    }
    if left == 0 || left > held.len() {
        return 0;
    }
    let mut least = MAX_SHARDS;
    walk(held, left, ShardSet::default(), &mut least);
    least
}

/// How many shards each voter must get of a balanced assignment, so that any `left` of them hold `data` distinct ones;
/// `data` itself if none is left.
pub fn least_width(data: usize, left: usize) -> usize {
    match left {
        0 => data,
        left => (data + 1).saturating_sub(left).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Crossword's C4, against every set of repliers and every set of them that is lost.
    #[test]
    fn balanced_assignments_are_safe_where_replies_and_width_exceed_the_voters() {
        for voters in [3usize, 5, 7, 9] {
            let majority = voters.div_ceil(2);
            for width in 1..=majority {
                let held: Vec<_> = (0..voters).map(|first| ShardSet::arc(first, width, voters)).collect();
                let mut worst = vec![usize::MAX; voters + 1];
                for repliers in 1u32..1 << voters {
                    let of: Vec<_> = (0..voters)
                        .filter(|index| repliers & 1 << index != 0)
                        .map(|index| held[index])
                        .collect();
                    let left = of.len().saturating_sub(voters - majority);
                    worst[of.len()] = worst[of.len()].min(worst_cover(&of, left));
                }
                for (replies, worst) in worst.into_iter().enumerate().skip(majority) {
                    let case = format!("{voters} voters, {replies} replies, {width} shards each: {worst}");
                    assert_eq!(worst >= majority, replies + width > voters, "{case}");
                    let least = least_width(majority, replies - (voters - majority));
                    assert_eq!(width >= least, replies + width > voters, "{case}");
                }
            }
        }
    }

    #[test]
    fn overlapping_shards_count_once_whoever_is_lost() {
        let sets = |text: &str| -> Vec<ShardSet> {
            let set = |word: &str| match word {
                "*" => ShardSet::ALL,
                word => word.bytes().map(|digit| digit - b'0').collect(),
            };
            text.split_whitespace().map(set).collect()
        };
        // held | left | distinct shards at least. The paper's example (C-3.4) is the first: servers 0, 1 and 4.
        let table = [
            ("01 12 40", 3, 4),
            ("01 12 40", 2, 3),
            ("01 12 40", 1, 2),
            ("0 0 1", 2, 1),
            ("* 0 1", 2, 2),
            ("* 0 1", 3, 16),
            ("0 1", 0, 0),
            ("0 1", 3, 0),
        ];
        for (held, left, expected) in table {
            assert_eq!(worst_cover(&sets(held), left), expected, "{held} | {left}");
        }
    }
}
