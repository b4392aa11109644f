//! The engine against a small server in this process: what is sent, what is counted, what is survived.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_bench::{Arrivals, Mix, Options};

/// What the server does with the request of this number.
#[derive(Clone, Copy)]
enum Answer {
    Serve,
    Refuse,
    Close,
    Stall(Duration),
}

type Policy = fn(u64) -> Answer;

/// Never set: runs take their time.
static GO: AtomicBool = AtomicBool::new(false);

#[derive(Default)]
struct State {
    requests: u64,
    keys: BTreeSet<String>,
}

fn serve(policy: Policy) -> (SocketAddr, Arc<Mutex<State>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let state = Arc::new(Mutex::new(State::default()));
    let shared = state.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let state = shared.clone();
            std::thread::spawn(move || converse(stream, policy, &state));
        }
    });
    (address, state)
}

/// Answers one connection until it ends.
fn converse(stream: TcpStream, policy: Policy, state: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut writer = stream;
    loop {
        let count = number(&mut reader)?;
        let words: Vec<String> = (0..count)
            .map(|_| {
                let mut word = vec![0; number(&mut reader)? + 2];
                reader.read_exact(&mut word).ok()?;
                word.truncate(word.len() - 2);
                String::from_utf8(word).ok()
            })
            .collect::<Option<_>>()?;
        let mut state = state.lock().ok()?;
        state.requests += 1;
        let reply = match policy(state.requests) {
            Answer::Close => return None,
            Answer::Refuse => "-NOQUORUM no majority\r\n".to_owned(),
            Answer::Stall(time) => {
                // tidy: sleeps because a server that stalls is what the test is about
                std::thread::sleep(time);
                "+OK\r\n".to_owned()
            }
            Answer::Serve => match words[0].as_str() {
                "SET" => {
                    state.keys.insert(words[1].clone());
                    "+OK\r\n".to_owned()
                }
                "GET" if state.keys.contains(&words[1]) => "$1\r\nx\r\n".to_owned(),
                "GET" => "$-1\r\n".to_owned(),
                _ => format!("*{0}\r\n{1}", count - 1, "$1\r\nx\r\n".repeat(count - 1)),
            },
        };
        writer.write_all(reply.as_bytes()).ok()?;
    }
}

/// The number of a line such as `*3` or `$16`.
fn number(reader: &mut impl BufRead) -> Option<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    line.trim_end().get(1..)?.parse().ok()
}

fn options(endpoint: SocketAddr, workload: &str) -> Options {
    let (mix, choice) = Mix::named(workload).unwrap();
    Options {
        endpoints: vec![endpoint],
        tls: None,
        login: None,
        connections: 4,
        pipeline: 3,
        rate: None,
        arrivals: Arrivals::Even,
        mix,
        choice,
        keys: 500,
        sizes: "1-40".parse().unwrap(),
        key_prefix: Options::KEY_PREFIX.to_owned(),
        scan_max: 10,
        warm_up: Duration::ZERO,
        duration: Duration::from_millis(300),
        timeout: Duration::from_secs(5),
        seed: 1,
        progress: false,
        trace: false,
    }
}

#[test]
fn loading_writes_every_key_whatever_fails() {
    let (endpoint, state) = serve(|number| match number {
        number if number % 97 == 0 => Answer::Close,
        number if number % 10 == 0 => Answer::Refuse,
        _ => Answer::Serve,
    });
    let report = quorate_bench::load(&options(endpoint, "a"), &GO).unwrap();
    assert_eq!(state.lock().unwrap().keys.len(), 500);
    assert_eq!(report.total.count, 500);
    assert!(report.errors["NOQUORUM"] > 0, "{:?}", report.errors);
    assert!(report.errors.keys().any(|kind| kind.starts_with("connection: ")), "{:?}", report.errors);
}

#[test]
fn every_workload_runs_and_says_what_it_did() {
    let (endpoint, _) = serve(|_| Answer::Serve);
    for (workload, kinds) in [
        ("a", &["read", "update"][..]),
        ("d", &["read", "insert"]),
        ("e", &["insert", "scan"]),
        ("f", &["read", "read-modify-write"]),
        ("set", &["update"]),
    ] {
        let options = options(endpoint, workload);
        quorate_bench::load(&options, &GO).unwrap();
        let report = quorate_bench::run(&options, &GO).unwrap();
        assert_eq!(report.ops.iter().map(|op| op.name).collect::<Vec<_>>(), kinds, "{workload}");
        assert!(report.errors.is_empty() && report.total.count > 0, "{workload}: {report:?}");
        assert!(quorate_bench::table(&report).contains(kinds[0]));
        let svg = quorate_bench::svg(workload, &[report.clone(), report]).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("p99.9"));
    }
}

#[test]
fn reads_of_nothing_are_misses() {
    let (endpoint, _) = serve(|_| Answer::Serve);
    let report = quorate_bench::run(&options(endpoint, "get"), &GO).unwrap();
    assert_eq!(report.misses, report.total.count);
}

#[test]
fn an_open_loop_charges_a_stall_to_all_that_it_kept_waiting() {
    let (endpoint, _) = serve(|number| match number {
        50 => Answer::Stall(Duration::from_millis(400)),
        _ => Answer::Serve,
    });
    let rate = Some(500);
    let duration = Duration::from_secs(1);
    let options = Options { rate, duration, connections: 1, pipeline: 1, ..options(endpoint, "set") };
    let report = quorate_bench::run(&options, &GO).unwrap();
    // About 200 of 500 were meant to be sent during the stall: a tenth of all waited for more than 200 ms, although
    // a single request was under way.
    assert!(report.total.p90_us > 150_000.0, "{report:?}");
    assert!(report.total.count + report.unfinished >= 480, "{report:?}");
}

#[test]
fn nobody_there_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = listener.local_addr().unwrap();
    drop(listener);
    assert!(quorate_bench::run(&options(endpoint, "a"), &GO).is_err());
}

#[test]
fn a_run_that_is_stopped_reports_what_it_has_measured() {
    let (endpoint, state) = serve(|_| Answer::Serve);
    let hour = Duration::from_secs(3600);
    for rate in [None, Some(1000)] {
        let options = Options { warm_up: Duration::ZERO, duration: hour, rate, ..options(endpoint, "set") };
        let stop = AtomicBool::new(false);
        let served = || state.lock().unwrap().requests;
        let enough = served() + 100;
        let report = std::thread::scope(|scope| {
            let run = scope.spawn(|| quorate_bench::run(&options, &stop));
            while served() < enough && !run.is_finished() {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
            run.join().unwrap().unwrap()
        });
        assert!(report.total.count > 0 && report.seconds < hour.as_secs_f64(), "{report:?}");
    }
    let stopped = AtomicBool::new(true);
    let nothing = quorate_bench::run(&options(endpoint, "set"), &stopped).unwrap();
    assert_eq!(nothing.total.count, 0);
}
