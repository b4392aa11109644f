//! One folder per replication protocol.
