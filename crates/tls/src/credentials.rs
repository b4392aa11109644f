//! What a node or a proxy presents to others, and whom it lets in.
//!
//! Peers authenticate each other by certificate in the handshake, so nothing of a peer's is decoded before it is known
//! to be a process of this cluster. Who of them it is, is compared with what it says afterwards
//! ([`Credentials::certifies`]).
//!
//! The files may be replaced while the process runs: [`Credentials::reload`] takes them for connections made from then
//! on. Sessions are not resumed, so a connection never relies on a certificate that was checked before that.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock};

use mio::net::TcpStream;
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName, Error,
    ServerConfig, ServerConnection, SignatureScheme,
};

use crate::files::{Files, Material, TlsError};
use crate::names::{self, Process};
use crate::socket::Socket;

/// Whether clients need a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// Without one they are refused.
    #[default]
    Required,
    /// If they present one it must be right.
    Optional,
    /// They are not asked for one.
    None,
}

impl FromStr for ClientAuth {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "yes" => Ok(ClientAuth::Required),
            "optional" => Ok(ClientAuth::Optional),
            "no" => Ok(ClientAuth::None),
            other => Err(format!("`{other}`: write yes (a client needs a certificate), optional or no")),
        }
    }
}

/// What an operator says of a process's TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// Certificates and key.
    pub files: Files,
    /// `--tls-auth-clients`.
    pub clients: ClientAuth,
}

/// See the file comment. Copies share the certificates in use.
#[derive(Clone, Debug)]
pub struct Credentials {
    options: TlsOptions,
    process: Process,
    cluster: u64,
    current: Arc<RwLock<Arc<Current>>>,
}

/// What connections are made with.
#[derive(Debug)]
struct Current {
    clients: Arc<ServerConfig>,
    peers: Arc<ServerConfig>,
    dial: Arc<ClientConfig>,
    not_after: Option<u64>,
}

impl Credentials {
    /// Reads and checks the files.
    pub fn load(options: TlsOptions, process: Process, cluster: u64) -> Result<Credentials, TlsError> {
        let current = Current::read(&options, process, cluster)?;
        Ok(Credentials { options, process, cluster, current: Arc::new(RwLock::new(Arc::new(current))) })
    }

    /// Reads the files again; if they are wrong, everything stays as it is.
    pub fn reload(&self) -> Result<(), TlsError> {
        let current = Current::read(&self.options, self.process, self.cluster)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(current);
        Ok(())
    }

    /// The file with the certificate, for people.
    pub fn certificate(&self) -> &PathBuf {
        &self.options.files.cert
    }

    /// Until when the certificate is valid, as seconds since 1970; `None` if it cannot be told.
    pub fn not_after(&self) -> Option<u64> {
        self.current().not_after
    }

    /// A client has connected.
    pub fn accept_client(&self, stream: TcpStream) -> Socket {
        Socket::server(stream, self.current().clients.clone())
    }

    /// For clients that another event loop serves.
    pub fn client_config(&self) -> Arc<ServerConfig> {
        self.current().clients.clone()
    }

    /// A process of the cluster has connected, or somebody else.
    pub fn accept_peer(&self, stream: TcpStream) -> Socket {
        Socket::server(stream, self.current().peers.clone())
    }

    /// A connection to a node that this process dials.
    pub fn dial(&self, stream: TcpStream, node: u8) -> Socket {
        Socket::client(stream, self.current().dial.clone(), Process::Node(node).server_name(self.cluster))
    }

    /// Whether the certificate at the other end of a connection is this process's.
    pub fn certifies(&self, socket: &Socket, process: Process) -> bool {
        let name = process.server_name(self.cluster);
        socket.peer_certificate().is_some_and(|certificate| names::is_valid_for(certificate, &name))
    }

    fn current(&self) -> Arc<Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Current {
    fn read(options: &TlsOptions, process: Process, cluster: u64) -> Result<Current, TlsError> {
        let material = options.files.read()?;
        if !material.is_for(process, cluster) {
            let command = match process {
                Process::Node(id) => format!("cert node --node-id {id}"),
                Process::Proxy => "cert proxy".to_owned(),
            };
            let why = format!(
                "it is not for {process} of cluster {cluster:016x}, whose name would be {}: `quorate {command}` issues \
                 one, with the authority of that cluster",
                process.dns_name(cluster)
            );
            return Err(TlsError::file("--tls-cert", &options.files.cert, why));
        }
        let clients = match options.clients {
            ClientAuth::Required => Some(material.verifier(true)),
            ClientAuth::Optional => Some(material.verifier(false)),
            ClientAuth::None => None,
        };
        let peers = PeerVerifier {
            authority: material.verifier(true),
            names: Process::all().map(|process| process.server_name(cluster)).collect(),
        };
        Ok(Current {
            clients: accepting(&material, clients),
            peers: accepting(&material, Some(Arc::new(peers))),
            dial: Arc::new(dialing(&material)),
            not_after: material.not_after(),
        })
    }
}

fn accepting(material: &Material, verifier: Option<Arc<dyn ClientCertVerifier>>) -> Arc<ServerConfig> {
    let builder = ServerConfig::builder_with_provider(crate::provider());
    let builder = builder.with_protocol_versions(crate::VERSIONS).expect("the provider speaks TLS 1.3");
    let builder = match verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(material.own.clone());
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Arc::new(config)
}

fn dialing(material: &Material) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(crate::provider());
    let builder = builder.with_protocol_versions(crate::VERSIONS).expect("the provider speaks TLS 1.3");
    let builder = builder.with_root_certificates(material.roots.clone());
    let mut config = builder.with_client_cert_resolver(material.own.clone());
    config.resumption = Resumption::disabled();
    // The name tells the reader of the network nothing that it needs to know.
    config.enable_sni = false;
    config
}

/// Lets in who has a certificate of the authority that names a process of this cluster.
#[derive(Debug)]
struct PeerVerifier {
    authority: Arc<dyn ClientCertVerifier>,
    names: Vec<ServerName<'static>>,
}

impl ClientCertVerifier for PeerVerifier {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.authority.verify_client_cert(end_entity, intermediates, now)?;
        match self.names.iter().any(|name| names::is_valid_for(end_entity, name)) {
            true => Ok(verified),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.authority.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        self.authority.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        self.authority.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authority.supported_verify_schemes()
    }
}

pub(crate) fn server(config: Arc<ServerConfig>) -> ServerConnection {
    ServerConnection::new(config).expect("the configuration was checked when it was made")
}

pub(crate) fn client(config: Arc<ClientConfig>, name: ServerName<'static>) -> ClientConnection {
    ClientConnection::new(config, name).expect("the configuration was checked when it was made")
}
