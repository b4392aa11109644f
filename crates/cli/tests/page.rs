//! The page that a node serves (`/` of `--listen-http`), in headless Chromium where it is installed; and the JSON that
//! it shows, everywhere.

#[path = "support/chromium.rs"]
mod chromium;
#[path = "support/http.rs"]
mod http;
mod support;

use std::collections::BTreeSet;
use std::process::Command;

use chromium::Browser;
use http::get;
use quorate_bench::Ports;
use serde_json::Value;
use support::{Cluster, Connection, Resp, wait_for};

const SITES: [&str; 3] = ["east", "west", "south"];

/// Windows of a desk and of a phone, in pixels.
const WIDTHS: [u32; 2] = [1280, 400];

/// Three nodes at a site each, for which every request is slow, and where they serve HTTP.
fn cluster(protocol: &str) -> (Cluster, Vec<String>) {
    let ports = Ports::claim().unwrap();
    let http: Vec<_> = (0..3).map(|_| ports.address()).collect();
    let flags = |node: usize| {
        ["--slow-log", "1us", "--listen-http", &http[node], "--site", SITES[node]].map(str::to_owned).to_vec()
    };
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

/// What a part of the page shows, once it does. Whatever it shows fits the window, on a desk and on a phone.
fn look<T>(browser: &mut Browser, what: &str, mut shown: impl FnMut(&mut Browser) -> Option<T>) -> Vec<T> {
    let mut found = Vec::new();
    for width in WIDTHS {
        browser.resize(width, 900);
        found.push(wait_for(&format!("{what}, at {width} pixels"), || shown(browser)));
        let needed = browser.value("document.documentElement.scrollWidth").as_u64().unwrap();
        assert!(needed <= u64::from(width), "{what}: {needed} pixels wide in a window of {width}");
        let cut = "[...document.querySelectorAll('header, section, table, td, dd, p')]\
                   .filter((part) => part.scrollWidth > part.clientWidth \
                     || part.getBoundingClientRect().right > innerWidth)\
                   .map((part) => part.tagName + ' ' + part.innerText).join()";
        assert_eq!(browser.value(cut), "", "{what}: parts that are cut at {width} pixels");
    }
    found
}

/// The page's verdict and how it is painted, once it fits.
fn verdict(browser: &mut Browser, fits: impl Fn(&str) -> bool) -> Option<(String, String)> {
    let paint = "document.querySelector('#head').className";
    let (text, paint) = (browser.text("#verdict"), browser.value(paint));
    fits(&text).then(|| (text, paint.as_str().unwrap().to_owned()))
}

/// A member's line: its name and address, its role, whether it is up and how far away, how far behind.
type Member = [String; 4];

/// The table of members.
fn members(browser: &mut Browser) -> Vec<Member> {
    let cells = "[...document.querySelectorAll('#members tr')].slice(1)\
                 .map((row) => [...row.cells].map((cell) => cell.innerText))";
    serde_json::from_value(browser.value(cells)).unwrap()
}

/// Whether the lags are shown that this node knows: its own always, others' where it leads and has heard them.
fn has_lags(members: &[Member]) -> bool {
    let leads = members.iter().any(|[name, role, ..]| name.contains("(this)") && role == "leader");
    members.iter().all(|[name, _, state, lag]| {
        let known = name.contains("(this)") || leads && state.starts_with("up");
        if known { lag.parse::<u64>().is_ok() } else { lag == "–" }
    })
}

/// What `quorate` prints, asked of some nodes.
fn quorate(cluster: &Cluster, nodes: &[usize], words: &[&str]) -> String {
    let endpoints: Vec<_> = nodes.iter().map(|node| &*cluster.nodes[*node].resp).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    let output = command.args(words).args(["--endpoints", &endpoints.join(",")]).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn check_healthy(browser: &mut Browser, cluster: &Cluster, watched: usize) {
    for shown in look(browser, "the members", |browser| {
        let shown = members(browser);
        let near = |[name, _, state, _]: &Member| name.contains("(this)") || state.ends_with(" ms away");
        (shown.len() == 3 && shown.iter().all(near) && has_lags(&shown)).then_some(shown)
    }) {
        for (node, [name, role, state, _]) in shown.iter().enumerate() {
            let this = if node == watched { " (this)" } else { "" };
            let address = format!("127.0.0.1:{}", port(cluster, node));
            assert_eq!(*name, format!("{} {}{this}\n{address}", node + 1, SITES[node]));
            assert!(["leader", "follower", "voter"].contains(&&**role), "{role}");
            assert!(state == "up" || node != watched, "{state}");
        }
    }
}

/// Key ranges of a roster, leases, and the way to each site.
fn check_reads(browser: &mut Browser, cluster: &Cluster, leader: usize) {
    quorate(cluster, &[0, 1, 2], &["roster", "set", "user:*=1,2,3"]);
    look(browser, "rosters and leases", |browser| {
        let shown = browser.text("#reads");
        let lines = [
            "lease\theld: reads can be answered here without asking others",
            "keys user:*\tread at nodes 1, 2, 3",
            "other keys\tread at the leader alone",
            "roster changes by itself\toff",
        ];
        lines.iter().all(|line| shown.lines().any(|shown| shown == *line)).then_some(())
    });
    let mut connection = Connection::open(&cluster.nodes[leader].resp).unwrap();
    // What happens while the page is open is seen: times are those of the last half minute.
    look(browser, "latencies", |browser| {
        assert!(!matches!(connection.call(&[b"SET", b"k", b"v"]).unwrap(), Resp::Error(_)));
        let times = browser.text("#times");
        let site = |node: usize| format!("round trip to node {} ({})", node + 1, SITES[node]);
        let stages = ["SET, request to reply", "log: write and sync"].map(str::to_owned);
        let stages = stages.into_iter().chain((0..3).filter(|node| *node != leader).map(site));
        stages.into_iter().all(|stage| times.contains(&stage)).then_some(())
    });
    look(browser, "slow requests and data", |browser| {
        let (slow, log) = (browser.text("#slow"), browser.text("#log"));
        (slow.contains("SET") && slow.contains("replied") && log.contains("keys\n2\n")).then_some(())
    });
}

/// Of those that are there, one is watched; another is dead.
fn check_dead(browser: &mut Browser, dead: usize) {
    for shown in look(browser, "the dead member", |browser| {
        let shown = members(browser);
        (shown[dead][2].starts_with("unreachable for ") && has_lags(&shown)).then_some(shown)
    }) {
        assert_eq!(shown.iter().filter(|[_, _, state, _]| state.starts_with("up")).count(), 2, "{shown:?}");
    }
    let why = browser.text("#why");
    assert!(why.starts_with(&format!("Node {}: ", dead + 1)), "{why}");
}

#[test]
fn the_page_shows_the_group_on_a_desk_and_on_a_phone_before_while_and_after_a_leader_is_dead() {
    let Some(mut browser) = Browser::start() else {
        return println!("not tried: no Chromium is installed (Debian's package chromium)");
    };
    let browser = &mut browser;
    let (mut cluster, http) = cluster("bodega");
    let leader = cluster.leader();
    let (watched, third) = ((leader + 1) % 3, (leader + 2) % 3);
    let healthy = |leads: usize| format!("serves reads and writes · node {} leads", leads + 1);
    let good = |browser: &mut Browser, leads: usize| {
        for (_, paint) in
            look(browser, "that all is well", |browser| verdict(browser, |text| text == healthy(leads)))
        {
            assert_eq!(paint, "good");
        }
    };
    browser.open(&format!("http://{}/", http[leader]));
    good(browser, leader);
    check_healthy(browser, &cluster, leader);
    check_reads(browser, &cluster, leader);
    browser.open(&format!("http://{}/", http[watched]));
    good(browser, leader);
    check_healthy(browser, &cluster, watched);

    // Nobody can lead while the third does nothing.
    cluster.nodes[third].pause();
    cluster.nodes[leader].kill();
    for (text, paint) in look(browser, "that nobody leads", |browser| {
        verdict(browser, |text| {
            text.starts_with("does not serve") && text.contains("2 of 3 members unreachable: ")
        })
    }) {
        assert!(
            paint == "bad" && text.contains("nobody leads") && text.contains(" 0 of the 2 other"),
            "{paint} {text}"
        );
    }
    cluster.nodes[third].resume();
    let missing = format!(" · 1 of 3 members unreachable: node {} for ", leader + 1);
    let leads = look(browser, "who leads now", |browser| {
        let leads = |text: &str| [watched, third].into_iter().find(|node| text.starts_with(&healthy(*node)));
        let (text, paint) = verdict(browser, |text| leads(text).is_some() && text.contains(&missing))?;
        assert_eq!(paint, "warn", "{text}");
        leads(&text)
    })[1];
    check_dead(browser, leader);
    let said = quorate(&cluster, &[watched, third], &["status"]);
    let line = format!("\nwarning: node {} has been unreachable for ", leader + 1);
    assert!(said.starts_with("the cluster serves") && said.contains(&line), "{said}");

    cluster.nodes[leader].start();
    good(browser, leads);
    check_healthy(browser, &cluster, watched);
    cluster.nodes[watched].kill();
    look(browser, "that the node is gone", |browser| {
        verdict(browser, |text| text.starts_with("this node has not answered for"))
    });
    cluster.nodes[watched].start();
    wait_for("the page to go on", || verdict(browser, |text| text.starts_with("serves")));
    let policy = "fetch('/').then((answer) => answer.headers.get('content-security-policy'))";
    let policy = browser.value(policy);
    assert!(policy.as_str().unwrap().starts_with("default-src 'none'; script-src 'nonce-"), "{policy}");
    assert_eq!(browser.complaints, [""; 0]);
}

/// It is no node and knows no leader, and nor does EPaxos.
#[test]
fn the_page_of_a_proxy_says_what_it_is() {
    let Some(mut browser) = Browser::start() else {
        return println!("not tried: no Chromium is installed (Debian's package chromium)");
    };
    let (ports, cluster) = (Ports::claim().unwrap(), Cluster::start(3, "epaxos"));
    let http = ports.address();
    let proxy = cluster.proxy("proxy", "epaxos", cluster.members(), &["--listen-http", &http]);
    browser.open(&format!("http://{http}/"));
    for (text, paint) in look(&mut browser, "that the proxy serves", |browser| {
        verdict(browser, |text| text.starts_with("serves"))
    }) {
        assert_eq!((text.as_str(), paint.as_str()), ("serves reads and writes", "good"));
    }
    assert_eq!(browser.text("#title"), "Quorate · proxy");
    assert_eq!(browser.complaints, [""; 0]);
    drop(proxy);
}

/// The port for peers of a node, by its index.
fn port(cluster: &Cluster, node: usize) -> &str {
    cluster.nodes[node].peer.rsplit(':').next().unwrap()
}
