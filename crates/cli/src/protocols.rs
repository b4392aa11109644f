//! `quorate protocols`, and the choice of a protocol by its name.

use std::io::{Write, stdout};

use quorate_protocols::registry::{self, Info, Visitor};

use crate::failure::Failure;

/// Visits the protocol that the command line names.
pub fn with<V: Visitor>(name: &str, visitor: V) -> Result<V::Out, Failure> {
    registry::with(name, visitor).ok_or_else(|| {
        let known: Vec<_> = registry::all().iter().map(|info| info.name).collect();
        Failure::wrong(format!("unknown protocol `{name}`; known here: {}", known.join(", ")))
    })
}

/// Prints the table.
pub fn list() -> Result<(), Failure> {
    let mut rows =
        vec![["name", "order", "durability", "clocks", "nodes", "reads", "paper"].map(str::to_owned)];
    for Info { name, paper, capabilities: can } in registry::all() {
        let order = match (can.total_order, can.multi_key) {
            (true, _) => "total",
            (false, true) => "partial",
            (false, false) => "per key",
        };
        rows.push([
            name.to_owned(),
            order.to_owned(),
            if can.diskless { "disk or none" } else { "disk" }.to_owned(),
            if can.clocks { "bounded" } else { "-" }.to_owned(),
            if can.min_nodes == can.max_nodes {
                can.min_nodes.to_string()
            } else {
                format!("{}-{}", can.min_nodes, can.max_nodes)
            },
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
