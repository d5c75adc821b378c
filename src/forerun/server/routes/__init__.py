"""One thin module per family of endpoints."""
