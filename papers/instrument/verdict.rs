//! Rules applied to measured figures.
//!
//! Virtual time is the same on every machine, so the means of the runs decide. Real time is not: a rule on it is
//! settled if the machine was quiet, there are at least [`RUNS`] runs, and it holds in all of them, or in none. (The
//! median of five runs lies between the lowest and the highest of them with a probability of 94%.) What chance decides,
//! such as an election, is judged by the median of many runs and its interval ([`Values::median_within`]).
//!
//! [`Values::median_within`]: super::rule::Values::median_within

use std::collections::BTreeMap;

use super::Result;
use super::grid::{Data, MANY, Time};
use super::register::Register;
use super::rule::{Check, Kind, Rule, Shown};

/// Fewer runs in real time settle nothing.
pub const RUNS: usize = 5;

/// How a claim was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    Simulated,
    Processes,
    Argument,
    Choice,
    Nothing,
}

impl By {
    pub const ALL: [By; 5] = [By::Simulated, By::Processes, By::Argument, By::Choice, By::Nothing];

    /// As the tables of a page say it.
    pub fn words(self) -> &'static str {
        match self {
            By::Simulated => "measured, virtual time",
            By::Processes => "measured, real processes",
            By::Argument => "argued, with a test",
            By::Choice => "choice of the set-up",
            By::Nothing => "not judged",
        }
    }
}

/// What becomes of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Agrees,
    /// Ours is better in what the claim praises.
    Better,
    Differs,
    /// The reason is with it.
    CannotBeJudged,
    /// There is nothing to agree with: the paper leaves it open.
    Taken,
}

impl Verdict {
    pub const ALL: [Verdict; 5] =
        [Verdict::Agrees, Verdict::Better, Verdict::Differs, Verdict::CannotBeJudged, Verdict::Taken];

    /// As the tables of a page say it.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::Better => "better",
            Verdict::Differs => "**differs**",
            Verdict::CannotBeJudged => "cannot be judged here",
            Verdict::Taken => "taken over",
        }
    }
}

/// A claim of the register with its verdict.
#[derive(Clone, Debug)]
pub struct Judged {
    pub claim: String,
    /// What the paper claims, in the register's words.
    pub paper: String,
    /// The figure that decides, if one does.
    pub figure: Option<&'static str>,
    pub by: By,
    pub verdict: Verdict,
    /// What the rule demands, in words.
    pub rule: String,
    /// What was measured, or is done.
    pub ours: String,
    pub why: String,
    /// It asks less than the register.
    pub weaker: bool,
    /// It has another text than when its figure was measured.
    pub changed: bool,
    pub shown: Vec<Shown>,
}

/// Judges every claim of a register, in its order. An error names claims without a rule, rules without a claim, and
/// claims that are judged twice.
pub fn judge(
    register: &Register,
    rules: &[Rule],
    digests: &BTreeMap<String, String>,
    data: &Data,
) -> Result<Vec<Judged>> {
    let mut wrong = Vec::new();
    for rule in rules {
        if register.0.iter().all(|(id, _)| id != rule.claim) {
            wrong.push(format!("{}: the register has no such claim", rule.claim));
        }
        if rules.iter().filter(|other| other.claim == rule.claim).count() > 1 {
            wrong.push(format!("{}: has two rules", rule.claim));
        }
        if matches!(rule.kind, Kind::Measured(..)) && !digests.contains_key(rule.claim) {
            wrong.push(format!("{}: its rule is not found in the text of the rules", rule.claim));
        }
    }
    let mut all = Vec::new();
    for (claim, paper) in &register.0 {
        match rules.iter().find(|rule| rule.claim == claim) {
            None => wrong.push(format!("{claim}: no rule")),
            Some(rule) => all.push(one(rule, paper, digests, data)),
        }
    }
    match wrong.is_empty() {
        true => Ok(all),
        false => Err(wrong.join("\n")),
    }
}

/// Verdicts that need a reason and have none.
pub fn without_reason(judged: &[Judged]) -> Vec<String> {
    let needs = |judged: &&Judged| {
        judged.why.is_empty() && matches!(judged.verdict, Verdict::Differs | Verdict::CannotBeJudged)
    };
    let say =
        |judged: &Judged| format!("{}: {}, and no reason (`.why(…)`)", judged.claim, judged.verdict.words());
    judged.iter().filter(needs).map(say).collect()
}

fn one(rule: &Rule, paper: &str, digests: &BTreeMap<String, String>, data: &Data) -> Judged {
    let mut judged = Judged {
        claim: rule.claim.to_owned(),
        paper: paper.to_owned(),
        figure: None,
        by: By::Nothing,
        verdict: Verdict::CannotBeJudged,
        rule: String::new(),
        ours: String::new(),
        why: rule.why.clone(),
        weaker: rule.weaker.is_some(),
        changed: false,
        shown: Vec::new(),
    };
    match &rule.kind {
        Kind::Measured(check, better) => {
            let real = check.figures.iter().any(|figure| figure.time == Time::Real);
            judged.figure = Some(check.figures[0].id);
            judged.by = if real { By::Processes } else { By::Simulated };
            judged.rule = check.words.clone();
            if let Some(better) = better {
                judged.rule.push_str(&format!("; better if {}", better.words));
            }
            if let Some(weaker) = rule.weaker {
                judged.rule.push_str(&format!(" (weaker than the register: {weaker})"));
            }
            let entry = format!("{}={}", rule.claim, digests.get(rule.claim).map_or("", String::as_str));
            judged.changed = check.figures.iter().any(|figure| {
                data.0
                    .get(figure.id)
                    .is_some_and(|grid| grid.says("rules").split(' ').all(|word| word != entry))
            });
            let found = settle(check, data);
            judged.ours = found.ours;
            judged.verdict = match found.settled {
                Ok(true)
                    if better.as_ref().is_some_and(|better| settle(better, data).settled == Ok(true)) =>
                {
                    Verdict::Better
                }
                Ok(true) => Verdict::Agrees,
                Ok(false) => Verdict::Differs,
                Err(reason) => {
                    judged.why =
                        format!("{reason}{}{}", if rule.why.is_empty() { "" } else { "; " }, rule.why);
                    Verdict::CannotBeJudged
                }
            };
        }
        Kind::Argued { ours, by, agrees } => {
            judged.by = By::Argument;
            judged.ours.clone_from(ours);
            judged.shown = by.clone();
            judged.verdict = if *agrees { Verdict::Agrees } else { Verdict::Differs };
            if rule.why.is_empty() && !agrees {
                judged.why = "on purpose".to_owned();
            }
        }
        Kind::Choice { ours } => {
            judged.by = By::Choice;
            judged.ours.clone_from(ours);
            judged.verdict = Verdict::Taken;
        }
        Kind::Unjudged => {}
    }
    judged
}

struct Found {
    ours: String,
    /// Whether the rule holds; why that cannot be said.
    settled: std::result::Result<bool, String>,
}

fn settle(check: &Check, data: &Data) -> Found {
    let Some((holds, ours)) = (check.judge)(data) else {
        return Found { ours: "nothing".to_owned(), settled: Err("not measured".to_owned()) };
    };
    let real: Vec<_> = check.figures.iter().filter(|figure| figure.time == Time::Real).collect();
    let grids = real.iter().filter_map(|figure| data.0.get(figure.id));
    let noisy = grids.into_iter().any(|grid| !grid.says("quiet").starts_with("yes"));
    let noise = || Err("the machine was not quiet".to_owned());
    if real.is_empty() || check.at_once {
        let open = || format!("fewer than {MANY} runs, or the interval of the median holds a bound");
        return Found { ours, settled: if noisy { noise() } else { holds.ok_or_else(open) } };
    }
    // Every run by itself; what is in virtual time stays as it is.
    let mut runs: Vec<u32> = Vec::new();
    for grid in real.iter().filter_map(|figure| data.0.get(figure.id)) {
        runs.extend(grid.runs());
    }
    runs.sort_unstable();
    runs.dedup();
    let alone = |run: &u32| {
        let mut data = data.clone();
        for figure in &real {
            if let Some(grid) = data.0.get_mut(figure.id) {
                *grid = grid.only(*run);
            }
        }
        (check.judge)(&data).map(|(holds, _)| holds == Some(true))
    };
    let each: Vec<_> = runs.iter().filter_map(alone).collect();
    let held = each.iter().filter(|holds| **holds).count();
    let ours = format!("{ours}; holds in {held} of {} runs", each.len());
    let settled = match held {
        _ if noisy => noise(),
        _ if each.len() < RUNS => Err(format!("{} runs, of which {RUNS} are needed", each.len())),
        all if all == each.len() => Ok(true),
        0 => Ok(false),
        _ => Err("the runs do not agree with each other".to_owned()),
    };
    Found { ours, settled }
}

#[cfg(test)]
mod tests {
    use super::super::argument;
    use super::super::grid::Figure;
    use super::super::grid::tests::{REAL, VIRTUAL, grid};
    use super::super::rule::rule;
    use super::*;

    fn read(figure: &'static Figure) -> super::super::rule::Values {
        figure.at("system", "a").of("read")
    }

    fn register(ids: &[&str]) -> Register {
        Register(ids.iter().map(|id| (id.to_string(), format!("text of {id}"))).collect())
    }

    /// Verdict, reason and whether the rule changed, of a rule on a grid.
    fn verdict(rule: Rule, figure: &'static Figure, head: &str, rows: &str) -> String {
        let data = Data([(figure.id, grid(figure, head, rows))].into());
        let digests = [(rule.claim.to_owned(), "1234".to_owned())].into();
        let judged = judge(&register(&[rule.claim]), &[rule], &digests, &data).unwrap().remove(0);
        let changed = if judged.changed { " (changed)" } else { "" };
        format!("{:?}: {}: {}{changed}", judged.verdict, judged.ours, judged.why)
    }

    #[test]
    fn virtual_time_is_decided_by_means_and_what_is_better_by_its_own_rule() {
        let head = "# rules: A-0=99 A-1=1234\n";
        let of = |check| verdict(rule("A-1", check).why("y"), &VIRTUAL, head, "a,1,1,2,0\na,1,2,4,0\n");
        assert_eq!(of(read(&VIRTUAL).at_most(3.0)), "Agrees: read (a): 3 ms: y");
        assert_eq!(of(read(&VIRTUAL).at_most(2.0)), "Differs: read (a): 3 ms: y");
        assert_eq!(
            of(VIRTUAL.at("system", "z").of("read").exists()),
            "CannotBeJudged: nothing: not measured; y"
        );
        let better = |limit| rule("A-1", read(&VIRTUAL).at_most(9.0)).better(read(&VIRTUAL).at_most(limit));
        let of = |rule| verdict(rule, &VIRTUAL, head, "a,1,1,2,0\n");
        assert_eq!(of(better(2.0)), "Better: read (a): 2 ms: ");
        assert_eq!(of(better(1.0)), "Agrees: read (a): 2 ms: ");
    }

    #[test]
    fn real_time_needs_a_quiet_machine_and_five_runs_that_agree() {
        let of = |head: &str, limit: f64, runs: u32| {
            let rows: String = (1..=runs).map(|run| format!("a,1,{run},{run},0\n")).collect();
            let head = format!("{head}# rules: A-1=1234\n");
            verdict(rule("A-1", read(&REAL).at_most(limit)).why("y"), &REAL, &head, &rows)
        };
        let quiet = "# quiet: yes\n";
        assert_eq!(of(quiet, 5.0, 5), "Agrees: read (a): 3 ms; holds in 5 of 5 runs: y");
        assert_eq!(of(quiet, 0.5, 5), "Differs: read (a): 3 ms; holds in 0 of 5 runs: y");
        assert!(
            of(quiet, 3.0, 5).starts_with("CannotBeJudged: read (a): 3 ms; holds in 3 of 5 runs: the runs")
        );
        assert!(of(quiet, 5.0, 4).contains("4 runs, of which 5 are needed"));
        assert!(of("# quiet: no\n", 5.0, 5).contains("the machine was not quiet"));
    }

    #[test]
    fn what_chance_decides_is_judged_by_the_interval_of_the_median_of_many_runs() {
        let of = |low: f64, high: f64, runs: u32| {
            let rows: String = (1..=runs).map(|run| format!("a,1,{run},{run},0\n")).collect();
            let rule = rule("A-1", read(&REAL).median_within(low, high)).why("y");
            verdict(rule, &REAL, "# quiet: yes\n# rules: A-1=1234\n", &rows)
        };
        let ours = "median of read (a): 10 ms (95%: 6 to 15, 20 runs)";
        assert_eq!(of(6.0, 15.0, 20), format!("Agrees: {ours}: y"));
        assert_eq!(of(6.0, f64::INFINITY, 20), format!("Agrees: {ours}: y"));
        assert_eq!(of(16.0, 30.0, 20), format!("Differs: {ours}: y"));
        assert!(of(7.0, 15.0, 20).starts_with("CannotBeJudged"));
        assert!(of(0.0, 99.0, 19).starts_with("CannotBeJudged"));
    }

    #[test]
    fn a_rule_that_has_changed_since_the_measurement_is_shown_as_such() {
        let of = |head| verdict(rule("A-1", read(&VIRTUAL).at_most(3.0)), &VIRTUAL, head, "a,1,1,2,0\n");
        assert!(!of("# rules: A-1=1234 A-2=1\n").ends_with("(changed)"));
        assert!(of("# rules: A-1=1235\n").ends_with("(changed)"));
        assert!(of("").ends_with("(changed)"));
    }

    #[test]
    fn every_claim_has_one_rule_and_every_difference_a_reason() {
        let error = |ids: &[&str], rules: &[Rule]| {
            judge(&register(ids), rules, &BTreeMap::new(), &Data::default()).unwrap_err()
        };
        let rules = |text| argument::parse(text).unwrap();
        assert_eq!(error(&["A-1", "A-2"], &rules("## A-1 taken over\nx")), "A-2: no rule");
        assert_eq!(
            error(&["A-1"], &rules("## A-1 taken over\nx\n## A-2 taken over\nx")),
            "A-2: the register has no such claim"
        );
        let twice = rules("## A-1 taken over\nx\n## A-1 taken over\nx");
        assert!(error(&["A-1"], &twice).contains("A-1: has two rules"));
        let measured = rule("A-1", read(&VIRTUAL).at_most(9.0));
        assert!(error(&["A-1"], &[measured]).contains("A-1: its rule is not found"));
        let judge = |ids: &[&str], rules: &[Rule]| {
            judge(&register(ids), rules, &BTreeMap::new(), &Data::default()).unwrap()
        };
        let bare = judge(&["A-1"], &rules("## A-1 cannot be judged here"));
        assert_eq!(without_reason(&bare), ["A-1: cannot be judged here, and no reason (`.why(…)`)"]);
        let all = rules(
            "## A-1 agrees\nx\n- shown by `f` `t`\n## A-2 differs\nx\n- why: y\n## A-3 taken over\nx\n\
             ## A-4 cannot be judged here\n- why: y",
        );
        let all = judge(&["A-1", "A-2", "A-3", "A-4"], &all);
        let seen: Vec<_> = all.iter().map(|judged| format!("{:?} {:?}", judged.by, judged.verdict)).collect();
        assert_eq!(seen, ["Argument Agrees", "Argument Differs", "Choice Taken", "Nothing CannotBeJudged"]);
    }
}
