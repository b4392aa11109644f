//! Claims that no numbers judge, as a Markdown file that a person reads: what is argued, chosen, or not judged.
//!
//! ```text
//! ## LG-S.2 agrees
//!
//! the stamp is taken in the step that appends
//!
//! - shown by `crates/sim/tests/mutations/raft.rs` `a_clock_that_is_read_before_a_pause`
//! - why: what a reader should know
//! ```

use super::Result;
use super::rule::{Kind, Rule, Shown};
use super::verdict::Verdict;

/// The rules of such a file. What stands above its first claim is for people; long lines are broken as Markdown has it.
pub fn parse(text: &'static str) -> Result<Vec<Rule>> {
    let mut rules: Vec<Rule> = Vec::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.is_empty()) {
        let wrong = |expected: &str| Err(format!("arguments, line {number}: {expected} expected: {line}"));
        if let Some(head) = line.strip_prefix("## ") {
            let (claim, verdict) = head.split_once(' ').unwrap_or((head, ""));
            let ours = String::new();
            let kind = match Verdict::ALL.into_iter().find(|of| of.words().trim_matches('*') == verdict) {
                Some(Verdict::Agrees) => Kind::Argued { ours, by: Vec::new(), agrees: true },
                Some(Verdict::Differs) => Kind::Argued { ours, by: Vec::new(), agrees: false },
                Some(Verdict::Taken) => Kind::Choice { ours },
                Some(Verdict::CannotBeJudged) => Kind::Unjudged,
                _ => return wrong("`## CLAIM`, and agrees, differs, taken over or cannot be judged here"),
            };
            rules.push(Rule { claim, kind, why: String::new(), weaker: None });
            continue;
        }
        let Some(rule) = rules.last_mut() else { continue };
        let quoted = |begin| line.strip_prefix(begin).and_then(|rest: &str| rest.strip_suffix('`'));
        if let (Kind::Argued { by, .. }, Some(shown)) = (&mut rule.kind, quoted("- shown by `")) {
            // A golden conversation is a test as a whole.
            let (file, test) = shown.split_once("` `").unwrap_or((shown, ""));
            by.push(Shown { file, test });
        } else if let (Kind::Argued { by, .. }, Some(test), true) =
            (&mut rule.kind, quoted("  `"), rule.why.is_empty())
            && let Some(shown) = by.last_mut()
        {
            shown.test = test;
        } else if let Some(why) = line.strip_prefix("- why: ") {
            why.clone_into(&mut rule.why);
        } else if !rule.why.is_empty() && line.starts_with("  ") {
            rule.why += &line[1..];
        } else if let (Kind::Argued { ours, .. } | Kind::Choice { ours }, false) =
            (&mut rule.kind, line.starts_with(['-', ' ']))
        {
            let space = if ours.is_empty() { "" } else { " " };
            *ours += space;
            *ours += line;
        } else {
            return wrong("what is so here, `- shown by …` of an argument, or `- why: …`");
        }
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_and_what_is_none_is_refused_with_its_line() {
        let text = "# X\n\nwords\n\n## A-1 agrees\n\nso\nit is\n\n\
                    - shown by `f.rs`\n  `t`\n- shown by `g.txt`\n- why: w\n  x\n\
                    ## A-2 taken over\n\nthus\n\n## A-3 cannot be judged here\n\n- why: no\n";
        let rules = parse(text).unwrap();
        let Kind::Argued { ours, by, agrees: true } = &rules[0].kind else { panic!("an argument") };
        let shown: Vec<_> = by.iter().map(|shown| (shown.file, shown.test)).collect();
        assert_eq!(
            (&ours[..], &rules[0].why[..], &shown[..]),
            ("so it is", "w x", &[("f.rs", "t"), ("g.txt", "")][..])
        );
        assert!(matches!(rules[1].kind, Kind::Choice { .. }));
        assert!(matches!(rules[2].kind, Kind::Unjudged) && rules[2].why == "no");
        let error = |text| parse(text).err().unwrap();
        assert!(error("## A-1 better\n").starts_with("arguments, line 1: `## CLAIM`, and agrees"));
        assert!(error("## A-1 agrees\none\n  two\n").starts_with("arguments, line 3: what is so"));
        assert!(error("## A-1 taken over\n- shown by `f`\n").starts_with("arguments, line 2"));
    }
}
