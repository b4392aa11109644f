//! The keys and what is stored at them: a hash table for commands that name their keys, and the keys in the order of
//! scans ([`crate::order`]) for those that go through them.
//!
//! An ordered map alone costs about ten cache misses to find a key among 100,000; a table costs three, and most
//! commands name their keys. The order changes only when keys come and go.
//!
//! The table is **persistent**: its pages are shared with clones, and a write copies the one page it changes. A
//! clone copies one pointer for each chunk of pages, that is for some four thousand keys. It grows a page at a time
//! (extendible hashing): a full page is split in two by the next bit of its keys' hashes, and the directory doubles
//! when a page needs more bits than it has. Keys whose hashes agree by accident overflow into an ordered map of their
//! page. Nobody can choose such keys: the hash is SipHash-1-3 with a key of the process ([`crate::process`]).
//!
//! Which page a key lies in depends on that key and on the history of the table, so nothing observable may: whatever
//! goes through all keys goes in their order.

use std::hint::black_box;
use std::ops::Bound;
use std::sync::Arc;

use arrayvec::ArrayVec;
use imbl::{OrdMap, OrdSet};
use siphasher::sip::SipHasher13;

use crate::compact::Compact;
use crate::entry::{Entry, Value};
use crate::order::Place;
use crate::process;
use crate::store::AHEAD;

/// Keys that fit in a page.
const ROOM: usize = 24;
/// Pages of a chunk.
const CHUNK: usize = 256;
/// So many bytes come from memory at once.
const LINE: usize = 64;
/// So many times that of a string, when its key is looked for: the rest comes while these are copied.
const LINES: usize = 4;
/// The directory has at most this many more bits than it would need if all pages were full.
const SPREAD: u32 = 4;

type Item = (Compact, Entry);
type Chunk = ArrayVec<Arc<Page>, CHUNK>;

/// See the file comment.
#[derive(Clone)]
pub(crate) struct Table {
    order: OrdSet<Place>,
    /// The key of the hash.
    key: [u64; 2],
    /// The page of each value of the hashes' first bits.
    directory: Arc<Vec<u32>>,
    /// How many bits.
    bits: u32,
    chunks: Vec<Arc<Chunk>>,
}

/// Laid out so that what decides whether a key is here is in one cache line with the reference counts.
#[derive(Clone)]
#[repr(C)]
struct Page {
    /// So many first bits its keys' hashes have in common.
    depth: u32,
    /// The last byte of each item's hash.
    tags: [u8; ROOM],
    items: ArrayVec<Item, ROOM>,
    /// What has no room, although the page may not be split.
    more: OrdMap<Compact, Entry>,
}

impl Page {
    fn new(depth: u32) -> Page {
        Page { depth, tags: [0; ROOM], items: ArrayVec::new(), more: OrdMap::new() }
    }

    fn position(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let tags = &self.tags[..self.items.len()];
        memchr::memchr_iter(hash as u8, tags).find(|&at| self.items[at].0[..] == *key)
    }

    fn get(&self, hash: u64, key: &[u8]) -> Option<&Entry> {
        match self.position(hash, key) {
            Some(at) => Some(&self.items[at].1),
            None if self.more.is_empty() => None,
            None => self.more.get(key),
        }
    }

    fn is_full(&self) -> bool {
        self.items.is_full()
    }

    fn put(&mut self, hash: u64, (key, entry): Item) {
        if self.is_full() {
            self.more.insert(key, entry);
        } else {
            self.tags[self.items.len()] = hash as u8;
            self.items.push((key, entry));
        }
    }

    fn take(&mut self, hash: u64, key: &[u8]) -> Option<Item> {
        let Some(at) = self.position(hash, key) else { return self.more.remove_with_key(key) };
        self.tags[at] = self.tags[self.items.len() - 1];
        Some(self.items.swap_remove(at))
    }
}

impl Default for Table {
    fn default() -> Table {
        Table::with_key(process::hash_key())
    }
}

impl Table {
    /// An empty table whose hash has this key.
    fn with_key(key: [u64; 2]) -> Table {
        let chunk = Chunk::from_iter([Arc::new(Page::new(0))]);
        Table {
            order: OrdSet::new(),
            key,
            directory: Arc::new(vec![0]),
            bits: 0,
            chunks: vec![Arc::new(chunk)],
        }
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn clear(&mut self) {
        process::discard(std::mem::take(self));
    }

    pub fn contains_key(&self, key: &[u8]) -> bool {
        self.get(key).is_some()
    }

    pub fn get(&self, key: &[u8]) -> Option<&Entry> {
        let hash = self.hash(key);
        self.page(hash).get(hash, key)
    }

    /// Loads what finding these keys needs from memory, at most [`AHEAD`]: each step for all of them before the next
    /// one, so that it waits once for all and not once for each.
    pub fn touch<'a>(&'a self, keys: impl Iterator<Item = &'a [u8]>) {
        let hashes: ArrayVec<u64, AHEAD> = keys.take(AHEAD).map(|key| self.hash(key)).collect();
        let pages: ArrayVec<_, AHEAD> = hashes.iter().map(|hash| (self.page(*hash), *hash as u8)).collect();
        for (page, _) in &pages {
            black_box(page.depth);
        }
        let first = |(page, tag): (&'a Page, u8)| page.items.get(memchr::memchr(tag, &page.tags)?);
        let items: ArrayVec<&Item, AHEAD> = pages.into_iter().filter_map(first).collect();
        for (key, entry) in &items {
            black_box((key.len(), entry.version));
        }
        for (_, entry) in &items {
            if let Value::String(value) = &entry.value {
                for line in value.chunks(LINE).take(LINES) {
                    black_box(line[0]);
                }
            }
        }
    }

    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut Entry> {
        self.get_key_value_mut(key).map(|(_, entry)| entry)
    }

    pub fn get_key_value_mut(&mut self, key: &[u8]) -> Option<(&Compact, &mut Entry)> {
        let hash = self.hash(key);
        let page = self.page_mut(hash);
        match page.position(hash, key) {
            Some(at) => {
                let (key, entry) = &mut page.items[at];
                Some((key, entry))
            }
            None if page.more.is_empty() => None,
            None => page.more.get_key_value_mut(key),
        }
    }

    /// Adds a key that is not there.
    pub fn insert(&mut self, key: Compact, entry: Entry) {
        let before = self.order.insert(Place::of(key.clone()));
        assert!(before.is_none(), "a key is inserted where none is");
        let hash = self.hash(&key);
        let most = (self.len() / ROOM).checked_ilog2().map_or(0, |bits| bits + 1) + SPREAD;
        loop {
            let page = self.page_mut(hash);
            if !page.is_full() || page.depth >= most {
                return page.put(hash, (key, entry));
            }
            self.split(hash);
        }
    }

    pub fn remove_with_key(&mut self, key: &[u8]) -> Option<Item> {
        if !self.contains_key(key) {
            return None;
        }
        let hash = self.hash(key);
        let item = self.page_mut(hash).take(hash, key).expect("the key is there");
        let place = self.order.remove(&Place::of(item.0.clone()));
        assert!(place.is_some(), "a key in the table is in the order");
        Some(item)
    }

    /// All keys in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&Compact, &Entry)> {
        self.range((Bound::Unbounded, Bound::Unbounded))
    }

    /// Keys in their order.
    pub fn range(&self, bounds: (Bound<Place>, Bound<Place>)) -> impl Iterator<Item = (&Compact, &Entry)> {
        self.places(bounds).map(|place| {
            let entry = self.get(place.bytes()).expect("a key in the order is in the table");
            (place.bytes(), entry)
        })
    }

    /// Where keys are, in their order. Costs much less than to look at what is stored there.
    pub fn places(&self, bounds: (Bound<Place>, Bound<Place>)) -> impl Iterator<Item = &Place> {
        self.order.range::<_, Place>(bounds)
    }

    fn hash(&self, key: &[u8]) -> u64 {
        SipHasher13::new_with_keys(self.key[0], self.key[1]).hash(key)
    }

    /// The number of the page that a hash belongs to.
    fn slot(&self, hash: u64) -> usize {
        self.directory[first(hash, self.bits)] as usize
    }

    fn page(&self, hash: u64) -> &Page {
        let page = self.slot(hash);
        &self.chunks[page / CHUNK][page % CHUNK]
    }

    fn page_mut(&mut self, hash: u64) -> &mut Page {
        let page = self.slot(hash);
        Arc::make_mut(&mut Arc::make_mut(&mut self.chunks[page / CHUNK])[page % CHUNK])
    }

    /// Splits the page that a hash belongs to by the next bit.
    fn split(&mut self, hash: u64) {
        let new = (self.chunks.len() - 1) * CHUNK + self.chunks.last().map_or(0, |chunk| chunk.len());
        let key = self.key;
        let page = self.page_mut(hash);
        let depth = page.depth;
        let mut halves = [Page::new(depth + 1), Page::new(depth + 1)];
        let items = std::mem::take(&mut page.items).into_iter();
        for item in items.chain(std::mem::take(&mut page.more)) {
            let hash = SipHasher13::new_with_keys(key[0], key[1]).hash(&item.0);
            halves[first(hash, depth + 1) & 1].put(hash, item);
        }
        let [low, high] = halves;
        *page = low;
        match self.chunks.last_mut() {
            Some(chunk) if !chunk.is_full() => Arc::make_mut(chunk).push(Arc::new(high)),
            _ => self.chunks.push(Arc::new(Chunk::from_iter([Arc::new(high)]))),
        }
        let directory = Arc::make_mut(&mut self.directory);
        if depth == self.bits {
            *directory = directory.iter().flat_map(|&page| [page, page]).collect();
            self.bits += 1;
        }
        // The entries that share the page's bits, and among them the later half.
        let width = 1 << (self.bits - depth);
        let start = first(hash, depth) * width;
        let new = u32::try_from(new).expect("fewer than 2^32 pages");
        directory[start + width / 2..start + width].fill(new);
    }
}

impl PartialEq for Table {
    fn eq(&self, other: &Table) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for Table {}

/// The first bits of a hash, as a number.
fn first(hash: u64, bits: u32) -> usize {
    hash.checked_shr(64 - bits).map_or(0, |first| first as usize)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use quorate_core::Random;

    use super::*;

    fn entry(version: u64) -> Entry {
        Entry { value: Value::String(Bytes::new()), created: version, version, deadline: None }
    }

    fn key(number: u64) -> Compact {
        Compact::new(&Bytes::from(format!("key {number}")))
    }

    fn contents(table: &Table) -> Vec<(Compact, u64)> {
        table.iter().map(|(key, entry)| (key.clone(), entry.version)).collect()
    }

    #[test]
    fn it_is_a_map_in_order_and_clones_keep_what_they_were() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let keys = [30, 300, 5000][seed as usize % 3];
            let (mut table, mut model) = (Table::with_key([seed, 5]), BTreeMap::new());
            let mut clones = Vec::new();
            for version in 0..8000 {
                let key = key(random.range(0..keys));
                match random.range(0..5) {
                    0 => {
                        let removed = table.remove_with_key(&key).map(|(key, entry)| (key, entry.version));
                        assert_eq!(removed, model.remove_entry(&key));
                    }
                    1 => assert_eq!(table.get(&key).map(|entry| entry.version), model.get(&key).copied()),
                    _ => match table.get_key_value_mut(&key) {
                        Some((found, entry)) => {
                            assert_eq!(*found, key);
                            assert_eq!(model.insert(key, version), Some(entry.version));
                            entry.version = version;
                        }
                        None => {
                            assert_eq!(model.insert(key.clone(), version), None);
                            table.insert(key, entry(version));
                        }
                    },
                }
                if random.chance(0.002) {
                    clones.push((table.clone(), model.clone()));
                }
            }
            clones.push((table, model));
            for (table, model) in clones {
                assert_eq!(table.len(), model.len());
                let mut expected: Vec<_> = model.into_iter().collect();
                expected.sort_by_key(|(key, _)| Place::of(key.clone()));
                assert!(contents(&table) == expected, "seed {seed}");
            }
        }
    }

    /// Of keys that were chosen for one key of the hash, few share a page under another.
    #[test]
    fn chosen_keys_do_not_collide_under_another_key_of_the_hash() {
        let known = Table::with_key([0, 0]);
        let chosen: Vec<Compact> = (0..4_000_000).map(key).filter(|key| known.hash(key) >> 54 == 0).collect();
        let overflow = |mut table: Table| {
            chosen.iter().for_each(|key| table.insert(key.clone(), entry(1)));
            table.chunks.iter().flat_map(|chunk| chunk.iter()).map(|page| page.more.len()).sum::<usize>()
        };
        assert!(chosen.len() > 3000);
        let (found, other) = (overflow(known), overflow(Table::with_key([1, 0])));
        assert!(found > chosen.len() / 2 && other == 0, "{found} and {other} of {}", chosen.len());
    }

    #[test]
    fn the_directory_stays_in_proportion() {
        let mut table = Table::default();
        for number in 0..20_000 {
            table.insert(key(number), entry(number));
        }
        let pages: usize = table.chunks.iter().map(|chunk| chunk.len()).sum();
        assert!((20_000 / ROOM..3 * 20_000 / ROOM).contains(&pages), "{pages} pages");
        assert!(table.directory.len() <= 16 * pages, "{} entries", table.directory.len());
    }
}
