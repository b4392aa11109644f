//! In which order writes get their numbers in the session.
//!
//! A write that is larger than `value.part` is cut into [parts](crate::parts). Only a few of them are under way at a
//! time, and get their numbers when they leave: what other clients write meanwhile need not wait for all of them. What
//! the *same* stream writes after a large write waits behind it, since the stream's order is that of the numbers.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use bytes::Bytes;
use quorate_core::{NodeSet, mutation};

use super::{Place, SessionClient, WriteCall};
use crate::clients::message::Embeds;
use crate::parts::Cut;
use crate::sessions::WINDOW;

/// Bytes of parts that may be under way at a time. What other clients write meanwhile waits for them, at each link on
/// its way, and all have to be sent again if an answer is late. So there are few, unless the links'
/// [bandwidth-delay product](crate::pace::Pace::bandwidth_delay_product) is more; but two, however long they are, since
/// one leaves the leader while the next is on its way there.
const BYTES_UNDER_WAY: RangeInclusive<usize> = 512 << 10..=4 << 20;
/// So many parts of these, at most: where bytes take no time, and where they do.
const PARTS_UNDER_WAY: [usize; 2] = [4, 32];

/// No part is longer, however large a write must be to be cut. Whatever comes behind one waits for it at every hop.
const LONGEST_PART: usize = 256 << 10;

/// Large writes that have no number yet, or not all of them, and what waits behind them in their streams.
#[derive(Debug, Default)]
pub(super) struct Large {
    /// The calls, and their streams.
    waiting: VecDeque<(u64, u64)>,
    /// How many calls of a stream wait.
    streams: BTreeMap<u64, usize>,
    /// How far the first one is.
    cut: Option<Cut>,
}

impl Large {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    fn push(&mut self, call: u64, stream: u64) {
        self.waiting.push_back((call, stream));
        *self.streams.entry(stream).or_default() += 1;
    }

    /// This call does not wait here any more.
    pub fn remove(&mut self, call: u64) {
        let Some(index) = self.waiting.iter().position(|(waiting, _)| *waiting == call) else { return };
        let (_, stream) = self.waiting.remove(index).expect("it was found");
        let count = self.streams.get_mut(&stream).expect("every stream of a call is counted");
        *count -= 1;
        if *count == 0 {
            self.streams.remove(&stream);
        }
        if index == 0 {
            self.cut = None;
        }
    }

    /// The session is gone, and with it the parts that it kept.
    pub fn restart(&mut self) {
        self.cut = None;
    }
}

/// How many parts of so many bytes may be under way over links of this bandwidth-delay product, in bytes.
fn parts_under_way(product: Option<usize>, part: usize) -> usize {
    let bytes = product.unwrap_or(0).clamp(*BYTES_UNDER_WAY.start(), *BYTES_UNDER_WAY.end());
    (bytes / part.max(1)).clamp(2, PARTS_UNDER_WAY[usize::from(product.is_some())])
}

impl<M: Embeds> SessionClient<M> {
    /// Gives numbers to the writes that wait, as far as there are any.
    pub(super) fn number_writes(&mut self) {
        while self.has_room() {
            let Some(id) = self.queue.pop_front() else { break };
            let call = self.calls.get_mut(id).expect("queued");
            if call.command.len() > self.config.part || self.large.streams.contains_key(&call.stream) {
                self.large.push(id, call.stream);
            } else {
                let command = std::mem::take(&mut call.command);
                self.number(Some(id), command, false);
            }
        }
        while self.has_room() {
            let Some(&(id, _)) = self.large.waiting.front() else { break };
            let call = self.calls.get_mut(id).expect("it waits for a number");
            if self.large.cut.is_none() && call.command.len() > self.config.part {
                self.large.cut = Cut::new(&call.command);
            }
            let Some(cut) = &mut self.large.cut else {
                let command = std::mem::take(&mut call.command);
                self.large.remove(id);
                self.number(Some(id), command, false);
                continue;
            };
            let bytes = self.config.part.min(LONGEST_PART);
            let most = parts_under_way(self.in_flight.pace().bandwidth_delay_product(), bytes);
            if self.writes.iter().filter(|write| write.is_part && !write.answered).count() >= most {
                break;
            }
            let (part, is_last) = cut.next(self.low + self.writes.len() as u64, bytes);
            if is_last {
                call.command = Bytes::new();
                self.large.remove(id);
            }
            self.number(is_last.then_some(id), part, true);
        }
    }

    /// Whether one more write may be under way in the session.
    fn has_room(&self) -> bool {
        let most = if mutation::active("narrow/session") { 2 } else { WINDOW };
        (self.writes.len() as u64) < most
    }

    /// The next number goes to this, and its answer to that call.
    fn number(&mut self, id: Option<u64>, command: Bytes, is_part: bool) {
        if let Some(id) = id {
            let call = self.calls.get_mut(id).expect("a write that gets a number is not answered");
            call.place = Place::Write(self.low + self.writes.len() as u64);
        }
        self.writes.push_back(WriteCall {
            call: id,
            command,
            sent: None,
            sent_to: NodeSet::EMPTY,
            answered: false,
            is_part,
        });
        self.wrote = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_few_unless_it_takes_more_to_keep_the_links_busy() {
        const KIB: usize = 1 << 10;
        for (product, part, parts) in [
            (None, 8, 4),
            (None, 256 * KIB, 2),
            (None, 1024 * KIB, 2),
            (Some(0), 256 * KIB, 2),
            (Some(1100 * KIB), 256 * KIB, 4),
            (Some(usize::MAX), 256 * KIB, 16),
            (Some(usize::MAX), 8, 32),
            (Some(usize::MAX), 32 << 20, 2),
        ] {
            assert_eq!(parts_under_way(product, part), parts, "{product:?} of {part}");
        }
    }
}
