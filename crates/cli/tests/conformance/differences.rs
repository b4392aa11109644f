//! Where Quorate answers otherwise than Redis on purpose, or where Redis itself promises no certain answer. This
//! is all that the comparison leaves out; `docs/REDIS.md` shows the same table to users.

use crate::wire::{Request, Tree};

/// Times to live are longer than this many seconds, or over at once: what is shorter might end during the test.
pub const SOON: i64 = 10_000_000;

/// How far two times to live may be apart, in milliseconds: the servers do not do a command at the same moment.
const APART: u64 = 60_000;

/// COUNT with which Redis returns all keys or fields at once.
const ALL: &[u8] = b"100000";

/// What is left out of a comparison, and why.
struct Difference {
    why: &'static str,
    what: What,
}

enum What {
    /// Such requests are not sent.
    NotSent(fn(&str, &Request) -> bool),
    /// Such replies are compared in this form.
    ComparedAs(fn(&str, Tree) -> Tree),
    /// The numbers that such commands reply may be so far apart.
    Apart(fn(&str) -> u64),
}

use What::{Apart, ComparedAs, NotSent};

const DIFFERENCES: &[Difference] = &[
    Difference { why: "neither promises an order; ours is by bytes", what: ComparedAs(sorted) },
    Difference {
        why: "SCAN and HSCAN give their parts in their own order, COUNT as they like",
        what: NotSent(partial),
    },
    Difference { why: "time passes between the two servers", what: Apart(apart) },
    Difference { why: "what lives for moments may be gone at one server only", what: NotSent(lives_moments) },
    Difference {
        why: "any key may be RANDOMKEY, any number a connection's, any time now",
        what: ComparedAs(own),
    },
    Difference {
        why: "the node, its connections and its commands are other ones",
        what: NotSent(describes_itself),
    },
    Difference { why: "there is one database", what: NotSent(other_database) },
    Difference { why: "strings end at 64 MiB instead of 512 MiB", what: NotSent(too_long) },
];

/// Whether a request is left out.
pub fn not_sent(request: &Request) -> bool {
    let name = name(request);
    DIFFERENCES.iter().any(|difference| match difference.what {
        NotSent(matches) => matches(&name, request),
        ComparedAs(_) | Apart(_) => false,
    })
}

/// The reply to a request in the form in which it is compared.
pub fn compared(request: &Request, reply: Tree) -> Tree {
    let name = name(request);
    DIFFERENCES.iter().fold(reply, |reply, difference| match difference.what {
        NotSent(_) | Apart(_) => reply,
        ComparedAs(form) => form(&name, reply),
    })
}

/// For the message about a mismatch.
pub fn reasons() -> String {
    DIFFERENCES.iter().map(|difference| format!("\n  - {}", difference.why)).collect()
}

/// Whether two replies in that form are the same.
pub fn same(request: &Request, a: &Tree, b: &Tree) -> bool {
    let name = name(request);
    let apart = DIFFERENCES.iter().map(|difference| match difference.what {
        Apart(apart) => apart(&name),
        NotSent(_) | ComparedAs(_) => 0,
    });
    match (a.integer(), b.integer()) {
        // Others have a meaning of their own: -1, -2, what is over.
        (Some(a), Some(b)) if a >= SOON / 2 && b >= SOON / 2 => a.abs_diff(b) <= apart.max().unwrap_or(0),
        _ => a == b,
    }
}

pub fn name(request: &Request) -> String {
    String::from_utf8_lossy(&request[0]).to_ascii_uppercase()
}

fn is(request: &Request, index: usize, option: &str) -> bool {
    request.get(index).is_some_and(|word| word.eq_ignore_ascii_case(option.as_bytes()))
}

fn integer(request: &Request, index: usize) -> Option<i128> {
    std::str::from_utf8(request.get(index)?).ok()?.parse().ok()
}

fn sorted(name: &str, reply: Tree) -> Tree {
    let width = match name {
        "KEYS" | "HKEYS" | "HVALS" | "SCAN" => 1,
        "HGETALL" | "HSCAN" | "CONFIG" => 2,
        _ => return reply,
    };
    match reply {
        Tree::Node(mark, mut items) if name.ends_with("SCAN") => {
            let part = items.pop().map(|part| sort(part, width));
            items.extend(part);
            Tree::Node(mark, items)
        }
        reply => sort(reply, width),
    }
}

fn sort(reply: Tree, width: usize) -> Tree {
    match reply {
        Tree::Node(mark, items) => {
            let mut groups: Vec<_> = items.chunks(width).collect();
            groups.sort();
            Tree::Node(mark, groups.concat())
        }
        leaf => leaf,
    }
}

fn partial(name: &str, request: &Request) -> bool {
    let cursor = match name {
        "SCAN" => 1,
        "HSCAN" => 2,
        _ => return false,
    };
    let counts = |index: &usize| is(request, *index, "COUNT");
    integer(request, cursor).is_some_and(|cursor| cursor != 0)
        || !(cursor + 1..request.len()).any(|index| counts(&index))
        || (cursor + 1..request.len()).filter(counts).any(|index| {
            integer(request, index + 1).is_some_and(|count| count > 0) && request[index + 1] != ALL
        })
}

fn apart(name: &str) -> u64 {
    match name {
        "TTL" | "EXPIRETIME" => APART / 1000,
        "PTTL" | "PEXPIRETIME" => APART,
        _ => 0,
    }
}

fn lives_moments(name: &str, request: &Request) -> bool {
    let words = match name {
        "SETEX" | "PSETEX" | "EXPIRE" | "PEXPIRE" => 2..3,
        "SET" => 3..request.len(),
        "GETEX" => 2..request.len(),
        _ => return false,
    };
    words.into_iter().filter_map(|index| integer(request, index)).any(|time| (1..SOON.into()).contains(&time))
}

fn own(name: &str, reply: Tree) -> Tree {
    let mark = |text: &str| Tree::Leaf(text.as_bytes().to_vec());
    match (name, reply) {
        ("RANDOMKEY", Tree::Leaf(text)) if text.starts_with(b"$") && !text.starts_with(b"$-1") => {
            mark("a key")
        }
        ("CLIENT", reply) if reply.integer().is_some() => mark("a number"),
        ("TIME", Tree::Node(b'*', items)) if items.len() == 2 => mark("now"),
        ("HELLO", Tree::Node(kind, mut items)) => {
            let name = items.iter().position(|item| item.is("$2\r\nid"));
            if let Some(id) = name.and_then(|name| items.get_mut(name + 1)) {
                *id = mark("a number");
            }
            Tree::Node(kind, items)
        }
        (_, reply) => reply,
    }
}

fn describes_itself(name: &str, request: &Request) -> bool {
    match name {
        "INFO" => request.len() < 2,
        "COMMAND" => {
            let names = if request.len() < 3 { 1 } else { 2 };
            request.len() == 1 || !(names..request.len()).all(|index| is(request, index, "nope"))
        }
        "CLIENT" => {
            is(request, 1, "INFO") && request.len() == 2
                || is(request, 1, "LIST") && request.len() == 2
                // Those of Redis 7.2.
                || is(request, 1, "SETINFO")
                || is(request, 1, "NO-TOUCH")
        }
        _ => false,
    }
}

fn other_database(name: &str, request: &Request) -> bool {
    name == "SELECT" && integer(request, 1).is_some_and(|index| (1..16).contains(&index))
}

fn too_long(name: &str, request: &Request) -> bool {
    name == "SETRANGE" && integer(request, 2).is_some_and(|offset| (1 << 25..1 << 29).contains(&offset))
}
