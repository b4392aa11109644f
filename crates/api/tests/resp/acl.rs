//! Who may ask for what.

use quorate_api::resp::{Limits, parse_users};
use quorate_core::Wire;
use quorate_core::{Access, Outcome};
use quorate_node::frontend::Frontend;
use quorate_store::{Command, Reply};

use crate::harness::{Connection, Node, timed_out};

const NOAUTH: &str = "-NOAUTH Authentication required.\r\n";
const NOKEY: &str = "-NOPERM this user has no permissions to access one of the keys used as arguments\r\n";
const WRONGPASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
const NOBODY: &str = "-ERR nobody could change users any more: first make another user who is on, has a password and \
                      may use ACL SETUSER";

/// What tables say for long texts; a name in quotes that follows is left.
const SHORT: [(&str, &str); 14] = [
    ("Allowing first-arg of a subcommand is not supported", "<no arguments>"),
    (NOBODY, "<nobody>"),
    ("touch the specified keys", "<keys>"),
    ("execute the command or subcommand", "<commands>"),
    ("The password you are trying to remove from the user does not exist", "<no such>"),
    ("-NOAUTH Authentication required.", "<who>"),
    (
        "-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> \
         <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        "<hello>",
    ),
    ("-WRONGPASS invalid username-password pair or user is disabled.", "<password>"),
    (
        "-NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command \
         is no longer allowed for the following reason: no permission to ",
        "<now> ",
    ),
    ("-NOPERM this user has no permissions to access one of the keys used as arguments", "<key>"),
    ("-NOPERM this user has no permissions to run the ", "<command> "),
    ("-ERR Error in ACL SETUSER modifier ", "<rule> "),
    (
        "-EXECABORT Transaction discarded because of: NOPERM this user has no permissions to run the ",
        "<abort> ",
    ),
    (
        "-ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
        "<bits>",
    ),
];

/// A request as a client writes it.
fn request(line: &str) -> Vec<u8> {
    format!("{line}\r\n").into_bytes()
}

fn ask(node: &mut Node, connection: &mut Connection, line: &str) -> String {
    node.ask(connection, &request(line))
}

/// Plays a table: who asks, what, and what comes back; `\n` for the end of each line of a reply. A name is a
/// connection of its own.
fn play(node: &mut Node, table: &str) {
    let mut connections: Vec<(&str, Connection)> = Vec::new();
    for row in table.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let (left, expected) = row.split_once('→').unwrap();
        let (name, line) = left.trim().split_once(' ').unwrap();
        if !connections.iter().any(|(known, _)| *known == name) {
            connections.push((name, node.connect()));
        }
        let (_, connection) = connections.iter_mut().find(|(known, _)| *known == name).unwrap();
        let mut found = ask(node, connection, line.trim()).replace("\r\n", "\\n");
        for (text, short) in SHORT {
            found = found.replace(text, short);
        }
        assert_eq!(found.strip_suffix("\\n").unwrap_or(&found).trim_end(), expected.trim(), "{row}");
    }
}

#[test]
fn users_are_asked_who_they_are_and_may_do_what_their_rules_say() {
    let mut node = Node::new();
    play(
        &mut node,
        r"
        op  ACL WHOAMI                              → $7\ndefault
        op  ACL SETUSER ann on >secret ~k* +@read +@connection -@dangerous -mget +set → +OK
        op  ACL SETUSER ann %R~logs +acl|whoami     → +OK
        op  ACL USERS                               → *2\n$3\nann\n$7\ndefault
        op  SET k1 v                                → +OK
        a   AUTH ann wrong                          → <password>
        a   AUTH bob secret                         → <password>
        a   ACL WHOAMI                              → $7\ndefault
        a   AUTH ann secret                         → +OK
        a   ACL WHOAMI                              → $3\nann
        a   GET k1                                  → $1\nv
        a   GET other                               → <key>
        a   GET logs                                → $-1
        a   SET logs x                              → <key>
        a   SET k2 w                                → +OK
        a   MGET k1 k2                              → <command> 'mget' command
        a   EXISTS k1 other                         → <key>
        a   DEL k1                                  → <command> 'del' command
        a   QUORATE STATUS                          → <command> 'quorate|status' command
        a   ACL SETUSER ann ~*                      → <command> 'acl|setuser' command
        a   SCAN 0 COUNT 100 MATCH k1               → *2\n$1\n0\n*1\n$2\nk1
        a   CLIENT LIST ID 2                        → <command> 'client|list' command
        a   NOSUCH x                                → -ERR unknown command 'NOSUCH', with args beginning with: 'x'
        b   HELLO 2 AUTH ann no                     → <password>
        b   ACL WHOAMI                              → $7\ndefault
        op  ACL SETUSER root on >r +@all            → +OK
        op  ACL SETUSER default off                 → +OK
        op  PING                                    → <who>
        new PING                                    → <who>
        new HELLO 3                                 → <hello>
        new HELLO 3 SETNAME auth                    → <hello>
        new AUTH default x                          → <password>
        new AUTH ann secret                         → +OK
        new PING                                    → +PONG
        new RESET                                   → +RESET
        new PING                                    → <who>
        a   GET k2                                  → $1\nw
    ",
    );
    assert_eq!(node.denials.get(), 17);
}

#[test]
fn what_acl_setuser_refuses_changes_nothing() {
    let mut node = Node::new();
    play(
        &mut node,
        r"
        op ACL SETUSER ann on ~* +get               → +OK
        op ACL SETUSER ann off +nocmd               → <rule> '+nocmd': Unknown command or category name in ACL
        op ACL SETUSER ann off +config|get|save     → <rule> '+config|get|save': <no arguments>
        op ACL SETUSER ann off -config|get|save     → <rule> '-config|get|save': Unknown command or category name in ACL
        op ACL SETUSER ann off +config|no|save      → <rule> '+config|no|save': Unknown command or category name in ACL
        op ACL SETUSER ann off +get|a               → <rule> '+get|a': Unknown command or category name in ACL
        op ACL SETUSER ann off +get|a|b             → <rule> '+get|a|b': Unknown command or category name in ACL
        op ACL SETUSER ann off <gone                → <rule> '<gone': <no such>
        op ACL SETUSER ann off (+get ~k             → -ERR Unmatched parenthesis in acl selector starting at '(+get'.
        op ACL SETUSER ann off (+get >p)            → <rule> '(+get >p)': Syntax error
        op ACL DELUSER default                      → -ERR The 'default' user cannot be removed
        op ACL DELUSER nobody                       → :0
        op ACL GETUSER nobody                       → $-1
        op ACL CAT nosuch                           → -ERR Unknown category 'nosuch'
        op ACL CAT transaction                      → *5\n$7\ndiscard\n$4\nexec\n$5\nmulti\n$7\nunwatch\n$5\nwatch
        op ACL GENPASS 0                            → <bits>
        op ACL SETUSER default >p                   → +OK
        op AUTH p                                   → +OK
        op AUTH q                                   → <password>
    ",
    );
    let mut connection = node.connect();
    ask(&mut node, &mut connection, "AUTH p");
    let lines = "*2\r\n$25\r\nuser ann on ~* -@all +get\r\n$90\r\nuser default on #";
    assert!(ask(&mut node, &mut connection, "ACL LIST").starts_with(lines));
    let hash = "148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940";
    let shown = ask(&mut node, &mut connection, "ACL GETUSER default").replace("\r\n", " ");
    let expected = format!(
        "*12 $5 flags *1 $2 on $9 passwords *1 $64 {hash} $8 commands $5 +@all $4 keys $2 ~* $8 channels $0  $9 \
         selectors *0 "
    );
    assert_eq!(shown, expected);
    let password = ask(&mut node, &mut connection, "ACL GENPASS");
    assert!(password.starts_with("$64\r\n") && password != ask(&mut node, &mut connection, "ACL GENPASS"));
    assert!(ask(&mut node, &mut connection, "ACL GENPASS 5").starts_with("$2\r\n"));
}

/// Users are in the data: there is no file to edit, and no restart that would let anybody in again.
#[test]
fn nobody_locks_everybody_out() {
    let mut node = Node::new();
    play(
        &mut node,
        r"
        op ACL SETUSER ann on ~* +get               → +OK
        op ACL SETUSER default off                  → <nobody>
        op ACL SETUSER default resetpass            → <nobody>
        op ACL SETUSER default -acl                 → <nobody>
        op ACL SETUSER default -@admin              → <nobody>
        op ACL SETUSER default -acl|setuser         → <nobody>
        op ACL SETUSER default reset                → <nobody>
        op ACL SETUSER default -@all +get (+acl|setuser) → +OK
        op ACL SETUSER default +@all clearselectors → +OK
        op ACL SETUSER root ~* +@all                → +OK
        op ACL SETUSER default off                  → <nobody>
        op ACL SETUSER root on                      → +OK
        op ACL SETUSER default off                  → <nobody>
        op ACL SETUSER root >r                      → +OK
        op ACL SETUSER default off                  → +OK
        r  AUTH root r                              → +OK
        r  ACL DELUSER ann root                     → <nobody>
        r  ACL SETUSER root <r                      → <nobody>
        r  ACL DELUSER ann                          → :1
        r  ACL SETUSER default on                   → +OK
        r  ACL DELUSER root                         → :1
        op PING                                     → +PONG
    ",
    );
}

/// Each change of users is judged by what came of those that were sent before it.
#[test]
fn changes_of_users_that_are_sent_at_once_follow_each_other() {
    let mut node = Node::new();
    let mut op = node.connect();
    let sent = b"ACL SETUSER root on >r +@all\r\nACL SETUSER default off\r\nPING\r\n";
    assert_eq!(node.ask(&mut op, sent), ["+OK\r\n", "+OK\r\n", NOAUTH].concat());
    let mut op = node.connect();
    ask(&mut node, &mut op, "AUTH root r");
    let sent = "MULTI,ACL SETUSER root off,EXEC,ACL SETUSER default on,MULTI,ACL DELUSER root,EXEC,";
    let told = node.ask(&mut op, sent.replace(',', "\r\n").as_bytes());
    let queued = "+OK\r\n+QUEUED\r\n*1\r\n";
    assert_eq!(told, [queued, NOBODY, "\r\n+OK\r\n", queued, ":1\r\n"].concat());
}

#[test]
fn a_user_who_is_removed_or_switched_off_is_denied_at_once() {
    for (change, again) in [("DELUSER ann", "SETUSER ann on nopass ~* +@all"), ("SETUSER ann off", "")] {
        let mut node = Node::new();
        let (mut op, mut ann) = (node.connect(), node.connect());
        ask(&mut node, &mut op, "ACL SETUSER ann on nopass ~* +@all");
        ask(&mut node, &mut op, "ACL SETUSER default on >p");
        ask(&mut node, &mut op, "AUTH p");
        assert_eq!(ask(&mut node, &mut ann, "AUTH ann x"), "+OK\r\n");
        assert_eq!(ask(&mut node, &mut ann, "SET k v"), "+OK\r\n");
        ask(&mut node, &mut op, &format!("ACL {change}"));
        assert_eq!(ask(&mut node, &mut ann, "GET k"), NOAUTH, "{change}");
        assert_eq!(ask(&mut node, &mut ann, "AUTH ann x"), WRONGPASS, "{change}");
        if !again.is_empty() {
            // Whoever has the name later is somebody else.
            ask(&mut node, &mut op, &format!("ACL {again}"));
            assert_eq!(ask(&mut node, &mut ann, "GET k"), NOAUTH, "{change}");
        }
    }
}

#[test]
fn a_transaction_is_judged_when_it_is_queued_and_when_it_is_executed() {
    let mut node = Node::new();
    play(
        &mut node,
        r"
        op ACL SETUSER ann on nopass ~k* +@all -del → +OK
        a  AUTH ann x                               → +OK
        a  MULTI                                    → +OK
        a  SET other v                              → <key>
        a  SET k1 v                                 → +QUEUED
        a  EXEC                                     → -EXECABORT Transaction discarded because of previous errors.
        a  MULTI                                    → +OK
        a  SET k1 v                                 → +QUEUED
        a  SET k2 v                                 → +QUEUED
        a  GET k1                                   → +QUEUED
        op ACL SETUSER ann resetkeys ~k1 -get       → +OK
        a  EXEC                                     → *3\n+OK\n<now> <keys>\n<now> <commands>
        op GET k2                                   → $-1
        a  MULTI                                    → +OK
        a  SET k1 w                                 → +QUEUED
        op ACL SETUSER ann -exec                    → +OK
        a  EXEC                                     → <abort> 'exec' command
        op GET k1                                   → $1\nv
        op MULTI                                    → +OK
        op ACL SETUSER bob on                       → +QUEUED
        op ACL DELUSER bob                          → +QUEUED
        op EXEC                                     → *2\n+OK\n:1
    ",
    );
}

#[test]
fn requests_behind_an_auth_are_judged_by_what_came_of_it() {
    let mut node = Node::new();
    let mut op = node.connect();
    ask(&mut node, &mut op, "ACL SETUSER ann on >s ~k +get +set");
    ask(&mut node, &mut op, "ACL SETUSER root on >r +@all");
    ask(&mut node, &mut op, "ACL SETUSER default off");
    let mut connection = node.connect();
    let told = node
        .ask(&mut connection, b"GET k\r\nAUTH ann s\r\nSET k v\r\nGET k\r\nGET z\r\nAUTH ann x\r\nGET k\r\n");
    let value = "$1\r\nv\r\n";
    assert_eq!(told, [NOAUTH, "+OK\r\n", "+OK\r\n", value, NOKEY, WRONGPASS, value].concat());
}

/// What Redis 7.0.15 says to ACL DRYRUN, for a user who may read `r`, and write `w`.
#[test]
fn commands_need_of_their_keys_what_redis_says() {
    let mut node = Node::new();
    let (mut op, mut ann) = (node.connect(), node.connect());
    ask(&mut node, &mut op, "ACL SETUSER ann on nopass %R~r %W~w +@all");
    ask(&mut node, &mut ann, "AUTH ann x");
    let (read, write, either, both) = ("r", "w", "rw", "");
    let table = [
        ("append K v", write),
        ("decr K", both),
        ("get K", read),
        ("getdel K", both),
        ("getex K", both),
        ("getrange K 0 1", read),
        ("getset K v", both),
        ("incr K", both),
        ("incrbyfloat K 1", both),
        ("mget K", read),
        ("mset K v", write),
        ("msetnx K v", write),
        ("psetex K 1 v", write),
        ("set K v", write),
        ("set K v get", both),
        ("setex K 1 v", write),
        ("setnx K v", write),
        ("setrange K 0 v", write),
        ("strlen K", either),
        ("substr K 0 1", read),
        ("hdel K f", write),
        ("hexists K f", either),
        ("hget K f", read),
        ("hgetall K", read),
        ("hincrby K f 1", both),
        ("hincrbyfloat K f 1", both),
        ("hkeys K", read),
        ("hlen K", either),
        ("hmget K f", read),
        ("hmset K f v", write),
        ("hscan K 0", read),
        ("hset K f v", write),
        ("hsetnx K f v", write),
        ("hstrlen K f", either),
        ("hvals K", read),
        ("del K", write),
        ("exists K", either),
        ("expire K 1", write),
        ("expireat K 1", write),
        ("expiretime K", read),
        ("persist K", write),
        ("pexpire K 1", write),
        ("pexpireat K 1", write),
        ("pexpiretime K", read),
        ("pttl K", read),
        ("touch K", either),
        ("ttl K", read),
        ("type K", either),
        ("unlink K", write),
        ("watch K", either),
    ];
    for (line, allowed) in table {
        for key in ["r", "w", "other"] {
            let line = line.replacen('K', key, 1);
            let denied = ask(&mut node, &mut ann, &line) == NOKEY;
            assert_eq!(denied, !allowed.contains(key), "{line}");
            let told = ask(&mut node, &mut op, &format!("ACL DRYRUN ann {line}"));
            let refusal = format!("This user has no permissions to access the '{key}' key");
            let refusal = format!("${}\r\n{refusal}\r\n", refusal.len());
            assert_eq!(told, if denied { &refusal } else { "+OK\r\n" }, "{line}");
        }
    }
    // Every key of several counts, at its place.
    assert_eq!(ask(&mut node, &mut ann, "MSET w r"), "+OK\r\n");
    assert_eq!(ask(&mut node, &mut ann, "MSET w v r v"), NOKEY);
}

#[test]
fn what_a_user_may_do_is_told_without_doing_it() {
    let mut node = Node::new();
    play(
        &mut node,
        r"
        op  ACL SETUSER ann ~a* %R~r +get +set +config|get  → +OK
        op  ACL DRYRUN ann get a            → +OK
        op  ACL DRYRUN ann SET a v          → +OK
        op  ACL DRYRUN ann set r v          → $50\nThis user has no permissions to access the 'r' key
        op  ACL DRYRUN ann DEL a            → $53\nThis user has no permissions to run the 'del' command
        op  ACL DRYRUN ann config get x     → +OK
        op  ACL DRYRUN ann config set x y   → $60\nThis user has no permissions to run the 'config|set' command
        op  ACL DRYRUN ann auth x           → +OK
        op  ACL DRYRUN ann hello            → +OK
        op  ACL DRYRUN default flushall     → +OK
        op  ACL DRYRUN ann get              → -ERR wrong number of arguments for 'get' command
        op  ACL DRYRUN ann nosuch a         → -ERR Command 'nosuch' not found
        op  ACL DRYRUN nobody get a         → -ERR User 'nobody' not found
        op  ACL DRYRUN ann                  → -ERR wrong number of arguments for 'acl|dryrun' command
        op  EXISTS a                        → :0
        op  ACL LOG                         → *0
        ann ACL SETUSER ann on nopass       → +OK
        ann AUTH ann x                      → +OK
        ann ACL DRYRUN default get a        → <command> 'acl|dryrun' command
        ",
    );
}

/// As Redis 7.0.15 answers, which shows `resetchannels` beside.
#[test]
fn a_request_is_allowed_by_the_users_own_rules_or_by_one_selector() {
    let mut node = Node::new();
    play(
        &mut node,
        r"
        op  ACL SETUSER ann on nopass ~a* +get +@transaction (~b* +set) (~b* %R~c* +mget +get) → +OK
        ann AUTH ann x                      → +OK
        ann GET a1                          → $-1
        ann SET b1 v                        → +OK
        ann GET b1                          → $1\nv
        ann MGET b1 c1                      → *2\n$1\nv\n$-1
        ann SET a1 v                        → <key>
        ann MGET b1 a1                      → <key>
        ann SET c1 v                        → <key>
        ann DEL b1                          → <command> 'del' command
        ann MULTI                           → +OK
        ann SET b2 w                        → +QUEUED
        ann GET a1                          → +QUEUED
        op  ACL SETUSER ann clearselectors  → +OK
        ann EXEC                            → *2\n<now> <commands>\n$-1
        op  ACL DRYRUN ann set b1 v         → $53\nThis user has no permissions to run the 'set' command
        op  ACL SETUSER bob ~x +mget (~y +mget) (~z +get) → +OK
        op  ACL DRYRUN bob mget x x         → +OK
        op  ACL DRYRUN bob mget y y         → +OK
        op  ACL DRYRUN bob mget x y z       → $50\nThis user has no permissions to access the 'y' key
        op  ACL DRYRUN bob get y            → $50\nThis user has no permissions to access the 'y' key
        op  ACL SETUSER bob ()              → +OK
        op  ACL DELUSER ann                 → :1
        ",
    );
    let mut connection = node.connect();
    let bob = "user bob off ~x -@all +mget (~y -@all +mget) (~z -@all +get) (-@all)\r\n";
    assert!(ask(&mut node, &mut connection, "ACL LIST").contains(bob));
    ask(&mut node, &mut connection, "ACL SETUSER bob reset (%R~x +@read -get)");
    let shown = ask(&mut node, &mut connection, "ACL GETUSER bob").replace("\r\n", " ");
    let expected = "*12 $5 flags *1 $3 off $9 passwords *0 $8 commands $5 -@all $4 keys $0  $8 channels $0  $9 \
                    selectors *1 *6 $8 commands $17 -@all +@read -get $4 keys $4 %R~x $8 channels $0  ";
    assert_eq!(shown, expected);
    // Of one pattern, all that was said counts.
    for rules in ["%W~k %R~k", "%R~k %W~k", "~k %R~k"] {
        ask(&mut node, &mut connection, &format!("ACL SETUSER bob reset {rules}"));
        let list = ask(&mut node, &mut connection, "ACL LIST");
        assert!(list.contains("user bob off ~k -@all\r\n"), "{rules}: {list}");
    }
}

#[test]
fn what_was_denied_is_in_the_log_without_values() {
    let mut node = Node::new();
    let (mut op, mut ann) = (node.connect(), node.connect());
    ask(&mut node, &mut op, "ACL SETUSER ann on nopass ~k +set");
    for line in ["AUTH ann x", "SET z hidden", "SET z hidden", "GET k", "AUTH bob hidden"] {
        ask(&mut node, &mut ann, line);
    }
    let log = ask(&mut node, &mut op, "ACL LOG");
    assert!(log.starts_with("*3\r\n") && !log.contains("hidden"), "{log}");
    let place = |part: &str| log.find(part).unwrap_or_else(|| panic!("no {part} in {log}"));
    assert!(
        place("$4\r\nAUTH\r\n") < place("$7\r\ncommand\r\n")
            && place("$3\r\nget\r\n") < place("$3\r\nkey\r\n")
    );
    assert!(log.contains(":2\r\n$6\r\nreason\r\n$3\r\nkey\r\n"), "{log}");
    assert!(ask(&mut node, &mut op, "ACL LOG 1").starts_with("*1\r\n"));
    assert_eq!(ask(&mut node, &mut op, "ACL LOG RESET"), "+OK\r\n");
    assert_eq!(ask(&mut node, &mut op, "ACL LOG"), "*0\r\n");
}

#[test]
fn a_process_without_a_state_asks_the_group_who_the_users_are() {
    let mut node = Node::new();
    let mut op = node.connect();
    ask(&mut node, &mut op, "ACL SETUSER default +@all -flushall");
    // What it knows may be old from here on.
    let mut proxy = Node::new();
    proxy.knows_users = false;
    std::mem::swap(&mut proxy.store, &mut node.store);
    let mut connection = proxy.connect();
    proxy.send(&mut connection, b"FLUSHALL\r\nGET k\r\n");
    let (ticket, request) = connection.asked.pop_front().unwrap();
    assert_eq!(
        (Command::from_bytes(request.command.clone()), request.access),
        (Ok(Command::Users), Access::Read)
    );
    assert!(connection.asked.is_empty(), "what comes behind it waits");
    let outcome = proxy.execute(&request);
    proxy.end(&mut connection, ticket, outcome);
    let told = String::from_utf8(proxy.settle(&mut connection)).unwrap();
    assert_eq!(told, "-NOPERM this user has no permissions to run the 'flushall' command\r\n$-1\r\n");
    // For a second that lasts; then it asks again, and cannot tell without an answer. It says how it is, though.
    proxy.send(&mut connection, b"GET k\r\n");
    let (ticket, request) = connection.asked.pop_front().unwrap();
    assert_eq!(Command::from_bytes(request.command.clone()), Ok(Command::Get { key: "k".into() }));
    proxy.end(&mut connection, ticket, Outcome::Done(Reply::Value(None).to_bytes()));
    proxy.settle(&mut connection);
    proxy.now += 1_000_000_001;
    proxy.send(&mut connection, b"PING\r\nGET k\r\n");
    let (ticket, request) = connection.asked.pop_front().unwrap();
    assert_eq!(Command::from_bytes(request.command), Ok(Command::Users));
    assert_eq!(connection.written(), "+PONG\r\n");
    proxy.end(&mut connection, ticket, timed_out());
    let told = String::from_utf8(proxy.settle(&mut connection)).unwrap();
    assert!(told.starts_with("-CLUSTERDOWN no majority has answered who the users are"), "{told}");
}

#[test]
fn a_state_in_which_users_were_changed_less_often_than_before_the_start_does_not_tell_who_they_are() {
    let (mut group, mut node) = (Node::new(), Node::new());
    let mut op = group.connect();
    ask(&mut group, &mut op, "ACL SETUSER default -get");
    node.resp.remember_users(1);
    let mut connection = node.connect();
    node.send(&mut connection, b"GET k\r\n");
    let (ticket, request) = connection.asked.pop_front().unwrap();
    assert_eq!(Command::from_bytes(request.command), Ok(Command::Users));
    node.end(&mut connection, ticket, timed_out());
    let told = String::from_utf8(node.settle(&mut connection)).unwrap();
    assert!(told.starts_with("-CLUSTERDOWN no majority has answered who the users are"), "{told}");
    // It has come as far.
    std::mem::swap(&mut node.store, &mut group.store);
    assert!(ask(&mut node, &mut connection, "GET k").starts_with("-NOPERM"));
}

#[test]
fn a_node_that_catches_up_asks_the_group_until_its_state_has_come_as_far() {
    let mut group = Node::new();
    let mut op = group.connect();
    ask(&mut group, &mut op, "ACL SETUSER root on >pw ~* +@all");
    ask(&mut group, &mut op, "ACL SETUSER default off");
    // Its state has nothing of that yet: there everybody may do everything.
    let mut joining = Node::new();
    joining.catches_up = true;
    let mut connection = joining.connect();
    joining.send(&mut connection, b"SET k v\r\n");
    let (ticket, request) = connection.asked.pop_front().unwrap();
    assert_eq!(Command::from_bytes(request.command.clone()), Ok(Command::Users));
    let outcome = group.execute(&request);
    joining.end(&mut connection, ticket, outcome);
    assert_eq!(String::from_utf8(joining.settle(&mut connection)).unwrap(), NOAUTH);
    // What the group has told gets old; the state that has come as far does not.
    joining.now += 1_000_000_001;
    joining.send(&mut connection, b"SET k v\r\n");
    let (ticket, request) = connection.asked.pop_front().unwrap();
    joining.end(&mut connection, ticket, group.execute(&request));
    joining.settle(&mut connection);
    std::mem::swap(&mut joining.store, &mut group.store);
    joining.now += 1_000_000_001;
    assert_eq!(ask(&mut joining, &mut connection, "SET k v"), NOAUTH);
}

#[test]
fn a_new_cluster_begins_with_the_users_of_the_file_before_it_serves() {
    let users = parse_users("user default off\nuser root on >first ~* +@all").unwrap();
    let mut node = Node::with(Limits { first_users: Some(users), ..Limits::default() });
    let mut connection = node.connect();
    assert_eq!(ask(&mut node, &mut connection, "SET k v"), NOAUTH);
    assert_eq!(node.store.users().changes(), 1);
    assert_eq!(ask(&mut node, &mut connection, "AUTH root first"), "+OK\r\n");
    assert_eq!(ask(&mut node, &mut connection, "SET k v"), "+OK\r\n");
    // Once there are users, the file has no say.
    ask(&mut node, &mut connection, "ACL SETUSER root >second <first");
    let other = parse_users("user default on nopass ~* +@all").unwrap();
    let mut again = Node::with(Limits { first_users: Some(other), ..Limits::default() });
    std::mem::swap(&mut again.store, &mut node.store);
    let mut connection = again.connect();
    assert_eq!(ask(&mut again, &mut connection, "GET k"), NOAUTH);
    assert_eq!(ask(&mut again, &mut connection, "AUTH root second"), "+OK\r\n");
}

#[test]
fn a_node_that_has_left_its_group_asks_who_the_users_are() {
    let mut node = Node::new();
    let mut connection = node.connect();
    node.ask(&mut connection, b"ACL SETUSER eve on >secret ~* +@all\r\n");
    node.is_member = false;
    node.send(&mut connection, b"AUTH eve secret\r\n");
    assert_eq!((connection.asked.len(), connection.written().as_str()), (1, ""), "its own state is old");
    assert_eq!(node.settle(&mut connection), b"+OK\r\n");
    // Whoever changes them is judged by that at once.
    node.now += 1;
    let mut other = node.connect();
    let changed = node.ask(&mut connection, b"ACL DELUSER eve\r\nPING\r\n");
    assert!(changed.starts_with(":1\r\n"), "{changed}");
    let refused = node.ask(&mut other, b"AUTH eve secret\r\n");
    assert!(refused.starts_with("-WRONGPASS"), "{refused}");
}
