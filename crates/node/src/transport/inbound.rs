//! A connection that another process dialed: it greets, is let in or refused, and then sends its messages. Only
//! standalone proxies, which cannot be dialed, are answered on it.

use std::io::Write;
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use quorate_core::{FeatureLevel, ProcessId, Time};
use quorate_tls::{Heard, Socket};

use super::echo::Echo;
use super::frame::{Frame, PROBE, Reader};
use super::handshake::{self, Answer, Hello, name, node_of};
use super::queue::{Output, Wrote};
use crate::limits::{KEEP_IDLE, READ_PER_TURN};
use crate::metrics::Metrics;

/// See the file comment.
#[derive(Debug)]
pub(super) struct Inbound {
    pub(super) stream: Socket,
    pub(super) address: SocketAddr,
    pub(super) stage: Stage,
    input: BytesMut,
    reader: Reader,
    pub(super) output: Output,
    writable: bool,
    /// Events that were not acted on yet.
    pub(super) readable: bool,
    closed: bool,
    /// Whether anything has come since it was asked whether it is there; `None` if it was not asked.
    pub(super) answered: Option<bool>,
    /// Whether it is in the list of those to be read, or to be written.
    pub(super) listed: bool,
    pub(super) dirty: bool,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has not said who it is, and is given up then.
    Stranger { until: Time },
    /// It has said who it is, and waits until it is known whether another process that said the same is gone.
    Claimant { until: Time },
    /// It has said who it is, and waits until that is durable here.
    Learning { until: Time },
    /// It is let in. Its build knows feature levels up to the last one.
    Known { peer: ProcessId, incarnation: u64, knows: FeatureLevel },
    /// It is told why it is not let in, and given up then.
    Leaving { until: Time },
}

/// What reading a connection led to.
pub(super) enum Read {
    /// Nothing more for now.
    Dry,
    /// There is more, for the next turn.
    More,
    /// It said who it is.
    Hello(Box<Hello>),
    /// It is over, and why; `None` if it just ended.
    Over(Option<String>),
}

impl Inbound {
    pub(super) fn new(stream: Socket, address: SocketAddr, until: Time) -> Inbound {
        Inbound {
            stream,
            address,
            stage: Stage::Stranger { until },
            input: BytesMut::new(),
            reader: Reader::default(),
            output: Output::default(),
            writable: true,
            readable: false,
            closed: false,
            answered: None,
            listed: false,
            dirty: false,
        }
    }

    /// A connection to a member that a standalone proxy dialed: it speaks and listens on it. `input` came with the
    /// answer to its greeting.
    pub(super) fn dialed(stream: Socket, address: SocketAddr, stage: Stage, input: BytesMut) -> Inbound {
        Inbound { stage, input, readable: true, ..Inbound::new(stream, address, Time::ZERO) }
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

    /// The echoes that have come in: questions of the peer, and answers to this node's.
    pub(super) fn take_echoes(&mut self) -> Vec<Echo> {
        self.reader.take_echoes()
    }

    pub(super) fn peer(&self) -> Option<ProcessId> {
        match self.stage {
            Stage::Known { peer, .. } => Some(peer),
            Stage::Stranger { .. }
            | Stage::Claimant { .. }
            | Stage::Learning { .. }
            | Stage::Leaving { .. } => None,
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        match self.stage {
            Stage::Stranger { until }
            | Stage::Claimant { until }
            | Stage::Learning { until }
            | Stage::Leaving { until } => Some(until),
            Stage::Known { .. } => None,
        }
    }

    /// Queues the answer to a greeting.
    pub(super) fn answer(&mut self, answer: &Answer) {
        let mut bytes = Vec::new();
        handshake::put(answer, &mut bytes);
        self.output.urgent().push(&Bytes::from(bytes));
    }

    /// Asks the node that dialed whether it is still there, unless it is being asked already. If its kernel has
    /// forgotten the connection, this ends it.
    pub(super) fn probe(&mut self) {
        if self.answered.is_none() {
            self.answered = Some(false);
            self.output.urgent().copy(&[PROBE]);
        }
    }

    /// Reads as much as one turn may, and gives whole frames to `sink` (whose error says why a payload is refused).
    pub(super) fn read(
        &mut self,
        me: ProcessId,
        limit: usize,
        scratch: &mut [u8],
        metrics: &Metrics,
        sink: &mut impl FnMut(Frame) -> Result<(), String>,
    ) -> Read {
        let mut total = 0;
        loop {
            // A greeting may be followed by frames in the same read.
            match self.consume(me, limit, metrics, sink) {
                Ok(None) => {}
                Ok(Some(hello)) => return Read::Hello(Box::new(hello)),
                Err(why) => return Read::Over(Some(why)),
            }
            if total >= READ_PER_TURN {
                return Read::More;
            }
            match self.stream.hear(scratch, self.closed) {
                Ok(Heard::Bytes(count)) => {
                    total += count;
                    self.answered = self.answered.map(|_| true);
                    metrics.peer_bytes_in_total.add(count as u64);
                    self.input.extend_from_slice(&scratch[..count]);
                }
                Ok(Heard::Last(count)) => {
                    self.answered = self.answered.map(|_| true);
                    metrics.peer_bytes_in_total.add(count as u64);
                    self.input.extend_from_slice(&scratch[..count]);
                    self.readable = false;
                    return match self.consume(me, limit, metrics, sink) {
                        Ok(None) => {
                            self.release_input();
                            Read::Dry
                        }
                        Ok(Some(hello)) => Read::Hello(Box::new(hello)),
                        Err(why) => Read::Over(Some(why)),
                    };
                }
                Ok(Heard::Nothing) => {
                    self.readable = false;
                    self.release_input();
                    return Read::Dry;
                }
                Ok(Heard::End) => return Read::Over(None),
                Err(error) => {
                    if self.stream.is_handshaking() {
                        metrics.handshakes_refused_total.one();
                    }
                    return Read::Over(Some(error.to_string()));
                }
            }
        }
    }

    fn consume(
        &mut self,
        me: ProcessId,
        limit: usize,
        metrics: &Metrics,
        sink: &mut impl FnMut(Frame) -> Result<(), String>,
    ) -> Result<Option<Hello>, String> {
        match self.stage {
            Stage::Stranger { .. } => {
                let taken = handshake::take(&mut self.input);
                // Whoever speaks our language, if another dialect of it, is told.
                if let Err(why) = &taken
                    && ![handshake::NOT_OURS, handshake::SPEAKS_TLS].contains(&why.as_str())
                {
                    self.answer(&Answer::Refused(Bytes::copy_from_slice(why.as_bytes())));
                }
                taken
            }
            Stage::Claimant { .. } | Stage::Learning { .. } if self.input.len() > handshake::LIMIT => {
                Err("it sent messages before it was let in".to_owned())
            }
            Stage::Claimant { .. } | Stage::Learning { .. } => Ok(None),
            Stage::Leaving { .. } => {
                self.input.clear();
                Ok(None)
            }
            Stage::Known { peer, .. } => {
                while let Some(frame) = self.reader.take(&mut self.input, limit).map_err(|error| {
                    metrics.messages_refused_total.one();
                    error.to_string()
                })? {
                    check_ends(&frame, peer, me)
                        .and_then(|()| sink(frame))
                        .inspect_err(|_| metrics.messages_refused_total.one())?;
                }
                Ok(None)
            }
        }
    }

    fn release_input(&mut self) {
        if self.input.is_empty() && self.input.capacity() > KEEP_IDLE {
            self.input = BytesMut::new();
        }
    }

    /// Whether there is output left that no event will announce.
    pub(super) fn has_output(&self) -> bool {
        self.writable && !self.output.is_empty()
    }

    /// Writes what waits; false when the connection is over.
    pub(super) fn flush(&mut self, metrics: &Metrics) -> bool {
        if !self.has_output() {
            return true;
        }
        match self.output.write_to(&mut self.stream) {
            Ok((wrote, bytes)) => {
                metrics.peer_bytes_out_total.add(bytes as u64);
                self.writable = wrote != Wrote::Some;
                !(self.output.is_empty() && matches!(self.stage, Stage::Leaving { .. }))
            }
            Err(_) => false,
        }
    }
}

/// A process speaks only for itself, and only to who is here.
fn check_ends(frame: &Frame, peer: ProcessId, me: ProcessId) -> Result<(), String> {
    let own = match node_of(peer) {
        Some(node) => node_of(frame.from) == Some(node),
        None => frame.from == peer,
    };
    if !own {
        return Err(format!("{} spoke for {}", name(peer), name(frame.from)));
    }
    let here = match node_of(me) {
        Some(node) => node_of(frame.to) == Some(node),
        None => frame.to == me,
    };
    if !here {
        return Err(format!("a message for {} came to {}", name(frame.to), name(me)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_core::{NodeId, ProxyId};

    #[test]
    fn who_is_not_let_in_yet_may_send_so_much_at_most() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (until, me, metrics) = (Time::ZERO, NodeId::new(1).unwrap().into(), Metrics::default());
        for stage in [Stage::Claimant { until }, Stage::Learning { until }] {
            let stream = mio::net::TcpStream::from_std(std::net::TcpStream::connect(address).unwrap());
            let mut inbound = Inbound { stage, ..Inbound::new(stream.into(), address, until) };
            let mut consume = |bytes: usize| {
                inbound.input.extend_from_slice(&vec![0; bytes]);
                let sink = &mut |_| panic!("nothing is taken from it");
                inbound.consume(me, 1 << 20, &metrics, sink)
            };
            assert_eq!(consume(handshake::LIMIT), Ok(None));
            assert_eq!(consume(1), Err("it sent messages before it was let in".to_owned()));
        }
    }

    #[test]
    fn what_somebody_sends_who_is_not_let_in_is_not_kept() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stream = mio::net::TcpStream::from_std(std::net::TcpStream::connect(address).unwrap());
        let (until, me, metrics) = (Time::ZERO, NodeId::new(1).unwrap().into(), Metrics::default());
        let stage = Stage::Leaving { until };
        let mut inbound = Inbound { stage, ..Inbound::new(stream.into(), address, until) };
        inbound.input.extend_from_slice(b"more");
        let taken = inbound.consume(me, 1 << 20, &metrics, &mut |_| panic!("nothing is taken from it"));
        assert_eq!((taken, inbound.input.len()), (Ok(None), 0));
    }

    #[test]
    fn a_process_speaks_only_for_itself_and_only_to_who_is_here() {
        let node = |id| NodeId::new(id).unwrap();
        let (r1, r2, p2) =
            (ProcessId::Replica(node(1)), ProcessId::Replica(node(2)), ProxyId::of(node(2)).into());
        let (standalone, other) = (ProxyId(1 << 40).into(), ProxyId(2 << 40).into());
        for (peer, from, to, allowed) in [
            (r2, r2, r1, true),
            (r2, p2, r1, true),
            (r2, r2, ProxyId::of(node(1)).into(), true),
            (r2, r1, r1, false),
            (r2, standalone, r1, false),
            (r2, r2, ProcessId::Replica(node(3)), false),
            (r2, r2, standalone, false),
            (standalone, standalone, r1, true),
            (standalone, other, r1, false),
            (standalone, r2, r1, false),
        ] {
            let frame = Frame { from, to, payload: Bytes::new() };
            assert_eq!(check_ends(&frame, peer, node(1).into()).is_ok(), allowed, "{peer} as {from} to {to}");
        }
    }
}
