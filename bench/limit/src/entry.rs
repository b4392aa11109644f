//! Entries: length (4 bytes), CRC32C of what follows it (4), index (8), length of the key (2), key, value.

use bytes::Bytes;
use hashbrown::HashMap;

const HEAD: usize = 18;

/// What the log is applied to.
#[derive(Default)]
pub struct Map(HashMap<Bytes, Bytes>);

/// Appends an entry.
pub fn write(to: &mut Vec<u8>, index: u64, key: &[u8], value: &[u8]) {
    let start = to.len();
    to.extend_from_slice(&((HEAD + key.len() + value.len()) as u32).to_le_bytes());
    to.extend_from_slice(&[0; 4]);
    to.extend_from_slice(&index.to_le_bytes());
    to.extend_from_slice(&(key.len() as u16).to_le_bytes());
    to.extend_from_slice(key);
    to.extend_from_slice(value);
    let sum = crc32c::crc32c(&to[start + 8..]);
    to[start + 4..start + 8].copy_from_slice(&sum.to_le_bytes());
}

/// Cuts entries into their indices and bytes, and checks their sums.
pub fn split(entries: &Bytes) -> impl Iterator<Item = (u64, Bytes)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let head = entries.get(at..at + HEAD)?;
        let length = u32::from_le_bytes(head[..4].try_into().expect("4 bytes")) as usize;
        let entry = entries.slice(at..at + length);
        let sum = u32::from_le_bytes(head[4..8].try_into().expect("4 bytes"));
        assert_eq!(crc32c::crc32c(&entry[8..]), sum, "an entry arrives as it was sent");
        at += length;
        Some((u64::from_le_bytes(head[8..16].try_into().expect("8 bytes")), entry))
    })
}

impl Map {
    /// Sets the key of an entry to its value.
    pub fn apply(&mut self, entry: &Bytes) {
        let length = usize::from(u16::from_le_bytes(entry[16..HEAD].try_into().expect("2 bytes")));
        let (key, value) = (&entry[HEAD..HEAD + length], Bytes::copy_from_slice(&entry[HEAD + length..]));
        match self.0.get_mut(key) {
            Some(old) => *old = value,
            None => drop(self.0.insert(Bytes::copy_from_slice(key), value)),
        }
    }
}
