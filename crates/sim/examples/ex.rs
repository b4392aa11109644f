//! scratch
use quorate_sim::explore::*;
fn main() {
    let mut b = Bounds::default();
    let mut mutation: Option<String> = None;
    let mut p = "mp".to_owned();
    for a in std::env::args().skip(1) {
        let (k, v) = a.split_once('=').unwrap();
        let n = || v.parse::<usize>().unwrap();
        match k {
            "nodes" => b.nodes = n(),
            "b" => b.ballots = n() as u8,
            "w" => b.writes = n(),
            "r" => b.reads = n(),
            "a" => b.asks = n() as u8,
            "f" => b.failures = n() as u8,
            "k" => b.wakes = n() as u8,
            "t" => b.ticks = n() as u8,
            "d" => b.reorder = v == "1",
            "o" => b.waiting = v == "0",
            "i" => b.facts = v == "1",
            "h" => b.hints = v == "1",
            "n" => b.states = n(),
            "m" => mutation = Some(v.to_owned()),
            "ro" => b.rosters.push(
                v.split('+').filter_map(|n| n.parse().ok().and_then(quorate_core::NodeId::new)).collect(),
            ),
            "p" => p = v.to_owned(),
            _ => b.settings.push(a),
        }
    }
    #[allow(clippy::disallowed_methods)]
    let t = std::time::Instant::now();
    let mut last = 0;
    let mut go = || {
        let mut f = |e: &Explored| {
            if e.states >= last * 2 {
                last = e.states;
                eprintln!(
                    "{} {} depth {} locals {:?} msgs {} t {:?}",
                    e.states,
                    e.steps,
                    e.depth,
                    e.machines,
                    e.messages,
                    t.elapsed()
                )
            }
        };
        match &p[..] {
            "raft" => explore::<quorate_protocols::raft::Raft>(&b, &mut f),
            "bodega" => explore::<quorate_protocols::bodega::Bodega>(&b, &mut f),
            _ => explore::<quorate_protocols::multipaxos::MultiPaxos>(&b, &mut f),
        }
    };
    #[cfg(feature = "mutations")]
    let r = match &mutation {
        None => go(),
        Some(m) => quorate_core::mutation::with(m, go),
    };
    #[cfg(not(feature = "mutations"))]
    let r = {
        assert!(mutation.is_none());
        go()
    };
    println!("{}", r.unwrap());
    println!("{:?}", t.elapsed());
}
