"""Options that several commands take, each spelled once."""
