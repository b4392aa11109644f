//! A socket of an event loop, plain or TLS, that is read and written without waiting.
//!
//! **TLS is hidden from who writes.** What is encrypted once cannot be taken back, so bytes that were encrypted, but
//! that the system has not taken whole yet, are reported as not written: the caller keeps them, and offers the same
//! bytes again, which is what it does with a plain socket that takes nothing. Nothing that is queued is therefore
//! forgotten in here, and an empty queue of the caller's means that the system has everything.
//!
//! **The handshake is hidden, too**: until it is over, there is nothing to be read and nothing can be written.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::ops::DerefMut;
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ConnectionCommon, ServerConfig, SideData};

use crate::{credentials, trouble};

/// What may lie in a TLS session that was read and not decrypted, and decrypted and not taken: a record of each.
const IN_SESSION: usize = 40 << 10;

/// The shortest buffer that a socket may be read into, in bytes.
pub const READ_BUFFER: usize = 128 << 10;

/// What one read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// So many bytes; there may be more.
    Bytes(usize),
    /// So many bytes, and nothing more for now.
    Last(usize),
    /// Nothing for now.
    Nothing,
    /// The other side has finished.
    End,
}

/// See the file comment.
#[derive(Debug)]
pub enum Socket {
    /// Bytes as they are.
    Plain(TcpStream),
    /// Encrypted; boxed, since it is large and plain sockets are many.
    Tls(Box<TlsStream>),
}

/// A TLS session over a socket.
#[derive(Debug)]
pub struct TlsStream {
    stream: TcpStream,
    session: Session,
    /// Bytes that were encrypted and not reported as written yet.
    owed: usize,
}

#[derive(Debug)]
enum Session {
    Server(rustls::ServerConnection),
    Client(rustls::ClientConnection),
}

/// Does the same with either kind of session.
macro_rules! either {
    ($session:expr, $name:ident => $do:expr) => {
        match $session {
            Session::Server($name) => $do,
            Session::Client($name) => $do,
        }
    };
}

impl Socket {
    /// Accepted by a server with TLS.
    pub(crate) fn server(stream: TcpStream, config: Arc<ServerConfig>) -> Socket {
        Socket::tls(stream, Session::Server(credentials::server(config)))
    }

    /// Dialed by a client with TLS, who expects a certificate of this name.
    pub(crate) fn client(stream: TcpStream, config: Arc<ClientConfig>, name: ServerName<'static>) -> Socket {
        Socket::tls(stream, Session::Client(credentials::client(config, name)))
    }

    fn tls(stream: TcpStream, session: Session) -> Socket {
        Socket::Tls(Box::new(TlsStream { stream, session, owed: 0 }))
    }

    /// What lies below, for options and registration.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Socket::Plain(stream) => stream,
            Socket::Tls(tls) => &tls.stream,
        }
    }

    /// The same, to be registered.
    pub fn tcp_mut(&mut self) -> &mut TcpStream {
        match self {
            Socket::Plain(stream) => stream,
            Socket::Tls(tls) => &mut tls.stream,
        }
    }

    /// Where the other side is.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.tcp().peer_addr()
    }

    /// Whether the handshake is not over yet.
    pub fn is_handshaking(&self) -> bool {
        match self {
            Socket::Plain(_) => false,
            Socket::Tls(tls) => either!(&tls.session, session => session.is_handshaking()),
        }
    }

    /// Whether bytes are encrypted.
    pub fn is_tls(&self) -> bool {
        matches!(self, Socket::Tls(_))
    }

    /// The certificate that the other side has presented, checked; `None` if it has not, or need not.
    pub(crate) fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        match self {
            Socket::Plain(_) => None,
            Socket::Tls(tls) => either!(&tls.session, session => session.peer_certificates())?.first(),
        }
    }

    /// Reads once, into a buffer of at least [`READ_BUFFER`] bytes. A buffer that was not filled means that nothing is
    /// left, which saves a call: new bytes, or the end, raise a new event. `closed` says that the end has been
    /// announced by an event already.
    pub fn hear(&mut self, scratch: &mut [u8], closed: bool) -> io::Result<Heard> {
        match self {
            Socket::Plain(stream) => loop {
                return match stream.read(scratch) {
                    Ok(0) => Ok(Heard::End),
                    Ok(count) if count < scratch.len() && !closed => Ok(Heard::Last(count)),
                    Ok(count) => Ok(Heard::Bytes(count)),
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Heard::Nothing),
                    Err(error) => Err(error),
                };
            },
            Socket::Tls(tls) => {
                let TlsStream { stream, session, .. } = &mut **tls;
                either!(session, session => hear(stream, session, scratch, closed))
            }
        }
    }

    /// Says that nothing more comes. What was written before has left.
    pub fn shutdown(&mut self) -> io::Result<()> {
        self.say_goodbye();
        self.tcp().shutdown(Shutdown::Write)
    }

    /// Before the socket is closed: lets the other side know that this end is meant. It may be gone already.
    pub fn say_goodbye(&mut self) {
        if let Socket::Tls(tls) = self {
            let TlsStream { stream, session, .. } = &mut **tls;
            either!(session, session => {
                session.send_close_notify();
                let _ = send(stream, session);
            });
        }
    }
}

/// Reads and decrypts: the second half of the buffer takes what comes in, the first what it means.
fn hear<C, D>(stream: &mut TcpStream, session: &mut C, scratch: &mut [u8], closed: bool) -> io::Result<Heard>
where
    C: DerefMut<Target = ConnectionCommon<D>>,
    D: SideData,
{
    assert!(scratch.len() >= READ_BUFFER, "a buffer of {} bytes is too short", scratch.len());
    let (clear, cipher) = scratch.split_at_mut(scratch.len() / 2 + IN_SESSION / 2);
    // Something may have come in while the handshake was going on.
    let mut filled = take(session, clear)?.unwrap_or(0);
    loop {
        let count = match stream.read(cipher) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock && filled > 0 => {
                return Ok(Heard::Last(filled));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Heard::Nothing),
            Err(error) => return Err(error),
        };
        let mut rest = &cipher[..count];
        // An end without a farewell is an end, too: requests and messages say themselves where they end.
        let mut ended = count == 0;
        while !rest.is_empty() && !ended {
            session.read_tls(&mut rest)?;
            let processed = session.process_new_packets();
            if let Err(error) = processed {
                // It is told why, if it still listens. Whoever does not speak TLS would not understand.
                if !session.is_handshaking() || is_record(cipher[0]) {
                    let _ = send(stream, session);
                }
                return Err(trouble::broken(&error));
            }
            match take(session, &mut clear[filled..])? {
                Some(count) => filled += count,
                None => ended = true,
            }
        }
        send(stream, session)?;
        if ended {
            return Ok(if filled > 0 { Heard::Bytes(filled) } else { Heard::End });
        }
        match count < cipher.len() && !closed {
            true if filled > 0 => return Ok(Heard::Last(filled)),
            true => return Ok(Heard::Nothing),
            false if filled > 0 => return Ok(Heard::Bytes(filled)),
            false => {}
        }
    }
}

/// Whether a record of TLS may begin with this: RFC 8446, section 5.1.
fn is_record(byte: u8) -> bool {
    (20..=24).contains(&byte)
}

/// Takes what is decrypted; `None` at the end.
fn take<C, D>(session: &mut C, mut room: &mut [u8]) -> io::Result<Option<usize>>
where
    C: DerefMut<Target = ConnectionCommon<D>>,
    D: SideData,
{
    let mut taken = 0;
    loop {
        assert!(
            !room.is_empty(),
            "what is decrypted is no longer than what came in, with what lay in the session"
        );
        match session.reader().read(room) {
            Ok(0) if taken == 0 => return Ok(None),
            Ok(0) => return Ok(Some(taken)),
            Ok(count) => {
                taken += count;
                room = &mut room[count..];
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Some(taken)),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(Some(taken)),
            Err(error) => return Err(error),
        }
    }
}

/// Sends what is encrypted, as far as the system takes it; true if that was all.
fn send<C, D>(stream: &mut TcpStream, session: &mut C) -> io::Result<bool>
where
    C: DerefMut<Target = ConnectionCommon<D>>,
    D: SideData,
{
    while session.wants_write() {
        match session.write_tls(stream) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Goes on with the handshake; an error of kind `WouldBlock` if it is not over yet.
fn shake_hands<C, D>(stream: &mut TcpStream, session: &mut C) -> io::Result<()>
where
    C: DerefMut<Target = ConnectionCommon<D>>,
    D: SideData,
{
    while session.is_handshaking() {
        if !send(stream, session)? {
            return Err(ErrorKind::WouldBlock.into());
        }
        match session.read_tls(stream) {
            Ok(0) => {
                let why = "it ended the connection in the TLS handshake: does it speak TLS?";
                return Err(io::Error::new(ErrorKind::UnexpectedEof, why));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if let Err(error) = session.process_new_packets() {
            let _ = send(stream, session);
            return Err(trouble::broken(&error));
        }
    }
    Ok(())
}

/// Encrypts as much as fits and sends it; see the file comment for what is reported as written.
fn write<C, D>(
    stream: &mut TcpStream,
    session: &mut C,
    owed: &mut usize,
    pieces: &[IoSlice<'_>],
) -> io::Result<usize>
where
    C: DerefMut<Target = ConnectionCommon<D>>,
    D: SideData,
{
    shake_hands(stream, session)?;
    if !send(stream, session)? {
        return Err(ErrorKind::WouldBlock.into());
    }
    let offered = pieces.iter().map(|piece| piece.len()).sum::<usize>();
    if *owed == 0 {
        if offered == 0 {
            return Ok(0);
        }
        *owed = session.writer().write_vectored(pieces)?;
        if !send(stream, session)? {
            return Err(ErrorKind::WouldBlock.into());
        }
    }
    assert!(*owed <= offered, "what was offered and not taken is offered again");
    Ok(std::mem::take(owed))
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Plain(stream) => stream.write(bytes),
            Socket::Tls(_) => self.write_vectored(&[IoSlice::new(bytes)]),
        }
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Plain(stream) => stream.write_vectored(pieces),
            Socket::Tls(tls) => {
                let TlsStream { stream, session, owed } = &mut **tls;
                either!(session, session => write(stream, session, owed, pieces))
            }
        }
    }

    /// Sends what the handshake has left, if the socket can be written again. An error is seen by who reads.
    fn flush(&mut self) -> io::Result<()> {
        if let Socket::Tls(tls) = self {
            let TlsStream { stream, session, .. } = &mut **tls;
            either!(session, session => send(stream, session))?;
        }
        Ok(())
    }
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Socket {
        Socket::Plain(stream)
    }
}
