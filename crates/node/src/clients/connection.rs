//! One client's connection: its buffers, and what may be done with it now.

use std::io::{self, ErrorKind, Write};

use bytes::{Buf, BytesMut};
use quorate_core::Time;
use quorate_tls::{Heard, Socket};

use crate::limits::{KEEP_IDLE, Limits, READ_PER_TURN};
use crate::metrics::Metrics;
use crate::output::Output;

/// See the file comment.
#[derive(Debug)]
pub(super) struct Connection<S> {
    stream: Socket,
    /// Unique in this process.
    pub(super) number: u64,
    pub(super) session: S,
    pub(super) input: BytesMut,
    pub(super) output: Output,
    /// Bytes in its buffers when they were last counted, the session's included.
    pub(super) counted: usize,
    pub(super) under_way: usize,
    /// The last slot that it was told of: its reads show no older state.
    pub(super) seen: u64,
    /// The session wants the connection closed when its output is written.
    pub(super) close: bool,
    /// Something has made room, so the session may go on with what is left of its input.
    pub(super) backlog: bool,
    readable: bool,
    writable: bool,
    /// An event has announced the end already.
    closed: bool,
    /// The client has finished sending; it may still wait for replies.
    ended: bool,
    /// It is told that nothing more comes, and closed then at the latest.
    pub(super) leaving: Option<Time>,
    /// Whether it is in the list of those to be served, or to be written.
    pub(super) listed: bool,
    pub(super) dirty: bool,
}

/// What reading led to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// The input has grown.
    Some,
    /// It has not.
    Nothing,
    /// The connection is broken.
    Broken,
    /// The client does not come through the TLS handshake, and why.
    Refused(String),
}

impl<S> Connection<S> {
    pub(super) fn new(stream: Socket, number: u64, session: S) -> Self {
        Connection {
            stream,
            number,
            session,
            input: BytesMut::new(),
            output: Output::default(),
            counted: 0,
            under_way: 0,
            seen: 0,
            close: false,
            backlog: false,
            readable: true,
            writable: true,
            closed: false,
            ended: false,
            leaving: None,
            listed: false,
            dirty: false,
        }
    }

    /// Notes an event.
    pub(super) fn on_ready(&mut self, readable: bool, writable: bool, closed: bool) {
        self.readable |= readable || closed;
        self.writable |= writable;
        self.closed |= closed;
        if writable {
            // What cannot be sent is noticed when it is read.
            let _ = self.stream.flush();
        }
    }

    /// Whether the session may get more input now. `crowded`: the buffers of all clients are half full.
    fn takes_input(&self, limits: &Limits, crowded: bool) -> bool {
        let room = if crowded { 1 } else { limits.client_output_pause };
        !self.close && self.under_way < limits.client_requests && self.output.len() < room
    }

    /// Whether there is something to serve now.
    pub(super) fn is_ready(&self, limits: &Limits, crowded: bool) -> bool {
        (self.readable && !self.ended || self.backlog) && self.takes_input(limits, crowded)
    }

    /// Reads as much as one turn may, if the session may get more.
    pub(super) fn read(
        &mut self,
        scratch: &mut [u8],
        (limits, crowded): (&Limits, bool),
        metrics: &Metrics,
    ) -> Read {
        let mut total = 0;
        while self.readable && !self.ended && total < READ_PER_TURN && self.takes_input(limits, crowded) {
            let count = match self.stream.hear(scratch, self.closed) {
                Ok(Heard::Bytes(count)) => count,
                Ok(Heard::Last(count)) => {
                    self.readable = false;
                    count
                }
                Ok(Heard::Nothing) => {
                    self.readable = false;
                    0
                }
                Ok(Heard::End) => {
                    self.ended = true;
                    0
                }
                Err(error) if self.stream.is_handshaking() => return Read::Refused(error.to_string()),
                Err(_) => return Read::Broken,
            };
            self.input.extend_from_slice(&scratch[..count]);
            total += count;
        }
        metrics.client_bytes_in_total.add(total as u64);
        if total > 0 { Read::Some } else { Read::Nothing }
    }

    /// What a turn has done for it: bytes that were read, those that were taken off the input, and those that are kept
    /// since to be sent. `before`: its input and what was counted; `at_hand`: its input once it was read.
    pub(super) fn work(&self, (input, counted): (usize, usize), at_hand: usize) -> usize {
        let (read, taken) = (at_hand - input, at_hand.saturating_sub(self.input.len()));
        let answered = (self.counted + taken).saturating_sub(counted + read);
        read + taken + answered
    }

    /// Writes as much as the client takes, but no more than so many bytes; false if the connection is broken.
    pub(super) fn write(&mut self, most: usize, metrics: &Metrics) -> bool {
        let mut left = most;
        while self.writable && left > 0 && !self.output.is_empty() {
            let bytes = self.output.chunk();
            match self.stream.write(&bytes[..bytes.len().min(left)]) {
                Ok(0) => return false,
                Ok(count) => {
                    metrics.client_bytes_out_total.add(count as u64);
                    self.backlog = !self.input.is_empty();
                    self.output.advance(count);
                    left -= count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Whether it may take more of its output at once.
    pub(super) fn takes_output(&self) -> bool {
        self.writable && !self.output.is_empty()
    }

    /// Whether nothing remains to be done for this client.
    pub(super) fn is_over(&self) -> bool {
        self.leaving.is_none()
            && self.output.is_empty()
            && (self.close || self.ended && self.under_way == 0 && !self.backlog)
    }

    /// Whether everything that has come from this client is answered, or will be with what is in its output.
    pub(super) fn is_done(&self) -> bool {
        self.under_way == 0
            && !self.readable
            && self.input.is_empty()
            && !self.backlog
            && self.leaving.is_none()
    }

    /// Lets the last bytes go together with the end of the connection: whoever has read its reply knows that there is
    /// none for its next request. The client may still read and close; false if the connection is broken.
    pub(super) fn leave(&mut self, until: Time, metrics: &Metrics) -> bool {
        // Where it cannot be, the end comes a moment after the bytes.
        #[cfg(target_os = "linux")]
        let _ = socket2::SockRef::from(self.stream.tcp()).set_tcp_cork(true);
        if !self.write(usize::MAX, metrics) {
            return false;
        }
        if self.output.is_empty() {
            self.close = true;
            self.leaving = Some(until);
            return self.stream.shutdown().is_ok();
        }
        true
    }

    /// Gives large buffers back that are empty.
    pub(super) fn release_buffers(&mut self) {
        if self.input.is_empty() && self.input.capacity() > KEEP_IDLE {
            self.input = BytesMut::new();
        }
        self.output.release(KEEP_IDLE);
    }

    /// Whether its TLS handshake is not over yet.
    pub(super) fn is_handshaking(&self) -> bool {
        self.stream.is_handshaking()
    }

    /// Before it is closed: tells the client that this end is meant.
    pub(super) fn say_goodbye(&mut self) {
        self.stream.say_goodbye();
    }

    /// The socket below TLS.
    pub(super) fn tcp_mut(&mut self) -> &mut mio::net::TcpStream {
        self.stream.tcp_mut()
    }

    /// Where the client is.
    pub(super) fn address(&self) -> io::Result<std::net::SocketAddr> {
        self.stream.peer_addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of which the other side is gone already.
    fn connection() -> Connection<()> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        Connection::new(mio::net::TcpStream::from_std(stream).into(), 1, ())
    }

    #[test]
    fn a_client_is_read_while_there_is_room_for_what_comes_of_it() {
        let limits = Limits { client_requests: 2, client_output_pause: 10, ..Limits::default() };
        for (under_way, output, crowded, close, ready) in [
            (1, 9, false, false, true),
            (2, 0, false, false, false),
            (0, 10, false, false, false),
            (0, 0, true, false, true),
            (0, 1, true, false, false),
            (0, 0, false, true, false),
        ] {
            let mut connection = Connection { under_way, close, ..connection() };
            connection.output.extend_from_slice(&vec![0; output]);
            let case = format!("{under_way} under way, {output} bytes, crowded: {crowded}, close: {close}");
            assert_eq!(connection.is_ready(&limits, crowded), ready, "{case}");
        }
    }

    #[test]
    fn a_client_that_has_ended_is_over_when_it_has_all_its_replies() {
        for (ended, under_way, backlog, output, close, over) in [
            (false, 0, false, "", false, false),
            (true, 0, false, "", false, true),
            (true, 1, false, "", false, false),
            (true, 0, true, "", false, false),
            (true, 0, false, "reply", false, false),
            (false, 1, false, "", true, true),
            (false, 0, false, "reply", true, false),
        ] {
            let mut connection = Connection { ended, under_way, backlog, close, ..connection() };
            connection.output.extend_from_slice(output.as_bytes());
            let case = format!("ended: {ended}, {under_way} under way, {output}, close: {close}");
            assert_eq!(connection.is_over(), over, "{case}");
        }
    }

    #[test]
    fn a_client_is_let_go_only_when_nothing_of_it_is_unanswered() {
        for (under_way, readable, input, backlog, done) in [
            (0, false, "", false, true),
            (1, false, "", false, false),
            (0, true, "", false, false),
            (0, false, "GET", false, false),
            (0, false, "", true, false),
        ] {
            let mut connection = Connection { under_way, readable, backlog, ..connection() };
            connection.input.extend_from_slice(input.as_bytes());
            assert_eq!(connection.is_done(), done, "{under_way} under way, {readable}, {input}, {backlog}");
        }
    }
}
