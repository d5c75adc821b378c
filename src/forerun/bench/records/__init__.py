"""Bench records: written, read, summed up and compared."""
