//! A cluster's certificate authority, and the certificates that it issues.
//!
//! One authority per cluster: whom it has issued a certificate, that cluster lets in. The authority's key is needed to
//! issue certificates and for nothing else; nodes and clients do not have it.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::files::TlsError;
use crate::names::Process;

/// The authority's subject, before the cluster's id in hexadecimal.
const SUBJECT: &str = "Quorate cluster ";
/// How long an authority's certificate is valid.
const AUTHORITY_DAYS: u32 = 3650;
/// Machines' clocks may differ by so much.
const SKEW: Duration = Duration::from_secs(3600);

/// The file with the authority's certificate, in its directory.
pub const AUTHORITY: &str = "ca.crt";
/// The file with the authority's key.
pub const AUTHORITY_KEY: &str = "ca.key";

/// Whom a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A process of the cluster, and the host names and addresses at which clients reach it.
    Process(Process, Vec<String>),
    /// A client, under a name for people.
    Client(String),
}

impl Owner {
    /// What its files are called, without what follows the dot.
    pub fn file_name(&self) -> String {
        match self {
            Owner::Process(Process::Node(id), _) => format!("node-{id}"),
            Owner::Process(Process::Proxy, _) => "proxy".to_owned(),
            Owner::Client(name) => format!("client-{name}"),
        }
    }
}

/// See the file comment.
#[derive(Debug)]
pub struct Authority {
    cluster: u64,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// Where the certificate is.
    pub cert: PathBuf,
    /// Where its key is.
    pub key: PathBuf,
}

impl Authority {
    /// Makes the authority of a cluster, and writes its two files into a directory, which has none yet.
    pub fn create(directory: &Path, cluster: u64) -> Result<Authority, TlsError> {
        let (cert, key) = (directory.join(AUTHORITY), directory.join(AUTHORITY_KEY));
        if let Some(there) = [&cert, &key].into_iter().find(|path| path.exists()) {
            let why = "is there already: an authority is made once for a cluster; choose another directory, or remove \
                       it if no node relies on it";
            return Err(TlsError::file("the file", there, why));
        }
        fs::create_dir_all(directory)
            .map_err(|error| TlsError::file("the directory", directory, error.to_string()))?;
        let pair = KeyPair::generate().map_err(issue)?;
        let params = authority_params(cluster)?;
        let certificate = params.self_signed(&pair).map_err(issue)?;
        write(&key, &pair.serialize_pem(), 0o600)?;
        write(&cert, &certificate.pem(), 0o644)?;
        Ok(Authority { cluster, issuer: Issuer::new(params, pair) })
    }

    /// Reads the authority in a directory.
    pub fn open(directory: &Path) -> Result<Authority, TlsError> {
        let (cert, key) = (directory.join(AUTHORITY), directory.join(AUTHORITY_KEY));
        let read = |path: &Path| {
            fs::read_to_string(path).map_err(|error| {
                let hint =
                    if error.kind() == ErrorKind::NotFound { "; `quorate cert init` makes one" } else { "" };
                TlsError::file("the authority's file", path, format!("cannot be read: {error}{hint}"))
            })
        };
        let (text, key_text) = (read(&cert)?, read(&key)?);
        let wrong = |path: &Path, why: &str| TlsError::file("the authority's file", path, why);
        let ders: Vec<_> = CertificateDer::pem_slice_iter(text.as_bytes()).map_while(Result::ok).collect();
        if ders.is_empty() {
            return Err(wrong(&cert, "is no certificate in PEM"));
        }
        let pair = KeyPair::from_pem(&key_text).map_err(|_| wrong(&key, "is no private key in PEM"))?;
        let public = pair.public_key_raw();
        // While another authority takes its place, the file has the certificates of both.
        let own = ders.iter().find(|der| der.windows(public.len()).any(|bytes| bytes == public));
        let der =
            own.ok_or_else(|| wrong(&key, "is not the key of the authority's certificate beside it"))?;
        let cluster = cluster_of(der).ok_or_else(|| {
            wrong(&cert, "was not made by `quorate cert init`: issue certificates with what made it")
        })?;
        Ok(Authority { cluster, issuer: Issuer::new(authority_params(cluster)?, pair) })
    }

    /// The cluster that it is for.
    pub fn cluster(&self) -> u64 {
        self.cluster
    }

    /// Issues a certificate that is valid from now on for so many days, and writes it and its new key into a directory,
    /// in place of any that the owner has there.
    pub fn issue(&self, directory: &Path, owner: &Owner, days: u32) -> Result<Issued, TlsError> {
        let from = SystemTime::now().checked_sub(SKEW).unwrap_or(SystemTime::UNIX_EPOCH);
        self.issue_from(directory, owner, from, SKEW + days_long(days))
    }

    /// The same, valid from a time on.
    pub fn issue_from(
        &self,
        directory: &Path,
        owner: &Owner,
        from: SystemTime,
        valid: Duration,
    ) -> Result<Issued, TlsError> {
        let (names, common, usages) = match owner {
            Owner::Process(process, hosts) => {
                let names = [process.dns_name(self.cluster)].into_iter().chain(hosts.iter().cloned());
                let both = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
                (names.collect(), process.to_string(), both)
            }
            Owner::Client(name) => (Vec::new(), name.clone(), vec![ExtendedKeyUsagePurpose::ClientAuth]),
        };
        let mut params = CertificateParams::new(names).map_err(issue)?;
        params.distinguished_name = named(&common);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages;
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, from, valid);
        let pair = KeyPair::generate().map_err(issue)?;
        let certificate = params.signed_by(&pair, &self.issuer).map_err(issue)?;
        let name = owner.file_name();
        let issued = Issued {
            cert: directory.join(format!("{name}.crt")),
            key: directory.join(format!("{name}.key")),
        };
        write(&issued.key, &pair.serialize_pem(), 0o600)?;
        write(&issued.cert, &certificate.pem(), 0o644)?;
        Ok(issued)
    }
}

/// Of the certificate of a cluster's authority: always the same, so that a key is enough to issue others.
fn authority_params(cluster: u64) -> Result<CertificateParams, TlsError> {
    let mut params = CertificateParams::new(Vec::new()).map_err(issue)?;
    params.distinguished_name = named(&format!("{SUBJECT}{cluster:016x}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let from = SystemTime::now().checked_sub(SKEW).unwrap_or(SystemTime::UNIX_EPOCH);
    set_validity(&mut params, from, days_long(AUTHORITY_DAYS));
    Ok(params)
}

fn named(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    name
}

fn set_validity(params: &mut CertificateParams, from: SystemTime, valid: Duration) {
    let since = from.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    params.not_before = date_time_ymd(1970, 1, 1) + since;
    params.not_after = params.not_before + valid;
}

fn days_long(days: u32) -> Duration {
    Duration::from_secs(u64::from(days) * 86_400)
}

/// The cluster's id in the subject of its authority's certificate.
fn cluster_of(authority: &CertificateDer<'_>) -> Option<u64> {
    let anchor = webpki::anchor_from_trusted_cert(authority).ok()?;
    let subject = String::from_utf8_lossy(&anchor.subject).into_owned();
    let id = subject.split_once(SUBJECT)?.1.get(..16)?;
    u64::from_str_radix(id, 16).ok()
}

/// Writes a file whole or not at all, so that a node that reads it meanwhile finds the old one or the new one.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), TlsError> {
    let new = path.with_extension("new");
    let attempt = || {
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    attempt().map_err(|error| TlsError::file("the file", path, format!("cannot be written: {error}")))
}

fn issue(error: rcgen::Error) -> TlsError {
    TlsError::Issue(error.to_string())
}
