"""One request: its prompt and options, its output so far, and its statistics."""
