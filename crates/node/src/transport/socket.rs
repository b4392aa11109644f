//! Socket options and reads that all connections share.

use std::io::{self, ErrorKind, Read};
use std::time::Duration;

use mio::net::TcpStream;
use socket2::{SockRef, TcpKeepalive};

/// What a socket takes that it cannot send yet, in bytes: an urgent frame waits in the kernel behind no more than that.
#[cfg(target_os = "linux")]
const UNSENT: u32 = 128 << 10;

/// No delays, little that waits in the kernel, and an end to connections whose other side has vanished: data that stays
/// unacknowledged for `silence`, or as long without an answer to probes.
pub(crate) fn tune(stream: &TcpStream, silence: Duration) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    let quarter = (silence / 4).max(Duration::from_secs(1));
    let keepalive = TcpKeepalive::new().with_time(quarter * 2).with_interval(quarter).with_retries(2);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    {
        socket.set_tcp_notsent_lowat(UNSENT)?;
        socket.set_tcp_user_timeout(Some(silence))?;
    }
    Ok(())
}

/// What one read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// So many bytes; there may be more.
    Bytes(usize),
    /// So many bytes, and nothing more for now.
    Last(usize),
    /// Nothing for now.
    Nothing,
    /// The other side has finished.
    End,
}

/// Reads once. A buffer that was not filled means that nothing is left, which saves a call: new bytes, or the end,
/// raise a new event. `closed` says that the end has been announced by an event already.
pub(crate) fn hear(stream: &mut impl Read, scratch: &mut [u8], closed: bool) -> io::Result<Heard> {
    loop {
        return match stream.read(scratch) {
            Ok(0) => Ok(Heard::End),
            Ok(count) if count < scratch.len() && !closed => Ok(Heard::Last(count)),
            Ok(count) => Ok(Heard::Bytes(count)),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Heard::Nothing),
            Err(error) => Err(error),
        };
    }
}
