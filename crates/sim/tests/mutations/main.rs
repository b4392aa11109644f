//! Each safety rule, weakened on purpose: some seed must notice. A rule whose removal goes unnoticed is either not
//! needed or not tested.
#![cfg(feature = "mutations")]

use quorate_core::Protocol;
use quorate_sim::{Options, caught};

/// Within so many seeds.
const SEEDS: u64 = 2000;

fn assert_caught<P: Protocol>(mutation: &str, settings: &[&str], nodes: usize) {
    let settings = settings.iter().map(ToString::to_string).collect();
    let options = Options { settings, nodes, ..Options::default() };
    let found = caught::<P>(mutation, &options, SEEDS).expect("valid options");
    let (seed, violation) = found.unwrap_or_else(|| panic!("{mutation} went unnoticed for {SEEDS} seeds"));
    println!("{mutation}: seed {seed}: {violation:.200}");
}

macro_rules! caught {
    ($protocol:ty, $($test:ident: $mutation:literal $(with $settings:expr)? $(, of $nodes:literal)?;)*) => {$(
        #[test]
        fn $test() {
            let settings: &[&[&str]] = &[$($settings)?];
            let nodes: &[usize] = &[$($nodes)?];
            let nodes = nodes.first().copied().unwrap_or(3);
            crate::assert_caught::<$protocol>($mutation, &settings.concat(), nodes);
        }
    )*};
}

mod bodega;
mod epaxos;
mod multipaxos;
mod pqr;
mod quorum_leases;
mod raft;
