//! A bare replicator, for comparison: one leader that speaks RESP, two followers over TCP, a log with checksums that
//! all three write and sync, commit at a majority, and a hash map that all three apply the log to.
//!
//! It has no terms, elections, sessions, expiry, snapshots or reads, and recovers nothing: what a replicated store can
//! reach at most on this machine. Quorate's throughput is given as a share of it, measured in the same run.
//!
//! `replicator follower PORT DIR`, twice, then `replicator leader PORT DIR FOLLOWER FOLLOWER`. Clients of the leader
//! may send `SET key value` and `PING`. A process ends with its connection to the other side.
//!
//! | file | what |
//! |---|---|
//! | `entry` | entries: their bytes, and the map that they are applied to |
//! | `log` | the log on disk |
//! | `leader`, `follower` | the two roles |
//! | `resp` | the clients' requests |

mod entry;
mod follower;
mod leader;
mod log;
mod resp;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "usage: replicator follower PORT DIR
       replicator leader PORT DIR FOLLOWER FOLLOWER";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let port =
        |word: &str| word.parse::<u16>().map_err(|_| std::io::Error::other(format!("{word}: no port")));
    let result = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["follower", at, dir] => port(at).and_then(|at| follower::run(at, dir)),
        ["leader", at, dir, first, second] => port(at)
            .and_then(|at| Ok((at, [port(first)?, port(second)?])))
            .and_then(|(at, followers)| leader::run(at, dir, followers)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("replicator: {error}");
            ExitCode::FAILURE
        }
    }
}
