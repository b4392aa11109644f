//! How long no client was served after a process was killed.

use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::Result;

/// Outages that begin later than this after the kill are not waited for.
const AT_LEAST: Duration = Duration::from_millis(2_500);
/// Clients are served again if the last one was so recently, and nothing as long as the outage came since.
const RECENT: Duration = Duration::from_millis(200);
/// What comes after the end of the outage before it is taken to be over.
const AFTER: Duration = Duration::from_millis(500);
const POLL: Duration = Duration::from_millis(10);

/// Of all clients: when one was served at last, and the longest time in which none was.
pub struct Outage(Mutex<State>);

struct State {
    last: Instant,
    longest: Duration,
    /// When the longest time ended.
    ended: Instant,
    over: bool,
}

impl Outage {
    /// Counts from a moment on.
    pub fn new(from: Instant) -> Outage {
        Outage(Mutex::new(State { last: from, longest: Duration::ZERO, ended: from, over: false }))
    }

    /// A client was served.
    pub fn served(&self, at: Instant) {
        let mut state = self.0.lock().expect("no client panics");
        let gap = at.saturating_duration_since(state.last);
        if gap > state.longest {
            (state.longest, state.ended) = (gap, at);
        }
        state.last = state.last.max(at);
    }

    /// Whether clients may stop.
    pub fn is_over(&self) -> bool {
        self.0.lock().expect("no client panics").over
    }

    /// Kills a process at the moment from which on times count, and waits until clients are served again; gives for
    /// how long none was, or nothing if they are not served at the end.
    pub async fn cause(&self, pid: u32, until: Instant) -> Result<Option<Duration>> {
        let begin = self.0.lock().expect("no client panics").last;
        tokio::time::sleep_until(begin.into()).await;
        let status = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        if !status.map_err(|error| format!("cannot run kill: {error}"))?.success() {
            return Err(format!("cannot kill process {pid}"));
        }
        loop {
            tokio::time::sleep(POLL).await;
            let mut state = self.0.lock().expect("no client panics");
            let is_served = state.last.elapsed() < RECENT && state.longest > Duration::ZERO;
            if is_served && begin.elapsed() > AT_LEAST && state.ended.elapsed() > AFTER {
                state.over = true;
                return Ok(Some(state.longest));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
        }
    }
}
