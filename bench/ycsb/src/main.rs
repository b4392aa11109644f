//! Drives one member of a cluster as YCSB does, whatever the cluster is: clients in a closed loop, each with a
//! connection of its own and one operation under way, uniform keys, reads and updates in a stated mix.
//!
//! | file | what |
//! |---|---|
//! | `client` | a connection to each of the systems |

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use hdrhistogram::Histogram;
use quorate_core::Random;
use quorate_core::settings::parse_duration;
use serde_json::{Value, json};

mod client;
use client::{Client, System};

/// What cannot be gone on after; the text says all.
type Result<T> = std::result::Result<T, String>;

/// Latencies are counted up to a minute, in µs, with three digits.
const LONGEST: u64 = 60_000_000;

/// Loads one member of a cluster with reads and updates, and prints what came of it as JSON
#[derive(Clone, Debug, Parser)]
struct Args {
    #[arg(long)]
    system: System,
    /// Of the member, such as 10.99.0.1:2379
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
    #[arg(long, default_value_t = 1)]
    seed: u64,
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
    if !(0.0..=1.0).contains(&args.writes) || args.clients == 0 || args.keys == 0 {
        return Err("--writes is a share from 0 to 1; there is at least one client, and one key".to_owned());
    }
    let mut tasks = Vec::new();
    for index in 0..args.clients {
        let client = Client::connect(args.system, &args.endpoint).await?;
        tasks.push((index, client));
    }
    let start = Instant::now();
    let counted = start + warm_up..start + warm_up + length;
    let spawn = |(index, client)| {
        let args = args.clone();
        let counted = counted.clone();
        tokio::spawn(async move {
            match args.load {
                true => load(&args, index, client).await,
                false => Ok(drive(&args, index, client, counted.start, counted.end).await),
            }
        })
    };
    let mut all = Seen::new();
    for task in tasks.into_iter().map(spawn).collect::<Vec<_>>() {
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
    }))
}

/// Writes this client's share of the keys.
async fn load(args: &Args, index: u64, mut client: Client) -> Result<Seen> {
    let (mut seen, value) = (Seen::new(), vec![b'0'; args.value_size]);
    for key in (index..args.keys).step_by(args.clients as usize) {
        client.create(key, &value).await?;
        seen.writes.saturating_record(1);
    }
    Ok(seen)
}

/// Reads and writes until the end; what ends between the two counts.
async fn drive(args: &Args, index: u64, mut client: Client, from: Instant, until: Instant) -> Seen {
    let mut random = Random::new(args.seed << 16 | index);
    let (mut seen, mut value) = (Seen::new(), vec![b'1'; args.value_size]);
    loop {
        let (key, writes) = (random.range(0..args.keys), random.range(0..1_000_000) < share(args.writes));
        let stamp = random.range(0..u64::MAX).to_le_bytes();
        let length = value.len().min(stamp.len());
        value[..length].copy_from_slice(&stamp[..length]);
        let begins = Instant::now();
        let done = match writes {
            true => client.write(key, &value).await,
            false => client.read(key).await,
        };
        let ends = Instant::now();
        if ends >= until {
            return seen;
        }
        match done {
            Ok(()) if ends >= from => {
                let histogram = if writes { &mut seen.writes } else { &mut seen.reads };
                histogram.saturating_record(ends.duration_since(begins).as_micros() as u64);
            }
            Ok(()) => {}
            Err(error) => {
                seen.errors += 1;
                seen.error = Some(error);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// In millionths.
fn share(share: f64) -> u64 {
    (share * 1e6).round() as u64
}
