//! The loop: one thread that waits for sockets, reads replies, draws operations and writes them.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use quorate_core::Random;
use quorate_tls::Heard;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use crate::connection::{Connection, Flight, Socket};
use crate::reply::Reply;
use crate::report::Report;
use crate::schedule::Schedule;
use crate::stats::Stats;
use crate::trace::End;
use crate::work::{Op, Work};
use crate::{Options, report};

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Nobody listens.
    #[error("cannot reach {0}: {1}")]
    Unreachable(SocketAddr, io::Error),
    /// There is nobody to talk to.
    #[error("no endpoints")]
    NoEndpoints,
    /// Nothing was loaded for a while.
    #[error("loading makes no progress; errors so far: {0:?}")]
    Stuck(std::collections::BTreeMap<String, u64>),
    /// The system refuses what the loop needs.
    #[error("the event loop failed: {0}")]
    Io(#[from] io::Error),
}

/// How long the first connection may take.
const REACH: Duration = Duration::from_secs(3);
/// A run begins when all connections are up, or after this.
const GATHER: u64 = NANOS;
/// A connection that failed is opened again after this.
const AGAIN: u64 = 100_000_000;
/// How often connections, timeouts and progress are looked at.
const UPKEEP: u64 = 5_000_000;
/// What an open loop has sent may still be answered so long after the end.
const DRAIN: u64 = 2 * NANOS;
/// Loading that gets nothing done for this long is given up.
const STUCK: u64 = 30 * NANOS;
/// Requests under way on each connection when loading.
const LOAD_DEPTH: usize = 16;
const NANOS: u64 = 1_000_000_000;
const TIMER: Token = Token(usize::MAX);

/// Writes every key once. When `stop` is set, it ends with what it has written.
pub fn load(options: &Options, stop: &AtomicBool) -> Result<Report, BenchError> {
    let mut random = Random::new(options.seed);
    let work = Work::load(options, random.fork());
    let options = Options {
        rate: None,
        warm_up: Duration::ZERO,
        duration: Duration::MAX,
        pipeline: options.pipeline.max(LOAD_DEPTH),
        ..options.clone()
    };
    Engine::new(&options, stop, work, None)?.run(true)
}

/// Runs the workload. When `stop` is set, it ends then, and the report is of what was measured so far.
pub fn run(options: &Options, stop: &AtomicBool) -> Result<Report, BenchError> {
    let mut random = Random::new(options.seed.wrapping_add(1));
    let work = Work::mix(options, random.fork());
    let schedule = options.rate.map(|rate| Schedule::new(options.arrivals, rate, random.fork()));
    Engine::new(options, stop, work, schedule)?.run(false)
}

struct Engine<'a> {
    options: &'a Options,
    stop: &'a AtomicBool,
    poll: Poll,
    timer: Option<OwnedFd>,
    /// The arrival that the timer waits for.
    armed: u64,
    connections: Vec<Connection>,
    /// Connections that can take a request: of an open loop only.
    ready: VecDeque<usize>,
    work: Work,
    schedule: Option<Schedule>,
    stats: Stats,
    buffer: Vec<u8>,
    /// Where nanoseconds are counted from.
    begin: Instant,
    /// When counting begins and ends.
    window: (u64, u64),
    running: bool,
    in_flight: usize,
    done: u64,
    cpu: Duration,
    next_tick: u64,
}

impl<'a> Engine<'a> {
    fn new(
        options: &'a Options,
        stop: &'a AtomicBool,
        work: Work,
        schedule: Option<Schedule>,
    ) -> Result<Engine<'a>, BenchError> {
        reach(&options.endpoints)?;
        let poll = Poll::new()?;
        let timer = match &schedule {
            None => None,
            Some(_) => {
                let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK)
                    .map_err(io::Error::from)?;
                poll.registry().register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE)?;
                Some(timer)
            }
        };
        let connections = (0..options.connections)
            .map(|index| Connection::new(index % options.endpoints.len(), options.pipeline));
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let warm = nanos(options.warm_up);
        Ok(Engine {
            options,
            stop,
            poll,
            timer,
            armed: u64::MAX,
            connections: connections.collect(),
            ready: VecDeque::with_capacity(options.connections),
            work,
            schedule,
            stats: Stats::new(options.progress, options.trace),
            buffer: vec![0; 256 << 10],
            begin: Instant::now(),
            window: (warm, warm.saturating_add(nanos(options.duration))),
            running: false,
            in_flight: 0,
            done: 0,
            cpu: Duration::ZERO,
            next_tick: NANOS,
        })
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    fn run(mut self, loading: bool) -> Result<Report, BenchError> {
        let mut events = Events::with_capacity(1024);
        while self.now() < GATHER && self.connections.iter().any(|connection| !connection.is_up()) {
            self.reopen(self.now());
            self.turn(&mut events, 10_000_000)?;
        }
        self.begin = Instant::now();
        if let Some(trace) = &mut self.stats.trace {
            let wall = clock_gettime(ClockId::Realtime);
            trace.begin(wall.tv_sec as u64 * NANOS + wall.tv_nsec as u64);
        }
        self.running = true;
        self.stats.errors.clear();
        for index in 0..self.connections.len() {
            if let Socket::Down(again) = &mut self.connections[index].socket {
                *again = 0;
            }
            self.feed(index, 0);
        }
        let (mut upkeep, mut warm, mut progress) = (0, false, (0, 0));
        loop {
            let now = self.now();
            let stopped = self.stop.load(Ordering::Relaxed);
            if stopped {
                self.window.1 = now.clamp(self.window.0, self.window.1);
            }
            let end = self.window.1;
            if !warm && now >= self.window.0 {
                warm = true;
                self.cpu = cpu();
            }
            if stopped || now >= end || loading && self.done == self.options.keys {
                break;
            }
            if now >= upkeep {
                upkeep = now + UPKEEP;
                self.upkeep(now);
                if self.done > progress.0 {
                    progress = (self.done, now);
                } else if loading && now - progress.1 > STUCK {
                    return Err(BenchError::Stuck(self.stats.errors));
                }
            }
            self.issue(now);
            let next = self.arm(now)?;
            self.turn(&mut events, next.min(end - now))?;
        }
        let elapsed = self.now().saturating_sub(self.window.0);
        let cpu = cpu().saturating_sub(self.cpu);
        if self.schedule.is_some() {
            self.drain(&mut events)?;
        }
        let counted = elapsed.min(self.window.1 - self.window.0);
        let mut report = report::make(self.options, &self.stats, counted, cpu);
        report.trace = self.stats.trace;
        Ok(report)
    }

    /// Waits for answers to what an open loop has sent, and charges what it could not send or get answered.
    fn drain(&mut self, events: &mut Events) -> io::Result<()> {
        let end = self.window.1;
        self.running = false;
        self.issue(end);
        while self.in_flight > 0 && self.now() < end.saturating_add(DRAIN) {
            self.turn(events, 10_000_000)?;
        }
        let now = self.now();
        let flights = self.connections.iter().flat_map(|connection| &connection.flight);
        let mut left: Vec<_> = flights.map(|flight| (flight.task.op, flight.start)).collect();
        if let Some(schedule) = &mut self.schedule {
            while schedule.peek() < end {
                let start = schedule.pop();
                left.extend(self.work.draw().map(|task| (task.op, start)));
            }
        }
        for (op, start) in left {
            // At least so long: leaving them out would hide the stall that kept them.
            self.stats.ops[op as usize].saturating_record(now - start);
            self.stats.unfinished += 1;
            self.stats.trace(op, start, now, End::Unfinished);
        }
        Ok(())
    }

    /// Waits for sockets, at most so many nanoseconds, and serves them.
    fn turn(&mut self, events: &mut Events, nanos: u64) -> io::Result<()> {
        match self.poll.poll(events, Some(Duration::from_nanos(nanos))) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result?,
        }
        for event in events.iter().filter(|event| event.token() != TIMER) {
            self.serve(event);
        }
        Ok(())
    }

    /// Sets the timer for the next arrival; gives how long to wait at most.
    fn arm(&mut self, now: u64) -> io::Result<u64> {
        const LONGEST: u64 = UPKEEP;
        let (Some(timer), Some(schedule)) = (&self.timer, &self.schedule) else { return Ok(LONGEST) };
        // Without a connection to send on, an answer comes first.
        if self.ready.is_empty() {
            return Ok(LONGEST);
        }
        let next = schedule.peek();
        let wait = next.saturating_sub(now).max(1);
        if wait < LONGEST && self.armed != next {
            self.armed = next;
            let spec = Itimerspec {
                it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
                it_value: Timespec { tv_sec: (wait / NANOS) as i64, tv_nsec: (wait % NANOS) as i64 },
            };
            timerfd_settime(timer, TimerfdTimerFlags::empty(), &spec)?;
        }
        Ok(LONGEST)
    }

    /// Reads and answers what one socket has.
    fn serve(&mut self, event: &Event) {
        let index = event.token().0;
        if !self.connections[index].is_up() {
            match self.connections[index].opened(self.options.tls.as_ref()) {
                Ok(true) => {
                    if let Some(login) = &self.options.login {
                        self.connections[index].authenticate(login);
                    }
                    self.feed(index, self.now());
                }
                Ok(false) => {}
                Err(error) => self.fail(index, "connect", &error),
            }
            return;
        }
        if event.is_writable()
            && let Err(error) = self.connections[index].flush()
        {
            return self.fail(index, "connection", &error);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            let mut buffer = std::mem::take(&mut self.buffer);
            let result = self.read(index, &mut buffer);
            self.buffer = buffer;
            if let Err(error) = result {
                return self.fail(index, "connection", &error);
            }
        }
        self.feed(index, self.now());
    }

    /// Reads until nothing is left: the poll tells each arrival once.
    fn read(&mut self, index: usize, buffer: &mut [u8]) -> io::Result<()> {
        loop {
            let heard = self.connections[index].receive(buffer)?;
            let count = match heard {
                Heard::Bytes(count) | Heard::Last(count) => count,
                Heard::Nothing => return Ok(()),
                Heard::End => return Err(io::ErrorKind::UnexpectedEof.into()),
            };
            let now = self.now();
            let mut input = &buffer[..count];
            loop {
                let reply = self.connections[index].scanner.next(&mut input);
                let reply = reply.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not RESP"))?;
                let Some(reply) = reply else { break };
                self.reply(index, reply, now)?;
            }
            if matches!(heard, Heard::Last(_)) {
                return Ok(());
            }
        }
    }

    fn reply(&mut self, index: usize, reply: Reply, now: u64) -> io::Result<()> {
        let connection = &mut self.connections[index];
        if connection.end_authentication() {
            return match reply {
                Reply::Error => Err(io::Error::new(io::ErrorKind::InvalidData, "not authenticated")),
                Reply::Nil | Reply::Value => Ok(()),
            };
        }
        let Some(flight) = connection.flight.pop_front() else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a reply to nothing"));
        };
        self.in_flight -= 1;
        let Flight { task, start, second, .. } = flight;
        let counts = self.counts(now);
        let connection = &mut self.connections[index];
        match reply {
            Reply::Error => {
                self.stats.trace(task.op, start, now, End::Error);
                if counts {
                    self.stats.error(connection.scanner.error(), 1);
                    self.stats.tick_errors += 1;
                }
                self.work.failed(task);
                return Ok(());
            }
            Reply::Nil if counts => self.stats.misses += 1,
            Reply::Nil | Reply::Value => {}
        }
        if task.op == Op::Modify && !second {
            self.work.encode_set(task.key, &mut connection.out);
            connection.flight.push_back(Flight { sent: now, second: true, ..flight });
            self.in_flight += 1;
            return Ok(());
        }
        self.done += 1;
        self.work.done(task.op);
        let nanos = now.saturating_sub(start);
        self.stats.tick(nanos);
        self.stats.trace(task.op, start, now, End::Ok);
        if counts {
            let inside = now <= self.window.1;
            let second = ((now - self.window.0) / NANOS) as usize;
            self.stats.success(task.op, nanos, inside.then_some(second));
        }
        Ok(())
    }

    /// Whether what ends now counts. After the end, only an open loop's latencies do: leaving out those that took
    /// longest would make it look better than it was.
    fn counts(&self, now: u64) -> bool {
        now >= self.window.0 && (now <= self.window.1 || self.schedule.is_some())
    }

    /// Gives a connection work, and writes what it has: once for all of it.
    fn feed(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        if !connection.is_up() {
            return;
        }
        if self.running {
            let depth = self.options.pipeline;
            if self.schedule.is_none() {
                while connection.flight.len() < depth {
                    let Some(task) = self.work.draw() else { break };
                    self.work.encode(task, &mut connection.out);
                    connection.flight.push_back(Flight { task, start: now, sent: now, second: false });
                    self.in_flight += 1;
                }
            } else if connection.flight.len() < depth && !connection.queued {
                connection.queued = true;
                self.ready.push_back(index);
            }
        }
        if let Err(error) = connection.flush() {
            self.fail(index, "connection", &error);
        }
    }

    /// Sends what an open loop means to have sent by now, as far as connections can take it.
    fn issue(&mut self, now: u64) {
        let Some(schedule) = &mut self.schedule else { return };
        let due = now.min(self.window.1.saturating_sub(1));
        let mut written = VecDeque::new();
        while schedule.peek() <= due {
            let Some(index) = self.ready.pop_front() else { break };
            let connection = &mut self.connections[index];
            connection.queued = false;
            if !connection.is_up() || connection.flight.len() >= self.options.pipeline {
                continue;
            }
            let start = schedule.pop();
            let Some(task) = self.work.draw() else { break };
            if connection.out.is_empty() {
                written.push_back(index);
            }
            self.work.encode(task, &mut connection.out);
            connection.flight.push_back(Flight { task, start, sent: now, second: false });
            self.in_flight += 1;
            if now >= self.window.0 {
                self.stats.late.saturating_record(now - start);
            }
            if connection.flight.len() < self.options.pipeline {
                connection.queued = true;
                self.ready.push_back(index);
            }
        }
        for index in written {
            if let Err(error) = self.connections[index].flush() {
                self.fail(index, "connection", &error);
            }
        }
    }

    /// Replaces a connection that failed, and counts what was under way on it.
    fn fail(&mut self, index: usize, what: &str, error: &io::Error) {
        let kind = match error.kind() {
            io::ErrorKind::UnexpectedEof => "closed by the peer".to_owned(),
            io::ErrorKind::InvalidData => error.to_string(),
            kind => kind.to_string(),
        };
        self.lose(index, &format!("{what}: {kind}"));
    }

    fn lose(&mut self, index: usize, kind: &str) {
        let now = self.now();
        let connection = &mut self.connections[index];
        connection.endpoint = (connection.endpoint + 1) % self.options.endpoints.len();
        let lost = connection.close(now + AGAIN);
        self.in_flight -= lost.len();
        // A connection that could not be opened has lost nothing else than itself.
        let counted = (lost.len() as u64).max(1);
        if self.counts(now) {
            self.stats.error(kind, counted);
        }
        self.stats.tick_errors += counted;
        for flight in lost {
            self.stats.trace(flight.task.op, flight.start, now, End::Lost);
            self.work.failed(flight.task);
        }
    }

    fn reopen(&mut self, now: u64) {
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            if matches!(connection.socket, Socket::Down(again) if again <= now) {
                let address = self.options.endpoints[connection.endpoint];
                if let Err(error) = connection.open(address, self.poll.registry(), Token(index)) {
                    self.fail(index, "connect", &error);
                }
            }
        }
    }

    fn upkeep(&mut self, now: u64) {
        self.reopen(now);
        let timeout = u64::try_from(self.options.timeout.as_nanos()).unwrap_or(u64::MAX);
        for index in 0..self.connections.len() {
            let oldest = self.connections[index].flight.front();
            if oldest.is_some_and(|flight| now.saturating_sub(flight.sent) > timeout) {
                self.lose(index, "timeout");
            }
            // What failed while loading is given out again.
            self.feed(index, now);
        }
        if now >= self.next_tick {
            self.next_tick += NANOS;
            if self.options.progress {
                self.progress(now);
            }
        }
    }

    fn progress(&mut self, now: u64) {
        let tick = &self.stats.tick;
        let micros = |quantile| tick.value_at_quantile(quantile) as f64 / 1e3;
        let phase = if now < self.window.0 { "warm-up" } else { "" };
        let up = self.connections.iter().filter(|connection| connection.is_up()).count();
        // Whoever watches may have gone.
        let _ = writeln!(
            io::stderr(),
            "{:>4}s {:>9}/s  p50 {:>8.0} us  p99 {:>8.0} us  {} errors  {up}/{} connections  {phase}",
            now / NANOS,
            tick.len(),
            micros(0.5),
            micros(0.99),
            self.stats.tick_errors,
            self.connections.len(),
        );
        self.stats.tick.reset();
        self.stats.tick_errors = 0;
    }
}

/// One of the endpoints must answer; the first one's error is told.
fn reach(endpoints: &[SocketAddr]) -> Result<(), BenchError> {
    let mut first = None;
    for endpoint in endpoints {
        match TcpStream::connect_timeout(endpoint, REACH) {
            Ok(_) => return Ok(()),
            Err(error) => drop(first.get_or_insert(BenchError::Unreachable(*endpoint, error))),
        }
    }
    Err(first.unwrap_or(BenchError::NoEndpoints))
}

/// CPU time of this process.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
