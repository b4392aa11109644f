//! Disks and data that reach their bounds: errors in words, no node dies, and service returns when there is room.

#[path = "support/http.rs"]
mod http;
#[path = "support/load.rs"]
mod load;
mod support;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use http::get;
use load::Load;
use quorate_bench::Ports;
use support::{Cluster, Connection, Node, PATIENCE, Resp, wait_for, wait_until};

const MIB: u64 = 1 << 20;

fn call(cluster: &Cluster, node: usize, words: &[&str]) -> Resp {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    Connection::open(&cluster.nodes[node].resp).unwrap().call(&words).unwrap()
}

fn ok() -> Resp {
    Resp::Simple("OK".into())
}

fn is_error(reply: &Resp, start: &str) -> bool {
    matches!(reply, Resp::Error(text) if text.starts_with(start))
}

/// Runs a command of the command line: its exit code, and what it prints and says.
fn quorate(cluster: &Cluster, node: usize, words: &[&str]) -> (Option<i32>, String, String) {
    quorate_at(&cluster.nodes[node].resp, words)
}

/// The same, at several endpoints.
fn quorate_at(endpoint: &str, words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    let output = command.args(words).args(["--endpoints", endpoint]).output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// A cluster whose disks have as much free as files say.
struct Disks {
    cluster: Cluster,
    http: Vec<String>,
    files: Vec<PathBuf>,
    _dir: tempfile::TempDir,
    _ports: Ports,
}

impl Disks {
    fn start(protocol: &str, flags: &[&str]) -> Disks {
        let (ports, dir) = (Ports::claim().unwrap(), tempfile::tempdir().unwrap());
        let http: Vec<_> = (0..3).map(|_| ports.address()).collect();
        let files: Vec<_> = (0..3).map(|node| dir.path().join(node.to_string())).collect();
        let mut cluster = Cluster::prepare_each(3, protocol, |node| {
            let own = ["--listen-http", &http[node], "--disk-reserve", "100MiB"];
            own.iter().chain(flags).map(|flag| (*flag).to_owned()).collect()
        });
        for (node, file) in cluster.nodes.iter_mut().zip(&files) {
            fs::write(file, (1000 * MIB).to_string()).unwrap();
            node.start_with_free_disk(file);
        }
        cluster.nodes.iter().for_each(|node| node.wait_until_serving());
        Disks { cluster, http, files, _dir: dir, _ports: ports }
    }

    /// So much is free at a node from now on; returns when the node has noticed.
    fn free(&self, node: usize, mib: u64) {
        // A file that is replaced is never half there.
        let next = self.files[node].with_extension("next");
        fs::write(&next, (mib * MIB).to_string()).unwrap();
        fs::rename(&next, &self.files[node]).unwrap();
        let line = format!("quorate_disk_free_bytes {}", mib * MIB);
        wait_for("the node to look at its disk", || {
            get(&self.http[node], "/metrics")?.1.lines().any(|found| found == line).then_some(())
        });
    }
}

/// Who leads each group, by number; of a cluster without groups, who leads. `None` while somebody is missing.
fn leaders(cluster: &Cluster) -> Option<Vec<usize>> {
    let status = cluster.nodes[0].status()?;
    match status["groups"].as_array() {
        Some(groups) => groups.iter().map(|group| Some(group["leader"].as_u64()? as usize - 1)).collect(),
        None => Some(vec![status["leader"].as_u64()? as usize - 1]),
    }
}

/// `keys`: one of each group.
fn a_full_disk(protocol: &str, flags: &[&str], keys: &[&str]) {
    let disks = Disks::start(protocol, flags);
    let cluster = &disks.cluster;
    let set = |node: usize, value: &str| {
        for key in keys {
            wait_for("a write", || (call(cluster, node, &["SET", key, value]) == ok()).then_some(()));
        }
    };
    let refused = |reply: &Resp| is_error(reply, "READONLY disk nearly full on node ");
    let endpoints = cluster.nodes.iter().map(|node| node.resp.as_str()).collect::<Vec<_>>().join(",");
    let shown = || quorate_at(&endpoints, &["status"]);
    set(0, "v");
    let before = wait_for("leaders", || leaders(cluster));
    let led = |node: usize| before.iter().filter(|leader| **leader == node).count();
    let first = (0..3).max_by_key(|node| led(*node)).unwrap();
    assert!(led(first) > 1 || keys.len() == 1, "no node leads several groups: {before:?}");
    wait_for("the node to be ready", || (get(&disks.http[first], "/readyz")?.0 == "200").then_some(()));

    // The disk of a leader: others lead what it has led, and nobody is refused.
    disks.free(first, 50);
    wait_for("other leaders", || leaders(cluster).filter(|leaders| !leaders.contains(&first)));
    set(first, "w");
    let (status, body) = get(&disks.http[first], "/readyz").unwrap();
    assert!(
        status == "503" && body.contains("[-]disk failed: the disk is nearly full: 50 MiB of "),
        "{body}"
    );
    assert_eq!(get(&disks.http[first], "/readyz?exclude=disk").unwrap().0, "200");
    let (code, table, _) = quorate(cluster, first, &["status"]);
    let warning = format!("warning: node {}: the disk is nearly full: 50 MiB of ", first + 1);
    assert!(code == Some(0) && table.contains(&warning), "{table}");

    // All disks: whoever leads refuses what grows the data, wherever it is asked, and nothing else.
    (0..3).for_each(|node| disks.free(node, 50));
    for (node, key) in (0..3).flat_map(|node| keys.iter().map(move |key| (node, *key))) {
        let new = format!("{key}.new");
        wait_for("a refusal everywhere", || refused(&call(cluster, node, &["SET", &new, "v"])).then_some(()));
        assert_eq!(call(cluster, node, &["GET", key]), Resp::Bulk(b"w".to_vec()));
        assert_eq!(call(cluster, node, &["EXISTS", &new]), Resp::Integer(0));
    }
    let (code, table, said) = shown();
    let headline = "the cluster serves reads and refuses writes that add data: ";
    assert!(code == Some(1) && table.starts_with(headline) && said.contains(headline), "{table}{said}");
    for key in keys {
        assert_eq!(call(cluster, first, &["DEL", key]), Resp::Integer(1));
    }
    assert!(cluster.nodes.iter().all(|node| node.running()));

    // There is room again, and nobody has to do anything.
    (0..3).for_each(|node| disks.free(node, 1000));
    for node in 0..3 {
        set(node, "v");
        assert_eq!(get(&disks.http[node], "/readyz").unwrap().0, "200");
    }
    let (code, table, said) = shown();
    assert!(code == Some(0) && table.starts_with("the cluster serves reads and writes: "), "{table}{said}");
}

#[test]
fn a_leader_of_multipaxos_whose_disk_is_nearly_full_hands_over_and_all_of_them_refuse_only_what_grows() {
    a_full_disk("multipaxos", &[], &["k"]);
}

#[test]
fn a_leader_of_raft_whose_disk_is_nearly_full_hands_over_and_all_of_them_refuse_only_what_grows() {
    a_full_disk("raft", &[], &["k"]);
}

/// Six groups of three nodes: each leads two, of which one is replicated by MultiPaxos and one by Raft.
#[test]
fn a_leader_of_several_groups_whose_disk_is_nearly_full_hands_all_of_them_over() {
    let groups = "a-c,d-f=raft,g-i,j-l=raft,m-o,p-z=raft";
    a_full_disk("multipaxos", &["--groups", groups], &["a", "d", "g", "j", "m", "p"]);
}

/// A file system in memory of this size, mounted at a directory that it makes; `None` where that is not permitted.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path, mib: u64) -> Option<SmallDisk> {
        fs::create_dir_all(at).unwrap();
        let size = format!("size={mib}m");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).output();
        mount.is_ok_and(|output| output.status.success()).then(|| SmallDisk(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // What is still in use goes with its last user.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Asks a node until it is answered: while leaders change, some time passes without one.
fn call_again(cluster: &Cluster, node: usize, words: &[&str]) -> Resp {
    wait_for("a reply", || {
        let reply = call(cluster, node, words);
        (!is_error(&reply, "CLUSTERDOWN ")).then_some(reply)
    })
}

/// Sets values of 256 KiB, each at the node that `at` gives for its number, until one is refused with this error, or
/// there are so many. Adds their keys, the last one included.
fn fill(cluster: &Cluster, keys: &mut Vec<String>, at: impl Fn(usize) -> usize, most: usize, error: &str) {
    let value = "x".repeat(256 << 10);
    while keys.len() < most {
        keys.push(format!("fill:{}", keys.len()));
        match call_again(cluster, at(keys.len()), &["SET", &keys[keys.len() - 1], &value]) {
            reply if reply == ok() => {}
            reply if is_error(&reply, error) => return,
            reply => panic!("{reply:?}"),
        }
    }
    panic!("{most} values, and none was refused");
}

/// [`fill`], each value at the next node.
fn fill_in_turn(cluster: &Cluster, most: usize, error: &str) -> Vec<String> {
    let mut keys = Vec::new();
    fill(cluster, &mut keys, |number| number % 3, most, error);
    keys
}

/// Real disks that fill up by what is written, under load: whoever has room leads, and where nobody does, others take
/// what a node without room refuses; without, writes are refused until keys are deleted, and then it goes on by itself.
fn small_disks(protocol: &str) {
    let full = "READONLY disk nearly full on node ";
    // Hermes has no log of its own.
    let words = if protocol == "hermes" { 2 } else { 4 };
    let flags = ["--disk-reserve", "64MiB", "--set", "log.retain=1MiB"];
    let mut cluster = Cluster::prepare(3, protocol, &flags[..words]);
    let disks: Option<Vec<_>> = cluster.nodes.iter().map(|node| SmallDisk::mount(&node.data, 256)).collect();
    let Some(disks) = disks else { return println!("not tried: it needs to mount file systems") };
    cluster.nodes.iter_mut().for_each(|node| node.start());
    cluster.nodes.iter().for_each(|node| node.wait_until_serving());
    let resps: Vec<_> = cluster.nodes.iter().map(|node| node.resp.clone()).collect();
    let load = Load::start((0..3).map(|id| vec![resps[id].clone()]));
    load.progress(200);

    // The leader's, or that of one of those who are all alike: by a file of somebody else.
    let is_led = !["epaxos", "hermes"].contains(&protocol);
    let first = if is_led { cluster.leader() } else { 0 };
    let ballast = disks[first].0.join("ballast");
    fs::write(&ballast, vec![0; 185 << 20]).unwrap();
    if is_led {
        wait_for("another leader", || (cluster.leader() != first).then_some(()));
    } else {
        let is_refused = || is_error(&call(&cluster, first, &["SET", "elsewhere", "v"]), full);
        wait_for("a refusal", || is_refused().then_some(()));
    }
    load.progress(200);
    let by_another = if is_led { first } else { 1 };
    assert_eq!(call(&cluster, by_another, &["SET", "by-another", "v"]), ok());
    fs::remove_file(&ballast).unwrap();
    cluster.nodes[first].wait_for_line(&["the disk has room again"]);

    // All of them: by data. They take no more than the disk has, be there a snapshot to write or not.
    let most = 1024;
    let mut keys = fill_in_turn(&cluster, most, full);
    let accepted = keys.len() - 1;
    println!("{protocol}: refused after {accepted} values of 256 KiB");
    for node in 0..3 {
        // Somebody who has room yet may lead meanwhile: then it goes on.
        fill(&cluster, &mut keys, |_| node, most, full);
        assert_eq!(call(&cluster, node, &["STRLEN", "fill:0"]), Resp::Integer(256 << 10));
    }
    load.progress(200);
    assert!(cluster.nodes.iter_mut().all(|node| node.is_alive()));

    // One by one: not every protocol asks for several at once.
    for key in &keys[..accepted] {
        assert_eq!(call_again(&cluster, first, &["STRLEN", key]), Resp::Integer(256 << 10));
    }
    for key in &keys {
        let reply = call_again(&cluster, first, &["DEL", key]);
        assert!(matches!(reply, Resp::Integer(_)), "{reply:?}");
        assert_eq!(call_again(&cluster, first, &["STRLEN", key]), Resp::Integer(0));
    }
    for node in 0..3 {
        wait_for("a write", || (call(&cluster, node, &["SET", "new", "v"]) == ok()).then_some(()));
    }
    // A node whose last snapshot came in time may never have said that its disk was nearly full.
    wait_for("room on all disks", || {
        let (_, table, _) = quorate(&cluster, first, &["status"]);
        let serves = table.starts_with("the cluster serves reads and writes: ");
        (serves && !table.contains("the disk is nearly full")).then_some(())
    });
    load.progress(200);
    assert!(cluster.nodes.iter_mut().all(|node| node.is_alive()));
    load.check(&cluster.nodes);
}

#[test]
fn small_disks_of_multipaxos_fill_up_under_load_and_are_used_again_after_deleting() {
    small_disks("multipaxos");
}

#[test]
fn small_disks_of_raft_fill_up_under_load_and_are_used_again_after_deleting() {
    small_disks("raft");
}

#[test]
fn small_disks_of_epaxos_fill_up_under_load_and_are_used_again_after_deleting() {
    small_disks("epaxos");
}

#[test]
fn small_disks_of_hermes_fill_up_under_load_and_are_used_again_after_deleting() {
    small_disks("hermes");
}

#[test]
fn data_at_their_limit_under_load_are_refused_and_service_returns_after_deleting() {
    let mut cluster = Cluster::start(3, "multipaxos");
    let load = Load::start((0..3).map(|id| vec![cluster.nodes[id].resp.clone()]));
    load.progress(200);
    assert_eq!(quorate(&cluster, 0, &["config", "set", "max-data", "8mb"]).0, Some(0));
    let keys = fill_in_turn(&cluster, 64, "OOM ");
    assert!(keys.len() > 16, "{} of 256 KiB in 8 MiB", keys.len());
    load.progress(200);
    for node in 0..3 {
        assert!(is_error(&call(&cluster, node, &["SET", "new", "v"]), "OOM "));
    }
    let words: Vec<_> = ["DEL"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    assert_eq!(call(&cluster, 0, &words), Resp::Integer(keys.len() as i64 - 1));
    for node in 0..3 {
        assert_eq!(call(&cluster, node, &["SET", "new", "v"]), ok());
    }
    load.progress(200);
    assert!(cluster.nodes.iter_mut().all(|node| node.is_alive()));
    load.check(&cluster.nodes);
}

#[test]
fn data_that_reach_their_limit_are_refused_everywhere_until_some_are_deleted_or_more_are_allowed() {
    let mut cluster = Cluster::start(3, "raft");
    let set = |words: &[&str]| quorate(&cluster, 0, &[&["config", "set"], words].concat());
    assert_eq!(set(&["max-data", "64kb"]), (Some(0), "OK\n".to_owned(), String::new()));
    // Every process tells it from then on, as any read.
    let proxy = cluster.proxy("proxy", "raft", cluster.members(), &[]);
    for resp in cluster.nodes.iter().chain([&proxy]).map(|node| &node.resp) {
        let (code, shown, said) = quorate_at(resp, &["config", "get"]);
        assert_eq!((code, &*shown), (Some(0), "feature-level = 3\nmax-data = 65536\n"), "{said}");
    }
    let wrong = [
        (&["max-dat", "1gb"][..], 2, "there are feature-level and max-data"),
        (&["max-data", "much"], 1, "max-data is a size such as 2gb"),
        (&["max-data", "99999999999999gb"], 1, "max-data is a size such as 2gb"),
    ];
    for (words, exit, part) in wrong {
        let (code, _, said) = set(words);
        assert!(code == Some(exit) && said.contains(part), "{words:?}: {code:?} {said}");
    }

    let value = "x".repeat(10_000);
    let filled = (0..20).take_while(|number| {
        let reply = call(&cluster, number % 3, &["SET", &format!("k{number}"), &value]);
        assert!(reply == ok() || is_error(&reply, "OOM "), "{reply:?}");
        reply == ok()
    });
    let filled = filled.count();
    assert!((6..=7).contains(&filled), "{filled} times 10,000 bytes are just beyond 64 KiB");
    let too_low = set(&["max-data", "1kb"]);
    assert!(too_low.0 == Some(1) && too_low.2.contains("bytes already"), "{too_low:?}");
    for node in 0..3 {
        assert!(is_error(&call(&cluster, node, &["APPEND", "k0", "y"]), "OOM "));
        assert_eq!(call(&cluster, node, &["STRLEN", "k0"]), Resp::Integer(10_000));
    }

    // It is kept: by those who start again, and whoever leads next.
    let leader = cluster.leader();
    cluster.nodes[leader].kill();
    let other = (leader + 1) % 3;
    wait_for("the next leader to refuse", || {
        is_error(&call(&cluster, other, &["SET", "more", &value]), "OOM ").then_some(())
    });
    assert_eq!(call(&cluster, other, &["DEL", "k0", "k1"]), Resp::Integer(2));
    assert_eq!(call(&cluster, other, &["SET", "more", "v"]), ok());
    assert_eq!(quorate(&cluster, other, &["config", "set", "max-data", "1gb"]).0, Some(0));
    for number in 0..9 {
        assert_eq!(call(&cluster, other, &["SET", &format!("new{number}"), &value]), ok());
    }
}

#[test]
fn where_not_all_writes_are_ordered_no_limit_is_accepted() {
    let cluster = Cluster::start(3, "epaxos");
    let (code, _, said) = quorate(&cluster, 0, &["config", "set", "max-data", "1gb"]);
    let why = "the data reach a limit: choose a protocol that orders all writes, such as multipaxos";
    assert!(code == Some(1) && said.contains(why), "{code:?} {said}");
    assert_eq!(call(&cluster, 0, &["SET", "k", "v"]), ok());
}

/// A control group with a limit on memory, below the one that this process is in.
struct ControlGroup {
    path: PathBuf,
    /// The file with its limit.
    limit: PathBuf,
}

impl ControlGroup {
    /// Makes one with a limit of a gibibyte; why not, where that is not possible.
    fn make() -> Result<ControlGroup, String> {
        let groups = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let own = groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            match (fields.next()?, fields.next()?) {
                ("memory", path) => Some((format!("/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes")),
                _ => None,
            }
        });
        let unified = groups.lines().find_map(|line| line.strip_prefix("0::"));
        let unified = unified.map(|path| (format!("/sys/fs/cgroup{path}"), "memory.max"));
        let (above, limit) = own.or(unified).ok_or("this process is in no group with a limit on memory")?;
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("quorate-test-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(&above).join(name);
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let group = ControlGroup { limit: path.join(limit), path };
        let lift = || fs::OpenOptions::new().write(true).open(&group.limit)?.write_all(b"1073741824");
        lift().map_err(|error| format!("{}: {error}", group.limit.display()))?;
        // Whether a process may enter it.
        let enter = format!("echo $$ > {}", group.path.join("cgroup.procs").display());
        let entered = Command::new("sh").args(["-c", &enter]).output().map_err(|error| error.to_string())?;
        match entered.status.success() {
            true => Ok(group),
            false => Err(String::from_utf8_lossy(&entered.stderr).into_owned()),
        }
    }

    /// Lowers or raises the limit. The kernel refuses to lower it while more is used, or file pages are still to be
    /// given up.
    fn limit(&self, bytes: u64) -> Option<()> {
        fs::write(&self.limit, bytes.to_string()).ok()
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // The last process has ended, but may not have left it.
        let _ = wait_until(PATIENCE, || fs::remove_dir(&self.path).ok());
    }
}

/// With so many nodes, of which the first has little memory: it says so, and stays ready. Where nothing else bounds the
/// data, it refuses meanwhile what would add to them.
fn little_memory(protocol: &str, flags: &[&str], nodes: usize, refuses: bool) {
    let group = match ControlGroup::make() {
        Ok(group) => group,
        Err(why) => return println!("not tried: it needs a control group with a limit on memory: {why}"),
    };
    let ports = Ports::claim().unwrap();
    let http = ports.address();
    let mut cluster = Cluster::prepare_each(nodes, protocol, |index| {
        let own: &[&str] = if index == 0 { &["--listen-http", &http] } else { &[] };
        flags.iter().chain(own).map(|flag| (*flag).to_owned()).collect()
    });
    cluster.nodes[0].start_in_control_group(&group.path);
    cluster.nodes[1..].iter_mut().for_each(Node::start);
    cluster.nodes.iter().for_each(Node::wait_until_serving);
    let node = &cluster.nodes[0];
    let metric = |name: &str| {
        let (_, body) = get(&http, "/metrics")?;
        body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<f64>().ok())
    };
    // So much that a few hundredths are more than the node's use varies by while nothing is written.
    let value = "x".repeat(1 << 19);
    for index in 0..128 {
        assert_eq!(call(&cluster, 0, &["SET", &format!("k{index}"), &value]), ok());
    }
    // So many hundredths of the limit are used. The kernel may give pages up as it falls. What the node uses may have
    // grown since it was told: then there is another try, with what is told next.
    let limit = |hundredths: u64| {
        let used = metric("quorate_memory_used_bytes").filter(|used| *used > (64 << 20) as f64)?;
        group.limit(used as u64 / hundredths * 100)
    };
    let says = |words: &str| {
        let (status, body) = get(&http, "/readyz")?;
        (status == "200" && body.contains(words)).then_some(())
    };
    wait_for("memory", || says("[+]memory ok"));
    wait_for("too little of it", || {
        limit(94)?;
        says("[!]memory memory is nearly used up: ")
    });
    node.wait_for_line(&["WARN", "memory is nearly used up: "]);
    let set = || call(&cluster, 0, &["SET", "k", "v"]);
    match refuses {
        true => assert!(is_error(&set(), "OOM memory nearly used up on node 1: "), "{:?}", set()),
        false => assert_eq!(set(), ok()),
    }
    match refuses {
        // What was freed is given back, though little is under way.
        true => (0..127).for_each(|index| {
            assert_eq!(call(&cluster, 0, &["DEL", &format!("k{index}")]), Resp::Integer(1));
        }),
        false => wait_for("another limit", || limit(50)),
    }
    wait_for("memory again", || says("[+]memory ok"));
    node.wait_for_line(&["there is memory again"]);
    wait_for("a write", || (set() == ok()).then_some(()));
    assert_eq!(call(&cluster, 0, &["GET", "k127"]), Resp::Bulk(value.into_bytes()));
}

#[test]
fn a_node_says_when_its_memory_is_nearly_used_up_and_when_there_is_some_again_and_stays_ready() {
    little_memory("unreplicated", &["--durability", "os"], 1, false);
}

#[test]
fn a_node_whose_memory_is_nearly_used_up_refuses_what_adds_to_data_that_nothing_else_bounds() {
    little_memory("epaxos", &["--durability", "os"], 3, true);
    little_memory("hermes", &["--durability", "none"], 3, true);
}
