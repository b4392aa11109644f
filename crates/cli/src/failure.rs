//! How a command ends when it does not end well.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// An exit code, and what to say; nothing if it has been said already.
#[derive(Debug)]
pub struct Failure {
    pub code: u8,
    pub message: String,
}

impl Failure {
    /// The thing asked about failed.
    pub fn failed(message: impl Display) -> Failure {
        Failure { code: 1, message: message.to_string() }
    }

    /// No node could be reached, or no majority of them answers.
    pub fn unreachable(message: impl Display) -> Failure {
        Failure { code: 3, message: message.to_string() }
    }

    /// The command line or configuration is wrong.
    pub fn wrong(message: impl Display) -> Failure {
        Failure { code: 2, message: message.to_string() }
    }
}

/// How long a line for people may take: whoever does not read the standard error does not keep the process.
const PATIENCE: Duration = Duration::from_secs(1);

/// Writes a line to the standard error, if anybody reads that.
pub fn say(line: &str) {
    let line = format!("{line}\n");
    let (tell, told) = mpsc::channel();
    let write = move || {
        // Where it cannot be written there is nobody to tell.
        let _ = io::stderr().write_all(line.as_bytes());
        let _ = tell.send(());
    };
    if thread::Builder::new().spawn(write).is_ok() {
        let _ = told.recv_timeout(PATIENCE);
    }
}

impl From<quorate_client::Error> for Failure {
    fn from(error: quorate_client::Error) -> Failure {
        match error {
            quorate_client::Error::Unreachable(ref tried) => {
                // Where somebody is there and the two do not understand each other, it runs.
                let talked = tried.iter().any(|attempt| attempt.source.kind() == io::ErrorKind::InvalidData);
                let tip = "; is the cluster running? (`quorate up`, or --endpoints HOST:PORT,…)";
                Failure::unreachable(format!("{error}{}", if talked { "" } else { tip }))
            }
            quorate_client::Error::Refused { ref message, .. } if message.starts_with("CLUSTERDOWN") => {
                Failure::unreachable(error)
            }
            quorate_client::Error::Unknown { .. } => Failure::unreachable(error),
            error => Failure::failed(error),
        }
    }
}

impl From<io::Error> for Failure {
    /// Output that cannot be written; a reader that has gone away is no news.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::failed(""),
            _ => Failure::failed(format!("cannot write the output: {error}")),
        }
    }
}
