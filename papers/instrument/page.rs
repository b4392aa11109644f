//! The page of a paper and its charts: a function of the register, the rules and the CSVs, so that judging again gives
//! the same bytes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use quorate_bench::chart;

use super::description::Description;
use super::grid::{Data, Figure, Grid, digits, table};
use super::register::Register;
use super::rule::{Kind, Rule};
use super::verdict::{self, By, Judged, Verdict};
use super::{Experiment, Paper, Result, source};

/// Size of one chart, in pixels.
const CHART: (u32, u32) = (460, 300);

/// The register of a paper.
pub fn register(root: &Path, paper: &Paper) -> Result<Register> {
    let text = read(&root.join(format!("papers/claims/{}.md", paper.name)))?;
    Register::parse(&text, paper.prefix)
}

/// The figures of a paper that have been measured.
pub fn data(folder: &Path, paper: &Paper) -> Result<Data> {
    let mut data = Data::default();
    for figure in paper.experiments.iter().flat_map(|experiment| experiment.figures) {
        let path = folder.join(format!("{}.csv", figure.id));
        if path.exists() {
            data.0.insert(figure.id, Grid::parse(figure.schema(), &read(&path)?)?);
        }
    }
    Ok(data)
}

/// The claims of a paper, judged.
fn judged(root: &Path, paper: &Paper, data: &Data) -> Result<Vec<Judged>> {
    let digests = source::digests(paper.rules_text);
    verdict::judge(&register(root, paper)?, &paper.rules()?, &digests, data)
}

/// The page and the charts, by the names of their files.
pub fn outputs(root: &Path, folder: &Path, paper: &Paper) -> Result<BTreeMap<String, String>> {
    let data = data(folder, paper)?;
    let judged = judged(root, paper, &data)?;
    let mut outputs = BTreeMap::new();
    for experiment in paper.experiments {
        if let Some((_, draw)) = experiment.charts.filter(|_| is_measured(experiment, &data)) {
            let charts = draw(&data);
            let columns = if charts.len() > 4 { 3 } else { charts.len().min(2) };
            outputs.insert(format!("{}.svg", experiment.id), chart::svg(&charts, columns, CHART)?);
        }
    }
    outputs.insert("README.md".to_owned(), page(paper, &data, &judged)?);
    Ok(outputs)
}

/// Everything that is wrong with a paper's folder: a page or chart that judging would not make, a file that belongs to
/// no figure, an argument whose test is not there.
pub fn check(root: &Path, paper: &Paper) -> Vec<String> {
    let folder = root.join(format!("docs/figures/{}", paper.name));
    let judged = data(&folder, paper).and_then(|data| judged(root, paper, &data));
    let (outputs, judged) = match outputs(root, &folder, paper).and_then(|outputs| Ok((outputs, judged?))) {
        Ok(both) => both,
        Err(error) => return vec![error],
    };
    let mut wrong = verdict::without_reason(&judged);
    for (name, text) in &outputs {
        if std::fs::read_to_string(folder.join(name)).ok().as_ref() != Some(text) {
            let again = format!("cargo xtask figures {} --judge", paper.name);
            wrong.push(format!("docs/figures/{}/{name} is not what `{again}` writes", paper.name));
        }
    }
    let figures = || paper.experiments.iter().flat_map(|experiment| experiment.figures);
    for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !outputs.contains_key(&name) && figures().all(|figure| name != format!("{}.csv", figure.id)) {
            wrong.push(format!("docs/figures/{}/{name} belongs to no figure", paper.name));
        }
    }
    wrong.extend(paper.rules().iter().flatten().flat_map(|rule| missing_tests(root, rule)));
    wrong
}

/// Tests that an argument names and that are not there.
fn missing_tests(root: &Path, rule: &Rule) -> Vec<String> {
    let Kind::Argued { by, agrees, .. } = &rule.kind else { return Vec::new() };
    let mut wrong = Vec::new();
    if by.is_empty() && *agrees {
        wrong.push(format!("{}: an argument without a test", rule.claim));
    }
    for shown in by {
        let text = std::fs::read_to_string(root.join(shown.file)).unwrap_or_default();
        let is_there = match shown.test {
            // A golden conversation is a test as a whole.
            "" => shown.file.contains("/traces/") && !text.is_empty(),
            test => text.contains(&format!("fn {test}(")) || text.contains(&format!("    {test}: \"")),
        };
        if !is_there {
            wrong.push(format!("{}: {} has no test `{}`", rule.claim, shown.file, shown.test));
        }
    }
    wrong
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn is_measured(experiment: &Experiment, data: &Data) -> bool {
    experiment.figures.iter().all(|figure| data.0.contains_key(figure.id))
}

fn page(paper: &Paper, data: &Data, judged: &[Judged]) -> Result<String> {
    let (name, description) = (paper.name, paper.description()?);
    let Description { title, intro, .. } = &description;
    let mut text = format!(
        "# {title}\n\n{intro}\n\nMade by `cargo xtask figures {name} --judge` from the CSVs beside it, the rules \
         in [rules.rs](../../../papers/{name}/rules.rs), and the arguments in \
         [arguments/{name}.md](../../../papers/arguments/{name}.md); \
         [papers/README.md](../../../papers/README.md) says how claims are judged.\n\n"
    );
    summary(&mut text, judged);
    for experiment in paper.experiments {
        let said = description.of(experiment.id)?;
        let _ = writeln!(text, "\n## {}\n", said.title);
        said.setup.iter().for_each(|item| text.push_str(&format!("- {item}\n")));
        section(&mut text, paper, (experiment, &description), data, judged);
    }
    let others: Vec<_> = judged.iter().filter(|judged| judged.figure.is_none()).collect();
    let _ = writeln!(
        text,
        "\n## Arguments and choices\n\nNo figure measures these. An argument names the tests that fail if it were \
         wrong; a choice answers what the paper leaves open.\n"
    );
    let rows = others.iter().map(|judged| {
        let shown = judged.shown.iter().map(|shown| match shown.test {
            "" => format!("`{}`", shown.file),
            test => format!("`{}` `{test}`", shown.file),
        });
        let by = shown.collect::<Vec<_>>().join(", ");
        let why = [judged.why.clone(), by].into_iter().filter(|text| !text.is_empty());
        vec![
            judged.claim.clone(),
            judged.paper.clone(),
            judged.ours.clone(),
            judged.verdict.words().to_owned(),
            why.collect::<Vec<_>>().join("; "),
        ]
    });
    table(&mut text, &["claim", "the paper", "ours", "verdict", "why; shown by"], rows);
    Ok(text)
}

/// How many claims are judged how, with which verdict.
fn summary(text: &mut String, judged: &[Judged]) {
    let _ = writeln!(text, "{} claims:\n", judged.len());
    let heads = ["judged by"].into_iter().chain(Verdict::ALL.map(Verdict::words)).collect::<Vec<_>>();
    let rows = By::ALL.iter().map(|by| {
        let count = |verdict: &Verdict| {
            let found = judged.iter().filter(|judged| judged.by == *by && judged.verdict == *verdict).count();
            if found == 0 { "·".to_owned() } else { found.to_string() }
        };
        [by.words().to_owned()].into_iter().chain(Verdict::ALL.iter().map(count)).collect()
    });
    table(text, &heads, rows);
    let mut list = |what: &str, of: &dyn Fn(&&Judged) -> bool| {
        let ids: Vec<_> = judged.iter().filter(of).map(|judged| judged.claim.as_str()).collect();
        if !ids.is_empty() {
            let _ = write!(text, "\n{what} ({}): {}.\n", ids.len(), ids.join(", "));
        }
    };
    list("Differs", &|judged| judged.verdict == Verdict::Differs);
    list("Judged by a rule that is weaker than the register's", &|judged| judged.weaker);
    list("Rule changed after the run that it judges", &|judged| judged.changed);
}

/// What was measured in an experiment, below how it was set up.
fn section(
    text: &mut String,
    paper: &Paper,
    (experiment, description): (&Experiment, &Description),
    data: &Data,
    judged: &[Judged],
) {
    match experiment.figures.first().and_then(|figure| data.0.get(figure.id)) {
        None => text.push_str("- not measured yet\n"),
        Some(grid) => measured(text, grid),
    }
    if let Some((caption, _)) = experiment.charts.filter(|_| is_measured(experiment, data)) {
        let _ = writeln!(text, "\n![{caption}]({}.svg)", experiment.id);
    }
    for figure in experiment.figures {
        if let (Some(caption), Some(grid)) = (description.table(figure.id), data.0.get(figure.id)) {
            numbers(text, figure, caption, grid);
        }
    }
    let files = experiment.figures.iter().filter(|figure| data.0.contains_key(figure.id));
    let links: Vec<_> = files.map(|figure| format!("[{0}.csv]({0}.csv)", figure.id)).collect();
    let again = format!("`cargo xtask figures {} --only {}`", paper.name, experiment.id);
    let data = if links.is_empty() { "none".to_owned() } else { links.join(", ") };
    let _ = writeln!(text, "\nData: {data}; measured by {again}.\n");
    let mine = |judged: &&Judged| {
        judged.figure.is_some_and(|id| experiment.figures.iter().any(|figure| figure.id == id))
    };
    let rows = judged.iter().filter(mine).map(|judged| {
        let changed = if judged.changed { "**Rule changed after the run.** " } else { "" };
        vec![
            judged.claim.clone(),
            judged.paper.clone(),
            judged.rule.clone(),
            judged.ours.clone(),
            judged.verdict.words().to_owned(),
            format!("{changed}{}", judged.why),
        ]
    });
    table(text, &["claim", "the paper", "rule", "ours", "verdict", "why"], rows);
}

/// What the head of a CSV says.
fn measured(text: &mut String, grid: &Grid) {
    let part = |name: &str| grid.says(name).to_owned();
    let _ = writeln!(
        text,
        "- measured {} at commit {}, judged by rules of commit {}, in {} time, on {}; took {}",
        part("measured"),
        part("commit"),
        part("rules commit"),
        part("time"),
        part("machine"),
        part("took")
    );
    if grid.says("time") == "real" {
        let _ =
            writeln!(text, "- quiet: {}; processors kept busy by others: {}", part("quiet"), part("load"));
    }
    if !grid.says("note").is_empty() {
        let _ = writeln!(text, "- {}", part("note"));
    }
}

/// The table of a figure's points.
fn numbers(text: &mut String, figure: &Figure, caption: &str, grid: &Grid) {
    let runs = grid.runs().len();
    let spread =
        if runs > 1 { format!(" Of {runs} runs, with the lowest and the highest.") } else { String::new() };
    let _ = writeln!(text, "\n{caption}{spread}\n");
    let number = |(name, unit): &(&str, &str)| match *unit {
        "" => name.replace('_', " "),
        unit => format!("{}, {unit}", name.replace('_', " ")),
    };
    let dims = figure.dims.iter().map(|dim| dim.replace('_', " "));
    let heads: Vec<_> = dims.chain(figure.numbers.iter().map(number)).collect();
    let rows = grid.points(figure.time).into_iter().map(|point| {
        let cells = point.cells.iter().map(|cell| cell.map_or("-".to_owned(), |cell| cell.shown(digits)));
        point.keys.iter().cloned().chain(cells).collect()
    });
    table(text, &heads.iter().map(String::as_str).collect::<Vec<_>>(), rows);
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::super::grid::tests::{VIRTUAL, grid};
    use super::super::rule::rule;
    use super::*;

    fn rules() -> Vec<Rule> {
        vec![rule("A-1.1", VIRTUAL.at("system", "a").of("read").at_most(1.0)).why("slower")]
    }

    const PAPER: Paper = Paper {
        name: "x",
        prefix: "A",
        experiments: &[Experiment {
            id: "virtual",
            figures: &[&VIRTUAL],
            charts: None,
            #[cfg(feature = "measure")]
            measure: |_| Ok(Vec::new()),
        }],
        descriptions: "# X\n\nIntro.\n\n## virtual: Figure 1\n\n- set-up\n\n### virtual\n\nNumbers\n",
        measured: rules,
        rules_text: "fn rules() {\n rule(\"A-1.1\")\n}",
        arguments: "## A-1.2 agrees\n\na | b\n\n- shown by `x.rs` `some_test`\n",
    };

    /// A repository with the paper, its register and its CSV.
    fn repository() -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        write(&dir, "papers/claims/x.md", "- A-1.1 one\n- A-1.2 two\n");
        let head = "# commit: abc\n# time: virtual\n";
        write(&dir, "docs/figures/x/virtual.csv", &grid(&VIRTUAL, head, "a,1,1,2,0\n").csv());
        write(&dir, "x.rs", "fn some_test() {}");
        dir
    }

    fn write(dir: &TempDir, name: &str, text: &str) {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn the_page_has_every_claim_with_its_rule_and_judging_again_gives_the_same() {
        let dir = repository();
        let folder = dir.path().join("docs/figures/x");
        let outputs = super::outputs(dir.path(), &folder, &PAPER).unwrap();
        let page = &outputs["README.md"];
        assert!(
            page.contains(
                "| A-1.1 | one | read (a) at most 1 ms | read (a): 2 ms | **differs** | \
                 **Rule changed after the run.** slower |"
            ),
            "{page}"
        );
        assert!(page.contains("| A-1.2 | two | a \\| b | agrees | `x.rs` `some_test` |"), "{page}");
        assert!(page.contains("Differs (1): A-1.1.") && page.contains("at commit abc"), "{page}");
        assert_eq!(
            check(dir.path(), &PAPER),
            ["docs/figures/x/README.md is not what `cargo xtask figures x --judge` writes"]
        );
        write(&dir, "docs/figures/x/README.md", page);
        assert_eq!(check(dir.path(), &PAPER), Vec::<String>::new());
    }

    #[test]
    fn a_file_without_a_figure_and_a_test_that_is_not_there_are_found() {
        let dir = repository();
        let folder = dir.path().join("docs/figures/x");
        write(
            &dir,
            "docs/figures/x/README.md",
            &super::outputs(dir.path(), &folder, &PAPER).unwrap()["README.md"],
        );
        write(&dir, "docs/figures/x/old.csv", "");
        write(&dir, "x.rs", "fn other_test() {}");
        assert_eq!(
            check(dir.path(), &PAPER),
            ["docs/figures/x/old.csv belongs to no figure", "A-1.2: x.rs has no test `some_test`"]
        );
    }
}
