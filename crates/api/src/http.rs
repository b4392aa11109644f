//! HTTP for those who watch a node: `/metrics` in the text format of Prometheus, and `/health`.
//!
//! One thread serves all of it, beside the event loop, which it asks through a [`Monitor`]. Connections are few and
//! bounded, and a client that is slow to ask or to listen is dropped. Where the node speaks TLS, so does this.

use std::convert::Infallible;
use std::fmt::Write;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use quorate_core::Kind;
use quorate_node::monitor::{Health, Monitor, Report};
use quorate_tls::Credentials;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// Connections at a time; further ones wait to be accepted.
const CONNECTIONS: usize = 64;
/// For the head of a request, and for everything of a connection together.
const PATIENCE: Duration = Duration::from_secs(10);
/// An event loop that does not answer for so long does not serve either.
const STUCK: Duration = Duration::from_secs(3);
/// After the system refused to accept (no descriptors, usually).
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves until the process ends, in a thread of its own. Gives the address.
pub fn serve(listener: TcpListener, monitor: Monitor, tls: Option<Credentials>) -> io::Result<SocketAddr> {
    let address = listener.local_addr()?;
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("http".to_owned()).spawn(move || {
        runtime.block_on(async move {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => accept(listener, monitor, tls).await,
                Err(error) => tracing::error!("cannot serve metrics: {error}"),
            }
        });
    })?;
    Ok(address)
}

async fn accept(listener: tokio::net::TcpListener, monitor: Monitor, tls: Option<Credentials>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let monitor = monitor.clone();
        let acceptor = tls.as_ref().map(|tls| TlsAcceptor::from(tls.client_config()));
        tokio::spawn(async move {
            // Whoever is gone, speaks no HTTP, or does not come through the TLS handshake, misses the answer: nobody
            // else does.
            let _ = timeout(PATIENCE, async {
                match acceptor {
                    None => converse(stream, monitor).await,
                    Some(acceptor) => {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            converse(stream, monitor).await;
                        }
                    }
                }
            })
            .await;
            drop(place);
        });
    }
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, monitor: Monitor) {
    let service = service_fn(move |request| answer(request, monitor.clone()));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    let _ = connection.await;
}

async fn answer(request: Request<Incoming>, monitor: Monitor) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, kind, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => match ask(|reply| monitor.report(reply)).await {
            Some(report) => (StatusCode::OK, PROMETHEUS, exposition(&report)),
            None => (StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{NO_ANSWER}\n")),
        },
        (&Method::GET | &Method::HEAD, "/health") => {
            let health: Health =
                ask(|reply| monitor.health(reply)).await.unwrap_or(Err(NO_ANSWER.to_owned()));
            match health {
                Ok(()) => (StatusCode::OK, TEXT, "ok: serves linearizable requests\n".to_owned()),
                Err(why) => (StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("not serving: {why}\n")),
            }
        }
        (&Method::GET | &Method::HEAD, _) => {
            (StatusCode::NOT_FOUND, TEXT, "there are /metrics and /health\n".to_owned())
        }
        _ => (StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind.parse().expect("a constant that is a header value"));
    Ok(response)
}

const NO_ANSWER: &str = "the event loop does not answer";

async fn ask<T: Send + 'static>(question: impl FnOnce(Box<dyn FnOnce(T) + Send>)) -> Option<T> {
    let (sender, receiver) = oneshot::channel();
    question(Box::new(move |answer| _ = sender.send(answer)));
    timeout(STUCK, receiver).await.ok()?.ok()
}

/// The text format of Prometheus.
fn exposition(report: &Report) -> String {
    let mut out = String::new();
    let fact = |name: &str| {
        report.facts.iter().find(|(fact, _)| *fact == name).map_or("", |(_, value)| value).to_owned()
    };
    let mut metric = |name: &str, kind: &str, help: &str, labels: &str, value: &dyn std::fmt::Display| {
        let full = format!("quorate_{name}");
        if !out.contains(&format!("# TYPE {full} ")) {
            let _ = writeln!(out, "# HELP {full} {help}\n# TYPE {full} {kind}");
        }
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(out, "{full}{labels} {value}");
    };
    let status = &report.status;
    let about = format!(
        "protocol=\"{}\",version=\"{}\",node=\"{}\",cluster=\"{}\",site=\"{}\"",
        escaped(&fact("protocol")),
        escaped(&fact("version")),
        escaped(&fact("node_id")),
        escaped(&fact("cluster_id")),
        escaped(&fact("site"))
    );
    metric("info", "gauge", "What runs here.", &about, &1);
    let role = format!("role=\"{}\"", escaped(status.role));
    metric("role", "gauge", "What the replica is now: 1 for its present role.", &role, &1);
    let leader = status.leader.map_or(0, |node| node.get());
    metric("leader", "gauge", "Whom this node believes to lead; 0 for nobody.", "", &leader);
    metric(
        "committed",
        "gauge",
        "The last slot known to be decided with all before it.",
        "",
        &status.committed,
    );
    metric("applied", "gauge", "The last slot executed.", "", &status.applied);
    metric(
        "lease",
        "gauge",
        "Whether reads can be answered here without asking others.",
        "",
        &u8::from(status.lease),
    );
    for peer in &status.peers {
        let label = format!("peer=\"{}\"", peer.node);
        metric(
            "peer_lag",
            "gauge",
            "Slots that a member is behind what is committed here.",
            &label,
            &peer.lag,
        );
    }
    for peer in &status.peers {
        if let Some(heard) = peer.heard_ms {
            let label = format!("peer=\"{}\"", peer.node);
            let seconds = heard as f64 / 1000.0;
            metric("peer_silence_seconds", "gauge", "Since a member was last heard.", &label, &seconds);
        }
    }
    let (source, error) = (fact("clock_source"), fact("clock_bound_seconds"));
    let label = format!("source=\"{}\"", escaped(&source));
    metric("clock_source", "gauge", "Who knows how wrong the wall clock may be: 1.", &label, &1);
    let bound = error.parse::<f64>().ok();
    let known = u8::from(bound.is_some());
    metric("clock_synchronized", "gauge", "Whether the wall clock's error has a bound.", "", &known);
    if let Some(bound) = bound {
        metric("clock_bound_seconds", "gauge", "How wrong the wall clock may be.", "", &bound);
    }
    metric("uptime_seconds", "gauge", "Since this process began to serve.", "", &fact("uptime_seconds"));
    for sample in report.samples.iter().chain(&status.samples) {
        let kind = match sample.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let label = sample.label.map_or(String::new(), |label| format!("kind=\"{}\"", escaped(label)));
        metric(sample.name, kind, sample.help, &label, &sample.value);
    }
    if let Some(bytes) = resident() {
        metric("resident_bytes", "gauge", "Memory of this process.", "", &bytes);
    }
    out
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Memory of this process, where the system tells it.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use quorate_core::{Sample, Status};
    use quorate_node::metrics::Metrics;

    use super::*;

    #[test]
    fn each_metric_is_explained_once_and_every_line_is_a_sample() {
        let metrics = Metrics::default();
        metrics.messages_in_total.add("Accept", 2);
        metrics.messages_in_total.add("Commit", 1);
        metrics.loop_stall_seconds.set(Duration::from_millis(250));
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
        ];
        let facts = facts.map(|(name, value)| (name, value.to_owned())).into();
        let text = exposition(&Report { samples: metrics.samples(), status, facts });
        for line in [
            "quorate_info{protocol=\"a\\\"b\",version=\"\",node=\"\",cluster=\"\",site=\"\"} 1",
            "quorate_role{role=\"leader\"} 1",
            "quorate_committed 7",
            "quorate_lease 1",
            "quorate_hold_seconds_total 1.5",
            "quorate_clock_source{source=\"kernel\"} 1",
            "quorate_clock_synchronized 1",
            "quorate_clock_bound_seconds 0.0015",
            "quorate_uptime_seconds 5",
            "quorate_loop_stall_seconds 0.25",
            "quorate_messages_in_total{kind=\"Accept\"} 2",
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
}
