"""Products of activations with weights of every format."""
