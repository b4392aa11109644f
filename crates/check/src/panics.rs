//! A machine's failed assertion is a finding about its seed, not the end of the campaign.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `body`; a panic gives its message and place.
///
/// The first call puts a hook before the process's panic hook that keeps quiet while this runs: shrinking fails on
/// purpose a hundred times. Other threads and other code keep the hook they had.
pub fn catch<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if CATCHING.get() {
                PLACE.set(info.location().map(ToString::to_string));
            } else {
                before(info);
            }
        }));
    });
    let outer = CATCHING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(body));
    CATCHING.set(outer);
    result.map_err(|payload| {
        let place = PLACE.take().unwrap_or_else(|| "unknown place".to_owned());
        format!("{} ({place})", message(&*payload))
    })
}

fn message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panic without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_message_and_place() {
        let found = catch(|| assert_eq!(1 + 1, 3, "arithmetic")).unwrap_err();
        assert!(found.contains("arithmetic") && found.contains("panics.rs"), "{found}");
        assert_eq!(catch(|| 5), Ok(5));
    }
}
