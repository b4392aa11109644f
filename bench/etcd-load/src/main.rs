//! Drives etcd for bench/compare: `etcd-load ENDPOINT load|set|get CLIENTS KEYS VALUE_BYTES WARM_UP_S SECONDS`.
//!
//! Each client puts or gets one key after another (linearizable, etcd's default) over gRPC, spread over several
//! HTTP/2 connections so that none of them is the bottleneck. `load` puts every key once. Prints one line of JSON
//! in the form of `quorate bench --json`. The two messages needed are encoded by hand: they are simple, and generated
//! code would need `protoc`.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use hdrhistogram::Histogram;
use tokio::net::TcpStream;

type Failure = Box<dyn std::error::Error>;

/// Clients that share one HTTP/2 connection.
const SHARE: usize = 8;
const WINDOW: u32 = 1 << 20;

struct Options {
    endpoint: String,
    mode: String,
    clients: usize,
    keys: u64,
    value: Bytes,
    warm_up: Duration,
    duration: Duration,
}

struct Totals {
    latencies: Histogram<u64>,
    errors: u64,
    first_error: Option<String>,
    /// The next key to load.
    next: u64,
    random: u64,
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [endpoint, mode, clients, keys, value, warm_up, duration] = words.as_slice() else {
        return Err("etcd-load ENDPOINT load|set|get CLIENTS KEYS VALUE_BYTES WARM_UP_S SECONDS".into());
    };
    let options = Options {
        endpoint: endpoint.clone(),
        mode: mode.clone(),
        clients: clients.parse::<usize>()?.max(1),
        keys: keys.parse::<u64>()?.max(1),
        value: Bytes::from(vec![b'x'; value.parse()?]),
        warm_up: Duration::try_from_secs_f64(warm_up.parse()?)?,
        duration: Duration::try_from_secs_f64(duration.parse()?)?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, drive(options))
}

async fn drive(options: Options) -> Result<(), Failure> {
    let options = Rc::new(options);
    let totals = Rc::new(RefCell::new(Totals {
        latencies: Histogram::new_with_bounds(100, 3_600_000_000_000, 3)?,
        errors: 0,
        first_error: None,
        next: 0,
        random: 0x9e37_79b9_7f4a_7c15,
    }));
    let mut senders = Vec::new();
    for _ in 0..options.clients.div_ceil(SHARE) {
        let stream = TcpStream::connect(&options.endpoint).await?;
        stream.set_nodelay(true)?;
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
        let (sender, connection) = builder.handshake::<_, Bytes>(stream).await?;
        tokio::task::spawn_local(connection);
        senders.push(sender);
    }
    let start = Instant::now();
    let clients = (0..options.clients).map(|index| {
        let sender = senders[index % senders.len()].clone();
        tokio::task::spawn_local(client(sender, options.clone(), totals.clone(), start))
    });
    let clients: Vec<_> = clients.collect();
    for client in clients {
        client.await?;
    }
    let totals = totals.borrow();
    let seconds = match options.mode.as_str() {
        "load" => start.elapsed().as_secs_f64(),
        _ => options.duration.as_secs_f64(),
    };
    let micros = |quantile| totals.latencies.value_at_quantile(quantile) as f64 / 1e3;
    println!(
        "{{\"runs\":[{{\"total\":{{\"count\":{},\"per_second\":{:.1},\"p50_us\":{:.1},\"p99_us\":{:.1}}},\
         \"errors\":{{\"grpc\":{}}}}}]}}",
        totals.latencies.len(),
        totals.latencies.len() as f64 / seconds,
        micros(0.5),
        micros(0.99),
        totals.errors
    );
    match &totals.first_error {
        Some(error) => Err(error.clone().into()),
        None => Ok(()),
    }
}

async fn client(
    mut sender: SendRequest<Bytes>,
    options: Rc<Options>,
    totals: Rc<RefCell<Totals>>,
    start: Instant,
) {
    let (warm, end) = (start + options.warm_up, start + options.warm_up + options.duration);
    let loading = options.mode == "load";
    let method = if options.mode == "get" { "Range" } else { "Put" };
    let uri = format!("http://{}/etcdserverpb.KV/{method}", options.endpoint);
    let mut began = Instant::now();
    while loading || began < end {
        let key = {
            let mut totals = totals.borrow_mut();
            if loading && totals.next >= options.keys {
                return;
            }
            totals.next += 1;
            totals.random = totals.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if loading { totals.next - 1 } else { (totals.random >> 33) % options.keys }
        };
        let value = (method == "Put").then_some(&options.value);
        let result = call(&mut sender, &uri, message(key, value)).await;
        let ended = Instant::now();
        let mut totals = totals.borrow_mut();
        match result {
            Ok(()) if loading || ended >= warm && ended <= end => {
                totals.latencies.saturating_record((ended - began).as_nanos() as u64);
            }
            Ok(()) => {}
            Err(error) => {
                totals.errors += 1;
                totals.first_error.get_or_insert(error.to_string());
                if totals.errors > 1000 {
                    return;
                }
            }
        }
        began = ended;
    }
}

/// A `PutRequest` (key = 1, value = 2) or `RangeRequest` (key = 1) behind gRPC's prefix.
fn message(key: u64, value: Option<&Bytes>) -> Bytes {
    let key = format!("key-{key:012}");
    let mut body = BytesMut::with_capacity(192);
    body.put_slice(&[0; 5]);
    let mut field = |tag: u8, bytes: &[u8]| {
        body.put_u8(tag << 3 | 2);
        let mut len = bytes.len();
        while len >= 128 {
            body.put_u8(len as u8 | 128);
            len >>= 7;
        }
        body.put_u8(len as u8);
        body.put_slice(bytes);
    };
    field(1, key.as_bytes());
    if let Some(value) = value {
        field(2, value);
    }
    let len = (body.len() - 5) as u32;
    body[1..5].copy_from_slice(&len.to_be_bytes());
    body.freeze()
}

async fn call(sender: &mut SendRequest<Bytes>, uri: &str, body: Bytes) -> Result<(), Failure> {
    let request = http::Request::post(uri)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())?;
    let mut ready = sender.clone().ready().await?;
    let (response, mut stream) = ready.send_request(request, false)?;
    stream.send_data(body, true)?;
    let response = response.await?;
    let early = response.headers().get("grpc-status").cloned();
    let mut body = response.into_body();
    while let Some(chunk) = body.data().await {
        let len = chunk?.len();
        body.flow_control().release_capacity(len)?;
    }
    let status = match early {
        Some(status) => Some(status),
        None => body.trailers().await?.and_then(|trailers| trailers.get("grpc-status").cloned()),
    };
    match status {
        Some(status) if status == "0" => Ok(()),
        status => Err(format!("gRPC status {status:?}").into()),
    }
}
