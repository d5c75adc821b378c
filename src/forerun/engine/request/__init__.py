"""One request: what was asked for, what came of it so far, what it cost."""
