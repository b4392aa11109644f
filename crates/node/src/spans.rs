//! Requests on their way to what exports them as spans. The event loop puts them in a bounded queue and never waits:
//! what finds it full is dropped and counted. Whoever exports them has a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use crate::slow::SlowRequest;

/// Requests that may wait to be exported.
const QUEUED: usize = 2048;

/// What became of the requests that were to be exported.
#[derive(Debug, Default)]
pub struct SpanCounts {
    exported: AtomicU64,
    dropped: AtomicU64,
}

impl SpanCounts {
    /// So many were taken by the collector.
    pub fn add_exported(&self, requests: usize) {
        self.exported.fetch_add(requests as u64, Ordering::Relaxed);
    }

    /// So many are lost.
    pub fn add_dropped(&self, requests: usize) {
        self.dropped.fetch_add(requests as u64, Ordering::Relaxed);
    }

    pub(crate) fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// The event loop's end of the queue.
#[derive(Debug)]
pub struct SpanQueue {
    sender: SyncSender<SlowRequest>,
    /// The part of all requests that are exported though they are not slow.
    pub(crate) sampled: f64,
    pub(crate) counts: Arc<SpanCounts>,
}

impl SpanQueue {
    /// A queue of requests: those that are slow, and of the others this part, from 0 to 1.
    pub fn new(sampled: f64) -> (SpanQueue, Receiver<SlowRequest>, Arc<SpanCounts>) {
        let (sender, receiver) = sync_channel(QUEUED);
        let counts = Arc::<SpanCounts>::default();
        (SpanQueue { sender, sampled, counts: counts.clone() }, receiver, counts)
    }

    pub(crate) fn offer(&self, request: SlowRequest) {
        match self.sender.try_send(request) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.counts.add_dropped(1),
        }
    }
}
