"""What the losses are, and how weights follow them."""
