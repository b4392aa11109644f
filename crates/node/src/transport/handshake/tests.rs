//! What processes say to each other first, read back, cut short, and compared.

use super::*;
use quorate_blocks::admission::{DiskId, DiskLife, KnownGroup, Stage};
use quorate_blocks::reach::Reach;
use quorate_core::{ProxyId, Random};

fn node(id: u64) -> ProcessId {
    NodeId::new(id).unwrap().into()
}

fn identity(cluster: u64, me: ProcessId, protocol: &str, set: &str) -> Identity {
    let mut settings = Settings::parse([set]).unwrap();
    settings.duration("lease", "2s", "How long a lease lasts").unwrap();
    Identity::new(cluster, (me, "a:1"), 7, protocol, &settings)
}

#[test]
fn a_process_is_reachable_where_it_says_if_that_makes_sense() {
    let from = "10.0.0.9:5555".parse().unwrap();
    for (address, expected) in [
        ("db4:7201", Some("db4:7201")),
        ("10.0.0.4:7201", Some("10.0.0.4:7201")),
        ("0.0.0.0:7201", Some("10.0.0.9:7201")),
        ("[::]:7201", Some("10.0.0.9:7201")),
        ("", None),
        ("db4", None),
        (&*format!("{}:1", "x".repeat(300)), None),
    ] {
        let hello = Hello {
            address: Bytes::copy_from_slice(address.as_bytes()),
            ..identity(1, node(2), "multipaxos", "lease=2s").hello(node(1))
        };
        assert_eq!(hello.reachable(from).as_deref(), expected, "{address}");
    }
}

#[test]
fn every_difference_is_named_and_none_is_overlooked() {
    let me = identity(1, node(1), "multipaxos", "lease=2s");
    for (other, expected, message) in [
        (identity(1, node(2), "multipaxos", "lease=2s"), node(1), None),
        (
            identity(1, node(2), "multipaxos", "lease=2s"),
            node(3),
            Some("node 2 looks for node 3, and has found node 1:"),
        ),
        (
            identity(9, node(2), "multipaxos", "lease=2s"),
            node(1),
            Some("the cluster of node 2 is 0000000000000009, that of node 1 is 0000000000000001:"),
        ),
        (
            identity(1, node(2), "raft", "lease=2s"),
            node(1),
            Some("the protocol of node 2 is raft, that of node 1 is multipaxos"),
        ),
        (
            identity(1, node(2), "multipaxos", "lease=3s"),
            node(1),
            Some("lease is 3s at node 2, 2s at node 1"),
        ),
    ] {
        let found = me.difference(&other.hello(expected));
        match message {
            None => assert_eq!(found, None),
            Some(part) => {
                assert!(found.clone().is_some_and(|text| text.contains(part)), "{found:?}: {part}")
            }
        }
    }
    let twin = Hello { incarnation: 8, ..me.hello(node(1)) };
    assert!(me.difference(&twin).unwrap().contains("ids must differ"));
    assert_eq!((text(b"a\nb\x1b"), text(&[b'a'; 501]).len()), ("a?b?".to_owned(), 500), "for a log");
}

#[test]
fn only_a_standalone_proxy_may_leave_cluster_and_settings_open() {
    let me = identity(1, node(1), "multipaxos", "lease=2s");
    for (who, open) in [(ProxyId(1 << 40), true), (ProxyId(2), false)] {
        let hello = Hello { me: who.into(), ..me.hello(node(1)) };
        let ones = [Hello { cluster: 0, ..hello.clone() }, Hello { settings_digest: 0, ..hello }];
        assert!(ones.iter().all(|hello| me.difference(hello).is_none() == open));
    }
}

#[test]
fn a_handshake_is_taken_whole_and_anything_else_is_refused_early() {
    let hello = identity(1, node(2), "multipaxos", "lease=2s").hello(node(1));
    let mut bytes = Vec::new();
    put(&hello, &mut bytes);
    for cut in 0..bytes.len() {
        assert_eq!(take::<Hello>(&mut BytesMut::from(&bytes[..cut])), Ok(None), "{cut}");
    }
    assert_eq!(take(&mut BytesMut::from(&bytes[..])), Ok(Some(hello)));

    for garbage in [&b"G"[..], b"*1\r\n$4\r\nPING\r\n", b"QRTX", b"\0\0\0\0\0"] {
        assert!(take::<Hello>(&mut BytesMut::from(garbage)).is_err());
    }
    let mut long = bytes.clone();
    long[6..10].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(take::<Hello>(&mut BytesMut::from(&long[..])).unwrap_err().contains("announces"));
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    assert!(take::<Hello>(&mut BytesMut::from(&damaged[..])).unwrap_err().contains("damaged"));
}

#[test]
fn two_processes_speak_the_newest_version_that_both_do() {
    let versions = |newest, older| Versions { newest, older };
    for (one, other, expected) in [
        (versions(13, 0), versions(13, 0), Some(13)),
        (versions(15, 2), versions(14, 0), Some(14)),
        (versions(15, 2), versions(13, 5), Some(13)),
        (versions(15, 2), versions(12, 5), None),
        (versions(15, 2), versions(18, 2), None),
        (versions(3, 9), versions(0, 0), Some(0)),
    ] {
        assert_eq!((one.common(other), other.common(one)), (expected, expected), "{one}, {other}");
    }
    assert_eq!(format!("{}, {}", versions(13, 0), versions(15, 2)), "version 13, versions 13 to 15");
}

#[test]
fn versions_without_a_common_one_are_named_and_their_refusal_is_readable() {
    let oldest = VERSIONS.newest - VERSIONS.older;
    for other in [
        Versions { newest: VERSIONS.newest + 1, older: 0 },
        Versions { newest: VERSIONS.newest + 3, older: 2 },
        Versions { newest: oldest - 1, older: 3 },
    ] {
        let by_other = |message: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = Vec::new();
            message(&mut bytes);
            bytes[4..6].copy_from_slice(&[other.newest, other.older]);
            BytesMut::from(&bytes[..])
        };
        let only = format!("only {other} here");
        let mut refused = by_other(&|out| put(&Answer::Refused(Bytes::from(only.clone())), out));
        assert_eq!(take::<Answer>(&mut refused), Err(only));
        let hello = identity(1, node(2), "multipaxos", "lease=2s").hello(node(1));
        let error = take::<Hello>(&mut by_other(&|out| put(&hello, out))).unwrap_err();
        let words = [
            format!("the process that connects speaks {other} of"),
            format!("the one that it connects to speaks {VERSIONS}:"),
        ];
        assert!(words.iter().all(|words| error.contains(words)), "{error}");
    }
}

#[test]
fn a_build_that_does_not_know_the_feature_level_of_the_group_is_refused() {
    let level = |number| FeatureLevel::new(number).unwrap();
    for (group, knows, refused) in [(1, 1, false), (1, 2, false), (2, 1, true), (2, 2, false), (2, 3, false)]
    {
        let mut me = identity(1, node(1), "multipaxos", "lease=2s");
        me.raise(level(group));
        // It never falls.
        me.raise(level(1));
        for who in [node(2), ProxyId(1 << 40).into()] {
            let hello = Hello { me: who, knows: level(knows), ..me.hello(node(1)) };
            let who = name(who);
            let words = format!("{who} knows feature levels up to {knows}, but this group is at {group}:");
            let found = me.difference(&hello);
            assert_eq!(found.is_some(), refused, "{group}, {knows}: {found:?}");
            assert!(found.is_none_or(|found| found.contains(&words)));
        }
    }
}

#[test]
fn a_hello_that_says_nothing_of_levels_is_that_of_a_build_that_knows_the_first() {
    let hello = identity(1, node(2), "multipaxos", "lease=2s").hello(node(1));
    assert_eq!(hello.knows, FeatureLevel::NEWEST);
    let bytes = hello.to_bytes();
    let before = Hello::from_bytes(bytes.slice(..bytes.len() - 2)).unwrap();
    assert_eq!(before, Hello { knows: FeatureLevel::FIRST, ..hello.clone() });
    assert_eq!(Hello::from_bytes(bytes), Ok(hello));
}

/// Builds that know of one group alone read the first.
#[test]
fn a_hello_says_who_is_in_each_group() {
    let life = DiskLife { disk: DiskId(7), life: 1, starts: vec![3] };
    let set = |nodes: &[u64]| nodes.iter().filter_map(|id| NodeId::new(*id)).collect();
    let of = |version, nodes: &[u64]| KnownGroup { version, ..KnownGroup::initial(set(nodes)) };
    let groups = vec![of(0, &[1, 2, 3]), of(7, &[1, 2, 4]), of(9, &[1, 4, 5])];
    let (stage, reach) = (Stage::Admitted, Reach::SHORTEST);
    let disk = |groups| Introduction { life: life.clone(), stage, groups, peers: [].into(), reach };
    let plain = identity(1, node(2), "multipaxos", "lease=2s").hello(node(1));
    let all = Hello { disk: Some(disk(groups.clone())), ..plain.clone() };
    let first = Hello { disk: Some(disk(groups[..1].to_vec())), ..plain };
    assert_eq!(Hello::from_bytes(all.to_bytes()), Ok(all.clone()));
    assert_eq!(Hello::from_bytes(first.to_bytes()), Ok(first.clone()));
    assert!(all.to_bytes().starts_with(&first.to_bytes()));
}

#[test]
fn what_a_later_version_adds_to_a_hello_is_not_read() {
    let hello = identity(1, node(2), "multipaxos", "lease=2s").hello(node(1));
    let mut bytes = Vec::new();
    put(&(hello.clone(), 7u64), &mut bytes);
    bytes[4..6].copy_from_slice(&[VERSIONS.newest + 1, 1]);
    assert_eq!(take(&mut BytesMut::from(&bytes[..])), Ok(Some(hello)));
}

#[test]
fn arbitrary_bytes_never_panic() {
    let mut random = Random::new(1);
    for _ in 0..10_000 {
        let body: Vec<u8> = (0..random.range(0..60)).map(|_| random.u64() as u8).collect();
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[VERSIONS.newest, VERSIONS.older]);
        bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        let _ = take::<Hello>(&mut BytesMut::from(&bytes[..]));
        let _ = take::<Answer>(&mut BytesMut::from(&bytes[4..]));
    }
}
