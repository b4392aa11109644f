//! The page that a node serves (`/` of `--listen-http`), in headless Chromium where it is installed; and the JSON that
//! it shows, everywhere.

#[path = "support/chromium.rs"]
mod chromium;
#[path = "support/http.rs"]
mod http;
mod support;

use std::collections::BTreeSet;

use chromium::Browser;
use http::get;
use quorate_bench::Ports;
use serde_json::Value;
use support::{Cluster, Connection, Resp, wait_for};

/// Three nodes, for which every request is slow, and where they serve HTTP.
fn cluster(protocol: &str) -> (Cluster, Vec<String>) {
    let ports = Ports::claim().unwrap();
    let http: Vec<_> = (0..3).map(|_| ports.address()).collect();
    let flags = |node: usize| ["--slow-log", "1us", "--listen-http", &http[node]].map(str::to_owned).to_vec();
    let cluster = Cluster::start_each(3, protocol, flags);
    for node in &cluster.nodes {
        let mut connection = Connection::open(&node.resp).unwrap();
        assert_eq!(connection.call(&[b"SET", b"secret-key", b"v"]).unwrap(), Resp::Simple("OK".into()));
    }
    (cluster, http)
}

fn status(address: &str) -> Value {
    let (code, text) = wait_for("the status", || get(address, "/status.json"));
    assert_eq!(code, "200", "{text}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn the_page_is_fed_by_what_quorate_status_has_and_shows_no_keys_or_clients() {
    let (cluster, http) = cluster("bodega");
    let leader = cluster.leader() as u64 + 1;
    for (node, address) in cluster.nodes.iter().zip(&http) {
        let shown = wait_for("a leader to be known", || {
            Some(status(address)).filter(|shown| shown["leader"] == leader && shown["slow"][0].is_object())
        });
        let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
        let (shown_names, told) = (names(&shown), node.status().unwrap());
        let more = ["serves", "trouble", "members", "times", "slow"].map(str::to_owned).into();
        assert_eq!(&shown_names - &names(&told), more);
        assert!(names(&told).is_subset(&shown_names));
        assert_eq!(names(&shown["facts"]), names(&told["facts"]));
        assert_eq!((&shown["serves"], &shown["trouble"]), (&true.into(), &Value::Null));
        assert_eq!(shown["members"].as_array().unwrap().len(), 3);
        assert_eq!(shown["slow"][0]["command"], "set");
        let times = shown["times"].as_array().unwrap();
        assert!(
            times.iter().any(|time| time["name"] == "command_duration_seconds" && time["label"] == "set")
        );
        assert!(!shown.to_string().contains("secret-key"), "{shown}");
        let (code, page) = get(address, "/").unwrap();
        assert!(code == "200" && page.starts_with("<!doctype html>"), "{code}");
        let (code, said) = get(address, "/nothing").unwrap();
        assert!(code == "404" && said.contains("/status.json"), "{code} {said}");
    }
}

#[test]
fn the_page_shows_the_group_on_a_desk_and_on_a_phone_and_who_leads_after_the_leader_was_killed() {
    let Some(mut browser) = Browser::start() else {
        return println!("not tried: no Chromium is installed (Debian's package chromium)");
    };
    let (mut cluster, http) = cluster("multipaxos");
    let leader = cluster.leader();
    let watched = (leader + 1) % 3;
    browser.resize(1280, 900);
    browser.open(&format!("http://{}/", http[watched]));
    let verdict = format!("serves reads and writes · node {} leads", leader + 1);
    wait_for("the page to be filled", || (browser.text("#verdict") == verdict).then_some(()));
    let members = browser.text("#members");
    assert!(
        (1..=3).all(|node| members.contains(&format!("127.0.0.1:{}", port(&cluster, node)))),
        "{members}"
    );
    assert!(
        members.contains(&format!("{} (this)", watched + 1)) && members.contains("follower"),
        "{members}"
    );
    let slow = browser.text("#slow");
    assert!(slow.contains("SET") && slow.contains("answered"), "{slow}");
    for width in [1280, 400] {
        browser.resize(width, 900);
        let needed = browser.value("document.documentElement.scrollWidth").as_u64().unwrap();
        assert!(needed <= u64::from(width), "the page is {needed} pixels wide in a window of {width}");
        let wide = "[...document.querySelectorAll('section')].filter((part) => part.scrollWidth > part.clientWidth)\
                    .map((part) => part.id).join()";
        assert_eq!(browser.value(wide), "", "parts that are cut at {width}");
    }
    // What happens while the page is open is seen: times are those of the last half minute.
    let mut connection = Connection::open(&cluster.nodes[watched].resp).unwrap();
    wait_for("the latency of requests to be shown", || {
        assert!(!matches!(connection.call(&[b"SET", b"k", b"v"]).unwrap(), Resp::Error(_)));
        let times = browser.text("#times");
        (times.contains("SET, request to reply") && times.contains("log: write and sync")).then_some(())
    });

    cluster.nodes[leader].kill();
    let others: Vec<_> = (0..3).filter(|node| *node != leader).map(|node| node + 1).collect();
    wait_for("the page to show who leads now", || {
        let shown = browser.text("#verdict");
        others
            .iter()
            .any(|node| shown == format!("serves reads and writes · node {node} leads"))
            .then_some(())
    });
    assert_eq!(browser.value("document.querySelector('#head').className"), "good");
    cluster.nodes[watched].kill();
    wait_for("the page to say that the node is gone", || {
        browser.text("#verdict").starts_with("this node has not answered for").then_some(())
    });
    cluster.nodes[leader].start();
    cluster.nodes[watched].start();
    wait_for("the page to go on", || browser.text("#verdict").starts_with("serves").then_some(()));
    let policy = "fetch('/').then((answer) => answer.headers.get('content-security-policy'))";
    let policy = browser.value(policy);
    assert!(policy.as_str().unwrap().starts_with("default-src 'none'; script-src 'nonce-"), "{policy}");
    assert_eq!(browser.complaints, [""; 0]);
}

/// The port for peers of a node, by its number.
fn port(cluster: &Cluster, node: usize) -> &str {
    cluster.nodes[node - 1].peer.rsplit(':').next().unwrap()
}
