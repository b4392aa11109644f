//! Flags about TLS, and `quorate cert`.

use std::path::PathBuf;

use clap::Subcommand;
use quorate_tls::ClientAuth;

use super::{cluster_id, node_id};

/// How a process that clients talk to is encrypted.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(
    next_help_heading = "TLS (`quorate cert --help` tells how to get the files; SIGHUP reads them again)"
)]
pub struct ServerTls {
    /// The authority that issued the certificates of this cluster and its clients, as PEM
    #[arg(long, value_name = "FILE", visible_alias = "cacert")]
    pub tls_ca: Option<PathBuf>,
    /// The certificate of this node or proxy
    #[arg(long, value_name = "FILE", visible_alias = "cert")]
    pub tls_cert: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, value_name = "FILE", visible_alias = "key")]
    pub tls_key: Option<PathBuf>,
    /// Whether clients need a certificate: yes, optional or no [default: yes]
    #[arg(long, value_name = "WHETHER")]
    pub tls_auth_clients: Option<ClientAuth>,
    /// Let this process be reached from other machines although whoever connects need not prove who they are
    #[arg(long)]
    pub insecure: bool,
}

#[derive(Debug, Subcommand)]
pub enum Cert {
    /// Make the authority of a cluster
    Init(CertInit),
    /// Issue a node's certificate
    Node(CertNode),
    /// Issue the certificate of hosts that run `quorate proxy`
    Proxy(CertProxy),
    /// Issue a client's certificate
    Client(CertClient),
}

pub const CERT_EXAMPLES: &str = "Example, for three machines:
  quorate cert init --dir ca --initial-cluster 1=10.0.0.1:7201,2=10.0.0.2:7201,3=10.0.0.3:7201
  quorate cert node --dir ca --node-id 1 --host 10.0.0.1 --host db1.example.org     and so on for 2 and 3
  quorate cert client --dir ca shop
Give each machine ca.crt and its own pair, such as node-1.crt and node-1.key; ca.key stays where it is:
  quorate serve --tls-ca ca.crt --tls-cert node-1.crt --tls-key node-1.key …
  redis-cli --tls --cacert ca.crt --cert client-shop.crt --key client-shop.key -h 10.0.0.1 -p 7101
Before a certificate expires, issue another, put it in the place of the old one, and send the node SIGHUP.";

/// Where the authority is.
#[derive(Debug, clap::Args)]
pub struct CertDir {
    /// The directory of the authority; certificates are written there, too
    #[arg(long, value_name = "DIR", default_value = "certs")]
    pub dir: PathBuf,
}

/// How long a certificate is valid.
#[derive(Debug, clap::Args)]
pub struct CertDays {
    /// For how many days the certificate is valid
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36500))]
    pub days: u32,
}

#[derive(Debug, clap::Args)]
pub struct CertInit {
    #[command(flatten)]
    pub dir: CertDir,
    /// The members at the beginning with their peer addresses, as for `quorate serve`
    #[arg(
        long,
        value_name = "1=HOST:PORT,2=…",
        required_unless_present = "cluster_id",
        conflicts_with = "cluster_id"
    )]
    pub initial_cluster: Option<String>,
    /// Instead: which cluster, as `quorate status --json` shows it
    #[arg(long, value_name = "HEX", value_parser = cluster_id)]
    pub cluster_id: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub struct CertNode {
    #[command(flatten)]
    pub dir: CertDir,
    /// The node's id: 1 to 63
    #[arg(long, value_name = "ID", value_parser = node_id)]
    pub node_id: u8,
    /// A host name or address at which clients reach it; may be repeated
    #[arg(long = "host", value_name = "HOST", required = true, value_delimiter = ',')]
    pub hosts: Vec<String>,
    #[command(flatten)]
    pub days: CertDays,
}

#[derive(Debug, clap::Args)]
pub struct CertProxy {
    #[command(flatten)]
    pub dir: CertDir,
    /// A host name or address at which clients reach it; may be repeated
    #[arg(
        long = "host",
        value_name = "HOST",
        value_delimiter = ',',
        default_value = "localhost,127.0.0.1,::1"
    )]
    pub hosts: Vec<String>,
    #[command(flatten)]
    pub days: CertDays,
}

#[derive(Debug, clap::Args)]
pub struct CertClient {
    #[command(flatten)]
    pub dir: CertDir,
    /// What the client is called, in the certificate and in the names of its files
    #[arg(value_name = "NAME", value_parser = client_name)]
    pub name: String,
    #[command(flatten)]
    pub days: CertDays,
}

/// A name that may be a file's.
fn client_name(text: &str) -> Result<String, String> {
    let fits = !text.is_empty()
        && text.len() <= 64
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && !text.starts_with('.');
    match fits {
        true => Ok(text.to_owned()),
        false => Err("write up to 64 letters, digits, `-`, `_` and `.`, such as shop-1".to_owned()),
    }
}
