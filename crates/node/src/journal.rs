//! The replica's log as the event loop sees it: batches go in, a count of durable records comes out.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use mio::Waker;
use quorate_core::{Machine, Protocol, Saved};

use crate::config::{Durability, NodeOptions};
use crate::error::NodeError;
use crate::metrics::Metrics;

/// A log that is open, and what was in it.
pub(crate) struct Opened<R> {
    pub(crate) journal: Journal,
    pub(crate) saved: Saved<R>,
}

/// See the file comment.
pub(crate) struct Journal {
    metrics: Rc<Metrics>,
    /// Records handed over and durable, counted since the start as machines count them.
    appended: u64,
    durable: u64,
    /// The last record and the bytes of each batch that is not durable yet.
    under_way: VecDeque<(u64, usize)>,
    unsynced: usize,
}

impl Journal {
    /// Opens the log, and decodes what the replica had written.
    pub(crate) fn open<P: Protocol>(
        options: &NodeOptions,
        _cluster: u64,
        _waker: Arc<Waker>,
        metrics: Rc<Metrics>,
    ) -> Result<Opened<<P::Replica as Machine>::Record>, NodeError> {
        if options.durability != Durability::None {
            return Err(NodeError::LogFailed(
                "storage is not wired in yet: use --durability none".to_owned(),
            ));
        }
        let journal = Journal { metrics, appended: 0, durable: 0, under_way: VecDeque::new(), unsynced: 0 };
        Ok(Opened { journal, saved: Saved::nothing() })
    }

    /// Hands over a batch, of which the last record is number `last`. True if it is durable already.
    pub(crate) fn append(&mut self, records: &mut Vec<Bytes>, last: u64) -> Result<bool, NodeError> {
        if records.is_empty() {
            return Ok(false);
        }
        let bytes = records.iter().map(Bytes::len).sum();
        self.metrics.log_records_total.add(records.len() as u64);
        self.metrics.log_bytes_total.add(bytes as u64);
        self.metrics.log_batches_total.one();
        self.appended = last;
        self.under_way.push_back((last, bytes));
        self.unsynced += bytes;
        self.durable = last;
        records.clear();
        Ok(true)
    }

    /// The last record that is durable. The error says why none will be any more.
    pub(crate) fn durable(&mut self) -> Result<u64, NodeError> {
        while self.under_way.front().is_some_and(|&(last, _)| last <= self.durable) {
            self.unsynced -= self.under_way.pop_front().map_or(0, |(_, bytes)| bytes);
        }
        self.metrics.log_unsynced_bytes.set(self.unsynced as u64);
        Ok(self.durable)
    }

    /// Bytes handed over that are not durable yet.
    pub(crate) fn unsynced(&self) -> usize {
        self.unsynced
    }

    /// Whether everything handed over is durable.
    pub(crate) fn is_synced(&self) -> bool {
        self.durable == self.appended
    }

    /// Begins a snapshot if the log has grown enough since the last.
    pub(crate) fn snapshot_if_due<R>(
        &mut self,
        _after: u64,
        _save: impl FnOnce() -> Saved<R>,
    ) -> Result<(), NodeError> {
        Ok(())
    }
}
