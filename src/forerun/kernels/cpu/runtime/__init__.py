"""A pass: recorded as steps, run by threads, kept for the next batch."""
