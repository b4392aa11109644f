//! Which replicas should answer reads of which keys: each counts what its clients read; the leader adds that up, and
//! finds those near many reads of a key, unless it is written too often. (Bodega §5.1, *smart roster coverage*.)

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use quorate_blocks::clients::Ask;
use quorate_blocks::writes::Written;
use quorate_core::{NodeId, NodeSet, Range, Roster, Settings, SettingsError, Wire};
use quorate_store::Command;
use quorate_store::footprint::Extent;

/// When a key is covered, and by whom.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// How often the leader looks.
    pub period: Duration,
    /// More than this share of what clients ask of a key are reads.
    reads: f64,
    /// More than this share of its reads are made near a replica.
    near: f64,
    /// Keys with fewer reads are left alone.
    least: u64,
}

impl Rule {
    /// `coverage.period`, `coverage.reads`, `coverage.near`, `coverage.least` (percentages).
    pub fn from_settings(settings: &mut Settings) -> Result<Rule, SettingsError> {
        Ok(Rule {
            period: settings
                .duration("coverage.period", "5s", "How often the leader looks at what is read where")?
                .max(Duration::from_millis(10)),
            reads: percent(
                settings,
                "coverage.reads",
                95,
                "Per cent of the requests for a key that must be reads",
            )?,
            near: percent(
                settings,
                "coverage.near",
                20,
                "Per cent of a key's reads that must be near a replica that becomes a responder",
            )?,
            least: settings.number(
                "coverage.least",
                10,
                1..=1 << 32,
                "Keys with fewer reads are left alone",
            )?,
        })
    }
}

fn percent(
    settings: &mut Settings,
    key: &str,
    default: u64,
    meaning: &'static str,
) -> Result<f64, SettingsError> {
    Ok(settings.number(key, default, 0..=100, meaning)? as f64 / 100.0)
}

/// Keys that are counted at once; others are not noticed.
const MAX_KEYS: usize = 4096;

/// What was asked lately.
#[derive(Debug, Default)]
pub struct Coverage {
    /// By clients of this site, since the last report.
    here: BTreeMap<Bytes, u64>,
    /// At the leader: reads by site, and writes. They halve with each period.
    asked: BTreeMap<Bytes, Asked>,
    /// What it came to the last time.
    candidate: Option<Vec<Range>>,
}

#[derive(Debug, Default)]
struct Asked {
    reads: BTreeMap<NodeId, u64>,
    writes: u64,
}

impl Coverage {
    /// A client of this site asks.
    pub fn on_ask(&mut self, ask: &Ask) {
        for (_, command) in &ask.reads {
            let Ok(command) = Command::from_bytes(command.clone()) else { continue };
            let Extent::Keys(keys) = command.footprint().reads().clone() else { continue };
            for key in keys.as_slice() {
                if let Some(count) = self.here.get_mut(key) {
                    *count += 1;
                } else if self.here.len() < MAX_KEYS {
                    self.here.insert(Bytes::copy_from_slice(key), 1);
                }
            }
        }
    }

    /// What a site is to tell the leader.
    pub fn report(&mut self) -> Vec<(Bytes, u64)> {
        std::mem::take(&mut self.here).into_iter().collect()
    }

    /// The leader proposes writes of these keys.
    pub fn on_write(&mut self, written: &Written) {
        for key in written.keys().into_iter().flatten() {
            if let Some(asked) = self.asked.get_mut(key) {
                asked.writes += 1;
            }
        }
    }

    /// The leader hears what clients of a site have read.
    pub fn on_reads(&mut self, site: NodeId, reads: Vec<(Bytes, u64)>) {
        for (key, count) in reads {
            let is_known = self.asked.contains_key(&key);
            if is_known || self.asked.len() < MAX_KEYS {
                // One that stays here must not keep the message in which it came.
                let key = if is_known { key } else { Bytes::copy_from_slice(&key) };
                let reads = self.asked.entry(key).or_default().reads.entry(site).or_default();
                *reads = reads.saturating_add(count);
            }
        }
    }

    /// The ranges that follow from it: neighbours with the same responders make one.
    fn ranges(&mut self, rule: &Rule) -> Vec<Range> {
        let mut ranges: Vec<Range> = Vec::new();
        let mut last = NodeSet::EMPTY;
        for (key, asked) in &self.asked {
            let reads: u64 = asked.reads.values().sum();
            let often = reads >= rule.least && reads as f64 > rule.reads * (reads + asked.writes) as f64;
            let near = |(_, count): &(&NodeId, &u64)| often && **count as f64 > rule.near * reads as f64;
            let responders: NodeSet = asked.reads.iter().filter(near).map(|(node, _)| *node).collect();
            let one = Range::key(key, responders);
            match ranges.last_mut() {
                Some(range) if last == responders && !responders.is_empty() => range.to = one.to,
                _ if !responders.is_empty() => ranges.push(one),
                _ => {}
            }
            last = responders;
        }
        self.asked.retain(|_, asked| {
            asked.writes /= 2;
            asked.reads.values_mut().for_each(|count| *count /= 2);
            asked.reads.retain(|_, count| *count > 0);
            !asked.reads.is_empty() || asked.writes > 0
        });
        ranges
    }

    /// The roster to change to, when it has come out so twice in a row.
    pub fn review(&mut self, rule: &Rule, current: &Roster) -> Option<Roster> {
        let ranges = self.ranges(rule);
        let roster = Roster::new(None, ranges.clone()).ok()?;
        let again = self.candidate.replace(ranges).is_some_and(|last| last == roster.ranges());
        (again && !roster.ranges().is_empty() && roster.ranges() != current.ranges()).then_some(roster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_counted_keep_no_message_in_memory() {
        let (mut coverage, message) = (Coverage::default(), Bytes::from(vec![b'k'; 1 << 16]));
        coverage.on_reads(NodeId::new(1).unwrap(), vec![(message.slice(..1), 1), (message.slice(..2), 1)]);
        let read = Command::Get { key: Bytes::from_static(b"k") }.to_bytes();
        coverage.on_ask(&Ask {
            nonce: 1,
            session: 0,
            open: false,
            low: 0,
            writes: Vec::new(),
            reads: vec![(1, read.clone())],
            bounds: Vec::new(),
            manage: Vec::new(),
            version: 0,
        });
        assert_eq!((coverage.asked.len(), coverage.here.len()), (2, 1));
        assert!(message.is_unique() && read.is_unique());
    }

    #[test]
    fn keys_are_covered_where_they_are_read() {
        let rule = Rule { period: Duration::from_secs(1), reads: 0.95, near: 0.2, least: 10 };
        let node = |id| NodeId::new(id).unwrap();
        let key = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let mut coverage = Coverage::default();
        let load = |coverage: &mut Coverage| {
            for (name, site, count, writes) in [
                ("a", 1, 100, 0),
                ("b", 1, 90, 2),
                ("b", 2, 15, 0),
                ("c", 1, 100, 10),
                ("d", 2, 5, 0),
                ("e", 1, 100, 0),
                ("e", 3, 50, 0),
            ] {
                coverage.on_reads(node(site), vec![(key(name), count)]);
                coverage.asked.get_mut(&key(name)).unwrap().writes += writes;
            }
        };
        load(&mut coverage);
        let current = Roster::default();
        assert_eq!(coverage.review(&rule, &current), None, "once is chance");
        load(&mut coverage);
        let roster = coverage.review(&rule, &current).expect("twice is none");
        let responders =
            |name: &str| roster.responders(name.as_bytes()).iter().map(NodeId::get).collect::<Vec<_>>();
        assert_eq!(responders("a"), [1]);
        assert_eq!(responders("b"), [1], "too few of its reads are near 2");
        assert_eq!(responders("c"), [0; 0], "written too often");
        assert_eq!(responders("d"), [0; 0], "read too seldom");
        assert_eq!(responders("e"), [1, 3]);
        assert_eq!(roster.ranges().len(), 2, "a and b are one range");
        load(&mut coverage);
        assert_eq!(coverage.review(&rule, &roster), None, "it is so already");
    }
}
