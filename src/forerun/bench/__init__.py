"""Benchmarks of speculation: workloads, measurements, peers, records, gates."""
