//! What the service manager that has started this process is told.

pub(crate) use sd_notify::NotifyState;
use tracing::warn;

/// Tells systemd, if it has started this process and wants to know (`Type=notify`): the log is read and clients are
/// taken, or that is over. Whether a majority is there is not its concern: nodes are started one after the other.
pub(crate) fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        warn!("the service manager cannot be told: {error}");
    }
}
