//! Sockets with certificates, against each other over the loopback interface.

use std::fs;
use std::io::{ErrorKind, IoSlice, Write};
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, SystemTime};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use quorate_tls::issue::{AUTHORITY, Authority, Issued, Owner};
use quorate_tls::socket::READ_BUFFER;
use quorate_tls::{
    ClientAuth, ClientCredentials, Credentials, Files, Heard, Process, Socket, TlsError, TlsOptions,
};
use tempfile::TempDir;

const CLUSTER: u64 = 0xc1;
const DAY: Duration = Duration::from_secs(86_400);

/// An authority, and what it has issued.
struct Certificates {
    directory: TempDir,
    authority: Authority,
}

impl Certificates {
    fn of(cluster: u64) -> Certificates {
        let directory = TempDir::new().unwrap();
        let authority = Authority::create(directory.path(), cluster).unwrap();
        Certificates { directory, authority }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn issue(&self, owner: &Owner) -> Issued {
        self.authority.issue(self.path(), owner, 1).unwrap()
    }

    fn files(&self, owner: &Owner) -> Files {
        let Issued { cert, key } = self.issue(owner);
        Files { ca: self.path().join(AUTHORITY), cert, key }
    }

    fn node(&self, id: u8, clients: ClientAuth) -> Credentials {
        let process = Process::Node(id);
        let files = self.files(&Owner::Process(process, vec!["localhost".to_owned()]));
        Credentials::load(TlsOptions { files, clients }, process, CLUSTER).unwrap()
    }

    fn client(&self, name: &str) -> ClientCredentials {
        let Issued { cert, key } = self.issue(&Owner::Client(name.to_owned()));
        ClientCredentials::load(&self.path().join(AUTHORITY), Some((&cert, &key))).unwrap()
    }
}

/// Two ends of a connection, and what tells when something has come.
struct Pair {
    poll: Poll,
    dialed: Socket,
    accepted: Socket,
    scratch: Vec<u8>,
}

impl Pair {
    fn new(dial: impl FnOnce(TcpStream) -> Socket, accept: impl FnOnce(TcpStream) -> Socket) -> Pair {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let dialed = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let poll = Poll::new().unwrap();
        let prepare = |stream: std::net::TcpStream, token| {
            stream.set_nonblocking(true).unwrap();
            // So that a little is too much for the system.
            let _ = stream.set_nodelay(true);
            let mut stream = TcpStream::from_std(stream);
            poll.registry()
                .register(&mut stream, Token(token), Interest::READABLE | Interest::WRITABLE)
                .unwrap();
            stream
        };
        let (dialed, accepted) = (dial(prepare(dialed, 0)), accept(prepare(accepted, 1)));
        Pair { poll, dialed, accepted, scratch: vec![0; READ_BUFFER] }
    }

    fn wait(&mut self) {
        let mut events = Events::with_capacity(4);
        self.poll.poll(&mut events, Some(Duration::from_secs(20))).unwrap();
        assert!(!events.is_empty(), "neither side has anything to say");
        let _ = (self.dialed.flush(), self.accepted.flush());
    }

    /// A greeting there and an answer back; what stopped it, and at which side.
    fn talk(&mut self) -> Result<(), (&'static str, String)> {
        let (mut asked, mut greeted, mut answered) = (false, false, false);
        loop {
            if !asked {
                match self.dialed.write(b"hello") {
                    Ok(count) => asked = count == 5,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(("dialed", error.to_string())),
                }
            }
            match self.accepted.hear(&mut self.scratch, false) {
                Ok(Heard::Bytes(count) | Heard::Last(count)) => greeted = self.scratch[..count] == *b"hello",
                Ok(Heard::Nothing) => {}
                Ok(Heard::End) => return Err(("accepted", "the end".to_owned())),
                Err(error) => {
                    // The other side is told.
                    loop {
                        match self.dialed.hear(&mut self.scratch, false) {
                            Ok(Heard::End) => break,
                            Ok(_) => self.wait(),
                            Err(told) => return Err(("both", format!("{error} | {told}"))),
                        }
                    }
                    return Err(("accepted", error.to_string()));
                }
            }
            if greeted && !answered {
                assert_eq!(self.accepted.write(b"welcome").unwrap(), 7);
                answered = true;
            }
            match self.dialed.hear(&mut self.scratch, false) {
                Ok(Heard::Bytes(count) | Heard::Last(count)) => {
                    assert_eq!(&self.scratch[..count], b"welcome");
                    return Ok(());
                }
                Ok(Heard::Nothing) if !self.dialed.is_handshaking() && !asked => continue,
                Ok(Heard::Nothing) => self.wait(),
                Ok(Heard::End) => return Err(("dialed", "the end".to_owned())),
                Err(error) => return Err(("dialed", error.to_string())),
            }
        }
    }
}

#[test]
fn everything_arrives_in_order_however_little_the_system_takes() {
    let certificates = Certificates::of(CLUSTER);
    let (one, two) = (certificates.node(1, ClientAuth::Required), certificates.node(2, ClientAuth::Required));
    let mut pair = Pair::new(|stream| two.dial(stream, 1), |stream| one.accept_peer(stream));
    let sent: Vec<u8> = (0..9_000_000u32).map(|index| (index.wrapping_mul(index) >> 7) as u8).collect();
    let (mut offered, mut received, mut full) = (0, Vec::new(), 0);
    while received.len() < sent.len() {
        // The reader is slow: it reads only when the writer can go no further.
        while offered < sent.len() {
            let ends = [1, 5, 17_000, 200_000].map(|ahead: usize| (offered + ahead).min(sent.len()));
            let pieces = [&sent[offered..ends[0]], &sent[ends[0]..ends[1]], &sent[ends[1]..ends[3]]];
            match pair.dialed.write_vectored(&pieces.map(IoSlice::new)) {
                Ok(count) => offered += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        full += usize::from(offered < sent.len());
        match pair.accepted.hear(&mut pair.scratch, false).unwrap() {
            Heard::Bytes(count) | Heard::Last(count) => received.extend_from_slice(&pair.scratch[..count]),
            Heard::Nothing if pair.dialed.is_handshaking() || offered == sent.len() => pair.wait(),
            Heard::Nothing => {}
            Heard::End => panic!("it has ended early"),
        }
    }
    assert!(full > 1, "the writer never had to wait");
    assert!(received == sent);
    pair.dialed.shutdown().unwrap();
    while pair.accepted.hear(&mut pair.scratch, true).unwrap() != Heard::End {
        pair.wait();
    }
}

#[test]
fn who_is_let_in_depends_on_the_certificate() {
    let ours = Certificates::of(CLUSTER);
    // The same cluster's id, and another authority.
    let theirs = Certificates::of(CLUSTER);
    let others = Certificates::of(0xc2);
    // A client of another authority trusts this one, too.
    let both = |stranger: &Certificates, owner: &Owner| {
        let Issued { cert, key } = stranger.issue(owner);
        let text =
            [ours.path(), stranger.path()].map(|path| fs::read_to_string(path.join(AUTHORITY)).unwrap());
        let ca = stranger.path().join("both.crt");
        fs::write(&ca, text.concat()).unwrap();
        ClientCredentials::load(&ca, Some((&cert, &key))).unwrap()
    };
    let node = |id| Owner::Process(Process::Node(id), vec!["localhost".to_owned()]);
    let anonymous = ClientCredentials::load(&ours.path().join(AUTHORITY), None).unwrap();
    let foreign = "was not issued by an authority that is trusted here";
    let no_peer = "is no node's or proxy's of this cluster";
    let one = |clients| ours.node(1, clients);
    for (who, client, clients, peers) in [
        ("a client", ours.client("shop"), None, Some(no_peer)),
        ("a node", both(&ours, &node(2)), None, None),
        ("a proxy", both(&ours, &Owner::Process(Process::Proxy, Vec::new())), None, None),
        ("nobody", anonymous.clone(), Some("presents no certificate"), Some("presents no certificate")),
        ("another authority's node", both(&theirs, &node(2)), Some(foreign), Some(foreign)),
        (
            "another cluster's client",
            both(&others, &Owner::Client("x".to_owned())),
            Some(foreign),
            Some(foreign),
        ),
    ] {
        let one = one(ClientAuth::Required);
        for (port, expected) in [("clients", clients), ("peers", peers)] {
            let accept = |stream| match port {
                "clients" => one.accept_client(stream),
                _ => one.accept_peer(stream),
            };
            let mut pair = Pair::new(|stream| client.dial("localhost", stream).unwrap(), accept);
            match (pair.talk(), expected) {
                (Ok(()), None) => {}
                (Err((_, why)), Some(part)) if why.contains(part) => {}
                (found, _) => panic!("{who} at the port for {port}: {found:?}, not {expected:?}"),
            }
        }
    }
    for (clients, served) in [(ClientAuth::Optional, true), (ClientAuth::None, true)] {
        let one = one(clients);
        let mut pair = Pair::new(
            |stream| anonymous.dial("localhost", stream).unwrap(),
            |stream| one.accept_client(stream),
        );
        assert_eq!(pair.talk().is_ok(), served, "{clients:?}");
    }
    // An authority's other cluster is another cluster.
    let elsewhere = both(&ours, &node(3));
    let one = one(ClientAuth::Required);
    let mut pair =
        Pair::new(|stream| elsewhere.dial("localhost", stream).unwrap(), |stream| one.accept_peer(stream));
    pair.talk().unwrap();
    assert!(one.certifies(&pair.accepted, Process::Node(3)));
    assert!(
        !one.certifies(&pair.accepted, Process::Node(2)) && !one.certifies(&pair.accepted, Process::Proxy)
    );
}

#[test]
fn a_node_talks_to_the_node_that_it_dialed_and_to_nobody_else() {
    let certificates = Certificates::of(CLUSTER);
    let (one, two) = (certificates.node(1, ClientAuth::Required), certificates.node(2, ClientAuth::Required));
    let talk =
        |expected| Pair::new(|stream| two.dial(stream, expected), |stream| one.accept_peer(stream)).talk();
    talk(1).unwrap();
    let (_, why) = talk(3).unwrap_err();
    assert!(why.contains("certificate"), "{why}");
}

#[test]
fn what_is_not_tls_is_refused_and_named() {
    let certificates = Certificates::of(CLUSTER);
    let one = certificates.node(1, ClientAuth::Required);
    let mut pair = Pair::new(Socket::from, |stream| one.accept_client(stream));
    pair.dialed.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
    let error = loop {
        match pair.accepted.hear(&mut pair.scratch, false) {
            Ok(Heard::Nothing) => pair.wait(),
            Ok(heard) => panic!("{heard:?}"),
            Err(error) => break error.to_string(),
        }
    };
    assert_eq!(error, "what it says is not TLS");
    assert!(pair.accepted.is_handshaking());
}

#[test]
fn certificates_are_replaced_for_new_connections_and_kept_if_the_new_ones_are_wrong() {
    let certificates = Certificates::of(CLUSTER);
    let one = certificates.node(1, ClientAuth::Required);
    let client = certificates.client("shop");
    let talk =
        || Pair::new(|stream| client.dial("localhost", stream).unwrap(), |s| one.accept_client(s)).talk();
    let before = one.not_after().unwrap();
    let owner = Owner::Process(Process::Node(1), vec!["localhost".to_owned()]);
    certificates.authority.issue(certificates.path(), &owner, 9).unwrap();
    one.reload().unwrap();
    assert!(one.not_after().unwrap() > before + 7 * 86_400);
    talk().unwrap();
    fs::write(one.certificate(), "no certificate").unwrap();
    let error = one.reload().unwrap_err().to_string();
    assert!(error.contains("there is no certificate in it"), "{error}");
    talk().unwrap();
}

#[test]
fn wrong_files_are_answered_with_what_would_be_right() {
    let ours = Certificates::of(CLUSTER);
    let theirs = Certificates::of(CLUSTER);
    let node = Process::Node(1);
    let owner = |hosts: &[&str]| Owner::Process(node, hosts.iter().map(|host| (*host).to_owned()).collect());
    let load = |files: Files, process| {
        Credentials::load(TlsOptions { files, clients: ClientAuth::Required }, process, CLUSTER)
            .map(drop)
            .map_err(|error: TlsError| error.to_string())
    };
    let right = ours.files(&owner(&[]));
    load(right.clone(), node).unwrap();
    let foreign = theirs.files(&owner(&[]));
    let yesterday = SystemTime::now() - 2 * DAY;
    let past = ours.authority.issue_from(theirs.path(), &owner(&[]), yesterday, DAY).unwrap();
    let future = ours.path().join("future");
    fs::create_dir(&future).unwrap();
    let future = ours.authority.issue_from(&future, &owner(&[]), SystemTime::now() + DAY, DAY).unwrap();
    let client = ours.issue(&Owner::Client("shop".to_owned()));
    let nowhere = ours.path().join("nowhere.crt");
    let text = ours.path().join("text");
    fs::write(&text, "hello").unwrap();
    for (what, files, process, part) in [
        (
            "a missing file",
            Files { cert: nowhere.clone(), ..right.clone() },
            node,
            "cannot be read: No such file",
        ),
        ("no PEM", Files { ca: text.clone(), ..right.clone() }, node, "there is no certificate in it"),
        ("no key", Files { key: right.cert.clone(), ..right.clone() }, node, "there is no private key in it"),
        (
            "another key",
            Files { key: client.key.clone(), ..right.clone() },
            node,
            "is not the key of the certificate",
        ),
        (
            "another authority",
            Files { ca: foreign.ca.clone(), ..right.clone() },
            node,
            "was not issued by an authority",
        ),
        (
            "an old certificate",
            Files { cert: past.cert.clone(), key: past.key.clone(), ..right.clone() },
            node,
            "expired 24 hours ago: issue a new one",
        ),
        (
            "a later certificate",
            Files { cert: future.cert.clone(), key: future.key.clone(), ..right.clone() },
            node,
            "is not valid for another 2",
        ),
        ("another node", right.clone(), Process::Node(2), "it is not for node 2 of cluster 00000000000000c1"),
        (
            "a client's certificate",
            Files { cert: client.cert.clone(), key: client.key.clone(), ..right.clone() },
            node,
            "`quorate cert node --node-id 1` issues one",
        ),
    ] {
        let error = load(files, process).unwrap_err();
        assert!(error.contains(part), "{what}: {error}");
    }
}

#[test]
fn an_authority_is_made_once_and_opened_whole() {
    let ours = Certificates::of(CLUSTER);
    assert_eq!(Authority::open(ours.path()).unwrap().cluster(), CLUSTER);
    let again = Authority::create(ours.path(), CLUSTER).unwrap_err().to_string();
    assert!(again.contains("is there already"), "{again}");
    let other = Certificates::of(CLUSTER);
    fs::copy(other.path().join("ca.key"), ours.path().join("ca.key")).unwrap();
    let error = Authority::open(ours.path()).unwrap_err().to_string();
    assert!(error.contains("is not the key of the authority's certificate"), "{error}");
}
