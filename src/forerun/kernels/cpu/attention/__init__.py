"""Attention: rotary positions, stored keys and values, scores, and weighted sums of values."""
