//! Commands on many keys or fields: they are done in pieces, and what they answer is whole.

use std::collections::BTreeSet;

use quorate_api::resp::Limits;

use crate::harness::{Connection, Node, request};

/// More keys or fields than one piece has.
const MANY: usize = 25_000;

fn fill(node: &mut Node, connection: &mut Connection, keys: usize) {
    for numbers in (0..keys).collect::<Vec<_>>().chunks(5000) {
        let pairs = numbers.iter().flat_map(|number| [format!("key-{number}"), "v".to_owned()]);
        let words: Vec<String> = ["MSET".to_owned()].into_iter().chain(pairs).collect();
        assert_eq!(node.ask(connection, &request(&words)), "+OK\r\n");
    }
}

fn fill_hash(node: &mut Node, connection: &mut Connection, fields: usize) {
    for numbers in (0..fields).collect::<Vec<_>>().chunks(5000) {
        let pairs = numbers.iter().flat_map(|number| [format!("key-{number}"), format!("v-{number}")]);
        let words: Vec<String> = ["HSET", "h"].map(str::to_owned).into_iter().chain(pairs).collect();
        assert_eq!(node.ask(connection, &request(&words)), format!(":{}\r\n", numbers.len()));
    }
}

/// The lines of a reply that begin like this, each once.
fn names(reply: &str, prefix: &str) -> BTreeSet<String> {
    let found: Vec<&str> = reply.lines().filter(|line| line.starts_with(prefix)).collect();
    let names: BTreeSet<String> = found.iter().map(|line| (*line).to_owned()).collect();
    assert_eq!(names.len(), found.len(), "each is given once");
    names
}

/// The cursor of a scan's reply.
fn cursor(reply: &str) -> u64 {
    reply
        .lines()
        .nth(2)
        .and_then(|line| line.parse().ok())
        .unwrap_or_else(|| panic!("a scan's reply: {reply}"))
}

#[test]
fn a_scan_goes_on_at_any_node() {
    let mut nodes = [Node::new(), Node::new(), Node::new()];
    let mut connections: Vec<Connection> = nodes.iter_mut().map(Node::connect).collect();
    for (node, connection) in nodes.iter_mut().zip(&mut connections) {
        fill(node, connection, 500);
        fill_hash(node, connection, 500);
    }
    for command in ["SCAN", "HSCAN h"] {
        let (mut from, mut found, mut parts) = (0, BTreeSet::new(), 0);
        loop {
            let (node, connection) = (&mut nodes[parts % 3], &mut connections[parts % 3]);
            let reply = node.ask(connection, format!("{command} {from} COUNT 7\r\n").as_bytes());
            names(&reply, "key-").into_iter().for_each(|name| assert!(found.insert(name)));
            // Clients read cursors as numbers, some of them as floating-point ones.
            (from, parts) = (cursor(&reply), parts + 1);
            assert!(from < 1 << 53);
            if from == 0 {
                break;
            }
        }
        assert_eq!(found.len(), 500, "{command} in {parts} parts");
        assert!(parts > 3);
    }
}

#[test]
fn all_keys_are_given_in_pieces_between_which_others_are_served() {
    let mut node = Node::new();
    let (mut reader, mut other) = (node.connect(), node.connect());
    fill(&mut node, &mut reader, MANY);
    // What comes behind is executed behind.
    node.send(&mut reader, b"KEYS key-*\r\nFLUSHALL\r\nDBSIZE\r\n");
    let mut between = 0;
    while node.turn(&mut reader) {
        assert_eq!(node.ask(&mut other, b"GET key-1\r\n"), "$1\r\nv\r\n");
        between += 1;
    }
    assert_eq!(between, 3);
    let reply = String::from_utf8(node.settle(&mut reader)).unwrap();
    assert!(
        reply.starts_with(&format!("*{MANY}\r\n")) && reply.ends_with("+OK\r\n:0\r\n"),
        "{}",
        &reply[..40]
    );
    assert_eq!(names(&reply, "key-").len(), MANY);
}

#[test]
fn a_large_hash_is_given_whole() {
    let mut node = Node::new();
    let mut connection = node.connect();
    fill_hash(&mut node, &mut connection, MANY);
    let reply = node.ask(&mut connection, b"HGETALL h\r\n");
    assert!(reply.starts_with(&format!("*{}\r\n", 2 * MANY)));
    assert_eq!((names(&reply, "key-").len(), names(&reply, "v-").len()), (MANY, MANY));
    assert_eq!(connection.turns, 2, "the first piece is a read like any other");
    for (command, prefix) in [("HKEYS", "key-"), ("HVALS", "v-")] {
        let reply = node.ask(&mut connection, format!("{command} h\r\n").as_bytes());
        assert!(reply.starts_with(&format!("*{MANY}\r\n")));
        assert_eq!(names(&reply, prefix).len(), MANY);
    }
    node.ask(&mut connection, b"HELLO 3\r\n");
    assert!(node.ask(&mut connection, b"HGETALL h\r\n").starts_with(&format!("%{MANY}\r\n")));
}

#[test]
fn a_hash_that_changes_while_it_is_read_is_read_again_and_not_for_ever() {
    let mut node = Node::new();
    let (mut reader, mut writer) = (node.connect(), node.connect());
    fill_hash(&mut node, &mut reader, MANY);
    node.send(&mut reader, b"HGETALL h\r\n");
    node.execute_all(&mut reader);
    // Both move from one side of what was read to the other.
    assert_eq!(
        node.ask(&mut writer, b"MULTI\r\nHDEL h key-1\r\nHSET h key-new v-new\r\nEXEC\r\n").lines().count(),
        6
    );
    let reply = String::from_utf8(node.settle(&mut reader)).unwrap();
    let found = names(&reply, "key-");
    assert_eq!((found.len(), found.contains("key-1"), found.contains("key-new")), (MANY, false, true));

    node.send(&mut reader, b"HGETALL h\r\n");
    node.execute_all(&mut reader);
    let mut changes = 0;
    while node.turn(&mut reader) {
        changes += 1;
        assert!(changes < 100, "it ends");
        node.ask(&mut writer, format!("HSET h key-2 {changes}\r\n").as_bytes());
    }
    let reply = String::from_utf8(node.settle(&mut reader)).unwrap();
    assert!(reply.starts_with("-ERR the hash changes faster than it can be read whole"), "{reply:.80}");
    assert_eq!(node.ask(&mut reader, b"PING\r\n"), "+PONG\r\n");
}

#[test]
fn what_would_look_at_too_much_is_refused_in_words_and_the_connection_stays_usable() {
    let mut node =
        Node::with(Limits { command_words: 10_010, transaction_words: 20_000, ..Limits::default() });
    let mut connection = node.connect();
    fill_hash(&mut node, &mut connection, 5000);
    fill_hash_more(&mut node, &mut connection);
    let mut ask = |text: &str| node.ask(&mut connection, text.replace('¶', "\r\n").as_bytes());
    let too_long = "-ERR the pattern is longer than the limit of 1024 bytes\r\n";
    let pattern = "a*".repeat(513);
    for command in ["KEYS", "SCAN 0 MATCH", "HSCAN h 0 MATCH", "CONFIG GET"] {
        assert_eq!(ask(&format!("{command} {pattern}¶")), too_long, "{command}");
    }
    assert_eq!(ask(&format!("KEYS {}¶", "a".repeat(1024))), "*0\r\n");
    let reply = ask("MULTI¶HGETALL h¶HLEN h¶EXEC¶");
    assert!(
        reply.contains("-ERR the command would look at more than 10000 keys or fields at once"),
        "{reply:.200}"
    );
    assert!(reply.ends_with(":12000\r\n"));

    let words: Vec<&str> = ["DEL"].into_iter().chain(["key"; 10_010]).collect();
    let refused = "-ERR a command of 10011 words is longer than the limit of 10010\r\n";
    assert_eq!(node.ask(&mut connection, &request(&words)), refused);
    assert_eq!(node.ask(&mut connection, &request(&words[..10_010])), ":0\r\n");
    assert_eq!(node.ask(&mut connection, b"MULTI\r\n"), "+OK\r\n");
    assert_eq!(node.ask(&mut connection, &request(&words[..10_010])), "+QUEUED\r\n");
    let refused = "-ERR the transaction has more words than the limit of 20000\r\n";
    assert_eq!(node.ask(&mut connection, &request(&words[..10_010])), refused);
    assert!(node.ask(&mut connection, b"EXEC\r\n").starts_with("-EXECABORT"));
    assert_eq!(node.ask(&mut connection, b"PING\r\n"), "+PONG\r\n");
}

#[test]
fn more_names_of_commands_than_there_are_commands_are_refused_in_words() {
    let mut node = Node::new();
    let mut connection = node.connect();
    for command in ["INFO", "DOCS"] {
        let words: Vec<&str> = ["COMMAND", command].into_iter().chain(["acl"; 257]).collect();
        let refused = "-ERR 257 names are more than the limit of 256\r\n";
        assert_eq!(node.ask(&mut connection, &request(&words)), refused);
        assert!(node.ask(&mut connection, &request(&words[..258])).starts_with('*'));
    }
}

#[test]
fn a_transaction_has_no_replies_without_bound_that_the_store_does_not_give() {
    let mut node = Node::new();
    let mut connection = node.connect();
    node.ask(&mut connection, b"MULTI\r\n");
    node.ask(&mut connection, &b"COMMAND DOCS\r\n".repeat(1000));
    node.ask(&mut connection, b"SET k v\r\nCLIENT SETNAME me\r\nGET k\r\n");
    let reply = node.ask(&mut connection, b"EXEC\r\n");
    assert!(reply.len() < 2 << 20, "{} bytes", reply.len());
    let refused = "-ERR the transaction's replies would have more than 1048576 bytes\r\n";
    let end = format!("{refused}+OK\r\n{refused}$1\r\nv\r\n");
    assert!(reply.starts_with("*1003\r\n") && reply.ends_with(&end));
}

fn fill_hash_more(node: &mut Node, connection: &mut Connection) {
    for start in [5000, 8000, 11_000] {
        let numbers = start..(start + 3000).min(12_000);
        let pairs = numbers.flat_map(|number| [format!("key-{number}"), "v".to_owned()]);
        let words: Vec<String> = ["HSET", "h"].map(str::to_owned).into_iter().chain(pairs).collect();
        node.ask(connection, &request(&words));
    }
}

#[test]
fn more_keys_than_a_reply_may_have_are_refused_in_words() {
    let mut node = Node::new();
    let mut connection = node.connect();
    let count = (72 << 20) / 60_000 + 10;
    for number in 0..count {
        node.ask(&mut connection, &request(&["SET", &format!("{number:060000}"), "v"]));
    }
    let reply = node.ask(&mut connection, b"KEYS *\r\n");
    assert_eq!(reply, "-ERR the reply would be larger than 72 MiB: read it in parts with SCAN or HSCAN\r\n");
    let reply = node.ask(&mut connection, b"KEYS *7\r\n");
    assert!(reply.starts_with(&format!("*{}\r\n", (count + 2) / 10)));
}

#[test]
fn help_lists_the_subcommands_that_there_are() {
    let mut node = Node::new();
    let mut connection = node.connect();
    for (command, subcommand) in
        [("QUORATE", "TRANSFER"), ("CLIENT", "READMODE"), ("CONFIG", "GET"), ("SLOWLOG", "LEN")]
    {
        let reply = node.ask(&mut connection, format!("{command} help\r\n").as_bytes());
        assert!(reply.contains(&format!("+{command} <subcommand>")), "{reply}");
        assert!(reply.lines().any(|line| line.trim_start_matches('+').starts_with(subcommand)), "{reply}");
        let count = reply.lines().count() - 1;
        assert!(reply.starts_with(&format!("*{count}\r\n")), "{reply}");
        let refused = node.ask(&mut connection, format!("{command} nonsense\r\n").as_bytes());
        assert_eq!(refused, format!("-ERR unknown subcommand 'nonsense'. Try {command} HELP.\r\n"));
    }
}

#[test]
fn a_large_request_is_encoded_in_pieces_and_what_comes_behind_it_is_executed_behind_it() {
    let mut node = Node::new();
    let mut connection = node.connect();
    let value = "v".repeat(3 << 20);
    node.send(&mut connection, &[request(&["SET", "k", &value]), request(&["STRLEN", "k"])].concat());
    let mut turns = 0;
    while node.turn(&mut connection) {
        turns += 1;
    }
    assert_eq!(turns, 13, "of 256 KiB each");
    assert_eq!(node.settle(&mut connection), b"+OK\r\n:3145728\r\n");
    assert_eq!(node.ask(&mut connection, b"GET k\r\n"), format!("${}\r\n{value}\r\n", value.len()));
}
