//! The replica's log as the event loop sees it: records in, a count of durable ones out, both counted since the start
//! as machines count them.

use std::rc::Rc;
use std::sync::Arc;

use mio::Waker;
use quorate_core::{Encoder, Machine, Protocol, Random, Saved, Wire};
use tracing::{error, info};

use crate::config::Place;
use crate::error::NodeError;
use crate::metrics::Metrics;
use crate::storage::{self, Log, Options, Record, SEGMENT_BYTES};

/// Room for most records, but those with many or large values.
const USUAL: usize = 512;

/// A log that is open, and what was in it.
pub(crate) struct Opened<R> {
    pub(crate) journal: Journal,
    pub(crate) saved: Saved<R>,
}

/// See the file comment.
pub(crate) struct Journal {
    log: Log,
    metrics: Rc<Metrics>,
    /// The log's number of the last record of earlier starts.
    before: u64,
    /// Bytes of the last snapshot, as last seen: the next one is due when the log has grown as much again.
    last_snapshot: u64,
    /// How much later than at the bound the next one is due, as a factor from 1 to 1.5. Members' logs grow alike:
    /// without it, all would write their snapshots at the same moment.
    patience: f64,
    random: Random,
    /// Whether one is being written.
    snapshotting: bool,
}

impl Journal {
    /// Opens the log, and decodes what the replica had written.
    pub(crate) fn open<P: Protocol>(
        place: &Place<P>,
        unsynced: usize,
        cluster: u64,
        waker: Arc<Waker>,
        metrics: Rc<Metrics>,
        mut random: Random,
    ) -> Result<Opened<<P::Replica as Machine>::Record>, NodeError> {
        let wake = move || {
            if let Err(source) = waker.wake() {
                error!("the event loop cannot be woken: {source}");
            }
        };
        let options = Options {
            directory: place.data_dir.clone(),
            cluster,
            node: place.node,
            protocol: P::NAME,
            durability: place.durability,
            segment_bytes: SEGMENT_BYTES,
            queue_bytes: unsynced,
        };
        let storage::Opened { restarted, snapshot, records, log } = storage::open(&options, Box::new(wake))?;
        let decode =
            |(index, bytes)| Wire::from_bytes(bytes).map_err(|source| NodeError::Record { index, source });
        let records = records.into_iter().enumerate().map(decode).collect::<Result<_, _>>()?;
        metrics.log_unsynced_limit.set(options.queue_bytes as u64);
        let journal = Journal {
            before: log.appended(),
            log,
            metrics,
            last_snapshot: 0,
            patience: 1.0 + random.unit() / 2.0,
            random,
            snapshotting: false,
        };
        Ok(Opened { journal, saved: Saved { restarted, snapshot, records } })
    }

    /// Of a process that keeps nothing.
    pub(crate) fn none(metrics: Rc<Metrics>, random: Random) -> Result<Journal, NodeError> {
        let log = Log::none().map_err(NodeError::LogFailed)?;
        Ok(Journal { log, metrics, before: 0, last_snapshot: 0, patience: 1.0, random, snapshotting: false })
    }

    /// Hands over a batch, of which the last record is number `last`.
    pub(crate) fn append(&mut self, records: &mut Vec<Record>, last: u64) {
        if records.is_empty() {
            return;
        }
        self.metrics.log_records_total.add(records.len() as u64);
        self.metrics.log_bytes_total.add(records.iter().map(|record| record.len() as u64).sum());
        let appended = self.log.append(records.drain(..)) - self.before;
        assert_eq!(appended, last, "the log and the machine count the same records");
    }

    /// The last record that is durable. The error says why none will be any more.
    pub(crate) fn durable(&self) -> Result<u64, NodeError> {
        let durable = self.log.durable().map_err(NodeError::LogFailed)?;
        Ok(durable - self.before)
    }

    /// Whether reading has to wait for the disk.
    pub(crate) fn is_full(&self) -> bool {
        self.log.is_full()
    }

    /// Bytes handed over that are not durable yet.
    pub(crate) fn unsynced(&self) -> usize {
        self.log.unsynced()
    }

    /// Whether everything handed over is durable.
    pub(crate) fn is_synced(&self) -> bool {
        self.durable().is_ok_and(|durable| durable + self.before == self.log.appended())
    }

    /// Begins a snapshot if the log has grown by `after` bytes since the last one, by that one's size, and a bit more.
    /// Everything persisted so far must have been handed over.
    pub(crate) fn snapshot_if_due<R: Wire>(&mut self, after: u64, save: impl FnOnce() -> Option<Saved<R>>) {
        let status = self.log.status();
        self.metrics.log_syncs_total.set(status.syncs);
        self.metrics.log_bytes.set(status.log_bytes);
        self.metrics.log_unsynced_bytes.set(self.log.unsynced() as u64);
        self.metrics.snapshots_total.set(status.checkpoints);
        match status.checkpoint_bytes {
            Some(bytes) => self.last_snapshot = bytes,
            None if self.snapshotting => {
                self.snapshotting = false;
                self.patience = 1.0 + self.random.unit() / 2.0;
                info!("a snapshot is written, and the log before it dropped");
            }
            None if status.log_bytes as f64 > after.max(self.last_snapshot) as f64 * self.patience => {
                let Some(Saved { snapshot, records, .. }) = save() else { return };
                self.snapshotting = true;
                info!(log_bytes = status.log_bytes, records = records.len(), "writing a snapshot");
                self.log.checkpoint(snapshot, records.iter().map(encode));
            }
            None => {}
        }
    }
}

/// A record as it lies in the log; large values in it are not copied.
pub(crate) fn encode(record: &impl Wire) -> Record {
    let mut out = Encoder::with_capacity(USUAL);
    record.encode(&mut out);
    let mut parts = out.into_parts();
    match parts.len() {
        1 => Record::Whole(parts.swap_remove(0)),
        _ => Record::Parts(parts),
    }
}
