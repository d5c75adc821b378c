"""Weights: matrices and vectors in the file's own format, or repacked."""
