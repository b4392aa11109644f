//! One connection: its requests, their replies in order, its transaction.
//!
//! Requests go to the store as they are read, without waiting for earlier ones (their stream keeps them in order), and
//! replies go out as they were asked for. One command has to wait: EXEC, for what WATCH found.
//!
//! **Long commands** go through many keys or fields. They wait for a turn of the loop that has time for a piece of such
//! work, and go on piece by piece; a connection has one of them under way, and is not read meanwhile, so that what
//! comes behind it is executed behind it. A piece is like any read: should its leader be deposed, the next one answers
//! it.
//!
//! A **large request** is such a command, too: its encoding is put together piece by piece, before it is asked.

// tidy: long because requests, their replies and transactions have one order.

mod users;

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use quorate_core::{Access, Encoder, Outcome, Request, Time, Wire};
use quorate_node::Output;
use quorate_node::frontend::{SessionContext, Ticket};
use quorate_store::{Command, CommandError, Reply, Single};

use super::acl::{self, Identity};
use super::all_groups::{MembershipChange, ScatterGather};
use super::commands::transactions::{EXEC, abort, is_immediate};
use super::commands::{Call, Fault, Spec, Step, find, level_of, named};
use super::key_scope::{KeyGroups, KeyScope};
use super::reply::Writer;
use super::request::{Args, Parser, Refusal, Taken, Word};
use super::shape::{Shape, Surroundings};
use super::watch::Watch;
use super::{Activity, COMMANDS, Client, Limits, ReadMode, Resp};

/// What is remembered of one connection. Every request loads it: what few have is in boxes.
#[derive(Debug)]
pub struct Session {
    parser: Parser,
    state: State,
    replies: Replies,
    /// A request that waits for what WATCH found, for others or for users; nothing is read meanwhile.
    held: Option<Box<Held>>,
    /// A long command under way; nothing is read meanwhile.
    long: Option<Ticket>,
    /// Bytes of the large request that is being encoded.
    encoding: usize,
    /// The question about users is under way, asked then; nothing is read meanwhile.
    asks_for_users: Option<Time>,
    /// The group could not say who the users are; the request that waits is not served.
    users_unknown: bool,
    /// Input is left that was not looked at, for want of room or because a request is held.
    stopped: bool,
    /// No more requests are read; the connection ends with the last reply.
    closing: bool,
}

/// A request that waits, in a buffer of its own.
#[derive(Debug)]
struct Held {
    frame: Bytes,
    words: Vec<Word>,
    /// All requests before it must have ended.
    comes_last: bool,
}

/// What commands may change of a connection.
#[derive(Debug)]
pub(super) struct State {
    /// Its number.
    pub(super) connection: u64,
    /// Its last request.
    pub(super) activity: Rc<Activity>,
    /// Whether it has asked for RESP3.
    pub(super) resp3: bool,
    /// Whom it has been authenticated as.
    pub(super) identity: Option<Identity>,
    /// Where its reads are served.
    pub(super) read_mode: ReadMode,
    /// They were served elsewhere before: what it was told then the node's own state may not show yet.
    pub(super) knows_more: bool,
    /// What was queued since MULTI.
    pub(super) queue: Option<Box<Queue>>,
    /// What the next EXEC depends on.
    pub(super) watch: Watch,
    /// A transaction under way has changed the connection, which is as before if a watched key has changed;
    /// nothing is read meanwhile.
    pub(super) undecided: Option<Box<Before>>,
}

/// What a transaction may change of a connection.
#[derive(Debug)]
pub(super) struct Before {
    pub(super) resp3: bool,
    pub(super) client: Client,
    pub(super) identity: Option<Identity>,
    pub(super) read_mode: ReadMode,
}

/// A transaction before EXEC.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// In order.
    pub(super) commands: Vec<Queued>,
    /// A request was refused: EXEC will be, too.
    pub(super) spoiled: bool,
    bytes: usize,
    words: usize,
}

/// A command of a transaction, in a buffer of its own.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) spec: &'static Spec,
    pub(super) frame: Bytes,
    pub(super) words: Box<[Word]>,
}

/// Requests under way, and what is to be sent once they have ended.
#[derive(Debug, Default)]
struct Replies {
    asks: VecDeque<Ask>,
    /// The ticket of the next ask; those in `asks` are the last ones, without a gap.
    next: u64,
    /// Bytes of replies that wait for earlier ones.
    waiting: usize,
}

#[derive(Debug)]
struct Ask {
    /// What it is called.
    command: &'static str,
    /// When it was read.
    asked: Time,
    shape: Shape,
    /// What of a long command is to be done in a later turn.
    next: Option<Next>,
    /// Which groups have replied, if each is to be asked.
    scatter: Option<Box<ScatterGather>>,
    /// Which groups have changed their members, if each is to.
    change: Option<Box<MembershipChange>>,
    access: Access,
    /// How long it may take, if not as long as a command of a client.
    timeout: Option<Duration>,
    resp3: bool,
    outcome: Option<Outcome>,
    /// What the client is told in the place of its outcome.
    refusal: Option<Box<str>>,
    /// Whether it may change who may ask for what.
    changes_users: bool,
    /// Replies that were known at once to requests that came after this one.
    after: Option<Box<Output>>,
}

/// What a later turn goes on with.
#[derive(Debug)]
enum Next {
    /// It asks the group this.
    Ask(Box<Command>),
    /// It encodes more of this.
    Encode(Box<Encoding>),
}

/// A command that is being encoded.
#[derive(Debug)]
struct Encoding {
    command: Command,
    /// What is left of it, in pieces.
    rest: VecDeque<Bytes>,
    whole: BytesMut,
}

impl Encoding {
    /// Of what was written into the encoder.
    fn new(command: &Command, encoder: &mut Encoder) -> Encoding {
        let whole = BytesMut::with_capacity(encoder.len());
        Encoding { command: command.clone(), rest: std::mem::take(encoder).into_parts().into(), whole }
    }

    /// Encodes about so many bytes more. True once that is all.
    fn go_on(&mut self, mut bytes: usize) -> bool {
        while bytes > 0
            && let Some(piece) = self.rest.front_mut()
        {
            let more = piece.split_to(piece.len().min(bytes));
            bytes -= more.len();
            self.whole.extend_from_slice(&more);
            if piece.is_empty() {
                self.rest.pop_front();
            }
        }
        self.rest.is_empty()
    }
}

impl Queue {
    /// A request was refused: what is queued will not be executed.
    fn spoil(&mut self) {
        self.spoiled = true;
        self.commands = Vec::new();
    }
}

impl Session {
    pub(super) fn new(connection: u64, read_mode: ReadMode, activity: Rc<Activity>) -> Session {
        Session {
            parser: Parser::default(),
            state: State {
                connection,
                activity,
                resp3: false,
                identity: None,
                read_mode,
                knows_more: false,
                queue: None,
                watch: Watch::default(),
                undecided: None,
            },
            replies: Replies::default(),
            held: None,
            long: None,
            encoding: 0,
            asks_for_users: None,
            users_unknown: false,
            stopped: false,
            closing: false,
        }
    }

    pub(super) fn connection(&self) -> u64 {
        self.state.connection
    }

    /// Keeps a request until what it depends on is known.
    fn hold(&mut self, frame: &[u8], words: &[Word], comes_last: bool) {
        let (frame, words) = (Bytes::copy_from_slice(frame), words.to_vec());
        self.held = Some(Box::new(Held { frame, words, comes_last }));
    }

    /// Whether a request is looked at only when all before it have ended: it is to see what they have written, or
    /// changes users and is judged by those that there are then.
    fn comes_last(&self, spec: &Spec) -> bool {
        let queued = self.state.queue.iter().flat_map(|queue| &queue.commands).map(|queued| queued.spec);
        let changes_users = match spec.name {
            EXEC => queued.into_iter().any(acl::changes_users),
            _ => acl::changes_users(spec),
        };
        let is_read = spec.name == EXEC || spec.flags.contains(&"readonly");
        changes_users || is_read && self.state.read_mode == ReadMode::Sequential
    }

    /// Bytes of replies that wait for earlier ones, of a transaction before its EXEC, of what is watched for it, and of
    /// a request that waits or is being encoded.
    pub(super) fn held(&self) -> usize {
        let queue = self.state.queue.as_ref().filter(|queue| !queue.spoiled);
        let queued = queue.map_or(0, |queue| queue.bytes);
        let held = self.held.as_ref().map_or(0, |held| held.frame.len() + size_of_val(&*held.words));
        self.replies.waiting + queued + self.state.watch.bytes() + held + self.encoding
    }

    /// What a request under way is called.
    pub(super) fn command(&self, ticket: Ticket) -> &'static str {
        self.replies
            .index(ticket)
            .and_then(|index| self.replies.asks.get(index))
            .map_or("?", |ask| ask.command)
    }

    pub(super) fn on_input(
        &mut self,
        input: &mut BytesMut,
        shared: &mut Resp,
        context: &mut SessionContext<'_>,
    ) {
        self.stopped = false;
        shared.acl.refresh(context.node);
        loop {
            if !self.may_read(&shared.limits, context) {
                self.stopped = true;
                // Until it is written there is no room in the output, and no outcome will tell when there is. And what
                // was asked in this very call may be refused before the loop looks at this session again.
                if context.output.len() >= shared.limits.replies || !context.asked.is_empty() {
                    call_again(context);
                }
                break;
            }
            match self.parser.next(input, &shared.limits) {
                Ok(None) => break,
                Ok(Some(Taken::Request(frame))) => {
                    let words = std::mem::take(&mut self.parser.words);
                    self.serve(&frame, &words, shared, context);
                    self.parser.words = words;
                }
                Ok(Some(Taken::Refused(refusal))) => self.refuse(refusal, &shared.limits, context),
                Err(malformed) => {
                    shared.complaint = Some(String::from_utf8_lossy(&malformed.text()).into_owned());
                    self.error(malformed.text(), context);
                    self.closing = true;
                    break;
                }
            }
        }
        if self.closing {
            self.stopped = false;
            input.clear();
            self.close_if_done(context);
        }
        self.parser.rest();
    }

    pub(super) fn on_outcome(
        &mut self,
        ticket: Ticket,
        outcome: Outcome,
        shared: &mut Resp,
        context: &mut SessionContext<'_>,
    ) {
        self.settle(ticket, outcome, shared, context);
        self.go_on(shared, context);
    }

    /// A later turn has time for a piece of a long command.
    pub(super) fn on_resume(&mut self, ticket: Ticket, shared: &mut Resp, context: &mut SessionContext<'_>) {
        let next = self.replies.ask_of(ticket).next.take();
        match next.expect("who asks for a later turn has something to do then") {
            Next::Ask(next) => self.request(ticket, &next, 0, shared, context),
            Next::Encode(mut encoding) => {
                if !encoding.go_on(ENCODED_AT_ONCE) {
                    return self.later(ticket, Next::Encode(encoding), context);
                }
                (self.long, self.encoding) = (None, 0);
                let Encoding { command, whole, .. } = *encoding;
                self.request_encoded(ticket, &command, whole.freeze(), shared, context);
            }
        }
        self.go_on(shared, context);
    }

    /// Some request may have ended: others may begin.
    fn go_on(&mut self, shared: &mut Resp, context: &mut SessionContext<'_>) {
        if self.asks_for_users.is_none()
            && !self.state.watch.is_pending()
            && let Some(held) = self.held.take_if(|held| !held.comes_last || self.replies.asks.is_empty())
        {
            let Held { frame, words, .. } = *held;
            shared.acl.refresh(context.node);
            self.serve(&frame, &words, shared, context);
        }
        if self.replies.waiting > shared.limits.early_replies {
            *context.close = true;
        }
        // Either there is room now, or there will be when the output is written.
        let full = context.output.len() >= shared.limits.replies;
        if self.stopped && (full || self.may_read(&shared.limits, context)) {
            call_again(context);
        }
        self.close_if_done(context);
    }

    /// A request under way has an outcome: it goes on to its next part, or has ended.
    fn settle(
        &mut self,
        ticket: Ticket,
        mut outcome: Outcome,
        shared: &mut Resp,
        context: &mut SessionContext<'_>,
    ) {
        let ask = self.replies.ask_of(ticket);
        if let Some(mut scatter) = ask.scatter.take()
            && let Outcome::Done(bytes) = &outcome
            && let Ok(reply) = Reply::from_bytes(bytes.clone())
        {
            let Some(whole) = scatter.take(reply) else {
                let command = scatter.command().clone();
                ask.scatter = Some(scatter);
                return self.later(ticket, Next::Ask(Box::new(command)), context);
            };
            outcome = Outcome::Done(whole.encoded());
        }
        if let Some(change) = &mut ask.change
            && let Outcome::Done(bytes) = &outcome
        {
            let Some(whole) = change.take(bytes.clone()) else {
                return self.change_members(ticket, shared, context);
            };
            (ask.change, outcome) = (None, Outcome::Done(whole));
        }
        if let Some(command) = ask.shape.next(&outcome) {
            ask.scatter = shared.scatter(&command);
            return self.later(ticket, Next::Ask(Box::new(command)), context);
        }
        if self.long == Some(ticket) {
            self.long = None;
        }
        self.replies.arrive(ticket, outcome);
        self.send_replies(shared, context);
    }

    /// Writes the replies of those that have ended, up to the first that has not.
    fn send_replies(&mut self, shared: &mut Resp, context: &mut SessionContext<'_>) {
        while let Some(mut ask) = self.replies.pop() {
            let outcome = ask.outcome.take().expect("it has ended");
            if matches!(ask.shape, Shape::Backup) && matches!(outcome, Outcome::Done(_)) {
                ask.shape = Shape::Begun(shared.begin_backup(self.state.connection, context.node));
            }
            if let Shape::Users = &ask.shape {
                self.learn_users(outcome, shared, context);
                append(context.output, ask.after);
                continue;
            }
            if let Shape::Watch { keys, watch } = &ask.shape {
                self.state.watch.found(*watch, keys.clone(), &outcome);
            }
            // The transaction is the last request that was read.
            if self.replies.asks.is_empty()
                && let Some(before) = self.state.undecided.take()
                && !is_executed(&outcome)
            {
                self.state.resp3 = before.resp3;
                self.state.identity = before.identity;
                self.state.read_mode = before.read_mode;
                shared.clients.insert(self.state.connection, before.client);
            }
            if ask.changes_users {
                shared.acl.on_changed(context.now);
            }
            let mut writer = Writer { out: context.output, resp3: ask.resp3 };
            let mut around = Surroundings {
                clock: shared.clock,
                timeout: ask.timeout.unwrap_or(shared.limits.timeout),
                node: context.node,
            };
            let before = writer.out.len();
            match ask.refusal {
                Some(text) => writer.error(text.as_bytes()),
                None => ask.shape.outcome(outcome, ask.access, &mut writer, &mut around),
            }
            let is_error = writer.out.get(before) == Some(b'-');
            shared.stats.note(ask.command, context.now.since(ask.asked), is_error);
            append(context.output, ask.after);
        }
    }

    fn may_read(&self, limits: &Limits, context: &SessionContext<'_>) -> bool {
        !self.closing
            && self.held.is_none()
            && self.long.is_none()
            && self.state.undecided.is_none()
            && !context.is_full()
            && context.output.len() + self.replies.waiting < limits.replies
    }

    fn close_if_done(&self, context: &mut SessionContext<'_>) {
        if self.closing && self.replies.asks.is_empty() {
            *context.close = true;
        }
    }

    fn serve(&mut self, frame: &Bytes, words: &[Word], shared: &mut Resp, context: &mut SessionContext<'_>) {
        let args = Args::new(frame, words);
        let spec = match find(&args) {
            Ok(spec) => spec,
            Err(fault) if named(args.get(0)).is_some_and(|spec| spec.name == EXEC) => {
                self.state.queue = None;
                self.state.watch.forget();
                return self.error(abort(&fault), context);
            }
            // A browser that was led here by a hostile page: as Redis, end it before its body is read as commands.
            Err(_) if [&b"post"[..], b"host:"].iter().any(|name| args.get(0).eq_ignore_ascii_case(name)) => {
                self.closing = true;
                return;
            }
            Err(Fault(text)) => {
                self.spoil();
                return self.error(text, context);
            }
        };
        self.state.activity.at.set(context.now);
        self.state.activity.command.set(spec.name);
        if !self.may_serve(spec, (&args, frame, words), shared, context) {
            return;
        }
        let limit = shared.limits.command_words;
        if args.len() > limit {
            self.spoil();
            let words = args.len();
            return self.error(
                format!("ERR a command of {words} words is longer than the limit of {limit}"),
                context,
            );
        }
        if self.state.queue.is_some() && !is_immediate(spec) {
            return self.enqueue(spec, &args, words, &shared.limits, context);
        }
        let comes_last = !self.replies.asks.is_empty() && self.comes_last(spec);
        if comes_last || spec.name == EXEC && self.state.watch.is_pending() {
            self.hold(frame, words, comes_last);
            return;
        }
        let resp3 = self.state.resp3;
        let mut writer = self.replies.writer(resp3, context.output);
        let before = writer.out.len();
        let mut call = Call { spec, reply: &mut writer, state: &mut self.state, shared, node: context.node };
        let step = (spec.run)(args, &mut call);
        if let Err(Fault(text)) = &step {
            writer.error(text);
        }
        let written = writer.out.len() - before;
        if matches!(step, Ok(Step::Answered | Step::Close) | Err(_)) {
            let is_error = writer.out.get(before) == Some(b'-');
            shared.stats.note(spec.name, Duration::ZERO, is_error);
        }
        self.replies.note(written);
        match step {
            Ok(Step::Ask(command, shape)) => {
                self.ask(spec.name, (&command, shape, resp3), args.size(), shared, context);
            }
            Ok(Step::Manage(command, timeout)) => {
                let read = (spec.name, context.now);
                let ticket = self.replies.push(read, Shape::Managed, Access::Manage, resp3);
                self.manage(ticket, Access::Manage, command, timeout, context);
            }
            Ok(Step::ChangeMembers(change)) => {
                let read = (spec.name, context.now);
                let ticket = self.replies.push(read, Shape::Managed, Access::Manage, resp3);
                let groups = shared.limits.key_scope.groups().map_or(1, KeyGroups::count);
                let change = MembershipChange::of(change, groups, level_of(context.node));
                self.replies.ask_of(ticket).change = Some(Box::new(change));
                self.change_members(ticket, shared, context);
            }
            Ok(Step::Close) => self.closing = true,
            Ok(Step::Answered) | Err(_) => {}
        }
    }

    /// Asks what a change of members has to ask next.
    fn change_members(&mut self, ticket: Ticket, shared: &Resp, context: &mut SessionContext<'_>) {
        let change = self.replies.ask_of(ticket).change.as_ref().expect("its members change");
        let (access, command) = change.request(context.node.consistency());
        self.manage(ticket, access, command, shared.limits.change_timeout, context);
    }

    /// Asks for what an operator wants.
    fn manage(
        &mut self,
        ticket: Ticket,
        access: Access,
        command: Bytes,
        timeout: Duration,
        context: &mut SessionContext<'_>,
    ) {
        let ask = self.replies.ask_of(ticket);
        ask.timeout = Some(timeout);
        let deadline = ask.asked + timeout;
        let stream = self.state.connection;
        context.ask(ticket, Request { stream, command, access, deadline, after: 0 });
    }

    fn ask(
        &mut self,
        name: &'static str,
        (command, shape, resp3): (&Command, Shape, bool),
        size: usize,
        shared: &mut Resp,
        context: &mut SessionContext<'_>,
    ) {
        let ticket = self.replies.push((name, context.now), shape, command.access(), resp3);
        self.replies.ask_of(ticket).scatter = shared.scatter(command);
        if let Some(refusal) = shared.limits.key_scope.refusal(name, command) {
            self.replies.ask_of(ticket).refusal = Some(refusal.into());
            let refused = Reply::Error(CommandError::SeveralGroups).encoded();
            self.settle(ticket, Outcome::Done(refused), shared, context);
        } else if is_long(command) || self.replies.ask_of(ticket).scatter.is_some() {
            self.later(ticket, Next::Ask(Box::new(command.clone())), context);
        } else {
            self.request(ticket, command, size, shared, context);
        }
    }

    fn later(&mut self, ticket: Ticket, next: Next, context: &mut SessionContext<'_>) {
        self.replies.ask_of(ticket).next = Some(next);
        self.long = Some(ticket);
        context.resume_later(ticket);
    }

    fn request(
        &mut self,
        ticket: Ticket,
        command: &Command,
        size: usize,
        shared: &mut Resp,
        context: &mut SessionContext<'_>,
    ) {
        // Large values keep their own buffers until the end: only small commands need room at once.
        shared.encoder.reserve(size.min(COMMANDS) + 32);
        match &self.replies.ask_of(ticket).scatter {
            Some(scatter) => scatter.request().encode(&mut shared.encoder),
            None => command.encode(&mut shared.encoder),
        }
        if shared.encoder.len() > ENCODED_AT_ONCE {
            self.encoding = shared.encoder.len();
            let encoding = Encoding::new(command, &mut shared.encoder);
            return self.later(ticket, Next::Encode(Box::new(encoding)), context);
        }
        let encoded = shared.encoder.take_bytes();
        self.request_encoded(ticket, command, encoded, shared, context);
    }

    fn request_encoded(
        &mut self,
        ticket: Ticket,
        decoded: &Command,
        command: Bytes,
        shared: &mut Resp,
        context: &mut SessionContext<'_>,
    ) {
        let access = decoded.access();
        let mode = self.state.read_mode;
        // What WATCH finds must be what EXEC will compare it with.
        // And a backup holds what was acknowledged, wherever the connection reads.
        let shape = &self.replies.ask_of(ticket).shape;
        let is_backup = matches!(shape, Shape::Backup);
        let misses_nothing = matches!(
            shape,
            Shape::Backup
                | Shape::Watch { .. }
                | Shape::Users
                | Shape::Synchronized
                | Shape::Exec { misses_nothing: true, .. }
        );
        // Whoever changes users is judged by them from the reply on.
        let changes_users = users::are_changed_by(decoded);
        let waits = mode == ReadMode::Sequential
            || is_backup && context.node.has_total_order()
            || changes_users && context.node.has_ordered_users();
        let is_free = access == Access::Read && !misses_nothing;
        if is_free
            && self.reads_own_state(&command, &shared.limits.key_scope, context)
            && let Some(reply) = context.node.read(&command)
        {
            return self.settle(ticket, Outcome::Done(reply), shared, context);
        }
        let access = match mode {
            ReadMode::Bounded(staleness) if is_free => Access::Within(staleness),
            _ if misses_nothing && access == Access::Read => {
                context.node.consistency().access_that_misses_nothing()
            }
            _ => access,
        };
        self.replies.ask_of(ticket).changes_users = changes_users;
        let deadline = context.now + shared.limits.timeout;
        let stream = self.state.connection;
        let request = Request { stream, command, access, deadline, after: 0 };
        // The state of a node that was removed would never show it.
        match waits && context.node.is_member() {
            true => context.ask_shown(ticket, request),
            false => context.ask(ticket, request),
        }
    }

    /// Whether the node's own state answers reads: it is to show all that the connection was told of, or to be read as
    /// it is. Where the node is no member of the group that has the keys, the members answer.
    fn reads_own_state(&mut self, command: &Bytes, scope: &KeyScope, context: &SessionContext<'_>) -> bool {
        let state = &mut self.state;
        match state.read_mode {
            ReadMode::Linearizable | ReadMode::Bounded(_) => return false,
            _ if !context.node.is_member_of(scope.group_of(command)) => return false,
            ReadMode::Local => return true,
            ReadMode::Sequential => {}
        }
        state.knows_more = state.knows_more && context.seen > context.node.applied();
        !state.knows_more
    }

    fn enqueue(
        &mut self,
        spec: &'static Spec,
        args: &Args<'_>,
        words: &[Word],
        limits: &Limits,
        context: &mut SessionContext<'_>,
    ) {
        let Some(queue) = &mut self.state.queue else { return };
        queue.bytes += args.size() + size_of_val(words) + size_of::<Queued>();
        if queue.bytes > limits.request {
            queue.spoil();
            let limit = limits.request;
            return self
                .error(format!("ERR the transaction is larger than the limit of {limit} bytes"), context);
        }
        queue.words += args.len();
        if queue.words > limits.transaction_words {
            queue.spoil();
            let limit = limits.transaction_words;
            return self
                .error(format!("ERR the transaction has more words than the limit of {limit}"), context);
        }
        // Once spoiled it will not be executed: only its errors count.
        if !queue.spoiled {
            queue.commands.push(Queued { spec, frame: args.copy(), words: words.into() });
        }
        self.reply(context, |writer| writer.simple("QUEUED"));
    }

    fn refuse(&mut self, refusal: Refusal, limits: &Limits, context: &mut SessionContext<'_>) {
        self.spoil();
        let text = match refusal {
            Refusal::Word => format!("ERR a value is larger than the limit of {} bytes", limits.value),
            Refusal::Request => {
                format!("ERR the request is larger than the limit of {} bytes", limits.request)
            }
        };
        self.error(text, context);
    }

    fn spoil(&mut self) {
        if let Some(queue) = &mut self.state.queue {
            queue.spoil();
        }
    }

    fn error(&mut self, text: impl AsRef<[u8]>, context: &mut SessionContext<'_>) {
        self.reply(context, |writer| writer.error(text));
    }

    /// Writes a reply that is known at once.
    fn reply(&mut self, context: &mut SessionContext<'_>, write: impl FnOnce(&mut Writer<'_>)) {
        let mut writer = self.replies.writer(self.state.resp3, context.output);
        let before = writer.out.len();
        write(&mut writer);
        let written = writer.out.len() - before;
        self.replies.note(written);
    }
}

impl Replies {
    /// Where a reply goes that is known now: behind the last request under way, or straight out.
    fn writer<'a>(&'a mut self, resp3: bool, output: &'a mut Output) -> Writer<'a> {
        match self.asks.back_mut() {
            Some(ask) => Writer { out: ask.after.get_or_insert_default(), resp3 },
            None => Writer { out: output, resp3 },
        }
    }

    /// Counts what such a writer wrote.
    fn note(&mut self, written: usize) {
        if !self.asks.is_empty() {
            self.waiting += written;
        }
    }

    fn push(
        &mut self,
        (command, asked): (&'static str, Time),
        shape: Shape,
        access: Access,
        resp3: bool,
    ) -> Ticket {
        self.asks.push_back(Ask {
            command,
            asked,
            shape,
            next: None,
            timeout: None,
            scatter: None,
            change: None,
            access,
            resp3,
            outcome: None,
            refusal: None,
            changes_users: false,
            after: None,
        });
        self.next += 1;
        Ticket(self.next - 1)
    }

    fn index(&self, ticket: Ticket) -> Option<usize> {
        let first = self.next - self.asks.len() as u64;
        ticket.0.checked_sub(first).and_then(|index| usize::try_from(index).ok())
    }

    fn arrive(&mut self, ticket: Ticket, outcome: Outcome) {
        self.waiting += weight(&outcome);
        self.ask_of(ticket).outcome = Some(outcome);
    }

    /// The request under way that has this ticket.
    fn ask_of(&mut self, ticket: Ticket) -> &mut Ask {
        let ask = self.index(ticket).and_then(|index| self.asks.get_mut(index));
        ask.filter(|ask| ask.outcome.is_none()).expect("a request ends once, after it was asked")
    }

    /// The first request under way, if it has ended.
    fn pop(&mut self) -> Option<Ask> {
        let first = self.asks.front()?;
        self.waiting -= weight(first.outcome.as_ref()?) + first.after.as_ref().map_or(0, |after| after.len());
        self.asks.pop_front()
    }
}

/// Bytes of an encoding that are put together at once.
const ENCODED_AT_ONCE: usize = 256 << 10;

/// A scan that looks at more keys or fields than this is long.
const SHORT: u32 = 128;

/// Whether a command may take long: it goes through many keys, or matches a pattern with some. Reading a whole hash
/// takes as long as the hash is large, which most are not: its first piece is asked like any read.
fn is_long(command: &Command) -> bool {
    match command {
        Command::Scan { limit, pattern, .. } => *limit > SHORT || pattern.is_some(),
        Command::HashScan { limit, pattern, .. } => {
            pattern.is_some() || (SHORT + 1..u32::MAX).contains(limit)
        }
        Command::Batch { commands, .. } => commands.iter().any(|Single(command)| {
            is_long(command) || matches!(command, Command::Scan { .. } | Command::HashScan { .. })
        }),
        _ => false,
    }
}

/// Has the loop call the session again although no new bytes have come: that is what it does for one that is full.
fn call_again(context: &mut SessionContext<'_>) {
    context.under_way = context.under_way.max(context.limit);
}

fn is_executed(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Done(bytes) => matches!(Reply::from_bytes(bytes.clone()), Ok(Reply::Batch(Some(_)))),
        Outcome::Failed(_) => false,
    }
}

/// Replies that were known at once go out behind the one that they waited for.
fn append(output: &mut Output, after: Option<Box<Output>>) {
    if let Some(after) = after {
        output.append(*after);
    }
}

fn weight(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Done(bytes) => bytes.len(),
        Outcome::Failed(_) => 0,
    }
}
