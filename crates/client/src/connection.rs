//! One connection: requests out, replies in.

use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use quorate_tls::ClientCredentials;
use quorate_tls::client::{ClientStream, in_words};

use crate::Login;
use crate::value::{self, Value};

/// See the file comment.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: BufReader<Stream>,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<ClientStream>),
}

impl Stream {
    fn tcp(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => &stream.sock,
        }
    }

    /// Whether nothing has come, and the other side has not finished; the socket does not wait.
    fn is_silent(&mut self) -> bool {
        match self {
            Stream::Plain(stream) => {
                matches!(stream.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
            }
            Stream::Tls(stream) => loop {
                match stream.conn.read_tls(&mut stream.sock) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                    Ok(0) | Err(_) => return false,
                    Ok(_) => {}
                }
                match stream.conn.process_new_packets() {
                    Ok(state) if state.plaintext_bytes_to_read() == 0 && !state.peer_has_closed() => {}
                    _ => return false,
                }
            },
        }
    }
}

impl Stream {
    /// Why the other side has ended the connection, if it has said so before this side noticed.
    fn complaint(&mut self) -> Option<io::Error> {
        let Stream::Tls(stream) = self else { return None };
        loop {
            match stream.conn.read_tls(&mut stream.sock) {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
            if let Err(error) = stream.conn.process_new_packets() {
                return Some(in_words(io::Error::other(error)));
            }
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(buffer),
            Stream::Tls(stream) => stream.read(buffer).map_err(in_words),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes).map_err(in_words),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush().map_err(in_words),
        }
    }
}

impl Connection {
    /// Connects to `HOST:PORT`, trying each address that the name has.
    pub(crate) fn open(
        endpoint: &str,
        timeout: Duration,
        tls: Option<&ClientCredentials>,
    ) -> io::Result<Connection> {
        let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
        let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in endpoint.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(timeout))?;
                    stream.set_write_timeout(Some(timeout))?;
                    let Some(tls) = tls else {
                        return Ok(Connection { stream: BufReader::new(Stream::Plain(stream)) });
                    };
                    let stream = Stream::Tls(Box::new(tls.connect(host, stream)?));
                    let mut connection = Connection { stream: BufReader::new(stream) };
                    // In TLS 1.3 a client learns only now whether its certificate is accepted.
                    let answered = connection.send(&["PING"]).and_then(|()| connection.receive());
                    return match answered {
                        Ok(_) => Ok(connection),
                        Err(error) if error.kind() == ErrorKind::TimedOut => Err(error),
                        Err(error) => Err(connection.stream.get_mut().complaint().unwrap_or(error)),
                    };
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The same connection as a user's; or why the node does not let it be.
    pub(crate) fn authenticated(mut self, login: Option<&Login>) -> io::Result<Result<Connection, String>> {
        let Some(Login { user, password }) = login else { return Ok(Ok(self)) };
        self.send(&[b"AUTH", user.as_bytes(), password])?;
        match self.receive()? {
            // Nobody can tell who the users are: another node may.
            Value::Error(message) if message.starts_with("CLUSTERDOWN") => Err(io::Error::other(message)),
            Value::Error(message) => Ok(Err(message)),
            _ => Ok(Ok(self)),
        }
    }

    /// Whether the other side has neither closed the connection nor sent what nobody asked for.
    pub(crate) fn is_open(&mut self) -> bool {
        if !self.stream.buffer().is_empty() {
            return false;
        }
        let stream = self.stream.get_mut();
        stream.tcp().set_nonblocking(true).is_ok()
            && stream.is_silent()
            && stream.tcp().set_nonblocking(false).is_ok()
    }

    /// Sends a request.
    pub(crate) fn send<A: AsRef<[u8]>>(&mut self, words: &[A]) -> io::Result<()> {
        let stream = self.stream.get_mut();
        stream.write_all(&value::request(words))?;
        stream.flush()
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
