//! Figure 8: throughput and latency by the site of the clients, at three shares of writes.
