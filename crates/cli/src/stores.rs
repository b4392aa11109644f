//! What a process that serves chooses for its stores ([`quorate_store::process`]): a secret key for the hash of their
//! tables, and a thread that frees what takes long to free.

use std::any::Any;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use quorate_store::process;

use crate::failure::Failure;

/// To the thread that frees.
static GARBAGE: OnceLock<Sender<Box<dyn Any + Send>>> = OnceLock::new();

/// Call once, before there is a store.
pub fn prepare() -> Result<(), Failure> {
    let random = || getrandom::u64().map_err(|error| Failure::failed(format!("no random numbers: {error}")));
    process::set_hash_key([random()?, random()?]);
    // Garbage was memory in use before, so there is no need to bound what waits.
    let (sender, garbage) = channel();
    thread::Builder::new()
        .name("free".to_owned())
        .spawn(move || garbage.into_iter().for_each(drop))
        .map_err(|error| Failure::failed(format!("cannot start a thread: {error}")))?;
    if GARBAGE.set(sender).is_ok() {
        process::set_discard(|what| {
            if let Some(sender) = GARBAGE.get() {
                // If the thread has ended, it is freed here.
                drop(sender.send(what));
            }
        });
    }
    Ok(())
}
