//! How a replica has served reads, counted under the same names in every protocol.

use quorate_core::{Count, DurationStat, Sample};

/// See the file comment.
#[derive(Debug, Default)]
pub struct Served {
    /// Answered from the own state alone, at once.
    pub local: Count,
    /// The same after a hold, or given up after one.
    pub held: DurationStat,
    /// Reads that were sent to another replica.
    pub refused: Count,
    /// As the leader: answered when a slot was executed, a held read's or one of its own.
    pub waited: Count,
    /// Answered from a state that may be as old as their clients allow.
    pub bounded: Count,
}

impl Served {
    /// `holding`: how many are held at the moment.
    pub fn samples(&self, holding: usize) -> [Sample; 7] {
        [
            Sample::counter(
                "reads_local_total",
                self.local.get(),
                "Reads answered at once from the own state.",
            ),
            Sample::counter(
                "reads_held_total",
                self.held.count(),
                "Reads held for a write that ended or failed.",
            ),
            Sample::gauge("reads_holding", holding, "Reads held for a write at the moment."),
            Sample::counter(
                "reads_hold_seconds_total",
                self.held.total(),
                "How long reads were held, together.",
            ),
            Sample::counter("reads_refused_total", self.refused.get(), "Reads that others have to answer."),
            Sample::counter(
                "reads_waited_total",
                self.waited.get(),
                "Reads that waited for a slot at the leader.",
            ),
            Sample::counter(
                "reads_bounded_total",
                self.bounded.get(),
                "Reads that a state of bounded age answered.",
            ),
        ]
    }
}
