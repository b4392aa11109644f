//! Socket options that all connections share.

use std::io;
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
