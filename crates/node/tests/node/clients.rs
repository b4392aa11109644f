//! What clients may expect of a node, and what it defends itself against.

use std::io::Write;
use std::net::Shutdown;

use quorate_node::Limits;

use crate::harness::{Client, cluster};

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(|index| line(index) + "\n").collect()
}

#[test]
fn replies_come_in_the_order_of_requests_whichever_node_serves_them() {
    let nodes = cluster(3, &Limits::default());
    for node in &nodes {
        let mut client = node.client();
        for other in 1..=3 {
            client.ask_until(&format!("/100/{other} say ready"), |answer| answer == "ready");
        }
        client.send(&lines(300, |index| format!("{} say {index}", index % 3 + 1)));
        for index in 0..300 {
            assert_eq!(client.line(), Some(index.to_string()));
        }
    }
}

#[test]
fn a_session_at_its_limit_goes_on_where_it_stopped() {
    let nodes = cluster(1, &Limits { client_requests: 4, ..Limits::default() });
    let mut client = nodes[0].client();
    client.send(&lines(1000, |index| format!("1 say {index}")));
    for index in 0..1000 {
        assert_eq!(client.line(), Some(index.to_string()));
    }
}

#[test]
fn a_request_beyond_the_total_limit_fails_at_once() {
    let nodes = cluster(1, &Limits { requests: 2, ..Limits::default() });
    let (mut one, mut two) = (nodes[0].client(), nodes[0].client());
    one.send("1 later a\n1 later b\n");
    two.ask_until("facts requests_total", |total| total == "2");
    assert!(two.ask("1 say c").starts_with("! overloaded"));
    assert_eq!(two.fact("overloads_total"), 1);
}

#[test]
fn requests_beyond_the_bound_in_bytes_wait_for_earlier_ones_and_all_are_served() {
    let nodes = cluster(1, &Limits { request_bytes: 1, ..Limits::default() });
    let mut clients: Vec<_> = (0..5).map(|_| nodes[0].client()).collect();
    for client in &mut clients {
        client.send(&lines(100, |index| format!("1 say {index}")));
    }
    for client in &mut clients {
        for index in 0..100 {
            assert_eq!(client.line(), Some(index.to_string()));
        }
    }
}

/// Heartbeats and votes are sent and read between the turns.
#[test]
fn pipelines_of_many_clients_are_served_in_many_turns() {
    const TURNS: usize = 10_000;
    let nodes = cluster(1, &Limits::default());
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("go-on");
    let mut clients: Vec<_> = (0..64).map(|_| nodes[0].client()).collect();
    for client in &mut clients {
        client.ask("turn");
    }
    let mut first = nodes[0].client();
    first.send(&format!("hold {}\n", file.display()));
    for client in &mut clients {
        client.send(&"turn\n".repeat(TURNS));
    }
    std::fs::write(&file, "").unwrap();
    first.line();
    let mut served = std::collections::BTreeMap::new();
    for client in &mut clients {
        for _ in 0..TURNS {
            *served.entry(client.line().unwrap()).or_insert(0) += "turn\n".len();
        }
    }
    assert_eq!(served.values().sum::<usize>(), clients.len() * TURNS * "turn\n".len());
    assert!(served.values().all(|bytes| *bytes < 1 << 20), "bytes by turn: {served:?}");
}

#[test]
fn a_deadline_is_kept_when_nobody_answers() {
    let nodes = cluster(1, &Limits::default());
    assert!(nodes[0].client().ask("/20/1 never").contains("outcome of a write is unknown"));
}

#[test]
fn a_client_that_has_finished_sending_still_gets_its_replies() {
    let nodes = cluster(1, &Limits::default());
    let mut client = nodes[0].client();
    client.send("1 later a\n1 say b\n");
    client.stream.shutdown(Shutdown::Write).unwrap();
    let mut other = nodes[0].client();
    other.ask_until("facts requests_total", |total| total == "2");
    other.ask("1 go");
    assert_eq!((client.line(), client.line(), client.line()), (Some("a".into()), Some("b".into()), None));
}

#[test]
fn a_session_that_asks_to_close_is_closed_after_its_last_word() {
    let nodes = cluster(1, &Limits::default());
    let mut client = nodes[0].client();
    client.send("quit\n1 say more\n");
    assert_eq!((client.line(), client.line()), (Some("bye".into()), None));
}

#[test]
fn a_slow_reader_is_not_read_from_until_it_reads() {
    // Each reply is larger than what may wait, and all of them more than the sockets hold.
    let limits = Limits { client_output_pause: 1 << 10, client_requests: 2, ..Limits::default() };
    let nodes = cluster(1, &limits);
    let mut slow = nodes[0].client();
    slow.send(&lines(100, |_| "1 big 1000000".to_owned()));
    let mut other = nodes[0].client();
    // Two were taken at once; then the output was full. Others are served all the while.
    other.ask_until("facts requests_total", |total| total.parse::<u64>().unwrap() >= 2);
    for index in 0..100 {
        assert_eq!(other.ask(&format!("1 say {index}")), index.to_string());
    }
    let taken = other.fact("requests_total") - 100;
    assert!(taken < 50, "{taken} requests of a client that does not read");
    for _ in 0..100 {
        assert_eq!(slow.line().unwrap().len(), 1_000_000);
    }
}

#[test]
fn a_slow_reader_is_closed_when_its_output_passes_the_bound() {
    let nodes = cluster(1, &Limits { client_output: 20_000_000, ..Limits::default() });
    let mut slow = nodes[0].client();
    slow.send(&lines(50, |_| "1 big 1000000".to_owned()));
    let mut other = nodes[0].client();
    other.ask_until("facts clients_evicted_total", |count| count == "1");
    other.ask_until("facts clients", |count| count == "1");
}

#[test]
fn of_all_clients_that_do_not_read_those_with_the_most_waiting_are_closed_at_the_total_bound() {
    let limits = Limits { client_memory: 20_000_000, ..Limits::default() };
    let nodes = cluster(1, &limits);
    let mut modest = nodes[0].client();
    // More than the sockets hold.
    modest.send(&lines(8, |_| "1 big 1000000".to_owned()));
    let mut other = nodes[0].client();
    other.ask_until("facts replies_total", |count| count.parse::<u64>().unwrap() >= 8);
    assert_eq!(other.fact("clients_evicted_total"), 0);
    let mut greedy: Vec<_> = (0..4).map(|_| nodes[0].client()).collect();
    for client in &mut greedy {
        client.send(&lines(12, |_| "1 big 1000000".to_owned()));
    }
    other.ask_until("facts clients_evicted_total", |count| count != "0");
    other.ask_until("facts requests_under_way", |count| count == "1" || count == "0");
    assert!(other.fact("clients_buffered_bytes") <= 20_000_000);
    // Those with less keep what is theirs.
    for _ in 0..8 {
        assert_eq!(modest.line().unwrap().len(), 1_000_000);
    }
    drop(greedy);
    other.ask_until("facts clients_buffered_bytes", |bytes| bytes == "0");
}

#[test]
fn of_all_clients_with_unfinished_requests_those_with_the_largest_are_closed_at_the_total_bound() {
    let nodes = cluster(1, &Limits { client_memory: 20_000_000, ..Limits::default() });
    let mut modest = nodes[0].client();
    modest.send(&format!("1 say {}", "x".repeat(1_000_000)));
    let mut greedy: Vec<_> = (0..4).map(|_| nodes[0].client()).collect();
    let mut other = nodes[0].client();
    for client in &mut greedy {
        // The node may close before everything is written.
        let _ = client.stream.write_all(&vec![b'x'; 6_000_000]);
    }
    other.ask_until("facts clients_evicted_total", |count| count != "0");
    assert!(other.fact("clients_buffered_bytes") <= 20_000_000);
    // Who has sent less may finish.
    modest.send("\n");
    assert_eq!(modest.line().unwrap().len(), 1_000_000);
    drop(greedy);
    other.ask_until("facts clients_buffered_bytes", |bytes| bytes == "0");
}

#[test]
fn a_request_without_end_is_closed_at_the_bound() {
    let nodes = cluster(1, &Limits { client_input: 100_000, ..Limits::default() });
    let mut client = nodes[0].client();
    // The node may close before everything is written.
    let _ = client.stream.write_all(&vec![b'x'; 1_000_000]);
    assert_eq!(client.line(), None);
    assert_eq!(nodes[0].client().fact("clients_evicted_total"), 1);
}

#[test]
fn clients_beyond_the_limit_are_closed_at_once() {
    let nodes = cluster(1, &Limits { clients: 2, ..Limits::default() });
    let (mut one, mut two) = (nodes[0].client(), nodes[0].client());
    assert_eq!((one.ask("1 say a"), two.ask("1 say b")), ("a".to_owned(), "b".to_owned()));
    assert_eq!(Client::to(nodes[0].resp).line(), None);
    drop(two);
    one.ask_until("facts clients", |count| count == "1");
    assert_eq!(nodes[0].client().ask("1 say c"), "c");
}

#[test]
fn what_a_vanished_client_asked_for_disturbs_nobody() {
    let nodes = cluster(1, &Limits::default());
    let mut gone = nodes[0].client();
    gone.send("1 later a\n");
    let mut other = nodes[0].client();
    other.ask_until("facts requests_total", |total| total == "1");
    // Reset, not just finished: it will not read the reply either.
    socket2::SockRef::from(&gone.stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(gone);
    other.ask_until("facts clients", |count| count == "1");
    // Takes the place that the other had.
    let mut third = nodes[0].client();
    third.send("1 later b\n");
    other.ask_until("facts requests_total", |total| total == "2");
    assert_eq!(other.ask("1 go"), "gone");
    assert_eq!(third.line(), Some("b".to_owned()));
}
