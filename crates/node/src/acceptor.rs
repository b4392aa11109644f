//! A listening socket of the event loop: a few who wait are let in each turn, and a system that refuses to accept is
//! asked again a little later.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use quorate_core::Time;
use tracing::warn;

use crate::log_rate::LogRateLimiter;

/// After the system refused to accept (no descriptors, usually).
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// A listening socket, and when to ask it for connections.
pub(crate) struct Acceptor {
    listener: TcpListener,
    /// Who connects, for the log.
    who: &'static str,
    /// None while nobody is waiting.
    at: Option<Time>,
}

impl Acceptor {
    /// Registers the socket with the event loop; fails if the system refuses.
    pub(crate) fn new(
        mut listener: TcpListener,
        token: Token,
        registry: &Registry,
        who: &'static str,
    ) -> io::Result<Acceptor> {
        registry.register(&mut listener, token, Interest::READABLE)?;
        Ok(Acceptor { listener, who, at: None })
    }

    /// Somebody waits to be accepted.
    pub(crate) fn on_ready(&mut self) {
        self.at.get_or_insert(Time::ZERO);
    }

    /// When to accept; none while nobody is waiting.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.at
    }

    /// Whether somebody may be waiting who is to be let in now.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.at.is_some_and(|at| at <= now)
    }

    /// Those who wait go on waiting until then.
    pub(crate) fn postpone(&mut self, until: Time) {
        self.at = Some(until);
    }

    /// The next one who waits; none if nobody does or the system refuses.
    pub(crate) fn accept(
        &mut self,
        now: Time,
        log_rate: &mut LogRateLimiter,
    ) -> Option<(TcpStream, SocketAddr)> {
        loop {
            match self.listener.accept() {
                Ok(accepted) => return Some(accepted),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.at = None,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // That one is gone already.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    if let Some(unsaid) = log_rate.ask("accept", now) {
                        warn!(unsaid, "cannot accept {}, who waits: {error}", self.who);
                    }
                    self.at = Some(now + ACCEPT_AGAIN);
                }
            }
            return None;
        }
    }
}
