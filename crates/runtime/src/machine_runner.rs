//! One machine with everything that its driver keeps for it.

use quorate_core::{Context, Instant, Machine, Outbox, ProcessId, Random, Saved, Time, Timers};

/// See the file comment.
#[derive(Debug)]
pub struct MachineRunner<M: Machine> {
    /// The replica or proxy that it is.
    pub me: ProcessId,
    /// The machine, for questions; inputs go through [`step`](Self::step).
    pub machine: M,
    /// What it has asked for and nobody has taken yet. Timers and barriers are taken after each step.
    pub out: Outbox<M>,
    /// When the timers are due that it has set.
    pub timers: Timers<M::Timer>,
    random: Random,
    at: Time,
    has_open_batch: bool,
    /// Records that stand for a state, and have not been taken, counted as [`Outbox::persisted`] does.
    barriers: Vec<u64>,
    last_barrier: u64,
}

impl<M: Machine> MachineRunner<M> {
    /// Recovers a machine. With `observed` it states facts, and its invariants are checked after every step.
    pub fn start(
        me: ProcessId,
        config: M::Config,
        saved: Saved<M::Record>,
        at: Instant,
        mut random: Random,
        observed: bool,
    ) -> Self {
        let mut out = Outbox::new(observed);
        let machine = M::recover(config, saved, &mut Context::new(me, at, &mut random, &mut out));
        let mut runner = MachineRunner {
            me,
            machine,
            out,
            timers: Timers::default(),
            random,
            at: at.now,
            has_open_batch: true,
            barriers: Vec::new(),
            last_barrier: 0,
        };
        runner.after_step();
        runner
    }

    /// One step at an instant, which was read after the input was taken.
    pub fn step(&mut self, at: Instant, input: impl FnOnce(&mut M, &mut Context<'_, M>)) {
        input(&mut self.machine, &mut Context::new(self.me, at, &mut self.random, &mut self.out));
        self.has_open_batch = true;
        self.at = at.now;
        self.after_step();
    }

    /// Ends the batch, if there was an input since it was last ended.
    pub fn end_batch(&mut self, at: Instant) {
        if self.has_open_batch {
            self.step(at, |machine, cx| machine.on_batch_end(cx));
            self.has_open_batch = false;
        }
    }

    /// Whether there was an input since the last end of a batch.
    pub fn has_open_batch(&self) -> bool {
        self.has_open_batch
    }

    /// When its last step began.
    pub fn last_step(&self) -> Time {
        self.at
    }

    /// Takes the barriers of the steps since the last call.
    pub fn take_barriers(&mut self) -> impl Iterator<Item = u64> {
        self.barriers.drain(..)
    }

    /// Draws from this generator from now on.
    pub fn reseed(&mut self, random: Random) {
        self.random = random;
    }

    fn after_step(&mut self) {
        for (timer, deadline) in self.out.timers.drain(..) {
            self.timers.apply(timer, deadline);
        }
        if self.out.barrier > self.last_barrier {
            self.last_barrier = self.out.barrier;
            self.barriers.push(self.last_barrier);
        }
        if self.out.observed {
            self.machine.check();
        }
    }
}
