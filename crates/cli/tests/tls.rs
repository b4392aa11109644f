//! A cluster that speaks TLS: whom it serves and whom it refuses, at every port.

#[path = "support/certificates.rs"]
mod certificates;
mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use certificates::{Certificates, TIMEOUT, connect, prepare, said_at, start};
use quorate_client::{Client, Login};
use quorate_tls::issue::{Issued, Owner};
use quorate_tls::{ClientCredentials, Process};
use support::{Cluster, Connection, Node, PATIENCE, Resp, wait_for};

/// What a program says and how it ends.
fn run(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    (status.code(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

fn redis(address: &str, flags: &[&Path], words: &[&str]) -> (Option<i32>, String) {
    let (_, port) = address.rsplit_once(':').unwrap();
    let mut command = Command::new("redis-cli");
    command.args(["-p", port]);
    for (flag, file) in ["--cacert", "--cert", "--key"].iter().zip(flags) {
        command.arg(flag).arg(file);
    }
    if !flags.is_empty() {
        command.arg("--tls");
    }
    run(command.args(words))
}

fn quorate(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    command.args(words).env_remove("QUORATE_ENDPOINTS");
    command
}

#[test]
fn a_cluster_serves_who_has_a_certificate_and_refuses_everybody_else() {
    let (mut cluster, ours) = prepare(3, "multipaxos");
    let http = cluster.ports.address();
    cluster.nodes[0].set("--listen-http", &http);
    start(&mut cluster, &ours);
    let (resp, peer) = (cluster.nodes[0].resp.clone(), cluster.nodes[0].peer.clone());
    let files = ours.files();
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();

    let other = cluster.nodes[2].resp.clone();
    assert_eq!(redis(&resp, &files, &["set", "k", "v"]), (Some(0), "OK\n".to_owned()));
    assert_eq!(redis(&other, &files, &["get", "k"]), (Some(0), "v\n".to_owned()));
    let large = "x".repeat(100_000);
    assert_eq!(redis(&resp, &files, &["set", "large", &large]), (Some(0), "OK\n".to_owned()));
    assert_eq!(redis(&other, &files, &["get", "large"]), (Some(0), large + "\n"));

    // The command line, by flags and by the environment.
    let words = |command: &mut Command| {
        let values = ["--endpoints", &resp, "--cacert"].map(str::to_owned);
        command.args(values).arg(files[0]).arg("--tls-cert").arg(files[1]).arg("--key").arg(files[2]);
        run(command)
    };
    assert_eq!(words(&mut quorate(&["get", "k"])), (Some(0), "v\n".to_owned()));
    let (code, shown) = words(&mut quorate(&["status"]));
    assert_eq!(code, Some(0), "{shown}");
    let (code, shown) = words(&mut quorate(&[
        "bench",
        "--workload",
        "a",
        "--keys",
        "100",
        "--load",
        "--warm-up",
        "0s",
        "--duration",
        "300ms",
    ]));
    assert_eq!(code, Some(0), "{shown}");
    let mut environment = quorate(&["get", "k", "--endpoints", &resp]);
    for (name, file) in ["QUORATE_TLS_CA", "QUORATE_TLS_CERT", "QUORATE_TLS_KEY"].iter().zip(&files) {
        environment.env(name, file);
    }
    assert_eq!(run(&mut environment), (Some(0), "v\n".to_owned()));

    // No certificate, another authority's, and no TLS at all.
    let (code, said) = redis(&resp, &files[..1], &["get", "k"]);
    assert!(code != Some(0) || !said.contains('v'), "{said}");
    cluster.nodes[0].wait_for_line(&["closed a client's connection", "presents no certificate"]);
    let (code, said) = run(quorate(&["get", "k", "--endpoints", &resp, "--cacert"]).arg(files[0]));
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("it asks for a certificate, and got none"), "{said}");
    assert!(!said.contains("is the cluster running?"), "{said}");
    let (code, said) = run(&mut quorate(&["get", "k", "--endpoints", &resp]));
    assert!(code == Some(1) && said.contains("this port speaks TLS"), "{code:?} {said}");
    let (_, said) = redis(&resp, &[], &["get", "k"]);
    assert!(said.contains("ERR this port speaks TLS"), "{said}");
    cluster.nodes[0].wait_for_line(&["closed a client's connection", "is not TLS"]);
    let theirs = Certificates::of(ours.authority.cluster());
    let (code, said) = run(quorate(&["get", "k", "--endpoints", &resp, "--cacert"]).arg(theirs.ca()));
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("was not issued by an authority that is trusted here"), "{said}");
    assert!(!said.contains("is the cluster running?"), "{said}");
    let both = theirs.directory.path().join("both.crt");
    fs::write(&both, [ours.ca(), theirs.ca()].map(|ca| fs::read_to_string(ca).unwrap()).concat()).unwrap();
    let foreign = ClientCredentials::load(&both, Some((&theirs.client.cert, &theirs.client.key))).unwrap();
    let untrusted = "it does not trust the authority";
    assert!(said_at(&resp, &foreign).contains(untrusted), "{}", said_at(&resp, &foreign));

    // The peers' port, before anything is said of who it is.
    let said = said_at(&peer, &ours.credentials());
    assert!(said.contains("is no node's or proxy's of its cluster"), "{said}");
    assert!(said_at(&peer, &foreign).contains(untrusted), "{}", said_at(&peer, &foreign));
    let mut plain = TcpStream::connect(&peer).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    plain.write_all(b"QRTE\x0c\0").unwrap();
    let mut told = Vec::new();
    let _ = plain.read_to_end(&mut told);
    assert!(!told.starts_with(b"QRTE"), "{told:?}");
    cluster.nodes[0].wait_for_line(&["closed a connection from a peer", "is not TLS"]);

    // Those who watch need a certificate, too, and are told if they do not speak TLS.
    let mut plain = TcpStream::connect(&http).unwrap();
    write!(plain, "GET /metrics HTTP/1.1\r\nHost: {http}\r\n\r\n").unwrap();
    let mut told = String::new();
    plain.read_to_string(&mut told).unwrap();
    assert!(told.starts_with("HTTP/1.1 400 "), "{told}");
    assert!(told.ends_with(&format!("this port speaks TLS: https://{http}/metrics\n")), "{told}");
    assert!(said_at(&http, &foreign).contains(untrusted), "{}", said_at(&http, &foreign));
    let mut stream = ours.credentials().connect("127.0.0.1", TcpStream::connect(&http).unwrap()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut page = String::new();
    let _ = stream.read_to_string(&mut page);
    assert!(page.contains("quorate_tls_certificate_expiry_timestamp_seconds 1"), "{page}");
}

#[test]
fn a_proxy_needs_its_own_certificate() {
    let (mut cluster, ours) = prepare(1, "unreplicated");
    start(&mut cluster, &ours);
    let owner = Owner::Process(Process::Proxy, vec!["127.0.0.1".to_owned()]);
    let Issued { cert, key } = ours.authority.issue(ours.directory.path(), &owner, 1).unwrap();
    let members = cluster.members().to_owned();
    let address = cluster.ports.address();
    let proxy = |cert: &Path, key: &Path| {
        let words = ["proxy", "--listen-resp", &address, "--protocol", "unreplicated", "--exit-with-stdin"];
        let mut command = quorate(&words);
        command.args(["--initial-cluster", &members, "--tls-ca"]).arg(ours.ca());
        command.arg("--tls-cert").arg(cert).arg("--tls-key").arg(key);
        command
    };
    let (code, said) = run(&mut proxy(&ours.client.cert, &ours.client.key));
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("it is not for a proxy") && said.contains("`quorate cert proxy` issues one"),
        "{said}"
    );
    let mut child = proxy(&cert, &key).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let value = wait_for("service through the proxy", || {
        let mut client = connect(&ours, &address)?;
        client.put("k", "v").ok()?;
        client.get("k").ok()?
    });
    assert_eq!(&value[..], b"v");
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn a_node_with_the_wrong_files_does_not_start() {
    let refused = |change: &dyn Fn(&mut support::Node, &Certificates), part: &str| {
        let (mut cluster, ours) = prepare(1, "unreplicated");
        change(&mut cluster.nodes[0], &ours);
        let (code, said) = cluster.nodes[0].run_to_end();
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    };
    let set = |node: &mut support::Node, flag: &str, path: &Path| node.set(flag, &path.display().to_string());
    refused(&|node, _| node.set("--tls-key", "/nowhere.key"), "--tls-key /nowhere.key: cannot be read");
    refused(
        &|node, ours| set(node, "--tls-key", &ours.client.key),
        "is not the key of the certificate in --tls-cert",
    );
    refused(
        &|node, ours| {
            set(node, "--tls-cert", &ours.client.cert);
            set(node, "--tls-key", &ours.client.key);
        },
        "`quorate cert node --node-id 1` issues one",
    );
    refused(
        &|node, ours| {
            let theirs = Certificates::of(ours.authority.cluster());
            fs::copy(theirs.ca(), ours.ca()).unwrap();
            set(node, "--tls-ca", &ours.ca());
        },
        "was not issued by an authority in --tls-ca",
    );
    refused(
        &|_, ours| {
            let owner = Owner::Process(Process::Node(1), Vec::new());
            let from = SystemTime::now() - Duration::from_secs(100_000);
            let valid = Duration::from_secs(5000);
            ours.authority.issue_from(ours.directory.path(), &owner, from, valid).unwrap();
        },
        "it expired 26 hours ago: issue a new one",
    );
    refused(
        &|node, _| {
            let at = node.args.iter().position(|word| word == "--tls-key").unwrap();
            node.args.drain(at..at + 2);
        },
        "TLS needs --tls-ca, --tls-cert and --tls-key: --tls-key is missing",
    );
}

#[test]
fn a_port_that_others_reach_needs_certificates_unless_nobody_else_gets_into_the_network() {
    let (mut cluster, _ours) = prepare(1, "unreplicated");
    for flag in ["--listen-resp", "--listen-peer", "--listen-http"] {
        let mut plain = Cluster::prepare(1, "unreplicated", &["--durability", "os"]);
        plain.nodes[0].set(flag, "0.0.0.0:0");
        let (code, said) = plain.nodes[0].run_to_end();
        assert_eq!(code, Some(2), "{said}");
        for part in [flag, "--tls-ca", "listen on 127.0.0.1", "or say --insecure"] {
            assert!(said.contains(part), "{part:?} is not in\n{said}");
        }
        plain.nodes[0].args.push("--insecure".to_owned());
        // At each start.
        for starts in 1..=2 {
            let node = &mut plain.nodes[0];
            node.start();
            wait_for("a start", || (node.lines_with("serves clients on") == starts).then_some(()));
            assert_eq!(node.lines_with(&format!("--insecure: {flag} 0.0.0.0:0 can be reached")), starts);
            node.kill();
        }
    }
    let node = &mut cluster.nodes[0];
    node.set("--listen-resp", "0.0.0.0:0");
    node.start();
    node.wait_for_line(&["serves clients on 0.0.0.0"]);
    node.kill();
    node.set("--tls-auth-clients", "optional");
    let (code, said) = node.run_to_end();
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("clients need no certificate there"), "{said}");
}

#[test]
fn certificates_are_issued_by_command() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("ca");
    let cert = |words: &[&str]| run(quorate(&["cert"]).args(words).arg("--dir").arg(&dir));
    let (code, said) = cert(&["client", "shop"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("`quorate cert init` makes one"), "{said}");
    let (code, said) = cert(&["init", "--initial-cluster", "1=a:1,2=b:1"]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = cert(&["init", "--cluster-id", "1"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("is there already"), "{said}");
    for (words, file) in [
        (&["node", "--node-id", "1", "--host", "a,10.0.0.1"][..], "node-1.key"),
        (&["proxy"], "proxy.key"),
        (&["client", "shop", "--days", "7"], "client-shop.key"),
    ] {
        let (code, said) = cert(words);
        assert_eq!(code, Some(0), "{said}");
        let mode = fs::metadata(dir.join(file)).unwrap();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777, 0o600, "{file}");
    }
    // While another authority takes its place, whichever comes first.
    let other = Certificates::of(7);
    let both = [other.ca(), dir.join("ca.crt")].map(|ca| fs::read_to_string(ca).unwrap()).concat();
    fs::write(dir.join("ca.crt"), both).unwrap();
    let (code, said) = cert(&["node", "--node-id", "2", "--host", "b"]);
    assert_eq!(code, Some(0), "{said}");
    for (words, part) in [
        (&["node", "--node-id", "64", "--host", "a"][..], "write a node's id"),
        (&["node", "--node-id", "1"], "--host"),
        (&["client", "../x"], "write up to 64 letters"),
    ] {
        let (code, said) = cert(words);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(part), "{words:?}: {said}");
    }
}

/// Users of a new cluster, of whom nobody may do anything unasked.
const USERS: &str = "user default off\nuser root on >first ~* +@all\n";

fn login(user: &str, password: &str) -> Login {
    Login { user: user.to_owned(), password: password.to_owned().into() }
}

#[test]
fn users_may_do_what_their_rules_say_after_restarts_and_in_a_restored_cluster_too() {
    let (mut cluster, ours) = prepare(3, "multipaxos");
    let directory = ours.directory.path();
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let users = file("users", USERS);
    for node in &mut cluster.nodes {
        node.set("--users", &users);
        node.start();
    }
    let get = |resp: &str, who: &Login, key: &str| {
        let tls = Some(ours.credentials());
        Client::connect_as([resp], TIMEOUT, tls, Some(who.clone()))?.get(key)
    };
    let (root, ann) = (login("root", "first"), login("ann", "secret"));
    for node in &cluster.nodes {
        wait_for("a node that serves", || get(&node.resp, &root, "ready").ok());
    }
    let resp = cluster.nodes[0].resp.clone();
    let files = ours.files();
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let said_as = |user: &str, password: &str, words: &[&str]| {
        let login = ["--no-auth-warning", "--user", user, "--pass", password];
        redis(&resp, &files, &[&login[..], words].concat()).1
    };

    // Whoever has no certificate does not come as far as a password.
    let (_, said) = redis(&resp, &[], &["ping"]);
    assert!(!said.contains("PONG") && !said.contains("NOAUTH"), "{said}");
    assert_eq!(redis(&resp, &files, &["get", "app:k"]).1, "NOAUTH Authentication required.\n\n");
    assert!(said_as("root", "wrong", &["get", "app:k"]).contains("WRONGPASS"));
    let rules = ["acl", "setuser", "ann", "on", ">secret", "~app:*", "+@read", "+set"];
    assert_eq!(said_as("root", "first", &rules), "OK\n");
    // Here at once, elsewhere when it is applied there.
    assert_eq!(said_as("ann", "secret", &["set", "app:k", "v"]), "OK\n");
    for node in &cluster.nodes {
        wait_for("a node that knows her", || get(&node.resp, &ann, "app:k").ok());
    }
    let denied = said_as("ann", "secret", &["get", "other"]);
    assert!(denied.starts_with("NOPERM this user has no permissions to access one of the keys"), "{denied}");
    let denied = said_as("ann", "secret", &["del", "app:k"]);
    assert!(denied.starts_with("NOPERM this user has no permissions to run the 'del' command"), "{denied}");
    let status = said_as("root", "first", &["quorate", "status"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let denied: u64 = status["facts"]["requests_denied_total"].as_str().unwrap().parse().unwrap();
    assert!(denied >= 4, "{denied}");

    // The command line. A password is in a file or in the environment, never in a flag.
    let password = file("password", "secret\n");
    let values = ["--endpoints", &resp, "--cacert"].map(str::to_owned);
    let command = |words: &[&str]| {
        let mut command = quorate(words);
        command.args(&values).arg(files[0]).arg("--cert").arg(files[1]).arg("--key").arg(files[2]);
        command
    };
    let ann_by_file = ["--user", "ann", "--password-file", &password];
    assert_eq!(
        run(&mut command(&[&["get", "app:k"], &ann_by_file[..]].concat())),
        (Some(0), "v\n".to_owned())
    );
    let (code, said) = run(command(&["get", "app:k", "--user", "ann"]).env("QUORATE_PASSWORD", "wrong"));
    assert!(code == Some(1) && said.contains("WRONGPASS") && !said.contains("wrong\""), "{code:?} {said}");
    let (code, said) = run(&mut command(&["get", "app:k", "--password", "hidden"]));
    assert!(
        code == Some(2) && said.contains("--password-file") && !said.contains("hidden"),
        "{code:?} {said}"
    );
    let (code, said) = run(&mut command(&["get", "app:k", "--user", "ann"]));
    assert!(code == Some(2) && said.contains("--user ann needs a password"), "{code:?} {said}");

    // Whoever may ask for a status and not read is told what the nodes say; whoever may not ask, that they answer.
    let rules =
        ["acl", "setuser", "watcher", "on", ">secret", "+ping", "+info", "+quorate|status", "+slowlog"];
    assert_eq!(said_as("root", "first", &rules), "OK\n");
    let (code, said) = run(&mut command(&["status", "--user", "watcher", "--password-file", &password]));
    let unknown = "whether the cluster serves reads and writes is not known: node ";
    assert!(code == Some(0) && said.starts_with(unknown) && said.contains("1 of 1 nodes answer\n"), "{said}");
    let (code, said) = run(&mut command(&["status"]));
    let words = ["1 of 1 nodes answer, and 1 of them do not tell", "not told", "NOAUTH"];
    assert!(code == Some(1) && words.iter().all(|words| said.contains(words)), "{code:?} {said}");

    let backup = directory.join("backup").display().to_string();
    let (code, said) = run(&mut command(&[&["backup", "--out", &backup], &ann_by_file[..]].concat()));
    assert!(code == Some(1) && said.contains("NOPERM"), "{code:?} {said}");
    let (code, said) =
        run(command(&["backup", "--out", &backup, "--user", "root"]).env("QUORATE_PASSWORD", "first"));
    assert_eq!(code, Some(0), "{said}");

    let load = ["bench", "--workload", "set", "--keys", "50", "--connections", "3", "--warm-up", "0s"];
    let load = [&load[..], &["--duration", "300ms", "--json", "--user", "root"]].concat();
    let (code, said) = run(command(&load).env("QUORATE_PASSWORD", "first"));
    assert!(code == Some(0) && said.contains("\"errors\":{}"), "{code:?} {said}");
    let (code, said) = run(command(&load).env("QUORATE_PASSWORD", "wrong"));
    assert!(code == Some(1) && said.contains("WRONGPASS"), "{code:?} {said}");

    // Users are in the log.
    for node in &mut cluster.nodes {
        node.kill();
    }
    for node in &mut cluster.nodes {
        node.start();
    }
    wait_for("the users after a restart", || get(&resp, &ann, "app:k").ok());
    let error = get(&resp, &ann, "other").unwrap_err().to_string();
    assert!(error.contains("NOPERM"), "{error}");
    assert!(redis(&resp, &files, &["get", "app:k"]).1.contains("NOAUTH"));

    // And in a backup: the restored cluster, of another protocol, is no more open than the first.
    let mut restored = Cluster::prepare(1, "raft", &[]);
    let (data, members) = (restored.nodes[0].data.display().to_string(), restored.members().to_owned());
    let words = ["restore", &backup, "--data-dir", &data, "--node-id", "1", "--initial-cluster", &members];
    let (code, said) = run(&mut quorate(&[&words[..], &["--protocol", "raft"]].concat()));
    assert_eq!(code, Some(0), "{said}");
    restored.nodes[0].start();
    let resp = restored.nodes[0].resp.clone();
    let plain = |who: Option<Login>| Client::connect_as([&*resp], TIMEOUT, None, who)?.get("app:k");
    let value = wait_for("the restored users", || plain(Some(ann.clone())).ok());
    assert_eq!(value.as_deref(), Some(&b"v"[..]));
    let error = plain(None).unwrap_err().to_string();
    assert!(error.contains("NOAUTH"), "{error}");
}

/// Its members are started by `--initial-cluster`, which gives another id than its own.
#[test]
fn a_restored_cluster_has_certificates_of_its_own_and_grows() {
    let first = Cluster::start(1, "multipaxos");
    Client::connect([&*first.nodes[0].resp], TIMEOUT).unwrap().put("k", "v").unwrap();
    let (mut cluster, earlier) = prepare(1, "raft");
    let backup = earlier.directory.path().join("backup").display().to_string();
    let done = |words: &[&str]| {
        let (code, said) = run(&mut quorate(words));
        assert_eq!(code, Some(0), "{said}");
        said
    };
    done(&["backup", "--out", &backup, "--endpoints", &first.nodes[0].resp]);
    let (data, members) = (cluster.nodes[0].data.display().to_string(), cluster.members().to_owned());
    let words = ["restore", &backup, "--data-dir", &data, "--node-id", "1", "--initial-cluster", &members];
    let said = done(&[&words[..], &["--protocol", "raft"]].concat());
    let id = said.split("quorate cert init --cluster-id ").nth(1).unwrap().trim().to_owned();
    let (code, said) = cluster.nodes[0].run_to_end();
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains(&format!("it is not for node 1 of cluster {id}")), "{said}");

    let ours = Certificates::of(u64::from_str_radix(&id, 16).unwrap());
    ours.give(&mut cluster.nodes[0], &ours.node(1, 1));
    start(&mut cluster, &ours);
    let mut joiner = cluster.twin(0);
    ours.give(&mut joiner, &ours.node(2, 1));
    joiner.set("--cluster-id", &id);
    std::mem::swap(&mut joiner.args, &mut cluster.nodes[0].args);
    let peer = cluster.join();
    std::mem::swap(&mut joiner.args, &mut cluster.nodes[0].args);
    let [ca, cert, key] = ours.files().map(|path| path.display().to_string());
    let tls = ["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key];
    let words = ["member", "add", &format!("2={peer}"), "--endpoints", &cluster.nodes[0].resp];
    done(&[&words[..], &tls].concat());
    let owner = Owner::Process(Process::Proxy, vec!["127.0.0.1".to_owned()]);
    let Issued { cert, key } = ours.authority.issue(ours.directory.path(), &owner, 1).unwrap();
    let mut proxy = cluster.twin(1);
    let resp = cluster.ports.address();
    let words = ["proxy", "--listen-resp", &resp, "--protocol", "raft", "--initial-cluster", &members];
    proxy.args = words.map(str::to_owned).to_vec();
    ours.give(&mut proxy, &Issued { cert, key });
    proxy.set("--cluster-id", &id);
    proxy.start();
    for resp in [&cluster.nodes[1].resp, &resp] {
        let value = wait_for("what was restored", || connect(&ours, resp)?.get("k").ok()?);
        assert_eq!(&value[..], b"v");
    }
}

#[test]
fn a_file_of_users_that_is_wrong_is_refused_with_the_line() {
    let mut cluster = Cluster::prepare(1, "multipaxos", &[]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users");
    for (text, expected) in [
        ("user default off\nuser ann on >hidden +gett\n", "line 2: rule `+gett`: Unknown command"),
        ("user ann on >hidden ~* +@all\n", "there is no line for the user `default`"),
    ] {
        fs::write(&path, text).unwrap();
        cluster.nodes[0].set("--users", &path.display().to_string());
        assert_eq!(cluster.nodes[0].run_to_end().0, Some(2));
        let said = cluster.nodes[0].said();
        assert!(said.contains(expected) && !said.contains("hidden"), "{said}");
    }
}

#[test]
fn who_is_shut_out_stays_so_where_a_node_comes_back_alone() {
    // Without another write behind it, the log alone does not tell that the last change was committed.
    let mut cluster = Cluster::start(3, "multipaxos");
    let ask = |resp: &str, words: &[&[u8]]| Connection::open(resp).and_then(|mut node| node.call(words));
    let first = cluster.nodes[0].resp.clone();
    ask(&first, &[b"SET", b"secret", b"42"]).unwrap();
    ask(&first, &[b"ACL", b"SETUSER", b"root", b"on", b">password", b"~*", b"+@all"]).unwrap();
    ask(&first, &[b"ACL", b"SETUSER", b"default", b"off"]).unwrap();
    let is_refused = |reply: &Resp| matches!(reply, Resp::Error(why) if why.starts_with("NOAUTH"));
    for node in &cluster.nodes {
        let refused = || ask(&node.resp, &[b"GET", b"secret"]).ok().filter(is_refused);
        wait_for("a node that has executed the change", refused);
    }
    cluster.nodes.iter_mut().for_each(Node::kill);
    cluster.nodes[0].start();
    let mut alone = wait_for("a node that accepts", || Connection::open(&first).ok());
    for words in [[&b"CLIENT"[..], b"READMODE", b"local"], [b"QUORATE", b"BACKUP", b"BEGIN"]] {
        let reply = alone.call(&words).unwrap();
        let refused = matches!(&reply, Resp::Error(why) if why.starts_with("CLUSTERDOWN"));
        assert!(refused, "{reply:?}");
    }
    cluster.nodes[1].start();
    wait_for("a majority", || ask(&first, &[b"GET", b"secret"]).ok().filter(is_refused));
}
