//! Stories of nodes and their disks, as text: each line is a command, and what comes of it behind ` = `.
//!
//! `start N DISK [join|replace|MILLISECONDS]` starts node N on a directory, with the reach of that round trip at least.
//! `crash N` ends it, `copy A B` copies a directory, `A>B` lets node A connect to node B, `group N VERSION VOTERS
//! [+ LEARNERS]` is what the log of node N says; where processes have so many groups (`groups COUNT`), `group N:2 …` is
//! what it says of the second. `pass MILLISECONDS` lets time pass. `keep A` keeps the introduction that node A would
//! send now, and `late A>B` lets it arrive at node B. `state N` is how far node N is.

// tidy: long because each rule of admission has its story.

use std::collections::BTreeMap;

use super::*;

#[derive(Default)]
struct Story {
    members: NodeSet,
    /// How many groups each process has besides the first.
    more: usize,
    disks: BTreeMap<String, Memory>,
    running: BTreeMap<NodeId, (String, Admission)>,
    kept: BTreeMap<NodeId, Introduction>,
    started: u64,
    now: Time,
}

fn id(word: &str) -> NodeId {
    NodeId::new(word.parse().unwrap()).unwrap()
}

fn set(words: &[&str]) -> NodeSet {
    words.iter().map(|word| id(word)).collect()
}

fn names(nodes: NodeSet) -> String {
    nodes.iter().map(|node| node.to_string()).collect::<Vec<_>>().join(" ")
}

impl Story {
    fn act(&mut self, command: &str) -> String {
        let words: Vec<_> = command.split_whitespace().collect();
        match words[..] {
            ["members", ..] => {
                self.members = set(&words[1..]);
                String::new()
            }
            ["groups", count] => {
                self.more = count.parse::<usize>().unwrap() - 1;
                String::new()
            }
            ["start", node, disk, ..] => {
                let stage = match words.get(3) {
                    Some(&"join") => Stage::Joining,
                    Some(&"replace") => Stage::Replacing,
                    _ => Stage::New,
                };
                self.started += 1;
                let number = u128::from(self.started);
                let memory = self.disks.get(disk).cloned().unwrap_or(Memory::new(DiskId(number), stage));
                let least = words.get(3).and_then(|word| word.parse().ok()).map(Duration::from_millis);
                let memory = memory.with_reach(least.map_or(Reach::SHORTEST, Reach::of));
                let groups = vec![KnownGroup::initial(self.members); self.more + 1];
                let admission = match Admission::start(id(node), memory, self.started, groups) {
                    Ok(admission) => admission,
                    Err(_) => return "was refused".to_owned(),
                };
                assert!(!admission.may_speak() && !admission.may_run(), "its life is not durable");
                self.running.insert(id(node), (disk.to_owned(), admission));
                self.sync(id(node));
                self.state(id(node))
            }
            ["state", node] => self.state(id(node)),
            ["crash", node] => {
                self.running.remove(&id(node)).expect("it runs");
                String::new()
            }
            ["pass", millis] => {
                self.now += Duration::from_millis(millis.parse().unwrap());
                String::new()
            }
            ["copy", from, to] => {
                let memory = self.disks[from].clone();
                self.disks.insert(to.to_owned(), memory);
                String::new()
            }
            ["group", node, version, ..] => {
                let (voters, learners) = match words.iter().position(|word| *word == "+") {
                    Some(plus) => (set(&words[3..plus]), set(&words[plus + 1..])),
                    None => (set(&words[3..]), NodeSet::EMPTY),
                };
                let (node, group) = node.split_once(':').unwrap_or((node, "1"));
                let (version, members) = (version.parse().unwrap(), voters.union(learners));
                let group = GroupId::new(group.parse().unwrap()).unwrap();
                self.at(id(node)).set_group(group, KnownGroup { version, voters, members });
                self.sync(id(node));
                String::new()
            }
            ["keep", node] => {
                let said = self.at(id(node)).introduction().expect("it introduces itself");
                self.kept.insert(id(node), said);
                String::new()
            }
            ["late", arrival] => {
                let (from, to) = arrival.split_once('>').unwrap();
                let (from, to, now) = (id(from), id(to), self.now);
                let said = self.kept[&from].clone();
                let verdict = self.at(to).hear(from, &said, now);
                self.sync(to);
                match verdict {
                    Verdict::Accept { .. } => "ok".to_owned(),
                    Verdict::Refuse(reason) => describe_refusal(from, &reason),
                    verdict => self.describe(to, verdict),
                }
            }
            [dial] => {
                let (from, to) = dial.split_once('>').unwrap();
                self.dial(id(from), id(to))
            }
            _ => panic!("no command: {command}"),
        }
    }

    fn at(&mut self, node: NodeId) -> &mut Admission {
        &mut self.running.get_mut(&node).expect("it runs").1
    }

    fn sync(&mut self, node: NodeId) {
        let (disk, admission) = self.running.get_mut(&node).unwrap();
        let before = self.disks.insert(disk.clone(), admission.memory().clone());
        let is_durable = admission.is_durable(admission.revision());
        assert!(
            !is_durable || before.as_ref() == Some(admission.memory()),
            "what has changed is not durable yet"
        );
        admission.on_durable(admission.revision());
        assert!(admission.may_speak());
    }

    fn state(&mut self, node: NodeId) -> String {
        let now = self.now;
        let admission = self.at(node);
        match admission.may_run() {
            true => "runs".to_owned(),
            false if admission.waits_to_replace() => {
                let also = if admission.may_be_retired() { ", has begun" } else { "" };
                format!("looks for {}{also}", names(admission.absent(now)))
            }
            false => format!("waits for {} of {}", admission.missing(), names(admission.waits_for())),
        }
    }

    fn dial(&mut self, from: NodeId, to: NodeId) -> String {
        let ran = self.at(from).may_run();
        let now = self.now;
        let Some(hello) = self.at(from).introduction() else {
            self.at(to).on_presence(from, true, now);
            return "says that it waits".to_owned();
        };
        let verdict = self.at(to).hear(from, &hello, now);
        self.sync(to);
        let text = match verdict {
            Verdict::Accept { .. } => {
                let welcome = self.at(to).introduction().expect("it has heard");
                let verdict = self.at(from).hear(to, &welcome, now);
                self.sync(from);
                match verdict {
                    Verdict::Accept { .. } => {
                        self.at(from).on_bound(to);
                        self.sync(from);
                        "ok".to_owned()
                    }
                    verdict => self.describe(from, verdict),
                }
            }
            Verdict::Refuse(reason) => {
                // What it is told makes it stop.
                let answer = self.at(to).introduction().expect("it has heard");
                let stop = Verdict::Stop(reason);
                assert_eq!(self.at(from).hear(to, &answer, now), stop);
                self.describe(from, stop)
            }
            Verdict::OtherReach { mine, theirs } => {
                let answer = self.at(to).introduction().expect("it has heard");
                let verdict = self.at(from).hear(to, &answer, now);
                assert_eq!(verdict, Verdict::OtherReach { mine: theirs, theirs: mine });
                self.sync(from);
                let (shorter, longer) = if mine < theirs { (to, theirs) } else { (from, mine) };
                assert_eq!(self.at(shorter).longer_reach(), Some(longer));
                format!("{shorter} starts again for {} ms", longer.round_trip().as_millis())
            }
            verdict => self.describe(to, verdict),
        };
        match self.running.contains_key(&from) && !ran {
            true => format!("{text}, {from} {}", self.state(from)),
            false => text,
        }
    }

    fn describe(&mut self, at: NodeId, verdict: Verdict) -> String {
        match verdict {
            Verdict::Stop(reason) => {
                self.sync(at);
                self.running.remove(&at);
                describe_refusal(at, &reason)
            }
            Verdict::NotYet(reason) => {
                format!("not yet: {:?}", reason.why).split(" {").next().unwrap().to_owned()
            }
            verdict => format!("{verdict:?}"),
        }
    }
}

fn describe_refusal(node: NodeId, reason: &Reason) -> String {
    format!("{node} stops: {:?}", reason.why).split(" {").next().unwrap().to_owned()
}

/// Plays a story, and compares what comes of it with what the text says.
fn tell(text: &str) {
    let mut story = Story::default();
    let mut played = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let command = line.split(" = ").next().unwrap();
        let result = story.act(command);
        played += command;
        if !result.is_empty() {
            played += &format!(" = {result}");
        }
        played.push('\n');
    }
    let expected: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(played.lines().collect::<Vec<_>>(), expected, "\n{played}");
}

#[test]
fn on_the_first_day_a_majority_of_the_others_must_have_been_there() {
    tell(
        "members 1
         start 1 a = runs",
    );
    tell(
        "members 1 2
         start 1 a = waits for 1 of 2
         start 2 b = waits for 1 of 1
         1>2 = ok, 1 runs
         2>1 = ok, 2 runs",
    );
    tell(
        "members 1 2 3
         start 1 a = waits for 2 of 2 3
         start 2 b = waits for 2 of 1 3
         1>2 = ok, 1 waits for 1 of 3
         2>1 = ok, 2 waits for 1 of 3
         1>2 = ok, 1 waits for 1 of 3
         start 3 c = waits for 2 of 1 2
         1>3 = ok, 1 runs
         crash 1
         3>2 = ok, 3 waits for 1 of 1
         start 1 a = runs
         3>1 = ok, 3 runs
         2>3 = ok, 2 runs",
    );
    tell(&format!(
        "{THREE_OF_FIVE}
         start 4 d = waits for 3 of 1 2 3 5
         1>2 = ok, 1 waits for 2 of 3 4 5
         1>3 = ok, 1 waits for 1 of 4 5
         1>4 = ok, 1 runs"
    ));
}

#[test]
fn an_admitted_disk_starts_again_without_asking_anybody() {
    tell(
        "members 1 2
         start 1 a = waits for 1 of 2
         start 2 b = waits for 1 of 1
         1>2 = ok, 1 runs
         2>1 = ok, 2 runs
         crash 1
         crash 2
         start 1 a = runs",
    );
}

#[test]
fn a_disk_that_is_not_admitted_asks_again_after_a_restart() {
    tell(
        "members 1 2 3
         start 1 a = waits for 2 of 2 3
         start 2 b = waits for 2 of 1 3
         1>2 = ok, 1 waits for 1 of 3
         crash 1
         start 1 a = waits for 2 of 2 3
         1>2 = ok, 1 waits for 1 of 3",
    );
}

const THREE: &str = "members 1 2 3
    start 1 a = waits for 2 of 2 3
    start 2 b = waits for 2 of 1 3
    start 3 c = waits for 2 of 1 2
    1>2 = ok, 1 waits for 1 of 3
    1>3 = ok, 1 runs
    2>1 = ok, 2 waits for 1 of 3
    2>3 = ok, 2 runs
    3>1 = ok, 3 waits for 1 of 2
    3>2 = ok, 3 runs
    ";

/// Three of five nodes have started, and nobody has heard of another.
const THREE_OF_FIVE: &str = "members 1 2 3 4 5
    start 1 a = waits for 3 of 2 3 4 5
    start 2 b = waits for 3 of 1 3 4 5
    start 3 c = waits for 3 of 1 2 4 5";

#[test]
fn a_node_that_lost_its_disk_stops_at_the_first_that_remembers() {
    tell(&format!(
        "{THREE}
         crash 1
         crash 2
         crash 3
         start 3 empty = waits for 2 of 1 2
         start 1 a = runs
         3>1 = 3 stops: OtherDisk
         start 3 empty = waits for 2 of 1 2
         1>3 = 3 stops: OtherDisk
         start 3 c = runs
         3>1 = ok"
    ));
}

#[test]
fn an_old_copy_of_a_disk_is_refused_by_those_who_remember_a_later_life() {
    tell(&format!(
        "{THREE}
         crash 3
         copy c old
         copy c older
         copy c oldest
         start 3 c = runs
         3>1 = ok
         crash 3
         start 3 old = runs
         3>1 = 3 stops: Copied
         start 3 old = was refused
         start 3 older = runs
         1>3 = 3 stops: Copied
         start 3 c = runs
         3>2 = ok
         crash 3
         start 3 oldest = runs
         3>2 = 3 stops: OlderLife
         start 3 c = runs
         3>1 = ok"
    ));
}

#[test]
fn an_old_copy_is_refused_however_often_it_was_started() {
    let restarts = "start 3 old = runs\n crash 3\n".repeat(STARTS - 2);
    tell(&format!(
        "{THREE}
         crash 3
         copy c old
         start 3 c = runs
         3>1 = ok
         crash 3
         {restarts}
         start 3 old = runs
         3>1 = 3 stops: Copied
         start 3 c = runs
         3>1 = ok"
    ));
}

#[test]
fn an_old_copy_that_somebody_took_for_the_disk_is_not_believed_by_others() {
    tell(&format!(
        "{THREE}
         crash 3
         copy c old
         start 3 c = runs
         3>1 = ok
         crash 3
         start 3 old = runs
         crash 3
         start 3 old = runs
         3>2 = ok
         2>1 = ok
         1>2 = ok
         3>1 = 3 stops: Copied"
    ));
}

#[test]
fn what_one_remembers_the_others_learn() {
    tell(&format!(
        "{THREE}
         crash 3
         copy c old
         start 3 c = runs
         3>1 = ok
         crash 3
         1>2 = ok
         crash 1
         start 3 old = runs
         3>2 = 3 stops: Copied"
    ));
}

#[test]
fn a_member_that_is_replaced_does_not_take_the_memory_of_disks_with_it() {
    // Node 5 was admitted by 2, 3 and 4; nodes 3 and 4 leave, and 6 and 7 come.
    tell(&format!(
        "{THREE_OF_FIVE}
         start 4 d = waits for 3 of 1 2 3 5
         start 5 e = waits for 3 of 1 2 3 4
         1>2 = ok, 1 waits for 2 of 3 4 5
         1>3 = ok, 1 waits for 1 of 4 5
         1>4 = ok, 1 runs
         2>1 = ok, 2 waits for 2 of 3 4 5
         2>3 = ok, 2 waits for 1 of 4 5
         2>4 = ok, 2 runs
         5>2 = ok, 5 waits for 2 of 1 3 4
         5>3 = ok, 5 waits for 1 of 1 4
         5>4 = ok, 5 runs
         start 6 f join = waits for 3 of 1 2 3 4 5
         6>1 = ok, 6 waits for 2 of 2 3 4 5
         6>3 = ok, 6 waits for 1 of 2 4 5
         6>4 = ok, 6 runs
         crash 3
         crash 4
         crash 5
         group 6 9 1 2 5 6
         start 5 empty = waits for 3 of 1 2 3 4
         5>6 = 5 stops: OtherDisk"
    ));
}

#[test]
fn a_joining_node_that_lost_its_disk_is_refused_while_it_is_a_voter() {
    tell(&format!(
        "{THREE}
         start 4 d join = waits for 2 of 1 2 3
         4>1 = ok, 4 waits for 1 of 2 3
         4>2 = ok, 4 runs
         group 1 7 1 2 4
         group 2 7 1 2 4
         group 3 7 1 2 4
         group 4 7 1 2 4
         crash 4
         start 4 empty join = waits for 2 of 1 2 3
         4>1 = 4 stops: OtherDisk
         start 4 empty join = waits for 2 of 1 2 3
         4>3 = not yet: Voter, 4 waits for 2 of 1 2 3
         4>2 = 4 stops: OtherDisk"
    ));
}

#[test]
fn an_id_that_left_the_group_goes_on_to_belong_to_its_disk() {
    tell(&format!(
        "{THREE}
         group 1 7 1 2
         group 2 7 1 2
         crash 3
         start 3 empty = waits for 2 of 1 2
         3>1 = 3 stops: OtherDisk
         start 3 new join = waits for 2 of 1 2
         3>1 = 3 stops: OtherDisk
         start 3 new join = waits for 2 of 1 2
         3>2 = 3 stops: OtherDisk
         start 3 c = runs
         3>1 = ok"
    ));
    // Nobody has heard of node 4 since it was admitted.
    tell(&format!(
        "{THREE}
         start 4 d join = waits for 2 of 1 2 3
         4>1 = ok, 4 waits for 1 of 2 3
         4>2 = ok, 4 runs
         group 1 7 1 2 3 4
         crash 1
         start 1 a = runs
         group 1 9 1 2 3
         crash 4
         start 4 empty join = waits for 2 of 1 2 3
         4>1 = 4 stops: OtherDisk"
    ));
}

/// Node 1 takes note of node 5 before that is admitted, and node 4 never hears of it. Would node 1 take its group from
/// node 4, it would not see node 5 leave, and would let another disk join in its place.
#[test]
fn an_admitted_node_takes_its_group_from_its_log_and_from_nobody_else() {
    tell(&format!(
        "{THREE_OF_FIVE}
         start 4 d = waits for 3 of 1 2 3 5
         1>2 = ok, 1 waits for 2 of 3 4 5
         1>3 = ok, 1 waits for 1 of 4 5
         1>4 = ok, 1 runs
         start 5 e = waits for 3 of 1 2 3 4
         5>1 = ok, 5 waits for 2 of 2 3 4
         5>2 = ok, 5 waits for 1 of 3 4
         5>3 = ok, 5 runs
         group 4 7 1 2 3 4
         4>1 = ok, 4 waits for 1 of 2 3
         group 1 7 1 2 3 4
         crash 5
         start 5 empty join = waits for 3 of 1 2 3 4
         5>1 = 5 stops: OtherDisk"
    ));
}

#[test]
fn a_member_that_left_may_still_connect_with_its_own_disk() {
    tell(&format!(
        "{THREE}
         group 1 7 1 2
         3>1 = ok
         crash 3
         start 3 c = runs
         3>1 = ok
         1>3 = ok"
    ));
}

#[test]
fn an_empty_directory_of_a_first_member_that_left_is_refused_even_where_its_disk_was_never_seen() {
    tell(
        "members 1 2 3
         start 1 a = waits for 2 of 2 3
         group 1 7 1 2 4
         start 3 c = waits for 2 of 1 2
         3>1 = 3 stops: LeftGroup",
    );
}

#[test]
fn a_first_member_that_left_before_it_was_admitted_is_told_so_by_those_who_know_its_disk() {
    tell(
        "members 1 2 3
         start 1 a = waits for 2 of 2 3
         start 3 c = waits for 2 of 1 2
         3>1 = ok, 3 waits for 1 of 2
         group 1 7 1 2
         3>1 = 3 stops: LeftGroup",
    );
}

#[test]
fn a_first_member_that_became_a_learner_before_it_was_admitted_takes_part() {
    tell(
        "members 1 2 3
         start 1 a = waits for 2 of 2 3
         start 2 b = waits for 2 of 1 3
         start 3 c = waits for 2 of 1 2
         3>1 = ok, 3 waits for 1 of 2
         group 1 7 1 2 + 3
         group 2 7 1 2 + 3
         3>1 = ok, 3 waits for 1 of 2
         3>2 = ok, 3 runs",
    );
}

#[test]
fn proxies_are_answered_when_a_majority_has_accepted_the_present_life() {
    let answers = |others: &[&str]| {
        let mut story = Story::default();
        let lines = THREE.lines().map(str::trim).filter(|line| !line.is_empty());
        for line in lines.chain(["crash 3", "start 3 c"]) {
            story.act(line.split(" = ").next().unwrap());
        }
        for other in others {
            story.act(&format!("3>{other}"));
        }
        story.running.get(&id("3")).map(|(_, admission)| admission.may_answer_proxies())
    };
    assert_eq!(answers(&[]), Some(false), "nobody has been asked in this life");
    assert_eq!(answers(&["1"]), Some(true));
    let (alone, pair) = (set(&["1"]), set(&["1", "2"]));
    let of = |voters| {
        let groups = vec![KnownGroup::initial(voters)];
        Admission::start(id("1"), Memory::new(DiskId(1), Stage::New), 1, groups).unwrap()
    };
    assert!(of(alone).may_answer_proxies() && !of(pair).may_answer_proxies());
}

/// Each group's newest configuration counts, whoever knows it.
#[test]
fn with_several_groups_a_majority_of_the_others_of_each_is_needed() {
    tell(&format!(
        "groups 2
         {}
         start 4 d join = waits for 2 of 1 2 3
         start 5 e join = waits for 2 of 1 2 3
         4>1 = ok, 4 waits for 1 of 2 3
         4>2 = ok, 4 runs
         5>1 = ok, 5 waits for 1 of 2 3
         5>2 = ok, 5 runs
         group 3:1 7 2 3 4
         group 2:2 5 1 4 5
         start 6 f join = waits for 2 of 1 2 3
         6>1 = ok, 6 waits for 1 of 2 3
         6>2 = ok, 6 waits for 1 of 3 4 5
         6>3 = ok, 6 waits for 1 of 4 5
         6>4 = ok, 6 runs",
        THREE.trim()
    ));
}

/// Node 3 has left the first group before node 1 met it.
#[test]
fn a_first_member_that_left_one_group_may_take_part_and_not_join_with_another_disk() {
    tell(
        "groups 2
         members 1 2 3
         start 1 a = waits for 2 of 2 3
         group 1 7 1 2
         start 3 c = waits for 2 of 1 2
         3>1 = ok, 3 waits for 1 of 2
         crash 3
         start 3 empty join = waits for 2 of 1 2
         3>1 = 3 stops: OtherDisk",
    );
}

#[test]
fn proxies_are_answered_when_a_majority_of_each_group_has_accepted_the_present_life() {
    let voters = set(&["1", "2", "3"]);
    let memory = Memory { stage: Stage::Admitted, ..Memory::new(DiskId(1), Stage::New) };
    let mut admission = Admission::start(id("1"), memory, 1, vec![KnownGroup::initial(voters); 2]).unwrap();
    let voters = set(&["1", "4", "5"]);
    let second = KnownGroup { version: 7, voters, members: voters };
    admission.set_group(GroupId::at(1), second);
    let mut answers = Vec::new();
    for other in ["2", "3", "4"] {
        admission.on_bound(id(other));
        answers.push(admission.may_answer_proxies());
    }
    assert_eq!(answers, [false, false, true]);
}

#[test]
fn a_joining_node_whose_log_names_no_group_refuses_nobody() {
    tell(
        "members 1 2 3
         start 1 a = waits for 2 of 2 3
         start 2 b = waits for 2 of 1 3
         start 4 d join = waits for 2 of 1 2 3
         4>1 = ok, 4 waits for 1 of 2 3
         4>2 = ok, 4 runs
         group 4 0
         1>4 = ok, 1 waits for 2 of 2 3",
    );
}

#[test]
fn a_disk_that_was_never_admitted_gives_way_to_another() {
    tell(&format!(
        "{THREE}
         start 4 d join = waits for 2 of 1 2 3
         4>1 = ok, 4 waits for 1 of 2 3
         crash 4
         start 4 other join = waits for 2 of 1 2 3
         4>1 = ok, 4 waits for 1 of 2 3
         4>2 = ok, 4 runs
         crash 4
         start 4 d = waits for 2 of 1 2 3
         4>1 = 4 stops: Retired
         start 4 d = waits for 2 of 1 2 3
         4>2 = 4 stops: Retired"
    ));
}

/// A change of the group in which it takes no part says nothing of its disk, and it is not stopped by whoever has not
/// heard of its new one yet.
#[test]
fn a_disk_that_was_never_admitted_gives_way_to_another_after_a_change_of_the_group() {
    tell(&format!(
        "{THREE}
         start 4 d join = waits for 2 of 1 2 3
         4>1 = ok, 4 waits for 1 of 2 3
         group 1 7 1 2
         crash 4
         start 4 empty join = waits for 2 of 1 2 3
         1>4 = ok
         4>1 = ok, 4 waits for 1 of 2"
    ));
}

#[test]
fn a_disk_is_replaced_when_every_other_voter_has_done_so() {
    tell(&format!(
        "{THREE}
         crash 3
         start 3 new replace = looks for 1 2
         3>1 = says that it waits
         1>3 = not yet: Waits
         2>3 = ok
         3>1 = ok, 3 waits for 1 of 2
         crash 3
         start 3 new replace = looks for 1 2, has begun
         2>3 = not yet: Waits
         1>3 = ok
         3>2 = ok, 3 waits for 1 of 1
         3>1 = ok, 3 runs
         crash 3
         start 3 c = runs
         3>2 = 3 stops: Retired
         start 3 new = runs
         1>3 = ok"
    ));
}

#[test]
fn a_disk_is_not_retired_before_all_others_have_been_there_at_once() {
    // Node 1 is gone, and node 3 did not have to replace its disk.
    tell(&format!(
        "{THREE}
         crash 1
         crash 3
         start 3 new replace = looks for 1 2
         2>3 = not yet: Waits
         3>2 = says that it waits
         crash 3
         start 3 c = runs
         3>2 = ok
         start 1 a = runs
         3>1 = ok"
    ));
    // Node 2 was there, and is gone when node 1 is back.
    tell(&format!(
        "{THREE}
         crash 1
         crash 3
         start 3 new replace = looks for 1 2
         2>3 = not yet: Waits
         crash 2
         pass 5001
         start 1 a = runs
         1>3 = not yet: Waits
         crash 3
         start 3 c = runs
         3>1 = ok"
    ));
    // Node 4 has become a member, and node 3 has lost all that it knew of that.
    tell(&format!(
        "{THREE}
         group 1 7 1 2 3 4
         group 2 7 1 2 3 4
         crash 3
         start 3 new replace = looks for 1 2
         1>3 = not yet: Waits
         state 3 = looks for 2 4
         2>3 = not yet: Waits
         state 3 = looks for 4"
    ));
    // With another reach it starts again before it begins.
    tell(&format!(
        "{THREE}
         crash 2
         crash 3
         start 2 b 240 = runs
         start 3 new replace = looks for 1 2
         1>3 = not yet: Waits
         2>3 = not yet: Waits
         crash 3
         start 3 c 240 = runs
         3>2 = ok"
    ));
}

/// Nobody remembers an earlier disk of node 3.
#[test]
fn a_disk_that_is_to_replace_another_hears_that_an_earlier_life_of_it_has_begun() {
    tell(
        "members 1 2 3
         start 1 a = waits for 2 of 2 3
         start 2 b = waits for 2 of 1 3
         start 3 new replace = looks for 1 2
         1>3 = not yet: Waits, 1 waits for 2 of 2 3
         state 3 = looks for 2
         2>3 = ok, 2 waits for 1 of 1
         3>1 = ok, 3 waits for 1 of 2
         crash 3
         start 3 new replace = looks for 1 2
         1>3 = not yet: Waits, 1 waits for 2 of 2 3
         state 3 = looks for 2, has begun",
    );
}

/// Node 4 may begin when it hears that node 5 waits, which tells nothing else.
#[test]
fn a_disk_that_replaces_another_names_that_one_at_once_and_not_before() {
    tell(&format!(
        "{THREE_OF_FIVE}
         start 4 d = waits for 3 of 1 2 3 5
         4>1 = ok, 4 waits for 2 of 2 3 5
         4>2 = ok, 4 waits for 1 of 3 5
         4>3 = ok, 4 runs
         crash 4
         start 4 new replace = looks for 1 2 3 5
         start 5 e replace = looks for 1 2 3 4
         1>4 = not yet: Waits, 1 waits for 3 of 2 3 4 5
         2>4 = not yet: Waits, 2 waits for 3 of 1 3 4 5
         3>4 = not yet: Waits, 3 waits for 3 of 1 2 4 5
         state 4 = looks for 5
         5>4 = says that it waits
         4>1 = ok, 4 waits for 3 of 2 3 5"
    ));
}

#[test]
fn two_disks_are_replaced_at_the_same_time_though_neither_introduces_itself() {
    tell(&format!(
        "{THREE_OF_FIVE}
         start 4 d replace = looks for 1 2 3 5
         start 5 e replace = looks for 1 2 3 4
         1>4 = not yet: Waits, 1 waits for 3 of 2 3 4 5
         2>4 = not yet: Waits, 2 waits for 3 of 1 3 4 5
         3>4 = not yet: Waits, 3 waits for 3 of 1 2 4 5
         1>5 = not yet: Waits, 1 waits for 3 of 2 3 4 5
         2>5 = not yet: Waits, 2 waits for 3 of 1 3 4 5
         3>5 = not yet: Waits, 3 waits for 3 of 1 2 4 5
         4>5 = says that it waits
         5>4 = ok, 5 waits for 3 of 1 2 3
         4>1 = ok, 4 waits for 3 of 2 3 5"
    ));
}

#[test]
fn a_late_introduction_of_a_lost_disk_does_not_retire_the_one_that_replaces_it() {
    // Node 4 has an empty memory, and has heard of no other disk of node 5.
    tell(&format!(
        "{THREE_OF_FIVE}
         start 5 e = waits for 3 of 1 2 3 4
         5>1 = ok, 5 waits for 2 of 2 3 4
         5>2 = ok, 5 waits for 1 of 3 4
         5>3 = ok, 5 runs
         keep 5
         crash 5
         start 4 d replace = looks for 1 2 3 5
         start 5 f replace = looks for 1 2 3 4
         1>4 = not yet: Waits, 1 waits for 3 of 2 3 4 5
         2>4 = not yet: Waits, 2 waits for 3 of 1 3 4 5
         3>4 = not yet: Waits, 3 waits for 3 of 1 2 4 5
         5>4 = says that it waits
         1>5 = not yet: Waits, 1 waits for 3 of 2 3 4 5
         2>5 = not yet: Waits, 2 waits for 3 of 1 3 4 5
         3>5 = not yet: Waits, 3 waits for 3 of 1 2 4 5
         4>5 = ok, 4 waits for 3 of 1 2 3
         5>4 = ok, 5 waits for 3 of 1 2 3
         late 5>4 = 5 stops: Retired
         5>1 = ok, 5 waits for 2 of 2 3
         5>2 = ok, 5 waits for 1 of 3
         5>3 = ok, 5 runs
         5>4 = ok"
    ));
}

#[test]
fn a_late_introduction_of_a_disk_that_was_lost_while_it_replaced_another_retires_nothing() {
    tell(&format!(
        "{THREE}
         crash 3
         keep 2
         start 3 d replace = looks for 1 2
         1>3 = not yet: Waits
         late 2>3 = ok
         keep 3
         crash 3
         start 3 e replace = looks for 1 2
         1>3 = not yet: Waits
         2>3 = ok
         3>1 = ok, 3 waits for 1 of 2
         3>2 = ok, 3 runs
         late 3>1 = not yet: OtherDisk
         1>3 = ok
         3>1 = ok"
    ));
    // Node 1 has not met the second one yet, which does not know that it has met the first.
    tell(&format!(
        "{THREE}
         crash 3
         keep 2
         start 3 d replace = looks for 1 2
         1>3 = not yet: Waits
         late 2>3 = ok
         keep 3
         crash 3
         start 3 e replace = looks for 1 2
         1>3 = not yet: Waits
         2>3 = ok
         late 3>1 = ok
         3>1 = not yet: OtherDisk, 3 waits for 2 of 1 2
         1>3 = ok
         3>1 = ok, 3 waits for 1 of 2
         3>2 = ok, 3 runs"
    ));
}

#[test]
fn no_more_than_a_minority_of_disks_is_replaced_at_the_same_time() {
    tell(&format!(
        "{THREE}
         crash 2
         crash 3
         start 2 new replace = looks for 1 3
         start 3 also replace = looks for 1 2
         1>2 = not yet: Waits
         1>3 = not yet: Waits
         2>3 = says that it waits
         3>2 = says that it waits
         crash 3
         start 3 c = runs
         3>2 = ok
         2>1 = ok, 2 waits for 1 of 3"
    ));
}

#[test]
fn the_disk_of_one_that_does_not_vote_is_not_replaced() {
    let mut story = Story::default();
    let lines = THREE.lines().map(str::trim).filter(|line| !line.is_empty());
    let joins =
        ["start 4 d join", "4>1", "4>2", "4>1", "crash 4", "start 4 new replace", "1>4", "2>4", "3>4"];
    for line in lines.chain(joins) {
        story.act(line.split(" = ").next().unwrap());
    }
    let said = story.at(id("4")).introduction().expect("all others are there");
    let verdict = story.at(id("1")).hear(id("4"), &said, Time::ZERO);
    assert!(matches!(&verdict, Verdict::Refuse(Reason { why: Why::OtherDisk { .. }, .. })), "{verdict:?}");
}

/// `a2! -b -c`: the disk *a*, in its second life, admitted; *b* and *c* are retired. `-`: nothing is remembered.
fn peer(text: &str) -> PeerDisk {
    let mut peer = PeerDisk::default();
    let disk = |name: char| DiskId(name as u128);
    for word in text.split_whitespace().filter(|word| *word != "-") {
        match word.strip_prefix('-') {
            Some(name) => peer.retired.extend(name.chars().map(disk)),
            None => {
                let (name, life) = word.trim_end_matches('!').split_at(1);
                let life: u64 = life.parse().unwrap();
                let disk = name.chars().map(disk).next().unwrap();
                peer.current = Some(DiskLife { disk, life, starts: (1..=life).collect() });
                peer.admitted = word.ends_with('!');
            }
        }
    }
    peer
}

#[test]
fn what_was_admitted_wins_then_what_is_remembered_here_and_what_is_retired_never() {
    // remembered here, remembered there → remembered here afterwards
    let table = "
        -      | a1     → a1
        -      | a1! -b → a1! -b
        a1     | -      → a1
        a1     | a1!    → a1!
        a1!    | a1     → a1!
        a1     | a2     → a2
        a2     | a1     → a2
        a1     | b1     → a1
        a1     | b1!    → b1!
        a1!    | b1     → a1!
        a1!    | b1!    → a1!
        -a     | a1!    → -a
        -a     | -a     → -a
        b1 -a  | a2!    → b1 -a
        a1!    | -a     → -a
        a1!    | b1 -a  → b1 -a
        a1!    | -b     → a1! -b
    ";
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (given, expected) = line.split_once('→').unwrap();
        let (mine, theirs) = given.split_once('|').unwrap();
        let mut mine = peer(mine);
        merge(&mut mine, &peer(theirs), false);
        assert_eq!(mine, peer(expected), "{line}");
    }
    let mut me = peer("-");
    merge(&mut me, &peer("a1! -b"), true);
    assert_eq!(me, peer("-b"), "which disk is its own, nobody else says");
}

#[test]
fn an_admitted_disk_takes_the_place_of_one_that_was_lost_before_it_was_admitted() {
    for group in ["", "group 1 0 1 2 3 4 5"] {
        tell(&format!(
            "members 1 2 3 4 5
             start 1 a = waits for 3 of 2 3 4 5
             start 2 b = waits for 3 of 1 3 4 5
             start 4 d = waits for 3 of 1 2 3 5
             start 5 e = waits for 3 of 1 2 3 4
             start 3 lost = waits for 3 of 1 2 4 5
             3>1 = ok, 3 waits for 2 of 2 4 5
             {group}
             crash 3
             start 3 c = waits for 3 of 1 2 4 5
             3>2 = ok, 3 waits for 2 of 1 4 5
             3>4 = ok, 3 waits for 1 of 1 5
             3>5 = ok, 3 runs
             3>1 = ok
             crash 3
             start 3 lost = waits for 3 of 1 2 4 5
             3>1 = 3 stops: Retired"
        ));
    }
}

#[test]
fn a_disk_that_was_admitted_in_another_group_is_refused() {
    tell(&format!(
        "members 3
         start 3 other = runs
         crash 3
         {THREE}
         3>1 = ok
         crash 3
         start 3 other = runs
         3>1 = 3 stops: OtherDisk"
    ));
}

#[test]
fn a_learner_that_lost_its_disk_does_not_join_with_another() {
    tell(&format!(
        "{THREE}
         start 4 d join = waits for 2 of 1 2 3
         4>1 = ok, 4 waits for 1 of 2 3
         4>2 = ok, 4 runs
         4>1 = ok
         crash 4
         start 4 empty join = waits for 2 of 1 2 3
         4>1 = 4 stops: OtherDisk"
    ));
}

#[test]
fn an_initial_member_that_lost_its_disk_does_not_join_as_if_it_were_new() {
    tell(
        "members 1 2 3
         start 1 a = waits for 2 of 2 3
         start 3 c = waits for 2 of 1 2
         3>1 = ok, 3 waits for 1 of 2
         crash 3
         start 3 empty join = waits for 2 of 1 2
         3>1 = 3 stops: OtherDisk",
    );
}

/// Member 1 does not hear of node 4 between the replacement and its leaving. It is a voter of any group.
#[test]
fn the_disk_that_has_replaced_a_voters_counts_as_admitted_where_it_was_let_in() {
    for of in ["", ":2"] {
        tell(&format!(
            "groups 2
             {THREE}
             start 4 d join = waits for 2 of 1 2 3
             4>1 = ok, 4 waits for 1 of 2 3
             4>2 = ok, 4 runs
             group 1{of} 7 1 2 3 4
             group 2{of} 7 1 2 3 4
             group 3{of} 7 1 2 3 4
             crash 4
             start 4 new replace = looks for 1 2 3
             1>4 = not yet: Waits
             2>4 = not yet: Waits
             3>4 = ok
             4>1 = ok, 4 waits for 2 of 2 3
             4>2 = ok, 4 waits for 1 of 3
             4>3 = ok, 4 runs
             crash 1
             start 1 a = runs
             group 1{of} 9 1 2 3
             crash 4
             start 4 empty join = waits for 2 of 1 2 3
             4>1 = 4 stops: OtherDisk"
        ));
    }
}

#[test]
fn a_learner_that_has_not_heard_of_a_replacement_does_not_stop_the_new_disk() {
    tell(&format!(
        "{THREE}
         start 4 d join = waits for 2 of 1 2 3
         4>1 = ok, 4 waits for 1 of 2 3
         4>2 = ok, 4 runs
         3>4 = ok
         crash 3
         start 3 new replace = looks for 1 2
         1>3 = not yet: Waits
         2>3 = ok
         3>1 = ok, 3 waits for 1 of 2
         3>2 = ok, 3 runs
         4>3 = ok"
    ));
}

/// Either of the two would do; neither relies on the other.
#[test]
fn an_empty_directory_of_a_first_member_that_left_is_refused_by_others_and_by_itself() {
    tell(
        "members 1 2 3
         start 1 a = waits for 2 of 2 3
         group 1 7 1 2 4
         start 3 c = waits for 2 of 1 2
         keep 3
         late 3>1 = 3 stops: LeftGroup
         1>3 = 3 stops: LeftGroup, 1 waits for 2 of 2 4",
    );
}

#[test]
fn whoever_joins_counts_a_majority_of_the_newest_group_that_it_has_heard_of() {
    tell(&format!(
        "{THREE}
         group 1 7 1 2 5
         start 4 d join = waits for 2 of 1 2 3
         4>1 = ok, 4 waits for 1 of 2 5
         group 4 0 1 2 3
         4>3 = ok, 4 waits for 1 of 2 5"
    ));
}

/// Of its own id a node remembers no disk but those that its own has replaced.
#[test]
fn an_id_of_which_only_retired_disks_are_known_counts_as_admitted_nowhere() {
    let retired = PeerDisk { retired: vec![DiskId(7)], ..PeerDisk::default() };
    let memory = Memory { peers: [(id("1"), retired)].into(), ..Memory::new(DiskId(1), Stage::Admitted) };
    let group = KnownGroup::initial(set(&["1", "2", "3"]));
    let mut admission = Admission::start(id("1"), memory.clone(), 1, vec![group]).unwrap();
    admission.set_group(GroupId::FIRST, KnownGroup { version: 7, ..group });
    assert_eq!((admission.revision(), &admission.memory().peers), (1, &memory.peers));
}

#[test]
fn starts_that_are_remembered_are_bounded() {
    let first = DiskLife { disk: DiskId(1), life: 0, starts: Vec::new() };
    let life = (1..=100).fold(first, DiskLife::next);
    assert_eq!((life.life, life.starts.len(), life.starts.last()), (100, STARTS, Some(&100)));
}

#[test]
fn retired_disks_are_bounded() {
    let mut peer = PeerDisk::default();
    for disk in 0..100 {
        retire(&mut peer, DiskId(disk));
        merge(&mut peer, &PeerDisk { retired: vec![DiskId(1000 + disk)], ..PeerDisk::default() }, false);
    }
    assert!(peer.retired.len() == RETIRED && peer.retired.contains(&DiskId(99)));
}

#[test]
fn introductions_and_memory_are_read_as_they_are_written() {
    let life = DiskLife { disk: DiskId(u128::MAX - 5), life: 7, starts: vec![5, 9] };
    let peer = PeerDisk { current: Some(life.clone()), admitted: true, retired: vec![DiskId(3)] };
    let peers: BTreeMap<_, _> = [(id("2"), peer)].into();
    for stage in [Stage::New, Stage::Joining, Stage::Replacing, Stage::Admitted] {
        let said = Introduction {
            life: life.clone(),
            stage,
            groups: vec![KnownGroup { version: 4, voters: set(&["1", "2"]), members: set(&["1", "2", "3"]) }],
            peers: peers.clone(),
            reach: Reach::LONGEST,
        };
        assert_eq!(Introduction::from_bytes(said.to_bytes()).unwrap(), said);
        let refused =
            Some(Reason { node: id("1"), witness: id("2"), why: Why::OlderLife { known: 4, found: 3 } });
        let memory = Memory { peers: peers.clone(), refused, ..Memory::new(DiskId(1 << 70), stage) };
        assert_eq!(Memory::from_bytes(memory.to_bytes()).unwrap(), memory);
        let before = memory.to_bytes();
        let before = before.slice(..before.len() - Reach::SHORTEST.to_bytes().len());
        assert_eq!(Memory::from_bytes(before).unwrap(), memory, "of a version without reaches");
    }
}

#[test]
fn whoever_has_the_shorter_reach_starts_again_and_then_they_speak() {
    tell(&format!(
        "{THREE}
         crash 1
         start 1 a 240 = runs
         1>2 = 2 starts again for 240 ms
         start 2 b = runs
         1>2 = ok
         3>1 = 3 starts again for 240 ms
         crash 1
         start 1 a = runs
         1>2 = ok
         start 3 c 120 = runs
         3>1 = ok
         1>3 = ok
         3>2 = ok
         crash 3
         start 3 c = runs
         3>1 = ok"
    ));
}

#[test]
fn voters_that_are_far_apart_need_a_longer_reach_and_others_do_not() {
    let far = |me, to| {
        let memory = Memory { stage: Stage::Admitted, ..Memory::new(DiskId(1), Stage::New) };
        let groups = vec![KnownGroup::initial(set(&["1", "2"]))];
        let mut admission = Admission::start(id(me), memory, 1, groups).unwrap();
        admission.on_durable(1);
        for _ in 0..crate::reach::ENOUGH {
            assert_eq!(admission.longer_reach(), None);
            admission.on_round_trip(id(to), Duration::from_millis(221), |reach| reach);
        }
        admission.on_durable(1);
        assert_eq!(admission.longer_reach(), None, "it is not durable; what was before is");
        admission.on_durable(admission.revision());
        admission.longer_reach()
    };
    assert_eq!(far("1", "2"), Some(Reach::PAPERS));
    assert_eq!(far("1", "3"), None, "it does not vote");
    assert_eq!(far("3", "2"), None, "this one does not");
}

#[test]
fn a_connection_to_what_others_know_better_ends() {
    let mut story = Story::default();
    let lines = THREE.lines().map(str::trim).filter(|line| !line.is_empty());
    for line in lines.chain(["crash 3", "start 3 c", "3>2"]) {
        story.act(line.split(" = ").next().unwrap());
    }
    assert_eq!(story.at(id("1")).take_outdated(), NodeSet::EMPTY);
    story.act("1>2");
    assert_eq!(names(story.at(id("1")).take_outdated()), "3", "its second life");
    story.act("3>1");
    assert_eq!(story.at(id("1")).take_outdated(), NodeSet::EMPTY, "it said so itself");
}
