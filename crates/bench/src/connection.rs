//! One socket, and what is under way on it.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::SocketAddr;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use quorate_client::Login;
use quorate_tls::{Heard, Socket as Stream};

use crate::options::Tls;
use crate::reply::Scanner;
use crate::work::Task;

/// A request that is not answered yet.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    /// The operation it belongs to.
    pub task: Task,
    /// When its latency began, in nanoseconds: an open loop meant to send it then.
    pub start: u64,
    /// When it was sent.
    pub sent: u64,
    /// It is the second half of a read-modify-write.
    pub second: bool,
}

/// Whether a connection carries requests.
#[derive(Debug)]
pub enum Socket {
    /// The peer has not accepted yet.
    Opening(TcpStream),
    /// It carries requests.
    Up(Stream),
    /// It failed; it is opened again at this time.
    Down(u64),
}

/// One connection of the run, over all its sockets.
#[derive(Debug)]
pub struct Connection {
    /// Its present socket.
    pub socket: Socket,
    /// Which endpoint it uses.
    pub endpoint: usize,
    /// Finds the ends of replies.
    pub scanner: Scanner,
    /// Requests in the order of their replies.
    pub flight: VecDeque<Flight>,
    /// Bytes to write, and how many of them are written.
    pub out: Vec<u8>,
    written: usize,
    /// It stands in the queue of those that can take a request.
    pub queued: bool,
    /// The first reply is that to its authentication.
    authenticating: bool,
}

impl Connection {
    /// Not open yet.
    pub fn new(endpoint: usize, depth: usize) -> Connection {
        Connection {
            socket: Socket::Down(0),
            endpoint,
            scanner: Scanner::new(),
            flight: VecDeque::with_capacity(depth),
            out: Vec::with_capacity(16 << 10),
            written: 0,
            queued: false,
            authenticating: false,
        }
    }

    /// Begins to connect.
    pub fn open(&mut self, address: SocketAddr, registry: &Registry, token: Token) -> io::Result<()> {
        let mut stream = TcpStream::connect(address)?;
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        self.socket = Socket::Opening(stream);
        Ok(())
    }

    /// After a sign of life while opening: true if it is up now.
    pub fn opened(&mut self, tls: Option<&Tls>) -> io::Result<bool> {
        let Socket::Opening(stream) = &self.socket else { return Ok(false) };
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        match stream.peer_addr() {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(false),
            Err(error) => return Err(error),
        }
        stream.set_nodelay(true)?;
        if let Socket::Opening(stream) = std::mem::replace(&mut self.socket, Socket::Down(0)) {
            self.socket = Socket::Up(match tls {
                Some(tls) => tls.credentials.dial(&tls.hosts[self.endpoint], stream)?,
                None => stream.into(),
            });
        }
        Ok(true)
    }

    /// Authenticates the connection, which has carried nothing yet; requests may follow at once.
    pub fn authenticate(&mut self, login: &Login) {
        let Login { user, password } = login;
        let head = format!("*3\r\n$4\r\nAUTH\r\n${}\r\n{user}\r\n${}\r\n", user.len(), password.len());
        self.out.extend_from_slice(head.as_bytes());
        self.out.extend_from_slice(password);
        self.out.extend_from_slice(b"\r\n");
        self.authenticating = true;
    }

    /// Whether the next reply is that to the authentication, which is over then.
    pub fn end_authentication(&mut self) -> bool {
        std::mem::take(&mut self.authenticating)
    }

    /// Closes the socket, to be opened again at a time; gives back what was under way.
    pub fn close(&mut self, again: u64) -> VecDeque<Flight> {
        // Dropping the stream closes it, and closing takes it out of the poll.
        self.socket = Socket::Down(again);
        self.scanner = Scanner::new();
        self.out.clear();
        self.written = 0;
        self.authenticating = false;
        std::mem::take(&mut self.flight)
    }

    /// It can carry requests.
    pub fn is_up(&self) -> bool {
        matches!(self.socket, Socket::Up(_))
    }

    /// Writes what the socket takes.
    pub fn flush(&mut self) -> io::Result<()> {
        let Socket::Up(stream) = &mut self.socket else { return Ok(()) };
        while self.written < self.out.len() {
            match stream.write(&self.out[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(())
    }

    /// Reads once.
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Heard> {
        let Socket::Up(stream) = &mut self.socket else { return Ok(Heard::Nothing) };
        let shaking = stream.is_handshaking();
        let heard = stream.hear(buffer, false)?;
        if shaking && !stream.is_handshaking() {
            // What was to be written has waited for the end of the handshake.
            self.flush()?;
        }
        Ok(heard)
    }
}
