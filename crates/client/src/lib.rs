//! The Rust client: synchronous, small, over RESP. The command line and the tests use it.
//!
//! Any node serves any request, so a client needs no leader: it stays with one endpoint and goes to the next when that
//! fails. What it may repeat, it repeats there: a read, and whatever was never sent. A write whose connection broke
//! after it was sent may have happened or not, or may happen yet: that is [`Error::Unknown`], and the caller's to
//! decide.

mod connection;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod value;

use std::fmt;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use quorate_tls::ClientCredentials;
use thiserror::Error;

use connection::Connection;
pub use value::Value;

/// Whom a client is authenticated as.
#[derive(Clone)]
pub struct Login {
    /// The name that the user has in `ACL`.
    pub user: String,
    /// The password in clear, as it is sent to the node.
    pub password: Bytes,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Why there is no reply.
#[derive(Debug, Error)]
pub enum Error {
    /// Not one endpoint was given.
    #[error("no endpoint to talk to: give at least one HOST:PORT")]
    NoEndpoint,
    /// No endpoint took the request; nothing was executed.
    #[error("no node could answer: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Unreachable(Vec<Attempt>),
    /// The write was sent, and the connection broke before the reply.
    #[error(
        "the outcome is unknown: the connection to {endpoint} broke after the request was sent ({source}); the write \
         may take effect now, later or never: read the key before you try again"
    )]
    Unknown {
        /// Where it was sent.
        endpoint: String,
        /// What broke.
        source: io::Error,
    },
    /// The node answered with an error. Its first word is a code: `ERR`, `WRONGTYPE`, `CLUSTERDOWN`, …
    #[error("{endpoint} answered: {message}")]
    Refused {
        /// Which node.
        endpoint: String,
        /// Its words.
        message: String,
    },
    /// The node's reply is of a kind that the request does not have.
    #[error("{endpoint} answered with {found}: is it a Quorate node?")]
    Unexpected {
        /// Which node.
        endpoint: String,
        /// What came.
        found: String,
    },
}

/// An endpoint that did not do.
#[derive(Debug, Error)]
#[error("{endpoint}: {source}")]
pub struct Attempt {
    /// `HOST:PORT`.
    pub endpoint: String,
    /// Why not.
    pub source: io::Error,
}

/// A client of one cluster. Keeps one connection.
#[derive(Debug)]
pub struct Client {
    endpoints: Vec<String>,
    /// The endpoint in use, or to be tried first.
    current: usize,
    connection: Option<Connection>,
    timeout: Duration,
    tls: Option<ClientCredentials>,
    login: Option<Login>,
}

impl Client {
    /// Connects to the first of the endpoints (`HOST:PORT` each) that can be reached. `timeout` bounds each connection
    /// attempt and each wait for a reply; more than a node's own (5 s) lets its explanation come through.
    pub fn connect<S: Into<String>>(
        endpoints: impl IntoIterator<Item = S>,
        timeout: Duration,
    ) -> Result<Client, Error> {
        Client::connect_with(endpoints, timeout, None)
    }

    /// The same; over TLS, if there are credentials.
    pub fn connect_with<S: Into<String>>(
        endpoints: impl IntoIterator<Item = S>,
        timeout: Duration,
        tls: Option<ClientCredentials>,
    ) -> Result<Client, Error> {
        Client::connect_as(endpoints, timeout, tls, None)
    }

    /// The same; as a user, if there is one. A wrong password is [`Error::Refused`].
    pub fn connect_as<S: Into<String>>(
        endpoints: impl IntoIterator<Item = S>,
        timeout: Duration,
        tls: Option<ClientCredentials>,
        login: Option<Login>,
    ) -> Result<Client, Error> {
        let endpoints: Vec<String> = endpoints.into_iter().map(Into::into).collect();
        if endpoints.is_empty() {
            return Err(Error::NoEndpoint);
        }
        let mut client = Client { endpoints, current: 0, connection: None, timeout, tls, login };
        client.establish(&mut Vec::new())?;
        Ok(client)
    }

    /// The endpoint in use.
    pub fn endpoint(&self) -> &str {
        &self.endpoints[self.current]
    }

    /// The string at a key.
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>, Error> {
        match self.read(&[&b"GET"[..], key.as_ref()])? {
            Value::Bytes(bytes) => Ok(Some(bytes)),
            Value::Nil => Ok(None),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Sets a key to a string.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        match self.command(&[&b"SET"[..], key.as_ref(), value.as_ref()])? {
            Value::Status(word) if word == "OK" => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Removes keys; how many there were.
    pub fn del<K: AsRef<[u8]>>(&mut self, keys: &[K]) -> Result<u64, Error> {
        let words: Vec<&[u8]> = std::iter::once(&b"DEL"[..]).chain(keys.iter().map(K::as_ref)).collect();
        match self.command(&words)? {
            Value::Integer(count) if count >= 0 => Ok(count as u64),
            other => Err(self.unexpected(&other)),
        }
    }

    /// The state of the node in use, as one JSON object.
    pub fn status(&mut self) -> Result<String, Error> {
        match self.read(&["QUORATE", "STATUS"])? {
            Value::Bytes(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Who is in the group as the node in use knows it, as one JSON object.
    pub fn members(&mut self) -> Result<String, Error> {
        match self.read(&["QUORATE", "MEMBER", "LIST"])? {
            Value::Bytes(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Changes who is in the group, in the words of `QUORATE MEMBER`: `ADD 4=HOST:PORT REMOVE 1`. Done when it is in
    /// force. May be asked again, and is, at the next endpoint, if one breaks.
    pub fn change_members<A: AsRef<str>>(&mut self, words: &[A]) -> Result<(), Error> {
        let words: Vec<&str> = ["QUORATE", "MEMBER"].into_iter().chain(words.iter().map(A::as_ref)).collect();
        self.manage(&words)
    }

    /// Lets this node lead, or whichever is furthest; this group, where there are several.
    pub fn transfer(&mut self, to: Option<u8>, group: Option<u8>) -> Result<(), Error> {
        let words = ["QUORATE", "TRANSFER"].map(str::to_owned).into_iter();
        let group = group.map(|group| ["GROUP".to_owned(), group.to_string()]);
        let words: Vec<_> =
            words.chain(to.map(|node| node.to_string())).chain(group.into_iter().flatten()).collect();
        self.manage(&words)
    }

    /// Who serves reads of what, as one JSON object.
    pub fn roster(&mut self) -> Result<String, Error> {
        match self.read(&["QUORATE", "ROSTER", "SHOW"])? {
            Value::Bytes(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Says who serves reads of what, in the words of `QUORATE ROSTER`: `SET RANGE a m 1,2`. Done when it is in force.
    pub fn change_roster<A: AsRef<[u8]>>(&mut self, words: &[A]) -> Result<(), Error> {
        let words: Vec<&[u8]> =
            [&b"QUORATE"[..], b"ROSTER"].into_iter().chain(words.iter().map(A::as_ref)).collect();
        self.manage(&words)
    }

    fn manage<A: AsRef<[u8]>>(&mut self, words: &[A]) -> Result<(), Error> {
        match self.read(words)? {
            Value::Status(word) if word == "OK" => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Any command, sent at most once.
    pub fn command<A: AsRef<[u8]>>(&mut self, words: &[A]) -> Result<Value, Error> {
        let connection = self.establish(&mut Vec::new())?;
        // If sending fails, part of it may have left, and the rest may yet arrive from a buffer.
        match connection.send(words).and_then(|()| connection.receive()) {
            Ok(value) => self.answer(value),
            Err(source) => Err(self.lost(source)),
        }
    }

    /// Commands as one transaction, sent at most once: all are executed at one moment, or none. Gives their replies;
    /// [`Error::Refused`] has the first error among them.
    pub fn transaction<A: AsRef<[u8]>>(&mut self, commands: &[Vec<A>]) -> Result<Vec<Value>, Error> {
        // Without it, or on another connection than it, the commands would be executed one by one.
        self.command(&["MULTI"])?;
        let connection = self.connection.as_mut().expect("it has just answered");
        let mut exchange = || -> io::Result<(Vec<Value>, Value)> {
            commands.iter().try_for_each(|words| connection.send(words))?;
            connection.send(&["EXEC"])?;
            let queued = commands.iter().map(|_| connection.receive()).collect::<io::Result<_>>()?;
            Ok((queued, connection.receive()?))
        };
        let (queued, executed) = exchange().map_err(|source| self.lost(source))?;
        // What is wrong with a command is said where it is queued; EXEC then says only that something was.
        queued.into_iter().try_for_each(|reply| self.answer(reply).map(drop))?;
        match self.answer(executed)? {
            Value::Array(replies) => replies.into_iter().map(|reply| self.answer(reply)).collect(),
            other => Err(self.unexpected(&other)),
        }
    }

    /// A command that may be repeated, because it changes nothing or says what is to be: it is repeated at the next
    /// endpoint if one breaks, or cannot reach a majority.
    pub fn read<A: AsRef<[u8]>>(&mut self, words: &[A]) -> Result<Value, Error> {
        let mut tried = Vec::new();
        loop {
            let connection = self.establish(&mut tried)?;
            let source = match connection.send(words).and_then(|()| connection.receive()) {
                Ok(Value::Error(message)) if message.starts_with("CLUSTERDOWN") => io::Error::other(message),
                Ok(value) => return self.answer(value),
                Err(source) => source,
            };
            tried.push(Attempt { endpoint: self.endpoint().to_owned(), source });
            self.next();
        }
    }

    fn answer(&self, value: Value) -> Result<Value, Error> {
        match value {
            Value::Error(message) => Err(Error::Refused { endpoint: self.endpoint().to_owned(), message }),
            value => Ok(value),
        }
    }

    fn lost(&mut self, source: io::Error) -> Error {
        let endpoint = self.endpoint().to_owned();
        self.next();
        Error::Unknown { endpoint, source }
    }

    fn unexpected(&self, found: &Value) -> Error {
        Error::Unexpected { endpoint: self.endpoint().to_owned(), found: found.kind().to_owned() }
    }

    /// Leaves the endpoint in use for the next one.
    fn next(&mut self) {
        self.connection = None;
        self.current = (self.current + 1) % self.endpoints.len();
    }

    /// A connection that is open as far as this side can tell, so that what is sent on it has a chance. `tried`
    /// collects the endpoints that failed; once all have, so does this.
    fn establish(&mut self, tried: &mut Vec<Attempt>) -> Result<&mut Connection, Error> {
        if self.connection.as_mut().is_some_and(|connection| !connection.is_open()) {
            self.connection = None;
        }
        while self.connection.is_none() {
            if tried.len() >= self.endpoints.len() {
                return Err(Error::Unreachable(std::mem::take(tried)));
            }
            let opened = Connection::open(self.endpoint(), self.timeout, self.tls.as_ref())
                .and_then(|connection| connection.authenticated(self.login.as_ref()));
            match opened {
                Ok(Ok(connection)) => self.connection = Some(connection),
                Ok(Err(message)) => {
                    return Err(Error::Refused { endpoint: self.endpoint().to_owned(), message });
                }
                Err(source) => {
                    tried.push(Attempt { endpoint: self.endpoint().to_owned(), source });
                    self.next();
                }
            }
        }
        Ok(self.connection.as_mut().expect("it was opened above"))
    }
}
