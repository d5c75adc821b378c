"""What callers use: `LLM`, `AsyncEngine`, prompts, streams and outputs."""
