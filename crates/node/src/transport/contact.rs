//! Which members answer this node, for operators: one is unreachable while there is no connection to it, or while it
//! leaves echoes unanswered (a process that hangs keeps its connections).

use std::time::Duration;

use quorate_core::{NodeId, Time};

use super::Transport;
use super::link::Link;
use crate::clock;

/// A connection that is back sooner was no news.
const RECONNECTS: Duration = Duration::from_secs(1);

/// A question that has waited this long is left unanswered: members are asked once a second.
const OVERDUE: Duration = Duration::from_secs(3);

/// Another member, as far as this node has to do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contact {
    /// Which member: by its id, never this node's own.
    pub node: NodeId,
    /// Its site, as it said at the latest connection; empty if it has said none.
    pub site: String,
    /// The latest round trip to it; `None` if none was measured on this connection.
    pub round_trip: Option<Duration>,
    /// That it does not answer; `None` while it does.
    pub unreachable: Option<Unreachable>,
}

/// A member that does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// How long it has not answered.
    pub lasts: Duration,
    /// What the latest attempt to connect, or to ask it, came to.
    pub why: String,
}

impl Transport {
    /// How each of the other members answers, in the order of their ids.
    pub(crate) fn contacts(&self) -> Vec<Contact> {
        let now = clock::now();
        let contact = |link: &Link| Contact {
            node: link.node,
            site: String::from_utf8_lossy(link.site()).into_owned(),
            round_trip: link.round_trip(),
            unreachable: unreachable(link.disconnected(), link.unanswered(), now)
                .map(|lasts| Unreachable { lasts, why: link.why_silent() }),
        };
        self.links_to_members().map(contact).collect()
    }

    /// How many of the other members are connected and answer.
    pub(crate) fn reached(&self) -> usize {
        let now = clock::now();
        let answers = |link: &&Link| link.is_up() && unreachable(None, link.unanswered(), now).is_none();
        self.links_to_members().filter(answers).count()
    }

    fn links_to_members(&self) -> impl Iterator<Item = &Link> {
        self.links.values().filter(|link| self.members.contains_key(&link.node))
    }
}

/// How long a member has been unreachable that is not connected since the first instant, if it is not, and has left an
/// echo unanswered since the second.
fn unreachable(disconnected: Option<Time>, unanswered: Option<Time>, now: Time) -> Option<Duration> {
    let longer = |since: Option<Time>, than| since.map(|since| now.since(since)).filter(|took| *took >= than);
    match disconnected {
        Some(_) => longer(disconnected, RECONNECTS),
        None => longer(unanswered, OVERDUE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_unreachable_without_a_connection_or_when_it_leaves_echoes_unanswered() {
        let at = |millis: u64| Time::ZERO + Duration::from_millis(millis);
        for (disconnected, unanswered, now, expected) in [
            (None, None, 9000, None),
            (Some(5000), None, 5999, None),
            (Some(5000), None, 6000, Some(1000)),
            (Some(5000), Some(1000), 5500, None),
            (None, Some(5000), 7999, None),
            (None, Some(5000), 8000, Some(3000)),
        ] {
            let found = unreachable(disconnected.map(at), unanswered.map(at), at(now));
            assert_eq!(found, expected.map(Duration::from_millis), "{disconnected:?} {unanswered:?} {now}");
        }
    }
}
