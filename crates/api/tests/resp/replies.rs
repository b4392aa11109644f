//! What each command answers. The replies are those of Redis 7.0.15, unless said otherwise:
//! `crates/cli/tests/conformance.rs` compares.

use crate::harness::{Node, request};
use quorate_api::resp::Limits;

/// Runs the commands on one connection and compares replies; `\r\n` in them is written `¶`.
fn conversation(lines: &[(&str, &str)]) {
    let mut node = Node::new();
    let mut connection = node.connect();
    for (command, expected) in lines {
        let reply = node.ask(&mut connection, format!("{command}\r\n").as_bytes());
        assert_eq!(reply.replace("\r\n", "¶"), *expected, "{command}");
    }
}

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value¶";
const NOT_INTEGER: &str = "-ERR value is not an integer or out of range¶";

#[test]
fn strings() {
    conversation(&[
        ("GET k", "$-1¶"),
        ("SET k v", "+OK¶"),
        ("get k", "$1¶v¶"),
        ("GeTsEt k w", "$1¶v¶"),
        ("SETNX k x", ":0¶"),
        ("SETNX n x", ":1¶"),
        ("APPEND k xyz", ":4¶"),
        ("STRLEN k", ":4¶"),
        ("GETRANGE k 1 -2", "$2¶xy¶"),
        ("SUBSTR k 9 10", "$0¶¶"),
        ("GETDEL k", "$4¶wxyz¶"),
        ("GETDEL k", "$-1¶"),
        ("MSET a 1 b 2", "+OK¶"),
        ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command¶"),
        ("MGET a z b", "*3¶$1¶1¶$-1¶$1¶2¶"),
        ("MSETNX c 1 a 9", ":0¶"),
        ("MSETNX c 1 d 2", ":1¶"),
        ("INCR a", ":2¶"),
        ("DECR a", ":1¶"),
        ("INCRBY a 40", ":41¶"),
        ("DECRBY a 1", ":40¶"),
        ("INCRBY a x", NOT_INTEGER),
        ("DECRBY a -9223372036854775808", "-ERR decrement would overflow¶"),
        ("INCRBY a 9223372036854775807", "-ERR increment or decrement would overflow¶"),
        ("INCRBYFLOAT a 0.5", "$4¶40.5¶"),
        ("INCRBYFLOAT a x", "-ERR value is not a valid float¶"),
        ("INCR a", NOT_INTEGER),
        ("HSET h f v", ":1¶"),
        ("GET h", WRONG_TYPE),
        ("INCR h", WRONG_TYPE),
    ]);
}

#[test]
fn set_takes_every_option() {
    conversation(&[
        ("SET k v XX", "$-1¶"),
        ("SET k v NX", "+OK¶"),
        ("SET k w NX", "$-1¶"),
        ("SET k w NX GET", "$1¶v¶"),
        ("SET k w XX get", "$1¶v¶"),
        ("SET k x EX 100", "+OK¶"),
        ("TTL k", ":100¶"),
        ("SET k y KEEPTTL", "+OK¶"),
        ("PTTL k", ":100000¶"),
        ("SET k z", "+OK¶"),
        ("TTL k", ":-1¶"),
        ("SET k z PX 1500 EX 1", "-ERR syntax error¶"),
        ("SET k z EX 1 EX 2", "+OK¶"),
        ("PTTL k", ":2000¶"),
        ("SET k z EXAT 1700000010", "+OK¶"),
        ("PTTL k", ":9877¶"),
        ("EXPIRETIME k", ":1700000010¶"),
        ("PEXPIRETIME k", ":1700000010000¶"),
        ("SET k z PXAT 1", "+OK¶"),
        ("EXISTS k", ":0¶"),
        ("SET k v EX", "-ERR syntax error¶"),
        ("SET k v EX x", NOT_INTEGER),
        ("SET k v EX 0", "-ERR invalid expire time in 'set' command¶"),
        ("SET k v EX 9223372036854775807", "-ERR invalid expire time in 'set' command¶"),
        ("SET k v PX 9223372036854775807", "-ERR invalid expire time in 'set' command¶"),
        ("SET k v KEEPTTL EX 1", "-ERR syntax error¶"),
        ("SET k v NX XX", "-ERR syntax error¶"),
        ("SET k v BOGUS", "-ERR syntax error¶"),
        ("SETEX k 10 v", "+OK¶"),
        ("PSETEX k 0 v", "-ERR invalid expire time in 'psetex' command¶"),
        ("SETEX k -1 v", "-ERR invalid expire time in 'setex' command¶"),
        ("TTL k", ":10¶"),
    ]);
}

#[test]
fn keys() {
    conversation(&[
        ("RANDOMKEY", "$-1¶"),
        ("MSET a 1 b 2 c 3", "+OK¶"),
        ("DBSIZE", ":3¶"),
        ("EXISTS a a z", ":2¶"),
        ("TOUCH a z", ":1¶"),
        ("TYPE a", "+string¶"),
        ("TYPE z", "+none¶"),
        ("KEYS *", "*3¶$1¶a¶$1¶c¶$1¶b¶"),
        ("KEYS [ac]", "*2¶$1¶a¶$1¶c¶"),
        ("SCAN 0", "*2¶$1¶0¶*3¶$1¶a¶$1¶c¶$1¶b¶"),
        ("SCAN 18446744073709551615", "*2¶$1¶0¶*0¶"),
        ("SCAN 0 MATCH b COUNT 10", "*2¶$1¶0¶*1¶$1¶b¶"),
        ("SCAN x", "-ERR invalid cursor¶"),
        ("SCAN 0 COUNT 0", "-ERR syntax error¶"),
        ("SCAN 0 COUNT", "-ERR syntax error¶"),
        ("DEL a z", ":1¶"),
        ("UNLINK b b", ":1¶"),
        ("RANDOMKEY", "$1¶c¶"),
        ("EXPIRE c 100", ":1¶"),
        ("EXPIRE z 100", ":0¶"),
        ("EXPIRE c x", NOT_INTEGER),
        ("EXPIRE c 9223372036854775807", "-ERR invalid expire time in 'expire' command¶"),
        ("PEXPIRE c 1499", ":1¶"),
        ("TTL c", ":1¶"),
        ("PTTL c", ":1499¶"),
        ("PERSIST c", ":1¶"),
        ("PERSIST c", ":0¶"),
        ("TTL c", ":-1¶"),
        ("PTTL z", ":-2¶"),
        ("PEXPIREAT c 1700000001000", ":1¶"),
        ("PTTL c", ":877¶"),
        ("EXPIREAT c 1", ":1¶"),
        ("EXISTS c", ":0¶"),
        ("SET d 1", "+OK¶"),
        ("FLUSHALL NOW", "-ERR syntax error¶"),
        ("FLUSHALL ASYNC", "+OK¶"),
        ("DBSIZE", ":0¶"),
    ]);
}

#[test]
fn hashes() {
    conversation(&[
        ("HSET h b 2 a 1", ":2¶"),
        ("HSET h a 3 c 4", ":1¶"),
        ("HSET h a", "-ERR wrong number of arguments for 'hset' command¶"),
        ("HSET h a 1 b", "-ERR wrong number of arguments for 'hset' command¶"),
        ("HMSET h a 1", "+OK¶"),
        ("HGET h a", "$1¶1¶"),
        ("HGET h z", "$-1¶"),
        ("HGET z z", "$-1¶"),
        ("HMGET h a z", "*2¶$1¶1¶$-1¶"),
        ("HGETALL h", "*6¶$1¶a¶$1¶1¶$1¶c¶$1¶4¶$1¶b¶$1¶2¶"),
        ("HKEYS h", "*3¶$1¶a¶$1¶c¶$1¶b¶"),
        ("HVALS h", "*3¶$1¶1¶$1¶4¶$1¶2¶"),
        ("HLEN h", ":3¶"),
        ("HEXISTS h a", ":1¶"),
        ("HEXISTS h z", ":0¶"),
        ("HSTRLEN h a", ":1¶"),
        ("HSTRLEN h z", ":0¶"),
        ("HSETNX h a 9", ":0¶"),
        ("HSETNX h d word", ":1¶"),
        ("HINCRBY h a 2", ":3¶"),
        ("HINCRBY h d 2", "-ERR hash value is not an integer¶"),
        ("HINCRBY h a x", NOT_INTEGER),
        ("HSCAN h 0 MATCH [ab]", "*2¶$1¶0¶*4¶$1¶a¶$1¶3¶$1¶b¶$1¶2¶"),
        ("HDEL h a z", ":1¶"),
        ("TYPE h", "+hash¶"),
        ("SET s v", "+OK¶"),
        ("HGET s f", WRONG_TYPE),
        ("HGETALL z", "*0¶"),
        (
            "HELLO 3 SETNAME me",
            "%7¶$6¶server¶$5¶redis¶$7¶version¶$6¶7.0.15¶$5¶proto¶:3¶$2¶id¶:1¶\
             $4¶mode¶$10¶standalone¶$4¶role¶$6¶master¶$7¶modules¶*0¶",
        ),
        ("HGETALL h", "%3¶$1¶d¶$4¶word¶$1¶c¶$1¶4¶$1¶b¶$1¶2¶"),
        ("HGET h z", "_¶"),
    ]);
}

#[test]
fn transactions() {
    conversation(&[
        ("EXEC", "-ERR EXEC without MULTI¶"),
        ("DISCARD", "-ERR DISCARD without MULTI¶"),
        ("MULTI", "+OK¶"),
        ("MULTI", "-ERR MULTI calls can not be nested¶"),
        ("WATCH k", "-ERR WATCH inside MULTI is not allowed¶"),
        ("SET k 1", "+QUEUED¶"),
        ("INCR k", "+QUEUED¶"),
        ("HGET k f", "+QUEUED¶"),
        ("SET k v BOGUS", "+QUEUED¶"),
        ("PING", "+QUEUED¶"),
        ("GET k", "+QUEUED¶"),
        ("UNWATCH", "+QUEUED¶"),
        (
            "EXEC",
            "*7¶+OK¶:2¶-WRONGTYPE Operation against a key holding the wrong kind of value¶-ERR syntax error¶+PONG¶\
             $1¶2¶+OK¶",
        ),
        ("MULTI", "+OK¶"),
        ("EXEC", "*0¶"),
        ("MULTI", "+OK¶"),
        ("SET k 5", "+QUEUED¶"),
        ("GET", "-ERR wrong number of arguments for 'get' command¶"),
        ("SET k 6", "+QUEUED¶"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors.¶"),
        ("GET k", "$1¶2¶"),
        ("MULTI", "+OK¶"),
        ("SET k 7", "+QUEUED¶"),
        ("DISCARD", "+OK¶"),
        ("GET k", "$1¶2¶"),
    ]);
}

#[test]
fn exec_fails_if_what_was_watched_has_changed_in_between() {
    let mut node = Node::new();
    let (mut one, mut other) = (node.connect(), node.connect());
    let watch = "WATCH k n\r\n";
    let exec = "MULTI\r\nSET r 1\r\nEXEC\r\n";
    let (done, aborted) = ("+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n", "+OK\r\n+QUEUED\r\n*-1\r\n");
    for (between, expected) in [
        ("GET k\r\n", done),
        ("SET k 1\r\n", aborted),
        ("SET k 1\r\n", aborted),
        ("DEL k\r\n", aborted),
        ("DEL k\r\n", done),
        ("SET n 1\r\nDEL n\r\n", done),
        ("HSET n f 1\r\n", aborted),
        ("FLUSHALL\r\n", aborted),
    ] {
        assert_eq!(node.ask(&mut one, watch.as_bytes()), "+OK\r\n");
        node.ask(&mut other, between.as_bytes());
        assert_eq!(node.ask(&mut one, exec.as_bytes()), expected, "{between}");
        // Either way nothing is watched afterwards.
        node.ask(&mut other, b"INCR unrelated\r\n");
        assert_eq!(node.ask(&mut one, exec.as_bytes()), done);
    }
    for forget in ["UNWATCH", "MULTI\r\nDISCARD", "RESET", "MULTI\r\nEXEC"] {
        node.ask(&mut one, format!("WATCH k\r\n{forget}\r\n").as_bytes());
        node.ask(&mut other, b"INCR k\r\n");
        assert_eq!(node.ask(&mut one, exec.as_bytes()), done, "{forget}");
    }
    // The first version of a key that is watched twice is the one that counts.
    node.ask(&mut one, b"WATCH k\r\n");
    node.ask(&mut other, b"INCR k\r\n");
    node.ask(&mut one, b"WATCH k\r\n");
    assert_eq!(node.ask(&mut one, exec.as_bytes()), aborted);
}

#[test]
fn a_member_that_has_lost_its_disk_gives_no_backup_before_it_has_everything_again() {
    let mut node = Node::new();
    (node.applied, node.role) = (Some(9), quorate_core::REJOINING);
    let mut connection = node.connect();
    let refused = "-ERR this node has lost its disk and does not have everything again: ask another one, or for BEGIN \
                   LOCAL\r\n";
    assert_eq!(node.ask(&mut connection, b"QUORATE BACKUP BEGIN\r\n"), refused);
    node.role = "replica";
    node.send(&mut connection, b"QUORATE BACKUP BEGIN\r\n");
    assert_eq!(connection.asked.len(), 1);
}

#[test]
fn a_transaction_that_fails_changes_nothing_of_its_connection() {
    let mut node = Node::new();
    node.applied = Some(9);
    let (mut one, mut other) = (node.connect(), node.connect());
    node.ask(&mut one, b"WATCH k\r\n");
    node.ask(&mut other, b"SET k 1\r\n");
    let exec = "MULTI\r\nCLIENT READMODE local\r\nCLIENT SETNAME me\r\nSET k 2\r\nEXEC\r\n";
    let queued = "+QUEUED\r\n".repeat(3);
    assert_eq!(node.ask(&mut one, exec.as_bytes()), format!("+OK\r\n{queued}*-1\r\n"));
    let left = node.ask(&mut one, b"CLIENT READMODE\r\nCLIENT GETNAME\r\n");
    assert_eq!(left, "$12\r\nlinearizable\r\n$-1\r\n");
    node.ask(&mut one, exec.as_bytes());
    let left = node.ask(&mut one, b"CLIENT READMODE\r\nCLIENT GETNAME\r\n");
    assert_eq!(left, "$5\r\nlocal\r\n$2\r\nme\r\n");
}

#[test]
fn the_connection() {
    conversation(&[
        ("PING", "+PONG¶"),
        ("PING \"a b\"", "$3¶a b¶"),
        ("PING a b", "-ERR wrong number of arguments for 'ping' command¶"),
        ("ECHO hi", "$2¶hi¶"),
        ("SELECT 0", "+OK¶"),
        ("SELECT 1", "-ERR DB index is out of range¶"),
        ("SELECT x", NOT_INTEGER),
        ("CLIENT ID", ":1¶"),
        ("CLIENT GETNAME", "$-1¶"),
        ("CLIENT SETNAME me", "+OK¶"),
        ("CLIENT GETNAME", "$2¶me¶"),
        (
            "CLIENT SETNAME \"a b\"",
            "-ERR Client names cannot contain spaces, newlines or special characters.¶",
        ),
        ("CLIENT SETINFO lib-name x", "+OK¶"),
        ("CLIENT NO-EVICT on", "+OK¶"),
        (
            "CLIENT INFO",
            "$115¶id=1 addr=10.0.0.9:40000 name=me age=0 idle=0 flags=N db=0 cmd=client|info user=default resp=2 \
             lib-name=x lib-ver=\n¶",
        ),
        ("CLIENT", "-ERR wrong number of arguments for 'client' command¶"),
        ("CLIENT SETNAME", "-ERR wrong number of arguments for 'client|setname' command¶"),
        ("CLIENT foo", "-ERR unknown subcommand 'foo'. Try CLIENT HELP.¶"),
        ("HELLO 4", "-NOPROTO unsupported protocol version¶"),
        ("HELLO x", "-ERR Protocol version is not an integer or out of range¶"),
        ("HELLO 3 FOO", "-ERR Syntax error in HELLO option 'FOO'¶"),
        ("HELLO 3 AUTH bob x", "-WRONGPASS invalid username-password pair or user is disabled.¶"),
        ("AUTH default x", "+OK¶"),
        ("TIME", "*2¶$10¶1700000000¶$6¶123000¶"),
        ("CONFIG GET max-data", "*2¶$8¶max-data¶$1¶0¶"),
        ("CONFIG SET max-data 1kb", "+OK¶"),
        ("CONFIG GET max-data maxmemory", "*4¶$8¶max-data¶$4¶1024¶$9¶maxmemory¶$4¶1024¶"),
        ("CONFIG GET feature-level save", "*4¶$13¶feature-level¶$1¶1¶$4¶save¶$0¶¶"),
        ("MULTI", "+OK¶"),
        ("CONFIG GET max-data", "+QUEUED¶"),
        ("CONFIG GET save", "+QUEUED¶"),
        ("EXEC", "*2¶*2¶$8¶max-data¶$4¶1024¶*2¶$4¶save¶$0¶¶"),
        ("CONFIG SET max-data 0", "+OK¶"),
        ("CONFIG GET SAVE append*", "*4¶$10¶appendonly¶$3¶yes¶$4¶save¶$0¶¶"),
        ("CONFIG GET", "-ERR wrong number of arguments for 'config|get' command¶"),
        ("LPUSH l 1", "-ERR unknown command 'LPUSH', with args beginning with: 'l' '1' ¶"),
        ("RESET", "+RESET¶"),
        ("CLIENT GETNAME", "$-1¶"),
        (
            "CLIENT INFO",
            "$112¶id=1 addr=10.0.0.9:40000 name= age=0 idle=0 flags=N db=0 cmd=client|info user=default resp=2 \
             lib-name= lib-ver=\n¶",
        ),
    ]);
}

#[test]
fn the_node_tells_its_state() {
    let mut node = Node::new();
    let mut connection = node.connect();
    let status = node.ask(&mut connection, b"QUORATE STATUS\r\n");
    let json: serde_json::Value = serde_json::from_str(status.lines().nth(1).unwrap()).unwrap();
    assert_eq!(
        (&json["role"], &json["leader"], &json["ballot"]),
        (&"leader".into(), &1.into(), &"7.1".into())
    );
    assert_eq!(json["peers"][0]["lag"], 3);
    assert_eq!(json["facts"]["protocol"], "none");
    assert_eq!(json["samples"]["reads_local_total"], 7);
    let info = node.ask(&mut connection, b"INFO quorate\r\n");
    assert!(
        info.contains("# Quorate\r\nquorate_role:leader\r\nleader:1\r\n") && !info.contains("# Server"),
        "{info}"
    );
    let info = node.ask(&mut connection, b"INFO\r\n");
    assert!(
        info.contains("redis_version:7.0.15\r\n")
            && info.contains("\r\nused_cpu_user:")
            && info.contains("\r\n# Cluster\r\ncluster_enabled:0\r\n")
            && info.contains("\r\n\r\n# Replication\r\nrole:master")
    );
}

#[test]
fn the_table_of_commands_can_be_asked_for() {
    let mut node = Node::new();
    let mut connection = node.connect();
    let count = node.ask(&mut connection, b"COMMAND COUNT\r\n");
    let count: usize = count[1..].trim().parse().unwrap();
    assert!(
        node.ask(&mut connection, b"COMMAND\r\n")
            .starts_with(&format!("*{count}\r\n*10\r\n$3\r\nacl\r\n:-2\r\n"))
    );
    assert!(
        node.ask(&mut connection, b"COMMAND DOCS\r\n")
            .starts_with(&format!("*{}\r\n$3\r\nacl\r\n", 2 * count))
    );
    let listed = node.ask(&mut connection, b"COMMAND LIST\r\n");
    assert!(listed.contains("$3\r\nget\r\n") && listed.contains("$11\r\nclient|list\r\n"), "{listed}");
    for (filter, expected) in [
        ("FILTERBY PATTERN *NX", "*3\r\n$6\r\nhsetnx\r\n$6\r\nmsetnx\r\n$5\r\nsetnx\r\n"),
        ("filterby aclcat Transaction", "*5\r\n$7\r\ndiscard\r\n$4\r\nexec\r\n"),
        ("FILTERBY ACLCAT none", "*0\r\n"),
        ("FILTERBY MODULE none", "*0\r\n"),
        ("FILTERBY PATTERN", "-ERR syntax error\r\n"),
        ("FILTERBY OTHER x", "-ERR syntax error\r\n"),
        ("BY PATTERN x", "-ERR syntax error\r\n"),
    ] {
        let told = node.ask(&mut connection, format!("COMMAND LIST {filter}\r\n").as_bytes());
        assert!(told.starts_with(expected), "{filter}: {told}");
    }
    assert_eq!(
        node.ask(&mut connection, b"COMMAND INFO get nope\r\n"),
        "*2\r\n*10\r\n$3\r\nget\r\n:2\r\n*2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n*0\r\n*0\r\n*0\r\n*0\r\n$-1\r\n"
    );
}

#[test]
fn what_is_too_large_is_refused_and_the_connection_stays_usable() {
    let mut node = Node::with(Limits { key: 10, value: 100, request: 300, ..Limits::default() });
    let mut connection = node.connect();
    let mut ask = |words: &[&str]| node.ask(&mut connection, &request(words));
    let (long_key, long_value) = ("k".repeat(11), "v".repeat(101));
    assert_eq!(ask(&["SET", "k", &long_value]), "-ERR a value is larger than the limit of 100 bytes\r\n");
    let refused = "-ERR a key of 11 bytes is longer than the limit of 10 bytes\r\n";
    assert_eq!(ask(&["SET", &long_key, "v"]), refused);
    assert_eq!(ask(&["GET", &long_key]), refused);
    assert_eq!(ask(&["MSET", "a", "1", &long_key, "2"]), refused);
    let words: Vec<&str> = ["MGET"].into_iter().chain(["key"; 100]).collect();
    assert_eq!(ask(&words), "-ERR the request is larger than the limit of 300 bytes\r\n");
    // In a transaction it spoils all of it.
    assert_eq!(ask(&["MULTI"]), "+OK\r\n");
    assert_eq!(ask(&["SET", "k", &long_value]), "-ERR a value is larger than the limit of 100 bytes\r\n");
    assert!(ask(&["EXEC"]).starts_with("-EXECABORT"));
    // And a transaction has the limit of a request.
    assert_eq!(ask(&["MULTI"]), "+OK\r\n");
    let end = std::iter::repeat_with(|| ask(&["SET", "k", "v"])).find(|reply| reply != "+QUEUED\r\n");
    assert_eq!(end.as_deref(), Some("-ERR the transaction is larger than the limit of 300 bytes\r\n"));
    assert!(ask(&["EXEC"]).starts_with("-EXECABORT"));
    assert_eq!(ask(&["SET", &long_key[1..], &long_value[1..]]), "+OK\r\n");
    assert_eq!(ask(&["STRLEN", &long_key[1..]]), ":100\r\n");
    // And so have the keys that are watched.
    let end = (0..9).map(|number| ask(&["WATCH", &number.to_string()])).find(|reply| reply != "+OK\r\n");
    let refused = "-ERR the keys watched so far and these are larger than the limit of 300 bytes\r\n";
    assert_eq!(end.as_deref(), Some(refused));
}
