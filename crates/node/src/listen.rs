//! The sockets that a node listens on.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};

use crate::error::NodeError;

/// The two sockets a node listens on.
#[derive(Debug)]
pub struct Listeners {
    /// None for a process that runs a proxy alone.
    pub(crate) peer: Option<TcpListener>,
    pub(crate) resp: TcpListener,
}

impl Listeners {
    /// Binds both addresses, `HOST:PORT` each; port 0 takes any free one.
    pub fn bind(listen_peer: &str, listen_resp: &str) -> Result<Listeners, NodeError> {
        Ok(Listeners { peer: Some(listen("peers", listen_peer)?), ..Listeners::bind_clients(listen_resp)? })
    }

    /// Binds the clients' address only.
    pub fn bind_clients(listen_resp: &str) -> Result<Listeners, NodeError> {
        Ok(Listeners { peer: None, resp: listen("clients", listen_resp)? })
    }

    /// Where peers connect, if they do.
    pub fn peer_address(&self) -> io::Result<Option<SocketAddr>> {
        self.peer.as_ref().map(TcpListener::local_addr).transpose()
    }

    /// Where clients connect.
    pub fn resp_address(&self) -> io::Result<SocketAddr> {
        self.resp.local_addr()
    }
}

/// Binds an address, `HOST:PORT`; port 0 takes any free one. `what` is who will connect, for errors.
pub fn listen(what: &'static str, address: &str) -> Result<TcpListener, NodeError> {
    let failed = |source| NodeError::Listen { what, address: address.to_owned(), source };
    let mut found = address.to_socket_addrs().map_err(|source| NodeError::Resolve {
        what,
        address: address.to_owned(),
        source,
    })?;
    let found = found.next().ok_or_else(|| failed(ErrorKind::AddrNotAvailable.into()))?;
    let bind = || {
        let domain = socket2::Domain::for_address(found);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, Some(socket2::Protocol::TCP))?;
        // A restarted node takes its port back although old connections linger.
        socket.set_reuse_address(true)?;
        socket.bind(&found.into())?;
        socket.listen(1024)?;
        socket.set_nonblocking(true)?;
        Ok(TcpListener::from(socket))
    };
    bind().map_err(failed)
}
