//! Which commands are in which category. Redis's, where it has the command; what operators do to the group is `@admin`
//! and `@dangerous`.

use super::super::commands::{Family, Spec, family};

/// All categories, in Redis's order; those of data types that there are not are empty.
pub(crate) const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// The categories of a command.
pub(crate) fn of(spec: &Spec) -> Vec<&'static str> {
    let has = |flag| spec.flags.contains(&flag);
    let mut categories = Vec::new();
    categories.extend(match family(spec) {
        Family::Connection => Some("connection"),
        Family::Hash => Some("hash"),
        Family::Generic => Some("keyspace"),
        Family::String => Some("string"),
        Family::Transaction => Some("transaction"),
        // As Redis: it tells clients what they may say.
        Family::Server if spec.name.split('|').next() == Some("command") => Some("connection"),
        Family::Server => None,
    });
    categories.extend(has("readonly").then_some("read"));
    categories.extend(has("write").then_some("write"));
    let is_admin = has("admin") || matches!(spec.name, "client|kill" | "client|list" | "client|no-evict");
    // A command with subcommands is none itself.
    if is_admin && spec.subcommands.is_empty() {
        categories.push("admin");
    }
    let is_dangerous = matches!(spec.name, "keys" | "flushall" | "flushdb" | "info");
    if is_dangerous || is_admin && spec.subcommands.is_empty() {
        categories.push("dangerous");
    }
    categories.push(if has("fast") { "fast" } else { "slow" });
    categories
}
