//! `--topology`: one that has a name, or a TOML file.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use quorate_core::Topology;
use quorate_core::settings::parse_duration;
use quorate_protocols::wide_area;
use serde::Deserialize;

use crate::failure::Failure;
use crate::protocols;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct File {
    sites: Vec<String>,
    jitter: Option<String>,
    /// By two sites, in either order.
    round_trips: BTreeMap<String, BTreeMap<String, String>>,
}

/// Reads what `--topology` names.
pub fn load(word: &str) -> Result<Topology, Failure> {
    if let Some(topology) = Topology::named(word) {
        return Ok(topology);
    }
    let path = Path::new(word);
    if !path.exists() {
        let names: Vec<_> = Topology::names().collect();
        let names = names.join(", ");
        return Err(Failure::wrong(format!(
            "--topology {word}: there is no such file, and the names are {names}"
        )));
    }
    let wrong = |why: String| Failure::wrong(format!("--topology {word}: {why}"));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    parse(&text).map_err(wrong)
}

fn parse(text: &str) -> Result<Topology, String> {
    let File { sites, jitter, round_trips } = toml::from_str(text).map_err(|error| error.to_string())?;
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
    Topology::new(&sites, pairs, jitter).map_err(|error| error.to_string())
}

/// The timeouts that suit a topology, as settings of a protocol, as far as it knows them.
pub fn timeouts(topology: &Topology, protocol: &str, nodes: usize) -> Result<Vec<String>, Failure> {
    Ok(wide_area::settings(topology, protocols::find(protocol)?, nodes))
}

#[cfg(test)]
mod tests {
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
    fn a_protocol_is_given_the_timeouts_that_it_knows() {
        let geo = Topology::named("geo").unwrap();
        let names = |protocol| timeouts(&geo, protocol, 5).ok().unwrap();
        assert!(names("multipaxos").contains(&"election.timeout=1200ms".to_owned()));
        assert!(names("raft").contains(&"lease.duration=2500ms".to_owned()));
        assert!(!names("unreplicated").iter().any(|setting| setting.starts_with("election")));
    }
}
