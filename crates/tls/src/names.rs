//! What a certificate says of its owner.
//!
//! Nodes and proxies know each other by a DNS name in the certificate, which holds the cluster's id: a certificate that
//! the same authority issued for another cluster is good for nothing here. The names are looked up nowhere (`.internal`
//! is reserved for private use). A client's certificate has none of them, so it does not open the peers' port.

use std::fmt;

use rustls::pki_types::{CertificateDer, ServerName};

/// The highest id of a node.
const NODES: u8 = 63;

/// Who a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// A node, by its id.
    Node(u8),
    /// Any process that runs a proxy alone.
    Proxy,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Process::Node(id) => write!(f, "node {id}"),
            Process::Proxy => f.write_str("a proxy"),
        }
    }
}

impl Process {
    /// Everybody who may speak to a node of a cluster.
    pub(crate) fn all() -> impl Iterator<Item = Process> {
        (1..=NODES).map(Process::Node).chain([Process::Proxy])
    }

    /// The DNS name that its certificate has.
    pub fn dns_name(self, cluster: u64) -> String {
        match self {
            Process::Node(id) => format!("node-{id}.{cluster:016x}.quorate.internal"),
            Process::Proxy => format!("proxy.{cluster:016x}.quorate.internal"),
        }
    }

    /// The same, as TLS libraries take it.
    pub(crate) fn server_name(self, cluster: u64) -> ServerName<'static> {
        ServerName::try_from(self.dns_name(cluster)).expect("it is a DNS name")
    }
}

/// Whether a certificate is good for a name. Who issued it must have been checked.
pub(crate) fn is_valid_for(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
    let certificate = webpki::EndEntityCert::try_from(certificate);
    certificate.is_ok_and(|certificate| certificate.verify_is_valid_for_subject_name(name).is_ok())
}
