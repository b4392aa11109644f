//! What clients have asked, by command: how often, how long it took, how often the reply was an error.

use std::fmt::Write as _;
use std::time::Duration;

use quorate_core::{DurationHistogram, Sample};

/// See the file comment. Names are constants and few of them are in use, so a list that is searched by address is
/// faster than a map.
#[derive(Debug, Default)]
pub(super) struct CommandStats(Vec<(&'static str, Stat)>);

#[derive(Debug, Default)]
struct Stat {
    times: DurationHistogram,
    errors: u64,
}

impl CommandStats {
    /// A command has its reply, after so long.
    pub(super) fn note(&mut self, command: &'static str, took: Duration, is_error: bool) {
        let position = |is: fn(&str, &str) -> bool| self.0.iter().position(|(name, _)| is(name, command));
        let found = position(|name, command| std::ptr::eq(name, command));
        let index = found.or_else(|| position(|name, command| name == command)).unwrap_or_else(|| {
            self.0.push((command, Stat::default()));
            self.0.len() - 1
        });
        let stat = &mut self.0[index].1;
        stat.times.add(took);
        stat.errors += u64::from(is_error);
    }

    /// How many commands had a reply.
    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|(_, stat)| stat.times.count()).sum()
    }

    /// How many of the replies were errors.
    pub(super) fn errors(&self) -> u64 {
        self.0.iter().map(|(_, stat)| stat.errors).sum()
    }

    /// As metrics: all of one name, then all of the other.
    pub(super) fn samples(&self) -> Vec<Sample> {
        let help =
            "From reading a client's command to its reply; nothing for those answered at once. By command.";
        let times = self.0.iter().map(|(name, stat)| {
            Sample::histogram("command_duration_seconds", &stat.times, help).with("command", *name)
        });
        let errors = self.0.iter().map(|(name, stat)| {
            let help = "Commands whose reply was an error. By command.";
            Sample::counter("command_errors_total", stat.errors, help).with("command", *name)
        });
        times.chain(errors).collect()
    }

    /// As the section Commandstats of Redis's INFO.
    pub(super) fn info(&self) -> String {
        let mut text = String::new();
        for (name, Stat { times, errors }) in &self.0 {
            let (calls, micros) = (times.count(), times.total().as_micros());
            let each = micros as f64 / calls as f64;
            let _ = write!(
                text,
                "cmdstat_{name}:calls={calls},usec={micros},usec_per_call={each:.2},rejected_calls=0,\
                 failed_calls={errors}\r\n"
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_counted_apart_and_errors_with_them() {
        let mut stats = CommandStats::default();
        stats.note("get", Duration::from_micros(100), false);
        stats.note("set", Duration::from_micros(7), false);
        stats.note(String::from("get").leak(), Duration::from_micros(50), true);
        assert_eq!((stats.count(), stats.errors()), (3, 1));
        let get = "cmdstat_get:calls=2,usec=150,usec_per_call=75.00,rejected_calls=0,failed_calls=1\r\n";
        let set = "cmdstat_set:calls=1,usec=7,usec_per_call=7.00,rejected_calls=0,failed_calls=0\r\n";
        assert_eq!(stats.info(), [get, set].concat());
        let names: Vec<_> = stats.samples().iter().map(|sample| sample.name).collect();
        assert!(names.is_sorted(), "the samples of one name stand together: {names:?}");
    }
}
