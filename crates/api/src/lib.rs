//! What clients speak.
