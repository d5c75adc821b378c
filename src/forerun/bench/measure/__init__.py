"""Measurements of single things: answers, passes, products, starts, texts."""
