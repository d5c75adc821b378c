"""Matrices and vectors as the file has them, or packed anew."""
