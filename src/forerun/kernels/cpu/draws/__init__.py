"""Choosing a token: the coupled draw, and bounds for top-p."""
