//! What a client presents, and whom it talks to.
//!
//! A client checks that the certificate of whom it reaches was issued by an authority that it trusts, for the host name
//! or address that it dialed.

use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::files::{self, Files, TlsError};
use crate::{Socket, credentials, trouble};

/// A blocking connection.
pub type ClientStream = StreamOwned<ClientConnection, TcpStream>;

/// See the file comment.
#[derive(Clone, Debug)]
pub struct ClientCredentials {
    config: Arc<ClientConfig>,
}

impl ClientCredentials {
    /// Reads and checks the files: the authorities that are trusted, and a certificate with its key, if there is one.
    pub fn load(ca: &Path, own: Option<(&PathBuf, &PathBuf)>) -> Result<ClientCredentials, TlsError> {
        let builder = ClientConfig::builder_with_provider(crate::provider());
        let builder = builder.with_protocol_versions(crate::VERSIONS).expect("the provider speaks TLS 1.3");
        let mut config = match own {
            Some((cert, key)) => {
                let files = Files { ca: ca.to_owned(), cert: cert.clone(), key: key.clone() };
                let material = files.read()?;
                let builder = builder.with_root_certificates(material.roots);
                builder.with_client_cert_resolver(material.own)
            }
            None => builder.with_root_certificates(Arc::new(files::authorities(ca)?)).with_no_client_auth(),
        };
        config.resumption = Resumption::disabled();
        Ok(ClientCredentials { config: Arc::new(config) })
    }

    /// Shakes hands on a new connection to a host, which may take as long as the socket's own time limits say.
    pub fn connect(&self, host: &str, stream: TcpStream) -> io::Result<ClientStream> {
        let session = credentials::client(self.config.clone(), name(host)?);
        let mut stream = StreamOwned::new(session, stream);
        stream.conn.complete_io(&mut stream.sock).map_err(in_words)?;
        Ok(stream)
    }

    /// For an event loop: a connection to a host that has just been dialed.
    pub fn dial(&self, host: &str, stream: mio::net::TcpStream) -> io::Result<Socket> {
        Ok(Socket::client(stream, self.config.clone(), name(host)?))
    }
}

/// An error of a [`ClientStream`], in words.
pub fn in_words(error: io::Error) -> io::Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(inner) => io::Error::new(error.kind(), trouble::explain(inner)),
        None => error,
    }
}

/// A host as certificates have it; an IPv6 address may stand in brackets.
fn name(host: &str) -> io::Result<ServerName<'static>> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(bare.to_owned())
        .map_err(|_| io::Error::other(format!("`{host}` is no host name that a certificate can have")))
}
