//! Certificates and keys, read from PEM files and checked: whatever is wrong with them is said before they are used.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, Error, InconsistentKeys, RootCertStore};
use thiserror::Error as Thiserror;

use crate::{names, trouble};

/// Far behind the end of any certificate: 9999-12-31.
const FAR: u64 = 253_402_300_799;

/// Where certificates and the key are, as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// `--tls-ca`: the authorities that are trusted.
    pub ca: PathBuf,
    /// `--tls-cert`: the certificate that is presented, and any between it and an authority.
    pub cert: PathBuf,
    /// `--tls-key`: its private key.
    pub key: PathBuf,
}

/// What is wrong with certificates or keys, and what would be right.
#[derive(Debug, Thiserror)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum TlsError {
    #[error("{flag} {}: {why}", path.display())]
    File { flag: &'static str, path: PathBuf, why: String },
    #[error(
        "--tls-key {} is not the key of the certificate in --tls-cert {}: give the pair that was issued together",
        key.display(), cert.display()
    )]
    Mismatch { cert: PathBuf, key: PathBuf },
    #[error("cannot issue a certificate: {0}")]
    Issue(String),
}

impl TlsError {
    pub(crate) fn file(flag: &'static str, path: &Path, why: impl Into<String>) -> TlsError {
        TlsError::File { flag, path: path.to_owned(), why: why.into() }
    }
}

/// What the files hold.
#[derive(Debug)]
pub(crate) struct Material {
    pub(crate) roots: Arc<RootCertStore>,
    pub(crate) own: Arc<SingleCertAndKey>,
    chain: Vec<CertificateDer<'static>>,
}

impl Files {
    /// Reads them, and checks that the key is the certificate's, and that those who trust the same authorities take it
    /// now.
    pub(crate) fn read(&self) -> Result<Material, TlsError> {
        let roots = Arc::new(authorities(&self.ca)?);
        let (chain, own) = pair(&self.cert, &self.key)?;
        let material = Material { roots, own, chain };
        material.verify(UnixTime::now()).map_err(|error| {
            let why = match &error {
                Error::InvalidCertificate(
                    CertificateError::UnknownIssuer | CertificateError::BadSignature,
                ) => {
                    format!(
                        "it was not issued by an authority in --tls-ca {}: give the files of one cluster",
                        self.ca.display()
                    )
                }
                Error::InvalidCertificate(error) => format!("it {}", trouble::certificate(error)),
                other => other.to_string(),
            };
            TlsError::file("--tls-cert", &self.cert, why)
        })?;
        Ok(material)
    }
}

impl Material {
    /// What others do with the certificate.
    fn verify(&self, now: UnixTime) -> Result<(), Error> {
        let verifier = self.verifier(true);
        verifier.verify_client_cert(&self.chain[0], &self.chain[1..], now).map(drop)
    }

    /// Checks clients' certificates, which they must have if `required`.
    pub(crate) fn verifier(&self, required: bool) -> Arc<dyn ClientCertVerifier> {
        let builder = WebPkiClientVerifier::builder_with_provider(self.roots.clone(), crate::provider());
        let builder = if required { builder } else { builder.allow_unauthenticated() };
        builder.build().expect("there are authorities")
    }

    /// Whether the certificate is for this process.
    pub(crate) fn is_for(&self, process: names::Process, cluster: u64) -> bool {
        names::is_valid_for(&self.chain[0], &process.server_name(cluster))
    }

    /// Until when it is valid, as seconds since 1970; `None` if it cannot be told.
    pub(crate) fn not_after(&self) -> Option<u64> {
        match self.verify(UnixTime::since_unix_epoch(Duration::from_secs(FAR))) {
            Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
                Some(not_after.as_secs())
            }
            _ => None,
        }
    }
}

/// The authorities in a file.
pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("--tls-ca", path)? {
        let added = roots.add(certificate);
        added.map_err(|error| {
            TlsError::file("--tls-ca", path, format!("a certificate in it cannot be used: {error}"))
        })?;
    }
    Ok(roots)
}

/// A certificate with those between it and an authority, and its key.
pub(crate) fn pair(
    cert: &Path,
    key: &Path,
) -> Result<(Vec<CertificateDer<'static>>, Arc<SingleCertAndKey>), TlsError> {
    let chain = certificates("--tls-cert", cert)?;
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| TlsError::file("--tls-key", key, unreadable(&error, "no private key")))?;
    let certified = CertifiedKey::from_der(chain.clone(), private, &crate::provider());
    let certified = certified.map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            TlsError::Mismatch { cert: cert.to_owned(), key: key.to_owned() }
        }
        Error::InvalidCertificate(error) => {
            TlsError::file("--tls-cert", cert, format!("it {}", trouble::certificate(&error)))
        }
        error => TlsError::file("--tls-key", key, format!("the key cannot be used: {error}")),
    })?;
    Ok((chain, Arc::new(certified.into())))
}

/// The certificates in a file: one at least.
fn certificates(flag: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match found {
        Ok(certificates) if certificates.is_empty() => {
            Err(TlsError::file(flag, path, unreadable(&PemError::NoItemsFound, "no certificate")))
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(TlsError::file(flag, path, unreadable(&error, "no certificate"))),
    }
}

fn unreadable(error: &PemError, nothing: &str) -> String {
    match error {
        PemError::Io(error) => format!("cannot be read: {error}"),
        PemError::NoItemsFound => {
            format!("there is {nothing} in it: a PEM file is needed, as `quorate cert` writes it")
        }
        other => format!("it is no PEM file that can be read: {other}"),
    }
}
