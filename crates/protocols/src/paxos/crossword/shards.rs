//! `crossword.shards`: how many shards each voter gets of a value.
//!
//! | setting | policy of the paper |
//! |---|---|
//! | `auto` | by response times (§4.1), `chooser.rs` |
//! | `2` | a user's hint (§3.4) |
//! | `4KiB:2,8KiB:1` | by the size of the value, as in the paper's CockroachDB: whole below the first |
//! | `8,5/1:5,2:5,3:5,4:3,5:1` | unbalanced (§3.2, §5.4): n and d of the code, then how many shards each node gets |

use quorate_blocks::coding::{Assignment, Code, MAX_SHARDS};
use quorate_core::settings::parse_bytes;
use quorate_core::{Group, NodeId, NodeSet, Settings, SettingsError};

/// See the file comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shards {
    /// As many as let a value be chosen soonest.
    Soonest,
    /// So many, at least.
    AtLeast(usize),
    /// So many, at least, of values of so many bytes and more, in the order of sizes.
    BySize(Vec<(usize, usize)>),
    /// Each voter has its own number of them.
    Table(Box<Assignment>),
}

const EXPECTED: &str = "auto; a whole number from 1 to 16; sizes, each with a number, as 4KiB:2,8KiB:1; or a code and \
                        how many shards of it each node gets, as 8,5/1:5,2:5,3:5,4:3,5:1";

const MEANING: &str = "Shards of a value that each voter gets at least; more if voters are missing. Half of the \
                       voters, or more: values are sent whole. `auto`: by the others' response times. \
                       `4KiB:2,8KiB:1`: by the value's size, whole below the first. `8,5/1:5,2:5,3:5,4:3,5:1`: \
                       8 shards, of which 5 restore the value, and how many of them each node gets";

/// As it is written: n and d of a code, then nodes, each with a number.
type Table = ((usize, usize), Vec<(NodeId, usize)>);

impl Shards {
    /// Of this group.
    pub fn from_settings(group: &Group, settings: &mut Settings) -> Result<Shards, SettingsError> {
        enum Written {
            Shards(Shards),
            Table(Table),
        }
        let written = settings.take("crossword.shards", "auto", EXPECTED, MEANING, |text| {
            let parsed = match text.split_once('/') {
                Some((code, counts)) => {
                    Written::Table((pair(code, ',', number, number)?, counts_of(counts)?))
                }
                None if text == "auto" => Written::Shards(Shards::Soonest),
                None if text.contains(':') => Written::Shards(Shards::BySize(sizes_of(text)?)),
                None => Written::Shards(Shards::AtLeast(count(text)?)),
            };
            Some(parsed)
        })?;
        match written {
            Written::Shards(shards) => Ok(shards),
            Written::Table(table) => check(table, group.members)
                .map(|table| Shards::Table(Box::new(table)))
                .map_err(|wrong| SettingsError::Conflict(format!("setting crossword.shards: {wrong}"))),
        }
    }

    /// The unbalanced assignment, if this is one.
    pub fn table(&self) -> Option<&Assignment> {
        if let Shards::Table(table) = self { Some(table) } else { None }
    }
}

/// What a table gives to these voters; `None` if it does not name all of them, or they could not have a value chosen
/// even if all of them vote.
pub fn among(table: &Assignment, voters: NodeSet) -> Option<Assignment> {
    if voters == table.voters() {
        return Some(*table);
    }
    let some = Some(table.among(voters)).filter(|some| some.voters() == voters)?;
    some.too_few_among(voters.majority()).is_none().then_some(some)
}

/// How many shards of a value of so many bytes each voter gets; as many as there can be below the first size.
pub fn by_size(sizes: &[(usize, usize)], bytes: usize) -> usize {
    let size = sizes.iter().rfind(|(size, _)| bytes >= *size);
    size.map_or(MAX_SHARDS, |(_, shards)| *shards)
}

/// A table that satisfies C1 and C2 when all members vote: whichever of them are lost, a majority is left and has
/// enough shards to restore the value. Or what is wrong with it, and what would be right.
fn check(((shards, data), counts): Table, members: NodeSet) -> Result<Assignment, String> {
    Code::new(shards, data).map_err(|wrong| wrong.to_string())?;
    let list = |nodes: NodeSet| {
        let ids: Vec<_> = nodes.iter().map(|node| node.to_string()).collect();
        if ids.len() == 1 { format!("node {}", ids[0]) } else { format!("nodes {}", ids.join(", ")) }
    };
    let named: NodeSet = counts.iter().map(|(node, _)| *node).collect();
    if named.len() < counts.len() || named.len() > MAX_SHARDS {
        return Err(format!("name each node once, and at most {MAX_SHARDS}"));
    }
    let missing = members.iter().filter(|node| !named.contains(*node)).collect::<NodeSet>();
    if !missing.is_empty() {
        return Err(format!("give {} a number of shards too", list(missing)));
    }
    if let Some((node, count)) = counts.iter().find(|(_, count)| !(1..=data).contains(count)) {
        return Err(format!(
            "node {node} gets {count} shards, which must be 1 to {data}: {data} restore a value"
        ));
    }
    let least = super::data(members.len()).max(2);
    if data < least {
        return Err(format!(
            "{data} of {shards} shards restore a value: let {least} restore it, or more, so that shards are smaller"
        ));
    }
    let table = Assignment::unbalanced((shards, data), counts).map_err(|wrong| wrong.to_string())?;
    let group = table.among(members);
    match group.too_few_among(members.majority()) {
        Some(left) => Err(format!(
            "if the others are lost, {} have {} distinct shards, and {data} restore a value: give them more",
            list(left),
            group.held_by(left).len(),
        )),
        None => Ok(table),
    }
}

fn number(text: &str) -> Option<usize> {
    text.parse().ok()
}

/// A number of shards.
fn count(text: &str) -> Option<usize> {
    number(text).filter(|count| (1..=MAX_SHARDS).contains(count))
}

/// `a:b`, for any mark between them.
fn pair<A, B>(
    text: &str,
    between: char,
    first: impl Fn(&str) -> Option<A>,
    second: impl Fn(&str) -> Option<B>,
) -> Option<(A, B)> {
    let (one, other) = text.split_once(between)?;
    Some((first(one)?, second(other)?))
}

/// Sizes in ascending order, each with a number of shards.
fn sizes_of(text: &str) -> Option<Vec<(usize, usize)>> {
    let size = |text: &str| parse_bytes(text).map(|bytes| bytes as usize);
    let sizes: Vec<_> = text.split(',').map(|item| pair(item, ':', size, count)).collect::<Option<_>>()?;
    sizes.is_sorted_by(|a, b| a.0 < b.0).then_some(sizes)
}

/// Nodes, each with a number of shards.
fn counts_of(text: &str) -> Option<Vec<(NodeId, usize)>> {
    let node = |text: &str| text.parse().ok().and_then(NodeId::new);
    text.split(',').map(|item| pair(item, ':', node, number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shards(text: &str, nodes: u64) -> Result<Shards, String> {
        let group = Group::of((1..=nodes).filter_map(NodeId::new).collect());
        let mut settings = Settings::parse([format!("crossword.shards={text}")]).unwrap();
        Shards::from_settings(&group, &mut settings).map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn numbers_sizes_and_tables_are_read() {
        assert_eq!(shards("auto", 5), Ok(Shards::Soonest));
        assert_eq!(shards("3", 5), Ok(Shards::AtLeast(3)));
        let sizes = vec![(4096, 2), (8192, 1)];
        assert_eq!(
            [0, 4095, 4096, 8191, 8192, 1 << 30].map(|bytes| by_size(&sizes, bytes)),
            [16, 16, 2, 2, 1, 1]
        );
        assert_eq!(shards("4KiB:2,8KiB:1", 5), Ok(Shards::BySize(sizes)));
        let table = shards("8,5/1:5,2:5,3:5,4:3,5:1", 5).unwrap();
        let table = table.table().unwrap();
        assert_eq!((table.code(), table.voters().len()), ((8, 5), 5));
    }

    #[test]
    fn a_table_holds_for_some_of_its_nodes_if_they_can_spare_a_minority() {
        let table = shards("8,5/1:5,2:5,3:5,4:3,5:1", 5).unwrap();
        // voters → whether it holds
        let cases = [("12345", true), ("123", true), ("145", false), ("1234", true), ("12346", false)];
        for (voters, holds) in cases {
            let voters: NodeSet = voters.bytes().filter_map(|id| NodeId::new((id - b'0').into())).collect();
            assert_eq!(
                among(table.table().unwrap(), voters).map(|table| table.voters()),
                holds.then_some(voters)
            );
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_would_be_right() {
        let cases = [
            ("0", "expected auto"),
            ("17", "expected auto"),
            ("most", "expected auto"),
            ("8KiB:1,4KiB:2", "expected auto"),
            ("4KiB:0", "expected auto"),
            ("8/1:5", "expected auto"),
            (
                "7,9/1:5,2:5,3:5",
                "7 shards of which 9 restore a value: there are 1 to 16 shards, and 1 to all of them",
            ),
            ("17,9/1:5,2:5,3:5", "17 shards of which 9 restore a value: there are 1 to 16 shards"),
            ("8,5/1:5,2:5", "give node 3 a number of shards too"),
            ("8,5/1:5,2:5,3:5,3:1", "name each node once"),
            ("8,5/1:5,2:6,3:5", "node 2 gets 6 shards, which must be 1 to 5"),
            ("8,5/1:5,2:5,3:0", "node 3 gets 0 shards, which must be 1 to 5"),
            ("3,1/1:1,2:1,3:1", "let 2 restore it, or more"),
            ("8,5/1:5,2:3,3:1", "if the others are lost, nodes 2, 3 have 4 distinct shards, and 5 restore"),
        ];
        for (text, says) in cases {
            let wrong = shards(text, 3).unwrap_err();
            assert!(wrong.contains(says), "{text}: {wrong}");
        }
    }
}
