//! `quorate cert`: the authority of a cluster, and the certificates that it issues.

use std::io::{Write, stdout};

use quorate_node::{cluster_id, parse_cluster};
use quorate_tls::credentials::TlsOptions;
use quorate_tls::issue::{AUTHORITY, AUTHORITY_KEY, Authority, Issued, Owner};
use quorate_tls::{ClientAuth, ClientCredentials, Credentials, Files, Process, TlsError};

use crate::args::{Cert, CertClient, CertDir, CertInit, CertNode, CertProxy, ClientTls};
use crate::failure::Failure;

pub fn cert(command: Cert) -> Result<(), Failure> {
    match command {
        Cert::Init(args) => init(&args),
        Cert::Node(CertNode { dir, node_id, hosts, days }) => {
            issue(&dir, Owner::Process(Process::Node(node_id), hosts), days.days)
        }
        Cert::Proxy(CertProxy { dir, hosts, days }) => {
            issue(&dir, Owner::Process(Process::Proxy, hosts), days.days)
        }
        Cert::Client(CertClient { dir, name, days }) => issue(&dir, Owner::Client(name), days.days),
    }
}

fn init(args: &CertInit) -> Result<(), Failure> {
    let cluster = match (&args.initial_cluster, args.cluster_id) {
        (Some(members), _) => cluster_id(&parse_cluster(members).map_err(Failure::wrong)?),
        (None, Some(id)) => id,
        (None, None) => unreachable!("one of the two is required"),
    };
    let dir = &args.dir.dir;
    Authority::create(dir, cluster)?;
    let mut out = stdout().lock();
    writeln!(
        out,
        "{}  the authority of cluster {cluster:016x}: all nodes and clients need it",
        dir.join(AUTHORITY).display()
    )?;
    writeln!(out, "{}  its key: keep it secret, and on no node", dir.join(AUTHORITY_KEY).display())?;
    Ok(())
}

fn issue(dir: &CertDir, owner: Owner, days: u32) -> Result<(), Failure> {
    let authority = Authority::open(&dir.dir)?;
    let issued = authority.issue(&dir.dir, &owner, days)?;
    let ca = dir.dir.join(AUTHORITY);
    // What it is used for is tried at once.
    match owner {
        Owner::Process(process, _) => {
            let Issued { cert, key } = issued.clone();
            let options = TlsOptions { files: Files { ca, cert, key }, clients: ClientAuth::Required };
            Credentials::load(options, process, authority.cluster())?;
        }
        Owner::Client(_) => drop(ClientCredentials::load(&ca, Some((&issued.cert, &issued.key)))?),
    }
    let mut out = stdout().lock();
    writeln!(out, "{}  valid for {days} days", issued.cert.display())?;
    writeln!(out, "{}  its key: keep it secret", issued.key.display())?;
    Ok(())
}

/// What a client command's flags say; `None` without TLS.
pub fn of_client(flags: &ClientTls) -> Result<Option<ClientCredentials>, Failure> {
    let Some(ca) = &flags.tls_ca else { return Ok(None) };
    let own = flags.tls_cert.as_ref().zip(flags.tls_key.as_ref());
    Ok(Some(ClientCredentials::load(ca, own)?))
}

impl From<TlsError> for Failure {
    fn from(error: TlsError) -> Failure {
        Failure::wrong(error)
    }
}
