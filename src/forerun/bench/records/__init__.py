"""What was measured, kept and compared."""
