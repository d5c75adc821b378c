"""Trained heads: training and exporting them."""
