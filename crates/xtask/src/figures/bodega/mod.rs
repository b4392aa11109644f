//! **Bodega** (Hu, Arpaci-Dusseau, Arpaci-Dusseau) and its peers: the paper's evaluation in our simulator.
//!
//! | file | what |
//! |---|---|
//! | `candidates` | the protocols that are compared, one line each |
//! | `model` | the formulas of Table 1 |
//! | `world` | the clusters, and runs in them |
//! | `closed` | clients in closed loops |
//! | `panel` | all protocols under one such load |
//! | `table1`, `fig1` | latencies and servers touched in a world without queues |
//! | `fig7` | what the clusters are |
//! | `fig8`, `fig9` | throughput and latency by site, and distributions |
//! | `fig10` | reads around one write |
//! | `sweeps` | Figures 11 and 12: shares of writes, sizes of values |
//! | `fig13` | roster changes |
//! | `rosters` | Figures 14 and 15: who responds, for which keys |
//! | `fig16` | YCSB |
//! | `design` | what is argued, and what is counted for it |

mod candidates;
mod closed;
mod design;
mod fig1;
mod fig10;
mod fig13;
mod fig16;
mod fig7;
mod fig8;
mod fig9;
mod model;
mod panel;
mod rosters;
mod sweeps;
mod table1;
mod world;

use super::{Figure, Paper};

/// What `cargo xtask figures` needs to know.
pub const PAPER: Paper = Paper {
    name: "bodega",
    title: "Bodega and its peers, measured again",
    intro: "*Serving Linearizable Reads Locally from Anywhere at Anytime via Roster Leases.* Figures are made \
            in virtual time with the machines that our nodes run, on the delays of the paper's two clusters. \
            Claims are quoted from the register, by their IDs; l, c, m, M and N are those of its Table 1.",
    prefix: "B",
    figures: &[
        Figure { id: "fig1", make: fig1::make },
        Figure { id: "table1", make: table1::make },
        Figure { id: "fig7", make: fig7::make },
        Figure { id: "fig8", make: fig8::make },
        Figure { id: "fig9", make: fig9::make },
        Figure { id: "fig10", make: fig10::make },
        Figure { id: "fig11", make: sweeps::fig11 },
        Figure { id: "fig12", make: sweeps::fig12 },
        Figure { id: "fig13", make: fig13::make },
        Figure { id: "fig14", make: rosters::fig14 },
        Figure { id: "fig15", make: rosters::fig15 },
        Figure { id: "fig16", make: fig16::make },
        Figure { id: "design", make: design::make },
    ],
};
