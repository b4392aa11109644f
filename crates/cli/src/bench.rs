//! `quorate bench`: the command line of the load generator (`crates/bench`).

use std::io::{IsTerminal, Write, stderr, stdout};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quorate_bench::{Arrivals, BenchError, Choice, Mix, Options, Report, Sizes, Tls};
use serde_json::json;

use crate::args::{ClientLogin, ClientTls, duration, endpoint, share};
use crate::certificates;
use crate::client::{TIMEOUT, Target};
use crate::failure::Failure;
use crate::signals;
use crate::users;

pub const EXAMPLES: &str = "Examples:
  quorate bench --load                                  YCSB A: half reads, half updates, 64 connections
  quorate bench --workload b --rate 20000               open loop: latency counts from the intended time
  quorate bench --workload set --connections 1,8,64,256 --svg curve.svg
  quorate bench --target redis --workload get --load --pipeline 16

Workloads: YCSB a (50% update), b (5%), c (reads), d (latest, 5% insert), e (scans, 5% insert; a scan is an MGET
of consecutive keys, as RESP has no ordered scan), f (half read-modify-write: GET, then SET); set; get. a, b, c, e
and f choose keys by Zipf, d the latest, set, get and --writes uniformly; --keys-by, --zipf say otherwise.
Several --rate, --connections or --pipeline are several runs, and a curve of latency over throughput.";

#[derive(Debug, clap::Args)]
pub struct Bench {
    /// What is measured; both speak RESP, only the default endpoints differ
    #[arg(long, default_value = "quorate", value_parser = ["quorate", "redis"])]
    pub target: String,
    /// Where to connect: several are shared among the connections [default: those of the target; for Quorate the
    /// environment's QUORATE_ENDPOINTS, if that is set]
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', value_parser = endpoint)]
    pub endpoints: Vec<String>,
    #[command(flatten)]
    pub tls: ClientTls,
    #[command(flatten)]
    pub login: ClientLogin,
    /// a to f (YCSB), set, or get
    #[arg(long, default_value = "a", value_parser = ["a", "b", "c", "d", "e", "f", "set", "get"])]
    pub workload: String,
    /// Only updates and reads, with this share of updates (0 to 1)
    #[arg(long, value_name = "RATIO", conflicts_with = "workload", value_parser = share)]
    pub writes: Option<f64>,
    /// How keys are chosen: uniform, zipf or latest [default: the workload's]
    #[arg(long, value_name = "CHOICE", value_parser = ["uniform", "zipf", "latest"])]
    pub keys_by: Option<String>,
    /// The exponent of zipf and latest [default: 0.99]
    #[arg(long, value_name = "EXPONENT", value_parser = exponent)]
    pub zipf: Option<f64>,
    /// How many keys there are
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=999_999_999))]
    pub keys: u64,
    /// What keys begin with, before the twelve digits of their numbers: loads with different prefixes share no key
    #[arg(long, value_name = "TEXT", default_value = Options::KEY_PREFIX)]
    pub key_prefix: String,
    /// Bytes of a value: 128, a range 16-1024, or sizes with shares 128:0.9,4096:0.1
    #[arg(long, value_name = "SIZES", default_value = "128")]
    pub value_size: Sizes,
    /// A scan reads between one and this many keys
    #[arg(
        long,
        value_name = "KEYS",
        default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(1..=10_000)
    )]
    pub scan_max: u64,
    /// Connections; several numbers are several runs
    #[arg(long, default_value = "64", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..))]
    pub connections: Vec<u16>,
    /// Requests under way on each connection; several numbers are several runs
    /// [default: 1; of an open loop 64]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..))]
    pub pipeline: Vec<u16>,
    /// An open loop with so many operations a second; several numbers are several runs
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub rate: Vec<u64>,
    /// How an open loop spaces them: even or poisson
    #[arg(long, default_value = "even")]
    pub arrivals: Arrivals,
    /// Time before anything counts
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub warm_up: Duration,
    /// Time that counts, of each run
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub duration: Duration,
    /// A request without an answer for so long has failed
    #[arg(long, default_value = "5s", value_parser = duration)]
    pub timeout: Duration,
    /// Write every key first
    #[arg(long)]
    pub load: bool,
    /// Of keys, values and operations
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// One JSON object instead of tables
    #[arg(long)]
    pub json: bool,
    /// Draw latency over throughput (several runs), or latency by percentile (one)
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write what became of each operation, as CSV (one run)
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// One line a second on the standard error, also where that is not a terminal
    #[arg(long)]
    pub progress: bool,
}

fn exponent(text: &str) -> Result<f64, String> {
    let exponent = text.parse().ok().filter(|exponent: &f64| *exponent > 0.0 && *exponent <= 10.0);
    exponent.ok_or_else(|| "write an exponent above 0, up to 10, such as 0.99".to_owned())
}

impl Bench {
    fn mix(&self) -> Result<(Mix, Choice), Failure> {
        let (mix, choice) = match self.writes {
            Some(share) => (Mix::writes(share), Choice::Uniform),
            None => Mix::named(&self.workload)
                .ok_or_else(|| Failure::wrong(format!("unknown workload `{}`", self.workload)))?,
        };
        let theta = self.zipf.unwrap_or(Choice::THETA);
        let choice = match (self.keys_by.as_deref(), choice) {
            (Some("uniform"), _) if self.zipf.is_some() => {
                return Err(Failure::wrong("--zipf does not go with --keys-by uniform"));
            }
            (Some("uniform"), _) => Choice::Uniform,
            (Some("latest"), _) | (None, Choice::Latest(_)) => Choice::Latest(theta),
            (None, Choice::Uniform) if self.zipf.is_none() => Choice::Uniform,
            _ => Choice::Zipf(theta),
        };
        Ok((mix, choice))
    }

    /// Names and addresses of the endpoints.
    fn endpoints(&self) -> Result<(Vec<String>, Vec<SocketAddr>), Failure> {
        let defaults: &[&str] = match self.target.as_str() {
            "redis" => &["127.0.0.1:6379"],
            _ => &["127.0.0.1:7101", "127.0.0.1:7102", "127.0.0.1:7103"],
        };
        let given = std::env::var("QUORATE_ENDPOINTS").ok().filter(|_| self.target != "redis");
        let given: Vec<String> = match given {
            Some(text) if self.endpoints.is_empty() => {
                let read = |word| endpoint(word).map_err(|right| (word, right));
                let read = text.split(',').map(read).collect::<Result<_, _>>();
                read.map_err(|(word, right)| Failure::wrong(format!("QUORATE_ENDPOINTS: {word:?}: {right}")))?
            }
            _ => self.endpoints.clone(),
        };
        let names: Vec<String> = match given.is_empty() {
            true => defaults.iter().map(|name| (*name).to_owned()).collect(),
            false => given,
        };
        let resolve = |name: &String| {
            let mut found =
                name.to_socket_addrs().map_err(|error| Failure::wrong(format!("{name}: {error}")))?;
            found.next().ok_or_else(|| Failure::wrong(format!("{name} has no address")))
        };
        let found = names.iter().map(resolve).collect::<Result<_, _>>()?;
        Ok((names, found))
    }

    /// One run for each combination.
    fn runs(&self) -> Result<Vec<Options>, Failure> {
        let (mix, choice) = self.mix()?;
        let (names, endpoints) = self.endpoints()?;
        let host = |name: &String| name.rsplit_once(':').map_or(name.clone(), |(host, _)| host.to_owned());
        let (credentials, login) = (certificates::of_client(&self.tls)?, users::of_client(&self.login)?);
        if login.is_some() {
            // A wrong password is said at once: in a run, it would be an error of every connection.
            let (tls, login) = (credentials.clone(), login.clone());
            Target { endpoints: names.clone(), tls, login }.any(TIMEOUT)?;
        }
        let tls = credentials.map(|credentials| Tls { credentials, hosts: names.iter().map(host).collect() });
        let rates: Vec<_> = match self.rate.is_empty() {
            true => vec![None],
            false => self.rate.iter().copied().map(Some).collect(),
        };
        let depths = match (self.pipeline.is_empty(), self.rate.is_empty()) {
            (false, _) => self.pipeline.clone(),
            (true, true) => vec![1],
            (true, false) => vec![64],
        };
        let mut runs = Vec::new();
        for rate in &rates {
            for depth in &depths {
                for connections in &self.connections {
                    runs.push(Options {
                        endpoints: endpoints.clone(),
                        tls: tls.clone(),
                        login: login.clone(),
                        connections: usize::from(*connections),
                        pipeline: usize::from(*depth),
                        rate: *rate,
                        arrivals: self.arrivals,
                        mix,
                        choice,
                        keys: self.keys,
                        key_prefix: self.key_prefix.clone(),
                        sizes: self.value_size.clone(),
                        scan_max: self.scan_max,
                        warm_up: self.warm_up,
                        duration: self.duration,
                        timeout: self.timeout,
                        seed: self.seed,
                        progress: self.progress || stderr().is_terminal(),
                        trace: self.trace.is_some(),
                    });
                }
            }
        }
        if self.trace.is_some() && runs.len() > 1 {
            return Err(Failure::wrong(
                "--trace is of one run: give one rate, pipeline and number of connections",
            ));
        }
        Ok(runs)
    }
}

pub fn bench(args: Bench) -> Result<(), Failure> {
    let runs = args.runs()?;
    let failed = |error: BenchError| match error {
        BenchError::Unreachable(..) => Failure::unreachable(format!(
            "{error}; is it running? (`quorate up`, or --endpoints HOST:PORT,… or --target redis)"
        )),
        error => Failure::failed(error),
    };
    let stop = signals::interrupt_flag()?;
    let loaded = match (args.load, runs.first()) {
        (true, Some(options)) => Some(quorate_bench::load(options, &stop).map_err(failed)?),
        _ => None,
    };
    if let (Some(report), false) = (&loaded, args.json) {
        writeln!(stdout(), "loaded {} keys in {:.1} s\n", report.total.count, report.seconds)?;
    }
    let mut reports: Vec<Report> = Vec::new();
    for options in &runs {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let report = quorate_bench::run(options, &stop).map_err(failed)?;
        if !args.json {
            let space = if reports.is_empty() { "" } else { "\n" };
            write!(stdout(), "{space}{}", quorate_bench::table(&report))?;
        }
        reports.push(report);
    }
    let name = match args.writes {
        Some(share) => format!("{:.0}% writes", share * 100.0),
        None => args.workload.clone(),
    };
    if args.json {
        let seed = args.seed;
        writeln!(
            stdout(),
            "{}",
            json!({ "workload": name, "seed": seed, "keys": args.keys, "load": loaded, "runs": reports })
        )?;
    }
    if let (Some(path), [Report { trace: Some(trace), .. }]) = (&args.trace, &reports[..]) {
        std::fs::write(path, trace.csv())
            .map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))?;
    }
    if let Some(path) = &args.svg {
        let title = format!("{} · workload {name}", args.target);
        let text = quorate_bench::svg(&title, &reports).map_err(Failure::failed)?;
        std::fs::write(path, text)
            .map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))?;
    }
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::failed(format!(
            "interrupted in run {} of {}: this is what was measured until then",
            reports.len(),
            runs.len()
        )));
    }
    if reports.iter().all(|report| report.total.count == 0) {
        return Err(Failure::failed("no operation succeeded"));
    }
    Ok(())
}
