//! What must hold whatever bytes come in. Each target is a function of the bytes that panics if it does not;
//! `fuzz/` at the root calls them under libFuzzer, and `tests/replay.rs` here with every input that is kept.
//!
//! | file | targets |
//! |---|---|
//! | `resp` | requests, replies |
//! | `wire` | commands and replies of the store, its snapshots, messages and records of every protocol |
//! | `values` | what slots and entries carry, whole and in shards |
//! | `peers` | frames, the handshake |
//! | `disk` | the log, checkpoints, the identity file |
//! | `words` | settings, the initial cluster, files of users |
//! | `conversation` | a small cluster whose messages and records are seeds |
//! | [`meter`] | that memory is bounded by the input |

mod conversation;
mod disk;
pub mod meter;
mod peers;
mod resp;
mod values;
mod wire;
mod words;

/// A target.
#[derive(Clone, Copy)]
pub struct Target {
    /// Of its folders in `fuzz/corpus` and `fuzz/regressions`.
    pub name: &'static str,
    /// Panics if something does not hold.
    pub run: fn(&[u8]),
    /// Valid encodings to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const TARGETS: [Target; 13] = [
    Target { name: "resp_request", run: resp::request, seeds: resp::request_seeds },
    Target { name: "resp_reply", run: resp::reply, seeds: resp::reply_seeds },
    Target { name: "command", run: wire::command, seeds: wire::command_seeds },
    Target { name: "reply", run: wire::reply, seeds: wire::reply_seeds },
    Target { name: "snapshot", run: wire::snapshot, seeds: wire::snapshot_seeds },
    Target { name: "protocols", run: wire::protocols, seeds: wire::protocol_seeds },
    Target { name: "value", run: values::value, seeds: values::value_seeds },
    Target { name: "frame", run: peers::frame, seeds: peers::frame_seeds },
    Target { name: "handshake", run: peers::handshake, seeds: peers::handshake_seeds },
    Target { name: "wal", run: disk::wal, seeds: disk::wal_seeds },
    Target { name: "checkpoint", run: disk::checkpoint, seeds: disk::checkpoint_seeds },
    Target { name: "identity", run: disk::identity, seeds: disk::identity_seeds },
    Target { name: "settings", run: words::settings, seeds: words::settings_seeds },
];

/// Steps a small cluster of a protocol whose replicas get changed copies of their messages, drawn by the seed. Gives
/// how many came; panics if a replica does.
pub fn disturb(protocol: &str, seed: u64) -> u64 {
    conversation::disturb(quorate_protocols::registry::named(protocol), seed)
}

/// What a protocol writes: one message of each kind, by its name, and a few records, as `record`.
pub fn encodings(protocol: &str) -> Vec<(&'static str, Vec<u8>)> {
    let (messages, records) = conversation::encodings(quorate_protocols::registry::named(protocol));
    let messages = messages.into_iter().filter_map(|(kind, all)| Some((kind, all.first()?.to_vec())));
    messages.chain(records.into_iter().map(|record| (RECORD, record.to_vec()))).collect()
}

/// Reads such an encoding and writes it again; the error says why it cannot be read.
pub fn recode(protocol: &str, kind: &str, encoding: &[u8]) -> Result<Vec<u8>, String> {
    let process = conversation::process(quorate_protocols::registry::named(protocol));
    let encoding = bytes::Bytes::copy_from_slice(encoding);
    let recoded = match kind {
        RECORD => process.recode_record(&encoding),
        _ => process.recode_message(&encoding),
    };
    recoded.map(|bytes| bytes.to_vec()).map_err(|error| error.to_string())
}

/// Stands for the kind of a record.
const RECORD: &str = "record";

/// Runs one target on one input, and checks that its memory stays within the input's size times a constant.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    let target = target.unwrap_or_else(|| panic!("no target is called {name}"));
    let peak = meter::peak(|| (target.run)(input));
    let bound = meter::FIXED + meter::PER_BYTE * input.len();
    assert!(peak <= bound, "{name} took {peak} bytes for {} bytes of input", input.len());
}
