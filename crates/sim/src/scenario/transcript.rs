//! What a scenario shows of a command: each input with what came of it.

use std::fmt::{self, Display};

use quorate_core::ProcessId;

/// The lines below a command, while it is carried out.
#[derive(Default)]
pub(super) struct Transcript {
    /// Whether messages and records are shown with their fields, each in a line of its own; if not, by their kinds.
    pub fields: bool,
    lines: Vec<Line>,
    /// The line of the present input, and the process that it is about.
    input: Option<(usize, ProcessId)>,
}

#[derive(PartialEq, Eq)]
enum Line {
    Text(String),
    /// A message that arrived, and what its receiver did upon it. Several, where nobody did anything.
    Arrival {
        to: Vec<ProcessId>,
        from: Vec<ProcessId>,
        kind: String,
        effects: String,
    },
}

impl Transcript {
    /// A line of its own.
    pub fn line(&mut self, line: String) {
        self.lines.push(Line::Text(line));
    }

    /// A message arrives: what its receiver does upon it follows.
    pub fn arrival(&mut self, to: ProcessId, from: ProcessId, kind: String) {
        self.input = Some((self.lines.len(), to));
        self.lines.push(Line::Arrival { to: vec![to], from: vec![from], kind, effects: String::new() });
    }

    /// A process acts without a message: what it does follows.
    pub fn input(&mut self, process: ProcessId, line: String) {
        self.input = Some((self.lines.len(), process));
        self.lines.push(Line::Text(line));
    }

    /// What a process did: its kind behind the input that led to it, or all of it in a line of its own.
    pub fn effect(&mut self, process: ProcessId, verb: &str, kind: &str, described: impl FnOnce() -> String) {
        if self.fields {
            return self.line(format!("{process} {verb} {}", described()));
        }
        match self.input {
            Some((line, of)) if of == process => {
                let (Line::Text(text) | Line::Arrival { effects: text, .. }) = &mut self.lines[line];
                text.push_str(&format!(" | {verb} {kind}"));
            }
            _ => self.input(process, format!("{process} {verb} {kind}")),
        }
    }

    /// Ends a command: its lines. Where fields are not shown, arrivals that led to nothing are put together.
    pub fn take(&mut self) -> Vec<String> {
        self.input = None;
        let mut folded: Vec<(Line, usize)> = Vec::new();
        for line in self.lines.drain(..) {
            if let Some((last, times)) = folded.last_mut().filter(|_| !self.fields) {
                if *last == line {
                    *times += 1;
                    continue;
                }
                if *times == 1 && last.absorbs(&line) {
                    continue;
                }
            }
            folded.push((line, 1));
        }
        let shown = |(line, times): (Line, usize)| match times {
            1 => line.to_string(),
            _ => format!("{line} ({times} times)"),
        };
        folded.into_iter().map(shown).collect()
    }
}

impl Line {
    /// Takes an arrival in that led to nothing either, if one of the two ends is the same.
    fn absorbs(&mut self, next: &Line) -> bool {
        let Line::Arrival { to, from, kind, effects } = self else { return false };
        let Line::Arrival { to: next_to, from: next_from, kind: next_kind, effects: next_effects } = next
        else {
            return false;
        };
        if kind != next_kind || !effects.is_empty() || !next_effects.is_empty() {
            return false;
        }
        if *from == *next_from && !to.contains(&next_to[0]) {
            to.extend(next_to);
            return true;
        }
        let joins = *to == *next_to && !from.contains(&next_from[0]);
        if joins {
            from.extend(next_from);
        }
        joins
    }
}

impl Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names =
            |processes: &[ProcessId]| processes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        match self {
            Line::Text(text) => f.write_str(text),
            Line::Arrival { to, from, kind, effects } => {
                write!(f, "{} <- {} {kind}{effects}", names(to), names(from))
            }
        }
    }
}
