"""What decides and drafts while the engine runs: who guesses, how deep, and whether it pays."""
