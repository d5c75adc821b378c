"""Measuring what speculation earns: workloads, runs, peers, gates."""
