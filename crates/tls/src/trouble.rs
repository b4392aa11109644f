//! What went wrong with a connection, in words: "it" is the other side.

use std::io::{self, ErrorKind};
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error};

/// What is said of somebody who speaks something else.
pub const NOT_TLS: &str = "what it says is not TLS";

/// As an error of the socket.
pub(crate) fn broken(error: &Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, explain(error))
}

/// What a failed handshake or a broken record means, and what would be right.
pub(crate) fn explain(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => format!("its certificate {}", certificate(error)),
        Error::NoCertificatesPresented => {
            "it presents no certificate: it needs one of this cluster's authority".to_owned()
        }
        Error::InvalidMessage(_) => NOT_TLS.to_owned(),
        Error::PeerIncompatible(_) => "it does not speak TLS 1.3".to_owned(),
        Error::AlertReceived(alert) => refused(*alert).to_owned(),
        other => format!("TLS failed: {other}"),
    }
}

/// What is wrong with a certificate; its name comes before.
pub(crate) fn certificate(error: &CertificateError) -> String {
    match error {
        // Two authorities of the same name differ in their signatures.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "was not issued by an authority that is trusted here: each cluster has its own".to_owned()
        }
        CertificateError::ExpiredContext { time, not_after } => {
            format!("expired {} ago: issue a new one", span(*not_after, *time))
        }
        CertificateError::Expired => "has expired: issue a new one".to_owned(),
        CertificateError::NotValidYetContext { time, not_before } => {
            format!("is not valid for another {}: compare the machines' clocks", span(*time, *not_before))
        }
        CertificateError::NotValidYet => "is not valid yet: compare the machines' clocks".to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names: Vec<_> = presented.iter().map(|name| bare(name)).collect();
            format!("is not for {}, but for {}", expected.to_str(), names.join(", "))
        }
        CertificateError::NotValidForName => "is for another name".to_owned(),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "may not be used for this: a node's is for servers and for clients".to_owned()
        }
        CertificateError::ApplicationVerificationFailure => {
            "is no node's or proxy's of this cluster, whatever a client may do with it".to_owned()
        }
        other => format!("cannot be used: {other}"),
    }
}

/// A name or an address of a certificate, without the words around it: `DnsName("a")`, `IpAddress(10.0.0.1)`.
fn bare(name: &str) -> &str {
    let inner = name.strip_suffix(')').and_then(|name| Some(name.split_once('(')?.1));
    inner.unwrap_or(name).trim_matches('"')
}

/// The other side's complaint.
fn refused(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::CertificateRequired => "it asks for a certificate, and got none",
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "it does not trust the authority that issued the certificate presented to it: each cluster has its own"
        }
        AlertDescription::CertificateExpired => {
            "the certificate presented to it has expired, or its clock says so"
        }
        AlertDescription::AccessDenied => {
            "the certificate presented to it is no node's or proxy's of its cluster"
        }
        AlertDescription::BadCertificate | AlertDescription::UnsupportedCertificate => {
            "it cannot use the certificate presented to it"
        }
        AlertDescription::ProtocolVersion => "it does not speak TLS 1.3",
        _ => "it ended the TLS handshake",
    }
}

/// How long it is from one time to another, for people.
fn span(from: UnixTime, to: UnixTime) -> String {
    let seconds = Duration::from_secs(to.as_secs().saturating_sub(from.as_secs())).as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} minutes", seconds / 60),
        7200..172_800 => format!("{} hours", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;

    use super::*;

    #[test]
    fn the_names_of_a_certificate_are_listed_as_people_write_them() {
        let presented =
            ["DnsName(\"a.example.org\")", "IpAddress(10.0.0.1)", "other"].map(str::to_owned).to_vec();
        let expected = ServerName::try_from("b.example.org").unwrap();
        let error = CertificateError::NotValidForNameContext { expected, presented };
        assert_eq!(certificate(&error), "is not for b.example.org, but for a.example.org, 10.0.0.1, other");
    }
}
