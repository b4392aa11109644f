//! `--topology`: one that has a name, or a TOML file.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::settings::parse_duration;
use quorate_core::{Rate, Topology};
use quorate_node::TopologyFile;
use serde::Deserialize;

use crate::failure::Failure;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct File {
    sites: Vec<String>,
    jitter: Option<String>,
    /// By two sites, in either order.
    round_trips: BTreeMap<String, BTreeMap<String, String>>,
    /// Of every link between two sites that is not in `rates`.
    rate: Option<String>,
    /// By two sites, from the first to the second.
    #[serde(default)]
    rates: BTreeMap<String, BTreeMap<String, String>>,
    /// By site: of everything that its node sends.
    #[serde(default)]
    interfaces: BTreeMap<String, String>,
}

/// Reads what `--topology` names.
pub fn load(word: &str) -> Result<Topology, Failure> {
    if let Some(topology) = Topology::named(word) {
        return Ok(topology);
    }
    let Some(file) = file(word) else {
        let names: Vec<_> = Topology::names().collect();
        let names = names.join(", ");
        return Err(Failure::wrong(format!(
            "--topology {word}: there is no such file, and the names are {names}"
        )));
    };
    file.read().map_err(Failure::wrong)
}

/// The file that `--topology` names; none if there is no such file, or the topology comes with the program.
pub fn file(word: &str) -> Option<TopologyFile> {
    let file = TopologyFile { path: word.into(), parse };
    Some(file).filter(|file| Topology::named(word).is_none() && file.path.exists())
}

fn parse(text: &str) -> Result<Topology, String> {
    let file = toml::from_str(text).map_err(|error| error.to_string())?;
    let File { sites, jitter, round_trips, rate, rates, interfaces } = file;
    let duration = |what: &str, text: &str| {
        parse_duration(text)
            .ok_or_else(|| format!("{what} = \"{text}\": write a duration such as 77ms or 800us"))
    };
    let jitter = jitter.map_or(Ok(Duration::ZERO), |text| duration("jitter", &text))?;
    let mut pairs = Vec::new();
    for (from, row) in &round_trips {
        for (to, text) in row {
            pairs.push((from, to, duration(&format!("round-trips.{from}.{to}"), text)?));
        }
    }
    let parse_rate = |what: &str, text: &str| {
        Rate::parse(text).ok_or_else(|| format!("{what} = \"{text}\": write {}", Rate::EXPECTED))
    };
    let every = rate.map(|text| parse_rate("rate", &text)).transpose()?;
    let (mut links, mut shared) = (Vec::new(), Vec::new());
    for (from, row) in &rates {
        for (to, text) in row {
            links.push((from, to, parse_rate(&format!("rates.{from}.{to}"), text)?));
        }
    }
    for (site, text) in &interfaces {
        shared.push((site, parse_rate(&format!("interfaces.{site}"), text)?));
    }
    let topology = Topology::new(&sites, pairs, jitter);
    topology.and_then(|topology| topology.with_rates(every, links, shared)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use quorate_protocols::{registry, wide_area};

    use super::*;

    #[test]
    fn a_file_has_sites_and_the_round_trip_of_each_pair() {
        let text = "sites = [\"home\", \"office\", \"cloud\"]\njitter = \"1ms\"\n[round-trips]\n\
                    home = { office = \"12ms\", cloud = \"800us\" }\ncloud.office = \"30ms\"\n";
        let topology = parse(text).unwrap();
        assert_eq!(topology.round_trip(0, 2), Duration::from_micros(800));
        assert_eq!(
            (topology.one_way(1, 2), topology.jitter()),
            (Duration::from_millis(15), Duration::from_millis(1))
        );
        for (from, to, message) in [
            ("12ms", "-12ms", "round-trips.home.office = \"-12ms\": write a duration"),
            ("\"12ms\"", "12", "expected a string"),
            ("cloud.office", "office.home", "given twice, as 12ms and 30ms"),
            ("cloud.office = \"30ms\"", "", "between office and cloud is missing"),
            ("cloud.office", "cloud.moon", "no site moon; the sites are home, office, cloud"),
            ("jitter", "jittr", "unknown field"),
            ("sites", "sites = []\nx", "sites"),
        ] {
            let error = parse(&text.replace(from, to)).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn a_file_may_have_rates_of_links_and_interfaces_above_zero() {
        let text = "sites = [\"home\", \"office\"]\nrate = \"1Gbit/s\"\n[round-trips]\nhome.office = \"12ms\"\n\
                    [rates]\nhome.office = \"100Mbit/s\"\n[interfaces]\noffice = \"2Gbit/s\"\n";
        let topology = parse(text).unwrap();
        assert_eq!(
            [(0, 1), (1, 0)].map(|(a, b)| topology.link(a, b).rate),
            [100, 1000].map(|n| Some(Rate::mbit(n)))
        );
        assert_eq!([0, 1].map(|site| topology.interface(site)), [None, Some(Rate::mbit(2000))]);
        for (from, to, message) in [
            ("1Gbit/s", "0Gbit/s", "rate = \"0Gbit/s\": write a rate above 0"),
            ("100Mbit/s", "0Mbit/s", "rates.home.office = \"0Mbit/s\": write a rate above 0"),
            ("2Gbit/s", "2GB", "interfaces.office = \"2GB\": write a rate above 0"),
            ("office = \"2", "moon = \"2", "no site moon; the sites are home, office"),
            ("home.office = \"100", "home.home = \"100", "home has no link to itself"),
        ] {
            let error = parse(&text.replace(from, to)).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn a_protocol_is_given_the_timeouts_that_it_knows() {
        let geo = Topology::named("geo").unwrap();
        let names = |protocol| wide_area::settings(&geo, registry::named(protocol), 5);
        assert!(names("multipaxos").contains(&"election.timeout=1200ms".to_owned()));
        assert!(names("raft").contains(&"lease.duration=2500ms".to_owned()));
        assert!(!names("unreplicated").iter().any(|setting| setting.starts_with("election")));
    }
}
