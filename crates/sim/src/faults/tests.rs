//! What seeds draw.

use super::*;

fn scope(end: Nanos) -> Scope {
    let can = Capabilities {
        membership: true,
        transfer: true,
        rejoin: true,
        rosters: true,
        ..Capabilities::LOGGED
    };
    Scope { nodes: 3, hosts: 5, can, end }
}

#[test]
fn every_kind_is_drawn_by_some_seeds_and_left_out_by_others() {
    let mut drawn = Counts::default();
    for seed in 0..1000 {
        Plan::draw(Faults::ALL, scope(SECOND), seed).kinds.iter().for_each(|kind| drawn.add(kind));
    }
    for &kind in Kind::ALL {
        let times = drawn.of(kind);
        match kind.on_demand() {
            true => assert_eq!(times, 0, "{} only on demand", kind.name()),
            false => assert!((300..600).contains(&times), "{} in {times} of 1000", kind.name()),
        }
    }
}

#[test]
fn only_groups_that_can_change_are_changed() {
    let all: KindSet = Kind::ALL.iter().copied().collect();
    let fixed = Scope { can: Capabilities::LOGGED, ..scope(SECOND) };
    let plan = Plan::draw(Faults::Only(all), fixed, 1);
    let possible = |kind: Kind| kind.possible(&Capabilities::LOGGED);
    assert!(plan.kinds.iter().all(possible));
    assert!(plan.schedule.iter().all(|fault| possible(fault.kind)));
}

#[test]
fn leaving_one_kind_out_leaves_the_others_as_they_were() {
    for seed in 0..100 {
        let with: KindSet = [Kind::LostNodes, Kind::LostLinks].into_iter().collect();
        let all = Plan::draw(Faults::Swarm { with, without: KindSet::default() }, scope(10 * SECOND), seed);
        let without = Faults::Only(all.kinds.without(Kind::LostNodes));
        let without = Plan::draw(without, scope(10 * SECOND), seed);
        let mut others = all.impairments.clone();
        others.retain(|impairment| impairment.kind != Kind::LostNodes);
        assert_eq!((&without.schedule, without.impairments), (&all.schedule, others));
        assert!(all.lost_links.is_some_and(|lost| lost.at <= 10 * SECOND));
        assert_eq!(without.lost_links, all.lost_links);
        let same = Plan::draw(Faults::Only(all.kinds), scope(10 * SECOND), seed);
        assert_eq!((&same.schedule, same.kinds), (&all.schedule, all.kinds));
        assert_eq!(same.impairments, all.impairments);
        let fewer = Plan::draw(Faults::Only(all.kinds.without(Kind::Crashes)), scope(10 * SECOND), seed);
        let mut rest = all.schedule.clone();
        rest.retain(|fault| fault.kind != Kind::Crashes);
        assert_eq!((&fewer.schedule, fewer.impairments), (&rest, all.impairments));
        assert!(rest.iter().all(|fault| fault.at < 10 * SECOND));
    }
}

#[test]
fn faults_are_read_as_they_are_written() {
    for text in [
        "all",
        "none",
        "loss,crashes",
        "clocks-beyond-bound",
        "all,rates",
        "all,lost-links",
        "all,loss,lost-nodes",
        "all,-loss,-lost-nodes",
        "all,loss,-crashes",
    ] {
        assert_eq!(text.parse::<Faults>().unwrap().to_string(), text);
    }
    assert!("loss,rust".parse::<Faults>().unwrap_err().to_string().starts_with("`rust` is no kind"));
}
