//! Long replies, gathered from pieces: KEYS, and HGETALL and the like of a large hash.
//!
//! The store gives a piece of such a reply at a time, and the loop serves others in between. Each piece is written out
//! as RESP when it comes. What all clients gather together is bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use quorate_node::Output;
use quorate_store::REPLY_LIMIT;

use super::reply::Writer;

/// Bytes that all clients of a node may be gathering.
const ALL: usize = 256 << 20;

/// How often a hash may change while it is read: then the reading starts again.
pub(super) const RESTARTS: u32 = 8;

/// Bytes that are being gathered, in all replies of a node.
pub(super) type Total = Arc<AtomicUsize>;

/// Items of a reply that is not complete.
#[derive(Debug)]
pub(super) struct Gathered {
    items: Box<Output>,
    count: usize,
    total: Total,
}

impl Gathered {
    pub(super) fn new(total: &Total) -> Gathered {
        Gathered { items: Box::default(), count: 0, total: total.clone() }
    }

    /// Adds items; the error is for the client.
    pub(super) fn add<'a>(&mut self, items: impl Iterator<Item = &'a Bytes>) -> Result<(), &'static str> {
        let before = self.items.len();
        // An item is the same in both versions of the protocol.
        let mut writer = Writer { out: &mut self.items, resp3: false };
        for item in items {
            writer.bulk(item);
            self.count += 1;
        }
        let added = self.items.len() - before;
        let total = self.total.fetch_add(added, Ordering::Relaxed) + added;
        if self.items.len() > REPLY_LIMIT {
            return Err("ERR the reply would be larger than 72 MiB: read it in parts with SCAN or HSCAN");
        }
        // One alone may always be gathered.
        if total > ALL && total > self.items.len() {
            return Err("BUSY too many long replies are being gathered for clients; try again");
        }
        Ok(())
    }

    /// Forgets what was gathered.
    pub(super) fn clear(&mut self) {
        self.take();
    }

    /// Takes all items out: they are no longer gathered.
    fn take(&mut self) -> Output {
        self.total.fetch_sub(self.items.len(), Ordering::Relaxed);
        self.count = 0;
        std::mem::take(&mut *self.items)
    }

    /// How many items there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Writes the items, as they stand in an array or a map.
    pub(super) fn write(&mut self, writer: &mut Writer<'_>) {
        writer.out.append(self.take());
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_clients_gather_is_bounded_and_one_alone_is_served() {
        let total = Total::default();
        let item = Bytes::from(vec![0; 1 << 20]);
        let items = |gathered: &mut Gathered, count| gathered.add(std::iter::repeat_n(&item, count));
        let mut many: Vec<_> = (0..4).map(|_| Gathered::new(&total)).collect();
        assert!(many[..3].iter_mut().all(|gathered| items(gathered, 71).is_ok()));
        assert!(items(&mut many[3], 71).is_err_and(|text| text.starts_with("BUSY")));
        let refused = items(&mut many[0], 2);
        assert!(refused.is_err_and(|text| text.starts_with("ERR the reply would be larger than 72 MiB")));
        // What is given up makes room.
        many.truncate(2);
        many[0].clear();
        let mut next = Gathered::new(&total);
        assert!(items(&mut next, 71).is_ok());
        drop((many, next));
        assert_eq!(total.load(Ordering::Relaxed), 0);
        total.store(2 * ALL, Ordering::Relaxed);
        let mut alone = Gathered::new(&Total::default());
        assert!(items(&mut alone, 71).is_ok());
    }
}
