"""Building an engine from its options."""
