"""Tensors by name, as they are stored in files."""
