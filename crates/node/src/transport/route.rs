//! How a message gets to a process: on the link to it, or back on the connection that it has made.

use super::frame::Encoded;
use super::link::Link;
use super::queue::Output;
use crate::limits::Limits;

/// See the file comment.
pub(super) enum Route<'a> {
    Link(&'a mut Link),
    /// On the connection that it has made.
    Back(&'a mut Output),
}

impl Route<'_> {
    /// What waits of a message's class takes it within the bound, and any one message when there is none.
    pub(super) fn has_room(&self, message: &Encoded, limits: &Limits) -> bool {
        let waiting = match self {
            Route::Link(link) => link.waiting(message.class()),
            Route::Back(output) => output.len(message.class()),
        };
        waiting == 0 || waiting + message.bytes() <= limits.peer_output
    }
}
