//! A wide-area network on one machine: a network namespace for each site, joined by links with delay, jitter and rate.
//! Made for comparing systems that know nothing of each other (`cargo xtask figures bodega --only lab`).
//!
//! Each namespace has one TUN device, which this process holds: it reads the packets that the namespace sends, keeps
//! each for as long as its link takes, and writes it to the namespace that it is for. Nothing leaves the machine.
//! Namespaces have no names: they end with the last process in them, and nothing is left to clean up.
//!
//! | file | what |
//! |---|---|
//! | `site` | a namespace with its device |
//! | `emulator` | the loop that carries packets |
//! | `fidelity` | what the links really do |

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use quorate_core::settings::parse_duration;
use quorate_core::{Rate, Topology};

mod emulator;
mod fidelity;
mod site;

/// What cannot be gone on after; the text says all.
type Result<T> = std::result::Result<T, String>;

/// Emulates a wide-area network between network namespaces until it is told to stop
///
/// Prints a line `site NAME ADDRESS NAMESPACE` for each site, then `ready`. Run what is to be at a site with
/// `nsenter --net=NAMESPACE COMMAND…`; it reaches the others by their addresses. Needs root.
#[derive(Debug, Parser)]
struct Args {
    /// The sites and their round trips: geo or wan, as `quorate up --topology` knows them
    #[arg(long, default_value = "geo")]
    topology: String,
    /// How much longer than half of its round trip a packet may take, such as 1ms
    #[arg(long, default_value = "0s")]
    jitter: String,
    /// Of every link in each direction, such as 1Gbit/s [default: none]
    #[arg(long)]
    rate: Option<String>,
    /// Measures the round trip of every pair, prints them as CSV, and ends
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wan: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let topology = topology(args)?;
    if !nix::unistd::geteuid().is_root() {
        return Err("only root may make network namespaces: run it with sudo".to_owned());
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, stop.clone()).map_err(|error| format!("signals: {error}"))?;
    }
    // Whoever started it may be killed: nothing stays behind.
    prctl::set_pdeathsig(Signal::SIGTERM).map_err(|error| format!("prctl: {error}"))?;
    let names = topology.sites().iter().enumerate();
    let sites = names.map(|(index, name)| site::Site::make(name, index)).collect::<Result<Vec<_>>>()?;
    if !args.check {
        for site in &sites {
            println!("site {} {} {}", site.name, site.address, site.namespace());
        }
        println!("ready");
        return emulator::run(&sites, &topology, &stop);
    }
    std::thread::scope(|scope| {
        let carrier = scope.spawn(|| emulator::run(&sites, &topology, &stop));
        let checked = fidelity::check(&sites, &topology);
        stop.store(true, Ordering::Relaxed);
        carrier.join().expect("the emulator does not panic")?;
        print!("{}", checked?);
        Ok(())
    })
}

fn topology(args: &Args) -> Result<Topology> {
    let named = Topology::named(&args.topology).ok_or_else(|| {
        let names: Vec<_> = Topology::names().collect();
        format!("--topology {}: the names are {}", args.topology, names.join(", "))
    })?;
    let jitter = parse_duration(&args.jitter).filter(|jitter| *jitter <= Duration::from_secs(1));
    let jitter = jitter.ok_or_else(|| format!("--jitter {}: write up to 1s, such as 800us", args.jitter))?;
    let read =
        |text: &String| Rate::parse(text).ok_or_else(|| format!("--rate {text}: write {}", Rate::EXPECTED));
    let rate = args.rate.as_ref().map(read).transpose()?;
    let sites = named.sites();
    let pairs = (0..sites.len()).flat_map(|to| (0..to).map(move |from| (from, to)));
    let round_trips = pairs.map(|(from, to)| (&sites[from], &sites[to], named.round_trip(from, to)));
    let topology = Topology::new(sites, round_trips, jitter);
    let rated = topology.and_then(|topology| topology.with_rates::<&str>(rate, Vec::new(), Vec::new()));
    rated.map_err(|error| error.to_string())
}
