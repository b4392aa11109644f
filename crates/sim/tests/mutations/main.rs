//! Each safety rule, weakened on purpose: some seed must notice. A rule whose removal goes unnoticed is either not
//! needed or not tested.
#![cfg(feature = "mutations")]

use quorate_core::Protocol;
use quorate_sim::{Options, caught};

/// Within so many seeds.
const SEEDS: u64 = 2000;

fn assert_caught<P: Protocol>(mutation: &str, nodes: usize, settings: &[&str]) {
    let settings = settings.iter().map(ToString::to_string).collect();
    let options = Options { nodes, settings, ..Options::default() };
    let found = caught::<P>(mutation, &options, SEEDS).expect("valid options");
    let (seed, violation) = found.unwrap_or_else(|| panic!("{mutation} went unnoticed for {SEEDS} seeds"));
    println!("{mutation}: seed {seed}: {violation:.200}");
}

macro_rules! caught {
    ($protocol:ty, $($test:ident: $mutation:literal $(on $nodes:literal)? $(with $settings:expr)?;)*) => {$(
        #[test]
        fn $test() {
            let settings: &[&[&str]] = &[$($settings)?];
            let nodes = [$($nodes,)? 3][0];
            crate::assert_caught::<$protocol>($mutation, nodes, &settings.concat());
        }
    )*};
}

mod epaxos;
mod multipaxos;
mod raft;
