//! What a process chooses once for all its stores. Nothing that a store answers depends on it.
//!
//! - **The key of the tables' hash.** Whoever knows it can choose a million keys that fall into one page of a table,
//!   and make every command slow. A node draws it at random when it starts; elsewhere it is a constant.
//! - **Who frees what is discarded.** A store that is cleared, or a large hash that is deleted, takes long to free. A
//!   node hands it to a thread; elsewhere it is freed at once.

use std::any::Any;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

static HASH_KEY: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
static DISCARD: OnceLock<Discard> = OnceLock::new();

/// Frees memory, now or later.
pub type Discard = fn(Box<dyn Any + Send>);

/// Chooses the key of the hash for all tables that are made from now on.
pub fn set_hash_key(key: [u64; 2]) {
    for (word, to) in key.into_iter().zip(&HASH_KEY) {
        to.store(word, Ordering::Relaxed);
    }
}

/// Chooses who frees what takes long to free. The first choice stays.
pub fn set_discard(discard: Discard) {
    let _ = DISCARD.set(discard);
}

pub(crate) fn hash_key() -> [u64; 2] {
    [0, 1].map(|word: usize| HASH_KEY[word].load(Ordering::Relaxed))
}

/// Frees something that may be large.
pub(crate) fn discard(what: impl Any + Send) {
    match DISCARD.get() {
        Some(discard) => discard(Box::new(what)),
        None => drop(what),
    }
}
