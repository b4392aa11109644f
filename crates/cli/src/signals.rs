//! Signals that do not simply end the process. Ctrl-C during something that measures: it ends with what it has measured
//! so far; a second one ends the process. A file that may not become larger: its write fails.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;

use crate::failure::Failure;

/// The exit code of a process that the second signal ends, as shells give it for the first.
const KILLED: i32 = 130;

/// Set by the first SIGINT or SIGTERM from now on.
pub fn interrupt_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag unset.
        flag::register_conditional_shutdown(signal, KILLED, stop.clone())
            .and_then(|_| flag::register(signal, stop.clone()))
            .map_err(|error| Failure::failed(format!("cannot handle signals: {error}")))?;
    }
    Ok(stop)
}

/// From now on, a write beyond the limit on the size of files (`ulimit -f`) fails as any other does, so that whoever
/// writes can say so and clean up. Otherwise the system ends the process without a word.
pub fn let_large_writes_fail() {
    // Where there can be no handler, it is as it was.
    let _ = flag::register(SIGXFSZ, Arc::default());
}
