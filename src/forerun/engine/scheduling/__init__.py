"""Who runs in the next pass: integers only, no arrays."""
