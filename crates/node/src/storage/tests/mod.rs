//! The laws of storage, over a disk that crashes and fails on purpose.
