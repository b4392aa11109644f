//! SIGTERM and SIGINT ask the node to stop. So does SIGHUP (its terminal has gone), unless its links have the delays of
//! a topology's file: that is then read again, and the links get the rates that it has now.

use std::io;
use std::thread::{self, JoinHandle};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use tracing::error;

use crate::config::TopologyFile;
use crate::node::Stopper;
use crate::transport::delay::Changed;

/// Passes signals on until it is dropped.
pub(crate) struct Watch {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Begins to pass signals on.
    pub(crate) fn new(stopper: Stopper, reread: Option<(TopologyFile, Changed)>) -> io::Result<Watch> {
        let mut signals = Signals::new([SIGTERM, SIGINT])?;
        if reread.is_some() || !hangup_is_ignored() {
            signals.add_signal(SIGHUP)?;
        }
        let handle = signals.handle();
        let thread = thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                match &reread {
                    // The loop looks several times a second.
                    Some((file, changed)) if signal == SIGHUP => match file.read() {
                        Ok(topology) => changed.put(topology),
                        Err(why) => error!("links stay as they are: {why}"),
                    },
                    _ => stopper.stop(),
                }
            }
        })?;
        Ok(Watch { handle, thread: Some(thread) })
    }
}

/// Whether whoever started this process wants it to outlive its terminal, as `nohup` does. A handler would undo that.
/// False where the system does not tell.
pub fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (SIGHUP - 1)) != 0)
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
