//! Ports for the processes that a test or a benchmark starts.
//!
//! Binding port 0 and letting go of it gives a port that the system may give to anybody's next connection before the
//! process listens there, or while it is down; and a child that another thread starts meanwhile holds on to it until
//! it runs its program. These ports are below the range that the system gives away (32768 and up by default), and a
//! lock on a file keeps everybody else who claims ports here off them, in any process, for as long as the claim lives.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::net::TcpStream;

/// Above what `quorate up` tries by itself, below what the system gives away.
const FIRST: u16 = 27_000;
const LAST: u16 = 32_767;
/// How many ports a claim has.
const BLOCK: u16 = 64;

/// A block of ports, ours until this is dropped.
#[derive(Debug)]
pub struct Ports {
    next: Cell<u16>,
    end: u16,
    _lock: File,
}

impl Ports {
    /// The first block that nobody has.
    ///
    /// # Errors
    ///
    /// Every block is claimed, or the directory for temporary files cannot be written.
    pub fn claim() -> io::Result<Ports> {
        let mut failure = io::Error::new(io::ErrorKind::AddrInUse, "every block of ports is claimed");
        for first in (FIRST..=LAST - BLOCK + 1).step_by(BLOCK.into()) {
            match Ports::lock(first) {
                Ok(Some(lock)) => {
                    return Ok(Ports { next: Cell::new(first), end: first + BLOCK, _lock: lock });
                }
                Ok(None) => {}
                // Another user's file cannot be opened: that block is taken, then.
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// A lock on the block of ports that begins with this one; `None` if somebody has it.
    ///
    /// # Errors
    ///
    /// Its file cannot be opened.
    pub fn lock(first: u16) -> io::Result<Option<File>> {
        let file = File::create(std::env::temp_dir().join(format!("quorate-ports-{first}.lock")))?;
        Ok(file.try_lock().is_ok().then_some(file))
    }

    /// A port of the block, which was not given before and where nobody listens.
    ///
    /// # Panics
    ///
    /// There is none left.
    pub fn port(&self) -> u16 {
        loop {
            let port = self.next.get();
            assert!(port < self.end, "a claim has {BLOCK} ports; all were given, or somebody listens there");
            self.next.set(port + 1);
            // Not by listening there: a child that another thread starts at this moment would keep the socket open
            // until it runs its program.
            if TcpStream::connect(("127.0.0.1", port)).is_err() {
                return port;
            }
        }
    }

    /// The same as an address.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn claims_do_not_meet_and_are_given_back() {
        let (one, two) = (Ports::claim().unwrap(), Ports::claim().unwrap());
        let first = one.next.get();
        assert!(one.end <= two.next.get() || two.end <= first);
        let (end, given) = (one.end, one.port());
        assert!((first..end).contains(&given));
        drop(one);
        // Unless another process was faster.
        let again = Ports::claim().unwrap();
        assert!(again.next.get() == first || again.end <= two.next.get() || two.end <= again.next.get());
    }

    #[test]
    fn a_port_where_somebody_listens_is_passed_over() {
        let ports = Ports::claim().unwrap();
        let taken = ports.port();
        let _listener = TcpListener::bind(("127.0.0.1", taken)).unwrap();
        ports.next.set(taken);
        assert_ne!(ports.port(), taken);
        assert_ne!(ports.address(), ports.address());
    }
}
