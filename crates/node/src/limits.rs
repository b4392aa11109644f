//! Every bound of a node, in one place. Whatever grows with what others do has its limit here, and its current
//! length in [`metrics`](crate::metrics).

use std::ops::Range;
use std::time::Duration;

/// Bounds on what a node keeps, and on how long it waits. Sizes are in bytes.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Client connections; the next one is closed at once.
    pub clients: usize,
    /// Requests under way on one client connection; its input waits meanwhile.
    pub client_requests: usize,
    /// Requests under way in all; further ones fail as overloaded at once.
    pub requests: usize,
    /// Bytes of the commands under way in all, from which on no client is read.
    pub request_bytes: usize,
    /// Input of one client that is no whole request yet; beyond, the connection is closed.
    pub client_input: usize,
    /// Output that one client has not taken yet, from which on nothing more is read from it.
    pub client_output_pause: usize,
    /// Output that one client has not taken yet, beyond which its connection is closed.
    pub client_output: usize,
    /// What is kept for all clients together: input that is no whole request yet, transactions before their EXEC with
    /// what they watch, output not taken. From half of it on, a client that has output waiting is not read; beyond it,
    /// the connections for which most is kept are closed.
    pub client_memory: usize,
    /// One message between processes; a longer one is refused before memory is reserved for it.
    pub frame: usize,
    /// Messages of one class waiting to be written to one process; further ones are dropped and counted.
    pub peer_output: usize,
    /// Incoming connections of standalone proxies.
    pub proxies: usize,
    /// Incoming connections that have not said who they are; with as many, one that has taken long gives way to the
    /// next.
    pub strangers: usize,
    /// Records handed to the log that are not durable yet, from which on no input is read.
    pub unsynced: usize,
    /// Log since the last snapshot, from which on the next one is due (or the last snapshot's size, if larger).
    pub snapshot_after: u64,
    /// Client connections whose TLS handshake is not over; with as many, one that has taken long gives way to the next.
    pub handshakes: usize,
    /// What is to stay free on the disk: with less, a node refuses writes that grow the data where it leads. `None`: a
    /// twentieth of it, and no more than a gibibyte.
    pub disk_reserve: Option<u64>,
    /// From connecting to the end of the handshake, between processes and of TLS.
    pub handshake: Duration,
    /// From connecting until a connection whose handshake is not over gives way to another, where there are too many.
    pub gives_way: Duration,
    /// Between attempts to connect to a member: the first wait doubles up to the longest.
    pub redial: Range<Duration>,
    /// Until the next attempt after a refusal: somebody has to change something first.
    pub redial_refused: Duration,
    /// Data that a peer does not acknowledge, or silence of its kernel: then it counts as gone.
    pub silence: Duration,
    /// From the request to stop until what is under way is given up.
    pub drain: Duration,
    /// Requests that take as long are logged with their stages; `None` logs none.
    pub slow: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: usize = 1 << 20;
        Limits {
            clients: 10_000,
            client_requests: 1024,
            requests: 1 << 16,
            request_bytes: 256 * MIB,
            client_input: 80 * MIB,
            client_output_pause: MIB,
            client_output: 128 * MIB,
            client_memory: 1024 * MIB,
            frame: quorate_core::MAX_MESSAGE,
            peer_output: 96 * MIB,
            proxies: 1024,
            strangers: 64,
            unsynced: 128 * MIB,
            snapshot_after: 128 << 20,
            handshakes: 256,
            disk_reserve: None,
            handshake: Duration::from_secs(5),
            gives_way: Duration::from_secs(1),
            redial: Duration::from_millis(50)..Duration::from_secs(1),
            redial_refused: Duration::from_secs(2),
            silence: Duration::from_secs(5),
            drain: Duration::from_secs(5),
            slow: Some(Duration::from_millis(100)),
        }
    }
}

/// What one socket may bring into one turn of the loop, so that a fast one does not starve the others.
pub(crate) const READ_PER_TURN: usize = 256 << 10;

/// What all clients together bring into one turn of the loop and are answered in it at once, in bytes; whoever comes
/// behind that waits for another turn. Peers must not wait while thousands of pipelines are read.
pub(crate) const SERVED_PER_TURN: usize = 1 << 20;

/// What one client may be sent in one turn of the loop.
pub(crate) const WRITTEN_PER_TURN: usize = 256 << 10;

/// The buffer that sockets are read into, shared by all.
pub(crate) const READ_AT_ONCE: usize = 256 << 10;

/// A client that has asked nothing for so long after its node was asked to stop is let go; one that asks is let go with
/// its reply.
pub(crate) const DRAIN_IDLE: Duration = Duration::from_millis(200);

/// How long a client that is let go may take to notice, before its connection is closed on it.
pub(crate) const DRAIN_LINGER: Duration = Duration::from_millis(100);

/// How often clients are looked through while a node stops.
pub(crate) const DRAIN_SWEEP: Duration = Duration::from_millis(20);

/// Rounds of messages between the local machines in one turn; what is left goes on in the next.
pub(crate) const LOCAL_ROUNDS: usize = 16;

/// Timers that may fire in one turn.
pub(crate) const TIMERS_PER_TURN: usize = 1024;

/// Pieces of long requests that go on in one turn, of all clients together: each is a millisecond or two for the
/// replica that serves it.
pub(crate) const RESUMES_PER_TURN: usize = 4;

/// Connections whose TLS handshake goes on in one turn: each step takes some tenths of a millisecond.
pub(crate) const HANDSHAKES_PER_TURN: usize = 16;

/// Connections accepted in one turn, per listener.
pub(crate) const ACCEPTS_PER_TURN: usize = 256;

/// Buffers of an idle connection that are larger than this are given back.
pub(crate) const KEEP_IDLE: usize = 4096;
