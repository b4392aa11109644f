//! What a node lets its clients ask: from words to limits that fit together, and to the descriptors they need.

use quorate_api::resp;
use quorate_core::settings::parse_bytes;
use quorate_node::Limits;
use quorate_store::{REPLY_LIMIT, VALUE_LIMIT};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::args::Bounds;
use crate::failure::Failure;

/// Descriptors that are not clients': files, peers, strangers.
const RESERVE: usize = 256;
/// What a request may hold beyond its largest value.
const REST: usize = 8 << 20;
/// What a word takes in an encoded command beyond its bytes.
const WORD: usize = 4;
/// What a message may carry beside its largest command or reply: others that came before it, and numbers.
const BESIDE: usize = 3 << 20;
/// What a reply takes beyond the value in it.
const FRAME: usize = 64;

/// The limits of the node and of its client protocol.
pub fn limits(bounds: &Bounds) -> Result<(Limits, resp::Limits), Failure> {
    let (mut node, mut resp) = (Limits::default(), resp::Limits::default());
    if let Some(text) = &bounds.max_value {
        resp.value = size("max-value", text, 1, VALUE_LIMIT)?;
        resp.request = resp.value + REST;
        node.client_input = resp.request + REST;
    }
    if let Some(text) = &bounds.max_key {
        resp.key = size("max-key", text, 1, 1 << 20)?;
    }
    if let Some(text) = &bounds.client_output {
        node.client_output = size("client-output", text, resp.value + FRAME, 1 << 40)?;
        resp.early_replies = node.client_output;
    }
    let least = node.client_output;
    node.client_memory = match &bounds.client_memory {
        Some(text) => size("client-memory", text, least, 1 << 40)?,
        None => node.client_memory.max(least),
    };
    node.request_bytes = node.request_bytes.min(node.client_memory);
    if let Some(count) = bounds.max_clients {
        if count == 0 {
            return Err(Failure::wrong("--max-clients 0: a node that serves needs at least 1"));
        }
        node.clients = count;
    }
    fit_together(&node, &resp);
    Ok((node, resp))
}

/// Whatever a client may ask, or be told, travels in one message between nodes, with some others beside it.
fn fit_together(node: &Limits, resp: &resp::Limits) {
    let command = resp.request + WORD * resp.words;
    assert!(
        command.max(REPLY_LIMIT) + BESIDE <= node.frame,
        "a command of {command} bytes or a reply of {REPLY_LIMIT} does not fit into a message of {}",
        node.frame
    );
}

/// What is to stay free on the disk.
pub fn disk_reserve(text: &str) -> Result<u64, Failure> {
    Ok(size("disk-reserve", text, 0, 1 << 40)? as u64)
}

fn size(flag: &str, text: &str, least: usize, most: usize) -> Result<usize, Failure> {
    let found = parse_bytes(text).and_then(|size| usize::try_from(size).ok());
    found.filter(|size| (least..=most).contains(size)).ok_or_else(|| {
        Failure::wrong(format!(
            "--{flag} {text}: expected a size such as 64KiB, 1MiB or 4096, from {least} to {most} bytes"
        ))
    })
}

/// Takes as many descriptors as the system gives this process. If they are too few, fewer clients are let in: they
/// are refused in words instead of waiting at the door.
pub fn take_descriptors(limits: &mut Limits) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let Some(granted) = (if raised.is_ok() { maximum } else { current }) else { return };
    let room = usize::try_from(granted).unwrap_or(usize::MAX).saturating_sub(RESERVE).max(1);
    if room < limits.clients {
        tracing::warn!(
            descriptors = granted,
            "room for {room} clients, not {}: raise the limit on open files (ulimit -Hn)",
            limits.clients
        );
        limits.clients = room;
    }
}
