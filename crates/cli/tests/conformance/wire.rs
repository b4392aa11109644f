//! Redis as a process, connections that keep replies as they came, and replies as trees.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use quorate_bench::Ports;

use crate::support::{PATIENCE, wait_for};

/// Commands of Redis that Quorate does not have. Redis is told to forget them, so that it shows what it answers to
/// commands that are unknown.
pub const FORGOTTEN: [&str; 8] = ["LPUSH", "SADD", "ZADD", "EVAL", "PUBLISH", "RENAME", "COPY", "OBJECT"];

/// A request: its words, the command's name first.
pub type Request = Vec<Vec<u8>>;

/// A `redis-server` that keeps nothing.
pub struct Redis {
    server: Child,
    pub address: String,
    _ports: Ports,
    _dir: tempfile::TempDir,
}

impl Redis {
    pub fn start() -> Redis {
        let ports = Ports::claim().expect("free ports");
        let port = ports.port();
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
        command.args(["--save", "", "--appendonly", "no", "--dir", &dir.path().display().to_string()]);
        for name in FORGOTTEN {
            command.args(["--rename-command", name, ""]);
        }
        let server = command.stdout(Stdio::null()).spawn().unwrap_or_else(|error| {
            panic!(
                "cannot run redis-server ({error}): this test compares Quorate with Redis 7.0. Install it: \
                 `apt-get install redis-server` on Debian 12, or run .ci/run, which does"
            )
        });
        let redis = Redis { server, address: format!("127.0.0.1:{port}"), _ports: ports, _dir: dir };
        let mut connection = wait_for("redis-server to start", || Connection::open(&redis.address));
        let info = connection.ask(&[b"INFO", b"server"]).text();
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or("unknown");
        assert!(
            version.starts_with("7.0."),
            "Quorate's replies are those of Redis 7.0; this redis-server is {version}"
        );
        redis
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

pub struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    /// `None` if nobody listens.
    pub fn open(address: &str) -> Option<Connection> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Some(Connection { stream: BufReader::with_capacity(1 << 16, stream) })
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("the server reads");
    }

    /// The next reply; `None` if the server has closed the connection.
    pub fn receive(&mut self) -> Option<Tree> {
        let mut leaf = Vec::new();
        self.stream.read_until(b'\n', &mut leaf).expect("the server answers");
        let text = std::str::from_utf8(leaf.get(1..)?).ok();
        let len: Option<i64> = text.and_then(|text| text.trim_end().parse().ok());
        Some(match (leaf[0], len) {
            (b'$' | b'=', Some(len @ 0..)) => {
                let line = leaf.len();
                leaf.resize(line + len as usize + 2, 0);
                self.stream.read_exact(&mut leaf[line..]).expect("the whole reply comes");
                Tree::Leaf(leaf)
            }
            (mark @ (b'*' | b'%' | b'~' | b'>'), Some(len @ 0..)) => {
                let count = if mark == b'%' { 2 * len } else { len };
                Tree::Node(mark, (0..count).map(|_| self.receive()).collect::<Option<_>>()?)
            }
            _ => Tree::Leaf(leaf),
        })
    }

    pub fn ask(&mut self, words: &[&[u8]]) -> Tree {
        self.send(&encode(words));
        self.receive().expect("a reply")
    }
}

/// A request as an array of bulk strings.
pub fn encode<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words.iter().map(AsRef::as_ref) {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// A reply, byte for byte: what has items is a node with its mark.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tree {
    Leaf(Vec<u8>),
    Node(u8, Vec<Tree>),
}

impl Tree {
    /// The bytes of a leaf, marks and all.
    pub fn text(&self) -> String {
        match self {
            Tree::Leaf(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Tree::Node(..) => show(self),
        }
    }

    pub fn is(&self, leaf: &str) -> bool {
        matches!(self, Tree::Leaf(bytes) if bytes.strip_suffix(b"\r\n") == Some(leaf.as_bytes()))
    }

    /// The number that a `:` leaf holds.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Tree::Leaf(bytes) => std::str::from_utf8(bytes.strip_prefix(b":")?).ok()?.trim_end().parse().ok(),
            Tree::Node(..) => None,
        }
    }
}

/// For people; long strings are cut.
pub fn show(tree: &Tree) -> String {
    match tree {
        Tree::Leaf(bytes) => cut(bytes),
        Tree::Node(mark, items) => {
            let shown: Vec<_> = items.iter().take(40).map(show).collect();
            format!("{}{}[{}]", char::from(*mark), items.len(), shown.join(", "))
        }
    }
}

pub fn show_request(words: &Request) -> String {
    words.iter().map(|word| format!("\"{}\"", cut(word))).collect::<Vec<_>>().join(" ")
}

fn cut(bytes: &[u8]) -> String {
    match bytes.len() {
        ..200 => bytes.escape_ascii().to_string(),
        len => format!("{}… ({len} bytes)", bytes[..100].escape_ascii()),
    }
}
