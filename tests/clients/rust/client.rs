//! The `redis` crate against a Quorate cluster.
//!
//! First what every program does, in both versions of the protocol; then a leader is killed while it writes. The
//! test `crates/cli/tests/clients.rs` runs it and does the killing: it answers `leader?` with an address, and
//! `ready-for-kill` with `killed`.

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use redis::{
    Client, ClientTlsConfig, Commands, Connection, ErrorKind, FromRedisValue, RedisResult, ServerErrorKind,
    TlsCertificates,
};

/// How a user comes in over TLS.
#[derive(Clone)]
pub struct Access {
    /// The authority's certificate, as PEM.
    pub authority: Vec<u8>,
    /// The client's own, as PEM.
    pub certificate: Vec<u8>,
    /// Of the client's certificate, as PEM.
    pub key: Vec<u8>,
    pub user: String,
    pub password: String,
}

/// A node, and how it is reached; `None` is without TLS.
type Endpoint = (String, Option<Access>);

/// The whole program; lines come from and go to the test.
pub fn run(endpoints: &[String], access: Option<Access>, mut hears: impl BufRead, mut says: impl Write) {
    let endpoints: Vec<Endpoint> =
        endpoints.iter().map(|endpoint| (endpoint.clone(), access.clone())).collect();
    for (protocol, endpoint) in [2, 3].into_iter().zip(&endpoints) {
        everyday(protocol, endpoint).unwrap();
        writeln!(says, "everyday, RESP{protocol}: ok").unwrap();
    }
    let mut ask = |line: &str| {
        writeln!(says, "{line}").unwrap();
        let mut answer = String::new();
        hears.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    };
    failover(&endpoints, &mut ask).unwrap();
    writeln!(says, "verified").unwrap();
}

fn connect(protocol: u8, (endpoint, access): &Endpoint) -> RedisResult<Connection> {
    let client = match access {
        None => Client::open(format!("redis://{endpoint}/?protocol=resp{protocol}"))?,
        Some(Access { authority, certificate, key, user, password }) => Client::build_with_tls(
            format!("rediss://{user}:{password}@{endpoint}/?protocol=resp{protocol}"),
            TlsCertificates {
                client_tls: Some(ClientTlsConfig {
                    client_cert: certificate.clone(),
                    client_key: key.clone(),
                }),
                root_cert: Some(authority.clone()),
            },
        )?,
    };
    client.get_connection_with_timeout(Duration::from_secs(1))
}

fn everyday(protocol: u8, endpoint: &Endpoint) -> RedisResult<()> {
    let mut r = connect(protocol, endpoint)?;
    let hello: HashMap<String, redis::Value> = redis::cmd("HELLO").arg(protocol).query(&mut r)?;
    assert_eq!(hello["proto"], redis::Value::Int(protocol.into()));
    let client: String = redis::cmd("CLIENT").arg("INFO").query(&mut r)?;
    assert!(client.contains("lib-name=redis-rs"), "{client}");
    let info: redis::InfoDict = redis::cmd("INFO").query(&mut r)?;
    assert!(info.get::<String>("redis_version").is_some());
    let _: () = r.flushdb()?;

    let binary: Vec<u8> = (0..=255).collect();
    let _: () = r.set("binary", &binary)?;
    assert_eq!(r.get::<_, Vec<u8>>("binary")?, binary);
    let _: () = r.set("schlüssel", "grüße 🌍")?;
    assert_eq!(r.get::<_, String>("schlüssel")?, "grüße 🌍");
    assert_eq!(r.get::<_, Option<String>>("missing")?, None);
    assert!(!r.set_nx::<_, _, bool>("binary", "other")?);
    assert_eq!(r.del::<_, u32>(&["binary", "schlüssel", "missing"])?, 2);
    let large: Vec<u8> = (0..1u32 << 20).map(|i| (i * 7 % 251) as u8).collect();
    let _: () = r.set("large", &large)?;
    assert!(r.get::<_, Vec<u8>>("large")? == large, "1 MiB");

    let _: () = r.pset_ex("long", "x", 3_600_000)?;
    assert!((1..=3_600_000).contains(&r.pttl::<_, i64>("long")?));
    let _: () = r.pset_ex("brief", "x", 100)?;
    let since = Instant::now();
    while r.get::<_, Option<String>>("brief")?.is_some() {
        assert!(since.elapsed() < Duration::from_secs(10), "it never expired");
    }

    let _: () = r.hset_multiple("hash", &[("a", "1"), ("b", "zwei")])?;
    let hash: HashMap<String, String> = r.hgetall("hash")?;
    assert_eq!(hash, HashMap::from([("a", "1"), ("b", "zwei")].map(|(k, v)| (k.into(), v.into()))));
    assert_eq!(r.hincr::<_, _, _, i64>("hash", "a", 41)?, 42);
    assert_eq!(r.hget::<_, _, Option<String>>("hash", "none")?, None);

    let mut pipe = redis::pipe();
    for i in 0..300 {
        pipe.set(format!("scan:{i}"), i).ignore().get(format!("scan:{i}"));
    }
    let replies: Vec<u32> = pipe.query(&mut r)?;
    assert_eq!(replies, (0..300).collect::<Vec<_>>());
    let options = redis::ScanOptions::default().with_pattern("scan:*").with_count(50);
    let found = r.scan_options::<String>(options)?.collect::<RedisResult<BTreeSet<_>>>()?;
    assert_eq!(found, (0..300).map(|i| format!("scan:{i}")).collect());

    // A transaction whose watched key another client changes at the first try; the crate tries again.
    let (mut tries, mut other) = (0, connect(protocol, endpoint)?);
    let (sum,): (u32,) = redis::transaction(&mut r, &["balance"], |r, pipe| {
        tries += 1;
        if tries == 1 {
            let _: () = other.set("balance", 99)?;
        }
        pipe.incr("balance", 5).query(r)
    })?;
    assert_eq!((sum, tries), (104, 2));

    let error = r.hget::<_, _, String>("balance", "field").unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Extension, Some("WRONGTYPE")));
    assert!(error.to_string().contains("Operation against a key"), "{error}");
    let error = r.incr::<_, _, i64>("large", 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Server(ServerErrorKind::ResponseError), "{error}");
    // There are no lists to wait for: it says so at once.
    let error = r.blpop::<_, Option<(String, String)>>("missing", 30.0).unwrap_err();
    assert!(error.to_string().contains("unknown command 'BLPOP'"), "{error}");
    Ok(())
}

/// A client of the whole cluster: any node serves everything, so after an error the next one is asked.
struct Anywhere {
    endpoints: Vec<Endpoint>,
    connection: Option<Connection>,
}

impl Anywhere {
    fn new<'a>(endpoints: impl IntoIterator<Item = &'a Endpoint>) -> Anywhere {
        Anywhere { endpoints: endpoints.into_iter().cloned().collect(), connection: None }
    }

    /// After an error it is unknown whether the command was carried out. The crate itself never sends one twice.
    fn call<T: FromRedisValue>(&mut self, command: &redis::Cmd) -> RedisResult<T> {
        let connection = match self.connection.take() {
            Some(connection) => Ok(connection),
            None => connect(3, &self.endpoints[0]),
        };
        let reply = connection.and_then(|mut connection| {
            let reply = command.query(&mut connection)?;
            self.connection = Some(connection);
            Ok(reply)
        });
        if reply.is_err() {
            self.endpoints.rotate_left(1);
        }
        reply
    }
}

/// A thread that goes on with one command until told to stop.
struct Writer {
    name: &'static str,
    acknowledged: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    running: JoinHandle<Outcome>,
}

#[derive(Default)]
struct Outcome {
    keys: Vec<String>,
    errors: Vec<String>,
    longest: Duration,
}

impl Writer {
    fn start(name: &'static str, mut client: Anywhere, command: fn(&str, usize) -> redis::Cmd) -> Writer {
        let (acknowledged, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, ended) = (acknowledged.clone(), stop.clone());
        let running = std::thread::spawn(move || {
            let mut outcome = Outcome::default();
            for attempt in 1.. {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                let (key, began) = (format!("{name}:{attempt}"), Instant::now());
                match client.call::<redis::Value>(&command(&key, attempt)) {
                    Ok(_) => {
                        outcome.keys.push(key);
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => outcome.errors.push(error.to_string()),
                }
                outcome.longest = outcome.longest.max(began.elapsed());
            }
            outcome
        });
        Writer { name, acknowledged, stop, running }
    }
}

fn progress(writers: &[Writer], count: usize) {
    let acknowledged = |writer: &Writer| writer.acknowledged.load(Ordering::Relaxed);
    let targets: Vec<_> = writers.iter().map(|writer| acknowledged(writer) + count).collect();
    for (writer, target) in writers.iter().zip(targets) {
        let (name, since) = (writer.name, Instant::now());
        while acknowledged(writer) < target {
            assert!(since.elapsed() < Duration::from_secs(30), "{name} does not go on");
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}

fn failover(endpoints: &[Endpoint], ask: &mut impl FnMut(&str) -> String) -> RedisResult<()> {
    let leader = ask("leader?");
    let (leader, others): (Vec<_>, Vec<_>) = endpoints.iter().partition(|(endpoint, _)| *endpoint == leader);
    let all = || Anywhere::new(leader.iter().chain(&others).copied());
    let set = |key: &str, value: usize| redis::Cmd::set(key, value);
    let writers = [
        Writer::start("at-follower", Anywhere::new(others.clone()), set),
        Writer::start("at-leader", all(), set),
        Writer::start("counter", all(), |_, _| redis::Cmd::incr("counter", 1)),
    ];
    progress(&writers, 100);
    assert_eq!(ask("ready-for-kill"), "killed");
    progress(&writers, 100);
    writers.iter().for_each(|writer| writer.stop.store(true, Ordering::Relaxed));
    let [at_follower, at_leader, counter] = writers.map(|writer| {
        let outcome = writer.running.join().unwrap();
        let (acknowledged, errors) = (outcome.keys.len(), outcome.errors.join("; "));
        let (name, longest) = (writer.name, outcome.longest);
        println!("{name}: {acknowledged} acknowledged, longest {longest:.2?}, errors: [{errors}]");
        outcome
    });
    assert!(at_follower.errors.is_empty(), "the node waits for the next leader, its clients see no error");
    for endpoint in others {
        let mut r = connect(3, endpoint)?;
        for writer in [&at_follower, &at_leader] {
            let values: Vec<Option<String>> = r.mget(&writer.keys)?;
            for (key, value) in writer.keys.iter().zip(values) {
                assert_eq!(key.split(':').next_back(), value.as_deref(), "{key} was acknowledged");
            }
        }
        let count: usize = r.get("counter")?;
        let least = counter.keys.len();
        assert!((least..=least + counter.errors.len()).contains(&count), "{count} for {least} acknowledged");
    }
    Ok(())
}
