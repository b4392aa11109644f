//! `/metrics`: what operators' tools make of it. Its names follow Prometheus's conventions, by the rules of `promtool
//! check metrics`, and by that program itself where it is installed.

#[path = "support/http.rs"]
mod http;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use http::get;
use quorate_bench::Ports;
use support::{Cluster, Connection, Resp, wait_for};

/// Units and their parts that are not base units, and abbreviations.
const NO_UNITS: &str = "s ms us ns sec b kb mb gb tb pb m h d milliseconds microseconds nanoseconds minutes hours \
                        days kilobytes megabytes bits percent";

const DASHBOARD: &str = include_str!("../../../packaging/monitoring/grafana-dashboard.json");
const ALERTS: &str = include_str!("../../../packaging/monitoring/alerts.yml");

/// What is wrong with a page by the rules of `promtool check metrics`, and by those of the format.
fn lint(page: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
    let mut explained = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut current = "";
    for line in page.lines() {
        let mut complain = |what: &str| problems.push(format!("{what}: {line}"));
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            if help.is_empty() || !explained.insert(name) {
                complain("explained twice, or not");
            }
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, ""));
            if kinds.insert(name, kind).is_some() || !explained.contains(name) {
                complain("its type is stated twice, or before the help");
            }
            if (kind == "counter") != name.ends_with("_total") {
                complain("counters end in _total, and nothing else does");
            }
            if ["_count", "_sum", "_bucket"].iter().any(|suffix| name.ends_with(suffix)) {
                complain("the ending is a histogram's");
            }
            let mut parts = name.split('_');
            if parts.clone().any(|part| ["counter", "gauge", "histogram"].contains(&part)) {
                complain("the name says the type");
            }
            if parts.any(|part| NO_UNITS.split_whitespace().any(|unit| unit == part)) {
                complain("no base unit");
            }
            if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_') {
                complain("no snake case");
            }
            current = name;
            continue;
        }
        let end = line.find(['{', ' ']).unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        let histogram = kinds.get(current) == Some(&"histogram");
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        if name != current && !(histogram && base == Some(current)) {
            complain("it is not with its type");
        }
        let (labels, value) = rest.rsplit_once(' ').unwrap_or((rest, ""));
        if value.parse::<f64>().is_err() || !seen.insert((name, labels)) {
            complain("no number, or a second one");
        }
        let bounded = labels.contains("{le=\"") || labels.contains(",le=\"");
        if bounded != name.ends_with("_bucket") {
            complain("`le` is a histogram's label");
        }
    }
    problems
}

/// What Prometheus's own program says, where it is installed.
fn promtool(page: &str) -> Option<(bool, String)> {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

/// The value of a line that begins so.
fn value(page: &str, start: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(start)?.trim().parse().ok())
}

fn check(protocol: &str) {
    let ports = Ports::claim().unwrap();
    let http = [(); 3].map(|()| ports.address());
    let cluster = Cluster::start_each(3, protocol, |node| vec!["--listen-http".into(), http[node].clone()]);
    for node in &cluster.nodes {
        let mut connection = Connection::open(&node.resp).unwrap();
        for key in ["a", "b"] {
            let reply = connection.call(&[b"SET", key.as_bytes(), b"v", b"EX", b"1000"]).unwrap();
            assert_eq!(reply, Resp::Simple("OK".into()));
        }
        assert_eq!(connection.call(&[b"GET", b"a"]).unwrap(), Resp::Bulk(b"v".to_vec()));
        assert!(matches!(connection.call(&[b"INCR", b"a"]).unwrap(), Resp::Error(_)));
    }
    let mut traced = false;
    for address in &http {
        // A follower may learn of the last writes a little later, and some numbers are set a few times a second.
        let page = wait_for("the state to be shown", || {
            let (_, page) = get(address, "/metrics")?;
            let synced = value(&page, "quorate_log_sync_duration_seconds_count ")? >= 1.0;
            (synced && value(&page, "quorate_store_keys ") == Some(2.0)).then_some(page)
        });
        assert_eq!(lint(&page), [""; 0], "{protocol}");
        if let Some((fine, said)) = promtool(&page) {
            assert!(fine && said.is_empty(), "{protocol}: {said}");
        }
        let number = |start: &str| value(&page, start).unwrap_or_else(|| panic!("no {start} in\n{page}"));
        assert_eq!(number("quorate_store_keys_expiring "), 2.0);
        assert!(number("quorate_store_bytes ") > 2.0);
        assert_eq!(number("quorate_command_duration_seconds_count{command=\"set\"} "), 2.0);
        assert!(number("quorate_command_duration_seconds_sum{command=\"set\"} ") > 0.0);
        assert_eq!(number("quorate_command_errors_total{command=\"incr\"} "), 1.0);
        assert_eq!(number("quorate_command_errors_total{command=\"get\"} "), 0.0);
        assert!(number("quorate_disk_free_bytes ") > 0.0 && number("quorate_disk_size_bytes ") > 0.0);
        assert!(number("process_resident_memory_bytes ") > 1.0e6);
        assert!(number("process_open_fds ") > 3.0 && number("process_start_time_seconds ") > 1.0e9);
        traced |= value(&page, "quorate_slot_commit_duration_seconds_count ")
            .is_some_and(|count| count > 0.0)
            && page.contains("\nquorate_peer_round_trip_seconds_count{peer=\"");
    }
    // What the dashboard and the alerts ask for is there, at one of the nodes at least.
    let pages: Vec<_> = http.iter().map(|address| get(address, "/metrics").unwrap().1).collect();
    for file in [DASHBOARD, ALERTS] {
        let names = file.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in names.filter(|name| name.starts_with("quorate_") || name.starts_with("process_")) {
            let starts = ["\n# TYPE ", "\n"].map(|start| format!("{start}{name}"));
            let shown = |page: &String| {
                starts
                    .iter()
                    .any(|start| [" ", "{"].iter().any(|end| page.contains(&format!("{start}{end}"))))
            };
            // Of several groups: `groups.rs`.
            let is_here = protocol != "epaxos" && !name.starts_with("quorate_group_");
            assert!(!is_here || pages.iter().any(shown), "{protocol}: no {name}");
        }
    }
    assert!(
        traced || protocol == "epaxos",
        "{protocol}: the leader measures its slots, and round trips to the others"
    );
}

#[test]
fn metrics_of_bodega_follow_prometheus_conventions() {
    check("bodega");
}

#[test]
fn metrics_of_raft_follow_prometheus_conventions() {
    check("raft");
}

#[test]
fn metrics_of_epaxos_follow_prometheus_conventions() {
    check("epaxos");
}

/// A section of INFO: its fields with their values.
fn section(connection: &mut Connection, name: &str) -> BTreeMap<String, String> {
    let Resp::Bulk(info) = connection.call(&[b"INFO", name.as_bytes()]).unwrap() else {
        panic!("INFO is text")
    };
    let info = String::from_utf8(info).unwrap();
    let mut lines = info.lines();
    assert_eq!(lines.next(), Some(&*format!("# {name}")), "{info}");
    let fields = lines.filter_map(|line| line.split_once(':'));
    fields.map(|(field, value)| (field.to_owned(), value.to_owned())).collect()
}

/// What a document says of INFO: sections, and the fields of each.
fn documented_sections() -> Vec<(&'static str, BTreeSet<&'static str>)> {
    let (_, part) = include_str!("../../../docs/REDIS.md").split_once("\n## INFO\n").expect("its heading");
    let (part, _) = part.split_once("\n## ").expect("the next heading");
    let rows = part.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | ")).skip(1);
    let names = |fields: &'static str| {
        fields.split('`').skip(1).step_by(2).map(|field| field.split(':').next().unwrap())
    };
    rows.map(|(section, fields)| (section, names(fields).collect())).collect()
}

/// What a list of `name=number` says of a name.
fn number(list: &str, name: &str) -> u64 {
    let found = list.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no {name} in {list}")).parse().unwrap()
}

#[test]
fn info_has_the_fields_that_the_document_lists_and_counts() {
    let cluster = Cluster::start(1, "unreplicated");
    let mut connection = Connection::open(&cluster.nodes[0].resp).unwrap();
    let before = section(&mut connection, "Stats");
    for words in [&[&b"SET"[..], b"a", b"v"][..], &[b"SET", b"b", b"v", b"EX", b"1000"], &[b"GET", b"a"]] {
        assert!(!matches!(connection.call(words).unwrap(), Resp::Error(_)), "{words:?}");
    }
    assert!(matches!(connection.call(&[b"HGET", b"a", b"f"]).unwrap(), Resp::Error(_)));
    let sections = documented_sections();
    assert_eq!(sections.len(), 10, "{sections:?}");
    for (name, documented) in sections {
        let fields = section(&mut connection, name);
        let found: BTreeSet<_> = fields.keys().map(String::as_str).collect();
        match name {
            "Commandstats" => assert!(documented.is_subset(&found), "{found:?}"),
            _ => assert_eq!(found, documented, "{name}"),
        }
    }
    let memory = section(&mut connection, "Memory");
    for name in ["used_memory", "used_memory_dataset", "total_system_memory"] {
        assert!(memory[name].parse::<u64>().unwrap() > 0, "{name}: {memory:?}");
    }
    let keys = &section(&mut connection, "Keyspace")["db0"];
    // Whoever waited for the node may have asked, and written nothing.
    assert_eq!((number(keys, "keys"), number(keys, "expires")), (2, 1), "{keys}");
    let commands = section(&mut connection, "Commandstats");
    assert_eq!(number(&commands["cmdstat_set"], "calls"), 2);
    assert_eq!(number(&commands["cmdstat_hget"], "failed_calls"), 1);
    let after = section(&mut connection, "Stats");
    let grown = |name: &str| after[name].parse::<u64>().unwrap() - before[name].parse::<u64>().unwrap();
    assert!(grown("total_commands_processed") >= 4, "{before:?} {after:?}");
    assert_eq!(grown("total_error_replies"), 1, "{before:?} {after:?}");
    assert!(grown("total_net_input_bytes") > 0 && grown("total_net_output_bytes") > 0);
}

/// What an alert is for, and what it is not for: a line for the alert and whether it fires, and below it the series as
/// `promtool` spells them, every 15 seconds for twenty minutes. Without `quorate_` and, where they are the same in all,
/// without labels of the job and the instance.
const SITUATIONS: &str = r#"
QuorateNodeDown fires
  up 0x80
QuorateNodeDown is silent
  up 1x76 0x3
QuorateNoLeader fires
  info{protocol="raft"} 1x80
  leader 0x80
QuorateNoLeader fires
  info{protocol="raft in 2 groups split at h"} 1x80
  leader 0x80
QuorateNoLeader is silent
  info{protocol="raft"} 1x80
  leader 2x80
QuorateNoLeader is silent
  info{protocol="epaxos"} 1x80
  leader 0x80
QuorateNoLeader is silent
  info{protocol="epaxos in 2 groups split at h"} 1x80
  leader 0x80
QuorateNoLeader is silent
  info{protocol="unreplicated"} 1x80
  leader 0x80
QuorateGroupWithoutLeader fires
  group_leader{group="1",protocol="multipaxos"} 2x80
  group_leader{group="2",protocol="raft"} 0x80
QuorateGroupWithoutLeader is silent
  group_leader{group="1",protocol="multipaxos"} 2x80
  group_leader{group="2",protocol="raft"} 3x80
QuorateGroupWithoutLeader is silent
  group_leader{group="1",protocol="multipaxos"} 2x80
  group_leader{group="2",protocol="epaxos"} 0x80
# Once every minute and a half.
QuorateRequestsFail fires
  failures_total 0x40 1x5 2x5 3x5 4x5 5x5 6x5 7x5 8x5
# A moment's, three and a half minutes ago.
QuorateRequestsFail is silent
  failures_total 0x66 7x14
QuoratePeerUnreachable fires
  peers 4x80
  peers_up 3x80
QuoratePeerUnreachable is silent
  peers 4x80
  peers_up 4x80
QuoratePeerUnreachable is silent
  peers 0x80
  peers_up 0x80
QuorateMembersDiffer fires
  group_members_differ{instance="a"} 0x80
  group_members_differ{instance="b"} 1x80
QuorateMembersDiffer is silent
  group_members_differ{instance="a"} 0x80
  group_members_differ{instance="b"} 0x80
# Each of three leads in turn, none of them for five minutes.
QuoratePeerLags fires
  peer_lag{peer="9",instance="a"} _x39 200000x13 stale
  peer_lag{peer="9",instance="b"} _x53 200000x13 stale
  peer_lag{peer="9",instance="c"} _x67 200000x13
QuoratePeerLags is silent
  peer_lag{peer="9",instance="a"} _x39 5x13 stale
  peer_lag{peer="9",instance="b"} _x53 5x13 stale
  peer_lag{peer="9",instance="c"} _x67 5x13
QuorateDiskNearlyFull fires
  disk_nearly_full 1x80
QuorateDiskNearlyFull is silent
  disk_nearly_full 0x80
# By 2.4 GB in an hour, and by 1.2.
QuorateDiskFillsSoon fires
  disk_free_bytes 10000000000-10000000x80
  disk_reserve_bytes 1000000000x80
QuorateDiskFillsSoon is silent
  disk_free_bytes 10000000000-5000000x80
  disk_reserve_bytes 1000000000x80
QuorateMemoryNearlyUsedUp fires
  memory_nearly_used_up 1x80
QuorateMemoryNearlyUsedUp is silent
  memory_nearly_used_up 0x80
QuorateDataNearLimit fires
  store_bytes 95x80
  store_limit_bytes 100x80
QuorateDataNearLimit is silent
  store_bytes 85x80
  store_limit_bytes 100x80
QuorateDataNearLimit is silent
  store_bytes 95x80
  store_limit_bytes 0x80
# Of a hundred, five take longer than 100 ms; then one in a thousand.
QuorateSlowDisk fires
  log_sync_duration_seconds_bucket{le="0.1"} 0+95x80
  log_sync_duration_seconds_bucket{le="0.25"} 0+100x80
  log_sync_duration_seconds_bucket{le="+Inf"} 0+100x80
QuorateSlowDisk is silent
  log_sync_duration_seconds_bucket{le="0.1"} 0+999x80
  log_sync_duration_seconds_bucket{le="0.25"} 0+1000x80
  log_sync_duration_seconds_bucket{le="+Inf"} 0+1000x80
QuorateSlowCommits fires
  slot_commit_duration_seconds_bucket{le="1"} 0+95x80
  slot_commit_duration_seconds_bucket{le="2.5"} 0+100x80
  slot_commit_duration_seconds_bucket{le="+Inf"} 0+100x80
# Nothing was proposed.
QuorateSlowCommits is silent
  slot_commit_duration_seconds_bucket{le="1"} 95x80
  slot_commit_duration_seconds_bucket{le="2.5"} 100x80
  slot_commit_duration_seconds_bucket{le="+Inf"} 100x80
QuorateLoopStalls fires
  loop_stall_seconds 1.5x80
# One stall is shown for a minute.
QuorateLoopStalls is silent
  loop_stall_seconds 0.1x76 1.5x3
# Eleven days from now, and fifteen.
QuorateCertificateExpires fires
  tls_certificate_expiry_timestamp_seconds 950400x80
QuorateCertificateExpires is silent
  tls_certificate_expiry_timestamp_seconds 1297200x80
QuorateCertificateExpires is silent
  tls_certificate_expiry_timestamp_seconds 0x80
QuorateClockUnsynchronized fires
  clock_synchronized 0x80
QuorateClockUnsynchronized is silent
  clock_synchronized 1x80
QuorateClientsNearLimit fires
  clients 95x80
  clients_limit 100x80
QuorateClientsNearLimit is silent
  clients 85x80
  clients_limit 100x80
"#;

/// A series of [`SITUATIONS`] as `promtool` reads it.
fn input_series(line: &str) -> String {
    let line = line.trim();
    let (name, labels, values) = match line.split_once('{') {
        Some((name, rest)) => rest.split_once("} ").map(|(labels, values)| (name, labels, values)),
        None => line.split_once(' ').map(|(name, values)| (name, "", values)),
    }
    .unwrap();
    let prefix = if name == "up" { "" } else { "quorate_" };
    let instance = if labels.contains("instance=") { "" } else { "instance=\"a\"," };
    format!("  - series: '{prefix}{name}{{job=\"quorate\",{instance}{labels}}}'\n    values: '{values}'\n")
}

#[test]
fn each_alert_fires_for_what_it_is_for_and_for_nothing_else() {
    let lines = SITUATIONS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut verdicts: BTreeMap<&str, BTreeSet<bool>> = BTreeMap::new();
    let mut tests = String::new();
    for line in lines {
        if line.starts_with(' ') {
            tests += &input_series(line);
            continue;
        }
        let (alert, verdict) = line.split_once(' ').unwrap();
        let fires = verdict == "fires";
        assert!(fires || verdict == "is silent", "{line}");
        verdicts.entry(alert).or_default().insert(fires);
        // Once, whoever tells.
        let samples = if fires { "[{labels: '{}', value: 1}]" } else { "[]" };
        tests += &format!(
            "- interval: 15s\n  promql_expr_test:\n  - expr: \
             count(ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}})\n    eval_time: 20m\n    \
             exp_samples: {samples}\n  input_series:\n"
        );
    }
    let alerts = ALERTS.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    assert_eq!(verdicts, alerts.map(|alert| (alert, BTreeSet::from([false, true]))).collect());

    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/monitoring/alerts.yml");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("rule_files: ['{rules}']\ntests:\n{tests}")).unwrap();
    let Ok(tested) = Command::new("promtool").args(["test", "rules"]).arg(file.path()).output() else {
        return println!("not tried: it needs promtool");
    };
    let said = [tested.stdout, tested.stderr].concat();
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn the_lint_notices_what_promtool_would() {
    let fine = "# HELP a_total Words.\n# TYPE a_total counter\na_total 1\n";
    assert_eq!(lint(fine), [""; 0]);
    let histogram =
        "# HELP x_seconds W.\n# TYPE x_seconds histogram\nx_seconds_bucket{le=\"1\"} 1\nx_seconds_sum 1\n";
    assert_eq!(lint(histogram), [""; 0]);
    for wrong in [
        "# HELP a Words.\n# TYPE a counter\na 1\n",
        "# HELP a_total Words.\n# TYPE a_total gauge\na_total 1\n",
        "# TYPE a gauge\na 1\n",
        "# HELP a_ms Words.\n# TYPE a_ms gauge\na_ms 1\n",
        "# HELP a_count Words.\n# TYPE a_count gauge\na_count 1\n",
        "# HELP a Words.\n# TYPE a gauge\na 1\na 2\n",
        "# HELP a Words.\n# TYPE a gauge\nb 1\n",
        "# HELP a Words.\n# TYPE a gauge\na{le=\"1\"} 1\n",
        "# HELP aB Words.\n# TYPE aB gauge\naB 1\n",
        "# HELP gauge_a Words.\n# TYPE gauge_a gauge\ngauge_a 1\n",
    ] {
        assert!(!lint(wrong).is_empty(), "{wrong}");
    }
}

#[test]
fn who_sends_half_a_request_keeps_nobody_from_asking_whether_the_node_is_alive() {
    let ports = Ports::claim().unwrap();
    let http = ports.address();
    let _cluster = Cluster::start_with(1, "unreplicated", &["--listen-http", &http]);
    let half: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(&http).unwrap();
            stream.write_all(b"GET /livez HTTP/1.1\r\n").unwrap();
            stream
        })
        .collect();
    let (status, _) = get(&http, "/livez").unwrap();
    assert_eq!(status, "200");
    // The oldest of the others have made room. Nobody waited until their time was up: then all of them but eight would
    // be gone, which were the last to be let in.
    let is_open = |stream: &&TcpStream| {
        stream.set_nonblocking(true).unwrap();
        stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    let open = half.iter().filter(is_open).count();
    assert!((32..=64).contains(&open), "{open}");
}
