//! HTTP for those who watch a node: `/metrics` in the text format of Prometheus, whether it is well, and a page for
//! people.
//!
//! | path | 200 while |
//! |---|---|
//! | `/` | always: the page of `page`, which asks for `/status.json` |
//! | `/status.json` | the event loop answers |
//! | `/livez` | the event loop answers: what is not alive is worth a restart |
//! | `/readyz` | a linearizable read succeeds and the disk has room: what is not ready is worth no requests |
//! | `/health` | a linearizable read succeeds |
//!
//! Where the keys are divided among groups of replicas, a read of each must succeed; the reason names those whose does
//! not.
//!
//! One thread serves all of it, beside the event loop, which it asks through a [`Monitor`]. Connections are few and
//! bounded, and a client that is slow to ask or to listen is dropped. Where the node speaks TLS, so does this.

mod page;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::{Display, Write};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, X_CONTENT_TYPE_OPTIONS};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use quorate_core::{Amount, Kind, NodeId, Sample, Status};
use quorate_node::monitor::{Health, MEMBERS_DIFFER, Monitor, Report, WARNING_DISK, WARNING_MEMORY};
use quorate_tls::Credentials;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::process::ProcessStats;
use crate::resp::{KeyGroups, KeyScope};

/// Connections at a time. One more takes the place of the oldest: an answer takes milliseconds, so that is one whose
/// client is slow, and it must not keep out who asks whether the node is alive.
const CONNECTIONS: usize = 64;
/// For the head of a request, and for everything of a connection together.
const PATIENCE: Duration = Duration::from_secs(10);
/// An event loop that does not answer for so long does not serve either.
const STUCK: Duration = Duration::from_secs(3);
/// After the system refused to accept (no descriptors, usually).
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

/// The Content-Security-Policy of everything but the page.
const NO_CONTENT: &str = "default-src 'none'; frame-ancestors 'none'";

/// What is watched: a node, and how its keys are divided among groups, if they are.
#[derive(Clone)]
struct Watched {
    monitor: Monitor,
    key_scope: KeyScope,
}

/// Serves until the process ends, in a thread of its own. Gives the address.
pub fn serve(
    listener: TcpListener,
    monitor: Monitor,
    key_scope: KeyScope,
    tls: Option<Credentials>,
) -> io::Result<SocketAddr> {
    let watched = Watched { monitor, key_scope };
    let address = listener.local_addr()?;
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("http".to_owned()).spawn(move || {
        runtime.block_on(async move {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => accept(listener, watched, tls).await,
                Err(error) => tracing::error!("cannot serve metrics: {error}"),
            }
        });
    })?;
    Ok(address)
}

async fn accept(listener: tokio::net::TcpListener, watched: Watched, tls: Option<Credentials>) {
    // The oldest first.
    let mut connections: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let watched = watched.clone();
        let acceptor = tls.as_ref().map(|tls| TlsAcceptor::from(tls.client_config()));
        connections.retain(|connection| !connection.is_finished());
        if connections.len() >= CONNECTIONS
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
        let connection = tokio::spawn(async move {
            // Whoever is gone, speaks no HTTP, or does not come through the TLS handshake, misses the answer: nobody
            // else does.
            let _ = timeout(PATIENCE, async {
                match acceptor {
                    None => converse(stream, |request| answer(request, watched.clone())).await,
                    Some(_) if is_plain(&stream).await => converse(stream, ask_for_tls).await,
                    Some(acceptor) => {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            converse(stream, |request| answer(request, watched.clone())).await;
                        }
                    }
                }
            })
            .await;
        });
        connections.push_back(connection.abort_handle());
    }
}

/// Whether somebody speaks HTTP where TLS is spoken: a method is in letters, and no record of TLS begins with one.
async fn is_plain(stream: &tokio::net::TcpStream) -> bool {
    let mut first = [0];
    matches!(stream.peek(&mut first).await, Ok(1)) && first[0].is_ascii_alphabetic()
}

/// Serves one connection by these answers.
async fn converse<A>(stream: impl AsyncRead + AsyncWrite + Unpin, answer: impl Fn(Request<Incoming>) -> A)
where
    A: Future<Output = Result<Response<Full<Bytes>>, Infallible>>,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    let _ = connection.await;
}

/// Tells whoever speaks plain HTTP where TLS is spoken.
async fn ask_for_tls(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("HOST:PORT");
    let body = format!("this port speaks TLS: https://{host}{}\n", request.uri().path());
    Ok(response(StatusCode::BAD_REQUEST, TEXT, NO_CONTENT, body))
}

async fn answer(request: Request<Incoming>, watched: Watched) -> Result<Response<Full<Bytes>>, Infallible> {
    let (monitor, mut policy) = (&watched.monitor, NO_CONTENT.to_owned());
    let (status, kind, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/") => match page::page() {
            Some((page, its_policy)) => {
                policy = its_policy;
                (StatusCode::OK, HTML, page)
            }
            None => (StatusCode::INTERNAL_SERVER_ERROR, TEXT, "no random number\n".to_owned()),
        },
        (&Method::GET | &Method::HEAD, "/status.json") => {
            let health = health(monitor).await;
            match ask(|reply| monitor.report(reply)).await {
                Some(report) => {
                    let text = page::describe(report, &health, watched.key_scope.groups());
                    (StatusCode::OK, JSON, text.to_string())
                }
                None => (StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{NO_ANSWER}\n")),
            }
        }
        (&Method::GET | &Method::HEAD, "/metrics") => match ask(|reply| monitor.report(reply)).await {
            Some(report) => {
                let groups = watched.key_scope.groups();
                (StatusCode::OK, PROMETHEUS, exposition(&report, groups, ProcessStats::read()))
            }
            None => (StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{NO_ANSWER}\n")),
        },
        (&Method::GET | &Method::HEAD, "/livez") => match ask(|reply| monitor.report(reply)).await {
            Some(_) => (StatusCode::OK, TEXT, "ok: the event loop answers\n".to_owned()),
            None => (StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("not alive: {NO_ANSWER}\n")),
        },
        (&Method::GET | &Method::HEAD, "/readyz") => {
            let health = health(monitor).await;
            let report = ask(|reply| monitor.report(reply)).await;
            let facts = report.map_or(Vec::new(), |report| report.facts);
            let (ready, body) = readiness(&health, &facts, request.uri().query().unwrap_or_default());
            let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            (status, TEXT, body)
        }
        (&Method::GET | &Method::HEAD, "/health") => match health(monitor).await {
            Ok(()) => (StatusCode::OK, TEXT, "ok: serves linearizable requests\n".to_owned()),
            Err(why) => (StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("not serving: {why}\n")),
        },
        (&Method::GET | &Method::HEAD, _) => (
            StatusCode::NOT_FOUND,
            TEXT,
            "there are /, /status.json, /metrics, /livez, /readyz and /health\n".to_owned(),
        ),
        _ => (StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET\n".to_owned()),
    };
    Ok(response(status, kind, &policy, body))
}

fn response(status: StatusCode, kind: &str, policy: &str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CACHE_CONTROL, "no-store"),
    ] {
        response.headers_mut().insert(name, value.parse().expect("a constant, or a policy: a header value"));
    }
    response
}

/// Whether this node is to be sent requests, and a line for each check, as Kubernetes writes them. `?exclude=disk`
/// leaves a check out. Too little memory is said, but no reason to send nothing: with the same data in all members,
/// nobody would be left.
fn readiness(health: &Health, facts: &[(&'static str, String)], query: &str) -> (bool, String) {
    let warning = |name: &str| facts.iter().find(|(fact, _)| *fact == name).map(|(_, words)| words.clone());
    let excluded = |check: &str| query.split('&').any(|word| word.strip_prefix("exclude=") == Some(check));
    let checks = [
        ("read", health.as_ref().err().cloned(), true),
        ("disk", warning(WARNING_DISK), true),
        ("memory", warning(WARNING_MEMORY), false),
    ];
    let (mut ready, mut body) = (true, String::new());
    for (check, problem, counts) in checks {
        let _ = match problem {
            _ if excluded(check) => writeln!(body, "[+]{check} excluded: ok"),
            None => writeln!(body, "[+]{check} ok"),
            Some(words) if !counts => writeln!(body, "[!]{check} {words}"),
            Some(words) => {
                ready = false;
                writeln!(body, "[-]{check} failed: {words}")
            }
        };
    }
    let _ = writeln!(body, "{}", if ready { "ready" } else { "not ready" });
    (ready, body)
}

const NO_ANSWER: &str = "the event loop does not answer";

async fn health(monitor: &Monitor) -> Health {
    ask(|reply| monitor.health(reply)).await.unwrap_or_else(|| Err(NO_ANSWER.to_owned()))
}

async fn ask<T: Send + 'static>(question: impl FnOnce(Box<dyn FnOnce(T) + Send>)) -> Option<T> {
    let (sender, receiver) = oneshot::channel();
    question(Box::new(move |answer| _ = sender.send(answer)));
    timeout(STUCK, receiver).await.ok()?.ok()
}

/// The text format of Prometheus, and the names of its conventions: base units, `_total` for what only grows.
fn exposition(report: &Report, groups: Option<&KeyGroups>, process: Option<ProcessStats>) -> String {
    let fact = |name: &str| {
        report.facts.iter().find(|(fact, _)| *fact == name).map_or("", |(_, value)| value).to_owned()
    };
    let status = &report.status;
    let mut page = Page::default();
    let about = [
        ("protocol", fact("protocol")),
        ("version", fact("version")),
        ("node", fact("node_id")),
        ("cluster", fact("cluster_id")),
        ("site", fact("site")),
    ];
    page.gauge("info", "What runs here.", &about, 1);
    let role = [("role", status.role.to_owned())];
    page.gauge("role", "What the replica is now: 1 for its present role.", &role, 1);
    let leader_of = |status: &Status| status.leader.map_or(0, |node| node.get());
    page.gauge("leader", "Whom this node believes to lead; 0 for nobody.", &[], leader_of(status));
    let protocols = groups.into_iter().flat_map(KeyGroups::protocols);
    for ((group, protocol), status) in protocols.zip(&report.groups) {
        let help = "Whom this node believes to lead a group of keys (--groups); 0 for nobody.";
        let about = [("group", group.to_string()), ("protocol", protocol.to_owned())];
        page.gauge("group_leader", help, &about, leader_of(status));
    }
    if groups.is_some() {
        let help = "Whether groups of keys (--groups) have different members, as while members change.";
        page.gauge("group_members_differ", help, &[], u8::from(!fact(MEMBERS_DIFFER).is_empty()));
    }
    page.gauge("committed", "The last slot known to be decided with all before it.", &[], status.committed);
    page.gauge("applied", "The last slot executed.", &[], status.applied);
    let help = "Whether reads can be answered here without asking others.";
    page.gauge("lease", help, &[], u8::from(status.lease));
    let peer = |node: NodeId| [("peer", node.to_string())];
    for member in &status.peers {
        let help = "Slots that a member is behind what is committed here.";
        page.gauge("peer_lag", help, &peer(member.node), member.lag);
    }
    for member in &status.peers {
        if let Some(heard) = member.heard_ms {
            let help = "Since a member was last heard.";
            page.gauge("peer_silence_seconds", help, &peer(member.node), heard as f64 / 1000.0);
        }
    }
    let source = [("source", fact("clock_source"))];
    page.gauge("clock_source", "Who knows how wrong the wall clock may be: 1.", &source, 1);
    let bound = fact("clock_bound_seconds").parse::<f64>().ok();
    let help = "Whether the wall clock's error has a bound.";
    page.gauge("clock_synchronized", help, &[], u8::from(bound.is_some()));
    if let Some(bound) = bound {
        page.gauge("clock_bound_seconds", "How wrong the wall clock may be.", &[], bound);
    }
    page.gauge("uptime_seconds", "Since this process began to serve.", &[], fact("uptime_seconds"));
    for sample in report.samples.iter().chain(&status.samples) {
        page.sample(sample);
    }
    page.process(process);
    page.out
}

/// Metrics as they are written one after the other; those of one name must come together.
#[derive(Default)]
struct Page {
    out: String,
    /// The name that was explained last.
    explained: String,
}

impl Page {
    fn explain(&mut self, name: &str, kind: &str, help: &str) {
        if self.explained != name {
            let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            self.explained = name.to_owned();
        }
    }

    fn line(&mut self, name: &str, labels: &[(&str, String)], value: impl Display) {
        let labels: Vec<_> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.out, "{name}{labels} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, labels: &[(&str, String)], value: impl Display) {
        let name = format!("quorate_{name}");
        self.explain(&name, "gauge", help);
        self.line(&name, labels, value);
    }

    fn sample(&mut self, sample: &Sample) {
        let name = format!("quorate_{}", sample.name);
        let labels: Vec<_> =
            sample.label.iter().map(|(label, value)| (*label, value.clone().into_owned())).collect();
        let kind = match sample.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.explain(&name, kind, sample.help);
        let Amount::Times(times) = &sample.value else { return self.line(&name, &labels, &sample.value) };
        let bounds = times.buckets().map(|(bound, count)| (bound.as_secs_f64().to_string(), count));
        for (bound, count) in bounds.chain([("+Inf".to_owned(), times.count())]) {
            let labels = [&labels[..], &[("le", bound)]].concat();
            self.line(&format!("{name}_bucket"), &labels, count);
        }
        self.line(&format!("{name}_sum"), &labels, times.total().as_secs_f64());
        self.line(&format!("{name}_count"), &labels, times.count());
    }

    /// Under the names that all of Prometheus's clients use.
    fn process(&mut self, process: Option<ProcessStats>) {
        let Some(process) = process else { return };
        let mut one = |name: &str, kind: &str, help: &str, value: &dyn Display| {
            let name = format!("process_{name}");
            self.explain(&name, kind, help);
            self.line(&name, &[], value);
        };
        let help = "Time on processors, of all threads, in user and in system mode.";
        one("cpu_seconds_total", "counter", help, &process.cpu_seconds);
        one("resident_memory_bytes", "gauge", "Memory of this process.", &process.resident);
        one("virtual_memory_bytes", "gauge", "Address space of this process.", &process.mapped);
        one("open_fds", "gauge", "File descriptors in use.", &process.descriptors);
        if let Some(limit) = process.descriptors_limit {
            one("max_fds", "gauge", "File descriptors that may be in use.", &limit);
        }
        one("start_time_seconds", "gauge", "When this process began, since 1970.", &process.started);
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quorate_core::Members;
    use quorate_node::metrics::Metrics;
    use quorate_store::Partition;

    use super::*;

    #[test]
    fn each_metric_is_explained_once_and_every_line_is_a_sample() {
        let metrics = Metrics::default();
        metrics.messages_in_total.add("Accept", 2);
        metrics.messages_in_total.add("Commit", 1);
        metrics.loop_stall_seconds.set(Duration::from_millis(250));
        metrics.log_sync_duration_seconds.add(Duration::from_micros(300));
        metrics.log_sync_duration_seconds.add(Duration::from_secs(60));
        let status = Status {
            role: "leader",
            leader: None,
            ballot: String::new(),
            committed: 7,
            applied: 6,
            lease: true,
            reads: "lease",
            peers: Vec::new(),
            samples: vec![Sample::counter(
                "hold_seconds_total",
                Duration::from_millis(1500),
                "All holds together.",
            )],
            facts: Vec::new(),
        };
        let facts = [
            ("protocol", "a\"b"),
            ("uptime_seconds", "5"),
            ("clock_source", "kernel"),
            ("clock_bound_seconds", "0.0015"),
            (MEMBERS_DIFFER, "group 2 has node 4"),
        ];
        let facts = facts.map(|(name, value)| (name, value.to_owned())).into();
        let process = ProcessStats { cpu_seconds: 1.25, resident: 4096, ..ProcessStats::default() };
        let report = Report {
            samples: metrics.samples(),
            status,
            facts,
            groups: Vec::new(),
            members: Members::default(),
            contacts: Vec::new(),
            slow: Vec::new(),
        };
        let groups = KeyGroups::new(Arc::new(Partition::even(2).unwrap()), vec!["raft"; 2]);
        let text = exposition(&report, Some(&groups), Some(process));
        for line in [
            "quorate_info{protocol=\"a\\\"b\",version=\"\",node=\"\",cluster=\"\",site=\"\"} 1",
            "quorate_role{role=\"leader\"} 1",
            "quorate_group_members_differ 1",
            "quorate_committed 7",
            "quorate_lease 1",
            "quorate_hold_seconds_total 1.5",
            "quorate_clock_source{source=\"kernel\"} 1",
            "quorate_clock_synchronized 1",
            "quorate_clock_bound_seconds 0.0015",
            "quorate_uptime_seconds 5",
            "quorate_loop_stall_seconds 0.25",
            "quorate_messages_in_total{kind=\"Accept\"} 2",
            "quorate_log_sync_duration_seconds_bucket{le=\"0.00025\"} 0",
            "quorate_log_sync_duration_seconds_bucket{le=\"0.0005\"} 1",
            "quorate_log_sync_duration_seconds_bucket{le=\"+Inf\"} 2",
            "quorate_log_sync_duration_seconds_sum 60.0003",
            "quorate_log_sync_duration_seconds_count 2",
            "# TYPE quorate_log_sync_duration_seconds histogram",
            "process_cpu_seconds_total 1.25",
            "process_resident_memory_bytes 4096",
            "quorate_messages_in_total{kind=\"Commit\"} 1",
            "# TYPE quorate_clients gauge",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert_eq!(text.matches("# TYPE quorate_messages_in_total counter").count(), 1);
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (_, value) = line.rsplit_once(' ').expect("a name and a value");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }

    #[test]
    fn a_node_is_ready_while_it_serves_and_its_disk_has_room() {
        let (well, cut_off) = (Health::Ok(()), Health::Err("nobody leads".to_owned()));
        let low = |name| vec![(name, "nearly full".to_owned())];
        let all = "[+]read ok\n[+]disk ok\n[+]memory ok\nready\n";
        assert_eq!(readiness(&well, &[], ""), (true, all.to_owned()));
        let (ready, text) = readiness(&cut_off, &[], "");
        assert_eq!((ready, text.lines().next()), (false, Some("[-]read failed: nobody leads")));
        let (ready, text) = readiness(&well, &low(WARNING_DISK), "");
        assert!(!ready && text.contains("[-]disk failed: nearly full\n") && text.ends_with("not ready\n"));
        let (ready, text) = readiness(&well, &low(WARNING_DISK), "verbose&exclude=disk");
        assert!(ready && text.contains("[+]disk excluded"), "{text}");
        let (ready, text) = readiness(&well, &low(WARNING_MEMORY), "");
        assert!(ready && text.contains("[!]memory nearly full\n"), "{text}");
    }
}
