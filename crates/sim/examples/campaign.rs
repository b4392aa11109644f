//! campaign NODES FIRST RUNS FAULTS [mutation=NAME] [key=value…]: prints the first violation.
use quorate_protocols::epaxos::Epaxos;
use quorate_sim::trace::Trace;
use quorate_sim::{Options, run};
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut mutation = String::new();
    let mut settings = Vec::new();
    for word in &args[4..] {
        match word.strip_prefix("mutation=") {
            Some(name) => mutation = name.to_owned(),
            None => settings.push(word.clone()),
        }
    }
    let options = Options { nodes: args[0].parse().unwrap(), faults: args[3].parse().unwrap(), settings, ..Options::default() };
    let (first, runs): (u64, u64) = (args[1].parse().unwrap(), args[2].parse().unwrap());
    let (mut found, mut ops, mut undecided) = (0, 0, 0);
    for seed in first..first + runs {
        let start = std::time::Instant::now();
        let go = || run::<Epaxos>(&options, seed, Trace::silent()).unwrap();
        #[cfg(feature = "mutations")]
        let run = quorate_core::mutation::with(&mutation, go);
        #[cfg(not(feature = "mutations"))]
        let run = go();
        ops += run.operations;
        undecided += u64::from(run.undecided);
        if start.elapsed().as_secs() >= 5 { println!("seed {seed} took {:?}, {} events", start.elapsed(), run.events); }
        if let Some(violation) = run.violation {
            found += 1;
            println!("seed {seed}: {:.300}", violation.to_string());
            if !mutation.is_empty() || found > 4 { break; }
        }
    }
    println!("{mutation} nodes {} {} settings {:?}: {found} violations, {ops} operations, {undecided} undecided", args[0], args[3], options.settings);
}
