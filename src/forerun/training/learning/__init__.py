"""Losses, and the optimizer that moves weights along their gradients."""
