//! Who is to be whole in the end, and whether they are.

use std::collections::BTreeMap;

use quorate_check::Checker;
use quorate_core::NodeId;

use super::Cluster;
use super::impairments::{host_of, node};

impl Cluster {
    /// Who is to be whole in a group in the end: those who count then. Learners owe nothing, and neither do those who
    /// left or are impaired. Of two who do not reach each other one may be left behind while the other leads, which may
    /// be slow: either set will do.
    fn owing(&self, group: usize) -> Vec<Vec<usize>> {
        let members = match self.logs[group].group() {
            Some(group) => group.voters.union(group.outgoing),
            None => self.members,
        };
        let hosts = members.iter().map(host_of);
        let impaired = self.impaired();
        let owing: Vec<_> = hosts.filter(|host| !impaired.contains(node(*host))).collect();
        match self.lost_links.filter(|pair| pair.iter().all(|host| !self.hosts[*host].lost)) {
            Some(pair) => {
                let without = |out: usize| -> Vec<usize> {
                    owing.iter().copied().filter(|host| *host != out).collect()
                };
                pair.map(without).to_vec()
            }
            None => vec![owing],
        }
    }

    /// Whether in each group the states of those who are to be whole are alike, and nothing is left that they have to
    /// learn from each other. Nobody owes anything where all who count in the end are gone or slow.
    pub fn has_converged(&mut self) -> bool {
        let owing: Vec<_> = (0..self.panels.len()).map(|group| self.owing(group)).collect();
        let mut states = BTreeMap::new();
        for host in owing.iter().flatten().flatten() {
            if !states.contains_key(host) {
                states.insert(*host, self.compare_states(*host));
            }
        }
        (0..self.panels.len()).all(|group| {
            let state = |host: &usize| states[host].as_ref().and_then(|states| states.get(group));
            let is_alike = |hosts: &[usize]| {
                hosts.iter().all(|host| state(host).is_some() && state(host) == state(&hosts[0]))
            };
            owing[group].iter().any(|hosts| is_alike(hosts) && self.is_settled(group, hosts))
        })
    }

    fn is_settled(&self, group: usize, hosts: &[usize]) -> bool {
        self.panels[group].is_settled(&self.applied(group, hosts))
    }

    /// Lets the checkers look at what those who are to be whole have; with `lost`, nobody is.
    pub fn finish_checks(&mut self, lost: bool) {
        for group in 0..self.panels.len() {
            let owing = if lost { vec![Vec::new()] } else { self.owing(group) };
            let settled = owing.iter().find(|hosts| self.is_settled(group, hosts));
            let applied = self.applied(group, settled.unwrap_or(&owing[0]));
            let result = self.panels[group].finish(self.now, &applied);
            self.found(result);
        }
    }

    /// How far these are in a group.
    fn applied(&self, group: usize, hosts: &[usize]) -> Vec<(NodeId, u64)> {
        let applied = |host: &usize| {
            let host = &self.hosts[*host];
            let statuses = host.replica()?.group_statuses(host.instant(self.now));
            Some((host.node?, statuses[group].applied))
        };
        hosts.iter().filter_map(applied).collect()
    }
}
