//! A client protocol of lines, one command each.

use std::collections::VecDeque;
use std::path::Path;
use std::thread;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use quorate_core::{Access, Outcome, Request};
use quorate_node::frontend::{Frontend, SessionContext, Ticket};

/// Lines in, lines out. `facts NAME`, `turn` (the loop's) and `quit` are answered here; `hold PATH` keeps the loop
/// until that file is there. `/MILLIS/COMMAND` has that deadline instead of a minute.
pub struct Lines;

#[derive(Default)]
pub struct Session {
    next: u64,
    first: u64,
    answers: VecDeque<Option<String>>,
}

impl Session {
    fn flush(&mut self, context: &mut SessionContext<'_>) {
        while let Some(Some(_)) = self.answers.front() {
            let line = self.answers.pop_front().flatten().unwrap();
            self.first += 1;
            context.output.extend_from_slice(line.as_bytes());
            context.output.extend_from_slice(b"\n");
        }
    }
}

impl Frontend for Lines {
    fn probes(&self) -> Vec<Bytes> {
        vec![Bytes::from_static(b"1 say probe")]
    }

    type Session = Session;

    fn open(&mut self, _: u64, _: Option<std::net::SocketAddr>, _: &mut SessionContext<'_>) -> Session {
        Session::default()
    }

    fn on_input(&mut self, session: &mut Session, input: &mut BytesMut, context: &mut SessionContext<'_>) {
        while !context.is_full() {
            let Some(end) = input.iter().position(|&byte| byte == b'\n') else { break };
            let line = String::from_utf8(input.split_to(end + 1)[..end].to_vec()).unwrap();
            let ticket = Ticket(session.next);
            session.next += 1;
            if line == "quit" {
                session.answers.push_back(Some("bye".to_owned()));
                *context.close = true;
                break;
            }
            if let Some(path) = line.strip_prefix("hold ") {
                while !Path::new(path).exists() {
                    thread::yield_now();
                }
            }
            if line == "turn" || line.starts_with("hold ") {
                let turn = context.node.turn().expect("a node counts them");
                session.answers.push_back(Some(turn.to_string()));
                continue;
            }
            if let Some(name) = line.strip_prefix("facts ") {
                let facts = context.node.facts();
                let fact = facts.into_iter().find(|(fact, _)| *fact == name).map(|(_, value)| value);
                session.answers.push_back(Some(fact.unwrap_or_default()));
                continue;
            }
            let (millis, command) = match line.strip_prefix('/').and_then(|rest| rest.split_once('/')) {
                Some((millis, command)) => (millis.parse().unwrap(), command.to_owned()),
                None => (60_000, line),
            };
            session.answers.push_back(None);
            let deadline = context.now + Duration::from_millis(millis);
            context.ask(
                ticket,
                Request { stream: 0, command: command.into(), access: Access::Write, deadline, after: 0 },
            );
        }
        session.flush(context);
    }

    fn on_outcome(
        &mut self,
        session: &mut Session,
        ticket: Ticket,
        outcome: Outcome,
        context: &mut SessionContext<'_>,
    ) {
        let line = match outcome {
            Outcome::Done(text) => String::from_utf8(text.to_vec()).unwrap(),
            Outcome::Failed(failure) => format!("! {failure}"),
        };
        session.answers[(ticket.0 - session.first) as usize] = Some(line);
        session.flush(context);
    }
}
