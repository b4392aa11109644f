//! A follower: reads what the leader sends, syncs all that came at once, acknowledges its last index, and applies what
//! is committed.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpListener;

use bytes::Bytes;

use crate::entry::{self, Map};
use crate::log::Log;

/// Before the entries of a frame: its length with this head (4 bytes), the leader's commit index (8).
pub const FRAME_HEAD: usize = 12;

/// Follows the first that connects, until that goes away.
pub fn run(port: u16, folder: &str) -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    let mut log = Log::make(folder, &format!("follower-{port}"))?;
    let (mut leader, _) = listener.accept()?;
    leader.set_nodelay(true)?;
    let (mut map, mut waiting) = (Map::default(), VecDeque::new());
    let (mut input, mut filled) = (vec![0; 4 << 20], 0);
    loop {
        if filled == input.len() {
            input.resize(2 * filled, 0);
        }
        match leader.read(&mut input[filled..])? {
            0 => return Ok(()),
            count => filled += count,
        }
        let (mut at, mut commit, mut last, mut synced) = (0, 0, 0, Vec::new());
        while let Some(head) = input[..filled].get(at..at + FRAME_HEAD) {
            let length = u32::from_le_bytes(head[..4].try_into().expect("4 bytes")) as usize;
            let Some(frame) = input[..filled].get(at..at + length) else { break };
            commit = u64::from_le_bytes(head[4..].try_into().expect("8 bytes"));
            let entries = &frame[FRAME_HEAD..];
            synced.extend_from_slice(entries);
            for (index, entry) in entry::split(&Bytes::copy_from_slice(entries)) {
                last = index;
                waiting.push_back((index, entry));
            }
            at += length;
        }
        input.copy_within(at..filled, 0);
        filled -= at;
        if last > 0 {
            log.append(&synced)?;
            leader.write_all(&last.to_le_bytes())?;
        }
        while let Some((_, entry)) = waiting.pop_front_if(|(index, _)| *index <= commit) {
            map.apply(&entry);
        }
    }
}
