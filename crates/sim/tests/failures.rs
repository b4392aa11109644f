//! The simulator notices what is broken, and says how to see it again.

use std::fmt::Debug;

use quorate_core::{
    Capabilities, Configs, Context, Group, Machine, Never, ProcessId, Protocol, Proxy, Request, RequestId,
    Saved, Settings, SettingsError,
};
use quorate_protocols::unreplicated::{Message, Replica, Unreplicated};
use quorate_runtime::{AnyProtocol, protocol};
use quorate_sim::{Options, sim};

/// Unreplicated with a client side that is broken in one of these ways.
struct Broken<const PANICS: bool>;
const PANICS: bool = true;
const IS_SILENT: bool = false;

impl<const PANICS: bool> Protocol for Broken<PANICS> {
    const NAME: &'static str = "broken";
    const PAPER: &'static str = "none";
    const CAPABILITIES: Capabilities = Unreplicated::CAPABILITIES;
    type Message = Message;
    type Replica = Replica;
    type Proxy = BrokenProxy<PANICS>;

    fn configure(group: &Group, settings: &mut Settings) -> Result<Configs<Self>, SettingsError> {
        Ok((Unreplicated::configure(group, settings)?.0, ()))
    }
}

#[derive(Debug)]
struct BrokenProxy<const PANICS: bool> {
    requests: u64,
}

impl<const PANICS: bool> Machine for BrokenProxy<PANICS> {
    type Config = ();
    type Message = Message;
    type Record = Never;
    type Timer = Never;
    fn recover((): (), _: Saved<Never>, _: &mut Context<'_, Self>) -> Self {
        BrokenProxy { requests: 0 }
    }
    fn on_message(&mut self, _: ProcessId, _: Message, _: &mut Context<'_, Self>) {}
    fn on_timer(&mut self, timer: Never, _: &mut Context<'_, Self>) {
        match timer {}
    }
    fn check(&self) {
        assert!(!PANICS || self.requests < 3, "three requests are too many");
    }
}

impl<const PANICS: bool> Proxy for BrokenProxy<PANICS> {
    fn on_request(&mut self, _: RequestId, _: Request, _: &mut Context<'_, Self>) {
        self.requests += 1;
    }
}

fn violation(protocol: &dyn AnyProtocol) -> String {
    let options = Options { nodes: 1, runs: 1, ..Options::default() };
    let summary = sim(protocol, &options, &mut |_| {}).unwrap();
    summary.failures[0].violation.to_string()
}

#[test]
fn a_failed_assertion_is_a_violation_with_its_place() {
    let found = violation(protocol::<Broken<PANICS>>());
    assert!(found.contains("assertion") && found.contains("three requests are too many"), "{found}");
    assert!(found.contains("failures.rs"), "{found}");
}

#[test]
fn a_proxy_that_does_not_answer_by_the_deadline_is_a_violation() {
    let found = violation(protocol::<Broken<IS_SILENT>>());
    assert!(found.contains("was not answered by its deadline"), "{found}");
}

/// Weakens a rule, so that there is something to shrink.
#[cfg(feature = "mutations")]
#[test]
fn a_failing_run_is_shrunk_to_options_that_give_the_same_failure_again() {
    use quorate_protocols::registry::named;
    use quorate_sim::Faults;
    use quorate_sim::faults::Kind;
    use quorate_sim::run;
    use quorate_sim::trace::Trace;

    quorate_core::mutation::with("now/AcceptReply", || {
        let options = Options { runs: 2000, ..Options::default() };
        let summary = sim(named("multipaxos"), &options, &mut |_| {}).unwrap();
        let [failure] = &summary.failures[..] else { panic!("{summary}") };
        assert_eq!(failure.violation.checker, failure.found.checker);
        let smaller = &failure.options;
        let Faults::Only(kinds) = smaller.faults else { panic!("kinds that do not matter are on") };
        assert!(kinds.iter().count() < Kind::ALL.len() / 2, "{}", smaller.faults);
        assert!(smaller.clients < options.clients || smaller.until.is_some(), "{smaller:?}");

        let again = run(named("multipaxos"), smaller, failure.seed, Trace::silent()).unwrap();
        assert_eq!(again.violation.as_ref(), Some(&failure.violation));
        // Facts of the same step may come behind it.
        assert!(failure.tail.iter().rev().take(8).any(|line| line.contains(failure.violation.checker)));
        let line = failure.replay_line();
        let start = format!("quorate replay --protocol multipaxos --seed {} ", failure.seed);
        assert!(line.starts_with(&start) && line.contains(&format!("--faults {}", smaller.faults)), "{line}");
    });
}
