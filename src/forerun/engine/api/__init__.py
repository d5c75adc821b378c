"""What callers hold: `LLM`, `AsyncEngine`, prompts, streams and outputs."""
