"""Training drafters on a target's output. The only room besides `kernels/cuda` that uses torch."""
