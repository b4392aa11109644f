//! Rejoining (recovery from disk loss): a member whose disk was lost comes back under its own id, with an empty disk.
//!
//! Problem: it has forgotten what it has said, and others have counted that.
//!
//! Solution: to the others it looks as if it had crashed, until it knows enough to say nothing that contradicts its
//! earlier life. The driver guarantees ([`Group::rejoining`]) that before it starts every other member has durably
//! bound its id to the new disk: from then on no message of the earlier life is delivered anywhere. So whatever was
//! delivered somebody knew before it answers a question that is asked now. It asks all others ([`Rejoin`]); what it
//! makes of the answers is the protocol's. Where members promise ballots and keep a log, that is the same everywhere
//! ([`Standing`]).
//!
//! # Several at once
//!
//! Another member y lost its disk, too, and has forgotten which messages of this one, x, it has counted. It cannot
//! answer, and x does without its answer if no more than f rejoin, x included. Then the others must have answered when
//! nobody can learn any more of what the earlier life of y has done. So when x first hears that y rejoins, no answer
//! counts that it has had, and it asks all once more: y says so when all have retired its lost disk. (Otherwise: x and
//! y have voted for a write of y, p has answered x and votes for it then, y decides and loses its disk. Of those that x
//! asks nobody else has heard of the write, and x with two of them is a majority that does not know it.) Each quorum
//! has more than f members, so one of them does not rejoin, and answers. Where more than f rejoin, each waits:
//! something may be lost that was decided, and the operator has to bring back disks.
//!
//! # Ballots and logs
//!
//! The answers of all others have two maxima: of the ballots that they have heard of, and of the places where their
//! logs end, as elections compare them.
//!
//! - *A ballot that the earlier life promised*, and whose owner has counted that, the owner has durably promised
//!   itself before it asked. It is not above the first maximum, so the new life promises higher ones only.
//! - *An entry that the earlier life acknowledged*, and that was committed with its help, is in the log of another
//!   member, which answers; and what was committed is in each log that ends at the same place or further on (the rule
//!   of elections). A log that has come to the second maximum has it.
//!
//! Until its log has come that far, x promises nobody a ballot and stands for nothing. It takes entries from whoever
//! leads, and executes what is committed: that must have come so far, too, since whoever asks who may do what would
//! else be told of a state before that was said. It is enough: say that m of n members are a majority. Those who
//! promise a ballot without x, and those who have committed an entry, less x, are m and m - 1 of n - 1 members, so they
//! have one in common. With more that rejoin it is the same.
//!
//! Where members grant leases, x does not take the first maximum for promised before those of its earlier life are
//! over: who promises a ballot is free of all earlier ones.
//!
//! It takes part in nothing of a ballot below the first maximum. In that one itself its earlier life may have said
//! things that it does not know; what it may still do there is the protocol's.
//!
//! # Crashes in between
//!
//! x restarts: unless it has recorded that it was through, it asks again, with a fresh number, so that an answer to a
//! life before another loss of the disk does not count. It counts as whole, to operators too, when that record is
//! durable, and with it what is before it: a loss of power does not make it one that rejoins, when another disk is
//! replaced already. Another member restarts: what it had counted it has recorded before. Another member is away: x
//! waits for its answer, since only that one knows what it has counted.
//!
//! It ends: what others have in their logs and nobody else has (they crash, and lose it) is below the first entry of a
//! later ballot.

use quorate_core::{Group, NodeId, NodeSet, REJOINING, SettingsError, mutation};

/// Refuses a member that is to rejoin where the others are no majority: they would wait for each other.
pub fn check_group(group: &Group) -> Result<(), SettingsError> {
    let members = group.members.len();
    if group.rejoining && members < 3 {
        let why = "cannot decide without the member whose disk was lost: restore its disk";
        return Err(SettingsError::Conflict(format!("a group of {members} {why}")));
    }
    Ok(())
}

/// Whether an earlier life of a member may have granted leases: it was restarted, or its disk was lost.
pub fn may_have_granted_leases(restarted: bool, group: &Group) -> bool {
    restarted || (group.rejoining && !mutation::active("rejoin/forgets-leases"))
}

/// What operators are told of it.
pub const LOST: &str = "its disk was lost";

/// A question to all others, and what they have answered. `H`: what they tell, put together.
#[derive(Clone, Copy, Debug)]
pub struct Rejoin<H> {
    /// The number of the question, fresh with each. Answers to another do not count.
    nonce: u64,
    /// Who is asked: all other members.
    others: NodeSet,
    answered: NodeSet,
    /// Others that rejoin at the same time, and have not answered since they said so.
    rejoining: NodeSet,
    heard: H,
}

impl<H: Default> Rejoin<H> {
    /// Nobody has answered yet.
    pub fn new(nonce: u64, others: NodeSet) -> Rejoin<H> {
        let (answered, rejoining) = (NodeSet::EMPTY, NodeSet::EMPTY);
        Rejoin { nonce, others, answered, rejoining, heard: H::default() }
    }

    /// The number of the question.
    pub fn nonce(&self) -> u64 {
        self.nonce
    }

    /// What any have told.
    pub fn heard(&self) -> &H {
        &self.heard
    }

    /// Who has to answer yet.
    pub fn awaited(&self) -> NodeSet {
        // So many may lose their disks at once, this member included.
        let f = self.others.len() / 2;
        let are_few = self.rejoining.len() < f || mutation::active("rejoin/excuses-too-many");
        let excused = if are_few { self.rejoining } else { NodeSet::EMPTY };
        self.others.difference(self.answered).difference(excused)
    }

    /// A member says that it rejoins. If that is news, the question is asked anew, under a number that is drawn.
    pub fn on_other(&mut self, from: NodeId, draw: impl FnOnce() -> u64) {
        let is_news = self.others.contains(from) && self.rejoining.insert(from);
        if is_news && !mutation::active("rejoin/keeps-answers") {
            (self.nonce, self.answered) = (draw(), NodeSet::EMPTY);
        }
    }

    /// A member answers. Whether that counts: only its first answer to the last question does.
    pub fn on_reply(&mut self, from: NodeId, nonce: u64, add: impl FnOnce(&mut H)) -> bool {
        let counts = nonce == self.nonce && self.others.contains(from) && self.answered.insert(from);
        if counts {
            self.rejoining.remove(from);
            add(&mut self.heard);
        }
        counts
    }

    /// For operators: whose answers are missing, if any.
    pub fn status(&self) -> Option<String> {
        let silent: Vec<_> = self.awaited().iter().map(|node| node.to_string()).collect();
        let is_silent = !silent.is_empty();
        is_silent.then(|| format!("{LOST}; waits for an answer of {}", silent.join(", ")))
    }
}

/// Whether a member promises ballots. `B`: a ballot; `P`: where a log ends.
#[derive(Debug)]
pub enum Standing<B, P> {
    /// It has the disk with which it began.
    Original,
    /// Its disk was lost: it asks for the ballots that the others have heard of, and where their logs end.
    Asking(Rejoin<(B, P)>),
    /// They have answered this question: its log has to come to this place.
    Lacking(u64, P),
    /// It has everything, has recorded that, and waits for its disk.
    Saving(u64),
    /// Its disk was lost, and the new one has everything.
    Rejoined,
}

/// What one that rejoins has to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<B> {
    /// Nothing, until somebody answers, more is executed, or the disk has written it.
    Wait,
    /// Ask the others (again).
    Ask {
        /// All others: also whoever has answered must know that this one rejoins.
        nodes: NodeSet,
        /// The number of the question.
        nonce: u64,
    },
    /// Take part in nothing of a ballot up to this one. Then go on.
    Bound(B),
    /// Record that it is through, and answer the own question when that is durable.
    Record {
        /// The number of the question.
        nonce: u64,
    },
}

impl<B: Copy + Ord + Default, P: Copy + Ord + Default> Standing<B, P> {
    /// It begins to ask.
    pub fn asking(nonce: u64, others: NodeSet) -> Standing<B, P> {
        Standing::Asking(Rejoin::new(nonce, others))
    }

    /// Whether it promises ballots, and stands.
    pub fn is_whole(&self) -> bool {
        self.knows_promises() || mutation::active("rejoin/at-once")
    }

    fn knows_promises(&self) -> bool {
        matches!(self, Standing::Original | Standing::Rejoined)
    }

    /// Whether its records say that it is through.
    pub fn is_recorded(&self) -> bool {
        matches!(self, Standing::Saving(_) | Standing::Rejoined)
    }

    /// Whether it listens to nobody but those who answer: it does not know yet which ballots are over for it.
    pub fn asks(&self) -> bool {
        matches!(self, Standing::Asking(_)) && !mutation::active("rejoin/at-once")
    }

    /// Another member rejoins. Whether this one can answer it.
    pub fn on_rejoin(&mut self, from: NodeId, draw: impl FnOnce() -> u64) -> bool {
        if let Standing::Asking(rejoin) = self {
            rejoin.on_other(from, draw);
        }
        self.knows_promises()
    }

    /// A member answers; or the own disk has written everything (`own`).
    pub fn on_reply(&mut self, from: NodeId, own: bool, nonce: u64, (ballot, position): (B, P)) {
        match self {
            Standing::Asking(rejoin) => {
                rejoin.on_reply(from, nonce, |heard| {
                    *heard = (heard.0.max(ballot), heard.1.max(position));
                });
            }
            Standing::Saving(asked) if own && *asked == nonce => *self = Standing::Rejoined,
            _ => {}
        }
    }

    /// What is to be done, from time to time. `own`: how far the own log is executed. `bound`: what the earlier life
    /// has promised to readers may hold yet.
    pub fn go_on(&mut self, own: P, bound: bool) -> Step<B> {
        match *self {
            Standing::Asking(ref rejoin) if rejoin.awaited().is_empty() && bound => Step::Wait,
            Standing::Asking(ref rejoin) if rejoin.awaited().is_empty() => {
                let (ballot, position) = *rejoin.heard();
                *self = Standing::Lacking(rejoin.nonce, position);
                Step::Bound(if mutation::active("rejoin/any-ballot") { B::default() } else { ballot })
            }
            Standing::Asking(Rejoin { nonce, others, .. }) => Step::Ask { nodes: others, nonce },
            Standing::Lacking(nonce, position) if own >= position || mutation::active("rejoin/any-log") => {
                *self = Standing::Saving(nonce);
                Step::Record { nonce }
            }
            _ => Step::Wait,
        }
    }

    /// For operators: what it waits for, if it rejoins.
    pub fn status(&self) -> Option<(&'static str, String)> {
        let status = match self {
            Standing::Original | Standing::Rejoined => return None,
            Standing::Asking(rejoin) => rejoin.status().unwrap_or_else(|| LOST.to_owned()),
            Standing::Lacking(..) => format!("{LOST}; takes over what the others have"),
            Standing::Saving(_) => format!("{LOST}; waits for the new one"),
        };
        Some((REJOINING, status))
    }
}
