//! Host names to addresses, beside the event loop: a lookup may take seconds.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use mio::Waker;
use quorate_core::NodeId;

/// Looks names up, one thread per lookup; the caller has at most one under way per peer.
#[derive(Debug)]
pub(super) struct Resolver {
    waker: Arc<Waker>,
    sender: Sender<Found>,
    receiver: Receiver<Found>,
}

/// What a lookup found, and for whom.
pub(super) type Found = (NodeId, io::Result<Vec<SocketAddr>>);

impl Resolver {
    pub(super) fn new(waker: Arc<Waker>) -> Resolver {
        let (sender, receiver) = channel();
        Resolver { waker, sender, receiver }
    }

    /// Begins a lookup of `HOST:PORT`; the answer comes out of [`take`](Self::take) after the waker fired.
    pub(super) fn begin(&self, node: NodeId, address: String) -> io::Result<()> {
        let (sender, waker) = (self.sender.clone(), self.waker.clone());
        thread::Builder::new().name("resolve".to_owned()).spawn(move || {
            let found = address.to_socket_addrs().map(Iterator::collect);
            // Both fail only when the loop is gone.
            if sender.send((node, found)).is_ok() {
                let _ = waker.wake();
            }
        })?;
        Ok(())
    }

    /// The next answer that has come.
    pub(super) fn take(&self) -> Option<Found> {
        self.receiver.try_recv().ok()
    }
}
