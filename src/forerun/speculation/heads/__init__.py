"""What trained heads cost and promise on this machine, and whether they keep it."""
