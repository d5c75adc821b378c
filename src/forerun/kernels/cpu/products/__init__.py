"""Products of activations with weights, for every format."""
