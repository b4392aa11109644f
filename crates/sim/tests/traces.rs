//! The protocols' golden conversations. `UPDATE_TRACES=1` rewrites what is expected; review the difference.

use quorate_core::Protocol;
use quorate_protocols::registry::named;
use quorate_sim::run_traces;

/// A test for each protocol, under the name of its module.
macro_rules! traces {
    ($($module:ident in $folder:literal: $protocol:ty { $($entry:tt)* }),* $(,)?) => {$(
        #[test]
        fn $module() {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../protocols/src/", $folder, "/traces");
            run_traces(named(<$protocol>::NAME), folder);
        }
    )*};
}

quorate_protocols::each_protocol!(traces);
