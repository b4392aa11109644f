//! Papers whose evaluations are measured again: `cargo xtask figures`.
//!
//! | folder | what |
//! |---|---|
//! | `arguments` | what no numbers judge |
//! | `bodega` | the figures and rules of Bodega |
//! | `claims` | the registers: what each paper claims |
//! | `crossword` | the figures and rules of Crossword |
//! | `descriptions` | what the pages say of each experiment |
//! | `instrument` | what measures and judges, whatever the paper |
//! | `law` | the figures and rules of the LAW theorem and almost-local reads |
//! | `leaseguard` | the figures and rules of LeaseGuard |

mod bodega;
mod crossword;
mod instrument;
mod law;
mod leaseguard;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::LazyLock;

use instrument::{Paper, Result, page};

const PAPERS: &[Paper] = &[bodega::PAPER, crossword::PAPER, law::PAPER, leaseguard::PAPER];

const USAGE: &str = "usage: cargo xtask figures PAPER [--only IDS] [--quick] [--out DIR]
       cargo xtask figures PAPER --judge
       cargo xtask figures --check
  PAPER       bodega, crossword, law or leaseguard: measures its figures, and judges its claims
  --only IDS  experiments to measure again, separated by commas; the others stay as they are
  --quick     small runs, to see that it works; not into the repository unless --out says so
  --out DIR   where files go [default: docs/figures/PAPER]
  --judge     measures nothing: judges the claims by the CSVs again, writes page and charts
  --check     writes nothing: every claim has a verdict, every verdict a rule, every CSV its page";

#[derive(Debug, Default)]
struct Options {
    paper: String,
    only: Option<Vec<String>>,
    quick: bool,
    judge: bool,
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let result = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--help"] => {
            println!("{USAGE}");
            Ok(())
        }
        ["--check"] => check(),
        _ => parse(&words).map_err(|error| format!("{error}\n{USAGE}")).and_then(|options| run(&options)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("figures: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(words: &[String]) -> Result<Options> {
    let mut words = words.iter();
    let mut options = Options { paper: words.next().ok_or("which paper?")?.clone(), ..Options::default() };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word}: what?"));
        match word.as_str() {
            "--quick" => options.quick = true,
            "--judge" => options.judge = true,
            "--only" => options.only = Some(value()?.split(',').map(|id| id.trim().to_owned()).collect()),
            "--out" => options.out = Some(PathBuf::from(value()?)),
            _ => return Err(format!("{word}: not understood")),
        }
    }
    Ok(options)
}

/// The repository for which cargo runs this: clones may share a target folder.
fn root() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        let package =
            std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        Path::new(&package).join("..")
    });
    &ROOT
}

fn check() -> Result<()> {
    let wrong: Vec<_> = PAPERS.iter().flat_map(|paper| page::check(root(), paper)).collect();
    match wrong.is_empty() {
        true => {
            println!("figures: every claim of {} papers has its verdict", PAPERS.len());
            Ok(())
        }
        false => Err(wrong.join("\n")),
    }
}

fn run(options: &Options) -> Result<()> {
    let known = || PAPERS.iter().map(|paper| paper.name).collect::<Vec<_>>().join(", ");
    let paper = PAPERS.iter().find(|paper| paper.name == options.paper);
    let paper = paper.ok_or_else(|| format!("no paper `{}`; there are: {}", options.paper, known()))?;
    let out = match (&options.out, options.quick) {
        (Some(out), _) => out.clone(),
        (None, true) => std::env::temp_dir().join(format!("figures-{}", paper.name)),
        (None, false) => root().join(format!("docs/figures/{}", paper.name)),
    };
    std::fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    if !options.judge {
        measure(paper, options, &out)?;
    }
    for (name, text) in page::outputs(root(), &out, paper)? {
        let path = out.join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    println!("{}", out.join("README.md").display());
    Ok(())
}

#[cfg(feature = "measure")]
fn measure(paper: &Paper, options: &Options, out: &Path) -> Result<()> {
    instrument::measure::measure(paper, options.only.as_deref(), options.quick, out)
}

#[cfg(not(feature = "measure"))]
fn measure(_: &Paper, _: &Options, _: &Path) -> Result<()> {
    Err("this was built without what measures (the feature `measure`)".to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_claim_has_its_verdict_and_every_page_follows_from_its_csvs() {
        super::check().unwrap();
    }
}
