//! **LeaseGuard** (Davis, Demirbas, Deng): its simulated figures in our simulator, its figures of LogCabin with our
//! processes on this machine.

mod design;
mod fig10;
mod fig11;
mod fig4;
mod fig5;
mod fig6;
mod fig7;
mod fig8;
mod fig9;
mod outage;
mod simulated;

use super::{Figure, Paper};

/// What `cargo xtask figures` needs to know.
pub const PAPER: Paper = Paper {
    name: "leaseguard",
    title: "LeaseGuard, measured again",
    intro: "Davis, Demirbas, Deng: *LeaseGuard: Raft Leases Done Right*. Figures 5 to 8 are made in virtual time \
            with the machines that our nodes run; Figures 9 to 11 with real processes. Claims are quoted from the \
            register, by their IDs; Δ is the lease duration, ET the election timeout, L0 the leader that dies, L1 \
            the next one.",
    prefix: "LG",
    figures: &[
        Figure { id: "fig4", real: false, make: fig4::make },
        Figure { id: "fig5", real: false, make: fig5::make },
        Figure { id: "fig6", real: false, make: fig6::make },
        Figure { id: "fig7", real: false, make: fig7::make },
        Figure { id: "fig8", real: false, make: fig8::make },
        Figure { id: "fig9", real: true, make: fig9::make },
        Figure { id: "fig10", real: true, make: fig10::make },
        Figure { id: "fig11", real: true, make: fig11::make },
        Figure { id: "design", real: false, make: design::make },
    ],
};
