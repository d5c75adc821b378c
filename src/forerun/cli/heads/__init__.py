"""Trained heads: making them, and handing them on."""
