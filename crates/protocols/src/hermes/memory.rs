//! Keys in memory alone (`--durability none`). A member keeps on disk, synced, which ballot it has promised and in
//! which epoch it was live last: that changes with epochs, not with writes, which wait for no disk. Keys are in memory,
//! and a restart loses them. So a member that restarts has kept its word as an acceptor, and has broken it as a copy:
//! versions that it has acknowledged are gone. The first start is told from a restart by the epochs: a member that was
//! never live has acknowledged nothing, and has lost nothing.
//!
//! A version that all who were live in its epoch have acknowledged is committed. Three rules make up for those of them
//! who lose it, and a fourth for what was not committed:
//!
//! 1. *It takes part in no epoch whose ballot it promised before the restart* ([`Loss::promised`]). There its
//!    acknowledgements of both lives would be one: a version that it acknowledged and lost could be committed behind
//!    what a source has just sent it, and it would take an earlier one for the last. Nor is it whole there, though it
//!    may have said so in its promise. It tells the owner, who begins another epoch at once.
//! 2. *It says in its promises that it has lost its memory* ([`Known::lost`]), until it is whole again: in a later
//!    epoch it is a shadow like one that was away, and gets all keys from a member that is whole. Its disk never says
//!    that it is whole.
//! 3. *A candidate begins an epoch only with promises of members that have everything* ([`Known::suffices`]). Some of
//!    those who promise were live in the last epoch that counts, since each epoch has a majority: so if one of those is
//!    whole, it has everything. Else everything is among those who have lost nothing, or were whole again since, if
//!    these are a majority: the live members of any epoch, a majority too, are among them. The owner gathers it.
//! 4. *It writes under another name* ([`Replica::writer`]). What it gave out before the restart, and not all have
//!    acknowledged, may be replayed later with the number of an epoch in which it writes again. It has forgotten which
//!    versions it has counted: with one name, two values would have the same timestamp, and acknowledgements of one
//!    would commit the other.
//!
//! So the group goes on while no more than *f* of its 2*f* + 1 members have lost their memory and are not whole again.
//! Otherwise the candidate *waits*: it tells all who hear it who has lost what and who is missing, and collects
//! promises of those who come, one of whom may have everything. When none is missing, nobody can tell what was
//! committed, and it stays so. Now and then it is silent for a while, so that another may try who reaches others.
//!
//! **A lost disk** has the same consequences, with keys on disks, too. The member asks all others which ballots they
//! have heard of ([`quorate_blocks::rejoin`]). That is the ballot of rule 1; and since nobody knows in which epoch up
//! to that the member was live last, it says that it was in this one, so that nobody who has left earlier passes for
//! one who has everything. When the new disk has everything, it says so.

use std::collections::BTreeMap;

use quorate_blocks::ballot::Ballot;
use quorate_blocks::epochs::Evidence;
use quorate_blocks::rejoin::LOST;
use quorate_core::{Context, GROUP_MEMORY, MEMORY, NodeId, NodeSet, REJOINING, mutation};

use super::message::Known;
use super::replica::Replica;
use super::{Message, Record};

/// A candidate that waits for memory is heard for so many election timeouts, and then silent until others miss it.
const PATIENCE: u32 = 16;

/// Of a writer in a timestamp, those with the member's id.
const WRITER_BITS: u32 = 8;

/// What an operator can do without the data.
const ANEW: &str = "Nobody is served. To begin anew with nothing, stop all nodes, remove their data directories, and \
                    start them";

/// What a restart has lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    /// The latest ballot that was promised before: in its epoch the member may have been live, and whole.
    pub promised: Ballot,
    /// It has everything again.
    pub made_up: bool,
    /// Its disk was lost, and the new one does not say yet that it has everything.
    pub disk: bool,
}

/// A candidate cannot begin an epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amnesia {
    /// Who has lost the memory.
    pub lost: NodeSet,
    /// Whose promise is missing.
    pub missing: NodeSet,
}

impl Evidence for Known {
    /// Whether those who have promised have everything that was ever committed.
    fn suffices(members: NodeSet, promises: &BTreeMap<NodeId, Known>) -> bool {
        let latest = promises.values().map(|known| known.entered).max().unwrap_or_default();
        let has_whole = promises.values().any(|known| known.whole && known.entered == latest);
        let kept = promises.values().filter(|known| !known.lost).count();
        has_whole || kept >= members.majority() || mutation::active("hermes/gather-from-anybody")
    }
}

impl Replica {
    /// What a restart finds that may have lost the memory: `entered` is the last epoch in which the member was live.
    pub(super) fn loss(diskless: bool, (promised, entered): (Ballot, Ballot), disk: bool) -> Option<Loss> {
        (diskless && entered > Ballot::ZERO).then_some(Loss { promised, made_up: false, disk })
    }

    /// From time to time, if the disk was lost: asks what it had promised. When that is known, and recorded, what is
    /// missing is what a restart loses that keeps keys in memory alone.
    pub(super) fn go_on_rejoining(&mut self, cx: &mut Context<'_, Self>) {
        self.epochs.go_on_rejoining((), |record, cx: &mut Context<'_, Self>| cx.persist(record.into()), cx);
        if let (Some(promised), None) = (self.epochs.rejoined(), self.loss) {
            self.loss = Some(Loss { promised, made_up: false, disk: true });
            // It may have been live in any of these epochs.
            let never = mutation::active("hermes/lost-disk-was-never-live");
            self.entered = if never { Ballot::ZERO } else { promised };
        }
        if let Some(Loss { made_up: true, disk: true, .. }) = self.loss {
            self.reply_to_heartbeat(self.me, cx);
        }
    }

    /// All that this member has, it has on its disk.
    pub(super) fn on_own_reply(&mut self, whole: bool) {
        self.loss.iter_mut().for_each(|loss| loss.disk &= !(whole && loss.made_up));
    }

    /// Whether its disk was lost, and is not what it was again.
    pub(super) fn rejoins(&self) -> bool {
        !self.epochs.is_whole() || self.loss.is_some_and(|loss| loss.disk)
    }

    /// What a promise of this member tells.
    pub(super) fn known(&self) -> Known {
        let lost = self.has_lost() && !mutation::active("hermes/lost-in-silence");
        Known { entered: self.entered, whole: self.is_whole, lost }
    }

    /// Whether versions are missing that it has acknowledged.
    pub(super) fn has_lost(&self) -> bool {
        self.loss.is_some_and(|loss| !loss.made_up)
    }

    /// Who writes here, in timestamps: the member and its incarnation, which behind a restart is named by the ballot
    /// that was promised before. Each one that writes has a name of its own: it is live only in epochs behind that
    /// ballot, and promises theirs first.
    pub(super) fn writer(&self) -> u64 {
        let known = self.loss.filter(|_| !mutation::active("hermes/writer-of-former-life"));
        let life = known.map_or(0, |loss| loss.promised.number());
        life << WRITER_BITS | u64::from(self.me.get())
    }

    /// Which member that is; `None`: the group began with it.
    pub(super) fn member(writer: u64) -> Option<NodeId> {
        NodeId::new(writer & ((1 << WRITER_BITS) - 1))
    }

    /// Whether it may be live in its epoch.
    pub(super) fn takes_part(&self) -> bool {
        let is_later = |loss: Loss| self.epochs.promised > loss.promised;
        self.loss.is_none_or(is_later) || mutation::active("hermes/back-in-the-same-epoch")
    }

    /// Records that everything is there again, where the disk was lost.
    pub(super) fn make_up(&mut self, cx: &mut Context<'_, Self>) {
        let Some(loss) = &mut self.loss else { return };
        loss.made_up = true;
        if let Some(ballot) = self.epochs.rejoined().filter(|_| loss.disk) {
            cx.persist(Record::Rejoined { ballot, made_up: true });
        }
    }

    /// Records what is on disk where keys are.
    pub(super) fn persist_key(&self, record: Record, cx: &mut Context<'_, Self>) {
        if !self.config.group.diskless {
            cx.persist(record);
        }
    }

    /// Records in which epoch it is live.
    pub(super) fn persist_entered(&self, cx: &mut Context<'_, Self>) {
        let whole = self.is_whole && !self.config.group.diskless;
        cx.persist(Record::Entered { ballot: self.epochs.promised, whole });
    }

    /// As a candidate whose promises do not suffice: tells the others, who wait for its epoch.
    pub(super) fn tell_amnesia(&mut self, cx: &mut Context<'_, Self>) {
        let members = self.epochs.members.voters;
        let Some(promises) = self.epochs.stalled() else { return };
        let lost = promises.iter().filter(|(_, known)| known.lost).map(|(node, _)| *node).collect();
        let missing = members.iter().filter(|node| !promises.contains_key(node)).collect();
        self.amnesia = Some(Amnesia { lost, missing });
        let since = self.epochs.stands_since().expect("it is a candidate");
        if cx.now().since(since) < PATIENCE * self.config.timeouts.election {
            self.epochs.monitor.heard(cx.now());
            let ballot = self.epochs.promised;
            cx.send_all(members.without(self.me), Message::Amnesia { ballot, lost, missing });
        }
    }

    /// A candidate cannot begin its epoch, and waits for others.
    pub(super) fn on_amnesia(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        (lost, missing): (NodeSet, NodeSet),
        cx: &mut Context<'_, Self>,
    ) {
        let members = self.epochs.members.voters;
        let is_group = |nodes: NodeSet| nodes.intersection(members) == nodes;
        if ballot.node() != Some(from) || !is_group(lost) || !is_group(missing) {
            return;
        }
        let event = self.epochs.hear_of(from, ballot, (), cx);
        self.on_event(event, cx);
        if self.epochs.follow(from, ballot, cx.now()) && self.epochs.live().is_empty() {
            self.amnesia = Some(Amnesia { lost, missing });
        }
    }

    /// What is lost here, and in the group, in words.
    pub(super) fn losses(&self) -> impl Iterator<Item = (&'static str, String)> {
        let memory =
            "memory lost at the restart (--durability none): a shadow until another member has sent all keys";
        let disk = || format!("{LOST}; a shadow until another member has sent all keys");
        let own = match self.epochs.rejoin_status() {
            None if self.rejoins() => Some((REJOINING, disk())),
            None => self.has_lost().then(|| (MEMORY, memory.to_owned())),
            asks => asks,
        };
        let group = self.amnesia.map(|Amnesia { lost, missing }| {
            let (lost, missing) = (names(lost), (missing.len(), names(missing)));
            let what = if self.config.group.diskless { "memory" } else { "disk" };
            let words = match missing {
                (0, _) => {
                    format!("{what} lost by too many members ({lost}): nobody is known to have all data")
                }
                (1, other) => {
                    format!("{what} lost by {lost}: {other} may have all data, and does not answer")
                }
                (_, others) => {
                    format!("{what} lost by {lost}: one of {others} may have all data, and none answers")
                }
            };
            (GROUP_MEMORY, format!("{words}. {ANEW}"))
        });
        own.into_iter().chain(group)
    }
}

/// `node 1, node 2`.
fn names(nodes: NodeSet) -> String {
    nodes.iter().map(|node| format!("node {node}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What the members tell, by their numbers: the epoch in which each was live last, and whether it was whole there
    /// (w), a shadow (s) or is without memory (x).
    pub fn promises(words: &str) -> BTreeMap<NodeId, Known> {
        let known = |(index, word): (usize, &str)| {
            let (epoch, what) = word.split_at(1);
            let entered = (0..epoch.parse().unwrap()).fold(Ballot::ZERO, |ballot, _| ballot.next(id(1)));
            (id(index as u64 + 1), Known { entered, whole: what == "w", lost: what == "x" })
        };
        words.split(' ').enumerate().map(known).collect()
    }

    #[test]
    fn an_epoch_begins_with_one_who_has_everything_or_with_a_majority_who_lost_nothing() {
        for (promises, enough) in [
            ("0s 0s 0s", true),
            ("3w 3s 3x", true),
            ("3x 3x 3x 3x 3w", true),
            ("3x 3x 2w 2w", false),
            ("3x 2w 2w 2w", true),
            ("3s 3s 2w", true),
            ("3s 3s 3x", false),
            ("3x 3x 3x 2s 2s", false),
            ("3x 3x 2s 2s 1s", true),
            ("3x 3x 3x 3x 3x", false),
            ("1x 0s 0s", false),
            // Nobody else was ever live, as far as those know.
            ("0x 0s 0s", false),
            ("0x 0s 0s 0s", true),
        ] {
            let promises = self::promises(promises);
            assert_eq!(Known::suffices((1..=5).map(id).collect(), &promises), enough, "{promises:?}");
        }
    }

    fn id(id: u64) -> NodeId {
        NodeId::new(id).unwrap()
    }
}
