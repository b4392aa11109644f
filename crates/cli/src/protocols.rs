//! `quorate protocols`, and the choice of a protocol by its name.

use std::io::{Write, stdout};

use quorate_api::resp::{KeyGroups, KeyScope};
use quorate_core::{Capabilities, Diskless, Setting, Settings};
use quorate_groups::Groups;
use quorate_protocols::registry::{self, Entry};
use quorate_runtime::AnyProtocol;

use crate::args::GroupFlags;
use crate::failure::Failure;

/// A protocol, or several groups with a protocol each.
#[derive(Clone, Copy)]
pub struct Chosen {
    pub protocol: &'static dyn AnyProtocol,
    groups: Option<&'static Groups>,
}

impl Chosen {
    /// For those who speak with clients.
    pub fn key_scope(&self) -> KeyScope {
        let names = |groups: &Groups| groups.groups().iter().map(|protocol| protocol.name()).collect();
        let groups = self.groups.map(|groups| KeyGroups::new(groups.partition.clone(), names(groups)));
        let protocols = self.protocol.groups();
        let capable = protocols.iter().map(|protocol| (protocol.name(), protocol.capabilities().multi_key));
        KeyScope::new(groups, capable)
    }

    /// A key of each group; none where there are no groups.
    pub fn key_of_each_group(&self) -> Vec<String> {
        let groups = self.groups.iter().flat_map(|groups| groups.partition.groups());
        groups
            .map(|(_, from, _)| from.map_or_else(String::new, |key| String::from_utf8_lossy(key).into()))
            .collect()
    }
}

/// What the command line chooses.
pub fn choose(name: &str, flags: &GroupFlags) -> Result<Chosen, Failure> {
    let protocol = find(name)?;
    let keys = flags.group_keys.as_deref();
    let groups = match &flags.groups {
        // Drivers need a protocol until the process ends.
        Some(groups) => Box::leak(Box::new(Groups::parse(protocol, groups, keys).map_err(Failure::wrong)?)),
        None if keys.is_some() => {
            return Err(Failure::wrong("--group-keys needs --groups, the number of groups"));
        }
        None => return Ok(Chosen { protocol, groups: None }),
    };
    Ok(Chosen { protocol: groups, groups: Some(groups) })
}

/// The protocol that the command line names.
pub fn find(name: &str) -> Result<&'static dyn AnyProtocol, Failure> {
    Ok(registry::find(name).map_err(Failure::wrong)?.protocol)
}

/// Prints what one protocol gives and needs, and its settings.
pub fn show(name: &str) -> Result<(), Failure> {
    let entry = registry::find(name).map_err(Failure::wrong)?;
    let can = entry.capabilities;
    let word = |can: bool| if can { "yes" } else { "no" }.to_owned();
    let rows = [
        ["paper", entry.paper].map(str::to_owned),
        ["reads", can.reads].map(str::to_owned),
        ["consistency of reads".to_owned(), consistency(&entry)],
        ["order of writes".to_owned(), order(&can).to_owned()],
        ["commands on several keys (MSET, MULTI, SCAN)".to_owned(), word(can.multi_key)],
        ["nodes".to_owned(), nodes(&can)],
        ["of 3, 5, 7 nodes may be lost".to_owned(), losses(&can)],
        ["its members can change (quorate member)".to_owned(), word(can.membership)],
        ["its leader can be chosen (quorate transfer)".to_owned(), word(can.transfer)],
        ["rosters (quorate roster)".to_owned(), word(can.rosters)],
        ["replaces a lost disk in place (--replace-disk)".to_owned(), word(can.rejoin)],
        ["runs without a disk (--durability none)".to_owned(), without_disk(can.diskless).to_owned()],
    ];
    print(&rows)?;
    let mut rows = vec![["setting", "default", "value", "meaning"].map(str::to_owned)];
    rows.extend(entry.settings().into_iter().map(|(name, Setting { default, expected, meaning })| {
        [name, default, expected, meaning.replace('`', "")]
    }));
    writeln!(stdout(), "\nsettings, given as --set SETTING=VALUE, the same at all nodes:\n")?;
    print(&rows)
}

/// What `--durability none` spares a protocol.
fn without_disk(diskless: Diskless) -> &'static str {
    match diskless {
        Diskless::No => "no",
        Diskless::Data => "its data are in memory alone, its promises on disk",
        Diskless::All => "yes",
    }
}

/// How many nodes of some groups may be lost.
fn losses(can: &Capabilities) -> String {
    let losses =
        [3, 5, 7].map(|nodes| if can.failover { nodes - (can.quorum)(nodes) } else { 0 }.to_string());
    losses.join(", ")
}

/// What holds of reads by default, and under which values of `reads` something else does.
fn consistency(entry: &Entry) -> String {
    let (can, group) = (entry.capabilities, entry.small_group());
    let holds = |words: &[String]| {
        let mut settings = Settings::parse(words).ok()?;
        entry.protocol.configure(&group, &mut settings).ok()?;
        Some((can.consistency)(&settings))
    };
    let default = holds(&[]).expect("defaults fit together");
    let choices = entry.settings().remove("reads").map_or(String::new(), |reads| reads.expected);
    let choices = choices.trim_start_matches("one of ").split(", ").filter_map(|choice| {
        let words = [format!("reads={choice}"), "allow_stale_reads=true".to_owned()];
        let held = holds(&words[..1]).or_else(|| holds(&words))?;
        (held != default).then(|| format!("; {} with reads={choice}", held.name()))
    });
    format!("{}{}", default.name(), choices.collect::<String>())
}

/// What is common to the order in which replicas execute writes.
fn order(can: &Capabilities) -> &'static str {
    if can.total_order { "total" } else { "partial" }
}

fn nodes(can: &Capabilities) -> String {
    match can.min_nodes == can.max_nodes {
        true => can.min_nodes.to_string(),
        false => format!("{}-{}", can.min_nodes, can.max_nodes),
    }
}

/// Prints the table.
pub fn list() -> Result<(), Failure> {
    let mut rows = vec![["name", "order", "durability", "nodes", "reads", "paper"].map(str::to_owned)];
    for Entry { name, paper, capabilities: can, .. } in registry::all() {
        rows.push([
            name.to_owned(),
            order(&can).to_owned(),
            if can.diskless == Diskless::No { "disk" } else { "disk or none" }.to_owned(),
            nodes(&can),
            can.reads.to_owned(),
            paper.to_owned(),
        ]);
    }
    print(&rows)
}

/// Prints rows as columns that line up.
pub fn print<R: AsRef<[String]>>(rows: &[R]) -> Result<(), Failure> {
    let mut out = stdout().lock();
    Ok(out.write_all(table(rows).as_bytes())?)
}

/// Rows as lines with columns that line up.
pub fn table<R: AsRef<[String]>>(rows: &[R]) -> String {
    let rows = || rows.iter().map(AsRef::as_ref);
    let width = |column: usize| rows().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..rows().next().map_or(0, <[String]>::len)).map(width).collect();
    let mut lines = String::new();
    for row in rows() {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        lines.push_str(cells.join("  ").trim_end());
        lines.push('\n');
    }
    lines
}
