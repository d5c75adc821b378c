"""What goes in and out: text, tables, progress, and how a command fails."""
