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

/// `batch.entries`, `batch.bytes`, `intake.bytes`.
pub fn intake(settings: &mut Settings) -> Result<IntakeConfig, SettingsError> {
    Ok(IntakeConfig {
        batch: Limits {
            entries: settings.number("batch.entries", 1024, 1..=65536)? as usize,
            bytes: settings.bytes("batch.bytes", "1MiB", 1..=64 << 20)? as usize,
        },
        max_bytes: settings.bytes("intake.bytes", "256MiB", 1 << 20..=16 << 30)? as usize,
    })
}

/// A setting that names members: `all`, `none`, or ids.
pub fn members(
    group: &Group,
    settings: &mut Settings,
    key: &str,
    default: &str,
) -> Result<NodeSet, SettingsError> {
    let members = group.members;
    settings.take(key, default, "all, none, or ids of members", |text| match text {
        "all" => Some(members),
        "none" => Some(NodeSet::EMPTY),
        ids => {
            let id = |word: &str| word.trim().parse().ok().and_then(NodeId::new);
            ids.split(',').map(|word| id(word).filter(|id| members.contains(*id))).collect()
        }
    })
}

/// `proxy.patience`, `proxy.requests`.
pub fn proxy(group: &Group, settings: &mut Settings) -> Result<ProxyConfig, SettingsError> {
    let patience = settings.duration("proxy.patience", "300ms")?;
    if patience < Duration::from_millis(1) {
        return Err(SettingsError::Conflict("proxy.patience must be at least 1ms".to_owned()));
    }
    Ok(ProxyConfig {
        members: group.members,
        patience,
        nearest: false,
        home: false,
        bounded: false,
        unhold: None,
        majority: None,
        max_requests: settings.number("proxy.requests", 65536, 1..=1 << 20)? as usize,
    })
}
