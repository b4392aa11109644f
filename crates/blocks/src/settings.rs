//! The settings that protocols share, read in one place so that they have one name, one default and one limit.

use std::time::Duration;

use quorate_core::{Group, NodeId, NodeSet, Settings, SettingsError};

use crate::batch::Limits;
use crate::clients::ProxyConfig;

/// How a leader takes requests in.
#[derive(Clone, Debug)]
pub struct IntakeConfig {
    /// What one slot may carry.
    pub batch: Limits,
    /// Bytes of requests that may wait at a leader; beyond, proxies have to repeat them.
    pub max_bytes: usize,
}

/// How much gathers before it is proposed: `batch.entries`, `batch.bytes`, `intake.bytes`.
pub fn intake(settings: &mut Settings) -> Result<IntakeConfig, SettingsError> {
    Ok(IntakeConfig {
        batch: Limits {
            entries: settings.number(
                "batch.entries",
                1024,
                1..=65536,
                "Commands in one slot, log entry or instance, at most; what was given up does not count",
            )? as usize,
            bytes: settings.bytes(
                "batch.bytes",
                "1MiB",
                1..=64 << 20,
                "Bytes of commands in one slot, log entry or instance, before the last command",
            )? as usize,
        },
        max_bytes: intake_bytes(settings)?,
    })
}

/// How much may wait at a replica: `intake.bytes`.
pub fn intake_bytes(settings: &mut Settings) -> Result<usize, SettingsError> {
    let meaning = "Bytes of requests that may wait at a replica; proxies repeat what does not fit";
    Ok(settings.bytes("intake.bytes", "256MiB", 1 << 20..=16 << 30, meaning)? as usize)
}

/// How often a leader shows that it is there: `heartbeat`.
pub fn heartbeat(settings: &mut Settings) -> Result<Duration, SettingsError> {
    let meaning = "A leader (in EPaxos, every replica) speaks at least this often";
    let heartbeat = settings.duration("heartbeat", "100ms", meaning)?;
    match heartbeat < Duration::from_millis(1) {
        true => Err(SettingsError::Conflict("heartbeat must be at least 1ms".to_owned())),
        false => Ok(heartbeat),
    }
}

/// How much clocks may gain or lose on each other over a lease: `lease.drift`.
pub fn drift(settings: &mut Settings) -> Result<Duration, SettingsError> {
    let meaning = "How much two clocks may gain or lose on each other over one lease";
    settings.duration("lease.drift", "30ms", meaning)
}

/// `pipeline`, of a leader.
pub fn pipeline(settings: &mut Settings) -> Result<usize, SettingsError> {
    let meaning = "Slots proposed and not chosen (Raft: entries appended and not committed), at most";
    Ok(settings.number("pipeline", 256, 1..=16384, meaning)? as usize)
}

/// How many bytes of entries one message has: `append.bytes`.
pub fn append_bytes(settings: &mut Settings) -> Result<usize, SettingsError> {
    let meaning = "Bytes of entries in one message, before the last entry";
    Ok(settings.bytes("append.bytes", "1MiB", 1..=16 << 20, meaning)? as usize)
}

/// How many almost-local reads share a question to the leader: `alr.batch`.
pub fn alr_batch(settings: &mut Settings) -> Result<usize, SettingsError> {
    let meaning = "Almost-local reads that share a question to the leader, at most; they never wait for more";
    Ok(settings.number("alr.batch", 128, 1..=4096, meaning)? as usize)
}

/// How many bytes of executed values are kept for replicas that are behind: `log.retain`.
pub fn retain(settings: &mut Settings) -> Result<usize, SettingsError> {
    let meaning =
        "Bytes of executed values to keep for replicas that are a little behind; beyond, they get a snapshot";
    Ok(settings.bytes("log.retain", "32MiB", 0..=16 << 30, meaning)? as usize)
}

/// A setting that names members: `all`, `none`, or ids.
pub fn members(
    group: &Group,
    settings: &mut Settings,
    key: &str,
    default: &str,
    meaning: &'static str,
) -> Result<NodeSet, SettingsError> {
    let members = group.members;
    settings.take(key, default, "all, none, or ids of members", meaning, |text| match text {
        "all" => Some(members),
        "none" => Some(NodeSet::EMPTY),
        ids => {
            let id = |word: &str| word.trim().parse().ok().and_then(NodeId::new);
            ids.split(',').map(|word| id(word).filter(|id| members.contains(*id))).collect()
        }
    })
}

/// The proxy's settings: `proxy.patience`, `proxy.requests`, `value.part`.
pub fn proxy(group: &Group, settings: &mut Settings) -> Result<ProxyConfig, SettingsError> {
    let config = proxy_without_parts(group, settings)?;
    let part = settings.bytes(
        "value.part",
        "1MiB",
        1..=32 << 20,
        "Longer writes are several entries of the log, of this many bytes each, or of 256KiB if that is less",
    )? as usize;
    Ok(ProxyConfig { part, ..config })
}

/// Those of a proxy that sends every write whole.
pub fn proxy_without_parts(group: &Group, settings: &mut Settings) -> Result<ProxyConfig, SettingsError> {
    let meaning = "Without an answer for this long, a proxy repeats a request, to another replica if this one \
                   is silent";
    let patience = settings.duration("proxy.patience", "300ms", meaning)?;
    if patience < Duration::from_millis(1) {
        return Err(SettingsError::Conflict("proxy.patience must be at least 1ms".to_owned()));
    }
    Ok(ProxyConfig {
        members: group.members,
        patience,
        nearest: false,
        timely: false,
        local: false,
        home: false,
        bounded: false,
        unhold: None,
        majority: None,
        confirm: None,
        renew: None,
        each_refuses: false,
        max_requests: settings.number(
            "proxy.requests",
            65536,
            1..=1 << 20,
            "Requests under way at one proxy, at most; further ones are refused",
        )? as usize,
        part: usize::MAX,
    })
}
