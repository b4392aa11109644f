//! Who is let in. TLS handshakes that are not over are bounded in number and in time, so that those who connect and say
//! nothing keep nobody else out.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::time::Duration;

use mio::net::TcpListener;
use mio::{Interest, Token};
use quorate_core::Time;
use quorate_tls::Credentials;
use quorate_tls::trouble::NOT_TLS;
use slab::Slab;
use tracing::warn;

use super::Clients;
use super::connection::Connection;
use crate::frontend::{Frontend, NodeView, SessionContext};
use crate::limits::ACCEPTS_PER_TURN;
use crate::output::Output;
use crate::transport::socket::tune;

/// While too many handshakes are not over.
const HANDSHAKES_AGAIN: Duration = Duration::from_millis(10);

/// Where clients come in.
pub(crate) struct Door {
    pub(crate) listener: TcpListener,
    /// Of the listener.
    pub(crate) token: Token,
    /// None where clients do not speak TLS.
    pub(crate) tls: Option<Credentials>,
}

/// Connections in the order in which they were accepted; some may have finished since.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    /// When it began, the connection's place and its number.
    begun: VecDeque<(Time, usize, u64)>,
}

impl Handshakes {
    /// When the oldest is to be looked at, if a handshake may take so long.
    pub(super) fn deadline(&self, within: Duration) -> Option<Time> {
        self.begun.front().map(|(began, ..)| *began + within)
    }
}

impl<F: Frontend> Clients<F> {
    /// A turn begins: lets in those who wait.
    pub(crate) fn accept(&mut self, now: Time, node: &dyn NodeView) {
        self.now = now;
        self.end_late_handshakes();
        if !self.acceptor.as_ref().is_some_and(|acceptor| acceptor.is_due(now)) {
            return;
        }
        for _ in 0..ACCEPTS_PER_TURN {
            let has_room = self.tls.is_none() || self.has_room_for_handshake();
            let Some(acceptor) = &mut self.acceptor else { return };
            if !has_room {
                return acceptor.postpone(now + HANDSHAKES_AGAIN);
            }
            let Some((mut stream, from)) = acceptor.accept(now, &mut self.log_rate) else { return };
            if self.connections.len() >= self.limits.clients {
                self.metrics.clients_refused_total.one();
                if let Some(unsaid) = self.log_rate.ask("clients", now) {
                    warn!(unsaid, limit = self.limits.clients, "refused a client: too many are connected");
                }
                if self.tls.is_none() {
                    refuse(&mut stream, self.frontend.refusal());
                }
                continue;
            }
            let index = self.connections.vacant_key();
            let interest = Interest::READABLE | Interest::WRITABLE;
            let token = Token(self.token + index);
            // A client may pause for as long as it likes; only its kernel must stay there.
            let silence = self.limits.silence.max(Duration::from_secs(60));
            if tune(&stream, silence)
                .and_then(|()| self.registry.register(&mut stream, token, interest))
                .is_err()
            {
                // It is gone already.
                continue;
            }
            self.opened += 1;
            let number = self.opened;
            let mut output = Output::default();
            let mut close = false;
            let mut context = SessionContext {
                now,
                output: &mut output,
                close: &mut close,
                asked: &mut self.asked,
                resumed: &mut self.resumed,
                under_way: 0,
                limit: self.limits.client_requests,
                seen: 0,
                node,
            };
            let session = self.frontend.open(number, Some(from), &mut context);
            // There is no input yet that a request could have come from.
            self.asked.clear();
            self.resumed.clear();
            let stream = match &self.tls {
                Some(tls) => tls.accept_client(stream),
                None => stream.into(),
            };
            let mut connection = Connection::new(stream, number, session);
            (connection.output, connection.close) = (output, close);
            self.connections.insert(connection);
            self.metrics.clients_accepted_total.one();
            self.metrics.clients.set(self.connections.len() as u64);
            self.list(index);
            self.mark_dirty(index);
            if self.tls.is_some() {
                self.handshakes.begun.push_back((now, index, number));
            }
        }
    }

    /// Whether one more client may begin its TLS handshake. If too many others have not finished, one that has taken
    /// long is closed; where all are young, clients wait.
    fn has_room_for_handshake(&mut self) -> bool {
        let limit = self.limits.handshakes;
        if self.handshakes.begun.len() < limit {
            return true;
        }
        let connections = &self.connections;
        self.handshakes.begun.retain(|(_, index, number)| is_shaking_hands(connections, *index, *number));
        match self.handshakes.begun.front() {
            Some(_) if self.handshakes.begun.len() < limit => true,
            Some(&(began, index, _)) if self.now.since(began) >= self.limits.gives_way => {
                self.handshakes.begun.pop_front();
                self.turn_away(
                    index,
                    &format!("it and {limit} others have not finished their TLS handshake"),
                );
                true
            }
            Some(_) => false,
            None => true,
        }
    }

    /// Closes the connections that have not finished in time.
    fn end_late_handshakes(&mut self) {
        let within = self.limits.handshake;
        while let Some(&(began, index, number)) = self.handshakes.begun.front() {
            let unfinished = is_shaking_hands(&self.connections, index, number);
            if unfinished && self.now.since(began) < within {
                break;
            }
            self.handshakes.begun.pop_front();
            if unfinished {
                self.turn_away(index, &format!("it did not finish its TLS handshake within {within:?}"));
            }
        }
        self.metrics.tls_handshakes.set(self.handshakes.begun.len() as u64);
    }

    /// Closes a connection whose handshake came to nothing.
    pub(super) fn turn_away(&mut self, index: usize, why: &str) {
        self.metrics.tls_handshakes_refused_total.one();
        if let Some(unsaid) = self.log_rate.ask(why, self.now) {
            let address = self.connections[index].address();
            let address = address.map_or_else(|_| "?".to_owned(), |address| address.to_string());
            warn!(address, unsaid, "closed a client's connection: {why}");
        }
        if why == NOT_TLS {
            refuse(self.connections[index].tcp_mut(), self.frontend.asks_for_tls());
        }
        self.close(index);
    }
}

/// Whether a connection is still there, and its handshake not over.
fn is_shaking_hands<S>(connections: &Slab<Connection<S>>, index: usize, number: u64) -> bool {
    let connection = connections.get(index).filter(|connection| connection.number == number);
    connection.is_some_and(|connection| connection.is_handshaking())
}

/// Tells a client why it is not served. It may be gone already.
fn refuse(stream: &mut mio::net::TcpStream, why: &[u8]) {
    let _ = stream.write(why);
    let _ = stream.shutdown(Shutdown::Write);
    // Closing a socket with unread input would take the reply back.
    let _ = stream.read(&mut [0; 4096]);
}
