//! SIGTERM and SIGINT ask the node to stop.

use std::io;
use std::thread::{self, JoinHandle};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::node::Stopper;

/// Passes signals on until it is dropped.
pub(crate) struct Watch {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Begins to pass signals on.
    pub(crate) fn new(stopper: Stopper) -> io::Result<Watch> {
        let mut signals = Signals::new([SIGTERM, SIGINT])?;
        let handle = signals.handle();
        let thread = thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for _ in signals.forever() {
                stopper.stop();
            }
        })?;
        Ok(Watch { handle, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // It cannot have panicked, and nothing depends on it any more.
            let _ = thread.join();
        }
    }
}
