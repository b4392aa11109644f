//! The `quorate` binary: `up`, `serve`, `proxy`, `get`, `put`, `del`, `status`, `member`, `transfer`, `roster`,
//! `config`, `backup`, `restore`, `recover`, `export`, `import`, `cert`, `protocols`, `man`, `completions`, `sim`,
//! `replay`, `bench`, `compare`.
//!
//! Exit codes: 0 fine, 1 the thing asked about failed, 2 the command line or configuration is wrong, 3 there is no
//! answer: no node could be reached, or no majority of the nodes answers.

mod args;
mod backup;
mod bench;
mod bounds;
mod certificates;
mod client;
mod compare;
mod configuration;
mod exposure;
mod failure;
mod manual;
mod members;
mod protocols;
mod roster;
mod serve;
mod service;
mod signals;
mod simulate;
mod status;
mod stores;
mod topology;
mod up;
mod users;
mod watch;

use std::process::ExitCode;

use args::Command;
use failure::{Failure, say};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    signals::let_large_writes_fail();
    // clap prints help and usage errors itself, and exits with 0 or 2.
    let result = match args::parse().command {
        Command::Up(args) => up::up(args),
        Command::Serve(args) => serve::serve(args),
        Command::Proxy(args) => serve::proxy(args),
        Command::Get(args) => client::get(args),
        Command::Put(args) => client::put(args),
        Command::Del(args) => client::del(args),
        Command::Status(args) => status::status(args),
        Command::Member(args) => members::member(args),
        Command::Transfer(args) => members::transfer(args),
        Command::Roster(args) => roster::roster(args),
        Command::Cert(args) => certificates::cert(args),
        Command::Config(command) => configuration::config(command),
        Command::Data(command) => backup::run(command),
        Command::Protocols { name: None } => protocols::list(),
        Command::Protocols { name: Some(name) } => protocols::show(&name),
        Command::Man { dir } => manual::man(&dir),
        Command::Completions { shell } => manual::completions(shell),
        Command::Sim(args) => simulate::sim(args),
        Command::Replay(args) => simulate::replay(args),
        Command::Bench(args) => bench::bench(args),
        Command::Compare(args) => compare::compare(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { code, message }) => {
            if !message.is_empty() {
                say(&format!("quorate: {message}"));
            }
            ExitCode::from(code)
        }
    }
}
