//! What a run is.

use std::net::SocketAddr;
use std::time::Duration;

use quorate_client::Login;
use quorate_tls::ClientCredentials;

use crate::{Arrivals, Choice, Sizes};

/// One run of the generator.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections are spread over these; one that fails goes on to the next.
    pub endpoints: Vec<SocketAddr>,
    /// Over TLS; `None` for plain connections.
    pub tls: Option<Tls>,
    /// Whom each connection is authenticated as; `None` for nobody.
    pub login: Option<Login>,
    /// How many connections.
    pub connections: usize,
    /// How many requests may be under way on each.
    pub pipeline: usize,
    /// Operations per second of an open loop; none for a closed loop.
    pub rate: Option<u64>,
    /// How the operations of an open loop are spaced.
    pub arrivals: Arrivals,
    /// Which operations.
    pub mix: Mix,
    /// Which keys.
    pub choice: Choice,
    /// How many keys there are at the start.
    pub keys: u64,
    /// What every key begins with; its number follows.
    pub key_prefix: String,
    /// How long values are.
    pub sizes: Sizes,
    /// A scan reads between one and this many keys.
    pub scan_max: u64,
    /// Time before anything counts.
    pub warm_up: Duration,
    /// Time that counts.
    pub duration: Duration,
    /// A request that is not answered by then has failed, and its connection is replaced.
    pub timeout: Duration,
    /// Of keys, values, operations and arrivals.
    pub seed: u64,
    /// One line a second on the standard error.
    pub progress: bool,
    /// Keep what became of each operation ([`crate::Trace`]).
    pub trace: bool,
}

impl Options {
    /// What keys begin with unless something else is said.
    pub const KEY_PREFIX: &str = "key-";
}

/// How connections are encrypted.
#[derive(Clone, Debug)]
pub struct Tls {
    /// What is presented, and whom it trusts.
    pub credentials: ClientCredentials,
    /// The host of each endpoint, as its certificate has it.
    pub hosts: Vec<String>,
}

/// Shares of the operations; they sum to one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// GET of a key.
    pub read: f64,
    /// SET of a key that is there.
    pub update: f64,
    /// SET of the next new key.
    pub insert: f64,
    /// MGET of consecutive keys: RESP has no ordered scan.
    pub scan: f64,
    /// GET, and after its answer SET of the same key; timed as one.
    pub modify: f64,
}

impl Mix {
    const NONE: Mix = Mix { read: 0.0, update: 0.0, insert: 0.0, scan: 0.0, modify: 0.0 };

    /// Only reads and updates.
    pub fn writes(share: f64) -> Mix {
        Mix { read: 1.0 - share, update: share, ..Mix::NONE }
    }

    /// A workload by its name, with the key choice that belongs to it: YCSB's `a` to `f`, `set`, `get`.
    pub fn named(name: &str) -> Option<(Mix, Choice)> {
        let zipf = Choice::Zipf(Choice::THETA);
        Some(match name {
            "a" => (Mix::writes(0.5), zipf),
            "b" => (Mix::writes(0.05), zipf),
            "c" => (Mix::writes(0.0), zipf),
            "d" => (Mix { read: 0.95, insert: 0.05, ..Mix::NONE }, Choice::Latest(Choice::THETA)),
            "e" => (Mix { scan: 0.95, insert: 0.05, ..Mix::NONE }, zipf),
            "f" => (Mix { read: 0.5, modify: 0.5, ..Mix::NONE }, zipf),
            "set" => (Mix::writes(1.0), Choice::Uniform),
            "get" => (Mix::writes(0.0), Choice::Uniform),
            _ => return None,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Some options of a named workload.
    pub(crate) fn options(name: &str) -> Options {
        let (mix, choice) = Mix::named(name).unwrap();
        Options {
            endpoints: Vec::new(),
            tls: None,
            login: None,
            connections: 4,
            pipeline: 1,
            rate: None,
            arrivals: Arrivals::Even,
            mix,
            choice,
            keys: 1000,
            key_prefix: Options::KEY_PREFIX.to_owned(),
            sizes: "128".parse().unwrap(),
            scan_max: 100,
            warm_up: Duration::ZERO,
            duration: Duration::from_secs(1),
            timeout: Duration::from_secs(5),
            seed: 1,
            progress: false,
            trace: false,
        }
    }

    #[test]
    fn shares_sum_to_one() {
        for name in ["a", "b", "c", "d", "e", "f", "set", "get"] {
            let (mix, _) = Mix::named(name).unwrap();
            let sum = mix.read + mix.update + mix.insert + mix.scan + mix.modify;
            assert!((sum - 1.0).abs() < 1e-9, "{name}");
        }
        assert!(Mix::named("g").is_none());
    }
}
