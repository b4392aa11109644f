//! Whether a connection's request is served: who asks, and whether that is known.

use bytes::Bytes;
use quorate_core::{Outcome, Wire};
use quorate_node::frontend::SessionContext;
use quorate_store::{Command, Reply, Single};

use super::super::Resp;
use super::super::acl::{self, Denial, Knowledge};
use super::super::commands::acl::denied;
use super::super::commands::transactions::{EXEC, abort, is_bracket};
use super::super::commands::{Fault, Spec};
use super::super::request::{Args, Word};
use super::super::shape::Shape;
use super::Session;

impl Session {
    /// Whether a request may be served now. If not, it has been refused, or waits until the users are known.
    pub(super) fn may_serve(
        &mut self,
        spec: &'static Spec,
        (args, frame, words): (&Args<'_>, &Bytes, &[Word]),
        shared: &mut Resp,
        context: &mut SessionContext<'_>,
    ) -> bool {
        if !self.users_unknown && shared.acl.serves_everything(self.state.identity.as_ref(), context.now) {
            return true;
        }
        if !self.may_judge(spec, args, shared, context) {
            self.hold(frame, words, false);
            return false;
        }
        if let Err(denial) = self.judge(spec, args, shared, context) {
            denied(&denial, (spec, self.state.queue.is_some()), &self.state, shared, context.node);
            let text = denial.text(spec);
            if spec.name == EXEC {
                self.state.queue = None;
                self.state.watch.forget();
                self.error(abort(&Fault::from(text)), context);
                return false;
            }
            self.spoil();
            self.error(text, context);
            return false;
        }
        true
    }

    /// Whether it is known who may ask for this request. If not, the group is asked, and the request must wait.
    fn may_judge(
        &mut self,
        spec: &'static Spec,
        args: &Args<'_>,
        shared: &mut Resp,
        context: &mut SessionContext<'_>,
    ) -> bool {
        let has_failed = std::mem::take(&mut self.users_unknown);
        if has_failed || shared.acl.knowledge(context.now) == Knowledge::Current {
            return true;
        }
        if acl::is_diagnostic(spec) && !acl::names_user(spec, args) {
            return true;
        }
        self.asks_for_users = Some(context.now);
        let command = shared.acl.question();
        let ticket =
            self.replies.push((spec.name, context.now), Shape::Users, command.access(), self.state.resp3);
        self.request(ticket, &command, 0, shared, context);
        false
    }

    /// The group has answered the question about users, or not.
    pub(super) fn learn_users(
        &mut self,
        outcome: Outcome,
        shared: &mut Resp,
        context: &mut SessionContext<'_>,
    ) {
        let asked = self.asks_for_users.take().unwrap_or(context.now);
        let reply = match outcome {
            Outcome::Done(bytes) => Reply::from_bytes(bytes).ok(),
            Outcome::Failed(_) => None,
        };
        match reply {
            Some(Reply::Users { changes, users }) => shared.acl.learn_from_group(asked, changes, users),
            // The first users are in the state now, or others were.
            Some(Reply::Done | Reply::Skipped) => {}
            _ => self.users_unknown = true,
        }
    }

    fn judge(
        &self,
        spec: &'static Spec,
        args: &Args<'_>,
        shared: &Resp,
        context: &SessionContext<'_>,
    ) -> Result<(), Denial> {
        let is_diagnostic = acl::is_diagnostic(spec) && !acl::names_user(spec, args);
        match shared.acl.knowledge(context.now) {
            // What is sent behind it without waiting would be executed by itself, should the users be known by then.
            Knowledge::Old | Knowledge::None if is_bracket(spec) => return Ok(()),
            Knowledge::Old | Knowledge::None if !is_diagnostic => return Err(Denial::Unknown),
            Knowledge::None => return Ok(()),
            Knowledge::Old | Knowledge::Current => {}
        }
        shared.acl.judge(self.state.identity.as_ref(), spec, args)
    }
}

/// Whether a command may change users, or what they may be given.
pub(super) fn are_changed_by(command: &Command) -> bool {
    match command {
        Command::SetUsers { .. } | Command::DeleteUsers { .. } | Command::RaiseLevel { .. } => true,
        Command::Batch { commands, .. } => commands
            .iter()
            .any(|Single(command)| matches!(command, Command::SetUsers { .. } | Command::DeleteUsers { .. })),
        _ => false,
    }
}
