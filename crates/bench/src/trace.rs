//! What became of each operation, for who wants to know more than sums: availability through a failure, above all.

use std::fmt::Write;

use crate::work::Op;

/// More are counted and not kept.
const LIMIT: usize = 1 << 24;

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was answered.
    Ok,
    /// It was refused.
    Error,
    /// Its connection broke, or it was given up.
    Lost,
    /// The run was over.
    Unfinished,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    op: Op,
    start: u64,
    end: u64,
    how: End,
}

/// The operations of a run, in the order in which they ended.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    lines: Vec<Line>,
    dropped: u64,
    began: u64,
}

impl Trace {
    /// A run begins, so many nanoseconds after the Unix epoch.
    pub fn begin(&mut self, began: u64) {
        self.began = began;
    }

    /// An operation has ended; in nanoseconds since the run began.
    pub fn push(&mut self, op: Op, start: u64, end: u64, how: End) {
        match self.lines.len() < LIMIT {
            true => self.lines.push(Line { op, start, end, how }),
            false => self.dropped += 1,
        }
    }

    /// As CSV, with microseconds since the beginning that the first line tells.
    pub fn csv(&self) -> String {
        let mut text = format!("# began {} ns after the Unix epoch\nop,start_us,end_us,end\n", self.began);
        for Line { op, start, end, how } in &self.lines {
            let how = match how {
                End::Ok => "ok",
                End::Error => "error",
                End::Lost => "lost",
                End::Unfinished => "unfinished",
            };
            let _ = writeln!(text, "{},{},{},{how}", op.name(), start / 1000, end / 1000);
        }
        if self.dropped > 0 {
            let _ = writeln!(text, "# and {} more", self.dropped);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_a_line_for_each_operation() {
        let mut trace = Trace::default();
        trace.begin(7);
        trace.push(Op::Read, 1_000, 2_500, End::Ok);
        trace.push(Op::Update, 1_500, 9_000, End::Lost);
        let expected =
            "# began 7 ns after the Unix epoch\nop,start_us,end_us,end\nread,1,2,ok\nupdate,1,9,lost\n";
        assert_eq!(trace.csv(), expected);
    }
}
