//! A protocol that replicates nothing: a proxy asks the replica that the command names. Enough to see every path
//! through a node.
//!
//! A command is `NODE VERB …`: `say TEXT` answers the text, `big BYTES` so many of them, `later TEXT` the text when the
//! replica hears `go`, `never` nothing, `keep TEXT` how many texts that replica has kept on disk; `adopt COUNT` gives
//! it a state from elsewhere, of so many texts; with `members VERSION ID=ADDRESS …` it states who is in the group, and
//! with `level NUMBER` that its state is at this feature level, which `which` tells.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use quorate_blocks::state::level;
use quorate_core::*;
use quorate_store::Reply;

thread_local! {
    static ENDED: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

/// Whose batches have ended on this thread since the last call, in order.
#[allow(dead_code, reason = "whole nodes have no use for it")]
pub fn ended() -> Vec<&'static str> {
    ENDED.take()
}

pub struct Toy;

impl Protocol for Toy {
    const NAME: &'static str = "toy";
    const PAPER: &'static str = "none";
    const CAPABILITIES: Capabilities = Capabilities {
        total_order: false,
        message_revision: 1,
        multi_key: true,
        failover: true,
        quorum: |voters| voters / 2 + 1,
        membership: false,
        transfer: false,
        leaderless: false,
        rejoin: false,
        rosters: false,
        diskless: Diskless::All,
        reads: "none",
        consistency: |_| Consistency::Linearizable,
        min_nodes: 1,
        max_nodes: 5,
    };
    type Message = Message;
    type Replica = Replica;
    type Proxy = Proxy;

    fn configure(_: &Group, settings: &mut Settings) -> Result<((), ()), SettingsError> {
        settings.duration("lease", "2s", "How long a lease lasts")?;
        Ok(((), ()))
    }
}

/// The same, in a group that changes.
#[allow(dead_code, reason = "unit tests have no use for it")]
pub struct Changing;

impl Protocol for Changing {
    const NAME: &'static str = Toy::NAME;
    const PAPER: &'static str = Toy::PAPER;
    const CAPABILITIES: Capabilities = Capabilities { membership: true, ..Toy::CAPABILITIES };
    type Message = Message;
    type Replica = Replica;
    type Proxy = Proxy;

    fn configure(group: &Group, settings: &mut Settings) -> Result<((), ()), SettingsError> {
        Toy::configure(group, settings)
    }
}

/// The same, where votes rely on disks.
#[allow(dead_code, reason = "unit tests have no use for it")]
pub struct Relying;

impl Protocol for Relying {
    const NAME: &'static str = Toy::NAME;
    const PAPER: &'static str = Toy::PAPER;
    const CAPABILITIES: Capabilities = Capabilities { diskless: Diskless::No, ..Toy::CAPABILITIES };
    type Message = Message;
    type Replica = Replica;
    type Proxy = Proxy;

    fn configure(group: &Group, settings: &mut Settings) -> Result<((), ()), SettingsError> {
        Toy::configure(group, settings)
    }
}

/// Reads `VERSION ID=ADDRESS …`.
fn members(text: &str) -> Members {
    let mut words = text.split(' ');
    let version = words.next().unwrap().parse().unwrap();
    let nodes = words.map(|word| {
        let (node, address) = word.split_once('=').unwrap();
        let member = Member { address: address.to_owned(), voter: true };
        (NodeId::new(node.parse().unwrap()).unwrap(), member)
    });
    Members { version, nodes: nodes.collect() }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    Ask { id: u64, command: Bytes },
    Answer { id: u64, text: Bytes },
}
wire_enum!(Message { 0 => Ask { id, command }, 1 => Answer { id, text } });

impl quorate_core::Message for Message {
    fn release(&self) -> Release {
        match self {
            Message::Ask { .. } => Release::Now,
            Message::Answer { .. } => Release::AfterSync,
        }
    }
    fn kind(&self) -> &'static str {
        match self {
            Message::Ask { .. } => "Ask",
            Message::Answer { .. } => "Answer",
        }
    }
}

/// The record of a state that came from elsewhere.
pub const ADOPTED: &[u8] = b"adopted";

#[derive(Debug)]
pub struct Replica {
    kept: Vec<Bytes>,
    later: Vec<(ProcessId, u64, Bytes)>,
    level: Option<FeatureLevel>,
}

impl Machine for Replica {
    type Config = ();
    type Message = Message;
    type Record = Bytes;
    type Timer = ();

    fn recover(_: (), saved: Saved<Bytes>, _: &mut Context<'_, Self>) -> Self {
        let mut kept = saved.records;
        if let Some(end) = kept.iter().position(|record| record == ADOPTED) {
            assert_eq!(end + 1, kept.len(), "the log ends with a state that was not saved");
            kept.truncate(end);
        }
        Replica { kept, later: Vec::new(), level: None }
    }

    fn on_message(&mut self, from: ProcessId, message: Message, cx: &mut Context<'_, Self>) {
        let Message::Ask { id, command } = message else { return };
        if command == level::begin_with(FeatureLevel::NEWEST) {
            self.level = Some(FeatureLevel::NEWEST);
            return cx.send(from, Message::Answer { id, text: "raised".into() });
        }
        let line = String::from_utf8_lossy(&command).into_owned();
        let mut words = line.splitn(3, ' ').skip(1);
        let (verb, rest) = (words.next().unwrap_or(""), words.next().unwrap_or("").to_owned());
        let text = match verb {
            "say" => rest.into(),
            "big" => vec![b'x'; rest.parse().unwrap()].into(),
            "later" => return self.later.push((from, id, rest.into())),
            "go" => {
                for (to, id, text) in self.later.drain(..) {
                    cx.send(to, Message::Answer { id, text });
                }
                "gone".into()
            }
            "keep" => {
                self.kept.push(rest.clone().into());
                cx.persist(rest.into());
                self.kept.len().to_string().into()
            }
            "members" => {
                cx.members(members(&rest));
                "noted".into()
            }
            "level" => {
                self.level = FeatureLevel::new(rest.parse().unwrap());
                rest.into()
            }
            "which" => self.level.map_or_else(Bytes::new, |level| level.to_string().into()),
            "adopt" => {
                self.kept = vec![Bytes::from_static(b"x"); rest.parse().unwrap()];
                cx.persist_state(Bytes::from_static(ADOPTED));
                rest.into()
            }
            _ => return,
        };
        cx.send(from, Message::Answer { id, text });
    }

    fn on_timer(&mut self, (): (), _: &mut Context<'_, Self>) {}

    fn on_batch_end(&mut self, _: &mut Context<'_, Self>) {
        ENDED.with_borrow_mut(|ended| ended.push("replica"));
    }
}

impl quorate_core::Replica for Replica {
    fn read(&self, command: &Bytes) -> Bytes {
        match self.level.filter(|_| *command == level::question()) {
            Some(level) => Reply::Integer(level.get().into()).to_bytes(),
            None => command.clone(),
        }
    }
    fn save(&self) -> Saved<Bytes> {
        Saved { restarted: true, snapshot: None, records: self.kept.clone() }
    }
    fn set_shortage(&mut self, _: Option<Shortage>) {}
    fn fingerprint(&self) -> (u64, u64) {
        (0, 0)
    }
    fn status(&self, _: Instant) -> Status {
        Status {
            role: "toy",
            leader: None,
            ballot: "-".to_owned(),
            committed: 0,
            applied: self.kept.len() as u64,
            lease: false,
            reads: "locally",
            peers: Vec::new(),
            samples: Vec::new(),
            facts: Vec::new(),
        }
    }
}

#[derive(Default, Debug)]
pub struct Proxy {
    asked: BTreeMap<u64, RequestId>,
    deadlines: VecDeque<(Time, u64)>,
}

impl Machine for Proxy {
    type Config = ();
    type Message = Message;
    type Record = Never;
    type Timer = ();

    fn recover(_: (), _: Saved<Never>, _: &mut Context<'_, Self>) -> Self {
        Proxy::default()
    }

    fn on_message(&mut self, _: ProcessId, message: Message, cx: &mut Context<'_, Self>) {
        if let Message::Answer { id, text } = message
            && let Some(request) = self.asked.remove(&id)
        {
            cx.reply(request, Outcome::Done(text));
        }
    }

    fn on_batch_end(&mut self, _: &mut Context<'_, Self>) {
        ENDED.with_borrow_mut(|ended| ended.push("proxy"));
    }

    fn on_timer(&mut self, (): (), cx: &mut Context<'_, Self>) {
        while let Some(&(at, id)) = self.deadlines.front() {
            if at > cx.now() {
                return cx.set_timer((), at - cx.now());
            }
            self.deadlines.pop_front();
            if let Some(request) = self.asked.remove(&id) {
                cx.reply(request, Outcome::Failed(Failure::TimedOut));
            }
        }
    }
}

impl quorate_core::Proxy for Proxy {
    fn on_request(&mut self, id: RequestId, request: Request, cx: &mut Context<'_, Self>) {
        let node = match cx.me() {
            ProcessId::Proxy(me) if request.command == level::begin_with(FeatureLevel::NEWEST) => me.host(),
            _ => NodeId::new(u64::from(request.command[0] - b'0')),
        };
        let node = node.expect("a command begins with a node");
        self.asked.insert(id.0, id);
        self.deadlines.push_back((request.deadline, id.0));
        cx.set_timer((), self.deadlines[0].0 - cx.now());
        cx.send(node, Message::Ask { id: id.0, command: request.command });
    }
}
