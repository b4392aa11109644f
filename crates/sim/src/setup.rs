//! What the machines of a run are told: settings that are given, and others that each seed draws.

use std::time::Duration;

use quorate_blocks::leases::record::longest_lease;
use quorate_blocks::reach::{Reach, Timeouts};
use quorate_check::service::Limits;
use quorate_core::settings::parse_duration;
use quorate_core::{Consistency, Group, NodeId, NodeSet, Random, Settings, SettingsError};
use quorate_runtime::AnyProtocol;

use crate::cluster::GroupConfigs;
use crate::faults::Kind;
use crate::options::Options;

/// The longest one-way delay of hosts that are far from each other without a topology.
const FAR: Duration = Duration::from_millis(25);

/// Clock rates stay within 1±this where a protocol has no lease to derive it from.
const DEFAULT_DRIFT: f64 = 0.02;

/// Settings that push a protocol into its corners, where it knows them: little is kept, batched, or under way. A name
/// without a value is a setting that it must know for the others to be drawn.
const CORNERS: &[(f64, &[&str])] = &[
    (0.2, &["log.retain=0"]),
    (0.3, &["log.retain=1KiB"]),
    (0.2, &["batch.entries=1"]),
    (0.2, &["batch.entries=3"]),
    (0.2, &["pipeline=1"]),
    (0.2, &["pipeline=4"]),
    (0.15, &["reads=log"]),
    (0.3, &["leaseguard.extend", "lease.duration=1s"]),
    (0.2, &["reads.at=nearest"]),
    (0.1, &["conflicts.keys=8"]),
    (0.2, &["leaseguard.extend=demand"]),
    (0.1, &["leaseguard.deferred_commit=false"]),
    (0.1, &["leaseguard.inherited_reads=false"]),
];

/// Short waits, for more elections in a run. Not where messages take longer than that.
const QUICK: &[&str] = &[
    "heartbeat=10ms",
    "election.timeout=50ms",
    "recovery.timeout=50ms",
    "lease.guard=60ms",
    "lease.duration=100ms",
    "lease.drift=4ms",
    "proxy.patience=40ms",
];

/// What is told of votes is told in many parts. The last to be drawn: seeds are what they were without it.
const PARTS: (f64, &[&str]) = (0.3, &["prepare.bytes=1"]);

/// What the machines are told.
pub(crate) struct Setup {
    /// The configurations at each reach that the run may come to, the shortest first.
    pub by_reach: Vec<GroupConfigs>,
    /// The same with other waits, where an operator changes these and the run has any.
    pub others: Option<Vec<GroupConfigs>>,
    pub timeouts: Option<Timeouts>,
    /// The bound on clock rates that they promise to survive.
    pub drift: f64,
    /// How long a message takes between the two hosts that are furthest from each other, if no fault slows links.
    pub furthest: Duration,
    /// Their settings, as `key=value`.
    pub words: Vec<String>,
    /// What holds of reads under these settings.
    pub consistency: Consistency,
}

/// Each seed draws settings of its own, except for those that are given.
pub(crate) fn configure(
    protocol: &dyn AnyProtocol,
    options: &Options,
    far: bool,
    mut random: Random,
) -> Result<Setup, SettingsError> {
    let group = Group { diskless: options.diskless, ..Group::of(members(options.nodes)) };
    let mut given = Settings::parse(&options.settings)?;
    let timeouts = match Timeouts::take(&mut given)? {
        Some(timeouts) if options.diskless => Some(Timeouts::stated(Some(timeouts))?),
        timeouts => timeouts,
    };
    protocol.configure(&group, &mut given)?;
    given.finish()?;
    let mut words = options.settings.clone();
    let first = timeouts.map_or(Reach::SHORTEST, Timeouts::least);
    // What is drawn counts as stated, which wins over distances.
    let grows = timeouts == Some(Timeouts::Auto) || options.faults.named().contains(Kind::LongerTimeouts);
    let is_thin = options.faults.named().contains(Kind::ThinLinks);
    let may_be_quick = !(far || is_thin || grows || first > Reach::SHORTEST);
    let quick = (if may_be_quick { 0.5 } else { 0.0 }, QUICK);
    let known = |word: &&str| given.effective().contains_key(word.split('=').next().unwrap_or_default());
    for (chance, corner) in CORNERS.iter().chain([&quick, &PARTS]) {
        if !random.chance(*chance) {
            continue;
        }
        if corner.iter().any(|word| !word.contains('=') && !known(word)) {
            continue;
        }
        let drawn = corner.iter().filter(|word| word.contains('=') && known(word)).map(ToString::to_string);
        // Of two values the later is taken: what is given wins.
        let more: Vec<_> = drawn.chain(words.iter().cloned()).collect();
        let mut settings = Settings::parse(&more)?;
        // Unless what was drawn does not go together with the rest.
        if protocol.configure(&group, &mut settings).is_ok() {
            words = more;
        }
    }
    let furthest = options.topology.as_ref().map(|(_, topology)| topology.furthest()).unwrap_or_default();
    let furthest = if far { furthest.max(FAR) } else { furthest };
    let grown = (first, if grows { Reach::MOST_MEASURED.max(first) } else { first });
    let (by_reach, drift, consistency) = tell(protocol, (&group, &words), grown, furthest)?;
    let mut setup = Setup { by_reach, others: None, timeouts, drift, furthest, words, consistency };
    if may_be_quick && options.faults.named().contains(Kind::OtherSettings) {
        let quick: Vec<_> = QUICK.iter().filter(|word| known(word)).map(ToString::to_string).collect();
        let is_quick = setup.words.len() > options.settings.len() && setup.words.contains(&quick[0]);
        let words: Vec<_> = match is_quick {
            true => setup.words.iter().filter(|word| !quick.contains(word)).cloned().collect(),
            false => quick.iter().chain(&setup.words).cloned().collect(),
        };
        // Unless these do not go together with the rest.
        if let Ok((others, drift, _)) = tell(protocol, (&group, &words), grown, furthest) {
            setup = Setup { others: Some(others), drift: setup.drift.min(drift), ..setup };
        }
    }
    Ok(setup)
}

/// What the machines of a group make of these settings at each reach, the bound on clock rates that they survive from
/// the first reach to the last, and what holds of reads.
fn tell(
    protocol: &dyn AnyProtocol,
    (group, words): (&Group, &[String]),
    (first, last): (Reach, Reach),
    furthest: Duration,
) -> Result<(Vec<GroupConfigs>, f64, Consistency), SettingsError> {
    let mut settings = Settings::parse(words)?;
    Timeouts::take(&mut settings)?;
    let each =
        |group: &Group| Reach::configure_each(&settings, |settings| protocol.configure(group, settings));
    let rejoining = match protocol.capabilities().rejoin {
        // Refused where the group is too small.
        true => each(&Group { rejoining: true, ..group.clone() }).ok(),
        false => None,
    };
    let (members, joining) = (each(group)?, each(&Group { joining: true, ..group.clone() })?);
    let consistency = (protocol.capabilities().consistency)(&members[0].1);
    let digest = members[0].1.digest();
    // Of each group of replicas at each reach that the run may come to.
    let reaches = Reach::all().filter(|reach| (first..=last).contains(reach));
    let drifts = reaches.flat_map(|reach| {
        let settings = &settings;
        protocol.groups().into_iter().filter_map(move |protocol| {
            let mut own = settings.clone();
            reach.suggest(&mut own);
            protocol.configure(group, &mut own).ok()?;
            Some(declared_drift(&own))
        })
    });
    let drift = drifts.reduce(f64::min).unwrap_or(DEFAULT_DRIFT);
    let by_reach =
        members.into_iter().zip(joining).enumerate().map(|(reach, ((configs, settings), joining))| {
            let rejoining = rejoining.as_ref().map(|each| each[reach].0.clone());
            let limits = Limits::of(|name| duration(&settings, name), furthest);
            let longest = longest_lease(settings.effective());
            GroupConfigs { configs, joining: joining.0, rejoining, limits, settings: digest, longest }
        });
    Ok((by_reach.collect(), drift, consistency))
}

/// The ids of a group of so many nodes.
pub(crate) fn members(nodes: usize) -> NodeSet {
    (1..=nodes as u64).map(|id| NodeId::new(id).expect("few nodes")).collect()
}

/// A setting in force that is a duration.
fn duration(settings: &Settings, name: &str) -> Option<Duration> {
    let text = settings.effective().get(name)?;
    parse_duration(text)
}

/// The bound ρ on clock rates for which the lease settings in force suffice, with rates within 1±ρ. Promises, and a
/// lease that lies in the log: Δ on both sides, so Δ at least ρ·lease. A lease that lies in election timeouts: Δ on
/// one side, so Δ at least 2ρ·lease.
fn declared_drift(settings: &Settings) -> f64 {
    let take = |name: &str| duration(settings, name).map(|duration| duration.as_secs_f64());
    let ongaro = settings.effective().get("reads").is_some_and(|reads| reads == "ongaro-lease");
    let promises = settings.effective().contains_key("lease.guard");
    let most = match (take("lease.drift"), take("lease.duration")) {
        (Some(margin), _) if ongaro => margin / take("election.timeout").unwrap_or(1.0) / 2.0,
        (Some(margin), Some(lease)) if lease > 0.0 && (promises || margin > 0.0) => margin / lease,
        _ => return DEFAULT_DRIFT,
    };
    // A little less, for what is rounded.
    0.99 * most
}
