//! What two processes say before the first message: who they are, and that they mean the same cluster, protocol
//! and settings. Whoever finds a difference says what differs, on both sides, and closes.
//!
//! ```text
//! dialer:   magic "QRTE" · newest u8 · older u8 · length u32 · crc u32 · Hello
//! acceptor: magic "QRTE" · newest u8 · older u8 · length u32 · crc u32 · Answer
//! ```
//!
//! Each states the versions that it speaks: the newest, and how many before that. Two processes speak the newest that
//! both do; without a common one they part. So that this can be found out, these fourteen bytes are the same in all
//! versions, and so are an answer that begins with 0 and holds a text, and the fields of [`Hello`]: what a later
//! version adds to them comes behind them, and is not read by those that do not know it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use bytes::{Buf, Bytes, BytesMut};
use quorate_blocks::admission::Introduction;
use quorate_core::{Decoder, Encoder, FeatureLevel, NodeId, ProcessId, Settings, Wire, WireError, wire_enum};

use crate::config::check_address;
use crate::guard::Guard;

/// The first bytes of every connection between processes.
pub const MAGIC: [u8; 4] = *b"QRTE";
/// The versions of the peer protocol (handshake and frames) that this build speaks.
pub const VERSIONS: Versions = Versions { newest: 13, older: 0 };
/// Nothing longer is read before the handshake is done.
pub const LIMIT: usize = 64 << 10;
/// What is wrong with a connection that does not begin with [`MAGIC`].
pub const NOT_OURS: &str = "what it says is not Quorate's peer protocol";
/// The same, of one that begins as TLS does.
pub const SPEAKS_TLS: &str = "it speaks TLS, which this node does not: give all nodes certificates, or none";
/// The first byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 22;
const HEADER: usize = 14;
/// A host's name has no more than 253 characters.
const LONGEST_ADDRESS: usize = 260;

/// Versions of the peer protocol without gaps: the newest, and how many before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// Grows by one with each change of the protocol.
    pub newest: u8,
    /// At most as many as there are before the newest.
    pub older: u8,
}

impl Versions {
    /// The version that two processes speak, if there is one.
    pub fn common(self, other: Versions) -> Option<u8> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest().max(other.oldest())).then_some(newest)
    }

    fn oldest(self) -> u8 {
        self.newest.saturating_sub(self.older)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.older {
            0 => write!(f, "version {}", self.newest),
            _ => write!(f, "versions {} to {}", self.oldest(), self.newest),
        }
    }
}

/// How a process presents itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Which cluster. A standalone proxy may say 0: any.
    pub cluster: u64,
    /// Who is speaking: a replica stands for its node.
    pub me: ProcessId,
    /// Whom it expects on the other side.
    pub expected: ProcessId,
    /// Drawn at each start: tells a reconnect from a second process of the same id.
    pub incarnation: u64,
    /// The protocol's name.
    pub protocol: Bytes,
    /// Of the settings in force. A standalone proxy may say 0: any.
    pub settings_digest: u64,
    /// The settings in force, to say what differs.
    pub settings: BTreeMap<Bytes, Bytes>,
    /// Where it can be reached, as `host:port`; empty if it cannot. An unspecified host is the one it speaks from.
    pub address: Bytes,
    /// Where it is, by name; empty if nobody has said.
    pub site: Bytes,
    /// Of a node: its data directory, and what it remembers of others'. Neither a proxy alone nor a node of a protocol
    /// that does not rely on disks has one; and a node that is to replace its directory says nothing of the new one
    /// while it waits for others.
    pub disk: Option<Introduction>,
    /// The last feature level that its build knows. It comes behind what builds say that know no levels.
    pub knows: FeatureLevel,
}

impl Wire for Hello {
    fn encode(&self, out: &mut Encoder) {
        (self.cluster, self.me, self.expected).encode(out);
        self.incarnation.encode(out);
        self.protocol.encode(out);
        self.settings_digest.encode(out);
        self.settings.encode(out);
        (self.address.clone(), self.site.clone()).encode(out);
        self.disk.encode(out);
        self.knows.encode(out);
        // What an introduction says of further groups, which it does not encode itself.
        if let Some(further) = self.disk.as_ref().map(|disk| &disk.groups[1..]).filter(|it| !it.is_empty()) {
            further.to_vec().encode(out);
        }
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let (cluster, me, expected) = Wire::decode(input)?;
        let (incarnation, protocol, settings_digest) = Wire::decode(input)?;
        let (settings, address, site) = (Wire::decode(input)?, Wire::decode(input)?, Wire::decode(input)?);
        let mut disk: Option<Introduction> = Wire::decode(input)?;
        let knows = if input.remaining() == 0 { FeatureLevel::FIRST } else { Wire::decode(input)? };
        if let Some(disk) = &mut disk
            && input.remaining() > 0
        {
            disk.groups.append(&mut Wire::decode(input)?);
        }
        Ok(Hello {
            cluster,
            me,
            expected,
            incarnation,
            protocol,
            settings_digest,
            settings,
            address,
            site,
            disk,
            knows,
        })
    }
}

/// What an acceptor says to a [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No, and why. Forever the same in all versions.
    Refused(Bytes),
    /// Yes, and who speaks. What the [`Hello`] said of its data directory is durable here.
    Welcome(Hello),
    /// No: what is remembered here of the other's data directory forbids it to take part, or one of the two must start
    /// again first, with longer timeouts.
    Disowned(Hello),
}
wire_enum!(Answer { 0 => Refused(reason), 1 => Welcome(hello), 2 => Disowned(hello) });

/// A message of the handshake. Who has sent it is not known while it cannot be read.
pub trait Greeting: Wire {
    /// Names its sender in errors.
    const SENDER: &str;
    /// Names its recipient in errors.
    const RECIPIENT: &str;
}

const DIALS: &str = "the process that connects";
const IS_DIALED: &str = "the one that it connects to";

impl Greeting for Hello {
    const SENDER: &str = DIALS;
    const RECIPIENT: &str = IS_DIALED;
}

impl Greeting for Answer {
    const SENDER: &str = IS_DIALED;
    const RECIPIENT: &str = DIALS;
}

/// Who this process is, and with whom it may speak.
#[derive(Clone, Debug)]
pub struct Identity {
    hello: Hello,
    /// The feature level of the group, as far as this process knows: whoever does not know it is not spoken with.
    level: FeatureLevel,
}

impl Identity {
    /// Of a node at this address, or of a standalone proxy, which has none.
    pub fn new(
        cluster: u64,
        (me, address): (ProcessId, &str),
        incarnation: u64,
        protocol: &str,
        settings: &Settings,
    ) -> Identity {
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let effective = settings.effective().iter().map(|(key, value)| (bytes(key), bytes(value)));
        Identity {
            hello: Hello {
                cluster,
                me,
                expected: me,
                incarnation,
                protocol: bytes(protocol),
                settings_digest: settings.digest(),
                settings: effective.collect(),
                address: bytes(address),
                site: Bytes::new(),
                disk: None,
                knows: FeatureLevel::NEWEST,
            },
            level: FeatureLevel::FIRST,
        }
    }

    /// The group has this feature level, if not a higher one.
    pub fn raise(&mut self, level: FeatureLevel) {
        self.level = self.level.max(level);
    }

    /// Why a process is not spoken with whose build knows feature levels up to this one; `None` if it is.
    pub fn lacks(&self, other: ProcessId, knows: FeatureLevel) -> Option<String> {
        (knows < self.level).then(|| {
            format!(
                "{} knows feature levels up to {knows}, but this group is at {}: start the version that the members \
                 run",
                name(other),
                self.level
            )
        })
    }

    /// The same, at a site.
    pub fn at(mut self, site: &str) -> Identity {
        self.hello.site = Bytes::copy_from_slice(site.as_bytes());
        self
    }

    /// Whether this process runs a proxy alone.
    pub fn is_standalone(&self) -> bool {
        node_of(self.hello.me).is_none()
    }

    /// How this process presents itself to another.
    pub fn hello(&self, expected: ProcessId) -> Hello {
        Hello { expected, ..self.hello.clone() }
    }

    /// The same, with the node's data directory.
    pub(crate) fn hello_with(&self, expected: ProcessId, guard: Option<&Guard>) -> Hello {
        Hello { disk: guard.and_then(Guard::introduction), ..self.hello(expected) }
    }

    /// What keeps the two from speaking; `None` if nothing does. Both sides read it, so it names them.
    pub fn difference(&self, other: &Hello) -> Option<String> {
        let mine = &self.hello;
        let (them, me) = (name(other.me), name(mine.me));
        let standalone = node_of(other.me).is_none();
        if other.expected != mine.me {
            let expected = name(other.expected);
            return Some(format!(
                "{them} looks for {expected}, and has found {me}: check the addresses in --initial-cluster"
            ));
        }
        if other.me == mine.me && other.incarnation != mine.incarnation {
            return Some(format!("two processes say that they are {me}: ids must differ"));
        }
        if other.protocol != mine.protocol {
            let (theirs, mine) = (text(&other.protocol), text(&mine.protocol));
            return Some(format!("the protocol of {them} is {theirs}, that of {me} is {mine}"));
        }
        if other.cluster != mine.cluster && !(standalone && other.cluster == 0) {
            return Some(format!(
                "the cluster of {them} is {:016x}, that of {me} is {:016x}: --initial-cluster must be the same \
                 everywhere",
                other.cluster, mine.cluster
            ));
        }
        if let Some(lacks) = self.lacks(other.me, other.knows) {
            return Some(lacks);
        }
        if other.settings_digest != mine.settings_digest && !(standalone && other.settings_digest == 0) {
            let settings = [(them.as_str(), &other.settings), (&me, &mine.settings)];
            return Some(format!("settings differ: {}", settings_difference(settings)));
        }
        None
    }
}

/// Appends a [`Hello`] or an [`Answer`] with its header.
pub fn put(message: &impl Wire, out: &mut Vec<u8>) {
    let body = message.to_bytes();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[VERSIONS.newest, VERSIONS.older]);
    out.extend_from_slice(&u32::try_from(body.len()).expect("handshakes are short").to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
    out.extend_from_slice(&body);
}

/// Takes a handshake message off the front of what has come in; `None` if it is not whole yet. The error says what
/// is wrong.
pub fn take<T: Greeting>(input: &mut BytesMut) -> Result<Option<T>, String> {
    let start = input.len().min(MAGIC.len());
    if input[..start] != MAGIC[..start] {
        return Err(if input[0] == TLS_HANDSHAKE { SPEAKS_TLS } else { NOT_OURS }.to_owned());
    }
    if input.len() < HEADER {
        return Ok(None);
    }
    let mut header = &input[MAGIC.len()..HEADER];
    let versions = Versions { newest: header.get_u8(), older: header.get_u8() };
    let (length, crc) = (header.get_u32_le() as usize, header.get_u32_le());
    let is_spoken = VERSIONS.common(versions).is_some();
    if length > LIMIT {
        return Err(format!("the handshake announces {length} bytes, more than {LIMIT}"));
    }
    // The start of a refusal is the same in all versions; anything else of a version not spoken here stays unread.
    if input.len() < HEADER + length {
        return if is_spoken || input.len() <= HEADER || input[HEADER] == 0 {
            Ok(None)
        } else {
            Err(version_difference::<T>(versions))
        };
    }
    input.advance(HEADER);
    let body = input.split_to(length).freeze();
    if crc32c::crc32c(&body) != crc {
        return Err("the handshake is damaged".to_owned());
    }
    if !is_spoken {
        return Err(match Answer::from_bytes(body) {
            Ok(Answer::Refused(reason)) => text(&reason),
            _ => version_difference::<T>(versions),
        });
    }
    // A later version may have more behind.
    T::decode(&mut Decoder::new(body))
        .map(Some)
        .map_err(|error| format!("the handshake cannot be read: {error}"))
}

impl Hello {
    /// Where it can be reached, seen by whom it has connected to from an address; `None` if it does not say, or nothing
    /// that makes sense.
    pub fn reachable(&self, from: SocketAddr) -> Option<String> {
        let address =
            std::str::from_utf8(&self.address).ok().filter(|address| address.len() <= LONGEST_ADDRESS)?;
        check_address(address).ok()?;
        match address.parse::<SocketAddr>() {
            Ok(own) if own.ip().is_unspecified() => Some(SocketAddr::new(from.ip(), own.port()).to_string()),
            _ => Some(address.to_owned()),
        }
    }
}

/// Text from outside, for a log line: short and printable.
pub fn text(bytes: &[u8]) -> String {
    let lossy = String::from_utf8_lossy(&bytes[..bytes.len().min(500)]);
    lossy.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A process as operators know it.
pub fn name(process: ProcessId) -> String {
    match process {
        ProcessId::Replica(node) => format!("node {node}"),
        ProcessId::Proxy(proxy) => match proxy.host() {
            Some(node) => format!("the proxy of node {node}"),
            None => format!("proxy {:x}", proxy.0),
        },
    }
}

/// The node that a process is or lives in; `None` for a standalone proxy.
pub fn node_of(process: ProcessId) -> Option<NodeId> {
    match process {
        ProcessId::Replica(node) => Some(node),
        ProcessId::Proxy(proxy) => proxy.host(),
    }
}

fn version_difference<T: Greeting>(versions: Versions) -> String {
    let (sender, recipient) = (T::SENDER, T::RECIPIENT);
    format!(
        "{sender} speaks {versions} of the peer protocol, {recipient} speaks {VERSIONS}: upgrade one release at a time"
    )
}

/// Settings that two processes have not in common, each with both values.
fn settings_difference(settings: [(&str, &BTreeMap<Bytes, Bytes>); 2]) -> String {
    let [(one, ones), (other, others)] = settings;
    let show = |value: Option<&Bytes>| value.map_or("unset".to_owned(), |value| text(value));
    let keys: std::collections::BTreeSet<_> = ones.keys().chain(others.keys()).collect();
    let mut words: Vec<_> = keys
        .into_iter()
        .filter(|key| ones.get(*key) != others.get(*key))
        .map(|key| {
            let values = [ones, others].map(|settings| show(settings.get(key)));
            format!("{} is {} at {one}, {} at {other}", text(key), values[0], values[1])
        })
        .collect();
    if words.is_empty() {
        words.push("by digest only".to_owned());
    }
    words.truncate(5);
    words.join("; ")
}

#[cfg(test)]
mod tests;
