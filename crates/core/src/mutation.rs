//! Switches that weaken one safety rule on purpose, so that a test can show that a checker notices.
//!
//! Those named `"narrow/…"` weaken nothing: they make a bound narrow that runs would not reach, and all goes well.
//!
//! Compiled in only with the `mutations` feature, which no shipped binary has; without it [`active`] is the
//! constant `false` and costs nothing. A mutation is a name such as `"lease/no-drift-margin"`; the flipped release
//! of a message type is `"now/MESSAGE-KIND"`.

/// Whether the rule of this name is weakened in the current run.
#[cfg(not(feature = "mutations"))]
#[inline(always)]
pub fn active(_name: &str) -> bool {
    false
}

/// Whether messages of this kind leave before what they promise is durable, in the current run.
#[cfg(not(feature = "mutations"))]
#[inline(always)]
pub fn release_now(_kind: &str) -> bool {
    false
}

#[cfg(feature = "mutations")]
pub use on::{active, release_now, with};

#[cfg(feature = "mutations")]
mod on {
    use std::cell::RefCell;

    thread_local! {
        static ACTIVE: RefCell<Option<String>> = const { RefCell::new(None) };
    }

    /// Whether the rule of this name is weakened in the current run.
    pub fn active(name: &str) -> bool {
        ACTIVE.with_borrow(|active| active.as_deref() == Some(name))
    }

    /// Whether messages of this kind leave before what they promise is durable, in the current run.
    pub fn release_now(kind: &str) -> bool {
        ACTIVE
            .with_borrow(|active| active.as_deref().and_then(|name| name.strip_prefix("now/")) == Some(kind))
    }

    /// Runs `body` on this thread with one rule weakened.
    pub fn with<T>(name: &str, body: impl FnOnce() -> T) -> T {
        struct Restore(Option<String>);
        impl Drop for Restore {
            fn drop(&mut self) {
                ACTIVE.set(self.0.take());
            }
        }
        let _restore = Restore(ACTIVE.replace(Some(name.to_owned())));
        body()
    }
}
