//! A **reach** is the round trip between two members that a group's timeouts are made for. Groups whose members are
//! near each other have the defaults of their protocol. Those that are further apart have the timeouts of the Bodega
//! paper (§3.3.3, §6), and longer ones in proportion where its rule (a heartbeat above the usual round trip, the rest
//! far above a heartbeat) asks for them.
//!
//! Problem: nodes measure round trips while they run, and these change. But a lease is a promise between two clocks:
//! whoever is bound by it must be bound for at least as long as it is believed in, and a node that restarts must wait
//! until all that it has promised before is over. The same holds for election timeouts that stand for leases, and for
//! leases that lie in the log.
//!
//! Solution: a process has one reach from its start to its end, and messages pass only between processes of the same
//! reach. A data directory remembers the longest that its node has heard of or needs, durably; it never becomes
//! shorter ([`Memory`](crate::admission::Memory)). When nodes connect, whoever has the shorter reach remembers the
//! longer one and starts again. To run with longer timeouts is therefore a restart and nothing else, which every
//! protocol survives:
//!
//! - *A promise that was made at one reach is believed at the same reach only.* The message that renews it passes
//!   between processes of one reach, and neither side keeps promises beyond its end.
//! - *Who restarts waits long enough.* It waits for the longest promise of its present reach, which is no shorter than
//!   one of an earlier life.
//! - *Who leads at the longer reach was elected there.* Each member of its majority has waited since it left the
//!   shorter reach. Nobody leads at the shorter one any more, because a majority there would share a member with this
//!   one, and that member cannot come back.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use quorate_core::settings::parse_duration;
use quorate_core::wire::{Decoder, Encoder};
use quorate_core::{NodeId, NodeSet, Settings, SettingsError, Wire, WireError};

/// Timeouts of the paper, in milliseconds, by the names of settings.
const PAPERS: [(&str, u64); 7] = [
    ("heartbeat", 120),
    ("election.timeout", 1200),
    ("lease.guard", 2500),
    ("lease.duration", 2500),
    ("lease.drift", 100),
    // A write may wait for the trip to the leader and for its quorum; then a proxy asks again.
    ("proxy.patience", 1000),
    // "All protocols send immediate Commit notifications" (§6): reads far away wait for them.
    ("commit.delay", 0),
];

/// Timeouts, in milliseconds, whose defaults suit the paper's distances and that grow with longer ones.
const GROWING: [(&str, u64); 3] = [("recovery.timeout", 500), ("responder.timeout", 1000), ("unhold", 300)];

/// A class of round trips; see the file comment. Longer ones are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reach(u8);

impl Reach {
    /// The defaults of the protocols.
    pub const SHORTEST: Reach = Reach(0);
    /// The timeouts of the Bodega paper.
    pub const PAPERS: Reach = Reach(1);
    /// The longest that measuring leads to: a link that is slow for a while must not make leases of half a minute, and
    /// no two places on earth are further apart. Longer ones are stated.
    pub const MOST_MEASURED: Reach = Reach(2);
    /// The longest reach: round trips of up to 1920 ms.
    pub const LONGEST: Reach = Reach(4);

    /// All, from the shortest.
    pub fn all() -> impl Iterator<Item = Reach> {
        (Reach::SHORTEST.0..=Reach::LONGEST.0).map(Reach)
    }

    /// The shortest whose timeouts fit this round trip; the longest, if none does.
    pub fn of(round_trip: Duration) -> Reach {
        Reach::all().find(|reach| round_trip <= reach.round_trip()).unwrap_or(Reach::LONGEST)
    }

    /// The longest round trip that its timeouts fit: twice the paper's heartbeat, for the paper's; a quarter of the
    /// default election timeout, for the defaults.
    pub fn round_trip(self) -> Duration {
        match self.factor() {
            0 => Duration::from_millis(120),
            factor => Duration::from_millis(240) * factor,
        }
    }

    /// The one after this; none after the longest.
    pub fn next(self) -> Option<Reach> {
        Some(Reach(self.0 + 1)).filter(|next| *next <= Reach::LONGEST)
    }

    /// Its place among [`all`](Self::all).
    pub fn index(self) -> usize {
        self.0.into()
    }

    /// How many times as long its timeouts are as the paper's; 0 for the shortest, which has the defaults.
    fn factor(self) -> u32 {
        match self {
            Reach::SHORTEST => 0,
            Reach(longer) => 1 << (longer - 1),
        }
    }

    /// Its timeouts by the names of settings, of all protocols; none for the shortest.
    pub fn timeouts(self) -> impl Iterator<Item = (&'static str, Duration)> {
        let factor = self.factor();
        let papers = PAPERS.iter().filter(move |_| factor > 0);
        let growing = GROWING.iter().filter(move |_| factor > 1);
        papers.chain(growing).map(move |(name, millis)| (*name, Duration::from_millis(*millis) * factor))
    }

    /// Makes its timeouts the defaults, where a protocol knows them.
    pub fn suggest(self, settings: &mut Settings) {
        for (name, timeout) in self.timeouts() {
            settings.suggest(name, &format!("{}ms", timeout.as_millis()));
        }
    }

    /// What `configure` makes of these settings at each reach, in order, with the settings in force. Where those that
    /// are given do not go together with a longer reach, it has what the one before it has. The error is that of the
    /// shortest.
    pub fn configure_each<C: Clone>(
        settings: &Settings,
        configure: impl Fn(&mut Settings) -> Result<C, SettingsError>,
    ) -> Result<Vec<(C, Settings)>, SettingsError> {
        let mut all: Vec<(C, Settings)> = Vec::new();
        for reach in Reach::all() {
            let mut settings = settings.clone();
            reach.suggest(&mut settings);
            let configured = configure(&mut settings).and_then(|made| settings.finish().map(|()| made));
            match (configured, all.last()) {
                (Ok(made), _) => all.push((made, settings)),
                (Err(_), Some(before)) => all.push(before.clone()),
                (Err(error), None) => return Err(error),
            }
        }
        Ok(all)
    }
}

/// For each reach the shortest that has the same settings in force, of what [`Reach::configure_each`] has made: where
/// all timeouts are given, distances make no difference.
pub fn alike<C>(configured: &[(C, Settings)]) -> Vec<Reach> {
    let same = |settings: &Settings| {
        let first = configured.iter().position(|(_, other)| other.effective() == settings.effective());
        Reach(first.unwrap_or_default() as u8)
    };
    configured.iter().map(|(_, settings)| same(settings)).collect()
}

impl Wire for Reach {
    fn encode(&self, out: &mut Encoder) {
        self.0.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        match u8::decode(input)? {
            class if class <= Reach::LONGEST.0 => Ok(Reach(class)),
            class => Err(WireError::Value { what: "class of round trips", found: class.into() }),
        }
    }
}

/// The setting `timeouts` of a process: where its timeouts come from, unless they are given one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeouts {
    /// From the round trips that it measures, and from what others have measured.
    Auto,
    /// From this reach, or a longer one that others have. It measures nothing.
    Reach(Reach),
}

impl Timeouts {
    /// Takes `timeouts`; none if it is not given. Members may differ in it: the longest reach counts.
    pub fn take(settings: &mut Settings) -> Result<Option<Timeouts>, SettingsError> {
        let longest = Reach::LONGEST.round_trip();
        let expected = format!(
            "auto, or the longest round trip between two members, such as 221ms, up to {}ms",
            longest.as_millis()
        );
        settings.take_own("timeouts", &expected, |text| match text {
            "auto" => Some(Timeouts::Auto),
            text => parse_duration(text)
                .filter(|round_trip| *round_trip <= longest)
                .map(|round_trip| Timeouts::Reach(Reach::of(round_trip))),
        })
    }

    /// Those of nodes that lose their data with each restart: none may start again because of a round trip.
    pub fn stated(given: Option<Timeouts>) -> Result<Timeouts, SettingsError> {
        match given {
            Some(Timeouts::Auto) => Err(SettingsError::Conflict(
                "timeouts=auto starts nodes again when they find out how far they are from each other, and with \
                 --durability none they would all lose their data: give the longest round trip, such as timeouts=221ms"
                    .to_owned(),
            )),
            given => Ok(given.unwrap_or(Timeouts::Reach(Reach::SHORTEST))),
        }
    }

    /// The reach that a new data directory begins with.
    pub fn least(self) -> Reach {
        match self {
            Timeouts::Auto => Reach::SHORTEST,
            Timeouts::Reach(reach) => reach,
        }
    }
}

/// How many round trips to a member are measured before they count; drivers measure these one after the other.
pub const ENOUGH: usize = 4;

/// Of so many the shortest counts. A process or a link that is slow for a while is not far away.
const LATEST: usize = 16;

/// The round trips to the other members, as a process has measured them.
#[derive(Clone, Debug, Default)]
pub struct RoundTrips(BTreeMap<NodeId, VecDeque<Duration>>);

impl RoundTrips {
    /// One to this member.
    pub fn note(&mut self, node: NodeId, took: Duration) {
        let latest = self.0.entry(node).or_default();
        latest.push_back(took);
        if latest.len() > LATEST {
            latest.pop_front();
        }
    }

    /// The shortest of the latest round trips to a member; none until there are [`ENOUGH`].
    fn to(&self, node: NodeId) -> Option<Duration> {
        let latest = self.0.get(&node).filter(|latest| latest.len() >= ENOUGH)?;
        latest.iter().min().copied()
    }

    /// That of the member that is furthest away, among these.
    pub fn furthest(&self, members: NodeSet) -> Option<Duration> {
        members.iter().filter_map(|node| self.to(node)).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_round_trip_has_the_shortest_reach_that_fits_it() {
        let of = |millis| Reach::of(ms(millis)).round_trip();
        let found = [0, 120, 121, 221, 240, 241, 480, 481, 1920, 9999].map(of);
        assert_eq!(found, [120, 120, 240, 240, 240, 480, 480, 960, 1920, 1920].map(ms));
        let reaches: Vec<_> = Reach::all().collect();
        assert!(reaches.is_sorted() && reaches[Reach::PAPERS.index()] == Reach::PAPERS);
        assert_eq!(Reach::LONGEST.next(), None);
    }

    /// A restarted grantor waits for the promises of its present reach, which must cover those of a shorter one; and
    /// clocks may gain on each other as much as before.
    #[test]
    fn no_timeout_is_shorter_at_a_longer_reach_and_margins_grow_with_leases() {
        let named = |reach: Reach, name: &str| reach.timeouts().find(|(known, _)| *known == name).unwrap().1;
        let all: Vec<_> = Reach::all().skip(1).collect();
        for pair in all.windows(2) {
            for (name, timeout) in pair[0].timeouts() {
                assert!(timeout <= named(pair[1], name), "{name}");
            }
        }
        for reach in all {
            assert!(named(reach, "lease.drift") * 25 >= named(reach, "lease.duration"));
            assert!(named(reach, "heartbeat") * 2 >= reach.round_trip());
            assert!(named(reach, "heartbeat") * 10 <= named(reach, "election.timeout"));
        }
    }

    #[test]
    fn settings_that_are_given_win_at_every_reach() {
        let configure = |settings: &mut Settings| {
            let election = settings.duration("election.timeout", "500ms", "a timeout")?;
            let heartbeat = settings.duration("heartbeat", "100ms", "a timeout")?;
            let conflict = SettingsError::Conflict("election.timeout is too short".to_owned());
            if election < 3 * heartbeat { Err(conflict) } else { Ok((election, heartbeat)) }
        };
        let of = |words: &[&str]| Reach::configure_each(&Settings::parse(words).unwrap(), configure);
        let made = |words: &[&str]| -> Vec<_> {
            let all = of(words).unwrap().into_iter();
            all.map(|((election, heartbeat), _)| (election.as_millis(), heartbeat.as_millis())).collect()
        };
        assert_eq!(made(&[]), [(500, 100), (1200, 120), (2400, 240), (4800, 480), (9600, 960)]);
        assert_eq!(
            made(&["election.timeout=1s"]),
            [(1000, 100), (1000, 120), (1000, 240), (1000, 240), (1000, 240)],
            "where they do not go together, those of the reach before"
        );
        let alike = |words: &[&str]| alike(&of(words).unwrap());
        assert_eq!(alike(&[]), Reach::all().collect::<Vec<_>>());
        assert_eq!(alike(&["election.timeout=1s"]), [0, 1, 2, 2, 2].map(Reach));
        assert_eq!(alike(&["election.timeout=1s", "heartbeat=20ms"]), [Reach::SHORTEST; 5]);
        let in_force = &of(&[]).unwrap()[1].1;
        assert_eq!(in_force.effective()["heartbeat"], "120ms");
        assert_eq!(in_force.described()["heartbeat"].default, "100ms");
        assert!(of(&["election.timeout=200ms"]).is_err() && of(&["heartbeats=1s"]).is_err());
    }

    #[test]
    fn timeouts_come_from_measuring_or_from_a_stated_round_trip() {
        let take = |words: &[&str]| {
            let mut settings = Settings::parse(words).unwrap();
            let taken = Timeouts::take(&mut settings);
            assert_eq!(settings.digest(), Settings::default().digest(), "members may differ in it");
            taken
        };
        assert_eq!(take(&[]), Ok(None));
        assert_eq!(take(&["timeouts=auto"]), Ok(Some(Timeouts::Auto)));
        assert_eq!(take(&["timeouts=221ms"]), Ok(Some(Timeouts::Reach(Reach::PAPERS))));
        for wrong in ["timeouts=far", "timeouts=221", "timeouts=1921ms", "timeouts="] {
            let error = take(&[wrong]).unwrap_err().to_string();
            assert!(error.contains("such as 221ms, up to 1920ms"), "{error}");
        }
    }

    #[test]
    fn a_member_is_as_far_as_the_shortest_of_its_latest_round_trips() {
        let node = |id| NodeId::new(id).unwrap();
        let (near, far) = (node(2), node(3));
        let both: NodeSet = [near, far].into_iter().collect();
        let mut measured = RoundTrips::default();
        for took in [900, 221, 900] {
            measured.note(far, ms(took));
            assert_eq!(measured.furthest(both), None, "too few");
        }
        measured.note(far, ms(900));
        assert_eq!(measured.furthest(both), Some(ms(221)));
        (0..ENOUGH).for_each(|_| measured.note(near, ms(1)));
        assert_eq!(measured.furthest(both), Some(ms(221)));
        assert_eq!(measured.furthest([near].into_iter().collect()), Some(ms(1)));
        (0..LATEST).for_each(|_| measured.note(far, ms(500)));
        assert_eq!(measured.furthest(both), Some(ms(500)), "it has moved");
    }

    #[test]
    fn a_reach_that_this_version_does_not_know_is_no_reach() {
        for reach in Reach::all() {
            assert_eq!(Reach::from_bytes(reach.to_bytes()), Ok(reach));
        }
        assert!(Reach::from_bytes(5u8.to_bytes()).is_err());
    }
}
