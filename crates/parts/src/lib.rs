//! What protocols are composed of: pure values with text-table tests.
