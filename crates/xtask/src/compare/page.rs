//! The page of all comparisons, and README's table: functions of CSVs alone, so that a test can hold them to these.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use quorate_bench::grid::{Cell, Grid, Point, Schema, Time, table};

use super::processes::Result;
use super::ratios::{self, RATIOS};
use super::session::{LOADS, MEMBERS};
use super::systems::{
    CONNECTIONS, GET, GET_FOLLOWER, GET_STALE, KEYS, Load, OURS, PIPELINE, SET, SET_PIPELINED,
};
use super::systems::{VALUE, WITNESS_TIMEOUT, WITNESSES};
use super::versions::{self, VERSIONS};

/// The folder of the page and its CSVs.
pub const FOLDER: &str = "docs";
const PAGE: &str = "COMPARISON.md";
/// Where the wide area's CSVs are, which `cargo xtask figures bodega --only lab` writes.
const LAB: &str = "docs/figures/bodega";
/// The clusters of the wide area.
const CLUSTERS: [&str; 2] = ["GEO", "WAN"];
/// Its mixes of operations that are shown, and how many of them write.
const MIXES: [(&str, &str); 3] = [("A", "50% writes"), ("B", "5% writes"), ("C", "reads alone")];
/// Its services: as its CSVs call them, as the page does, and what their reads are.
const SERVICES: [(&str, &str, &str); 10] = [
    ("Bodega", "Quorate, `bodega`", "linearizable"),
    ("Quorum Leases", "Quorate, `quorum-leases`", "linearizable"),
    ("Leader Leases", "Quorate, `multipaxos`", "linearizable"),
    ("Raft, LeaseGuard", "Quorate, `raft` (LeaseGuard)", "linearizable"),
    ("PQR (+ Ldr Ls)", "Quorate, `pqr` with a leader lease", "linearizable"),
    ("EPaxos", "Quorate, `epaxos`", "linearizable"),
    ("etcd", "etcd", "linearizable"),
    ("etcd, stale", "etcd, serializable reads", "possibly stale"),
    ("ZooKeeper, sync", "ZooKeeper, `sync` before each read", "as new as the leader's"),
    ("ZooKeeper", "ZooKeeper", "possibly stale"),
];
/// Those that the README shows.
const FIRST: [&str; 7] =
    ["Bodega", "Raft, LeaseGuard", "EPaxos", "etcd", "etcd, stale", "ZooKeeper, sync", "ZooKeeper"];

/// A CSV as its points.
struct Data {
    grid: Grid,
    points: Vec<Point>,
}

impl Data {
    fn of(grid: Grid) -> Data {
        Data { points: grid.points(Time::Real), grid }
    }

    fn read(path: &Path, schema: Option<Schema>) -> Result<Data> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Data::of(match schema {
            Some(schema) => Grid::parse(schema, &text)?,
            None => Grid::read(&name, &text)?,
        }))
    }

    /// The number of a column, with its unit, at a point.
    fn cell(&self, keys: &[&str], column: &str) -> Option<Cell> {
        let at = self.grid.number_at(column)?;
        self.points.iter().find(|point| point.keys == keys)?.cells[at]
    }

    /// How many runs a point has.
    fn runs(&self, keys: &[&str], column: &str) -> usize {
        let Some(at) = self.grid.number_at(column) else { return 0 };
        self.grid.rows.iter().filter(|row| row.keys == keys && row.numbers[at].is_some()).count()
    }

    /// The words of a dimension, in their order.
    fn words(&self, dim: usize) -> Vec<&str> {
        let mut words: Vec<&str> = Vec::new();
        for point in &self.points {
            if !words.contains(&point.keys[dim].as_str()) {
                words.push(&point.keys[dim]);
            }
        }
        words
    }

    /// When, where and of what it was measured.
    fn head(&self) -> String {
        let says = |name: &str| self.grid.says(name);
        let quiet = if says("quiet") == "yes" { "quiet" } else { "**not quiet**" };
        format!(
            "measured {} at commit {}, on {}; {quiet}: processors that others kept busy: {}; took {}",
            says("measured"),
            says("commit"),
            says("machine"),
            says("load"),
            says("took")
        )
    }

    /// The same for the README.
    fn origin(&self) -> String {
        let says = |name: &str| self.grid.says(name);
        let date = says("measured").split(' ').next().unwrap_or_default();
        let cores = says("machine").split(", ").find(|part| part.ends_with(" cores")).unwrap_or_default();
        let quiet = if says("quiet") == "yes" { "quiet" } else { "**not quiet**" };
        format!("{date}, commit {}, {cores}, {quiet}", says("commit"))
    }
}

/// What is measured over a wide area: services, and each site of theirs.
struct Lab {
    services: Data,
    sites: Data,
}

/// What is measured on local disks: loads, and members at rest and after a kill.
struct Local {
    loads: Data,
    members: Data,
    /// Settings against each other, if that was measured.
    ratios: Option<Data>,
    /// This build against earlier ones, if that was measured.
    versions: Option<Data>,
}

impl Lab {
    fn read(root: &Path) -> Result<Lab> {
        let read = |name: &str| Data::read(&root.join(LAB).join(name), None);
        Ok(Lab { services: read("lab.csv")?, sites: read("lab-sites.csv")? })
    }
}

impl Local {
    /// Nothing, where nothing has been measured yet.
    fn read(folder: &Path) -> Result<Option<Local>> {
        let path = |schema: Schema| folder.join(format!("{}.csv", schema.id));
        if !path(LOADS).exists() {
            return Ok(None);
        }
        let read = |schema| Data::read(&path(schema), Some(schema));
        let read_if_there = |schema| path(schema).exists().then(|| read(schema)).transpose();
        let [ratios, versions] = [read_if_there(RATIOS)?, read_if_there(VERSIONS)?];
        Ok(Some(Local { loads: read(LOADS)?, members: read(MEMBERS)?, ratios, versions }))
    }
}

/// Writes the page into a folder that has its CSVs, and the README's table if that is the repository's; gives what
/// was written.
pub fn write(root: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let (local, lab) = (Local::read(folder)?, Lab::read(root)?);
    let mut outputs = BTreeMap::new();
    if let Some(local) = &local {
        outputs.insert(folder.join(PAGE), page(local, &lab));
    }
    let home = |path: &Path| path.canonicalize().ok();
    if home(folder) == home(&root.join(FOLDER)) {
        let path = root.join("README.md");
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
        outputs.insert(path, readme(&text, &lab)?);
    }
    for (path, text) in &outputs {
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(outputs.into_keys().collect())
}

/// The README with its table.
fn readme(text: &str, lab: &Lab) -> Result<String> {
    quote(text, "the wide area", &lab_quote(lab))
}

/// A text in which something else stands between the two comments that name it.
fn quote(text: &str, name: &str, new: &str) -> Result<String> {
    let begin = format!("<!-- Comparison, {name}: cargo xtask compare writes this. -->\n");
    let end = "<!-- End of the comparison. -->\n";
    let missing = || format!("README.md has no `{}`", begin.trim());
    let (before, rest) = text.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(end).ok_or_else(|| format!("{}: it has no end", missing()))?;
    Ok(format!("{before}{begin}\n{new}\n{end}{after}"))
}

/// A rate: no fraction, and its thousands apart from 10,000 on.
fn rate(value: f64) -> String {
    let text = format!("{value:.0}");
    match text.len() {
        ..5 => text,
        digits => {
            let mut shown = String::new();
            for (at, digit) in text.chars().enumerate() {
                if at > 0 && (digits - at) % 3 == 0 {
                    shown.push(',');
                }
                shown.push(digit);
            }
            shown
        }
    }
}

/// Anything else: three digits, but no more than two behind the point.
fn three(value: f64) -> String {
    match value {
        value if value >= 99.95 => rate(value),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// µs in ms.
fn millis(value: f64) -> String {
    three(value / 1e3)
}

fn shown(cell: Option<Cell>, number: fn(f64) -> String) -> String {
    cell.map_or("-".to_owned(), |cell| cell.shown(number))
}

fn median(cell: Option<Cell>, number: fn(f64) -> String) -> String {
    cell.map_or("-".to_owned(), |cell| number(cell.value))
}

/// A system's name for people.
fn name(system: &str) -> String {
    system.strip_prefix(OURS).map_or_else(|| system.to_owned(), |protocol| format!("Quorate, `{protocol}`"))
}

fn page(local: &Local, lab: &Lab) -> String {
    let mut text = String::from("# Comparison\n\n");
    let runs = local.loads.grid.runs().len();
    let _ = writeln!(
        text,
        "Quorate's protocols beside etcd, ZooKeeper, Redis and a bare replicator. Made by `cargo xtask compare` from \
         [comparison.csv](comparison.csv), [comparison-members.csv](comparison-members.csv), and what the emulated \
         wide area measured, [lab.csv](figures/bodega/lab.csv) and [lab-sites.csv](figures/bodega/lab-sites.csv); \
         `cargo xtask compare --judge` makes it again without measuring. Numbers are medians, with the lowest and the \
         highest of the runs.\n\n## One machine, local disks\n"
    );
    let says = |name: &str| local.loads.grid.says(name);
    let _ = writeln!(text, "- {}", local.loads.head());
    let _ = writeln!(text, "- disk: {}\n- {}", says("disk"), says("versions"));
    caveats(&mut text, &local.loads.grid);
    let _ = writeln!(
        text,
        "- {runs} rounds; in each, every system is started anew, alone, with empty data directories; runs of {}\n\
         - three members on loopback addresses of one machine, one for Redis and `unreplicated`; every write is \
         synced by each member that counts for it (Redis: `appendfsync always`), all other settings are the \
         defaults\n\
         - {KEYS} keys, uniform, values of {VALUE} B; {CONNECTIONS} connections to the leader (to the first member \
         where there is none, or none can be chosen), one request under way on each, except where another number is \
         said\n\
         - the load generator runs on the same processors: `quorate bench` for what speaks Redis's protocol, \
         `bench/etcd-load` for etcd, `bench/ycsb` for ZooKeeper; its own CPU for each operation is shown\n\
         - CPU and memory are of all members together; bytes are those that members send each other, payload of \
         their TCP connections by the kernel's counters\n\
         - reads are linearizable, except ZooKeeper's: after `sync` they are as new as the leader's, and the row \
         *possibly stale* has none",
        says("runs"),
    );
    for (title, load) in [
        ("Writes".to_owned(), SET),
        (format!("Writes, {PIPELINE} under way on each connection"), SET_PIPELINED),
        ("Reads at the leader".to_owned(), GET),
        ("Reads at a follower".to_owned(), GET_FOLLOWER),
    ] {
        let _ = writeln!(text, "\n### {title}\n");
        loads(&mut text, &local.loads, load);
    }
    outages(&mut text, &local.members);
    if let Some(found) = &local.ratios {
        ratios::section(&mut text, &found.grid, &found.head());
    }
    if let Some(found) = &local.versions {
        versions::section(&mut text, &found.grid, &found.head());
    }
    wide_area(&mut text, lab);
    let _ = writeln!(
        text,
        "\n## Commands\n\nOf the first round: the member that leads, and the loads.\n\n```text"
    );
    for (name, value) in &local.loads.grid.head {
        if let Some(system) = name.strip_prefix("commands of ") {
            let _ = writeln!(text, "{system}\n  {}", value.replace(" · ", "\n  "));
        }
    }
    text.push_str("```\n");
    text
}

/// What an interval says of a bar: it is met if all of it meets it, and missed if none of it does.
pub fn of_interval((low, high): (f64, f64), meets: impl Fn(f64) -> bool) -> &'static str {
    match [low, high].map(meets) {
        [true, true] => "met",
        [false, false] => "**missed**",
        [..] => "cannot be judged: the interval holds the bar",
    }
}

/// What a reader of these numbers must know: the head of their CSV says it.
pub fn caveats(text: &mut String, grid: &Grid) {
    let disturbed = "measured again, since others kept processors busy after it";
    for (what, word) in
        [("left out because it failed twice", "left out"), (disturbed, "again"), ("note", "note")]
    {
        if !["", "nothing"].contains(&grid.says(word)) {
            let _ = writeln!(text, "- **{what}: {}**", grid.says(word));
        }
    }
}

/// The table of a load.
fn loads(text: &mut String, data: &Data, load: Load) {
    let heads = [
        "system",
        "operations/s",
        "p50, ms",
        "p99, ms",
        "CPU of the members, µs/operation",
        "of the generator",
        "bytes between members, B/operation",
        "memory, MB",
    ];
    let mut points = Vec::new();
    for system in data.words(0) {
        points.push((name(system), [system, load.name]));
        if load == GET_FOLLOWER {
            points.push((format!("{}, possibly stale", name(system)), [system, GET_STALE.name]));
        }
    }
    let rows = points.iter().filter_map(|(name, keys)| {
        let of = |column: &str| data.cell(keys, column);
        Some(vec![
            name.clone(),
            of("operations_per_s")?.shown(rate),
            shown(of("p50_us"), millis),
            shown(of("p99_us"), millis),
            shown(of("members_cpu_us"), three),
            shown(of("generator_cpu_us"), three),
            shown(of("wire_B"), three),
            shown(of("memory_MB"), three),
        ])
    });
    table(text, &heads, rows);
}

fn outages(text: &mut String, data: &Data) {
    let _ = writeln!(
        text,
        "\n### At rest, and after the leader is killed\n\nAt rest with the keys written. The leader is killed with \
         SIGKILL (the first member, where there is none, or none can be chosen) while {WITNESSES} clients write \
         at the other members, each with one write under way; a write without an answer within {WITNESS_TIMEOUT} is \
         asked again on a new connection. The gap is the longest time in which no write was answered, from the kill \
         on.\n"
    );
    let heads = ["system", "CPU at rest, % of a core", "bytes between members, B/s", "memory, MB", "gap, ms"];
    let runs = data.grid.runs().len();
    let rows = data.words(0).into_iter().map(|system| {
        let of = |column: &str| data.cell(&[system], column);
        let back = data.runs(&[system], "gap_ms");
        let gap = match of("gap_ms") {
            None if of("killed").is_some_and(|killed| killed.high > 0.0) => "not served again".to_owned(),
            None => "nobody takes over".to_owned(),
            Some(cell) if back < runs => format!("{}, in {back} of {runs} runs", cell.shown(rate)),
            Some(cell) => cell.shown(rate),
        };
        vec![
            name(system),
            shown(of("rest_cpu_%"), three),
            shown(of("rest_wire_B_per_s"), rate),
            shown(of("rest_memory_MB"), three),
            gap,
        ]
    });
    table(text, &heads, rows);
}

fn wide_area(text: &mut String, lab: &Lab) {
    let _ = writeln!(
        text,
        "\n## Over a wide area\n\n- {}\n- a member at each of five sites, which are network namespaces of one machine; \
         `bench/wan` carries packets between them with the delays of GEO (Ireland, Virginia, Oregon, California, \
         Tokyo; 26 to 221 ms) or WAN (five sites of the United States; 2 to 62 ms), and measures its links first \
         ([lab-links.csv](figures/bodega/lab-links.csv))\n\
         - two clients at each site ask the member there, one operation under way each; `bench/ycsb` drives all \
         services; every write is synced; VA and WI lead where there is a leader\n\
         - other mixes, the 99th percentiles and the claims that this judges: \
         [figures/bodega](figures/bodega/README.md); `cargo xtask figures bodega --only lab` measures it again (20 \
         minutes, as root)",
        lab.services.head()
    );
    for cluster in CLUSTERS {
        let _ = writeln!(text, "\n### {cluster}: operations a second of all sites\n");
        let mixes = MIXES.map(|(_, title)| title);
        let heads = ["service", "reads are"]
            .into_iter()
            .chain(mixes)
            .chain(["CPU of the members, µs/operation with 5% writes"]);
        let rows = SERVICES.iter().map(|(service, shown_as, reads)| {
            let of = |mix, column: &str| lab.services.cell(&[service, mix, cluster], column);
            let rates = MIXES.iter().map(|(mix, _)| shown(of(mix, "operations_per_s"), rate));
            let cpu = shown(of("B", "server_cpu_ms"), |value| three(value * 1e3));
            [(*shown_as).to_owned(), (*reads).to_owned()].into_iter().chain(rates).chain([cpu]).collect()
        });
        table(text, &heads.collect::<Vec<_>>(), rows);
        let names: Vec<_> = lab
            .sites
            .words(3)
            .into_iter()
            .filter(|site| {
                lab.sites.points.iter().any(|point| point.keys[2] == cluster && point.keys[3] == **site)
            })
            .collect();
        for (what, column) in [("Reads", "read_mean_ms"), ("Writes", "write_mean_ms")] {
            let _ = writeln!(text, "\n{what} at each site with 5% writes, mean latency in ms:\n");
            let heads: Vec<_> = ["service"].into_iter().chain(names.iter().copied()).collect();
            let rows = SERVICES.iter().map(|(service, shown_as, _)| {
                let of = |site: &&str| shown(lab.sites.cell(&[service, "B", cluster, site], column), three);
                [(*shown_as).to_owned()].into_iter().chain(names.iter().map(of)).collect()
            });
            table(text, &heads, rows);
        }
    }
}

/// The README's table: operations a second in the wide area, of the systems in [`FIRST`].
fn lab_quote(lab: &Lab) -> String {
    let runs = lab.services.grid.runs().len();
    let mut text =
        format!("Operations a second of all sites; medians of {runs} runs ({}):\n\n", lab.services.origin());
    let heads = ["", "reads are"].into_iter().chain(MIXES.map(|(_, title)| title));
    let heads: Vec<_> = heads.chain(["read and write with 5% writes, ms"]).collect();
    let first = SERVICES.iter().filter(|(service, ..)| FIRST.contains(service));
    let rows = first.map(|(service, shown_as, reads)| {
        let of = |mix, column: &str| lab.services.cell(&[service, mix, "GEO"], column);
        let rates = MIXES.iter().map(|(mix, _)| median(of(mix, "operations_per_s"), rate));
        let pair = ["read_mean_ms", "write_mean_ms"].map(|column| median(of("B", column), three)).join(", ");
        [(*shown_as).to_owned(), (*reads).to_owned()].into_iter().chain(rates).chain([pair]).collect()
    });
    table(&mut text, &heads, rows);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_and_the_readme_are_those_of_the_csvs() {
        let root = crate::root();
        let folder = root.join(FOLDER);
        let (local, lab) = (Local::read(&folder).unwrap(), Lab::read(root).unwrap());
        let again = "run `cargo xtask compare --judge`";
        let text = std::fs::read_to_string(root.join("README.md")).unwrap();
        assert!(readme(&text, &lab).unwrap() == text, "README.md: {again}");
        let written = std::fs::read_to_string(folder.join(PAGE)).ok();
        assert!(written == local.map(|local| page(&local, &lab)), "{FOLDER}/{PAGE}: {again}");
    }

    fn measured(schema: Schema, rows: &str) -> Data {
        let head = "# commit: abc\n# machine: Some, 2 cores, Linux\n# measured: 2026-01-02 03:04 UTC\n# quiet: yes\n";
        Data::of(Grid::parse(schema, &format!("{head}{}\n{rows}", schema.columns().join(","))).unwrap())
    }

    #[test]
    fn a_system_has_a_row_where_it_was_loaded_and_a_gap_says_how_often_it_ended() {
        let loads_of = "Quorate raft,set,1,1000,500,900,3,2,400,30\nQuorate raft,set,2,3000,500,900,3,2,400,30\n\
                        Quorate raft,set,3,2000,500,900,3,2,400,30\nRedis,get,1,123456,50,90,3,2,0,5\n";
        let loads_of = measured(LOADS, loads_of);
        let mut text = String::new();
        loads(&mut text, &loads_of, SET);
        assert!(text.ends_with(
            "| Quorate, `raft` | 2000 (1000 to 3000) | 0.50 | 0.90 | 3.00 | 2.00 | 400 | 30.0 |\n"
        ));
        let members = "Quorate raft,1,0.1,100,30,1,900\nQuorate raft,2,0.1,100,30,1,\nRedis,1,0.1,0,5,0,\n";
        let members = measured(MEMBERS, members);
        let mut text = String::new();
        outages(&mut text, &members);
        assert!(text.contains("| Quorate, `raft` | 0.10 | 100 | 30.0 | 900, in 1 of 2 runs |\n"), "{text}");
        assert!(text.contains("| Redis | 0.10 | 0 | 5.00 | nobody takes over |\n"), "{text}");
        assert_eq!(loads_of.origin(), "2026-01-02, commit abc, 2 cores, quiet");
    }

    #[test]
    fn only_what_is_between_the_two_comments_is_replaced() {
        let text = "a\n<!-- Comparison, x: cargo xtask compare writes this. -->\nold\n\
                    <!-- End of the comparison. -->\nb\n";
        let new = quote(text, "x", "new\n").unwrap();
        assert_eq!(new, text.replace("old\n", "\nnew\n\n"));
        assert_eq!(quote(&new, "x", "new\n").unwrap(), new);
        assert!(quote(text, "y", "").is_err());
    }

    #[test]
    fn numbers_have_as_many_digits_as_they_are_worth() {
        assert_eq!([9999.4, 10_000.0, 1_234_567.0].map(rate), ["9999", "10,000", "1,234,567"]);
        assert_eq!(
            [0.0453, 9.99, 9.996, 84.54, 99.96, 216.4].map(three),
            ["0.05", "9.99", "10.0", "84.5", "100", "216"]
        );
    }
}
