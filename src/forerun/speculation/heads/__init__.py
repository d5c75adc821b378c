"""What speculation knows of trained heads."""
