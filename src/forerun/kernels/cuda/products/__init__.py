"""Products of activations with weights, each fused with what follows it."""
