"""Tensors by name, as files hold them."""
