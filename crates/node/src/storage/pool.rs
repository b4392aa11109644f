//! Segments that a checkpoint has made superfluous, kept to be filled again: writing zeros into new ones would cost the
//! disk as much as the log itself.
//!
//! What such a segment held stays in it. It cannot be mistaken for a part of the log: the checksum of a frame begins
//! with its segment's index, and that is another one now.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::error::Failure;
use super::files::Dir;
use super::segment::{self, Segment};

/// So many are kept, while there is room.
const KEPT: usize = 8;

/// See the file comment.
pub(super) struct Pool {
    retired: Mutex<Retired>,
}

/// What is kept.
struct Retired {
    /// Their former indices, the oldest first.
    indices: VecDeque<u64>,
    /// So many are kept; further ones are removed.
    most: usize,
}

fn name(index: u64) -> String {
    format!("retired-{index:010}")
}

fn index_of(name: &str) -> Option<u64> {
    let index = name.strip_prefix("retired-")?.parse().ok()?;
    (self::name(index) == name).then_some(index)
}

impl Pool {
    /// With those that an earlier process kept.
    pub(super) fn find(dir: &Dir) -> Result<Pool, Failure> {
        let indices = dir.list()?.iter().filter_map(|name| index_of(name)).collect();
        Ok(Pool { retired: Mutex::new(Retired { indices, most: KEPT }) })
    }

    /// Whether there is room for more than the log needs next.
    pub(super) fn has_room(&self) -> bool {
        self.lock().most > 0
    }

    /// Whether any are kept from now on; if not, those that there are go.
    pub(super) fn keep(&self, dir: &Dir, keep: bool) -> Result<(), Failure> {
        let mut retired = self.lock();
        retired.most = if keep { KEPT } else { 0 };
        while retired.indices.len() > retired.most
            && let Some(index) = retired.indices.pop_front()
        {
            dir.remove(&name(index))?;
        }
        Ok(())
    }

    /// Takes a segment out of the log. As with a removal, it may be back after a crash.
    pub(super) fn retire(&self, dir: &Dir, index: u64) -> Result<(), Failure> {
        let mut retired = self.lock();
        if retired.indices.len() >= retired.most {
            return dir.remove(&segment::name(index));
        }
        dir.rename(&segment::name(index), &name(index))?;
        retired.indices.push_back(index);
        Ok(())
    }

    /// Makes one of them the segment `index`: durable when it returns. `None` if none is large enough.
    pub(super) fn recycle(
        &self,
        dir: &Dir,
        identity: u64,
        index: u64,
        least: u64,
    ) -> Result<Option<Segment>, Failure> {
        loop {
            let Some(old) = self.lock().indices.pop_front() else { return Ok(None) };
            let old = name(old);
            let file = dir.open(&old)?;
            let capacity = file.len()?;
            if capacity < least {
                dir.remove(&old)?;
                continue;
            }
            segment::write_header(&file, identity, index, capacity)?;
            let name = segment::name(index);
            dir.publish(&old, &name)?;
            return Ok(Some(Segment { file: dir.open(&name)?, index, capacity }));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Retired> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
