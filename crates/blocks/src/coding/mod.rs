//! **Reed–Solomon coding**: a value becomes n shards, of which any d restore it.
//!
//! The first d shards are the value itself, cut into equal pieces: slices of it, without a copy, but for what must be
//! padded at its end. The others are sums of these, multiplied by the elements of a Cauchy matrix, of which every
//! square part has an inverse: so any d of the n shards determine the pieces (Plank, Ding, *Note: Correction to the
//! 1997 Tutorial on Reed–Solomon Coding*, 2003).
//!
//! **Multiplication without tables or vector intrinsics** (Blömer et al., *An XOR-Based Erasure-Resilient Coding
//! Scheme*, 1995): an element of GF(2⁸) multiplies the 8 bits of another as a matrix of 8 × 8 bits. A shard is read as
//! 8 planes, plane j with bit j of as many elements as it has bits. Then multiplication adds whole planes, and addition
//! is XOR of bytes in loops that compilers vectorize on every processor. Which bits make an element is nobody's
//! business outside.

mod assignment;
mod field;
pub mod spread;
pub mod value;

pub use assignment::Assignment;
pub use value::{Coded, Value, ValueId};

use bytes::Bytes;

/// Shards of a value, at most.
pub const MAX_SHARDS: usize = 16;
/// Bits of an element, hence planes of a shard.
const PLANES: usize = 8;
/// Shards are multiples of this long: planes of whole words.
const ALIGNMENT: usize = 8 * PLANES;
/// Bytes of each plane that are worked on at once, so that those of all shards stay in the first-level cache.
const BLOCK: usize = 512;

/// Why a code or its shards cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodingError {
    /// n and d do not fit: 1 ≤ d ≤ n ≤ [`MAX_SHARDS`].
    Shape {
        /// How many shards were asked for.
        shards: usize,
        /// How many of them are to restore the value.
        data: usize,
    },
    /// There is no shard of this number, or it is given twice.
    Number(u8),
    /// A shard has the first length and must have the second, in bytes.
    Length(usize, usize),
    /// So many distinct shards, and the second is needed.
    TooFew(usize, usize),
}

impl std::fmt::Display for CodingError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CodingError::Shape { shards, data } => write!(
                f,
                "{shards} shards of which {data} restore a value: there are 1 to {MAX_SHARDS} shards, and 1 to all of \
                 them restore a value"
            ),
            CodingError::Number(number) => write!(f, "shard {number} is unknown, or there twice"),
            CodingError::Length(is, must) => write!(f, "a shard of {is} bytes, which must have {must}"),
            CodingError::TooFew(are, must) => write!(f, "{are} shards, of which {must} are needed"),
        }
    }
}

impl std::error::Error for CodingError {}

/// A code of n shards, of which any d restore the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    data: usize,
    /// What each shard behind the first d adds up: a factor for each of the first d.
    parity: Vec<Vec<u8>>,
}

impl Code {
    /// `shards` is n, `data` is d: 1 ≤ d ≤ n ≤ [`MAX_SHARDS`].
    pub fn new(shards: usize, data: usize) -> Result<Code, CodingError> {
        if data == 0 || data > shards || shards > MAX_SHARDS {
            return Err(CodingError::Shape { shards, data });
        }
        // Cauchy's matrix, scaled so that its first row and column are ones: these cost least.
        let cauchy = |row: usize, column: usize| field::inverse(((data + row) ^ column) as u8);
        let parity = (0..shards - data).map(|row| {
            let scale = field::multiply(field::inverse(cauchy(row, 0)), cauchy(0, 0));
            let element = |column| {
                let scaled = field::multiply(cauchy(row, column), field::inverse(cauchy(0, column)));
                field::multiply(scaled, scale)
            };
            (0..data).map(element).collect()
        });
        Ok(Code { data, parity: parity.collect() })
    }

    /// Bytes of each shard of a value of so many bytes.
    pub fn shard_len(&self, value: usize) -> usize {
        value.div_ceil(self.data).next_multiple_of(ALIGNMENT)
    }

    /// All n shards, in the order of their numbers.
    pub fn encode(&self, value: &Bytes) -> Vec<Bytes> {
        self.shards(value, 0..self.data + self.parity.len())
    }

    /// The shards with these numbers, which are below n.
    pub fn shards(&self, value: &Bytes, numbers: impl Iterator<Item = usize>) -> Vec<Bytes> {
        let len = self.shard_len(value.len());
        let piece = |number: usize| {
            let (start, end) = (number * len, (number + 1) * len);
            if end <= value.len() {
                return value.slice(start..end);
            }
            let mut padded = Vec::with_capacity(len);
            padded.extend_from_slice(&value[start.min(value.len())..]);
            padded.resize(len, 0);
            padded.into()
        };
        let pieces: Vec<Bytes> = (0..self.data).map(piece).collect();
        let shard = |number: usize| match number.checked_sub(self.data) {
            None => pieces[number].clone(),
            Some(parity) => {
                let terms = self.parity[parity].iter().copied();
                let mut sum = vec![0; len];
                add_up(terms.zip(pieces.iter().map(|piece| &piece[..])), &mut sum);
                sum.into()
            }
        };
        numbers.map(shard).collect()
    }

    /// The value of `len` bytes, from any d of its shards with their numbers. Whether they are shards of one value only
    /// a digest of that can tell.
    pub fn restore(&self, len: usize, shards: &[(u8, Bytes)]) -> Result<Bytes, CodingError> {
        let shard_len = self.shard_len(len);
        let mut given = [None; MAX_SHARDS];
        for (number, shard) in shards {
            if shard.len() != shard_len {
                return Err(CodingError::Length(shard.len(), shard_len));
            }
            let slot = given[..self.data + self.parity.len()].get_mut(usize::from(*number));
            match slot {
                Some(slot @ None) => *slot = Some(&shard[..]),
                _ => return Err(CodingError::Number(*number)),
            }
        }
        let used: Vec<_> =
            (0..MAX_SHARDS).filter(|number| given[*number].is_some()).take(self.data).collect();
        if used.len() < self.data {
            return Err(CodingError::TooFew(used.len(), self.data));
        }
        let inverted = match used.last() {
            Some(last) if *last < self.data => None,
            _ => {
                let rows = used.iter().map(|number| self.row(*number)).collect();
                Some(field::invert(rows).expect("every square part of a Cauchy matrix has an inverse"))
            }
        };
        let mut value = Vec::with_capacity(self.data * shard_len);
        for number in 0..self.data {
            match (given[number], &inverted) {
                (Some(shard), _) => value.extend_from_slice(shard),
                (None, Some(inverted)) => {
                    let start = value.len();
                    value.resize(start + shard_len, 0);
                    let terms = inverted[number].iter().copied();
                    let terms = terms.zip(used.iter().filter_map(|number| given[*number]));
                    add_up(terms, &mut value[start..]);
                }
                (None, None) => unreachable!("the first d shards are given"),
            }
        }
        value.truncate(len);
        Ok(value.into())
    }

    /// What a shard adds up: a factor for each of the first d.
    fn row(&self, number: usize) -> Vec<u8> {
        match number.checked_sub(self.data) {
            Some(parity) => self.parity[parity].clone(),
            None => (0..self.data).map(|column| u8::from(column == number)).collect(),
        }
    }
}

/// The sum of shards, each multiplied by a factor; all are as long as `sum`, which is zero.
fn add_up<'a>(terms: impl Iterator<Item = (u8, &'a [u8])>, sum: &mut [u8]) {
    let plane = sum.len() / PLANES;
    // For each plane of the sum, the planes that it adds up.
    let mut sources: [Vec<&[u8]>; PLANES] = Default::default();
    for (factor, shard) in terms {
        for bit in 0..PLANES {
            let product = field::multiply(factor, 1 << bit);
            let source = &shard[bit * plane..][..plane];
            for (index, sources) in sources.iter_mut().enumerate() {
                if product >> index & 1 == 1 {
                    sources.push(source);
                }
            }
        }
    }
    xor(&sources, sum);
}

/// Adds these planes to each plane of the sum, with the widest vectors that this processor has: the
/// result is the same.
fn xor(sources: &[Vec<&[u8]>; PLANES], sum: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        #[target_feature(enable = "avx2")]
        fn wide(sources: &[Vec<&[u8]>; PLANES], sum: &mut [u8]) {
            xor_blocks(sources, sum);
        }
        #[allow(
            unsafe_code,
            reason = "the processor has what the function is compiled for: it was asked just now"
        )]
        return unsafe { wide(sources, sum) };
    }
    xor_blocks(sources, sum);
}

#[inline(always)]
fn xor_blocks(sources: &[Vec<&[u8]>; PLANES], sum: &mut [u8]) {
    let plane = sum.len() / PLANES;
    for start in (0..plane).step_by(BLOCK) {
        let block = start..plane.min(start + BLOCK);
        for (index, sources) in sources.iter().enumerate() {
            let out = &mut sum[index * plane..][block.clone()];
            let (fours, rest) = sources.as_chunks::<4>();
            for group in fours {
                let [a, b, c, d] = group.map(|source| &source[block.clone()]);
                for ((((out, a), b), c), d) in out.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                    *out ^= a ^ b ^ c ^ d;
                }
            }
            for source in rest {
                out.iter_mut().zip(&source[block.clone()]).for_each(|(out, a)| *out ^= a);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::Random;

    use super::*;

    fn value(random: &mut Random, len: usize) -> Bytes {
        (0..len).map(|_| random.u64() as u8).collect::<Vec<_>>().into()
    }

    /// All choices of d of n numbers.
    fn choices(shards: usize, data: usize) -> impl Iterator<Item = Vec<usize>> {
        let sets = (0u32..1 << shards).filter(move |set| set.count_ones() as usize == data);
        sets.map(move |set| (0..shards).filter(|number| set >> number & 1 == 1).collect())
    }

    #[test]
    fn any_d_of_n_shards_restore_the_value() {
        let mut random = Random::new(1);
        for (shards, data) in (1..=9).flat_map(|n| (1..=n).map(move |d| (n, d))) {
            let code = Code::new(shards, data).unwrap();
            for len in [0, 1, 63, 64 * data, 1000 + random.range(0..5000) as usize] {
                let value = value(&mut random, len);
                let encoded = code.encode(&value);
                assert_eq!(encoded.len(), shards);
                for choice in choices(shards, data) {
                    let given: Vec<_> = choice.iter().map(|i| (*i as u8, encoded[*i].clone())).collect();
                    assert_eq!(code.restore(len, &given), Ok(value.clone()), "{shards} {data} {choice:?}");
                }
            }
        }
    }

    #[test]
    fn every_code_of_sixteen_shards_restores_from_its_last_ones() {
        let mut random = Random::new(2);
        for data in 1..=MAX_SHARDS {
            let code = Code::new(MAX_SHARDS, data).unwrap();
            let value = value(&mut random, 3000);
            let last = code.encode(&value).into_iter().enumerate().skip(MAX_SHARDS - data);
            let given: Vec<_> = last.map(|(number, shard)| (number as u8, shard)).collect();
            assert_eq!(code.restore(3000, &given), Ok(value));
        }
    }

    /// The code as it is defined: bit k of plane j is bit j of element k, and elements are multiplied in the field.
    #[test]
    fn planes_are_added_as_elements_are_multiplied() {
        let mut random = Random::new(3);
        let code = Code::new(9, 5).unwrap();
        let value = value(&mut random, 5 * 128);
        let shards = code.encode(&value);
        let element = |shard: &Bytes, index: usize| {
            let bit = |plane: usize| shard[plane * 16 + index / 8] >> (index % 8) & 1;
            (0..8).fold(0, |element, plane| element | bit(plane) << plane)
        };
        for (factors, parity) in code.parity.iter().zip(&shards[5..]) {
            for index in 0..128 {
                let terms = factors.iter().zip(&shards);
                let sum = terms
                    .fold(0, |sum, (factor, shard)| sum ^ field::multiply(*factor, element(shard, index)));
                assert_eq!(element(parity, index), sum);
            }
        }
    }

    #[test]
    fn whole_pieces_of_a_value_are_not_copied() {
        let value = Bytes::from(vec![7; 3 * 640]);
        let shards = Code::new(5, 3).unwrap().encode(&value);
        assert!((0..3).all(|number| shards[number].as_ptr() == value[number * 640..].as_ptr()));
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        for (shards, data) in [(7, 9), (17, 3), (3, 0), (0, 0)] {
            assert_eq!(Code::new(shards, data), Err(CodingError::Shape { shards, data }));
        }
        let code = Code::new(5, 3).unwrap();
        let shards = code.encode(&Bytes::from(vec![1; 500]));
        let shard = |number: u8| (number, shards[usize::from(number)].clone());
        let table = [
            (vec![shard(0), shard(4)], CodingError::TooFew(2, 3)),
            (vec![shard(0), shard(4), shard(4)], CodingError::Number(4)),
            (vec![shard(0), (5, shard(4).1), shard(1)], CodingError::Number(5)),
            (vec![shard(0), (2, shard(2).1.slice(1..)), shard(1)], CodingError::Length(191, 192)),
        ];
        for (given, error) in table {
            assert_eq!(code.restore(500, &given), Err(error));
        }
        assert!(code.restore(900, &[shard(0), shard(1), shard(2)]).is_err(), "another value's length");
    }
}
