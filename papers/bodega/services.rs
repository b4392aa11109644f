//! The emulated wide area (`bench/wan`), and the services that are started in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::compare::built;
use xtask::compare::processes::{Process, cpu_seconds};
use xtask::compare::services::{self, Kind, Placement, Service, Site, wait_for};

use super::world::World;
use super::{ETCD, ZOOKEEPER, candidates};
use crate::instrument::Result;
use crate::instrument::measure::Bench;

/// Heartbeats of etcd, as in the paper, and its elections, in ms.
const ETCD_FLAGS: [&str; 4] = ["--heartbeat-interval", "120", "--election-timeout", "1200"];
/// Programs beside those of the services, with Debian's packages.
const OTHERS: [(&str, &str); 2] = [("ip", "iproute2"), ("protoc", "protobuf-compiler libprotobuf-dev")];

/// The emulated wide area.
pub struct Wan {
    process: Process,
    pub sites: Vec<Site>,
}

/// Programs that measure, built.
pub struct Programs {
    wan: PathBuf,
    ycsb: PathBuf,
    quorate: PathBuf,
}

impl Programs {
    /// Builds them; an error if something else is missing.
    pub fn build(bench: &Bench) -> Result<Programs> {
        services::missing(&[&services::ETCD_PROGRAMS[..], &services::ZOOKEEPER_PROGRAMS, &OTHERS].concat())?;
        Ok(Programs { wan: built("wan", "wan")?, ycsb: built("ycsb", "ycsb")?, quorate: bench.quorate()? })
    }

    /// What the links really do: for each pair its sites, and the round trip as it should be, in the median, and at
    /// most, in ms.
    pub fn fidelity(&self, world: &World) -> Result<Vec<(String, String, [f64; 3])>> {
        let output = Command::new(&self.wan).args(["--topology", world.name, "--check"]).output();
        let output = output.map_err(|error| format!("cannot run wan: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let row = |line: &str| {
            let words: Vec<_> = line.split(',').collect();
            let number = |at: usize| words.get(at)?.parse().ok();
            Some((
                (*words.first()?).to_owned(),
                (*words.get(1)?).to_owned(),
                [number(2)?, number(3)?, number(4)?],
            ))
        };
        Ok(text.lines().skip(1).filter_map(row).collect())
    }

    /// The load generator at a site, driving the member there.
    pub fn ycsb(&self, wan: &Wan, service: &Service, site: usize, system: &str) -> Command {
        let mut command = wan.sites[site].command(&self.ycsb);
        command.args(["--system", system, "--endpoint", &service.endpoints[site]]);
        command
    }

    /// Starts a service, led from the paper's site; of Quorate's, the other sites are responders.
    pub fn start(
        &self,
        bench: &Bench,
        (wan, world): (&Wan, &World),
        name: &str,
        dir: &Path,
    ) -> Result<Service> {
        let on = Placement { sites: &wan.sites, leader: world.leader(), dir, stop: &bench.stop };
        let kind = match name {
            ETCD => Kind::Etcd(&ETCD_FLAGS),
            ZOOKEEPER => Kind::ZooKeeper,
            name => {
                let candidate = candidates::known(name);
                let responders: Vec<_> = (0..world.sites()).filter(|site| *site != on.leader).collect();
                let (program, settings) = (self.quorate.clone(), world.settings(candidate, &responders));
                Kind::Quorate { program, protocol: candidate.protocol, settings }
            }
        };
        kind.start(&on)
    }
}

impl Wan {
    /// Joins the sites.
    pub fn start(bench: &Bench, programs: &Programs, world: &World, dir: &Path) -> Result<Wan> {
        let log = dir.join("wan.log");
        let mut process = Process::start(Command::new(&programs.wan).args(["--topology", world.name]), &log)?;
        let text = wait_for("wan", &bench.stop, || {
            process.expect_alive(&log)?;
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            Ok(text.ends_with("ready\n").then_some(text))
        })?;
        let site = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
            ["site", name, address, namespace] => {
                Some(Site { name: name.into(), address: address.into(), namespace: Some(namespace.into()) })
            }
            _ => None,
        };
        Ok(Wan { process, sites: text.lines().filter_map(site).collect() })
    }

    /// CPU seconds of the emulator so far.
    pub fn cpu(&self) -> f64 {
        cpu_seconds(&[self.process.id()])
    }
}
