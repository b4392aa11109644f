//! The leader: one loop that reads all ready sockets, makes entries of the requests, hands them to the thread that
//! syncs and to both followers, answers what a majority has, and writes once per client.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use bytes::Bytes;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};

use crate::entry::{self, Map};
use crate::follower::FRAME_HEAD;
use crate::log::Log;
use crate::resp;

/// Frames that a follower may have and not have acknowledged. Few, so that entries gather.
const WINDOW: usize = 8;

const LISTENER: Token = Token(usize::MAX);
const SYNCED: Token = Token(usize::MAX - 1);

/// What the thread that syncs is given: bytes, and the index of the last entry in them.
type Unsynced = Arc<(Mutex<(Vec<u8>, u64)>, Condvar)>;

struct Client {
    socket: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
}

struct Follower {
    socket: TcpStream,
    /// Part of an acknowledgement.
    input: Vec<u8>,
    /// What the socket did not take.
    output: Vec<u8>,
    acknowledged: u64,
    sent: u64,
    /// The last index of each frame on its way.
    frames: VecDeque<u64>,
}

struct Leader {
    clients: Vec<Option<Client>>,
    followers: [Follower; 2],
    map: Map,
    /// The last index that was given out.
    last: u64,
    commit: u64,
    /// Entries that are not committed, and who asked for them.
    waiting: VecDeque<(usize, Bytes)>,
    /// Entries of one turn each, with their last index, that some follower was not sent yet.
    unsent: VecDeque<(u64, Bytes)>,
    synced: Arc<AtomicU64>,
    unsynced: Unsynced,
    /// What sockets are read through.
    buffer: Vec<u8>,
}

/// Leads until a follower goes away.
pub fn run(port: u16, folder: &str, followers: [u16; 2]) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let address = format!("127.0.0.1:{port}").parse().expect("an address");
    let [first, second] = followers;
    let mut followers = [connect(first)?, connect(second)?];
    for (index, follower) in followers.iter_mut().enumerate() {
        poll.registry().register(
            &mut follower.socket,
            Token(index),
            Interest::READABLE | Interest::WRITABLE,
        )?;
    }
    let log = Log::make(folder, "leader")?;
    let (synced, unsynced) = (Arc::<AtomicU64>::default(), Unsynced::default());
    let waker = Waker::new(poll.registry(), SYNCED)?;
    let (shared, index) = (Arc::clone(&unsynced), Arc::clone(&synced));
    std::thread::spawn(move || sync(log, &shared, &index, &waker));
    let mut listener = TcpListener::bind(address)?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut leader = Leader {
        clients: Vec::new(),
        followers,
        map: Map::default(),
        last: 0,
        commit: 0,
        waiting: VecDeque::new(),
        unsent: VecDeque::new(),
        synced,
        unsynced,
        buffer: vec![0; 64 << 10],
    };
    let mut events = Events::with_capacity(1024);
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let (mut entries, mut ends) = (Vec::new(), Vec::new());
        for event in &events {
            match event.token() {
                LISTENER => leader.accept(&listener, &poll)?,
                SYNCED => {}
                Token(index @ 0..2) => leader.followers[index].on_ready(&mut leader.buffer)?,
                Token(client) => leader.read(client - 2, &mut entries, &mut ends),
            }
        }
        leader.append(entries, ends);
        leader.commit();
        leader.send()?;
        leader.answer();
    }
}

fn connect(port: u16) -> io::Result<Follower> {
    let socket = std::net::TcpStream::connect(("127.0.0.1", port))?;
    socket.set_nodelay(true)?;
    socket.set_nonblocking(true)?;
    Ok(Follower {
        socket: TcpStream::from_std(socket),
        input: Vec::new(),
        output: Vec::new(),
        acknowledged: 0,
        sent: 0,
        frames: VecDeque::new(),
    })
}

/// Syncs whatever has gathered, again and again.
fn sync(mut log: Log, unsynced: &Unsynced, synced: &AtomicU64, waker: &Waker) {
    let mut bytes = Vec::new();
    loop {
        let index = {
            let guard = unsynced.0.lock().expect("the loop does not panic");
            let mut guard = unsynced.1.wait_while(guard, |(bytes, _)| bytes.is_empty()).expect("as above");
            std::mem::swap(&mut guard.0, &mut bytes);
            guard.1
        };
        log.append(&bytes).expect("the disk takes what is written");
        bytes.clear();
        synced.store(index, Ordering::Release);
        waker.wake().expect("the loop can be woken");
    }
}

impl Leader {
    fn accept(&mut self, listener: &TcpListener, poll: &Poll) -> io::Result<()> {
        loop {
            let mut socket = match listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            socket.set_nodelay(true)?;
            let token = Token(self.clients.len() + 2);
            poll.registry().register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
            self.clients.push(Some(Client { socket, input: Vec::new(), output: Vec::new() }));
        }
    }

    /// Reads what a client has sent, and makes entries of it; `ends` says where each ends, and whose it is.
    fn read(&mut self, index: usize, entries: &mut Vec<u8>, ends: &mut Vec<(usize, usize)>) {
        let Some(client) = &mut self.clients[index] else { return };
        let mut fine = receive(&mut client.socket, &mut client.input, &mut self.buffer);
        let mut at = 0;
        while fine {
            match resp::parse(&client.input[at..]) {
                Ok(None) => break,
                Ok(Some(request)) => {
                    let [command, key, value] = request.words;
                    if command.eq_ignore_ascii_case(b"SET") {
                        self.last += 1;
                        entry::write(entries, self.last, key, value);
                        ends.push((index, entries.len()));
                    } else if command.eq_ignore_ascii_case(b"PING") {
                        client.output.extend_from_slice(b"+PONG\r\n");
                    } else {
                        client.output.extend_from_slice(b"-ERR SET and PING only\r\n");
                    }
                    at += request.length;
                }
                Err(_) => fine = false,
            }
        }
        client.input.drain(..at);
        if !fine {
            self.clients[index] = None;
        }
    }

    /// Hands the entries of this turn to the thread that syncs, and remembers them for the followers.
    fn append(&mut self, entries: Vec<u8>, ends: Vec<(usize, usize)>) {
        if entries.is_empty() {
            return;
        }
        let mut guard = self.unsynced.0.lock().expect("the thread that syncs does not panic");
        guard.0.extend_from_slice(&entries);
        guard.1 = self.last;
        drop(guard);
        self.unsynced.1.notify_one();
        let (entries, mut begin) = (Bytes::from(entries), 0);
        for (client, end) in ends {
            self.waiting.push_back((client, entries.slice(begin..end)));
            begin = end;
        }
        self.unsent.push_back((self.last, entries));
    }

    /// Applies and answers what two of the three have synced.
    fn commit(&mut self) {
        let mut indices = self.followers.each_ref().map(|follower| follower.acknowledged).to_vec();
        indices.push(self.synced.load(Ordering::Acquire));
        indices.sort_unstable();
        while self.commit < indices[1] {
            self.commit += 1;
            let (client, entry) = self.waiting.pop_front().expect("an entry that is not committed waits");
            self.map.apply(&entry);
            if let Some(client) = &mut self.clients[client] {
                client.output.extend_from_slice(b"+OK\r\n");
            }
        }
    }

    /// Sends each follower all that it was not sent, in one frame, unless it has a window of frames already.
    fn send(&mut self) -> io::Result<()> {
        for follower in &mut self.followers {
            if follower.sent < self.last && follower.frames.len() < WINDOW && follower.output.is_empty() {
                let new = self.unsent.iter().filter(|(last, _)| *last > follower.sent);
                follower.send(self.commit, &new.map(|(_, entries)| entries.clone()).collect::<Vec<_>>())?;
                follower.sent = self.last;
                follower.frames.push_back(self.last);
            }
        }
        let [first, second] = &self.followers;
        let everywhere = first.sent.min(second.sent);
        while self.unsent.pop_front_if(|(last, _)| *last <= everywhere).is_some() {}
        Ok(())
    }

    fn answer(&mut self) {
        for slot in &mut self.clients {
            if let Some(client) = slot.as_mut().filter(|client| !client.output.is_empty()) {
                match client.socket.write(&client.output) {
                    Ok(count) => drop(client.output.drain(..count)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => *slot = None,
                }
            }
        }
    }
}

impl Follower {
    /// Writes a frame; what the socket does not take waits.
    fn send(&mut self, commit: u64, entries: &[Bytes]) -> io::Result<()> {
        let length = FRAME_HEAD + entries.iter().map(Bytes::len).sum::<usize>();
        let mut head = [0; FRAME_HEAD];
        head[..4].copy_from_slice(&(length as u32).to_le_bytes());
        head[4..].copy_from_slice(&commit.to_le_bytes());
        let parts: Vec<_> = std::iter::once(&head[..]).chain(entries.iter().map(|part| &part[..])).collect();
        let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut taken = match self.socket.write_vectored(&slices) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            result => result?,
        };
        for part in parts {
            let skipped = taken.min(part.len());
            taken -= skipped;
            self.output.extend_from_slice(&part[skipped..]);
        }
        Ok(())
    }

    /// Writes what has waited, and reads acknowledgements.
    fn on_ready(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        while !self.output.is_empty() {
            match self.socket.write(&self.output) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                result => drop(self.output.drain(..result?)),
            }
        }
        if !receive(&mut self.socket, &mut self.input, buffer) {
            return Err(io::Error::other("a follower has gone"));
        }
        let whole = self.input.len() / 8 * 8;
        if let Some(last) = self.input[..whole].last_chunk() {
            self.acknowledged = u64::from_le_bytes(*last);
            while self.frames.pop_front_if(|last| *last <= self.acknowledged).is_some() {}
        }
        self.input.drain(..whole);
        Ok(())
    }
}

/// Reads all that is there, through a buffer of the loop; `false` if the other side has gone.
fn receive(socket: &mut TcpStream, input: &mut Vec<u8>, buffer: &mut [u8]) -> bool {
    loop {
        match socket.read(buffer) {
            Ok(0) => return false,
            Ok(count) => {
                input.extend_from_slice(&buffer[..count]);
                if count < buffer.len() {
                    // Less than there was room for: the socket is empty, and will tell of more.
                    return true;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}
