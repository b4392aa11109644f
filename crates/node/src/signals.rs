//! SIGTERM and SIGINT ask the node to stop. So does SIGHUP (its terminal has gone), unless there are files to be read
//! again: certificates and their key, which connections made from then on use, and a topology's, whose rates the links
//! get.

use std::io;
use std::thread::{self, JoinHandle};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use tracing::{error, info};

use crate::clock;
use crate::config::Reread;
use crate::node::Stopper;

/// Passes signals on until it is dropped.
pub(crate) struct Watch {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Begins to pass signals on.
    pub(crate) fn new(stopper: Stopper, reread: Reread) -> io::Result<Watch> {
        let mut signals = Signals::new([SIGTERM, SIGINT])?;
        let rereads = reread.topology.is_some() || reread.tls.is_some();
        if rereads || !hangup_is_ignored() {
            signals.add_signal(SIGHUP)?;
        }
        let handle = signals.handle();
        let thread = thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                match signal == SIGHUP && rereads {
                    true => read_again(&reread),
                    false => stopper.stop(),
                }
            }
        })?;
        Ok(Watch { handle, thread: Some(thread) })
    }
}

fn read_again(files: &Reread) {
    if let Some((file, changed)) = &files.topology {
        match file.read() {
            // The loop looks several times a second.
            Ok(topology) => changed.put(topology),
            Err(why) => error!("links stay as they are: {why}"),
        }
    }
    if let Some(tls) = &files.tls {
        match tls.reload() {
            Ok(()) => info!(
                certificate = %tls.certificate().display(),
                hours = tls.not_after().map(clock::hours_until),
                "connections are made with the certificates as they are now"
            ),
            Err(why) => error!("connections are made with the certificates as they were: {why}"),
        }
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
