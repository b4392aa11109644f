//! Where a process may be reached. Whoever reaches a port that asks nobody who they are can read and write everything,
//! or take part in the cluster, so such a port is for this machine's own processes unless the operator says otherwise.

use std::net::ToSocketAddrs;

use quorate_tls::{ClientAuth, TlsOptions};

use crate::failure::Failure;

/// Who connects to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Other nodes.
    Peers,
    /// Those who read and write.
    Clients,
    /// Those who read metrics.
    Watchers,
}

/// Refuses addresses that other machines can reach where whoever connects need not prove who they are, or where what
/// they say can be read; `insecure` allows them, and says so in the log. `addresses`: the flag, what it was given, and
/// who connects there. `users`: whether clients must say who they are, and give a password.
pub fn check(
    addresses: &[(&str, Option<&str>, Port)],
    tls: Option<&TlsOptions>,
    users: bool,
    insecure: bool,
) -> Result<(), Failure> {
    for &(flag, address, port) in addresses {
        let Some(address) = address.filter(|address| is_reachable(address)) else { continue };
        let Some((lack, remedy)) = lack(port, tls.map(|options| options.clients), users) else { continue };
        let open = format!("{flag} {address} can be reached from other machines, and {lack}");
        if !insecure {
            return Err(Failure::wrong(format!(
                "{open}. {remedy}; or listen on 127.0.0.1; or say --insecure if nobody else gets into the network"
            )));
        }
        tracing::warn!("--insecure: {open}");
    }
    Ok(())
}

/// What such a port lacks, and what to give it. `clients`: whether clients are asked for certificates, where there are
/// any; peers always are then.
fn lack(port: Port, clients: Option<ClientAuth>, users: bool) -> Option<(&'static str, &'static str)> {
    const CERTIFICATES: &str = "Give --tls-ca, --tls-cert and --tls-key (`quorate cert --help` tells how to get the \
                                files), and --users for who may do what";
    match (clients, port) {
        (None, Port::Clients) if users => {
            Some(("passwords are sent there as they are, as is everything else", CERTIFICATES))
        }
        (None, _) => Some(("who connects there need not prove who they are", CERTIFICATES)),
        (Some(ClientAuth::Required), _) | (Some(_), Port::Peers) => None,
        // A password will do, where nobody else can read it.
        (Some(_), Port::Clients) if users => None,
        (Some(_), Port::Clients) => {
            Some(("clients need no certificate there", "Leave --tls-auth-clients out, or give --users"))
        }
        // Metrics ask for no password.
        (Some(_), Port::Watchers) => {
            Some(("clients need no certificate there", "Leave --tls-auth-clients out"))
        }
    }
}

/// Whether others than this machine's processes can connect to an address. One that cannot be resolved is refused when
/// it is to be bound.
fn is_reachable(address: &str) -> bool {
    address.to_socket_addrs().is_ok_and(|mut found| found.any(|address| !address.ip().is_loopback()))
}

#[cfg(test)]
mod tests {
    use quorate_tls::Files;

    use super::*;

    #[test]
    fn what_others_can_reach_is_encrypted_and_asks_them_who_they_are() {
        const OPEN: &str = "who connects there need not prove who they are. Give --tls-ca";
        const READABLE: &str = "passwords are sent there as they are, as is everything else. Give --tls-ca";
        const UNASKED: &str = "clients need no certificate there. Leave --tls-auth-clients out";
        let refused = [
            // Certificates, users: what is wrong with the ports of peers, clients and watchers.
            (None, false, [Some(OPEN), Some(OPEN), Some(OPEN)]),
            (None, true, [Some(OPEN), Some(READABLE), Some(OPEN)]),
            (Some(ClientAuth::None), false, [None, Some(UNASKED), Some(UNASKED)]),
            (Some(ClientAuth::None), true, [None, None, Some(UNASKED)]),
            (Some(ClientAuth::Optional), false, [None, Some(UNASKED), Some(UNASKED)]),
            (Some(ClientAuth::Optional), true, [None, None, Some(UNASKED)]),
            (Some(ClientAuth::Required), false, [None; 3]),
            (Some(ClientAuth::Required), true, [None; 3]),
        ];
        let files = Files { ca: "a".into(), cert: "b".into(), key: "c".into() };
        for (clients, users, expected) in refused {
            let tls = clients.map(|clients| TlsOptions { files: files.clone(), clients });
            let ports = [Port::Peers, Port::Clients, Port::Watchers];
            for (port, expected) in ports.into_iter().zip(expected) {
                let check = |address, insecure| {
                    check(&[("--listen", Some(address), port)], tls.as_ref(), users, insecure)
                };
                for address in ["0.0.0.0:1", "10.0.0.1:1", "[::]:1"] {
                    match (check(address, false), expected) {
                        (Ok(()), None) => {}
                        (Err(Failure { code: 2, message }), Some(part)) => {
                            let start =
                                format!("--listen {address} can be reached from other machines, and {part}");
                            assert!(message.starts_with(&start), "{message}");
                            assert!(
                                message.contains("; or listen on 127.0.0.1; or say --insecure if "),
                                "{message}"
                            );
                        }
                        (found, expected) => {
                            panic!("{clients:?} {users} {port:?}: {found:?}, not {expected:?}")
                        }
                    }
                    assert!(check(address, true).is_ok());
                }
                assert!(check("127.0.0.1:1", false).is_ok() && check("[::1]:1", false).is_ok());
            }
        }
    }
}
