"""Training drafters on what a target says. The only room besides the GPU's that imports torch."""
