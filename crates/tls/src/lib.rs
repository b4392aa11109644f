//! TLS 1.3: the certificates of a cluster, and sockets that use them.
//!
//! | file | what |
//! |---|---|
//! | [`issue`] | a cluster's certificate authority, and the certificates that it issues |
//! | [`names`] | what a certificate says of its owner: which process of which cluster it is |
//! | [`files`] | certificates and keys, read from files and checked |
//! | [`credentials`] | what a node or a proxy presents, and whom it lets in; replaced while it runs |
//! | [`client`] | what a client presents, and whom it talks to |
//! | [`socket`] | a socket of an event loop, plain or TLS |
//! | [`trouble`] | what went wrong, in words |

pub mod client;
pub mod credentials;
pub mod files;
pub mod issue;
pub mod names;
pub mod socket;
pub mod trouble;

pub use client::ClientCredentials;
pub use credentials::{ClientAuth, Credentials, TlsOptions};
pub use files::{Files, TlsError};
pub use names::Process;
pub use socket::{Heard, Socket};

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};

/// The cryptography: ring needs a C compiler and nothing else to be built.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Nothing older is spoken.
const VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];
