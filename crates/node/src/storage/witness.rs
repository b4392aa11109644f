//! A small file beside the log that says up to which record everything was durable once: evidence that lies elsewhere.
//!
//! Frames of the log are evidence for those before them (`recovery`). But what was written last lies in the same few
//! blocks as the mark behind it: when the log was idle or was closed, damage to its last block takes the records and
//! the mark, and looks like a torn tail. So the same number is written here when a mark is written, and when a log was
//! opened. It is written in place and not synced, since what it says was true before and remains so: if a crash leaves
//! an older number, or none, or the disk is full, there is less evidence, as if there were no such file.
//!
//! ```text
//! "QRTEDUR1"   CRC32C of the rest: u32   identity of the directory: u64   record: u64
//! ```

use tracing::debug;

use super::error::Failure;
use super::files::{Dir, Handle};

/// Its name in the data directory.
pub(super) const NAME: &str = "durable";
const MAGIC: &[u8; 8] = b"QRTEDUR1";
const LEN: usize = MAGIC.len() + 4 + 8 + 8;

/// See the file comment.
pub(super) struct Witness {
    dir: Dir,
    identity: u64,
    /// None until it could be opened, or made.
    file: Option<Handle>,
}

impl Witness {
    /// The last record that was durable, as the file of a directory with this identity says; 0 if it says nothing.
    pub(super) fn read(dir: &Dir, identity: u64) -> Result<u64, Failure> {
        if !dir.list()?.iter().any(|name| name == NAME) {
            return Ok(0);
        }
        Ok(parse(&dir.open(NAME)?.read(0, LEN)?, identity).unwrap_or(0))
    }

    pub(super) fn new(dir: Dir, identity: u64) -> Witness {
        Witness { dir, identity, file: None }
    }

    /// Says that everything up to this record is durable, if the disk takes it.
    pub(super) fn say(&mut self, record: u64) {
        if let Err(error) = self.write(record) {
            debug!("{error}");
        }
    }

    fn write(&mut self, record: u64) -> Result<(), Failure> {
        let file = match &self.file {
            Some(file) => file,
            None => {
                let is_there = self.dir.list()?.iter().any(|name| name == NAME);
                let file = if is_there { self.dir.open(NAME)? } else { self.dir.create(NAME)? };
                self.file.insert(file)
            }
        };
        let rest = [self.identity.to_le_bytes(), record.to_le_bytes()].concat();
        let crc = crc32c::crc32c(&rest).to_le_bytes();
        file.write_slice(&[&MAGIC[..], &crc, &rest].concat(), 0)
    }
}

/// The record, if nothing is wrong with the bytes.
fn parse(bytes: &[u8], identity: u64) -> Option<u64> {
    let (crc, rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk::<4>()?;
    let (said, record) = rest.split_first_chunk::<8>()?;
    let record = u64::from_le_bytes(record.try_into().ok()?);
    let intact = crc32c::crc32c(rest) == u32::from_le_bytes(*crc) && u64::from_le_bytes(*said) == identity;
    intact.then_some(record)
}
