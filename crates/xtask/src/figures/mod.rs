//! `cargo xtask figures PAPER`: a paper's evaluation, made again here, and every claim of it judged.
//!
//! | file | what |
//! |---|---|
//! | `argued` | claims that are argued, not measured |
//! | `claims` | the register of claims |
//! | `table` | CSV and Markdown |
//! | `page` | sections, verdicts, the page; a claim without a verdict is an error |
//! | `series` | percentiles and means |
//! | `bodega` | the figures of Bodega |
//!
//! A paper is a name, a register of claims and a list of figures ([`Paper`]); charts are `quorate_bench::chart`,
//! runs in virtual time `quorate_sim::experiment`.

mod argued;
mod bodega;
mod claims;
mod page;
mod series;
mod table;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use quorate_bench::chart::{self, Chart};

use crate::compare::machine;
use crate::compare::processes::{Result, Stop};
use claims::Claims;
use page::{Head, Section};
use table::Table;

/// A paper whose evaluation is made again.
struct Paper {
    /// As the command line, the register and the folder spell it.
    name: &'static str,
    /// Of the page.
    title: &'static str,
    intro: &'static str,
    /// Every ID of a claim begins with it.
    prefix: &'static str,
    figures: &'static [Figure],
}

/// A section of its page.
struct Figure {
    id: &'static str,
    make: fn(&Bench) -> Result<Section>,
}

const PAPERS: &[Paper] = &[bodega::PAPER];

/// What a figure is made with.
struct Bench {
    /// Smaller, to see that it works.
    quick: bool,
    /// Where files go.
    out: PathBuf,
    stop: Stop,
}

impl Bench {
    fn say(&self, text: &str) -> Result<()> {
        eprintln!("  {text}");
        self.stop.check()
    }

    /// Writes a table beside the page.
    fn csv(&self, section: &mut Section, name: &str, table: &Table) -> Result<()> {
        self.write(name, &table.csv())?;
        section.data.push(name.to_owned());
        Ok(())
    }

    /// Draws panels beside the page.
    fn plot(
        &self,
        section: &mut Section,
        name: &str,
        caption: &str,
        charts: &[Chart],
        columns: usize,
    ) -> Result<()> {
        self.write(name, &chart::svg(charts, columns, (460, 300))?)?;
        section.plots.push((name.to_owned(), caption.to_owned()));
        Ok(())
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.out.join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    }
}

const USAGE: &str = "usage: cargo xtask figures PAPER [--only IDS] [--quick] [--out DIR] [--claims FILE]
  PAPER          bodega
  --only IDS     figures to make again, separated by commas; of the others the last results are taken
  --quick        small runs, to see that it works; not into the repository unless --out says so
  --out DIR      where files go [default: docs/figures/PAPER]
  --claims FILE  the register of claims [default: papers/claims/PAPER.md]";

#[derive(Debug)]
struct Options {
    paper: String,
    only: Option<Vec<String>>,
    quick: bool,
    out: Option<PathBuf>,
    claims: Option<PathBuf>,
}

/// Makes figures.
pub fn figures(words: &[String]) -> ExitCode {
    if words.iter().any(|word| word == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let options = match parse(words) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let result = match cfg!(debug_assertions) {
        true => run_fast(words),
        false => run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("figures: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Simulations take ten times as long without optimization: the same command, with it.
fn run_fast(words: &[String]) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--release", "-q", "-p", "xtask", "--", "figures"]).args(words);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("see above".to_owned()),
        Err(error) => Err(format!("cannot run cargo: {error}")),
    }
}

fn parse(words: &[String]) -> Result<Options> {
    let mut words = words.iter();
    let paper = words.next().ok_or("which paper?")?.clone();
    let mut options = Options { paper, only: None, quick: false, out: None, claims: None };
    while let Some(word) = words.next() {
        if word == "--quick" {
            options.quick = true;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{word}: what?"))?;
        match word.as_str() {
            "--only" => options.only = Some(value.split(',').map(|id| id.trim().to_owned()).collect()),
            "--out" => options.out = Some(PathBuf::from(value)),
            "--claims" => options.claims = Some(PathBuf::from(value)),
            _ => return Err(format!("{word}: not understood")),
        }
    }
    Ok(options)
}

fn run(options: &Options) -> Result<()> {
    let known = || PAPERS.iter().map(|paper| paper.name).collect::<Vec<_>>().join(", ");
    let paper = PAPERS.iter().find(|paper| paper.name == options.paper);
    let paper = paper.ok_or_else(|| format!("no paper `{}`; there are: {}", options.paper, known()))?;
    let Paper { name, figures, .. } = paper;
    let wanted = |id: &str| options.only.as_ref().is_none_or(|only| only.iter().any(|word| word == id));
    for id in options.only.iter().flatten() {
        if figures.iter().all(|figure| figure.id != id) {
            let ids: Vec<_> = figures.iter().map(|figure| figure.id).collect();
            return Err(format!("no figure `{id}`; there are: {}", ids.join(", ")));
        }
    }
    let root = crate::root();
    let register = options.claims.clone().unwrap_or_else(|| register(paper));
    // Read first: a page that cannot be judged is not worth the wait.
    let claims = read(&register, paper)?;
    let out = match (&options.out, options.quick) {
        (Some(out), _) => out.clone(),
        (None, true) => std::env::temp_dir().join(format!("figures-{name}")),
        (None, false) => root.join(format!("docs/figures/{name}")),
    };
    std::fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let bench = Bench { quick: options.quick, out, stop: Stop::listen()? };
    let (began, mut sections) = (Instant::now(), Vec::new());
    for figure in figures.iter() {
        if wanted(figure.id) {
            eprintln!("{}: begins", figure.id);
            let start = Instant::now();
            let mut section = (figure.make)(&bench)?;
            section.made = made(start, options.quick);
            section.store(&bench.out)?;
            eprintln!("{}: done in {:.0?}", figure.id, start.elapsed());
            sections.push(section);
        } else if let Some(section) = Section::load(&bench.out, figure.id)? {
            sections.push(section);
        } else {
            eprintln!("{}: never made, so the page stays as it is", figure.id);
        }
    }
    if sections.len() < figures.len() {
        return Ok(());
    }
    let head = Head {
        title: paper.title.to_owned(),
        intro: paper.intro.to_owned(),
        command: format!("cargo xtask figures {name}"),
        machine: machine::describe(),
    };
    bench.write("README.md", &page::render(&head, &claims, &sections)?)?;
    eprintln!("{} in {:.0?}", bench.out.join("README.md").display(), began.elapsed());
    Ok(())
}

/// Where the claims of a paper are listed.
fn register(paper: &Paper) -> PathBuf {
    crate::root().join(format!("papers/claims/{}.md", paper.name))
}

fn read(register: &Path, paper: &Paper) -> Result<Claims> {
    let text =
        std::fs::read_to_string(register).map_err(|error| format!("{}: {error}", register.display()))?;
    Claims::parse(&text, paper.prefix)
}

fn made(start: Instant, quick: bool) -> String {
    let root = crate::root().to_string_lossy().into_owned();
    let commit = machine::first_line("git", &["-C", &root, "rev-parse", "--short", "HEAD"]);
    let date = machine::first_line("date", &["-u", "+%F %H:%M UTC"]);
    let took = start.elapsed().as_secs_f64();
    let mut text = format!("made {date} at commit {commit}, in {took:.1} s");
    if quick {
        text.push_str("; **quick: the numbers are worth little**");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_claim_of_a_register_is_judged_once_on_the_committed_page() {
        for paper in PAPERS {
            let claims = read(&register(paper), paper).unwrap();
            let folder = crate::root().join(format!("docs/figures/{}", paper.name));
            let section = |figure: &Figure| {
                Section::load(&folder, figure.id).unwrap().unwrap_or_else(|| panic!("no {}.json", figure.id))
            };
            let sections: Vec<_> = paper.figures.iter().map(section).collect();
            page::check(&claims, &sections).unwrap();
        }
    }
}
