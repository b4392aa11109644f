//! How a message gets to a process: on the link to it, or back on the connection that it has made.

use super::frame::Encoded;
use super::link::Link;
use super::queue::SendQueue;
use crate::limits::Limits;

/// See the file comment.
pub(super) enum Route<'a> {
    Link(&'a mut Link),
    /// On the connection that it has made.
    Back(&'a mut SendQueue),
}

impl Route<'_> {
    /// What waits takes a message within its bound, and any one message when it is empty.
    pub(super) fn has_room(&self, message: &Encoded, limits: &Limits) -> bool {
        let waiting = match self {
            Route::Link(link) => link.waiting(),
            Route::Back(queue) => queue.len(),
        };
        waiting == 0 || waiting + message.bytes() <= limits.peer_output
    }
}
