//! Several groups as one process: what is each group's own, and what is refused.

use std::time::Duration;

use bytes::Bytes;
use quorate_core::{
    Access, Answered, Group, GroupId, GroupRequest, Image, Instant, Manage, Managed, Mark, NodeId, Outcome,
    Payload, Piece, ProxyId, Random, Request, RequestId, Saved, Settings, Shortage, Time, Wall, Wire,
};
use quorate_protocols::registry::named;
use quorate_runtime::{AnyProcess, AnyProtocol, Input, OwnMessages, Start};
use quorate_store::{Command, CommandError, Condition, Expiry, Reply};

use super::Groups;
use super::image::{GroupsImage, divide};

const NOW: Instant = Instant { now: Time::ZERO, wall: Wall::ZERO, clock: None };

/// Node 1 of so many groups, each of which it is all of.
fn node(groups: &str, keys: &str, saved: Saved<Bytes>) -> Box<dyn AnyProcess> {
    let groups = Groups::parse(named("unreplicated"), groups, Some(keys)).unwrap();
    let me = NodeId::new(1).unwrap();
    let group = Group::of([me].into_iter().collect());
    let configured = groups.configure(&group, &mut Settings::default()).unwrap();
    let (proxy, own) = (ProxyId::of(me), OwnMessages::Settled);
    let random = Random::new(1);
    let mut process = configured.start(Start { proxy, node: Some(me), at: NOW, random, observed: true, own });
    process.load(saved).unwrap();
    process.start_replica(NOW, Random::new(2));
    settle(&mut *process);
    process
}

fn settle(process: &mut dyn AnyProcess) {
    assert!(process.settle(100, &|| NOW));
}

fn text(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn get(key: &'static str) -> Command {
    Command::Get { key: text(key) }
}

fn put(key: &'static str, value: &'static str) -> Command {
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    Command::Put { key: text(key), value: text(value), condition, expiry, old: false }
}

fn ask(process: &mut dyn AnyProcess, id: u64, (command, access): (Bytes, Access)) {
    let deadline = Time::ZERO + Duration::from_secs(60);
    let request = Request { stream: 1, command, access, deadline, after: 0 };
    process.take(Input::Request(RequestId(id), request)).unwrap();
    process.step(NOW);
    settle(process);
}

fn ask_command(process: &mut dyn AnyProcess, id: u64, command: &Command) {
    ask(process, id, (command.to_bytes(), command.access()));
}

/// The records of a process since they were last taken, and the replies.
fn taken(process: &mut dyn AnyProcess) -> (Vec<Bytes>, Vec<(u64, Bytes)>) {
    let effects = process.effects();
    let records = effects.records.drain(..).map(Payload::into_bytes).collect();
    let replies = effects.replies.drain(..).map(|Answered { request, outcome, .. }| match outcome {
        Outcome::Done(bytes) => (request.0, bytes),
        Outcome::Failed(failure) => panic!("{failure}"),
    });
    (records, replies.collect())
}

/// Makes everything durable, until nothing more comes of it; the replies meanwhile.
fn sync(process: &mut dyn AnyProcess) -> Vec<(u64, Bytes)> {
    let mut replies = Vec::new();
    loop {
        let (records, more) = taken(process);
        replies.extend(more);
        if records.is_empty() && !process.would_release(process.persisted()) {
            return replies;
        }
        process.release(process.persisted());
        settle(process);
    }
}

/// Asks one group alone for what could be about all: the reply.
fn ask_group(process: &mut dyn AnyProcess, id: u64, group: usize, asked: Command) -> Bytes {
    let access = asked.access();
    let request = GroupRequest { group: GroupId::at(group), asked };
    ask(process, id, (request.to_bytes(), access));
    let replies = sync(process);
    let [(_, reply)] = &replies[..] else { panic!("{replies:?}") };
    reply.clone()
}

/// A session's first write opens it; then each write is one record.
fn with_open_sessions() -> Box<dyn AnyProcess> {
    let mut process = node("2", "m", Saved::nothing());
    ask_command(&mut *process, 1, &put("a", "0"));
    ask_command(&mut *process, 2, &put("z", "0"));
    assert_eq!(sync(&mut *process).len(), 2);
    process
}

#[test]
fn marks_say_whose_slot_it_is_and_how_many_records_of_all_came_before() {
    let mut process = with_open_sessions();
    process.set_timed(true);
    let mut recorded = Vec::new();
    for (id, key) in [(3, "a"), (4, "z"), (5, "z"), (6, "a")] {
        ask_command(&mut *process, id, &put(key, "1"));
        sync(&mut *process);
        let persisted = process.persisted();
        let effects = process.effects();
        recorded.extend(effects.slot_marks.drain(..).filter_map(|(group, mark, _, records)| match mark {
            Mark::Recorded { slot } => Some((group.get(), slot, persisted - records)),
            _ => None,
        }));
        let answered: Vec<_> = effects.request_marks.drain(..).map(|(group, ..)| group).collect();
        assert!(
            !answered.is_empty()
                && answered.iter().all(|group| group.get() == recorded[recorded.len() - 1].0)
        );
    }
    assert_eq!(recorded, [(1, 3, 0), (2, 3, 0), (2, 4, 0), (1, 4, 0)]);
}

#[test]
fn a_group_s_reply_waits_for_its_own_records_and_for_no_others() {
    let mut process = with_open_sessions();
    let before = process.persisted();
    ask_command(&mut *process, 3, &put("a", "1"));
    let (records, replies) = taken(&mut *process);
    assert!(replies.is_empty());
    assert_eq!(records.iter().map(|record| record[0]).collect::<Vec<_>>(), [1]);
    ask_command(&mut *process, 4, &put("z", "1"));
    let (records, _) = taken(&mut *process);
    assert_eq!(records.iter().map(|record| record[0]).collect::<Vec<_>>(), [2]);
    assert_eq!(process.persisted(), before + 2);
    assert!(process.describe_record(&records[0].clone().into()).starts_with("2:"));
    // The first record is the other group's, however many its own are.
    assert!(process.would_release(before + 1));
    process.release(before + 1);
    settle(&mut *process);
    let replies = taken(&mut *process).1;
    assert_eq!(replies, [(3, Reply::Done.encoded())]);
    let own = |upto| [1, 2].map(|group| process.records_of(GroupId::at(group - 1), upto));
    assert_eq!(own(before + 1).iter().sum::<u64>(), before + 1);
    assert_eq!(own(before + 2)[1], own(before + 1)[1] + 1);
    assert_eq!(sync(&mut *process), [(4, Reply::Done.encoded())]);
}

#[test]
fn a_command_of_several_groups_is_refused_and_no_group_hears_of_it() {
    let mut process = with_open_sessions();
    let before = process.persisted();
    let several =
        Command::PutMany { pairs: vec![(text("a"), text("2")), (text("z"), text("2"))], if_none: false };
    let refused = Reply::Error(CommandError::SeveralGroups).encoded();
    for (id, command) in (10..).zip([&several, &Command::Clear, &Command::Count]) {
        ask_command(&mut *process, id, command);
        assert_eq!(taken(&mut *process), (vec![], vec![(id, refused.clone())]), "{command:?}");
    }
    assert_eq!(process.persisted(), before);
    assert_eq!(process.read(&several.to_bytes()), Some(refused));
    assert_eq!(process.read(&get("z").to_bytes()), Some(Reply::Value(Some(text("0"))).encoded()));
    ask(&mut *process, 20, (Manage::CancelChange.to_bytes(), Access::Manage));
    let (_, replies) = taken(&mut *process);
    let [(20, managed)] = &replies[..] else { panic!("{replies:?}") };
    let Ok(Managed::Refused(why)) = Managed::from_bytes(managed.clone()) else { panic!("{managed:?}") };
    assert!(std::str::from_utf8(&why).unwrap().contains("--groups"));
}

#[test]
fn a_command_that_names_a_group_is_executed_by_that_one_alone() {
    let mut process = with_open_sessions();
    ask_command(&mut *process, 3, &put("b", "0"));
    sync(&mut *process);
    for (id, group, count) in [(4, 0, 2), (5, 1, 1)] {
        assert_eq!(ask_group(&mut *process, id, group, Command::Count), Reply::Integer(count).encoded());
    }
}

#[test]
fn where_the_disk_is_full_every_group_refuses_writes() {
    let mut process = with_open_sessions();
    for (id, full) in [(10, true), (20, false)] {
        process.set_shortage(full.then_some(Shortage::Disk));
        for (id, key) in (id..).zip(["a", "z"]) {
            ask_command(&mut *process, id, &put(key, "1"));
            let replies = sync(&mut *process);
            let refused = replies != [(id, Reply::Done.encoded())];
            assert_eq!(refused, full, "{key}: {replies:?}");
        }
    }
}

/// As where nothing is kept: what a group has persisted just now is durable, too.
#[test]
fn what_was_persisted_in_this_batch_is_durable_where_all_is() {
    let mut process = with_open_sessions();
    ask_command(&mut *process, 3, &put("z", "1"));
    process.release(u64::MAX);
    settle(&mut *process);
    assert_eq!(taken(&mut *process).1, [(3, Reply::Done.encoded())]);
}

#[test]
fn what_is_measured_of_groups_is_in_the_order_of_names() {
    let process = with_open_sessions();
    let samples = process.status(NOW).unwrap().samples;
    let names: Vec<_> = samples.iter().map(|sample| sample.name).collect();
    assert!(names.is_sorted() && names.windows(2).any(|two| two[0] == two[1]), "of both groups: {names:?}");
}

#[test]
fn what_an_operator_asks_of_one_group_comes_to_that_group() {
    let mut process = with_open_sessions();
    let manage = Manage::Transfer { to: None };
    for (id, group, of_all) in [(20, 0, false), (21, 1, false), (22, 2, true)] {
        let request = GroupRequest { group: GroupId::at(group), asked: manage.clone() };
        assert_eq!(GroupRequest::from_bytes(request.to_bytes()), Ok(request.clone()));
        assert!(Manage::from_bytes(request.to_bytes()).is_err());
        ask(&mut *process, id, (request.to_bytes(), Access::Manage));
        let replies = sync(&mut *process);
        let [(_, managed)] = &replies[..] else { panic!("{replies:?}") };
        let Ok(Managed::Refused(why)) = Managed::from_bytes(managed.clone()) else { panic!("{managed:?}") };
        // There is no third one; of this protocol there is one copy only.
        let why = std::str::from_utf8(&why).unwrap();
        let expected = ["this protocol does not", "the request names none of the groups"];
        assert!(why.starts_with(expected[usize::from(of_all)]), "{why}");
    }
}

#[test]
fn what_is_saved_is_all_groups_state_and_each_gets_its_own_back() {
    for piece in [1, 20, 1 << 20] {
        let mut process = with_open_sessions();
        for (id, key) in (5..).zip(["a", "b", "y", "z"]) {
            ask_command(&mut *process, id, &put(key, "saved"));
        }
        sync(&mut *process);
        let Saved { snapshot, records, .. } = process.save().unwrap();
        let (image, records) = (snapshot.unwrap(), records.into_iter().map(Payload::into_bytes).collect());
        let pieces = image.pieces(piece);
        assert_eq!(image.verify(&mut pieces.iter().cloned()), Ok(()));
        assert!(image.verify(&mut pieces[1..].iter().cloned()).is_err());
        assert!(image.verify(&mut pieces[..pieces.len() - 1].iter().cloned()).is_err());
        assert!(image.verify(&mut pieces.iter().chain(&pieces[..1]).cloned()).is_err());
        let stored = Some(std::sync::Arc::new(Stored(pieces.clone())) as quorate_core::Snapshot);
        let again = node("2", "m", Saved { restarted: true, snapshot: stored, records });
        let fingerprints = |process: &dyn AnyProcess| -> Vec<_> {
            process.groups().iter().map(|group| group.fingerprint().unwrap()).collect()
        };
        assert_eq!(fingerprints(&*again), fingerprints(&*process));
        for key in ["a", "b", "y", "z"] {
            let found = again.read(&get(key).to_bytes());
            assert_eq!(found, Some(Reply::Value(Some(text("saved"))).encoded()), "{key}");
        }
    }
}

#[test]
fn bytes_that_are_no_group_s_are_refused() {
    let mut process = node("2", "m", Saved::nothing());
    let me = NodeId::new(1).unwrap();
    for bytes in [&b""[..], b"\0", b"\x03", b"\xff\xff", b"\x01\xff"] {
        let payload = Bytes::copy_from_slice(bytes);
        assert!(process.recode_message(&payload).is_err() && process.recode_record(&payload).is_err());
        let (from, to) = (ProxyId(1 << 40).into(), me.into());
        assert!(process.take(Input::Frame { from, to, payload: payload.clone() }).is_err(), "{bytes:?}");
        let saved = |records, pieces: &[Bytes]| Saved {
            restarted: true,
            snapshot: (!pieces.is_empty())
                .then(|| std::sync::Arc::new(Stored(pieces.to_vec())) as quorate_core::Snapshot),
            records,
        };
        let good = process.save().unwrap().records.into_iter().map(Payload::into_bytes);
        let index = good.len();
        let error = process.load(saved(good.chain([payload.clone()]).collect(), &[])).unwrap_err();
        assert_eq!(error.index, index, "{bytes:?}");
        assert!(bytes == b"\x01\xff" || process.load(saved(Vec::new(), &[payload])).is_err());
    }
    let foreign = GroupsImage(vec![(GroupId::at(2), std::sync::Arc::new(Stored(vec![text("x")])))]);
    let foreign: quorate_core::Snapshot = std::sync::Arc::new(foreign);
    assert!(divide(&foreign, 2).is_err() && divide(&foreign, 3).is_ok());
}

#[test]
fn first_leaders_are_the_members_in_turn() {
    let groups = Groups::parse(named("raft"), "5", None).unwrap();
    let members: quorate_core::NodeSet = (1..=3).filter_map(NodeId::new).collect();
    let configured = groups.configure(&Group::of(members), &mut Settings::default()).unwrap();
    for id in 1..=3 {
        let me = NodeId::new(id).unwrap();
        let (proxy, own, random) = (ProxyId::of(me), OwnMessages::Settled, Random::new(id));
        let mut process =
            configured.start(Start { proxy, node: Some(me), at: NOW, random, observed: true, own });
        process.load(Saved::nothing()).unwrap();
        process.start_replica(NOW, Random::new(7 * id));
        let groups = process.groups();
        let timers = groups.iter().flat_map(|group| group.timers(me.into()));
        let elections: Vec<_> = timers.filter(|timer| timer.name.contains("Election")).collect();
        assert_eq!(elections.len(), 5);
        // Raft's defaults: a heartbeat is 100 ms, an election's timeout at least 500 ms.
        for (group, timer) in (0..).zip(elections) {
            let first = timer.at < Time::ZERO + Duration::from_millis(200);
            assert_eq!(first, group % 3 == id - 1, "node {id}, {timer:?}");
        }
    }
}

#[test]
fn a_setting_is_taken_by_the_groups_that_know_it_and_refused_if_none_does() {
    let groups = Groups::parse(named("multipaxos"), "a-m=epaxos,n-z", None).unwrap();
    let group = Group::of((1..=3).filter_map(NodeId::new).collect());
    let mut settings = Settings::parse(["election.timeout=700ms", "conflicts.keys=9"]).unwrap();
    groups.configure(&group, &mut settings).unwrap();
    assert_eq!(settings.finish(), Ok(()));
    assert_eq!(settings.effective()["election.timeout"], "700ms");
    assert_eq!(settings.effective()["conflicts.keys"], "9");
    let mut settings = Settings::parse(["no-such=1"]).unwrap();
    groups.configure(&group, &mut settings).unwrap();
    assert!(settings.finish().unwrap_err().to_string().starts_with("unknown setting `no-such`"));
    let can = groups.capabilities();
    assert!(!can.total_order && !can.membership && !can.rejoin && !can.rosters);
    assert!(Groups::parse(named("epaxos"), "3", None).unwrap().capabilities().rejoin);
    assert!(Groups::parse(named("raft"), "a-m=crossword,n-z", None).unwrap().capabilities().membership);
}

#[test]
fn what_the_command_line_says_is_read_or_refused_with_what_would_be_right() {
    let parse = |groups, keys| Groups::parse(named("multipaxos"), groups, keys);
    for (groups, keys, name) in [
        ("1", None, "multipaxos in 1 group"),
        ("5", Some("c,f,m,t"), "multipaxos in 5 groups split at c,f,m,t"),
        ("2", None, "multipaxos in 2 groups split at P"),
        ("a-m=crossword,n-z=bodega", None, "groups of crossword, bodega from n"),
        ("a-m, n-z=raft", None, "groups of multipaxos, raft from n"),
        ("a-a=raft,b-z", None, "groups of raft, multipaxos from b"),
    ] {
        let parsed = parse(groups, keys).unwrap();
        assert_eq!(parsed.name(), name, "{groups} {keys:?}");
        let keys = keys.map_or(String::new(), |keys| format!(" --group-keys {keys}"));
        assert_eq!(parsed.flags(), format!("--protocol multipaxos --groups {groups}{keys}"));
    }
    for (groups, keys, why) in [
        ("0", None, "--groups: 0 groups: there may be 1 to 64"),
        ("65", None, "--groups: 65 groups: there may be 1 to 64"),
        ("99999999999999999999", None, "--groups 99999999999999999999: write how many"),
        ("five", None, "--groups five: write how many, from 1 to 64, or ranges"),
        ("5", Some("c,f,m"), "--group-keys c,f,m: 3 keys, but 5 groups are split at 4"),
        ("3", Some("c,c"), "--group-keys: split key `c` does not come after `c`"),
        ("3", Some("f,c"), "--group-keys: split key `c` does not come after `f`"),
        ("2", Some(""), "a key that divides groups is printable ASCII"),
        ("2", Some("a b"), "a key that divides groups is printable ASCII"),
        ("a-m=paxos,n-z", None, "--groups: unknown protocol `paxos`; known here: unreplicated, "),
        ("a-m,f-z", None, "--groups: the range f-z must"),
        ("m-a,n-z", None, "--groups: the range m-a must"),
        ("a-m,n-z", Some("n"), "--group-keys goes with a number of groups"),
    ] {
        let error = parse(groups, keys).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.starts_with(why), "{groups} {keys:?}: {error}");
    }
}

/// An image as it was written.
#[derive(Debug)]
struct Stored(Vec<Bytes>);

impl Image for Stored {
    fn piece(&self, cursor: &Bytes, _: usize) -> Piece {
        let index = if cursor.is_empty() { 0 } else { u64::from_bytes(cursor.clone()).unwrap() };
        let next = (index as usize + 1 < self.0.len()).then(|| (index + 1).to_bytes());
        Piece { bytes: self.0[index as usize].clone(), next }
    }
}
