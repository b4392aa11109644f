//! Whole blocks on their way to a file. What is written in whole blocks, at multiples of their size, from memory at
//! such an address, the system can pass to the disk as it is (`O_DIRECT`): no copy in its cache, no page to look after.

use super::error::Failure;
use super::files::Handle;

/// Bytes of a block: no disk and no file system in use asks for more.
pub(super) const BLOCK: usize = 4096;

/// So many bytes are gathered for one write. A multiple of [`BLOCK`].
pub(super) const ROOM: usize = 1 << 20;

/// Memory that begins at a multiple of [`BLOCK`].
pub(super) struct Aligned {
    memory: Box<[u8]>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// Zeros, so many bytes of them.
    pub(super) fn zeros(len: usize) -> Aligned {
        let memory = vec![0; len + BLOCK].into_boxed_slice();
        let start = memory.as_ptr().addr().next_multiple_of(BLOCK) - memory.as_ptr().addr();
        Aligned { memory, start, len }
    }

    /// All of it, to be written at a multiple of [`BLOCK`].
    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

/// The end of a file that grows: the bytes that are not written yet, behind those of the last block that are.
pub(super) struct Blocks {
    memory: Aligned,
    /// So many bytes of it are in use.
    used: usize,
    /// Where these begin in the file: at a multiple of [`BLOCK`].
    at: u64,
}

impl Blocks {
    /// At the beginning of a file.
    pub(super) fn new() -> Blocks {
        Blocks { memory: Aligned::zeros(ROOM), used: 0, at: 0 }
    }

    /// Goes on at the beginning of a block.
    pub(super) fn begin(&mut self, at: u64) {
        assert!(at.is_multiple_of(BLOCK as u64), "{at} is within a block");
        (self.used, self.at) = (0, at);
    }

    /// Goes on anywhere in a file: what is before that in its block stays.
    pub(super) fn resume(&mut self, file: &Handle, offset: u64) -> Result<(), Failure> {
        self.begin(offset / BLOCK as u64 * BLOCK as u64);
        let kept = file.read(self.at, (offset - self.at) as usize)?;
        self.memory.bytes_mut()[..kept.len()].copy_from_slice(&kept);
        self.used = (offset - self.at) as usize;
        Ok(())
    }

    /// Appends bytes; they are in the file after the next [`Blocks::flush`].
    pub(super) fn push(&mut self, file: &Handle, mut bytes: &[u8]) -> Result<(), Failure> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(ROOM - self.used));
            self.memory.bytes_mut()[self.used..self.used + now.len()].copy_from_slice(now);
            self.used += now.len();
            bytes = later;
            if self.used == ROOM {
                file.write_slice(self.memory.bytes(), self.at)?;
                (self.used, self.at) = (0, self.at + ROOM as u64);
            }
        }
        Ok(())
    }

    /// Writes what was appended. Behind it, its last block is filled with zeros; the next write repeats that block.
    pub(super) fn flush(&mut self, file: &Handle) -> Result<(), Failure> {
        let (used, padded) = (self.used, self.used.next_multiple_of(BLOCK));
        let bytes = self.memory.bytes_mut();
        bytes[used..padded].fill(0);
        file.write_slice(&bytes[..padded], self.at)?;
        let whole = used / BLOCK * BLOCK;
        bytes.copy_within(whole..used, 0);
        (self.used, self.at) = (used - whole, self.at + whole as u64);
        Ok(())
    }
}
