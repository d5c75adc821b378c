"""Which requests run in the next pass: integers only, no arrays."""
