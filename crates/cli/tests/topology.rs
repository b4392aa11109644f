//! Clusters across sites: `quorate up --topology`.

mod support;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use quorate_core::Topology;
use rustix::process::Signal;
use support::{Cluster, Connection, PATIENCE, Resp};

fn quorate(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Ends with its nodes.
struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, Signal::TERM);
        let _ = self.0.wait();
    }
}

fn text(reply: Resp) -> String {
    match reply {
        Resp::Bulk(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_site_pays_the_way_to_the_leader_and_says_where_it_is() {
    let mut child = quorate(&["up", "--topology", "geo", "--json", "--durability", "os"]).spawn().unwrap();
    let mut line = String::new();
    let out = child.stdout.take().unwrap();
    let _up = Up(child);
    BufReader::new(out).read_line(&mut line).unwrap();
    let told: serde_json::Value = serde_json::from_str(&line).expect(&line);
    let nodes: Vec<_> = told["nodes"].as_array().unwrap().iter().collect();
    let word = |node: usize, name: &str| nodes[node][name].as_str().unwrap().to_owned();
    let geo = Topology::named("geo").unwrap();
    assert_eq!((0..nodes.len()).map(|node| word(node, "site")).collect::<Vec<_>>(), geo.sites());

    let mut connections: Vec<_> =
        (0..nodes.len()).map(|node| Connection::open(&word(node, "resp")).unwrap()).collect();
    let mut info = |node: usize| text(connections[node].call(&[b"INFO", b"quorate"]).unwrap());
    let field = |info: &str, name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.unwrap_or_else(|| panic!("no {name} in {info}")).to_owned()
    };
    for (node, site) in geo.sites().iter().enumerate() {
        assert_eq!(&field(&info(node), "site"), site);
    }
    // It serves, so there is a leader; which one may change as long as nothing else is shown.
    let leader = |info: &str| field(info, "leader").parse::<usize>().unwrap() - 1;
    let begin = Instant::now();
    loop {
        let before = leader(&info(0));
        let shortest: Vec<_> = (0..nodes.len())
            .map(|node| {
                let mut connection = Connection::open(&word(node, "resp")).unwrap();
                let mut read = || {
                    let start = Instant::now();
                    connection.call(&[b"GET", b"k"]).unwrap();
                    start.elapsed()
                };
                (0..3).map(|_| read()).min().unwrap()
            })
            .collect();
        if leader(&info(0)) == before {
            // Nothing can be faster than what is emulated, however slow the machine is.
            for (node, shortest) in shortest.iter().enumerate() {
                let way = geo.round_trip(node, before);
                assert!(*shortest >= way, "{} read within {shortest:?} of {way:?}", word(node, "site"));
            }
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "no leader stays");
    }
}

#[test]
fn what_is_no_topology_and_who_has_no_site_is_refused_in_words() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "sites = [\"a\", \"b\"]\n[round-trips]\na = { b = \"-3ms\" }\n").unwrap();
    let negative = file.path().display().to_string();
    let still = tempfile::NamedTempFile::new().unwrap();
    let zero = "sites = [\"a\", \"b\"]\nrate = \"0Mbit/s\"\n[round-trips]\na = { b = \"3ms\" }\n";
    std::fs::write(still.path(), zero).unwrap();
    let zero = still.path().display().to_string();
    let serve: Vec<_> =
        "serve --node-id 1 --listen-peer 127.0.0.1:0 --listen-resp 127.0.0.1:0 --data-dir /nowhere \
                         --initial-cluster 1=127.0.0.1:1 --protocol unreplicated --topology geo --site Mars"
            .split(' ')
            .collect();
    for (words, message) in [
        (&["up", "--topology", "moon"][..], "no such file, and the names are geo, wan"),
        (&["up", "--topology", &negative], "\"-3ms\": write a duration"),
        (&["up", "--topology", &zero], "rate = \"0Mbit/s\": write a rate above 0"),
        (&["up", "--topology", "geo", "--nodes", "6"], "6 nodes, but the topology has 5 sites"),
        (&serve, "there is no site Mars; the sites are EU, VA, OR, CA, JP"),
    ] {
        let mut child = quorate(words).spawn().unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(2), "{said}");
        assert!(said.contains(message), "{message:?} is not in {said}");
    }
}

/// Three sites, each so many milliseconds from each.
fn three(sites: [&str; 3], millis: u64, rate: &str) -> String {
    let [a, b, c] = sites;
    format!(
        "sites = [\"{a}\", \"{b}\", \"{c}\"]\nrate = \"{rate}\"\n[round-trips]\n{a} = {{ {b} = \"{millis}ms\", \
         {c} = \"{millis}ms\" }}\n{b} = {{ {c} = \"{millis}ms\" }}\n"
    )
}

#[test]
fn a_topology_file_that_changes_its_sites_is_refused_at_sighup_and_links_stay_as_they_are() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |text: String| std::fs::write(file.path(), text).unwrap();
    let sites = ["a", "b", "c"];
    write(three(sites, 40, "1Gbit/s"));
    let path = file.path().display().to_string();
    let flags = |node: usize| ["--topology", &path, "--site", sites[node]].map(str::to_owned).into();
    let cluster = Cluster::start_each(3, "multipaxos", flags);
    let mut connection = Connection::open(&cluster.nodes[0].resp).unwrap();
    let mut write_takes = || {
        let begin = Instant::now();
        assert_eq!(connection.call(&[b"SET", b"k", b"v"]).unwrap(), Resp::Simple("OK".into()));
        begin.elapsed()
    };
    // Another site, one more, shorter round trips.
    for (refusals, text) in (1..).zip([
        three(["a", "b", "d"], 1, "1Gbit/s"),
        three(sites, 1, "1Gbit/s").replace("\"c\"]", "\"c\", \"d\"]")
            + "d = { a = \"1ms\", b = \"1ms\", c = \"1ms\" }\n",
        three(sites, 1, "1Gbit/s"),
    ]) {
        write(text);
        for node in &cluster.nodes {
            node.signal(Signal::HUP);
            support::wait_for("the reason", || {
                (node.lines_with("is not followed: ") == refusals).then_some(())
            });
        }
        assert!(write_takes() >= Duration::from_millis(40), "a majority is a round trip away");
    }
    write(three(sites, 40, "2Gbit/s"));
    for node in &cluster.nodes {
        node.signal(Signal::HUP);
        node.wait_for_line(&["links have the rates of the topology's file as it is now"]);
    }
    assert!(write_takes() >= Duration::from_millis(40));
}
