//! How a command ends when it does not end well.

use std::fmt::Display;
use std::io;

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

    /// The command line or configuration is wrong.
    pub fn wrong(message: impl Display) -> Failure {
        Failure { code: 2, message: message.to_string() }
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
