"""One thin file per family of addresses."""
