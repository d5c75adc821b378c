"""The runtime of a pass: recorded as steps, run by threads, replayed for later batches."""
