"""From options to an engine that can run."""
