//! Spans of requests for an OpenTelemetry collector: OTLP 1, as JSON over HTTP.
//!
//! A request is a span of the kind *server*, and each of its stages ([`quorate_node::slow`]) a span below it. Clients
//! of Redis send no trace context, so each request is a trace of its own. There are neither keys nor values in it.
//!
//! This is done by a thread of its own, which the event loop does not wait for. What a collector does not take is lost
//! and counted: a collector that is away for long would otherwise be sent what is of no use any more.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use quorate_core::{NodeId, Random};
use quorate_node::slow::SlowRequest;
use quorate_node::spans::{SpanCounts, SpanQueue};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};
use tracing::{info, warn};

/// Requests in one message to the collector.
const BATCH: usize = 256;
/// How long the first request of a message waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// How long connecting may take, and each wait for the collector then.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a process that stops waits until its last spans are sent.
const FINISH: Duration = Duration::from_secs(2);
/// The log has a line about a collector that takes nothing once in this time.
const COMPLAIN: Duration = Duration::from_secs(60);
/// Of the collector's answer, the first line only is of use.
const STATUS_LINE: u64 = 1024;
/// The port of collectors, for OTLP over HTTP.
const PORT: u16 = 4318;
/// The path of spans below that of the collector.
const TRACES: &str = "/v1/traces";

/// `http://HOST[:PORT][/PATH]`: where spans are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// With its port.
    address: String,
    path: String,
}

impl FromStr for Endpoint {
    type Err = &'static str;

    fn from_str(url: &str) -> Result<Endpoint, &'static str> {
        const EXAMPLE: &str = "write the collector's URL, such as http://127.0.0.1:4318";
        if url.starts_with("https://") {
            return Err(
                "spans are sent over http:// only; let a collector on this host send them on over TLS",
            );
        }
        let rest = url.strip_prefix("http://").ok_or(EXAMPLE)?;
        let (host, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        let visible = |byte: u8| byte.is_ascii_graphic() && !b"@?#".contains(&byte);
        if host.is_empty() || !url.bytes().all(visible) {
            return Err(EXAMPLE);
        }
        let with_port = format!("{host}:{PORT}");
        let fits = |address: &&str| quorate_node::config::check_address(address).is_ok();
        let address = [host, &with_port].into_iter().find(fits).ok_or(EXAMPLE)?.to_owned();
        let path = path.trim_end_matches('/');
        Ok(Endpoint { address, path: format!("{}{TRACES}", path.strip_suffix(TRACES).unwrap_or(path)) })
    }
}

impl Endpoint {
    /// Sends one message. An error if the collector has not taken it.
    fn post(&self, body: &[u8]) -> io::Result<()> {
        let mut socket = connect(self.address.to_socket_addrs()?)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let Endpoint { address, path } = self;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            body.len()
        );
        socket.write_all(&[head.as_bytes(), body].concat())?;
        let mut status = String::new();
        BufReader::new(socket).take(STATUS_LINE).read_line(&mut status)?;
        match status.split(' ').nth(1) {
            Some(code) if code.len() == 3 && code.starts_with('2') => Ok(()),
            _ => Err(io::Error::other(format!("it answers {:?}", status.trim_end()))),
        }
    }
}

/// Connects to the first of a host's addresses at which somebody listens: `localhost` is often `::1` before it is
/// `127.0.0.1`.
fn connect(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(socket) => return Ok(socket),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// What all spans of this process have in common.
struct Source {
    resource: Value,
    random: Random,
}

impl Source {
    /// So many bytes in hexadecimal digits, as ids are written; not all of them zero.
    fn id(&mut self, bytes: usize) -> String {
        let mut id = String::new();
        while id.len() < 2 * bytes {
            let _ = write!(id, "{:016x}", self.random.u64().max(1));
        }
        id
    }

    /// The message that has these requests.
    fn message(&mut self, requests: &[SlowRequest]) -> Value {
        let spans: Vec<_> = requests.iter().flat_map(|request| self.spans(request)).collect();
        json!({ "resourceSpans": [{
            "resource": self.resource,
            "scopeSpans": [{ "scope": { "name": "quorate" }, "spans": spans }],
        }] })
    }

    /// The span of a request, and those of its stages.
    fn spans(&mut self, request: &SlowRequest) -> Vec<Value> {
        let SlowRequest { ended, took, asked, address, group, slot, stages, .. } = request;
        let (trace, parent) = (self.id(16), self.id(8));
        let begin = Duration::from_millis(ended.millis()).saturating_sub(*took);
        let nanos = |time: Duration| time.as_nanos().to_string();
        let mut attributes = vec![
            text("db.system.name", "quorate"),
            text("db.operation.name", asked.command),
            text("client.address", address),
        ];
        attributes.extend(group.map(|group| number("quorate.group", group.get().into())));
        attributes.extend(slot.map(|slot| number("quorate.slot", slot)));
        if !asked.client.is_empty() {
            attributes.push(text("quorate.client.name", &asked.client));
        }
        let failed = stages.last().is_some_and(|(stage, _)| *stage == "failed");
        let mut spans = vec![json!({
            "traceId": trace,
            "spanId": parent,
            "name": asked.command,
            "kind": 2,
            "startTimeUnixNano": nanos(begin),
            "endTimeUnixNano": nanos(begin + *took),
            "attributes": attributes,
            "status": if failed { json!({ "code": 2, "message": "given up" }) } else { json!({}) },
        })];
        let mut start = begin;
        for (stage, took) in stages {
            let end = start + *took;
            spans.push(json!({
                "traceId": trace,
                "spanId": self.id(8),
                "parentSpanId": parent,
                "name": stage,
                "kind": 1,
                "startTimeUnixNano": nanos(start),
                "endTimeUnixNano": nanos(end),
            }));
            start = end;
        }
        spans
    }
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn number(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

/// The thread that sends spans.
#[derive(Debug)]
pub struct Exporter {
    /// Says nothing, and ends with the thread.
    ended: Receiver<()>,
}

impl Exporter {
    /// Sends what comes into the queue that is given: slow requests, and of the others the part `sampled`. `node` is
    /// none for a proxy alone.
    pub fn start(
        endpoint: Endpoint,
        sampled: f64,
        node: Option<NodeId>,
        protocol: &str,
    ) -> io::Result<(SpanQueue, Exporter)> {
        let mut seed = [0; 8];
        SystemRandom::new()
            .fill(&mut seed)
            .map_err(|_| io::Error::other("the system gives no random numbers"))?;
        let mut attributes = vec![
            text("service.name", "quorate"),
            text("service.version", env!("CARGO_PKG_VERSION")),
            text("quorate.protocol", protocol),
        ];
        attributes.extend(node.map(|node| text("service.instance.id", &node.to_string())));
        let resource = json!({ "attributes": attributes });
        let source = Source { resource, random: Random::new(u64::from_le_bytes(seed)) };
        let (queue, requests, counts) = SpanQueue::new(sampled);
        let (end, ended) = mpsc::channel();
        let Endpoint { address, path } = &endpoint;
        info!(sampled, "spans of slow requests go to http://{address}{path}");
        thread::Builder::new().name("spans".to_owned()).spawn(move || {
            export(&endpoint, source, &requests, &counts);
            drop(end);
        })?;
        Ok((queue, Exporter { ended }))
    }

    /// Once the event loop has ended: waits until what it left is sent, but not for long.
    pub fn finish(self) {
        if self.ended.recv_timeout(FINISH) == Err(mpsc::RecvTimeoutError::Timeout) {
            warn!("the last spans are lost: the collector has not taken them within {FINISH:?}");
        }
    }
}

/// Sends requests until the queue is empty and nobody can put more into it.
fn export(
    endpoint: &Endpoint,
    mut source: Source,
    requests: &Receiver<SlowRequest>,
    counts: &Arc<SpanCounts>,
) {
    let mut complained: Option<Instant> = None;
    while let Ok(first) = requests.recv() {
        let until = Instant::now() + GATHER;
        let mut batch = vec![first];
        while batch.len() < BATCH
            && let Ok(next) = requests.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            batch.push(next);
        }
        match endpoint.post(source.message(&batch).to_string().as_bytes()) {
            Ok(()) => counts.add_exported(batch.len()),
            Err(why) => {
                counts.add_dropped(batch.len());
                if complained.is_none_or(|last| last.elapsed() >= COMPLAIN) {
                    warn!(
                        requests = batch.len(),
                        "the collector at {} takes no spans: {why}", endpoint.address
                    );
                    complained = Some(Instant::now());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use quorate_core::Wall;
    use quorate_node::slow::Described;

    use super::*;

    #[test]
    fn an_endpoint_has_a_host_and_may_have_port_and_path() {
        let read =
            |url: &str| url.parse::<Endpoint>().map(|Endpoint { address, path }| format!("{address} {path}"));
        for (url, wanted) in [
            ("http://collector", "collector:4318 /v1/traces"),
            ("http://[::1]:9/", "[::1]:9 /v1/traces"),
            ("http://127.0.0.1:4318/v1/traces", "127.0.0.1:4318 /v1/traces"),
            ("http://proxy:80/otlp/", "proxy:80 /otlp/v1/traces"),
        ] {
            assert_eq!(read(url).as_deref(), Ok(wanted), "{url}");
        }
        for url in [
            "",
            "collector:4318",
            "http://",
            "http:///x",
            "http://a:b",
            "http://a b",
            "http://u@a",
            "http://a/\r\nX: y",
        ] {
            assert!(read(url).unwrap_err().contains("such as http://127.0.0.1:4318"), "{url}");
        }
        assert!(read("https://collector").unwrap_err().contains("over TLS"));
    }

    #[test]
    fn a_collector_is_reached_at_whichever_of_its_addresses_it_listens() {
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let address = |listener: &TcpListener| listener.local_addr().unwrap();
        let (closed, open) = (address(&listen()), listen());
        let socket = connect([closed, address(&open)].into_iter()).unwrap();
        assert_eq!(socket.peer_addr().unwrap(), address(&open));
        assert!(connect([closed].into_iter()).is_err());
        assert!(connect([].into_iter()).unwrap_err().to_string().contains("has no address"));
    }

    #[test]
    fn stages_fill_the_span_of_their_request() {
        let ms = Duration::from_millis;
        let request = SlowRequest {
            number: 0,
            ended: Wall::from_millis(5_000),
            took: ms(12),
            asked: Described { command: "set", client: "shop".to_owned() },
            address: "127.0.0.1:9".to_owned(),
            group: None,
            slot: Some(7),
            stages: vec![("queued", ms(2)), ("failed", ms(10))],
        };
        let mut source = Source { resource: json!({}), random: Random::new(1) };
        let spans = source.spans(&request);
        let drawn: Vec<_> = spans
            .iter()
            .map(|span| {
                ["name", "startTimeUnixNano", "endTimeUnixNano"].map(|field| span[field].as_str().unwrap())
            })
            .collect();
        assert_eq!(
            drawn,
            [
                ["set", "4988000000", "5000000000"],
                ["queued", "4988000000", "4990000000"],
                ["failed", "4990000000", "5000000000"],
            ]
        );
        assert_eq!(spans[0]["status"]["code"], 2, "it was given up");
        assert!(spans[1..].iter().all(|stage| stage["parentSpanId"] == spans[0]["spanId"]));
        assert!(spans.iter().all(|span| span["traceId"] == spans[0]["traceId"]));
        let lengths = ["traceId", "spanId"].map(|id| spans[0][id].as_str().unwrap().len());
        assert_eq!(lengths, [32, 16]);
    }
}
