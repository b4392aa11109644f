//! Counters and gauges of a node. One thread writes and reads them, so they are plain cells.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use quorate_core::{Amount, DurationHistogram, Sample};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(Cell<u64>);

impl Counter {
    /// Counts some more.
    pub fn add(&self, count: u64) {
        self.0.set(self.0.get().wrapping_add(count));
    }
    /// Counts one more.
    pub fn one(&self) {
        self.add(1);
    }
    /// So many by now: for what is counted elsewhere.
    pub fn set(&self, count: u64) {
        self.0.set(count);
    }
    /// So far.
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

/// A number, or a time (its name ends in `_seconds`), that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge<T: Copy = u64>(Cell<T>);

impl<T: Copy> Gauge<T> {
    /// Is now.
    pub fn set(&self, value: T) {
        self.0.set(value);
    }
    /// Now.
    pub fn get(&self) -> T {
        self.0.get()
    }
}

/// How long something takes that happens often.
#[derive(Debug, Default)]
pub struct Distribution(RefCell<DurationHistogram>);

impl Distribution {
    /// One more that took so long.
    pub fn add(&self, took: Duration) {
        self.0.borrow_mut().add(took);
    }
    /// These by now: for what is measured elsewhere.
    pub fn set(&self, times: DurationHistogram) {
        self.0.replace(times);
    }
}

/// Counts by the kind of message. There are few kinds, and they are constants: a list searched by address is
/// faster than any map.
#[derive(Debug, Default)]
pub struct ByKind(RefCell<Vec<(&'static str, u64)>>);

impl ByKind {
    /// Counts some of a kind.
    pub fn add(&self, kind: &'static str, count: u64) {
        let mut kinds = self.0.borrow_mut();
        match kinds.iter_mut().find(|(name, _)| std::ptr::eq(*name, kind) || *name == kind) {
            Some((_, total)) => *total += count,
            None => kinds.push((kind, count)),
        }
    }
    /// So far, of every kind that was seen.
    pub fn get(&self) -> Vec<(&'static str, u64)> {
        self.0.borrow().clone()
    }
    fn total(&self) -> u64 {
        self.0.borrow().iter().map(|(_, count)| count).sum()
    }
}

macro_rules! metrics {
    ($($name:ident: $type:ty, $help:literal;)*) => {
        /// Everything a node counts.
        #[derive(Debug, Default)]
        pub struct Metrics {
            $(#[doc = $help] pub $name: $type,)*
        }

        impl Metrics {
            /// All of them, in the order of their declaration.
            pub fn samples(&self) -> Vec<Sample> {
                let mut samples = Vec::new();
                $(self.$name.sample(stringify!($name), $help, &mut samples);)*
                samples
            }

            /// All of them in words: name, value; those by kind in one total.
            pub fn facts(&self) -> Vec<(&'static str, String)> {
                vec![$((stringify!($name), self.$name.word())),*]
            }
        }
    };
}

metrics! {
    clients: Gauge, "Client connections that are open.";
    clients_limit: Gauge, "Client connections that may be open.";
    clients_accepted_total: Counter, "Client connections accepted.";
    clients_refused_total: Counter, "Client connections closed at once because there were too many.";
    clients_evicted_total: Counter, "Client connections closed because a buffer passed its bound.";
    tls_handshakes: Gauge, "Client connections whose TLS handshake is not over.";
    tls_handshakes_limit: Gauge, "Client connections whose TLS handshake may be unfinished.";
    tls_handshakes_refused_total: Counter, "Client connections closed because of their TLS handshake.";
    tls_certificate_expiry_timestamp_seconds: Gauge<Duration>, "When this node's certificate expires.";
    clients_buffered_bytes: Gauge, "Kept for clients: unfinished requests, transactions, replies not taken.";
    clients_buffered_limit: Gauge, "Bytes that may be kept for all clients together.";
    requests_under_way: Gauge, "Requests handed to the proxy and not answered yet.";
    requests_limit: Gauge, "Requests that may be under way.";
    requests_total: Counter, "Requests handed to the proxy.";
    replies_total: Counter, "Requests that were executed and answered.";
    failures_total: Counter, "Requests that failed: no answer in time, too many waiting, or their session ended.";
    requests_denied_total: Counter, "Requests denied: no authentication, a wrong password, or no permission.";
    overloads_total: Counter, "Requests refused because too many were under way.";
    client_bytes_in_total: Counter, "Bytes read from clients.";
    client_bytes_out_total: Counter, "Bytes written to clients.";
    messages_in_total: ByKind, "Messages received from other processes, by kind.";
    messages_out_total: ByKind, "Messages queued for other processes, by kind.";
    messages_too_long_total: ByKind, "Messages dropped because no node would accept their length: defects. By kind.";
    messages_dropped_total: ByKind, "Messages dropped: no connection, or its queue was full. By kind.";
    messages_refused_total: Counter, "Incoming frames that could not be read; each closed its connection.";
    peer_bytes_in_total: Counter, "Bytes read from other processes.";
    peer_bytes_out_total: Counter, "Bytes written to other processes.";
    peer_output_bytes: Gauge, "Bytes waiting to be written to other processes.";
    peer_output_limit: Gauge, "Bytes that may wait for one process.";
    peers: Gauge, "Other members of the group.";
    peers_up: Gauge, "Members this node can send to.";
    peer_connects_total: Counter, "Connections to members that were established.";
    peer_disconnects_total: Counter, "Connections to members that were lost.";
    handshakes_refused_total: Counter, "Incoming connections refused at the handshake.";
    messages_held: Gauge, "Messages waiting for the disk.";
    log_records_total: Counter, "Records handed to the log.";
    log_bytes_total: Counter, "Bytes of records handed to the log.";
    log_syncs_total: Counter, "Groups of records written since the start; each took one sync with fsync.";
    log_sync_duration_seconds: Distribution, "One write and one sync of a group of records.";
    slot_commit_duration_seconds: Distribution, "From proposing a slot here to its commit.";
    slot_apply_duration_seconds: Distribution, "From the commit of a slot proposed here to its execution.";
    log_bytes: Gauge, "Bytes of records since the last snapshot began.";
    log_unsynced_bytes: Gauge, "Bytes handed to the log that are not durable yet.";
    log_unsynced_limit: Gauge, "Unsynced bytes from which on no input is read.";
    snapshots_total: Counter, "Snapshots written.";
    snapshots_given_up_total: Counter, "Snapshots for which the disk had no room: others are tried later.";
    disk_free_bytes: Gauge, "Free on the file system of the data directory.";
    disk_size_bytes: Gauge, "Size of that file system; 0 if it is not known.";
    disk_reserve_bytes: Gauge, "What is to stay free there, room for a snapshot at least.";
    disk_nearly_full: Gauge<bool>, "Whether the disk counts as nearly full.";
    memory_used_bytes: Gauge, "Memory that this process's control group uses, without idle file pages.";
    memory_limit_bytes: Gauge, "The limit of that control group; 0 for none.";
    memory_nearly_used_up: Gauge<bool>, "Whether nine tenths of that limit are used, or were, and eight still are.";
    turns_total: Counter, "Turns of the event loop.";
    stderr_lines_dropped_total: Counter, "Log lines dropped: nobody read standard error, or writing to it failed.";
    spans_exported_total: Counter, "Requests whose spans a collector has taken.";
    spans_dropped_total: Counter, "Requests whose spans are lost: the queue was full, or the collector took none.";
    loop_stall_seconds: Gauge<Duration>, "Longest time in the last minute for which the loop read and sent nothing.";
    loop_stall_max_seconds: Gauge<Duration>, "Longest time since the start for which the loop read and sent nothing.";
    loop_stalls_total: Counter, "Times for which it read and sent nothing for 250 ms or longer.";
}

trait Metric {
    fn sample(&self, name: &'static str, help: &'static str, out: &mut Vec<Sample>);
    fn word(&self) -> String;
}

impl Metric for Counter {
    fn sample(&self, name: &'static str, help: &'static str, out: &mut Vec<Sample>) {
        out.push(Sample::counter(name, self.get(), help));
    }
    fn word(&self) -> String {
        self.get().to_string()
    }
}

impl<T: Copy + Into<Amount>> Metric for Gauge<T> {
    fn sample(&self, name: &'static str, help: &'static str, out: &mut Vec<Sample>) {
        out.push(Sample::gauge(name, self.get(), help));
    }
    fn word(&self) -> String {
        self.get().into().to_string()
    }
}

impl Metric for Distribution {
    fn sample(&self, name: &'static str, help: &'static str, out: &mut Vec<Sample>) {
        out.push(Sample::histogram(name, &self.0.borrow(), help));
    }
    fn word(&self) -> String {
        self.0.borrow().count().to_string()
    }
}

impl Metric for ByKind {
    fn sample(&self, name: &'static str, help: &'static str, out: &mut Vec<Sample>) {
        for (label, value) in self.get() {
            out.push(Sample::counter(name, value, help).with("kind", label));
        }
    }
    fn word(&self) -> String {
        self.total().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_apart_and_shown_in_one_total() {
        let metrics = Metrics::default();
        metrics.messages_in_total.add("Accept", 2);
        metrics.messages_in_total.add("Commit", 1);
        metrics.messages_in_total.add(String::from("Accept").leak(), 1);
        let samples = metrics.samples();
        let of = |kind: &'static str| {
            let label = Some(("kind", kind.into()));
            let found = samples.iter().find(|s| s.name == "messages_in_total" && s.label == label);
            found.map(|s| s.value.clone())
        };
        assert_eq!(
            (of("Accept"), of("Commit"), of("Prepare")),
            (Some(Amount::Count(3)), Some(Amount::Count(1)), None)
        );
        assert!(metrics.facts().contains(&("messages_in_total", "4".to_owned())));
    }
}
