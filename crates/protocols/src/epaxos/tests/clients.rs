//! What one of three replicas proposes for its clients.

use quorate_blocks::clients::{self, Ask};
use quorate_core::{ProcessId, ProxyId};

use super::*;

/// What a proxy asks first.
pub(super) fn open_session() -> Ask {
    let (writes, reads, bounds, manage) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    Ask { nonce: 7, session: 0, open: true, low: 1, writes, reads, bounds, manage, version: 0 }
}

/// Its proxy asks: all that the replica says upon it.
pub(super) fn ask_for(bench: &mut Bench, ask: Ask) -> Vec<Message> {
    let proxy = ProcessId::Proxy(ProxyId::of(node(1)));
    bench.turn(0, |replica, cx| replica.on_message(proxy, clients::Message::Ask(ask).into(), cx))
}

/// What it proposes in an own instance of this index, if it does.
pub(super) fn proposed(messages: &[Message], own: u64) -> Option<(Bytes, Frontier)> {
    messages.iter().find_map(|message| match message {
        Message::PreAccept { instance, value, deps } if *instance == at(1, own) => {
            Some((value.clone(), *deps))
        }
        _ => None,
    })
}

/// It knows another's clock, and its first instance has opened a session: that one, and the batch.
pub(super) fn with_session(settings: &[&str]) -> (Bench, u64, Bytes) {
    let group = Group::of((1..=3).map(node).collect());
    let mut bench = Bench::begin(&group, settings, Saved::nothing());
    let said = bench.turn(100, |replica, cx| replica.on_timer(Timer::Tick, cx));
    let request = said.iter().find_map(|message| match message {
        Message::Learner(Said::ClockRequest(request)) => Some(*request),
        _ => None,
    });
    let (request, wall) = (request.expect("it asks for clocks"), Wall::from_millis(100));
    bench.take(2, Said::ClockReply { request, wall });
    let (value, deps) = proposed(&ask_for(&mut bench, open_session()), 1).expect("a session");
    bench.take(2, Message::PreAcceptReply { instance: at(1, 1), deps });
    let said = bench.take(1, Message::Commit { instance: at(1, 1), value: None, deps });
    let session = said.iter().find_map(|message| match message {
        Message::Client(clients::Message::Opened { session, .. }) => Some(*session),
        _ => None,
    });
    (bench, session.expect("it is open"), value)
}

#[test]
fn long_reads_and_writes_take_turns() {
    let (mut bench, session, _) = with_session(&["batch.bytes=64"]);
    let key = Bytes::from(vec![b'k'; 60]);
    let reads = (2..=4).map(|id| (id, Command::Get { key: key.clone() }.to_bytes())).collect();
    let writes = vec![(1, Command::Increment { key: Bytes::from_static(b"n"), by: 1 }.to_bytes())];
    let said = ask_for(&mut bench, Ask { session, open: false, writes, reads, ..open_session() });
    let kinds = (2..=6).filter_map(|own| {
        let batch = Batch::decode(&proposed(&said, own)?.0).expect("a batch").expect("no no-op");
        let kind = |entry: &Entry| if matches!(entry, Entry::Read { .. }) { 'r' } else { 'w' };
        Some(batch.entries.iter().map(kind).collect::<String>())
    });
    assert_eq!(kinds.collect::<Vec<_>>(), ["r", "w", "r", "r"]);
}
