//! Every protocol, by name: the one place that lists them.

use quorate_core::{Capabilities, Protocol};

/// A computation over a protocol that is chosen at run time.
pub trait Visitor {
    /// What it computes.
    type Out;
    /// Computes it for one protocol.
    fn visit<P: Protocol>(self) -> Self::Out;
}

/// A protocol's entry, for tables and error messages.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// See [`Protocol::NAME`].
    pub name: &'static str,
    /// See [`Protocol::PAPER`].
    pub paper: &'static str,
    /// See [`Protocol::CAPABILITIES`].
    pub capabilities: Capabilities,
}

macro_rules! registry {
    ($($protocol:ty),* $(,)?) => {
        /// Every protocol, in the order of their families.
        pub fn all() -> Vec<Info> {
            vec![$(Info {
                name: <$protocol>::NAME,
                paper: <$protocol>::PAPER,
                capabilities: <$protocol>::CAPABILITIES,
            }),*]
        }

        /// Visits the protocol of this name; `None` if there is none.
        pub fn with<V: Visitor>(name: &str, visitor: V) -> Option<V::Out> {
            $(if name == <$protocol>::NAME {
                return Some(visitor.visit::<$protocol>());
            })*
            None
        }
    };
}

registry! {
    crate::unreplicated::Unreplicated,
    crate::raft::Raft,
    crate::paxos::multipaxos::MultiPaxos,
    crate::paxos::pqr::Pqr,
    crate::paxos::quorum_leases::QuorumLeases,
    crate::paxos::bodega::Bodega,
    crate::epaxos::Epaxos,
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Name;
    impl Visitor for Name {
        type Out = &'static str;
        fn visit<P: Protocol>(self) -> &'static str {
            P::NAME
        }
    }

    #[test]
    fn every_protocol_is_found_by_its_own_name_only() {
        let all = all();
        for (index, info) in all.iter().enumerate() {
            assert_eq!(with(info.name, Name), Some(info.name));
            assert!(all[..index].iter().all(|other| other.name != info.name), "{} twice", info.name);
        }
        assert_eq!(with("no-such-protocol", Name), None);
    }
}
