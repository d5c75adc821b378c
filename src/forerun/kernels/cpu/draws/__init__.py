"""Draws: tokens drawn inside a pass, the coupled draw of one row, and bounds for top-p."""
