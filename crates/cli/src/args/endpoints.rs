//! Where client commands go, and how.

use std::path::PathBuf;

use super::endpoint;

#[derive(Debug, clap::Args)]
pub struct Endpoints {
    /// Nodes to talk to: any of them serves any request
    #[arg(
        long,
        value_name = "HOST:PORT,…",
        value_delimiter = ',',
        value_parser = endpoint,
        env = "QUORATE_ENDPOINTS",
        default_value = "127.0.0.1:7101,127.0.0.1:7102,127.0.0.1:7103"
    )]
    pub endpoints: Vec<String>,
    #[command(flatten)]
    pub tls: ClientTls,
    #[command(flatten)]
    pub login: ClientLogin,
}

/// Whom a client command is authenticated as.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Users (the password is in QUORATE_PASSWORD, or in a file)")]
pub struct ClientLogin {
    /// The user, where the cluster has users [default: default, if there is a password]
    #[arg(long, value_name = "NAME", env = "QUORATE_USER")]
    pub user: Option<String>,
    /// A file with nothing but the password
    #[arg(long, value_name = "FILE", env = "QUORATE_PASSWORD_FILE")]
    pub password_file: Option<PathBuf>,
    /// Refused: whoever looks at this machine's processes would read it.
    #[arg(long, hide = true, num_args = 0..)]
    pub password: Option<Vec<String>>,
}

/// How a client command is encrypted.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "TLS")]
pub struct ClientTls {
    /// The authority that issued the cluster's certificates, as PEM; without, nothing is encrypted
    #[arg(long, value_name = "FILE", visible_alias = "cacert", env = "QUORATE_TLS_CA")]
    pub tls_ca: Option<PathBuf>,
    /// The client's certificate
    #[arg(
        long,
        value_name = "FILE",
        visible_alias = "cert",
        env = "QUORATE_TLS_CERT",
        requires_all = ["tls_ca", "tls_key"]
    )]
    pub tls_cert: Option<PathBuf>,
    /// The key of that certificate
    #[arg(
        long,
        value_name = "FILE",
        visible_alias = "key",
        env = "QUORATE_TLS_KEY",
        requires_all = ["tls_ca", "tls_cert"]
    )]
    pub tls_key: Option<PathBuf>,
}
