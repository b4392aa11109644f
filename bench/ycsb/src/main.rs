//! Drives one member of a cluster as YCSB does, whatever the cluster is: clients in a closed loop, each with a
//! connection of its own and one operation under way, uniform keys, reads and updates in a stated mix. With `--kill`,
//! it kills a process meanwhile, and tells for how long no client was served.
//!
//! | file | what |
//! |---|---|
//! | `client` | a connection to each of the systems |
//! | `outage` | how long nobody was served |

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use hdrhistogram::Histogram;
use quorate_core::Random;
use quorate_core::settings::parse_duration;
use serde_json::{Value, json};

mod client;
mod outage;

use client::{Client, System};
use outage::Outage;

/// What cannot be gone on after; the text says all.
type Result<T> = std::result::Result<T, String>;

/// Latencies are counted up to a minute, in µs, with three digits.
const LONGEST: u64 = 60_000_000;

/// Loads members of a cluster with reads and updates, and prints what came of it as JSON
#[derive(Clone, Debug, Parser)]
struct Args {
    #[arg(long)]
    system: System,
    /// Of the member, such as 10.99.0.1:2379; of several, separated by commas, clients take turns
    #[arg(long)]
    endpoint: String,
    /// In a closed loop, with a connection each
    #[arg(long, default_value_t = 4)]
    clients: u64,
    #[arg(long, default_value_t = 10_000)]
    keys: u64,
    /// In bytes
    #[arg(long, default_value_t = 128)]
    value_size: usize,
    /// The share of operations that write
    #[arg(long, default_value_t = 0.05)]
    writes: f64,
    /// Before anything counts
    #[arg(long, default_value = "1s")]
    warm_up: String,
    #[arg(long, default_value = "5s")]
    duration: String,
    /// An operation without an answer by then has failed; its client connects anew
    #[arg(long, default_value = "60s")]
    timeout: String,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The id of a process to kill after the warm-up; ends when clients are served again, after `--duration` at last
    #[arg(long)]
    kill: Option<u32>,
    /// Writes every key once instead
    #[arg(long)]
    load: bool,
}

/// What one client has seen, or all.
struct Seen {
    reads: Histogram<u64>,
    writes: Histogram<u64>,
    errors: u64,
    /// One of them.
    error: Option<String>,
}

impl Seen {
    fn new() -> Seen {
        let histogram = || Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are right");
        Seen { reads: histogram(), writes: histogram(), errors: 0, error: None }
    }

    fn add(&mut self, other: &Seen) {
        self.reads.add(&other.reads).expect("the bounds are the same");
        self.writes.add(&other.writes).expect("the bounds are the same");
        self.errors += other.errors;
        self.error = self.error.take().or_else(|| other.error.clone());
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(&Args::parse()).await {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("ycsb: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<Value> {
    let duration = |name: &str, text: &str| {
        parse_duration(text).ok_or_else(|| format!("--{name} {text}: write a duration such as 5s"))
    };
    let (warm_up, length) = (duration("warm-up", &args.warm_up)?, duration("duration", &args.duration)?);
    let timeout = duration("timeout", &args.timeout)?;
    if !(0.0..=1.0).contains(&args.writes) || args.clients == 0 || args.keys == 0 {
        return Err("--writes is a share from 0 to 1; there is at least one client, and one key".to_owned());
    }
    let endpoints: Vec<&str> = args.endpoint.split(',').collect();
    let connect = |index: u64| {
        let (args, endpoint) = (args.clone(), endpoints[index as usize % endpoints.len()].to_owned());
        tokio::spawn(async move {
            let client = Client::connect(args.system, &endpoint).await?;
            Ok::<_, String>(Driver { args, index, endpoint, timeout, client })
        })
    };
    let mut clients = Vec::new();
    for client in (0..args.clients).map(connect).collect::<Vec<_>>() {
        clients.push(client.await.map_err(|error| error.to_string())??);
    }
    // Whoever measures besides knows from this when the warm-up begins.
    eprintln!("{} clients connected", args.clients);
    let start = Instant::now();
    let counted = start + warm_up..start + warm_up + length;
    let outage = Arc::new(Outage::new(counted.start));
    let spawn = |driver: Driver| {
        let (counted, outage) = (counted.clone(), outage.clone());
        tokio::spawn(async move {
            match driver.args.load {
                true => driver.load().await,
                false => Ok(driver.drive(counted.start, counted.end, &outage).await),
            }
        })
    };
    let tasks: Vec<_> = clients.into_iter().map(spawn).collect();
    let gap = match args.kill {
        Some(pid) => outage.cause(pid, counted.end).await?,
        None => None,
    };
    let mut all = Seen::new();
    for task in tasks {
        all.add(&task.await.map_err(|error| error.to_string())??);
    }
    let of = |seen: &Histogram<u64>| {
        let at = |quantile| seen.value_at_quantile(quantile) as f64 / 1e3;
        json!({
            "count": seen.len(),
            "per_second": seen.len() as f64 / length.as_secs_f64(),
            "mean_ms": seen.mean() / 1e3,
            "p50_ms": at(0.5),
            "p99_ms": at(0.99),
        })
    };
    Ok(json!({
        "reads": of(&all.reads), "writes": of(&all.writes), "errors": all.errors, "error": all.error,
        "gap_ms": gap.map(|gap| gap.as_secs_f64() * 1e3),
    }))
}

/// One client, with its connection.
struct Driver {
    args: Args,
    index: u64,
    endpoint: String,
    timeout: Duration,
    client: Client,
}

impl Driver {
    /// Writes this client's share of the keys.
    async fn load(mut self) -> Result<Seen> {
        let (mut seen, value) = (Seen::new(), vec![b'0'; self.args.value_size]);
        for key in (self.index..self.args.keys).step_by(self.args.clients as usize) {
            self.client.create(key, &value).await?;
            seen.writes.saturating_record(1);
        }
        Ok(seen)
    }

    /// Reads and writes until the end; what ends between the two counts.
    async fn drive(mut self, from: Instant, until: Instant, outage: &Outage) -> Seen {
        let mut random = Random::new(self.args.seed << 16 | self.index);
        let (mut seen, mut value) = (Seen::new(), vec![b'1'; self.args.value_size]);
        loop {
            let (key, writes) =
                (random.range(0..self.args.keys), random.range(0..1_000_000) < share(self.args.writes));
            let stamp = random.range(0..u64::MAX).to_le_bytes();
            let length = value.len().min(stamp.len());
            value[..length].copy_from_slice(&stamp[..length]);
            let begins = Instant::now();
            let done = self.operate(key, writes.then_some(&value)).await;
            let ends = Instant::now();
            if ends >= until || outage.is_over() {
                return seen;
            }
            match done {
                Ok(()) if ends >= from => {
                    let histogram = if writes { &mut seen.writes } else { &mut seen.reads };
                    histogram.saturating_record(ends.duration_since(begins).as_micros() as u64);
                    outage.served(ends);
                }
                Ok(()) => {}
                Err(error) => {
                    seen.errors += 1;
                    seen.error = Some(error);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    let client = Client::connect(self.args.system, &self.endpoint);
                    // What cannot connect fails again, and comes here again.
                    if let Ok(Ok(client)) = tokio::time::timeout(self.timeout, client).await {
                        self.client = client;
                    }
                }
            }
        }
    }

    /// Writes a value, or reads.
    async fn operate(&mut self, key: u64, value: Option<&Vec<u8>>) -> Result<()> {
        let operation = async {
            match value {
                Some(value) => self.client.write(key, value).await,
                None => self.client.read(key).await,
            }
        };
        let done = tokio::time::timeout(self.timeout, operation).await;
        done.unwrap_or_else(|_| Err(format!("no answer in {:?}", self.timeout)))
    }
}

/// In millionths.
fn share(share: f64) -> u64 {
    (share * 1e6).round() as u64
}
