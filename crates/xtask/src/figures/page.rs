//! The page of a paper's figures: set-up, plots, numbers, and a verdict on every claim. Each section is kept as JSON
//! beside the page, so that one figure can be made again without the others.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Result;
use super::claims::Claims;
use super::table::Table;

/// What measurement or argument says of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// As the paper says.
    Agrees,
    /// More than the paper says.
    Better,
    /// Not as the paper says; the reason is with it.
    Differs,
    /// This machine or this program cannot tell; the reason is with it.
    NotJudged,
}

impl Verdict {
    const ALL: [Verdict; 4] = [Verdict::Agrees, Verdict::Better, Verdict::Differs, Verdict::NotJudged];

    fn words(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::Better => "better",
            Verdict::Differs => "**differs**",
            Verdict::NotJudged => "cannot be judged here",
        }
    }

    /// As arguments spell it.
    pub fn named(word: &str) -> Option<Verdict> {
        Verdict::ALL.into_iter().find(|verdict| verdict.words().trim_matches('*') == word)
    }

    /// Agrees if a condition on measured numbers holds, else differs.
    pub fn when(holds: bool) -> Verdict {
        if holds { Verdict::Agrees } else { Verdict::Differs }
    }
}

/// One claim, judged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Judged {
    /// Its ID.
    pub claim: String,
    /// What we saw, or what we did.
    pub ours: String,
    /// What comes of it.
    pub verdict: Verdict,
    /// The rule that decided, or the reason; what differs or cannot be judged needs one.
    pub why: String,
    /// The command, file or test that shows it; empty: the section's command.
    pub by: String,
}

/// One figure, or a part of the paper without one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Section {
    /// As `--only` spells it.
    pub id: String,
    /// For people.
    pub title: String,
    /// Parameters, and choices where the paper leaves them open.
    pub setup: Vec<String>,
    /// Files beside the page, and what they show.
    pub plots: Vec<(String, String)>,
    /// Numbers, and what they are.
    pub tables: Vec<(String, Table)>,
    /// Files of numbers beside the page.
    pub data: Vec<String>,
    /// Its claims.
    pub judged: Vec<Judged>,
    /// When, on what, how long; filled in by whoever runs it.
    pub made: String,
}

impl Section {
    /// An empty one.
    pub fn new(id: &str, title: &str) -> Section {
        Section { id: id.to_owned(), title: title.to_owned(), ..Section::default() }
    }

    /// One more line of the set-up.
    pub fn told(&mut self, text: impl Into<String>) {
        self.setup.push(text.into());
    }

    /// One more verdict.
    pub fn judge(&mut self, claim: &str, verdict: Verdict, ours: impl Into<String>, why: impl Into<String>) {
        self.judge_by(claim, verdict, ours, why, "");
    }

    /// The same, with what shows it.
    pub fn judge_by(
        &mut self,
        claim: &str,
        verdict: Verdict,
        ours: impl Into<String>,
        why: impl Into<String>,
        by: &str,
    ) {
        let [claim, by] = [claim, by].map(str::to_owned);
        self.judged.push(Judged { claim, ours: ours.into(), verdict, why: why.into(), by });
    }

    /// What was kept in a folder.
    pub fn load(folder: &Path, id: &str) -> Result<Option<Section>> {
        let path = folder.join(format!("{id}.json"));
        match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("{}: {error}", path.display())),
            Ok(text) => {
                serde_json::from_str(&text).map(Some).map_err(|error| format!("{}: {error}", path.display()))
            }
        }
    }

    /// Keeps it in a folder.
    pub fn store(&self, folder: &Path) -> Result<()> {
        let path = folder.join(format!("{}.json", self.id));
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        std::fs::write(&path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// What stands above the figures.
#[derive(Debug)]
pub struct Head {
    /// Of the page.
    pub title: String,
    /// What it is about, in a few lines.
    pub intro: String,
    /// The command that makes it.
    pub command: String,
    /// What the numbers belong to.
    pub machine: String,
}

/// The page. An error names every claim that no section judges, and every verdict on a claim that does not exist, is
/// judged twice, or lacks the reason that it needs.
pub fn render(head: &Head, claims: &Claims, sections: &[Section]) -> Result<String> {
    check(claims, sections)?;
    let Head { title, intro, command, machine } = head;
    let mut text = format!("# {title}\n\n{intro}\n\nMade by `{command}` on {machine}.\n\n");
    let judged = || sections.iter().flat_map(|section| &section.judged);
    let _ = writeln!(text, "{} claims:", judged().count());
    for verdict in Verdict::ALL {
        let ids: Vec<_> = judged().filter(|j| j.verdict == verdict).map(|j| j.claim.as_str()).collect();
        let list = match verdict {
            Verdict::Differs if !ids.is_empty() => format!(": {}", ids.join(", ")),
            _ => String::new(),
        };
        let _ = writeln!(text, "- {} {}{list}", ids.len(), verdict.words());
    }
    for section in sections {
        let _ = writeln!(text, "\n## {}\n", section.title);
        section.setup.iter().for_each(|line| text.push_str(&format!("- {line}\n")));
        if !section.made.is_empty() {
            let _ = writeln!(text, "- {}", section.made);
        }
        for (file, caption) in &section.plots {
            let _ = writeln!(text, "\n![{caption}]({file})");
        }
        for (what, table) in &section.tables {
            let _ = writeln!(text, "\n{what}\n\n{}", table.markdown().trim_end());
        }
        if !section.data.is_empty() {
            let links = section.data.iter().map(|file| format!("[{file}]({file})"));
            let _ = writeln!(text, "\nData: {}.", links.collect::<Vec<_>>().join(", "));
        }
        let mut table = Table::new(["claim", "the paper", "ours", "verdict", "why; shown by"]);
        for Judged { claim, ours, verdict, why, by } in &section.judged {
            let paper = claims.text(claim).unwrap_or_default().to_owned();
            let default = format!("`{command} --only {}`", section.id);
            let by = if by.is_empty() { default } else { by.clone() };
            let why = if why.is_empty() { by } else { format!("{why}; {by}") };
            table.row([claim.clone(), paper, ours.clone(), verdict.words().to_owned(), why]);
        }
        if !table.rows.is_empty() {
            let _ = writeln!(text, "\n{}", table.markdown().trim_end());
        }
    }
    Ok(text)
}

/// That every claim has one verdict, with what was seen, and with a reason where it needs one.
pub fn check(claims: &Claims, sections: &[Section]) -> Result<()> {
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for Judged { claim, ours, verdict, why, .. } in sections.iter().flat_map(|section| &section.judged) {
        if claims.text(claim).is_none() {
            wrong.push(format!("{claim}: there is no such claim"));
        }
        if !seen.insert(claim.as_str()) {
            wrong.push(format!("{claim}: judged twice"));
        }
        if matches!(verdict, Verdict::Differs | Verdict::NotJudged) && why.is_empty() {
            wrong.push(format!("{claim}: no reason given"));
        }
        if ours.is_empty() {
            wrong.push(format!("{claim}: nothing of ours"));
        }
    }
    wrong.extend(claims.ids().filter(|id| !seen.contains(id)).map(|id| format!("{id}: not judged")));
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!("the page is not complete:\n  {}", wrong.join("\n  ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims {
        Claims::parse("- LG-1.1 one\n- LG-1.2 two | three", "LG").unwrap()
    }

    fn head() -> Head {
        let [title, intro, command, machine] = ["T", "I", "cargo xtask figures x", "M"].map(str::to_owned);
        Head { title, intro, command, machine }
    }

    fn section(ids: &[&str]) -> Section {
        let mut section = Section::new("fig1", "Figure 1");
        ids.iter().for_each(|id| section.judge(id, Verdict::Agrees, "5", ""));
        section
    }

    #[test]
    fn every_claim_is_on_the_page_with_the_papers_words_and_ours() {
        let mut section = section(&["LG-1.1"]);
        section.judge_by("LG-1.2", Verdict::Differs, "6", "slower disk", "`some test`");
        let page = render(&head(), &claims(), &[section]).unwrap();
        assert!(
            page.contains("| LG-1.1 | one | 5 | agrees | `cargo xtask figures x --only fig1` |"),
            "{page}"
        );
        assert!(page.contains("| LG-1.2 | two \\| three | 6 | **differs** | slower disk; `some test` |"));
        assert!(page.contains("- 1 **differs**: LG-1.2"));
    }

    #[test]
    fn a_claim_without_a_verdict_and_a_verdict_without_a_claim_are_errors() {
        let error = |section| render(&head(), &claims(), &[section]).unwrap_err();
        assert!(error(section(&["LG-1.1"])).contains("LG-1.2: not judged"));
        assert!(error(section(&["LG-1.1", "LG-1.2", "LG-1.3"])).contains("LG-1.3: there is no such claim"));
        assert!(error(section(&["LG-1.1", "LG-1.1", "LG-1.2"])).contains("LG-1.1: judged twice"));
        let mut bare = section(&["LG-1.1"]);
        bare.judge("LG-1.2", Verdict::NotJudged, "-", "");
        assert!(error(bare).contains("LG-1.2: no reason given"));
    }

    #[test]
    fn a_section_is_read_back_as_it_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        let section = section(&["LG-1.1"]);
        section.store(folder.path()).unwrap();
        let back = Section::load(folder.path(), "fig1").unwrap().expect("it is there");
        assert_eq!(serde_json::to_string(&back).unwrap(), serde_json::to_string(&section).unwrap());
        assert!(Section::load(folder.path(), "fig2").unwrap().is_none());
    }
}
