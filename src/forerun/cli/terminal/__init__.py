"""Terminal input and output: text, tables, progress, and how a command fails."""
