//! The driver: steps every machine of a cluster in virtual time, and makes its troubles happen.
//!
//! One turn of a process is what one turn of a real node's loop is: take inputs, step the machines, end the batch,
//! write records, send what may go, start a sync. Time passes between turns, in stalls, and on the links and disks.
//!
//! | file | what |
//! |---|---|
//! | [`turn`] | turns, and the messages they send |
//! | [`clients`] | requests and replies |
//! | [`lives`] | starts, crashes, checkpoints |
//! | [`impairments`] | nodes that are lost or slow for good, links that are lost |
//! | [`disks`] | disks that are lost or rolled back |
//! | [`forgetting`] | crashes of nodes that keep their data in memory alone |
//! | [`handshakes`] | which disk a node takes part with |
//! | [`measuring`] | how far nodes are from each other, and the timeouts that follow from it |
//! | [`operator`] | changes of the group |
//! | [`convergence`] | who is to be whole in the end |
//! | `scheduled` | faults, and their end |

mod clients;
mod convergence;
mod disks;
mod forgetting;
mod handshakes;
mod impairments;
mod lives;
mod measuring;
mod operator;
mod scheduled;
mod turn;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use handshakes::Handshake;
use measuring::Echo;
use quorate_blocks::admission::DiskId;
use quorate_blocks::reach::Timeouts;
use quorate_check::log::Logs;
use quorate_check::sequential::WriteOrder;
use quorate_check::service::{Limits, Service};
use quorate_check::{Nanos, Panel, Violation};
use quorate_core::{Capabilities, Consistency, GroupId, NodeSet, ProcessId, Random, RequestId};
use quorate_runtime::ConfiguredProtocol;

use crate::faults::{Counts, Plan};
use crate::network::Network;
use crate::process::SimProcess;
use crate::queue::Queue;
use crate::trace::Trace;
use crate::workload::Workload;
pub(crate) use impairments::SLOWNESS;
pub(crate) use operator::Operator;

/// What a seed has drawn about the driver itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Knobs {
    /// The most inputs a process takes in one turn.
    pub batch: usize,
    /// A checkpoint is due after so many records.
    pub checkpoint: usize,
    /// Bytes in a piece of an image, about.
    pub piece: usize,
    /// The longest time from an input's arrival to the turn that takes it.
    pub wake: Nanos,
}

impl Knobs {
    /// `values`: the most bytes of a string, which takes a thousand pieces at most: in pieces of a byte, a state with a
    /// few strings of 1 MiB would keep a disk busy for longer than a group has to recover.
    pub fn draw(random: &mut Random, values: usize) -> Knobs {
        Knobs {
            batch: *random.pick(&[1, 4, 16, 256]),
            checkpoint: *random.pick(&[5, 20, 60, 200]),
            piece: values.div_ceil(1000).max(*random.pick(&[1, 100, 1000, 65536])),
            wake: *random.pick(&[2_000, 20_000, 200_000]),
        }
    }
}

/// What is going to happen.
pub(crate) enum Event {
    Deliver {
        from: ProcessId,
        to: ProcessId,
        payload: Bytes,
        /// The data directory of the sender when it sent this.
        disk: Option<DiskId>,
    },
    /// A turn of the loop of a life.
    Turn {
        host: usize,
        epoch: u64,
    },
    /// A timer is due.
    Wake {
        host: usize,
        epoch: u64,
    },
    Synced {
        host: usize,
        epoch: u64,
    },
    Checkpoint {
        host: usize,
        epoch: u64,
    },
    Start {
        host: usize,
    },
    /// A node looks whether its disk is nearly full.
    LookAtRoom {
        host: usize,
    },
    /// A drained node stops.
    Stop {
        host: usize,
        epoch: u64,
        down: Nanos,
    },
    /// The instant of a fault.
    Fault(usize),
    /// The moment of a fault.
    Act {
        index: usize,
        host: usize,
    },
    /// A lane asks its next request.
    Ask(usize),
    /// A client has waited long enough.
    GiveUp {
        lane: usize,
        id: RequestId,
    },
    /// The operator has waited long enough.
    Forget(RequestId),
    /// The fault phase ends.
    Heal,
    /// A minority is lost or slow from now on.
    Impair(usize),
    /// Two nodes lose the links to each other.
    LoseLinks,
    /// What a node remembers of disks is durable.
    Remembered {
        host: usize,
        epoch: u64,
        revision: u64,
    },
    /// It is not, and should have been.
    Stuck {
        host: usize,
        epoch: u64,
        revision: u64,
    },
    /// A node introduces itself to a host, unless they are connected.
    Greet {
        host: usize,
        epoch: u64,
        to: usize,
    },
    /// A message of a handshake arrives.
    Introduced(Box<Handshake>),
    /// A node starts again, with the longer timeouts that its disk remembers.
    StartAgain {
        host: usize,
        epoch: u64,
    },
    /// A node asks those that it is connected to how far away they are.
    Measure {
        host: usize,
        epoch: u64,
    },
    /// A question how far away a node is, or its answer, arrives.
    Echo(Echo),
    /// A node has waited for the end of leases that it may have granted with other settings.
    Waited {
        host: usize,
        epoch: u64,
    },
    /// The operator starts a node again, with other settings.
    Reconfigure {
        host: usize,
        epoch: u64,
    },
    /// A node that asked in vain to replace its disk has that back, if another was down all the while: is it still in
    /// this epoch?
    PutBack {
        host: usize,
        other: usize,
        epoch: u64,
    },
    /// The operator replaces a member that was refused.
    Replace {
        host: usize,
    },
    /// Look how far the run is, and compare replicas.
    Poll,
}

/// Of every this many messages between processes, one is encoded again and compared.
const WIRE_SAMPLE: u64 = 16;
/// Every this many checkpoints, one is read back at once and compared.
const LAW_SAMPLE: u64 = 4;

/// What the machines of a group are told at one reach.
pub(crate) struct GroupConfigs {
    /// The configurations of those who are members from the start.
    pub configs: Arc<dyn ConfiguredProtocol>,
    /// Nodes that may join it.
    pub joining: Arc<dyn ConfiguredProtocol>,
    /// Members that replace a lost disk, where the protocol lets them.
    pub rejoining: Option<Arc<dyn ConfiguredProtocol>>,
    /// How soon they promise to serve.
    pub limits: Limits,
    /// A digest of their settings, as processes compare it.
    pub settings: u64,
    /// How long something binds at most that was promised under these.
    pub longest: Duration,
}

/// A cluster with everything around it.
pub(crate) struct Cluster {
    /// What the protocol gives and needs.
    pub can: Capabilities,
    /// Whether nodes keep their data in memory alone.
    pub diskless: bool,
    pub now: Nanos,
    pub queue: Queue<Event>,
    pub hosts: Vec<SimProcess>,
    /// The first so many hosts are nodes.
    pub nodes: usize,
    /// The group as it was set up.
    pub members: NodeSet,
    /// What its machines are told at each reach.
    pub by_reach: Vec<GroupConfigs>,
    /// The same with other settings, which processes have that start once an operator has changed them.
    pub others: Option<Vec<GroupConfigs>>,
    /// Whether an operator has.
    pub changed: bool,
    /// Where timeouts come from, if that is given: else nobody measures anything.
    pub timeouts: Option<Timeouts>,
    pub operator: Operator,
    /// What is in the logs of each group's replicas, where they say so.
    pub logs: Vec<Logs>,
    pub network: Network,
    pub plan: Plan,
    pub knobs: Knobs,
    pub counts: Counts,
    /// The checkers of each group.
    pub panels: Vec<Panel>,
    /// The group that has executed each command, by its digest, and the slot; unless clocks lie, or slots
    /// say nothing of other keys.
    pub executed: Option<BTreeMap<u64, (GroupId, u64)>>,
    /// What holds of reads.
    pub consistency: Consistency,
    /// The order of all writes, where that judges reads.
    pub order: WriteOrder,
    pub work: Workload,
    pub trace: Trace,
    pub random: Random,
    pub violation: Option<Violation>,
    pub healed: bool,
    /// How often a minority is still to be impaired for good, or links to be lost.
    pub impairments: usize,
    /// Two nodes that have lost the links to each other.
    pub lost_links: Option<[usize; 2]>,
    /// Whose clocks became wide.
    pub widened: NodeSet,
    /// Whether writes are served in time once nothing more fails.
    pub service: Service,
    /// When faults end.
    pub heal_at: Nanos,
    /// When what was under way on links and disks that were slow then has arrived.
    pub clear_at: Nanos,
    /// How long a message takes between the two hosts that are furthest from each other, if no fault slows links.
    pub furthest: Nanos,
    pub checkpoints: u64,
    /// The fault, by its place in the schedule, that waits for somebody to send a piece of a snapshot.
    pub awaiting_piece: Option<usize>,
    /// Digests of replicas' states by the group's place and slot.
    pub states: BTreeMap<(usize, u64), u64>,
    pub posts: u64,
}

impl Cluster {
    /// Reports a violation; the first one counts.
    pub fn fail(&mut self, checker: &'static str, what: impl Into<String>) {
        self.found(Err(Violation { checker, at: self.now, what: what.into() }));
    }

    fn found(&mut self, result: Result<(), Violation>) {
        if let Err(violation) = result
            && self.violation.is_none()
        {
            self.trace.line(violation.at, "!", || violation.to_string());
            self.violation = Some(violation);
        }
    }

    /// Begins the trace with what the seed has drawn.
    pub fn introduce(&mut self, seed: u64, settings: &[String]) {
        let kinds: Vec<_> = self.plan.kinds.iter().map(|kind| kind.name()).collect();
        self.trace.line(0, "seed", || format!("{seed}: faults {}", kinds.join(",")));
        self.trace.line(0, "seed", || format!("{:?}, {:?}", self.knobs, self.plan.noise));
        self.trace.line(0, "seed", || format!("settings {}", settings.join(" ")));
    }

    /// Lets one event happen.
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::Deliver { from, to, payload, disk } => self.deliver(from, to, payload, disk),
            Event::Turn { host, epoch } => {
                if self.hosts[host].epoch == epoch {
                    self.turn(host);
                }
            }
            Event::Wake { host, epoch } => {
                let (now, at) = (self.now, &mut self.hosts[host]);
                if at.epoch == epoch
                    && let Some(life) = &mut at.life
                    && life.wake_at == Some(now)
                {
                    life.wake_at = None;
                    self.wake(host);
                }
            }
            Event::Synced { host, epoch } => {
                if self.hosts[host].epoch == epoch {
                    self.hosts[host].disk.finish_sync();
                    let synced = self.hosts[host].disk.synced();
                    self.trace.line(self.now, &self.hosts[host], || format!("synced {synced}"));
                    self.trace.mix(synced);
                    self.wake(host);
                }
            }
            Event::Checkpoint { host, epoch } => {
                if self.hosts[host].epoch == epoch {
                    self.write_checkpoint(host);
                }
            }
            Event::Start { host } => self.start(host),
            Event::LookAtRoom { host } => self.look_at_room(host),
            Event::Stop { host, epoch, down } => {
                if self.hosts[host].epoch == epoch {
                    self.stop_drained(host, down);
                }
            }
            Event::Fault(index) => self.inject(index),
            Event::Act { index, host } => self.act(index, host),
            Event::Ask(lane) => self.ask(lane),
            Event::GiveUp { lane, id } => self.give_up(lane, id),
            Event::Forget(id) => self.forget(id),
            Event::Heal => self.heal(),
            Event::Impair(index) => self.impair(index),
            Event::LoseLinks => self.lose_links(),
            Event::Remembered { host, epoch, revision } => {
                if self.hosts[host].is_writing(epoch, revision) {
                    self.remembered(host);
                }
            }
            Event::Stuck { host, epoch, revision } => {
                if self.hosts[host].is_writing(epoch, revision) {
                    self.stuck(host);
                }
            }
            Event::Greet { host, epoch, to } => {
                if self.hosts[host].epoch == epoch {
                    self.greet(host, to);
                }
            }
            Event::Introduced(message) => self.introduced(*message),
            Event::PutBack { host, other, epoch } => self.put_back(host, other, epoch),
            Event::Waited { host, epoch } => {
                if self.hosts[host].epoch == epoch {
                    self.remember(host);
                }
            }
            Event::Reconfigure { host, epoch } => {
                if self.hosts[host].epoch == epoch {
                    self.reconfigure(host);
                }
            }
            Event::StartAgain { host, epoch } => {
                if self.hosts[host].epoch == epoch {
                    self.start_again(host);
                }
            }
            Event::Measure { host, epoch } => {
                if self.hosts[host].epoch == epoch {
                    self.measure(host);
                }
            }
            Event::Echo(echo) => self.on_echo(echo),
            Event::Replace { host } => self.replace_member(host),
            Event::Poll => unreachable!("the run looks after itself"),
        }
    }
}
