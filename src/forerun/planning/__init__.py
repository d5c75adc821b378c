"""What speculation costs and what it gives back, before and while it runs."""
