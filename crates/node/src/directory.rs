//! Who is in the group, as this process knows it, and where they are: what its replica and its proxy say, and at first
//! what the operator said.
//!
//! The replica speaks from its log, and the newest configuration there is in force for it whether it is committed or
//! not; the proxy repeats what a leader told it. Neither is always ahead: a replica that was removed hears no more, and
//! a proxy that asks nothing is told nothing. This process connects to everybody that either names, and shows whichever
//! group is newer. Of several groups (`--groups`) it shows all members together: while one has changed and another has
//! not yet, they have different ones.

use std::collections::BTreeMap;

use quorate_core::{GroupId, Member, Members, NodeId};

/// See the file comment.
#[derive(Debug)]
pub(crate) struct Directory {
    /// None in a process that runs a proxy alone.
    me: Option<NodeId>,
    /// `--initial-cluster`, and this node itself.
    addresses: BTreeMap<NodeId, String>,
    initial: Members,
    /// What the machines have said of each group.
    groups: Vec<Said>,
    /// Whether this node was in a group since it started.
    belonged: bool,
}

/// What the machines of a group have said of it last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Said {
    replica: Option<Members>,
    proxy: Option<Members>,
}

impl Said {
    /// Whichever has the higher version; the replica's, if they are equal.
    fn newest(&self) -> Option<&Members> {
        let proxy = self.proxy.as_ref().filter(|proxy| {
            // What the replica has in its log is what it acts on.
            self.replica.as_ref().is_none_or(|replica| replica.version < proxy.version)
        });
        proxy.or(self.replica.as_ref())
    }
}

/// What this process is to the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It counts towards majorities.
    Voter,
    /// It is sent the log, and does not count.
    Learner,
    /// It waits to be added.
    Joining,
    /// It was removed.
    Left,
    /// It has no replica, and never will.
    Client,
}

impl Standing {
    /// In one word.
    pub fn word(self) -> &'static str {
        match self {
            Standing::Voter => "voter",
            Standing::Learner => "learner",
            Standing::Joining => "joining",
            Standing::Left => "left",
            Standing::Client => "client",
        }
    }
}

impl Directory {
    /// Of a node at this address, or of a process that runs proxies alone, that has so many groups.
    pub(crate) fn new(
        me: Option<(NodeId, String)>,
        initial: BTreeMap<NodeId, String>,
        groups: usize,
    ) -> Directory {
        let voter =
            |(node, address): (&NodeId, &String)| (*node, Member { address: address.clone(), voter: true });
        let members = Members { version: 0, nodes: initial.iter().map(voter).collect() };
        let (mut addresses, mut id) = (initial, None);
        if let Some((node, address)) = me {
            addresses.entry(node).or_insert(address);
            id = Some(node);
        }
        let groups = vec![Said::default(); groups];
        let mut directory = Directory { me: id, addresses, initial: members, groups, belonged: false };
        directory.notice();
        directory
    }

    /// Takes in what the machines of groups say: replicas, and proxies. True if anything is new.
    pub(crate) fn learn(
        &mut self,
        replicas: BTreeMap<GroupId, Members>,
        proxies: BTreeMap<GroupId, Members>,
    ) -> bool {
        let before = self.groups.clone();
        for (group, members) in replicas {
            self.groups[group.index()].replica = Some(members);
        }
        for (group, members) in proxies {
            self.groups[group.index()].proxy = Some(members);
        }
        self.notice();
        before != self.groups
    }

    fn notice(&mut self) {
        self.belonged |= self.me.is_some_and(|me| self.newest().any(|group| group.nodes.contains_key(&me)));
    }

    /// The newest configuration of each group that is known here.
    fn newest(&self) -> impl Iterator<Item = &Members> {
        self.groups.iter().map(|said| said.newest().unwrap_or(&self.initial))
    }

    /// The same with all addresses that are known.
    pub(crate) fn groups(&self) -> Vec<Members> {
        let located = |members: &Members| {
            let mut members = members.clone();
            for (node, member) in &mut members.nodes {
                member.address = self.address(*node, member);
            }
            members
        };
        self.newest().map(located).collect()
    }

    /// Who is in any group: a voter, if it votes in one. The version grows with that of each group.
    pub(crate) fn group(&self) -> Members {
        let mut all = Members::default();
        for group in self.groups() {
            all.version += group.version;
            for (node, member) in group.nodes {
                let known = all.nodes.entry(node).or_insert_with(|| member.clone());
                known.voter |= member.voter;
            }
        }
        all
    }

    /// Which groups have which members, if they do not have the same: `group 1 has 1,2,4; groups 2,3 have 1,2,3`.
    pub(crate) fn difference(&self) -> Option<String> {
        let mut alike: Vec<(String, Vec<String>)> = Vec::new();
        for (number, group) in (1..).zip(self.newest()).filter(|(_, group)| !group.nodes.is_empty()) {
            let member = |(node, member): (&NodeId, &Member)| {
                format!("{node}{}", if member.voter { "" } else { " (learner)" })
            };
            let members = group.nodes.iter().map(member).collect::<Vec<_>>().join(",");
            match alike.iter_mut().find(|(known, _)| *known == members) {
                Some((_, groups)) => groups.push(number.to_string()),
                None => alike.push((members, vec![number.to_string()])),
            }
        }
        let say = |(members, groups): &(String, Vec<String>)| match &groups[..] {
            [group] => format!("group {group} has {members}"),
            groups => format!("groups {} have {members}", groups.join(",")),
        };
        (alike.len() > 1).then(|| alike.iter().map(say).collect::<Vec<_>>().join("; "))
    }

    /// Whom to connect to, and where.
    pub(crate) fn peers(&self) -> BTreeMap<NodeId, String> {
        let mut peers = BTreeMap::new();
        for Said { replica, proxy } in &self.groups {
            let known = [replica, proxy].into_iter().flatten();
            // A replica that waits to be added names nobody; its node's clients are served by the members.
            let names_some =
                |members: &Option<Members>| members.as_ref().is_some_and(|it| !it.nodes.is_empty());
            let said = Some(&self.initial).filter(|_| !names_some(replica) && !names_some(proxy));
            // The newest address wins.
            let mut versions: Vec<_> = known.chain(said).collect();
            versions.sort_by_key(|members| members.version);
            for members in versions {
                peers.extend(members.nodes.iter().map(|(node, member)| (*node, self.address(*node, member))));
            }
        }
        peers.retain(|node, address| Some(*node) != self.me && !address.is_empty());
        peers
    }

    fn address(&self, node: NodeId, member: &Member) -> String {
        match member.address.is_empty() {
            true => self.addresses.get(&node).cloned().unwrap_or_default(),
            false => member.address.clone(),
        }
    }

    /// How many members there are apart from this one.
    pub(crate) fn others(&self) -> usize {
        self.group().nodes.keys().filter(|node| Some(**node) != self.me).count()
    }

    /// What this process is to the groups: a member, if it is one of any.
    pub(crate) fn standing(&self) -> Standing {
        self.standing_among(&self.group())
    }

    /// What it is to one of them.
    pub(crate) fn standing_in(&self, group: GroupId) -> Standing {
        self.standing_among(self.groups[group.index()].newest().unwrap_or(&self.initial))
    }

    /// Whether this node is a member of every group.
    pub(crate) fn is_in_all(&self) -> bool {
        self.me.is_some_and(|me| self.newest().all(|group| group.nodes.contains_key(&me)))
    }

    fn standing_among(&self, members: &Members) -> Standing {
        let Some(me) = self.me else { return Standing::Client };
        match members.nodes.get(&me) {
            Some(Member { voter: true, .. }) => Standing::Voter,
            Some(Member { voter: false, .. }) => Standing::Learner,
            None if self.belonged => Standing::Left,
            None => Standing::Joining,
        }
    }
}

/// Members in one line, for people: `1=HOST:PORT,2=HOST:PORT (learner)`.
pub(crate) fn line(members: &Members) -> String {
    let word = |(node, member): (&NodeId, &Member)| {
        let learner = if member.voter { "" } else { " (learner)" };
        format!("{node}={}{learner}", member.address)
    };
    members.nodes.iter().map(word).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(node: u64) -> NodeId {
        NodeId::new(node).unwrap()
    }

    fn initial() -> BTreeMap<NodeId, String> {
        (1..=3).map(|node| (id(node), format!("a:{node}"))).collect()
    }

    /// Negative ids are learners.
    fn members(version: u64, nodes: &[(i64, &str)]) -> BTreeMap<GroupId, Members> {
        members_of(1, version, nodes)
    }

    fn members_of(group: u8, version: u64, nodes: &[(i64, &str)]) -> BTreeMap<GroupId, Members> {
        let member = |(node, address): &(i64, &str)| {
            (id(node.unsigned_abs()), Member { address: (*address).to_owned(), voter: *node > 0 })
        };
        let members = Members { version, nodes: nodes.iter().map(member).collect() };
        [(GroupId::new(group).unwrap(), members)].into()
    }

    fn peers(directory: &Directory) -> String {
        let word = |(node, address)| format!("{node}={address}");
        directory.peers().into_iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_node_connects_to_all_that_either_of_its_machines_names() {
        let mut directory = Directory::new(Some((id(1), "a:1".to_owned())), initial(), 1);
        assert_eq!((peers(&directory).as_str(), directory.standing()), ("2=a:2 3=a:3", Standing::Voter));
        let none = BTreeMap::new;
        assert!(directory.learn(members(1, &[(1, ""), (2, ""), (3, ""), (-4, "b:4")]), none()));
        assert!(!directory.learn(none(), none()));
        assert_eq!((peers(&directory).as_str(), directory.others()), ("2=a:2 3=a:3 4=b:4", 3));
        // Its replica hears no more, for it is removed; its proxy does.
        assert!(directory.learn(BTreeMap::new(), members(2, &[(2, ""), (3, "c:3"), (4, "b:4")])));
        assert_eq!(peers(&directory), "2=a:2 3=c:3 4=b:4");
        assert_eq!((directory.standing(), directory.group().version), (Standing::Left, 2));
        assert_eq!(line(&directory.group()), "2=a:2,3=c:3,4=b:4");
        // A change that was not committed is taken back by the log.
        let mut directory = Directory::new(Some((id(1), "a:1".to_owned())), initial(), 1);
        directory.learn(members(5, &[(-1, ""), (2, "")]), BTreeMap::new());
        assert_eq!(directory.standing(), Standing::Learner);
        directory.learn(members(4, &[(1, ""), (3, "")]), BTreeMap::new());
        assert_eq!((peers(&directory).as_str(), directory.standing()), ("3=a:3", Standing::Voter));
    }

    #[test]
    fn a_joining_node_waits_until_it_is_in_and_has_left_only_after_that() {
        let mut directory = Directory::new(Some((id(4), "b:4".to_owned())), initial(), 1);
        assert_eq!(
            (peers(&directory).as_str(), directory.standing()),
            ("1=a:1 2=a:2 3=a:3", Standing::Joining)
        );
        // Its replica starts and knows nobody.
        directory.learn(members(0, &[]), BTreeMap::new());
        assert_eq!(
            (peers(&directory).as_str(), directory.standing()),
            ("1=a:1 2=a:2 3=a:3", Standing::Joining)
        );
        // Its log begins with a group that it was not in.
        directory.learn(members(1, &[(1, ""), (2, "")]), BTreeMap::new());
        assert_eq!(directory.standing(), Standing::Joining);
        directory.learn(members(2, &[(1, ""), (2, ""), (4, "")]), BTreeMap::new());
        assert_eq!(
            (line(&directory.group()).as_str(), directory.standing()),
            ("1=a:1,2=a:2,4=b:4", Standing::Voter)
        );
        directory.learn(members(3, &[(1, ""), (2, "")]), BTreeMap::new());
        assert_eq!(directory.standing(), Standing::Left);
    }

    #[test]
    fn a_process_without_a_replica_follows_what_its_proxy_is_told() {
        let mut directory = Directory::new(None, initial(), 1);
        directory.learn(BTreeMap::new(), members(7, &[(3, ""), (9, "b:9")]));
        assert_eq!((peers(&directory).as_str(), directory.others()), ("3=a:3 9=b:9", 2));
        assert_eq!(directory.standing(), Standing::Client);
    }

    #[test]
    fn of_several_groups_a_process_knows_all_members() {
        let mut directory = Directory::new(Some((id(4), "b:4".to_owned())), initial(), 2);
        let shown = |directory: &Directory| {
            (line(&directory.group()), directory.group().version, directory.standing())
        };
        let all = "1=a:1,2=a:2,3=a:3";
        assert_eq!(shown(&directory), (all.to_owned(), 0, Standing::Joining));
        // The first group takes it in for node 3, which the second still has.
        directory.learn(members(5, &[(1, ""), (2, ""), (-4, "b:4")]), BTreeMap::new());
        assert_eq!(shown(&directory), (format!("{all},4=b:4 (learner)"), 5, Standing::Learner));
        let difference = |directory: &Directory| directory.difference().unwrap_or_default();
        assert_eq!(difference(&directory), "group 1 has 1,2,4 (learner); group 2 has 1,2,3");
        directory.learn(members(7, &[(1, ""), (2, ""), (4, "b:4")]), BTreeMap::new());
        assert_eq!(shown(&directory), (format!("{all},4=b:4"), 7, Standing::Voter));
        assert_eq!((peers(&directory).as_str(), directory.others()), ("1=a:1 2=a:2 3=a:3", 3));
        assert!(!directory.is_in_all());
        directory.learn(members_of(2, 4, &[(1, ""), (2, ""), (-4, "b:4")]), BTreeMap::new());
        assert_eq!(shown(&directory), ("1=a:1,2=a:2,4=b:4".to_owned(), 11, Standing::Voter));
        assert!(directory.is_in_all());
        assert_eq!(difference(&directory), "group 1 has 1,2,4; group 2 has 1,2,4 (learner)");
        assert_eq!((peers(&directory).as_str(), directory.others()), ("1=a:1 2=a:2", 2));
        // It leaves one group after the other.
        directory.learn(members(8, &[(1, ""), (2, "")]), BTreeMap::new());
        assert_eq!(
            (directory.standing(), [1, 2].map(|group| directory.standing_in(GroupId::new(group).unwrap()))),
            (Standing::Learner, [Standing::Left, Standing::Learner])
        );
        directory.learn(members_of(2, 6, &[(1, ""), (2, "")]), BTreeMap::new());
        assert_eq!(shown(&directory), ("1=a:1,2=a:2".to_owned(), 14, Standing::Left));
        assert_eq!(directory.difference(), None);
        let mut directory = Directory::new(Some((id(4), "b:4".to_owned())), initial(), 3);
        directory.learn(members(5, &[(1, ""), (2, "")]), BTreeMap::new());
        assert_eq!(difference(&directory), "group 1 has 1,2; groups 2,3 have 1,2,3");
        // What waits to be added knows nobody.
        directory.learn(members_of(2, 0, &[]), BTreeMap::new());
        directory.learn(members_of(3, 0, &[]), BTreeMap::new());
        assert_eq!(directory.difference(), None);
    }

    #[test]
    fn the_newest_word_of_each_group_counts_and_a_vote_in_any() {
        let mut directory = Directory::new(Some((id(4), "b:4".to_owned())), initial(), 2);
        let none = BTreeMap::new;
        let assert_shows = |directory: &Directory, versions: [u64; 2], standing, known: &str| {
            let groups: Vec<_> = directory.groups().iter().map(|group| group.version).collect();
            assert_eq!((&groups[..], directory.standing()), (&versions[..], standing));
            assert_eq!(peers(directory), known);
        };
        directory.learn(none(), members_of(2, 3, &[(1, ""), (-4, "")]));
        assert_shows(&directory, [0, 3], Standing::Learner, "1=a:1 2=a:2 3=a:3");
        directory.learn(members_of(2, 5, &[(1, ""), (3, "c:3"), (4, "")]), none());
        assert_shows(&directory, [0, 5], Standing::Voter, "1=a:1 2=a:2 3=c:3");
        // Its proxy was told of an earlier one by somebody who lags, or of another in the place of that in the log.
        directory.learn(none(), members_of(2, 4, &[(1, ""), (3, "d:3")]));
        assert_shows(&directory, [0, 5], Standing::Voter, "1=a:1 2=a:2 3=c:3");
        directory.learn(none(), members_of(2, 5, &[(1, "")]));
        assert_shows(&directory, [0, 5], Standing::Voter, "1=a:1 2=a:2 3=c:3");
        directory.learn(members(2, &[(1, ""), (-4, "")]), none());
        assert_shows(&directory, [2, 5], Standing::Voter, "1=a:1 3=c:3");
        // It is in no group any more, and was in one only.
        let mut directory = Directory::new(Some((id(4), "b:4".to_owned())), initial(), 2);
        directory.learn(members_of(2, 5, &[(1, ""), (4, "")]), none());
        directory.learn(members_of(2, 6, &[(1, "")]), none());
        assert_eq!(directory.standing(), Standing::Left);
    }
}
