//! One connection: requests out, replies in.

use std::io::{self, BufReader, ErrorKind, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::value::{self, Value};

/// See the file comment.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    /// Connects to `HOST:PORT`, trying each address that the name has.
    pub(crate) fn open(endpoint: &str, timeout: Duration) -> io::Result<Connection> {
        let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in endpoint.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(timeout))?;
                    stream.set_write_timeout(Some(timeout))?;
                    return Ok(Connection { stream: BufReader::new(stream) });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Whether the other side has neither closed the connection nor sent what nobody asked for.
    pub(crate) fn is_open(&self) -> bool {
        let stream = self.stream.get_ref();
        let peek = || {
            stream.set_nonblocking(true)?;
            let peeked = stream.peek(&mut [0]);
            stream.set_nonblocking(false)?;
            peeked
        };
        self.stream.buffer().is_empty()
            && matches!(peek(), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Sends a request.
    pub(crate) fn send<A: AsRef<[u8]>>(&mut self, words: &[A]) -> io::Result<()> {
        self.stream.get_mut().write_all(&value::request(words))
    }

    /// Waits for a reply.
    pub(crate) fn receive(&mut self) -> io::Result<Value> {
        value::read(&mut self.stream).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                io::Error::new(ErrorKind::TimedOut, "no reply in time")
            }
            ErrorKind::UnexpectedEof => io::Error::new(ErrorKind::UnexpectedEof, "the node closed it"),
            _ => error,
        })
    }
}
