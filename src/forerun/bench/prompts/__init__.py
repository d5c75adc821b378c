"""Prompts of the benches: workload classes and named prompts."""
