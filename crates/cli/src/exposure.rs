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

/// Warns of addresses that other machines can reach where those who connect need not prove who they are, and refuses
/// them where there are certificates, which clients are not asked for. `addresses`: the flag, what it was given, and
/// who connects there. `users`: whether clients must say who they are, and give a password.
pub fn check(
    addresses: &[(&str, Option<&str>, Port)],
    tls: Option<&TlsOptions>,
    users: bool,
    insecure: bool,
) -> Result<(), Failure> {
    for &(flag, address, port) in addresses {
        let Some(address) = address.filter(|address| is_reachable(address)) else { continue };
        let open = format!("{flag} {address} can be reached from other machines, and");
        let missing = match tls {
            None if users && port == Port::Clients => {
                "passwords are sent there as they are, as is everything else"
            }
            None => "who connects there need not prove who they are",
            // A password will do, where nobody else can read it.
            Some(_) if users && port == Port::Clients => continue,
            Some(options) if port != Port::Peers && options.clients != ClientAuth::Required => {
                "clients need no certificate there"
            }
            Some(_) => continue,
        };
        match tls {
            _ if insecure => tracing::warn!("--insecure: {open} {missing}"),
            None => tracing::warn!(
                "{open} {missing}. Give --tls-ca, --tls-cert and --tls-key (`quorate cert --help` tells how to get the \
                 files), and --users for who may do what; or listen on 127.0.0.1; or say --insecure if nobody else \
                 gets into the network"
            ),
            Some(_) => {
                return Err(Failure::wrong(format!(
                    "{open} {missing}. Leave --tls-auth-clients out, or give --users where clients are; or listen on \
                     127.0.0.1; or say --insecure if nobody else gets into the network"
                )));
            }
        }
    }
    Ok(())
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
    fn what_others_can_reach_asks_them_who_they_are() {
        let files = Files { ca: "a".into(), cert: "b".into(), key: "c".into() };
        let tls = |clients| Some(TlsOptions { files: files.clone(), clients });
        for (address, clients, tls, insecure, expected) in [
            ("127.0.0.1:1", true, None, false, None),
            ("[::1]:1", false, None, false, None),
            // These are only warned of.
            ("0.0.0.0:1", true, None, false, None),
            ("10.0.0.1:1", false, None, false, None),
            ("10.0.0.1:1", true, None, true, None),
            ("10.0.0.1:1", true, tls(ClientAuth::Required), false, None),
            (
                "10.0.0.1:1",
                true,
                tls(ClientAuth::Optional),
                false,
                Some("--listen 10.0.0.1:1 can be reached"),
            ),
            ("10.0.0.1:1", true, tls(ClientAuth::None), false, Some("clients need no certificate")),
            ("10.0.0.1:1", true, tls(ClientAuth::None), true, None),
            // Peers always need one.
            ("10.0.0.1:1", false, tls(ClientAuth::None), false, None),
        ] {
            let port = if clients { Port::Clients } else { Port::Peers };
            let found = check(&[("--listen", Some(address), port)], tls.as_ref(), false, insecure);
            match (found, expected) {
                (Ok(()), None) => {}
                (Err(Failure { code: 2, message }), Some(part)) if message.contains(part) => {}
                (found, expected) => panic!("{address}: {found:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn passwords_count_where_clients_are_and_nowhere_else() {
        let files = Files { ca: "a".into(), cert: "b".into(), key: "c".into() };
        let tls = TlsOptions { files, clients: ClientAuth::None };
        let check = |port| check(&[("--listen", Some("10.0.0.1:1"), port)], Some(&tls), true, false);
        assert!(check(Port::Clients).is_ok());
        assert!(check(Port::Watchers).is_err(), "metrics ask for no password");
    }
}
