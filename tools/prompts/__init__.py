"""Prompts of many kinds, to train heads on: `python -m tools.prompts`."""
